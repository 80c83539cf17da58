//! Blocks that walk along rows in pairs: what both have kept of columns is folded before it is stored, by way of each other's shared memory, so that half
//! as much is written, and read again by whoever folds what all parts have found.

use fuseline::tile::StepId;

use super::super::body::{Accumulator, Body};
use super::Plan;
use super::columns::MOST_SHARED;

/// Numbers of a pack of floats.
const PACK: i64 = 4;

impl Plan<'_, '_> {
    /// Decides whether blocks put columns together: floats that a thread keeps in packs.
    pub(super) fn pair_blocks(&mut self) {
        let is_float = |fold: StepId| Accumulator::of(self.nest, fold).ty == "float";
        let is_even = self.nest.options.processors * self.blocks_at_once % 2 == 0;
        let bytes = self.kept() * 4 * self.block();
        let fits = self.shared_bytes.max(bytes) * self.blocks_at_once <= MOST_SHARED;
        let are_packs = self.lanes.count % PACK == 0 && self.rows_of_block == 1 && self.block() % 64 == 0;
        // Where rows begin anywhere, both blocks of a pair have rows that begin alike. Where little is computed, that was slower.
        let are_packs = are_packs && (!self.is_alike() || self.brings());
        if self.column_folds() > 0
            && self.nest.options.groups
            && are_packs
            && is_even
            && fits
            && self.columns().all(is_float)
        {
            self.pairs = 2;
            self.shared_bytes = self.shared_bytes.max(bytes);
        }
    }

    /// Puts together what two blocks have kept of columns: each has that of half of its threads then, so that both store as much.
    pub(super) fn join_columns(&self, body: &mut Body<'_>) {
        let (block, packs) = (self.block(), self.lanes.count * self.turns.unwrap_or(1) / PACK);
        let place = |number: usize| match number as i64 * packs * block {
            0 => "left".to_owned(),
            behind => format!("left + {behind}"),
        };
        // Nobody reads rows any more.
        body.line("__syncthreads();");
        body.line(format!("Pack<float, {PACK}>* const left = (Pack<float, {PACK}>*)memory + threadIdx.x;"));
        body.line(format!("const bool keeps = threadIdx.x / {} == blockIdx.x % 2;", block / 2));
        for (number, fold) in self.columns().enumerate() {
            body.line(format!("if (!keeps) leave_columns<{block}>({}, column{});", place(number), fold.0));
        }
        self.leave_ends(body);
        body.line("arrive_in_cluster();");
        body.line("wait_for_cluster();");
        for (number, fold) in self.columns().enumerate() {
            let (at, id, functor) = (place(number), fold.0, Accumulator::of(self.nest, fold).functor);
            body.line(format!("if (keeps) fold_columns<{block}>(column{id}, {at}, (blockIdx.x + 1) % 2, {functor});"));
        }
        self.fold_ends(body);
        body.line("arrive_in_cluster();");
    }

    /// Folds of columns, pass by pass.
    pub(super) fn columns(&self) -> impl Iterator<Item = StepId> + '_ {
        self.passes.iter().flat_map(|pass| pass.columns.iter().copied())
    }
}
