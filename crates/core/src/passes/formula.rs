//! Tensors whose elements are a function of their coordinates: constants, ranges, triangular masks.

mod concat;

use smallvec::SmallVec;

use super::Context;
use crate::graph::{Graph, Value};
use crate::ops::prim::{Monoid, Prefix, View};
use crate::ops::{Expr, ExprNode, Number, Prim, Scalar, Scope, Term};
use crate::tensor::{DType, Dim, Literal, Ranges, Symbol};

/// A formula of more operations than this is dearer than a table of its values.
pub(crate) const MOST_FLOPS: u32 = 16;

/// Chains of more views are not looked through. Where one view of another can be one, it is; the rest could be as long as a model is.
pub(super) const MOST_VIEWS: usize = 4;

/// The expression without arguments whose value at the coordinates of an element is the element. A stored constant
/// has one if all its elements are equal; see [`of_table`] for others.
pub(super) fn of_value(graph: &Graph, value: Value) -> Option<Expr> {
    look(graph, None, value, true)
}

/// That of a view of a value.
pub(super) fn of_view(graph: &Graph, view: &View, value: Value) -> Option<Expr> {
    look(graph, Some(view), value, true)
}

/// The formula of a value, or of a view of it; the value may be a concat of formulas or not.
fn look(graph: &Graph, view: Option<&View>, value: Value, concats: bool) -> Option<Expr> {
    let mut node = graph.node_of(value);
    let mut views: SmallVec<[&View; 2]> = view.into_iter().collect();
    while let Prim::View(view) = node.prim() {
        if views.len() == MOST_VIEWS {
            return None;
        }
        views.push(view);
        node = graph.node_of(node.args()[0]);
    }
    let formula = match node.prim() {
        Prim::Map(row) if node.args().is_empty() && row.expr.flops() <= MOST_FLOPS => row.expr.clone(),
        Prim::Const(row) if row.literal.is_splat() => of_splat(&row.literal),
        Prim::Sizes(row) if row.dims.len() == 1 && row.dims[0].complexity() <= MOST_FLOPS => {
            Expr::build(&[], |scope, _| scope.size(row.dims[0].clone()))
        }
        Prim::Concat(row) if concats => concat::of_concat(graph, row.axis, node.args(), node.types()[0].shape.dims())?,
        _ => return None,
    };
    views.iter().rev().try_fold(formula, |inner, view| {
        let seen = through(&inner, view);
        (seen.flops() <= MOST_FLOPS).then_some(seen)
    })
}

/// The formula of a constant whose elements are equal.
pub(super) fn of_splat(literal: &Literal) -> Expr {
    Expr::build(&[], |scope, _| scope.constant(literal.dtype(), number(literal, 0)))
}

/// The formula of running sums of one integer: a multiple of the place.
pub(super) fn of_running_sum(graph: &Graph, row: &Prefix, operand: Value) -> Option<Expr> {
    let dtype = graph.ty(operand).dtype;
    let Number::Int(term) = of_value(graph, operand)?.as_const()? else { return None };
    if row.monoid != Monoid::Sum || !dtype.is_int() {
        return None;
    }
    let count = Dim::axis(row.axis) + i64::from(!row.exclusive);
    Some(Expr::build(&[], |scope, _| scope.index(&(count * term)).cast(dtype)))
}

/// A formula at other coordinates.
fn at_coordinates(formula: &Expr, coordinate: &dyn Fn(usize) -> Dim) -> Expr {
    Expr::build(&[], |scope, _| {
        formula.inline_with(scope, |node| match node {
            ExprNode::Coord(axis) => Some(scope.index(&coordinate(usize::from(*axis)))),
            _ => None,
        })
    })
}

/// The formula of a view of a formula.
fn through(inner: &Expr, view: &View) -> Expr {
    let ranges = Ranges::of(view.shape.dims());
    Expr::build(&[], |scope, _| {
        let value = inner.inline_with(scope, |node| match node {
            ExprNode::Coord(axis) => Some(scope.index(&view.map[usize::from(*axis)])),
            _ => None,
        });
        let mut demands = Vec::new();
        for guard in &view.guard {
            let (index, bounds) = (scope.index(&guard.index), ranges.bounds(&guard.index));
            if !bounds.as_ref().is_some_and(|b| b.low.is_nonnegative()) {
                demands.push(at_most(scope.size(Dim::int(0)), index));
            }
            if !bounds.is_some_and(|b| (&guard.bound - 1 - b.high).is_nonnegative()) {
                demands.push(index.lt(scope.size(guard.bound.clone())));
            }
        }
        match (all(demands), view.fill) {
            (Some(open), Some(fill)) => open.select(value, scope.constant(value.dtype(), fill)),
            _ => value,
        }
    })
}

/// The formula of a stored table that is an integer step function of its coordinates: affine (a range), or of two values
/// told apart by a band along the diagonal of two axes (a causal or sliding-window mask) or by an interval of one axis; also
/// with its elements repeated along an axis (a staircase), or as a whole, or rotated.
pub(super) fn of_table(literal: &Literal, context: &Context) -> Option<Expr> {
    if literal.count() < 2 || literal.count() > context.table_elements {
        return None;
    }
    if literal.is_splat() {
        return Some(of_splat(literal));
    }
    if literal.as_seeded().is_some() {
        return None; // random numbers follow no formula
    }
    let found = affine(literal)
        .or_else(|| of_repeated(literal, context))
        .or_else(|| rotated(literal))
        .or_else(|| in_blocks(literal, context))
        .or_else(|| band(literal));
    found.filter(|expr| expr.flops() <= MOST_FLOPS)
}

/// The formula of a table of integers, bools or two values that repeats its elements, or itself, along an axis: that of what is
/// repeated, at the quotient or the remainder of the coordinate.
fn of_repeated(literal: &Literal, context: &Context) -> Option<Expr> {
    if literal.dtype().is_float() && !is_of_two(literal) {
        return None; // a few numbers that happen to be repeated
    }
    let sizes = literal.sizes();
    let strides = strides(sizes);
    (0..sizes.len()).find_map(|axis| {
        let (size, stride) = (sizes[axis], strides[axis]);
        let coordinate = |k: usize| k / stride % size;
        let same = |k: usize, back: usize| number(literal, k) == number(literal, k - back * stride);
        let divisors = (2..size).filter(|n| size.is_multiple_of(*n));
        // Each element `n` times in a row, the longest runs first; or the first `n` again and again.
        // The first elements that would repeat others are looked at before all: in weights, hardly any do.
        let begins_at = |n: usize| (n * stride..(n + 1) * stride).all(|k| same(k, n));
        let is_run = |n: &usize| begins_at(1) && (0..literal.count()).all(|k| same(k, coordinate(k) % n));
        let is_period = |n: &usize| begins_at(*n) && (0..literal.count()).all(|k| same(k, coordinate(k) / n * n));
        let at = Dim::axis(axis);
        let (kept, every, index) = match divisors.clone().rev().find(is_run) {
            Some(n) => (size / n, n, at.floordiv(&Dim::from(n))),
            None => divisors.clone().find(is_period).map(|n| (n, 1, at.modulo(&Dim::from(n))))?,
        };
        let mut smaller = sizes.to_vec();
        smaller[axis] = kept;
        let place = |k: usize| {
            let (mut rest, mut from) = (k, 0);
            for (a, n) in smaller.iter().enumerate().rev() {
                from += rest % n * strides[a] * if a == axis { every } else { 1 };
                rest /= n;
            }
            from
        };
        let places: Vec<usize> = (0..smaller.iter().product()).map(place).collect();
        let smaller = if literal.dtype().is_float() {
            let elements: Vec<f64> = places.iter().map(|k| literal.float(*k)).collect();
            Literal::from_f64s(literal.dtype(), smaller, &elements)
        } else {
            let elements: Vec<i64> = places.iter().map(|k| literal.int(*k)).collect();
            Literal::from_ints(literal.dtype(), smaller, &elements)
        };
        let inner = of_table(&smaller.ok()?, context)?;
        Some(at_coordinates(&inner, &|a| if a == axis { index.clone() } else { Dim::axis(a) }))
    })
}

/// Whether a table has two values and no more, each often: signs, ones and zeros.
fn is_of_two(literal: &Literal) -> bool {
    const LEAST: usize = 8;
    let first = number(literal, 0);
    let other = (1..literal.count()).map(|k| number(literal, k)).find(|n| *n != first);
    literal.count() >= LEAST && (1..literal.count()).all(|k| [Some(first), other].contains(&Some(number(literal, k))))
}

fn number(literal: &Literal, k: usize) -> Number {
    if literal.dtype().is_float() { Number::Float(literal.float(k).to_bits()) } else { Number::Int(literal.int(k)) }
}

fn strides(sizes: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; sizes.len()];
    for k in (1..sizes.len()).rev() {
        strides[k - 1] = strides[k] * sizes[k];
    }
    strides
}

/// The integer that an element is, if it is one that floats and integers count exactly.
fn whole(literal: &Literal, k: usize) -> Option<i64> {
    const LARGEST: i64 = 1 << 52;
    let n = match literal.dtype() {
        DType::Bool => return None,
        d if d.is_float() => {
            let x = literal.float(k);
            // −0 is not the integer 0: its sign would be lost.
            (x == x.trunc() && (x != 0.0 || x.is_sign_positive())).then_some(x as i64)?
        }
        _ => literal.int(k),
    };
    (-LARGEST..LARGEST).contains(&n).then_some(n)
}

/// `c₀ + Σ cₐ·iₐ`.
fn affine(literal: &Literal) -> Option<Expr> {
    let sizes = literal.sizes();
    if literal.dtype().is_float() && literal.count() < 4 {
        return None; // a few numbers that happen to be in line
    }
    let strides = strides(sizes);
    let start = whole(literal, 0)?;
    let mut slopes = Vec::with_capacity(sizes.len());
    for (size, stride) in sizes.iter().zip(&strides) {
        slopes.push(if *size > 1 { whole(literal, *stride)? - start } else { 0 });
    }
    let value = |k: usize| -> i64 {
        let coordinate = |axis: usize| (k / strides[axis] % sizes[axis]) as i64;
        start + (0..sizes.len()).map(|axis| slopes[axis] * coordinate(axis)).sum::<i64>()
    };
    if !(0..literal.count()).all(|k| whole(literal, k) == Some(value(k))) {
        return None;
    }
    let index: Dim = slopes.iter().enumerate().map(|(axis, slope)| Dim::axis(axis) * *slope).sum::<Dim>() + start;
    Some(Expr::build(&[], |scope, _| scope.index(&index).cast(literal.dtype())))
}

/// The formula of the places along an axis, rotated: the halves of a vector that change places.
fn rotated(literal: &Literal) -> Option<Expr> {
    let count = literal.count();
    let axis = literal.sizes().iter().position(|size| *size == count).filter(|_| literal.dtype().is_int())?;
    let shift = usize::try_from(literal.int(0)).ok().filter(|n| (1..count).contains(n))?;
    if !(0..count).all(|k| literal.int(k) == ((k + shift) % count) as i64) {
        return None;
    }
    let index = (Dim::axis(axis) + shift as i64).modulo(&Dim::from(count));
    Some(Expr::build(&[], |scope, _| scope.index(&index).cast(literal.dtype())))
}

/// The formula of places along an axis that change within blocks, in each block alike: pairs of neighbours that change places.
fn in_blocks(literal: &Literal, context: &Context) -> Option<Expr> {
    let count = literal.count();
    let axis = literal.sizes().iter().position(|size| *size == count).filter(|_| literal.dtype().is_int())?;
    let at = |k: usize| literal.int(k);
    let is_block = |n: &usize| {
        let step = at(*n).wrapping_sub(at(0));
        (*n..count).all(|k| at(k) == at(k % n).wrapping_add(step.wrapping_mul((k / n) as i64)))
    };
    let block = (2..count).filter(|n| count.is_multiple_of(*n)).find(is_block)?;
    let elements: Vec<i64> = (0..block).map(at).collect();
    let inner = of_table(&Literal::from_ints(DType::I64, [block], &elements).ok()?, context)?;
    let first = inner.as_index(&Ranges::of(&[Dim::from(block)]))?;
    let (here, length) = (Dim::axis(axis), Dim::from(block));
    let inside = first.substitute(&|s| matches!(s, Symbol::Axis(_)).then(|| here.modulo(&length)));
    let index = inside + here.floordiv(&length) * (at(block) - at(0));
    Some(Expr::build(&[], |scope, _| scope.index(&index).cast(literal.dtype())))
}

/// Where the elements of a table are the one of its two values.
struct Mask<'l> {
    inside: Vec<bool>,
    sizes: &'l [usize],
    strides: Vec<usize>,
}

/// Two values: one inside of a band, the other outside.
fn band(literal: &Literal) -> Option<Expr> {
    let first = number(literal, 0);
    let other = (1..literal.count()).map(|k| number(literal, k)).find(|n| *n != first)?;
    let mut inside = Vec::with_capacity(literal.count());
    for k in 0..literal.count() {
        let n = number(literal, k);
        if n != first && n != other {
            return None;
        }
        inside.push(n == first);
    }
    let mut mask = Mask { inside, sizes: literal.sizes(), strides: strides(literal.sizes()) };
    let found = mask.condition(literal.dtype(), first, other);
    found.or_else(|| {
        mask.inside.iter_mut().for_each(|b| *b = !*b);
        mask.condition(literal.dtype(), other, first)
    })
}

impl Mask<'_> {
    fn condition(&self, dtype: DType, inside: Number, outside: Number) -> Option<Expr> {
        let varying: Vec<usize> = (0..self.sizes.len()).filter(|axis| self.varies_along(*axis)).collect();
        let (row, column) = match varying.as_slice() {
            [column] => (None, *column),
            [row, column] => (Some(*row), *column),
            _ => return None,
        };
        let (low, high) = self.borders(row, column)?;
        // The column lies at or after `low` and before `high`, both counted from the row.
        let from_row = |shift: i64| row.map_or(Dim::int(0), Dim::axis) + shift;
        Some(Expr::build(&[], |scope, _| {
            let place = scope.coord(column);
            let mut demands = Vec::new();
            demands.extend(low.map(|shift| at_most(scope.index(&from_row(shift)), place)));
            demands.extend(high.map(|shift| at_most(place, scope.index(&from_row(shift - 1)))));
            let holds = all(demands).expect("a table of two values has a border");
            select(scope, dtype, holds, inside, outside)
        }))
    }

    /// Whether elements differ along an axis.
    fn varies_along(&self, axis: usize) -> bool {
        let (size, stride) = (self.sizes[axis], self.strides[axis]);
        (stride..self.inside.len()).any(|k| k / stride % size > 0 && self.inside[k] != self.inside[k - stride])
    }

    /// The shifts `(low, high)` for which exactly the columns in `row + low .. row + high` are inside; `None` for a border
    /// that no row meets. Without a row axis the shifts count from 0.
    fn borders(&self, row: Option<usize>, column: usize) -> Option<(Option<i64>, Option<i64>)> {
        let (rows, row_stride) = row.map_or((1, 0), |axis| (self.sizes[axis], self.strides[axis]));
        let columns = self.sizes[column];
        let at = |r: usize, c: usize| self.inside[r * row_stride + c * self.strides[column]];
        let (mut low, mut high) = (None, None);
        for r in 0..rows {
            for c in 1..columns {
                let shift = c as i64 - r as i64;
                match (at(r, c - 1), at(r, c)) {
                    (false, true) if low.is_none() => low = Some(shift),
                    (true, false) if high.is_none() => high = Some(shift),
                    _ => {}
                }
            }
        }
        let holds = |r: usize, c: usize| {
            let shift = c as i64 - r as i64;
            low.is_none_or(|low| shift >= low) && high.is_none_or(|high| shift < high)
        };
        let fits = (0..rows).all(|r| (0..columns).all(|c| at(r, c) == holds(r, c)));
        (fits && (low.is_some() || high.is_some())).then_some((low, high))
    }
}

fn at_most<'s>(a: Term<'s>, b: Term<'s>) -> Term<'s> {
    Term::call(Scalar::Le, &[a, b])
}

fn all(demands: Vec<Term<'_>>) -> Option<Term<'_>> {
    demands.into_iter().reduce(|a, b| Term::call(Scalar::And, &[a, b]))
}

fn select<'s>(scope: &'s Scope, dtype: DType, holds: Term<'s>, yes: Number, no: Number) -> Term<'s> {
    match (dtype, yes) {
        (DType::Bool, Number::Int(1)) => holds,
        (DType::Bool, _) => holds.apply(Scalar::Not),
        _ => holds.select(scope.constant(dtype, yes), scope.constant(dtype, no)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::prim::Map;
    use crate::reference::{Options, evaluate_prim};

    fn recognised(dtype: DType, sizes: &[usize], value: impl Fn(&[usize]) -> f64) -> Option<Expr> {
        let strides = strides(sizes);
        let coordinates = |k: usize| -> Vec<usize> { strides.iter().zip(sizes).map(|(s, n)| k / s % n).collect() };
        let values: Vec<f64> = (0..sizes.iter().product()).map(|k| value(&coordinates(k))).collect();
        let literal = Literal::from_f64s(dtype, sizes.to_vec(), &values).unwrap();
        let expr = of_table(&literal, &Context::default())?;
        let map = Map { expr: expr.clone(), shape: literal.ty().shape };
        let table = evaluate_prim(&map.into(), &[], &Options::default()).unwrap().remove(0);
        assert_eq!(table, literal, "{expr:?}");
        Some(expr)
    }

    #[test]
    fn causal_masks_of_every_spelling_are_comparisons_of_coordinates() {
        for dtype in [DType::Bool, DType::I64, DType::F32, DType::U8] {
            let lower = recognised(dtype, &[1, 1, 5, 5], |i| f64::from(u8::from(i[3] <= i[2]))).unwrap();
            assert!(lower.flops() <= 2, "{lower:?}");
            recognised(dtype, &[5, 5], |i| f64::from(u8::from(i[1] > i[0]))).unwrap();
            recognised(dtype, &[4, 7], |i| f64::from(u8::from(i[1] <= i[0] + 3))).unwrap();
            recognised(dtype, &[2, 9, 9], |i| f64::from(u8::from(i[1] < i[2] + 3 && i[2] <= i[1]))).unwrap();
        }
        recognised(DType::F32, &[6, 6], |i| if i[1] <= i[0] { 0.0 } else { f64::NEG_INFINITY }).unwrap();
        recognised(DType::F16, &[6, 6], |i| if i[1] < i[0] { 0.0 } else { -65504.0 }).unwrap();
    }

    #[test]
    fn ranges_and_steps_are_formulas() {
        recognised(DType::I64, &[7], |i| i[0] as f64).unwrap();
        recognised(DType::I32, &[3, 4], |i| 5.0 - 2.0 * i[0] as f64 + i[1] as f64).unwrap();
        recognised(DType::F32, &[1, 8, 1], |i| i[1] as f64 * 3.0).unwrap();
        recognised(DType::Bool, &[3, 8], |i| f64::from(u8::from(i[1] >= 2 && i[1] < 5))).unwrap();
        recognised(DType::F32, &[3, 4], |_| 0.1).unwrap();
    }

    #[test]
    fn repetitions_are_quotients_and_remainders() {
        let heads = recognised(DType::I64, &[6], |i| (i[0] / 3) as f64).unwrap();
        assert_eq!(heads.as_index(&Ranges::of(&[Dim::int(6)])), Some(Dim::axis(0).floordiv(&Dim::int(3))), "{heads:?}");
        recognised(DType::Bool, &[8], |i| f64::from(u8::from(i[0] % 2 == 0))).unwrap();
        recognised(DType::U8, &[5, 96], |i| (i[1] % 2 * 4) as f64).unwrap();
        recognised(DType::I64, &[4, 6], |i| (i[1] / 2 + 10 * i[0]) as f64).unwrap();
        recognised(DType::I64, &[64], |i| ((i[0] + 32) % 64) as f64).unwrap();
        recognised(DType::I32, &[1, 9], |i| ((i[1] + 2) % 9) as f64).unwrap();
        recognised(DType::I64, &[64], |i| (i[0] ^ 1) as f64).unwrap();
        recognised(DType::I32, &[12, 1], |i| (i[0] / 4 * 4 + 3 - i[0] % 4) as f64).unwrap();
        recognised(DType::F32, &[64], |i| if i[0] % 2 == 0 { -1.0 } else { 1.0 }).unwrap();
    }

    #[test]
    fn other_tables_stay_tables() {
        assert!(recognised(DType::F32, &[8], |i| (i[0] as f64).sin()).is_none());
        assert!(recognised(DType::I64, &[8], |i| (i[0] * i[0]) as f64).is_none());
        assert!(recognised(DType::Bool, &[8], |i| f64::from(u8::from([0, 3, 4].contains(&i[0])))).is_none());
        assert!(recognised(DType::F32, &[6], |i| [0.5, 0.25][i[0] % 2]).is_none());
        assert!(recognised(DType::I32, &[12], |i| (i[0] / 2 % 3) as f64).is_none(), "dearer than the table");
        assert!(recognised(DType::F32, &[4], |i| if i[0] == 0 { -0.0 } else { i[0] as f64 }).is_none());
        assert!(recognised(DType::Bool, &[3, 3, 3], |i| f64::from(u8::from(i[0] <= i[1] && i[1] <= i[2]))).is_none());
    }
}
