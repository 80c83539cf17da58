//! Factors of contractions in bf16.

use super::{Context, Numerics, Pass, Precision, formula};
use crate::error::Result;
use crate::graph::contents;
use crate::graph::rewrite::{Rebuild, replaced, rewrite};
use crate::graph::{Graph, Node, Value};
use crate::ops::prim::{Contract, Map, View};
use crate::ops::{Expr, ExprNode, Prim};
use crate::tensor::DType;

pub(super) const PASS: Pass = Pass {
    name: "round-factors",
    doc: "Where bf16 is asked for, the factors of contractions are rounded to it; sums and everything else stay f32.",
    run,
};

/// Sums of fewer terms stay as they are: units for bf16 gain nothing there, and positions times frequencies must not be
/// rounded.
const FEWEST_TERMS: i64 = 16;

/// In: any graph. Out: under [`Precision::Bf16`] and other than strict numerics, both factors of every contraction of f32 that is
/// summed in f32 over at least (or perhaps) [`FEWEST_TERMS`] terms are widened from bf16, directly or seen through views,
/// unless one of them is a formula; a value is rounded in front of the views of it, once for all its readers. Nothing else
/// changes.
fn run(graph: &Graph, context: &Context) -> Result<Option<Graph>> {
    if context.precision == Precision::F32 || context.numerics == Numerics::Strict {
        return Ok(None);
    }
    rewrite(graph, &context.budget, |rebuild, node, args| match node.prim() {
        Prim::Contract(row) if gains(row, node, rebuild.graph(), args) => {
            let mut factor = |arg: Value| rounded(rebuild, arg, formula::MOST_VIEWS);
            let factors = [factor(args[0])?, factor(args[1])?];
            replaced(rebuild.add(row.clone(), &factors)?)
        }
        _ => Ok(None),
    })
}

/// Whether a contraction is one of those that are computed in bf16.
fn gains(row: &Contract, node: &Node, graph: &Graph, args: &[Value]) -> bool {
    let types = [graph.ty(args[0]).clone(), graph.ty(args[1]).clone()];
    let terms = row.summed().into_iter().try_fold(1i64, |terms, label| {
        let size = row.extent(&types, label)?.as_int()?;
        terms.checked_mul(size)
    });
    let is_f32 = node.types()[0].dtype == DType::F32 && row.accumulator == DType::F32;
    let is_long = terms.is_none_or(|terms| terms >= FEWEST_TERMS);
    is_f32 && is_long && !args.iter().any(|arg| is_formula(graph, *arg))
}

/// Whether a factor is a function of coordinates alone, which is computed where it is read.
fn is_formula(graph: &Graph, value: Value) -> bool {
    let mut node = graph.node_of(value);
    while let Prim::View(_) = node.prim() {
        node = graph.node_of(node.args()[0]);
    }
    matches!(node.prim(), Prim::Map(_)) && node.args().is_empty()
}

/// A value rounded to bf16 and widened again: behind views, of which up to `views` are looked through.
fn rounded(rebuild: &mut Rebuild<'_>, value: Value, views: usize) -> Result<Value> {
    let node = rebuild.graph().node_of(value).clone();
    if let Prim::View(row) = node.prim()
        && views > 0
        && row.fill.is_none_or(|fill| is_bf16(fill.to_f64()))
    {
        let seen = rounded(rebuild, node.args()[0], views - 1)?;
        return rebuild.add(View::clone(row), &[seen]);
    }
    if is_rounded(&node) {
        return Ok(value);
    }
    let shape = rebuild.graph().ty(value).shape.clone();
    let narrow = rebuild.add(Map { expr: Expr::cast(DType::F32, DType::BF16), shape: shape.clone() }, &[value])?;
    rebuild.add(Map { expr: Expr::cast(DType::BF16, DType::F32), shape }, &[narrow])
}

/// Whether a node gives nothing but numbers that bf16 holds: a map that widens them, or a table so small that it was folded.
fn is_rounded(node: &Node) -> bool {
    match node.prim() {
        Prim::Map(row) => match row.expr.nodes() {
            [.., (ExprNode::Cast(from), DType::F32)] => row.expr.nodes()[*from as usize].1 == DType::BF16,
            _ => false,
        },
        Prim::Const(row) => {
            let table = &row.literal;
            table.count() <= contents::MOST_ELEMENTS && (0..table.count()).all(|k| is_bf16(table.float(k)))
        }
        _ => false,
    }
}

fn is_bf16(x: f64) -> bool {
    DType::BF16.round(x).to_bits() == x.to_bits() || x.is_nan()
}

#[cfg(test)]
mod tests {
    use super::super::testing::count;
    use super::*;
    use crate::graph::Builder;
    use crate::passes::run_passes;
    use crate::tensor::{Dim, Literal, Shape};

    fn in_bf16(graph: Graph) -> Graph {
        let context = Context { precision: Precision::Bf16, ..Context::default() };
        let after = run_passes(graph, &context, &mut |_| {}).unwrap();
        let mut rounds = 0;
        let again = run_passes(after.clone(), &context, &mut |step| rounds = step.round).unwrap();
        assert_eq!((&again, rounds), (&after, 0), "the passes do not settle");
        after
    }

    fn casts(graph: &Graph) -> usize {
        let to_bf16 = |node: &&Node| node.types()[0].dtype == DType::BF16;
        graph.nodes().iter().filter(to_bf16).count()
    }

    #[test]
    fn each_factor_is_rounded_once_for_all_that_read_it() {
        let b = Builder::new("shared");
        let x = b.input("x", DType::F32, Shape::new([Dim::named("n"), Dim::int(32)]));
        let y = b.input("y", DType::F32, Shape::new([32usize, 32]));
        b.output("z", x.matmul(y) + x.matmul(y.transpose()));
        let after = in_bf16(b.finish().unwrap());
        assert_eq!((casts(&after), count(&after, "contract")), (2, 2), "{after:?}");
    }

    #[test]
    fn small_tables_keep_their_type_and_short_sums_stay() {
        for (terms, rounded) in [(4usize, 0), (16, 1), (160, 2)] {
            let b = Builder::new("tables");
            let x = b.input("x", DType::F32, Shape::new([Dim::named("n"), Dim::int(terms as i64)]));
            let values: Vec<f64> = (0..2 * terms).map(|k| 0.1 * k as f64).collect();
            let table = b.constant(Literal::from_f64s(DType::F32, [terms, 2], &values).unwrap());
            b.output("y", x.matmul(table));
            let after = in_bf16(b.finish().unwrap());
            assert_eq!(casts(&after), rounded, "{after:?}");
        }
    }

    #[test]
    fn formulas_and_what_is_multiplied_with_them_stay() {
        let b = Builder::new("formula");
        let x = b.input("x", DType::F32, Shape::new([Dim::named("n"), Dim::int(64)]));
        let values: Vec<f64> = (0..64 * 64).map(|k| f64::from(u8::from(k % 64 <= k / 64)) * 0.1).collect();
        b.output("y", x.matmul(b.constant(Literal::from_f64s(DType::F32, [64, 64], &values).unwrap())));
        assert_eq!(casts(&in_bf16(b.finish().unwrap())), 0);
    }

    #[test]
    fn strict_numerics_round_nothing() {
        let b = Builder::new("strict");
        let x = b.input("x", DType::F32, Shape::new([32usize, 32]));
        b.output("y", x.matmul(x));
        let graph = b.finish().unwrap();
        let strict = Context { numerics: Numerics::Strict, precision: Precision::Bf16, ..Context::default() };
        assert_eq!(PASS.apply(&graph, &strict).unwrap(), None);
        assert_eq!(PASS.apply(&graph, &Context::default()).unwrap(), None);
    }
}
