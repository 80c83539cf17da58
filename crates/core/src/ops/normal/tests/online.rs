use super::super::online::{Correction, Moments, Refusal, Streamed};
use super::random::Random;
use super::*;
use crate::ops::prim::Monoid;

/// Argument 0 varies along the axis; arguments 1 and 2 are running results; the others are fixed.
fn varies(node: &ExprNode) -> bool {
    matches!(node, ExprNode::Arg(0))
}

const ARGS: usize = 5;

fn correction(body: Body, monoid: Monoid) -> Result<String, Refusal> {
    let scope = Scope::default();
    let args: Vec<Term<'_>> = (0..ARGS).map(|k| scope.argument(k, DType::F32)).collect();
    let mut normalizer = Normalizer::new(&scope, Numerics::Default);
    let found = normalizer.correction(body(&scope, &args), args[1], monoid, &varies)?;
    Ok(match found {
        Correction::None => "none".to_owned(),
        Correction::Factor(change) => format!("times {}", text(&change.expr)),
        Correction::Shift(change) => format!("plus {}", text(&change.expr)),
        Correction::Moments(moments) => {
            let [value, center] = [moments.value, moments.center].map(|t| text(&Expr::of(t, &args)));
            format!("moments of {value} about {center}")
        }
    })
}

#[test]
fn corrections_are_found() {
    let sum = |body| correction(body, Monoid::Sum);
    let exponential = "times select(eq(a0, a1), 1.0, exp((a0 - a1)))".to_owned();
    assert_eq!(sum(|_, x| (x[0] - x[1]).apply(Scalar::Exp)), Ok(exponential.clone()));
    assert_eq!(sum(|s, x| (x[0] * c(x[0], 0.125, s) + x[3] - x[1]).apply(Scalar::Exp) * x[0]), Ok(exponential.clone()));
    assert_eq!(sum(|_, x| x[0].apply(Scalar::Tanh) / (x[1] - x[0]).apply(Scalar::Exp)), Ok(exponential.clone()));
    let masked: Body = |s, x| x[0].lt(x[3]).select(c(x[0], 0.0, s), (x[0] - x[1]).apply(Scalar::Exp)) * x[4];
    assert_eq!(sum(masked), Ok(exponential));
    let scaled = "times select(eq(a0, a1), 1.0, exp((a2 * (a0 - a1))))".to_owned();
    assert_eq!(sum(|_, x| ((x[0] - x[1]) * x[3]).apply(Scalar::Exp)), Ok(scaled.clone()));
    assert_eq!(sum(|_, x| (x[0] * x[3] - x[1] * x[3]).apply(Scalar::Exp)), Ok(scaled.clone()));
    assert_eq!(sum(|_, x| (x[0] + x[4] - x[1] * x[3]).apply(Scalar::Exp)), Ok(scaled));
    assert_eq!(sum(|_, x| x[0] * x[0] / x[1]), Ok("times select(eq(a0, a1), 1.0, (a0 / a1))".to_owned()));
    assert_eq!(sum(|_, x| x[0] * x[3]), Ok("none".to_owned()));
    let squares = "moments of a0 about (a1 * 0.0010000000474974513)".to_owned();
    assert_eq!(sum(|s, x| (x[0] - x[1] / c(x[0], 1000.0, s)).pow(c(x[0], 2.0, s))), Ok(squares));
    let max = |body| correction(body, Monoid::Max);
    assert_eq!(max(|_, x| x[0] - x[1]), Ok("plus select(eq(a0, a1), 0.0, (a0 - a1))".to_owned()));
    assert_eq!(max(|_, x| (x[0] - x[1]).apply(Scalar::Exp)), sum(|_, x| (x[0] - x[1]).apply(Scalar::Exp)));
}

#[test]
fn what_does_not_follow_is_refused() {
    let sum = |body| correction(body, Monoid::Sum).unwrap_err();
    assert_eq!(sum(|_, x| (x[0] - x[1]).apply(Scalar::Tanh)), Refusal::Inside(Scalar::Tanh));
    assert_eq!(sum(|_, x| (x[0] * x[1]).apply(Scalar::Exp)), Refusal::Inside(Scalar::Exp));
    assert_eq!(sum(|_, x| x[0] + x[1]), Refusal::Addends);
    assert_eq!(sum(|s, x| x[0].lt(x[1]).select(x[0], c(x[0], 0.0, s))), Refusal::Condition);
    assert_eq!(correction(|_, x| x[0] * x[1], Monoid::Max).unwrap_err(), Refusal::Fold(Monoid::Max));
    assert_eq!(correction(|_, x| x[0] * x[1], Monoid::Prod).unwrap_err(), Refusal::Fold(Monoid::Prod));
    let scope = Scope::default();
    let (x, m) = (scope.argument(0, DType::F32), scope.argument(1, DType::F32));
    let mut strict = Normalizer::new(&scope, Numerics::Strict);
    let refused = strict.correction((x - m).apply(Scalar::Exp), m, Monoid::Sum, &varies);
    assert_eq!(refused.unwrap_err(), Refusal::Strict);
    assert_eq!(Refusal::Fold(Monoid::Prod).to_string(), "a prod does not follow from its parts");
}

/// A sum that is streamed, as expressions.
struct Sum {
    /// of x, both running results, the two fixed leaves
    element: Expr,
    /// of the old and the new running result, for each of them
    factors: Vec<Option<Expr>>,
    /// of all leaves and the sum
    finished: Expr,
}

fn streamed(body: Body) -> Sum {
    let scope = Scope::default();
    let args: Vec<Term<'_>> = (0..ARGS + 1).map(|k| scope.argument(k, DType::F64)).collect();
    let mut normalizer = Normalizer::new(&scope, Numerics::Default);
    let streamed: Streamed<'_> = normalizer.streamed(body(&scope, &args), &args[1..3], &varies).unwrap();
    let finished = streamed.finished(&mut normalizer, args[ARGS]);
    let factors = streamed.corrections.iter().map(|correction| match correction {
        Correction::Factor(change) => Some(change.expr.clone()),
        _ => None,
    });
    Sum {
        factors: factors.collect(),
        element: Expr::of(streamed.element, &args[..ARGS]),
        finished: Expr::of(finished, &args),
    }
}

/// Softmax of a row times values, with everything at once and in pieces; `body` is the term of the second sum, of x, maximum,
/// sum, and two fixed numbers.
fn check_stream(body: Body, row: &[f64], values: &[f64], piece: usize) -> (f64, f64) {
    let fixed = [0.5, 2.0];
    let first: Body = |s, x| (x[0] * c(x[0], 0.125, s) + x[3] - x[1]).apply(Scalar::Exp);
    let score = |x: f64| x * 0.125 + fixed[0];
    // All at once.
    let max = |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) };
    let m = row.iter().map(|x| score(*x)).fold(f64::NEG_INFINITY, max);
    let [exponential, term] = [first, body].map(|body| built(DType::F64, ARGS, body));
    let l: f64 = row.iter().map(|x| exponential.eval_f64(&[*x, m, 0.0, fixed[0], fixed[1]])).sum();
    let terms = row.iter().map(|x| term.eval_f64(&[*x, m, l, fixed[0], fixed[1]]));
    let whole: f64 = terms.zip(values).map(|(p, v)| p * v).sum();
    // In pieces.
    let (sum, product) = (streamed(first), streamed(body));
    let (mut m, mut l, mut o) = (f64::NEG_INFINITY, 0.0, 0.0);
    for (xs, vs) in row.chunks(piece).zip(values.chunks(piece)) {
        let new = xs.iter().map(|x| score(*x)).fold(m, max);
        let element = |sum: &Sum, x: f64| sum.element.eval_f64(&[x, new, l, fixed[0], fixed[1]]);
        let factor = |sum: &Sum| sum.factors[0].as_ref().unwrap().eval_f64(&[m, new]);
        let next = l * factor(&sum) + xs.iter().map(|x| element(&sum, *x)).sum::<f64>();
        o = o * factor(&product) + xs.iter().zip(vs).map(|(x, v)| element(&product, *x) * v).sum::<f64>();
        (m, l) = (new, next);
        assert!(product.factors[1].is_none(), "elements do not read the second running result");
    }
    let l = sum.finished.eval_f64(&[0.0, m, 0.0, fixed[0], fixed[1], l]);
    (whole, product.finished.eval_f64(&[0.0, m, l, fixed[0], fixed[1], o]))
}

const PROBABILITY: Body = |s, x| (x[0] * c(x[0], 0.125, s) + x[3] - x[1]).apply(Scalar::Exp) / x[2] * x[4];
const GUARDED: Body = |s, x| {
    let p = (x[0] * c(x[0], 0.125, s) + x[3] - x[1]).apply(Scalar::Exp) / x[2];
    x[2].apply(Scalar::IsNan).select(c(x[0], 0.0, s), p)
};

#[test]
fn attention_in_pieces_is_attention_at_once() {
    let mut random = Random(0xdead_beef_cafe);
    for case in 0..60 {
        let len = 1 + random.below(40);
        let mut row: Vec<f64> = (0..len).map(|_| (random.below(4001) as f64 - 2000.0) / 10.0).collect();
        let values: Vec<f64> = (0..len).map(|_| random.below(100) as f64 / 50.0 - 1.0).collect();
        // Masks: none, at the beginning, at the end, scattered.
        for (k, x) in row.iter_mut().enumerate() {
            let masked = [false, k < len / 2, k > len / 2, random.below(3) == 0][case % 4];
            *x = if masked { f64::NEG_INFINITY } else { *x };
        }
        for body in [PROBABILITY, GUARDED] {
            for piece in [1, 3, 8, 64] {
                let (whole, pieces) = check_stream(body, &row, &values, piece);
                let close = (whole - pieces).abs() <= 1e-12 || whole.is_nan() && pieces.is_nan();
                assert!(close, "case {case} in pieces of {piece}: {whole} {pieces} of {row:?}");
            }
        }
    }
}

#[test]
fn a_row_without_a_finite_maximum_is_what_it_is_at_once() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    for row in [[-inf; 4], [-inf, -inf, 1.0, inf], [1.0, nan, 2.0, 3.0], [-inf, -inf, -inf, nan]] {
        for piece in [1, 2, 4] {
            let (whole, pieces) = check_stream(PROBABILITY, &row, &[1.0; 4], piece);
            assert!(whole.is_nan() && pieces.is_nan(), "{row:?}: {whole} {pieces}");
            let (whole, pieces) = check_stream(GUARDED, &row, &[1.0; 4], piece);
            assert_eq!((whole, pieces), (0.0, 0.0), "{row:?}");
        }
    }
}

#[test]
fn moments_of_parts_are_moments_of_the_whole() {
    let scope = Scope::default();
    let args: Vec<Term<'_>> = (0..6).map(|k| scope.argument(k, DType::F64)).collect();
    let merged = Moments::merged(&scope, [args[0], args[1], args[2]], [args[3], args[4], args[5]]);
    let merged = merged.map(|t| Expr::of(t, &args));
    let row: Vec<f64> = (0..37).map(|k| 1000.0 + (k as f64 * 1.3).sin()).collect();
    let moments = |part: &[f64]| {
        let n = part.len() as f64;
        let mean = if part.is_empty() { 0.0 } else { part.iter().sum::<f64>() / n };
        [n, mean, part.iter().map(|x| (x - mean).powi(2)).sum()]
    };
    for pieces in [1, 5, 37, 64] {
        let mut running = moments(&[]);
        for part in row.chunks(pieces).chain([&[][..]]) {
            let both = [running, moments(part)].concat();
            running = [0, 1, 2].map(|k| merged[k].eval_f64(&both));
        }
        for (found, expected) in running.iter().zip(moments(&row)) {
            assert!((found - expected).abs() <= 1e-12 * expected.abs(), "{found} {expected}");
        }
    }
}

#[test]
fn the_mean_is_known_as_such() {
    let scope = Scope::default();
    let (x, sum) = (scope.argument(0, DType::F32), scope.argument(1, DType::F32));
    let count = scope.size(Dim::named("n"));
    let mut normalizer = Normalizer::new(&scope, Numerics::Default);
    let deviation = x - sum * (scope.one(sum) / count.cast(DType::F32));
    let found = normalizer.correction(deviation * deviation, sum, Monoid::Sum, &varies).unwrap();
    let Correction::Moments(moments) = found else { panic!("{found:?}") };
    assert!(normalizer.is_mean(&moments, sum, x, count));
    assert!(!normalizer.is_mean(&moments, sum, x * x, count));
    assert!(!normalizer.is_mean(&moments, sum, x, scope.size(Dim::named("m"))));
}
