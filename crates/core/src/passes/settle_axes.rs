//! Values in the coordinates of their readers.
//!
//! Exporters reshape and transpose between computations: rows are flattened for a product and unflattened behind it, batch
//! and heads are one axis for a batched product and two for a mask, a norm over channels stands between two transposes.
//! Here every map, fold and contraction gets a [`Frame`]: the axes over which it is computed. Readers vote for it,
//! the last node of the graph first; axes that a reshape joined are kept apart where a reader takes them apart again.

mod frame;
mod vote;

use smallvec::SmallVec;

use frame::Frame;
use vote::wishes;

use super::align_contractions::place;
use super::compose_views::compose;
use super::{Context, Pass};
use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, replaced, rewrite_outside_regions};
use crate::graph::{Graph, Node, Value};
use crate::ops::prim::{Contract, Label, Map, Reduce, View};
use crate::ops::{Expr, ExprNode, Prim};
use crate::tensor::{Dim, Shape, Symbol};

pub(super) const PASS: Pass = Pass {
    name: "settle-axes",
    doc: "Maps, folds and contractions are computed over the axes that their readers ask for: reshapes and transposes between them go.",
    run,
};

/// In: any graph. Out: an output is no rearrangement of a map that nothing else reads; no map, fold or contraction has an
/// axis that one reshape joins and all readers take apart again, nor (save outputs) an axis of size 1; a fold reads its
/// operand in the order in which that lies. Regions are left alone.
fn run(graph: &Graph, _: &Context) -> Result<Graph> {
    let wishes = wishes(graph);
    rewrite_outside_regions(graph, |rebuild, id| {
        let node = &graph.nodes()[id];
        let args: SmallVec<[Value; 3]> = node.args().iter().map(|a| rebuild.moved(*a)).collect();
        let frame = wishes[id].frame.as_ref();
        match node.prim() {
            Prim::Map(row) if wishes[id].any_order => {
                let frame = as_operands_lie(rebuild, row, &args, frame)?;
                frame.map_or(Ok(None), |frame| move_map(rebuild, row, &args, &frame))
            }
            Prim::Map(row) => frame.map_or(Ok(None), |frame| move_map(rebuild, row, &args, frame)),
            Prim::Reduce(row) => move_reduce(rebuild, row, node, args[0], frame),
            Prim::Contract(row) => frame.map_or(Ok(None), |frame| move_contract(rebuild, row, &args, frame)),
            // Views of what moved look at it where it is now.
            Prim::View(row) => compose(rebuild, row.clone(), args[0]),
            _ => Ok(None),
        }
    })
}

/// What `operand` holds at coordinates `at` over a domain.
fn read(rebuild: &mut Rebuild, operand: Value, domain: Shape, at: Vec<Dim>) -> Result<Value> {
    let view = View::new(domain, at);
    Ok(compose(rebuild, view, operand)?.map_or(operand, |values| values[0]))
}

/// The value computed over a frame, seen over the axes that it had.
fn seen_as_before(rebuild: &mut Rebuild, value: Value, frame: &Frame) -> Result<Option<Values>> {
    let view = View::new(frame.before.clone(), frame.back.clone());
    replaced(rebuild.add(view, &[value])?)
}

fn move_map(rebuild: &mut Rebuild, row: &Map, args: &[Value], frame: &Frame) -> Result<Option<Values>> {
    let mut operands: SmallVec<[Value; 3]> = SmallVec::new();
    for arg in args {
        operands.push(read(rebuild, *arg, frame.shape.clone(), frame.own.clone())?);
    }
    let expr = Expr::build(row.expr.args(), |scope, terms| {
        row.expr.inline_with(scope, |node| match node {
            ExprNode::Arg(k) => Some(terms[*k as usize]),
            ExprNode::Coord(axis) => Some(scope.index(&frame.own[usize::from(*axis)])),
            _ => None,
        })
    });
    let value = rebuild.add(Map { expr, shape: frame.shape.clone() }, &operands)?;
    seen_as_before(rebuild, value, frame)
}

/// The axes for a map of which nobody asks for an order: that of its first operand that is as large.
fn as_operands_lie(rebuild: &mut Rebuild, row: &Map, args: &[Value], frame: Option<&Frame>) -> Result<Option<Frame>> {
    let identity = Frame::identity(&row.shape);
    let target = frame.unwrap_or(&identity);
    let mut found = None;
    for arg in args {
        let operand = read(rebuild, *arg, target.shape.clone(), target.own.clone())?;
        match rebuild.graph().node_of(operand).prim() {
            Prim::View(view) => found = found.or_else(|| lying_order(view)),
            Prim::Const(_) => {}
            _ => return Ok(frame.cloned()),
        }
    }
    let order = found.filter(|order| order.iter().copied().ne(0..order.len()));
    Ok(order.map(|order| target.reordered(&order)).or_else(|| frame.cloned()))
}

/// The axes of a view in the order in which they lie in what it looks at, if it repeats nothing.
fn lying_order(view: &View) -> Option<Vec<usize>> {
    let mentioned = |axis: usize| view.map.iter().any(|d| d.mentions(|s| *s == Symbol::Axis(axis as u8)));
    let rank = view.shape.rank();
    if !view.guard.is_empty() || !(0..rank).all(mentioned) {
        return None;
    }
    let mut order: Vec<usize> = (0..rank).collect();
    order.sort_by_key(|axis| place(view, *axis));
    Some(order)
}

/// The axes of a fold's operand: those that stay, by their place in the frame of the result, and those that are folded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Axis {
    Kept(usize),
    Folded(usize),
}

fn move_reduce(
    rebuild: &mut Rebuild,
    row: &Reduce,
    node: &Node,
    arg: Value,
    frame: Option<&Frame>,
) -> Result<Option<Values>> {
    let own = Frame::identity(&node.types()[0].shape);
    let target = frame.unwrap_or(&own);
    let operand = rebuild.graph().ty(arg).shape.clone();
    let axes = arranged(rebuild.graph(), row, arg, target);
    let place = |axis: Axis| axes.iter().position(|a| *a == axis).map(Dim::axis);
    let extent = |axis: &Axis| match axis {
        Axis::Kept(k) => target.shape[*k].clone(),
        Axis::Folded(k) => operand[*k].clone(),
    };
    let domain: Shape = axes.iter().map(extent).collect();
    let mut kept = 0;
    let mut at = Vec::with_capacity(operand.rank());
    for k in 0..operand.rank() {
        if row.axes.contains(&k) {
            at.push(place(Axis::Folded(k)).expect("every folded axis has a place"));
        } else {
            at.push(target.own[kept].substitute(&|s| match s {
                Symbol::Axis(a) => place(Axis::Kept(usize::from(*a))),
                _ => None,
            }));
            kept += 1;
        }
    }
    let folded = (0..axes.len()).filter(|k| matches!(axes[*k], Axis::Folded(_))).collect();
    let reduce = Reduce { monoid: row.monoid, axes: folded };
    let operand = read(rebuild, arg, domain, at)?;
    let value = rebuild.add(reduce, &[operand])?;
    match frame {
        Some(frame) => seen_as_before(rebuild, value, frame),
        None => replaced(value),
    }
}

/// The order of the operand's axes: the frame's, and every folded axis where it lies in what the operand looks at.
fn arranged(graph: &Graph, row: &Reduce, arg: Value, frame: &Frame) -> Vec<Axis> {
    let rank = graph.ty(arg).shape.rank();
    // Where an axis of the operand lies in what it looks at.
    let lies = |axis: usize| match graph.node_of(arg).prim() {
        Prim::View(view) => {
            let mentions = |d: &Dim| d.mentions(|s| *s == Symbol::Axis(axis as u8));
            view.map.iter().position(mentions).unwrap_or(0)
        }
        _ => axis,
    };
    let kept: Vec<usize> = (0..rank).filter(|k| !row.axes.contains(k)).collect();
    let places = |k: usize| {
        let from = (0..kept.len()).find(|j| frame.own[*j].mentions(|s| *s == Symbol::Axis(k as u8)));
        from.map_or(0, |j| lies(kept[j]))
    };
    let mut axes: Vec<Axis> = (0..frame.shape.rank()).map(Axis::Kept).collect();
    let mut from = 0;
    for folded in &row.axes {
        let behind = |axis: &Axis| matches!(axis, Axis::Kept(k) if places(*k) > lies(*folded));
        let at = axes[from..].iter().position(behind).map_or(axes.len(), |k| from + k);
        axes.insert(at, Axis::Folded(*folded));
        from = at + 1;
    }
    axes
}

fn move_contract(rebuild: &mut Rebuild, row: &Contract, args: &[Value], frame: &Frame) -> Result<Option<Values>> {
    let types = [rebuild.graph().ty(args[0]).clone(), rebuild.graph().ty(args[1]).clone()];
    // Letters for the axes of the frame: that of the axis of before, or a fresh one where it was taken apart.
    let used = |l: Label| row.a.contains(&l) || row.b.contains(&l);
    let mut fresh = ('a'..='z').chain('A'..='Z').filter(|l| !used(*l));
    let mut letters: Vec<Label> = Vec::with_capacity(frame.shape.rank());
    for k in 0..frame.shape.rank() {
        let whole = row.out.iter().zip(&frame.own).find(|(_, own)| **own == Dim::axis(k)).map(|(label, _)| *label);
        match whole.or_else(|| fresh.next()) {
            Some(letter) => letters.push(letter),
            None => return Ok(None),
        }
    }
    let mut operands: SmallVec<[Value; 2]> = SmallVec::new();
    let mut spec = Contract { out: letters.clone(), ..row.clone() };
    for (k, labels) in [&row.a, &row.b].into_iter().enumerate() {
        let mut domain: Vec<(Label, Dim)> = Vec::new();
        for (label, extent) in labels.iter().zip(types[k].shape.dims()) {
            match row.out.iter().position(|l| l == label) {
                Some(axis) => {
                    frame.parts[axis].iter().for_each(|p| domain.push((letters[*p], frame.shape[*p].clone())))
                }
                None => domain.push((*label, extent.clone())),
            }
        }
        let place = |letter: Label| domain.iter().position(|(l, _)| *l == letter).map(Dim::axis);
        let at = labels.iter().map(|label| match row.out.iter().position(|l| l == label) {
            Some(axis) => frame.own[axis].substitute(&|s| match s {
                Symbol::Axis(a) => place(letters[usize::from(*a)]),
                _ => None,
            }),
            None => place(*label).expect("a summed axis has a place"),
        });
        let at = at.collect();
        let (labels, extents): (Vec<Label>, Vec<Dim>) = domain.iter().cloned().unzip();
        operands.push(read(rebuild, args[k], extents.into(), at)?);
        *(if k == 0 { &mut spec.a } else { &mut spec.b }) = labels;
    }
    let value = rebuild.add(spec, &operands)?;
    seen_as_before(rebuild, value, frame)
}

#[cfg(test)]
mod tests;
