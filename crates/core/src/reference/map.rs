//! Expressions over blocks of elements.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::positions::{advance, coordinates};
use super::{Buffer, Reading, Run};
use crate::error::Result;
use crate::ops::{Expr, ExprNode, Number, Scalar};
use crate::tensor::{Class, DType};

/// Elements computed together.
const BLOCK: usize = 1024;

/// A block of values of one step of an expression.
enum Lanes {
    Float(Vec<f64>),
    Int(Vec<i64>),
}

impl Lanes {
    /// The block as floats; the condition of a select counts as 0 or 1.
    fn as_floats(&self) -> Cow<'_, [f64]> {
        match self {
            Lanes::Float(x) => Cow::Borrowed(x),
            Lanes::Int(x) => Cow::Owned(x.iter().map(|x| *x as f64).collect()),
        }
    }

    fn as_ints(&self) -> &[i64] {
        match self {
            Lanes::Int(x) => x,
            Lanes::Float(_) => unreachable!("an integer function has integer operands"),
        }
    }
}

/// The value of an expression at every coordinate of a domain.
pub(crate) fn eval_map(expr: &Expr, sizes: Vec<usize>, args: &[Buffer], run: &Run<'_>) -> Result<Buffer> {
    eval_map_within(expr, sizes, &|axis| (axis, 0), args, run)
}

/// The value of an expression at every coordinate of a part of a domain: `place` says for a coordinate of the expression
/// which axis of the part it is and where the part begins on it.
pub(crate) fn eval_map_within(
    expr: &Expr,
    sizes: Vec<usize>,
    place: &dyn Fn(usize) -> (usize, usize),
    args: &[Buffer],
    run: &Run<'_>,
) -> Result<Buffer> {
    let count: usize = sizes.iter().product();
    run.reserve(count)?;
    let dtype = expr.dtype();
    let (mut floats, mut ints) = (Vec::new(), Vec::new());
    for start in (0..count).step_by(BLOCK) {
        let len = BLOCK.min(count - start);
        let mut steps: Vec<Lanes> = Vec::with_capacity(expr.nodes().len());
        for (node, dtype) in expr.nodes() {
            let lanes = match node {
                ExprNode::Arg(k) => read(&args[*k as usize], start, len)?,
                ExprNode::Const(Number::Float(bits)) => Lanes::Float(vec![f64::from_bits(*bits); len]),
                ExprNode::Const(Number::Int(n)) => Lanes::Int(vec![*n; len]),
                ExprNode::Coord(axis) => {
                    let (axis, from) = place(usize::from(*axis));
                    Lanes::Int(coordinate_lanes(axis, from, start, len, &sizes))
                }
                ExprNode::Size(dim) => Lanes::Int(vec![dim.eval(run.env())?; len]),
                ExprNode::Cast(x) => cast(&steps[*x as usize], expr.nodes()[*x as usize].1, *dtype, run),
                ExprNode::Bits(x) => read_bits(&steps[*x as usize], expr.nodes()[*x as usize].1, *dtype),
                ExprNode::Apply(op, operands) => {
                    let from = expr.nodes()[*operands.last().expect("functions have operands") as usize].1;
                    let operands: SmallVec<[&Lanes; 3]> = operands.iter().map(|o| &steps[*o as usize]).collect();
                    apply(*op, from, *dtype, &operands, len, run)
                }
            };
            steps.push(lanes);
        }
        match steps.pop().expect("an expression has a result") {
            Lanes::Float(values) => floats.extend(values),
            Lanes::Int(values) => ints.extend(values),
        }
    }
    Ok(if dtype.is_float() { Buffer::floats(dtype, sizes, floats) } else { Buffer::ints(dtype, sizes, ints) })
}

fn read(arg: &Buffer, start: usize, len: usize) -> Result<Lanes> {
    if arg.dtype().is_float() {
        let mut out = vec![0.0; len];
        arg.read_floats(start, &mut out)?;
        Ok(Lanes::Float(out))
    } else {
        let mut out = vec![0; len];
        arg.read_ints(start, &mut out)?;
        Ok(Lanes::Int(out))
    }
}

fn coordinate_lanes(axis: usize, from: usize, start: usize, len: usize, sizes: &[usize]) -> Vec<i64> {
    let mut i = coordinates(start, sizes);
    let mut out = Vec::with_capacity(len);
    for _ in 0..len {
        out.push((from + i[axis]) as i64);
        advance(&mut i, sizes);
    }
    out
}

/// The integer that stored bits stand for.
fn widen(dtype: DType, x: i64) -> i128 {
    if dtype == DType::U64 { i128::from(x as u64) } else { i128::from(x) }
}

/// Conversion between element types: floats truncate to integers, which wrap; anything but zero is true.
fn cast(x: &Lanes, from: DType, to: DType, run: &Run<'_>) -> Lanes {
    let is_held = run.reading() == Reading::Held && matches!(to, DType::F16 | DType::BF16);
    let is_drawn = matches!(run.reading(), Reading::Drawn { .. });
    match (x, to.class()) {
        (Lanes::Float(x), Class::Float) if is_drawn => {
            let mut values = x.clone();
            run.draw(to, &mut values, |_, x| 0.5 * to.epsilon() * x.abs());
            Lanes::Float(values.into_iter().map(|x| to.round(x)).collect())
        }
        (Lanes::Float(x), Class::Float) if is_held => Lanes::Float(x.clone()),
        (Lanes::Int(x), Class::Float) if is_held => Lanes::Float(x.iter().map(|x| widen(from, *x) as f64).collect()),
        (Lanes::Float(x), Class::Float) => Lanes::Float(x.iter().map(|x| to.round(*x)).collect()),
        (Lanes::Int(x), Class::Float) => Lanes::Float(x.iter().map(|x| to.round(widen(from, *x) as f64)).collect()),
        (Lanes::Float(x), Class::Bool) => Lanes::Int(x.iter().map(|x| i64::from(from.round(*x) != 0.0)).collect()),
        (Lanes::Float(x), _) => Lanes::Int(x.iter().map(|x| to.wrap(from.round(*x) as i128) as i64).collect()),
        (Lanes::Int(x), _) => Lanes::Int(x.iter().map(|x| to.wrap(widen(from, *x)) as i64).collect()),
    }
}

/// The stored bits of numbers of one type read as another type of the same width.
fn read_bits(x: &Lanes, from: DType, to: DType) -> Lanes {
    let bits: Vec<i64> = match x {
        Lanes::Float(x) => x.iter().map(|x| from.to_bits(*x) as i64).collect(),
        Lanes::Int(x) => x.clone(),
    };
    if to.is_float() {
        Lanes::Float(bits.iter().map(|b| to.from_bits(*b as u64)).collect())
    } else {
        Lanes::Int(bits.iter().map(|b| to.wrap(i128::from(*b)) as i64).collect())
    }
}

/// A function on blocks; `from` is the type of its operands, `to` that of its result.
fn apply(op: Scalar, from: DType, to: DType, operands: &[&Lanes], len: usize, run: &Run<'_>) -> Lanes {
    let def = op.def();
    if from.is_float() {
        let mut operands: SmallVec<[Cow<'_, [f64]>; 3]> = operands.iter().map(|o| o.as_floats()).collect();
        if op.jumps() && from != DType::F64 {
            operands.iter_mut().for_each(|o| *o = o.iter().map(|x| from.round(*x)).collect());
        }
        let mut values = each(def.float.expect("the type was checked"), &operands, len, |x| *x);
        if !to.is_float() {
            return Lanes::Int(values.into_iter().map(|x| x as i64).collect());
        }
        match run.reading() {
            Reading::Drawn { .. } => run.draw_call(op, to, &operands, &mut values),
            reading if reading == Reading::Rounded || op == Scalar::Kept => {
                values.iter_mut().for_each(|x| *x = to.round(*x));
            }
            _ => {}
        }
        return Lanes::Float(values);
    }
    let operands: SmallVec<[&[i64]; 3]> = operands.iter().map(|o| o.as_ints()).collect();
    Lanes::Int(if from == DType::Bool {
        let values = each(def.bool.expect("the type was checked"), &operands, len, |x| *x != 0);
        values.into_iter().map(i64::from).collect()
    } else {
        let values = each(def.int.expect("the type was checked"), &operands, len, |x| widen(from, *x));
        values.into_iter().map(|x| to.wrap(x) as i64).collect()
    })
}

/// The function at every element of its operands, which `read` converts.
fn each<S, T>(f: fn(&[T]) -> T, operands: &[impl AsRef<[S]>], len: usize, read: impl Fn(&S) -> T) -> Vec<T> {
    match operands {
        [a] => a.as_ref()[..len].iter().map(|a| f(&[read(a)])).collect(),
        [a, b] => a.as_ref()[..len].iter().zip(b.as_ref()).map(|(a, b)| f(&[read(a), read(b)])).collect(),
        [c, a, b] => {
            let pairs = a.as_ref().iter().zip(b.as_ref());
            c.as_ref()[..len].iter().zip(pairs).map(|(c, (a, b))| f(&[read(c), read(a), read(b)])).collect()
        }
        _ => unreachable!("functions of the scalar table take one to three arguments"),
    }
}
