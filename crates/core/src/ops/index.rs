//! Index expressions as scalar expressions, and back.

use super::expr::{Expr, ExprNode, Number, Scope, Term};
use super::scalar::Scalar;
use crate::tensor::{Algebra, DType, Dim, Ranges, Symbol};

impl Scope {
    /// An index expression as an i64: axes are coordinates, other symbols are sizes.
    pub fn index(&self, dim: &Dim) -> Term<'_> {
        if dim.mentions(|s| matches!(s, Symbol::Axis(_))) {
            dim.interpret(&Indexing(self))
        } else {
            self.size(dim.clone())
        }
    }
}

/// Index expressions as terms.
struct Indexing<'s>(&'s Scope);

impl<'s> Algebra for Indexing<'s> {
    type Number = Term<'s>;

    fn int(&self, n: i64) -> Term<'s> {
        self.0.constant(DType::I64, Number::Int(n))
    }

    fn symbol(&self, symbol: &Symbol) -> Term<'s> {
        match symbol {
            Symbol::Axis(axis) => self.0.coord(usize::from(*axis)),
            other => self.0.size(other.clone().into()),
        }
    }

    fn add(&self, a: Term<'s>, b: Term<'s>) -> Term<'s> {
        a + b
    }

    fn mul(&self, a: Term<'s>, b: Term<'s>) -> Term<'s> {
        a * b
    }

    fn floordiv(&self, a: Term<'s>, b: Term<'s>) -> Term<'s> {
        (a - self.modulo(a, b)) / b
    }

    fn modulo(&self, a: Term<'s>, b: Term<'s>) -> Term<'s> {
        Term::call(Scalar::Mod, &[a, b])
    }

    fn min(&self, a: Term<'s>, b: Term<'s>) -> Term<'s> {
        Term::call(Scalar::Min, &[a, b])
    }

    fn max(&self, a: Term<'s>, b: Term<'s>) -> Term<'s> {
        Term::call(Scalar::Max, &[a, b])
    }
}

impl Expr {
    /// The index expression that an i64 expression without arguments computes over axes of these ranges: the inverse of
    /// [`Scope::index`]. `None` where it is none, or where wrapping or truncation cannot be excluded.
    pub fn as_index(&self, ranges: &Ranges<'_>) -> Option<Dim> {
        index_of(self.nodes(), ranges)
    }
}

impl Term<'_> {
    /// See [`Expr::as_index`].
    pub fn as_index(self, ranges: &Ranges<'_>) -> Option<Dim> {
        index_of(&self.steps(), ranges)
    }
}

/// The index expression that the last of some steps computes.
fn index_of(nodes: &[(ExprNode, DType)], ranges: &Ranges<'_>) -> Option<Dim> {
    let mut dims: Vec<Option<Dim>> = Vec::with_capacity(nodes.len());
    for (node, dtype) in nodes {
        let of = |o: &u32| dims[*o as usize].clone();
        let dim = match node {
            _ if !dtype.is_int() => None,
            ExprNode::Const(Number::Int(n)) if *dtype != DType::U64 => Some(Dim::int(*n)),
            ExprNode::Coord(axis) => Some(Dim::axis(usize::from(*axis))),
            ExprNode::Size(dim) => Some(dim.clone()),
            ExprNode::Cast(x) => of(x).filter(|dim| fits(dim, *dtype, ranges)),
            ExprNode::Apply(op, operands) if *dtype == DType::I64 => {
                let exact =
                    exactly_divided(nodes, *op, operands).and_then(|a| Some(of(&a)?.floordiv(&of(&operands[1])?)));
                exact.or_else(|| index_step(*op, &|k| of(operands.get(k)?), ranges))
            }
            _ => None,
        };
        dims.push(dim);
    }
    dims.pop()?
}

/// Whether the values surely lie in the range of an integer type.
fn fits(dim: &Dim, dtype: DType, ranges: &Ranges<'_>) -> bool {
    let Some((low, high)) = dtype.int_range() else { return false };
    let bounds = ranges.bounds(dim);
    let inside = |n: Option<i64>| n.is_some_and(|n| (low..=high).contains(&i128::from(n)));
    dtype == DType::I64 || bounds.is_some_and(|b| inside(b.low.as_int()) && inside(b.high.as_int()))
}

/// For a division `(a − a mod b) / b`, which is the floor of `a / b` without any remainder: the step `a`.
fn exactly_divided(nodes: &[(ExprNode, DType)], op: Scalar, operands: &[u32]) -> Option<u32> {
    let (Scalar::Div, [numerator, divisor]) = (op, operands) else { return None };
    let ExprNode::Apply(Scalar::Sub, terms) = &nodes[*numerator as usize].0 else { return None };
    let [a, remainder] = terms.as_slice() else { return None };
    let ExprNode::Apply(Scalar::Mod, parts) = &nodes[*remainder as usize].0 else { return None };
    (parts.as_slice() == [*a, *divisor]).then_some(*a)
}

fn index_step(op: Scalar, operand: &dyn Fn(usize) -> Option<Dim>, ranges: &Ranges<'_>) -> Option<Dim> {
    let a = operand(0)?;
    if op == Scalar::Neg {
        return Some(-a);
    }
    let b = operand(1)?;
    let positive = b.as_int().is_some_and(|n| n > 0);
    let nonnegative = || ranges.bounds(&a).is_some_and(|r| r.low.is_nonnegative());
    match op {
        Scalar::Add => Some(a + b),
        Scalar::Sub => Some(a - b),
        Scalar::Mul => Some(a * b),
        Scalar::Min => Some(a.min_with(&b)),
        Scalar::Max => Some(a.max_with(&b)),
        Scalar::Mod if positive => Some(a.modulo(&b)),
        // Truncation is the floor where nothing is negative.
        Scalar::Div if positive && nonnegative() => Some(a.floordiv(&b)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_expression_survives_the_way_through_terms() {
        let extents = [Dim::int(6), Dim::named("n")];
        let ranges = Ranges::of(&extents);
        let (i, j) = (Dim::axis(0), Dim::axis(1));
        let three = Dim::int(3);
        for dim in [&i * 4 + &j - 2, i.floordiv(&three) + i.modulo(&three), (&j - 5).floordiv(&three), i.min_with(&j)] {
            let expr = Expr::build(&[], |scope, _| scope.index(&dim));
            assert_eq!(expr.as_index(&ranges), Some(dim));
        }
        let narrow = |x: &Dim| Expr::build(&[], |scope, _| scope.index(x).cast(DType::I8).cast(DType::I64));
        assert_eq!(narrow(&i).as_index(&ranges), Some(i.clone()));
        assert_eq!(narrow(&(&i * 100)).as_index(&ranges), None, "it may wrap around");
    }
}
