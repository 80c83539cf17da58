//! Rows of a matrix divided into tiles.

use fuseline::error::Result;

use super::bound::ceil_div;
use super::emitter::Emitter;
use super::point::Point;
use crate::vector::{Bound as To, IntOp, Value};

/// Rows divided evenly into tiles: the first `longer` of them have `rows` rows, the others one less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tiling {
    pub count: i64,
    pub rows: i64,
    longer: i64,
    /// an Int: the row that the first tile begins with, if that is not the very first
    base: Option<Value>,
}

/// Tiles of a panel that a task has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    /// Ints: from a tile up to another
    pub from: Value,
    pub to: Value,
    /// the first of the tiles that read a panel one after the other, maybe in other tasks too, and how many these are
    pub first: Value,
    pub count: i64,
}

/// How many rows a tile has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Height {
    /// at most
    pub rows: i64,
    /// an Int, 0 or 1: whether the last of them is there, if not all tiles have it
    pub last: Option<Value>,
    /// whether there are so many tiles that a jump for every term of a sum costs more than a loop more does to make
    pub are_many: bool,
}

/// So many tiles are many: 512 rows take a twentieth longer with the jump, 128 do not.
const MANY: i64 = 32;

impl Height {
    /// How many rows are there, as an Int.
    pub fn count(&self, e: &mut Emitter<'_>) -> Value {
        match self.last {
            Some(last) => e.b.plus(last, self.rows - 1),
            None => e.b.number(self.rows),
        }
    }

    /// Emits what becomes of the points of a tile, as many in every row: `body` is given those that all tiles have, and then, where there is such a row, those
    /// of the last one.
    pub fn each(
        &self,
        e: &mut Emitter<'_>,
        points: &[Point],
        body: &mut dyn FnMut(&mut Emitter<'_>, &[Point]) -> Result<()>,
    ) -> Result<()> {
        let Some(last) = self.last else { return body(e, points) };
        let (always, perhaps) = points.split_at(points.len() - points.len() / self.rows as usize);
        body(e, always)?;
        e.b.begin_when(last, &[]);
        body(e, perhaps)?;
        e.b.end_when(&[]);
        Ok(())
    }
}

impl Tiling {
    /// As few tiles as there can be, of at most so many rows.
    pub fn new(rows: i64, most: i64) -> Tiling {
        Tiling::of(rows, ceil_div(rows, most))
    }

    /// Tiles of at most so many rows for rows that are cut into runs; with it, how many tiles are a run.
    pub fn in_runs(rows: i64, most: i64, runs: i64) -> (Tiling, i64) {
        let together = ceil_div(ceil_div(rows, runs.max(1)), most).max(1);
        (Tiling::of(rows, (runs * together).clamp(1, rows.max(1))), together)
    }

    /// The same tiles from a row on.
    pub fn from(self, row: Value) -> Tiling {
        Tiling { base: Some(row), ..self }
    }

    fn of(rows: i64, count: i64) -> Tiling {
        let shorter = rows / count;
        match rows % count {
            0 => Tiling { count, rows: shorter, longer: count, base: None },
            longer => Tiling { count, rows: shorter + 1, longer, base: None },
        }
    }

    /// The tiles of a chunk by its number, of so many together.
    pub fn chunk(&self, e: &mut Emitter<'_>, chunk: Value, together: i64) -> Chunk {
        let from = e.b.times(chunk, together);
        let (to, count) = (e.b.plus(from, together), e.b.number(self.count));
        Chunk { from, to: e.b.int(IntOp::Min, to, count), first: from, count: together }
    }

    /// All tiles as one chunk.
    pub fn all(&self, e: &mut Emitter<'_>) -> Chunk {
        let (from, to) = (e.b.number(0), e.b.number(self.count));
        Chunk { from, to, first: from, count: self.count }
    }

    /// Emits a loop over the tiles `from..to`; `body` is given the tile, its first row and its height. There is as much code as for tiles of one height.
    pub fn each(
        &self,
        e: &mut Emitter<'_>,
        from: Value,
        to: Value,
        body: &mut dyn FnMut(&mut Emitter<'_>, Value, Value, Height) -> Result<()>,
    ) -> Result<()> {
        let (tile, _) = e.b.begin_loop(To::Value(from), To::Value(to), 1, &[]);
        let first = self.row(e, tile);
        let longer = e.b.number(self.longer);
        let last = (self.longer != self.count).then(|| e.b.int(IntOp::Lt, tile, longer));
        body(e, tile, first, Height { rows: self.rows, last, are_many: self.count > MANY })?;
        e.b.end_loop(&[]);
        Ok(())
    }

    /// Emits a loop over those of the tiles `from..to` that have all rows, and one over the others; `body` is given the first row and how many there are.
    pub fn each_height(
        &self,
        e: &mut Emitter<'_>,
        from: Value,
        to: Value,
        body: &mut dyn FnMut(&mut Emitter<'_>, Value, i64) -> Result<()>,
    ) -> Result<()> {
        let longer = e.b.number(self.longer);
        let all_long = self.longer == self.count;
        for (rows, is_long) in [(self.rows, true), (self.rows - 1, false)] {
            if !is_long && all_long {
                continue;
            }
            let (from, to) = match (is_long, all_long) {
                (true, true) => (from, to),
                (true, false) => (from, e.b.int(IntOp::Min, to, longer)),
                (false, _) => (e.b.int(IntOp::Max, from, longer), to),
            };
            let (tile, _) = e.b.begin_loop(To::Value(from), To::Value(to), 1, &[]);
            let first = self.row(e, tile);
            body(e, first, rows)?;
            e.b.end_loop(&[]);
        }
        Ok(())
    }

    /// The first row of a tile.
    pub fn row(&self, e: &mut Emitter<'_>, tile: Value) -> Value {
        let longer = e.b.number(self.longer);
        let long = e.b.int(IntOp::Min, tile, longer);
        let long = e.b.times(long, self.rows);
        let short = e.b.int(IntOp::Sub, tile, longer);
        let none = e.b.number(0);
        let short = e.b.int(IntOp::Max, short, none);
        let short = e.b.times(short, self.rows - 1);
        let row = e.b.int(IntOp::Add, long, short);
        self.base.map_or(row, |base| e.b.int(IntOp::Add, base, row))
    }
}
