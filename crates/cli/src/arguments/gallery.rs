//! The command line of `fuseline gallery`.

use clap::Args;

use super::EXIT_STATUS;

/// List the graphs of the gallery
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  fuseline gallery
  fuseline gallery --json
  fuseline run gallery:swiglu --dtype f16

{EXIT_STATUS}"))]
pub struct Gallery {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
