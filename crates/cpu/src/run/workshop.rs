//! Kernels made ready for a processor, each once.
//!
//! Comes in: a kernel and numbers for its sizes. Goes out: programs that can be called, or why there are none. Equal kernels at
//! equal sizes share what is made, and so do equal programs of different kernels.

use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fuseline::error::{Error, Kind, Result};
use fuseline::tensor::Env;
use fuseline::tile::Kernel;
use rustc_hash::FxHashMap;

use crate::code::{Code, Isa};
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

/// Below this many kernels nothing is forgotten.
const FEW_KERNELS: usize = 256;

impl Workshop {
    pub fn new(isa: Isa, cores: usize, emit: Emit) -> Workshop {
        Workshop { isa, cores, emit, known: Mutex::default() }
    }

    /// The kernel at the sizes of the binding, some of whose inputs are constant.
    pub fn make(&self, kernel: &Arc<Kernel>, env: &Env, constant: &[bool]) -> Result<Made> {
        let number = |symbol| env.get(symbol).ok_or_else(|| Error::bug(format!("the size {symbol:?} is not known")));
        let sizes = kernel.symbols().iter().map(number).collect::<Result<Vec<i64>>>()?;
        let key = (kernel.clone(), sizes, constant.to_vec());
        // Held while kernels are made: who waits would make the same.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = known.kernels.get(&key) {
            return Ok(made.clone());
        }
        let start = Instant::now();
        let target = Target { isa: self.isa, cores: self.cores, constant: constant.to_vec() };
        let made = match (self.emit)(kernel, env, &target).and_then(|emitted| known.compile(emitted, self.isa)) {
            Ok(compiled) => Made::Code(Arc::new(compiled)),
            Err(error) if error.kind() == Kind::Unsupported => Made::Refused(error.to_string().into()),
            Err(error) => return Err(error),
        };
        known.spent += start.elapsed();
        known.made += 1;
        known.forget_unused();
        known.kernels.insert(key, made.clone());
        Ok(made)
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
    fn compile(&mut self, emitted: Emitted, isa: Isa) -> Result<Compiled> {
        let mut codes = Vec::with_capacity(emitted.phases.len());
        for phase in &emitted.phases {
            codes.push(match self.codes.entry(phase.program.clone()) {
                Entry::Occupied(known) => known.get().clone(),
                Entry::Vacant(place) => place.insert(Arc::new(Code::new(&phase.program, isa)?)).clone(),
            });
        }
        Ok(Compiled { emitted, codes })
    }

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
