//! What an untrusted model may ask of its import.

use fuseline::budget::Budget;
use fuseline::error::{Allowance, Error, Result};

/// What an untrusted model may ask of its import. An error of the kind [`Kind::Limit`](fuseline::error::Kind::Limit) names what is
/// exceeded.
#[derive(Clone, Debug)]
pub struct Limits {
    /// nodes once functions and sequences are expanded (functions that call each other twice grow without bound), and primitives
    /// that one graph of the model becomes
    pub nodes: usize,
    /// how deep functions may call each other, and regions lie inside each other; every level takes memory of the stack
    pub nesting: usize,
    /// bytes of any string of the model
    pub text: usize,
    /// how long an import may take
    pub budget: Budget,
}

impl Limits {
    /// Refuses a name that is longer than any string may be.
    pub(super) fn check_name(&self, name: &str) -> Result<()> {
        self.check_text(name.len()).map_err(|error| {
            let start: String = name.chars().take(32).collect();
            error.at(format!("the name \"{}…\"", start.escape_debug()))
        })
    }

    /// Refuses a string of so many bytes where that is more than any may have.
    pub(super) fn check_text(&self, bytes: usize) -> Result<()> {
        let most = self.text;
        if bytes > most {
            return Err(Error::over(Allowance::Text, format!("a string of {bytes} bytes (the limit is {most} bytes)")));
        }
        Ok(())
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { nodes: 400_000, nesting: 64, text: 1 << 20, budget: Budget::UNLIMITED }
    }
}
