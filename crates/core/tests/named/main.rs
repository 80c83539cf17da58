//! Rows of the table of named operators against plain loops.

mod call;
mod convolution;
mod pooling;
mod quantization;
