//! Read-only file mappings as [`Bytes`].
//!
//! This is the only file with `unsafe`. A mapping is as immutable as its file: whoever shortens the file while it is
//! mapped ends the process with a bus error, whoever overwrites it changes the weights. Replacing a file by renaming
//! another over it is safe, because the mapping keeps the old one.
#![allow(unsafe_code, reason = "mapping a file is unsafe: another process may change it meanwhile")]

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use fuseline::error::{Error, Result};
use memmap2::Mmap;
#[cfg(unix)]
use memmap2::UncheckedAdvice;

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
    let mapping = Arc::new(unsafe { Mmap::map(&file) }.map_err(cannot)?);
    let mut mappings = MAPPINGS.lock().unwrap_or_else(PoisonError::into_inner);
    mappings.retain(|other| other.strong_count() > 0);
    mappings.push(Arc::downgrade(&mapping));
    Ok(Bytes::from_owner(Mapping(mapping)))
}

/// Every file that is mapped, for [`release`]: a slice does not tell where it comes from.
static MAPPINGS: Mutex<Vec<Weak<Mmap>>> = Mutex::new(Vec::new());

/// What a slice of a mapped file keeps alive.
struct Mapping(Arc<Mmap>);

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Tells the system that bytes will hardly be read again: if they are a slice of a mapped file, their memory is free for
/// others. Who reads them nevertheless finds them as they were.
pub fn release(bytes: &Bytes) {
    let mappings = MAPPINGS.lock().unwrap_or_else(PoisonError::into_inner);
    let start = bytes.as_ptr().addr();
    for mapping in mappings.iter().filter_map(Weak::upgrade) {
        let first = mapping.as_ptr().addr();
        if bytes.is_empty() || start < first || start + bytes.len() > first + mapping.len() {
            continue;
        }
        #[cfg(unix)]
        // SAFETY: the pages of a read-only mapping of a file are the file's: dropping them changes nothing that can be
        // read, since the next reader gets them from the file again. Advice that is refused changes nothing either.
        let _ = unsafe { mapping.unchecked_advise_range(UncheckedAdvice::DontNeed, start - first, bytes.len()) };
    }
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
    fn what_was_released_can_be_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        let content: Vec<u8> = (0..100_000u32).map(|k| (k % 251) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let bytes = map_file(&path).unwrap();
        for slice in [bytes.clone(), bytes.slice(5000..70_000), bytes.slice(99_999..), bytes.slice(3..3)] {
            release(&slice);
            assert_eq!(bytes, content);
        }
        let elsewhere = Bytes::from(content.clone());
        release(&elsewhere);
        assert_eq!(elsewhere, content);
    }

    #[test]
    fn only_regular_files_are_mapped() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(map_file(folder.path()).unwrap_err().message(), "not a regular file");
        let missing = map_file(&folder.path().join("missing")).unwrap_err();
        assert!(missing.message().starts_with("cannot open the file: "), "{missing}");
    }
}
