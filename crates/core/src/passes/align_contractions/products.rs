//! Sums of products of elements that are contractions.

use smallvec::SmallVec;

use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, replaced};
use crate::graph::{Graph, Value};
use crate::ops::prim::{Contract, Label, Map, Monoid, Reduce, View};
use crate::ops::{Expr, ExprNode, Prim, Scalar, Term};
use crate::passes::compose_views::compose;
use crate::tensor::{DType, Dim, Shape, Symbol, TensorType};

/// Axes of the products, one bit each.
type Axes = u64;

/// Products of more factors are not taken apart.
const MOST_FACTORS: usize = 16;

/// The contraction that a sum of products is, where elements of either side meet several of the other: both have axes of the result that
/// the other has not. (Where only one has, it is a sum along rows, and stays one.)
pub(super) fn contraction(
    rebuild: &mut Rebuild<'_>,
    row: &Reduce,
    products: Value,
    result: &TensorType,
) -> Result<Option<Values>> {
    if row.monoid != Monoid::Sum || !result.dtype.is_float() {
        return Ok(None);
    }
    let graph = rebuild.graph();
    let Some((map, args)) = product(graph, products) else { return Ok(None) };
    let Some(sides) = sides(graph, &map, &args, row) else { return Ok(None) };
    let long = axes_of(&map.shape, |_| true);
    let summed = row.axes.iter().fold(0, |axes, axis| axes | 1 << axis) & long;
    let mut operands: SmallVec<[Value; 2]> = SmallVec::new();
    for side in &sides {
        operands.push(side.rebuilt(rebuild, &map, &args)?);
    }
    let [a, b] = sides.each_ref().map(|side| labels(side.axes));
    let out = labels((sides[0].axes | sides[1].axes) & !summed);
    let accumulator = if result.dtype.bits() < 32 { DType::F32 } else { result.dtype };
    let sums = rebuild.add(Contract { a, b, out: out.clone(), accumulator }, &operands)?;
    // Axes of one element, and those along which products repeat.
    let kept: Vec<usize> = (0..map.shape.rank()).filter(|axis| !row.axes.contains(axis)).collect();
    let place = |label: &Label| kept.iter().position(|axis| letter(*axis) == *label).map_or(Dim::int(0), Dim::axis);
    let view = View::new(result.shape.clone(), out.iter().map(place).collect());
    let placed = compose(rebuild, view, sums)?;
    replaced(placed.map_or(sums, |values| values[0]))
}

/// Maps of products behind each other that are looked at as one.
const MOST_MAPS: usize = 4;

/// A map of products, with those that it multiplies; `None` for other values.
fn product(graph: &Graph, value: Value) -> Option<(Map, SmallVec<[Value; 4]>)> {
    let as_product = |value: Value| match graph.node_of(value).prim() {
        Prim::Map(map) => {
            let is_product = matches!(map.expr.nodes().last(), Some((ExprNode::Apply(Scalar::Mul, _), _)));
            is_product.then_some(map)
        }
        _ => None,
    };
    let letters = ('a'..='z').count();
    let mut map = as_product(value).filter(|map| map.shape.rank() <= letters)?.clone();
    let mut args: SmallVec<[Value; 4]> = SmallVec::from_slice(graph.node_of(value).args());
    for _ in 1..MOST_MAPS {
        let Some((k, inner)) = args.iter().enumerate().find_map(|(k, arg)| Some((k, as_product(*arg)?))) else { break };
        let mut types: SmallVec<[DType; 4]> = SmallVec::from_slice(map.expr.args());
        types.remove(k);
        types.extend_from_slice(inner.expr.args());
        let expr = Expr::build(&types, |scope, leaves| {
            let (others, behind) = leaves.split_at(args.len() - 1);
            let mut own: SmallVec<[Term<'_>; 4]> = SmallVec::from_slice(others);
            own.insert(k, inner.expr.inline(scope, behind));
            map.expr.inline(scope, &own)
        });
        let behind = graph.node_of(args.remove(k)).args();
        args.extend_from_slice(behind);
        map = Map { expr, ..map };
    }
    Some((map, args))
}

/// The factors of one operand.
struct Side {
    /// the axes along which they vary
    axes: Axes,
    /// their places in the expression
    factors: SmallVec<[u32; 4]>,
}

/// The factors of products, divided by the axes that they vary along.
fn sides(graph: &Graph, map: &Map, args: &[Value], row: &Reduce) -> Option<[Side; 2]> {
    let nodes = map.expr.nodes();
    let mut factors: SmallVec<[u32; 4]> = SmallVec::new();
    let mut todo = vec![nodes.len() as u32 - 1];
    while let Some(place) = todo.pop() {
        match &nodes[place as usize].0 {
            ExprNode::Apply(Scalar::Mul, operands) => todo.extend(operands.iter().rev()),
            _ => factors.push(place),
        }
        if factors.len() + todo.len() > MOST_FACTORS {
            return None;
        }
    }
    if factors.len() < 2 {
        return None;
    }
    let along = varies_along(graph, map, args);
    let axes = |factor: &u32| along[*factor as usize];
    let first = factors.iter().map(axes).max_by_key(|axes| axes.count_ones())?;
    let (a, b): (SmallVec<_>, SmallVec<_>) = factors.iter().copied().partition(|factor| axes(factor) & !first == 0);
    let second = b.iter().map(axes).fold(0, |all, axes| all | axes);
    let summed = axes_of(&map.shape, |axis| row.axes.contains(&axis));
    let meets = |one: Axes, other: Axes| one & !other & !summed != 0 && one & summed == summed;
    let is_one = b.iter().any(|factor| axes(factor) == second);
    let found = summed != 0 && is_one && meets(first, second) && meets(second, first);
    found.then_some([Side { axes: first, factors: a }, Side { axes: second, factors: b }])
}

/// The axes of more than one element that satisfy something.
fn axes_of(shape: &Shape, wanted: impl Fn(usize) -> bool) -> Axes {
    (0..shape.rank()).filter(|axis| !shape[*axis].is(1) && wanted(*axis)).fold(0, |axes, axis| axes | 1 << axis)
}

/// For every step of a map: the axes along which it varies.
fn varies_along(graph: &Graph, map: &Map, args: &[Value]) -> Vec<Axes> {
    let is_in = |dim: &Dim, axis: usize| dim.mentions(|s| *s == Symbol::Axis(axis as u8));
    let of_argument = |value: Value| match graph.node_of(value).prim() {
        Prim::View(view) => axes_of(&map.shape, |axis| {
            view.map.iter().chain(view.guard.iter().map(|guard| &guard.index)).any(|dim| is_in(dim, axis))
        }),
        _ => axes_of(&map.shape, |_| true),
    };
    let mut along: Vec<Axes> = Vec::with_capacity(map.expr.nodes().len());
    for (node, _) in map.expr.nodes() {
        along.push(match node {
            ExprNode::Arg(k) => of_argument(args[*k as usize]),
            ExprNode::Coord(axis) => axes_of(&map.shape, |a| a == usize::from(*axis)),
            node => node.operands().iter().fold(0, |axes, operand| axes | along[*operand as usize]),
        });
    }
    along
}

fn letter(axis: usize) -> Label {
    (b'a' + axis as u8) as char
}

fn labels(axes: Axes) -> Vec<Label> {
    (0..Axes::BITS as usize).filter(|axis| axes >> axis & 1 == 1).map(letter).collect()
}

impl Side {
    /// The product of the factors, over the axes along which they vary.
    fn rebuilt(&self, rebuild: &mut Rebuild<'_>, map: &Map, args: &[Value]) -> Result<Value> {
        let own: Vec<usize> = (0..map.shape.rank()).filter(|axis| self.axes >> axis & 1 == 1).collect();
        let shape: Shape = own.iter().map(|axis| map.shape[*axis].clone()).collect();
        let place = |axis: usize| own.iter().position(|own| *own == axis).map_or(Dim::int(0), Dim::axis);
        let taken = self.arguments(map);
        let mut operands: SmallVec<[Value; 3]> = SmallVec::new();
        for k in &taken {
            let view = View::new(shape.clone(), (0..map.shape.rank()).map(place).collect());
            operands.push(compose(rebuild, view, args[*k])?.map_or(args[*k], |values| values[0]));
        }
        let dtypes: SmallVec<[DType; 3]> = taken.iter().map(|k| map.expr.args()[*k]).collect();
        let last = *self.factors.iter().max().expect("a side has factors");
        let expr = Expr::build(&dtypes, |scope, leaves| {
            let mut terms: Vec<Option<Term<'_>>> = Vec::with_capacity(last as usize + 1);
            for (node, dtype) in &map.expr.nodes()[..=last as usize] {
                let inputs: Option<SmallVec<[Term<'_>; 3]>> =
                    node.operands().iter().map(|o| terms[*o as usize]).collect();
                terms.push(match node {
                    ExprNode::Arg(k) => taken.iter().position(|t| *t == *k as usize).map(|at| leaves[at]),
                    ExprNode::Coord(axis) => Some(scope.index(&place(usize::from(*axis)))),
                    _ => inputs.map(|inputs| scope.step(node, *dtype, &inputs)),
                });
            }
            let factors = self.factors.iter().filter_map(|factor| terms[*factor as usize]);
            factors.reduce(|a, b| a * b).expect("a side has factors")
        });
        match operands.as_slice() {
            [only] if matches!(expr.nodes(), [(ExprNode::Arg(_), _)]) => Ok(*only),
            _ => rebuild.add(Map { expr, shape }, &operands),
        }
    }

    /// The arguments of the map that the factors need.
    fn arguments(&self, map: &Map) -> Vec<usize> {
        let nodes = map.expr.nodes();
        let mut needed = vec![false; nodes.len()];
        self.factors.iter().for_each(|factor| needed[*factor as usize] = true);
        let mut taken = Vec::new();
        for (k, (node, _)) in nodes.iter().enumerate().rev() {
            if !needed[k] {
                continue;
            }
            node.operands().iter().for_each(|operand| needed[*operand as usize] = true);
            if let ExprNode::Arg(arg) = node {
                taken.push(*arg as usize);
            }
        }
        taken.sort_unstable();
        taken.dedup();
        taken
    }
}
