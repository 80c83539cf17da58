//! What the graphs and runs of a session share.

use std::sync::{Arc, Mutex, PoisonError};

use fuseline::error::{Error, Result};
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
