//! How often parts of a kernel run.

use rustc_hash::FxHashSet;

use super::Meter;
use crate::device::Machine;
use crate::lower::classify::{Roles, placement};
use crate::lower::draft::{LeafOp, Place};
use crate::ops::ExprNode;
use crate::tile::{AxisSet, Placement};

/// How often parts of a kernel run, beyond once for every point of their axes.
pub(super) struct Repeats {
    /// for each leaf, how often the axes it varies over are walked
    pub(super) passes: Vec<f64>,
    /// terms that lie before a contraction are computed for every tile of the other operand, those before a fold as often as that: by the axes
    /// they vary over
    pub(super) prologue: Vec<(AxisSet, f64)>,
    /// the contractions and their operands, in the order of `prologue`
    pub(super) operands: Vec<(usize, Place)>,
    /// terms that are operands of contractions, or of folds that are made again, directly or not
    pub(super) before: FxHashSet<Place>,
    /// for each leaf that folds rows, how often each row is folded: once for every point of the axes outside that it does not vary over
    pub(super) folds: Vec<f64>,
}

impl Meter<'_> {
    /// How often parts of a kernel with these roles run.
    pub(super) fn repeats(&self, roles: &Roles) -> Repeats {
        let draft = self.draft;
        let mut repeats = Repeats {
            passes: vec![1.0; draft.leaves.len()],
            prologue: Vec::new(),
            operands: Vec::new(),
            before: FxHashSet::default(),
            folds: vec![1.0; draft.leaves.len()],
        };
        match roles {
            Roles::Map => {}
            Roles::Row { along, placement } => {
                self.reread(&mut repeats, *along, *placement);
                self.refold(&mut repeats, *along);
            }
            Roles::Column { along, .. } => {
                self.reread(&mut repeats, *along, placement(draft, *along, self.limits, self.hints));
                self.refold(&mut repeats, *along);
            }
            Roles::Contract { dots, shared, rows, .. } => {
                let tile = self.limits.tile;
                let across = self.wide(dots, *rows).iter().map(|n| (n / f64::from(tile.columns)).ceil()).sum();
                let down =
                    (self.extent(rows.without(self.others(dots, *shared))) / f64::from(tile.rows)).ceil().max(1.0);
                self.prologues(&mut repeats, dots, &|place| if place == *shared { across } else { down });
            }
            Roles::Attention { first, second, .. } => {
                let tile = self.limits.stream_tile;
                let own = self.queried(roles);
                let down = (self.extent(own) / f64::from(tile.rows)).ceil().max(1.0);
                let is_streamed = |place: Place| draft.axes_of(place).common(own).is_empty();
                self.prologues(&mut repeats, &[*first, *second], &|place| if is_streamed(place) { down } else { 1.0 });
                if self.spec.kind == Machine::Gpu {
                    // What scores read besides, such as a mask, every block fetches by itself: for every head again, if heads share it.
                    let scores = draft.leaves[*first].axes;
                    for (k, leaf) in draft.leaves.iter().enumerate().filter(|(_, leaf)| leaf.axes.is_within(scores)) {
                        if matches!(leaf.op, LeafOp::Load { .. }) && !leaf.axes.is_empty() {
                            let missing = scores.without(leaf.axes);
                            let tiles = if missing.common(own).is_empty() { 1.0 } else { down };
                            repeats.passes[k] = repeats.passes[k].max(self.extent(missing.without(own)) * tiles);
                        }
                    }
                }
            }
        }
        repeats
    }

    /// Rows that lie nowhere between passes are read by each of them.
    fn reread(&self, repeats: &mut Repeats, along: AxisSet, placement: Placement) {
        if placement != Placement::Reread || along.is_empty() {
            return;
        }
        let levels = self.levels(along);
        for (passes, leaf) in repeats.passes.iter_mut().zip(&self.draft.leaves) {
            if !leaf.axes.common(along).is_empty() {
                *passes = levels;
            }
        }
    }

    /// A row is folded for every point of the axes outside, also of those that it does not vary over: of `w[j] · Σ x[i, k]` every sum is made for
    /// every `j`.
    fn refold(&self, repeats: &mut Repeats, along: AxisSet) {
        let draft = self.draft;
        let outside = draft.all_axes().without(along);
        for (k, leaf) in draft.leaves.iter().enumerate().filter(|(_, leaf)| leaf.op.is_fold()) {
            let times = self.extent(outside.without(leaf.axes.union(leaf.op.folded())));
            if times <= 1.0 {
                continue;
            }
            repeats.folds[k] = times;
            for operand in leaf.op.operands() {
                repeats.prologue.push((draft.axes_of(operand), times));
                self.mark_before(repeats, operand, times);
            }
        }
    }

    /// Marks what lies before dots, and how often each operand is walked.
    fn prologues(&self, repeats: &mut Repeats, dots: &[usize], times: &dyn Fn(Place) -> f64) {
        for dot in dots {
            for operand in self.draft.leaves[*dot].op.operands() {
                let times = times(operand);
                let recomputed = if self.spec.kind == Machine::Cpu { 1.0 } else { times };
                repeats.prologue.push((self.draft.axes_of(operand), recomputed));
                repeats.operands.push((*dot, operand));
                self.mark_before(repeats, operand, times);
            }
        }
    }

    /// Marks what a term is computed from, and that it is walked so often.
    fn mark_before(&self, repeats: &mut Repeats, operand: Place, times: f64) {
        let mut todo = vec![operand];
        let mut seen = FxHashSet::default();
        while let Some(place) = todo.pop() {
            if !seen.insert(place) {
                continue;
            }
            repeats.before.insert(place);
            self.draft.scope.with_nodes(|nodes| match &nodes[place as usize].0 {
                ExprNode::Arg(k) => {
                    let leaf = &self.draft.leaves[*k as usize];
                    let passes = &mut repeats.passes[*k as usize];
                    if !leaf.op.is_dot() {
                        *passes = passes.max(times);
                        todo.extend(leaf.op.operands());
                    }
                }
                node => todo.extend(node.operands()),
            });
        }
    }

    /// How often a row is walked when nothing of it is kept: once for each fold that waits for another, and once for
    /// what is computed from all of them.
    fn levels(&self, along: AxisSet) -> f64 {
        let draft = self.draft;
        let mut level: Vec<usize> = Vec::with_capacity(draft.leaves.len());
        for leaf in &draft.leaves {
            let read = leaf.op.operands();
            let inner = read.iter().flat_map(|o| draft.leaves_of(*o)).map(|l| level[l]).max().unwrap_or(0);
            level.push(inner + usize::from(leaf.op.is_fold() && !leaf.op.folded().is_empty()));
        }
        let last = draft.sinks.iter().any(|s| !s.axes.common(along).is_empty());
        (level.into_iter().max().unwrap_or(0) + usize::from(last)).max(1) as f64
    }
}
