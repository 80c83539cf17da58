//! Where the time of a run goes, and what its kernels store.

use std::time::{Duration, Instant};

use fuseline::tensor::Literal;

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

/// Takes down the spans of a run, or what its kernels store, or neither.
///
/// Regions belong to the kernel that they are in: only what concerns the outermost graph is kept.
#[derive(Debug)]
pub(super) struct Recorder {
    spans: Option<Vec<Span>>,
    stored: Option<Vec<Vec<Literal>>>,
    started: Instant,
    depth: usize,
}

impl Recorder {
    /// One that keeps nothing.
    pub fn off() -> Recorder {
        Recorder { spans: None, stored: None, started: Instant::now(), depth: 0 }
    }

    /// One that keeps spans.
    pub fn of_spans() -> Recorder {
        Recorder { spans: Some(Vec::new()), ..Recorder::off() }
    }

    /// One that keeps what kernels store.
    pub fn of_values() -> Recorder {
        Recorder { stored: Some(Vec::new()), ..Recorder::off() }
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

    /// Whether somebody wants to know what the kernels of this graph store.
    pub fn wants_values(&self) -> bool {
        self.stored.is_some() && self.depth == 1
    }

    /// Notes what the next kernel has stored.
    pub fn note_values(&mut self, values: Vec<Literal>) {
        if let Some(stored) = &mut self.stored {
            stored.push(values);
        }
    }

    /// What kernels stored, in order.
    pub fn into_values(self) -> Vec<Vec<Literal>> {
        self.stored.unwrap_or_default()
    }

    /// What was kept.
    pub fn into_spans(self) -> Vec<Span> {
        self.spans.unwrap_or_default()
    }
}
