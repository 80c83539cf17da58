//! Vector programs that can be called.

/// For which instructions programs are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// x86-64 with AVX-512 (F, BW, DQ, VL)
    Avx512,
    /// x86-64 with AVX2, FMA and F16C
    Avx2,
    /// any processor: programs are interpreted
    Portable,
}

impl Isa {
    /// Bytes of the widest vector.
    pub fn vector_bytes(self) -> usize {
        match self {
            Isa::Avx512 | Isa::Portable => 64,
            Isa::Avx2 => 32,
        }
    }

    /// Vectors that can be held at a time.
    pub fn registers(self) -> usize {
        match self {
            Isa::Avx512 | Isa::Portable => 32,
            Isa::Avx2 => 16,
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
