//! The range that an element has in several outputs of one graph.
//!
//! How far a handful of draws lie apart says how far another one may lie, not where it does: an element may be beyond what they have by a few
//! times the width of their range, and the less the more of them there are. Where some are numbers and others are not, an infinite one may come out.

use super::{Agreed, SAFETY, Stepped, Tolerance, Worst, coordinates, count_nan, is_loose, typical};
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

    /// Whether an output lies in the range; if not, how much it uses of what an element may be beyond it, or of the widest range that any
    /// has: where something decides between elements, each may come to what others have come to.
    pub fn measure(&self, actual: &Literal) -> Result<Agreed, f64> {
        if actual.ty() != self.expected.ty() {
            return Err(f64::INFINITY);
        }
        let dtype = actual.dtype();
        let mut most: Option<(f64, Worst)> = None;
        let (mut excess, mut far, mut differing, mut loose) = (0f64, 0f64, 0, 0);
        let ranges = self.elements.iter().map(|element| element.high - element.low);
        let widest = ranges.filter(|range| range.is_finite()).fold(0f64, f64::max);
        for (k, element) in self.elements.iter().enumerate() {
            let (x, worst) = (actual.float(k), self.worst(k, actual));
            loose += usize::from(is_loose(self.expected, k, worst.bound, self.typical));
            // Integers beyond the digits of a float are told apart where nothing moves them.
            let is_other = !dtype.is_float() && element.low == element.high && self.expected.int(k) != actual.int(k);
            let beyond = self.beyond(k);
            excess = excess.max(if is_other { f64::INFINITY } else { element.excess(x, beyond) });
            far = far.max(if is_other { f64::INFINITY } else { element.excess(x, beyond.max(widest)) });
            if worst.distance() > 0.0 && worst.distance().is_finite() {
                differing += 1;
                if most.as_ref().is_none_or(|(used, _)| worst.used() > *used) {
                    most = Some((worst.used(), worst));
                }
            }
        }
        if excess > 1.0 {
            return Err(far);
        }
        let worst = most.map(|(_, worst)| worst);
        let (nan, reading) = (count_nan(actual), Reading::Exact);
        if dtype.is_float() {
            return Ok(Agreed { worst, stepped: None, nan, loose, is_steep: true, reading });
        }
        let stepped = worst.map(|farthest| Stepped { count: differing, of: actual.count(), farthest });
        Ok(Agreed { worst: None, stepped, nan, loose, is_steep: true, reading })
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::compare::Meaning;
    use crate::graph::{Builder, Graph, Tensor};
    use crate::ops::prim::Monoid;
    use crate::reference::{Limits, Reading};
    use crate::tensor::{DType, Literal, Shape};

    /// A graph of a row `x` with two outputs.
    fn of_row(dtype: DType, count: usize, draw: impl for<'b> Fn(Tensor<'b>) -> [Tensor<'b>; 2]) -> Graph {
        let b = Builder::new("row");
        let outputs = draw(b.input("x", dtype, Shape::new([1, count])));
        b.output("y", outputs[0]);
        b.output("z", outputs[1]);
        b.finish().unwrap()
    }

    fn meaning(graph: &Graph, values: &[f64]) -> Meaning {
        let dtype = graph.ty(graph.inputs()[0]).dtype;
        let x = Literal::from_f64s(dtype, [1, values.len()], values).unwrap();
        Meaning::of(graph, &[(Arc::from("x"), x)].into_iter().collect(), Limits::default()).unwrap()
    }

    fn takes(meaning: &Meaning, output: usize, values: &[f64]) -> bool {
        let ty = meaning.outputs()[output].ty();
        let sizes = meaning.outputs()[output].sizes().to_vec();
        let literal = match ty.dtype.is_float() {
            true => Literal::from_f64s(ty.dtype, sizes, values),
            false => Literal::from_ints(ty.dtype, sizes, &values.iter().map(|x| *x as i64).collect::<Vec<_>>()),
        };
        meaning.measure(output, &literal.unwrap()).is_ok()
    }

    /// The position of the first largest element of a row, and a row with one there.
    fn position_and_one_hot(row: Tensor<'_>) -> [Tensor<'_>; 2] {
        let (best, shape) = (row.reduce_keep(Monoid::ArgMax, &[1]), row.shape().unwrap());
        let places = row.builder().coordinate(1, &shape);
        [best, places.equal(best.expand(shape)).cast(DType::F32)]
    }

    fn one_hot(count: usize, place: usize) -> Vec<f64> {
        (0..count).map(|k| f64::from(u8::from(k == place))).collect()
    }

    /// A fifth of five equal numbers is one of them, unless it is a product with 1/5; what is left of it is nothing but that.
    #[test]
    fn what_is_largest_of_noise_is_left_to_chance() {
        let weights = [1.0, 2.0, 0.5, -1.0, 3.0];
        let graph = of_row(DType::F16, 5, |x| {
            let centred = x - x.sum(&[1]).reshape(Shape::new([1usize, 1])) / 5.0;
            let scale = (centred * centred).sum(&[1]).reshape(Shape::new([1usize, 1])).sqrt() + 1e-3;
            let weights = x.builder().constant(Literal::from_f64s(DType::F16, [1, 5], &weights).unwrap());
            position_and_one_hot(centred / scale * weights)
        });
        let noise = meaning(&graph, &[3.390625; 5]);
        assert_eq!(noise.outputs()[0].to_f64s(), [0.0]);
        for place in [0, 3, 4] {
            assert!(takes(&noise, 0, &[place as f64]) && takes(&noise, 1, &one_hot(5, place)), "{place}");
        }
        assert!(!takes(&noise, 1, &one_hot(5, 2)), "neither the largest nor the smallest weight");
        let clear = meaning(&graph, &[1.0, 2.0, 3.0, 4.0, 8.0]);
        assert!(takes(&clear, 0, &[4.0]) && !takes(&clear, 0, &[3.0]) && !takes(&clear, 1, &one_hot(5, 0)));
    }

    /// Equal quotients are equal as long as the same code computes them.
    #[test]
    fn the_end_of_a_row_may_be_computed_otherwise() {
        let graph = of_row(DType::F32, 100, |x| {
            let scale = (x * x).sum(&[1]).reshape(Shape::new([1usize, 1])).sqrt();
            position_and_one_hot(x / scale)
        });
        let noise = meaning(&graph, &[f64::from(0.553_637_9f32); 100]);
        for place in [0, 64] {
            assert!(takes(&noise, 0, &[place as f64]) && takes(&noise, 1, &one_hot(100, place)), "{place}");
        }
    }

    /// In which order numbers are summed up is not written: some leave the range of their type on the way, and others do not.
    #[test]
    fn sums_leave_the_range_of_their_type_in_some_orders() {
        let graph = of_row(DType::F32, 4, |x| [x.sum(&[1]), x]);
        let summed = |values: [f64; 4]| meaning(&graph, &values).or_read(&[Reading::Rounded, Reading::Held]).unwrap();
        let [inf, nan] = [f64::INFINITY, f64::NAN];
        let both = summed([3e38, 3e38, -3e38, -3e38]);
        for sum in [0.0, inf, -inf, nan] {
            assert!(takes(&both, 0, &[sum]), "{sum}");
        }
        assert!(!takes(&both, 0, &[1e38]));
        let above = summed([3e38, 3e38, -3e38, -1e37]);
        assert!(takes(&above, 0, &[inf]) && !takes(&above, 0, &[nan]));
        let inside = summed([1.5e38, 1.5e38, -1.5e38, -1.5e38]);
        assert!(takes(&inside, 0, &[0.0]) && !takes(&inside, 0, &[inf]) && !takes(&inside, 0, &[nan]));
        assert!(!takes(&meaning(&graph, &[3e38, 3e38, -3e38, -3e38]), 0, &[inf]), "exact arithmetic is asked for");
    }
}
