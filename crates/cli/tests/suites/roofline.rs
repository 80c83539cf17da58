//! `fuseline roofline` and `fuseline explain --analyze` as users see them.

use super::{fuseline, json, stdout};

fn failure(arguments: &[&str]) -> String {
    let done = fuseline(arguments);
    assert_eq!(done.status.code(), Some(2), "{done:?}");
    String::from_utf8(done.stderr).unwrap()
}

#[test]
fn this_machine_is_measured_and_can_be_planned_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let (spec, svg, png) = (path("here.spec"), path("roof.svg"), path("roof.png"));
    let model = ["gallery:softmax", "--sizes", "rows=16,columns=64"];
    let files = ["--write", &spec, "--svg", &svg, "--png", &png, "--json", "--iters", "2"];
    let shown = json(&[&["roofline"], &model[..], &files].concat());
    assert!(shown.get("load").is_some(), "{shown:#}");
    let measured = &shown["measured"];
    let threads = measured["threads"].as_array().unwrap().len();
    let memories = measured["memories"].as_array().unwrap();
    assert!(memories.len() >= 2, "{measured:#}");
    for memory in memories {
        for rates in ["read_gbps", "copy_gbps"] {
            let rates = memory[rates].as_array().unwrap();
            assert!(rates.len() == threads && rates.iter().all(|rate| rate.as_f64().unwrap() > 0.01), "{memory:#}");
        }
    }
    assert!(measured["arithmetic"][0]["gflops"][0].as_f64().unwrap() > 0.01, "{measured:#}");
    // A roof for each unit that was measured; f64 is not drawn.
    let units = measured["arithmetic"].as_array().unwrap().iter().filter(|unit| unit["unit"] != "f64 vectors").count();
    assert_eq!(shown["peaks"].as_array().unwrap().len(), units, "{:#}", shown["peaks"]);
    assert!(
        !std::fs::read_to_string(&spec).unwrap().lines().any(|line| line.starts_with("i8 = ") && !line.contains('x'))
    );
    let kernel = &shown["kernels"][0];
    assert!(kernel["us"].as_f64().unwrap() > 0.0 && kernel["pattern"] == "Softmax", "{kernel:#}");
    // What is above its limit is explained.
    let is_above = kernel["part_of_limit"].as_f64().is_some_and(|part| (100.0 * part).round() > 100.0);
    let note = shown.get("note").unwrap();
    assert_eq!(note.as_str().is_some_and(|why| why.contains("measured a moment before")), is_above, "{note}");
    let planned = json(&[&["explain"], &model[..], &["--target", &spec, "--json"]].concat());
    assert_eq!(planned["target"]["name"], "here");
    // What a file says of this machine holds.
    let analyzed =
        json(&[&["explain"], &model[..], &["--target", &spec, "--analyze", "--iters", "1", "--json"]].concat());
    assert_eq!(analyzed["measured"]["rates"], "described");
    let drawn = std::fs::read_to_string(&svg).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.contains("Softmax") && drawn.contains("xmlns"), "{drawn}");
    assert!(std::fs::read(&png).unwrap().starts_with(b"\x89PNG"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn other_machines_are_drawn_from_their_numbers() {
    let h200 = stdout(&["roofline", "--target", "h200"]);
    for word in [
        "Roofline of NVIDIA H200",
        "HBM 4800 GB/s",
        "f32 vectors, f64 matrices 66.9 TFLOP/s",
        "FLOP for each byte",
        "╱",
    ] {
        assert!(h200.contains(word), "{word}: {h200}");
    }
    let placed = stdout(&["roofline", "gallery:layernorm_gelu", "--target", "h200"]);
    assert!(placed.contains("LayerNorm + GELU") && placed.contains("of the limit"), "{placed}");
    let given = json(&["roofline", "gallery:softmax", "--peak-bw", "100", "--peak-flops", "1000", "--json"]);
    let kernel = &given["kernels"][0];
    let [intensity, gflops] = ["intensity", "gflops"].map(|field| kernel[field].as_f64().unwrap());
    assert!((gflops - (100.0 * intensity).min(1000.0)).abs() < 1e-6 * gflops, "{kernel:#}");
    assert!(given["measured"].is_null());
    let slow = stdout(&["roofline", "--peak-bw", "1000", "--peak-flops", "1e-3"]);
    for word in ["Roofline of 1.00 TB/s and 1.00 MFLOP/s", "arithmetic 1.00 MFLOP/s", "╱", "───"] {
        assert!(slow.contains(word), "{word}: {slow}");
    }
}

#[test]
fn wrong_requests_are_explained() {
    assert!(failure(&["roofline", "--target", "h300"]).contains("known devices are"));
    assert!(failure(&["roofline", "--peak-bw", "100"]).contains("--peak-flops"));
    assert!(failure(&["roofline", "--peak-bw", "0", "--peak-flops", "1"]).contains("above zero"));
    let wrong = failure(&["roofline", "--target", "h200", "--write", "here.txt"]);
    assert!(wrong.contains("called .spec"), "{wrong}");
    let tiny = failure(&["roofline", "--peak-bw", "100", "--peak-flops", "1e-9"]);
    assert!(tiny.contains("from 1e-6 to 1e12"), "{tiny}");
    for described in [&["--target", "a100"][..], &["--peak-bw", "100", "--peak-flops", "1"]] {
        for ignored in [["--device", "cuda"], ["--threads", "1"]] {
            let both = failure(&[&["roofline"], described, &ignored].concat());
            assert!(both.contains("cannot be used with") && both.contains(ignored[0]), "{both}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("no/roof.svg");
    let lost = failure(&["roofline", "--target", "h200", "--svg", missing.to_str().unwrap()]);
    assert!(lost.contains("cannot be written"), "{lost}");
}

#[test]
fn predictions_are_held_against_what_was_measured() {
    let model = ["explain", "gallery:transformer_sublayer", "--sizes", "tokens=16,features=64", "--analyze"];
    let told = json(&[&model[..], &["--iters", "2", "--json"]].concat());
    let kernels = told["kernels"].as_array().unwrap().len();
    let measured = told["measured"]["kernels"].as_array().unwrap();
    assert_eq!(measured.len(), kernels);
    let us = |kernel: &serde_json::Value, field: &str| kernel[field].as_f64().unwrap();
    let error = |kernel: &serde_json::Value| (us(kernel, "expected_us") / us(kernel, "us") - 1.0).abs();
    let mut errors: Vec<f64> = measured.iter().map(error).collect();
    errors.sort_by(f64::total_cmp);
    // What counts are kernels of 20 µs, and all where there are none.
    let counting: Vec<f64> = measured.iter().filter(|kernel| us(kernel, "us") >= 20.0).map(error).collect();
    assert_eq!(told["measured"]["errors"].as_array().unwrap().len(), counting.len(), "{told:#}");
    // What is predicted is the plan's own price, wherever it stands.
    let sum: f64 = measured.iter().map(|kernel| kernel["predicted_us"].as_f64().unwrap()).sum();
    assert!((sum - told["totals"]["predicted_us"].as_f64().unwrap()).abs() < 1e-2, "{told:#}");
    let median = told["measured"]["median_error"].as_f64().unwrap();
    assert!(errors[0] - 1e-9 <= median && median <= errors[errors.len() - 1] + 1e-9, "{told:#}");
    assert_eq!(told["measured"]["rates"], "measured", "what is expected is of the machine as it is now");
    let text = stdout(&[&model[..], &["--iters", "1", "--threads", "1"]].concat());
    for word in [
        "Decisions",
        "Measured, the most time first",
        "off by",
        "expected",
        "at the rates that were measured",
        "own prices",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    // Which kernels the error is of is told, and a model without kernels has none.
    assert!(text.contains("different kernel") || text.contains("the one kernel"), "{text}");
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.ir");
    std::fs::write(&empty, "graph empty(x: f32[4]) { return y = x }").unwrap();
    let text = stdout(&["explain", empty.to_str().unwrap(), "--analyze", "--iters", "1"]);
    assert!(text.contains("nothing is computed") && !text.contains("0.00 µs in kernels"), "{text}");
    let told = json(&["explain", empty.to_str().unwrap(), "--analyze", "--iters", "1", "--json"]);
    assert!(
        told["measured"]["median_error"].is_null() && told["measured"]["errors"] == serde_json::json!([]),
        "{told:#}"
    );
    let done = fuseline(&["explain", "gallery:softmax", "--target", "h200", "--analyze"]);
    // A plan for a GPU runs on one; where there is none, that is said.
    let is_missing = String::from_utf8_lossy(&done.stderr).contains("NVIDIA");
    assert!(done.status.success() || (done.status.code() == Some(1) && is_missing), "{done:?}");
}

#[test]
fn threads_that_are_not_there_are_not_measured_without_a_word() {
    let processors = std::thread::available_parallelism().unwrap().get();
    let more = (processors + 1).to_string();
    let done = fuseline(&["roofline", "--threads", &more, "--json"]);
    let told = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.success() && told.contains(&format!("and {processors} are measured")), "{told}");
}

#[test]
fn kernels_are_held_against_the_units_they_use() {
    let model = ["roofline", "gallery:transformer_sublayer", "--sizes", "tokens=512,features=512", "--target", "cpu"];
    for (precision, unit) in [("f32", "f32 vectors"), ("bf16", "bf16 matrices")] {
        let told = json(&[&model[..], &["--precision", precision, "--json"]].concat());
        let rate = |list: &str, name: &str, field: &str| {
            let found = told[list].as_array().unwrap().iter().find(|one| one["name"] == name);
            found.unwrap_or_else(|| panic!("{name}: {told:#}"))[field].as_f64().unwrap()
        };
        let product = told["kernels"].as_array().unwrap().iter().find(|kernel| kernel["kind"] == "contract").unwrap();
        let [intensity, gflops, part] =
            ["intensity", "gflops", "part_of_limit"].map(|field| product[field].as_f64().unwrap());
        let limit = (rate("memories", "DRAM", "gbps") * intensity).min(rate("peaks", unit, "gflops"));
        assert!((part - gflops / limit).abs() < 1e-9, "{precision}: {product:#}");
    }
}
