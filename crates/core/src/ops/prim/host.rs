//! Operations that are not loops over tensors: one portable implementation that every device runs.

use super::{Access, Class, Primitive, expect_args};
use crate::error::Result;
use crate::graph::gradient::{Adjoint, NoGradient, OperandGradients};
use crate::reference::{Buffer, Run};
use crate::tensor::{DType, Dim, Shape, Symbol, TensorType};

/// Which host operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostKind {
    /// coordinates of the elements that are not zero, one column each, in row-major order; the count is a value symbol
    NonZero {
        /// the number of the symbol that the count binds
        count: u32,
    },
}

impl HostKind {
    /// The name in text forms.
    pub fn name(&self) -> &'static str {
        match self {
            HostKind::NonZero { .. } => "nonzero",
        }
    }
}

/// An operation with one portable implementation; opaque to fusion.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host {
    /// which one
    pub kind: HostKind,
}

impl Primitive for Host {
    const NAME: &'static str = "host";
    const CLASS: Class = Class::Opaque;
    const DOC: &'static str = "An operation that is not a loop over tensors, with one portable implementation.";

    fn infer(&self, args: &[TensorType]) -> Result<Vec<TensorType>> {
        match &self.kind {
            HostKind::NonZero { count } => {
                expect_args("host.nonzero", args, 1)?;
                let dims = [Dim::from(args[0].shape.rank()), Symbol::Value(*count).into()];
                Ok(vec![TensorType::new(DType::I64, Shape::new(dims))])
            }
        }
    }

    fn access(&self, _: &[TensorType]) -> Option<Access> {
        None
    }

    fn eval(&self, args: &[Buffer], _: &mut Run<'_>) -> Result<Vec<Buffer>> {
        match &self.kind {
            HostKind::NonZero { .. } => Ok(vec![nonzero(&args[0])]),
        }
    }

    fn gradient<'b>(&self, at: &Adjoint<'_, 'b>) -> std::result::Result<OperandGradients<'b>, NoGradient> {
        Err(NoGradient { primitive: Self::NAME, operands: at.args.len() })
    }

    fn for_each_dim(&self, _: &mut dyn FnMut(&Dim)) {}
}

fn nonzero(x: &Buffer) -> Buffer {
    let hits: Vec<usize> = if x.dtype().is_float() {
        x.to_floats().iter().enumerate().filter(|(_, v)| **v != 0.0).map(|(k, _)| k).collect()
    } else {
        x.to_ints().iter().enumerate().filter(|(_, v)| **v != 0).map(|(k, _)| k).collect()
    };
    let sizes = x.sizes();
    let mut coordinates = Vec::with_capacity(sizes.len() * hits.len());
    for axis in 0..sizes.len() {
        let stride: usize = sizes[axis + 1..].iter().product();
        coordinates.extend(hits.iter().map(|k| (k / stride % sizes[axis]) as i64));
    }
    Buffer::ints(DType::I64, vec![sizes.len(), hits.len()], coordinates)
}
