//! Models over tensors of strings: moved, measured, compared, looked up, cut and joined; and what is wrong with them.

use std::sync::Arc;

use fuseline::device::DeviceSpec;
use fuseline::error::{Kind, Result};
use fuseline::fuse::PlanOptions;
use fuseline::reference::{Options, evaluate};
use fuseline::tensor::{DType, Literal};
use fuseline::tile::interp;
use fuseline_frontend::onnx::schema::{
    AttributeProto, AttributeType, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, TypeValue,
};
use fuseline_frontend::{Model, Tensors};
use fuseline_tests::model_maker::{
    FLOAT, INT64, bytes, float, graph, int, ints, model, node, region, sequence, value, with,
};
use fuseline_tests::planned;

const STRING: i32 = 8;
const BOOL: i32 = 9;

/// Standard operators of version 20, and those of classical models.
fn newer(graph: GraphProto) -> ModelProto {
    let mut model = model(graph);
    model.opset_import[0].version = 20;
    model.opset_import.push(OperatorSetIdProto { domain: "ai.onnx.ml".into(), version: 4 });
    model
}

/// The outputs on the reference, which must be those of the planned graph too.
fn run(graph: GraphProto, inputs: &[(&str, Literal)]) -> Result<Tensors> {
    let model = Model::from_bytes(bytes(&newer(graph)), "test.onnx")?;
    let inputs: Tensors = inputs.iter().map(|(n, x)| (n.to_string(), x.clone())).collect();
    model.specialise(&inputs, |special| {
        let inputs = special.inputs.iter().map(|(n, x)| (Arc::from(n.as_str()), x.clone())).collect();
        let values = evaluate(special.graph, &inputs, &Options::default())?;
        let plan = PlanOptions::on(DeviceSpec::find("cpu")?);
        let planned = planned::planned(special.graph, &plan)?;
        assert_eq!(planned::run(&planned, &inputs, &interp::Options::default())?, values);
        Ok(special.graph.outputs().iter().map(|output| output.name.to_string()).zip(values).collect())
    })
}

fn strings(sizes: &[usize], texts: &[&str]) -> Literal {
    Literal::texts(sizes, texts).unwrap()
}

fn text(name: &str, s: &str) -> AttributeProto {
    let s = s.to_string().into();
    AttributeProto { name: name.into(), s, r#type: AttributeType::String as i32, ..AttributeProto::default() }
}

fn texts(name: &str, list: &[&str]) -> AttributeProto {
    let strings = list.iter().map(|s| s.to_string().into()).collect();
    AttributeProto { name: name.into(), strings, r#type: AttributeType::Strings as i32, ..AttributeProto::default() }
}

fn numbers(name: &str, list: &[i64]) -> AttributeProto {
    let ints = list.to_vec();
    AttributeProto { name: name.into(), ints, r#type: AttributeType::Ints as i32, ..AttributeProto::default() }
}

fn floats(name: &str, list: &[f32]) -> AttributeProto {
    let floats = list.to_vec();
    AttributeProto { name: name.into(), floats, r#type: AttributeType::Floats as i32, ..AttributeProto::default() }
}

fn classical(op: &str, attributes: Vec<AttributeProto>) -> NodeProto {
    NodeProto { domain: "ai.onnx.ml".into(), ..with(node(op, &["x"], &["y"]), attributes) }
}

/// What one node makes of texts `x` `[2, 3]`, of a vector `v`, and of constants.
fn of_table(node: NodeProto) -> Result<(Vec<usize>, Vec<String>)> {
    let inputs = vec![value("x", STRING, &["rows", "columns"]), value("v", STRING, &["n"])];
    let mut g = graph(inputs, vec![node], vec![value("y", STRING, &["a", "b"])]);
    g.initializer = vec![
        ints("minus_one", &[-1]),
        ints("zero", &[0]),
        ints("one", &[1]),
        ints("two", &[2]),
        ints("six", &[6]),
        ints("pads", &[0, 1, 1, 0]),
        TensorProto { dims: vec![2, 1], ..ints("column", &[1, 0]) },
        TensorProto {
            name: "truth".into(),
            dims: vec![3],
            data_type: BOOL,
            int32_data: vec![1, 0, 1],
            ..Default::default()
        },
    ];
    let x = strings(&[2, 3], &["a", "bb", "", "dädä", "e", "f f"]);
    let out = run(g, &[("x", x), ("v", strings(&[3], &["one", "longer than the others", "three"]))])?;
    let sizes = out["y"].sizes();
    Ok((sizes[..sizes.len() - 1].to_vec(), out["y"].to_texts()?))
}

#[test]
fn elements_move_like_numbers() {
    let cases: Vec<(NodeProto, &[usize], &[&str])> = vec![
        (node("Transpose", &["x"], &["y"]), &[3, 2], &["a", "dädä", "bb", "e", "", "f f"]),
        (node("Reshape", &["x", "minus_one"], &["y"]), &[6], &["a", "bb", "", "dädä", "e", "f f"]),
        (with(node("Gather", &["x", "minus_one"], &["y"]), vec![int("axis", -1)]), &[2, 1], &["", "f f"]),
        (with(node("GatherElements", &["x", "column"], &["y"]), vec![int("axis", 1)]), &[2, 1], &["bb", "dädä"]),
        (node("Slice", &["x", "one", "two", "minus_one"], &["y"]), &[2, 1], &["bb", "e"]),
        (
            with(node("Concat", &["v", "v"], &["y"]), vec![int("axis", -1)]),
            &[6],
            &["one", "longer than the others", "three", "one", "longer than the others", "three"],
        ),
        (node("Where", &["truth", "v", "x"], &["y"]), &[2, 3], &["one", "bb", "three", "one", "e", "three"]),
        (node("Pad", &["x", "pads"], &["y"]), &[3, 4], &["", "a", "bb", "", "", "dädä", "e", "f f", "", "", "", ""]),
        (with(node("Compress", &["v", "truth"], &["y"]), vec![int("axis", 0)]), &[2], &["one", "three"]),
        (
            node("Tile", &["v", "two"], &["y"]),
            &[6],
            &["one", "longer than the others", "three", "one", "longer than the others", "three"],
        ),
        (node("Unsqueeze", &["v", "minus_one"], &["y"]), &[3, 1], &["one", "longer than the others", "three"]),
        (node("Identity", &["v"], &["y"]), &[3], &["one", "longer than the others", "three"]),
    ];
    for (node, sizes, wanted) in cases {
        let op = node.op_type.clone();
        let (found, made) = of_table(node).unwrap_or_else(|error| panic!("{op}: {error}"));
        assert_eq!((found.as_slice(), made), (sizes, wanted.iter().map(|s| s.to_string()).collect()), "{op}");
    }
}

#[test]
fn what_is_not_there_is_told_with_its_node() {
    for node in [node("Relu", &["v"], &["y"]), node("Add", &["v", "v"], &["y"]), node("NonZero", &["v"], &["y"])] {
        let (op, error) = (node.op_type.clone(), of_table(node).unwrap_err());
        assert_eq!(error.kind(), Kind::Unsupported, "{error}");
        assert!(error.message().contains(&format!("{op} of strings")), "{error}");
    }
    for node in [node("Equal", &["v", "one"], &["y"]), node("StringConcat", &["v", "one"], &["y"])] {
        assert_eq!(of_table(node).unwrap_err().kind(), Kind::Invalid);
    }
    let broken = with(node("RegexFullMatch", &["v"], &["y"]), vec![text("pattern", "(a")]);
    let error = of_table(broken).unwrap_err();
    assert!(error.kind() == Kind::Invalid && error.message().contains("(a"), "{error}");
    let negative = with(node("StringSplit", &["v"], &["y"]), vec![int("maxsplit", -2)]);
    assert_eq!(of_table(negative).unwrap_err().kind(), Kind::Invalid);
}

#[test]
fn distinct_texts_come_in_the_order_of_their_bytes() {
    let results = ["y", "first", "inverse", "count"];
    let distinct = |attributes: Vec<AttributeProto>, x: Literal| {
        let outputs = [("y", STRING), ("first", INT64), ("inverse", INT64), ("count", INT64)];
        let outputs = outputs.map(|(name, kind)| value(name, kind, if name == "y" { &["a", "b"] } else { &["n"] }));
        let unique = with(node("Unique", &["x"], &results), attributes);
        run(graph(vec![value("x", STRING, &["rows", "columns"])], vec![unique], outputs.into()), &[("x", x)]).unwrap()
    };
    let x = strings(&[3, 2], &["b", "ab", "", "b", "a", "ab"]);
    let y = distinct(vec![], x.clone());
    assert_eq!(y["y"].to_texts().unwrap(), ["", "a", "ab", "b"]);
    assert_eq!([&y["first"], &y["count"]].map(Literal::to_ints), [[2, 4, 1, 0], [1, 1, 2, 2]]);
    assert_eq!(y["inverse"].to_ints(), [3, 2, 0, 3, 1, 2]);
    assert_eq!(distinct(vec![int("sorted", 0)], x)["y"].to_texts().unwrap(), ["b", "ab", "", "a"]);
    let rows = strings(&[3, 2], &["b", "x", "a", "y", "b", "x"]);
    let y = distinct(vec![int("axis", -2)], rows);
    assert_eq!(
        (y["y"].sizes(), y["y"].to_texts().unwrap()),
        (&[2, 2, 1][..], ["a", "y", "b", "x"].map(String::from).into())
    );
    assert_eq!(y["inverse"].to_ints(), [1, 0, 1]);
}

#[test]
fn numbers_are_texts_and_texts_are_numbers() {
    let cast = |from: i32, x: Literal, to: i32| {
        let node = with(node("Cast", &["x"], &["y"]), vec![int("to", i64::from(to))]);
        run(graph(vec![value("x", from, &["n"])], vec![node], vec![value("y", to, &["n"])]), &[("x", x)])
    };
    let x = Literal::f32s(&[1.0, -2.25, 1.0 / 131072.0, f32::NAN, f32::NEG_INFINITY, 0.1]);
    let texts = ["1", "-2.25", "7.6293945e-06", "NaN", "-INF", "0.1"];
    assert_eq!(cast(FLOAT, x, STRING).unwrap()["y"].to_texts().unwrap(), texts);
    let y = cast(STRING, strings(&[6], &texts), FLOAT).unwrap()["y"].to_f64s();
    assert!(y[3].is_nan() && y[4] == f64::NEG_INFINITY, "{y:?}");
    assert_eq!([y[0], y[1], y[2], y[5]], [1.0, -2.25, 1.0 / 131072.0, f64::from(0.1f32)]);
    let whole = strings(&[3], &["9007199254740993", "-7", "0"]);
    let y = cast(STRING, whole, INT64).unwrap()["y"].clone();
    assert_eq!(y.to_ints(), [9_007_199_254_740_993, -7, 0]);
    assert_eq!(cast(INT64, y, STRING).unwrap()["y"].to_texts().unwrap(), ["9007199254740993", "-7", "0"]);
    let error = cast(STRING, strings(&[1], &["seven"]), FLOAT).unwrap_err();
    assert!(error.kind() == Kind::Invalid && error.message().contains("seven"), "{error}");
    let like = node("CastLike", &["x", "t"], &["y"]);
    let inputs = vec![value("x", INT64, &["n"]), value("t", STRING, &["m"])];
    let given = [("x", Literal::i64s(&[3, -1])), ("t", strings(&[1], &["any"]))];
    let y = run(graph(inputs, vec![like], vec![value("y", STRING, &["n"])]), &given).unwrap();
    assert_eq!(y["y"].to_texts().unwrap(), ["3", "-1"]);
}

#[test]
fn what_is_given_must_be_texts() {
    let unranked = || {
        let mut g =
            graph(vec![value("x", STRING, &[])], vec![node("Shape", &["x"], &["y"])], vec![value("y", INT64, &["k"])]);
        if let Some(TypeValue::TensorType(tensor)) = g.input[0].r#type.as_mut().and_then(|ty| ty.value.as_mut()) {
            tensor.shape = None;
        }
        g
    };
    assert_eq!(run(unranked(), &[("x", strings(&[3, 1], &["a", "b", "c"]))]).unwrap()["y"].to_ints(), [3, 1]);
    let scalar = Literal::from_ints(DType::U8, [0; 0], &[1]).unwrap();
    assert_eq!(run(unranked(), &[("x", scalar)]).unwrap_err().kind(), Kind::Invalid);
    let broken = Literal::from_ints(DType::U8, [1, 2], &[255, 255]).unwrap();
    let upper = with(node("StringNormalizer", &["x"], &["y"]), vec![text("case_change_action", "UPPER")]);
    let g = graph(vec![value("x", STRING, &["n"])], vec![upper], vec![value("y", STRING, &["n"])]);
    let error = run(g, &[("x", broken)]).unwrap_err();
    assert!(error.kind() == Kind::Invalid && error.message().contains("UTF-8"), "{error}");
}

#[test]
fn sizes_are_those_of_the_user() {
    let nodes = vec![
        node("Shape", &["x"], &["shape"]),
        node("Size", &["x"], &["size"]),
        node("StringConcat", &["x", "x"], &["twice"]),
        node("Equal", &["twice", "x"], &["same"]),
    ];
    let outputs = vec![value("shape", INT64, &["k"]), value("size", INT64, &[]), value("same", BOOL, &["a", "b"])];
    let g = graph(vec![value("x", STRING, &["a", "b"])], nodes, outputs);
    let out = run(g.clone(), &[("x", strings(&[2, 2], &["", "x", "xx", ""]))]).unwrap();
    assert_eq!((out["shape"].to_ints(), out["size"].to_ints()), (vec![2, 2], vec![4]));
    assert_eq!((out["same"].sizes(), out["same"].to_ints()), (&[2, 2][..], vec![1, 0, 0, 1]));
    let empty = run(g, &[("x", strings(&[0, 3], &[]))]).unwrap();
    assert_eq!((empty["shape"].to_ints(), empty["same"].sizes()), (vec![0, 3], &[0, 3][..]));
}

#[test]
fn labels_are_looked_up_both_ways() {
    let of = |node: NodeProto, input: i32, x: Literal, output: i32| {
        run(graph(vec![value("x", input, &["n"])], vec![node], vec![value("y", output, &["n"])]), &[("x", x)])
    };
    let x = || strings(&[4], &["b", "a", "", "none of them"]);
    let keys = || texts("keys_strings", &["a", "b", ""]);
    let y = of(classical("LabelEncoder", vec![keys(), numbers("values_int64s", &[7, 8, 9])]), STRING, x(), INT64);
    assert_eq!(y.unwrap()["y"].to_ints(), [8, 7, 9, -1]);
    let values = vec![keys(), floats("values_floats", &[0.5, 1.5, 2.5]), float("default_float", -2.0)];
    let y = of(classical("LabelEncoder", values), STRING, x(), FLOAT);
    assert_eq!(y.unwrap()["y"].to_f64s(), [1.5, 0.5, 2.5, -2.0]);
    let longer = vec![keys(), texts("values_strings", &["first", "2nd", "the third one"])];
    let y = of(classical("LabelEncoder", longer), STRING, x(), STRING).unwrap();
    assert_eq!(y["y"].to_texts().unwrap(), ["2nd", "first", "the third one", "_Unused"]);
    let of_nan = vec![floats("keys_floats", &[f32::NAN, 1.0]), texts("values_strings", &["none", "one"])];
    let numbers_in = Literal::from_f64s(DType::F32, [3], &[1.0, f64::NAN, 5.0]).unwrap();
    let y = of(classical("LabelEncoder", of_nan), FLOAT, numbers_in, STRING).unwrap();
    assert_eq!(y["y"].to_texts().unwrap(), ["one", "none", "_Unused"]);
    let mapped =
        || vec![texts("cats_strings", &["a", "b"]), numbers("cats_int64s", &[10, 20]), int("default_int64", 3)];
    let y = of(classical("CategoryMapper", mapped()), STRING, x(), INT64).unwrap();
    assert_eq!(y["y"].to_ints(), [20, 10, 3, 3]);
    let y = of(classical("CategoryMapper", mapped()), INT64, Literal::i64s(&[20, 5]), STRING).unwrap();
    assert_eq!(y["y"].to_texts().unwrap(), ["b", "_Unused"]);
    let unequal = classical("LabelEncoder", vec![keys(), numbers("values_int64s", &[7])]);
    assert_eq!(of(unequal, STRING, x(), INT64).unwrap_err().kind(), Kind::Invalid);
    let wrong = classical("LabelEncoder", vec![keys(), numbers("values_int64s", &[7, 8, 9])]);
    assert_eq!(of(wrong, FLOAT, Literal::f32s(&[1.0]), INT64).unwrap_err().kind(), Kind::Invalid);
}

#[test]
fn words_are_counted() {
    let attributes = vec![
        text("mode", "TF"),
        int("min_gram_length", 1),
        int("max_gram_length", 2),
        int("max_skip_count", 0),
        numbers("ngram_counts", &[0, 3]),
        numbers("ngram_indexes", &[0, 1, 2, 3]),
        texts("pool_strings", &["to", "be", "or", "to", "be"]),
    ];
    let nodes = vec![
        with(
            node("StringNormalizer", &["x"], &["words"]),
            vec![text("case_change_action", "LOWER"), texts("stopwords", &["NOT"])],
        ),
        with(node("TfIdfVectorizer", &["words"], &["y"]), attributes),
    ];
    let g = graph(vec![value("x", STRING, &["n"])], nodes, vec![value("y", FLOAT, &["k"])]);
    let out = run(g, &[("x", strings(&[6], &["To", "BE", "or", "not", "to", "be"]))]).unwrap();
    assert_eq!(out["y"].to_f64s(), [2.0, 2.0, 1.0, 2.0]);
}

#[test]
fn texts_go_through_sequences_branches_and_constants() {
    let branch = |name: &str, delimiter: &str| {
        let split = with(node("StringSplit", &["joined"], &[name]), vec![text("delimiter", delimiter)]);
        graph(vec![], vec![split], vec![value(name, STRING, &["k"])])
    };
    let nodes = vec![
        with(node("Constant", &[], &["dot"]), vec![text("value_string", ".")]),
        node("StringConcat", &["x", "dot"], &["dotted"]),
        node("StringConcat", &["dotted", "more"], &["joined"]),
        with(
            node("If", &["c"], &["parts"]),
            vec![region("then_branch", branch("t", ".")), region("else_branch", branch("e", "-"))],
        ),
        with(node("SplitToSequence", &["joined"], &["s"]), vec![int("axis", -1), int("keepdims", 0)]),
        node("SequenceInsert", &["s", "dot", "place"], &["grown"]),
        with(node("ConcatFromSequence", &["grown"], &["y"]), vec![int("axis", -1), int("new_axis", 1)]),
    ];
    let mut g = graph(
        vec![value("x", STRING, &["2"]), value("c", BOOL, &[])],
        nodes,
        vec![value("parts", STRING, &["2", "k"]), sequence(value("grown", STRING, &[])), value("y", STRING, &["3"])],
    );
    let more = ["mm".to_string().into(), "n-n".to_string().into()].to_vec();
    g.initializer = vec![
        TensorProto { name: "more".into(), dims: vec![2], data_type: STRING, string_data: more, ..Default::default() },
        TensorProto { dims: vec![], ..ints("place", &[0]) },
    ];
    let x = || strings(&[2], &["u", "v"]);
    let flag = |holds: i64| Literal::from_ints(DType::Bool, [0; 0], &[holds]).unwrap();
    let out = run(g.clone(), &[("x", x()), ("c", flag(1))]).unwrap();
    assert_eq!(out["parts"].to_texts().unwrap(), ["u", "mm", "v", "n-n"]);
    assert_eq!(out["y"].to_texts().unwrap(), [".", "u.mm", "v.n-n"]);
    assert_eq!(out.keys().collect::<Vec<_>>(), ["parts", "grown.0", "grown.1", "grown.2", "y"]);
    let out = run(g, &[("x", x()), ("c", flag(0))]).unwrap();
    assert_eq!(out["parts"].to_texts().unwrap(), ["u.mm", "", "v.n", "n"]);
}
