//! Index expressions at a point: a sum of integers plus a stride along the lanes wherever that is enough, otherwise a vector.

use std::cell::RefCell;

use fuseline::tensor::{Algebra, Dim, Symbol};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

use super::bound::ceil_div;
use super::point::Point;
use crate::vector::{Binary, Builder, Compare, IntOp, Ty, Value};

/// The value of an index expression at a point.
#[derive(Clone, Debug)]
pub(super) enum Index {
    /// `constant + Σ value·factor + lane·number of the lane`
    Sum(Sum),
    /// a vector of I32
    Lanes(Value),
}

/// `constant + Σ value·factor + lane·number of the lane`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub terms: SmallVec<[(Value, i64); 4]>,
    pub constant: i64,
    pub lane: i64,
}

impl Sum {
    pub fn number(n: i64) -> Sum {
        Sum { constant: n, ..Sum::default() }
    }

    pub fn value(value: Value) -> Sum {
        Sum { terms: smallvec![(value, 1)], ..Sum::default() }
    }

    fn as_number(&self) -> Option<i64> {
        (self.terms.is_empty() && self.lane == 0).then_some(self.constant)
    }

    fn scaled(mut self, by: i64) -> Sum {
        if by == 0 {
            return Sum::number(0);
        }
        self.terms.iter_mut().for_each(|(_, factor)| *factor *= by);
        self.constant *= by;
        self.lane *= by;
        self
    }

    fn plus(mut self, other: Sum) -> Sum {
        for (value, factor) in other.terms {
            match self.terms.iter_mut().find(|(own, _)| *own == value) {
                Some((_, own)) => *own += factor,
                None => self.terms.push((value, factor)),
            }
        }
        self.terms.retain(|(_, factor)| *factor != 0);
        self.constant += other.constant;
        self.lane += other.lane;
        self
    }

    /// The same in the first lane.
    fn first(&self) -> Sum {
        Sum { lane: 0, ..self.clone() }
    }
}

/// What is known of integers: the largest number of which each is certainly a multiple.
pub(super) type Multiples = FxHashMap<Value, i64>;

/// Index expressions computed by code.
pub(super) struct IndexAt<'a> {
    builder: RefCell<&'a mut Builder>,
    multiples: &'a Multiples,
    point: &'a Point,
    reads: &'a [Index],
}

/// The value of an index expression at a point; `reads` are the values that it reads from data.
pub(super) fn index_at(
    builder: &mut Builder,
    multiples: &Multiples,
    dim: &Dim,
    point: &Point,
    reads: &[Index],
) -> Index {
    // Nearly all are sums of coordinates, for which nothing need be computed.
    if let Some(sum) = sum_of_coordinates(dim, point) {
        return Index::Sum(sum);
    }
    dim.interpret(&IndexAt { builder: RefCell::new(builder), multiples, point, reads })
}

fn sum_of_coordinates(dim: &Dim, point: &Point) -> Option<Sum> {
    let (mut sum, mut is_one) = (Sum::default(), true);
    let constant = dim.linear(|symbol, factor| {
        let Symbol::Axis(axis) = symbol else {
            is_one = false;
            return;
        };
        let coord = point.coord(usize::from(*axis));
        sum.constant += factor * coord.plus;
        sum.lane += factor * i64::from(coord.lanes);
        if let Some(base) = coord.base {
            match sum.terms.iter_mut().find(|(own, _)| *own == base) {
                Some((_, own)) => *own += factor,
                None => sum.terms.push((base, factor)),
            }
        }
    })?;
    sum.terms.retain(|(_, factor)| *factor != 0);
    sum.constant += constant;
    is_one.then_some(sum)
}

/// The integer that a sum without lanes is.
pub(super) fn int_of(b: &mut Builder, sum: &Sum) -> Value {
    // The outermost first, so that as much as can be is computed outside of the loops.
    let mut terms = sum.terms.clone();
    terms.sort_by_key(|(value, _)| (b.depth(*value), *value));
    let mut total = b.number(sum.constant);
    for (value, factor) in terms {
        let term = b.times(value, factor);
        total = b.int(IntOp::Add, total, term);
    }
    total
}

/// The vector that an index is.
pub(super) fn lanes_of(b: &mut Builder, index: &Index) -> Value {
    match index {
        Index::Lanes(value) => *value,
        Index::Sum(sum) => {
            let first = int_of(b, &sum.first());
            let first = b.splat(Ty::I32, first);
            if sum.lane == 0 {
                return first;
            }
            let numbers = b.lane_numbers(Ty::I32);
            let stride = b.integer(Ty::I32, sum.lane);
            let numbers = if sum.lane == 1 { numbers } else { b.binary(Binary::Mul, numbers, stride) };
            b.binary(Binary::Add, first, numbers)
        }
    }
}

/// Lanes in which `0 ≤ index < bound`; an Int where no lane differs from another.
pub(super) enum Within {
    /// 0 or 1
    Uniform(Value),
    /// a mask
    Lanes(Value),
}

pub(super) fn within(b: &mut Builder, index: &Index, bound: i64) -> Within {
    match index {
        Index::Sum(sum) if sum.lane == 0 => {
            let value = int_of(b, sum);
            let (zero, bound) = (b.number(0), b.number(bound));
            let above = b.int(IntOp::Le, zero, value);
            let below = b.int(IntOp::Lt, value, bound);
            Within::Uniform(b.int(IntOp::And, above, below))
        }
        _ => {
            let value = lanes_of(b, index);
            let bound = b.integer(Ty::I32, bound);
            Within::Lanes(b.compare(Compare::LtUnsigned, value, bound))
        }
    }
}

/// A number of which the sum in the first lane is certainly a multiple; 0 for the number 0.
pub(super) fn multiple_of(multiples: &Multiples, sum: &Sum) -> i64 {
    let known = |value: &Value| multiples.get(value).copied().unwrap_or(1);
    let terms = sum.terms.iter().map(|(value, factor)| known(value) * factor);
    terms.fold(sum.constant.abs(), |all, term| gcd(all, term.abs()))
}

impl IndexAt<'_> {
    fn lane_count(&self) -> i64 {
        i64::from(self.builder.borrow().lanes())
    }

    fn uniform(&self, op: IntOp, a: &Sum, b: &Sum) -> Index {
        let builder = &mut **self.builder.borrow_mut();
        let (a, b) = (int_of(builder, a), int_of(builder, b));
        let value = builder.int(op, a, b);
        match builder.as_number(value) {
            Some(n) => Index::Sum(Sum::number(n)),
            None => Index::Sum(Sum::value(value)),
        }
    }

    fn lanes(&self, op: Binary, a: &Index, b: &Index) -> Index {
        let builder = &mut **self.builder.borrow_mut();
        let (a, b) = (lanes_of(builder, a), lanes_of(builder, b));
        Index::Lanes(builder.binary(op, a, b))
    }

    /// Quotient and remainder of a division by a number above 0.
    fn divide(&self, a: &Index, by: i64) -> (Index, Index) {
        if let Index::Sum(sum) = a {
            let first = sum.first();
            let quotient = || match first.scaled_down(by) {
                Some(exact) => Index::Sum(exact),
                None => self.uniform(IntOp::FloorDiv, &first, &Sum::number(by)),
            };
            let remainder = || match first.scaled_down(by) {
                Some(_) => Index::Sum(Sum::number(0)),
                None => self.uniform(IntOp::FloorMod, &first, &Sum::number(by)),
            };
            if sum.lane % by == 0 {
                let along = |index: Index| match index {
                    Index::Sum(quotient) => Index::Sum(quotient.plus(Sum { lane: sum.lane / by, ..Sum::default() })),
                    lanes => lanes,
                };
                return (along(quotient()), remainder());
            }
            // Blocks that begin at a multiple of `common` and are no longer do not cross a multiple of `by`.
            let common = gcd(multiple_of(self.multiples, &first), by);
            if sum.lane > 0 && sum.lane * (self.lane_count() - 1) < common {
                let along = |index: Index| match index {
                    Index::Sum(remainder) => Index::Sum(remainder.plus(Sum { lane: sum.lane, ..Sum::default() })),
                    lanes => lanes,
                };
                return (quotient(), along(remainder()));
            }
        }
        let builder = &mut **self.builder.borrow_mut();
        let value = lanes_of(builder, a);
        let quotient = divide_lanes(builder, value, by);
        let by = builder.integer(Ty::I32, by);
        let product = builder.binary(Binary::Mul, quotient, by);
        (Index::Lanes(quotient), Index::Lanes(builder.binary(Binary::Sub, value, product)))
    }
}

impl Sum {
    /// The sum divided by a number, where that is visibly exact.
    fn scaled_down(&self, by: i64) -> Option<Sum> {
        let exact = self.constant % by == 0 && self.terms.iter().all(|(_, factor)| factor % by == 0);
        exact.then(|| Sum {
            terms: self.terms.iter().map(|(value, factor)| (*value, factor / by)).collect(),
            constant: self.constant / by,
            lane: 0,
        })
    }
}

/// The floor of x / by for lanes with |x| < 2^30.
fn divide_lanes(b: &mut Builder, x: Value, by: i64) -> Value {
    if by == 1 {
        return x;
    }
    // x + shift·by is within 0..2^31, where multiplying with 2^(31+s)/by, rounded up, is exact.
    let shift = ceil_div(1 << 30, by);
    let added = b.integer(Ty::I32, shift * by);
    let above = b.binary(Binary::Add, x, added);
    let s = 64 - (by - 1).leading_zeros();
    let factor = (1u128 << (31 + s)).div_ceil(by as u128);
    let factor = b.integer(Ty::I32, factor as u32 as i64);
    let high = b.binary(Binary::MulHigh, above, factor);
    let places = b.integer(Ty::I32, i64::from(s) - 1);
    let quotient = b.binary(Binary::ShrUnsigned, high, places);
    let shift = b.integer(Ty::I32, shift);
    b.binary(Binary::Sub, quotient, shift)
}

pub(super) fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Algebra for IndexAt<'_> {
    type Number = Index;

    fn int(&self, n: i64) -> Index {
        Index::Sum(Sum::number(n))
    }

    fn symbol(&self, symbol: &Symbol) -> Index {
        match symbol {
            Symbol::Axis(axis) => {
                let coord = self.point.coord(usize::from(*axis));
                let mut sum = coord.base.map_or_else(Sum::default, Sum::value);
                sum.constant = coord.plus;
                sum.lane = i64::from(coord.lanes);
                Index::Sum(sum)
            }
            Symbol::Read(k) => self.reads[usize::from(*k)].clone(),
            // Sizes were replaced when the kernel was bound.
            Symbol::Name(_) | Symbol::Value(_) => unreachable!("a size in a kernel with numbers for its sizes"),
        }
    }

    fn add(&self, a: Index, b: Index) -> Index {
        match (a, b) {
            (Index::Sum(a), Index::Sum(b)) => Index::Sum(a.plus(b)),
            (a, b) => self.lanes(Binary::Add, &a, &b),
        }
    }

    fn mul(&self, a: Index, b: Index) -> Index {
        match (a, b) {
            (Index::Sum(a), Index::Sum(b)) => match (a.as_number(), b.as_number()) {
                (Some(n), _) => Index::Sum(b.scaled(n)),
                (_, Some(n)) => Index::Sum(a.scaled(n)),
                _ if a.lane == 0 && b.lane == 0 => self.uniform(IntOp::Mul, &a, &b),
                _ => self.lanes(Binary::Mul, &Index::Sum(a), &Index::Sum(b)),
            },
            (a, b) => self.lanes(Binary::Mul, &a, &b),
        }
    }

    fn floordiv(&self, a: Index, b: Index) -> Index {
        match &b {
            Index::Sum(divisor) if divisor.as_number().is_some_and(|n| n > 0) => {
                self.divide(&a, divisor.as_number().unwrap_or(1)).0
            }
            // Only a kernel without points divides by less; nothing is read there.
            _ => Index::Sum(Sum::number(0)),
        }
    }

    fn modulo(&self, a: Index, b: Index) -> Index {
        match &b {
            Index::Sum(divisor) if divisor.as_number().is_some_and(|n| n > 0) => {
                self.divide(&a, divisor.as_number().unwrap_or(1)).1
            }
            _ => Index::Sum(Sum::number(0)),
        }
    }

    fn min(&self, a: Index, b: Index) -> Index {
        self.least(IntOp::Min, Binary::Min, a, b)
    }

    fn max(&self, a: Index, b: Index) -> Index {
        self.least(IntOp::Max, Binary::Max, a, b)
    }
}

impl IndexAt<'_> {
    fn least(&self, op: IntOp, lanes: Binary, a: Index, b: Index) -> Index {
        match (&a, &b) {
            (Index::Sum(x), Index::Sum(y)) if x.lane == 0 && y.lane == 0 => self.uniform(op, x, y),
            _ => self.lanes(lanes, &a, &b),
        }
    }
}
