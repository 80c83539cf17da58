//! Functions of one number that have a name, known by their values: every spelling of GELU has the same ones.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};

use smallvec::SmallVec;

/// A function with its name.
type Row = (&'static str, fn(f64) -> f64);

/// What networks call activations. The identity is not among them, nor is what one operator of arithmetic gives.
const TABLE: &[Row] = &[
    ("GELU", |x| 0.5 * x * (1.0 + libm::erf(x * FRAC_1_SQRT_2))),
    // As ½ + ½ tanh(y) = sigmoid(2y): zero nowhere but at zero.
    ("GELU (tanh)", |x| x * sigmoid(2.0 * FRAC_2_PI.sqrt() * (x + 0.044715 * x * x * x))),
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
const POINTS: [f64; 14] = [-7.3, -3.1, -2.3, -1.7, -0.6, -0.1, -1e-3, 1e-3, 0.2, 0.9, 1.8, 2.4, 3.3, 7.7];

/// Constants of a model are rounded: √(2/π) is 0.797 in bf16. The two forms of GELU lie as near to each other as that, and 0.8 is another
/// function.
const TOLERANCE: f64 = 1.6e-4;

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
            let expected = (row.1)(x);
            let error = (expected - y).abs() / (1.0 + x.abs().max(expected.abs()));
            *worst = worst.max(error);
            // A NaN is a difference. What cuts off gives zeros, however near to them others come.
            error <= TOLERANCE && (expected != 0.0 || y == 0.0)
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
    fn functions_with_other_constants_are_others() {
        let gelu = |c: f64, k: f64| move |x: f64| 0.5 * x * (1.0 + (c * (x + k * x * x * x)).tanh());
        for (c, k) in [(0.7978845608, 0.044715), (0.79788, 0.0447), (0.796875, 0.044677734375)] {
            assert_eq!(name_of(gelu(c, k)), Some("GELU (tanh)"), "{c} {k}");
        }
        for (c, k) in [(0.8, 0.044715), (0.8, 0.05), (0.7978845608, 0.04)] {
            assert_eq!(name_of(gelu(c, k)), None, "{c} {k}");
        }
        let erf = |s: f64| move |x: f64| 0.5 * x * (1.0 + libm::erf(x * s));
        // As files have it: four and nine digits, and rounded to f16.
        let root = FRAC_1_SQRT_2;
        let digits = |scale: f64| (root * scale).round() / scale;
        assert_eq!([digits(1e4), digits(1e9), 0.70703125].map(|s| name_of(erf(s))), [Some("GELU"); 3]);
        assert_eq!([0.7, 0.71].map(|s| name_of(erf(s))), [None; 2]);
        assert_eq!(name_of(|x| if x < 0.1 { 0.0 } else { x }), None);
        assert_eq!(name_of(|x| x.max(1e-9)), None);
        assert_eq!(name_of(|x| if x > 0.0 { x } else { 1e-4 * x }), None);
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
