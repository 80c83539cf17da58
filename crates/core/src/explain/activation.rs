//! Functions of one number that have a name, known by their values: every spelling of GELU has the same ones.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};

use smallvec::SmallVec;

/// A function with its name.
type Row = (&'static str, fn(f64) -> f64);

/// What networks call activations. The identity is not among them, nor is what one operator of arithmetic gives.
const TABLE: &[Row] = &[
    ("GELU", |x| 0.5 * x * (1.0 + libm::erf(x * FRAC_1_SQRT_2))),
    ("GELU (tanh)", |x| 0.5 * x * (1.0 + (FRAC_2_PI.sqrt() * (x + 0.044715 * x * x * x)).tanh())),
    ("GELU (sigmoid)", |x| x * sigmoid(1.702 * x)),
    ("SiLU", |x| x * sigmoid(x)),
    ("Sigmoid", sigmoid),
    ("Mish", |x| x * softplus(x).tanh()),
    ("Softplus", softplus),
    ("ReLU", |x| x.max(0.0)),
    ("ReLU6", |x| x.clamp(0.0, 6.0)),
    ("ReLU²", |x| x.max(0.0) * x.max(0.0)),
    ("HardSwish", |x| x * (x + 3.0).clamp(0.0, 6.0) / 6.0),
    ("HardSigmoid", |x| (x + 3.0).clamp(0.0, 6.0) / 6.0),
    ("HardSigmoid", |x| (0.2 * x + 0.5).clamp(0.0, 1.0)),
    ("ELU", |x| if x > 0.0 { x } else { x.exp_m1() }),
    ("SELU", |x| 1.050_700_987_355_480_5 * if x > 0.0 { x } else { 1.673_263_242_354_377_2 * x.exp_m1() }),
    ("Softsign", |x| x / (1.0 + x.abs())),
];

/// Where functions are compared.
const POINTS: [f64; 12] = [-7.3, -3.1, -2.3, -1.7, -0.6, -0.1, 0.2, 0.9, 1.8, 2.4, 3.3, 7.7];

/// Constants of a model are rounded, those of half-precision models to three digits.
const TOLERANCE: f64 = 2e-3;

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn softplus(x: f64) -> f64 {
    x.exp().ln_1p()
}

/// The function that has the values of `function` at [`POINTS`], the nearest where several are near. The function is asked point by point, for as long
/// as it could be one: most are none, and the first values tell.
pub(super) fn name_of(function: impl Fn(f64) -> f64) -> Option<&'static str> {
    let mut near: SmallVec<[(f64, &Row); TABLE.len()]> = TABLE.iter().map(|row| (0.0, row)).collect();
    for x in POINTS {
        let y = function(x);
        near.retain(|(worst, row)| {
            let error = ((row.1)(x) - y).abs() / (1.0 + x.abs());
            *worst = worst.max(error);
            // A NaN is a difference.
            error <= TOLERANCE
        });
        if near.is_empty() {
            return None;
        }
    }
    near.into_iter().min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, row)| row.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_is_told_from_every_other() {
        for (name, function) in TABLE {
            assert_eq!(name_of(function), Some(*name));
            assert_eq!(name_of(|x| function(x) * (1.0 + 5e-5)), Some(*name), "with rounded constants");
        }
        assert_eq!(name_of(|x| x), None);
        assert_eq!(name_of(|x| x * x), None);
        assert_eq!(name_of(|_| f64::NAN), None);
        assert_eq!(name_of(|x| if x > 7.0 { f64::NAN } else { x.max(0.0) }), None);
    }

    #[test]
    fn what_is_no_activation_is_asked_for_few_values() {
        let asked = std::cell::Cell::new(0);
        let cosine = |x: f64| {
            asked.set(asked.get() + 1);
            2.0 + x.cos()
        };
        assert_eq!(name_of(cosine), None);
        assert_eq!(asked.get(), 1);
    }
}
