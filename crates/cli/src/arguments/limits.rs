//! What commands allow to models that nobody trusts.

use std::time::Duration;

use clap::Args;
use fuseline::budget::Budget;
use fuseline::reference;
use fuseline_frontend::onnx::import;
use fuseline_session::patience;

use super::parse_size;

/// What a model may ask of the compiler, and of a run.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Limits for untrusted models")]
pub struct ModelLimits {
    /// Most seconds for importing the model, and again for compiling it
    #[arg(long, value_name = "SECONDS", default_value_t = ModelLimits::default().max_compile_time)]
    pub max_compile_time: u64,
    /// Most nodes of the model once its functions are expanded, and most primitives that they become
    #[arg(long, value_name = "N", default_value_t = ModelLimits::default().max_nodes)]
    pub max_nodes: usize,
    /// Deepest nesting of functions and regions, 256 at most
    #[arg(long, value_name = "N", default_value_t = ModelLimits::default().max_nesting,
        value_parser = clap::value_parser!(u64).range(..=256))]
    pub max_nesting: u64,
    /// Most bytes of any string, of the model or made by it
    #[arg(long, value_name = "BYTES", default_value = "1Mi", value_parser = parse_size)]
    pub max_text: i64,
    /// Most memory for the values of a run
    #[arg(long, value_name = "BYTES", default_value = "8Gi", value_parser = parse_size)]
    pub max_memory: i64,
    /// Most trips of all loops together
    #[arg(long, value_name = "N", default_value_t = ModelLimits::default().max_trips)]
    pub max_trips: u64,
}

impl Default for ModelLimits {
    fn default() -> ModelLimits {
        let (import, run) = (import::Limits::default(), reference::Limits::default());
        ModelLimits {
            max_compile_time: patience::USUAL.as_secs(),
            max_nodes: import.nodes,
            max_nesting: import.nesting as u64,
            max_text: import.text as i64,
            max_memory: run.bytes as i64,
            max_trips: run.trips,
        }
    }
}

impl ModelLimits {
    /// How long each of import and compilation may take.
    pub fn budget(&self) -> Budget {
        patience::budget(Duration::from_secs(self.max_compile_time))
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
        reference::Limits {
            trips: self.max_trips,
            bytes: self.max_memory.unsigned_abs(),
            text: self.max_text.unsigned_abs(),
        }
    }

    /// A run within these limits, floats read exactly.
    pub fn exact_run(&self) -> reference::Options {
        reference::Options { limits: self.run(), ..reference::Options::default() }
    }
}
