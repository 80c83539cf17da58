//! Rows 10 and 11: softmax and attention, written as exporters write them.

use super::Entry;
use super::sketch::Sketch;
use crate::graph::Tensor;
use crate::ops::named::Attribute;
use crate::tensor::DType;

const MATRIX: &[(&str, i64)] = &[("rows", 512), ("columns", 1024)];
const SCORES: &[(&str, i64)] = &[("batch", 1), ("heads", 8), ("queries", 128), ("keys", 128)];
const CROSS: &[(&str, i64)] = &[("batch", 1), ("heads", 8), ("queries", 128), ("keys", 128), ("size", 64)];
const SELF: &[(&str, i64)] = &[("batch", 1), ("heads", 8), ("tokens", 128), ("size", 64)];

pub(super) static ENTRIES: &[Entry] = &[
    Entry::new(10, "softmax", "exp(x) / Σ exp(x) over each row", MATRIX, |s| {
        s.output("y", softmax(s, s.input("x", &["rows", "columns"])));
        Ok(())
    }),
    Entry::new(10, "masked_softmax", "softmax(scores / 8 + mask)", SCORES, |s| {
        let scores = s.input("scores", &["batch", "heads", "queries", "keys"]);
        let scaled = s.op("Mul", &[scores, s.number(0.125)]);
        s.output("p", softmax(s, s.op("Add", &[scaled, s.input("mask", &["queries", "keys"])])));
        Ok(())
    }),
    Entry::new(11, "attention", "softmax(q · kᵀ / √size) · v", CROSS, |s| {
        let [q, k, v] = cross_inputs(s);
        s.output("y", s.op("MatMul", &[softmax(s, scores(s, q, k)), v]));
        Ok(())
    }),
    Entry::new(
        11,
        "masked_attention",
        "attention to the keys that a mask allows; a query without any gives 0",
        CROSS,
        |s| {
            let [q, k, v] = cross_inputs(s);
            let mask = s.typed_input("mask", DType::Bool, &["queries", "keys"]);
            let allowed = s.op("Where", &[mask, scores(s, q, k), s.number(f64::NEG_INFINITY)]);
            let p = softmax(s, allowed);
            // A row without any key is −∞ throughout, and its softmax is NaN.
            let p = s.op("Where", &[s.op("IsNaN", &[p]), s.number(0.0), p]);
            s.output("y", s.op("MatMul", &[p, v]));
            Ok(())
        },
    ),
    Entry::new(11, "causal_attention", "attention of every token to itself and those before it", SELF, |s| {
        let [q, k, v] = ["q", "k", "v"].map(|name| s.input(name, &["batch", "heads", "tokens", "size"]));
        let scores = scores(s, q, k);
        let mask = s.part("CausalMask", || {
            let mut shape = scores.shape()?;
            shape = shape.dims()[2..].to_vec().into();
            let builder = scores.builder();
            Ok(builder.coordinate(1, &shape).le(builder.coordinate(0, &shape)))
        })?;
        let allowed = s.op("Where", &[mask, scores, s.number(f64::NEG_INFINITY)]);
        s.output("y", s.op("MatMul", &[softmax(s, allowed), v]));
        Ok(())
    }),
];

fn softmax<'s>(s: &'s Sketch, x: Tensor<'s>) -> Tensor<'s> {
    s.op_with("Softmax", &[x], &[("axis", Attribute::Int(-1))])
}

fn cross_inputs(s: &Sketch) -> [Tensor<'_>; 3] {
    let keys = &["batch", "heads", "keys", "size"];
    [s.input("q", &["batch", "heads", "queries", "size"]), s.input("k", keys), s.input("v", keys)]
}

/// `q · kᵀ / √size`.
fn scores<'s>(s: &'s Sketch, q: Tensor<'s>, k: Tensor<'s>) -> Tensor<'s> {
    let turned = s.op_with("Transpose", &[k], &[("perm", Attribute::Ints(vec![0, 1, 3, 2]))]);
    let product = s.op("MatMul", &[q, turned]);
    let root = s.part("Sqrt", || {
        let size = q.dim(3)?;
        Ok(q.builder().size(&size).cast(q.dtype()?).sqrt())
    });
    s.op("Div", &[product, q.builder().settle(root)])
}
