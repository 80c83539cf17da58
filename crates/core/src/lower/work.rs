//! What a draft does under a schedule, as the numbers that a price follows from.

mod repeats;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use repeats::Repeats;

use super::classify::{Hints, Limits, Roles, extent};
use super::draft::{Draft, LeafOp, Place};
use super::tiling::queried;
use crate::analysis::{Stream, Work};
use crate::device::{DeviceSpec, Machine, Unit};
use crate::graph::Value;
use crate::ops::prim::Monoid;
use crate::ops::{ExprNode, Scalar};
use crate::tensor::{DType, Dim, Symbol};
use crate::tile::AxisSet;

/// What everything about a draft's work follows from.
pub(super) struct Meter<'a> {
    pub(super) draft: &'a Draft,
    pub(super) facts: &'a Facts,
    pub(super) spec: &'a DeviceSpec,
    pub(super) hints: &'a Hints,
    pub(super) limits: &'a Limits,
    pub(super) work: Work,
}

/// What does not hang on a schedule and its tiles.
#[derive(Debug)]
pub struct Facts {
    /// for each leaf that loads, the axis along which what it reads lies side by side
    pub(super) loads: Vec<Option<usize>>,
    /// for each sink, the axis along which it writes side by side
    pub(super) sinks: Vec<Option<usize>>,
    steps: Vec<Operation>,
    /// see [`multiply_adds`]
    ridden: FxHashSet<Place>,
}

/// A step of a draft, with its function and type.
type Operation = (Place, Scalar, DType);

impl Facts {
    /// The facts about a draft.
    pub fn of(draft: &Draft) -> Facts {
        let unit = |op: &LeafOp| match op {
            LeafOp::Load { index, .. } => unit_axis(index),
            _ => None,
        };
        let steps = steps(draft);
        Facts {
            loads: draft.leaves.iter().map(|leaf| unit(&leaf.op)).collect(),
            sinks: draft.sinks.iter().map(|sink| unit_axis(&sink.index)).collect(),
            ridden: multiply_adds(draft, &steps),
            steps,
        }
    }
}

/// Where what a kernel reads comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// another kernel has just written it
    Fresh,
    /// it is the same in every run: what follows from it alone is done once
    Constant,
    /// the caller has given it
    Given,
}

/// What a kernel does, as decisions are priced by. `is_fresh` tells which inputs another kernel has just written.
pub fn work(
    draft: &Draft,
    facts: &Facts,
    roles: &Roles,
    limits: &Limits,
    spec: &DeviceSpec,
    hints: &Hints,
    is_fresh: &dyn Fn(Value) -> bool,
) -> Work {
    let whence = |value: Value| if is_fresh(value) { Whence::Fresh } else { Whence::Given };
    Meter { draft, facts, spec, hints, limits, work: Work::default() }.measured(roles, &whence)
}

/// What a kernel of a processor does, with what it takes to make its products; `whence` tells where inputs come from.
pub fn work_in_detail(
    draft: &Draft,
    roles: &Roles,
    limits: &Limits,
    spec: &DeviceSpec,
    hints: &Hints,
    whence: &dyn Fn(Value) -> Whence,
) -> Work {
    let facts = &Facts::of(draft);
    let work = Work { is_detailed: true, ..Work::default() };
    Meter { draft, facts, spec, hints, limits, work }.measured(roles, whence)
}

/// Lines that stay in the nearest cache from one row to the next, where each row reads one element of each. Strides are mostly powers of two, which
/// few ways serve.
const MOST_LINES: f64 = 64.0;

/// Operations that it takes a GPU to bring an element of an operand by hand to where units for matrices read it.
const BY_HAND: f64 = 48.0;

/// What dots take besides whose factors are read under conditions on results, in operations on vectors. For each operation, where each result has factors of its own: 3 × 3
/// windows of 128 channels, a third of 384, ran at a twenty-eighth of the rate of products.
const CUT_TERM: f64 = 12.0;

/// For each element of such a factor, where tiles are multiplied: 4 rows by 1152 × 128, a third of 384 columns, took 57 µs instead of 19.
const CUT_ELEMENT: f64 = 16.0;

impl Meter<'_> {
    fn measured(mut self, roles: &Roles, whence: &dyn Fn(Value) -> Whence) -> Work {
        let whence = |input: usize| whence(self.draft.inputs[input].0);
        let repeats = self.repeats(roles);
        self.traffic(&repeats, roles, &whence);
        self.arithmetic(&repeats, roles, &whence);
        self.divide(roles);
        self.work
    }

    pub(super) fn extent(&self, axes: AxisSet) -> f64 {
        extent(self.draft, axes, self.hints)
    }

    /// How often a processor does a step that varies along its innermost loop: for every point of the axes outside that it does not vary over,
    /// too. Other steps leave the loop; and on a GPU, every thread has its own anyway.
    fn in_loops(&self, axes: AxisSet, roles: &Roles, inner: Option<usize>) -> f64 {
        let within = match roles {
            _ if self.spec.kind == Machine::Gpu => return 1.0,
            Roles::Map => self.draft.all_axes(),
            Roles::Row { along, .. } => *along,
            Roles::Column { .. } | Roles::Contract { .. } | Roles::Attention { .. } => return 1.0,
        };
        let varies = inner.is_some_and(|axis| within.contains(axis) && axes.contains(axis));
        if varies { self.extent(self.draft.all_axes().without(axes)).max(1.0) } else { 1.0 }
    }

    /// The rows of two joined dots that read the same streamed operands.
    pub(super) fn queried(&self, roles: &Roles) -> AxisSet {
        match roles {
            Roles::Attention { first, second, rows, .. } => queried(self.draft, *first, *second, *rows),
            _ => AxisSet::EMPTY,
        }
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
            Roles::Attention { .. } => {
                let tile = f64::from(self.limits.stream_tile.rows);
                let tiles = self.spec.tiles(self.draft.factor_dtype(dot).unwrap_or(DType::F32));
                let least = tiles.iter().map(|t| f64::from(t.rows)).fold(f64::INFINITY, f64::min);
                padded(self.extent(self.queried(roles)), tile) * (least / tile).max(1.0)
            }
            _ => 1.0,
        }
    }

    /// What a processor does besides for a dot that is wanted for a part of its results alone, as where it is a part of a concatenation, in operations on vectors: it
    /// computes all of them, of factors that must not be read elsewhere.
    fn cut(&self, dot: usize, roles: &Roles) -> f64 {
        let LeafOp::Dot { a, b, over, .. } = self.draft.leaves[dot].op else { return 0.0 };
        let results = self.draft.leaves[dot].axes;
        // Two tensors one behind the other are conditions too, but not the same for both.
        let is_cut = |place: &Place| {
            let leaves = self.draft.leaves_of(*place);
            let mut conditions = leaves.iter().filter_map(|leaf| match &self.draft.leaves[*leaf].op {
                LeafOp::Load { guard, .. } => Some(guard),
                _ => None,
            });
            let Some(first) = conditions.next() else { return false };
            let others: Vec<_> = conditions.collect();
            first.iter().any(|guard| {
                let axes = AxisSet::mentioned(&guard.index);
                let of_results = !axes.is_empty() && axes.is_within(results) && axes.common(over).is_empty();
                of_results && others.iter().all(|other| other.contains(guard))
            })
        };
        let cut: SmallVec<[Place; 2]> = [a, b].into_iter().filter(is_cut).collect();
        let has_tiles = !matches!(roles, Roles::Contract { columns, .. } if columns.is_empty());
        match has_tiles {
            true => cut.iter().map(|place| CUT_ELEMENT * self.extent(self.draft.axes_of(*place))).sum(),
            false if cut.is_empty() => 0.0,
            false => CUT_TERM * 2.0 * self.extent(results.union(over)),
        }
    }

    /// The axes of the factors that are not shared.
    pub(super) fn others(&self, dots: &[usize], shared: Place) -> AxisSet {
        let other = |dot: &usize| match &self.draft.leaves[*dot].op {
            LeafOp::Dot { a, b, .. } => self.draft.axes_of(if *a == shared { *b } else { *a }),
            _ => AxisSet::EMPTY,
        };
        dots.iter().map(other).fold(AxisSet::EMPTY, AxisSet::union)
    }

    /// The columns of contractions that share a factor with these rows. Where several have the same, they lie in turns in
    /// one tile, as if there were as many columns more.
    pub(super) fn wide(&self, dots: &[usize], rows: AxisSet) -> Vec<f64> {
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
    pub(super) fn factor_bytes(&self, dot: usize) -> f64 {
        self.draft.factor_dtype(dot).map_or(4.0, |dtype| dtype.bits() as f64 / 8.0)
    }

    /// Whether a term is nothing but elements of a tensor, widened perhaps.
    fn is_copied(&self, place: Place) -> bool {
        let (node, dtype) = self.draft.scope.with_nodes(|nodes| nodes[place as usize].clone());
        match node {
            ExprNode::Arg(k) => {
                matches!(&self.draft.leaves[k as usize].op, LeafOp::Load { guard, .. } if guard.is_empty())
            }
            ExprNode::Cast(x) => {
                let from = self.draft.scope.term(x).dtype();
                from.is_float() && from.bits() <= dtype.bits() && self.is_copied(x)
            }
            _ => false,
        }
    }

    /// Whether a term reads a sum of products, directly or not.
    pub(super) fn reads_dot(&self, place: Place) -> bool {
        self.reads(place, &LeafOp::is_dot)
    }

    /// Whether a term reads a fold that is no sum of products, directly or not: an operand that is a norm.
    pub(super) fn reads_fold(&self, place: Place) -> bool {
        self.reads(place, &|op| op.is_fold() && !op.is_dot())
    }

    fn reads(&self, place: Place, is_wanted: &dyn Fn(&LeafOp) -> bool) -> bool {
        let (mut todo, mut seen) = (vec![place], FxHashSet::default());
        while let Some(place) = todo.pop() {
            for leaf in self.draft.leaves_of(place).into_iter().filter(|leaf| seen.insert(*leaf)) {
                let op = &self.draft.leaves[leaf].op;
                if is_wanted(op) {
                    return true;
                }
                todo.extend(op.operands());
            }
        }
        false
    }

    /// The axis along which the results lie side by side.
    pub(super) fn inner_axis(&self) -> Option<usize> {
        let sinks = self.draft.sinks.iter().zip(&self.facts.sinks);
        sinks.max_by(|(a, _), (b, _)| self.extent(a.axes).total_cmp(&self.extent(b.axes))).and_then(|(_, unit)| *unit)
    }

    /// The axis along which what is read lies side by side.
    pub(super) fn read_axis(&self) -> Option<usize> {
        let loads = self.draft.leaves.iter().zip(&self.facts.loads).filter_map(|(leaf, unit)| match &leaf.op {
            LeafOp::Load { .. } => Some((self.extent(leaf.axes), unit)),
            _ => None,
        });
        loads.max_by(|a, b| a.0.total_cmp(&b.0)).and_then(|(_, unit)| *unit)
    }

    fn traffic(&mut self, repeats: &Repeats, roles: &Roles, whence: &dyn Fn(usize) -> Whence) {
        let draft = self.draft;
        let inner = self.inner_axis();
        // Tiles and rows are gathered on chip, so that only whole lines matter; maps read as they write.
        let gathers = !matches!(roles, Roles::Map);
        // A processor packs every factor of a product by itself, also where two are parts of one tensor.
        let packs = self.spec.kind == Machine::Cpu && matches!(roles, Roles::Contract { .. });
        let mut streams: Vec<(bool, Stream)> = Vec::with_capacity(draft.inputs.len());
        for (k, (_, ty)) in draft.inputs.iter().enumerate() {
            let element = ty.dtype.bits() as f64 / 8.0;
            let whole = ty.shape.dims().iter().map(|d| self.hints.size(d)).product::<f64>();
            let (mut elements, mut passes, mut run, mut access) = (0.0, 1.0_f64, f64::INFINITY, f64::INFINITY);
            for (l, leaf) in draft.leaves.iter().enumerate() {
                let LeafOp::Load { input, .. } = &leaf.op else { continue };
                if *input != k {
                    continue;
                }
                elements += self.extent(leaf.axes).min(whole);
                passes = passes.max(repeats.passes[l]);
                if let Some(axis) = self.facts.loads[l].filter(|_| !ty.shape.dims().is_empty()) {
                    // Rows whose results lie side by side as the tensor does are worked on abreast.
                    let across = if Some(axis) == inner { 0.0 } else { self.across_rows(leaf.axes, axis, roles) };
                    let together = if across > MOST_LINES { 1.0 } else { self.hints.size(&draft.axes[axis]) };
                    run = run.min(together * element);
                    if across > 0.0 || Some(axis) != inner && !gathers {
                        access = access.min(element);
                    }
                } else if !leaf.axes.is_empty() {
                    (run, access) = (run.min(element), access.min(element));
                }
            }
            if packs && self.work.is_detailed {
                // Tiles read what was put into rows for them; what that takes is counted where it is done.
                (run, access) = (f64::INFINITY, f64::INFINITY);
            }
            let bytes = if packs { elements } else { elements.min(whole) } * element;
            let between = self.between(roles, element).min(bytes);
            streams.push((whence(k) == Whence::Fresh, Stream::of(bytes).again(passes, between).strided(access, run)));
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

    /// How many lines a row of a processor touches of a tensor that lies across its rows, side by side along another axis: an element of each.
    fn across_rows(&self, axes: AxisSet, side_by_side: usize, roles: &Roles) -> f64 {
        match roles {
            Roles::Row { along, .. } if self.spec.kind == Machine::Cpu && !along.contains(side_by_side) => {
                let own = axes.common(*along);
                if own.is_empty() { 0.0 } else { self.extent(own) }
            }
            _ => 0.0,
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
            // The tiles that all cores work on at a time walk along the sum together, a few stages apart; what several of them need,
            // each fetches by itself.
            Machine::Gpu => (rows + columns) * 4.0 * depth * element * self.spec.limits.cores as f64,
        }
    }

    fn arithmetic(&mut self, repeats: &Repeats, roles: &Roles, whence: &dyn Fn(usize) -> Whence) {
        let (draft, Facts { steps, ridden, .. }) = (self.draft, self.facts);
        if self.spec.kind == Machine::Gpu {
            let waits = |(place, op, _): &Operation| {
                repeats.before.contains(place) && op.def().flops > 0 && !draft.axes_of(*place).is_empty()
            };
            self.work.serial = match roles {
                // The scores of one tile are worked on while others are multiplied.
                Roles::Attention { .. } => 0.25,
                // Matrix units wait for operands that are computed.
                _ if !repeats.operands.is_empty() && steps.iter().any(waits) => 1.0,
                // Folds of whole rows wait for the end of their sums, and few such tiles share a core.
                Roles::Contract { whole_rows: true, .. } => 0.5,
                _ => 0.0,
            };
        }
        let inner = self.inner_axis();
        for (place, op, dtype) in steps.iter().copied() {
            let axes = draft.axes_of(place);
            let again =
                repeats.prologue.iter().filter(|(of, _)| repeats.before.contains(&place) && axes.is_within(*of));
            let times = again.map(|(_, times)| *times).fold(self.in_loops(axes, roles, inner), f64::max);
            let count = self.extent(axes) * times;
            match ridden.contains(&place) {
                true => self.work.ridden += count,
                false => _ = self.work.scalar(op, count, arithmetic_dtype(dtype)),
            }
        }
        if self.spec.kind == Machine::Gpu {
            // Operands that are copied as they lie come by themselves; others pass through registers, one by one.
            for ((dot, operand), (axes, times)) in repeats.operands.iter().zip(&repeats.prologue) {
                let is_narrow = draft.factor_dtype(*dot).is_some_and(|dtype| dtype.is_float() && dtype.bits() <= 16);
                if is_narrow && !self.is_copied(*operand) && !self.reads_dot(*operand) {
                    let count = BY_HAND * self.extent(*axes) * times;
                    self.work.operate(Unit::Elementwise(DType::F32), count);
                }
            }
        }
        for (k, leaf) in draft.leaves.iter().enumerate() {
            match &leaf.op {
                LeafOp::Dot { over, .. } => {
                    let dtype = draft.factor_dtype(k).unwrap_or(leaf.dtype);
                    let flops = 2.0 * self.extent(leaf.axes.union(*over));
                    self.work.dot(flops, dtype, self.spec);
                    if self.spec.kind == Machine::Cpu {
                        self.work.moves += self.cut(k, roles);
                    }
                    let is_on_vectors = self.work.is_detailed && self.spec.dot_unit(dtype) == Unit::Fma(dtype);
                    let padding = match roles {
                        Roles::Contract { .. } if is_on_vectors => self.bring_factors(k, whence),
                        Roles::Attention { stream, .. } if is_on_vectors => self.stream_padding(k, *stream),
                        _ => self.padding(k, roles),
                    };
                    self.work.padding = self.work.padding.max(padding);
                }
                LeafOp::Reduce { over, arg, .. } => {
                    let count = self.extent(leaf.axes.union(*over)) * repeats.folds[k];
                    self.work.operate(Unit::Elementwise(arithmetic_dtype(leaf.dtype)), count);
                    if self.work.is_detailed && !leaf.axes.without(*over).is_empty() {
                        let more = self.slide(*arg, *over, whence);
                        self.work.moves += count * (more - 1.0);
                    }
                }
                LeafOp::Prefix { .. } => {
                    let count = self.extent(leaf.axes) * repeats.folds[k];
                    self.work.operate(Unit::Elementwise(arithmetic_dtype(leaf.dtype)), 2.0 * count);
                }
                LeafOp::Random { .. } => {
                    let count = self.extent(leaf.axes);
                    self.work.operate(Unit::Elementwise(DType::I32), 15.0 * count);
                }
                LeafOp::Load { .. } | LeafOp::Let { .. } => {}
            }
        }
        if self.work.is_detailed {
            self.bring_streamed(roles, whence);
        }
    }
}

/// The steps that anything is computed from.
fn steps(draft: &Draft) -> Vec<Operation> {
    let mut reached = FxHashSet::default();
    let mut todo: Vec<Place> = draft.ends().collect();
    let mut steps: Vec<Operation> = Vec::new();
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
    steps
}

/// Who adds a product up.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Adder {
    Step(Place),
    Leaf(usize),
}

/// The products that nothing but sums read, each of which takes one: an instruction that adds multiplies besides.
fn multiply_adds(draft: &Draft, steps: &[Operation]) -> FxHashSet<Place> {
    let is_product = |place: &Place| {
        let at = steps.binary_search_by_key(place, |(place, ..)| *place);
        at.is_ok_and(|at| steps[at].1 == Scalar::Mul && steps[at].2.is_float())
    };
    // For each product its sums, none where something else reads it too.
    let mut adders: FxHashMap<Place, Option<SmallVec<[Adder; 2]>>> = FxHashMap::default();
    let mut read = |place: Place, by: Option<Adder>| {
        let known = adders.entry(place).or_insert_with(|| Some(SmallVec::new()));
        match (known.as_mut(), by) {
            (Some(known), Some(by)) => known.push(by),
            _ => *known = None,
        }
    };
    draft.scope.with_nodes(|nodes| {
        for (place, op, _) in steps {
            let adds = matches!(op, Scalar::Add | Scalar::Sub);
            for operand in nodes[*place as usize].0.operands().iter().copied() {
                let same_loops = draft.axes_of(operand) == draft.axes_of(*place);
                read(operand, (adds && same_loops).then_some(Adder::Step(*place)));
            }
        }
    });
    for (k, leaf) in draft.leaves.iter().enumerate() {
        let sums = matches!(&leaf.op, LeafOp::Reduce { monoid: Monoid::Sum, .. });
        leaf.op.operands().into_iter().for_each(|operand| read(operand, sums.then_some(Adder::Leaf(k))));
    }
    draft.sinks.iter().for_each(|sink| read(sink.term, None));
    let mut products: Vec<(Place, SmallVec<[Adder; 2]>)> =
        adders.into_iter().filter(|(place, _)| is_product(place)).filter_map(|(p, a)| Some((p, a?))).collect();
    products.sort_unstable_by_key(|(place, _)| *place);
    let (mut ridden, mut busy) = (FxHashSet::default(), FxHashSet::default());
    for (product, adders) in products {
        if adders.iter().any(|adder| busy.contains(adder)) {
            continue;
        }
        ridden.insert(product);
        busy.extend(adders);
    }
    ridden
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
