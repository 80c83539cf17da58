//! Parts of one product: queries, keys and values that were cut from a product with weights side by side.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::Facts;
use super::constants::constant_axes;
use super::peel::Action;
use super::step::{Kind, Step};
use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, replaced};
use crate::graph::{Graph, Value};
use crate::ops::prim::{Contract, Map, View};
use crate::ops::{Expr, Number, Prim, Scalar, Term};
use crate::tensor::{DType, Ranges};

/// Elements of a value from one place along an axis to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// the value
    pub product: Value,
    axis: usize,
    first: i64,
    last: i64,
}

/// For every node, the views of its first result.
pub(super) struct Views(FxHashMap<usize, SmallVec<[usize; 3]>>);

impl Views {
    pub(super) fn of(graph: &Graph, facts: &Facts) -> Views {
        let mut views: FxHashMap<usize, SmallVec<[usize; 3]>> = FxHashMap::default();
        for (id, node) in graph.nodes().iter().enumerate().filter(|(id, _)| facts.is_live(*id)) {
            if let Prim::View(_) = node.prim() {
                views.entry(node.args()[0].node()).or_default().push(id);
            }
        }
        Views(views)
    }

    /// The part of a product with weights, perhaps plus a constant, that a view with one reader sees and that nobody else does. What scales
    /// it can go into the weights.
    pub(super) fn part(&self, graph: &Graph, facts: &Facts, view: Value) -> Option<Part> {
        let Prim::View(own) = graph.node_of(view).prim() else { return None };
        let product = graph.node_of(view).args()[0];
        let readers = self.0.get(&product.node())?;
        let is_seen = facts.readers(product.node()) as usize == readers.len() && readers.len() > 1;
        if !is_seen || facts.readers(view.node()) != 1 || readers.len() > MOST_READERS || product.port() != 0 {
            return None;
        }
        let others: SmallVec<[&View; 3]> =
            readers.iter().filter(|id| **id != view.node()).map(|id| seen(graph, *id)).collect();
        let rank = graph.ty(product).shape.rank();
        (0..rank).find_map(|axis| {
            let (first, last) = range(own, axis)?;
            let is_apart = |other: &&View| range(other, axis).is_some_and(|(low, high)| high < first || last < low);
            let is_alone = others.iter().all(is_apart) && is_of_weights(graph, facts, product, axis);
            is_alone.then_some(Part { product, axis, first, last })
        })
    }
}

/// More views of a product than this are none of queries, keys and values.
const MOST_READERS: usize = 16;

fn seen(graph: &Graph, id: usize) -> &View {
    match graph.nodes()[id].prim() {
        Prim::View(view) => view,
        other => unreachable!("{} is listed as a view", other.name()),
    }
}

/// The first and the last coordinate that a view reads along an axis.
fn range(view: &View, axis: usize) -> Option<(i64, i64)> {
    let bounds = Ranges::of(view.shape.dims()).bounds(&view.map[axis])?;
    bounds.low.as_int().zip(bounds.high.as_int()).filter(|_| view.guard.is_empty())
}

/// Whether a value is a product with weights that vary along an axis of it, perhaps plus a constant, that nobody else reads without it.
fn is_of_weights(graph: &Graph, facts: &Facts, value: Value, axis: usize) -> bool {
    product_with_weights(graph, facts, value)
        .is_some_and(|(row, operand)| [&row.a, &row.b][operand].contains(&row.out[axis]))
}

/// The product with weights that a value is, perhaps plus a constant, and which of its operands they are; nobody else reads it without the
/// constant.
pub(super) fn product_with_weights<'g>(graph: &'g Graph, facts: &Facts, value: Value) -> Option<(&'g Contract, usize)> {
    let step = Step::of(graph, value);
    let core = match step.kind(graph) {
        Kind::Call(Scalar::Add, operands) => {
            let is_constant = |step: Step| constant_axes(graph, facts, step).is_some();
            match (is_constant(operands[0]), is_constant(operands[1])) {
                (false, true) => operands[0],
                (true, false) => operands[1],
                _ => return None,
            }
        }
        _ => step,
    };
    let Kind::Value(product) = core.kind(graph) else { return None };
    let node = graph.node_of(product);
    let Prim::Contract(row) = node.prim() else { return None };
    let weights = (0..2).find(|k| facts.is_constant(node.args()[*k].node()))?;
    (product == value || facts.readers(product.node()) == 1).then_some((row, weights))
}

impl Part {
    /// The product with the part of it scaled by a number. What it is multiplied by follows from coordinates, and is 1 elsewhere.
    pub(super) fn scaled(
        &self,
        graph: &Graph,
        rebuild: &mut Rebuild<'_>,
        action: Action,
        number: &Expr,
    ) -> Result<Option<Values>> {
        let node = graph.node_of(self.product);
        let ty = node.types()[0].clone();
        let args: SmallVec<[Value; 3]> = node.args().iter().map(|arg| rebuild.moved(*arg)).collect();
        let product = rebuild.keep(node, &args)?;
        let table = Expr::build(&[], |scope, _| {
            let int = |n: i64| scope.constant(DType::I64, Number::Int(n));
            let number = number.inline(scope, &[]).cast(ty.dtype);
            let one = scope.one(number);
            let factor = if action == Action::Over { one / number } else { number };
            let at = scope.coord(self.axis);
            let inside: Term<'_> = at.lt(int(self.last + 1)).select(factor, one);
            at.lt(int(self.first)).select(one, inside)
        });
        let table = rebuild.add(Map { expr: table, shape: ty.shape.clone() }, &[])?;
        let times = Expr::build(&[ty.dtype, ty.dtype], |_, x| x[0] * x[1]);
        replaced(rebuild.add(Map { expr: times, shape: ty.shape }, &[product, table])?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Builder;
    use crate::ops::prim::Monoid;
    use crate::passes::{Context, run_passes};
    use crate::reference::{self, evaluate};
    use crate::rewrites::{Permit, apply_placements, apply_rewrites};
    use crate::tensor::{Literal, Shape};
    use rustc_hash::FxHashMap;
    use std::sync::Arc;

    /// Attention of queries, keys and values cut from one product; perhaps something else reads all of it.
    fn attention(is_read: bool) -> Graph {
        let b = Builder::new("attention");
        let x = b.input("x", DType::F32, Shape::new([6usize, 4]));
        let numbers = |count: usize| (0..count).map(|k| (k % 7) as f64 * 0.25 - 0.7).collect::<Vec<_>>();
        let weights = b.constant(Literal::from_f64s(DType::F32, [4, 12], &numbers(48)).unwrap());
        let bias = b.constant(Literal::from_f64s(DType::F32, [12], &numbers(12)).unwrap());
        let all = x.matmul(weights) + bias;
        let part = |k: i64| all.slice(1, 4 * k, 4i64, 1);
        let scores = part(0).matmul(part(1).transpose()) * 0.5;
        let e = (scores - scores.reduce_keep(Monoid::Max, &[1])).exp();
        b.output("y", (e / e.sum(&[1])).matmul(part(2)));
        if is_read {
            b.output("all", all);
        }
        b.finish().unwrap()
    }

    #[test]
    fn queries_are_scaled_in_the_weights_of_one_product() {
        for is_read in [false, true] {
            let context = Context::default();
            let graph = attention(is_read);
            let plain = run_passes(graph.clone(), &context, &mut |_| {}).unwrap();
            let plain = apply_rewrites(plain, &context, &mut Permit::everything(), &mut |_| {}).unwrap();
            let placed = apply_placements(plain.clone(), &context, &mut Permit::everything(), &mut |_| {}).unwrap();
            let maps = |graph: &Graph| graph.nodes().iter().filter(|n| matches!(n.prim(), Prim::Map(_))).count();
            assert_eq!(maps(&placed) < maps(&plain), !is_read, "{placed}");
            let values: Vec<f64> = (0..24).map(|k| (k % 5) as f64 * 0.3 - 0.5).collect();
            let literal = Literal::from_f64s(DType::F32, [6, 4], &values).unwrap();
            let inputs: FxHashMap<Arc<str>, Literal> = [(Arc::from("x"), literal)].into_iter().collect();
            let of = |graph: &Graph| evaluate(graph, &inputs, &reference::Options::default()).unwrap();
            for (a, b) in of(&graph).iter().zip(&of(&placed)) {
                assert!((0..a.count()).all(|k| (a.float(k) - b.float(k)).abs() < 1e-5), "{placed}");
            }
        }
    }
}
