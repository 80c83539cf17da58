//! Contractions that are something plainer: products, sums of products of elements, multiples of sums.

use smallvec::SmallVec;

use crate::error::Result;
use crate::graph::Value;
use crate::graph::rewrite::{Rebuild, Values, replaced};
use crate::ops::prim::{Const, Contract, Label, Map, Monoid, Reduce, View};
use crate::ops::{Expr, Prim};
use crate::passes::compose_views::compose;
use crate::passes::{Context, formula};
use crate::tensor::{DType, Dim, Literal, Ranges, Shape, Symbol, TensorType};

/// The contraction without contracting, where no element of an operand meets several of the other: as products, summed where
/// more than one is; where an operand is one number, as the sum of the other times that; where it only rearranges, as what is rearranged.
pub(super) fn plainer(
    rebuild: &mut Rebuild<'_>,
    row: &Contract,
    args: &[Value],
    result: &TensorType,
) -> Result<Option<Values>> {
    let types = [rebuild.graph().ty(args[0]).clone(), rebuild.graph().ty(args[1]).clone()];
    let extent = |label: &Label| row.extent(&types, *label).cloned().unwrap_or(Dim::int(1));
    let summed: Vec<Label> = row.summed().into_iter().filter(|label| !extent(label).is(1)).collect();
    let in_both = |label: &Label| row.a.contains(label) && row.b.contains(label);
    if summed.is_empty() || row.out.iter().chain(&summed).all(in_both) {
        let shape: Shape = result.shape.dims().iter().cloned().chain(summed.iter().map(extent)).collect();
        return sum_of_products(rebuild, row, args, result, (&summed, shape));
    }
    for (constant, labels) in [(1, &row.a), (0, &row.b)] {
        let number = formula::of_value(rebuild.graph(), args[constant]).and_then(|expr| expr.as_const());
        if let (Some(number), true) = (number, summed.iter().all(|label| labels.contains(label))) {
            let factor = Expr::build(&[row.accumulator], |scope, x| {
                x[0] * scope.constant(types[constant].dtype, number).cast(row.accumulator)
            });
            return multiple_of_sum(rebuild, row, (args[1 - constant], labels), result, factor);
        }
    }
    for constant in [0, 1] {
        if let Some(values) = rearranged(rebuild, row, args, constant, result)? {
            return Ok(Some(values));
        }
    }
    Ok(None)
}

/// Larger tables are weights.
const MOST_ELEMENTS: usize = 64 << 10;

/// The product with a table that has one number other than zero for every element of the result: the other operand at those places, times
/// the numbers. A vector whose halves or neighbours change places is turned that way.
fn rearranged(
    rebuild: &mut Rebuild<'_>,
    row: &Contract,
    args: &[Value],
    constant: usize,
    result: &TensorType,
) -> Result<Option<Values>> {
    let Prim::Const(table) = rebuild.graph().node_of(args[constant]).prim() else { return Ok(None) };
    let (own, other) = if constant == 0 { (&row.a, &row.b) } else { (&row.b, &row.a) };
    let (&[first, second], &[summed]) = (own.as_slice(), row.summed().as_slice()) else { return Ok(None) };
    let (label, across) = if first == summed { (second, 1) } else { (first, 0) };
    if (first == summed) == (second == summed) || other.contains(&label) || table.literal.count() > MOST_ELEMENTS {
        return Ok(None);
    }
    let Some((places, numbers)) = one_for_each(&table.literal, across) else { return Ok(None) };
    let size = Dim::from(numbers.len());
    let index = Literal::from_ints(DType::I64, [places.len()], &places).ok();
    let formula = index.and_then(|index| formula::of_table(&index, &Context::default()));
    let Some(index) = formula.and_then(|expr| expr.as_index(&Ranges::of(&[size]))) else { return Ok(None) };
    let place = |label: &Label| row.out.iter().position(|l| l == label).map_or(Dim::int(0), Dim::axis);
    let at = index.substitute(&|s| matches!(s, Symbol::Axis(_)).then(|| place(&label)));
    let map = other.iter().map(|l| if *l == summed { at.clone() } else { place(l) }).collect();
    let moved = compose(rebuild, View::new(result.shape.clone(), map), args[1 - constant])?;
    let moved = moved.map_or(args[1 - constant], |values| values[0]);
    let Ok(numbers) = Literal::from_f64s(result.dtype, [numbers.len()], &numbers) else { return Ok(None) };
    let numbers = rebuild.add(Const { literal: numbers }, &[])?;
    let numbers = rebuild.add(View::new(result.shape.clone(), vec![place(&label)]), &[numbers])?;
    let expr = Expr::build(&[result.dtype; 2], |_, x| x[0] * x[1]);
    replaced(rebuild.add(Map { expr, shape: result.shape.clone() }, &[moved, numbers])?)
}

/// For a matrix with one number other than zero along an axis, for every place of the other: where it is, and what.
fn one_for_each(table: &Literal, across: usize) -> Option<(Vec<i64>, Vec<f64>)> {
    let &[rows, columns] = table.sizes() else { return None };
    let (count, length) = if across == 1 { (columns, rows) } else { (rows, columns) };
    let number = |n: usize, k: usize| table.float(if across == 1 { k * columns + n } else { n * columns + k });
    let one = |n: usize| {
        let mut found = (0..length).filter(|k| number(n, *k) != 0.0);
        let (k, more) = (found.next()?, found.next());
        (more.is_none() && number(n, k).is_finite()).then(|| (k as i64, number(n, k)))
    };
    let is_float = table.dtype().is_float() && table.as_seeded().is_none();
    is_float.then(|| (0..count).map(one).collect::<Option<Vec<_>>>()).flatten().map(|all| all.into_iter().unzip())
}

/// Products over the axes of the result and those that are summed, then the sum.
fn sum_of_products(
    rebuild: &mut Rebuild<'_>,
    row: &Contract,
    args: &[Value],
    result: &TensorType,
    (summed, shape): (&[Label], Shape),
) -> Result<Option<Values>> {
    let axes: Vec<Label> = row.out.iter().chain(summed).copied().collect();
    let place = |label: &Label| axes.iter().position(|l| l == label).map_or(Dim::int(0), Dim::axis);
    let mut operands: SmallVec<[Value; 2]> = SmallVec::new();
    for (operand, labels) in args.iter().zip([&row.a, &row.b]) {
        let view = View::new(shape.clone(), labels.iter().map(place).collect());
        operands.push(compose(rebuild, view, *operand)?.map_or(*operand, |values| values[0]));
    }
    let own = rebuild.graph().ty(args[0]).dtype;
    if summed.is_empty() {
        let expr = Expr::build(&[own; 2], |_, x| x[0] * x[1]);
        return replaced(rebuild.add(Map { expr, shape }, &operands)?);
    }
    let wide = row.accumulator;
    let expr = Expr::build(&[own; 2], |_, x| x[0].cast(wide) * x[1].cast(wide));
    let products = rebuild.add(Map { expr, shape }, &operands)?;
    let over = (row.out.len()..axes.len()).collect();
    let sums = rebuild.add(Reduce { monoid: Monoid::Sum, axes: over }, &[products])?;
    rounded(rebuild, sums, result)
}

/// The sum of an operand over the axes that are no axes of the result, times a number.
fn multiple_of_sum(
    rebuild: &mut Rebuild<'_>,
    row: &Contract,
    (operand, labels): (Value, &[Label]),
    result: &TensorType,
    factor: Expr,
) -> Result<Option<Values>> {
    let ty = rebuild.graph().ty(operand).clone();
    let widened = Map { expr: Expr::cast(ty.dtype, row.accumulator), shape: ty.shape };
    let wide = if ty.dtype == row.accumulator { operand } else { rebuild.add(widened, &[operand])? };
    let axes: Vec<usize> = (0..labels.len()).filter(|k| !row.out.contains(&labels[*k])).collect();
    let sums = if axes.is_empty() { wide } else { rebuild.add(Reduce { monoid: Monoid::Sum, axes }, &[wide])? };
    let shape = rebuild.graph().ty(sums).shape.clone();
    let scaled = rebuild.add(Map { expr: factor, shape }, &[sums])?;
    let kept = labels.iter().filter(|label| row.out.contains(label));
    let place = |label: &Label| row.out.iter().position(|l| l == label).map_or(Dim::int(0), Dim::axis);
    let view = View::new(result.shape.clone(), kept.map(place).collect());
    let placed = compose(rebuild, view, scaled)?.map_or(scaled, |values| values[0]);
    rounded(rebuild, placed, result)
}

/// A value of the accumulator's type as the result.
fn rounded(rebuild: &mut Rebuild<'_>, value: Value, result: &TensorType) -> Result<Option<Values>> {
    let dtype = rebuild.graph().ty(value).dtype;
    if dtype == result.dtype {
        return replaced(value);
    }
    let shape = result.shape.clone();
    replaced(rebuild.add(Map { expr: Expr::cast(dtype, result.dtype), shape }, &[value])?)
}
