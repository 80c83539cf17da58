//! Models that make much of little when they run: each has a value of about so many elements of four bytes, or several.

use fuseline_frontend::onnx::schema::{GraphProto, ModelProto, NodeProto, TensorProto};

use super::{Malice, scalar};
use crate::model_maker::{FLOAT, INT64, graph, int, ints, model, node, region, value, with};

const BOOL: i32 = 9;
const STRING: i32 = 8;

/// Every kind, by name.
pub const LARGE: &[(&str, Malice)] = &[
    ("shares of a row", |n| on(n, vec![node("Softmax", &["e"], &["y"])], Vec::new())),
    ("running sums", |n| on(n, vec![sums("e", "y")], vec![scalar("axis", 0)])),
    ("in order", |n| on(n, vec![sums("e", "s"), node("TopK", &["s", "shape"], &["y", "places"])], axis())),
    ("places", |n| on_ints(n, vec![node("NonZero", &["e"], &["y"])], Vec::new())),
    ("kinds", |n| on(n, vec![sums("e", "s"), node("Unique", &["s"], &["y", "a", "b", "c"])], axis())),
    ("some of all", |n| on(n, vec![cast("e", "c", BOOL), node("Compress", &["e", "c"], &["y"])], Vec::new())),
    ("one changed", |n| on(n, vec![node("ScatterElements", &["e", "place", "x"], &["y"])], vec![ints("place", &[0])])),
    ("looked up", |n| {
        let nodes = vec![node("Sub", &["e", "x"], &["d"]), cast("d", "i", INT64), node("Gather", &["x", "i"], &["y"])];
        on(n, nodes, Vec::new())
    }),
    ("hot", hot),
    ("table of products", |n| products(n.isqrt(), 1, n.isqrt())),
    ("long sums", |n| products(1, n / 4, 32)),
    ("counted", counted),
    ("again and again", |n| on(64, vec![sums("e", "s"), node("Tile", &["s", "times"], &["y"])], times(n))),
    ("side by side", side_by_side),
    ("results", several_results),
    ("joined literals", joined_literals),
    ("stacked", stacked),
    ("doubled", doubled),
    ("texts", |n| texts(n, |from| vec![node("Identity", &[from], &["y"])], STRING)),
    ("texts joined", |n| texts(n, |from| vec![node("StringConcat", &[from, from], &["y"])], STRING)),
    ("texts cut", |n| texts(n, |from| vec![node("StringSplit", &[from], &["y", "counts"])], STRING)),
    ("texts in order", |n| texts(n, |from| vec![node("StringNormalizer", &[from], &["y"])], STRING)),
    ("boxes", boxes),
];

fn axis() -> Vec<TensorProto> {
    vec![scalar("axis", 0)]
}

fn times(n: usize) -> Vec<TensorProto> {
    vec![scalar("axis", 0), ints("times", &[n as i64 / 64])]
}

fn sums(from: &str, to: &str) -> NodeProto {
    node("CumSum", &[from, "axis"], &[to])
}

fn cast(from: &str, to: &str, elements: i32) -> NodeProto {
    with(node("Cast", &[from], &[to]), vec![int("to", i64::from(elements))])
}

/// Nodes that read `e`, a number repeated so often, and make `y`.
fn making(count: usize, nodes: Vec<NodeProto>, more: Vec<TensorProto>, elements: i32) -> ModelProto {
    let nodes = std::iter::once(node("Expand", &["x", "shape"], &["e"])).chain(nodes).collect();
    let mut g = graph(vec![value("x", FLOAT, &["1"])], nodes, vec![value("y", elements, &["m"])]);
    g.initializer = more;
    g.initializer.push(ints("shape", &[count as i64]));
    model(g)
}

fn on(count: usize, nodes: Vec<NodeProto>, more: Vec<TensorProto>) -> ModelProto {
    making(count, nodes, more, FLOAT)
}

fn on_ints(count: usize, nodes: Vec<NodeProto>, more: Vec<TensorProto>) -> ModelProto {
    let mut made = making(count, nodes, more, INT64);
    made.graph.get_or_insert_default().output = vec![value("y", INT64, &["1", "m"])];
    made
}

/// A table with a one in every row.
fn hot(n: usize) -> ModelProto {
    let values = TensorProto { name: "values".into(), data_type: FLOAT, dims: vec![2], ..TensorProto::default() };
    let values = TensorProto { float_data: vec![0.0, 1.0], ..values };
    let root = n.isqrt();
    let mut made = on(root, vec![node("OneHot", &["e", "depth", "values"], &["y"])], vec![values]);
    let g = made.graph.get_or_insert_default();
    g.initializer.push(scalar("depth", root as i64));
    g.output = vec![value("y", FLOAT, &["m", "k"])];
    made
}

/// A product of two tables, none of which is there but for one number.
fn products(rows: usize, depth: usize, columns: usize) -> ModelProto {
    let nodes = vec![
        node("Expand", &["x", "left"], &["a"]),
        node("Expand", &["x", "right"], &["b"]),
        node("MatMul", &["a", "b"], &["y"]),
    ];
    let mut g = graph(vec![value("x", FLOAT, &["1"])], nodes, vec![value("y", FLOAT, &["m", "k"])]);
    let sizes = |name: &str, a: usize, b: usize| ints(name, &[a as i64, b as i64]);
    g.initializer = vec![sizes("left", rows, depth), sizes("right", depth, columns)];
    model(g)
}

/// All numbers up to one.
fn counted(n: usize) -> ModelProto {
    let mut g =
        graph(Vec::new(), vec![node("Range", &["first", "end", "step"], &["y"])], vec![value("y", INT64, &["m"])]);
    g.initializer = vec![scalar("first", 0), scalar("end", n as i64), scalar("step", 1)];
    model(g)
}

/// Eight tensors at a time, put together.
fn side_by_side(n: usize) -> ModelProto {
    let parts: Vec<String> = (0..8).map(|k| format!("part{k}")).collect();
    let numbers = (0..8).map(|k| TensorProto { name: format!("c{k}"), ..number(k as f32) });
    let mut nodes = vec![sums("e", "s")];
    nodes.extend(parts.iter().enumerate().map(|(k, part)| node("Pow", &["s", &format!("c{k}")], &[part])));
    let names: Vec<&str> = parts.iter().map(String::as_str).collect();
    nodes.push(with(node("Concat", &names, &["y"]), vec![int("axis", 0)]));
    on(n / 8, nodes, numbers.chain(axis()).collect())
}

fn number(x: f32) -> TensorProto {
    TensorProto { data_type: FLOAT, float_data: vec![x], ..TensorProto::default() }
}

/// Eight results.
fn several_results(n: usize) -> ModelProto {
    let names: Vec<String> = (0..8).map(|k| format!("y{k}")).collect();
    let numbers = (0..8).map(|k| TensorProto { name: format!("c{k}"), ..number(k as f32) });
    let mut nodes = vec![sums("e", "s")];
    nodes.extend(names.iter().enumerate().map(|(k, name)| node("Pow", &["s", &format!("c{k}")], &[name])));
    let mut made = on(n / 8, nodes, numbers.chain(axis()).collect());
    made.graph.get_or_insert_default().output = names.iter().map(|name| value(name, FLOAT, &["m"])).collect();
    made
}

/// A loop that does `nodes` again and again with `from`, and gives `outputs` behind whether it goes on.
fn repeated(trips: i64, mut nodes: Vec<NodeProto>, outputs: &[&str], results: &[&str]) -> ModelProto {
    nodes.push(node("Identity", &["go"], &["going"]));
    let inputs = vec![value("trip", INT64, &[]), value("go", BOOL, &[]), value("from", FLOAT, &["k"])];
    let outputs = outputs.iter().map(|name| value(name, FLOAT, &["q"]));
    let body: GraphProto = graph(inputs, nodes, std::iter::once(value("going", BOOL, &[])).chain(outputs).collect());
    let repeat = with(node("Loop", &["trips", "", "x"], results), vec![region("body", body)]);
    let mut g = graph(vec![value("x", FLOAT, &["1"])], vec![repeat], vec![value("y", FLOAT, &["m"])]);
    g.initializer = vec![scalar("trips", trips)];
    model(g)
}

/// A constant of the file behind itself again and again, eight times.
fn joined_literals(n: usize) -> ModelProto {
    let number =
        |k: i64| TensorProto { name: format!("c{k}"), dims: vec![64], int64_data: vec![k; 64], ..ints("", &[]) };
    let mut nodes = Vec::new();
    for k in 0..8 {
        let parts = vec![format!("c{k}"); (n / 1024).max(1)];
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        nodes.push(with(node("Concat", &parts, &[&format!("y{k}")]), vec![int("axis", 0)]));
    }
    let mut g = graph(Vec::new(), nodes, (0..8).map(|k| value(&format!("y{k}"), INT64, &["m"])).collect());
    g.initializer = (0..8).map(number).collect();
    model(g)
}

/// What a loop makes is stacked.
fn stacked(n: usize) -> ModelProto {
    let nodes = vec![node("Expand", &["x", "shape"], &["slice"]), node("Identity", &["from"], &["to"])];
    let mut made = repeated(16, nodes, &["to", "slice"], &["last", "y"]);
    let g = made.graph.get_or_insert_default();
    g.initializer.push(ints("shape", &[n as i64 / 16]));
    g.output = vec![value("y", FLOAT, &["m", "k"])];
    made
}

/// Twice as long in every trip.
fn doubled(n: usize) -> ModelProto {
    let twice = with(node("Concat", &["from", "from"], &["to"]), vec![int("axis", 0)]);
    repeated(i64::from(n.max(1).ilog2()), vec![twice], &["to"], &["y"])
}

/// Very many short texts, and what is done with them.
fn texts(n: usize, nodes: impl Fn(&str) -> Vec<NodeProto>, elements: i32) -> ModelProto {
    let word = TensorProto {
        name: "word".into(),
        dims: vec![1],
        data_type: STRING,
        string_data: vec![b"a b".to_vec().into()],
        ..TensorProto::default()
    };
    let nodes = std::iter::once(node("Expand", &["word", "shape"], &["all"])).chain(nodes("all")).collect();
    let mut g = graph(Vec::new(), nodes, vec![value("y", elements, &["m"])]);
    g.initializer = vec![word, ints("shape", &[n as i64])];
    // Operators on texts came with version 20.
    let mut made = model(g);
    made.opset_import[0].version = 20;
    made
}

/// Boxes all of which are one.
fn boxes(n: usize) -> ModelProto {
    let nodes = vec![
        node("Expand", &["x", "boxes"], &["b"]),
        node("Expand", &["x", "scores"], &["s"]),
        node("NonMaxSuppression", &["b", "s"], &["y"]),
    ];
    let mut g = graph(vec![value("x", FLOAT, &["1"])], nodes, vec![value("y", INT64, &["m", "3"])]);
    g.initializer = vec![ints("boxes", &[1, n as i64 / 8, 4]), ints("scores", &[1, 1, n as i64 / 8])];
    model(g)
}
