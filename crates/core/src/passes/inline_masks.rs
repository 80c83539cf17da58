//! Masks that are added, as conditions of those that add them.

use smallvec::SmallVec;

use super::{Context, Numerics, Pass};
use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, replaced, rewrite};
use crate::graph::{Graph, Value};
use crate::ops::prim::{Map, View};
use crate::ops::{Expr, ExprNode, Number, Prim, Scalar};
use crate::tensor::DType;

pub(super) const PASS: Pass = Pass {
    name: "inline-masks",
    doc: "What adds 0 where a condition holds and −∞ elsewhere reads the condition and chooses itself.",
    run,
};

/// In: any graph. Out: no map adds what a map makes, seen through a view or not, that does nothing but choose between 0 and −∞: it reads the condition, and the algebra of
/// expressions makes a choice of the sum. Masks that are added and masks that choose are one graph then, and priced alike. Not under
/// [`Numerics::Strict`]: where what is hidden is NaN or +∞, a sum is NaN.
fn run(graph: &Graph, context: &Context) -> Result<Option<Graph>> {
    if context.numerics == Numerics::Strict {
        return Ok(None);
    }
    rewrite(graph, &context.budget, |rebuild, node, args| match node.prim() {
        Prim::Map(row) => inline(rebuild, row, args),
        _ => Ok(None),
    })
}

/// A mask, maybe behind a view: where its condition is, and whether it hides where that holds.
struct Mask {
    view: Option<View>,
    maker: usize,
    condition: u32,
    hides: bool,
}

fn inline(rebuild: &mut Rebuild<'_>, row: &Map, args: &[Value]) -> Result<Option<Values>> {
    let found =
        (0..args.len()).filter(|k| is_added(&row.expr, *k)).find_map(|k| Some((k, mask(rebuild.graph(), args[k])?)));
    let Some((place, Mask { view, maker, condition, hides })) = found else { return Ok(None) };
    let condition = {
        let node = &rebuild.graph().nodes()[maker];
        let Prim::Map(made) = node.prim() else { return Ok(None) };
        let (expr, taken) = made.expr.part(condition as usize);
        let inputs: SmallVec<[Value; 3]> = taken.iter().map(|k| node.args()[*k]).collect();
        match (expr.nodes(), inputs.as_slice()) {
            ([(ExprNode::Arg(0), _)], [value]) => *value,
            _ => {
                let shape = made.shape.clone();
                rebuild.add(Map { expr, shape }, &inputs)?
            }
        }
    };
    let mut args: SmallVec<[Value; 3]> = SmallVec::from_slice(args);
    args[place] = match view {
        Some(view) => rebuild.add(view, &[condition])?,
        None => condition,
    };
    let mut dtypes = row.expr.args().to_vec();
    let dtype = std::mem::replace(&mut dtypes[place], DType::Bool);
    let expr = Expr::build(&dtypes, |scope, terms| {
        row.expr.inline_with(scope, |node| match node {
            ExprNode::Arg(k) if *k as usize == place => {
                let [zero, least] = [0.0, f64::NEG_INFINITY].map(|x| scope.constant(dtype, Number::new(dtype, x)));
                let condition = terms[place];
                Some(if hides { condition.select(least, zero) } else { condition.select(zero, least) })
            }
            ExprNode::Arg(k) => Some(terms[*k as usize]),
            _ => None,
        })
    });
    replaced(rebuild.add(Map { expr, shape: row.shape.clone() }, &args)?)
}

/// Whether an argument is read, and by nothing but sums.
fn is_added(expr: &Expr, place: usize) -> bool {
    let is_it = |o: &u32| matches!(expr.nodes()[*o as usize].0, ExprNode::Arg(k) if k as usize == place);
    let mut readers = expr.nodes().iter().filter(|(node, _)| node.operands().iter().any(is_it)).peekable();
    readers.peek().is_some() && readers.all(|(node, _)| matches!(node, ExprNode::Apply(Scalar::Add, _)))
}

fn mask(graph: &Graph, value: Value) -> Option<Mask> {
    let (base, view) = match graph.node_of(value).prim() {
        // Outside of what a guarded one looks at there is no condition.
        Prim::View(view) if view.guard.is_empty() => (graph.node_of(value).args()[0], Some(view)),
        _ => (value, None),
    };
    let Prim::Map(made) = graph.node_of(base).prim() else { return None };
    let nodes = made.expr.nodes();
    let (ExprNode::Apply(Scalar::Select, operands), _) = nodes.last()? else { return None };
    let float = |o: u32| match nodes[o as usize].0 {
        ExprNode::Const(Number::Float(bits)) => Some(f64::from_bits(bits)),
        _ => None,
    };
    let hides = match (float(operands[1])?, float(operands[2])?) {
        (f64::NEG_INFINITY, 0.0) => true,
        (0.0, f64::NEG_INFINITY) => false,
        _ => return None,
    };
    Some(Mask { view: view.cloned(), maker: base.node(), condition: operands[0], hides })
}

#[cfg(test)]
mod tests {
    use super::super::inline_splats;
    use super::super::testing::{applied, check_real, count};
    use super::*;
    use crate::graph::Builder;
    use crate::tensor::{Dim, Shape};

    #[test]
    fn a_mask_that_is_added_is_a_condition_of_the_sum() {
        let b = Builder::new("mask");
        let n = Dim::named("n");
        let x = b.input("x", DType::F32, Shape::new([Dim::int(4), n.clone(), n.clone()]));
        let seen = b.input("seen", DType::Bool, Shape::new([n.clone()]));
        let mask = seen.select(b.scalar(DType::F32, 0.0), f64::NEG_INFINITY);
        let wide = mask.expand(x.shape().unwrap());
        b.output("y", x + wide);
        b.output("z", x * wide);
        let numbers = applied(&inline_splats::PASS, &b.finish().unwrap(), &Context::default());
        let after = check_real(&PASS, numbers);
        assert_eq!((count(&after, "map"), count(&after, "view")), (3, 2), "{after:?}");
    }
}
