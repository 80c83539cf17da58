//! The graph of primitives: append-only, hash-consed, always typed.
//!
//! Comes in: primitives with operands, from a [`Builder`] or a pass. Goes out: a [`Graph`] whose nodes stand in an order
//! in which every operand precedes its readers. Never here: devices, kernels, file formats.

mod build;
pub mod contents;
pub mod gradient;
mod origin;
pub mod rewrite;
mod shared;
mod tensor;
pub mod text;
mod verify;

pub use build::Builder;
pub use contents::Known;
pub use origin::{Origin, OriginSet};
pub use tensor::{Operand, Tensor, WindowAxis};
pub use verify::verify;
pub(crate) use verify::{open_symbols, verify_open, verify_within};

pub(crate) use shared::Operation;
use shared::Shared;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use indexmap::IndexSet;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::error::{Error, Result};
use crate::ops::Prim;
use crate::tensor::{Dim, Env, Symbol, TensorType};

/// A result of a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value {
    node: u32,
    port: u32,
}

impl Value {
    /// What stands for the result of an operation that failed; the builder holds the error.
    const POISON: Value = Value { node: u32::MAX, port: 0 };

    /// Result `port` of node `node`.
    pub fn new(node: usize, port: usize) -> Value {
        Value {
            node: u32::try_from(node).expect("fewer than 2^32 nodes"),
            port: u32::try_from(port).expect("few results"),
        }
    }

    /// The number of the node.
    pub fn node(self) -> usize {
        self.node as usize
    }

    /// Which of its results.
    pub fn port(self) -> usize {
        self.port as usize
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            0 => write!(f, "%{}", self.node),
            port => write!(f, "%{}.{port}", self.node),
        }
    }
}

/// An operation with its operands and the types of its results. What it computes and the types are shared by all graphs that a pass
/// leaves it in, so that rebuilding a graph costs little where nothing changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    prim: Shared,
    args: SmallVec<[Value; 3]>,
    types: Arc<[TensorType]>,
}

impl Node {
    /// What it computes.
    pub fn prim(&self) -> &Prim {
        &self.prim
    }

    /// What it computes, as a key.
    pub(crate) fn operation(&self) -> Operation {
        Operation(self.prim.clone())
    }

    /// Whether, of a view, the expressions are as simple as they get under the ranges of its axes.
    pub(crate) fn is_normal(&self) -> bool {
        self.prim.is_normal()
    }

    /// Its operands.
    pub fn args(&self) -> &[Value] {
        &self.args
    }

    /// The types of its results.
    pub fn types(&self) -> &[TensorType] {
        &self.types
    }

    /// The same, to be kept.
    pub(crate) fn shared_types(&self) -> Arc<[TensorType]> {
        self.types.clone()
    }
}

/// A named result of the graph.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Output {
    /// the caller's name for it
    pub name: Arc<str>,
    /// what it is
    pub value: Value,
}

/// Two sizes that must be equal, which only the caller's data can show.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Constraint {
    /// one size
    pub left: Dim,
    /// the other
    pub right: Dim,
    /// who needs it
    pub why: Arc<str>,
}

impl Constraint {
    /// The error for sizes that turned out different. Building the graph for these very sizes may still succeed
    /// (a size of 1 would be broadcast) or will name the node at fault.
    pub(crate) fn violated(&self, left: i64, right: i64) -> Error {
        let Constraint { left: a, right: b, why } = self;
        Error::needs_value(format!("the sizes {a} = {left} and {b} = {right} must be equal ({why})"), Vec::new())
    }
}

/// A typed graph of primitives. Equality looks at structure and names, not at origins.
#[derive(Clone, Default)]
pub struct Graph {
    name: String,
    nodes: Vec<Node>,
    inputs: Vec<Value>,
    outputs: Vec<Output>,
    constraints: IndexSet<Constraint>,
    /// Names from the user's model; outside of identity, so that sharing is never prevented by a name.
    origins: Vec<OriginSet>,
    /// Structural hash to the nodes that have it, of those that are noted.
    known: FxHashMap<u64, SmallVec<[u32; 1]>>,
    /// Nodes before this number are noted; the others are when somebody adds a node. Most graphs between passes never get one.
    noted: usize,
    value_symbols: u32,
    first_symbol: u32,
    /// Filled once somebody has seen that all nodes are live; a new node empties it.
    all_live: OnceLock<()>,
}

impl Graph {
    /// An empty graph.
    pub fn new(name: impl Into<String>) -> Graph {
        Graph { name: name.into(), ..Graph::default() }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All nodes; operands precede their readers.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The inputs in the caller's order.
    pub fn inputs(&self) -> &[Value] {
        &self.inputs
    }

    /// The name of an input.
    pub fn input_name(&self, input: Value) -> &Arc<str> {
        match self.nodes[input.node()].prim() {
            Prim::Input(row) => &row.name,
            other => unreachable!("{} is listed as an input", other.name()),
        }
    }

    /// The outputs in the caller's order.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// Checks the constraints of which both sizes are known; the first that is broken is the error.
    pub fn check_constraints(&self, env: &Env) -> Result<()> {
        for constraint in &self.constraints {
            if let (Ok(left), Ok(right)) = (constraint.left.eval(env), constraint.right.eval(env))
                && left != right
            {
                return Err(constraint.violated(left, right));
            }
        }
        Ok(())
    }

    /// Sizes that must agree at run time.
    pub fn constraints(&self) -> &IndexSet<Constraint> {
        &self.constraints
    }

    /// The type of a value.
    pub fn ty(&self, value: Value) -> &TensorType {
        &self.nodes[value.node()].types[value.port()]
    }

    /// The node that makes a value.
    pub fn node_of(&self, value: Value) -> &Node {
        &self.nodes[value.node()]
    }

    /// Where a node came from in the user's model.
    pub fn origin(&self, node: usize) -> &OriginSet {
        &self.origins[node]
    }

    /// A node in words, for the path of an error.
    pub fn describe(&self, node: usize) -> String {
        let origin = &self.origins[node];
        let prim = self.nodes[node].prim.name();
        if origin.is_empty() { format!("%{node} ({prim})") } else { format!("{origin} (%{node}, {prim})") }
    }

    /// The number of value symbols handed out so far; the next fresh one has this number.
    pub fn value_symbols(&self) -> u32 {
        self.value_symbols
    }

    /// A value symbol that nothing else uses.
    pub fn fresh_symbol(&mut self) -> u32 {
        self.value_symbols += 1;
        self.value_symbols - 1
    }

    /// For a region: value symbols below this number belong to the graphs around it.
    pub fn first_symbol(&self) -> u32 {
        self.first_symbol
    }

    /// Makes this the graph of a region inside a graph that has handed out `count` symbols.
    pub fn start_symbols(&mut self, count: u32) {
        (self.first_symbol, self.value_symbols) = (count, count);
    }

    /// Keeps numbers below `count` from being handed out as fresh symbols.
    pub fn reserve_symbols(&mut self, count: u32) {
        self.value_symbols = self.value_symbols.max(count);
    }

    /// Appends a node, or finds the equal one that is there, and returns its number. Origins of both are kept.
    pub fn add(&mut self, prim: impl Into<Prim>, args: &[Value], origin: &OriginSet) -> Result<usize> {
        let prim = Shared::new(prim.into());
        self.find_or_push(&prim, args, origin, |graph| {
            let arg_types: SmallVec<[TensorType; 3]> = args.iter().map(|a| graph.ty(*a).clone()).collect();
            let types = prim.infer(&arg_types)?;
            types.iter().try_for_each(|ty| ty.shape.check())?;
            Ok(types.into())
        })
    }

    /// As [`Graph::add`], for a node of another graph. Its new operands have the types of its old ones, and so do its results.
    pub(crate) fn adopt(&mut self, node: &Node, args: &[Value], origin: &OriginSet) -> Result<usize> {
        self.find_or_push(&node.prim, args, origin, |_| Ok(node.types.clone()))
    }

    /// The first nodes of this graph, without what is computed from them: neither outputs nor constraints.
    pub(crate) fn beginning(&self, count: usize) -> Graph {
        let mut graph = Graph::new(self.name.as_str());
        graph.nodes = self.nodes[..count].to_vec();
        graph.origins = self.origins[..count].to_vec();
        graph.inputs = self.inputs.iter().copied().filter(|input| input.node() < count).collect();
        graph.known.reserve(self.nodes.len());
        graph
    }

    /// The same graph without the nodes that nothing needs.
    fn without_dead(mut self) -> Graph {
        let live = self.live_nodes();
        if !live.contains(&false) {
            return self;
        }
        let mut places: Vec<u32> = Vec::with_capacity(live.len());
        let mut next = 0;
        for is_live in &live {
            places.push(next);
            next += u32::from(*is_live);
        }
        let moved = |value: &mut Value| value.node = places[value.node()];
        let (mut of_nodes, mut of_origins) = (live.iter(), live.iter());
        self.nodes.retain_mut(|node| {
            let is_live = of_nodes.next() == Some(&true);
            if is_live {
                node.args.iter_mut().for_each(moved);
            }
            is_live
        });
        self.origins.retain(|_| of_origins.next() == Some(&true));
        self.inputs.iter_mut().for_each(moved);
        self.outputs.iter_mut().for_each(|output| moved(&mut output.value));
        self.known.clear();
        self.noted = 0;
        self.all_live.get_or_init(|| ());
        self
    }

    /// Makes sure that every node is found by what it computes.
    fn note_nodes(&mut self) {
        for id in self.noted..self.nodes.len() {
            let Node { prim, args, .. } = &self.nodes[id];
            self.known.entry(node_key(prim, args)).or_default().push(id as u32);
        }
        self.noted = self.nodes.len();
    }

    fn find_or_push(
        &mut self,
        prim: &Shared,
        args: &[Value],
        origin: &OriginSet,
        types: impl FnOnce(&Graph) -> Result<Arc<[TensorType]>>,
    ) -> Result<usize> {
        self.note_nodes();
        let hash = node_key(prim, args);
        if let Some(candidates) = self.known.get(&hash) {
            let same = |id: &&u32| {
                let node = &self.nodes[**id as usize];
                node.prim == *prim && node.args.as_slice() == args
            };
            if let Some(id) = candidates.iter().find(same) {
                let id = *id as usize;
                self.origins[id].merge(origin);
                return Ok(id);
            }
        }
        let types = types(self)?;
        self.all_live = OnceLock::new();
        let id = self.nodes.len();
        if matches!(**prim, Prim::Input(_)) {
            self.inputs.push(Value::new(id, 0));
        }
        self.nodes.push(Node { prim: prim.clone(), args: args.into(), types });
        self.origins.push(origin.clone());
        self.known.entry(hash).or_default().push(id as u32);
        self.noted = id + 1;
        Ok(id)
    }

    /// Names a value as a result.
    pub fn add_output(&mut self, name: &str, value: Value) {
        self.outputs.push(Output { name: name.into(), value });
    }

    /// Demands that two sizes are equal at run time.
    pub fn add_constraint(&mut self, constraint: Constraint) {
        self.constraints.insert(constraint);
    }

    /// Which nodes the outputs need, including those that bind the symbols that needed nodes mention, and all inputs.
    pub fn live_nodes(&self) -> Vec<bool> {
        if self.all_live.get().is_some() {
            return vec![true; self.nodes.len()];
        }
        let mut live = vec![false; self.nodes.len()];
        let binders = self.binders();
        let mut needed: Vec<usize> = self.outputs.iter().map(|o| o.value.node()).collect();
        needed.extend(self.inputs.iter().map(|v| v.node()));
        let has_binders = !binders.is_empty();
        let need_dim = |dim: &Dim, needed: &mut Vec<usize>| {
            dim.for_each_symbol(&mut |s| {
                if let Symbol::Value(n) = s {
                    needed.extend(binders.get(n))
                }
            });
        };
        for constraint in &self.constraints {
            need_dim(&constraint.left, &mut needed);
            need_dim(&constraint.right, &mut needed);
        }
        while let Some(id) = needed.pop() {
            if std::mem::replace(&mut live[id], true) {
                continue;
            }
            let node = &self.nodes[id];
            needed.extend(node.args.iter().map(|a| a.node()));
            if has_binders {
                node.prim.for_each_dim(&mut |dim| need_dim(dim, &mut needed));
                node.types.iter().flat_map(|ty| ty.shape.dims()).for_each(|dim| need_dim(dim, &mut needed));
            }
        }
        if !live.contains(&false) {
            self.all_live.get_or_init(|| ());
        }
        live
    }

    /// The node that binds each value symbol: a `bind`, or the first node whose result has the symbol as a size.
    pub fn binders(&self) -> FxHashMap<u32, usize> {
        let mut binders = FxHashMap::default();
        for (id, node) in self.nodes.iter().enumerate() {
            if let Prim::Bind(row) = node.prim() {
                binders.entry(row.symbol).or_insert(id);
            }
            for dim in node.types.iter().flat_map(|ty| ty.shape.dims()) {
                if let Some(Symbol::Value(n)) = dim.as_symbol() {
                    binders.entry(*n).or_insert(id);
                }
            }
        }
        binders
    }

    /// Calls `f` with every size in the graph: attributes, result types, constraints.
    pub fn for_each_dim(&self, f: &mut dyn FnMut(&Dim)) {
        for node in &self.nodes {
            node.prim.for_each_dim(f);
            node.types.iter().flat_map(|ty| ty.shape.dims()).for_each(&mut *f);
        }
        for constraint in &self.constraints {
            f(&constraint.left);
            f(&constraint.right);
        }
    }
}

/// The hash by which equal nodes are found: that of what they compute, which nobody can foresee, and their operands, mixed by a factor that
/// nobody knows.
fn node_key(prim: &Shared, args: &[Value]) -> u64 {
    let factor = u128::from(*shared::FACTOR);
    args.iter().fold(prim.key(), |key, arg| {
        let product = u128::from(key ^ (u64::from(arg.node) << 32 | u64::from(arg.port))) * factor;
        (product as u64) ^ ((product >> 64) as u64)
    })
}

impl PartialEq for Graph {
    fn eq(&self, other: &Graph) -> bool {
        self.name == other.name
            && self.nodes == other.nodes
            && self.inputs == other.inputs
            && self.outputs == other.outputs
            && self.constraints == other.constraints
    }
}

impl Eq for Graph {}

impl Hash for Graph {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nodes.hash(state);
        self.outputs.hash(state);
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
