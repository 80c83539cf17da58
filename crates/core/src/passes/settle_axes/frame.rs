//! The axes over which a value is computed.

use crate::ops::prim::identity_map;
use crate::tensor::{Dim, Shape, Symbol};

/// One axis of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// factor `part` of axis `axis` of before
    Factor { axis: usize, part: usize },
    /// axes `first` to `last` of before, as one
    Run { first: usize, last: usize },
    /// an axis of size 1
    Unit,
}

impl Slot {
    /// Where one stands along the slot, given the coordinates of the axes of before, each a product of factors.
    pub fn coordinate(self, at: &[Dim], factors: &[Vec<Dim>]) -> Dim {
        match self {
            Slot::Factor { axis, part } => digit(&at[axis], &factors[axis], part),
            Slot::Run { first, last } => {
                let after = |axis: usize| Slot::Run { first: axis + 1, last }.extent(factors);
                (first..=last).map(|axis| &at[axis] * after(axis)).sum()
            }
            Slot::Unit => Dim::int(0),
        }
    }

    /// The size of the slot.
    pub fn extent(self, factors: &[Vec<Dim>]) -> Dim {
        match self {
            Slot::Factor { axis, part } => factors[axis][part].clone(),
            Slot::Run { first, last } => factors[first..=last].iter().flatten().product(),
            Slot::Unit => Dim::int(1),
        }
    }
}

/// Axes that stand for those that a value had, element for element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// the shape of before
    pub before: Shape,
    /// the sizes of the axes
    pub shape: Shape,
    /// each axis of before over the axes of the frame
    pub own: Vec<Dim>,
    /// each axis of the frame over the axes of before
    pub back: Vec<Dim>,
    /// the axes of the frame that each axis of before is made of, the outermost first
    pub parts: Vec<Vec<usize>>,
}

impl Frame {
    /// The axes that there were.
    pub fn identity(shape: &Shape) -> Frame {
        let map = identity_map(shape.rank());
        let parts = (0..shape.rank()).map(|k| vec![k]).collect();
        Frame { before: shape.clone(), shape: shape.clone(), own: map.clone(), back: map, parts }
    }

    /// Axes of before as products of factors, the outermost first (none for an axis of size 1), in an order that names
    /// every factor once. An axis of a run is one factor.
    pub fn new(before: &Shape, factors: &[Vec<Dim>], slots: &[Slot]) -> Frame {
        let (mut own, mut parts) = (Vec::with_capacity(factors.len()), Vec::with_capacity(factors.len()));
        for (axis, sizes) in factors.iter().enumerate() {
            let run = slots.iter().enumerate().find_map(|(k, slot)| match slot {
                Slot::Run { first, last } if (*first..=*last).contains(&axis) => Some((k, *first, *last)),
                _ => None,
            });
            if let Some((k, first, last)) = run {
                let sizes: Vec<Dim> = factors[first..=last].iter().flatten().cloned().collect();
                own.push(digit(&Dim::axis(k), &sizes, axis - first));
                parts.push(vec![k]);
                continue;
            }
            let place = |part| slots.iter().position(|s| *s == Slot::Factor { axis, part });
            let places: Vec<usize> = (0..sizes.len()).filter_map(place).collect();
            let inner = |part: usize| sizes[part + 1..].iter().product::<Dim>();
            own.push(places.iter().enumerate().map(|(part, k)| Dim::axis(*k) * inner(part)).sum());
            parts.push(places);
        }
        let axes = identity_map(factors.len());
        let back = slots.iter().map(|slot| slot.coordinate(&axes, factors)).collect();
        let shape = slots.iter().map(|slot| slot.extent(factors)).collect();
        Frame { before: before.clone(), back, shape, own, parts }
    }

    /// The same with its axes in another order: axis `k` is what axis `order[k]` was.
    pub fn reordered(&self, order: &[usize]) -> Frame {
        let place = |axis: usize| order.iter().position(|o| *o == axis);
        let moved = |dim: &Dim| {
            dim.substitute(&|s| match s {
                Symbol::Axis(a) => place(usize::from(*a)).map(Dim::axis),
                _ => None,
            })
        };
        Frame {
            before: self.before.clone(),
            shape: order.iter().map(|k| self.shape[*k].clone()).collect(),
            own: self.own.iter().map(moved).collect(),
            back: order.iter().map(|k| self.back[*k].clone()).collect(),
            parts: self.parts.iter().map(|parts| parts.iter().filter_map(|k| place(*k)).collect()).collect(),
        }
    }

    /// Whether these are the axes that there were.
    pub fn is_identity(&self) -> bool {
        let stays = |(k, own): (usize, &Dim)| *own == Dim::axis(k) || (own.is(0) && self.before[k].is(1));
        self.shape == self.before && self.own.iter().enumerate().all(stays)
    }
}

/// The coordinate of one factor of an axis, given the coordinate of the axis.
pub(super) fn digit(at: &Dim, sizes: &[Dim], part: usize) -> Dim {
    let inner: Dim = sizes[part + 1..].iter().product();
    let quotient = at.floordiv(&inner);
    if part == 0 { quotient } else { quotient.modulo(&sizes[part]) }
}
