use super::*;

/// Arguments 0 and 1 vary, the others do not.
fn varies(node: &ExprNode) -> bool {
    matches!(node, ExprNode::Arg(0 | 1))
}

/// The element of a formula, and the formula around a leaf (argument 9) in its place.
fn split(body: Body) -> (String, String) {
    let scope = Scope::default();
    let args: Vec<Term<'_>> = (0..10).map(|k| scope.argument(k, DType::F32)).collect();
    let mut normalizer = Normalizer::new(&scope, Numerics::Default);
    let linear = normalizer.split(body(&scope, &args), &varies);
    let around = linear.around(&mut normalizer, args[9]);
    let whole = linear.around(&mut normalizer, linear.element);
    let at: Vec<f64> = (0..10).map(|k| 0.3 + f64::from(k)).collect();
    let [whole, term] = [whole, body(&scope, &args)].map(|t| Expr::of(t, &args).eval_f64(&at));
    assert!((whole - term).abs() <= 1e-6 * term.abs(), "the element in its place gives the term: {whole} {term}");
    assert_eq!(linear.is_plain(), around == args[9]);
    (text(&Expr::of(linear.element, &args)), text(&Expr::of(around, &args)))
}

fn check(body: Body, element: &str, around: &str) {
    assert_eq!(split(body), (element.to_owned(), around.to_owned()));
}

#[test]
fn factors_that_do_not_vary_leave() {
    check(|_, x| x[0] * x[2] * x[1] / x[3], "(a0 * a1)", "((a2 * a9) / a3)");
    check(|s, x| x[0] * c(x[0], 0.125, s), "a0", "(a9 * 0.125)");
    check(|_, x| (x[0] - x[2]).apply(Scalar::Exp) / x[3], "exp((a0 - a2))", "(a9 / a3)");
    check(|_, x| x[0] / x[2].apply(Scalar::Sqrt), "a0", "(a9 * (1.0 / sqrt(a2)))");
    check(|_, x| x[0] + x[2], "(a0 + a2)", "a9");
    check(|_, x| x[0], "a0", "a9");
    check(|_, x| x[2] * x[0] + x[2] * x[1], "(a0 + a1)", "(a2 * a9)");
}

#[test]
fn choices_of_zero_for_a_row_leave() {
    check(
        |s, x| x[3].apply(Scalar::IsNan).select(c(x[0], 0.0, s), x[0] / x[3]),
        "a0",
        "select(isnan(a3), 0.0, (a9 / a3))",
    );
    check(
        |s, x| x[2].lt(x[3]).select(x[0] * x[4], c(x[0], 0.0, s)) * x[1] * x[5],
        "(a0 * a1)",
        "(a5 * select(lt(a2, a3), (a4 * a9), 0.0))",
    );
    // The condition varies.
    check(|s, x| x[0].lt(x[2]).select(c(x[0], 0.0, s), x[0]) * x[2], "select(lt(a0, a2), 0.0, a0)", "(a2 * a9)");
    // Not linear: the other choice is not 0.
    check(|_, x| x[2].lt(x[3]).select(x[2], x[0]), "select(lt(a2, a3), a2, a0)", "a9");
}

#[test]
fn nothing_leaves_under_strict_numerics() {
    let scope = Scope::default();
    let (x, r) = (scope.argument(0, DType::F32), scope.argument(2, DType::F32));
    let mut normalizer = Normalizer::new(&scope, Numerics::Strict);
    assert!(normalizer.split(x * r, &varies).is_plain());
}

#[test]
fn sums_inside_of_products_inside_of_sums_end() {
    let expr = Expr::build(&[DType::F32], |_, x| (0..40).fold(x[0], |h, _| h * x[0] + h));
    let steps = expr.normal(Numerics::Default).nodes().len();
    assert!(steps < 1000, "{steps} steps");
}
