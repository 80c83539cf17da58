//! Rows whose length is no multiple of a pack, along many of which a thread walks: where columns are folded too, it has columns of its own, so that packs must
//! begin at the same column in every row that it sees; and where much is computed, it is worth putting together once what all rows read.
//!
//! Rows that lie as many rows apart as a pack has elements begin alike. Parts of the rows are as many as that divides, so all rows of a part begin alike:
//! packs of a part begin where lines of its first row do, and the few elements at both ends are columns of threads that have one more each.

use fuseline::error::Result;
use fuseline::tensor::{Dim, gcd};
use fuseline::tile::{AxisSet, Op, StepId};

use super::super::body::{Accumulator, Body, start_of};
use super::super::code::Code;
use super::super::element;
use super::super::nest::{Access, Lines, Nest, Parts, slope};
use super::Plan;
use super::columns::{LANES, MOST_SHARED, OF_ROWS, ROWS_FETCHED, flops};
use super::hold::{Place, Worth};
use super::lifted::are_long;
use super::lines::lines_from;
use super::pass::outer_axes;

/// Rows of a part that are worth putting together once what all rows read.
const LEAST_ROWS: i64 = 4;

/// What must be computed of every element, so that it is worth it: as much as of a norm that becomes short integers (30), not of a norm (22). Where threads have few
/// packs of one tensor, ends of rows and weights take more of the time, and a norm is enough, if it has a mean (18 without).
const MUCH: u32 = 28;
pub(super) const MUCH_OF_SHORT: u32 = 20;
const FEW_TURNS: i64 = 2;

/// Threads of blocks of which a multiprocessor has two.
const MOST_THREADS: i64 = 512;

/// Registers that a thread may have, and those that it needs besides what is held and what all rows read, for every pack some more.
const REGISTERS: [i64; 5] = [64, 72, 80, 96, 128];
const WORKING: i64 = 40;
const WORKING_OF_PACK: i64 = 3;

/// Where lines begin in rows along some axes, if packs follow them and columns are folded too. The axis that counts parts is there once rows are divided.
pub(super) fn lines_of_parts(nest: &Nest<'_>, stores: &[usize], along: AxisSet, part: Option<usize>) -> Option<Lines> {
    let is_of_rows = |access: &Access| part.is_none_or(|part| !AxisSet::mentioned(&access.offset).contains(part));
    let written: Vec<&Access> = stores.iter().map(|store| &nest.stores[*store].access).collect();
    let written: Vec<&Access> = written.into_iter().filter(|access| is_of_rows(access)).collect();
    let axis = super::choose_lanes(nest, along).axis;
    let rows = outer_axes(nest, stores).without(along).without(part.map_or(AxisSet::EMPTY, AxisSet::of));
    let mut axes = rows.iter();
    let (row, None) = (axes.next()?, axes.next()) else { return None };
    let is_own = |start: &Dim| AxisSet::mentioned(start) == rows;
    let start =
        nest.loads().chain(written.iter().copied()).map(|access| start_of(&access.offset, axis)).find(is_own)?;
    let lines = lines_from(nest, &written, start, along)?;
    let alike = rows_apart(&lines, lines.count, row)?;
    Some(Lines { parts: part.map(|part| Parts { part, row, alike }), ..lines })
}

/// Rows, if blocks of threads walk along many of them each, all of which begin alike: what all rows read is put together once a block then. Long ones that are lifted,
/// and those that begin anywhere, for each of which it lies otherwise, if they are narrow floats of which so much is computed that instructions are what takes the time.
pub(super) fn walk<'k>(
    nest: &Nest<'k>,
    stores: &[usize],
    along: AxisSet,
    lines: Option<&Lines>,
) -> Option<(Nest<'k>, usize)> {
    if lines.is_none() && !are_long(nest, along) {
        return None;
    }
    let part = nest.extents.len();
    let rows = outer_axes(nest, stores).without(along);
    let mut axes = rows.iter();
    let (row, None) = (axes.next()?, axes.next()) else { return None };
    let in_parts = |alike: i64| match lines {
        Some(lines) => nest.in_lines(Lines { parts: Some(Parts { part, row, alike }), ..lines.clone() }),
        None => nest.clone(),
    };
    let apart = |line: i64| lines.map_or(Some(1), |lines| rows_apart(lines, line, row));
    // How many parts there are follows from what threads hold, whatever their number, and from where packs begin.
    let divided = |parts: i64, alike: i64| {
        let mut nest = in_parts(alike);
        nest.extents.push(Dim::int(parts));
        nest
    };
    let alike = apart(lines.map_or(1, |lines| lines.count))?;
    let whole = divided(alike, alike);
    let plan = Plan::new(&whole, stores, along, Some(part));
    let alike = apart(plan.line())?;
    let parts = plan.parts_of(alike);
    // Rows of unknown number are many.
    let are_many = nest.options.about.apply(&plan.rows).as_int().is_none_or(|rows| rows >= LEAST_ROWS * parts);
    let keeps = !plan.kept_loads.is_empty() && plan.has_all_near();
    let is_better = plan.lifts || (lines.is_some() && plan.is_worth_walking());
    (are_many && keeps && is_better).then(|| (divided(parts, alike), part))
}

/// How many rows apart rows begin alike in lines of so many elements; none where that is not known before anything runs.
pub(super) fn rows_apart(lines: &Lines, line: i64, row: usize) -> Option<i64> {
    start_of(&lines.start, row).as_int()?;
    let stride = slope(&lines.start, row)?.as_int()?;
    Some(line / gcd(line, stride))
}

impl Plan<'_, '_> {
    /// Whether threads of a part know where its rows begin.
    pub(super) fn is_alike(&self) -> bool {
        self.part.is_some() && self.nest.lines.is_some()
    }

    /// Whether blocks walk along rows, and fold no columns.
    pub(super) fn walks(&self) -> bool {
        self.part.is_some() && self.column_folds() == 0
    }

    /// Whether much is computed of rows that begin anywhere, or they are so short that their ends take long.
    fn is_worth_walking(&self) -> bool {
        let is_short = self.turns.is_some_and(|turns| turns <= FEW_TURNS) && self.rows_of_one();
        let much = if is_short { MUCH_OF_SHORT } else { MUCH };
        // One block a multiprocessor would wait for its own meetings.
        let is_alone = self.block() > MOST_THREADS;
        let is_much = flops(self.nest, self.along) >= much && !self.may_have_twins();
        self.is_near && is_much && !self.is_random() && !is_alone
    }

    /// Decides what is held by threads that walk along rows, and with how many registers: what all rows read stays there in any case.
    pub(super) fn hold_while_walking(&mut self) {
        if self.lift() {
            return;
        }
        self.fetched = self.loads_to_fetch();
        self.slots = ROWS_FETCHED;
        let held = self.hold_walked();
        let Some(packs) = self.packs.as_int().filter(|_| held) else { return };
        // Fewer threads, if they have more to do in every turn: whole warps, not twice as many whenever it takes one more.
        let (many, fewer) = (self.threads, super::whole_warps(packs * self.lanes.count / OF_ROWS));
        if many > LANES && fewer < many {
            let (blocks, turns) = (self.blocks_at_once, self.turns.unwrap_or(1));
            let fits = self.divide_among(fewer, packs);
            if !fits || self.blocks_at_once * turns <= blocks * self.turns.unwrap_or(1) {
                self.divide_among(many, packs);
            }
        }
    }

    /// Divides a row that blocks walk along among so many threads; whether they hold it.
    fn divide_among(&mut self, threads: i64, packs: i64) -> bool {
        (self.threads, self.turns) = (threads, Some((packs + threads - 1) / threads));
        self.hold_walked()
    }

    /// Decides what threads hold, and how many blocks of them have registers for that, if any.
    fn hold_walked(&mut self) -> bool {
        // Behind a meeting of warps, the compiler reads and widens rows again.
        let meets = self.threads > LANES;
        for worth in [Worth::All, Worth::Costly].into_iter().skip(usize::from(!meets)) {
            let takes = self.takes(worth);
            let working = WORKING + WORKING_OF_PACK * self.turns.unwrap_or(1);
            let needed = working + (self.bytes_at_once(&takes) + self.weights_bytes()) / 4;
            let blocks = |registers: i64| (65536 / registers / self.block()).max(1);
            let fits =
                |registers: &&i64| **registers >= needed && self.fetched_bytes() * blocks(**registers) <= MOST_SHARED;
            let Some(registers) = REGISTERS.iter().find(fits) else { continue };
            self.blocks_at_once = blocks(*registers);
            self.hold_in(Place::Registers, &takes);
            self.kept_loads = self.loads_to_keep();
            return true;
        }
        false
    }

    /// Rows that the threads of a warp walk along side by side.
    pub(super) fn rows_of_warp(&self) -> i64 {
        (LANES / self.threads).max(1)
    }

    /// Whether all that varies along rows lies in shared memory, or in registers, when it is worked on.
    pub(super) fn has_all_near(&self) -> bool {
        let needed = self.nest.needed(&(0..self.nest.stores.len()).collect::<Vec<usize>>());
        let is_near = |k: usize| {
            let id = StepId(k as u32);
            let is_load = needed[k] && matches!(self.nest.kernel.steps[k].op, Op::Load { .. }) && self.varies(id);
            !is_load || self.fetched.contains(&id) || self.kept_loads.contains(&id)
        };
        self.place == Place::Registers && (0..needed.len()).all(is_near)
    }

    /// What all rows of a part share: where packs begin, columns at the ends and what all rows read there, and the ends of the first row.
    pub(super) fn declare_ends(&self, body: &mut Body<'_>) -> Result<()> {
        let Some(Lines { axis, count, start, parts: Some(parts) }) = &self.nest.lines else { return Ok(()) };
        let stride = slope(start, parts.row).and_then(|stride| stride.as_int()).unwrap_or(0);
        let rest = start_of(start, parts.row).as_int().unwrap_or(0);
        let first = self.first_row();
        let line = self.line();
        let begin = format!("(int)(({first}) % {line}) * {} + {}", stride.rem_euclid(line), rest.rem_euclid(line));
        body.line(format!("const int head = -({begin}) & {};", line - 1));
        self.print_packs(body, *axis, *count);
        for fold in self.columns() {
            let accumulator = Accumulator::of(self.nest, fold);
            body.line(format!("{} ends{} = {};", accumulator.ty, fold.0, accumulator.neutral));
        }
        let weights = self.weights_of_ends();
        self.declare_ends_of(body, &weights)?;
        self.at_ends(body, |body| self.read_ends_of(body, &weights))?;
        for id in &self.fetched {
            body.line(format!("{} n{} = {{}};", element::stored(self.nest.load(*id).tensor.dtype)?, id.0));
        }
        self.ask_for_ends(body, &first)
    }

    /// Asks for the ends of a row.
    fn ask_for_ends(&self, body: &mut Body<'_>, first: &str) -> Result<()> {
        let rows = body.index(&self.rows, &[]);
        body.open(AxisSet::EMPTY);
        self.print_row(body, first);
        self.at_ends(body, |body| {
            for id in &self.fetched {
                let (tensor, offset) = body.address(&self.nest.load(*id).clone(), None)?;
                body.line(format!("n{} = {tensor}[{offset}];", id.0));
            }
            Ok(())
        })?;
        body.close(&format!("if ({first} < {rows})"));
        Ok(())
    }

    /// The ends of this row, which were asked for while the one before was worked on, and those of the next one.
    pub(super) fn next_ends(&self, body: &mut Body<'_>) -> Result<()> {
        let Some(part) = self.part.filter(|_| !self.fetched.is_empty()) else { return Ok(()) };
        for id in &self.fetched {
            let ty = element::stored(self.nest.load(*id).tensor.dtype)?;
            body.line(format!("const {ty} e{0} = n{0};", id.0));
        }
        for id in self.kept_loads.iter().filter(|_| self.walks() && !self.lifts) {
            body.line("#pragma unroll");
            body.line(format!("for (int k = 0; k < {}; ++k) forget(g{}[k]);", self.turns.unwrap_or(1), id.0));
        }
        let parts = body.index(&(self.nest.extents[part].clone() * self.pairs), &[]);
        self.ask_for_ends(body, &format!("first + {parts}"))
    }

    /// What is known of the ends of a row that was fetched.
    pub(super) fn know_ends(&self, body: &mut Body<'_>) {
        for id in &self.fetched {
            let dtype = self.nest.load(*id).tensor.dtype;
            body.know(*id, element::widened(dtype, Code::atom(format!("e{}", id.0))));
        }
    }

    /// Leaves what was kept of the columns at the ends for the other block of a pair.
    pub(super) fn leave_ends(&self, body: &mut Body<'_>) {
        let Some(Lines { count, .. }) = self.nest.lines.as_ref().filter(|_| self.is_alike()) else { return };
        let who = self.who_has_ends();
        for fold in self.columns() {
            body.line(format!("__shared__ float ends_left{}[{}];", fold.0, 2 * (count - 1)));
            body.line(format!("if (!keeps && {who} < ends) ends_left{0}[{who}] = ends{0};", fold.0));
        }
    }

    /// Folds what the other block of a pair has left of the columns at the ends.
    pub(super) fn fold_ends(&self, body: &mut Body<'_>) {
        let who = self.who_has_ends();
        for fold in self.columns().filter(|_| self.is_alike()) {
            let (id, functor) = (fold.0, Accumulator::of(self.nest, fold).functor);
            let other = format!("from_block(ends_left{id} + {who}, (blockIdx.x + 1) % 2)");
            body.line(format!("if (keeps && {who} < ends) ends{id} = {functor}(ends{id}, {other});"));
        }
    }

    /// Writes what was kept of the columns at the ends.
    pub(super) fn store_ends(&self, body: &mut Body<'_>) -> Result<()> {
        if !self.is_alike() {
            return Ok(());
        }
        self.at_ends(body, |body| {
            for fold in self.columns() {
                body.know(fold, Code::atom(format!("ends{}", fold.0)));
            }
            for store in &self.column_stores {
                body.store(*store, None)?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use fuseline::tensor::Env;
    use fuseline::tile::parse;

    use super::super::super::print;
    use super::super::super::tests::made_for;

    /// A norm that becomes short integers, which meets three times: what is printed for so many rows and columns.
    fn quantized(rows: &str, columns: i64) -> String {
        let kernel = format!(
            "kernel {{ axes i0: {rows}, i1: {columns} in b: bf16[{columns}], w: bf16[{columns}], x: bf16[{rows}, {columns}] \
             out y: i8[{rows}, {columns}] schedule row along=[i1] placement=registers \
             %0 = load b[i1] %1 = load w[i1] %2 = load x[i0, i1] %3 = map(%2) f32(a) %4 = reduce.sum %3 over [i1] \
             %5 = map(%3, %4) {{ t0 = a - b; t0 * t0 }} %6 = reduce.sum %5 over [i1] \
             %7 = map(%0, %1, %6, %3, %4) f32(a) + f32(b) * (1.0 / sqrt(c / f32(size({columns})) + 1e-5)) * (d - e) \
             %8 = map(%7) abs(a) %9 = reduce.max %8 over [i1] \
             %10 = map(%7, %9) i8(min(max(round(a / b * 127.0), -128.0), 127.0)) store y[i0, i1] = %10 }}"
        );
        print(&parse(&kernel).unwrap(), &made_for(&Env::new())).unwrap().functions
    }

    #[test]
    fn rows_that_meet_often_share_a_warp_that_goes_on_as_one() {
        let text = quantized("n", 513);
        let there = |what: &str| assert!(text.contains(what), "{what}: {text}");
        there("16 threads walk a row of 513 elements");
        there("first - (Index)(threadIdx.x / 16 % 2) < size_n;");
        there("const bool live = first < size_n;");
        there("if (inside && live) store<8>(");
        there("const Index i1 = lead + k * 128;");
        // An even number of rows leaves none of a warp without one.
        let even = quantized("65536", 513);
        assert!(even.contains("first < 65536; first += ") && !even.contains("live"), "{even}");
        // Behind a meeting of warps, what was widened is not widened again.
        let text = quantized("n", 4097);
        assert!(text.contains("128 threads walk a row") && text.contains("Pack<float, 8> h3[4];"), "{text}");
        // Fewer threads, where twice as many would have nothing to do in many turns; not where these have.
        assert!(quantized("n", 5001).contains("160 threads walk a row"));
        assert!(quantized("n", 7001).contains("256 threads walk a row"));
    }

    #[test]
    fn long_rows_do_not_wait_for_one_block() {
        let text = quantized("n", 20_001);
        assert!(text.contains("512 threads walk a row") && !text.contains("first += "), "{text}");
        assert!(text.contains("(inside ? k * 512 + t : packs - 1) * 8;"), "{text}");
    }

    #[test]
    fn a_number_that_every_row_has_is_not_read_behind_the_last_row() {
        let kernel = "kernel { axes i0: n, i1: 513 in s: f32[n], b: bf16[513], w: bf16[513], x: bf16[n, 513] out y: bf16[n, 513] \
            schedule row along=[i1] placement=registers %0 = load b[i1] %1 = load w[i1] %2 = load x[i0, i1] \
            %3 = map(%2) f32(a) %4 = reduce.sum %3 over [i1] %5 = map(%3, %4) { t0 = a - b; t0 * t0 } \
            %6 = reduce.sum %5 over [i1] %7 = load s[i0] %8 = map(%3, %7) abs(a) * b %9 = reduce.max %8 over [i1] \
            %10 = map(%0, %1, %6, %3, %4, %9) bf16(erf(f32(a) + f32(b) * (1.0 / sqrt(c)) * (d - e)) / f) store y[i0, i1] = %10 }";
        let text = print(&parse(kernel).unwrap(), &made_for(&Env::new())).unwrap().functions;
        assert!(!text.contains("16 threads walk"), "{text}");
    }

    #[test]
    fn columns_at_the_ends_are_kept_of_rows_that_are_there() {
        let text = |dtype: &str, columns: i64| {
            let kernel = format!(
                "kernel {{ axes i0: n, i1: {columns} in x: {dtype}[n, {columns}], g: {dtype}[n, {columns}] \
                 out y: f32[{columns}], z: {dtype}[n, {columns}] schedule column across=[i0] along=[i1] parts=528 \
                 %0 = load x[i0, i1] %1 = load g[i0, i1] %2 = map(%0, %1) erf(exp(erf(f32(a)) * f32(b))) * erf(f32(b)) \
                 %3 = reduce.sum %2 over [i1] %4 = reduce.sum %2 over [i0] %5 = map(%3, %1) {dtype}(a * f32(b)) \
                 store y[i1] = %4 store z[i0, i1] = %5 }}"
            );
            print(&parse(&kernel).unwrap(), &made_for(&Env::new())).unwrap().functions
        };
        // Two rows of short ones share a warp, one of which may be behind the last.
        let short = text("bf16", 257);
        assert!(short.contains("16 threads walk a row") && short.contains("if (live) ends4 = ends4 + v2;"), "{short}");
        assert!(text("f32", 257).contains("32 threads walk a row"));
        // Both blocks of a pair have rows that begin alike, and one of them has what both kept of the ends.
        let pairs = text("bf16", 1025);
        let there = |what: &str| assert!(pairs.contains(what), "{what}: {pairs}");
        there("64 threads walk a row");
        there("const int back = 63 - t;");
        there("if (!keeps && back < ends) ends_left4[back] = ends4;");
        there("ends4 = Sum()(ends4, from_block(ends_left4 + back, (blockIdx.x + 1) % 2));");
    }
}
