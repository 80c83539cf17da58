//! Rows of the table of named operators, expanded by hand and evaluated by the reference.

mod call;
mod shapes;
