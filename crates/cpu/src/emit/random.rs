//! Random words at points. A block of the generator has the words of four elements in a row, so that vectors in a row share blocks: they
//! are computed once. Where vectors begin with a block, words change places in registers; otherwise they are dealt out through the
//! worker's memory.

use fuseline::error::{Error, Result};
use fuseline::tensor::{DType, Dim};
use fuseline::tile::{Kernel, Op, StepId};

use super::Memory;
use super::emitter::Emitter;
use super::index::{Index, Sum, index_at, int_of, multiple_of};
use super::point::Point;
use crate::math::random::{Wide, block, four_vectors, word};
use crate::vector::{Binary, IntOp, Ty, Value};

/// Words of a block.
const WORDS: i64 = 4;

/// Bytes of a word.
const BYTES: i64 = 4;

/// Bytes at the beginning of a worker's memory that a kernel needs for its random words.
pub(super) fn reserved_bytes(kernel: &Kernel, lanes: i64) -> usize {
    let draws = kernel.steps.iter().any(|step| matches!(step.op, Op::Random { .. }));
    // Four vectors that begin inside of a block have words of two vectors of blocks.
    if draws { (2 * WORDS * lanes * BYTES) as usize } else { 0 }
}

/// Where a random step has its words from.
struct Draw {
    seed: Wide,
    stream: u64,
}

impl Emitter<'_> {
    /// Random words at some points.
    pub fn randoms(&mut self, op: &Op, points: &[&Point]) -> Result<Vec<Value>> {
        let Op::Random { stream, seed, index, reads } = op else {
            return Err(Error::bug("random words of what is no random step"));
        };
        let mut indices = Vec::with_capacity(points.len());
        for point in points {
            indices.push(self.element(index, reads, point)?);
        }
        let mut words = Vec::with_capacity(points.len());
        for (points, indices) in points.chunks(WORDS as usize).zip(indices.chunks(WORDS as usize)) {
            let draw = Draw { seed: self.seed(*seed, points[0])?, stream: *stream };
            match self.in_a_row(indices) {
                Some(first) => words.extend(self.dealt_out(&draw, &first, points.len())),
                None => {
                    for (point, index) in points.iter().zip(indices) {
                        let draw = Draw { seed: self.seed(*seed, point)?, stream: *stream };
                        words.push(self.word_at(&draw, index)?);
                    }
                }
            }
        }
        Ok(words)
    }

    /// The number of the element at a point.
    fn element(&mut self, index: &Dim, reads: &[StepId], point: &Point) -> Result<Index> {
        let reads = reads.iter().map(|id| self.coordinate(*id, point)).collect::<Result<Vec<_>>>()?;
        let index = self.bound.dim(index);
        Ok(index_at(&mut self.b, &self.multiples, &index, point, &reads))
    }

    fn seed(&mut self, seed: StepId, point: &Point) -> Result<Wide> {
        match self.coordinate(seed, point)? {
            Index::Sum(sum) => {
                let seed = int_of(&mut self.b, &sum);
                Ok(Wide::uniform(&mut self.b, seed))
            }
            Index::Lanes(_) => Err(Error::unsupported("seeds that differ from element to element")),
        }
    }

    /// The words of a vector of elements by itself.
    fn word_at(&mut self, draw: &Draw, index: &Index) -> Result<Value> {
        let index = match index {
            Index::Sum(sum) => {
                let first = int_of(&mut self.b, &Sum { lane: 0, ..sum.clone() });
                let far = || Error::unsupported("random numbers of elements that are 2^31 or more apart");
                Wide::line(&mut self.b, first, sum.lane).ok_or_else(far)?
            }
            Index::Lanes(lanes) => Wide::lanes(&mut self.b, *lanes),
        };
        Ok(word(&mut self.b, draw.seed, draw.stream, index))
    }

    /// The first element of several vectors, where all of their elements are in a row.
    fn in_a_row(&self, indices: &[Index]) -> Option<Sum> {
        let lanes = self.lanes();
        let (Index::Sum(first), true) = (indices.first()?, indices.len() > 1) else { return None };
        let follows = |(k, index): (usize, &Index)| {
            let next = Sum { constant: first.constant + k as i64 * lanes, ..first.clone() };
            matches!(index, Index::Sum(sum) if *sum == next)
        };
        (first.lane == 1 && indices.iter().enumerate().all(follows)).then(|| Sum { lane: 0, ..first.clone() })
    }

    /// The words of up to four vectors of elements in a row.
    fn dealt_out(&mut self, draw: &Draw, first: &Sum, vectors: usize) -> Vec<Value> {
        let lanes = self.lanes();
        let multiple = multiple_of(&self.multiples, first);
        let element = int_of(&mut self.b, first);
        let two = self.b.number(2);
        let number = self.b.int(IntOp::Shr, element, two);
        if multiple % WORDS == 0 {
            let aligned = multiple % (WORDS * lanes) == 0;
            let words = four_vectors(&mut self.b, draw.seed, draw.stream, number, aligned);
            return words[..vectors].to_vec();
        }
        let worker = self.pointer(Memory::Worker);
        self.reads.insert(Memory::Worker);
        self.writes.insert(Memory::Worker);
        for half in 0..2 {
            let number = self.b.plus(number, half * lanes);
            let index = Wide::line(&mut self.b, number, 1).expect("blocks in a row are not far apart");
            for (k, words) in (0..).zip(block(&mut self.b, draw.seed, draw.stream, index)) {
                let at = self.b.address(worker, &[], (2 * k + half) * lanes * BYTES);
                self.b.store(at, words, DType::U32, None);
            }
        }
        let last = self.b.number(WORDS - 1);
        let skipped = self.b.int(IntOp::And, element, last);
        let skipped = self.b.splat(Ty::I32, skipped);
        (0..vectors as i64).map(|k| self.taken(worker, k * lanes, skipped)).collect()
    }

    /// The words from one on, but for those of the first block that are skipped.
    fn taken(&mut self, worker: Value, from: i64, skipped: Value) -> Value {
        let lanes = self.lanes();
        let (numbers, from) = (self.b.lane_numbers(Ty::I32), self.b.integer(Ty::I32, from));
        let element = self.b.binary(Binary::Add, numbers, from);
        let element = self.b.binary(Binary::Add, element, skipped);
        // Word k of all blocks lies before word k + 1 of any.
        let [two, last, apart] = [2, WORDS - 1, 2 * lanes].map(|n| self.b.integer(Ty::I32, n));
        let block = self.b.binary(Binary::ShrUnsigned, element, two);
        let word = self.b.binary(Binary::And, element, last);
        let before = self.b.binary(Binary::Mul, word, apart);
        let place = self.b.binary(Binary::Add, before, block);
        let at = self.b.address(worker, &[], 0);
        self.b.gather_again(at, place, DType::U32, None)
    }
}
