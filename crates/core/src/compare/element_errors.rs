//! How far each element of the outputs of a graph may be off, and what roundings may make of it.

use std::sync::{Arc, OnceLock};

use rustc_hash::FxHashMap;

use super::meaning::sizes;
use super::spread::{Jumps, Spreads};
use super::{SAFETY, length_of};
use crate::error::Result;
use crate::graph::Graph;
use crate::reference::{Limits, Options, Reading, evaluate_under};
use crate::tensor::{Env, Literal};

/// How far each element of each output may be off, computed when somebody asks.
#[derive(Debug)]
pub(super) struct ElementErrors {
    pub graph: Graph,
    inputs: FxHashMap<Arc<str>, Literal>,
    bound: Env,
    limits: Limits,
    known: OnceLock<Vec<Option<Vec<f64>>>>,
    beside_jumps: OnceLock<BesideJumps>,
    /// the outputs where every result is rounded at random, by what else is left to chance
    drawn: [Vec<OnceLock<Option<Vec<Literal>>>>; 4],
}

/// So many times roundings are drawn at the most: of a hundred elements beside a pole each has to fall on either side of it once, and of a hundred that
/// are equal but for roundings each has to be the largest.
const DRAWS: usize = 512;

/// The same of a graph whose nodes have many elements.
const FEW_DRAWS: usize = 12;

/// About so many elements are drawn in all.
const DRAWN_ELEMENTS: f64 = 8e6;

/// What jumps may make of outputs, by the error that each number has which enters one.
#[derive(Debug)]
pub(super) struct BesideJumps {
    /// how far each element of each output may be off, with what elements before it are that stand beside a jump
    pub errors: Vec<Option<Vec<f64>>>,
    /// the outputs when what enters the last jump is moved up, and down
    pub moved: Vec<Vec<Literal>>,
}

impl ElementErrors {
    /// Of a graph with these inputs, where some sizes are bound already.
    pub fn new(graph: &Graph, inputs: &FxHashMap<Arc<str>, Literal>, bound: &Env, limits: Limits) -> ElementErrors {
        ElementErrors {
            graph: graph.clone(),
            inputs: inputs.clone(),
            bound: bound.clone(),
            limits,
            known: OnceLock::new(),
            beside_jumps: OnceLock::new(),
            drawn: std::array::from_fn(|_| vec![OnceLock::new(); DRAWS]),
        }
    }

    /// Of an output; none where it cannot be computed, or there is no error.
    pub fn of(&self, output: usize) -> Option<&[f64]> {
        let count = self.graph.outputs().len();
        let known = self.known.get_or_init(|| self.compute(Jumps::End).unwrap_or_else(|_| vec![None; count]));
        known[output].as_deref()
    }

    /// What jumps may make of the outputs.
    pub fn jumps(&self) -> &BesideJumps {
        self.beside_jumps.get_or_init(|| {
            let count = self.graph.outputs().len();
            let errors = self.compute(Jumps::HandOn).unwrap_or_else(|_| vec![None; count]);
            let env = sizes(&self.graph, &self.inputs, &self.bound);
            let moved = [SAFETY, -SAFETY].into_iter().filter_map(|by| {
                let graph = Spreads::moved(&self.graph, &env, by).ok()??;
                self.read(&graph, Reading::Exact).ok()
            });
            BesideJumps { errors, moved: moved.collect() }
        })
    }

    /// How many draws a graph is worth.
    pub fn draws(&self) -> usize {
        let env = sizes(&self.graph, &self.inputs, &self.bound);
        let types = self.graph.nodes().iter().flat_map(|node| node.types());
        let elements: f64 = types.map(|ty| length_of(&mut ty.shape.dims().iter(), &env)).sum();
        ((DRAWN_ELEMENTS / elements.max(1.0)) as usize).clamp(FEW_DRAWS, DRAWS)
    }

    /// The outputs where every result is rounded at random; none where they cannot be computed.
    pub fn drawn(&self, draw: usize, signs: bool, ranges: bool) -> Option<&[Literal]> {
        let reading = Reading::Drawn { seed: draw as u32, signs, ranges };
        let known = &self.drawn[usize::from(signs) + 2 * usize::from(ranges)][draw];
        known.get_or_init(|| self.read(&self.graph, reading).ok()).as_deref()
    }

    /// What a graph of these inputs gives.
    pub fn read(&self, graph: &Graph, reading: Reading) -> Result<Vec<Literal>> {
        evaluate_under(graph, &self.inputs, &self.bound, &Options { reading, limits: self.limits })
    }

    fn compute(&self, jumps: Jumps) -> Result<Vec<Option<Vec<f64>>>> {
        let env = sizes(&self.graph, &self.inputs, &self.bound);
        let (graph, erring) = Spreads::graph_of(&self.graph, &env, jumps)?;
        let squares = self.read(&graph, Reading::Exact)?;
        let mut errors = vec![None; self.graph.outputs().len()];
        for (output, squares) in erring.into_iter().zip(squares) {
            errors[output] = Some(squares.to_f64s().into_iter().map(f64::sqrt).collect());
        }
        Ok(errors)
    }
}
