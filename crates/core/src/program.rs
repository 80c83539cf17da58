//! A program: what is computed once when it is loaded, and what is computed in every run.
//!
//! Constant subgraphs that are too large to fold while compiling (a transposed weight, a dequantised table, a
//! BatchNorm folded into filters) are ordinary nodes of the *prepare* graph. Its outputs become inputs of the *run*
//! graph under names that no model can have, so a device keeps them in whatever layout it likes.

use std::sync::Arc;

use indexmap::IndexMap;

use crate::budget::Budget;
use crate::error::{Error, Result};
use crate::graph::{Graph, Value};
use crate::lower::looked_at;
use crate::ops::prim::{Class, Input, Map, View};
use crate::ops::{Expr, Prim};
use crate::passes::MOST_FORMULA_FLOPS;
use crate::tensor::{Symbol, TensorType};

/// How the names of prepared inputs begin.
const PREPARED: &str = "prepared:";

/// Whether an input of a run is prepared when the program is loaded.
pub(crate) fn is_prepared(input: &str) -> bool {
    input.starts_with(PREPARED)
}

/// A graph split by when it is computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    prepare: Graph,
    run: Graph,
    inputs: usize,
}

impl Program {
    /// Splits a graph. Every constant value that a run reads is prepared unless it is a literal, a view, a formula, a cheap
    /// elementwise function of short integers (quantised weights) or of a far smaller constant, or f16 or bf16 widened for contractions
    /// and maps.
    pub fn new(graph: &Graph) -> Result<Program> {
        Program::within(graph, &Budget::UNLIMITED)
    }

    /// As [`Program::new`], as long as the budget lasts.
    pub fn within(graph: &Graph, budget: &Budget) -> Result<Program> {
        budget.check()?;
        let constant = constant_nodes(graph);
        let prepared = prepared_values(graph, &constant);
        budget.check()?;
        let prepare = prepare_graph(graph, &prepared, budget)?;
        let run = run_graph(graph, &prepared, &constant, budget)?;
        Ok(Program { prepare, run, inputs: graph.inputs().len() })
    }

    /// What is computed once; its outputs are prepared inputs of [`Program::run`], by name. Takes no inputs.
    pub fn prepare(&self) -> &Graph {
        &self.prepare
    }

    /// What is computed in every run: takes the caller's inputs, then the prepared ones.
    pub fn run(&self) -> &Graph {
        &self.run
    }

    /// The caller's inputs, in order, with their types.
    pub fn inputs(&self) -> impl Iterator<Item = (&Arc<str>, &TensorType)> {
        self.run.inputs()[..self.inputs].iter().map(|v| (self.run.input_name(*v), self.run.ty(*v)))
    }
}

/// Which nodes depend on nothing but literals.
pub(crate) fn constant_nodes(graph: &Graph) -> Vec<bool> {
    let mut constant: Vec<bool> = Vec::with_capacity(graph.nodes().len());
    for node in graph.nodes() {
        let mut fixed =
            !matches!(node.prim(), Prim::Input(_) | Prim::Random(_)) && node.prim().class() != Class::Control;
        node.prim()
            .for_each_dim(&mut |dim| fixed &= !dim.mentions(|s| matches!(s, Symbol::Name(_) | Symbol::Value(_))));
        let symbolic = |ty: &TensorType| ty.shape.as_ints().is_none();
        fixed &= !node.types().iter().any(symbolic) && node.args().iter().all(|a| constant[a.node()]);
        constant.push(fixed);
    }
    constant
}

/// The constant values at the border, each with the name under which a run reads it.
fn prepared_values(graph: &Graph, constant: &[bool]) -> IndexMap<Value, Arc<str>> {
    let worth = worth_preparing(graph, constant);
    let mut prepared = IndexMap::new();
    let mut seen = vec![false; graph.nodes().len()];
    let live = graph.live_nodes();
    let roots = (0..graph.nodes().len()).filter(|id| live[*id] && !constant[*id]);
    let mut todo: Vec<Value> = roots.flat_map(|id| graph.nodes()[id].args().to_vec()).collect();
    todo.extend(graph.outputs().iter().map(|o| o.value));
    todo.reverse();
    while let Some(value) = todo.pop() {
        if worth[value.node()] {
            let next = prepared.len();
            prepared.entry(value).or_insert_with(|| format!("{PREPARED}{next}").into());
        } else if constant[value.node()] && !std::mem::replace(&mut seen[value.node()], true) {
            todo.extend(graph.node_of(value).args());
        }
    }
    prepared
}

/// Which constant nodes are worth preparing: those that are computed, neither stored, nor looked at through a view, nor a formula that
/// its reader computes, nor a cheap elementwise function of short integers, which its reader computes from fewer bytes
/// (weights of 8 bits or less, with their zero points and scales), nor one of coordinates and next to nothing else (slopes times
/// distances), nor f16 or bf16 widened for contractions and maps.
fn worth_preparing(graph: &Graph, constant: &[bool]) -> Vec<bool> {
    let mut worth = vec![false; graph.nodes().len()];
    let are_widened = widened_by_readers(graph);
    let mut recipes: Vec<Recipe> = Vec::with_capacity(graph.nodes().len());
    for (id, node) in graph.nodes().iter().enumerate() {
        let mut recipe = Recipe::default();
        if let (Prim::Map(_) | Prim::View(_), true) = (node.prim(), constant[id]) {
            node.args().iter().for_each(|arg| recipe.include(&recipes[arg.node()]));
        }
        match node.prim() {
            _ if !constant[id] => {}
            Prim::View(_) => {}
            Prim::Map(row) => {
                recipe.flops = recipe.flops.saturating_add(row.expr.flops());
                let is_formula = node.args().is_empty() && recipe.flops <= MOST_FORMULA_FLOPS;
                let widens = are_widened[id] && looked_at(graph, id).is_some();
                let value = Value::new(id, 0);
                let is_computed = recipe.is_short_for(graph, value) || recipe.is_tiny_for(graph, value);
                worth[id] = !is_formula && !widens && !is_computed;
            }
            prim => worth[id] = prim.class() != Class::Source,
        }
        let is_stored = matches!(node.prim(), Prim::Const(_)) || worth[id];
        recipes.push(if is_stored { Recipe { flops: 0, stored: vec![id] } } else { recipe });
    }
    worth
}

/// Which nodes nothing reads but contractions and maps, through views or not: these widen what they read.
fn widened_by_readers(graph: &Graph) -> Vec<bool> {
    let mut alone = vec![true; graph.nodes().len()];
    graph.outputs().iter().for_each(|output| alone[output.value.node()] = false);
    for (id, node) in graph.nodes().iter().enumerate().rev() {
        let passes_on = match node.prim() {
            Prim::Contract(_) | Prim::Map(_) => true,
            Prim::View(_) => alone[id],
            _ => false,
        };
        node.args().iter().for_each(|arg| alone[arg.node()] &= passes_on);
    }
    alone
}

/// A constant that has this many times the bytes that it is computed from is better computed where it is read.
const MANY_TIMES: i64 = 64;

/// What a reader of a constant does if it is not prepared.
#[derive(Default)]
struct Recipe {
    /// operations for every element
    flops: u32,
    /// the nodes that it reads, each once
    stored: Vec<usize>,
}

impl Recipe {
    fn include(&mut self, other: &Recipe) {
        self.flops = self.flops.saturating_add(other.flops);
        self.stored.extend(&other.stored);
        self.stored.sort_unstable();
        self.stored.dedup();
    }

    /// Whether following it is cheap and reads short integers, at most half as many bytes as the constant has.
    fn is_short_for(&self, graph: &Graph, value: Value) -> bool {
        let types = self.stored.iter().map(|id| &graph.nodes()[*id].types()[0]);
        let Some(largest) = types.max_by_key(|ty| ty.bytes().as_int()) else { return false };
        largest.dtype.is_int() && largest.dtype.bits() <= 8 && self.reads_part(graph, value, 2)
    }

    /// Whether following it is cheap and reads next to nothing: a number for every head, and coordinates.
    fn is_tiny_for(&self, graph: &Graph, value: Value) -> bool {
        self.reads_part(graph, value, MANY_TIMES)
    }

    /// Whether following it is cheap, and the constant has so many times the bytes that it reads.
    fn reads_part(&self, graph: &Graph, value: Value, times: i64) -> bool {
        let bytes = |ty: &TensorType| ty.bytes().as_int();
        let read: Option<i64> = self.stored.iter().map(|id| bytes(&graph.nodes()[*id].types()[0])).sum();
        let whole = bytes(graph.ty(value));
        let is_less = read.zip(whole).is_some_and(|(read, whole)| read.saturating_mul(times) <= whole);
        is_less && self.flops <= MOST_FORMULA_FLOPS
    }
}

fn prepare_graph(graph: &Graph, prepared: &IndexMap<Value, Arc<str>>, budget: &Budget) -> Result<Graph> {
    let mut needed = vec![false; graph.nodes().len()];
    let mut todo: Vec<usize> = prepared.keys().map(|v| v.node()).collect();
    while let Some(id) = todo.pop() {
        if !std::mem::replace(&mut needed[id], true) {
            todo.extend(graph.nodes()[id].args().iter().map(|a| a.node()));
        }
    }
    let mut part = Part::new(graph);
    for id in (0..graph.nodes().len()).filter(|id| needed[*id]) {
        budget.check()?;
        part.copy(graph, id)?;
    }
    for (value, name) in prepared {
        let moved = part.moved(*value)?;
        part.graph.add_output(name, moved);
    }
    Ok(part.graph)
}

fn run_graph(graph: &Graph, prepared: &IndexMap<Value, Arc<str>>, constant: &[bool], budget: &Budget) -> Result<Graph> {
    let mut part = Part::new(graph);
    for input in graph.inputs() {
        part.copy(graph, input.node())?;
    }
    for (value, name) in prepared {
        part.add_input(graph, name.clone(), *value)?;
    }
    let live = graph.live_nodes();
    let mut needed: Vec<usize> = (0..graph.nodes().len()).filter(|id| live[*id]).collect();
    // What only prepared values read is not part of a run.
    let mut read = vec![false; graph.nodes().len()];
    for output in graph.outputs() {
        read[output.value.node()] |= !prepared.contains_key(&output.value);
    }
    for id in needed.iter().rev().copied() {
        if read[id] || !constant[id] {
            read[id] = true;
            let args = graph.nodes()[id].args().iter().filter(|a| !prepared.contains_key(*a));
            args.for_each(|a| read[a.node()] = true);
        }
    }
    needed.retain(|id| read[*id] && !matches!(graph.nodes()[*id].prim(), Prim::Input(_)));
    for id in needed {
        budget.check()?;
        part.copy(graph, id)?;
    }
    for output in graph.outputs() {
        let moved = part.moved(output.value)?;
        part.graph.add_output(&output.name, moved);
    }
    for constraint in graph.constraints() {
        part.graph.add_constraint(constraint.clone());
    }
    Ok(part.graph)
}

/// Readers look through no more views in a row than this: what is behind more is stored. Passes leave chains of views only where
/// paddings fill with different numbers, or where one view would be too long an expression.
const MOST_VIEWS: u32 = 32;

/// Nor do they look through views that may become a longer expression than this (see [`crate::tensor::Dim::complexity`]).
const MOST_PARTS: u32 = 256;

/// A part of a graph under construction, and where the values of the whole went.
pub(crate) struct Part {
    pub graph: Graph,
    values: IndexMap<Value, Value>,
    /// for every node of the part, the views that end with it
    chains: Vec<Chain>,
}

/// Views in a row.
#[derive(Clone, Copy)]
struct Chain {
    views: u32,
    /// how long the coordinates behind all of them are at most
    parts: u32,
}

impl Chain {
    const NONE: Chain = Chain { views: 0, parts: 1 };

    fn then(self, view: &View) -> Chain {
        let parts = view.map.iter().map(|at| at.complexity()).fold(1, u32::max);
        Chain { views: self.views + 1, parts: self.parts.saturating_mul(parts) }
    }

    fn is_long(self) -> bool {
        self.views > MOST_VIEWS || (self.views > 1 && self.parts > MOST_PARTS)
    }
}

impl Part {
    /// An empty part.
    pub fn new(whole: &Graph) -> Part {
        let mut graph = Graph::new(whole.name());
        graph.reserve_symbols(whole.value_symbols());
        Part { graph, values: IndexMap::new(), chains: Vec::new() }
    }

    /// Whether a value of the whole is there.
    pub fn has(&self, value: Value) -> bool {
        self.values.contains_key(&value)
    }

    /// Where a value of the whole went.
    pub fn moved(&self, value: Value) -> Result<Value> {
        self.values
            .get(&value)
            .copied()
            .ok_or_else(|| Error::bug(format!("{value:?} is in neither part of the program")))
    }

    /// Adds an input that stands for a value of the whole.
    pub fn add_input(&mut self, whole: &Graph, name: Arc<str>, value: Value) -> Result<()> {
        let input = Input { name, ty: whole.ty(value).clone() };
        let id = self.graph.add(input, &[], whole.origin(value.node()))?;
        self.values.insert(value, Value::new(id, 0));
        Ok(())
    }

    /// Adds a node of the whole whose operands are there.
    pub fn copy(&mut self, whole: &Graph, id: usize) -> Result<()> {
        let node = &whole.nodes()[id];
        let mut args: Vec<Value> = node.args().iter().map(|a| self.moved(*a)).collect::<Result<_>>()?;
        let mut chain = Chain::NONE;
        if let Prim::View(view) = node.prim() {
            chain = self.chains.get(args[0].node()).copied().unwrap_or(Chain::NONE).then(view);
            if chain.is_long() {
                let ty = self.graph.ty(args[0]);
                let same = Map { expr: Expr::build(&[ty.dtype], |_, x| x[0]), shape: ty.shape.clone() };
                args[0] = Value::new(self.graph.add(same, &args, whole.origin(id))?, 0);
                chain = Chain::NONE.then(view);
            }
        }
        let new = self.graph.adopt(node, &args, whole.origin(id))?;
        self.chains.resize(self.graph.nodes().len(), Chain::NONE);
        self.chains[new] = chain;
        for port in 0..node.types().len() {
            self.values.insert(Value::new(id, port), Value::new(new, port));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Builder;
    use crate::tensor::{DType, Dim, Literal, Seeded, Shape};

    #[test]
    fn constants_are_prepared_once_and_views_stay() {
        let b = Builder::new("split");
        let x = b.input("x", DType::F32, Shape::new([Dim::named("n"), Dim::int(2)]));
        let w = b.constant(Literal::f32s(&[1.0, 2.0, 3.0, 4.0]).reshaped([2, 2]).unwrap());
        let scaled = w * w.reduce(crate::ops::prim::Monoid::Max, &[0, 1]);
        b.output("y", x.matmul(scaled.transpose()));
        let program = Program::new(&b.finish().unwrap()).unwrap();
        assert_eq!(program.prepare().outputs().len(), 1);
        assert_eq!(program.prepare().inputs().len(), 0);
        let names: Vec<&str> = program.run().inputs().iter().map(|v| program.run().input_name(*v).as_ref()).collect();
        assert_eq!(names, ["x", "prepared:0"]);
        assert_eq!(program.inputs().count(), 1);
        assert!(!program.run().nodes().iter().any(|n| matches!(n.prim(), Prim::Const(_))));
    }

    #[test]
    fn chains_of_views_are_stored_now_and_then() {
        let b = Builder::new("paddings");
        let mut x = b.input("x", DType::F32, Shape::new([Dim::named("n")]));
        for k in 0..3 * MOST_VIEWS {
            x = x.pad(&[Dim::int(0)], &[Dim::int(1)], f64::from(k % 2));
        }
        b.output("y", x);
        let program = Program::new(&b.finish().unwrap()).unwrap();
        let maps = program.run().nodes().iter().filter(|node| matches!(node.prim(), Prim::Map(_)));
        assert_eq!(maps.count(), 2);
    }

    #[test]
    fn what_depends_on_a_size_or_on_chance_is_not_prepared() {
        let b = Builder::new("sizes");
        let x = b.input("x", DType::F32, Shape::new([Dim::named("n")]));
        let seed = b.int(DType::I64, 7);
        let noise = b.uniform(seed, DType::F32, Shape::new([3usize]));
        let shape = x.shape().unwrap();
        b.output("y", x + b.scalar(DType::F32, 1.0).exp().expand(shape));
        b.output("z", noise);
        let program = Program::new(&b.finish().unwrap()).unwrap();
        let prepared: Vec<_> = program.prepare().nodes().iter().map(|n| n.prim().class()).collect();
        assert!(prepared.iter().all(|c| matches!(c, Class::Source | Class::Map)), "{prepared:?}");
        assert!(program.run().nodes().iter().any(|n| matches!(n.prim(), Prim::Random(_))));
    }

    #[test]
    fn a_constant_output_is_prepared_and_a_stored_one_is_not() {
        let b = Builder::new("outputs");
        let stored = b.constant(Literal::f32s(&[1.0, 4.0]));
        b.output("stored", stored);
        b.output("computed", stored.sqrt());
        b.output("random", b.random(b.int(DType::I64, 3), Shape::new([2usize])));
        let program = Program::new(&b.finish().unwrap()).unwrap();
        assert_eq!(program.prepare().outputs().len(), 1);
        let names: Vec<_> = program.run().nodes().iter().map(|n| n.prim().name()).collect();
        assert_eq!(names, ["input", "const", "const", "random"]);
    }

    #[test]
    fn slopes_times_distances_are_computed_where_they_are_read() {
        let b = Builder::new("positions");
        let shape = Shape::new([8usize, 256, 256]);
        let scores = b.input("scores", DType::F32, shape.clone());
        let slopes = b.constant(Literal::f32s(&[0.5; 8]).reshaped([8, 1, 1]).unwrap());
        let distances = b.index(&(Dim::axis(2) - Dim::axis(1)), &shape).cast(DType::F32);
        b.output("y", scores + slopes * distances);
        let program = Program::new(&b.finish().unwrap()).unwrap();
        assert_eq!(program.prepare().outputs().len(), 0, "{}", program.prepare());
    }

    #[test]
    fn quantised_weights_stay_as_they_are_stored() {
        let b = Builder::new("weights");
        let x = b.input("x", DType::F32, Shape::new([Dim::named("n"), Dim::int(64)]));
        let stored = |dtype: DType, sizes: &[usize], seed: u64| {
            b.constant(Literal::seeded(dtype, sizes, Seeded { seed, low: -8.0, high: 8.0 }).unwrap())
        };
        let weights = stored(DType::I8, &[64, 32], 1).cast(DType::I32);
        let zero = stored(DType::I8, &[32], 2).cast(DType::I32);
        let scale = stored(DType::F32, &[32], 3);
        let dequantised = (weights - zero.expand(weights.shape().unwrap())).cast(DType::F32) * scale;
        b.output("y", x.matmul(dequantised));
        b.output("z", x.matmul(stored(DType::F32, &[64, 32], 4).exp() * scale.exp()));
        let program = Program::new(&b.finish().unwrap()).unwrap();
        let prepared: Vec<_> = program.prepare().outputs().iter().map(|o| o.name.as_ref()).collect();
        assert_eq!(prepared, ["prepared:0"], "only what is computed from floats: {:?}", program.prepare());
    }

    #[test]
    fn a_formula_is_left_to_its_readers() {
        let b = Builder::new("formula");
        let x = b.input("x", DType::F32, Shape::new([8usize, 2]));
        b.output("y", x.take(0, b.coordinate(0, &Shape::new([3usize]))));
        let program = Program::new(&b.finish().unwrap()).unwrap();
        assert_eq!(program.prepare().nodes().len(), 0, "{program:?}");
    }
}
