//! The gradient of a view is a view of the gradient, wherever the map can be turned around.

use super::{Adjoint, NoGradient, OperandGradients, Tensor};
use crate::ops::Number;
use crate::ops::prim::{Combine, Guard, Monoid, Scatter, View};
use crate::tensor::{Dim, Shape, Symbol};

/// Elements flow back to where they were read. Axes that the map does not mention are summed; a reshape flows back through
/// a reshape; a map of strided coordinates (permutation, slice, padding, windows) through its inverse, summed over what
/// overlaps; the rest is scattered.
pub(crate) fn of_view<'b>(view: &View, at: &Adjoint<'_, 'b>) -> Result<OperandGradients<'b>, NoGradient> {
    let Some(grad) = at.grad(0) else { return Ok(vec![None]) };
    let operand = at.args[0].ty_or_scalar().shape;
    if is_reshape(view, &operand) {
        return Ok(vec![Some(grad.reshape(operand))]);
    }
    let (view, grad) = without_repetition(view, grad);
    let zero = Number::new(grad.dtype_or_f32(), 0.0);
    Ok(vec![Some(match inverse(&view, &operand, zero) {
        Some(back) => {
            let overlapping: Vec<usize> = (operand.rank()..back.shape.rank()).collect();
            let moved = grad.view(back);
            if overlapping.is_empty() { moved } else { moved.reduce(Monoid::Sum, &overlapping) }
        }
        None => scattered(&view, &operand, grad),
    })])
}

fn is_reshape(view: &View, operand: &Shape) -> bool {
    let same_count = view.shape.count() == operand.count();
    same_count && view.guard.is_empty() && view.map == View::reshape(operand, view.shape.clone()).map
}

/// The view without the axes along which it repeats elements, and its gradient summed over them.
fn without_repetition<'b>(view: &View, grad: Tensor<'b>) -> (View, Tensor<'b>) {
    let mentions = |axis: usize| {
        let is_axis = |s: &Symbol| *s == Symbol::Axis(axis as u8);
        view.map.iter().any(|d| d.mentions(is_axis)) || view.guard.iter().any(|g| g.index.mentions(is_axis))
    };
    let repeated: Vec<usize> = (0..view.shape.rank()).filter(|a| !mentions(*a)).collect();
    if repeated.is_empty() {
        return (view.clone(), grad);
    }
    let renumber = |dim: &Dim| {
        dim.substitute(&|s| match s {
            Symbol::Axis(a) => {
                let before = repeated.iter().filter(|b| **b < usize::from(*a)).count();
                Some(Dim::axis(usize::from(*a) - before))
            }
            _ => None,
        })
    };
    let kept = (0..view.shape.rank()).filter(|a| !repeated.contains(a));
    let guard = view.guard.iter().map(|g| Guard { index: renumber(&g.index), bound: g.bound.clone() });
    let smaller = View {
        shape: kept.map(|a| view.shape[a].clone()).collect(),
        map: view.map.iter().map(renumber).collect(),
        guard: guard.collect(),
        fill: view.fill,
    };
    (smaller, grad.reduce(Monoid::Sum, &repeated))
}

/// A coordinate of the operand as a sum: what each axis of the view contributes (a multiple of its coordinate), and the rest.
struct Strided {
    strides: Vec<i64>,
    rest: Dim,
}

impl Strided {
    fn of(dim: &Dim, rank: usize) -> Option<Strided> {
        let (parts, rest) = dim.separate(rank)?;
        let strides = parts.iter().enumerate().map(|(axis, part)| part.as_stride(axis));
        Some(Strided { strides: strides.collect::<Option<_>>()?, rest })
    }
}

/// The view of the gradient that holds, for every element of the operand and every coordinate of the axes that overlap
/// (which come last), the gradient that flows back there. Each coordinate of the operand is solved for one axis of the
/// view, and guards say where the solution is a whole number in range. `None` where the map has no such form.
fn inverse(view: &View, operand: &Shape, zero: Number) -> Option<View> {
    let rank = view.shape.rank();
    let maps: Option<Vec<Strided>> = view.map.iter().map(|d| Strided::of(d, rank)).collect();
    let maps = maps?;
    // Which axis of the view each coordinate is solved for.
    let mut solved_by: Vec<Option<usize>> = vec![None; rank];
    for (k, map) in maps.iter().enumerate() {
        if let Some(axis) = (0..rank).find(|a| map.strides[*a] != 0 && solved_by[*a].is_none()) {
            solved_by[axis] = Some(k);
        }
    }
    let overlapping: Vec<usize> = (0..rank).filter(|a| solved_by[*a].is_none()).collect();
    let mut at: Vec<Option<Dim>> = vec![None; rank];
    for (n, axis) in overlapping.iter().enumerate() {
        at[*axis] = Some(Dim::axis(operand.rank() + n));
    }
    let mut guards = Vec::new();
    // A coordinate can be solved once the other axes that it mentions are known.
    for _ in 0..rank {
        for axis in 0..rank {
            let (Some(k), None) = (solved_by[axis], &at[axis]) else { continue };
            if let Some(others) = maps[k].without(axis, &at) {
                at[axis] = Some(solve(Dim::axis(k) - others, maps[k].strides[axis], &view.shape[axis], &mut guards));
            }
        }
    }
    let at: Vec<Dim> = at.into_iter().collect::<Option<_>>()?;
    let through =
        |dim: &Dim| dim.substitute(&|s| if let Symbol::Axis(a) = s { at.get(usize::from(*a)).cloned() } else { None });
    for (k, dim) in view.map.iter().enumerate().filter(|(k, _)| !solved_by.contains(&Some(*k))) {
        guards.push(Guard { index: Dim::axis(k) - through(dim), bound: Dim::int(1) });
    }
    guards.extend(view.guard.iter().map(|g| Guard { index: through(&g.index), bound: g.bound.clone() }));
    let dims = operand.dims().iter().chain(overlapping.iter().map(|a| &view.shape[*a]));
    Some(View::guarded(dims.cloned().collect(), at, guards, zero))
}

impl Strided {
    /// The sum without what one axis contributes, over coordinates that are known.
    fn without(&self, axis: usize, at: &[Option<Dim>]) -> Option<Dim> {
        let mut sum = self.rest.clone();
        for (a, stride) in self.strides.iter().enumerate().filter(|(a, stride)| *a != axis && **stride != 0) {
            sum = sum + at[a].as_ref()? * *stride;
        }
        Some(sum)
    }
}

/// The `x` of an axis of size `extent` for which `stride · x = value`; guards say that it is one.
fn solve(value: Dim, stride: i64, extent: &Dim, guards: &mut Vec<Guard>) -> Dim {
    let (value, step) = if stride < 0 { (-value, Dim::int(-stride)) } else { (value, Dim::int(stride)) };
    if !step.is(1) {
        guards.push(Guard { index: value.modulo(&step), bound: Dim::int(1) });
    }
    let x = value.floordiv(&step);
    guards.push(Guard { index: x.clone(), bound: extent.clone() });
    x
}

/// The gradient added up element by element; where a guard fails nothing was read, and a zero is sent to coordinate 0.
fn scattered<'b>(view: &View, operand: &Shape, grad: Tensor<'b>) -> Tensor<'b> {
    let builder = grad.builder();
    let zeros = builder.scalar(grad.dtype_or_f32(), 0.0).expand(operand.clone());
    let shape = grad.ty_or_scalar().shape;
    let holds = view.guard.iter().map(|g| {
        let (index, bound) = (builder.index(&g.index, &shape), builder.index(&g.bound, &shape));
        index.lt(bound).and(index.lt(0i64).not())
    });
    let Some(open) = holds.reduce(|a, b| a.and(b)) else {
        return zeros.scatter(Scatter { combine: Combine::Add, map: view.map.clone() }, grad, &[]);
    };
    let places: Vec<Tensor<'b>> =
        view.map.iter().map(|d| open.select(builder.index(d, &shape), builder.index(&Dim::int(0), &shape))).collect();
    let map = (0..places.len()).map(|k| Dim::from(Symbol::Read(k as u8))).collect();
    zeros.scatter(Scatter { combine: Combine::Add, map }, open.select(grad, zeros_like(grad)), &places)
}

fn zeros_like(tensor: Tensor<'_>) -> Tensor<'_> {
    let ty = tensor.ty_or_scalar();
    tensor.builder().scalar(ty.dtype, 0.0).expand(ty.shape)
}
