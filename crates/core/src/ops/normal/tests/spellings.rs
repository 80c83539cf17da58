#![expect(clippy::approx_constant, reason = "these are the constants that exporters write")]

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, SQRT_2};

use super::*;

const SQRT_2_PI: f64 = FRAC_1_SQRT_2 * FRAC_2_SQRT_PI;

/// All spellings of a family are one term, which computes what they compute.
fn check(args: usize, family: &[Body]) -> Expr {
    check_in(&[DType::F64, DType::F32, DType::F16], args, family)
}

fn check_in(dtypes: &[DType], args: usize, family: &[Body]) -> Expr {
    for dtype in dtypes.iter().copied() {
        for numerics in [Numerics::Default, Numerics::Fast] {
            let first = normal(&built(dtype, args, family[0]), numerics);
            for (k, body) in family.iter().enumerate() {
                let spelled = built(dtype, args, *body);
                let form = normal(&spelled, numerics);
                assert_eq!(form, first, "spelling {k} in {dtype}:\n  {}\n  {}", text(&form), text(&first));
                for at in 0..20 {
                    let values: Vec<f64> =
                        (0..args).map(|k| 0.1 + (1.7 * (at + 3 * k) as f64).sin().abs() * 3.0).collect();
                    let (expected, found) = (spelled.eval_f64(&values), form.eval_f64(&values));
                    let tolerance = 40.0 * dtype.epsilon() * expected.abs().max(0.1);
                    assert!(
                        expected == found || (expected - found).abs() <= tolerance,
                        "{} at {values:?}: {found} is not {expected}",
                        text(&form)
                    );
                }
            }
        }
    }
    normal(&built(DType::F32, args, family[0]), Numerics::Default)
}

/// The forms of formulas that are not the same differ.
fn check_different(args: usize, a: Body, b: Body) {
    let form = |body: Body| normal(&built(DType::F32, args, body), Numerics::Default);
    assert_ne!(form(a), form(b), "{}", text(&form(a)));
}

#[test]
fn gelu_by_the_error_function() {
    // Constants of eleven digits are no f64.
    let form = check_in(
        &[DType::F32, DType::F16, DType::BF16],
        1,
        &[
            |s, x| c(x[0], 0.5, s) * x[0] * (c(x[0], 1.0, s) + (x[0] / c(x[0], SQRT_2, s)).apply(Scalar::Erf)),
            |s, x| x[0] * c(x[0], 0.5, s) * ((x[0] * c(x[0], 0.70710678, s)).apply(Scalar::Erf) + c(x[0], 1.0, s)),
            |s, x| (x[0] * c(x[0], 0.5, s)) * (c(x[0], 1.0, s) + (x[0] / c(x[0], 1.4142135, s)).apply(Scalar::Erf)),
            |s, x| x[0] * (((x[0] / c(x[0], 1.41421356237, s)).apply(Scalar::Erf) + c(x[0], 1.0, s)) * c(x[0], 0.5, s)),
            |s, x| x[0] * ((x[0] / c(x[0], SQRT_2, s)).apply(Scalar::Erf) + c(x[0], 1.0, s)) / c(x[0], 2.0, s),
            |s, x| {
                let half = c(x[0], 0.5, s);
                x[0] * (half + half * (x[0] * c(x[0], FRAC_1_SQRT_2, s)).apply(Scalar::Erf))
            },
            |s, x| {
                let half = c(x[0], 0.5, s) * x[0];
                half + half * (x[0] / c(x[0], 2.0, s).apply(Scalar::Sqrt)).apply(Scalar::Erf)
            },
            |s, x| {
                let half = -x[0] * c(x[0], 0.5, s);
                half * ((-x[0] / c(x[0], SQRT_2, s)).apply(Scalar::Erf) - c(x[0], 1.0, s))
            },
        ],
    );
    assert_eq!(text(&form), "((a0 * 0.5) * (erf((a0 * 0.7071067690849304)) + 1.0))");
}

#[test]
fn gelu_by_the_hyperbolic_tangent() {
    check_in(
        &[DType::F32, DType::F16, DType::BF16],
        1,
        &[
            |s, x| {
                let cube = x[0].pow(c(x[0], 3.0, s));
                let inner = c(x[0], SQRT_2_PI, s) * (x[0] + c(x[0], 0.044715, s) * cube);
                c(x[0], 0.5, s) * x[0] * (c(x[0], 1.0, s) + inner.apply(Scalar::Tanh))
            },
            |s, x| {
                let inner = (x[0] + x[0] * x[0] * x[0] * c(x[0], 0.044715, s)) * c(x[0], 0.7978845608, s);
                x[0] * c(x[0], 0.5, s) * (inner.apply(Scalar::Tanh) + c(x[0], 1.0, s))
            },
            |s, x| {
                let inner = c(x[0], 1.0, s) + c(x[0], 0.044715, s) * x[0] * x[0];
                let inner = x[0] * c(x[0], SQRT_2_PI, s) * inner;
                c(x[0], 0.5, s) * (x[0] * (c(x[0], 1.0, s) + inner.apply(Scalar::Tanh)))
            },
            |s, x| {
                let inner = x[0] * (x[0] * (x[0] * c(x[0], 0.044715, s)) + c(x[0], 1.0, s));
                let inner = inner * (c(x[0], 2.0, s) / c(x[0], std::f64::consts::PI, s)).apply(Scalar::Sqrt);
                x[0] * (c(x[0], 0.5, s) + c(x[0], 0.5, s) * inner.apply(Scalar::Tanh))
            },
        ],
    );
}

#[test]
fn gelu_of_a_sum_is_a_polynomial_of_the_sum() {
    check(
        2,
        &[
            |s, x| {
                let y = x[0] + x[1];
                let inner = (y + c(y, 0.044715, s) * y * y * y) * c(y, SQRT_2_PI, s);
                y * c(y, 0.5, s) * (inner.apply(Scalar::Tanh) + c(y, 1.0, s))
            },
            |s, x| {
                let y = x[1] + x[0];
                let inner = y * (c(y, 1.0, s) + c(y, 0.044715, s) * (y * y)) * c(y, SQRT_2_PI, s);
                c(y, 0.5, s) * (y + y * inner.apply(Scalar::Tanh))
            },
        ],
    );
}

#[test]
fn quick_gelu_and_silu() {
    check(
        1,
        &[
            |s, x| x[0] * (x[0] * c(x[0], 1.702, s)).apply(Scalar::Sigmoid),
            |s, x| x[0] / (c(x[0], 1.0, s) + (x[0] * c(x[0], -1.702, s)).apply(Scalar::Exp)),
        ],
    );
    check(
        2,
        &[
            |_, x| x[0] * x[0].apply(Scalar::Sigmoid) * x[1],
            |s, x| x[1] * (x[0] / (c(x[0], 1.0, s) + (-x[0]).apply(Scalar::Exp))),
            |s, x| (x[0] * x[1]) * (c(x[0], 1.0, s) / ((-x[0]).apply(Scalar::Exp) + c(x[0], 1.0, s))),
            |s, x| x[1] * x[0] * x[0].apply(Scalar::Exp) / (c(x[0], 1.0, s) + x[0].apply(Scalar::Exp)),
            |s, x| x[1] * x[0] / (c(x[0], 1.0, s) + c(x[0], 1.0, s) / x[0].apply(Scalar::Exp)),
        ],
    );
}

#[test]
fn softplus_and_mish() {
    let softplus: [Body; 3] = [
        |s, x| (c(x[0], 1.0, s) + x[0].apply(Scalar::Exp)).apply(Scalar::Log),
        |_, x| x[0].apply(Scalar::Exp).apply(Scalar::Log1p),
        |s, x| {
            let zero = c(x[0], 0.0, s);
            Term::call(Scalar::Max, &[zero, x[0]]) + (-x[0].apply(Scalar::Abs)).apply(Scalar::Exp).apply(Scalar::Log1p)
        },
    ];
    check(1, &softplus);
    check(
        1,
        &[
            |s, x| x[0] * (c(x[0], 1.0, s) + x[0].apply(Scalar::Exp)).apply(Scalar::Log).apply(Scalar::Tanh),
            |_, x| x[0].apply(Scalar::Exp).apply(Scalar::Log1p).apply(Scalar::Tanh) * x[0],
        ],
    );
}

#[test]
fn hard_swish_and_clips() {
    fn clip<'s>(x: Term<'s>, low: Term<'s>, high: Term<'s>) -> Term<'s> {
        Term::call(Scalar::Max, &[Term::call(Scalar::Min, &[x, high]), low])
    }
    check(
        1,
        &[
            |s, x| x[0] * clip(x[0] + c(x[0], 3.0, s), c(x[0], 0.0, s), c(x[0], 6.0, s)) / c(x[0], 6.0, s),
            |s, x| {
                let raised = Term::call(Scalar::Max, &[c(x[0], 3.0, s) + x[0], c(x[0], 0.0, s)]);
                c(x[0], 1.0 / 6.0, s) * Term::call(Scalar::Min, &[raised, c(x[0], 6.0, s)]) * x[0]
            },
            |s, x| {
                let inner = x[0] * c(x[0], 1.0 / 6.0, s) + c(x[0], 0.5, s);
                x[0] * clip(inner, c(x[0], 0.0, s), c(x[0], 1.0, s))
            },
        ],
    );
    check(
        1,
        &[
            |s, x| Term::call(Scalar::Max, &[x[0], c(x[0], 0.0, s)]),
            |s, x| -Term::call(Scalar::Min, &[c(x[0], 0.0, s), -x[0]]),
            |s, x| x[0].lt(c(x[0], 0.0, s)).select(c(x[0], 0.0, s), x[0]),
        ],
    );
    // NaN gives 0 here.
    check_different(
        1,
        |s, x| c(x[0], 0.0, s).lt(x[0]).select(x[0], c(x[0], 0.0, s)),
        |s, x| Term::call(Scalar::Max, &[x[0], c(x[0], 0.0, s)]),
    );
    check(
        1,
        &[
            |s, x| x[0].lt(c(x[0], 0.0, s)).select((x[0].apply(Scalar::Exp) - c(x[0], 1.0, s)) * c(x[0], 1.3, s), x[0]),
            |s, x| x[0].lt(c(x[0], 0.0, s)).select(x[0].apply(Scalar::Expm1) * c(x[0], 1.3, s), x[0]),
        ],
    );
}

/// x, mean, sum of squares, gain, bias.
const LAYER_NORM: &[Body] = &[
    |s, x| {
        let deviation = (x[2] / c(x[2], 768.0, s) + c(x[2], 1e-5, s)).apply(Scalar::Sqrt);
        (x[0] - x[1]) / deviation * x[3] + x[4]
    },
    |s, x| {
        let variance = c(x[2], 1e-5, s) + x[2] * c(x[2], 1.0 / 768.0, s);
        x[4] + x[3] * ((x[0] - x[1]) * (c(x[2], 1.0, s) / variance.apply(Scalar::Sqrt)))
    },
    |s, x| {
        let variance = c(x[2], 1e-5, s) + x[2] * c(x[2], 1.0 / 768.0, s);
        (x[0] + -x[1]) * (x[3] * (c(x[2], 1.0, s) / variance.apply(Scalar::Sqrt))) + x[4]
    },
    |s, x| {
        let variance = x[2] / c(x[2], 768.0, s) + c(x[2], 1e-5, s);
        let inverse = (c(x[2], 1.0, s) / variance).apply(Scalar::Sqrt);
        x[4] - (x[1] - x[0]) * inverse * x[3]
    },
    |s, x| {
        let variance = x[2] / c(x[2], 768.0, s) + c(x[2], 1e-5, s);
        (x[0] - x[1]) * x[3] / variance.apply(Scalar::Sqrt) + x[4]
    },
];

#[test]
fn layer_norm() {
    let form = check(5, LAYER_NORM);
    let root = "sqrt(((a2 * 0.0013020833721384406) + 9.999999747378752e-6))";
    assert_eq!(text(&form), format!("(a4 + ((a3 * (a0 - a1)) * (1.0 / {root})))"));
    check_different(5, LAYER_NORM[0], |s, x| {
        let deviation = (x[2] / c(x[2], 768.0, s)).apply(Scalar::Sqrt) + c(x[2], 1e-5, s);
        (x[0] - x[1]) / deviation * x[3] + x[4]
    });
    check_different(5, LAYER_NORM[0], |s, x| {
        let deviation = (x[2] / c(x[2], 768.0, s) + c(x[2], 1e-6, s)).apply(Scalar::Sqrt);
        (x[0] - x[1]) / deviation * x[3] + x[4]
    });
}

#[test]
fn rms_norm() {
    check(
        3,
        &[
            |s, x| x[0] / (x[1] / c(x[1], 1000.0, s) + c(x[1], 1e-6, s)).apply(Scalar::Sqrt) * x[2],
            |s, x| {
                x[2] * (x[0] * (c(x[1], 1.0, s) / (x[1] / c(x[1], 1000.0, s) + c(x[1], 1e-6, s)).apply(Scalar::Sqrt)))
            },
            |s, x| {
                let root = (c(x[1], 1e-6, s) + c(x[1], 0.001, s) * x[1]).apply(Scalar::Sqrt);
                x[0] * (c(x[1], 1.0, s) / root) * x[2]
            },
            |s, x| {
                let inverse = c(x[1], 1.0, s) / (x[1] * c(x[1], 0.001, s) + c(x[1], 1e-6, s));
                x[2] * x[0] * inverse.apply(Scalar::Sqrt)
            },
        ],
    );
    check(
        2,
        &[
            |s, x| x[0] / (x[1] / c(x[1], 64.0, s)).apply(Scalar::Sqrt),
            |s, x| x[0] / x[1].apply(Scalar::Sqrt) * c(x[1], 8.0, s),
            |s, x| x[0] / (x[1].apply(Scalar::Sqrt) * c(x[1], 0.125, s)),
        ],
    );
}

#[test]
fn squares_roots_and_quotients() {
    check(2, &[|_, x| (x[0] - x[1]) * (x[0] - x[1]), |s, x| (x[1] - x[0]).pow(c(x[0], 2.0, s))]);
    check(1, &[|_, x| x[0].apply(Scalar::Abs), |_, x| (x[0] * x[0]).apply(Scalar::Sqrt)]);
    check(2, &[|_, x| x[0] / x[1], |s, x| c(x[0], 1.0, s) / x[1] * x[0], |s, x| x[0] * x[1].pow(c(x[0], -1.0, s))]);
    check(3, &[|_, x| x[0] / x[1] / x[2], |_, x| x[0] / (x[2] * x[1]), |s, x| x[0] / x[2] * (c(x[0], 1.0, s) / x[1])]);
    check(2, &[|_, x| (x[0] + x[1]) + x[0], |s, x| x[1] + c(x[0], 2.0, s) * x[0]]);
    check(3, &[|_, x| x[0] * x[1] + x[2] * x[0], |_, x| (x[2] + x[1]) * x[0]]);
}

#[test]
fn softmax() {
    check(
        3,
        &[
            |s, x| (x[0] * c(x[0], 0.125, s) - x[1]).apply(Scalar::Exp) / x[2],
            |s, x| (x[0] / c(x[0], 8.0, s) - x[1]).apply(Scalar::Exp) * (c(x[0], 1.0, s) / x[2]),
            |s, x| {
                let inverse = c(x[0], 1.0, s) / (x[1] - x[0] / c(x[0], 64.0, s).apply(Scalar::Sqrt)).apply(Scalar::Exp);
                inverse / x[2]
            },
        ],
    );
}

#[test]
fn conversions_among_floats_vanish_inside() {
    let half = [DType::F16; 2];
    let plain = Expr::build(&half, |s, x| (x[0] * x[1] + c(x[0], 1.0, s)).apply(Scalar::Tanh));
    let (wide, narrow) = (DType::F32, DType::F16);
    let spellings = [
        Expr::build(&half, |s, x| {
            let product = x[0].cast(wide) * x[1].cast(wide);
            (product + c(product, 1.0, s)).apply(Scalar::Tanh).cast(narrow)
        }),
        Expr::build(&half, |s, x| {
            let product = (x[0].cast(wide) * x[1].cast(wide)).cast(narrow);
            (product + c(product, 1.0, s)).cast(wide).apply(Scalar::Tanh).cast(narrow)
        }),
    ];
    let form = normal(&plain, Numerics::Default);
    assert_eq!(text(&form), "f16(tanh(((f32(a0) * f32(a1)) + 1.0)))");
    for spelled in &spellings {
        assert_eq!(normal(spelled, Numerics::Default), form);
        assert_ne!(normal(spelled, Numerics::Strict), normal(&plain, Numerics::Strict), "roundings stay");
    }
    let identity = Expr::build(&[narrow], |_, x| x[0].cast(wide).cast(narrow));
    assert_eq!(text(&normal(&identity, Numerics::Default)), "a0");
    let stored = Expr::build(&[wide], |_, x| x[0].cast(DType::F8E4M3).cast(wide) * x[0]);
    assert_eq!(text(&normal(&stored, Numerics::Default)), "(a0 * f32(f8e4m3(a0)))");
    let long = Expr::build(&[DType::F64], |_, x| x[0].cast(wide).apply(Scalar::Exp).cast(DType::F64));
    assert_eq!(normal(&long, Numerics::Default), long);
}

#[test]
fn what_is_infinite_or_no_number_stays_so() {
    let at = |body: Body, values: &[f64]| {
        let expr = built(DType::F32, values.len(), body);
        let form = normal(&expr, Numerics::Default);
        let (expected, found) = (expr.eval_f64(values), form.eval_f64(values));
        assert!(expected == found || expected.is_nan() && found.is_nan(), "{}: {expected} {found}", text(&form));
    };
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    at(|_, x| x[0] - x[0], &[inf]);
    at(|s, x| Term::call(Scalar::Eq, &[x[0] - x[0], x[0] - x[0]]).select(c(x[0], 2.0, s), c(x[0], 3.0, s)), &[inf]);
    at(|s, x| x[0] * c(x[0], 0.0, s), &[nan]);
    at(|_, x| x[0] / x[0], &[0.0]);
    at(|_, x| x[0] * x[0] / x[0], &[0.0]);
    at(|s, x| x[0] / c(x[0], 0.0, s), &[2.0]);
    at(|s, x| x[0] + c(x[0], f64::NEG_INFINITY, s), &[2.0]);
    at(|s, x| (c(x[0], 1.0, s) - x[0]) * c(x[0], f64::NEG_INFINITY, s), &[0.0]);
    at(|s, x| (c(x[0], 1.0, s) - x[0]) * c(x[0], -3.4028234663852886e38, s), &[0.0]);
    at(|s, x| (x[0] * c(x[0], 1e30, s)) * c(x[0], 1e30, s), &[1e-40]);
    at(|s, x| x[0].apply(Scalar::IsNan).select(c(x[0], 0.0, s), x[0]), &[nan]);
    at(|s, x| (x[0] / x[1]).apply(Scalar::IsNan).select(c(x[0], 0.0, s), x[0] / x[1]), &[0.0, 0.0]);
    at(|_, x| (x[0] - x[1]).apply(Scalar::Exp), &[-inf, -inf]);
    // A row that is hidden everywhere, and its maximum.
    let hidden: Body = |s, x| {
        let seen = x[0].lt(c(x[0], 1.0, s));
        (seen.select(x[0], c(x[0], f64::NEG_INFINITY, s)) - x[1]).apply(Scalar::Exp)
    };
    at(hidden, &[2.0, -inf]);
    at(hidden, &[2.0, 0.5]);
}

#[test]
fn deep_terms_stay_small() {
    let squares = Expr::build(&[DType::F32], |_, x| (0..200).fold(x[0], |t, _| t * t));
    assert!(normal(&squares, Numerics::Default).nodes().len() < 400);
    let doubles = Expr::build(&[DType::F32], |_, x| (0..200).fold(x[0], |t, _| t + t));
    assert!(normal(&doubles, Numerics::Default).nodes().len() < 10);
    let mixed = Expr::build(&[DType::F32], |_, x| (0..300).fold(x[0], |t, _| t + t.apply(Scalar::Sin) * t));
    assert!(normal(&mixed, Numerics::Default).nodes().len() < 3000);
    let many: Vec<_> = vec![DType::F32; 500];
    let long = Expr::build(&many, |_, x| x.iter().copied().reduce(|a, b| a + b).unwrap());
    let reversed = Expr::build(&many, |_, x| x.iter().rev().copied().reduce(|a, b| a + b).unwrap());
    assert_eq!(normal(&long, Numerics::Default).nodes().len(), normal(&reversed, Numerics::Default).nodes().len());
}

#[test]
fn ranks_decide_the_order_of_leaves() {
    let ranks = |first: u64, second: u64| [first, second].map(|rank| LeafRank { level: 1, rank }).to_vec();
    let form = |ranks: Vec<LeafRank>, swap: bool| {
        let scope = Scope::default();
        let (a, b) = (scope.argument(0, DType::F32), scope.argument(1, DType::F32));
        let (x, bias) = if swap { (b, a) } else { (a, b) };
        let root = Normalizer::ranked(&scope, Numerics::Default, ranks, Vec::new()).normal(x + bias);
        Expr::of(root, &[x, bias])
    };
    assert_eq!(form(ranks(7, 9), false), form(ranks(9, 7), true));
}

/// A factor stands above and below the line: each is taken out of the sum once.
#[test]
fn what_is_divided_by_an_exponential_stays_a_quotient() {
    // exp(−x) overflows where a small number divided by exp(x) does not.
    let stays = |body: Body| {
        let form = |numerics| normal(&built(DType::F32, 2, body), numerics);
        assert_eq!(form(Numerics::Default), form(Numerics::Strict));
        assert_ne!(form(Numerics::Default), form(Numerics::Fast), "{}", text(&form(Numerics::Fast)));
    };
    stays(|_, x| x[1] / x[0].apply(Scalar::Exp));
    stays(|_, x| x[1].apply(Scalar::Exp) / x[0].apply(Scalar::Exp));
    stays(|s, x| c(x[0], 1e-3, s) / x[0].apply(Scalar::Exp));
    check(1, &[|s, x| c(x[0], 1.0, s) / x[0].apply(Scalar::Exp), |_, x| (-x[0]).apply(Scalar::Exp)]);
}

#[test]
fn a_factor_above_and_below_is_taken_out_as_it_stands() {
    let form = |body: Body| text(&normal(&built(DType::F32, 2, body), Numerics::Default));
    assert_eq!(form(|_, x| x[0] / x[0] * x[1] + x[0] / x[0]), "((a0 * (a1 + 1.0)) / a0)");
}

#[test]
fn a_mask_that_is_added_hides() {
    let form = check(
        2,
        &[
            |s, x| x[1].lt(c(x[1], 1.0, s)).select(x[0] * c(x[0], 0.25, s), c(x[0], f64::NEG_INFINITY, s)),
            |s, x| {
                x[0] * c(x[0], 0.25, s)
                    + x[1].lt(c(x[1], 1.0, s)).select(c(x[0], 0.0, s), c(x[0], f64::NEG_INFINITY, s))
            },
            |s, x| {
                let mask = x[1].lt(c(x[1], 1.0, s)).select(c(x[0], 0.0, s), c(x[0], f64::NEG_INFINITY, s));
                mask + x[0] / c(x[0], 4.0, s)
            },
        ],
    );
    assert_eq!(text(&form), "select(lt(a1, 1.0), (a0 * 0.25), -inf)");
    check_different(
        2,
        |s, x| x[0] + x[1].lt(c(x[1], 1.0, s)).select(c(x[0], 0.0, s), c(x[0], -1e4, s)),
        |s, x| x[1].lt(c(x[1], 1.0, s)).select(x[0], c(x[0], -1e4, s)),
    );
}

#[test]
fn zero_points_are_subtracted_before_or_after_a_conversion() {
    use DType::{F32, I8, I32, U8};
    let form = |types: [DType; 2], body: Body| normal(&Expr::build(&types, body), Numerics::Default);
    let scaled: [Body; 4] = [
        |s, x| (x[0].cast(I32) - x[1].cast(I32)).cast(F32) * s.constant(F32, Number::new(F32, 0.05)),
        |s, x| (x[0].cast(F32) - x[1].cast(F32)) * s.constant(F32, Number::new(F32, 0.05)),
        |s, x| (x[1].cast(I32) - x[0].cast(I32)).cast(F32) / s.constant(F32, Number::new(F32, -20.0)),
        |s, x| s.constant(F32, Number::new(F32, 0.05)) * -(x[1].cast(F32) - x[0].cast(F32)),
    ];
    for types in [[I8, I8], [U8, U8], [U8, I8]] {
        for body in scaled {
            assert_eq!(form(types, body), form(types, scaled[0]));
        }
    }
    let wide = form([I32, I32], |_, x| (x[0] - x[1]).cast(F32));
    assert_eq!(text(&wide), "f32((a0 - a1))", "differences of large integers are exact before they are rounded");
}

#[test]
fn powers_by_halves_are_roots_of_what_is_not_negative() {
    let scope = Scope::default();
    let x = scope.argument(0, DType::F32);
    let shifted = x / c(x, 768.0, &scope) + c(x, 1e-5, &scope);
    let one = c(x, 1.0, &scope);
    let root = shifted.apply(Scalar::Sqrt);
    let spelled = [(0.5, root), (-0.5, one / root), (1.5, root * root * root)];
    for (exponent, root) in spelled {
        let power = shifted.pow(c(x, exponent, &scope));
        let knowledge = Knowledge { nonnegative: [0].into_iter().collect(), ..Knowledge::default() };
        let mut normalizer = Normalizer::new(&scope, Numerics::Default).knowing(knowledge);
        assert_eq!(normalizer.normal(power), normalizer.normal(root));
        let unknown = Normalizer::new(&scope, Numerics::Default).normal(power);
        assert!(unknown.as_call() == Some(Scalar::Pow), "the power of −∞ is no root");
    }
}

#[test]
fn constants_are_joined_in_range_only() {
    let forms: &[(Body, &str)] = &[
        (|s, x| x[0] * c(x[0], 1e30, s) * c(x[0], 1e30, s), "((a0 * 1.0000000150474662e30) * 1.0000000150474662e30)"),
        (|s, x| x[0] / c(x[0], 4e30, s) / c(x[0], 4e30, s) * c(x[0], 0.0, s), "(a0 * 0.0)"),
        (|s, x| x[0] + c(x[0], 3e38, s) + c(x[0], 3e38, s), "((a0 + 3.0000000054977558e38) + 3.0000000054977558e38)"),
        (|s, x| x[0] + c(x[0], 12582912.0, s) - c(x[0], 12582912.0, s), "((a0 + 12582912.0) - 12582912.0)"),
        (|s, x| c(x[0], -12582912.0, s) + (c(x[0], 12582912.0, s) + x[0]), "((a0 + 12582912.0) - 12582912.0)"),
        (|s, x| c(x[0], 1.0, s) - (c(x[0], 1.0, s) - x[0]), "a0"),
        (
            |s, x| x[0] * c(x[0], 2e38, s) + x[0] * c(x[0], 2e38, s),
            "((a0 * 1.9999999360571385e38) + (a0 * 1.9999999360571385e38))",
        ),
    ];
    for (body, form) in forms {
        assert_eq!(text(&normal(&built(DType::F32, 1, *body), Numerics::Default)), *form);
    }
}
