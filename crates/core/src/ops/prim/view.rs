//! The same elements at other coordinates.

use super::{Access, Class, OperandMap, Primitive, expect_args, identity_map};
use crate::error::{Error, Result};
use crate::graph::gradient::{Adjoint, NoGradient, OperandGradients};
use crate::ops::Number;
use crate::reference::{Buffer, Run};
use crate::tensor::{Dim, Ranges, Shape, Symbol, TensorType};

/// The condition `0 <= index < bound` on the coordinates of a view.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Guard {
    /// the guarded expression
    pub index: Dim,
    /// its exclusive upper bound
    pub bound: Dim,
}

/// `result[i] = operand[map(i)]` where every guard holds, otherwise the fill value.
/// Reshape, transpose, broadcast, slice, pad, flip, and the windows of a convolution are views.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct View {
    /// the shape of the result
    pub shape: Shape,
    /// coordinate of each operand axis over the axes of the result
    pub map: Vec<Dim>,
    /// where the operand is read
    pub guard: Vec<Guard>,
    /// the value where it is not; present exactly when there are guards
    pub fill: Option<Number>,
}

/// A coordinate that came of composing views is no longer an expression than this; see [`Dim::complexity`].
const MOST_PARTS: u32 = 64;

impl View {
    /// The view that changes nothing.
    pub fn identity(shape: &Shape) -> View {
        View::new(shape.clone(), identity_map(shape.rank()))
    }

    /// A view without guards.
    pub fn new(shape: Shape, map: Vec<Dim>) -> View {
        let map = simplified(&map, &shape);
        View { shape, map, guard: Vec::new(), fill: None }
    }

    /// A view that reads `fill` where a guard fails; guards that always hold are dropped.
    pub fn guarded(shape: Shape, map: Vec<Dim>, guard: Vec<Guard>, fill: Number) -> View {
        let view = View::new(shape, map);
        let ranges = Ranges::of(view.shape.dims());
        let mut kept: Vec<Guard> = Vec::new();
        for g in guard {
            let g = Guard { index: g.index.simplify(&ranges), bound: g.bound };
            if !ranges.is_below(&g.index, &g.bound) && !kept.contains(&g) {
                kept.push(g);
            }
        }
        let fill = (!kept.is_empty()).then_some(fill);
        View { guard: kept, fill, ..view }
    }

    /// The view that keeps every element at its row-major position under another shape of the same count.
    pub fn reshape(own: &Shape, shape: Shape) -> View {
        if shape.dims().iter().any(|d| d.is(0)) {
            return View::new(shape, vec![Dim::int(0); own.rank()]);
        }
        // Runs of axes that hold equally many elements are independent of each other.
        let mut map = Vec::with_capacity(own.rank());
        let (mut from, mut to) = (0, 0);
        while from < own.rank() {
            let (end, to_end) = equal_runs(own, &shape, from, to);
            let read = Shape::from(own.dims()[from..end].to_vec());
            let written = Shape::from(shape.dims()[to..to_end].to_vec());
            let flat = written.flat_index(&(to..to_end).map(Dim::axis).collect::<Vec<_>>());
            for (k, stride) in read.strides().iter().enumerate() {
                map.push(match k {
                    _ if read[k].is(1) => Dim::int(0),
                    0 => flat.floordiv(stride),
                    _ => flat.floordiv(stride).modulo(&read[k]),
                });
            }
            (from, to) = (end, to_end);
        }
        View::new(shape, map)
    }

    /// The view that reads `inner` through `self`: `self.after(inner)[i] = inner[self(i)]`. `None` when the two fill
    /// with different values, which one view cannot express, or when coordinates would be too long expressions.
    pub fn after(&self, inner: &View) -> Option<View> {
        let fill = match (self.fill, inner.fill) {
            (Some(a), Some(b)) if a != b => return None,
            (a, b) => a.or(b),
        };
        let through = |dim: &Dim| {
            dim.substitute(&|s| match s {
                Symbol::Axis(a) => self.map.get(usize::from(*a)).cloned(),
                _ => None,
            })
        };
        let map: Vec<Dim> = inner.map.iter().map(through).collect();
        if map.iter().any(|at| at.complexity() > MOST_PARTS) {
            return None;
        }
        let inner_guards = inner.guard.iter().map(|g| Guard { index: through(&g.index), bound: g.bound.clone() });
        let guard: Vec<Guard> = self.guard.iter().cloned().chain(inner_guards).collect();
        Some(match fill {
            Some(fill) => View::guarded(self.shape.clone(), map, guard, fill),
            None => View::new(self.shape.clone(), map),
        })
    }

    /// The view with its expressions as simple as they get under the ranges of its axes.
    pub(crate) fn normalized(self) -> View {
        match self.fill {
            Some(fill) => View::guarded(self.shape, self.map, self.guard, fill),
            None => View::new(self.shape, self.map),
        }
    }

    /// Whether the view changes nothing about an operand of this shape.
    pub fn is_identity(&self, operand: &Shape) -> bool {
        self.guard.is_empty() && self.shape == *operand && self.map == identity_simplified(operand)
    }
}

/// Where the shortest runs of axes end, from `from` and `to` on, that are known to hold equally many elements.
fn equal_runs(own: &Shape, shape: &Shape, from: usize, to: usize) -> (usize, usize) {
    let mut read = Dim::int(1);
    for end in from + 1..=own.rank() {
        read = read * &own[end - 1];
        let mut written = Dim::int(1);
        for to_end in to..=shape.rank() {
            if to_end > to {
                written = written * &shape[to_end - 1];
            }
            if written == read {
                return (end, to_end);
            }
        }
    }
    (own.rank(), shape.rank())
}

fn simplified(map: &[Dim], shape: &Shape) -> Vec<Dim> {
    let ranges = Ranges::of(shape.dims());
    map.iter().map(|d| d.simplify(&ranges)).collect()
}

fn identity_simplified(shape: &Shape) -> Vec<Dim> {
    simplified(&identity_map(shape.rank()), shape)
}

impl Primitive for View {
    const NAME: &'static str = "view";
    const CLASS: Class = Class::View;
    const DOC: &'static str =
        "Elements of the operand at coordinates given by a quasi-affine map, with guard and fill.";

    fn infer(&self, args: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_args(Self::NAME, args, 1)?;
        if self.map.len() != args[0].shape.rank() {
            return Err(Error::bug(format!("view: a map of {} coordinates for {}", self.map.len(), args[0])));
        }
        if self.fill.is_some() == self.guard.is_empty() {
            return Err(Error::bug("view: a fill value goes with guards"));
        }
        if self.fill.is_some_and(|fill| matches!(fill, Number::Float(_)) != args[0].dtype.is_float()) {
            return Err(Error::bug(format!("view: the fill value {:?} of {}", self.fill, args[0])));
        }
        let rank = self.shape.rank();
        let foreign = |s: &Symbol| match s {
            Symbol::Axis(a) => usize::from(*a) >= rank,
            Symbol::Read(_) => true,
            Symbol::Name(_) | Symbol::Value(_) => false,
        };
        if self.map.iter().chain(self.guard.iter().map(|g| &g.index)).any(|d| d.mentions(foreign)) {
            return Err(Error::bug("view: the map mentions an axis that the result does not have"));
        }
        self.shape.check()?;
        Ok(vec![TensorType::new(args[0].dtype, self.shape.clone())])
    }

    fn access(&self, _: &[TensorType]) -> Option<Access> {
        let operand = OperandMap { index: self.map.clone(), guard: self.guard.clone() };
        Some(Access { domain: self.shape.clone(), result: identity_map(self.shape.rank()), operands: vec![operand] })
    }

    fn eval(&self, args: &[Buffer], run: &mut Run<'_>) -> Result<Vec<Buffer>> {
        run.view(&args[0], self).map(|buffer| vec![buffer])
    }

    fn gradient<'b>(&self, at: &Adjoint<'_, 'b>) -> std::result::Result<OperandGradients<'b>, NoGradient> {
        crate::graph::gradient::of_view(self, at)
    }

    fn for_each_dim(&self, f: &mut dyn FnMut(&Dim)) {
        self.shape.dims().iter().chain(&self.map).for_each(&mut *f);
        for guard in &self.guard {
            f(&guard.index);
            f(&guard.bound);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reshape_splits_and_joins_axes_without_looking_at_the_others() {
        let [n, h, w] = ["n", "h", "w"].map(Dim::named);
        let half = (&h + 1).floordiv(&Dim::int(2));
        let int = Dim::int;
        let map =
            |own: &[Dim], shape: &[Dim]| View::reshape(&Shape::from(own.to_vec()), Shape::from(shape.to_vec())).map;
        let axis = Dim::axis;
        let joined = map(&[n.clone(), int(3), int(4), half.clone(), w.clone()], &[n.clone(), int(12), half, w.clone()]);
        let four = int(4);
        assert_eq!(joined, [axis(0), axis(1).floordiv(&four), axis(1).modulo(&four), axis(2), axis(3)]);
        let split = map(&[&n * &h, int(8)], &[n.clone(), h.clone(), int(2), four.clone()]);
        assert_eq!(split, [axis(0) * &h + axis(1), axis(2) * 4 + axis(3)]);
        assert_eq!(map(&[int(1), n.clone(), int(1)], &[n.clone(), int(1), int(1)]), [int(0), axis(0), int(0)]);
        assert_eq!(map(&[h.clone(), w.clone()], &[w.clone(), h.clone()])[1], (axis(0) * &h + axis(1)).modulo(&w));
    }
}
