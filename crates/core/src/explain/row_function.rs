//! Functions of a row that have a name, known by their values: normalisations, with their constants.

use super::sample::{FACTOR, LANES, Row};

/// Rows on which norms are tried: the first two are as small as what they are kept from dividing by allows, beside the last two it is nothing.
pub(super) const NORM_ROWS: [Row; 4] =
    [[3.1, 1.7, 2.2, 4.6], [-0.4, 2.5, 0.9, -1.3], [930.0, 510.0, 660.0, 1380.0], [-360.0, 750.0, 210.0, -1020.0]];

/// Rows on which exponentials are tried.
pub(super) const SOFTMAX_ROWS: [Row; 3] = [[0.3, -1.2, 1.9, 0.8], [2.1, -0.5, 0.0, 1.4], [-1.1, -2.6, -0.7, -3.0]];

/// Constants of a model are rounded; those of half-precision models to three digits.
const TOLERANCE: f64 = 2e-3;

/// What keeps norms from dividing by nothing shows in small rows, up to this part of them.
pub(super) const LEAST_KEPT: f64 = 6e-3;

/// As [`LEAST_KEPT`], for norms whose name says that it is not where it is used to be.
pub(super) const MOST_KEPT: f64 = 0.2;

/// A norm of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Norm {
    /// differences from the mean, by their standard deviation
    Centred,
    /// the numbers themselves, by the root of the mean of their squares
    Rms,
}

impl Norm {
    fn of(self, row: &Row) -> Row {
        let mean = |row: &Row| row.iter().sum::<f64>() / LANES as f64;
        let shift = if self == Norm::Centred { mean(row) } else { 0.0 };
        let squares = row.map(|x| (x - shift) * (x - shift));
        let root = mean(&squares).sqrt();
        row.map(|x| (x - shift) / root)
    }

    /// The factor `a`, if values for [`NORM_ROWS`] are `a` times these norms of them plus a number; also if they are such a multiple of what a
    /// contraction along the row makes of the norm. Small rows may be so much smaller.
    pub fn factor(self, values: &[Row; 4], kept: f64) -> Option<f64> {
        let norms = NORM_ROWS.map(|row| self.of(&row));
        let contracted = norms.map(|norm| [norm.iter().zip(FACTOR).map(|(x, factor)| x * factor).sum(); LANES]);
        if values.iter().flatten().any(|y| !y.is_finite()) {
            return None;
        }
        let by_row = values.iter().all(|row| row.iter().all(|y| *y == row[0]));
        let targets = if by_row { contracted } else { norms };
        // Through the least and the most of large rows.
        let pairs = || values[2..].iter().flatten().zip(targets[2..].iter().flatten());
        let (low, high) = (pairs().min_by(|p, q| p.1.total_cmp(q.1))?, pairs().max_by(|p, q| p.1.total_cmp(q.1))?);
        let factor = (high.0 - low.0) / (high.1 - low.1);
        let shift = low.0 - factor * low.1;
        let fits = |(k, (row, target)): (usize, (&Row, &Row))| {
            let most = factor.abs() * if k < 2 { kept } else { TOLERANCE };
            row.iter().zip(target).all(|(y, x)| (y - factor * x - shift).abs() <= most)
        };
        let all = values.iter().zip(&targets).enumerate().all(fits);
        (all && factor.is_finite() && factor != 0.0).then_some(factor)
    }

    /// Whether a root for the first of the large rows, or one over it, is that of the sum of so many squares, and not of their mean.
    pub fn is_by_sum(self, root: f64, length: f64) -> bool {
        let (row, norm) = (&NORM_ROWS[2], self.of(&NORM_ROWS[2]));
        let wanted = (row[0] - row[1]) / (norm[0] - norm[1]) * length.sqrt();
        is_near(root / wanted, 1.0) || is_near(root * wanted, 1.0)
    }
}

/// Whether two numbers are the same but for rounded constants; of either sign.
pub(super) fn is_near(a: f64, b: f64) -> bool {
    (a.abs() - b).abs() <= TOLERANCE * b
}

/// What exponentials of a row are divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exponentials {
    /// their sum
    Softmax,
    /// the sum of those of a multiple of the row
    ScaledSoftmax,
    /// one more than their sum: as if there were one more score, zero
    SoftmaxOne,
    /// more than their sum, otherwise
    MoreThanSum,
    /// the logarithms of a softmax
    LogSoftmax,
    /// the logarithm of their sum, and nothing divided by it
    LogSum,
}

impl Exponentials {
    /// What values for [`SOFTMAX_ROWS`] are, where a row has so many numbers.
    pub fn of(values: &[Row; 3], length: f64) -> Option<Exponentials> {
        if values.iter().flatten().any(|y| !y.is_finite()) {
            return None;
        }
        let each = length / LANES as f64;
        let sum = |row: &Row| each * row.iter().map(|x| x.exp()).sum::<f64>();
        if values.iter().all(|row| row.iter().all(|y| *y == row[0])) {
            return Exponentials::of_whole_rows(values, each);
        }
        if let Some(factor) = steepness(values)
            && values.iter().all(|row| (sum(row) - 1.0).abs() <= TOLERANCE)
        {
            return ((factor - 1.0).abs() <= TOLERANCE).then_some(Exponentials::LogSoftmax);
        }
        if values.iter().flatten().any(|y| *y <= 0.0) {
            return None;
        }
        let factor = steepness(&values.map(|row| row.map(f64::ln)))?;
        let shares = values.map(|row| each * row.iter().sum::<f64>());
        let with_one = SOFTMAX_ROWS.map(|row| sum(&row.map(|x| factor * x))).map(|sum| sum / (1.0 + sum));
        let near = |wanted: [f64; 3]| shares.iter().zip(wanted).all(|(share, x)| (share - x).abs() <= TOLERANCE);
        match (factor - 1.0).abs() <= TOLERANCE {
            true if near([1.0; 3]) => Some(Exponentials::Softmax),
            false if near([1.0; 3]) => Some(Exponentials::ScaledSoftmax),
            true if near(with_one) => Some(Exponentials::SoftmaxOne),
            _ if shares.iter().all(|share| *share < 1.0) && shares[0] != shares[1] => Some(Exponentials::MoreThanSum),
            _ => None,
        }
    }

    /// As [`Exponentials::of`], for one number of each row.
    fn of_whole_rows(values: &[Row; 3], each: f64) -> Option<Exponentials> {
        let sums = SOFTMAX_ROWS.map(|row| row.iter().map(|x| x.exp()).sum::<f64>());
        let product = |row: &Row| row.iter().zip(FACTOR).map(|(x, factor)| x.exp() * factor).sum::<f64>() * each;
        let near = |wanted: [f64; 3]| values.iter().zip(wanted).all(|(y, x)| (y[0] - x).abs() <= TOLERANCE * x.abs());
        let divided = |more: f64| std::array::from_fn(|k| product(&SOFTMAX_ROWS[k]) / (each * sums[k] + more));
        match () {
            () if near(sums.map(|sum| (each * sum).ln())) => Some(Exponentials::LogSum),
            () if near(divided(0.0)) => Some(Exponentials::Softmax),
            () if near(divided(1.0)) => Some(Exponentials::SoftmaxOne),
            () => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Exponentials::Softmax => "Softmax",
            Exponentials::ScaledSoftmax => "Softmax (scaled)",
            Exponentials::SoftmaxOne => "Softmax1",
            Exponentials::MoreThanSum => "Softmax (more in its sum)",
            Exponentials::LogSoftmax => "LogSoftmax",
            Exponentials::LogSum => "LogSumExp",
        }
    }
}

/// The number `c`, if values for [`SOFTMAX_ROWS`] differ within each row by `c` times what the row does.
fn steepness(values: &[Row; 3]) -> Option<f64> {
    let [x, y] = [&SOFTMAX_ROWS[0], &values[0]];
    let factor = (y[2] - y[1]) / (x[2] - x[1]);
    let fits = |(x, y): (&Row, &Row)| {
        (1..LANES).all(|k| (y[k] - y[0] - factor * (x[k] - x[0])).abs() <= TOLERANCE * factor.abs())
    };
    let all = SOFTMAX_ROWS.iter().zip(values).all(fits);
    (all && factor.is_finite() && factor != 0.0).then_some(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn norm(of: impl Fn(Row) -> Row) -> [Option<f64>; 2] {
        let values = NORM_ROWS.map(of);
        [Norm::Centred, Norm::Rms]
            .map(|norm| norm.factor(&values, LEAST_KEPT).map(|factor| (factor * 1e3).round() / 1e3))
    }

    fn mean(row: &Row) -> f64 {
        row.iter().sum::<f64>() / LANES as f64
    }

    #[test]
    fn norms_are_told_by_their_constants() {
        let normed = |shift: f64, eps: f64| {
            norm(|row| {
                let d = row.map(|x| x - shift * mean(&row));
                let root = (mean(&d.map(|x| x * x)) + eps).sqrt();
                d.map(|x| 2.0 * x / root + 0.3)
            })
        };
        assert_eq!(normed(1.0, 1e-5), [Some(2.0), None]);
        assert_eq!(normed(0.9, 1e-5), [None, None]);
        assert_eq!(normed(0.0, 1e-3), [None, Some(2.0)]);
        assert_eq!(normed(0.0, 3.0), [None, None]);
        assert_eq!(normed(0.0, -0.1), [None, None]);
        assert_eq!(norm(|row| row), [None, None]);
        assert_eq!(norm(|_| [1.0; LANES]), [None, None]);
    }

    #[test]
    fn softmax_is_told_by_what_it_divides_by() {
        let told = |steep: f64, more: f64, at: fn(f64) -> f64| {
            let values = SOFTMAX_ROWS.map(|row| {
                let e = row.map(|x| (steep * x).exp());
                let most = row.iter().fold(f64::NEG_INFINITY, |most, x| most.max(*x));
                let sum = 16.0 * e.iter().sum::<f64>() + more * at(most);
                e.map(|e| e / sum)
            });
            Exponentials::of(&values, 64.0)
        };
        assert_eq!(told(1.0, 0.0, |_| 1.0), Some(Exponentials::Softmax));
        assert_eq!(told(2.0, 0.0, |_| 1.0), Some(Exponentials::ScaledSoftmax));
        assert_eq!(told(1.0, 1.0, |_| 1.0), Some(Exponentials::SoftmaxOne));
        assert_eq!(told(1.0, 5.0, f64::exp), Some(Exponentials::MoreThanSum));
        let logarithms = SOFTMAX_ROWS.map(|row| row.map(|x| x - row.map(f64::exp).iter().sum::<f64>().ln()));
        assert_eq!(Exponentials::of(&logarithms, 4.0), Some(Exponentials::LogSoftmax));
        assert_eq!(Exponentials::of(&SOFTMAX_ROWS, 4.0), None);
    }
}
