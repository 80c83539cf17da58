//! Values in the coordinates of their readers.
//!
//! Exporters reshape and transpose between computations: rows are flattened for a product and unflattened behind it, batch
//! and heads are one axis for a batched product and two for a mask, a norm over channels stands between two transposes.
//! Here every map, fold and contraction gets a [`Frame`]: the axes over which it is computed. Readers vote for it,
//! the last node of the graph first; axes that a reshape joined are kept apart where a reader takes them apart again.

mod frame;
mod keys;
mod vote;

use smallvec::SmallVec;

use frame::Frame;
use vote::{Cuts, Wish, cuts_of, divided, wishes};

use super::align_contractions::place;
use super::compose_views::{compose, compose_node};
use super::{Context, Pass};
use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, replaced, rewrite_outside_regions};
use crate::graph::{Graph, Node, Value};
use crate::ops::prim::{Concat, Contract, Label, Map, Reduce, View};
use crate::ops::{Expr, ExprNode, Prim};
use crate::tensor::{Dim, Ranges, Shape, Symbol};

pub(super) const PASS: Pass = Pass {
    name: "settle-axes",
    doc: "Maps, folds and contractions are computed over the axes that their readers ask for: reshapes and transposes between them go.",
    run,
};

/// In: any graph. Out: an output is no rearrangement of a map that nothing else reads; no map, fold or contraction has an
/// axis that one reshape joins and a reader takes apart again, nor (save outputs) an axis of size 1, and no concat between such has one
/// besides its own, nor are all of its parts turned for products that take any order; a fold reads its operand in the order in which that lies, and axes that a reshape joined one by one, save axes of a product that another
/// product sums: these are one axis from the one to the other. Regions are left alone, and so are maps of
/// sizes.
fn run(graph: &Graph, context: &Context) -> Result<Option<Graph>> {
    let wishes = wishes(graph);
    let made_of_sizes = made_of_sizes(graph);
    let readers_may_move = readers_may_move(graph);
    rewrite_outside_regions(graph, &context.budget, |rebuild, id| {
        let node = &graph.nodes()[id];
        let args: SmallVec<[Value; 3]> = node.args().iter().map(|a| rebuild.moved(*a)).collect();
        let frame = wishes[id].frame.as_ref();
        match node.prim() {
            // They are written as shape arithmetic has them.
            Prim::Map(_) if made_of_sizes[id] => Ok(None),
            Prim::Map(row) if wishes[id].any_order => {
                let frame = as_operands_lie(rebuild, row, &args, frame)?;
                frame.map_or(Ok(None), |frame| move_map(rebuild, row, &args, &frame))
            }
            Prim::Map(row) => frame.map_or(Ok(None), |frame| move_map(rebuild, row, &args, frame)),
            Prim::Reduce(row) => move_reduce(rebuild, row, node, args[0], &wishes[id]),
            Prim::Contract(row) => frame.map_or(Ok(None), |frame| move_contract(rebuild, row, &args, frame)),
            Prim::Concat(row) if readers_may_move[id] && !made_of_sizes[id] => {
                move_concat(rebuild, row, &args, &node.types()[0].shape, wishes[id].any_order)
            }
            // Views of what moved look at it where it is now.
            Prim::View(row) => compose_node(rebuild, node, row, args[0]),
            _ => Ok(None),
        }
    })
}

/// Which nodes hold nothing but what follows from sizes.
fn made_of_sizes(graph: &Graph) -> Vec<bool> {
    let mut made: Vec<bool> = Vec::with_capacity(graph.nodes().len());
    for node in graph.nodes() {
        let from_sizes = !node.args().is_empty() && node.args().iter().all(|arg| made[arg.node()]);
        made.push(match node.prim() {
            Prim::Sizes(_) => true,
            Prim::Map(_) | Prim::View(_) | Prim::Concat(_) => from_sizes,
            _ => false,
        });
    }
    made
}

/// Which nodes are no outputs, and read by nothing that takes them as they lie.
fn readers_may_move(graph: &Graph) -> Vec<bool> {
    let mut may = vec![true; graph.nodes().len()];
    graph.outputs().iter().for_each(|output| may[output.value.node()] = false);
    let moves = |prim: &Prim| {
        matches!(prim, Prim::Map(_) | Prim::Reduce(_) | Prim::Contract(_) | Prim::View(_) | Prim::Concat(_))
    };
    let fixed = graph.nodes().iter().filter(|node| !moves(node.prim()));
    fixed.flat_map(|node| node.args()).for_each(|arg| may[arg.node()] = false);
    may
}

/// What `operand` holds at coordinates `at` over a domain.
fn read(rebuild: &mut Rebuild<'_>, operand: Value, domain: Shape, at: Vec<Dim>) -> Result<Value> {
    let view = View::new(domain, at);
    Ok(compose(rebuild, view, operand)?.map_or(operand, |values| values[0]))
}

/// The value computed over a frame, seen over the axes that it had.
fn seen_as_before(rebuild: &mut Rebuild<'_>, value: Value, frame: &Frame) -> Result<Option<Values>> {
    let view = View::new(frame.before.clone(), frame.back.clone());
    replaced(rebuild.add(view, &[value])?)
}

fn move_map(rebuild: &mut Rebuild<'_>, row: &Map, args: &[Value], frame: &Frame) -> Result<Option<Values>> {
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

/// A concat without axes of size 1, save the one along which its parts lie; and, where nobody asks for an order of its axes, in the one in which
/// all parts lie.
fn move_concat(
    rebuild: &mut Rebuild<'_>,
    row: &Concat,
    args: &[Value],
    before: &Shape,
    any_order: bool,
) -> Result<Option<Values>> {
    let mut kept: Vec<usize> = (0..before.rank()).filter(|axis| *axis == row.axis || !before[*axis].is(1)).collect();
    let mut parts = parts_over(rebuild, args, &kept)?;
    let lying = |part: &Value| match rebuild.graph().node_of(*part).prim() {
        Prim::View(view) => lying_order(view),
        _ => None,
    };
    let order = parts
        .first()
        .and_then(lying)
        .filter(|order| any_order && parts.iter().all(|part| lying(part).as_ref() == Some(order)));
    if let Some(order) = order {
        kept = order.into_iter().map(|axis| kept[axis]).collect();
        parts = parts_over(rebuild, args, &kept)?;
    }
    if kept.iter().copied().eq(0..before.rank()) {
        return Ok(None);
    }
    let axis = kept.iter().position(|axis| *axis == row.axis).expect("it is kept");
    let value = rebuild.add(Concat { axis }, &parts)?;
    let back = kept.into_iter().map(Dim::axis).collect();
    replaced(rebuild.add(View::new(before.clone(), back), &[value])?)
}

/// The parts of a concat over some of their axes; the others are of size 1.
fn parts_over(rebuild: &mut Rebuild<'_>, args: &[Value], kept: &[usize]) -> Result<SmallVec<[Value; 3]>> {
    let mut parts = SmallVec::new();
    for arg in args {
        let shape = rebuild.graph().ty(*arg).shape.clone();
        let place = |axis: usize| kept.iter().position(|k| *k == axis);
        let own = (0..shape.rank()).map(|axis| place(axis).map_or(Dim::int(0), Dim::axis)).collect();
        let domain = kept.iter().map(|axis| shape[*axis].clone()).collect();
        parts.push(read(rebuild, *arg, domain, own)?);
    }
    Ok(parts)
}

/// The axes for a map of which nobody asks for an order: that of its first operand that is as large.
fn as_operands_lie(
    rebuild: &mut Rebuild<'_>,
    row: &Map,
    args: &[Value],
    frame: Option<&Frame>,
) -> Result<Option<Frame>> {
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

/// An axis of a fold's operand: one that stays, by its place in the frame of the result, or a factor of one that is folded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Axis {
    Kept(usize),
    Folded { axis: usize, part: usize },
}

fn move_reduce(
    rebuild: &mut Rebuild<'_>,
    row: &Reduce,
    node: &Node,
    arg: Value,
    wish: &Wish,
) -> Result<Option<Values>> {
    let (row, arg) = with_axes_joined(rebuild, row, arg)?;
    let own = Frame::identity(&node.types()[0].shape);
    let mut target = wish.frame.clone().unwrap_or(own);
    let operand = Operand::new(rebuild.graph(), &row, arg);
    if wish.any_order {
        let mut order: Vec<usize> = (0..target.shape.rank()).collect();
        order.sort_by_key(|k| operand.place_of_kept(&target, *k));
        target = target.reordered(&order);
    }
    let axes = operand.arranged(&target);
    let place = |axis: Axis| axes.iter().position(|a| *a == axis).map(Dim::axis);
    let extent = |axis: &Axis| match axis {
        Axis::Kept(k) => target.shape[*k].clone(),
        Axis::Folded { axis, part } => operand.factors[*axis][*part].clone(),
    };
    let domain: Shape = axes.iter().map(extent).collect();
    let mut kept = target.own.iter();
    let mut at = Vec::with_capacity(operand.factors.len());
    for (axis, sizes) in operand.factors.iter().enumerate() {
        if row.axes.contains(&axis) {
            let inner = |part: usize| sizes[part + 1..].iter().product::<Dim>();
            let digit = |part| place(Axis::Folded { axis, part }).map(|at| at * inner(part));
            at.push((0..sizes.len()).filter_map(digit).sum());
        } else {
            at.extend(kept.next().map(|own| {
                own.substitute(&|s| match s {
                    Symbol::Axis(a) => place(Axis::Kept(usize::from(*a))),
                    _ => None,
                })
            }));
        }
    }
    let folded = (0..axes.len()).filter(|k| matches!(axes[*k], Axis::Folded { .. })).collect();
    let operand = read(rebuild, arg, domain, at)?;
    let value = rebuild.add(Reduce { monoid: row.monoid, axes: folded }, &[operand])?;
    if target.is_identity() { replaced(value) } else { seen_as_before(rebuild, value, &target) }
}

/// A fold and its operand, with neighbours among the folded axes joined where the operand sees one axis behind a view as both.
fn with_axes_joined(rebuild: &mut Rebuild<'_>, row: &Reduce, arg: Value) -> Result<(Reduce, Value)> {
    let (mut row, mut arg) = (row.clone(), arg);
    // A position counts along the axis as it is.
    if row.monoid.is_position() {
        return Ok((row, arg));
    }
    while let Prim::View(view) = rebuild.graph().node_of(arg).prim() {
        let is_folded = |axis: &usize| row.axes.contains(axis) && row.axes.contains(&(axis + 1));
        let mut pairs = (0..view.shape.rank()).filter(is_folded);
        let Some((first, joined)) = pairs.find_map(|k| Some((k, joined_pair(view, k)?))) else { break };
        let value = rebuild.graph().node_of(arg).args()[0];
        arg = compose(rebuild, joined, value)?.map_or(value, |values| values[0]);
        row.axes.retain(|axis| *axis != first + 1);
        row.axes.iter_mut().filter(|axis| **axis > first).for_each(|axis| *axis -= 1);
    }
    Ok((row, arg))
}

/// A view with axes `first` and the next as one, if that walks along what both did, without division.
fn joined_pair(view: &View, first: usize) -> Option<View> {
    let inner = &view.shape[first + 1];
    let mut shape = view.shape.dims().to_vec();
    shape[first] = &shape[first] * inner;
    shape.remove(first + 1);
    let ranges = Ranges::of(&shape);
    let moved = |outer: Dim, within: Dim, dim: &Dim| {
        dim.substitute(&|s| match s {
            Symbol::Axis(a) if usize::from(*a) == first => Some(outer.clone()),
            Symbol::Axis(a) if usize::from(*a) == first + 1 => Some(within.clone()),
            Symbol::Axis(a) if usize::from(*a) > first => Some(Dim::axis(usize::from(*a) - 1)),
            _ => None,
        })
    };
    let (both, zero) = (Dim::axis(first), Dim::int(0));
    let walks = |dim: &Dim| {
        let joined = moved(both.floordiv(inner), both.modulo(inner), dim).simplify(&ranges);
        (joined == moved(zero.clone(), both.clone(), dim).simplify(&ranges)).then_some(joined)
    };
    let map = view.map.iter().map(walks).collect::<Option<Vec<Dim>>>()?;
    let sees_one = view.map.iter().any(|dim| dim.mentions(|s| *s == Symbol::Axis(first as u8)));
    (sees_one && view.guard.is_empty()).then(|| View::new(shape.into(), map))
}

/// The operand of a fold: where its axes lie in what it looks at.
struct Operand<'r> {
    row: &'r Reduce,
    /// for each axis, the sizes of the axes that it joins (one: itself)
    factors: Vec<Vec<Dim>>,
    /// for each axis, the first axis that it moves along
    lies: Vec<usize>,
}

impl<'r> Operand<'r> {
    fn new(graph: &Graph, row: &'r Reduce, arg: Value) -> Operand<'r> {
        let shape = &graph.ty(arg).shape;
        let mut operand = Operand { row, factors: Vec::new(), lies: Vec::new() };
        for axis in 0..shape.rank() {
            let mentions = |d: &Dim| d.mentions(|s| *s == Symbol::Axis(axis as u8));
            let (lies, cuts) = match graph.node_of(arg).prim() {
                Prim::View(view) => (view.map.iter().position(mentions).unwrap_or(0), cuts_of(view, axis)),
                _ => (axis, Cuts::new()),
            };
            // A position counts along the axis as it is.
            let apart = row.axes.contains(&axis) && !row.monoid.is_position();
            operand.factors.push(divided(&shape[axis], if apart { &cuts } else { &[] }));
            operand.lies.push(lies);
        }
        operand
    }

    /// Where an axis of the result's frame lies in what the operand looks at.
    fn place_of_kept(&self, frame: &Frame, k: usize) -> usize {
        let kept = (0..self.lies.len()).filter(|axis| !self.row.axes.contains(axis));
        let of_frame = kept.zip(&frame.own).find(|(_, own)| own.mentions(|s| *s == Symbol::Axis(k as u8)));
        of_frame.map_or(0, |(axis, _)| self.lies[axis])
    }

    /// The order of the axes: the frame's, and every folded axis where it lies.
    fn arranged(&self, frame: &Frame) -> Vec<Axis> {
        let mut axes: Vec<Axis> = (0..frame.shape.rank()).map(Axis::Kept).collect();
        let mut from = 0;
        for axis in &self.row.axes {
            let lies = self.lies[*axis];
            let behind = |a: &Axis| matches!(a, Axis::Kept(k) if self.place_of_kept(frame, *k) > lies);
            let at = axes[from..].iter().position(behind).map_or(axes.len(), |k| from + k);
            let parts = (0..self.factors[*axis].len()).map(|part| Axis::Folded { axis: *axis, part });
            axes.splice(at..at, parts);
            from = at + self.factors[*axis].len();
        }
        axes
    }
}

fn move_contract(rebuild: &mut Rebuild<'_>, row: &Contract, args: &[Value], frame: &Frame) -> Result<Option<Values>> {
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
                    for part in &frame.parts[axis] {
                        // Axes that became one have one letter.
                        if domain.iter().all(|(letter, _)| *letter != letters[*part]) {
                            domain.push((letters[*part], frame.shape[*part].clone()));
                        }
                    }
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
