//! Calling programs: the tasks of a phase on a team.
#![allow(unsafe_code, reason = "machine code is called with pointers")]

use std::sync::{Mutex, PoisonError};

use smallvec::SmallVec;

use super::pool::Team;
use crate::code::{Code, Fault};

/// The pointers of a kernel, which of them a program has, and memory of its own for each thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table<'a> {
    /// the pointers; the one at `worker` is set for each thread
    pub pointers: &'a [*mut u8],
    /// for every pointer of the program, its place among them
    pub used: &'a [u32],
    /// the place of a thread's own memory in the table
    pub worker: usize,
    /// memory of the first thread
    pub first: *mut u8,
    /// how far the memory of the next thread is from that of one
    pub stride: usize,
}

// SAFETY: tasks of a phase are independent of each other, which `launch` asks for; the pointers may be used by any thread.
unsafe impl Sync for Table<'_> {}

impl Table<'_> {
    /// The pointers as a thread sees them.
    fn of_thread(&self, thread: usize) -> SmallVec<[*mut u8; 24]> {
        // There may be no such memory, and then nobody reads the pointer.
        let own = self.first.wrapping_add(thread * self.stride);
        let pointer = |place: &u32| match *place as usize {
            place if place == self.worker => own,
            place => self.pointers[place],
        };
        self.used.iter().map(pointer).collect()
    }
}

/// Does the tasks of a phase; the fault of the first call that has one, by its tasks.
///
/// # Safety
///
/// The processor must have the instructions that the code was made for. What the program reads and writes relative to the pointers must be memory that it may read and write, for as many threads as
/// the team has; nobody else may write it, nor read what the program writes; tasks must be independent of each other.
pub(super) unsafe fn launch(team: &mut Team<'_>, code: &Code, tasks: u64, table: Table<'_>) -> Option<Fault> {
    let first: Mutex<Option<(u64, Fault)>> = Mutex::new(None);
    let table = &table;
    team.run(tasks, &|thread, range| {
        let mut fault = Fault::default();
        let (begin, end) = (range.start as i64, range.end as i64);
        // SAFETY: what the caller promises.
        unsafe { code.call(&table.of_thread(thread), begin, end, &mut fault) };
        if fault.site > 0 {
            let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
            if first.is_none_or(|(before, _)| range.start < before) {
                *first = Some((range.start, fault));
            }
        }
    });
    first.into_inner().unwrap_or_else(PoisonError::into_inner).map(|(_, fault)| fault)
}
