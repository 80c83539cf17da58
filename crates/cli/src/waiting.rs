//! A sign of life on a terminal while something takes long.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fuseline_session::plan::name::cut_back;

use crate::screen;

/// Whether a line is being written.
static WRITES: AtomicBool = AtomicBool::new(false);

/// While it lives, and after the first second, a line on standard error says what runs and for how long; it is erased at
/// the end. Nothing is written where standard error is no terminal.
#[derive(Debug)]
pub struct Waiting {
    what: Arc<Mutex<String>>,
    end: Option<Sender<()>>,
    writer: Option<JoinHandle<()>>,
}

impl Waiting {
    /// Starts to wait for `what`.
    pub fn for_(what: &str) -> Waiting {
        Waiting::unless(false, what)
    }

    /// Starts to wait for `what`, without a word where that is wanted.
    pub fn unless(quiet: bool, what: &str) -> Waiting {
        let what = Arc::new(Mutex::new(what.to_string()));
        // Two lines would write over each other: the outer one stays.
        if quiet || !std::io::stderr().is_terminal() || WRITES.swap(true, Ordering::Relaxed) {
            return Waiting { what, end: None, writer: None };
        }
        let (end, ended) = channel();
        let said = what.clone();
        let writer = std::thread::spawn(move || write_until(&ended, &said));
        Waiting { what, end: Some(end), writer: Some(writer) }
    }

    /// Waits for something else from now on.
    pub fn say(&self, what: String) {
        *self.what.lock().unwrap_or_else(PoisonError::into_inner) = what;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has said so; there is nothing to clean up.
            let _ = writer.join();
            WRITES.store(false, Ordering::Relaxed);
        }
    }
}

fn write_until(ended: &Receiver<()>, what: &Mutex<String>) {
    let start = Instant::now();
    let mut written = 0;
    while ended.recv_timeout(Duration::from_millis(500)) == Err(RecvTimeoutError::Timeout) {
        let seconds = start.elapsed().as_secs();
        if seconds > 0 {
            let time = format!(" … {seconds} s");
            let room = screen::width_of(std::io::stderr()).saturating_sub(time.chars().count() + 1);
            let line = format!("{}{time}", cut_back(&what.lock().unwrap_or_else(PoisonError::into_inner), room));
            let length = line.chars().count();
            let mut stderr = std::io::stderr();
            // What was longer before is overwritten.
            let _ = write!(stderr, "\r{line:<written$}").and_then(|()| stderr.flush());
            written = length;
        }
    }
    if written > 0 {
        let _ = write!(std::io::stderr(), "\r{}\r", " ".repeat(written));
    }
}
