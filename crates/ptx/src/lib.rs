//! PTX on the host: what NVRTC makes of a printed kernel is run here, thread by thread, so that tests see what a kernel computes where there is no GPU.
//!
//! Slow, and strict: nothing outside of a tensor is touched, accesses lie as the device wants them, shared memory holds NaN before it is written, copies that nobody
//! waited for have not happened, and threads that wait for each other for ever are told. What it does not know is an error that says so.

mod instruction;
mod machine;
mod memory;
mod parse;
mod scalar;
mod step;
mod warp;

pub use machine::{Launch, Order};
pub use memory::{Memory, Tensor};
pub use parse::{Function, Module};
