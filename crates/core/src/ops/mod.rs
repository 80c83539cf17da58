//! The three tables: what the language consists of, each thing declared once.
//!
//! 1. [`Scalar`]: functions of numbers, with value, cost, accuracy and derivative in one row.
//! 2. [`Prim`]: primitive operations on tensors, each with type inference, index maps, reference value and gradient.
//! 3. [`named`]: the operators that users know (Softmax, Conv, Attention …) as expansions into primitives.
//!
//! Never here: how a device computes any of it.

mod expr;
mod index;
pub mod named;
pub mod normal;
pub mod prim;
pub(crate) mod range;
mod scalar;
mod threshold;

pub use expr::{Expr, ExprNode, Number, Scope, Term, is_kept};
pub use prim::Prim;
pub use scalar::{Scalar, ScalarDef, Signature};
pub use threshold::{Threshold, threshold};
