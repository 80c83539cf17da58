//! Branches that are known beforehand.

use rustc_hash::FxHashMap;

use super::{Context, Pass};
use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, rewrite};
use crate::graph::{Graph, Known, Value};
use crate::ops::Prim;
use crate::ops::prim::If;
use crate::tensor::{Dim, Symbol};

pub(super) const PASS: Pass = Pass {
    name: "choose-branches",
    doc: "An `if` whose condition is known is replaced by the nodes of the branch that it takes.",
    run,
};

/// In: any graph. Out: no `if` has a condition that is known before run time, unless its branches see operands, or return
/// results, under other sizes than the nodes around them do.
fn run(graph: &Graph, context: &Context) -> Result<Option<Graph>> {
    let mut bound = FxHashMap::default();
    count_binders(graph, &mut bound);
    rewrite(graph, &context.budget, |rebuild, node, args| match node.prim() {
        Prim::If(row) => take(rebuild, row, args, &bound),
        _ => Ok(None),
    })
}

/// How often each value symbol is bound in a graph and in the regions inside of it.
fn count_binders(graph: &Graph, bound: &mut FxHashMap<u32, usize>) {
    for node in graph.nodes() {
        let results = node.types().iter().flat_map(|ty| ty.shape.dims()).filter_map(Dim::as_symbol);
        let symbols: Vec<u32> = match node.prim() {
            Prim::Bind(row) => vec![row.symbol],
            Prim::Host(row) => row.kind.binds().collect(),
            Prim::If(_) | Prim::Loop(_) => {
                results.filter_map(|s| if let Symbol::Value(n) = s { Some(*n) } else { None }).collect()
            }
            _ => Vec::new(),
        };
        symbols.into_iter().for_each(|symbol| *bound.entry(symbol).or_default() += 1);
        match node.prim() {
            Prim::If(row) => [&row.then, &row.otherwise].iter().for_each(|region| count_binders(region, bound)),
            Prim::Loop(row) => count_binders(&row.body, bound),
            _ => {}
        }
    }
}

fn take(rebuild: &mut Rebuild<'_>, row: &If, args: &[Value], bound: &FxHashMap<u32, usize>) -> Result<Option<Values>> {
    let known = rebuild.contents(args[0]);
    let holds = match known.as_deref() {
        Some([Known::Int(dim)]) => dim.as_int(),
        _ => None,
    };
    let Some(holds) = holds else { return Ok(None) };
    let region = if holds != 0 { &row.then } else { &row.otherwise };
    let captures = &args[1..];
    let same_inputs =
        region.inputs().iter().zip(captures).all(|(inner, outer)| region.ty(*inner) == rebuild.graph().ty(*outer));
    let same_results = region.outputs().iter().zip(&row.results).all(|(output, ty)| region.ty(output.value) == ty);
    if !same_inputs || !same_results {
        return Ok(None);
    }
    // Other nodes may use the numbers of symbols that the branch has for itself.
    let mut own = FxHashMap::default();
    [&row.then, &row.otherwise].iter().for_each(|region| count_binders(region, &mut own));
    if own.iter().any(|(symbol, count)| bound.get(symbol) != Some(count)) {
        return Ok(None);
    }
    let mut moved: Vec<Value> = Vec::with_capacity(region.nodes().len());
    // Where the first result of each node went; the others are beside it.
    let place = |value: Value, moved: &[Value]| match value.port() {
        0 => moved[value.node()],
        port => Value::new(moved[value.node()].node(), port),
    };
    for (id, node) in region.nodes().iter().enumerate() {
        let args: Vec<Value> = node.args().iter().map(|a| place(*a, &moved)).collect();
        let captured = region.inputs().binary_search_by_key(&id, |v| v.node()).ok();
        moved.push(match captured {
            Some(k) => captures[k],
            None => rebuild.keep(node, &args)?,
        });
    }
    for constraint in region.constraints() {
        rebuild.add_constraint(constraint.clone());
    }
    Ok(Some(region.outputs().iter().map(|o| place(o.value, &moved)).collect()))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, count};
    use super::*;
    use crate::graph::{Builder, Tensor};
    use crate::tensor::{DType, Shape};

    fn branching(condition: impl for<'b> Fn(&'b Builder, Tensor<'b>) -> Tensor<'b>) -> Graph {
        let b = Builder::new("branches");
        let n = Dim::named("n");
        let x = b.input("x", DType::F32, Shape::new([n.clone(), Dim::int(3)]));
        let region = |sorted: bool| {
            let r = b.region("branch");
            let x = r.input("x", DType::F32, Shape::new([n.clone(), Dim::int(3)]));
            let (values, places) = x.sort(1, true);
            r.output("y", if sorted { values } else { -x });
            r.output("places", if sorted { places } else { places + 1 });
            r.finish().unwrap()
        };
        let results = b.if_else(condition(&b, x), region(true), region(false), &[x]).unwrap();
        b.output("y", results[0]);
        b.output("places", results[1]);
        b.finish().unwrap()
    }

    #[test]
    fn a_known_condition_takes_its_branch() {
        let taken = check(&PASS, branching(|b, _| b.int(DType::Bool, 1)));
        assert_eq!((count(&taken, "if"), count(&taken, "sort"), taken.nodes().len()), (0, 1, 2), "{taken:?}");
        let refused = check(&PASS, branching(|b, x| b.size(&x.dim(1).unwrap()).lt(2)));
        assert_eq!((count(&refused, "if"), count(&refused, "sort")), (0, 1), "{refused:?}");
    }

    #[test]
    fn a_branch_whose_symbols_are_used_again_stays() {
        let text = |outer: &str| {
            format!(
                "graph g(x: f32[4], k: i64[]) {{
                   %2 = const true : bool[]
                   %3 = if %2 capture=(x) : i64[]
                     then graph then(x: f32[4]) symbols=$0..$1 {{
                       %1 = host.nonzero(x) count=$0 : i64[1, $0]
                       %2 = reduce.sum %1 axes=[0, 1] : i64[]
                       return y = %2
                     }}
                     else graph else(x: f32[4]) {{ %1 = sizes [4] : i64[1] %2 = view %1[0] : i64[] return y = %2 }}
                   %4 = bind {outer} = k : i64[]
                   %5 = view x[min({outer}, 3)] : f32[]
                   return y = %3, z = %5
                 }}"
            )
        };
        let [apart, same] = ["$1", "$0"].map(|outer| check(&PASS, Graph::parse(&text(outer)).unwrap()));
        assert_eq!((count(&apart, "if"), count(&same, "if")), (0, 1), "{apart} {same}");
    }

    #[test]
    fn a_condition_that_depends_on_data_or_sizes_stays() {
        let graph = check(&PASS, branching(|_, x| x.element(0, 0usize).element(0, 0usize).lt(0.0)));
        assert_eq!(count(&graph, "if"), 1);
        let graph = check(&PASS, branching(|b, x| b.size(&x.dim(0).unwrap()).lt(2)));
        assert_eq!(count(&graph, "if"), 1);
    }
}
