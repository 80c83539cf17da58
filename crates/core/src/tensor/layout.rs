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

    /// The layout with this order of axes, outermost first; `None` where that is no order of the axes `0..order.len()`.
    pub fn ordered(order: &[usize]) -> Option<Layout> {
        let each_once = (0..order.len()).all(|axis| order.contains(&axis));
        let order: Option<Vec<u8>> = order.iter().map(|axis| u8::try_from(*axis).ok()).collect();
        order.filter(|_| each_once).map(|order| Layout { order })
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.order.len()
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
