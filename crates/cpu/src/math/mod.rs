//! Scalar functions and expressions as vector code.
//!
//! The meaning is the head and the columns of the scalar table in core. Functions of floats that the table gives an error of 0 are
//! exact here; the others stay within it. Registers hold elements as [`Ty::of`] says; floats narrower than f16 are held as F32 and
//! integers narrower than a byte as I32, like the ones that memory can hold.
//!
//! Comes in: functions, types, vectors. Goes out: vectors, through a [`Builder`]. Never here: memory, loops, what a kernel is.

mod cast;
mod exponential;
pub mod expr;
mod float;
mod fuse;
pub mod int_expr;
mod integer;
mod lanes;
mod logarithm;
pub mod monoid;
mod power;
pub mod random;
mod ranges;
mod routine;
mod trigonometry;

#[cfg(test)]
mod tests;

use fuseline::ops::{Number, Scalar};
use fuseline::tensor::{Class, DType};

use crate::vector::{Binary, Builder, Ty, Unary, Value};
pub use cast::{cast, reinterpret};
use lanes::Lanes;
pub use ranges::Facts;

/// The type of the lanes that hold elements of a type.
pub fn register(dtype: DType) -> Ty {
    match dtype.class() {
        Class::Bool => Ty::Mask,
        Class::Float if dtype == DType::F64 => Ty::F64,
        Class::Float => Ty::F32,
        Class::Signed | Class::Unsigned if dtype.bits() == 64 => Ty::I64,
        Class::Signed | Class::Unsigned => Ty::I32,
    }
}

/// A function of the table on operands of type `dtype` (those behind the condition, for a select). Results of narrow floats are
/// not rounded to their type; those of integers are within theirs.
pub fn apply(b: &mut Builder, op: Scalar, dtype: DType, args: &[Value]) -> Value {
    let value = apply_unwrapped(b, op, dtype, args);
    if integer::may_leave(op, dtype) { integer::wrap(b, dtype, value) } else { value }
}

/// As [`apply`], but integers may have left the range of a type that is narrower than lanes; their low bits are right.
fn apply_unwrapped(b: &mut Builder, op: Scalar, dtype: DType, args: &[Value]) -> Value {
    match dtype.class() {
        Class::Bool => on_bool(b, op, args),
        Class::Float => on_float(b, op, args),
        Class::Signed | Class::Unsigned => integer::apply(b, op, dtype, args),
    }
}

/// A constant in every lane.
pub fn constant(b: &mut Builder, dtype: DType, number: Number) -> Value {
    match (register(dtype), number) {
        (Ty::Mask, _) => b.truth(number.to_f64() != 0.0),
        (ty, Number::Float(bits)) => b.float(ty, f64::from_bits(bits)),
        (ty, Number::Int(n)) => b.integer(ty, n),
    }
}

/// The nearest number of a float type, of lanes that hold numbers of that type before they are rounded to it. Nothing is done
/// for f32, f64 and types that are no floats.
pub fn round(b: &mut Builder, dtype: DType, value: Value) -> Value {
    match dtype {
        DType::F32 | DType::F64 => value,
        DType::F16 => b.unary(Unary::RoundF16, value),
        DType::BF16 => b.unary(Unary::RoundBf16, value),
        _ if dtype.is_float() => b.call(Ty::F32, routine::narrow(DType::F32, dtype), &[value]),
        _ => value,
    }
}

/// A function of masks.
fn on_bool(b: &mut Builder, op: Scalar, args: &[Value]) -> Value {
    let mut f = Lanes(b);
    match (op, args) {
        (Scalar::Mul | Scalar::Min | Scalar::And, &[x, y]) => f.and(x, y),
        (Scalar::Max | Scalar::Or, &[x, y]) => f.or(x, y),
        (Scalar::Xor, &[x, y]) => f.xor(x, y),
        (Scalar::Lt, &[x, y]) => f.binary(Binary::AndNot, x, y),
        (Scalar::Le, &[x, y]) => {
            let not = f.not(x);
            f.or(not, y)
        }
        (Scalar::Eq, &[x, y]) => {
            let differ = f.xor(x, y);
            f.not(differ)
        }
        (Scalar::Not, &[x]) => f.not(x),
        (Scalar::Select, &[c, x, y]) => f.select(c, x, y),
        _ => unreachable!("{op:?} is not defined on bool"),
    }
}

/// A function of floats. A function without an arm does not compile.
fn on_float(b: &mut Builder, op: Scalar, args: &[Value]) -> Value {
    let ty = b.ty(args[args.len() - 1]);
    let mut f = Lanes(b);
    let one = args[0];
    let two = args[args.len().min(2) - 1];
    match op {
        Scalar::Add => f.add(one, two),
        Scalar::Sub => f.sub(one, two),
        Scalar::Mul => f.mul(one, two),
        Scalar::Div => f.div(one, two),
        Scalar::Max => float::max(&mut f, one, two),
        Scalar::Min => float::min(&mut f, one, two),
        Scalar::Neg => f.negated(one),
        Scalar::Kept => one,
        Scalar::Abs => f.magnitude(one),
        Scalar::Sign => float::sign(&mut f, one),
        Scalar::Floor => b.unary(Unary::Floor, one),
        Scalar::Ceil => b.unary(Unary::Ceil, one),
        Scalar::Round => b.unary(Unary::Round, one),
        Scalar::Trunc => b.unary(Unary::Trunc, one),
        Scalar::Sqrt => b.unary(Unary::Sqrt, one),
        Scalar::Exp if ty == Ty::F32 => exponential::exp(&mut f, one),
        Scalar::Exp2 if ty == Ty::F32 => exponential::exp2(&mut f, one),
        Scalar::Expm1 if ty == Ty::F32 => exponential::expm1(&mut f, one),
        Scalar::Sigmoid if ty == Ty::F32 => exponential::sigmoid(&mut f, one),
        Scalar::Tanh if ty == Ty::F32 => exponential::tanh(&mut f, one),
        Scalar::Erf if ty == Ty::F32 => exponential::erf(&mut f, one),
        Scalar::Log if ty == Ty::F32 => logarithm::log(&mut f, one),
        Scalar::Log2 if ty == Ty::F32 => logarithm::log2(&mut f, one),
        Scalar::Log1p if ty == Ty::F32 => logarithm::log1p(&mut f, one),
        Scalar::Sin if ty == Ty::F32 => trigonometry::sin(&mut f, one),
        Scalar::Cos if ty == Ty::F32 => trigonometry::cos(&mut f, one),
        Scalar::Pow if ty == Ty::F32 => power::pow(&mut f, one, two),
        Scalar::Exp | Scalar::Exp2 | Scalar::Expm1 | Scalar::Sigmoid | Scalar::Tanh | Scalar::Erf => {
            called(b, op, args)
        }
        Scalar::Log | Scalar::Log2 | Scalar::Log1p | Scalar::Sin | Scalar::Cos => called(b, op, args),
        Scalar::Tan | Scalar::Asin | Scalar::Acos | Scalar::Atan | Scalar::Sinh | Scalar::Cosh => called(b, op, args),
        Scalar::Asinh | Scalar::Acosh | Scalar::Atanh => called(b, op, args),
        Scalar::Mod | Scalar::Rem | Scalar::Pow => called(b, op, args),
        Scalar::Lt => f.lt(one, two),
        Scalar::Le => f.compare(crate::vector::Compare::Le, one, two),
        Scalar::Eq => f.eq(one, two),
        Scalar::IsNan => f.is_nan(one),
        Scalar::Select => f.select(one, two, args[2]),
        Scalar::And | Scalar::Or | Scalar::Xor | Scalar::Not | Scalar::Shl | Scalar::Shr => {
            unreachable!("{op:?} is not defined on floats")
        }
    }
}

/// A function of floats that is called.
fn called(b: &mut Builder, op: Scalar, args: &[Value]) -> Value {
    let ty = b.ty(args[0]);
    b.call(ty, routine::float(op, ty), args)
}
