//! Arithmetic that decides is done as it is written.
//!
//! An index or a rounded number jumps where what it is made from changes by the last bit (so do truths, which this pass leaves alone). Of sums of many numbers, products of
//! matrices and exponentials nobody can tell that bit; of sums, products, quotients and roots of given numbers IEEE 754 does, and every
//! other runtime has the same. So these are kept ([`Scalar::Kept`]): `floor((i + 0.5) / 1.7)` has one value, whatever the numerics.

use rustc_hash::FxHashSet;

use super::{Context, Numerics, Pass};
use crate::error::Result;
use crate::graph::rewrite::{replaced, rewrite_outside_regions};
use crate::graph::{Graph, Node, Value};
use crate::ops::prim::{Map, Monoid};
use crate::ops::{Expr, ExprNode, Number, Prim, Scalar, Term};
use crate::tensor::DType;

use Scalar::{Abs, Add, Ceil, Div, Floor, Kept, Max, Min, Mul, Neg, Round, Select, Sqrt, Sub, Trunc};

pub(super) const PASS: Pass = Pass {
    name: "keep-written",
    doc: "What is rounded to integers next, and has one value by IEEE 754, is kept as it is written.",
    run,
};

/// In: any graph. Out: unless numerics are strict, which keep everything, each sum, product, quotient and root of f32 or f64 that is settled
/// and decides is kept. A number is *settled* if it is given or made of settled ones by such functions, choices, conversions,
/// views, gathers and extrema of rows; integers and truths always are. It *decides* if an integer is made of it through the same.
/// Regions stay as they are.
fn run(graph: &Graph, context: &Context) -> Result<Option<Graph>> {
    if context.numerics == Numerics::Strict || !graph.nodes().iter().any(makes_integers) {
        return Ok(None);
    }
    let settled = settled(graph);
    let deciding = deciding(graph, &settled);
    rewrite_outside_regions(graph, &context.budget, |rebuild, id| {
        let node = &graph.nodes()[id];
        let Prim::Map(row) = node.prim() else { return Ok(None) };
        let steps = settled_steps(row, node, &settled);
        let decides = deciding_steps(row, &steps, deciding.contains(&Value::new(id, 0)));
        let Some(expr) = kept(&row.expr, &steps, &decides) else { return Ok(None) };
        let args: Vec<Value> = node.args().iter().map(|a| rebuild.moved(*a)).collect();
        replaced(rebuild.add(Map { expr, shape: row.shape.clone() }, &args)?)
    })
}

/// Whether a map makes integers of floats.
fn makes_integers(node: &Node) -> bool {
    let Prim::Map(row) = node.prim() else { return false };
    let nodes = row.expr.nodes();
    nodes.iter().any(|(step, dtype)| jumps(nodes, step, *dtype))
}

/// Whether a step rounds a float to an integer.
fn jumps(nodes: &[(ExprNode, DType)], step: &ExprNode, dtype: DType) -> bool {
    match step {
        ExprNode::Apply(Floor | Ceil | Round | Trunc, _) => dtype.is_float(),
        ExprNode::Cast(from) => dtype.is_int() && nodes[*from as usize].1.is_float(),
        _ => false,
    }
}

/// The values of a graph that are settled.
fn settled(graph: &Graph) -> FxHashSet<Value> {
    let mut settled = FxHashSet::default();
    for (id, node) in graph.nodes().iter().enumerate() {
        let all = || node.args().iter().all(|a| settled.contains(a));
        let holds = match node.prim() {
            Prim::Input(_) | Prim::Const(_) => true,
            Prim::Map(row) => settled_steps(row, node, &settled).pop().unwrap_or(false),
            prim => hands_on(prim) && all(),
        };
        let types = node.types().iter().enumerate();
        settled.extend(types.filter(|(_, ty)| holds || !ty.dtype.is_float()).map(|(port, _)| Value::new(id, port)));
    }
    settled
}

/// Whether a primitive returns elements of its operands as they are.
fn hands_on(prim: &Prim) -> bool {
    match prim {
        Prim::View(_) | Prim::Concat(_) | Prim::Gather(_) => true,
        Prim::Reduce(row) => matches!(row.monoid, Monoid::Max | Monoid::Min),
        _ => false,
    }
}

/// Which steps of a map are settled.
fn settled_steps(row: &Map, node: &Node, settled: &FxHashSet<Value>) -> Vec<bool> {
    let mut steps: Vec<bool> = Vec::with_capacity(row.expr.nodes().len());
    for (step, dtype) in row.expr.nodes() {
        let all = || step.operands().iter().all(|o| steps[*o as usize]);
        let holds = match step {
            _ if !dtype.is_float() => true,
            ExprNode::Arg(k) => settled.contains(&node.args()[*k as usize]),
            // Inside of kernels these are computed as f32, and rounded where they are stored.
            _ if !matches!(dtype, DType::F32 | DType::F64) => false,
            ExprNode::Const(_) | ExprNode::Coord(_) | ExprNode::Size(_) | ExprNode::Bits(_) => true,
            ExprNode::Cast(_) => all(),
            ExprNode::Apply(Add | Sub | Mul | Div | Sqrt | Neg | Abs | Max | Min | Select | Kept, _) => all(),
            ExprNode::Apply(Floor | Ceil | Round | Trunc, _) => all(),
            ExprNode::Apply(..) => false,
        };
        steps.push(holds);
    }
    steps
}

/// The settled values of a graph that decide.
fn deciding(graph: &Graph, settled: &FxHashSet<Value>) -> FxHashSet<Value> {
    let mut deciding = FxHashSet::default();
    for (id, node) in graph.nodes().iter().enumerate().rev() {
        let decides = deciding.contains(&Value::new(id, 0));
        match node.prim() {
            Prim::Map(row) => {
                let steps = settled_steps(row, node, settled);
                let found = deciding_steps(row, &steps, decides);
                for ((step, _), decides) in row.expr.nodes().iter().zip(found) {
                    if let (ExprNode::Arg(k), true) = (step, decides) {
                        deciding.insert(node.args()[*k as usize]);
                    }
                }
            }
            prim if decides && hands_on(prim) => deciding.extend(node.args().iter().copied()),
            _ => {}
        }
    }
    deciding
}

/// Which settled steps of a map decide, given which are settled and whether the result does.
fn deciding_steps(row: &Map, settled: &[bool], result: bool) -> Vec<bool> {
    let nodes = row.expr.nodes();
    let mut decides = vec![false; nodes.len()];
    // The numbers of rows that are gathered are read like what is gathered, but are integers already.
    decides[nodes.len() - 1] = result && settled[nodes.len() - 1] && nodes[nodes.len() - 1].1.is_float();
    for (k, (step, dtype)) in nodes.iter().enumerate().rev() {
        if jumps(nodes, step, *dtype) || decides[k] {
            for operand in step.operands() {
                let place = *operand as usize;
                decides[place] |= settled[place] && nodes[place].1.is_float();
            }
        }
    }
    decides
}

/// The expression with what decides kept; `None` where nothing is to be.
fn kept(expr: &Expr, settled: &[bool], decides: &[bool]) -> Option<Expr> {
    let nodes = expr.nodes();
    let asks = |k: usize| settled[k] && decides[k] && rounds(nodes, k);
    if !(0..nodes.len()).any(asks) {
        return None;
    }
    let after = Expr::build(expr.args(), |scope, args| {
        let mut terms: Vec<Term<'_>> = Vec::with_capacity(nodes.len());
        for (k, (step, dtype)) in nodes.iter().enumerate() {
            let operands: Vec<Term<'_>> = step.operands().iter().map(|o| terms[*o as usize]).collect();
            terms.push(match step {
                ExprNode::Arg(k) => args[*k as usize],
                // What is kept is kept already by the step behind it.
                ExprNode::Apply(Kept, _) if matches!(operands[0].node(), ExprNode::Apply(Kept, _)) => operands[0],
                _ if asks(k) => scope.step(step, *dtype, &operands).apply(Kept),
                _ => scope.step(step, *dtype, &operands),
            });
        }
        *terms.last().expect("an expression has a result")
    });
    (after != *expr).then_some(after)
}

/// Whether a step rounds what it computes: a product with a power of two is exact.
fn rounds(nodes: &[(ExprNode, DType)], k: usize) -> bool {
    let is_power = |o: &u32| match nodes[*o as usize].0 {
        ExprNode::Const(Number::Float(bits)) => bits << 12 == 0 && f64::from_bits(bits).is_normal(),
        _ => false,
    };
    match &nodes[k].0 {
        ExprNode::Apply(Mul, operands) => !operands.iter().any(is_power),
        ExprNode::Apply(Div, operands) => !is_power(&operands[1]),
        ExprNode::Apply(Add | Sub | Sqrt, _) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::check_real;
    use super::*;
    use crate::graph::Builder;
    use crate::passes::run_passes;
    use crate::tensor::Shape;

    /// How many steps of the maps of a graph are kept.
    fn count(graph: &Graph) -> usize {
        let maps = graph.nodes().iter().filter_map(|node| match node.prim() {
            Prim::Map(row) => Some(row.expr.nodes()),
            _ => None,
        });
        maps.flatten().filter(|(step, _)| matches!(step, ExprNode::Apply(Kept, _))).count()
    }

    fn with_input(build: impl for<'b> Fn(crate::graph::Tensor<'b>) -> crate::graph::Tensor<'b>) -> Graph {
        let b = Builder::new("kept");
        let x = b.input("x", DType::F32, Shape::new([5usize, 7]));
        b.output("y", build(x));
        b.finish().unwrap()
    }

    #[test]
    fn what_an_integer_is_made_of_is_kept() {
        let after = check_real(&PASS, with_input(|x| ((x + 0.3) / 1.7).apply(Floor)));
        assert_eq!(count(&after), 2, "{after:?}");
        let after = check_real(&PASS, with_input(|x| (x / 1.7 * 0.5).cast(DType::I32).cast(DType::F32)));
        assert_eq!(count(&after), 2, "{after:?}");
        let exact = Expr::build(&[DType::F32], |s, x| (x[0] / s.float(x[0], 1.7) * s.float(x[0], 0.5)).apply(Floor));
        let after = check_real(&PASS, with_input(|x| x.builder().map(&exact, &[x])));
        assert_eq!(count(&after), 1, "a product with a power of two is exact: {after:?}");
        let after = check_real(&PASS, with_input(|x| (x.reduce(Monoid::Max, &[1]) / 255.0).apply(Round)));
        assert_eq!(count(&after), 1, "a maximum is one of its numbers: {after:?}");
    }

    #[test]
    fn what_nobody_can_tell_is_free() {
        let smooth = with_input(|x| (x + 0.3) / 1.7);
        let exponential = with_input(|x| (x.apply(Scalar::Exp) / 1.7).apply(Round));
        let sum = with_input(|x| (x.reduce(Monoid::Sum, &[1]) / 255.0).apply(Round));
        for graph in [smooth, exponential, sum] {
            assert_eq!(PASS.apply(&graph, &Context::default()).unwrap(), None);
        }
    }

    #[test]
    fn which_rows_are_gathered_decides_nothing() {
        // The numbers of rows are computed here, as later passes do with 13, 11, 3, 1.
        let graph = with_input(|x| {
            let row = x.builder().coordinate(0, &Shape::new([4usize]));
            (x * 0.3).take(0, row * 4 - row * row).apply(Floor)
        });
        let after = check_real(&PASS, graph);
        assert_eq!(count(&after), 1, "{after:?}");
    }

    #[test]
    fn no_other_pass_undoes_it() {
        let graph = with_input(|x| ((x / 3.0 + 0.1) * 7.0 / 255.0).apply(Round) * 3.0 * 5.0);
        let after = run_passes(graph, &Context::default(), &mut |_| {}).unwrap();
        assert_eq!(count(&after), 4, "{after:?}");
    }
}
