//! Two contractions joined by folds over the axis that the second one sums.

use smallvec::SmallVec;

use super::{Form, FuseContext, GroupId, Proposal, Rule};
use crate::fuse::Kind;
use crate::tensor::{Dim, Shape};

pub(crate) const NAME: &str = "attention";

/// Attention, derived: everything on the way from one contraction to another.
pub(super) struct Attention;

/// No more groups than this lie between the two contractions, or are looked at to find the first.
const MOST_BETWEEN: usize = 40;

/// No more nodes than this are between them.
const MOST_NODES: usize = 48;

/// Contractions before the second that are looked at, and of those that could be the first how many are tried: the nearest ones.
const MOST_SEEN: usize = 8;
const MOST_FIRSTS: usize = 3;

impl Rule for Attention {
    fn name(&self) -> &'static str {
        NAME
    }

    fn doc(&self) -> &'static str {
        "Two contractions, the second summing over what the first leaves free, with elementwise work and folds over that axis \
         between them (or none, where both are batched and the matrix between them is larger than what it is made of): it is never stored."
    }

    fn propose(&self, context: &FuseContext<'_>, group: GroupId) -> Vec<Proposal> {
        if context.kind(group) != Kind::Contract {
            return Vec::new();
        }
        let mut proposals = Vec::new();
        let (behind, firsts) = before(context, group);
        for (first, mut groups) in not_repeated(context, &firsts, group, &behind) {
            include_readers(context, &mut groups, group);
            let folds = |g: &GroupId| matches!(context.kind(*g), Kind::Row | Kind::Column);
            // Two layers of a perceptron are better apart: their weights are packed once for all runs.
            // And what is no larger than its factors, as keys times values, had better be stored than made in another order of loops.
            let are_batched = context.is_batched(first) && context.is_batched(group);
            let is_worth_it = are_batched && context.outgrows_factors(first);
            if !is_worth_it && !groups.iter().any(folds) {
                continue;
            }
            let whole = with_operands(context, &groups);
            for groups in std::iter::once(groups).chain(whole) {
                if groups.iter().map(|g| context.size(*g)).sum::<usize>() <= MOST_NODES {
                    let groups = groups.into_iter().collect();
                    proposals.push(Proposal { rule: self.name(), groups, form: Form::Join });
                }
            }
        }
        proposals
    }
}

type Many = SmallVec<[GroupId; 16]>;

/// The groups before a contraction up to the contractions before those, and these, the nearest first.
fn before(context: &FuseContext<'_>, group: GroupId) -> (Many, Many) {
    let (mut behind, mut firsts) = (Many::new(), Many::new());
    let mut todo: std::collections::VecDeque<GroupId> = context.producers(group).into_iter().collect();
    while let Some(next) = todo.pop_front() {
        if behind.contains(&next) || firsts.contains(&next) {
            continue;
        }
        if behind.len() == MOST_BETWEEN || firsts.len() == MOST_SEEN {
            break;
        }
        match context.kind(next) {
            Kind::Contract => firsts.push(next),
            Kind::Map | Kind::Row | Kind::Column => {
                behind.push(next);
                todo.extend(context.producers(next));
            }
            Kind::Attention | Kind::Host => {}
        }
    }
    (behind, firsts)
}

/// The contractions with what lies between them and the second, without those whose results are repeated on the way along the matrix between (a
/// bias for every line of a picture), where another one fills it: they would be computed again for every repetition, and the matrix that fills
/// it stored.
fn not_repeated(context: &FuseContext<'_>, firsts: &Many, second: GroupId, behind: &Many) -> Vec<(GroupId, Many)> {
    let count = |group: GroupId| context.stored(group).next().map(Shape::count);
    let counts: SmallVec<[Option<Dim>; MOST_SEEN]> = firsts.iter().map(|first| count(*first)).collect();
    let with_way = firsts.iter().map(|first| (*first, between(context, *first, second, behind)));
    let fills = |(first, way): &(GroupId, Many)| {
        let Some(own) = count(*first) else { return true };
        let larger = |other: &Dim| own != *other && (other - &own).is_nonnegative();
        let on_the_way: SmallVec<[Dim; 16]> =
            way.iter().filter(|group| **group != second).filter_map(|group| count(*group)).collect();
        !counts.iter().flatten().any(|other| larger(other) && on_the_way.contains(other))
    };
    let mut found: Vec<(GroupId, Many)> = with_way.filter(fills).take(MOST_FIRSTS).collect();
    found.sort_unstable_by_key(|(first, _)| *first);
    found
}

/// The two contractions and everything on the way from the first to the second.
fn between(context: &FuseContext<'_>, first: GroupId, second: GroupId, behind: &Many) -> Many {
    let mut reached: Many = Many::new();
    reached.push(first);
    let mut todo: Many = context.consumers(first).into_iter().filter(|c| behind.contains(c)).collect();
    while let Some(next) = todo.pop() {
        if reached.contains(&next) {
            continue;
        }
        reached.push(next);
        todo.extend(context.consumers(next).into_iter().filter(|c| behind.contains(c)));
    }
    reached.push(second);
    reached.sort_unstable();
    reached
}

/// Adds what else reads the matrix between the two: the sum of a softmax whose division comes after the product.
fn include_readers(context: &FuseContext<'_>, groups: &mut Many, second: GroupId) {
    let path: Many = groups.iter().copied().filter(|g| *g != second).collect();
    for reader in path.iter().flat_map(|g| context.consumers(*g)) {
        if !groups.contains(&reader) && matches!(context.kind(reader), Kind::Row | Kind::Column) {
            groups.push(reader);
        }
    }
    groups.sort_unstable();
}

/// The same groups and the elementwise work on their operands that nobody else reads, if there is any, all of it: a conversion of
/// the values decides which unit multiplies them, and a part of a rotation would leave the other part to be stored.
fn with_operands(context: &FuseContext<'_>, groups: &Many) -> Option<Many> {
    let mut whole = groups.clone();
    let mut at = 0;
    while let Some(group) = whole.get(at).copied() {
        at += 1;
        for producer in context.producers(group) {
            let ours = || context.consumers(producer).iter().all(|reader| whole.contains(reader));
            if !whole.contains(&producer) && context.kind(producer) == Kind::Map && ours() {
                whole.push(producer);
            }
        }
    }
    whole.sort_unstable();
    (whole.len() > groups.len()).then_some(whole)
}
