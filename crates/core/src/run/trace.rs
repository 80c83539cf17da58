//! What the kernels of a run read and stored, so that each can be judged by itself.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::compare::Meaning;
use crate::error::{Context, Error, Result};
use crate::fuse::{Plan, PlannedKernel};
use crate::graph::{Graph, Value, open_symbols};
use crate::ops::Prim;
use crate::ops::prim::Input;
use crate::program::Part;
use crate::reference::{Buffer, Limits, Reading};
use crate::tensor::{DType, Dim, Env, Literal, Shape, Symbol, TensorType};
use crate::tile::{Kernel, Rounding, interp};

/// What a run of a planned graph had in its hands.
#[derive(Clone, Debug)]
pub struct Trace {
    /// the inputs of the graph, in order; prepared ones too
    pub inputs: Vec<Literal>,
    /// what every kernel of the plan stored, in order
    pub kernels: Vec<Vec<Literal>>,
    /// the outputs of the graph, in order
    pub outputs: Vec<Literal>,
}

/// A kernel with what it read in a run, and what it stored.
#[derive(Clone, Debug)]
pub struct Case<'a> {
    /// the kernel
    pub kernel: &'a PlannedKernel,
    /// what it should compute, as a graph of its own: its inputs are called `x0`, `x1`, …, its outputs `y0`, `y1`, …
    pub graph: Graph,
    /// what it read, by those names, and what its nodes take without need
    pub inputs: FxHashMap<Arc<str>, Literal>,
    /// the symbols that were bound when it ran
    pub env: Env,
    /// what it stored
    pub stored: Vec<Literal>,
}

impl Trace {
    /// The kernels of the plan, each with what it read and stored in this run; what binds a size computes nothing and is left out.
    pub fn cases<'a>(&self, graph: &Graph, plan: &'a Plan) -> Result<Vec<(usize, Case<'a>)>> {
        let mut values: FxHashMap<Value, Literal> = FxHashMap::default();
        let mut env = Env::new();
        for _ in 0..2 {
            for (value, literal) in graph.inputs().iter().zip(&self.inputs) {
                graph.ty(*value).bind(literal.dtype(), literal.sizes(), &mut env)?;
            }
        }
        values.extend(graph.inputs().iter().copied().zip(self.inputs.iter().cloned()));
        let mut cases = Vec::with_capacity(plan.kernels.len());
        for (k, (kernel, stored)) in plan.kernels.iter().zip(&self.kernels).enumerate() {
            let read = |value: &Value| read(graph, &values, *value);
            let given = kernel.inputs.iter().map(read).collect::<Result<Vec<Literal>>>()?;
            if let Prim::Bind(row) = graph.nodes()[kernel.members[0]].prim() {
                env.bind(Symbol::Value(row.symbol), given.first().map_or(0, |scalar| scalar.int(0)));
            } else {
                let alone = kernel.graph(graph).at(|| kernel.describe(k, graph))?;
                let unread = unread(graph, &kernel.nodes_alone(graph));
                let given = given.into_iter().map(Ok).chain(unread.iter().map(read));
                let mut inputs: FxHashMap<Arc<str>, Literal> =
                    given.enumerate().map(|(k, literal)| Ok((input_name(k), literal?))).collect::<Result<_>>()?;
                for value in alone.inputs() {
                    let name = alone.input_name(*value);
                    if !inputs.contains_key(name) {
                        let sizes: Vec<usize> = alone.ty(*value).shape.eval(&env)?;
                        let zeros = vec![0u8; sizes.iter().product()];
                        inputs.insert(name.clone(), Literal::new(DType::U8, sizes, zeros)?);
                    }
                }
                let case = Case { kernel, graph: alone, inputs, env: env.clone(), stored: stored.clone() };
                cases.push((k, case));
            }
            for (value, literal) in kernel.outputs.iter().zip(stored) {
                graph.ty(*value).bind(literal.dtype(), literal.sizes(), &mut env)?;
                values.insert(*value, literal.clone());
            }
        }
        Ok(cases)
    }
}

impl Case<'_> {
    /// What the kernel should have stored.
    pub fn meaning(&self, limits: Limits) -> Result<Meaning> {
        Meaning::under(&self.graph, &self.inputs, &self.env, limits)
    }

    /// What the interpreter of kernels stores for the same inputs, with folds in the parts that the schedule names.
    pub fn interpreted(&self, limits: Limits) -> Result<Vec<Literal>> {
        self.interpret(&self.kernel.kernel, limits)
    }

    /// The same with the result of every step rounded to its type, which has the range of that type.
    pub fn rounded(&self, limits: Limits) -> Result<Vec<Literal>> {
        self.interpret(&Kernel { rounding: Rounding::Every, ..Kernel::clone(&self.kernel.kernel) }, limits)
    }

    fn interpret(&self, kernel: &Kernel, limits: Limits) -> Result<Vec<Literal>> {
        let given = (0..self.kernel.inputs.len()).map(|k| Buffer::from_literal(&self.inputs[&input_name(k)]));
        let given: Vec<Buffer> = given.collect();
        let folds = interp::Folds::AsScheduled;
        let options = interp::Options { reading: Reading::Rounded, limits, folds, ..interp::Options::default() };
        interp::run(kernel, &given, &self.env, &options)?.iter().map(Buffer::to_literal).collect()
    }
}

impl PlannedKernel {
    /// What the kernel computes, as a graph of its own: what it reads are inputs `x0`, `x1`, …, and behind them those that a node takes and does not need,
    /// as x⁰ does not need x; what it stores are outputs `y0`, `y1`, …. A size that the whole knows, and that none of these inputs tells (`t` where one has
    /// `2·t` elements), is told by one more: bytes `size_t`, as many as that.
    pub fn graph(&self, whole: &Graph) -> Result<Graph> {
        let mut part = Part::new(whole);
        let nodes = self.nodes_alone(whole);
        for (k, value) in self.inputs.iter().copied().chain(unread(whole, &nodes)).enumerate() {
            part.add_input(whole, input_name(k), value)?;
        }
        for id in nodes {
            if !part.has(Value::new(id, 0)) {
                part.copy(whole, id)?;
            }
        }
        for (k, value) in self.outputs.iter().enumerate() {
            let moved = part.moved(*value)?;
            part.graph.add_output(&format!("y{k}"), moved);
        }
        for symbol in open_symbols(&part.graph)? {
            let mut name = match &symbol {
                Symbol::Name(name) => format!("size_{name}"),
                symbol => format!("size_{symbol}"),
            };
            let is_taken = |name: &str| part.graph.inputs().iter().any(|v| part.graph.input_name(*v).as_ref() == name);
            while is_taken(&name) {
                name.push('_');
            }
            let ty = TensorType::new(DType::U8, Shape::new([Dim::from(symbol)]));
            part.graph.add(Input { name: name.into(), ty }, &[], &Default::default())?;
        }
        Ok(part.graph)
    }

    /// The nodes of which its outputs are made, back to what it reads, ascending.
    fn nodes_alone(&self, whole: &Graph) -> Vec<usize> {
        let mut is_needed = vec![false; whole.nodes().len()];
        let mut todo: Vec<Value> = self.outputs.clone();
        while let Some(value) = todo.pop() {
            if !self.inputs.contains(&value) && !std::mem::replace(&mut is_needed[value.node()], true) {
                todo.extend(whole.node_of(value).args());
            }
        }
        (0..is_needed.len()).filter(|id| is_needed[*id]).collect()
    }
}

/// The inputs of a graph among some of its nodes.
fn unread(graph: &Graph, nodes: &[usize]) -> Vec<Value> {
    let is_input = |id: &&usize| matches!(graph.nodes()[**id].prim(), Prim::Input(_));
    nodes.iter().filter(is_input).map(|id| Value::new(*id, 0)).collect()
}

fn input_name(k: usize) -> Arc<str> {
    format!("x{k}").into()
}

fn read(graph: &Graph, values: &FxHashMap<Value, Literal>, value: Value) -> Result<Literal> {
    match (values.get(&value), graph.node_of(value).prim()) {
        (Some(literal), _) => Ok(literal.clone()),
        (None, Prim::Const(row)) => Ok(row.literal.clone()),
        _ => Err(Error::bug(format!("{value:?} is read, and is not there"))),
    }
}
