//! What instructions make of numbers.

use fuseline::tensor::DType;

use crate::instruction::{Comparison, Compute, Rounding, Type};

/// The number that bits of a float are.
pub fn float(ty: Type, bits: u64) -> f64 {
    match ty {
        Type::Float(4) => f32::from_bits(bits as u32).into(),
        Type::Half | Type::Halves => DType::F16.from_bits(bits & 0xffff),
        Type::Brain | Type::Brains => DType::BF16.from_bits(bits & 0xffff),
        _ => f64::from_bits(bits),
    }
}

/// The bits of a float, rounded to the nearest.
pub fn bits(ty: Type, x: f64) -> u64 {
    match ty {
        Type::Float(4) => u64::from((x as f32).to_bits()),
        Type::Half | Type::Halves => DType::F16.to_bits(x),
        Type::Brain | Type::Brains => DType::BF16.to_bits(x),
        _ => x.to_bits(),
    }
}

fn is_float(ty: Type) -> bool {
    !matches!(ty, Type::Predicate | Type::Bits(_) | Type::Unsigned(_) | Type::Signed(_))
}

/// The number that bits of an integer are.
fn whole(ty: Type, bits: u64) -> i128 {
    let shift = 64 - 8 * ty.bytes() as u32;
    match ty {
        Type::Signed(_) => i128::from((bits << shift) as i64 >> shift),
        _ => i128::from(bits & ty.mask()),
    }
}

pub fn compare(how: Comparison, ty: Type, a: u64, b: u64) -> bool {
    let order = match is_float(ty) {
        true => float(ty, a).partial_cmp(&float(ty, b)),
        false => Some(whole(ty, a).cmp(&whole(ty, b))),
    };
    match order {
        None => how.unordered,
        Some(order) => match order {
            std::cmp::Ordering::Less => how.less,
            std::cmp::Ordering::Equal => how.equal,
            std::cmp::Ordering::Greater => how.greater,
        },
    }
}

pub fn compute(what: Compute, ty: Type, rounding: Rounding, of: [u64; 4]) -> Result<u64, String> {
    let result = match ty {
        Type::Halves | Type::Brains => pairs(what, ty, of),
        _ if is_float(ty) => floats(what, ty, rounding, of),
        _ => wholes(what, ty, of),
    };
    result.ok_or_else(|| format!("{what:?} of {ty:?} is not known here"))
}

/// Two narrow floats at a time.
fn pairs(what: Compute, ty: Type, of: [u64; 4]) -> Option<u64> {
    let one = if ty == Type::Halves { Type::Half } else { Type::Brain };
    let half = |shift: u32| Some(floats(what, one, Rounding::Near, of.map(|bits| bits >> shift & 0xffff))? << shift);
    Some(half(0)? | half(16)?)
}

fn floats(what: Compute, ty: Type, rounding: Rounding, of: [u64; 4]) -> Option<u64> {
    let [a, b, c, _] = of.map(|bits| float(ty, bits));
    let sign = 1 << (8 * ty.bytes() - 1);
    // What is exact in f64, or rounded once more than it should be by far less than what tests allow, but for what f32 can say itself.
    let single = |x: f32| Some(u64::from(x.to_bits()));
    let (x, y, z) = (a as f32, b as f32, c as f32);
    let is_single = ty == Type::Float(4);
    let result = match what {
        Compute::Move => return Some(of[0]),
        Compute::Select => return Some(if of[2] != 0 { of[0] } else { of[1] }),
        Compute::Neg => return Some(of[0] ^ sign),
        Compute::Abs => return Some(of[0] & !sign & ty.mask()),
        Compute::CopySign => return Some((of[0] & sign) | (of[1] & !sign & ty.mask())),
        Compute::Add if is_single => return single(x + y),
        Compute::Sub if is_single => return single(x - y),
        Compute::Mul if is_single => return single(x * y),
        Compute::Div if is_single => return single(x / y),
        Compute::Root if is_single => return single(x.sqrt()),
        Compute::Fma | Compute::Mad if is_single && rounding == Rounding::Near => {
            return single(x.mul_add(y, z));
        }
        Compute::Add => a + b,
        Compute::Sub => a - b,
        Compute::Mul => a * b,
        Compute::Div => a / b,
        Compute::Fma | Compute::Mad => a.mul_add(b, c),
        Compute::Root => a.sqrt(),
        Compute::LeastNumber => a.min(b),
        Compute::LargestNumber => a.max(b),
        Compute::Min if a.is_nan() || b.is_nan() => f64::NAN,
        Compute::Max if a.is_nan() || b.is_nan() => f64::NAN,
        Compute::Min => a.min(b),
        Compute::Max => a.max(b),
        Compute::Exp2 => a.exp2(),
        Compute::Log2 => a.log2(),
        Compute::Inverse => 1.0 / a,
        Compute::InverseRoot => 1.0 / a.sqrt(),
        Compute::Sin => a.sin(),
        Compute::Cos => a.cos(),
        Compute::Tanh => a.tanh(),
        _ => return None,
    };
    let near = bits(ty, result);
    if rounding == Rounding::Near || !is_single {
        return Some(near);
    }
    let found = f32::from_bits(near as u32);
    single(match rounding {
        Rounding::Down if f64::from(found) > result => found.next_down(),
        Rounding::Up if f64::from(found) < result => found.next_up(),
        Rounding::Zero if f64::from(found).abs() > result.abs() => found.abs().next_down().copysign(found),
        _ => found,
    })
}

fn wholes(what: Compute, ty: Type, of: [u64; 4]) -> Option<u64> {
    let (mask, width) = (ty.mask(), 8 * ty.bytes() as u64);
    let [a, b, c, d] = of;
    let [x, y, ..] = of.map(|bits| whole(ty, bits));
    let result = match what {
        Compute::Move => a,
        Compute::Select => {
            if c & 1 != 0 {
                a
            } else {
                b
            }
        }
        Compute::Add => a.wrapping_add(b),
        Compute::Sub => a.wrapping_sub(b),
        Compute::Mul => a.wrapping_mul(b),
        Compute::Mad => a.wrapping_mul(b).wrapping_add(c),
        Compute::MulHigh => (x.wrapping_mul(y) >> width) as u64,
        Compute::MulWide => return Some(x.wrapping_mul(y) as u64 & wider(ty)),
        Compute::MadWide => return Some((x.wrapping_mul(y) as u64).wrapping_add(c) & wider(ty)),
        // Dividing by nothing gives all ones.
        Compute::Div => x.checked_div(y).map_or(u64::MAX, |q| q as u64),
        Compute::Rem => x.checked_rem(y).map_or(a, |r| r as u64),
        Compute::Min => x.min(y) as u64,
        Compute::Max => x.max(y) as u64,
        Compute::Neg => a.wrapping_neg(),
        Compute::Abs => x.unsigned_abs() as u64,
        Compute::And => a & b,
        Compute::Or => a | b,
        Compute::Xor => a ^ b,
        Compute::Not => !a,
        Compute::ShiftLeft => {
            if b & 0xffff_ffff >= width {
                0
            } else {
                a << (b & 63)
            }
        }
        Compute::ShiftRight => (x >> (b & 0xffff_ffff).min(width)) as u64,
        Compute::FunnelLeft => ((a & 0xffff_ffff | b << 32) << (c & 31)) >> 32,
        Compute::FunnelRight => (a & 0xffff_ffff | b << 32) >> (c & 31),
        Compute::Permute => permuted(a, b, c),
        Compute::Insert => {
            let (place, length) = (c & 255, d & 255);
            let kept = if length >= 64 { u64::MAX } else { (1 << length) - 1 };
            let field = if place >= 64 { 0 } else { kept << place };
            b & !field | (a << place.min(63)) & field
        }
        Compute::Extract => {
            let (place, length) = (b & 255, (c & 255).min(64));
            let field = (x >> place.min(127)) as u64;
            let field = if length == 64 { field } else { field & ((1 << length) - 1) };
            let is_below = matches!(ty, Type::Signed(_)) && length > 0 && field >> (length - 1) & 1 == 1;
            if is_below && length < 64 { field | u64::MAX << length } else { field }
        }
        Compute::PopulationCount => (a & mask).count_ones().into(),
        Compute::LeadingZeros => u64::from((a & mask).leading_zeros()) - (64 - width),
        Compute::Reverse => (a & mask).reverse_bits() >> (64 - width),
        _ => return None,
    };
    Some(result & mask)
}

fn wider(ty: Type) -> u64 {
    if ty.bytes() == 4 { u64::MAX } else { (1 << (16 * ty.bytes())) - 1 }
}

/// Four bytes, each of which is one of eight, or its sign.
fn permuted(a: u64, b: u64, how: u64) -> u64 {
    let all = a & 0xffff_ffff | b << 32;
    let byte = |k: u64| {
        let selector = how >> (4 * k) & 15;
        let byte = all >> (8 * (selector & 7)) & 255;
        let byte = if selector & 8 == 0 {
            byte
        } else if byte & 128 != 0 {
            255
        } else {
            0
        };
        byte << (8 * k)
    };
    (0..4).map(byte).sum()
}

/// A number as one of another type.
pub fn convert(to: Type, from: Type, rounding: Rounding, to_whole: bool, saturates: bool, a: u64) -> u64 {
    if !is_float(from) {
        let x = whole(from, a);
        return match to {
            Type::Float(4) => u64::from((x as f32).to_bits()),
            _ if is_float(to) => bits(to, x as f64),
            _ if saturates => clamped(to, x as f64) as u64 & to.mask(),
            _ => x as u64 & to.mask(),
        };
    }
    let x = float(from, a);
    let rounded = |x: f64| match rounding {
        Rounding::Near => x.round_ties_even(),
        Rounding::Down => x.floor(),
        Rounding::Up => x.ceil(),
        Rounding::Zero => x.trunc(),
    };
    match is_float(to) {
        // NaN becomes nothing.
        true if saturates => bits(to, if x.is_nan() { 0.0 } else { x.clamp(0.0, 1.0) }),
        true if to_whole => bits(to, rounded(x)),
        true => bits(to, x),
        false => clamped(to, rounded(x)) as u64 & to.mask(),
    }
}

/// The nearest integer that a type has.
fn clamped(to: Type, x: f64) -> i128 {
    let width = 8 * to.bytes() as u32;
    let (least, most) = match to {
        Type::Signed(_) => (-(1i128 << (width - 1)), (1i128 << (width - 1)) - 1),
        _ => (0, (1i128 << width) - 1),
    };
    (x as i128).clamp(least, most)
}
