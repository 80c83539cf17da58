use super::*;
use crate::error::Kind;
use crate::tensor::DType;

fn spec(name: &str) -> &'static DeviceSpec {
    DeviceSpec::find(name).unwrap()
}

fn analyzer(operations: Vec<Operation>) -> Analyzer {
    let mut analyzer = Analyzer::new();
    operations.into_iter().for_each(|operation| _ = analyzer.add_operation(operation));
    analyzer
}

fn shaped(name: &str, shape: &[usize]) -> Tensor {
    Tensor::shaped(name, DType::F32, shape)
}

/// `layernorm`, then `gelu`, on rows of 4096.
fn layernorm_gelu() -> Vec<Operation> {
    let layernorm = Operation::new("layernorm").reads(shaped("x", &[8192, 4096])).writes("h");
    vec![layernorm.memory_bound().intensity(2.5), Operation::new("gelu").reads("h").writes("y").elementwise()]
}

/// The classic layer: normalise, project to queries, keys and values, split, attend, add what came in.
fn layer(batch: usize) -> Vec<Operation> {
    let [x, h, y, o] = ["x", "h", "y", "o"].map(|name| shaped(name, &[batch, 128, 768]));
    let part = |name: &str| shaped(name, &[batch, 128, 768]);
    let weights = shaped("w", &[768, 2304]);
    vec![
        Operation::new("layernorm").reads(x.clone()).writes(h.clone()).memory_bound().intensity(2.5),
        Operation::new("linear").reads(h).reads(weights).writes(shaped("qkv", &[batch, 128, 2304])).compute_bound(),
        Operation::new("split").reads("qkv").writes(part("q")).writes(part("k")).writes(part("v")).memory_bound(),
        Operation::new("attention")
            .reads("q")
            .reads("k")
            .reads("v")
            .writes(y)
            .compute_bound()
            .flops((batch * 12) as f64 * 4.0 * 128.0 * 128.0 * 64.0),
        Operation::new("add_residual").reads("y").reads(x).writes(o).elementwise().memory_bound(),
    ]
}

#[test]
fn layernorm_and_gelu_are_fused_with_0_85() {
    let analysis = analyzer(layernorm_gelu()).analyze(spec("h200")).unwrap();
    let [candidate] = &analysis.candidates[..] else { panic!("{analysis:?}") };
    assert_eq!(candidate.scorecard.to_string(), "FUSE 0.85");
    assert_eq!(candidate.verdict, Verdict::Fuse);
    let n = 4.0 * 8192.0 * 4096.0;
    assert_eq!((candidate.before.bytes, candidate.after.bytes), (4.0 * n, 2.0 * n));
    assert_eq!((candidate.before.launches, candidate.after.launches), (2, 1));
    // Twice 268 MB at 4.27 TB/s and twice a launch become half of it.
    assert!((candidate.before.us - 2.0 * (2.0 * n / 4.272e6 + 1.5)).abs() < 0.1, "{candidate:?}");
    assert!((candidate.before.us / candidate.after.us - 2.0).abs() < 1e-9);
    assert_eq!(analysis.disagreements(), 0);
    assert_eq!(analysis.groups[0].name(), "layernorm + gelu");
}

#[test]
fn a_chain_of_elementwise_operations_keeps_its_ends() {
    // mul, add, relu with one tensor each: 6 N become 2 N, 67 % less.
    let chain = |names: &[&str]| {
        let operations = names.iter().enumerate().map(|(at, name)| {
            let [input, output] = [at, at + 1].map(|t| Tensor::of_bytes(format!("t{t}"), 4e6));
            Operation::new(*name).reads(input).writes(output).elementwise()
        });
        analyzer(operations.collect()).analyze(spec("h200")).unwrap()
    };
    let three = chain(&["mul", "add", "relu"]);
    assert_eq!((three.before.bytes, three.after.bytes), (24e6, 8e6));
    assert_eq!((three.before.launches, three.after.launches), (3, 1));
    let saved = 100.0 * (1.0 - three.after.bytes / three.before.bytes);
    assert_eq!(saved.round(), 67.0);
    // relu(layer_norm(x)) step by step: x, mean, variance, x̂ and y written and read, 10 accesses become 2.
    let five = chain(&["mean", "variance", "normalise", "scale", "relu"]);
    assert_eq!((five.before.accesses, five.after.accesses), (10, 2));
    assert_eq!(five.before.bytes / five.after.bytes, 5.0);
    let card = five.groups[0].scorecard.as_ref().unwrap();
    // 0.4 + 0.2 · 4/5 + 0.2 + 0.1 + 0.1
    assert!((card.score - 0.96).abs() < 1e-9 && card.verdict == crate::analysis::scorecard::Verdict::Fuse, "{card:?}");
}

#[test]
fn a_product_of_matrices_has_the_size_that_follows() {
    for right in [512, 1000] {
        let product = Operation::new("matmul").reads(shaped("x", &[4, 128, 512])).reads(shaped("w", &[right, 1024]));
        let norm = Operation::new("layernorm").class(Class::Reduce).reads("h").writes("y");
        let operations = vec![product.writes("h").class(Class::Contract), norm];
        let analysis = analyzer(operations).analyze(spec("cpu")).unwrap();
        // Where inner sizes do not agree, it is as large as what comes first, and that is an assumption.
        let of_h = |assumption: &&String| assumption.starts_with("h has");
        let bytes = 4 * 4 * 128 * 512;
        let assumed = (right == 1000).then(|| format!("h has {bytes} bytes"));
        assert_eq!(analysis.assumptions.iter().find(of_h).cloned(), assumed, "{:?}", analysis.assumptions);
    }
}

#[test]
fn shapes_of_a_product_are_one_where_nothing_else_is_said() {
    let class_of = |a: &[usize], b: &[usize], y: &[usize]| {
        let product = Operation::new("op").reads(shaped("a", a)).reads(shaped("b", b)).writes(shaped("y", y));
        let norm = Operation::new("norm").class(Class::Reduce).reads("y").writes("z");
        let analysis = analyzer(vec![product, norm]).analyze(spec("h200")).unwrap();
        analysis.assumptions.iter().any(|a| a == "op multiplies matrices: its shapes are those of a product")
    };
    assert!(class_of(&[4096, 1024], &[1024, 1024], &[4096, 1024]));
    assert!(class_of(&[2, 64, 512], &[512, 100], &[2, 64, 100]));
    assert!(class_of(&[2, 64, 512], &[100, 512], &[2, 64, 100]));
    assert!(class_of(&[2, 64, 512], &[2, 512, 100], &[2, 64, 100]));
    // A sum may be repeated, and a table looked up.
    assert!(!class_of(&[64, 512], &[64, 512], &[64, 512]));
    assert!(!class_of(&[64, 512], &[1, 512], &[64, 512]));
    assert!(!class_of(&[64, 128], &[1000, 512], &[64, 128, 512]));
    assert!(!class_of(&[2, 64, 512], &[3, 512, 100], &[2, 64, 100]));
}

#[test]
fn the_classic_layer_gives_its_three_fusions_on_every_device() {
    for spec in DeviceSpec::all() {
        for batch in [1, 4, 64] {
            let analysis = analyzer(layer(batch)).analyze(spec).unwrap();
            let assumed = [
                "layernorm needs whole rows: nothing says that it is elementwise",
                "linear multiplies matrices: it is bound by arithmetic",
                "split moves elements: it has several outputs, as large together as its inputs",
                "attention multiplies matrices: it is bound by arithmetic",
                "add_residual does one operation for each byte",
            ];
            assert_eq!(analysis.assumptions, assumed);
            let verdict = |producer: &str, consumer: &str| {
                let candidate = analysis.candidate(producer, consumer).unwrap();
                (candidate.verdict.clone(), format!("{} {batch}: {candidate:?}", spec.name))
            };
            let (norm, text) = verdict("layernorm", "linear");
            let Verdict::FuseIf(condition) = norm else { panic!("{text}") };
            assert!(condition.small && condition.to_string().starts_with("if small batch: up to "), "{text}");
            for (producer, consumer) in [("split", "attention"), ("attention", "add_residual")] {
                let (verdict, text) = verdict(producer, consumer);
                assert_eq!(verdict, Verdict::Fuse, "{text}");
            }
            let (split, text) = verdict("linear", "split");
            assert!(matches!(&split, Verdict::KeepApart(Reason::Taken(_))), "{text}");
            assert_eq!(analysis.candidates.len(), 4);
            let groups: Vec<String> = analysis.groups.iter().map(Group::name).collect();
            let first = if condition.holds { vec!["layernorm + linear"] } else { vec!["layernorm", "linear"] };
            assert_eq!(groups, [first, vec!["split + attention + add_residual"]].concat());
        }
    }
}

#[test]
fn what_the_texts_refuse_is_refused_on_request() {
    let mut classic = analyzer(layer(4));
    let analysis = classic.set_policy(Policy::Textbook).analyze(spec("a100")).unwrap();
    let name = |producer: &str, consumer: &str| match &analysis.candidate(producer, consumer).unwrap().verdict {
        Verdict::Fuse => "fuse".to_string(),
        Verdict::FuseIf(condition) => condition.to_string().split(':').next().unwrap().to_string(),
        Verdict::KeepApart(reason) => reason.name().to_string(),
    };
    assert_eq!(name("layernorm", "linear"), "if small batch");
    assert_eq!(name("linear", "split"), "incompatible_access");
    assert_eq!(name("split", "attention"), "fuse");
    assert_eq!(name("attention", "add_residual"), "fuse");
}

#[test]
fn names_and_bounds_are_enough() {
    let plain = vec![
        Operation::new("layernorm").reads("x").writes("h").memory_bound(),
        Operation::new("linear").reads("h").reads("w").writes("qkv").compute_bound(),
        Operation::new("split").reads("qkv").writes("q").writes("k").writes("v").memory_bound(),
        Operation::new("attention").reads("q").reads("k").reads("v").writes("y").compute_bound(),
        Operation::new("add_residual").reads("y").reads("x").writes("o").memory_bound().elementwise(),
    ];
    let analysis = analyzer(plain).analyze(spec("h200")).unwrap();
    let kinds: Vec<Class> = analysis.operations.iter().map(|o| o.class).collect();
    assert_eq!(kinds, [Class::Reduce, Class::Contract, Class::View, Class::Contract, Class::Map]);
    let verdict = |producer, consumer| &analysis.candidate(producer, consumer).unwrap().verdict;
    assert!(matches!(verdict("layernorm", "linear"), Verdict::FuseIf(c) if c.small), "{analysis:?}");
    assert_eq!(verdict("split", "attention"), &Verdict::Fuse);
    assert_eq!(verdict("attention", "add_residual"), &Verdict::Fuse);
    assert!(analysis.assumptions.iter().any(|a| a == "x has 67108864 bytes"), "{:?}", analysis.assumptions);
}

/// The layer as texts give it: what is read and written, what it is bound by, and its intensity.
#[test]
fn the_classic_layer_needs_no_kinds() {
    let plain = |moves: f64| {
        let split = Operation::new("split").reads("qkv").writes("q").writes("k").writes("v");
        vec![
            Operation::new("layernorm").reads("x").writes("h").memory_bound().intensity(2.5),
            Operation::new("linear").reads("h").reads("w").writes("qkv").compute_bound().intensity(120.0),
            split.memory_bound().intensity(moves),
            Operation::new("attention").reads("q").reads("k").reads("v").writes("y").compute_bound().intensity(50.0),
            Operation::new("add_residual").reads("y").reads("x").writes("o").memory_bound().intensity(1.0),
        ]
    };
    let shapes: [(&str, &[usize]); 9] = [
        ("x", &[512, 768]),
        ("h", &[512, 768]),
        ("w", &[768, 2304]),
        ("qkv", &[512, 2304]),
        ("q", &[512, 768]),
        ("k", &[512, 768]),
        ("v", &[512, 768]),
        ("y", &[512, 768]),
        ("o", &[512, 768]),
    ];
    let with_shapes = |mut operations: Vec<Operation>| {
        for tensor in operations.iter_mut().flat_map(|op| op.inputs.iter_mut().chain(&mut op.outputs)) {
            tensor.shape = shapes.iter().find(|(name, _)| *name == tensor.name).map(|(_, shape)| shape.to_vec());
        }
        operations
    };
    for spec in DeviceSpec::all() {
        let operations = [0.1, 0.5, 0.9].map(plain).into_iter().flat_map(|plain| [plain.clone(), with_shapes(plain)]);
        for operations in operations {
            let analysis = analyzer(operations).analyze(spec).unwrap();
            let kinds: Vec<Class> = analysis.operations.iter().map(|o| o.class).collect();
            assert_eq!(kinds, [Class::Reduce, Class::Contract, Class::View, Class::Contract, Class::Map]);
            let verdict = |producer, consumer| &analysis.candidate(producer, consumer).unwrap().verdict;
            assert!(
                matches!(verdict("layernorm", "linear"), Verdict::FuseIf(c) if c.small),
                "{} {analysis:?}",
                spec.name
            );
            assert_eq!(verdict("split", "attention"), &Verdict::Fuse, "{}", spec.name);
            assert_eq!(verdict("attention", "add_residual"), &Verdict::Fuse, "{}", spec.name);
            // What was thought is told.
            for name in ["layernorm", "linear", "split", "attention", "add_residual"] {
                assert!(analysis.assumptions.iter().any(|a| a.starts_with(name)), "{name}: {:?}", analysis.assumptions);
            }
        }
    }
}

#[test]
fn what_reads_a_weight_or_another_shape_is_not_thought_elementwise() {
    let kind = |reads: [Tensor; 2]| {
        let [first, second] = reads;
        let operation = Operation::new("op").reads(first).reads(second).writes(shaped("y", &[64, 8])).memory_bound();
        analyzer(vec![operation.intensity(1.0)]).analyze(spec("h200")).unwrap().operations[0].class
    };
    assert_eq!(kind([shaped("a", &[64, 8]), shaped("b", &[64, 8])]), Class::Map);
    assert_eq!(kind([shaped("a", &[64, 8]), shaped("b", &[64, 8]).constant()]), Class::Reduce);
    assert_eq!(kind([shaped("a", &[64, 8]), shaped("b", &[64, 800])]), Class::Reduce);
}

#[test]
fn the_break_even_is_where_the_prices_meet() {
    let at = |rows: usize, spec: &DeviceSpec| {
        let layernorm = Operation::new("layernorm").reads(shaped("x", &[rows, 1024])).writes("h").intensity(2.0);
        let linear = Operation::new("linear").reads("h").reads(shaped("w", &[1024, 4096]));
        let linear = linear.writes(shaped("y", &[rows, 4096])).class(Class::Contract);
        analyzer(vec![layernorm, linear]).analyze(spec).unwrap().candidates.remove(0)
    };
    for spec in DeviceSpec::all() {
        let Verdict::FuseIf(condition) = at(1, spec).verdict else { panic!("{}", spec.name) };
        let rows = condition.rows.unwrap();
        assert!(condition.small && condition.batch == Some(rows) && rows >= 1.0, "{condition:?}");
        let below = at(rows.floor() as usize, spec);
        assert!(below.saved_us() > 0.0 && below.is_taken(), "{}: {below:?}", spec.name);
        let beyond = at((rows * 1.2).ceil() as usize + 1, spec);
        assert!(beyond.saved_us() <= 0.0 && !beyond.is_taken(), "{}: {beyond:?}", spec.name);
        // Wherever it is asked from, it is the same place.
        let Verdict::FuseIf(again) = beyond.verdict else { panic!("{}", spec.name) };
        assert!(!again.holds && (again.rows.unwrap() / rows - 1.0).abs() < 0.01, "{again:?} {condition:?}");
    }
}

#[test]
fn a_reduction_behind_a_contraction_needs_whole_rows() {
    let pair = |[rows, columns]: [usize; 2], policy: Policy, device: &str| {
        let matmul = Operation::new("matmul").reads(shaped("x", &[rows, 1024])).reads(shaped("w", &[1024, columns]));
        let matmul = matmul.writes(shaped("h", &[rows, columns])).compute_bound();
        let layernorm = Operation::new("layernorm").reads("h").writes("y").memory_bound();
        let mut pair = analyzer(vec![matmul, layernorm]);
        pair.set_policy(policy).analyze(spec(device)).unwrap().candidates.remove(0)
    };
    // A block of a GPU keeps its results in registers: there is no kernel, and nothing that it could save.
    let wide = pair([4096, 4096], Policy::ByCost, "h200");
    assert_eq!(wide.scorecard.to_string(), "keep apart — different bottlenecks: compute-bound next to memory-bound");
    let Verdict::KeepApart(reason) = &wide.verdict else { panic!("{wide:?}") };
    assert_eq!(reason.to_string(), "whole rows of 4096 elements do not fit the 128 of a block");
    assert_eq!((wide.saved_us(), wide.after), (0.0, wide.before));
    let by_the_book = pair([4096, 4096], Policy::Textbook, "h200").verdict;
    assert!(matches!(by_the_book, Verdict::KeepApart(Reason::Textbook(_))));
    // A core keeps them in its cache.
    let long = pair([4096, 4096], Policy::ByCost, "cpu");
    assert!(long.is_taken() && long.saved_us() > 0.0, "{long:?}");
    // Few rows are few blocks, whose sums cannot be split: with many it pays.
    let narrow = |rows: usize| pair([rows, 128], Policy::ByCost, "h200");
    let [few, many] = [narrow(4096), narrow(1 << 16)];
    assert!(!few.is_taken() && few.saved_us() < 0.0, "{few:?}");
    assert!(many.is_taken() && many.disagrees() && !wide.disagrees(), "{many:?}");
    assert!(many.lifted[0].to_string().contains("allowed, because a block of the contraction owns whole rows"));
}

#[test]
fn limits_of_the_texts_are_lifted_with_a_reason() {
    let run = |operations: Vec<Operation>, policy: Policy| {
        let analysis = analyzer(operations).set_policy(policy).analyze(spec("h200")).unwrap();
        let reason = match &analysis.candidate("a", "b").unwrap().verdict {
            Verdict::KeepApart(reason) => reason.name(),
            _ => "fused",
        };
        (reason, analysis)
    };
    let x = || Tensor::of_bytes("x", 4e6);
    let map = |name: &str| Operation::new(name).elementwise();
    // The tensor between is needed by somebody else too: it is written, and one reading is saved.
    let shared =
        vec![map("a").reads(x()).writes("t"), map("b").reads("t").writes("y"), map("c").reads("t").writes("z")];
    assert_eq!(run(shared.clone(), Policy::Textbook).0, "intermediate_needed");
    let (reason, analysis) = run(shared, Policy::ByCost);
    let candidate = analysis.candidate("a", "b").unwrap();
    assert_eq!((reason, candidate.before.bytes, candidate.after.bytes), ("fused", 16e6, 12e6));
    assert!(candidate.lifted[0].to_string().ends_with("it is stored as a second result, and not read again"));
    // Element types.
    let half = Tensor { dtype: Some(DType::F16), ..Tensor::named("t") };
    let mixed = vec![map("a").reads(x()).writes(half.clone()), map("b").reads(half).writes("y")];
    assert_eq!(run(mixed.clone(), Policy::Textbook).0, "different_types");
    assert_eq!(run(mixed, Policy::ByCost).0, "fused");
    // Registers: up to the device's own limit.
    let heavy =
        |registers: f64| vec![map("a").reads(x()).writes("t").registers(registers), map("b").reads("t").writes("y")];
    assert_eq!(run(heavy(60.0), Policy::Textbook).0, "register_pressure");
    assert_eq!(run(heavy(60.0), Policy::ByCost).0, "fused");
    assert_eq!(run(heavy(300.0), Policy::ByCost).0, "register_pressure");
}

#[test]
fn what_cannot_be_one_kernel_stays_apart() {
    let reason = |operations: Vec<Operation>| {
        let analysis = analyzer(operations).analyze(spec("cpu")).unwrap();
        match &analysis.candidate("a", "c").unwrap().verdict {
            Verdict::KeepApart(reason) => (reason.name(), reason.to_string()),
            verdict => panic!("{verdict:?}"),
        }
    };
    let map = |name: &str| Operation::new(name).elementwise();
    let a = || map("a").reads(Tensor::of_bytes("x", 4e6)).writes("t");
    let sort = Operation::new("c").reads("t").writes("y").class(Class::Opaque);
    assert_eq!(reason(vec![a(), sort]).0, "opaque");
    let branch = Operation::new("c").reads("t").writes("y").class(Class::Control);
    assert_eq!(reason(vec![a(), branch]).0, "control_flow");
    // a → sort → c: whoever takes a and c must have sort too.
    let sort = Operation::new("sort").reads("t").writes("u").class(Class::Opaque);
    let around = vec![a(), sort, map("c").reads("t").reads("u").writes("y")];
    assert_eq!(reason(around), ("between", "sort lies between them".to_string()));
    let product = |name: &str, x: &str, y: &str| Operation::new(name).reads(x).writes(y).compute_bound();
    assert_eq!(reason(vec![product("a", "x", "t"), product("c", "t", "y")]).0, "two_contractions");
}

#[test]
fn the_order_in_which_operations_are_given_does_not_matter() {
    let forward = analyzer(layernorm_gelu()).analyze(spec("cpu")).unwrap();
    let backward = analyzer(layernorm_gelu().into_iter().rev().collect()).analyze(spec("cpu")).unwrap();
    assert_eq!(forward, backward);
}

#[test]
fn contradictions_are_errors_with_their_place() {
    let refused = |operations: Vec<Operation>| {
        let error = analyzer(operations).analyze(spec("cpu")).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        error.to_string()
    };
    let op = |name: &str, x: &str, y: &str| Operation::new(name).reads(x).writes(y);
    assert!(refused(vec![op("a", "x", "y"), op("a", "y", "z")]).ends_with("two operations are called \"a\""));
    assert!(refused(vec![op("a", "x", "y"), op("b", "x", "y")]).ends_with("\"y\" is written by \"a\" and by \"b\""));
    assert!(
        refused(vec![op("a", "x", "y"), op("b", "y", "x")]).ends_with("these operations wait for each other: a, b")
    );
    assert!(refused(vec![op("a", "x", "x")]).ends_with("these operations wait for each other: a"));
    assert!(refused(vec![Operation::new("a")]).ends_with("operation \"a\": it has no outputs"));
    assert!(refused(vec![op("", "x", "y")]).ends_with("an operation has no name"));
    let two = vec![op("a", "x", "y").reads(shaped("x", &[3])), op("b", "y", "z").reads(shaped("x", &[4]))];
    assert!(refused(two).contains("operation \"b\": tensor \"x\" is given a second time, with another shape"));
    let bytes = Tensor { bytes: Some(5.0), ..shaped("t", &[3]) };
    assert!(refused(vec![op("a", "x", "y").reads(bytes)]).ends_with("tensor \"t\" has 5 bytes, but its shape has 12"));
    assert!(refused(vec![op("a", "x", "y").flops(-1.0)]).contains("flops must be a number"));
    assert!(refused(vec![op("a", "x", "y").flops(1.0).intensity(1.0)]).contains("both given"));
    let huge = shaped("h", &[usize::MAX, 2]);
    assert!(refused(vec![op("a", "x", "y").reads(huge)]).ends_with("tensor \"h\" is too large"));
}

#[test]
fn shapes_fit_what_an_operation_is_said_to_do() {
    let run = |operation: Operation| analyzer(vec![operation]).analyze(spec("cpu")).map_err(|e| e.to_string());
    let from = |class: Class, inputs: &[&[usize]], output: &[usize]| {
        let operation = Operation::new("op").class(class).writes(shaped("y", output));
        let names = ["a", "b", "c"];
        inputs.iter().zip(names).fold(operation, |operation, (shape, name)| operation.reads(shaped(name, shape)))
    };
    type Shapes = &'static [&'static [usize]];
    let fits: &[(Class, Shapes, &[usize])] = &[
        (Class::Map, &[&[8, 64], &[64], &[1, 1], &[]], &[8, 64]),
        (Class::Reduce, &[&[8, 64]], &[8]),
        (Class::Reduce, &[&[8, 64], &[64]], &[8, 64]),
        (Class::Contract, &[&[8, 64], &[64, 32]], &[8, 32]),
        (Class::Contract, &[&[8, 64], &[32, 64], &[32]], &[8, 32]),
        (Class::Contract, &[&[2, 4, 64], &[64, 32]], &[8, 32]),
        (Class::Contract, &[&[64, 8], &[64, 32]], &[8, 32]),
        (Class::Contract, &[&[1, 3, 9, 9], &[8, 3, 3, 3]], &[1, 8, 7, 7]),
    ];
    for (class, inputs, output) in fits {
        run(from(*class, inputs, output)).unwrap();
    }
    let wrong: &[(Class, Shapes, &[usize], &str)] = &[
        (Class::Map, &[&[8, 64]], &[3, 5], "it is elementwise, but \"a\" [8, 64] does not fit \"y\" [3, 5]"),
        (Class::Map, &[&[8, 64], &[8]], &[8, 64], "\"b\" [8] does not fit \"y\" [8, 64]"),
        (Class::Map, &[&[1, 8, 64]], &[8, 64], "\"a\" [1, 8, 64] does not fit"),
        (Class::Reduce, &[&[8, 64]], &[8, 65], "it is a reduction, but \"y\" [8, 65] is larger than \"a\" [8, 64]"),
        (Class::Contract, &[&[8, 64], &[63, 32]], &[8, 32], "\"a\" [8, 64] times \"b\" [63, 32] is not \"y\" [8, 32]"),
        (Class::Contract, &[&[8, 64], &[64, 32]], &[8, 33], "is not \"y\" [8, 33]"),
    ];
    for (class, inputs, output, why) in wrong {
        let error = run(from(*class, inputs, output)).unwrap_err();
        assert!(error.contains("operation \"op\"") && error.contains(why), "{error}");
    }
    // Shapes that another operation gives count too.
    let first = Operation::new("first").reads("x").writes(shaped("t", &[8, 64]));
    let then = Operation::new("then").elementwise().reads("t").writes(shaped("y", &[8, 32]));
    let error = analyzer(vec![then, first]).analyze(spec("cpu")).unwrap_err().to_string();
    assert!(error.contains("operation \"then\""), "{error}");
}

/// Many operations with many readers are no more than many: nothing here may grow with the square of both.
#[test]
fn many_operations_are_analyzed() {
    let writer = |k: usize| {
        Operation::new(format!("w{k}"))
            .reads(shaped("x", &[8, 64]))
            .writes(shaped(&format!("t{k}"), &[8, 64]))
            .elementwise()
    };
    let reader = |k: usize| {
        let operation = Operation::new(format!("r{k}")).writes(shaped(&format!("z{k}"), &[8, 64])).elementwise();
        (0..60).fold(operation, |operation, t| operation.reads(format!("t{t}").as_str()))
    };
    let operations = (0..60).map(writer).chain((0..4).map(reader)).collect();
    let analysis = analyzer(operations).analyze(spec("h200")).unwrap();
    assert_eq!(analysis.candidates.len(), 60 * 4);
    let members: usize = analysis.groups.iter().map(|group| group.operations.len()).sum();
    assert_eq!(members, 64, "every operation is in one kernel");
    assert!(analysis.after.us <= analysis.before.us);
}

#[test]
fn nothing_is_analyzed_to_nothing() {
    let empty = Analyzer::new().analyze(spec("cpu")).unwrap();
    assert!(empty.candidates.is_empty() && empty.groups.is_empty());
    assert_eq!(empty.before, Totals::default());
    // Tensors without elements cost a launch.
    let none = analyzer(vec![
        Operation::new("a").reads(shaped("x", &[0, 4])).writes(shaped("t", &[0, 4])).elementwise(),
        Operation::new("b").reads("t").writes(shaped("y", &[0, 4])).class(Class::Contract),
    ]);
    for spec in DeviceSpec::all() {
        let analysis = none.analyze(spec).unwrap();
        assert!(analysis.before.us.is_finite() && analysis.before.us > 0.0);
        assert_eq!(analysis.candidates[0].verdict, Verdict::Fuse);
    }
}
