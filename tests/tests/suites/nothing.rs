//! Axes without elements: what is made of nothing is the same on every device, fused or not, and where there is nothing to be had, that is the same
//! error everywhere.

use std::sync::Arc;

use fuseline::device::Executable as _;
use fuseline::error::{Kind, Result};
use fuseline::fuse::PlanOptions;
use fuseline::gallery;
use fuseline::graph::{Builder, Graph, Tensor};
use fuseline::ops::prim::Monoid;
use fuseline::reference::Limits;
use fuseline::tensor::{DType, Dim, Literal, Shape, Symbol};
use fuseline::tile::interp;
use fuseline_cpu::code::Isa;
use fuseline_cpu::run::CpuDevice;
use fuseline_tests::generate::Inputs;
use fuseline_tests::planned::{planned, run};

use super::indices::{on_reference, options};

/// What the reference says, the interpreter of kernels and the processor, fused and kernel by kernel.
fn on_all(graph: &Graph, inputs: &Inputs) -> Vec<(String, Result<Vec<Literal>>)> {
    let mut found = vec![("the reference".into(), on_reference(graph, inputs))];
    for (name, fuel) in [("fused", None), ("apart", Some(0))] {
        let options = PlanOptions { fuel, ..options() };
        let planned = planned(graph, &options).unwrap_or_else(|e| panic!("{e}\n{graph}"));
        found.push((format!("the interpreter, {name}"), run(&planned, inputs, &interp::Options::default())));
        for isa in [Isa::detect(), Isa::Portable] {
            let device = CpuDevice::new(isa, 1, options.clone(), Limits::default()).unwrap();
            let given = inputs.iter().map(|(name, x)| (Arc::clone(name), x.clone())).collect();
            found.push((format!("{isa:?}, {name}"), device.load(&planned).and_then(|loaded| loaded.run(&given))));
        }
    }
    found
}

fn zeros(dtype: DType, sizes: &[usize]) -> Literal {
    let count = sizes.iter().product();
    match dtype.is_float() {
        true => Literal::from_f64s(dtype, sizes.to_vec(), &vec![0.0; count]).unwrap(),
        false => Literal::from_ints(dtype, sizes.to_vec(), &vec![0; count]).unwrap(),
    }
}

/// A graph of a matrix of free sizes and some indices.
fn drawn(draw: impl for<'b> Fn(Tensor<'b>, Tensor<'b>) -> Tensor<'b>) -> Graph {
    let b = Builder::new("nothing");
    let x = b.input("x", DType::F32, Shape::new([Dim::named("rows"), Dim::named("columns")]));
    let i = b.input("i", DType::I64, Shape::new([Dim::named("count")]));
    b.output("y", draw(x, i));
    b.finish().unwrap()
}

fn inputs(sizes: [usize; 2], indices: &[i64]) -> Inputs {
    [("x".into(), zeros(DType::F32, &sizes)), ("i".into(), Literal::i64s(indices))].into_iter().collect()
}

fn assert_error(what: &str, graph: &Graph, inputs: &Inputs, message: &str) {
    for (device, outcome) in on_all(graph, inputs) {
        let error = outcome.err().unwrap_or_else(|| panic!("{what}: no error on {device}"));
        assert_eq!(error.kind(), Kind::Invalid, "{what} on {device}: {error}");
        assert!(error.message().contains(message), "{what} on {device}: {error}");
    }
}

fn assert_agreed(what: &str, graph: &Graph, inputs: &Inputs) {
    let found = on_all(graph, inputs);
    let numbers = |outcome: &Result<Vec<Literal>>, device: &str| -> Vec<_> {
        let outputs = outcome.as_ref().unwrap_or_else(|e| panic!("{what} on {device}: {e}"));
        outputs.iter().map(|y| (y.sizes().to_vec(), y.to_f64s())).collect()
    };
    let expected = numbers(&found[0].1, &found[0].0);
    for (device, outcome) in &found[1..] {
        assert_eq!(numbers(outcome, device), expected, "{what} on {device}");
    }
}

#[test]
fn no_index_lies_inside_of_nothing() {
    let takes = drawn(|x, i| x.take(1, i).sum(&[1]));
    let rows = drawn(|x, i| x.take(0, i) + 1.0);
    let zero = 0i64;
    let constant = drawn(|x, i| x.take(1, (i * zero) + 2i64).transpose());
    // The pad is not read, and so has no index.
    let padded = drawn(|x, i| {
        let none = x.take(1, i.slice(0, Dim::int(0), 0i64, 1));
        none.pad(&[Dim::int(0), Dim::int(1)], &[Dim::int(0), Dim::int(2)], 3.0)
    });
    let outside = "is out of range for axis";
    for indices in [&[0i64][..], &[-1, 0], &[0; 40]] {
        assert_error("columns", &takes, &inputs([3, 0], indices), outside);
        assert_error("rows", &rows, &inputs([0, 4], indices), outside);
        assert_error("a constant", &constant, &inputs([3, 0], indices), outside);
        assert_agreed("what is padded", &padded, &inputs([3, 0], indices));
        assert_agreed("rows of nothing", &rows, &inputs([4, 0], indices));
    }
    for graph in [&takes, &rows, &constant] {
        assert_agreed("no index", graph, &inputs([3, 0], &[]));
    }
}

#[test]
fn there_is_no_largest_of_nothing() {
    let largest = drawn(|x, _| x.reduce(Monoid::ArgMax, &[1]));
    let one_hot = drawn(|x, _| {
        let first = x.reduce_keep(Monoid::ArgMinLast, &[1]);
        let shape = x.shape().unwrap();
        x.builder().coordinate(1, &shape).equal(first.expand(shape)).cast(DType::F32)
    });
    let unread = drawn(|x, i| {
        let first = x.reduce(Monoid::ArgMax, &[1]).slice(0, Dim::int(0), 0i64, 1);
        x.builder().concat(&[first, i], 0)
    });
    for sizes in [[0, 0], [0, 3], [3, 0]] {
        assert_agreed("what has no elements", &one_hot, &inputs(sizes, &[]));
        assert_agreed("what nobody reads", &unread, &inputs(sizes, &[4, 5]));
    }
    assert_agreed("no rows", &largest, &inputs([0, 0], &[]));
    assert_error("rows", &largest, &inputs([3, 0], &[]), "argmax over an axis without elements");
}

#[test]
fn what_is_known_to_be_nothing_has_no_largest_either() {
    let b = Builder::new("nothing");
    let x = b.input("x", DType::F32, Shape::new([3usize, 0]));
    b.output("y", (x * 2.0).reduce(Monoid::ArgMax, &[1]));
    let graph = b.finish().unwrap();
    let inputs = [("x".into(), zeros(DType::F32, &[3, 0]))].into_iter().collect();
    assert_error("what is computed", &graph, &inputs, "argmax over an axis without elements");
}

#[test]
fn no_experts_are_needed_where_nothing_is_computed() {
    let entry = gallery::find("moe_int8").unwrap_or_else(|| panic!("moe_int8 is gone"));
    let graph = entry.graph(DType::F32).unwrap();
    let of = |tokens: i64, hidden: i64| -> Inputs {
        let size = |name: &str| match name {
            "tokens" => tokens,
            "hidden" => hidden,
            "experts" => 0,
            _ => 8,
        };
        let input = |value: &fuseline::graph::Value| {
            let ty = graph.ty(*value);
            let env = ["tokens", "hidden", "experts", "features"].map(|name| (Symbol::name(name), size(name)));
            let sizes = ty.shape.eval(&env.into_iter().collect()).unwrap();
            (graph.input_name(*value).clone(), zeros(ty.dtype, &sizes))
        };
        graph.inputs().iter().map(input).collect()
    };
    assert_agreed("no columns", &graph, &of(4, 0));
    assert_agreed("no tokens", &graph, &of(0, 8));
    assert_error("tokens", &graph, &of(4, 8), "argmax over an axis without elements");
}
