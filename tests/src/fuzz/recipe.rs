//! Models built from choices: every byte decides something, and what would not import is left out, so that nearly every
//! recipe is a model that runs.

use fuseline::error::Kind;
use fuseline::ops::named::{self, NamedOp};
use fuseline_frontend::Model;
use fuseline_frontend::onnx::schema::{
    AttributeProto, AttributeType, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
};

use crate::model_maker::{INT64, bytes, float, graph, int, ints, node, region, value, with};

/// A model has at most this many nodes, of which those that do not fit count too.
const MOST_NODES: usize = 16;

/// Bytes as a row of choices; behind their end, all choices are the first.
struct Choices<'d>(&'d [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn below(&mut self, bound: usize) -> usize {
        let high = if bound > 256 { usize::from(self.byte()) << 8 } else { 0 };
        (high + usize::from(self.byte())) % bound.max(1)
    }

    fn of<'t, T>(&mut self, table: &'t [T]) -> &'t T {
        &table[self.below(table.len())]
    }

    /// One time in `n`.
    fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == n - 1
    }
}

/// The model that some choices describe.
pub fn cooked(data: &[u8]) -> ModelProto {
    let mut choices = Choices(data);
    let mut model = start(&mut choices);
    let mut made = inputs(&model);
    for k in 0..MOST_NODES {
        if choices.0.is_empty() {
            break;
        }
        let mut larger = model.clone();
        let results = add_node(&mut choices, &mut larger, &made, k);
        if imports(&larger, &results) {
            (model, made) = (larger, made.into_iter().chain(results).collect());
        }
    }
    let last = made.len().saturating_sub(1);
    let outputs = made.iter().enumerate().filter(|(k, _)| *k == last || choices.once_in(4));
    let outputs = outputs.map(|(_, name)| value(name, UNDECLARED, &[])).collect();
    main_graph(&mut model).output = outputs;
    model
}

fn main_graph(model: &mut ModelProto) -> &mut GraphProto {
    model.graph.get_or_insert_default()
}

fn inputs(model: &ModelProto) -> Vec<String> {
    model.graph.iter().flat_map(|g| &g.input).map(|i| i.name.clone()).collect()
}

/// Whether a model is one once some values are its results; one whose structure hangs on inputs is.
fn imports(model: &ModelProto, results: &[String]) -> bool {
    let mut model = model.clone();
    main_graph(&mut model).output = results.iter().map(|name| value(name, UNDECLARED, &[])).collect();
    let imported = Model::from_bytes(bytes(&model), "recipe").and_then(|model| model.graph().map(|_| ()));
    imported.map_or_else(|error| error.kind() == Kind::NeedsValue, |()| true)
}

/// The code of no element type: what nodes make is known when they are imported.
const UNDECLARED: i32 = 0;

/// Codes of element types, f32 most often.
const TYPES: &[i32] = &[1, 1, 1, 1, 7, 9, 6, 10, 3, 2, 16, 11, 17, 21, 22, 12, 5];

const SIZES: &[&str] = &["2", "n", "3", "1", "4", "m", "6", "0", "8", "5"];

/// A model without nodes.
fn start(choices: &mut Choices<'_>) -> ModelProto {
    let version = *choices.of(&[18, 13, 21, 11, 9, 23, 7, 15, 24]);
    let opset = |domain: &str, version| OperatorSetIdProto { domain: domain.into(), version };
    let inputs = (0..=choices.below(3)).map(|k| {
        let (elements, rank) = (*choices.of(TYPES), [2, 1, 3, 4, 0][choices.below(5)]);
        let sizes: Vec<&str> = (0..rank).map(|_| *choices.of(SIZES)).collect();
        value(&format!("x{k}"), elements, &sizes)
    });
    let graph = graph(inputs.collect(), Vec::new(), Vec::new());
    let opset_import = vec![opset("", version), opset("com.microsoft", 1), opset("ai.onnx.ml", 3)];
    ModelProto { ir_version: 8, graph: Some(graph), opset_import, ..ModelProto::default() }
}

/// Adds a node, with the constants that it reads; returns what it makes.
fn add_node(choices: &mut Choices<'_>, model: &mut ModelProto, made: &[String], k: usize) -> Vec<String> {
    let rows: Vec<&NamedOp> = named::all().collect();
    let at = choices.below(rows.len() + 2);
    let results: Vec<String> = (0..1 + choices.below(4) / 3).map(|port| format!("v{k}_{port}")).collect();
    let new = match rows.get(at) {
        Some(row) => {
            let operands: Vec<String> = (0..choices.below(6))
                .map(|operand| reference(choices, model, made, &format!("c{k}_{operand}")))
                .collect();
            let names: Vec<&str> = operands.iter().map(String::as_str).collect();
            let results: Vec<&str> = results.iter().map(String::as_str).collect();
            let attributes = row.attributes.iter().filter(|_| choices.once_in(2)).copied().collect::<Vec<&str>>();
            let attributes = attributes.into_iter().map(|name| attribute(choices, name)).collect();
            NodeProto { domain: row.domain.into(), ..with(node(row.name, &names, &results), attributes) }
        }
        None if at == rows.len() => branch(choices, model, made, &results, k),
        None => repetition(choices, model, made, &results, k),
    };
    main_graph(model).node.push(new);
    results
}

/// The name of a value: one that was made, a constant, or none.
fn reference(choices: &mut Choices<'_>, model: &mut ModelProto, made: &[String], fresh: &str) -> String {
    match choices.below(8) {
        0..5 => made[made.len() - 1 - choices.below(made.len())].clone(),
        5 | 6 => {
            let constant = constant(choices, fresh);
            main_graph(model).initializer.push(constant);
            fresh.into()
        }
        _ => String::new(),
    }
}

/// A small constant: a list of integers, or a table of any type.
fn constant(choices: &mut Choices<'_>, name: &str) -> TensorProto {
    let number = |choices: &mut Choices<'_>| *choices.of(&[1i64, 2, 0, -1, 3, 4, -2, 6, 1 << 20, i64::MAX, i64::MIN]);
    if !choices.once_in(2) {
        let numbers: Vec<i64> = (0..choices.below(5)).map(|_| number(choices)).collect();
        let scalar = numbers.len() == 1 && choices.once_in(2);
        let constant = ints(name, &numbers);
        return if scalar { TensorProto { dims: Vec::new(), ..constant } } else { constant };
    }
    let dims: Vec<i64> = (0..choices.below(4)).map(|_| *choices.of(&[2, 3, 1, 4, 0])).collect();
    let count = dims.iter().product::<i64>() as usize;
    let mut constant = TensorProto { name: name.into(), dims, data_type: *choices.of(TYPES), ..TensorProto::default() };
    match constant.data_type {
        1 => constant.float_data = (0..count).map(|_| f32::from(choices.byte() as i8) / 8.0).collect(),
        11 => constant.double_data = (0..count).map(|_| f64::from(choices.byte() as i8) / 8.0).collect(),
        INT64 => constant.int64_data = (0..count).map(|_| number(choices)).collect(),
        12 => constant.uint64_data = (0..count).map(|_| u64::from(choices.byte())).collect(),
        _ => constant.int32_data = (0..count).map(|_| i32::from(choices.byte())).collect(),
    }
    constant
}

const WORDS: &[&str] = &[
    "NOTSET",
    "SAME_UPPER",
    "SAME_LOWER",
    "VALID",
    "constant",
    "reflect",
    "edge",
    "wrap",
    "nearest",
    "linear",
    "cubic",
    "bilinear",
    "none",
    "add",
    "mul",
    "max",
    "min",
    "mean",
    "sum",
    "tanh",
    "forward",
    "reverse",
    "bidirectional",
    "DCR",
    "CRD",
    "asymmetric",
    "align_corners",
    "half_pixel",
    "tf_crop_and_resize",
    "floor",
    "ceil",
    "avg",
    "zeros",
    "border",
    "ij,jk->ik",
    "bij,bjk",
    "ii->i",
    "...ij->...ji",
    "",
];

/// An attribute of the kind that its name suggests, and now and then of another.
fn attribute(choices: &mut Choices<'_>, name: &str) -> AttributeProto {
    let kind = match name {
        "pads" | "strides" | "kernel_shape" | "dilations" | "axes" | "perm" | "split" | "starts" | "ends" | "shape"
        | "output_shape" | "output_padding" | "paddings" | "value_ints" | "pooled_shape" => 0,
        "mode"
        | "auto_pad"
        | "reduction"
        | "direction"
        | "equation"
        | "padding_mode"
        | "activation"
        | "approximate"
        | "round_mode"
        | "coordinate_transformation_mode"
        | "nearest_mode"
        | "post_transform" => 1,
        "alpha" | "beta" | "epsilon" | "gamma" | "scale" | "bias" | "lambd" | "momentum" | "ratio" | "softcap" => 2,
        "value" => 3,
        _ => 4,
    };
    let kind = if choices.once_in(16) { choices.below(5) } else { kind };
    let small =
        |choices: &mut Choices<'_>| *choices.of(&[1i64, 0, 2, -1, 3, 4, -2, 7, 16, 1 << 31, i64::MAX, i64::MIN]);
    let of =
        |kind: AttributeType| AttributeProto { name: name.into(), r#type: kind as i32, ..AttributeProto::default() };
    match kind {
        0 => {
            let numbers = (0..choices.below(6)).map(|_| small(choices)).collect();
            AttributeProto { ints: numbers, ..of(AttributeType::Ints) }
        }
        1 => AttributeProto { s: choices.of(WORDS).as_bytes().into(), ..of(AttributeType::String) },
        2 => float(name, *choices.of(&[1.0, 0.5, 0.0, -1.0, 1e-5, f32::INFINITY, f32::NAN, 1e30])),
        3 => AttributeProto { t: Some(Box::new(constant(choices, ""))), ..of(AttributeType::Tensor) },
        _ => int(name, small(choices)),
    }
}

const UNARY: &[&str] = &["Neg", "Exp", "Abs", "Relu", "Identity", "Sigmoid", "Shape", "Transpose", "Not"];
const BINARY: &[&str] = &["Add", "Mul", "Sub", "Div", "MatMul", "Max", "Greater", "Concat"];

/// A node of a region that reads what was made outside.
fn inner(choices: &mut Choices<'_>, made: &[String], first: &str, result: &str) -> NodeProto {
    match choices.once_in(2) {
        false => node(choices.of::<&str>(UNARY), &[first], &[result]),
        true => node(choices.of::<&str>(BINARY), &[first, choices.of(made).as_str()], &[result]),
    }
}

fn branch(
    choices: &mut Choices<'_>,
    model: &mut ModelProto,
    made: &[String],
    results: &[String],
    k: usize,
) -> NodeProto {
    let condition = match choices.once_in(2) {
        false => choices.of(made).clone(),
        true => {
            let flag = TensorProto {
                name: format!("if{k}"),
                data_type: 9,
                int32_data: vec![i32::from(choices.byte() % 2)],
                ..TensorProto::default()
            };
            main_graph(model).initializer.push(flag);
            format!("if{k}")
        }
    };
    let mut regions = Vec::new();
    for name in ["then_branch", "else_branch"] {
        let first = choices.of(made).clone();
        let nodes = (0..results.len()).map(|r| inner(choices, made, &first, &format!("{name}{k}_{r}"))).collect();
        let outputs = (0..results.len()).map(|r| value(&format!("{name}{k}_{r}"), 1, &[])).collect();
        regions.push(region(name, graph(Vec::new(), nodes, outputs)));
    }
    let results: Vec<&str> = results.iter().map(String::as_str).collect();
    with(node("If", &[&condition], &results), regions)
}

fn repetition(
    choices: &mut Choices<'_>,
    model: &mut ModelProto,
    made: &[String],
    results: &[String],
    k: usize,
) -> NodeProto {
    let trips = TensorProto { dims: Vec::new(), ..ints(&format!("trips{k}"), &[choices.below(5) as i64]) };
    main_graph(model).initializer.push(trips);
    let carried: Vec<String> = results.iter().map(|_| choices.of(made).clone()).collect();
    let mut nodes = vec![node("Identity", &[&format!("go{k}")], &[&format!("go_on{k}")])];
    let mut takes = vec![value(&format!("i{k}"), INT64, &[]), value(&format!("go{k}"), 9, &[])];
    let mut gives = vec![value(&format!("go_on{k}"), 9, &[])];
    for r in 0..results.len() {
        let (from, to) = (format!("from{k}_{r}"), format!("to{k}_{r}"));
        nodes.push(inner(choices, made, &from, &to));
        takes.push(value(&from, 1, &[]));
        gives.push(value(&to, 1, &[]));
    }
    // What is not carried is stacked.
    let carries = if choices.once_in(3) { results.len() - 1 } else { results.len() };
    takes.truncate(2 + carries);
    let (trips, results) = (format!("trips{k}"), results.iter().map(String::as_str).collect::<Vec<&str>>());
    let mut operands = vec![trips.as_str(), ""];
    operands.extend(carried.iter().take(carries).map(String::as_str));
    with(node("Loop", &operands, &results), vec![region("body", graph(takes, nodes, gives))])
}
