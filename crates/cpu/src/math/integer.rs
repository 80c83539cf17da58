//! Functions of integers.
//!
//! Lanes of 32 bits also hold narrower integers, extended by their own sign; u32 and u64 are held as the same bits.

use fuseline::ops::Scalar;
use fuseline::tensor::{Class, DType};

use super::lanes::Lanes;
use super::{register, routine};
use crate::vector::{Binary, Builder, Compare, Ty, Value};

/// A function of integers of type `dtype`; the result may have left the range of a narrow type.
pub(super) fn apply(b: &mut Builder, op: Scalar, dtype: DType, args: &[Value]) -> Value {
    let ty = register(dtype);
    let wide_unsigned = is_wide_unsigned(dtype);
    let signed = dtype.class() == Class::Signed;
    let pick = |unsigned: Binary, signed: Binary| if wide_unsigned { unsigned } else { signed };
    let (max, min) = (pick(Binary::MaxUnsigned, Binary::Max), pick(Binary::MinUnsigned, Binary::Min));
    let (one, two) = (args[0], args[args.len().min(2) - 1]);
    let number = |b: &mut Builder, n: i64| b.integer(ty, n);
    let mut f = Lanes(b);
    match op {
        Scalar::Add => f.add(one, two),
        Scalar::Sub => f.sub(one, two),
        Scalar::Mul => f.mul(one, two),
        Scalar::Div | Scalar::Mod | Scalar::Rem => divide(b, op, dtype, one, two),
        Scalar::Pow => b.call(ty, routine::integer(op, dtype), args),
        Scalar::Max => f.binary(max, one, two),
        Scalar::Min => f.binary(min, one, two),
        Scalar::Neg => {
            let zero = number(f.0, 0);
            f.sub(zero, one)
        }
        Scalar::Abs if signed => {
            let zero = number(f.0, 0);
            let negative = f.sub(zero, one);
            f.binary(Binary::Max, one, negative)
        }
        Scalar::Abs => one,
        Scalar::Sign => {
            let (unit, minus) = (number(f.0, 1), number(f.0, -1));
            let most = f.binary(min, one, unit);
            if signed { f.binary(Binary::Max, most, minus) } else { most }
        }
        Scalar::Floor | Scalar::Ceil | Scalar::Round | Scalar::Trunc => one,
        Scalar::Lt if wide_unsigned => f.compare(Compare::LtUnsigned, one, two),
        Scalar::Le if wide_unsigned => f.compare(Compare::LeUnsigned, one, two),
        Scalar::Lt => f.lt(one, two),
        Scalar::Le => f.compare(Compare::Le, one, two),
        Scalar::Eq => f.eq(one, two),
        Scalar::And => f.and(one, two),
        Scalar::Or => f.or(one, two),
        Scalar::Xor => f.xor(one, two),
        Scalar::Not => {
            let ones = number(f.0, -1);
            f.xor(one, ones)
        }
        Scalar::Shl => f.shl(one, two),
        Scalar::Shr => shift_right(b, dtype, one, two),
        Scalar::Select => f.select(one, two, args[2]),
        Scalar::Sqrt
        | Scalar::Exp
        | Scalar::Exp2
        | Scalar::Log
        | Scalar::Log2
        | Scalar::Log1p
        | Scalar::Expm1
        | Scalar::Sin
        | Scalar::Cos
        | Scalar::Tan
        | Scalar::Asin
        | Scalar::Acos
        | Scalar::Atan
        | Scalar::Sinh
        | Scalar::Cosh
        | Scalar::Tanh
        | Scalar::Asinh
        | Scalar::Acosh
        | Scalar::Atanh
        | Scalar::Erf
        | Scalar::Sigmoid
        | Scalar::Kept
        | Scalar::IsNan => unreachable!("{op:?} is not defined on integers"),
    }
}

/// Whether the result of a function can be outside of a type that is narrower than its lanes.
pub(super) fn may_leave(op: Scalar, dtype: DType) -> bool {
    let grows = match op {
        Scalar::Add | Scalar::Sub | Scalar::Mul | Scalar::Div | Scalar::Pow | Scalar::Neg | Scalar::Shl => true,
        Scalar::Abs => dtype.class() == Class::Signed,
        Scalar::Not => dtype.class() == Class::Unsigned,
        _ => false,
    };
    grows && dtype.is_int() && dtype.bits() < 32
}

/// Integers whose low bits are right, brought into the range of their type.
pub(super) fn wrap(b: &mut Builder, dtype: DType, value: Value) -> Value {
    let ty = register(dtype);
    let width = 8 * ty.lane_bytes() as i64;
    let bits = dtype.bits() as i64;
    if bits == width {
        return value;
    }
    if dtype.class() == Class::Unsigned {
        let low = b.integer(ty, (1 << bits) - 1);
        return b.binary(Binary::And, value, low);
    }
    let unused = b.integer(ty, width - bits);
    let high = b.binary(Binary::Shl, value, unused);
    b.binary(Binary::ShrSigned, high, unused)
}

/// Whether lanes hold the type as bits whose sign is none.
pub(super) fn is_wide_unsigned(dtype: DType) -> bool {
    matches!(dtype, DType::U32 | DType::U64)
}

/// The table shifts by up to 63 bits, whatever the width.
fn shift_right(b: &mut Builder, dtype: DType, a: Value, n: Value) -> Value {
    if dtype.class() == Class::Unsigned {
        return b.binary(Binary::ShrUnsigned, a, n);
    }
    let ty = register(dtype);
    let shifted = b.binary(Binary::ShrSigned, a, n);
    if b.as_bits(n).is_some_and(|n| n < 64) {
        return shifted;
    }
    let (limit, zero) = (b.integer(ty, 64), b.integer(ty, 0));
    let within = b.compare(Compare::LtUnsigned, n, limit);
    b.select(within, shifted, zero)
}

/// Quotients and remainders; those by constants are instructions.
fn divide(b: &mut Builder, op: Scalar, dtype: DType, a: Value, n: Value) -> Value {
    let ty = register(dtype);
    let divisor = b.as_bits(n).map(|bits| if ty == Ty::I32 { i64::from(bits as i32) } else { bits as i64 });
    match divisor {
        Some(n) if n > 0 && (n & (n - 1)) == 0 => divide_by_power(b, op, dtype, a, n),
        _ => b.call(ty, routine::integer(op, dtype), &[a, n]),
    }
}

/// Quotients and remainders by a positive power of two.
fn divide_by_power(b: &mut Builder, op: Scalar, dtype: DType, a: Value, n: i64) -> Value {
    let ty = register(dtype);
    let (low, shift) = (b.integer(ty, n - 1), b.integer(ty, i64::from(n.trailing_zeros())));
    let unsigned = dtype.class() == Class::Unsigned;
    if op == Scalar::Mod || (op == Scalar::Rem && unsigned) {
        return b.binary(Binary::And, a, low);
    }
    if unsigned {
        return b.binary(Binary::ShrUnsigned, a, shift);
    }
    // Towards zero: negative numbers are brought up by what a shift would round down.
    let width = b.integer(ty, 8 * ty.lane_bytes() as i64 - 1);
    let sign = b.binary(Binary::ShrSigned, a, width);
    let up = b.binary(Binary::And, sign, low);
    let above = b.binary(Binary::Add, a, up);
    if op == Scalar::Div {
        return b.binary(Binary::ShrSigned, above, shift);
    }
    let multiple = b.binary(Binary::AndNot, low, above);
    b.binary(Binary::Sub, a, multiple)
}
