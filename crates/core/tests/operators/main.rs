//! Rows of the table of named operators, expanded by hand and evaluated by the reference.

mod call;
mod padding;
mod resizing;
mod searching;
mod shapes;
