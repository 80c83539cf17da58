//! Machine code for x86-64.
//!
//! A tour, in the order of the data: [`order`] knows what a program uses where; [`select`] turns it into instructions over registers without
//! places ([`machine`], by the rows of [`table`]), which have an order ([`sequence`]); [`join`] makes one register of what a loop hands on ([`live`]); [`allocate`] finds places, and
//! [`spill`] puts aside what has none; [`encode`] makes bytes ([`form`]), on a [`frame`], which go to executable [`pages`].

mod allocate;
#[cfg(all(test, unix))]
mod differential;
mod encode;
mod form;
mod frame;
mod join;
mod listing;
mod live;
mod machine;
mod order;
mod pages;
mod routine;
#[cfg(all(test, unix))]
mod scales;
mod select;
mod sequence;
mod spill;
mod table;
mod tiles;

use std::sync::Arc;

use fuseline::error::Result;

pub use table::Level;
pub use tiles::has_tiles;

use crate::code::Fault;
use crate::vector::Program;
use encode::Encoded;
use pages::Pages;
use routine::Descriptor;

/// A program as machine code.
#[derive(Debug)]
pub struct Machine {
    /// those who were made together share them
    pages: Arc<Pages>,
    /// where its constants begin, the function begins, and ends
    start: usize,
    entry: usize,
    end: usize,
    /// the code holds their addresses
    _descriptors: Box<[Descriptor]>,
}

/// Machine code that does not lie in executable memory yet.
#[derive(Debug)]
pub struct Draft(Encoded);

impl Draft {
    /// Machine code for a program.
    pub fn new(program: &Program, level: Level) -> Result<Draft> {
        let (mut function, mut sequence) = select::select(program, level)?;
        let live = join::join(&mut function, &mut sequence);
        let places = allocate::allocate(&mut function, &mut sequence, live)?;
        encode::encode(&function, &sequence, &places, program.lanes as usize).map(Draft)
    }
}

/// What machine code begins at a multiple of: its constants may be as large.
const ALIGNMENT: usize = 64;

type Entry = unsafe extern "sysv64" fn(*const *mut u8, i64, i64, *mut Fault);

impl Machine {
    /// Machine code in executable memory, one behind the other: to ask the system for memory takes as long as to make a small program.
    pub fn all(drafts: Vec<Draft>) -> Result<Vec<Machine>> {
        let mut starts = Vec::with_capacity(drafts.len());
        let mut bytes = 0usize;
        for Draft(encoded) in &drafts {
            starts.push(bytes);
            bytes = (bytes + encoded.bytes.len()).next_multiple_of(ALIGNMENT);
        }
        let pages = Arc::new(Pages::new(bytes, starts.iter().copied().zip(drafts.iter().map(|Draft(e)| &*e.bytes)))?);
        let machine = |(Draft(encoded), start): (Draft, usize)| Machine {
            pages: pages.clone(),
            start,
            entry: start + encoded.entry,
            end: start + encoded.bytes.len(),
            _descriptors: encoded.descriptors,
        };
        Ok(drafts.into_iter().zip(starts).map(machine).collect())
    }

    /// Runs tasks.
    ///
    /// # Safety
    /// The processor has the instructions; the table has as many pointers as the program wants, and they point to all that it reads and writes.
    pub unsafe fn call(&self, table: &[*mut u8], begin: i64, end: i64, fault: &mut Fault) {
        // SAFETY: the pages hold a function of this type there
        let entry: Entry = unsafe { std::mem::transmute(self.pages.address(self.entry)) };
        // SAFETY: as promised
        unsafe { entry(table.as_ptr(), begin, end, fault) }
    }

    /// The instructions as text, one a line, with the constants that they read.
    pub fn asm(&self) -> String {
        listing::listing(&self.pages.content()[self.start..self.end], self.entry - self.start)
    }
}
