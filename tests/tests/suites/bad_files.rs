//! Files that are broken by accident or on purpose: every one gives a clear error, none a panic or a large allocation.

use std::sync::Arc;

use fuseline::error::{Error, Kind, Result};
use fuseline::philox;
use fuseline::reference::{Limits, Options, evaluate};
use fuseline::tensor::{DType, Literal};
use fuseline_frontend::onnx::import;
use fuseline_frontend::onnx::schema::{
    AttributeProto, AttributeType, DataLocation, FunctionProto, ModelProto, NodeProto, OperatorSetIdProto,
    SparseTensorProto, StringStringEntryProto, TensorProto, ValueInfoProto,
};
use fuseline_frontend::{Model, Tensors};
use fuseline_tests::malicious::MALICES;
use fuseline_tests::model_maker::{FLOAT, INT64, bytes, graph, int, ints, model, node, region, value, with};

/// Imports the model, and runs it on zeros where that works.
fn attempt(file: Vec<u8>) -> Result<()> {
    let model = Model::from_bytes(file, "bad.onnx")?;
    let mut inputs = Tensors::new();
    for port in &model.signature().inputs {
        let sizes: Vec<usize> = match &port.shape {
            Some(shape) => shape.dims().iter().map(|d| d.as_int().map_or(2, |n| n as usize)).collect(),
            None => vec![2],
        };
        let count = sizes.iter().try_fold(1usize, |p, n| p.checked_mul(*n)).filter(|n| *n < 1 << 20);
        let count = count.ok_or_else(|| Error::limit("the test gives no inputs of that size"))?;
        inputs.insert(port.part_name(0), Literal::from_f64s(port.dtype, sizes, &vec![0.0; count])?);
    }
    model.specialise(&inputs, |special| {
        let inputs = special.inputs.iter().map(|(n, x)| (Arc::from(n.as_str()), x.clone())).collect();
        let options =
            Options { limits: Limits { trips: 1000, bytes: 64 << 20, ..Limits::default() }, ..Options::default() };
        evaluate(special.graph, &inputs, &options).map(|_| ())
    })
}

/// A model with a bit of everything: initializers, symbols, a region, integers.
fn sound() -> ModelProto {
    let body = graph(
        vec![value("i", INT64, &[]), value("go", 9, &[]), value("acc", FLOAT, &["n", "3"])],
        vec![node("Identity", &["go"], &["go_on"]), node("Add", &["acc", "x"], &["acc_out"])],
        vec![value("go_on", 9, &[]), value("acc_out", FLOAT, &["n", "3"])],
    );
    let mut g = graph(
        vec![value("x", FLOAT, &["n", "3"])],
        vec![
            with(node("Loop", &["trips", "", "x"], &["y"]), vec![region("body", body)]),
            node("Reshape", &["y", "shape"], &["z"]),
            with(node("Softmax", &["z"], &["p"]), vec![int("axis", -1)]),
        ],
        vec![value("p", FLOAT, &["n", "3"])],
    );
    g.initializer = vec![TensorProto { dims: vec![], ..ints("trips", &[2]) }, ints("shape", &[-1, 3])];
    model(g)
}

fn refused(model: &ModelProto) -> Error {
    attempt(bytes(model)).expect_err("a broken model is refused")
}

#[test]
fn the_sound_model_runs() {
    attempt(bytes(&sound())).unwrap();
}

#[test]
fn every_truncation_is_refused_or_harmless() {
    let file = bytes(&sound());
    for len in 0..file.len() {
        // Some prefixes are models by themselves; what matters is that none ends in a panic.
        let _ = attempt(file[..len].to_vec());
    }
    assert_eq!(attempt(Vec::new()).unwrap_err().kind(), Kind::Invalid);
}

#[test]
fn flipped_bits_never_end_in_a_panic() {
    let file = bytes(&sound());
    for case in 0..4000u64 {
        let mut broken = file.clone();
        for flip in 0..1 + case % 3 {
            let word = philox::word(7, case, flip) as usize;
            broken[word / 8 % file.len()] ^= 1 << (word % 8);
        }
        let _ = attempt(broken);
    }
}

#[test]
fn a_cycle_is_named() {
    let g = graph(
        vec![value("x", FLOAT, &["2"])],
        vec![node("Add", &["x", "b"], &["a"]), node("Neg", &["a"], &["b"])],
        vec![value("b", FLOAT, &["2"])],
    );
    let error = refused(&model(g));
    assert_eq!((error.kind(), error.message()), (Kind::Invalid, "node \"Add_a\" depends on its own result"));
}

#[test]
fn doubled_names_are_refused() {
    let nodes = vec![node("Neg", &["x"], &["y"]), node("Abs", &["x"], &["y"])];
    let g = graph(vec![value("x", FLOAT, &["2"])], nodes, vec![value("y", FLOAT, &["2"])]);
    assert!(refused(&model(g)).message().contains("two values are called \"y\""));
    let shadow = vec![node("Neg", &["y"], &["x"])];
    let g = graph(vec![value("x", FLOAT, &["2"]), value("y", FLOAT, &["2"])], shadow, vec![value("x", FLOAT, &["2"])]);
    assert!(refused(&model(g)).message().contains("two values are called \"x\""));
    let twice = vec![value("x", FLOAT, &["2"]), value("x", FLOAT, &["2"])];
    assert!(refused(&model(graph(twice, vec![], vec![]))).message().contains("\"x\""));
}

#[test]
fn ranks_and_sizes_that_do_not_fit_name_the_node() {
    let g = graph(
        vec![value("x", FLOAT, &["2", "3"]), value("y", FLOAT, &["4", "5"])],
        vec![node("MatMul", &["x", "y"], &["z"])],
        vec![value("z", FLOAT, &["2", "5"])],
    );
    let error = refused(&model(g));
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("MatMul_z"), "{error}");
    let g = graph(
        vec![value("x", FLOAT, &["2", "3"])],
        vec![with(node("Softmax", &["x"], &["y"]), vec![int("axis", 7)])],
        vec![value("y", FLOAT, &["2", "3"])],
    );
    assert!(refused(&model(g)).to_string().contains("axis 7"));
}

#[test]
fn absurd_sizes_are_refused_before_memory_is_set_aside() {
    let mut g = graph(vec![], vec![node("Neg", &["w"], &["y"])], vec![value("y", FLOAT, &["1"])]);
    let dims = vec![1 << 30, 1 << 30];
    g.initializer = vec![TensorProto { name: "w".into(), dims, data_type: FLOAT, ..TensorProto::default() }];
    assert!(matches!(refused(&model(g)).kind(), Kind::Invalid | Kind::Limit));
    let g = graph(vec![value("x", FLOAT, &["1152921504606846976"])], vec![], vec![]);
    assert_eq!(refused(&model(g)).kind(), Kind::Limit);
    // A small tensor blown up by Expand.
    let mut g = graph(
        vec![value("x", FLOAT, &["1"])],
        vec![node("Expand", &["x", "s"], &["y"]), node("Neg", &["y"], &["z"])],
        vec![value("z", FLOAT, &["a", "b"])],
    );
    g.initializer = vec![ints("s", &[1 << 20, 1 << 20])];
    assert_eq!(refused(&model(g)).kind(), Kind::Limit);
}

#[test]
fn external_data_stays_in_the_folder_of_the_model() {
    let folder = tempfile::tempdir().unwrap();
    for location in ["../../etc/passwd", "/etc/passwd", "a/../../b"] {
        let mut g = graph(vec![], vec![node("Neg", &["w"], &["y"])], vec![value("y", FLOAT, &["1"])]);
        let entry = StringStringEntryProto { key: "location".into(), value: location.into() };
        g.initializer = vec![TensorProto {
            name: "w".into(),
            dims: vec![1],
            data_type: FLOAT,
            external_data: vec![entry],
            data_location: DataLocation::External as i32,
            ..TensorProto::default()
        }];
        let path = folder.path().join("model.onnx");
        std::fs::write(&path, bytes(&model(g))).unwrap();
        let error = Model::open(&path).and_then(|m| m.graph().map(|_| ())).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
        assert!(error.to_string().contains("\"w\""), "{error}");
    }
}

#[test]
fn operators_of_a_version_that_nobody_knows_are_refused() {
    let relu = || {
        let io = || (vec![value("x", FLOAT, &["2"])], vec![value("y", FLOAT, &["2"])]);
        model(graph(io().0, vec![node("Relu", &["x"], &["y"])], io().1))
    };
    for (domain, version, is_known) in [
        ("", 28, true),
        ("", 29, false),
        ("ai.onnx", 999, false),
        ("ai.onnx.ml", 6, false),
        ("com.microsoft", 99, true),
    ] {
        let mut made = relu();
        match domain {
            "" | "ai.onnx" => made.opset_import[0] = OperatorSetIdProto { domain: domain.into(), version },
            _ => made.opset_import.push(OperatorSetIdProto { domain: domain.into(), version }),
        }
        if is_known {
            Model::from_bytes(bytes(&made), "relu.onnx").unwrap().graph().unwrap();
            continue;
        }
        let error = refused(&made);
        assert_eq!(error.kind(), Kind::Unsupported, "{error}");
        assert!(error.to_string().contains(&format!("version {version} of the operator set ai.onnx")), "{error}");
    }
}

#[test]
fn functions_that_call_themselves_end() {
    let f = FunctionProto {
        name: "F".into(),
        domain: "local".into(),
        input: vec!["x".into()],
        output: vec!["y".into()],
        node: vec![{
            let mut n = node("F", &["x"], &["y"]);
            n.domain = "local".into();
            n
        }],
        opset_import: vec![OperatorSetIdProto { domain: "local".into(), version: 1 }],
        ..FunctionProto::default()
    };
    let mut call = node("F", &["x"], &["y"]);
    call.domain = "local".into();
    let mut m = model(graph(vec![value("x", FLOAT, &["2"])], vec![call], vec![value("y", FLOAT, &["2"])]));
    m.functions = vec![f];
    m.opset_import.push(OperatorSetIdProto { domain: "local".into(), version: 1 });
    assert_eq!(refused(&m).kind(), Kind::Limit);
}

#[test]
fn functions_that_double_meet_their_limit() {
    let call = |k: usize, input: &str, output: &str| {
        let mut call = node(&format!("F{k}"), &[input], &[output]);
        call.domain = "local".into();
        call
    };
    let function = |k: usize| FunctionProto {
        name: format!("F{k}"),
        domain: "local".into(),
        input: vec!["x".into()],
        output: vec!["y".into()],
        node: if k == 0 {
            vec![node("Neg", &["x"], &["y"])]
        } else {
            vec![call(k - 1, "x", "h"), call(k - 1, "h", "y")]
        },
        opset_import: vec![
            OperatorSetIdProto { domain: "local".into(), version: 1 },
            OperatorSetIdProto { domain: String::new(), version: 18 },
        ],
        ..FunctionProto::default()
    };
    let mut m =
        model(graph(vec![value("x", FLOAT, &["2"])], vec![call(40, "x", "y")], vec![value("y", FLOAT, &["2"])]));
    m.functions = (0..=40).map(function).collect();
    m.opset_import.push(OperatorSetIdProto { domain: "local".into(), version: 1 });
    assert_eq!(refused(&m).kind(), Kind::Limit);
}

#[test]
fn nodes_and_what_they_become_are_counted() {
    let (_, clipped) = MALICES.iter().find(|(name, _)| *name == "clipped").unwrap();
    let same = (0..20).map(|k| node("Identity", &["x"], &[&format!("y{k}")])).collect();
    let same = model(graph(vec![value("x", FLOAT, &["2"])], same, vec![value("y0", FLOAT, &["2"])]));
    for (model, message) in [(same, "more than 10 nodes"), (clipped(20), "more than 10 primitives")] {
        let within = |nodes: usize| {
            let limits = import::Limits { nodes, ..import::Limits::default() };
            let model = Model::from_bytes(bytes(&model), "many").unwrap().with_limits(limits);
            model.graph().map(|_| ())
        };
        assert_eq!(within(1000), Ok(()));
        let error = within(10).unwrap_err();
        assert!(error.kind() == Kind::Limit && error.message().contains(message), "{error}");
    }
}

#[test]
fn an_endless_loop_meets_its_limit() {
    let body = graph(
        vec![value("i", INT64, &[]), value("go", 9, &[]), value("a", FLOAT, &["2"])],
        vec![node("Identity", &["go"], &["go_on"]), node("Neg", &["a"], &["b"])],
        vec![value("go_on", 9, &[]), value("b", FLOAT, &["2"])],
    );
    let g = graph(
        vec![value("x", FLOAT, &["2"])],
        vec![with(node("Loop", &["", "", "x"], &["y"]), vec![region("body", body)])],
        vec![value("y", FLOAT, &["2"])],
    );
    let error = refused(&model(g));
    assert_eq!((error.kind(), error.message()), (Kind::Limit, "more than 1000 loop trips"));
}

#[test]
fn all_that_is_not_supported_is_told_at_once() {
    let g = graph(
        vec![value("x", FLOAT, &["2"])],
        vec![
            node("NoSuchOp", &["x"], &["a"]),
            node("OtherOp", &["a"], &["b"]),
            with(node("Neg", &["x"], &["c"]), vec![int("strength", 3)]),
        ],
        vec![value("b", FLOAT, &["2"]), value("c", FLOAT, &["2"])],
    );
    let error = refused(&model(g));
    assert_eq!(error.kind(), Kind::Unsupported);
    for part in ["NoSuchOp_a", "OtherOp_b", "attribute strength of Neg", "3 things"] {
        assert!(error.message().contains(part), "{error}");
    }
}

#[test]
fn a_wrong_input_is_told_with_both_types() {
    let g = graph(
        vec![value("x", FLOAT, &["n", "3"])],
        vec![node("Neg", &["x"], &["y"])],
        vec![value("y", FLOAT, &["n", "3"])],
    );
    let model = Model::from_bytes(bytes(&model(g)), "m").unwrap();
    let given: Tensors =
        [("x".to_string(), Literal::from_f64s(DType::F32, [2, 4], &[0.0; 8]).unwrap())].into_iter().collect();
    let run = |special: fuseline_frontend::Specialised<'_>| {
        let inputs = special.inputs.iter().map(|(n, x)| (Arc::from(n.as_str()), x.clone())).collect();
        evaluate(special.graph, &inputs, &Options::default())
    };
    let error = model.specialise(&given, run).unwrap_err();
    assert!(error.to_string().contains("f32[2, 4] where f32[n, 3] is wanted"), "{error}");
}

/// A model of one node on `x: f32[4, 4]` and constants.
fn of_x(node: NodeProto, constants: Vec<TensorProto>, outputs: Vec<ValueInfoProto>) -> ModelProto {
    let mut g = graph(vec![value("x", FLOAT, &["4", "4"])], vec![node], outputs);
    g.initializer = constants;
    model(g)
}

#[test]
fn sparse_constants_are_made_dense_within_limits() {
    let sparse = |indices: &[i64], dims: &[i64]| {
        let mut sound = sound();
        let g = sound.graph.as_mut().unwrap();
        g.node = vec![node("Cast", &["w"], &["q"])];
        g.node[0].attribute.push(int("to", 1));
        g.output = vec![value("q", FLOAT, &["a"])];
        let values = Some(ints("w", &vec![7; indices.len()]));
        g.sparse_initializer =
            vec![SparseTensorProto { values, indices: Some(ints("", indices)), dims: dims.to_vec() }];
        sound
    };
    attempt(bytes(&sparse(&[1, 3], &[5]))).unwrap();
    for (indices, dims, kind) in [
        (&[3, 1][..], &[5][..], Kind::Invalid),
        (&[1, 5], &[5], Kind::Invalid),
        (&[0], &[1 << 60], Kind::Limit),
        (&[0], &[1 << 20, 1 << 11], Kind::Limit),
    ] {
        let error = refused(&sparse(indices, dims));
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains("sparse tensor \"w\""), "{error}");
    }
}

#[test]
fn outputs_are_of_the_type_that_is_declared_or_of_none() {
    let declared = |elem_type: i32| of_x(node("Neg", &["x"], &["y"]), vec![], vec![value("y", elem_type, &["4", "4"])]);
    attempt(bytes(&declared(FLOAT))).unwrap();
    let error = refused(&declared(INT64));
    assert!(error.kind() == Kind::Invalid && error.to_string().contains("output \"y\""), "{error}");
    assert!(error.message().contains("declared as i64[4, 4], and what the model makes is f32"), "{error}");
    // Without an element type, and without a type: what the model makes.
    attempt(bytes(&declared(0))).unwrap();
    let mut untyped = declared(FLOAT);
    untyped.graph.as_mut().unwrap().output[0].r#type = None;
    attempt(bytes(&untyped)).unwrap();
    let untyped = Model::from_bytes(bytes(&untyped), "m").unwrap();
    assert_eq!(untyped.signature().outputs[0].to_string(), "y: undeclared");
}

#[test]
fn constants_that_are_inputs_too_have_one_type() {
    let with = |elem_type: i32, sizes: &[&str]| {
        let mut m = of_x(node("Neg", &["x"], &["y"]), vec![ints("w", &[1, 2])], vec![value("y", FLOAT, &["4", "4"])]);
        m.graph.as_mut().unwrap().input.push(value("w", elem_type, sizes));
        m
    };
    attempt(bytes(&with(INT64, &["2"]))).unwrap();
    attempt(bytes(&with(INT64, &["n"]))).unwrap();
    for (m, part) in [
        (with(INT64, &["3"]), "has the sizes [2]"),
        (with(INT64, &["2", "1"]), "has the sizes [2]"),
        (with(FLOAT, &["2"]), "of type FLOAT, and its initializer of INT64"),
    ] {
        let error = refused(&m);
        assert!(error.kind() == Kind::Invalid && error.to_string().contains("input \"w\""), "{error}");
        assert!(error.message().contains(part), "{error}");
    }
}

#[test]
fn names_are_strings_too() {
    let mut long = of_x(node("Neg", &["x"], &["y"]), vec![], vec![value("y", FLOAT, &["4", "4"])]);
    long.graph.as_mut().unwrap().node[0].name = "n".repeat(3_000_000);
    let error = refused(&long);
    assert!(error.kind() == Kind::Limit && error.message().contains("a string of 3000000 bytes"), "{error}");
    assert!(error.to_string().len() < 300);
    let y = "y".repeat(3_000_000);
    let long = of_x(node("Neg", &["x"], &[&y]), vec![], vec![value(&y, FLOAT, &["4", "4"])]);
    assert_eq!(refused(&long).kind(), Kind::Limit);
}

#[test]
fn wrong_numbers_are_told_as_what_they_are() {
    let out = || vec![value("y", FLOAT, &["a", "b"])];
    let told = |m: &ModelProto| {
        let error = refused(m);
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
        error.message().to_string()
    };
    let top = of_x(node("TopK", &["x", "k"], &["y", "z"]), vec![ints("k", &[5])], out());
    assert_eq!(told(&top), "TopK of 5 elements along an axis that has 4");
    let many = of_x(node("ConstantOfShape", &["s"], &["y"]), vec![ints("s", &[1; 5000])], out());
    assert_eq!(told(&many), "the shape of 5000 elements, more than a tensor may have axes (64)");
    let body = graph(
        vec![value("s", FLOAT, &["4"]), value("e", FLOAT, &["4"])],
        vec![node("Add", &["s", "e"], &["t"])],
        vec![value("t", FLOAT, &["4"])],
    );
    let mut scan = with(node("Scan", &["row", "x"], &["y"]), vec![region("body", body), int("num_scan_inputs", 1)]);
    scan.attribute.push(AttributeProto {
        name: "scan_input_directions".into(),
        ints: vec![5],
        r#type: AttributeType::Ints as i32,
        ..AttributeProto::default()
    });
    let row = TensorProto {
        dims: vec![4],
        data_type: FLOAT,
        float_data: vec![0.0; 4],
        name: "row".into(),
        ..TensorProto::default()
    };
    assert!(told(&of_x(scan, vec![row], vec![value("y", FLOAT, &["4"])])).contains("a direction of Scan is 5"));
}
