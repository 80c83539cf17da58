//! The gallery: small graphs of the operations that fusion is for, with free sizes and a choice of element type.
//!
//! Comes in: a name and an element type. Goes out: a [`Graph`] whose sizes are the symbols that the entry lists, made of
//! the operators of table 3, so that a report on it speaks of `LayerNormalization` and `Gelu`.
//! Whole networks ([`Network`]) have their weights from seeds. Never here: data; whoever runs an entry chooses its inputs.

mod attention;
mod backward;
mod convolution;
mod dropout;
mod elementwise;
mod linear;
mod network;
mod norm;
mod quantized;
mod sketch;

use std::sync::LazyLock;

use crate::error::Result;
use crate::graph::Graph;
use crate::tensor::DType;

pub use network::{NETWORKS, Network};
use sketch::Sketch;

/// One graph of the gallery.
#[derive(Debug)]
pub struct Entry {
    /// the family it belongs to: 1 elementwise chains … 17 backward
    pub row: u32,
    /// how it is asked for
    pub name: &'static str,
    /// what it computes
    pub doc: &'static str,
    /// its free sizes, each with the value that is taken where none is given
    pub sizes: &'static [(&'static str, i64)],
    /// inputs that make sense only above zero, such as variances
    pub positive: &'static [&'static str],
    draw: fn(&Sketch) -> Result<()>,
}

/// The files of the gallery.
static GROUPS: &[&[Entry]] = &[
    elementwise::ENTRIES,
    linear::ENTRIES,
    dropout::ENTRIES,
    norm::ENTRIES,
    attention::ENTRIES,
    convolution::ENTRIES,
    quantized::ENTRIES,
    backward::ENTRIES,
];

/// Every entry, row by row.
pub fn all() -> impl Iterator<Item = &'static Entry> {
    static SORTED: LazyLock<Vec<&Entry>> = LazyLock::new(|| {
        let mut entries: Vec<&Entry> = GROUPS.iter().copied().flatten().collect();
        entries.sort_by_key(|entry| entry.row);
        entries
    });
    SORTED.iter().copied()
}

/// The entry with this name.
pub fn find(name: &str) -> Option<&'static Entry> {
    all().find(|entry| entry.name == name)
}

impl Entry {
    /// The element types that an entry can be made for.
    pub const DTYPES: &'static [DType] = &[DType::F32, DType::F16, DType::BF16, DType::F64];

    const fn new(
        row: u32,
        name: &'static str,
        doc: &'static str,
        sizes: &'static [(&'static str, i64)],
        draw: fn(&Sketch) -> Result<()>,
    ) -> Entry {
        Entry { row, name, doc, sizes, positive: &[], draw }
    }

    const fn with_positive(mut self, inputs: &'static [&'static str]) -> Entry {
        self.positive = inputs;
        self
    }

    /// The graph, with its float tensors of type `dtype`.
    pub fn graph(&self, dtype: DType) -> Result<Graph> {
        let sketch = Sketch::new(self.name, dtype)?;
        (self.draw)(&sketch)?;
        sketch.finish()
    }
}
