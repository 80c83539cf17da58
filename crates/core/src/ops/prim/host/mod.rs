//! Operations that are not loops over tensors: one portable implementation that every device runs.

mod nonzero;
mod suppress;
mod unique;

use super::{Access, Class, Primitive, expect_args};
use crate::error::{Error, Result};
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
    /// slices along an axis that differ: the place of the first of each kind, for each slice the number of its kind,
    /// and the size of each kind
    Unique {
        /// the axis that the slices lie along
        axis: usize,
        /// kinds in ascending order of their elements; otherwise in order of appearance
        sorted: bool,
        /// the number of the symbol that the number of kinds binds
        count: u32,
    },
    /// the boxes with the best scores of each batch and class that do not overlap one another too much, as rows
    /// (batch, class, box); operands: boxes, scores, most boxes, largest overlap, least score
    NonMaxSuppression {
        /// boxes are given by centre and size instead of two corners
        centered: bool,
        /// the number of the symbol that the number of boxes binds
        count: u32,
    },
}

impl HostKind {
    /// The name in text forms.
    pub fn name(&self) -> &'static str {
        match self {
            HostKind::NonZero { .. } => "nonzero",
            HostKind::Unique { .. } => "unique",
            HostKind::NonMaxSuppression { .. } => "suppress",
        }
    }

    /// The value symbol that it binds at run time.
    pub fn binds(&self) -> Option<u32> {
        match self {
            HostKind::NonZero { count }
            | HostKind::Unique { count, .. }
            | HostKind::NonMaxSuppression { count, .. } => Some(*count),
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
        let ints = |dims: Vec<Dim>| TensorType::new(DType::I64, Shape::from(dims));
        match &self.kind {
            HostKind::NonZero { count } => {
                expect_args("host.nonzero", args, 1)?;
                Ok(vec![ints(vec![args[0].shape.rank().into(), Symbol::Value(*count).into()])])
            }
            HostKind::Unique { axis, count, .. } => {
                expect_args("host.unique", args, 1)?;
                let size = args[0].shape.dims().get(*axis).cloned();
                let size = size.ok_or_else(|| Error::bug(format!("unique along axis {axis} of {}", args[0])))?;
                let kinds = Dim::from(Symbol::Value(*count));
                Ok(vec![ints(vec![kinds.clone()]), ints(vec![size]), ints(vec![kinds])])
            }
            HostKind::NonMaxSuppression { count, .. } => {
                expect_args("host.suppress", args, 5)?;
                suppress::check(&args[0], &args[1])?;
                Ok(vec![ints(vec![Symbol::Value(*count).into(), Dim::int(3)])])
            }
        }
    }

    fn access(&self, _: &[TensorType]) -> Option<Access> {
        None
    }

    fn eval(&self, args: &[Buffer], _: &mut Run<'_>) -> Result<Vec<Buffer>> {
        match &self.kind {
            HostKind::NonZero { .. } => Ok(vec![nonzero::nonzero(&args[0])]),
            HostKind::Unique { axis, sorted, .. } => Ok(unique::unique(&args[0], *axis, *sorted)),
            HostKind::NonMaxSuppression { centered, .. } => {
                suppress::suppress(args, *centered).map(|boxes| vec![boxes])
            }
        }
    }

    fn gradient<'b>(&self, at: &Adjoint<'_, 'b>) -> std::result::Result<OperandGradients<'b>, NoGradient> {
        Err(NoGradient { primitive: Self::NAME, operands: at.args.len() })
    }

    fn for_each_dim(&self, _: &mut dyn FnMut(&Dim)) {}
}
