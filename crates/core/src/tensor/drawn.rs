//! Elements that stand for data nobody has: drawn by chance, fast enough for inputs of any size.

use super::DType;
use crate::philox;

/// A row of random elements: normal ones of a float type, small whole numbers of the others. Each is a function of seed, stream and
/// index alone, so that parts may be made in any order, and by several threads.
///
/// A float is made of words `2·index` and `2·index + 1` of [`philox`] by the formula of Box and Muller in f64; a whole number has the highest
/// bits of word `index`: eight of them where the type has eight, which covers its range, else one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// tells draws apart
    pub seed: u64,
    /// tells tensors of one draw apart
    pub stream: u64,
    /// magnitudes only, of floats
    pub positive: bool,
}

impl Drawn {
    /// Writes the elements from index `start` on, so many as stated, as a [literal](super::Literal) holds them. The first one must begin a
    /// byte, and `bytes` must be as long as they take.
    pub fn write(&self, dtype: DType, start: usize, count: usize, bytes: &mut [u8]) {
        let Drawn { seed, stream, positive } = *self;
        if !dtype.is_float() {
            let shift = if matches!(dtype, DType::I8 | DType::U8) { 24 } else { 31 };
            let elements = philox::words(seed, stream, start as u64).take(count);
            return pack(dtype, elements.map(|word| dtype.wrap(i128::from(word >> shift)) as u64), bytes);
        }
        let sign = |x: f64| if positive { x.abs() } else { x };
        let elements = normals(seed, stream, start as u64).take(count).map(sign);
        match dtype {
            DType::F32 => {
                for (place, x) in bytes.chunks_exact_mut(4).zip(elements) {
                    place.copy_from_slice(&(x as f32).to_le_bytes());
                }
            }
            _ => pack(dtype, elements.map(|x| dtype.to_bits(x)), bytes),
        }
    }
}

/// Little-endian elements given by their bits, the first at the beginning of a byte.
fn pack(dtype: DType, elements: impl Iterator<Item = u64>, bytes: &mut [u8]) {
    let bits = dtype.bits();
    if bits >= 8 {
        for (place, element) in bytes.chunks_exact_mut(bits / 8).zip(elements) {
            place.copy_from_slice(&element.to_le_bytes()[..bits / 8]);
        }
        return;
    }
    bytes.fill(0);
    for (k, element) in elements.enumerate() {
        let low = element as u8 & (u8::MAX >> (8 - bits));
        bytes[k * bits / 8] |= low << (k * bits % 8);
    }
}

/// Normally distributed numbers from that of index `start` on; a block of words makes two.
fn normals(seed: u64, stream: u64, start: u64) -> impl Iterator<Item = f64> {
    let mut words = philox::words(seed, stream, 2 * start);
    let mut word = move || words.next().expect("words never end");
    std::iter::from_fn(move || {
        let (a, b) = (word(), word());
        Some(normal(a, b))
    })
}

/// A normally distributed number from two random words.
fn normal(a: u32, b: u32) -> f64 {
    let unit = |word: u32| (f64::from(word) + 0.5) / 4_294_967_296.0;
    (-2.0 * unit(a).ln()).sqrt() * (std::f64::consts::TAU * unit(b)).cos()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Literal;

    fn drawn(dtype: DType, seed: u64, start: usize, count: usize) -> Vec<u8> {
        let mut bytes = vec![0xff; dtype.bytes(count).unwrap()];
        Drawn { seed, stream: 3, positive: false }.write(dtype, start, count, &mut bytes);
        bytes
    }

    #[test]
    fn parts_are_those_of_the_whole() {
        for &dtype in DType::ALL {
            let whole = drawn(dtype, 1, 0, 37);
            // Four elements of two bits are a byte.
            for start in [0, 4, 8, 36] {
                let first = dtype.bytes(start).unwrap();
                assert_eq!(drawn(dtype, 1, start, 37 - start), whole[first..], "{dtype} from {start}");
            }
            assert!(Literal::new(dtype, [37], whole.clone()).is_ok(), "{dtype}");
            assert!(dtype == DType::Bool || drawn(dtype, 2, 0, 37) != whole, "{dtype}");
        }
    }

    #[test]
    fn elements_are_made_of_their_own_words() {
        let bytes = drawn(DType::F64, 1, 0, 9);
        let found = Literal::new(DType::F64, [9], bytes).unwrap().to_f64s();
        for (k, x) in (0..).zip(found) {
            let unit = |index| (f64::from(philox::word(1, 3, index)) + 0.5) / 4_294_967_296.0;
            let (a, b): (f64, f64) = (unit(2 * k), unit(2 * k + 1));
            assert_eq!(x, (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos());
        }
        let whole = Literal::new(DType::I64, [9], drawn(DType::I64, 1, 0, 9)).unwrap().to_ints();
        assert!((0..).zip(whole).all(|(k, n)| n == i64::from(philox::word(1, 3, k) >> 31)));
        let bytes = Literal::new(DType::I8, [9], drawn(DType::I8, 1, 0, 9)).unwrap().to_ints();
        assert!((0..).zip(bytes).all(|(k, n)| n == i64::from((philox::word(1, 3, k) >> 24) as u8 as i8)));
    }
}
