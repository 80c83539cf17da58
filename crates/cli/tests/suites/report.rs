//! `fuseline report` as users see it: the page, its data, and what happens when it cannot be written.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{fuseline, stdout};

/// The page of a model.
fn page(folder: &Path, arguments: &[&str]) -> (PathBuf, String) {
    let path = folder.join("page.html");
    stdout(&[&["report"], arguments, &["-q", "-o", path.to_str().unwrap()]].concat());
    let text = std::fs::read_to_string(&path).unwrap();
    (path, text)
}

/// The data in a page.
fn data(page: &str) -> Value {
    let (_, behind) = page.split_once(r#"<script type="application/json" id="data">"#).unwrap();
    serde_json::from_str(behind.split_once("</script>").unwrap().0).unwrap()
}

fn list<'v>(value: &'v Value, name: &str) -> &'v Vec<Value> {
    value[name].as_array().unwrap_or_else(|| panic!("{name}: {value:#}"))
}

const SMALL: [&str; 5] = ["gallery:transformer_sublayer", "--sizes", "tokens=8,features=32", "--iters", "2"];

#[test]
fn a_page_needs_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let (_, page) = page(folder.path(), &SMALL);
    let addresses = page.matches("http").count();
    let namespaces = page.matches("http://www.w3.org/2000/svg").count() + page.matches("http-equiv").count();
    assert_eq!(addresses, namespaces, "a page loads nothing");
    assert!(!page.contains("src=") && !page.contains("@import") && !page.contains("url("), "a page loads nothing");
    assert!(page.contains("default-src 'none'"));
    assert!(page.len() < 400_000, "{}", page.len());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside the page");
}

#[test]
fn every_kernel_and_every_decision_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let (_, page) = page(folder.path(), &SMALL);
    let shown = data(&page);
    let explained: Value =
        serde_json::from_str(&stdout(&["explain", SMALL[0], "--sizes", SMALL[2], "--json"])).unwrap();
    let names = |value: &Value, list_name: &str, field: &str| -> Vec<String> {
        list(value, list_name).iter().map(|item| item[field].as_str().unwrap().to_string()).collect()
    };
    assert_eq!(names(&shown, "kernels", "name"), names(&explained, "kernels", "name"));
    let ids = |value: &Value| names(value, "decisions", "id").into_iter().collect::<BTreeSet<_>>();
    assert_eq!(ids(&shown), ids(&explained));
    for (number, kernel) in list(&shown, "kernels").iter().enumerate() {
        assert!(page.contains(&format!("data-kernel=\"{number}\"")), "a kernel is on the roofline: {kernel}");
        assert!(kernel["measured_us"].as_f64().unwrap() > 0.0, "{kernel}");
        let source = &shown["sources"]["list"][kernel["class"].as_u64().unwrap() as usize];
        assert!(source["tile"].as_str().unwrap().contains("schedule"), "{source}");
        assert!(source["code"].as_str().unwrap().contains("tasks"), "{source}");
        let home = |box_: &Value| box_[0] == "kernel" && box_[1].as_u64() == Some(number as u64);
        assert!(list(&shown["graph"]["after"], "boxes").iter().any(home), "a kernel is in the graph");
    }
    let operators = list(&shown, "operators").len();
    let boxes = list(&shown["graph"]["before"], "boxes").iter().filter(|b| b[0] == "operator").count();
    assert_eq!((boxes, operators), (5, 5));
    let placed = list(&shown, "decisions").iter().filter(|d| d["kernels"][0].is_u64()).count();
    assert!(placed > 0, "decisions have a place in the graph");
}

#[test]
fn runs_are_measured_and_memory_is_planned() {
    let shown: Value = serde_json::from_str(&stdout(&[&["report"], &SMALL[..], &["--json"]].concat())).unwrap();
    assert!(shown.get("load").is_some(), "what else was on the machine is told");
    for side in ["fused", "unfused"] {
        let measured = &shown["measured"][side];
        assert_eq!(measured["runs"], 2);
        assert!(measured["median_us"].as_f64().unwrap() > 0.0);
        assert!(measured["median_error"].as_f64().unwrap() >= 0.0, "as explain --analyze tells it: {measured}");
        let spans = list(measured, "spans");
        let begins: Vec<f64> = spans.iter().map(|span| span[1].as_f64().unwrap()).collect();
        assert!(!spans.is_empty() && begins.is_sorted(), "{measured}");
    }
    let kernels = list(&shown, "kernels").len();
    assert_eq!(list(&shown["memory"], "live").len(), kernels);
    assert!(list(&shown["unfused"], "kernels").len() > kernels);
    assert!(shown["unfused"]["memory"]["arena"].as_u64() >= shown["memory"]["arena"].as_u64());
    assert_eq!(shown["machine"]["source"], "measured", "the limits are those of this machine: {:#}", shown["machine"]);
    let output = 8 * 32 * 4;
    assert_eq!(shown["memory"]["outputs"], output);
}

#[test]
fn names_that_look_like_markup_do_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>";
    let graph = stdout(&["inspect", "gallery:layernorm_gelu", "--graph"]);
    let path = folder.path().join("evil.ir");
    std::fs::write(&path, graph.replace("\"gelu\"", &format!("\"{evil}\""))).unwrap();
    let (_, page) = page(folder.path(), &[path.to_str().unwrap(), "--sizes", "rows=2,columns=8", "--iters", "1"]);
    assert!(!page.contains("<img") && !page.contains("<script>alert"), "a name is never markup");
    let named = |operator: &Value| operator["name"] == evil;
    assert!(list(&data(&page), "operators").iter().any(named), "and is shown as it is");
}

#[test]
fn a_plan_for_a_gpu_is_shown_without_running() {
    let folder = tempfile::tempdir().unwrap();
    let (_, page) = page(folder.path(), &["gallery:layernorm_gelu", "--target", "h200"]);
    let shown = data(&page);
    assert!(shown["measured"].is_null(), "{:#}", shown["measured"]);
    assert_eq!(shown["sources"]["form"], "cuda");
    assert!(shown["sources"]["list"][0]["code"].as_str().unwrap().contains("__global__"));
    let plain: Value = serde_json::from_str(&stdout(&["report", "gallery:softmax", "--no-run", "--json"])).unwrap();
    assert_eq!(plain["machine"]["source"], "built in", "{:#}", plain["machine"]);
    assert!(plain["measured"].is_null() && plain["kernels"][0]["us"].as_f64().unwrap() > 0.0);
}

#[test]
fn layers_that_repeat_are_drawn_once_and_large_pages_stay_small() {
    let folder = tempfile::tempdir().unwrap();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/models/structure/bert_base.legacy.onnx");
    let (_, page) = page(folder.path(), &[model.to_str().unwrap(), "--no-run"]);
    assert!(page.len() < 2_000_000, "{}", page.len());
    let shown = data(&page);
    let fold = &shown["graph"]["folds"][0];
    assert!(fold["count"].as_u64().unwrap() >= 10, "{fold}");
    let boxes = |name: &str| list(&shown["graph"][name], "boxes").len();
    assert!(3 * boxes("after_folded") < boxes("after"), "{} {}", boxes("after_folded"), boxes("after"));
    assert!(3 * boxes("before_folded") < boxes("before"), "{} {}", boxes("before_folded"), boxes("before"));
    let different = list(&shown["sources"], "list").len();
    assert!(different < list(&shown, "kernels").len() / 3, "equal kernels have their source once");
}

#[test]
fn pages_that_cannot_be_written_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    // A disk may be free again the next time; a name that takes no file stays wrong.
    let failure = |output: &Path, status: i32| {
        let done = fuseline(&["report", "gallery:softmax", "--no-run", "-o", output.to_str().unwrap()]);
        assert_eq!(done.status.code(), Some(status), "{done:?}");
        String::from_utf8(done.stderr).unwrap()
    };
    let missing = failure(&folder.path().join("no/page.html"), 2);
    assert!(missing.contains("cannot be written") && missing.contains("make the folder first"), "{missing}");
    assert!(failure(folder.path(), 2).contains("give the name of a file"));
    if Path::new("/dev/full").exists() {
        let full = failure(Path::new("/dev/full"), 1);
        assert!(full.contains("free some space"), "{full}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
