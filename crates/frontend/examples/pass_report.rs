//! What the passes make of models, and how long they take:
//! `cargo run --release -p fuseline-frontend --example pass_report -- model.onnx …`
//!
//! With `--rewrites`, all rewrites are applied too; with `--print`, also the graph that is left; with `--run`, both graphs
//! run in the reference on made-up inputs and are compared.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

use fuseline::compare::{Agreed, Agreement, Tolerance, compare};
use fuseline::device::{Device, NamedTensors, ReferenceDevice};
use fuseline::error::Result;
use fuseline::graph::Graph;
use fuseline::passes::{Context, Step, run_passes};
use fuseline::program::Program;
use fuseline::reference::{Options, evaluate};
use fuseline::rewrites::{Permit, Refusal, apply_rewrites};
use fuseline::tensor::{Env, Literal, Symbol};
use fuseline_frontend::Model;

fn main() -> Result<()> {
    let (options, files): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|a| a.starts_with("--"));
    for file in &files {
        let start = Instant::now();
        let model = Model::open(file)?;
        let graph = match model.graph() {
            Ok(graph) => graph.clone(),
            Err(error) => {
                println!("{file}: {error}");
                continue;
            }
        };
        let before = graph.clone();
        println!("{file}: {} nodes, imported in {:.0} ms", graph.nodes().len(), start.elapsed().as_secs_f64() * 1e3);
        println!("  before  {}", counts(&graph));
        let mut clock = Clock::new();
        let plain = run_passes(graph, &Context::default(), &mut |step| clock.lap(step))?;
        println!("  after   {}", counts(&plain));
        println!("  passes  {clock}");
        let plain = if options.iter().any(|o| o == "--rewrites") { rewritten(plain)? } else { plain };
        let program = Program::new(&plain)?;
        println!("  prepare {}", counts(program.prepare()));
        if options.iter().any(|o| o == "--print") {
            println!("{}", program.run());
        }
        if options.iter().any(|o| o == "--run") {
            compare_runs(&before, &program)?;
        }
    }
    Ok(())
}

/// The time that every pass and rewrite took.
struct Clock {
    spent: BTreeMap<&'static str, (f64, usize)>,
    rounds: usize,
    last: Instant,
}

impl Clock {
    fn new() -> Clock {
        Clock { spent: BTreeMap::new(), rounds: 0, last: Instant::now() }
    }

    fn lap(&mut self, step: &Step<'_>) {
        let entry = self.spent.entry(step.pass).or_default();
        entry.0 += self.last.elapsed().as_secs_f64() * 1e3;
        entry.1 += usize::from(step.changed);
        self.rounds = self.rounds.max(step.round + 1);
        self.last = Instant::now();
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: f64 = self.spent.values().map(|(ms, _)| ms).sum();
        write!(f, "{} rounds, {all:.0} ms", self.rounds)?;
        self.spent.iter().try_for_each(|(pass, (ms, n))| write!(f, ", {pass} {ms:.1} ms ({n} changes)"))
    }
}

/// The graph after all rewrites; how often each was applied and refused.
fn rewritten(graph: Graph) -> Result<Graph> {
    let mut clock = Clock::new();
    let mut permit = Permit::everything();
    let graph = apply_rewrites(graph, &Context::default(), &mut permit, &mut |step| clock.lap(step))?;
    let mut applied: BTreeMap<(&str, Option<Refusal>), usize> = BTreeMap::new();
    for application in permit.applications() {
        *applied.entry((application.rule, application.refused)).or_default() += 1;
    }
    let list: Vec<String> = applied
        .iter()
        .map(|((rule, refused), n)| match refused {
            Some(why) => format!("{n} {rule} refused ({why})"),
            None => format!("{n} {rule}"),
        })
        .collect();
    println!("  rewrites {clock}");
    println!("  applied {}", list.join(", "));
    println!("  after   {}", counts(&graph));
    Ok(graph)
}

/// Runs the original graph and the program on made-up inputs; free sizes are 8.
fn compare_runs(before: &Graph, program: &Program) -> Result<()> {
    let mut env = Env::new();
    before.for_each_dim(&mut |dim| {
        dim.for_each_symbol(&mut |s| {
            if let Symbol::Name(_) = s {
                env.bind(s.clone(), 8);
            }
        });
    });
    let mut inputs = NamedTensors::new();
    for value in before.inputs() {
        let ty = before.ty(*value);
        let sizes = ty.shape.eval(&env)?;
        let count: usize = sizes.iter().product();
        let element =
            |k: usize| if ty.dtype.is_float() { (k * 7919 % 1009) as f64 / 504.0 - 1.0 } else { (k % 2) as f64 };
        let values: Vec<f64> = (0..count).map(element).collect();
        inputs.insert(before.input_name(*value).clone(), Literal::from_f64s(ty.dtype, sizes, &values)?);
    }
    let start = Instant::now();
    let all = inputs.iter().map(|(name, literal)| (name.clone(), literal.clone())).collect();
    let expected = evaluate(before, &all, &Options::default())?;
    let first = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let loaded = ReferenceDevice::default().load(program)?;
    let actual = loaded.run(&inputs)?;
    println!("  run     {first:.2} s before, {:.2} s after", start.elapsed().as_secs_f64());
    for (k, (e, a)) in expected.iter().zip(&actual).enumerate() {
        let tolerance = Tolerance::of_output(before, k, &env);
        let name = &before.outputs()[k].name;
        match compare(e, a, &Agreement::Within(tolerance)) {
            Ok(Agreed { worst: Some(worst), .. }) => println!("  output  {name} {}: agrees, worst {worst}", e.ty()),
            Ok(Agreed { worst: None, .. }) => println!("  output  {name} {}: equal", e.ty()),
            Err(mismatch) => println!("  output  {name} {}: DIFFERS, {mismatch}", e.ty()),
        }
    }
    Ok(())
}

fn counts(graph: &Graph) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for node in graph.nodes() {
        *counts.entry(node.prim().name()).or_default() += 1;
    }
    let list: Vec<String> = counts.iter().map(|(name, n)| format!("{n} {name}")).collect();
    format!("{} nodes: {}", graph.nodes().len(), list.join(", "))
}
