//! Small constant computations.

use smallvec::SmallVec;

use super::{Context, Numerics, Pass, formula};
use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, rewrite};
use crate::graph::{Graph, Node, Value, contents};
use crate::ops::Prim;
use crate::ops::prim::{Class, Const, Map};
use crate::reference::{Limits, Options, Reading, evaluate_prim};
use crate::tensor::{DType, Literal, TensorType};

pub(super) const PASS: Pass = Pass {
    name: "fold-constants",
    doc: "A node whose operands are all small constants becomes the constant that the reference computes; so does what has no elements.",
    run,
};

/// In: any graph. Out: no node with small results has only small constants as operands, where small means up to
/// `fold_bytes`, and none but inputs and control flow gives tensors that are known to have no elements. Left alone are formulas (maps without operands, unless they cost more than reading a table), views that
/// repeat elements, random numbers, sub-graphs, what the reference refuses, which is an error for run time, and what is computed
/// from short weights (tables of integers of up to 8 bits, or of bf16 where factors are), which are best kept as they are.
///
/// Under strict numerics every step of a folded computation is rounded, as it would be at run time; otherwise only the result.
fn run(graph: &Graph, context: &Context) -> Result<Option<Graph>> {
    rewrite(graph, &context.budget, |rebuild, node, args| fold(rebuild, node, args, context))
}

fn fold(rebuild: &mut Rebuild<'_>, node: &Node, args: &[Value], context: &Context) -> Result<Option<Values>> {
    let is_computed = !matches!(node.prim().class(), Class::Source | Class::Control);
    if let Some(empty) = empty(node).filter(|_| is_computed) {
        let constants = empty.into_iter().map(|literal| rebuild.add(Const { literal }, &[]));
        return constants.collect::<Result<SmallVec<_>>>().map(Some);
    }
    if !is_foldable(rebuild.graph(), node, args, context) {
        return Ok(None);
    }
    let graph = rebuild.graph();
    let operands: Option<Vec<Literal>> =
        args.iter().map(|a| literal(graph, *a, context, formula::MOST_VIEWS)).collect();
    let Some(operands) = operands else { return Ok(None) };
    let Ok(results) = evaluate_prim(node.prim(), &operands, &options(context)) else { return Ok(None) };
    if results.iter().map(Literal::ty).ne(node.types().iter().cloned()) {
        return Ok(None);
    }
    let constants = results.into_iter().map(|literal| rebuild.add(Const { literal }, &[]));
    constants.collect::<Result<SmallVec<_>>>().map(Some)
}

/// The results of a node, where all are known to have no elements.
fn empty(node: &Node) -> Option<Vec<Literal>> {
    // nearly none
    if !node.types().iter().all(|ty| ty.shape.dims().iter().any(|size| size.is(0))) {
        return None;
    }
    let results = node.types().iter().map(|ty| {
        let sizes = ty.shape.as_ints().filter(|sizes| sizes.contains(&0))?;
        Literal::from_ints(ty.dtype, sizes, &[]).ok()
    });
    results.collect()
}

fn is_foldable(graph: &Graph, node: &Node, args: &[Value], context: &Context) -> bool {
    let is_small = node.types().iter().all(|ty| fits(ty, context));
    is_small
        && match (node.prim(), node.prim().class()) {
            (_, Class::Source | Class::Control) => false,
            (Prim::Map(row), _) if args.is_empty() => row.expr.flops() > formula::MOST_FLOPS,
            // Among no elements there is no position.
            (Prim::Reduce(row), _) if row.monoid.is_position() => !graph.ty(args[0]).shape[row.axes[0]].is(0),
            (Prim::Map(row), _) if widens_weights(graph, row, args, context) => false,
            (Prim::View(row), _) => {
                let (new, old) = (row.shape.as_ints(), graph.ty(args[0]).shape.as_ints());
                let count = |sizes: Vec<usize>| sizes.iter().product::<usize>();
                new.map(count) <= old.map(count)
            }
            _ => true,
        }
}

/// Whether tensors of a type are small enough; a type with free sizes is not.
fn fits(ty: &TensorType, context: &Context) -> bool {
    ty.bytes().as_int().is_some_and(|n| n <= context.fold_bytes as i64)
}

/// Whether a map converts a table of short integers to a longer type, or one of rounded factors.
fn widens_weights(graph: &Graph, row: &Map, args: &[Value], context: &Context) -> bool {
    // Tables whose contents are followed may say something about shapes.
    let large = |n: i64| n > contents::MOST_ELEMENTS as i64;
    let is_short = |dtype: DType| context.precision.narrow() == Some(dtype) || (dtype.is_int() && dtype.bits() <= 8);
    let from = graph.ty(args[0]);
    let widens = row.expr.is_cast() && row.expr.dtype().bits() > from.dtype.bits().max(8);
    widens && is_short(from.dtype) && from.shape.count().as_int().is_some_and(large)
}

/// The data of a small constant: stored, a formula, or up to `views` views of one of these.
fn literal(graph: &Graph, value: Value, context: &Context, views: usize) -> Option<Literal> {
    let node = graph.node_of(value);
    if !fits(graph.ty(value), context) {
        return None;
    }
    match node.prim() {
        Prim::Const(row) => Some(row.literal.clone()),
        // A map with operands that could be folded was folded before: it need not be looked at again.
        Prim::Map(_) if !node.args().is_empty() => None,
        Prim::Map(_) | Prim::View(_) => {
            let views = views.checked_sub(1)?;
            let operands = node.args().iter().map(|a| literal(graph, *a, context, views));
            let operands: Option<Vec<Literal>> = operands.collect();
            let result = evaluate_prim(node.prim(), &operands?, &options(context)).ok()?.pop()?;
            (result.ty() == *graph.ty(value)).then_some(result)
        }
        _ => None,
    }
}

fn options(context: &Context) -> Options {
    let reading = if context.numerics == Numerics::Strict { Reading::Rounded } else { Reading::Exact };
    Options { reading, limits: Limits { trips: 0, bytes: 16 << 20, ..Limits::default() } }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{applied, check, count};
    use super::*;
    use crate::graph::Builder;
    use crate::ops::prim::Monoid;
    use crate::tensor::{DType, Shape};

    #[test]
    fn what_has_no_elements_is_not_computed() {
        let b = Builder::new("empty");
        let x = b.input("x", DType::F32, Shape::new([0usize, 2, 3]));
        let y = b.input("y", DType::F32, Shape::new([0usize, 3, 2]));
        b.output("product", x.contract("bik,bkj->bij", y).exp());
        b.output("sum", x.sum(&[0]));
        let after = check(&PASS, b.finish().unwrap());
        // The sum of nothing has elements.
        assert_eq!((count(&after, "contract"), count(&after, "map"), count(&after, "reduce")), (0, 0, 1));
    }

    #[test]
    fn a_chain_of_constants_becomes_one() {
        let b = Builder::new("chain");
        let x = b.input("x", DType::F32, Shape::new([2usize]));
        let table = b.constant(Literal::f32s(&[1.0, 2.0, 3.0, 4.0]));
        let scale = table.reshape(Shape::new([2usize, 2])).permute(&[1, 0]).reduce(Monoid::Sum, &[1]);
        b.output("y", x * scale * b.scalar(DType::F32, 2.0));
        let after = check(&PASS, b.finish().unwrap());
        assert_eq!((count(&after, "reduce"), count(&after, "const")), (0, 2));
    }

    #[test]
    fn repetition_and_randomness_and_large_constants_stay() {
        let b = Builder::new("stay");
        let scalar = b.scalar(DType::F32, 1.5);
        b.output("spread", scalar.expand(Shape::new([3usize, 4])));
        b.output("random", b.random(b.int(DType::I64, 7), Shape::new([4usize])));
        let large = Literal::from_f64s(DType::F32, [20_000], &vec![1.0; 20_000]).unwrap();
        b.output("large", b.constant(large).exp());
        let graph = b.finish().unwrap();
        assert_eq!(check(&PASS, graph.clone()), graph);
    }

    #[test]
    fn quantised_weights_stay_short() {
        let b = Builder::new("weights");
        let x = b.input("x", DType::F32, Shape::new([8usize, 64]));
        let values: Vec<i64> = (0..512).map(|k| k * 7 % 100).collect();
        let weights = b.constant(Literal::from_ints(DType::I8, [64, 8], &values).unwrap());
        b.output("y", x.matmul(weights.cast(DType::F32) * 0.1));
        let after = check(&PASS, b.finish().unwrap());
        assert_eq!(count(&after, "map"), 3, "the number, the conversion, the product: {after:?}");
    }

    #[test]
    fn an_index_that_is_out_of_range_is_left_for_run_time() {
        let b = Builder::new("range");
        let data = b.constant(Literal::f32s(&[1.0, 2.0]));
        b.output("y", data.take(0, b.constant(Literal::i64s(&[5]))));
        let after = applied(&PASS, &b.finish().unwrap(), &Context::default());
        assert_eq!(count(&after, "gather"), 1);
    }
}
