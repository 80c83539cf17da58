//! Kernels that somebody wrote, as drafts: so that one without a schedule can have the one that a plan would give it.

use smallvec::SmallVec;

use super::draft::{Draft, Leaf, LeafOp, Place, Sink, note_axes};
use crate::graph::Value;
use crate::ops::{Expr, Scope, Term};
use crate::tile::{Kernel, Op, Param, StepId};

impl Draft {
    /// The draft of a kernel: what its steps compute, as they were written, in no order of loops. A value that several steps read keeps its
    /// own value. None for what no group of nodes becomes: outputs that are stored in parts, tensors that do not lie row by row, draws at
    /// places that are read.
    pub fn of_kernel(kernel: &Kernel) -> Option<Draft> {
        let is_plain = |param: &Param| *param == Param::row_major(param.ty.clone());
        if kernel.stores.len() != kernel.outputs.len() || !kernel.inputs.iter().chain(&kernel.outputs).all(is_plain) {
            return None;
        }
        let scope = Scope::default();
        let mut work = Work { kernel, scope: &scope, readers: readers(kernel), leaves: Vec::new(), terms: Vec::new() };
        for id in 0..kernel.steps.len() {
            work.step(id)?;
        }
        let Work { leaves, terms, .. } = work;
        // There is no graph: a tensor's number is all that tells it from others.
        let value = |k: usize| Value::new(k, 0);
        let count = kernel.inputs.len();
        let inputs = kernel.inputs.iter().enumerate().map(|(k, param)| (value(k), param.ty.clone())).collect();
        let mut sinks: Vec<(usize, Sink)> = Vec::with_capacity(kernel.stores.len());
        for store in &kernel.stores {
            let (ty, index) = (kernel.outputs[store.output].ty.clone(), store.index.clone());
            let (term, axes) = (terms[store.value.index()], store.axes());
            sinks.push((store.output, Sink { value: value(count + store.output), ty, index, term, axes }));
        }
        sinks.sort_by_key(|(output, _)| *output);
        if !sinks.iter().map(|(output, _)| *output).eq(0..kernel.outputs.len()) {
            return None;
        }
        let mut term_axes = Vec::new();
        note_axes(&scope, &leaves, &mut term_axes);
        let sinks = sinks.into_iter().map(|(_, sink)| sink).collect();
        Some(Draft { axes: kernel.axes.clone(), inputs, leaves, scope, sinks, term_axes })
    }
}

/// How many steps and stores read each step.
fn readers(kernel: &Kernel) -> Vec<usize> {
    let mut readers = vec![0; kernel.steps.len()];
    let read = kernel.steps.iter().flat_map(|step| step.op.operands());
    let all = read.chain(kernel.stores.iter().map(|store| store.value));
    all.for_each(|step| readers[step.index()] += 1);
    readers
}

struct Work<'k, 's> {
    kernel: &'k Kernel,
    scope: &'s Scope,
    readers: Vec<usize>,
    leaves: Vec<Leaf>,
    /// the term of every step so far
    terms: Vec<Place>,
}

impl<'s> Work<'_, 's> {
    fn step(&mut self, id: usize) -> Option<()> {
        let step = &self.kernel.steps[id];
        let place = |step: &StepId| self.terms[step.index()];
        let op = match &step.op {
            Op::Map { expr, args } => {
                let args: SmallVec<[Term<'s>; 3]> = args.iter().map(|arg| self.scope.term(place(arg))).collect();
                let term = expr.inline(self.scope, &args);
                if self.readers[id] < 2 || is_light(expr) {
                    self.terms.push(term.place());
                    return Some(());
                }
                LeafOp::Let { arg: term.place() }
            }
            Op::Load { input, index, guard, fill, reads } => LeafOp::Load {
                input: *input,
                index: index.clone(),
                guard: guard.clone(),
                fill: *fill,
                reads: reads.iter().map(place).collect(),
            },
            Op::Random { stream, seed, index, reads } if reads.is_empty() => {
                LeafOp::Random { stream: *stream, seed: place(seed), index: index.clone() }
            }
            Op::Random { .. } => return None,
            Op::Reduce { monoid, over, arg } => LeafOp::Reduce { monoid: *monoid, over: *over, arg: place(arg) },
            Op::Prefix { monoid, axis, exclusive, arg } => {
                LeafOp::Prefix { monoid: *monoid, axis: *axis, exclusive: *exclusive, arg: place(arg) }
            }
            Op::Dot { over, a, b, accumulator } => {
                LeafOp::Dot { over: *over, a: place(a), b: place(b), accumulator: *accumulator }
            }
        };
        self.leaves.push(Leaf { op, dtype: step.dtype, axes: step.axes });
        self.terms.push(self.scope.argument(self.leaves.len() - 1, step.dtype).place());
        Some(())
    }
}

/// Whether an expression is no work that anybody would keep: a conversion, or a number.
fn is_light(expr: &Expr) -> bool {
    expr.is_cast() || expr.args().is_empty()
}
