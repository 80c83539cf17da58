//! `fuseline bisect` as users see it. That a wrong kernel is found is tested where kernels can be made wrong.

use std::process::Command;

use serde_json::Value;

/// Exit status, standard output and standard error of a command.
fn fuseline(arguments: &[&str]) -> (Option<i32>, String, String) {
    let done = Command::new(env!("CARGO_BIN_EXE_fuseline")).args(arguments).output().unwrap();
    let [out, err] = [done.stdout, done.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (done.status.code(), out, err)
}

#[test]
fn where_nothing_differs_nothing_is_guilty() {
    let folder = tempfile::tempdir().unwrap();
    let case = folder.path().join("case").display().to_string();
    let model = ["bisect", "gallery:transformer_sublayer", "--sizes", "tokens=5,features=24", "--case", &case];
    let (status, out, err) = fuseline(&[&model[..], &["--json"]].concat());
    assert_eq!(status, Some(0), "{err}");
    let found: Value = serde_json::from_str(&out).unwrap();
    assert!(found["guilty"].is_null() && found["decisions"].as_u64().unwrap() > 3, "{found:#}");
    assert!(!std::path::Path::new(&case).exists(), "nothing is written where nothing is found");
    let (_, out, err) = fuseline(&model);
    assert!(out.contains("no decision is guilty") && !err.contains("earlier"), "{out}{err}");
    // What an earlier search found is not what this one did.
    std::fs::create_dir(&case).unwrap();
    std::fs::write(std::path::Path::new(&case).join("bad.plan"), "fuseline plan 1\n").unwrap();
    let (_, _, err) = fuseline(&model);
    assert!(err.contains("case holds what an earlier search found; this one writes nothing there"), "{err}");
}

#[test]
fn what_makes_a_model_slower_is_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    let case = folder.path().join("case").display().to_string();
    let model = ["bisect", "gallery:layernorm_gelu", "--sizes", "rows=8,columns=64", "--metric", "latency", "--json"];
    let (status, out, err) = fuseline(&[&model[..], &["--iters", "2", "--above", "1000000", "--case", &case]].concat());
    assert_eq!(status, Some(0), "{err}");
    let found: Value = serde_json::from_str(&out).unwrap();
    assert!(found["plans"].as_u64().unwrap() >= 2 && found["guilty"].is_null(), "{found:#}");
    // Whatever is found is written down, and can be judged.
    let (status, out, err) = fuseline(&[&model[..], &["--iters", "2", "--above", "0", "--case", &case]].concat());
    let found: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{err}"));
    if status == Some(3) {
        let plan = format!("{case}/bad.plan");
        let (status, _, err) = fuseline(&["verify", model[1], model[2], model[3], "--plan", &plan, "--device", "cpu"]);
        assert_eq!(status, Some(0), "{err}\n{found:#}");
    }
}

#[test]
fn the_command_teaches_itself() {
    let (status, out, _) = fuseline(&["bisect", "--help"]);
    assert!(status == Some(0) && out.contains("Examples:") && out.contains("a guilty decision was found"), "{out}");
    let (status, _, err) = fuseline(&["bisect", "gallery:softmax", "--metric", "taste"]);
    assert!(status == Some(2) && err.contains("latency"), "{err}");
    for above in ["-5", "NaN", "inf"] {
        let (status, _, err) = fuseline(&["bisect", "gallery:softmax", "--metric", "latency", "--above", above]);
        assert!(status == Some(2) && err.contains("0 or more"), "{err}");
    }
}
