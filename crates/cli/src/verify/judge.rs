//! Who is right, and who is not.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fuseline::compare::{Agreed, Meaning, Mismatch, Stepped, Worst};
use fuseline::compile::{Grain, PlannedProgram, plan_apart, plan_program};
use fuseline::device::{Device as _, NamedTensors, ReferenceDevice};
use fuseline::error::{Context, Result};
use fuseline::explain::{KernelRow, kernel_rows};
use fuseline::fuse::{Chooser, PlanOptions};
use fuseline::graph::{Graph, Value};
use fuseline::passes::{Numerics, Precision};
use fuseline::reference::{self, Limits, Reading};
use fuseline::run::{Case, Trace};
use fuseline::tensor::{DType, Literal};
use fuseline_cpu::code::Isa;
use fuseline_cpu::run::CpuDevice;
use rustc_hash::FxHashMap;

use crate::arguments::Measuring;
use crate::machine::Machine;
use crate::waiting::Waiting;

/// So many orders of sums are drawn to see whether passes move one out of the range of its type.
const ORDERS: u32 = 8;

/// What is judged, and on what.
pub struct Setting<'a> {
    pub graph: &'a Graph,
    pub inputs: &'a NamedTensors,
    pub plan: &'a PlanOptions,
    pub machine: &'a Machine,
    pub device: Measuring,
    pub waiting: &'a Waiting,
}

/// A value that was compared with what it should be.
#[derive(Clone, Debug)]
pub struct Check {
    /// what it is called
    pub value: String,
    pub dtype: DType,
    pub outcome: std::result::Result<Agreed, Mismatch>,
}

impl Check {
    /// The element that is farthest off; none where all are equal, or where nothing could be compared.
    pub fn worst(&self) -> Option<&Worst> {
        match &self.outcome {
            Ok(agreed) => agreed.worst.as_ref(),
            Err(Mismatch::Elements { worst, .. }) => Some(worst),
            Err(Mismatch::Types { .. }) => None,
        }
    }

    /// Whether it differs, or agrees only because roundings become much on the way.
    fn is_beyond_tolerance(&self) -> bool {
        self.outcome.as_ref().map_or(true, |agreed| agreed.is_steep)
    }

    /// Whether an infinity or NaN stands where a number should, or the other way round.
    pub fn leaves_range(&self) -> bool {
        self.outcome.is_err()
            && self.worst().is_some_and(|worst| !(worst.actual.is_finite() && worst.expected.is_finite()))
    }

    /// Elements that are right because the smallest error decides between two results.
    pub fn stepped(&self) -> Option<&Stepped> {
        self.outcome.as_ref().ok().and_then(|agreed| agreed.stepped.as_ref())
    }

    /// How much of what is allowed is used; over 1 where it differs.
    pub fn used(&self) -> f64 {
        match &self.outcome {
            Ok(agreed) => agreed.worst.as_ref().map_or(0.0, |worst| worst.used().min(1.0)),
            Err(_) => self.worst().map_or(f64::INFINITY, Worst::used),
        }
    }
}

/// A fused kernel, judged by what it read and stored.
pub struct KernelVerdict {
    /// its place in the plan
    pub number: usize,
    pub row: KernelRow,
    /// the interpreter of kernels
    pub interpreted: Check,
    /// the device
    pub fused: Check,
    /// whether the device leaves the range of a type, and so does the interpreter with every step rounded: then the order of the steps is to blame
    pub leaves_range: bool,
    /// its nodes one by one, on a processor; none where there is but one, or why that could not be run
    pub unfused: Option<Result<Check>>,
}

/// The first stage whose result differs from that of its neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// what passes and rewrites make of the graph
    Passes,
    /// the constants that are computed once
    Prepared,
    /// the kernel of this number of the list, as its own interpreter reads it
    Lowering(usize),
    /// the code that the device runs for it
    Code(usize),
    /// every kernel is right, and the outputs are not
    Run,
    /// the plan without fusion
    Unfused,
    /// the model as it is written: where every operation rounds, it comes to something else than exact arithmetic
    Written,
}

/// What was found on a device.
pub struct Verdict {
    pub device: Measuring,
    pub target: String,
    pub threads: usize,
    /// the outputs of the graph after passes and rewrites, on the reference
    pub passes: Vec<Check>,
    /// how far the outputs are from those of the model as it is written because the user asked for rounding
    pub rounding: Vec<Check>,
    /// what was computed once, if there is any
    pub prepared: Option<Check>,
    pub kernels: Vec<KernelVerdict>,
    /// the outputs of the fused plan
    pub fused: Vec<Check>,
    /// the outputs of one kernel per node
    pub unfused: Vec<Check>,
    /// kernels that had no code and were interpreted
    pub without_code: Vec<String>,
    /// whether the model comes to something else where every operation rounds, as it is written, than with exact arithmetic
    pub is_rounded: bool,
    pub guilty: Option<Stage>,
    /// what the plan that was judged may do
    pub numerics: Numerics,
    /// whether a plan that rearranges no arithmetic agrees, where the one that was judged does not and may
    pub strict_agrees: Option<bool>,
}

/// Plans the graph, runs everything and compares neighbours.
pub fn judge(setting: &Setting<'_>) -> Result<Verdict> {
    setting.waiting.say("planning".into());
    judge_planned(setting, &plan_program(setting.graph.clone(), setting.plan, &mut |_| {})?)
}

fn judge_planned(setting: &Setting<'_>, planned: &PlannedProgram) -> Result<Verdict> {
    let Setting { graph, inputs, plan, machine, device, waiting } = *setting;
    let given: FxHashMap<Arc<str>, Literal> = inputs.iter().map(|(name, x)| (name.clone(), x.clone())).collect();
    let Meanings { meaning, after, passes, rounding } = meanings(setting, planned, &given)?;
    let checks = |outputs: &[Literal]| check_outputs(graph, &meaning, outputs);
    waiting.say(format!("running on {}", device.name()));
    let session = machine.load(planned)?;
    let fused_outputs = session.literals(inputs)?;
    let trace = session.run_traced(inputs)?;
    let without_code = session.refused();
    drop(session);
    let options = PlanOptions { chooser: Chooser::ByCost, ..plan.clone() };
    let apart = plan_apart(graph.clone(), &options, Grain::Operator)?;
    let unfused_outputs = machine.load(&apart)?.literals(inputs)?;
    let mut unfused = checks(&unfused_outputs);
    if plan.precision != Precision::F32 && unfused.iter().any(|check| check.outcome.is_err()) {
        // Where no rewrite has moved arithmetic, other numbers are factors, and these are rounded.
        waiting.say("the reference, with the roundings of the plan without fusion".into());
        unfused = check_outputs(graph, &with_roundings(&apart, &given)?, &unfused_outputs);
    }
    let prepared = judge_prepared(planned, &trace)?;
    let kernels = judge_kernels(setting, planned, &trace)?;
    let mut verdict = Verdict {
        device,
        target: plan.spec.name.clone(),
        threads: machine.threads(),
        passes,
        rounding,
        prepared,
        kernels,
        fused: checks(&fused_outputs),
        unfused,
        without_code,
        is_rounded: false,
        guilty: None,
        numerics: plan.numerics,
        strict_agrees: None,
    };
    verdict.guilty = verdict.find_guilty();
    let is_steep = verdict.fused.iter().any(Check::is_beyond_tolerance);
    let mut meaning = meaning;
    if (verdict.guilty.is_some() || is_steep) && plan.precision == Precision::F32 {
        meaning = or_read(meaning, plan.numerics)?;
        verdict.reconsider(setting, planned, &meaning, [&after, &fused_outputs, &unfused_outputs])?;
    }
    let may_rearrange = plan.numerics != Numerics::Strict && plan.precision == Precision::F32;
    if verdict.guilty.is_some() && may_rearrange {
        verdict.strict_agrees = Some(strict_agrees(setting, &meaning)?);
    }
    Ok(verdict)
}

/// What an execution may come to besides: with every operation rounded, as a model is written; and, unless that was asked for, with numbers
/// of narrow types held wider also where a model converts to them.
pub fn or_read(meaning: Meaning, numerics: Numerics) -> Result<Meaning> {
    match numerics {
        Numerics::Strict => meaning.or_read(&[Reading::Rounded]),
        _ => meaning.or_read(&[Reading::Rounded, Reading::Held]),
    }
}

/// Whether the outputs are right where the graph is planned with its arithmetic as it is written.
fn strict_agrees(setting: &Setting<'_>, meaning: &Meaning) -> Result<bool> {
    let Setting { graph, inputs, plan, machine, device, waiting } = *setting;
    waiting.say(format!("running on {} with its arithmetic as it is written", device.name()));
    let strict = PlanOptions { numerics: Numerics::Strict, chooser: Chooser::ByCost, ..plan.clone() };
    let outputs = machine.load(&plan_program(graph.clone(), &strict, &mut |_| {})?)?.literals(inputs)?;
    Ok(check_outputs(graph, meaning, &outputs).iter().all(|check| check.outcome.is_ok()))
}

/// What the outputs should be.
struct Meanings {
    /// what devices are compared with
    meaning: Meaning,
    /// what the graph gives after passes and rewrites
    after: Vec<Literal>,
    /// the graph after passes and rewrites, against the model as it is written
    passes: Vec<Check>,
    /// the model with the roundings that were asked for, against the model as it is written
    rounding: Vec<Check>,
}

/// Evaluates the model as it is written, and after passes and rewrites. Where a plan rounds more than the model does, devices are compared
/// with the graph that has these roundings.
fn meanings(setting: &Setting<'_>, planned: &PlannedProgram, given: &FxHashMap<Arc<str>, Literal>) -> Result<Meanings> {
    let Setting { graph, inputs, plan, .. } = setting;
    let options = reference::Options::default();
    let evaluations = if plan.precision == Precision::F32 { 2 } else { 3 };
    let say = |what: &str, done: usize| {
        setting.waiting.say(format!("the reference, {what}"));
        setting.waiting.done(done, evaluations);
    };
    say("as the model is written", 0);
    let meaning = Meaning::of(graph, given, options.limits)?;
    let is_strict = plan.numerics == Numerics::Strict;
    let meaning = if is_strict { meaning.as_written()? } else { meaning };
    say("behind passes and rewrites", 1);
    let after = |planned: &PlannedProgram| -> Result<(Vec<Literal>, Vec<Check>)> {
        let read = |reading: Reading| {
            let outputs = ReferenceDevice { options: reference::Options { reading, ..options } };
            let outputs = outputs.load(&planned.program)?.run(inputs)?;
            let checks = check_outputs(graph, &meaning, &outputs);
            Ok((outputs, checks))
        };
        match read(Reading::Exact)? {
            // What leaves the range of its type where every operation rounds does not do so exactly.
            (_, checks) if is_strict && checks.iter().any(|check| check.outcome.is_err()) => read(Reading::Rounded),
            exact => Ok(exact),
        }
    };
    if plan.precision == Precision::F32 {
        let (after, passes) = after(planned)?;
        return Ok(Meanings { meaning, after, passes, rounding: Vec::new() });
    }
    let exact = PlanOptions { precision: Precision::F32, chooser: Chooser::ByCost, ..(*plan).clone() };
    let (after, mut passes) = after(&plan_program((*graph).clone(), &exact, &mut |_| {})?)?;
    if passes.iter().any(|check| check.outcome.is_err()) {
        // What leaves the range of a type as it is written need not do so behind passes.
        passes = check_outputs(graph, &or_read(meaning.clone(), plan.numerics)?, &after);
    }
    say("with the roundings that were asked for", 2);
    let rounded = with_roundings(planned, given)?;
    let rounding = check_outputs(graph, &meaning, rounded.outputs());
    Ok(Meanings { meaning: rounded, after, passes, rounding })
}

/// What a plan means with the roundings that were asked for, which its graph has.
fn with_roundings(planned: &PlannedProgram, given: &FxHashMap<Arc<str>, Literal>) -> Result<Meaning> {
    let (options, prepare) = (reference::Options::default(), planned.program.prepare());
    let prepared = reference::evaluate(prepare, &FxHashMap::default(), &options)?;
    let names = prepare.outputs().iter().map(|output| output.name.clone());
    let all = given.iter().map(|(name, x)| (name.clone(), x.clone())).chain(names.zip(prepared)).collect();
    Meaning::of(planned.program.run(), &all, options.limits)
}

fn check_outputs(graph: &Graph, meaning: &Meaning, outputs: &[Literal]) -> Vec<Check> {
    let names = graph.outputs().iter().map(|output| output.name.to_string()).enumerate();
    names.map(|(k, name)| check(name, meaning, k, &outputs[k])).collect()
}

/// The constants that the device has computed.
fn judge_prepared(planned: &PlannedProgram, trace: &Trace) -> Result<Option<Check>> {
    let prepare = planned.program.prepare();
    if prepare.outputs().is_empty() {
        return Ok(None);
    }
    let meaning = Meaning::of(prepare, &FxHashMap::default(), Limits::default()).at(|| "what is prepared")?;
    let names = prepare.outputs().iter().map(|output| name_of(prepare, output.value));
    let first = trace.inputs.len() - prepare.outputs().len();
    let checks = names.enumerate().map(|(k, name)| check(name, &meaning, k, &trace.inputs[first + k]));
    Ok(worst_of(checks))
}

/// All kernels of the plan, as many at a time as there are processors.
fn judge_kernels(setting: &Setting<'_>, planned: &PlannedProgram, trace: &Trace) -> Result<Vec<KernelVerdict>> {
    let graph = planned.program.run();
    let rows = kernel_rows(graph, &planned.run, setting.plan);
    let cases = trace.cases(graph, &planned.run)?;
    let alone = match setting.device {
        Measuring::Cpu => Some(CpuDevice::new(Isa::detect(), 1, setting.plan.clone(), Limits::default())?),
        Measuring::Cuda => None,
    };
    let done: Vec<Mutex<Option<Result<KernelVerdict>>>> = cases.iter().map(|_| Mutex::default()).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((k, case)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let place = cases.iter().position(|(other, _)| other == k).unwrap_or_default();
            setting.waiting.say(format!("judging kernel {} of {}", place + 1, cases.len()));
            setting.waiting.done(place, cases.len());
            let verdict = judge_kernel(graph, *k, &rows[*k], case, alone.as_ref(), setting.plan);
            let verdict = verdict.at(|| case.kernel.describe(*k, graph));
            *done[place].lock().unwrap_or_else(PoisonError::into_inner) = Some(verdict);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
        work();
    });
    let verdicts = done.into_iter().filter_map(|slot| slot.into_inner().unwrap_or_else(PoisonError::into_inner));
    verdicts.collect()
}

fn judge_kernel(
    graph: &Graph,
    number: usize,
    row: &KernelRow,
    case: &Case<'_>,
    alone: Option<&CpuDevice>,
    plan: &PlanOptions,
) -> Result<KernelVerdict> {
    let mut meaning = case.meaning(Limits::default())?;
    let compared = |meaning: &Meaning, stored: &[Literal]| {
        let values = case.kernel.outputs.iter().enumerate();
        let checks = values.map(|(k, value)| check(name_of(graph, *value), meaning, k, &stored[k]));
        worst_of(checks).ok_or_else(|| fuseline::error::Error::bug("a kernel that stores nothing"))
    };
    let interpreted = case.interpreted(Limits::default())?;
    let is_fused = case.kernel.members.len() > 1;
    let apart = alone.filter(|_| is_fused).map(|device| run_apart(case, device));
    let all = [&case.stored, &interpreted].into_iter().chain(apart.iter().flatten());
    let leaves_range = all.into_iter().any(|stored| compared(&meaning, stored).is_ok_and(|check| check.leaves_range()));
    if leaves_range {
        // What a kernel comes to may be what its nodes do under another reading.
        meaning = or_read(meaning, plan.numerics)?;
    }
    let fused = compared(&meaning, &case.stored)?;
    let interpreted = compared(&meaning, &interpreted)?;
    let unfused = apart.map(|stored| compared(&meaning, &stored?));
    let leaves_range = fused.leaves_range()
        && interpreted.outcome.is_ok()
        && compared(&meaning, &case.rounded(Limits::default())?)?.leaves_range();
    Ok(KernelVerdict { number, row: row.clone(), interpreted, fused, leaves_range, unfused })
}

/// What the nodes of a kernel store one by one.
fn run_apart(case: &Case<'_>, device: &CpuDevice) -> Result<Vec<Literal>> {
    let mut options = PlanOptions { chooser: Chooser::ByCost, precision: Precision::F32, ..device.plan.clone() };
    options.hints.env = case.env.clone();
    let planned = plan_apart(case.graph.clone(), &options, Grain::Primitive)?;
    let inputs = case.graph.inputs().iter().map(|value| case.graph.input_name(*value).clone());
    let inputs = inputs.map(|name| (name.clone(), case.inputs[&name].clone())).collect();
    fuseline::device::Executable::run(&device.load(&planned)?, &inputs)
}

fn check(value: String, meaning: &Meaning, output: usize, actual: &Literal) -> Check {
    Check { value, dtype: actual.dtype(), outcome: meaning.measure(output, actual) }
}

/// The check that uses most of what is allowed.
pub fn worst_of(checks: impl Iterator<Item = Check>) -> Option<Check> {
    checks.reduce(|worst, other| if other.used() > worst.used() { other } else { worst })
}

/// What a value is called: an output by its name, others by the operator that they are part of.
fn name_of(graph: &Graph, value: Value) -> String {
    if let Some(output) = graph.outputs().iter().find(|output| output.value == value) {
        return output.name.to_string();
    }
    let origin = graph.origin(value.node()).iter().next().map(|origin| origin.name.to_string());
    origin.unwrap_or_else(|| format!("%{}", value.node()))
}

impl Verdict {
    /// Looks again where something differs, with every operation rounded. The reference has the range of f64, so that it shows neither what
    /// passes move out of the range of a type nor that a model leaves it by itself.
    fn reconsider(
        &mut self,
        setting: &Setting<'_>,
        planned: &PlannedProgram,
        meaning: &Meaning,
        [after, fused, unfused]: [&[Literal]; 3],
    ) -> Result<()> {
        let Setting { graph, inputs, .. } = setting;
        let differs = |check: &Check| check.outcome.is_err();
        let exact = meaning.clone().exact();
        let rounded = meaning.read(Reading::Rounded).unwrap_or_default();
        let is_rounded = check_outputs(graph, &exact, rounded).iter().any(Check::is_beyond_tolerance);
        // A sum may leave the range of its type on the way in some orders and in others not, which a single reading does not show.
        let leaves_range = self.fused.iter().chain(&self.unfused).any(Check::leaves_range);
        if is_rounded || leaves_range {
            let [after, fused, unfused] = [after, fused, unfused].map(|outputs| check_outputs(graph, meaning, outputs));
            let is_right = !fused.iter().chain(&unfused).any(differs);
            if is_rounded || is_right && !after.iter().any(differs) {
                (self.passes, self.fused, self.unfused, self.is_rounded) = (after, fused, unfused, true);
                self.guilty = match self.passes.iter().any(differs) {
                    true => Some(Stage::Passes),
                    false => (!is_right).then_some(Stage::Written),
                };
                return Ok(());
            }
        }
        if self.guilty == Some(Stage::Passes) {
            return Ok(());
        }
        let drawn = |seed: u32| Reading::Drawn { seed, signs: false, ranges: true };
        let draws = (0..ORDERS).map(drawn).take(if leaves_range { ORDERS as usize } else { 0 });
        for reading in std::iter::once(Reading::Rounded).chain(draws) {
            let options = reference::Options { reading, ..reference::Options::default() };
            let outputs = ReferenceDevice { options }.load(&planned.program)?.run(inputs)?;
            let passes = check_outputs(graph, if reading == Reading::Rounded { &exact } else { meaning }, &outputs);
            if passes.iter().any(|check| differs(check) && (reading == Reading::Rounded || check.leaves_range())) {
                (self.passes, self.guilty) = (passes, Some(Stage::Passes));
                break;
            }
        }
        Ok(())
    }

    /// The first stage that differs from what stands before it.
    fn find_guilty(&self) -> Option<Stage> {
        let differs = |check: &Check| check.outcome.is_err();
        let kernel = |of: fn(&KernelVerdict) -> &Check| self.kernels.iter().position(|kernel| differs(of(kernel)));
        if self.passes.iter().any(differs) {
            return Some(Stage::Passes);
        }
        if self.prepared.as_ref().is_some_and(differs) {
            return Some(Stage::Prepared);
        }
        let lowering = kernel(|kernel| &kernel.interpreted).map(Stage::Lowering);
        let code = kernel(|kernel| &kernel.fused).map(Stage::Code);
        let run = self.fused.iter().any(differs).then_some(Stage::Run);
        lowering.or(code).or(run).or(self.unfused.iter().any(differs).then_some(Stage::Unfused))
    }

    /// The check of the guilty stage.
    pub fn evidence(&self) -> Option<&Check> {
        let first = |checks: &'_ [Check]| checks.iter().position(|check| check.outcome.is_err());
        match self.guilty? {
            Stage::Passes => self.passes.get(first(&self.passes)?),
            Stage::Prepared => self.prepared.as_ref(),
            Stage::Lowering(k) => Some(&self.kernels[k].interpreted),
            Stage::Code(k) => Some(&self.kernels[k].fused),
            Stage::Run => self.fused.get(first(&self.fused)?),
            Stage::Written => {
                first(&self.fused).map(|k| &self.fused[k]).or(first(&self.unfused).map(|k| &self.unfused[k]))
            }
            Stage::Unfused => self.unfused.get(first(&self.unfused)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use fuseline::tensor::{DType, Env, Symbol};
    use fuseline::{gallery, tile};

    use super::*;
    use crate::device::Means;
    use crate::{machine, target};

    /// What is found where a graph is planned as another one, and a part of the text of the first kernel is another.
    fn judged_as(graph: &Graph, other: &Graph, inputs: &NamedTensors, env: Env, edit: [&str; 2]) -> Verdict {
        let mut plan = PlanOptions::on(&target::find("cpu").unwrap_or_else(|_| panic!("cpu is known")));
        plan.hints.env = env;
        let means = Means { options: reference::Options::default(), threads: None };
        let machine = machine::open(Measuring::Cpu, plan.clone(), &means).unwrap();
        let waiting = Waiting::for_("");
        let (plan, machine, waiting) = (&plan, &machine, &waiting);
        let setting = Setting { graph, inputs, plan, machine, device: Measuring::Cpu, waiting };
        let mut planned = plan_program(other.clone(), plan, &mut |_| {}).unwrap();
        let text = planned.run.kernels[0].kernel.to_string();
        assert!(text.contains(edit[0]), "{text}");
        planned.run.kernels[0].kernel = Arc::new(tile::parse(&text.replace(edit[0], edit[1])).unwrap());
        judge_planned(&setting, &planned).unwrap()
    }

    /// What is found where a part of the text of the only kernel of a softmax is another.
    fn judged(part: &str, other: &str) -> Verdict {
        let graph = gallery::find("softmax").unwrap().graph(DType::F32).unwrap();
        let x: Vec<f32> = (0..3 * 40).map(|k| (k * 7 % 11) as f32).collect();
        let inputs: NamedTensors = [("x".into(), Literal::f32s(&x).reshaped([3, 40]).unwrap())].into_iter().collect();
        let env = [(Symbol::name("rows"), 3), (Symbol::name("columns"), 40)].into_iter().collect();
        judged_as(&graph, &graph, &inputs, env, [part, other])
    }

    /// A graph of `x: f32[4, 4]`, as text.
    fn of_x(body: &str) -> Graph {
        Graph::parse(&format!("graph g(x: f32[4, 4]) {{\n{body}\n  return y = %y\n}}\n")).unwrap()
    }

    fn x_of(scale: f32) -> NamedTensors {
        let x: Vec<f32> = (0..16).map(|k| (k * 7 % 11 + 1) as f32 * scale).collect();
        [("x".into(), Literal::f32s(&x).reshaped([4, 4]).unwrap())].into_iter().collect()
    }

    #[test]
    fn a_small_output_that_is_wholly_wrong_is_found() {
        let graph = of_x("  %y = map(x) exp(a) * 1e-30 : f32[4, 4]");
        let right = judged_as(&graph, &graph, &x_of(0.1), Env::new(), ["exp(", "exp("]);
        assert_eq!(right.guilty, None);
        let wrong = judged_as(&graph, &graph, &x_of(0.1), Env::new(), ["exp(", "0.0 * exp("]);
        assert_eq!(wrong.guilty, Some(Stage::Lowering(0)));
        assert!(wrong.fused[0].outcome.is_err());
    }

    #[test]
    fn a_rewrite_that_leaves_the_range_is_not_blamed_on_code() {
        let product = "contract(x, x) \"ab,bc->ac\" acc=f32 : f32[4, 4]";
        let scaled = "  %s = map(x) a * 1e-20 : f32[4, 4]\n  %y = contract(%s, x) \"ab,bc->ac\" acc=f32 : f32[4, 4]";
        let moved = format!("  %p = {product}\n  %y = map(%p) a * 1e-20 : f32[4, 4]");
        let (graph, moved) = (of_x(scaled), of_x(&moved));
        let verdict = judged_as(&graph, &moved, &x_of(1e20), Env::new(), ["store", "store"]);
        assert_eq!(verdict.guilty, Some(Stage::Passes));
        assert_eq!(judged_as(&graph, &graph, &x_of(1e20), Env::new(), ["store", "store"]).guilty, None);
    }

    #[test]
    fn arithmetic_as_it_is_written_is_right_where_another_order_leaves_the_range() {
        let scaled = "  %s = map(x) a * 1e-5 : f32[4, 4]\n  %y = contract(%s, x) \"ab,bc->ac\" acc=f32 : f32[4, 4]";
        let graph = of_x(scaled);
        // The number is moved behind the sums, and they are too large without it.
        let verdict = judged_as(&graph, &graph, &x_of(3e18), Env::new(), ["store", "store"]);
        assert_eq!((verdict.guilty, verdict.strict_agrees), (Some(Stage::Passes), Some(true)));
        assert!(verdict.evidence().is_some_and(Check::leaves_range));
        assert_eq!(judged("exp(a - b)", "exp(b - a)").strict_agrees, Some(true));
        assert_eq!(judged("reduce.max", "reduce.max").strict_agrees, None);
    }

    #[test]
    fn a_sum_that_leaves_the_range_in_some_order_is_not_blamed_on_code() {
        // Of two rows, one leaves it from left to right, and the other by halves.
        let rows = [3e38f32, 3e38, -3e38, -3e38, 3e38, -3e38, 3e38, -3e38].repeat(2);
        let x: NamedTensors = [("x".into(), Literal::f32s(&rows).reshaped([4, 4]).unwrap())].into_iter().collect();
        let graph = of_x("  %y = reduce.sum x axes=[1] : f32[4]");
        let verdict = judged_as(&graph, &graph, &x, Env::new(), ["store", "store"]);
        assert!(verdict.guilty.is_none() && verdict.is_rounded, "{:?}", verdict.guilty);
        // In the model every term is small enough, and passes have moved the factor behind the sum.
        let small = of_x("  %d = map(x) a * 0.1 : f32[4, 4]\n  %y = reduce.sum %d axes=[1] : f32[4]");
        let moved = of_x("  %d = reduce.sum x axes=[1] : f32[4]\n  %y = map(%d) a * 0.1 : f32[4]");
        let verdict = judged_as(&small, &moved, &x, Env::new(), ["store", "store"]);
        assert_eq!(verdict.guilty, Some(Stage::Passes));
    }

    #[test]
    fn an_order_of_steps_that_leaves_the_range_is_told() {
        let graph = gallery::find("scale_offset_power").unwrap().graph(DType::F32).unwrap();
        let env: Env = [(Symbol::name("n"), 40)].into_iter().collect();
        let of = |x: f32| {
            let x: NamedTensors = [("x".into(), Literal::f32s(&[x; 40]))].into_iter().collect();
            judged_as(&graph, &graph, &x, env.clone(), ["store", "store"])
        };
        let verdict = of(1e13);
        assert_eq!((verdict.guilty, verdict.strict_agrees), (Some(Stage::Code(0)), Some(true)));
        assert!(verdict.kernels[0].leaves_range);
        assert!(of(1e12).guilty.is_none());
    }

    #[test]
    fn a_model_that_rounds_on_purpose_is_right() {
        let graph = of_x("  %y = map(x) (a + 12582912.0) - 12582912.0 : f32[4, 4]");
        let verdict = judged_as(&graph, &graph, &x_of(0.3), Env::new(), ["store", "store"]);
        assert!(verdict.guilty.is_none() && verdict.is_rounded);
    }

    #[test]
    fn a_kernel_that_computes_something_else_is_found() {
        let right = judged("reduce.max", "reduce.max");
        assert_eq!((right.guilty, right.kernels.len()), (None, 1));
        let wrong = judged("exp(a - b)", "exp(b - a)");
        assert_eq!(wrong.guilty, Some(Stage::Lowering(0)));
        assert!(wrong.evidence().is_some_and(|check| check.value == "y" && check.used() > 1.0));
        // Everything behind the kernel is wrong as well, and the unfused plan is not.
        assert!(wrong.fused[0].outcome.is_err() && wrong.unfused[0].outcome.is_ok() && wrong.passes[0].outcome.is_ok());
    }

    #[test]
    fn the_first_stage_that_differs_is_guilty() {
        let mut verdict = judged("reduce.max", "reduce.max");
        let wrong = judged("exp(a - b)", "exp(b - a)").fused[0].clone();
        let right = verdict.unfused[0].clone();
        verdict.unfused = vec![wrong.clone()];
        assert_eq!(verdict.find_guilty(), Some(Stage::Unfused));
        verdict.fused = vec![wrong.clone()];
        assert_eq!(verdict.find_guilty(), Some(Stage::Run));
        verdict.kernels[0].fused = wrong.clone();
        assert_eq!(verdict.find_guilty(), Some(Stage::Code(0)));
        verdict.prepared = Some(right);
        assert_eq!(verdict.find_guilty(), Some(Stage::Code(0)));
        verdict.passes = vec![wrong];
        assert_eq!(verdict.find_guilty(), Some(Stage::Passes));
    }
}
