//! Attention: blocks of threads that each own some queries and walk along the keys, so that no score ever lies in memory.
//!
//! A warp multiplies its queries with a tile of keys, works on the scores where they are summed, and multiplies what they have become with
//! a tile of values. Folds along the keys keep running results; what was summed with an old one is corrected by the factors of the schedule.

use fuseline::ops::prim::Monoid;
use fuseline::ops::{ExprNode, Number, Scalar};
use fuseline::tensor::{DType, Dim};
use fuseline::tile::{AxisSet, Correction, Op, Rounding, Schedule, StepId};

use super::element;
use super::nest::{Nest, is_multiple, slope};
use super::operand::{Operand, narrow_type};
use super::predict::By;

/// Two products joined along keys, as units for matrices do them, or threads by themselves.
#[derive(Clone, Debug)]
pub(super) struct Attention<'k> {
    pub first: StepId,
    pub second: StepId,
    pub queries: Operand,
    pub keys: Operand,
    pub values: Operand,
    /// what is multiplied with the values
    pub weights: StepId,
    pub batch: Vec<usize>,
    pub rows: Vec<usize>,
    pub stream: Vec<usize>,
    pub columns: Vec<usize>,
    /// folds along the keys, but for the second product
    pub folds: Vec<Fold>,
    /// what the first folds fold, which later ones go on from
    pub held: Option<StepId>,
    pub corrections: &'k [Correction],
    /// keys from `row + n` on have no weight
    pub masked_from: Option<i64>,
    /// where these keys do have some if a row sees none: what its largest score is not above then
    pub sunk: Option<f64>,
    /// whether scores may be as low as numbers go: a mask that is a number, or is read
    pub is_deep: bool,
    /// whether exponentials are taken of nothing but what a score is below the largest one of its row
    pub is_below: bool,
    /// what scores are before that, by the node of the expression that masks them, where nothing else does
    pub unmasked: Option<u32>,
    /// neighbouring keys that a thread has the scores of
    pub neighbours: i64,
    pub shape: Shape,
}

/// A fold along the keys.
#[derive(Clone, Debug)]
pub(super) struct Fold {
    pub id: StepId,
    pub arg: StepId,
    pub monoid: Monoid,
    /// whether other folds along the keys depend on its running result
    pub is_first: bool,
}

/// How a block of threads is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub by: By,
    pub warps: i64,
    /// lanes of a warp that share the scores of a query
    pub lanes: i64,
    /// queries of a block
    pub rows: i64,
    /// keys that are worked on at a time
    pub keys: i64,
    /// the width of a head, and of a value, as those who multiply take them
    pub inner: i64,
    pub width: i64,
}

/// The widest heads.
pub(super) const WIDEST: i64 = 256;

/// Elements between rows of sums in shared memory, beyond their width.
pub(super) const SUMS_PAD: i64 = 8;

impl Shape {
    pub fn threads(&self) -> i64 {
        self.warps * 32
    }

    /// Queries of which a thread has scores.
    pub fn slots(&self) -> i64 {
        self.rows * self.lanes / self.threads()
    }

    /// Whether groups of four warps multiply together.
    pub fn by_groups(&self) -> bool {
        self.by == By::Groups
    }

    /// Whether threads multiply by themselves.
    pub fn by_threads(&self) -> bool {
        self.by == By::Rows
    }

    /// For units for matrices, which take steps of 16; none for wider heads than they have room for.
    fn for_units(nest: &Nest<'_>, wanted: i64, rows: &Dim, widths: [i64; 2]) -> Option<Shape> {
        let [inner, width] = widths.map(|width| (width + 15) / 16 * 16);
        if inner > WIDEST || width > WIDEST {
            return None;
        }
        let few = rows.as_int().is_some_and(|n| n <= 64);
        let large = wanted > 64 && !few && width <= 128 && inner <= 128;
        // What a thread holds must fit its registers.
        let together = if large && width > 64 { 32 } else { 64 };
        let by_groups = nest.options.groups && large && matches!(width, 64 | 128);
        Some(Shape {
            by: if by_groups { By::Groups } else { By::Units },
            warps: if by_groups { 8 } else { 4 },
            lanes: 4,
            rows: if large { 128 } else { 64 },
            keys: if by_groups { 64 } else { together },
            inner,
            width,
        })
    }
}

impl<'k> Attention<'k> {
    /// The attention that some stores are; none where it is another kind, or of other types, than units for matrices or threads do.
    pub fn of(nest: &Nest<'k>, stores: &[usize]) -> Option<Attention<'k>> {
        let Schedule::Attention { chain, corrections, tile, .. } = &nest.kernel.schedule else { return None };
        let (first, second) = (chain.first, chain.second);
        let present = |axes: AxisSet| -> AxisSet { axes.iter().filter(|axis| !nest.extents[*axis].is(1)).collect() };
        let [stream, inner, columns] = [chain.stream, chain.inner, chain.columns].map(present);
        let axes = |id: StepId| nest.axes[id.index()];
        let (queries, keys) = factors(nest, first, |id| axes(id).common(stream).is_empty())?;
        let depends = dependents(nest, first);
        let (values, weights) = factors(nest, second, |id| !depends[id.index()])?;
        if !depends[weights.index()] || nest.folds[second.index()] != stream || nest.folds[first.index()] != inner {
            return None;
        }
        let narrow = narrow_type(nest, queries);
        let is_narrow = narrow.is_some() && [keys, values, weights].iter().all(|id| narrow_type(nest, *id) == narrow);
        let is_float =
            |id: &StepId| nest.kernel.step(*id).dtype.is_float() && nest.kernel.step(*id).dtype != DType::F64;
        if ![queries, keys, values, weights].iter().all(is_float) || stream.is_empty() || inner.is_empty() {
            return None;
        }
        let dtype = narrow.filter(|_| is_narrow).unwrap_or(DType::F32);
        let shared = axes(keys).union(axes(values)).without(stream).without(inner).without(columns);
        let all = axes(first).union(axes(second)).union(axes(weights));
        let rows = all.without(shared).without(stream).without(columns);
        let [Some(inner_width), Some(width)] = [inner, columns].map(|axes| nest.count(axes).as_int()) else {
            return None;
        };
        let is_whole = axes(values).without(shared).without(stream) == columns
            && axes(keys).without(shared).without(stream) == inner
            && axes(queries).without(shared).without(rows) == inner
            && stores.iter().all(|store| nest.stores[*store].axes.is_within(shared.union(rows).union(columns)));
        if !is_whole || width == 0 {
            return None;
        }
        let order = |axes: AxisSet, like: &dyn Fn(usize) -> Option<i64>| -> Vec<usize> {
            let mut order: Vec<usize> = axes.iter().collect();
            order.sort_by_key(|axis| (std::cmp::Reverse(like(*axis).unwrap_or(i64::MAX)), *axis));
            order
        };
        let stored = |axis: usize| {
            let offsets = stores.iter().map(|store| &nest.stores[*store].access.offset);
            offsets.filter_map(|offset| slope(offset, axis)?.as_int()).filter(|slope| *slope > 0).min()
        };
        let read = |id: StepId| {
            move |axis: usize| match &nest.kernel.step(id).op {
                Op::Load { .. } => slope(&nest.load(id).offset, axis)?.as_int().filter(|slope| *slope > 0),
                _ => None,
            }
        };
        let (rows, columns) = (order(rows, &stored), order(columns, &stored));
        let (stream, inner) = (order(stream, &read(keys)), order(inner, &read(keys)));
        let widths = [inner_width, width];
        let (row_count, batches) = (Attention::count(nest, &rows), nest.count(shared));
        let shape = match is_narrow {
            true => Shape::for_units(nest, i64::from(tile.rows), &row_count, widths)?,
            false => Shape::for_threads(nest, [&row_count, &batches], widths)?,
        };
        let mut attention = Attention {
            first,
            second,
            queries: Operand::of(nest, queries, dtype, &rows, &inner),
            keys: Operand::of(nest, keys, dtype, &stream, &inner),
            values: Operand::of(nest, values, dtype, &columns, &stream),
            weights,
            batch: shared.iter().collect(),
            rows,
            stream,
            columns,
            folds: Vec::new(),
            held: None,
            corrections,
            masked_from: None,
            sunk: None,
            is_deep: false,
            is_below: false,
            unmasked: None,
            neighbours: 1,
            shape,
        };
        attention.find_folds(nest, stores)?;
        attention.neighbours = attention.count_neighbours(nest);
        attention.is_deep = attention.held.is_some_and(|held| is_deep(nest, held, attention.first));
        attention.is_below = attention.is_below(nest);
        attention.find_mask(nest);
        Some(attention)
    }

    /// The folds along the keys, in two passes at most: those of the scores, and those of what is made of them.
    fn find_folds(&mut self, nest: &Nest<'_>, stores: &[usize]) -> Option<()> {
        let needed = nest.needed(stores);
        let stream: AxisSet = self.stream.iter().copied().collect();
        let mut depth = vec![0usize; needed.len()];
        for (k, step) in nest.kernel.steps.iter().enumerate().filter(|(k, _)| needed[*k]) {
            let id = StepId(k as u32);
            let below = step.op.operands().iter().map(|operand| depth[operand.index()]).max().unwrap_or(0);
            depth[k] = below;
            if !step.op.is_fold() || id == self.first {
                continue;
            }
            depth[k] = below + 1;
            match &step.op {
                _ if id == self.second => {}
                Op::Reduce { monoid, arg, .. }
                    if nest.folds[k] == stream
                        && matches!(monoid, Monoid::Sum | Monoid::Max | Monoid::Min)
                        && element::held(step.dtype) == "float" =>
                {
                    self.folds.push(Fold { id, arg: *arg, monoid: *monoid, is_first: below == 0 });
                }
                _ => return None,
            }
            if below > 1 {
                return None;
            }
        }
        let second_is_late = depth[self.second.index()] == 2;
        if !second_is_late && self.folds.iter().any(|fold| !fold.is_first) {
            return None;
        }
        if second_is_late {
            let mut first = self.folds.iter().filter(|fold| fold.is_first);
            let held = first.next()?.arg;
            if first.any(|fold| fold.arg != held) {
                return None;
            }
            self.held = Some(held);
            let later = self.folds.iter().filter(|fold| !fold.is_first).map(|fold| fold.arg);
            if later.chain([self.weights]).any(|term| self.reads_first(nest, term, held)) {
                return None;
            }
        } else {
            self.folds.iter_mut().for_each(|fold| fold.is_first = false);
        }
        Some(())
    }

    /// How many neighbouring keys a thread has: four where threads multiply; two, as units leave scores, or, where what is read with them should be read by whole packs,
    /// as many as fill the widest access. Then the lines of keys and of values in shared memory are dealt so that units leave these there.
    fn count_neighbours(&self, nest: &Nest<'_>) -> i64 {
        let Some(inner) = self.stream.last() else { return 1 };
        if self.shape.by_threads() {
            return [4, 2].into_iter().find(|count| is_multiple(&nest.extents[*inner], *count)).unwrap_or(1);
        }
        let read = self.read_with_scores(nest);
        let bytes = read.iter().map(|id| match &nest.kernel.step(*id).op {
            Op::Load { .. } => element::bytes(nest.load(*id).tensor.dtype),
            _ => 4,
        });
        // Where warps have 32 rows each, registers are few.
        let are_lines = self.shape.by_groups() && self.keys.along_sum && !self.values.along_sum;
        let most = bytes.max().filter(|_| are_lines).map_or(2, |bytes| (16 / bytes).clamp(2, self.shape.keys / 4));
        let counts = [16, 8, 4, 2].into_iter().filter(|count| *count <= most);
        counts.filter(|count| is_multiple(&nest.extents[*inner], *count)).max().unwrap_or(1)
    }

    /// What is read, or drawn, for every score, neighbours side by side.
    fn read_with_scores(&self, nest: &Nest<'_>) -> Vec<StepId> {
        let terms: Vec<StepId> = self.folds.iter().map(|fold| fold.arg).chain([self.weights]).collect();
        self.read_by(nest, &terms, self.first)
    }

    /// What terms read, or draw, neighbours side by side, but for what a step among them does.
    pub fn read_by(&self, nest: &Nest<'_>, terms: &[StepId], but: StepId) -> Vec<StepId> {
        let Some(inner) = self.stream.last() else { return Vec::new() };
        let mut all = Vec::new();
        let mut seen = vec![false; nest.kernel.steps.len()];
        let mut unseen = terms.to_vec();
        while let Some(id) = unseen.pop() {
            if id == but || nest.kernel.step(id).op.is_fold() || std::mem::replace(&mut seen[id.index()], true) {
                continue;
            }
            let offset = match &nest.kernel.step(id).op {
                Op::Load { .. } => Some(&nest.load(id).offset),
                Op::Random { .. } => Some(nest.random(id)),
                _ => None,
            };
            if offset.is_some_and(|offset| slope(offset, *inner).is_some_and(|slope| slope.is(1))) {
                all.push(id);
            }
            unseen.extend(nest.kernel.step(id).op.operands());
        }
        all.sort();
        all
    }

    /// Whether a term reads the first product otherwise than through a step.
    fn reads_first(&self, nest: &Nest<'_>, term: StepId, through: StepId) -> bool {
        if term == through || nest.kernel.step(term).op.is_fold() {
            return term == self.first && term != through;
        }
        nest.kernel.step(term).op.operands().iter().any(|operand| self.reads_first(nest, *operand, through))
    }

    /// Whether what is made of scores takes exponentials of nothing but their distance from the largest one of a row.
    fn is_below(&self, nest: &Nest<'_>) -> bool {
        let largest =
            |id: StepId| self.folds.iter().any(|fold| fold.id == id && fold.monoid == Monoid::Max && fold.is_first);
        let is_largest = |id: StepId| match &nest.kernel.step(id).op {
            Op::Map { args, .. } => matches!(args.as_slice(), [arg] if largest(*arg)),
            _ => largest(id),
        };
        let Some(held) = self.held else { return false };
        let mut unseen: Vec<StepId> = self.folds.iter().map(|fold| fold.arg).chain([self.weights]).collect();
        while let Some(id) = unseen.pop() {
            let Op::Map { expr, args } = &nest.kernel.step(id).op else { continue };
            unseen.extend(args.iter().copied());
            let step = |node: u32| match expr.nodes()[node as usize].0 {
                ExprNode::Arg(number) => Some(args[number as usize]),
                _ => None,
            };
            let is_distance = |of: &[u32]| match &expr.nodes()[of[0] as usize].0 {
                ExprNode::Apply(Scalar::Sub, of) => step(of[0]) == Some(held) && step(of[1]).is_some_and(is_largest),
                _ => false,
            };
            let is_other = |node: &ExprNode| matches!(node, ExprNode::Apply(Scalar::Exp, of) if !is_distance(of));
            if expr.nodes().iter().any(|(node, _)| is_other(node)) {
                return false;
            }
        }
        true
    }

    fn find_mask(&mut self, nest: &Nest<'_>) {
        let (Some(held), [key], [row]) = (self.held, self.stream.as_slice(), self.rows.as_slice()) else { return };
        let follows = !self.corrections.is_empty();
        let folds_most = self.folds.iter().any(|fold| fold.is_first && fold.monoid == Monoid::Max);
        if let (true, true, Op::Map { expr, .. }) = (follows, folds_most, &nest.kernel.step(held).op) {
            self.masked_from = fuseline::tile::first_masked(expr, *key, *row);
            // That scores are no such numbers is true of real ones.
            if let (None, true) = (self.masked_from, nest.kernel.rounding != Rounding::Every)
                && let Some((from, low)) = fuseline::tile::first_sunk(expr, *key, *row)
            {
                (self.masked_from, self.sunk) = (Some(from), Some(low / 2.0));
            }
            let nodes = expr.nodes();
            if let (Some(_), Some((ExprNode::Apply(Scalar::Select, parts), _))) = (self.masked_from, nodes.last())
                && let ExprNode::Apply(Scalar::Le | Scalar::Lt, _) = &nodes[parts[0] as usize].0
            {
                self.unmasked = Some(parts[1]);
            }
        }
    }

    pub fn count(nest: &Nest<'_>, axes: &[usize]) -> Dim {
        nest.count(axes.iter().copied().collect())
    }

    pub fn query_tile(&self) -> (i64, i64) {
        (self.shape.rows, self.shape.inner)
    }

    pub fn key_tile(&self) -> (i64, i64) {
        (self.shape.keys, self.shape.inner)
    }

    pub fn value_tile(&self) -> (i64, i64) {
        (self.shape.width, self.shape.keys)
    }

    /// How many tiles of keys, and of values, are there at a time.
    pub fn buffers(&self) -> i64 {
        if self.shape.by_groups() { 2 } else { 1 }
    }

    pub fn shared_bytes(&self) -> i64 {
        if self.shape.by_threads() {
            return self.shape.bytes_for_threads().max(self.results_bytes());
        }
        let streamed = self.keys.tile_bytes(self.key_tile()) + self.values.tile_bytes(self.value_tile());
        let tiles = self.queries.tile_bytes(self.query_tile()) + streamed * self.buffers();
        tiles.max(self.results_bytes())
    }

    fn results_bytes(&self) -> i64 {
        self.shape.rows * ((self.shape.width + SUMS_PAD) * 4 + 4 * self.folds.len() as i64)
    }
}

/// Whether what is made of scores, down to those, has a very low number in it, or anything that is read.
fn is_deep(nest: &Nest<'_>, id: StepId, scores: StepId) -> bool {
    match &nest.kernel.step(id).op {
        _ if id == scores => false,
        // What is true or not is no number.
        _ if nest.kernel.step(id).dtype == DType::Bool => false,
        Op::Map { expr, args } => {
            let is_low = |(node, _): &(ExprNode, DType)| match node {
                ExprNode::Const(Number::Float(bits)) => (f64::MIN..-1e30).contains(&f64::from_bits(*bits)),
                _ => false,
            };
            expr.nodes().iter().any(is_low) || args.iter().any(|arg| is_deep(nest, *arg, scores))
        }
        _ => true,
    }
}

/// The factors of a product: that for which something holds, then the other.
fn factors(nest: &Nest<'_>, dot: StepId, is_one: impl Fn(StepId) -> bool) -> Option<(StepId, StepId)> {
    match &nest.kernel.step(dot).op {
        Op::Dot { a, b, accumulator: DType::F32, .. } => match (is_one(*a), is_one(*b)) {
            (true, false) => Some((*a, *b)),
            (false, true) => Some((*b, *a)),
            _ => None,
        },
        _ => None,
    }
}

/// Which steps depend on a step; it does itself.
fn dependents(nest: &Nest<'_>, id: StepId) -> Vec<bool> {
    let steps = &nest.kernel.steps;
    let mut depends = vec![false; steps.len()];
    depends[id.index()] = true;
    for k in id.index() + 1..steps.len() {
        depends[k] = steps[k].op.operands().iter().any(|operand| depends[operand.index()]);
    }
    depends
}
