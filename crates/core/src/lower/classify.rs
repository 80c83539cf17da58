//! Which schedule a draft can have.
//!
//! Folds decide. One whose result is read again along the axis that was folded needs a worker that owns the row; one
//! that is only read afterwards can be cut into parts. Sums of products give tiles, and two of them, the second summing over
//! what the first leaves free, can be streamed.

use rustc_hash::FxHashMap;

use super::draft::{Draft, Leaf, LeafOp, Place};
use super::refusal::Refusal;
use crate::tensor::{DType, Dim, Env};
use crate::tile::{AxisSet, Placement, Tile};

/// Numbers for the sizes that are not known: a plan is made for one class of shapes.
#[derive(Clone, Debug)]
pub struct Hints {
    /// what is known
    pub env: Env,
    /// every other size
    pub otherwise: i64,
}

impl Hints {
    /// A size as a number.
    pub fn size(&self, dim: &Dim) -> f64 {
        match dim.as_int() {
            Some(n) => n as f64,
            None => dim.eval_with(&|s| Some(self.env.get(s).unwrap_or(self.otherwise))).unwrap_or(0).max(0) as f64,
        }
    }
}

impl Default for Hints {
    fn default() -> Hints {
        Hints { env: Env::new(), otherwise: 128 }
    }
}

/// What a device can hold, as far as schedules hang on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// bytes of a row that a worker keeps in registers
    pub row_registers: f64,
    /// bytes that a worker keeps next to the core
    pub on_chip: f64,
    /// whether rows are held as they lie in memory, and what all of them read is not held
    pub holds_packs: bool,
    /// elements of a whole row of a contraction's result in one tile
    pub tile_row: f64,
    /// columns of the accumulator of two joined contractions
    pub stream_columns: f64,
    /// independent workers
    pub workers: f64,
    /// columns that a worker folds side by side
    pub columns: f64,
    /// tensors that a kernel takes
    pub parameters: usize,
    /// the block of results of a contraction
    pub tile: Tile,
    /// the block of rows and streamed columns of two joined contractions
    pub stream_tile: Tile,
    /// into how many parts the stream of two joined contractions is cut
    pub stream_parts: u32,
}

/// A schedule by leaves of the draft.
#[derive(Clone, Debug, PartialEq)]
pub enum Roles {
    /// no folds
    Map,
    /// folds along rows
    Row {
        /// the axes that one worker owns
        along: AxisSet,
        /// where the row lies
        placement: Placement,
    },
    /// folds across rows
    Column {
        /// the axes folded across workers
        across: AxisSet,
        /// the axes that one worker owns
        along: AxisSet,
        /// parts
        parts: u32,
    },
    /// sums of products
    Contract {
        /// the dots
        dots: Vec<usize>,
        /// the term that all share
        shared: Place,
        /// its free axes
        rows: AxisSet,
        /// free axes of the others
        columns: AxisSet,
        /// the summed axes
        sum: AxisSet,
        /// whether something folds along the columns
        whole_rows: bool,
    },
    /// two joined sums of products
    Attention {
        /// the first dot
        first: usize,
        /// the second dot
        second: usize,
        /// free axes of the first that the second keeps
        rows: AxisSet,
        /// free axes of the first that the second sums over
        stream: AxisSet,
        /// summed by the first
        inner: AxisSet,
        /// free axes of the second alone
        columns: AxisSet,
    },
}

impl Roles {
    /// The name in text forms and reports.
    pub fn name(&self) -> &'static str {
        match self {
            Roles::Map => "map",
            Roles::Row { .. } => "row",
            Roles::Column { .. } => "column",
            Roles::Contract { .. } => "contract",
            Roles::Attention { .. } => "attention",
        }
    }
}

/// Who reads whom, among the leaves of a draft.
pub(super) struct Flow<'d> {
    draft: &'d Draft,
    /// For every end of arithmetic, the leaves that it reads directly.
    direct: FxHashMap<Place, Vec<usize>>,
    /// For every leaf, whether it reads a given dot, directly or not, as bits by position in `dots`.
    behind: Vec<u64>,
    dots: Vec<usize>,
}

impl<'d> Flow<'d> {
    pub fn of(draft: &'d Draft) -> Flow<'d> {
        let mut direct: FxHashMap<Place, Vec<usize>> = FxHashMap::default();
        for end in draft.ends() {
            direct.entry(end).or_insert_with(|| draft.leaves_of(end));
        }
        let dots: Vec<usize> = (0..draft.leaves.len()).filter(|k| draft.leaves[*k].op.is_dot()).collect();
        let mut behind: Vec<u64> = Vec::with_capacity(draft.leaves.len());
        for (k, leaf) in draft.leaves.iter().enumerate() {
            let read = leaf.op.operands().iter().flat_map(|o| &direct[o]).fold(0, |bits, l| bits | behind[*l]);
            let own = dots.iter().position(|d| *d == k).map_or(0, |bit| 1u64.checked_shl(bit as u32).unwrap_or(0));
            behind.push(read | own);
        }
        Flow { draft, direct, behind, dots }
    }

    /// The dots that a term reads, directly or not.
    fn dots_behind(&self, end: Place) -> u64 {
        self.direct[&end].iter().fold(0, |bits, leaf| bits | self.behind[*leaf])
    }

    /// The dots that the operands of a leaf read, directly or not.
    fn dots_before(&self, leaf: usize) -> u64 {
        self.draft.leaves[leaf].op.operands().iter().fold(0, |bits, o| bits | self.dots_behind(*o))
    }

    /// The axes over which the result of a fold varies, and all that reads it by whatever way.
    fn axes_behind(&self, fold: usize) -> AxisSet {
        let draft = self.draft;
        let mut axes = draft.leaves[fold].axes;
        let mut depends = vec![false; draft.leaves.len()];
        depends[fold] = true;
        let reads = |end: Place, depends: &[bool]| self.direct[&end].iter().any(|leaf| depends[*leaf]);
        for (k, leaf) in draft.leaves.iter().enumerate().skip(fold + 1) {
            for operand in leaf.op.operands() {
                if reads(operand, &depends) {
                    depends[k] = true;
                    axes = axes.union(leaf.axes).union(draft.axes_of(operand));
                }
            }
        }
        let sinks = draft.sinks.iter().filter(|sink| reads(sink.term, &depends));
        sinks.fold(axes, |axes, sink| axes.union(sink.axes))
    }
}

/// The roles that the axes of a draft have, or why no schedule fits.
pub fn classify(draft: &Draft, limits: &Limits, hints: &Hints) -> Result<Roles, Refusal> {
    let parameters = draft.inputs.len() + draft.sinks.len();
    if parameters > limits.parameters {
        return Err(Refusal::TooManyParameters { need: parameters, have: limits.parameters });
    }
    if draft.folds().next().is_none() {
        return Ok(Roles::Map);
    }
    let flow = Flow::of(draft);
    match flow.dots.len() {
        0 => rows(&flow, limits, hints),
        _ if flow.dots.iter().any(|d| flow.dots_before(*d) != 0) => joined(&flow, limits, hints),
        _ => contraction(&flow, limits, hints),
    }
}

pub(super) fn extent(draft: &Draft, axes: AxisSet, hints: &Hints) -> f64 {
    axes.iter().map(|a| hints.size(&draft.axes[a])).product()
}

fn rows(flow: &Flow<'_>, limits: &Limits, hints: &Hints) -> Result<Roles, Refusal> {
    let draft = flow.draft;
    let (mut along, mut across) = (AxisSet::EMPTY, AxisSet::EMPTY);
    let mut once = AxisSet::EMPTY;
    for fold in draft.folds() {
        match &draft.leaves[fold].op {
            LeafOp::Prefix { axis, .. } => along = along.with(*axis),
            op if !flow.axes_behind(fold).common(op.folded()).is_empty() => along = along.union(op.folded()),
            op => once = once.union(op.folded()),
        }
    }
    let apart = |fold: usize| !draft.leaves[fold].op.folded().is_within(along);
    for axis in once.without(along).iter() {
        across = across.with(axis);
    }
    if across.is_empty() {
        return Ok(Roles::Row { along, placement: placement(draft, along, limits, hints) });
    }
    // What a fold across workers gives exists only when all are done: neither can another fold read it, nor can it be wanted
    // at every one of them.
    let is_apart = |leaf: &usize| draft.leaves[*leaf].op.is_fold() && apart(*leaf);
    let reads_apart = |fold: usize| {
        let operands = draft.leaves[fold].op.operands();
        operands.iter().any(|operand| flow.direct[operand].iter().any(is_apart))
    };
    let is_repeated = |fold: usize| apart(fold) && !flow.axes_behind(fold).common(across).is_empty();
    if draft.folds().any(|fold| reads_apart(fold) || is_repeated(fold)) {
        if along.is_empty() {
            // Folds of folds: one worker owns all that is folded.
            return Ok(Roles::Row { along: across, placement: placement(draft, across, limits, hints) });
        }
        return Err(Refusal::FoldAcrossTiles);
    }
    let independent = draft.all_axes().without(across).without(along);
    let workers = extent(draft, independent, hints).max(1.0);
    let length = extent(draft, across, hints).max(1.0);
    let parts_for = |busy: f64| (4.0 * limits.workers / busy).min(length / 256.0).clamp(1.0, 4096.0) as u32;
    if along.is_empty() && across.contains(innermost(draft, hints).unwrap_or(AxisSet::MOST)) {
        let parts = parts_for(workers);
        let placement = if parts > 1 { Placement::Split(parts) } else { Placement::Registers };
        return Ok(Roles::Row { along: across, placement });
    }
    let parts = match along.is_empty() {
        true => parts_for((workers / limits.columns).ceil()),
        // Workers own whole rows, some of them each, and leave what they have found of the columns.
        false => (4.0 * limits.workers / workers).min(length / 8.0).clamp(1.0, 4096.0) as u32,
    };
    Ok(Roles::Column { across, along, parts })
}

/// The axis along which the largest loaded tensor lies side by side: of those that its last coordinate mentions, the
/// longest.
fn innermost(draft: &Draft, hints: &Hints) -> Option<usize> {
    let mut best: Option<(f64, f64, usize)> = None;
    for leaf in &draft.leaves {
        let LeafOp::Load { index, .. } = &leaf.op else { continue };
        let Some(last) = index.iter().rev().find(|d| d.as_int().is_none()) else { continue };
        for axis in AxisSet::mentioned(last).iter() {
            let found = (extent(draft, leaf.axes, hints), hints.size(&draft.axes[axis]), axis);
            // The first of equal ones, whatever the order of the loads.
            let better = |b: &(f64, f64, usize)| {
                (found.0, found.1).partial_cmp(&(b.0, b.1)).is_some_and(|o| o.is_gt() || (o.is_eq() && axis < b.2))
            };
            if best.as_ref().is_none_or(better) {
                best = Some(found);
            }
        }
    }
    best.map(|(_, _, axis)| axis)
}

/// Where a row lies between its uses: as near as it fits.
pub(super) fn placement(draft: &Draft, along: AxisSet, limits: &Limits, hints: &Hints) -> Placement {
    let length = extent(draft, along, hints);
    // Narrow floats are held as they are computed, in 4 bytes, or as they lie in memory.
    let least = if limits.holds_packs { 1.0 } else { 4.0 };
    let bytes: f64 =
        held(draft, along, limits.holds_packs).map(|dtype| length * (dtype.bits() as f64 / 8.0).max(least)).sum();
    if bytes <= limits.row_registers {
        Placement::Registers
    } else if bytes <= limits.on_chip {
        Placement::OnChip
    } else {
        Placement::Reread
    }
}

/// The types of what is loaded along rows and held; `own`: of every row alone, unless there is but one.
pub(super) fn held(draft: &Draft, along: AxisSet, own: bool) -> impl Iterator<Item = DType> {
    let outside = if own { draft.all_axes().without(along) } else { AxisSet::EMPTY };
    let is_own = move |axes: AxisSet| outside.is_empty() || !axes.common(outside).is_empty();
    let is_held = move |l: &&Leaf| matches!(l.op, LeafOp::Load { .. }) && along.is_within(l.axes) && is_own(l.axes);
    draft.leaves.iter().filter(is_held).map(|l| l.dtype)
}

fn dot(draft: &Draft, leaf: usize) -> (AxisSet, Place, Place) {
    match &draft.leaves[leaf].op {
        LeafOp::Dot { over, a, b, .. } => (*over, *a, *b),
        _ => unreachable!("the leaf is a dot"),
    }
}

fn contraction(flow: &Flow<'_>, limits: &Limits, hints: &Hints) -> Result<Roles, Refusal> {
    let draft = flow.draft;
    let dots = flow.dots.clone();
    let (sum, a, b) = dot(draft, dots[0]);
    let shared_by_all = |place: Place| {
        dots.iter().all(|d| {
            let (over, a, b) = dot(draft, *d);
            over == sum && (a == place || b == place)
        })
    };
    // Of two factors the one with fewer columns beside it is streamed; with one dot it is the first.
    let shared = [a, b].into_iter().find(|p| shared_by_all(*p)).ok_or(Refusal::NoSharedFactor)?;
    let rows = draft.axes_of(shared).without(sum);
    let others = dots.iter().map(|d| {
        let (_, a, b) = dot(draft, *d);
        draft.axes_of(if a == shared { b } else { a })
    });
    let columns = others.fold(AxisSet::EMPTY, AxisSet::union).without(sum).without(rows);
    let mut whole_rows = false;
    for fold in draft.folds().filter(|f| !draft.leaves[*f].op.is_dot()) {
        let op = &draft.leaves[fold].op;
        let over = op.folded();
        match flow.dots_before(fold) {
            0 if over.is_within(sum) && !over.is_empty() => {}
            0 => return Err(Refusal::FoldAcrossTiles),
            _ if over.is_within(columns) && !over.is_empty() => whole_rows = true,
            _ => return Err(Refusal::FoldAcrossTiles),
        }
    }
    let tile = rows.union(columns);
    for sink in &draft.sinks {
        // Along axes over which the result does not vary it is written again and again.
        if flow.dots_behind(sink.term) == 0 || !draft.axes_of(sink.term).is_within(tile) {
            return Err(Refusal::Unrelated);
        }
    }
    let widths = dots.iter().map(|d| extent(draft, draft.leaves[*d].axes.without(rows), hints));
    let length = widths.fold(1.0, f64::max);
    if whole_rows && length > limits.tile_row {
        return Err(Refusal::RowsTooLong { need: length as u64, have: limits.tile_row as u64 });
    }
    Ok(Roles::Contract { dots, shared, rows, columns, sum, whole_rows })
}

fn joined(flow: &Flow<'_>, limits: &Limits, hints: &Hints) -> Result<Roles, Refusal> {
    let draft = flow.draft;
    let (firsts, seconds): (Vec<usize>, Vec<usize>) = flow.dots.iter().partition(|d| flow.dots_before(**d) == 0);
    let ([first], [second]) = (firsts.as_slice(), seconds.as_slice()) else { return Err(Refusal::NestedContraction) };
    let (stream, a, b) = dot(draft, *second);
    let (inner, ..) = dot(draft, *first);
    let (p, v) = match (flow.dots_behind(a) != 0, flow.dots_behind(b) != 0) {
        (true, false) => (a, b),
        (false, true) => (b, a),
        _ => return Err(Refusal::NestedContraction),
    };
    if !stream.is_within(draft.leaves[*first].axes) {
        return Err(Refusal::NestedContraction);
    }
    let rows = draft.axes_of(p).without(stream);
    let columns = draft.axes_of(v).without(stream).without(rows);
    if !inner.common(rows.union(columns).union(stream)).is_empty() {
        return Err(Refusal::NestedContraction);
    }
    // Without a fold of rows between them and without a batch, the two are better apart: each has its own best tile, and factors
    // that are weights are packed once for all runs.
    let folds_rows = |fold: usize| {
        let leaf = &draft.leaves[fold];
        !leaf.op.is_dot() && leaf.op.folded().is_within(stream) && flow.dots_before(fold) != 0
    };
    let is_batched = !draft.axes_of(v).common(rows).is_empty();
    if !is_batched && !draft.folds().any(folds_rows) {
        return Err(Refusal::NestedContraction);
    }
    let second_bit = 1u64 << flow.dots.iter().position(|d| d == second).expect("it is one of the dots");
    for fold in draft.folds().filter(|f| !draft.leaves[*f].op.is_dot()) {
        let over = draft.leaves[fold].op.folded();
        let allowed = match flow.dots_before(fold) {
            0 => over.is_within(inner) || over.is_within(stream),
            behind if behind & second_bit != 0 => false,
            _ => over.is_within(stream),
        };
        if over.is_empty() || !allowed {
            return Err(Refusal::FoldAcrossTiles);
        }
    }
    for sink in &draft.sinks {
        let behind = flow.dots_behind(sink.term);
        if behind != 0 && !sink.axes.common(stream).is_empty() {
            return Err(Refusal::ProbabilitiesUsed);
        }
        if behind == 0 || !sink.axes.is_within(rows.union(columns)) {
            return Err(Refusal::Unrelated);
        }
    }
    let width = extent(draft, columns, hints);
    if width > limits.stream_columns {
        return Err(Refusal::RowsTooLong { need: width as u64, have: limits.stream_columns as u64 });
    }
    Ok(Roles::Attention { first: *first, second: *second, rows, stream, inner, columns })
}
