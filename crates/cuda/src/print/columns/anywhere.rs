//! Folds across rows that begin anywhere in a line of 16 bytes, for their length is no multiple of a pack.
//!
//! Every warp of a block takes rows that begin alike, for as many rows lie between them as a pack has elements, and reads whole lines of them, from that on
//! which holds the first column of the block. What warps have found therefore belongs to columns that are some elements apart: it is put where it belongs
//! in shared memory, and folded there, a column a thread. Elements of neighbouring rows in the first and the last line are folded too, and left there.

use fuseline::error::Result;
use fuseline::tensor::Dim;
use fuseline::tile::{AxisSet, StepId};

use super::super::body::{Accumulator, Body, Lanes, start_of};
use super::super::element;
use super::super::function::{Function, Grid};
use super::super::nest::{Access, Lines, Nest, is_multiple, slope};
use super::super::points::{decode, order_axes};
use super::{Columns, THREADS};

/// Threads that read a line each, side by side.
const WARP: i64 = 32;

/// Warps of a block: a multiple of the elements of a pack, so that rows of a warp begin alike.
const WARPS: i64 = THREADS / WARP;

/// Bytes of a line.
const LINE: i64 = 16;

/// Elements at a time that are enough as they are.
const ENOUGH: i64 = 4;

/// Columns that are enough for lines of a warp.
const SHORTEST: i64 = 256;

/// Terms that a warp takes at least; with so many, a fold is cut into parts where there are few columns.
const LEAST_TERMS: i64 = 16;
const MANY_TERMS: i64 = 4096;

/// Rows that begin anywhere, of which columns are folded.
#[derive(Clone, Debug)]
pub(super) struct Anywhere {
    lines: Lines,
    /// the axis that counts rows, and how many columns a row has
    row: usize,
    length: i64,
}

/// Blocks that share the columns of a row, and how many of them each has: those that lines of a warp hold wherever they begin.
fn windows(length: i64, count: i64) -> (i64, i64) {
    let most = (WARP - 1) * count + 1;
    // Of no columns, too, somebody says what nothing is.
    let windows = ((length + most - 1) / most).max(1);
    (windows, (length + windows - 1) / windows)
}

impl Anywhere {
    /// Whether terms lie so; `lanes` is how many of them are side by side in packs of the usual kind.
    pub fn of(nest: &Nest<'_>, points: AxisSet, across: AxisSet, lanes: Lanes) -> Option<Anywhere> {
        let axis = lanes.axis;
        let mut axes = across.iter();
        let (row, None) = (axes.next()?, axes.next()) else { return None };
        let (length, terms) = (nest.extents[axis].as_int()?, nest.extents[row].as_int()?);
        let is_along = |access: &&Access| AxisSet::mentioned(&access.offset).contains(axis);
        let first = nest.loads().find(is_along)?;
        let start = start_of(&first.offset, axis);
        let widest = nest.loads().filter(is_along).map(|access| element::bytes(access.tensor.dtype)).max()?;
        let count = LINE / widest;
        // Where a line of the first row begins follows from where rows of the same number of a part begin.
        let lies = |access: &Access| {
            let is_plain = access.checked.is_empty() && access.reads.is_empty();
            let is_guarded = access.guards.iter().any(|guard| AxisSet::mentioned(&guard.index).contains(axis));
            let is_in_line = slope(&access.offset, axis).is_some_and(|slope| slope.is(1));
            let begins = is_multiple(&(start_of(&access.offset, axis) - &start), count);
            is_plain && !is_guarded && is_in_line && begins
        };
        let others: AxisSet = points.without(AxisSet::of(axis));
        let blocks = nest.count(others).as_int()? * windows(length, count).0;
        let moves = slope(&start, row).and_then(|stride| stride.as_int()).is_some_and(|stride| stride > 0);
        let fits = lanes.count < ENOUGH.min(count)
            && WARPS % count == 0
            && length >= SHORTEST
            && terms >= WARPS * LEAST_TERMS
            && (terms >= MANY_TERMS || blocks >= nest.options.processors)
            && moves
            && nest.loads().filter(is_along).all(lies);
        fits.then_some(Anywhere { lines: Lines { axis, count, start, parts: None }, row, length })
    }

    pub fn shares(&self) -> i64 {
        WARPS
    }

    pub fn lanes(&self) -> Lanes {
        Lanes { axis: self.lines.axis, count: self.lines.count }
    }

    /// The function that computes some stores.
    pub fn print(&self, nest: &Nest<'_>, stores: &[usize], found: &Columns, sites: Vec<String>) -> Result<Function> {
        let nest = &nest.in_lines(self.lines.clone());
        let Lines { axis, count, start, .. } = &self.lines;
        let (length, (windows, columns)) = (self.length, windows(self.length, *count));
        let points = stores.iter().fold(AxisSet::EMPTY, |all, store| all.union(nest.stores[*store].axes));
        let others = points.without(AxisSet::of(*axis));
        let mut body = Body::new(nest, Some(self.lanes()), sites);
        (body.is_near, body.is_deep) = (nest.is_near(stores), true);
        body.line(format!("const int share = threadIdx.x / {WARP};"));
        body.line(format!("const Index begin = blockIdx.x % {windows} * {columns};"));
        body.line(format!("const Index place = blockIdx.x / {windows};"));
        decode(&mut body, nest, &order_axes(nest, stores, others, None), "place", None);
        body.bind(others);
        let stride = slope(start, self.row).unwrap_or_else(|| Dim::int(0));
        let (first, stride) = (body.index(&start_of(start, self.row), &[]), body.index(&stride, &[]));
        body.line(format!("const Index start = {first} + share * {stride};"));
        body.line(format!("const int lead = (int)(start + begin) & {};", count - 1));
        // No line behind the last one of the row is read.
        body.line(format!("const Index last = {} - ((start + {}) & {});", length - 1, length - 1, count - 1));
        body.line(format!("const Index line = begin - lead + threadIdx.x % {WARP} * {count};"));
        body.line(format!("const Index i{axis} = line < last ? line : last;"));
        let accumulators: Vec<Accumulator> = found.folds.iter().map(|fold| Accumulator::of(nest, *fold)).collect();
        found.print_terms(nest, &mut body, &accumulators)?;
        self.print_meeting(&mut body, &found.folds, &accumulators);
        body.lanes = None;
        body.open(AxisSet::of(*axis));
        body.line(format!("const Index i{axis} = begin + threadIdx.x;"));
        for (fold, accumulator) in found.folds.iter().zip(&accumulators) {
            let result = accumulator.result(&body, &format!("all{}", fold.0));
            body.know(*fold, result);
        }
        for store in stores {
            body.store(*store, None)?;
        }
        body.close(&format!("if (threadIdx.x < {columns} && begin + threadIdx.x < {length})"));
        let blocks = nest.count(others) * windows;
        let grid = Grid { blocks, threads: THREADS as u32, shared: 0, least_blocks: found.least_blocks(), cluster: 1 };
        let what = format!(
            "{WARPS} warps share the folds of {columns} neighbouring points, by lines of rows that begin anywhere"
        );
        Ok(Function::new(body, grid, what))
    }

    /// Puts what warps have found where it belongs, and folds it.
    fn print_meeting(&self, body: &mut Body<'_>, folds: &[StepId], accumulators: &[Accumulator]) {
        let (count, places) = (self.lines.count, (WARP + 1) * self.lines.count);
        for (fold, Accumulator { ty, .. }) in folds.iter().zip(accumulators) {
            body.line(format!("__shared__ {ty} part{}[{WARPS}][{places}];", fold.0));
            body.line("#pragma unroll");
            body.line(format!(
                "for (int l = 0; l < {count}; ++l) part{0}[share][(threadIdx.x % {WARP} + 1) * {count} - lead + l] = s{0}[l];",
                fold.0
            ));
        }
        body.line("__syncthreads();");
        for (fold, Accumulator { ty, functor, .. }) in folds.iter().zip(accumulators) {
            let id = fold.0;
            // Threads behind the columns of a block have none.
            body.line(format!("const int at{id} = {count} + (threadIdx.x < {0} ? threadIdx.x : 0);", places - count));
            body.line(format!("{ty} all{id} = part{id}[0][at{id}];"));
            body.line("#pragma unroll");
            body.line(format!("for (int k = 1; k < {WARPS}; ++k) all{id} = {functor}(all{id}, part{id}[k][at{id}]);"));
        }
    }
}
