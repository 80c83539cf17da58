//! Shared machinery of the test suites.

pub mod node_test;
pub mod onnx_data;
