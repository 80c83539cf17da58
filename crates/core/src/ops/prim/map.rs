//! Elementwise computation.

use super::{Access, Class, OperandMap, Primitive, identity_map};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::graph::gradient::{Adjoint, NoGradient, OperandGradients};
use crate::ops::{Expr, ExprNode};
use crate::reference::{Buffer, Run, eval_map};
use crate::tensor::{Dim, Shape, TensorType};

/// One expression at every coordinate. Operands have the shape of the result; broadcasting is a view.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Map {
    /// what to compute
    pub expr: Expr,
    /// the shape of operands and result
    pub shape: Shape,
}

impl Primitive for Map {
    const NAME: &'static str = "map";
    const CLASS: Class = Class::Map;
    const DOC: &'static str = "One scalar expression at every coordinate; all operands have the result's shape.";

    fn infer(&self, args: &[TensorType]) -> Result<Vec<TensorType>> {
        if args.len() != self.expr.args().len() {
            return Err(Error::bug("map: the expression's arguments and the operands differ in number"));
        }
        for (arg, dtype) in args.iter().zip(self.expr.args()) {
            if arg.dtype != *dtype || arg.shape != self.shape {
                let wanted = TensorType::new(*dtype, self.shape.clone());
                return Err(Error::bug(format!("map: an operand is {arg}, the expression takes {wanted}")));
            }
        }
        let rank = self.shape.rank();
        let foreign = |node: &ExprNode| matches!(node, ExprNode::Coord(axis) if usize::from(*axis) >= rank);
        if self.expr.nodes().iter().any(|(node, _)| foreign(node)) {
            return Err(Error::bug("map: the expression mentions an axis that the result does not have"));
        }
        self.shape.check()?;
        Ok(vec![TensorType::new(self.expr.dtype(), self.shape.clone())])
    }

    fn access(&self, args: &[TensorType]) -> Option<Access> {
        let identity = identity_map(self.shape.rank());
        let operand = OperandMap { index: identity.clone(), guard: Vec::new() };
        Some(Access { domain: self.shape.clone(), result: identity, operands: vec![operand; args.len()] })
    }

    fn eval(&self, args: &[Buffer], run: &mut Run<'_>) -> Result<Vec<Buffer>> {
        eval_map(&self.expr, run.sizes(&self.shape)?, args, run).map(|buffer| vec![buffer])
    }

    fn gradient<'b>(&self, at: &Adjoint<'_, 'b>) -> std::result::Result<OperandGradients<'b>, NoGradient> {
        let slopes = (0..at.args.len()).map(|k| self.expr.derivative(k));
        let by = |(slope, arg): (Option<_>, &Tensor<'b>)| {
            let gradient = at.grad(0)? * arg.builder().map(&slope?, &at.args);
            // Where the operand is converted, so is what flows back to it.
            Some(gradient.cast(arg.dtype_or_f32()))
        };
        Ok(slopes.zip(&at.args).map(by).collect())
    }

    fn for_each_dim(&self, f: &mut dyn FnMut(&Dim)) {
        self.shape.dims().iter().for_each(&mut *f);
        for (node, _) in self.expr.nodes() {
            if let ExprNode::Size(dim) = node {
                f(dim);
            }
        }
    }

    fn flops(&self, _: &[TensorType]) -> Dim {
        self.shape.count() * i64::from(self.expr.flops())
    }
}
