//! Models over sequences and optional values: their forms inside and outside, and what is wrong with them.

use std::sync::Arc;

use fuseline::error::{Kind, Result};
use fuseline::reference::{Options, evaluate};
use fuseline::tensor::{DType, Literal};
use fuseline_frontend::onnx::schema::{GraphProto, NodeProto, TensorProto, ValueInfoProto};
use fuseline_frontend::{Model, Tensors};
use fuseline_tests::model_maker::{
    FLOAT, INT64, bytes, graph, int, ints, model, node, optional, region, sequence, value, with,
};

const BOOL: i32 = 9;

fn run(graph: GraphProto, inputs: &[(&str, Literal)]) -> Result<Tensors> {
    let model = Model::from_bytes(bytes(&model(graph)), "test.onnx")?;
    let inputs: Tensors = inputs.iter().map(|(n, x)| (n.to_string(), x.clone())).collect();
    model.specialise(&inputs, |special| {
        let inputs = special.inputs.iter().map(|(n, x)| (Arc::from(n.as_str()), x.clone())).collect();
        let values = evaluate(special.graph, &inputs, &Options::default())?;
        Ok(special.graph.outputs().iter().map(|output| output.name.to_string()).zip(values).collect())
    })
}

fn f32s(values: &[f64]) -> Literal {
    Literal::from_f64s(DType::F32, [values.len()], values).unwrap()
}

fn int_scalar(x: i64) -> Literal {
    Literal::from_ints(DType::I64, [0; 0], &[x]).unwrap()
}

fn floats(name: &str) -> ValueInfoProto {
    value(name, FLOAT, &["n"])
}

fn names(tensors: &Tensors) -> Vec<&str> {
    tensors.keys().map(String::as_str).collect()
}

/// A graph over two vectors `a` and `b` and integers `k`, with constants `zero` … `nine`.
fn over_vectors(nodes: Vec<NodeProto>, outputs: Vec<ValueInfoProto>) -> GraphProto {
    let mut g =
        graph(vec![value("a", FLOAT, &["n"]), value("b", FLOAT, &["m"]), value("k", INT64, &[])], nodes, outputs);
    let constants = [("zero", 0), ("one", 1), ("last", -1), ("far", 9), ("near", -9)];
    g.initializer = constants.map(|(name, x)| TensorProto { dims: vec![], ..ints(name, &[x]) }).to_vec();
    g
}

fn run_vectors(nodes: Vec<NodeProto>, outputs: Vec<ValueInfoProto>) -> Result<Tensors> {
    let inputs = [("a", f32s(&[1.0, 2.0])), ("b", f32s(&[3.0, 4.0, 5.0])), ("k", int_scalar(1))];
    run(over_vectors(nodes, outputs), &inputs)
}

fn pair() -> NodeProto {
    node("SequenceConstruct", &["a", "b"], &["s"])
}

#[test]
fn elements_are_found_by_place_from_either_end() {
    let nodes = vec![
        pair(),
        node("SequenceAt", &["s", "zero"], &["first"]),
        node("SequenceAt", &["s", "last"], &["second"]),
        node("SequenceAt", &["s", "k"], &["given"]),
        node("SequenceInsert", &["s", "a", "one"], &["three"]),
        node("SequenceErase", &["three", "last"], &["two"]),
        node("SequenceLength", &["three"], &["count"]),
    ];
    let outputs =
        vec![floats("first"), floats("second"), floats("given"), sequence(floats("two")), value("count", INT64, &[])];
    let out = run_vectors(nodes, outputs).unwrap();
    assert_eq!(names(&out), ["first", "second", "given", "two.0", "two.1", "count"]);
    let sizes: Vec<usize> = out.values().map(Literal::count).collect();
    assert_eq!(sizes, [2, 3, 3, 2, 2, 1]);
    assert_eq!(out["count"].to_ints(), [3]);
}

#[test]
fn wrong_uses_are_told_with_their_node() {
    let empty = || node("SequenceEmpty", &[], &["e"]);
    let cases: Vec<(Vec<NodeProto>, &str, &str)> = vec![
        (vec![pair(), node("SequenceAt", &["s", "far"], &["y"])], "SequenceAt", "position 9 in a sequence of 2"),
        (vec![pair(), node("SequenceAt", &["s", "near"], &["y"])], "SequenceAt", "position -9 in a sequence of 2"),
        (vec![pair(), node("SequenceAt", &["s", "a"], &["y"])], "SequenceAt", "a position is an integer"),
        (vec![pair(), node("SequenceErase", &["s", "far"], &["t"])], "SequenceErase", "position 9"),
        (vec![empty(), node("SequenceErase", &["e"], &["t"])], "SequenceErase", "no element to erase"),
        (vec![empty(), node("SequenceAt", &["e", "zero"], &["y"])], "SequenceAt", "a sequence of 0 elements"),
        (vec![pair(), node("SequenceInsert", &["s", "a", "far"], &["t"])], "SequenceInsert", "position 9"),
        (vec![pair(), node("SequenceInsert", &["s", "k"], &["t"])], "SequenceInsert", "element 2 of a sequence of f32"),
        (vec![node("SequenceConstruct", &["a", "k"], &["t"])], "SequenceConstruct", "is of type i64"),
        (vec![node("SequenceConstruct", &[], &["t"])], "SequenceConstruct", "at least one operand"),
        (vec![node("SequenceAt", &["a", "zero"], &["y"])], "SequenceAt", "a tensor stands where a sequence is wanted"),
        (vec![pair(), node("Relu", &["s"], &["y"])], "Relu", "a sequence stands where a tensor is wanted"),
        (vec![pair(), node("SequenceConstruct", &["a", "s"], &["t"])], "SequenceConstruct", "a sequence stands where"),
        (
            vec![empty(), with(node("ConcatFromSequence", &["e"], &["y"]), vec![int("axis", 0)])],
            "ConcatFromSequence",
            "an empty sequence has nothing to join",
        ),
        (
            vec![pair(), with(node("ConcatFromSequence", &["s"], &["y"]), vec![int("axis", 3), int("new_axis", 1)])],
            "ConcatFromSequence",
            "axis 3",
        ),
        (vec![node("SplitToSequence", &["a", "last"], &["t"])], "SplitToSequence", "parts of size -1"),
        (vec![node("OptionalGetElement", &[""], &["y"])], "OptionalGetElement", "is not there"),
        (vec![node("Optional", &[], &["o"])], "Optional", "must name its type"),
    ];
    for (nodes, culprit, message) in cases {
        let error = run_vectors(nodes, vec![floats("a")]).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
        let text = error.to_string();
        assert!(text.contains(&format!("({culprit})")) && text.contains(message), "{text}");
    }
}

#[test]
fn parts_of_a_tensor_are_joined_again() {
    for (size, count) in [(1, 7), (2, 4), (3, 3), (7, 1), (100, 1)] {
        let nodes = vec![
            with(node("SplitToSequence", &["x", "size"], &["s"]), vec![int("axis", -1)]),
            node("SequenceLength", &["s"], &["count"]),
            with(node("ConcatFromSequence", &["s"], &["y"]), vec![int("axis", 1)]),
        ];
        let outputs = vec![value("count", INT64, &[]), value("y", FLOAT, &["r", "c"])];
        let mut g = graph(vec![value("x", FLOAT, &["rows", "columns"])], nodes, outputs);
        g.initializer = vec![TensorProto { dims: vec![], ..ints("size", &[size]) }];
        let values: Vec<f64> = (0..14).map(f64::from).collect();
        let x = Literal::from_f64s(DType::F32, [2, 7], &values).unwrap();
        let out = run(g, &[("x", x.clone())]).unwrap();
        assert_eq!((out["count"].to_ints(), &out["y"]), (vec![count], &x));
    }
}

/// A position that only the run knows picks from elements that are alike, whatever the position hangs on.
#[test]
fn a_position_may_come_from_data() {
    let nodes = vec![
        node("Neg", &["x"], &["n"]),
        node("SequenceConstruct", &["x", "n"], &["s"]),
        with(node("ArgMax", &["x"], &["k"]), vec![int("keepdims", 0)]),
        node("SequenceAt", &["s", "k"], &["y"]),
    ];
    let g = graph(vec![value("x", FLOAT, &["2"])], nodes, vec![value("y", FLOAT, &["2"])]);
    assert_eq!(run(g.clone(), &[("x", f32s(&[5.0, 1.0]))]).unwrap()["y"].to_f64s(), [5.0, 1.0]);
    assert_eq!(run(g, &[("x", f32s(&[1.0, 5.0]))]).unwrap()["y"].to_f64s(), [-1.0, -5.0]);
}

#[test]
fn a_loop_over_a_sequence_grows_it_and_reads_another() {
    let body = graph(
        vec![value("i", INT64, &[]), value("go", BOOL, &[]), sequence(floats("made"))],
        vec![
            node("SequenceAt", &["s", "i"], &["e"]),
            node("Add", &["e", "e"], &["twice"]),
            node("SequenceInsert", &["made", "twice", "zero"], &["grown"]),
            node("ReduceSum", &["e"], &["sum"]),
        ],
        vec![value("go", BOOL, &[]), sequence(floats("grown")), value("sum", FLOAT, &["1"])],
    );
    let nodes = vec![
        node("SequenceEmpty", &[], &["empty"]),
        node("SequenceLength", &["s"], &["count"]),
        with(node("Loop", &["count", "", "empty"], &["out", "sums"]), vec![region("body", body)]),
    ];
    let mut g =
        graph(vec![sequence(floats("s"))], nodes, vec![sequence(floats("out")), value("sums", FLOAT, &["k", "1"])]);
    g.initializer = vec![TensorProto { dims: vec![], ..ints("zero", &[0]) }];
    let out = run(g.clone(), &[("s.0", f32s(&[1.0])), ("s.1", f32s(&[2.0, 3.0])), ("s.2", f32s(&[]))]).unwrap();
    assert_eq!(names(&out), ["out.0", "out.1", "out.2", "sums"]);
    assert_eq!(out["out.1"].to_f64s(), [4.0, 6.0]);
    assert_eq!((out["sums"].sizes(), out["sums"].to_f64s()), (&[3, 1][..], vec![1.0, 5.0, 0.0]));
    let gap = run(g, &[("s.0", f32s(&[1.0])), ("s.2", f32s(&[1.0]))]).unwrap_err();
    assert!(gap.message().contains("\"s.1\" is missing"), "{gap}");
}

/// A sequence that a loop grows until a condition on data holds is as long as the data at hand make it, which import follows through small
/// tensors only.
#[test]
fn the_length_of_a_sequence_may_hang_on_data() {
    let body = graph(
        vec![value("i", INT64, &[]), value("go", BOOL, &[]), sequence(floats("made"))],
        vec![
            node("SequenceInsert", &["made", "x"], &["grown"]),
            with(node("ReduceMax", &["x"], &["top"]), vec![int("keepdims", 0)]),
            node("Less", &["top", "top"], &["more"]),
        ],
        vec![value("more", BOOL, &[]), sequence(floats("grown"))],
    );
    let nodes = vec![
        node("SequenceEmpty", &[], &["empty"]),
        with(node("Loop", &["", "", "empty"], &["out"]), vec![region("body", body)]),
    ];
    let g = graph(vec![floats("x")], nodes, vec![sequence(floats("out"))]);
    assert_eq!(names(&run(g.clone(), &[("x", f32s(&[1.0]))]).unwrap()), ["out.0"]);
    let error = run(g, &[("x", f32s(&[1.0; 1000]))]).unwrap_err();
    assert_eq!(error.kind(), Kind::NeedsValue);
    assert!(error.to_string().contains("the condition of a Loop over sequences"), "{error}");
}

#[test]
fn endless_loops_over_sequences_end() {
    let body = graph(
        vec![value("i", INT64, &[]), value("go", BOOL, &[]), sequence(floats("made"))],
        vec![],
        vec![value("go", BOOL, &[]), sequence(floats("made"))],
    );
    let nodes = vec![
        node("SequenceEmpty", &[], &["empty"]),
        with(node("Loop", &["", "", "empty"], &["out"]), vec![region("body", body)]),
    ];
    let error = run(graph(vec![], nodes, vec![sequence(floats("out"))]), &[]).unwrap_err();
    assert_eq!(error.kind(), Kind::Limit, "{error}");
}

#[test]
fn sequences_have_limits() {
    let split = node("SplitToSequence", &["x"], &["s"]);
    let g = graph(vec![value("x", FLOAT, &["1000000000000"])], vec![split], vec![sequence(value("s", FLOAT, &["1"]))]);
    let error = Model::from_bytes(bytes(&model(g)), "test.onnx").unwrap().graph().unwrap_err();
    assert_eq!(error.kind(), Kind::Limit, "{error}");
    // A long sequence that is read often.
    let mut nodes = vec![node("SplitToSequence", &["x"], &["s"])];
    nodes.extend((0..4000).map(|k| node("SequenceLength", &["s"], &[&format!("count_{k}")])));
    let g = graph(vec![value("x", FLOAT, &["20000"])], nodes, vec![value("count_0", INT64, &[])]);
    let error = Model::from_bytes(bytes(&model(g)), "test.onnx").unwrap().graph().unwrap_err();
    assert_eq!(error.kind(), Kind::Limit, "{error}");
}

fn doubled_or_zero() -> GraphProto {
    let then = graph(
        vec![],
        vec![node("OptionalGetElement", &["o"], &["v"]), node("Add", &["v", "v"], &["t"])],
        vec![floats("t")],
    );
    let otherwise = graph(vec![], vec![node("Sub", &["x", "x"], &["e"])], vec![floats("e")]);
    let nodes = vec![
        node("OptionalHasElement", &["o"], &["there"]),
        with(node("If", &["there"], &["y"]), vec![region("then_branch", then), region("else_branch", otherwise)]),
        node("Identity", &["o"], &["same"]),
    ];
    graph(vec![floats("x"), optional(value("o", FLOAT, &["m"]))], nodes, vec![floats("y"), optional(floats("same"))])
}

#[test]
fn optional_inputs_may_be_left_out() {
    let x = f32s(&[7.0]);
    let without = run(doubled_or_zero(), &[("x", x.clone())]).unwrap();
    assert_eq!((names(&without), without["y"].to_f64s()), (vec!["y"], vec![0.0]));
    let with = run(doubled_or_zero(), &[("x", x), ("o", f32s(&[1.0, 2.0]))]).unwrap();
    assert_eq!((names(&with), with["y"].to_f64s()), (vec!["y", "same"], vec![2.0, 4.0]));
}

/// Branches that return as many tensors of the same kinds are chosen between at run time.
#[test]
fn branches_return_sequences() {
    let branch = |name: &str, elements: &[&str]| {
        let made = node("SequenceConstruct", elements, &[name]);
        graph(vec![], vec![made], vec![sequence(value(name, FLOAT, &["2"]))])
    };
    let choose = |then: &[&str], otherwise: &[&str]| {
        let regions = vec![region("then_branch", branch("t", then)), region("else_branch", branch("e", otherwise))];
        let nodes = vec![
            node("Neg", &["x"], &["n"]),
            node("ReduceMax", &["x"], &["top"]),
            node("Cast", &["top"], &["c"]),
            with(node("If", &["c"], &["s"]), regions),
        ];
        let mut g = graph(vec![value("x", FLOAT, &["2"])], nodes, vec![sequence(value("s", FLOAT, &["2"]))]);
        g.node[1].attribute = vec![int("keepdims", 0)];
        g.node[2].attribute = vec![int("to", i64::from(BOOL))];
        g
    };
    for (x, first) in [([0.0, 2.0], [0.0, 2.0]), ([-1.0, 0.0], [1.0, 0.0])] {
        let out = run(choose(&["x", "n"], &["n", "x"]), &[("x", f32s(&x))]).unwrap();
        assert_eq!((names(&out), out["s.0"].to_f64s()), (vec!["s.0", "s.1"], first.to_vec()));
    }
    // Otherwise the condition must be known, and is for the data at hand.
    for (x, count) in [([0.0, 1.0], 2), ([-1.0, 0.0], 1)] {
        assert_eq!(run(choose(&["x", "n"], &["n"]), &[("x", f32s(&x))]).unwrap().len(), count);
    }
}
