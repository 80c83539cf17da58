//! The tiles of a product: sums that stay in registers from the first term to what becomes of them.

use fuseline::error::Result;
use fuseline::tile::{Op, StepId};
use rustc_hash::FxHashMap;

use super::bound::{Bound, bytes_of, ceil_div};
use super::emitter::{Emitter, Given, Held};
use super::factors::{Right, panel_vectors};
use super::fold::{Folding, Kept};
use super::generic::held_dtype;
use super::late::Lines;
use super::point::{Coord, Point};
use super::reach::reached;
use super::roles::Roles;
use super::rows::dense_offset;
use super::tile_sums::{Ahead, LINE, Stepped, TERMS, TileSums, trips};
use super::tiling::{Chunk, Height, Tiling};
use super::{Emission, Memory};
use crate::code::Isa;
use crate::vector::{Bound as To, Compare, IntOp, Ty, Value};

/// Terms that are added at a time: with more, what is read of both factors does not stay close while tiles pass, and sums
/// had better wait in memory.
pub(super) const MOST_TERMS: i64 = 1024;

/// Rows of a tile: with the vectors of a panel, sums for three quarters of the registers.
pub(super) const TILE_ROWS: i64 = 6;

/// Operations on a sum, such as those of GELU, from which rows of a tile are worked on one after the other.
const LONG: u32 = 12;

/// Bytes of a right factor that do not stay in the caches of a core.
pub(super) const FAR: i64 = 1 << 20;

/// Bytes of a packed factor from which it is asked for: what is smaller comes soon enough. It may stay close for as long as it is read and be far
/// again in the next run, with all that comes in between.
const LEAST_ASKED: i64 = 1 << 17;

/// Bytes of a packed factor that a trip asks for at most.
const MOST_ASKED: i64 = TERMS * LINE;

/// Bytes of a right factor that are asked for before they are needed, where terms lie far apart.
const ASKED: i64 = 4096;

/// A contraction with its factors where tiles can read them.
pub(super) struct Multiply {
    pub roles: Roles,
    pub left: Held,
    pub right: Vec<Right>,
    /// elements of the left factor from row to row, and from term to term
    pub row_stride: i64,
    pub term_stride: i64,
    /// vectors of a panel
    pub width: i64,
    /// whether tasks pack the right factors, panel by panel; before that there are none
    pub packs_late: bool,
    /// how tasks gather the left factor, if they do
    pub lines: Option<Lines>,
}

/// What is emitted behind the sums of a tile, of its points, its first row and its height.
type Then<'t> = dyn FnMut(&mut Emitter<'_>, &[Point], (Value, Height)) -> Result<()> + 't;

/// What becomes of the sums of tiles.
pub(super) enum Sums<'s> {
    /// what is computed of them is stored, by its place among the stores
    Stored(&'s [usize]),
    /// they are put into memory
    Held(&'s FxHashMap<StepId, Held>),
}

impl Multiply {
    /// Emits the tiles of a chunk of a panel, and what becomes of their sums.
    pub(super) fn tiles_used(
        &self,
        e: &mut Emitter<'_>,
        (tiling, tiles): (&Tiling, Chunk),
        origin: &Point,
        panel: Value,
        places: &FxHashMap<StepId, Held>,
        then: &Sums<'_>,
    ) -> Result<()> {
        self.in_parts(e, places, false, &mut |e, terms, turn| {
            self.tiles(e, tiling, origin, panel, tiles, terms, &mut |e, points, (first, height)| match (turn, then) {
                (Turn::Earlier, _) => self.store_sums(e, places, points, height),
                (Turn::Any(is_earlier), _) => {
                    self.store_sums(e, places, points, height)?;
                    let count = height.count(e);
                    let skipped = e.b.int(IntOp::Mul, is_earlier, count);
                    let (from, to) = (e.b.int(IntOp::Add, first, skipped), e.b.int(IntOp::Add, first, count));
                    self.use_rows(e, origin, (from, to), panel, places, then)
                }
                (Turn::Last, Sums::Stored(stores)) if height.rows > 1 && self.is_long(e, stores) => {
                    let across = self.width * e.lanes();
                    let start = e.b.times(panel, across);
                    let places = in_worker(&self.roles, e, (first, height.rows), (start, across));
                    self.store_sums(e, &places, points, height)?;
                    let count = height.count(e);
                    let to = e.b.int(IntOp::Add, first, count);
                    self.use_rows(e, origin, (first, to), panel, &places, then)
                }
                (Turn::Last, _) => height.each(e, points, &mut |e, points| self.use_sums(e, points, then)),
            })
        })
    }

    /// Emits what becomes of sums at points.
    fn use_sums(&self, e: &mut Emitter<'_>, points: &[Point], then: &Sums<'_>) -> Result<()> {
        match then {
            Sums::Stored(stores) => e.store_all(stores, points),
            Sums::Held(places) => {
                for dot in &self.roles.dots {
                    for point in points {
                        let value = e.kept_at(*dot, point)?;
                        e.store_held(&places[dot], value, point);
                    }
                }
                Ok(())
            }
        }
    }

    /// Whether so much is computed of sums that it is not worth its code for all of a tile at once.
    fn is_long(&self, e: &Emitter<'_>, stores: &[usize]) -> bool {
        let kernel = e.bound.kernel;
        let values: Vec<StepId> = stores.iter().map(|k| kernel.stores[*k].value).collect();
        let needed = reached(kernel, &values, &|id| self.roles.dots.contains(&id));
        let flops = needed.into_iter().map(|id| match &kernel.step(id).op {
            Op::Map { expr, .. } => expr.flops(),
            _ => 0,
        });
        flops.sum::<u32>() >= LONG
    }

    /// Emits what becomes of sums that wait in memory, row by row from one up to another.
    fn use_rows(
        &self,
        e: &mut Emitter<'_>,
        origin: &Point,
        (from, to): (Value, Value),
        panel: Value,
        places: &FxHashMap<StepId, Held>,
        then: &Sums<'_>,
    ) -> Result<()> {
        for (dot, place) in places {
            e.given.insert(*dot, Given::Held(place.clone()));
        }
        let (row, _) = e.b.begin_loop(To::Value(from), To::Value(to), 1, &[]);
        let start = e.b.times(panel, self.width * e.lanes());
        let points = tile_points(e, &self.roles, origin, (row, 1), (start, self.width));
        self.use_sums(e, &points, then)?;
        e.b.end_loop(&[]);
        Ok(())
    }

    /// What a tile asks for before it is needed. Of a packed factor, its part of the terms that are added next, of this panel or the next one: all tiles that read a panel ask for as much, so that memory has the time of all of them. What few tiles
    /// read passes by too fast for that.
    /// Where terms lie pages apart, the processor does not see by itself what comes next: some terms on, all that a tile reads.
    fn ahead(&self, e: &mut Emitter<'_>, chunk: Chunk, tile: Value, panel: Value, terms: &Terms<'_>) -> Option<Ahead> {
        let Right { held, term_bytes, is_packed } = &self.right[0];
        let least = if *is_packed { LEAST_ASKED } else { FAR };
        if held.memory == Memory::Worker || self.right_bytes(e.bound) < least {
            return None;
        }
        if !is_packed {
            let read = self.width * e.lanes() * bytes_of(held.dtype);
            return Some(Ahead::All { terms: ceil_div(ASKED, read) });
        }
        // Tiles that are less wide than what is packed read it several times.
        let times = if self.parts(e) == 1 { (panel_vectors(e.isa) / self.width).max(1) } else { 1 };
        let trips = trips(terms.count);
        let step = ceil_div(terms.count * term_bytes, (times * chunk.count * trips).max(1));
        if step > MOST_ASKED {
            return None;
        }
        let times = e.b.number(times);
        let time = e.b.int(IntOp::FloorMod, panel, times);
        let before = e.b.times(time, chunk.count);
        let turn = e.b.int(IntOp::Sub, tile, chunk.first);
        let turn = e.b.int(IntOp::Add, before, turn);
        let from = e.b.times(turn, trips * step);
        Some(Ahead::Part { from: e.b.plus(from, terms.next * term_bytes), step })
    }

    /// Where a tile has several panels of packed factors: the vectors of each, and the bytes from one to the next.
    fn apart(&self, e: &Emitter<'_>) -> Option<(i64, i64)> {
        let (vectors, right) = (panel_vectors(e.isa), &self.right[0]);
        let bytes = self.roles.sum_count(e.bound) * right.term_bytes;
        (right.is_packed && self.width > vectors).then_some((vectors, bytes))
    }

    /// Bytes of a right factor.
    pub(super) fn right_bytes(&self, bound: &Bound<'_>) -> i64 {
        self.roles.sum_count(bound) * self.roles.column_count(bound) * bytes_of(self.right[0].held.dtype)
    }

    /// Rows of a tile whose sums fit into the registers.
    pub(super) fn tile_rows(&self, isa: Isa) -> i64 {
        (TILE_ROWS * panel_vectors(isa) / (self.width * self.roles.right.len() as i64)).min(2 * TILE_ROWS)
    }

    pub(super) fn panels(&self, emission: &Emission<'_>) -> i64 {
        let panel = self.width * emission.lanes();
        (self.roles.column_count(emission.bound) + panel - 1) / panel
    }

    /// Emits the tiles of a chunk of a panel; `then` is given the points of each tile, where the sums have their values, its first row and how many there are.
    #[allow(clippy::too_many_arguments, reason = "where, which and what then")]
    fn tiles(
        &self,
        e: &mut Emitter<'_>,
        tiling: &Tiling,
        origin: &Point,
        panel: Value,
        chunk: Chunk,
        terms: &Terms<'_>,
        then: &mut Then<'_>,
    ) -> Result<()> {
        tiling.each(e, chunk.from, chunk.to, &mut |e, tile, first, height| {
            let points = self.points(e, origin, first, height.rows, panel);
            let ahead = self.ahead(e, chunk, tile, panel, terms);
            self.sums(e, origin, (first, height), panel, terms, ahead, &points)?;
            e.b.stay_inside();
            then(e, &points, (first, height))?;
            e.b.move_outside();
            Ok(())
        })
    }

    /// Emits the sums of all panels into the worker's memory, some terms at a time: so many that what is read of both factors
    /// stays close.
    pub(super) fn add_up(
        &self,
        e: &mut Emitter<'_>,
        tiling: &Tiling,
        origin: &Point,
        panels: i64,
        tiles: Chunk,
        places: &FxHashMap<StepId, Held>,
    ) -> Result<()> {
        self.in_parts(e, places, true, &mut |e, terms, _| {
            let (panel, _) = e.b.begin_loop(To::Number(0), To::Number(panels), 1, &[]);
            self.tiles(e, tiling, origin, panel, tiles, terms, &mut |e, points, (_, height)| {
                self.store_sums(e, places, points, height)
            })?;
            e.b.end_loop(&[]);
            Ok(())
        })
    }

    /// Emits the terms of a sum some at a time: `part` is told which, and whether these are the last. Equal parts are one loop: there is as much code
    /// as for one.
    fn in_parts(
        &self,
        e: &mut Emitter<'_>,
        places: &FxHashMap<StepId, Held>,
        ends_alike: bool,
        part: &mut dyn FnMut(&mut Emitter<'_>, &Terms<'_>, Turn) -> Result<()>,
    ) -> Result<()> {
        let all = self.roles.sum_count(e.bound);
        let parts = self.parts(e);
        let count = ceil_div(all, parts);
        let next = if ends_alike { all } else { count };
        if parts == 1 {
            return part(e, &Terms { from: None, count, next, begun: None }, Turn::Last);
        }
        let is_even = parts * count == all;
        let looped = if is_even { parts } else { parts - 1 };
        let (number, _) = e.b.begin_loop(To::Number(0), To::Number(looped), 1, &[]);
        let from = Some(e.b.times(number, count));
        // none in the first part: what lies there is of no meaning yet
        let lanes = e.b.splat(Ty::Mask, number);
        let last = e.b.number(parts - 1);
        let left = e.b.int(IntOp::Sub, last, number);
        let one = e.b.number(1);
        let is_earlier = e.b.int(IntOp::Min, left, one);
        let turn = if is_even { Turn::Any(is_earlier) } else { Turn::Earlier };
        part(e, &Terms { from, count, next, begun: Some((places, Some(lanes))) }, turn)?;
        e.b.end_loop(&[]);
        if !is_even {
            let from = Some(e.b.number(looped * count));
            let left = all - looped * count;
            let next = if ends_alike { all } else { left };
            part(e, &Terms { from, count: left, next, begun: Some((places, None)) }, Turn::Last)?;
        }
        Ok(())
    }

    /// How many times terms are added. Where all rows are one tile, nothing is read again.
    fn parts(&self, e: &Emitter<'_>) -> i64 {
        if self.roles.row_count(e.bound) <= self.tile_rows(e.isa) {
            return 1;
        }
        ceil_div(self.roles.sum_count(e.bound), MOST_TERMS).max(1)
    }

    /// Where the sums of tiles, so many from one on, wait for the rest of their terms; nowhere if there are no more.
    pub(super) fn waiting(
        &self,
        e: &mut Emitter<'_>,
        tiling: &Tiling,
        (from, together): (Value, i64),
        panel: Value,
    ) -> FxHashMap<StepId, Held> {
        if self.parts(e) == 1 {
            return FxHashMap::default();
        }
        let across = self.width * e.lanes();
        let first = tiling.row(e, from);
        let before = e.b.times(panel, across);
        in_worker(&self.roles, e, (first, together * tiling.rows), (before, across))
    }

    /// Stores the sums of a tile. Rows of the worker's memory are padded: lanes beyond the end may be written.
    fn store_sums(
        &self,
        e: &mut Emitter<'_>,
        places: &FxHashMap<StepId, Held>,
        points: &[Point],
        height: Height,
    ) -> Result<()> {
        height.each(e, points, &mut |e, points| {
            for dot in &self.roles.dots {
                for point in points {
                    let value = e.kept_at(*dot, point)?;
                    e.store_held(&places[dot], value, &point.clone().unmasked());
                }
            }
            Ok(())
        })
    }

    /// The points of a tile: rows, then the vectors of the panel.
    fn points(&self, e: &mut Emitter<'_>, origin: &Point, first: Value, rows: i64, panel: Value) -> Vec<Point> {
        let start = e.b.times(panel, self.width * e.lanes());
        e.multiples.insert(start, self.width * e.lanes());
        tile_points(e, &self.roles, origin, (first, rows), (start, self.width))
    }

    /// Emits the sums of a tile and gives the contractions their values.
    #[allow(clippy::too_many_arguments, reason = "where, which and what is asked for")]
    fn sums(
        &self,
        e: &mut Emitter<'_>,
        origin: &Point,
        (first, height): (Value, Height),
        panel: Value,
        terms: &Terms<'_>,
        ahead: Option<Ahead>,
        points: &[Point],
    ) -> Result<()> {
        let roles = &self.roles;
        let kernel = e.bound.kernel;
        let bytes = bytes_of(self.left.dtype);
        let left = Stepped {
            dtype: self.left.dtype,
            row_bytes: self.row_stride * bytes,
            term_bytes: self.term_stride * bytes,
        };
        // Where the tile begins in the left factor: rows and terms follow at even distances.
        let at_first = rows_point(e, &roles.rows, origin, first);
        let start = e.address_of(&self.left, &at_first);
        let start = terms.move_by(e, start, left.term_bytes);
        let mut right = Vec::new();
        for Right { held, term_bytes, .. } in &self.right {
            let at = column_start(e, roles, origin, panel, self.width * e.lanes());
            let start = e.address_of(held, &at);
            right.push(terms.move_by(e, start, *term_bytes));
        }
        let masked = points.iter().take(self.width as usize).filter(|_| self.right.iter().any(|r| !r.is_packed));
        let sums = TileSums {
            foldings: roles.dots.iter().filter_map(|dot| Folding::of_factors(kernel, *dot, roles.left)).collect(),
            height,
            width: self.width,
            terms: terms.count,
            left,
            right: self.right.iter().map(|r| (r.held.dtype, r.term_bytes)).collect(),
            panels: self.apart(e),
            masks: masked.filter_map(|point| point.mask).collect(),
            ahead,
        };
        let begun = terms.begun.map(|(places, lanes)| {
            let held = roles.dots.iter().flat_map(|dot| points.iter().map(|point| (&places[dot], point)));
            let at = |point: &Point| match lanes {
                Some(lanes) => point.clone().masked(lanes),
                None => point.clone().unmasked(),
            };
            held.map(|(place, point)| e.load_held(place, &at(point))).collect()
        });
        let kept = sums.emit(e, start, &right, begun);
        give_sums(e, &roles.dots, &sums, &kept, points);
        Ok(())
    }
}

/// Places in the worker's memory for the sums of so many rows and columns from some on.
pub(super) fn in_worker(
    roles: &Roles,
    e: &mut Emitter<'_>,
    (first, rows): (Value, i64),
    (before, across): (Value, i64),
) -> FxHashMap<StepId, Held> {
    let row = dense_offset(&roles.rows, &e.bound.extents);
    let column = dense_offset(&roles.columns, &e.bound.extents);
    let own = e.pointer(Memory::Worker);
    let mut places = FxHashMap::default();
    let mut used = e.worker_bytes as i64;
    for dot in &roles.dots {
        let dtype = held_dtype(e.bound.kernel.step(*dot).dtype);
        let bytes = bytes_of(dtype);
        let skipped = e.b.times(first, across);
        let skipped = e.b.int(IntOp::Add, skipped, before);
        let skipped = e.b.times(skipped, -bytes);
        let base = e.b.int(IntOp::Add, own, skipped);
        let base = e.b.plus(base, used);
        used += rows * across * bytes;
        let offset = &row * across + &column;
        places.insert(*dot, Held { memory: Memory::Worker, base: Some(base), offset, dtype, again: true });
    }
    e.worker_bytes = used as usize;
    places
}

/// The terms of a sum that are added at a time.
struct Terms<'t> {
    /// an Int: the first of them; none for the very first
    from: Option<Value>,
    count: i64,
    /// how many terms on in memory those lie that are added next
    next: i64,
    /// where the sums of the terms before lie, and which of their lanes are to be read if not all; none where there are none
    begun: Option<(&'t FxHashMap<StepId, Held>, Option<Value>)>,
}

/// Which of the parts of a sum are emitted.
#[derive(Clone, Copy)]
enum Turn {
    /// the last
    Last,
    /// some before the last
    Earlier,
    /// any of them: an Int, 0 in the last and 1 in all others
    Any(Value),
}

impl Terms<'_> {
    /// A pointer to the first term, from one to the very first.
    fn move_by(&self, e: &mut Emitter<'_>, pointer: Value, bytes: i64) -> Value {
        match self.from {
            Some(from) => {
                let plus = e.b.times(from, bytes);
                e.b.int(IntOp::Add, pointer, plus)
            }
            None => pointer,
        }
    }
}

/// Gives contractions the values that the sums of a tile are.
pub(super) fn give_sums(e: &mut Emitter<'_>, dots: &[StepId], sums: &TileSums, kept: &[Value], points: &[Point]) {
    let kernel = e.bound.kernel;
    for (d, dot) in dots.iter().enumerate() {
        let mut values = FxHashMap::default();
        for (k, point) in points.iter().enumerate() {
            let one = Kept::from_slice(&[kept[d * points.len() + k]]);
            values.insert(point.key(kernel.step(*dot).axes), sums.foldings[d].result(&mut e.b, &one));
        }
        e.given.insert(*dot, Given::Values(values));
    }
}

/// The point of a batch by its number.
pub(super) fn batch_point(e: &mut Emitter<'_>, roles: &Roles, batch: Value) -> Point {
    let origin = Point::origin(e.bound.extents.len());
    rows_point(e, &roles.batch, &origin, batch)
}

/// A point with the coordinates along some axes that a number says, the last of them innermost.
pub(super) fn rows_point(e: &mut Emitter<'_>, axes: &[usize], origin: &Point, number: Value) -> Point {
    let (mut point, mut rest) = (origin.clone(), number);
    for (k, axis) in axes.iter().enumerate().rev() {
        let size = e.b.number(e.bound.extents[*axis]);
        let coord = if k == 0 { rest } else { e.b.int(IntOp::FloorMod, rest, size) };
        rest = e.b.int(IntOp::FloorDiv, rest, size);
        point = point.with(*axis, Coord { base: Some(coord), plus: 0, lanes: false });
    }
    point
}

/// The points of a tile: so many rows from one on, then so many vectors of columns from one on.
pub(super) fn tile_points(
    e: &mut Emitter<'_>,
    roles: &Roles,
    origin: &Point,
    (first, rows): (Value, i64),
    (start, width): (Value, i64),
) -> Vec<Point> {
    let (lanes, columns) = (e.lanes(), roles.column_count(e.bound));
    let mut points = Vec::new();
    for r in 0..rows {
        let row = match roles.rows[..] {
            [] => origin.clone(),
            [axis] => origin.with(axis, Coord { base: Some(first), plus: r, lanes: false }),
            _ => {
                let number = e.b.plus(first, r);
                rows_point(e, &roles.rows, origin, number)
            }
        };
        for v in 0..width {
            let mut point = column_point(e, &roles.columns, &row, start, v * lanes);
            if columns % (width * lanes) != 0 {
                let left = e.b.number(columns - v * lanes);
                let left = e.b.int(IntOp::Sub, left, start);
                let left = e.b.splat(Ty::I32, left);
                let numbers = e.b.lane_numbers(Ty::I32);
                let mask = e.b.compare(Compare::Lt, numbers, left);
                point = point.masked(mask);
            }
            points.push(point);
        }
    }
    points
}

/// A point with lanes along the last column axis, at a column by number plus a few.
pub(super) fn column_point(e: &mut Emitter<'_>, columns: &[usize], row: &Point, start: Value, plus: i64) -> Point {
    if let [axis] = columns {
        return row.with(*axis, Coord { base: Some(start), plus, lanes: true });
    }
    let (mut point, mut rest) = (row.clone(), e.b.plus(start, plus));
    for (k, axis) in columns.iter().enumerate().rev() {
        let size = e.b.number(e.bound.extents[*axis]);
        let coord = if k == 0 { rest } else { e.b.int(IntOp::FloorMod, rest, size) };
        rest = e.b.int(IntOp::FloorDiv, rest, size);
        point = point.with(*axis, Coord { base: Some(coord), plus: 0, lanes: k + 1 == columns.len() });
    }
    point
}

/// The point where a panel begins, at the first term.
fn column_start(e: &mut Emitter<'_>, roles: &Roles, origin: &Point, panel: Value, across: i64) -> Point {
    let start = e.b.times(panel, across);
    column_point(e, &roles.columns, origin, start, 0)
}
