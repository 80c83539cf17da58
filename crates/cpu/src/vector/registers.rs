//! The registers of the portable executor.

use super::Ty;
use super::flatten::{Flat, Initial, Reg, file};
use super::lane::{Lane, map};

/// The registers of every type.
#[derive(Clone, Debug)]
pub(super) struct Files<const L: usize> {
    pub(super) int: Vec<i64>,
    pub(super) f32: Vec<[f32; L]>,
    pub(super) f64: Vec<[f64; L]>,
    pub(super) i32: Vec<[i32; L]>,
    pub(super) i64: Vec<[i64; L]>,
    pub(super) mask: Vec<[bool; L]>,
}

impl<const L: usize> Files<L> {
    /// The registers at the beginning of a call.
    pub(super) fn new(flat: &Flat) -> Files<L> {
        fn numbers<T: Lane, const L: usize>(registers: &[Initial]) -> Vec<[T; L]> {
            let lanes = |initial: &Initial| {
                std::array::from_fn(|k| match initial {
                    Initial::Bits(bits) => T::of_word(*bits),
                    Initial::Lanes => T::of_word(k as u64),
                    Initial::Numbers(lanes) => T::of_word(lanes[k].into()),
                    Initial::Zero | Initial::Number(_) | Initial::First(_) => T::of_word(0),
                })
            };
            registers.iter().map(lanes).collect()
        }
        let integer = |initial: &Initial| if let Initial::Number(n) = initial { *n } else { 0 };
        let truths = |initial: &Initial| {
            std::array::from_fn(|k| match initial {
                Initial::Bits(bits) => *bits & 1 == 1,
                Initial::First(n) => k < *n as usize,
                Initial::Zero | Initial::Number(_) | Initial::Lanes | Initial::Numbers(_) => false,
            })
        };
        Files {
            int: flat.files[file(Ty::Int)].iter().map(integer).collect(),
            f32: numbers(&flat.files[file(Ty::F32)]),
            f64: numbers(&flat.files[file(Ty::F64)]),
            i32: numbers(&flat.files[file(Ty::I32)]),
            i64: numbers(&flat.files[file(Ty::I64)]),
            mask: flat.files[file(Ty::Mask)].iter().map(truths).collect(),
        }
    }

    /// An integer.
    pub(super) fn int(&self, register: Reg) -> i64 {
        self.int[register as usize]
    }

    /// A lane's bits as the low bits of a word.
    pub(super) fn word(&self, ty: Ty, register: Reg, lane: usize) -> u64 {
        let register = register as usize;
        match ty {
            Ty::Int => self.int[register] as u64,
            Ty::F32 => self.f32[register][lane].word(),
            Ty::F64 => self.f64[register][lane].word(),
            Ty::I32 => self.i32[register][lane].word(),
            Ty::I64 => self.i64[register][lane].word(),
            Ty::Mask => u64::from(self.mask[register][lane]),
        }
    }

    /// Writes a vector by the bits of its lanes.
    pub(super) fn set_words(&mut self, ty: Ty, register: Reg, words: &[u64; L]) {
        let register = register as usize;
        match ty {
            Ty::Int => self.int[register] = words[0] as i64,
            Ty::F32 => self.f32[register] = map(words, f32::of_word),
            Ty::F64 => self.f64[register] = map(words, f64::of_word),
            Ty::I32 => self.i32[register] = map(words, i32::of_word),
            Ty::I64 => self.i64[register] = map(words, i64::of_word),
            Ty::Mask => self.mask[register] = map(words, |word| word & 1 == 1),
        }
    }

    /// The lanes of a vector of integers.
    pub(super) fn integers(&self, ty: Ty, register: Reg) -> [i64; L] {
        match ty {
            Ty::I32 => map(&self.i32[register as usize], i64::from),
            Ty::I64 => self.i64[register as usize],
            _ => unreachable!("{ty:?} has no integers"),
        }
    }

    /// A mask, where there is one.
    pub(super) fn mask(&self, register: Option<Reg>) -> Option<[bool; L]> {
        register.map(|register| self.mask[register as usize])
    }
}
