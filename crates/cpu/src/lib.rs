//! Fuseline on processors.
//!
//! A tour, in the order of the data:
//! 1. [`emit`]: a kernel at fixed sizes becomes phases of vector programs;
//! 2. [`vector`]: the language of vector programs;
//! 3. [`code`]: programs that can be called;
//! 4. [`run`]: whole plans on threads.
#![warn(missing_docs)]

pub mod code;
pub mod emit;
pub mod run;
#[cfg(all(unix, any(test, feature = "testing")))]
pub mod testing;
pub mod vector;
#[cfg(target_arch = "x86_64")]
mod x64;
