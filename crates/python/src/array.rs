//! NumPy arrays in: their memory is read where it lies.
#![allow(unsafe_code, reason = "NumPy's memory is read by its address")]

use bytes::Bytes;
use fuseline::error::{Error, Result};
use fuseline::tensor::{DType, Literal};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::error::{About, exception};

/// Memory that a Python object keeps alive.
struct Borrowed {
    start: *const u8,
    length: usize,
    _owner: Py<PyAny>,
}

// SAFETY: the memory is only read, from whichever thread; its owner is a reference-counted object that can be dropped on any thread.
unsafe impl Send for Borrowed {}

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the owner told that so many bytes lie there, and lives as long as this. Python code that writes an array while a
        // run reads it gets the result of some mixture, as with every runtime that copies nothing: the bytes are plain numbers, for
        // which every pattern is valid, and indices computed from them are checked where they are used.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

/// The bytes at an address, which `owner` keeps alive; nothing is read where there is nothing.
///
/// # Safety
/// `length` bytes lie at `start` as long as `owner` lives.
pub unsafe fn borrowed(start: *const u8, length: usize, owner: Py<PyAny>) -> Bytes {
    match length {
        0 => Bytes::new(),
        _ => Bytes::from_owner(Borrowed { start, length, _owner: owner }),
    }
}

/// A NumPy array as a tensor of this element type. It must be C-contiguous and have elements of the type's width in native order; the
/// Python code sees to that. Types of less than a byte have one element in every byte.
pub fn tensor(array: &Bound<'_, PyAny>, dtype: DType, place: &str) -> PyResult<Literal> {
    let interface = array.getattr("__array_interface__")?.cast_into::<PyDict>()?;
    let item = |name: &str| interface.get_item(name).map(|item| item.filter(|item| !item.is_none()));
    let refuse = |what: &str| exception(array.py(), &Error::invalid(what).at(place), About::Inputs);
    let (Some(data), Some(shape), Some(kind)) = (item("data")?, item("shape")?, item("typestr")?) else {
        return Err(refuse("an array without memory, shape or type"));
    };
    if item("strides")?.is_some() {
        return Err(refuse("an array that is not contiguous"));
    }
    let (address, _is_read_only): (usize, bool) = data.cast_into::<PyTuple>()?.extract()?;
    let sizes: Vec<usize> = shape.extract()?;
    let kind: String = kind.extract()?;
    let width = dtype.bits().div_ceil(8);
    let is_native = kind.starts_with(['|', if cfg!(target_endian = "little") { '<' } else { '>' }]);
    if !is_native || kind.get(2..) != Some(width.to_string().as_str()) || kind[1..].starts_with('O') {
        return Err(refuse(&format!("an array of elements {kind} where {dtype} is wanted")));
    }
    let length = sizes.iter().try_fold(width, |all, size| all.checked_mul(*size));
    let length = length.ok_or_else(|| refuse("an array that is larger than memory"))?;
    let start = std::ptr::with_exposed_provenance(address);
    // SAFETY: a contiguous array has its elements there, and the array is kept.
    let bytes = unsafe { borrowed(start, length, array.clone().unbind()) };
    literal(dtype, sizes, bytes).map_err(|error| exception(array.py(), &error.at(place), About::Inputs))
}

/// A tensor of elements that are at least a byte each.
pub fn literal(dtype: DType, sizes: Vec<usize>, bytes: Bytes) -> Result<Literal> {
    match dtype.bits() {
        8.. => Literal::new(dtype, sizes, bytes),
        _ => Literal::from_bits(dtype, sizes, bytes.iter().map(|byte| u64::from(*byte))),
    }
}
