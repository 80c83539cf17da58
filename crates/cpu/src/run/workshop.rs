//! Kernels made ready for a processor, each once.
//!
//! Comes in: a kernel and numbers for its sizes. Goes out: programs that can be called, or why there are none. Equal kernels at
//! equal sizes share what is made, and so do equal programs of different kernels.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fuseline::budget::Budget;
use fuseline::error::{Error, Kind, Result};
use fuseline::tensor::Env;
use fuseline::tile::Kernel;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::pool::Team;
use crate::code::{Code, Draft, Isa};
use crate::emit::{Emitted, Target};
use crate::vector::Program;

/// What turns kernels at fixed sizes into programs.
pub(super) type Emit = fn(&Kernel, &Env, &Target) -> Result<Emitted>;

/// A kernel at fixed sizes whose programs can be called.
#[derive(Debug)]
pub(super) struct Compiled {
    /// the phases
    pub emitted: Emitted,
    /// for every phase, its program; equal programs are one
    pub codes: Vec<Arc<Code>>,
}

/// What became of a kernel.
#[derive(Clone, Debug)]
pub(super) enum Made {
    /// programs
    Code(Arc<Compiled>),
    /// there are none, and this is why: the interpreter of kernels runs it
    Refused(Arc<str>),
}

/// Where kernels are made.
#[derive(Debug)]
pub(super) struct Workshop {
    isa: Isa,
    /// among how many cores tasks are shared
    cores: usize,
    emit: Emit,
    known: Mutex<Known>,
}

/// A kernel that is asked for.
pub(super) struct Order<'a> {
    pub kernel: &'a Arc<Kernel>,
    /// for every input whether it is constant; none are where this is empty
    pub constant: Vec<bool>,
}

impl Order<'_> {
    fn key(&self, env: &Env) -> Result<Key> {
        let number = |symbol| env.get(symbol).ok_or_else(|| Error::bug(format!("the size {symbol:?} is not known")));
        let sizes = self.kernel.symbols().iter().map(number).collect::<Result<Vec<i64>>>()?;
        Ok((self.kernel.clone(), sizes, self.constant.clone()))
    }
}

/// A kernel with the numbers of its symbols, in their order, and which of its inputs are constant.
type Key = (Arc<Kernel>, Vec<i64>, Vec<bool>);

#[derive(Debug, Default)]
struct Known {
    /// how long making took
    spent: Duration,
    /// how many kernels were made
    made: usize,
    kernels: FxHashMap<Key, Made>,
    codes: FxHashMap<Arc<Program>, Arc<Code>>,
    /// once there are so many kernels, those that nobody uses are forgotten
    most: usize,
}

type IndexSet<T> = indexmap::IndexSet<T, FxBuildHasher>;

/// So many kernels are made between two questions whether there is time: few seconds pass, and threads seldom wait for the last.
const AT_ONCE: usize = 64;

/// Below this many kernels nothing is forgotten.
const FEW_KERNELS: usize = 256;

impl Workshop {
    pub fn new(isa: Isa, cores: usize, emit: Emit) -> Workshop {
        Workshop { isa, cores, emit, known: Mutex::default() }
    }

    /// The kernel at the sizes of the binding, all of whose inputs may change.
    pub fn make_one(&self, team: &mut Team<'_>, kernel: &Arc<Kernel>, env: &Env) -> Result<Made> {
        let order = Order { kernel, constant: Vec::new() };
        self.make(team, &[order], env, &Budget::UNLIMITED)?.swap_remove(0)
    }

    /// Kernels at the sizes of the binding, those that are not known made by all threads; for each what became of it. An error for all where
    /// a size is not known or the budget ends.
    pub fn make(
        &self,
        team: &mut Team<'_>,
        orders: &[Order<'_>],
        env: &Env,
        budget: &Budget,
    ) -> Result<Vec<Result<Made>>> {
        let keys = orders.iter().map(|order| order.key(env)).collect::<Result<Vec<Key>>>()?;
        // Held while kernels are made: who waits would make the same. Threads of the team do not ask for it.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut made, mut missing) = (FxHashMap::default(), IndexSet::default());
        for key in &keys {
            match known.kernels.get(key) {
                Some(known) => drop(made.insert(key, Ok(known.clone()))),
                None => drop(missing.insert(key)),
            }
        }
        let missing: Vec<&Key> = missing.into_iter().collect();
        let start = Instant::now();
        for some in missing.chunks(AT_ONCE) {
            budget.check()?;
            let new = self.make_some(team, some, env, &mut known);
            known.forget_unused();
            for (key, new) in some.iter().zip(new) {
                if let Ok(new) = &new {
                    known.kernels.insert((*key).clone(), new.clone());
                }
                made.insert(key, new);
            }
        }
        known.spent += start.elapsed();
        known.made += missing.len();
        Ok(keys.iter().map(|key| made[key].clone()).collect())
    }

    /// Makes different kernels: the programs of all, then the code of each program that is new.
    fn make_some(&self, team: &mut Team<'_>, keys: &[&Key], env: &Env, known: &mut Known) -> Vec<Result<Made>> {
        let emitted = team.collect(keys.len(), |k| {
            let (kernel, _, constant) = keys[k];
            let target = Target { isa: self.isa, cores: self.cores, constant: constant.clone() };
            (self.emit)(kernel, env, &target)
        });
        let phases = emitted.iter().flatten().flat_map(|emitted| &emitted.phases);
        let programs = phases.map(|phase| &phase.program).filter(|program| !known.codes.contains_key(*program));
        let programs: IndexSet<Arc<Program>> = programs.cloned().collect();
        let drafts = team.collect(programs.len(), |k| Draft::new(&programs[k], self.isa));
        let mut refused: FxHashMap<Arc<Program>, Error> = FxHashMap::default();
        let (mut drafted, mut new) = (Vec::new(), Vec::new());
        for (program, draft) in programs.into_iter().zip(drafts) {
            match draft {
                Ok(draft) => {
                    drafted.push(program);
                    new.push(draft);
                }
                Err(error) => drop(refused.insert(program, error)),
            }
        }
        match Code::all(new) {
            Ok(codes) => known.codes.extend(drafted.into_iter().zip(codes.into_iter().map(Arc::new))),
            Err(error) => refused.extend(drafted.into_iter().map(|program| (program, error.clone()))),
        }
        let code = |program: &Arc<Program>| known.codes.get(program).cloned().ok_or_else(|| refused[program].clone());
        let compiled = |emitted: Emitted| {
            let codes = emitted.phases.iter().map(|phase| code(&phase.program)).collect::<Result<Vec<_>>>()?;
            Ok(Made::Code(Arc::new(Compiled { emitted, codes })))
        };
        let made = emitted.into_iter().map(|emitted| match emitted.and_then(compiled) {
            Err(error) if error.kind() == Kind::Unsupported => Ok(Made::Refused(error.message().into())),
            made => made,
        });
        made.collect()
    }
}

impl Workshop {
    /// How many kernels are known.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).kernels.len()
    }

    /// How many kernels were made so far, those that were forgotten too.
    pub fn made(&self) -> usize {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).made
    }

    /// How long making kernels took so far.
    pub fn spent(&self) -> Duration {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).spent
    }
}

impl Known {
    /// Drops what nobody uses once there is much of it: a program that sees ever new sizes must not fill the memory.
    fn forget_unused(&mut self) {
        if self.kernels.len() < self.most.max(FEW_KERNELS) {
            return;
        }
        self.kernels.retain(|_, made| matches!(made, Made::Code(compiled) if Arc::strong_count(compiled) > 1));
        self.codes.retain(|_, code| Arc::strong_count(code) > 1);
        // So that looking for them takes little for each.
        self.most = 2 * self.kernels.len();
    }
}
