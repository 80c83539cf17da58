//! How the elements of a tensor spread.

use super::Literal;

/// What the elements of a tensor are like, all read as floats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// smallest, mean and largest of what is a number; none where nothing is
    pub range: Option<(f64, f64, f64)>,
    /// how many are NaN
    pub nans: usize,
    /// how many are infinite
    pub infinities: usize,
}

impl Literal {
    /// How the elements spread, found in one pass.
    pub fn spread(&self) -> Spread {
        let (mut low, mut high, mut sum) = (f64::INFINITY, f64::NEG_INFINITY, 0.0);
        let (mut nans, mut infinities) = (0, 0);
        let mut part = [0.0; 1024];
        for start in (0..self.count()).step_by(part.len()) {
            let part = &mut part[..(self.count() - start).min(1024)];
            self.read_f64s(start, part);
            for &x in &*part {
                if x.is_nan() {
                    nans += 1;
                    continue;
                }
                infinities += usize::from(x.is_infinite());
                (low, high, sum) = (low.min(x), high.max(x), sum + x);
            }
        }
        let numbers = self.count() - nans;
        let range = (numbers > 0).then(|| (low, sum / numbers as f64, high));
        Spread { range, nans, infinities }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    #[test]
    fn a_spread_looks_past_nan() {
        let spread = Literal::f32s(&[1.0, f32::NAN, 3.0]).spread();
        assert_eq!((spread.range, spread.nans, spread.infinities), (Some((1.0, 2.0, 3.0)), 1, 0));
        assert_eq!(Literal::f32s(&[]).spread().range, None);
        assert_eq!(Literal::f32s(&[f32::NAN]).spread().range, None);
        let infinite = Literal::f32s(&[f32::NEG_INFINITY, 3.0]).spread();
        assert_eq!((infinite.range.unwrap().0, infinite.infinities), (f64::NEG_INFINITY, 1));
        // More than is read at once.
        let many = Literal::from_ints(DType::I16, [3000], &(0..3000).collect::<Vec<_>>()).unwrap().spread();
        assert_eq!(many.range, Some((0.0, 1499.5, 2999.0)));
    }
}
