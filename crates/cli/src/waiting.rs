//! A sign of life on a terminal while something takes long.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fuseline_session::plan::name::cut_back;

use crate::{screen, signals};

/// Whether a line is being written.
static WRITES: AtomicBool = AtomicBool::new(false);
/// Whether the line is on the screen.
static STANDS: AtomicBool = AtomicBool::new(false);

/// The command ends while it waits: what comes next on the screen does not stand on its line.
#[cfg_attr(not(unix), expect(dead_code, reason = "there are no signals"))]
pub fn leave() {
    if STANDS.load(Ordering::Relaxed) {
        let _ = writeln!(std::io::stderr());
    }
}

/// While it lives, and after the first second, a line on standard error says what runs, for how long, and, where the number of steps is known,
/// how much of it is done; it is erased at the end. Nothing is written where standard error is no terminal.
#[derive(Debug)]
pub struct Waiting {
    what: Arc<Mutex<What>>,
    end: Option<Sender<()>>,
    writer: Option<JoinHandle<()>>,
}

/// What is waited for.
#[derive(Debug)]
struct What {
    name: String,
    /// steps that are done, of how many
    steps: Option<(usize, usize)>,
}

impl Waiting {
    /// Starts to wait for `what`; without a word where that is wanted.
    pub fn for_(what: &str) -> Waiting {
        let what = Arc::new(Mutex::new(What { name: what.to_string(), steps: None }));
        // Two lines would write over each other: the outer one stays.
        if screen::is_quiet() || !std::io::stderr().is_terminal() || WRITES.swap(true, Ordering::Relaxed) {
            return Waiting { what, end: None, writer: None };
        }
        signals::watch();
        let (end, ended) = channel();
        let said = what.clone();
        let writer = std::thread::spawn(move || write_until(&ended, &said));
        Waiting { what, end: Some(end), writer: Some(writer) }
    }

    /// Waits for something else from now on.
    pub fn say(&self, what: String) {
        *self.what.lock().unwrap_or_else(PoisonError::into_inner) = What { name: what, steps: None };
    }

    /// So many steps of what is waited for are done, of so many, or of that many at most.
    pub fn done(&self, steps: usize, of: usize) {
        self.what.lock().unwrap_or_else(PoisonError::into_inner).steps = Some((steps, of));
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

/// Cells of a bar, where there is room for one.
const CELLS: usize = 20;

/// The line, no wider than the terminal.
fn line(what: &What, seconds: u64, width: usize) -> String {
    let time = format!(" … {seconds} s");
    let share = what.steps.filter(|(_, all)| *all > 0).map_or(String::new(), |(done, all)| {
        let done = done.min(all);
        let cells = if width < 60 { CELLS / 2 } else { CELLS };
        let full = cells * done / all;
        format!(" [{}{}] {} %", "#".repeat(full), "-".repeat(cells - full), 100 * done / all)
    });
    let room = width.saturating_sub(share.chars().count() + time.chars().count() + 1);
    format!("{}{share}{time}", cut_back(&what.name, room))
}

fn write_until(ended: &Receiver<()>, what: &Mutex<What>) {
    let start = Instant::now();
    let mut written = 0;
    while ended.recv_timeout(Duration::from_millis(500)) == Err(RecvTimeoutError::Timeout) {
        let seconds = start.elapsed().as_secs();
        if seconds > 0 {
            let width = screen::width_of(std::io::stderr());
            let line = line(&what.lock().unwrap_or_else(PoisonError::into_inner), seconds, width);
            let length = line.chars().count();
            let mut stderr = std::io::stderr();
            // What was longer before is overwritten.
            let _ = write!(stderr, "\r{line:<written$}").and_then(|()| stderr.flush());
            written = length;
            STANDS.store(true, Ordering::Relaxed);
        }
    }
    if written > 0 {
        let _ = write!(std::io::stderr(), "\r{}\r", " ".repeat(written));
        STANDS.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_shows_what_is_done_where_the_steps_are_known() {
        let mut what = What { name: "measuring net.onnx".into(), steps: None };
        assert_eq!(line(&what, 3, 80), "measuring net.onnx … 3 s");
        what.steps = Some((21, 50));
        assert_eq!(line(&what, 12, 80), "measuring net.onnx [########------------] 42 % … 12 s");
        what.steps = Some((3, 2));
        assert!(line(&what, 9, 80).contains("[####################] 100 %"), "never more than all");
        what.steps = Some((0, 0));
        assert_eq!(line(&what, 3, 80), "measuring net.onnx … 3 s", "of nothing there is no part");
        what.steps = Some((1, 2));
        for width in [20, 40, 60] {
            let line = line(&what, 100, width);
            assert!(line.chars().count() < width.max(28), "{width}: {line}");
        }
    }
}
