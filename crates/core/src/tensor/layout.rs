//! How the elements of a tensor lie in memory.

use super::Literal;

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

    /// A tensor with its axes in the order of memory: the bytes of the result lie as the layout says.
    pub fn arrange(&self, tensor: &Literal) -> Literal {
        let order: Vec<usize> = self.order().collect();
        transposed(tensor, &order)
    }

    /// The tensor whose [arrangement](Layout::arrange) this is.
    pub fn restore(&self, arranged: &Literal) -> Literal {
        let mut places = vec![0; self.rank()];
        self.order().enumerate().for_each(|(place, axis)| places[axis] = place);
        transposed(arranged, &places)
    }
}

/// A tensor whose axis `k` is the axis `axes[k]` of another.
fn transposed(tensor: &Literal, axes: &[usize]) -> Literal {
    if axes.iter().copied().eq(0..axes.len()) {
        return tensor.clone();
    }
    let mut strides = vec![1; axes.len()];
    for axis in (1..axes.len()).rev() {
        strides[axis - 1] = strides[axis] * tensor.sizes()[axis];
    }
    let sizes: Vec<usize> = axes.iter().map(|axis| tensor.sizes()[*axis]).collect();
    let (mut at, mut place) = (vec![0; axes.len()], 0);
    let elements = (0..tensor.count()).map(|_| {
        let element = tensor.bits(place);
        // The innermost axis on which there is a next element; those inside of it begin again.
        for k in (0..axes.len()).rev() {
            at[k] += 1;
            place += strides[axes[k]];
            if at[k] < sizes[k] {
                break;
            }
            place -= strides[axes[k]] * sizes[k];
            at[k] = 0;
        }
        element
    });
    let elements: Vec<u64> = elements.collect();
    Literal::from_bits(tensor.dtype(), sizes, elements.into_iter()).expect("there are as many elements as before")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    #[test]
    fn elements_lie_as_the_order_says() {
        let tensor = Literal::from_ints(DType::I32, [2, 3, 2], &(0..12).collect::<Vec<_>>()).unwrap();
        let arranged = Layout::ordered(&[2, 0, 1]).unwrap().arrange(&tensor);
        assert_eq!(
            (arranged.sizes(), arranged.to_ints()),
            (&[2, 2, 3][..], vec![0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11])
        );
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
            let layout = Layout::ordered(&order).unwrap();
            assert_eq!(layout.restore(&layout.arrange(&tensor)), tensor, "{order:?}");
        }
        let nothing = Literal::from_ints(DType::U4, [0, 3], &[]).unwrap();
        assert_eq!(Layout::ordered(&[1, 0]).unwrap().arrange(&nothing).sizes(), [3, 0]);
    }
}
