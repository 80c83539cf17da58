//! Elements that are computed once, and repeated then.

use super::{Context, Pass};
use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, replaced, rewrite};
use crate::graph::{Graph, Value};
use crate::ops::Prim;
use crate::ops::prim::{Map, View};

pub(super) const PASS: Pass = Pass {
    name: "repeat-late",
    doc: "What is computed of repeated elements alone is computed before they are repeated.",
    run,
};

/// In: a graph after `compose-views`. Out: no map that mentions no coordinates reads nothing but elements that one view repeats: it is
/// computed over what the view looks at, and repeated behind. So the cosine of angles that stand there twice is a table that stands there twice.
fn run(graph: &Graph, context: &Context) -> Result<Option<Graph>> {
    rewrite(graph, &context.budget, |rebuild, node, args| match node.prim() {
        Prim::Map(row) if !args.is_empty() && !row.expr.has_coordinates() => before_repeating(rebuild, row, args),
        _ => Ok(None),
    })
}

fn before_repeating(rebuild: &mut Rebuild<'_>, row: &Map, args: &[Value]) -> Result<Option<Values>> {
    let graph = rebuild.graph();
    let Some((view, _)) = repeated(graph, args[0]) else { return Ok(None) };
    let bases: Option<Vec<Value>> = args
        .iter()
        .map(|arg| repeated(graph, *arg).filter(|(other, _)| other.map == view.map).map(|(_, base)| base))
        .collect();
    let Some(bases) = bases else { return Ok(None) };
    let shape = graph.ty(bases[0]).shape.clone();
    if bases.iter().any(|base| graph.ty(*base).shape != shape) {
        return Ok(None);
    }
    let view = View { fill: None, ..view.clone() };
    let once = rebuild.add(Map { expr: row.expr.clone(), shape }, &bases)?;
    replaced(rebuild.add(view, &[once])?)
}

/// The view that a value is, and what it looks at, where it has more elements than that.
fn repeated(graph: &Graph, value: Value) -> Option<(&View, Value)> {
    let node = graph.node_of(value);
    let Prim::View(view) = node.prim() else { return None };
    let base = node.args()[0];
    let (seen, there) = (view.shape.count(), graph.ty(base).shape.count());
    let is_more = seen != there && (&seen - &there).is_nonnegative();
    (view.guard.is_empty() && is_more).then_some((view, base))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, count};
    use super::*;
    use crate::graph::Builder;
    use crate::tensor::{DType, Dim, Shape};

    #[test]
    fn functions_of_repeated_elements_are_computed_once() {
        let b = Builder::new("repeated");
        let angles = b.input("angles", DType::F32, Shape::new([Dim::named("n"), Dim::int(4)]));
        let twice = b.concat(&[angles, angles], 1);
        b.output(
            "y",
            twice.apply(crate::ops::Scalar::Cos) * b.input("x", DType::F32, Shape::new([Dim::named("n"), Dim::int(8)])),
        );
        let graph = b.finish().unwrap();
        let graph = super::super::join_parts::PASS.apply(&graph, &Context::default()).unwrap().unwrap_or(graph);
        let after = check(&PASS, graph);
        assert_eq!(count(&after, "map"), 2);
        let cosine =
            after.nodes().iter().find(|node| matches!(node.prim(), Prim::Map(row) if row.expr.args().len() == 1));
        assert_eq!(cosine.unwrap().types()[0].shape[1], Dim::int(4));
    }

    #[test]
    fn what_reads_its_coordinates_stays() {
        let text = "graph g(x: f32[4]) {
            %1 = view x[i1] : f32[3, 4]
            %2 = map(%1) a + f32(i0) : f32[3, 4]
            return y = %2
        }";
        let graph = Graph::parse(text).unwrap();
        assert_eq!(PASS.apply(&graph, &Context::default()).unwrap(), None);
    }
}
