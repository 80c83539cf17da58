//! Conditions that wait for sizes which only a run binds.

use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::graph::{Constraint, Graph, Node};
use crate::ops::Prim;
use crate::ops::prim::{Class, Monoid};
use crate::tensor::{Dim, Env, Symbol, TensorType};

/// What must hold of the sizes of a run.
#[derive(Clone, Copy, Debug)]
enum Condition<'g> {
    /// two are equal
    Equal(&'g Constraint),
    /// a node that finds positions along an axis has elements to choose from, for every element of its result
    Choice(usize),
}

/// The conditions on sizes in a graph that were not checked yet: its constraints, and that nothing is chosen of no elements. Each waits for
/// one symbol that has no number, and is looked at when that is bound: very many conditions and very many bindings are not compared with
/// each other.
#[derive(Debug)]
pub struct Pending<'g> {
    graph: &'g Graph,
    waiting: FxHashMap<Symbol, Vec<(usize, Condition<'g>)>>,
    /// the bindings that were looked at
    mark: usize,
}

impl<'g> Pending<'g> {
    /// Checks the conditions of a graph whose symbols are all bound; the others wait.
    pub fn of(graph: &'g Graph, env: &Env) -> Result<Pending<'g>> {
        let mut pending = Pending { graph, waiting: FxHashMap::default(), mark: env.mark() };
        let equal = graph.constraints().iter().map(Condition::Equal);
        let choices = graph.nodes().iter().enumerate();
        let choices = choices.filter(|(_, node)| axis_of_choice(node).is_some()).map(|(id, _)| Condition::Choice(id));
        pending.look(equal.chain(choices).enumerate(), env)?;
        Ok(pending)
    }

    /// Checks the conditions for which nothing is missing any more, and forgets them.
    pub fn check(&mut self, env: &Env) -> Result<()> {
        if env.mark() == self.mark {
            return Ok(());
        }
        let ready = env.since(self.mark).filter_map(|symbol| self.waiting.remove(symbol));
        let mut ready: Vec<(usize, Condition<'_>)> = ready.flatten().collect();
        self.mark = env.mark();
        ready.sort_unstable_by_key(|(number, _)| *number);
        self.look(ready.into_iter(), env)
    }

    /// Checks those for which nothing is missing, in their order; the first one that is broken is the error.
    fn look(&mut self, conditions: impl Iterator<Item = (usize, Condition<'g>)>, env: &Env) -> Result<()> {
        for (number, condition) in conditions {
            match self.missing(condition, env) {
                Some(symbol) => self.waiting.entry(symbol).or_default().push((number, condition)),
                None => self.hold(condition, env)?,
            }
        }
        Ok(())
    }

    /// A symbol without a number on which a condition depends.
    fn missing(&self, condition: Condition<'_>, env: &Env) -> Option<Symbol> {
        let mut missing = None;
        let mut look = |dim: &Dim| {
            dim.for_each_symbol(&mut |s| {
                if missing.is_none() && env.get(s).is_none() {
                    missing = Some(s.clone());
                }
            });
        };
        match condition {
            Condition::Equal(constraint) => [&constraint.left, &constraint.right].into_iter().for_each(look),
            Condition::Choice(id) => {
                self.graph.ty(self.graph.nodes()[id].args()[0]).shape.dims().iter().for_each(&mut look)
            }
        }
        missing
    }

    /// An error where a condition does not hold.
    fn hold(&self, condition: Condition<'_>, env: &Env) -> Result<()> {
        match condition {
            Condition::Equal(constraint) => {
                let (left, right) = (constraint.left.eval(env)?, constraint.right.eval(env)?);
                if left == right { Ok(()) } else { Err(constraint.violated(left, right)) }
            }
            Condition::Choice(id) => {
                let node = &self.graph.nodes()[id];
                let Some((monoid, axis)) = axis_of_choice(node) else { return Ok(()) };
                let is_nothing = self.graph.ty(node.args()[0]).shape[axis].eval(env)? == 0;
                match is_nothing && is_needed(self.graph, id, env) {
                    true => Err(monoid.of_nothing().at(self.graph.describe(id))),
                    false => Ok(()),
                }
            }
        }
    }
}

/// Whether anybody needs an element of a node's results: those of no elements end the way, and what nobody reads is not needed either.
fn is_needed(graph: &Graph, id: usize, env: &Env) -> bool {
    let is_nothing = |ty: &TensorType| ty.shape.dims().iter().any(|dim| dim.eval(env).is_ok_and(|size| size == 0));
    // Nodes stand behind what they read.
    let mut of_it = vec![false; graph.nodes().len()];
    for (k, node) in graph.nodes().iter().enumerate().skip(id) {
        let reads = k == id || node.args().iter().any(|arg| of_it[arg.node()]);
        let decides = node.prim().class() == Class::Control;
        of_it[k] = reads && (decides || !node.types().iter().all(is_nothing));
    }
    let live = graph.live_nodes();
    let outputs = graph.outputs().iter().map(|output| output.value.node());
    outputs
        .chain((0..live.len()).filter(|k| live[*k] && graph.nodes()[*k].prim().class() == Class::Control))
        .any(|k| of_it[k])
}

/// The axis along which a node finds positions.
fn axis_of_choice(node: &Node) -> Option<(Monoid, usize)> {
    match node.prim() {
        Prim::Reduce(row) if row.monoid.is_position() => Some((row.monoid, row.axes[0])),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Dim;

    fn graph(pairs: &[(&str, &str)]) -> Graph {
        let mut graph = Graph::new("g");
        for (left, right) in pairs {
            let why = format!("{left} and {right}").into();
            graph.add_constraint(Constraint { left: Dim::named(left), right: Dim::named(right), why });
        }
        graph
    }

    #[test]
    fn constraints_wait_for_their_last_symbol() {
        let graph = graph(&[("a", "b"), ("c", "d"), ("b", "c")]);
        let mut env = Env::new();
        env.bind(Symbol::name("a"), 3);
        let mut pending = Pending::of(&graph, &env).unwrap();
        for (name, size) in [("d", 4), ("b", 3)] {
            env.bind(Symbol::name(name), size);
            pending.check(&env).unwrap();
        }
        env.bind(Symbol::name("c"), 5);
        // Of two that are broken, the first.
        assert!(pending.check(&env).unwrap_err().to_string().contains("c and d"));
        assert!(Pending::of(&graph, &env).unwrap_err().to_string().contains("c and d"));
    }

    #[test]
    fn what_a_region_bound_is_undone() {
        let graph = graph(&[("a", "b")]);
        let mut env = Env::new();
        env.bind(Symbol::name("n"), 1);
        let mut pending = Pending::of(&graph, &env).unwrap();
        let mark = env.mark();
        env.bind(Symbol::name("n"), 2);
        env.bind(Symbol::name("a"), 2);
        env.undo(mark);
        assert_eq!((env.get(&Symbol::name("n")), env.get(&Symbol::name("a"))), (Some(1), None));
        pending.check(&env).unwrap();
        env.bind(Symbol::name("b"), 2);
        pending.check(&env).unwrap();
        env.bind(Symbol::name("a"), 3);
        pending.check(&env).unwrap_err();
    }
}
