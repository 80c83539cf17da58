//! Everything that a report shows, as one JSON value.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fuseline::compile::PlannedProgram;
use fuseline::error::Result;
use fuseline::explain::{DecisionRow, Explanation, KernelRow, kernel_rows};
use fuseline::fuse::{Cost, Decision, DecisionId, Plan, PlanOptions, PlannedKernel, Verdict};
use fuseline::graph::{Graph, Value};
use fuseline::tensor::Env;
use fuseline::tile::{Kernel, Schedule};
use indexmap::IndexMap;
use serde_json::{Map, Value as Json, json};

use super::drawing::{Node, Sketch};
use super::memory;
use super::operators::Operators;
use super::repeat::{Repeat, repeats};
use crate::arguments::Form;
use crate::kernels::show;

/// A planned model with all that is known of it before it runs.
pub struct Planned<'a> {
    /// as it was imported
    pub graph: &'a Graph,
    pub planned: &'a PlannedProgram,
    pub explanation: &'a Explanation,
    pub options: &'a PlanOptions,
    operators: Operators,
    /// for every kernel of the plan and its regions, as the explanation lists them, its number among different kernels
    class: Vec<usize>,
    /// different kernels
    classes: Vec<Arc<Kernel>>,
    /// for every kernel of the plan, its number in the list
    outer: Vec<usize>,
}

impl<'a> Planned<'a> {
    pub fn new(
        graph: &'a Graph,
        planned: &'a PlannedProgram,
        explanation: &'a Explanation,
        options: &'a PlanOptions,
    ) -> Planned<'a> {
        let (mut listed, mut outer) = (Vec::new(), Vec::new());
        list(&planned.run, &mut listed, &mut |number| outer.push(number));
        let mut classes: IndexMap<Arc<Kernel>, ()> = IndexMap::new();
        let class = listed.iter().map(|kernel| classes.insert_full(kernel.kernel.clone(), ()).0).collect();
        let classes = classes.into_keys().collect();
        let operators = Operators::of(graph);
        Planned { graph, planned, explanation, options, operators, class, classes, outer }
    }

    /// The number in the list of a kernel of the plan.
    pub fn number(&self, kernel: usize) -> usize {
        self.outer[kernel]
    }

    /// All of it.
    pub fn to_json(&self, code: Form) -> Result<Map<String, Json>> {
        let mut fields = Map::new();
        let mut field = |name: &str, value: Json| fields.insert(name.into(), value);
        let port = |name: &str, ty: &fuseline::tensor::TensorType| json!({ "name": name, "type": ty.to_string() });
        let inputs = self.planned.program.inputs().map(|(name, ty)| port(name, ty));
        field("inputs", inputs.collect());
        let outputs = self.graph.outputs().iter().map(|output| port(&output.name, self.graph.ty(output.value)));
        field("outputs", outputs.collect());
        let operator = |o: &fuseline::graph::Origin| json!({ "op": o.op.as_ref(), "name": o.name.as_ref() });
        field("operators", self.operators.iter().map(operator).collect());
        field("kernels", self.kernels());
        field("prepared", json!(self.explanation.prepare.kernels.len()));
        field("sources", self.sources(code)?);
        field("decisions", self.decisions());
        field("graph", self.drawings());
        field("memory", memory::to_json(self.planned.program.run(), &self.planned.run, self.options));
        Ok(fields)
    }

    fn kernels(&self) -> Json {
        let rows = &self.explanation.run.kernels;
        let mut homes = vec![0usize; self.operators.len()];
        let all = rows.iter().flat_map(|row| &row.operators);
        all.filter_map(|operator| self.operators.find(operator)).for_each(|operator| homes[operator] += 1);
        // Views and what was done while compiling are in no kernel; what goes through them still joins the others.
        let edges = self.operators.edges_between(&homes.iter().map(|count| *count > 0).collect::<Vec<_>>());
        rows.iter().zip(&self.class).map(|(row, class)| self.kernel(row, *class, &homes, &edges)).collect()
    }

    /// A kernel as it is shown; `homes` counts the kernels of every operator, `edges` join operators of kernels.
    fn kernel(&self, row: &KernelRow, class: usize, homes: &[usize], edges: &BTreeSet<(usize, usize)>) -> Json {
        let own: Vec<usize> = row.operators.iter().filter_map(|o| self.operators.find(o)).collect();
        // What is shared with operators of other kernels belongs to all of them; those that have nothing else here are not drawn.
        let set: BTreeSet<usize> = own.iter().copied().collect();
        let readers = |operator: usize| edges.range((operator, 0)..(operator + 1, 0)).map(|(_, to)| *to);
        let inner: Vec<(usize, usize)> =
            set.iter().flat_map(|from| readers(*from).filter(|to| set.contains(to)).map(|to| (*from, to))).collect();
        let joined: BTreeSet<usize> = inner.iter().flat_map(|(from, to)| [*from, *to]).collect();
        let mut inside = Sketch::default();
        let mut place: BTreeMap<usize, usize> = BTreeMap::new();
        for operator in own.iter().filter(|operator| homes[**operator] == 1 || joined.contains(operator)) {
            let letters = self.operators.get(*operator).map_or(0, |o| o.op.chars().count());
            place.insert(*operator, inside.add(Node::Operator(*operator), letters));
        }
        inner.iter().for_each(|(from, to)| inside.join(place[from], place[to], 0.0));
        let mut value = json!({
            "name": row.name,
            "pattern": row.pattern,
            "kind": row.kind.name(),
            "class": class,
            "operators": own,
            "bytes": row.bytes.round(),
            "flops": row.flops.round(),
            "us": short(row.us),
            "bound": row.bound,
            "graph": inside.to_json(),
        });
        if let Some(card) = &row.scorecard {
            value["score"] = json!(short(card.score));
        }
        if let Some(inside) = &row.inside {
            value["inside"] = json!(inside);
        }
        value
    }

    /// Every different kernel as the language of kernels and as code.
    fn sources(&self, form: Form) -> Result<Json> {
        let env: &Env = &self.options.hints.env;
        let mut sources = Vec::with_capacity(self.classes.len());
        for kernel in &self.classes {
            let is_host = matches!(kernel.schedule, Schedule::Host(_));
            let code = if is_host { None } else { Some(show(kernel, env, form, &self.options.spec)?) };
            sources.push(json!({ "tile": kernel.to_string(), "code": code }));
        }
        Ok(json!({ "form": form_name(form), "list": sources }))
    }

    fn decisions(&self) -> Json {
        let mut known: BTreeMap<DecisionId, &Decision> = BTreeMap::new();
        for decision in &self.planned.run.decisions {
            let first = known.entry(decision.id).or_insert(decision);
            if decision.verdict == Verdict::Taken && first.verdict == Verdict::Refused {
                *first = decision;
            }
        }
        let mut kernel_of: BTreeMap<usize, usize> = BTreeMap::new();
        for (k, kernel) in self.planned.run.kernels.iter().enumerate() {
            kernel.members.iter().for_each(|member| {
                kernel_of.entry(*member).or_insert(self.outer[k]);
            });
        }
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        for (number, operator) in self.operators.iter().enumerate() {
            names.entry(operator.name.as_ref()).or_insert(number);
        }
        let place = |row: &DecisionRow| {
            let decision = known.get(&row.id);
            let nodes = decision.map(|d| {
                let ends = || Some((*d.producer.last()?, *d.consumer.last()?));
                d.edges.first().copied().or_else(ends)
            });
            let (from, to) = nodes.flatten().unzip();
            [from, to].map(|node: Option<usize>| node.and_then(|node| kernel_of.get(&node).copied()))
        };
        let operator = |name: &str| {
            let plain = name.rsplit_once(" (").map_or(name, |(plain, _)| plain);
            names.get(name).or_else(|| names.get(plain)).copied()
        };
        let row = |row: &DecisionRow| {
            let [from, to] = place(row);
            let mut value = json!({
                "id": row.id.to_string(),
                "rule": row.rule,
                "from": row.producer,
                "to": row.consumer,
                "taken": row.verdict == Verdict::Taken,
                "code": row.code,
                "reason": row.reason,
                "us": short(row.saved_us),
                "bytes": row.bytes_saved.round(),
                "kernels": [from, to],
                "operators": [operator(&row.producer), operator(&row.consumer)],
            });
            let mut flag = |name: &str, holds: bool| {
                if holds {
                    value[name] = json!(true);
                }
            };
            flag("rewrite", row.is_rewrite);
            flag("inside", row.is_inside);
            flag("unpriced", !row.is_priced);
            flag("disagrees", row.disagrees());
            if let Some(card) = &row.scorecard {
                value["score"] = json!(short(card.score));
            }
            value
        };
        self.explanation.decisions.iter().map(row).collect()
    }

    fn drawings(&self) -> Json {
        let classes: Vec<usize> = self.outer.iter().map(|number| self.class[*number]).collect();
        let repeats = repeats(&classes);
        let fold_of = |kernel: usize| repeats.iter().position(|repeat| repeat.others().contains(&kernel));
        let after = self.after();
        let before = self.before();
        let mut drawings =
            json!({ "before": before.to_json(), "after": after.to_json(), "folds": self.folds(&repeats) });
        if !repeats.is_empty() {
            let step_of: BTreeMap<usize, usize> = self.outer.iter().enumerate().map(|(k, n)| (*n, k)).collect();
            let fold = |node: Node| match node {
                Node::Kernel(number) => step_of.get(&number).and_then(|k| fold_of(*k)),
                _ => None,
            };
            drawings["after_folded"] = after.folded(fold, 24).to_json();
            let folded = self.folded_operators(&before, &fold_of);
            let fold = |node: Node| match node {
                Node::Operator(number) => folded[number],
                _ => None,
            };
            drawings["before_folded"] = before.folded(fold, 24).to_json();
        }
        drawings
    }

    /// What repeats: how often, and the kernels of the first and of the other times.
    fn folds(&self, repeats: &[Repeat]) -> Json {
        let numbers = |range: std::ops::Range<usize>| self.outer[range].to_vec();
        let fold = |repeat: &Repeat| {
            json!({
                "count": repeat.count,
                "first": numbers(repeat.begin..repeat.begin + repeat.period),
                "others": numbers(repeat.others()),
            })
        };
        repeats.iter().map(fold).collect()
    }

    /// For every operator the fold that it belongs to: that of its kernels, or of what reads it where no kernel has it.
    fn folded_operators(&self, before: &Sketch, fold_of: &dyn Fn(usize) -> Option<usize>) -> Vec<Option<usize>> {
        let mut folds: Vec<Option<BTreeSet<Option<usize>>>> = vec![None; self.operators.len()];
        for (k, number) in self.outer.iter().enumerate() {
            for origin in &self.explanation.run.kernels[*number].operators {
                if let Some(operator) = self.operators.find(origin) {
                    folds[operator].get_or_insert_default().insert(fold_of(k));
                }
            }
        }
        // What is shared with the first layer is drawn there.
        let settled = |folds: &BTreeSet<Option<usize>>| folds.iter().next().copied().flatten();
        let mut folded: Vec<Option<usize>> = folds.iter().map(|folds| folds.as_ref().and_then(settled)).collect();
        let readers = before.readers();
        for number in (0..folded.len()).rev().filter(|number| folds[*number].is_none()) {
            let Some(readers) = readers.get(&Node::Operator(number)) else { continue };
            let of = |node: &Node| match node {
                Node::Operator(reader) => folded[*reader],
                _ => None,
            };
            let all: BTreeSet<Option<usize>> = readers.iter().map(of).collect();
            folded[number] = settled(&all);
        }
        folded
    }

    /// The operators of the model.
    fn before(&self) -> Sketch {
        let mut sketch = Sketch::default();
        let inputs: Vec<usize> = self.add_inputs(&mut sketch);
        let add = |(number, o): (usize, &fuseline::graph::Origin)| (Node::Operator(number), o.op.chars().count());
        let boxes: Vec<(Node, usize)> = self.operators.iter().enumerate().map(add).collect();
        let own: Vec<usize> = boxes.into_iter().map(|(node, letters)| sketch.add(node, letters)).collect();
        let outputs = self.add_outputs(&mut sketch);
        self.operators.reads.iter().for_each(|(input, reader)| sketch.join(inputs[*input], own[*reader], 0.0));
        self.operators.edges.iter().for_each(|(from, to)| sketch.join(own[*from], own[*to], 0.0));
        self.operators.makes.iter().for_each(|(maker, output)| sketch.join(own[*maker], outputs[*output], 0.0));
        sketch
    }

    /// The kernels of the plan.
    fn after(&self) -> Sketch {
        let run = self.planned.program.run();
        let mut sketch = Sketch::default();
        let inputs = self.add_inputs(&mut sketch);
        let mut maker: BTreeMap<Value, usize> = run.inputs().iter().copied().zip(inputs).collect();
        let mut bytes: BTreeMap<Value, f64> = BTreeMap::new();
        for (kernel, number) in self.planned.run.kernels.iter().zip(&self.outer) {
            let letters = self.explanation.run.kernels[*number].pattern.chars().count();
            // Beside the label stands the sign that opens it; below it, the time.
            let own = sketch.add(Node::Kernel(*number), (letters + 3).max(21));
            for value in &kernel.inputs {
                if let Some(from) = maker.get(value) {
                    sketch.join(*from, own, *bytes.entry(*value).or_insert_with(|| self.bytes(run, *value)));
                }
            }
            kernel.outputs.iter().for_each(|value| {
                maker.insert(*value, own);
            });
        }
        let outputs = self.add_outputs(&mut sketch);
        for (output, own) in run.outputs().iter().zip(outputs) {
            if let Some(from) = maker.get(&output.value) {
                sketch.join(*from, own, self.bytes(run, output.value));
            }
        }
        sketch
    }

    fn add_inputs(&self, sketch: &mut Sketch) -> Vec<usize> {
        let names = self.planned.program.inputs().enumerate();
        names.map(|(number, (name, _))| sketch.add(Node::Input(number), name.chars().count().min(28))).collect()
    }

    fn add_outputs(&self, sketch: &mut Sketch) -> Vec<usize> {
        let names = self.graph.outputs().iter().enumerate();
        names.map(|(number, output)| sketch.add(Node::Output(number), output.name.chars().count().min(28))).collect()
    }

    /// The bytes of a value; 0 where they are known only in a run.
    fn bytes(&self, graph: &Graph, value: Value) -> f64 {
        let ty = graph.ty(value);
        let sizes = ty.shape.eval(&self.options.hints.env);
        let count = sizes.map_or(0, |sizes| sizes.iter().product());
        ty.dtype.bytes(count).unwrap_or(0) as f64
    }
}

/// What is predicted of both plans.
pub fn predicted(fused: &PlannedProgram, unfused: &PlannedProgram) -> Json {
    let plan = |planned: &PlannedProgram| cost(&planned.run.cost, planned.run.kernels.len());
    json!({ "fused": plan(fused), "unfused": plan(unfused) })
}

/// The plan that nothing is fused in, with the times of its kernels where they were measured.
pub fn unfused(planned: &PlannedProgram, options: &PlanOptions, times: Option<&[f64]>) -> Json {
    let graph = planned.program.run();
    let rows = kernel_rows(graph, &planned.run, options);
    let kernel = |(k, row): (usize, &KernelRow)| {
        let mut value = json!({
            "pattern": row.pattern,
            "operators": row.operators.iter().map(|o| o.name.as_ref()).collect::<Vec<_>>(),
            "kind": row.kind.name(),
            "bytes": row.bytes.round(),
            "flops": row.flops.round(),
            "us": short(row.us),
        });
        if let Some(us) = times.and_then(|times| times.get(k)) {
            value["measured_us"] = json!(us);
        }
        value
    };
    let kernels: Vec<Json> = rows.iter().enumerate().map(kernel).collect();
    json!({ "kernels": kernels, "memory": memory::to_json(graph, &planned.run, options) })
}

/// Kernels in the order in which they are explained: those of a region behind the one that runs it.
fn list<'p>(plan: &'p Plan, listed: &mut Vec<&'p PlannedKernel>, own: &mut dyn FnMut(usize)) {
    for kernel in &plan.kernels {
        own(listed.len());
        listed.push(kernel);
        kernel.regions.iter().for_each(|region| list(region, listed, &mut |_| {}));
    }
}

fn form_name(form: Form) -> &'static str {
    match form {
        Form::Tile => "tile",
        Form::Vector => "vector",
        Form::Asm => "asm",
        Form::Cuda => "cuda",
    }
}

fn cost(cost: &Cost, kernels: usize) -> Json {
    json!({ "kernels": kernels, "us": short(cost.us), "bytes": cost.bytes.round(), "flops": cost.flops.round() })
}

/// Four digits after the point are more than anybody knows.
pub fn short(x: f64) -> f64 {
    (x * 1e4).round() / 1e4
}
