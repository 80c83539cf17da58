//! Streamed folds that bear a running result which is not finite yet.
//!
//! Where a mask hides the first pieces of a row, its running maximum is −∞ until an element shows. Elements of those pieces
//! would be `exp(−∞ + ∞)`, NaN, and stay in the sums, though the row as a whole is fine. Therefore elements read 0 in the
//! place of a running result that is not finite: they are 0 then, as they are in the end. A row whose final result is not
//! finite is NaN when it is folded at once; so that it still is, what reads its sums adds `0 · r`.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::draft::{Draft, Leaf, LeafOp, Place, Sink, note_axes};
use super::settle::copy_term;
use super::stream::{Follows, reads_stream};
use crate::ops::{Scalar, Scope, Term};
use crate::tile::AxisSet;

/// The draft with steady folds, which computes the same, and for every leaf its new number.
pub(super) fn steadied(draft: &Draft, stream: AxisSet, follows: &[Follows]) -> (Draft, Vec<usize>) {
    let scope = Scope::default();
    let mut work = Work {
        draft,
        stream,
        follows,
        scope: &scope,
        inside: FxHashMap::default(),
        outside: FxHashMap::default(),
        leaves: Vec::new(),
        moved: Vec::new(),
        axes: Vec::new(),
    };
    for k in 0..draft.leaves.len() {
        work.leaf(k);
    }
    let sinks = draft.sinks.iter().map(|sink| Sink { term: work.operand(sink.term), ..sink.clone() }).collect();
    note_axes(&scope, &work.leaves, &mut work.axes);
    let Work { leaves, moved, axes: term_axes, .. } = work;
    let (axes, inputs) = (draft.axes.clone(), draft.inputs.clone());
    (Draft { axes, inputs, leaves, scope, sinks, term_axes }, moved)
}

struct Work<'d, 's> {
    draft: &'d Draft,
    stream: AxisSet,
    follows: &'d [Follows],
    scope: &'s Scope,
    /// for every old term, the new one where it is part of an element of the stream
    inside: FxHashMap<Place, Place>,
    /// for every old term, the new one elsewhere
    outside: FxHashMap<Place, Place>,
    leaves: Vec<Leaf>,
    moved: Vec<usize>,
    axes: Vec<AxisSet>,
}

impl<'s> Work<'_, 's> {
    fn leaf(&mut self, k: usize) {
        let leaf = &self.draft.leaves[k];
        let operands: SmallVec<[Place; 2]> = leaf.op.operands().iter().map(|place| self.operand(*place)).collect();
        let new = self.push(Leaf { op: leaf.op.with_operands(&operands), ..leaf.clone() });
        self.moved.push(self.leaves.len() - 1);
        let old = self.draft.scope.argument(k, leaf.dtype).place();
        let inside = match leaf.op {
            // Elements look through it to the running result.
            LeafOp::Let { arg } if !self.is_streamed(arg) && reads_stream(self.draft, arg, self.stream) => {
                self.copy(arg, true)
            }
            _ if self.follows.iter().any(|(_, on, _)| *on == k) => self.finite(new).place(),
            _ => new.place(),
        };
        self.inside.insert(old, inside);
        let outside = self.settled(k, new).place();
        self.outside.insert(old, outside);
    }

    fn push(&mut self, leaf: Leaf) -> Term<'s> {
        let dtype = leaf.dtype;
        self.leaves.push(leaf);
        self.scope.argument(self.leaves.len() - 1, dtype)
    }

    /// A running result where it is finite, otherwise 0: a value of its own, since it does not vary along the stream.
    fn finite(&mut self, running: Term<'s>) -> Term<'s> {
        let [infinity, zero] = [f64::INFINITY, 0.0].map(|x| self.scope.float(running, x));
        let finite = running.apply(Scalar::Abs).lt(infinity).select(running, zero);
        let axes = self.leaves[self.leaves.len() - 1].axes;
        self.push(Leaf { op: LeafOp::Let { arg: finite.place() }, dtype: finite.dtype(), axes })
    }

    /// What reads a fold in the end: NaN where a running result that it followed is not finite.
    fn settled(&self, fold: usize, new: Term<'s>) -> Term<'s> {
        let followed = self.follows.iter().filter(|(f, ..)| *f == fold);
        followed.fold(new, |total, (_, on, _)| {
            let running = self.scope.argument(self.moved[*on], self.draft.leaves[*on].dtype);
            total + (running * self.scope.float(running, 0.0)).cast(total.dtype())
        })
    }

    fn is_streamed(&self, place: Place) -> bool {
        !self.draft.axes_of(place).common(self.stream).is_empty()
    }

    fn operand(&mut self, place: Place) -> Place {
        self.copy(place, self.is_streamed(place))
    }

    fn copy(&mut self, place: Place, inside: bool) -> Place {
        let copied = if inside { &mut self.inside } else { &mut self.outside };
        copy_term(&self.draft.scope, self.scope, place, copied)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustc_hash::FxHashMap;

    use crate::device::DeviceSpec;
    use crate::graph::{Builder, Graph};
    use crate::lower::{Group, Hints, Limits, lower, write};
    use crate::ops::prim::Monoid;
    use crate::passes::{Context, Numerics, run_passes};
    use crate::reference::{self, Buffer};
    use crate::tensor::{DType, Literal, Shape};
    use crate::tile::interp::{self, Folds};
    use crate::tile::{Kernel, Schedule};

    const ROWS: usize = 5;
    const KEYS: usize = 12;
    const WIDTH: usize = 4;

    /// Attention with an additive mask; the sum of a row divides the product.
    fn attention(guarded: bool) -> Graph {
        let b = Builder::new("attention");
        let input = |name: &str, sizes: [usize; 2]| b.input(name, DType::F32, Shape::new(sizes));
        let (q, k, v) = (input("q", [ROWS, WIDTH]), input("k", [WIDTH, KEYS]), input("v", [KEYS, WIDTH]));
        let x = q.contract("nd,dm->nm", k) * 0.5 + input("mask", [ROWS, KEYS]);
        let e = (x - x.reduce_keep(Monoid::Max, &[1])).exp();
        let (sum, product) = (e.sum(&[1]), e.contract("nm,md->nd", v));
        let y = product / sum;
        let shape = y.shape().unwrap();
        let zero = b.scalar(DType::F32, 0.0).expand(shape.clone());
        b.output("y", if guarded { sum.is_nan().expand(shape).select(zero, y) } else { y });
        run_passes(b.finish().unwrap(), &Context::default(), &mut |_| {}).unwrap()
    }

    /// The kernel of the graph, and which inputs it takes.
    fn kernel(graph: &Graph) -> (Kernel, Vec<Arc<str>>) {
        let members: Vec<usize> = (0..graph.nodes().len()).filter(|n| !graph.nodes()[*n].args().is_empty()).collect();
        let outputs: Vec<_> = graph.outputs().iter().map(|o| o.value).collect();
        let draft = lower(&Group { graph, members: &members, outputs: &outputs }).unwrap();
        let mut limits = Limits::of(DeviceSpec::find("h100").unwrap(), DType::F32);
        limits.stream_tile.columns = 3;
        let (draft, kernel) = write(draft, &limits, &Hints::default(), Numerics::Default).unwrap();
        (kernel, draft.inputs.iter().map(|(value, _)| graph.input_name(*value).clone()).collect())
    }

    #[test]
    fn rows_that_begin_masked_are_streamed_as_they_are_folded_at_once() {
        for guarded in [false, true] {
            let graph = attention(guarded);
            let (kernel, names) = kernel(&graph);
            assert!(matches!(kernel.schedule, Schedule::Attention { .. }), "{kernel}");
            // Rows: nothing masked, all but the last masked, all masked, +∞, NaN.
            let mask = |i: usize| match (i / KEYS, i % KEYS) {
                (1, 0..10) | (2, _) => f64::NEG_INFINITY,
                (3, 7) => f64::INFINITY,
                (4, 9) => f64::NAN,
                _ => 0.0,
            };
            let mut inputs: FxHashMap<Arc<str>, Literal> = FxHashMap::default();
            for input in graph.inputs() {
                let name = graph.input_name(*input).clone();
                let sizes: Vec<usize> =
                    graph.ty(*input).shape.dims().iter().map(|d| d.as_int().unwrap() as usize).collect();
                let everyday = |i: usize| ((i * 7 + usize::from(name.as_bytes()[0])) % 11) as f64 * 0.3 - 1.5;
                let value = |i: usize| if name.as_ref() == "mask" { mask(i) } else { everyday(i) };
                let values: Vec<f64> = (0..sizes.iter().product()).map(value).collect();
                let literal = Literal::from_f64s(DType::F32, sizes, &values).unwrap();
                inputs.insert(name, literal);
            }
            let buffers: Vec<Buffer> = names.iter().map(|name| Buffer::from_literal(&inputs[name])).collect();
            let expected = reference::evaluate(&graph, &inputs, &reference::Options::default()).unwrap().remove(0);
            let options = interp::Options { folds: Folds::AsScheduled, ..interp::Options::default() };
            let found = interp::run(&kernel, &buffers, &Default::default(), &options).unwrap().remove(0);
            for (k, value) in found.to_floats().iter().enumerate() {
                let close = (value - expected.float(k)).abs() < 1e-5 || value.is_nan() && expected.float(k).is_nan();
                assert!(close, "row {}: {value} {}", k / WIDTH, expected.float(k));
            }
        }
    }
}
