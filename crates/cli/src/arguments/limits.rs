//! What commands allow to models that nobody trusts.

use std::time::Duration;

use clap::Args;
use fuseline::budget::Budget;
use fuseline_frontend::onnx::import;
use fuseline_session::patience;

/// What a model may ask of the compiler.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Limits for untrusted models")]
pub struct CompileLimits {
    /// Most seconds for importing the model, and again for compiling it
    #[arg(long, value_name = "SECONDS", default_value_t = CompileLimits::default().max_compile_time)]
    pub max_compile_time: u64,
    /// Most nodes of the model once its functions are expanded, and most primitives that they become
    #[arg(long, value_name = "N", default_value_t = CompileLimits::default().max_nodes)]
    pub max_nodes: usize,
    /// Deepest nesting of functions and regions, 256 at most
    #[arg(long, value_name = "N", default_value_t = CompileLimits::default().max_nesting,
        value_parser = clap::value_parser!(u64).range(..=256))]
    pub max_nesting: u64,
}

impl Default for CompileLimits {
    fn default() -> CompileLimits {
        let import = import::Limits::default();
        CompileLimits {
            max_compile_time: patience::USUAL.as_secs(),
            max_nodes: import.nodes,
            max_nesting: import.nesting as u64,
        }
    }
}

impl CompileLimits {
    /// How long each of import and compilation may take.
    pub fn budget(&self) -> Budget {
        patience::budget(Duration::from_secs(self.max_compile_time))
    }

    /// What the import of a model may use.
    pub fn import(&self) -> import::Limits {
        import::Limits { nodes: self.max_nodes, nesting: self.max_nesting as usize, budget: self.budget() }
    }
}
