//! Kernels at sizes of which some are 0: a fold of no elements is a number, and what is stored nowhere is not computed.

use fuseline::error::{Context, Error, Result};
use fuseline::ops::Expr;
use fuseline::ops::prim::Monoid;
use fuseline::tensor::Dim;
use fuseline::tile::{AxisSet, Builder, Kernel, Op, Schedule, StepId};

use super::bound::Bound;
use super::narrow::rename;
use super::reach::reached;

/// The kernel without its stores of nothing, and with neutral elements instead of folds of nothing. No step is left that varies over an axis without
/// points, so that these have one in the result; which schedule it had does not matter any more: it is emitted fold by fold.
pub(super) fn without_empty(bound: &Bound<'_>) -> Result<Kernel> {
    let kernel = bound.kernel;
    let empty: AxisSet = (0..bound.extents.len()).filter(|axis| bound.extents[*axis] == 0).collect();
    let is_empty = |axes: AxisSet| !axes.common(empty).is_empty();
    let mut b = Builder::new();
    for (axis, extent) in kernel.axes.iter().enumerate() {
        b.axis(if empty.contains(axis) { Dim::int(1) } else { extent.clone() })?;
    }
    for param in &kernel.inputs {
        b.input(param.clone());
    }
    for param in &kernel.outputs {
        b.output(param.clone());
    }
    b.rounding(kernel.rounding);
    let stores: Vec<_> = kernel.stores.iter().filter(|store| !is_empty(store.axes())).collect();
    let roots: Vec<StepId> = stores.iter().map(|store| store.value).collect();
    let is_number = |id: StepId| is_empty(kernel.step(id).op.folds());
    let mut wanted = reached(kernel, &roots, &is_number);
    wanted.sort();
    let mut places = vec![StepId(u32::MAX); kernel.steps.len()];
    for id in wanted {
        let step = kernel.step(id);
        let mut op = match is_number(id) {
            true => neutral(kernel, id).at(|| format!("step {id:?} ({})", step.op.name()))?,
            false => step.op.clone(),
        };
        rename(&mut op, &places);
        places[id.index()] = b.step(op)?;
    }
    for store in stores {
        b.store(store.output, &store.index, places[store.value.index()]);
    }
    Ok(b.finish_unverified(Schedule::Map))
}

/// What a fold of nothing is, as a step: of the type in which it is read.
fn neutral(kernel: &Kernel, fold: StepId) -> Result<Op> {
    let dtype = kernel.step(fold).dtype;
    let monoid = match &kernel.step(fold).op {
        // A run for which that matters does not begin.
        Op::Reduce { monoid, .. } => *monoid,
        Op::Dot { .. } => Monoid::Sum,
        // It varies over the axis that it runs along, of which nothing that is stored is made.
        _ => return Err(Error::bug("a running fold of nothing is wanted")),
    };
    let number = monoid.neutral(dtype);
    Ok(Op::Map { expr: Expr::build(&[], |scope, _| scope.constant(dtype, number)), args: Default::default() })
}

#[cfg(test)]
mod tests {
    use crate::emit::tests::{attention, check};

    #[test]
    fn folds_of_nothing_are_neutral() {
        // What is folded beside is not touched, nor is what is stored elsewhere; a product of nothing is 0.
        let folds = "kernel { axes i0: rows, i1: n, i2: 7 in x: f32[rows, n], b: bool[rows, n], w: f32[rows, 7] \
            out sum: f32[rows], most: f32[rows], all: bool[rows], y: f32[rows, n], z: f32[rows] \
            %0 = load x[i0, i1] %1 = reduce.sum %0 over [i1] %2 = reduce.max %0 over [i1] \
            %4 = load b[i0, i1] %5 = reduce.min %4 over [i1] %6 = map(%0, %1) a - b %7 = load w[i0, i2] \
            %8 = reduce.sum %7 over [i2] %9 = map(%8, %1) a + b store sum[i0] = %1 store most[i0] = %2 \
            store all[i0] = %5 store y[i0, i1] = %6 store z[i0] = %9 }";
        let product = "kernel(x: f32[rows, n], w: f32[n, m], b: f32[m]) -> y: f32[rows, m] { y = dot[n](x, w) + b }";
        let both = "kernel(x: f32[rows, n]) -> (y: f32[rows, n], s: f32[rows, 1]) { e = exp(x - max[n](x)) s = sum[n](e) y = e / s }";
        for (rows, n) in [(5, 0), (0, 5), (0, 0), (40, 0)] {
            check(folds, &[("rows", rows), ("n", n)]);
            check(both, &[("rows", rows), ("n", n)]);
            for m in [3, 0, 20] {
                let sizes = [("rows", rows), ("n", n), ("m", m)];
                check(product, &sizes);
                // Sums are wider than what they are read as.
                check(&product.replace("f32", "f16"), &sizes);
            }
        }
        check(&attention("a + b * 0.125"), &[("n", 5), ("h", 2), ("c", 16), ("m", 0), ("d", 8)]);
    }

    #[test]
    fn the_largest_of_nothing_stands_nowhere() {
        let text = "kernel { axes i0: 3, i1: n in x: f32[3, n] out y: i64[3] %0 = load x[i0, i1] \
            %1 = reduce.argmax %0 over [i1] store y[i0] = %1 }";
        check(text, &[("n", 0)]);
    }
}
