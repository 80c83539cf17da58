//! Where the time of a run goes.

use std::time::{Duration, Instant};

/// A stretch of a run: one phase of a kernel, or a kernel that is not run by programs as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// the kernel's number in the plan
    pub kernel: usize,
    /// what the phase is called; none for a kernel that is not run by programs
    pub phase: Option<&'static str>,
    /// how many independent pieces of work it had
    pub tasks: u64,
    /// when it began, after the run did
    pub begin: Duration,
    /// how long it took
    pub took: Duration,
}

/// Takes down the spans of a run, or does not.
///
/// Regions belong to the kernel that they are in: only spans of the outermost graph are kept.
#[derive(Debug)]
pub(super) struct Recorder {
    spans: Option<Vec<Span>>,
    started: Instant,
    depth: usize,
}

impl Recorder {
    /// One that keeps nothing.
    pub fn off() -> Recorder {
        Recorder { spans: None, started: Instant::now(), depth: 0 }
    }

    /// One that keeps everything.
    pub fn on() -> Recorder {
        Recorder { spans: Some(Vec::new()), ..Recorder::off() }
    }

    /// Enters a graph, the outermost one or a region.
    pub fn enter(&mut self) {
        self.depth += 1;
    }

    /// Leaves a graph.
    pub fn leave(&mut self) {
        self.depth -= 1;
    }

    /// The time now, where somebody wants to know.
    pub fn now(&self) -> Option<Instant> {
        (self.spans.is_some() && self.depth == 1).then(Instant::now)
    }

    /// Notes what began at `since` and ends now.
    pub fn note(&mut self, since: Option<Instant>, kernel: usize, phase: Option<&'static str>, tasks: u64) {
        if let (Some(spans), Some(since)) = (&mut self.spans, since) {
            let begin = since.duration_since(self.started);
            spans.push(Span { kernel, phase, tasks, begin, took: since.elapsed() });
        }
    }

    /// What was kept.
    pub fn into_spans(self) -> Vec<Span> {
        self.spans.unwrap_or_default()
    }
}
