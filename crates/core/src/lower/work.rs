//! What a draft does under a schedule, as the numbers that a price follows from.

use rustc_hash::FxHashSet;

use super::classify::{Hints, Limits, Roles, extent};
use super::draft::{Draft, LeafOp, Place};
use crate::analysis::{Stream, Work};
use crate::device::{DeviceSpec, Machine, Unit};
use crate::graph::Value;
use crate::ops::ExprNode;
use crate::tensor::{DType, Dim, Symbol};
use crate::tile::{AxisSet, Placement, Tile};

impl Limits {
    /// The same with each of the tiles that a device has for a schedule; one that has no tiles is left as it is.
    pub fn tilings(&self, roles: &Roles, spec: &DeviceSpec, dtype: DType) -> Vec<Limits> {
        match roles {
            Roles::Contract { .. } => {
                spec.tiles(dtype).iter().map(|tile| Limits { tile: *tile, ..self.clone() }).collect()
            }
            Roles::Attention { .. } => {
                let largest = self.stream_tile;
                let halved = |size: u32, least: u32| {
                    std::iter::successors(Some(size), |size| Some(size / 2)).take_while(move |size| *size >= least)
                };
                // Fewer rows give more blocks; fewer streamed columns leave room for wider heads.
                let tiles = halved(largest.rows, 16).flat_map(|rows| {
                    halved(largest.columns, largest.columns / 2).map(move |columns| Tile { rows, columns, ..largest })
                });
                tiles.map(|stream_tile| Limits { stream_tile, ..self.clone() }).collect()
            }
            _ => vec![self.clone()],
        }
    }

    /// What a device can hold, for contractions of this type, with the largest tile.
    pub fn of(spec: &DeviceSpec, dtype: DType) -> Limits {
        let largest = spec.tiles(dtype)[0];
        let widest = spec.tiles(dtype).iter().map(|t| t.columns).max().map_or(1.0, f64::from);
        let (tile_row, stream_columns, stream_tile) = match spec.kind {
            // Rows of a CPU's result wait in the memory next to the core; a GPU's in the registers of one block.
            Machine::Cpu => {
                let rows = f64::from(largest.rows);
                (spec.limits.on_chip as f64 / 4.0 / rows, 1024.0, Tile { rows: 64, columns: 256, depth: 64 })
            }
            Machine::Gpu => (widest, 256.0, Tile { rows: 128, columns: 64, depth: 64 }),
        };
        Limits {
            row_registers: spec.limits.row_in_registers as f64,
            on_chip: spec.limits.row_on_chip as f64,
            tile_row,
            stream_columns,
            workers: spec.limits.cores as f64,
            parameters: spec.limits.parameters,
            tile: largest,
            stream_tile,
        }
    }
}

/// What everything about a draft's work follows from.
struct Meter<'a> {
    draft: &'a Draft,
    spec: &'a DeviceSpec,
    hints: &'a Hints,
    limits: &'a Limits,
    work: Work,
}

/// What a kernel does. `is_fresh` tells which inputs another kernel has just written.
pub fn work(
    draft: &Draft,
    roles: &Roles,
    limits: &Limits,
    spec: &DeviceSpec,
    hints: &Hints,
    is_fresh: &dyn Fn(Value) -> bool,
) -> Work {
    let mut meter = Meter { draft, spec, hints, limits, work: Work::default() };
    let repeats = meter.repeats(roles);
    meter.traffic(&repeats, roles, is_fresh);
    meter.arithmetic(&repeats, roles);
    meter.division(roles);
    meter.work
}

/// How often parts of a kernel run, beyond once for every point of their axes.
struct Repeats {
    /// for each leaf, how often the axes it varies over are walked
    passes: Vec<f64>,
    /// terms that lie before a contraction are computed for every tile of the other operand: by the axes they vary over
    prologue: Vec<(AxisSet, f64)>,
    /// terms that are operands of contractions, directly or not
    before: FxHashSet<Place>,
}

impl Meter<'_> {
    fn extent(&self, axes: AxisSet) -> f64 {
        extent(self.draft, axes, self.hints)
    }

    fn repeats(&self, roles: &Roles) -> Repeats {
        let draft = self.draft;
        let mut repeats =
            Repeats { passes: vec![1.0; draft.leaves.len()], prologue: Vec::new(), before: FxHashSet::default() };
        match roles {
            Roles::Map | Roles::Column { .. } => {}
            Roles::Row { along, placement } => {
                if *placement == Placement::Reread {
                    let levels = self.levels(*along);
                    for (k, leaf) in draft.leaves.iter().enumerate() {
                        if !leaf.axes.common(*along).is_empty() {
                            repeats.passes[k] = levels;
                        }
                    }
                }
            }
            Roles::Contract { dots, shared, rows, .. } => {
                let tile = self.limits.tile;
                let across = self.wide(dots, *rows).iter().map(|n| (n / f64::from(tile.columns)).ceil()).sum();
                let down =
                    (self.extent(rows.without(self.others(dots, *shared))) / f64::from(tile.rows)).ceil().max(1.0);
                self.prologues(&mut repeats, dots, &|place| if place == *shared { across } else { down });
                if self.spec.kind == Machine::Gpu {
                    // Two neighbouring blocks fetch what both need once.
                    repeats.passes.iter_mut().for_each(|passes| *passes = (*passes / 2.0).max(1.0));
                }
            }
            Roles::Attention { first, second, rows, .. } => {
                let tile = self.limits.stream_tile;
                let own = self.queried(*first, *second, *rows);
                let down = (self.extent(own) / f64::from(tile.rows)).ceil().max(1.0);
                let queried = |place: Place| draft.axes_of(place).common(own).is_empty();
                self.prologues(&mut repeats, &[*first, *second], &|place| if queried(place) { down } else { 1.0 });
            }
        }
        repeats
    }

    /// The batch axes of a dot: those of both factors that are not summed.
    fn common(&self, dot: usize) -> AxisSet {
        match &self.draft.leaves[dot].op {
            LeafOp::Dot { over, a, b, .. } => self.draft.axes_of(*a).common(self.draft.axes_of(*b)).without(*over),
            _ => AxisSet::EMPTY,
        }
    }

    /// The rows of two joined dots that read the same streamed operands.
    fn queried(&self, first: usize, second: usize, rows: AxisSet) -> AxisSet {
        rows.without(self.common(first)).without(self.common(second))
    }

    /// How many times more products a matrix unit makes than are wanted, because it makes whole tiles.
    fn padding(&self, dot: usize, roles: &Roles) -> f64 {
        let padded = |length: f64, tile: f64| {
            let length = length.max(1.0);
            (length / tile).ceil() * tile / length
        };
        match roles {
            Roles::Contract { dots, shared, rows, columns, whole_rows, .. } => {
                let (down, across) = (f64::from(self.limits.tile.rows), f64::from(self.limits.tile.columns));
                let own = self.extent(rows.without(self.others(dots, *shared)));
                let wide = self.extent(self.draft.leaves[dot].axes.common(*columns));
                padded(own, down) * if *whole_rows { 1.0 } else { padded(wide, across) }
            }
            Roles::Attention { first, second, rows, .. } => {
                let tile = f64::from(self.limits.stream_tile.rows);
                let tiles = self.spec.tiles(self.draft.factor_dtype(dot).unwrap_or(DType::F32));
                let least = tiles.iter().map(|t| f64::from(t.rows)).fold(f64::INFINITY, f64::min);
                padded(self.extent(self.queried(*first, *second, *rows)), tile) * (least / tile).max(1.0)
            }
            _ => 1.0,
        }
    }

    /// The axes of the factors that are not shared.
    fn others(&self, dots: &[usize], shared: Place) -> AxisSet {
        let other = |dot: &usize| match &self.draft.leaves[*dot].op {
            LeafOp::Dot { a, b, .. } => self.draft.axes_of(if *a == shared { *b } else { *a }),
            _ => AxisSet::EMPTY,
        };
        dots.iter().map(other).fold(AxisSet::EMPTY, AxisSet::union)
    }

    /// The columns of contractions that share a factor with these rows. Where several have the same, they lie in turns in
    /// one tile, as if there were as many columns more.
    fn wide(&self, dots: &[usize], rows: AxisSet) -> Vec<f64> {
        let mut sets: Vec<(AxisSet, f64)> = Vec::new();
        for dot in dots {
            let columns = self.draft.leaves[*dot].axes.without(rows);
            match sets.iter_mut().find(|(set, _)| *set == columns) {
                Some((_, count)) => *count += 1.0,
                None => sets.push((columns, 1.0)),
            }
        }
        sets.into_iter().map(|(set, count)| self.extent(set).max(1.0) * count).collect()
    }

    /// Bytes of an element of a dot's factors.
    fn factor_bytes(&self, dot: usize) -> f64 {
        self.draft.factor_dtype(dot).map_or(4.0, |dtype| dtype.bits() as f64 / 8.0)
    }

    /// Marks what lies before dots, and how often each operand is walked.
    fn prologues(&self, repeats: &mut Repeats, dots: &[usize], times: &dyn Fn(Place) -> f64) {
        for dot in dots {
            for operand in self.draft.leaves[*dot].op.operands() {
                let times = times(operand);
                let recomputed = if self.spec.kind == Machine::Cpu { 1.0 } else { times };
                repeats.prologue.push((self.draft.axes_of(operand), recomputed));
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

    /// The axis along which the results lie side by side.
    fn inner_axis(&self) -> Option<usize> {
        let sink = self.draft.sinks.iter().max_by(|a, b| self.extent(a.axes).total_cmp(&self.extent(b.axes)))?;
        unit_axis(&sink.index)
    }

    /// The axis along which what is read lies side by side.
    fn read_axis(&self) -> Option<usize> {
        let loads = self.draft.leaves.iter().filter_map(|leaf| match &leaf.op {
            LeafOp::Load { index, .. } => Some((self.extent(leaf.axes), index)),
            _ => None,
        });
        loads.max_by(|a, b| a.0.total_cmp(&b.0)).and_then(|(_, index)| unit_axis(index))
    }

    fn traffic(&mut self, repeats: &Repeats, roles: &Roles, is_fresh: &dyn Fn(Value) -> bool) {
        let draft = self.draft;
        let inner = self.inner_axis();
        // Tiles and rows are gathered on chip, so that only whole lines matter; maps read as they write.
        let gathers = !matches!(roles, Roles::Map);
        let mut streams: Vec<(bool, Stream)> = Vec::with_capacity(draft.inputs.len());
        for (k, (value, ty)) in draft.inputs.iter().enumerate() {
            let element = ty.dtype.bits() as f64 / 8.0;
            let whole = ty.shape.dims().iter().map(|d| self.hints.size(d)).product::<f64>();
            let (mut elements, mut passes, mut run, mut access) = (0.0, 1.0_f64, f64::INFINITY, f64::INFINITY);
            for (l, leaf) in draft.leaves.iter().enumerate() {
                let LeafOp::Load { input, index, .. } = &leaf.op else { continue };
                if *input != k {
                    continue;
                }
                elements += self.extent(leaf.axes);
                passes = passes.max(repeats.passes[l]);
                let unit = unit_axis(index);
                if let Some(axis) = unit.filter(|_| !ty.shape.dims().is_empty()) {
                    run = run.min(self.hints.size(&draft.axes[axis]) * element);
                    if Some(axis) != inner && !gathers {
                        access = access.min(element);
                    }
                } else if !leaf.axes.is_empty() {
                    (run, access) = (run.min(element), access.min(element));
                }
            }
            let bytes = elements.min(whole) * element;
            let between = self.between(roles, element).min(bytes);
            streams.push((is_fresh(*value), Stream::of(bytes).again(passes, between).strided(access, run)));
        }
        let written: Vec<f64> = draft
            .sinks
            .iter()
            .map(|s| self.extent(s.axes) * draft.scope.term(s.term).dtype().bits() as f64 / 8.0)
            .collect();
        let touched = streams.iter().map(|(_, s)| s.bytes).sum::<f64>() + written.iter().sum::<f64>();
        for (fresh, stream) in streams {
            self.work.read(if fresh { stream.warm(touched) } else { stream });
        }
        for bytes in written {
            self.work.write(Stream::of(bytes).warm(touched));
        }
    }

    /// Bytes that a core touches from one pass over an operand of a contraction to the next: a CPU works through packed
    /// panels, a GPU's blocks walk along the sum side by side.
    fn between(&self, roles: &Roles, element: f64) -> f64 {
        let (tile, length) = match roles {
            Roles::Contract { sum, .. } => (self.limits.tile, self.extent(*sum)),
            Roles::Attention { inner, .. } => (self.limits.stream_tile, self.extent(*inner)),
            _ => return f64::INFINITY,
        };
        let (rows, columns, depth) = (f64::from(tile.rows), f64::from(tile.columns), f64::from(tile.depth));
        match self.spec.kind {
            Machine::Cpu => (rows + columns) * depth.min(length) * element,
            // The tiles that are worked on at a time walk along the sum together, a few stages apart.
            Machine::Gpu => (rows + columns) * 4.0 * depth * element,
        }
    }

    fn arithmetic(&mut self, repeats: &Repeats, roles: &Roles) {
        let draft = self.draft;
        let mut reached = FxHashSet::default();
        let mut todo: Vec<Place> = draft.ends().collect();
        let mut steps: Vec<(Place, crate::ops::Scalar, DType)> = Vec::new();
        draft.scope.with_nodes(|nodes| {
            while let Some(place) = todo.pop() {
                if !reached.insert(place) {
                    continue;
                }
                let (node, dtype) = &nodes[place as usize];
                if let ExprNode::Apply(op, operands) = node {
                    // Comparisons and choices work on what they compare.
                    let like = operands.first().map_or(*dtype, |o| nodes[*o as usize].1);
                    steps.push((place, *op, if *dtype == DType::Bool { like } else { *dtype }));
                }
                todo.extend(node.operands());
            }
        });
        steps.sort_unstable_by_key(|(place, ..)| *place);
        // Matrix units wait for operands that are computed; in a stream, less: the scores of one tile are worked on while
        // others are multiplied.
        let waits = |(place, op, _): &(Place, crate::ops::Scalar, DType)| {
            repeats.before.contains(place) && op.def().flops > 0 && !draft.axes_of(*place).is_empty()
        };
        if self.spec.kind == Machine::Gpu && steps.iter().any(waits) {
            self.work.serial = if matches!(roles, Roles::Attention { .. }) { 0.25 } else { 1.0 };
        }
        for (place, op, dtype) in steps {
            let axes = draft.axes_of(place);
            let again =
                repeats.prologue.iter().filter(|(of, _)| repeats.before.contains(&place) && axes.is_within(*of));
            let times = again.map(|(_, times)| *times).fold(1.0, f64::max);
            let count = self.extent(axes) * times;
            self.work.scalar(op, count, arithmetic_dtype(dtype));
        }
        for (k, leaf) in draft.leaves.iter().enumerate() {
            match &leaf.op {
                LeafOp::Dot { over, .. } => {
                    let dtype = draft.factor_dtype(k).unwrap_or(leaf.dtype);
                    let flops = 2.0 * self.extent(leaf.axes.union(*over));
                    self.work.dot(flops, dtype, self.spec);
                    self.work.padding = self.work.padding.max(self.padding(k, roles));
                }
                LeafOp::Reduce { over, .. } => {
                    let count = self.extent(leaf.axes.union(*over));
                    self.work.operate(Unit::Elementwise(arithmetic_dtype(leaf.dtype)), count);
                }
                LeafOp::Prefix { .. } => {
                    let count = self.extent(leaf.axes);
                    self.work.operate(Unit::Elementwise(arithmetic_dtype(leaf.dtype)), 2.0 * count);
                }
                LeafOp::Random { .. } => {
                    let count = self.extent(leaf.axes);
                    self.work.operate(Unit::Elementwise(DType::I32), 15.0 * count);
                }
                LeafOp::Load { .. } | LeafOp::Let { .. } => {}
            }
        }
    }

    fn division(&mut self, roles: &Roles) {
        let draft = self.draft;
        let gpu = self.spec.kind == Machine::Gpu;
        let all: AxisSet = (0..draft.axes.len()).collect();
        let points = self.extent(all).max(1.0);
        let loads = draft.leaves.iter().filter(|l| matches!(l.op, LeafOp::Load { .. })).count() as f64;
        let values = loads + draft.sinks.len() as f64;
        let terms = draft.term_axes.len() as f64;
        // Live values: what is loaded and stored, and a part of what lies between.
        self.work.registers = if gpu { 14.0 + 2.0 * values + terms.sqrt() } else { 2.0 + values + terms.sqrt() };
        let folds = draft.folds().count() as f64;
        match roles {
            Roles::Map => {
                let width = if gpu { 4.0 } else { 4096.0 };
                let threads: f64 = if gpu { 256.0 } else { 1.0 };
                self.work.divide((points / (threads * width)).ceil(), threads);
            }
            Roles::Row { along, placement } => {
                let length = self.extent(*along).max(1.0);
                let rows = self.extent(all.without(*along)).max(1.0);
                let parts = if let Placement::Split(parts) = placement { f64::from(*parts) } else { 1.0 };
                let threads = if gpu { (length / parts / 4.0).clamp(32.0, 1024.0) } else { 1.0 };
                let together = if gpu { 128.0 / threads } else { 4096.0 / length };
                // No more rows than there are.
                let together = together.min(rows).max(1.0);
                self.work.divide((rows * parts / together).ceil(), threads * together);
                // Where neighbours in memory belong to different rows, they are folded side by side.
                let crosses = self.read_axis().or(self.inner_axis()).is_none_or(|axis| along.contains(axis));
                let meetings = if gpu { 2.0 * folds } else { folds * together };
                self.work.barriers = if crosses { meetings } else { 0.0 };
                self.work.launches = if parts > 1.0 { 2.0 } else { 1.0 };
                let held =
                    draft.leaves.iter().filter(|l| matches!(l.op, LeafOp::Load { .. }) && along.is_within(l.axes));
                let row: f64 = held.map(|l| length * l.dtype.bits() as f64 / 8.0).sum();
                match placement {
                    Placement::Registers if gpu => self.work.registers += row / 4.0 / threads,
                    Placement::OnChip => self.work.on_chip = row,
                    _ => {}
                }
            }
            Roles::Column { across, along, parts } => {
                let independent = self.extent(all.without(*across).without(*along)).max(1.0);
                let threads: f64 = if gpu { 256.0 } else { 1.0 };
                let blocks = (independent / if gpu { threads } else { 64.0 }).ceil() * f64::from(*parts);
                self.work.divide(blocks, threads);
                self.work.launches = if *parts > 1 { 2.0 } else { 1.0 };
                self.work.barriers = folds;
            }
            Roles::Contract { dots, shared, rows, whole_rows, .. } => {
                let tile = self.limits.tile;
                let own = rows.without(self.others(dots, *shared));
                let wide = self.wide(dots, *rows);
                let tile_columns = |n: f64| if *whole_rows { n } else { f64::from(tile.columns) };
                // No tile has rows of two batches.
                let down = self.extent(rows.without(own)) * (self.extent(own) / f64::from(tile.rows)).ceil();
                let tiles: f64 = wide.iter().map(|n| down * (n / tile_columns(*n)).ceil()).sum();
                let threads: f64 = if gpu { 256.0 } else { 1.0 };
                self.work.divide(tiles, threads);
                let element = self.factor_bytes(dots[0]);
                let widest = wide.iter().map(|n| tile_columns(*n)).fold(0.0, f64::max);
                let held = f64::from(tile.rows) * widest;
                if gpu {
                    self.work.registers += held / threads;
                    // Whole rows need all columns of an operand at each step of the sum.
                    let stage = (f64::from(tile.rows) + widest) * f64::from(tile.depth) * element;
                    self.work.on_chip = 3.0 * stage;
                } else if *whole_rows {
                    self.work.on_chip = held * 4.0;
                }
                self.work.barriers = if *whole_rows { 2.0 * folds } else { 0.0 };
            }
            Roles::Attention { first, second, rows, columns, inner, .. } => {
                let tile = self.limits.stream_tile;
                let own = self.queried(*first, *second, *rows);
                let (down, streamed) = (f64::from(tile.rows), f64::from(tile.columns));
                let threads: f64 = if gpu { 256.0 } else { 1.0 };
                self.work.divide(self.extent(rows.without(own)) * (self.extent(own) / down).ceil(), threads);
                if gpu {
                    let (width, inner) = (self.extent(*columns), self.extent(*inner));
                    self.work.registers += down * (width + streamed) / threads;
                    // The rows of the first factor stay; of both streamed operands one tile is there, in turns.
                    self.work.on_chip = (down * inner + streamed * (inner + width)) * self.factor_bytes(*first);
                }
                self.work.barriers = 2.0;
            }
        }
    }
}

/// The axis along which coordinates step to the next element in memory, or stay close to it: quotients and remainders
/// jump now and then, but neighbours read from one line.
fn unit_axis(index: &[Dim]) -> Option<usize> {
    let last = index.iter().rev().find(|d| d.as_int().is_none())?;
    if let Some(Symbol::Axis(axis)) = last.as_symbol() {
        return Some(usize::from(*axis));
    }
    let steps_by_one = |axis: &usize| {
        let step = last.substitute(&|s| (*s == Symbol::Axis(*axis as u8)).then(|| Dim::axis(*axis) + 1));
        (step - last).is(1)
    };
    let mentioned = AxisSet::mentioned(last);
    mentioned.iter().find(steps_by_one).or_else(|| mentioned.iter().find(|axis| stays_close(last, *axis)))
}

/// Whether the first steps along an axis, the others at rest, stay within about as many elements.
fn stays_close(index: &Dim, axis: usize) -> bool {
    const STEPS: i64 = 8;
    const USUAL_SIZE: i64 = 1024;
    let at = |k: i64| {
        index.eval_with(&|s| match s {
            Symbol::Axis(a) if usize::from(*a) == axis => Some(k),
            Symbol::Axis(_) => Some(0),
            _ => Some(USUAL_SIZE),
        })
    };
    let Ok(places) = (0..STEPS).map(at).collect::<Result<Vec<i64>, _>>() else { return false };
    let (low, high) = (places.iter().min(), places.iter().max());
    low.zip(high).is_some_and(|(low, high)| low < high && high - low <= STEPS)
}

/// The type in which values are computed: narrow floats are widened.
fn arithmetic_dtype(dtype: DType) -> DType {
    match dtype {
        DType::F64 | DType::I64 | DType::U64 => DType::F64,
        _ => DType::F32,
    }
}
