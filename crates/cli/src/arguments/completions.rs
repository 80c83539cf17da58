//! The command line of `fuseline completions`.

use clap::Args;
use clap_complete::Shell;

use super::EXIT_STATUS;

/// Print what lets a shell complete commands and options
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  fuseline completions bash > ~/.local/share/bash-completion/completions/fuseline
  fuseline completions zsh > ~/.zfunc/_fuseline
  fuseline completions fish > ~/.config/fish/completions/fuseline.fish

{EXIT_STATUS}"))]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
