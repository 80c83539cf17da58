//! Results: memory of ours that Python owns.
#![allow(unsafe_code, reason = "the memory of a result is handed to Python by its address")]

use bytes::{Bytes, BytesMut};
use fuseline::error::Result;
use fuseline::tensor::{Class, DType, Literal};
use fuseline_cpu::run::Owned;
use fuseline_session::{DeviceTensor, Output};
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict, PyTuple};

use crate::dlpack;
use crate::error::{About, work};

/// A dense tensor in main memory or in that of a GPU. It speaks DLPack, so that ``torch.from_dlpack(tensor)`` shares its memory, and is an
/// array for NumPy where NumPy has the element type; for that, a tensor on a GPU is copied.
#[pyclass(frozen, module = "fuseline")]
#[derive(Debug)]
pub struct Tensor {
    dtype: DType,
    sizes: Vec<usize>,
    memory: Memory,
}

#[derive(Debug)]
enum Memory {
    Block(Owned),
    /// Written by nobody in Rust: Python code has the address.
    Bytes(BytesMut),
    Device(DeviceTensor),
}

impl Tensor {
    pub fn new(output: Output) -> Result<Tensor> {
        Ok(match output {
            Output::Resident(tensor) if tensor.dtype().bits() >= 8 => {
                Tensor { dtype: tensor.dtype(), sizes: tensor.sizes().to_vec(), memory: Memory::Device(tensor) }
            }
            // Elements of less than a byte are handed on in whole ones, which nothing of the device makes.
            Output::Resident(tensor) => Tensor::new(Output::Copied(tensor.literal()?))?,
            Output::Owned(owned) if owned.dtype().bits() >= 8 => {
                Tensor { dtype: owned.dtype(), sizes: owned.sizes().to_vec(), memory: Memory::Block(owned) }
            }
            Output::Owned(owned) => {
                let (dtype, sizes) = (owned.dtype(), owned.sizes().to_vec());
                // SAFETY: the result has so many bytes.
                let packed = unsafe { std::slice::from_raw_parts(owned.start(), owned.byte_count()) };
                let literal = Literal::new(dtype, sizes.clone(), Bytes::copy_from_slice(packed));
                let bytes = literal.map(|literal| unpacked(&literal)).unwrap_or_default();
                Tensor { dtype, sizes, memory: Memory::Bytes(bytes) }
            }
            Output::Copied(literal) => {
                let (dtype, sizes) = (literal.dtype(), literal.sizes().to_vec());
                let bytes = match dtype.bits() {
                    8.. => {
                        let bytes = literal.bytes();
                        drop(literal);
                        bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]))
                    }
                    _ => unpacked(&literal),
                };
                Tensor { dtype, sizes, memory: Memory::Bytes(bytes) }
            }
        })
    }

    /// Where it begins, in the memory of its device.
    pub fn start(&self) -> *mut u8 {
        match &self.memory {
            Memory::Block(owned) => owned.start(),
            Memory::Bytes(bytes) => bytes.as_ptr().cast_mut(),
            Memory::Device(tensor) => std::ptr::with_exposed_provenance_mut(tensor.at() as usize),
        }
    }

    /// The tensor on the device, if it is there.
    pub fn on_device(&self) -> Option<&DeviceTensor> {
        match &self.memory {
            Memory::Device(tensor) => Some(tensor),
            Memory::Block(_) | Memory::Bytes(_) => None,
        }
    }

    /// The kind of memory and the number of the device, as DLPack has them.
    pub fn device(&self) -> (i32, i32) {
        if self.on_device().is_some() { dlpack::GPU } else { dlpack::HOST }
    }

    pub fn element(&self) -> DType {
        self.dtype
    }

    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }
}

/// Elements of less than a byte, one in every byte, integers extended by their sign.
fn unpacked(literal: &Literal) -> BytesMut {
    let signed = literal.dtype().class() == Class::Signed;
    (0..literal.count()).map(|k| if signed { literal.int(k) as u8 } else { literal.bits(k) as u8 }).collect()
}

#[pymethods]
impl Tensor {
    /// The element type as Fuseline calls it: ``f32``, ``bf16``, ``i64``, …
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name()
    }

    /// The sizes.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.sizes)
    }

    /// How many bytes the elements have.
    #[getter]
    fn nbytes(&self) -> usize {
        self.sizes.iter().product::<usize>() * self.dtype.bits().div_ceil(8)
    }

    /// Where the elements are: ``cpu`` or ``cuda``.
    #[getter(device)]
    fn device_name(&self) -> &'static str {
        if self.on_device().is_some() { "cuda" } else { "cpu" }
    }

    /// The tensor in main memory: itself, or a copy of what is on a GPU.
    fn cpu<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        let Some(tensor) = slf.get().on_device() else { return Ok(slf.clone()) };
        let copy = work(slf.py(), About::Inputs, || Tensor::new(Output::Copied(tensor.literal()?)))?;
        Bound::new(slf.py(), copy)
    }

    /// NumPy's array interface, for elements in main memory that NumPy reads as ``typestr``.
    fn _interface<'py>(&self, py: Python<'py>, typestr: &str) -> PyResult<Bound<'py, PyDict>> {
        if self.on_device().is_some() {
            return Err(PyBufferError::new_err("the tensor is in the memory of a GPU; .cpu() copies it"));
        }
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", self.shape(py)?)?;
        interface.set_item("typestr", typestr)?;
        interface.set_item("data", (self.start().expose_provenance(), false))?;
        Ok(interface)
    }

    /// The same memory as a NumPy array; a copy where it is that of a GPU.
    fn numpy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("fuseline._arrays")?.call_method1("to_numpy", (slf,))
    }

    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if copy == Some(false) && slf.get().on_device().is_some() {
            return Err(PyValueError::new_err("a tensor in the memory of a GPU is no array without a copy"));
        }
        let array = Tensor::numpy(slf)?;
        let array = match dtype {
            Some(dtype) => array.call_method1("astype", (dtype,))?,
            None => array,
        };
        if copy == Some(true) { array.call_method0("copy") } else { Ok(array) }
    }

    /// The same memory as a DLPack capsule.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let capsule = dlpack::export(slf, max_version, dl_device, copy)?;
        if let Some(tensor) = slf.get().on_device() {
            // Runs have ended when they return: nothing need be waited for. That others are done with it, only their stream knows.
            let in_default_stream = stream.is_none_or(|stream| matches!(stream.extract(), Ok(0i64 | 1)));
            tensor.show(in_default_stream);
        }
        Ok(capsule)
    }

    /// The kind of memory and the number of the device.
    fn __dlpack_device__(&self) -> (i32, i32) {
        self.device()
    }

    fn __repr__(&self) -> String {
        let sizes: Vec<String> = self.sizes.iter().map(ToString::to_string).collect();
        let place = if self.on_device().is_some() { " on cuda" } else { "" };
        format!("fuseline.Tensor({}[{}]{place})", self.dtype, sizes.join(", "))
    }
}
