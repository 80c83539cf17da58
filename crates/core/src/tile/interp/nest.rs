//! Which axes are loops around steps, and at which depth a step is computed.
//!
//! A step is computed as one tensor over its axes. Where that would be large, axes over which nothing is folded become
//! loops around it, so that a row of attention scores is there at one time and not all of them. A step stands as far
//! outside as its size allows, and is computed once there, however often it is read further inside.

use super::super::{AxisSet, Kernel};

#[derive(Debug)]
pub(super) struct Nest {
    /// the loops, outermost first: axis, and length of a piece
    pub loops: Vec<(usize, usize)>,
    /// the steps inside of so many loops, in order; streamed ones are not among them
    pub levels: Vec<Vec<usize>>,
    /// the values that nobody needs any more when a step has been computed
    pub released: Vec<Vec<usize>>,
    /// loads that are seen where they are read, and have no value of their own
    pub is_view: Vec<bool>,
    /// steps that are computed piece by piece along a stream, in order
    pub streamed: Vec<usize>,
}

impl Nest {
    /// The nest of a kernel of these extents in which steps have at most `most` elements, where axes can be loops.
    pub(super) fn new(kernel: &Kernel, extents: &[usize], is_view: &[bool], streamed: &[bool], most: usize) -> Nest {
        let sized = Sized { kernel, extents, is_view, most };
        let loops = sized.loops();
        let mut level_of = vec![0; kernel.steps.len()];
        for (k, step) in kernel.steps.iter().enumerate() {
            let operands = step.op.operands();
            let least = operands.iter().map(|operand| level_of[operand.index()]).max().unwrap_or(0);
            let fits = |level: &usize| sized.count(k, &loops[..*level]) <= most;
            level_of[k] = match streamed[k] {
                true => loops.len(),
                false => (least..loops.len()).find(fits).unwrap_or(loops.len()),
            };
        }
        let mut levels = vec![Vec::new(); loops.len() + 1];
        for k in (0..kernel.steps.len()).filter(|k| !streamed[*k]) {
            levels[level_of[k]].push(k);
        }
        let released = released(kernel, &level_of, streamed);
        let streamed = (0..kernel.steps.len()).filter(|k| streamed[*k]).collect();
        Nest { loops, levels, released, is_view: is_view.to_vec(), streamed }
    }
}

/// Values that only steps of their own level read, by the last of these.
fn released(kernel: &Kernel, level_of: &[usize], streamed: &[bool]) -> Vec<Vec<usize>> {
    let mut last: Vec<Option<usize>> = (0..kernel.steps.len()).map(Some).collect();
    for (reader, step) in kernel.steps.iter().enumerate() {
        for operand in step.op.operands() {
            let k = operand.index();
            let together = level_of[k] == level_of[reader] && !streamed[reader];
            last[k] = last[k].filter(|_| together).map(|_| reader);
        }
    }
    let mut released = vec![Vec::new(); kernel.steps.len()];
    for (k, last) in last.iter().enumerate().filter(|(k, _)| !streamed[*k]) {
        if let Some(last) = last {
            released[*last].push(k);
        }
    }
    released
}

/// A kernel whose sizes are numbers.
struct Sized<'k> {
    kernel: &'k Kernel,
    extents: &'k [usize],
    is_view: &'k [bool],
    most: usize,
}

impl Sized<'_> {
    /// The number of elements of a step inside of some loops.
    fn count(&self, k: usize, loops: &[(usize, usize)]) -> usize {
        if self.is_view[k] {
            return 0;
        }
        let length = |axis: usize| {
            let looped = loops.iter().find(|(looped, _)| *looped == axis);
            looped.map_or(self.extents[axis], |(_, length)| *length)
        };
        self.kernel.steps[k].axes.iter().fold(1, |count: usize, axis| count.saturating_mul(length(axis)))
    }

    fn loops(&self) -> Vec<(usize, usize)> {
        let steps = &self.kernel.steps;
        let folded = steps.iter().map(|step| step.op.folds()).fold(AxisSet::EMPTY, AxisSet::union);
        let mut loops: Vec<(usize, usize)> = Vec::new();
        loop {
            let taken: AxisSet = loops.iter().map(|(axis, _)| *axis).collect();
            let free =
                |k: usize| steps[k].axes.without(folded).without(taken).iter().find(|axis| self.extents[*axis] > 1);
            // The largest first, so that what stands further inside is smaller.
            let large = (0..steps.len()).filter(|k| self.count(*k, &loops) > self.most && free(*k).is_some());
            let Some(axis) = large.max_by_key(|k| self.count(*k, &loops)).and_then(free) else { break };
            loops.push((axis, 1));
        }
        if let Some((axis, length)) = loops.last().copied() {
            let inside =
                (0..steps.len()).filter(|k| steps[*k].axes.contains(axis)).map(|k| self.count(k, &loops)).max();
            let longest = (self.most / inside.unwrap_or(1).max(1)).clamp(length, self.extents[axis]);
            loops.pop();
            loops.push((axis, longest));
        }
        loops
    }
}
