//! Reading inside of inputs, writing every element of outputs once: proofs and refutations.

use super::super::{AxisSet, Kernel, Op, StepId, Store};
use crate::error::{Context, Error, Result};
use crate::ops::prim::Guard;
use crate::tensor::{Dim, Range, Ranges, Shape, Symbol};

impl Kernel {
    /// Whether a step is proven to read inside of its input wherever its guards hold. Steps that load nothing are.
    pub fn reads_inside(&self, step: StepId) -> bool {
        let Op::Load { input, index, guard, .. } = &self.step(step).op else { return true };
        let ranges = Ranges::of(&self.axes);
        let sizes = self.inputs[*input].ty.shape.dims();
        index.iter().zip(sizes).all(|(coordinate, size)| is_inside(coordinate, size, guard, &ranges))
    }

    /// Whether it is proven that every element of an output is written exactly once.
    pub fn covers(&self, output: usize) -> bool {
        let shape = &self.outputs[output].ty.shape;
        let stores: Vec<&Store> = self.stores.iter().filter(|store| store.output == output).collect();
        match stores.as_slice() {
            [store] => is_exact(&self.axes, &store.index, shape),
            _ => (0..shape.rank()).any(|axis| are_slices(&self.axes, &stores, shape, axis)),
        }
    }
}

/// Whether `0 <= coordinate < size` follows from the extents of the axes and the guards.
fn is_inside(coordinate: &Dim, size: &Dim, guards: &[Guard], ranges: &Ranges<'_>) -> bool {
    let own = ranges.bounds(coordinate);
    // Guarded expressions at a known distance: 0 <= index < bound bounds the coordinate on both sides.
    let guarded = guards.iter().filter_map(|guard| {
        let Range { low, high } = ranges.bounds(&(coordinate - &guard.index))?;
        Some(Range { low, high: high + &guard.bound - 1 })
    });
    let known: Vec<Range> = own.into_iter().chain(guarded).collect();
    known.iter().any(|range| range.low.is_nonnegative())
        && known.iter().any(|range| (size - 1 - &range.high).is_nonnegative())
}

/// Whether writing at every point of the axes that `index` mentions meets every element of a tensor exactly once.
fn is_exact(extents: &[Dim], index: &[Dim], shape: &Shape) -> bool {
    let ranges = Ranges::of(extents);
    let inside = index.iter().zip(shape.dims()).all(|(coordinate, size)| ranges.is_below(coordinate, size));
    let mentioned = index.iter().map(AxisSet::mentioned).fold(AxisSet::EMPTY, AxisSet::union);
    let varying: Vec<usize> = mentioned.iter().filter(|axis| !extents[*axis].is(1)).collect();
    inside && counts_through(&shape.flat_index(index).simplify(&ranges), varying, extents, &shape.count())
}

/// Whether an expression takes every value of `0..count` once: a number whose digits are the axes, each with its extent as
/// base.
fn counts_through(flat: &Dim, mut axes: Vec<usize>, extents: &[Dim], count: &Dim) -> bool {
    let Some((parts, rest)) = flat.separate(extents.len()) else { return false };
    let stride = |axis: usize| {
        let stride = parts[axis].substitute(&|s| matches!(s, Symbol::Axis(_)).then_some(Dim::int(1)));
        (parts[axis] == &stride * Dim::axis(axis)).then_some(stride)
    };
    let mut reached = Dim::int(1);
    while let Some(at) = axes.iter().position(|axis| stride(*axis).as_ref() == Some(&reached)) {
        reached = reached * &extents[axes.remove(at)];
    }
    axes.is_empty() && rest.is(0) && reached == *count
}

/// Whether the stores write slices of a tensor that lie behind one another along one of its axes.
fn are_slices(extents: &[Dim], stores: &[&Store], shape: &Shape, axis: usize) -> bool {
    let ranges = Ranges::of(extents);
    let slice = |store: &Store| {
        let coordinate = &store.index[axis];
        let start = coordinate.substitute(&|s| matches!(s, Symbol::Axis(_)).then_some(Dim::int(0)));
        let length = ranges.bounds(coordinate)?.high - &start + 1;
        let (mut index, mut sizes) = (store.index.clone(), shape.dims().to_vec());
        index[axis] = coordinate - &start;
        sizes[axis] = length.clone();
        is_exact(extents, &index, &sizes.into()).then_some((start, length))
    };
    let Some(mut slices) = stores.iter().map(|store| slice(store)).collect::<Option<Vec<_>>>() else { return false };
    let mut end = Dim::int(0);
    while let Some(at) = slices.iter().position(|(start, _)| *start == end) {
        end = end + slices.remove(at).1;
    }
    slices.is_empty() && end == shape[axis]
}

/// Refuses a load that surely reads outside of its input.
pub(super) fn check_load(kernel: &Kernel, k: usize) -> Result<()> {
    let Op::Load { input, index, guard, reads, .. } = &kernel.steps[k].op else { return Ok(()) };
    if guard.is_empty() && reads.is_empty() {
        check_inside(kernel, index, &kernel.inputs[*input].ty.shape)
    } else {
        Ok(())
    }
}

/// Refuses coordinates that surely leave a tensor: what an expression takes its smallest and largest value at is known
/// where it is a sum of multiples of different axes.
fn check_inside(kernel: &Kernel, index: &[Dim], shape: &Shape) -> Result<()> {
    let mentioned = index.iter().map(AxisSet::mentioned).fold(AxisSet::EMPTY, AxisSet::union);
    if mentioned.iter().any(|axis| kernel.axes[axis].is(0)) {
        return Ok(());
    }
    let ranges = Ranges::of(&kernel.axes);
    for (axis, (coordinate, size)) in index.iter().zip(shape.dims()).enumerate() {
        let separate = coordinate.separate(kernel.axes.len());
        let is_sum = separate.is_some_and(|(parts, _)| parts.iter().enumerate().all(|(k, p)| p.as_stride(k).is_some()));
        let Some(Range { low, high }) = ranges.bounds(coordinate).filter(|_| is_sum) else { continue };
        if (-&low - 1).is_nonnegative() || (&high - size).is_nonnegative() {
            let place = format!("axis {axis}, which has the size {size}");
            return Err(Error::invalid(format!("{coordinate} goes from {low} to {high} on {place}")));
        }
    }
    Ok(())
}

pub(super) fn check_stores(kernel: &Kernel) -> Result<()> {
    for (k, store) in kernel.stores.iter().enumerate() {
        check_store(kernel, store).at(|| format!("store {k} (y{})", store.output))?;
    }
    if matches!(kernel.schedule, super::super::Schedule::Host(_)) {
        return Ok(());
    }
    for (output, param) in kernel.outputs.iter().enumerate() {
        let mut stores = kernel.stores.iter().filter(|store| store.output == output).peekable();
        if stores.peek().is_none() {
            return Err(Error::invalid(format!("y{output} is never written")));
        }
        let points = stores.map(|store| store.axes().iter().map(|axis| &kernel.axes[axis]).product::<Dim>());
        let (points, count) = (points.sum::<Dim>(), param.ty.shape.count());
        if points.surely_differs(&count) {
            return Err(Error::invalid(format!("y{output} has {count} elements, and {points} are written")));
        }
    }
    Ok(())
}

fn check_store(kernel: &Kernel, store: &Store) -> Result<()> {
    let param = kernel.outputs.get(store.output);
    let ty = &param.ok_or_else(|| Error::invalid(format!("there is no output y{}", store.output)))?.ty;
    let missing = || Error::invalid(format!("there is no step {:?}", store.value));
    let value = kernel.steps.get(store.value.index()).ok_or_else(missing)?;
    if value.dtype != ty.dtype {
        return Err(Error::invalid(format!("{:?} is {}, the output {ty}", store.value, value.dtype)));
    }
    if store.index.len() != ty.shape.rank() {
        return Err(Error::invalid(format!("{} coordinates for {ty}", store.index.len())));
    }
    let foreign = |s: &Symbol| match s {
        Symbol::Axis(axis) => usize::from(*axis) >= kernel.axes.len(),
        Symbol::Read(_) => true,
        Symbol::Name(_) | Symbol::Value(_) => false,
    };
    if let Some(dim) = store.index.iter().find(|dim| dim.mentions(foreign)) {
        return Err(Error::invalid(format!("the coordinate {dim} mentions what is no axis of the kernel")));
    }
    if !value.axes.is_within(store.axes()) {
        let lacking = value.axes.without(store.axes());
        return Err(Error::invalid(format!("{:?} varies over {lacking}, the coordinates do not", store.value)));
    }
    check_inside(kernel, &store.index, &ty.shape)
}

#[cfg(test)]
mod tests {
    use crate::tile::{StepId, parse};

    #[test]
    fn loads_inside_are_proven() {
        let inside = |load: &str| {
            let text = format!(
                "kernel {{ axes i0: n, i1: 3, i2: m in x: f32[n, 3], k: i64[n] schedule map %0 = load k[i0] %1 = load x{load} }}"
            );
            parse(&text).unwrap().reads_inside(StepId(1))
        };
        assert!(inside("[i0, i1]") && inside("[i0, 2 - i1]") && inside("[i0, min(i1 + 1, 2)]"));
        assert!(inside("[i2, i1] where 0 <= i2 < n else 0.0") && !inside("[i2, i1]"));
        assert!(inside("[i0 + i1 - 1, i1] where 0 <= i0 + i1 - 1 < n else 0.0"));
        assert!(inside("[i0 + i1 - 1, i1] where 0 <= i0 + i1 < n else 0.0").eq(&false), "-1 is below");
        assert!(inside("[i0, i1] where 0 <= i2 < 5 else 0.0"), "the guard is not needed");
        assert!(inside("[@0, i1] reading (%0) where 0 <= @0 < n else 0.0") && !inside("[@0, i1] reading (%0)"));
        assert!(inside("[i0, @0 - 2] reading (%0) where 0 <= @0 - 2 < 3 else 0.0"));
    }

    #[test]
    fn exact_stores_are_proven() {
        let covers = |shape: &str, stores: &[&str]| {
            let stores: Vec<String> = stores.iter().map(|index| format!("store y{index} = %0")).collect();
            let text = format!(
                "kernel {{ axes i0: n, i1: 6, i2: s, i3: 1 out y: i64{shape} schedule map %0 = map() i64(2) {} }}",
                stores.join(" ")
            );
            parse(&text).unwrap().covers(0)
        };
        assert!(covers("[n, 6, s]", &["[i0, i1, i2]"]) && covers("[s, n, 6]", &["[i2, i0, i1]"]));
        assert!(covers("[n, 6]", &["[i0, 5 - i1]"]).eq(&false), "true, but not proven");
        assert!(covers("[n*s, 6]", &["[s*i0 + i2, i1]"]) && covers("[6*n, s]", &["[i0 + n*i1, i2]"]));
        assert!(!covers("[n*s, 6]", &["[i0 + s*i2, i1]"]) && !covers("[n, n]", &["[i0, i0]"]));
        assert!(covers("[3, 2, 1]", &["[i1 // 2, i1 % 2, i3]"]) && covers("[6, 1]", &["[i1, 0]"]));
        assert!(!covers("[7]", &["[i1]"]) && !covers("[6]", &["[i1 + 1]"]) && !covers("[n]", &["[i1]"]));
        assert!(
            covers("[n, s + 6]", &["[i0, i2]", "[i0, i1 + s]"]) && covers("[s + 7]", &["[i1 + 1]", "[0]", "[i2 + 7]"])
        );
        assert!(!covers("[n, s + 6]", &["[i0, i2]", "[i0, i1]"]) && !covers("[6]", &["[i1]", "[i1]"]));
        assert!(covers("[]", &["[]"]) && !covers("[]", &["[]", "[]"]));
    }
}
