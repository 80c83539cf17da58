//! Memory that holds machine code: written first, executable afterwards, never both.

use fuseline::error::{Error, Result};
use memmap2::{Mmap, MmapOptions};

/// Pages of constants and code.
#[derive(Debug)]
pub struct Pages {
    map: Mmap,
}

impl Pages {
    /// Pages of so many bytes with this content, each part at its place.
    pub fn new<'c>(bytes: usize, content: impl Iterator<Item = (usize, &'c [u8])>) -> Result<Pages> {
        let failed = |e: std::io::Error| Error::unsupported(format!("memory for machine code: {e}"));
        // all at once, as every page is written
        let mut map = MmapOptions::new().len(bytes.max(1)).populate().map_anon().map_err(failed)?;
        for (place, part) in content {
            map[place..place + part.len()].copy_from_slice(part);
        }
        Ok(Pages { map: map.make_exec().map_err(failed)? })
    }

    /// The address of a byte.
    pub fn address(&self, offset: usize) -> *const u8 {
        self.map[offset..].as_ptr()
    }

    /// The content.
    pub fn content(&self) -> &[u8] {
        &self.map
    }
}
