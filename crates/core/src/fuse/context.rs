//! What rules see: kernels by kind, and who reads whom. No names, no origins, no operators of the user.

use super::cell::Bases;
use super::evaluate::Kind;
use super::neighbours::Neighbours;
use super::state::{GroupId, Groups, State};
use crate::graph::Value;
use crate::lower::Hints;
use crate::ops::Prim;
use crate::ops::prim::Class;
use crate::tensor::Shape;

/// The groups so far, as a rule sees them.
#[derive(Debug)]
pub struct FuseContext<'a> {
    state: &'a State<'a>,
    /// numbers for free sizes
    hints: &'a Hints,
    /// how many consumers of a group are shown
    most: usize,
}

impl<'a> FuseContext<'a> {
    pub(super) fn new(state: &'a State<'a>, hints: &'a Hints, most: usize) -> FuseContext<'a> {
        FuseContext { state, hints, most }
    }

    /// The kind of a group's kernel.
    pub fn kind(&self, group: GroupId) -> Kind {
        self.state.group(group).priced.kind
    }

    /// The groups that read what a group stores, ascending; the first ones where there are very many.
    pub fn consumers(&self, group: GroupId) -> Neighbours<'_> {
        self.state.first_consumers(group, self.most)
    }

    /// The groups that read what a group stores, ascending: at most so many, whatever is looked at otherwise.
    pub fn consumers_up_to(&self, group: GroupId, most: usize) -> Neighbours<'_> {
        self.state.first_consumers(group, most)
    }

    /// Whether every pair of neighbours is to be looked at, however many there are.
    pub(super) fn is_thorough(&self) -> bool {
        self.most == usize::MAX
    }

    /// The groups whose stored values a group reads, ascending.
    pub fn producers(&self, group: GroupId) -> Neighbours<'_> {
        self.state.producers(group)
    }

    /// How many nodes a group has.
    pub fn size(&self, group: GroupId) -> usize {
        self.state.group(group).members.len()
    }

    /// Whether who reads what a group reads, instead of what it writes, reads no more: no more bytes, or as many elements of one tensor of
    /// integers, which have 64 bits in masks that say yes or no.
    pub fn shrinks(&self, group: GroupId) -> bool {
        let streams = &self.state.group(group).priced.work.streams;
        let sum = |written: bool| streams.iter().filter(|s| s.written == written).map(|s| s.bytes).sum::<f64>();
        sum(false) <= 1.05 * sum(true) * self.narrows(group)
    }

    /// How many times as wide the elements of the one tensor of integers are that a group reads as those that it writes; 1 where it reads others.
    fn narrows(&self, group: GroupId) -> f64 {
        let (graph, own) = (self.state.graph, self.state.group(group));
        let read = own.members.iter().flat_map(|node| graph.nodes()[*node].args());
        let mut read = read.filter(|value| own.members.binary_search(&value.node()).is_err());
        let Some(first) = read.next() else { return 1.0 };
        let dtype = graph.ty(*first).dtype;
        let written = own.outputs.iter().map(|value| graph.ty(*value).dtype.bits()).min();
        match written {
            Some(written) if dtype.is_int() && read.all(|other| other == first) => {
                (dtype.bits() as f64 / written as f64).max(1.0)
            }
            _ => 1.0,
        }
    }

    /// Whether all nodes of two groups are parts of one function of one tensor, element by element.
    pub fn is_one_function(&self, first: GroupId, second: GroupId) -> bool {
        let members = |group: GroupId| &self.state.group(group).members;
        let function = &self.state.cells.function;
        let whole = function[members(first)[0]];
        whole.is_some() && members(first).iter().chain(members(second)).all(|node| function[*node] == whole)
    }

    /// The shapes that a group stores.
    pub fn stored(&self, group: GroupId) -> impl Iterator<Item = &Shape> {
        self.state.group(group).outputs.iter().map(|v| &self.state.graph.ty(*v).shape)
    }

    /// The classes of a group's nodes, in order.
    pub fn classes(&self, group: GroupId) -> impl Iterator<Item = Class> {
        self.state.group(group).members.iter().map(|id| self.state.graph.nodes()[*id].prim().class())
    }

    /// Whether a contraction of a group has an axis that its result and both of its factors have.
    pub fn is_batched(&self, group: GroupId) -> bool {
        let is_batched = |id: &usize| match self.state.graph.nodes()[*id].prim() {
            Prim::Contract(row) => row.out.iter().any(|label| row.a.contains(label) && row.b.contains(label)),
            _ => false,
        };
        self.state.group(group).members.iter().any(is_batched)
    }

    /// The operands of a group's contractions through the views before them.
    fn factors(&self, group: GroupId) -> Bases {
        let contractions = self.state.group(group).members.iter().filter_map(|id| {
            let node = &self.state.graph.nodes()[*id];
            matches!(node.prim(), Prim::Contract(_)).then_some(node)
        });
        contractions.flat_map(|n| n.args().iter().filter_map(|a| self.state.cells.look(*a).base)).collect()
    }

    /// Whether a group of contractions stores more elements than any of their operands has.
    pub fn outgrows_factors(&self, group: GroupId) -> bool {
        let stored = self.stored(group).map(|shape| self.hints.size(&shape.count())).fold(0.0, f64::max);
        let nodes = self.state.group(group).members.iter().map(|id| &self.state.graph.nodes()[*id]);
        let mut factors = nodes.filter(|n| matches!(n.prim(), Prim::Contract(_))).flat_map(|n| n.args());
        factors.all(|factor| self.hints.size(&self.state.graph.ty(*factor).shape.count()) < stored)
    }

    /// The groups that also contract something that this group contracts, ascending, nearest first and not too many.
    pub fn contraction_siblings(&self, group: GroupId) -> Groups {
        let mut found = Groups::new();
        for factor in self.factors(group) {
            for other in self.neighbours(group, factor) {
                if !found.contains(&other)
                    && self.kind(other) == Kind::Contract
                    && self.factors(other).contains(&factor)
                {
                    found.push(other);
                }
            }
        }
        found
    }

    /// The groups of folds that read a tensor that this group reads.
    pub fn fold_siblings(&self, group: GroupId) -> Groups {
        self.siblings(group, |other| matches!(self.kind(other), Kind::Row | Kind::Column))
    }

    /// The groups that read a tensor that this group reads and store tensors of a shape that this one stores, where one of the two
    /// is elementwise and no product is among them.
    pub fn loop_siblings(&self, group: GroupId) -> Groups {
        let loops = |other: GroupId| matches!(self.kind(other), Kind::Map | Kind::Row | Kind::Column);
        if !loops(group) {
            return Groups::new();
        }
        self.siblings(group, |other| {
            let is_map = self.kind(group) == Kind::Map || self.kind(other) == Kind::Map;
            is_map && loops(other) && self.stored(group).any(|shape| self.stored(other).any(|own| own == shape))
        })
    }

    /// The groups for which `fits` holds that read a tensor that this group reads.
    fn siblings(&self, group: GroupId, fits: impl Fn(GroupId) -> bool) -> Groups {
        let mut found = Groups::new();
        let args = self.state.group(group).members.iter().flat_map(|m| self.state.graph.nodes()[*m].args());
        // Each once: all nodes of a group may read one tensor.
        let bases: Bases = args.filter_map(|a| self.state.cells.look(*a).base).collect();
        for base in bases {
            for other in self.neighbours(group, base) {
                if !found.contains(&other) && fits(other) {
                    found.push(other);
                }
            }
        }
        found
    }

    /// Other groups that read a value, those that begin soon after this one.
    fn neighbours(&self, group: GroupId, value: Value) -> Groups {
        const NEAREST: usize = 4;
        let from = self.state.group(group).members[0];
        let mut found = Groups::new();
        let readers = self.state.readers_of(value);
        let start = readers.partition_point(|r| (*r as usize) <= from);
        for reader in &readers[start..] {
            for other in &self.state.inside[*reader as usize] {
                if *other != group && !found.contains(other) {
                    found.push(*other);
                }
            }
            if found.len() >= NEAREST {
                break;
            }
        }
        found
    }
}
