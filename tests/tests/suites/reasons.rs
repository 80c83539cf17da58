//! Why not: for every reason that there is a graph and a device where it is the true one, and what the other choice would bring.

use std::collections::BTreeSet;

use fuseline::compile::{plan_program, rewrite_id};
use fuseline::device::DeviceSpec;
use fuseline::fuse::rules::RULES;
use fuseline::fuse::{Chooser, Decision, DecisionId, Note, Plan, PlanOptions, Policy, Reason, Verdict};
use fuseline::graph::{Builder, Graph, Tensor};
use fuseline::ops::Scalar;
use fuseline::ops::prim::Monoid;
use fuseline::rewrites::{Application, Refusal};
use fuseline::tensor::{DType, Literal, Shape};

fn plan(graph: &Graph, options: &PlanOptions) -> Plan {
    plan_program(graph.clone(), options, &mut |_| {}).unwrap_or_else(|e| panic!("{e}")).run
}

fn on(target: &str) -> PlanOptions {
    PlanOptions::on(DeviceSpec::find(target).unwrap())
}

fn refusals<'p>(plan: &'p Plan, code: &str) -> Vec<&'p Decision> {
    let is = |d: &&Decision| d.reason.as_ref().is_some_and(|r| r.code() == code);
    plan.decisions.iter().filter(|d| d.verdict == Verdict::Refused).filter(is).collect()
}

fn codes(plan: &Plan) -> Vec<String> {
    plan.decisions.iter().filter_map(|d| Some(format!("{} {}", d.rule, d.reason.as_ref()?.code()))).collect()
}

/// A graph and how it is planned, where a reason is the true one.
struct Case {
    code: &'static str,
    graph: Graph,
    options: PlanOptions,
}

impl Case {
    fn on(target: &str, code: &'static str, draw: impl Fn(&Builder)) -> Case {
        Case { code, graph: drawn(draw), options: on(target) }
    }

    fn with(self, change: impl Fn(&mut PlanOptions)) -> Case {
        let mut options = self.options;
        change(&mut options);
        Case { options, ..self }
    }

    /// The reason occurs, and deciding the other way is impossible or costs time.
    fn check(&self) {
        let Case { code, graph, options } = self;
        let plain = plan(graph, options);
        let found = refusals(&plain, code);
        let Some(decision) = found.first() else { panic!("no refusal is {code}: {:?}", codes(&plain)) };
        let mut flipped = options.clone();
        flipped.pins.together = BTreeSet::from([decision.id]);
        let other = plan(graph, &flipped);
        if decision.reason.as_ref().is_some_and(|r| r.is_illegal()) {
            assert_eq!(other.kernels.len(), plain.kernels.len(), "{code}: it is illegal and was done");
        } else {
            assert!(other.cost.us > plain.cost.us, "{code}: {} us, the other way {} us", plain.cost.us, other.cost.us);
        }
    }

    /// The reason occurs because somebody wants it so, and without that wish the plan is faster.
    fn check_wish(&self, free: &PlanOptions) {
        let Case { code, graph, options } = self;
        let obedient = plan(graph, options);
        assert!(!refusals(&obedient, code).is_empty(), "no refusal is {code}: {:?}", codes(&obedient));
        let free = plan(graph, free);
        assert!(obedient.cost.us > free.cost.us, "{code}: {} us, free {} us", obedient.cost.us, free.cost.us);
    }
}

/// Cases of what structure, devices and prices refuse.
fn cases() -> Vec<Case> {
    let mut cases = cases_of_loops();
    cases.extend(cases_of_contractions());
    cases.extend(cases_of_devices());
    cases
}

fn cases_of_loops() -> Vec<Case> {
    vec![
        // A sort is no loop over tensors.
        Case::on("cpu", "opaque", |b| b.output("y", matrix(b, "x", 64, 64).exp().sort(1, true).0)),
        // Rows read from a computed table need the whole table.
        Case::on("h200", "gather-of-fused", |b| {
            let ids = b.input("ids", DType::I64, Shape::new([500usize]));
            b.output("y", matrix(b, "table", 1000, 64).exp().take(0, ids));
        }),
        // A running sum that is read somewhere else is not computed twice.
        Case::on("cpu", "prefix-moved", |b| {
            let sums = matrix(b, "x", 64, 64).prefix(Monoid::Sum, 1, false);
            b.output("y", sums.slice(1, 1usize, 63usize, 1) - sums.slice(1, 0usize, 63usize, 1));
        }),
        // What must run between two keeps them apart.
        Case::on("cpu", "cycle", |b| {
            let x = matrix(b, "x", 64, 64).exp();
            b.output("y", x + x.sort(1, true).0);
        }),
        Case::on("h200", "too-large", |b| {
            let steps = (0..400).map(f64::from);
            b.output("y", steps.fold(matrix(b, "x", 64, 64), |x, k| (x + k).sqrt()));
        }),
        // Sums of ever more columns: each has a loop of its own.
        Case::on("h200", "too-many-axes", |b| {
            let x = matrix(b, "x", 64, 256);
            let sums = (1usize..=80).map(|k| x.slice(1, 0usize, 2 * k, 1).exp().reduce(Monoid::Sum, &[1]));
            b.output("y", sums.reduce(|all, sum| all + sum).expect("there are some"));
        }),
        Case::on("h200", "no-rule", |b| b.output("y", matrix(b, "x", 64, 64).exp().sin())).with(|options| {
            options.without.extend(RULES.iter().map(|rule| rule.name().to_string()));
        }),
    ]
}

fn cases_of_contractions() -> Vec<Case> {
    vec![
        // Rows longer than a tile are not normalised in it.
        Case::on("h200", "rows-too-long", |b| {
            b.output("y", norm(matrix(b, "x", 512, 768).matmul(matrix(b, "w", 768, 768))));
        }),
        // A fold across the rows of a product crosses tiles.
        Case::on("h200", "fold-across-tiles", |b| {
            let y = matrix(b, "x", 4096, 64).matmul(matrix(b, "w", 64, 64));
            b.output("y", y.reduce(Monoid::Max, &[0]));
            b.output("z", y);
        }),
        // Two layers are two contractions.
        Case::on("cpu", "nested-contraction", |b| {
            let hidden = matrix(b, "x", 128, 256).matmul(matrix(b, "w", 256, 1024)).max(0.0);
            b.output("y", hidden.matmul(matrix(b, "v", 1024, 256)));
        }),
        // Both multiply x, but one of them its columns.
        Case::on("h200", "no-shared-factor", |b| {
            let x = matrix(b, "x", 256, 256);
            b.output("y", x.matmul(matrix(b, "w", 256, 64)));
            b.output("z", x.transpose().matmul(matrix(b, "v", 256, 64)));
        }),
        // What is stored besides would be stored by every tile.
        Case::on("h200", "unrelated", |b| {
            let x = matrix(b, "x", 256, 256).exp();
            b.output("x", x);
            b.output("y", x.matmul(matrix(b, "w", 256, 64)));
        }),
        // Two products could each compute it, but it is a result of the graph.
        Case::on("h200", "output-copied", |b| {
            let x = matrix(b, "x", 256, 256).exp();
            b.output("x", x);
            b.output("y", x.matmul(matrix(b, "w", 256, 64)));
            b.output("z", matrix(b, "v", 64, 256).matmul(x));
        }),
        Case::on("h200", "probabilities-used", |b| {
            let p = weights(b, [4, 256, 64, 256], true);
            b.output("y", p.matmul(values(b, [4, 256, 64])));
            b.output("p", p);
        }),
        Case::on("h200", "not-streamable", |b| {
            b.output("y", weights(b, [4, 256, 64, 256], false).matmul(values(b, [4, 256, 64])));
        }),
        // A running minimum begins at infinity, and grows what was summed before by a factor that is infinite then.
        Case::on("h200", "not-streamable", |b| {
            let scores = scores(b, [4, 256, 64, 256]);
            let weights = (scores - scores.reduce_keep(Monoid::Min, &[2])).exp();
            b.output("y", weights.matmul(values(b, [4, 256, 64])));
        }),
        // The place of the largest score is known when whole rows are.
        Case::on("h200", "order-streamed", |b| {
            let scores = scores(b, [4, 256, 64, 256]);
            b.output("place", scores.reduce(Monoid::ArgMax, &[2]));
            b.output("y", weights_of(scores, true).matmul(values(b, [4, 256, 64])));
        }),
        // Of two keys each, rows of scores are next to nothing beside the two products.
        Case::on("avx2", "pairs-better", |b| {
            b.output("y", weights(b, [1, 262144, 32, 2], true).matmul(values(b, [1, 2, 32])));
        }),
        // The sum costs nothing in the products that read it, one beside the other, and a little behind the one before them.
        Case::on("cpu", "outweighed", |b| {
            let h = matrix(b, "x", 16, 256) + matrix(b, "a", 16, 256).matmul(matrix(b, "w", 256, 256));
            let h = h.max(0.0);
            b.output("y", h.matmul(matrix(b, "u", 256, 256)));
            b.output("z", h.matmul(matrix(b, "v", 256, 256)));
        }),
        // A norm in front of a large product is computed once, and not for every tile.
        Case::on("h200", "slower", |b| {
            let y = norm(matrix(b, "x", 16384, 1024));
            b.output("y", y.matmul(matrix(b, "w", 1024, 8192)));
        }),
    ]
}

fn cases_of_devices() -> Vec<Case> {
    vec![
        Case::on("h200", "too-many-parameters", |b| {
            let [x, y, z, w] = ["x", "y", "z", "w"].map(|name| matrix(b, name, 64, 64));
            b.output("sum", (x + y) * (z - w));
        })
        .with(|options| options.spec.limits.parameters = 3),
        Case::on("h200", "no-skeleton", |b| {
            let x = matrix(b, "x", 64, 64);
            b.output("y", x.exp() * x.reduce_keep(Monoid::Max, &[0]));
        })
        .with(|options| options.spec.skeletons.retain(|s| s.name() != "row")),
    ]
}

/// A graph in which a rewrite is refused, where and why.
struct Unwritten {
    why: Refusal,
    rule: &'static str,
    graph: Graph,
    options: PlanOptions,
}

impl Unwritten {
    fn on(target: &str, why: Refusal, rule: &'static str, draw: impl Fn(&Builder)) -> Unwritten {
        Unwritten { why, rule, graph: drawn(draw), options: on(target) }
    }

    /// The reason occurs, and deciding the other way is impossible or costs time; or without the wish the plan is faster.
    fn check(&self) {
        let Unwritten { why, rule, graph, options } = self;
        let planned = plan_program(graph.clone(), options, &mut |_| {}).unwrap();
        let is_it = |a: &&Application| a.rule == *rule && a.refused == Some(*why);
        let found = planned.rewrites.iter().find(is_it);
        let Some(found) = found else { panic!("no refusal of {rule} is {}: {:?}", why.code(), planned.rewrites) };
        let id = rewrite_id(found);
        let mut flipped = options.clone();
        flipped.pins.apart.remove(&id);
        flipped.pins.together.insert(id);
        let other = plan_program(graph.clone(), &flipped, &mut |_| {}).unwrap();
        let is_applied = other.applied_rewrites().contains(&id);
        let [us, other_us] = [planned.run.cost.us, other.run.cost.us];
        match why {
            Refusal::NotAllowed => assert!(is_applied && other_us < us, "{rule}: {us} us, free {other_us} us"),
            Refusal::Slower => assert!(is_applied && other_us > us, "{rule}: {us} us, with it {other_us} us"),
            _ => assert!(!is_applied && other_us == us, "{rule}: {} and was done", why.code()),
        }
    }
}

fn softmax(x: Tensor<'_>) -> Tensor<'_> {
    let weights = (x - x.reduce_keep(Monoid::Max, &[1])).exp();
    weights / weights.sum(&[1])
}

/// One head of attention, its queries scaled.
fn attention(b: &Builder, [queries, keys]: [usize; 2], scale: f64) -> Tensor<'_> {
    let [q, k, v] = [("q", queries), ("k", keys), ("v", keys)].map(|(name, rows)| matrix(b, name, rows, 64));
    softmax((q.exp() * scale).matmul(k.transpose())).matmul(v)
}

/// Cases of what is refused before there are kernels.
fn rewrites() -> Vec<Unwritten> {
    let normalized = drawn(|b| b.output("y", attention(b, [512, 512], 0.125)));
    let free = plan_program(normalized, &on("h200"), &mut |_| {}).unwrap();
    let applied = free.applied_rewrites();
    let mut all = vec![
        // Probabilities that are a result are computed in any case.
        Unwritten::on("h200", Refusal::UsedElsewhere, "defer-normalizer", |b| {
            let p = softmax(matrix(b, "x", 512, 512));
            b.output("p", p);
            b.output("y", p.matmul(matrix(b, "v", 512, 64)));
        }),
        // So many products of 8 bits do not fit into 32.
        Unwritten::on("cpu", Refusal::MayOverflow, "contract-integers", |b| {
            let [x, w] = ["x", "w"].map(|name| b.input(name, DType::I8, Shape::new([16usize, 200_000])));
            let [x, w] = [x, w].map(|x| x.cast(DType::F32) * 0.03);
            b.output("y", x.matmul(w.transpose()));
        }),
        // A processor multiplies floats faster.
        Unwritten::on("cpu", Refusal::Slower, "contract-integers", |b| {
            let [x, w] = ["x", "w"].map(|name| b.input(name, DType::I8, Shape::new([256usize, 256])));
            let [x, w] = [x, w].map(|x| x.cast(DType::F32) * 0.03);
            b.output("y", x.matmul(w));
        }),
        // A scale far from 1 may be what keeps sums in range.
        Unwritten::on("cpu", Refusal::LeavesRange, "hoist-scales", |b| {
            b.output("y", attention(b, [512, 512], 1e-20));
        }),
        // There are fewer scores than numbers in the queries.
        Unwritten::on("cpu", Refusal::Slower, "place-scales", |b| b.output("y", attention(b, [16, 32], 0.125))),
        Unwritten::on("h200", Refusal::NotAllowed, "defer-normalizer", |b| {
            b.output("y", attention(b, [512, 512], 0.125));
        }),
    ];
    all.last_mut().expect("there are some").options.pins.apart = applied;
    all
}

/// Cases of what users and books refuse.
fn wishes() -> Vec<Case> {
    let row = |b: &Builder| {
        let y = matrix(b, "x", 64, 64).exp();
        b.output("y", y * y.sum(&[1]));
    };
    let product = |b: &Builder| b.output("y", norm(matrix(b, "x", 128, 256).matmul(matrix(b, "w", 256, 256))));
    let long = |b: &Builder| {
        let [x, y] = ["x", "y"].map(|name| matrix(b, name, 64, 64));
        b.output("z", (0..400).fold(x, |z, _| (z + y).sqrt()));
    };
    let free = plan(&drawn(row), &on("h200"));
    let taken = free.decisions.iter().filter(|d| d.verdict == Verdict::Taken).map(|d| d.id);
    let taken: BTreeSet<DecisionId> = taken.collect();
    vec![
        Case::on("h200", "pinned", row).with(|options| options.pins.apart.clone_from(&taken)),
        Case::on("h200", "fuel", row).with(|options| options.fuel = Some(0)),
        Case::on("h200", "effort", long).with(|options| options.effort = 0),
        Case::on("cpu", "textbook", product).with(|options| options.policy = Policy::Textbook),
    ]
}

fn matrix<'b>(b: &'b Builder, name: &str, rows: usize, columns: usize) -> Tensor<'b> {
    b.input(name, DType::F32, Shape::new([rows, columns]))
}

fn drawn(draw: impl Fn(&Builder)) -> Graph {
    let b = Builder::new("case");
    draw(&b);
    b.finish().unwrap()
}

fn norm(x: Tensor<'_>) -> Tensor<'_> {
    let centred = x - x.mean(&[1]);
    centred / ((centred * centred).mean(&[1]) + 1e-5).sqrt()
}

/// What attention multiplies its values by, for batches, queries, sizes and keys: a function of the scores that follows the
/// largest of a row, or one that does not.
fn weights(b: &Builder, sizes: [usize; 4], follows: bool) -> Tensor<'_> {
    weights_of(scores(b, sizes), follows)
}

fn scores(b: &Builder, [batches, queries, size, keys]: [usize; 4]) -> Tensor<'_> {
    let q = b.input("q", DType::F32, Shape::new([batches, queries, size]));
    let k = b.input("k", DType::F32, Shape::new([batches, keys, size]));
    q.matmul(k.permute(&[0, 2, 1]))
}

fn weights_of(scores: Tensor<'_>, follows: bool) -> Tensor<'_> {
    let below = scores - scores.reduce_keep(Monoid::Max, &[2]);
    let weights = if follows { below.exp() } else { below.apply(Scalar::Tanh) + 2.0 };
    weights / weights.sum(&[2])
}

fn values(b: &Builder, sizes: [usize; 3]) -> Tensor<'_> {
    b.input("v", DType::F32, Shape::new(sizes))
}

#[test]
fn every_reason_has_a_case_in_which_it_is_the_true_one() {
    let (cases, wishes) = (cases(), wishes());
    let mut covered: BTreeSet<&str> = cases.iter().chain(&wishes).map(|case| case.code).collect();
    cases.iter().for_each(Case::check);
    for case in &wishes {
        case.check_wish(&on(&case.options.spec.name));
    }
    // This one has a test of its own.
    covered.insert("chance");
    let missing: Vec<&str> = Reason::codes().filter(|code| !covered.contains(code)).collect();
    assert!(missing.is_empty(), "no case for {missing:?}");
}

#[test]
fn every_refusal_of_a_rewrite_has_a_case_in_which_it_is_the_true_one() {
    let cases = rewrites();
    cases.iter().for_each(Unwritten::check);
    let missing: Vec<&Refusal> = Refusal::ALL.iter().filter(|why| cases.iter().all(|case| case.why != **why)).collect();
    assert!(missing.is_empty(), "no case for {missing:?}");
}

#[test]
fn chance_leaves_out_what_would_save_time() {
    let product = drawn(|b| b.output("y", norm(matrix(b, "x", 128, 256).matmul(matrix(b, "w", 256, 256)))));
    let mut chance = on("h200");
    let seeds = (0..32).map(|seed| {
        chance.chooser = Chooser::AtRandom(seed);
        refusals(&plan(&product, &chance), "chance").len()
    });
    assert!(seeds.max() > Some(0));
}

#[test]
fn the_reasons_end_where_sizes_do() {
    let short = drawn(|b| b.output("y", norm(matrix(b, "x", 512, 768).matmul(matrix(b, "w", 768, 64)))));
    assert!(refusals(&plan(&short, &on("h200")), "rows-too-long").is_empty());
    let few = drawn(|b| b.output("y", norm(matrix(b, "x", 8, 1024)).matmul(matrix(b, "w", 1024, 8192))));
    let few = plan(&few, &on("h200"));
    assert_eq!(few.kernels.len(), 1, "for few rows it pays: {:?}", codes(&few));
    let streamed = drawn(|b| b.output("y", weights(b, [4, 256, 64, 256], true).matmul(values(b, [4, 256, 64]))));
    let streamed = plan(&streamed, &on("h200"));
    assert_eq!(streamed.kernels.len(), 1, "{:?}", codes(&streamed));
}

#[test]
fn a_small_constant_is_no_reason() {
    // What follows from coordinates or small constants never keeps a kernel apart.
    let graph = drawn(|b| {
        let scale = b.constant(Literal::f32s(&[1.0, 2.0, 3.0, 4.0]));
        b.output("y", (matrix(b, "x", 64, 4) * scale).exp());
    });
    assert_eq!(plan(&graph, &on("cpu")).kernels.len(), 1);
}

#[test]
fn a_textbook_minds_other_readers_of_what_is_handed_on_and_no_others() {
    let kernels = |name: &str, policy: Policy| {
        let entry = fuseline::gallery::find(name).unwrap_or_else(|| panic!("{name} is gone"));
        let mut options = on("h200");
        options.policy = policy;
        plan(&entry.graph(DType::F32).unwrap(), &options).kernels.len()
    };
    // The sum is an output besides; the products of queries, keys and values have one reader each.
    assert_eq!([kernels("add_layernorm", Policy::Microseconds), kernels("add_layernorm", Policy::Textbook)], [1, 2]);
    assert_eq!([kernels("qkv", Policy::Microseconds), kernels("qkv", Policy::Textbook)], [1, 1]);
}

#[test]
fn another_type_behind_is_told_and_refused_by_a_textbook() {
    let graph = |dtype: DType| drawn(|b| b.output("y", (matrix(b, "x", 512, 512).exp() * 0.5).cast(dtype)));
    let kernels = |dtype: DType, policy: Policy| {
        let mut options = on("h200");
        options.policy = policy;
        plan(&graph(dtype), &options)
    };
    for (dtype, converts) in [(DType::F16, true), (DType::I8, true), (DType::F32, false)] {
        let plain = kernels(dtype, Policy::Microseconds);
        assert_eq!(plain.kernels.len(), 1, "{dtype}");
        let told = plain.decisions.iter().any(|decision| decision.notes.contains(&Note::Converted));
        assert_eq!(told, converts, "{dtype}");
        assert_eq!(kernels(dtype, Policy::Textbook).kernels.len(), 1 + usize::from(converts), "{dtype}");
    }
}

#[test]
fn a_store_in_another_order_is_told() {
    // Results of many columns as heads, and in the order of heads.
    let notes = |order: [usize; 4]| -> Vec<Note> {
        let graph = drawn(|b| {
            let x = b.input("x", DType::F32, Shape::new([4usize, 128, 256]));
            let y = x.matmul(matrix(b, "w", 256, 512)).max(0.0);
            b.output("y", y.reshape(Shape::new([4usize, 128, 8, 64])).permute(&order));
        });
        plan(&graph, &on("h200")).decisions.into_iter().flat_map(|decision| decision.notes).collect()
    };
    assert!(notes([0, 2, 1, 3]).contains(&Note::PermutedStore), "{:?}", notes([0, 2, 1, 3]));
    assert!(!notes([0, 1, 2, 3]).contains(&Note::PermutedStore), "{:?}", notes([0, 1, 2, 3]));
}

/// A product that is a part of a concatenation would be computed without tiles, for all parts: however few rows there are, it stays a kernel of its own.
#[test]
fn a_part_of_a_concatenation_is_multiplied_by_itself() {
    for rows in [4, 16, 128] {
        let graph = drawn(|b| {
            let (x, other) = (matrix(b, "x", rows, 1152), matrix(b, "other", rows, 256));
            let y = x.matmul(matrix(b, "w", 1152, 128));
            b.output("y", b.concat(&[other.exp(), y.max(0.0)], 1).exp());
        });
        let planned = plan_program(graph, &on("cpu"), &mut |_| {}).unwrap();
        let count = planned.run.kernels.len();
        assert!(count > 1, "{rows} rows: {count} kernel");
    }
}
