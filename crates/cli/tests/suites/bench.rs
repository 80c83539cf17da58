//! `fuseline bench` and `fuseline kernels` as users see them.

use std::process::Command;

use serde_json::Value;

use super::{failure, sum_of};

/// Standard output of a command that must succeed.
fn stdout(arguments: &[&str]) -> String {
    let done = Command::new(env!("CARGO_BIN_EXE_fuseline")).args(arguments).output().unwrap();
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout(arguments)).unwrap()
}

const MODEL: [&str; 5] = ["bench", "gallery:transformer_sublayer", "--sizes", "tokens=8,features=32", "--json"];

#[test]
fn times_of_every_plan_are_told() {
    let measured = json(&[&MODEL[..], &["--iters", "4", "--warmup", "1", "--threads", "2"]].concat());
    assert_eq!((measured["threads"].as_u64(), measured["iters"].as_u64()), (Some(2), Some(4)));
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{measured:#}"));
    for plan in ["fused", "per_node", "per_primitive"] {
        let [median, min, p90] = ["median_ms", "min_ms", "p90_ms"].map(|field| number(&measured[plan][field]));
        assert!(0.0 < min && min <= median && median <= p90, "{measured:#}");
        assert_eq!(measured[plan]["interpreted"], 0, "{measured:#}");
    }
    for field in ["compile_ms", "load_ms"] {
        assert!(number(&measured[field]) > 0.0, "{measured:#}");
    }
    let kernels = |plan: &str| number(&measured[plan]["kernels"]);
    assert!(kernels("fused") < kernels("per_node") && kernels("per_node") < kernels("per_primitive"), "{measured:#}");
    assert_eq!(measured["kernels"], measured["fused"]["kernels"]);
    assert!(measured["peak_mb"].is_null() || number(&measured["peak_mb"]) > 0.0);
    assert!(number(&measured["fused_against_per_node"]["saved_bytes"]) > 0.0);
    for field in ["load", "above_machine"] {
        assert!(measured.get(field).is_some(), "{field}: {measured:#}");
    }
    assert!(measured["load"].is_null() || measured["load"]["note"].as_str().unwrap().contains("other work"));
}

#[test]
fn one_side_can_be_measured_alone() {
    let plans = |only: &str| {
        let measured = json(&[&MODEL[..], &["--iters", "1", "--only", only]].concat());
        ["fused", "per_node", "per_primitive"].map(|plan| measured[plan].is_object())
    };
    assert_eq!(plans("fused"), [true, false, false]);
    assert_eq!(plans("unfused"), [false, true, true]);
    let text = stdout(&["bench", "gallery:softmax", "--sizes", "rows=4,columns=8", "--iters", "1", "--threads", "1"]);
    for word in ["on 1 thread\n", "1 run of each", "speed-up", "fusion saves", "compiled in", "GFLOP/s"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn the_time_of_every_kernel_is_told() {
    let measured = json(&[&MODEL[..], &["--iters", "2", "--only", "fused", "--kernels"]].concat());
    let kernels = measured["profile"].as_array().unwrap();
    assert_eq!(Some(kernels.len() as u64), measured["kernels"].as_u64());
    for kernel in kernels {
        let phases = kernel["phases"].as_array().unwrap();
        let sum: f64 = phases.iter().map(|phase| phase["us"].as_f64().unwrap()).sum();
        let us = kernel["us"].as_f64().unwrap();
        assert!(us > 0.0 && (sum - us).abs() < 1e-6 * us, "{kernel:#}");
        assert!(kernel["predicted_us"].as_f64().unwrap() > 0.0, "{kernel:#}");
    }
    let text = stdout(&["bench", "gallery:softmax", "--sizes", "rows=4,columns=8", "--iters", "1", "--kernels"]);
    for word in ["µs each", "expected", "row", "µs in kernels"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn kernels_are_shown_as_code() {
    let show = |form: &str| stdout(&["kernels", "gallery:softmax", "--sizes", "rows=4,columns=8", "--emit", form]);
    let tile = show("tile");
    assert!(tile.contains("schedule row") && tile.contains("reduce.max"), "{tile}");
    assert!(tile.contains("x0: f32[rows, columns]"), "sizes are not written into kernels: {tile}");
    for form in ["vector", "asm"] {
        let text = show(form);
        assert!(text.contains("tasks") && text.lines().count() > 20, "{text}");
    }
}

#[test]
fn shares_are_those_of_limits_that_are_known_to_be_so() {
    let measured = json(&[&MODEL[..], &["--iters", "1", "--threads", "1"]].concat());
    let machine = &measured["machine"];
    assert_eq!((&machine["source"], &machine["device"]), (&"measured".into(), &Value::Null), "{machine}");
    assert!(machine["gbps"].as_f64().unwrap() > 0.01 && machine["gflops"].as_f64().unwrap() > 0.01, "{machine}");
    // Twice as little that stays in caches, at a thousandth of what a processor does: all of it is above the limits.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slow.spec");
    let slow = path.to_str().unwrap();
    stdout(&["roofline", "--target", "cpu", "--write", slow]);
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, main) = text.split_at(text.find("[memory dram]").unwrap());
    let main = main.replacen("\ngbps = 48", "\ngbps = 0.001", 1).replacen("\ncore_gbps = 25", "\ncore_gbps = 0.001", 1);
    std::fs::write(&path, format!("{before}{main}")).unwrap();
    let sizes = ["--sizes", "rows=64,columns=64", "--iters", "1"];
    let told = stdout(&[&["bench", "gallery:softmax", "--target", slow], &sizes[..]].concat());
    assert!(told.contains("as the description of cpu says, not measured"), "{told}");
    assert!(told.contains("GB/s above 100 %: what stays in caches"), "{told}");
}

#[test]
fn several_sizes_are_measured_one_after_another() {
    let sizes = ["bench", "gallery:add_gelu", "--sizes", "1k,2k", "--iters", "1"];
    let text = stdout(&sizes);
    for word in ["n=1000", "n=2000", "All sizes", "per node ms", "traffic saved", "40 %"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let all = json(&[&sizes[..], &["--json"]].concat());
    let shapes: Vec<&Value> =
        all["sweep"].as_array().unwrap().iter().map(|one| &one["inputs"][0]["shape"][0]).collect();
    assert_eq!(shapes, [1000, 2000]);
    let one = json(&["bench", "gallery:add_gelu", "--sizes", "1k", "--iters", "1", "--json"]);
    assert!(one["fused"].is_object(), "one size is told as it always was: {one}");
    let nothing = stdout(&["bench", "gallery:softmax", "--sizes", "rows=0,columns=8", "--iters", "1"]);
    assert!(nothing.contains("nothing is computed at these sizes"), "{nothing}");
    let (status, message) = failure(&["bench", "gallery:softmax", "--sizes", "rows=1,2,columns=3,4", "--iters", "1"]);
    assert!(status == 2 && message.contains("both rows and columns have several numbers"), "{message}");
}

/// A plan for some sizes need not fit others: that is known before anything is measured. What fails while it is measured loses nothing.
#[test]
fn nothing_that_was_measured_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let model = sum_of(folder.path(), "sum.onnx", ["b", "c"]);
    let lock = folder.path().join("sum.plan");
    let plan = lock.to_str().unwrap();
    stdout(&["explain", &model, "--sizes", "b=4,c=4", "--lock", plan]);
    let run = |arguments: &[&str]| {
        let done = Command::new(env!("CARGO_BIN_EXE_fuseline")).arg("bench").args(arguments).output().unwrap();
        let [told, errors] = [done.stdout, done.stderr].map(|text| String::from_utf8(text).unwrap());
        (done.status.code(), told, errors)
    };
    // A size of 1 is repeated, which is another graph.
    let (status, told, errors) = run(&[&model, "--sizes", "b=4,1,c=4", "--plan", plan, "--iters", "1"]);
    assert_eq!((status, told.as_str()), (Some(2), ""), "{errors}");
    assert!(errors.contains("--sizes b=1,c=4") && errors.contains("another graph"), "{errors}");
    let (status, told, errors) = run(&[&model, "--sizes", "b=4,5,c=4", "--iters", "1"]);
    assert!(status == Some(2) && told.is_empty() && errors.contains("--sizes b=5,c=4"), "{told}{errors}");
    // Inputs are within the limit, and what is computed of the larger ones is not.
    let large = ["gallery:add_gelu", "--sizes", "1k,1M", "--iters", "1", "--max-memory", "10M", "--json"];
    let (status, told, errors) = run(&large);
    assert_eq!(status, Some(1), "{errors}");
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["sweep"].as_array().map(Vec::len), Some(1), "{told}");
}

#[test]
fn whoever_measures_tells_of_other_work() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let page = page.to_str().unwrap();
    let load =
        || -> Option<f64> { std::fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok() };
    let processors = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
    let model = ["gallery:softmax", "--sizes", "rows=4,columns=8", "--iters", "1"];
    for command in [
        [&["bench"], &model[..]].concat(),
        [&["report"], &model[..], &["-o", page]].concat(),
        [&["explain"], &model[..], &["--analyze"]].concat(),
        ["demo", "--model", "opt", "--sizes", "tokens=2", "--iters", "1", "--output", page].to_vec(),
    ] {
        let before = load();
        let done = super::fuseline(&command);
        let message = String::from_utf8(done.stderr).unwrap();
        assert!(done.status.success(), "{command:?}: {message}");
        let Some((before, after)) = before.zip(load()) else { continue };
        // On the border nobody knows what it read.
        if before.min(after) > 1.6 * processors {
            assert!(message.contains("other work is on this machine"), "{command:?} at {before}: {message}");
        } else if before.max(after) < 1.4 * processors {
            assert!(!message.contains("other work"), "{command:?} at {before}: {message}");
        }
    }
}
