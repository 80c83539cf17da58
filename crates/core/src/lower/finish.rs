//! From a draft with roles to a kernel.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::classify::{Limits, Roles};
use super::draft::{Draft, LeafOp, Place};
use super::refusal::Refusal;
use super::steady::steadied;
use super::stream::{Follows, corrections};
use crate::ops::{Expr, ExprNode, Term};
use crate::passes::Numerics;
use crate::tile::{Chain, Correction, Kernel, Op, Param, Rounding, Schedule, Step, StepId, Store};

/// The kernel of a draft: leaves become steps in their order, the arithmetic between them one expression for every end,
/// except that what several ends share becomes a step of its own. Refused where folds that are streamed cannot follow each
/// other.
pub fn finish(draft: &Draft, roles: &Roles, limits: &Limits, numerics: Numerics) -> Result<Kernel, Refusal> {
    let rounding = if numerics == Numerics::Strict { Rounding::Every } else { Rounding::Ends };
    let follows = corrections(draft, roles, numerics)?;
    let Roles::Attention { first, second, stream, .. } = roles else {
        return Ok(written(draft, roles, limits, rounding, Vec::new()));
    };
    let (steady, moved) = steadied(draft, *stream, &follows);
    let follows = follows.into_iter().map(|f| Follows { fold: moved[f.fold], on: moved[f.on], ..f }).collect();
    let places = (moved[*first], moved[*second]);
    let mut roles = roles.clone();
    if let Roles::Attention { first, second, .. } = &mut roles {
        (*first, *second) = places;
    }
    Ok(written(&steady, &roles, limits, rounding, follows))
}

/// The kernel of a draft with roles, and how streamed folds follow each other.
fn written(draft: &Draft, roles: &Roles, limits: &Limits, rounding: Rounding, follows: Vec<Follows>) -> Kernel {
    let mut writer = Writer { draft, shared: shared_terms(draft), steps: Vec::new(), written: FxHashMap::default() };
    let mut leaves: Vec<StepId> = Vec::with_capacity(draft.leaves.len());
    for (k, leaf) in draft.leaves.iter().enumerate() {
        let id = match &leaf.op {
            LeafOp::Let { arg } => writer.term(*arg),
            other => {
                let op = writer.leaf(other);
                writer.push(Step { op, dtype: leaf.dtype, axes: leaf.axes })
            }
        };
        let place = draft.scope.argument(k, leaf.dtype).place();
        writer.written.insert(place, id);
        leaves.push(id);
    }
    let mut stores = Vec::with_capacity(draft.sinks.len());
    for (output, sink) in draft.sinks.iter().enumerate() {
        stores.push(Store { output, index: sink.index.clone(), value: writer.term(sink.term) });
    }
    let param = |ty: &crate::tensor::TensorType| Param::row_major(ty.clone());
    let mut schedule = schedule(roles, limits, &leaves);
    if let Schedule::Attention { corrections, .. } = &mut schedule {
        let correction = |f: Follows| Correction { fold: leaves[f.fold], on: leaves[f.on], factor: f.factor };
        corrections.extend(follows.into_iter().map(correction));
    }
    Kernel {
        axes: draft.axes.clone(),
        inputs: draft.inputs.iter().map(|(_, ty)| param(ty)).collect(),
        outputs: draft.sinks.iter().map(|s| param(&s.ty)).collect(),
        steps: writer.steps,
        stores,
        schedule,
        rounding,
    }
}

fn schedule(roles: &Roles, limits: &Limits, leaves: &[StepId]) -> Schedule {
    match roles {
        Roles::Map => Schedule::Map,
        Roles::Row { along, placement } => Schedule::Row { along: *along, placement: *placement },
        Roles::Column { across, along, parts } => Schedule::Column { across: *across, along: *along, parts: *parts },
        Roles::Contract { dots, rows, columns, sum, whole_rows, .. } => Schedule::Contract {
            dots: dots.iter().map(|d| leaves[*d]).collect(),
            rows: *rows,
            columns: *columns,
            sum: *sum,
            whole_rows: *whole_rows,
            tile: limits.tile,
        },
        Roles::Attention { first, second, rows, stream, inner, columns } => Schedule::Attention {
            chain: Chain {
                first: leaves[*first],
                second: leaves[*second],
                rows: *rows,
                stream: *stream,
                inner: *inner,
                columns: *columns,
            },
            corrections: Vec::new(),
            tile: limits.stream_tile,
            parts: limits.stream_parts,
        },
    }
}

/// Terms that several ends read and that are worth a step of their own: the largest such terms.
fn shared_terms(draft: &Draft) -> FxHashSet<Place> {
    let mut ends: Vec<Place> = draft.ends().collect();
    ends.sort_unstable();
    ends.dedup();
    if ends.len() > 128 {
        return FxHashSet::default();
    }
    draft.scope.with_nodes(|nodes| {
        let mut readers: Vec<u128> = vec![0; nodes.len()];
        for (bit, end) in ends.iter().enumerate() {
            let mut todo = vec![*end];
            while let Some(place) = todo.pop() {
                let mine = 1u128 << bit;
                if readers[place as usize] & mine == 0 {
                    readers[place as usize] |= mine;
                    todo.extend(nodes[place as usize].0.operands());
                }
            }
        }
        // A term whose reader is shared by the same ends is part of that.
        let mut inner = vec![false; nodes.len()];
        for (place, (node, _)) in nodes.iter().enumerate().filter(|(place, _)| readers[*place] != 0) {
            for operand in node.operands().iter().map(|operand| *operand as usize) {
                inner[operand] |= readers[operand] == readers[place];
            }
        }
        let is_shared = |place: usize| {
            let is_work = |place: usize| matches!(nodes[place].0, ExprNode::Apply(..));
            // Work that is rounded before anybody reads it is one step with its rounding.
            let works = match nodes[place].0 {
                ExprNode::Cast(from) => is_work(from as usize) && inner[from as usize],
                _ => is_work(place),
            };
            works && readers[place].count_ones() > 1 && !inner[place]
        };
        (0..nodes.len()).filter(|p| is_shared(*p)).map(|p| p as Place).collect()
    })
}

struct Writer<'d> {
    draft: &'d Draft,
    shared: FxHashSet<Place>,
    steps: Vec<Step>,
    written: FxHashMap<Place, StepId>,
}

impl Writer<'_> {
    fn push(&mut self, step: Step) -> StepId {
        self.steps.push(step);
        StepId(self.steps.len() as u32 - 1)
    }

    fn leaf(&mut self, op: &LeafOp) -> Op {
        match op {
            LeafOp::Load { input, index, guard, fill, reads } => Op::Load {
                input: *input,
                index: index.clone(),
                guard: guard.clone(),
                fill: *fill,
                reads: reads.iter().map(|r| self.term(*r)).collect(),
            },
            LeafOp::Random { stream, seed, index } => {
                Op::Random { stream: *stream, seed: self.term(*seed), index: index.clone(), reads: SmallVec::new() }
            }
            LeafOp::Let { .. } => unreachable!("a term is no operation of its own"),
            LeafOp::Reduce { monoid, over, arg } => Op::Reduce { monoid: *monoid, over: *over, arg: self.term(*arg) },
            LeafOp::Prefix { monoid, axis, exclusive, arg } => {
                Op::Prefix { monoid: *monoid, axis: *axis, exclusive: *exclusive, arg: self.term(*arg) }
            }
            LeafOp::Dot { over, a, b, accumulator } => {
                Op::Dot { over: *over, a: self.term(*a), b: self.term(*b), accumulator: *accumulator }
            }
        }
    }

    /// The step that computes a term.
    fn term(&mut self, place: Place) -> StepId {
        if let Some(id) = self.written.get(&place) {
            return *id;
        }
        let scope = &self.draft.scope;
        let mut cut: Vec<Place> = Vec::new();
        let mut seen = FxHashSet::default();
        let mut todo = vec![place];
        while let Some(next) = todo.pop() {
            if !seen.insert(next) {
                continue;
            }
            let term = scope.term(next);
            let stops = next != place && (self.shared.contains(&next) || self.written.contains_key(&next));
            if stops || matches!(term.node(), ExprNode::Arg(_)) {
                cut.push(next);
            } else {
                todo.extend(term.operands().iter().rev().map(|t| t.place()));
            }
        }
        let args: SmallVec<[StepId; 3]> = cut.iter().map(|p| self.term(*p)).collect();
        let terms: Vec<Term<'_>> = cut.iter().map(|p| scope.term(*p)).collect();
        let root = scope.term(place);
        let step = Step {
            op: Op::Map { expr: Expr::of(root, &terms), args },
            dtype: root.dtype(),
            axes: self.draft.axes_of(place),
        };
        let id = self.push(step);
        self.written.insert(place, id);
        id
    }
}
