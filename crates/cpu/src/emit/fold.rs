//! Folds: what is kept from trip to trip, how a term joins it, and what becomes of it.

use fuseline::ops::prim::Monoid;
use fuseline::ops::{Number, Scalar};
use fuseline::tensor::DType;
use fuseline::tile::{Kernel, Op, Rounding, StepId};
use smallvec::SmallVec;

use crate::math;
use crate::vector::{Binary, Builder, Compare, FmaOp, FoldOp, Ty, Value};

/// What a fold keeps: one vector, or a vector and the positions where its numbers were.
pub(super) type Kept = SmallVec<[Value; 2]>;

/// How a step folds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Folding {
    /// a monoid on elements of a type
    Of(Monoid, DType),
    /// the largest or smallest float, where the sign of a zero does not matter: a number, and whether there was NaN
    Extreme(Monoid, DType),
    /// the sum of products of elements of the types, in the accumulator's type
    Products([DType; 2], DType),
}

impl Folding {
    /// How a step of a kernel folds, if it does.
    pub fn of(kernel: &Kernel, id: StepId) -> Option<Folding> {
        match &kernel.step(id).op {
            Op::Reduce { monoid: monoid @ (Monoid::Max | Monoid::Min), arg, .. }
                if kernel.rounding == Rounding::Ends && kernel.step(*arg).dtype.is_float() =>
            {
                Some(Folding::Extreme(*monoid, kernel.step(*arg).dtype))
            }
            Op::Reduce { monoid, arg, .. } | Op::Prefix { monoid, arg, .. } => {
                Some(Folding::Of(*monoid, kernel.step(*arg).dtype))
            }
            Op::Dot { a, b, accumulator, .. } => {
                Some(Folding::Products([kernel.step(*a).dtype, kernel.step(*b).dtype], *accumulator))
            }
            _ => None,
        }
    }

    /// How a contraction folds the products of a left factor with the other one.
    pub fn of_factors(kernel: &Kernel, dot: StepId, left: StepId) -> Option<Folding> {
        match Folding::of(kernel, dot)? {
            Folding::Products([a, b], accumulator) if kernel.step(dot).op.operands()[0] != left => {
                Some(Folding::Products([b, a], accumulator))
            }
            folding => Some(folding),
        }
    }

    /// The element type of what is folded.
    fn dtype(self) -> DType {
        match self {
            Folding::Of(_, dtype) | Folding::Extreme(_, dtype) | Folding::Products(_, dtype) => dtype,
        }
    }

    fn monoid(self) -> Monoid {
        match self {
            Folding::Of(monoid, _) | Folding::Extreme(monoid, _) => monoid,
            Folding::Products(..) => Monoid::Sum,
        }
    }

    /// Whether the position of an element is wanted; then whether the largest, and whether the last.
    fn position(self) -> Option<(bool, bool)> {
        match self.monoid() {
            Monoid::ArgMax => Some((true, false)),
            Monoid::ArgMin => Some((false, false)),
            Monoid::ArgMaxLast => Some((true, true)),
            Monoid::ArgMinLast => Some((false, true)),
            _ => None,
        }
    }

    /// Whether numbers of single precision are folded, whatever their positions.
    pub fn is_single(self) -> bool {
        let held = matches!(self.dtype(), DType::F32 | DType::F16 | DType::BF16);
        held && self.position().is_none()
    }

    /// Whether it adds up floats.
    pub fn is_sum(self) -> bool {
        let dtype = if let Folding::Products(_, accumulator) = self { accumulator } else { self.dtype() };
        self.monoid() == Monoid::Sum && dtype.is_float()
    }

    /// How many vectors it keeps.
    pub fn parts(self) -> usize {
        if self.position().is_some() || matches!(self, Folding::Extreme(..)) { 2 } else { 1 }
    }

    /// What a fold of nothing keeps.
    pub fn neutral(self, b: &mut Builder) -> Kept {
        if self.position().is_some() {
            // The position says that there was none yet.
            let zero = math::constant(b, self.kept_dtype(), Number::from_int(self.kept_dtype(), 0));
            let none = b.integer(Ty::I32, -1);
            return SmallVec::from_slice(&[zero, none]);
        }
        if self.dtype() == DType::Bool {
            let start = b.integer(Ty::I32, i64::from(self.monoid() == Monoid::Min || self.monoid() == Monoid::Prod));
            return SmallVec::from_slice(&[start]);
        }
        let neutral = math::monoid::neutral(b, self.monoid(), self.dtype());
        match self {
            Folding::Extreme(..) => SmallVec::from_slice(&[neutral, b.truth(false)]),
            _ => SmallVec::from_slice(&[neutral]),
        }
    }

    /// The type in which numbers of positions are compared.
    fn kept_dtype(self) -> DType {
        if self.dtype() == DType::Bool { DType::I32 } else { self.dtype() }
    }

    /// One more term; `position` is that of the term (I32), wanted by positions alone.
    pub fn join(
        self,
        b: &mut Builder,
        kept: &Kept,
        terms: &[Value],
        position: Option<Value>,
        mask: Option<Value>,
    ) -> Kept {
        let joined = match self {
            Folding::Products(dtypes, accumulator) => {
                let x = math::cast(b, dtypes[0], accumulator, terms[0]);
                let y = math::cast(b, dtypes[1], accumulator, terms[1]);
                let sum = if accumulator.is_float() {
                    b.fma(FmaOp::Add, x, y, kept[0])
                } else {
                    let product = math::apply(b, Scalar::Mul, accumulator, &[x, y]);
                    math::apply(b, Scalar::Add, accumulator, &[kept[0], product])
                };
                SmallVec::from_slice(&[sum])
            }
            Folding::Extreme(..) => return self.join_extreme(b, kept, terms[0], mask),
            Folding::Of(monoid, dtype) => {
                let term = if dtype == DType::Bool { as_integer(b, terms[0]) } else { terms[0] };
                match (self.position(), position) {
                    (Some(_), Some(position)) => {
                        let other = SmallVec::from_slice(&[term, position]);
                        self.merge(b, kept, &other)
                    }
                    _ => SmallVec::from_slice(&[math::monoid::combine(b, monoid, self.kept_dtype(), kept[0], term)]),
                }
            }
        };
        match mask {
            Some(mask) => joined.iter().zip(kept).map(|(new, old)| b.select(mask, *new, *old)).collect(),
            None => joined,
        }
    }

    /// One more term of which the sign of a zero does not matter.
    fn join_extreme(self, b: &mut Builder, kept: &Kept, term: Value, mask: Option<Value>) -> Kept {
        let is_nan = b.compare(Compare::Unordered, term, term);
        let is_nan = mask.map_or(is_nan, |mask| b.binary(Binary::And, mask, is_nan));
        let other = SmallVec::from_slice(&[term, is_nan]);
        // what follows nothing is the first
        let joined = if *kept == self.neutral(b) { other } else { self.merge(b, kept, &other) };
        match mask {
            Some(mask) => SmallVec::from_slice(&[b.select(mask, joined[0], kept[0]), joined[1]]),
            None => joined,
        }
    }

    /// A term each for two copies that are merged in the end: whether one of the terms is NaN is asked once, and kept by the first copy.
    /// Nothing where a fold keeps no such thing.
    pub fn join_two(self, b: &mut Builder, kept: [&Kept; 2], terms: [Value; 2]) -> Option<[Kept; 2]> {
        let Folding::Extreme(monoid, dtype) = self else { return None };
        let is_nan = b.compare(Compare::Unordered, terms[0], terms[1]);
        let nothing = self.neutral(b);
        if kept.iter().all(|kept| **kept == nothing) {
            return Some([SmallVec::from_slice(&[terms[0], is_nan]), SmallVec::from_slice(&[terms[1], nothing[1]])]);
        }
        let was_nan = b.binary(Binary::Or, kept[0][1], is_nan);
        let [first, second] = [0, 1].map(|k| math::monoid::combine_numbers(b, monoid, dtype, kept[k][0], terms[k]));
        Some([SmallVec::from_slice(&[first, was_nan]), SmallVec::from_slice(&[second, kept[1][1]])])
    }

    /// Two folds of different terms together.
    pub fn merge(self, b: &mut Builder, kept: &Kept, other: &Kept) -> Kept {
        if let Folding::Extreme(monoid, dtype) = self {
            let number = math::monoid::combine_numbers(b, monoid, dtype, kept[0], other[0]);
            return SmallVec::from_slice(&[number, b.binary(Binary::Or, kept[1], other[1])]);
        }
        let Some((largest, last)) = self.position() else {
            return SmallVec::from_slice(&[math::monoid::combine(
                b,
                self.monoid(),
                self.kept_dtype(),
                kept[0],
                other[0],
            )]);
        };
        let better = self.is_better(b, [kept[0], kept[1]], [other[0], other[1]], largest, last);
        let value = b.select(better, other[0], kept[0]);
        SmallVec::from_slice(&[value, b.select(better, other[1], kept[1])])
    }

    /// Whether the second of two numbers with their positions is the one that is wanted. NaN counts as the best, as
    /// `max` and `min` have it.
    fn is_better(self, b: &mut Builder, kept: [Value; 2], other: [Value; 2], largest: bool, last: bool) -> Value {
        let dtype = self.kept_dtype();
        let zero = b.integer(Ty::I32, 0);
        let is_new = b.compare(Compare::Lt, kept[1], zero);
        let is_there = b.compare(Compare::Le, zero, other[1]);
        let (low, high) = if largest { (kept[0], other[0]) } else { (other[0], kept[0]) };
        let mut beats = math::apply(b, Scalar::Lt, dtype, &[low, high]);
        let mut equal = math::apply(b, Scalar::Eq, dtype, &[kept[0], other[0]]);
        if dtype.is_float() {
            let (old, new) =
                (b.compare(Compare::Unordered, kept[0], kept[0]), b.compare(Compare::Unordered, other[0], other[0]));
            let first_nan = b.binary(Binary::AndNot, old, new);
            let both_nan = b.binary(Binary::And, old, new);
            beats = b.binary(Binary::Or, beats, first_nan);
            equal = b.binary(Binary::Or, equal, both_nan);
        }
        let (early, late) = if last { (kept[1], other[1]) } else { (other[1], kept[1]) };
        let sooner = b.compare(Compare::Lt, early, late);
        let tied = b.binary(Binary::And, equal, sooner);
        let wins = b.binary(Binary::Or, beats, tied);
        let wins = b.binary(Binary::Or, wins, is_new);
        b.binary(Binary::And, wins, is_there)
    }

    /// What all lanes together keep, in every lane.
    pub fn across(self, b: &mut Builder, kept: &Kept) -> Kept {
        if let Folding::Extreme(monoid, dtype) = self {
            let number = math::monoid::fold_numbers(b, monoid, dtype, kept[0]);
            return SmallVec::from_slice(&[number, b.fold(FoldOp::By(Binary::Or), kept[1])]);
        }
        if self.position().is_none() {
            return SmallVec::from_slice(&[math::monoid::fold_lanes(b, self.monoid(), self.kept_dtype(), kept[0])]);
        }
        let Some((largest, last)) = self.position() else { unreachable!("handled above") };
        let (dtype, zero) = (self.kept_dtype(), b.integer(Ty::I32, 0));
        let is_there = b.compare(Compare::Le, zero, kept[1]);
        let monoid = if largest { Monoid::Max } else { Monoid::Min };
        let neutral = math::monoid::neutral(b, monoid, dtype);
        let value = b.select(is_there, kept[0], neutral);
        let best = math::monoid::fold_lanes(b, monoid, dtype, value);
        let mut is_best = math::apply(b, Scalar::Eq, dtype, &[kept[0], best]);
        if dtype.is_float() {
            let both_nan = b.compare(Compare::Unordered, kept[0], kept[0]);
            let best_nan = b.compare(Compare::Unordered, best, best);
            let both_nan = b.binary(Binary::And, both_nan, best_nan);
            is_best = b.binary(Binary::Or, is_best, both_nan);
        }
        let is_best = b.binary(Binary::And, is_best, is_there);
        let worst = b.integer(Ty::I32, if last { -1 } else { i64::from(i32::MAX) });
        let position = b.select(is_best, kept[1], worst);
        let position = b.fold(FoldOp::By(if last { Binary::Max } else { Binary::Min }), position);
        SmallVec::from_slice(&[best, position])
    }

    /// The results of two folds of different terms as one; not of positions.
    pub fn merge_results(self, b: &mut Builder, one: Value, other: Value) -> Value {
        math::monoid::combine(b, self.monoid(), self.dtype(), one, other)
    }

    /// The value of the fold, of the type that the step has.
    pub fn result(self, b: &mut Builder, kept: &Kept) -> Value {
        match self {
            Folding::Of(..) if self.position().is_some() => math::cast(b, DType::I32, DType::I64, kept[1]),
            Folding::Of(_, DType::Bool) => {
                let zero = b.integer(Ty::I32, 0);
                b.compare(Compare::Ne, kept[0], zero)
            }
            Folding::Extreme(_, dtype) => {
                let nan = math::constant(b, dtype, Number::Float(f64::NAN.to_bits()));
                b.select(kept[1], nan, kept[0])
            }
            Folding::Of(..) | Folding::Products(..) => kept[0],
        }
    }
}

fn as_integer(b: &mut Builder, mask: Value) -> Value {
    let (one, zero) = (b.integer(Ty::I32, 1), b.integer(Ty::I32, 0));
    b.select(mask, one, zero)
}
