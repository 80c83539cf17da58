//! `fuseline demo` as users see it, and as the README shows it.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Standard output of a demo in a folder, with little to do.
fn demo(folder: &Path, more: &[&str]) -> String {
    let usual = ["demo", "--iters", "1", "--threads", "2"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_fuseline"));
    let done = command.args(usual).args(more).current_dir(folder).output().unwrap();
    assert!(done.status.success(), "{more:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// A text in which every number is `#` and every gap one blank: what does not depend on the machine.
fn without_numbers(text: &str) -> Vec<String> {
    let plain = |word: &str| {
        let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '<');
        let bare = word.trim_end_matches(['%', ',', ';', ')']).trim_start_matches('(');
        let bare = bare.strip_prefix("tokens=").unwrap_or(bare);
        let exponent = bare.split_once('e').is_some_and(|(a, b)| a.chars().all(is_number) && b.chars().all(is_number));
        let number = !bare.is_empty() && bare.starts_with(|c: char| c.is_ascii_digit() || c == '<');
        let number = number && (bare.chars().all(is_number) || exponent);
        if number { word.replace(bare, "#") } else { word.to_owned() }
    };
    let line = |line: &str| {
        let words: Vec<String> = line.split_whitespace().map(plain).collect();
        words.join(" ").replace("MB", "kB").replace("GB", "kB")
    };
    text.lines().map(line).collect()
}

#[test]
fn the_demo_is_what_the_readme_shows() {
    let folder = tempfile::tempdir().unwrap();
    let told = demo(folder.path(), &["--sizes", "batch=1,tokens=8"]);
    for word in ["kernels fused:", "× as fast", "of the roofline", "everything agrees", "report.html"] {
        assert!(told.contains(word), "{word}: {told}");
    }
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") || page.starts_with("<!DOCTYPE html>"), "{}", &page[..80]);
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let shown = readme.split("```\n").find_map(|block| block.strip_prefix("$ cargo run --release -- demo\n"));
    let shown = without_numbers(shown.expect("the README shows the demo"));
    // The first lines tell sizes; a GPU, where there is one, is told about as well.
    let told = without_numbers(&told);
    // What takes the time differs from machine to machine.
    let of_machine = |line: &&String| ["arithmetic", "memory there", "memory bounds"].iter().any(|w| line.contains(w));
    for line in shown.iter().skip(3).filter(|line| !of_machine(line)) {
        assert!(told.contains(line), "the README has\n{line}\nbut told is\n{}", told.join("\n"));
    }
}

#[test]
fn every_network_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    for (model, sizes) in [("llama", "tokens=6"), ("opt", "tokens=6,batch=2"), ("resnet", "batch=1")] {
        let told = demo(folder.path(), &["--model", model, "--sizes", sizes, "--no-report", "--json"]);
        let told: Value = serde_json::from_str(&told).unwrap();
        let cpu = &told["devices"][0];
        assert_eq!((&told["model"], &cpu["agrees"]), (&format!("demo:{model}").into(), &Value::Bool(true)), "{told:#}");
        let kernels = |plan: &str| cpu[plan]["kernels"].as_u64().unwrap();
        assert!(kernels("fused") < kernels("unfused"), "{told:#}");
        assert!(cpu["roofline"]["limit_gflops"].as_f64().unwrap() > 0.0 && told["report"].is_null(), "{told:#}");
    }
    assert!(!folder.path().join("report.html").exists());
}

#[test]
fn its_networks_are_models() {
    let fuseline = |arguments: &[&str]| Command::new(env!("CARGO_BIN_EXE_fuseline")).args(arguments).output().unwrap();
    let shown = fuseline(&["inspect", "demo:encoder"]);
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.status.success() && text.contains("f32[batch, tokens, 256]"), "{text}");
    let refused = fuseline(&["run", "demo:abacus"]);
    let message = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(2) && message.contains("encoder, resnet, llama, opt"), "{message}");
}

#[test]
fn what_is_too_large_is_refused_with_an_option_that_there_is() {
    let done = super::fuseline(&["demo", "--sizes", "tokens=99999999", "--no-report"]);
    let told = String::from_utf8(done.stderr).unwrap();
    assert!(!done.status.success() && told.contains("--sizes") && !told.contains("--max-memory"), "{told}");
}

#[test]
fn sizes_that_leave_nothing_to_show_are_refused() {
    for (sizes, why) in
        [("batch=0", "with batch=0 there is nothing to show"), ("tokens=1000G", "bytes"), ("width=3", "width")]
    {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fuseline"));
        let done = command.args(["demo", "--no-report", "--sizes", sizes]).output().unwrap();
        let message = String::from_utf8_lossy(&done.stderr);
        assert!(matches!(done.status.code(), Some(1 | 2)) && message.contains(why), "{sizes}: {message}");
    }
}

/// The data in the page of a demo.
fn page_data(folder: &Path) -> Value {
    let page = std::fs::read_to_string(folder.join("report.html")).unwrap();
    let (_, behind) = page.split_once(r#"<script type="application/json" id="data">"#).unwrap();
    serde_json::from_str(behind.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn terminal_and_page_tell_of_the_same_runs_and_plans() {
    let folder = tempfile::tempdir().unwrap();
    // Rewrites join operators of this one: a plan of the rewritten graph has fewer kernels than the model has operators.
    let told: Value =
        serde_json::from_str(&demo(folder.path(), &["--model", "resnet", "--sizes", "batch=1", "--json"])).unwrap();
    let page = page_data(folder.path());
    for side in ["fused", "unfused"] {
        let told = &told["devices"][0][side];
        assert_eq!(told["kernels"], page["predicted"][side]["kernels"], "{side}");
        let [bytes, us] = [&told["bytes"], &told["median_ms"]].map(|value| value.as_f64().unwrap());
        assert_eq!(bytes.round(), page["predicted"][side]["bytes"].as_f64().unwrap(), "{side}");
        let shown = page["measured"][side]["median_us"].as_f64().unwrap();
        assert!((shown - 1e3 * us).abs() < 1e-3, "{side}: {shown} and {us}");
        let expected = told["expected_ms"].as_f64().unwrap();
        let kernels = page["kernels"].as_array().unwrap().iter().filter_map(|kernel| kernel["expected_us"].as_f64());
        let shown = kernels.sum::<f64>() / 1e3;
        assert!(
            side == "unfused" || (shown / expected - 1.0).abs() < 1e-3,
            "{side}: {shown} and {expected} ms expected"
        );
    }
    let listed = page["unfused"]["kernels"].as_array().unwrap().len();
    assert_eq!(
        page["predicted"]["unfused"]["kernels"].as_u64(),
        Some(listed as u64),
        "what is counted is what was run"
    );
    let (told, drawn) = (&told["devices"][0]["roofline"]["machine"], &page["machine"]);
    assert_eq!((&told["source"], &drawn["source"]), (&"measured".into(), &"measured".into()), "{drawn:#}");
    let memory = drawn["memories"].as_array().unwrap().last().unwrap();
    assert_eq!((&told["gbps"], &told["gflops"]), (&memory[1], &drawn["peaks"][0][1]), "what is told is what is drawn");
}
