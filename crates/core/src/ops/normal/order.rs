//! The order of operands: by what they are, never by when they were made.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHasher};

use crate::ops::{ExprNode, Term};

/// Where an argument stands among the leaves of a formula.
///
/// Operands of sums and products are sorted by level first, so that what varies least is computed first and can be kept;
/// then by rank, which stands for what the argument is. Where two spellings number their arguments differently, equal
/// ranks for equal arguments make their normal forms equal up to that numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeafRank {
    /// how much it varies, less than 255: sizes have level 0
    pub level: u8,
    /// its place among the leaves of its level
    pub rank: u64,
}

/// What operands are sorted by; equal for different terms only by accident or where leaves have equal ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    level: u8,
    depth: u16,
    kind: u8,
    /// the least rank of its arguments
    lead: u64,
    code: u64,
}

/// The level of constants, which stand last.
const CONSTANT: u8 = u8::MAX;

/// The order of terms of one scope.
#[derive(Debug, Default)]
pub(super) struct Order {
    ranks: Vec<LeafRank>,
    keys: FxHashMap<u32, Key>,
}

impl Order {
    pub(super) fn new(ranks: Vec<LeafRank>) -> Order {
        Order { ranks, keys: FxHashMap::default() }
    }

    /// How the terms compare; equal only if they are the same term.
    pub(super) fn compare(&mut self, a: Term<'_>, b: Term<'_>) -> Ordering {
        if a == b {
            return Ordering::Equal;
        }
        let keys = self.key(a).cmp(&self.key(b));
        if keys != Ordering::Equal {
            return keys;
        }
        // Leaves of one rank, or two hashes that agree by accident.
        let (left, right) = (a.operands(), b.operands());
        let operands = left.iter().zip(&right).map(|(a, b)| self.compare(*a, *b)).find(|o| *o != Ordering::Equal);
        operands.unwrap_or_else(|| (a.node(), a.dtype(), a.place()).cmp(&(b.node(), b.dtype(), b.place())))
    }

    /// How much a term varies.
    pub(super) fn level(&mut self, term: Term<'_>) -> u8 {
        self.key(term).level
    }

    fn rank(&self, k: u32) -> LeafRank {
        self.ranks.get(k as usize).copied().unwrap_or(LeafRank { level: 1, rank: u64::from(k) })
    }

    fn key(&mut self, term: Term<'_>) -> Key {
        if let Some(key) = self.keys.get(&term.place()) {
            return *key;
        }
        let node = term.node();
        let mut hasher = FxHasher::default();
        let key = match &node {
            ExprNode::Arg(k) => {
                let LeafRank { level, rank } = self.rank(*k);
                Key { level, depth: 0, kind: 3, lead: rank, code: rank }
            }
            ExprNode::Coord(axis) => Key { level: 1, depth: 0, kind: 2, lead: u64::MAX, code: u64::from(*axis) },
            ExprNode::Size(dim) => {
                dim.hash(&mut hasher);
                Key { level: 0, depth: 0, kind: 1, lead: u64::MAX, code: hasher.finish() }
            }
            ExprNode::Const(number) => {
                number.hash(&mut hasher);
                Key { level: CONSTANT, depth: 0, kind: 0, lead: u64::MAX, code: hasher.finish() }
            }
            ExprNode::Apply(..) | ExprNode::Cast(_) | ExprNode::Bits(_) => {
                let kind = match &node {
                    ExprNode::Apply(op, _) => 6 + *op as u8,
                    ExprNode::Cast(_) => 4,
                    _ => 5,
                };
                term.dtype().hash(&mut hasher);
                let (mut level, mut depth, mut lead) = (0, 0, u64::MAX);
                for operand in term.operands() {
                    let key = self.key(operand);
                    level = level.max(if key.level == CONSTANT { 0 } else { key.level });
                    depth = depth.max(key.depth);
                    lead = lead.min(key.lead);
                    (key.depth, key.kind, key.code).hash(&mut hasher);
                }
                Key { level, depth: depth.saturating_add(1), kind, lead, code: hasher.finish() }
            }
        };
        self.keys.insert(term.place(), key);
        key
    }
}
