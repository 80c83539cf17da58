//! Functions of one tensor: activations, however many nodes they are written with.

use smallvec::SmallVec;

use super::cell::{Cells, Nodes};
use crate::graph::{Graph, Value};
use crate::ops::Prim;

/// A function has no more nodes than this.
const MOST_NODES: usize = 32;

/// For every node, the last node of the function that it is a part of, if that has several.
///
/// A function reads one tensor, element by element, and stores one of its shape; nobody else reads what lies between. Nothing between is
/// narrower than both: what quantises is one function, what reads the result another, so that the narrow tensor may be stored.
pub(super) fn functions(graph: &Graph, cells: &Cells) -> Vec<Option<u32>> {
    let mut last_of: Vec<Option<u32>> = vec![None; graph.nodes().len()];
    for last in cells.iter().collect::<Vec<_>>().into_iter().rev() {
        if last_of[last].is_none() && is_map(graph, cells, last) {
            let nodes = function(graph, cells, last);
            for node in nodes.iter().filter(|_| nodes.len() > 1) {
                last_of[*node as usize] = Some(last as u32);
            }
        }
    }
    last_of
}

fn is_map(graph: &Graph, cells: &Cells, node: usize) -> bool {
    cells.is_cell[node] && matches!(graph.nodes()[node].prim(), Prim::Map(_))
}

/// The largest function that ends with a node; that node alone where there is none.
fn function(graph: &Graph, cells: &Cells, last: usize) -> Nodes {
    let bits = |value: Value| graph.ty(value).dtype.bits();
    let result = Value::new(last, 0);
    let has_shape = |value: Value| graph.ty(value).shape == graph.ty(result).shape;
    let could_be_inside =
        |value: &Value| is_map(graph, cells, value.node()) && !cells.is_output[value.node()] && has_shape(*value);
    let mut nodes = Nodes::new();
    let mut best = 1;
    let mut narrowest = usize::MAX;
    // What is read from outside so far, each once.
    let mut read: SmallVec<[Value; 4]> = SmallVec::new();
    let mut next = last;
    while nodes.len() < MOST_NODES {
        nodes.push(next as u32);
        read.retain(|value| value.node() != next);
        for arg in graph.nodes()[next].args() {
            if !read.contains(arg) {
                read.push(*arg);
            }
        }
        if let [one] = read.as_slice()
            && has_shape(*one)
            && narrowest >= bits(*one).min(bits(result))
        {
            best = nodes.len();
        }
        // Two that cannot be inside stay two.
        if read.iter().filter(|value| !could_be_inside(value)).nth(1).is_some() {
            break;
        }
        let serves_only_these = |value: &Value| cells.readers[value.node()].iter().all(|reader| nodes.contains(reader));
        // The latest first: its readers are all known then.
        let inside = read.iter().filter(|value| could_be_inside(value) && serves_only_these(value));
        let Some(latest) = inside.max_by_key(|value| value.node()).copied() else { break };
        narrowest = narrowest.min(bits(latest));
        next = latest.node();
    }
    nodes.truncate(best);
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuse::structure::Numbering;
    use crate::graph::{Builder, Tensor};
    use crate::tensor::{DType, Shape};

    /// The sizes of the functions of a graph, the last one first.
    fn sizes(draw: impl for<'b> Fn(&'b Builder, Tensor<'b>)) -> Vec<usize> {
        let b = Builder::new("case");
        draw(&b, b.input("x", DType::F32, Shape::new([4usize, 8])));
        let graph = b.finish().unwrap();
        let function = Cells::of(&graph, &mut Numbering::default()).function;
        let mut lasts: Vec<u32> = function.iter().flatten().copied().collect();
        lasts.sort_unstable_by(|a, b| b.cmp(a));
        lasts.chunk_by(|a, b| a == b).map(<[u32]>::len).collect()
    }

    #[test]
    fn an_activation_is_one_function_whatever_reads_its_tensor() {
        assert_eq!(sizes(|b, x| b.output("y", x * (-x).exp().sqrt())), [4]);
        assert_eq!(sizes(|b, x| b.output("y", x.abs() * x.exp().tanh())), [4]);
    }

    #[test]
    fn what_others_read_or_is_stored_ends_a_function() {
        let two_readers = |b: &Builder, x: Tensor<'_>| {
            let y = (-x).exp();
            b.output("y", y.sqrt().tanh());
            b.output("z", y.sum(&[1]));
        };
        assert_eq!(sizes(two_readers), [2, 2]);
        let stored = |b: &Builder, x: Tensor<'_>| {
            let y = (-x).exp();
            b.output("y", y);
            b.output("z", y.sqrt().tanh());
        };
        assert_eq!(sizes(stored), [2, 2]);
    }

    #[test]
    fn a_function_of_two_tensors_is_none() {
        let sum = |b: &Builder, x: Tensor<'_>| {
            let y = b.input("y", DType::F32, Shape::new([4usize, 8]));
            b.output("z", x.exp() + y);
        };
        assert_eq!(sizes(sum), []);
    }

    #[test]
    fn a_narrow_tensor_between_stays_storable() {
        let there_and_back = |b: &Builder, x: Tensor<'_>| {
            let narrow = x.abs().sqrt().cast(DType::U8);
            b.output("y", -narrow.cast(DType::F32));
        };
        assert_eq!(sizes(there_and_back), [2, 3]);
    }
}
