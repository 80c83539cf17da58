//! What a processor does besides the products of a contraction: factors are put where tiles can read them, and tiles are whole.
//!
//! Its code generator has the same choices and weighs them by the same things (`crates/cpu/src/emit`: `roles`, `factors`, `late`, `windows`).
//! Lanes run along the columns of the right factor, which is packed into panels as wide as a tile; the left factor is read as it lies, or
//! gathered. What is constant is put there once, before anything runs. Where a factor repeats what it reads (windows of a convolution), the
//! tasks that multiply it put it together piece by piece; otherwise a phase of its own does.

use super::classify::Roles;
use super::draft::{LeafOp, Place};
use super::work::{Meter, Whence};
use crate::analysis::{Stream, Work};
use crate::device::Unit;
use crate::ops::ExprNode;
use crate::tensor::DType;
use crate::tile::AxisSet;

/// Operations on vectors for each element that is put elsewhere: what lies in a row, and what lies one by one. Measured as cycles of a
/// core, of which each has two operations on 16 lanes.
struct Put {
    in_row: f64,
    scattered: f64,
}

/// By a phase of its own, which finds out where every line lies; what lies in a row is a matter of memory.
const BEFORE: Put = Put { in_row: 4.0, scattered: 96.0 };

/// By the tasks that multiply, for windows: two to three cycles a vector, and ten to 15 where windows move by two.
const LATE: Put = Put { in_row: 4.0, scattered: 20.0 };

/// By the tasks that fold over windows, edges filled: six cycles a vector, and 14 where elements are taken apart.
const WINDOW: Put = Put { in_row: 12.0, scattered: 28.0 };

/// For each result that is stored one by one, or in vectors that may end before their last lane.
const STORED_SCATTERED: f64 = 32.0;
const STORED_MASKED: f64 = 12.0;

/// Multiply-adds of windows, each of which loads its term from wherever a vector begins, in such that find theirs in registers.
const WINDOW_TERM: f64 = 1.75;

/// A factor that has so many times the elements of what it reads repeats it.
const REPEATS: f64 = 2.0;

/// Panels or chunks for every core, if tasks are to put factors together.
const SHARES: f64 = 2.0;

/// Rows that a task gathers at once.
const LINES: (f64, f64) = (48.0, 128.0);

/// Vectors of sums that a fold over windows keeps at a time.
const WINDOW_VECTORS: f64 = 8.0;

/// A factor of a product.
struct Factor {
    axes: AxisSet,
    elements: f64,
    /// bytes of an element where tiles read it
    bytes: f64,
    /// elements of the largest tensor that it reads
    read: f64,
    /// whether what it reads was just written
    is_fresh: bool,
    is_constant: bool,
    /// whether it is a tensor, which tiles can read where it is
    lies: bool,
    /// axes along which what it reads lies in a row; one for each tensor
    in_row: AxisSet,
}

impl Factor {
    fn repeats(&self) -> bool {
        self.elements >= REPEATS * self.read
    }

    /// Operations that put it elsewhere, in vectors along an axis.
    fn put(&self, put: &Put, lane: Option<usize>) -> f64 {
        let scattered = lane.is_none_or(|lane| self.axes.contains(lane) && !self.in_row.contains(lane));
        self.elements * if scattered { put.scattered } else { put.in_row }
    }
}

/// What one way to make a product takes besides wanted products.
struct Way {
    /// how many times more products are made
    padding: f64,
    /// operations of the tasks that multiply
    beside: f64,
    /// phases before
    before: Vec<Work>,
    us: f64,
}

impl Meter<'_> {
    /// Adds what a dot on vectors needs, the better way round. How many times more products are made than are wanted.
    pub(super) fn bring_factors(&mut self, dot: usize, whence: &dyn Fn(usize) -> Whence) -> f64 {
        let LeafOp::Dot { a, b, over, .. } = &self.draft.leaves[dot].op else { return 1.0 };
        let over = *over;
        let [first, second] = [*a, *b].map(|place| self.factor(place, whence));
        let flops = 2.0 * self.extent(self.draft.leaves[dot].axes.union(over));
        let ways = [(&first, &second), (&second, &first)];
        let ways = ways.into_iter().filter_map(|(left, right)| self.way(left, right, over, flops));
        match ways.min_by(|x, y| x.us.total_cmp(&y.us)) {
            Some(way) => self.take(way),
            None => {
                let wider = if first.elements >= second.elements { *a } else { *b };
                self.slide(wider, over, whence)
            }
        }
    }

    /// The same for two joined dots: keys are always packed, queries and values where they do not lie so.
    pub(super) fn bring_streamed(&mut self, roles: &Roles, whence: &dyn Fn(usize) -> Whence) {
        let Roles::Attention { first, second, rows, .. } = roles else { return };
        for dot in [*first, *second] {
            for operand in self.draft.leaves[dot].op.operands() {
                if self.reads_dot(operand) {
                    continue;
                }
                let factor = self.factor(operand, whence);
                let is_query = dot == *first && rows.is_within(factor.axes) && !rows.is_empty();
                let is_key = dot == *first && !is_query;
                if !factor.is_constant && (is_key || !factor.lies) {
                    let lane = self.longest(factor.axes.common(factor.in_row));
                    let phase = self.phase(&factor, factor.put(&BEFORE, lane));
                    self.work.before.push(phase);
                }
            }
        }
    }

    /// How many times more products the two joined dots make than are wanted: panels of streamed columns are whole.
    pub(super) fn stream_padding(&self, dot: usize, stream: AxisSet) -> f64 {
        let (lanes, panel, _) = self.tile_shape();
        let length = self.extent(stream).max(1.0);
        let padded = (length / (lanes * panel)).ceil() * lanes * panel / length;
        // Of both dots, the first has the streamed columns for columns.
        if stream.is_within(self.draft.leaves[dot].axes) { (1.0 + padded) / 2.0 } else { 1.0 }
    }

    fn take(&mut self, way: Way) -> f64 {
        self.work.moves += way.beside;
        self.work.before.extend(way.before);
        way.padding
    }

    fn factor(&self, place: Place, whence: &dyn Fn(usize) -> Whence) -> Factor {
        let draft = self.draft;
        let (mut in_row, mut read, mut sources) = (AxisSet::EMPTY, 1.0_f64, Vec::new());
        let mut todo = draft.leaves_of(place);
        let mut is_computed = false;
        while let Some(leaf) = todo.pop() {
            match &draft.leaves[leaf].op {
                LeafOp::Load { input, .. } => {
                    let whole: f64 = draft.inputs[*input].1.shape.dims().iter().map(|d| self.hints.size(d)).product();
                    read = read.max(whole);
                    in_row = self.facts.loads[leaf].map_or(in_row, |axis| in_row.with(axis));
                    sources.push(whence(*input));
                }
                LeafOp::Let { arg } => todo.extend(draft.leaves_of(*arg)),
                _ => is_computed = true,
            }
        }
        let lies = draft.scope.with_nodes(|nodes| match &nodes[place as usize] {
            (ExprNode::Arg(leaf), DType::F32) => match &draft.leaves[*leaf as usize].op {
                LeafOp::Load { index, guard, .. } => {
                    guard.is_empty() && index.iter().all(|dim| dim.as_int().is_some() || dim.as_symbol().is_some())
                }
                _ => false,
            },
            _ => false,
        });
        let (axes, dtype) = (draft.axes_of(place), draft.scope.term(place).dtype());
        Factor {
            axes,
            elements: self.extent(axes),
            bytes: (dtype.bits() as f64 / 8.0).max(4.0),
            read,
            is_fresh: sources.contains(&Whence::Fresh),
            is_constant: !is_computed && !sources.is_empty() && sources.iter().all(|s| *s == Whence::Constant),
            lies,
            in_row,
        }
    }

    fn longest(&self, axes: AxisSet) -> Option<usize> {
        let size = |axis: &usize| self.hints.size(&self.draft.axes[*axis]);
        axes.iter().max_by(|x, y| size(x).total_cmp(&size(y)))
    }

    /// A product with the lanes along the columns of the right factor; none where it has none, or vectors would run from line to line.
    fn way(&self, left: &Factor, right: &Factor, over: AxisSet, flops: f64) -> Option<Way> {
        let columns = right.axes.without(left.axes).without(over);
        let rows = left.axes.without(right.axes).without(over);
        // A factor beside one column of another is no matrix: its windows slide.
        if columns.is_empty() || rows.is_empty() && right.repeats() {
            return None;
        }
        let cores = self.spec.limits.cores as f64;
        let batch = self.extent(left.axes.common(right.axes).without(over));
        let (lanes, panel, tile_rows) = self.tile_shape();
        let stored = self.stored_along(columns);
        let lane = stored.or_else(|| self.longest(columns));
        let length = lane.map_or(1.0, |axis| self.hints.size(&self.draft.axes[axis]));
        let all = self.extent(columns).max(1.0);
        // What repeats what it reads has lines of its own; others are walked through as if they were one.
        let is_cut = right.repeats() && all > length && length % lanes != 0.0;
        let (wide, lines) = if is_cut { (length, all / length) } else { (all, 1.0) };
        if is_cut && wide < 0.7 * (wide / lanes).ceil() * lanes {
            return None;
        }
        let vectors = (wide / lanes).ceil().min(panel);
        let vectors = if panel % vectors == 0.0 { vectors } else { panel };
        let padded = (wide / (vectors * lanes)).ceil() * vectors * lanes;
        let most = (tile_rows * panel / vectors).min(2.0 * tile_rows);
        let high = self.extent(rows).max(1.0);
        let in_tile = high / (high / most).ceil();
        // Every term loads the vectors of a panel and spreads an element of every row: as many a cycle as there are multiply-adds.
        let loads = ((in_tile + vectors) / (in_tile * vectors)).max(1.0);
        let mut way = Way { padding: padded / wide * loads, beside: 0.0, before: Vec::new(), us: 0.0 };
        let panels = batch * lines * (padded / (vectors * lanes));
        let is_read_as_it_lies = right.lies && high <= tile_rows && self.in_row(right, columns);
        if !right.is_constant && !is_read_as_it_lies {
            self.bring(right, lane, right.repeats() && panels >= SHARES * cores, padded / wide, &mut way);
        }
        if !left.is_constant && !left.lies {
            let line = self.longest(rows).map_or(1.0, |axis| self.hints.size(&self.draft.axes[axis]));
            let fits = (1..=LINES.1 as usize).any(|n| (LINES.0..=LINES.1).contains(&(n as f64 * line)));
            let lane = self.longest(left.axes.common(left.in_row));
            let is_late = left.repeats() && fits && batch * high >= SHARES * cores * LINES.0;
            let along = if left.repeats() { self.longest(rows) } else { lane };
            self.bring(left, along, is_late, 1.0, &mut way);
        }
        let results = batch * high * all;
        if stored.is_none() {
            way.beside += results * STORED_SCATTERED;
        } else if padded > wide {
            way.beside += results * padded / wide * STORED_MASKED;
        }
        let rate = |unit: Unit| self.spec.rate(unit) * 1e3;
        let before: f64 = way.before.iter().map(|phase| crate::analysis::price(phase, self.spec).us).sum();
        let dtype = self.spec.dot_unit(DType::F32);
        way.us = flops * way.padding / rate(dtype) + way.beside / rate(Unit::Elementwise(DType::F32)) + before;
        Some(way)
    }

    /// The axis of these along which a result lies in a row.
    fn stored_along(&self, columns: AxisSet) -> Option<usize> {
        self.facts.sinks.iter().flatten().copied().find(|axis| columns.contains(*axis))
    }

    /// Whether the columns of a factor lie in a row.
    fn in_row(&self, factor: &Factor, columns: AxisSet) -> bool {
        !factor.in_row.common(columns).is_empty()
    }

    /// Lanes of a vector, vectors of a panel, rows of a tile.
    fn tile_shape(&self) -> (f64, f64, f64) {
        let tile = self.spec.tiles(DType::F32)[0];
        let lanes = (self.spec.limits.vector_bytes as f64 / 4.0).max(1.0);
        (lanes, (f64::from(tile.columns) / lanes).max(1.0), f64::from(tile.rows))
    }

    /// Puts a factor where tiles read it: by the tasks that multiply, or before.
    fn bring(&self, factor: &Factor, lane: Option<usize>, is_late: bool, padding: f64, way: &mut Way) {
        match is_late {
            true => way.beside += factor.put(&LATE, lane) * padding,
            false => way.before.push(self.phase(factor, factor.put(&BEFORE, lane) * padding)),
        }
    }

    /// A phase that puts a factor into memory of its own.
    fn phase(&self, factor: &Factor, moves: f64) -> Work {
        let mut phase = Work { moves, is_detailed: true, ..Work::default() };
        let (read, written) = (factor.read.min(factor.elements) * factor.bytes, factor.elements * factor.bytes);
        let touched = read + written;
        let source = Stream::of(read);
        phase.read(if factor.is_fresh { source.warm(touched) } else { source });
        phase.write(Stream::of(written).warm(touched));
        phase.divide((factor.elements / 4096.0).ceil(), 1.0);
        phase
    }

    /// Windows that slide: what they see is copied once. How many times more terms are added than are wanted; once where nothing slides.
    pub(super) fn slide(&mut self, terms: Place, over: AxisSet, whence: &dyn Fn(usize) -> Whence) -> f64 {
        let source = self.factor(terms, whence);
        if source.is_constant || !source.repeats() {
            return 1.0;
        }
        let results = source.axes.without(over);
        let lane = self.stored_along(results).or_else(|| self.longest(results));
        let (lanes, ..) = self.tile_shape();
        let length = lane.map_or(1.0, |axis| self.hints.size(&self.draft.axes[axis])).max(1.0);
        let seen = Factor { elements: source.read, ..source };
        self.work.moves += seen.put(&WINDOW, lane);
        WINDOW_TERM * (length / lanes).ceil() * lanes / length
    }

    /// The blocks of windows that slide: rows of results, as many as keep registers full.
    pub(super) fn window_blocks(&self, results: AxisSet) -> f64 {
        let (lanes, ..) = self.tile_shape();
        let length = self.inner_axis().map_or(1.0, |axis| self.hints.size(&self.draft.axes[axis]));
        (self.extent(results) / length.max(1.0) * (length / lanes).ceil() / WINDOW_VECTORS).ceil().max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use crate::analysis::Work;
    use crate::device::DeviceSpec;
    use crate::graph::{Builder, Graph};
    use crate::lower::{Group, Hints, Limits, Whence, classify, lower, work_in_detail};
    use crate::ops::Prim;
    use crate::tensor::{DType, Shape};

    /// What a graph does as one kernel, whose second input comes from somewhere.
    fn work_of(graph: &Graph, second: Whence) -> Work {
        let is_member = |id: &usize| !super::super::is_transparent(graph, *id) && !is_input(graph, *id);
        let members: Vec<usize> = (0..graph.nodes().len()).filter(is_member).collect();
        let outputs: Vec<_> = graph.outputs().iter().map(|o| o.value).collect();
        let draft = lower(&Group { graph, members: &members, outputs: &outputs }).unwrap();
        let (spec, hints) = (DeviceSpec::find("cpu").unwrap(), Hints::default());
        let limits = Limits::of(spec, DType::F32);
        let roles = classify(&draft, &limits, &hints).unwrap();
        let whence = |value| if value == graph.inputs()[1] { second } else { Whence::Fresh };
        work_in_detail(&draft, &roles, &limits, spec, &hints, &whence)
    }

    fn is_input(graph: &Graph, id: usize) -> bool {
        matches!(graph.nodes()[id].prim(), Prim::Input(_))
    }

    fn product(rows: usize, columns: usize, terms: usize) -> Graph {
        let b = Builder::new("product");
        let x = b.input("x", DType::F32, Shape::new([rows, terms]));
        let w = b.input("w", DType::F32, Shape::new([terms, columns]));
        b.output("y", x.contract("mk,kn->mn", w));
        b.finish().unwrap()
    }

    #[test]
    fn what_is_constant_is_packed_before_anything_runs() {
        let graph = product(128, 768, 768);
        assert!(work_of(&graph, Whence::Constant).before.is_empty());
        let [phase] = &work_of(&graph, Whence::Fresh).before[..] else { panic!("the right factor is packed") };
        assert_eq!(phase.footprint(), 2.0 * 4.0 * 768.0 * 768.0, "read once, written once");
        // For a few rows it is read where it lies.
        assert!(work_of(&product(4, 768, 768), Whence::Fresh).before.is_empty());
    }

    #[test]
    fn panels_are_whole_and_few_rows_wait_for_loads() {
        let padding = |rows, columns| work_of(&product(rows, columns, 256), Whence::Constant).padding;
        assert_eq!(padding(128, 768), 1.0);
        // 196 columns are four panels of 64, 49 one.
        assert_eq!((padding(128, 196), padding(128, 49)), (256.0 / 196.0, 64.0 / 49.0));
        // Half of a panel is one of two vectors, with more rows.
        assert_eq!(padding(128, 32), 1.0);
        assert_eq!(padding(1, 768), 5.0 / 4.0);
    }

    #[test]
    fn a_factor_that_is_computed_is_gathered() {
        let b = Builder::new("computed");
        let x = b.input("x", DType::F32, Shape::new([128usize, 256]));
        let w = b.input("w", DType::F32, Shape::new([256usize, 512]));
        b.output("y", x.exp().contract("mk,kn->mn", w));
        let work = work_of(&b.finish().unwrap(), Whence::Constant);
        assert_eq!(work.before.len(), 1);
        assert_eq!(work.before[0].footprint(), 2.0 * 4.0 * 128.0 * 256.0);
    }
}
