//! Models on devices: what the command and the Python package share, and what programs in Rust begin with.
//!
//! Comes in: a model and a device. Goes out: outputs for inputs ([`Session`]), and the plan in words ([`plan`]). The environment is
//! read in [`gpu`] and nowhere else.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod allowance;
pub mod explain;
pub mod gpu;
pub mod machine;
pub mod model;
pub mod patience;
pub mod plan;
pub mod profile;
pub mod quantity;
pub mod rates;
pub mod session;
pub mod table;

pub use machine::{Machine, Output};
pub use model::Model;
pub use session::{Options, Session};

pub use fuseline_cuda::gpu::Gpu;
pub use fuseline_cuda::memory::DeviceTensor;
