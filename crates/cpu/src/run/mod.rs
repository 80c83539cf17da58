//! Running programs: threads, memory.

pub mod block;
pub mod memory;
pub mod pool;
