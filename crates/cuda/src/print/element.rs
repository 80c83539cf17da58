//! How element types look in CUDA C++: in memory, and in registers.

use fuseline::error::{Error, Result};
use fuseline::ops::Number;
use fuseline::tensor::{Class, DType};

use super::code::Code;

/// The type of an element in memory.
pub(super) fn stored(dtype: DType) -> Result<&'static str> {
    Ok(match dtype {
        DType::Bool | DType::U8 => "unsigned char",
        DType::U16 => "unsigned short",
        DType::U32 => "unsigned",
        DType::U64 => "unsigned long long",
        DType::I8 => "signed char",
        DType::I16 => "short",
        DType::I32 => "int",
        DType::I64 => "long long",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::F32 => "float",
        DType::F64 => "double",
        DType::F8E4M3 => "f8e4m3",
        DType::F8E4M3Z => "f8e4m3z",
        DType::F8E5M2 => "f8e5m2",
        DType::F8E5M2Z => "f8e5m2z",
        DType::F8E8M0 => "f8e8m0",
        DType::U2 | DType::U4 | DType::I2 | DType::I4 | DType::F4E2M1 => {
            return Err(Error::unsupported(format!("elements of type {dtype} in a CUDA kernel")));
        }
    })
}

/// Bytes of an element in memory.
pub(super) fn bytes(dtype: DType) -> i64 {
    dtype.bits().div_ceil(8) as i64
}

/// The type of a value in a register: floats up to 32 bits are `float`, integers below 32 bits are `int`, which holds their
/// value.
pub(super) fn held(dtype: DType) -> &'static str {
    match dtype.class() {
        Class::Bool => "bool",
        Class::Float if dtype == DType::F64 => "double",
        Class::Float => "float",
        Class::Unsigned if dtype == DType::U64 => "unsigned long long",
        Class::Unsigned if dtype == DType::U32 => "unsigned",
        Class::Signed if dtype == DType::I64 => "long long",
        Class::Signed | Class::Unsigned => "int",
    }
}

/// Whether a value in memory is a struct of bits, which `widen` and `narrow` convert.
pub(super) fn is_wrapped(dtype: DType) -> bool {
    dtype.is_float() && !matches!(dtype, DType::F32 | DType::F64)
}

/// The value of an element that was read.
pub(super) fn widened(dtype: DType, element: Code) -> Code {
    if is_wrapped(dtype) {
        Code::call("widen", &[element])
    } else if dtype == DType::Bool {
        Code::infix("!=", super::code::Rank::Equality, &element, &Code::atom("0"))
    } else {
        element
    }
}

/// The value of the lane `l` of a pack.
pub(super) fn widened_lane(dtype: DType, pack: &str) -> Code {
    match dtype {
        // One instruction from the word that holds two of them; by itself, the second one would take two.
        DType::BF16 => Code::call("widen_lane", &[Code::atom(pack), Code::atom("l")]),
        _ => widened(dtype, Code::atom(format!("{pack}.at[l]"))),
    }
}

/// The element that a value becomes in memory.
pub(super) fn narrowed(dtype: DType, value: &Code) -> Result<Code> {
    Ok(if is_wrapped(dtype) {
        Code::call(&format!("narrow<{}>", stored(dtype)?), std::slice::from_ref(value))
    } else if matches!(dtype, DType::F32 | DType::F64 | DType::I32 | DType::I64 | DType::U32 | DType::U64) {
        value.clone()
    } else {
        Code::cast(stored(dtype)?, value)
    })
}

/// A constant in a register.
pub(super) fn constant(dtype: DType, number: Number) -> Code {
    match dtype.class() {
        Class::Bool => Code::atom(if number.to_f64() != 0.0 { "true" } else { "false" }),
        Class::Float => float(dtype, number.to_f64()),
        Class::Signed | Class::Unsigned => {
            let n = if let Number::Int(n) = number { n } else { number.to_f64() as i64 };
            match dtype {
                DType::U64 => Code::atom(format!("{}ull", n as u64)),
                DType::U32 => Code::atom(format!("{}u", n as u32)),
                // The least numbers have no literal of their own.
                DType::I64 if n == i64::MIN => Code::atom("(-9223372036854775807ll - 1)"),
                DType::I64 => negative_or(n, format!("{}ll", n.unsigned_abs())),
                _ if n == i64::from(i32::MIN) => Code::atom("(-2147483647 - 1)"),
                _ => negative_or(n, n.unsigned_abs().to_string()),
            }
        }
    }
}

fn negative_or(n: i64, magnitude: String) -> Code {
    if n < 0 { Code::prefix("-", &Code::atom(magnitude)) } else { Code::atom(magnitude) }
}

fn float(dtype: DType, x: f64) -> Code {
    let double = dtype == DType::F64;
    if x.is_nan() {
        return Code::atom(if double {
            "__longlong_as_double(0x7ff8000000000000ll)"
        } else {
            "__int_as_float(0x7fc00000)"
        });
    }
    if x.is_infinite() {
        let infinity = Code::atom(if double {
            "__longlong_as_double(0x7ff0000000000000ll)"
        } else {
            "__int_as_float(0x7f800000)"
        });
        return if x < 0.0 { Code::prefix("-", &infinity) } else { infinity };
    }
    let magnitude = x.abs();
    let text = if double { format!("{magnitude:?}") } else { format!("{:?}f", magnitude as f32) };
    if x.is_sign_negative() { Code::prefix("-", &Code::atom(text)) } else { Code::atom(text) }
}
