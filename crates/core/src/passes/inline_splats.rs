//! Constants inside the expressions that read them.

use smallvec::SmallVec;

use super::{Context, Pass, formula};
use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, replaced, rewrite};
use crate::graph::{Graph, Value};
use crate::ops::prim::Map;
use crate::ops::{Expr, ExprNode, Prim};
use crate::tensor::DType;

pub(super) const PASS: Pass = Pass {
    name: "inline-splats",
    doc: "Constants of equal elements, ranges and triangular masks become expressions of coordinates inside their readers.",
    run,
};

/// In: any graph. Out: no map reads an operand whose elements are a cheap function of coordinates and sizes (see
/// [`formula`]), no view looks at one, no running sum counts, and no stored constant of more than one element is one.
fn run(graph: &Graph, context: &Context) -> Result<Option<Graph>> {
    rewrite(graph, &context.budget, |rebuild, node, args| match node.prim() {
        Prim::Const(row) => match formula::of_table(&row.literal, context) {
            Some(expr) => replaced(rebuild.add(Map { expr, shape: row.literal.ty().shape }, &[])?),
            None => Ok(None),
        },
        Prim::View(row) => match formula::of_view(rebuild.graph(), row, args[0]) {
            Some(expr) => replaced(rebuild.add(Map { expr, shape: row.shape.clone() }, &[])?),
            None => Ok(None),
        },
        Prim::Prefix(row) => match formula::of_running_sum(rebuild.graph(), row, args[0]) {
            Some(expr) => replaced(rebuild.add(Map { expr, shape: node.types()[0].shape.clone() }, &[])?),
            None => Ok(None),
        },
        Prim::Map(row) => inline(rebuild, row, args),
        _ => Ok(None),
    })
}

fn inline(rebuild: &mut Rebuild<'_>, row: &Map, args: &[Value]) -> Result<Option<Values>> {
    let formulas: SmallVec<[Option<Expr>; 3]> = args.iter().map(|a| formula::of_value(rebuild.graph(), *a)).collect();
    if formulas.iter().all(Option::is_none) {
        return Ok(None);
    }
    let kept: SmallVec<[usize; 3]> = (0..args.len()).filter(|k| formulas[*k].is_none()).collect();
    let dtypes: SmallVec<[DType; 3]> = kept.iter().map(|k| row.expr.args()[*k]).collect();
    let expr = Expr::build(&dtypes, |scope, terms| {
        row.expr.inline_with(scope, |node| match node {
            ExprNode::Arg(k) => Some(match &formulas[*k as usize] {
                Some(formula) => formula.inline_with(scope, |_| None),
                None => terms[kept.iter().position(|j| *j == *k as usize).expect("arguments without formula are kept")],
            }),
            _ => None,
        })
    });
    let args: SmallVec<[Value; 3]> = kept.iter().map(|k| args[*k]).collect();
    replaced(rebuild.add(Map { expr, shape: row.shape.clone() }, &args)?)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, count};
    use super::*;
    use crate::graph::Builder;
    use crate::tensor::{Dim, Literal, Shape};

    #[test]
    fn numbers_beside_a_tensor_are_part_of_its_expression() {
        let b = Builder::new("numbers");
        let x = b.input("x", DType::F32, Shape::new([Dim::named("n"), Dim::int(3)]));
        let bias = b.constant(Literal::from_f64s(DType::F32, [3], &[0.5; 3]).unwrap());
        b.output("y", x * 2.0 + bias + b.scalar(DType::F32, 0.1));
        let after = check(&PASS, b.finish().unwrap());
        assert_eq!((count(&after, "const"), count(&after, "view"), count(&after, "map")), (0, 0, 3));
    }

    #[test]
    fn a_stored_causal_mask_is_a_comparison_in_its_reader() {
        let b = Builder::new("mask");
        let s = Dim::named("s");
        let x = b.input("x", DType::F32, Shape::new([Dim::named("n"), s.clone(), s.clone()]));
        let mask: Vec<f64> = (0..64).map(|k| f64::from(u8::from(k % 8 <= k / 8))).collect();
        let mask = b.constant(Literal::from_f64s(DType::Bool, [1, 8, 8], &mask).unwrap());
        let cut = mask.slice(1, 0usize, s.clone(), 1).slice(2, 0usize, s, 1);
        b.output("y", cut.select(x, b.scalar(DType::F32, f64::NEG_INFINITY)));
        let after = check(&PASS, b.finish().unwrap());
        assert_eq!((after.nodes().len(), count(&after, "map")), (2, 1), "{after:?}");
    }

    #[test]
    fn running_sums_of_ones_are_places() {
        let b = Builder::new("counts");
        let x = b.input("x", DType::I32, Shape::new([Dim::named("n"), Dim::int(3)]));
        let ones = b.int(DType::I32, 2).expand(x.shape().unwrap());
        b.output("y", x + ones.prefix(crate::ops::prim::Monoid::Sum, 0, false));
        b.output("z", x + ones.prefix(crate::ops::prim::Monoid::Sum, 1, true));
        let after = check(&PASS, b.finish().unwrap());
        assert_eq!((count(&after, "prefix"), count(&after, "map")), (0, 2), "{after:?}");
    }

    #[test]
    fn a_padded_splat_is_a_choice_by_coordinates() {
        let b = Builder::new("pad");
        let one = b.scalar(DType::F32, 1.0).expand(Shape::new([Dim::named("n")]));
        b.output("n", b.input("n", DType::F32, Shape::new([Dim::named("n")])));
        let x = b.input("x", DType::F32, Shape::new([Dim::named("n") + 3]));
        b.output("y", x + one.pad(&[Dim::int(1)], &[Dim::int(2)], 0.0));
        let after = check(&PASS, b.finish().unwrap());
        assert_eq!(after.nodes().len(), 3, "{after:?}");
    }
}
