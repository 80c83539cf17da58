//! Dead code.

use super::{Context, Pass};
use crate::error::Result;
use crate::graph::Graph;
use crate::graph::rewrite::rewrite;

pub(super) const PASS: Pass =
    Pass { name: "drop-dead", doc: "Nodes that no output, constraint or bound size needs are dropped.", run };

/// In: any graph. Out: the same graph without the nodes that no output needs, here and in every region. Inputs stay,
/// and so does what binds a size that somebody mentions.
fn run(graph: &Graph, context: &Context) -> Result<Option<Graph>> {
    rewrite(graph, &context.budget, |_, _, _| Ok(None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Builder;
    use crate::tensor::{DType, Shape};

    #[test]
    fn what_binds_a_used_size_is_alive() {
        let b = Builder::new("bind");
        let n = b.input("n", DType::I64, Shape::scalar());
        let x = b.input("x", DType::F32, Shape::scalar());
        let _dead = x.exp() + 1.0;
        let size = b.bind(n).unwrap();
        b.output("y", x.expand(Shape::new([size])));
        let after = run(&b.finish().unwrap(), &Context::default()).unwrap().unwrap();
        let names: Vec<_> = after.nodes().iter().map(|n| n.prim().name()).collect();
        assert_eq!(names, ["input", "input", "bind", "view"]);
    }
}
