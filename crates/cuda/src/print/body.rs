//! The body of a kernel under construction: nested levels, each of which binds some coordinates.
//!
//! The value of a step is computed on the outermost level that binds all axes over which it varies, and once there; so what does not
//! vary along a loop stands before it. The innermost level may be the *lanes*: neighbouring points along one axis that one thread
//! computes, of which whole packs are read and written.

mod accumulator;
mod pack;

use fuseline::error::{Error, Result};
use fuseline::ops::ExprNode;
use fuseline::tensor::{DType, Dim, Symbol};
use fuseline::tile::{AxisSet, Op, Rounding, StepId};
use rustc_hash::FxHashMap;

use super::code::Code;
use super::index::{Names, index, size_name};
use super::nest::{Nest, Written, is_multiple, slope};
use super::{Parameter, element, prelude};
pub(super) use accumulator::Accumulator;
pub(super) use pack::{Reads, is_across, pack_width, start_of};

/// Points along an axis that one thread computes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lanes {
    pub axis: usize,
    pub count: i64,
}

impl Lanes {
    /// Neighbouring results along the last of `columns` that one thread stores: as many as fill the widest access.
    pub fn of_results(nest: &Nest<'_>, columns: &[usize], stores: &[usize]) -> Option<Lanes> {
        let axis = *columns.last()?;
        let bytes = stores.iter().map(|store| element::bytes(nest.stores[*store].access.tensor.dtype)).min()?;
        let mut count = (16 / bytes).min(8);
        while count > 1 && !is_multiple(&nest.extents[axis], count) {
            count /= 2;
        }
        Some(Lanes { axis, count })
    }
}

/// A part of the body between braces.
#[derive(Debug, Default)]
struct Level {
    /// the axes whose coordinates it binds
    binds: AxisSet,
    lines: Vec<String>,
    /// values of steps
    known: FxHashMap<StepId, Code>,
    /// values of steps in every lane: `l` is the lane
    in_lanes: FxHashMap<StepId, Code>,
    /// other values that have names, by what they are
    named: FxHashMap<String, Code>,
    is_lanes: bool,
}

/// A body under construction.
#[derive(Debug)]
pub(super) struct Body<'n> {
    pub nest: &'n Nest<'n>,
    levels: Vec<Level>,
    /// the lanes, where there are more than one
    pub lanes: Option<Lanes>,
    /// what it was asked for so far
    pub parameters: Vec<Parameter>,
    /// what failed checks say
    pub sites: Vec<String>,
    /// whether results become narrow floats at once, so that exponentials need not be as exact as the scalar table says
    pub is_near: bool,
    /// whether exponentials of differences are of numbers that are not above the second one, and are added to some that are one
    pub is_below: bool,
    /// whether differences, whose exponentials these are, may be of numbers so large that no multiple of them is one
    pub is_deep: bool,
    /// whether computing takes longer than reading, so that quotients that need not be exact are better short
    pub is_slow: bool,
    /// how far packs that lie across lines are behind them
    pub shift: &'static str,
    /// how packs are read that vary along an axis of each of these sets
    pub own: (Reads, Vec<AxisSet>),
    /// the level further out than which nothing is computed
    floor: usize,
    temporaries: usize,
}

impl<'n> Body<'n> {
    /// An empty body.
    pub fn new(nest: &'n Nest<'n>, lanes: Option<Lanes>, sites: Vec<String>) -> Body<'n> {
        let lanes = lanes.filter(|lanes| lanes.count > 1);
        Body {
            nest,
            levels: vec![Level::default()],
            lanes,
            parameters: Vec::new(),
            sites,
            is_near: false,
            is_below: false,
            is_deep: false,
            is_slow: false,
            shift: "head",
            own: (Reads::Plainly, Vec::new()),
            floor: 0,
            temporaries: 0,
        }
    }

    /// Its lines; all other levels are closed.
    pub fn finish(mut self) -> (Vec<String>, Vec<Parameter>, Vec<String>) {
        debug_assert_eq!(self.levels.len(), 1);
        self.parameters.sort();
        drop_unused(&mut self.levels[0].lines);
        (std::mem::take(&mut self.levels[0].lines), self.parameters, self.sites)
    }

    /// One more line on the innermost level.
    pub fn line(&mut self, line: impl Into<String>) {
        self.top().lines.push(line.into());
    }

    fn top(&mut self) -> &mut Level {
        self.levels.last_mut().expect("the outermost level is never closed")
    }

    /// Notes that some axes have coordinates from here on, on the innermost level.
    pub fn bind(&mut self, axes: AxisSet) {
        let top = self.top();
        top.binds = top.binds.union(axes);
    }

    /// Opens a level that binds some axes.
    pub fn open(&mut self, binds: AxisSet) {
        self.levels.push(Level { binds, ..Level::default() });
    }

    /// Closes the innermost level; what stands before its brace is `head`.
    pub fn close(&mut self, head: &str) {
        self.close_as(head, "");
    }

    /// The same with something behind the other brace.
    pub fn close_as(&mut self, head: &str, end: &str) {
        let mut level = self.levels.pop().expect("who closes has opened");
        drop_unused(&mut level.lines);
        if level.lines.is_empty() {
            return;
        }
        // The condition of an unrolled loop stands at the margin, as the preprocessor likes it.
        for line in head.lines().rev().skip(1).collect::<Vec<_>>().into_iter().rev() {
            self.line(line);
        }
        let head = head.lines().next_back().unwrap_or_default();
        self.line(if head.is_empty() { "{".to_owned() } else { format!("{head} {{") });
        level.lines.into_iter().for_each(|line| {
            let line = if line.starts_with('#') { line } else { format!("  {line}") };
            self.line(line);
        });
        self.line(format!("}}{end}"));
    }

    /// Opens the lanes, where there are any.
    pub fn open_lanes(&mut self) {
        if let Some(lanes) = self.lanes {
            self.levels.push(Level { binds: AxisSet::of(lanes.axis), is_lanes: true, ..Level::default() });
        }
    }

    /// Closes the lanes, where there are any.
    pub fn close_lanes(&mut self) {
        if let Some(lanes) = self.lanes {
            self.close(&format!("#pragma unroll\nfor (int l = 0; l < {}; ++l)", lanes.count));
        }
    }

    /// Stores in all lanes, and after them what was packed there.
    pub fn store_all(&mut self, stores: &[usize]) -> Result<()> {
        self.open_lanes();
        let mut behind = Vec::new();
        for store in stores {
            behind.extend(self.store(*store, None)?);
        }
        self.close_lanes();
        behind.into_iter().for_each(|line| self.line(line));
        Ok(())
    }

    fn is_in_lanes(&self) -> bool {
        self.levels.last().is_some_and(|level| level.is_lanes)
    }

    /// Does something on the level around the lanes.
    fn around_lanes<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let lanes = self.levels.pop().expect("who asks is in the lanes");
        let result = act(self);
        self.levels.push(lanes);
        result
    }

    /// The value of a step is this from here on, on the innermost level.
    pub fn know(&mut self, id: StepId, code: Code) {
        self.top().known.insert(id, code);
    }

    /// The value of a step in any lanes on the innermost level is this; `l` is the lane.
    pub fn know_in_lanes(&mut self, id: StepId, code: Code) {
        self.top().in_lanes.insert(id, code);
    }

    /// A name that nothing else has.
    pub fn fresh(&mut self, letter: &str) -> String {
        self.temporaries += 1;
        format!("{letter}{}", self.temporaries)
    }

    /// The value of a step, seen from the innermost level.
    pub fn value(&mut self, id: StepId) -> Result<Code> {
        if let Some(code) = self.lookup(id) {
            return Ok(code);
        }
        self.at_home(self.nest.axes[id.index()], |body| body.define(id))
    }

    /// Does something on the outermost level that binds some axes.
    pub fn at_home<T>(&mut self, axes: AxisSet, act: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let mut bound = AxisSet::EMPTY;
        let home = self.levels.iter().position(|level| {
            bound = bound.union(level.binds);
            axes.is_within(bound)
        });
        let home = home.ok_or_else(|| Error::bug(format!("{axes} are wanted, and {bound} are bound")))?;
        let home = home.max(self.floor.min(self.levels.len() - 1));
        let inner = self.levels.split_off(home + 1);
        let result = act(self);
        self.levels.extend(inner);
        result
    }

    /// Keeps all that is computed from now on on the innermost level: what is known there is not known further out, though no axis says so.
    pub fn stay_inside(&mut self) {
        self.floor = self.levels.len() - 1;
    }

    /// Lets values go out again.
    pub fn go_outside(&mut self) {
        self.floor = 0;
    }

    /// Whether a value that varies over some axes belongs to a level further out.
    pub fn is_from_outside(&self, axes: AxisSet) -> bool {
        let outside = &self.levels[..self.levels.len() - 1];
        let bound = outside.iter().fold(AxisSet::EMPTY, |all, level| all.union(level.binds));
        self.levels.len() > 1 && axes.is_within(bound)
    }

    /// A name for a value that varies over some axes, on the outermost level that binds them; equal values have one name.
    pub fn named(&mut self, letter: &str, ty: &str, axes: AxisSet, code: &Code) -> Result<Code> {
        self.at_home(axes, |body| {
            let text = format!("{ty} {code}");
            if let Some(known) = body.levels.iter().rev().find_map(|level| level.named.get(&text)) {
                return Ok(known.clone());
            }
            let name = body.fresh(letter);
            body.line(format!("const {ty} {name} = {code};"));
            body.top().named.insert(text, Code::atom(name.clone()));
            Ok(Code::atom(name))
        })
    }

    fn lookup(&self, id: StepId) -> Option<Code> {
        let known = self.levels.iter().rev().find_map(|level| level.known.get(&id));
        let in_lanes = || self.levels.iter().rev().find_map(|level| level.in_lanes.get(&id));
        known.or_else(|| if self.is_in_lanes() { in_lanes() } else { None }).cloned()
    }

    /// Computes a step on the innermost level.
    fn define(&mut self, id: StepId) -> Result<Code> {
        let nest = self.nest;
        let step = nest.kernel.step(id);
        let code = match &step.op {
            Op::Load { .. } => self.load(id)?,
            Op::Random { stream, seed, reads, .. } => self.random(id, *stream, *seed, reads)?,
            Op::Map { expr, args } => self.expression(expr, args)?,
            Op::Reduce { .. } | Op::Dot { .. } => return self.fold(id),
            Op::Prefix { .. } => return Err(Error::bug(format!("{id:?} is a running fold inside of a kernel"))),
        };
        if code.is_atom() && code.len() < 8 {
            self.know(id, code.clone());
            return Ok(code);
        }
        let name = format!("v{}", id.0);
        self.line(format!("const {} {name} = {code};", element::held(step.dtype)));
        self.know(id, Code::atom(name.clone()));
        Ok(Code::atom(name))
    }

    /// An index expression on the innermost level; `reads` are the values that it reads from data.
    pub fn index(&mut self, dim: &Dim, reads: &[Code]) -> Code {
        dim.for_each_symbol(&mut |symbol| {
            if matches!(symbol, Symbol::Name(_) | Symbol::Value(_)) {
                self.use_parameter(Parameter::Size(symbol.clone()));
            }
        });
        let lanes = self.lanes.filter(|_| self.is_in_lanes());
        index(dim, &Here { lanes, reads })
    }

    /// Notes that the kernel takes a parameter.
    pub fn use_parameter(&mut self, parameter: Parameter) {
        if !self.parameters.contains(&parameter) {
            self.parameters.push(parameter);
        }
    }

    fn random(&mut self, id: StepId, stream: u64, seed: StepId, reads: &[StepId]) -> Result<Code> {
        let dim = self.nest.random(id).clone();
        let stream = Code::atom(format!("{stream}ull"));
        if let (Some(lanes), true) = (self.lanes, self.is_in_lanes()) {
            let start = self.nest.behind_packs(start_of(&dim, lanes.axis), lanes.axis);
            let in_line = slope(&dim, lanes.axis).is_some_and(|slope| slope.is(1)) && is_multiple(&start, 4);
            let is_uniform = !self.nest.axes[seed.index()].contains(lanes.axis);
            if in_line && reads.is_empty() && lanes.count % 4 == 0 && is_uniform {
                let name = format!("r{}", id.0);
                let code = Code::atom(format!("{name}[l]"));
                self.around_lanes(|body| {
                    let (keys, at) = (body.keys(seed)?, Code::cast("Unsigned", &body.index(&dim, &[])));
                    body.line(format!("unsigned {name}[{}];", lanes.count));
                    body.line(format!("random_words({name}, {keys}, {stream}, {at});"));
                    body.know_in_lanes(id, code.clone());
                    Ok(())
                })?;
                return Ok(code);
            }
        }
        let reads = reads.iter().map(|read| self.value(*read)).collect::<Result<Vec<Code>>>()?;
        let (keys, at) = (self.keys(seed)?, Code::cast("Unsigned", &self.index(&dim, &reads)));
        Ok(Code::call("random_word", &[keys, stream, at]))
    }

    /// The keys that follow from a seed: as far outside as it is known, for all blocks of words share them.
    fn keys(&mut self, seed: StepId) -> Result<Code> {
        let keys = Code::call("keys_of", &[self.value(seed)?]);
        self.named("keys", "Keys", self.nest.axes[seed.index()], &keys)
    }

    /// A fold by a loop of its own.
    fn fold(&mut self, id: StepId) -> Result<Code> {
        let over = self.nest.folds[id.index()];
        let name = format!("s{}", id.0);
        let accumulator = Accumulator::of(self.nest, id);
        if let (Some(lanes), true) = (self.lanes, self.is_in_lanes()) {
            let result = accumulator.result(self, &format!("{name}[l]"));
            self.around_lanes(|body| {
                let count = lanes.count;
                body.line(format!("{} {name}[{count}];", accumulator.ty));
                body.line("#pragma unroll");
                body.line(format!("for (int l = 0; l < {count}; ++l) {name}[l] = {};", accumulator.neutral));
                body.loop_over(over, |body| {
                    body.open_lanes();
                    body.accumulate(id, &accumulator, &format!("{name}[l]"))?;
                    body.close_lanes();
                    Ok(())
                })?;
                body.know_in_lanes(id, result.clone());
                Ok(())
            })?;
            return Ok(result);
        }
        self.line(format!("{} {name} = {};", accumulator.ty, accumulator.neutral));
        self.loop_over(over, |body| body.accumulate(id, &accumulator, &name))?;
        let result = accumulator.result(self, &name);
        self.know(id, result.clone());
        Ok(result)
    }

    /// Loops over axes, the outermost first.
    fn loop_over(&mut self, over: AxisSet, act: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let axes: Vec<usize> = over.iter().collect();
        for axis in &axes {
            self.open(AxisSet::of(*axis));
        }
        act(self)?;
        for axis in axes.iter().rev() {
            let extent = self.index(&self.nest.extents[*axis].clone(), &[]);
            self.close(&format!("for (Index i{axis} = 0; i{axis} < {extent}; ++i{axis})"));
        }
        Ok(())
    }

    /// One more term into a fold whose running result is called `name`.
    pub fn accumulate(&mut self, id: StepId, accumulator: &Accumulator, name: &str) -> Result<()> {
        self.accumulate_where(id, accumulator, name, None)
    }

    /// One more term into a fold whose running result is called `name`, where a condition holds.
    pub fn accumulate_where(
        &mut self,
        id: StepId,
        accumulator: &Accumulator,
        name: &str,
        live: Option<&str>,
    ) -> Result<()> {
        let live = live.map_or(String::new(), |live| format!("if ({live}) "));
        let term = match &self.nest.kernel.step(id).op {
            Op::Reduce { monoid, arg, over } => {
                let value = self.value(*arg)?;
                if monoid.is_position() {
                    let axis = over.iter().next().ok_or_else(|| Error::bug("a position along no axis"))?;
                    let at = self.index(&self.nest.dim(&Dim::axis(axis)), &[]);
                    Code::atom(format!("{}{{{value}, {at}}}", accumulator.ty))
                } else {
                    value
                }
            }
            Op::Dot { a, b, .. } => {
                let (x, y) = (self.value(*a)?, self.value(*b)?);
                let product = accumulator.product(&x, &y);
                self.line(format!("{live}{name} = {};", accumulator.folded(&Code::atom(name), &product)));
                return Ok(());
            }
            _ => return Err(Error::bug("a fold of what does not fold")),
        };
        self.line(format!("{live}{name} = {};", accumulator.folded(&Code::atom(name), &term)));
        Ok(())
    }

    /// Writes the value of a step, on the innermost level; where packs are written, the lines that do it belong behind the lanes.
    pub fn store(&mut self, number: usize, live: Option<&str>) -> Result<Vec<String>> {
        let written = self.nest.stores[number].clone();
        let Written { access, value, axes } = &written;
        let bound = self.levels.iter().fold(AxisSet::EMPTY, |all, level| all.union(level.binds));
        let dtype = access.tensor.dtype;
        // Along axes that the output lacks, the first point writes.
        let mut conditions: Vec<String> = live.map(str::to_owned).into_iter().collect();
        for axis in bound.without(*axes).iter() {
            let at = self.index(&Dim::axis(axis), &[]);
            conditions.push(if at.is_atom() { format!("{at} == 0") } else { format!("({at}) == 0") });
        }
        let condition = |line: String| match conditions.join(" && ") {
            all if all.is_empty() => line,
            all => format!("if ({all}) {line}"),
        };
        let value = self.value_to_store(*value, dtype)?;
        if let (Some(lanes), true) = (self.lanes, self.is_in_lanes())
            && axes.contains(lanes.axis)
            && let Some(width) = pack_width(self.nest, access, lanes)
        {
            let name = format!("o{number}");
            self.line(format!("{name}[l] = {value};"));
            let held = element::held(self.nest.kernel.step(written.value).dtype);
            return self.around_lanes(|body| {
                body.line(format!("{held} {name}[{}];", lanes.count));
                let (tensor, offset) = body.address(access, None)?;
                let widths =
                    if width == lanes.count { format!("{width}") } else { format!("{}, {width}", lanes.count) };
                Ok(vec![condition(format!("store<{widths}>({tensor} + {offset}, {name});"))])
            });
        }
        let (tensor, offset) = self.address(access, None)?;
        let narrowed = element::narrowed(dtype, &value)?;
        self.line(condition(format!("{tensor}[{offset}] = {narrowed};")));
        Ok(Vec::new())
    }

    /// The value that a store would write in all lanes, which is kept in an array instead: its name.
    pub fn keep(&mut self, number: usize) -> Result<String> {
        let Written { access, value, .. } = self.nest.stores[number].clone();
        let stored = self.value_to_store(value, access.tensor.dtype)?;
        let (name, count) = (format!("o{number}"), self.lanes.map_or(1, |lanes| lanes.count));
        self.line(format!("{name}[l] = {stored};"));
        let held = element::held(self.nest.kernel.step(value).dtype);
        self.around_lanes(|body| {
            body.line(format!("{held} {name}[{count}];"));
            Ok(())
        })?;
        Ok(name)
    }

    /// The value of a step that is stored as an element of a type: rounding to that type is left to the store.
    fn value_to_store(&mut self, id: StepId, dtype: DType) -> Result<Code> {
        let nest = self.nest;
        if let Op::Map { expr, args } = &nest.kernel.step(id).op
            && element::is_wrapped(dtype)
            && expr.dtype() == dtype
            && self.lookup(id).is_none()
            && let Some((ExprNode::Cast(_), _)) = expr.nodes().last()
        {
            return self.expression_to_store(expr, args);
        }
        self.value(id)
    }

    /// The value of a step that is rounded to a narrow type next: roundings to that type at its end are left out.
    pub fn value_to_round(&mut self, id: StepId, dtype: DType) -> Result<Code> {
        let nest = self.nest;
        let (true, Op::Map { expr, args }) = (element::is_wrapped(dtype), &nest.kernel.step(id).op) else {
            return self.value(id);
        };
        let nodes = expr.nodes();
        let mut last = nodes.len() - 1;
        while let ExprNode::Cast(x) = &nodes[last].0 {
            let from = nodes[*x as usize].1;
            // Widening changes nothing; rounding to the type is done next.
            let is_idle = from.is_float() && (nodes[last].1 == dtype || (from == dtype && nodes[last].1.is_float()));
            if !is_idle || from == DType::F64 {
                break;
            }
            last = *x as usize;
        }
        if last + 1 == nodes.len() || self.lookup(id).is_some() {
            return self.value(id);
        }
        self.part_of(expr, last as u32, args)
    }

    /// Whether results of functions are rounded to their types one by one.
    pub fn rounds_everything(&self) -> bool {
        self.nest.kernel.rounding == Rounding::Every
    }
}

/// Drops coordinates that no later line mentions.
fn drop_unused(lines: &mut Vec<String>) {
    for at in (0..lines.len()).rev() {
        let declared = lines[at].strip_prefix("const Index ").and_then(|rest| rest.split_once(" = "));
        if let Some((name, _)) = declared
            && !lines[at + 1..].iter().any(|line| prelude::mentions(line, name))
        {
            lines.remove(at);
        }
    }
}

/// What symbols are called on a level.
struct Here<'a> {
    lanes: Option<Lanes>,
    reads: &'a [Code],
}

impl Names for Here<'_> {
    fn size(&self, symbol: &Symbol) -> Code {
        Code::atom(size_name(symbol))
    }

    fn coordinate(&self, axis: usize) -> Code {
        let first = Code::atom(format!("i{axis}"));
        match self.lanes {
            Some(lanes) if lanes.axis == axis => first.plus(&Code::atom("l")),
            _ => first,
        }
    }

    fn read(&self, number: usize) -> Code {
        self.reads[number].clone()
    }
}
