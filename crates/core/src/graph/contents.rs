//! What small tensors hold, as far as it is known while the graph is built.
//!
//! Shapes travel through models as data (`Shape → Gather → Concat → Reshape`). Evaluating such chains on sizes instead
//! of numbers turns them into [`Dim`]s, so that every tensor has a type before anything runs.

use std::rc::Rc;

use super::{Graph, Node, Value};
use crate::ops::prim::{Combine, Gather, Map, Monoid, Reduce, Scatter, View};
use crate::ops::{ExprNode, Number, Prim, Scalar};
use crate::tensor::{Class, DType, Dim, Literal, Symbol};

/// An element of a small tensor.
#[derive(Clone, Debug, PartialEq)]
pub enum Known {
    /// an integer (bool: 0 or 1), possibly an expression in sizes; in tensors of f32 and f64, a size that was converted
    Int(Dim),
    /// a float
    Float(f64),
    /// not known before run time
    Unknown,
}

/// The elements of a tensor in row-major order.
pub type Contents = Rc<[Known]>;

/// Larger tensors are not followed.
pub const MOST_ELEMENTS: usize = 256;

/// What contents are wanted for, which decides by what can be divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// to shape tensors: sizes of axes are taken for more than 0. What is computed from the sizes of a tensor without
    /// elements shapes no elements either
    Shapes,
    /// to take the place of the data: every element is what the graph computes, whatever the sizes
    Data,
}

/// Whether the first result of a node is small enough to be followed: of others, the operands need not be looked at.
pub(super) fn is_followed(node: &Node) -> bool {
    node.types().first().and_then(|ty| small_count(&ty.shape.as_ints()?)).is_some()
}

/// The contents of a node's first result, given those of its operands (by `of`).
pub fn contents(
    graph: &Graph,
    node: &Node,
    purpose: Purpose,
    of: &dyn Fn(Value) -> Option<Contents>,
) -> Option<Contents> {
    let sizes = node.types().first()?.shape.as_ints()?;
    let count = small_count(&sizes)?;
    let arg_sizes = |k: usize| graph.ty(*node.args().get(k)?).shape.as_ints();
    // Of a small operand that nothing is known of, the others still say something.
    let arg = |k: usize| {
        let small = || small_count(&arg_sizes(k)?).map(|n| vec![Known::Unknown; n].into());
        of(*node.args().get(k)?).or_else(small)
    };
    let contents: Vec<Known> = match node.prim() {
        Prim::Const(row) => (0..count).map(|k| from_literal(&row.literal, k)).collect(),
        Prim::Sizes(row) => row.dims.iter().cloned().map(Known::Int).collect(),
        Prim::Bind(row) => vec![Known::Int(Symbol::Value(row.symbol).into())],
        Prim::Map(row) => {
            let args: Option<Vec<Contents>> = (0..node.args().len()).map(arg).collect();
            let args = args?;
            (0..count).map(|k| map_element(row, &args, k, &sizes, purpose)).collect()
        }
        Prim::View(row) => {
            let (from, from_sizes) = (arg(0)?, arg_sizes(0)?);
            (0..count).map(|k| view_element(row, &from, &from_sizes, k, &sizes)).collect()
        }
        Prim::Gather(row) => {
            let (from, from_sizes) = (arg(0)?, arg_sizes(0)?);
            let indices: Option<Vec<Contents>> = (1..node.args().len()).map(arg).collect();
            let indices = indices?;
            (0..count).map(|k| gather_element(row, &from, &from_sizes, &indices, k, &sizes)).collect()
        }
        Prim::Concat(row) => {
            let runs: Option<Vec<usize>> =
                (0..node.args().len()).map(|k| Some(arg_sizes(k)?[row.axis..].iter().product())).collect();
            let parts: Option<Vec<Contents>> = (0..node.args().len()).map(arg).collect();
            let (runs, parts) = (runs?, parts?);
            let outer: usize = sizes[..row.axis].iter().product();
            let mut all = Vec::with_capacity(count);
            for o in 0..outer {
                for (part, run) in parts.iter().zip(&runs) {
                    all.extend_from_slice(&part[o * run..(o + 1) * run]);
                }
            }
            all
        }
        Prim::Reduce(row) => reduce(row, &arg(0)?, &arg_sizes(0)?, node.types()[0].dtype, count)?,
        Prim::Scatter(row) if row.combine == Combine::Replace => {
            let indices: Option<Vec<Contents>> = (2..node.args().len()).map(arg).collect();
            replaced(row, &arg(0)?, &sizes, &arg(1)?, &arg_sizes(1)?, &indices?)?
        }
        _ => return None,
    };
    contents.iter().any(|k| *k != Known::Unknown).then(|| contents.into())
}

/// The number of elements of a tensor that is small enough to be followed.
fn small_count(sizes: &[usize]) -> Option<usize> {
    sizes.iter().try_fold(1usize, |p, n| p.checked_mul(*n)).filter(|n| *n <= MOST_ELEMENTS)
}

/// The contents as a literal, when every element is a number.
pub fn to_literal(contents: &[Known], dtype: DType, sizes: Vec<usize>) -> Option<Literal> {
    if dtype.is_float() {
        let values: Option<Vec<f64>> =
            contents.iter().map(|k| if let Known::Float(x) = k { Some(*x) } else { None }).collect();
        return Literal::from_f64s(dtype, sizes, &values?).ok();
    }
    let values: Option<Vec<i64>> =
        contents.iter().map(|k| if let Known::Int(d) = k { d.as_int() } else { None }).collect();
    Literal::from_ints(dtype, sizes, &values?).ok()
}

fn from_literal(literal: &Literal, k: usize) -> Known {
    match literal.dtype().class() {
        Class::Float => Known::Float(literal.float(k)),
        _ if literal.dtype() == DType::U64 && literal.int(k) < 0 => Known::Unknown, // above 2^63
        _ => Known::Int(Dim::int(literal.int(k))),
    }
}

fn coordinates(mut k: usize, sizes: &[usize]) -> Vec<i64> {
    let mut i = vec![0; sizes.len()];
    for axis in (0..sizes.len()).rev() {
        i[axis] = (k % sizes[axis]) as i64;
        k /= sizes[axis];
    }
    i
}

/// The number of an index expression at coordinates `i`, index operands read by `read`.
fn index_at(dim: &Dim, i: &[i64], read: &dyn Fn(usize) -> Option<i64>) -> Option<i64> {
    let lookup = |s: &Symbol| match s {
        Symbol::Axis(a) => i.get(usize::from(*a)).copied(),
        Symbol::Read(r) => read(usize::from(*r)),
        Symbol::Name(_) | Symbol::Value(_) => None,
    };
    dim.eval_with(&lookup).ok()
}

fn element(from: &[Known], sizes: &[usize], index: impl Iterator<Item = Option<i64>>) -> Known {
    let mut position = 0;
    for (size, at) in sizes.iter().zip(index) {
        match at.and_then(|n| usize::try_from(n).ok()).filter(|n| n < size) {
            Some(n) => position = position * size + n,
            None => return Known::Unknown,
        }
    }
    from.get(position).cloned().unwrap_or(Known::Unknown)
}

fn view_element(view: &View, from: &[Known], from_sizes: &[usize], k: usize, sizes: &[usize]) -> Known {
    let i = coordinates(k, sizes);
    let at = |dim: &Dim| index_at(dim, &i, &|_| None);
    for guard in &view.guard {
        match (at(&guard.index), at(&guard.bound)) {
            (Some(index), Some(bound)) if (0..bound).contains(&index) => {}
            (Some(_), Some(_)) => {
                return match view.fill {
                    Some(Number::Int(n)) => Known::Int(Dim::int(n)),
                    Some(Number::Float(bits)) => Known::Float(f64::from_bits(bits)),
                    None => Known::Unknown,
                };
            }
            _ => return Known::Unknown,
        }
    }
    element(from, from_sizes, view.map.iter().map(at))
}

fn gather_element(
    gather: &Gather,
    from: &[Known],
    from_sizes: &[usize],
    indices: &[Contents],
    k: usize,
    sizes: &[usize],
) -> Known {
    let i = coordinates(k, sizes);
    let read = |operand: usize| match indices.get(operand)?.get(k)? {
        Known::Int(d) => d.as_int(),
        _ => None,
    };
    element(from, from_sizes, gather.map.iter().map(|d| index_at(d, &i, &read)))
}

/// The elements after updates took the places of some; `None` where a place is not known.
fn replaced(
    row: &Scatter,
    from: &[Known],
    sizes: &[usize],
    updates: &[Known],
    update_sizes: &[usize],
    indices: &[Contents],
) -> Option<Vec<Known>> {
    let mut all = from.to_vec();
    for (k, update) in updates.iter().enumerate() {
        let i = coordinates(k, update_sizes);
        let read = |operand: usize| match indices.get(operand)?.get(k)? {
            Known::Int(d) => d.as_int(),
            _ => None,
        };
        let mut position = 0;
        for (size, dim) in sizes.iter().zip(&row.map) {
            let at = usize::try_from(index_at(dim, &i, &read)?).ok().filter(|n| n < size)?;
            position = position * size + at;
        }
        *all.get_mut(position)? = update.clone();
    }
    Some(all)
}

fn reduce(row: &Reduce, from: &[Known], sizes: &[usize], dtype: DType, count: usize) -> Option<Vec<Known>> {
    let op = match row.monoid {
        Monoid::Sum => Scalar::Add,
        Monoid::Prod => Scalar::Mul,
        Monoid::Max => Scalar::Max,
        Monoid::Min => Scalar::Min,
        _ => return None,
    };
    let mut out: Vec<Option<Known>> = vec![None; count];
    for (k, x) in from.iter().enumerate() {
        let i = coordinates(k, sizes);
        let kept = (0..sizes.len()).filter(|a| !row.axes.contains(a));
        let to = kept.fold(0, |to, a| to * sizes[a] + i[a] as usize);
        out[to] = Some(match out[to].take() {
            None => x.clone(),
            Some(sum) => apply(op, dtype, dtype, &[sum, x.clone()], Purpose::Data),
        });
    }
    let neutral = match (row.monoid, dtype.is_float()) {
        (Monoid::Sum, false) => Known::Int(Dim::int(0)),
        (Monoid::Prod, false) => Known::Int(Dim::int(1)),
        _ => Known::Unknown,
    };
    Some(out.into_iter().map(|x| x.unwrap_or_else(|| neutral.clone())).collect())
}

fn map_element(map: &Map, args: &[Contents], k: usize, sizes: &[usize], purpose: Purpose) -> Known {
    let nodes = map.expr.nodes();
    let mut steps: Vec<Known> = Vec::with_capacity(nodes.len());
    for (node, dtype) in nodes {
        steps.push(match node {
            ExprNode::Arg(a) => args[*a as usize].get(k).cloned().unwrap_or(Known::Unknown),
            ExprNode::Const(Number::Int(n)) => Known::Int(Dim::int(*n)),
            ExprNode::Const(Number::Float(bits)) => Known::Float(f64::from_bits(*bits)),
            ExprNode::Coord(axis) => Known::Int(Dim::int(coordinates(k, sizes)[usize::from(*axis)])),
            ExprNode::Size(dim) => Known::Int(dim.clone()),
            ExprNode::Cast(x) => cast(&steps[*x as usize], *dtype),
            ExprNode::Bits(_) => Known::Unknown,
            ExprNode::Apply(op, operands) => {
                let from = nodes[*operands.last().expect("functions have operands") as usize].1;
                let operands: Vec<Known> = operands.iter().map(|o| steps[*o as usize].clone()).collect();
                apply(*op, from, *dtype, &operands, purpose)
            }
        });
    }
    steps.pop().unwrap_or(Known::Unknown)
}

fn cast(x: &Known, to: DType) -> Known {
    match (x, to.class()) {
        (Known::Float(x), Class::Float) => Known::Float(to.round(*x)),
        (Known::Float(x), Class::Bool) => Known::Int(Dim::int(i64::from(*x != 0.0))),
        (Known::Float(x), _) => Known::Int(Dim::int(to.wrap(*x as i128) as i64)),
        (Known::Int(d), Class::Float) => match d.as_int() {
            Some(n) => Known::Float(to.round(n as f64)),
            // Sizes along one axis are far below 2^24: floats of 32 bits hold them exactly.
            None if matches!(to, DType::F32 | DType::F64) => x.clone(),
            None => Known::Unknown,
        },
        (Known::Int(d), _) => match d.as_int() {
            Some(n) => Known::Int(Dim::int(to.wrap(i128::from(n)) as i64)),
            // A size keeps its value in the wide types; whether it is zero is not known.
            None if matches!(to, DType::I64 | DType::I32) => x.clone(),
            None => Known::Unknown,
        },
        (Known::Unknown, _) => Known::Unknown,
    }
}

fn apply(op: Scalar, from: DType, to: DType, args: &[Known], purpose: Purpose) -> Known {
    if op == Scalar::Select {
        return match &args[0] {
            Known::Int(c) if c.is(0) => args[2].clone(),
            Known::Int(c) if c.as_int().is_some() => args[1].clone(),
            _ if args[1] == args[2] => args[1].clone(),
            _ => Known::Unknown,
        };
    }
    if from.is_float() {
        let values: Option<Vec<f64>> =
            args.iter().map(|a| if let Known::Float(x) = a { Some(*x) } else { None }).collect();
        let Some(values) = values else { return integral(op, to, args, purpose) };
        let Some(f) = op.def().float else { return Known::Unknown };
        let y = f(&values);
        // Rounded as it is stored: constants that are folded are, and a condition must not know better than what it guards.
        return if to.is_float() { Known::Float(to.round(y)) } else { Known::Int(Dim::int(y as i64)) };
    }
    let dims: Option<Vec<&Dim>> = args.iter().map(|a| if let Known::Int(d) = a { Some(d) } else { None }).collect();
    let Some(dims) = dims else { return Known::Unknown };
    let numbers: Option<Vec<i64>> = dims.iter().map(|d| d.as_int()).collect();
    if let Some(numbers) = numbers {
        if from == DType::Bool {
            let bools: Vec<bool> = numbers.iter().map(|n| *n != 0).collect();
            return op.def().bool.map_or(Known::Unknown, |f| Known::Int(Dim::int(i64::from(f(&bools)))));
        }
        let wide: Vec<i128> = numbers.iter().map(|n| i128::from(*n)).collect();
        return op.def().int.map_or(Known::Unknown, |f| Known::Int(Dim::int(to.wrap(f(&wide)) as i64)));
    }
    symbolic(op, &dims, purpose)
}

/// A function of floats that are integers, some of them sizes, where its result is an integer too.
fn integral(op: Scalar, to: DType, args: &[Known], purpose: Purpose) -> Known {
    let whole = |a: &Known| match a {
        Known::Int(d) => Some(d.clone()),
        Known::Float(x) if x.fract() == 0.0 && x.abs() < f64::from(1 << 24) => Some(Dim::int(*x as i64)),
        _ => None,
    };
    let Some(dims) = args.iter().map(whole).collect::<Option<Vec<Dim>>>() else { return Known::Unknown };
    let dims: Vec<&Dim> = dims.iter().collect();
    let result = match (op, dims.as_slice()) {
        (Scalar::Floor | Scalar::Ceil | Scalar::Round | Scalar::Trunc | Scalar::Kept, [a]) => Known::Int((*a).clone()),
        (Scalar::Div, [a, b]) if is_divisor(b, purpose) && a.floordiv(b) * *b == **a => Known::Int(a.floordiv(b)),
        (Scalar::Div | Scalar::Mod | Scalar::Rem, _) => Known::Unknown,
        _ => symbolic(op, &dims, purpose),
    };
    match result {
        Known::Int(d) if to.is_float() => d.as_int().map_or(Known::Int(d), |n| Known::Float(n as f64)),
        other => other,
    }
}

/// Whether a size can be divided by as numbers are: it is larger than zero, or, for shapes, the product of the sizes of some axes.
fn is_divisor(dim: &Dim, purpose: Purpose) -> bool {
    if purpose == Purpose::Data {
        return (dim - 1).is_nonnegative();
    }
    let mut axes = Dim::int(1);
    dim.for_each_symbol(&mut |s| axes = &axes * Dim::from(s.clone()));
    let times = dim.floordiv(&axes).as_int().filter(|n| *n > 0);
    (dim - 1).is_nonnegative() || times.is_some_and(|n| axes * n == *dim)
}

/// Arithmetic of sizes is followed up to expressions of so many parts; what gets longer is left to the run.
const MOST_PARTS: u32 = 256;

fn symbolic(op: Scalar, dims: &[&Dim], purpose: Purpose) -> Known {
    let summands = dims.iter().map(|dim| dim.summands()).product::<usize>();
    if dims.iter().any(|dim| dim.complexity() > MOST_PARTS) || summands > MOST_PARTS as usize {
        return Known::Unknown;
    }
    let truth = |holds: bool| Known::Int(Dim::int(i64::from(holds)));
    let result = match (op, dims) {
        (Scalar::Add, [a, b]) => *a + *b,
        (Scalar::Sub, [a, b]) => *a - *b,
        (Scalar::Mul, [a, b]) => *a * *b,
        (Scalar::Neg, [a]) => -*a,
        (Scalar::Min, [a, b]) => a.min_with(b),
        (Scalar::Max, [a, b]) => a.max_with(b),
        (Scalar::Abs, [a]) if a.is_nonnegative() => (*a).clone(),
        // Where neither is negative, truncation is the floor.
        (Scalar::Div, [a, b]) if a.is_nonnegative() && is_divisor(b, purpose) => a.floordiv(b),
        (Scalar::Mod | Scalar::Rem, [a, b]) if a.is_nonnegative() && is_divisor(b, purpose) => a.modulo(b),
        (Scalar::Eq, [a, b]) if a == b => return truth(true),
        (Scalar::Eq, [a, b]) if a.surely_differs(b) => return truth(false),
        (Scalar::Lt, [a, b]) if (*b - *a - 1).is_nonnegative() => return truth(true),
        (Scalar::Lt, [a, b]) if (*a - *b).is_nonnegative() => return truth(false),
        (Scalar::Le, [a, b]) if (*b - *a).is_nonnegative() => return truth(true),
        (Scalar::Le, [a, b]) if (*a - *b - 1).is_nonnegative() => return truth(false),
        _ => return Known::Unknown,
    };
    Known::Int(result)
}
