//! Expressions against the interpreter of kernels.

use fuseline::ops::Expr;
use fuseline::reference::{Buffer, Reading};
use fuseline::tensor::{Dim, Env};
use fuseline::tile::{Kernel, Op, interp};

use super::super::expr::{Coordinate, Copies, Place, eval, eval_coordinates, needs_64_bits};
use super::super::int_expr::eval_int;
use super::super::*;
use super::{call, instructions, lanes, random};
use crate::code::Isa;
use crate::vector::{IntOp, Op as VectorOp, Program};

const ROWS: usize = 5;
const COLUMNS: usize = 48;
const COPIES: usize = 3;

/// How the axis along lanes is told.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Along {
    Consecutive,
    Lanes,
}

/// A kernel with one map of inputs of these types, over rows and columns.
fn kernel(body: &str, inputs: &[DType], to: DType, rounding: &str) -> Kernel {
    let names: Vec<String> = (0..inputs.len()).map(|k| format!("x{k}: {}[5, 48]", inputs[k])).collect();
    let loads: String = (0..inputs.len()).map(|k| format!("%{k} = load x{k}[i0, i1]\n")).collect();
    let steps: Vec<String> = (0..inputs.len()).map(|k| format!("%{k}")).collect();
    let (inputs, steps, n) = (names.join(", "), steps.join(", "), inputs.len());
    let inputs = if n == 0 { String::new() } else { format!("in {inputs}") };
    let text = format!(
        "kernel {{ axes i0: 5, i1: 48\n{inputs}\nout y0: {to}[5, 48]\nschedule map {rounding}\n{loads}
        %{n} = map({steps}) {body}\nstore y0[i0, i1] = %{n} }}"
    );
    fuseline::tile::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn expr_of(kernel: &Kernel) -> &Expr {
    match &kernel.steps.last().unwrap().op {
        Op::Map { expr, .. } => expr,
        other => panic!("{other:?}"),
    }
}

/// Elements of an input: small numbers of either sign, and some that are special.
fn elements(dtype: DType, seed: u64) -> Vec<f64> {
    let special = [0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NAN, 1e-40, 3e4];
    let draw = |w: u32| match dtype.class() {
        Class::Float if w.is_multiple_of(16) => special[(w >> 8) as usize % special.len()],
        Class::Float => (f64::from(w) / 4294967296.0 - 0.5) * 8.0,
        Class::Bool => f64::from(w >> 31),
        Class::Unsigned => f64::from(w >> 25),
        Class::Signed => f64::from(w >> 25) - 64.0,
    };
    random(seed).take(ROWS * COLUMNS).map(|w| dtype.round(draw(w))).collect()
}

fn buffer(dtype: DType, values: &[f64]) -> Buffer {
    if dtype.is_float() {
        Buffer::floats(dtype, vec![ROWS, COLUMNS], values.to_vec())
    } else {
        Buffer::ints(dtype, vec![ROWS, COLUMNS], values.iter().map(|x| *x as i64).collect())
    }
}

fn bytes_of(dtype: DType, values: &[f64]) -> Vec<u8> {
    buffer(dtype, values).to_literal().unwrap().bytes().to_vec()
}

/// The program of a map kernel: rows are tasks, columns are worked on in copies.
fn program(kernel: &Kernel, lanes: usize, along: Along) -> Program {
    let expr = expr_of(kernel);
    let sizes = |_: &Dim| unreachable!("sizes are numbers");
    let facts = Facts { extents: &[ROWS as i64, COLUMNS as i64], sizes: &sizes, args: &[] };
    let mut b = Builder::new(lanes as u32);
    let bases: Vec<Value> = (0..=kernel.inputs.len() as u32).map(|k| b.buffer(k)).collect();
    let row = b.begin_tasks();
    for start in (0..COLUMNS).step_by(COPIES * lanes) {
        let columns: Vec<usize> = (0..COPIES).map(|c| (start + c * lanes).min(COLUMNS - lanes)).collect();
        let mut args = Vec::new();
        for (param, base) in kernel.inputs.iter().zip(&bases) {
            let bytes = (param.ty.dtype.bits() / 8) as i64;
            let load = |b: &mut Builder, column: usize| {
                let at = b.address(*base, &[(row, COLUMNS as i64 * bytes)], column as i64 * bytes);
                b.load(at, param.ty.dtype, None)
            };
            args.push(Copies::Each(columns.iter().map(|c| load(&mut b, *c)).collect()));
        }
        let mut coords = |b: &mut Builder, axis: u8| match (axis, along) {
            (0, _) => Copies::Same(Coordinate::Uniform(row)),
            (_, Along::Consecutive) => {
                Copies::Each(columns.iter().map(|c| Coordinate::Consecutive(b.number(*c as i64))).collect())
            }
            (_, Along::Lanes) => {
                let lanes = b.lane_numbers(Ty::I32);
                let lane = |c: &usize| {
                    let base = b.integer(Ty::I32, *c as i64);
                    Coordinate::Lanes(b.binary(Binary::Add, lanes, base))
                };
                Copies::Each(columns.iter().map(lane).collect())
            }
        };
        let y = eval(&mut b, expr, &facts, COPIES, &args, &mut coords, kernel.rounding);
        let to = kernel.outputs[0].ty.dtype;
        let bytes = (to.bits() / 8) as i64;
        for (copy, column) in columns.iter().enumerate() {
            let at = b.address(bases[kernel.inputs.len()], &[(row, COLUMNS as i64 * bytes)], *column as i64 * bytes);
            b.store(at, *y.of(copy), to, None);
        }
    }
    b.end_loop(&[]);
    b.finish()
}

fn is_wide(kernel: &Kernel, along: Along) -> bool {
    let sizes = |_: &Dim| unreachable!("sizes are numbers");
    let facts = Facts { extents: &[ROWS as i64, COLUMNS as i64], sizes: &sizes, args: &[] };
    let place = |axis: u8| match (axis, along) {
        (0, _) => Place::General,
        (_, Along::Consecutive) => Place::Consecutive,
        (_, Along::Lanes) => Place::Lanes,
    };
    needs_64_bits(expr_of(kernel), &facts, &|_| Place::Lanes, &place)
}

/// Runs a map everywhere and compares; floats may differ by `ulps` of f32 (or of their own type).
fn check(body: &str, inputs: &[DType], to: DType, rounding: &str, ulps: f64) {
    let kernel = kernel(body, inputs, to, rounding);
    let values: Vec<Vec<f64>> = inputs.iter().zip(1..).map(|(d, seed)| elements(*d, seed)).collect();
    let buffers: Vec<Buffer> = inputs.iter().zip(&values).map(|(d, v)| buffer(*d, v)).collect();
    let options = interp::Options { reading: Reading::Rounded, ..interp::Options::default() };
    let expected = interp::run(&kernel, &buffers, &Env::default(), &options).unwrap()[0].to_literal().unwrap();
    for (isa, along) in instructions().into_iter().flat_map(|isa| [(isa, Along::Consecutive), (isa, Along::Lanes)]) {
        let program = program(&kernel, lanes(isa, is_wide(&kernel, along)), along);
        let mut memory: Vec<Vec<u8>> = inputs.iter().zip(&values).map(|(d, v)| bytes_of(*d, v)).collect();
        memory.push(vec![0; ROWS * COLUMNS * to.bits() / 8]);
        call(&program, isa, &mut memory, ROWS);
        let out = fuseline::tensor::Literal::new(to, vec![ROWS, COLUMNS], memory.pop().unwrap()).unwrap();
        for k in 0..ROWS * COLUMNS {
            let told = || {
                let args: Vec<f64> = values.iter().map(|v| v[k]).collect();
                format!("{body} at ({}, {}) of {args:?} on {isa:?}, {along:?}", k / COLUMNS, k % COLUMNS)
            };
            if to.is_float() {
                let (e, a) = (expected.float(k), out.float(k));
                let same = e == a || (e.is_nan() && a.is_nan());
                let bound = ulps * to.epsilon() * e.abs().max(1.0);
                assert!(same || (e - a).abs() <= bound, "{}: {e}, not {a}", told());
            } else {
                assert_eq!(expected.int(k), out.int(k), "{}", told());
            }
        }
    }
}

#[test]
fn maps_of_floats() {
    let f = DType::F32;
    check("a * b + c", &[f, f, f], f, "", 32.0);
    check("a * 0.5 * (erf(a * 0.70710677) + 1.0)", &[f], f, "", 8.0);
    check("a * b * sigmoid(a)", &[f, f], f, "", 8.0);
    check("a * (1.0 - a) - b * a", &[f, f], f, "", 32.0);
    check("max(min(a, b), c)", &[f, f, f], f, "", 0.0);
    check("select(a < b, a / b, exp(a) - b)", &[f, f], f, "", 64.0);
    check("f32(f16(a * b)) + a", &[f, f], f, "", 4.0);
    check("a * b + c", &[DType::F64; 3], DType::F64, "", 32.0);
    check("exp(a) * b", &[DType::F16; 2], DType::F16, "", 1.0);
    check("f64(a) * f64(b)", &[f, f], DType::F64, "", 0.0);
}

#[test]
fn infinities_times_sums_are_those_of_the_formula() {
    let f = DType::F32;
    check("1.0 / (a - a) * (b + 1.0)", &[f, f], f, "", 0.0);
    check("(1.0 - b) / (a - a) * (1.0 - b)", &[f, f], f, "", 0.0);
    check("1.0 / (a - a) * (tanh(b) + 1.0)", &[f, f], f, "", 0.0);
    check("(a / 0.0) * (a / 0.0 - 1.0)", &[f], f, "", 0.0);
    check("(a / 0.0) * (erf(a / 0.0) + 1.0)", &[f], f, "", 0.0);
}

#[test]
fn every_result_is_rounded_where_it_should_be() {
    for dtype in [DType::F16, DType::BF16, DType::F32] {
        check("a * b + c", &[dtype; 3], dtype, "rounding every", 0.0);
        check("(a - b) / (c * c) * (a + 1.0)", &[dtype; 3], dtype, "rounding every", 0.0);
        check("sqrt(abs(a * b)) - c", &[dtype; 3], dtype, "rounding every", 0.0);
    }
}

#[test]
fn maps_of_integers() {
    for dtype in [DType::I8, DType::U8, DType::I16, DType::I32, DType::U32, DType::I64, DType::U64] {
        check("a * b + c", &[dtype; 3], dtype, "", 0.0);
        check("max(a - b, c) / 4 + mod(a, 5)", &[dtype; 3], dtype, "", 0.0);
        check("select(a <= b, a, b - c)", &[dtype; 3], dtype, "", 0.0);
        check("a * b <= c", &[dtype; 3], DType::Bool, "", 0.0);
    }
    check("and(a, not(b)) ", &[DType::Bool; 2], DType::Bool, "", 0.0);
    check("i8(max(min(round(a * 16.0), 127.0), -128.0))", &[DType::F32], DType::I8, "", 0.0);
    check("i16(a * 1000.0)", &[DType::F32], DType::I16, "", 0.0);
}

#[test]
fn coordinates_in_expressions() {
    let (f, i) = (DType::F32, DType::I64);
    check("select(i1 <= i0, a * 0.125, -inf)", &[f], f, "", 0.0);
    check("select(i1 < i0 + 7, a, b)", &[f, f], f, "", 0.0);
    check("select(i0 * 3 == i1 - 2, a, b)", &[f, f], f, "", 0.0);
    check("select(i0 < 2, a, b)", &[f, f], f, "", 0.0);
    check("a + f32(i1 * 2 - i0)", &[f], f, "", 0.0);
    check("i0 * 48 + i1", &[], i, "", 0.0);
    check("i32(mod(i0 * 48 + i1, 7))", &[], DType::I32, "", 0.0);
    check("u8(i1 * i0)", &[], DType::U8, "", 0.0);
    check("a + i1 * 100000000000", &[i], i, "", 0.0);
    check("i1 < a", &[i], DType::Bool, "", 0.0);
    check("max(i0 - i1, 0 - i0) / 3", &[], i, "", 0.0);
}

#[test]
fn masks_need_no_lanes_of_64_bits() {
    let f = DType::F32;
    for (body, wide) in [
        ("select(i1 <= i0, a * 0.125, -inf)", false),
        ("a * f32(i1 * i0 + 5)", false),
        ("a * f32(i1 * 100000000000)", true),
        ("f32(f64(a) * 2.0)", true),
    ] {
        let kernel = kernel(body, &[f], f, "");
        assert_eq!(is_wide(&kernel, Along::Consecutive), wide, "{body}");
        assert_eq!(is_wide(&kernel, Along::Lanes), wide, "{body}");
    }
}

/// Steps of the loop of a program, without memory and addresses.
fn arithmetic(program: &Program) -> Vec<&VectorOp> {
    use crate::vector::Node;
    let body = program.body.iter().find_map(|node| if let Node::Loop(l) = node { Some(&l.body) } else { None });
    let vector = |op: &&VectorOp| !matches!(op, VectorOp::Int(..) | VectorOp::Number(_) | VectorOp::Load { .. });
    let lets = body.unwrap().iter().filter_map(|node| if let Node::Let(_, op) = node { Some(op) } else { None });
    lets.filter(vector).collect()
}

#[test]
fn common_shapes_take_few_instructions() {
    let f = DType::F32;
    let count = |body: &str, inputs: usize| {
        let kernel = kernel(body, &vec![f; inputs], f, "");
        arithmetic(&program(&kernel, 16, Along::Consecutive)).len() as f64 / COPIES as f64
    };
    assert_eq!(count("a * b + c", 3), 1.0);
    assert_eq!(count("a * (b + 1.0)", 2), 2.0);
    assert_eq!(count("a * (tanh(a) + 1.0)", 1), count("tanh(a)", 1) + 1.0);
    // A comparison and a select; the row is put into lanes once for all copies.
    assert!(count("select(i1 <= i0, a * 0.125, -inf)", 1) <= 4.0);
    // Two of them for what underflows: without them masked scores are slow.
    assert!(count("exp(a)", 1) <= 15.0);
    assert!(count("a * b * sigmoid(a)", 2) <= 19.0);
    assert!(
        count("a * 0.5 * (erf(a * 0.70710677) + 1.0)", 1) <= 32.0,
        "{}",
        count("a * 0.5 * (erf(a * 0.70710677) + 1.0)", 1)
    );
    assert!(count("a * 0.5 * (tanh(a * (a * a * 0.035677407 + 0.7978846)) + 1.0)", 1) <= 26.0);
}

#[test]
fn uniform_integers_stay_in_general_registers() {
    let bodies = [
        "(i0 * 7 - i1) / 3",
        "mod(i0 - 4, 3) + (i1 - 9) / 4",
        "select(i0 <= i1, min(i0, i1), max(i0, 0 - i1))",
        "i64(i8(i0 * 100 - i1))",
        "i64(i0 < i1) + abs(i1 - 20)",
        "i64(u16(i0 - i1))",
    ];
    for body in bodies {
        let kernel = kernel(body, &[], DType::I64, "");
        let mut b = Builder::new(4);
        let out = b.buffer(0);
        let task = b.begin_tasks();
        let columns = b.number(COLUMNS as i64);
        let (row, column) = (b.int(IntOp::FloorDiv, task, columns), b.int(IntOp::FloorMod, task, columns));
        let mut coords = |_: &mut Builder, axis: u8| Some(if axis == 0 { row } else { column });
        let sizes = |_: &Dim| unreachable!("sizes are numbers");
        let y = eval_int(&mut b, expr_of(&kernel), &[], &mut coords, &sizes).unwrap();
        let y = b.splat(Ty::I64, y);
        let at = b.address(out, &[(task, 8)], 0);
        b.store_lane(at, y, DType::I64);
        b.end_loop(&[]);
        let mut memory = [vec![0; ROWS * COLUMNS * 8]];
        call(&b.finish(), Isa::Portable, &mut memory, ROWS * COLUMNS);
        let expected = interp::run(&kernel, &[], &Env::default(), &interp::Options::default()).unwrap();
        let words: Vec<i64> = memory[0].chunks_exact(8).map(|w| i64::from_le_bytes(w.try_into().unwrap())).collect();
        assert_eq!(words, expected[0].to_ints().into_owned(), "{body}");
    }
}

#[test]
fn coordinates_come_as_they_can_be_used() {
    let sizes = |_: &Dim| unreachable!("sizes are numbers");
    let facts = Facts { extents: &[5, 48], sizes: &sizes, args: &[] };
    let kind = |body: &str| {
        let kernel = kernel(body, &[], DType::I64, "");
        let mut b = Builder::new(8);
        let (row, column) = (b.buffer(0), b.buffer(1));
        let mut coords = |_: &mut Builder, axis: u8| {
            Copies::Same(if axis == 0 { Coordinate::Uniform(row) } else { Coordinate::Consecutive(column) })
        };
        let found = eval_coordinates(&mut b, expr_of(&kernel), &facts, 1, &[], &mut coords);
        match found.of(0) {
            Coordinate::Uniform(_) => "uniform".to_owned(),
            Coordinate::Consecutive(_) => "consecutive".to_owned(),
            Coordinate::Lanes(value) => format!("{:?}", b.ty(*value)),
        }
    };
    assert_eq!(kind("i0 * 3 + 1"), "uniform");
    assert_eq!(kind("i0 * 48 + i1"), "consecutive");
    assert_eq!(kind("i1 * 2"), "I32");
    assert_eq!(kind("i1 * 100000000000"), "I64");
}
