//! Models that use names, functions and control flow in the ways exporters do.

use std::sync::Arc;

use fuseline::error::{Kind, Result};
use fuseline::reference::{Options, evaluate};
use fuseline::tensor::{DType, Literal};
use fuseline_frontend::onnx::schema::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
};
use fuseline_frontend::{Model, Tensors};
use fuseline_tests::model_maker::{FLOAT, INT64, bytes, float, graph, int, ints, model, node, region, value, with};

const BOOL: i32 = 9;

fn run(model: &ModelProto, inputs: &[(&str, Literal)]) -> Result<Vec<Literal>> {
    let model = Model::from_bytes(bytes(model), "test.onnx")?;
    let inputs: Tensors = inputs.iter().map(|(n, x)| (n.to_string(), x.clone())).collect();
    model.specialise(&inputs, |special| {
        let inputs = special.inputs.iter().map(|(n, x)| (Arc::from(n.as_str()), x.clone())).collect();
        evaluate(special.graph, &inputs, &Options::default())
    })
}

fn f32s(sizes: &[usize], values: &[f64]) -> Literal {
    Literal::from_f64s(DType::F32, sizes.to_vec(), values).unwrap()
}

fn scalar_ints(name: &str, value: i64) -> TensorProto {
    TensorProto { dims: vec![], ..ints(name, &[value]) }
}

/// A node of the functions that the tests define.
fn local(op: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto { domain: "local".into(), ..node(op, inputs, outputs) }
}

fn function(name: &str, inputs: &[&str], outputs: &[&str], nodes: Vec<NodeProto>) -> FunctionProto {
    let standard = OperatorSetIdProto { domain: String::new(), version: 18 };
    let own = OperatorSetIdProto { domain: "local".into(), version: 1 };
    FunctionProto {
        name: name.into(),
        domain: "local".into(),
        input: inputs.iter().map(|s| s.to_string()).collect(),
        output: outputs.iter().map(|s| s.to_string()).collect(),
        node: nodes,
        opset_import: vec![standard, own],
        ..FunctionProto::default()
    }
}

fn with_functions(graph: GraphProto, functions: Vec<FunctionProto>) -> ModelProto {
    let mut m = model(graph);
    m.opset_import.push(OperatorSetIdProto { domain: "local".into(), version: 1 });
    m.functions = functions;
    m
}

fn reference(name: &str, to: &str, kind: AttributeProto) -> AttributeProto {
    AttributeProto { name: name.into(), ref_attr_name: to.into(), r#type: kind.r#type, ..AttributeProto::default() }
}

#[test]
fn a_function_takes_attributes_with_defaults_and_calls_another() {
    let leaky = with(node("LeakyRelu", &["x"], &["y"]), vec![reference("alpha", "slope", float("", 0.0))]);
    let mut slanted = function("Slanted", &["x"], &["y"], vec![leaky]);
    slanted.attribute_proto = vec![float("slope", 0.5)];
    let twice =
        function("Twice", &["a"], &["c"], vec![local("Slanted", &["a"], &["b"]), local("Slanted", &["b"], &["c"])]);
    let g = graph(
        vec![value("x", FLOAT, &["n"])],
        vec![local("Twice", &["x"], &["y"]), with(local("Slanted", &["x"], &["z"]), vec![float("slope", 0.25)])],
        vec![value("y", FLOAT, &["n"]), value("z", FLOAT, &["n"])],
    );
    let out = run(&with_functions(g, vec![slanted, twice]), &[("x", f32s(&[2], &[-4.0, 3.0]))]).unwrap();
    assert_eq!(out[0].to_f64s(), [-1.0, 3.0]);
    assert_eq!(out[1].to_f64s(), [-1.0, 3.0]);
}

#[test]
fn a_function_parameter_may_be_left_out() {
    let clip = function("Bounded", &["x", "low", "high"], &["y"], vec![node("Clip", &["x", "low", "high"], &["y"])]);
    let mut g = graph(
        vec![value("x", FLOAT, &["n"])],
        vec![local("Bounded", &["x", "", "top"], &["y"]), local("Bounded", &["x"], &["z"])],
        vec![value("y", FLOAT, &["n"]), value("z", FLOAT, &["n"])],
    );
    g.initializer =
        vec![TensorProto { name: "top".into(), data_type: FLOAT, float_data: vec![1.0], ..TensorProto::default() }];
    let out = run(&with_functions(g, vec![clip]), &[("x", f32s(&[2], &[-4.0, 3.0]))]).unwrap();
    assert_eq!(out[0].to_f64s(), [-4.0, 1.0]);
    assert_eq!(out[1].to_f64s(), [-4.0, 3.0]);
}

#[test]
fn nodes_may_stand_in_any_order() {
    let nodes = vec![node("Neg", &["a"], &["y"]), node("Abs", &["x"], &["a"])];
    let g = graph(vec![value("x", FLOAT, &["n"])], nodes, vec![value("y", FLOAT, &["n"])]);
    assert_eq!(run(&model(g), &[("x", f32s(&[1], &[-2.0]))]).unwrap()[0].to_f64s(), [-2.0]);
}

/// `if sum(x) > 0 { x + x } else { concat(x, x) }`: the branches capture `x` and differ in size.
#[test]
fn branches_capture_values_and_may_differ_in_size() {
    let then = graph(vec![], vec![node("Add", &["x", "x"], &["t"])], vec![value("t", FLOAT, &["k"])]);
    let other = with(node("Concat", &["x", "x"], &["e"]), vec![int("axis", 0)]);
    let other = graph(vec![], vec![other], vec![value("e", FLOAT, &["k"])]);
    let mut g = graph(
        vec![value("x", FLOAT, &["n"])],
        vec![
            with(node("ReduceSum", &["x"], &["s"]), vec![int("keepdims", 0)]),
            node("Greater", &["s", "zero"], &["c"]),
            with(node("If", &["c"], &["r"]), vec![region("then_branch", then), region("else_branch", other)]),
            node("Neg", &["r"], &["y"]),
        ],
        vec![value("y", FLOAT, &["k"])],
    );
    g.initializer =
        vec![TensorProto { name: "zero".into(), data_type: FLOAT, float_data: vec![0.0], ..TensorProto::default() }];
    let m = model(g);
    assert_eq!(run(&m, &[("x", f32s(&[2], &[1.0, 2.0]))]).unwrap()[0].to_f64s(), [-2.0, -4.0]);
    assert_eq!(run(&m, &[("x", f32s(&[2], &[1.0, -2.0]))]).unwrap()[0].to_f64s(), [-1.0, 2.0, -1.0, 2.0]);
}

#[test]
fn a_branch_that_is_known_becomes_part_of_the_graph() {
    let then = graph(vec![], vec![node("Neg", &["x"], &["t"])], vec![value("t", FLOAT, &["n"])]);
    let other = graph(vec![], vec![node("NoSuchOp", &["x"], &["e"])], vec![value("e", FLOAT, &["n"])]);
    let nodes = vec![with(node("If", &["c"], &["y"]), vec![region("then_branch", then), region("else_branch", other)])];
    let mut g = graph(vec![value("x", FLOAT, &["n"])], nodes, vec![value("y", FLOAT, &["n"])]);
    g.initializer =
        vec![TensorProto { name: "c".into(), data_type: BOOL, int32_data: vec![1], ..TensorProto::default() }];
    assert_eq!(run(&model(g), &[("x", f32s(&[1], &[2.0]))]).unwrap()[0].to_f64s(), [-2.0]);
}

/// Each branch fits one length only, and which one is taken depends on another input.
#[test]
fn a_branch_that_does_not_fit_is_fine_when_it_is_not_taken() {
    let branch = |length: i64| {
        let mut g = graph(vec![], vec![node("Reshape", &["x", "shape"], &["r"])], vec![value("r", FLOAT, &["2", "k"])]);
        g.initializer = vec![ints("shape", &[2, length])];
        g
    };
    let mut g = graph(
        vec![value("x", FLOAT, &["n"]), value("wide", INT64, &[])],
        vec![
            node("Equal", &["wide", "one"], &["c"]),
            with(node("If", &["c"], &["y"]), vec![region("then_branch", branch(3)), region("else_branch", branch(2))]),
        ],
        vec![value("y", FLOAT, &["2", "k"])],
    );
    g.initializer = vec![scalar_ints("one", 1)];
    let m = model(g);
    let wide = |n: i64| Literal::from_ints(DType::I64, [], &[n]).unwrap();
    assert_eq!(run(&m, &[("x", f32s(&[6], &[0.0; 6])), ("wide", wide(1))]).unwrap()[0].sizes(), [2, 3]);
    assert_eq!(run(&m, &[("x", f32s(&[4], &[0.0; 4])), ("wide", wide(0))]).unwrap()[0].sizes(), [2, 2]);
    assert!(run(&m, &[("x", f32s(&[4], &[0.0; 4])), ("wide", wide(1))]).is_err());
}

/// A loop that appends its slice to a growing value and stacks the trip number.
#[test]
fn a_loop_may_grow_its_values() {
    let body = graph(
        vec![value("i", INT64, &[]), value("go", BOOL, &[]), value("acc", FLOAT, &["m"])],
        vec![
            node("Identity", &["go"], &["go_on"]),
            with(node("Concat", &["acc", "x"], &["longer"]), vec![int("axis", 0)]),
            node("Identity", &["i"], &["trip"]),
        ],
        vec![value("go_on", BOOL, &[]), value("longer", FLOAT, &["k"]), value("trip", INT64, &[])],
    );
    let nodes = vec![with(node("Loop", &["n", "", "x"], &["all", "trips"]), vec![region("body", body)])];
    let outputs = vec![value("all", FLOAT, &["k"]), value("trips", INT64, &["t"])];
    let g = graph(vec![value("n", INT64, &[]), value("x", FLOAT, &["2"])], nodes, outputs);
    let m = model(g);
    for trips in [0, 1, 3] {
        let n = Literal::from_ints(DType::I64, [], &[trips]).unwrap();
        let out = run(&m, &[("n", n), ("x", f32s(&[2], &[5.0, 6.0]))]).unwrap();
        assert_eq!(out[0].sizes(), [2 + 2 * trips as usize]);
        assert_eq!(out[1].to_ints(), (0..trips).collect::<Vec<_>>());
    }
}

/// Shape → Gather → Concat → Reshape with open sizes: no value symbol, no shape arithmetic at run time.
#[test]
fn shape_arithmetic_becomes_sizes() {
    let mut g = graph(
        vec![value("x", FLOAT, &["batch", "seq", "12"])],
        vec![
            node("Shape", &["x"], &["s"]),
            with(node("Gather", &["s", "zero"], &["b"]), vec![int("axis", 0)]),
            with(node("Gather", &["s", "one"], &["t"]), vec![int("axis", 0)]),
            node("Unsqueeze", &["b", "axes"], &["b1"]),
            node("Unsqueeze", &["t", "axes"], &["t1"]),
            with(node("Concat", &["b1", "t1", "tail"], &["shape"]), vec![int("axis", 0)]),
            node("Reshape", &["x", "shape"], &["heads"]),
            with(
                node("Transpose", &["heads"], &["y"]),
                vec![AttributeProto {
                    name: "perm".into(),
                    ints: vec![0, 2, 1, 3],
                    r#type: 7,
                    ..AttributeProto::default()
                }],
            ),
        ],
        vec![value("y", FLOAT, &["batch", "3", "seq", "4"])],
    );
    g.initializer = vec![scalar_ints("zero", 0), scalar_ints("one", 1), ints("axes", &[0]), ints("tail", &[3, 4])];
    let m = Model::from_bytes(bytes(&model(g)), "m").unwrap();
    let graph = m.graph().unwrap();
    let y = graph.outputs()[0].value;
    assert_eq!(graph.ty(y).to_string(), "f32[batch, 3, seq, 4]");
    assert!(graph.binders().is_empty());
}

/// The same sizes under two names, one of which is 1: the general graph does not hold, the special one does.
#[test]
fn a_size_of_one_is_broadcast_after_all() {
    let nodes = vec![node("Add", &["x", "y"], &["z"])];
    let inputs = vec![value("x", FLOAT, &["a"]), value("y", FLOAT, &["b"])];
    let m = model(graph(inputs, nodes, vec![value("z", FLOAT, &["a"])]));
    let z = run(&m, &[("x", f32s(&[2], &[1.0, 2.0])), ("y", f32s(&[1], &[10.0]))]).unwrap();
    assert_eq!(z[0].to_f64s(), [11.0, 12.0]);
    let error = run(&m, &[("x", f32s(&[2], &[1.0, 2.0])), ("y", f32s(&[3], &[0.0; 3]))]).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("Add_z"), "{error}");
}

/// Squeeze without axes keeps sizes that are not known; what does not fit the axes that are left then may fit those of other sizes.
#[test]
fn how_many_axes_are_left_may_hang_on_sizes() {
    let nodes = vec![node("Squeeze", &["x"], &["z"]), node("Tile", &["z", "twice"], &["y"])];
    let mut g = graph(vec![value("x", FLOAT, &["a", "b", "c"])], nodes, vec![value("y", FLOAT, &["r", "s"])]);
    g.initializer = vec![ints("twice", &[1, 2])];
    let m = model(g);
    let y = run(&m, &[("x", f32s(&[1, 2, 2], &[1.0, 2.0, 3.0, 4.0]))]).unwrap();
    assert_eq!((y[0].sizes(), y[0].to_f64s()), (&[2, 4][..], vec![1.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0, 4.0]));
    let y = run(&m, &[("x", f32s(&[2, 1, 1], &[1.0, 2.0]))]).unwrap_err();
    assert_eq!(y.kind(), Kind::Invalid, "{y}");
    let y = run(&m, &[("x", f32s(&[2, 1, 2], &[1.0, 2.0, 3.0, 4.0]))]).unwrap();
    assert_eq!(y[0].sizes(), [2, 4]);
    // Without sizes nothing is broken yet.
    let error = Model::from_bytes(bytes(&m), "m").unwrap().graph().unwrap_err();
    assert_eq!(error.kind(), Kind::NeedsValue, "{error}");
}

#[test]
fn a_constant_that_is_an_input_too_can_be_replaced() {
    let inputs = vec![value("x", FLOAT, &["n"]), value("w", FLOAT, &["1"])];
    let mut g = graph(inputs, vec![node("Mul", &["x", "w"], &["y"])], vec![value("y", FLOAT, &["n"])]);
    g.initializer = vec![TensorProto {
        name: "w".into(),
        dims: vec![1],
        data_type: FLOAT,
        float_data: vec![2.0],
        ..TensorProto::default()
    }];
    let m = model(g);
    assert_eq!(run(&m, &[("x", f32s(&[1], &[3.0]))]).unwrap()[0].to_f64s(), [6.0]);
    assert_eq!(run(&m, &[("x", f32s(&[1], &[3.0])), ("w", f32s(&[1], &[5.0]))]).unwrap()[0].to_f64s(), [15.0]);
}

/// Axes given at run time decide the structure: the graph is made for their values.
#[test]
fn structure_may_hang_on_the_value_of_an_input() {
    let nodes = vec![with(node("ReduceSum", &["x", "axes"], &["y"]), vec![int("keepdims", 0)])];
    let inputs = vec![value("x", FLOAT, &["a", "b"]), value("axes", INT64, &["1"])];
    let m = model(graph(inputs, nodes, vec![value("y", FLOAT, &["c"])]));
    let x = f32s(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(run(&m, &[("x", x.clone()), ("axes", Literal::i64s(&[0]))]).unwrap()[0].to_f64s(), [5.0, 7.0, 9.0]);
    assert_eq!(run(&m, &[("x", x), ("axes", Literal::i64s(&[-1]))]).unwrap()[0].to_f64s(), [6.0, 15.0]);
}

#[test]
fn structure_may_hang_on_the_size_of_an_input() {
    let inputs = || vec![value("x", FLOAT, &["m", "n"]), value("i", INT64, &["k", "depth"])];
    let found = graph(inputs(), vec![node("GatherND", &["x", "i"], &["y"])], vec![value("y", FLOAT, &["k"])]);
    let x = f32s(&[2, 2], &[1.0, 2.0, 3.0, 5.0]);
    let pairs = Literal::from_ints(DType::I64, [3, 2], &[1, 0, 0, 1, -1, -1]).unwrap();
    assert_eq!(run(&model(found), &[("x", x.clone()), ("i", pairs)]).unwrap(), [f32s(&[3], &[3.0, 2.0, 5.0])]);
    let square =
        graph(vec![value("x", FLOAT, &["m", "n"])], vec![node("Det", &["x"], &["y"])], vec![value("y", FLOAT, &[])]);
    assert_eq!(run(&model(square), &[("x", x)]).unwrap(), [f32s(&[], &[-1.0])]);
}

#[test]
fn a_long_chain_and_many_readers_take_little_time() {
    let count = 100_000;
    let mut nodes = vec![node("Neg", &["x"], &["v0"])];
    for k in 1..count {
        nodes.push(node(if k % 2 == 0 { "Neg" } else { "Abs" }, &[&format!("v{}", k - 1)], &[&format!("v{k}")]));
    }
    let last = format!("v{}", count - 1);
    let m = model(graph(vec![value("x", FLOAT, &["1"])], nodes, vec![value(&last, FLOAT, &["1"])]));
    assert_eq!(run(&m, &[("x", f32s(&[1], &[3.0]))]).unwrap()[0].to_f64s(), [3.0]);
    let mut nodes: Vec<NodeProto> = (0..20_000).map(|k| node("Abs", &["x"], &[&format!("w{k}")])).collect();
    let all: Vec<String> = (0..20_000).map(|k| format!("w{k}")).collect();
    nodes.push(node("Max", &all.iter().map(String::as_str).collect::<Vec<_>>(), &["y"]));
    let m = model(graph(vec![value("x", FLOAT, &["1"])], nodes, vec![value("y", FLOAT, &["1"])]));
    assert_eq!(run(&m, &[("x", f32s(&[1], &[-3.0]))]).unwrap()[0].to_f64s(), [3.0]);
}
