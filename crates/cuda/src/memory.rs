//! Memory of a GPU: blocks that go back when they are dropped, ours and those of other libraries, and tensors in them.
#![allow(
    unsafe_code,
    reason = "memory is taken from the driver and given back to it, and other libraries lend theirs by address"
)]

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};

use fuseline::error::{Error, Kind, Result};
use fuseline::tensor::{DType, Literal, Shape, TensorType};

use crate::driver::{DevicePtr, EVENT_NO_TIMING, STREAM_LEGACY};
use crate::gpu::Gpu;

/// Blocks are multiples of this; what the driver gives is aligned to it.
const GRAIN: usize = 512;

/// Values are put together into blocks of no more bytes than this, if they are not larger by themselves: others can use those again.
const TOGETHER: usize = 64 << 20;

/// What kernels and libraries that read a tensor rely upon.
const ALIGNMENT: u64 = crate::cublas::ALIGNMENT as u64;

/// Blocks of memory that nobody uses, by size.
#[derive(Default)]
pub(crate) struct Free {
    blocks: BTreeMap<usize, Vec<DevicePtr>>,
    /// bytes that were taken from the driver
    taken: usize,
}

impl Gpu {
    fn free_blocks(&self) -> MutexGuard<'_, Free> {
        // Nothing panics half way.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory, which is not cleared.
    pub fn take(self: &Arc<Gpu>, bytes: usize) -> Result<Block> {
        let wanted = bytes.max(1).next_multiple_of(GRAIN);
        let mut free = self.free_blocks();
        // The smallest that is large enough and not much larger.
        let most = wanted.saturating_mul(2).max(1 << 16);
        let fitting = free.blocks.range(wanted..=most).next().map(|(size, _)| *size);
        if let Some(size) = fitting
            && let Some(list) = free.blocks.get_mut(&size)
            && let Some(at) = list.pop()
        {
            if list.is_empty() {
                free.blocks.remove(&size);
            }
            return Ok(Block::new(self, at, size, None));
        }
        drop(free);
        let at = match self.allocate(wanted) {
            Err(error) if error.kind() == Kind::Exhausted => {
                self.release_all()?;
                self.allocate(wanted)?
            }
            other => other?,
        };
        self.free_blocks().taken += wanted;
        Ok(Block::new(self, at, wanted, None))
    }

    /// Memory for values that are used as long as each other, by their bytes: few large blocks, which each of them keeps.
    pub(crate) fn take_together(self: &Arc<Gpu>, sizes: &[usize]) -> Result<Vec<Arc<Block>>> {
        let mut parts = Vec::with_capacity(sizes.len());
        while parts.len() < sizes.len() {
            let (mut offsets, mut end) = (Vec::new(), 0usize);
            for bytes in &sizes[parts.len()..] {
                let next = end.saturating_add(bytes.max(&1).next_multiple_of(GRAIN));
                if next > TOGETHER && end > 0 {
                    break;
                }
                offsets.push(end as DevicePtr);
                end = next;
            }
            let all = Arc::new(self.take(end)?);
            for offset in offsets {
                let bytes = sizes[parts.len()];
                parts.push(Arc::new(Block::new(self, all.at() + offset, bytes, Some(Box::new(all.clone())))));
            }
        }
        Ok(parts)
    }

    fn allocate(&self, bytes: usize) -> Result<DevicePtr> {
        let driver = self.enter()?;
        let mut at = 0;
        // SAFETY: a place for an address.
        driver.check(unsafe { (driver.alloc)(&mut at, bytes) }, &format!("{bytes} bytes of memory"))?;
        Ok(at)
    }

    /// Gives memory back to the driver, which waits for all who work with it.
    fn release(&self, at: DevicePtr, bytes: usize) -> Result<()> {
        let driver = self.enter()?;
        // SAFETY: it was allocated and nobody has it.
        driver.check(unsafe { (driver.free)(at) }, "freeing memory")?;
        self.free_blocks().taken -= bytes;
        Ok(())
    }

    /// Gives blocks that nobody uses back to the driver.
    pub(crate) fn release_all(&self) -> Result<()> {
        self.synchronize()?;
        let blocks = std::mem::take(&mut self.free_blocks().blocks);
        for (size, list) in blocks {
            for at in list {
                self.release(at, size)?;
            }
        }
        Ok(())
    }

    /// Bytes of memory that were taken from the driver.
    pub fn taken(&self) -> usize {
        self.free_blocks().taken
    }

    /// Work that is asked for from here on waits for what was asked for in the default stream, which others use.
    fn wait_for_default_stream(&self) -> Result<()> {
        let driver = self.enter()?;
        let mut event = std::ptr::null_mut();
        // SAFETY: a place for a handle, which is recorded and waited for; an event may be destroyed before it has happened.
        unsafe {
            driver.check((driver.event_create)(&mut event, EVENT_NO_TIMING), "making an event")?;
            let recorded = driver.check((driver.event_record)(event, STREAM_LEGACY), "recording an event");
            let waits = || driver.check((driver.stream_wait)(self.stream(), event, 0), "waiting for an event");
            let done = recorded.and_then(|()| waits());
            (driver.event_destroy)(event);
            done
        }
    }
}

/// Memory of a GPU. It goes back when it is dropped: ours to the GPU, so that later work may have it, and that of others to them.
pub struct Block {
    gpu: Arc<Gpu>,
    at: DevicePtr,
    bytes: usize,
    /// who else works with it, as one of the constants of [`seen`]
    seen: AtomicU8,
    /// who lent it
    lender: Option<Lender>,
}

/// Keeps memory that is lent: it is given back when this is dropped.
pub type Lender = Box<dyn Any + Send + Sync>;

/// Who works with a block of ours, besides our stream.
mod seen {
    pub const BY_NOBODY: u8 = 0;
    pub const IN_DEFAULT_STREAM: u8 = 1;
    pub const ANYWHERE: u8 = 2;
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Block({} bytes at {:#x})", self.bytes, self.at)
    }
}

impl Block {
    fn new(gpu: &Arc<Gpu>, at: DevicePtr, bytes: usize, lender: Option<Lender>) -> Block {
        Block { gpu: gpu.clone(), at, bytes, seen: AtomicU8::new(seen::BY_NOBODY), lender }
    }

    /// Where it begins.
    pub fn at(&self) -> DevicePtr {
        self.at
    }

    /// How large it is.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.lender.is_some() {
            return;
        }
        // Others may have asked for work with it that is not done yet when they drop it.
        let may_be_used_again = match *self.seen.get_mut() {
            seen::BY_NOBODY => true,
            seen::IN_DEFAULT_STREAM => self.gpu.wait_for_default_stream().is_ok(),
            _ => false,
        };
        if may_be_used_again {
            self.gpu.free_blocks().blocks.entry(self.bytes).or_default().push(self.at);
        } else {
            // Where even this fails, the device is lost, and its memory with it.
            let _ = self.gpu.release(self.at, self.bytes);
        }
    }
}

/// A dense tensor in the memory of a GPU, shared by its clones.
#[derive(Clone, Debug)]
pub struct DeviceTensor {
    dtype: DType,
    sizes: Vec<usize>,
    block: Arc<Block>,
}

impl DeviceTensor {
    /// A tensor in memory that is large enough.
    pub(crate) fn new(dtype: DType, sizes: Vec<usize>, block: Arc<Block>) -> DeviceTensor {
        DeviceTensor { dtype, sizes, block }
    }

    /// A copy of a tensor in main memory.
    pub fn of(gpu: &Arc<Gpu>, literal: &Literal) -> Result<DeviceTensor> {
        let block = Arc::new(gpu.take(literal.byte_count())?);
        gpu.write(block.at(), &literal.bytes())?;
        Ok(DeviceTensor::new(literal.dtype(), literal.sizes().to_vec(), block))
    }

    /// A tensor that another library lends. Kernels rely upon alignment: a tensor that has less is copied.
    ///
    /// # Safety
    ///
    /// Until the lender is dropped, a dense tensor of this type and these sizes lies at the address in the memory of this GPU, and nobody
    /// writes there; what makes it was asked for in the GPU's stream, or this stream waits for it.
    pub unsafe fn lent(
        gpu: &Arc<Gpu>,
        at: u64,
        dtype: DType,
        sizes: Vec<usize>,
        lender: Lender,
    ) -> Result<DeviceTensor> {
        let bytes = byte_count(dtype, &sizes)?;
        let block = if at.is_multiple_of(ALIGNMENT) {
            Block::new(gpu, at, bytes, Some(lender))
        } else {
            let own = gpu.take(bytes)?;
            let copied = gpu.copy(own.at(), at, bytes);
            gpu.synchronize()?;
            copied.map(|()| own)?
        };
        Ok(DeviceTensor::new(dtype, sizes, Arc::new(block)))
    }

    /// Where it begins, in the memory of the device.
    pub fn at(&self) -> u64 {
        self.block.at()
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The sizes.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// Type and sizes.
    pub fn ty(&self) -> TensorType {
        TensorType::new(self.dtype, self.sizes.iter().copied().collect::<Shape>())
    }

    /// How many bytes the elements have.
    pub fn byte_count(&self) -> usize {
        self.dtype.bytes(self.sizes.iter().product()).unwrap_or(0)
    }

    /// The tensor in main memory.
    pub fn literal(&self) -> Result<Literal> {
        let mut data = vec![0u8; byte_count(self.dtype, &self.sizes)?];
        self.block.gpu.read(self.at(), &mut data)?;
        Literal::new(self.dtype, self.sizes.clone(), data)
    }

    /// Says that others work with the tensor from here on: in the default stream, or in any.
    pub fn show(&self, in_default_stream: bool) {
        let who = if in_default_stream { seen::IN_DEFAULT_STREAM } else { seen::ANYWHERE };
        self.block.seen.fetch_max(who, Ordering::Relaxed);
    }
}

fn byte_count(dtype: DType, sizes: &[usize]) -> Result<usize> {
    let count = sizes.iter().try_fold(1usize, |all, size| all.checked_mul(*size));
    let bytes = count.and_then(|count| dtype.bytes(count));
    bytes.ok_or_else(|| Error::limit("a tensor of more bytes than can be counted"))
}
