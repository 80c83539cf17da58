//! Pieces of memory, used again from run to run.
//!
//! Touching memory for the first time costs more than writing it, so that what a run needs is taken from [`Blocks`] and goes
//! back there: arenas at the end of the run, results when the caller drops them. What other sizes have left is an arena, too:
//! larger ones as they are, smaller ones with as much behind them as is missing.
#![allow(unsafe_code, reason = "memory that machine code writes")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use fuseline::error::{Error, Result};
use fuseline::run::memory::ALIGNMENT;
use memmap2::MmapRaw;

/// Blocks from here on are mapped.
const MAPPED: usize = 1 << 20;

/// From here on results and arenas are asked for in large pages, and all that is mapped where nothing is kept, such as packed weights.
///
/// Large pages are found faster: packed weights in small ones cost a run of BERT-base 8 % and more, results of 16 and 64 MB 2 to 13 % of
/// writing them; its arena, nothing. But they are cleared as a whole when they are touched first, and where a virtual machine has to ask its
/// host for the memory that takes 4 to 5 ms a megabyte, where small pages take 0.5: new sizes had better not wait for that.
const LARGE_RESULT: usize = 4 << 20;
const LARGE_ARENA: usize = 32 << 20;

/// A piece of memory. Whoever holds it may read and write all of it.
pub struct Block {
    bytes: usize,
    memory: Memory,
}

enum Memory {
    /// of this layout
    Allocated(NonNull<u8>, Layout),
    Mapped(MmapRaw),
}

// SAFETY: the memory belongs to the block alone; shared blocks give out nothing but the pointer.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// New memory of at least so many bytes, all zero; a multiple of [`ALIGNMENT`]. In large pages, where the system has them, if it is no less
    /// than `large`.
    fn new(bytes: usize, large: usize) -> Result<Block> {
        let refused = || Error::no_memory(bytes);
        let rounded = bytes.max(1).checked_next_multiple_of(ALIGNMENT).ok_or_else(refused)?;
        if rounded >= MAPPED {
            let map = MmapRaw::from(memmap2::MmapMut::map_anon(rounded).map_err(|_| refused())?);
            advise(&map, rounded >= large);
            return Ok(Block { bytes: rounded, memory: Memory::Mapped(map) });
        }
        let layout = Layout::from_size_align(rounded, ALIGNMENT).map_err(|_| refused())?;
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(refused)?;
        Ok(Block { bytes: rounded, memory: Memory::Allocated(start, layout) })
    }

    /// As many bytes, where the system can put more behind what is there; whatever was in it. None if it can not.
    #[cfg(target_os = "linux")]
    fn grown(mut self, bytes: usize) -> Option<Block> {
        let rounded = bytes.checked_next_multiple_of(ALIGNMENT)?;
        let Memory::Mapped(map) = &mut self.memory else { return None };
        // SAFETY: there is no file behind it, and nobody has a pointer into a block that is owned.
        unsafe { map.remap(rounded, memmap2::RemapOptions::new().may_move(true)) }.ok()?;
        advise(map, rounded >= LARGE_ARENA);
        self.bytes = rounded;
        Some(self)
    }

    #[cfg(not(target_os = "linux"))]
    fn grown(self, _bytes: usize) -> Option<Block> {
        None
    }

    /// Its first byte; a multiple of [`ALIGNMENT`].
    pub fn start(&self) -> *mut u8 {
        match &self.memory {
            Memory::Allocated(start, _) => start.as_ptr(),
            Memory::Mapped(map) => map.as_mut_ptr(),
        }
    }

    /// How large it is.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Says in which pages memory that is not touched yet should lie. Advice that is not taken changes nothing but time.
#[cfg(target_os = "linux")]
fn advise(map: &MmapRaw, large: bool) {
    let _ = map.advise(if large { memmap2::Advice::HugePage } else { memmap2::Advice::NoHugePage });
}

#[cfg(not(target_os = "linux"))]
fn advise(_: &MmapRaw, _: bool) {}

impl Drop for Block {
    fn drop(&mut self) {
        if let Memory::Allocated(start, layout) = self.memory {
            // SAFETY: allocated by `new` with this layout, and freed only here.
            unsafe { dealloc(start.as_ptr(), layout) }
        }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("bytes", &self.bytes).finish()
    }
}

/// Memory for runs. What was given back is used again; a quarter more than was in use at one time is kept, and no more.
#[derive(Debug)]
pub struct Blocks {
    /// whether anything is kept
    keeps: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    free: Free,
    /// what runs have; results that were given away are not counted, or whoever hoards them once makes us keep as much
    used_bytes: usize,
    /// the most that runs had at one time
    most_bytes: usize,
}

impl State {
    /// The most that is kept: a quarter more than was in use at one time, so that results of two sizes in turns stay, too.
    fn kept_bytes(&self) -> usize {
        self.most_bytes + self.most_bytes / 4
    }
}

impl Blocks {
    /// No memory yet; what comes back is kept.
    pub fn new() -> Arc<Blocks> {
        Arc::new(Blocks { keeps: true, state: Mutex::default() })
    }

    /// No memory yet; what comes back is freed: it was needed only once.
    pub fn once() -> Arc<Blocks> {
        Arc::new(Blocks { keeps: false, state: Mutex::default() })
    }

    /// Memory of at least so many bytes, for as long as its holder likes. What is in it is of no meaning.
    pub fn take(self: &Arc<Blocks>, bytes: usize) -> Result<Held> {
        let again = self.state().free.reuse(bytes);
        let large = if self.keeps { LARGE_RESULT } else { MAPPED };
        self.held(again.map_or_else(|| Block::new(bytes, large), Ok)?)
    }

    /// Memory of at least so many bytes, for one run: it may be much more. What is in it is of no meaning.
    pub fn take_arena(self: &Arc<Blocks>, bytes: usize) -> Result<Held> {
        let again = self.state().free.arena(bytes);
        // Not while others wait: mapping memory takes a while.
        let block = again.and_then(|block| if block.bytes < bytes { block.grown(bytes) } else { Some(block) });
        self.held(block.map_or_else(|| Block::new(bytes, LARGE_ARENA), Ok)?)
    }

    fn held(self: &Arc<Blocks>, block: Block) -> Result<Held> {
        let mut state = self.state();
        state.used_bytes += block.bytes;
        state.most_bytes = state.most_bytes.max(state.used_bytes);
        Ok(Held { block: Some(block), home: Arc::downgrade(self), is_given_away: false })
    }

    /// Memory that holds these bytes.
    pub fn copy(self: &Arc<Blocks>, bytes: &[u8]) -> Result<Held> {
        let held = self.take(bytes.len())?;
        // SAFETY: the block is at least so long and ours alone.
        unsafe { held.block().start().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(held)
    }

    /// The most bytes that runs had at one time.
    pub fn most_bytes(&self) -> usize {
        self.state().most_bytes
    }

    /// The bytes that are in use.
    pub fn used_bytes(&self) -> usize {
        self.state().used_bytes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that is done under the lock panics half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was given back, by its size and its number: a loop of very many trips may give back as many blocks.
#[derive(Debug, Default)]
struct Free {
    blocks: BTreeMap<(usize, u64), Block>,
    /// the sizes of all by their numbers, oldest first
    sizes: BTreeMap<u64, usize>,
    given_back: u64,
    bytes: usize,
}

impl Free {
    /// The smallest block that is large enough and not much larger.
    fn reuse(&mut self, bytes: usize) -> Option<Block> {
        let found = *self.blocks.range((bytes, 0)..).next()?.0;
        if found.0 / 2 > bytes.max(ALIGNMENT) { None } else { self.remove(found) }
    }

    /// The smallest block that is large enough, or the largest one that can grow.
    fn arena(&mut self, bytes: usize) -> Option<Block> {
        let large = self.blocks.range((bytes, 0)..).next().map(|(key, _)| *key);
        let small = || self.blocks.last_key_value().map(|(key, _)| *key).filter(|(size, _)| *size >= MAPPED);
        let found = large.or_else(small)?;
        self.remove(found)
    }

    fn remove(&mut self, (size, number): (usize, u64)) -> Option<Block> {
        self.sizes.remove(&number);
        self.bytes -= size;
        self.blocks.remove(&(size, number))
    }

    /// Keeps a block; returns what is more than `most` bytes.
    fn keep(&mut self, block: Block, most: usize) -> Vec<Block> {
        self.bytes += block.bytes;
        self.given_back += 1;
        self.sizes.insert(self.given_back, block.bytes);
        self.blocks.insert((block.bytes, self.given_back), block);
        let mut excess = Vec::new();
        while self.bytes > most
            && let Some((oldest, size)) = self.sizes.pop_first()
        {
            self.bytes -= size;
            excess.extend(self.blocks.remove(&(size, oldest)));
        }
        excess
    }
}

/// A block that goes back to where it came from.
#[derive(Debug)]
pub struct Held {
    /// none only while it is dropped
    block: Option<Block>,
    home: Weak<Blocks>,
    is_given_away: bool,
}

impl Held {
    /// The block.
    pub fn block(&self) -> &Block {
        self.block.as_ref().expect("there is a block until it is dropped")
    }

    /// The same as a result, which the caller keeps as long as they like.
    pub fn given_away(mut self) -> Held {
        if let Some(home) = self.home.upgrade().filter(|_| !self.is_given_away) {
            home.state().used_bytes -= self.block().bytes;
        }
        self.is_given_away = true;
        self
    }

    /// Its first bytes as something to share: nobody may write them any more.
    pub fn into_bytes(self, length: usize) -> Bytes {
        debug_assert!(length <= self.block().bytes);
        Bytes::from_owner(Shared { held: self, length })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else { return };
        if let Some(home) = self.home.upgrade() {
            let mut state = home.state();
            if !self.is_given_away {
                state.used_bytes -= block.bytes;
            }
            let most = if home.keeps { state.kept_bytes() } else { 0 };
            let excess = state.free.keep(block, most);
            // Unmapping memory takes a while: not while others wait.
            drop(state);
            drop(excess);
        }
    }
}

/// The first bytes of a block that nobody writes.
struct Shared {
    held: Held,
    length: usize,
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        let block = self.held.block();
        // SAFETY: the block is at least so long and was zero when it was made, so that every byte has a value; who had it
        // gave it away to be shared, and nobody else has the pointer.
        unsafe { std::slice::from_raw_parts(block.start(), self.length.min(block.bytes)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_zero_and_can_be_written() {
        for bytes in [0, 1, 63, 64, 1000, MAPPED - 1, MAPPED, 5 * MAPPED + 3] {
            let held = Blocks::new().take(bytes).unwrap();
            let block = held.block();
            assert!(block.bytes() >= bytes && block.start().addr() % ALIGNMENT == 0);
            // SAFETY: the block is ours and that long.
            let memory = unsafe { std::slice::from_raw_parts_mut(block.start(), block.bytes()) };
            assert!(memory.iter().all(|x| *x == 0), "{bytes}");
            memory.fill(7);
            assert_eq!(held.into_bytes(bytes), vec![7; bytes]);
        }
    }

    #[test]
    fn what_is_given_back_is_used_again() {
        let blocks = Blocks::new();
        let (first, other) = (blocks.take(10_000).unwrap(), blocks.take(10_000).unwrap());
        let at = first.block().start();
        assert_ne!(at, other.block().start());
        let bytes = first.into_bytes(100);
        let slice = bytes.slice(50..);
        drop(bytes);
        let third = blocks.take(10_000).unwrap();
        assert_ne!(third.block().start(), at, "a slice still shows it");
        drop(slice);
        assert_eq!(blocks.take(8_000).unwrap().block().start(), at);
        assert_ne!(blocks.take(1_000).unwrap().block().start(), at, "too large to be wasted");
    }

    #[test]
    fn no_more_is_kept_than_was_used() {
        let blocks = Blocks::new();
        for bytes in [100_000, 40_000, 90_000, 10_000, 200_000, 3_000] {
            drop(blocks.take(bytes).unwrap());
            let state = blocks.state();
            assert!(state.free.bytes <= state.kept_bytes() && state.used_bytes == 0);
            assert_eq!(state.free.blocks.values().map(Block::bytes).sum::<usize>(), state.free.bytes);
            assert_eq!(state.free.blocks.len(), state.free.sizes.len());
        }
        assert!(blocks.most_bytes() >= 200_000);
    }

    #[test]
    fn results_that_were_hoarded_are_not_kept() {
        let blocks = Blocks::new();
        let hoard: Vec<Held> = (0..10).map(|_| blocks.take(10_000).unwrap().given_away()).collect();
        assert_eq!(blocks.state().used_bytes, 0);
        drop(hoard);
        let state = blocks.state();
        assert!((10_000..20_000).contains(&state.free.bytes) && state.used_bytes == 0, "{state:?}");
    }

    #[test]
    fn arenas_of_all_sizes_are_one_block() {
        let blocks = Blocks::new();
        let sizes = [3 * MAPPED, 7 * MAPPED + 5, 2 * MAPPED, 64, 20 * MAPPED, 7 * MAPPED];
        for (turn, bytes) in sizes.into_iter().enumerate() {
            let held = blocks.take_arena(bytes).unwrap();
            let block = held.block();
            assert!(block.bytes() >= bytes && block.start().addr() % ALIGNMENT == 0);
            // SAFETY: the block is ours and that long.
            unsafe { std::slice::from_raw_parts_mut(block.start(), block.bytes()) }.fill(turn as u8);
            drop(held);
            let largest = sizes[..=turn].iter().max().unwrap().next_multiple_of(ALIGNMENT);
            if cfg!(target_os = "linux") {
                assert_eq!(blocks.state().free.blocks.values().map(Block::bytes).collect::<Vec<_>>(), [largest]);
            }
        }
    }

    #[test]
    fn two_sizes_in_turns_stay() {
        let blocks = Blocks::new();
        let run = |arena: usize, result: usize| {
            let arena = blocks.take_arena(arena).unwrap();
            let result = blocks.take(result).unwrap().given_away();
            (arena.block().start(), result.block().start())
        };
        let (small, large) = ((2 * MAPPED, MAPPED / 4), (8 * MAPPED, MAPPED));
        run(small.0, small.1);
        let first = [run(large.0, large.1), run(small.0, small.1)];
        for _ in 0..3 {
            assert_eq!([run(large.0, large.1), run(small.0, small.1)], first);
        }
    }

    #[test]
    fn copies_hold_what_was_copied() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(Blocks::new().copy(&bytes).unwrap().into_bytes(256), bytes);
    }

    #[test]
    fn results_outlive_where_they_came_from() {
        let blocks = Blocks::new();
        let bytes = blocks.take(100).unwrap().into_bytes(100);
        drop(blocks);
        assert_eq!(bytes.len(), 100);
    }

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        let error = Blocks::new().take(usize::MAX - 100).unwrap_err();
        assert_eq!(error.kind(), fuseline::error::Kind::Exhausted);
        assert!(Blocks::new().take(usize::MAX).is_err());
    }
}
