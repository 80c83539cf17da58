//! Reading elementwise arithmetic across the borders of maps.

use smallvec::SmallVec;

use super::facts::Facts;
use crate::error::{Error, Result};
use crate::graph::rewrite::Rebuild;
use crate::graph::{Graph, Value};
use crate::ops::prim::Map;
use crate::ops::{Expr, ExprNode, Number, Prim, Scalar, Term};
use crate::tensor::{DType, Shape};

/// A number at every coordinate of a shape: a step inside of a map, or a value that no map makes. Two steps that are equal
/// are the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Step {
    value: Value,
    /// The position in the expression of the map; 0 where there is no map.
    position: u32,
}

/// What a step computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// nothing: it is a value that no map makes
    Value(Value),
    /// a constant
    Const(Number),
    /// a function of other steps at the same coordinates
    Call(Scalar, SmallVec<[Step; 3]>),
    /// another step converted
    Cast(Step),
    /// the stored bits of another step
    Bits(Step),
    /// a coordinate
    Coord(u8),
    /// a size
    Size,
}

impl Step {
    /// The step that makes a value.
    pub(super) fn of(graph: &Graph, value: Value) -> Step {
        match graph.node_of(value).prim() {
            Prim::Map(row) => Step::at(graph, value, row.expr.nodes().len() as u32 - 1),
            _ => Step { value, position: 0 },
        }
    }

    /// The step at a position of the map that makes a value.
    pub(super) fn at(graph: &Graph, value: Value, position: u32) -> Step {
        let node = graph.node_of(value);
        match node.prim() {
            Prim::Map(row) => match row.expr.nodes()[position as usize].0 {
                ExprNode::Arg(k) => Step::of(graph, node.args()[k as usize]),
                _ => Step { value, position },
            },
            _ => Step { value, position },
        }
    }

    /// What it computes.
    pub(super) fn kind(self, graph: &Graph) -> Kind {
        let Prim::Map(row) = graph.node_of(self.value).prim() else { return Kind::Value(self.value) };
        let operand = |o: &u32| Step::at(graph, self.value, *o);
        match &row.expr.nodes()[self.position as usize].0 {
            ExprNode::Const(number) => Kind::Const(*number),
            ExprNode::Apply(op, operands) => Kind::Call(*op, operands.iter().map(operand).collect()),
            ExprNode::Cast(x) => Kind::Cast(operand(x)),
            ExprNode::Bits(x) => Kind::Bits(operand(x)),
            ExprNode::Coord(axis) => Kind::Coord(*axis),
            ExprNode::Size(_) => Kind::Size,
            ExprNode::Arg(_) => unreachable!("a step is never an argument"),
        }
    }

    /// The operands, if it applies this function.
    pub(super) fn call<const N: usize>(self, graph: &Graph, op: Scalar) -> Option<[Step; N]> {
        match self.kind(graph) {
            Kind::Call(found, operands) if found == op => operands.as_slice().try_into().ok(),
            _ => None,
        }
    }

    /// The value of a float constant.
    pub(super) fn float(self, graph: &Graph) -> Option<f64> {
        match self.kind(graph) {
            Kind::Const(Number::Float(bits)) => Some(f64::from_bits(bits)),
            _ => None,
        }
    }

    /// The node that it is part of: the map, or whatever makes the value.
    pub(super) fn node(self) -> usize {
        self.value.node()
    }

    /// Its element type.
    pub(super) fn dtype(self, graph: &Graph) -> DType {
        match graph.node_of(self.value).prim() {
            Prim::Map(row) => row.expr.nodes()[self.position as usize].1,
            _ => graph.ty(self.value).dtype,
        }
    }

    /// The shape of its coordinates.
    pub(super) fn shape(self, graph: &Graph) -> &Shape {
        &graph.ty(self.value).shape
    }

    /// Its place among the steps of a map; `None` for the result of a map and for what no map makes.
    pub(super) fn position(self, graph: &Graph) -> Option<usize> {
        match graph.node_of(self.value).prim() {
            Prim::Map(row) => Some(self.position as usize).filter(|k| k + 1 < row.expr.nodes().len()),
            _ => None,
        }
    }

    /// The expression without arguments and coordinates that it is, if it is the same number everywhere and depends on
    /// nothing but sizes. (Passes inline such numbers into the maps that read them.)
    pub(super) fn uniform(self, graph: &Graph) -> Option<Expr> {
        let (expr, _) = self.parts(graph).filter(|(_, args)| args.is_empty())?;
        (!expr.has_coordinates()).then_some(expr)
    }

    /// Whether it depends on nothing but literals, sizes and coordinates.
    pub(super) fn is_literal(self, graph: &Graph, facts: &Facts) -> bool {
        match self.position(graph) {
            None => facts.is_literal(self.node()),
            Some(_) => {
                let parts = self.parts(graph);
                parts.is_some_and(|(_, args)| args.iter().all(|arg| facts.is_literal(arg.node())))
            }
        }
    }

    /// For a step of a map: its expression and the values that this takes.
    pub(super) fn parts(self, graph: &Graph) -> Option<(Expr, SmallVec<[Value; 3]>)> {
        let node = graph.node_of(self.value);
        let Prim::Map(row) = node.prim() else { return None };
        let (expr, args) = row.expr.part(self.position as usize);
        Some((expr, args.iter().map(|k| node.args()[*k]).collect()))
    }

    /// The value of the new graph that holds it, computed if it is no value by itself.
    pub(super) fn rebuilt(self, graph: &Graph, rebuild: &mut Rebuild<'_>) -> Result<Value> {
        match self.parts(graph).filter(|_| self.position(graph).is_some()) {
            Some((expr, args)) => {
                let args: SmallVec<[Value; 3]> = args.iter().map(|v| rebuild.moved(*v)).collect();
                rebuild.add(Map { expr, shape: self.shape(graph).clone() }, &args)
            }
            None => Ok(rebuild.moved(self.value)),
        }
    }
}

/// A map with one of its steps replaced: `make` gets another value, at the same coordinates, and the operands of the step.
pub(super) fn with_step(
    graph: &Graph,
    rebuild: &mut Rebuild<'_>,
    (id, position): (usize, usize),
    other: Value,
    make: impl for<'s> Fn(Term<'s>, &[Term<'s>]) -> Term<'s>,
) -> Result<Value> {
    let node = &graph.nodes()[id];
    let Prim::Map(row) = node.prim() else { return Err(Error::bug("a step is part of a map")) };
    let mut args: SmallVec<[Value; 4]> = node.args().iter().map(|a| rebuild.moved(*a)).collect();
    args.push(other);
    let dtypes: SmallVec<[DType; 4]> = args.iter().map(|a| rebuild.graph().ty(*a).dtype).collect();
    let expr = Expr::build(&dtypes, |scope, args| {
        let mut terms: Vec<Term<'_>> = Vec::with_capacity(row.expr.nodes().len());
        for (k, (node, dtype)) in row.expr.nodes().iter().enumerate() {
            let inputs: SmallVec<[Term<'_>; 3]> = node.operands().iter().map(|o| terms[*o as usize]).collect();
            terms.push(match node {
                ExprNode::Arg(arg) => args[*arg as usize],
                _ if k == position => make(args[args.len() - 1], &inputs),
                _ => scope.step(node, *dtype, &inputs),
            });
        }
        *terms.last().expect("an expression has a result")
    });
    // Without the arguments that nothing needs any more: they are read by one map less.
    let (expr, taken) = expr.part(expr.nodes().len() - 1);
    let args: SmallVec<[Value; 4]> = taken.iter().map(|k| args[*k]).collect();
    rebuild.add(Map { expr, shape: row.shape.clone() }, &args)
}
