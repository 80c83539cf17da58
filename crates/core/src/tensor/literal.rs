//! Tensors with data: constants of a graph, inputs and outputs of a run.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;

use super::shape::element_count;
use super::{Class, DType, Shape, TensorType};
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
    bytes: Bytes,
    source: Option<Source>,
}

/// Literals up to this size are compared and hashed by content, larger ones by where their bytes come from; the content
/// of larger ones that come from nowhere is compared too, but not hashed.
const CONTENT_LIMIT: usize = 64 << 10;

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
        Ok(Literal { dtype, sizes, bytes, source: None })
    }

    /// The same literal, known to come from a file.
    pub fn with_source(mut self, source: Source) -> Literal {
        self.source = Some(source);
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
        let bits = dtype.bits();
        let mut bytes = Vec::with_capacity(dtype.bytes(elements.size_hint().0).unwrap_or(0));
        for (k, element) in elements.enumerate() {
            let element = element & (u64::MAX >> (64 - bits));
            match (bytes.last_mut(), k * bits % 8) {
                (Some(byte), shift @ 1..) => *byte |= (element << shift) as u8,
                _ => bytes.extend(&element.to_le_bytes()[..bits.div_ceil(8)]),
            }
        }
        Literal::new(dtype, sizes, bytes)
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
        let source = self.source.clone();
        let literal = Literal::new(self.dtype, sizes, self.bytes)?;
        Ok(Literal { source, ..literal })
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

    /// The raw little-endian bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Where the bytes come from, if they come from a file.
    pub fn source(&self) -> Option<&Source> {
        self.source.as_ref()
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
            DType::Bool | DType::U8 => i64::from(self.bytes[k]),
            DType::I8 => i64::from(self.bytes[k] as i8),
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
        match self.dtype.bits() {
            64 => u64::from_le_bytes(self.raw(k)),
            32 => u64::from(u32::from_le_bytes(self.raw(k))),
            16 => u64::from(u16::from_le_bytes(self.raw(k))),
            bits => u64::from(self.bytes[k * bits / 8] >> (k * bits % 8)) & (u64::MAX >> (64 - bits)),
        }
    }

    /// The elements from `start` on as floats.
    pub fn read_f64s(&self, start: usize, out: &mut [f64]) {
        match self.dtype {
            DType::F32 => {
                let words = self.bytes[start * 4..(start + out.len()) * 4].chunks_exact(4);
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

    /// Whether every element has the bits of the first (at least one element).
    pub fn is_splat(&self) -> bool {
        if self.dtype.bits() < 8 {
            return self.count() > 0 && (1..self.count()).all(|k| self.bits(k) == self.bits(0));
        }
        let width = self.dtype.bits() / 8;
        self.count() > 0 && self.bytes.chunks_exact(width).all(|b| b == &self.bytes[..width])
    }

    fn raw<const N: usize>(&self, k: usize) -> [u8; N] {
        self.bytes[k * N..(k + 1) * N].try_into().expect("a slice of N bytes")
    }

    /// Whether identity is decided by content.
    fn is_small(&self) -> bool {
        self.bytes.len() <= CONTENT_LIMIT
    }

    fn address(&self) -> (usize, usize) {
        (self.bytes.as_ptr() as usize, self.bytes.len())
    }
}

impl PartialEq for Literal {
    fn eq(&self, other: &Literal) -> bool {
        let same_bytes = || match (&self.source, &other.source) {
            _ if self.is_small() => self.bytes == other.bytes,
            (Some(a), Some(b)) => a == b && self.bytes.len() == other.bytes.len(),
            // Equal bytes at two places are rare enough to be looked at; unequal ones differ early.
            (None, None) => self.address() == other.address() || self.bytes == other.bytes,
            _ => false,
        };
        self.dtype == other.dtype && self.sizes == other.sizes && same_bytes()
    }
}

impl Eq for Literal {}

impl Hash for Literal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.dtype.hash(state);
        self.sizes.hash(state);
        if self.is_small() {
            self.bytes.hash(state);
        } else {
            // Equal large literals have equal lengths; where they come from is left to `eq`.
            self.bytes.len().hash(state);
            self.source.hash(state);
        }
    }
}

impl fmt::Debug for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.ty())?;
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
}
