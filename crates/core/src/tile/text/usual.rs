//! The schedule of a kernel whose writer names none.

use crate::tile::{AxisSet, Kernel, Op, Placement, Schedule, StepId, Tile};

/// The block of a product that suits most devices.
const TILE: Tile = Tile { rows: 64, columns: 64, depth: 64 };

/// What is usual for such steps: points by themselves where nothing is folded, tiles for one product, rows for everything else.
pub(super) fn usual_schedule(kernel: &Kernel) -> Schedule {
    let folds = || kernel.steps.iter().filter(|step| step.op.is_fold());
    let along = folds().map(|step| step.op.folds()).fold(AxisSet::EMPTY, AxisSet::union);
    match folds().next() {
        None => Schedule::Map,
        Some(_) => product(kernel).unwrap_or(Schedule::Row { along, placement: Placement::Registers }),
    }
}

/// Tiles, where the only product of two factors has rows and columns, and other folds go along its columns.
fn product(kernel: &Kernel) -> Option<Schedule> {
    let mut dots = kernel.steps.iter().enumerate().filter(|(_, step)| matches!(step.op, Op::Dot { .. }));
    let (place, dot) = dots.next()?;
    let Op::Dot { over, a, b, .. } = &dot.op else { return None };
    if dots.next().is_some() {
        return None;
    }
    let of = |step: &StepId| kernel.step(*step).axes.without(*over);
    let (rows, columns) = (of(a).without(of(b)), of(b).without(of(a)));
    let others = kernel.steps.iter().enumerate().filter(|(k, step)| *k != place && step.op.is_fold());
    let others: Vec<AxisSet> = others.map(|(_, step)| step.op.folds()).collect();
    let fits = others.iter().all(|folded| folded.without(columns) == AxisSet::EMPTY);
    let dots = vec![StepId(u32::try_from(place).ok()?)];
    (fits && rows != AxisSet::EMPTY && columns != AxisSet::EMPTY).then(|| Schedule::Contract {
        dots,
        rows,
        columns,
        sum: *over,
        whole_rows: !others.is_empty(),
        tile: TILE,
    })
}
