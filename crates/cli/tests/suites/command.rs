//! The command as users see it: output, files, errors and exit status.

use std::path::Path;
use std::process::{Command, Stdio};

use fuseline::tensor::{DType, Literal};
use fuseline_frontend::npz::{Array, Compression, ReadOptions, read_npz, write_npz};
use fuseline_frontend::onnx::Message;
use fuseline_frontend::onnx::schema::{
    AttributeProto, AttributeType, Dimension, DimensionValue, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    SequenceTypeProto, TensorShapeProto, TensorTypeProto, TypeProto, TypeValue, ValueInfoProto,
};

use super::{failure, fuseline, json, stdout};

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Elements of ONNX's type `code` with free sizes.
fn tensor_type(code: i32, sizes: &[&str]) -> Option<TypeProto> {
    let dim = |n: &&str| Dimension { value: Some(DimensionValue::DimParam(n.to_string())), ..Default::default() };
    let shape = Some(TensorShapeProto { dim: sizes.iter().map(dim).collect() });
    let tensor = TypeValue::TensorType(TensorTypeProto { elem_type: code, shape });
    Some(TypeProto { value: Some(tensor), ..Default::default() })
}

/// A vector of f32.
fn port(name: &str) -> ValueInfoProto {
    ValueInfoProto { name: name.into(), r#type: tensor_type(1, &["n"]), ..Default::default() }
}

fn write_model(path: &Path, node: NodeProto, input: Vec<ValueInfoProto>, output: ValueInfoProto) {
    let graph =
        GraphProto { name: "graph".into(), node: vec![node], input, output: vec![output], ..Default::default() };
    let model = ModelProto {
        ir_version: 8,
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: 17 }],
        graph: Some(graph),
        ..Default::default()
    };
    std::fs::write(path, model.encode_to_vec()).unwrap();
}

/// `y = op(a, b)` for vectors of a free length.
fn write_binary(path: &Path, op: &str) {
    let node = NodeProto {
        input: vec!["a".into(), "b".into()],
        output: vec!["y".into()],
        name: "sum".into(),
        op_type: op.into(),
        ..Default::default()
    };
    write_model(path, node, vec![port("a"), port("b")], port("y"));
}

fn write(path: &Path, arrays: &[(&str, &Literal)]) {
    write_npz(path, arrays.iter().copied(), Compression::Stored).unwrap();
}

/// One node over `x`, with one attribute.
fn write_unary(path: &Path, op: &str, attribute: AttributeProto, x: Option<TypeProto>, y: Option<TypeProto>) {
    let node = NodeProto {
        input: vec!["x".into()],
        output: vec!["y".into()],
        op_type: op.into(),
        attribute: vec![attribute],
        ..Default::default()
    };
    let port = |name: &str, r#type| ValueInfoProto { name: name.into(), r#type, ..Default::default() };
    write_model(path, node, vec![port("x", x)], port("y", y));
}

#[test]
fn sequences_are_arrays_with_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let (join, cut, x, y) = (place("join.onnx"), place("cut.onnx"), place("x.npz"), place("y.npz"));
    let sequence = |elements: Option<TypeProto>| {
        let sequence = SequenceTypeProto { elem_type: elements.map(Box::new) };
        Some(TypeProto { value: Some(TypeValue::SequenceType(sequence)), ..Default::default() })
    };
    let axis = || AttributeProto { name: "axis".into(), r#type: AttributeType::Int as i32, ..Default::default() };
    let vector = || tensor_type(1, &["n"]);
    write_unary(Path::new(&join), "ConcatFromSequence", axis(), sequence(vector()), vector());
    let (first, second) = (Literal::f32s(&[1.0]), Literal::f32s(&[2.0, 3.0]));
    write(Path::new(&x), &[("x.0", &first), ("x.1", &second)]);
    assert!(stdout(&["run", &join, "--inputs", &x]).contains("f32[3]"));
    assert!(stdout(&["inspect", &join]).contains("seq(f32[n])"));
    let (status, message) = failure(&["run", &join]);
    assert!(status == 2 && message.contains("is a sequence") && message.contains("x.0, x.1"), "{message}");
    write(Path::new(&x), &[("x.0", &first), ("x.2", &second)]);
    let (status, message) = failure(&["run", &join, "--inputs", &x]);
    assert!(status == 2 && message.contains("\"x.1\" is missing"), "{message}");
    write_unary(Path::new(&cut), "SplitToSequence", axis(), vector(), sequence(vector()));
    write(Path::new(&x), &[("x", &second)]);
    for device in ["reference", "cpu"] {
        stdout(&["run", &cut, "--inputs", &x, "--outputs", &y, "--device", device]);
        let made = read_npz(&y, &ReadOptions::default()).unwrap();
        assert_eq!(made.keys().collect::<Vec<_>>(), ["y.0", "y.1"]);
        assert_eq!(made["y.1"], Literal::f32s(&[3.0]));
    }
}

#[test]
fn strings_are_arrays_of_strings() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let (model, x, y) = (place("upper.onnx"), place("x.npz"), place("y.npz"));
    let upper = AttributeProto {
        name: "case_change_action".into(),
        s: "UPPER".into(),
        r#type: AttributeType::String as i32,
        ..Default::default()
    };
    let strings = || tensor_type(8, &["n"]);
    write_unary(Path::new(&model), "StringNormalizer", upper, strings(), strings());
    let texts = Literal::texts([2], &["größe", "x"]).unwrap();
    write_npz(&x, [("x", Array::Texts(&texts))], Compression::Stored).unwrap();
    for device in ["reference", "cpu"] {
        let shown = stdout(&["run", &model, "--inputs", &x, "--outputs", &y, "--device", device]);
        assert!(shown.contains("string[2]"), "{shown}");
        let made = read_npz(&y, &ReadOptions::default()).unwrap();
        assert_eq!(made["y"].to_texts().unwrap(), ["GRÖSSE", "X"]);
    }
    let (status, message) = failure(&["run", &model]);
    assert!(status == 2 && message.contains("is made of strings"), "{message}");
    write(Path::new(&x), &[("x", &Literal::f32s(&[1.0]))]);
    let (status, message) = failure(&["run", &model, "--inputs", &x]);
    assert!(status == 2 && message.contains("string[n]") && message.contains("an array of strings"), "{message}");
}

#[test]
fn help_teaches_every_command_by_example() {
    let commands = [&["--help"][..], &["inspect", "--help"], &["run", "--help"], &["analyze", "--help"]];
    for command in commands.into_iter().chain([&["gallery", "--help"][..]]) {
        let examples = ["fuseline run ", "fuseline inspect ", "fuseline analyze "];
        assert!(examples.iter().any(|example| stdout(command).contains(example)), "{command:?}");
    }
    assert!(stdout(&["--help"]).contains("Exit status:"));
    for command in ["run", "verify"] {
        assert!(
            stdout(&[command, "--help"]).contains("Errors are text on standard error, also with --json."),
            "{command}"
        );
    }
    assert!(stdout(&["gallery", "--help"]).contains("Exit status:"));
    assert!(stdout(&["--version"]).starts_with("fuseline "));
}

#[test]
fn of_a_broken_model_the_file_is_told_to_be_broken() {
    // y = x + zz, where nothing is called zz.
    let broken = b"\x08\x08::\n\x0f\n\x01x\n\x02zz\x12\x01y\"\x03Add\x12\x05n_badZ\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x04b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x04B\x04\n\x00\x10\x11";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broken.onnx");
    std::fs::write(&file, broken).unwrap();
    for command in ["inspect", "run", "explain", "bench", "verify"] {
        let (status, message) = failure(&[command, file.to_str().unwrap()]);
        assert!(status == 2 && message.contains("no value is called \"zz\""), "{command}: {message}");
        assert!(message.contains("the file is broken") && !message.contains("inspect MODEL"), "{command}: {message}");
    }
}

#[test]
fn every_gallery_graph_can_be_inspected() {
    let list = json(&["gallery", "--json"]);
    let names: Vec<&str> = list.as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"add_gelu"));
    let table = stdout(&["gallery"]);
    for name in names {
        assert!(table.contains(name));
        let shown = stdout(&["inspect", &format!("gallery:{name}")]);
        assert!(shown.contains("Inputs") && shown.contains("By operator"), "{shown}");
    }
}

#[test]
fn formulae_become_numbers_with_sizes() {
    let open = json(&["inspect", "gallery:add_gelu", "--json"]);
    assert_eq!(open["unfused"]["bytes_read"], "12*n");
    assert_eq!(open["sizes"]["n"], serde_json::Value::Null);
    let bound = json(&["inspect", "gallery:add_gelu", "--sizes", "n=1M", "--json"]);
    assert_eq!(bound["unfused"]["bytes_read"], 12_000_000);
    assert_eq!(bound["unfused"]["bytes_written"], 8_000_000);
    assert_eq!(bound["at_least"]["bytes_read"], 8_000_000);
    assert_eq!(bound["inputs"][0]["shape"][0], 1_000_000);
    let half = json(&["inspect", "gallery:add_gelu", "--sizes", "n=1M", "--dtype", "f16", "--json"]);
    assert_eq!(half["unfused"]["bytes_read"], 6_000_000);
}

#[test]
fn a_run_repeats_for_its_seed() {
    let run = |seed: &str| stdout(&["run", "gallery:add_gelu", "--sizes", "n=100", "--seed", seed]);
    assert_eq!(run("1"), run("1"));
    assert_ne!(run("1"), run("2"));
    let done = fuseline(&["run", "gallery:add_gelu", "--sizes", "n=100", "--seed", "7"]);
    assert!(text(&done.stderr).contains("input x is random: f32[100], seed 7"), "{}", text(&done.stderr));
}

#[test]
fn a_file_of_inputs_gives_a_file_of_outputs() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    write_binary(&place("add.onnx"), "Add");
    let (a, b) = (Literal::f32s(&[1.0, 2.0]), Literal::f32s(&[10.0, 20.0]));
    write(&place("x.npz"), &[("b", &b), ("a", &a)]);
    let paths = ["add.onnx", "x.npz", "y.npz"].map(|n| place(n).display().to_string());
    let summary = json(&["run", &paths[0], "--inputs", &paths[1], "--outputs", &paths[2], "--json"]);
    assert_eq!(summary["outputs"][0]["mean"], 16.5);
    assert_eq!(summary["inputs"][1]["source"], "file");
    let outputs = read_npz(place("y.npz"), &ReadOptions::default()).unwrap();
    assert_eq!(outputs["y"], Literal::f32s(&[11.0, 22.0]));

    // What the file lacks is random, of the size that the file shows.
    write(&place("x.npz"), &[("a", &a)]);
    let done = fuseline(&["run", &paths[0], "--inputs", &paths[1]]);
    assert!(text(&done.stderr).contains("input b is random: f32[2], seed 0"), "{}", text(&done.stderr));
    let shown = stdout(&["inspect", &paths[0]]);
    assert!(shown.contains("f32[n]") && shown.contains("opset 17") && shown.contains("Add 1"), "{shown}");
}

#[test]
fn values_that_structure_hangs_on_come_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).display().to_string();
    // The axes of a reduction, which arrive as an input, decide how many axes the result has.
    let axes = ValueInfoProto { r#type: tensor_type(7, &["count"]), ..port("axes") };
    let x = ValueInfoProto { r#type: tensor_type(1, &["rows", "columns"]), ..port("x") };
    let attribute = AttributeProto { name: "keepdims".into(), r#type: 2, i: 0, ..Default::default() };
    let node = NodeProto {
        input: vec!["x".into(), "axes".into()],
        output: vec!["y".into()],
        op_type: "ReduceSum".into(),
        attribute: vec![attribute],
        ..Default::default()
    };
    write_model(Path::new(&place("sum.onnx")), node, vec![x, axes], port("y"));
    let (status, message) = failure(&["inspect", &place("sum.onnx")]);
    assert!(status == 2 && message.contains("give values of axes with --inputs"), "{message}");
    let x = Literal::f32s(&[1.0; 6]).reshaped([2, 3]).unwrap();
    write(Path::new(&place("x.npz")), &[("axes", &Literal::i64s(&[1])), ("x", &x)]);
    let shown = stdout(&["inspect", &place("sum.onnx"), "--inputs", &place("x.npz")]);
    assert!(shown.contains("y  f32[2]"), "{shown}");
    let run = json(&["run", &place("sum.onnx"), "--inputs", &place("x.npz"), "--json"]);
    assert_eq!(run["outputs"][0]["mean"], 3.0);
    let shown = stdout(&["inspect", &place("sum.onnx"), "--input", "axes=1,"]);
    assert!(shown.contains("y  f32[rows]"), "{shown}");
}

#[test]
fn plans_come_to_the_same_as_the_graph() {
    let folder = tempfile::tempdir().unwrap();
    let [bare, planned] = ["bare.npz", "planned.npz"].map(|name| folder.path().join(name).display().to_string());
    let sizes = "batch=2,heads=3,queries=4,keys=5,size=7";
    let run = |outputs: &str, more: &[&str]| {
        let usual = ["run", "gallery:masked_attention", "--sizes", sizes, "--json", "--outputs", outputs];
        json(&[&usual[..], more].concat())
    };
    let expected = run(&bare, &["--device", "reference"]);
    let wishes = [
        &["--device", "interp"][..],
        &["--device", "interp", "--target", "h200", "--numerics", "strict"],
        &["--device", "cpu"],
        &["--device", "cpu", "--threads", "3", "--numerics", "strict"],
    ];
    for more in wishes {
        let actual = run(&planned, more);
        assert_eq!(actual["device"], more[1]);
        assert_eq!(actual["inputs"], expected["inputs"]);
        assert_eq!(actual["outputs"][0]["shape"], serde_json::json!([2, 3, 4, 7]));
        let read = |path: &str| read_npz(path, &ReadOptions::default()).unwrap()["y"].to_f64s();
        let (a, e) = (read(&planned), read(&bare));
        assert!(a.len() == e.len() && a.iter().zip(&e).all(|(a, e)| (a - e).abs() < 1e-6), "{a:?}\n{e:?}");
    }
}

#[test]
fn factors_in_bf16_are_the_same_on_every_device_and_close_to_f32() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("y.npz").display().to_string();
    let run = |more: &[&str]| {
        let usual = ["run", "gallery:linear_bias_gelu", "--sizes", "m=5,k=40,n=36", "--quiet", "--outputs", &path];
        stdout(&[&usual[..], more].concat());
        read_npz(&path, &ReadOptions::default()).unwrap()["y"].to_f64s()
    };
    let worst = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let exact = run(&["--device", "reference"]);
    let rounded = run(&["--device", "reference", "--precision", "bf16"]);
    let apart = worst(&exact, &rounded);
    assert!(apart > 1e-3 && apart < 0.2, "{apart}");
    for device in ["interp", "cpu"] {
        let apart = worst(&rounded, &run(&["--device", device, "--precision", "bf16"]));
        assert!(apart < 1e-4, "{device}: {apart}");
    }
    let strict = ["run", "gallery:linear_bias_gelu", "--device", "cpu", "--numerics", "strict", "--precision", "bf16"];
    let (status, message) = failure(&strict);
    assert!(status == 2 && message.contains("--precision"), "{message}");
}

#[test]
fn devices_that_cannot_do_it_say_so() {
    let run = |more: &[&str]| failure(&[&["run", "gallery:add_gelu", "--sizes", "n=4"], more].concat());
    let (status, message) = run(&["--device", "abacus"]);
    assert!(status == 2 && message.contains("reference, interp, cpu, cuda"), "{message}");
    for wish in [["--target", "h200"], ["--numerics", "strict"]] {
        let (status, message) = run(&[&["--device", "reference"], &wish[..]].concat());
        assert!(status == 2 && message.contains(wish[0]) && message.contains("plans nothing"), "{message}");
    }
    let (status, message) = run(&["--device", "interp", "--target", "abacus"]);
    assert!(status == 2 && message.contains("known devices are"), "{message}");
    for device in ["interp", "cpu"] {
        let (status, message) = run(&["--device", device, "--max-memory", "1"]);
        assert!(status == 1 && message.contains("limit"), "{message}");
    }
    let (status, message) = run(&["--device", "interp", "--threads", "2"]);
    assert!(status == 2 && message.contains("choose --device cpu"), "{message}");
    let (status, message) = run(&["--reading", "rounded"]);
    assert!(status == 2 && message.contains("choose --device reference"), "{message}");
    let (status, message) = run(&["--device", "cpu", "--threads", "0"]);
    assert!(status == 2 && message.contains("--threads"), "{message}");
}

#[test]
fn a_graph_in_text_form_means_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("softmax.ir").display().to_string();
    let sizes = ["--sizes", "rows=3,columns=5"];
    std::fs::write(&path, stdout(&["inspect", "gallery:softmax", "--graph"])).unwrap();
    let run = |model: &str| stdout(&["run", model, sizes[0], sizes[1]]);
    assert_eq!(run(&path), run("gallery:softmax"));
    let shown = stdout(&["inspect", &path]);
    assert!(shown.contains("in text form") && shown.contains("Softmax 1"), "{shown}");
    assert_eq!(stdout(&["inspect", &path, "--graph"]), stdout(&["inspect", "gallery:softmax", "--graph"]));
    std::fs::write(&path, "graph nonsense {").unwrap();
    let (status, message) = failure(&["run", &path]);
    assert!(status == 2 && message.contains("softmax.ir"), "{message}");
}

#[test]
fn a_model_with_seeds_for_weights_is_a_model() {
    let structure = |name: &str| format!("{}/../../tests/models/structure/{name}", env!("CARGO_MANIFEST_DIR"));
    let shown = json(&["inspect", &structure("bert_base.legacy.onnx"), "--json"]);
    assert_eq!(shown["parameters"]["bytes"].as_u64(), Some(435_566_592), "{shown}");
    let folder = tempfile::tempdir().unwrap();
    let [tiny, text] = ["tiny.onnx", "tiny.ir"].map(|name| folder.path().join(name).display().to_string());
    std::fs::copy(structure("bert_tiny.legacy.onnx"), &tiny).unwrap();
    std::fs::write(&text, stdout(&["inspect", &tiny, "--graph"])).unwrap();
    let table = |model: &str| stdout(&["run", model]).lines().skip(1).map(String::from).collect::<Vec<_>>();
    assert!(table(&tiny).concat().contains("f32[1, 16, 64]"));
    assert_eq!(table(&tiny), table(&text));
}

#[test]
fn inputs_that_do_not_fit_are_refused_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    write_binary(&place("add.onnx"), "Add");
    let paths = ["add.onnx", "x.npz"].map(|n| place(n).display().to_string());
    let refused = |arrays: &[(&str, &Literal)]| {
        write(&place("x.npz"), arrays);
        failure(&["run", &paths[0], "--inputs", &paths[1]])
    };
    let (two, three) = (Literal::f32s(&[1.0, 2.0]), Literal::f32s(&[1.0, 2.0, 3.0]));
    let (status, message) = refused(&[("a", &two), ("c", &two)]);
    assert!(
        status == 2 && message.contains("no input called \"c\"") && message.contains("inputs are a, b"),
        "{message}"
    );
    let (status, message) = refused(&[("a", &two), ("b", &three)]);
    assert!(status == 2 && message.contains("f32[3] where f32[2] is wanted") && message.contains("x.npz"), "{message}");
    let double = Literal::from_f64s(DType::F64, [2], &[1.0, 2.0]).unwrap();
    let (status, message) = refused(&[("a", &double)]);
    assert!(status == 2 && message.contains("numpy.float32"), "{message}");
    let (status, message) = refused(&[("a", &two.reshaped([1, 2]).unwrap())]);
    assert!(status == 2 && message.contains("f32[1, 2] where f32[n] is wanted"), "{message}");
}

#[test]
fn errors_say_what_where_why_and_what_would_help() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("strange.onnx");
    write_binary(&path, "NoSuchOperator");
    let path = path.display().to_string();
    // The model is right as far as anyone knows; the gap is ours.
    let (status, message) = failure(&["run", &path]);
    assert_eq!(status, 1, "{message}");
    for part in ["error:", "NoSuchOperator", "where:", "strange.onnx", "why:", "help:"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    // Inspecting tells what can be told.
    let done = fuseline(&["inspect", &path]);
    assert_eq!(done.status.code(), Some(1));
    assert!(text(&done.stdout).contains("NoSuchOperator 1"), "{}", text(&done.stdout));

    for arguments in [
        &["run"][..],
        &["run", "missing.onnx"],
        &["run", "gallery:nothing"],
        &["run", "gallery:"],
        &["run", "gallery:add_gelu", "--sizes", "m=3"],
        &["run", "gallery:add_gelu", "--sizes", "n=3,n=4"],
        &["run", "gallery:add_gelu", "--sizes", "n=x"],
        &["run", "gallery:add_gelu", "--dtype", "i8"],
        &["run", "gallery:add_gelu", "--device", "abacus"],
        &["run", "gallery:add_gelu", "--inputs", "missing.npz"],
        &["run", "gallery:add_gelu", "--sizes", "n=1", "--outputs", "/nowhere/y.npz"],
        &["run", &path, "--dtype", "f16"],
    ] {
        let (status, message) = failure(arguments);
        assert!(status == 2 && message.contains("error:"), "{arguments:?}: {status} {message}");
    }
    let (status, message) = failure(&["run", "gallery:add_gelu", "--sizes", "n=1000G"]);
    assert!(status == 1 && message.contains("limit"), "{message}");
}

#[test]
fn there_are_no_colours_where_nobody_sees_them() {
    assert!(!stdout(&["inspect", "gallery:add_gelu"]).contains('\x1b'));
    let colourful = |no_color: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fuseline"));
        command.args(["inspect", "gallery:add_gelu"]).env("CLICOLOR_FORCE", "1").env_remove("NO_COLOR");
        if let Some(value) = no_color {
            command.env("NO_COLOR", value).env_remove("CLICOLOR_FORCE");
        }
        text(&command.output().unwrap().stdout).contains('\x1b')
    };
    assert!(colourful(None) && !colourful(Some("1")));
}

#[test]
fn a_reader_that_goes_away_is_not_an_error() {
    for arguments in [&["gallery", "--json"][..], &["run", "gallery:add_gelu", "--sizes", "n=10"]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_fuseline"))
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop((child.stdout.take(), child.stderr.take()));
        assert!(child.wait().unwrap().success(), "{arguments:?}");
    }
}

#[test]
fn the_doctor_names_what_a_gpu_lacks_and_so_does_a_run_on_it() {
    let found = json(&["doctor", "--json"]);
    let find = |what: &str| {
        let all = found["findings"].as_array().unwrap();
        all.iter().find(|f| f["device"] == "cuda" && f["needs"] == what).unwrap().clone()
    };
    let done = fuseline(&["run", "gallery:add_gelu", "--sizes", "n=4", "--device", "cuda"]);
    match ["GPU", "compiler"].map(find).into_iter().find(|finding| finding["there"] == false) {
        None => assert!(done.status.success(), "{}", text(&done.stderr)),
        Some(missing) => {
            let (note, message) = (missing["note"].as_str().unwrap(), text(&done.stderr));
            assert!(note.contains("install"), "{note}");
            assert!(done.status.code() == Some(1) && message.contains(note), "{message}");
        }
    }
}

#[test]
fn the_doctor_knows_where_nothing_can_be_kept() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "no folder").unwrap();
    let cache = |variables: &[(&str, &Path)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fuseline"));
        command.args(["doctor", "--json"]).env_remove("FUSELINE_CACHE").env_remove("XDG_CACHE_HOME").env("HOME", "");
        let done = command.envs(variables.iter().copied()).output().unwrap();
        let found: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
        let all = found["findings"].as_array().unwrap();
        let cache = all.iter().find(|finding| finding["needs"] == "cache").unwrap();
        (cache["there"].as_bool().unwrap(), cache["note"].as_str().unwrap().to_string())
    };
    let (there, note) = cache(&[]);
    assert!(!there && note.contains("FUSELINE_CACHE"), "an empty variable names no folder: {note}");
    let (there, note) = cache(&[("HOME", folder.path())]);
    assert!(there && note.contains(".cache/fuseline/cuda"), "{note}");
    assert!(!folder.path().join(".cache").exists(), "looking leaves nothing behind");
    let (there, note) = cache(&[("FUSELINE_CACHE", &file.join("cache"))]);
    assert!(!there && note.contains("nothing can be written"), "{note}");
}

#[test]
fn kernels_are_shown_for_a_gpu_that_need_not_be_there() {
    let shown = stdout(&["kernels", "gallery:softmax", "--emit", "cuda", "--dtype", "bf16", "--sizes", "columns=1024"]);
    assert!(shown.contains("extern \"C\" __global__") && shown.contains("const bf16* __restrict__ x0"), "{shown}");
    // Several kernels are one text that can be compiled: what they call stands in it once, and what stands around it is a comment.
    let shown = stdout(&["kernels", "demo:encoder", "--emit", "cuda", "--sizes", "batch=1,tokens=64"]);
    let names: Vec<&str> = shown.lines().filter_map(|line| line.strip_prefix("namespace ")).collect();
    assert!(names.len() > 3, "{shown}");
    assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), names.len(), "{names:?}");
    for once in ["typedef int Index;", "struct alignas(sizeof(T) * N) Pack", "void after_earlier() {"] {
        assert_eq!(shown.matches(once).count(), 1, "{once}: {shown}");
    }
    let outside = shown.lines().take_while(|line| *line != "typedef int Index;");
    assert!(outside.into_iter().all(|line| line.is_empty() || line.starts_with("//")), "{shown}");
}

#[test]
fn a_model_that_is_wrong_with_any_sizes_is_not_blamed_on_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dangling.onnx");
    let node = NodeProto {
        input: vec!["a".into(), "nobody".into()],
        output: vec!["y".into()],
        op_type: "Add".into(),
        ..Default::default()
    };
    write_model(&path, node, vec![port("a")], port("y"));
    for command in ["run", "verify", "bench"] {
        let (status, message) = failure(&[command, &path.display().to_string()]);
        assert!(status == 2 && message.contains("nobody") && !message.contains("do not fit together"), "{message}");
    }
}

#[test]
fn shells_can_complete_commands_and_options() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let done = Command::new(env!("CARGO_BIN_EXE_fuseline")).args(["completions", shell]).output().unwrap();
        let text = String::from_utf8(done.stdout).unwrap();
        assert!(done.status.success(), "{shell}");
        for word in ["explain", "only-fuse", "completions"] {
            assert!(text.contains(word), "{shell} does not know {word}");
        }
        if ["bash", "zsh", "fish"].contains(&shell) {
            assert!(text.contains("gallery:softmax") && text.contains("demo:encoder"), "{shell} knows no models");
        }
    }
}

#[cfg(unix)]
#[test]
fn a_shell_completes_built_in_models() {
    let script = r#"
        before="$COMP_WORDBREAKS"
        source <("$0" completions bash)
        [ "$COMP_WORDBREAKS" = "$before" ] || echo "what ends words was changed for everybody"
        complete_last() {
            COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
            # As bash divides a line: colons are words, unless they end none.
            if [[ "$COMP_WORDBREAKS" == *:* ]]; then COMP_WORDS=(${COMP_LINE//:/ : }); else COMP_WORDS=("$@"); fi
            COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
            _fuseline_models fuseline "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
            echo "${COMPREPLY[@]}"
        }
        for breaks in "$before" "${before//:/}"; do
            COMP_WORDBREAKS="$breaks"
            complete_last fuseline bench gallery:layernorm_g
            complete_last fuseline explain demo:enc
            complete_last fuseline explain demo
            complete_last fuseline doctor demo:enc
            complete_last fuseline compare demo:enc
            complete_last fuseline run --device cp
        done
    "#;
    let done = Command::new("bash").args(["-c", script, env!("CARGO_BIN_EXE_fuseline")]).output().unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    let networks = "demo:encoder demo:resnet demo:llama demo:opt";
    // Where a colon ends a word, what is behind it is completed.
    let by_colon = format!("layernorm_gelu layernorm_gelu_backward\nencoder\n{networks}\n\n\ncpu\n");
    let whole = format!("gallery:layernorm_gelu gallery:layernorm_gelu_backward\ndemo:encoder\n{networks}\n\n\ncpu\n");
    assert_eq!(text, format!("{by_colon}{whole}"), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn limits_for_untrusted_models_are_named_with_their_options() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/models/structure/bert_tiny.dynamo.onnx");
    let model = model.to_str().unwrap();
    for (arguments, limit) in [
        (["inspect", model, "--max-nodes", "10"], "more than 10 primitives"),
        (["explain", model, "--max-compile-time", "0"], "importing and compiling take longer than 0 s"),
        (["explain", "gallery:softmax", "--max-compile-time", "0"], "importing and compiling take longer than 0 s"),
        (["run", "gallery:softmax", "--max-memory", "10"], "the limit is 10 bytes"),
    ] {
        let (status, message) = failure(&arguments);
        assert!(status == 1 && message.contains(limit), "{message}");
        assert!(message.contains(arguments[2]), "{arguments:?} is not named: {message}");
    }
}

#[test]
fn a_run_without_an_end_is_ended() {
    // One product that the reference computes for hours.
    let sizes = ["--sizes", "m=4000,k=4000,n=4000"];
    for (arguments, what) in [
        (&["run", "gallery:matmul_bn", "--device", "reference"][..], "the run"),
        (&["verify", "gallery:matmul_bn"], "it"),
    ] {
        let start = std::time::Instant::now();
        let (status, message) = failure(&[arguments, &["--max-time", "1"], &sizes].concat());
        assert!(status == 1 && message.contains(&format!("{what} takes longer than 1 s")), "{message}");
        assert!(message.contains("--max-time SECONDS"), "{message}");
        assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
    }
}

#[test]
fn sizes_that_nobody_gave_are_such_that_the_model_takes_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("heads.ir");
    let model = path.to_str().unwrap();
    // As a reshape into heads wants it of a picture.
    let graph = "graph heads(x: f32[batch, height]) {\n  require (height + 7)//8 == 6 \"reshape\"\n  return x = x\n}\n";
    std::fs::write(&path, graph).unwrap();
    for command in [&["run", model][..], &["bench", model, "--iters", "1", "--warmup", "0"]] {
        let done = fuseline(command);
        let told = format!("{}{}", text(&done.stdout), text(&done.stderr));
        assert!(done.status.success() && told.contains("height=48"), "{command:?}: {told}");
    }
    let (status, told) = failure(&["run", model, "--sizes", "height=5"]);
    assert!(status != 0 && told.contains("must be equal"), "{told}");
}
