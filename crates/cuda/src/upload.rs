//! Many tensors to the device at once.
//!
//! The driver copies memory that may be paged out by way of a small place of its own, with one thread, which also waits for every page of a
//! file that was not looked at yet. Here several threads copy pieces into memory that the device reads by itself, each into two places in turns.
#![allow(unsafe_code, reason = "the device reads memory of the host by address")]

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fuseline::error::Result;
use fuseline::tensor::Literal;

use crate::driver::DevicePtr;
use crate::gpu::{Gpu, Mark};

/// Bytes that are copied at a time.
const PIECE: usize = 2 << 20;

/// With fewer bytes, the driver is done before threads have begun.
const WORTH_THREADS: usize = 16 << 20;

/// More threads than these do not make it faster: memory and the bus are busy.
const MOST_THREADS: usize = 8;

impl Gpu {
    /// Copies tensors of main memory to places on the device.
    pub(crate) fn write_all(self: &Arc<Gpu>, wanted: &[(DevicePtr, &Literal)]) -> Result<()> {
        let bytes: usize = wanted.iter().map(|(_, literal)| literal.byte_count()).sum();
        let units = units(wanted);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = processors.min(MOST_THREADS).min(units.len());
        let room = (bytes >= WORTH_THREADS && threads > 1).then(|| Pinned::take(self, 2 * PIECE * threads));
        // Where the system lends no such memory, the driver does it its own way.
        let Some(Ok(mut room)) = room else {
            return wanted.iter().try_for_each(|(to, literal)| self.write(*to, &literal.bytes()));
        };
        let next = AtomicUsize::new(0);
        let done: Vec<Result<()>> = std::thread::scope(|scope| {
            let own = room.bytes_mut().chunks_exact_mut(2 * PIECE);
            let threads: Vec<_> = own.map(|own| scope.spawn(|| copy_units(self, &units, &next, own))).collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined.map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        });
        done.into_iter().collect()
    }
}

/// Bytes of a tensor that one thread copies.
struct Unit<'a> {
    to: DevicePtr,
    literal: &'a Literal,
    range: Range<usize>,
}

/// The tensors in pieces; those whose bytes are made when they are asked for stay whole.
fn units<'a>(wanted: &[(DevicePtr, &'a Literal)]) -> Vec<Unit<'a>> {
    let mut units = Vec::new();
    for (to, literal) in wanted {
        let bytes = literal.byte_count();
        let step = if literal.as_seeded().is_some() { bytes.max(1) } else { PIECE };
        let pieces = (0..bytes).step_by(step).map(|from| from..bytes.min(from + step));
        units.extend(pieces.map(|range| Unit { to: *to, literal, range }));
    }
    units
}

/// Copies units until there are none left, and waits until the device has read them.
fn copy_units(gpu: &Arc<Gpu>, units: &[Unit<'_>], next: &AtomicUsize, room: &mut [u8]) -> Result<()> {
    let (left, right) = room.split_at_mut(PIECE);
    // What lies there, and until when the device reads it.
    let mut places: [(&mut [u8], Option<Mark>); 2] = [(left, None), (right, None)];
    let mut turn = 0;
    while let Some(Unit { to, literal, range }) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
        let bytes = literal.bytes();
        for (piece, number) in bytes[range.clone()].chunks(PIECE).zip(0..) {
            let (place, read) = &mut places[turn];
            if let Some(mark) = read.take() {
                mark.wait()?;
            }
            let place = &mut place[..piece.len()];
            place.copy_from_slice(piece);
            let to = to + (range.start + number * PIECE) as u64;
            // SAFETY: the memory stays where it is, and nobody writes there before the mark was waited for.
            unsafe { gpu.write_later(to, place) }?;
            *read = Some(gpu.mark()?);
            turn = 1 - turn;
        }
    }
    places.iter().filter_map(|(_, read)| read.as_ref()).try_for_each(Mark::wait)
}

/// Memory of the host that is never paged out, so that the device reads it by itself.
struct Pinned {
    gpu: Arc<Gpu>,
    at: *mut c_void,
    bytes: usize,
}

impl Pinned {
    fn take(gpu: &Arc<Gpu>, bytes: usize) -> Result<Pinned> {
        let driver = gpu.enter()?;
        let mut at = std::ptr::null_mut();
        // SAFETY: a place for an address.
        driver.check(unsafe { (driver.host_alloc)(&mut at, bytes, 0) }, "memory that is not paged out")?;
        // SAFETY: it has so many bytes, which are bytes from here on.
        unsafe { std::ptr::write_bytes(at.cast::<u8>(), 0, bytes) };
        Ok(Pinned { gpu: gpu.clone(), at, bytes })
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: it was taken with so many bytes, all of which were written, and belongs to this alone.
        unsafe { std::slice::from_raw_parts_mut(self.at.cast(), self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Where something went wrong half way, the device may still read it; where even waiting goes wrong, nobody knows until when, and it stays.
        if self.gpu.synchronize().is_ok()
            && let Ok(driver) = self.gpu.enter()
        {
            // SAFETY: it was taken, and nobody has it.
            unsafe { (driver.host_free)(self.at) };
        }
    }
}

#[cfg(test)]
mod tests {
    use fuseline::tensor::{DType, Seeded};

    use super::*;

    #[test]
    fn pieces_hold_every_byte_once() {
        let bytes = 2 * PIECE + 12;
        let stored = Literal::new(DType::U8, [bytes], vec![7u8; bytes]).unwrap();
        let empty = Literal::new(DType::F32, [0], Vec::new()).unwrap();
        let drawn = Literal::seeded(DType::F32, [PIECE], Seeded { seed: 1, low: 0.0, high: 1.0 }).unwrap();
        let units = units(&[(512, &stored), (9, &empty), (1 << 30, &drawn)]);
        let ranges: Vec<(DevicePtr, Range<usize>)> = units.into_iter().map(|unit| (unit.to, unit.range)).collect();
        assert_eq!(
            ranges,
            [(512, 0..PIECE), (512, PIECE..2 * PIECE), (512, 2 * PIECE..bytes), (1 << 30, 0..4 * PIECE),]
        );
    }
}
