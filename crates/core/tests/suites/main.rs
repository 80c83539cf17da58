//! What core promises as a whole: `cargo test -p fuseline --test suites gradients::` runs one of these.

mod attention;
mod gallery;
mod gradients;
mod meaning;
mod recurrent;
mod scalar_accuracy;
