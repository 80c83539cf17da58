//! How the work of a schedule is divided among the cores of a device, and what a block of it holds.

use super::classify::{Roles, held};
use super::draft::LeafOp;
use super::tiling::THREADS;
use super::work::Meter;
use crate::analysis::Stream;
use crate::device::Machine;
use crate::tile::{AxisSet, Placement};

/// The part of what a product reads that its multiply-adds do not hide on a processor: tiles ask for a line ahead of time, not for all.
const EXPOSED: f64 = 0.75;

impl Meter<'_> {
    /// Says how the work is divided. After everything else: it adds to what is moved where parts are combined.
    pub(super) fn divide(&mut self, roles: &Roles) {
        let draft = self.draft;
        let gpu = self.is_gpu();
        let loads = draft.leaves.iter().filter(|l| matches!(l.op, LeafOp::Load { .. })).count() as f64;
        let values = loads + draft.sinks.len() as f64;
        let terms = draft.term_axes.len() as f64;
        // Live values: what is loaded and stored, and a part of what lies between.
        self.work.registers = if gpu { 14.0 + 2.0 * values + terms.sqrt() } else { 2.0 + values + terms.sqrt() };
        match roles {
            Roles::Map => {
                let points = self.extent(self.all()).max(1.0);
                let width = if gpu { 4.0 } else { 4096.0 };
                let threads: f64 = if gpu { 256.0 } else { 1.0 };
                self.work.divide((points / (threads * width)).ceil(), threads);
            }
            Roles::Row { along, placement } => self.divide_rows(*along, *placement),
            Roles::Column { across, along, parts } => {
                let independent = self.extent(self.all().without(*across).without(*along)).max(1.0);
                // Where rows are folded too, a block owns whole ones; otherwise some columns.
                let length = self.extent(*along).max(1.0);
                let (threads, width): (f64, f64) = match (gpu, along.is_empty()) {
                    (true, true) => (THREADS, THREADS),
                    (true, false) => ((length / 4.0).clamp(32.0, 1024.0), 1.0),
                    (false, _) => (1.0, 64.0),
                };
                let blocks = (independent / width).ceil() * f64::from(*parts);
                self.work.divide(blocks, threads);
                self.work.launches = if *parts > 1 { 2.0 } else { 1.0 };
                self.work.barriers = self.folds();
            }
            Roles::Contract { .. } => self.divide_contraction(roles),
            Roles::Attention { .. } => self.divide_attention(roles),
        }
    }

    fn is_gpu(&self) -> bool {
        self.spec.kind == Machine::Gpu
    }

    fn all(&self) -> AxisSet {
        (0..self.draft.axes.len()).collect()
    }

    fn folds(&self) -> f64 {
        self.draft.folds().count() as f64
    }

    fn divide_rows(&mut self, along: AxisSet, placement: Placement) {
        let (gpu, folds) = (self.is_gpu(), self.folds());
        let length = self.extent(along).max(1.0);
        let rows = self.extent(self.all().without(along)).max(1.0);
        let parts = if let Placement::Split(parts) = placement { f64::from(parts) } else { 1.0 };
        let threads = if gpu { (length / parts / 4.0).clamp(32.0, 1024.0) } else { 1.0 };
        let together = if gpu { 128.0 / threads } else { 4096.0 / length };
        // No more rows than there are.
        let together = together.min(rows).max(1.0);
        self.work.divide((rows * parts / together).ceil(), threads * together);
        // Where neighbours in memory belong to different rows, they are folded side by side.
        let crosses = self.read_axis().or(self.inner_axis()).is_none_or(|axis| along.contains(axis));
        let meetings = if gpu { 2.0 * folds } else { folds * together };
        self.work.barriers = if crosses { meetings } else { 0.0 };
        self.work.launches = if parts > 1.0 { 2.0 } else { 1.0 };
        let row: f64 = held(self.draft, along, gpu).map(|dtype| length * dtype.bits() as f64 / 8.0).sum();
        match placement {
            Placement::Registers if gpu => self.work.registers += row / 4.0 / threads,
            Placement::OnChip => self.work.on_chip = row,
            _ => {}
        }
    }

    fn divide_contraction(&mut self, roles: &Roles) {
        let Roles::Contract { dots, shared, rows, columns, whole_rows, .. } = roles else { return };
        let gpu = self.is_gpu();
        if self.work.is_detailed {
            self.work.exposed = EXPOSED;
        }
        if self.work.is_detailed && columns.is_empty() {
            self.work.divide(self.window_blocks(*rows), 1.0);
            return;
        }
        let tile = self.limits.tile;
        let own = rows.without(self.others(dots, *shared));
        let wide = self.wide(dots, *rows);
        let tile_columns = |n: f64| if *whole_rows { n } else { f64::from(tile.columns) };
        // No tile has rows of two batches.
        let down = self.extent(rows.without(own)) * (self.extent(own) / f64::from(tile.rows)).ceil();
        let tiles: f64 = wide.iter().map(|n| down * (n / tile_columns(*n)).ceil()).sum();
        let threads: f64 = if gpu { 256.0 } else { 1.0 };
        self.work.divide(tiles, threads);
        let widest = wide.iter().map(|n| tile_columns(*n)).fold(0.0, f64::max);
        let held = f64::from(tile.rows) * widest;
        if gpu {
            self.work.registers += held / threads;
            // Whole rows need all columns of an operand at each step of the sum.
            let stage = (f64::from(tile.rows) + widest) * f64::from(tile.depth) * self.factor_bytes(dots[0]);
            self.work.on_chip = 3.0 * stage;
        } else if *whole_rows {
            self.work.on_chip = held * 4.0;
        }
        self.work.barriers = if *whole_rows { 2.0 * self.folds() } else { 0.0 };
        let operands = dots.iter().flat_map(|dot| self.draft.leaves[*dot].op.operands());
        if gpu && operands.into_iter().any(|operand| self.reads_fold(operand)) {
            // A GPU folds rows before it multiplies.
            self.work.launches += 1.0;
        }
    }

    fn divide_attention(&mut self, roles: &Roles) {
        let Roles::Attention { first, rows, columns, inner, .. } = roles else { return };
        let gpu = self.is_gpu();
        let (tile, parts) = (self.limits.stream_tile, f64::from(self.limits.stream_parts));
        let own = self.queried(roles);
        let (down, streamed) = (f64::from(tile.rows), f64::from(tile.columns));
        let threads: f64 = if gpu { 256.0 } else { 1.0 };
        let tiles = self.extent(rows.without(own)) * (self.extent(own) / down).ceil();
        self.work.divide(tiles * parts, threads);
        let (width, inner) = (self.extent(*columns), self.extent(*inner));
        if gpu {
            self.work.registers += down * (width + streamed) / threads;
            // The rows of the first factor stay; of both streamed operands one tile is there, in turns.
            self.work.on_chip = (down * inner + streamed * (inner + width)) * self.factor_bytes(*first);
        }
        self.work.barriers = 2.0;
        if parts > 1.0 {
            // Each part leaves its sums and the running folds of its rows; a second phase combines them.
            let bytes = 4.0 * parts * self.extent(*rows) * (width + self.folds());
            self.work.launches = 2.0;
            self.work.write(Stream::of(bytes).warm(bytes)).read(Stream::of(bytes).warm(bytes));
        }
    }
}
