//! Phases that need to run only once: what reads nothing but constants and writes nothing but memory between phases.
//!
//! Their memory is kept, and shared by all kernels that would write the same: those of other shapes, above all.
#![allow(unsafe_code, reason = "machine code is called with pointers")]

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use fuseline::error::Result;
use rustc_hash::FxHashMap;

use super::block::Held;
use super::constant::ConstantId;
use super::engine::Engine;
use super::launch::{Table, launch};
use super::pool::Team;
use super::workshop::Compiled;
use crate::code::Code;
use crate::emit::{Memory, Phase};

/// Memory that constant phases have written, by its number among the memory between phases of the kernel.
#[derive(Debug)]
pub(super) struct Packed {
    pub blocks: Vec<Option<Held>>,
    /// the programs that wrote them: while they are kept, no other lies where they do
    _codes: Vec<Arc<Code>>,
}

/// What has been packed so far.
#[derive(Debug, Default)]
pub(super) struct Packs(Mutex<FxHashMap<Key, Arc<Packed>>>);

/// What is packed: programs (by where they lie; what they packed keeps them there) with tasks and tables, from which constants, to how many bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    phases: Vec<(usize, u64, Vec<u32>)>,
    inputs: Vec<Option<ConstantId>>,
    scratch: Vec<Option<usize>>,
}

/// Which phases are constant where these inputs are.
pub(super) fn constant_phases(compiled: &Compiled, inputs: &[Option<ConstantId>]) -> Vec<bool> {
    let phases = &compiled.emitted.phases;
    let mut fixed = vec![true; phases.len()];
    loop {
        let before = fixed.iter().filter(|fixed| **fixed).count();
        let varying = |scratch: &usize| {
            let writers = phases.iter().zip(&fixed).filter(|(_, fixed)| !**fixed);
            writers.into_iter().any(|(phase, _)| phase.writes.contains(&Memory::Scratch(*scratch)))
        };
        let varying: Vec<bool> = (0..compiled.emitted.scratch.len()).map(|k| varying(&k)).collect();
        let mut written = vec![false; varying.len()];
        for (phase, fixed) in phases.iter().zip(&mut fixed) {
            *fixed = *fixed && is_constant(phase, inputs, &varying, &written);
            if *fixed {
                scratch(&phase.writes).for_each(|k| written[k] = true);
            }
        }
        if fixed.iter().filter(|fixed| **fixed).count() == before {
            return fixed;
        }
    }
}

fn is_constant(phase: &Phase, inputs: &[Option<ConstantId>], varying: &[bool], written: &[bool]) -> bool {
    let reads = phase.reads.iter().all(|memory| match *memory {
        Memory::Input(k) => inputs[k].is_some(),
        Memory::Scratch(k) => written[k] && !varying[k],
        Memory::Output(_) => false,
        Memory::Worker => true,
    });
    let writes = phase.writes.iter().all(|memory| match *memory {
        Memory::Scratch(k) => !varying[k],
        Memory::Worker => true,
        Memory::Input(_) | Memory::Output(_) => false,
    });
    reads && writes && scratch(&phase.writes).next().is_some()
}

fn scratch(memory: &[Memory]) -> impl Iterator<Item = usize> {
    memory.iter().filter_map(|memory| if let Memory::Scratch(k) = memory { Some(*k) } else { None })
}

impl Packs {
    /// How many kernels have something packed, equal ones counted once.
    pub fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// What the constant phases of a kernel write, for inputs that are constants where they are given; `fixed` says which
    /// phases these are.
    pub fn pack(
        &self,
        engine: &Engine,
        team: &mut Team<'_>,
        compiled: &Compiled,
        fixed: &[bool],
        inputs: &[Option<ConstantId>],
    ) -> Result<Arc<Packed>> {
        let emitted = &compiled.emitted;
        let phases: Vec<usize> = (0..emitted.phases.len()).filter(|k| fixed[*k]).collect();
        let is_read = |k: usize| phases.iter().any(|p| emitted.phases[*p].reads.contains(&Memory::Input(k)));
        let inputs: Vec<_> = inputs.iter().enumerate().map(|(k, id)| id.filter(|_| is_read(k))).collect();
        let mut sizes = vec![None; emitted.scratch.len()];
        let written = phases.iter().flat_map(|k| scratch(&emitted.phases[*k].writes));
        written.for_each(|k| sizes[k] = Some(emitted.scratch[k]));
        let code = |k: &usize| {
            let phase = &emitted.phases[*k];
            (Arc::as_ptr(&compiled.codes[*k]).addr(), phase.tasks, phase.table.clone())
        };
        let key = Key { phases: phases.iter().map(code).collect(), inputs, scratch: sizes };
        // Held while it is packed: who waits would pack the same.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(packed) = known.get(&key) {
            return Ok(packed.clone());
        }
        let packed = Arc::new(run(engine, team, compiled, &phases, &key)?);
        known.insert(key, packed.clone());
        Ok(packed)
    }
}

fn run(engine: &Engine, team: &mut Team<'_>, compiled: &Compiled, phases: &[usize], key: &Key) -> Result<Packed> {
    let emitted = &compiled.emitted;
    // What models bring is packed whatever it takes; what they make counts as all that they make.
    let made = key.inputs.iter().flatten().any(|id| engine.constants.is_made(*id));
    if made || key.inputs.iter().flatten().next().is_none() {
        let wanted = key.scratch.iter().flatten().fold(0u64, |sum, bytes| sum.saturating_add(*bytes as u64));
        engine.check_room(wanted, engine.limits.bytes)?;
    }
    let take = |bytes: &Option<usize>| bytes.map(|bytes| engine.kept.take(bytes)).transpose();
    let blocks = key.scratch.iter().map(take).collect::<Result<Vec<Option<Held>>>>()?;
    let worker_bytes = phases.iter().map(|k| emitted.phases[*k].worker_bytes).max().unwrap_or(0);
    let stride = worker_bytes.next_multiple_of(128);
    let workers = engine.blocks.take_arena(stride.saturating_mul(team.threads()))?;
    let mut sources: Vec<Option<Bytes>> = Vec::with_capacity(key.inputs.len());
    for id in &key.inputs {
        sources.push(id.map(|id| engine.literal(id, team)).transpose()?.map(|literal| literal.bytes()));
    }
    let mut pointers = vec![std::ptr::null_mut(); emitted.pointers()];
    for (k, source) in sources.iter().enumerate() {
        if let Some(bytes) = source {
            pointers[emitted.place(Memory::Input(k)) as usize] = bytes.as_ptr().cast_mut();
        }
    }
    for (k, block) in blocks.iter().enumerate() {
        if let Some(held) = block {
            pointers[emitted.place(Memory::Scratch(k)) as usize] = held.block().start();
        }
    }
    let worker = emitted.place(Memory::Worker) as usize;
    for k in phases {
        let phase = &emitted.phases[*k];
        let first = workers.block().start();
        let table = Table { pointers: &pointers, used: &phase.table, worker, first, stride };
        // SAFETY: the phase reads the constants and writes the blocks that it says it does, which are as large as the
        // kernel asks for, and new; its tasks are independent.
        let fault = unsafe { launch(team, &compiled.codes[*k], phase.tasks, table) };
        fault.map_or(Ok(()), |fault| Err(super::execute::failed_check(phase, fault)))?;
    }
    Ok(Packed { blocks, _codes: phases.iter().map(|k| compiled.codes[*k].clone()).collect() })
}
