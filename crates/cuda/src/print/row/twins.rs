//! Two rows of a warp that begin alike in lines of memory: rows as many apart as that takes.
//!
//! What is done for the few elements at the ends of a row takes a warp as long as what is done for a whole pack of every thread: two rows share that. What all rows read lies
//! alike for both, so that the threads of a warp need not part to read it.

use super::super::body::Body;
use super::alike::rows_apart;
use super::columns::{LANES, flops};
use super::hold::FEW_FLOPS;
use super::{LANES_OF_TWO, MOST_PASSES, Plan};

/// Packs of rows for which words are drawn: those of twins, and of rows beside which nothing is read.
const MOST_DRAWN: i64 = 5 * LANES_OF_TWO;
const MOST_DRAWN_ALONE: i64 = 6 * LANES_OF_TWO;

/// Turns of a thread that leave it with few registers.
const MANY_TURNS: i64 = 4;

impl Plan<'_, '_> {
    /// Whether two rows may share a warp, which does the ends of both at once: rows that begin anywhere, unless what all rows read lies otherwise for each of them and there are
    /// no twins.
    pub(super) fn may_share_warp(&self) -> bool {
        (self.nest.lines.is_some() && self.weights() == 0) || self.may_have_twins()
    }

    /// Whether rows of narrow floats that meet twice have twins: so short that a warp would have two packs each, or not many more, with weights. Of what is read alone and
    /// meets once, ends take no longer than half as many threads a row; where much is computed, blocks had better walk along rows.
    pub(super) fn may_have_twins(&self) -> bool {
        let most = if self.is_random() { MOST_DRAWN } else { 2 * LANES };
        let is_short = self.packs.as_int().is_some_and(|packs| packs > LANES && packs <= most);
        let is_little = self.is_random() || flops(self.nest, self.along) < FEW_FLOPS;
        let meets_twice = self.passes.len() == MOST_PASSES;
        is_short && is_little && meets_twice && self.is_near && self.weights() > 0 && self.rows_to_twin().is_some()
    }

    /// Whether words are drawn for so short a row of narrow floats that to draw those of its ends takes as long as one turn in three or four.
    pub(super) fn draws_short_rows(&self, packs: i64) -> bool {
        let most = if self.weights() == 0 { MOST_DRAWN_ALONE } else { MOST_DRAWN };
        self.nest.lines.is_some() && self.is_near && self.is_random() && packs <= most
    }

    /// How many threads a multiprocessor should have room for where two rows share a warp, and each thread has so much of one that registers must be told.
    pub(super) fn threads_of_two(&self) -> Option<u32> {
        let has_many = self.turns.is_some_and(|turns| turns > MANY_TURNS) && self.is_near;
        match self.threads == LANES_OF_TWO && self.nest.lines.is_some() && self.part.is_none() {
            true if has_many && self.is_random() => Some(640),
            true if self.apart > 1 => Some(768),
            _ => None,
        }
    }

    /// How many rows apart rows of a warp lie.
    pub(super) fn find_twins(&self) -> i64 {
        let has_two = self.threads == LANES_OF_TWO && self.may_have_twins();
        self.rows_to_twin().filter(|_| has_two).unwrap_or(1)
    }

    /// How many rows apart rows begin alike, where they are numbered along one axis.
    fn rows_to_twin(&self) -> Option<i64> {
        let (Some(lines), &[row]) = (&self.nest.lines, self.row_axes.as_slice()) else { return None };
        rows_apart(lines, self.lanes.count, row)
    }

    /// Rows that some blocks take together: those of one, or so many that each has its twin among them.
    pub(super) fn group(&self) -> i64 {
        if self.apart > 1 { self.rows_of_block.max(2 * self.apart) } else { self.rows_of_block }
    }

    /// The fewest rows of a block: a warp has two, where these are twins.
    pub(super) fn least_of_block(&self) -> i64 {
        if self.apart > 1 { 2 } else { 1 }
    }

    /// Prints the number of a warp among all, and gives that of a thread's row, where warps have twins.
    pub(super) fn print_twin(&self, body: &mut Body<'_>) -> Option<String> {
        let (apart, warps) = (self.apart, self.block() / LANES);
        (apart > 1).then(|| {
            body.line(format!("const Index warp = (Index)blockIdx.x * {warps} + threadIdx.x / {LANES};"));
            let first = format!("warp / {apart} * {} + warp % {apart}", 2 * apart);
            format!("{first} + threadIdx.x / {LANES_OF_TWO} % 2 * {apart}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::norm_of;

    const PLAIN: &str = "f32(a) + f32(b) * (1.0 / sqrt(c)) * (d - e)";

    #[test]
    fn rows_of_a_warp_begin_alike() {
        for (columns, apart) in [(513, 8), (519, 8), (514, 4), (386, 4)] {
            let text = norm_of("n", "bf16", columns, PLAIN);
            let there = |what: &str| assert!(text.contains(what), "{what}: {text}");
            there(&format!("16 threads walk a row of {columns} elements"));
            let twin = format!("warp / {apart} * {} + warp % {apart} + threadIdx.x / 16 % 2 * {apart};", 2 * apart);
            there(&format!("const Index own = {twin}"));
            there("const bool live = own < size_n;");
        }
        // All blocks have rows to their end: none is without a row.
        let text = norm_of("65536", "bf16", 513, PLAIN);
        assert!(text.contains("const Index row = warp / 8") && !text.contains("live"), "{text}");
        assert!(norm_of("65544", "bf16", 513, PLAIN).contains("live"));
    }

    #[test]
    fn few_rows_long_ones_wide_ones_and_those_of_which_much_is_computed_have_no_twins() {
        let much = format!("erf({PLAIN}) * exp(erf({PLAIN}))");
        for text in [
            norm_of("100", "bf16", 513, PLAIN),
            norm_of("n", "bf16", 1025, PLAIN),
            norm_of("n", "f32", 257, PLAIN),
            norm_of("n", "bf16", 513, &much),
            norm_of("n", "bf16", 512, PLAIN),
        ] {
            assert!(!text.contains("const Index warp"), "{text}");
        }
    }
}
