//! Running results of folds.

use fuseline::ops::prim::Monoid;
use fuseline::tensor::DType;
use fuseline::tile::{Op, StepId};

use super::super::code::Code;
use super::super::nest::Nest;
use super::super::{element, expression, scalar};
use super::Body;

/// How a fold runs: the type of its running result, where it begins, and how it goes on.
#[derive(Clone, Debug)]
pub(in super::super) struct Accumulator {
    /// its type
    pub ty: String,
    /// the fold of nothing
    pub neutral: Code,
    /// the functor that folds two
    pub functor: &'static str,
    monoid: Monoid,
    /// the type of its elements
    dtype: DType,
    /// the type of the result
    result: DType,
}

impl Accumulator {
    pub fn of(nest: &Nest<'_>, id: StepId) -> Accumulator {
        let step = nest.kernel.step(id);
        let (monoid, dtype) = match &step.op {
            Op::Reduce { monoid, arg, .. } => (*monoid, nest.kernel.step(*arg).dtype),
            Op::Dot { accumulator, .. } => (Monoid::Sum, *accumulator),
            _ => (Monoid::Sum, step.dtype),
        };
        let held = element::held(dtype);
        let (ty, neutral) = if monoid.is_position() {
            let ty = format!("Best<{held}>");
            let none = format!("{ty}{{0, -1}}");
            (ty, Code::atom(none))
        } else {
            (held.to_owned(), element::constant(dtype, monoid.neutral(dtype)))
        };
        let functor = match monoid {
            Monoid::Sum => "Sum()",
            Monoid::Prod => "Prod()",
            Monoid::Max => "Max()",
            Monoid::Min => "Min()",
            Monoid::ArgMax => "Position<true, false>()",
            Monoid::ArgMin => "Position<false, false>()",
            Monoid::ArgMaxLast => "Position<true, true>()",
            Monoid::ArgMinLast => "Position<false, true>()",
        };
        Accumulator { ty, neutral, functor, monoid, dtype, result: step.dtype }
    }

    /// Two running results as one.
    pub fn folded(&self, a: &Code, b: &Code) -> Code {
        use fuseline::ops::Scalar;
        let op = match self.monoid {
            Monoid::Sum => Scalar::Add,
            Monoid::Prod => Scalar::Mul,
            Monoid::Max => Scalar::Max,
            Monoid::Min => Scalar::Min,
            _ => return Code::call(self.functor, &[a.clone(), b.clone()]),
        };
        scalar::apply(op, self.dtype, &[a.clone(), b.clone()])
    }

    /// A product of two factors in the type of the running result.
    pub(super) fn product(&self, a: &Code, b: &Code) -> Code {
        if self.dtype.is_float() && self.dtype != DType::F64 {
            return a.times(b);
        }
        let held = element::held(self.dtype);
        let (a, b) = (Code::cast(held, a), Code::cast(held, b));
        scalar::apply(fuseline::ops::Scalar::Mul, self.dtype, &[a, b])
    }

    /// The value of the fold, of its running result at the end.
    pub fn result(&self, body: &Body<'_>, name: &str) -> Code {
        if self.monoid.is_position() {
            return Code::atom(format!("{name}.at"));
        }
        let rounds = body.rounds_everything() && element::is_wrapped(self.result);
        let narrow = self.result.is_int() && self.result.bits() < 32;
        if rounds {
            expression::rounded(self.result, Code::atom(name))
        } else if narrow || self.result != self.dtype && !self.result.is_float() {
            expression::wrapped(self.result, Code::atom(name))
        } else {
            Code::atom(name)
        }
    }
}
