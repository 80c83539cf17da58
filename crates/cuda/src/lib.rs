//! Fuseline on NVIDIA GPUs.
//!
//! A tour, in the order of the data:
//! 1. [`print`](mod@print): a kernel becomes CUDA C++ that needs no header, and the launches that run it;
//! 2. [`nvrtc`]: that becomes machine code.
#![warn(missing_docs)]

pub mod nvrtc;
pub mod print;
