//! The model as its author wrote it: operators, and who reads whom.

use std::collections::BTreeSet;

use fuseline::graph::{Graph, Origin, Value};
use fuseline::ops::Prim;
use indexmap::IndexSet;

/// The operators of a model.
#[derive(Debug)]
pub struct Operators {
    all: IndexSet<Origin>,
    /// pairs of operators, the reader last
    pub edges: BTreeSet<(usize, usize)>,
    /// which of the model's inputs, by number, an operator reads
    pub reads: BTreeSet<(usize, usize)>,
    /// which operator makes which of the model's outputs, by number
    pub makes: BTreeSet<(usize, usize)>,
}

impl Operators {
    /// Those of a graph as it was imported, in its order. A node that no operator owns is one by itself.
    pub fn of(graph: &Graph) -> Operators {
        let live = graph.live_nodes();
        let mut found =
            Operators { all: IndexSet::new(), edges: BTreeSet::new(), reads: BTreeSet::new(), makes: BTreeSet::new() };
        let mut input: Vec<Option<usize>> = vec![None; graph.nodes().len()];
        graph.inputs().iter().enumerate().for_each(|(number, value)| input[value.node()] = Some(number));
        let mut owner: Vec<Option<usize>> = vec![None; graph.nodes().len()];
        for (k, node) in graph.nodes().iter().enumerate().filter(|(k, _)| live[*k]) {
            if matches!(node.prim(), Prim::Input(_) | Prim::Const(_)) {
                continue;
            }
            let origin = graph.origin(k).iter().next().cloned();
            let origin =
                origin.unwrap_or_else(|| Origin { op: node.prim().name().into(), name: format!("%{k}").into() });
            // What two operators both compute belongs to each of them: it does not join them.
            let is_other = |arg: &&Value| !graph.origin(arg.node()).iter().any(|other| *other == origin);
            let read: Vec<&Value> = node.args().iter().filter(is_other).collect();
            let own = found.all.insert_full(origin).0;
            owner[k] = Some(own);
            for arg in read {
                match owner[arg.node()] {
                    Some(other) if other != own => found.edges.insert((other, own)),
                    Some(_) => false,
                    None => input[arg.node()].is_some_and(|input| found.reads.insert((input, own))),
                };
            }
        }
        for (number, output) in graph.outputs().iter().enumerate() {
            if let Some(own) = owner[output.value.node()] {
                found.makes.insert((own, number));
            }
        }
        found
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// The operators in order.
    pub fn iter(&self) -> impl Iterator<Item = &Origin> {
        self.all.iter()
    }

    /// Who reads whom among operators that were `kept`, also through others that were not.
    pub fn edges_between(&self, kept: &[bool]) -> BTreeSet<(usize, usize)> {
        let readers = |operator: usize| self.edges.range((operator, 0)..(operator + 1, 0)).map(|(_, reader)| *reader);
        let mut found = BTreeSet::new();
        for from in (0..self.len()).filter(|operator| kept[*operator]) {
            let mut seen: BTreeSet<usize> = BTreeSet::new();
            let mut todo: Vec<usize> = readers(from).collect();
            while let Some(reader) = todo.pop() {
                match kept[reader] {
                    true if reader != from => {
                        found.insert((from, reader));
                    }
                    false if seen.insert(reader) => todo.extend(readers(reader)),
                    _ => {}
                }
            }
        }
        found
    }

    /// An operator by its number.
    pub fn get(&self, number: usize) -> Option<&Origin> {
        self.all.get_index(number)
    }

    /// The number of an operator.
    pub fn find(&self, operator: &Origin) -> Option<usize> {
        self.all.get_index_of(operator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fuseline::graph::Builder;
    use fuseline::tensor::{DType, Dim};

    #[test]
    fn operators_that_share_a_computation_are_not_joined_by_it() {
        let b = Builder::new("two");
        let x = b.input("x", DType::F32, vec![Dim::named("n")]);
        let operator = |name: &str| b.set_origin(Some(Origin { op: "Scale".into(), name: name.into() }));
        operator("first");
        let y = x.exp() * 2.0;
        operator("second");
        let z = x.exp() * 3.0;
        operator("third");
        b.output("w", y + z);
        let graph = b.finish().unwrap();
        let operators = Operators::of(&graph);
        assert_eq!(operators.iter().map(|o| o.name.as_ref()).collect::<Vec<_>>(), ["first", "second", "third"]);
        assert_eq!(operators.edges.into_iter().collect::<Vec<_>>(), [(0, 2), (1, 2)]);
        assert_eq!(operators.makes.into_iter().collect::<Vec<_>>(), [(2, 0)]);
        assert!(operators.reads.contains(&(0, 0)));
    }

    #[test]
    fn what_is_left_out_still_joins_the_others() {
        let b = Builder::new("chain");
        let mut x = b.input("x", DType::F32, vec![Dim::named("n")]);
        for name in ["one", "two", "three"] {
            b.set_origin(Some(Origin { op: "Exp".into(), name: name.into() }));
            x = x.exp();
        }
        b.output("y", x);
        let operators = Operators::of(&b.finish().unwrap());
        let between = |kept: [bool; 3]| operators.edges_between(&kept).into_iter().collect::<Vec<_>>();
        assert_eq!(between([true, true, true]), [(0, 1), (1, 2)]);
        assert_eq!(between([true, false, true]), [(0, 2)]);
        assert_eq!(between([false, false, true]), []);
    }
}
