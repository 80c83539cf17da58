//! Fuseline: automatic operator fusion.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod analysis;
pub mod compare;
mod cursor;
pub mod error;
pub mod gallery;
pub mod graph;
pub mod ops;
pub mod passes;
pub mod reference;
pub mod tensor;
