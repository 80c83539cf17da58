//! The pipeline, from a front end's graph to a program that a device can load.

use crate::error::{Context as _, Result};
use crate::graph::{Graph, verify};
use crate::passes::{Context, run_passes};
use crate::program::Program;

/// Compiles a graph: the stages in order.
pub fn compile(graph: Graph, context: &Context) -> Result<Program> {
    // First: what a front end did wrong must neither be blamed on a pass nor hidden by one that drops it.
    verify(&graph).at(|| "the graph as it came in")?;
    // Make the meaning plain: no planner should see shape arithmetic or views of views.
    let graph = run_passes(graph, context, &mut |_| {})?;
    // Split by time: only now is it known which constants are too large to have been folded.
    Program::new(&graph)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::device::{Device, ReferenceDevice};
    use crate::graph::Builder;
    use crate::passes::Numerics;
    use crate::reference::{self, Reading};
    use crate::tensor::{DType, Dim, Literal, Shape};

    fn sample() -> Graph {
        let b = Builder::new("layer");
        let x = b.input("x", DType::F32, Shape::new([Dim::named("n"), Dim::int(160)]));
        let values: Vec<f64> = (0..160 * 160).map(|k| (k % 17) as f64 - 8.0).collect();
        let weights = b.constant(Literal::from_f64s(DType::F32, [160, 160], &values).unwrap());
        let y = x.matmul((weights * 0.3).exp().transpose()) / 3.0;
        b.output("y", (y - y.mean(&[1])) / ((y * y).mean(&[1]) + 1e-5).sqrt());
        b.finish().unwrap()
    }

    #[test]
    fn a_loaded_program_computes_what_its_graph_means() {
        let graph = sample();
        let values: Vec<f64> = (0..320).map(|k| (k % 29) as f64 * 0.1 - 1.4).collect();
        let x = Literal::from_f64s(DType::F32, [2, 160], &values).unwrap();
        let inputs = [(Arc::<str>::from("x"), x)];
        let strict = Context { numerics: Numerics::Strict, ..Context::default() };
        for reading in [Reading::Exact, Reading::Rounded] {
            let options = reference::Options { reading, ..reference::Options::default() };
            let program = compile(graph.clone(), &strict).unwrap();
            assert_eq!(program.prepare().outputs().len(), 1, "{program:?}");
            let loaded = ReferenceDevice { options }.load(&program).unwrap();
            let expected = reference::evaluate(&graph, &inputs.iter().cloned().collect(), &options).unwrap();
            assert_eq!(loaded.run(&inputs.iter().cloned().collect()).unwrap(), expected, "{reading:?}");
        }
    }

    #[test]
    fn compiling_twice_gives_the_same_program() {
        let context = Context::default();
        assert_eq!(compile(sample(), &context).unwrap(), compile(sample(), &context).unwrap());
    }
}
