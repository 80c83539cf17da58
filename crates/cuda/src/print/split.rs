//! Folds in parts: where too few results are folded over too much, every part is folded by itself, and the parts are folded afterwards.

use fuseline::ops::prim::{Guard, Monoid};
use fuseline::ops::{Expr, ExprNode, Number, Scalar, Term};
use fuseline::tensor::{Dim, Env, Symbol};
use fuseline::tile::{AxisSet, Kernel, Op, Step, StepId};

/// A fold that is cut into parts along one of its axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Split {
    pub axis: usize,
    pub parts: i64,
    /// elements of a part along the axis; the last part may have fewer
    pub length: i64,
}

/// Threads that keep a GPU busy.
const ENOUGH: i64 = 1 << 17;

/// A part has no fewer elements than this.
const SHORTEST: i64 = 32;

/// How a fold of so many results is best cut; none where there is work enough. `owned`: how many threads work on one result.
pub(super) fn choose(kernel: &Kernel, id: StepId, fixed: &Env, owned: i64) -> Option<Split> {
    let step = kernel.step(id);
    let over = match &step.op {
        Op::Reduce { monoid, over, .. } if !monoid.is_position() => *over,
        Op::Dot { over, .. } => *over,
        _ => return None,
    };
    let number = |axis: usize| fixed.apply(&kernel.axes[axis]).as_int();
    let results = step.axes.iter().map(number).try_fold(1i64, |all, n| all.checked_mul(n?))?;
    let busy = results.checked_mul(owned)?;
    // The longest axis, of those that no expression mentions as a coordinate.
    let is_free = |axis: &usize| !mentions_coordinate(kernel, *axis);
    let (axis, extent) =
        over.iter().filter(is_free).filter_map(|axis| Some((axis, number(axis)?))).max_by_key(|(_, n)| *n)?;
    let least = if owned > 1 { 32 * owned } else { SHORTEST };
    let parts = (ENOUGH / busy.max(1)).min(extent / least).min(1024);
    if busy >= ENOUGH || parts < 2 {
        return None;
    }
    // A number of parts near to that which leaves nothing over, if there is one.
    let parts = (parts / 2 + 1..=parts).rev().find(|parts| extent % parts == 0).unwrap_or(parts);
    let length = (extent + parts - 1) / parts;
    Some(Split { axis, parts: (extent + length - 1) / length, length })
}

/// Blocks of threads that keep a GPU busy.
const ENOUGH_BLOCKS: i64 = 256;

/// How a sum of products that so many blocks of threads compute is best cut: into equal parts, so that all processors have work. None
/// where there is work enough, or no such cut.
pub(super) fn choose_tiles(kernel: &Kernel, id: StepId, fixed: &Env, blocks: Option<i64>, depth: i64) -> Option<Split> {
    let number = |axis: usize| fixed.apply(&kernel.axes[axis]).as_int();
    let over = kernel.step(id).op.folds().iter();
    let is_free = |axis: &usize| !mentions_coordinate(kernel, *axis);
    let (axis, extent) = over.filter(is_free).filter_map(|axis| Some((axis, number(axis)?))).max_by_key(|(_, n)| *n)?;
    let most = (ENOUGH_BLOCKS / blocks?.max(1)).min(extent / (2 * depth)).min(64);
    // Whole packs; whole tiles, if that leaves about as many.
    let is_cut = |parts: &i64, by: i64| extent % (parts * by) == 0;
    let parts = (most / 2 + 1..=most).rev().find(|parts| is_cut(parts, depth));
    let parts = parts.or_else(|| (2..=most).rev().find(|parts| is_cut(parts, 8)))?;
    (parts >= 2).then_some(Split { axis, parts, length: extent / parts })
}

fn mentions_coordinate(kernel: &Kernel, axis: usize) -> bool {
    kernel.steps.iter().any(|step| match &step.op {
        Op::Map { expr, .. } => {
            expr.nodes().iter().any(|(node, _)| matches!(node, ExprNode::Coord(a) if usize::from(*a) == axis))
        }
        Op::Prefix { axis: along, .. } => *along == axis,
        Op::Reduce { monoid, over, .. } => monoid.is_position() && over.contains(axis),
        _ => false,
    })
}

/// The kernel in which a fold is done for every part by itself: a new axis, the last one, counts the parts.
pub(super) fn in_parts(kernel: &Kernel, id: StepId, split: Split, fixed: &Env) -> Kernel {
    let mut kernel = kernel.clone();
    let part = kernel.axes.len();
    let whole = kernel.axes[split.axis].clone();
    kernel.axes[split.axis] = Dim::int(split.length);
    kernel.axes.push(Dim::int(split.parts));
    let place = Dim::axis(split.axis) + Dim::axis(part) * split.length;
    let moved = |dim: &Dim| {
        dim.substitute(&|symbol| match symbol {
            Symbol::Axis(axis) if usize::from(*axis) == split.axis => Some(place.clone()),
            _ => None,
        })
    };
    let is_exact = fixed.apply(&whole).is(split.parts * split.length);
    for step in &mut kernel.steps {
        let varies = step.axes.contains(split.axis);
        let dtype = step.dtype;
        match &mut step.op {
            Op::Load { index, guard, fill, .. } if varies => {
                index.iter_mut().for_each(|dim| *dim = moved(dim));
                guard.iter_mut().for_each(|guard| guard.index = moved(&guard.index));
                if !is_exact {
                    guard.push(Guard { index: place.clone(), bound: whole.clone() });
                    fill.get_or_insert(Number::new(dtype, 0.0));
                }
            }
            Op::Random { index, .. } => *index = moved(index),
            _ => {}
        }
        if varies {
            step.axes = step.axes.with(part);
        }
    }
    let step = &mut kernel.steps[id.index()];
    step.axes = step.axes.with(part);
    if !is_exact {
        shut_out(&mut kernel, id, &place, &whole);
    }
    kernel
}

/// What lies behind the last element counts for nothing.
fn shut_out(kernel: &mut Kernel, id: StepId, place: &Dim, whole: &Dim) {
    let (arg, monoid) = match &kernel.step(id).op {
        Op::Reduce { monoid, arg, .. } => (*arg, *monoid),
        Op::Dot { a, .. } => (*a, Monoid::Sum),
        _ => return,
    };
    let dtype = kernel.step(arg).dtype;
    let neutral = monoid.neutral(dtype);
    let expr = Expr::build(&[dtype], |scope, x| {
        let is_inside = Term::call(Scalar::Lt, &[scope.index(place), scope.size(whole.clone())]);
        is_inside.select(x[0], scope.constant(dtype, neutral))
    });
    let axes = kernel.step(arg).axes.union(AxisSet::mentioned(place));
    let step = Step { op: Op::Map { expr, args: smallvec::smallvec![arg] }, dtype, axes };
    insert(kernel, id, step);
    // The fold stands one place further on, behind what is its term now.
    match &mut kernel.steps[id.index() + 1].op {
        Op::Reduce { arg, .. } => *arg = id,
        Op::Dot { a, .. } => *a = id,
        _ => {}
    }
}

/// Puts a step at a place; those from there on are one place further on.
pub(super) fn insert(kernel: &mut Kernel, at: StepId, step: Step) {
    let moved = |id: &mut StepId| {
        if id.0 >= at.0 {
            id.0 += 1;
        }
    };
    for step in &mut kernel.steps[at.index()..] {
        match &mut step.op {
            Op::Load { reads, .. } => reads.iter_mut().for_each(moved),
            Op::Random { seed, reads, .. } => {
                moved(seed);
                reads.iter_mut().for_each(moved);
            }
            Op::Map { args, .. } => args.iter_mut().for_each(moved),
            Op::Reduce { arg, .. } | Op::Prefix { arg, .. } => moved(arg),
            Op::Dot { a, b, .. } => {
                moved(a);
                moved(b);
            }
        }
    }
    kernel.stores.iter_mut().for_each(|store| moved(&mut store.value));
    kernel.steps.insert(at.index(), step);
}
