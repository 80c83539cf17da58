//! The groups while they are being merged.

use std::cell::Cell;
use std::rc::Rc;

use smallvec::SmallVec;

use super::cell::{Cells, Nodes};
use super::evaluate::{Evaluator, Priced};
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
/// which stores it if somebody else reads it.
#[derive(Clone, Debug)]
pub(super) struct State<'g> {
    pub graph: &'g Graph,
    pub cells: &'g Cells,
    pub groups: Vec<Option<GroupState>>,
    /// for every node, the groups that compute it
    pub inside: Vec<Groups>,
    /// for every node, the group that stores it
    pub home: Vec<GroupId>,
    /// the order in which groups can run
    pub order: Order,
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
            effort: Cell::new(0),
        };
        for id in cells.iter() {
            evaluator.budget.check()?;
            let cell = single(graph, id, evaluator).map_err(|refusal| no_kernel(graph, id, &refusal))?;
            let group = state.groups.len() as GroupId;
            state.inside[id].push(group);
            state.home[id] = group;
            state.groups.push(Some(cell));
            state.order.push(group);
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

    fn has(&self, group: GroupId, node: usize) -> bool {
        self.inside[node].contains(&group)
    }

    /// The groups that read a value that this group stores, ascending.
    pub fn consumers(&self, id: GroupId) -> Groups {
        self.first_consumers(id, usize::MAX)
    }

    /// The groups that read a value that this group stores, ascending: at most so many, those of the first readers.
    pub fn first_consumers(&self, id: GroupId, most: usize) -> Groups {
        let mut found = Groups::new();
        'members: for member in &self.group(id).members {
            if self.home[*member] != id {
                continue;
            }
            for reader in &self.cells.readers[*member] {
                for group in &self.inside[*reader as usize] {
                    if *group != id && found.last() != Some(group) && !self.has(*group, *member) {
                        found.push(*group);
                    }
                }
                if found.len() >= most {
                    sort_out(&mut found);
                    if found.len() >= most {
                        break 'members;
                    }
                }
            }
        }
        sort_out(&mut found);
        found
    }

    /// The cells that read a value, ascending; also of inputs and constants.
    pub fn readers_of(&self, value: Value) -> &[u32] {
        &self.cells.readers[value.node()]
    }

    /// The groups whose stored values this group reads, ascending.
    pub fn producers(&self, id: GroupId) -> Groups {
        let mut found = Groups::new();
        for member in &self.group(id).members {
            for read in &self.cells.reads[*member] {
                let read = *read as usize;
                if found.last() != Some(&self.home[read]) && !self.has(id, read) {
                    found.push(self.home[read]);
                }
            }
        }
        sort_out(&mut found);
        found
    }

    /// The groups that must run after this one: consumers, and those whose sizes it binds.
    pub fn followers(&self, id: GroupId) -> Groups {
        let mut found = self.consumers(id);
        self.extend(&mut found, id, &self.cells.before);
        found
    }

    /// The groups that must run before this one: producers, and those that bind its sizes.
    pub fn leaders(&self, id: GroupId) -> Groups {
        let mut found = self.producers(id);
        self.extend(&mut found, id, &self.cells.after);
        found
    }

    /// Adds the other groups that compute what nodes of a group are tied to by sizes.
    fn extend(&self, found: &mut Groups, id: GroupId, tied: &[Nodes]) {
        let before = found.len();
        let nodes = self.group(id).members.iter().flat_map(|member| &tied[*member]);
        found.extend(nodes.flat_map(|node| &self.inside[*node as usize]).copied().filter(|group| *group != id));
        if found.len() > before {
            sort_out(found);
        }
    }

    /// All nodes of some groups, ascending.
    pub fn union(&self, groups: &[GroupId]) -> Vec<usize> {
        let mut all: Vec<usize> = groups.iter().flat_map(|g| self.group(*g).members.iter().copied()).collect();
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
        for k in (0..members.len()).rev().filter(|k| wanted[*k]).collect::<Vec<_>>() {
            let mut todo = vec![k];
            while let Some(k) = todo.pop() {
                for inner in self.read_among(&members, members[k]) {
                    if !std::mem::replace(&mut wanted[inner], true) {
                        todo.push(inner);
                    }
                }
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
            self.groups.push(Some(group));
            self.order.push(place);
        }
        for node in moved {
            self.inside[node].retain(|g| self.groups[*g as usize].is_some());
            if self.groups[self.home[node] as usize].is_none() {
                let (inside, is_new) = (&self.inside[node], |g: &&GroupId| **g >= first_new);
                let stores = |g: &&GroupId| is_new(g) && self.group(**g).outputs.iter().any(|v| v.node() == node);
                let home = inside.iter().find(stores).or_else(|| inside.iter().find(is_new));
                self.home[node] = *home.unwrap_or(&inside[0]);
            }
        }
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

/// Ascending, and each once.
fn sort_out(groups: &mut Groups) {
    groups.sort_unstable();
    groups.dedup();
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
