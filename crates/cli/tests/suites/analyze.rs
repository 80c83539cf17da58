//! `fuseline analyze` as users see it: the examples, what they give, and what is said of broken files.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn fuseline(arguments: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Command::new(env!("CARGO_BIN_EXE_fuseline")).args(arguments).current_dir(root).output().unwrap()
}

fn stdout(arguments: &[&str]) -> String {
    let done = fuseline(arguments);
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout(&[arguments, &["--json"]].concat())).unwrap()
}

fn candidate<'a>(report: &'a Value, producer: &str, consumer: &str) -> &'a Value {
    let all = report["candidates"].as_array().unwrap();
    all.iter().find(|c| c["producer"] == producer && c["consumer"] == consumer).unwrap()
}

/// Exit status and message for a file with this text.
fn refused(text: &str) -> (i32, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ops.json");
    std::fs::write(&path, text).unwrap();
    let done = fuseline(&["analyze", path.to_str().unwrap()]);
    let message = String::from_utf8(done.stderr).unwrap();
    assert!(!message.contains("panicked") && done.stdout.is_empty(), "{message}");
    (done.status.code().unwrap(), message)
}

#[test]
fn the_classic_layer_gives_its_three_fusions() {
    for target in ["cpu", "avx2", "a100", "h100", "h200"] {
        let report = json(&["analyze", "examples/layer.json", "--target", target]);
        assert_eq!(report["target"], target);
        let norm = candidate(&report, "layernorm", "linear");
        assert_eq!(norm["verdict"], "fuse_if", "{norm}");
        assert_eq!(norm["condition"]["kind"], "small_batch");
        assert!(norm["condition"]["break_even_rows"].as_f64().unwrap() > 1.0);
        assert_eq!(candidate(&report, "split", "attention")["verdict"], "fuse");
        assert_eq!(candidate(&report, "attention", "add_residual")["verdict"], "fuse");
        assert_eq!(candidate(&report, "linear", "split")["verdict"], "keep_apart");
        assert_eq!(report["candidates"].as_array().unwrap().len(), 4);
    }
    let text = stdout(&["analyze", "examples/layer.json"]);
    assert!(text.contains("layernorm+linear: FUSE ") && text.contains("if small batch: up to "), "{text}");
    assert!(text.contains("split + attention + add_residual"), "{text}");
}

#[test]
fn a_larger_batch_turns_the_decision() {
    let holds = |batch: &str| {
        let sizes = format!("batch={batch}");
        let report = json(&["analyze", "examples/layer.json", "--sizes", &sizes]);
        let norm = candidate(&report, "layernorm", "linear").clone();
        assert_eq!(norm["condition"]["holds"], norm["saved_us"].as_f64().unwrap() > 0.0);
        let kernels = report["kernels"].as_array().unwrap().len();
        (norm["taken"].as_bool().unwrap(), norm["condition"]["break_even_batch"].as_f64().unwrap(), kernels)
    };
    let (small, even, kernels) = holds("1");
    assert!(small && even >= 1.0 && kernels == 2);
    let (large, again, kernels) = holds("10k");
    assert!(!large && (even / again - 1.0).abs() < 0.01 && kernels == 3);
}

#[test]
fn layernorm_and_gelu_score_0_85() {
    let text = stdout(&["analyze", "examples/layernorm_gelu.json"]);
    assert!(text.contains("layernorm+gelu: FUSE 0.85"), "{text}");
    let report = json(&["analyze", "examples/layernorm_gelu.json"]);
    assert_eq!(report["candidates"][0]["score"], 0.85);
    assert_eq!(report["candidates"][0]["reason"], "saves_time");
    assert_eq!(report["before"]["bytes"], 4.0 * 4.0 * 8192.0 * 4096.0);
    assert_eq!(report["saved_traffic_percent"], 50.0);
    assert_eq!(report["candidates"][0]["scorecard"]["parts"][0]["weight"], 0.4);
}

#[test]
fn texts_have_their_way_on_request() {
    let report = json(&["analyze", "examples/layer.json", "--policy", "textbook"]);
    assert_eq!(candidate(&report, "linear", "split")["reason"], "incompatible_access");
}

#[test]
fn a_device_can_be_described_by_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.spec");
    let slow = fuseline::device::DeviceSpec::find("h200").unwrap().to_string().replace("gbps = 4800", "gbps = 480");
    std::fs::write(&path, slow.replace("name = h200", "name = mine")).unwrap();
    let path = path.to_str().unwrap();
    let (mine, h200) = (
        ["analyze", "examples/layernorm_gelu.json", "--target", path],
        ["analyze", "examples/layernorm_gelu.json", "--target", "h200"],
    );
    let us = |arguments: &[&str]| json(arguments)["before"]["us"].as_f64().unwrap();
    assert!(us(&mine) > 8.0 * us(&h200));
    std::fs::write(path, "name = mine\nkind = abacus\n").unwrap();
    let done = fuseline(&mine);
    let message = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.code() == Some(2) && message.contains("mine.spec"), "{message}");
}

#[test]
fn broken_files_are_told_by_line_and_field() {
    let one = |fields: &str| format!("[\n  {{ \"name\": \"a\", \"outputs\": [\"y\"]{fields} }}\n]");
    let cases = [
        ("{ \"operations\": [".to_string(), vec!["EOF", "line 1, column 17"]),
        ("{\n  \"operatons\": []\n}".into(), vec!["unknown field `operatons`", "`operations`", "line 2"]),
        ("{ \"sizes\": {} }".into(), vec!["missing field `operations`"]),
        (one(", \"flop\": 3"), vec!["unknown field `flop`", "`flops`", "line 2"]),
        (one(", \"flops\": [3]"), vec!["expected a number, or text with an expression", "line 2"]),
        (one(", \"flops\": \"3*(\""), vec!["3*(", "line 2"]),
        (one(", \"bound\": \"magic\""), vec!["unknown variant `magic`", "`memory`", "line 2"]),
        (one(", \"kind\": \"magic\""), vec!["unknown variant `magic`", "`reduction`", "line 2"]),
        (one(", \"inputs\": [7]"), vec!["expected a tensor: its name, its shape", "line 2"]),
        (one(", \"inputs\": [{\"shap\": [1]}]"), vec!["unknown field `shap`", "line 2"]),
        (one(", \"inputs\": [{\"name\": \"x\", \"dtype\": \"f33\"}]"), vec!["\"f33\" is no element type", "line 2"]),
        (one(", \"inputs\": [[1, 2]]"), vec!["operation \"a\"", "has no name"]),
        (one(", \"inputs\": [{\"name\": \"x\", \"shape\": [-1]}]"), vec!["tensor \"x\"", "-1 is no size"]),
        (one(", \"inputs\": [{\"name\": \"x\", \"shape\": [\"n\"]}]"), vec!["size \"n\" has no number", "--sizes n=8"]),
        (one(", \"elementwise\": true, \"kind\": \"reduction\""), vec!["operation \"a\"", "of another kind"]),
        (one(", \"flops\": -1"), vec!["operation \"a\"", "flops must be"]),
        (one(", \"inputs\": [\"y\"]"), vec!["wait for each other: a"]),
        (
            "{ \"operations\": [], \"tensors\": { \"x\": [1] } }".into(),
            vec!["tensor \"x\" is read and written by no operation"],
        ),
        ("{ \"operations\": [], \"sizes\": { \"n\": -1 } }".into(), vec!["size \"n\" is below zero"]),
        ("12".into(), vec!["integer `12`, expected a list of operations", "line 1"]),
        ("[12]".into(), vec!["integer `12`, expected an operation", "line 1"]),
    ];
    for (text, parts) in cases {
        let (status, message) = refused(&text);
        assert_eq!(status, 2, "{message}");
        for part in parts.iter().chain(&["error:", "ops.json", "help: `fuseline analyze --help`"]) {
            assert!(message.contains(part), "{part} in {message} for {text}");
        }
    }
}

#[test]
fn wrong_requests_are_refused() {
    for arguments in [
        &["analyze"][..],
        &["analyze", "missing.json"],
        &["analyze", "examples/layer.json", "--target", "abacus"],
        &["analyze", "examples/layer.json", "--target", "missing.spec"],
        &["analyze", "examples/layer.json", "--sizes", "colour=3"],
        &["analyze", "examples/layer.json", "--policy", "none"],
    ] {
        let done = fuseline(arguments);
        let message = String::from_utf8(done.stderr).unwrap();
        assert!(done.status.code() == Some(2) && message.contains("error:"), "{arguments:?}: {message}");
    }
}

#[test]
fn nothing_to_analyze_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ops.json");
    std::fs::write(&path, "[]").unwrap();
    let arguments = ["analyze", path.to_str().unwrap()];
    assert_eq!(stdout(&arguments), "There is nothing to analyze: the file has no operations.\n");
    assert_eq!(json(&arguments)["operations"], serde_json::json!([]));
    std::fs::write(&path, r#"[{ "name": "a", "outputs": ["y"] }]"#).unwrap();
    assert!(stdout(&arguments).contains("none: no operation reads what another one writes"));
}
