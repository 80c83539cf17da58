//! Spellings of formulas, and random terms.

mod exact;
mod factor;
mod online;
mod random;
mod spellings;

use super::*;

/// A formula of float arguments.
type Body = for<'s> fn(&'s Scope, &[Term<'s>]) -> Term<'s>;

/// The constant `x`, of the type of `like`.
fn c<'s>(like: Term<'s>, x: f64, scope: &'s Scope) -> Term<'s> {
    scope.float(like, x)
}

fn built(dtype: DType, args: usize, body: Body) -> Expr {
    Expr::build(&vec![dtype; args], body)
}

/// The normal form, which must be its own.
fn normal(expr: &Expr, numerics: Numerics) -> Expr {
    let normal = expr.normal(numerics);
    assert_eq!(normal.normal(numerics), normal, "not idempotent: {}", text(expr));
    assert_eq!(normal.dtype(), expr.dtype());
    normal
}

/// The expression as nested calls.
fn text(expr: &Expr) -> String {
    let mut parts: Vec<String> = Vec::new();
    for (node, dtype) in expr.nodes() {
        let of = |o: &u32| parts[*o as usize].clone();
        parts.push(match node {
            ExprNode::Arg(k) => format!("a{k}"),
            ExprNode::Const(number) => format!("{number:?}"),
            ExprNode::Coord(axis) => format!("i{axis}"),
            ExprNode::Size(dim) => format!("size({dim})"),
            ExprNode::Cast(x) => format!("{dtype}({})", of(x)),
            ExprNode::Bits(x) => format!("bits_{dtype}({})", of(x)),
            ExprNode::Apply(op, operands) => {
                let infix = ["add", "sub", "mul", "div"].iter().position(|name| *name == op.def().name);
                match infix {
                    Some(k) => format!("({} {} {})", of(&operands[0]), ["+", "-", "*", "/"][k], of(&operands[1])),
                    None => format!("{}({})", op.def().name, operands.iter().map(of).collect::<Vec<_>>().join(", ")),
                }
            }
        });
    }
    parts.pop().unwrap()
}

/// `exp(x − m − log(y))` of arguments x, m and y of which y is not negative.
fn log_quotient(scope: &Scope) -> [Term<'_>; 3] {
    let [x, m, y] = [0, 1, 2].map(|k| scope.argument(k, DType::F32));
    [x, m, (x - m - y.apply(Scalar::Log)).apply(Scalar::Exp)]
}

#[test]
fn a_logarithm_leaves_an_exponential_only_where_nothing_overflows() {
    let is_quotient = |numerics: Numerics, bounds_x: bool| {
        let scope = Scope::default();
        let [x, _, term] = log_quotient(&scope);
        let mut knowledge = Knowledge::default();
        knowledge.nonnegative.insert(2);
        if bounds_x {
            knowledge.above.insert(1, x.place());
        }
        let normal = Normalizer::new(&scope, numerics).knowing(knowledge).normal(term);
        normal.as_call() != Some(Scalar::Exp)
    };
    assert!(is_quotient(Numerics::Default, true), "m is the largest x");
    assert!(!is_quotient(Numerics::Default, false), "exp(x − m) may overflow");
    assert!(is_quotient(Numerics::Fast, false));
    assert!(!is_quotient(Numerics::Strict, true));
}

/// The value where every step is rounded to f32.
fn rounded(expr: &Expr, args: &[f32]) -> f32 {
    let mut values: Vec<f32> = Vec::new();
    for (node, _) in expr.nodes() {
        values.push(match node {
            ExprNode::Arg(k) => args[*k as usize],
            ExprNode::Const(number) => number.to_f64() as f32,
            ExprNode::Apply(op, operands) => {
                let [a, b] = [operands[0], *operands.last().unwrap()].map(|o| values[o as usize]);
                match op {
                    Scalar::Add => a + b,
                    Scalar::Sub => a - b,
                    Scalar::Mul => a * b,
                    Scalar::Neg => -a,
                    other => unreachable!("{other:?}"),
                }
            }
            other => unreachable!("{other:?}"),
        });
    }
    values.pop().unwrap()
}

#[test]
fn small_terms_do_not_drown_in_a_mask() {
    let spellings: [Body; 4] = [
        |scope, a| a[0] * c(a[0], 0.125, scope) * a[1] - c(a[0], 1e4, scope) * (c(a[0], 1.0, scope) - a[1]),
        |scope, a| a[0] * a[1] * c(a[0], 0.125, scope) + (a[1] - c(a[0], 1.0, scope)) * c(a[0], 1e4, scope),
        |scope, a| (c(a[0], 1.0, scope) - a[1]) * c(a[0], -1e4, scope) + a[0] * c(a[0], 0.125, scope) * a[1],
        |scope, a| a[0] * c(a[0], 0.125, scope) + c(a[0], 1e4, scope) - c(a[0], 1e4, scope) * a[1],
    ];
    for body in spellings {
        let normal = normal(&built(DType::F32, 2, body), Numerics::Default);
        let (score, expected) = (0.3_f32, 0.3_f32 * 0.125);
        let actual = rounded(&normal, &[score, 1.0]);
        assert!((actual - expected).abs() <= 1e-6 * expected, "{actual} is not {expected}: {}", text(&normal));
    }
}
