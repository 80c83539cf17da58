//! Parts that take different bits of the same elements: integers that were packed, several to a byte.

use smallvec::SmallVec;

use super::Union;
use crate::ops::{Number, Scalar, Term};
use crate::passes::simplify_algebra::{mask_keeps, with_constant};
use crate::tensor::{Class, Dim};

impl<'s> Union<'_, 's> {
    /// Constants of an integer type, one for each of equally long parts: a multiple of the part's number, and a constant.
    pub(super) fn join_integers(&self, terms: &[Term<'s>]) -> Option<Term<'s>> {
        let dtype = terms[0].dtype();
        let numbers: SmallVec<[i64; 2]> = terms.iter().filter_map(|t| number(*t)).collect();
        let size = &self.parts.sizes[0];
        if numbers.len() != terms.len() || !dtype.is_int() || self.parts.sizes.iter().any(|s| s != size) {
            return None;
        }
        let step = numbers[1].checked_sub(numbers[0])?;
        let in_line = numbers.windows(2).all(|pair| pair[1].checked_sub(pair[0]) == Some(step));
        let part = Dim::axis(self.parts.axis).floordiv(size);
        in_line.then(|| self.scope.index(&(part * step + numbers[0])).cast(dtype))
    }

    /// Parts of which some are shifted or masked and others are not: those are shifted by 0, and masked by what keeps them.
    pub(super) fn join_bits(&mut self, terms: &[Term<'s>]) -> Option<Term<'s>> {
        let dtype = terms[0].dtype();
        if dtype.class() != Class::Unsigned {
            return None;
        }
        [Scalar::And, Scalar::Shr, Scalar::Shl].into_iter().find_map(|op| {
            let mask = terms.iter().filter_map(|t| with_constant(*t, op)).map(|(_, c)| c).max()?;
            let idle = |t: Term<'s>| match op {
                Scalar::And => mask_keeps(mask, t).then_some(mask),
                _ => Some(0),
            };
            let taken = |t: &Term<'s>| with_constant(*t, op).or_else(|| Some((*t, idle(*t)?)));
            let taken: SmallVec<[(Term<'s>, i64); 2]> = terms.iter().map(taken).collect::<Option<_>>()?;
            let inner: SmallVec<[Term<'s>; 2]> = taken.iter().map(|(t, _)| *t).collect();
            let constant = |(_, c): &(Term<'s>, i64)| self.scope.constant(dtype, Number::Int(*c));
            let constants: SmallVec<[Term<'s>; 2]> = taken.iter().map(constant).collect();
            Some(Term::call(op, &[self.join(&inner)?, self.join(&constants)?]))
        })
    }
}

fn number(term: Term<'_>) -> Option<i64> {
    match term.as_const()? {
        Number::Int(n) => Some(n),
        Number::Float(_) => None,
    }
}
