//! Fuseline: automatic operator fusion.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod error;
pub mod tensor;
