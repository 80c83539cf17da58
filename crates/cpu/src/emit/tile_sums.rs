//! The sums of products of a tile, kept in registers: the inner loop of every contraction.

use fuseline::tensor::DType;

use super::bound::bytes_of;
use super::emitter::Emitter;
use super::fold::{Folding, Kept};
use super::tiling::Height;
use crate::vector::{Address, Bound as To, IntOp, Value};

/// Terms of the sum in a trip: of a tile of 24 sums, a trip of two takes 24 cycles, and counting it costs none of them.
pub(super) const TERMS: i64 = 2;

/// Bytes of a line of memory.
pub(super) const LINE: i64 = 64;

/// What is asked for of the right factors before it is needed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ahead {
    /// with every trip so many bytes, from an Int of bytes behind where a right factor begins
    Part { from: Value, step: i64 },
    /// with every term all of one that comes so many terms later
    All { terms: i64 },
}

/// In how many trips terms are added, but for a few that are left.
pub(super) fn trips(terms: i64) -> i64 {
    terms / TERMS
}

/// A matrix whose rows and terms lie at even distances.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stepped {
    pub dtype: DType,
    pub row_bytes: i64,
    pub term_bytes: i64,
}

/// Sums of products of some rows of a left factor with some vectors of columns of right factors.
#[derive(Clone, Debug)]
pub(super) struct TileSums {
    /// one for every right factor
    pub foldings: Vec<Folding>,
    pub height: Height,
    /// vectors of columns
    pub width: i64,
    pub terms: i64,
    pub left: Stepped,
    /// type and bytes from term to term of every right factor
    pub right: Vec<(DType, i64)>,
    /// where the vectors of a term do not all lie in a row: how many do, and the bytes from there to the next as many
    pub panels: Option<(i64, i64)>,
    /// for every vector, the lanes that may be read; none where all may
    pub masks: Vec<Value>,
    pub ahead: Option<Ahead>,
}

impl TileSums {
    /// The number of sums of one right factor.
    fn count(&self) -> usize {
        (self.height.rows * self.width) as usize
    }

    /// Emits the sums from where the factors begin: for every right factor, for every row, for every vector. They begin with
    /// `start`, or with nothing.
    pub fn emit(&self, e: &mut Emitter<'_>, left: Value, right: &[Value], start: Option<Vec<Value>>) -> Vec<Value> {
        let mut state: Vec<Value> = std::iter::once(left).chain(right.iter().copied()).collect();
        if let Some(Ahead::Part { from, .. }) = self.ahead {
            for pointer in right {
                state.push(e.b.int(IntOp::Add, *pointer, from));
            }
        }
        let sums = state.len();
        match start {
            Some(start) => state.extend(start),
            None => {
                for folding in &self.foldings {
                    for _ in 0..self.count() {
                        state.extend(folding.neutral(&mut e.b));
                    }
                }
            }
        }
        let Height { rows, last, are_many } = self.height;
        let Some(last) = last.filter(|_| are_many) else {
            return self.sum(e, self.height, state, sums).split_off(sums);
        };
        // Either height has a loop of its own, and they share all that is around.
        let one = e.b.number(1);
        let is_shorter = e.b.int(IntOp::Sub, one, last);
        for (holds, rows) in [(last, rows), (is_shorter, rows - 1)] {
            let inside = e.b.begin_when(holds, &state);
            let inside = self.sum(e, Height { rows, last: None, are_many }, inside, sums);
            state = e.b.end_when(&inside);
        }
        state.split_off(sums)
    }

    /// Emits the loops over the terms of some rows; `state` is where the factors are and, from `sums` on, what there is of the sums.
    fn sum(&self, e: &mut Emitter<'_>, height: Height, mut state: Vec<Value>, sums: usize) -> Vec<Value> {
        let whole = self.terms / TERMS * TERMS;
        for (from, to, step) in [(0, whole, TERMS), (whole, self.terms, 1)] {
            if from == to {
                continue;
            }
            let (_, mut inside) = e.b.begin_loop(To::Number(from), To::Number(to), step, &state);
            for term in 0..step {
                self.ask_ahead(e, (term, step), &mut inside);
                self.term(e, height, term, &mut inside, sums);
            }
            inside[0] = e.b.plus(inside[0], step * self.left.term_bytes);
            for (d, (_, term_bytes)) in self.right.iter().enumerate() {
                inside[1 + d] = e.b.plus(inside[1 + d], step * term_bytes);
            }
            state = e.b.end_loop(&inside);
        }
        state
    }

    /// Asks for what belongs to a term of a trip of so many.
    fn ask_ahead(&self, e: &mut Emitter<'_>, (term, terms): (i64, i64), inside: &mut [Value]) {
        for (d, (dtype, term_bytes)) in self.right.iter().enumerate() {
            match self.ahead {
                Some(Ahead::Part { step, .. }) if terms == TERMS => {
                    let asked = &mut inside[1 + self.right.len() + d];
                    for byte in (term * LINE..step).step_by((TERMS * LINE) as usize) {
                        let at = e.b.address(*asked, &[], byte);
                        e.b.prefetch(at);
                    }
                    if term == TERMS - 1 {
                        *asked = e.b.plus(*asked, step);
                    }
                }
                Some(Ahead::All { terms }) => {
                    let read = self.width * e.lanes() * bytes_of(*dtype);
                    for byte in (0..read).step_by(LINE as usize) {
                        let at = e.b.address(inside[1 + d], &[], (term + terms) * term_bytes + byte);
                        e.b.prefetch(at);
                    }
                }
                _ => {}
            }
        }
    }

    /// One term joins every sum. The vectors of all right factors are loaded first, so that an element of the left one is
    /// loaded once.
    fn term(&self, e: &mut Emitter<'_>, height: Height, term: i64, inside: &mut [Value], sums: usize) {
        let mut right: Vec<Vec<Value>> = Vec::with_capacity(self.right.len());
        for (d, (dtype, term_bytes)) in self.right.iter().enumerate() {
            let vector = e.lanes() * bytes_of(*dtype);
            let vectors = (0..self.width).map(|v| {
                let (panel, within) = self.panels.map_or((0, v), |(vectors, bytes)| (v / vectors * bytes, v % vectors));
                let at = e.b.address(inside[1 + d], &[], panel + term * term_bytes + within * vector);
                e.b.load_again(at, *dtype, self.masks.get(v as usize).copied())
            });
            right.push(vectors.collect());
        }
        for r in 0..height.rows {
            let of_row = (0..right.len()).flat_map(|d| (0..self.width).map(move |v| (d, v)));
            let of_row = of_row.map(|(d, v)| sums + d * self.count() + (r * self.width + v) as usize);
            let at = e.b.address(inside[0], &[], r * self.left.row_bytes + term * self.left.term_bytes);
            let joined = match height.last.filter(|_| r == height.rows - 1) {
                Some(last) => {
                    let before: Vec<Value> = of_row.clone().map(|k| inside[k]).collect();
                    let before = e.b.begin_when(last, &before);
                    let joined = self.join_row(e, at, &right, before.into_iter());
                    e.b.end_when(&joined)
                }
                None => self.join_row(e, at, &right, of_row.clone().map(|k| inside[k])),
            };
            of_row.zip(joined).for_each(|(k, sum)| inside[k] = sum);
        }
    }

    /// An element of the left factor, times vectors of all right ones, joins the sums of its row.
    fn join_row(
        &self,
        e: &mut Emitter<'_>,
        at: Address,
        right: &[Vec<Value>],
        sums: impl Iterator<Item = Value>,
    ) -> Vec<Value> {
        let left = e.b.load_splat_again(at, self.left.dtype);
        let factors =
            self.foldings.iter().zip(right).flat_map(|(folding, right)| right.iter().map(move |r| (folding, r)));
        let join = |((folding, right), sum): ((&Folding, &Value), Value)| {
            folding.join(&mut e.b, &Kept::from_slice(&[sum]), &[left, *right], None, None)[0]
        };
        factors.zip(sums).map(join).collect()
    }
}
