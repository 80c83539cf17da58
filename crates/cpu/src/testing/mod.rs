//! What tests of programs share: memory between pages that may not be touched, random programs, and a way to make a failing one
//! small.

pub mod case;
pub mod guard;
pub mod random;

pub use case::{Case, Contents, Outcome};
pub use guard::{Guarded, Side};
