//! Rebuilding a graph node by node: the machinery of every pass.

use std::borrow::Cow;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

use super::contents::{self, Contents, Purpose};
use super::shared::Shared;
use super::{Constraint, Graph, Node, OriginSet, Value};
use crate::budget::Budget;
use crate::error::{Context, Error, Result};
use crate::ops::Prim;
use crate::ops::prim::{If, Loop, View};
use crate::tensor::TensorType;

/// The results of a node.
pub type Values = SmallVec<[Value; 1]>;

/// A graph that is being rebuilt. What is added belongs to the origin of the node that is being rewritten.
///
/// As long as every node was kept, the old graph stands for the new one, of which it is the beginning: a pass that changes nothing
/// copies nothing.
#[derive(Debug)]
pub struct Rebuild<'g> {
    old: &'g Graph,
    /// The node of the old graph that is being rewritten; those before it have been.
    at: usize,
    /// What is new, once something is.
    new: Option<New>,
    /// What is known of the first results of nodes, as far as somebody has asked.
    contents: FxHashMap<usize, Option<Contents>>,
    /// Views that were composed, the outer ones first, with what became of them: layers repeat each other's.
    composed: FxHashMap<View, FxHashMap<View, Option<View>>>,
    /// How many pairs that are.
    pairs: usize,
    /// Where the parts of concats begin, as far as somebody has asked.
    starts: FxHashMap<Value, Option<Arc<[i64]>>>,
}

/// So many pairs of views are remembered; few, as a model may be made such that all of them have the same hash.
const MOST_COMPOSED: usize = 1 << 9;

#[derive(Debug)]
struct New {
    graph: Graph,
    /// The results of the nodes of the old graph that have been rebuilt.
    moved: Vec<Values>,
}

impl<'g> Rebuild<'g> {
    fn of(old: &'g Graph) -> Rebuild<'g> {
        let (contents, composed, starts) = Default::default();
        Rebuild { old, at: 0, new: None, contents, composed, pairs: 0, starts }
    }

    /// What has been rebuilt so far; the new operands of a node are values of this graph. It may have more nodes, which
    /// mean nothing yet.
    pub fn graph(&self) -> &Graph {
        self.new.as_ref().map_or(self.old, |new| &new.graph)
    }

    /// What has taken the place of a value of the graph that is being rebuilt: one that the node at hand depends on.
    pub fn moved(&self, value: Value) -> Value {
        self.new.as_ref().map_or(value, |new| new.moved[value.node()][value.port()])
    }

    /// What has taken the place of the operands of a node.
    fn moved_args(&self, node: &Node) -> SmallVec<[Value; 3]> {
        let mut args = SmallVec::from_slice(node.args());
        if self.new.is_some() {
            args.iter_mut().for_each(|arg| *arg = self.moved(*arg));
        }
        args
    }

    /// The graph that is new from here on.
    fn new_graph(&mut self) -> &mut New {
        let (old, at) = (self.old, self.at);
        if self.new.is_none() {
            // another node may have its number now
            self.contents.remove(&at);
        }
        self.new.get_or_insert_with(|| {
            let mut graph = old.beginning(at);
            graph.start_symbols(old.first_symbol());
            graph.reserve_symbols(old.value_symbols());
            let mut moved = Vec::with_capacity(old.nodes().len());
            moved.extend(old.nodes()[..at].iter().enumerate().map(|(id, node)| results(id, node)));
            New { graph, moved }
        })
    }

    /// Adds a primitive (or finds the equal one) and returns its first result.
    pub fn add(&mut self, prim: impl Into<Prim>, args: &[Value]) -> Result<Value> {
        let origin = self.old.origin(self.at);
        self.new_graph().graph.add(prim, args, origin).map(|id| Value::new(id, 0))
    }

    /// As [`Rebuild::add`], for what does the work of a node of another origin: it belongs to that origin first.
    pub fn add_for(&mut self, origin: &OriginSet, prim: impl Into<Prim>, args: &[Value]) -> Result<Value> {
        let mut both = origin.clone();
        both.merge(self.old.origin(self.at));
        self.new_graph().graph.add(prim, args, &both).map(|id| Value::new(id, 0))
    }

    /// Adds a node as it is, with its new operands, and returns its first result.
    pub fn keep(&mut self, node: &Node, args: &[Value]) -> Result<Value> {
        let origin = self.old.origin(self.at);
        self.new_graph().graph.adopt(node, args, origin).map(|id| Value::new(id, 0))
    }

    /// The first result of the node at hand, with its new operands.
    pub fn at_hand(&mut self, node: &Node, args: &[Value]) -> Result<Value> {
        match self.new {
            Some(_) => self.keep(node, args),
            None => Ok(Value::new(self.at, 0)),
        }
    }

    /// Demands that two sizes are equal at run time.
    pub fn add_constraint(&mut self, constraint: Constraint) {
        self.new_graph().graph.add_constraint(constraint);
    }

    /// Puts values in the place of the results of the node at hand; `None` keeps it, with its new operands.
    fn settle(&mut self, node: &Node, is_old: bool, args: &[Value], values: Option<Values>) -> Result<()> {
        let values = match values {
            Some(values) => {
                check_types(self.graph(), node, &values)?;
                values
            }
            None if is_old && self.new.is_none() => {
                self.at += 1;
                return Ok(());
            }
            None => {
                let first = self.keep(node, args)?.node();
                results(first, node)
            }
        };
        if self.new.is_some() || values != results(self.at, node) {
            self.new_graph().moved.push(values);
        }
        self.at += 1;
        Ok(())
    }

    /// Leaves out the node at hand.
    fn drop_node(&mut self) {
        self.new_graph().moved.push(Values::new());
        self.at += 1;
    }

    /// The new graph, complete; `None` where nothing changed.
    fn finish(self) -> Option<Graph> {
        let New { mut graph, moved } = self.new?;
        for output in self.old.outputs() {
            graph.add_output(&output.name, moved[output.value.node()][output.value.port()]);
        }
        for constraint in self.old.constraints() {
            graph.add_constraint(constraint.clone());
        }
        Some(graph)
    }

    /// What reads `inner` through `outer` as one view, where that is one: [`View::after`].
    pub fn composed(&mut self, outer: &View, inner: &View) -> Option<View> {
        if let Some(known) = self.composed.get(outer).and_then(|inside| inside.get(inner)) {
            return known.clone();
        }
        if self.pairs == MOST_COMPOSED {
            self.composed.clear();
            self.pairs = 0;
        }
        let found = outer.after(inner);
        self.composed.entry(outer.clone()).or_default().insert(inner.clone(), found.clone());
        self.pairs += 1;
        found
    }

    /// Where the parts of a concat begin along its axis, and where the last one ends; where all sizes are numbers.
    pub fn starts(&mut self, concat: Value) -> Option<Arc<[i64]>> {
        if let Some(known) = self.starts.get(&concat) {
            return known.clone();
        }
        let graph = self.graph();
        let node = graph.node_of(concat);
        let found = match node.prim() {
            Prim::Concat(row) => {
                let sizes = node.args().iter().map(|part| graph.ty(*part).shape[row.axis].as_int());
                let ends = sizes.scan(0i64, |end, size| {
                    Some(size.and_then(|size| {
                        *end = end.checked_add(size)?;
                        Some(*end)
                    }))
                });
                std::iter::once(Some(0)).chain(ends).collect::<Option<Arc<[i64]>>>()
            }
            _ => None,
        };
        self.starts.insert(concat, found.clone());
        found
    }

    /// What is known of the elements of a small tensor.
    pub fn contents(&mut self, value: Value) -> Option<Contents> {
        let mut wanted = vec![value.node()];
        while let Some(id) = wanted.last().copied() {
            if self.contents.contains_key(&id) {
                wanted.pop();
                continue;
            }
            let node = &self.graph().nodes()[id];
            let operands: &[Value] = if contents::is_followed(node) { node.args() } else { &[] };
            let missing = operands.iter().map(|a| a.node()).filter(|id| !self.contents.contains_key(id));
            let before = wanted.len();
            wanted.extend(missing);
            if wanted.len() == before {
                wanted.pop();
                let of = |v: Value| self.contents.get(&v.node()).filter(|_| v.port() == 0).cloned().flatten();
                let learnt = contents::contents(self.graph(), node, Purpose::Data, &of);
                self.contents.insert(id, learnt);
            }
        }
        self.contents.get(&value.node()).filter(|_| value.port() == 0).cloned().flatten()
    }
}

/// All results of a node of some number.
fn results(id: usize, node: &Node) -> Values {
    match node.types().len() {
        // nearly all
        1 => smallvec![Value::new(id, 0)],
        count => (0..count).map(|port| Value::new(id, port)).collect(),
    }
}

/// The graph rebuilt in order, as long as the budget lasts; `None` where that changes nothing. For every live node, `f` sees the node and its new operands and
/// returns what takes the place of its results, or `None` to keep the node. Regions are rebuilt before the node that holds them,
/// by the same `f`.
///
/// Inputs with their order, outputs, constraints, symbols and origins stay; dead nodes go, also those that became dead.
/// A replacement of another type is refused: it would change what readers mean.
pub fn rewrite<F>(graph: &Graph, budget: &Budget, mut f: F) -> Result<Option<Graph>>
where
    F: FnMut(&mut Rebuild<'_>, &Node, &[Value]) -> Result<Option<Values>>,
{
    rewrite_region(graph, budget, &mut f)
}

/// As [`rewrite`], but regions stay as they are, and `f` is told the number of the node in `graph`; what became of the values
/// that the node depends on is [`Rebuild::moved`].
pub fn rewrite_outside_regions<F>(graph: &Graph, budget: &Budget, mut f: F) -> Result<Option<Graph>>
where
    F: FnMut(&mut Rebuild<'_>, usize) -> Result<Option<Values>>,
{
    let new = rebuild_nodes(graph, budget, &mut |rebuild, id, node, args| {
        let values = f(rebuild, id)?;
        rebuild.settle(node, true, args, values)
    });
    Ok(new?.map(Graph::without_dead))
}

/// The graph with the regions that its own nodes hold replaced by what `f` makes of them; `None` where it changes none.
pub fn rewrite_regions<F>(graph: &Graph, budget: &Budget, mut f: F) -> Result<Option<Graph>>
where
    F: FnMut(&Graph) -> Result<Option<Graph>>,
{
    if graph.nodes().iter().all(|node| node.prim().regions().is_empty()) {
        return Ok(None);
    }
    let new = rebuild_nodes(graph, budget, &mut |rebuild, _, node, args| {
        let held = with_regions(node, &mut f)?;
        let (node, is_old) = held.map_or((Cow::Borrowed(node), true), |held| (Cow::Owned(held), false));
        rebuild.settle(&node, is_old, args, None)
    });
    Ok(new?.map(Graph::without_dead))
}

/// A single result that takes the place of a node's first one.
pub fn replaced(value: Value) -> Result<Option<Values>> {
    Ok(Some(smallvec![value]))
}

type Rewriter<'f> = dyn FnMut(&mut Rebuild<'_>, &Node, &[Value]) -> Result<Option<Values>> + 'f;

/// As a [`Rewriter`], but sees the number of the node too, and settles what becomes of it.
type Rebuilder<'f> = dyn FnMut(&mut Rebuild<'_>, usize, &Node, &[Value]) -> Result<()> + 'f;

fn rewrite_region(graph: &Graph, budget: &Budget, f: &mut Rewriter<'_>) -> Result<Option<Graph>> {
    let new = rebuild_nodes(graph, budget, &mut |rebuild, _, node, args| rewrite_node(rebuild, budget, node, args, f));
    Ok(new?.map(Graph::without_dead))
}

fn rebuild_nodes(graph: &Graph, budget: &Budget, f: &mut Rebuilder<'_>) -> Result<Option<Graph>> {
    let mut rebuild = Rebuild::of(graph);
    let live = graph.live_nodes();
    for (id, node) in graph.nodes().iter().enumerate() {
        if !live[id] {
            rebuild.drop_node();
            continue;
        }
        budget.check()?;
        let args = rebuild.moved_args(node);
        f(&mut rebuild, id, node, &args).at(|| graph.describe(id))?;
    }
    Ok(rebuild.finish())
}

fn rewrite_node(
    rebuild: &mut Rebuild<'_>,
    budget: &Budget,
    node: &Node,
    args: &[Value],
    f: &mut Rewriter<'_>,
) -> Result<()> {
    let held = with_regions(node, &mut |region| rewrite_region(region, budget, f))?;
    let (node, is_old) = held.map_or((Cow::Borrowed(node), true), |held| (Cow::Owned(held), false));
    let values = f(rebuild, &node, args)?;
    rebuild.settle(&node, is_old, args, values)
}

/// A node with its regions replaced by what `f` makes of them; `None` where it changes none.
fn with_regions(node: &Node, f: &mut dyn FnMut(&Graph) -> Result<Option<Graph>>) -> Result<Option<Node>> {
    let held = match node.prim() {
        Prim::If(row) => match (f(&row.then)?, f(&row.otherwise)?) {
            (None, None) => None,
            (then, otherwise) => {
                let (then, otherwise) = (or_old(then, &row.then), or_old(otherwise, &row.otherwise));
                Some(Prim::from(If { then, otherwise, results: row.results.clone() }))
            }
        },
        Prim::Loop(row) => f(&row.body)?.map(|body| Prim::from(Loop { body: Arc::new(body), ..row.clone() })),
        _ => None,
    };
    Ok(held.map(|prim| Node { prim: Shared::new(prim), ..node.clone() }))
}

fn or_old(new: Option<Graph>, old: &Arc<Graph>) -> Arc<Graph> {
    new.map_or_else(|| old.clone(), Arc::new)
}

fn check_types(graph: &Graph, node: &Node, values: &[Value]) -> Result<()> {
    let types = || values.iter().map(|v| graph.ty(*v));
    if !types().eq(node.types()) {
        let types: Vec<&TensorType> = types().collect();
        let (name, old) = (node.prim().name(), node.types());
        return Err(Error::bug(format!("a rewrite puts {types:?} in the place of a {name} of {old:?}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Builder;
    use crate::ops::Scalar;
    use crate::tensor::{DType, Dim, Shape};

    fn sample() -> Graph {
        let b = Builder::new("sample");
        let n = Dim::named("n");
        let x = b.input("x", DType::F32, Shape::new([n.clone()]));
        let y = b.input("y", DType::F32, Shape::new([Dim::named("m")]));
        let _dead = x.exp();
        b.output("sum", x + y);
        b.output("neg", -x);
        b.finish().unwrap()
    }

    #[test]
    fn everything_but_dead_nodes_survives() {
        let graph = sample();
        let once = rewrite(&graph, &Budget::UNLIMITED, |_, _, _| Ok(None)).unwrap().unwrap();
        assert_eq!(once.nodes().len(), graph.nodes().len() - 1);
        assert_eq!(once.constraints(), graph.constraints());
        let names = |g: &Graph| g.inputs().iter().map(|v| g.input_name(*v).to_string()).collect::<Vec<_>>();
        assert_eq!(names(&once), names(&graph));
        let outputs: Vec<_> = once.outputs().iter().map(|o| o.name.as_ref()).collect();
        assert_eq!(outputs, ["sum", "neg"]);
        assert_eq!(rewrite(&once, &Budget::UNLIMITED, |_, _, _| Ok(None)).unwrap(), None);
    }

    #[test]
    fn a_replacement_takes_the_place_of_the_node() {
        let swapped = rewrite(&sample(), &Budget::UNLIMITED, |_, node, args| match node.prim() {
            Prim::Map(row) if row.expr.as_call() == Some(Scalar::Neg) => replaced(args[0]),
            _ => Ok(None),
        });
        let swapped = swapped.unwrap().unwrap();
        assert_eq!(swapped.outputs()[1].value, swapped.inputs()[0]);
    }

    #[test]
    fn views_that_were_composed_before_are_what_they_were() {
        let graph = sample();
        let mut rebuild = Rebuild::of(&graph);
        let shape = |k: usize| Shape::new([k, 6usize]);
        let turned = |k: usize| View::new(shape(k), vec![Dim::axis(1), Dim::axis(0)]);
        let other = |k: usize| View::new(shape(k), vec![Dim::axis(0) + 1, Dim::axis(1)]);
        for k in (1..MOST_COMPOSED + 9).chain(1..9) {
            for inner in [turned(k), other(k)] {
                assert_eq!(rebuild.composed(&turned(k), &inner), turned(k).after(&inner));
            }
        }
        assert!(rebuild.composed.values().map(FxHashMap::len).sum::<usize>() <= MOST_COMPOSED);
    }

    #[test]
    fn a_replacement_of_another_type_is_refused() {
        let error = rewrite(&sample(), &Budget::UNLIMITED, |rebuild, node, _| match node.prim() {
            Prim::Map(_) => replaced(rebuild.add(crate::ops::prim::Sizes { dims: vec![Dim::int(1)] }, &[])?),
            _ => Ok(None),
        });
        assert!(error.unwrap_err().message().contains("in the place of a map"));
    }

    #[test]
    fn regions_are_rebuilt_too() {
        let b = Builder::new("branches");
        let c = b.input("c", DType::Bool, Shape::scalar());
        let x = b.input("x", DType::F32, Shape::new([2usize]));
        let region = |op: Scalar| {
            let r = b.region("branch");
            let x = r.input("x", DType::F32, Shape::new([2usize]));
            r.output("y", x.apply(op));
            r.finish().unwrap()
        };
        let results = b.if_else(c, region(Scalar::Neg), region(Scalar::Exp), &[x]).unwrap();
        b.output("y", results[0]);
        let graph = b.finish().unwrap();
        let new = rewrite(&graph, &Budget::UNLIMITED, |_, node, args| match node.prim() {
            Prim::Map(row) if row.expr.as_call() == Some(Scalar::Neg) => replaced(args[0]),
            _ => Ok(None),
        });
        let new = new.unwrap().unwrap();
        let Prim::If(row) = new.node_of(new.outputs()[0].value).prim() else { panic!("the if is gone") };
        assert_eq!((row.then.nodes().len(), row.otherwise.nodes().len()), (1, 2));
    }
}
