//! Fuseline on processors.
//!
//! A tour, in the order of the data:
//! 1. [`emit`]: a kernel at fixed sizes becomes phases of vector programs;
//! 2. [`math`]: scalar functions and expressions as vector code;
//! 3. [`vector`]: the language of vector programs;
//! 4. [`code`]: programs that can be called;
//! 5. [`run`]: whole plans on threads; [`here`]: what they are planned for.
#![warn(missing_docs)]

pub mod code;
pub mod emit;
pub mod here;
pub mod math;
pub mod run;
#[cfg(all(unix, any(test, feature = "testing")))]
pub mod testing;
pub mod vector;
#[cfg(target_arch = "x86_64")]
mod x64;
