//! Rows whose length is no multiple of a pack: each begins somewhere else in a line of 16 bytes.
//!
//! Packs begin where lines do, so that they are read and written whole; the few elements before the first and behind the last line of a row are
//! done one by one, each by a thread. What all rows read begins where a line does, and is read across two of them.

use fuseline::error::Result;
use fuseline::tensor::Dim;
use fuseline::tile::{AxisSet, Op, StepId};

use super::super::body::{Body, pack_width, start_of};
use super::super::element;
use super::super::nest::{Access, Lines, Nest, is_multiple, slope};
use super::columns::flops;
use super::hold::{FEW_FLOPS, Place};
use super::lanes::{choose_lanes, most_lanes};
use super::{LONGEST, Pass, Plan};

/// Elements of a row that is long enough for packs of many threads.
const SHORTEST: i64 = 256;

/// Bytes of a line.
const LINE: i64 = 16;

/// Packs of a line of the cache, and of a sector of one; and how long rows are where packs begin where sectors do.
const PACKS_OF_LINE: i64 = 8;
const PACKS_OF_SECTOR: i64 = 2;
const LONG: i64 = 9 << 10;

/// Elements at a time that are enough as they are.
const ENOUGH: i64 = 4;

/// Turns of a thread of which widened packs take half of its registers.
const MANY_TURNS: i64 = 4;

/// Where lines begin in rows along some axes, if packs follow them.
pub(super) fn lines(nest: &Nest<'_>, stores: &[usize], along: AxisSet) -> Option<Lines> {
    let axis = choose_lanes(nest, along).axis;
    let written: Vec<&Access> = stores.iter().map(|store| &nest.stores[*store].access).collect();
    let first = written.iter().find(|access| slope(&access.offset, axis).is_some_and(|slope| slope.is(1)))?;
    lines_from(nest, &written, start_of(&first.offset, axis), along)
}

/// The same, where rows of what is read and written begin as `start` says.
pub(super) fn lines_from(nest: &Nest<'_>, written: &[&Access], start: Dim, along: AxisSet) -> Option<Lines> {
    let lanes = choose_lanes(nest, along);
    let (axis, length) = (lanes.axis, nest.extents[lanes.axis].as_int()?);
    let in_line = |offset: &Dim| slope(offset, axis).is_some_and(|slope| slope.is(1));
    // Elements of rows; what all rows share, and what a row has one of, may lie anywhere.
    let is_along = |offset: &Dim| AxisSet::mentioned(offset).contains(axis);
    let is_own = |offset: &Dim| is_along(offset) && !AxisSet::mentioned(&start_of(offset, axis)).is_empty();
    let own = || nest.loads().chain(written.iter().copied()).filter(|access| is_own(&access.offset));
    let widest = own().map(|access| element::bytes(access.tensor.dtype)).max()?;
    // Of what is widest, a pack is a line.
    let count = most_lanes(nest, axis).min((LINE / widest).max(1));
    let lies = |offset: &Dim| in_line(offset) && is_multiple(&(start_of(offset, axis) - &start), count);
    let fits = along == AxisSet::of(axis)
        && (SHORTEST..=LONGEST / widest).contains(&length)
        && !is_multiple(&start, count)
        && lanes.count < ENOUGH.min(count)
        && own().all(|access| lies(&access.offset));
    fits.then_some(Lines { axis, count, start, parts: None })
}

impl Plan<'_, '_> {
    /// Whether the threads of a row have as many packs as there are turns, all of them.
    pub(super) fn is_whole(&self, turns: i64) -> bool {
        self.nest.lines.is_none() && self.packs.is(turns * self.threads)
    }

    /// The packs of a row, and the elements at its ends; every thread of those asks for its own at once.
    pub(super) fn print_lines(&self, body: &mut Body<'_>) -> Result<()> {
        if self.nest.lines.is_none() {
            return Ok(());
        }
        if self.is_alike() {
            self.next_ends(body)?;
        } else if self.fetched.is_empty() {
            self.print_begin(body);
        }
        self.begin_ends(body)
    }

    /// Of how many elements a multiple lies before the first pack of a row, counted from where memory begins: those of a pack, or what memory moves at a time, or a whole line of
    /// the cache, so that no warp has parts of one more. A long row has warps enough for the elements that are left at its ends. Where weights are read with them or words drawn,
    /// that takes longer than it saves, unless warps know the ends of many rows.
    pub(super) fn line(&self) -> i64 {
        let count = self.lanes.count;
        let is_long = || self.nest.count(self.along).as_int().is_some_and(|length| length > LONG);
        let is_plain = || self.part.is_none() && self.weights() == 0 && !self.is_random();
        match self.nest.lines {
            None => 1,
            Some(_) if self.lifts => count * PACKS_OF_LINE,
            Some(_) if is_plain() && is_long() && self.fills_turns_but_last(count * PACKS_OF_SECTOR) => {
                count * PACKS_OF_SECTOR
            }
            Some(_) => count,
        }
    }

    /// Whether all threads have a pack in every turn but the last, wherever in a line of so many elements a row begins: nobody asks there whether one is left.
    fn fills_turns_but_last(&self, line: i64) -> bool {
        let least = |length: i64| (length - (line - 1)) / self.lanes.count;
        let (length, turns) = (self.nest.count(self.along).as_int(), self.turns.unwrap_or(1));
        length.is_none_or(|length| least(length) >= (turns - 1) * self.threads)
    }

    /// Where the packs of a row begin, and how many it has.
    pub(super) fn print_begin(&self, body: &mut Body<'_>) {
        let Some(Lines { axis, count, start, .. }) = &self.nest.lines else { return };
        let start = body.index(start, &[]);
        body.line(format!("const int head = (int)(-({start}) & {});", self.line() - 1));
        self.print_packs(body, *axis, *count);
    }

    /// Whether threads that walk along rows know where their packs begin. Where numbers are narrow, instructions are what takes the time; otherwise, registers are worth
    /// more.
    pub(super) fn knows_lead(&self) -> bool {
        self.is_alike() && self.is_near
    }

    /// How many packs a row has, and which of the elements at its ends a thread has.
    pub(super) fn print_packs(&self, body: &mut Body<'_>, axis: usize, count: i64) {
        let length = body.index(&self.nest.extents[axis], &[]);
        // Known before the first row, but the compiler would compute them for every one.
        let known = |what: String| if self.knows_lead() { format!("kept({what})") } else { what };
        let (packs, ends) = (format!("({length} - head) / {count}"), format!("{length} - packs * {count}"));
        body.line(format!("const int packs = {}, ends = {};", known(packs), known(ends)));
        let who = self.who_has_ends();
        if self.is_alike() && self.brings() {
            body.line(format!("const int {who} = {} - t;", self.threads - 1));
        }
        body.line(format!("const Index end = {};", known(format!("{who} < head ? {who} : {who} + packs * {count}"))));
        if self.knows_lead() {
            body.line(format!("const Index lead = {};", known(format!("head + t * {count}"))));
        }
    }

    /// Whether a pass that reads packs across lines is written out for every way in which they can lie. Where warps of a block have rows of their own, and much is
    /// computed, so much code takes longer to come.
    pub(super) fn is_by_shift(&self, body: &Body<'_>, pass: &Pass) -> bool {
        let read = self.read_by(pass);
        let is_load = |k: &usize| read[*k] && matches!(self.nest.kernel.steps[*k].op, Op::Load { .. });
        let mut loads = (0..read.len()).filter(is_load).map(|k| self.nest.load(StepId(k as u32)));
        let is_across =
            |access: &Access| pack_width(self.nest, access, self.lanes).is_none() && body.is_across(access, self.lanes);
        self.nest.lines.is_some() && self.part.is_none() && !self.is_much_code() && loads.any(is_across)
    }

    /// Whether so much is computed of every element that warps which do it in different ways would be much code.
    pub(super) fn is_much_code(&self) -> bool {
        self.rows_of_block > 1 && flops(self.nest, self.along) >= FEW_FLOPS
    }

    /// Whether all threads have something to do in every turn of a pass, those behind the end of a row with its last pack again, which they neither fold nor
    /// store: where random words are drawn, or a thread has few turns, those that may have nothing to do would not be mixed with others; and what a last turn
    /// behind a branch reads would be asked for when earlier turns have come.
    pub(super) fn fills(&self, number: usize) -> bool {
        if self.is_alike() {
            return self.turns.is_some_and(|turns| turns > 1) && self.has_all_near();
        }
        if self.fills_all() {
            return true;
        }
        let (pass, read) = (&self.passes[number], self.read_by(&self.passes[number]));
        let draws = (0..read.len()).any(|k| read[k] && matches!(self.nest.kernel.steps[k].op, Op::Random { .. }));
        let only_folds = pass.stores.is_empty() && pass.columns.is_empty();
        let is_here = self.nest.lines.is_some() && self.place == Place::Registers;
        is_here && draws && only_folds && self.turns.is_some_and(|turns| turns > 1)
    }

    /// Whether all passes are such: of rows of narrow floats that are held, or come into shared memory and have few operations (of many, all at once, registers are
    /// spilled), and are worked on with weights. Of two tensors, small blocks gain nothing by it.
    pub(super) fn fills_all(&self) -> bool {
        let is_fetched = !self.fetched.is_empty() && flops(self.nest, self.along) < FEW_FLOPS;
        let is_near_by = self.place == Place::Registers || is_fetched;
        let is_here = self.nest.lines.is_some() && self.part.is_none() && is_near_by;
        let is_weighed = self.is_near && self.weights() > 0 && !self.is_random();
        is_here
            && is_weighed
            && (self.rows_of_one() || self.is_large_and_near())
            && self.turns.is_some_and(|turns| turns > 1)
    }

    /// Whether what is held stays narrow behind meetings. The compiler would keep it widened, and of so many turns that leaves no registers to ask for weights ahead.
    pub(super) fn stays_narrow(&self) -> bool {
        let is_norm = self.passes.len() == 3 && flops(self.nest, self.along) < FEW_FLOPS;
        self.fills_all() && is_norm && self.turns.is_some_and(|turns| turns >= MANY_TURNS)
    }

    /// Tells the compiler nothing of what a pass takes from earlier ones.
    pub(super) fn keep_narrow(&self, body: &mut Body<'_>, number: usize) {
        let takes = &self.passes[number].takes;
        for held in self.held.iter().filter(|held| self.stays_narrow() && held.is_pack && takes.contains(&held.step)) {
            body.line("#pragma unroll");
            body.line(format!("for (int k = 0; k < {}; ++k) forget({}[k]);", self.turns.unwrap_or(1), held.name()));
        }
    }

    /// The coordinates of a pack, and whether it is there; what is read for one that is not is there in any case.
    pub(super) fn print_filled(&self, body: &mut Body<'_>) {
        let Some(Lines { axis, count, .. }) = &self.nest.lines else { return };
        let (threads, last) = (self.threads, self.turns.unwrap_or(1) - 1);
        body.line(format!("const bool inside = k < {last} || k * {threads} + t < packs;"));
        if self.knows_lead() {
            // All that is read lies near.
            self.print_place(body);
        } else {
            body.line(format!("const Index i{axis} = head + (inside ? k * {threads} + t : packs - 1) * {count};"));
        }
    }

    pub(super) fn close_filled(&self, body: &mut Body<'_>) {
        body.close(&format!("#pragma unroll\nfor (int k = 0; k < {}; ++k)", self.turns.unwrap_or(1)));
    }
}
