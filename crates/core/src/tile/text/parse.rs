//! Kernels from text.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::short::read_short;
use super::usual::usual_schedule;
use super::{Places, Source};
use crate::cursor::Cursor;
use crate::error::{Context as _, Result};
use crate::graph::text::no_files;
use crate::graph::text::parse::{read_dtype, read_graph, read_guards, read_type};
use crate::graph::text::read_expr;
use crate::ops::prim::Monoid;
use crate::tensor::{DType, Dim, Layout};
use crate::tile::{AxisSet, Builder, Chain, Correction, Op, Param, Placement, Rounding, Schedule, StepId, Tile};

/// Reads a kernel, whose steps are typed and otherwise not verified.
pub(super) fn read_kernel(cursor: &mut Cursor<'_>) -> Result<Source> {
    cursor.expect_word("kernel")?;
    if !cursor.sees("{") {
        return read_short(cursor);
    }
    let (inputs, outputs, labels) = (FxHashMap::default(), FxHashMap::default(), FxHashMap::default());
    let places = Places { schedule: cursor.line_and_column(), ..Places::default() };
    let mut reader =
        Reader { cursor, builder: Builder::new(), inputs, outputs, labels, corrections: Vec::new(), places };
    reader.cursor.expect("{")?;
    reader.axes()?;
    reader.params()?;
    let outline = match reader.cursor.peek_word() == Some("schedule") {
        true => Some(reader.schedule()?),
        false => None,
    };
    if reader.cursor.eat_word("rounding") {
        reader.cursor.expect_word("every")?;
        reader.builder.rounding(Rounding::Every);
    }
    while !reader.cursor.eat("}") {
        reader.statement()?;
    }
    let is_scheduled = outline.is_some();
    let schedule = match outline {
        Some(outline) => reader.complete(outline)?,
        None if reader.corrections.is_empty() => usual_schedule(reader.builder.kernel()),
        None => return Err(reader.cursor.error("corrections go with the schedule attention")),
    };
    let names = |names: FxHashMap<&str, usize>| {
        let mut sorted: Vec<(usize, String)> = names.into_iter().map(|(name, k)| (k, name.to_owned())).collect();
        sorted.sort_unstable();
        sorted.into_iter().map(|(_, name)| name).collect()
    };
    Ok(Source {
        kernel: reader.builder.finish_unverified(schedule),
        name: None,
        inputs: names(reader.inputs),
        outputs: names(reader.outputs),
        is_scheduled,
        places: reader.places,
        names: None,
    })
}

struct Reader<'c, 't> {
    cursor: &'c mut Cursor<'t>,
    builder: Builder,
    /// inputs by name
    inputs: FxHashMap<&'t str, usize>,
    /// outputs by name
    outputs: FxHashMap<&'t str, usize>,
    /// steps by what stands behind `%`
    labels: FxHashMap<&'t str, StepId>,
    corrections: Vec<Correction>,
    places: Places,
}

/// A step that a schedule names before it is there.
#[derive(Clone, Copy)]
struct Mention<'t> {
    label: &'t str,
    place: Cursor<'t>,
}

/// A schedule whose steps are not known yet.
enum Outline<'t> {
    Ready(Schedule),
    Contract { dots: Vec<Mention<'t>>, rows: AxisSet, columns: AxisSet, sum: AxisSet, whole_rows: bool, tile: Tile },
    Attention { first: Mention<'t>, second: Mention<'t>, axes: [AxisSet; 4], tile: Tile, parts: u32 },
}

impl<'t> Reader<'_, 't> {
    fn axes(&mut self) -> Result<()> {
        if !self.cursor.eat_word("axes") {
            return Ok(());
        }
        loop {
            let start = *self.cursor;
            let wanted = format!("i{}", self.builder.kernel().axes.len());
            if !self.cursor.eat_word(&wanted) {
                return Err(self.cursor.expected(&format!("'{wanted}'")));
            }
            self.cursor.expect(":")?;
            let extent = Dim::read(self.cursor)?;
            self.builder.axis(extent).at(|| start.place())?;
            if !self.cursor.eat(",") {
                return Ok(());
            }
        }
    }

    fn params(&mut self) -> Result<()> {
        if self.cursor.eat_word("in") {
            while {
                let (name, place, param) = self.param()?;
                let input = self.builder.input(param);
                if self.inputs.insert(name, input).is_some() {
                    return Err(place.error(format!("two inputs are called {name}")));
                }
                self.cursor.eat(",")
            } {}
        }
        if self.cursor.eat_word("out") {
            while {
                let (name, place, param) = self.param()?;
                let output = self.builder.output(param);
                if self.outputs.insert(name, output).is_some() {
                    return Err(place.error(format!("two outputs are called {name}")));
                }
                self.cursor.eat(",")
            } {}
        }
        Ok(())
    }

    /// `name: type`, with the order of the axes in memory where it is not row-major.
    fn param(&mut self) -> Result<(&'t str, Cursor<'t>, Param)> {
        let place = *self.cursor;
        let name = self.cursor.word("the name of a tensor")?;
        self.cursor.expect(":")?;
        let ty = read_type(self.cursor)?;
        let mut param = Param::row_major(ty);
        let start = *self.cursor;
        if self.cursor.eat_word("order") {
            self.cursor.expect("=")?;
            self.cursor.expect("[")?;
            let order: Vec<usize> = self.cursor.list("]", |cursor| cursor.integer("the number of an axis"))?;
            let layout = Layout::ordered(&order).filter(|layout| layout.rank() == param.ty.shape.rank());
            let wrong = || start.error(format!("{order:?} is no order of the axes of {}", param.ty));
            param.layout = layout.ok_or_else(wrong)?;
        }
        Ok((name, place, param))
    }

    /// Reads a step, a store or a correction.
    fn statement(&mut self) -> Result<()> {
        if self.cursor.eat_word("store") {
            return self.store();
        }
        if self.cursor.eat_word("correct") {
            return self.correction();
        }
        if !self.cursor.eat("%") {
            return Err(self.cursor.expected("'%', 'store', 'correct' or '}'"));
        }
        let start = *self.cursor;
        let label = self.cursor.label("the label of a step")?;
        if self.labels.contains_key(label) {
            return Err(start.error(format!("%{label} has a meaning already")));
        }
        self.cursor.expect("=")?;
        let place = *self.cursor;
        let op = self.operation()?;
        let id = self.builder.step(op).at(|| place.place())?;
        self.places.steps.push(start.line_and_column());
        self.labels.insert(label, id);
        Ok(())
    }

    fn store(&mut self) -> Result<()> {
        self.places.stores.push(self.cursor.line_and_column());
        let output = self.named("an output", &|reader, name| reader.outputs.get(name).copied())?;
        let index = self.dims()?;
        self.cursor.expect("=")?;
        let value = self.step()?;
        self.builder.store(output, &index, value);
        Ok(())
    }

    fn correction(&mut self) -> Result<()> {
        let fold = self.step()?;
        self.cursor.expect_word("on")?;
        let on = self.step()?;
        self.cursor.expect_word("by")?;
        let dtype = self.dtype(on);
        let factor = read_expr::read(self.cursor, &[dtype, dtype])?;
        self.corrections.push(Correction { fold, on, factor });
        Ok(())
    }

    fn operation(&mut self) -> Result<Op> {
        let start = *self.cursor;
        Ok(match self.cursor.word("an operation")? {
            "load" => {
                let input = self.named("an input", &|reader, name| reader.inputs.get(name).copied())?;
                let index = self.dims()?;
                let reads = self.reads()?;
                let dtype = self.builder.kernel().inputs[input].ty.dtype;
                let (guard, fill) = read_guards(self.cursor, dtype)?;
                Op::Load { input, index, guard, fill, reads: reads.into() }
            }
            "random" => {
                let seed = self.step()?;
                self.cursor.key("stream")?;
                let stream = self.cursor.integer("the number of a stream")?;
                self.cursor.expect_word("at")?;
                // In brackets: behind a sum, the `%` of the next step would be read as a remainder.
                self.cursor.expect("[")?;
                let index = Dim::read(self.cursor)?;
                self.cursor.expect("]")?;
                Op::Random { stream, seed, index, reads: self.reads()?.into() }
            }
            "map" => {
                let args = self.steps()?;
                let dtypes: Vec<DType> = args.iter().map(|arg| self.dtype(*arg)).collect();
                Op::Map { expr: read_expr::read(self.cursor, &dtypes)?, args: args.into() }
            }
            "reduce" => {
                let monoid = self.cursor.variant("a monoid", Monoid::from_name)?;
                let arg = self.step()?;
                self.cursor.expect_word("over")?;
                Op::Reduce { monoid, over: self.axis_set()?, arg }
            }
            "prefix" => {
                let monoid = self.cursor.variant("a monoid", Monoid::from_name)?;
                let arg = self.step()?;
                self.cursor.expect_word("along")?;
                let axis = read_axis(self.cursor)?;
                Op::Prefix { monoid, axis, exclusive: self.cursor.eat_word("exclusive"), arg }
            }
            "dot" => {
                self.cursor.expect("(")?;
                let a = self.step()?;
                self.cursor.expect(",")?;
                let b = self.step()?;
                self.cursor.expect(")")?;
                self.cursor.expect_word("over")?;
                let over = self.axis_set()?;
                self.cursor.key("acc")?;
                Op::Dot { over, a, b, accumulator: read_dtype(self.cursor)? }
            }
            name => return Err(start.error(format!("there is no operation {name}"))),
        })
    }

    fn schedule(&mut self) -> Result<Outline<'t>> {
        self.places.schedule = self.cursor.line_and_column();
        self.cursor.expect_word("schedule")?;
        let start = *self.cursor;
        Ok(match self.cursor.word("a schedule")? {
            "map" => Outline::Ready(Schedule::Map),
            "row" => {
                let along = self.role("along")?;
                Outline::Ready(Schedule::Row { along, placement: self.placement()? })
            }
            "column" => {
                let (across, along) = (self.role("across")?, self.role("along")?);
                self.cursor.key("parts")?;
                let parts = self.cursor.integer("a number of parts")?;
                Outline::Ready(Schedule::Column { across, along, parts })
            }
            "contract" => {
                self.cursor.key("dots")?;
                self.cursor.expect("(")?;
                let dots = self.cursor.list(")", read_mention)?;
                let [rows, columns, sum] = [self.role("rows")?, self.role("columns")?, self.role("sum")?];
                let tile = self.tile()?;
                let whole_rows = self.cursor.eat_word("whole_rows");
                Outline::Contract { dots, rows, columns, sum, whole_rows, tile }
            }
            "attention" => {
                self.cursor.key("first")?;
                let first = read_mention(self.cursor)?;
                self.cursor.key("second")?;
                let second = read_mention(self.cursor)?;
                let axes = [self.role("rows")?, self.role("stream")?, self.role("inner")?, self.role("columns")?];
                let tile = self.tile()?;
                let parts = match self.cursor.eat_word("parts") {
                    true => {
                        self.cursor.expect("=")?;
                        self.cursor.integer("a number of parts")?
                    }
                    false => 1,
                };
                Outline::Attention { first, second, axes, tile, parts }
            }
            "host" => {
                let graph = self.cursor.nested(|cursor| read_graph(cursor, &no_files, false))?;
                Outline::Ready(Schedule::Host(Arc::new(graph)))
            }
            name => return Err(start.error(format!("there is no schedule {name}"))),
        })
    }

    /// The schedule, now that its steps are there.
    fn complete(&mut self, outline: Outline<'t>) -> Result<Schedule> {
        let find = |mention: &Mention<'t>| {
            let id = self.labels.get(mention.label).copied();
            id.ok_or_else(|| mention.place.error(format!("there is no step %{}", mention.label)))
        };
        let corrections = std::mem::take(&mut self.corrections);
        if !corrections.is_empty() && !matches!(outline, Outline::Attention { .. }) {
            return Err(self.cursor.error("corrections go with the schedule attention"));
        }
        Ok(match outline {
            Outline::Ready(schedule) => schedule,
            Outline::Contract { dots, rows, columns, sum, whole_rows, tile } => {
                let dots = dots.iter().map(find).collect::<Result<_>>()?;
                Schedule::Contract { dots, rows, columns, sum, whole_rows, tile }
            }
            Outline::Attention { first, second, axes: [rows, stream, inner, columns], tile, parts } => {
                let (first, second) = (find(&first)?, find(&second)?);
                let chain = Chain { first, second, rows, stream, inner, columns };
                Schedule::Attention { chain, corrections, tile, parts }
            }
        })
    }

    fn placement(&mut self) -> Result<Placement> {
        self.cursor.key("placement")?;
        let start = *self.cursor;
        Ok(match self.cursor.word("a placement")? {
            "registers" => Placement::Registers,
            "on_chip" => Placement::OnChip,
            "reread" => Placement::Reread,
            "split" => {
                self.cursor.expect("(")?;
                let parts = self.cursor.integer("a number of parts")?;
                self.cursor.expect(")")?;
                Placement::Split(parts)
            }
            name => return Err(start.error(format!("there is no placement {name}"))),
        })
    }

    /// `tile=64x64x32`.
    fn tile(&mut self) -> Result<Tile> {
        self.cursor.key("tile")?;
        let rows = self.cursor.integer("a number of rows")?;
        let mut next = |what: &str| {
            if self.cursor.eat_adjacent("x") { self.cursor.suffix(what) } else { Err(self.cursor.expected("'x'")) }
        };
        let columns = next("a number of columns")?;
        Ok(Tile { rows, columns, depth: next("a depth")? })
    }

    /// `name=[i0, i1]`.
    fn role(&mut self, name: &str) -> Result<AxisSet> {
        self.cursor.key(name)?;
        self.axis_set()
    }

    fn axis_set(&mut self) -> Result<AxisSet> {
        self.cursor.expect("[")?;
        let mut set = AxisSet::EMPTY;
        self.cursor.list("]", |cursor| {
            let start = *cursor;
            let axis = read_axis(cursor)?;
            if set.contains(axis) {
                return Err(start.error(format!("i{axis} twice")));
            }
            set = set.with(axis);
            Ok(())
        })?;
        Ok(set)
    }

    fn dims(&mut self) -> Result<Vec<Dim>> {
        self.cursor.expect("[")?;
        self.cursor.list("]", Dim::read)
    }

    fn reads(&mut self) -> Result<Vec<StepId>> {
        if self.cursor.eat_word("reading") { self.steps() } else { Ok(Vec::new()) }
    }

    fn steps(&mut self) -> Result<Vec<StepId>> {
        self.cursor.expect("(")?;
        let labels = &self.labels;
        self.cursor.list(")", |cursor| read_step(cursor, labels))
    }

    fn step(&mut self) -> Result<StepId> {
        read_step(self.cursor, &self.labels)
    }

    /// A tensor by its name.
    fn named(&mut self, what: &str, find: &dyn Fn(&Self, &str) -> Option<usize>) -> Result<usize> {
        let start = *self.cursor;
        let name = self.cursor.word(&format!("the name of {what}"))?;
        find(self, name).ok_or_else(|| start.error(format!("{name} is not {what}")))
    }

    fn dtype(&self, step: StepId) -> DType {
        self.builder.kernel().step(step).dtype
    }
}

fn read_mention<'t>(cursor: &mut Cursor<'t>) -> Result<Mention<'t>> {
    let place = *cursor;
    cursor.expect("%")?;
    Ok(Mention { label: cursor.label("the label of a step")?, place })
}

fn read_step<'t>(cursor: &mut Cursor<'t>, labels: &FxHashMap<&'t str, StepId>) -> Result<StepId> {
    let Mention { label, place } = read_mention(cursor)?;
    labels.get(label).copied().ok_or_else(|| place.error(format!("%{label} is not known here")))
}

/// An axis such as `i2`.
fn read_axis(cursor: &mut Cursor<'_>) -> Result<usize> {
    let start = *cursor;
    let axis = cursor.peek_word().and_then(|word| word.strip_prefix('i')?.parse::<usize>().ok());
    let axis = axis.filter(|axis| *axis < AxisSet::MOST).ok_or_else(|| start.expected("an axis such as i0"))?;
    cursor.word("an axis")?;
    Ok(axis)
}
