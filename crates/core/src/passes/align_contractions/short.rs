//! Contractions of few products.

use smallvec::SmallVec;

use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, replaced};
use crate::graph::{Graph, Value};
use crate::ops::prim::{Contract, Label, Map, View};
use crate::ops::{Expr, Prim, Term};
use crate::passes::compose_views::compose;
use crate::tensor::{DType, Dim, TensorType};

/// Sums of more products are contractions, whatever they are made of.
const MOST_PRODUCTS: i64 = 4;

/// The contraction with a small matrix that was put together from its elements, as the sum of products that it is: a rotation of pairs by
/// cosines and sines.
pub(super) fn written_out(
    rebuild: &mut Rebuild<'_>,
    row: &Contract,
    args: &[Value],
    result: &TensorType,
) -> Result<Option<Values>> {
    let types = [rebuild.graph().ty(args[0]).clone(), rebuild.graph().ty(args[1]).clone()];
    let &[label] = row.summed().as_slice() else { return Ok(None) };
    let count = row.extent(&types, label).and_then(Dim::as_int).filter(|n| (2..=MOST_PRODUCTS).contains(n));
    let is_plain = result.dtype == DType::F32 && types.iter().all(|ty| ty.dtype == DType::F32);
    let Some(count) = count.filter(|_| is_plain) else { return Ok(None) };
    if !args.iter().any(|arg| is_put_together(rebuild.graph(), *arg)) {
        return Ok(None);
    }
    let mut factors: SmallVec<[Value; 8]> = SmallVec::new();
    for k in 0..count {
        for (arg, labels) in args.iter().zip([&row.a, &row.b]) {
            let place = |l: &Label| row.out.iter().position(|o| o == l).map_or(Dim::int(k), Dim::axis);
            let view = View::new(result.shape.clone(), labels.iter().map(place).collect());
            factors.push(compose(rebuild, view, *arg)?.map_or(*arg, |values| values[0]));
        }
    }
    let expr = Expr::build(&vec![DType::F32; factors.len()], |_, x| {
        let products = x.chunks(2).map(|pair| pair[0] * pair[1]);
        products.reduce(|a: Term<'_>, b| a + b).expect("two products at least")
    });
    replaced(rebuild.add(Map { expr, shape: result.shape.clone() }, &factors)?)
}

/// Whether a value is a concat, seen perhaps through a view.
fn is_put_together(graph: &Graph, value: Value) -> bool {
    let node = graph.node_of(value);
    match node.prim() {
        Prim::Concat(_) => true,
        Prim::View(view) => view.guard.is_empty() && matches!(graph.node_of(node.args()[0]).prim(), Prim::Concat(_)),
        _ => false,
    }
}
