//! Scaling by exponents that are known to be small, whole or never NaN, at both ends of what they may be.

use std::f64::consts::LOG2_E;

use fuseline::tensor::DType;

use super::differential::{difference, has};
use crate::code::Isa;
use crate::testing::{Case, Contents};
use crate::vector::{Binary, Builder, FmaOp, Program, Ty, Unary, Value};

const NUMBERS: [f64; 32] = [
    0.0,
    -0.0,
    1.0,
    -1.75,
    1e-45,
    3e-39,
    1.17e-38,
    3.4e38,
    0.1,
    126.0,
    -126.5,
    -127.0,
    127.9,
    128.0,
    -149.0,
    -150.0,
    -151.0,
    88.7,
    -103.9,
    -104.1,
    1e9,
    -1e9,
    2.5,
    3.5,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    277.0,
    -278.0,
    -1074.0,
    1023.5,
    -2100.0,
];

type Exponent = fn(&mut Builder, Value, Ty) -> Value;

/// Whole; small and whole by the bits of a sum; small; huge, and infinite as f32.
const EXPONENTS: [Exponent; 4] = [
    |b, x, _| b.unary(Unary::Floor, x),
    |b, x, ty| {
        let (low, high, by, large) =
            (b.float(ty, -104.0), b.float(ty, 89.0), b.float(ty, LOG2_E), b.float(ty, 12_582_912.0));
        let x = b.binary(Binary::Min, high, x);
        let x = b.binary(Binary::Max, low, x);
        let sum = b.fma(FmaOp::Add, x, by, large);
        b.binary(Binary::Sub, sum, large)
    },
    |b, x, ty| {
        let (low, high) = (b.float(ty, -126.0), b.float(ty, 127.0));
        let x = b.binary(Binary::Min, x, high);
        b.binary(Binary::Max, x, low)
    },
    |b, x, ty| {
        let huge = b.float(ty, 1e38);
        b.binary(Binary::Mul, x, huge)
    },
];

fn program(ty: Ty, dtype: DType, lanes: u32, exponent: Exponent) -> Program {
    let mut b = Builder::new(lanes);
    let buffers = [b.buffer(0), b.buffer(1), b.buffer(2)];
    let task = b.begin_tasks();
    let bytes = i64::from(lanes) * ty.lane_bytes() as i64;
    let [a, x, to] = buffers.map(|base| b.address(base, &[(task, bytes)], 0));
    let (a, x) = (b.load(a, dtype, None), b.load(x, dtype, None));
    let x = exponent(&mut b, x, ty);
    let scaled = b.binary(Binary::Scale, a, x);
    b.store(to, scaled, dtype, None);
    b.end_loop(&[]);
    b.finish()
}

fn contents(dtype: DType, numbers: impl Iterator<Item = f64>) -> Contents {
    let bytes = match dtype {
        DType::F32 => numbers.flat_map(|x| (x as f32).to_le_bytes()).collect(),
        _ => numbers.flat_map(f64::to_le_bytes).collect(),
    };
    Contents { dtype, bytes }
}

#[test]
fn by_what_is_known_of_exponents() {
    let all = NUMBERS.iter().flat_map(|a| NUMBERS.iter().map(move |x| (*a, *x)));
    // of NaN and an infinite exponent nothing is promised
    let pairs: Vec<(f64, f64)> = all.filter(|(a, x)| !a.is_nan() || x.abs() < 3.0).collect();
    for (ty, dtype, lanes) in [(Ty::F32, DType::F32, 8), (Ty::F64, DType::F64, 4)] {
        let pairs = &pairs[..pairs.len() / lanes * lanes];
        for exponent in EXPONENTS {
            let buffers = vec![
                contents(dtype, pairs.iter().map(|(a, _)| *a)),
                contents(dtype, pairs.iter().map(|(_, x)| *x)),
                contents(dtype, pairs.iter().map(|_| 0.0)),
            ];
            let program = program(ty, dtype, lanes as u32, exponent);
            let case = Case { program, buffers, tasks: (pairs.len() / lanes) as i64 };
            for isa in [Isa::Avx512, Isa::Avx2].into_iter().filter(|isa| has(*isa)) {
                assert_eq!(difference(&case, isa), None, "{isa:?} {}", case.program);
            }
        }
    }
}
