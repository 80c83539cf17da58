//! Programs that search for inputs which break Fuseline; what they call lives in `tests/src/fuzz`.
//!
//! A program ends with its first finding, as libFuzzer has it. Where the environment names a folder `FINDINGS`, panics do not end it: the
//! smallest input of every kind is kept in that folder, beside what was said, and the search goes on. One bug that is easy to find
//! would otherwise hide all others.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Runs a target by name.
pub fn run(name: &str, data: &[u8]) {
    let target = fuseline_tests::fuzz::find(name).expect("programs are called as targets are");
    let Some(folder) = findings() else { return (target.run)(data) };
    if catch_unwind(AssertUnwindSafe(|| (target.run)(data))).is_err() {
        let said = std::mem::take(&mut *SAID.lock().unwrap_or_else(PoisonError::into_inner));
        let path = folder.join(format!("{name}-{:016x}", kind(&said)));
        let is_smallest = path.metadata().map_or(true, |file| file.len() > data.len() as u64);
        if is_smallest {
            std::fs::write(path.with_extension("txt"), said).expect("the folder of findings can be written");
            std::fs::write(path, data).expect("the folder of findings can be written");
        }
    }
}

/// Where the last panic was, and what it said.
static SAID: Mutex<String> = Mutex::new(String::new());

/// The folder of findings, where there is one; panics are then remembered instead of ending the program.
fn findings() -> Option<&'static PathBuf> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = || {
        let folder = PathBuf::from(std::env::var_os("FINDINGS")?);
        std::fs::create_dir_all(&folder).expect("the folder of findings can be made");
        // libFuzzer's own hook aborts.
        std::panic::set_hook(Box::new(|info: &PanicHookInfo<'_>| {
            *SAID.lock().unwrap_or_else(PoisonError::into_inner) = info.to_string();
        }));
        Some(folder)
    };
    FOLDER.get_or_init(folder).as_ref()
}

/// What is said, but for its numbers, names and length, tells kinds of findings apart.
fn kind(said: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    let line = said.lines().take(2).flat_map(str::chars).filter(|c| c.is_ascii_alphabetic()).take(100);
    line.collect::<String>().hash(&mut hasher);
    hasher.finish()
}
