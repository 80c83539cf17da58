//! One view between two computations.

use super::{Context, Pass, formula};
use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, replaced, rewrite};
use crate::graph::{Graph, Node, Value};
use crate::ops::Prim;
use crate::ops::prim::{Concat, Const, Gather, View};
use crate::tensor::{Dim, Literal, Ranges, Symbol};

pub(super) const PASS: Pass = Pass {
    name: "compose-views",
    doc: "A view of a view becomes one view; views that change nothing go; a view of one part of a concat reads the part.",
    run,
};

/// In: any graph. Out: no view reads a view (unless the two fill with different values), no view is the identity, no view
/// of a concat stays inside one part, no view looks at a constant with axes of size 1, and no gather has places that are
/// known to be inside and do not come from data.
fn run(graph: &Graph, context: &Context) -> Result<Option<Graph>> {
    rewrite(graph, &context.budget, |rebuild, node, args| match node.prim() {
        Prim::View(row) => compose_node(rebuild, node, row, args[0]),
        Prim::Gather(row) => match as_view(rebuild.graph(), row, args) {
            Some(view) => compose(rebuild, view, args[0]),
            None => Ok(None),
        },
        _ => Ok(None),
    })
}

/// As [`compose`], for a node of a graph: one that is as it should be stays.
pub(super) fn compose_node(
    rebuild: &mut Rebuild<'_>,
    node: &Node,
    view: &View,
    operand: Value,
) -> Result<Option<Values>> {
    let is_last = match rebuild.graph().node_of(operand).prim() {
        Prim::Const(row) => !row.literal.sizes().contains(&1),
        Prim::Concat(_) => false,
        Prim::View(inner) => {
            let inner = inner.clone();
            rebuild.composed(view, &inner).is_none()
        }
        _ => true,
    };
    if is_last && node.is_normal() && !view.is_identity(&rebuild.graph().ty(operand).shape) {
        return Ok(None);
    }
    compose(rebuild, view.clone(), operand)
}

/// What a view of a value is: a view of what that looks at, or the value itself.
pub(super) fn compose(rebuild: &mut Rebuild<'_>, view: View, operand: Value) -> Result<Option<Values>> {
    let (mut view, mut operand) = (view.normalized(), operand);
    loop {
        let graph = rebuild.graph();
        let node = graph.node_of(operand);
        let outer = match node.prim() {
            Prim::View(inner) => {
                let (inner, further) = (inner.clone(), node.args()[0]);
                rebuild.composed(&view, &inner).map(|view| (view, further))
            }
            Prim::Concat(row) if node.args().len() <= FEW_PARTS => part_read(graph, &view, row, node.args()),
            Prim::Concat(row) => {
                let axis = row.axis;
                part_of_many(rebuild, &view, axis, operand)
            }
            _ => None,
        };
        match outer {
            Some(further) => (view, operand) = further,
            None => break,
        }
    }
    let graph = rebuild.graph();
    if view.is_identity(&graph.ty(operand).shape) {
        return replaced(operand);
    }
    if let Some((narrow, literal)) = without_ones(graph, &view, operand) {
        let constant = rebuild.add(Const { literal }, &[])?;
        let identity = narrow.is_identity(&rebuild.graph().ty(constant).shape);
        return replaced(if identity { constant } else { rebuild.add(narrow, &[constant])? });
    }
    replaced(rebuild.add(view, &[operand])?)
}

/// The view of a constant with axes of size 1 as a view of the constant without them.
fn without_ones(graph: &Graph, view: &View, operand: Value) -> Option<(View, Literal)> {
    let Prim::Const(row) = graph.node_of(operand).prim() else { return None };
    let kept: Vec<usize> = (0..view.map.len()).filter(|k| row.literal.sizes()[*k] != 1).collect();
    if kept.len() == view.map.len() {
        return None;
    }
    let sizes: Vec<usize> = kept.iter().map(|k| row.literal.sizes()[*k]).collect();
    let literal = row.literal.clone().reshaped(sizes).ok()?;
    Some((View { map: kept.iter().map(|k| view.map[*k].clone()).collect(), ..view.clone() }, literal))
}

/// So many parts of a concat are looked at one by one.
const FEW_PARTS: usize = 64;

/// As [`part_read`], of a concat of very many parts, each of which may be looked for: the sizes are numbers, or nothing is found.
fn part_of_many(rebuild: &mut Rebuild<'_>, view: &View, axis: usize, concat: Value) -> Option<(View, Value)> {
    let range = Ranges::of(view.shape.dims()).bounds(&view.map[axis])?;
    let (low, high) = (range.low.as_int()?, range.high.as_int()?);
    let starts = rebuild.starts(concat)?;
    let part = starts.partition_point(|start| *start <= low).checked_sub(1)?;
    if starts.get(part + 1).is_none_or(|end| high >= *end) {
        return None;
    }
    let mut view = view.clone();
    view.map[axis] = &view.map[axis] - starts[part];
    Some((view.normalized(), rebuild.graph().node_of(concat).args()[part]))
}

/// The view as a view of the only operand of a concat that it can read.
fn part_read(graph: &Graph, view: &View, concat: &Concat, parts: &[Value]) -> Option<(View, Value)> {
    let ranges = Ranges::of(view.shape.dims());
    let mut before = Dim::int(0);
    for part in parts {
        let size = &graph.ty(*part).shape[concat.axis];
        let inside = &view.map[concat.axis] - &before;
        if ranges.is_below(&inside, size) {
            let mut view = view.clone();
            view.map[concat.axis] = inside;
            return Some((view.normalized(), *part));
        }
        before = before + size;
    }
    None
}

/// A gather whose coordinates are index expressions, or formulas that are, and surely lie inside.
fn as_view(graph: &Graph, gather: &Gather, args: &[Value]) -> Option<View> {
    let ranges = Ranges::of(gather.shape.dims());
    let read = |k: usize| formula::of_value(graph, args[k + 1])?.as_index(&ranges);
    let places: Vec<Option<Dim>> = (0..args.len() - 1).map(read).collect();
    let mut map = Vec::with_capacity(gather.map.len());
    for (at, size) in gather.map.iter().zip(graph.ty(args[0]).shape.dims()) {
        let at = at.substitute(&|s| match s {
            Symbol::Read(k) => places[usize::from(*k)].clone(),
            _ => None,
        });
        let at = at.simplify(&ranges);
        if at.mentions(|s| matches!(s, Symbol::Read(_))) || !ranges.is_below(&at, size) {
            return None;
        }
        map.push(at);
    }
    Some(View::new(gather.shape.clone(), map))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{applied, check, count};
    use super::*;
    use crate::graph::Builder;
    use crate::tensor::{DType, Shape};

    fn symbolic() -> (Dim, Dim) {
        (Dim::named("n"), Dim::named("s"))
    }

    #[test]
    fn splitting_and_merging_heads_is_no_view_at_all() {
        let b = Builder::new("heads");
        let (n, s) = symbolic();
        let flat = Shape::new([n.clone(), s.clone(), Dim::int(6)]);
        let x = b.input("x", DType::F32, flat.clone());
        let heads = x.reshape(Shape::new([n, s, Dim::int(2), Dim::int(3)])).permute(&[0, 2, 1, 3]);
        b.output("back", heads.permute(&[0, 2, 1, 3]).reshape(flat).exp());
        let after = check(&PASS, b.finish().unwrap());
        assert_eq!(count(&after, "view"), 0);
    }

    #[test]
    fn a_slice_of_a_padded_transpose_is_one_view() {
        let b = Builder::new("pad");
        let (n, s) = symbolic();
        let x = b.input("x", DType::F32, Shape::new([n, s.clone()]));
        let one = [Dim::int(0), Dim::int(1)];
        let padded = x.permute(&[1, 0]).pad(&one, &one, 7.0);
        b.output("y", padded.slice(1, 0usize, 2usize, 1).flip(0));
        b.output("other", padded.pad(&one, &one, 0.0));
        let after = check(&PASS, b.finish().unwrap());
        assert_eq!(count(&after, "view"), 3, "the second padding fills with another value");
    }

    #[test]
    fn a_view_inside_one_part_of_a_concat_reads_the_part() {
        let b = Builder::new("split");
        let (n, s) = symbolic();
        let x = b.input("x", DType::F32, Shape::new([n.clone(), s.clone()]));
        let y = b.input("y", DType::F32, Shape::new([n.clone(), Dim::int(3)]));
        let all = b.concat(&[x, y], 1);
        b.output("x", all.slice(1, 0usize, s.clone(), 1));
        b.output("y", all.slice(1, &s + 1, 2usize, 1));
        let after = check(&PASS, b.finish().unwrap());
        assert_eq!((count(&after, "concat"), count(&after, "view")), (0, 1));
    }

    #[test]
    fn a_gather_at_places_that_are_known_to_be_inside_is_a_view() {
        let b = Builder::new("positions");
        let table = b.input("table", DType::F32, Shape::new([8usize, 3]));
        let places = b.coordinate(0, &Shape::new([5usize])) + 2;
        b.output("rows", table.take(0, places));
        let n = b.input("n", DType::F32, Shape::new([Dim::named("n")])).shape().unwrap();
        b.output("perhaps beyond", table.take(0, b.coordinate(0, &n)));
        let after = check(&PASS, run_inlined(b.finish().unwrap()));
        assert_eq!((count(&after, "gather"), count(&after, "view")), (1, 1), "{after:?}");
    }

    /// Rows of a matrix that was made one line, found by the size of a row: a mask as some exporters find it.
    #[test]
    fn places_that_sizes_are_part_of_are_known_too() {
        let text = "graph flat(x: bool[n, s]) {
            %1 = view x[i0 // s, i0 % s] : bool[n*s]
            %2 = sizes [s] : i64[1]
            %3 = view %2[0] : i64[n]
            %4 = map(%3) a * i0 : i64[n]
            %5 = view %4[i0] : i64[n, s]
            %6 = map(%5) a + i1 : i64[n, s]
            %7 = gather %1[@0] index=(%6) : bool[n, s]
            return y = %7
        }";
        let after = check(&PASS, run_inlined(Graph::parse(text).unwrap()));
        assert_eq!(count(&after, "gather"), 0, "{after}");
    }

    /// Places are formulas once constants are inside of the expressions that read them.
    fn run_inlined(graph: Graph) -> Graph {
        applied(&super::super::inline_splats::PASS, &graph, &Context::default())
    }

    #[test]
    fn a_view_over_the_border_of_two_parts_stays() {
        let b = Builder::new("border");
        let x = b.input("x", DType::F32, Shape::new([4usize]));
        let y = b.input("y", DType::F32, Shape::new([3usize]));
        b.output("z", b.concat(&[x, y], 0).slice(0, 3usize, 2usize, 1));
        let after = check(&PASS, b.finish().unwrap());
        assert_eq!((count(&after, "concat"), count(&after, "view")), (1, 1));
    }
}
