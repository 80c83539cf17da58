//! Steps that compute a whole expression at once.

use fuseline::graph::Tensor;
use fuseline::ops::prim::Map;
use fuseline::ops::{Expr, Number, Scope, Signature, Term};
use fuseline::tensor::{DType, Dim};

use super::NAMES;
use super::grow::{Growth, scalar, type_of};
use super::tape::Tape;

/// Constants that a text form must print exactly.
const NUMBERS: [f64; 8] = [1.0, 0.0, -0.5, 0.1, f64::INFINITY, f64::NAN, 1e-9, -3e10];

impl<'b> Growth<'b> {
    /// An expression of up to three values of one shape, coordinates, sizes and constants.
    pub(super) fn expression(&self, tape: &mut Tape<'_>) -> Option<Tensor<'b>> {
        let mut args = vec![self.any(tape)];
        let shape = type_of(args[0]).shape;
        for _ in 0..tape.below(3) {
            args.push(self.pick(tape, |t| t.shape == shape)?);
        }
        let dtypes: Vec<DType> = args.iter().map(|a| type_of(*a).dtype).collect();
        let expr = Expr::build(&dtypes, |scope, terms| {
            let mut terms = terms.to_vec();
            for axis in 0..shape.rank() {
                terms.insert(0, scope.coord(axis));
            }
            terms.insert(0, scope.size(Dim::named(NAMES[0]) + 1));
            for _ in 0..1 + tape.below(6) {
                if let Some(term) = compound(scope, &terms, tape) {
                    terms.push(term);
                }
            }
            *terms.last().expect("there are arguments")
        });
        Some(self.builder.add(Map { expr, shape }, &args))
    }
}

/// A function of terms made so far, the newest being the simplest choice.
fn compound<'s>(scope: &'s Scope, terms: &[Term<'s>], tape: &mut Tape<'_>) -> Option<Term<'s>> {
    let newest: Vec<Term<'s>> = terms.iter().rev().copied().collect();
    let x = tape.one_of(&newest)?;
    let arity = 1 + tape.below(3);
    if arity == 1 && tape.chance(3) {
        return Some(x.cast(tape.one_of(DType::ALL)?));
    }
    if arity == 1 && tape.chance(8) {
        let as_wide: Vec<DType> = DType::ALL.iter().copied().filter(|d| d.bits() == x.dtype().bits()).collect();
        return x.try_bits(tape.one_of(&as_wide)?).ok();
    }
    let op = scalar(tape, arity, x.dtype())?;
    let mut operands = vec![x];
    while operands.len() < arity {
        let same: Vec<Term<'s>> = newest.iter().copied().filter(|t| t.dtype() == x.dtype()).collect();
        operands.push(match tape.chance(2) {
            true => scope.constant(x.dtype(), Number::new(x.dtype(), NUMBERS[tape.below(8)])),
            false => tape.one_of(&same)?,
        });
    }
    if op.def().signature == Signature::Select {
        operands[0] = x.cast(DType::Bool);
    }
    if tape.chance(4) && op.def().signature != Signature::Select {
        operands.reverse();
    }
    Term::try_call(op, &operands).ok()
}
