//! Rows that stand in lanes while their elements lie in memory one behind another: four columns of as many rows as there are lanes are
//! read as fours of elements and turned in registers, and turned back before they are written.

use fuseline::tensor::DType;
use fuseline::tile::{AxisSet, Op, StepId};

use super::Memory;
use super::bound::{Access, Bound};
use super::emitter::Emitter;
use super::index::{Index, index_at};
use super::lanes::slope_along;
use super::point::Point;
use crate::vector::{Address, Binary, Value};

/// Columns that are turned at a time.
pub(super) const COLUMNS: i64 = 4;

/// Rows of fewer columns are read element by element.
const FEWEST_COLUMNS: i64 = 3;

/// How many blocks of as many rows as there are lanes are turned. Fours that begin with a row of fewer elements end in the next one, which must be there.
pub(super) fn turned_blocks(rows: i64, columns: i64, lanes: i64) -> i64 {
    if columns < COLUMNS { (rows - 1) / lanes } else { rows / lanes }
}

/// The axis of columns of rows that could be turned if lanes ran along an axis of rows: whatever varies over both lies in rows of 32-bit elements. `None`
/// where nothing does, where there are fewer rows than lanes, or where rows that do not fill a vector stand in the middle.
pub(super) fn turned_columns(
    bound: &Bound<'_>,
    along: AxisSet,
    outer: AxisSet,
    lane: usize,
    lanes: i64,
) -> Option<usize> {
    let long = |axes: AxisSet| axes.iter().filter(|axis| bound.extents[*axis] > 1).collect::<Vec<_>>();
    let rows = bound.extents[lane];
    let [column] = long(along)[..] else { return None };
    let is_last = turned_blocks(rows, bound.extents[column], lanes) * lanes == rows || long(outer) == [lane];
    if !outer.contains(lane) || rows < lanes || bound.extents[column] < FEWEST_COLUMNS || !is_last {
        return None;
    }
    let steps = (0..bound.kernel.steps.len()).map(|k| StepId(k as u32));
    let loads = steps.filter(|id| matches!(bound.kernel.step(*id).op, Op::Load { .. })).map(|id| bound.load(id));
    let both: Vec<&Access> = loads
        .chain(&bound.stores)
        .filter(|access| AxisSet::of(lane).with(column).is_within(AxisSet::mentioned(&access.offset)))
        .collect();
    let turns = |access: &&Access| is_turned(bound, access, lane, column);
    (!both.is_empty() && both.iter().all(turns)).then_some(column)
}

/// Whether elements lie in rows along an axis, which stand in lanes along another.
fn is_turned(bound: &Bound<'_>, access: &Access, lane: usize, column: usize) -> bool {
    let is_plain = access.checked.is_empty() && access.guards.is_empty() && access.reads.is_empty();
    is_plain
        && !access.is_empty
        && matches!(access.dtype, DType::F32 | DType::I32 | DType::U32)
        && slope_along(bound, &access.offset, column) == Some(1)
        && slope_along(bound, &access.offset, lane).is_some_and(|stride| stride > 1)
}

/// Fours of elements in memory, one row behind another.
struct Turned {
    at: Address,
    /// elements from row to row
    stride: i64,
    dtype: DType,
}

impl Turned {
    /// Where fours of rows begin: of the first, and of every fourth one behind it.
    fn quads(&self) -> [(Address, u32); 4] {
        let row = |k: i64| Address { offset: self.at.offset + (k * self.stride * 4) as i32, ..self.at };
        std::array::from_fn(|k| (row(k as i64), 4 * self.stride as u32))
    }
}

impl Emitter<'_> {
    /// The values of a load at points of a row of columns that are turned; `None` where it is read otherwise.
    pub fn load_turned(&mut self, id: StepId, points: &[&Point]) -> Option<Vec<Value>> {
        let Op::Load { input, .. } = &self.bound.kernel.step(id).op else { return None };
        let (memory, access) = (Memory::Input(*input), self.bound.load(id).clone());
        let columns = self.turns.filter(|_| !points.is_empty() && points.len() <= COLUMNS as usize)?;
        // Of the last few columns, those before them are read once more, and nothing behind the end of a row; of fewer than four in all, the first of the
        // next row.
        let is_short = self.bound.extents[columns] < COLUMNS;
        let back = if is_short { 0 } else { COLUMNS - points.len() as i64 };
        let first = points[0].moved(columns, -back);
        let turned = self.turned(memory, &access, &first, points)?;
        let is_inside = back == 0 || {
            let coord = first.coord(columns);
            coord.base.map_or(Some(0), |base| self.b.as_number(base)).is_some_and(|base| base + coord.plus >= 0)
        };
        if !is_inside {
            return None;
        }
        self.reads.insert(memory);
        let rows = turned.quads().map(|(at, apart)| self.b.load_quads(at, apart, turned.dtype));
        Some(self.turn(rows)[back as usize..][..points.len()].to_vec())
    }

    /// Writes values at points of a row of columns that are turned; false where they are written otherwise.
    pub fn store_turned(&mut self, store: usize, values: &[Value], points: &[Point]) -> bool {
        let access = self.bound.stores[store].clone();
        let memory = Memory::Output(self.bound.kernel.stores[store].output);
        let at: Vec<&Point> = points.iter().collect();
        if self.turns.is_none() || points.is_empty() || points.len() > COLUMNS as usize {
            return false;
        }
        let Some(turned) = self.turned(memory, &access, &points[0], &at) else { return false };
        self.writes.insert(memory);
        // What stands in for columns behind the end is not written.
        let rows = self.turn(std::array::from_fn(|k| values[k.min(values.len() - 1)]));
        let mask = (values.len() < COLUMNS as usize).then(|| self.b.first(values.len() as u32));
        for ((at, apart), row) in turned.quads().into_iter().zip(rows) {
            self.b.store_quads(at, apart, row, turned.dtype, mask);
        }
        true
    }

    /// Where fours of elements lie from a point on, if points follow each other in rows that stand in lanes.
    fn turned(&mut self, memory: Memory, access: &Access, first: &Point, points: &[&Point]) -> Option<Turned> {
        let columns = self.turns?;
        let lane = points[0].lane_axis()?;
        let base = points[0].coord(columns);
        let follow = (0i64..).zip(points).all(|(k, point)| {
            let coord = point.coord(columns);
            point.mask.is_none() && coord.base == base.base && coord.plus == base.plus + k
        });
        if !follow || !is_turned(self.bound, access, lane, columns) {
            return None;
        }
        let Index::Sum(sum) = index_at(&mut self.b, &self.multiples, &access.offset, first, &[]) else { return None };
        let stride = sum.lane;
        let terms: Vec<(Value, i64)> = sum.terms.iter().map(|(value, factor)| (*value, factor * 4)).collect();
        let pointer = self.pointer(memory);
        let at = self.b.address(pointer, &terms, sum.constant * 4);
        let furthest = i64::from(at.offset) + 4 * stride * self.lanes();
        i32::try_from(furthest).ok().map(|_| Turned { at, stride, dtype: access.dtype })
    }

    /// Rows of four as columns, within every four lanes.
    fn turn(&mut self, [a, b, c, d]: [Value; 4]) -> [Value; 4] {
        let [ab_low, cd_low] = [(a, b), (c, d)].map(|(x, y)| self.b.binary(Binary::MixLow, x, y));
        let [ab_high, cd_high] = [(a, b), (c, d)].map(|(x, y)| self.b.binary(Binary::MixHigh, x, y));
        let mut join = |x, y| [Binary::JoinLow, Binary::JoinHigh].map(|op| self.b.binary(op, x, y));
        let ([first, second], [third, fourth]) = (join(ab_low, cd_low), join(ab_high, cd_high));
        [first, second, third, fourth]
    }
}
