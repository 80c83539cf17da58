//! Tensors with data: constants of a graph, inputs and outputs of a run.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;

use super::shape::element_count;
use super::{Class, DType, Seeded, Shape, TensorType};
use crate::error::{Error, Result};

/// Where the bytes of a literal lie in a file; identifies large literals without looking at their content.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source {
    /// the file as the front end names it
    pub file: Arc<str>,
    /// position of the first byte
    pub offset: u64,
}

/// A dense row-major tensor with its data. Cloning shares the bytes.
#[derive(Clone)]
pub struct Literal {
    dtype: DType,
    sizes: Vec<usize>,
    data: Data,
}

#[derive(Clone)]
enum Data {
    Stored {
        bytes: Bytes,
        source: Option<Source>,
    },
    /// takes no memory: elements are made when they are read, and made again when they are read again
    Seeded(Seeded),
}

/// Stored literals up to this size are compared and hashed by content, larger ones by where their bytes come from; the
/// content of larger ones that come from nowhere is compared too, but not hashed.
const CONTENT_LIMIT: usize = 64 << 10;

/// Seeded literals are at most this large: a few words of a file must not stand for all memory there is.
const MOST_SEEDED_BYTES: u64 = 16 << 30;

impl Literal {
    /// A literal of little-endian elements; the length of `bytes` must fit.
    pub fn new(dtype: DType, sizes: impl Into<Vec<usize>>, bytes: impl Into<Bytes>) -> Result<Literal> {
        let (sizes, bytes) = (sizes.into(), bytes.into());
        let wanted = dtype.bytes(element_count(&sizes)?).expect("a checked element count has a byte count");
        if bytes.len() != wanted {
            return Err(Error::invalid(format!(
                "{} bytes of data for a tensor {dtype}{sizes:?}, which needs {wanted}",
                bytes.len()
            )));
        }
        Ok(Literal { dtype, sizes, data: Data::Stored { bytes, source: None } })
    }

    /// A literal whose elements are drawn from a seed. Nothing is allocated, here or later, until somebody asks for many
    /// elements at once.
    pub fn seeded(dtype: DType, sizes: impl Into<Vec<usize>>, seeded: Seeded) -> Result<Literal> {
        let sizes = sizes.into();
        let bytes = dtype.bytes(element_count(&sizes)?).expect("a checked element count has a byte count");
        if bytes as u64 > MOST_SEEDED_BYTES {
            return Err(Error::limit(format!(
                "{bytes} bytes of a seeded tensor {dtype}{sizes:?} (the limit is {MOST_SEEDED_BYTES} bytes)"
            )));
        }
        seeded.check(dtype)?;
        Ok(Literal { dtype, sizes, data: Data::Seeded(seeded) })
    }

    /// The same literal, known to come from a file. A seeded one does not, and stays as it is.
    pub fn with_source(mut self, place: Source) -> Literal {
        if let Data::Stored { source, .. } = &mut self.data {
            *source = Some(place);
        }
        self
    }

    /// A literal of float values, each rounded to `dtype`, which may be any type (integers are truncated and wrap).
    pub fn from_f64s(dtype: DType, sizes: impl Into<Vec<usize>>, values: &[f64]) -> Result<Literal> {
        if dtype.is_float() {
            return Literal::from_bits(dtype, sizes, values.iter().map(|x| dtype.to_bits(*x)));
        }
        Literal::from_bits(dtype, sizes, values.iter().map(|x| dtype.wrap(*x as i128) as u64))
    }

    /// A literal of integers, each wrapped to `dtype` (an integer type or bool) or converted (a float type).
    pub fn from_ints(dtype: DType, sizes: impl Into<Vec<usize>>, values: &[i64]) -> Result<Literal> {
        if dtype.is_float() {
            return Literal::from_bits(dtype, sizes, values.iter().map(|x| dtype.to_bits(*x as f64)));
        }
        // Widening through i128 keeps u64 bit patterns as they are: wrapping takes the low bits.
        Literal::from_bits(dtype, sizes, values.iter().map(|x| dtype.wrap(i128::from(*x)) as u64))
    }

    /// A literal of elements given by their low bits.
    pub fn from_bits(
        dtype: DType,
        sizes: impl Into<Vec<usize>>,
        elements: impl Iterator<Item = u64>,
    ) -> Result<Literal> {
        Literal::new(dtype, sizes, pack(dtype, elements))
    }

    /// A vector of 64-bit integers.
    pub fn i64s(values: &[i64]) -> Literal {
        Literal::from_ints(DType::I64, [values.len()], values).expect("the sizes fit the values")
    }

    /// A vector of single-precision numbers.
    pub fn f32s(values: &[f32]) -> Literal {
        let values: Vec<f64> = values.iter().map(|x| f64::from(*x)).collect();
        Literal::from_f64s(DType::F32, [values.len()], &values).expect("the sizes fit the values")
    }

    /// The same data with other sizes of the same count.
    pub fn reshaped(self, sizes: impl Into<Vec<usize>>) -> Result<Literal> {
        match self.data {
            Data::Stored { bytes, source } => {
                let literal = Literal::new(self.dtype, sizes, bytes)?;
                Ok(if let Some(source) = source { literal.with_source(source) } else { literal })
            }
            Data::Seeded(_) => {
                let sizes = sizes.into();
                let (old, new) = (self.sizes.iter().product::<usize>(), element_count(&sizes)?);
                if old != new {
                    return Err(Error::invalid(format!("{old} seeded elements for a tensor {}{sizes:?}", self.dtype)));
                }
                Ok(Literal { sizes, ..self })
            }
        }
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The sizes.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// Number of elements.
    pub fn count(&self) -> usize {
        self.sizes.iter().product()
    }

    /// The raw little-endian bytes. Those of a seeded literal are made anew by every call; the others are shared.
    pub fn bytes(&self) -> Bytes {
        match &self.data {
            Data::Stored { bytes, .. } => bytes.clone(),
            Data::Seeded(seeded) => pack(self.dtype, seeded.bits(self.dtype, 0).take(self.count())).into(),
        }
    }

    /// How many bytes the data has; none are made for that.
    pub fn byte_count(&self) -> usize {
        match &self.data {
            Data::Stored { bytes, .. } => bytes.len(),
            Data::Seeded(_) => self.dtype.bytes(self.count()).expect("the byte count was checked"),
        }
    }

    /// Where the bytes come from, if they come from a file.
    pub fn source(&self) -> Option<&Source> {
        if let Data::Stored { source, .. } = &self.data { source.as_ref() } else { None }
    }

    /// How the elements are drawn, if they are.
    pub fn as_seeded(&self) -> Option<Seeded> {
        if let Data::Seeded(seeded) = self.data { Some(seeded) } else { None }
    }

    /// Element type and shape.
    pub fn ty(&self) -> TensorType {
        TensorType::new(self.dtype, self.sizes.iter().copied().collect::<Shape>())
    }

    /// Element `k` in row-major order as a float (integers are converted).
    pub fn float(&self, k: usize) -> f64 {
        match self.dtype {
            DType::F32 => f64::from(f32::from_le_bytes(self.raw(k))),
            DType::F64 => f64::from_le_bytes(self.raw(k)),
            DType::BF16 => f64::from(f32::from_bits(u32::from(u16::from_le_bytes(self.raw(k))) << 16)),
            DType::U64 => u64::from_le_bytes(self.raw(k)) as f64,
            dtype if dtype.is_float() => dtype.from_bits(self.bits(k)),
            _ => self.int(k) as f64,
        }
    }

    /// Element `k` in row-major order as an integer; a u64 keeps its bit pattern, floats are truncated.
    pub fn int(&self, k: usize) -> i64 {
        match self.dtype {
            DType::Bool | DType::U8 => i64::from(u8::from_le_bytes(self.raw(k))),
            DType::I8 => i64::from(i8::from_le_bytes(self.raw(k))),
            DType::U16 => i64::from(u16::from_le_bytes(self.raw(k))),
            DType::I16 => i64::from(i16::from_le_bytes(self.raw(k))),
            DType::U32 => i64::from(u32::from_le_bytes(self.raw(k))),
            DType::I32 => i64::from(i32::from_le_bytes(self.raw(k))),
            DType::U64 => u64::from_le_bytes(self.raw(k)) as i64,
            DType::I64 => i64::from_le_bytes(self.raw(k)),
            dtype if dtype.is_float() => self.float(k) as i64,
            dtype => dtype.wrap(i128::from(self.bits(k))) as i64,
        }
    }

    /// The bits that store element `k`.
    pub fn bits(&self, k: usize) -> u64 {
        match (&self.data, self.dtype.bits()) {
            (Data::Seeded(seeded), _) => seeded.bits(self.dtype, k).next().expect("a draw has no end"),
            (_, 64) => u64::from_le_bytes(self.raw(k)),
            (_, 32) => u64::from(u32::from_le_bytes(self.raw(k))),
            (_, 16) => u64::from(u16::from_le_bytes(self.raw(k))),
            (Data::Stored { bytes, .. }, bits) => {
                u64::from(bytes[k * bits / 8] >> (k * bits % 8)) & (u64::MAX >> (64 - bits))
            }
        }
    }

    /// The elements from `start` on as floats.
    pub fn read_f64s(&self, start: usize, out: &mut [f64]) {
        match (&self.data, self.dtype) {
            (Data::Seeded(seeded), dtype) => {
                out.iter_mut().zip(seeded.elements(dtype, start)).for_each(|(o, x)| *o = x)
            }
            (Data::Stored { bytes, .. }, DType::F32) => {
                let words = bytes[start * 4..(start + out.len()) * 4].chunks_exact(4);
                for (o, b) in out.iter_mut().zip(words) {
                    *o = f64::from(f32::from_le_bytes(b.try_into().expect("chunks of four")));
                }
            }
            _ => out.iter_mut().enumerate().for_each(|(k, o)| *o = self.float(start + k)),
        }
    }

    /// All elements as floats.
    pub fn to_f64s(&self) -> Vec<f64> {
        let mut out = vec![0.0; self.count()];
        self.read_f64s(0, &mut out);
        out
    }

    /// All elements as integers.
    pub fn to_ints(&self) -> Vec<i64> {
        (0..self.count()).map(|k| self.int(k)).collect()
    }

    /// Whether every element has the bits of the first (at least one element). Of several seeded elements, whether their
    /// bounds leave them no choice.
    pub fn is_splat(&self) -> bool {
        match &self.data {
            Data::Seeded(seeded) => self.count() == 1 || self.count() > 1 && seeded.is_splat(self.dtype),
            Data::Stored { .. } if self.dtype.bits() < 8 => {
                self.count() > 0 && (1..self.count()).all(|k| self.bits(k) == self.bits(0))
            }
            Data::Stored { bytes, .. } => {
                let width = self.dtype.bits() / 8;
                self.count() > 0 && bytes.chunks_exact(width).all(|b| b == &bytes[..width])
            }
        }
    }

    /// The bytes of element `k`, of a type that is N bytes wide.
    fn raw<const N: usize>(&self, k: usize) -> [u8; N] {
        let wide = |bytes: &[u8]| bytes.try_into().expect("a slice of N bytes");
        match &self.data {
            Data::Stored { bytes, .. } => wide(&bytes[k * N..(k + 1) * N]),
            Data::Seeded(_) => wide(&self.bits(k).to_le_bytes()[..N]),
        }
    }
}

/// Little-endian elements given by their low bits; those below eight bits share bytes.
fn pack(dtype: DType, elements: impl Iterator<Item = u64>) -> Vec<u8> {
    let bits = dtype.bits();
    let mut bytes = Vec::with_capacity(dtype.bytes(elements.size_hint().0).unwrap_or(0));
    for (k, element) in elements.enumerate() {
        let element = element & (u64::MAX >> (64 - bits));
        match (bytes.last_mut(), k * bits % 8) {
            (Some(byte), shift @ 1..) => *byte |= (element << shift) as u8,
            _ => bytes.extend(&element.to_le_bytes()[..bits.div_ceil(8)]),
        }
    }
    bytes
}

impl PartialEq for Literal {
    fn eq(&self, other: &Literal) -> bool {
        self.dtype == other.dtype && self.sizes == other.sizes && self.data == other.data
    }
}

impl Eq for Literal {}

impl Hash for Literal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.dtype.hash(state);
        self.sizes.hash(state);
        match &self.data {
            Data::Stored { bytes, .. } if bytes.len() <= CONTENT_LIMIT => bytes.hash(state),
            Data::Stored { bytes, source } => {
                bytes.len().hash(state);
                source.hash(state);
            }
            Data::Seeded(seeded) => seeded.hash(state),
        }
    }
}

impl PartialEq for Data {
    fn eq(&self, other: &Data) -> bool {
        match (self, other) {
            (Data::Stored { bytes: a, source: at }, Data::Stored { bytes: b, source: other_at }) => {
                let address = |bytes: &Bytes| (bytes.as_ptr() as usize, bytes.len());
                match (at, other_at) {
                    _ if a.len() <= CONTENT_LIMIT => a == b,
                    (Some(at), Some(other_at)) => at == other_at && a.len() == b.len(),
                    // Equal bytes at two places are rare enough to be looked at; unequal ones differ early.
                    (None, None) => address(a) == address(b) || a == b,
                    _ => false,
                }
            }
            (Data::Seeded(a), Data::Seeded(b)) => a == b,
            // A seeded literal is never compared by content, so that no comparison makes its elements.
            _ => false,
        }
    }
}

impl fmt::Debug for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.ty())?;
        if let Some(Seeded { seed, low, high }) = self.as_seeded() {
            return write!(f, " {{seed {seed}, {low:?} to {high:?}}}");
        }
        if self.count() > 16 {
            return f.write_str(" {…}");
        }
        let element =
            |k| if self.dtype.class() == Class::Float { format!("{}", self.float(k)) } else { self.int(k).to_string() };
        write!(f, " {{{}}}", (0..self.count()).map(element).collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn the_byte_count_must_fit() {
        assert!(Literal::new(DType::F32, [2, 2], vec![0; 15]).is_err());
        assert!(Literal::new(DType::F32, [1 << 40, 1 << 40], vec![]).is_err());
        assert!(Literal::new(DType::F32, [0, 1 << 40, 1 << 40], vec![]).is_ok());
    }

    #[test]
    fn elements_survive() {
        for &dtype in DType::ALL {
            // Five elements end within a byte of the narrow types; scales have no 0.
            let zero = if dtype == DType::F8E8M0 { 0.5 } else { 0.0 };
            let values = [zero, 1.0, 1.0, zero, 1.0];
            let literal = Literal::from_f64s(dtype, [5], &values).unwrap();
            assert_eq!(literal.to_f64s(), values, "{dtype}");
            assert_eq!(literal.to_ints(), [0, 1, 1, 0, 1], "{dtype}");
            assert!(!literal.is_splat());
            assert!(Literal::from_ints(dtype, [3], &[1; 3]).unwrap().is_splat(), "{dtype}");
        }
        let negative = Literal::from_ints(DType::I4, [3], &[-8, 7, -1]).unwrap();
        assert_eq!((negative.to_ints(), &negative.bytes()[..]), (vec![-8, 7, -1], &[0x78, 0x0f][..]));
        let large = Literal::from_ints(DType::U64, [1], &[-1]).unwrap();
        assert_eq!(large.float(0), u64::MAX as f64);
    }
    #[test]
    fn seeded_elements_are_the_same_however_they_are_read() {
        for &dtype in DType::ALL {
            let seeded = Seeded { seed: 11, low: 1.0, high: 1.0 };
            let seeded = if dtype.is_float() { Seeded { low: 0.5, ..seeded } } else { seeded };
            let drawn = Literal::seeded(dtype, [3, 7], seeded).unwrap();
            let stored = Literal::new(dtype, [3, 7], drawn.bytes()).unwrap();
            assert_eq!(drawn.byte_count(), stored.byte_count());
            assert_eq!((drawn.to_f64s(), drawn.to_ints()), (stored.to_f64s(), stored.to_ints()), "{dtype}");
            let singly: Vec<(u64, f64)> = (0..21).map(|k| (drawn.bits(k), drawn.float(k))).collect();
            assert_eq!(singly, (0..21).map(|k| (stored.bits(k), stored.float(k))).collect::<Vec<_>>(), "{dtype}");
            assert_eq!(drawn.is_splat(), !dtype.is_float());
        }
    }

    #[test]
    fn seeded_literals_are_known_by_their_seed() {
        let seeded = Seeded { seed: 5, low: -1.0, high: 1.0 };
        let literal = |seeded| Literal::seeded(DType::F32, [4, 6], seeded).unwrap();
        assert_eq!(literal(seeded), literal(seeded));
        assert_ne!(literal(seeded), literal(Seeded { seed: 6, ..seeded }));
        assert_ne!(literal(seeded), literal(Seeded { high: 2.0, ..seeded }));
        assert_ne!(literal(seeded), Literal::new(DType::F32, [4, 6], literal(seeded).bytes()).unwrap());
        let flat = literal(seeded).reshaped([24]).unwrap();
        assert_eq!((flat.as_seeded(), flat.to_f64s()), (Some(seeded), literal(seeded).to_f64s()));
        assert!(literal(seeded).reshaped([25]).is_err());
    }

    #[test]
    fn seeded_sizes_are_limited_and_take_no_memory() {
        let seeded = Seeded { seed: 5, low: -1.0, high: 1.0 };
        let sized = |sizes: &[usize]| Literal::seeded(DType::F32, sizes, seeded);
        assert_eq!(sized(&[1 << 60]).unwrap_err().kind(), Kind::Limit);
        assert_eq!(sized(&[1 << 31, 1 << 31]).unwrap_err().kind(), Kind::Limit);
        assert_eq!(sized(&[1 << 33]).unwrap_err().kind(), Kind::Limit);
        let large = sized(&[1 << 16, 1 << 16]).unwrap();
        assert_eq!((large.byte_count(), large.is_splat(), large == large.clone()), (16 << 30, false, true));
        assert!((-1.0..=1.0).contains(&large.float((1 << 32) - 1)));
    }
}
