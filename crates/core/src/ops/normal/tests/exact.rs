use super::*;

#[test]
fn strict_keeps_roundings_and_sorts_what_commutes() {
    let form = |body: Body| normal(&built(DType::F32, 3, body), Numerics::Strict);
    assert_eq!(form(|_, x| x[0] * x[1] + x[2]), form(|_, x| x[2] + x[1] * x[0]));
    assert_eq!(form(|_, x| x[0] + -x[1]), form(|_, x| x[0] - x[1]));
    assert_eq!(form(|s, x| x[0] / c(x[0], 8.0, s)), form(|s, x| c(x[0], 0.125, s) * x[0]));
    assert_ne!(form(|_, x| (x[0] + x[1]) + x[2]), form(|_, x| x[0] + (x[1] + x[2])));
    assert_ne!(form(|s, x| x[0] / c(x[0], 3.0, s)), form(|s, x| x[0] * c(x[0], 1.0 / 3.0, s)));
    assert_ne!(form(|s, x| x[0] + c(x[0], 0.0, s)), form(|_, x| x[0]));
    fn max<'s>(a: Term<'s>, b: Term<'s>) -> Term<'s> {
        Term::call(Scalar::Max, &[a, b])
    }
    assert_eq!(form(|_, x| max(max(x[2], x[0]), max(x[1], x[2]))), form(|_, x| max(x[0], max(x[1], x[2]))));
}

/// What guards a difference against 0 is added to the difference, not to what is subtracted from.
#[test]
fn a_constant_beside_a_difference_comes_last() {
    let form = |body: Body| text(&normal(&built(DType::F32, 2, body), Numerics::Default));
    let guarded = form(|s, x| x[0] - x[1] + c(x[0], 1e-8, s));
    assert!(guarded.starts_with("((a0 - a1) + "), "{guarded}");
    assert_eq!(guarded, form(|s, x| c(x[0], 1e-8, s) + -x[1] + x[0]));
}

/// What varies less than a difference guards it as a constant does.
#[test]
fn what_varies_least_is_added_to_a_difference_last() {
    let form = |body: Body| {
        let scope = Scope::default();
        let levels = [0, 2, 2, 1];
        let arguments: Vec<Term<'_>> = (0..4).map(|k| scope.argument(k, DType::F32)).collect();
        let ranks = levels.iter().zip(0..).map(|(level, rank)| LeafRank { level: *level, rank }).collect();
        let root = body(&scope, &arguments);
        text(&Expr::of(Normalizer::ranked(&scope, Numerics::Default, ranks, Vec::new()).normal(root), &arguments))
    };
    assert_eq!(form(|_, x| x[1] - x[2] + x[0]), "((a1 - a2) + a0)");
    assert_eq!(form(|s, x| c(x[0], 2.0, s) + x[0] + x[3] - x[2] + x[1]), "((((a1 - a2) + a3) + a0) + 2.0)");
    assert_eq!(form(|_, x| x[0] + x[1] + x[3]), "((a0 + a3) + a1)");
}

#[test]
fn integers_are_sorted_exactly() {
    for numerics in [Numerics::Strict, Numerics::Default] {
        for dtype in [DType::I64, DType::I32, DType::U8, DType::I8, DType::U64] {
            let same = |a: Body, b: Body| {
                let (a, b) = (normal(&built(dtype, 3, a), numerics), normal(&built(dtype, 3, b), numerics));
                assert_eq!(a, b, "{dtype}: {} {}", text(&a), text(&b));
            };
            fn int<'s>(like: Term<'s>, n: i64, s: &'s Scope) -> Term<'s> {
                s.constant(like.dtype(), Number::from_int(like.dtype(), n))
            }
            same(|_, x| x[0] + x[1] + x[2], |_, x| x[2] + (x[1] + x[0]));
            same(|_, x| x[0] - x[1] - x[2], |_, x| -(x[1] + x[2]) + x[0]);
            same(|_, x| x[0] * x[1] * x[2], |_, x| x[2] * (x[1] * x[0]));
            same(|_, x| x[0] - x[0] + x[1], |_, x| x[1]);
            same(|s, x| x[0] + int(x[0], 100, s) + int(x[0], 100, s), |s, x| int(x[0], 200, s) + x[0]);
            same(|s, x| x[0] * int(x[0], 16, s) * int(x[0], 17, s), |s, x| int(x[0], 272, s) * x[0]);
            same(|s, x| x[0] * int(x[0], 3, s) - x[0], |_, x| x[0] + x[0]);
        }
    }
}

#[test]
fn comparisons_of_coordinates_have_one_form() {
    let scope = Scope::default();
    let (i, j) = (scope.coord(0), scope.coord(1));
    let at_most = Term::call(Scalar::Le, &[j, i]);
    let mut normalizer = Normalizer::new(&scope, Numerics::Strict);
    let form = normalizer.normal(at_most);
    assert_eq!(normalizer.normal(i.lt(j).apply(Scalar::Not)), form);
    assert_eq!(Expr::of(form, &[]), Expr::of(at_most, &[]));
    let zero = scope.constant(DType::I64, Number::Int(0));
    let spellings = [
        j.lt(i + scope.constant(DType::I64, Number::Int(1))),
        (j - scope.constant(DType::I64, Number::Int(1))).lt(i),
        Term::call(Scalar::Le, &[j - i, zero]),
        Term::call(Scalar::Le, &[zero, i - j]),
    ];
    for spelled in spellings {
        assert_eq!(normalizer.normal(spelled), form);
    }
    let both = |a, b| Term::call(Scalar::And, &[a, b]);
    let (k, one) = (scope.coord(2), scope.constant(DType::I64, Number::Int(1)));
    let (before, after) = (k.lt(j), i.lt(k + one));
    let nested = both(at_most, both(before, after));
    let repeated = both(both(after, at_most), both(before, after));
    assert_eq!(normalizer.normal(nested), normalizer.normal(repeated));
}

#[test]
fn the_floor_of_a_quotient_stays_one() {
    use crate::tensor::{Dim, Ranges};
    let extents = [Dim::int(48), Dim::named("n")];
    let ranges = Ranges::of(&extents);
    for dim in [(Dim::axis(0) * 4 + Dim::axis(1)).floordiv(&Dim::int(3)), Dim::axis(1).floordiv(&Dim::named("k")) + 1] {
        let expr = Expr::build(&[], |scope, _| scope.index(&dim));
        assert_eq!(normal(&expr, Numerics::Default).as_index(&ranges), Some(dim));
    }
}
