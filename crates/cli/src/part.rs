//! A file that is not whole yet: it goes with the command, whatever ends it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::signals;

/// The parts that there are.
static PARTS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn parts() -> MutexGuard<'static, Vec<PathBuf>> {
    PARTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes all parts; while what is returned lives, there will be no other.
pub fn remove_all() -> impl Sized {
    let parts = parts();
    parts.iter().for_each(|path| drop(fs::remove_file(path)));
    parts
}

/// A file beside its place. It is removed where it is dropped, and where a signal ends the command.
#[derive(Debug)]
pub struct Part {
    path: PathBuf,
    /// the file, where it gets its name only when it is whole: then no signal leaves anything
    nameless: Option<File>,
}

impl Part {
    /// An empty file beside a place, with a name that no other process has.
    pub fn beside(place: &Path) -> io::Result<(Part, File)> {
        signals::watch();
        let own = place.file_name().ok_or(ErrorKind::IsADirectory)?;
        remove_left(place, own);
        let mut name = OsString::from(".");
        name.push(own);
        name.push(format!(".{}.part", std::process::id()));
        let path = place.with_file_name(name);
        if let Some(file) = nameless(folder_of(place)) {
            let part = Part { path, nameless: Some(file.try_clone()?) };
            return Ok((part, file));
        }
        let part = Part { path, nameless: None };
        let mut parts = parts();
        let file = File::create(&part.path)?;
        parts.push(part.path.clone());
        drop(parts);
        Ok((part, file))
    }

    /// Puts it in its place, whole.
    pub fn put(self, place: &Path) -> io::Result<()> {
        // Nobody removes it meanwhile; `self` is dropped after the lock.
        let mut parts = parts();
        let named = match &self.nameless {
            Some(file) => {
                parts.push(self.path.clone());
                give_name(file, &self.path)
            }
            None => Ok(()),
        };
        let done = named.and_then(|()| fs::rename(&self.path, place));
        drop(parts);
        done
    }
}

fn folder_of(place: &Path) -> &Path {
    place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file in a folder that has no name yet, where the system has such.
#[cfg(target_os = "linux")]
fn nameless(folder: &Path) -> Option<File> {
    use rustix::fs::{Mode, OFlags, open};

    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP | Mode::ROTH | Mode::WOTH;
    // It gets its name by way of the files of this process.
    Path::new("/proc/self/fd").exists().then(|| open(folder, flags, mode).ok().map(File::from)).flatten()
}

#[cfg(not(target_os = "linux"))]
fn nameless(_folder: &Path) -> Option<File> {
    None
}

/// Gives a file without a name one that nobody has.
#[cfg(target_os = "linux")]
fn give_name(file: &File, path: &Path) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;

    use rustix::fs::{AtFlags, CWD, linkat};

    let open = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(CWD, open, CWD, path, AtFlags::SYMLINK_FOLLOW).map_err(io::Error::from)
}

#[cfg(not(target_os = "linux"))]
fn give_name(_file: &File, _path: &Path) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

/// Removes the parts of this file that commands have left which were killed: nothing can be done against that signal where files have names at once, but
/// there is no such process any more. Where the system does not tell of processes, parts stay.
fn remove_left(place: &Path, own: &OsStr) {
    let processes = Path::new("/proc");
    if !processes.join("self").exists() {
        return;
    }
    let start = [b".", own.as_encoded_bytes(), b"."].concat();
    let process = |name: &OsStr| -> Option<u32> {
        let rest = name.as_encoded_bytes().strip_prefix(&start[..])?.strip_suffix(b".part")?;
        std::str::from_utf8(rest).ok()?.parse().ok()
    };
    for file in fs::read_dir(folder_of(place)).into_iter().flatten().flatten() {
        if process(&file.file_name()).is_some_and(|id| !processes.join(id.to_string()).exists()) {
            let _ = fs::remove_file(file.path());
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut parts = parts();
        parts.retain(|path| *path != self.path);
        // It may be in its place by now. That it cannot be removed does not change what went wrong.
        let _ = fs::remove_file(&self.path);
    }
}
