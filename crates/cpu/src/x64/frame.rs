//! The stack of a function, and what it must leave as it found it.

use fuseline::error::{Error, Result};

use super::allocate::Places;
use super::machine::{Class, Function, Slot};

/// More than this is a mistake of ours, and would leap over the guard of the stack.
const MOST_BYTES: usize = 1 << 18;

/// rbx, rbp, r12 … r15
const KEPT: [u8; 6] = [3, 5, 12, 13, 14, 15];

/// Where everything lies, in bytes above the stack pointer, which is a multiple of 64.
#[derive(Debug)]
pub struct Frame {
    slots: Vec<usize>,
    /// where registers are kept while a routine is called
    saved: usize,
    /// where the caller's stack pointer is kept
    pub caller: usize,
    /// all of it; 0 if nothing lies there
    pub bytes: usize,
    /// what is pushed in front of it
    pub kept: Vec<u8>,
}

impl Frame {
    /// The stack that a function needs.
    pub fn new(function: &Function, places: &Places) -> Result<Frame> {
        // what nothing names has place 0, which need not be kept
        let integers = function.sizes.iter().zip(&places.of).filter(|(size, _)| size.class() == Class::Int);
        let used = integers.fold(0u32, |used, (_, place)| used | 1 << place);
        let kept = KEPT.into_iter().filter(|place| used & (1 << place) != 0).collect();
        let mut order: Vec<usize> = (0..function.slots.len()).collect();
        // the largest first: every slot is then aligned to its size
        order.sort_by_key(|slot| std::cmp::Reverse(function.slots[*slot].next_power_of_two()));
        let (mut slots, mut bytes) = (vec![0; function.slots.len()], 0);
        for slot in order {
            slots[slot] = bytes;
            bytes += function.slots[slot].next_power_of_two();
        }
        let saved = bytes.next_multiple_of(64);
        if !function.calls.is_empty() {
            bytes = saved + 64 * Self::SAVED;
        }
        if bytes == 0 {
            return Ok(Frame { slots, saved, caller: 0, bytes, kept });
        }
        let caller = bytes;
        let bytes = (bytes + 8).next_multiple_of(64);
        if bytes > MOST_BYTES {
            return Err(Error::limit(format!("a vector program needs {bytes} bytes of stack")));
        }
        Ok(Frame { slots, saved, caller, bytes, kept })
    }

    /// vectors, masks, integers, a line each
    const SAVED: usize = 32 + 8 + 16;

    /// Where a slot lies.
    pub fn slot(&self, slot: Slot) -> usize {
        self.slots[slot.0 as usize]
    }

    /// Where a register lies while a routine is called.
    pub fn saved(&self, class: Class, place: u8) -> usize {
        let line = match class {
            Class::Vector => 0,
            Class::Mask => 32,
            Class::Int => 40,
        };
        self.saved + 64 * (line + place as usize)
    }
}
