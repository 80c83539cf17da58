//! Scalar expressions at points.

use fuseline::ops::Expr;
use fuseline::tile::Rounding;

use super::emitter::Emitter;
use super::point::Point;
use crate::math::Facts;
use crate::math::expr::{Coordinate, Copies, eval};
use crate::math::int_expr::eval_int;
use crate::vector::{Builder, Value};

impl Emitter<'_> {
    /// An expression at some points: one value for each. `args` are those of its arguments at the same points.
    pub fn map(&mut self, expr: &Expr, args: &[Vec<Value>], points: &[&Point], rounding: Rounding) -> Vec<Value> {
        let bound = self.bound;
        let facts = Facts { extents: &bound.extents, sizes: &|dim| bound.size(dim), args: &[] };
        let args: Vec<Copies<Value>> = args.iter().map(|values| copies(values.clone())).collect();
        let mut coords = |b: &mut Builder, axis: u8| {
            let each = points.iter().map(|point| coordinate(b, point, usize::from(axis)));
            copies(each.collect())
        };
        let values = eval(&mut self.b, expr, &facts, points.len(), &args, &mut coords, rounding);
        (0..points.len()).map(|k| *values.of(k)).collect()
    }

    /// An expression of integers that are the same in all lanes; `None` where general registers cannot compute it.
    pub fn map_int(&mut self, expr: &Expr, args: &[Value], point: &Point) -> Option<Value> {
        let bound = self.bound;
        let mut coords = |b: &mut Builder, axis: u8| match coordinate(b, point, usize::from(axis)) {
            Coordinate::Uniform(value) => Some(value),
            _ => None,
        };
        eval_int(&mut self.b, expr, args, &mut coords, &|dim| bound.size(dim))
    }
}

/// One value where all are the same.
fn copies<T: PartialEq>(mut values: Vec<T>) -> Copies<T> {
    match values.windows(2).all(|pair| pair[0] == pair[1]) {
        true if !values.is_empty() => Copies::Same(values.swap_remove(0)),
        _ => Copies::Each(values),
    }
}

/// A coordinate of a point.
fn coordinate(b: &mut Builder, point: &Point, axis: usize) -> Coordinate {
    let coord = point.coord(axis);
    let base = match coord.base {
        Some(base) => b.plus(base, coord.plus),
        None => b.number(coord.plus),
    };
    if coord.lanes { Coordinate::Consecutive(base) } else { Coordinate::Uniform(base) }
}
