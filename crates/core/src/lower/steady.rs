//! Streamed folds that bear a running result which is not finite yet.
//!
//! Where a mask hides the first pieces of a row, its running maximum is −∞ until an element shows. Elements of those pieces
//! would be `exp(−∞ + ∞)`, NaN, and stay in the sums, though the row as a whole is fine. Therefore elements read 0 in the
//! place of a running result that is not finite: they are 0 then, as they are in the end. So they do where they read the logarithm of a
//! running sum, which is 0 so far. A row whose final result is not finite is NaN when it is folded at once; so that it still is, what
//! reads its sums adds `0 · r`. But where elements read 0 anyway, as those of a LogSumExp do, and of a row without elements, sums are 0.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::draft::{Draft, Leaf, LeafOp, Place, Sink, note_axes};
use super::settle::copy_term;
use super::stream::{Follows, Read, reading, reads_stream};
use crate::ops::{Number, Scalar, Scope, Term};
use crate::tensor::{DType, Dim};
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
            _ if self.is_followed(k) => self.finite(k, new).place(),
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

    /// Whether a fold along the stream follows this one.
    fn is_followed(&self, leaf: usize) -> bool {
        self.follows.iter().any(|f| f.on == leaf)
    }

    /// What is read of a fold's running result where it is finite, otherwise 0: a value of its own, since it does not vary along the stream.
    fn finite(&mut self, fold: usize, read: Term<'s>) -> Term<'s> {
        let [infinity, zero] = [f64::INFINITY, 0.0].map(|x| self.scope.float(read, x));
        let finite = read.apply(Scalar::Abs).lt(infinity).select(read, zero);
        let axes = self.leaves[self.moved[fold]].axes;
        self.push(Leaf { op: LeafOp::Let { arg: finite.place() }, dtype: finite.dtype(), axes })
    }

    /// What reads a fold in the end: NaN where a running result that it followed is not finite.
    fn settled(&self, fold: usize, new: Term<'s>) -> Term<'s> {
        let followed = self.follows.iter().filter(|f| f.fold == fold && f.read != Read::Guarded);
        followed.fold(new, |total, f| {
            let running = self.scope.argument(self.moved[f.on], self.draft.leaves[f.on].dtype);
            let read = if f.read == Read::Logarithm { running.apply(Scalar::Log) } else { running };
            total + self.nothing(read).cast(total.dtype())
        })
    }

    /// 0 where what was read of a running result is finite, or there were no elements to read it, otherwise NaN.
    fn nothing(&self, read: Term<'s>) -> Term<'s> {
        let zero = self.scope.float(read, 0.0);
        let extents = self.draft.axes.iter().enumerate().filter(|(axis, _)| self.stream.contains(*axis));
        let length = extents.map(|(_, extent)| extent.clone()).product::<Dim>();
        if (&length - 1).is_nonnegative() {
            return read * zero;
        }
        let none = self.scope.constant(DType::I64, Number::Int(0));
        none.lt(self.scope.index(&length)).select(read * zero, zero)
    }

    fn is_streamed(&self, place: Place) -> bool {
        !self.draft.axes_of(place).common(self.stream).is_empty()
    }

    fn operand(&mut self, place: Place) -> Place {
        self.copy(place, self.is_streamed(place))
    }

    fn copy(&mut self, place: Place, inside: bool) -> Place {
        if inside {
            self.note_readings(place);
        }
        let copied = if inside { &mut self.inside } else { &mut self.outside };
        copy_term(&self.draft.scope, self.scope, place, copied)
    }

    /// Notes what elements read instead of what they read of running results.
    fn note_readings(&mut self, place: Place) {
        let (mut todo, mut seen) = (vec![place], FxHashSet::default());
        while let Some(next) = todo.pop() {
            if !seen.insert(next) || self.inside.contains_key(&next) {
                continue;
            }
            let instead = reading(self.draft, next).filter(|(fold, _)| self.is_followed(*fold)).map(|(fold, read)| {
                let dtype = self.draft.leaves[fold].dtype;
                let running = self.scope.argument(self.moved[fold], dtype);
                match read {
                    Read::Logarithm => self.finite(fold, running.apply(Scalar::Log)).place(),
                    _ => self.inside[&self.draft.scope.argument(fold, dtype).place()],
                }
            });
            match instead {
                Some(instead) => _ = self.inside.insert(next, instead),
                None => todo.extend(self.draft.scope.term(next).operands().iter().map(|o| o.place())),
            }
        }
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

    /// What becomes of scores before they are multiplied with the values.
    #[derive(Clone, Copy)]
    enum Weights {
        /// the sum of a row divides the product
        Softmax,
        /// … unless it is no number
        Guarded,
        /// LogSumExp, which is stored, too, is subtracted from scores; its maximum is read where it is finite
        LogSumExp,
    }

    /// Attention with an additive mask.
    fn attention(weights: Weights) -> Graph {
        let b = Builder::new("attention");
        let input = |name: &str, sizes: [usize; 2]| b.input(name, DType::F32, Shape::new(sizes));
        let (q, k, v) = (input("q", [ROWS, WIDTH]), input("k", [WIDTH, KEYS]), input("v", [KEYS, WIDTH]));
        let x = q.contract("nd,dm->nm", k) * 0.5 + input("mask", [ROWS, KEYS]);
        let most = x.reduce_keep(Monoid::Max, &[1]);
        if let Weights::LogSumExp = weights {
            let most = most.abs().lt(f64::INFINITY).select(most, 0.0);
            let log = (x - most).exp().reduce_keep(Monoid::Sum, &[1]).log() + most;
            b.output("log", log);
            b.output("y", (x - log).exp().contract("nm,md->nd", v));
        } else {
            let e = (x - most).exp();
            let (sum, product) = (e.sum(&[1]), e.contract("nm,md->nd", v));
            let y = product / sum;
            let shape = y.shape().unwrap();
            let zero = b.scalar(DType::F32, 0.0).expand(shape.clone());
            b.output("y", if let Weights::Guarded = weights { sum.is_nan().expand(shape).select(zero, y) } else { y });
        }
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
        for weights in [Weights::Softmax, Weights::Guarded, Weights::LogSumExp] {
            let graph = attention(weights);
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
            let expected = reference::evaluate(&graph, &inputs, &reference::Options::default()).unwrap();
            let options = interp::Options { folds: Folds::AsScheduled, ..interp::Options::default() };
            let found = interp::run(&kernel, &buffers, &Default::default(), &options).unwrap();
            for (found, expected) in found.iter().zip(&expected) {
                for (k, value) in found.to_floats().iter().enumerate() {
                    let wanted = expected.float(k);
                    let close = (value - wanted).abs() < 1e-5 || *value == wanted || value.is_nan() && wanted.is_nan();
                    assert!(close, "element {k}: {value} {wanted}\n{kernel}");
                }
            }
        }
    }
}
