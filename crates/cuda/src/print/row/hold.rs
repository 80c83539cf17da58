//! What passes over a row need again, and where it is held between them: in registers, in shared memory, or nowhere.

use fuseline::tile::{AxisSet, Op, StepId};

use super::super::body::pack_width;
use super::super::element;
use super::Plan;

/// Registers of values that are held, for each thread of a block of up to 512; larger blocks have few.
const MOST_REGISTERS: i64 = 80;

/// Bytes of shared memory for values that are held: two blocks share a multiprocessor, so that one reads while the other computes.
const MOST_SHARED: i64 = 112 << 10;

/// Bytes of a thread that registers hold while a multiprocessor has 1024 threads.
pub(super) const HELD_BY_MANY: i64 = 128;

/// The same of a row of narrow floats that is widened besides, and of one of which much is computed, in two large blocks, with so many elements a thread.
const HELD_AS_WIDE: i64 = 80;
pub(super) const HELD_BY_TWO: i64 = 192;
/// … and of one beside which nothing is read, in three.
pub(super) const HELD_BY_THREE: i64 = 96;
pub(super) const MOST_OF_TWO: i64 = 48;

/// Bytes of wide numbers that a thread of one of two large blocks holds in registers.
pub(super) const WIDE_BY_TWO: i64 = 112;

/// Wide numbers of a thread that two large blocks hold, and bytes of a row that the cache of a multiprocessor has for each of two.
pub(super) const MOST_OF_WIDE: i64 = 24;
pub(super) const MOST_OF_NEXT: i64 = 64 << 10;

/// Elements of rows that ask early for what all rows read.
const EARLY: std::ops::RangeInclusive<i64> = 2048..=8192;

/// … and of rows that meet twice, which more threads share.
const LATE: i64 = 4096;

/// Bytes of shared memory of a multiprocessor for rows that are fetched as they are, and threads that work on them: 40 registers each, which
/// is enough for so many operations on every element.
pub(super) const MOST_FETCHED: i64 = 216 << 10;
const MOST_THREADS: i64 = 1536;
pub(super) const FEW_FLOPS: u32 = 32;

/// What is held between passes, and where.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub step: StepId,
    /// the pass that computes it
    pub first: usize,
    /// the type of its elements; those of a load are held as they lie in memory
    pub ty: &'static str,
    pub bytes: i64,
    pub is_pack: bool,
}

/// Where held values lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Registers,
    Shared,
    /// nowhere: they are read and computed again
    Again,
}

impl Held {
    pub fn name(&self) -> String {
        format!("h{}", self.step.0)
    }
}

/// What is held between passes rather than read or computed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worth {
    /// what is loaded
    Loads,
    /// … and what takes long to compute
    Costly,
    /// all that is computed of a row: where registers are there for it, widening and a difference cost more than they do
    All,
}

/// What passes take from earlier ones.
pub(super) struct Takes {
    pub by_pass: Vec<Vec<StepId>>,
    pub held: Vec<Held>,
}

impl Plan<'_, '_> {
    /// Decides what is held, and where: costly values too, if there is room for them, otherwise what is loaded.
    pub(super) fn hold(&mut self) {
        if self.turns.is_none() {
            return;
        }
        if self.is_read_again {
            self.hold_in(Place::Again, &Takes { by_pass: vec![Vec::new(); self.passes.len()], held: Vec::new() });
            return;
        }
        let (all, loads) = (self.takes(Worth::Costly), self.takes(Worth::Loads));
        let registers = 4 * if self.block() > 512 { MOST_REGISTERS / 4 } else { MOST_REGISTERS };
        let shared = MOST_SHARED / self.block();
        let fits = self.bytes_at_once(&loads) <= registers;
        let is_for_two = fits && self.is_wide_for_two(self.bytes_at_once(&all));
        if self.is_much_to_hold(&all, &loads) && self.fetches_own_row(fits, is_for_two) {
            return;
        }
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
                self.held_bytes = if place == Place::Registers { wanted } else { 0 };
                self.hold_in(place, takes);
                return;
            }
        }
    }

    /// Whether so much is held between passes that a row had better come into shared memory. Rows of narrow floats that meet twice are widened once by the
    /// compiler, and take more registers than they are held in; but what takes long to compute is better held, as long as two blocks have room.
    fn is_much_to_hold(&self, all: &Takes, loads: &Takes) -> bool {
        let bytes = self.bytes_at_once(all);
        if self.nest.lines.is_some() {
            // Ends are kept beside such a row, and weights need what the cache of a multiprocessor has left; but one block would wait for itself.
            let is_alone = self.weights() == 0 || self.rows_of_one();
            let is_alone = is_alone && !self.is_random() && !self.has_room_for_two(bytes);
            let is_shared = self.cluster > 1 && !self.is_near && !self.rows_of_one();
            let is_much = self.is_large_and_near() && (bytes > HELD_BY_TWO || is_alone);
            return is_much || is_shared || self.is_wide_for_two(bytes);
        }
        let is_widened = self.is_large_and_near() && self.passes.len() == 3 && self.bytes_at_once(loads) > HELD_AS_WIDE;
        let is_much = bytes > HELD_BY_MANY || is_widened;
        let is_held = self.takes_long() && bytes <= HELD_BY_TWO && self.elements_of_thread() <= MOST_OF_TWO;
        self.cluster > 1 || (is_much && !is_held)
    }

    /// Whether a row of wide numbers is better in shared memory than in registers that it would have alone, so many bytes a thread: one of several tensors, or one
    /// that meets twice. Where it begins anywhere and much is computed besides, or meets once more, registers are better.
    fn is_wide_for_two(&self, bytes: i64) -> bool {
        let is_large = self.is_large_and_wide() && bytes > HELD_BY_MANY && !self.is_random();
        let is_little = self.nest.lines.is_none() || super::columns::flops(self.nest, self.along) < FEW_FLOPS;
        let is_better = if self.rows_of_one() { self.passes.len() == 3 && is_little } else { self.passes.len() <= 3 };
        is_large && is_better
    }

    /// Whether a row of narrow floats has a large block.
    pub(super) fn is_large_and_near(&self) -> bool {
        self.is_near && self.block() > 256 && self.cluster == 1
    }

    /// Whether it takes long to compute numbers of such a row again: words are drawn, or three meetings wait for each other, or each takes many operations.
    pub(super) fn takes_long(&self) -> bool {
        let is_much = self.rows_of_one() && super::columns::flops(self.nest, self.along) >= FEW_FLOPS;
        self.is_large_and_near() && (self.is_random() || self.passes.len() > 3 || is_much)
    }

    /// Whether the row of a block comes into shared memory, and nothing else is held: where that is less than to hold what is computed, so
    /// that more blocks share a multiprocessor, or where nothing else can hold it.
    fn fetches_own_row(&mut self, fits_registers: bool, is_for_two: bool) -> bool {
        let whole = self.threads == self.block() * self.cluster && self.rows_of_block == 1;
        let fetched = if whole { self.loads_to_fetch() } else { Vec::new() };
        let bytes: i64 = fetched.iter().map(|id| element::bytes(self.nest.load(*id).tensor.dtype)).sum();
        // All that rows read must be there, for it is not held otherwise.
        let is_all = self.takes(Worth::Loads).held.iter().all(|held| fetched.contains(&held.step));
        // Wide numbers, or two rows of narrow ones, are as well held in registers, unless the latter meet twice.
        let is_wide = bytes > 2 && !(self.is_large_and_near() && self.passes.len() > 2);
        if fetched.is_empty() || !is_all || (fits_registers && is_wide && !is_for_two && self.cluster == 1) {
            return false;
        }
        self.fetched = fetched;
        let shared = self.fetched_bytes();
        // Blocks of a cluster wait for each other, so that another one should be there.
        // … and so should it where registers would hold the row, too.
        let is_held = fits_registers && self.nest.lines.is_some();
        let at_once = if is_held || is_for_two { 2 } else { self.cluster.min(2) };
        if shared * at_once > MOST_FETCHED {
            self.fetched.clear();
            return false;
        }
        let few = super::columns::flops(self.nest, self.along) < FEW_FLOPS && !self.takes_long();
        let most = if few { MOST_THREADS } else { MOST_THREADS * 2 / 3 };
        self.blocks_at_once = (MOST_FETCHED / shared).min(most / self.block()).max(1);
        let none = Takes { by_pass: vec![Vec::new(); self.passes.len()], held: Vec::new() };
        self.hold_in(Place::Again, &none);
        true
    }

    /// How many blocks of a cluster share a row of so many packs that comes into their shared memory: so many that three blocks, each of another row,
    /// have room on a multiprocessor and work while others read or wait, or two, where each reads more than one tensor. An even number, for these divide what
    /// multiprocessors share.
    pub(super) fn blocks_that_fetch(&self, packs: i64) -> Option<i64> {
        let fetched = self.loads_to_fetch();
        let is_all = self.takes(Worth::Loads).held.iter().all(|held| fetched.contains(&held.step));
        let is_all = is_all && (self.nest.lines.is_none() || !self.is_near);
        let bytes: i64 = fetched.iter().map(|id| element::bytes(self.nest.load(*id).tensor.dtype)).sum();
        let shared = |blocks: i64| {
            let threads = blocks * super::THREADS_OF_LONG;
            (packs + threads - 1) / threads * super::THREADS_OF_LONG * self.lanes.count * bytes
        };
        let most = super::MOST_BLOCKS as i64;
        let fits = |at_once: i64| (2..=most).step_by(2).find(|blocks| at_once * shared(*blocks) <= MOST_FETCHED);
        let few = if self.is_near || fetched.len() == 1 { fits(3) } else { None };
        if fetched.is_empty() || !is_all { None } else { few.or_else(|| fits(2)) }
    }

    /// Whether registers of one block do not hold a row of so many packs.
    pub(super) fn is_beyond_registers(&self, packs: i64) -> bool {
        let turns = (packs + super::THREADS_OF_LONG - 1) / super::THREADS_OF_LONG;
        let bytes = |worth: Worth| turns * self.bytes_at_once(&self.takes(worth));
        bytes(Worth::Costly).min(bytes(Worth::Loads)) > 4 * MOST_REGISTERS
    }

    pub(super) fn hold_in(&mut self, place: Place, takes: &Takes) {
        self.place = place;
        let held = if place == Place::Shared { self.bytes(takes) * self.block() } else { 0 };
        self.shared_bytes = self.fetched_bytes() + held;
        self.take(takes);
    }

    /// What passes take from earlier ones is held.
    pub(super) fn take(&mut self, takes: &Takes) {
        self.held = takes.held.clone();
        self.passes.iter_mut().zip(&takes.by_pass).for_each(|(pass, takes)| pass.takes = takes.clone());
    }

    /// Bytes of a thread that holding takes.
    pub(super) fn bytes(&self, takes: &Takes) -> i64 {
        let element: i64 = takes.held.iter().map(|held| held.bytes).sum();
        element * self.lanes.count * self.turns.unwrap_or(1)
    }

    /// The most bytes of a thread that are held between two passes.
    pub(super) fn bytes_at_once(&self, takes: &Takes) -> i64 {
        let last = |held: &Held| takes.by_pass.iter().rposition(|taken| taken.contains(&held.step)).unwrap_or(0);
        let between = (0..self.passes.len()).map(|pass| {
            let held = takes.held.iter().filter(|held| held.first <= pass && last(held) > pass);
            held.map(|held| held.bytes).sum::<i64>()
        });
        between.max().unwrap_or(0) * self.lanes.count * self.turns.unwrap_or(1)
    }

    /// What passes take from earlier ones.
    pub(super) fn takes(&self, worth: Worth) -> Takes {
        let mut first: Vec<Option<usize>> = vec![None; self.nest.kernel.steps.len()];
        let mut by_pass: Vec<Vec<StepId>> = vec![Vec::new(); self.passes.len()];
        for (number, pass) in self.passes.iter().enumerate() {
            let folds = pass.folds.iter().chain(&pass.columns);
            let roots = folds.flat_map(|fold| self.nest.kernel.step(*fold).op.operands());
            let roots = roots.chain(pass.stores.iter().map(|store| self.nest.stores[*store].value));
            let mut stack: Vec<StepId> = roots.collect();
            let mut seen = vec![false; first.len()];
            while let Some(id) = stack.pop() {
                if !self.varies(id) || std::mem::replace(&mut seen[id.index()], true) {
                    continue;
                }
                match first[id.index()] {
                    Some(before) if before < number && self.is_worth_holding(id, worth) => by_pass[number].push(id),
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
        let mut held: Vec<Held> = all.into_iter().map(|id| self.held_as(id, first[id.index()].unwrap_or(0))).collect();
        // What is held anyway is asked for at once, so that nobody waits for it when it is wanted.
        let is_load = |held: &&mut Held| held.is_pack && matches!(self.nest.kernel.step(held.step).op, Op::Load { .. });
        for held in held.iter_mut().filter(|held| held.first > 0 && self.part.is_none()).filter(is_load) {
            by_pass[std::mem::replace(&mut held.first, 0)].push(held.step);
        }
        // What is the same for all rows lies near; asked for with the row, nobody waits for it behind the meeting.
        if self.asks_early() {
            for id in self.loads_of_all_rows() {
                held.push(self.held_as(id, 0));
                by_pass[1].push(id);
            }
        }
        Takes { by_pass, held }
    }

    /// Whether a row asks at once for what its second pass alone reads: rows of wide numbers that meet once, and need no more registers for it, being
    /// shared by more threads.
    pub(super) fn asks_early(&self) -> bool {
        self.passes.len() == 2 && self.reads_weights_last()
    }

    /// Whether a row meets twice, so that it has registers for what its last pass alone reads if more threads share it.
    pub(super) fn asks_late(&self) -> bool {
        let length = self.nest.count(self.along).as_int().unwrap_or(0);
        self.passes.len() == 3 && length >= LATE && self.reads_weights_last()
    }

    /// Whether the last pass over a row of wide numbers, which alone stores, reads what no other does.
    fn reads_weights_last(&self) -> bool {
        let stores_last = self.passes.iter().rev().skip(1).all(|pass| pass.stores.is_empty());
        let length = self.nest.count(self.along).as_int().unwrap_or(0);
        let is_wide = !self.is_near && self.lanes.count == 4 && self.nest.lines.is_none() && self.part.is_none();
        stores_last && is_wide && EARLY.contains(&length) && self.is_plain() && !self.loads_of_all_rows().is_empty()
    }

    /// Packs that the last pass alone reads, and that are the same for all rows.
    fn loads_of_all_rows(&self) -> Vec<StepId> {
        let rows: AxisSet = self.row_axes.iter().copied().collect();
        let Some((last, earlier)) = self.passes.split_last() else { return Vec::new() };
        let (last, earlier) = (self.read_by(last), earlier.iter().map(|pass| self.read_by(pass)).collect::<Vec<_>>());
        let is_shared = |id: &StepId| {
            matches!(self.nest.kernel.step(*id).op, Op::Load { .. })
                && last[id.index()]
                && !earlier.iter().any(|pass| pass[id.index()])
                && self.nest.axes[id.index()].common(rows).is_empty()
                && pack_width(self.nest, self.nest.load(*id), self.lanes).is_some()
        };
        (0..last.len()).map(|k| StepId(k as u32)).filter(is_shared).collect()
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

    /// Whether holding a value costs less than reading or computing it again.
    fn is_worth_holding(&self, id: StepId, worth: Worth) -> bool {
        let rows: AxisSet = self.row_axes.iter().copied().collect();
        match &self.nest.kernel.step(id).op {
            // What is fetched lies near.
            Op::Load { .. } if self.fetched.contains(&id) => false,
            // What all rows read is near after the first one.
            Op::Load { .. } => !self.nest.axes[id.index()].common(rows).is_empty(),
            Op::Map { .. } if worth == Worth::Loads => false,
            Op::Map { .. } if worth == Worth::All => !self.nest.axes[id.index()].common(rows).is_empty(),
            Op::Map { expr, args } => expr.flops() >= 8 || args.iter().filter(|arg| self.varies(**arg)).count() >= 2,
            _ => true,
        }
    }
}
