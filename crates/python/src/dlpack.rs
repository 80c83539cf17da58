//! DLPack: tensors of other libraries in, ours out, without a copy.
//!
//! The structures are those of `dlpack.h`, version 1; a capsule holds a pointer to one of them, and its name says which.
#![allow(unsafe_code, reason = "DLPack is a C structure behind a capsule")]

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use fuseline::error::Error;
use fuseline::tensor::{Class, DType, Literal};
use fuseline_session::{DeviceTensor, Gpu};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::array::{borrowed, literal};
use crate::error::{About, exception};
use crate::tensor::Tensor;

/// Main memory, device 0.
pub const HOST: (i32, i32) = (1, 0);

/// The memory of the first GPU, where sessions are.
pub const GPU: (i32, i32) = (2, 0);

const PLAIN: &CStr = c"dltensor";
const PLAIN_USED: &CStr = c"used_dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const VERSIONED_USED: &CStr = c"used_dltensor_versioned";

#[repr(C)]
#[derive(Clone, Copy)]
struct DlDevice {
    kind: i32,
    number: i32,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq)]
struct DlType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: DlDevice,
    rank: i32,
    dtype: DlType,
    sizes: *mut i64,
    /// in elements; none where the tensor is dense
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Managed {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

#[repr(C)]
struct ManagedVersioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    flags: u64,
    tensor: DlTensor,
}

/// The types of DLPack that we have: code and width. Narrower ones are packed in ways that libraries do not agree upon.
fn type_of(dtype: DType) -> Option<DlType> {
    let code = match (dtype, dtype.class()) {
        (_, _) if dtype.bits() < 8 => return None,
        (DType::BF16, _) => 4,
        (DType::F8E4M3, _) => 10,
        (DType::F8E4M3Z, _) => 11,
        (DType::F8E5M2, _) => 12,
        (DType::F8E5M2Z, _) => 13,
        (DType::F8E8M0, _) => 14,
        (_, Class::Signed) => 0,
        (_, Class::Unsigned) => 1,
        (_, Class::Float) => 2,
        (_, Class::Bool) => 6,
    };
    Some(DlType { code, bits: dtype.bits() as u8, lanes: 1 })
}

/// Whether a tensor is on the GPU of a session. Refuses what is neither there nor in main memory, before anything is exported.
fn is_on_gpu(object: &Bound<'_, PyAny>, gpu: Option<&Arc<Gpu>>, place: &str) -> PyResult<bool> {
    let device: (i32, i32) = object.call_method0("__dlpack_device__")?.extract()?;
    let (memory, help) = match (device, gpu) {
        (GPU, Some(_)) => return Ok(true),
        // 3 is main memory that a GPU can reach, 13 memory that both have.
        ((1 | 3 | 13, _), _) => return Ok(false),
        ((2, number), Some(_)) => (format!("the memory of GPU {number}"), "the session is on GPU 0; move it there"),
        ((2, number), None) => {
            let help =
                "the session is on the processor; move it there by .cpu(), or open the session with device=\"cuda\"";
            (format!("the memory of GPU {number}"), help)
        }
        ((kind, _), _) => {
            let memory = format!("the memory of another device (DLPack's kind {kind})");
            (memory, "move it to main memory, for instance by .cpu()")
        }
    };
    let message = format!("a tensor in {memory}: {help}");
    Err(exception(object.py(), &Error::unsupported(message).at(place), About::Inputs))
}

/// An input that another library gave.
pub enum Input {
    /// in main memory
    Host(Literal),
    /// in the memory of the session's GPU
    Device(DeviceTensor),
}

/// A tensor of another library, read where it lies; one in main memory that is not dense is copied.
pub fn import(object: &Bound<'_, PyAny>, wanted: DType, gpu: Option<&Arc<Gpu>>, place: &str) -> PyResult<Input> {
    let py = object.py();
    let refuse = |what: &str| exception(py, &Error::invalid(what).at(place), About::Inputs);
    let on_gpu = if is_on_gpu(object, gpu, place)? { gpu } else { None };
    if let (Some(_), Ok(own)) = (on_gpu, object.cast::<Tensor>())
        && let Some(tensor) = own.get().on_device()
        && tensor.dtype() == wanted
    {
        // Its run has ended, and nobody else need be told.
        return Ok(Input::Device(tensor.clone()));
    }
    let arguments = pyo3::types::PyDict::new(py);
    if let Some(gpu) = on_gpu {
        // What the other library does with the tensor is done before what this stream does from here on.
        arguments.set_item("stream", gpu.stream_number())?;
    }
    let plain = arguments.copy()?;
    arguments.set_item("max_version", (1, 0))?;
    let capsule = match object.call_method("__dlpack__", (), Some(&arguments)) {
        // Older libraries do not know the word.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => object.call_method("__dlpack__", (), Some(&plain)),
        other => other,
    };
    // What a library says of its own tensor, such as one with a gradient.
    let capsule = capsule.map_err(|error| {
        let refused = refuse(&format!("the tensor cannot be read: {}", error.value(py)));
        refused.set_cause(py, Some(error));
        refused
    })?;
    let owner = Imported::take(&capsule)?;
    let tensor = owner.tensor();
    let dtype = tensor.dtype;
    if type_of(wanted) != Some(dtype) {
        return Err(refuse(&format!("a tensor of {} where {wanted} is wanted", name_of(dtype))));
    }
    let rank = usize::try_from(tensor.rank).map_err(|_| refuse("a DLPack tensor with a rank below zero"))?;
    let read = |at: *mut i64| match rank {
        0 => &[][..],
        // SAFETY: DLPack has as many numbers there as the tensor has axes.
        _ => unsafe { std::slice::from_raw_parts(at.cast_const(), rank) },
    };
    let sizes: Option<Vec<usize>> = read(tensor.sizes).iter().map(|size| usize::try_from(*size).ok()).collect();
    let sizes = sizes.ok_or_else(|| refuse("a DLPack tensor with a size below zero"))?;
    let width = wanted.bits() / 8;
    let length = sizes.iter().try_fold(width, |all, size| all.checked_mul(*size));
    let length = length.ok_or_else(|| refuse("a DLPack tensor that is larger than memory"))?;
    let strides = (!tensor.strides.is_null()).then(|| read(tensor.strides).to_vec());
    let start = tensor.data.cast_const().cast::<u8>().wrapping_add(tensor.byte_offset as usize);
    let is_dense = strides.as_ref().is_none_or(|strides| is_dense(&sizes, strides));
    if let Some(gpu) = on_gpu {
        if !is_dense {
            return Err(refuse(
                "a tensor on a GPU whose elements do not lie one behind the other: give x.contiguous()",
            ));
        }
        let (at, lender) = (start.expose_provenance() as u64, Py::new(py, Keeper(owner))?);
        // SAFETY: a dense tensor has its elements there until the capsule's owner is dropped, and the keeper has it. The library was
        // told which stream reads it.
        let made = unsafe { DeviceTensor::lent(gpu, at, wanted, sizes, Box::new(lender)) };
        return made.map(Input::Device).map_err(|error| exception(py, &error.at(place), About::Inputs));
    }
    let made = match strides {
        Some(strides) if !is_dense => {
            // SAFETY: the elements lie at the strides that the tensor has.
            let bytes = unsafe { gathered(start, width, &sizes, &strides, length) };
            literal(wanted, sizes, bytes.into())
        }
        _ => {
            let keeper = Py::new(py, Keeper(owner))?.into_any();
            // SAFETY: a dense tensor has its elements there until the capsule's owner is dropped, and the keeper has it.
            literal(wanted, sizes, unsafe { borrowed(start, length, keeper) })
        }
    };
    made.map(Input::Host).map_err(|error| exception(py, &error.at(place), About::Inputs))
}

fn name_of(dtype: DlType) -> String {
    let ours = DType::ALL.iter().find(|ours| type_of(**ours) == Some(dtype));
    ours.map_or_else(
        || format!("elements of DLPack's type {} with {} bits", dtype.code, dtype.bits),
        |d| d.name().into(),
    )
}

/// Whether elements lie one behind the other, the last axis fastest.
fn is_dense(sizes: &[usize], strides: &[i64]) -> bool {
    if sizes.contains(&0) {
        return true;
    }
    let mut step = 1;
    for (size, stride) in sizes.iter().zip(strides).rev() {
        if *size != 1 && *stride != step {
            return false;
        }
        step = step.saturating_mul(i64::try_from(*size).unwrap_or(i64::MAX));
    }
    true
}

/// The elements in row-major order.
///
/// # Safety
/// At every position of `sizes`, an element of `width` bytes lies at the strides behind `start`.
unsafe fn gathered(start: *const u8, width: usize, sizes: &[usize], strides: &[i64], length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length);
    let mut position = vec![0; sizes.len()];
    while bytes.len() < length {
        let offset: i64 = position.iter().zip(strides).map(|(at, stride)| *at as i64 * stride).sum();
        // SAFETY: as the caller says.
        let element =
            unsafe { std::slice::from_raw_parts(start.wrapping_offset(offset as isize * width as isize), width) };
        bytes.extend_from_slice(element);
        for (at, size) in position.iter_mut().zip(sizes).rev() {
            *at += 1;
            if *at < *size {
                break;
            }
            *at = 0;
        }
    }
    bytes
}

/// Keeps another library's tensor alive as a Python object, since that is what borrowed memory has.
#[pyclass(frozen)]
struct Keeper(#[expect(dead_code, reason = "dropping it is its use")] Imported);

/// What a capsule held; given back when it is dropped.
enum Imported {
    Plain(*mut Managed),
    Versioned(*mut ManagedVersioned),
}

// SAFETY: DLPack's deleters may be called from any thread that has the interpreter, and `Keeper` is dropped by it.
unsafe impl Send for Imported {}
// SAFETY: nothing is written through it, and what is read does not change.
unsafe impl Sync for Imported {}

impl Imported {
    /// Takes the content of a capsule, which is used up.
    fn take(capsule: &Bound<'_, PyAny>) -> PyResult<Imported> {
        // SAFETY: these functions look at what kind of object they get; the pointer of a capsule of this name is a tensor of this
        // layout, and whoever renames the capsule has it.
        unsafe {
            let object = capsule.as_ptr();
            if ffi::PyCapsule_IsValid(object, VERSIONED.as_ptr()) == 1 {
                let managed = ffi::PyCapsule_GetPointer(object, VERSIONED.as_ptr()).cast::<ManagedVersioned>();
                if (*managed).major != 1 {
                    return Err(PyBufferError::new_err("a DLPack tensor of a version other than 1"));
                }
                ffi::PyCapsule_SetName(object, VERSIONED_USED.as_ptr());
                return Ok(Imported::Versioned(managed));
            }
            if ffi::PyCapsule_IsValid(object, PLAIN.as_ptr()) == 1 {
                let managed = ffi::PyCapsule_GetPointer(object, PLAIN.as_ptr()).cast::<Managed>();
                ffi::PyCapsule_SetName(object, PLAIN_USED.as_ptr());
                return Ok(Imported::Plain(managed));
            }
        }
        Err(PyBufferError::new_err("__dlpack__ returned something that is no DLPack capsule"))
    }

    fn tensor(&self) -> &DlTensor {
        // SAFETY: the tensor is ours until it is given back.
        unsafe {
            match self {
                Imported::Plain(managed) => &(**managed).tensor,
                Imported::Versioned(managed) => &(**managed).tensor,
            }
        }
    }
}

impl Drop for Imported {
    fn drop(&mut self) {
        // SAFETY: given back once, as DLPack wants it.
        unsafe {
            match self {
                Imported::Plain(managed) => {
                    if let Some(deleter) = (**managed).deleter {
                        deleter(*managed);
                    }
                }
                Imported::Versioned(managed) => {
                    if let Some(deleter) = (**managed).deleter {
                        deleter(*managed);
                    }
                }
            }
        }
    }
}

/// What an exported tensor keeps.
struct Exported {
    sizes: Vec<i64>,
    strides: Vec<i64>,
    _owner: Py<Tensor>,
}

/// A capsule with a tensor of ours.
pub fn export<'py>(
    tensor: &Bound<'py, Tensor>,
    max_version: Option<(u32, u32)>,
    device: Option<(i32, i32)>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let refuse = |what: String| Err(PyBufferError::new_err(what));
    let own = tensor.get().device();
    if device.is_some_and(|device| device != own) {
        let (memory, help) =
            if own == HOST { ("main memory", "") } else { ("the memory of a GPU", "; .cpu() copies it") };
        return refuse(format!("the tensor is in {memory}, and is not copied to another device{help}"));
    }
    if copy == Some(true) {
        return refuse("the tensor is shared, not copied".into());
    }
    let Some(dtype) = type_of(tensor.get().element()) else {
        return refuse(format!("DLPack has no elements {} that libraries agree upon", tensor.get().element()));
    };
    let sizes: Vec<i64> = tensor.get().sizes().iter().map(|size| *size as i64).collect();
    let mut strides = vec![1; sizes.len()];
    for axis in (1..sizes.len()).rev() {
        strides[axis - 1] = strides[axis] * sizes[axis].max(1);
    }
    let mut kept = Box::new(Exported { sizes, strides, _owner: tensor.clone().unbind() });
    let content = DlTensor {
        data: tensor.get().start().cast(),
        device: DlDevice { kind: own.0, number: own.1 },
        rank: kept.sizes.len() as i32,
        dtype,
        sizes: kept.sizes.as_mut_ptr(),
        strides: kept.strides.as_mut_ptr(),
        byte_offset: 0,
    };
    let context = Box::into_raw(kept).cast::<c_void>();
    let capsule = if max_version.is_some_and(|(major, _)| major >= 1) {
        let deleter = Some(delete_versioned as unsafe extern "C" fn(*mut ManagedVersioned));
        let managed = ManagedVersioned { major: 1, minor: 0, context, deleter, flags: 0, tensor: content };
        // SAFETY: the capsule takes the pointer; who consumes it, or else the capsule, calls the deleter.
        unsafe {
            let at = Box::into_raw(Box::new(managed)).cast();
            ffi::PyCapsule_New(at, VERSIONED.as_ptr(), Some(drop_capsule))
        }
    } else {
        let deleter = Some(delete_plain as unsafe extern "C" fn(*mut Managed));
        let managed = Managed { tensor: content, context, deleter };
        // SAFETY: as above.
        unsafe {
            let at = Box::into_raw(Box::new(managed)).cast();
            ffi::PyCapsule_New(at, PLAIN.as_ptr(), Some(drop_capsule))
        }
    };
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(tensor.py(), capsule) }
}

/// Ends what nobody consumed.
unsafe extern "C" fn drop_capsule(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this once for a capsule of ours; one that was consumed has another name.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, PLAIN.as_ptr()) == 1 {
            delete_plain(ffi::PyCapsule_GetPointer(capsule, PLAIN.as_ptr()).cast());
        } else if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) == 1 {
            delete_versioned(ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast());
        }
    }
}

unsafe extern "C" fn delete_plain(managed: *mut Managed) {
    // SAFETY: made by `export`, and deleted once.
    unsafe { forget(Box::from_raw(managed).context) };
}

unsafe extern "C" fn delete_versioned(managed: *mut ManagedVersioned) {
    // SAFETY: as above.
    unsafe { forget(Box::from_raw(managed).context) };
}

/// Drops what an exported tensor kept, as the interpreter wants it: libraries call deleters from any thread. Where there is no interpreter any
/// more, the process ends and nothing needs to be freed.
///
/// # Safety
/// The pointer is that of an `Exported`, which nobody else has.
unsafe fn forget(context: *mut c_void) {
    // SAFETY: as the caller says.
    Python::try_attach(|_| drop(unsafe { Box::from_raw(context.cast::<Exported>()) }));
}
