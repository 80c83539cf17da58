//! Results in memory of their own.

use fuseline::error::Result;
use fuseline::tensor::{DType, Literal, Shape, TensorType};

use super::block::{Blocks, Held};

/// A dense row-major tensor in memory that nobody else reads or writes: not the session, not another result, not an input.
#[derive(Debug)]
pub struct Owned {
    dtype: DType,
    sizes: Vec<usize>,
    held: Held,
    length: usize,
}

impl Owned {
    pub(super) fn new(dtype: DType, sizes: Vec<usize>, held: Held, length: usize) -> Owned {
        Owned { dtype, sizes, held, length }
    }

    /// A copy of a tensor, to be given away to a run.
    pub fn copy_of(literal: &Literal) -> Result<Owned> {
        let bytes = literal.bytes();
        let held = Blocks::once().copy(&bytes)?.given_away();
        Ok(Owned::new(literal.dtype(), literal.sizes().to_vec(), held, bytes.len()))
    }

    /// Its memory, and how many bytes of it are the tensor.
    pub(super) fn into_memory(self) -> (Held, usize) {
        (self.held, self.length)
    }

    /// Element type and sizes.
    pub fn ty(&self) -> TensorType {
        TensorType::new(self.dtype, self.sizes.iter().copied().collect::<Shape>())
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The sizes.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// Where it lies. Reading and writing so many bytes as [`Owned::byte_count`] says is right as long as this lives.
    pub fn start(&self) -> *mut u8 {
        self.held.block().start()
    }

    /// How many bytes it has.
    pub fn byte_count(&self) -> usize {
        self.length
    }

    /// The same as a tensor that is shared and never written.
    pub fn into_literal(self) -> Result<Literal> {
        Literal::new(self.dtype, self.sizes, self.held.into_bytes(self.length))
    }
}
