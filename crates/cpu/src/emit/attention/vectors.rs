//! Both contractions by vectors: sums in registers, of keys that are packed in panels.

use fuseline::error::Result;
use fuseline::tensor::DType;
use fuseline::tile::{Op, StepId};
use rustc_hash::FxHashMap;

use super::{Attention, Keys, Places, Products, Span, Task};
use crate::emit::bound::{bytes_of, ceil_div};
use crate::emit::emitter::{Emitter, Held};
use crate::emit::factors::{even_stride, left_factor, pack_right, panel_bytes, panel_vectors};
use crate::emit::fold::Folding;
use crate::emit::multiply::{TILE_ROWS, column_point, give_sums, rows_point, tile_points};
use crate::emit::point::{Coord, Point};
use crate::emit::roles::Roles;
use crate::emit::tile_sums::{Stepped, TileSums};
use crate::emit::tiling::{Chunk, Tiling};
use crate::emit::{Emission, Memory, share};
use crate::vector::{Bound as To, IntOp, Value};

/// Rows that a task works on, at most, and at least if there are as many.
const ROWS: i64 = 48;
const LEAST_ROWS: i64 = 2 * TILE_ROWS;

/// Where the factors lie, and how rows are divided.
pub(super) struct Vectors<'a> {
    attention: &'a Attention<'a>,
    left: Held,
    stepped: Stepped,
    keys: Held,
    values: Held,
    /// bytes from key to key of the values
    value_step: i64,
    /// vectors of columns that a tile of results has
    value_width: i64,
    tiling: Tiling,
    /// tiles of a task
    together: i64,
    /// see [`Products`]
    panel: i64,
    padded: i64,
}

impl<'a> Vectors<'a> {
    /// Puts the factors where vectors can read them.
    pub(super) fn of(
        emission: &mut Emission<'_>,
        attention: &'a Attention<'a>,
        held: &FxHashMap<StepId, Held>,
    ) -> Result<Vectors<'a>> {
        let bound = emission.bound;
        let (first, second) = (&attention.first, &attention.second);
        let (left, row_stride, term_stride) = left_factor(emission, first, held)?;
        let bytes = bytes_of(left.dtype);
        let stepped = Stepped { dtype: left.dtype, row_bytes: row_stride * bytes, term_bytes: term_stride * bytes };
        let keys = pack_right(emission, first, first.right[0], held)?;
        let (values, value_step) = value_factor(emission, second, held)?;
        let (rows, batches) = (first.row_count(bound), first.batch_count(bound));
        let runs = share::runs(rows, batches, (LEAST_ROWS, ROWS), emission.cores);
        let (tiling, together) = Tiling::in_runs(rows, TILE_ROWS, runs);
        let value_width = value_width(emission, second, &values);
        let panel = panel_vectors(emission.isa) * emission.lanes();
        let across = value_width * emission.lanes();
        let padded = ceil_div(second.column_count(bound), across) * across;
        Ok(Vectors { attention, left, stepped, keys, values, value_step, value_width, tiling, together, panel, padded })
    }
}

impl Products for Vectors<'_> {
    fn chunks(&self) -> i64 {
        ceil_div(self.tiling.count, self.together)
    }

    fn task_rows(&self) -> i64 {
        self.together * self.tiling.rows
    }

    fn panel(&self) -> i64 {
        self.panel
    }

    fn padded(&self) -> i64 {
        self.padded
    }

    fn leaves_sums(&self) -> bool {
        false
    }

    fn span(&self, e: &mut Emitter<'_>, chunk: Value) -> Span {
        let Chunk { from, to, .. } = self.tiling.chunk(e, chunk, self.together);
        Span { tiles: (from, to), rows: (self.tiling.row(e, from), self.tiling.row(e, to)) }
    }

    fn scores(&self, e: &mut Emitter<'_>, places: &Places, task: &Task, keys: Keys) -> Result<()> {
        let (kernel, attention) = (e.bound.kernel, self.attention);
        let (origin, tiles) = (&task.origin, task.span.tiles);
        let roles = &attention.first;
        let (panel, width) = (self.panel, panel_vectors(e.isa));
        let (number, _) = e.b.begin_loop(To::Number(0), To::Number(ceil_div(keys.length, panel)), 1, &[]);
        let plus = e.b.times(number, panel);
        let start = e.b.int(IntOp::Add, keys.first, plus);
        e.multiples.insert(start, panel);
        let at = column_point(e, &roles.columns, origin, start, 0);
        let right = e.address_of(&self.keys, &at);
        self.tiling.each(e, tiles.0, tiles.1, &mut |e, _, first, height| {
            let points = tile_points(e, roles, origin, (first, height.rows), (start, width));
            let at_first = rows_point(e, &roles.rows, origin, first);
            let left = e.address_of(&self.left, &at_first);
            let sums = TileSums {
                foldings: Folding::of_factors(kernel, attention.chain.first, roles.left).into_iter().collect(),
                height,
                width,
                terms: roles.sum_count(e.bound),
                left: self.stepped,
                right: vec![(self.keys.dtype, panel_bytes(e, self.keys.dtype))],
                panels: None,
                masks: Vec::new(),
                ahead: None,
            };
            let kept = sums.emit(e, left, &[right], None);
            give_sums(e, &roles.dots, &sums, &kept, &points);
            e.b.stay_inside();
            height.each(e, &points, &mut |e, points| {
                let values = e.values(&[attention.score], points)?;
                for (point, value) in points.iter().zip(&values[0]) {
                    // Rows are padded: lanes beyond the end may be written.
                    e.store_held(&places.scores, *value, &point.clone().unmasked());
                }
                Ok(())
            })?;
            e.b.move_outside();
            Ok(())
        })?;
        e.b.end_loop(&[]);
        Ok(())
    }

    fn results(&self, e: &mut Emitter<'_>, places: &Places, task: &Task, keys: Keys) -> Result<()> {
        let (kernel, attention) = (e.bound.kernel, self.attention);
        let (origin, tiles) = (&task.origin, task.span.tiles);
        let roles = &attention.second;
        let width = self.value_width;
        let panel = width * e.lanes();
        let columns = roles.column_count(e.bound);
        let (number, _) = e.b.begin_loop(To::Number(0), To::Number(ceil_div(columns, panel)), 1, &[]);
        let start = e.b.times(number, panel);
        e.multiples.insert(start, panel);
        let stream = roles.sum[0];
        let at_key = origin.with(stream, Coord { base: Some(keys.first), plus: 0, lanes: false });
        let at = column_point(e, &roles.columns, &at_key, start, 0);
        let right = e.address_of(&self.values, &at);
        let dtype = places.scores.dtype;
        self.tiling.each(e, tiles.0, tiles.1, &mut |e, _, first, height| {
            let points = tile_points(e, roles, origin, (first, height.rows), (start, width));
            let at_first = rows_point(e, &roles.rows, &at_key, first);
            let left = e.address_of(&places.scores, &at_first);
            let masks: Vec<Value> = points.iter().take(width as usize).filter_map(|point| point.mask).collect();
            let whole: Vec<Point> = points.iter().cloned().map(Point::unmasked).collect();
            let sums = TileSums {
                foldings: Folding::of_factors(kernel, attention.chain.second, roles.left).into_iter().collect(),
                height,
                width,
                terms: keys.length,
                left: Stepped { dtype, row_bytes: places.across * bytes_of(dtype), term_bytes: bytes_of(dtype) },
                right: vec![(self.values.dtype, self.value_step)],
                panels: None,
                masks,
                ahead: None,
            };
            let kept: Vec<Value> = whole.iter().map(|point| e.load_held(&places.results, point)).collect();
            let kept = sums.emit(e, left, &[right], Some(kept));
            let mut kept = kept.into_iter();
            // Memory has places for as many rows as tiles have at most: those of the last were read, whether it is there or not.
            height.each(e, &whole, &mut |e, points| {
                for (point, value) in points.iter().zip(kept.by_ref()) {
                    e.store_held(&places.results, value, point);
                }
                Ok(())
            })
        })?;
        e.b.end_loop(&[]);
        Ok(())
    }
}

/// The values as they lie, where columns lie in a row and keys at even distances; otherwise packed.
fn value_factor(emission: &mut Emission<'_>, roles: &Roles, held: &FxHashMap<StepId, Held>) -> Result<(Held, i64)> {
    let bound = emission.bound;
    let id = roles.right[0];
    if let Op::Load { input, .. } = &bound.kernel.step(id).op {
        let access = bound.load(id);
        let plain = access.checked.is_empty() && access.guards.is_empty() && access.dtype == DType::F32;
        let columns = even_stride(bound, &access.offset, &roles.columns);
        let terms = even_stride(bound, &access.offset, &roles.sum);
        if let (true, Some(1), Some(stride)) = (plain, columns, terms) {
            let offset = access.offset.clone();
            let values = Held { memory: Memory::Input(*input), base: None, offset, dtype: access.dtype, again: false };
            return Ok((values, stride * bytes_of(access.dtype)));
        }
    }
    let place = pack_right(emission, roles, id, held)?;
    let step = panel_vectors(emission.isa) * emission.lanes() * bytes_of(place.dtype);
    Ok((place, step))
}

/// How many vectors of columns tiles of results have: as few as there are, and of those that are more all tiles about as many. Panels of what is
/// packed are cut evenly.
fn value_width(emission: &Emission<'_>, roles: &Roles, values: &Held) -> i64 {
    let most = panel_vectors(emission.isa);
    let vectors = ceil_div(roles.column_count(emission.bound), emission.lanes());
    match values.memory {
        Memory::Input(_) => ceil_div(vectors, ceil_div(vectors, most)),
        _ => {
            // Sums of one vector would wait for each other.
            let widths = (2.min(vectors)..=most).rev().filter(|width| most % width == 0);
            widths.min_by_key(|width| ceil_div(vectors, *width) * width).unwrap_or(most)
        }
    }
}
