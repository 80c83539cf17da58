//! Whether the roles that a schedule gives to axes and steps agree with the steps.

use super::super::{AxisSet, Chain, Correction, Kernel, Op, Placement, Schedule, StepId, Tile};
use crate::error::{Context, Error, Result};
use crate::graph::{self, Graph};
use crate::tensor::TensorType;

pub(super) fn check_schedule(kernel: &Kernel) -> Result<()> {
    match &kernel.schedule {
        Schedule::Map => check_folds(kernel, |_, _| Err("it folds, and a map does not".to_owned())),
        Schedule::Row { along, placement } => check_row(kernel, *along, *placement),
        Schedule::Column { across, along, parts } => check_column(kernel, *across, *along, *parts),
        Schedule::Contract { dots, rows, columns, sum, whole_rows, tile } => {
            check_tile(*tile)?;
            check_axes(kernel, &[("rows", *rows), ("columns", *columns), ("sum", *sum)])?;
            dots.iter().try_for_each(|dot| as_dot(kernel, *dot).map(drop))?;
            check_factors(kernel, dots, *rows, *columns, *sum)?;
            check_folds(kernel, |k, over| match over {
                _ if dots.contains(&StepId(k as u32)) => Ok(()),
                _ if over.is_within(*sum) && !matches!(kernel.steps[k].op, Op::Dot { .. }) => Ok(()),
                _ if over.is_within(*columns) && *whole_rows => Ok(()),
                _ if over.is_within(*columns) => Err(format!("it folds over columns {over}, without whole rows")),
                _ => Err(format!("it folds over {over}, and is not one of the dots")),
            })
        }
        Schedule::Attention { chain, corrections, tile, parts } => {
            check_tile(*tile)?;
            if *parts == 0 {
                return Err(Error::invalid("a stream cut into no parts"));
            }
            check_chain(kernel, chain)?;
            check_stream(kernel, chain, corrections)
        }
        Schedule::Host(graph) => check_host(kernel, graph),
    }
}

/// Asks of every step that folds what is wrong with it.
fn check_folds(kernel: &Kernel, check: impl Fn(usize, AxisSet) -> std::result::Result<(), String>) -> Result<()> {
    for (k, step) in kernel.steps.iter().enumerate().filter(|(_, step)| step.op.is_fold()) {
        check(k, step.op.folds()).map_err(|why| Error::invalid(why).at(kernel.describe(k)))?;
    }
    Ok(())
}

/// Roles are axes of the kernel, and no axis has two.
fn check_axes(kernel: &Kernel, roles: &[(&str, AxisSet)]) -> Result<()> {
    let mut taken = AxisSet::EMPTY;
    for (name, axes) in roles {
        if let Some(axis) = axes.iter().find(|axis| *axis >= kernel.axes.len()) {
            return Err(Error::invalid(format!("{name} has an axis i{axis}, which is not there")));
        }
        if !axes.common(taken).is_empty() {
            return Err(Error::invalid(format!("{} have two roles, one of them {name}", axes.common(taken))));
        }
        taken = taken.union(*axes);
    }
    Ok(())
}

fn check_tile(tile: Tile) -> Result<()> {
    if [tile.rows, tile.columns, tile.depth].contains(&0) { Err(Error::invalid("an empty tile")) } else { Ok(()) }
}

fn check_row(kernel: &Kernel, along: AxisSet, placement: Placement) -> Result<()> {
    check_axes(kernel, &[("along", along)])?;
    if placement == Placement::Split(0) {
        return Err(Error::invalid("rows cut into no parts"));
    }
    check_folds(kernel, |_, over| match over.without(along) {
        AxisSet::EMPTY => Ok(()),
        others => Err(format!("it folds over {others}, which are not among the axes along")),
    })
}

fn check_column(kernel: &Kernel, across: AxisSet, along: AxisSet, parts: u32) -> Result<()> {
    check_axes(kernel, &[("across", across), ("along", along)])?;
    if parts == 0 {
        return Err(Error::invalid("work cut into no parts"));
    }
    check_folds(kernel, |_, over| match over.without(across.union(along)) {
        AxisSet::EMPTY => Ok(()),
        others => Err(format!("it folds over {others}, which are neither across nor along")),
    })?;
    for (k, fold) in kernel.steps.iter().enumerate().filter(|(_, s)| !s.op.folds().common(across).is_empty()) {
        let readers = dependents(kernel, |step| step == k);
        let varies = |at: &usize| readers[*at] && !kernel.steps[*at].axes.common(across).is_empty();
        if let Some(reader) = (0..kernel.steps.len()).find(varies) {
            let (name, axes) = (fold.op.name(), kernel.steps[reader].axes.common(across));
            let why = format!("it varies over {axes} and needs %{k} ({name}), which is folded across workers");
            return Err(Error::invalid(why).at(kernel.describe(reader)));
        }
    }
    Ok(())
}

/// Which steps are among some steps or depend on them.
fn dependents(kernel: &Kernel, among: impl Fn(usize) -> bool) -> Vec<bool> {
    let mut reached = vec![false; kernel.steps.len()];
    for (k, step) in kernel.steps.iter().enumerate() {
        reached[k] = among(k) || step.op.operands().iter().any(|operand| reached[operand.index()]);
    }
    reached
}

/// The summed axes and the two factors of a step that must be a dot.
fn as_dot(kernel: &Kernel, id: StepId) -> Result<(AxisSet, [StepId; 2])> {
    match kernel.steps.get(id.index()).map(|step| &step.op) {
        Some(Op::Dot { over, a, b, .. }) => Ok((*over, [*a, *b])),
        Some(op) => Err(Error::invalid(format!("{id:?} is a {}, not a dot", op.name()))),
        None => Err(Error::invalid(format!("there is no step {id:?}"))),
    }
}

/// The dots share a factor; the rows are axes of it, the columns those of the other factors that it lacks.
fn check_factors(kernel: &Kernel, dots: &[StepId], rows: AxisSet, columns: AxisSet, sum: AxisSet) -> Result<()> {
    let first = *dots.first().ok_or_else(|| Error::invalid("no dots"))?;
    let (_, candidates) = as_dot(kernel, first)?;
    let fits = |shared: StepId| -> Result<()> {
        let mut others = AxisSet::EMPTY;
        for dot in dots {
            let (over, [a, b]) = as_dot(kernel, *dot)?;
            if over != sum {
                return Err(Error::invalid(format!("{dot:?} sums over {over}, not {sum}")));
            }
            let other = match (a == shared, b == shared) {
                (true, _) => b,
                (_, true) => a,
                _ => return Err(Error::invalid(format!("{dot:?} does not share a factor with {first:?}"))),
            };
            let (own, foreign) = (kernel.step(shared).axes.without(sum), kernel.step(other).axes.without(sum));
            if !rows.is_within(own) {
                return Err(Error::invalid(format!("the rows of {dot:?} are {own}, not {rows}")));
            }
            others = others.union(foreign).without(own);
        }
        if !columns.is_within(others) {
            return Err(Error::invalid(format!("the columns are {others}, not {columns}")));
        }
        Ok(())
    };
    // Either factor of a single dot may be the one that has the rows.
    fits(candidates[0]).or_else(|error| fits(candidates[1]).map_err(|_| error))
}

fn check_chain(kernel: &Kernel, chain: &Chain) -> Result<()> {
    let Chain { first, second, rows, stream, inner, columns } = chain;
    check_axes(kernel, &[("rows", *rows), ("stream", *stream), ("inner", *inner), ("columns", *columns)])?;
    if stream.is_empty() {
        return Err(Error::invalid("nothing is streamed"));
    }
    // Masks may bring in rows that the first dot lacks.
    for (dot, sum, result) in [(first, inner, *stream), (second, stream, rows.union(*columns))] {
        let (over, _) = as_dot(kernel, *dot)?;
        let axes = kernel.step(*dot).axes;
        if over != *sum {
            return Err(Error::invalid(format!("{dot:?} sums over {over}, not {sum}")));
        }
        if !result.is_within(axes) {
            return Err(Error::invalid(format!("{dot:?} varies over {axes}, not over all of {result}")));
        }
    }
    if !kernel.step(*first).axes.common(*columns).is_empty() {
        return Err(Error::invalid(format!("{first:?} varies over the columns {columns}")));
    }
    if !dependents(kernel, |k| k == first.index())[second.index()] {
        return Err(Error::invalid(format!("{second:?} does not depend on {first:?}")));
    }
    Ok(())
}

/// Folds along the stream can be computed piece by piece: every dependence of one on another is corrected.
fn check_stream(kernel: &Kernel, chain: &Chain, corrections: &[Correction]) -> Result<()> {
    let is_streamed = |k: usize| !kernel.steps[k].op.folds().common(chain.stream).is_empty();
    check_folds(kernel, |k, over| match &kernel.steps[k].op {
        _ if over.is_within(chain.inner) || over.is_within(chain.columns) => Ok(()),
        Op::Prefix { .. } => Err("a running fold along the stream".to_owned()),
        Op::Reduce { monoid, .. } if monoid.is_position() => Err("a position along the stream".to_owned()),
        _ if over != chain.stream => Err(format!("it folds over {over}, which is neither stream, inner nor columns")),
        _ => Ok(()),
    })?;
    for correction in corrections {
        check_correction(kernel, correction).at(|| format!("the correction of {:?}", correction.fold))?;
    }
    for k in (0..kernel.steps.len()).filter(|k| is_streamed(*k)) {
        let beyond = |c: &&Correction| !kernel.step(c.on).axes.is_within(kernel.steps[k].axes);
        if let Some(correction) = corrections.iter().filter(|c| c.fold.index() == k).find(beyond) {
            let why = format!("it is corrected for {:?}, which varies over more", correction.on);
            return Err(Error::invalid(why).at(kernel.describe(k)));
        }
        let needed = nearest(kernel, k, &is_streamed);
        let given = corrections.iter().filter(|c| c.fold.index() == k).map(|c| c.on.index());
        let mut given: Vec<usize> = given.collect();
        given.sort_unstable();
        if needed != given {
            let why = format!("it depends on {}, and is corrected for {}", steps_text(&needed), steps_text(&given));
            return Err(Error::invalid(why).at(kernel.describe(k)));
        }
    }
    let unfinished = dependents(kernel, is_streamed);
    for store in &kernel.stores {
        let value = store.value;
        if unfinished[value.index()] && !kernel.step(value).axes.common(chain.stream).is_empty() {
            let why = "it varies along the stream, depends on a fold along it, and is stored";
            return Err(Error::invalid(why).at(kernel.describe(value.index())));
        }
    }
    Ok(())
}

fn check_correction(kernel: &Kernel, correction: &Correction) -> Result<()> {
    let Correction { fold, on, factor } = correction;
    let dtype = |id: StepId| {
        let step = kernel.steps.get(id.index()).ok_or_else(|| Error::invalid(format!("there is no step {id:?}")));
        step.map(|step| step.dtype)
    };
    let (of, by) = (dtype(*fold)?, dtype(*on)?);
    if factor.args() != [by, by] || !factor.dtype().is_float() || !of.is_float() {
        return Err(Error::invalid(format!("the factor of a fold in {of} must be a float function of two {by}")));
    }
    if factor.has_coordinates() {
        return Err(Error::invalid("the factor mentions a coordinate"));
    }
    Ok(())
}

/// The marked steps on which a step depends through unmarked ones, ascending.
fn nearest(kernel: &Kernel, step: usize, marked: &dyn Fn(usize) -> bool) -> Vec<usize> {
    let mut wanted = vec![false; step];
    kernel.steps[step].op.operands().iter().for_each(|operand| wanted[operand.index()] = true);
    let mut found = Vec::new();
    for k in (0..step).rev() {
        if wanted[k] && marked(k) {
            found.push(k);
        } else if wanted[k] {
            kernel.steps[k].op.operands().iter().for_each(|operand| wanted[operand.index()] = true);
        }
    }
    found.reverse();
    found
}

fn steps_text(steps: &[usize]) -> String {
    let texts: Vec<String> = steps.iter().map(|step| format!("%{step}")).collect();
    if texts.is_empty() { "nothing".to_owned() } else { texts.join(", ") }
}

fn check_host(kernel: &Kernel, graph: &Graph) -> Result<()> {
    // What the kernel's sizes are is up to whoever runs it, what its graph is to whoever wrote it.
    graph::verify_open(graph).map_err(Error::of_input)?;
    if !(kernel.axes.is_empty() && kernel.steps.is_empty() && kernel.stores.is_empty()) {
        return Err(Error::invalid("axes, steps or stores beside the graph"));
    }
    let types =
        |params: &[super::super::Param]| params.iter().map(|param| param.ty.clone()).collect::<Vec<TensorType>>();
    let inputs: Vec<TensorType> = graph.inputs().iter().map(|value| graph.ty(*value).clone()).collect();
    let outputs: Vec<TensorType> = graph.outputs().iter().map(|output| graph.ty(output.value).clone()).collect();
    if (&inputs, &outputs) != (&types(&kernel.inputs), &types(&kernel.outputs)) {
        return Err(Error::invalid(format!("the graph takes {inputs:?} and returns {outputs:?}")));
    }
    Ok(())
}
