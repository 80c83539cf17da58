//! Sorting along an axis.

use super::{Access, Class, Primitive, expect_args};
use crate::error::{Error, Result};
use crate::graph::gradient::{Adjoint, NoGradient, OperandGradients};
use crate::reference::{Buffer, Run, eval_sort};
use crate::tensor::{DType, Dim, TensorType};

/// The elements in order along an axis, and where each came from. Stable; NaN counts as larger than every number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sort {
    /// the axis to sort along
    pub axis: usize,
    /// largest first
    pub descending: bool,
}

impl Primitive for Sort {
    const NAME: &'static str = "sort";
    const CLASS: Class = Class::Opaque;
    const DOC: &'static str =
        "The elements in stable order along an axis (first result) and their old positions (second).";

    fn infer(&self, args: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_args(Self::NAME, args, 1)?;
        if self.axis >= args[0].shape.rank() {
            return Err(Error::invalid(format!("sort along axis {} of a tensor {}", self.axis, args[0])));
        }
        Ok(vec![args[0].clone(), TensorType::new(DType::I64, args[0].shape.clone())])
    }

    fn access(&self, _: &[TensorType]) -> Option<Access> {
        None
    }

    fn eval(&self, args: &[Buffer], run: &mut Run<'_>) -> Result<Vec<Buffer>> {
        // Two results, the operand as numbers of its type, where lines begin, and the order of one of them with what sorting it takes.
        let (count, length) = (args[0].count(), args[0].sizes()[self.axis]);
        let lines = count / length.max(1);
        run.reserve_work(&[&args[0]], 3 * count + lines + 2 * length)?;
        Ok(eval_sort(&args[0].rounded()?, self.axis, self.descending))
    }

    fn gradient<'b>(&self, at: &Adjoint<'_, 'b>) -> std::result::Result<OperandGradients<'b>, NoGradient> {
        Err(NoGradient { primitive: Self::NAME, operands: at.args.len() })
    }

    fn for_each_dim(&self, _: &mut dyn FnMut(&Dim)) {}
}
