//! Leaves that look alike, told apart by what is done with them.
//!
//! A gate and what it gates may be two products of one shape: nothing that they are computed from says which of them stands
//! first, only that one goes through a sigmoid does. Every leaf has a colour, at first its rank. A colour is refined by
//! those of what a leaf is computed from and of everything that reads it, until no more leaves are told apart. Operands that
//! may be swapped count as a set, and signs are not looked at where a sum can take them: a colour does not depend on the order in
//! which a formula happens to be written. Leaves that differ by the sign of a product of several sums alone stay alike.

use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use super::draft::{LeafOp, Place};
use super::settle::Settled;
use crate::ops::normal::LeafRank;
use crate::ops::{ExprNode, Scalar, Scope};

/// Colours that tell leaves of one rank apart, by leaf; 0 for leaves that are the only one of their rank. `None` where all
/// leaves of one rank are used alike.
pub(super) fn told_apart(
    scope: &Scope,
    leaves: &[Settled<'_>],
    ranks: &[LeafRank],
    ends: &[Place],
) -> Option<Vec<u64>> {
    let mut count: FxHashMap<LeafRank, usize> = FxHashMap::default();
    ranks.iter().for_each(|rank| *count.entry(*rank).or_default() += 1);
    if count.len() == ranks.len() {
        return None;
    }
    let mut colours: Vec<u64> = ranks.iter().map(code).collect();
    let terms = reachable(scope, leaves, ends);
    let mut known = distinct(&colours);
    loop {
        let finer = Colouring::new(scope, leaves, ends, &terms, &colours).refined();
        let found = distinct(&finer);
        if found <= known {
            break;
        }
        (known, colours) = (found, finer);
    }
    let is_alone = |rank: &LeafRank| count[rank] == 1;
    let apart = colours.iter().zip(ranks).map(|(colour, rank)| if is_alone(rank) { 0 } else { *colour });
    (known > count.len()).then(|| apart.collect())
}

/// The terms behind ends and behind operands of leaves, those that read others first.
fn reachable(scope: &Scope, leaves: &[Settled<'_>], ends: &[Place]) -> Vec<Place> {
    let mut todo: Vec<Place> = ends.to_vec();
    let mut seen = FxHashSet::default();
    while let Some(place) = todo.pop() {
        if seen.insert(place) {
            todo.extend(operands(scope, leaves, place));
        }
    }
    let mut terms: Vec<Place> = seen.into_iter().collect();
    // A term, and the argument that stands for a leaf, is made after its operands.
    terms.sort_unstable_by_key(|place| std::cmp::Reverse(*place));
    terms
}

/// What a term is made of; an argument, what its leaf is made of.
fn operands(scope: &Scope, leaves: &[Settled<'_>], place: Place) -> Vec<Place> {
    let term = scope.term(place);
    match term.node() {
        ExprNode::Arg(k) => leaves[k as usize].operands.to_vec(),
        _ => term.operands().iter().map(|t| t.place()).collect(),
    }
}

fn distinct(colours: &[u64]) -> usize {
    colours.iter().collect::<FxHashSet<_>>().len()
}

fn code(of: &impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    of.hash(&mut hasher);
    hasher.finish()
}

/// Functions whose nested calls are one call of many operands.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Chain {
    Sum,
    Product,
    Set(Scalar),
}

impl Chain {
    fn of(node: &ExprNode) -> Option<Chain> {
        let ExprNode::Apply(op, _) = node else { return None };
        match op {
            Scalar::Add | Scalar::Sub | Scalar::Neg => Some(Chain::Sum),
            Scalar::Mul | Scalar::Div => Some(Chain::Product),
            Scalar::Max | Scalar::Min | Scalar::And | Scalar::Or => Some(Chain::Set(*op)),
            _ => None,
        }
    }
}

/// Whether an operand is taken away, or divided by.
fn is_inverse(node: &ExprNode, operand: usize) -> bool {
    match node {
        ExprNode::Apply(Scalar::Sub | Scalar::Div, _) => operand == 1,
        ExprNode::Apply(Scalar::Neg, _) => true,
        _ => false,
    }
}

/// Two sums of codes: of what is added (or multiplied) and of what is taken away (or divided by).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Sides {
    forth: u64,
    back: u64,
}

impl Sides {
    fn turned(self, turn: bool) -> Sides {
        if turn { Sides { forth: self.back, back: self.forth } } else { self }
    }

    fn plus(self, other: Sides) -> Sides {
        Sides { forth: self.forth.wrapping_add(other.forth), back: self.back.wrapping_add(other.back) }
    }
}

/// One round: codes of terms from what they are made of, then of their uses from what reads them.
struct Colouring<'c> {
    scope: &'c Scope,
    leaves: &'c [Settled<'c>],
    ends: &'c [Place],
    terms: &'c [Place],
    colours: &'c [u64],
    /// what terms are
    codes: FxHashMap<Place, u64>,
    /// the operands of chains, those of inner chains among them
    members: FxHashMap<Place, Sides>,
    /// what is done with terms
    uses: FxHashMap<Place, u64>,
    /// what is done with the chains that terms are part of
    contexts: FxHashMap<Place, Sides>,
}

impl<'c> Colouring<'c> {
    fn new(
        scope: &'c Scope,
        leaves: &'c [Settled<'c>],
        ends: &'c [Place],
        terms: &'c [Place],
        colours: &'c [u64],
    ) -> Colouring<'c> {
        let (codes, members) = (FxHashMap::default(), FxHashMap::default());
        let (uses, contexts) = (FxHashMap::default(), FxHashMap::default());
        Colouring { scope, leaves, ends, terms, colours, codes, members, uses, contexts }
    }

    fn refined(mut self) -> Vec<u64> {
        for place in self.terms.iter().rev() {
            let code = self.code(*place);
            self.codes.insert(*place, code);
        }
        for (k, end) in self.ends.iter().enumerate() {
            self.note_use(*end, code(&k));
        }
        let mut finer = self.colours.to_vec();
        for place in self.terms {
            self.spread(*place);
            if let ExprNode::Arg(k) = self.scope.term(*place).node() {
                finer[k as usize] = code(&(self.colours[k as usize], self.codes[place], self.uses.get(place)));
            }
        }
        finer
    }

    fn code(&mut self, place: Place) -> u64 {
        let term = self.scope.term(place);
        let (node, dtype) = (term.node(), term.dtype());
        let below: Vec<Place> = operands(self.scope, self.leaves, place);
        if let Some(chain) = Chain::of(&node) {
            let mut all = Sides::default();
            for (k, operand) in below.iter().enumerate() {
                let single = Sides { forth: code(&self.codes[operand]), back: 0 };
                let part = if self.is_link(chain, *operand) { self.members[operand] } else { single };
                all = all.plus(part.turned(is_inverse(&node, k)));
            }
            self.members.insert(place, all);
            // Which of two sums is the negated one is a matter of order.
            let sides = if chain == Chain::Sum && all.back < all.forth { all.turned(true) } else { all };
            return code(&(chain, dtype, sides));
        }
        let codes = below.iter().map(|o| self.codes[o]);
        match &node {
            ExprNode::Arg(k) => {
                // What a leaf is stands in its rank; here it is the colours behind it that matter.
                let behind = codes.fold(0u64, |sum, c| sum.wrapping_add(code(&c)));
                code(&(self.colours[*k as usize], behind))
            }
            ExprNode::Apply(op, _) if op.is_commutative() => {
                code(&(op, dtype, codes.fold(0u64, |sum, c| sum.wrapping_add(code(&c)))))
            }
            ExprNode::Apply(op, _) => code(&(op, dtype, codes.collect::<Vec<u64>>())),
            ExprNode::Cast(_) => code(&(0u8, dtype, codes.collect::<Vec<u64>>())),
            ExprNode::Bits(_) => code(&(1u8, dtype, codes.collect::<Vec<u64>>())),
            ExprNode::Const(number) if dtype.is_float() => code(&(dtype, number.to_f64().abs().to_bits())),
            other => code(&(2u8, dtype, other)),
        }
    }

    /// Whether an operand of a chain is a chain of the same kind.
    fn is_link(&self, chain: Chain, operand: Place) -> bool {
        Chain::of(&self.scope.term(operand).node()) == Some(chain)
    }

    fn note_use(&mut self, place: Place, code: u64) {
        let sum = self.uses.entry(place).or_default();
        *sum = sum.wrapping_add(code);
    }

    /// Tells the operands of a term what is done with them; everything that reads the term has told it.
    fn spread(&mut self, place: Place) {
        let node = self.scope.term(place).node();
        let below = operands(self.scope, self.leaves, place);
        let own = self.uses.get(&place).copied();
        let Some(chain) = Chain::of(&node) else {
            let swaps = match &node {
                ExprNode::Arg(k) => self.leaves[*k as usize].leaf.is_some_and(|l| matches!(l.op, LeafOp::Dot { .. })),
                ExprNode::Apply(op, _) => op.is_commutative(),
                _ => false,
            };
            for (k, operand) in below.iter().enumerate() {
                let position = if swaps { 0 } else { k };
                self.note_use(*operand, code(&(self.codes[&place], position, own)));
            }
            return;
        };
        let mut context = self.contexts.get(&place).copied().unwrap_or_default();
        if own.is_some() {
            let whole = (self.codes[&place], own);
            let sides = self.members[&place];
            context = context.plus(match chain {
                Chain::Sum => Sides { forth: code(&(whole, sides)), back: code(&(whole, sides.turned(true))) },
                Chain::Product | Chain::Set(_) => Sides { forth: code(&(whole, true)), back: code(&(whole, false)) },
            });
        }
        for (k, operand) in below.iter().enumerate() {
            let seen = context.turned(is_inverse(&node, k));
            if self.is_link(chain, *operand) {
                let known = self.contexts.entry(*operand).or_default();
                *known = known.plus(seen);
            } else {
                self.note_use(*operand, seen.forth);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Group, Hints, Limits, is_transparent, lower, write};
    use crate::device::DeviceSpec;
    use crate::graph::{Builder, Tensor};
    use crate::ops::Prim;
    use crate::passes::Numerics;
    use crate::tensor::{DType, Dim, Shape};

    type Formula<'f> = &'f dyn for<'b> Fn(&[Tensor<'b>; 4]) -> Tensor<'b>;

    /// The kernel of a formula of four tensors that look alike, declared in some order.
    fn kernel(order: [usize; 4], formula: Formula<'_>) -> String {
        let b = Builder::new("alike");
        let mut inputs = [b.scalar(DType::F32, 0.0); 4];
        for k in order {
            inputs[k] = b.input(&format!("x{k}"), DType::F32, Shape::new([Dim::named("n"), Dim::int(8)]));
        }
        b.output("y", formula(&inputs));
        let graph = b.finish().unwrap();
        let is_member =
            |id: &usize| !is_transparent(&graph, *id) && !matches!(graph.nodes()[*id].prim(), Prim::Input(_));
        let members: Vec<usize> = (0..graph.nodes().len()).filter(is_member).collect();
        let outputs = [graph.outputs()[0].value];
        let draft = lower(&Group { graph: &graph, members: &members, outputs: &outputs }).unwrap();
        let limits = Limits::of(DeviceSpec::find("cpu").unwrap(), DType::F32);
        write(draft, &limits, &Hints::default(), Numerics::Default).unwrap().1.to_string()
    }

    const ORDERS: [[usize; 4]; 5] = [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2], [2, 3, 0, 1], [1, 3, 0, 2]];

    fn check(spellings: &[Formula<'_>]) {
        let first = kernel(ORDERS[0], spellings[0]);
        for order in ORDERS {
            for formula in spellings {
                assert_eq!(kernel(order, formula), first, "declared in order {order:?}");
            }
        }
    }

    #[test]
    fn a_gate_is_known_by_its_function() {
        check(&[&|[a, b, ..]| *a * a.sigmoid() * *b, &|[a, b, ..]| *b * (a.sigmoid() * *a), &|[a, b, ..]| {
            (*b * *a) * a.sigmoid()
        }]);
        check(&[&|[a, b, ..]| a.tanh() + *b, &|[a, b, ..]| *b + a.tanh()]);
    }

    #[test]
    fn a_neighbour_is_known_by_its_neighbour() {
        check(&[
            &|[a, b, c, d]| *a * *b + *c * *d + c.exp(),
            &|[a, b, c, d]| c.exp() + *d * *c + *b * *a,
            &|[a, b, c, d]| *d * *c + (c.exp() + *a * *b),
        ]);
    }

    #[test]
    fn signs_do_not_matter_where_a_sum_can_take_them() {
        check(&[&|[a, b, ..]| (*a - *b) * a.exp(), &|[a, b, ..]| -(a.exp() * (*b - *a))]);
        check(&[&|[a, b, c, _]| (*a - *b) / *c, &|[a, b, c, _]| -(*b - *a) / *c]);
        check(&[&|[a, b, c, _]| (*a - *b) * (*a - *b) * c.exp() + *c, &|[a, b, c, _]| {
            *c + (*b - *a) * c.exp() * (*b - *a)
        }]);
    }

    #[test]
    fn folds_are_known_by_what_they_fold_and_by_their_readers() {
        check(&[&|[a, b, c, _]| (*a - a.sum(&[1])) * b.sum(&[1]) + *c, &|[a, b, c, _]| {
            *c + b.sum(&[1]) * (*a - a.sum(&[1]))
        }]);
        check(&[&|[a, b, ..]| a.sum(&[1]) / b.sum(&[1]) * *a, &|[a, b, ..]| *a * (a.sum(&[1]) / b.sum(&[1]))]);
    }
}
