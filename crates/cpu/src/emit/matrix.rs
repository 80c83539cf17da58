//! Contractions of bf16 by tiles.
//!
//! Both factors are packed into squares that a tile holds: of the left one 16 rows of 32 terms, of the right one 16 pairs of
//! terms in 16 columns; terms beyond the end are 0. A task multiplies blocks of two squares by two, whose sums go from tiles to the
//! worker's memory, where what is computed of them reads them.

use fuseline::error::Result;
use fuseline::ops::ExprNode;
use fuseline::tensor::{DType, Dim};
use fuseline::tile::{Kernel, Op, StepId};
use rustc_hash::FxHashMap;

use super::bound::{bytes_of, ceil_div};
use super::contract::LEFT_BYTES;
use super::emitter::{Emitter, Given, Held};
use super::generic::{give, hold_rows};
use super::multiply::{FAR, batch_point, column_point, in_worker, rows_point, tile_points};
use super::point::Point;
use super::roles::Roles;
use super::row_plan::plan_rows;
use super::rows::dense_offset;
use super::tile_sums::LINE;
use super::{Emission, Memory, share};
use crate::code::Isa;
use crate::vector::{
    Binary, Bound as To, Compare, Convert, IntOp, TILE_ROW_BYTES, TILE_ROWS, TileOp, Ty, Unary, Value,
};

/// Rows of a square of the left factor, columns of one of the right factor.
pub(super) const SIDE: i64 = TILE_ROWS;

/// Terms of a square.
pub(super) const TERMS: i64 = 32;

/// Bytes of a square.
pub(super) const SQUARE: i64 = TILE_ROWS * TILE_ROW_BYTES;

/// Squares of a block, down and across.
pub(super) const ACROSS: i64 = 2;

/// Rows of a block.
const BLOCK_ROWS: i64 = ACROSS * SIDE;

/// Blocks that a task works on at a time where it owns whole rows.
const WHOLE_BLOCKS: i64 = 2;

/// Rows whose sums are worked on at a time.
const ROWS_AT_A_TIME: i64 = 2;

/// Tiles of sums come first, then those of the left factor, then those of the right ones.
pub(super) const LEFT: u8 = 4;
pub(super) const RIGHT: u8 = 6;

/// Whether contractions can be computed by tiles: the machine has them, both factors are bf16, sums f32.
pub(super) fn fits(emission: &Emission<'_>, roles: &Roles) -> bool {
    let kernel = emission.bound.kernel;
    let in_f32 = |dot: &StepId| matches!(kernel.step(*dot).op, Op::Dot { accumulator: DType::F32, .. });
    let factors = std::iter::once(&roles.left).chain(&roles.right);
    emission.isa == Isa::Amx && roles.dots.iter().all(in_f32) && factors.into_iter().all(|id| is_bf16(kernel, *id))
}

/// Whether a step is bf16, or f32 that was widened from it.
fn is_bf16(kernel: &Kernel, id: StepId) -> bool {
    let step = kernel.step(id);
    match &step.op {
        _ if step.dtype == DType::BF16 => true,
        Op::Map { expr, .. } => match expr.nodes() {
            [.., (ExprNode::Cast(from), DType::F32)] => expr.nodes()[*from as usize].1 == DType::BF16,
            _ => false,
        },
        _ => false,
    }
}

/// The step that a step is, rounded to bf16 and widened again, if it is nothing else.
pub(super) fn unrounded(kernel: &Kernel, id: StepId) -> Option<StepId> {
    let Op::Map { expr, args } = &kernel.step(id).op else { return None };
    match (expr.nodes(), args.as_slice()) {
        (
            [(ExprNode::Arg(0), DType::F32), (ExprNode::Cast(0), DType::BF16), (ExprNode::Cast(1), DType::F32)],
            [arg],
        ) => Some(*arg),
        _ => None,
    }
}

/// A contraction with its factors in squares.
pub(super) struct Blocks<'r> {
    pub roles: &'r Roles,
    pub left: Memory,
    pub right: Vec<Memory>,
    /// squares along the sum
    pub depth: i64,
    /// squares of the left factor, one below the other
    pub down: i64,
    /// squares of a right factor, beside each other: a multiple of those of a block
    pub across: i64,
    /// columns that there are
    results: i64,
}

/// Left factors that are packed, each with its axes of batch, rows and sum.
pub(super) type PackedLeft = Vec<(StepId, [Vec<usize>; 3], Memory)>;

/// Emits contractions whose results are stored at once, or, where rows are folded behind them, row by row.
pub(super) fn emit_blocks(
    emission: &mut Emission<'_>,
    roles: &Roles,
    stores: &[usize],
    folds: bool,
    held: &FxHashMap<StepId, Held>,
    packed: &mut PackedLeft,
) -> Result<()> {
    let mut blocks = Blocks::new(emission, roles);
    let axes = [&roles.batch, &roles.rows, &roles.sum].map(Vec::clone);
    blocks.left = match packed.iter().find(|(id, own, _)| (*id, own) == (roles.left, &axes)) {
        Some((.., memory)) => *memory,
        None => blocks.pack_left(emission, held)?,
    };
    packed.push((roles.left, axes, blocks.left));
    for id in &roles.right {
        let packed = blocks.pack_right(emission, *id, held)?;
        blocks.right.push(packed);
    }
    if folds { blocks.emit_whole_rows(emission, stores, held) } else { blocks.emit_tiles(emission, stores, held) }
}

impl<'r> Blocks<'r> {
    /// A contraction of which nothing is packed yet.
    pub(super) fn new(emission: &Emission<'_>, roles: &'r Roles) -> Blocks<'r> {
        let bound = emission.bound;
        let depth = ceil_div(roles.sum_count(bound), TERMS);
        let down = ceil_div(roles.row_count(bound), SIDE);
        let results = roles.column_count(bound);
        let across = ceil_div(results, ACROSS * SIDE) * ACROSS;
        Blocks { roles, left: Memory::Worker, right: Vec::new(), depth, down, across, results }
    }
}

impl Blocks<'_> {
    /// Squares of each right factor in a block.
    fn width(&self) -> i64 {
        ACROSS / self.right.len() as i64
    }

    /// Columns of a block.
    fn columns(&self) -> i64 {
        self.width() * SIDE
    }

    /// Blocks beside each other: those that have columns, which may be fewer than squares are packed for.
    fn panels(&self) -> i64 {
        ceil_div(self.results, self.columns())
    }

    /// Blocks one below the other.
    fn count(&self) -> i64 {
        ceil_div(self.down, ACROSS)
    }

    /// Packs the left factor: squares along the sum, then down.
    pub(super) fn pack_left(&self, emission: &mut Emission<'_>, held: &FxHashMap<StepId, Held>) -> Result<Memory> {
        let (bound, roles) = (emission.bound, self.roles);
        let memory = Memory::Scratch(emission.scratch.len());
        let bytes = roles.batch_count(bound) * self.down * self.depth * SQUARE;
        emission.scratch.push(bytes as usize);
        if roles.sum_count(bound) % TERMS != 0 {
            self.clear(emission, memory, roles.batch_count(bound) * self.down)?;
        }
        let [batch, row, term] = [&roles.batch, &roles.rows, &roles.sum].map(|axes| dense_offset(axes, &bound.extents));
        let (side, terms) = (Dim::int(SIDE), Dim::int(TERMS));
        let square = (batch * self.down + row.floordiv(&side)) * self.depth + term.floordiv(&terms);
        let offset = (square * SIDE + row.modulo(&side)) * TERMS + term.modulo(&terms);
        let place = Held { memory, base: None, offset, dtype: DType::BF16, again: false };
        let order: Vec<usize> = roles.batch.iter().chain(&roles.rows).chain(&roles.sum).copied().collect();
        emission.phase_of_any_lanes("gather", &mut |e: &mut Emitter<'_>| {
            give(e, held);
            let rows = hold_rows(e, roles.left, &order, &place);
            e.rows(&rows)
        })?;
        Ok(memory)
    }

    /// Clears the last square along the sum, so many times.
    fn clear(&self, emission: &mut Emission<'_>, memory: Memory, count: i64) -> Result<()> {
        emission.phase("clear", &mut |e: &mut Emitter<'_>| {
            let task = e.b.begin_tasks();
            let start = e.pointer(memory);
            let row = e.b.times(task, self.depth * SQUARE);
            let start = e.b.int(IntOp::Add, start, row);
            let zero = e.b.integer(Ty::I32, 0);
            for k in 0..SQUARE / (4 * e.lanes()) {
                let at = e.b.address(start, &[], (self.depth - 1) * SQUARE + k * 4 * e.lanes());
                e.b.store(at, zero, DType::I32, None);
            }
            e.b.end_loop(&[]);
            e.writes.insert(memory);
            Ok(count)
        })
    }

    /// Packs a right factor: squares along the sum, then across; two terms beside each other.
    pub(super) fn pack_right(
        &self,
        emission: &mut Emission<'_>,
        id: StepId,
        held: &FxHashMap<StepId, Held>,
    ) -> Result<Memory> {
        let (bound, roles) = (emission.bound, self.roles);
        let memory = Memory::Scratch(emission.scratch.len());
        let bytes = roles.batch_count(bound) * self.across * self.depth * SQUARE;
        emission.scratch.push(bytes as usize);
        let (terms, columns) = (roles.sum_count(bound), roles.column_count(bound));
        emission.phase_of_any_lanes("pack", &mut |e: &mut Emitter<'_>| {
            give(e, held);
            let task = e.b.begin_tasks();
            let lanes = e.lanes();
            let vectors = self.across * SIDE / lanes;
            let vectors_value = e.b.number(vectors);
            let number = e.b.int(IntOp::FloorMod, task, vectors_value);
            let batch = e.b.int(IntOp::FloorDiv, task, vectors_value);
            let column = e.b.times(number, lanes);
            e.multiples.insert(column, lanes);
            let origin = batch_point(e, roles, batch);
            let mut point = column_point(e, &roles.columns, &origin, column, 0);
            if columns % (self.across * SIDE) != 0 {
                let mask = lanes_left(e, columns, column);
                point = point.masked(mask);
            }
            let start = self.pack_start(e, memory, batch, column);
            let pairs = terms / 2;
            let (pair, out) = e.b.begin_loop(To::Number(0), To::Number(pairs), 1, &[start]);
            let first = e.b.times(pair, 2);
            let second = e.b.plus(first, 1);
            let points = [first, second].map(|term| rows_point(e, &roles.sum, &point, term));
            let values = e.values(&[id], &points)?;
            store_pair(e, out[0], values[0][0], Some(values[0][1]));
            let next = e.b.plus(out[0], TILE_ROW_BYTES);
            let mut out = e.b.end_loop(&[next])[0];
            if terms % 2 == 1 {
                let last = e.b.number(terms - 1);
                let at = rows_point(e, &roles.sum, &point, last);
                let value = e.values(&[id], &[at])?[0][0];
                store_pair(e, out, value, None);
                out = e.b.plus(out, TILE_ROW_BYTES);
            }
            let zero = e.b.float(Ty::F32, 0.0);
            for _ in ceil_div(terms, 2)..self.depth * TERMS / 2 {
                store_pair(e, out, zero, None);
                out = e.b.plus(out, TILE_ROW_BYTES);
            }
            e.b.end_loop(&[]);
            e.writes.insert(memory);
            Ok(roles.batch_count(bound) * vectors)
        })?;
        Ok(memory)
    }

    /// Where the first pair of a column is packed.
    fn pack_start(&self, e: &mut Emitter<'_>, memory: Memory, batch: Value, column: Value) -> Value {
        let start = e.pointer(memory);
        let side = e.b.number(SIDE);
        let square = e.b.int(IntOp::FloorDiv, column, side);
        let before = e.b.times(batch, self.across);
        let square = e.b.int(IntOp::Add, before, square);
        let skipped = e.b.times(square, self.depth * SQUARE);
        let start = e.b.int(IntOp::Add, start, skipped);
        let inside = e.b.int(IntOp::FloorMod, column, side);
        let inside = e.b.times(inside, 4);
        e.b.int(IntOp::Add, start, inside)
    }

    /// Emits blocks whose results are stored at once.
    fn emit_tiles(&self, emission: &mut Emission<'_>, stores: &[usize], held: &FxHashMap<StepId, Held>) -> Result<()> {
        let (bound, roles) = (emission.bound, self.roles);
        let (panels, batches) = (self.panels(), roles.batch_count(bound));
        // Rows in chunks whose part of the left factor stays close, but enough chunks to share.
        let most = (LEFT_BYTES / (ACROSS * self.depth * SQUARE)).max(1);
        let together = share::tiles(self.count(), panels * batches, most, emission.cores);
        let chunks = ceil_div(self.count(), together);
        emission.phase("multiply", &mut |e: &mut Emitter<'_>| {
            give(e, held);
            let task = e.b.begin_tasks();
            let (panels_value, chunks_value) = (e.b.number(panels), e.b.number(chunks));
            let panel = e.b.int(IntOp::FloorMod, task, panels_value);
            let rest = e.b.int(IntOp::FloorDiv, task, panels_value);
            let chunk = e.b.int(IntOp::FloorMod, rest, chunks_value);
            let batch = e.b.int(IntOp::FloorDiv, rest, chunks_value);
            let origin = batch_point(e, roles, batch);
            let column = e.b.times(panel, self.columns());
            e.multiples.insert(column, self.columns());
            let from = e.b.times(chunk, together);
            self.each(e, from, together, &mut |e, block, squares| {
                let first = e.b.times(block, BLOCK_ROWS);
                let sums = Sums::new(e, roles, (first, BLOCK_ROWS), (column, self.columns()));
                self.products(e, (batch, block, panel), squares, together, &sums);
                self.store_rows(e, &origin, (first, squares), column, stores)
            })?;
            e.b.end_loop(&[]);
            Ok(batches * chunks * panels)
        })
    }

    /// Emits tasks that own whole rows: their blocks go to the worker's memory, then rows are worked on.
    fn emit_whole_rows(
        &self,
        emission: &mut Emission<'_>,
        stores: &[usize],
        held: &FxHashMap<StepId, Held>,
    ) -> Result<()> {
        let (bound, roles) = (emission.bound, self.roles);
        let runs = share::runs(self.count(), roles.batch_count(bound), (1, WHOLE_BLOCKS), emission.cores);
        let together = ceil_div(self.count(), runs);
        let chunks = ceil_div(self.count(), together);
        let padded = self.panels() * self.columns();
        emission.phase("multiply", &mut |e: &mut Emitter<'_>| {
            give(e, held);
            let task = e.b.begin_tasks();
            let chunks_value = e.b.number(chunks);
            let chunk = e.b.int(IntOp::FloorMod, task, chunks_value);
            let batch = e.b.int(IntOp::FloorDiv, task, chunks_value);
            let origin = batch_point(e, roles, batch);
            let from = e.b.times(chunk, together);
            let first = e.b.times(from, BLOCK_ROWS);
            let zero = e.b.number(0);
            let sums = Sums::new(e, roles, (first, together * BLOCK_ROWS), (zero, padded));
            let (panel, _) = e.b.begin_loop(To::Number(0), To::Number(self.panels()), 1, &[]);
            self.each(e, from, together, &mut |e, block, squares| {
                self.products(e, (batch, block, panel), squares, together, &sums);
                Ok(())
            })?;
            e.b.end_loop(&[]);
            let outer: Vec<usize> = roles.batch.iter().chain(&roles.rows).copied().collect();
            let rows = plan_rows(e, outer, roles.columns.clone(), roles.columns.last().copied(), stores)?;
            let (to, all) = (e.b.plus(first, together * BLOCK_ROWS), e.b.number(roles.row_count(bound)));
            let to = e.b.int(IntOp::Min, to, all);
            let (row, _) = e.b.begin_loop(To::Value(first), To::Value(to), 1, &[]);
            let point = rows_point(e, &roles.rows, &origin, row);
            e.row(&rows, &[point], None)?;
            e.b.end_loop(&[]);
            e.b.end_loop(&[]);
            Ok(roles.batch_count(bound) * chunks)
        })
    }

    /// Emits loops over so many blocks from one on, as far as there are; `body` is given the block and its squares, one below the
    /// other.
    fn each(
        &self,
        e: &mut Emitter<'_>,
        from: Value,
        together: i64,
        body: &mut dyn FnMut(&mut Emitter<'_>, Value, i64) -> Result<()>,
    ) -> Result<()> {
        let whole = self.down / ACROSS;
        let to = e.b.plus(from, together);
        for (squares, begin, end) in [(ACROSS, 0, whole), (self.down % ACROSS, whole, self.count())] {
            if begin == end {
                continue;
            }
            let (begin, end) = (e.b.number(begin), e.b.number(end));
            let (begin, end) = (e.b.int(IntOp::Max, from, begin), e.b.int(IntOp::Min, to, end));
            let (block, _) = e.b.begin_loop(To::Value(begin), To::Value(end), 1, &[]);
            body(e, block, squares)?;
            e.b.end_loop(&[]);
        }
        Ok(())
    }

    /// Emits the sums of a block, which go to the worker's memory.
    pub(super) fn products(
        &self,
        e: &mut Emitter<'_>,
        (batch, block, panel): (Value, Value, Value),
        squares: i64,
        together: i64,
        sums: &Sums,
    ) {
        let row = self.depth * SQUARE;
        let left = start_of(e, self.left, (batch, self.down * row), (block, ACROSS * row));
        let mut state = vec![left];
        for right in &self.right {
            state.push(start_of(e, *right, (batch, self.across * row), (panel, self.width() * row)));
        }
        for tile in 0..squares * ACROSS {
            e.b.tile(TileOp::Zero(tile as u8));
        }
        let (step, mut inside) = e.b.begin_loop(To::Number(0), To::Number(self.depth), 1, &state);
        self.ask_ahead(e, &inside[1..], (step, block), together);
        for r in 0..squares {
            let at = e.b.address(inside[0], &[], r * row);
            e.b.tile(TileOp::Load { tile: LEFT + r as u8, at, stride: TILE_ROW_BYTES as i32 });
        }
        for column in 0..ACROSS {
            let (factor, w) = (column / self.width(), column % self.width());
            let at = e.b.address(inside[1 + factor as usize], &[], w * row);
            let b = RIGHT + column as u8;
            e.b.tile(TileOp::Load { tile: b, at, stride: TILE_ROW_BYTES as i32 });
            for r in 0..squares {
                e.b.tile(TileOp::Products { sums: (r * ACROSS + column) as u8, a: LEFT + r as u8, b });
            }
        }
        for pointer in &mut inside {
            *pointer = e.b.plus(*pointer, SQUARE);
        }
        e.b.end_loop(&inside);
        self.store_sums(e, (block, panel), squares, sums);
    }

    /// Asks for the next panel, a part of it with every step of the sums of every block.
    fn ask_ahead(&self, e: &mut Emitter<'_>, right: &[Value], (step, block): (Value, Value), together: i64) {
        let panel = self.width() * self.depth * SQUARE;
        if self.panels() * panel < FAR {
            return;
        }
        // What is asked for begins behind this panel, not behind this step.
        let lines = ceil_div(panel / LINE, self.depth * together.min(self.count()));
        let count = e.b.number(together.min(self.count()));
        let turn = e.b.int(IntOp::FloorMod, block, count);
        let turn = e.b.times(turn, self.depth * lines * LINE);
        let along = e.b.times(step, lines * LINE - SQUARE);
        for pointer in right {
            for line in 0..lines {
                let at = e.b.address(*pointer, &[(turn, 1), (along, 1)], panel + line * LINE);
                e.b.prefetch(at);
            }
        }
    }

    /// Emits what becomes of the sums of a block, and its stores, some rows at a time.
    fn store_rows(
        &self,
        e: &mut Emitter<'_>,
        origin: &Point,
        (first, squares): (Value, i64),
        column: Value,
        stores: &[usize],
    ) -> Result<()> {
        let kernel = e.bound.kernel;
        let values: Vec<StepId> = stores.iter().map(|k| kernel.stores[*k].value).collect();
        let all = e.b.number(self.roles.row_count(e.bound));
        let behind = e.b.plus(first, squares * SIDE);
        let behind = e.b.int(IntOp::Min, behind, all);
        let count = e.b.int(IntOp::Sub, behind, first);
        let at_a_time = e.b.number(ROWS_AT_A_TIME);
        let rest = e.b.int(IntOp::FloorMod, count, at_a_time);
        let middle = e.b.int(IntOp::Sub, behind, rest);
        let vectors = self.columns() / e.lanes();
        for (from, to, rows) in [(first, middle, ROWS_AT_A_TIME), (middle, behind, 1)] {
            let (row, _) = e.b.begin_loop(To::Value(from), To::Value(to), rows, &[]);
            let points = tile_points(e, self.roles, origin, (row, rows), (column, vectors));
            let values = e.values(&values, &points)?;
            for (store, values) in stores.iter().zip(values) {
                for (point, value) in points.iter().zip(values) {
                    e.store(*store, value, point, false);
                }
            }
            e.b.end_loop(&[]);
        }
        Ok(())
    }

    /// Stores the sums of a block to rows of the worker's memory.
    fn store_sums(&self, e: &mut Emitter<'_>, (block, panel): (Value, Value), squares: i64, sums: &Sums) {
        let (row, column) = (e.b.times(block, BLOCK_ROWS), e.b.times(panel, self.columns()));
        let bytes = bytes_of(DType::F32);
        let row = e.b.times(row, sums.across * bytes);
        let column = e.b.times(column, bytes);
        e.writes.insert(Memory::Worker);
        for (d, dot) in self.roles.dots.iter().enumerate() {
            let base = sums.places[dot].base.unwrap_or_else(|| e.pointer(Memory::Worker));
            let base = e.b.int(IntOp::Add, base, row);
            let base = e.b.int(IntOp::Add, base, column);
            for (r, w) in (0..squares).flat_map(|r| (0..self.width()).map(move |w| (r, w))) {
                let at = e.b.address(base, &[], (r * sums.across + w) * SIDE * bytes);
                let tile = (r * ACROSS + d as i64 * self.width() + w) as u8;
                e.b.tile(TileOp::Store { tile, at, stride: (sums.across * bytes) as i32 });
            }
        }
    }
}

/// Where sums lie in the worker's memory.
pub(super) struct Sums {
    pub places: FxHashMap<StepId, Held>,
    /// numbers from row to row
    pub across: i64,
}

impl Sums {
    /// Of so many rows and columns from some on.
    fn new(e: &mut Emitter<'_>, roles: &Roles, rows: (Value, i64), (before, across): (Value, i64)) -> Sums {
        let places = in_worker(roles, e, rows, (before, across));
        for (dot, place) in &places {
            e.given.insert(*dot, Given::Held(place.clone()));
        }
        Sums { places, across }
    }
}

/// A pointer into packed squares: some bytes for every batch, and for every block.
pub(super) fn start_of(
    e: &mut Emitter<'_>,
    memory: Memory,
    (batch, batch_bytes): (Value, i64),
    (block, block_bytes): (Value, i64),
) -> Value {
    let start = e.pointer(memory);
    e.reads.insert(memory);
    let skipped = e.b.times(batch, batch_bytes);
    let start = e.b.int(IntOp::Add, start, skipped);
    let skipped = e.b.times(block, block_bytes);
    e.b.int(IntOp::Add, start, skipped)
}

/// The lanes of a vector from a column on that are not beyond the last.
fn lanes_left(e: &mut Emitter<'_>, columns: i64, column: Value) -> Value {
    let left = e.b.number(columns);
    let left = e.b.int(IntOp::Sub, left, column);
    let left = e.b.splat(Ty::I32, left);
    let numbers = e.b.lane_numbers(Ty::I32);
    e.b.compare(Compare::Lt, numbers, left)
}

/// Stores two terms, or one and 0, of every column beside each other.
fn store_pair(e: &mut Emitter<'_>, at: Value, first: Value, second: Option<Value>) {
    let sixteen = e.b.integer(Ty::I32, 16);
    let bits = |e: &mut Emitter<'_>, value: Value| {
        let rounded = e.b.unary(Unary::RoundBf16, value);
        e.b.convert(Convert::Bits, Ty::I32, rounded)
    };
    let low = bits(e, first);
    let mut pair = e.b.binary(Binary::ShrUnsigned, low, sixteen);
    if let Some(second) = second {
        let high = bits(e, second);
        pair = e.b.binary(Binary::Or, pair, high);
    }
    let at = e.b.address(at, &[], 0);
    e.b.store(at, pair, DType::I32, None);
}
