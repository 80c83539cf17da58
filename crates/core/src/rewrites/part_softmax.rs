//! Softmax with more in its sums than is read of it: attention sinks.
//!
//! Some models put a logit of every head beside those of the keys, and drop its probability. Written with a column more, the matrix of scores
//! has to be there as a whole; written as a bound of the maximum and an addend of the sum, it can be streamed. Streaming
//! wants a maximum of its own, so that the bound goes inside of it.

use rustc_hash::FxHashMap;

use super::peel::call;
use super::seen::{Fold, Seen};
use super::softmax::normalised;
use super::step::{Kind, Step};
use super::{Facts, Permit, Rewrite, Site, rebuilt_at};
use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, replaced};
use crate::graph::{Graph, Value};
use crate::ops::prim::{Concat, Map, Monoid, Reduce, View, identity_map};
use crate::ops::{Expr, Prim, Scalar};
use crate::passes::Tier;
use crate::tensor::{Dim, Ranges, Shape};

pub(super) const REWRITE: Rewrite = Rewrite {
    name: "part-softmax",
    doc: "A softmax of parts side by side of which one is read is that of the part, the others in its sums; bounds of its maximum go inside.",
    tier: Tier::Real,
    run,
};

/// In: any graph. Out: no view sees one part only of a softmax along a concat of parts of which the others have one element; no
/// shift of exponentials is the larger of a number of the row and the maximum of what is shifted.
fn run(graph: &Graph, facts: &Facts, permit: &mut Permit<'_>) -> Result<Option<Graph>> {
    let mut found: FxHashMap<usize, Found> = FxHashMap::default();
    for id in (0..graph.nodes().len()).filter(|id| facts.is_live(*id)) {
        facts.budget.check()?;
        for (at, site) in part(graph, id).map(|part| (id, Found::Part(part))).into_iter().chain(bounds(graph, id)) {
            if !found.contains_key(&at) && permit.allow(graph, site.site(at)) {
                found.insert(at, site);
            }
        }
    }
    rebuilt_at(graph, facts, &found, |rebuild, id, found| match found {
        Found::Part(part) => part.rebuilt(graph, rebuild, id),
        Found::Bound(bound) => bound.rebuilt(graph, rebuild),
    })
}

enum Found {
    Part(Part),
    Bound(Bound),
}

impl Found {
    fn site(&self, id: usize) -> Site {
        let (producer, what) = match self {
            Found::Part(part) => (part.concat, "a softmax has the other parts in its sums, not in its rows"),
            Found::Bound(bound) => (bound.reduce.node(), "a bound of a maximum goes inside of it"),
        };
        let zero = || Dim::int(0);
        let what = what.to_owned();
        Site {
            rule: REWRITE.name,
            producer,
            consumer: id,
            flops_saved: zero(),
            bytes_saved: zero(),
            is_sure: false,
            what,
        }
    }
}

/// A view of one part of a softmax.
struct Part {
    concat: usize,
    row: Concat,
    /// which part is seen
    seen: usize,
    /// the coordinates at which it is seen, counted from its beginning
    map: Vec<Dim>,
}

/// Concats of more parts are other things.
const MOST_PARTS: usize = 4;

fn part(graph: &Graph, id: usize) -> Option<Part> {
    let node = &graph.nodes()[id];
    let Prim::View(view) = node.prim() else { return None };
    let (e, _) = normalised(graph, Step::of(graph, node.args()[0]))?;
    let power = e.call::<1>(graph, Scalar::Exp)?;
    let [x, max] = power[0].call(graph, Scalar::Sub)?;
    let fold = Seen::at(graph, max).own_row(graph)?;
    let Kind::Value(value) = x.kind(graph) else { return None };
    let concat = graph.node_of(value);
    let Prim::Concat(row) = concat.prim() else { return None };
    let is_row = fold.axes == [row.axis] && graph.ty(value).dtype.is_float() && graph.ty(value).dtype.bits() >= 32;
    if !is_row || concat.args().len() > MOST_PARTS || !view.guard.is_empty() {
        return None;
    }
    let sizes: Vec<Dim> = concat.args().iter().map(|arg| graph.ty(*arg).shape[row.axis].clone()).collect();
    let ranges = Ranges::of(view.shape.dims());
    let inside = |k: usize| {
        let at = &view.map[row.axis] - sizes[..k].iter().cloned().sum::<Dim>();
        ranges.is_below(&at, &sizes[k]).then_some((k, at))
    };
    let (seen, at) = (0..sizes.len()).find_map(inside)?;
    let others_are_short = (0..sizes.len()).all(|k| k == seen || sizes[k].is(1));
    let mut map = view.map.clone();
    map[row.axis] = at;
    (others_are_short && !sizes[seen].is(1)).then(|| Part { concat: value.node(), row: row.clone(), seen, map })
}

impl Part {
    fn rebuilt(&self, graph: &Graph, rebuild: &mut Rebuild<'_>, id: usize) -> Result<Option<Values>> {
        let (axis, node) = (self.row.axis, &graph.nodes()[self.concat]);
        let parts: Vec<Value> = node.args().iter().map(|arg| rebuild.moved(*arg)).collect();
        let part = parts[self.seen];
        let others: Vec<Value> = (0..parts.len()).filter(|k| *k != self.seen).map(|k| parts[k]).collect();
        let (shape, one) = (rebuild.graph().ty(part).shape.clone(), rebuild.graph().ty(others[0]).shape.clone());
        let mut bounded = part;
        for other in &others {
            let everywhere = rebuild.add(View::new(shape.clone(), first_along(axis, shape.rank())), &[*other])?;
            bounded = call(rebuild, Scalar::Max, &[bounded, everywhere])?;
        }
        let max = rebuild.add(Reduce { monoid: Monoid::Max, axes: vec![axis] }, &[bounded])?;
        let e = exponential(rebuild, part, max, &shape, axis)?;
        let mut sum = rebuild.add(Reduce { monoid: Monoid::Sum, axes: vec![axis] }, &[e])?;
        for other in others {
            let other = exponential(rebuild, other, max, &one, axis)?;
            let other = rebuild.add(Reduce { monoid: Monoid::Sum, axes: vec![axis] }, &[other])?;
            sum = call(rebuild, Scalar::Add, &[sum, other])?;
        }
        let sum = rebuild.add(View::new(shape.clone(), without(axis, shape.rank())), &[sum])?;
        let probability = call(rebuild, Scalar::Div, &[e, sum])?;
        let view = View::new(graph.nodes()[id].types()[0].shape.clone(), self.map.clone());
        replaced(rebuild.add(view, &[probability])?)
    }
}

/// Coordinates with the first place of an axis.
fn first_along(axis: usize, rank: usize) -> Vec<Dim> {
    let mut map = identity_map(rank);
    map[axis] = Dim::int(0);
    map
}

/// Coordinates without an axis.
fn without(axis: usize, rank: usize) -> Vec<Dim> {
    (0..rank).filter(|k| *k != axis).map(Dim::axis).collect()
}

/// `exp(x − max)`, the maximum of every row.
fn exponential(rebuild: &mut Rebuild<'_>, x: Value, max: Value, shape: &Shape, axis: usize) -> Result<Value> {
    let max = rebuild.add(View::new(shape.clone(), without(axis, shape.rank())), &[max])?;
    let difference = call(rebuild, Scalar::Sub, &[x, max])?;
    call(rebuild, Scalar::Exp, &[difference])
}

/// The larger of a maximum and a number of its row.
struct Bound {
    /// the maximum
    reduce: Value,
    /// the number, at the coordinates of the maximum
    number: Step,
}

/// The bounds of maxima by which steps of a map shift exponentials, each with the node that it is.
fn bounds(graph: &Graph, id: usize) -> Vec<(usize, Found)> {
    let Prim::Map(row) = graph.nodes()[id].prim() else { return Vec::new() };
    let value = Value::new(id, 0);
    let steps = (0..row.expr.nodes().len() as u32).map(|position| Step::at(graph, value, position));
    steps.filter_map(|step| bound(graph, step)).collect()
}

fn bound(graph: &Graph, step: Step) -> Option<(usize, Found)> {
    let power = step.call::<1>(graph, Scalar::Exp)?;
    let [x, shift] = power[0].call(graph, Scalar::Sub)?;
    let seen = Seen::at(graph, shift).behind_views(graph);
    let [a, b] = seen.step.call(graph, Scalar::Max).filter(|_| seen.step.position(graph).is_none())?;
    let larger = |max: Step, number: Step| {
        let Kind::Value(reduce) = max.kind(graph) else { return None };
        let fold = Fold::of(graph, reduce)?;
        let is_own = fold.monoid == Monoid::Max && fold.step == x && max.shape(graph) == seen.step.shape(graph);
        is_own.then_some(Bound { reduce, number })
    };
    let found = larger(a, b).or_else(|| larger(b, a))?;
    Some((seen.step.node(), Found::Bound(found)))
}

impl Bound {
    fn rebuilt(&self, graph: &Graph, rebuild: &mut Rebuild<'_>) -> Result<Option<Values>> {
        let node = graph.node_of(self.reduce);
        let Prim::Reduce(row) = node.prim() else { return Ok(None) };
        let operand = rebuild.moved(node.args()[0]);
        let ty = rebuild.graph().ty(operand).clone();
        let number = self.number.rebuilt(graph, rebuild)?;
        let kept = (0..ty.shape.rank()).filter(|axis| !row.axes.contains(axis)).map(Dim::axis).collect();
        let everywhere = rebuild.add(View::new(ty.shape.clone(), kept), &[number])?;
        let larger = Expr::call(Scalar::Max, &[ty.dtype; 2])?;
        let bounded = rebuild.add(Map { expr: larger, shape: ty.shape }, &[operand, everywhere])?;
        replaced(rebuild.add(row.clone(), &[bounded])?)
    }
}
