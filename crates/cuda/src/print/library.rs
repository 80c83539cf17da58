//! Products that a library of the device's maker can compute as well: plain ones, of matrices that lie in memory as they are.

use fuseline::ops::ExprNode;
use fuseline::tensor::{DType, Dim, Symbol};
use fuseline::tile::{Op, StepId};

use super::nest::{Access, Nest, is_multiple, slope};
use super::{Parameter, element};

/// A product of matrices, maybe many of them, by sizes that are not fixed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// rows and columns of the result, steps of the sum, matrices of a batch
    pub sizes: [Dim; 4],
    /// the factors, and the result
    pub left: Matrix,
    /// the right factor
    pub right: Matrix,
    /// the result
    pub result: Matrix,
    /// whether the left factor's rows are steps of the sum, and whether the right one's are columns of the result
    pub turned: [bool; 2],
    /// the type of the factors, and that of the result
    pub dtypes: (DType, DType),
}

/// A matrix in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// what it is to the kernel
    pub parameter: Parameter,
    /// elements between its rows
    pub pitch: Dim,
    /// elements between matrices of a batch
    pub stride: Dim,
}

impl Matrix {
    /// The matrix that is read or written, whose rows lie along one axis and whose neighbours along another; there may be one for every
    /// point of a third.
    pub(super) fn of(access: &Access, rows: usize, along: usize, batch: Option<usize>) -> Option<Matrix> {
        let is_plain = access.checked.is_empty() && access.guards.is_empty() && access.reads.is_empty();
        let at = |axis: usize| slope(&access.offset, axis).filter(|slope| !mentions_axes(slope));
        let begins = access.offset.substitute(&|symbol| matches!(symbol, Symbol::Axis(_)).then(|| Dim::int(0)));
        let (pitch, next) = (at(rows)?, at(along)?);
        let stride = batch.map_or(Some(Dim::int(0)), at)?;
        let fits = is_plain && next.is(1) && begins.is(0) && pitch.as_int().is_none_or(|pitch| pitch > 1);
        fits.then(|| Matrix { parameter: access.tensor.parameter.clone(), pitch, stride })
    }
}

impl Matrix {
    /// Whether all of its rows begin where 16 bytes do: the library is slow for others, however large they are.
    pub(super) fn is_aligned(&self, dtype: DType) -> bool {
        is_multiple(&self.pitch, 16 / element::bytes(dtype))
    }
}

fn mentions_axes(dim: &Dim) -> bool {
    dim.mentions(|symbol| matches!(symbol, Symbol::Axis(_)))
}

/// Whether a step is nothing but another one, rounded to its type.
pub(super) fn is_itself(nest: &Nest<'_>, id: StepId, of: StepId) -> bool {
    match &nest.kernel.step(id).op {
        _ if id == of => true,
        Op::Map { expr, args } => {
            let is_cast = matches!(expr.nodes(), [(ExprNode::Arg(0), _), (ExprNode::Cast(0), to)] if to.is_float());
            is_cast && is_itself(nest, args[0], of)
        }
        _ => false,
    }
}
