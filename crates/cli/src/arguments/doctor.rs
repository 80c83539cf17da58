//! The command line of `fuseline doctor`.

use clap::Args;

use super::EXIT_STATUS;

/// Show which devices can be used here, and what is missing for the others
#[derive(Debug, Args)]
#[command(after_help = EXIT_STATUS)]
pub struct Doctor {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
