//! What the graphs and runs of a session share.

use std::sync::{Arc, Mutex, PoisonError};

use fuseline::budget::Budget;
use fuseline::error::{Allowance, Error, Result};
use fuseline::reference::Limits;
use fuseline::tensor::Literal;

use super::block::Blocks;
use super::constant::{ConstantId, Constants};
use super::execute::Run;
use super::load::LoadedGraph;
use super::pack::Packs;
use super::pool::{Pool, Team};
use super::workshop::Workshop;

/// What the graphs and runs of a session share.
#[derive(Debug)]
pub(super) struct Engine {
    pub pool: Arc<Pool>,
    pub limits: Limits,
    /// how long making kernels for some sizes may take
    pub budget: Budget,
    pub workshop: Workshop,
    /// memory of runs
    pub blocks: Arc<Blocks>,
    /// memory that outlives them: what is packed
    pub kept: Arc<Blocks>,
    pub constants: Constants,
    pub packs: Packs,
    /// whether constants are packed once; what runs only once gains nothing
    pub keeps_constants: bool,
    /// what computes the prepared constants
    pub prepare: Option<Box<(Engine, LoadedGraph)>>,
    /// kernels for which there is no code, with the reason
    pub refused: Mutex<Vec<String>>,
}

impl Engine {
    /// Bytes that outlive runs: what is packed, and what was prepared.
    pub fn held_bytes(&self) -> u64 {
        self.kept.used_bytes() as u64 + self.constants.prepared_bytes()
    }

    /// Refuses so many bytes of values where, with what is held besides them, that is more than `limit`.
    pub fn check_room(&self, values: u64, limit: u64) -> Result<()> {
        let wanted = values.saturating_add(self.held_bytes());
        if wanted > limit {
            return Err(Error::over(
                Allowance::Memory,
                format!("values of {wanted} bytes at one time (the limit is {limit} bytes)"),
            ));
        }
        Ok(())
    }

    /// A constant; one that was dropped is prepared again.
    pub fn literal(&self, id: ConstantId, team: &mut Team<'_>) -> Result<Literal> {
        if let Some(literal) = self.constants.literal(id) {
            return Ok(literal);
        }
        let (engine, graph) = self.prepare.as_deref().ok_or_else(|| Error::bug("a constant is not there"))?;
        self.constants.restore(|| Run::new(engine, team).execute(graph, Vec::new()))?;
        self.constants.literal(id).ok_or_else(|| Error::bug("a prepared constant is not there"))
    }

    /// Notes that there is no code for a kernel.
    pub fn note_refused(&self, kernel: String, reason: &str) {
        let line = format!("{kernel}: {reason}");
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if !refused.contains(&line) {
            refused.push(line);
        }
    }
}
