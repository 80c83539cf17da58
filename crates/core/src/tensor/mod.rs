//! Element types, sizes, shapes and constant data: the nouns that every later stage shares.
//!
//! Comes in: nothing. Goes out: [`DType`], [`Dim`], [`Shape`], [`TensorType`], [`Literal`].
//! Never here: operations on tensors.

mod dim;
mod drawn;
mod dtype;
mod layout;
mod literal;
mod seeded;
mod shape;
mod spread;
mod text;

pub(crate) use dim::Bound;
pub(crate) use dim::inner_divisor;
pub use dim::{Algebra, Dim, Env, Range, Ranges, Symbol, gcd};
pub use drawn::Drawn;
pub use dtype::{Class, DType, FloatFormat, Specials};
pub use layout::Layout;
pub use literal::{Literal, Source};
pub use seeded::Seeded;
pub(crate) use shape::element_count;
pub use shape::{MAX_RANK, Shape, TensorType};
pub use spread::Spread;
