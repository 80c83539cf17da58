//! Concats that one kernel can compute.

use super::{Context, Pass};
use crate::error::Result;
use crate::graph::rewrite::{replaced, rewrite};
use crate::graph::{Graph, Value};
use crate::ops::Prim;

pub(super) const PASS: Pass = Pass {
    name: "split-concats",
    doc: "A concat of very many parts is a concat of concats: a kernel takes only so many tensors.",
    run,
};

/// A concat has no more parts than this: every device can pass as many tensors to a kernel, and one looks for its part among them
/// at every element.
const MOST_PARTS: usize = 32;

/// In: any graph. Out: no concat has more than [`MOST_PARTS`] operands.
fn run(graph: &Graph, context: &Context) -> Result<Option<Graph>> {
    rewrite(graph, &context.budget, |rebuild, node, args| {
        let Prim::Concat(row) = node.prim() else { return Ok(None) };
        if args.len() <= MOST_PARTS {
            return Ok(None);
        }
        let mut parts: Vec<Value> = args.to_vec();
        while parts.len() > 1 {
            let runs = parts.chunks(MOST_PARTS).map(|run| match run {
                [only] => Ok(*only),
                _ => rebuild.add(row.clone(), run),
            });
            parts = runs.collect::<Result<_>>()?;
        }
        replaced(parts[0])
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, count};
    use super::*;
    use crate::graph::{Builder, Tensor};
    use crate::tensor::{DType, Shape};

    #[test]
    fn many_parts_stay_in_order() {
        let b = Builder::new("many");
        let x = b.input("x", DType::F32, Shape::new([3usize]));
        let y = b.input("y", DType::F32, Shape::new([2usize]));
        let parts: Vec<Tensor<'_>> = (0..3 * MOST_PARTS + 1).map(|k| if k % 5 == 0 { y } else { x }).collect();
        b.output("few", b.concat(&parts[..MOST_PARTS], 0));
        b.output("many", b.concat(&parts, 0));
        let after = check(&PASS, b.finish().unwrap());
        // What is returned as few is also the first part of many.
        assert_eq!(count(&after, "concat"), 4, "{after}");
        assert!(after.nodes().iter().all(|node| node.args().len() <= MOST_PARTS));
    }
}
