//! The corpus of spellings: one computation in all the ways in which exporters write it.
//!
//! A row is a graph of ONNX's operators, expanded as an import expands them. Rows of one class mean the same: they agree
//! on the same inputs, and they must become the same kernels. Rows of different classes of a family look alike and are
//! not the same, because a rounding, a fill value or a place of an epsilon differs.

mod attention;
mod data;
mod exported;
mod further;
mod further_attention;
mod gelu;
mod group_norm;
mod grouped_attention;
mod layer;
mod layer_norm;
mod layer_norm_backward;
mod masked_attention;
mod masks_of_truths;
mod narrow_attention;
mod picture;
mod picture_attention;
mod planned;
mod product;
mod quantized;
mod rms_norm;
mod rope;
mod row;
mod sheet;
mod silu;
mod skip_norm;
mod softmax;
mod unseen;
mod unseen_attention;

pub use data::{bindings, inputs};
pub use planned::{Planned, other_sizes, usual_sizes};
pub use sheet::Sheet;

use fuseline::error::Result;
use fuseline::graph::Graph;

/// One way to write a computation.
#[derive(Clone, Copy, Debug)]
pub struct Spelling {
    /// what is computed, in a word
    pub family: &'static str,
    /// what it is exactly: rows of one family and class must become the same kernels
    pub class: &'static str,
    /// how this row writes it
    pub name: &'static str,
    draw: fn(&Sheet),
}

impl Spelling {
    /// The graph, as a front end would build it.
    pub fn graph(&self) -> Result<Graph> {
        let sheet = Sheet::new(self.family);
        (self.draw)(&sheet);
        sheet.finish()
    }
}

/// Every row, family by family.
pub fn all() -> impl Iterator<Item = &'static Spelling> {
    FAMILIES.iter().copied().flatten()
}

/// The rows by class, in the order of the table.
pub fn classes() -> Vec<Vec<&'static Spelling>> {
    let mut classes: Vec<Vec<&'static Spelling>> = Vec::new();
    for row in all() {
        match classes.iter_mut().find(|c| (c[0].family, c[0].class) == (row.family, row.class)) {
            Some(class) => class.push(row),
            None => classes.push(vec![row]),
        }
    }
    classes
}

static FAMILIES: &[&[Spelling]] = &[
    layer_norm::ROWS,
    rms_norm::ROWS,
    gelu::ROWS,
    silu::ROWS,
    softmax::ROWS,
    skip_norm::ROWS,
    group_norm::ROWS,
    attention::ROWS,
    masked_attention::ROWS,
    masks_of_truths::ROWS,
    narrow_attention::ROWS,
    grouped_attention::ROWS,
    picture_attention::ROWS,
    rope::ROWS,
    quantized::ROWS,
    layer_norm_backward::ROWS,
    further::ROWS,
    further_attention::ROWS,
    unseen::ROWS,
    unseen_attention::ROWS,
    exported::ROWS,
    layer::ROWS,
    picture::ROWS,
    product::ROWS,
];

/// The rows of a file: `family { "class" { "name": function, } }`.
macro_rules! spellings {
    ($($family:literal { $($class:literal { $($name:literal: $draw:path,)+ })+ })+) => {
        pub(super) static ROWS: &[super::Spelling] = &[$($($(
            super::Spelling { family: $family, class: $class, name: $name, draw: $draw },
        )+)+)+];
    };
}
use spellings;
