//! Front ends: file formats in, graphs out.
//!
//! Comes in: files, which are not trusted. Goes out: decoded models and literals; every size that a file declares is
//! checked against the bytes that are there before memory is set aside for it.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod elements;
mod graph_text;
mod kernel_text;
pub mod mapping;
mod model;
mod npy;
pub mod npz;
pub mod onnx;

pub use graph_text::read_graph;
pub use kernel_text::read_kernel;
pub use model::{Model, Offer, Sizes, Specialised, Tensors};
