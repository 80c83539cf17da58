//! An order in which the groups can run, kept while they are merged; and ways out of groups and back.
//!
//! What groups wait for has an earlier place. A way out of some groups and back therefore stays between the first and the last
//! of them, which is what keeps the search for one short in graphs that are long.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::state::{GroupId, Groups, State};

/// A place for every group that is there; the others' say nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Order(Vec<u32>);

impl Order {
    /// Gives the next group a place.
    pub fn push(&mut self, place: u32) {
        self.0.push(place);
    }

    /// The place of a group.
    pub fn place(&self, group: GroupId) -> u32 {
        self.0[group as usize]
    }

    /// The first and the last place of some groups.
    fn span(&self, groups: &[GroupId]) -> (u32, u32) {
        let places = groups.iter().map(|group| self.place(*group));
        places.fold((u32::MAX, 0), |(first, last), place| (first.min(place), last.max(place)))
    }

    /// Hands out the places of some groups anew, in the order in which these are listed.
    fn rearrange(&mut self, groups: &[GroupId]) {
        let mut places: Vec<u32> = groups.iter().map(|group| self.place(*group)).collect();
        places.sort_unstable();
        for (group, place) in groups.iter().zip(places) {
            self.0[*group as usize] = place;
        }
    }
}

/// The groups that ways out of some others lead to, on one side.
enum Ways {
    /// one leads back
    Circle,
    /// these, of which none leads back
    To(Vec<GroupId>),
    /// to more than it was allowed to look at
    ToMore,
}

/// How many groups are looked at before the other direction is tried; then four times as many.
const FIRST_LOOK: usize = 32;

impl State<'_> {
    /// Whether groups, made one, would have to run both before and after another group.
    pub fn makes_cycle(&self, merged: &[GroupId]) -> bool {
        let mut most = FIRST_LOOK;
        // One direction may be much shorter than the other, and which one is not known.
        loop {
            for forwards in [false, true] {
                match self.ways(merged, forwards, most) {
                    Ways::Circle => return true,
                    Ways::To(_) => return false,
                    Ways::ToMore => {}
                }
            }
            most *= 4;
        }
    }

    /// The place for groups that are going to be one. Others on ways to them that stand behind it, and others on ways from them
    /// that stand before it, move.
    pub fn make_place(&mut self, merged: &[GroupId]) -> u32 {
        let (first, last) = self.order.span(merged);
        let mut most = FIRST_LOOK;
        loop {
            let [back, on] = [false, true].map(|forwards| match self.ways(merged, forwards, most) {
                Ways::To(groups) => Some(groups),
                // Nobody makes a circle.
                Ways::Circle => Some(Vec::new()),
                Ways::ToMore => None,
            });
            match (back, on) {
                (Some(back), _) if back.is_empty() => return first,
                (_, Some(on)) if on.is_empty() => return last,
                (Some(mut back), Some(mut on)) => {
                    back.sort_unstable_by_key(|group| self.order.place(*group));
                    on.sort_unstable_by_key(|group| self.order.place(*group));
                    let all = [back, merged.to_vec(), on].concat();
                    self.order.rearrange(&all);
                    return self.order.place(merged[0]);
                }
                _ => most *= 4,
            }
        }
    }

    /// Gives every group a new place. Groups that wait for each other in a circle come last.
    pub fn arrange(&mut self) {
        let mut groups = self.ordered();
        let placed: FxHashSet<GroupId> = groups.iter().copied().collect();
        groups.extend(self.iter().filter(|group| !placed.contains(group)));
        for (place, group) in groups.into_iter().enumerate() {
            self.order.0[group as usize] = place as u32;
        }
    }

    /// The groups in an order in which what is read was stored before, those that begin first as early as they can; without
    /// those that wait for each other in a circle.
    pub fn ordered(&self) -> Vec<GroupId> {
        let groups: Vec<GroupId> = self.iter().collect();
        let mut waits: FxHashMap<GroupId, usize> = groups.iter().map(|g| (*g, 0)).collect();
        let mut followers: FxHashMap<GroupId, Groups> = FxHashMap::default();
        for group in &groups {
            let next = Groups::from_slice(&self.followers(*group));
            for later in &next {
                *waits.get_mut(later).expect("a follower is there") += 1;
            }
            followers.insert(*group, next);
        }
        let first = |g: &GroupId| self.group(*g).members[0];
        let mut ready: BinaryHeap<Reverse<(usize, GroupId)>> =
            groups.iter().filter(|g| waits[g] == 0).map(|g| Reverse((first(g), *g))).collect();
        let mut order = Vec::with_capacity(groups.len());
        while let Some(Reverse((_, group))) = ready.pop() {
            order.push(group);
            for later in &followers[&group] {
                let left = waits.get_mut(later).expect("a follower is there");
                *left -= 1;
                if *left == 0 {
                    ready.push(Reverse((first(later), *later)));
                }
            }
        }
        order
    }

    /// The groups between the first and the last of some groups that these must wait for, or (forwards) that wait for them.
    fn ways(&self, merged: &[GroupId], forwards: bool, most: usize) -> Ways {
        let (first, last) = self.order.span(merged);
        let next = |group: GroupId| if forwards { self.followers(group) } else { self.leaders(group) };
        let between = |group: &GroupId| (first..last).contains(&self.order.place(*group));
        let outside = |group: &GroupId| between(group) && !merged.contains(group);
        let mut seen: FxHashSet<GroupId> = FxHashSet::default();
        let mut found: Vec<GroupId> = Vec::new();
        // What the first waits for stands before it, and what waits for the last behind it.
        let end = if forwards { last } else { first };
        let mut todo: SmallVec<[GroupId; 32]> = SmallVec::new();
        for group in merged.iter().filter(|group| self.order.place(**group) != end) {
            todo.extend_from_slice(&next(*group));
        }
        self.effort.set(self.effort.get() + todo.len() as u64);
        todo.retain(|group| outside(group));
        while let Some(group) = todo.pop() {
            if !seen.insert(group) {
                continue;
            }
            if found.len() == most {
                return Ways::ToMore;
            }
            found.push(group);
            let further = next(group);
            self.effort.set(self.effort.get() + 1 + further.len() as u64);
            for further in further.iter().copied() {
                if merged.contains(&further) {
                    return Ways::Circle;
                }
                if between(&further) {
                    todo.push(further);
                }
            }
        }
        Ways::To(found)
    }
}
