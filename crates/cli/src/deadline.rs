//! When a run has taken too long: whatever the model is doing then, one kernel or one host operation that has no end included.

use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use fuseline::error::{Allowance, Error};

use crate::arguments::TimeLimit;
use crate::failure::Failure;
use crate::screen;

/// While it lives, the command ends with an error after some time.
#[derive(Debug)]
pub struct Deadline {
    _end: Sender<()>,
}

impl Deadline {
    /// Time begins, where somebody limits it.
    pub fn within(limit: &TimeLimit) -> Option<Deadline> {
        limit.max_time.map(|seconds| Deadline::after("it", Duration::from_secs(seconds)))
    }

    /// Time begins, for what takes it.
    pub fn after(what: &'static str, most: Duration) -> Deadline {
        let (end, ended) = channel();
        thread::spawn(move || {
            if ended.recv_timeout(most) == Err(RecvTimeoutError::Timeout) {
                if std::io::stderr().is_terminal() {
                    // Behind the sign of life.
                    screen::complain("\n");
                }
                // The status is that of work that failed; nobody waits for the work.
                Failure::from(Error::over(
                    Allowance::RunTime,
                    format!("{what} takes longer than {} s", most.as_secs_f64()),
                ))
                .report();
                std::process::exit(1);
            }
        });
        Deadline { _end: end }
    }
}
