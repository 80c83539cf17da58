//! What the command and the Python package share: where devices are found, plans in words, numbers for people.
//!
//! The environment is read in `gpu` and nowhere else.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod gpu;
pub mod plan;
pub mod quantity;
pub mod table;
