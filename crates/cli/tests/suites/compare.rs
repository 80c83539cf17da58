//! `fuseline compare` with a Python that has no rivals; python/tests has those with some.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

fn compare(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fuseline")).arg("compare").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A model with one operator, in as few bytes as it takes: Relu of x to y, both f32[2].
fn model(folder: &Path) -> String {
    let field = |tag: u8, content: &[u8]| [&[tag, content.len() as u8], content].concat();
    let shape = field(0x12, &field(0x0a, &[0x08, 2]));
    let tensor = field(0x0a, &[&[0x08, 1], &shape[..]].concat());
    let port = |tag: u8, name: &[u8]| field(tag, &[field(0x0a, name), field(0x12, &tensor)].concat());
    let node = field(0x0a, &[field(0x0a, b"x"), field(0x12, b"y"), field(0x22, b"Relu")].concat());
    let graph = field(0x3a, &[node, field(0x12, b"g"), port(0x5a, b"x"), port(0x62, b"y")].concat());
    let path = folder.join("relu.onnx");
    fs::write(&path, [&[0x08, 8], &graph[..], &field(0x42, &[0x10, 17])].concat()).unwrap();
    path.display().to_string()
}

/// A Python that has no packages.
fn bare_python(folder: &Path) -> String {
    let python = folder.join("bare");
    fs::write(&python, "#!/bin/sh\nexec python3 -I -S \"$@\"\n").unwrap();
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
    python.display().to_string()
}

#[test]
fn rivals_that_are_missing_are_told_with_how_to_get_them() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path());
    let python = bare_python(folder.path());
    let done = compare(&[&model, "--python", &python, "--rounds", "2", "--threads", "1"]);
    let said = text(&done.stdout);
    assert!(done.status.success(), "{said}{}", text(&done.stderr));
    assert!(said.contains("fuseline   0.1.0"), "{said}");
    assert!(text(&compare(&["--help"]).stdout).contains("also where Fuseline is measured alone"));
    for package in ["onnxruntime", "openvino", "torch onnx2torch"] {
        assert!(said.contains(&format!("-m pip install {package}`")), "{said}");
    }
    let done = compare(&[&model, "--python", &python, "--rivals", "openvino", "--exact", "--json"]);
    assert_eq!(done.status.code(), Some(1), "it was asked for by name");
    let json: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(json["errors_to"], "reference");
    assert_eq!(json["contenders"][0]["error"]["rms"], 0.0);
    assert_eq!(json["contenders"][0]["ms"].as_array().unwrap().len(), 25);
    assert_eq!((&json["absent"][0]["state"], json["absent"].as_array().unwrap().len()), (&"missing".into(), 1));
}

#[test]
fn random_weights_are_told() {
    let model = format!("{}/../../tests/models/structure/bert_tiny.legacy.onnx", env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let python = bare_python(folder.path());
    let few = ["--python", &python, "--rounds", "1", "--iters", "1", "--exact"];
    let done = compare(&[&[model.as_str()], &few[..]].concat());
    let said = text(&done.stdout);
    assert!(done.status.success() && said.contains("the model's weights are random"), "{said}{}", text(&done.stderr));
    let done = compare(&[&[model.as_str()], &few[..], &["--json"]].concat());
    let json: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert!(json["random_weights"].as_u64().unwrap() > 10, "{json:#}");
    assert!(!json["random_inputs"].as_array().unwrap().is_empty() && json.get("load").is_some(), "{json:#}");
    let stored = compare(&[&[self::model(folder.path()).as_str()], &few[..]].concat());
    assert!(!text(&stored.stdout).contains("weights are random"), "{}", text(&stored.stdout));
}

#[test]
fn what_cannot_be_compared_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path());
    let done = compare(&[&model, "--python", "/nowhere/python"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("there is no /nowhere/python"), "{}", text(&done.stderr));
    let done = compare(&["gallery:softmax"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("ONNX files only"), "{}", text(&done.stderr));
    let done = compare(&[&model, "--python", "false"]);
    assert!(text(&done.stderr).contains("ended by itself"), "{}", text(&done.stderr));
}
