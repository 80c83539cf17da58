//! The short form: tensors with named axes, values by name, folds inside of expressions.
//!
//! ```text
//! kernel softmax(x: f32[rows, columns]) -> y: f32[rows, columns] {
//!   e = exp(x - max[columns](x))
//!   y = e / sum[columns](e)
//! }
//! ```

use rustc_hash::FxHashMap;

use super::usual::usual_schedule;
use super::{Names, Places, Source};
use crate::cursor::{Cursor, UNFINISHED};
use crate::error::{Context as _, Result};
use crate::graph::text::parse::read_dtype;
use crate::graph::text::read_expr::{Found, Outside, read_with};
use crate::ops::prim::Monoid;
use crate::ops::{Expr, ExprNode};
use crate::tensor::{DType, Dim, TensorType};
use crate::tile::{AxisSet, Builder, Op, Param, Rounding, StepId};

/// Reads what stands behind `kernel`.
pub(super) fn read_short(cursor: &mut Cursor<'_>) -> Result<Source> {
    let schedule = cursor.line_and_column();
    let name = if cursor.sees("(") { None } else { Some(cursor.name("the name of the kernel, '(' or '{'")?) };
    let mut reader = Reader { places: Places { schedule, ..Places::default() }, ..Reader::default() };
    reader.count_axes(*cursor);
    let (inputs, outputs) = reader.tensors(cursor)?;
    if cursor.eat_word("rounding") {
        cursor.expect_word("every")?;
        reader.builder.rounding(Rounding::Every);
    }
    while !cursor.eat("}") {
        reader.assignment(cursor)?;
    }
    reader.check_outputs(&outputs)?;
    let schedule = usual_schedule(reader.builder.kernel());
    let kernel = reader.builder.finish_unverified(schedule);
    let (places, names) = (reader.places, Some(reader.names));
    Ok(Source { kernel, name, inputs, outputs, is_scheduled: false, places, names })
}

#[derive(Default)]
struct Reader<'t> {
    builder: Builder,
    axes: FxHashMap<&'t str, usize>,
    inputs: FxHashMap<&'t str, (usize, Vec<Dim>)>,
    outputs: FxHashMap<&'t str, (usize, Vec<Dim>)>,
    /// where outputs are declared
    declared: Vec<Cursor<'t>>,
    /// values so far: inputs that were loaded, and what has a name
    values: FxHashMap<&'t str, StepId>,
    places: Places,
    names: Names,
    /// where the statement stands that is read
    place: (usize, usize),
}

impl<'t> Reader<'t> {
    /// Inputs and outputs, up to the statements.
    fn tensors(&mut self, cursor: &mut Cursor<'t>) -> Result<(Vec<String>, Vec<String>)> {
        cursor.expect("(")?;
        let inputs = cursor.list(")", |cursor| self.tensor(cursor, true))?;
        cursor.expect("->")?;
        let outputs = match cursor.eat("(") {
            true => cursor.list(")", |cursor| self.tensor(cursor, false))?,
            false => vec![self.tensor(cursor, false)?],
        };
        cursor.expect("{")?;
        Ok((inputs, outputs))
    }

    /// Numbers the axes before they are read: those of the outputs first, in their order, as the compiler does, so that what is written lies
    /// together. What is wrong with the tensors is left to be found where they are read.
    fn count_axes(&mut self, mut cursor: Cursor<'t>) {
        let mut ahead = Reader::default();
        let Ok((_, outputs)) = ahead.tensors(&mut cursor) else { return };
        let of_outputs =
            outputs.iter().filter_map(|name| ahead.outputs.get(name.as_str())).flat_map(|(_, index)| index);
        let first: Vec<usize> = of_outputs.flat_map(|at| AxisSet::mentioned(at).iter().collect::<Vec<_>>()).collect();
        let mut names: Vec<(&'t str, usize)> = ahead.axes.iter().map(|(name, axis)| (*name, *axis)).collect();
        names.sort_by_key(|(_, axis)| (first.iter().position(|other| other == axis).unwrap_or(first.len()), *axis));
        for (name, axis) in names {
            if let Ok(number) = self.builder.axis(ahead.builder.kernel().axes[axis].clone()) {
                self.axes.insert(name, number);
                self.names.axes.push(name.to_owned());
            }
        }
    }

    /// `x: f32[rows, i: n, 1]`: every axis a size that is its own name, a name with a size, or 1.
    fn tensor(&mut self, cursor: &mut Cursor<'t>, is_input: bool) -> Result<String> {
        let start = *cursor;
        let name = cursor.word("the name of a tensor")?;
        if self.inputs.contains_key(name) || self.outputs.contains_key(name) {
            return Err(start.error(format!("two tensors are called {name}")));
        }
        cursor.expect(":")?;
        let dtype = read_dtype(cursor)?;
        cursor.expect("[")?;
        let mut seen: Vec<Dim> = Vec::new();
        let axes = cursor.list("]", |cursor| {
            let place = *cursor;
            let (size, at) = self.axis(cursor)?;
            if at.as_int().is_none() && seen.contains(&at) {
                let word = { place }.word("the name of an axis")?;
                let remedy = format!("{word} stands twice in {name}, whose diagonal that would be: give one a name of its own, as in [{word}, other: {word}]");
                return Err(place.error(remedy));
            }
            seen.push(at.clone());
            Ok((size, at))
        })?;
        let (sizes, index): (Vec<Dim>, Vec<Dim>) = axes.into_iter().unzip();
        let param = Param::row_major(TensorType::new(dtype, sizes));
        if is_input {
            let number = self.builder.input(param);
            self.inputs.insert(name, (number, index));
        } else {
            let number = self.builder.output(param);
            self.declared.push(start);
            self.outputs.insert(name, (number, index));
        }
        Ok(name.to_owned())
    }

    /// The size of an axis of a tensor, and the coordinate there.
    fn axis(&mut self, cursor: &mut Cursor<'t>) -> Result<(Dim, Dim)> {
        let start = *cursor;
        if cursor.peek().is_some_and(|c| c.is_ascii_digit()) {
            return match Dim::read(cursor)?.as_int() {
                Some(1) => Ok((Dim::int(1), Dim::int(0))),
                _ => Err(start.error("an axis of several elements needs a name, as in [columns: 64]")),
            };
        }
        let name = cursor.word("the name of an axis")?;
        let given = cursor.eat(":").then(|| Dim::read(cursor)).transpose()?;
        let known = self.axes.get(name).copied();
        let extent = match (given, known) {
            (Some(given), Some(axis)) if self.builder.kernel().axes[axis] != given => {
                let before = &self.builder.kernel().axes[axis];
                return Err(start.error(format!("the axis {name} has the size {before} elsewhere, not {given}")));
            }
            (Some(given), _) => given,
            (None, Some(axis)) => self.builder.kernel().axes[axis].clone(),
            (None, None) => Dim::named(name),
        };
        if extent.as_int().is_some_and(|size| size < 0) {
            return Err(start.error(format!("the axis {name} has the negative size {extent}")));
        }
        let axis = match known {
            Some(axis) => axis,
            None => {
                let axis = self.builder.axis(extent.clone()).at(|| start.place())?;
                self.axes.insert(name, axis);
                self.names.axes.push(name.to_owned());
                axis
            }
        };
        Ok((extent, Dim::axis(axis)))
    }

    /// `name = expression`: a value, or what is stored to an output.
    fn assignment(&mut self, cursor: &mut Cursor<'t>) -> Result<()> {
        let start = *cursor;
        self.place = start.line_and_column();
        let name = cursor.word("a name or '}'")?;
        let is_taken = self.values.contains_key(name) || self.inputs.contains_key(name);
        if is_taken || self.axes.contains_key(name) {
            return Err(start.error(format!("{name} has a meaning already")));
        }
        cursor.expect("=")?;
        let place = *cursor;
        let value = self.value(cursor)?;
        if let Some((output, index)) = self.outputs.get(name) {
            let wanted = self.builder.kernel().outputs[*output].ty.dtype;
            let found = self.builder.kernel().step(value).dtype;
            if wanted != found {
                let remedy = format!("{name} is {wanted}, and this is {found}: write {wanted}(…) around it");
                return Err(place.error(remedy));
            }
            let axes = index.iter().map(AxisSet::mentioned).fold(AxisSet::EMPTY, AxisSet::union);
            let lacking = self.builder.kernel().step(value).axes.without(axes);
            if let Some(axis) = lacking.iter().next() {
                let axis = &self.names.axes[axis];
                let remedy = format!("this varies along {axis}, and {name} does not: fold it, as in sum[{axis}](…)");
                return Err(place.error(remedy));
            }
            self.builder.store(*output, index, value);
            self.places.stores.push(self.place);
        }
        self.values.insert(name, value);
        self.call(value, name);
        Ok(())
    }

    /// A step has the name that it was given first.
    fn call(&mut self, step: StepId, name: &str) {
        let names = &mut self.names.steps;
        names.resize(names.len().max(step.index() + 1), None);
        names[step.index()].get_or_insert_with(|| name.to_owned());
    }

    /// Every output must have been assigned.
    fn check_outputs(&self, outputs: &[String]) -> Result<()> {
        let missing = outputs.iter().zip(&self.declared).find(|(name, _)| !self.values.contains_key(name.as_str()));
        match missing {
            Some((name, place)) => Err(place.error(format!("{name} is never assigned: write {name} = …"))),
            None => Ok(()),
        }
    }

    /// The value of an expression, as a step.
    fn value(&mut self, cursor: &mut Cursor<'t>) -> Result<StepId> {
        let place = *cursor;
        let (expr, args) = read_with(cursor, self)?;
        match (expr.nodes(), args.as_slice()) {
            ([(ExprNode::Arg(0), _)], [only]) => Ok(*only),
            _ => self.step(Op::Map { expr, args: args.into() }, place),
        }
    }

    fn step(&mut self, op: Op, place: Cursor<'t>) -> Result<StepId> {
        let id = self.builder.step(op).at(|| place.place())?;
        self.places.steps.push(place.line_and_column());
        Ok(id)
    }

    /// `[rows, columns]`, a set of axes.
    fn axis_set(&mut self, cursor: &mut Cursor<'t>) -> Result<AxisSet> {
        cursor.expect("[")?;
        let axes = cursor.list("]", |cursor| {
            let start = *cursor;
            let name = cursor.word("the name of an axis")?;
            self.axes.get(name).copied().ok_or_else(|| start.error(format!("{name} is not an axis of a tensor")))
        })?;
        Ok(axes.into_iter().collect())
    }

    /// What stands behind the name of a fold: `[axes](expression)`.
    fn fold(&mut self, word: &'t str, place: Cursor<'t>, cursor: &mut Cursor<'t>) -> Result<StepId> {
        let over = self.axis_set(cursor)?;
        cursor.expect("(")?;
        let first = cursor.nested(|cursor| self.value(cursor))?;
        if word == "dot" {
            cursor.expect(",")?;
            let second = cursor.nested(|cursor| self.value(cursor))?;
            cursor.expect(")")?;
            let accumulator = accumulator(self.builder.kernel().step(first).dtype);
            return self.step(Op::Dot { over, a: first, b: second, accumulator }, place);
        }
        cursor.expect(")")?;
        if word == "mean" {
            return self.mean(over, first, place);
        }
        let monoid = Monoid::from_name(word);
        let monoid = monoid.ok_or_else(|| place.error(format!("{word} is no way to fold: take sum, mean, max, …")))?;
        self.step(Op::Reduce { monoid, over, arg: first }, place)
    }

    /// The sum, divided by the number of its terms.
    fn mean(&mut self, over: AxisSet, arg: StepId, place: Cursor<'t>) -> Result<StepId> {
        let dtype = self.builder.kernel().step(arg).dtype;
        if !dtype.is_float() {
            return Err(place.error(format!("the mean of {dtype}: write f32(…) around the terms")));
        }
        let sum = self.step(Op::Reduce { monoid: Monoid::Sum, over, arg }, place)?;
        let extents = over.iter().map(|axis| self.builder.kernel().axes[axis].clone());
        let count = extents.reduce(|a, b| a * b).unwrap_or_else(|| Dim::int(1));
        let expr = Expr::build(&[dtype], |scope, terms| terms[0] / scope.size(count).cast(dtype));
        self.step(Op::Map { expr, args: [sum].into_iter().collect() }, place)
    }
}

/// In which type products are added up.
fn accumulator(dtype: DType) -> DType {
    match dtype {
        DType::F64 | DType::I64 | DType::U64 => dtype,
        _ if dtype.is_float() => DType::F32,
        _ => DType::I32,
    }
}

impl<'t> Outside<'t, StepId> for Reader<'t> {
    fn find(&mut self, word: &'t str, place: Cursor<'t>, cursor: &mut Cursor<'t>) -> Result<Option<Found<StepId>>> {
        let found = |reader: &Self, id: StepId| Some(Found::Value(id, reader.builder.kernel().step(id).dtype));
        if cursor.sees("[") {
            let id = self.fold(word, place, cursor)?;
            return Ok(found(self, id));
        }
        if cursor.sees("(") {
            return Ok(None);
        }
        if let Some(id) = self.values.get(word).copied() {
            return Ok(found(self, id));
        }
        if let Some((input, index)) = self.inputs.get(word).cloned() {
            let id = self.builder.load(input, &index).at(|| place.place())?;
            self.places.steps.push(place.line_and_column());
            self.values.insert(word, id);
            self.call(id, word);
            return Ok(found(self, id));
        }
        if self.outputs.contains_key(word) {
            let hint = if place.begins_line() { UNFINISHED } else { "" };
            return Err(place.error(format!("{word} is an output that has no value yet{hint}")));
        }
        Ok(self.axes.get(word).map(|axis| Found::Axis(*axis)))
    }
}
