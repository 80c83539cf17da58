//! Some operations as one kernel: what it reads and writes, and what that costs.

use indexmap::IndexSet;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use super::network::{Joined, Known, Network};
use crate::analysis::{Price, Stream, Work, price};
use crate::device::{Machine, Unit};
use crate::lower::Limits;
use crate::ops::prim::Class;

/// Threads of a block on a GPU.
const THREADS: f64 = 256.0;
/// Bytes that a core takes at a time on a CPU.
const CHUNK: f64 = 16384.0;

/// What a number of kernels moves, starts and takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// bytes read and written
    pub bytes: f64,
    /// tensors read and tensors written
    pub accesses: usize,
    /// arithmetic operations, without those that are done again
    pub flops: f64,
    /// kernels started
    pub launches: usize,
    /// predicted microseconds
    pub us: f64,
}

impl std::ops::Add for Totals {
    type Output = Totals;

    fn add(self, other: Totals) -> Totals {
        Totals {
            bytes: self.bytes + other.bytes,
            accesses: self.accesses + other.accesses,
            flops: self.flops + other.flops,
            launches: self.launches + other.launches,
            us: self.us + other.us,
        }
    }
}

impl std::iter::Sum for Totals {
    fn sum<I: Iterator<Item = Totals>>(all: I) -> Totals {
        all.fold(Totals::default(), |a, b| a + b)
    }
}

/// How the contraction of a kernel is cut.
#[derive(Clone, Debug)]
pub(super) struct Cut {
    /// the contraction
    pub(super) anchor: usize,
    rows: f64,
    /// columns of its result
    pub(super) columns: f64,
    /// columns of a block
    block_columns: f64,
    /// rows of blocks that there are, the largest first
    block_rows: SmallVec<[f64; 4]>,
    /// whether what comes behind it folds rows of its result, so that a block must own whole ones
    whole_rows: bool,
    /// columns of the longest row that a block can own
    pub(super) longest_row: f64,
}

impl Cut {
    /// How many blocks lie beside each other: each computes its own operands.
    pub(super) fn across(&self) -> f64 {
        if self.whole_rows { 1.0 } else { (self.columns / self.block_columns).ceil().max(1.0) }
    }

    /// Into how many blocks it is cut where everything is `scale` times as large.
    fn blocks(&self, scale: f64, cores: f64) -> f64 {
        let down = |rows: &f64| (self.rows * scale / rows).ceil();
        if !self.whole_rows {
            // Where there are few blocks the sum is split too, so that every core has a part.
            return (down(&self.block_rows[0]) * self.across()).max(cores);
        }
        // Blocks need their whole sums: those that leave cores idle the least.
        let busy = |rows: &f64| (down(rows) / cores).ceil() * rows;
        let best = self.block_rows.iter().min_by(|a, b| busy(a).total_cmp(&busy(b)));
        best.map_or(1.0, down)
    }

    /// Whether a block can own as much as it must.
    pub(super) fn fits(&self) -> bool {
        !self.whole_rows || self.columns <= self.longest_row
    }
}

/// Of some operations; wherever there are several, they are in the order of the data, which is that of their numbers.
impl Network<'_> {
    /// Everything about the kernel that these operations become, in the order of the data.
    pub(super) fn totals(&self, members: &[usize]) -> Totals {
        let (inputs, outputs) = self.border(members);
        let bytes = inputs.iter().chain(&outputs).map(|t| self.tensors[*t].bytes).sum();
        Totals {
            bytes,
            accesses: inputs.len() + outputs.len(),
            flops: members.iter().map(|m| self.operations[*m].flops).sum(),
            launches: 1,
            us: self.price(members, 1.0).us,
        }
    }

    /// The price where everything that grows with the batch is `scale` times as large as given.
    pub(super) fn price(&self, members: &[usize], scale: f64) -> Price {
        price(&self.work(members, scale), self.spec)
    }

    /// Tensors that a kernel reads from and writes to memory.
    pub(super) fn border(&self, members: &[usize]) -> (Vec<usize>, Vec<usize>) {
        let is_member = |at: &usize| members.binary_search(at).is_ok();
        let (mut inputs, mut outputs) = (IndexSet::new(), Vec::new());
        for operation in members.iter().map(|m| &self.operations[*m]) {
            for t in &operation.inputs {
                if !self.tensors[*t].writer.as_ref().is_some_and(is_member) {
                    inputs.insert(*t);
                }
            }
            let leaves = |t: &&usize| {
                let readers = &self.tensors[**t].readers;
                readers.is_empty() || !readers.iter().all(is_member)
            };
            outputs.extend(operation.outputs.iter().filter(leaves));
        }
        (inputs.into_iter().collect(), outputs)
    }

    /// How the contraction among these operations is cut, if there is one.
    pub(super) fn cut(&self, members: &[usize]) -> Option<Cut> {
        let anchor = members.iter().copied().find(|m| self.operations[*m].class == Class::Contract)?;
        let operation = &self.operations[anchor];
        let tiles = self.spec.tiles(operation.dtype);
        let result = operation.outputs.first().map(|t| &self.tensors[*t])?;
        let elements = result.bytes / result.dtype.bits() as f64 * 8.0;
        let columns = self.columns(operation, result);
        let folds = |m: &usize| {
            matches!(self.operations[*m].class, Class::Reduce | Class::Index) && self.reaches(anchor, *m, members)
        };
        Some(Cut {
            anchor,
            rows: elements / columns,
            columns,
            block_columns: f64::from(tiles[0].columns),
            block_rows: tiles.iter().map(|tile| f64::from(tile.rows)).collect(),
            whole_rows: members.iter().any(folds),
            longest_row: Limits::of(self.spec, operation.dtype).tile_row,
        })
    }

    /// Columns of a contraction's result. Where no shape tells: m · k values come in and 2 · m · k · n operations are done.
    fn columns(&self, operation: &Known, result: &Joined) -> f64 {
        let by_shape = result.shape.as_ref().and_then(|s| s.last()).map(|n| *n as f64);
        let by_work = || {
            let rows = operation.inputs.iter().map(|t| &self.tensors[*t]).find(|t| !t.is_constant)?;
            Some(operation.flops / (2.0 * rows.bytes / rows.dtype.bits() as f64 * 8.0))
        };
        by_shape.or_else(by_work).filter(|n| n.is_finite()).unwrap_or(1.0).max(1.0)
    }

    fn work(&self, members: &[usize], scale: f64) -> Work {
        let (inputs, outputs) = self.border(members);
        let bytes = |t: usize| self.tensors[t].bytes * if self.tensors[t].is_constant { 1.0 } else { scale };
        let mut work = Work::default();
        let (first, last) = (members.iter().min().copied(), members.iter().max().copied());
        for t in &inputs {
            let since = self.tensors[*t].writer.zip(first).map(|(w, r)| self.touched(w, r, scale));
            work.read(Stream::of(bytes(*t)).warm(since.unwrap_or(f64::INFINITY)));
        }
        for t in &outputs {
            let next = self.tensors[*t].readers.iter().copied().find(|r| members.binary_search(r).is_err());
            let since = last.zip(next).map(|(w, r)| self.touched(w, r, scale));
            work.write(Stream::of(bytes(*t)).warm(since.unwrap_or(f64::INFINITY)));
        }
        let cut = self.cut(members);
        for at in members {
            let operation = &self.operations[*at];
            let flops = operation.flops * scale;
            let before = cut.as_ref().filter(|cut| *at != cut.anchor && self.reaches(*at, cut.anchor, members));
            match (operation.class, before) {
                (Class::Contract, _) => work.dot(flops, operation.dtype, self.spec),
                (_, None) => work.operate(Unit::Elementwise(operation.dtype), flops),
                // Every block of columns computes the operands that it needs, and must have them before it can multiply.
                (_, Some(cut)) => {
                    if flops > 0.0 {
                        work.serial = 1.0;
                    }
                    work.operate(Unit::Elementwise(operation.dtype), flops * cut.across())
                }
            };
        }
        self.divide(&mut work, members, cut.as_ref(), scale);
        work
    }

    fn divide(&self, work: &mut Work, members: &[usize], cut: Option<&Cut>, scale: f64) {
        let is_gpu = self.spec.kind == Machine::Gpu;
        let threads = if is_gpu { THREADS } else { 1.0 };
        let blocks = match cut {
            Some(cut) => cut.blocks(scale, self.spec.limits.cores as f64),
            None => {
                let longest = work.streams.iter().map(|s| s.bytes).fold(0.0, f64::max);
                let chunk = if is_gpu { THREADS * self.spec.limits.vector_bytes as f64 } else { CHUNK };
                (longest / chunk).ceil()
            }
        };
        work.divide(blocks, threads);
        if is_gpu && cut.is_none() {
            work.registers = self.registers(members);
        }
        let folds = members.iter().filter(|m| self.operations[**m].class == Class::Reduce).count();
        work.barriers = 2.0 * folds as f64;
    }

    /// Bytes touched from the writing of a tensor by `writer` until `reader` runs.
    fn touched(&self, writer: usize, reader: usize, scale: f64) -> f64 {
        let bytes = |t: &usize| self.tensors[*t].bytes * if self.tensors[*t].is_constant { 1.0 } else { scale };
        let written: f64 = self.operations[writer].outputs.iter().map(bytes).sum();
        if reader <= writer + 1 {
            return written;
        }
        let [from, to] = [writer + 1, reader].map(|at| self.touched_before[at]);
        written + (to[0] - from[0]) + scale * (to[1] - from[1])
    }

    /// Whether data flows from one operation to another through operations of which `inside` (ascending) may hold all.
    fn reaches(&self, from: usize, to: usize, inside: &[usize]) -> bool {
        let mut open = vec![from];
        let mut seen = FxHashSet::default();
        while let Some(at) = open.pop() {
            if at == to {
                return true;
            }
            for reader in self.operations[at].outputs.iter().flat_map(|t| &self.tensors[*t].readers) {
                if inside.binary_search(reader).is_ok() && seen.insert(*reader) {
                    open.push(*reader);
                }
            }
        }
        false
    }

    /// An operation outside of `members` (ascending) that lies between two of them, if there is one.
    pub(super) fn between(&self, members: &[usize]) -> Option<usize> {
        let (first, last) = (*members.first()?, *members.last()?);
        let is_member = |at: usize| members.binary_search(&at).is_ok();
        let is_inside = |at: usize| (first..=last).contains(&at);
        // Whether an operation reads from a member, or is read by one, perhaps through others.
        let (mut below, mut above) = (vec![false; last - first + 1], vec![false; last - first + 1]);
        for at in (first..=last).filter(|at| !is_member(*at)) {
            let writers = self.operations[at].inputs.iter().filter_map(|t| self.tensors[*t].writer);
            below[at - first] = writers.filter(|w| is_inside(*w)).any(|w| is_member(w) || below[w - first]);
        }
        for at in (first..=last).rev().filter(|at| !is_member(*at)) {
            let readers = self.operations[at].outputs.iter().flat_map(|t| &self.tensors[*t].readers);
            above[at - first] = readers.filter(|r| is_inside(**r)).any(|r| is_member(*r) || above[*r - first]);
        }
        (first..=last).find(|at| below[at - first] && above[at - first])
    }
}
