//! Index maps with numbers in them: from coordinates of a result to positions in a dense operand.

use smallvec::SmallVec;

use crate::error::{Error, Result};
use crate::ops::prim::View;
use crate::tensor::{Dim, Env, Symbol};

/// An integer function of coordinates.
#[derive(Clone, Debug)]
pub enum IndexFn {
    /// a sum of one part per axis
    Sum {
        /// added to the parts
        offset: i64,
        /// what each axis contributes
        parts: Vec<Part>,
    },
    /// anything else, evaluated as written
    General(Dim),
}

/// Axes up to this length get tables; along longer ones an index that is no multiple is evaluated as written.
const LONGEST_TABLE: usize = 1 << 20;

/// What one axis contributes to a sum.
#[derive(Clone, Debug)]
pub enum Part {
    /// a multiple of the coordinate
    Stride(i64),
    /// a value per coordinate
    Table(Vec<i64>),
}

impl Part {
    /// The contribution of coordinate `i`.
    pub fn at(&self, i: usize) -> i64 {
        match self {
            Part::Stride(stride) => stride * i as i64,
            Part::Table(table) => table[i],
        }
    }

    /// The smallest and the largest contribution over `0..size`.
    fn range(&self, size: usize) -> (i128, i128) {
        match self {
            Part::Stride(stride) => {
                let last = i128::from(*stride) * size.saturating_sub(1) as i128;
                (last.min(0), last.max(0))
            }
            Part::Table(table) => {
                let (low, high) = (table.iter().min(), table.iter().max());
                (low.map_or(0, |n| i128::from(*n)), high.map_or(0, |n| i128::from(*n)))
            }
        }
    }
}

impl IndexFn {
    /// Memory that its tables take.
    fn table_bytes(&self) -> usize {
        let IndexFn::Sum { parts, .. } = self else { return 0 };
        let bytes = |part: &Part| if let Part::Table(table) = part { size_of_val(table.as_slice()) } else { 0 };
        parts.iter().map(bytes).sum()
    }

    /// The function that `dim` denotes over a domain of these sizes; all symbols but the axes are bound by `env`.
    pub fn new(dim: &Dim, sizes: &[usize], env: &Env) -> Result<IndexFn> {
        let extents: Vec<Dim> = sizes.iter().map(|n| Dim::from(*n)).collect();
        let dim = env.apply(dim).simplify(&crate::tensor::Ranges::of(&extents));
        let Some((parts, rest)) = dim.separate(sizes.len()) else { return Ok(IndexFn::General(dim)) };
        let has_table = |(axis, part): (usize, &Dim)| part.as_stride(axis).is_none() && sizes[axis] > LONGEST_TABLE;
        if parts.iter().enumerate().any(has_table) {
            return Ok(IndexFn::General(dim));
        }
        let part = |(axis, part): (usize, &Dim)| match part.as_stride(axis) {
            Some(stride) => Ok(Part::Stride(stride)),
            None => {
                let at = |i: usize| part.eval_with(&|s| matches!(s, Symbol::Axis(_)).then_some(i as i64));
                Ok(Part::Table((0..sizes[axis]).map(at).collect::<Result<_>>()?))
            }
        };
        let parts: Result<Vec<Part>> = parts.iter().enumerate().map(part).collect();
        // What has no value somewhere (a division by a size of zero) may lie behind a guard that never holds there.
        let (Ok(offset), Ok(parts)) = (rest.eval(&Env::new()), parts) else { return Ok(IndexFn::General(dim)) };
        let sum = IndexFn::Sum { offset, parts };
        // Sums are computed without checks, which needs room for every sum on the way.
        Ok(if sum.reach(sizes) <= i128::from(i64::MAX) { sum } else { IndexFn::General(dim) })
    }

    /// The smallest and the largest value over a domain that is not empty, where it is a sum.
    pub fn range(&self, sizes: &[usize]) -> Option<(i128, i128)> {
        let IndexFn::Sum { offset, parts } = self else { return None };
        let ranges = parts.iter().zip(sizes).map(|(part, size)| part.range(*size));
        Some(ranges.fold((i128::from(*offset), i128::from(*offset)), |(a, b), (low, high)| (a + low, b + high)))
    }

    /// A bound of the magnitude of every partial sum.
    fn reach(&self, sizes: &[usize]) -> i128 {
        let IndexFn::Sum { offset, parts } = self else { return 0 };
        let ranges = parts.iter().zip(sizes).map(|(part, size)| part.range(*size));
        i128::from(*offset).abs() + ranges.map(|(low, high)| low.abs().max(high.abs())).sum::<i128>()
    }

    /// The value at coordinates `i`.
    pub fn at(&self, i: &[usize]) -> Result<i64> {
        match self {
            IndexFn::Sum { offset, parts } => Ok(offset + parts.iter().zip(i).map(|(p, i)| p.at(*i)).sum::<i64>()),
            IndexFn::General(dim) => dim.eval_with(&|s| match s {
                Symbol::Axis(a) => i.get(usize::from(*a)).map(|n| *n as i64),
                _ => None,
            }),
        }
    }

    /// The function along the row through `i`, where it is a sum.
    fn line(&self, i: &[usize]) -> Option<Line<'_>> {
        let IndexFn::Sum { offset, parts } = self else { return None };
        let Some((last, outer)) = parts.split_last() else { return Some(Line { start: *offset, part: None }) };
        let start = offset + outer.iter().zip(i).map(|(p, i)| p.at(*i)).sum::<i64>();
        Some(Line { start, part: Some(last) })
    }
}

/// The positions that a view reads, and where it does not read.
#[derive(Clone, Debug)]
pub struct Positions {
    /// sizes of the result
    pub sizes: Vec<usize>,
    /// position in the operand
    pub index: IndexFn,
    /// guarded expressions and their exclusive bounds
    pub guards: Vec<(IndexFn, i64)>,
}

impl Positions {
    /// Memory that its tables take.
    pub fn table_bytes(&self) -> usize {
        self.guards.iter().map(|(guard, _)| guard.table_bytes()).sum::<usize>() + self.index.table_bytes()
    }

    /// The positions of a view of a dense operand of sizes `operand`.
    pub fn new(view: &View, operand: &[usize], env: &Env) -> Result<Positions> {
        let sizes = view.shape.eval(env)?;
        if sizes.contains(&0) {
            // Nothing is read; divisions by an extent of zero in the map must not be evaluated.
            let parts = vec![Part::Stride(0); sizes.len()];
            return Ok(Positions { index: IndexFn::Sum { offset: 0, parts }, guards: Vec::new(), sizes });
        }
        check_coordinates(view, operand, &sizes, env)?;
        let flat: Dim = view.map.iter().zip(row_major(operand)).map(|(i, stride)| i * stride as i64).sum();
        let guard = |g: &crate::ops::prim::Guard| Ok((IndexFn::new(&g.index, &sizes, env)?, g.bound.eval(env)?));
        let guards: Result<Vec<_>> = view.guard.iter().map(guard).collect();
        Ok(Positions { index: IndexFn::new(&flat, &sizes, env)?, guards: guards?, sizes })
    }

    /// Whether result and operand hold the same elements in the same order.
    pub fn is_flat(&self, operand_count: usize) -> bool {
        let IndexFn::Sum { offset: 0, parts } = &self.index else { return false };
        let wanted = row_major(&self.sizes);
        let in_order = |(axis, part): (usize, &Part)| {
            self.sizes[axis] <= 1 || matches!(part, Part::Stride(s) if *s == wanted[axis] as i64)
        };
        self.guards.is_empty()
            && self.sizes.iter().product::<usize>() == operand_count
            && parts.iter().enumerate().all(in_order)
    }

    /// Calls `f(k, position)` for the elements `start..start + len` of the result, in row-major order, `k` counting from 0;
    /// `None` where a guard fails. Positions at or beyond `limit` are an error.
    pub fn for_each(
        &self,
        start: usize,
        len: usize,
        limit: usize,
        mut f: impl FnMut(usize, Option<usize>),
    ) -> Result<()> {
        let mut i = coordinates(start, &self.sizes);
        let width = self.sizes.last().copied().unwrap_or(1);
        let mut k = 0;
        while k < len {
            // The rest of a row: only the last coordinate moves.
            let from = i.last().copied().unwrap_or(0);
            let count = (width - from).min(len - k);
            match self.row(&i) {
                Some(row) => {
                    for step in 0..count {
                        let at = from + step;
                        let open = row.guards.iter().all(|(g, bound)| (0..*bound).contains(&g.at(at)));
                        let position = open.then(|| row.index.at(at));
                        let inside = |p: i64| usize::try_from(p).ok().filter(|p| *p < limit);
                        f(k + step, position.map(|p| inside(p).ok_or_else(|| outside(&i, p, limit))).transpose()?);
                    }
                }
                None => {
                    let mut i = i.clone();
                    for step in 0..count {
                        f(k + step, self.at(&i, limit)?);
                        advance(&mut i, &self.sizes);
                    }
                }
            }
            k += count;
            if let Some(last) = i.last_mut() {
                *last = width - 1;
            }
            advance(&mut i, &self.sizes);
        }
        Ok(())
    }

    /// The functions of the last coordinate that index and guards are along one row, where they are sums.
    fn row(&self, i: &[usize]) -> Option<Row<'_>> {
        let guards = self.guards.iter().map(|(g, bound)| Some((g.line(i)?, *bound)));
        Some(Row { index: self.index.line(i)?, guards: guards.collect::<Option<_>>()? })
    }

    fn at(&self, i: &[usize], limit: usize) -> Result<Option<usize>> {
        for (guard, bound) in &self.guards {
            if !(0..*bound).contains(&guard.at(i)?) {
                return Ok(None);
            }
        }
        let position = self.index.at(i)?;
        let inside = usize::try_from(position).ok().filter(|p| *p < limit);
        inside.map(Some).ok_or_else(|| outside(i, position, limit))
    }
}

/// Refuses a view that leads outside of its operand. Where there are guards, or an index is no sum, the positions that are
/// really read are looked at one by one instead.
fn check_coordinates(view: &View, operand: &[usize], sizes: &[usize], env: &Env) -> Result<()> {
    if !view.guard.is_empty() {
        return Ok(());
    }
    for (axis, (index, size)) in view.map.iter().zip(operand).enumerate() {
        if let Some((low, high)) = IndexFn::new(index, sizes, env)?.range(sizes)
            && (low < 0 || high >= *size as i128)
        {
            let place = format!("coordinates {low} to {high} of axis {axis}, which has the size {size}");
            return Err(Error::invalid(format!("a view reads {place}")));
        }
    }
    Ok(())
}

/// Index and guards along one row.
struct Row<'p> {
    index: Line<'p>,
    guards: SmallVec<[(Line<'p>, i64); 4]>,
}

/// A function of the last coordinate.
struct Line<'p> {
    start: i64,
    part: Option<&'p Part>,
}

impl Line<'_> {
    fn at(&self, i: usize) -> i64 {
        self.start + self.part.map_or(0, |p| p.at(i))
    }
}

fn outside(i: &[usize], position: i64, limit: usize) -> Error {
    Error::invalid(format!("coordinates {i:?} of a view lead to element {position} of a tensor of {limit} elements"))
}

/// Row-major strides of concrete sizes.
pub fn row_major(sizes: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; sizes.len()];
    for k in (1..sizes.len()).rev() {
        strides[k - 1] = strides[k] * sizes[k];
    }
    strides
}

/// The coordinates of the element at a row-major position.
pub fn coordinates(mut position: usize, sizes: &[usize]) -> Vec<usize> {
    let mut i = vec![0; sizes.len()];
    for axis in (0..sizes.len()).rev() {
        i[axis] = position % sizes[axis].max(1);
        position /= sizes[axis].max(1);
    }
    i
}

/// The next coordinates in row-major order.
pub fn advance(i: &mut [usize], sizes: &[usize]) {
    for axis in (0..sizes.len()).rev() {
        i[axis] += 1;
        if i[axis] < sizes[axis] {
            return;
        }
        i[axis] = 0;
    }
}
