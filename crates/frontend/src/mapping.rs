//! Read-only file mappings as [`Bytes`].
//!
//! This is the only file with `unsafe`. A mapping is as immutable as its file: whoever shortens the file while it is
//! mapped ends the process with a bus error, whoever overwrites it changes the weights. Replacing a file by renaming
//! another over it is safe, because the mapping keeps the old one.
#![allow(unsafe_code, reason = "mapping a file is unsafe: another process may change it meanwhile")]

use std::fs::File;
use std::path::Path;

use bytes::Bytes;
use fuseline::error::{Error, Result};
use memmap2::Mmap;

/// The content of a regular file, paged in on demand and unmapped with the last slice of it.
pub fn map_file(path: &Path) -> Result<Bytes> {
    let cannot = |error: std::io::Error| Error::invalid(format!("cannot open the file: {error}"));
    // Looked at before opening: opening a pipe would wait for its writer.
    if !std::fs::metadata(path).map_err(cannot)?.is_file() {
        return Err(Error::invalid("not a regular file"));
    }
    let file = File::open(path).map_err(cannot)?;
    if file.metadata().map_err(cannot)?.len() == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: the mapping is read-only, and the `Bytes` that owns it gives out only shared slices, so nothing writes
    // through it. That nobody changes the file meanwhile is the user's duty, stated above; all reads are of bytes,
    // for which every bit pattern is valid.
    let mapping = unsafe { Mmap::map(&file) }.map_err(cannot)?;
    Ok(Bytes::from_owner(mapping))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_mapped_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        std::fs::write(&path, b"some bytes").unwrap();
        assert_eq!(map_file(&path).unwrap(), &b"some bytes"[..]);
        std::fs::write(&path, b"").unwrap();
        assert!(map_file(&path).unwrap().is_empty());
    }

    #[test]
    fn only_regular_files_are_mapped() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(map_file(folder.path()).unwrap_err().message(), "not a regular file");
        let missing = map_file(&folder.path().join("missing")).unwrap_err();
        assert!(missing.message().starts_with("cannot open the file: "), "{missing}");
    }
}
