//! The range that an element has in several outputs of one graph.
//!
//! How far a handful of draws lie apart says how far another one may lie, not where it does: an element may be beyond what they have by a few
//! times the width of their range, and the less the more of them there are. Where some are numbers and others are not, an infinite one may come out.

use super::{Agreed, SAFETY, Stepped, Tolerance, Worst, coordinates, count_nan, typical};
use crate::reference::Reading;
use crate::tensor::Literal;

/// For every element the least and the largest number, and what else it is.
pub(super) struct Hull<'e> {
    expected: &'e Literal,
    tolerance: Tolerance,
    typical: f64,
    errors: Option<&'e [f64]>,
    elements: Vec<Element>,
    /// outputs beside the one that is expected
    count: usize,
}

#[derive(Clone, Copy)]
struct Element {
    low: f64,
    high: f64,
    /// whether it is NaN, +inf and -inf somewhere
    others: [bool; 3],
}

impl Element {
    const NOTHING: Element = Element { low: f64::INFINITY, high: f64::NEG_INFINITY, others: [false; 3] };

    fn include(&mut self, x: f64) {
        match other(x) {
            Some(kind) => self.others[kind] = true,
            None => (self.low, self.high) = (self.low.min(x), self.high.max(x)),
        }
    }

    /// How much of what it may be beyond its range it uses; over 1 where it is farther away.
    fn excess(&self, x: f64, beyond: f64) -> f64 {
        let kinds = self.others.iter().filter(|is| **is).count() + usize::from(self.low <= self.high);
        match other(x) {
            Some(kind) if self.others[kind] => 0.0,
            Some(_) if x.is_infinite() && kinds > 1 => 0.0,
            None if self.low <= x && x <= self.high => 0.0,
            // Where some are no numbers, too, those that are say little.
            None if self.low <= self.high => match (x - self.high).max(self.low - x) / beyond {
                used if used > 1.0 && kinds > 1 => f64::INFINITY,
                used => used,
            },
            _ => f64::INFINITY,
        }
    }
}

/// What a float is that is no number.
fn other(x: f64) -> Option<usize> {
    if x.is_nan() {
        Some(0)
    } else if x.is_infinite() {
        Some(if x > 0.0 { 1 } else { 2 })
    } else {
        None
    }
}

impl<'e> Hull<'e> {
    /// Of what is expected alone, with what an element may be off in any case.
    pub fn around(expected: &'e Literal, tolerance: Tolerance, errors: Option<&'e [f64]>) -> Hull<'e> {
        let elements = vec![Element::NOTHING; expected.count()];
        let mut hull = Hull { expected, tolerance, typical: typical(expected), errors, elements, count: 0 };
        hull.include(expected);
        hull.count = 0;
        hull
    }

    /// With what another output has; one of other sizes says nothing.
    pub fn include(&mut self, output: &Literal) {
        if output.ty() == self.expected.ty() {
            self.elements.iter_mut().enumerate().for_each(|(k, element)| element.include(output.float(k)));
            self.count += 1;
        }
    }

    /// Whether an output lies in the range; if not, how much it uses of what an element may be beyond it.
    pub fn measure(&self, actual: &Literal) -> Result<Agreed, f64> {
        if actual.ty() != self.expected.ty() {
            return Err(f64::INFINITY);
        }
        let dtype = actual.dtype();
        let mut most: Option<(f64, Worst)> = None;
        let (mut excess, mut differing) = (0f64, 0);
        for (k, element) in self.elements.iter().enumerate() {
            let (x, worst) = (actual.float(k), self.worst(k, actual));
            // Integers beyond the digits of a float are told apart where nothing moves them.
            let is_other = !dtype.is_float() && element.low == element.high && self.expected.int(k) != actual.int(k);
            excess = excess.max(if is_other { f64::INFINITY } else { element.excess(x, self.beyond(k)) });
            if worst.distance() > 0.0 && worst.distance().is_finite() {
                differing += 1;
                if most.as_ref().is_none_or(|(used, _)| worst.used() > *used) {
                    most = Some((worst.used(), worst));
                }
            }
        }
        if excess > 1.0 {
            return Err(excess);
        }
        let worst = most.map(|(_, worst)| worst);
        let (nan, reading) = (count_nan(actual), Reading::Exact);
        if dtype.is_float() {
            return Ok(Agreed { worst, stepped: None, nan, is_steep: true, reading });
        }
        let stepped = worst.map(|farthest| Stepped { count: differing, of: actual.count(), farthest });
        Ok(Agreed { worst: None, stepped, nan, is_steep: true, reading })
    }

    /// How far an element may be beyond its range.
    fn beyond(&self, k: usize) -> f64 {
        let Element { low, high, .. } = self.elements[k];
        let wider = SAFETY / self.count.max(1) as f64;
        if !self.expected.dtype().is_float() {
            // A number beside one jump has two values, and no other.
            return wider * (high - low - 1.0).max(0.0);
        }
        let own = self.errors.map_or(0.0, |errors| SAFETY * errors[k]);
        let known = self.tolerance.bound(high.abs().max(low.abs()), self.typical);
        wider * (high - low) + if own.is_finite() && known.is_finite() { own.max(known) } else { 0.0 }
    }

    fn worst(&self, k: usize, actual: &Literal) -> Worst {
        let Element { low, high, .. } = self.elements[k];
        let expected = self.expected.float(k);
        let farther = (high - expected).max(expected - low);
        let bound = farther + self.beyond(k);
        let index = coordinates(k, self.expected.sizes());
        Worst { index, expected, actual: actual.float(k), bound, typical: self.typical }
    }
}
