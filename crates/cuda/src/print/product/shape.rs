//! How blocks of threads are laid out over the results of a product, and how many share the sums of a tile.

use fuseline::tensor::Dim;
use fuseline::tile::{Kernel, Schedule, Tile};

use super::super::FEW_RESULTS;
use super::super::nest::Nest;

/// Blocks of threads that keep a multiprocessor busy: of those that ask units for matrices, and of those whose threads multiply.
const ENOUGH_BLOCKS: i64 = 2;
const ENOUGH_BLOCKS_OF_THREADS: i64 = 4;

/// With fewer blocks than this, tiles are made smaller.
const FEW_BLOCKS: i64 = 96;

/// With no more rows than this, tiles are made smaller even where sums can be shared: memory is waited for, not arithmetic.
const FEW_ROWS: i64 = 256;

/// Steps of a sum that a part has at the least; where threads multiply and multiprocessors would have nothing to do, so many.
const SHORTEST_PART: i64 = 128;
const SHORTEST_PART_OF_IDLE: i64 = 32;

/// The shape that is chosen for a product.
pub(super) struct Chosen {
    pub shape: Shape,
    /// whether groups of four warps multiply together
    pub by_groups: bool,
    /// whether there are many tiles, for all that is known of the sizes
    pub are_many: bool,
}

impl Chosen {
    /// For the sizes of batch, rows, columns and sum, of so many contractions.
    pub fn of(nest: &Nest<'_>, sizes: &[Dim; 4], dots: i64, by_units: bool, computed: bool) -> Chosen {
        let [_, few_rows, columns, _] = sizes.each_ref().map(Dim::as_int);
        let mut wanted = wanted_tile(nest.kernel);
        if columns.is_some_and(|columns| columns <= 64) {
            wanted.columns = wanted.columns.min(64);
        }
        let groups = by_units && nest.options.groups;
        let for_groups = groups.then(|| Shape::for_groups(wanted, few_rows, dots, computed)).flatten();
        let shape = match for_groups {
            Some(shape) => shape,
            None if by_units => Shape::for_units(wanted, few_rows, dots, computed),
            None => Shape::for_threads(wanted, dots),
        };
        let few = Few::of(nest, sizes, by_units);
        let small = || Shape::for_units(Tile { rows: 64, columns: 64, depth: 64 }, few_rows, dots, computed);
        let shape = few.map_or(shape, |few| {
            let is_idle = by_units && shape.rows > 32 && few.blocks(&shape) < FEW_BLOCKS;
            let shape = if is_idle && (few.rows <= FEW_ROWS || few.blocks(&shape) * few.parts(&shape) < FEW_BLOCKS) {
                small()
            } else {
                shape
            };
            Shape { parts: few.parts(&shape), ..shape }
        });
        let by_groups = for_groups.is_some_and(|groups| groups.warps == shape.warps);
        let are_many = few.is_none_or(|few| few.results() > FEW_RESULTS && shape.parts == 1);
        Chosen { shape, by_groups, are_many }
    }
}

/// How a block of threads is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub rows: i64,
    pub columns: i64,
    pub depth: i64,
    /// how many warps share the rows, and how many the columns
    pub warps: (i64, i64),
    pub stages: i64,
    /// blocks that a multiprocessor holds
    pub resident: u32,
    /// neighbouring blocks that share the sums of a tile
    pub parts: i64,
}

impl Shape {
    /// For units for matrices.
    fn for_units(wanted: Tile, rows: Option<i64>, dots: i64, computed: bool) -> Shape {
        let few = rows.unwrap_or(i64::MAX);
        let least = if few <= 16 {
            16
        } else if few <= 32 {
            32
        } else {
            64
        };
        let rows = i64::from(wanted.rows).clamp(64, 128).min(if few <= 32 { least } else { 128 });
        let mut columns = if i64::from(wanted.columns) >= 256 { 256 } else { i64::from(wanted.columns).clamp(64, 128) };
        // A thread holds no more than 128 sums, and fewer where it computes factors too.
        columns = if rows < 64 { 64 } else { columns };
        while columns > 64 && rows * columns * dots > if computed { 128 * 64 } else { 128 * 256 } {
            columns /= 2;
        }
        let rows = if rows * columns * dots > if computed { 128 * 64 } else { 128 * 256 } { 64 } else { rows };
        let warps = match (rows, columns) {
            (..=32, _) => (1, 4),
            (128, 256) => (2, 4),
            _ if rows * columns * dots > 128 * 128 => (2, 4),
            _ => (2, 2),
        };
        let depth = 64;
        let stage = (rows + columns * dots) * depth * 2;
        let resident = if warps.0 * warps.1 > 4 {
            1
        } else if rows < 64 {
            4
        } else {
            2
        };
        let stages = (if resident == 1 { 200 } else { 110 } * 1024 / stage).clamp(2, 4);
        let stages = if rows < 64 { 4 } else { stages };
        Shape { rows, columns, depth, warps, stages, resident, parts: 1 }
    }

    /// For groups of four warps, each of which has 64 rows; none where tiles are smaller.
    fn for_groups(wanted: Tile, rows: Option<i64>, dots: i64, computed: bool) -> Option<Shape> {
        if wanted.rows < 64 || wanted.columns < 128 || rows.is_some_and(|rows| rows <= 32) || dots > 2 {
            return None;
        }
        if wanted.rows < 128 || rows.is_some_and(|rows| rows <= 64) {
            let (stages, resident) = if dots > 1 { (3, 2) } else { (4, 2) };
            return Some(Shape { rows: 64, columns: 128, depth: 64, warps: (4, 1), stages, resident, parts: 1 });
        }
        let columns = if wanted.columns >= 256 && dots == 1 && !computed { 256 } else { 128 };
        let resident = if columns == 256 || dots > 1 || computed { 1 } else { 2 };
        let stages = if resident == 1 { 4 } else { 3 };
        Some(Shape { rows: 128, columns, depth: 64, warps: (8, 1), stages, resident, parts: 1 })
    }

    /// For threads that multiply by themselves: 16 x 16 of them, each with blocks of 4 x 4 results.
    fn for_threads(wanted: Tile, dots: i64) -> Shape {
        let large = wanted.rows >= 128 && wanted.columns >= 128 && dots == 1;
        let side = if large { 128 } else { 64 };
        let resident = match dots {
            1 if !large => 3,
            2 => 2,
            _ => 1,
        };
        Shape { rows: side, columns: side, depth: 16, warps: (8, 1), stages: 3, resident, parts: 1 }
    }

    pub fn threads(&self) -> i64 {
        self.warps.0 * self.warps.1 * 32
    }
}

/// A product whose sizes are known, about.
#[derive(Clone, Copy, Debug)]
struct Few {
    batch: i64,
    rows: i64,
    columns: i64,
    steps: i64,
    by_units: bool,
    /// multiprocessors of the device
    processors: i64,
    /// blocks that keep each of them busy
    enough: i64,
}

impl Few {
    /// Where all sizes are known, about, and the device lets blocks share sums.
    fn of(nest: &Nest<'_>, sizes: &[Dim; 4], by_units: bool) -> Option<Few> {
        let about = sizes.each_ref().map(|size| nest.options.about.apply(size).as_int());
        let [Some(batch), Some(rows), Some(columns), Some(steps)] = about else { return None };
        let enough = if by_units { ENOUGH_BLOCKS } else { ENOUGH_BLOCKS_OF_THREADS };
        let processors = nest.options.processors;
        nest.options.groups.then_some(Few { batch, rows, columns, steps, by_units, processors, enough })
    }

    fn results(&self) -> i64 {
        self.batch.saturating_mul(self.rows).saturating_mul(self.columns)
    }

    /// How many tiles of a shape there are.
    fn blocks(&self, shape: &Shape) -> i64 {
        let tiles = |size: i64, tile: i64| (size + tile - 1) / tile;
        let all = tiles(self.rows, shape.rows).saturating_mul(tiles(self.columns, shape.columns));
        all.saturating_mul(self.batch).max(1)
    }

    /// How many blocks best share the sums of a tile: a power of two, no more than all devices let share.
    fn parts(&self, shape: &Shape) -> i64 {
        if shape.rows < 64 {
            return 1;
        }
        let blocks = self.blocks(shape);
        let mut most = (self.enough * self.processors / blocks).min(self.steps / SHORTEST_PART);
        if !self.by_units {
            most = most.max((self.processors / blocks).min(self.steps / SHORTEST_PART_OF_IDLE));
        }
        [8, 4, 2].into_iter().find(|parts| *parts <= most).unwrap_or(1)
    }
}

/// The tile that the schedule asks for.
fn wanted_tile(kernel: &Kernel) -> Tile {
    match &kernel.schedule {
        Schedule::Contract { tile, .. } => *tile,
        _ => Tile { rows: 128, columns: 128, depth: 64 },
    }
}
