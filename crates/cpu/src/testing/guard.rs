//! Memory between pages that may not be touched: what reads or writes a byte too far ends the test at once.
#![allow(
    unsafe_code,
    reason = "pages are protected by the system, and the memory between them is handed out as a pointer"
)]

use memmap2::MmapMut;

/// Which end of the memory touches a guarded page; the other is within a page of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// the first byte stands behind a guarded page
    Begin,
    /// the last byte stands before a guarded page
    End,
}

impl Side {
    /// Both.
    pub const ALL: [Side; 2] = [Side::Begin, Side::End];
}

/// Bytes between guarded pages.
#[derive(Debug)]
pub struct Guarded {
    map: MmapMut,
    start: usize,
    length: usize,
}

impl Guarded {
    /// A copy of these bytes.
    ///
    /// # Panics
    ///
    /// If the system refuses memory.
    pub fn new(contents: &[u8], side: Side) -> Guarded {
        // SAFETY: asks for a number.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).expect("pages have a size");
        let inside = contents.len().next_multiple_of(page).max(page);
        let mut map = MmapMut::map_anon(inside + 2 * page).expect("memory for a test");
        let start = match side {
            Side::Begin => page,
            Side::End => page + inside - contents.len(),
        };
        map[start..start + contents.len()].copy_from_slice(contents);
        for guard in [0, page + inside] {
            // SAFETY: the page is one of the mapping, and nothing reads it through the mapping from here on.
            let refused = unsafe { libc::mprotect(map.as_mut_ptr().add(guard).cast(), page, libc::PROT_NONE) };
            assert_eq!(refused, 0, "the system protects pages");
        }
        Guarded { map, start, length: contents.len() }
    }

    /// The first byte.
    pub fn start(&mut self) -> *mut u8 {
        self.map.as_mut_ptr().wrapping_add(self.start)
    }

    /// What lies there now.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the bytes stand between the guarded pages, and whoever wrote through the pointer has finished.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(self.start), self.length) }
    }
}
