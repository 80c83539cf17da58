//! Several tensors behind one another.

use super::{Access, Class, Guard, OperandMap, Primitive, identity_map};
use crate::error::{Error, Result};
use crate::graph::gradient::{Adjoint, NoGradient, OperandGradients};
use crate::reference::{Buffer, Run};
use crate::tensor::{Dim, TensorType};

/// The operands behind one another along an axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Concat {
    /// the axis along which sizes add up
    pub axis: usize,
}

impl Primitive for Concat {
    const NAME: &'static str = "concat";
    const CLASS: Class = Class::View;
    const DOC: &'static str = "The operands behind one another along an axis.";

    fn infer(&self, args: &[TensorType]) -> Result<Vec<TensorType>> {
        let Some(first) = args.first() else { return Err(Error::invalid("concat of nothing")) };
        let mut dims = first.shape.dims().to_vec();
        if self.axis >= dims.len() {
            return Err(Error::invalid(format!("concat along axis {} of a tensor {first}", self.axis)));
        }
        for arg in &args[1..] {
            let fits = arg.dtype == first.dtype && arg.shape.rank() == dims.len();
            let same = |k: usize| k == self.axis || arg.shape[k] == dims[k];
            if !fits || !(0..dims.len()).all(same) {
                return Err(Error::invalid(format!("concat along axis {}: {first} and {arg} do not fit", self.axis)));
            }
            dims[self.axis] = &dims[self.axis] + &arg.shape[self.axis];
        }
        let ty = TensorType::new(first.dtype, dims);
        ty.shape.check()?;
        Ok(vec![ty])
    }

    fn access(&self, args: &[TensorType]) -> Option<Access> {
        let result = self.infer(args).ok()?.remove(0);
        let rank = result.shape.rank();
        let mut before = Dim::int(0);
        let mut operands = Vec::with_capacity(args.len());
        for arg in args {
            let mut index = identity_map(rank);
            index[self.axis] = &index[self.axis] - &before;
            let guard = Guard { index: index[self.axis].clone(), bound: arg.shape[self.axis].clone() };
            operands.push(OperandMap { index, guard: vec![guard] });
            before = before + &arg.shape[self.axis];
        }
        Some(Access { domain: result.shape, result: identity_map(rank), operands })
    }

    fn eval(&self, args: &[Buffer], _: &mut Run<'_>) -> Result<Vec<Buffer>> {
        Ok(vec![Buffer::concat(args, self.axis)])
    }

    fn gradient<'b>(&self, at: &Adjoint<'_, 'b>) -> std::result::Result<OperandGradients<'b>, NoGradient> {
        crate::graph::gradient::of_concat(self, at)
    }

    fn for_each_dim(&self, _: &mut dyn FnMut(&Dim)) {}
}
