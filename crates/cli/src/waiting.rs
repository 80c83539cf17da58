//! A sign of life on a terminal while something takes long.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// While it lives, and after the first second, a line on standard error says what runs and for how long; it is erased at
/// the end. Nothing is written where standard error is no terminal.
#[derive(Debug)]
pub struct Waiting {
    end: Option<Sender<()>>,
    writer: Option<JoinHandle<()>>,
}

impl Waiting {
    /// Starts to wait for `what`.
    pub fn for_(what: &str) -> Waiting {
        if !std::io::stderr().is_terminal() {
            return Waiting { end: None, writer: None };
        }
        let (end, ended) = channel();
        let what = what.to_string();
        let writer = std::thread::spawn(move || write_until(&ended, &what));
        Waiting { end: Some(end), writer: Some(writer) }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has said so; there is nothing to clean up.
            let _ = writer.join();
        }
    }
}

fn write_until(ended: &Receiver<()>, what: &str) {
    let start = Instant::now();
    let mut written = false;
    while ended.recv_timeout(Duration::from_millis(500)) == Err(RecvTimeoutError::Timeout) {
        let seconds = start.elapsed().as_secs();
        if seconds > 0 {
            let mut stderr = std::io::stderr();
            let _ = write!(stderr, "\r{what} … {seconds} s").and_then(|()| stderr.flush());
            written = true;
        }
    }
    if written {
        let _ = write!(std::io::stderr(), "\r{}\r", " ".repeat(what.chars().count() + 16));
    }
}
