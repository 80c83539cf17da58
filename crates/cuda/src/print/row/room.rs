//! Registers of the threads that own rows: for how many of them a multiprocessor has room.

use fuseline::tensor::DType;
use fuseline::tile::{AxisSet, Op};

use super::super::nest::Access;
use super::hold::{FEW_FLOPS, HELD_BY_TWO, MOST_OF_TWO};
use super::{Plan, columns};

impl Plan<'_, '_> {
    /// How many threads a multiprocessor should have room for, where the compiler shall not choose by itself: what is held takes registers.
    pub(super) fn threads_at_once(&self) -> Option<u32> {
        match self.held_bytes {
            64..=HELD_BY_TWO if self.has_room_for_two() => Some(1024),
            129.. => Some(512),
            // To widen f16 takes more registers than to widen bf16.
            ..128 if self.is_near && self.nest.lines.is_some() && self.drawn.is_empty() => {
                Some(match self.reads_halves() {
                    true => 896,
                    false if self.is_much_code() => 1152,
                    // No turn waits for another one, so that all packs are asked for at once.
                    false if self.fills_all() && self.block() <= super::THREADS => 1024,
                    false => 1280,
                })
            }
            // What is computed for narrow floats takes few registers; larger blocks use them to read ahead. Weights come beside what is held: with
            // two of them and a row of two tensors, 64 registers are not enough, and what is spilled takes as long as the row.
            held if self.is_near => {
                let threads = match (self.block() <= 256, self.weights()) {
                    (true, 0..=1) => 1024,
                    // Words are drawn by long chains of instructions, so that more threads are worth more than registers.
                    (true, _) if self.is_random() => 768,
                    (true, _) if self.rows_of_one() => 1024,
                    (true, _) if self.rows_of_block > 1 => 512,
                    _ => 640,
                };
                (held >= 128 || !self.drawn.is_empty()).then_some(threads)
            }
            _ if !self.drawn.is_empty() => Some(640),
            128 if self.is_plain() && !(self.is_random() && self.rows_of_block > 1) => Some(896),
            128 => Some(640),
            // Left to itself, it takes fewer than there are, and asks for less at a time.
            64.. if self.is_plain() => Some(1024),
            _ => None,
        }
    }

    /// Whether two large blocks of rows of narrow floats have registers enough, 64 a thread: for what they hold, and for each number once more where the
    /// compiler keeps it widened. Where numbers take long to compute, a few that are spilled take less than what one block waits.
    fn has_room_for_two(&self) -> bool {
        let fits = match self.elements_of_thread() {
            ..=40 => self.held_bytes <= 160,
            41..=MOST_OF_TWO => self.held_bytes < 128 || self.takes_long(),
            _ => false,
        };
        // To widen f16 that lies across lines takes more.
        let is_hard = self.nest.lines.is_some() && self.reads_halves();
        self.is_large_and_near() && fits && !is_hard
    }

    /// Elements of a row that a thread has.
    pub(super) fn elements_of_thread(&self) -> i64 {
        self.turns.unwrap_or(1) * self.lanes.count
    }

    /// Whether rows are of one tensor.
    pub(super) fn rows_of_one(&self) -> bool {
        let rows: AxisSet = self.row_axes.iter().copied().collect();
        let is_own = |axes: &AxisSet| !axes.common(self.along).is_empty() && !axes.common(rows).is_empty();
        let steps = self.nest.kernel.steps.iter().zip(&self.nest.axes);
        steps.filter(|(step, axes)| matches!(step.op, Op::Load { .. }) && is_own(axes)).count() == 1
    }

    /// How many tensors are read along the rows that are the same for all of them.
    pub(super) fn weights(&self) -> usize {
        let rows: AxisSet = self.row_axes.iter().copied().collect();
        let is_shared = |axes: &AxisSet| !axes.common(self.along).is_empty() && axes.common(rows).is_empty();
        let steps = self.nest.kernel.steps.iter().zip(&self.nest.axes);
        steps.filter(|(step, axes)| matches!(step.op, Op::Load { .. }) && is_shared(axes)).count()
    }

    pub(super) fn reads_halves(&self) -> bool {
        self.nest.loads().any(|access| access.tensor.dtype == DType::F16)
    }

    pub(super) fn is_random(&self) -> bool {
        self.nest.kernel.steps.iter().any(|step| matches!(step.op, Op::Random { .. }))
    }

    /// Whether packs of one tensor are rows, read where they lie, and little is computed of them: that takes few registers beside those that hold
    /// a row.
    pub(super) fn is_plain(&self) -> bool {
        let rows: AxisSet = self.row_axes.iter().copied().collect();
        let is_own = |k: &usize| !self.nest.axes[*k].common(rows).is_empty();
        let is_load = |k: &usize| matches!(self.nest.kernel.steps[*k].op, Op::Load { .. });
        let lies = |access: &Access| access.is_plain();
        self.lanes.count > 1
            && (0..self.nest.axes.len()).filter(|k| is_load(k) && is_own(k)).count() == 1
            && self.nest.loads().all(lies)
            && columns::flops(self.nest, self.along) < FEW_FLOPS
    }
}
