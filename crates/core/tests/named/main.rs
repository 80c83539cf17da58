//! Rows of the table of named operators against plain loops.

mod call;
mod convolution;
mod einsum;
mod packed;
mod pooling;
mod quantization;
mod vision;
