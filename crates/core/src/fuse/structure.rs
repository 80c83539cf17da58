//! The structure of sets of nodes, written out: equal for sets that become the same kernel up to which tensors it reads, and for
//! no others. Prices and kernels are shared by it, so a mere hash, which an adversary can make equal, would not do.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use super::cell::Cells;
use crate::graph::{Graph, Node, Operation, Value};
use crate::ops::Prim;
use crate::tensor::{Shape, TensorType};

/// Numbers for things, equal for equal ones, from 1. Things are made by the model, and so their hash is keyed.
pub(super) struct Numbers<T>(HashMap<T, u32>);

impl<T: Eq + Hash> Numbers<T> {
    pub fn of(&mut self, thing: T) -> u32 {
        let next = self.0.len() as u32 + 1;
        *self.0.entry(thing).or_insert(next)
    }
}

impl<T> Default for Numbers<T> {
    fn default() -> Numbers<T> {
        Numbers(HashMap::new())
    }
}

/// An operation without operands, as far as it decides a kernel. Streams of random numbers differ without changing the form.
#[derive(PartialEq, Eq, Hash)]
pub(super) enum Form {
    Source,
    Random(Shape),
    Prim(Operation),
}

impl Form {
    pub fn of(node: &Node) -> Form {
        match node.prim() {
            Prim::Random(row) => Form::Random(row.shape.clone()),
            Prim::Input(_) | Prim::Const(_) => Form::Source,
            _ => Form::Prim(node.operation()),
        }
    }
}

/// Numbers for all that structures are written with; of several graphs, equal things have equal ones.
#[derive(Default)]
pub(super) struct Numbering {
    pub forms: Numbers<Form>,
    /// a view and what it is a view of: nothing but a stored value (0), further views, or a formula
    pub views: Numbers<(u32, u32)>,
    types: Numbers<Arc<[TensorType]>>,
}

/// Where a node stands in the structure that is being written.
#[derive(Clone, Copy, Default)]
struct Place {
    /// the structure that this is about
    turn: u32,
    is_member: bool,
    /// among the members, or among the nodes outside that members read
    number: u32,
}

/// Writes structures, one at a time.
pub(super) struct Structures {
    /// for every node, the types of its results: equal ones have one number
    types: Vec<u32>,
    places: Vec<Place>,
    turn: u32,
    words: Vec<u32>,
}

/// What stands before an operand: it follows from coordinates, a member computes it, or it is read.
const COORDINATES: u32 = 0;
const INSIDE: u32 = 1;
const OUTSIDE: u32 = 2;

impl Structures {
    pub fn of(graph: &Graph, numbering: &mut Numbering) -> Structures {
        let types: Vec<u32> = graph.nodes().iter().map(|node| numbering.types.of(node.shared_types())).collect();
        let places = vec![Place::default(); types.len()];
        Structures { types, places, turn: 0, words: Vec::new() }
    }

    /// The structure of some nodes, ascending, that store some values.
    pub fn write(&mut self, graph: &Graph, cells: &Cells, members: &[usize], outputs: &[Value]) -> &[u32] {
        self.words.clear();
        if self.turn == u32::MAX {
            self.places.fill(Place::default());
            self.turn = 0;
        }
        self.turn += 1;
        let turn = self.turn;
        for (number, id) in (0..).zip(members) {
            self.places[*id] = Place { turn, is_member: true, number };
        }
        let mut outside = 0;
        self.words.push(members.len() as u32);
        for (position, id) in (0..).zip(members) {
            let count = graph.nodes()[*id].args().len();
            self.words.extend([cells.form[*id], count as u32]);
            for k in 0..count {
                let seen = cells.operand(graph, *id, k);
                self.words.push(seen.form);
                let Some(base) = seen.base else {
                    self.words.push(COORDINATES);
                    continue;
                };
                let (place, port) = (&mut self.places[base.node()], base.port() as u32);
                if place.turn != turn {
                    *place = Place { turn, is_member: false, number: outside };
                    outside += 1;
                }
                if place.is_member {
                    self.words.extend([INSIDE, position - place.number, port]);
                } else {
                    let is_cell = u32::from(cells.is_cell[base.node()]);
                    self.words.extend([OUTSIDE, place.number, port, self.types[base.node()], is_cell]);
                }
            }
        }
        for output in outputs {
            let place = self.places[output.node()];
            debug_assert!(place.turn == turn && place.is_member, "what is stored is computed");
            self.words.extend([place.number, output.port() as u32]);
        }
        &self.words
    }
}

#[cfg(test)]
mod tests {
    use std::hash::Hasher;

    use super::*;
    use crate::graph::Builder;
    use crate::tensor::DType;

    /// Something that an adversary has made: all have the same hash.
    #[derive(PartialEq, Eq)]
    struct Crafted(u32);

    impl Hash for Crafted {
        fn hash<H: Hasher>(&self, _: &mut H) {}
    }

    #[test]
    fn equal_hashes_do_not_make_things_equal() {
        let mut numbers = Numbers::default();
        assert_eq!([7, 8, 7, 9, 8].map(|thing| numbers.of(Crafted(thing))), [1, 2, 1, 3, 2]);
    }

    #[test]
    fn structures_say_who_reads_whom() {
        let b = Builder::new("alike");
        let (x, y) = (b.input("x", DType::F32, Shape::new([8usize])), b.input("y", DType::F32, Shape::new([8usize])));
        for (k, (left, right)) in [(x, y), (y, x), (x, x)].into_iter().enumerate() {
            b.output(&format!("z{k}"), left.exp() * right);
        }
        let graph = b.finish().unwrap();
        let mut numbering = Numbering::default();
        let cells = Cells::of(&graph, &mut numbering);
        let mut structures = Structures::of(&graph, &mut numbering);
        let mut written = |node: usize| {
            let inner = graph.nodes()[node].args()[0].node();
            structures.write(&graph, &cells, &[inner, node], &[Value::new(node, 0)]).to_vec()
        };
        let [first, second, third] = [0, 1, 2].map(|k| written(graph.outputs()[k].value.node()));
        assert_eq!(first, second, "the same kernel, of other tensors");
        assert_ne!(first, third, "one tensor is not two");
    }
}
