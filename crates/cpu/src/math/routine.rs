//! Functions that are called, lane by lane: those that are too rare to be worth instructions of their own. They are the columns
//! of the scalar table, and so right by construction.

use fuseline::ops::Scalar;
use fuseline::tensor::DType;
use smallvec::SmallVec;

use crate::vector::{Routine, Ty};

/// A match over functions whose arms are routines: `$scalar` is the function as a constant within the closure.
macro_rules! routines {
    ($op:expr, $prefix:literal, |$scalar:ident, $args:ident| $body:expr, [$($Op:ident),+ $(,)?], else $other:expr) => {
        match $op {
            $(Scalar::$Op => Routine {
                call: |$args| {
                    let $scalar = Scalar::$Op;
                    $body
                },
                name: concat!($prefix, ".", stringify!($Op)),
            },)+
            _ => $other,
        }
    };
}

/// A function of floats in lanes of this type, evaluated in f64 and rounded once.
pub(super) fn float(op: Scalar, ty: Ty) -> Routine {
    macro_rules! floats {
        ($prefix:literal, $call:ident) => {
            routines!(op, $prefix, |scalar, args| $call(scalar, args), [
                Mod, Rem, Pow, Exp, Exp2, Log, Log2, Log1p, Expm1, Sin, Cos, Tan, Asin, Acos, Atan, Sinh, Cosh, Tanh,
                Asinh, Acosh, Atanh, Erf, Sigmoid,
            ], else unreachable!("{op:?} of floats is instructions"))
        };
    }
    if ty == Ty::F32 { floats!("f32", on_f32) } else { floats!("f64", on_f64) }
}

/// A function of integers of this type, in the lanes that hold it.
pub(super) fn integer(op: Scalar, dtype: DType) -> Routine {
    macro_rules! integers {
        ($prefix:literal, $dtype:ident) => {
            routines!(op, $prefix, |scalar, args| on_integers(scalar, DType::$dtype, args), [Div, Mod, Rem, Pow],
                else unreachable!("{op:?} of integers is instructions"))
        };
    }
    // Narrower integers are held as those of 32 bits; what leaves their range is brought back afterwards.
    match dtype {
        DType::I64 => integers!("i64", I64),
        DType::U64 => integers!("u64", U64),
        DType::U32 => integers!("u32", U32),
        _ => integers!("i32", I32),
    }
}

/// What makes a number of a narrow float type of lanes of `from`: rounded once, as the bits of the f32 that it is.
pub(super) fn narrow(from: DType, to: DType) -> Routine {
    macro_rules! from {
        ($prefix:literal, $number:expr) => {
            match to {
                DType::F16 => {
                    Routine { call: |args| rounded(DType::F16, $number(args[0])), name: concat!($prefix, "→f16") }
                }
                DType::BF16 => {
                    Routine { call: |args| rounded(DType::BF16, $number(args[0])), name: concat!($prefix, "→bf16") }
                }
                DType::F4E2M1 => Routine {
                    call: |args| rounded(DType::F4E2M1, $number(args[0])),
                    name: concat!($prefix, "→f4e2m1"),
                },
                DType::F8E4M3 => Routine {
                    call: |args| rounded(DType::F8E4M3, $number(args[0])),
                    name: concat!($prefix, "→f8e4m3"),
                },
                DType::F8E4M3Z => Routine {
                    call: |args| rounded(DType::F8E4M3Z, $number(args[0])),
                    name: concat!($prefix, "→f8e4m3z"),
                },
                DType::F8E5M2 => Routine {
                    call: |args| rounded(DType::F8E5M2, $number(args[0])),
                    name: concat!($prefix, "→f8e5m2"),
                },
                DType::F8E5M2Z => Routine {
                    call: |args| rounded(DType::F8E5M2Z, $number(args[0])),
                    name: concat!($prefix, "→f8e5m2z"),
                },
                DType::F8E8M0 => Routine {
                    call: |args| rounded(DType::F8E8M0, $number(args[0])),
                    name: concat!($prefix, "→f8e8m0"),
                },
                _ => unreachable!("{to} is no narrow float"),
            }
        };
    }
    match from {
        DType::F64 => from!("f64", f64::from_bits),
        DType::I64 => from!("i64", |word| word as i64 as f64),
        DType::U64 => from!("u64", |word: u64| word as f64),
        DType::U32 => from!("u32", |word| f64::from(word as u32)),
        from if from.is_float() => from!("f32", |word| f64::from(f32::from_bits(word as u32))),
        _ => from!("i32", |word| f64::from(word as i32)),
    }
}

/// What makes the stored bits of a float type, as an integer, of the number in f32.
pub(super) fn to_bits(from: DType) -> Routine {
    macro_rules! types {
        ($($Type:ident),+) => {
            match from {
                $(DType::$Type => Routine {
                    call: |args| DType::$Type.to_bits(f64::from(f32::from_bits(args[0] as u32))),
                    name: concat!("bits of ", stringify!($Type)),
                },)+
                _ => unreachable!("{from} is no narrow float"),
            }
        };
    }
    types!(F16, BF16, F4E2M1, F8E4M3, F8E4M3Z, F8E5M2, F8E5M2Z, F8E8M0)
}

/// What makes the number in f32 of the stored bits of a float type; bits above them do not matter.
pub(super) fn of_bits(to: DType) -> Routine {
    macro_rules! types {
        ($($Type:ident),+) => {
            match to {
                $(DType::$Type => Routine {
                    call: |args| {
                        let bits = args[0] & ((1 << DType::$Type.bits()) - 1);
                        u64::from((DType::$Type.from_bits(bits) as f32).to_bits())
                    },
                    name: concat!("of bits ", stringify!($Type)),
                },)+
                _ => unreachable!("{to} is no narrow float"),
            }
        };
    }
    types!(F16, BF16, F4E2M1, F8E4M3, F8E4M3Z, F8E5M2, F8E5M2Z, F8E8M0)
}

fn on_f32(op: Scalar, args: &[u64]) -> u64 {
    let args: SmallVec<[f64; 3]> = args.iter().map(|word| f64::from(f32::from_bits(*word as u32))).collect();
    u64::from((column(op)(&args) as f32).to_bits())
}

fn on_f64(op: Scalar, args: &[u64]) -> u64 {
    let args: SmallVec<[f64; 3]> = args.iter().map(|word| f64::from_bits(*word)).collect();
    column(op)(&args).to_bits()
}

fn column(op: Scalar) -> fn(&[f64]) -> f64 {
    op.def().float.expect("the function is defined on floats")
}

fn on_integers(op: Scalar, dtype: DType, args: &[u64]) -> u64 {
    let args: SmallVec<[i128; 3]> = args.iter().map(|word| dtype.wrap(i128::from(*word))).collect();
    dtype.wrap((op.def().int.expect("the function is defined on integers"))(&args)) as u64
}

fn rounded(dtype: DType, x: f64) -> u64 {
    u64::from((dtype.round(x) as f32).to_bits())
}
