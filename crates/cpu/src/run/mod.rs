//! Running programs: threads, memory.

pub mod pool;
