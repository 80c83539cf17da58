//! Long rows of narrow floats that read weights: a block walks along many of them. What all rows read lies in its shared memory, put together once; the row that it works
//! on is lifted into registers, and the next one comes into the place that it has left.
//!
//! Weights of such rows are twice what a row is, and come from the cache that all multiprocessors share, again for every row; where rows begin anywhere in a line, in
//! pieces that are put together again for every row.

use fuseline::error::Result;
use fuseline::tensor::Dim;
use fuseline::tile::AxisSet;

use super::super::body::Body;
use super::super::element;
use super::super::nest::Nest;
use super::alike::MUCH_OF_SHORT;
use super::columns::flops;
use super::hold::{FEW_FLOPS, Place, Worth};
use super::lanes::choose_lanes;
use super::{Plan, whole_warps};

/// Packs of rows of which a multiprocessor has more than two: their weights stay in registers, or are found near.
const SHORT: i64 = 1024;

/// Threads of a multiprocessor, which have 64 registers each.
const THREADS: i64 = 1024;
const REGISTERS: i64 = 64;

/// Threads that one block has at the least, and where two blocks that hold a row each would be worse off: where much is computed, or threads meet three times along a
/// row of so many turns, the most that there are.
const MANY_THREADS: i64 = 896;
const LEAST_THREADS: i64 = 768;
const MEETINGS: usize = 3;
const MANY_TURNS: i64 = 4;

/// Registers of a thread besides those that hold a row; and those for what is computed of it and held, in which it leaves its own.
const WORKING: i64 = 40;
const HELD: i64 = 32;

/// Bytes of shared memory of a multiprocessor, those of a block for other things.
const SHARED: i64 = 216 << 10;
const SHARED_BESIDES: i64 = 2 << 10;

/// How a row is divided: blocks of a multiprocessor, and the turns and threads of each.
#[derive(Clone, Copy)]
struct Way {
    blocks: i64,
    turns: i64,
    threads: i64,
}

impl Way {
    fn new(packs: i64, blocks: i64) -> Way {
        let most = THREADS / blocks;
        let turns = (packs + most - 1) / most;
        Way { blocks, turns, threads: whole_warps((packs + turns - 1) / turns) }
    }
}

/// Whether rows along these axes are so long that they may be lifted.
pub(super) fn are_long(nest: &Nest<'_>, along: AxisSet) -> bool {
    let packs = nest.count(along).floordiv(&Dim::int(choose_lanes(nest, along).count));
    nest.options.groups && packs.as_int().is_some_and(|packs| packs > SHORT)
}

impl Plan<'_, '_> {
    /// Divides a row that blocks walk along so that it is lifted, if that is how it is best walked along: two blocks a multiprocessor, or one.
    pub(super) fn lift(&mut self) -> bool {
        let (Some(packs), loads, weights) = (self.packs.as_int(), self.loads_to_fetch(), self.loads_to_keep()) else {
            return false;
        };
        let is_long = are_long(self.nest, self.along);
        let is_much = flops(self.nest, self.along) >= MUCH_OF_SHORT;
        // Rows of two tensors are written as often as they are read, and are bound by that, unless words are drawn.
        let is_of_one = self.rows_of_one() || self.is_random();
        if !self.is_near || !is_long || !is_much || !is_of_one || loads.is_empty() || weights.is_empty() {
            return false;
        }
        let bytes = |id| element::bytes(self.nest.load(id).tensor.dtype);
        let of_rows: i64 = loads.iter().map(|id| bytes(*id)).sum();
        let of_weights: i64 = weights.iter().map(|id| bytes(*id)).sum();
        let shared = |way: Way| (of_rows + of_weights) * way.turns * self.lanes.count * way.threads;
        let fits = |way: &Way| {
            let registers = WORKING + of_rows * way.turns * self.lanes.count / 4;
            let is_near = (shared(*way) + SHARED_BESIDES) * way.blocks <= SHARED;
            is_near && registers <= REGISTERS && way.turns <= MANY_TURNS
        };
        let ways = [2, 1].map(|blocks| Way::new(packs, blocks));
        let Some(way) = ways.into_iter().find(|way| fits(way) && self.is_worth_lifting(packs, *way)) else {
            return false;
        };
        (self.lifts, self.slots, self.blocks_at_once, self.shared_bytes) = (true, 1, way.blocks, shared(way));
        (self.turns, self.threads, self.rows_of_block) = (Some(way.turns), way.threads, 1);
        (self.fetched, self.kept_loads) = (loads, weights);
        self.place = Place::Registers;
        let costly = self.takes(Worth::Costly);
        if self.bytes_at_once(&costly) <= 4 * HELD {
            self.take(&costly);
        }
        true
    }

    /// Whether a row that fits is better lifted than held by blocks that have one row each.
    fn is_worth_lifting(&self, packs: i64, way: Way) -> bool {
        if way.blocks == 1 {
            let meets_often = self.passes.iter().filter(|pass| !pass.folds.is_empty()).count() >= MEETINGS;
            let is_much = flops(self.nest, self.along) >= FEW_FLOPS;
            // Of little else, blocks that hold a row each read weights as soon, if rows begin where packs do.
            let is_slow = is_much || meets_often || self.is_random() || self.nest.lines.is_some();
            let are_worse = is_much || (meets_often && way.turns >= MANY_TURNS);
            return is_slow && way.threads >= if are_worse { LEAST_THREADS } else { MANY_THREADS };
        }
        // Words that are drawn take long, and warps that wait for nobody draw them sooner, as long as most of them have something to do.
        let threads = super::THREADS_OF_LONG;
        !self.is_random() || 4 * packs <= 3 * ((packs + threads - 1) / threads * threads)
    }

    /// Where weights lie, behind the row that comes.
    pub(super) fn declare_weights(&self, body: &mut Body<'_>) -> Result<()> {
        self.declare_near(body, "g", &self.kept_loads, 1, self.fetched_bytes())
    }

    /// Waits for a row, and moves it into registers.
    pub(super) fn print_lift(&self, body: &mut Body<'_>) -> Result<()> {
        let (turns, count) = (self.turns.unwrap_or(1), self.lanes.count);
        body.line("wait_for_copies<0>();");
        for id in &self.fetched {
            let ty = element::stored(self.nest.load(*id).tensor.dtype)?;
            body.line(format!("Pack<{ty}, {count}> r{}[{turns}];", id.0));
        }
        body.open(self.along.without(AxisSet::of(self.lanes.axis)));
        for id in &self.fetched {
            body.line(format!("r{0}[k] = f{0}[{1}];", id.0, self.place_of_fetched("0")));
        }
        body.close(&format!("#pragma unroll\nfor (int k = 0; k < {turns}; ++k)"));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use fuseline::tensor::Env;
    use fuseline::tile::parse;

    use super::super::super::print;
    use super::super::super::tests::made_for;

    /// What is printed for a norm of so many rows and columns.
    fn norm(dtype: &str, rows: &str, columns: i64) -> String {
        let kernel = format!(
            "kernel {{ axes i0: {rows}, i1: {columns} in b: {dtype}[{columns}], w: {dtype}[{columns}], x: {dtype}[{rows}, {columns}] \
             out y: {dtype}[{rows}, {columns}] schedule row along=[i1] placement=registers \
             %0 = load b[i1] %1 = load w[i1] %2 = load x[i0, i1] %3 = map(%2) f32(a) %4 = reduce.sum %3 over [i1] \
             %5 = map(%3, %4) {{ t0 = a - b; t0 * t0 }} %6 = reduce.sum %5 over [i1] \
             %7 = map(%0, %1, %6, %3, %4) {dtype}(f32(a) + f32(b) * (1.0 / sqrt(c / f32(size({columns})) + 1e-5)) * (d - e)) \
             store y[i0, i1] = %7 }}"
        );
        print(&parse(&kernel).unwrap(), &made_for(&Env::new())).unwrap().functions
    }

    fn has(text: &str, what: &str) {
        assert!(text.contains(what), "{what}: {text}");
    }

    #[test]
    fn long_rows_leave_their_place_to_the_next_and_find_weights_near() {
        for (columns, bounds, turn) in [
            (8_704, "(384, 2)", 384),
            (12_288, "(512, 2)", 512),
            (16_384, "(512, 2)", 512),
            (24_577, "(1024, 1)", 1024),
            (30_721, "(960, 1)", 960),
        ] {
            let text = norm("bf16", "n", columns);
            has(&text, &format!("__launch_bounds__{bounds}"));
            let load = if columns % 8 == 0 { "load<8>(x0 + i1)" } else { "load_across<8>(x0 + i1, head)" };
            has(&text, &format!("g0[k * {turn}] = {load};"));
            has(&text, &format!("r2[k] = f2[k * {turn}];"));
            has(&text, &format!("const Pack<bf16, 8> w1 = g1[k * {turn}];"));
        }
        // Threads that are no power of two.
        has(&norm("bf16", "n", 30_721), "in_lanes<32>((t % 32 < 30 ? part4[t % 32] : 0.0f), Sum())");
    }

    #[test]
    fn packs_of_long_rows_begin_where_lines_of_the_cache_do() {
        let text = norm("f16", "n", 24_577);
        has(&text, "& 63;");
        has(&text, "first += 128)");
        has(&text, "load_across<8>(x1 + i1, head)");
    }

    #[test]
    fn few_rows_short_ones_and_wide_numbers_are_not_lifted() {
        for text in
            [norm("bf16", "100", 12_288), norm("bf16", "n", 8_192), norm("bf16", "n", 24_576), norm("f32", "n", 12_288)]
        {
            assert!(!text.contains("first += "), "{text}");
        }
    }
}
