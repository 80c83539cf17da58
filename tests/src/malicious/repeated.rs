//! One operator again and again: behind itself, beside itself, inside of itself.

use fuseline_frontend::onnx::schema::{FunctionProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto};

use super::{in_turn, scalar};
use crate::model_maker::{FLOAT, INT64, graph, int, ints, model, node, region, value, with};

const BOOL: i32 = 9;

pub(super) fn floats(name: &str, sizes: &[i64], numbers: Vec<f32>) -> TensorProto {
    TensorProto { name: name.into(), dims: sizes.to_vec(), data_type: FLOAT, float_data: numbers, ..Default::default() }
}

/// A chain over rows of 8 by 8 numbers, with what else it reads.
pub(super) fn chain(nodes: Vec<NodeProto>, initializers: Vec<TensorProto>) -> ModelProto {
    let mut g = graph(vec![value("x", FLOAT, &["8", "8"])], nodes, vec![value("y", FLOAT, &["a", "b"])]);
    g.initializer = initializers;
    model(g)
}

/// Functions of numbers that do not undo each other.
pub(super) fn functions(count: usize) -> ModelProto {
    const FUNCTIONS: [&str; 5] = ["Sin", "Tanh", "Erf", "Atan", "Cos"];
    let name = |k: usize| FUNCTIONS[(k * k + k / 7) % FUNCTIONS.len()];
    chain(in_turn(count, |k, from, to| vec![node(name(k), &[from], &[to])]), Vec::new())
}

/// Rows divided by their sums.
pub(super) fn softmaxes(count: usize) -> ModelProto {
    chain(in_turn(count, |_, from, to| vec![node("Softmax", &[from], &[to])]), Vec::new())
}

/// Rows with mean 0 and deviation 1.
pub(super) fn norms(count: usize) -> ModelProto {
    let nodes = in_turn(count, |_, from, to| vec![node("LayerNormalization", &[from, "scale", "shift"], &[to])]);
    let rows = [("scale", 1.5), ("shift", 0.5)].map(|(name, x)| floats(name, &[8], vec![x; 8]));
    chain(nodes, rows.to_vec())
}

/// Products with one matrix.
pub(super) fn products(count: usize) -> ModelProto {
    let nodes = in_turn(count, |_, from, to| vec![node("MatMul", &[from, "w"], &[to])]);
    chain(nodes, vec![floats("w", &[8, 8], (0..64).map(|k| k as f32 / 64.0).collect())])
}

/// Rows folded otherwise, with functions in between, so that no two of them are one.
pub(super) fn folded(count: usize) -> ModelProto {
    let nodes = in_turn(count / 2, |k, from, to| {
        let middle = format!("folded{k}");
        let shape = if k % 2 == 0 { "four" } else { "eight" };
        vec![node("Reshape", &[from, shape], &[&middle]), node("Softmax", &[&middle], &[to])]
    });
    chain(nodes, vec![ints("four", &[4, 16]), ints("eight", &[8, 8])])
}

/// A tensor that grows by a row at a time.
pub(super) fn joined(count: usize) -> ModelProto {
    let nodes = in_turn(count, |_, from, to| vec![with(node("Concat", &[from, "row"], &[to]), vec![int("axis", 0)])]);
    chain(nodes, vec![floats("row", &[1, 8], vec![1.0; 8])])
}

/// A choice between what was and what is.
pub(super) fn chosen(count: usize) -> ModelProto {
    let nodes = in_turn(count / 3, |k, from, to| {
        let [condition, function] = [format!("condition{k}"), format!("function{k}")];
        vec![
            node("Greater", &[from, "x"], &[&condition]),
            node("Sin", &[from], &[&function]),
            node("Where", &[&condition, &function, "x"], &[to]),
        ]
    });
    chain(nodes, Vec::new())
}

/// Sums of rows, given back to the rows.
pub(super) fn sums_of_rows(count: usize) -> ModelProto {
    let nodes = in_turn(count / 2, |k, from, to| {
        let sum = format!("sum{k}");
        let axes = if k % 2 == 0 { "one" } else { "zero" };
        vec![node("ReduceMax", &[from, axes], &[&sum]), node("Sub", &[from, &sum], &[to])]
    });
    chain(nodes, vec![ints("one", &[1]), ints("zero", &[0])])
}

/// Rows looked up in what was looked up.
pub(super) fn looked_up(count: usize) -> ModelProto {
    let nodes = in_turn(count, |_, from, to| vec![node("Gather", &[from, "places"], &[to])]);
    chain(nodes, vec![ints("places", &[3, 1, 4, 1, 5, 2, 6, 0])])
}

/// Rows in order, again and again.
pub(super) fn sorted(count: usize) -> ModelProto {
    let nodes = in_turn(count, |k, from, to| vec![node("TopK", &[from, "eight"], &[to, &format!("places{k}")])]);
    chain(nodes, vec![ints("eight", &[8])])
}

/// Sizes taken from a tensor and given back to it.
pub(super) fn measured(count: usize) -> ModelProto {
    let nodes = in_turn(count / 3, |k, from, to| {
        let [sizes, function] = [format!("sizes{k}"), format!("function{k}")];
        vec![
            node("Shape", &[from], &[&sizes]),
            node("Sin", &[from], &[&function]),
            node("Reshape", &[&function, &sizes], &[to]),
        ]
    });
    model(graph(vec![value("x", FLOAT, &["n", "m"])], nodes, vec![value("y", FLOAT, &["n", "m"])]))
}

/// Very many readers of one value, and one that reads all of them.
pub(super) fn fan(count: usize) -> ModelProto {
    let names: Vec<String> = (0..count).map(|k| format!("part{k}")).collect();
    let numbers = (0..count).map(|k| floats(&format!("c{k}"), &[], vec![k as f32]));
    let mut nodes: Vec<NodeProto> =
        names.iter().enumerate().map(|(k, name)| node("Mul", &["x", &format!("c{k}")], &[name])).collect();
    nodes.push(node("Max", &names.iter().map(String::as_str).collect::<Vec<_>>(), &["y"]));
    chain(nodes, numbers.collect())
}

/// Very many inputs, added up.
pub(super) fn inputs(count: usize) -> ModelProto {
    let names: Vec<String> = (0..count).map(|k| format!("x{k}")).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let values = names.iter().map(|name| value(name, FLOAT, &["n"])).collect();
    model(graph(values, vec![node("Sum", &all, &["y"])], vec![value("y", FLOAT, &["n"])]))
}

/// One tensor cut into very many, which are put together again.
pub(super) fn cut(count: usize) -> ModelProto {
    let names: Vec<String> = (0..count / 2).map(|k| format!("part{k}")).collect();
    let made: Vec<String> = (0..count / 2).map(|k| format!("made{k}")).collect();
    let of = |list: &[String]| -> Vec<NodeProto> {
        list.iter().zip(&made).map(|(from, to)| node("Sin", &[from], &[to])).collect()
    };
    let split = node("Split", &["x"], &names.iter().map(String::as_str).collect::<Vec<_>>());
    let mut nodes = vec![with(split, vec![int("num_outputs", names.len() as i64)])];
    nodes.extend(of(&names));
    let made: Vec<&str> = made.iter().map(String::as_str).collect();
    nodes.push(with(node("Concat", &made, &["y"]), vec![int("axis", 0)]));
    let size = (count / 2).to_string();
    model(graph(vec![value("x", FLOAT, &[&size])], nodes, vec![value("y", FLOAT, &[&size])]))
}

/// A sequence that gets one tensor after another.
pub(super) fn collected(count: usize) -> ModelProto {
    let mut nodes = vec![node("SequenceEmpty", &[], &["none"])];
    let name = |k: usize| if k == 0 { "none".to_owned() } else { format!("s{k}") };
    nodes.extend((0..count).map(|k| node("SequenceInsert", &[&name(k), "x"], &[&name(k + 1)])));
    nodes.push(with(node("ConcatFromSequence", &[&name(count)], &["y"]), vec![int("axis", 0)]));
    chain(nodes, Vec::new())
}

/// Questions inside of questions, each of both answers of the one around it.
pub(super) fn questions_inside(count: usize) -> ModelProto {
    let mut inner = graph(Vec::new(), vec![node("Sin", &["x"], &["y"])], vec![value("y", FLOAT, &["a", "b"])]);
    for _ in 0..count.min(100) {
        let branches = vec![region("then_branch", inner.clone()), region("else_branch", graph_of_cos())];
        inner =
            graph(Vec::new(), vec![with(node("If", &["c"], &["y"]), branches)], vec![value("y", FLOAT, &["a", "b"])]);
    }
    inner.input = vec![value("x", FLOAT, &["8", "8"]), value("c", BOOL, &[])];
    model(inner)
}

fn graph_of_cos() -> fuseline_frontend::onnx::schema::GraphProto {
    graph(Vec::new(), vec![node("Cos", &["x"], &["y"])], vec![value("y", FLOAT, &["a", "b"])])
}

/// Questions one behind another.
pub(super) fn questions(count: usize) -> ModelProto {
    let branch = |op: &str, from: &str| {
        graph(Vec::new(), vec![node(op, &[from], &["inner"])], vec![value("inner", FLOAT, &["a", "b"])])
    };
    let nodes = in_turn(count / 3, |_, from, to| {
        let branches = vec![region("then_branch", branch("Sin", from)), region("else_branch", branch("Cos", from))];
        vec![with(node("If", &["c"], &[to]), branches)]
    });
    let inputs = vec![value("x", FLOAT, &["8", "8"]), value("c", BOOL, &[])];
    model(graph(inputs, nodes, vec![value("y", FLOAT, &["8", "8"])]))
}

pub(super) fn body(op: NodeProto, from: &str, to: &str) -> fuseline_frontend::onnx::schema::GraphProto {
    let inputs = vec![value("trip", INT64, &[]), value("go", BOOL, &[]), value(from, FLOAT, &["8", "8"])];
    let nodes = vec![op, node("Identity", &["go"], &["going"])];
    graph(inputs, nodes, vec![value("going", BOOL, &[]), value(to, FLOAT, &["8", "8"])])
}

/// Loops one behind another, of as many trips as a number can say.
pub(super) fn loops(count: usize) -> ModelProto {
    let nodes = in_turn(count / 4, |_, from, to| {
        let inner = body(node("Sin", &["from"], &["to"]), "from", "to");
        vec![with(node("Loop", &["trips", "", from], &[to]), vec![region("body", inner)])]
    });
    chain(nodes, vec![scalar("trips", i64::MAX)])
}

/// Loops inside of loops.
pub(super) fn loops_inside(count: usize) -> ModelProto {
    let mut inner = node("Sin", &["x0"], &["y0"]);
    let depth = count.min(100);
    for k in 0..depth {
        let [from, to] = [format!("x{k}"), format!("y{k}")];
        let outside = format!("x{}", k + 1);
        let result = format!("y{}", k + 1);
        inner = with(node("Loop", &["trips", "", &outside], &[&result]), vec![region("body", body(inner, &from, &to))]);
    }
    let [x, y] = [format!("x{depth}"), format!("y{depth}")];
    let mut g = graph(vec![value(&x, FLOAT, &["8", "8"])], vec![inner], vec![value(&y, FLOAT, &["8", "8"])]);
    g.initializer = vec![scalar("trips", 1000)];
    model(g)
}

pub(super) fn function(name: &str, nodes: Vec<NodeProto>) -> FunctionProto {
    let opsets = [("", 18), ("own", 1)];
    let opset_import = opsets.map(|(domain, version)| OperatorSetIdProto { domain: domain.into(), version });
    FunctionProto {
        name: name.into(),
        domain: "own".into(),
        input: vec!["x".into()],
        output: vec!["y".into()],
        node: nodes,
        opset_import: opset_import.to_vec(),
        ..Default::default()
    }
}

pub(super) fn call(name: &str, from: &str, to: &str) -> NodeProto {
    NodeProto { domain: "own".into(), ..node(name, &[from], &[to]) }
}

pub(super) fn calling(last: &str, functions: Vec<FunctionProto>) -> ModelProto {
    let mut made = chain(vec![call(last, "x", "y")], Vec::new());
    made.functions = functions;
    made.opset_import.push(OperatorSetIdProto { domain: "own".into(), version: 1 });
    made
}

/// Functions each of which calls the one before twice.
pub(super) fn calls_doubled(count: usize) -> ModelProto {
    let count = count.min(60);
    let mut all = vec![function("f0", vec![node("Sin", &["x"], &["y"])])];
    for k in 1..=count {
        let before = format!("f{}", k - 1);
        all.push(function(&format!("f{k}"), vec![call(&before, "x", "h"), call(&before, "h", "y")]));
    }
    calling(&format!("f{count}"), all)
}

/// Functions each of which calls the one before.
pub(super) fn calls_inside(count: usize) -> ModelProto {
    let mut all = vec![function("f0", vec![node("Sin", &["x"], &["y"])])];
    all.extend((1..=count).map(|k| function(&format!("f{k}"), vec![call(&format!("f{}", k - 1), "x", "y")])));
    calling(&format!("f{count}"), all)
}

/// Two functions that call each other.
pub(super) fn calls_around(_: usize) -> ModelProto {
    let [a, b] = [("a", "b"), ("b", "a")].map(|(name, other)| function(name, vec![call(other, "x", "y")]));
    calling("a", vec![a, b])
}

/// One function called again and again.
pub(super) fn calls(count: usize) -> ModelProto {
    let nodes = in_turn(count / 2, |_, from, to| vec![call("f", from, to)]);
    let mut made = calling("f", vec![function("f", vec![node("Sin", &["x"], &["h"]), node("Tanh", &["h"], &["y"])])]);
    made.graph = chain(nodes, Vec::new()).graph;
    made
}

/// Convolutions with one kernel.
pub(super) fn convolutions(count: usize) -> ModelProto {
    let padded = |n: NodeProto| {
        let mut pads = int("pads", 0);
        pads.ints = vec![1; 4];
        pads.r#type = 7;
        with(n, vec![pads])
    };
    let nodes = in_turn(count, |_, from, to| vec![padded(node("Conv", &[from, "w"], &[to]))]);
    let mut g =
        graph(vec![value("x", FLOAT, &["1", "2", "8", "8"])], nodes, vec![value("y", FLOAT, &["1", "2", "8", "8"])]);
    g.initializer = vec![floats("w", &[2, 2, 3, 3], (0..36).map(|k| k as f32 / 36.0).collect())];
    model(g)
}

/// Constants computed from constants, none of which is worth keeping.
pub(super) fn constants(count: usize) -> ModelProto {
    let mut nodes = vec![node("Sin", &["w"], &["h0"])];
    nodes.extend((0..count).map(|k| node("Softmax", &[&format!("h{k}")], &[&format!("h{}", k + 1)])));
    nodes.push(node("Mul", &["x", &format!("h{count}")], &["y"]));
    chain(nodes, vec![floats("w", &[8, 8], (0..64).map(|k| k as f32).collect())])
}
