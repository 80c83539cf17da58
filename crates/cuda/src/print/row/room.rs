//! Registers of the threads that own rows: for how many of them a multiprocessor has room.

use fuseline::tensor::DType;
use fuseline::tile::{AxisSet, Op};

use super::super::nest::Access;
use super::hold::{FEW_FLOPS, HELD_BY_THREE, HELD_BY_TWO, MOST_OF_TWO, WIDE_BY_TWO};
use super::{Plan, columns};

impl Plan<'_, '_> {
    /// How many threads a multiprocessor should have room for, where the compiler shall not choose by itself: what is held takes registers.
    pub(super) fn threads_at_once(&self) -> Option<u32> {
        if let Some(threads) = self.threads_of_two() {
            return Some(threads);
        }
        match self.held_bytes {
            64..=HELD_BY_THREE if self.is_large_and_near() && self.nest.lines.is_some() && self.is_all_held() => {
                Some(1536)
            }
            // Words are drawn by long chains of instructions: a third row that does so hides what others wait for, even if the compiler has few registers then.
            64..=HELD_BY_THREE if self.is_large_and_near() && self.draws_beside_one() => Some(1536),
            64..=HELD_BY_TWO if self.has_room_for_two(self.held_bytes) => Some(1024),
            64..=WIDE_BY_TWO if self.is_large_and_wide() => Some(1024),
            // Where nothing else is read, a few more fit.
            128 if self.is_large_and_wide() && self.weights() == 0 && !self.is_random() => Some(1024),
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
    pub(super) fn has_room_for_two(&self, held_bytes: i64) -> bool {
        let fits = match self.elements_of_thread() {
            ..=40 => held_bytes <= 160,
            41..=MOST_OF_TWO => held_bytes < 128 || self.takes_long(),
            _ => false,
        };
        self.is_large_and_near() && fits
    }

    /// Whether a row of wide numbers has a large block. Left to itself, the compiler may take so many registers that it has a multiprocessor alone.
    pub(super) fn is_large_and_wide(&self) -> bool {
        !self.is_near && self.block() > 256 && self.cluster == 1
    }

    /// Whether words are drawn for rows of one tensor without weights.
    fn draws_beside_one(&self) -> bool {
        self.rows_of_one() && self.weights() == 0 && self.is_random()
    }

    /// Whether a row needs few registers but those that hold it: it is of one tensor, and neither weights nor random words come in behind.
    pub(super) fn is_all_held(&self) -> bool {
        self.rows_of_one() && self.weights() == 0 && !self.is_random()
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

#[cfg(test)]
mod tests {
    use fuseline::tensor::Env;
    use fuseline::tile::parse;

    use super::super::super::print;
    use super::super::super::tests::{made_for, norm_of};

    /// What is printed for a norm of so many columns, of which `value` is stored: of the row `d`, and weights `a` and `b`.
    fn norm(dtype: &str, columns: i64, value: &str) -> String {
        norm_of("n", dtype, columns, value)
    }

    fn softmax(dtype: &str, columns: i64) -> String {
        let kernel = format!(
            "kernel {{ axes i0: n, i1: {columns} in x: {dtype}[n, {columns}] out y: {dtype}[n, {columns}] \
             schedule row along=[i1] placement=registers %0 = load x[i0, i1] %1 = map(%0) f32(a) \
             %2 = reduce.max %1 over [i1] %3 = map(%1, %2) exp(a - b) %4 = reduce.sum %3 over [i1] \
             %5 = map(%3, %4) {dtype}(a / b) store y[i0, i1] = %5 }}"
        );
        print(&parse(&kernel).unwrap(), &made_for(&Env::new())).unwrap().functions
    }

    fn has(text: &str, what: &str) {
        assert!(text.contains(what), "{what}: {text}");
    }

    fn has_not(text: &str, what: &str) {
        assert!(!text.contains(what), "{what}: {text}");
    }

    #[test]
    fn two_large_blocks_share_a_multiprocessor() {
        let plain = "f32(a) + f32(b) * (1.0 / sqrt(c)) * (d - e)";
        let much = format!("erf({plain}) * exp(erf({plain}))");
        for dtype in ["bf16", "f16"] {
            let text = norm(dtype, 20_001, plain);
            has(&text, "__launch_bounds__(512, 2)");
            has(&text, "held in registers, in packs");
            // Registers of two do not hold such a row, shared memory does.
            let text = norm(dtype, 26_001, plain);
            has(&text, "__launch_bounds__(512, 3)");
            has(&text, "extern __shared__");
            has(&text, "const bool inside");
            // Of more rows, blocks would walk along several.
            let text = norm_of("300", dtype, 32_769, &much);
            has(&text, "extern __shared__");
            has_not(&text, "const bool inside");
        }
        has(&norm("f32", 12_289, plain), "__launch_bounds__(512, 2)");
        has(&norm("f32", 12_289, &much), "__launch_bounds__(512, 2)");
    }

    #[test]
    fn wide_rows_that_registers_hold_alone_come_into_shared_memory() {
        let plain = "f32(a) + f32(b) * (1.0 / sqrt(c)) * (d - e)";
        let much = format!("erf({plain}) * exp(erf({plain}))");
        for (columns, value) in [(20_000, plain), (20_001, plain), (24_576, plain), (20_000, &much)] {
            let text = norm("f32", columns, value);
            has(&text, "__launch_bounds__(512, 2)");
            has(&text, "extern __shared__");
        }
        has(&norm("f32", 20_001, &much), "held in registers, in packs");
        // Two of these do not fit, so that one asks for all of its turns at once.
        let text = norm("f32", 30_000, plain);
        has(&text, "__launch_bounds__(512, 1)");
        has(&text, "if (k < 14 || k * 512 + t < 7500)");
    }

    #[test]
    fn blocks_share_wide_rows_of_two_tensors_that_registers_do_not_hold() {
        let text = |columns: i64| {
            let kernel = format!(
                "kernel {{ axes i0: n, i1: {columns} in x: f32[n, {columns}], d: f32[n, {columns}] out y: f32[n, {columns}] \
                 schedule row along=[i1] placement=registers %0 = load x[i0, i1] %1 = load d[i0, i1] %2 = map(%0, %1) a * b \
                 %3 = reduce.sum %2 over [i1] %4 = map(%0, %1, %3) a * (b - c) store y[i0, i1] = %4 }}"
            );
            print(&parse(&kernel).unwrap(), &made_for(&Env::new())).unwrap().functions
        };
        has(&text(24_576), "walk in 2 blocks a row of 24576 elements");
        has(&text(24_577), "walk in 2 blocks a row of 24577 elements, in packs");
        has(&text(20_000), "held in registers");
        has(&text(12_289), "extern __shared__");
    }

    #[test]
    fn rows_without_weights_share_a_multiprocessor_with_two_others() {
        has(&softmax("bf16", 12_289), "__launch_bounds__(512, 3)");
        has(&softmax("f16", 12_289), "__launch_bounds__(512, 3)");
        has(&softmax("bf16", 20_001), "__launch_bounds__(512, 2)");
        // The compiler leaves room for a second block if it is not told that all turns but one are whole.
        has_not(&softmax("f32", 30_000), "if (k < ");
    }
}
