//! Conversions between element types.
//!
//! Floats truncate towards zero to integers, which wrap; as the table's reference does it: a number of 2^127 or more has all bits
//! set, one of −2^127 or less none, and NaN is 0. Anything but zero is true.

use fuseline::tensor::{Class, DType};

use super::lanes::Lanes;
use super::{integer, register, round, routine};
use crate::vector::{Builder, Compare, Convert, Ty, Unary, Value};

/// Lanes of one type converted to another.
pub fn cast(b: &mut Builder, from: DType, to: DType, value: Value) -> Value {
    match (from.class(), to.class()) {
        _ if from == to => value,
        (_, Class::Bool) => is_not_zero(b, from, value),
        (Class::Bool, _) => {
            let ty = register(to);
            let number = |b: &mut Builder, n: i64| {
                if to.is_float() { b.float(ty, to.round(n as f64)) } else { b.integer(ty, n) }
            };
            let (one, zero) = (number(b, 1), number(b, 0));
            b.select(value, one, zero)
        }
        (Class::Float, Class::Float) => between_floats(b, from, to, value),
        (Class::Float, _) => truncate(b, to, value),
        (_, Class::Float) => to_float(b, from, to, value),
        _ => between_integers(b, from, to, value),
    }
}

/// The stored bits of one type read as another that is as wide.
pub fn reinterpret(b: &mut Builder, from: DType, to: DType, value: Value) -> Value {
    if from == to {
        return value;
    }
    let bits = if from.is_float() { stored_bits(b, from, value) } else { bits_of_integer(b, from, value) };
    match to {
        DType::Bool => is_not_zero(b, DType::U8, bits),
        DType::F32 | DType::F64 => Lanes(b).bits(bits),
        _ if to.is_float() => b.call(Ty::F32, routine::of_bits(to), &[bits]),
        _ => integer::wrap(b, to, bits),
    }
}

fn bits_of_integer(b: &mut Builder, from: DType, value: Value) -> Value {
    if from == DType::Bool { cast(b, DType::Bool, DType::U8, value) } else { value }
}

fn stored_bits(b: &mut Builder, from: DType, value: Value) -> Value {
    match from {
        DType::F32 | DType::F64 => Lanes(b).bits(value),
        _ => b.call(Ty::I32, routine::to_bits(from), &[value]),
    }
}

fn is_not_zero(b: &mut Builder, from: DType, value: Value) -> Value {
    let ty = register(from);
    match ty {
        Ty::Mask => value,
        _ => {
            let zero = b.bits(ty, 0);
            b.compare(Compare::Ne, value, zero)
        }
    }
}

fn between_floats(b: &mut Builder, from: DType, to: DType, value: Value) -> Value {
    match (from, to) {
        (DType::F64, DType::F32) => b.convert(Convert::Float, Ty::F32, value),
        // By way of f32 it would be rounded twice.
        (DType::F64, _) => b.call(Ty::F32, routine::narrow(DType::F64, to), &[value]),
        (_, DType::F64) => b.convert(Convert::Float, Ty::F64, value),
        _ => round(b, to, value),
    }
}

fn to_float(b: &mut Builder, from: DType, to: DType, value: Value) -> Value {
    let how = if integer::is_wide_unsigned(from) { Convert::FloatUnsigned } else { Convert::Float };
    match (from.bits(), to) {
        (_, DType::F64) => b.convert(how, Ty::F64, value),
        // As the reference does: rounded to f64 and then to f32.
        (64, DType::F32) => {
            let wide = b.convert(how, Ty::F64, value);
            b.convert(Convert::Float, Ty::F32, wide)
        }
        (_, DType::F32) => b.convert(how, Ty::F32, value),
        // Every integer of up to 24 bits is an f32.
        (..=16, _) => {
            let float = b.convert(how, Ty::F32, value);
            round(b, to, float)
        }
        _ => b.call(Ty::F32, routine::narrow(from, to), &[value]),
    }
}

fn between_integers(b: &mut Builder, from: DType, to: DType, value: Value) -> Value {
    match (register(from), register(to)) {
        (Ty::I32, Ty::I64) if from == DType::U32 => b.convert(Convert::ExtendUnsigned, Ty::I64, value),
        (Ty::I32, Ty::I64) => b.convert(Convert::ExtendSigned, Ty::I64, value),
        (Ty::I64, Ty::I32) => {
            let low = b.convert(Convert::Low, Ty::I32, value);
            integer::wrap(b, to, low)
        }
        _ => {
            let (low, high) = to.int_range().expect("integers have a range");
            let (least, most) = from.int_range().expect("integers have a range");
            if low <= least && most <= high { value } else { integer::wrap(b, to, value) }
        }
    }
}

/// Floats to integers.
fn truncate(b: &mut Builder, to: DType, value: Value) -> Value {
    let ty = register(to);
    let from = b.ty(value);
    let mut f = Lanes(b);
    let float = |f: &mut Lanes<'_>, x: f64| f.0.float(from, x);
    // Modulo 2^width, by the nearest multiple, the number fits; half of 2^width becomes the least integer, as it should.
    // Only a whole number has a multiple other than 0, unless it is wider than the lanes.
    let width = 8 * ty.lane_bytes() as i32;
    let whole = if from == Ty::F64 && ty == Ty::I32 { f.0.unary(Unary::Trunc, value) } else { value };
    let within = if to.bits() == 8 && from == Ty::F32 {
        whole // what does not fit is a multiple of 256, and so is the least integer
    } else {
        let (up, down) = (float(&mut f, f64::from(width).exp2()), float(&mut f, f64::from(-width).exp2()));
        let turns = f.mul(whole, down);
        let turns = f.0.unary(Unary::Round, turns);
        f.minus_product(whole, turns, up)
    };
    let integer = f.0.convert(Convert::Truncate, ty, within);
    let limit = float(&mut f, 127f64.exp2());
    let ones = f.0.integer(ty, -1);
    let is_vast = f.compare(Compare::Le, limit, value);
    let integer = f.select(is_vast, ones, integer);
    // NaN became the least integer, whose low bits are 0.
    let integer = if to.bits() <= 16 {
        integer
    } else {
        let zero = f.0.integer(ty, 0);
        let minus = float(&mut f, -(127f64.exp2()));
        let is_number = f.lt(minus, value);
        f.select(is_number, integer, zero)
    };
    integer::wrap(b, to, integer)
}
