//! The command line of `fuseline gallery`.

use clap::Args;

/// List the graphs of the gallery
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fuseline gallery
  fuseline gallery --json
  fuseline run gallery:swiglu --dtype f16")]
pub struct Gallery {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
