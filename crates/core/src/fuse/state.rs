//! The groups while they are being merged.

use std::cell::Cell;
use std::rc::Rc;

use smallvec::SmallVec;

use super::cell::Cells;
use super::evaluate::{Evaluator, Priced};
use super::neighbours::Near;
use super::order::Order;
use crate::error::{Error, Result};
use crate::graph::{Graph, Value};
use crate::lower::Refusal;

/// A group by its number; numbers are never used again.
pub type GroupId = u32;

/// A list of groups.
pub(super) type Groups = SmallVec<[GroupId; 4]>;

/// Nodes that are one kernel, so far.
#[derive(Clone, Debug)]
pub(super) struct GroupState {
    /// ascending
    pub members: Vec<usize>,
    pub outputs: Vec<Value>,
    pub priced: Rc<Priced>,
}

/// A partition of the cells into groups, except that a cell may be computed in several groups; one of them is its home,
/// which stores it if somebody else reads it. It is copied before something is tried: what is the same in both is shared.
#[derive(Clone, Debug)]
pub(super) struct State<'g> {
    pub graph: &'g Graph,
    pub cells: &'g Cells,
    pub groups: Vec<Option<Rc<GroupState>>>,
    /// for every node, the groups that compute it
    pub inside: Vec<Groups>,
    /// for every node, the group that stores it
    pub home: Vec<GroupId>,
    /// the order in which groups can run
    pub order: Order,
    /// for every group, those around it, as far as they were asked for since they changed
    pub near: Vec<Rc<Near>>,
    /// how many groups were looked at on ways around others
    pub effort: Cell<u64>,
}

impl<'g> State<'g> {
    /// Every cell by itself, as long as the budget lasts.
    pub fn apart(graph: &'g Graph, cells: &'g Cells, evaluator: &mut Evaluator<'g>) -> Result<State<'g>> {
        let count = graph.nodes().len();
        let mut state = State {
            graph,
            cells,
            groups: Vec::new(),
            inside: vec![Groups::new(); count],
            home: vec![u32::MAX; count],
            order: Order::default(),
            near: Vec::new(),
            effort: Cell::new(0),
        };
        for id in cells.iter() {
            evaluator.budget.check()?;
            let cell = single(graph, id, evaluator).map_err(|refusal| no_kernel(graph, id, &refusal))?;
            let group = state.groups.len() as GroupId;
            state.inside[id].push(group);
            state.home[id] = group;
            state.groups.push(Some(Rc::new(cell)));
            state.order.push(group);
            state.near.push(Rc::default());
        }
        Ok(state)
    }

    pub fn group(&self, id: GroupId) -> &GroupState {
        self.groups[id as usize].as_ref().expect("the group is there")
    }

    pub fn is_there(&self, id: GroupId) -> bool {
        self.groups[id as usize].is_some()
    }

    /// The groups that are there, ascending.
    pub fn iter(&self) -> impl Iterator<Item = GroupId> {
        (0..self.groups.len() as GroupId).filter(|id| self.is_there(*id))
    }

    pub(super) fn has(&self, group: GroupId, node: usize) -> bool {
        self.inside[node].contains(&group)
    }

    /// The cells that read a value, ascending; also of inputs and constants.
    pub fn readers_of(&self, value: Value) -> &[u32] {
        &self.cells.readers[value.node()]
    }

    /// All nodes of some groups, ascending.
    pub fn union(&self, groups: &[GroupId]) -> Vec<usize> {
        if let [first, second] = groups {
            return merged(&self.group(*first).members, &self.group(*second).members);
        }
        let mut all: Vec<usize> = Vec::with_capacity(groups.iter().map(|g| self.group(*g).members.len()).sum());
        groups.iter().for_each(|g| all.extend_from_slice(&self.group(*g).members));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// What some nodes would have to store if they took the place of some groups, and (for `copied` nodes) other groups
    /// computed those nodes too.
    pub fn outputs(&self, members: &[usize], replaced: &[GroupId], copied: &[usize]) -> Vec<Value> {
        let mut outputs = Vec::new();
        for node in members {
            if !replaced.contains(&self.home[*node]) || copied.binary_search(node).is_ok() {
                continue;
            }
            let read_outside = || {
                self.cells.readers[*node].iter().any(|reader| {
                    let groups = &self.inside[*reader as usize];
                    groups.iter().any(|g| !replaced.contains(g) && !self.has(*g, *node))
                        || (members.binary_search(&(*reader as usize)).is_err()
                            && groups.iter().any(|g| replaced.contains(g)))
                })
            };
            if self.cells.is_output[*node] || self.cells.is_opaque[*node] || read_outside() {
                outputs.extend((0..self.graph.nodes()[*node].types().len()).map(|port| Value::new(*node, port)));
            }
        }
        outputs
    }

    /// The members that outputs are computed from: what groups computed for themselves may be of no use to their union.
    pub fn needed(&self, members: Vec<usize>, outputs: &[Value]) -> Vec<usize> {
        let mut wanted = vec![false; members.len()];
        for output in outputs {
            if let Ok(k) = members.binary_search(&output.node()) {
                wanted[k] = true;
            }
        }
        // nodes read what stands before them
        for k in (0..members.len()).rev() {
            if wanted[k] {
                self.read_among(&members, members[k]).for_each(|inner| wanted[inner] = true);
            }
        }
        let mut keep = wanted.iter();
        let mut members = members;
        members.retain(|_| *keep.next().expect("a mark for each"));
        members
    }

    /// Puts one group in the place of some.
    pub fn join(&mut self, old: &[GroupId], new: GroupState) -> Groups {
        let place = self.make_place(old);
        self.replace(old, vec![(place, new)])
    }

    /// Puts groups that also compute what the first of some groups computes in the place of the others.
    pub fn copy(&mut self, old: &[GroupId], new: Vec<GroupState>) -> Groups {
        let places = old[1..].iter().map(|reader| self.order.place(*reader));
        let new = places.zip(new).collect();
        self.replace(old, new)
    }

    /// Takes groups apart into their cells, all that they compute stored, but for what another group stores as well. Whether that can be done.
    pub fn shatter(&mut self, ids: &[GroupId], evaluator: &mut Evaluator<'g>) -> bool {
        let members = self.union(ids);
        if members.len() > MOST_SHATTERED {
            return false;
        }
        let stores = |group: &GroupId, node: usize| self.group(*group).outputs.iter().any(|value| value.node() == node);
        let others = |node: usize| self.inside[node].iter().filter(|group| !ids.contains(group));
        let mut cells = Vec::new();
        for node in members.into_iter().filter(|node| !others(*node).any(|group| stores(group, *node))) {
            let Ok(cell) = single(self.graph, node, evaluator) else { return false };
            cells.push((0, cell));
        }
        self.replace(ids, cells);
        self.arrange();
        true
    }

    /// Puts other groups in the place of all.
    pub fn replace_all(&mut self, new: Vec<GroupState>) {
        let old: Vec<GroupId> = self.iter().collect();
        self.replace(&old, new.into_iter().map(|group| (0, group)).collect());
        self.arrange();
    }

    /// Puts new groups in the place of old ones. A node that had its home in an old one has it where it is stored now, or where
    /// it is computed first.
    fn replace(&mut self, old: &[GroupId], new: Vec<(u32, GroupState)>) -> Groups {
        let moved = self.union(old);
        for group in old {
            self.groups[*group as usize] = None;
        }
        let first_new = self.groups.len() as GroupId;
        for (place, group) in new {
            let id = self.groups.len() as GroupId;
            for node in &group.members {
                self.inside[*node].push(id);
            }
            self.groups.push(Some(Rc::new(group)));
            self.order.push(place);
            self.near.push(Rc::default());
        }
        for node in moved.iter().copied() {
            self.inside[node].retain(|g| self.groups[*g as usize].is_some());
            if self.groups[self.home[node] as usize].is_none() {
                let (inside, is_new) = (&self.inside[node], |g: &&GroupId| **g >= first_new);
                let stores = |g: &&GroupId| is_new(g) && self.group(**g).outputs.iter().any(|v| v.node() == node);
                let home = inside.iter().find(stores).or_else(|| inside.iter().find(is_new));
                self.home[node] = *home.unwrap_or(&inside[0]);
            }
        }
        self.forget_around(&moved);
        (first_new..self.groups.len() as GroupId).collect()
    }

    /// The edges from cells of one set to cells of another that read them, ascending.
    pub fn edges(&self, from: &[usize], to: &[usize]) -> Vec<(usize, usize)> {
        let mut edges = Vec::new();
        for reader in to {
            edges.extend(self.read_among(from, *reader).map(|k| (from[k], *reader)));
        }
        edges.sort_unstable();
        edges
    }

    /// Where among some nodes, ascending, those stand that a cell reads. Both lists are ordered, and the shorter one is gone through:
    /// a cell may read very many others, and be asked for each of them.
    fn read_among(&self, nodes: &[usize], cell: usize) -> impl Iterator<Item = usize> {
        let reads = &self.cells.reads[cell];
        let is_short = reads.len() <= nodes.len();
        let of_reads = is_short.then(|| reads.iter().filter_map(|read| nodes.binary_search(&(*read as usize)).ok()));
        let of_nodes =
            (!is_short).then(|| (0..nodes.len()).filter(|k| reads.binary_search(&(nodes[*k] as u32)).is_ok()));
        of_reads.into_iter().flatten().chain(of_nodes.into_iter().flatten())
    }
}

/// Two ascending lists as one, each node once.
fn merged(first: &[usize], second: &[usize]) -> Vec<usize> {
    let mut all = Vec::with_capacity(first.len() + second.len());
    let (mut a, mut b) = (0, 0);
    while let (Some(one), Some(other)) = (first.get(a), second.get(b)) {
        all.push(*one.min(other));
        a += usize::from(one <= other);
        b += usize::from(other <= one);
    }
    all.extend_from_slice(&first[a..]);
    all.extend_from_slice(&second[b..]);
    all
}

/// More nodes than this are not taken apart.
const MOST_SHATTERED: usize = 64;

/// A node by itself that cannot be a kernel.
fn no_kernel(graph: &Graph, id: usize, refusal: &Refusal) -> Error {
    let why = format!("a node by itself is no kernel: {refusal}");
    let error = match refusal {
        Refusal::TooLarge | Refusal::TooManyAxes => Error::limit(why),
        _ => Error::bug(why),
    };
    error.at(graph.describe(id))
}

/// A cell by itself, which stores all that it computes.
fn single(graph: &Graph, id: usize, evaluator: &mut Evaluator<'_>) -> std::result::Result<GroupState, Refusal> {
    let members = vec![id];
    let outputs: Vec<Value> = (0..graph.nodes()[id].types().len()).map(|port| Value::new(id, port)).collect();
    let priced = evaluator.evaluate(&members, &outputs)?;
    Ok(GroupState { members, outputs, priced })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceSpec;
    use crate::fuse::{Knowledge, PlanOptions};
    use crate::graph::Builder;
    use crate::tensor::{DType, Shape};

    #[test]
    fn ways_back_are_found_behind_the_last_node_too() {
        let b = Builder::new("ways");
        let x = b.input("x", DType::F32, Shape::new([8usize]));
        let first = x.exp();
        let reader = first.sin();
        let other = x.sqrt();
        let further = other.cos();
        b.output("reader", reader);
        b.output("end", further + first);
        let graph = b.finish().unwrap();
        let mut knowledge = Knowledge::default();
        let cells = Cells::of(&graph, &mut knowledge.numbering);
        let options = PlanOptions::on(DeviceSpec::find("cpu").unwrap());
        let mut evaluator = Evaluator::new(&graph, &cells, &options, knowledge);
        let mut state = State::apart(&graph, &cells, &mut evaluator).unwrap();
        let ids: Vec<GroupId> = state.iter().collect();
        let [first, reader, other, _, end] = ids[..] else { panic!("{graph}") };
        // The end waits for what comes after `other`, and `reader` would wait for the end if both were one with it.
        assert!(!state.makes_cycle(&[reader, other]) && !state.makes_cycle(&[first, end]));
        let groups = [first, end];
        let members = state.union(&groups);
        let outputs = state.outputs(&members, &groups, &[]);
        let priced = evaluator.evaluate(&members, &outputs).unwrap();
        state.join(&groups, GroupState { members, outputs, priced });
        assert!(state.makes_cycle(&[reader, other]));
    }
}
