//! Constraints that wait for sizes which only a run binds.

use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::graph::{Constraint, Graph};
use crate::tensor::{Env, Symbol};

/// The constraints of a graph that were not checked yet. Each waits for one symbol that has no number, and is looked at when that is
/// bound: very many constraints and very many bindings are not compared with each other.
#[derive(Debug)]
pub struct Pending<'g> {
    waiting: FxHashMap<Symbol, Vec<(usize, &'g Constraint)>>,
    /// the bindings that were looked at
    mark: usize,
}

impl<'g> Pending<'g> {
    /// Checks the constraints of a graph whose symbols are all bound; the others wait.
    pub fn of(graph: &'g Graph, env: &Env) -> Result<Pending<'g>> {
        let mut pending = Pending { waiting: FxHashMap::default(), mark: env.mark() };
        pending.look(graph.constraints().iter().enumerate(), env)?;
        Ok(pending)
    }

    /// Checks the constraints for which nothing is missing any more, and forgets them.
    pub fn check(&mut self, env: &Env) -> Result<()> {
        if env.mark() == self.mark {
            return Ok(());
        }
        let ready = env.since(self.mark).filter_map(|symbol| self.waiting.remove(symbol));
        let mut ready: Vec<(usize, &Constraint)> = ready.flatten().collect();
        self.mark = env.mark();
        ready.sort_unstable_by_key(|(number, _)| *number);
        self.look(ready.into_iter(), env)
    }

    /// Checks those for which nothing is missing, in their order; the first one that is broken is the error.
    fn look(&mut self, constraints: impl Iterator<Item = (usize, &'g Constraint)>, env: &Env) -> Result<()> {
        for (number, constraint) in constraints {
            let mut missing = None;
            for dim in [&constraint.left, &constraint.right] {
                dim.for_each_symbol(&mut |s| {
                    if missing.is_none() && env.get(s).is_none() {
                        missing = Some(s.clone());
                    }
                });
            }
            if let Some(symbol) = missing {
                self.waiting.entry(symbol).or_default().push((number, constraint));
                continue;
            }
            let (left, right) = (constraint.left.eval(env)?, constraint.right.eval(env)?);
            if left != right {
                return Err(constraint.violated(left, right));
            }
        }
        Ok(())
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
