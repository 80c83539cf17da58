//! What a device can hold, and the tiles that it could use.

use super::classify::{Hints, Limits, Roles, extent};
use super::draft::{Draft, LeafOp};
use crate::device::{DeviceSpec, Machine};
use crate::tensor::DType;
use crate::tile::{AxisSet, Tile};

/// The threads of a block of a GPU that folds columns, one for each.
pub(super) const THREADS: f64 = 256.0;

impl Limits {
    /// What a device can hold, for contractions of this type, with the largest tile.
    pub fn of(spec: &DeviceSpec, dtype: DType) -> Limits {
        let largest = spec.tiles(dtype)[0];
        let widest = spec.tiles(dtype).iter().map(|t| t.columns).max().map_or(1.0, f64::from);
        let (tile_row, stream_columns, stream_tile) = match spec.kind {
            // Rows of a CPU's result wait in the memory next to the core; a GPU's in the registers of one block.
            Machine::Cpu => {
                let rows = f64::from(largest.rows);
                (spec.limits.on_chip as f64 / 4.0 / rows, 1024.0, Tile { rows: 64, columns: 256, depth: 64 })
            }
            Machine::Gpu => (widest, 256.0, Tile { rows: 128, columns: 64, depth: 64 }),
        };
        Limits {
            row_registers: spec.limits.row_in_registers as f64,
            on_chip: spec.limits.row_on_chip as f64,
            holds_packs: spec.kind == Machine::Gpu,
            tile_row,
            stream_columns,
            workers: spec.limits.cores as f64,
            columns: if spec.kind == Machine::Gpu { THREADS } else { 1.0 },
            parameters: spec.limits.parameters,
            tile: largest,
            stream_tile,
            stream_parts: 1,
        }
    }
}

/// The limits with each of the tiles that a device has for a schedule of a draft whose factors have this type, the
/// largest first; one that has no tiles is left as it is.
pub fn tilings(
    draft: &Draft,
    roles: &Roles,
    limits: &Limits,
    spec: &DeviceSpec,
    hints: &Hints,
    dtype: DType,
) -> Vec<Limits> {
    match roles {
        Roles::Contract { .. } => {
            spec.tiles(dtype).iter().map(|tile| Limits { tile: *tile, ..limits.clone() }).collect()
        }
        Roles::Attention { first, second, rows, stream, .. } => {
            let own = queried(draft, *first, *second, *rows);
            let streams = Streams {
                batches: extent(draft, rows.without(own), hints),
                rows: extent(draft, own, hints),
                length: extent(draft, *stream, hints),
            };
            streams.tilings(limits)
        }
        _ => vec![limits.clone()],
    }
}

/// The batch axes of a dot: those of both factors that are not summed.
fn batches(draft: &Draft, dot: usize) -> AxisSet {
    match &draft.leaves[dot].op {
        LeafOp::Dot { over, a, b, .. } => draft.axes_of(*a).common(draft.axes_of(*b)).without(*over),
        _ => AxisSet::EMPTY,
    }
}

/// The rows of two joined dots that read the same streamed operands.
pub(super) fn queried(draft: &Draft, first: usize, second: usize, rows: AxisSet) -> AxisSet {
    rows.without(batches(draft, first)).without(batches(draft, second))
}

/// The sizes of two joined contractions.
struct Streams {
    batches: f64,
    rows: f64,
    length: f64,
}

impl Streams {
    /// Fewer rows in a tile give more blocks; fewer streamed columns leave room for wider heads; where there are too few
    /// blocks for all workers to be busy to the end, several share a stream.
    fn tilings(&self, limits: &Limits) -> Vec<Limits> {
        let largest = limits.stream_tile;
        let mut found = Vec::new();
        for rows in [1, 2, 4, 8].map(|part| largest.rows / part) {
            for columns in [largest.columns, largest.columns / 2] {
                let stream_tile = Tile { rows, columns, ..largest };
                found.push(Limits { stream_tile, ..limits.clone() });
                let mut before = 1;
                for waves in [1.0, 2.0, 4.0, 8.0] {
                    let stream_parts = self.parts(stream_tile, waves * limits.workers);
                    if stream_parts > before {
                        found.push(Limits { stream_tile, stream_parts, ..limits.clone() });
                        before = stream_parts;
                    }
                }
            }
        }
        found
    }

    /// Into how many parts a stream can be cut so that there are not more blocks than this.
    fn parts(&self, tile: Tile, most: f64) -> u32 {
        let blocks = self.batches * (self.rows / f64::from(tile.rows)).ceil();
        let tiles = (self.length / f64::from(tile.columns)).ceil();
        (most / blocks.max(1.0)).min(tiles).max(1.0) as u32
    }
}
