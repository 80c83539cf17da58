//! One form for all drafts that compute the same.
//!
//! Arithmetic is brought into normal form; leaves and inputs are numbered in the order in which a walk from the stored
//! values meets them. What a leaf is (not when it was found) decides its place among the operands of a sum or product, so
//! that spellings of one computation become one kernel.

use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use smallvec::SmallVec;

use super::alike::told_apart;
use super::draft::{Draft, Leaf, LeafOp, Place, Sink};
use crate::graph::Value;
use crate::ops::normal::{Knowledge, LeafRank, Normalizer};
use crate::ops::prim::Monoid;
use crate::ops::{ExprNode, Scope, Term};
use crate::passes::Numerics;
use crate::tensor::{DType, TensorType};
use crate::tile::AxisSet;

/// The draft in one form. What it computes is the same, in real numbers; under strict numerics, bit by bit.
///
/// What is folded and read again afterwards (the scores of a softmax, the row of a norm) keeps its own value: algebra does
/// not look through it, so that what is subtracted from it cancels as it was meant to.
pub fn settle(draft: &Draft, numerics: Numerics) -> Draft {
    let scope = Scope::default();
    let mut work = Work::new(draft, numerics, &scope, &[]);
    let ends = work.ends();
    let Some(apart) = told_apart(&scope, &work.leaves, &work.ranks, &ends) else {
        return written(draft, &scope, &work.leaves, &ends);
    };
    let scope = Scope::default();
    let mut work = Work::new(draft, numerics, &scope, &apart);
    let ends = work.ends();
    written(draft, &scope, &work.leaves, &ends)
}

/// The settled leaves and terms that stored values need, numbered in the order in which they are met.
fn written(draft: &Draft, scope: &Scope, settled: &[Settled<'_>], ends: &[Place]) -> Draft {
    let fresh = Scope::default();
    let mut walk = Walk {
        draft,
        scope,
        settled,
        fresh: &fresh,
        placed: vec![None; settled.len()],
        copied: FxHashMap::default(),
        inputs: Vec::new(),
        leaves: Vec::new(),
        axes: Vec::new(),
    };
    let mut sinks = Vec::with_capacity(draft.sinks.len());
    for (sink, end) in draft.sinks.iter().zip(ends) {
        let term = walk.term(*end);
        sinks.push(Sink { term, ..sink.clone() });
    }
    walk.note_axes();
    let Walk { inputs, leaves, axes: term_axes, .. } = walk;
    Draft { axes: draft.axes.clone(), inputs, leaves, scope: fresh, sinks, term_axes }
}

/// A list of places.
type Places = SmallVec<[Place; 2]>;

/// The terms that are folded, perhaps converted, and read elsewhere too.
fn shared_places(draft: &Draft) -> FxHashSet<Place> {
    let mut ends: Vec<Place> = draft.ends().collect();
    ends.sort_unstable();
    let mut uses: FxHashMap<Place, usize> = FxHashMap::default();
    draft.scope.with_nodes(|nodes| {
        for end in &ends {
            let mut seen = FxHashSet::default();
            let mut todo = vec![*end];
            while let Some(place) = todo.pop() {
                if seen.insert(place) {
                    *uses.entry(place).or_default() += 1;
                    todo.extend(nodes[place as usize].0.operands());
                }
            }
        }
        let folded = draft.leaves.iter().filter_map(|leaf| match &leaf.op {
            LeafOp::Reduce { arg, .. } | LeafOp::Prefix { arg, .. } => Some(*arg),
            _ => None,
        });
        let works = |place: &Place| matches!(nodes[*place as usize].0, ExprNode::Apply(..));
        folded.map(|arg| converted(nodes, arg)).filter(|place| works(place) && uses[place] > 1).collect()
    })
}

/// What a term is a conversion of, if it is one: a sum in a narrow type is folded in a wide one.
fn converted(nodes: &[(ExprNode, DType)], mut place: Place) -> Place {
    while let ExprNode::Cast(inner) = nodes[place as usize].0 {
        place = inner;
    }
    place
}

/// A leaf whose operands are settled.
pub(super) struct Settled<'d> {
    /// the leaf as it was; `None` for a term that keeps its own value
    pub(super) leaf: Option<&'d Leaf>,
    /// what it reads
    pub(super) operands: Places,
    dtype: DType,
}

/// Leaves in the order in which they were, each with its operands in normal form.
struct Work<'d, 's> {
    draft: &'d Draft,
    numerics: Numerics,
    scope: &'s Scope,
    shared: FxHashSet<Place>,
    /// for every old term, the new one, before it is brought into normal form
    copied: FxHashMap<Place, Place>,
    leaves: Vec<Settled<'d>>,
    ranks: Vec<LeafRank>,
    /// what is known of the leaves
    knowledge: Knowledge,
    /// what tells leaves that would have one rank apart
    apart: &'d [u64],
}

impl<'d, 's> Work<'d, 's> {
    fn new(draft: &'d Draft, numerics: Numerics, scope: &'s Scope, apart: &'d [u64]) -> Work<'d, 's> {
        let (shared, copied) = (shared_places(draft), FxHashMap::default());
        Work {
            draft,
            numerics,
            scope,
            shared,
            copied,
            leaves: Vec::new(),
            ranks: Vec::new(),
            knowledge: Knowledge::default(),
            apart,
        }
    }

    /// Settles everything: the terms that are stored.
    fn ends(&mut self) -> Vec<Place> {
        let draft = self.draft;
        for (k, leaf) in draft.leaves.iter().enumerate() {
            self.leaf(k, leaf);
        }
        self.normal(draft.sinks.iter().map(|s| s.term).collect())
    }

    fn leaf(&mut self, old: usize, leaf: &'d Leaf) {
        let mut operands = leaf.op.operands();
        for operand in &operands {
            let value = self.draft.scope.with_nodes(|nodes| converted(nodes, *operand));
            if self.shared.contains(&value) && !matches!(leaf.op, LeafOp::Load { .. } | LeafOp::Random { .. }) {
                self.keep(value);
            }
        }
        let place = self.draft.scope.argument(old, leaf.dtype).place();
        if let Some(monoid) = wide_fold(&leaf.op) {
            let (operand, is_nonnegative) = self.wide(operands[0]);
            let dtype = self.scope.term(operand).dtype();
            let settled = Settled { leaf: Some(leaf), operands: SmallVec::from_slice(&[operand]), dtype };
            let number = self.leaves.len() as u32;
            let is_whole = matches!(leaf.op, LeafOp::Reduce { .. });
            match monoid {
                Monoid::Sum if is_nonnegative => _ = self.knowledge.nonnegative.insert(number),
                Monoid::Max if is_whole => _ = self.knowledge.above.insert(number, operand),
                _ => {}
            }
            self.push(settled, leaf.axes.len(), place);
            return;
        }
        if let LeafOp::Dot { over, a, b, .. } = &leaf.op {
            // The factor whose own axes come first is the first one.
            let [left, right] = [a, b].map(|p| self.draft.axes_of(*p).without(*over));
            let first = |own: AxisSet, other: AxisSet| own.without(other).iter().next().unwrap_or(AxisSet::MOST);
            if first(right, left) < first(left, right) {
                operands.reverse();
            }
        }
        // What a narrow factor is rounded to stays visible, so that a unit for that type can take it.
        let type_read = operands.first().map(|o| self.draft.scope.term(*o).dtype());
        let widens = leaf.op.is_dot() && self.draft.factor_dtype(old) != type_read;
        if widens {
            operands.iter_mut().for_each(|o| *o = self.draft.widened(*o).unwrap_or(*o));
        }
        let mut operands: Places = self.normal(operands).into_iter().collect();
        if let Some(wide) = type_read.filter(|_| widens) {
            operands.iter_mut().for_each(|o| *o = self.scope.term(*o).cast(wide).place());
        }
        self.push(Settled { leaf: Some(leaf), operands, dtype: leaf.dtype }, leaf.axes.len(), place);
    }

    /// Makes a term a value of its own.
    fn keep(&mut self, place: Place) {
        self.shared.remove(&place);
        let (settled, is_nonnegative) = self.wide(place);
        let term = self.scope.term(settled);
        if !matches!(term.node(), ExprNode::Apply(..)) {
            let narrow = term.cast(self.draft.scope.term(place).dtype());
            self.copied.insert(place, narrow.place());
            return;
        }
        if is_nonnegative {
            self.knowledge.nonnegative.insert(self.leaves.len() as u32);
        }
        let operands: Places = SmallVec::from_slice(&[settled]);
        let level = self.draft.axes_of(place).len();
        self.push(Settled { leaf: None, operands, dtype: term.dtype() }, level, place);
    }

    /// Adds a leaf, which is from now on what an old term is.
    fn push(&mut self, leaf: Settled<'d>, level: usize, old: Place) {
        let mut forms = Forms { scope: self.scope, ranks: &self.ranks, known: FxHashMap::default() };
        let mut rank = forms.leaf(self.draft, &leaf);
        if let Some(colour) = self.apart.get(self.leaves.len()).filter(|colour| **colour != 0) {
            let mut hasher = FxHasher::default();
            (rank, colour).hash(&mut hasher);
            rank = hasher.finish();
        }
        let new = self.scope.argument(self.leaves.len(), leaf.dtype).cast(self.draft.scope.term(old).dtype());
        self.copied.insert(old, new.place());
        self.leaves.push(leaf);
        self.ranks.push(LeafRank { level: level as u8, rank });
    }

    /// Terms in normal form.
    fn normal(&mut self, places: SmallVec<[Place; 2]>) -> Vec<Place> {
        if places.is_empty() {
            return Vec::new();
        }
        let copies: Vec<Place> = places.iter().map(|p| self.copy(*p)).collect();
        let mut normalizer = self.normalizer();
        copies.into_iter().map(|p| normalizer.normal(self.scope.term(p)).place()).collect()
    }

    /// A term in normal form and of the type in which it is computed; whether it is surely not negative.
    fn wide(&mut self, place: Place) -> (Place, bool) {
        let copy = self.copy(place);
        let mut normalizer = self.normalizer();
        let term = normalizer.wide(self.scope.term(copy));
        (term.place(), normalizer.is_nonnegative(term))
    }

    fn normalizer(&self) -> Normalizer<'s> {
        Normalizer::ranked(self.scope, self.numerics, self.ranks.clone(), self.draft.axes.clone())
            .knowing(self.knowledge.clone())
    }

    fn copy(&mut self, place: Place) -> Place {
        copy_term(&self.draft.scope, self.scope, place, &mut self.copied)
    }
}

/// How a fold folds that has the type in which its operand is computed: narrow floats are not rounded before and after. Not
/// if it finds positions: where rounding makes elements equal, these depend on it.
fn wide_fold(op: &LeafOp) -> Option<Monoid> {
    match op {
        LeafOp::Reduce { monoid, .. } | LeafOp::Prefix { monoid, .. } if !monoid.is_position() => Some(*monoid),
        _ => None,
    }
}

/// A term copied into another scope; every leaf that it reads was copied before.
pub(super) fn copy_term(from: &Scope, to: &Scope, place: Place, copied: &mut FxHashMap<Place, Place>) -> Place {
    let mut stack = vec![(place, false)];
    while let Some((next, expanded)) = stack.pop() {
        if copied.contains_key(&next) {
            continue;
        }
        let term = from.term(next);
        if !expanded {
            stack.push((next, true));
            stack.extend(term.operands().iter().rev().map(|o| (o.place(), false)));
            continue;
        }
        let operands: SmallVec<[Term<'_>; 3]> = term.operands().iter().map(|o| to.term(copied[&o.place()])).collect();
        copied.insert(next, to.step(&term.node(), term.dtype(), &operands).place());
    }
    copied[&place]
}

/// Terms as numbers that follow from what they are.
struct Forms<'d> {
    scope: &'d Scope,
    ranks: &'d [LeafRank],
    known: FxHashMap<Place, u64>,
}

impl Forms<'_> {
    fn leaf(&mut self, draft: &Draft, settled: &Settled<'_>) -> u64 {
        let Settled { leaf, operands, dtype } = settled;
        let Some(leaf) = leaf else { return self.term(operands[0]) };
        let mut hasher = FxHasher::default();
        dtype.hash(&mut hasher);
        match &leaf.op {
            LeafOp::Load { input, index, guard, fill, .. } => {
                (0u8, &draft.inputs[*input].1, index, guard, fill).hash(&mut hasher);
            }
            LeafOp::Random { stream, index, .. } => (1u8, stream, index).hash(&mut hasher),
            LeafOp::Reduce { monoid, over, .. } => (2u8, monoid, over).hash(&mut hasher),
            LeafOp::Prefix { monoid, axis, exclusive, .. } => (3u8, monoid, axis, exclusive).hash(&mut hasher),
            LeafOp::Let { .. } => {}
            LeafOp::Dot { over, accumulator, .. } => {
                // Factors of a product have no order.
                let both: u64 = operands.iter().map(|o| self.term(*o)).fold(0, u64::wrapping_add);
                (4u8, over, accumulator, both).hash(&mut hasher);
                return hasher.finish();
            }
        }
        operands.iter().for_each(|o| self.term(*o).hash(&mut hasher));
        hasher.finish()
    }

    fn term(&mut self, place: Place) -> u64 {
        let mut todo = vec![(place, false)];
        while let Some((next, expanded)) = todo.pop() {
            if self.known.contains_key(&next) {
                continue;
            }
            let term = self.scope.term(next);
            let operands = term.operands();
            if !expanded && !operands.is_empty() {
                todo.push((next, true));
                todo.extend(operands.iter().map(|o| (o.place(), false)));
                continue;
            }
            let mut hasher = FxHasher::default();
            term.dtype().hash(&mut hasher);
            match term.node() {
                ExprNode::Arg(k) => (0u8, self.ranks[k as usize]).hash(&mut hasher),
                ExprNode::Const(number) => (1u8, number).hash(&mut hasher),
                ExprNode::Coord(axis) => (2u8, axis).hash(&mut hasher),
                ExprNode::Size(dim) => (3u8, dim).hash(&mut hasher),
                ExprNode::Apply(op, _) => (4u8, op).hash(&mut hasher),
                ExprNode::Cast(_) => 5u8.hash(&mut hasher),
                ExprNode::Bits(_) => 6u8.hash(&mut hasher),
            }
            operands.iter().for_each(|o| self.known[&o.place()].hash(&mut hasher));
            self.known.insert(next, hasher.finish());
        }
        self.known[&place]
    }
}

/// The walk from stored values that numbers what it meets.
struct Walk<'d, 's> {
    draft: &'d Draft,
    scope: &'d Scope,
    settled: &'d [Settled<'d>],
    fresh: &'s Scope,
    /// for every settled leaf, its new number
    placed: Vec<Option<usize>>,
    /// for every old term, the new one
    copied: FxHashMap<Place, Place>,
    inputs: Vec<(Value, TensorType)>,
    leaves: Vec<Leaf>,
    axes: Vec<AxisSet>,
}

impl<'s> Walk<'_, 's> {
    fn term(&mut self, place: Place) -> Place {
        // Iterative: normal forms of long chains are deep.
        let mut stack = vec![(place, false)];
        while let Some((next, expanded)) = stack.pop() {
            if self.copied.contains_key(&next) {
                continue;
            }
            let term = self.scope.term(next);
            let node = term.node();
            if let ExprNode::Arg(k) = node {
                let leaf = self.leaf(k as usize);
                let new = self.fresh.argument(leaf, term.dtype()).place();
                self.copied.insert(next, new);
            } else if expanded {
                let operands: SmallVec<[Term<'s>; 3]> =
                    term.operands().iter().map(|o| self.fresh.term(self.copied[&o.place()])).collect();
                let new = self.fresh.step(&node, term.dtype(), &operands).place();
                self.copied.insert(next, new);
            } else {
                stack.push((next, true));
                stack.extend(term.operands().iter().rev().map(|o| (o.place(), false)));
            }
        }
        self.copied[&place]
    }

    fn leaf(&mut self, old: usize) -> usize {
        if let Some(new) = self.placed[old] {
            return new;
        }
        let Settled { leaf, operands, dtype } = &self.settled[old];
        let operands: Places = operands.iter().map(|o| self.term(*o)).collect();
        self.note_axes();
        let axes = |place: Place, all: &[AxisSet]| all[place as usize];
        let Some(leaf) = leaf else {
            let varies = axes(operands[0], &self.axes);
            return self.place(old, Leaf { op: LeafOp::Let { arg: operands[0] }, dtype: *dtype, axes: varies });
        };
        let (op, varies) = match &leaf.op {
            LeafOp::Let { .. } => (LeafOp::Let { arg: operands[0] }, axes(operands[0], &self.axes)),
            LeafOp::Load { input, index, guard, fill, .. } => {
                let (value, ty) = &self.draft.inputs[*input];
                let input = match self.inputs.iter().position(|(v, _)| v == value) {
                    Some(input) => input,
                    None => {
                        self.inputs.push((*value, ty.clone()));
                        self.inputs.len() - 1
                    }
                };
                let mentioned = index.iter().chain(guard.iter().map(|g| &g.index)).map(AxisSet::mentioned);
                let varies = operands.iter().map(|o| axes(*o, &self.axes)).chain(mentioned);
                let varies = varies.fold(AxisSet::EMPTY, AxisSet::union);
                let reads = operands.iter().copied().collect();
                (LeafOp::Load { input, index: index.clone(), guard: guard.clone(), fill: *fill, reads }, varies)
            }
            LeafOp::Random { stream, index, .. } => {
                let varies = AxisSet::mentioned(index).union(axes(operands[0], &self.axes));
                (LeafOp::Random { stream: *stream, seed: operands[0], index: index.clone() }, varies)
            }
            LeafOp::Reduce { monoid, over, .. } => {
                let varies = axes(operands[0], &self.axes).without(*over);
                (LeafOp::Reduce { monoid: *monoid, over: *over, arg: operands[0] }, varies)
            }
            LeafOp::Prefix { monoid, axis, exclusive, .. } => {
                let varies = axes(operands[0], &self.axes).with(*axis);
                (LeafOp::Prefix { monoid: *monoid, axis: *axis, exclusive: *exclusive, arg: operands[0] }, varies)
            }
            LeafOp::Dot { over, accumulator, .. } => {
                let [a, b] = [operands[0], operands[1]];
                let varies = axes(a, &self.axes).union(axes(b, &self.axes)).without(*over);
                (LeafOp::Dot { over: *over, a, b, accumulator: *accumulator }, varies)
            }
        };
        self.place(old, Leaf { op, dtype: *dtype, axes: varies })
    }

    fn place(&mut self, old: usize, leaf: Leaf) -> usize {
        self.leaves.push(leaf);
        self.placed[old] = Some(self.leaves.len() - 1);
        self.leaves.len() - 1
    }

    fn note_axes(&mut self) {
        super::draft::note_axes(self.fresh, &self.leaves, &mut self.axes);
    }
}
