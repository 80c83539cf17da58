//! Rows of the table of named operators against plain loops.

mod call;
mod cast;
mod classify;
mod contributed;
mod convolution;
mod einsum;
mod elementwise;
mod feature;
mod loss;
mod multi_head;
mod normalization;
mod packed;
mod pooling;
mod quantization;
mod random;
mod reduction;
mod signal;
mod support;
mod text;
mod tree;
mod vectorize;
mod vision;
