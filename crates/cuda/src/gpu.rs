//! A GPU: its one stream of work, copies, code that was loaded into it.
#![allow(unsafe_code, reason = "the driver is called with pointers")]

use std::cell::Cell;
use std::ffi::{CString, c_int, c_void};
use std::sync::{Arc, Mutex};

use fuseline::error::{Error, Result};

use crate::driver::{
    CAPTURE_RELAXED, DevicePtr, Driver, Handle, LaunchAttribute, LaunchConfig, STREAM_NON_BLOCKING, TensorMap,
    attribute, function_attribute,
};
use crate::memory::Free;

/// A GPU with a stream of its own. Work is done in the order in which it is asked for.
pub struct Gpu {
    driver: Driver,
    device: c_int,
    context: Handle,
    stream: Handle,
    pub(crate) free: Mutex<Free>,
    /// whether every launch is waited for, as the driver's own variable says
    pub(crate) is_blocking: bool,
    /// what it is
    pub description: Description,
}

/// The variable of the environment by which launches are done one by one, so that what goes wrong has a name.
pub(crate) const BLOCKING: &str = "CUDA_LAUNCH_BLOCKING";

thread_local! {
    /// The stream that this thread records; null where it does not. The stream of work is never recorded: other threads use it, and so do
    /// other libraries that were told to have it wait for them.
    static RECORDED: Cell<Handle> = const { Cell::new(std::ptr::null_mut()) };
}

/// What is known of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// its name
    pub name: String,
    /// its compute capability
    pub capability: (i32, i32),
    /// multiprocessors
    pub cores: i32,
    /// threads that a multiprocessor holds
    pub threads: i32,
    /// bytes of memory
    pub memory: usize,
    /// bytes of shared memory that a block may have
    pub shared: usize,
    /// the version of CUDA that the driver knows
    pub driver: (i32, i32),
}

impl Description {
    /// The architecture that kernels are compiled for.
    pub fn architecture(&self) -> String {
        let (major, minor) = self.capability;
        format!("sm_{major}{minor}{}", if major >= 9 { "a" } else { "" })
    }
}

// SAFETY: the driver may be called from any thread; what is kept beside it is locked or never changed.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.description.fmt(f)
    }
}

/// Bytes that are copied at once: 512 MiB took the driver of an H200 391 µs, 500 MiB 248.
const COPIED: usize = 256 << 20;

impl Gpu {
    /// How many there are; an error says why none can be used.
    pub fn count() -> Result<i32> {
        let driver = Driver::find()?;
        let mut count = 0;
        // SAFETY: a place for a number.
        driver.check(unsafe { (driver.device_count)(&mut count) }, "counting devices")?;
        Ok(count)
    }

    /// The GPU with a number.
    pub fn open(number: i32) -> Result<Arc<Gpu>> {
        let driver = Driver::find()?;
        let mut device = 0;
        // SAFETY: a place for a number.
        driver.check(unsafe { (driver.device_get)(&mut device, number) }, "finding the device")?;
        let description = describe(&driver, device)?;
        let (mut context, mut stream) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: places for handles; the context is current before a stream is made in it.
        unsafe {
            driver.check((driver.context_retain)(&mut context, device), "starting the device")?;
            driver.check((driver.context_set)(context), "entering the device")?;
            driver.check((driver.stream_create)(&mut stream, STREAM_NON_BLOCKING), "making a stream")?;
        }
        let is_blocking = std::env::var_os(BLOCKING).is_some_and(|value| value != "0");
        Ok(Arc::new(Gpu { driver, device, context, stream, free: Mutex::default(), is_blocking, description }))
    }

    /// The driver, with the device as this thread's.
    pub(crate) fn enter(&self) -> Result<&Driver> {
        // SAFETY: the context was made by the driver and is kept.
        self.driver.check(unsafe { (self.driver.context_set)(self.context) }, "entering the device")?;
        Ok(&self.driver)
    }

    /// Makes the device this thread's, for libraries that ask the driver.
    pub(crate) fn make_current(&self) -> Result<()> {
        self.enter().map(|_| ())
    }

    /// The stream of work, or the one that this thread records.
    pub(crate) fn stream(&self) -> Handle {
        let recorded = RECORDED.get();
        if recorded.is_null() { self.stream } else { recorded }
    }

    /// The stream of work as other libraries in this process know it.
    pub fn stream_number(&self) -> usize {
        self.stream.addr()
    }

    /// Copies bytes to the device; they may be dropped when this returns.
    pub fn write(&self, to: DevicePtr, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let driver = self.enter()?;
        // SAFETY: the caller has a block of at least so many bytes there. Memory of the host that is not pinned has been read when the
        // call returns.
        let status = unsafe { (driver.copy_in)(to, bytes.as_ptr().cast(), bytes.len(), self.stream()) };
        driver.check(status, "copying to the device")
    }

    /// Copies bytes to the device, which may read them after this has returned.
    ///
    /// # Safety
    ///
    /// Until the stream of work has been waited for up to here, the bytes must stay where and what they are.
    pub(crate) unsafe fn write_later(&self, to: DevicePtr, bytes: &[u8]) -> Result<()> {
        let driver = self.enter()?;
        // SAFETY: the caller has a block of at least so many bytes there; the rest is what the caller promises.
        let status = unsafe { (driver.copy_in)(to, bytes.as_ptr().cast(), bytes.len(), self.stream()) };
        driver.check(status, "copying to the device")
    }

    /// Copies bytes from the device, after all work before.
    pub fn read(&self, from: DevicePtr, bytes: &mut [u8]) -> Result<()> {
        if bytes.is_empty() {
            return self.synchronize();
        }
        let driver = self.enter()?;
        // SAFETY: the caller has a block of at least so many bytes there; they have arrived when the stream was waited for.
        let status = unsafe { (driver.copy_out)(bytes.as_mut_ptr().cast(), from, bytes.len(), self.stream()) };
        driver.check(status, "copying from the device")?;
        self.synchronize()
    }

    /// Sets bytes of the device to zero.
    pub fn clear(&self, at: DevicePtr, bytes: usize) -> Result<()> {
        let driver = self.enter()?;
        // SAFETY: the caller has a block of at least so many bytes there.
        driver.check(unsafe { (driver.fill)(at, 0, bytes, self.stream()) }, "clearing memory")
    }

    /// Copies bytes within the device.
    pub fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: usize) -> Result<()> {
        let driver = self.enter()?;
        for begin in (0..bytes).step_by(COPIED) {
            let (at, some) = (begin as DevicePtr, COPIED.min(bytes - begin));
            // SAFETY: the caller has blocks of at least so many bytes in both places.
            driver.check(unsafe { (driver.copy)(to + at, from + at, some, self.stream()) }, "copying on the device")?;
        }
        Ok(())
    }

    /// Waits for all work.
    pub fn synchronize(&self) -> Result<()> {
        let driver = self.enter()?;
        // SAFETY: the stream is ours.
        driver.check(unsafe { (driver.stream_synchronize)(self.stream()) }, "waiting for the device")
    }

    /// Waits for the launch just asked for, where all are waited for and it is not recorded.
    pub(crate) fn wait_if_blocking(&self) -> Result<()> {
        if self.is_blocking && RECORDED.get().is_null() { self.synchronize() } else { Ok(()) }
    }

    /// Loads machine code.
    pub fn load(self: &Arc<Gpu>, cubin: &[u8]) -> Result<Module> {
        let driver = self.enter()?;
        let mut module = std::ptr::null_mut();
        // SAFETY: the bytes are a cubin, which says how long it is.
        driver.check(unsafe { (driver.module_load)(&mut module, cubin.as_ptr().cast()) }, "loading a kernel")?;
        Ok(Module { gpu: self.clone(), module })
    }

    /// Launches a function with arguments that lie at these addresses.
    ///
    /// # Safety
    ///
    /// The arguments must be those that the function takes, and what it reads and writes there must be memory of the device that is large
    /// enough. Where the grid says that it begins early, the function must wait for earlier launches by itself.
    pub unsafe fn launch(&self, function: &Function, grid: Grid, arguments: &mut [*mut c_void]) -> Result<()> {
        let driver = self.enter()?;
        let Grid { blocks, threads, shared, early } = grid;
        if early {
            let config = LaunchConfig {
                blocks: [blocks, 1, 1],
                threads: [threads, 1, 1],
                shared,
                stream: self.stream(),
                attributes: &LaunchAttribute::EARLY,
                attribute_count: 1,
            };
            let (arguments, none) = (arguments.as_mut_ptr(), std::ptr::null_mut());
            // SAFETY: the function was loaded, the description outlives the call; the rest is what the caller promises.
            let status = unsafe { (driver.launch_with)(&config, function.function, arguments, none) };
            return driver.check(status, "launching");
        }
        // SAFETY: the function was loaded; the rest is what the caller promises.
        let status = unsafe {
            (driver.launch)(
                function.function,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                shared,
                self.stream(),
                arguments.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        driver.check(status, "launching")
    }

    /// Matrices as the engine for copies sees them: tiles of so many lines of 128 bytes of narrow floats are brought, turned about as units for
    /// matrices read them.
    pub(crate) fn tensor_map(&self, tiles: &Tiles) -> Result<TensorMap> {
        let (driver, mut map) = (self.enter()?, TensorMap::default());
        let (lines, ones) = ([64, tiles.lines, 1], [1; 3]);
        let (sizes, between) = (tiles.sizes.as_ptr(), tiles.bytes_between.as_ptr());
        let ty = if tiles.is_bf16 { tensor_map::BF16 } else { tensor_map::F16 };
        // SAFETY: a place for a description, three sizes, two distances, and three of each other number.
        let status = unsafe {
            (driver.tensor_map)(
                &mut map,
                ty,
                3,
                tiles.at,
                sizes,
                between,
                lines.as_ptr(),
                ones.as_ptr(),
                tensor_map::NOT_INTERLEAVED,
                tensor_map::SWIZZLED_128,
                tensor_map::PROMOTED_256,
                tensor_map::ZEROS,
            )
        };
        driver.check(status, "describing a matrix to the engine for copies").map(|()| map)
    }

    /// Records what `work` asks for on this thread instead of doing it, as one launch. What other threads ask for meanwhile is done.
    pub fn record(self: &Arc<Gpu>, work: impl FnOnce() -> Result<()>) -> Result<Graph> {
        let driver = self.enter()?;
        let mut stream = std::ptr::null_mut();
        // SAFETY: a place for a handle.
        driver.check(unsafe { (driver.stream_create)(&mut stream, STREAM_NON_BLOCKING) }, "making a stream")?;
        let recorded = self.record_in(stream, work);
        // SAFETY: it was made above, and nobody else has it.
        unsafe { (driver.stream_destroy)(stream) };
        let (graph, mut exec) = (recorded?, std::ptr::null_mut());
        // SAFETY: the graph was recorded; it is not needed once it can be launched.
        unsafe {
            let made = driver.check((driver.graph_instantiate)(&mut exec, graph, 0), "making a graph of launches");
            (driver.graph_destroy)(graph);
            made?;
        }
        Ok(Graph { gpu: self.clone(), exec })
    }

    fn record_in(&self, stream: Handle, work: impl FnOnce() -> Result<()>) -> Result<Handle> {
        /// Ends with the recording, however that ends.
        struct Recording;
        impl Drop for Recording {
            fn drop(&mut self) {
                RECORDED.set(std::ptr::null_mut());
            }
        }
        let driver = self.enter()?;
        // SAFETY: the stream is ours and is not being recorded.
        driver.check(unsafe { (driver.capture_begin)(stream, CAPTURE_RELAXED) }, "recording")?;
        RECORDED.set(stream);
        let recording = Recording;
        let done = work();
        drop(recording);
        let mut graph = std::ptr::null_mut();
        // SAFETY: the recording is ended in any case.
        let ended = driver.check(unsafe { (driver.capture_end)(stream, &mut graph) }, "recording");
        done.and(ended)?;
        Ok(graph)
    }

    /// A point in the stream of work.
    pub fn mark(self: &Arc<Gpu>) -> Result<Mark> {
        let driver = self.enter()?;
        let mut event = std::ptr::null_mut();
        // SAFETY: a place for a handle, which is then recorded on our stream.
        unsafe {
            driver.check((driver.event_create)(&mut event, 0), "making an event")?;
            let mark = Mark { gpu: self.clone(), event };
            driver.check((driver.event_record)(event, self.stream()), "recording an event")?;
            Ok(mark)
        }
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        let _ = self.release_all();
        // SAFETY: both were made when the device was opened, and nothing uses them any more.
        unsafe {
            (self.driver.stream_destroy)(self.stream);
            (self.driver.context_release)(self.device);
        }
    }
}

fn describe(driver: &Driver, device: c_int) -> Result<Description> {
    let number = |attribute: c_int| {
        let mut value = 0;
        // SAFETY: a place for a number.
        let status = unsafe { (driver.device_attribute)(&mut value, attribute, device) };
        driver.check(status, "asking the device").map(|()| value)
    };
    let mut name = vec![0u8; 256];
    let (mut memory, mut version) = (0, 0);
    // SAFETY: places for a name of that length, a size and a number.
    unsafe {
        driver.check((driver.device_name)(name.as_mut_ptr().cast(), 256, device), "asking for the name")?;
        driver.check((driver.device_memory)(&mut memory, device), "asking for the memory")?;
        driver.check((driver.version)(&mut version), "asking for the version")?;
    }
    let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    Ok(Description {
        name: String::from_utf8_lossy(&name[..length]).into_owned(),
        capability: (number(attribute::CAPABILITY_MAJOR)?, number(attribute::CAPABILITY_MINOR)?),
        cores: number(attribute::CORES)?,
        threads: number(attribute::THREADS_OF_CORE)?,
        memory,
        shared: usize::try_from(number(attribute::SHARED_OF_BLOCK)?).unwrap_or(0),
        driver: (version / 1000, version % 1000 / 10),
    })
}

/// How many threads run a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// blocks
    pub blocks: u32,
    /// threads of a block
    pub threads: u32,
    /// bytes of shared memory beyond what the function declares
    pub shared: u32,
    /// whether it may begin before earlier launches have ended
    pub early: bool,
}

/// Matrices of narrow floats of which tiles are brought.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tiles {
    /// where the first one begins: a multiple of 16 bytes
    pub at: u64,
    /// elements of a row, rows, and matrices
    pub sizes: [u64; 3],
    /// bytes from row to row and from matrix to matrix: multiples of 16
    pub bytes_between: [u64; 2],
    /// lines of a tile
    pub lines: u32,
    /// otherwise f16
    pub is_bf16: bool,
}

mod tensor_map {
    use std::ffi::c_int;
    pub const F16: c_int = 6;
    pub const BF16: c_int = 9;
    pub const NOT_INTERLEAVED: c_int = 0;
    pub const SWIZZLED_128: c_int = 3;
    pub const PROMOTED_256: c_int = 3;
    pub const ZEROS: c_int = 0;
}

/// Machine code on a GPU.
pub struct Module {
    gpu: Arc<Gpu>,
    module: Handle,
}

// SAFETY: the driver may be called from any thread.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Module")
    }
}

impl Module {
    /// A function by its name, allowed to use so many bytes of shared memory.
    pub fn function(self: &Arc<Module>, name: &str, shared: u32) -> Result<Function> {
        let driver = self.gpu.enter()?;
        let text = CString::new(name).map_err(|_| Error::bug("a name with a zero byte"))?;
        let mut function = std::ptr::null_mut();
        // SAFETY: the module is loaded, and the name ends with a zero byte.
        let status = unsafe { (driver.module_function)(&mut function, self.module, text.as_ptr()) };
        driver.check(status, &format!("the function {name}"))?;
        if shared > 0 {
            let bytes = c_int::try_from(shared).map_err(|_| Error::bug("more shared memory than there is"))?;
            // SAFETY: the function was found.
            let status = unsafe { (driver.function_set)(function, function_attribute::MOST_DYNAMIC_SHARED, bytes) };
            driver.check(status, &format!("{shared} bytes of shared memory for {name}"))?;
        }
        Ok(Function { module: self.clone(), function })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if let Ok(driver) = self.gpu.enter() {
            // SAFETY: it was loaded, and no function of it is left.
            unsafe { (driver.module_unload)(self.module) };
        }
    }
}

/// A function on a GPU.
#[derive(Debug)]
pub struct Function {
    module: Arc<Module>,
    function: Handle,
}

// SAFETY: the driver may be called from any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Function {
    /// What a thread and a block of threads take where the function runs so.
    pub fn resources(&self, grid: Grid) -> Result<Resources> {
        let gpu = &self.module.gpu;
        let driver = gpu.enter()?;
        let number = |attribute: c_int| {
            let mut value = 0;
            // SAFETY: a place for a number; the function was found.
            let status = unsafe { (driver.function_attribute)(&mut value, attribute, self.function) };
            driver.check(status, "asking a function").map(|()| value)
        };
        let mut resident = 0;
        // SAFETY: a place for a number; the function was found.
        let status =
            unsafe { (driver.occupancy)(&mut resident, self.function, grid.threads as c_int, grid.shared as usize) };
        driver.check(status, "asking how many blocks a multiprocessor holds")?;
        let threads = f64::from(resident) * f64::from(grid.threads);
        Ok(Resources {
            grid,
            registers: number(function_attribute::REGISTERS)?,
            spilled: number(function_attribute::LOCAL_BYTES)?,
            shared: number(function_attribute::SHARED_BYTES)? + grid.shared as c_int,
            resident,
            occupancy: threads / f64::from(gpu.description.threads.max(1)),
        })
    }
}

/// What a function takes of a multiprocessor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resources {
    /// how many threads run it
    pub grid: Grid,
    /// registers of a thread
    pub registers: i32,
    /// bytes of memory that a thread has for what does not fit into registers
    pub spilled: i32,
    /// bytes of shared memory of a block
    pub shared: i32,
    /// blocks that a multiprocessor holds
    pub resident: i32,
    /// threads that a multiprocessor holds, as a part of those that it could hold
    pub occupancy: f64,
}

/// Launches that were recorded.
#[derive(Debug)]
pub struct Graph {
    gpu: Arc<Gpu>,
    exec: Handle,
}

// SAFETY: the driver may be called from any thread.
unsafe impl Send for Graph {}
// SAFETY: as above.
unsafe impl Sync for Graph {}

impl Graph {
    /// Does all of them.
    pub fn launch(&self) -> Result<()> {
        let driver = self.gpu.enter()?;
        // SAFETY: it was made; what its launches read and write is kept by who recorded them.
        driver.check(unsafe { (driver.graph_launch)(self.exec, self.gpu.stream) }, "launching a graph")
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if let Ok(driver) = self.gpu.enter() {
            // SAFETY: it was made, and nobody else has it.
            unsafe { (driver.graph_exec_destroy)(self.exec) };
        }
    }
}

/// A point in the stream of work of a GPU.
#[derive(Debug)]
pub struct Mark {
    gpu: Arc<Gpu>,
    event: Handle,
}

// SAFETY: the driver may be called from any thread.
unsafe impl Send for Mark {}

impl Mark {
    /// Waits until the device is there.
    pub(crate) fn wait(&self) -> Result<()> {
        let driver = self.gpu.enter()?;
        // SAFETY: it was recorded.
        driver.check(unsafe { (driver.event_synchronize)(self.event) }, "waiting for an event")
    }

    /// Microseconds of the device from an earlier mark to this one, which is waited for.
    pub fn since(&self, earlier: &Mark) -> Result<f64> {
        let driver = self.gpu.enter()?;
        let mut milliseconds = 0.0;
        // SAFETY: both were recorded; a place for a number.
        unsafe {
            driver.check((driver.event_synchronize)(self.event), "waiting for an event")?;
            driver.check(
                (driver.event_elapsed)(&mut milliseconds, earlier.event, self.event),
                "the time between events",
            )?;
        }
        Ok(f64::from(milliseconds) * 1000.0)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        if let Ok(driver) = self.gpu.enter() {
            // SAFETY: it was made, and nobody else has it.
            unsafe { (driver.event_destroy)(self.event) };
        }
    }
}
