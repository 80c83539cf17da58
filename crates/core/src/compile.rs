//! The pipeline, from a front end's graph to a program that a device can load.

use std::collections::BTreeSet;

use crate::analysis::{Work, price};
use crate::device::Unit;
use crate::error::{Context as _, Error, Result};
use crate::fuse::{
    Chooser, Decision, DecisionId, Kind, Knowledge, Lock, Pins, Plan, PlanOptions, Turn, Verdict, edge_names, edges,
    plan_knowing, price_knowing, rules,
};
use crate::graph::{Graph, OriginSet, verify_within};
use crate::passes::{Context, Precision, Step, run_passes, run_rounding};
use crate::philox;
use crate::program::Program;
use crate::rewrites::{
    AFFINE, Application, INTEGERS, INTO_WEIGHTS, NORMALIZER, PLACEMENTS, Permit, Record, Refusal, apply_placements,
    apply_rewrites,
};
use crate::tensor::DType;

/// Compiles a graph: the stages in order.
pub fn compile(graph: Graph, context: &Context) -> Result<Program> {
    let context = &Context { budget: context.budget.started(), ..context.clone() };
    // First: what a front end did wrong must neither be blamed on a pass nor hidden by one that drops it.
    verify_within(&graph, &context.budget).at(|| "the graph as it came in")?;
    // Make the meaning plain: no planner should see shape arithmetic or views of views.
    let graph = run_passes(graph, context, &mut |_| {})?;
    // Split by time: only now is it known which constants are too large to have been folded.
    Program::within(&graph, &context.budget)
}

/// A program, how its two graphs are divided into kernels, and all that was decided on the way.
#[derive(Clone, Debug)]
pub struct PlannedProgram {
    /// what is computed once, and what in every run
    pub program: Program,
    /// every place where a rewrite fits, applied or not
    pub rewrites: Vec<Application>,
    /// the kernels that run once
    pub prepare: Plan,
    /// the kernels of every run
    pub run: Plan,
}

/// Compiles a graph and plans it; `observe` sees the graph after every pass and rewrite.
///
/// Rewrites obey the same choices as fusions: pins, fuel (they are asked first), chance, a lock.
pub fn plan_program(graph: Graph, options: &PlanOptions, observe: &mut dyn FnMut(&Step<'_>)) -> Result<PlannedProgram> {
    let options = &started(options);
    plan_simplified(simplified(graph, options, observe)?, options, observe)
}

/// The graph after the passes: of it, a program can be planned in several ways.
pub fn simplified(graph: Graph, options: &PlanOptions, observe: &mut dyn FnMut(&Step<'_>)) -> Result<Graph> {
    let options = &started(options);
    verify_within(&graph, &options.budget).at(|| "the graph as it came in")?;
    run_passes(graph, &context(options), observe)
}

/// The options of work that begins here.
fn started(options: &PlanOptions) -> PlanOptions {
    PlanOptions { budget: options.budget.started(), ..options.clone() }
}

/// As [`plan_program`], of a graph that went through the passes already, with the same numerics.
pub fn plan_simplified(
    graph: Graph,
    options: &PlanOptions,
    observe: &mut dyn FnMut(&Step<'_>),
) -> Result<PlannedProgram> {
    plan_simplified_knowing(graph, options, &mut Knowledge::default(), observe)
}

/// As [`plan_simplified`], with what plans before it have learnt for the same device, sizes and numerics.
pub(crate) fn plan_simplified_knowing(
    graph: Graph,
    options: &PlanOptions,
    knowledge: &mut Knowledge,
    observe: &mut dyn FnMut(&Step<'_>),
) -> Result<PlannedProgram> {
    let options = &started(options);
    if !matches!(options.chooser, Chooser::ByCost) {
        return plan_without(graph, &Rules::new(), options, knowledge, observe);
    }
    // Whatever the fuel, the same rewrites pay.
    let unlimited = PlanOptions { fuel: None, ..options.clone() };
    let mut trials = Trials { graph: &graph, options: &unlimited, knowledge, rewritten: None };
    let (without, planned) = trials.rewrites_that_pay(observe)?;
    match options.fuel {
        None => planned.finished(&unlimited, knowledge),
        Some(_) => plan_without(graph, &without, options, knowledge, &mut |_| {}),
    }
}

/// Rewrites by name.
type Rules = BTreeSet<&'static str>;

/// Less than this is no gain.
const LEAST_SAVED_US: f64 = 1e-6;

/// A graph that is planned with several selections of rewrites. What they have in common is done once.
struct Trials<'t> {
    /// after the passes
    graph: &'t Graph,
    options: &'t PlanOptions,
    knowledge: &'t mut Knowledge,
    rewritten: Option<Rewritten>,
}

/// A graph after all rewrites but the placements.
struct Rewritten {
    /// without these
    without: Rules,
    graph: Graph,
    record: Record,
}

impl Trials<'_> {
    /// The rewrites without which a plan takes the least, and that plan: first without placements; then what may pay, or may not, is turned
    /// round, one after the other. Only a plan can tell what a rewrite saves, and most graphs have none that is in doubt.
    fn rewrites_that_pay(&mut self, observe: &mut dyn FnMut(&Step<'_>)) -> Result<(Rules, Running)> {
        let placements = PLACEMENTS.iter().map(|rewrite| rewrite.name);
        let mut without: Rules = placements.clone().collect();
        let mut best = self.split(&without, observe)?.planned(self.options, self.knowledge)?;
        let mut not_offered = Rules::new();
        for rule in placements.chain([NORMALIZER, AFFINE, INTEGERS]) {
            // What the user has chosen is not in doubt.
            if self.options.pins.rewrites.is_some() || !is_in_doubt(rule, &best, self.options) {
                not_offered.extend(without.get(rule));
                continue;
            }
            let mut turned = without.clone();
            if !turned.remove(rule) {
                turned.insert(rule);
            }
            let other = self.split(&turned, &mut |_| {})?;
            let cost = price_knowing(other.program.run(), self.options, self.knowledge)?;
            if cost.us < best.run.cost.us - LEAST_SAVED_US {
                (without, best) = (turned, other.planned(self.options, self.knowledge)?);
            }
        }
        // Nobody has decided about what no plan was made for.
        let is_offered = |a: &Application| !(not_offered.contains(a.rule) && is_promising(a, self.options));
        best.split.rewrites.retain(|a| a.refused != Some(Refusal::Slower) || is_offered(a));
        Ok((without, best))
    }

    /// The program of the graph to which no rewrite of some rules is applied, unless the user wants it.
    fn split(&mut self, without: &Rules, observe: &mut dyn FnMut(&Step<'_>)) -> Result<Split> {
        let exact = context(self.options);
        let others: Rules = without.iter().copied().filter(|rule| !is_placement(rule)).collect();
        let known = self.rewritten.take().filter(|rewritten| rewritten.without == others);
        let rewritten = match known {
            Some(known) => known,
            None => {
                let mut permit = permit(self.options, without);
                let graph = apply_rewrites(self.graph.clone(), &exact, &mut permit, observe)?;
                Rewritten { without: others, graph, record: permit.into_record() }
            }
        };
        let Rewritten { graph, record, .. } = self.rewritten.insert(rewritten);
        let mut permit = permit(self.options, without).after(record.clone());
        let graph = apply_placements(graph.clone(), &exact, &mut permit, observe)?;
        Split::of(graph, permit.into_applications(), self.options, observe)
    }
}

/// Whether a plan could be better with a rewrite that it is without, or without one that it has.
fn is_in_doubt(rule: &'static str, planned: &Running, options: &PlanOptions) -> bool {
    let Running { split: Split { rewrites, .. }, run } = planned;
    let applied = |rule: &'static str| rewrites.iter().filter(move |a| a.rule == rule && a.refused.is_none());
    match rule {
        // What normalises rows of scores is worth its place in attention; where that saves little, rows that are normalised behind the
        // first product may take less.
        NORMALIZER => {
            let plans = run.with_regions();
            let attentions = plans.iter().flat_map(|plan| &plan.kernels).filter(|k| k.kind == Kind::Attention);
            let joins = plans.iter().flat_map(|plan| &plan.decisions);
            let joins = joins.filter(|d| d.rule == rules::ATTENTION && d.verdict == Verdict::Taken);
            let saved_us: f64 = joins.clone().map(Decision::saved_us).sum();
            let saves_little = saved_us < LITTLE * attentions.clone().map(|k| k.price.us).sum::<f64>();
            // What the user has chosen is not in doubt.
            let is_chosen = joins.clone().any(|d| options.pins.together.contains(&d.id));
            let count = applied(rule).count();
            count > attentions.count() || (count > 0 && saves_little && !is_chosen)
        }
        // Devices without units for integers, or whose units are not used, multiply floats faster.
        INTEGERS => {
            let rate = |dtype: DType| options.spec.rate(options.spec.dot_unit(dtype));
            applied(rule).count() > 0 && rate(DType::I32) < rate(DType::F32)
        }
        // What it can cost: a table of its own, no larger than what is added to it (and that is less than what a chain moves that is
        // one link longer), and a kernel that could have been a part of another one.
        AFFINE => {
            let (costs, memory) = (&options.spec.costs, options.spec.main_memory());
            let table_us = |a: &Application| options.hints.size(&a.bytes_saved) / (memory.gbps * 1e3);
            let unsure = || applied(rule).filter(|a| !a.is_sure);
            let most_us: f64 = unsure().map(|a| table_us(a) + costs.launch_us + costs.join_us).sum();
            unsure().count() > applied(INTO_WEIGHTS).count() && most_us > WORTH_A_PLAN * run.cost.us
        }
        _ => {
            let is_offered =
                |a: &&Application| a.rule == rule && a.refused == Some(Refusal::Slower) && is_promising(a, options);
            let flops = rewrites.iter().filter(is_offered).map(|a| options.hints.size(&a.flops_saved)).sum();
            flops > 0.0 && arithmetic_us(flops, options) > WORTH_A_PLAN * run.cost.us
        }
    }
}

/// A second plan is made for what could save this part of the first one, not for less.
const WORTH_A_PLAN: f64 = 1e-3;

/// Attention that saves less than this part of what it takes saves little: with heads of 64 columns it saves a sixth and more.
const LITTLE: f64 = 0.125;

/// What arithmetic takes at most where it is a part of kernels: twice what it takes all cores.
fn arithmetic_us(flops: f64, options: &PlanOptions) -> f64 {
    let cores = options.spec.limits.cores as f64;
    let mut work = Work { blocks: cores, threads: options.spec.limits.threads as f64, ..Work::default() };
    work.operate(Unit::Elementwise(DType::F32), flops);
    2.0 * price(&work, &options.spec).compute_us
}

/// Whether applications of a rewrite are made only where a plan says that they pay.
fn is_placement(rule: &str) -> bool {
    PLACEMENTS.iter().any(|rewrite| rewrite.name == rule)
}

/// Whether a placement saves arithmetic.
fn is_promising(application: &Application, options: &PlanOptions) -> bool {
    !is_placement(application.rule) || options.hints.size(&application.flops_saved) > 0.0
}

/// The plan of a graph to which no rewrite of some rules is applied, unless the user wants it.
fn plan_without(
    graph: Graph,
    without: &Rules,
    options: &PlanOptions,
    knowledge: &mut Knowledge,
    observe: &mut dyn FnMut(&Step<'_>),
) -> Result<PlannedProgram> {
    // Move work to where it is done least often. After the passes: rewrites read plain arithmetic. Before the split: what they
    // put into weights is prepared.
    let mut permit = permit(options, without);
    let exact = context(options);
    let graph = apply_rewrites(graph, &exact, &mut permit, observe)?;
    let graph = apply_placements(graph, &exact, &mut permit, observe)?;
    let split = Split::of(graph, permit.into_applications(), options, observe)?;
    // What rewrites took is not left for fusions; what runs once must not take the fuel of what runs always.
    let applied = split.rewrites.iter().filter(|a| a.refused.is_none()).count();
    let options = &PlanOptions { fuel: options.fuel.map(|fuel| fuel.saturating_sub(applied)), ..options.clone() };
    split.planned(options, knowledge)?.finished(options, knowledge)
}

/// A program that has no plan yet.
struct Split {
    program: Program,
    rewrites: Vec<Application>,
}

impl Split {
    /// The program of a graph after rewrites.
    fn of(
        mut graph: Graph,
        rewrites: Vec<Application>,
        options: &PlanOptions,
        observe: &mut dyn FnMut(&Step<'_>),
    ) -> Result<Split> {
        // Behind the rewrites: what is rounded is what is multiplied once scales and normalisers stand where they belong.
        if options.precision != Precision::F32 {
            let rounding = Context { precision: options.precision, narrowing: options.narrowing, ..context(options) };
            graph = run_rounding(graph, &rounding, observe)?;
        }
        check_locked(options, &rewrites)?;
        Ok(Split { program: Program::within(&graph, &options.budget)?, rewrites })
    }

    fn planned(self, options: &PlanOptions, knowledge: &mut Knowledge) -> Result<Running> {
        let run = plan_knowing(self.program.run(), options, knowledge).at(|| PLAN_OF_A_RUN)?;
        Ok(Running { split: self, run })
    }
}

const PLAN_OF_A_RUN: &str = "the plan of a run";

/// A program of which only what every run does is planned.
struct Running {
    split: Split,
    run: Plan,
}

impl Running {
    /// The whole program, its plans proven apart from how they were found: nothing runs a plan that is not right.
    fn finished(self, options: &PlanOptions, knowledge: &mut Knowledge) -> Result<PlannedProgram> {
        let Running { split: Split { program, rewrites }, run } = self;
        run.check_within(program.run(), &options.budget).at(|| PLAN_OF_A_RUN)?;
        let prepare = checked_plan(program.prepare(), options, knowledge).at(|| "the plan of what is prepared")?;
        Ok(PlannedProgram { program, rewrites, prepare, run })
    }
}

fn checked_plan(graph: &Graph, options: &PlanOptions, knowledge: &mut Knowledge) -> Result<Plan> {
    let plan = plan_knowing(graph, options, knowledge)?;
    plan.check_within(graph, &options.budget)?;
    Ok(plan)
}

fn context(options: &PlanOptions) -> Context {
    Context { numerics: options.numerics, budget: options.budget.clone(), ..Context::default() }
}

/// What one kernel computes where nothing is fused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grain {
    /// an operator of the user's model
    Operator,
    /// a primitive
    Primitive,
}

/// Compiles a graph and plans it without fusion and without rewrites: what a plan is measured against.
pub fn plan_apart(graph: Graph, options: &PlanOptions, grain: Grain) -> Result<PlannedProgram> {
    let usual = PlanOptions { pins: Pins::apart(), chooser: Chooser::ByCost, ..started(options) };
    let mut planned = plan_program(graph, &usual, &mut |_| {})?;
    if grain == Grain::Operator {
        let within = |graph: &Graph| {
            let options = PlanOptions { pins: Pins::within_operators(graph), ..usual.clone() };
            checked_plan(graph, &options, &mut Knowledge::default())
        };
        planned.run = within(planned.program.run())?;
        planned.prepare = within(planned.program.prepare())?;
    }
    Ok(planned)
}

impl PlannedProgram {
    /// The plan as text that can be obeyed.
    pub fn lock(&self, options: &PlanOptions) -> Lock {
        let applied = self.rewrites.iter().filter(|a| a.refused.is_none());
        let mut graphs = self.run.locked();
        graphs.extend(self.prepare.locked());
        // Regions that are equal have equal plans.
        let mut seen = rustc_hash::FxHashSet::default();
        graphs.retain(|part| seen.insert(part.graph));
        Lock {
            target: Some((options.spec.name.clone(), options.spec.fingerprint())),
            numerics: Some(options.numerics),
            rewrites: applied.map(|a| (rewrite_id(a), String::new())).collect(),
            graphs,
            tuned: match &options.chooser {
                Chooser::Replay(lock) => lock.tuned.clone(),
                _ => Vec::new(),
            },
        }
    }
}

impl PlannedProgram {
    /// Decisions that the plans turned round, each because they take less in all: those of a run, of what is prepared, and of regions.
    pub fn turned(&self) -> Vec<&Turn> {
        let plans = [&self.run, &self.prepare].into_iter().flat_map(Plan::with_regions);
        plans.flat_map(|plan| &plan.turned).collect()
    }

    /// The rewrites that were applied.
    pub fn applied_rewrites(&self) -> BTreeSet<DecisionId> {
        self.rewrites.iter().filter(|a| a.refused.is_none()).map(rewrite_id).collect()
    }

    /// A decision of this plan and what it may rest on, the least first: with the rewrites of the operators that it is about; with all
    /// rewrites; also with what combines the nodes that it is about. With nothing else allowed than the last, it comes up
    /// again. None where the plan has no such decision.
    pub fn with_foundations(&self, id: DecisionId) -> Vec<BTreeSet<DecisionId>> {
        let mut origins: Vec<&OriginSet> = Vec::new();
        let mut inside = BTreeSet::new();
        for (graph, plan) in [(self.program.run(), &self.run), (self.program.prepare(), &self.prepare)] {
            for decision in plan.decisions.iter().filter(|decision| decision.id == id) {
                let has = |node: &usize| [&decision.producer, &decision.consumer].iter().any(|s| s.contains(node));
                let all = edges(graph).into_iter().zip(edge_names(graph));
                inside.extend(all.filter(|((from, to), _)| has(from) && has(to)).map(|(_, id)| id));
                origins.extend(decision.producer.iter().chain(&decision.consumer).map(|node| graph.origin(*node)));
            }
        }
        let is_about = |a: &&Application| {
            let shares = |set: &OriginSet| origins.iter().any(|own| own.iter().any(|o| set.iter().any(|p| p == o)));
            a.refused.is_none() && (shares(&a.producer) || shares(&a.consumer))
        };
        let near: BTreeSet<DecisionId> = self.rewrites.iter().filter(is_about).map(rewrite_id).collect();
        let is_rewrite = self.rewrites.iter().any(|application| rewrite_id(application) == id);
        if origins.is_empty() && !is_rewrite {
            return Vec::new();
        }
        let all = self.applied_rewrites();
        let sets = [near, all.clone(), all.into_iter().chain(inside).collect()];
        sets.into_iter().map(|set| set.into_iter().chain([id]).collect()).collect()
    }
}

/// The name of the decision about a rewrite.
pub fn rewrite_id(application: &Application) -> DecisionId {
    DecisionId(application.id >> 16)
}

/// Who is asked about rewrites: the choices of the user, or chance, or a lock; and whether they are among those that do not pay.
fn permit<'o>(options: &'o PlanOptions, without: &'o Rules) -> Permit<'o> {
    let (mut applied, mut asked) = (0, 0);
    let permit = Permit::judged(move |application| {
        let id = rewrite_id(application);
        let pins = &options.pins;
        asked += 1;
        if let Some(chosen) = &pins.rewrites {
            return (!chosen.contains(&id)).then_some(Refusal::NotAllowed);
        }
        let wanted = match &options.chooser {
            Chooser::ByCost => true,
            Chooser::AtRandom(seed) => !philox::word(*seed, 1, asked).is_multiple_of(4),
            Chooser::Replay(lock) => lock.has_rewrite(id),
        };
        let free = !options.without.contains(application.rule)
            && !pins.apart.contains(&id)
            && pins.only.as_ref().is_none_or(|only| only.contains(&id));
        let allowed = wanted && free && options.fuel.is_none_or(|fuel| applied < fuel);
        let listed = || pins.together.contains(&id) || pins.only.as_ref().is_some_and(|only| only.contains(&id));
        let by_price = matches!(options.chooser, Chooser::ByCost) && !listed();
        let pays = !without.contains(application.rule) && is_promising(application, options);
        if allowed && by_price && !pays {
            return Some(Refusal::Slower);
        }
        applied += usize::from(allowed);
        (!allowed).then_some(Refusal::NotAllowed)
    });
    permit.for_plans(options.spec.kind, &options.hints)
}

/// A lock must not list a rewrite that is not applied: the graph would not be the one that it divides.
fn check_locked(options: &PlanOptions, rewrites: &[Application]) -> Result<()> {
    let Chooser::Replay(lock) = &options.chooser else { return Ok(()) };
    let is_applied = |id: &DecisionId| rewrites.iter().any(|a| rewrite_id(a) == *id && a.refused.is_none());
    match lock.rewrites.iter().find(|(id, _)| !is_applied(id)) {
        Some((id, _)) => {
            Err(Error::invalid(format!("the plan applies the rewrite {id}, which this model does not have")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::device::{Device, ReferenceDevice};
    use crate::graph::Builder;
    use crate::passes::Numerics;
    use crate::reference::{self, Reading};
    use crate::tensor::{DType, Dim, Literal, Shape};

    fn sample() -> Graph {
        let b = Builder::new("layer");
        let x = b.input("x", DType::F32, Shape::new([Dim::named("n"), Dim::int(160)]));
        let values: Vec<f64> = (0..160 * 160).map(|k| (k % 17) as f64 - 8.0).collect();
        let weights = b.constant(Literal::from_f64s(DType::F32, [160, 160], &values).unwrap());
        let y = x.matmul((weights * 0.3).exp().transpose()) / 3.0;
        b.output("y", (y - y.mean(&[1])) / ((y * y).mean(&[1]) + 1e-5).sqrt());
        b.finish().unwrap()
    }

    #[test]
    fn a_loaded_program_computes_what_its_graph_means() {
        let graph = sample();
        let values: Vec<f64> = (0..320).map(|k| (k % 29) as f64 * 0.1 - 1.4).collect();
        let x = Literal::from_f64s(DType::F32, [2, 160], &values).unwrap();
        let inputs = [(Arc::<str>::from("x"), x)];
        let strict = Context { numerics: Numerics::Strict, ..Context::default() };
        for reading in [Reading::Exact, Reading::Rounded] {
            let options = reference::Options { reading, ..reference::Options::default() };
            let program = compile(graph.clone(), &strict).unwrap();
            assert_eq!(program.prepare().outputs().len(), 1, "{program:?}");
            let loaded = ReferenceDevice { options }.load(&program).unwrap();
            let expected = reference::evaluate(&graph, &inputs.iter().cloned().collect(), &options).unwrap();
            assert_eq!(loaded.run(&inputs.iter().cloned().collect()).unwrap(), expected, "{reading:?}");
        }
    }

    #[test]
    fn compiling_twice_gives_the_same_program() {
        let context = Context::default();
        assert_eq!(compile(sample(), &context).unwrap(), compile(sample(), &context).unwrap());
    }

    fn options() -> PlanOptions {
        PlanOptions::on(crate::device::DeviceSpec::find("h200").unwrap())
    }

    fn members(plan: &Plan) -> Vec<Vec<usize>> {
        plan.kernels.iter().map(|k| k.members.clone()).collect()
    }

    #[test]
    fn a_written_plan_is_obeyed() {
        let options = options();
        let planned = plan_program(sample(), &options, &mut |_| {}).unwrap();
        let lock: Lock = planned.lock(&options).to_string().parse().unwrap();
        let obeying = PlanOptions { chooser: Chooser::Replay(Arc::new(lock.clone())), ..options.clone() };
        let again = plan_program(sample(), &obeying, &mut |_| {}).unwrap();
        assert_eq!(members(&again.run), members(&planned.run));
        assert_eq!(members(&again.prepare), members(&planned.prepare));
        assert_eq!(again.run.cost, planned.run.cost);
        assert_eq!(again.lock(&options).to_string(), planned.lock(&options).to_string());

        let mut other = lock.clone();
        other.graphs[0].graph += 1;
        let obeying = PlanOptions { chooser: Chooser::Replay(Arc::new(other)), ..options.clone() };
        assert!(plan_program(sample(), &obeying, &mut |_| {}).unwrap_err().message().contains("another graph"));
        let mut other = lock;
        other.rewrites.push((DecisionId(7), String::new()));
        let obeying = PlanOptions { chooser: Chooser::Replay(Arc::new(other)), ..options };
        let error = plan_program(sample(), &obeying, &mut |_| {}).unwrap_err();
        assert!(error.message().contains("000000000007"), "{error}");
    }

    #[test]
    fn rules_that_are_left_out_are_not_asked() {
        let fused = plan_program(sample(), &options(), &mut |_| {}).unwrap();
        let mut without = options();
        without.without.extend(rules::RULES.iter().map(|rule| rule.name().to_string()));
        let rewrites = crate::rewrites::REWRITES.iter().chain(PLACEMENTS);
        without.without.extend(rewrites.map(|rewrite| rewrite.name.to_string()));
        let planned = plan_program(sample(), &without, &mut |_| {}).unwrap();
        assert!(planned.rewrites.iter().all(|a| a.refused.is_some()));
        assert!(planned.run.kernels.iter().all(|k| k.members.len() == 1));
        let taken = fused.run.decisions.iter().find(|d| d.verdict == Verdict::Taken).unwrap().rule;
        let mut one = options();
        one.without.insert(taken.to_string());
        let planned = plan_program(sample(), &one, &mut |_| {}).unwrap();
        assert!(planned.run.decisions.iter().all(|d| d.rule != taken));
    }

    #[test]
    fn nothing_is_done_where_nothing_is_allowed() {
        let mut apart = options();
        apart.pins.only = Some(BTreeSet::new());
        let planned = plan_program(sample(), &apart, &mut |_| {}).unwrap();
        assert!(planned.rewrites.iter().all(|a| a.refused.is_some()));
        assert!(planned.run.kernels.iter().all(|k| k.members.len() == 1));
        assert_eq!(planned.run.cost.us, planned.run.apart.us);
        let fused = plan_program(sample(), &options(), &mut |_| {}).unwrap();
        assert!(fused.run.kernels.len() < planned.run.kernels.len());
        let by_primitive = plan_apart(sample(), &options(), Grain::Primitive).unwrap();
        assert_eq!(members(&by_primitive.run), members(&planned.run));
        // Without origins, every primitive is an operator of its own.
        let by_operator = plan_apart(sample(), &options(), Grain::Operator).unwrap();
        assert_eq!(members(&by_operator.run), members(&planned.run));
    }
}
