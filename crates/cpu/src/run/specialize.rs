//! Segments at fixed sizes: code for every kernel, and a place for every value.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use fuseline::budget::Budget;
use fuseline::device::Machine;
use fuseline::error::{Allowance, Context, Error, Result};
use fuseline::run::may_inherit;
use fuseline::run::memory::{Placement, Spacing, Wish, place};
use fuseline::tensor::Env;
use indexmap::IndexMap;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use super::constant::ConstantId;
use super::engine::Engine;
use super::load::{LoadedGraph, Origin, Segment, Slot, Way};
use super::pack::{Packed, constant_phases};
use super::pool::Team;
use super::workshop::{Compiled, Made, Order};
use crate::emit::Memory;

/// A segment at fixed sizes.
#[derive(Debug)]
pub(super) struct Special {
    /// for every kernel of the segment, its code; none for what is run otherwise
    pub steps: Vec<Option<Step>>,
    /// the bytes of all values that lie in one piece of memory, and behind them those of threads
    pub arena_bytes: usize,
    /// where the memory of the first thread begins
    pub workers: usize,
    /// bytes of one thread
    pub stride: usize,
    /// bytes of what has memory of its own
    pub own_bytes: usize,
    /// constants that are read in every run, by slot
    pub constants: Vec<(usize, Bytes)>,
}

/// A kernel at fixed sizes.
#[derive(Debug)]
pub(super) struct Step {
    pub compiled: Arc<Compiled>,
    /// the phases that are run every time
    pub phases: Vec<usize>,
    /// what the others have written
    pub packed: Option<Arc<Packed>>,
    /// what every pointer of the table is
    pub table: Vec<Entry>,
    /// outputs that get memory of their own
    pub own: Vec<Own>,
}

/// An output that gets memory of its own.
#[derive(Clone, Debug)]
pub(super) struct Own {
    /// of the output
    pub slot: usize,
    pub bytes: usize,
    /// the slots of inputs that nobody reads afterwards: the output may lie in the memory of one that is the run's to write
    pub heir_of: Vec<usize>,
}

/// What a pointer of a table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// a value that is an input, a constant, or has memory of its own
    Slot(usize),
    /// a place in the segment's memory
    Arena(usize),
    /// what constant phases have written
    Packed(usize),
    /// nobody uses it, or it is set for every thread
    Nothing,
}

/// What making a segment ready may take.
pub(super) struct Allowed {
    /// bytes of any value
    pub limit: u64,
    pub budget: Budget,
}

/// Makes a segment ready for the sizes of a binding.
pub(super) fn specialize(
    engine: &Engine,
    team: &mut Team<'_>,
    loaded: &LoadedGraph,
    segment: &Segment,
    env: &Env,
    allowed: &Allowed,
) -> Result<Special> {
    let kernels = segment.kernels.clone();
    let bytes = stored_bytes(allowed.limit, loaded, kernels.clone(), env)?;
    let mut made: Vec<Option<Making>> = Vec::with_capacity(kernels.len());
    let codes = make_codes(engine, team, loaded, kernels.clone(), env, &allowed.budget)?;
    for (k, code) in kernels.clone().zip(codes) {
        allowed.budget.check()?;
        let making = code.map(|code| pack(engine, team, loaded, k, code?)).transpose();
        made.push(making.at(|| loaded.describe(k))?.flatten());
    }
    let layout = Layout::new(loaded, segment, &made, &bytes);
    let mut steps = Vec::with_capacity(kernels.len());
    let mut own_bytes = 0usize;
    for (k, making) in kernels.clone().zip(made) {
        let step = making.map(|making| layout.step(loaded, k, making, &bytes));
        own_bytes += step.iter().flat_map(|step| &step.own).map(|own| own.bytes).sum::<usize>();
        steps.push(step);
    }
    let constants = keep_constants(engine, team, loaded, segment, &steps)?;
    let workers = layout.placement.bytes;
    let worker_bytes = steps.iter().flatten().map(worker_bytes).max().unwrap_or(0);
    let stride = worker_bytes.next_multiple_of(128);
    let arena_bytes = workers.saturating_add(stride.saturating_mul(engine.pool.threads()));
    Ok(Special { steps, arena_bytes, workers, stride, own_bytes, constants })
}

fn worker_bytes(step: &Step) -> usize {
    let phases = step.phases.iter().map(|k| step.compiled.emitted.phases[*k].worker_bytes);
    phases.max().unwrap_or(0)
}

/// The bytes of what programs store, by slot. Refuses, before anything is made for such sizes, what is over the limit.
fn stored_bytes(limit: u64, loaded: &LoadedGraph, kernels: Range<usize>, env: &Env) -> Result<FxHashMap<usize, usize>> {
    let mut stored = FxHashMap::default();
    for k in kernels {
        if !matches!(loaded.kernels[k].way, Way::Code) {
            continue;
        }
        for slot in &loaded.kernels[k].outputs {
            let bytes = loaded.slots[*slot].bytes(env).at(|| loaded.describe(k))?;
            if bytes as u64 > limit {
                let error =
                    Error::over(Allowance::Memory, format!("a value of {bytes} bytes (the limit is {limit} bytes)"));
                return Err(error.at(loaded.describe(k)));
            }
            stored.insert(*slot, bytes);
        }
    }
    Ok(stored)
}

/// A kernel for which there is code.
struct Making {
    compiled: Arc<Compiled>,
    fixed: Vec<bool>,
    packed: Option<Arc<Packed>>,
}

/// The constants among the inputs of a kernel, where they are kept.
fn constants_of(engine: &Engine, loaded: &LoadedGraph, k: usize) -> Vec<Option<ConstantId>> {
    let constant = |slot: &usize| match loaded.slots[*slot].origin {
        Origin::Constant(id) if engine.keeps_constants => Some(id),
        _ => None,
    };
    loaded.kernels[k].inputs.iter().map(constant).collect()
}

/// What becomes of every kernel; none for what is run otherwise. Layers share kernels, which are long to compare: those that lie at one
/// place, with the same inputs constant, are asked for once.
fn make_codes(
    engine: &Engine,
    team: &mut Team<'_>,
    loaded: &LoadedGraph,
    kernels: Range<usize>,
    env: &Env,
    budget: &Budget,
) -> Result<Vec<Option<Result<Made>>>> {
    let mut orders: IndexMap<(usize, Vec<bool>), Order<'_>, FxBuildHasher> = IndexMap::default();
    let mut numbers = Vec::with_capacity(kernels.len());
    for k in kernels {
        let number = matches!(loaded.kernels[k].way, Way::Code).then(|| {
            let constant: Vec<bool> = constants_of(engine, loaded, k).iter().map(Option::is_some).collect();
            let kernel = &loaded.plan.kernels[k].kernel;
            let entry = orders.entry((Arc::as_ptr(kernel).addr(), constant.clone()));
            let number = entry.index();
            entry.or_insert(Order { kernel, constant });
            number
        });
        numbers.push(number);
    }
    let orders: Vec<Order<'_>> = orders.into_values().collect();
    let made = engine.workshop.make(team, &orders, env, budget)?;
    Ok(numbers.into_iter().map(|number| number.map(|number| made[number].clone())).collect())
}

/// The code of a kernel with what its constant phases write; none where it is run otherwise.
fn pack(engine: &Engine, team: &mut Team<'_>, loaded: &LoadedGraph, k: usize, made: Made) -> Result<Option<Making>> {
    let compiled = match made {
        Made::Code(compiled) => compiled,
        Made::Refused(reason) => {
            engine.note_refused(loaded.describe(k), &reason);
            return Ok(None);
        }
    };
    let inputs = constants_of(engine, loaded, k);
    let fixed = match engine.keeps_constants {
        true => constant_phases(&compiled, &inputs),
        false => vec![false; compiled.codes.len()],
    };
    let packed = match fixed.contains(&true) {
        true => Some(engine.packs.pack(engine, team, &compiled, &fixed, &inputs)?),
        false => None,
    };
    Ok(Some(Making { compiled, fixed, packed }))
}

/// Where the values of a segment lie.
struct Layout {
    placement: Placement,
    /// the wish of a slot that lies in the segment's memory
    by_slot: FxHashMap<usize, usize>,
    /// the wishes of memory between phases, by kernel and number
    by_scratch: FxHashMap<(usize, usize), usize>,
}

impl Layout {
    fn new(
        loaded: &LoadedGraph,
        segment: &Segment,
        made: &[Option<Making>],
        bytes: &FxHashMap<usize, usize>,
    ) -> Layout {
        let kernels = segment.kernels.clone();
        // What is not run by programs takes whole tensors, each by itself.
        let mut leaves: FxHashSet<usize> = FxHashSet::default();
        for (k, making) in kernels.clone().zip(made) {
            if making.is_none() {
                leaves.extend(&loaded.kernels[k].inputs);
            }
        }
        let stays = |slot: usize, info: &Slot| !info.is_output && info.last < kernels.end && !leaves.contains(&slot);
        let mut wishes = Vec::new();
        let (mut by_slot, mut by_scratch) = (FxHashMap::default(), FxHashMap::default());
        for (k, making) in kernels.clone().zip(made) {
            let Some(making) = making else { continue };
            for (number, slot) in loaded.kernels[k].outputs.iter().enumerate() {
                let info = &loaded.slots[*slot];
                if stays(*slot, info) {
                    let heir_of = left_to(loaded, k, making, number).find_map(|left| by_slot.get(&left).copied());
                    by_slot.insert(*slot, wishes.len());
                    wishes.push(Wish { bytes: bytes[slot], first: k, last: info.last, heir_of });
                }
            }
            for (number, bytes) in making.compiled.emitted.scratch.iter().enumerate() {
                if making.packed.as_ref().is_none_or(|packed| packed.blocks[number].is_none()) {
                    by_scratch.insert((k, number), wishes.len());
                    wishes.push(Wish { bytes: *bytes, first: k, last: k, heir_of: None });
                }
            }
        }
        Layout { placement: place(&wishes, Spacing::of(Machine::Cpu)), by_slot, by_scratch }
    }

    fn step(&self, loaded: &LoadedGraph, k: usize, making: Making, bytes: &FxHashMap<usize, usize>) -> Step {
        let kernel = &loaded.kernels[k];
        let own = kernel.outputs.iter().enumerate().filter(|(_, slot)| !self.by_slot.contains_key(*slot));
        let own = own.map(|(number, slot)| {
            let heir_of = left_to(loaded, k, &making, number).filter(|left| !self.by_slot.contains_key(left)).collect();
            Own { slot: *slot, bytes: bytes[slot], heir_of }
        });
        let own = own.collect();
        let Making { compiled, fixed, packed } = making;
        let emitted = &compiled.emitted;
        let phases: Vec<usize> = (0..fixed.len()).filter(|phase| !fixed[*phase]).collect();
        let of_slot = |slot: &usize| match self.by_slot.get(slot) {
            Some(wish) => Entry::Arena(self.placement.offsets[*wish]),
            None => Entry::Slot(*slot),
        };
        let mut table = vec![Entry::Nothing; emitted.pointers()];
        let mut set = |memory, entry| table[emitted.place(memory) as usize] = entry;
        for (number, slot) in kernel.inputs.iter().enumerate() {
            if phases.iter().any(|phase| emitted.phases[*phase].reads.contains(&Memory::Input(number))) {
                set(Memory::Input(number), of_slot(slot));
            }
        }
        for (number, slot) in kernel.outputs.iter().enumerate() {
            set(Memory::Output(number), of_slot(slot));
        }
        for number in 0..emitted.scratch.len() {
            let entry = match self.by_scratch.get(&(k, number)) {
                Some(wish) => Entry::Arena(self.placement.offsets[*wish]),
                None => Entry::Packed(number),
            };
            set(Memory::Scratch(number), entry);
        }
        Step { compiled, phases, packed, table, own }
    }
}

/// The slots of inputs that a kernel is the last to read, and whose memory an output may have.
fn left_to<'a>(loaded: &'a LoadedGraph, k: usize, making: &Making, output: usize) -> impl Iterator<Item = usize> + 'a {
    let is_one_phase = making.compiled.emitted.phases.len() == 1;
    let (kernel, inputs) = (&loaded.plan.kernels[k].kernel, &loaded.kernels[k].inputs);
    let same = |slot: usize| inputs.iter().enumerate().filter(move |(_, other)| **other == slot);
    let dies = move |slot: &usize| loaded.slots[*slot].last == k && !loaded.slots[*slot].is_output;
    let left = inputs.iter().copied().filter(move |slot| is_one_phase && dies(slot));
    left.filter(move |slot| same(*slot).all(|(input, _)| may_inherit(kernel, output, input)))
}

/// The constants that programs read in every run; those that they read in another form are let go.
fn keep_constants(
    engine: &Engine,
    team: &mut Team<'_>,
    loaded: &LoadedGraph,
    segment: &Segment,
    steps: &[Option<Step>],
) -> Result<Vec<(usize, Bytes)>> {
    // Not a mark for every slot of the graph: there may be as many segments as slots.
    let (mut read, mut taken): (FxHashSet<usize>, FxHashSet<usize>) = Default::default();
    for (k, step) in segment.kernels.clone().zip(steps) {
        match step {
            Some(step) => read.extend(step.table.iter().filter_map(|entry| match entry {
                Entry::Slot(slot) => Some(*slot),
                _ => None,
            })),
            None => taken.extend(&loaded.kernels[k].inputs),
        }
    }
    let mut constants = Vec::new();
    for k in segment.kernels.clone() {
        for slot in &loaded.kernels[k].inputs {
            let Origin::Constant(id) = loaded.slots[*slot].origin else { continue };
            if read.remove(slot) {
                engine.literal(id, team)?;
                let bytes = engine.constants.pin(id).ok_or_else(|| Error::bug("a constant is not there"))?;
                constants.push((*slot, bytes));
            } else if !taken.contains(slot) && engine.keeps_constants {
                engine.constants.release(id);
            }
        }
    }
    Ok(constants)
}
