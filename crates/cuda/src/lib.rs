//! Fuseline on NVIDIA GPUs.
//!
//! A tour, in the order of the data:
//! 1. [`print`](mod@print): a kernel becomes CUDA C++ that needs no header, and the launches that run it;
//! 2. [`nvrtc`]: that becomes machine code, which a [`cache`] keeps;
//! 3. [`gpu`]: the driver, launches; [`memory`]: blocks and tensors on the device;
//! 4. [`run`]: whole plans.
#![warn(missing_docs)]

pub mod cache;
pub mod cublas;
mod driver;
pub mod gpu;
pub mod memory;
pub mod nvrtc;
pub mod print;
pub mod run;
mod upload;
