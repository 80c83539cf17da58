//! Elements that are drawn instead of stored.

use std::hash::{Hash, Hasher};

use super::DType;
use crate::error::{Error, Result};
use crate::philox;

/// Elements drawn uniformly between two bounds. Each is a function of the seed and of its row-major index alone, so that
/// any of them can be made at any time, in any order, the same on every machine.
///
/// With `u` the index's word of [`philox`] (stream 0) divided by 2³², an element of a float type is
/// `low + (high - low)·u` rounded to the type, and one of an integer type is the whole number
/// `⌊low + (high - low + 1)·u⌋`, where both bounds can occur; both computed in f64.
#[derive(Clone, Copy, Debug)]
pub struct Seeded {
    /// tells draws apart
    pub seed: u64,
    /// no element is below
    pub low: f64,
    /// no element is above
    pub high: f64,
}

impl Seeded {
    /// Refuses bounds that are not numbers of the type or stand in the wrong order.
    pub(super) fn check(&self, dtype: DType) -> Result<()> {
        let fits = |x: f64| {
            if dtype.is_float() {
                return dtype.round(x).is_finite();
            }
            x == x.trunc() && dtype.wrap(x as i128) == x as i128
        };
        let Seeded { low, high, .. } = *self;
        if let Some(x) = [low, high].into_iter().find(|x| !x.is_finite() || !fits(*x)) {
            return Err(Error::invalid(format!("seeded elements of type {dtype} cannot have the bound {x:?}")));
        }
        if low > high || !(high - low).is_finite() {
            return Err(Error::invalid(format!("seeded elements from {low:?} to {high:?}")));
        }
        Ok(())
    }

    /// Whether all elements are equal because the bounds are; a draw of equal elements by chance does not count.
    pub(super) fn is_splat(&self, dtype: DType) -> bool {
        if dtype.is_float() {
            return dtype.to_bits(self.low) == dtype.to_bits(self.high);
        }
        self.low == self.high
    }

    /// The elements from index `start` on, numbers of the type.
    pub(super) fn elements(&self, dtype: DType, start: usize) -> impl Iterator<Item = f64> {
        let Seeded { seed, low, high } = *self;
        philox::words(seed, 0, start as u64).map(move |word| {
            let u = f64::from(word) / (1u64 << 32) as f64;
            if dtype.is_float() {
                return dtype.round(low + (high - low) * u);
            }
            // Beyond 2^53 the sum rounds, and may round up.
            (low + (high - low + 1.0) * u).floor().min(high)
        })
    }

    /// The bits that store the elements from index `start` on.
    pub(super) fn bits(&self, dtype: DType, start: usize) -> impl Iterator<Item = u64> {
        let stored = move |x: f64| if dtype.is_float() { dtype.to_bits(x) } else { dtype.wrap(x as i128) as u64 };
        self.elements(dtype, start).map(stored)
    }

    fn key(&self) -> (u64, u64, u64) {
        (self.seed, self.low.to_bits(), self.high.to_bits())
    }
}

impl PartialEq for Seeded {
    fn eq(&self, other: &Seeded) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Seeded {}

impl Hash for Seeded {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(dtype: DType, seed: u64, low: f64, high: f64, count: usize) -> Vec<f64> {
        Seeded { seed, low, high }.elements(dtype, 0).take(count).collect()
    }

    /// The first words of Philox-4x32-10 under key 0 are published with the Random123 library: 6627e8d5 e169c58d bc57ac4c.
    #[test]
    fn elements_are_words_of_philox_between_the_bounds() {
        let u = [0x6627_e8d5_u32, 0xe169_c58d, 0xbc57_ac4c].map(|word| f64::from(word) / 4_294_967_296.0);
        assert_eq!(drawn(DType::F64, 0, 0.0, 1.0, 3), u);
        assert_eq!(drawn(DType::F64, 0, -2.0, 6.0, 3), u.map(|u| 8.0 * u - 2.0));
        assert_eq!(drawn(DType::F32, 0, 0.0, 1.0, 3), u.map(|u| f64::from(u as f32)));
        assert_eq!(drawn(DType::I8, 0, -3.0, 6.0, 3), u.map(|u| (10.0 * u).floor() - 3.0));
        let later: Vec<f64> = Seeded { seed: 0, low: 0.0, high: 1.0 }.elements(DType::F64, 2).take(1).collect();
        assert_eq!(later, [u[2]]);
    }

    #[test]
    fn every_type_draws_its_own_numbers_from_bound_to_bound() {
        for &dtype in DType::ALL {
            let values = drawn(dtype, 7, 0.25_f64.max(f64::from(u8::from(!dtype.is_float()))), 1.0, 2000);
            let back: Vec<f64> = values.iter().map(|x| dtype.round(*x)).collect();
            assert_eq!(values, back, "{dtype}");
            assert!(values.iter().all(|x| (0.25..=1.0).contains(x)), "{dtype}");
        }
        for dtype in [DType::I4, DType::U2, DType::Bool, DType::I64] {
            let values = drawn(dtype, 7, 0.0, 1.0, 64);
            assert!(values.contains(&0.0) && values.contains(&1.0) && values.iter().all(|x| *x == 0.0 || *x == 1.0));
        }
        let mean = drawn(DType::F32, 3, -1.0, 3.0, 10_000).iter().sum::<f64>() / 10_000.0;
        assert!((mean - 1.0).abs() < 0.05, "{mean}");
    }

    #[test]
    fn bounds_must_be_numbers_of_the_type() {
        let check = |dtype, low, high| Seeded { seed: 1, low, high }.check(dtype).is_ok();
        assert!(check(DType::F32, -1.5, 2.0) && check(DType::I8, -128.0, 127.0) && check(DType::F16, 3.0, 3.0));
        assert!(!check(DType::F32, 1.0, 0.0) && !check(DType::F32, f64::NAN, 0.0) && !check(DType::F32, 0.0, 1e39));
        assert!(!check(DType::I8, 0.0, 128.0) && !check(DType::I8, 0.5, 1.0) && !check(DType::Bool, 0.0, 2.0));
        assert!(!check(DType::F64, f64::MIN, f64::MAX) && !check(DType::I64, 0.0, 9.3e18));
        assert!(check(DType::U64, 0.0, 1.8e19));
    }
}
