//! Fractions: how far a scale stretches, and where a coordinate falls between two elements.

use crate::graph::{Builder, Tensor};
use crate::tensor::{DType, Symbol};
use crate::tensor::{Dim, Shape};

/// A fraction of integer expressions; the denominator is positive.
#[derive(Clone, Debug)]
pub(super) struct Ratio {
    pub over: Dim,
    pub under: Dim,
}

impl Ratio {
    /// A fraction in lowest terms, as far as they show.
    pub fn new(over: Dim, under: Dim) -> Ratio {
        if let (Some(a), Some(b)) = (over.as_int(), under.as_int()) {
            let divisor = gcd(a, b).max(1);
            return Ratio { over: Dim::int(a / divisor), under: Dim::int(b / divisor) };
        }
        let times = over.floordiv(&under);
        if &times * &under == over {
            return Ratio { over: times, under: Dim::int(1) };
        }
        let times = under.floordiv(&over);
        if &times * &over == under {
            return Ratio { over: Dim::int(1), under: times };
        }
        Ratio { over, under }
    }

    /// A simple fraction that a positive single-precision number stands for: 0.7 is 7/10, although no float is. `None` for
    /// numbers that are no sensible scale.
    pub fn of_float(x: f64) -> Option<Ratio> {
        let single = x as f32;
        if !(1e-6..=1e6).contains(&single) {
            return None;
        }
        // The convergents of the continued fraction, until one rounds to the number.
        let (mut a, mut b, mut c, mut d) = (0i64, 1i64, 1i64, 0i64);
        let mut rest = f64::from(single);
        for _ in 0..64 {
            let whole = rest.floor();
            (a, c) = (c, whole as i64 * c + a);
            (b, d) = (d, whole as i64 * d + b);
            if (c as f64 / d as f64) as f32 == single {
                break;
            }
            rest = (rest - whole).recip();
        }
        Some(Ratio { over: Dim::int(c), under: Dim::int(d) })
    }

    /// Whether the fraction is one.
    pub fn is_one(&self) -> bool {
        self.over == self.under
    }

    /// The largest integer that is not above.
    pub fn floor(&self) -> Dim {
        self.over.floordiv(&self.under)
    }

    /// The smallest integer that is not below.
    pub fn ceil(&self) -> Dim {
        (&self.over + &self.under - 1).floordiv(&self.under)
    }

    /// The fraction and a half.
    pub fn plus_half(&self) -> Ratio {
        Ratio { over: &self.over * 2 + &self.under, under: &self.under * 2 }
    }

    /// The fraction less a half.
    pub fn minus_half(&self) -> Ratio {
        Ratio { over: &self.over * 2 - &self.under, under: &self.under * 2 }
    }

    /// What is above the floor, in `0..1`, at the coordinates of a shape.
    pub fn fraction<'b>(&self, builder: &'b Builder, shape: &Shape, dtype: DType) -> Tensor<'b> {
        let part = builder.index(&self.over.modulo(&self.under), shape).cast(dtype);
        part / builder.size(&self.under).cast(dtype)
    }
}

/// The expression over axis 0, said of another axis.
pub(super) fn along(dim: &Dim, axis: usize) -> Dim {
    dim.substitute(&|s| matches!(s, Symbol::Axis(0)).then(|| Dim::axis(axis)))
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.abs() } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_stand_for_simple_fractions() {
        for (x, over, under) in [(2.0, 2, 1), (0.5, 1, 2), (0.7, 7, 10), (0.6, 3, 5), (1.0 / 3.0, 1, 3), (2.4, 12, 5)] {
            let ratio = Ratio::of_float(f64::from(x as f32)).unwrap();
            assert_eq!((ratio.over, ratio.under), (Dim::int(over), Dim::int(under)), "{x}");
        }
        assert!(Ratio::of_float(0.0).is_none() && Ratio::of_float(f64::NAN).is_none());
    }
}
