//! Models with one very long list: of operands, results, attributes, axes, names, sizes, texts. Some are wrong, which takes no longer to say.

use fuseline_frontend::onnx::schema::{
    AttributeProto, AttributeType, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
};

use super::repeated::{call, chain, floats, function};
use super::{Malice, scalar};
use crate::model_maker::{FLOAT, INT64, float, graph, int, ints, model, node, value, with};

const STRING: i32 = 8;
const BOOL: i32 = 9;

/// Every kind, by name.
pub const LISTS: &[(&str, Malice)] = &[
    ("literals", |n| chain(vec![sin()], names("w", n).iter().map(|name| floats(name, &[1], vec![1.0])).collect())),
    ("literals of one name", |n| chain(vec![sin()], vec![floats("w", &[1], vec![1.0]); n])),
    ("attributes", |n| chain(vec![with(sin(), names("a", n).iter().map(|name| int(name, 1)).collect())], Vec::new())),
    ("attributes of one name", |n| {
        let leaky = node("LeakyRelu", &["x"], &["y"]);
        chain(vec![with(leaky, (0..n).map(|k| float("alpha", k as f32)).collect())], Vec::new())
    }),
    ("sum of one", |n| chain(vec![node("Sum", &vec!["x"; n], &["y"])], Vec::new())),
    ("largest of one", |n| chain(vec![node("Max", &vec!["x"; n], &["y"])], Vec::new())),
    ("mean of one", |n| chain(vec![node("Mean", &vec!["x"; n], &["y"])], Vec::new())),
    ("behind itself", |n| chain(vec![along(node("Concat", &vec!["x"; n], &["y"]), 0)], Vec::new())),
    ("largest of two", largest_of_two),
    ("factors", |n| {
        let n = n.min(2000);
        chain(vec![einsum(&vec!["x"; n], &format!("{}->ab", vec!["ab"; n].join(",")))], Vec::new())
    }),
    ("labels", |n| chain(vec![einsum(&["x"], &format!("{}->a", "a".repeat(n)))], Vec::new())),
    ("long names", long_names),
    ("long beginnings", long_beginnings),
    ("one result", |n| {
        let outputs = vec![value("h", FLOAT, &["a", "b"]); n];
        model(graph(vec![value("x", FLOAT, &["8", "8"])], vec![node("Sin", &["x"], &["h"])], outputs))
    }),
    ("same results", same_results),
    ("axes", |n| {
        let shape = [8, 8].into_iter().chain(std::iter::repeat_n(1, n)).collect::<Vec<i64>>();
        chain(vec![node("Reshape", &["x", "s"], &["y"])], vec![ints("s", &shape)])
    }),
    ("more axes", |n| {
        let axes: Vec<i64> = (2..n.max(3) as i64).collect();
        chain(vec![node("Unsqueeze", &["x", "s"], &["y"])], vec![ints("s", &axes)])
    }),
    ("order of axes", |n| {
        let order = (0..n as i64).collect();
        chain(vec![with(node("Transpose", &["x"], &["y"]), vec![list("perm", order)])], Vec::new())
    }),
    ("parts", |n| parts(n, 1, false)),
    ("all parts", |n| parts(n, n, false)),
    ("parts turned round", |n| parts(n, 1, true)),
    ("sequence of one", |n| {
        let made = node("SequenceConstruct", &vec!["x"; n], &["s"]);
        chain(vec![made, along(node("ConcatFromSequence", &["s"], &["y"]), 0)], Vec::new())
    }),
    ("functions nobody calls", functions_nobody_calls),
    ("sets of operators", |n| {
        let mut made = chain(vec![sin()], Vec::new());
        let more = names("d", n).into_iter().map(|domain| OperatorSetIdProto { domain, version: 1 });
        made.opset_import.extend(more);
        made
    }),
    ("inputs of one name", |n| {
        model(graph(vec![value("x", FLOAT, &["8", "8"]); n], vec![sin()], vec![value("y", FLOAT, &["a", "b"])]))
    }),
    ("sizes of an input", |n| sizes(&vec!["1"; n])),
    ("names of sizes", |n| {
        let names = names("s", n);
        sizes(&names.iter().map(String::as_str).collect::<Vec<_>>())
    }),
    ("pads", |n| chain(vec![node("Pad", &["x", "p"], &["y"])], vec![ints("p", &vec![0; n])])),
    ("repeats", |n| chain(vec![node("Tile", &["x", "p"], &["y"])], vec![ints("p", &vec![1; n])])),
    ("places", |n| {
        let places: Vec<i64> = (0..n as i64).map(|k| k % 8).collect();
        chain(vec![node("Gather", &["x", "i"], &["y"])], vec![ints("i", &places)])
    }),
    ("words", |n| of_texts(vec!["a".repeat(10); n], Vec::new(), STRING)),
    ("words of a text", |n| of_texts(vec!["a ".repeat(n)], vec![node("StringSplit", &["c"], &["y", "n"])], STRING)),
    ("stars of stars", |n| matched(n, &format!("{}b", "(a*)*".repeat(n.min(1000))))),
    ("repeated repeats", |n| matched(n, "((a{0,200}){0,200}){0,200}b")),
    ("brackets", |n| matched(n, &format!("{}a{}", "(".repeat(n.min(5000)), ")".repeat(n.min(5000))))),
    ("steps of a cell", steps_of_a_cell),
    ("given or not", given_or_not),
];

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|k| format!("{prefix}{k}")).collect()
}

fn sin() -> NodeProto {
    node("Sin", &["x"], &["y"])
}

fn along(node: NodeProto, axis: i64) -> NodeProto {
    with(node, vec![int("axis", axis)])
}

fn list(name: &str, ints: Vec<i64>) -> AttributeProto {
    AttributeProto { name: name.into(), ints, r#type: AttributeType::Ints as i32, ..AttributeProto::default() }
}

fn text(name: &str, text: &str) -> AttributeProto {
    let s = text.as_bytes().to_vec().into();
    AttributeProto { name: name.into(), s, r#type: AttributeType::String as i32, ..AttributeProto::default() }
}

fn einsum(inputs: &[&str], equation: &str) -> NodeProto {
    with(node("Einsum", inputs, &["y"]), vec![text("equation", equation)])
}

/// Two values, each read very often by one node.
fn largest_of_two(n: usize) -> ModelProto {
    let read: Vec<&str> = (0..n).map(|k| if k % 2 == 0 { "a" } else { "b" }).collect();
    let nodes = vec![node("Cos", &["x"], &["a"]), node("Sin", &["x"], &["b"]), node("Max", &read, &["y"])];
    chain(nodes, Vec::new())
}

fn long_names(n: usize) -> ModelProto {
    let long = "z".repeat(10 * n);
    let nodes = vec![NodeProto { name: long.clone(), ..sin() }, node("Cos", &["y"], &[&long])];
    let outputs = ["y", &long].map(|name| value(name, FLOAT, &["a", "b"]));
    model(graph(vec![value("x", FLOAT, &["8", "8"])], nodes, outputs.to_vec()))
}

/// Names that differ at the end only.
fn long_beginnings(n: usize) -> ModelProto {
    let long = "p".repeat(1000);
    let nodes = super::in_turn((n / 100).max(1), |_, from, to| {
        let name = |short: &str| if short == "x" || short == "y" { short.to_owned() } else { format!("{long}{short}") };
        vec![node("Sin", &[&name(from)], &[&name(to)])]
    });
    chain(nodes, Vec::new())
}

fn same_results(n: usize) -> ModelProto {
    let names = names("y", n);
    let mut nodes = vec![node("Sin", &["x"], &["h"])];
    nodes.extend(names.iter().map(|name| node("Identity", &["h"], &[name])));
    let outputs = names.iter().map(|name| value(name, FLOAT, &["a", "b"])).collect();
    model(graph(vec![value("x", FLOAT, &["8", "8"])], nodes, outputs))
}

/// A vector cut into its elements, of which some are results, or which are put together from the end.
fn parts(n: usize, results: usize, is_joined: bool) -> ModelProto {
    let names = names("part", n);
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut nodes = vec![with(node("Split", &["x"], &all), vec![int("num_outputs", n as i64)])];
    let mut outputs: Vec<_> = names[..results].iter().map(|name| value(name, FLOAT, &["a"])).collect();
    if is_joined {
        let turned: Vec<&str> = all.into_iter().rev().collect();
        nodes.push(along(node("Concat", &turned, &["y"]), 0));
        outputs = vec![value("y", FLOAT, &["a"])];
    }
    model(graph(vec![value("x", FLOAT, &[&n.to_string()])], nodes, outputs))
}

fn functions_nobody_calls(n: usize) -> ModelProto {
    let mut made = chain(vec![call("f0", "x", "y")], Vec::new());
    made.functions = names("f", n).iter().map(|name| function(name, vec![sin()])).collect();
    made.opset_import.push(OperatorSetIdProto { domain: "own".into(), version: 1 });
    made
}

fn sizes(sizes: &[&str]) -> ModelProto {
    model(graph(vec![value("x", FLOAT, sizes)], vec![sin()], vec![value("y", FLOAT, &["a"])]))
}

/// Texts, and what is made of them; operators on texts came with version 20.
fn of_texts(texts: Vec<String>, nodes: Vec<NodeProto>, elements: i32) -> ModelProto {
    let literal = TensorProto {
        name: if nodes.is_empty() { "y" } else { "c" }.into(),
        dims: vec![texts.len() as i64],
        data_type: STRING,
        string_data: texts.into_iter().map(|text| text.into_bytes().into()).collect(),
        ..TensorProto::default()
    };
    let mut g = graph(vec![value("x", FLOAT, &["8", "8"])], nodes, vec![value("y", elements, &["a"])]);
    g.initializer = vec![literal];
    let mut made = model(g);
    made.opset_import[0].version = 20;
    made
}

fn matched(n: usize, pattern: &str) -> ModelProto {
    let full = with(node("RegexFullMatch", &["c"], &["y"]), vec![text("pattern", pattern)]);
    of_texts(vec!["a".repeat(n)], vec![full], BOOL)
}

/// One cell over very many steps.
fn steps_of_a_cell(n: usize) -> ModelProto {
    let cell = with(node("LSTM", &["x", "w", "r"], &["y"]), vec![int("hidden_size", 2)]);
    let mut g =
        graph(vec![value("x", FLOAT, &[&n.to_string(), "1", "2"])], vec![cell], vec![value("y", FLOAT, &["a"])]);
    g.initializer = ["w", "r"].map(|name| floats(name, &[1, 8, 2], vec![0.1; 16])).to_vec();
    model(g)
}

/// Inputs that have values of their own, and may be given others.
fn given_or_not(n: usize) -> ModelProto {
    let names = names("d", n / 2);
    let mut nodes = vec![node("Shape", &["x"], &["h0"])];
    let number = |k: usize| format!("h{k}");
    nodes.extend(names.iter().enumerate().map(|(k, name)| node("Add", &[&number(k), name], &[&number(k + 1)])));
    let inputs = std::iter::once(value("x", FLOAT, &["n"])).chain(names.iter().map(|name| value(name, INT64, &[])));
    let mut g = graph(inputs.collect(), nodes, vec![value(&number(names.len()), INT64, &["1"])]);
    g.initializer = names.iter().map(|name| scalar(name, 1)).collect();
    model(g)
}
