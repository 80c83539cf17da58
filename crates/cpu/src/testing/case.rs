//! A program with the memory that it is called on, and what two ways to run it may differ in.
#![allow(unsafe_code, reason = "programs are called on raw memory")]

use std::ops::Range;

use fuseline::tensor::DType;

use super::guard::{Guarded, Side};
use crate::code::Fault;
use crate::vector::{Loop, Node, Portable, Program, verify};

/// A program that stays within its memory.
#[derive(Clone, Debug)]
pub struct Case {
    /// what is called
    pub program: Program,
    /// what the pointers of the table point at
    pub buffers: Vec<Contents>,
    /// how many tasks there are
    pub tasks: i64,
}

/// Elements in memory.
#[derive(Clone, Debug)]
pub struct Contents {
    /// what they are
    pub dtype: DType,
    /// their bytes before the call
    pub bytes: Vec<u8>,
}

/// What a call left behind.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// the bytes of every buffer
    pub buffers: Vec<Vec<u8>>,
    /// the check that failed
    pub fault: Fault,
}

impl Case {
    /// All tasks in one call.
    pub fn whole(&self) -> [Range<i64>; 1] {
        std::array::from_fn(|_| 0..self.tasks)
    }

    /// Calls `call` with a table of pointers, for one range of tasks after another.
    pub fn run(
        &self,
        side: Side,
        ranges: &[Range<i64>],
        mut call: impl FnMut(&[*mut u8], Range<i64>, &mut Fault),
    ) -> Outcome {
        let mut memory: Vec<Guarded> = self.buffers.iter().map(|each| Guarded::new(&each.bytes, side)).collect();
        let table: Vec<*mut u8> = memory.iter_mut().map(Guarded::start).collect();
        let mut fault = Fault::default();
        for range in ranges {
            call(&table, range.clone(), &mut fault);
        }
        Outcome { buffers: memory.iter().map(|each| each.bytes().to_vec()).collect(), fault }
    }

    /// What the portable executor makes of it.
    ///
    /// # Panics
    ///
    /// If the program is not valid.
    pub fn expected(&self, side: Side, ranges: &[Range<i64>]) -> Outcome {
        let portable = Portable::new(&self.program).expect("the program of a case is valid");
        // SAFETY: the program of a case stays within its memory, or ends at a guarded page.
        self.run(side, ranges, |table, tasks, fault| unsafe { portable.call(table, tasks.start, tasks.end, fault) })
    }

    /// The first difference between two outcomes, in words. One NaN is as good as another.
    pub fn difference(&self, expected: &Outcome, found: &Outcome) -> Option<String> {
        for (place, contents) in self.buffers.iter().enumerate() {
            let size = contents.dtype.bits() / 8;
            let pairs = expected.buffers[place].chunks(size).zip(found.buffers[place].chunks(size));
            for (k, (a, b)) in pairs.enumerate() {
                let [a, b] = [a, b].map(|bytes| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
                if a != b && !(is_nan(contents.dtype, a) && is_nan(contents.dtype, b)) {
                    let dtype = contents.dtype;
                    return Some(format!("buffer {place}, {dtype} {k}: expected {a:#x}, found {b:#x}"));
                }
            }
        }
        let (expected, found) = (expected.fault, found.fault);
        (expected != found).then(|| format!("expected {expected:?}, found {found:?}"))
    }

    /// A smaller case that fails too: without the statements and carried values that it fails without.
    pub fn reduce(&self, mut fails: impl FnMut(&Case) -> bool) -> Case {
        let mut best = self.clone();
        loop {
            let before = count(&best.program.body);
            for place in (0..before).rev() {
                let mut smaller = best.clone();
                remove(&mut smaller.program.body, &mut { place });
                if count(&smaller.program.body) < count(&best.program.body)
                    && verify(&smaller.program).is_ok()
                    && fails(&smaller)
                {
                    best = smaller;
                }
            }
            if count(&best.program.body) == before {
                return best;
            }
        }
    }
}

fn is_nan(dtype: DType, bits: u64) -> bool {
    match dtype {
        DType::F16 => bits & 0x7fff > 0x7c00,
        DType::BF16 => bits & 0x7fff > 0x7f80,
        DType::F32 => f32::from_bits(bits as u32).is_nan(),
        DType::F64 => f64::from_bits(bits).is_nan(),
        _ => false,
    }
}

/// Statements, and values that loops carry.
fn count(nodes: &[Node]) -> usize {
    let inside = |inner: &Loop| inner.carried.len() + count(&inner.body);
    nodes.iter().map(|node| 1 + if let Node::Loop(inner) = node { inside(inner) } else { 0 }).sum()
}

/// Removes the statement or carried value with this number; `place` goes down by those that were passed.
fn remove(nodes: &mut Vec<Node>, place: &mut usize) -> bool {
    for k in 0..nodes.len() {
        if *place == 0 {
            nodes.remove(k);
            return true;
        }
        *place -= 1;
        if let Node::Loop(inner) = &mut nodes[k] {
            if *place < inner.carried.len() {
                inner.carried.remove(*place);
                return true;
            }
            *place -= inner.carried.len();
            if remove(&mut inner.body, place) {
                return true;
            }
        }
    }
    false
}
