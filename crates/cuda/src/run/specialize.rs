//! Segments at fixed sizes: launches for every kernel, and a place for every value.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use fuseline::device::Machine;
use fuseline::error::{Allowance, Context, Error, Result};
use fuseline::run::memory::{Spacing, Wish, place};
use fuseline::run::{BySize, ConstantId, Origin, Way};
use fuseline::tensor::Env;
use rustc_hash::FxHashMap;

use super::execute::Engine;
use super::resident::Recorded;
use super::workshop::{Compiled, Key, Made, key};
use crate::gpu::Grid;
use crate::memory::Block;
use crate::print::Parameter;

/// A graph with a plan of it, and what was made of its segments.
pub(super) type LoadedGraph = fuseline::run::LoadedGraph<BySize<Special>>;
/// A segment, and what was made of it.
pub(super) type Segment = fuseline::run::Segment<BySize<Special>>;

/// A segment at fixed sizes.
#[derive(Debug)]
pub(super) struct Special {
    /// for every kernel of the segment, its launches; none for what is run otherwise
    pub steps: Vec<Option<Step>>,
    /// bytes of values by slot
    pub bytes: FxHashMap<usize, usize>,
    /// where everything lies, if nothing but launches is done
    pub pure: Option<Pure>,
}

/// A kernel at fixed sizes.
#[derive(Debug)]
pub(super) struct Step {
    pub compiled: Arc<Compiled>,
    pub grids: Vec<Grid>,
    /// bytes between launches
    pub scratch: Vec<usize>,
    /// the sizes that launches take, as their parameters name them
    pub env: Env,
    /// by which way of a library each launch is done, where it does it
    pub ways: Vec<usize>,
}

/// A graph that is nothing but launches: all of its values have one place, and all launches can be recorded as one.
#[derive(Debug)]
pub(super) struct Pure {
    /// keeps the memory
    _arena: Block,
    /// where inputs and values of kernels lie, by slot
    pub by_slot: FxHashMap<usize, u64>,
    /// where memory between launches lies, by kernel and number
    pub by_scratch: FxHashMap<(usize, usize), u64>,
    /// the launches, once they were recorded
    pub graph: Mutex<Option<crate::gpu::Graph>>,
    /// … and with inputs and outputs elsewhere, the newest last
    pub elsewhere: Mutex<Vec<Recorded>>,
}

/// Makes a segment ready for the sizes of a binding.
pub(super) fn specialize(engine: &Engine, loaded: &LoadedGraph, segment: &Segment, env: &Env) -> Result<Special> {
    let kernels = segment.kernels.clone();
    let coded: Vec<usize> = kernels.clone().filter(|k| matches!(loaded.kernels[*k].way, Way::Code)).collect();
    let mut bytes = FxHashMap::default();
    let mut keys: Vec<Key> = Vec::with_capacity(coded.len());
    let mut ways = Vec::with_capacity(coded.len());
    for k in &coded {
        for slot in &loaded.kernels[*k].outputs {
            let size = loaded.slots[*slot].bytes(env).at(|| loaded.describe(*k))?;
            let limit = engine.limits.bytes;
            if size as u64 > limit {
                let error =
                    Error::over(Allowance::Memory, format!("a value of {size} bytes (the limit is {limit} bytes)"));
                return Err(error.at(loaded.describe(*k)));
            }
            bytes.insert(*slot, size);
        }
        let kernel = &loaded.plan.kernels[*k].kernel;
        let key = key(kernel, env).at(|| loaded.describe(*k))?;
        let choice = engine.workshop.choice(kernel, env);
        ways.push(choice.as_ref().map_or_else(Vec::new, |choice| choice.ways.clone()));
        keys.push(choice.map_or(key.clone(), |choice| choice.applied_to(key)));
    }
    let constants = coded
        .iter()
        .flat_map(|k| &loaded.kernels[*k].inputs)
        .filter_map(|slot| if let Origin::Constant(id) = loaded.slots[*slot].origin { Some(id) } else { None });
    let constants: BTreeSet<ConstantId> = constants.collect();
    // What kernels read is copied while they are made.
    let (made, brought) = std::thread::scope(|scope| {
        let bringing = scope.spawn(|| engine.constants.bring(&constants, &engine.gpu));
        let made = engine.workshop.make(&keys);
        (made, bringing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    brought?;
    let mut made = made?.into_iter().zip(ways);
    let mut steps = Vec::with_capacity(kernels.len());
    for k in kernels.clone() {
        let step = match coded.contains(&k).then(|| made.next()).flatten() {
            Some((Made::Code(compiled), ways)) => {
                let step = step(compiled, env).at(|| loaded.describe(k))?;
                Some(Step { ways, ..step })
            }
            Some((Made::Refused(reason), _)) => {
                engine.note_refused(format!("{}: {reason}", loaded.describe(k)));
                None
            }
            None => None,
        };
        steps.push(step);
    }
    let is_pure = loaded.segments.len() == 1 && steps.iter().all(Option::is_some);
    let pure = if is_pure { Some(place_all(engine, loaded, &steps, &bytes, env)?) } else { None };
    Ok(Special { steps, bytes, pure })
}

/// A kernel that was made, at the sizes of a binding.
pub(super) fn step(compiled: Arc<Compiled>, env: &Env) -> Result<Step> {
    let mut grids = Vec::with_capacity(compiled.printed.launches.len());
    let mut sizes = Env::new();
    for launch in &compiled.printed.launches {
        let blocks = launch.blocks.eval(env)?;
        let blocks = u32::try_from(blocks).ok().filter(|blocks| *blocks < 1 << 31);
        let blocks = blocks.ok_or_else(|| Error::limit("more blocks of threads than a GPU takes"))?;
        grids.push(Grid { blocks, threads: launch.threads, shared: launch.shared, early: launch.early });
        for parameter in &launch.parameters {
            if let Parameter::Size(symbol) = parameter {
                let size = env.get(symbol).ok_or_else(|| Error::bug(format!("the size {symbol} is not known")))?;
                sizes.bind(symbol.clone(), size);
            }
        }
    }
    let scratch = compiled.printed.scratch.iter().map(|scratch| {
        let bytes = scratch.bytes.eval(env)?;
        usize::try_from(bytes).map_err(|_| Error::limit("more bytes between launches than can be counted"))
    });
    let scratch = scratch.collect::<Result<Vec<usize>>>()?;
    Ok(Step { compiled, grids, scratch, env: sizes, ways: Vec::new() })
}

/// A place for every input, every value and all memory between launches.
fn place_all(
    engine: &Engine,
    loaded: &LoadedGraph,
    steps: &[Option<Step>],
    bytes: &FxHashMap<usize, usize>,
    env: &Env,
) -> Result<Pure> {
    let last = steps.len();
    let (mut wishes, mut slots, mut scratches) = (Vec::new(), Vec::new(), Vec::new());
    for (slot, info) in loaded.slots.iter().enumerate() {
        let wish = match info.origin {
            // Inputs stay what they are from run to run.
            Origin::Input => Wish { bytes: info.bytes(env)?, first: 0, last, heir_of: None },
            Origin::Constant(_) => continue,
            // They stay when the rest goes.
            Origin::Kernel(_) if info.is_output && engine.runs_once => continue,
            Origin::Kernel(k) => {
                let last = if info.is_output { last } else { info.last };
                Wish { bytes: bytes.get(&slot).copied().unwrap_or(0), first: k, last, heir_of: None }
            }
        };
        slots.push((slot, wishes.len()));
        wishes.push(wish);
    }
    for (k, step) in steps.iter().enumerate() {
        for (number, bytes) in step.iter().flat_map(|step| &step.scratch).enumerate() {
            scratches.push(((k, number), wishes.len()));
            wishes.push(Wish { bytes: *bytes, first: k, last: k, heir_of: None });
        }
    }
    let placement = place(&wishes, Spacing::of(Machine::Gpu));
    if placement.bytes as u64 > engine.limits.bytes {
        let (wanted, limit) = (placement.bytes, engine.limits.bytes);
        return Err(Error::over(
            Allowance::Memory,
            format!("values of {wanted} bytes at one time (the limit is {limit} bytes)"),
        ));
    }
    let arena = engine.gpu.take(placement.bytes)?;
    let at = |wish: usize| arena.at() + placement.offsets[wish] as u64;
    let by_slot = slots.into_iter().map(|(slot, wish)| (slot, at(wish))).collect();
    let by_scratch = scratches.into_iter().map(|(key, wish)| (key, at(wish))).collect();
    Ok(Pure { _arena: arena, by_slot, by_scratch, graph: Mutex::default(), elsewhere: Mutex::default() })
}
