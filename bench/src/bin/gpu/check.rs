//! Outputs of the GPU against the reference: the gallery in several types and sizes, all spellings, random graphs, random plans, whole networks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fuseline::compare::Meaning;
use fuseline::compile::{PlannedProgram, plan_program};
use fuseline::device::{Executable, NamedTensors};
use fuseline::error::{Error, Result};
use fuseline::fuse::{Chooser, PlanOptions};
use fuseline::gallery;
use fuseline::graph::Graph;
use fuseline::passes::{Numerics, Precision};
use fuseline::reference::{Limits, Options, evaluate};
use fuseline::tensor::{DType, Env, Literal, Symbol};
use fuseline_cuda::run::CudaDevice;
use fuseline_frontend::npz::{ReadOptions, read_npz};
use fuseline_frontend::{Model, Tensors};
use fuseline_tests::attentions::attentions;
use fuseline_tests::generate::{Inputs, cases};
use fuseline_tests::ptx::GATED;
use fuseline_tests::spellings;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngSeed, TestRunner};

use crate::Arguments;
use crate::large::{LARGE, weigh_ends};

/// Attention of bf16 with a mask: the input `mask` of this type, how scores see it, and what a score `b` is with it, `a`.
fn masked(ty: &str, seen: &str, score: &str) -> String {
    format!(
        "
graph masked(q: bf16[b, 4, n, 64], k: bf16[b, 4, n, 64], v: bf16[b, 4, n, 64], mask: {ty}) {{
  %4 = map(q) f32(a) : f32[b, 4, n, 64]
  %5 = map(k) f32(a) : f32[b, 4, n, 64]
  %6 = contract(%4, %5) \"abce,abde->abcd\" acc=f32 : f32[b, 4, n, n]
  %7 = view mask{seen}[b, 4, n, n]
  %8 = map(%7, %6) {score} : f32[b, 4, n, n]
  %9 = reduce.max %8 axes=[3] : f32[b, 4, n]
  %10 = view %9[i0, i1, i2] : f32[b, 4, n, n]
  %11 = map(%8, %10) exp(a - b) : f32[b, 4, n, n]
  %12 = reduce.sum %11 axes=[3] : f32[b, 4, n]
  %13 = view %12[i0, i1, i2] : f32[b, 4, n, n]
  %14 = map(%11, %13) bf16(a / b) : bf16[b, 4, n, n]
  %15 = contract(%14, v) \"abce,abed->abcd\" acc=f32 : bf16[b, 4, n, 64]
  return y = %15
}}
"
    )
}

/// Attention with a mask that is added, read by packs of as many neighbours as its type and the number of keys allow.
fn added(dtype: DType) -> String {
    // A widening of what is wide already is no step.
    let wide = if dtype == DType::F32 { "a" } else { "f32(a)" };
    masked(&format!("{dtype}[b, n, n]"), &format!("[i0, i2, i3] : {dtype}"), &format!("{wide} + b * 0.125"))
}

/// Attention whose mask is a number and not −∞: a row that sees no key before its own attends to all, those behind it too.
fn sunk() -> String {
    let score = "select(and(i3 <= i2, a), f32(0.0), f32(-3.4028235e38)) + b * 0.125";
    masked("bool[b, n]", "[i0, i3] : bool", score)
}

/// A product whose rows begin anywhere in 16 bytes, so large that a library is asked for every eighth row, or every fourth.
const UNALIGNED: &str = "
graph unaligned(a: bf16[m, k], b: bf16[n, k]) {
  %2 = contract(a, b) \"ac,bc->ab\" acc=f32 : bf16[m, n]
  return y = %2
}
";
const UNALIGNED_WIDE: &str = "
graph unaligned(a: bf16[m, k], b: bf16[n, k]) {
  %2 = map(a) f32(a) : f32[m, k]
  %3 = map(b) f32(a) : f32[n, k]
  %4 = contract(%2, %3) \"ac,bc->ab\" acc=f32 : f32[m, n]
  return y = %4
}
";

/// Products of so many results that groups of warps take turns at tiles, as factors may lie: with rows along the sum and across it, alone and in
/// a batch; another tensor is read behind them, and two are stored.
const IN_TURNS: &[(&str, &str)] = &[
    ("[m, k]; [k, n]; [m, n]; ac,cb->ab", "m=1100,k=72,n=1000"),
    ("[m, k]; [n, k]; [m, n]; ac,bc->ab", "m=2049,k=200,n=520"),
    ("[k, m]; [k, n]; [m, n]; ca,cb->ab", "m=1096,k=137,n=1032"),
    ("[k, m]; [n, k]; [m, n]; ca,bc->ab", "m=4104,k=264,n=264"),
    ("[b, m, k]; [b, k, n]; [b, m, n]; zac,zcb->zab", "b=3,m=700,k=136,n=600"),
    ("[b, m, k]; [b, n, k]; [b, m, n]; zac,zbc->zab", "b=5,m=600,k=64,n=504"),
    ("[b, m, k]; [b, k, n]; [b, m, n]; zac,zcb->zab", "b=7,m=1030,k=330,n=1304"),
];

/// The text of such a product; where it is alone, nothing else is read for its results, which go another way then.
fn in_turns(shapes: &str, dtype: DType, is_alone: bool) -> String {
    let parts: Vec<&str> = shapes.split("; ").collect();
    let [left, right, result, subscripts] = [0, 1, 2, 3].map(|k| parts.get(k).copied().unwrap_or_default());
    if is_alone {
        return format!(
            "
graph alone(a: {dtype}{left}, b: {dtype}{right}) {{
  %2 = contract(a, b) \"{subscripts}\" acc=f32 : {dtype}{result}
  %3 = map(%2) {dtype}(exp(f32(a) * -0.125)) : {dtype}{result}
  return y = %3
}}
"
        );
    }
    format!(
        "
graph turns(a: {dtype}{left}, b: {dtype}{right}, c: {dtype}{result}) {{
  %3 = contract(a, b) \"{subscripts}\" acc=f32 : {dtype}{result}
  %4 = map(%3, c) {dtype}(max(f32(a), f32(b))) : {dtype}{result}
  %5 = map(%3, c) f32(a) * f32(b) : f32{result}
  return y = %4, z = %5
}}
"
    )
}

/// What comes behind products that a library computes with it, where it can: of a sum `t0` of the product `a`, a bias `b` and another tensor `c`.
const ACTIVATED: [&str; 5] = [
    "max(t0, 0.0)",
    "max(t0 + f32(c), 0.0)",
    "t0 + f32(c)",
    "t0 * sigmoid(t0 * 0.071354814 * (t0 * t0 + 22.363861))",
    "(t0 + f32(c)) * 0.5 * (1.0 + tanh(0.7978846 * (t0 + f32(c) + 0.044715 * (t0 + f32(c)) * (t0 + f32(c)) * (t0 + f32(c)))))",
];

/// The text of such a product.
fn activated(behind: &str, dtype: DType) -> String {
    let (input, operand) =
        if behind.contains("(c)") { (format!(", other: {dtype}[m, n]"), ", other") } else { Default::default() };
    format!(
        "
graph activated(x: {dtype}[m, k], w: {dtype}[k, n], bias: {dtype}[n]{input}) {{
  %4 = contract(x, w) \"ac,cb->ab\" acc=f32 : {dtype}[m, n]
  %5 = view bias[i1] : {dtype}[m, n]
  %6 = map(%4, %5{operand}) {{ t0 = f32(a) + f32(b); {dtype}({behind}) }} : {dtype}[m, n]
  return y = %6
}}
"
    )
}

/// What came out so far.
struct Tally<'a> {
    arguments: &'a Arguments,
    device: CudaDevice,
    right: usize,
    wrong: Vec<String>,
    /// kernels that the host ran because there is no code for them
    refused: Vec<String>,
}

/// Checks everything; whether all is right.
pub fn check(arguments: &Arguments) -> Result<bool> {
    let device = arguments.device()?;
    println!("{:?}", device.description());
    let mut tally = Tally { arguments, device, right: 0, wrong: Vec::new(), refused: Vec::new() };
    for entry in gallery::all() {
        for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64] {
            for (label, scale) in [("usual", None), ("odd", Some([3, 37, 5, 33])), ("wide", Some([5, 1000, 3, 520]))] {
                let name = format!("gallery {} {dtype} {label}", entry.name);
                let sizes = entry.sizes.iter().enumerate().map(|(k, (name, usual))| {
                    let size = scale.map_or(*usual, |scale| {
                        if *name == "n" || *name == "columns" { scale[1] } else { scale[k % 4].min(*usual) }
                    });
                    (Symbol::name(name), size.min(2048))
                });
                let env: Env = sizes.collect();
                let Ok(graph) = entry.graph(dtype) else { continue };
                let inputs = numbers(&graph, &env, entry.positive);
                tally.holds(&name, &graph, &inputs, &env, Chooser::ByCost, Numerics::Default);
            }
        }
    }
    // Large enough for a library, and for tiles of all kinds.
    for (name, sizes) in LARGE {
        for dtype in [DType::BF16, DType::F16, DType::F32] {
            let entry = gallery::find(name).ok_or_else(|| Error::bug(format!("the gallery has no {name}")))?;
            let env: Env = sizes.split(',').filter_map(crate::time::size).collect();
            let graph = entry.graph(dtype)?;
            let name = format!("large {name} {sizes} {dtype}");
            if arguments.wants(&name) {
                let inputs = weigh_ends(small_numbers(&graph, &env), &env)?;
                tally.holds(&name, &graph, &inputs, &env, Chooser::ByCost, Numerics::Default);
            }
        }
    }
    for columns in [50_001, 20_001, 50_000] {
        let env: Env = [(Symbol::name("rows"), 5), (Symbol::name("columns"), columns)].into_iter().collect();
        let (graph, name) = (Graph::parse(GATED)?, format!("large gated softmax rows=5,columns={columns}"));
        if arguments.wants(&name) {
            let inputs = weigh_ends(small_numbers(&graph, &env), &env)?;
            tally.holds(&name, &graph, &inputs, &env, Chooser::ByCost, Numerics::Default);
        }
    }
    for (dtype, n) in [(DType::BF16, 256), (DType::BF16, 200), (DType::F32, 384), (DType::F32, 260), (DType::BF16, 257)]
    {
        let env: Env = [(Symbol::name("b"), 3), (Symbol::name("n"), n)].into_iter().collect();
        let graph = Graph::parse(&added(dtype))?;
        let mut inputs = small_numbers(&graph, &env);
        let value = |k: i64| if k * 7919 % 11 < 3 { f64::NEG_INFINITY } else { (k * 31 % 257) as f64 / 64.0 - 2.0 };
        let values: Vec<f64> = (0..3 * n * n).map(value).collect();
        let sizes = vec![3, n as usize, n as usize];
        inputs.insert("mask".into(), Literal::from_f64s(dtype, sizes, &values)?);
        let name = format!("large attention with an added mask {n} {dtype}");
        if arguments.wants(&name) {
            tally.holds(&name, &graph, &inputs, &env, Chooser::ByCost, Numerics::Default);
        }
    }
    for sizes in ["b=3,n=320", "b=2,n=1000"] {
        let env: Env = sizes.split(',').filter_map(crate::time::size).collect();
        let graph = Graph::parse(&sunk())?;
        let mut inputs = small_numbers(&graph, &env);
        // The first rows of all batches see nothing, and all of the last one.
        let keep =
            |b: i64, n: i64| (0..b * n).map(move |k| f64::from(k % n >= 70 && k / n + 1 < b)).collect::<Vec<f64>>();
        let (b, n) = (env.get(&Symbol::name("b")).unwrap_or(1), env.get(&Symbol::name("n")).unwrap_or(1));
        inputs.insert("mask".into(), Literal::from_f64s(DType::Bool, vec![b as usize, n as usize], &keep(b, n))?);
        let name = format!("large sunk attention {sizes}");
        if arguments.wants(&name) {
            tally.holds(&name, &graph, &inputs, &env, Chooser::ByCost, Numerics::Default);
        }
    }
    // Rows that are far from 0, of which one begins with a number that is far from all others.
    for dtype in [DType::BF16, DType::F16, DType::F32] {
        let (rows, columns) = (300, 2048);
        let entry =
            gallery::find("layernorm_gelu_backward").ok_or_else(|| Error::bug("the gallery has no such graph"))?;
        let env: Env = [(Symbol::name("rows"), rows), (Symbol::name("columns"), columns)].into_iter().collect();
        let graph = entry.graph(dtype)?;
        let mut inputs = small_numbers(&graph, &env);
        let value = |k: i64| match (k / columns, k % columns) {
            (3, 0) => 500.0,
            (row, at) => (at * 7919 % 257) as f64 / 64.0 + (row % 7 * 10) as f64,
        };
        let values: Vec<f64> = (0..rows * columns).map(value).collect();
        inputs.insert("x".into(), Literal::from_f64s(dtype, vec![rows as usize, columns as usize], &values)?);
        let name = format!("large layernorm_gelu_backward far from 0 {dtype}");
        if arguments.wants(&name) {
            tally.holds(&name, &graph, &inputs, &env, Chooser::ByCost, Numerics::Default);
        }
    }
    for (columns, dtype) in [(65_536, DType::BF16), (100_000, DType::F16), (40_000, DType::BF16)] {
        let entry = gallery::find("softmax").ok_or_else(|| Error::bug("the gallery has no softmax"))?;
        let env: Env = [(Symbol::name("rows"), 3), (Symbol::name("columns"), columns)].into_iter().collect();
        let graph = entry.graph(dtype)?;
        // Most threads see nothing but −∞: in the first row all but the first eight numbers are, in the second all but the last, in the third none.
        let value = |k: i64| match (k / columns, k % columns) {
            (0, 8..) => f64::NEG_INFINITY,
            (1, at) if at + 1 < columns => f64::NEG_INFINITY,
            (_, at) => (at * 7919 % 257) as f64 / 16.0 - 8.0,
        };
        let values: Vec<f64> = (0..3 * columns).map(value).collect();
        let input = graph.input_name(graph.inputs()[0]).clone();
        let literal = Literal::from_f64s(dtype, vec![3, columns as usize], &values)?;
        let name = format!("large hidden softmax {columns} {dtype}");
        if arguments.wants(&name) {
            let inputs: Inputs = [(input, literal)].into_iter().collect();
            tally.holds(&name, &graph, &inputs, &env, Chooser::ByCost, Numerics::Default);
        }
    }
    for sizes in ["m=1030,k=520,n=1001", "m=515,k=768,n=1030", "m=600,k=520,n=1100", "m=2000,k=768,n=774"] {
        let env: Env = sizes.split(',').filter_map(crate::time::size).collect();
        for (label, text) in [("bf16", UNALIGNED), ("f32", UNALIGNED_WIDE)] {
            let (graph, name) = (Graph::parse(text)?, format!("large unaligned product {sizes} {label}"));
            if arguments.wants(&name) {
                tally.holds(&name, &graph, &small_numbers(&graph, &env), &env, Chooser::ByCost, Numerics::Default);
            }
        }
    }
    for (shapes, sizes) in IN_TURNS {
        let env: Env = sizes.split(',').filter_map(crate::time::size).collect();
        for (dtype, is_alone) in [(DType::BF16, false), (DType::F16, false), (DType::BF16, true), (DType::F16, true)] {
            let alone = if is_alone { "alone " } else { "" };
            // With sizes that are given, and with those that the text has.
            let text = in_turns(shapes, dtype, is_alone);
            let sized = |text: String, size: &str| {
                let (name, number) = size.split_once('=').unwrap_or_default();
                text.replace(&format!("[{name},"), &format!("[{number},"))
                    .replace(&format!(" {name},"), &format!(" {number},"))
                    .replace(&format!(" {name}]"), &format!(" {number}]"))
            };
            let fixed = sizes.split(',').fold(text.clone(), sized);
            for (kind, text) in [("", text), ("fixed ", fixed)] {
                let (graph, name) =
                    (Graph::parse(&text)?, format!("large in turns {kind}{alone}{shapes} {sizes} {dtype}"));
                if arguments.wants(&name) {
                    tally.holds(&name, &graph, &small_numbers(&graph, &env), &env, Chooser::ByCost, Numerics::Default);
                }
            }
        }
    }
    for sizes in ["m=600,k=3080,n=520", "m=1040,k=768,n=1032", "m=520,k=520,n=4104"] {
        let env: Env = sizes.split(',').filter_map(crate::time::size).collect();
        for (behind, dtype) in ACTIVATED.iter().flat_map(|behind| [(behind, DType::BF16), (behind, DType::F16)]) {
            let graph = Graph::parse(&activated(behind, dtype))?;
            let name = format!("large activated {behind} {sizes} {dtype}");
            if arguments.wants(&name) {
                tally.holds(&name, &graph, &small_numbers(&graph, &env), &env, Chooser::ByCost, Numerics::Default);
            }
        }
    }
    for row in spellings::all() {
        let name = format!("spelling {} {} {}", row.family, row.class, row.name);
        let graph = row.graph()?;
        let inputs = spellings::inputs(&graph);
        for chooser in [Chooser::ByCost, Chooser::AtRandom(1)] {
            tally.holds(&name, &graph, &inputs, &Env::new(), chooser, Numerics::Default);
        }
    }
    let mut runner =
        TestRunner::new(Config { rng_seed: RngSeed::Fixed(7), failure_persistence: None, ..Config::default() });
    for k in 0..arguments.graphs {
        let drawn =
            if k % 4 == 3 { attentions().boxed().new_tree(&mut runner) } else { cases().boxed().new_tree(&mut runner) };
        let case = drawn.map_err(|error| Error::bug(error.to_string()))?.current();
        let numerics = if k % 2 == 0 { Numerics::Default } else { Numerics::Strict };
        for chooser in [Chooser::ByCost, Chooser::AtRandom(u64::from(k))] {
            tally.holds(&format!("random {k}"), &case.graph, &case.inputs, &Env::new(), chooser, numerics);
        }
    }
    if let Some(folder) = &arguments.models {
        tally.models(folder)?;
    }
    for line in &tally.refused {
        println!("run by the host: {line}");
    }
    println!("{} right, {} wrong", tally.right, tally.wrong.len());
    Ok(tally.wrong.is_empty())
}

impl Tally<'_> {
    /// Whole networks: every NAME.K.npz holds inputs of NAME.onnx.
    fn models(&mut self, folder: &Path) -> Result<()> {
        let unreadable = |error: std::io::Error| Error::invalid(format!("{}: {error}", folder.display()));
        let files = std::fs::read_dir(folder).map_err(unreadable)?.flatten().map(|entry| entry.path());
        let mut files: Vec<PathBuf> = files.filter(|file| file.extension().is_some_and(|e| e == "npz")).collect();
        files.sort();
        for file in files {
            let name = format!("model {}", file.file_stem().unwrap_or_default().to_string_lossy());
            let model = Model::open(file.with_extension("").with_extension("onnx"))?;
            let takes = |name: &str| model.signature().inputs.iter().any(|port| port.name == name);
            let inputs = read_npz(&file, &ReadOptions::default())?.into_iter().filter(|(name, _)| takes(name));
            let inputs: Tensors = inputs.collect();
            model.specialise(&inputs, |special| {
                let given: Inputs = special.inputs.iter().map(|(n, x)| (n.as_str().into(), x.clone())).collect();
                self.holds(&name, special.graph, &given, &Env::new(), Chooser::ByCost, Numerics::Default);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Plans a graph, runs it on the GPU, and compares with what it means.
    fn holds(&mut self, name: &str, graph: &Graph, inputs: &Inputs, env: &Env, chooser: Chooser, numerics: Numerics) {
        if !self.arguments.wants(name) {
            return;
        }
        let what = format!("{name} {chooser:?} {numerics:?}");
        let outcome = catch_unwind(AssertUnwindSafe(|| self.compare(graph, inputs, env, chooser, numerics)));
        match outcome.unwrap_or_else(|_| Err(Error::bug("a panic"))) {
            Ok(refused) => {
                self.right += 1;
                for line in refused {
                    if !self.refused.contains(&line) {
                        self.refused.push(line);
                    }
                }
            }
            Err(error) => {
                println!("WRONG {what}: {error}");
                self.wrong.push(what);
            }
        }
    }

    fn compare(
        &self,
        graph: &Graph,
        inputs: &Inputs,
        env: &Env,
        chooser: Chooser,
        numerics: Numerics,
    ) -> Result<Vec<String>> {
        // Strict numerics round nothing that the graph does not.
        let precision = if numerics == Numerics::Strict { Precision::F32 } else { self.arguments.precision };
        let mut options = PlanOptions { chooser, numerics, precision, ..PlanOptions::on(self.arguments.spec()?) };
        options.hints.env = env.clone();
        let planned = plan_program(graph.clone(), &options, &mut |_| {})?;
        let session = self.device.load(&planned)?;
        let given: NamedTensors = inputs.iter().map(|(name, literal)| (Arc::clone(name), literal.clone())).collect();
        // The second run launches what the first has recorded.
        session.run(&given)?;
        let outputs = session.run(&given)?;
        let meaning = match precision {
            Precision::F32 => Meaning::of(graph, inputs, Limits::default())?,
            _ => meaning_as_rounded(&planned, inputs)?,
        };
        let kernels = || planned.run.kernels.iter().map(|k| k.kernel.to_string()).collect::<String>();
        meaning.check(&outputs).map_err(|(k, why)| Error::bug(format!("output {k}: {why}\n{}", kernels())))?;
        Ok(session.refused())
    }
}

/// What the outputs of a program should be, with the roundings that were asked for.
fn meaning_as_rounded(planned: &PlannedProgram, inputs: &Inputs) -> Result<Meaning> {
    let prepare = planned.program.prepare();
    let prepared = evaluate(prepare, &Inputs::default(), &Options::default())?;
    let mut given = inputs.clone();
    given.extend(prepare.outputs().iter().map(|output| output.name.clone()).zip(prepared));
    Meaning::of(planned.program.run(), &given, Limits::default())
}

/// The same, so small that long sums of products are numbers of f16.
fn small_numbers(graph: &Graph, env: &Env) -> Inputs {
    let shrunk = |literal: &Literal| {
        let values: Vec<f64> = (0..literal.count()).map(|k| literal.float(k) / 16.0).collect();
        Literal::from_f64s(literal.dtype(), literal.sizes().to_vec(), &values).expect("as many values as before")
    };
    numbers(graph, env, &[]).iter().map(|(name, literal)| (name.clone(), shrunk(literal))).collect()
}

/// Numbers that look random, different for every input, exact in every float type.
fn numbers(graph: &Graph, env: &Env, positive: &[&str]) -> Inputs {
    let mut state = 12345u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as i64 % 65 - 32
    };
    let input = |value: &fuseline::graph::Value| {
        let (name, ty) = (graph.input_name(*value), graph.ty(*value));
        let sizes = ty.shape.eval(env).expect("the gallery says its sizes");
        let values = (0..sizes.iter().product()).map(|_| match ty.dtype {
            DType::Bool => (next() > 0) as i64 as f64,
            // Small, so that sums of products are numbers of f16 too.
            DType::I8 => (next() / 8) as f64,
            _ if positive.contains(&name.as_ref()) => (next().abs() + 1) as f64 / 16.0,
            _ => next() as f64 / 16.0,
        });
        let values: Vec<f64> = values.collect();
        (name.clone(), Literal::from_f64s(ty.dtype, sizes, &values).expect("as many values as the sizes say"))
    };
    graph.inputs().iter().map(input).collect()
}
