//! What a processor can do at most: bandwidth and arithmetic, measured by vector programs of our own.
//!
//! Comes in: a number of threads, and what to measure. Goes out: rates. A task goes over the memory of the thread that does it, or through its
//! registers, again and again; how often is found out so that it takes long enough, and the fastest of many trials counts. A trial is short, and has
//! several tasks for every thread, as kernels have: who has a processor does them, and nobody waits for those that have none.
#![allow(unsafe_code, reason = "machine code is called with pointers")]

use std::sync::Arc;
use std::time::Instant;

use fuseline::error::{Error, Result};
use fuseline::tensor::DType;

use super::block::{Blocks, Held};
use super::launch::{Table, launch};
use super::pool::{Pool, Team};
use crate::code::{Code, Isa};
use crate::vector::{Binary, Bound, Builder, FmaOp, IntOp, Program, TILE_ROW_BYTES, TILE_ROWS, TileOp, Ty, Value};

/// A task takes about so long, in seconds, and a trial has so many for every thread: long beside a clock and the meeting of threads, and short beside
/// the slices that a system gives to other programs, so that some trials are not disturbed by them.
const TASK: f64 = 8e-6;
const TASKS: usize = 12;
/// How many trials there are, and how many where little time is given.
const TRIALS: usize = 300;
const FEW_TRIALS: usize = 120;
/// Trials by which it is found out how much is done in one: the first may be disturbed, not all of them.
const FIRST_TRIALS: usize = 6;
/// Seconds that trials may take where others disturb them, and so many there are at least.
const PATIENCE: f64 = 80e-3;
const LEAST_TRIALS: usize = 16;
/// Bytes of a thread in a trial over memory that is too far, and so too large, to go over all of it; how many such trials there are at least; and which of
/// their sorted times counts, as a part of their number. Not the first: some pieces lie nearer by chance.
const PIECE: usize = 1 << 20;
const PIECES: usize = 160;
const PIECES_BEFORE: f64 = 0.1;
/// Vectors that one trip of a loop over memory handles.
const UNROLLED: usize = 8;
/// Terms that one trip of a loop over factors handles.
const UNROLLED_TERMS: i64 = 4;

/// Bytes that multiply-adds load their factors from: they stay in the nearest cache.
const LOADED: usize = 8192;

/// What a program does with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// reads it
    Read,
    /// reads one half of it and writes the other
    Copy,
    /// the same, and what is written goes past the caches
    Stream,
}

/// Threads of a processor, ready to be measured.
#[derive(Clone, Debug)]
pub struct Gauge {
    isa: Isa,
    pool: Arc<Pool>,
    blocks: Arc<Blocks>,
    trials: usize,
}

impl Gauge {
    /// So many threads of a processor, which must have the instructions.
    pub fn new(isa: Isa, threads: usize) -> Result<Gauge> {
        let has = Isa::detect();
        if isa < has {
            return Err(Error::unsupported(format!("{isa:?} on a processor that has {has:?}")));
        }
        let refused = |error| Error::exhausted(format!("the system has no {threads} threads: {error}"));
        Ok(Gauge::on(isa, Arc::new(Pool::new(threads).map_err(refused)?)))
    }

    /// Threads that others use, too; the processor has the instructions.
    pub(super) fn on(isa: Isa, pool: Arc<Pool>) -> Gauge {
        Gauge { isa, pool, blocks: Blocks::once(), trials: TRIALS }
    }

    /// The same with fewer trials: sooner, and a little below the best.
    pub fn quick(self) -> Gauge {
        Gauge { trials: FEW_TRIALS, ..self }
    }

    /// The instructions that are measured.
    pub(super) fn isa(&self) -> Isa {
        self.isa
    }

    /// How many threads there are.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Bytes read and written in a second by all threads together, each with so many bytes of its own.
    pub fn bandwidth(&self, access: Access, bytes: usize) -> Result<f64> {
        let whole = lanes(self.isa) as usize * 4 * UNROLLED;
        // A copy goes from one half of the memory to the other.
        let halves = if access == Access::Read { 1 } else { 2 };
        let code = Code::new(&memory_program(self.isa, access), self.isa)?;
        if bytes > 4 * PIECE {
            let part = (PIECE / halves / whole).max(1) * whole;
            let (seconds, moved) = self.by_pieces(&code, bytes, part, halves)?;
            return Ok(moved / seconds);
        }
        let part = (bytes / halves / whole).max(1) * whole;
        let memory = self.filled(halves * part * self.threads())?;
        let seconds = self.best(&code, part, &memory)?;
        Ok((halves * part) as f64 / seconds)
    }

    /// Operations in a second of multiply-adds on vectors of f32 or f64, which count as two.
    pub fn multiply_adds(&self, dtype: DType) -> Result<f64> {
        let ty = match dtype {
            DType::F32 => Ty::F32,
            DType::F64 => Ty::F64,
            other => return Err(Error::unsupported(format!("multiply-adds of {other} on vectors"))),
        };
        let lanes = lanes(self.isa) / if ty == Ty::F64 { 2 } else { 1 };
        let chains = chains(self.isa);
        let code = Code::new(&arithmetic_program(lanes, ty, dtype, chains), self.isa)?;
        let seconds = self.best(&code, 4096, &self.filled(8192 * self.threads())?)?;
        Ok((2 * u64::from(lanes) * chains as u64) as f64 / seconds)
    }

    /// The same of f32 where factors are loaded as tiles of a product load them, from the nearest cache: some processors lower their clock for
    /// both together, so that this is what products can reach.
    pub fn loaded_multiply_adds(&self) -> Result<f64> {
        let lanes = lanes(self.isa);
        let code = Code::new(&loaded_program(self.isa), self.isa)?;
        let seconds = self.best(&code, LOADED, &self.filled(2 * LOADED * self.threads())?)?;
        let terms = LOADED as u64 / (u64::from(lanes) * 4 * loaded_width(self.isa));
        Ok((2 * u64::from(lanes) * terms * chains(self.isa) as u64) as f64 / seconds)
    }

    /// Operations in a second of products of tiles of bf16; none where there are no tiles.
    pub fn tile_products(&self) -> Result<Option<f64>> {
        if self.isa != Isa::Amx {
            return Ok(None);
        }
        let code = Code::new(&tile_program(), self.isa)?;
        let seconds = self.best(&code, 8192, &self.filled(2 * 8192 * self.threads())?)?;
        // Four products of 16 by 16 sums, each of 32 terms.
        Ok(Some(f64::from(4 * 2 * 16 * 16 * 32) / seconds))
    }

    /// Seconds that it takes to call a program which does next to nothing.
    pub fn call(&self) -> Result<f64> {
        let code = Code::new(&arithmetic_program(lanes(self.isa), Ty::F32, DType::F32, 1), self.isa)?;
        let memory = self.filled(8192)?;
        let all = Launch { code: &code, tasks: 1, rounds: 1, bytes: 4096, memory: memory.block().start(), stride: 0 };
        Ok(self.least(&all, self.trials))
    }

    /// Seconds until all threads have done a task that is nothing.
    pub fn join(&self) -> f64 {
        const ROUNDS: u32 = 50;
        let tasks = self.threads() as u64;
        let trial = || {
            self.pool.enter(|team| {
                let start = Instant::now();
                (0..ROUNDS).for_each(|_| team.run(tasks, &|_, _| {}));
                start.elapsed().as_secs_f64() / f64::from(ROUNDS)
            })
        };
        (0..self.trials).map(|_| trial()).fold(f64::INFINITY, f64::min)
    }

    /// Memory that was written: small floats everywhere.
    pub(super) fn filled(&self, bytes: usize) -> Result<Held> {
        let held = self.blocks.take(bytes)?;
        let block = held.block();
        // SAFETY: the block is ours alone and so long.
        unsafe { std::slice::from_raw_parts_mut(block.start(), block.bytes()) }.fill(0x3c);
        Ok(held)
    }

    /// The least seconds that a round of a program takes where all threads do rounds, each in its part of some memory, of which a half has so many bytes.
    fn best(&self, code: &Code, bytes: usize, memory: &Held) -> Result<f64> {
        let stride = memory.block().bytes() / self.threads();
        let tasks = (TASKS * self.threads()) as u64;
        let mut all = Launch { code, tasks, rounds: 1, bytes: bytes as i64, memory: memory.block().start(), stride };
        loop {
            let mut seconds = self.least(&all, FIRST_TRIALS);
            // What is long enough is so undisturbed, too.
            let is_long = |seconds: f64| seconds >= TASK * TASKS as f64 / 2.0 || all.rounds >= 1 << 40;
            if is_long(seconds) {
                seconds = seconds.min(self.least(&all, self.trials));
            }
            if is_long(seconds) {
                let rounds = all.rounds as f64 * tasks as f64;
                let stands = || Error::bug("a clock that stands still");
                return if seconds > 0.0 { Ok(seconds / rounds) } else { Err(stands()) };
            }
            let wanted = (TASK * TASKS as f64 / seconds.max(1e-8)).clamp(2.0, 1e4);
            all.rounds = (all.rounds as f64 * wanted) as i64;
        }
    }

    /// Goes over so many bytes of every thread in pieces of `halves` parts: seconds of one piece, and bytes that it moves. It is the fastest, but for those
    /// that lie nearer by chance.
    fn by_pieces(&self, code: &Code, bytes: usize, part: usize, halves: usize) -> Result<(f64, f64)> {
        let piece = halves * part;
        let pieces = (bytes / piece).max(1);
        let memory = self.filled(pieces * piece * self.threads())?;
        let stride = pieces * piece;
        let piece_at = |k: usize| Launch {
            code,
            tasks: self.threads() as u64,
            rounds: 1,
            bytes: part as i64,
            memory: memory.block().start().wrapping_add(k * piece),
            stride,
        };
        let all: Vec<Launch<'_>> = (0..pieces).map(piece_at).collect();
        // The first time, it comes from wherever it was filled.
        self.times(&all);
        let mut times: Vec<f64> = (0..PIECES.div_ceil(pieces)).flat_map(|_| self.times(&all)).collect();
        times.sort_by(f64::total_cmp);
        let counts = times[(times.len() as f64 * PIECES_BEFORE) as usize];
        if counts > 0.0 {
            Ok((counts, (piece * self.threads()) as f64))
        } else {
            Err(Error::bug("a clock that stands still"))
        }
    }

    /// The least seconds of so many trials, or of fewer where others disturb them.
    fn least(&self, all: &Launch<'_>, trials: usize) -> f64 {
        self.pool.enter(|team| {
            let begin = Instant::now();
            let mut least = f64::INFINITY;
            for trial in 0..trials {
                least = least.min(all.time(team));
                if trial + 1 >= LEAST_TRIALS && begin.elapsed().as_secs_f64() > PATIENCE {
                    break;
                }
            }
            least
        })
    }

    /// Seconds of launches, one after another.
    pub(super) fn times(&self, all: &[Launch<'_>]) -> Vec<f64> {
        self.pool.enter(|team| all.iter().map(|launch| launch.time(team)).collect())
    }
}

/// A program, as it is launched.
pub(super) struct Launch<'a> {
    pub code: &'a Code,
    pub tasks: u64,
    /// how often a task does what it does
    pub rounds: i64,
    /// bytes of a half of the memory that a thread uses
    pub bytes: i64,
    /// memory of the first thread
    pub memory: *mut u8,
    /// how far that of the next one is from it
    pub stride: usize,
}

impl Launch<'_> {
    /// Seconds that it takes.
    fn time(&self, team: &mut Team<'_>) -> f64 {
        let mut settings = [self.rounds, self.bytes];
        let pointers = [settings.as_mut_ptr().cast::<u8>(), self.memory];
        let table = Table { pointers: &pointers, used: &[0, 1], worker: 1, first: self.memory, stride: self.stride };
        let start = Instant::now();
        // SAFETY: the processor has the instructions, as `Gauge::new` makes sure and `Gauge::on` asks for; every task stays within memory of its thread, of which there is as much
        // as both halves have bytes.
        unsafe { launch(team, self.code, self.tasks, table) };
        start.elapsed().as_secs_f64()
    }
}

/// Lanes of the widest vector of f32.
pub(super) fn lanes(isa: Isa) -> u32 {
    (isa.vector_bytes() / 4) as u32
}

/// Chains of multiply-adds that keep all units busy, and leave registers for their factors.
pub(super) fn chains(isa: Isa) -> usize {
    isa.registers() * 3 / 4
}

/// The rounds, the bytes of a half, and where both halves of the thread's memory begin, inside of a loop over tasks.
fn begin(b: &mut Builder) -> (Value, Value, Value, Value) {
    let settings = b.buffer(0);
    let (at_rounds, at_bytes) = (b.address(settings, &[], 0), b.address(settings, &[], 8));
    let (rounds, bytes) = (b.read_int(at_rounds, DType::I64), b.read_int(at_bytes, DType::I64));
    let from = b.buffer(1);
    b.begin_tasks();
    let to = b.int(IntOp::Add, from, bytes);
    (rounds, bytes, from, to)
}

/// Goes over memory again and again.
fn memory_program(isa: Isa, access: Access) -> Program {
    let mut b = Builder::new(lanes(isa));
    let vector = isa.vector_bytes() as i64;
    let (rounds, bytes, from, to) = begin(&mut b);
    let sums: Vec<Value> = match access {
        Access::Read => (0..UNROLLED).map(|k| b.float(Ty::F32, k as f64)).collect(),
        Access::Copy | Access::Stream => Vec::new(),
    };
    let (_, sums) = b.begin_loop(Bound::Number(0), Bound::Value(rounds), 1, &sums);
    let (at, sums) = b.begin_loop(Bound::Number(0), Bound::Value(bytes), vector * UNROLLED as i64, &sums);
    let places: Vec<_> = (0..UNROLLED as i64).map(|k| b.address(from, &[(at, 1)], k * vector)).collect();
    let read: Vec<Value> = places.into_iter().map(|place| b.load_again(place, DType::F32, None)).collect();
    if access != Access::Read {
        for (k, value) in read.iter().enumerate() {
            let place = b.address(to, &[(at, 1)], k as i64 * vector);
            match access {
                Access::Stream => b.store_streaming(place, *value, DType::F32),
                _ => b.store(place, *value, DType::F32, None),
            }
        }
    }
    let sums: Vec<Value> = sums.into_iter().zip(&read).map(|(sum, x)| b.binary(Binary::Add, sum, *x)).collect();
    let sums = b.end_loop(&sums);
    let sums = b.end_loop(&sums);
    // What nobody reads might not be computed. Tasks write one vector each, one after another.
    if let Some(sum) = sums.into_iter().reduce(|x, y| b.binary(Binary::Add, x, y)) {
        let place = b.address(from, &[], 0);
        b.store(place, sum, DType::F32, None);
    }
    b.end_loop(&[]);
    b.finish()
}

/// Independent chains of multiply-adds, again and again.
pub(super) fn arithmetic_program(lanes: u32, ty: Ty, dtype: DType, chains: usize) -> Program {
    let mut b = Builder::new(lanes);
    let (rounds, _, from, to) = begin(&mut b);
    let places = [b.address(from, &[], 0), b.address(from, &[], 64)];
    let [factor, term] = places.map(|place| b.load_again(place, dtype, None));
    let sums: Vec<Value> = (0..chains).map(|k| b.float(ty, 1.0 + k as f64)).collect();
    let (_, sums) = b.begin_loop(Bound::Number(0), Bound::Value(rounds), 1, &sums);
    let sums: Vec<Value> = sums.into_iter().map(|sum| b.fma(FmaOp::Add, sum, factor, term)).collect();
    let sums = b.end_loop(&sums);
    let sum = sums.into_iter().reduce(|x, y| b.binary(Binary::Add, x, y)).expect("there is a chain");
    let place = b.address(to, &[], 128);
    b.store(place, sum, dtype, None);
    b.end_loop(&[]);
    b.finish()
}

/// Vectors of a factor that a term of a tile loads.
fn loaded_width(isa: Isa) -> u64 {
    if isa.registers() >= 32 { 4 } else { 2 }
}

/// Sums of a tile of a product, term by term, again and again: vectors of one factor, elements of the other.
fn loaded_program(isa: Isa) -> Program {
    let mut b = Builder::new(lanes(isa));
    let (rounds, bytes, from, to) = begin(&mut b);
    let (vector, width) = (isa.vector_bytes() as i64, loaded_width(isa) as i64);
    let rows = chains(isa) as i64 / width;
    let sums: Vec<Value> = (0..rows * width).map(|k| b.float(Ty::F32, 1.0 + k as f64)).collect();
    let (_, sums) = b.begin_loop(Bound::Number(0), Bound::Value(rounds), 1, &sums);
    let (at, mut sums) = b.begin_loop(Bound::Number(0), Bound::Value(bytes), UNROLLED_TERMS * width * vector, &sums);
    for term in 0..UNROLLED_TERMS {
        let start = term * width * vector;
        let places: Vec<_> = (0..width).map(|v| b.address(from, &[(at, 1)], start + v * vector)).collect();
        let vectors: Vec<Value> = places.into_iter().map(|place| b.load_again(place, DType::F32, None)).collect();
        for row in 0..rows {
            let place = b.address(from, &[(at, 1)], start + row * 4);
            let element = b.load_splat_again(place, DType::F32);
            for (v, vector) in vectors.iter().enumerate() {
                let sum = &mut sums[(row * width) as usize + v];
                *sum = b.fma(FmaOp::Add, *vector, element, *sum);
            }
        }
    }
    let sums = b.end_loop(&sums);
    let sums = b.end_loop(&sums);
    let sum = sums.into_iter().reduce(|x, y| b.binary(Binary::Add, x, y)).expect("there is a sum");
    let place = b.address(to, &[], 0);
    b.store(place, sum, DType::F32, None);
    b.end_loop(&[]);
    b.finish()
}

/// Products of tiles into four tiles of sums, again and again.
fn tile_program() -> Program {
    let mut b = Builder::new(16);
    let (rounds, _, from, to) = begin(&mut b);
    let stride = TILE_ROW_BYTES as i32;
    let tile_bytes = TILE_ROWS * TILE_ROW_BYTES;
    (0..4).for_each(|sums| b.tile(TileOp::Zero(sums)));
    for factor in 0..4 {
        let at = b.address(from, &[], factor * tile_bytes);
        b.tile(TileOp::Load { tile: 4 + factor as u8, at, stride });
    }
    b.begin_loop(Bound::Number(0), Bound::Value(rounds), 1, &[]);
    for (sums, (x, y)) in [(4, 6), (4, 7), (5, 6), (5, 7)].into_iter().enumerate() {
        b.tile(TileOp::Products { sums: sums as u8, a: x, b: y });
    }
    b.end_loop(&[]);
    for sums in 0..4 {
        let at = b.address(to, &[], (4 + sums) * tile_bytes);
        b.tile(TileOp::Store { tile: sums as u8, at, stride });
    }
    b.end_loop(&[]);
    b.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rate_is_there_on_every_processor() {
        for isa in Isa::available() {
            let gauge = Gauge::new(isa, 2).unwrap();
            assert_eq!(gauge.threads(), 2);
            for access in [Access::Read, Access::Copy, Access::Stream] {
                // Nearby, and in pieces.
                for bytes in [16 << 10, 24 << 20] {
                    let rate = gauge.bandwidth(access, bytes).unwrap();
                    assert!(rate > 1e5 && rate < 1e14, "{isa:?} {access:?} {bytes}: {rate}");
                }
            }
            for dtype in [DType::F32, DType::F64] {
                let rate = gauge.multiply_adds(dtype).unwrap();
                assert!(rate > 1e5 && rate < 1e14, "{isa:?} {dtype}: {rate}");
            }
            assert!(gauge.multiply_adds(DType::I8).is_err());
            let loaded = gauge.loaded_multiply_adds().unwrap();
            // Others use the processor too: one measurement may be any part of the rate, the best of several is not.
            let alone = (0..8).map(|_| gauge.multiply_adds(DType::F32).unwrap()).fold(0.0, f64::max);
            assert!(loaded > 1e5 && loaded < 4.0 * alone, "{isa:?}: {loaded}, without loads {alone}");
            let tiles = gauge.tile_products().unwrap();
            assert_eq!(tiles.is_some(), isa == Isa::Amx);
            assert!(gauge.join() > 0.0 && gauge.call().unwrap() > 0.0);
        }
    }
}
