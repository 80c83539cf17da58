//! How the elements of a tensor lie in memory.

/// The order of a tensor's axes in memory, outermost first. Dense: no gaps, no blocks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Layout {
    order: Vec<u8>,
}

impl Layout {
    /// The last axis innermost.
    pub fn row_major(rank: usize) -> Layout {
        Layout { order: (0..rank).map(|axis| u8::try_from(axis).expect("ranks are limited to 64")).collect() }
    }

    /// The axes, outermost first.
    pub fn order(&self) -> impl Iterator<Item = usize> {
        self.order.iter().map(|axis| usize::from(*axis))
    }

    /// Whether the last axis is innermost, and so on outwards.
    pub fn is_row_major(&self) -> bool {
        self.order().eq(0..self.order.len())
    }
}
