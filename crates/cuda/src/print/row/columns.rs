//! Rows and columns folded in one pass over both: a block walks along many rows, and every thread keeps the folds of its own columns, which it
//! leaves behind when there are no more rows. What all parts have left is folded afterwards.

use fuseline::error::Result;
use fuseline::tensor::Dim;
use fuseline::tile::{AxisSet, Op, StepId};

use super::super::body::{Accumulator, Body, Lanes, pack_width};
use super::super::code::Code;
use super::super::element;
use super::super::nest::{Access, Nest};
use super::hold::{FEW_FLOPS, Place, Takes, Worth};
use super::{Pass, Plan};

/// Elements of a row that a thread takes where nothing speaks against it; where so much is computed for each that it takes longer than to read
/// them, twice as many: what one thread computes for two does not wait for one another, fewer threads meet, and more blocks that wait for themselves share
/// a multiprocessor.
const SHARE: i64 = 8;
const MANY: i64 = 16;
const MANY_FLOPS: u32 = 48;

/// The same where no columns are folded, so that nothing is kept but what all rows read.
pub(super) const OF_ROWS: i64 = 32;

/// Threads of a block where rows are short, and those of a warp.
const THREADS: i64 = 128;
pub(super) const LANES: i64 = 32;

/// The most values of columns that a thread keeps.
const MOST_KEPT: i64 = 32;

/// Registers of a thread besides what is kept and held.
const WORKING: i64 = 32;

/// Registers of a thread where a multiprocessor holds 1024 of them, where it holds 768 in blocks of 256, and where it holds 512.
const FEW_REGISTERS: i64 = 64;
const SOME_REGISTERS: i64 = 80;
const MANY_REGISTERS: i64 = 128;

/// Rows that a block has in shared memory at a time: the one that it works on and the next one; where one thread asks for whole rows, two of them are on
/// their way, for a row is asked for only when all have left the one before.
pub(super) const ROWS_FETCHED: i64 = 2;
const ROWS_BROUGHT: i64 = 3;

/// Bytes of shared memory of a multiprocessor for three rows of its blocks: what is left is where weights lie that no register keeps.
const MOST_BROUGHT: i64 = 128 << 10;

/// Bytes of shared memory for values that are held.
pub(super) const MOST_SHARED: i64 = 200 << 10;

/// How many threads own a row of so many packs along some axes, and how many rows a block walks along side by side.
pub(super) fn threads(nest: &Nest<'_>, along: AxisSet, packs: i64, count: i64, folds: i64) -> (i64, i64) {
    let is_more = flops(nest, along) >= MANY_FLOPS && folds * MANY <= MOST_KEPT;
    let share = match (folds, is_more) {
        (0, _) => OF_ROWS,
        (_, true) => MANY,
        (_, false) => SHARE,
    };
    let wanted = (packs * count / share).max(1).unsigned_abs().next_power_of_two() as i64;
    let least = match folds {
        0 => least_of_row(nest, along, packs),
        // Two packs are what a thread takes.
        _ if is_more && 2 * count == MANY && packs < 2 * LANES && !reads_of_rows(nest, along) => LANES / 2,
        _ => LANES,
    };
    let least = packs.max(1).unsigned_abs().next_power_of_two().min(least.unsigned_abs()) as i64;
    let threads = wanted.max(least).min(1024);
    (threads, if threads > 32 { 1 } else { THREADS / threads })
}

/// The fewest threads of a row whose columns nobody keeps: a warp, or half of one where they had one pack each, or meet three times; two where they had four packs
/// each of which much is computed. Rows of a warp meet together, and all their ends are done at once.
fn least_of_row(nest: &Nest<'_>, along: AxisSet, packs: i64) -> i64 {
    let is_fold = |k: &usize| nest.kernel.steps[*k].op.is_fold() && nest.folds[*k] == along;
    let meetings = (0..nest.folds.len()).filter(is_fold).count();
    let packs_of_thread = if meetings > 2 { 4 } else { 2 };
    match packs {
        _ if packs < LANES * packs_of_thread && !reads_of_rows(nest, along) => LANES / 2,
        _ if packs > LANES * 3 && flops(nest, along) >= FEW_FLOPS => LANES * 2,
        _ => LANES,
    }
}

/// Whether something is read of every row that does not lie along it. Behind the last row, a warp that has several reads nothing for the others, but it would read that.
fn reads_of_rows(nest: &Nest<'_>, along: AxisSet) -> bool {
    let is_of_row = |access: &Access| {
        let axes = AxisSet::mentioned(&access.offset);
        !access.is_plain() || (axes.common(along).is_empty() && !axes.is_empty())
    };
    nest.loads().any(is_of_row)
}

/// What is computed for every element of a row.
pub(super) fn flops(nest: &Nest<'_>, along: AxisSet) -> u32 {
    let steps = nest.kernel.steps.iter().zip(&nest.axes).filter(|(_, axes)| !axes.common(along).is_empty());
    steps.map(|(step, _)| if let Op::Map { expr, .. } = &step.op { expr.flops() } else { 1 }).sum()
}

/// Whether rows along these axes can be owned while what is folded across all others is kept.
pub(in super::super) fn fits_columns(nest: &Nest<'_>, stores: &[usize], along: AxisSet, across: AxisSet) -> bool {
    let needed = nest.needed(stores);
    let steps = &nest.kernel.steps;
    let mut of_columns = 0;
    for k in (0..needed.len()).filter(|k| needed[*k] && steps[*k].op.is_fold()) {
        let is_row = nest.folds[k] == along && nest.axes[k].common(along).is_empty();
        let is_sum = match &steps[k].op {
            Op::Reduce { monoid, .. } => !monoid.is_position(),
            Op::Dot { .. } => true,
            _ => false,
        };
        let is_column = nest.folds[k] == across && nest.axes[k] == along && is_sum;
        if is_column {
            of_columns += 1;
        } else if !is_row || matches!(steps[k].op, Op::Prefix { .. }) {
            return false;
        }
    }
    let inside: AxisSet = across.union(along);
    let others = (0..nest.extents.len()).filter(|axis| !inside.contains(*axis) && !nest.extents[*axis].is(1));
    // Of one row, nothing is folded across rows.
    if along.is_empty() || across.is_empty() || of_columns == 0 || others.count() > 0 || nest.count(along).is(0) {
        return false;
    }
    let lines = super::alike::lines_of_parts(nest, stores, along, None);
    let lanes =
        lines.map_or_else(|| super::choose_lanes(nest, along), |lines| Lanes { axis: lines.axis, count: lines.count });
    let Some(packs) = nest.count(along).as_int().map(|length| length / lanes.count) else { return false };
    let (threads, _) = threads(nest, along, packs, lanes.count, of_columns as i64);
    of_columns as i64 * lanes.count * ((packs + threads - 1) / threads) <= MOST_KEPT
}

/// Into how many parts the rows are best divided.
pub(in super::super) fn parts(nest: &Nest<'_>, stores: &[usize], along: AxisSet, part: usize) -> i64 {
    match super::alike::lines_of_parts(nest, stores, along, Some(part)) {
        Some(lines) => Plan::new(&nest.in_lines(lines), stores, along, Some(part)).parts(),
        None => Plan::new(nest, stores, along, Some(part)).parts(),
    }
}

impl Plan<'_, '_> {
    /// Into how many parts rows are divided: rows of a part begin alike.
    pub(super) fn parts(&self) -> i64 {
        self.parts_of(self.nest.lines.as_ref().and_then(|lines| lines.parts).map_or(1, |parts| parts.alike))
    }

    /// The same where rows so many apart begin alike.
    pub(super) fn parts_of(&self, alike: i64) -> i64 {
        let blocks = self.nest.options.processors * self.blocks_at_once;
        let parts = blocks * self.rows_of_block / self.pairs;
        (parts / alike).max(1) * alike
    }

    /// Folds of columns.
    pub(super) fn column_folds(&self) -> i64 {
        self.passes.iter().map(|pass| pass.columns.len() as i64).sum()
    }

    /// Whether columns are folded too, and so much is computed for every element that it takes longer than to read it.
    pub(super) fn is_slow(&self) -> bool {
        self.part.is_some() && flops(self.nest, self.along) >= MANY_FLOPS
    }

    /// Registers that the folds of columns take.
    pub(super) fn kept(&self) -> i64 {
        self.column_folds() * self.lanes.count * self.turns.unwrap_or(1)
    }

    /// Decides what is held, and where, besides the folds of columns.
    pub(super) fn hold_with_columns(&mut self) {
        self.fetched = self.loads_to_fetch();
        let (all, loads) = (self.takes(Worth::Costly), self.takes(Worth::Loads));
        let everything = self.takes(Worth::All);
        let none = Takes { by_pass: vec![Vec::new(); self.passes.len()], held: Vec::new() };
        let block = self.block();
        let many = if block > 512 { FEW_REGISTERS } else { MANY_REGISTERS };
        let some = if block > 256 { FEW_REGISTERS } else { SOME_REGISTERS };
        // Where computing takes longer than reading, few threads that have many registers, so that values do not wait for one another.
        let is_slow = self.is_slow() && block <= 512;
        let first = is_slow.then_some((&everything, MANY_REGISTERS, Place::Registers));
        let ways = first.into_iter().chain([
            (&all, FEW_REGISTERS, Place::Registers),
            (&all, some, Place::Registers),
            (&all, many, Place::Registers),
            (&all, many, Place::Shared),
            (&loads, many, Place::Registers),
            (&loads, many, Place::Shared),
            (&none, many, Place::Again),
        ]);
        let most = if self.brings() { ROWS_BROUGHT } else { ROWS_FETCHED };
        for ((takes, registers, place), rows) in
            ways.flat_map(|way| (ROWS_FETCHED..=most).rev().map(move |rows| (way, rows)))
        {
            self.slots = rows;
            let blocks = (65536 / registers / block).max(1);
            let fetched = self.fetched_bytes();
            if rows > ROWS_FETCHED && fetched * blocks > MOST_BROUGHT {
                continue;
            }
            let fits = match place {
                Place::Registers => {
                    self.bytes_at_once(takes) <= 4 * (registers - WORKING - self.kept())
                        && fetched * blocks <= MOST_SHARED
                }
                Place::Shared => (self.bytes(takes) * block + fetched) * blocks <= MOST_SHARED,
                Place::Again => fetched * blocks <= MOST_SHARED,
            };
            if fits {
                self.blocks_at_once = blocks;
                self.hold_in(place, takes);
                // Where packs lie across lines, they are put together once.
                if (is_slow || self.is_alike()) && place == Place::Registers {
                    let used = WORKING + self.kept() + self.bytes_at_once(takes) / 4;
                    self.keep_loads(registers - used);
                }
                return;
            }
        }
        // Rows too long to be fetched ahead.
        self.fetched.clear();
        self.blocks_at_once = (65536 / many / block).max(1);
        let loads = self.takes(Worth::Loads);
        if self.bytes(&loads) * block * self.blocks_at_once <= MOST_SHARED {
            self.hold_in(Place::Shared, &loads);
        }
    }

    /// Loads of rows that can be fetched ahead: whole packs that nothing is asked before.
    pub(super) fn loads_to_fetch(&self) -> Vec<StepId> {
        let stores: Vec<usize> = (0..self.nest.stores.len()).collect();
        let needed = self.nest.needed(&stores);
        let rows: AxisSet = self.row_axes.iter().copied().collect();
        let is_fetched = |k: &usize| {
            let Op::Load { .. } = self.nest.kernel.steps[*k].op else { return false };
            let access = self.nest.load(StepId(*k as u32));
            let is_plain = access.is_plain();
            let varies = |axes: AxisSet| !self.nest.axes[*k].common(axes).is_empty();
            let is_whole = self.lanes.count > 1 && pack_width(self.nest, access, self.lanes) == Some(self.lanes.count);
            let bytes = element::bytes(access.tensor.dtype) * self.lanes.count;
            let is_fetched = varies(self.along) && varies(rows) && is_whole && bytes >= 4;
            needed[*k] && is_plain && is_fetched
        };
        (0..needed.len()).filter(is_fetched).map(|k| StepId(k as u32)).collect()
    }

    /// Bytes of shared memory for what is fetched.
    pub(super) fn fetched_bytes(&self) -> i64 {
        let bytes = |id: &StepId| element::bytes(self.nest.load(*id).tensor.dtype);
        let element: i64 = self.fetched.iter().map(bytes).sum();
        self.slots * element * self.lanes.count * self.turns.unwrap_or(1) * self.block()
    }

    /// Asks for what a row needs.
    fn fetch_row(&self, body: &mut Body<'_>, first: &str, slot: &str) -> Result<()> {
        let rows = body.index(&self.rows, &[]);
        body.open(AxisSet::EMPTY);
        self.print_row(body, first);
        self.print_fetches(body, slot)?;
        body.close(&format!("if ({first} < {rows})"));
        body.line("commit_copies();");
        Ok(())
    }

    /// Asks for every pack of a thread.
    fn print_fetches(&self, body: &mut Body<'_>, slot: &str) -> Result<()> {
        let inner = AxisSet::of(self.lanes.axis);
        body.open(self.along.without(inner));
        self.print_place(body);
        for id in &self.fetched {
            let access = self.nest.load(*id).clone();
            let (tensor, offset) = body.address(&access, None)?;
            let fetch = if self.outlasts() { "fetch_last" } else { "fetch_pack" };
            body.line(format!("{fetch}(f{} + {}, {tensor} + {offset});", id.0, self.place_of_fetched(slot)));
        }
        self.close_loop(body);
        Ok(())
    }

    /// Whether rows come into shared memory whole, by the engine for copies, which one thread asks: they lie in one piece, and threads meet
    /// before the place of an earlier row is written. That is later than every thread could ask for its own part, so only where computing takes
    /// longer than reading.
    pub(super) fn brings(&self) -> bool {
        let is_whole = self.is_alike() || self.turns.is_some_and(|turns| self.packs.is(turns * self.threads));
        let meets = self.threads > 32 && self.passes.iter().any(|pass| !pass.folds.is_empty());
        let is_of_columns = self.is_slow() && !self.lifts && !self.fetched.is_empty() && self.nest.options.groups;
        is_of_columns && is_whole && meets && self.is_in_one_piece()
    }

    /// Asks for a row.
    fn bring_row(&self, body: &mut Body<'_>, first: &str, slot: &str) -> Result<()> {
        let (rows, packs) = (body.index(&self.rows, &[]), self.turns.unwrap_or(1) * self.threads);
        let bytes_of_pack = |id: &StepId| element::bytes(self.nest.load(*id).tensor.dtype) * self.lanes.count;
        let bytes = |of_pack: i64| match self.is_alike() {
            true => format!("packs * {of_pack}"),
            false => (of_pack * packs).to_string(),
        };
        body.open(AxisSet::EMPTY);
        self.print_row(body, first);
        body.open(self.along);
        body.line(format!("const Index i{} = {};", self.lanes.axis, if self.is_alike() { "head" } else { "0" }));
        let all = bytes(self.fetched.iter().map(bytes_of_pack).sum());
        body.line(format!("expect_bytes(arrived + {slot}, {all});"));
        for id in &self.fetched {
            let (tensor, offset) = body.address(&self.nest.load(*id).clone(), None)?;
            let to = if slot == "0" { format!("f{}", id.0) } else { format!("f{} + {slot} * {packs}", id.0) };
            let own = bytes(bytes_of_pack(id));
            body.line(format!("bring({to}, {tensor} + {offset}, {own}, arrived + {slot});"));
        }
        body.close("");
        body.close(&format!("if (t == 0 && {first} < {rows})"));
        Ok(())
    }

    /// Asks for the next row, once the threads of this one have met, if that is how rows come.
    pub(super) fn bring_next(&self, body: &mut Body<'_>, number: usize) -> Result<()> {
        let first = self.passes.iter().position(|pass| !pass.folds.is_empty());
        let Some(part) = self.part.filter(|_| self.brings() && first == Some(number)) else { return Ok(()) };
        let ahead = body.index(&(self.nest.extents[part].clone() * self.pairs * (self.slots - 1)), &[]);
        if self.slots == ROWS_FETCHED {
            return self.bring_row(body, &format!("first + {ahead}"), "(slot ^ 1)");
        }
        body.line(format!("const int left = slot == 0 ? {} : slot - 1;", self.slots - 1));
        self.bring_row(body, &format!("first + {ahead}"), "left")
    }

    /// Where packs that are fetched lie.
    fn declare_fetched(&self, body: &mut Body<'_>) -> Result<()> {
        self.declare_near(body, "f", &self.fetched, self.slots, 0)
    }

    /// Brings the one row of a block into shared memory, where every thread finds its packs again.
    pub(super) fn fetch_own_row(&self, body: &mut Body<'_>) -> Result<()> {
        if self.part.is_some() || self.fetched.is_empty() {
            return Ok(());
        }
        self.print_begin(body);
        self.declare_fetched(body)?;
        if self.brings_own_row() {
            return self.bring_own_row(body);
        }
        self.print_fetches(body, "0")?;
        body.line("commit_copies();");
        Ok(())
    }

    /// Waits for the one row of a block, unless it comes in pieces; the ends of one that begins anywhere are asked for before.
    pub(super) fn wait_for_own_row(&self, body: &mut Body<'_>) {
        if self.part.is_none() && !self.fetched.is_empty() && !self.brings_own_row() {
            body.line("wait_for_copies<0>();");
        }
    }

    /// Whether the one row of a block comes in pieces, by the engine for copies: those that are there are worked on while others come, if no
    /// other block is there to work meanwhile.
    fn brings_own_row(&self) -> bool {
        let is_own = self.part.is_none() && self.blocks_at_once == 1 && !self.fetched.is_empty();
        is_own && self.nest.options.groups && self.is_in_one_piece()
    }

    /// Asks for the packs of all threads, turn by turn.
    fn bring_own_row(&self, body: &mut Body<'_>) -> Result<()> {
        let (turns, count, block) = (self.turns.unwrap_or(1), self.lanes.count, self.block());
        let packs = self.packs.as_int().unwrap_or(turns * block);
        body.line(format!("__shared__ unsigned long long arrived[{turns}];"));
        body.open(AxisSet::EMPTY);
        body.line(format!("begin_arrivals<{turns}>(arrived);"));
        body.open(self.along);
        let is_loose = self.nest.lines.is_some();
        let head = if is_loose { "head + " } else { "" };
        body.line(format!("const Index i{} = {head}k * {};", self.lanes.axis, block * count));
        let (turn, last) = (turns - 1, packs - (turns - 1) * block);
        let there = match last {
            // A row that begins late in a line may have no pack for the last turn.
            _ if is_loose => {
                body.line(format!(
                    "const int left = packs - k * {block}, there = k < {turn} ? {block} : left > 0 ? left : 0;"
                ));
                "there".to_owned()
            }
            _ if last == block => block.to_string(),
            _ => format!("(k < {turn} ? {block} : {last})"),
        };
        let any = if is_loose { "if (there > 0) " } else { "" };
        let bytes = |id: &StepId| element::bytes(self.nest.load(*id).tensor.dtype) * count;
        let all: i64 = self.fetched.iter().map(bytes).sum();
        body.line(format!("expect_bytes(arrived + k, {there} * {all});"));
        for id in &self.fetched {
            let (tensor, offset) = body.address(&self.nest.load(*id).clone(), None)?;
            let (to, own) = (format!("f{} + {}", id.0, self.place_of_fetched("0")), bytes(id));
            body.line(format!("{any}bring_last({to}, {tensor} + {offset}, {there} * {own}, arrived + k);"));
        }
        body.close(&format!("for (int k = 0; k < {turns}; ++k)"));
        body.close("if (t == 0)");
        body.line("__syncthreads();");
        Ok(())
    }

    /// Waits for a pack of the row, in the first pass over it.
    pub(super) fn wait_for_piece(&self, body: &mut Body<'_>, number: usize) {
        if number == 0 && self.brings_own_row() {
            body.line("wait_for_bytes(arrived + k, 0);");
        }
    }

    /// Whether packs of rows that are fetched lie behind one another in memory, and begin where the engine for copies can.
    fn is_in_one_piece(&self) -> bool {
        let is_aligned = |id: &StepId| element::bytes(self.nest.load(*id).tensor.dtype) * self.lanes.count % 16 == 0;
        self.order.len() == 1 && self.threads == self.block() && self.fetched.iter().all(is_aligned)
    }

    pub(super) fn place_of_fetched(&self, slot: &str) -> String {
        let (turns, block) = (self.turns.unwrap_or(1), self.block());
        match slot {
            "0" => format!("k * {block}"),
            _ => format!("({slot} * {turns} + k) * {block}"),
        }
    }

    /// Steps that vary along a row and that a pass computes or reads, but for what it takes from earlier ones.
    pub(super) fn read_by(&self, pass: &Pass) -> Vec<bool> {
        let folds = pass.folds.iter().chain(&pass.columns);
        let roots = folds.flat_map(|fold| self.nest.kernel.step(*fold).op.operands());
        let mut stack: Vec<StepId> =
            roots.chain(pass.stores.iter().map(|store| self.nest.stores[*store].value)).collect();
        let mut seen = vec![false; self.nest.kernel.steps.len()];
        while let Some(id) = stack.pop() {
            if !self.varies(id) || pass.takes.contains(&id) || std::mem::replace(&mut seen[id.index()], true) {
                continue;
            }
            stack.extend(self.nest.kernel.step(id).op.operands());
        }
        seen
    }

    /// What a pass reads of a row that was fetched.
    pub(super) fn print_fetched(&self, body: &mut Body<'_>, pass: &Pass) {
        let seen = self.read_by(pass);
        for id in self.kept_loads.iter().filter(|id| seen[id.index()]) {
            let dtype = self.nest.load(*id).tensor.dtype;
            let pack = if self.lifts { format!("w{}", id.0) } else { format!("g{}[k]", id.0) };
            if self.lifts {
                let (ty, count) = (element::stored(dtype).unwrap_or("float"), self.lanes.count);
                let kept = format!("g{}[{}]", id.0, self.place_of_kept());
                body.line(format!("const Pack<{ty}, {count}> {pack} = {kept};"));
            }
            let wide = || Code::atom(format!("{pack}.at[l]"));
            body.know_in_lanes(*id, if self.keeps_wide { wide() } else { element::widened_lane(dtype, &pack) });
        }
        let slot = if self.part.is_some() { "slot" } else { "0" };
        for id in self.fetched.iter().filter(|id| seen[id.index()]) {
            let dtype = self.nest.load(*id).tensor.dtype;
            let ty = element::stored(dtype).unwrap_or("float");
            if self.lifts {
                body.know_in_lanes(*id, element::widened_lane(dtype, &format!("r{}[k]", id.0)));
                continue;
            }
            let (name, count) = (format!("p{}", id.0), self.lanes.count);
            body.line(format!("const Pack<{ty}, {count}> {name} = f{}[{}];", id.0, self.place_of_fetched(slot)));
            body.know_in_lanes(*id, element::widened_lane(dtype, &name));
        }
    }

    /// Asks for the next row, and waits for this one.
    pub(super) fn wait_for_row(&self, body: &mut Body<'_>) -> Result<()> {
        let Some(part) = self.part.filter(|_| !self.fetched.is_empty()) else { return Ok(()) };
        if self.brings() {
            body.line("wait_for_bytes(arrived + slot, phase);");
            return Ok(());
        }
        let parts = body.index(&(self.nest.extents[part].clone() * self.pairs), &[]);
        if self.lifts {
            self.print_lift(body)?;
            return self.fetch_row(body, &format!("first + {parts}"), "0");
        }
        self.fetch_row(body, &format!("first + {parts}"), "(slot ^ 1)")?;
        body.line("wait_for_copies<1>();");
        Ok(())
    }

    /// What is kept of columns, before the first row; the loop over rows begins behind it.
    pub(super) fn declare_columns(&self, body: &mut Body<'_>) -> Result<()> {
        if self.part.is_none() {
            return Ok(());
        }
        self.declare_ends(body)?;
        let (turns, count) = (self.turns.unwrap_or(1), self.lanes.count);
        for fold in self.columns() {
            let accumulator = Accumulator::of(self.nest, fold);
            body.line(format!("{} column{}[{turns}][{count}];", accumulator.ty, fold.0));
            body.line("#pragma unroll");
            body.line(format!(
                "for (int k = 0; k < {}; ++k) column{}[k / {count}][k % {count}] = {};",
                turns * count,
                fold.0,
                accumulator.neutral
            ));
        }
        self.declare_fetched(body)?;
        let first = self.first_row();
        if self.brings() {
            let slots = self.slots;
            body.line(format!("__shared__ unsigned long long arrived[{slots}];"));
            body.line("int slot = 0, phase = 0;");
            body.line(format!("if (t == 0) begin_arrivals<{slots}>(arrived);"));
            body.line("__syncthreads();");
            self.bring_row(body, &first, "0")?;
            let parts = self.part.map_or(Dim::int(1), |part| self.nest.extents[part].clone() * self.pairs);
            for slot in 1..slots - 1 {
                let ahead = body.index(&(parts.clone() * slot), &[]);
                self.bring_row(body, &format!("{first} + {ahead}"), &slot.to_string())?;
            }
        } else if !self.fetched.is_empty() {
            if !self.lifts {
                body.line("int slot = 0;");
            }
            self.fetch_row(body, &first, "0")?;
        }
        // Behind the first row, which comes meanwhile.
        self.print_kept(body)?;
        body.open(AxisSet::EMPTY);
        Ok(())
    }

    /// The first row of a block.
    pub(super) fn first_row(&self) -> String {
        match self.rows_of_block {
            1 if self.is_alike() && self.pairs > 1 => {
                let parts = self.part.and_then(|part| self.nest.extents[part].as_int()).unwrap_or(0);
                format!("(Index)(blockIdx.x / {0} + blockIdx.x % {0} * {parts})", self.pairs)
            }
            1 => "blockIdx.x".to_owned(),
            // Warps go their own ways, each as rows of its own begin.
            group if self.is_alike() => format!("(Index)blockIdx.x * {group} + threadIdx.x / {}", self.threads),
            group => format!("(Index)blockIdx.x * {group}"),
        }
    }

    /// Ends the loop over rows, and writes what was kept of columns.
    pub(super) fn print_columns(&self, body: &mut Body<'_>) -> Result<()> {
        let Some(part) = self.part else { return Ok(()) };
        let meetings = self.passes.iter().filter(|pass| !pass.folds.is_empty()).count();
        if self.threads > 32 && meetings == 1 {
            // Nobody writes what others still read.
            body.line("__syncthreads();");
        }
        let parts = body.index(&(self.nest.extents[part].clone() * self.pairs), &[]);
        let rows = body.index(&self.rows, &[]);
        match self.slots {
            _ if self.fetched.is_empty() || self.lifts => {}
            ROWS_FETCHED => body.line("slot ^= 1;"),
            slots => body.line(format!("slot = slot == {} ? 0 : slot + 1;", slots - 1)),
        }
        if self.brings() {
            body.line(if self.slots == ROWS_FETCHED { "phase ^= slot ^ 1;" } else { "phase ^= slot == 0;" });
        }
        let (group, first) = (self.rows_of_block, self.first_row());
        // Threads of a warp go on together.
        let of_warp = match self.rows_of_warp() {
            of_warp if of_warp > 1 && self.live().is_some() => {
                format!("first - (Index)(threadIdx.x / {} % {of_warp})", self.threads)
            }
            _ => "first".to_owned(),
        };
        body.close(&format!("for (Index first = {first}; {of_warp} < {rows}; first += {parts})"));
        if self.pairs > 1 {
            self.join_columns(body);
        }
        body.open(AxisSet::of(part));
        let own = match (group, self.pairs) {
            (1, 1) => first,
            (1, pairs) => format!("blockIdx.x / {pairs}"),
            _ if self.is_alike() => first,
            _ => format!("{first} + threadIdx.x / {}", self.threads),
        };
        body.line(format!("const Index i{part} = {own};"));
        let has_lanes = body.lanes.is_some();
        let inner = AxisSet::of(self.lanes.axis);
        body.open(if has_lanes { self.along.without(inner) } else { self.along });
        self.print_place(body);
        let lane = if has_lanes { "l" } else { "0" };
        for fold in self.columns() {
            let result = Code::atom(format!("column{}[k][{lane}]", fold.0));
            if has_lanes { body.know_in_lanes(fold, result) } else { body.know(fold, result) }
        }
        body.open_lanes();
        let mut behind = Vec::new();
        for store in &self.column_stores {
            behind.extend(body.store(*store, None)?);
        }
        body.close_lanes();
        behind.into_iter().for_each(|line| body.line(line));
        self.close_loop(body);
        self.store_ends(body)?;
        body.close(if self.pairs > 1 { "if (keeps)" } else { "" });
        if self.pairs > 1 {
            // What is read there stays until it was read.
            body.line("wait_for_cluster();");
        }
        Ok(())
    }
}
