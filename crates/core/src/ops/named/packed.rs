//! Weights of few bits, several to a byte.

use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::prim::View;
use crate::tensor::{DType, Dim, Literal, Shape};

pub(super) static OPS: &[NamedOp] = &[
    NamedOp::contributed(
        "GatherBlockQuantized",
        &["bits", "block_size", "gather_axis", "quantize_axis"],
        "slices of a table of integers with a scale and a zero point for every block, as reals",
        |call| Ok(vec![gather(call)?]),
    ),
    NamedOp::contributed(
        "MatMulNBits",
        &["K", "N", "accuracy_level", "bits", "block_size", "weight_prepacked"],
        "the product with a matrix of packed integers, a scale and a zero point for every block along K, plus a bias",
        |call| Ok(vec![product(call)?]),
    ),
    NamedOp::contributed(
        "MatMulBnb4",
        &["K", "N", "block_size", "quant_type", "training_mode", "transB"],
        "the product with a matrix of 4-bit codes for floats, a scale for every block of them",
        |call| Ok(vec![coded_product(call)?]),
    ),
];

/// The floats that codes of 4 bits stand for: a sign, two bits of exponent and one of fraction; or 16 numbers that divide the normal
/// distribution evenly.
const FP4: [f64; 8] = [0.0, 5.208_333_333e-3, 0.666_666_67, 1.0, 0.333_333_33, 0.5, 0.166_666_67, 0.25];
const NF4: [f64; 16] = [
    -1.0,
    -0.696_192_800_998_687_7,
    -0.525_073_051_452_636_7,
    -0.394_917_488_098_144_5,
    -0.284_441_381_692_886_35,
    -0.184_773_430_228_233_34,
    -0.091_050_036_251_544_95,
    0.0,
    0.079_580_299_556_255_34,
    0.160_930_201_411_247_25,
    0.246_112_301_945_686_34,
    0.337_915_241_718_292_24,
    0.440_709_829_330_444_34,
    0.562_617_003_917_694_1,
    0.722_956_836_223_602_3,
    1.0,
];

fn coded_product<'b>(call: &Call<'_, 'b>) -> Result<Tensor<'b>> {
    let (a, codes, scales) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let wanted = |name: &str| -> Result<i64> {
        let given = call.int(name)?.filter(|n| *n > 0);
        given.ok_or_else(|| Error::invalid(format!("attribute {name} of {} must be positive", call.op.name)))
    };
    let (rows, depth, block) = (wanted("N")?, wanted("K")?, wanted("block_size")?);
    let floats: Vec<f64> = match call.int_or("quant_type", 1)? {
        0 => FP4.iter().copied().chain(FP4.iter().map(|x| -x)).collect(),
        1 => NF4.to_vec(),
        other => return Err(Error::invalid(format!("attribute quant_type of MatMulBnb4 is {other}"))),
    };
    let Some(count) = rows.checked_mul(depth).filter(|count| *count < 1 << 40) else {
        return Err(Error::limit(format!("MatMulBnb4 with a matrix of {rows} times {depth}")));
    };
    let dtype = a.dtype()?;
    let table = call.builder.constant(Literal::from_f64s(dtype, [16], &floats)?);
    let shape = Shape::new([rows, depth]);
    let at = Dim::axis(0) * depth + Dim::axis(1);
    let (two, block) = (Dim::int(2), Dim::int(block));
    let bytes = codes.reshape(Shape::new([Dim::int(count).ceildiv(&two)]));
    let bytes = bytes.view(View::new(shape.clone(), vec![at.floordiv(&two)]));
    // The first code of a byte is in its higher half.
    let shift = (Dim::int(1) - at.modulo(&two)) * 4;
    let code = (bytes >> call.builder.index(&shift, &shape).cast(DType::U8)).and(15i64);
    let scales = scales.reshape(Shape::new([Dim::int(count).ceildiv(&block)]));
    let scales = scales.view(View::new(shape, vec![at.floordiv(&block)]));
    let weights = table.take(0, code.cast(DType::I64)) * scales.cast(dtype);
    match call.flag("transB", true)? {
        true => times_rows(a, weights),
        false => times_rows(a, weights.transpose()),
    }
}

/// A packed matrix `[N, K]`.
struct Packed {
    rows: i64,
    depth: i64,
    bits: i64,
    /// elements along K with one scale
    block: i64,
}

impl Packed {
    fn of(call: &Call<'_, '_>) -> Result<Packed> {
        let wanted = |name: &str| -> Result<i64> {
            let given = call.int(name)?.filter(|n| *n > 0);
            given.ok_or_else(|| Error::invalid(format!("attribute {name} of {} must be positive", call.op.name)))
        };
        let bits = call.int_or("bits", 4)?;
        if ![1, 2, 4, 8].contains(&bits) {
            return Err(call.unsupported("bits", bits));
        }
        if call.int_or("weight_prepacked", 0)? != 0 {
            return Err(call.unsupported("weight_prepacked", "weights in a private layout"));
        }
        let packed = Packed { rows: wanted("N")?, depth: wanted("K")?, bits, block: wanted("block_size")? };
        if packed.block % packed.per_byte() != 0 {
            return Err(call.unsupported("block_size", packed.block));
        }
        Ok(packed)
    }

    fn per_byte(&self) -> i64 {
        8 / self.bits
    }

    fn blocks(&self) -> i64 {
        (self.depth - 1) / self.block + 1
    }

    /// The integers of `bytes`, which hold element `k` of a row at `byte(k)`; `count` of them in a row.
    fn unpack<'b>(&self, bytes: Tensor<'b>, count: i64, map: Vec<Dim>) -> Tensor<'b> {
        let shape = Shape::new([self.rows, count]);
        let seen = bytes.view(View::new(shape.clone(), map));
        if self.bits == 8 {
            return seen;
        }
        let shift = Dim::axis(1).modulo(&Dim::int(self.per_byte())) * self.bits;
        let shift = bytes.builder().index(&shift, &shape).cast(DType::U8);
        (seen >> shift).and((1i64 << self.bits) - 1)
    }

    /// The weights as integers `[N, K]`.
    fn weights<'b>(&self, bytes: Tensor<'b>) -> Tensor<'b> {
        let blob = self.block / self.per_byte();
        let (block, k) = (Dim::int(self.block), Dim::axis(1));
        let byte = k.modulo(&block).floordiv(&Dim::int(self.per_byte()));
        let map = vec![Dim::axis(0), k.floordiv(&block), byte];
        self.unpack(bytes.reshape(Shape::new([self.rows, self.blocks(), blob])), self.depth, map)
    }

    /// The zero points of the blocks as integers or reals `[N, blocks]`: packed like the weights, each row from a whole byte
    /// on, or one element each.
    fn zero_points<'b>(&self, zero: Tensor<'b>, real: DType) -> Result<Tensor<'b>> {
        if zero.dtype()? == DType::U8 {
            let per_byte = Dim::int(self.per_byte());
            let bytes = Dim::int(self.blocks()).ceildiv(&per_byte);
            let zero = zero.reshape(Shape::new([Dim::int(self.rows), bytes]));
            return Ok(self.unpack(zero, self.blocks(), vec![Dim::axis(0), Dim::axis(1).floordiv(&per_byte)]));
        }
        Ok(zero.reshape(Shape::new([self.rows, self.blocks()])).cast(real))
    }
}

fn product<'b>(call: &Call<'_, 'b>) -> Result<Tensor<'b>> {
    let a = call.input(0)?;
    let (packed, dtype) = (Packed::of(call)?, a.dtype()?);
    let weights = packed.weights(call.input(1)?);
    let per_block = |x: Tensor<'b>| match call.optional(4) {
        Some(groups) => x.take(1, groups.cast(DType::I64)),
        None => {
            let block = Dim::axis(1).floordiv(&Dim::int(packed.block));
            x.view(View::new(Shape::new([packed.rows, packed.depth]), vec![Dim::axis(0), block]))
        }
    };
    let zero = call.optional(3).map(|z| packed.zero_points(z, dtype)).transpose()?;
    let centred = match zero {
        Some(zero) if zero.dtype()?.is_float() => weights.cast(dtype) - per_block(zero),
        Some(zero) => (weights.cast(DType::I32) - per_block(zero).cast(DType::I32)).cast(dtype),
        None => (weights.cast(DType::I32) - (1i64 << (packed.bits - 1))).cast(dtype),
    };
    let scales = call.input(2)?.reshape(Shape::new([packed.rows, packed.blocks()]));
    let y = times_rows(a, centred * per_block(scales.cast(dtype)))?;
    Ok(call.optional(5).map_or(y, |bias| y + bias))
}

/// `a` `[…, K]` times the rows of `w` `[N, K]`.
fn times_rows<'b>(a: Tensor<'b>, w: Tensor<'b>) -> Result<Tensor<'b>> {
    let ty = a.ty()?;
    let leading = ty.shape.rank().checked_sub(1).filter(|n| *n <= 20);
    let leading = leading.ok_or_else(|| Error::invalid(format!("a product of {ty} with packed weights")))?;
    let places: String = ('a'..='t').take(leading).collect();
    Ok(a.contract(&format!("{places}K,NK->{places}N"), w))
}

/// Slices of a table whose elements may lie several to a byte along the last axis; scales and zero points are gathered with them.
fn gather<'b>(call: &Call<'_, 'b>) -> Result<Tensor<'b>> {
    let (data, indices, scales) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let (axis, blocked) = (data.axis(call.int_or("gather_axis", 0)?)?, data.axis(call.int_or("quantize_axis", 1)?)?);
    let (bits, block) = (call.int_or("bits", 4)?, call.int_or("block_size", 128)?);
    if axis == blocked {
        return Err(call.unsupported("gather_axis", "the quantised axis"));
    }
    let in_bytes = data.dtype()? == DType::U8;
    if in_bytes && (![1, 2, 4, 8].contains(&bits) || (bits < 8 && blocked + 1 != data.rank()?)) {
        return Err(call.unsupported("bits", bits));
    }
    if block < 0 {
        return Err(Error::invalid(format!("attribute block_size of {} is {block}", call.op.name)));
    }
    let per_byte = if in_bytes { 8 / bits } else { 1 };
    let taken = data.take(axis, indices);
    let last = if blocked > axis { blocked + indices.rank()? - 1 } else { blocked };
    let mut dims = taken.shape()?.dims().to_vec();
    dims[last] = &dims[last] * per_byte;
    let shape = Shape::from(dims);
    // The element that `place` along the blocked axis names, of a tensor whose elements may be packed.
    let read = |x: Tensor<'b>, place: Dim, per_byte: i64| -> Result<Tensor<'b>> {
        let mut map: Vec<Dim> = (0..shape.rank()).map(Dim::axis).collect();
        map[last] = place.floordiv(&Dim::int(per_byte));
        let seen = x.view(View::new(shape.clone(), map));
        if per_byte == 1 {
            return Ok(seen);
        }
        let shift = call.builder.index(&(place.modulo(&Dim::int(per_byte)) * bits), &shape).cast(DType::U8);
        Ok((seen >> shift).and((1i64 << bits) - 1))
    };
    let of_block = if block == 0 { Dim::int(0) } else { Dim::axis(last).floordiv(&Dim::int(block)) };
    let (values, real) = (read(taken, Dim::axis(last), per_byte)?, scales.dtype()?);
    let values = if values.dtype()?.is_float() {
        values.cast(real)
    } else {
        let integers = values.cast(DType::I32);
        let centred = match call.optional(3) {
            Some(zero) => integers - read(zero.take(axis, indices), of_block.clone(), per_byte)?.cast(DType::I32),
            None if in_bytes => integers - (1i64 << (bits - 1)),
            None => integers,
        };
        centred.cast(real)
    };
    Ok(values * read(scales.take(axis, indices), of_block, 1)?)
}
