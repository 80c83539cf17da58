//! Kernels in which some threads own a row: they walk along it in passes, and fold what each has found.
//!
//! A pass does all folds whose terms are known by then, and the stores whose values are. What a later pass needs again is held in
//! registers or in shared memory, every thread its own part; so only folds bring threads together, once a pass.

use fuseline::error::{Error, Result};
use fuseline::tensor::Dim;
use fuseline::tile::{AxisSet, Op, StepId};

use super::body::{Accumulator, Body, Lanes, pack_width};
use super::code::Code;
use super::element;
use super::function::{Function, Grid};
use super::nest::{Nest, is_multiple, slope};
use super::points::decode;

/// Threads of a block where rows are short.
const THREADS: i64 = 128;

/// Threads that give every processor a block.
const ENOUGH_THREADS: i64 = 132 * THREADS;

/// Elements of a row that a thread takes where nothing speaks against it.
const SHARE: i64 = 32;

/// Registers of values that are held, for each thread of a block of up to 512; larger blocks have few.
const MOST_REGISTERS: i64 = 80;

/// Bytes of shared memory for values that are held: two blocks share a multiprocessor, so that one reads while the other computes.
const MOST_SHARED: i64 = 112 << 10;

/// Packs of 16 bytes.
const PACK_BYTES: i64 = 16;

/// Whether a kernel's folds are all along these axes, so that its rows can be owned.
pub(super) fn fits(nest: &Nest<'_>, stores: &[usize], along: AxisSet) -> bool {
    let needed = nest.needed(stores);
    let folds = (0..needed.len()).filter(|k| needed[*k] && nest.kernel.steps[*k].op.is_fold());
    let whole =
        folds.into_iter().all(|k| nest.folds[k] == along && !matches!(nest.kernel.steps[k].op, Op::Prefix { .. }));
    whole && !along.is_empty() && !nest.count(along).is(0)
}

/// The function that computes some stores, rows being along these axes.
pub(super) fn rows(nest: &Nest<'_>, stores: &[usize], along: AxisSet, sites: Vec<String>) -> Result<Function> {
    let plan = Plan::new(nest, stores, along);
    let mut body = Body::new(nest, Some(plan.lanes), sites);
    plan.print_head(&mut body);
    for pass in 0..plan.passes.len() {
        plan.print_pass(&mut body, pass)?;
    }
    let one = if plan.threads > 1 { Some("t == 0") } else { None };
    for store in &plan.row_stores {
        let live: Vec<&str> = one.into_iter().chain(plan.live()).collect();
        let live = live.join(" && ");
        body.store(*store, (!live.is_empty()).then_some(live.as_str()))?;
    }
    let blocks = plan.rows.ceildiv(&Dim::int(plan.rows_of_block));
    let threads = u32::try_from(plan.block()).map_err(|_| Error::bug("a block of too many threads"))?;
    let shared = u32::try_from(plan.shared_bytes).map_err(|_| Error::bug("more shared memory than there is"))?;
    let what = plan.describe();
    let least_blocks = plan.holds_much.then(|| (512 / threads).max(1));
    Ok(Function::new(body, Grid { blocks, threads, shared, least_blocks, cluster: 1 }, what))
}

/// What is held between passes, and where.
#[derive(Clone, Debug)]
struct Held {
    step: StepId,
    /// the pass that computes it
    first: usize,
    /// the type of its elements; those of a load are held as they lie in memory
    ty: &'static str,
    bytes: i64,
    is_pack: bool,
}

/// Where held values lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Registers,
    Shared,
    /// nowhere: they are read and computed again
    Again,
}

#[derive(Clone, Debug, Default)]
struct Pass {
    folds: Vec<StepId>,
    stores: Vec<usize>,
    /// what it takes from earlier passes
    takes: Vec<StepId>,
}

/// What passes take from earlier ones.
struct Takes {
    by_pass: Vec<Vec<StepId>>,
    held: Vec<Held>,
}

struct Plan<'n, 'k> {
    nest: &'n Nest<'k>,
    along: AxisSet,
    /// the axes of a row, the outermost first
    order: Vec<usize>,
    row_axes: Vec<usize>,
    rows: Dim,
    lanes: Lanes,
    /// packs of a row
    packs: Dim,
    /// threads of a row
    threads: i64,
    rows_of_block: i64,
    /// packs of a thread; none where they are not known
    turns: Option<i64>,
    passes: Vec<Pass>,
    row_stores: Vec<usize>,
    held: Vec<Held>,
    place: Place,
    /// whether registers hold so much that there is hardly room for more blocks
    holds_much: bool,
    shared_bytes: i64,
}

impl<'n, 'k> Plan<'n, 'k> {
    fn new(nest: &'n Nest<'k>, stores: &[usize], along: AxisSet) -> Plan<'n, 'k> {
        let lanes = choose_lanes(nest, along);
        let order = order_axes(nest, along, lanes);
        let row_axes: Vec<usize> = outer_axes(nest, stores).without(along).iter().collect();
        let rows = nest.count(row_axes.iter().copied().collect());
        let length = nest.count(along);
        let packs = length.floordiv(&Dim::int(lanes.count));
        let (passes, row_stores) = passes(nest, stores, along);
        let mut plan = Plan {
            nest,
            along,
            order,
            row_axes,
            rows,
            lanes,
            packs,
            threads: 256,
            rows_of_block: 1,
            turns: None,
            passes,
            row_stores,
            held: Vec::new(),
            place: Place::Again,
            holds_much: false,
            shared_bytes: 0,
        };
        plan.share();
        plan.hold();
        plan
    }

    /// Divides rows among threads.
    fn share(&mut self) {
        let Some(packs) = self.packs.as_int() else { return };
        let least = packs.max(1).unsigned_abs().next_power_of_two().min(32) as i64;
        let wanted = (packs * self.lanes.count).div_euclid(SHARE).max(1).unsigned_abs().next_power_of_two() as i64;
        self.threads = wanted.max(least).min(if packs * self.lanes.count > 32 << 10 { 1024 } else { 512 });
        // Where rows are few, more threads share each of them.
        if let Some(rows) = self.nest.options.about.apply(&self.rows).as_int() {
            while self.threads * 2 <= packs.min(THREADS) && rows * self.threads < ENOUGH_THREADS {
                self.threads *= 2;
            }
        }
        // Warps of a row meet where those of another one would: it owns its block.
        self.rows_of_block = if self.threads > 32 { 1 } else { (THREADS / self.threads).max(1) };
        if let Some(rows) = self.rows.as_int() {
            while self.rows_of_block > 1 && self.rows_of_block / 2 >= rows {
                self.rows_of_block /= 2;
            }
        }
        self.turns = Some((packs + self.threads - 1) / self.threads);
    }

    fn block(&self) -> i64 {
        // Whole warps, so that everybody is there where lanes are folded.
        (self.threads * self.rows_of_block + 31) / 32 * 32
    }

    /// Decides what is held, and where: costly values too, if there is room for them, otherwise what is loaded.
    fn hold(&mut self) {
        if self.turns.is_none() {
            return;
        }
        let (all, loads) = (self.takes(true), self.takes(false));
        let registers = 4 * if self.block() > 512 { MOST_REGISTERS / 4 } else { MOST_REGISTERS };
        let shared = MOST_SHARED / self.block();
        for (takes, most, place) in [
            (&all, registers, Place::Registers),
            (&loads, registers, Place::Registers),
            (&all, shared, Place::Shared),
            (&loads, shared, Place::Shared),
        ] {
            let bytes = self.bytes(takes);
            // Registers are free again once the last pass has taken a value; shared memory is divided for good.
            let wanted = if place == Place::Registers { self.bytes_at_once(takes) } else { bytes };
            if wanted <= most {
                self.place = place;
                self.holds_much = place == Place::Registers && wanted >= 128;
                self.shared_bytes = if place == Place::Shared { bytes * self.block() } else { 0 };
                self.held = takes.held.clone();
                self.passes.iter_mut().zip(&takes.by_pass).for_each(|(pass, takes)| pass.takes = takes.clone());
                return;
            }
        }
    }

    /// Bytes of a thread that holding takes.
    fn bytes(&self, takes: &Takes) -> i64 {
        let element: i64 = takes.held.iter().map(|held| held.bytes).sum();
        element * self.lanes.count * self.turns.unwrap_or(1)
    }

    /// The most bytes of a thread that are held between two passes.
    fn bytes_at_once(&self, takes: &Takes) -> i64 {
        let last = |held: &Held| takes.by_pass.iter().rposition(|taken| taken.contains(&held.step)).unwrap_or(0);
        let between = (0..self.passes.len()).map(|pass| {
            let held = takes.held.iter().filter(|held| held.first <= pass && last(held) > pass);
            held.map(|held| held.bytes).sum::<i64>()
        });
        between.max().unwrap_or(0) * self.lanes.count * self.turns.unwrap_or(1)
    }

    /// What passes take from earlier ones.
    fn takes(&self, costly: bool) -> Takes {
        let mut first: Vec<Option<usize>> = vec![None; self.nest.kernel.steps.len()];
        let mut by_pass: Vec<Vec<StepId>> = vec![Vec::new(); self.passes.len()];
        for (number, pass) in self.passes.iter().enumerate() {
            let roots = pass.folds.iter().flat_map(|fold| self.nest.kernel.step(*fold).op.operands());
            let roots = roots.chain(pass.stores.iter().map(|store| self.nest.stores[*store].value));
            let mut stack: Vec<StepId> = roots.collect();
            let mut seen = vec![false; first.len()];
            while let Some(id) = stack.pop() {
                if !self.varies(id) || std::mem::replace(&mut seen[id.index()], true) {
                    continue;
                }
                match first[id.index()] {
                    Some(before) if before < number && self.is_worth_holding(id, costly) => by_pass[number].push(id),
                    _ => {
                        first[id.index()].get_or_insert(number);
                        stack.extend(self.nest.kernel.step(id).op.operands());
                    }
                }
            }
        }
        let mut all: Vec<StepId> = by_pass.iter().flatten().copied().collect();
        all.sort();
        all.dedup();
        let held = all.into_iter().map(|id| self.held_as(id, first[id.index()].unwrap_or(0))).collect();
        Takes { by_pass, held }
    }

    fn held_as(&self, step: StepId, first: usize) -> Held {
        let dtype = self.nest.kernel.step(step).dtype;
        if let Op::Load { .. } = self.nest.kernel.step(step).op {
            let access = self.nest.load(step);
            let is_plain = pack_width(self.nest, access, self.lanes).is_some() && self.lanes.count > 1;
            if let (true, Ok(ty)) = (is_plain, element::stored(access.tensor.dtype)) {
                return Held { step, first, ty, bytes: element::bytes(access.tensor.dtype), is_pack: true };
            }
        }
        let ty = element::held(dtype);
        let bytes = if ty.ends_with("long long") || ty == "double" { 8 } else { 4 };
        Held { step, first, ty, bytes, is_pack: false }
    }

    fn varies(&self, id: StepId) -> bool {
        !self.nest.axes[id.index()].common(self.along).is_empty()
    }

    /// Whether holding a value costs less than reading or computing it again.
    fn is_worth_holding(&self, id: StepId, costly: bool) -> bool {
        let rows: AxisSet = self.row_axes.iter().copied().collect();
        match &self.nest.kernel.step(id).op {
            // What all rows read is near after the first one.
            Op::Load { .. } => !self.nest.axes[id.index()].common(rows).is_empty(),
            Op::Map { .. } if !costly => false,
            Op::Map { expr, args } => expr.flops() >= 8 || args.iter().filter(|arg| self.varies(**arg)).count() >= 2,
            _ => true,
        }
    }

    fn live(&self) -> Option<&'static str> {
        (!is_multiple(&self.rows, self.rows_of_block) || self.block() != self.threads * self.rows_of_block)
            .then_some("live")
    }

    fn describe(&self) -> String {
        let threads = match self.threads {
            1 => "a thread walks".to_owned(),
            n => format!("{n} threads walk"),
        };
        let held = match (self.held.is_empty(), self.place) {
            (true, _) => "",
            (_, Place::Registers) => ", held in registers",
            (_, Place::Shared) => ", held in shared memory",
            (_, Place::Again) => "",
        };
        format!("{threads} a row of {} elements{held}", self.nest.count(self.along))
    }

    fn print_head(&self, body: &mut Body<'_>) {
        let (threads, group) = (self.threads, self.rows_of_block);
        if self.place == Place::Shared && !self.held.is_empty() {
            body.line("extern __shared__ __align__(16) unsigned char memory[];");
        }
        if threads == self.block() {
            body.line("const int t = threadIdx.x;");
        } else if threads > 1 {
            body.line(format!("const int t = threadIdx.x % {threads};"));
        }
        if group == 1 && self.live().is_none() {
            body.line("const Index row = blockIdx.x;");
        } else {
            let of_block = if threads == 1 { "threadIdx.x".into() } else { format!("threadIdx.x / {threads}") };
            match self.live() {
                None => body.line(format!("const Index row = (Index)blockIdx.x * {group} + {of_block};")),
                Some(live) => {
                    let total = body.index(&self.rows, &[]);
                    let last = body.index(&(&self.rows - 1), &[]);
                    body.line(format!("const Index own = (Index)blockIdx.x * {group} + {of_block};"));
                    let inside = if self.block() == threads * group {
                        format!("own < {total}")
                    } else {
                        format!("threadIdx.x < {} && own < {total}", threads * group)
                    };
                    body.line(format!("const bool {live} = {inside};"));
                    body.line(format!("const Index row = {live} ? own : {last};"));
                }
            }
        }
        decode(body, self.nest, &self.row_axes, "row", None);
        body.bind(self.row_axes.iter().copied().collect());
        let mut offset = 0;
        let turns = self.turns.unwrap_or(1);
        for held in &self.held {
            let (name, ty, count) = (held.name(), held.ty, self.lanes.count);
            if self.place == Place::Registers {
                body.line(format!("Pack<{ty}, {count}> {name}[{turns}];"));
            } else {
                body.line(format!(
                    "Pack<{ty}, {count}>* const {name} = (Pack<{ty}, {count}>*)(memory + {offset}) + threadIdx.x;"
                ));
                offset += held.bytes * count * turns * self.block();
            }
        }
    }

    fn print_pass(&self, body: &mut Body<'_>, number: usize) -> Result<()> {
        let pass = &self.passes[number];
        let accumulators: Vec<Accumulator> = pass.folds.iter().map(|fold| Accumulator::of(self.nest, *fold)).collect();
        for (fold, accumulator) in pass.folds.iter().zip(&accumulators) {
            body.line(format!("{} s{} = {};", accumulator.ty, fold.0, accumulator.neutral));
        }
        let inner = AxisSet::of(self.lanes.axis);
        let has_lanes = body.lanes.is_some();
        body.open(if has_lanes { self.along.without(inner) } else { self.along });
        self.print_place(body);
        let at = if self.place == Place::Registers { "k".to_owned() } else { format!("k * {}", self.block()) };
        let lane = if has_lanes { "l" } else { "0" };
        for held in self.held.iter().filter(|held| pass.takes.contains(&held.step)) {
            let element = Code::atom(format!("{}[{at}].at[{lane}]", held.name()));
            let dtype = self.nest.kernel.step(held.step).dtype;
            let value = if held.is_pack { element::widened(dtype, element) } else { element };
            if has_lanes { body.know_in_lanes(held.step, value) } else { body.know(held.step, value) }
        }
        body.open_lanes();
        for (fold, accumulator) in pass.folds.iter().zip(&accumulators) {
            body.accumulate(*fold, accumulator, &format!("s{}", fold.0))?;
        }
        let mut behind = Vec::new();
        for store in &pass.stores {
            behind.extend(body.store(*store, self.live())?);
        }
        for held in self.held.iter().filter(|held| held.first == number && !pass.takes.contains(&held.step)) {
            let value = body.value(held.step)?;
            if held.is_pack {
                behind.push(format!("{}[{at}] = p{};", held.name(), held.step.0));
            } else {
                body.line(format!("{}[{at}].at[{lane}] = {value};", held.name()));
            }
        }
        body.close_lanes();
        behind.into_iter().for_each(|line| body.line(line));
        self.close_loop(body);
        self.print_folds(body, &pass.folds, &accumulators);
        Ok(())
    }

    /// The coordinates of a pack.
    fn print_place(&self, body: &mut Body<'_>) {
        let count = self.lanes.count;
        let place = match (self.threads, self.turns) {
            (1, _) => "k".to_owned(),
            (_, Some(1)) => "t".to_owned(),
            (threads, _) => format!("k * {threads} + t"),
        };
        if let [only] = self.order.as_slice() {
            let place = if count == 1 {
                place
            } else if place.len() > 1 {
                format!("({place}) * {count}")
            } else {
                format!("{place} * {count}")
            };
            body.line(format!("const Index i{only} = {place};"));
        } else {
            body.line(format!("const Index place = {place};"));
            decode(body, self.nest, &self.order, "place", Some(self.lanes));
        }
    }

    fn close_loop(&self, body: &mut Body<'_>) {
        let packs = body.index(&self.packs, &[]);
        let head = match self.turns {
            Some(turns) if self.packs.is(turns * self.threads) && turns == 1 => {
                "#pragma unroll\nfor (int k = 0; k < 1; ++k)".to_owned()
            }
            Some(turns) => {
                let unroll = if self.place == Place::Registers { "#pragma unroll" } else { "#pragma unroll 4" };
                let mut head = format!("{unroll}\nfor (int k = 0; k < {turns}; ++k)");
                if !self.packs.is(turns * self.threads) {
                    let place = if self.threads == 1 { "k".to_owned() } else { format!("k * {} + t", self.threads) };
                    head.push_str(&format!(" if ({place} < {packs})"));
                }
                head
            }
            None => format!("for (Index k = 0; k * {} + t < {packs}; ++k)", self.threads),
        };
        body.close(&head);
    }

    /// Folds what the threads of a row have found; all of them know the result.
    fn print_folds(&self, body: &mut Body<'_>, folds: &[StepId], accumulators: &[Accumulator]) {
        let lanes = self.threads.min(32);
        let warps = self.threads / 32;
        for (fold, accumulator) in folds.iter().zip(accumulators) {
            if lanes > 1 {
                body.line(format!("s{0} = in_lanes<{lanes}>(s{0}, {1});", fold.0, accumulator.functor));
            }
        }
        if warps > 1 && !folds.is_empty() {
            for (fold, accumulator) in folds.iter().zip(accumulators) {
                // Rows of more than one warp own their block.
                body.line(format!("__shared__ {} part{}[{warps}];", accumulator.ty, fold.0));
                body.line(format!("if (t % 32 == 0) part{0}[t / 32] = s{0};", fold.0));
            }
            body.line("__syncthreads();");
            for (fold, accumulator) in folds.iter().zip(accumulators) {
                body.line(format!("s{0} = in_lanes<{warps}>(part{0}[t % {warps}], {1});", fold.0, accumulator.functor));
            }
        }
        for (fold, accumulator) in folds.iter().zip(accumulators) {
            let result = accumulator.result(body, &format!("s{}", fold.0));
            body.know(*fold, result);
        }
    }
}

impl Held {
    fn name(&self) -> String {
        format!("h{}", self.step.0)
    }
}

/// All axes of stores and of what they need, but for those that are folded.
fn outer_axes(nest: &Nest<'_>, stores: &[usize]) -> AxisSet {
    stores.iter().fold(AxisSet::EMPTY, |all, store| all.union(nest.stores[*store].axes))
}

/// What every pass folds and stores, and the stores that have one element a row.
fn passes(nest: &Nest<'_>, stores: &[usize], along: AxisSet) -> (Vec<Pass>, Vec<usize>) {
    let needed = nest.needed(stores);
    let mut depth = vec![0usize; needed.len()];
    let mut passes = vec![Pass::default()];
    for (k, step) in nest.kernel.steps.iter().enumerate().filter(|(k, _)| needed[*k]) {
        let below = step.op.operands().iter().map(|operand| depth[operand.index()]).max().unwrap_or(0);
        depth[k] = below;
        if step.op.is_fold() {
            depth[k] = below + 1;
            passes.resize(passes.len().max(below + 2), Pass::default());
            passes[below].folds.push(StepId(k as u32));
        }
    }
    let mut of_rows = Vec::new();
    for store in stores {
        let written = &nest.stores[*store];
        if written.axes.common(along).is_empty() {
            of_rows.push(*store);
        } else {
            passes[depth[written.value.index()]].stores.push(*store);
        }
    }
    passes.retain(|pass| !pass.folds.is_empty() || !pass.stores.is_empty());
    (passes, of_rows)
}

/// The axis of a row along which most lies side by side, and how many elements of it are read at once.
fn choose_lanes(nest: &Nest<'_>, along: AxisSet) -> Lanes {
    let is_in_line = |dim: &Dim, axis: usize| slope(dim, axis).is_some_and(|slope| slope.is(1));
    let accesses = || nest.loads().chain(nest.stores.iter().map(|store| &store.access));
    let bytes = |axis: usize| -> i64 {
        let in_line = accesses().filter(|access| is_in_line(&access.offset, axis));
        in_line.map(|access| element::bytes(access.tensor.dtype)).sum()
    };
    let axis = along.iter().max_by_key(|axis| (bytes(*axis), *axis)).unwrap_or(0);
    let in_line = accesses().filter(|access| is_in_line(&access.offset, axis));
    let narrowest = in_line.map(|access| element::bytes(access.tensor.dtype)).min();
    let mut count = narrowest.map_or(1, |bytes| (PACK_BYTES / bytes).min(8));
    while count > 1 && !is_multiple(&nest.extents[axis], count) {
        count /= 2;
    }
    Lanes { axis, count }
}

/// The axes of a row, with the lanes innermost and what lies farther apart outside.
fn order_axes(nest: &Nest<'_>, along: AxisSet, lanes: Lanes) -> Vec<usize> {
    let stride = |axis: usize| {
        let strides = nest.loads().filter_map(|access| slope(&access.offset, axis)?.as_int());
        strides.filter(|stride| *stride > 0).min().unwrap_or(i64::MAX)
    };
    let mut order: Vec<usize> = along.iter().collect();
    order.sort_by_key(|axis| (*axis == lanes.axis, std::cmp::Reverse(stride(*axis)), *axis));
    order
}
