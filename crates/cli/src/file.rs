//! Files that are written whole or not at all.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use fuseline::error::Error;

use crate::failure::{Failure, Outcome};

/// Writes a file: beside its place first, then put there, so that nobody ever finds half of it. What was there stays where this fails.
///
/// Links are followed; what is no file, such as a pipe, is written to as it is.
pub fn write(path: &Path, contents: &[u8]) -> Outcome {
    let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let is_stream = fs::metadata(&place).is_ok_and(|found| !found.is_file() && !found.is_dir());
    let done = if is_stream { fs::write(&place, contents) } else { replace(&place, contents) };
    done.map_err(|error| {
        let help = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free some space, or write to another disk",
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => "choose a folder that you may write to",
            ErrorKind::NotFound => "make the folder first",
            ErrorKind::IsADirectory | ErrorKind::InvalidFilename => "give the name of a file",
            _ => "choose another place",
        };
        let why = Error::invalid(format!("cannot be written: {error}")).at(path.display().to_string());
        Failure::with_help(why, help)
    })
}

fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let beside = beside(path).ok_or(ErrorKind::IsADirectory)?;
    let written = File::create(&beside).and_then(|mut file| {
        file.write_all(contents)?;
        file.sync_all()
    });
    let done = written.and_then(|()| fs::rename(&beside, path));
    if done.is_err() {
        // What is half written is of no use; that it cannot be removed does not change what went wrong.
        let _ = fs::remove_file(&beside);
    }
    done
}

/// A name beside the file that no other process has.
fn beside(path: &Path) -> Option<PathBuf> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name()?);
    name.push(format!(".{}.part", std::process::id()));
    Some(path.with_file_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_written_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.html");
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
        assert!(write(&folder.path().join("missing/a.html"), b"x").is_err());
        assert!(write(folder.path(), b"x").is_err(), "a folder is no file");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(write(Path::new("/"), b"x").is_err());
        #[cfg(unix)]
        {
            let link = folder.path().join("link.html");
            std::os::unix::fs::symlink(&path, &link).unwrap();
            write(&link, b"three").unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"three", "a link is followed");
        }
    }
}
