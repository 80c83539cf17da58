//! What is asked for: numbers, names and sizes as people write them.

use std::process::Command;

use super::{failure, fuseline, json, stdout, sum_of};

#[test]
#[cfg(target_os = "linux")]
fn help_that_cannot_be_written_is_an_error() {
    for arguments in
        [&["--help"][..], &["bench", "--help"], &["help", "run"], &["--version"], &["kernel", "x", "run", "-h"]]
    {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let done = Command::new(env!("CARGO_BIN_EXE_fuseline")).args(arguments).stdout(full).output().unwrap();
        assert_eq!(done.status.code(), Some(1), "{arguments:?}");
        assert!(String::from_utf8(done.stderr).unwrap().contains("cannot write to standard output"), "{arguments:?}");
        assert!(fuseline(arguments).status.success(), "{arguments:?}");
    }
    assert_eq!(fuseline(&[]).status.code(), Some(2), "nothing was asked for");
}

/// Neither notes nor headings are broken by what stands in a file, or by its name.
#[test]
fn names_do_not_break_lines() {
    let folder = tempfile::tempdir().unwrap();
    let model = sum_of(folder.path(), "two\nlines.onnx", ["N\n", "N\n"]);
    let done = fuseline(&["run", &model]);
    let told = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.success() && told.contains("note: free sizes taken as N\\u{a}=1 (choose"), "{told}");
    assert!(told.lines().all(|line| line.starts_with("note: ") || line.starts_with("ran on")), "{told}");
    for command in ["explain", "inspect", "verify"] {
        let shown = stdout(&[command, &model]);
        let head = shown.lines().next().unwrap();
        assert!(head.contains("two\\u{a}lines.onnx"), "{command}: {shown}");
    }
    assert!(stdout(&["explain", &model]).contains("N\\u{a}=1"));
}

#[test]
#[cfg(target_os = "linux")]
fn files_may_have_names_that_are_no_text() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let name = |ending: &str| OsStr::from_bytes(&[b"x\xff.", ending.as_bytes()].concat()).to_os_string();
    let graph = stdout(&["inspect", "gallery:softmax", "--graph"]);
    std::fs::write(folder.path().join(name("ir")), graph).unwrap();
    std::fs::write(folder.path().join(name("tile")), "kernel twice(x: f32[n]) -> y: f32[n] { y = x + x }").unwrap();
    let run = |words: &[&OsStr]| {
        let command = Command::new(env!("CARGO_BIN_EXE_fuseline")).args(words).current_dir(folder.path()).output();
        let done = command.unwrap();
        assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    let word = OsStr::new;
    let [graph, tile, plan, arrays, page, device] = ["ir", "tile", "plan", "npz", "html", "spec"].map(name);
    let small = [word("--sizes"), word("rows=2,columns=4")];
    run(&[&[word("explain"), &graph, word("--lock"), &plan], &small[..]].concat());
    run(&[&[word("run"), &graph, word("--plan"), &plan, word("--outputs"), &arrays], &small[..]].concat());
    run(&[&[word("report"), &graph, word("--no-run"), word("-o"), &page], &small[..]].concat());
    run(&[word("kernel"), &tile, word("run")]);
    run(&[word("roofline"), word("--target"), word("cpu"), word("--write"), &device]);
    run(&[&[word("explain"), &graph, word("--target"), &device], &small[..]].concat());
    let left = [graph, tile, plan, arrays, page, device];
    assert!(left.iter().all(|name| folder.path().join(name).exists()));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), left.len());
}

#[test]
fn sizes_need_no_name_where_there_is_one_only() {
    assert!(stdout(&["run", "gallery:add_gelu", "--sizes", "300"]).contains("f32[300]"));
    assert!(stdout(&["inspect", "gallery:add_gelu", "--sizes", "2k"]).contains("f32[2000]"));
    let (status, message) = failure(&["run", "gallery:softmax", "--sizes", "300"]);
    assert!(status == 2 && message.contains("which size is 300?"), "{message}");
    assert!(message.contains("--sizes rows=128,columns=128"), "{message}");
    let (status, message) = failure(&["run", "gallery:add_gelu", "--sizes", "300,400"]);
    assert!(status == 2 && message.contains("given twice") && message.contains("fuseline bench"), "{message}");
    let (status, message) = failure(&["run", "gallery:add_gelu", "--sizes", "n"]);
    assert!(status == 2 && message.contains("NAME=SIZE"), "{message}");
}

#[test]
fn devices_are_listed_once_and_all_of_them() {
    for command in ["explain", "kernels", "bench", "roofline", "report"] {
        let (status, message) = failure(&[command, "gallery:softmax", "--target", "h2000"]);
        assert!(status == 2 && message.contains("no device is called \"h2000\""), "{message}");
        assert_eq!(message.matches("a100").count(), 1, "{message}");
        assert!(message.contains("h200, here"), "{message}");
    }
}

/// A limit that was reached names its option, and no other.
#[test]
fn limits_name_the_option_that_matters() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.ir");
    std::fs::write(&path, stdout(&["inspect", "gallery:softmax", "--graph"])).unwrap();
    let file = path.to_str().unwrap();
    for (model, limit, option) in [
        ("gallery:softmax", "1", "--max-nodes"),
        ("demo:encoder", "1", "--max-nodes"),
        (file, "1", "--max-nodes"),
        ("gallery:softmax", "16", "--max-memory"),
        (file, "0", "--max-compile-time"),
    ] {
        let (status, message) = failure(&["run", model, option, limit]);
        assert!(status == 1 && message.contains(&format!("may have more: {option} ")), "{model} {option}: {message}");
        assert_eq!(message.matches("--max").count(), 1, "{message}");
    }
    // What no option raises says so.
    let (_, message) = failure(&["run", "gallery:add_gelu", "--sizes", "300000G"]);
    assert!(message.contains("no flag raises this limit") && !message.contains("--max"), "{message}");
}

#[test]
fn a_number_that_was_drawn_and_decides_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rate.ir");
    let model = path.to_str().unwrap();
    let graph = "graph rate(x: f32[n], rate: i64[]) {
  %2 = map(rate) f32(a) : f32[]
  %3 = view %2[] : f32[n]
  %4 = map(x, %3) a * b : f32[n]
  return y = %4
}
";
    std::fs::write(&path, graph).unwrap();
    for command in [&["run", model][..], &["bench", model, "--iters", "1"], &["verify", model]] {
        let done = fuseline(command);
        let told = String::from_utf8(done.stderr).unwrap();
        assert!(done.status.success() && told.contains("note: rate="), "{command:?}: {told}");
        assert!(told.contains("--input rate=VALUE"), "{command:?}: {told}");
        let given = fuseline(&[command, &["--input", "rate=16000"]].concat());
        let told = String::from_utf8(given.stderr).unwrap();
        assert!(given.status.success() && !told.contains("rate"), "{command:?}: {told}");
    }
    // Sizes of texts and data are many numbers, which decide nothing by themselves.
    let data = json(&["run", "gallery:add_gelu", "--sizes", "8", "--json"]);
    assert_eq!(data["inputs"][0]["source"], "random");
}

#[test]
fn quiet_is_the_same_of_every_command() {
    let (sizes, model) = (["--sizes", "rows=2,columns=8"], "gallery:softmax");
    let tile = super::kernel::example("softmax");
    let commands = [
        &["run", model][..],
        &["bench", model, "--iters", "1"],
        &["verify", model],
        &["explain", model],
        &["inspect", model],
        &["bisect", model],
        &["roofline", model, "--target", "h200"],
        &["report", model, "--no-run", "-o", "/dev/null"],
        &["kernel", &tile, "run"],
        &["kernel", &tile, "bench", "--iters", "1"],
    ];
    for command in commands {
        let quiet = fuseline(&[command, &sizes[..1], &["rows=2"], &["--quiet"]].concat());
        assert!(quiet.status.success(), "{command:?}: {}", String::from_utf8_lossy(&quiet.stderr));
        for told in [&quiet.stdout, &quiet.stderr] {
            assert!(told.is_empty(), "{command:?}: {}", String::from_utf8_lossy(told));
        }
        // What a program asks for comes all the same, and alone.
        let asked = fuseline(&[command, &sizes, &["--json", "-q"]].concat());
        assert!(asked.stderr.is_empty(), "{command:?}: {}", String::from_utf8_lossy(&asked.stderr));
        let value: serde_json::Value = serde_json::from_slice(&asked.stdout).unwrap();
        assert!(value.is_object(), "{command:?}: {value}");
    }
    let before = stdout(&["-q", "kernel", &tile, "emit", "tile"]);
    assert!(before.contains("kernel"), "code is what was asked for: {before}");
    assert!(failure(&["explain", model, "--verbose", "--quiet"]).1.contains("cannot be used with"));
}

#[test]
fn rounding_and_strict_numerics_exclude_each_other() {
    for command in ["run", "verify", "explain", "kernels"] {
        let (_, told) = failure(&[command, "gallery:softmax", "--precision", "bf16", "--numerics", "strict"]);
        assert!(told.contains("bf16 rounds what strict numerics keep"), "{told}");
        assert!(told.contains("help: leave --numerics strict out, or leave --precision out"), "{told}");
    }
}

#[test]
fn inputs_can_be_given_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("affine.ir");
    let model = path.to_str().unwrap();
    let graph = "graph affine(x: f32[n], few: i8[3], is_on: bool[]) {
  %3 = map(few) f32(a) : f32[3]
  %4 = reduce.sum %3 axes=[0] : f32[]
  %5 = view %4[] : f32[n]
  %6 = view is_on[] : bool[n]
  %7 = map(x, %5, %6) select(c, a + b, a) : f32[n]
  return y = %7
}
";
    std::fs::write(&path, graph).unwrap();
    let run = |inputs: &[&str]| {
        let words: Vec<&str> = inputs.iter().flat_map(|input| ["--input", *input]).collect();
        json(&[&["run", model, "--json", "--device", "reference"], words.as_slice()].concat())
    };
    let all = run(&["x=0.5,1.5", "few=1,2,-128", "is_on=true"]);
    assert_eq!((&all["outputs"][0]["mean"], &all["outputs"][0]["shape"][0]), (&(-124.0).into(), &2.into()), "{all}");
    assert!(all["inputs"].as_array().unwrap().iter().all(|input| input["source"] == "argument"), "{all}");
    // One number fills what it is given for, a comma makes it the only one.
    let filled = run(&["x=2", "few=1", "is_on=true"]);
    assert_eq!((&filled["outputs"][0]["mean"], &filled["outputs"][0]["min"]), (&5.0.into(), &5.0.into()), "{filled}");
    assert_eq!(run(&["x=2,", "few=1", "is_on=0"])["outputs"][0]["shape"], serde_json::json!([1]));
    // Whole numbers may be written otherwise.
    let whole = run(&["x=2", "few=1e1,2.0,-1.5E1", "is_on=true"]);
    assert_eq!(whole["outputs"][0]["mean"], serde_json::json!(-1.0), "{whole}");
    for infinity in ["x=inf", "x=-infinity", "x=3e38"] {
        run(&[infinity, "few=1", "is_on=true"]);
    }
    for (wrong, why) in [
        ("y=1", "the model's inputs are x, few, is_on"),
        ("few=1,2", "i8[2] where i8[3] is wanted"),
        ("few=128", "128 is too large or too small where i8 is wanted"),
        ("few=1.5", "1.5 is no whole number"),
        ("few=15e-1", "15e-1 is no whole number"),
        ("few=1e", "1e is no whole number"),
        ("few=1e99", "1e99 is too large or too small where i8 is wanted"),
        ("is_on=2", "2 is neither true nor false"),
        ("x=one", "one is no number where f32 is wanted"),
        ("x=1e999", "1e999 is too large (infinity is written inf) where f32 is wanted"),
        ("x=-1e39", "-1e39 is too large (infinity is written inf) where f32 is wanted"),
        ("x", "NAME=NUMBER"),
    ] {
        let (status, message) = failure(&["run", model, "--input", wrong]);
        assert!(status == 2 && message.contains(why), "{wrong}: {message}");
    }
    let (status, message) = failure(&["run", model, "--input", "x=1", "--input", "x=2"]);
    assert!(status == 2 && message.contains("\"x\" is given twice"), "{message}");
    let (_, message) = failure(&["run", model, "--input", "x=1", "--sizes", "n=300G"]);
    assert!(message.contains("limit"), "{message}");
}
