//! Computations with sizes.

use super::{Context, Pass};
use crate::error::Result;
use crate::graph::contents::{Known, to_literal};
use crate::graph::rewrite::{Rebuild, Values, replaced, rewrite};
use crate::graph::{Graph, Node, Value};
use crate::ops::prim::{Class, Const, Map, Sizes, View};
use crate::ops::{Expr, Prim};
use crate::tensor::{DType, Dim, TensorType};

pub(super) const PASS: Pass = Pass {
    name: "shape-arithmetic",
    doc: "Small integer tensors whose elements are known as expressions in sizes become constants or `sizes`.",
    run,
};

/// In: any graph. Out: an integer or bool tensor whose elements are all known (see [`crate::graph::contents`]) is a
/// constant, a `sizes`, or a map without operands; nothing computes it from other tensors any more.
fn run(graph: &Graph, context: &Context) -> Result<Option<Graph>> {
    rewrite(graph, &context.budget, |rebuild, node, args| {
        let settled = args.is_empty() || matches!(node.prim().class(), Class::Source | Class::Control);
        match node.types() {
            [ty] if !settled && !ty.dtype.is_float() => resolve(rebuild, node, args, ty),
            _ => Ok(None),
        }
    })
}

fn resolve(rebuild: &mut Rebuild<'_>, node: &Node, args: &[Value], ty: &TensorType) -> Result<Option<Values>> {
    let value = rebuild.at_hand(node, args)?;
    let (Some(known), Some(sizes)) = (rebuild.contents(value), ty.shape.as_ints()) else { return Ok(None) };
    if let Some(literal) = to_literal(&known, ty.dtype, sizes) {
        return replaced(rebuild.add(Const { literal }, &[])?);
    }
    let dims: Option<Vec<Dim>> = known
        .iter()
        .map(|k| match k {
            Known::Int(dim) => Some(dim.clone()),
            Known::Float(_) | Known::Unknown => None,
        })
        .collect();
    match dims {
        Some(dims) => replaced(sizes_as(rebuild, dims, ty)?),
        None => Ok(None),
    }
}

/// Sizes as a tensor of an integer type.
fn sizes_as(rebuild: &mut Rebuild<'_>, dims: Vec<Dim>, ty: &TensorType) -> Result<Value> {
    if let ([dim], 0) = (dims.as_slice(), ty.shape.rank()) {
        let expr = Expr::build(&[], |scope, _| scope.size(dim.clone()).cast(ty.dtype));
        return rebuild.add(Map { expr, shape: ty.shape.clone() }, &[]);
    }
    let mut value = rebuild.add(Sizes { dims }, &[])?;
    if ty.shape.rank() != 1 {
        let flat = ty.shape.flat_index(&crate::ops::prim::identity_map(ty.shape.rank()));
        value = rebuild.add(View::new(ty.shape.clone(), vec![flat]), &[value])?;
    }
    if ty.dtype != DType::I64 {
        let expr = Expr::cast(DType::I64, ty.dtype);
        value = rebuild.add(Prim::from(Map { expr, shape: ty.shape.clone() }), &[value])?;
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, count};
    use super::*;
    use crate::graph::Builder;
    use crate::tensor::{Literal, Shape};

    #[test]
    fn a_shape_computed_by_gathers_and_concats_is_a_vector_of_sizes() {
        let b = Builder::new("shape");
        let (n, s) = (Dim::named("n"), Dim::named("s"));
        let x = b.input("x", DType::F32, Shape::new([n.clone(), s.clone()]));
        let shape = b.sizes(&[n.clone(), s.clone(), Dim::int(768)]);
        let head = shape.take(0, b.int(DType::I64, 1)) * 12;
        let tail = shape.slice(0, 1usize, 2usize, 1);
        b.output("new", b.concat(&[head.reshape(Shape::new([1usize])), tail], 0));
        b.output("narrow", head.cast(DType::I32));
        b.output("square", b.concat(&[tail, tail], 0).reshape(Shape::new([2usize, 2])));
        b.output("x", x);
        let after = check(&PASS, b.finish().unwrap());
        for name in ["gather", "concat"] {
            assert_eq!(count(&after, name), 0, "{after:?}");
        }
        assert_eq!((count(&after, "sizes"), count(&after, "view"), count(&after, "map")), (2, 1, 1));
    }

    #[test]
    fn a_number_that_the_caller_brings_stays() {
        let b = Builder::new("value");
        let n = b.input("n", DType::I64, Shape::new([2usize]));
        b.output("y", b.concat(&[n + 1, b.constant(Literal::i64s(&[3]))], 0));
        let after = check(&PASS, b.finish().unwrap());
        assert_eq!((count(&after, "map"), count(&after, "concat")), (1, 1));
    }
}
