//! Contractions whose results a number scales.

use super::peel::Action;
use super::step::{Kind, Step};
use crate::graph::{Graph, Value};
use crate::ops::{Prim, Scalar};
use crate::tensor::DType;

/// A contraction and the number that scales it.
#[derive(Clone, Copy)]
pub(super) struct Scaled {
    /// the node that contracts
    pub(super) contract: usize,
    /// its result, perhaps converted
    pub(super) product: Step,
    /// how the number acts: times it, or over it
    pub(super) action: Action,
    /// the number, the same everywhere and not 0
    pub(super) number: Step,
}

impl Scaled {
    /// What a map scales by a number, perhaps converted, if it does nothing else.
    pub(super) fn of(graph: &Graph, id: usize) -> Option<Scaled> {
        let Prim::Map(_) = graph.nodes()[id].prim() else { return None };
        let Kind::Call(op @ (Scalar::Mul | Scalar::Div), operands) = Step::of(graph, Value::new(id, 0)).kind(graph)
        else {
            return None;
        };
        let action = if op == Scalar::Mul { Action::Times } else { Action::Over };
        let with = |product: Step, number: Step| {
            let value = match product.kind(graph) {
                Kind::Value(value) => value,
                Kind::Cast(narrow) => match narrow.kind(graph) {
                    Kind::Value(value) => value,
                    _ => return None,
                },
                _ => return None,
            };
            let is_contract = matches!(graph.node_of(value).prim(), Prim::Contract(_));
            let is_number = number.float(graph).map_or_else(|| number.uniform(graph).is_some(), |x| x != 0.0);
            (is_contract && is_number).then(|| Scaled { contract: value.node(), product, action, number })
        };
        let (a, b) = (operands[0], operands[1]);
        with(a, b).or_else(|| if op == Scalar::Mul { with(b, a) } else { None })
    }

    /// The type of the contraction.
    pub(super) fn dtype(&self, graph: &Graph) -> DType {
        graph.nodes()[self.contract].types()[0].dtype
    }
}
