//! Memory of a device: tensors apart from each other, so that nothing is touched between them, and what blocks share.

use std::collections::HashMap;

/// An address that says by itself that it is one of shared memory; below, the block of the cluster.
const SHARED: u64 = 1 << 60;
const BLOCK_OF_ANY: u32 = 32;

/// Where the number of a tensor stands in an address.
const TENSOR: u32 = 40;

/// In addresses of shared memory, the block of the cluster, counted from 1; none is the own one.
const BLOCK: u32 = 24;

/// What every byte is before it is written: four of them are NaN.
const POISON: u8 = 0xff;

/// Memory is handed out in pieces of so many bytes: that what holds one byte of a tensor is read whole is no error.
const PIECE: usize = 32;

/// Memory that all blocks see.
#[derive(Debug, Default)]
pub struct Memory {
    tensors: Vec<Region>,
}

#[derive(Debug)]
struct Region {
    bytes: Vec<u8>,
    /// how many of them are a tensor's
    length: usize,
}

/// A tensor in memory.
#[derive(Clone, Copy, Debug)]
pub struct Tensor(usize);

impl Memory {
    /// Makes room for a tensor and fills it.
    pub fn hold(&mut self, bytes: &[u8]) -> Tensor {
        let mut all = vec![POISON; bytes.len().next_multiple_of(PIECE)];
        all[..bytes.len()].copy_from_slice(bytes);
        self.tensors.push(Region { bytes: all, length: bytes.len() });
        Tensor(self.tensors.len() - 1)
    }

    /// Makes room for a tensor that nobody has written.
    pub fn reserve(&mut self, length: usize) -> Tensor {
        self.hold(&vec![POISON; length])
    }

    pub fn bytes(&self, tensor: Tensor) -> &[u8] {
        let Region { bytes, length } = &self.tensors[tensor.0];
        &bytes[..*length]
    }

    /// The address of a tensor, as a kernel takes it.
    pub fn address(&self, tensor: Tensor) -> u64 {
        (tensor.0 as u64 + 1) << TENSOR
    }

    fn place(&self, address: u64, count: usize) -> Result<(usize, usize), String> {
        let (number, offset) = ((address >> TENSOR) as usize, (address & ((1 << TENSOR) - 1)) as usize);
        let region = number.checked_sub(1).and_then(|k| self.tensors.get(k));
        let region = region.ok_or_else(|| format!("no tensor lies at {address:#x}"))?;
        if !offset.is_multiple_of(count) {
            return Err(format!("{count} bytes at byte {offset} of tensor {}, which is no multiple", number - 1));
        }
        match offset + count <= region.bytes.len() {
            true => Ok((number - 1, offset)),
            false => {
                Err(format!("{count} bytes at byte {offset} of tensor {}, which has {}", number - 1, region.length))
            }
        }
    }

    fn read(&self, address: u64, count: usize) -> Result<&[u8], String> {
        let (number, offset) = self.place(address, count)?;
        Ok(&self.tensors[number].bytes[offset..offset + count])
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), String> {
        let (number, offset) = self.place(address, bytes.len())?;
        let region = &mut self.tensors[number];
        if offset + bytes.len() > region.length {
            return Err(format!("bytes behind the end of tensor {number} are written, at {offset}"));
        }
        region.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

/// A place where the arrival of bytes is awaited.
#[derive(Clone, Copy, Debug)]
struct Arrivals {
    /// threads that must say what they expect, in each phase, and those that have not yet
    threads: u64,
    missing: u64,
    /// bytes that are expected, less those that are there
    bytes: i64,
    phase: u64,
}

/// A copy into shared memory that was asked for.
#[derive(Clone, Debug)]
pub struct Copy {
    pub to: (usize, u64),
    pub from: u64,
    pub bytes: usize,
    /// how many of them are read; the others are zeros
    pub read: usize,
    /// where its arrival is told, if anywhere
    pub told: Option<(usize, u64)>,
}

/// What the blocks of a cluster share, and what all do.
#[derive(Debug)]
pub struct Shared<'m> {
    pub global: &'m mut Memory,
    blocks: Vec<Vec<u8>>,
    arrivals: HashMap<(usize, u64), Arrivals>,
    /// copies that the engine has not made yet
    brought: Vec<Copy>,
}

impl<'m> Shared<'m> {
    pub fn new(global: &'m mut Memory, blocks: usize, bytes: usize) -> Shared<'m> {
        let blocks = vec![vec![POISON; bytes.next_multiple_of(PIECE)]; blocks];
        Shared { global, blocks, arrivals: HashMap::new(), brought: Vec::new() }
    }

    /// The block and the place that an address of shared memory means to a block.
    pub fn place(&self, own: usize, address: u64) -> (usize, u64) {
        match address >> BLOCK & 0xff {
            0 => (own, address & ((1 << BLOCK) - 1)),
            block => (block as usize - 1, address & ((1 << BLOCK) - 1)),
        }
    }

    /// An address of shared memory as one that any access takes.
    pub fn to_any(&self, own: usize, address: u64) -> u64 {
        let (block, place) = self.place(own, address);
        SHARED | (block as u64) << BLOCK_OF_ANY | place
    }

    /// … and the way back.
    pub fn to_shared(&self, any: u64) -> u64 {
        self.of_block(any & 0xffff_ffff, any >> BLOCK_OF_ANY & 0xff)
    }

    /// The same place in another block.
    pub fn of_block(&self, address: u64, block: u64) -> u64 {
        (block + 1) << BLOCK | address & ((1 << BLOCK) - 1)
    }

    pub fn of_block_any(&self, any: u64, block: u64) -> u64 {
        SHARED | block << BLOCK_OF_ANY | any & 0xffff_ffff
    }

    fn range(&self, (block, place): (usize, u64), count: usize) -> Result<std::ops::Range<usize>, String> {
        let place = place as usize;
        let length = self.blocks.get(block).ok_or_else(|| format!("the cluster has no block {block}"))?.len();
        if !place.is_multiple_of(count) || place + count > length {
            return Err(format!("{count} bytes at byte {place} of shared memory, which has {length}"));
        }
        Ok(place..place + count)
    }

    pub fn read_shared(&self, at: (usize, u64), count: usize) -> Result<&[u8], String> {
        let range = self.range(at, count)?;
        Ok(&self.blocks[at.0][range])
    }

    pub fn write_shared(&mut self, at: (usize, u64), bytes: &[u8]) -> Result<(), String> {
        let range = self.range(at, bytes.len())?;
        self.blocks[at.0][range].copy_from_slice(bytes);
        Ok(())
    }

    /// Reads from an address of shared memory, or of any.
    pub fn read(&self, own: usize, is_shared: bool, address: u64, count: usize) -> Result<&[u8], String> {
        match self.shared_place(own, is_shared, address) {
            Some(place) => self.read_shared(place, count),
            None => self.global.read(address, count),
        }
    }

    pub fn write(&mut self, own: usize, is_shared: bool, address: u64, bytes: &[u8]) -> Result<(), String> {
        match self.shared_place(own, is_shared, address) {
            Some(place) => self.write_shared(place, bytes),
            None => self.global.write(address, bytes),
        }
    }

    fn shared_place(&self, own: usize, is_shared: bool, address: u64) -> Option<(usize, u64)> {
        match is_shared {
            true => Some(self.place(own, address)),
            false if address & SHARED != 0 => Some(((address >> BLOCK_OF_ANY & 0xff) as usize, address & 0xffff_ffff)),
            false => None,
        }
    }

    /// Makes a copy.
    pub fn make(&mut self, copy: &Copy) -> Result<(), String> {
        // The engine moves 16 bytes at a time.
        let step = if copy.told.is_some() { 16 } else { copy.bytes };
        for at in (0..copy.bytes).step_by(step) {
            let mut bytes = match at < copy.read {
                true => self.global.read(copy.from + at as u64, step)?.to_vec(),
                false => vec![0; step],
            };
            bytes.iter_mut().skip(copy.read.saturating_sub(at)).for_each(|byte| *byte = 0);
            self.write_shared((copy.to.0, copy.to.1 + at as u64), &bytes)?;
        }
        let Some(told) = copy.told else { return Ok(()) };
        let arrivals = self.arrivals.get_mut(&told).ok_or("bytes arrive where nobody awaits any")?;
        arrivals.bytes -= copy.bytes as i64;
        arrivals.turn();
        Ok(())
    }

    pub fn bring(&mut self, copy: Copy) {
        self.brought.push(copy);
    }

    pub fn begin_arrivals(&mut self, at: (usize, u64), threads: u64) {
        self.arrivals.insert(at, Arrivals { threads, missing: threads, bytes: 0, phase: 0 });
    }

    pub fn expect(&mut self, at: (usize, u64), bytes: u64) -> Result<(), String> {
        let arrivals = self.arrivals.get_mut(&at).ok_or("bytes are expected where arrivals have not begun")?;
        arrivals.bytes += bytes as i64;
        arrivals.missing = arrivals.missing.checked_sub(1).ok_or("more threads expect bytes than were said")?;
        arrivals.turn();
        Ok(())
    }

    /// Whether a phase of this parity has ended; copies are made when somebody asks.
    pub fn have_arrived(&mut self, at: (usize, u64), parity: u64) -> Result<bool, String> {
        let (now, later) = std::mem::take(&mut self.brought).into_iter().partition(|copy| copy.told == Some(at));
        self.brought = later;
        let now: Vec<Copy> = now;
        now.iter().try_for_each(|copy| self.make(copy))?;
        let arrivals = self.arrivals.get(&at).ok_or("an arrival is awaited where none has begun")?;
        Ok(arrivals.phase % 2 != parity)
    }
}

impl Arrivals {
    fn turn(&mut self) {
        if self.missing == 0 && self.bytes == 0 {
            (self.missing, self.phase) = (self.threads, self.phase + 1);
        }
    }
}
