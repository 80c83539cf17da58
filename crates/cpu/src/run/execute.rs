//! Runs: segments one after another, kernels one after another, regions inside.
#![allow(unsafe_code, reason = "machine code is called with pointers")]

use std::sync::Arc;

use bytes::Bytes;
use fuseline::budget::Budget;
use fuseline::error::{Allowance, Context, Error, Result};
use fuseline::graph::Graph;
use fuseline::ops::Prim;
use fuseline::ops::prim::Regions;
use fuseline::reference::{Buffer, Pending, Reading};
use fuseline::tensor::{DType, Env, Literal, Symbol};
use fuseline::tile::interp;
use smallvec::SmallVec;

use super::block::Held;
use super::engine::Engine;
use super::launch::{Table, launch};
use super::load::{LoadedGraph, Origin, Segment, Way};
use super::owned::Owned;
use super::pool::Team;
use super::span::{Recorder, Span};
use super::specialize::{Allowed, Entry, Special, Step, specialize};
use crate::code::Fault;
use crate::emit::{FARTHEST_INDEX, Memory, Phase};

/// The state of a run.
pub(super) struct Run<'e, 't, 'p> {
    engine: &'e Engine,
    team: &'t mut Team<'p>,
    env: Env,
    /// trips of loops so far
    trips: u64,
    /// bytes of the values that are there
    live: u64,
    /// the most bytes of values that are there at one time
    limit: u64,
    /// what making kernels may take
    budget: Budget,
    recorder: Recorder,
}

impl<'e, 't, 'p> Run<'e, 't, 'p> {
    /// A run of nothing yet.
    pub fn new(engine: &'e Engine, team: &'t mut Team<'p>) -> Run<'e, 't, 'p> {
        Run::with_sizes(engine, team, &Env::new())
    }

    /// A run of nothing yet, where some sizes are known.
    pub fn with_sizes(engine: &'e Engine, team: &'t mut Team<'p>, env: &Env) -> Run<'e, 't, 'p> {
        let (limit, budget) = (engine.limits.bytes, engine.budget.fork());
        Run { engine, team, env: env.clone(), trips: 0, live: 0, limit, budget, recorder: Recorder::off() }
    }

    /// Inputs whose sizes the caller chooses may take more.
    pub fn given(self, graph: &Graph, inputs: &[Option<Given>]) -> Run<'e, 't, 'p> {
        let inputs = inputs.iter().map(|input| input.as_ref().map(|input| (input.dtype(), input.sizes())));
        Run { limit: self.engine.limits.bytes_for(graph, inputs), ..self }
    }

    /// Making kernels takes from this.
    pub fn within(self, budget: &Budget) -> Run<'e, 't, 'p> {
        Run { budget: budget.clone(), ..self }
    }

    /// Where the time of what follows goes is taken down.
    pub fn recorded(self) -> Run<'e, 't, 'p> {
        Run { recorder: Recorder::of_spans(), ..self }
    }

    /// What kernels store in what follows is taken down.
    pub fn traced(self) -> Run<'e, 't, 'p> {
        Run { recorder: Recorder::of_values(), ..self }
    }

    /// What kernels stored, if that was taken down.
    pub fn into_values(self) -> Vec<Vec<Literal>> {
        self.recorder.into_values()
    }

    /// Where the time went, if that was taken down.
    pub fn into_spans(self) -> Vec<Span> {
        self.recorder.into_spans()
    }

    /// The outputs of a graph for its inputs in order; those that are constants need not be given.
    pub fn execute(&mut self, loaded: &LoadedGraph, inputs: Vec<Option<Given>>) -> Result<Vec<Literal>> {
        let before = self.live;
        let mut values = self.compute(loaded, inputs)?;
        let outputs = loaded.outputs.iter().map(|slot| self.literal(loaded, *slot, &mut values));
        let outputs = outputs.collect();
        self.live = before;
        outputs
    }

    /// The same, each output in memory of its own.
    pub fn execute_owned(&mut self, loaded: &LoadedGraph, inputs: Vec<Option<Given>>) -> Result<Vec<Owned>> {
        let mut values = self.compute(loaded, inputs)?;
        let mut wanted = vec![0u32; loaded.slots.len()];
        loaded.outputs.iter().for_each(|slot| wanted[*slot] += 1);
        let owned = |slot: &usize| {
            wanted[*slot] -= 1;
            self.owned(loaded, *slot, &mut values, wanted[*slot] > 0)
        };
        loaded.outputs.iter().map(owned).collect()
    }

    /// Runs all kernels of a graph.
    fn compute(&mut self, loaded: &LoadedGraph, inputs: Vec<Option<Given>>) -> Result<Values> {
        let graph = &*loaded.graph;
        let mut values = Values::new(loaded.slots.len());
        // The second time around, sizes such as 2*n are checked whose symbols only a later input has bound.
        for _ in 0..2 {
            for (value, input) in graph.inputs().iter().zip(&inputs) {
                let Some(input) = input else { continue };
                let place = || format!("input \"{}\"", graph.input_name(*value));
                graph.ty(*value).bind(input.dtype(), input.sizes(), &mut self.env).at(place)?;
            }
        }
        for (slot, input) in loaded.inputs.iter().zip(inputs) {
            match (loaded.slots[*slot].origin, input) {
                (Origin::Input, Some(Given::Shared(literal))) => values.keep(*slot, Kept::of_literal(literal)),
                (Origin::Input, Some(Given::Donated(owned))) => {
                    let (held, length) = owned.into_memory();
                    values.keep(*slot, Kept::Block(held, length));
                }
                _ => {}
            }
        }
        // Before anything runs: kernels rely on sizes that must agree.
        let mut pending = Pending::of(graph, &self.env)?;
        self.recorder.enter();
        let done =
            loaded.segments.iter().try_for_each(|segment| self.segment(loaded, segment, &mut values, &mut pending));
        self.recorder.leave();
        done.map(|()| values)
    }

    fn segment(
        &mut self,
        loaded: &LoadedGraph,
        segment: &Segment,
        values: &mut Values,
        pending: &mut Pending<'_>,
    ) -> Result<()> {
        let special = self.special(loaded, segment)?;
        let more = (special.arena_bytes as u64).saturating_add(special.own_bytes as u64);
        self.engine.check_room(self.live.saturating_add(more), self.limit)?;
        let arena = self.engine.blocks.take_arena(special.arena_bytes)?;
        self.live += special.arena_bytes as u64;
        for (slot, bytes) in &special.constants {
            values.pointers[*slot] = bytes.as_ptr().cast_mut();
        }
        for (k, step) in segment.kernels.clone().zip(&special.steps) {
            let outcome = match step {
                Some(step) => self.run_code(k, &special, step, &arena, values),
                None => {
                    let since = self.recorder.now();
                    let outcome = self.run_otherwise(loaded, k, values);
                    self.recorder.note(since, k, None, 1);
                    outcome
                }
            };
            let blamed = |error| loaded.plan.kernels[k].blamed(&loaded.graph, error);
            outcome.map_err(blamed).at(|| loaded.describe(k))?;
            if self.recorder.wants_values() {
                let stored = self.stored(loaded, k, step.as_ref(), &arena, values).at(|| loaded.describe(k))?;
                self.recorder.note_values(stored);
            }
            pending.check(&self.env)?;
            for slot in &loaded.kernels[k].released {
                self.live = self.live.saturating_sub(values.drop(*slot));
            }
        }
        self.live = self.live.saturating_sub(special.arena_bytes as u64);
        Ok(())
    }

    /// The segment at the sizes of this run.
    pub fn special(&mut self, loaded: &LoadedGraph, segment: &Segment) -> Result<Arc<Special>> {
        let key = segment.sizes(&self.env)?;
        segment.specials.get(key, || {
            // Work begins only where something is made: a loop comes here in every trip.
            let allowed = Allowed { limit: self.limit, budget: self.budget.started() };
            specialize(self.engine, self.team, loaded, segment, &self.env, &allowed)
        })
    }

    /// Runs the programs of a kernel.
    fn run_code(&mut self, k: usize, special: &Special, step: &Step, arena: &Held, values: &mut Values) -> Result<()> {
        for own in &step.own {
            let held = match own.heir_of.iter().find_map(|left| values.inherit(*left, own.bytes)) {
                Some(held) => held,
                None => {
                    let held = self.engine.blocks.take(own.bytes)?;
                    self.live += held.block().bytes() as u64;
                    held
                }
            };
            values.keep(own.slot, Kept::Block(held, own.bytes));
        }
        let base = arena.block().start();
        let pointers: SmallVec<[*mut u8; 24]> =
            step.table.iter().map(|entry| pointer(*entry, step, base, values)).collect();
        let emitted = &step.compiled.emitted;
        let worker = emitted.place(Memory::Worker) as usize;
        let first = base.wrapping_add(special.workers);
        for number in &step.phases {
            let phase = &emitted.phases[*number];
            let table = Table { pointers: &pointers, used: &phase.table, worker, first, stride: special.stride };
            let since = self.recorder.now();
            // SAFETY: inputs and constants have the sizes for which the kernel was made; outputs, memory between phases and
            // that of threads are as large as it asks for, and values that are needed at one time do not overlap, but for an
            // output that lies where an input of the same kernel does and is written when that was read.
            // Nobody else has the arena and the outputs; tasks of a phase are independent.
            let fault = unsafe { launch(self.team, &step.compiled.codes[*number], phase.tasks, table) };
            self.recorder.note(since, k, Some(phase.name), phase.tasks);
            fault.map_or(Ok(()), |fault| Err(failed_check(phase, fault)))?;
        }
        Ok(())
    }

    /// Copies of what a kernel has just stored.
    fn stored(
        &mut self,
        loaded: &LoadedGraph,
        k: usize,
        step: Option<&Step>,
        arena: &Held,
        values: &mut Values,
    ) -> Result<Vec<Literal>> {
        let slots = loaded.kernels[k].outputs.iter().enumerate();
        let copy = |(number, slot): (usize, &usize)| {
            let Some(step) = step else { return self.literal(loaded, *slot, values) };
            let info = &loaded.slots[*slot];
            let entry = step.table[step.compiled.emitted.place(Memory::Output(number)) as usize];
            let (at, bytes) = (pointer(entry, step, arena.block().start(), values), info.bytes(&self.env)?);
            let data = match bytes {
                0 => Vec::new(),
                // SAFETY: the output has so many bytes there, the kernel has written them, and nothing else runs.
                bytes => unsafe { std::slice::from_raw_parts(at, bytes) }.to_vec(),
            };
            Literal::new(info.ty.dtype, info.ty.shape.eval(&self.env)?, data)
        };
        slots.map(copy).collect()
    }

    /// Runs a kernel that has no programs.
    fn run_otherwise(&mut self, loaded: &LoadedGraph, k: usize, values: &mut Values) -> Result<()> {
        let (planned, kernel) = (&loaded.plan.kernels[k], &loaded.kernels[k]);
        let mut args = Vec::with_capacity(kernel.inputs.len());
        for slot in &kernel.inputs {
            args.push(Buffer::from_literal(&self.literal(loaded, *slot, values)?));
        }
        let prim = loaded.graph.nodes()[planned.members[0]].prim();
        let results = match (&kernel.way, prim) {
            (Way::If, Prim::If(row)) => row.run(&args, &mut Inner { run: self, regions: &kernel.regions })?,
            (Way::Loop, Prim::Loop(row)) => row.run(&args, &mut Inner { run: self, regions: &kernel.regions })?,
            (Way::Bind(symbol), _) => {
                self.env.bind(Symbol::Value(*symbol), args[0].to_ints()[0]);
                args
            }
            _ => interp::run(&planned.kernel, &args, &self.env, &self.left())?,
        };
        let mut left = results.iter().map(|x| x.owned_bytes() as u64).fold(0, u64::saturating_add);
        for (slot, result) in kernel.outputs.iter().zip(results) {
            let both = left.saturating_add(result.literal_bytes());
            self.engine.check_room(self.live.saturating_add(both), self.limit)?;
            left -= result.owned_bytes() as u64;
            loaded.slots[*slot].ty.bind(result.dtype(), result.sizes(), &mut self.env)?;
            let kept = Kept::of_literal(result.to_literal()?);
            self.live = self.live.saturating_add(kept.bytes());
            values.keep(*slot, kept);
        }
        Ok(())
    }

    /// What is left for a kernel that is interpreted.
    fn left(&self) -> interp::Options {
        let mut limits = self.engine.limits;
        limits.bytes = self.limit.saturating_sub(self.live).saturating_sub(self.engine.held_bytes());
        limits.trips = limits.trips.saturating_sub(self.trips);
        // Rounded where the kernel says so, as code is.
        interp::Options { reading: Reading::Rounded, limits, ..interp::Options::default() }
    }

    /// A value in memory of its own: the memory in which it was computed, unless it is needed once more or is not ours.
    fn owned(&mut self, loaded: &LoadedGraph, slot: usize, values: &mut Values, is_needed: bool) -> Result<Owned> {
        let ty = &loaded.slots[slot].ty;
        if !is_needed && matches!(values.kept[slot], Kept::Block(..)) {
            let Kept::Block(held, length) = std::mem::take(&mut values.kept[slot]) else {
                return Err(Error::bug("a block is none"));
            };
            return Ok(Owned::new(ty.dtype, ty.shape.eval(&self.env)?, held.given_away(), length));
        }
        let literal = self.literal(loaded, slot, values)?;
        let bytes = literal.bytes();
        let held = self.engine.blocks.copy(&bytes)?.given_away();
        Ok(Owned::new(literal.dtype(), literal.sizes().to_vec(), held, bytes.len()))
    }

    /// A value as a tensor of its own.
    fn literal(&mut self, loaded: &LoadedGraph, slot: usize, values: &mut Values) -> Result<Literal> {
        let info = &loaded.slots[slot];
        if let Origin::Constant(id) = info.origin {
            return Buffer::from_literal(&self.engine.literal(id, self.team)?).to_literal();
        }
        match std::mem::take(&mut values.kept[slot]) {
            Kept::Nothing => Err(Error::bug("a value is read, and is not there")),
            Kept::Block(held, bytes) => {
                let literal =
                    Literal::new(info.ty.dtype, info.ty.shape.eval(&self.env)?, held.given_away().into_bytes(bytes))?;
                values.keep(slot, Kept::of_literal(literal.clone()));
                Ok(literal)
            }
            kept @ Kept::Literal(..) => {
                let Kept::Literal(literal, _) = &kept else { return Err(Error::bug("a literal is none")) };
                let literal = literal.clone();
                values.kept[slot] = kept;
                Ok(literal)
            }
        }
    }
}

/// What a check that failed says.
pub(super) fn failed_check(phase: &Phase, fault: Fault) -> Error {
    let site = usize::try_from(fault.site - 1).ok().and_then(|site| phase.sites.get(site));
    let farthest = FARTHEST_INDEX.unsigned_abs();
    let index = match fault.value.unsigned_abs() {
        far if far == farthest => format!("{} or beyond", fault.value),
        _ => fault.value.to_string(),
    };
    match site {
        Some(site) => Error::invalid(site.limit.told(index)).at(site.place.clone()),
        None => Error::invalid(format!("index {index} is out of range")),
    }
}

fn pointer(entry: Entry, step: &Step, arena: *mut u8, values: &Values) -> *mut u8 {
    match entry {
        Entry::Slot(slot) => values.pointers[slot],
        Entry::Arena(offset) => arena.wrapping_add(offset),
        Entry::Packed(number) => {
            let block = step.packed.as_ref().and_then(|packed| packed.blocks[number].as_ref());
            block.map_or(std::ptr::null_mut(), |held| held.block().start())
        }
        Entry::Nothing => std::ptr::null_mut(),
    }
}

/// An input.
pub(super) enum Given {
    /// which others may read as well
    Shared(Literal),
    /// whose memory is the run's
    Donated(Owned),
}

impl Given {
    fn dtype(&self) -> DType {
        match self {
            Given::Shared(literal) => literal.dtype(),
            Given::Donated(owned) => owned.dtype(),
        }
    }

    fn sizes(&self) -> &[usize] {
        match self {
            Given::Shared(literal) => literal.sizes(),
            Given::Donated(owned) => owned.sizes(),
        }
    }
}

/// The values of a graph during a run, by slot.
struct Values {
    /// where they lie; null for what is not there, or lies in the memory of a segment
    pointers: Vec<*mut u8>,
    kept: Vec<Kept>,
}

/// What keeps a value alive.
#[derive(Default)]
enum Kept {
    /// something else does, or it is not there
    #[default]
    Nothing,
    /// memory of its own, of which so many bytes are the value
    Block(Held, usize),
    /// a tensor with its bytes
    Literal(Literal, Bytes),
}

impl Kept {
    fn of_literal(literal: Literal) -> Kept {
        let bytes = literal.bytes();
        Kept::Literal(literal, bytes)
    }

    fn bytes(&self) -> u64 {
        match self {
            Kept::Nothing => 0,
            Kept::Block(held, _) => held.block().bytes() as u64,
            Kept::Literal(_, bytes) => bytes.len() as u64,
        }
    }
}

impl Values {
    fn new(slots: usize) -> Values {
        Values { pointers: vec![std::ptr::null_mut(); slots], kept: (0..slots).map(|_| Kept::Nothing).collect() }
    }

    fn keep(&mut self, slot: usize, kept: Kept) {
        self.pointers[slot] = match &kept {
            Kept::Nothing => std::ptr::null_mut(),
            Kept::Block(held, _) => held.block().start(),
            Kept::Literal(_, bytes) => bytes.as_ptr().cast_mut(),
        };
        self.kept[slot] = kept;
    }

    /// The memory of a value that is still read where it lies, but by nobody after it is written; none if it is not the run's to write, or
    /// is too small.
    fn inherit(&mut self, slot: usize, bytes: usize) -> Option<Held> {
        match std::mem::take(&mut self.kept[slot]) {
            Kept::Block(held, _) if held.block().bytes() >= bytes => Some(held),
            other => {
                self.kept[slot] = other;
                None
            }
        }
    }

    /// Forgets a value; returns how many bytes it had.
    fn drop(&mut self, slot: usize) -> u64 {
        let kept = std::mem::take(&mut self.kept[slot]);
        self.pointers[slot] = std::ptr::null_mut();
        kept.bytes()
    }
}

/// The regions of a node, run by their plans.
struct Inner<'a, 'e, 't, 'p> {
    run: &'a mut Run<'e, 't, 'p>,
    regions: &'a [LoadedGraph],
}

impl Regions for Inner<'_, '_, '_, '_> {
    fn count_trip(&mut self) -> Result<()> {
        self.run.trips += 1;
        let most = self.run.engine.limits.trips;
        if self.run.trips > most {
            Err(Error::over(Allowance::Trips, format!("more than {most} loop trips")))
        } else {
            Ok(())
        }
    }

    fn hold(&mut self, before: u64, now: u64) -> Result<()> {
        self.run.live = self.run.live.saturating_sub(before).saturating_add(now);
        self.run.engine.check_room(self.run.live, self.run.limit)
    }

    fn region(&mut self, number: usize, operands: &[Buffer]) -> Result<Vec<Buffer>> {
        let outer = self.run.env.mark();
        let given = |operand: &Buffer| operand.to_literal().map(|literal| Some(Given::Shared(literal)));
        let inputs = operands.iter().map(given).collect::<Result<Vec<_>>>()?;
        let results = self.run.execute(&self.regions[number], inputs);
        self.run.env.undo(outer);
        Ok(results?.iter().map(Buffer::from_literal).collect())
    }

    fn env(&self) -> &Env {
        &self.run.env
    }
}
