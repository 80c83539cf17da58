//! Vector programs that can be called.

#[cfg(not(target_arch = "x86_64"))]
use fuseline::error::Error;
use fuseline::error::Result;

use crate::vector::run::Portable;
use crate::vector::{Program, verify};
#[cfg(target_arch = "x86_64")]
use crate::x64::{self, Level, Machine};

/// For which instructions programs are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// as AVX-512, and tiles of bf16 (AMX), which the system lets the process use
    Amx,
    /// x86-64 with AVX-512 (F, BW, DQ, VL)
    Avx512,
    /// x86-64 with AVX2, FMA and F16C
    Avx2,
    /// any processor: programs are interpreted
    Portable,
}

impl Isa {
    /// All of them, the best first: what runs on one runs on those before it, and all run the last.
    pub const ALL: &'static [Isa] = &[Isa::Amx, Isa::Avx512, Isa::Avx2, Isa::Portable];

    /// Those that this processor has, the best first.
    pub fn available() -> impl Iterator<Item = Isa> {
        let best = Isa::detect();
        Isa::ALL.iter().copied().filter(move |isa| *isa >= best)
    }

    /// The best that this processor has.
    pub fn detect() -> Isa {
        #[cfg(target_arch = "x86_64")]
        {
            let has_512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            let has_2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2");
            if has_512 && has_2 {
                return if x64::has_tiles() { Isa::Amx } else { Isa::Avx512 };
            }
            if has_2 {
                return Isa::Avx2;
            }
        }
        Isa::Portable
    }

    /// Bytes of the widest vector.
    pub fn vector_bytes(self) -> usize {
        match self {
            Isa::Amx | Isa::Avx512 | Isa::Portable => 64,
            Isa::Avx2 => 32,
        }
    }

    /// Vectors that can be held at a time.
    pub fn registers(self) -> usize {
        match self {
            Isa::Amx | Isa::Avx512 | Isa::Portable => 32,
            Isa::Avx2 => 16,
        }
    }
}

/// A program that can be called.
#[derive(Debug)]
pub struct Code {
    made: Made,
}

#[derive(Debug)]
enum Made {
    #[cfg(target_arch = "x86_64")]
    Machine(Machine),
    Portable(Portable),
}

/// A program that can be called once it has memory.
#[derive(Debug)]
pub struct Draft {
    drafted: Drafted,
}

#[derive(Debug)]
enum Drafted {
    #[cfg(target_arch = "x86_64")]
    Machine(x64::Draft),
    Portable(Portable),
}

impl Draft {
    /// A program made for these instructions.
    pub fn new(program: &Program, isa: Isa) -> Result<Draft> {
        if cfg!(debug_assertions) {
            verify(program)?;
        }
        let drafted = match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Amx | Isa::Avx512 => Drafted::Machine(x64::Draft::new(program, Level::Avx512)?),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => Drafted::Machine(x64::Draft::new(program, Level::Avx2)?),
            Isa::Portable => Drafted::Portable(Portable::new(program)?),
            #[cfg(not(target_arch = "x86_64"))]
            isa => return Err(Error::unsupported(format!("{isa:?} on this processor"))),
        };
        Ok(Draft { drafted })
    }
}

impl Code {
    /// A program made for these instructions. Calling it is safe only where the processor has them.
    pub fn new(program: &Program, isa: Isa) -> Result<Code> {
        Ok(Code::all(vec![Draft::new(program, isa)?])?.swap_remove(0))
    }

    /// Programs made for the same instructions, in memory that they share: it is there as long as one of them is. Calling them is safe only where the
    /// processor has the instructions.
    pub fn all(drafts: Vec<Draft>) -> Result<Vec<Code>> {
        let mut made = Vec::with_capacity(drafts.len());
        #[cfg(target_arch = "x86_64")]
        let mut machines = Vec::with_capacity(drafts.len());
        for draft in drafts {
            match draft.drafted {
                #[cfg(target_arch = "x86_64")]
                Drafted::Machine(machine) => machines.push(machine),
                Drafted::Portable(portable) => made.push(Made::Portable(portable)),
            }
        }
        #[cfg(target_arch = "x86_64")]
        if !machines.is_empty() {
            made.extend(Machine::all(machines)?.into_iter().map(Made::Machine));
        }
        Ok(made.into_iter().map(|made| Code { made }).collect())
    }

    /// Runs tasks `begin..end`. The first check that fails is noted in `fault`, unless one is noted there already.
    ///
    /// # Safety
    /// The processor has the instructions that the code was made for; the table has as many pointers as the program wants, and they point to
    /// all that it reads and writes.
    pub unsafe fn call(&self, table: &[*mut u8], begin: i64, end: i64, fault: &mut Fault) {
        match &self.made {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as promised
            Made::Machine(machine) => unsafe { machine.call(table, begin, end, fault) },
            // SAFETY: as promised
            Made::Portable(portable) => unsafe { portable.call(table, begin, end, fault) },
        }
    }

    /// The instructions of the machine as text; nothing where programs are interpreted.
    pub fn asm(&self) -> String {
        match &self.made {
            #[cfg(target_arch = "x86_64")]
            Made::Machine(machine) => machine.asm(),
            Made::Portable(_) => String::new(),
        }
    }
}

/// The first check that failed in a call, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Fault {
    /// 1 more than the site of the check; 0 if none failed
    pub site: u64,
    /// the value that failed
    pub value: i64,
}
