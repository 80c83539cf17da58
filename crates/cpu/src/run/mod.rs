//! Running programs: threads, memory, sessions.
//!
//! Comes in: a program with a plan of it. Goes out: outputs for inputs. A plan is looked at once (`load`); at the first run of
//! every new combination of sizes its kernels are made and its memory is divided (`specialize`); a run (`execute`) then only
//! calls them.

pub mod block;
mod constant;
pub mod delay;
mod engine;
mod execute;
pub mod gauge;
mod kernel;
mod launch;
mod load;
mod owned;
mod pack;
pub mod pool;
mod session;
mod span;
mod specialize;
#[cfg(test)]
mod tests;
mod workshop;

pub use constant::Release;
pub use kernel::LoneKernel;
pub use owned::Owned;
pub use session::{CpuDevice, Session};
pub use span::Span;
