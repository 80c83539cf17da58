//! `fuseline explain` as users see it: plans, decisions, flips, locks, errors.

use serde_json::Value;

use super::{failure, fuseline, json, stdout, sum_of};

fn list<'v>(value: &'v Value, key: &str) -> &'v Vec<Value> {
    value[key].as_array().unwrap_or_else(|| panic!("no list {key}"))
}

const SUBLAYER: &str = "gallery:transformer_sublayer";

fn h200<'a>(model: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["explain", model, "--target", "h200"], more].concat()
}

#[test]
fn the_plan_is_a_table_and_the_decisions_follow() {
    let text = stdout(&h200(SUBLAYER, &[]));
    for wanted in [
        "gallery:transformer_sublayer on h200",
        "sizes assumed: tokens=128,features=512",
        "LayerNorm",
        "MatMul + Add + GELU + Add",
        "contract",
        "one kernel per node",
        "one per primitive",
        "Decisions, the largest effect first",
        "layernormalization → matmul",
        "between parts of one operator",
    ] {
        assert!(text.contains(wanted), "no {wanted:?} in\n{text}");
    }
    assert_eq!(text, stdout(&h200(SUBLAYER, &[])), "the same bytes twice");
    assert!(text.lines().all(|line| line.chars().count() <= 140), "{text}");
    let few = stdout(&h200(SUBLAYER, &["--top", "1"]));
    assert!(few.len() < text.len() && few.contains(" more, "), "{few}");
    let verbose = stdout(&h200(SUBLAYER, &["--verbose"]));
    assert!(verbose.contains("After compose-views") || verbose.contains("After "), "{verbose}");
    assert!(verbose.contains("layernormalization ("), "{verbose}");
}

/// Weights are scaled once: the nodes of a written plan are those of the graphs that are printed last.
#[test]
fn nodes_of_a_plan_are_those_of_the_graphs_printed_last() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("network.plan");
    let network = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/models/structure/mobilenetv3l.legacy.onnx");
    let text = stdout(&["explain", network, "--verbose", "--lock", plan.to_str().unwrap()]);
    let run = text.split("What every run computes").nth(1).expect("the graph is printed");
    let run = run.split("\n}").next().unwrap();
    assert!(text.contains("What is computed once"), "{text}");
    let plan = std::fs::read_to_string(&plan).unwrap();
    let part =
        plan.split("\ngraph ").find(|part| part.lines().next().is_some_and(|l| l.contains("every run"))).unwrap();
    let kernels = part.lines().skip(1).filter(|line| line.starts_with("contract "));
    assert!(kernels.clone().count() > 3, "{plan}");
    for kernel in kernels {
        let nodes = kernel.split('#').next().unwrap().split_whitespace().filter(|word| word.starts_with('%'));
        let contractions = nodes.filter(|node| run.contains(&format!("  {node} = contract(")));
        assert!(contractions.count() > 0, "{kernel}\n{run}");
    }
}

/// What programs read of a whole network can be sent and stored.
#[test]
fn a_network_as_json_stays_below_five_megabytes() {
    let folder = format!("{}/../../tests/models/structure", env!("CARGO_MANIFEST_DIR"));
    for name in ["bert_base.dynamo", "bert_base.legacy_dyn"] {
        for target in ["cpu", "h200"] {
            let text = stdout(&["explain", &format!("{folder}/{name}.onnx"), "--target", target, "--json"]);
            assert!(text.len() <= 5_000_000, "{name} on {target}: {} bytes", text.len());
        }
    }
}

#[test]
fn programs_can_read_it() {
    let plan = json(&h200(SUBLAYER, &["--json"]));
    for kernel in list(&plan, "kernels") {
        for key in ["name", "kind", "pattern"] {
            assert!(kernel[key].is_string(), "{key}: {kernel}");
        }
        assert!(!list(kernel, "nodes").is_empty() && kernel["nodes"][0].is_string(), "{kernel}");
        for key in ["bytes", "flops", "predicted_us"] {
            assert!(kernel[key].as_f64().unwrap() > 0.0, "{key}: {kernel}");
        }
    }
    for decision in list(&plan, "decisions") {
        for key in ["id", "rule", "producer", "consumer", "verdict", "reason"] {
            assert!(decision[key].as_str().is_some_and(|text| !text.is_empty()), "{key}: {decision}");
        }
        assert!(decision["saved_us"].is_number() && decision["score"].is_number(), "{decision}");
        assert!(["taken", "refused"].contains(&decision["verdict"].as_str().unwrap()));
    }
    let ids: Vec<&str> = list(&plan, "decisions").iter().map(|d| d["id"].as_str().unwrap()).collect();
    let mut pairs: Vec<String> = Vec::new();
    for edge in list(&plan, "edges") {
        assert_eq!(ids.iter().filter(|id| **id == edge[2].as_str().unwrap()).count(), 1, "{edge}");
        pairs.push(format!("{} {}", edge[0], edge[1]));
    }
    let count = pairs.len();
    pairs.sort();
    pairs.dedup();
    assert_eq!(pairs.len(), count, "an edge twice");
    let sum: f64 = list(&plan, "kernels").iter().map(|k| k["predicted_us"].as_f64().unwrap()).sum();
    assert!((plan["totals"]["predicted_us"].as_f64().unwrap() - sum).abs() < 1e-2);
    assert_eq!(plan["assumed_sizes"]["tokens"], 128);
    let given = json(&h200(SUBLAYER, &["--json", "--sizes", "tokens=256"]));
    assert_eq!((&given["sizes"]["tokens"], &given["assumed_sizes"]["features"]), (&256.into(), &512.into()));
}

#[test]
fn a_layer_norm_with_a_gelu_scores_as_the_texts_say() {
    let plan = json(&h200("gallery:layernorm_gelu", &["--json"]));
    let kernel = &list(&plan, "kernels")[0];
    assert_eq!(kernel["pattern"], "LayerNorm + GELU");
    assert!(kernel["textbook"].as_str().unwrap().starts_with("FUSE 0."), "{kernel}");
}

#[test]
fn plans_are_compared_with_what_they_are_measured_against() {
    // Rewrites join operators of this one: of the rewritten graph even the plan without fusion has fewer kernels.
    let model = ["demo:resnet", "--sizes", "batch=1", "--json"];
    let told = json(&[&["explain"], &model[..], &["--target", "here"]].concat());
    let measured = json(&[&["bench"], &model[..], &["--iters", "1", "--warmup", "1"]].concat());
    for plan in ["per_node", "per_primitive"] {
        let (told, measured) = (&told["totals"][plan], &measured[plan]);
        assert_eq!(told["kernels"], measured["kernels"], "{plan}");
        let [one, other] = [&told["bytes"], &measured["bytes"]].map(|bytes| bytes.as_f64().unwrap());
        assert_eq!(one, other.round(), "{plan}");
    }
}

#[test]
fn nothing_or_little_is_combined_on_demand() {
    let fused = json(&h200(SUBLAYER, &["--json"]));
    let apart = json(&h200(SUBLAYER, &["--json", "--no-fuse"]));
    let kernels = |plan: &Value| list(plan, "kernels").len();
    assert_eq!(apart["totals"]["kernels"], apart["totals"]["per_primitive"]["kernels"]);
    assert!(list(&apart, "decisions").iter().all(|d| d["verdict"] == "refused"));
    let decision = list(&fused, "decisions").iter().find(|d| d["verdict"] == "taken" && d["rule"] == "map").unwrap();
    let id = decision["id"].as_str().unwrap();
    let one = json(&h200(SUBLAYER, &["--json", "--only-fuse", id]));
    assert_eq!(kernels(&one), kernels(&apart) - 1);
    let taken: Vec<&Value> = list(&one, "decisions").iter().filter(|d| d["verdict"] == "taken").collect();
    assert!(taken.len() == 1 && taken[0]["id"] == id, "{taken:?}");
    assert_eq!(kernels(&json(&h200(SUBLAYER, &["--json", "--fuel", "1"]))), kernels(&apart) - 1);
    // What a decision rests on comes along.
    let attention = "gallery:attention";
    let fused = json(&h200(attention, &["--json"]));
    let joint = list(&fused, "decisions").iter().find(|d| d["rule"] == "attention" && d["verdict"] == "taken").unwrap();
    let alone = json(&h200(attention, &["--json", "--only-fuse", joint["id"].as_str().unwrap()]));
    assert!(list(&alone, "kernels").iter().any(|kernel| kernel["kind"] == "attention"), "{alone}");
    // Rewrites have no score.
    let fusions = list(&alone, "decisions").iter().filter(|d| d["verdict"] == "taken" && !d["textbook"].is_null());
    assert_eq!(fusions.count(), 1, "no other fusion is needed: {alone}");
    let textbook = json(&h200(SUBLAYER, &["--json", "--policy", "textbook"]));
    assert!(kernels(&textbook) >= kernels(&fused));
}

#[test]
fn one_decision_can_be_turned_round() {
    let plan = json(&h200(SUBLAYER, &["--json"]));
    let find = |verdict: &str, rule: &str| {
        let found = list(&plan, "decisions").iter().find(|d| d["verdict"] == verdict && d["rule"] == rule);
        found.unwrap_or_else(|| panic!("no {rule} that was {verdict}"))["id"].as_str().unwrap().to_string()
    };
    let taken = find("taken", "contract-epilogue");
    let text = stdout(&h200(SUBLAYER, &["--flip", &taken]));
    for wanted in ["slower by", "as planned", "not done", "Kernels that go", "Kernels that come"] {
        assert!(text.contains(wanted), "no {wanted:?} in\n{text}");
    }
    let flipped = json(&h200(SUBLAYER, &["--flip", &taken, "--json"]));
    let us = |side: &str| flipped["flip"][side]["predicted_us"].as_f64().unwrap();
    assert!(us("after") > us("before") && flipped["flip"]["illegal"].is_null());

    let mut near = taken.clone();
    near.replace_range(11.., if near.ends_with('0') { "1" } else { "0" });
    let (status, message) = failure(&h200(SUBLAYER, &["--flip", &near]));
    assert!(status == 2 && message.contains(&taken) && message.contains("the nearest are"), "{message}");
}

#[test]
fn what_cannot_be_done_stays_so() {
    let models = json(&["gallery", "--json"]);
    let found = models.as_array().unwrap().iter().find_map(|entry| {
        let model = format!("gallery:{}", entry["name"].as_str().unwrap());
        let plan = json(&h200(&model, &["--json"]));
        let illegal = list(&plan, "decisions").iter().find(|d| d["illegal"] == true).cloned();
        illegal.map(|decision| (model, decision))
    });
    let (model, decision) = found.expect("some graph of the gallery has two kernels that cannot be one");
    let id = decision["id"].as_str().unwrap();
    let text = stdout(&h200(&model, &["--flip", id]));
    assert!(text.contains(&format!("illegal: {}", decision["reason"].as_str().unwrap())), "{text}");
    let flipped = json(&h200(&model, &["--flip", id, "--json"]));
    assert!(flipped["flip"]["illegal"] == decision["reason"] && flipped["flip"]["after"].is_null(), "{flipped}");
}

#[test]
fn a_plan_can_be_written_compared_and_obeyed() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).display().to_string();
    let (one, two, edited) = (place("one.plan"), place("two.plan"), place("edited.plan"));
    let first = json(&h200(SUBLAYER, &["--json", "--lock", &one]));
    let text = std::fs::read_to_string(&one).unwrap();
    assert!(text.starts_with("fuseline plan 1\ntarget h200 "), "{text}");
    assert!(text.contains("numerics default") && text.contains("# every run"), "{text}");
    // The device and the numerics are those of the plan.
    let again = json(&["explain", SUBLAYER, "--plan", &one, "--json", "--lock", &two]);
    assert_eq!(again["kernels"], first["kernels"]);
    assert_eq!(again["target"], first["target"]);
    assert_eq!(std::fs::read_to_string(&two).unwrap(), text);
    stdout(&h200(SUBLAYER, &["--lock", &two]));
    assert_eq!(std::fs::read_to_string(&two).unwrap(), text, "the same bytes twice");

    // Another device may obey it too, as long as it has such kernels.
    let done = fuseline(&["explain", SUBLAYER, "--plan", &one, "--target", "a100"]);
    assert!(done.status.success() && String::from_utf8_lossy(&done.stderr).contains("the plan was made for h200"));

    let refuse = |from: &str, to: &str| {
        std::fs::write(&edited, text.replacen(from, to, 1)).unwrap();
        let (status, message) = failure(&["explain", SUBLAYER, "--plan", &edited]);
        assert!(status == 2 && message.contains("edited.plan"), "{message}");
        message
    };
    assert!(refuse("numerics default", "numerics loose").contains("line 3"));
    assert!(refuse("\ncontract ", "\nring ").contains("line 6 of the plan: \"ring\" is no kind of kernels"));
    assert!(refuse("target h200", "target nothing").contains("is not known"));
    let fingerprint = text.lines().nth(1).and_then(|line| line.split(' ').next_back()).unwrap();
    assert!(refuse(fingerprint, "0000000000000000").contains("described otherwise"));
    assert!(refuse("fuseline plan 1", "fuseline plan 2").contains("--lock FILE` writes a plan that fits"));
    assert!(refuse("\ncontract %", "\ncontract %9999 %").contains("line 6 of the plan: the kernel lists %9999"));
    let (status, message) = failure(&["explain", "gallery:softmax", "--plan", &one]);
    assert!(status == 2 && message.contains("another graph"), "{message}");
    let (status, message) = failure(&["explain", SUBLAYER, "--plan", &one, "--numerics", "strict"]);
    assert!(status == 2 && message.contains("made with numerics default"), "{message}");
}

#[test]
fn wrong_requests_are_told_apart() {
    for arguments in [
        &["explain"][..],
        &["explain", SUBLAYER, "--target", "abacus"],
        &["explain", SUBLAYER, "--target", "missing.spec"],
        &["explain", SUBLAYER, "--flip", "12"],
        &["explain", SUBLAYER, "--flip", "0123456789ab"],
        &["explain", SUBLAYER, "--only-fuse", "0123456789ab"],
        &["explain", SUBLAYER, "--no-fuse", "--flip", "0123456789ab"],
        &["explain", SUBLAYER, "--plan", "x.plan", "--policy", "textbook"],
        &["explain", SUBLAYER, "--plan", "missing.plan"],
        &["explain", SUBLAYER, "--lock", "/nowhere/x.plan"],
        &["explain", SUBLAYER, "--numerics", "loose"],
        &["explain", SUBLAYER, "--json", "--verbose"],
        &["explain", SUBLAYER, "--sizes", "m=3"],
    ] {
        let (status, message) = failure(arguments);
        assert!(status == 2 && message.contains("error:"), "{arguments:?}: {status} {message}");
    }
    assert!(stdout(&["explain", "--help"]).contains("fuseline explain model.onnx"));
}

#[test]
fn a_device_may_come_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.spec").display().to_string();
    let spec = fuseline::device::DeviceSpec::find("h200").unwrap().to_string();
    std::fs::write(&path, spec.replacen("name = h200", "name = mine", 1)).unwrap();
    let plan = json(&["explain", SUBLAYER, "--target", &path, "--json"]);
    assert_eq!(plan["target"]["name"], "mine");
    assert_eq!(plan["kernels"], json(&h200(SUBLAYER, &["--json"]))["kernels"]);
}

#[test]
fn this_processor_is_a_device_whose_plans_are_locked_under_its_name() {
    let here = fuseline_cpu::here::spec();
    let plan = json(&["explain", SUBLAYER, "--target", "here", "--json"]);
    assert_eq!(plan["target"]["name"], here.name.as_str());
    assert_eq!(plan["target"]["fingerprint"], format!("{:016x}", here.fingerprint()));
    let folder = tempfile::tempdir().unwrap();
    let lock = folder.path().join("here.plan").display().to_string();
    stdout(&["explain", SUBLAYER, "--target", "here", "--lock", &lock]);
    assert_eq!(json(&["explain", SUBLAYER, "--plan", &lock, "--json"])["kernels"], plan["kernels"]);
}

/// No search looks at every plan; but where a flip finds a better one, it says why the plan is another.
#[test]
fn a_flip_that_gains_says_why_it_was_not_done() {
    let mut faster = 0;
    // Of few rows, a norm is better made by the product that reads it.
    for more in [["--sizes", "tokens=16", "--fuel", "4"], ["--sizes", "tokens=16", "--policy", "textbook"]] {
        let arguments = |last: &[&'static str]| -> Vec<String> {
            h200(SUBLAYER, &more).into_iter().chain(last.iter().copied()).map(str::to_string).collect()
        };
        let run = |arguments: Vec<String>| json(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        for decision in list(&run(arguments(&["--json"])), "decisions") {
            let mut flip = arguments(&["--json", "--flip"]);
            flip.push(decision["id"].as_str().unwrap().to_string());
            let flip = &run(flip)["flip"];
            let us = |side: &str| flip[side]["predicted_us"].as_f64();
            match flip["effect"].as_str().unwrap() {
                "illegal" => assert!(flip["illegal"].is_string() && flip["after"].is_null(), "{flip}"),
                "faster" => {
                    assert!(us("after") < us("before") && flip["why"].is_string(), "{flip}");
                    faster += 1;
                }
                "slower" => assert!(us("after") > us("before"), "{flip}"),
                other => assert_eq!(other, "equal"),
            }
        }
    }
    assert!(faster > 0, "the textbook refuses what gains");
}

/// Of a small graph every decision was tried the other way, the closest ones first: what is faster moves more bytes, for little.
#[test]
fn of_little_no_decision_is_better_the_other_way() {
    for (model, target, sizes) in [
        ("gallery:moe_int8", "a100", "tokens=32"),
        ("gallery:layernorm_gelu_backward", "h200", "rows=64"),
        ("gallery:layernorm_gelu_backward", "a100", "rows=64"),
        ("gallery:softmax_backward", "h200", "rows=64"),
    ] {
        let explain =
            |more: &[&str]| json(&[&["explain", model, "--target", target, "--sizes", sizes, "--json"], more].concat());
        let story = explain(&[]);
        let mut closest: Vec<&Value> = list(&story, "decisions").iter().collect();
        let close = |decision: &Value| decision["saved_us"].as_f64().unwrap().abs();
        closest.sort_by(|a, b| close(a).total_cmp(&close(b)));
        for decision in closest.into_iter().filter(|decision| close(decision) > 0.0).take(12) {
            let flip = &explain(&["--flip", decision["id"].as_str().unwrap()])["flip"];
            let is_believed = flip["effect"] == "faster" && !flip["why"].as_str().unwrap().contains("more bytes");
            assert!(!is_believed, "{model} on {target}: {decision}: {flip}");
        }
    }
}

/// What is turned round is slower, or words say why it is not; no other rule does what was kept apart.
#[test]
fn what_a_flip_keeps_apart_no_other_way_brings_together() {
    let mut equal = 0;
    for model in ["attention", "masked_attention", "causal_attention", "qkv", "feed_forward"] {
        let model = format!("gallery:{model}");
        for target in ["cpu", "h200"] {
            let explain = |more: &[&str]| json(&[&["explain", &model, "--target", target, "--json"], more].concat());
            for decision in list(&explain(&[]), "decisions") {
                let flip = &explain(&["--flip", decision["id"].as_str().unwrap()])["flip"];
                let what = format!("{model} on {target}: {decision}: {}", flip["effect"]);
                match flip["effect"].as_str().unwrap() {
                    "slower" => {}
                    "illegal" => assert_eq!(decision["verdict"], "refused", "{what}"),
                    _ => {
                        assert!(flip["why"].as_str().is_some_and(|why| !why.is_empty()), "{what}");
                        equal += 1;
                    }
                }
                if decision["rule"] == "attention" && decision["verdict"] == "taken" {
                    assert_eq!(flip["effect"], "slower", "{what}");
                    let kernels = list(&flip["after"], "kernels_list");
                    assert!(kernels.iter().all(|kernel| kernel["kind"] != "attention"), "{what}");
                }
            }
        }
    }
    assert!(equal > 0, "of two neighbours, either may take what lies between");
}

#[test]
fn what_keeps_two_kernels_apart_is_listed() {
    let text = stdout(&h200("gallery:feed_forward", &[]));
    assert!(text.contains("a contraction would be computed again for every tile of another"), "{text}");
}

#[test]
fn what_is_expected_is_for_as_many_threads() {
    let folder = tempfile::tempdir().unwrap();
    // At rates that a file gives: those that are measured hang on what else runs here.
    let spec = folder.path().join("mine.spec");
    let cpu = include_str!("../../../core/specs/cpu.spec");
    std::fs::write(&spec, cpu.replace("name = cpu", "name = mine")).unwrap();
    let target = spec.to_str().unwrap();
    let expected = |threads: &str| {
        let arguments = ["explain", "gallery:linear_bias_gelu", "--sizes", "m=256,k=256,n=256", "--target", target];
        let analyze = ["--analyze", "--iters", "1", "--threads", threads, "--json"];
        let told = json(&[&arguments[..], &analyze].concat());
        let kernels = told["measured"]["kernels"].as_array().unwrap();
        kernels.iter().map(|kernel| kernel["expected_us"].as_f64().unwrap()).sum::<f64>()
    };
    // Two threads share the arithmetic, and have to meet.
    assert!(expected("1") > 1.2 * expected("2"), "{} {}", expected("1"), expected("2"));
}

/// Where one of two sizes is 1 it is repeated, which is another graph than that of sizes that are equal.
#[test]
fn a_plan_that_was_written_is_that_of_a_run_of_these_sizes() {
    let folder = tempfile::tempdir().unwrap();
    let model = sum_of(folder.path(), "sum.onnx", ["b", "c"]);
    let plan = folder.path().join("s.plan").display().to_string();
    for sizes in ["b=4,c=1", "b=1,c=4", "b=4,c=4"] {
        stdout(&["explain", &model, "--sizes", sizes, "--lock", &plan]);
        for command in [&["run"][..], &["verify"], &["bench", "--iters", "1"], &["explain"]] {
            stdout(&[command, &[&model, "--sizes", sizes, "--plan", &plan]].concat());
        }
    }
    // And another one is refused.
    let (status, message) = failure(&["run", &model, "--sizes", "b=4,c=1", "--plan", &plan]);
    assert!(status == 2 && message.contains("made for another graph"), "{message}");
}
