//! One axis as two.

use super::{AxisSet, Builder, Chain, Kernel, Op, Schedule};
use crate::error::{Error, Result};
use crate::ops::prim::Guard;
use crate::ops::{Expr, ExprNode};
use crate::tensor::{Dim, Ranges, Symbol};

/// The kernel with an axis cut into pieces of `by`: the axis counts pieces from now on, and a new last axis the places in a
/// piece. It means the same. The extent must be a multiple of `by`, and nothing may fold along the axis.
pub fn split_axis(kernel: &Kernel, axis: usize, by: i64) -> Result<Kernel> {
    let whole = kernel.axes.get(axis).and_then(Dim::as_int).filter(|n| by > 0 && n % by == 0);
    let Some(whole) = whole else { return Err(Error::invalid(format!("i{axis} is not made of pieces of {by}"))) };
    if kernel.steps.iter().any(|step| step.op.folds().contains(axis)) {
        return Err(Error::invalid(format!("a fold along i{axis}")));
    }
    let mut b = Builder::new();
    for (k, extent) in kernel.axes.iter().enumerate() {
        b.axis(if k == axis { Dim::int(whole / by) } else { extent.clone() })?;
    }
    let place = b.axis(Dim::int(by))?;
    let extents = b.kernel().axes.clone();
    let at = Dim::axis(axis) * by + Dim::axis(place);
    let moved = |dim: &Dim| {
        let dim = dim.substitute(&|symbol| (*symbol == Symbol::Axis(axis as u8)).then(|| at.clone()));
        dim.simplify(&Ranges::of(&extents))
    };
    for param in &kernel.inputs {
        b.input(param.clone());
    }
    for param in &kernel.outputs {
        b.output(param.clone());
    }
    b.rounding(kernel.rounding);
    for step in &kernel.steps {
        b.step(match &step.op {
            Op::Load { input, index, guard, fill, reads } => Op::Load {
                input: *input,
                index: index.iter().map(moved).collect(),
                guard: guard.iter().map(|g| Guard { index: moved(&g.index), bound: g.bound.clone() }).collect(),
                fill: *fill,
                reads: reads.clone(),
            },
            Op::Random { stream, seed, index, reads } => {
                Op::Random { stream: *stream, seed: *seed, index: moved(index), reads: reads.clone() }
            }
            Op::Map { expr, args } => Op::Map { expr: with_coordinate(expr, axis, &at), args: args.clone() },
            fold => fold.clone(),
        })?;
    }
    for store in &kernel.stores {
        b.store(store.output, &store.index.iter().map(moved).collect::<Vec<_>>(), store.value);
    }
    b.finish(with_axis(&kernel.schedule, axis, place))
}

/// An expression in which a coordinate is another one.
fn with_coordinate(expr: &Expr, axis: usize, at: &Dim) -> Expr {
    let is_meant = |node: &ExprNode| matches!(node, ExprNode::Coord(a) if usize::from(*a) == axis);
    if !expr.nodes().iter().any(|(node, _)| is_meant(node)) {
        return expr.clone();
    }
    Expr::build(expr.args(), |scope, args| {
        expr.inline_with(scope, |node| match node {
            ExprNode::Arg(k) => Some(args[*k as usize]),
            node if is_meant(node) => Some(scope.index(at)),
            _ => None,
        })
    })
}

/// A schedule in which a new axis has the role that another one has.
fn with_axis(schedule: &Schedule, like: usize, axis: usize) -> Schedule {
    let grown = |set: &mut AxisSet| {
        if set.contains(like) {
            *set = set.with(axis);
        }
    };
    let mut schedule = schedule.clone();
    match &mut schedule {
        Schedule::Map | Schedule::Host(_) => {}
        Schedule::Row { along, .. } => grown(along),
        Schedule::Column { across, along, .. } => [across, along].into_iter().for_each(grown),
        Schedule::Contract { rows, columns, sum, .. } => [rows, columns, sum].into_iter().for_each(grown),
        Schedule::Attention { chain: Chain { rows, stream, inner, columns, .. }, .. } => {
            [rows, stream, inner, columns].into_iter().for_each(grown);
        }
    }
    schedule
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::Buffer;
    use crate::tensor::{DType, Env, Literal};
    use crate::tile::{interp, parse};

    const GROUPED: &str = "kernel { axes i0: n, i1: 6, i2: 4, i3: 5, i4: 3 in x0: f32[n, 6, 3], x1: f32[5, 2, 3], x2: f32[5, 2, 4] \
        out y0: f32[n, 6, 4] schedule attention first=%2 second=%5 rows=[i0, i1] stream=[i3] inner=[i4] columns=[i2] \
        tile=64x256x64 %0 = load x0[i0, i1, i4] %1 = load x1[i3, i1 // 3, i4] %2 = dot(%0, %1) over [i4] acc=f32 \
        %3 = map(%2) select(i3 <= i0, a * f32(i1), -1.0) \
        %4 = load x2[i3, i1 // 3, i2] %5 = dot(%3, %4) over [i3] acc=f32 store y0[i0, i1, i2] = %5 }";

    #[test]
    fn keeps_the_meaning() {
        let kernel = parse(GROUPED).unwrap();
        let split = split_axis(&kernel, 1, 3).unwrap();
        assert_eq!(parse(&split.to_string()).unwrap(), split);
        assert_eq!((split.axes[1].as_int(), split.axes[5].as_int()), (Some(2), Some(3)));
        // Keys and values no longer vary over the places in a piece.
        assert!(!split.steps[1].axes.contains(5) && split.steps[1].axes.contains(1), "{split}");
        let env: Env = [(Symbol::name("n"), 4)].into_iter().collect();
        let input = |sizes: Vec<usize>| {
            let values: Vec<f64> = (0..sizes.iter().product()).map(|k| ((k * 37) % 11) as f64 - 5.0).collect();
            Buffer::from_literal(&Literal::from_f64s(DType::F32, sizes, &values).unwrap())
        };
        let inputs = [input(vec![4, 6, 3]), input(vec![5, 2, 3]), input(vec![5, 2, 4])];
        let run = |kernel| interp::run(kernel, &inputs, &env, &interp::Options::default()).unwrap();
        assert_eq!(run(&kernel)[0].to_literal().unwrap(), run(&split)[0].to_literal().unwrap());
    }

    #[test]
    fn refuses_what_it_cannot_cut() {
        let kernel = parse(GROUPED).unwrap();
        for (axis, by) in [(0, 2), (1, 4), (1, 0), (3, 5), (9, 1)] {
            assert!(split_axis(&kernel, axis, by).is_err(), "{axis} {by}");
        }
    }
}
