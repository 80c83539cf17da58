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
