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

    /// Leaves out the steps that nobody reads anywhere.
    pub(super) fn without_idle(mut self, is_read: &[bool]) -> Nest {
        self.levels.iter_mut().chain([&mut self.streamed]).for_each(|steps| steps.retain(|k| is_read[*k]));
        self
    }
}

/// For every step whether it is read or stored at any point. One that does not vary over an axis without iterations stands outside of
/// it, and what it loads need not be there.
pub(super) fn read_somewhere(kernel: &Kernel, extents: &[usize]) -> Vec<bool> {
    let has_points = |axes: AxisSet| axes.iter().all(|axis| extents[axis] > 0);
    let mut is_read = vec![false; kernel.steps.len()];
    for store in kernel.stores.iter().filter(|store| has_points(store.axes())) {
        is_read[store.value.index()] = true;
    }
    for (k, step) in kernel.steps.iter().enumerate().rev() {
        if is_read[k] && has_points(step.axes.union(step.op.folds())) {
            step.op.operands().iter().for_each(|operand| is_read[operand.index()] = true);
        }
    }
    is_read
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tile::parse;

    fn nest(text: &str, extents: &[usize], most: usize) -> Nest {
        let kernel = parse(text).unwrap();
        let is_view: Vec<bool> = kernel.steps.iter().map(|step| step.op.name() == "load").collect();
        Nest::new(&kernel, extents, &is_view, &vec![false; kernel.steps.len()], most)
    }

    #[test]
    fn a_row_of_scores_is_there_at_one_time() {
        let attention = "kernel { axes i0: h, i1: n, i2: m, i3: 8, i4: 8 in q: f32[h, n, 8], k: f32[h, m, 8] schedule map \
            %0 = load q[i0, i1, i3] %1 = load k[i0, i2, i3] %2 = map(%1) exp(a) %3 = dot(%0, %2) over [i3] acc=f32 \
            %4 = reduce.max %3 over [i2] %5 = map(%3, %4) exp(a - b) %6 = dot(%5, %1) over [i2] acc=f32 }";
        let extents = [4, 100, 50, 8, 8];
        assert!(nest(attention, &extents, 1 << 20).loops.is_empty(), "small enough");
        let heads = nest(attention, &extents, 10_000);
        assert_eq!(heads.loops, [(0, 2)]);
        let rows = nest(attention, &extents, 500);
        assert_eq!(rows.loops, [(0, 1), (1, 10)]);
        // The keys of a head do not change from row to row; the largest of a row is not larger than allowed for all heads.
        assert_eq!(rows.levels, [vec![0, 1], vec![2], vec![3, 4, 5, 6]]);
        assert_eq!(rows.released[5], [3, 4]);
    }

    #[test]
    fn what_varies_over_an_inner_loop_alone_stands_outside_where_it_is_small() {
        let outer = "kernel { axes i0: n, i1: m in a: f32[n], b: f32[m] schedule map %0 = load a[i0] %1 = load b[i1] \
            %2 = map(%1) exp(a) %3 = map(%0, %2) a * b %4 = map(%3) exp(a) }";
        let nest = nest(outer, &[1000, 200], 300);
        assert_eq!((nest.loops, nest.levels), (vec![(0, 1)], vec![vec![0, 1, 2], vec![3, 4]]));
    }

    #[test]
    fn what_is_read_along_axes_without_iterations_alone_is_idle() {
        let sums = "kernel { axes i0: n, i1: m in a: f32[m], b: f32[n] out y0: f32[n] schedule map %0 = load a[0] %1 = load a[i1] \
            %2 = map(%0, %1) a * b %3 = reduce.sum %2 over [i1] %4 = load b[i0] %5 = map(%3, %4) a + b store y0[i0] = %5 }";
        let kernel = parse(sums).unwrap();
        assert_eq!(read_somewhere(&kernel, &[3, 2]), [true; 6]);
        assert_eq!(read_somewhere(&kernel, &[3, 0]), [false, false, false, true, true, true]);
        assert_eq!(read_somewhere(&kernel, &[0, 2]), [false; 6]);
    }

    #[test]
    fn axes_that_are_folded_are_no_loops() {
        let sum = "kernel { axes i0: n, i1: m in a: f32[n, m] schedule map %0 = load a[i0, i1] %1 = map(%0) exp(a) \
            %2 = reduce.sum %1 over [i0] }";
        assert_eq!(nest(sum, &[1000, 20], 100).loops, [(1, 1)]);
        assert_eq!(nest(sum, &[1000, 1], 100).loops, []);
    }
}
