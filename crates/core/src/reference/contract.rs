//! Blocked sums of products.
//!
//! The loops of a contraction fall into four groups: batch (in both operands and the result), rows (first operand and
//! result), columns (second operand and result) and depth (summed). Panels of both operands are packed so that the
//! inner kernel reads them in order; packing reads through views, so the windows of a convolution are never copied out whole.

use std::borrow::Cow;
use std::ops::Range;

use super::positions::{IndexFn, Part, Positions, advance, row_major};
use super::{Buffer, Run};
use crate::error::{Error, Result};
use crate::ops::prim::{Contract, Label};
use crate::tensor::DType;

/// Rows and columns of the inner kernel, and of a packed panel.
const TILE: usize = 4;
const PANEL_ROWS: usize = 64;
const PANEL_COLUMNS: usize = 256;
/// Terms of a sum for which panels are packed at a time.
const PANEL_DEPTH: usize = 1 << 12;

/// The value of a contraction.
pub(crate) fn eval_contract(spec: &Contract, a: &Buffer, b: &Buffer, run: &Run<'_>) -> Result<Buffer> {
    let loops = Loops::new(spec, a.sizes(), b.sizes());
    run.reserve_work(&[a, b].map(base_of), loops.words(a, b))?;
    let dtype = a.dtype();
    if dtype.is_float() {
        let (a, b) = (Operand::new(a, Buffer::to_floats, 0.0, run)?, Operand::new(b, Buffer::to_floats, 0.0, run)?);
        Ok(Buffer::floats(dtype, loops.out_sizes.clone(), loops.contract(spec, &a, &b)?))
    } else {
        let (a, b) = (Operand::new(a, Buffer::to_ints, 0, run)?, Operand::new(b, Buffer::to_ints, 0, run)?);
        let wrapped = |accumulator: DType, x: i64| dtype.wrap(accumulator.wrap(i128::from(x))) as i64;
        let sums = loops.contract(spec, &a, &b)?;
        let values = sums.into_iter().map(|x| wrapped(spec.accumulator, x)).collect();
        Ok(Buffer::ints(dtype, loops.out_sizes, values))
    }
}

/// A number of the inner kernel.
trait Lane: Copy + Default {
    fn add_product(self, a: Self, b: Self) -> Self;
}

impl Lane for f64 {
    fn add_product(self, a: f64, b: f64) -> f64 {
        self + a * b
    }
}

impl Lane for i64 {
    fn add_product(self, a: i64, b: i64) -> i64 {
        self.wrapping_add(a.wrapping_mul(b))
    }
}

struct Loops {
    batch: Vec<(Label, usize)>,
    rows: Vec<(Label, usize)>,
    columns: Vec<(Label, usize)>,
    depth: Vec<(Label, usize)>,
    out_sizes: Vec<usize>,
}

impl Loops {
    fn new(spec: &Contract, a: &[usize], b: &[usize]) -> Loops {
        let size = |label: Label| {
            let in_a = spec.a.iter().position(|l| *l == label).map(|k| a[k]);
            in_a.or_else(|| spec.b.iter().position(|l| *l == label).map(|k| b[k]))
                .expect("every label is in an operand")
        };
        let sized = |labels: Vec<Label>| labels.into_iter().map(|l| (l, size(l))).collect::<Vec<_>>();
        let out = |in_a: bool, in_b: bool| {
            let group = spec.out.iter().copied().filter(|l| spec.a.contains(l) == in_a && spec.b.contains(l) == in_b);
            sized(group.collect())
        };
        // By name, so that the order in which operands list their axes does not change the order of a sum.
        let mut depth = spec.summed();
        depth.sort_unstable();
        Loops {
            batch: out(true, true),
            rows: out(true, false),
            columns: out(false, true),
            depth: sized(depth),
            out_sizes: spec.out.iter().map(|l| size(*l)).collect(),
        }
    }

    fn contract<T: Lane>(&self, spec: &Contract, a: &Operand<'_, T>, b: &Operand<'_, T>) -> Result<Vec<T>> {
        let dense: Vec<Part> = row_major(&self.out_sizes).into_iter().map(|s| Part::Stride(s as i64)).collect();
        let place = |group: &[(Label, usize)]| table(&spec.out, &dense, group);
        let (out_batch, out_rows, out_columns) = (place(&self.batch), place(&self.rows), place(&self.columns));
        let (a_batch, a_rows, a_depth) =
            (a.tables(&spec.a, &self.batch), a.tables(&spec.a, &self.rows), a.tables(&spec.a, &self.depth));
        let (b_batch, b_columns, b_depth) =
            (b.tables(&spec.b, &self.batch), b.tables(&spec.b, &self.columns), b.tables(&spec.b, &self.depth));
        let mut out = vec![T::default(); self.out_sizes.iter().product()];
        let (mut a_panel, mut b_panel) = (Vec::new(), Vec::new());
        for (batch, origin) in out_batch.iter().enumerate() {
            for column in (0..out_columns.len()).step_by(PANEL_COLUMNS) {
                let columns = column..out_columns.len().min(column + PANEL_COLUMNS);
                for first in (0..a_depth.len()).step_by(PANEL_DEPTH) {
                    let depth = first..a_depth.len().min(first + PANEL_DEPTH);
                    b.pack((&b_batch, batch), (&b_columns, columns.clone()), (&b_depth, depth.clone()), &mut b_panel)?;
                    for row in (0..out_rows.len()).step_by(PANEL_ROWS) {
                        let rows = row..out_rows.len().min(row + PANEL_ROWS);
                        a.pack((&a_batch, batch), (&a_rows, rows.clone()), (&a_depth, depth.clone()), &mut a_panel)?;
                        // Sums go on from where they are, so that their order is that of the depth.
                        let place =
                            |i: usize, j: usize| (origin + out_rows[row + i] + out_columns[column + j]) as usize;
                        multiply(&a_panel, &b_panel, depth.len(), rows.len(), columns.len(), place, &mut out);
                    }
                }
            }
        }
        Ok(out)
    }

    /// Words of memory for the result and for all tables: each operand has one for its position and one for each guard.
    fn words(&self, a: &Buffer, b: &Buffer) -> usize {
        let count = |group: &[(Label, usize)]| group.iter().fold(1usize, |n, (_, size)| n.saturating_mul(*size));
        let tables = |x: &Buffer| x.as_view().map_or(1, |(_, positions, _)| 1 + positions.guards.len());
        let [batch, rows, columns, depth] = [&self.batch, &self.rows, &self.columns, &self.depth].map(|g| count(g));
        let out = self.out_sizes.iter().fold(1usize, |n, size| n.saturating_mul(*size));
        let places = batch.saturating_add(rows).saturating_add(columns);
        let of_a = batch.saturating_add(rows).saturating_add(depth).saturating_mul(tables(a));
        let of_b = batch.saturating_add(columns).saturating_add(depth).saturating_mul(tables(b));
        [places, of_a, of_b].into_iter().fold(out, usize::saturating_add)
    }
}

/// What is read where an operand is: views are read through.
fn base_of(x: &Buffer) -> &Buffer {
    x.as_view().map_or(x, |(base, ..)| base)
}

/// Every tile of a panel product, added to what is at `place(row, column)`.
fn multiply<T: Lane>(
    a: &[T],
    b: &[T],
    depth: usize,
    rows: usize,
    columns: usize,
    place: impl Fn(usize, usize) -> usize,
    out: &mut [T],
) {
    for row in (0..rows).step_by(TILE) {
        let a = &a[row * depth..][..TILE * depth];
        for column in (0..columns).step_by(TILE) {
            let (height, width) = (TILE.min(rows - row), TILE.min(columns - column));
            let mut sums = [[T::default(); TILE]; TILE];
            for (i, line) in sums.iter_mut().enumerate().take(height) {
                line.iter_mut().enumerate().take(width).for_each(|(j, sum)| *sum = out[place(row + i, column + j)]);
            }
            multiply_tile(a, &b[column * depth..][..TILE * depth], &mut sums);
            for (i, line) in sums.iter().enumerate().take(height) {
                line.iter().enumerate().take(width).for_each(|(j, sum)| out[place(row + i, column + j)] = *sum);
            }
        }
    }
}

fn multiply_tile<T: Lane>(a: &[T], b: &[T], into: &mut [[T; TILE]; TILE]) {
    // In registers while it is added to.
    let mut sums = *into;
    for (a, b) in a.chunks_exact(TILE).zip(b.chunks_exact(TILE)) {
        for i in 0..TILE {
            for j in 0..TILE {
                sums[i][j] = sums[i][j].add_product(a[i], b[j]);
            }
        }
    }
    *into = sums;
}

/// Contributions of the coordinates of a group of loops to a position, in row-major order of the group.
fn table(labels: &[Label], parts: &[Part], group: &[(Label, usize)]) -> Vec<i64> {
    let sizes: Vec<usize> = group.iter().map(|(_, n)| *n).collect();
    let of_loop: Vec<Option<&Part>> =
        group.iter().map(|(l, _)| labels.iter().position(|x| x == l).map(|k| &parts[k])).collect();
    let mut i = vec![0; sizes.len()];
    let mut sums = Vec::with_capacity(sizes.iter().product());
    for _ in 0..sizes.iter().product::<usize>() {
        sums.push(of_loop.iter().zip(&i).map(|(part, i)| part.map_or(0, |p| p.at(*i))).sum());
        advance(&mut i, &sizes);
    }
    sums
}

/// An operand whose positions are sums of contributions by axis.
struct Operand<'a, T: Lane> {
    values: Cow<'a, [T]>,
    offset: i64,
    parts: Vec<Part>,
    guards: Vec<SumGuard>,
    fill: T,
}

struct SumGuard {
    offset: i64,
    parts: Vec<Part>,
    bound: i64,
}

/// What a group of loops contributes: to the position, and to each guard.
struct Tables {
    position: Vec<i64>,
    guards: Vec<Vec<i64>>,
}

impl Tables {
    fn len(&self) -> usize {
        self.position.len()
    }
}

impl<'a, T: Lane> Operand<'a, T> {
    fn new(x: &'a Buffer, read: fn(&Buffer) -> Cow<'_, [T]>, zero: T, run: &Run<'_>) -> Result<Operand<'a, T>> {
        if let Some((base, positions, fill)) = x.as_view()
            && let Some((offset, parts, guards)) = as_sums(positions)
            && (guards.is_empty() || fill.to_f64() == 0.0)
        {
            return Ok(Operand { values: read(base), offset, parts, guards, fill: zero });
        }
        let parts = row_major(x.sizes()).into_iter().map(|s| Part::Stride(s as i64)).collect();
        let values = match x.as_view() {
            Some(_) => Cow::Owned(read(&run.dense(x)?).into_owned()),
            None => read(x),
        };
        Ok(Operand { values, offset: 0, parts, guards: Vec::new(), fill: zero })
    }

    fn tables(&self, labels: &[Label], group: &[(Label, usize)]) -> Tables {
        let guards = self.guards.iter().map(|g| table(labels, &g.parts, group)).collect();
        Tables { position: table(labels, &self.parts, group), guards }
    }

    /// Packs lines (rows or columns) over a part of the depth: groups of [`TILE`] lines, depth-major inside a group, missing
    /// lines filled with zeros.
    fn pack(
        &self,
        (batches, batch): (&Tables, usize),
        (all_lines, lines): (&Tables, Range<usize>),
        (all_depths, depths): (&Tables, Range<usize>),
        panel: &mut Vec<T>,
    ) -> Result<()> {
        panel.clear();
        panel.resize(lines.len().div_ceil(TILE) * TILE * depths.len(), T::default());
        for (l, line) in lines.enumerate() {
            let start = self.offset + batches.position[batch] + all_lines.position[line];
            let group = &mut panel[l / TILE * TILE * depths.len()..][..TILE * depths.len()];
            let guards: Vec<i64> = (self.guards.iter().enumerate())
                .map(|(g, guard)| guard.offset + batches.guards[g][batch] + all_lines.guards[g][line])
                .collect();
            for (at, k) in depths.clone().enumerate() {
                // Most operands have no guards, and are not asked for them at every element.
                let open = guards.is_empty()
                    || (guards.iter().zip(&self.guards).zip(&all_depths.guards))
                        .all(|((start, guard), depth)| (0..guard.bound).contains(&(start + depth[k])));
                group[at * TILE + l % TILE] = if open {
                    let position = start + all_depths.position[k];
                    let value = usize::try_from(position).ok().and_then(|p| self.values.get(p));
                    *value.ok_or_else(|| {
                        Error::bug(format!("a contraction reads element {position} of {}", self.values.len()))
                    })?
                } else {
                    self.fill
                };
            }
        }
        Ok(())
    }
}

/// Positions and guards that are sums by axis.
fn as_sums(positions: &Positions) -> Option<(i64, Vec<Part>, Vec<SumGuard>)> {
    let sum = |f: &IndexFn| match f {
        IndexFn::Sum { offset, parts } => Some((*offset, parts.clone())),
        IndexFn::General(_) => None,
    };
    let (offset, parts) = sum(&positions.index)?;
    let guard = |(f, bound): &(IndexFn, i64)| sum(f).map(|(offset, parts)| SumGuard { offset, parts, bound: *bound });
    Some((offset, parts, positions.guards.iter().map(guard).collect::<Option<_>>()?))
}
