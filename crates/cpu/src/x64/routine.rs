//! Routines that machine code calls.

use crate::vector::Routine;

use super::machine::Lane;

/// A call as machine code makes it: where lanes lie, in bytes above the stack pointer.
#[derive(Debug)]
pub struct Descriptor {
    /// what is called
    pub routine: Routine,
    /// how many lanes
    pub lanes: usize,
    /// where arguments lie
    pub arguments: Vec<(usize, Lane)>,
    /// where the result goes
    pub result: (usize, Lane),
    /// for which lanes; the result of others lies there already
    pub only: Option<(usize, Lane)>,
}

/// Calls a routine for every lane.
///
/// # Safety
/// `stack` is the stack pointer of code that was made for this descriptor.
pub unsafe extern "sysv64" fn call_lanes(descriptor: *const Descriptor, stack: *mut u8) {
    // SAFETY: the code holds the descriptor's address and lives as long as it
    let descriptor = unsafe { &*descriptor };
    let mut words = Vec::with_capacity(descriptor.arguments.len());
    let (to, kind) = descriptor.result;
    // SAFETY: slots of the code's own stack, which hold this many lanes
    unsafe {
        let kept = kind == Lane::Bit && descriptor.only.is_some();
        let mut bits = if kept { stack.add(to).cast::<u16>().read() } else { 0 };
        for lane in 0..descriptor.lanes {
            if descriptor.only.is_some_and(|(at, kind)| read(stack.add(at), kind, lane) == 0) {
                continue;
            }
            words.clear();
            words.extend(descriptor.arguments.iter().map(|(at, kind)| read(stack.add(*at), *kind, lane)));
            let word = (descriptor.routine.call)(&words);
            match kind {
                Lane::Dword => stack.add(to).cast::<u32>().add(lane).write(word as u32),
                Lane::Qword => stack.add(to).cast::<u64>().add(lane).write(word),
                Lane::Truth => stack.add(to).cast::<u32>().add(lane).write(0u32.wrapping_sub(word as u32 & 1)),
                Lane::Bit => bits = bits & !(1 << lane) | (word as u16 & 1) << lane,
            }
        }
        if kind == Lane::Bit {
            stack.add(to).cast::<u16>().write(bits);
        }
    }
}

/// The bits of a lane.
///
/// # Safety
/// `at` is a slot that holds this lane.
unsafe fn read(at: *const u8, kind: Lane, lane: usize) -> u64 {
    // SAFETY: as promised
    unsafe {
        match kind {
            Lane::Dword => u64::from(at.cast::<u32>().add(lane).read()),
            Lane::Qword => at.cast::<u64>().add(lane).read(),
            Lane::Truth => u64::from(at.cast::<u32>().add(lane).read() & 1),
            Lane::Bit => u64::from(at.cast::<u16>().read() >> lane & 1),
        }
    }
}
