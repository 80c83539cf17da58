//! Values between kernels in bf16 or f16.

mod facts;

use super::narrow::{behind_views, is_formula, is_narrowing, is_widened, narrowed, rounded, widened};
use super::{Context, Narrowing, Numerics, Pass};
use crate::error::Result;
use crate::graph::contents;
use crate::graph::rewrite::{Rebuild, Values, replaced, rewrite_outside_regions};
use crate::graph::{Graph, Node, Value};
use crate::lower::is_opaque;
use crate::ops::Prim;
use crate::tensor::DType;
use facts::Facts;

pub(super) const PASS: Pass = Pass {
    name: "round-storage",
    doc: "Where a network is to be stored in bf16 or f16, values that kernels may hand on to each other are rounded to it.",
    run,
};

/// Tables of no more elements are looked at before they are rounded: what would become infinite stays.
const LOOKED_AT: usize = 1 << 16;

/// In: a graph whose factors are rounded. Out: under [`Narrowing::Storage`], what carries the data of a network is rounded to the narrow type
/// and widened again where it may be stored: results of contractions (which then are of the narrow type, summed in f32), rows that are looked up in tables, and maps
/// that are read in more than one place. Constants that meet such data are rounded too. All else stays as it is:
///
/// - outputs, inputs, integers, regions, and operands of host operations and orders;
/// - what follows from integers, coordinates and constants alone: positions, masks;
/// - what becomes an integer, a truth, or an angle, up to the sum that it comes from;
/// - statistics of rows, and everything between them and the row; scores of a softmax, up to the sum that they come from.
fn run(graph: &Graph, context: &Context) -> Result<Option<Graph>> {
    let dtype = context.precision.narrow().filter(|_| context.numerics != Numerics::Strict);
    let Some(dtype) = dtype.filter(|_| context.narrowing == Narrowing::Storage) else { return Ok(None) };
    let facts = Facts::of(graph, dtype);
    let mut storage = Storage { graph, facts, dtype, stored: vec![None; graph.nodes().len()] };
    rewrite_outside_regions(graph, &context.budget, |rebuild, id| storage.node(rebuild, id))
}

/// A graph whose values are being rounded. What has taken the place of a value stays exact, for outputs; readers see it as it is stored.
struct Storage<'g> {
    graph: &'g Graph,
    facts: Facts,
    dtype: DType,
    /// the first result of a node as readers see it, rounded and widened, where that is not the result itself
    stored: Vec<Option<Value>>,
}

impl Storage<'_> {
    fn node(&mut self, rebuild: &mut Rebuild<'_>, id: usize) -> Result<Option<Values>> {
        let node = &self.graph.nodes()[id];
        // A pair of conversions is what rounds: the first one reads what is exact.
        if is_opaque(node.prim()) || is_narrowing(node, self.dtype) || node.args().is_empty() {
            return Ok(None);
        }
        let exact: Vec<Value> = node.args().iter().map(|arg| rebuild.moved(*arg)).collect();
        let mut args: Vec<Value> = node.args().iter().map(|arg| self.read(rebuild, *arg)).collect();
        match node.prim() {
            Prim::View(_) | Prim::Concat(_) => {
                if args != exact {
                    self.stored[id] = Some(rebuild.add(node.prim().clone(), &args)?);
                }
                Ok(None)
            }
            Prim::Gather(_) | Prim::Reduce(_)
                if self.facts.is_rounded(id) && is_narrow(rebuild.graph(), args[0], self.dtype) =>
            {
                args[0] = narrowed(rebuild, args[0], self.dtype)?;
                let narrow = rebuild.add(node.prim().clone(), &args)?;
                self.stored[id] = Some(widened(rebuild, narrow)?);
                Ok(None)
            }
            Prim::Contract(row) if self.facts.is_rounded(id) && !self.facts.is_output(id) => {
                let factors = [narrowed(rebuild, args[0], self.dtype)?, narrowed(rebuild, args[1], self.dtype)?];
                let narrow = rebuild.add(row.clone(), &factors)?;
                replaced(widened(rebuild, narrow)?)
            }
            prim => {
                if matches!(prim, Prim::Map(_)) && self.facts.meets_constants(id) {
                    self.round_constants(rebuild, &mut args)?;
                }
                let value =
                    if args == exact { rebuild.keep(node, &args)? } else { rebuild.add(prim.clone(), &args)? };
                if self.facts.is_rounded(id) {
                    self.stored[id] = Some(rounded(rebuild, value, self.dtype)?);
                }
                if args == exact { Ok(None) } else { replaced(value) }
            }
        }
    }

    /// An operand as it is stored.
    fn read(&self, rebuild: &Rebuild<'_>, arg: Value) -> Value {
        self.stored[arg.node()].filter(|_| arg.port() == 0).unwrap_or_else(|| rebuild.moved(arg))
    }

    /// Rounds the large tables among the operands of a map.
    fn round_constants(&self, rebuild: &mut Rebuild<'_>, args: &mut [Value]) -> Result<()> {
        for arg in args {
            if is_table(rebuild.graph(), *arg, self.dtype) {
                *arg = rounded(rebuild, *arg, self.dtype)?;
            }
        }
        Ok(())
    }
}

/// Whether a value, behind views, can be read in the narrow type.
fn is_narrow(graph: &Graph, value: Value, dtype: DType) -> bool {
    is_table(graph, value, dtype) || is_widened(behind_views(graph, value), dtype)
}

/// Whether a value is a constant of f32, behind views, that is worth rounding and can be.
fn is_table(graph: &Graph, value: Value, dtype: DType) -> bool {
    let node: &Node = behind_views(graph, value);
    let Prim::Const(row) = node.prim() else { return false };
    let table = &row.literal;
    let stays_finite = |k: usize| {
        let x = table.float(k);
        !x.is_finite() || dtype.round(x).is_finite()
    };
    node.types()[0].dtype == DType::F32
        && table.count() > contents::MOST_ELEMENTS
        && (table.count() > LOOKED_AT || (0..table.count()).all(stays_finite))
        && !is_formula(graph, value)
}

#[cfg(test)]
mod tests;
