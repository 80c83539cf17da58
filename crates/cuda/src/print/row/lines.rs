//! Rows whose length is no multiple of a pack: each begins somewhere else in a line of 16 bytes.
//!
//! Packs begin where lines do, so that they are read and written whole; the few elements before the first and behind the last line of a row are
//! done one by one, each by a thread. What all rows read begins where a line does, and is read across two of them.

use fuseline::error::Result;
use fuseline::tensor::Dim;
use fuseline::tile::{AxisSet, Op, StepId};

use super::super::body::{Accumulator, Body, pack_width, start_of};
use super::super::code::Code;
use super::super::element;
use super::super::nest::{Access, Lines, Nest, is_multiple, slope};
use super::columns::flops;
use super::hold::{FEW_FLOPS, Held, Place};
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
        for held in &self.held {
            body.line(format!("{} {} = {{}};", self.type_of_end(held), end_name(held)));
        }
        let fetched: &[StepId] = if self.is_alike() { &[] } else { &self.fetched };
        self.declare_ends_of(body, fetched)?;
        let early = if self.is_alike() { Vec::new() } else { self.early_at_ends() };
        self.declare_ends_of(body, &early)?;
        self.at_ends(body, |body| {
            for held in self.held.iter().filter(|held| self.is_load(held)) {
                let (tensor, offset) = body.address(&self.nest.load(held.step).clone(), None)?;
                body.line(format!("{} = {tensor}[{offset}];", end_name(held)));
            }
            self.read_ends_of(body, fetched)?;
            self.read_ends_of(body, &early)
        })
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
            Some(_) if is_plain() && is_long() => count * PACKS_OF_SECTOR,
            Some(_) => count,
        }
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

    pub(super) fn declare_ends_of(&self, body: &mut Body<'_>, loads: &[StepId]) -> Result<()> {
        for id in loads {
            body.line(format!("{} e{} = {{}};", element::stored(self.nest.load(*id).tensor.dtype)?, id.0));
        }
        Ok(())
    }

    /// Reads elements at the ends of a row.
    pub(super) fn read_ends_of(&self, body: &mut Body<'_>, loads: &[StepId]) -> Result<()> {
        for id in loads {
            let (tensor, offset) = body.address(&self.nest.load(*id).clone(), None)?;
            body.line(format!("e{} = {tensor}[{offset}];", id.0));
        }
        Ok(())
    }

    /// What is the same for all rows and varies along them: where one of several warps does the ends of a row, it asks for that at once, too, so that others need not
    /// wait for it. Where every warp has a row, registers are worth more, unless it has many rows.
    pub(super) fn weights_of_ends(&self) -> Vec<StepId> {
        let asks = self.rows_of_block == 1 || self.is_alike();
        if asks { self.loads_at_ends(false) } else { Vec::new() }
    }

    /// What elements at the ends of rows need and is asked for before any pack is: weights, and what rows have of their own that is not held as it lies. Behind
    /// the packs, it would be waited for once more; but of narrow floats (0.5 to 1 µs of 60), instructions are what takes the time.
    fn early_at_ends(&self) -> Vec<StepId> {
        let mut early = self.weights_of_ends();
        if self.part.is_none() && !self.is_near {
            early.extend(self.loads_at_ends(true));
        }
        early
    }

    /// Loads along rows that are neither held nor fetched: those that every row has of its own, or those that are the same for all.
    fn loads_at_ends(&self, own: bool) -> Vec<StepId> {
        let rows: AxisSet = self.row_axes.iter().copied().collect();
        let of_rows = self.passes.iter().flat_map(|pass| pass.stores.iter().copied());
        let stored: Vec<usize> = of_rows.chain(self.column_stores.iter().copied()).collect();
        let needed = self.nest.needed(&stored);
        let is_read = |k: &usize| {
            let (Op::Load { .. }, true) = (&self.nest.kernel.steps[*k].op, needed[*k]) else { return false };
            let (axes, access) = (self.nest.axes[*k], self.nest.load(StepId(*k as u32)));
            let is_plain = access.is_plain();
            is_plain && axes.common(rows).is_empty() != own && axes.contains(self.lanes.axis)
        };
        let loads = (0..needed.len()).filter(is_read).map(|k| StepId(k as u32));
        loads.filter(|id| !self.fetched.contains(id) && self.held.iter().all(|held| held.step != *id)).collect()
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

    /// What a pass does with the elements at the ends of a row.
    pub(super) fn print_ends(&self, body: &mut Body<'_>, number: usize, accumulators: &[Accumulator]) -> Result<()> {
        if self.nest.lines.is_none() {
            return Ok(());
        }
        let pass = &self.passes[number];
        self.at_ends(body, |body| {
            for held in self.held.iter().filter(|held| self.is_load(held) || held.first < number) {
                let (dtype, name) = (self.nest.kernel.step(held.step).dtype, Code::atom(end_name(held)));
                let value =
                    if self.is_load(held) { element::widened(dtype, name) } else { self.held_number(held, name) };
                body.know(held.step, value);
            }
            self.know_ends(body);
            self.know_drawn_ends(body);
            for id in self.early_at_ends() {
                let dtype = self.nest.load(id).tensor.dtype;
                body.know(id, element::widened(dtype, Code::atom(format!("e{}", id.0))));
            }
            for (fold, accumulator) in pass.folds.iter().zip(accumulators) {
                body.accumulate(*fold, accumulator, &format!("s{}", fold.0))?;
            }
            for fold in &pass.columns {
                let (accumulator, name) = (Accumulator::of(self.nest, *fold), format!("ends{}", fold.0));
                body.accumulate_where(*fold, &accumulator, &name, self.live())?;
            }
            for store in &pass.stores {
                body.store(*store, self.live())?;
            }
            for held in self.held.iter().filter(|held| held.first == number && !self.is_load(held)) {
                let value = body.value(held.step)?;
                body.line(format!("{} = {value};", end_name(held)));
            }
            Ok(())
        })
    }

    /// Does something with an element at one of the ends, which is no part of a pack.
    pub(super) fn at_ends(&self, body: &mut Body<'_>, act: impl FnOnce(&mut Body<'_>) -> Result<()>) -> Result<()> {
        let lanes = body.lanes.take();
        body.open(self.along);
        body.line(format!("const Index i{} = end;", self.lanes.axis));
        act(body)?;
        body.close(&format!("if ({} < ends)", self.who_has_ends()));
        body.lanes = lanes;
        Ok(())
    }

    /// The number of a thread among those that have an element at an end: the first ones, or the last ones, where the first one asks for rows.
    pub(super) fn who_has_ends(&self) -> &'static str {
        if self.is_alike() && self.brings() { "back" } else { "t" }
    }

    /// Whether what is held is an element as it was read, and always there.
    fn is_load(&self, held: &Held) -> bool {
        let is_load = matches!(self.nest.kernel.step(held.step).op, Op::Load { .. });
        held.is_pack && is_load && self.nest.load(held.step).guards.is_empty()
    }

    fn type_of_end(&self, held: &Held) -> &'static str {
        if self.is_load(held) { held.ty } else { element::held(self.nest.kernel.step(held.step).dtype) }
    }
}

pub(super) fn end_name(held: &Held) -> String {
    format!("e{}", held.step.0)
}
