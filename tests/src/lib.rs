//! Shared machinery of the test suites.

pub mod agree;
pub mod attentions;
pub mod drawn;
pub mod extremes;
pub mod fuzz;
pub mod generate;
pub mod growth;
pub mod kernel_gallery;
pub mod malicious;
pub mod model_maker;
pub mod node_test;
pub mod nvrtc;
pub mod onnx_data;
pub mod operators;
pub mod planned;
pub mod ptx;
pub mod round_trip;
pub mod spellings;
pub mod wheel;
