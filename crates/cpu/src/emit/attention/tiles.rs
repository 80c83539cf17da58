//! Both contractions of bf16 by tiles: queries, keys and values are packed in squares; sums, and results so far, go between tiles and the worker's
//! memory.

use fuseline::error::Result;
use fuseline::tensor::DType;
use fuseline::tile::StepId;
use rustc_hash::FxHashMap;

use super::{Attention, Keys, Places, Products, Span, Task};
use crate::emit::bound::{bytes_of, ceil_div};
use crate::emit::emitter::{Emitter, Held};
use crate::emit::matrix::{ACROSS, Blocks, LEFT, RIGHT, SIDE, SQUARE, Sums, fits, start_of};
use crate::emit::{Emission, Memory};
use crate::vector::{Bound as To, IntOp, TILE_ROW_BYTES, TileOp, Value};

pub(super) use crate::emit::matrix::TERMS;

/// With fewer rows, tiles have little to do for what it takes to pack.
const FEWEST_ROWS: i64 = SIDE;

/// The factors in squares.
pub(super) struct Tiles<'a> {
    attention: &'a Attention<'a>,
    /// scores: both factors
    first: Blocks<'a>,
    /// results: the right factor alone, for the left one is computed by the task
    second: Blocks<'a>,
    /// rows in all
    rows: i64,
    /// squares of a task, one below the other
    squares: i64,
}

impl<'a> Tiles<'a> {
    /// Packs the factors, where the machine has tiles and these can multiply them.
    pub(super) fn of(
        emission: &mut Emission<'_>,
        attention: &'a Attention<'a>,
        held: &FxHashMap<StepId, Held>,
    ) -> Result<Option<Tiles<'a>>> {
        let (first, second) = (&attention.first, &attention.second);
        let rows = first.row_count(emission.bound);
        if rows < FEWEST_ROWS || !fits(emission, first) || !fits(emission, second) {
            return Ok(None);
        }
        let squares = ACROSS.min(ceil_div(rows, SIDE));
        let (mut first, mut second) = (Blocks::new(emission, first), Blocks::new(emission, second));
        // All tasks have as many squares; rows beyond the last are computed with whatever lies there, and nobody looks.
        first.down = ceil_div(first.down, squares) * squares;
        first.left = first.pack_left(emission, held)?;
        for blocks in [&mut first, &mut second] {
            let packed = blocks.pack_right(emission, blocks.roles.right[0], held)?;
            blocks.right.push(packed);
        }
        Ok(Some(Tiles { attention, first, second, rows, squares }))
    }

    /// Rows of a task.
    fn height(&self) -> i64 {
        self.squares * SIDE
    }
}

impl Products for Tiles<'_> {
    fn chunks(&self) -> i64 {
        self.first.down / self.squares
    }

    fn task_rows(&self) -> i64 {
        self.height()
    }

    fn panel(&self) -> i64 {
        ACROSS * SIDE
    }

    fn padded(&self) -> i64 {
        self.second.across * SIDE
    }

    fn leaves_sums(&self) -> bool {
        true
    }

    fn span(&self, e: &mut Emitter<'_>, chunk: Value) -> Span {
        let from = e.b.times(chunk, self.height());
        let (to, all) = (e.b.plus(from, self.height()), e.b.number(self.rows));
        Span { tiles: (chunk, e.b.plus(chunk, 1)), rows: (from, e.b.int(IntOp::Min, to, all)) }
    }

    fn scores(&self, e: &mut Emitter<'_>, places: &Places, task: &Task, keys: Keys) -> Result<()> {
        let dot = self.attention.chain.first;
        let sums = Sums { places: std::iter::once((dot, places.scores.clone())).collect(), across: places.across };
        let panel = e.b.number(self.panel());
        let first = e.b.int(IntOp::FloorDiv, keys.first, panel);
        let (number, _) = e.b.begin_loop(To::Number(0), To::Number(ceil_div(keys.length, self.panel())), 1, &[]);
        let panel = e.b.int(IntOp::Add, first, number);
        self.first.products(e, (task.batch, task.span.tiles.0, panel), self.squares, 1, &sums);
        e.b.end_loop(&[]);
        Ok(())
    }

    fn results(&self, e: &mut Emitter<'_>, places: &Places, task: &Task, keys: Keys) -> Result<()> {
        let Some((weights, across)) = &places.weights else { return Ok(()) };
        let (narrow, wide) = (bytes_of(DType::BF16), bytes_of(DType::F32));
        let (depth, padded) = (self.second.depth * SQUARE, places.padded * wide);
        let base = weights.base.unwrap_or_else(|| e.pointer(Memory::Worker));
        let skipped = e.b.times(task.span.rows.0, across * narrow);
        let left = e.b.int(IntOp::Add, base, skipped);
        let skipped = e.b.times(keys.first, narrow);
        let left = e.b.int(IntOp::Add, left, skipped);
        let row = e.b.times(task.span.rows.0, padded);
        let base = places.results.base.unwrap_or_else(|| e.pointer(Memory::Worker));
        let results = e.b.int(IntOp::Add, base, row);
        // Bytes of the values before these keys are those of so many squares.
        let before = e.b.times(keys.first, SQUARE / TERMS);
        let (panel, _) = e.b.begin_loop(To::Number(0), To::Number(self.second.across / ACROSS), 1, &[]);
        let right =
            start_of(e, self.second.right[0], (task.batch, self.second.across * depth), (panel, ACROSS * depth));
        let right = e.b.int(IntOp::Add, right, before);
        let column = e.b.times(panel, ACROSS * SIDE * wide);
        let results = e.b.int(IntOp::Add, results, column);
        let tiles = || (0..self.squares).flat_map(|r| (0..ACROSS).map(move |w| (r, w)));
        for (r, w) in tiles() {
            let at = e.b.address(results, &[], r * SIDE * padded + w * SIDE * wide);
            e.b.tile(TileOp::Load { tile: (r * ACROSS + w) as u8, at, stride: padded as i32 });
        }
        let steps = ceil_div(keys.length, TERMS);
        let (_, inside) = e.b.begin_loop(To::Number(0), To::Number(steps), 1, &[left, right]);
        for r in 0..self.squares {
            let at = e.b.address(inside[0], &[], r * SIDE * across * narrow);
            e.b.tile(TileOp::Load { tile: LEFT + r as u8, at, stride: (across * narrow) as i32 });
        }
        for w in 0..ACROSS {
            let at = e.b.address(inside[1], &[], w * depth);
            let b = RIGHT + w as u8;
            e.b.tile(TileOp::Load { tile: b, at, stride: TILE_ROW_BYTES as i32 });
            for r in 0..self.squares {
                e.b.tile(TileOp::Products { sums: (r * ACROSS + w) as u8, a: LEFT + r as u8, b });
            }
        }
        let next = [e.b.plus(inside[0], TILE_ROW_BYTES), e.b.plus(inside[1], SQUARE)];
        e.b.end_loop(&next);
        e.writes.insert(Memory::Worker);
        for (r, w) in tiles() {
            let at = e.b.address(results, &[], r * SIDE * padded + w * SIDE * wide);
            e.b.tile(TileOp::Store { tile: (r * ACROSS + w) as u8, at, stride: padded as i32 });
        }
        e.b.end_loop(&[]);
        Ok(())
    }
}
