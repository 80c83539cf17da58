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
use super::columns::{MOST_SHARED, ROWS_FETCHED, flops};
use super::hold::{FEW_FLOPS, Place, Worth};
use super::lines::lines_from;
use super::pass::outer_axes;

/// Rows of a part that are worth putting together once what all rows read.
const LEAST_ROWS: i64 = 4;

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
    let alike = rows_apart(&lines, row)?;
    Some(Lines { parts: part.map(|part| Parts { part, row, alike }), ..lines })
}

/// Rows that begin anywhere, if blocks of threads walk along many of them each, all of which begin alike: what all rows read lies otherwise for each of them, and is
/// put together once a block then. Where rows are narrow floats of which so much is computed that instructions are what takes the time, and many.
pub(super) fn walk<'k>(nest: &Nest<'k>, stores: &[usize], along: AxisSet, lines: &Lines) -> Option<(Nest<'k>, usize)> {
    let part = nest.extents.len();
    let rows = outer_axes(nest, stores).without(along);
    let mut axes = rows.iter();
    let (row, None) = (axes.next()?, axes.next()) else { return None };
    let alike = rows_apart(lines, row)?;
    let mut nest = nest.in_lines(Lines { parts: Some(Parts { part, row, alike }), ..lines.clone() });
    // How many parts there are follows from what threads hold, whatever their number.
    nest.extents.push(Dim::int(alike));
    let plan = Plan::new(&nest, stores, along, Some(part));
    let parts = plan.parts();
    // Rows of unknown number are many.
    let are_many = nest.options.about.apply(&plan.rows).as_int().is_none_or(|rows| rows >= LEAST_ROWS * parts);
    let keeps = !plan.kept_loads.is_empty() && plan.has_all_near();
    let is_much = flops(&nest, along) >= FEW_FLOPS;
    if !plan.is_near || !is_much || plan.is_random() || !are_many || !keeps {
        return None;
    }
    nest.extents[part] = Dim::int(parts);
    Some((nest, part))
}

/// How many rows apart rows begin alike; none where that is not known before anything runs.
fn rows_apart(lines: &Lines, row: usize) -> Option<i64> {
    start_of(&lines.start, row).as_int()?;
    let stride = slope(&lines.start, row)?.as_int()?;
    Some(lines.count / gcd(lines.count, stride))
}

impl Plan<'_, '_> {
    /// Whether threads of a part know where its rows begin.
    pub(super) fn is_alike(&self) -> bool {
        self.part.is_some() && self.nest.lines.is_some()
    }

    /// Whether blocks walk along rows, and fold no columns.
    pub(super) fn walks(&self) -> bool {
        self.is_alike() && self.column_folds() == 0
    }

    /// Decides what is held by threads that walk along rows, and with how many registers: what all rows read stays there in any case.
    pub(super) fn hold_while_walking(&mut self) {
        self.fetched = self.loads_to_fetch();
        self.slots = ROWS_FETCHED;
        let takes = self.takes(Worth::Costly);
        let working = WORKING + WORKING_OF_PACK * self.turns.unwrap_or(1);
        let needed = working + (self.bytes_at_once(&takes) + self.weights_bytes()) / 4;
        let blocks = |registers: i64| (65536 / registers / self.block()).max(1);
        let fits =
            |registers: &&i64| **registers >= needed && self.fetched_bytes() * blocks(**registers) <= MOST_SHARED;
        let Some(registers) = REGISTERS.iter().find(fits) else { return };
        self.blocks_at_once = blocks(*registers);
        self.hold_in(Place::Registers, &takes);
        self.kept_loads = self.loads_to_keep();
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
        let begin = format!("(int)(({first}) % {count}) * {} + {}", stride.rem_euclid(*count), rest.rem_euclid(*count));
        body.line(format!("const int head = -({begin}) & {};", count - 1));
        self.print_packs(body, *axis, *count);
        for fold in self.columns() {
            let accumulator = Accumulator::of(self.nest, fold);
            body.line(format!("{} ends{} = {};", accumulator.ty, fold.0, accumulator.neutral));
        }
        let weights = self.weights_of_ends();
        self.declare_weights_of_ends(body, &weights)?;
        self.at_ends(body, |body| self.read_weights_of_ends(body, &weights))?;
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
        for id in self.kept_loads.iter().filter(|_| self.walks()) {
            body.line("#pragma unroll");
            body.line(format!("for (int k = 0; k < {}; ++k) forget(g{}[k]);", self.turns.unwrap_or(1), id.0));
        }
        let parts = body.index(&(self.nest.extents[part].clone() * self.pairs), &[]);
        self.ask_for_ends(body, &format!("first + {parts}"))
    }

    /// What is known of the ends of a row that was fetched.
    pub(super) fn know_ends(&self, body: &mut Body<'_>) {
        for id in self.fetched.iter().filter(|_| self.is_alike()) {
            let dtype = self.nest.load(*id).tensor.dtype;
            body.know(*id, element::widened(dtype, Code::atom(format!("e{}", id.0))));
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
