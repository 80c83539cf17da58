//! Values of f32 that a narrower type of floats holds.

use super::formula;
use crate::error::Result;
use crate::graph::contents;
use crate::graph::rewrite::Rebuild;
use crate::graph::{Graph, Node, Value};
use crate::ops::prim::{Map, View};
use crate::ops::{Expr, ExprNode, Number, Prim};
use crate::tensor::DType;

/// A value of f32 as numbers of a narrow type: what was widened, or what is rounded here, in front of the views of it, so that it is rounded
/// once for all that look at it.
pub(super) fn narrowed(rebuild: &mut Rebuild<'_>, value: Value, dtype: DType) -> Result<Value> {
    narrowed_through(rebuild, value, dtype, formula::MOST_VIEWS)
}

/// As [`narrowed`], and widened again, in front of the views too; a value that holds such numbers only stays as it is.
pub(super) fn rounded(rebuild: &mut Rebuild<'_>, value: Value, dtype: DType) -> Result<Value> {
    rounded_through(rebuild, value, dtype, formula::MOST_VIEWS)
}

/// Numbers of a narrow type as f32.
pub(super) fn widened(rebuild: &mut Rebuild<'_>, narrow: Value) -> Result<Value> {
    let ty = rebuild.graph().ty(narrow).clone();
    rebuild.add(Map { expr: Expr::cast(ty.dtype, DType::F32), shape: ty.shape }, &[narrow])
}

fn narrowed_through(rebuild: &mut Rebuild<'_>, value: Value, dtype: DType, views: usize) -> Result<Value> {
    let node = rebuild.graph().node_of(value).clone();
    if let Some(row) = seen_through(&node, dtype).filter(|_| views > 0) {
        let fill = row.fill.map(|fill| Number::new(dtype, fill.to_f64()));
        let seen = narrowed_through(rebuild, node.args()[0], dtype, views - 1)?;
        return rebuild.add(View { fill, ..row.clone() }, &[seen]);
    }
    if is_widened(&node, dtype) {
        return Ok(node.args()[0]);
    }
    let shape = rebuild.graph().ty(value).shape.clone();
    rebuild.add(Map { expr: Expr::cast(DType::F32, dtype), shape }, &[value])
}

fn rounded_through(rebuild: &mut Rebuild<'_>, value: Value, dtype: DType, views: usize) -> Result<Value> {
    let node = rebuild.graph().node_of(value).clone();
    if let Some(row) = seen_through(&node, dtype).filter(|_| views > 0) {
        let seen = rounded_through(rebuild, node.args()[0], dtype, views - 1)?;
        return rebuild.add(row.clone(), &[seen]);
    }
    if is_rounded(&node, dtype) {
        return Ok(value);
    }
    let narrow = narrowed_through(rebuild, value, dtype, 0)?;
    widened(rebuild, narrow)
}

/// The view that a node is, where what it fills with is a number of the narrow type.
fn seen_through(node: &Node, dtype: DType) -> Option<&View> {
    match node.prim() {
        Prim::View(row) => Some(row).filter(|row| row.fill.is_none_or(|fill| holds(dtype, fill.to_f64()))),
        _ => None,
    }
}

/// Whether a node does nothing but widen numbers of a narrow type to f32.
pub(super) fn is_widened(node: &Node, dtype: DType) -> bool {
    let Prim::Map(row) = node.prim() else { return false };
    row.expr.is_cast() && (row.expr.args(), row.expr.dtype()) == (&[dtype], DType::F32)
}

/// Whether a node does nothing but round f32 to a narrow type.
pub(super) fn is_narrowing(node: &Node, dtype: DType) -> bool {
    let Prim::Map(row) = node.prim() else { return false };
    row.expr.is_cast() && (row.expr.args(), row.expr.dtype()) == (&[DType::F32], dtype)
}

/// Whether a node gives nothing but numbers that a narrow type holds: a map that ends by widening them, or a table so small that it was folded.
pub(super) fn is_rounded(node: &Node, dtype: DType) -> bool {
    match node.prim() {
        Prim::Map(row) => match row.expr.nodes() {
            [.., (ExprNode::Cast(from), DType::F32)] => row.expr.nodes()[*from as usize].1 == dtype,
            _ => false,
        },
        Prim::Const(row) => {
            let table = &row.literal;
            table.count() <= contents::MOST_ELEMENTS && (0..table.count()).all(|k| holds(dtype, table.float(k)))
        }
        _ => false,
    }
}

/// Whether a value, behind views, is a function of coordinates alone, which is computed where it is read.
pub(super) fn is_formula(graph: &Graph, value: Value) -> bool {
    let node = behind_views(graph, value);
    matches!(node.prim(), Prim::Map(_)) && node.args().is_empty()
}

/// The node that a value is of, behind views.
pub(super) fn behind_views(graph: &Graph, value: Value) -> &Node {
    let mut node = graph.node_of(value);
    while let Prim::View(_) = node.prim() {
        node = graph.node_of(node.args()[0]);
    }
    node
}

fn holds(dtype: DType, x: f64) -> bool {
    dtype.round(x).to_bits() == x.to_bits() || x.is_nan()
}
