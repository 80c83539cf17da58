//! Kernels in which some threads own a row: they walk along it in passes, and fold what each has found.
//!
//! A pass does all folds whose terms are known by then, and the stores whose values are. What a later pass needs again is held in
//! registers or in shared memory, every thread its own part; so only folds bring threads together, once a pass.
//!
//! Where columns are folded too, a block walks along many rows, and every thread keeps the folds of its own columns.

mod alike;
mod columns;
mod drawn;
mod ends;
mod hold;
mod kept;
mod lanes;
mod lifted;
mod lines;
mod meet;
mod moments;
mod online;
mod pairs;
mod pass;
mod room;
mod turns;
mod twins;

use fuseline::error::{Error, Result};
use fuseline::tensor::Dim;
use fuseline::tile::{AxisSet, Op, StepId};

use super::body::{Accumulator, Body, Lanes, Reads};
use super::code::Code;
use super::element;
use super::function::{Function, Grid};
use super::nest::{Nest, is_multiple};
use super::points::decode;

pub(super) use columns::{fits_columns, parts};
use drawn::Drawn;
use hold::{Held, Place};
use lanes::{choose_lanes, order_axes};
use moments::Moments;
use pass::{Pass, outer_axes, passes};

/// Threads of a block where rows are short.
const THREADS: i64 = 128;

/// A block that reads fewer bytes is soon done; where there are more rows than this, it has more of them then.
const LEAST_BYTES: i64 = 4 << 10;
const MANY_ROWS: i64 = 8192;

/// Threads of a row where two share a warp.
const LANES_OF_TWO: i64 = 16;

/// Passes over a row, the threads of which meet twice, and threads that may meet more often.
const MOST_PASSES: usize = 3;
const MOST_WAITING: i64 = 256;

/// Elements of a row that a thread takes where nothing speaks against it.
const SHARE: i64 = 32;

/// Bytes of a row that one block holds or reads again, which is then still near. Of longer ones, several blocks hold some elements each, and
/// a cluster has no more blocks than this.
const LONGEST: i64 = 208 << 10;
const LENGTH_OF_BLOCK: i64 = 16 << 10;
const MOST_BLOCKS: u64 = 8;
const THREADS_OF_LONG: i64 = 512;

/// Whether a kernel's folds are all along these axes, so that its rows can be owned.
pub(super) fn fits(nest: &Nest<'_>, stores: &[usize], along: AxisSet) -> bool {
    let needed = nest.needed(stores);
    let folds = (0..needed.len()).filter(|k| needed[*k] && nest.kernel.steps[*k].op.is_fold());
    let whole =
        folds.into_iter().all(|k| nest.folds[k] == along && !matches!(nest.kernel.steps[k].op, Op::Prefix { .. }));
    whole && !along.is_empty() && !nest.count(along).is(0)
}

/// How many elements of a row along these axes a thread reads at once.
pub(super) fn elements_at_once(nest: &Nest<'_>, along: AxisSet) -> i64 {
    choose_lanes(nest, along).count
}

/// The function that computes some stores, rows being along these axes.
pub(super) fn rows(nest: &Nest<'_>, stores: &[usize], along: AxisSet, sites: Vec<String>) -> Result<Function> {
    let lines = lines::lines(nest, stores, along);
    match (alike::walk(nest, stores, along, lines.as_ref()), lines) {
        (Some((nest, part)), _) => print(&Plan::new(&nest, stores, along, Some(part)), sites),
        (None, Some(lines)) => print(&Plan::new(&nest.in_lines(lines), stores, along, None), sites),
        (None, None) => print(&Plan::new(nest, stores, along, None), sites),
    }
}

/// The function that computes some stores, rows being along these axes, and folds across rows: what every part of the rows has found, by the axis
/// that counts parts.
pub(super) fn rows_and_columns(
    nest: &Nest<'_>,
    stores: &[usize],
    along: AxisSet,
    part: usize,
    sites: Vec<String>,
) -> Result<Function> {
    match alike::lines_of_parts(nest, stores, along, Some(part)) {
        Some(lines) => print(&Plan::new(&nest.in_lines(lines), stores, along, Some(part)), sites),
        None => print(&Plan::new(nest, stores, along, Some(part)), sites),
    }
}

fn print(plan: &Plan<'_, '_>, sites: Vec<String>) -> Result<Function> {
    let mut body = Body::new(plan.nest, Some(plan.lanes), sites);
    (body.is_near, body.is_deep, body.is_slow) = (plan.is_near, true, plan.is_slow());
    plan.print_head(&mut body)?;
    let own = vec![plan.row_axes.iter().copied().collect(), plan.along];
    let mut pass = 0;
    while pass < plan.passes.len() {
        body.own = (plan.reads(pass), own.clone());
        if let Some(online) = plan.online(pass) {
            plan.print_online(&mut body, pass, &online)?;
            pass += 2;
        } else if let Some(moments) = plan.moments.as_ref().filter(|moments| moments.pass == pass) {
            plan.print_moments(&mut body, moments)?;
            pass += 2;
        } else {
            plan.print_pass(&mut body, pass)?;
            pass += 1;
        }
    }
    let one = if plan.threads > 1 { Some("t == 0") } else { None };
    for store in &plan.row_stores {
        let live: Vec<&str> = one.into_iter().chain(plan.live()).collect();
        let live = live.join(" && ");
        body.store(*store, (!live.is_empty()).then_some(live.as_str()))?;
    }
    plan.print_columns(&mut body)?;
    let blocks = match plan.part {
        Some(part) => plan.nest.extents[part].floordiv(&Dim::int(plan.rows_of_block)) * plan.pairs,
        None => plan.rows.ceildiv(&Dim::int(plan.group())) * (plan.group() / plan.rows_of_block * plan.cluster),
    };
    let threads = u32::try_from(plan.block()).map_err(|_| Error::bug("a block of too many threads"))?;
    let shared = u32::try_from(plan.shared_bytes).map_err(|_| Error::bug("more shared memory than there is"))?;
    let what = plan.describe();
    let least_blocks = match plan.part {
        Some(_) => Some(u32::try_from(plan.blocks_at_once).unwrap_or(1)),
        None if !plan.fetched.is_empty() => Some(u32::try_from(plan.blocks_at_once).unwrap_or(1)),
        // While one block waits for others of its cluster, another one works.
        None if plan.cluster > 1 => Some(if plan.held_bytes <= 128 { 2 } else { 1 }),
        None if plan.is_read_again => Some(2),
        None => plan.threads_at_once().map(|at_once| (at_once / threads).max(1)),
    };
    let cluster = u32::try_from(plan.cluster * plan.pairs).map_err(|_| Error::bug("too large a cluster"))?;
    Ok(Function::new(body, Grid { blocks, threads, shared, least_blocks, cluster }, what))
}

/// So many threads, and others until they are whole warps.
fn whole_warps(threads: i64) -> i64 {
    (threads + 31) / 32 * 32
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
    /// how many rows apart those lie that share a warp: one, or so many that they begin alike
    apart: i64,
    /// blocks that share a row
    cluster: i64,
    /// packs of a thread; none where they are not known
    turns: Option<i64>,
    passes: Vec<Pass>,
    row_stores: Vec<usize>,
    /// the axis that counts parts of the rows, where columns are folded too
    part: Option<usize>,
    column_stores: Vec<usize>,
    /// blocks that put what they have kept of columns together
    pairs: i64,
    /// where columns are folded too, how many blocks a multiprocessor holds
    blocks_at_once: i64,
    /// loads that are fetched ahead, into shared memory, and rows of them that have a place there
    fetched: Vec<StepId>,
    slots: i64,
    /// loads that are the same for all rows, and stay in registers
    kept_loads: Vec<StepId>,
    /// whether these are widened once
    keeps_wide: bool,
    /// whether rows move from where they come to registers, and those that are the same for all rows stay in shared memory
    lifts: bool,
    held: Vec<Held>,
    /// the mean and what squares add up to, where one pass finds both
    moments: Option<Moments>,
    place: Place,
    /// whether a row is read again rather than held
    is_read_again: bool,
    /// random words of which bits are kept
    drawn: Vec<Drawn>,
    /// whether what is read and written are narrow floats
    is_near: bool,
    /// bytes that registers of a thread hold between passes
    held_bytes: i64,
    shared_bytes: i64,
}

impl<'n, 'k> Plan<'n, 'k> {
    fn new(nest: &'n Nest<'k>, stores: &[usize], along: AxisSet, part: Option<usize>) -> Plan<'n, 'k> {
        let lanes = choose_lanes(nest, along);
        let order = order_axes(nest, along, lanes);
        let parts = part.map_or(AxisSet::EMPTY, AxisSet::of);
        let row_axes: Vec<usize> = outer_axes(nest, stores).without(along).without(parts).iter().collect();
        let rows = nest.count(row_axes.iter().copied().collect());
        let length = nest.count(along);
        let packs = length.floordiv(&Dim::int(lanes.count));
        let is_near = nest.is_near(stores);
        let is_of_columns = |store: &usize| part.is_some_and(|part| nest.stores[*store].axes.contains(part));
        let (column_stores, stores): (Vec<usize>, Vec<usize>) = stores.iter().partition(|store| is_of_columns(store));
        let (passes, row_stores) = passes(nest, &stores, &column_stores, along);
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
            apart: 1,
            cluster: 1,
            turns: None,
            passes,
            row_stores,
            part,
            column_stores,
            pairs: 1,
            blocks_at_once: 1,
            fetched: Vec::new(),
            slots: 1,
            kept_loads: Vec::new(),
            keeps_wide: false,
            lifts: false,
            held: Vec::new(),
            moments: None,
            place: Place::Again,
            is_read_again: false,
            drawn: Vec::new(),
            is_near,
            held_bytes: 0,
            shared_bytes: 0,
        };
        plan.share();
        if part.is_some() {
            if plan.walks() {
                plan.hold_while_walking();
            } else {
                plan.hold_with_columns();
            }
            plan.find_moments();
            plan.pair_blocks();
        } else {
            plan.hold();
            plan.even_out();
        }
        plan.draw_early();
        plan
    }

    /// Divides rows among threads.
    fn share(&mut self) {
        let Some(packs) = self.packs.as_int() else { return };
        if self.part.is_some() {
            (self.threads, self.rows_of_block) =
                columns::threads(self.nest, self.along, packs, self.lanes.count, self.column_folds());
            self.turns = Some((packs + self.threads - 1) / self.threads);
            return;
        }
        self.threads = self.threads_of_row(packs);
        let length = packs * self.lanes.count;
        let about = self.nest.options.about.apply(&self.rows).as_int();
        let blocks = (length + LENGTH_OF_BLOCK - 1) / LENGTH_OF_BLOCK;
        let blocks = blocks.unsigned_abs().next_power_of_two().min(MOST_BLOCKS) as i64;
        // Of few rows, every processor gets a part of one.
        let are_few = blocks > 2 && about.is_some_and(|rows| rows * blocks <= 2 * self.nest.options.processors);
        let is_long = self.row_bytes(length) > LONGEST || self.is_alone(packs, length);
        if self.nest.options.groups && (is_long || are_few) {
            // More than one block holds a row, so that it is read once.
            self.cluster = if are_few { None } else { self.blocks_that_fetch(packs) }.unwrap_or(blocks);
            self.threads = self.cluster * THREADS_OF_LONG;
            self.turns = Some((packs + self.threads - 1) / self.threads);
            return;
        }
        // Where rows are few, more threads share each of them.
        if let Some(rows) = about {
            // Threads that give every processor a block.
            let enough = self.nest.options.processors * THREADS;
            while self.threads * 2 <= packs.min(THREADS) && rows * self.threads < enough {
                self.threads *= 2;
            }
        }
        // Warps of a row meet where those of another one would: it owns its block.
        self.rows_of_block = if self.threads > 32 { 1 } else { (THREADS / self.threads).max(1) };
        // Of many rows that are very short, blocks are done before the next ones have begun.
        let is_short = self.threads <= 32 && self.rows_of_block * self.row_bytes(length) < LEAST_BYTES;
        if is_short && about.is_none_or(|rows| rows > MANY_ROWS) {
            self.rows_of_block *= 2;
        }
        self.apart = self.find_twins();
        if let Some(rows) = self.rows.as_int() {
            while self.rows_of_block > self.least_of_block() && self.rows_of_block / 2 >= rows {
                self.rows_of_block /= 2;
            }
        }
        if self.is_worth_reading_again(packs) {
            (self.is_read_again, self.threads) = (true, 2 * self.threads);
        }
        self.turns = Some((packs + self.threads - 1) / self.threads);
    }

    /// How many threads have a row of so many packs where rows are many.
    fn threads_of_row(&self, packs: i64) -> i64 {
        let most = if self.may_share_warp() { LANES_OF_TWO } else { columns::LANES };
        let least = packs.max(1).unsigned_abs().next_power_of_two().min(most.unsigned_abs()) as i64;
        if least == LANES_OF_TWO && self.draws_short_rows(packs) {
            return LANES_OF_TWO;
        }
        let among =
            |share: i64| (packs * self.lanes.count).div_euclid(share).max(1).unsigned_abs().next_power_of_two() as i64;
        // Elements that are moved one by one are better shared by more threads, and so are rows that begin anywhere, unless they are narrow, or many threads would wait for each
        // other once more than twice.
        let waits = self.passes.len() > MOST_PASSES && among(SHARE / 2) > MOST_WAITING;
        let is_loose = self.nest.lines.is_some() && !self.is_near && !waits;
        let is_spread = self.lanes.count == 1 || is_loose;
        let wanted = among(match is_spread {
            _ if self.asks_early() => SHARE / 4,
            _ if self.asks_late() => SHARE / 2,
            true => SHARE / 2,
            false => SHARE,
        });
        wanted.max(least).min(if packs * self.lanes.count > 32 << 10 { 1024 } else { 512 })
    }

    /// Leaves out warps of a row's block that would have nothing to do in one turn or more, if these are an eighth of it, and if that leaves no thread
    /// without a pack, or words are drawn, which takes long, or a multiprocessor has about as many threads as before: idle ones cost less than others
    /// that are not there.
    fn even_out(&mut self) {
        let (Some(packs), Some(turns)) = (self.packs.as_int(), self.turns.filter(|turns| *turns > 0)) else { return };
        let (before, threads) = (self.threads, whole_warps((packs + turns - 1) / turns));
        let are_few = 8 * threads > 7 * before || before <= columns::LANES;
        if self.cluster > 1 || self.rows_of_block > 1 || self.is_read_again || are_few {
            return;
        }
        let blocks = |plan: &Plan<'_, '_>| match plan.threads_at_once() {
            _ if !plan.fetched.is_empty() => Some(plan.blocks_at_once),
            at_once => at_once.map(|at_once| (i64::from(at_once) / plan.threads).max(1)),
        };
        let most = blocks(self);
        (self.threads, self.shared_bytes) = (threads, self.shared_bytes / before * threads);
        let both = most.zip(blocks(self));
        let are_as_many = both.is_none_or(|(most, own)| 16 * own * threads >= 15 * most * before);
        let is_gain = self.is_whole(turns) || self.is_random() || are_as_many;
        // Wide numbers would have fewer registers in one block more.
        let is_room = self.is_near || both.is_none_or(|(most, own)| most == own);
        if !is_gain || !is_room {
            (self.threads, self.shared_bytes) = (before, self.shared_bytes / threads * before);
        }
    }

    /// Whether a row is read again rather than held: one that takes so many registers that a multiprocessor has a single block. Two blocks of twice as many
    /// threads find theirs in the cache of the multiprocessor.
    fn is_worth_reading_again(&self, packs: i64) -> bool {
        let (threads, elements) = (2 * self.threads, packs * self.lanes.count / self.threads);
        let is_whole = self.nest.lines.is_none() && packs % threads == 0;
        let is_near_by = self.row_bytes(packs * self.lanes.count) <= hold::MOST_OF_NEXT;
        let is_one = threads == 2 * THREADS_OF_LONG && self.rows_of_block == 1 && self.rows_of_one() && is_whole;
        let is_large = match self.is_near {
            true => elements > hold::MOST_OF_TWO && self.passes.len() == 2,
            false => elements > hold::MOST_OF_WIDE && self.passes.len() <= 3,
        };
        // 32 registers a thread are enough for little.
        let is_little = self.weights() <= 2 && !self.is_random();
        self.nest.options.groups && is_one && is_near_by && is_large && is_little
    }

    /// How a pass reads the packs of a row. Memory takes what is written sooner if what was read stays in the cache that all processors share, though nobody
    /// reads it again; where some threads have a pack less than others, that is no gain.
    fn reads(&self, pass: usize) -> Reads {
        if self.is_read_again {
            return if pass + 1 < self.passes.len() { Reads::ToStay } else { Reads::ToLeave };
        }
        let is_whole = self.turns.is_some_and(|turns| self.is_whole(turns));
        if self.outlasts() && is_whole { Reads::Lasting } else { Reads::Plainly }
    }

    /// Whether what is read of rows stays in the shared cache longer than what is written.
    fn outlasts(&self) -> bool {
        self.nest.options.groups && self.part.is_none()
    }

    /// Whether a multiprocessor has room for one row only, and blocks of a cluster can share it, so that some work while others read: one of narrow floats that
    /// come into shared memory, or one of wide numbers of several tensors that registers do not hold.
    fn is_alone(&self, packs: i64, length: i64) -> bool {
        let is_alone = match self.is_near {
            true => 2 * self.row_bytes(length) > hold::MOST_FETCHED,
            false => !self.rows_of_one() && !self.is_random() && self.is_beyond_registers(packs),
        };
        is_alone && self.blocks_that_fetch(packs).is_some()
    }

    /// Bytes that are loaded for a row, and for no other one.
    fn row_bytes(&self, length: i64) -> i64 {
        let rows: AxisSet = self.row_axes.iter().copied().collect();
        let is_own = |k: &usize| {
            let (axes, op) = (self.nest.axes[*k], &self.nest.kernel.steps[*k].op);
            matches!(op, Op::Load { .. }) && self.along.is_within(axes) && !axes.common(rows).is_empty()
        };
        let loads = (0..self.nest.kernel.steps.len()).filter(is_own);
        loads.map(|k| length * element::bytes(self.nest.load(StepId(k as u32)).tensor.dtype)).max().unwrap_or(0)
    }

    fn block(&self) -> i64 {
        // Whole warps, so that everybody is there where lanes are folded.
        whole_warps(self.threads * self.rows_of_block / self.cluster)
    }

    fn varies(&self, id: StepId) -> bool {
        !self.nest.axes[id.index()].common(self.along).is_empty()
    }

    fn live(&self) -> Option<&'static str> {
        if self.is_alike() {
            return (!is_multiple(&self.rows, self.rows_of_warp())).then_some("live");
        }
        if self.part.is_some() && self.rows_of_block == 1 {
            return None;
        }
        let is_whole = self.block() * self.cluster == self.threads * self.rows_of_block;
        (!is_multiple(&self.rows, self.group()) || !is_whole).then_some("live")
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
        let held = if self.is_read_again { ", read again in every pass" } else { held };
        let blocks = if self.cluster > 1 { format!(" in {} blocks", self.cluster) } else { String::new() };
        let packs = if self.nest.lines.is_some() { ", in packs that lines of memory begin with" } else { "" };
        let pairs = if self.pairs > 1 { "; 2 blocks put columns together" } else { "" };
        format!("{threads}{blocks} a row of {} elements{held}{packs}{pairs}", self.nest.count(self.along))
    }

    fn print_head(&self, body: &mut Body<'_>) -> Result<()> {
        let threads = self.threads;
        if self.shared_bytes > 0 {
            body.line("extern __shared__ __align__(16) unsigned char memory[];");
        }
        if self.cluster > 1 {
            body.line("arrive_in_cluster();");
            body.line(format!("const int t = blockIdx.x % {} * {} + threadIdx.x;", self.cluster, self.block()));
        } else if threads == self.block() {
            body.line("const int t = threadIdx.x;");
        } else if threads > 1 {
            body.line(format!("const int t = threadIdx.x % {threads};"));
        }
        self.declare_columns(body)?;
        match (self.part, self.cluster) {
            (Some(_), _) => {
                if let (Some(live), true) = (self.live(), self.is_alike()) {
                    let rows = body.index(&self.rows, &[]);
                    body.line(format!("const bool {live} = first < {rows};"));
                }
                self.print_row(body, "first");
            }
            (None, 1) => self.print_row(body, "blockIdx.x"),
            (None, cluster) => self.print_row(body, &format!("blockIdx.x / {cluster}")),
        }
        self.wait_for_row(body)?;
        self.fetch_own_row(body)?;
        let mut offset = self.fetched_bytes();
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
        self.print_lines(body)?;
        self.wait_for_own_row(body);
        self.draw(body)
    }

    /// The row of a thread, and its coordinates; `first` is that of the block, or of the first row of the block.
    fn print_row(&self, body: &mut Body<'_>, first: &str) {
        let (threads, group) = (self.threads, self.rows_of_block);
        if self.is_alike() || (group == 1 && self.live().is_none()) {
            body.line(format!("const Index row = {first};"));
        } else {
            let of_block = if threads == 1 { "threadIdx.x".into() } else { format!("threadIdx.x / {threads}") };
            let first = if self.part.is_some() { first.to_owned() } else { format!("(Index){first} * {group}") };
            let own = self.print_twin(body).unwrap_or_else(|| format!("{first} + {of_block}"));
            match self.live() {
                None => body.line(format!("const Index row = {own};")),
                Some(live) => {
                    let total = body.index(&self.rows, &[]);
                    let last = body.index(&(&self.rows - 1), &[]);
                    body.line(format!("const Index own = {own};"));
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
    }

    fn print_pass(&self, body: &mut Body<'_>, number: usize) -> Result<()> {
        let pass = &self.passes[number];
        let accumulators: Vec<Accumulator> = pass.folds.iter().map(|fold| Accumulator::of(self.nest, *fold)).collect();
        for (fold, accumulator) in pass.folds.iter().zip(&accumulators) {
            body.line(format!("{} s{} = {};", accumulator.ty, fold.0, accumulator.neutral));
        }
        self.keep_narrow(body, number);
        let inner = AxisSet::of(self.lanes.axis);
        let has_lanes = body.lanes.is_some();
        if self.begins_with_ends(number) {
            self.print_ends(body, number, &accumulators)?;
        }
        let by_shift = self.is_by_shift(body, pass);
        if by_shift {
            body.open(AxisSet::EMPTY);
            body.shift = "shift";
        }
        body.open(if has_lanes { self.along.without(inner) } else { self.along });
        let fills = self.fills(number);
        if fills {
            self.print_filled(body)
        } else {
            self.print_place(body)
        }
        let at = if self.place == Place::Registers { "k".to_owned() } else { format!("k * {}", self.block()) };
        let lane = if has_lanes { "l" } else { "0" };
        self.know_taken(body, pass, &at);
        self.wait_for_piece(body, number);
        self.print_fetched(body, pass);
        self.know_drawn(body);
        body.open_lanes();
        let mut behind = Vec::new();
        for (fold, accumulator) in pass.folds.iter().zip(&accumulators) {
            let name = format!("s{}", fold.0);
            if let Some((load, of_pack)) = self.extreme_of_pack(*fold).filter(|_| has_lanes) {
                body.need_pack(load)?;
                let held = self.held.iter().find(|held| held.step == load && pass.takes.contains(&load));
                let pack = held.map_or(format!("p{}", load.0), |held| format!("{}[{at}]", held.name()));
                let own = Code::call(&of_pack, &[Code::atom(pack)]);
                let inside = if fills { "if (inside) " } else { "" };
                behind.push(format!("{inside}{name} = {};", accumulator.folded(&Code::atom(&name), &own)));
            } else {
                body.accumulate_where(*fold, accumulator, &name, fills.then_some("inside"))?;
            }
        }
        for fold in &pass.columns {
            let name = format!("column{}[k][{lane}]", fold.0);
            body.accumulate_where(*fold, &Accumulator::of(self.nest, *fold), &name, self.live())?;
        }
        for store in &pass.stores {
            let condition: Vec<&str> = fills.then_some("inside").into_iter().chain(self.live()).collect();
            let condition = condition.join(" && ");
            behind.extend(body.store(*store, (!condition.is_empty()).then_some(condition.as_str()))?);
        }
        for held in self.held.iter().filter(|held| held.first == number && !pass.takes.contains(&held.step)) {
            if held.is_pack {
                body.need_pack(held.step)?;
                behind.push(format!("{}[{at}] = p{};", held.name(), held.step.0));
            } else {
                let value = body.value(held.step)?;
                body.line(format!("{}[{at}].at[{lane}] = {value};", held.name()));
            }
        }
        body.close_lanes();
        behind.into_iter().for_each(|line| body.line(line));
        if fills {
            self.close_filled(body)
        } else {
            self.close_loop(body)
        }
        if by_shift {
            body.close_as("by_shift(head, [&](auto shift)", ");");
            body.shift = "head";
        }
        if !self.begins_with_ends(number) {
            self.print_ends(body, number, &accumulators)?;
        }
        self.ask_at_ends(body, number)?;
        self.print_folds(body, &pass.folds, &accumulators);
        self.bring_next(body, number)
    }

    /// What a pass knows of what it takes from earlier ones, which lies at some place of a thread.
    fn know_taken(&self, body: &mut Body<'_>, pass: &Pass, at: &str) {
        let has_lanes = body.lanes.is_some();
        let lane = if has_lanes { "l" } else { "0" };
        for held in self.held.iter().filter(|held| pass.takes.contains(&held.step)) {
            let (dtype, pack) = (self.nest.kernel.step(held.step).dtype, format!("{}[{at}]", held.name()));
            let value = match held.is_pack {
                true if has_lanes => element::widened_lane(dtype, &pack),
                true => element::widened(dtype, Code::atom(format!("{pack}.at[0]"))),
                false => self.held_number(held, Code::atom(format!("{pack}.at[{lane}]"))),
            };
            if has_lanes { body.know_in_lanes(held.step, value) } else { body.know(held.step, value) }
        }
    }
}
