//! Functions of one number that have a name, known by their values: every spelling of GELU has the same ones.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};

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
pub(super) const POINTS: [f64; 12] = [-7.3, -3.1, -2.3, -1.7, -0.6, -0.1, 0.2, 0.9, 1.8, 2.4, 3.3, 7.7];

/// Constants of a model are rounded, those of half-precision models to three digits.
const TOLERANCE: f64 = 2e-3;

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn softplus(x: f64) -> f64 {
    x.exp().ln_1p()
}

/// The function that has these values at [`POINTS`], the nearest where several are near.
pub(super) fn name_of(values: &[f64; POINTS.len()]) -> Option<&'static str> {
    let error = |row: &Row| {
        let differences = POINTS.iter().zip(values).map(|(x, y)| ((row.1)(*x) - y).abs() / (1.0 + x.abs()));
        // A NaN is a difference.
        differences.fold(0.0, |worst: f64, d| if d <= worst { worst } else { d })
    };
    let near = TABLE.iter().map(|row| (error(row), row.0)).filter(|(error, _)| *error <= TOLERANCE);
    near.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_is_told_from_every_other() {
        for (name, function) in TABLE {
            assert_eq!(name_of(&POINTS.map(function)), Some(*name));
            assert_eq!(name_of(&POINTS.map(|x| function(x) * (1.0 + 5e-5))), Some(*name), "with rounded constants");
        }
        assert_eq!(name_of(&POINTS), None);
        assert_eq!(name_of(&POINTS.map(|x| x * x)), None);
        assert_eq!(name_of(&[f64::NAN; POINTS.len()]), None);
    }
}
