//! Plans in the user's language: what kernels are called, whatever the spelling, and that every edge has its decision.

use std::collections::BTreeSet;
use std::path::Path;

use fuseline::compile::{PlannedProgram, plan_program, plan_simplified, simplified};
use fuseline::device::DeviceSpec;
use fuseline::explain::{DecisionRow, Explanation};
use fuseline::fuse::{PlanOptions, Policy, Verdict, edges, node_names};
use fuseline::gallery::Network;
use fuseline::graph::{Builder, Graph, Tensor};
use fuseline::ops::Prim;
use fuseline::ops::prim::Monoid;
use fuseline::passes::Precision;
use fuseline::tensor::{DType, Literal, Shape, Symbol};
use fuseline_frontend::Model;
use fuseline_tests::spellings::{Spelling, all, classes};

fn explained(graph: &Graph, target: &str, sizes: &[(&str, i64)]) -> (PlannedProgram, Explanation) {
    let mut options = PlanOptions::on(DeviceSpec::find(target).unwrap());
    for (name, size) in sizes {
        options.hints.env.bind(Symbol::name(name), *size);
    }
    let planned = plan_program(graph.clone(), &options, &mut |_| {}).unwrap_or_else(|e| panic!("{e}"));
    let explanation = Explanation::of(&planned, &options).unwrap_or_else(|e| panic!("{e}"));
    (planned, explanation)
}

fn patterns(graph: &Graph, sizes: &[(&str, i64)]) -> Vec<String> {
    explained(graph, "cpu", sizes).1.run.kernels.into_iter().map(|k| k.pattern).collect()
}

#[test]
fn every_spelling_has_the_name_of_what_it_is() {
    let names = [
        ("layer_norm", "LayerNorm"),
        ("rms_norm", "RMSNorm"),
        ("gelu_erf", "GELU"),
        ("gelu_tanh", "GELU (tanh)"),
        ("silu", "SiLU"),
        ("softmax", "Softmax"),
        ("skip_layer_norm", "LayerNorm"),
        ("attention", "Attention"),
    ];
    let mut wrong = Vec::new();
    for (family, name) in names {
        for row in all().filter(|row| row.family == family) {
            let Spelling { class, name: spelling, .. } = row;
            let found = patterns(&row.graph().unwrap(), &[]);
            // What some call a steeper SiLU is the cheap form of a GELU.
            let name = if *class == "f32, steeper" { "GELU (sigmoid)" } else { name };
            if !found.iter().any(|pattern| pattern.contains(name)) {
                wrong.push(format!("{family} / {class} / {spelling}: {found:?}"));
            }
        }
    }
    // The square of a norm is below the root, too.
    for row in all().filter(|row| (row.family, row.class) == ("layer_norm", "f32")) {
        let found = patterns(&row.graph().unwrap(), &[]);
        if found.iter().any(|pattern| pattern.contains("outside")) {
            wrong.push(format!("{}: {found:?}", row.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Equal kernels have equal names, whoever wrote them. (What has no name of its own is called by its arithmetic.)
#[test]
fn siblings_are_called_the_same() {
    let mut wrong = Vec::new();
    let has_name = |row: &Spelling| !["quantized weights", "layer_norm_backward"].contains(&row.family);
    for class in classes().into_iter().filter(|class| has_name(class[0])) {
        let first = patterns(&class[0].graph().unwrap(), &[]);
        for row in &class[1..] {
            let found = patterns(&row.graph().unwrap(), &[]);
            if found != first {
                let Spelling { family, class: of, name, .. } = row;
                wrong.push(format!("{family} / {of} / {name}: {found:?}, not {first:?} as {}", class[0].name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What layers share is no part of another one's operators.
#[test]
fn rotations_are_counted_as_they_are_written() {
    let graph = Network::find("llama").unwrap().graph().unwrap();
    let sizes = [("batch", 1), ("tokens", 128)];
    let found = patterns(&graph, &sizes);
    assert_eq!(found.iter().filter(|pattern| *pattern == "2 × RoPE + Attention").count(), 4, "{found:?}");
    // Where rotations are behind the products, these come first.
    let mut options = PlanOptions { precision: Precision::Bf16, ..PlanOptions::on(DeviceSpec::find("a100").unwrap()) };
    for (name, size) in sizes {
        options.hints.env.bind(Symbol::name(name), size);
    }
    let planned = plan_program(graph, &options, &mut |_| {}).unwrap();
    let explanation = Explanation::of(&planned, &options).unwrap();
    let found: Vec<String> = explanation.run.kernels.into_iter().map(|kernel| kernel.pattern).collect();
    assert_eq!(found.iter().filter(|pattern| *pattern == "3 × MatMul + 2 × RoPE").count(), 4, "{found:?}");
}

type Row = fn(Tensor<'_>) -> Tensor<'_>;

fn centred(x: Tensor<'_>, part: f64) -> Tensor<'_> {
    x - x.mean(&[1]) * part
}

fn by_root(x: Tensor<'_>, eps: f64) -> Tensor<'_> {
    x / ((x * x).mean(&[1]) + eps).sqrt()
}

fn exponentials(x: Tensor<'_>) -> Tensor<'_> {
    (x - x.reduce_keep(Monoid::Max, &[1])).exp()
}

fn gelu(x: Tensor<'_>, c: f64, k: f64) -> Tensor<'_> {
    x * 0.5 * (((x + x * x * x * k) * c).tanh() + 1.0)
}

/// A name follows from all of an expression, its constants included.
#[test]
fn names_follow_from_constants() {
    // What it is, and what it must not be called.
    let rows: &[(Row, &str, &str)] = &[
        (|x| by_root(centred(x, 1.0), 1e-5), "LayerNorm", "RMSNorm"),
        (|x| by_root(centred(x, 0.9), 1e-5), "RMSNorm", "LayerNorm"),
        (|x| by_root(centred(x, -2.0), 1e-5), "RMSNorm", "LayerNorm"),
        (|x| centred(x, 1.0) / ((x * x).mean(&[1]) + 1e-5).sqrt(), "sum", "Norm"),
        (|x| by_root(x, 1e-3), "RMSNorm", "L2Norm"),
        (|x| by_root(x, 3.0), "sum", "Norm"),
        (|x| by_root(x, -0.1), "sum", "Norm"),
        (|x| x / ((x * x).sum(&[1]) + 1e-5).sqrt(), "L2Norm", "RMSNorm"),
        (|x| x * 16.0 / ((x * x).sum(&[1]) + 1e-5).sqrt(), "RMSNorm", "L2Norm"),
        (
            |x| centred(x, 1.0) * (((centred(x, 1.0) * centred(x, 1.0)).mean(&[1]) + 1e-5).log() * -0.5).exp(),
            "LayerNorm",
            "RMSNorm",
        ),
        (|x| exponentials(x) / exponentials(x).sum(&[1]), "Softmax", "("),
        (|x| exponentials(x) / (exponentials(x).sum(&[1]) + 5.0), "Softmax (more in its sum)", "+"),
        (
            |x| exponentials(x) / (exponentials(x).sum(&[1]) + (-x.reduce_keep(Monoid::Max, &[1])).exp()),
            "Softmax1",
            "(",
        ),
        (|x| exponentials(x) / exponentials(x).mean(&[1]), "exp", "Softmax"),
        (|x| gelu(x, 0.79788, 0.044715), "GELU (tanh)", "+"),
        (|x| gelu(x, 0.8, 0.0447), "tanh", "GELU"),
        (|x| gelu(x, 0.8, 0.05), "tanh", "GELU"),
        (|x| x.max(0.0), "ReLU", "max"),
        (|x| x.max(1e-9), "max", "ReLU"),
    ];
    for (k, (row, name, other)) in rows.iter().enumerate() {
        let b = Builder::new("row");
        b.output("y", row(b.input("x", DType::F32, Shape::new([64usize, 256]))));
        let found = patterns(&b.finish().unwrap(), &[]).join(" ;; ");
        assert!(found.contains(name) && !found.contains(other), "{k}: {found}, not {name}");
    }
}

/// A LayerNorm that is two kernels is no RMSNorm in the second of them.
#[test]
fn the_second_part_of_a_norm_is_called_so() {
    let b = Builder::new("halves");
    let x = b.input("x", DType::F32, Shape::new([64usize, 256]));
    b.output("y", by_root(centred(x, 1.0), 1e-5));
    let graph = b.finish().unwrap();
    let mut options = PlanOptions::on(DeviceSpec::find("cpu").unwrap());
    let first = plan_program(graph.clone(), &options, &mut |_| {}).unwrap();
    let (names, nodes) = (node_names(first.program.run()), first.program.run().nodes());
    let is_fold = |id: &usize| matches!(nodes[*id].prim(), Prim::Reduce(_));
    let sums: Vec<usize> = (0..nodes.len()).filter(is_fold).collect();
    options.pins.divided.insert([names[sums[0]], names[sums[1]]]);
    let planned = plan_program(graph, &options, &mut |_| {}).unwrap();
    let told = Explanation::of(&planned, &options).unwrap().run.kernels;
    let told: Vec<&str> = told.iter().map(|kernel| kernel.pattern.as_str()).collect();
    assert!(told.iter().any(|name| name.contains("LayerNorm (second part)")), "{told:?}");
}

/// What scales a norm may hold the root of its length.
#[test]
fn a_norm_by_the_root_of_a_sum_is_told_with_its_parameters() {
    let of = |scaled: bool| {
        let b = Builder::new("by sum");
        let d = centred(b.input("x", DType::F32, Shape::new([64usize, 256])), 1.0);
        let y = d / ((d * d).sum(&[1]) + 1e-3).sqrt();
        let scale = b.input("scale", DType::F32, Shape::new([1usize, 256]));
        b.output("y", if scaled { y * scale } else { y });
        b.output("scale", scale + 1.0);
        patterns(&b.finish().unwrap(), &[]).join(" ;; ")
    };
    assert!(of(true).contains("LayerNorm"), "{}", of(true));
    assert!(!of(false).contains("LayerNorm") && of(false).contains("L2Norm"), "{}", of(false));
}

/// Products with a bias gate each other like those without.
#[test]
fn gates_with_biases_have_their_name() {
    let b = Builder::new("gated");
    let x = b.input("x", DType::F32, Shape::new([64usize, 128]));
    let product = |name: &str| {
        let (w, c) = (b.input(name, DType::F32, Shape::new([128usize, 256])), format!("{name} bias"));
        x.matmul(w) + b.input(&c, DType::F32, Shape::new([1usize, 256]))
    };
    let (gate, up) = (product("gate"), product("up"));
    b.output("y", gate * gate.sigmoid() * up);
    assert_eq!(patterns(&b.finish().unwrap(), &[]), ["SwiGLU"]);
}

/// A query that sees what comes after it is not causal, unless there are as many keys before the first query.
#[test]
fn masks_that_see_ahead_are_not_causal() {
    let attention = |keys: usize, ahead: i64| {
        let b = Builder::new("ahead");
        let [q, k, v] = [64, keys, keys].map(|n| Shape::new([2usize, n, 32]));
        let [q, k, v] = [("q", q), ("k", k), ("v", v)].map(|(name, shape)| b.input(name, DType::F32, shape));
        let mask: Vec<f64> = (0..64 * keys)
            .map(|at| if (at % keys) as i64 <= (at / keys) as i64 + ahead { 0.0 } else { -1e9 })
            .collect();
        let mask = b.constant(Literal::from_f64s(DType::F32, [1, 64, keys], &mask).unwrap());
        let scores = q.matmul(k.permute(&[0, 2, 1])) * 0.2 + mask;
        let weights = (scores - scores.reduce_keep(Monoid::Max, &[2])).exp();
        b.output("y", (weights / weights.sum(&[2])).matmul(v));
        patterns(&b.finish().unwrap(), &[]).join(" ;; ")
    };
    assert_eq!(attention(64, 0), "Attention (causal)");
    assert_eq!(attention(64, 20), "Attention (banded)");
    assert_eq!(attention(96, 32), "Attention (causal)");
}

#[test]
fn the_gallery_is_called_by_its_operators() {
    for (name, wanted) in [
        ("layernorm_gelu", &["LayerNorm + GELU"][..]),
        ("layernorm_relu", &["LayerNorm + ReLU"]),
        ("softmax", &["Softmax"]),
        ("attention", &["Attention"]),
        ("add_gelu", &["Add + GELU"]),
        ("fast_gelu", &["Add + GELU (tanh)"]),
        ("relu_quantize", &["ReLU + QuantizeLinear"]),
    ] {
        let entry = fuseline::gallery::find(name).unwrap();
        assert_eq!(patterns(&entry.graph(DType::F32).unwrap(), entry.sizes), wanted, "{name}");
    }
}

#[test]
fn every_edge_has_one_decision_and_every_decision_one_row() {
    for entry in fuseline::gallery::all() {
        let graph = entry.graph(DType::F32).unwrap();
        for target in ["cpu", "h200"] {
            let (planned, explanation) = explained(&graph, target, entry.sizes);
            let ids: BTreeSet<_> = explanation.decisions.iter().map(|row| row.id).collect();
            assert_eq!(ids.len(), explanation.decisions.len(), "{}: an id twice", entry.name);
            let parts = [(planned.program.run(), &explanation.run), (planned.program.prepare(), &explanation.prepare)];
            for (graph, part) in parts {
                let wanted = edges(graph);
                let found: Vec<_> = part.edges.iter().map(|e| (e.producer, e.consumer)).collect();
                assert_eq!(found, wanted, "{} on {target}", entry.name);
                assert!(part.edges.iter().all(|e| ids.contains(&e.decision)), "{} on {target}", entry.name);
            }
            let us = |row: &DecisionRow| row.saved_us.abs();
            assert!(explanation.decisions.windows(2).all(|pair| us(&pair[0]) >= us(&pair[1])));
        }
    }
}

/// Branches and bodies of loops are graphs like others.
#[test]
fn every_edge_of_a_region_has_one_decision() {
    let body = |name: &str| {
        let b = Builder::new(name);
        let x = b.input("x", DType::F32, Shape::new([16usize, 64]));
        let y = x.exp() * 2.0;
        b.output("y", if name == "then" { y / y.sum(&[1]) } else { y.sort(1, true).0.exp() });
        b.finish().unwrap()
    };
    let b = Builder::new("regions");
    let condition = b.input("c", DType::Bool, Shape::scalar());
    let x = b.input("x", DType::F32, Shape::new([16usize, 64]));
    b.output("y", b.if_else(condition, body("then"), body("otherwise"), &[x.sqrt()]).unwrap()[0]);
    let (planned, explanation) = explained(&b.finish().unwrap(), "cpu", &[]);
    let ids: BTreeSet<_> = explanation.decisions.iter().map(|row| row.id).collect();
    let regions = planned.program.run().nodes().iter().flat_map(|node| node.prim().regions());
    let wanted: Vec<_> = regions.map(|region| edges(region)).collect();
    let found = explanation.run.region_edges.iter();
    let found: Vec<_> = found.map(|r| r.edges.iter().map(|e| (e.producer, e.consumer)).collect::<Vec<_>>()).collect();
    assert!(wanted.len() == 2 && wanted.iter().all(|edges| !edges.is_empty()));
    assert_eq!(found, wanted);
    let places: Vec<usize> = explanation.run.region_edges.iter().map(|r| r.region).collect();
    assert_eq!(places, [0, 1]);
    let all = explanation.run.region_edges.iter().flat_map(|r| &r.edges);
    assert!(all.map(|e| e.decision).all(|id| ids.contains(&id)));
}

/// Two products of one tensor, each turned by position: its readers become one kernel before it is joined with the other.
fn turned_products() -> Graph {
    let b = Builder::new("turned");
    let x = b.input("x", DType::F32, Shape::new([48usize, 64]));
    for name in ["q", "k"] {
        let y = x.matmul(b.input(name, DType::F32, Shape::new([64usize, 128])));
        let table = |of: &str| b.input(&format!("{name} {of}"), DType::F32, Shape::new([48usize, 128]));
        b.output(name, (y * table("cosine")).exp() + (y * table("sine")).tanh());
    }
    b.finish().unwrap()
}

/// Where nothing is limited, no limit is the reason, and what is refused because of its time saves none.
#[test]
fn reasons_are_those_of_the_plan() {
    let gallery = fuseline::gallery::all().map(|entry| (entry.graph(DType::F32).unwrap(), entry.sizes));
    let graphs: Vec<_> = gallery.chain([(turned_products(), &[][..])]).collect();
    for (graph, sizes) in &graphs {
        for (target, policy) in [("cpu", Policy::Textbook), ("h200", Policy::Textbook), ("avx2", Policy::Microseconds)]
        {
            let mut options = PlanOptions { policy, ..PlanOptions::on(DeviceSpec::find(target).unwrap()) };
            for (name, size) in *sizes {
                options.hints.env.bind(Symbol::name(name), *size);
            }
            let plain = simplified(graph.clone(), &options, &mut |_| {}).unwrap();
            let planned = plan_simplified(plain.clone(), &options, &mut |_| {}).unwrap();
            let mut explanation = Explanation::of(&planned, &options).unwrap();
            explanation.price_rewrites(&planned, &plain, &options).unwrap();
            for row in explanation.decisions.iter().filter(|row| row.verdict == Verdict::Refused) {
                assert!(!["fuel", "effort", "chance"].contains(&row.code), "{}: {row:#?}", graph.name());
                assert!(row.code != "slower" || row.saved_us <= 0.005, "{}: {row:#?}", graph.name());
                assert!(!row.is_illegal || row.saved_us == 0.0, "{}: {row:#?}", graph.name());
            }
        }
    }
}

fn network(name: &str) -> Graph {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/structure").join(format!("{name}.onnx"));
    Model::open(&file).and_then(|model| model.graph().cloned()).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn a_rewrite_that_costs_time_says_why_it_was_applied() {
    let options = PlanOptions::on(DeviceSpec::find("cpu").unwrap());
    // Queries from outside are scaled before they are multiplied, and many scores are scaled instead.
    let b = Builder::new("scaled queries");
    let [q, k, v] = ["q", "k", "v"].map(|name| b.input(name, DType::F32, Shape::new([8usize, 2048, 64])));
    let scores = (q * 0.125).matmul(k.permute(&[0, 2, 1]));
    let weights = (scores - scores.reduce_keep(Monoid::Max, &[2])).exp();
    b.output("y", (weights / weights.sum(&[2])).matmul(v));
    let plain = simplified(b.finish().unwrap(), &options, &mut |_| {}).unwrap();
    let planned = plan_simplified(plain.clone(), &options, &mut |_| {}).unwrap();
    let mut explanation = Explanation::of(&planned, &options).unwrap();
    explanation.price_rewrites(&planned, &plain, &options).unwrap();
    let losses = || explanation.decisions.iter().filter(|row| row.verdict == Verdict::Taken && row.saved_us < -0.01);
    assert!(losses().count() > 0 && losses().all(|row| row.is_rewrite), "fusions never cost time");
    assert!(losses().all(|row| row.reason.contains("applied wherever they fit")));
}

/// A number that scales queries or scores of a network goes into weights, whatever spells it, and none is left at a loss.
#[test]
fn scales_of_scores_go_where_they_take_the_least() {
    let options = PlanOptions::on(DeviceSpec::find("cpu").unwrap());
    let plain = simplified(network("whisper_tiny_enc.legacy"), &options, &mut |_| {}).unwrap();
    let planned = plan_simplified(plain.clone(), &options, &mut |_| {}).unwrap();
    let mut explanation = Explanation::of(&planned, &options).unwrap();
    explanation.price_rewrites(&planned, &plain, &options).unwrap();
    let of = |rule: &str| explanation.decisions.iter().filter(|row| row.rule == rule).collect::<Vec<_>>();
    let placed = of("place-scales");
    assert_eq!(placed.len(), 4, "one for every layer");
    assert!(placed.iter().all(|row| row.verdict == Verdict::Taken && row.saved_us > 10.0), "{placed:#?}");
    assert!(of("hoist-scales").iter().all(|row| row.saved_us > -0.005));
}

/// A rewrite that is refused would not have saved anything: what a plan would not be changed for is not offered.
#[test]
fn refused_rewrites_save_nothing() {
    for name in ["bert_base.legacy", "gpt2_tiny.legacy", "vit_b16.dynamo"] {
        let options = PlanOptions::on(DeviceSpec::find("cpu").unwrap());
        let plain = simplified(network(name), &options, &mut |_| {}).unwrap();
        let planned = plan_simplified(plain.clone(), &options, &mut |_| {}).unwrap();
        let mut explanation = Explanation::of(&planned, &options).unwrap();
        explanation.price_rewrites(&planned, &plain, &options).unwrap();
        let refused = |row: &&DecisionRow| row.is_rewrite && row.verdict == Verdict::Refused && row.saved_us > 0.0;
        let rows: Vec<&DecisionRow> = explanation.decisions.iter().filter(refused).collect();
        assert!(rows.is_empty(), "{name}: {rows:#?}");
    }
}

/// For every rule that was applied, how often, what its rewrites are said to save in all, and what the whole plan takes longer
/// without any of them; and what the plan takes.
fn worth_of_rules(graph: &Graph, target: &str) -> (Vec<(&'static str, usize, f64, f64)>, f64) {
    let options = PlanOptions::on(DeviceSpec::find(target).unwrap());
    let plain = simplified(graph.clone(), &options, &mut |_| {}).unwrap();
    let planned = plan_simplified(plain.clone(), &options, &mut |_| {}).unwrap();
    let mut explanation = Explanation::of(&planned, &options).unwrap();
    explanation.price_rewrites(&planned, &plain, &options).unwrap();
    let applied = || explanation.decisions.iter().filter(|row| row.is_rewrite && row.verdict == Verdict::Taken);
    let rules: BTreeSet<&'static str> = applied().map(|row| row.rule).collect();
    let of_rule = |rule: &'static str| {
        let rows: Vec<_> = applied().filter(|row| row.rule == rule).collect();
        assert!(rows.iter().all(|row| row.is_priced), "{rule} on {target} has no price");
        let mut without = options.clone();
        without.pins.apart.extend(rows.iter().map(|row| row.id));
        let other = plan_simplified(plain.clone(), &without, &mut |_| {}).unwrap().run.cost.us;
        (rule, rows.len(), rows.iter().map(|row| row.saved_us).sum(), other - planned.run.cost.us)
    };
    (rules.into_iter().map(of_rule).collect(), planned.run.cost.us)
}

#[test]
fn rewrites_are_worth_what_the_kernels_around_them_take_longer_without_them() {
    for (name, target) in [("bert_tiny.dynamo", "cpu"), ("bert_tiny.dynamo", "h200"), ("resnet50.dynamo_plain", "cpu")]
    {
        let (rules, plan_us) = worth_of_rules(&network(name), target);
        assert!(rules.iter().any(|(_, count, _, whole)| *count > 1 && *whole > 1.0), "{name}: {rules:?}");
        for (rule, count, said, whole) in rules {
            // What hardly matters to the whole is not told apart from what else changes in it.
            let near = 0.25 * whole.abs() + 1e-4 * plan_us + 0.1;
            assert!((said - whole).abs() <= near, "{name} on {target}: {count} × {rule}: {said} µs of {whole} µs");
        }
    }
}
