//! The GPU's driver: its functions, looked for when they are asked for, and errors that say what was refused.
#![allow(unsafe_code, reason = "functions of a library that is loaded at run time")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use fuseline::error::{Error, Result};
use libloading::Library;

/// Names under which the system may have the library.
const NAMES: &[&str] = &["libcuda.so.1", "libcuda.so", "nvcuda.dll"];

/// What functions of the driver return: 0 where all went well.
pub(crate) type Status = c_int;
/// An address in the memory of a device.
pub(crate) type DevicePtr = u64;
/// Something that the driver made and knows by this.
pub(crate) type Handle = *mut c_void;

/// Attributes of a device, as `cuda.h` numbers them.
pub(crate) mod attribute {
    use std::ffi::c_int;
    pub const CORES: c_int = 16;
    pub const THREADS_OF_CORE: c_int = 39;
    pub const CAPABILITY_MAJOR: c_int = 75;
    pub const CAPABILITY_MINOR: c_int = 76;
    pub const SHARED_OF_BLOCK: c_int = 97;
}

/// Attributes of a function.
pub(crate) mod function_attribute {
    use std::ffi::c_int;
    pub const SHARED_BYTES: c_int = 1;
    pub const LOCAL_BYTES: c_int = 3;
    pub const REGISTERS: c_int = 4;
    pub const MOST_DYNAMIC_SHARED: c_int = 8;
}

/// Captures of a stream do not mind what other threads do.
pub(crate) const CAPTURE_RELAXED: c_int = 2;
/// A stream that does not wait for the default one.
pub(crate) const STREAM_NON_BLOCKING: c_uint = 1;
/// The default stream, in which libraries work that say nothing else.
pub(crate) const STREAM_LEGACY: Handle = std::ptr::without_provenance_mut(1);
/// An event that says when, but not how long.
pub(crate) const EVENT_NO_TIMING: c_uint = 2;

/// A launch, as `cuda.h` describes it.
#[repr(C)]
pub(crate) struct LaunchConfig {
    pub blocks: [c_uint; 3],
    pub threads: [c_uint; 3],
    pub shared: c_uint,
    pub stream: Handle,
    pub attributes: *const LaunchAttribute,
    pub attribute_count: c_uint,
}

/// An attribute of a launch: a number that says which, and a value in a place of 64 bytes.
#[repr(C)]
pub(crate) struct LaunchAttribute {
    pub id: c_int,
    _padding: c_int,
    pub value: [u64; 8],
}

impl LaunchAttribute {
    /// The launch may begin before the one before it has ended; it waits by itself.
    pub const EARLY: LaunchAttribute = LaunchAttribute { id: 6, _padding: 0, value: [1, 0, 0, 0, 0, 0, 0, 0] };
}

/// A matrix as the engine for copies sees it: a kernel takes it as an argument.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TensorMap([u64; 16]);

macro_rules! functions {
    ($($name:ident = $symbol:literal ($($ty:ty),*);)+) => {
        /// The functions of the driver that are used.
        pub(crate) struct Driver {
            $(pub $name: unsafe extern "C" fn($($ty),*) -> Status,)+
            // Dropped last: the functions point into it.
            _library: Library,
        }

        impl Driver {
            /// # Safety
            ///
            /// The library must be the driver.
            unsafe fn of(library: Library) -> std::result::Result<Driver, libloading::Error> {
                // SAFETY: the types are those of cuda.h.
                unsafe { Ok(Driver { $($name: *library.get($symbol)?,)+ _library: library }) }
            }
        }
    };
}

functions! {
    init = b"cuInit" (c_uint);
    version = b"cuDriverGetVersion" (*mut c_int);
    error_name = b"cuGetErrorName" (Status, *mut *const c_char);
    error_string = b"cuGetErrorString" (Status, *mut *const c_char);
    device_count = b"cuDeviceGetCount" (*mut c_int);
    device_get = b"cuDeviceGet" (*mut c_int, c_int);
    device_name = b"cuDeviceGetName" (*mut c_char, c_int, c_int);
    device_attribute = b"cuDeviceGetAttribute" (*mut c_int, c_int, c_int);
    device_memory = b"cuDeviceTotalMem_v2" (*mut usize, c_int);
    context_retain = b"cuDevicePrimaryCtxRetain" (*mut Handle, c_int);
    context_release = b"cuDevicePrimaryCtxRelease_v2" (c_int);
    context_set = b"cuCtxSetCurrent" (Handle);
    alloc = b"cuMemAlloc_v2" (*mut DevicePtr, usize);
    free = b"cuMemFree_v2" (DevicePtr);
    host_alloc = b"cuMemHostAlloc" (*mut *mut c_void, usize, c_uint);
    host_free = b"cuMemFreeHost" (*mut c_void);
    copy_in = b"cuMemcpyHtoDAsync_v2" (DevicePtr, *const c_void, usize, Handle);
    copy_out = b"cuMemcpyDtoHAsync_v2" (*mut c_void, DevicePtr, usize, Handle);
    copy = b"cuMemcpyDtoDAsync_v2" (DevicePtr, DevicePtr, usize, Handle);
    fill = b"cuMemsetD8Async" (DevicePtr, u8, usize, Handle);
    stream_create = b"cuStreamCreate" (*mut Handle, c_uint);
    stream_destroy = b"cuStreamDestroy_v2" (Handle);
    stream_wait = b"cuStreamWaitEvent" (Handle, Handle, c_uint);
    stream_synchronize = b"cuStreamSynchronize" (Handle);
    capture_begin = b"cuStreamBeginCapture_v2" (Handle, c_int);
    capture_end = b"cuStreamEndCapture" (Handle, *mut Handle);
    graph_instantiate = b"cuGraphInstantiateWithFlags" (*mut Handle, Handle, u64);
    graph_launch = b"cuGraphLaunch" (Handle, Handle);
    graph_destroy = b"cuGraphDestroy" (Handle);
    graph_exec_destroy = b"cuGraphExecDestroy" (Handle);
    module_load = b"cuModuleLoadData" (*mut Handle, *const c_void);
    module_unload = b"cuModuleUnload" (Handle);
    module_function = b"cuModuleGetFunction" (*mut Handle, Handle, *const c_char);
    function_attribute = b"cuFuncGetAttribute" (*mut c_int, c_int, Handle);
    function_set = b"cuFuncSetAttribute" (Handle, c_int, c_int);
    occupancy = b"cuOccupancyMaxActiveBlocksPerMultiprocessor" (*mut c_int, Handle, c_int, usize);
    launch_with = b"cuLaunchKernelEx" (*const LaunchConfig, Handle, *mut *mut c_void, *mut *mut c_void);
    launch = b"cuLaunchKernel" (Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void);
    tensor_map = b"cuTensorMapEncodeTiled" (*mut TensorMap, c_int, c_uint, DevicePtr, *const u64, *const u64, *const c_uint, *const c_uint, c_int, c_int, c_int, c_int);
    event_create = b"cuEventCreate" (*mut Handle, c_uint);
    event_destroy = b"cuEventDestroy_v2" (Handle);
    event_record = b"cuEventRecord" (Handle, Handle);
    event_synchronize = b"cuEventSynchronize" (Handle);
    event_elapsed = b"cuEventElapsedTime" (*mut f32, Handle, Handle);
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the CUDA driver")
    }
}

impl Driver {
    /// The driver, started.
    pub fn find() -> Result<Driver> {
        let mut reason = String::new();
        for name in NAMES {
            // SAFETY: the driver does nothing when it is loaded that could go wrong here.
            let found = unsafe { Library::new(*name) };
            // SAFETY: it is called as the driver is.
            match found.and_then(|library| unsafe { Driver::of(library) }) {
                Ok(driver) => {
                    // SAFETY: it takes flags, of which there are none.
                    driver.check(unsafe { (driver.init)(0) }, "cuInit")?;
                    return Ok(driver);
                }
                Err(error) if reason.is_empty() => reason = error.to_string(),
                Err(_) => {}
            }
        }
        let help = "install NVIDIA's driver, or give the container its GPU";
        Err(Error::unsupported(format!("there is no NVIDIA driver here ({reason}); {help}")))
    }

    /// An error where the driver refused something.
    pub fn check(&self, status: Status, what: &str) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        let text = |get: unsafe extern "C" fn(Status, *mut *const c_char) -> Status| {
            let mut text = std::ptr::null();
            // SAFETY: a place for a pointer to a constant text, which is null where there is none.
            match unsafe { get(status, &mut text) } {
                // SAFETY: the driver has set it.
                0 if !text.is_null() => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
                _ => format!("error {status}"),
            }
        };
        let (name, meaning) = (text(self.error_name), text(self.error_string));
        let message = format!("{what}: {meaning} ({name})");
        Err(if name == "CUDA_ERROR_OUT_OF_MEMORY" { Error::exhausted(message) } else { Error::bug(message) })
    }
}
