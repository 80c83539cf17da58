//! Boxes of points.

use super::super::AxisSet;

/// The points that are worked on together: a range of every axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// where it begins
    pub start: Vec<usize>,
    /// how long it is
    pub sizes: Vec<usize>,
}

impl Block {
    /// All points.
    pub(super) fn whole(extents: &[usize]) -> Block {
        Block { start: vec![0; extents.len()], sizes: extents.to_vec() }
    }

    /// The lengths along some axes, ascending.
    pub(super) fn sizes_of(&self, axes: AxisSet) -> Vec<usize> {
        axes.iter().map(|axis| self.sizes[axis]).collect()
    }

    /// The number of points along some axes.
    pub(super) fn count(&self, axes: AxisSet) -> usize {
        axes.iter().map(|axis| self.sizes[axis]).product()
    }

    /// Pieces of this length along an axis, the last of which may be shorter.
    pub(super) fn pieces(&self, axis: usize, length: usize) -> impl Iterator<Item = Block> {
        let (start, size, length) = (self.start[axis], self.sizes[axis], length.max(1));
        (0..size).step_by(length).map(move |at| {
            let mut piece = self.clone();
            (piece.start[axis], piece.sizes[axis]) = (start + at, length.min(size - at));
            piece
        })
    }

    /// Whether both have the same range of these axes.
    pub(super) fn agrees(&self, other: &Block, axes: AxisSet) -> bool {
        axes.iter().all(|axis| (self.start[axis], self.sizes[axis]) == (other.start[axis], other.sizes[axis]))
    }

    /// Calls `f` with the number and the coordinates (of all axes; others stay where the block begins) of every point
    /// along some axes, in row-major order.
    pub(super) fn for_each<E>(
        &self,
        axes: AxisSet,
        mut f: impl FnMut(usize, &[usize]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut at = self.start.clone();
        for k in 0..self.count(axes) {
            f(k, &at)?;
            for axis in axes.iter().collect::<smallvec::SmallVec<[usize; 8]>>().into_iter().rev() {
                at[axis] += 1;
                if at[axis] < self.start[axis] + self.sizes[axis] {
                    break;
                }
                at[axis] = self.start[axis];
            }
        }
        Ok(())
    }

    /// The coordinates of point number `k` along some axes, as text.
    pub(super) fn point_text(&self, axes: AxisSet, k: usize) -> String {
        let at = crate::reference::coordinates(k, &self.sizes_of(axes));
        let texts: Vec<String> =
            axes.iter().zip(at).map(|(axis, at)| format!("i{axis} = {}", self.start[axis] + at)).collect();
        if texts.is_empty() { "the only point".to_owned() } else { texts.join(", ") }
    }
}
