//! Random words in lanes: Philox-4x32-10, whose meaning is `fuseline::philox`.

use smallvec::SmallVec;

use super::lanes::Lanes;
use crate::vector::{Binary, Builder, Compare, Convert, IntOp, Ty, Value};

const MULTIPLIERS: [i32; 2] = [0xD251_1F53_u32 as i32, 0xCD9E_8D57_u32 as i32];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// A number of 64 bits for every lane, as two vectors of I32: so programs with no other need keep all of their lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wide {
    /// the low half
    pub low: Value,
    /// the high half
    pub high: Value,
}

impl Wide {
    /// An Int in every lane.
    pub fn uniform(b: &mut Builder, value: Value) -> Wide {
        let half = b.number(32);
        let high = b.int(IntOp::Shr, value, half);
        Wide { low: b.splat(Ty::I32, value), high: b.splat(Ty::I32, high) }
    }

    /// An Int in lane 0, and `step` more in every lane than in the one before; none where the lanes are 2^31 or more apart.
    pub fn line(b: &mut Builder, value: Value, step: i64) -> Option<Wide> {
        let start = Wide::uniform(b, value);
        if step == 0 {
            return Some(start);
        }
        step.checked_mul(i64::from(b.lanes())).filter(|apart| apart.abs() < 1 << 31)?;
        let numbers = b.lane_numbers(Ty::I32);
        let ahead = Lanes(b).mul(numbers, step as i32);
        Some(start.plus(b, ahead))
    }

    /// The sum with an I32, by its sign.
    fn plus(self, b: &mut Builder, ahead: Value) -> Wide {
        let (start, mut f) = (self, Lanes(b));
        let low = f.add(start.low, ahead);
        // A sum of unsigned numbers is below a summand where it has wrapped around.
        let carries = f.compare(Compare::LtUnsigned, low, start.low);
        let sign = f.binary(Binary::ShrSigned, ahead, 31);
        let high = f.add(start.high, sign);
        let next = f.add(high, 1);
        Wide { low, high: f.select(carries, next, high) }
    }

    /// I32 (by its sign) or I64.
    pub fn lanes(b: &mut Builder, value: Value) -> Wide {
        if b.ty(value) == Ty::I64 {
            let half = b.integer(Ty::I64, 32);
            let high = b.binary(Binary::ShrUnsigned, value, half);
            let [low, high] = [value, high].map(|half| b.convert(Convert::Low, Ty::I32, half));
            return Wide { low, high };
        }
        let high = Lanes(b).binary(Binary::ShrSigned, value, 31);
        Wide { low: value, high }
    }
}

/// The word of element `index` of a stream under a seed, for every lane.
pub fn word(b: &mut Builder, seed: Wide, stream: u64, index: Wide) -> Value {
    let mut f = Lanes(b);
    let down = f.binary(Binary::ShrUnsigned, index.low, 2);
    let up = f.shl(index.high, 30);
    let low = f.or(down, up);
    let high = f.binary(Binary::ShrUnsigned, index.high, 2);
    let words = block(f.0, seed, stream, Wide { low, high });
    let mut f = Lanes(b);
    let [odd, second] = [1, 2].map(|bit| {
        let place = f.and(index.low, bit);
        f.compare(Compare::Ne, place, 0)
    });
    let [first, last] = [0, 2].map(|k| f.select(odd, words[k + 1], words[k]));
    f.select(second, last, first)
}

/// The words of four vectors of elements in a row, of which the first is the first of block `index`, an Int.
pub fn four_vectors(b: &mut Builder, seed: Wide, stream: u64, index: Value) -> [Value; 4] {
    // Lane r of four has the block whose words are lanes of vector r: of every four lanes, words become lanes.
    let quads = b.lanes() as i32 / 4;
    let numbers = b.lane_numbers(Ty::I32);
    let mut f = Lanes(b);
    let (quad, place) = (f.binary(Binary::ShrUnsigned, numbers, 2), f.and(numbers, 3));
    let before = f.mul(place, quads);
    let ahead = f.add(before, quad);
    let start = Wide::uniform(b, index);
    let index = start.plus(b, ahead);
    let [first, second, third, last] = block(b, seed, stream, index);
    let [low, high] =
        [Binary::ZipLow, Binary::ZipHigh].map(|op| [b.binary(op, first, second), b.binary(op, third, last)]);
    let [first, second] = [Binary::JoinLow, Binary::JoinHigh].map(|op| b.binary(op, low[0], low[1]));
    let [third, last] = [Binary::JoinLow, Binary::JoinHigh].map(|op| b.binary(op, high[0], high[1]));
    [first, second, third, last]
}

/// The four words of block `index` of a stream under a seed, for every lane.
pub fn block(b: &mut Builder, seed: Wide, stream: u64, index: Wide) -> [Value; 4] {
    let mut f = Lanes(b);
    let keys: SmallVec<[[Value; 2]; ROUNDS]> = (0..ROUNDS as u32)
        .map(|round| {
            let [low, high] = WEYL.map(|step| step.wrapping_mul(round) as i32);
            [f.add(seed.low, low), f.add(seed.high, high)]
        })
        .collect();
    let [low, high] = [stream as i32, (stream >> 32) as i32].map(|half| f.0.integer(Ty::I32, i64::from(half)));
    let mut counter = [index.low, index.high, low, high];
    for key in keys {
        let [first, second] = [(0, MULTIPLIERS[0]), (2, MULTIPLIERS[1])]
            .map(|(k, by)| [f.mul(counter[k], by), f.binary(Binary::MulHigh, counter[k], by)]);
        let one = f.xor(second[1], counter[1]);
        let other = f.xor(first[1], counter[3]);
        counter = [f.xor(one, key[0]), second[0], f.xor(other, key[1]), first[0]];
    }
    counter
}
