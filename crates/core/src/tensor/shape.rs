//! Shapes and tensor types.

use std::fmt;

use super::{DType, Dim, Env};
use crate::error::{Error, Result};

/// The sizes of a tensor, outermost first. Rank 0 and sizes of 0 are ordinary.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Shape(Vec<Dim>);

/// No tensor has more axes than this; ONNX models stay below ten.
pub const MAX_RANK: usize = 64;

/// No size is a longer expression than this (see [`Dim::complexity`]), and no count of elements a longer sum: what is built of
/// sizes must not outgrow the graph.
const MAX_COMPLEXITY: u32 = 1024;

impl Shape {
    /// A shape with these sizes.
    pub fn new(dims: impl IntoIterator<Item = impl Into<Dim>>) -> Shape {
        Shape(dims.into_iter().map(Into::into).collect())
    }

    /// The shape of a scalar.
    pub fn scalar() -> Shape {
        Shape(Vec::new())
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// The sizes.
    pub fn dims(&self) -> &[Dim] {
        &self.0
    }

    /// The number of elements.
    pub fn count(&self) -> Dim {
        self.0.iter().product()
    }

    /// The sizes as numbers, when all are.
    pub fn as_ints(&self) -> Option<Vec<usize>> {
        self.0.iter().map(|d| d.as_int().and_then(|n| usize::try_from(n).ok())).collect()
    }

    /// The sizes under a binding of the symbols; an error for negative sizes or counts over 64 bits.
    pub fn eval(&self, env: &Env) -> Result<Vec<usize>> {
        let sizes = self.extents(env)?;
        element_count(&sizes)?;
        Ok(sizes)
    }

    /// As [`Shape::eval`], of axes that no tensor need have all of: products side by side have columns each.
    pub fn extents(&self, env: &Env) -> Result<Vec<usize>> {
        let extent = |dim: &Dim| {
            let n = dim.eval(env)?;
            usize::try_from(n).map_err(|_| Error::invalid(format!("the size {dim} is {n}, below zero")))
        };
        self.0.iter().map(extent).collect()
    }

    /// Row-major strides in elements.
    pub fn strides(&self) -> Vec<Dim> {
        let mut strides = vec![Dim::int(1); self.rank()];
        for k in (1..self.rank()).rev() {
            strides[k - 1] = &strides[k] * &self.0[k];
        }
        strides
    }

    /// The row-major position of the element at coordinates `index`.
    pub fn flat_index(&self, index: &[Dim]) -> Dim {
        index.iter().zip(self.strides()).map(|(i, s)| i * s).sum()
    }

    /// Refuses more axes than any tensor may have: before anything is done for each of them.
    pub(crate) fn check_rank(rank: usize) -> Result<()> {
        if rank > MAX_RANK {
            return Err(Error::limit(format!("a tensor of {rank} axes (the limit is {MAX_RANK})")));
        }
        Ok(())
    }

    /// Refuses shapes that no program can mean: a constant negative size, too many axes, expressions that are too long, or a
    /// constant element count that does not fit into 48 bits.
    pub fn check(&self) -> Result<()> {
        Shape::check_rank(self.rank())?;
        if let Some(axis) = self.0.iter().position(|dim| dim.complexity() > MAX_COMPLEXITY) {
            let what = format!("the size of axis {axis} is an expression of more than {MAX_COMPLEXITY} parts");
            return Err(Error::limit(what));
        }
        let summands = self.0.iter().fold(1usize, |product, dim| product.saturating_mul(dim.summands().max(1)));
        if summands > MAX_COMPLEXITY as usize {
            return Err(Error::limit(format!("the count of elements is a sum of more than {MAX_COMPLEXITY} products")));
        }
        let mut known = 1i64;
        for dim in self.0.iter().filter_map(Dim::as_int).filter(|n| *n != 0) {
            if dim < 0 {
                return Err(Error::invalid(format!("negative size in shape {self}")));
            }
            known = known
                .checked_mul(dim)
                .filter(|n| *n < 1 << 48)
                .ok_or_else(|| Error::limit(format!("shape {self} has more than 2^48 elements")))?;
        }
        Ok(())
    }
}

/// The number of elements of concrete sizes, or an error when it does not fit.
pub(crate) fn element_count(sizes: &[usize]) -> Result<usize> {
    if sizes.contains(&0) {
        return Ok(0);
    }
    let count = sizes.iter().try_fold(1usize, |p, n| p.checked_mul(*n)).filter(|n| *n < 1 << 48);
    count.ok_or_else(|| Error::limit(format!("a tensor of sizes {sizes:?} has more than 2^48 elements")))
}

impl std::ops::Index<usize> for Shape {
    type Output = Dim;
    fn index(&self, axis: usize) -> &Dim {
        &self.0[axis]
    }
}

impl<D: Into<Dim>> FromIterator<D> for Shape {
    fn from_iter<I: IntoIterator<Item = D>>(dims: I) -> Shape {
        Shape::new(dims)
    }
}

impl From<Vec<Dim>> for Shape {
    fn from(dims: Vec<Dim>) -> Shape {
        Shape(dims)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (k, dim) in self.0.iter().enumerate() {
            write!(f, "{}{dim}", if k == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Element type and shape.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorType {
    /// element type
    pub dtype: DType,
    /// sizes
    pub shape: Shape,
}

impl TensorType {
    /// A tensor type.
    pub fn new(dtype: DType, shape: impl Into<Shape>) -> TensorType {
        TensorType { dtype, shape: shape.into() }
    }

    /// Checks that a tensor is of this type under a binding of symbols. A size that is one free symbol binds it; a size
    /// that mentions free symbols otherwise is not looked at.
    pub fn bind(&self, dtype: DType, sizes: &[usize], env: &mut Env) -> Result<()> {
        let disagree = || Error::invalid(format!("a tensor {dtype}{sizes:?} where {self} is wanted"));
        if self.dtype != dtype || self.shape.rank() != sizes.len() {
            return Err(disagree());
        }
        for (dim, size) in self.shape.dims().iter().zip(sizes) {
            let size = i64::try_from(*size).map_err(|_| disagree())?;
            match dim.as_symbol() {
                Some(symbol) if env.get(symbol).is_none() => {
                    env.bind(symbol.clone(), size);
                }
                _ if dim.mentions(|s| env.get(s).is_none()) => {}
                _ => {
                    let wanted = dim.eval(env)?;
                    if wanted != size {
                        let why = format!("{dim} is {wanted} here");
                        return Err(Error::invalid(format!(
                            "a tensor {dtype}{sizes:?} where {self} is wanted ({why})"
                        )));
                    }
                }
            }
        }
        Ok(())
    }

    /// The bytes that a tensor of this type occupies.
    pub fn bytes(&self) -> Dim {
        (self.shape.count() * self.dtype.bits() as i64).ceildiv(&Dim::int(8))
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}

impl fmt::Debug for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
