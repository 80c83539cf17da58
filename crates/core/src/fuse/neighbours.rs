//! Which groups read what which others store, remembered for as long as it stays so.

use std::cell::OnceCell;
use std::ops::Deref;
use std::rc::Rc;

use super::cell::Nodes;
use super::state::{GroupId, Groups, State};

/// Groups around a group, ascending.
#[derive(Debug)]
pub enum Neighbours<'s> {
    /// remembered
    Known(&'s [GroupId]),
    /// looked for just now
    Found(Groups),
}

impl Deref for Neighbours<'_> {
    type Target = [GroupId];

    fn deref(&self) -> &[GroupId] {
        match self {
            Neighbours::Known(groups) => groups,
            Neighbours::Found(groups) => groups,
        }
    }
}

impl<'s> IntoIterator for Neighbours<'s> {
    type Item = GroupId;
    type IntoIter = Walk<'s>;

    fn into_iter(self) -> Walk<'s> {
        Walk { groups: self, at: 0 }
    }
}

/// One after the other.
#[derive(Debug)]
pub struct Walk<'s> {
    groups: Neighbours<'s>,
    at: usize,
}

impl Iterator for Walk<'_> {
    type Item = GroupId;

    fn next(&mut self) -> Option<GroupId> {
        let next = self.groups.get(self.at).copied();
        self.at += 1;
        next
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.groups.len().saturating_sub(self.at);
        (left, Some(left))
    }
}

/// What is remembered of a group; copies of a state share it until nodes around the group move in one of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Near {
    producers: OnceCell<Groups>,
    consumers: OnceCell<Groups>,
    leaders: OnceCell<Groups>,
    followers: OnceCell<Groups>,
}

/// Of nodes with more readers than this, and of cells that read more, nothing is remembered: when such a node moves, nobody goes through
/// all of them to say so.
const MOST_REMEMBERED: usize = 64;

fn is_few(nodes: &Nodes) -> bool {
    nodes.len() <= MOST_REMEMBERED
}

impl State<'_> {
    /// The groups that read a value that this group stores, ascending.
    pub fn consumers(&self, id: GroupId) -> Neighbours<'_> {
        self.first_consumers(id, usize::MAX)
    }

    /// The groups that read a value that this group stores, ascending: at most so many, those of the first readers.
    pub fn first_consumers(&self, id: GroupId, most: usize) -> Neighbours<'_> {
        let known = &self.near[id as usize].consumers;
        if let Some(all) = known.get().filter(|all| all.len() <= most) {
            debug_assert_eq!(self.find_consumers(id, most).0, *all, "consumers of {id}");
            return Neighbours::Known(all);
        }
        match self.find_consumers(id, most) {
            (found, true) => Neighbours::Known(known.get_or_init(|| found)),
            (found, false) => Neighbours::Found(found),
        }
    }

    /// At most so many consumers, and whether these are all, and may be remembered.
    fn find_consumers(&self, id: GroupId, most: usize) -> (Groups, bool) {
        let (mut found, mut stays) = (Groups::new(), true);
        'members: for member in &self.group(id).members {
            if self.home[*member] != id {
                continue;
            }
            for reader in &self.cells.readers[*member] {
                stays &= is_few(&self.cells.reads[*reader as usize]);
                for group in &self.inside[*reader as usize] {
                    if *group != id && found.last() != Some(group) && !self.has(*group, *member) {
                        found.push(*group);
                    }
                }
                if found.len() >= most {
                    sort_out(&mut found);
                    if found.len() >= most {
                        stays = false;
                        break 'members;
                    }
                }
            }
        }
        sort_out(&mut found);
        (found, stays)
    }

    /// The groups whose stored values this group reads, ascending.
    pub fn producers(&self, id: GroupId) -> Neighbours<'_> {
        remembered(&self.near[id as usize].producers, || self.find_producers(id))
    }

    fn find_producers(&self, id: GroupId) -> (Groups, bool) {
        let (mut found, mut stays) = (Groups::new(), true);
        for member in &self.group(id).members {
            for read in &self.cells.reads[*member] {
                let read = *read as usize;
                stays &= is_few(&self.cells.readers[read]);
                if found.last() != Some(&self.home[read]) && !self.has(id, read) {
                    found.push(self.home[read]);
                }
            }
        }
        sort_out(&mut found);
        (found, stays)
    }

    /// The groups that must run after this one: consumers, and those whose sizes it binds.
    pub fn followers(&self, id: GroupId) -> Neighbours<'_> {
        let find = || self.tied(id, self.find_consumers(id, usize::MAX), &self.cells.before, &self.cells.after);
        remembered(&self.near[id as usize].followers, find)
    }

    /// The groups that must run before this one: producers, and those that bind its sizes.
    pub fn leaders(&self, id: GroupId) -> Neighbours<'_> {
        let find = || self.tied(id, self.find_producers(id), &self.cells.after, &self.cells.before);
        remembered(&self.near[id as usize].leaders, find)
    }

    /// With the other groups that compute what nodes of a group are tied to by sizes; `back` is how those are tied to the nodes.
    fn tied(&self, id: GroupId, list: (Groups, bool), tied: &[Nodes], back: &[Nodes]) -> (Groups, bool) {
        let (mut found, mut stays) = list;
        let before = found.len();
        for member in &self.group(id).members {
            for node in &tied[*member] {
                let node = *node as usize;
                stays &= is_few(&back[node]);
                found.extend(self.inside[node].iter().copied().filter(|group| *group != id));
            }
        }
        if found.len() > before {
            sort_out(&mut found);
        }
        (found, stays)
    }

    /// Forgets what other groups have in other places or for other readers, now that these nodes have moved.
    pub(super) fn forget_around(&mut self, moved: &[usize]) {
        let State { cells, near, home, inside, .. } = self;
        let mut forget = |group: GroupId| match Rc::get_mut(&mut near[group as usize]) {
            Some(own) => *own = Near::default(),
            // those of a copy stay
            None => near[group as usize] = Rc::default(),
        };
        for node in moved.iter().copied() {
            forget(home[node]);
            if is_few(&cells.reads[node]) {
                cells.reads[node].iter().for_each(|read| forget(home[*read as usize]));
            }
            for nodes in [&cells.readers[node], &cells.before[node], &cells.after[node]] {
                if is_few(nodes) {
                    nodes.iter().flat_map(|other| &inside[*other as usize]).for_each(|group| forget(*group));
                }
            }
        }
    }
}

/// What is remembered, or found now.
fn remembered(known: &OnceCell<Groups>, find: impl Fn() -> (Groups, bool)) -> Neighbours<'_> {
    if let Some(groups) = known.get() {
        debug_assert_eq!(find().0, *groups, "what is remembered is as it was");
        return Neighbours::Known(groups);
    }
    match find() {
        (found, true) => Neighbours::Known(known.get_or_init(|| found)),
        (found, false) => Neighbours::Found(found),
    }
}

/// Ascending, and each once.
fn sort_out(groups: &mut Groups) {
    if groups.len() > 1 {
        groups.sort_unstable();
        groups.dedup();
    }
}
