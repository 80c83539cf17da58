//! Folds: their neutral elements, how two results become one, how the lanes of a vector become one.

use fuseline::ops::Scalar;
use fuseline::ops::prim::Monoid;
use fuseline::tensor::DType;

use super::lanes::Lanes;
use super::{apply, cast, constant, integer};
use crate::vector::{Binary, Builder, FoldOp, Ty, Value};

/// The fold of no elements, in every lane. Positions have none.
pub fn neutral(b: &mut Builder, monoid: Monoid, dtype: DType) -> Value {
    constant(b, dtype, monoid.neutral(dtype))
}

/// The fold of what two vectors hold, lane by lane: as the table says, NaN and the signs of zeros included. Narrow floats are not
/// rounded.
pub fn combine(b: &mut Builder, monoid: Monoid, dtype: DType, one: Value, other: Value) -> Value {
    apply(b, function(monoid), dtype, &[one, other])
}

/// As [`combine`], with one instruction, for floats of which NaN and the signs of zeros do not matter: where an element is NaN or
/// elements are zeros of either sign, the result may be any of them, but an old NaN stays.
pub fn combine_numbers(b: &mut Builder, monoid: Monoid, dtype: DType, old: Value, new: Value) -> Value {
    match monoid {
        Monoid::Max if dtype.is_float() => b.binary(Binary::Max, new, old),
        Monoid::Min if dtype.is_float() => b.binary(Binary::Min, new, old),
        _ => combine(b, monoid, dtype, old, new),
    }
}

/// The fold of all lanes, in every lane.
pub fn fold_lanes(b: &mut Builder, monoid: Monoid, dtype: DType, value: Value) -> Value {
    if dtype == DType::Bool {
        let numbers = cast(b, DType::Bool, DType::I32, value);
        let folded = fold_lanes(b, monoid, DType::I32, numbers);
        return cast(b, DType::I32, DType::Bool, folded);
    }
    let extreme = matches!(monoid, Monoid::Max | Monoid::Min);
    if extreme && dtype.is_float() {
        return fold_extreme(b, monoid, value);
    }
    let folded = fold_numbers(b, monoid, dtype, value);
    if dtype.is_int() && !extreme { integer::wrap(b, dtype, folded) } else { folded }
}

/// As [`fold_lanes`], for floats of which NaN and the signs of zeros do not matter.
pub fn fold_numbers(b: &mut Builder, monoid: Monoid, dtype: DType, value: Value) -> Value {
    let unsigned = integer::is_wide_unsigned(dtype);
    let by = match monoid {
        Monoid::Sum => Binary::Add,
        Monoid::Prod => Binary::Mul,
        Monoid::Max if unsigned => Binary::MaxUnsigned,
        Monoid::Max => Binary::Max,
        Monoid::Min if unsigned => Binary::MinUnsigned,
        Monoid::Min => Binary::Min,
        _ => unreachable!("positions are folded with their elements"),
    };
    b.fold(FoldOp::By(by), value)
}

/// The function that makes one of two results.
fn function(monoid: Monoid) -> Scalar {
    match monoid {
        Monoid::Sum => Scalar::Add,
        Monoid::Prod => Scalar::Mul,
        Monoid::Max => Scalar::Max,
        Monoid::Min => Scalar::Min,
        _ => unreachable!("positions are folded with their elements"),
    }
}

/// The largest or smallest float, as integers in the order of floats: −0 below +0, NaN beyond everything.
fn fold_extreme(b: &mut Builder, monoid: Monoid, value: Value) -> Value {
    let mut f = Lanes(b);
    let is_nan = f.is_nan(value);
    let farthest = if f.0.ty(value) == Ty::F32 { 0x7fff_ffff } else { i64::MAX };
    let bits = f.bits(value);
    let ordered = in_order(&mut f, bits);
    let ty = f.0.ty(ordered);
    let beyond = f.0.integer(ty, if monoid == Monoid::Max { farthest } else { -farthest - 1 });
    let ordered = f.select(is_nan, beyond, ordered);
    let by = if monoid == Monoid::Max { Binary::Max } else { Binary::Min };
    let folded = f.0.fold(FoldOp::By(by), ordered);
    let bits = in_order(&mut f, folded);
    f.bits(bits)
}

/// Bits of floats as integers in the same order, and back again: the bits behind the sign are turned where it is set.
fn in_order(f: &mut Lanes<'_>, bits: Value) -> Value {
    let ty = f.0.ty(bits);
    let (last, low) = if ty == Ty::I32 { (31, i64::from(i32::MAX)) } else { (63, i64::MAX) };
    let (last, low) = (f.0.integer(ty, last), f.0.integer(ty, low));
    let sign = f.binary(Binary::ShrSigned, bits, last);
    let turned = f.and(sign, low);
    f.xor(bits, turned)
}
