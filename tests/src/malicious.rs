//! Models made to take forever: each is small as a file, and grows without end where nobody looks.

mod crowds;
mod large;
mod lists;
mod repeated;

use fuseline_frontend::onnx::schema::{ModelProto, NodeProto, TensorProto};

pub use crowds::CROWDS;
pub use large::LARGE;
pub use lists::LISTS;

use crate::model_maker::{FLOAT, INT64, graph, int, ints, model, node, value, with};

/// A builder of a model of about so many nodes.
pub type Malice = fn(usize) -> ModelProto;

/// Every kind that grows in its number of nodes, by name.
pub const MALICES: &[(&str, Malice)] = &[
    ("squared sizes", squared_sizes),
    ("sums of sizes", sums_of_sizes),
    ("nested sizes", nested_sizes),
    ("smallest of sizes", smallest_of_sizes),
    ("mixed axes", mixed_axes),
    ("expanded", expanded),
    ("clipped", clipped),
    ("padded", padded),
    ("results", results),
    ("squared factors", squared_factors),
    ("nested sums", nested_sums),
    ("cast again", cast_again),
    ("functions", repeated::functions),
    ("softmaxes", repeated::softmaxes),
    ("norms", repeated::norms),
    ("products", repeated::products),
    ("folded", repeated::folded),
    ("joined", repeated::joined),
    ("chosen", repeated::chosen),
    ("sums of rows", repeated::sums_of_rows),
    ("looked up", repeated::looked_up),
    ("sorted", repeated::sorted),
    ("measured", repeated::measured),
    ("fan", repeated::fan),
    ("inputs", repeated::inputs),
    ("cut", repeated::cut),
    ("collected", repeated::collected),
    ("questions", repeated::questions),
    ("questions inside", repeated::questions_inside),
    ("loops", repeated::loops),
    ("loops inside", repeated::loops_inside),
    ("calls", repeated::calls),
    ("calls doubled", repeated::calls_doubled),
    ("calls inside", repeated::calls_inside),
    ("calls around", repeated::calls_around),
    ("convolutions", repeated::convolutions),
    ("constants", repeated::constants),
];

/// Every kind that is large in the file.
pub fn all() -> impl Iterator<Item = (&'static str, Malice)> {
    [MALICES, CROWDS, LISTS].into_iter().flatten().copied()
}

fn scalar(name: &str, n: i64) -> TensorProto {
    TensorProto { dims: Vec::new(), ..ints(name, &[n]) }
}

/// Nodes one behind another, the first of which reads `x`; what the last one makes is called `y`.
fn in_turn(count: usize, mut nodes: impl FnMut(usize, &str, &str) -> Vec<NodeProto>) -> Vec<NodeProto> {
    let mut all = Vec::new();
    for k in 0..count {
        let from = if k == 0 { "x".to_owned() } else { format!("h{k}") };
        let to = if k + 1 == count { "y".to_owned() } else { format!("h{}", k + 1) };
        all.extend(nodes(k, &from, &to));
    }
    all
}

/// The size of an input, squared again and again: as an expression, it has twice as many factors each time.
fn squared_sizes(count: usize) -> ModelProto {
    let mut nodes = vec![node("Shape", &["data"], &["x"])];
    nodes.extend(in_turn(count, |_, from, to| vec![node("Mul", &[from, from], &[to])]));
    model(graph(vec![value("data", FLOAT, &["n"])], nodes, vec![value("y", INT64, &["1"])]))
}

/// The sizes of an input, added and multiplied: as a sum of products, it has ever more terms.
fn sums_of_sizes(count: usize) -> ModelProto {
    let mut nodes = vec![node("Shape", &["data"], &["sizes"])];
    let parts = [("a", "zero"), ("b", "one")];
    nodes.extend(parts.map(|(name, at)| node("Gather", &["sizes", at], &[name])));
    nodes.push(node("Add", &["a", "b"], &["x"]));
    nodes.extend(in_turn(count / 2, |k, from, to| {
        let (more, sum) = (if k % 2 == 0 { "a" } else { "b" }, format!("sum{k}"));
        vec![node("Add", &[from, more], &[&sum]), node("Mul", &[&sum, from], &[to])]
    }));
    let mut g = graph(vec![value("data", FLOAT, &["n", "m"])], nodes, vec![value("y", INT64, &[])]);
    g.initializer = vec![scalar("zero", 0), scalar("one", 1)];
    model(g)
}

/// A tensor three times behind itself, of which every second element is kept: its size is a quotient of a quotient.
fn nested_sizes(count: usize) -> ModelProto {
    let nodes = in_turn(count / 2, |k, from, to| {
        let long = format!("long{k}");
        let concat = with(node("Concat", &[from, from, from], &[&long]), vec![int("axis", 0)]);
        vec![concat, node("Slice", &[&long, "zero", "end", "zero", "two"], &[to])]
    });
    let mut g = graph(vec![value("x", FLOAT, &["n"])], nodes, vec![value("y", FLOAT, &["m"])]);
    g.initializer = vec![ints("zero", &[0]), ints("end", &[i64::MAX]), ints("two", &[2])];
    model(g)
}

/// The sum of the smaller ones of sizes, compared with one of them.
fn smallest_of_sizes(count: usize) -> ModelProto {
    let count = count / 3;
    let inputs: Vec<String> = (0..=count).map(|k| format!("x{k}")).collect();
    let mut nodes: Vec<NodeProto> =
        inputs.iter().enumerate().map(|(k, input)| node("Shape", &[input], &[&format!("s{k}")])).collect();
    for k in 0..count {
        nodes.push(node("Min", &[&format!("s{k}"), &format!("s{}", k + 1)], &[&format!("least{k}")]));
        let so_far = if k == 0 { "s0".to_owned() } else { format!("sum{}", k - 1) };
        nodes.push(node("Add", &[&so_far, &format!("least{k}")], &[&format!("sum{k}")]));
    }
    nodes.push(node("Less", &["s0", &format!("sum{}", count - 1)], &["y"]));
    let values = inputs.iter().enumerate().map(|(k, input)| value(input, FLOAT, &[&format!("n{k}")]));
    model(graph(values.collect(), nodes, vec![value("y", 9, &["1"])]))
}

/// A tensor folded and turned again and again: every coordinate is a quotient and a remainder of those before.
fn mixed_axes(count: usize) -> ModelProto {
    let nodes = in_turn(count / 2, |k, from, to| {
        let (folded, shape) = (format!("folded{k}"), if k % 2 == 0 { "three" } else { "five" });
        vec![node("Reshape", &[from, shape], &[&folded]), node("Transpose", &[&folded], &[to])]
    });
    let mut g = graph(vec![value("x", FLOAT, &["3", "5", "7"])], nodes, vec![value("y", FLOAT, &["a", "b"])]);
    g.initializer = vec![ints("three", &[3, 35]), ints("five", &[15, 7])];
    model(g)
}

/// A number repeated along axes of a thousand elements each.
fn expanded(count: usize) -> ModelProto {
    let count = count.min(8);
    let nodes = in_turn(count, |k, from, to| vec![node("Expand", &[from, &format!("shape{k}")], &[to])]);
    let mut g = graph(vec![value("x", FLOAT, &["1"])], nodes, vec![value("y", FLOAT, &vec!["n"; count + 1])]);
    let shape = |k: usize| std::iter::once(1000).chain(std::iter::repeat_n(1, k + 1)).collect::<Vec<i64>>();
    g.initializer = (0..count).map(|k| ints(&format!("shape{k}"), &shape(k))).collect();
    model(g)
}

/// One value between very many bounds, chosen so that a hash that only adds and multiplies takes all of them for the same.
fn clipped(count: usize) -> ModelProto {
    const FACTOR: u64 = 0xf135_7aea_2e62_a9c5;
    let mut nodes = Vec::with_capacity(count);
    let mut bounds = Vec::with_capacity(2 * count);
    for k in 0..count {
        let step = FACTOR.wrapping_pow(4).wrapping_mul(k as u64);
        let [low, high] = [format!("low{k}"), format!("high{k}")];
        bounds.extend([scalar(&low, k as i64), scalar(&high, 0i64.wrapping_sub(step as i64))]);
        nodes.push(node("Clip", &["x", &low, &high], &[&format!("c{k}")]));
    }
    let names: Vec<String> = (0..count).map(|k| format!("c{k}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    nodes.push(with(node("Concat", &names, &["y"]), vec![int("axis", 0)]));
    let mut g = graph(vec![value("x", INT64, &["4"])], nodes, vec![value("y", INT64, &["m"])]);
    g.initializer = bounds;
    model(g)
}

/// Paddings of paddings that fill with different numbers.
fn padded(count: usize) -> ModelProto {
    let nodes = in_turn(count, |k, from, to| {
        vec![node("Pad", &[from, "widths", if k % 2 == 0 { "none" } else { "one" }], &[to])]
    });
    let number = |name: &str, x: f32| TensorProto {
        name: name.into(),
        data_type: FLOAT,
        float_data: vec![x],
        ..TensorProto::default()
    };
    let mut g = graph(vec![value("x", FLOAT, &["n"])], nodes, vec![value("y", FLOAT, &["m"])]);
    g.initializer = vec![ints("widths", &[1, 1]), number("none", 0.0), number("one", 1.0)];
    model(g)
}

/// One value with very many readers, all of them results.
fn results(count: usize) -> ModelProto {
    let names: Vec<String> = (0..count).map(|k| format!("y{k}")).collect();
    let bounds: Vec<TensorProto> = (0..count).map(|k| scalar(&format!("c{k}"), k as i64)).collect();
    let nodes = names.iter().enumerate().map(|(k, name)| node("Add", &["x", &format!("c{k}")], &[name]));
    let outputs = names.iter().map(|name| value(name, INT64, &["4"])).collect();
    let mut g = graph(vec![value("x", INT64, &["4"])], nodes.collect(), outputs);
    g.initializer = bounds;
    model(g)
}

/// The product of what `nodes` make of an input, and the input.
fn multiplied(mut nodes: Vec<NodeProto>) -> ModelProto {
    nodes.push(node("MatMul", &["y", "x"], &["z"]));
    model(graph(vec![value("x", FLOAT, &["8", "8"])], nodes, vec![value("z", FLOAT, &["8", "8"])]))
}

/// A factor squared again and again: taken apart, it has twice as many factors each time.
fn squared_factors(count: usize) -> ModelProto {
    multiplied(in_turn(count, |_, from, to| vec![node("Mul", &[from, from], &[to])]))
}

/// Sums of products of sums, which can be factored in many ways.
fn nested_sums(count: usize) -> ModelProto {
    multiplied(in_turn(count / 2, |k, from, to| {
        let product = format!("product{k}");
        vec![node("Mul", &[from, "x"], &[&product]), node("Add", &[&product, from], &[to])]
    }))
}

/// A factor converted to another type and back, again and again.
fn cast_again(count: usize) -> ModelProto {
    const DOUBLE: i64 = 11;
    multiplied(in_turn(count / 2 * 2, |k, from, to| {
        let to_type = if k % 2 == 0 { DOUBLE } else { i64::from(FLOAT) };
        vec![with(node("Cast", &[from], &[to]), vec![int("to", to_type)])]
    }))
}
