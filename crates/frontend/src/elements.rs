//! What every format of stored tensors needs: declared sizes checked before use, stored elements made canonical.

use bytes::Bytes;
use fuseline::error::{Error, Result};
use fuseline::tensor::{DType, Shape};

/// The sizes that a file declares, with what they amount to; nothing has been allocated for the elements yet.
#[derive(Debug)]
pub struct Extent {
    pub sizes: Vec<usize>,
    pub count: usize,
    pub bytes: usize,
}

/// Refuses negative sizes, too many axes and element counts that no memory holds.
pub fn extent(dtype: DType, dims: &[i64]) -> Result<Extent> {
    Shape::new(dims.iter().copied()).check()?;
    let sizes: Option<Vec<usize>> = dims.iter().map(|n| usize::try_from(*n).ok()).collect();
    let sizes = sizes.ok_or_else(|| Error::limit(format!("sizes {dims:?} exceed the address space")))?;
    let count: usize = sizes.iter().product();
    let bytes = dtype.bytes(count).expect("a checked shape has below 2^48 elements");
    Ok(Extent { sizes, count, bytes })
}

/// The same elements in the form that a literal wants: a truth value is 0 or 1, though files may hold any byte.
/// Other types pass through; bytes are copied only if some have to change.
pub fn canonical(dtype: DType, bytes: Bytes) -> Bytes {
    if dtype != DType::Bool || bytes.iter().all(|b| *b <= 1) {
        return bytes;
    }
    bytes.iter().map(|b| u8::from(*b != 0)).collect()
}

#[cfg(test)]
mod tests {
    use fuseline::error::Kind;

    use super::*;

    #[test]
    fn sizes_are_checked() {
        let ok = extent(DType::F16, &[2, 3]).unwrap();
        assert_eq!((ok.sizes, ok.count, ok.bytes), (vec![2, 3], 6, 12));
        assert_eq!(extent(DType::F64, &[]).unwrap().bytes, 8);
        assert_eq!(extent(DType::F64, &[7, 0]).unwrap().bytes, 0);
        assert_eq!(extent(DType::F64, &[0, -1]).unwrap_err().kind(), Kind::Invalid);
        assert_eq!(extent(DType::F64, &[i64::MIN]).unwrap_err().kind(), Kind::Invalid);
        assert_eq!(extent(DType::U8, &[1 << 60]).unwrap_err().kind(), Kind::Limit);
        assert_eq!(extent(DType::U8, &[1 << 32, 1 << 32]).unwrap_err().kind(), Kind::Limit);
        assert_eq!(extent(DType::U8, &[i64::MAX, i64::MAX]).unwrap_err().kind(), Kind::Limit);
        assert_eq!(extent(DType::U8, &[1; 65]).unwrap_err().kind(), Kind::Limit);
    }

    #[test]
    fn truth_values_become_zero_or_one() {
        assert_eq!(canonical(DType::Bool, Bytes::from_static(&[0, 1, 2, 255])), &[0, 1, 1, 1][..]);
        let plain = Bytes::from_static(&[0, 1, 1]);
        assert_eq!(canonical(DType::Bool, plain.clone()).as_ptr(), plain.as_ptr());
        let numbers = Bytes::from_static(&[2, 3]);
        assert_eq!(canonical(DType::U8, numbers.clone()).as_ptr(), numbers.as_ptr());
    }
}
