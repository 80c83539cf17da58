//! Factors of contractions in bf16 or f16.

use super::narrow::{behind_views, is_formula, is_rounded, rounded};
use super::{Context, Numerics, Pass};
use crate::error::Result;
use crate::graph::rewrite::{replaced, rewrite};
use crate::graph::{Graph, Node, Value};
use crate::ops::Prim;
use crate::ops::prim::Contract;
use crate::tensor::DType;

pub(super) const PASS: Pass = Pass {
    name: "round-factors",
    doc: "Where bf16 or f16 is asked for, the factors of contractions are rounded to it; sums stay f32.",
    run,
};

/// Sums of fewer terms stay as they are: units for narrow factors gain nothing there, and positions times frequencies must not be
/// rounded.
const FEWEST_TERMS: i64 = 16;

/// In: any graph. Out: under a narrow precision and other than strict numerics, both factors of every contraction of f32 that is
/// summed in f32 over at least (or perhaps) [`FEWEST_TERMS`] terms are widened from the narrow type, directly or seen through views,
/// unless one of them is a formula, or widened from the other type of 16 bits; a value is rounded in front of the views of it, once for all its readers. Nothing else
/// changes.
fn run(graph: &Graph, context: &Context) -> Result<Option<Graph>> {
    let Some(dtype) = context.precision.narrow().filter(|_| context.numerics != Numerics::Strict) else {
        return Ok(None);
    };
    rewrite(graph, &context.budget, |rebuild, node, args| match node.prim() {
        Prim::Contract(row) if gains(row, node, rebuild.graph(), args, dtype) => {
            let factors = [rounded(rebuild, args[0], dtype)?, rounded(rebuild, args[1], dtype)?];
            replaced(rebuild.add(row.clone(), &factors)?)
        }
        _ => Ok(None),
    })
}

/// Whether a contraction, of operands in a graph, is one of those whose factors are rounded to this type.
pub(super) fn gains(row: &Contract, node: &Node, graph: &Graph, args: &[Value], dtype: DType) -> bool {
    let types = [graph.ty(args[0]).clone(), graph.ty(args[1]).clone()];
    let terms = row.summed().into_iter().try_fold(1i64, |terms, label| {
        let size = row.extent(&types, label)?.as_int()?;
        terms.checked_mul(size)
    });
    let is_f32 = node.types()[0].dtype == DType::F32 && row.accumulator == DType::F32;
    let is_long = terms.is_none_or(|terms| terms >= FEWEST_TERMS);
    is_f32 && is_long && !args.iter().any(|arg| is_formula(graph, *arg) || is_of_another_kind(graph, *arg, dtype))
}

/// Whether a value, behind views, holds numbers of the other type of 16 bits: a model that has such numbers has chosen what it loses.
fn is_of_another_kind(graph: &Graph, value: Value, dtype: DType) -> bool {
    let others = [DType::F16, DType::BF16].into_iter().filter(|other| *other != dtype);
    let node = behind_views(graph, value);
    others.into_iter().any(|other| matches!(node.prim(), Prim::Map(_)) && is_rounded(node, other))
}

#[cfg(test)]
mod tests {
    use super::super::Precision;
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
    fn a_model_of_the_other_narrow_type_keeps_its_numbers() {
        for (dtype, rounded) in [(DType::F16, 0), (DType::BF16, 2)] {
            let b = Builder::new("attention");
            let [p, v] = [DType::F32, dtype].map(|ty| b.input(ty.name(), ty, Shape::new([32usize, 32])));
            b.output("y", p.matmul(v.cast(DType::F32).transpose()));
            let after = in_bf16(b.finish().unwrap());
            // Of bf16 one is the input.
            assert_eq!(casts(&after), rounded, "{after:?}");
        }
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
