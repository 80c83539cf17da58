//! What programs that measure share.

mod case;

pub use case::{Case, arguments, isa, networks_of_gallery, sizes};
