//! Integers that stand for reals, beside products and norms.

use fuseline::graph::Tensor;
use fuseline::tensor::DType::{F8E4M3, F32, I8, I32, U8};

use super::{Sheet, spellings};

spellings! {
    "quantized weights" {
        "a scale for every column" {
            "one operator, product": dequantized,
            "written out, product": dequantized_written_out,
            "scale behind the product": scale_behind,
            "scale and shift of the product": scale_of_difference,
        }
        "packed in four bits" {
            "one operator": four_bits,
            "unpacked, dequantised, product": four_bits_unpacked,
            "remainders and quotients": four_bits_divided,
        }
    }
    "quantized sandwich" {
        "one scale" {
            "two operators": sandwich,
            "bounds first, less as integers": sandwich_integers,
            "written out": sandwich_written_out,
        }
    }
    "quantized product" {
        "range found while running" {
            "four operators": dynamic,
            "two operators": dynamic_to_float,
            "one operator": dynamic_named,
        }
        "integers less their zero points" {
            "one operator": integer,
            "written out": integer_written_out,
        }
    }
    "scaled to eight bits" {
        "a scale for every row" {
            "quotient, clipped, converted": row_scaled,
            "written as maximum and minimum": row_scaled_bounds,
        }
    }
}

fn dequantized_operands(s: &Sheet) -> [Tensor<'_>; 4] {
    [s.floats("x", "n, s, 96"), s.input("weights", I8, "96, 40"), s.floats("step", "40"), s.input("zero", I8, "40")]
}

fn dequantized(s: &Sheet) {
    let [x, weights, step, zero] = dequantized_operands(s);
    s.output("y", s.matmul(x, s.op("DequantizeLinear").int("axis", 1).of(&[weights, step, zero])));
}

fn dequantized_written_out(s: &Sheet) {
    let [x, weights, step, zero] = dequantized_operands(s);
    let centred = s.sub(s.cast(weights, I32), s.cast(zero, I32));
    s.output("y", s.matmul(x, s.mul(s.cast(centred, F32), step)));
}

fn scale_behind(s: &Sheet) {
    let [x, weights, step, zero] = dequantized_operands(s);
    let centred = s.sub(s.cast(weights, F32), s.cast(zero, F32));
    s.output("y", s.mul(s.matmul(x, centred), step));
}

/// 96 elements in three blocks of 32, two to a byte.
fn four_bit_operands(s: &Sheet) -> [Tensor<'_>; 3] {
    [s.floats("x", "n, s, 96"), s.input("weights", U8, "40, 3, 16"), s.floats("step", "40, 3")]
}

fn four_bits(s: &Sheet) {
    let [x, weights, step] = four_bit_operands(s);
    let product = s.contributed("MatMulNBits").int("K", 96).int("N", 40).int("bits", 4).int("block_size", 32);
    s.output("y", product.of(&[x, weights, step]));
}

fn four_bits_unpacked(s: &Sheet) {
    let [x, weights, step] = four_bit_operands(s);
    let low = s.call("BitwiseAnd", &[weights, s.builder().int(U8, 15)]);
    let high = s.op("BitShift").str("direction", "RIGHT").of(&[weights, s.builder().int(U8, 4)]);
    let both = s.concat(&[s.unsqueeze(low, &[3]), s.unsqueeze(high, &[3])], 3);
    let integers = s.reshape(both, &[40, 3, 32]);
    let reals = s.mul(s.sub(s.cast(integers, F32), s.number(8.0)), s.unsqueeze(step, &[2]));
    s.output("y", s.matmul(x, s.transpose(s.reshape(reals, &[40, 96]), &[1, 0])));
}

fn sandwich(s: &Sheet) {
    let x = s.floats("x", "n, s, 96");
    let (step, zero) = (s.number(0.05), s.builder().int(I8, 3));
    let q = s.call("QuantizeLinear", &[x, step, zero]);
    s.output("y", s.call("DequantizeLinear", &[q, step, zero]));
}

fn sandwich_written_out(s: &Sheet) {
    let x = s.floats("x", "n, s, 96");
    let shifted = s.add(s.call("Round", &[s.div(x, s.number(0.05))]), s.number(3.0));
    let q = s.cast(s.call("Clip", &[shifted, s.number(-128.0), s.number(127.0)]), I8);
    s.output("y", s.mul(s.sub(s.cast(q, F32), s.number(3.0)), s.number(0.05)));
}

fn dynamic_operands(s: &Sheet) -> [Tensor<'_>; 4] {
    [s.floats("x", "n, s, 96"), s.input("weights", I8, "96, 40"), s.floats("step", "1"), s.floats("bias", "40")]
}

fn dynamic(s: &Sheet) {
    let [x, weights, step, bias] = dynamic_operands(s);
    let q = s.op("DynamicQuantizeLinear").all(&[x], 3);
    let product = s.cast(s.call("MatMulInteger", &[q[0], weights, q[2]]), F32);
    s.output("y", s.add(s.mul(product, s.mul(q[1], step)), bias));
}

fn dynamic_to_float(s: &Sheet) {
    let [x, weights, step, bias] = dynamic_operands(s);
    let q = s.op("DynamicQuantizeLinear").all(&[x], 3);
    let operands = [Some(q[0]), Some(weights), Some(q[1]), Some(step), Some(q[2]), None, Some(bias)];
    s.output("y", s.contributed("MatMulIntegerToFloat").some(&operands, 1)[0]);
}

fn dynamic_named(s: &Sheet) {
    let [x, weights, step, bias] = dynamic_operands(s);
    let operands = [Some(x), Some(weights), Some(step), None, Some(bias)];
    s.output("y", s.contributed("DynamicQuantizeMatMul").some(&operands, 1)[0]);
}

fn integer_operands(s: &Sheet) -> [Tensor<'_>; 4] {
    [
        s.input("x", U8, "n, s, 96"),
        s.input("weights", I8, "96, 40"),
        s.input("x_zero", U8, "1"),
        s.input("zero", I8, "1"),
    ]
}

fn integer(s: &Sheet) {
    let operands = integer_operands(s);
    s.output("y", s.call("MatMulInteger", &operands));
}

fn integer_written_out(s: &Sheet) {
    let [x, weights, x_zero, zero] = integer_operands(s).map(|x| s.cast(x, I32));
    s.output("y", s.matmul(s.sub(x, x_zero), s.sub(weights, zero)));
}

/// The largest magnitude of a row, at least a little.
fn largest<'s>(s: &'s Sheet, x: Tensor<'s>) -> Tensor<'s> {
    s.reduce("ReduceMax", s.call("Abs", &[x]), -1)
}

const LARGEST: f64 = 448.0;

fn row_scaled(s: &Sheet) {
    let x = s.floats("x", "n, s, 96");
    let step = s.div(s.call("Clip", &[largest(s, x), s.number(1e-12)]), s.number(LARGEST));
    let clipped = s.call("Clip", &[s.div(x, step), s.number(-LARGEST), s.number(LARGEST)]);
    s.output("y", s.cast(clipped, F8E4M3));
    s.output("step", step);
}

fn row_scaled_bounds(s: &Sheet) {
    let x = s.floats("x", "n, s, 96");
    let step = s.mul(s.call("Max", &[largest(s, x), s.number(1e-12)]), s.number(1.0 / LARGEST));
    let clipped = s.call("Min", &[s.call("Max", &[s.div(x, step), s.number(-LARGEST)]), s.number(LARGEST)]);
    s.output("y", s.cast(clipped, F8E4M3));
    s.output("step", step);
}

fn scale_of_difference(s: &Sheet) {
    let [x, weights, step, zero] = dequantized_operands(s);
    let scaled = s.mul(step, s.sub(s.cast(weights, F32), s.cast(zero, F32)));
    s.output("y", s.op("Einsum").str("equation", "bsk,kn->bsn").of(&[x, scaled]));
}

fn four_bits_divided(s: &Sheet) {
    let [x, weights, step] = four_bit_operands(s);
    let sixteen = s.builder().int(U8, 16);
    let (low, high) = (s.call("Mod", &[weights, sixteen]), s.div(weights, sixteen));
    let both = s.concat(&[s.unsqueeze(low, &[-1]), s.unsqueeze(high, &[-1])], -1);
    let integers = s.sub(s.cast(s.reshape(both, &[40, 3, 32]), I32), s.builder().int(I32, 8));
    let reals = s.mul(s.unsqueeze(step, &[2]), s.cast(integers, F32));
    s.output("y", s.op("Einsum").str("equation", "bsk,nk->bsn").of(&[x, s.reshape(reals, &[40, 96])]));
}

fn sandwich_integers(s: &Sheet) {
    let x = s.floats("x", "n, s, 96");
    // Not x · 20, which falls to the other side of some boundaries: what is rounded to integers next is computed as it is written.
    let rounded = s.call("Round", &[s.div(x, s.number(0.05))]);
    let bounded = s.call("Min", &[s.call("Max", &[s.add(rounded, s.number(3.0)), s.number(-128.0)]), s.number(127.0)]);
    let integers = s.sub(s.cast(s.cast(bounded, I8), I32), s.builder().int(I32, 3));
    s.output("y", s.mul(s.number(0.05), s.cast(integers, F32)));
}
