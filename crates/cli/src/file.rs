//! Files that are written whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Cursor, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use fuseline::error::Error;
use fuseline_frontend::npz::{Array, Compression, write_npz_to};

use crate::failure::{Failure, Outcome};

/// Writes a file: beside its place first, then put there, so that nobody ever finds half of it. What was there stays where this fails.
///
/// Links are followed; what is no file, such as a pipe, is written to as it is.
pub fn write(path: &Path, contents: &[u8]) -> Outcome {
    write_by(path, &mut |output| output.write_all(contents))
}

/// Writes named arrays as a .npz file, in the same way.
pub fn write_arrays<'a, A: Into<Array<'a>>>(
    path: &Path,
    arrays: impl Iterator<Item = (&'a str, A)> + Clone,
) -> Outcome {
    write_by(path, &mut |output| {
        // Archives are written back and forth: what cannot do that is given all at once.
        if output.stream_position().is_err() {
            let whole = write_npz_to(Cursor::new(Vec::new()), arrays.clone(), Compression::Stored);
            return output.write_all(&whole.map_err(io::Error::other)?.into_inner());
        }
        let mut steady = Steady { output: BufWriter::new(output), failed: None };
        let done = write_npz_to(&mut steady, arrays.clone(), Compression::Stored).map(drop);
        steady.flush()?;
        match steady.failed {
            Some(failed) => Err(failed),
            None => done.map_err(io::Error::other),
        }
    })
}

/// Goes on after a write has failed, as if it had not, and remembers why: an archive that cannot be written to the end is
/// dropped in peace.
struct Steady<'a> {
    output: BufWriter<&'a mut File>,
    failed: Option<io::Error>,
}

impl Steady<'_> {
    fn unless_failed<T>(
        &mut self,
        otherwise: T,
        act: impl FnOnce(&mut BufWriter<&mut File>) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.failed.is_some() {
            return Ok(otherwise);
        }
        act(&mut self.output).or_else(|error| {
            self.failed = Some(error);
            Ok(otherwise)
        })
    }
}

impl Write for Steady<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.unless_failed(bytes.len(), |output| output.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.unless_failed((), |output| output.flush())
    }
}

impl Seek for Steady<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.unless_failed(0, |output| output.seek(to))
    }
}

/// Writes a file by a function that is given it open and empty.
fn write_by(path: &Path, fill: &mut dyn FnMut(&mut File) -> io::Result<()>) -> Outcome {
    let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let is_stream = fs::metadata(&place).is_ok_and(|found| !found.is_file() && !found.is_dir());
    let done = match is_stream {
        true => File::options().write(true).open(&place).and_then(|mut stream| fill(&mut stream)),
        false => replace(&place, fill),
    };
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

fn replace(path: &Path, fill: &mut dyn FnMut(&mut File) -> io::Result<()>) -> io::Result<()> {
    let beside = beside(path).ok_or(ErrorKind::IsADirectory)?;
    let written = File::create(&beside).and_then(|mut file| {
        fill(&mut file)?;
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
    use fuseline::tensor::Literal;

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
        let array = Literal::f32s(&[1.0, 2.0]);
        let npz = folder.path().join("y.npz");
        write_arrays(&npz, [("y", &array)].into_iter()).unwrap();
        assert_eq!(&fs::read(&npz).unwrap()[..2], b"PK");
        #[cfg(target_os = "linux")]
        {
            let full = write_arrays(Path::new("/dev/full"), [("y", &array)].into_iter()).unwrap_err();
            assert!(format!("{full:?}").contains("No space left"), "{full:?}");
        }
        fs::remove_file(&npz).unwrap();
        #[cfg(unix)]
        {
            let link = folder.path().join("link.html");
            std::os::unix::fs::symlink(&path, &link).unwrap();
            write(&link, b"three").unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"three", "a link is followed");
        }
    }
}
