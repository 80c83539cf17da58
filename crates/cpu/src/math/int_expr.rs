//! Expressions of integers that are the same in every lane, in general registers.
//!
//! An integer of any type is held as its value (u64 as the same bits), a bool as 0 or 1.

use fuseline::ops::{Expr, ExprNode, Number, Scalar};
use fuseline::tensor::{Class, DType, Dim};

use crate::vector::{Builder, IntOp, Value};

/// The value of an expression of integers, of which `args` are the arguments and `coords` gives coordinates; none where general
/// registers cannot compute it (floats, powers, divisors that are not constant).
pub fn eval_int(
    b: &mut Builder,
    expr: &Expr,
    args: &[Value],
    coords: &mut dyn FnMut(&mut Builder, u8) -> Option<Value>,
    sizes: &dyn Fn(&Dim) -> i64,
) -> Option<Value> {
    let mut steps: Vec<Value> = Vec::with_capacity(expr.nodes().len());
    for (node, dtype) in expr.nodes() {
        let from = |k: u32| expr.nodes()[k as usize].1;
        let step = match node {
            ExprNode::Arg(k) if !dtype.is_float() => args[*k as usize],
            ExprNode::Const(Number::Int(n)) => b.number(*n),
            ExprNode::Coord(axis) => coords(b, *axis)?,
            ExprNode::Size(dim) => b.number(sizes(dim)),
            ExprNode::Cast(x) => cast_int(b, from(*x), *dtype, steps[*x as usize])?,
            ExprNode::Apply(op, operands) => {
                let from = from(*operands.last().expect("functions have operands"));
                let operands: Vec<Value> = operands.iter().map(|k| steps[*k as usize]).collect();
                apply_int(b, *op, from, &operands)?
            }
            ExprNode::Arg(_) | ExprNode::Const(Number::Float(_)) | ExprNode::Bits(_) => return None,
        };
        steps.push(step);
    }
    steps.pop()
}

/// An integer or bool converted to another such type; none where either is a float.
pub(super) fn cast_int(b: &mut Builder, from: DType, to: DType, value: Value) -> Option<Value> {
    if from.is_float() || to.is_float() {
        return None;
    }
    let (least, most) = from.int_range()?;
    let (low, high) = to.int_range()?;
    Some(if low <= least && most <= high { value } else { wrap(b, to, value) })
}

/// A function of integers of type `dtype`; none where general registers cannot compute it.
pub(super) fn apply_int(b: &mut Builder, op: Scalar, dtype: DType, args: &[Value]) -> Option<Value> {
    match dtype.class() {
        Class::Float => None,
        Class::Bool => on_bool(b, op, args),
        Class::Signed | Class::Unsigned => {
            let value = on_integers(b, op, dtype, args)?;
            let truth = matches!(op, Scalar::Lt | Scalar::Le | Scalar::Eq);
            Some(if truth { value } else { wrap(b, dtype, value) })
        }
    }
}

/// The low bits of an integer as a number of the type; for bool, whether it is not 0.
fn wrap(b: &mut Builder, dtype: DType, value: Value) -> Value {
    let bits = dtype.bits() as i64;
    match dtype.class() {
        Class::Bool => {
            let zero = b.number(0);
            let is_zero = b.int(IntOp::Eq, value, zero);
            not(b, is_zero)
        }
        _ if bits == 64 => value,
        Class::Unsigned => {
            let low = b.number((1 << bits) - 1);
            b.int(IntOp::And, value, low)
        }
        _ => {
            let unused = b.number(64 - bits);
            let high = b.int(IntOp::Shl, value, unused);
            b.int(IntOp::Shr, high, unused)
        }
    }
}

fn not(b: &mut Builder, truth: Value) -> Value {
    let one = b.number(1);
    b.int(IntOp::Xor, truth, one)
}

fn on_bool(b: &mut Builder, op: Scalar, args: &[Value]) -> Option<Value> {
    Some(match (op, args) {
        (Scalar::Mul | Scalar::Min | Scalar::And, &[x, y]) => b.int(IntOp::And, x, y),
        (Scalar::Max | Scalar::Or, &[x, y]) => b.int(IntOp::Or, x, y),
        (Scalar::Xor, &[x, y]) => b.int(IntOp::Xor, x, y),
        (Scalar::Lt, &[x, y]) => b.int(IntOp::Lt, x, y),
        (Scalar::Le, &[x, y]) => b.int(IntOp::Le, x, y),
        (Scalar::Eq, &[x, y]) => b.int(IntOp::Eq, x, y),
        (Scalar::Not, &[x]) => not(b, x),
        (Scalar::Select, &[c, x, y]) => b.choose(c, x, y),
        _ => return None,
    })
}

fn on_integers(b: &mut Builder, op: Scalar, dtype: DType, args: &[Value]) -> Option<Value> {
    let (one, two) = (args[0], args[args.len().min(2) - 1]);
    let zero = b.number(0);
    let signed = dtype.class() == Class::Signed;
    Some(match op {
        Scalar::Add => b.int(IntOp::Add, one, two),
        Scalar::Sub => b.int(IntOp::Sub, one, two),
        Scalar::Mul => b.int(IntOp::Mul, one, two),
        Scalar::And => b.int(IntOp::And, one, two),
        Scalar::Or => b.int(IntOp::Or, one, two),
        Scalar::Xor => b.int(IntOp::Xor, one, two),
        Scalar::Eq => b.int(IntOp::Eq, one, two),
        Scalar::Select => b.choose(one, two, args[2]),
        Scalar::Neg => b.int(IntOp::Sub, zero, one),
        Scalar::Not => {
            let ones = b.number(-1);
            b.int(IntOp::Xor, one, ones)
        }
        Scalar::Floor | Scalar::Ceil | Scalar::Round | Scalar::Trunc => one,
        Scalar::Shl => {
            b.as_number(two).filter(|n| (0..64).contains(n))?;
            b.int(IntOp::Shl, one, two)
        }
        Scalar::Abs if !signed => one,
        // In what follows, an integer must be its own value.
        _ if dtype == DType::U64 => return None,
        Scalar::Max => b.int(IntOp::Max, one, two),
        Scalar::Min => b.int(IntOp::Min, one, two),
        Scalar::Lt => b.int(IntOp::Lt, one, two),
        Scalar::Le => b.int(IntOp::Le, one, two),
        Scalar::Abs => {
            let negative = b.int(IntOp::Sub, zero, one);
            b.int(IntOp::Max, one, negative)
        }
        Scalar::Sign => {
            let (unit, minus) = (b.number(1), b.number(-1));
            let most = b.int(IntOp::Min, one, unit);
            b.int(IntOp::Max, most, minus)
        }
        Scalar::Shr => {
            b.as_number(two).filter(|n| (0..64).contains(n))?;
            b.int(IntOp::Shr, one, two)
        }
        Scalar::Div | Scalar::Mod | Scalar::Rem => divide(b, op, one, two)?,
        _ => return None,
    })
}

/// Quotients and remainders by positive constants.
fn divide(b: &mut Builder, op: Scalar, a: Value, n: Value) -> Option<Value> {
    b.as_number(n).filter(|n| *n > 0)?;
    if op == Scalar::Mod {
        return Some(b.int(IntOp::FloorMod, a, n));
    }
    // Towards zero: negative numbers are brought up by what the floor would take away.
    let zero = b.number(0);
    let negative = b.int(IntOp::Lt, a, zero);
    let most = b.plus(n, -1);
    let up = b.choose(negative, most, zero);
    let above = b.int(IntOp::Add, a, up);
    let towards_zero = b.int(IntOp::FloorDiv, above, n);
    if op == Scalar::Div {
        return Some(towards_zero);
    }
    let multiple = b.int(IntOp::Mul, towards_zero, n);
    Some(b.int(IntOp::Sub, a, multiple))
}
