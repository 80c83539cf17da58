//! Models in which very many things meet very many others: whoever compares each with each never ends.

use fuseline_frontend::onnx::schema::{ModelProto, NodeProto};

use super::repeated::{body, call, calling, chain, floats, function};
use super::{Malice, in_turn, scalar};
use crate::model_maker::{FLOAT, INT64, graph, int, ints, model, node, optional, region, value, with};

const BOOL: i32 = 9;

/// Every kind, by name.
pub const CROWDS: &[(&str, Malice)] = &[
    ("sums with themselves", |n| chain(in_turn(n, |_, from, to| vec![node("Add", &[from, from], &[to])]), Vec::new())),
    ("running sums", |n| {
        let sums = |_: usize, from: &str, to: &str| vec![node("CumSum", &[from, "axis"], &[to])];
        chain(in_turn(n / 2, sums), vec![scalar("axis", 0)])
    }),
    ("places of places", places_of_places),
    ("products with bias", |n| {
        chain(in_turn(n / 4, |_, from, to| vec![node("Gemm", &[from, "x", "x"], &[to])]), Vec::new())
    }),
    ("questions in functions", questions_in_functions),
    ("slices of a whole", slices_of_a_whole),
    ("rows of a table", rows_of_a_table),
    ("trips among sizes", trips_among_sizes),
    ("questions among counts", questions_among_counts),
    ("counts that agree", counts_that_agree),
    ("heads of one product", heads_of_one_product),
    ("products of one", products_of_one),
    ("sum of products", sum_of_products),
    ("left out", left_out),
];

/// Where numbers are that are not zero, and of these again.
fn places_of_places(n: usize) -> ModelProto {
    let nodes = in_turn(n / 4, |k, from, to| {
        let places = format!("places{k}");
        let cast = with(node("Cast", &[&places], &[to]), vec![int("to", i64::from(FLOAT))]);
        vec![node("NonZero", &[from], &[&places]), cast]
    });
    chain(nodes, Vec::new())
}

/// Questions inside of functions, both answers of which call the function before.
fn questions_in_functions(n: usize) -> ModelProto {
    let depth = n.min(60);
    let two = |mut f: fuseline_frontend::onnx::schema::FunctionProto| {
        f.input.push("c".into());
        f
    };
    let with_condition = |mut call: NodeProto| {
        call.input.push("c".into());
        call
    };
    let mut all = vec![two(function("f0", vec![node("Sin", &["x"], &["y"])]))];
    for k in 1..depth {
        let inner = format!("f{}", k - 1);
        let branch = |name: &str| {
            graph(Vec::new(), vec![with_condition(call(&inner, "x", name))], vec![value(name, FLOAT, &["8", "8"])])
        };
        let branches = vec![region("then_branch", branch("t")), region("else_branch", branch("e"))];
        all.push(two(function(&format!("f{k}"), vec![with(node("If", &["c"], &["y"]), branches)])));
    }
    let last = format!("f{}", depth - 1);
    let mut made = calling(&last, all);
    let g = made.graph.get_or_insert_default();
    g.input.push(value("c", BOOL, &[]));
    g.node = vec![with_condition(call(&last, "x", "y"))];
    made
}

/// Very many tensors put together and taken apart again.
fn slices_of_a_whole(n: usize) -> ModelProto {
    let count = (n / 3).max(1);
    let numbers: Vec<String> = (0..count).map(|k| format!("part{k}")).collect();
    let mut nodes: Vec<NodeProto> = (0..count).map(|k| node("Mul", &["x", &format!("c{k}")], &[&numbers[k]])).collect();
    let all: Vec<&str> = numbers.iter().map(String::as_str).collect();
    nodes.push(with(node("Concat", &all, &["whole"]), vec![int("axis", 0)]));
    let slice = |k: usize| {
        let [from, to] = [k, k + 1].map(|k| format!("b{k}"));
        node("Slice", &["whole", &from, &to], &[&format!("y{k}")])
    };
    nodes.extend((0..count).map(slice));
    let outputs = (0..count).map(|k| value(&format!("y{k}"), FLOAT, &["a", "b"])).collect();
    let mut g = graph(vec![value("x", FLOAT, &["1", "8"])], nodes, outputs);
    g.initializer = (0..count).map(|k| floats(&format!("c{k}"), &[], vec![k as f32])).collect();
    g.initializer.extend((0..=count).map(|k| ints(&format!("b{k}"), &[k as i64])));
    model(g)
}

/// Every row of a table by itself, and all of them in another order.
fn rows_of_a_table(n: usize) -> ModelProto {
    let count = (n / 3).max(1);
    let mut nodes = Vec::new();
    for k in 0..count {
        nodes.push(node("Gather", &["x", &format!("i{k}")], &[&format!("row{k}")]));
        nodes.push(node("Sin", &[&format!("row{k}")], &[&format!("made{k}")]));
    }
    let made: Vec<String> = (0..count).rev().map(|k| format!("made{k}")).collect();
    let made: Vec<&str> = made.iter().map(String::as_str).collect();
    nodes.push(with(node("Concat", &made, &["y"]), vec![int("axis", 0)]));
    let size = count.to_string();
    let mut g = graph(vec![value("x", FLOAT, &[&size, "8"])], nodes, vec![value("y", FLOAT, &["a", "b"])]);
    g.initializer = (0..count).map(|k| ints(&format!("i{k}"), &[k as i64])).collect();
    model(g)
}

/// Very many sizes, and a loop of very many trips.
fn trips_among_sizes(n: usize) -> ModelProto {
    let count = n / 2;
    let mut nodes: Vec<NodeProto> = (0..count).map(|k| node("Sin", &[&format!("x{k}")], &[&format!("y{k}")])).collect();
    let inner = body(node("Sin", &["from"], &["to"]), "from", "to");
    nodes.push(with(node("Loop", &["trips", "", "x"], &["y"]), vec![region("body", inner)]));
    let sized = |name: &str, k: usize| value(&format!("{name}{k}"), FLOAT, &[&format!("n{k}")]);
    let mut inputs: Vec<_> = (0..count).map(|k| sized("x", k)).collect();
    let mut outputs: Vec<_> = (0..count.min(4)).map(|k| sized("y", k)).collect();
    inputs.push(value("x", FLOAT, &["8", "8"]));
    outputs.push(value("y", FLOAT, &["8", "8"]));
    let mut g = graph(inputs, nodes, outputs);
    g.initializer = vec![scalar("trips", n as i64)];
    model(g)
}

/// Very many sizes that only the run knows, and very many regions that might mention them.
fn questions_among_counts(n: usize) -> ModelProto {
    let mut nodes = Vec::new();
    let mut outputs = Vec::new();
    for k in 0..n / 5 {
        let [from, count, answer] = [format!("x{k}"), format!("places{k}"), format!("y{k}")];
        nodes.push(node("Mul", &["x", &format!("c{k}")], &[&from]));
        nodes.push(node("NonZero", &[&from], &[&count]));
        let branch = |op: &str| {
            graph(Vec::new(), vec![node(op, &[&count], &["inner"])], vec![value("inner", INT64, &["a", "b"])])
        };
        let branches = vec![region("then_branch", branch("Neg")), region("else_branch", branch("Abs"))];
        nodes.push(with(node("If", &["c"], &[&answer]), branches));
        outputs.push(value(&answer, INT64, &["a", "b"]));
    }
    let mut g = graph(vec![value("x", FLOAT, &["8", "8"]), value("c", BOOL, &[])], nodes, outputs);
    g.initializer = (0..n / 5).map(|k| floats(&format!("c{k}"), &[], vec![k as f32])).collect();
    model(g)
}

/// Very many sizes that only the run knows, and that must be equal.
fn counts_that_agree(n: usize) -> ModelProto {
    let count = (n / 3).max(2);
    let mut nodes = Vec::new();
    for k in 0..count {
        nodes.push(node("Add", &["x", &format!("c{k}")], &[&format!("x{k}")]));
        nodes.push(node("NonZero", &[&format!("x{k}")], &[&format!("places{k}")]));
    }
    let outputs = (1..count).map(|k| value(&format!("y{k}"), INT64, &["a", "b"])).collect();
    // The last is bound last: all others wait for it.
    let last = format!("places{}", count - 1);
    nodes.extend((1..count).map(|k| node("Add", &[&format!("places{}", k - 1), &last], &[&format!("y{k}")])));
    let mut g = graph(vec![value("x", FLOAT, &["8", "8"])], nodes, outputs);
    g.initializer = (0..count).map(|k| floats(&format!("c{k}"), &[], vec![1.0 + k as f32])).collect();
    model(g)
}

/// One product, very many functions of its rows, and a product with each.
fn heads_of_one_product(n: usize) -> ModelProto {
    let count = (n / 4).max(1);
    let mut nodes = vec![node("MatMul", &["x", "x"], &["h"])];
    for k in 0..count {
        let [scaled, shares, product] = ["scaled", "shares", "y"].map(|name| format!("{name}{k}"));
        nodes.push(node("Mul", &["h", &format!("c{k}")], &[&scaled]));
        nodes.push(node("Softmax", &[&scaled], &[&shares]));
        nodes.push(node("MatMul", &[&shares, "x"], &[&product]));
    }
    let outputs = (0..count).map(|k| value(&format!("y{k}"), FLOAT, &["8", "8"])).collect();
    let mut g = graph(vec![value("x", FLOAT, &["8", "8"])], nodes, outputs);
    g.initializer = (0..count).map(|k| floats(&format!("c{k}"), &[], vec![k as f32])).collect();
    model(g)
}

/// One value as a factor of very many products.
fn products_of_one(n: usize) -> ModelProto {
    let count = (n / 2).max(1);
    let nodes = (0..count).map(|k| node("MatMul", &["x", &format!("w{k}")], &[&format!("y{k}")])).collect();
    let outputs = (0..count).map(|k| value(&format!("y{k}"), FLOAT, &["8", "2"])).collect();
    let mut g = graph(vec![value("x", FLOAT, &["8", "8"])], nodes, outputs);
    g.initializer = (0..count).map(|k| floats(&format!("w{k}"), &[8, 2], vec![k as f32; 16])).collect();
    model(g)
}

/// Very many products, added up.
fn sum_of_products(n: usize) -> ModelProto {
    let count = (n / 2).max(1);
    let parts: Vec<String> = (0..count).map(|k| format!("part{k}")).collect();
    let mut nodes: Vec<NodeProto> =
        parts.iter().enumerate().map(|(k, part)| node("MatMul", &["x", &format!("w{k}")], &[part])).collect();
    nodes.push(node("Sum", &parts.iter().map(String::as_str).collect::<Vec<_>>(), &["y"]));
    chain(nodes, (0..count).map(|k| floats(&format!("w{k}"), &[8, 2], vec![k as f32; 16])).collect())
}

/// Inputs that may be left out, beside others that are given.
fn left_out(n: usize) -> ModelProto {
    let names: Vec<String> = (0..n / 2).map(|k| format!("x{k}")).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut inputs: Vec<_> = names.iter().map(|name| value(name, FLOAT, &["8"])).collect();
    inputs.extend((0..n / 2).map(|k| optional(value(&format!("o{k}"), FLOAT, &["8"]))));
    model(graph(inputs, vec![node("Sum", &all, &["y"])], vec![value("y", FLOAT, &["8"])]))
}
