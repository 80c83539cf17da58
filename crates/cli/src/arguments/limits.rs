//! What commands allow to models that nobody trusts.

use std::sync::OnceLock;
use std::time::Duration;

use clap::Args;
use fuseline::budget::Budget;
use fuseline::reference;
use fuseline_frontend::onnx::import;
use fuseline_session::allowance;
use fuseline_session::patience::Time;

use super::{parse_size, whole};

/// How long a command may take that runs a model in several ways, one of them slow.
#[derive(Clone, Debug, Args)]
pub struct TimeLimit {
    /// Most seconds, by the clock, until the answer is there [default: as many as it takes]
    #[arg(long, value_name = "SECONDS", help_heading = "Limits for untrusted models", value_parser = whole::<u64>)]
    pub max_time: Option<u64>,
}

/// What a model may ask of the compiler, and of a run.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Limits for untrusted models")]
pub struct ModelLimits {
    /// Most seconds of processor time for importing the model and compiling it [default: 7, and 1 more for every 4 MiB of the model's files;
    /// 60 where it is no file]
    #[arg(long, value_name = "SECONDS", value_parser = whole::<u64>)]
    pub max_compile_time: Option<u64>,
    /// Most nodes of the model once its functions are expanded, and most primitives that they become
    #[arg(long, value_name = "N", default_value_t = ModelLimits::default().max_nodes, value_parser = whole::<usize>)]
    pub max_nodes: usize,
    /// Deepest nesting of functions and regions, 256 at most
    #[arg(long, value_name = "N", default_value_t = ModelLimits::default().max_nesting,
        value_parser = nesting)]
    pub max_nesting: u64,
    /// Most bytes of any string, of the model or made by it
    #[arg(long, value_name = "BYTES", default_value = "1Mi", value_parser = parse_size)]
    pub max_text: i64,
    /// Most memory for the values of a run [default: 512Mi, and 256 times as much as the model's files have, up to 8Gi or 8 times as much, and
    /// 256 times as much as inputs of open sizes have; 8Gi on a GPU, and where the model is no file]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub max_memory: Option<i64>,
    /// Most trips of all loops together
    #[arg(long, value_name = "N", default_value_t = ModelLimits::default().max_trips, value_parser = whole::<u64>)]
    pub max_trips: u64,
    /// the bytes of the model's files, where it has some, once it is open
    #[arg(skip)]
    brought: OnceLock<u64>,
    /// the time of import and compilation, once the model is open
    #[arg(skip)]
    time: OnceLock<Time>,
}

impl Default for ModelLimits {
    fn default() -> ModelLimits {
        let (import, run) = (import::Limits::default(), reference::Limits::default());
        ModelLimits {
            max_compile_time: None,
            max_nodes: import.nodes,
            max_nesting: import.nesting as u64,
            max_text: import.text as i64,
            max_memory: None,
            max_trips: run.trips,
            brought: OnceLock::new(),
            time: OnceLock::new(),
        }
    }
}

impl ModelLimits {
    /// Notes what the model brings: who brings more may have more.
    pub fn note_bytes(&self, bytes: u64) {
        // A command opens one model.
        let _ = self.brought.set(bytes);
    }

    /// Those that are not as usual, as options with their values.
    pub fn asked_for(&self) -> Vec<(&'static str, String)> {
        let usual = ModelLimits::default();
        let other = |is: bool, name: &'static str, value: String| is.then_some((name, value));
        let all = [
            self.max_compile_time.map(|seconds| ("--max-compile-time", seconds.to_string())),
            other(self.max_nodes != usual.max_nodes, "--max-nodes", self.max_nodes.to_string()),
            other(self.max_nesting != usual.max_nesting, "--max-nesting", self.max_nesting.to_string()),
            other(self.max_text != usual.max_text, "--max-text", self.max_text.to_string()),
            self.max_memory.map(|bytes| ("--max-memory", bytes.to_string())),
            other(self.max_trips != usual.max_trips, "--max-trips", self.max_trips.to_string()),
        ];
        all.into_iter().flatten().collect()
    }

    /// The bytes of the model's files, where it has some.
    pub fn bytes(&self) -> Option<u64> {
        self.brought.get().copied()
    }

    /// How long import and compilation may take together.
    pub fn budget(&self) -> Budget {
        self.time().together()
    }

    /// How long import and each compilation may take together, of commands that compile again and again.
    pub fn budget_of_each(&self) -> Budget {
        self.time().each()
    }

    /// To be asked for when the model is open: who brings more may have more.
    fn time(&self) -> &Time {
        let usual = || allowance::time(self.bytes());
        let most = || self.max_compile_time.map_or_else(usual, Duration::from_secs);
        self.time.get_or_init(|| Time::of(most()))
    }

    /// What the import of a model may use.
    pub fn import(&self) -> import::Limits {
        import::Limits {
            nodes: self.max_nodes,
            nesting: self.max_nesting as usize,
            text: self.max_text.unsigned_abs() as usize,
            budget: self.budget(),
        }
    }

    /// What a run may use.
    pub fn run(&self) -> reference::Limits {
        let (trips, text) = (self.max_trips, self.max_text.unsigned_abs());
        let usual = allowance::run(self.bytes());
        match self.max_memory {
            Some(bytes) => reference::Limits { trips, text, bytes: bytes.unsigned_abs(), share: 0 },
            None => reference::Limits { trips, text, ..usual },
        }
    }

    /// A run within these limits, floats read exactly.
    pub fn exact_run(&self) -> reference::Options {
        reference::Options { limits: self.run(), ..reference::Options::default() }
    }
}

/// How deep functions and regions may be nested: the stack has an end.
fn nesting(text: &str) -> Result<u64, String> {
    let most = 256;
    whole(text).ok().filter(|levels| *levels <= most).ok_or_else(|| format!("wanted: a whole number from 0 to {most}"))
}
