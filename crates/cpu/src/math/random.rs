//! Random words in lanes: Philox-4x32-10, whose meaning is `fuseline::philox`.

use smallvec::SmallVec;

use super::lanes::Lanes;
use crate::vector::{Binary, Builder, Compare, Convert, IntOp, Ty, Unary, Value};

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

/// The words of four vectors of elements in a row, of which the first is the first of block `index`, an Int. `aligned` says that
/// the block is a multiple of the blocks that follow with it.
pub fn four_vectors(b: &mut Builder, seed: Wide, stream: u64, index: Value, aligned: bool) -> [Value; 4] {
    let start = Wide::uniform(b, index);
    let indices = [0, 1].map(|half| {
        // Two lanes have a block, whose words become four lanes of vector 2·half or of the one behind it.
        let blocks = b.lanes() / 4;
        let ahead = |lane: u32| (2 * half + (lane >> 1 & 1)) * blocks + (lane >> 2);
        let ahead: Vec<u32> = (0..b.lanes()).map(ahead).collect();
        let ahead = b.numbers(Ty::I32, &ahead);
        match aligned {
            true => Wide { low: Lanes(b).add(start.low, ahead), high: start.high },
            false => start.plus(b, ahead),
        }
    });
    let even = even_lanes(b);
    let [[first, second], [third, last]] = even_blocks(b, seed, stream, indices).map(|block| {
        let Words { words: [first, _, third, _], pairs: [second, last] } = block;
        let [low, high] = [(first, second), (third, last)].map(|(word, next)| b.select(even, word, next));
        [Binary::JoinLow, Binary::JoinHigh].map(|op| b.binary(op, low, high))
    });
    [first, second, third, last]
}

/// The four words of block `index` of a stream under a seed, for every lane.
pub fn block(b: &mut Builder, seed: Wide, stream: u64, index: Wide) -> [Value; 4] {
    let odd = Wide { low: b.unary(Unary::Swap, index.low), high: b.unary(Unary::Swap, index.high) };
    let [even, odd] = even_blocks(b, seed, stream, [index, odd]);
    let mask = even_lanes(b);
    std::array::from_fn(|k| {
        let other = b.unary(Unary::Swap, odd.words[k]);
        b.select(mask, even.words[k], other)
    })
}

/// What lanes with even numbers know of their blocks.
#[derive(Clone, Copy)]
struct Words {
    /// in even lanes: the words
    words: [Value; 4],
    /// in odd lanes: the second and the last word of the lane before
    pairs: [Value; 2],
}

/// The blocks of lanes with even numbers, of two vectors at a time. A product takes two lanes; what is high in it and wanted low changes places
/// with its neighbour.
fn even_blocks(b: &mut Builder, seed: Wide, stream: u64, indices: [Wide; 2]) -> [Words; 2] {
    let keys = keys(b, seed);
    let [low, high] = [stream as u32, (stream >> 32) as u32].map(|half| b.integer(Ty::I32, half.into()));
    let mut f = Lanes(b);
    let mut blocks = indices.map(|index| Words { words: [index.low, index.high, low, high], pairs: [low, high] });
    for key in keys {
        blocks = blocks.map(|Words { words, .. }| {
            let [first, second] = [(words[0], MULTIPLIERS[0]), (words[2], MULTIPLIERS[1])]
                .map(|(word, by)| f.binary(Binary::MulEven, word, by));
            let pairs = [second, first].map(|product| f.0.unary(Unary::Swap, product));
            let [one, other] = [f.xor(words[1], key[0]), f.xor(words[3], key[1])];
            Words { words: [f.xor(pairs[0], one), second, f.xor(pairs[1], other), first], pairs }
        });
    }
    blocks
}

/// The keys of all rounds.
type Keys = SmallVec<[[Value; 2]; ROUNDS]>;

fn keys(b: &mut Builder, seed: Wide) -> Keys {
    let mut f = Lanes(b);
    (0..ROUNDS as u32)
        .map(|round| {
            let [low, high] = WEYL.map(|step| step.wrapping_mul(round) as i32);
            [f.add(seed.low, low), f.add(seed.high, high)]
        })
        .collect()
}

/// The lanes with even numbers.
fn even_lanes(b: &mut Builder) -> Value {
    let numbers = b.lane_numbers(Ty::I32);
    let mut f = Lanes(b);
    let last = f.and(numbers, 1);
    f.eq(last, 0)
}
