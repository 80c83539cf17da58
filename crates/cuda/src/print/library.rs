//! Products that a library of the device's maker can compute as well: plain ones, of matrices that lie in memory as they are.

use fuseline::ops::{ExprNode, Scalar};
use fuseline::tensor::{DType, Dim, Symbol};
use fuseline::tile::{Op, Rounding, StepId};

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
    /// what is added to the product
    pub added: Added,
    /// how many rows of the result lie between two that begin alike in 16 bytes: the library is asked for every such set of rows by itself, so
    /// that it only sees matrices that are aligned
    pub sets: i64,
}

impl Library {
    /// Which columns of a set of rows the library is asked for: from the first that 16 bytes begin with, and how many. It is slow where that is no
    /// multiple of eight. Others compute the rest, which is less than `EDGE` columns at each end.
    pub fn span(&self, set: i64) -> Option<(i64, i64)> {
        let (pitch, columns) = (self.result.pitch.as_int()?, self.sizes[1].as_int()?);
        let from = (-set * pitch).rem_euclid(lane(self.dtypes.1));
        (self.sets > 1).then_some((from, (columns - from) / EDGE * EDGE))
    }
}

/// Columns at each end of a result that a library is not asked for, where rows are not aligned.
pub(super) const EDGE: i64 = 8;

/// Elements of 16 bytes.
fn lane(dtype: DType) -> i64 {
    16 / element::bytes(dtype)
}

/// What a library adds to a product, of the type of the result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// a number for every column
    pub bias: Option<Parameter>,
    /// a number for every result
    pub matrix: Option<Matrix>,
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
        let at = |axis: usize| slope(&access.offset, axis).filter(|slope| !mentions_axes(slope));
        let pitch = at(rows)?;
        let stride = batch.map_or(Some(Dim::int(0)), at)?;
        let fits = is_line(access, along) && pitch.as_int().is_none_or(|pitch| pitch > 1);
        fits.then(|| Matrix { parameter: access.tensor.parameter.clone(), pitch, stride })
    }
}

impl Matrix {
    /// Whether all of its rows begin where 16 bytes do: the library is slow for others, however large they are.
    pub(super) fn is_aligned(&self, dtype: DType) -> bool {
        is_multiple(&self.pitch, lane(dtype))
    }

    /// After how many rows one begins again as the first does in 16 bytes; none where only a run tells.
    pub(super) fn sets(&self, dtype: DType) -> Option<i64> {
        if self.is_aligned(dtype) {
            return Some(1);
        }
        let pitch = self.pitch.as_int()?;
        (1..=lane(dtype)).find(|rows| rows * pitch % lane(dtype) == 0)
    }
}

/// Whether what is read or written lies side by side along an axis, from the beginning of a tensor on.
pub(super) fn is_line(access: &Access, along: usize) -> bool {
    let is_plain = access.checked.is_empty() && access.guards.is_empty() && access.reads.is_empty();
    let begins = access.offset.substitute(&|symbol| matches!(symbol, Symbol::Axis(_)).then(|| Dim::int(0)));
    is_plain && begins.is(0) && slope(&access.offset, along).is_some_and(|next| next.is(1))
}

fn mentions_axes(dim: &Dim) -> bool {
    dim.mentions(|symbol| matches!(symbol, Symbol::Axis(_)))
}

/// What a step adds to another one, if it is nothing but their sum, rounded to its type: loads, no two alike.
pub(super) fn added(nest: &Nest<'_>, id: StepId, to: StepId) -> Option<Vec<StepId>> {
    let mut terms = Vec::new();
    sum_of(nest, id, to, &mut terms)?;
    let own = terms.iter().position(|term| *term == to)?;
    terms.swap_remove(own);
    // Which are added first is the library's choice.
    let may_choose = terms.is_empty() || nest.kernel.rounding != Rounding::Every;
    (may_choose && !terms.contains(&to)).then_some(terms)
}

/// The steps that a step is the sum of, down to loads and one that is asked for.
fn sum_of(nest: &Nest<'_>, id: StepId, end: StepId, terms: &mut Vec<StepId>) -> Option<()> {
    match &nest.kernel.step(id).op {
        _ if id == end => terms.push(id),
        Op::Load { .. } => terms.push(id),
        Op::Map { expr, args } => {
            let nodes = expr.nodes();
            let mut todo = vec![(nodes.len() - 1) as u32];
            while let Some(node) = todo.pop() {
                match &nodes[node as usize] {
                    (ExprNode::Arg(arg), _) => sum_of(nest, args[*arg as usize], end, terms)?,
                    (ExprNode::Apply(Scalar::Add, sides), DType::F32) => todo.extend(sides.iter().copied()),
                    // The last thing that is done, or what was narrow and is added as f32.
                    (ExprNode::Cast(of), to) if to.is_float() && node as usize + 1 == nodes.len() => todo.push(*of),
                    (ExprNode::Cast(of), DType::F32) if nodes[*of as usize].1.is_float() => todo.push(*of),
                    _ => return None,
                }
            }
        }
        _ => return None,
    }
    Some(())
}
