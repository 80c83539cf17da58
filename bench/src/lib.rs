//! What programs that measure share.

mod case;

pub use case::{Case, arguments, networks_of_gallery, sizes};
