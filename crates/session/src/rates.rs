//! What this processor does at the moment: rates of its memories and units, and what calls and meetings of threads take.
//!
//! A device is described as it should be; what is measured on a machine is compared with what is measured of the machine.

use fuseline::device::{DeviceSpec, MemoryLevel, Scope};
use fuseline::error::Result;
use fuseline::tensor::DType;
use fuseline_cpu::code::Isa;
use fuseline_cpu::here::{self, Cache};
use fuseline_cpu::run::gauge::{Access, Gauge};

use crate::machine::processors;

/// The most memory that a measurement takes.
pub const MOST_BYTES: usize = 1 << 30;
/// The part of multiply-adds that whole products reach: of `f32 vectors`, `f32 products` had 0.84 and 0.85 in `fuseline roofline` with two threads on two
/// cores at their highest clock, and 0.94 where both were on one.
const PRODUCTS: f64 = 0.87;

/// The least memory that is surely no cache.
pub const LEAST_FAR_BYTES: usize = 128 << 20;

/// Rates of so many threads of this processor.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    /// how many threads worked
    pub threads: usize,
    /// every memory, the nearest first
    pub memories: Vec<Memory>,
    /// GFLOP/s of multiply-adds of f32 on vectors
    pub vectors: f64,
    /// the same where they load their factors, as products do
    pub loaded: f64,
    /// the same of bf16 in tiles, where there are any
    pub tiles: Option<f64>,
    /// seconds that a call takes
    pub call: f64,
    /// seconds until all threads have met
    pub join: f64,
}

/// One memory, in GB/s of all threads together.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// its name in descriptions of devices: l1, l2, l3, dram
    pub name: &'static str,
    /// where it is read
    pub read: f64,
    /// where it is copied
    pub copy: f64,
}

impl Memory {
    /// The most that it gives.
    pub fn most(&self) -> f64 {
        self.read.max(self.copy)
    }

    /// The part of that which kernels get, as they read more than they write: between a copy and reading alone.
    pub fn reach(&self) -> f64 {
        (self.read.min(self.copy) / self.most() + 1.0) / 2.0
    }
}

impl Rates {
    /// Measures so many threads, in a fraction of a second; no more than there are processors, for more take turns and reach no more.
    pub fn measure(threads: usize) -> Result<Rates> {
        Rates::of(Gauge::new(Isa::detect(), threads.min(processors().get()))?)
    }

    /// The same for threads that are there.
    pub fn of(gauge: Gauge) -> Result<Rates> {
        let (isa, threads, gauge) = (Isa::detect(), gauge.threads(), gauge.quick());
        let caches = caches(here::base(isa));
        let far = beyond(caches.last().map_or(0, |cache| cache.bytes), MOST_BYTES / 2);
        let (mut memories, mut near) = (Vec::with_capacity(caches.len() + 1), 0);
        let main = Cache { name: "dram", bytes: usize::MAX, scope: Scope::Shared };
        for cache in caches.iter().chain([&main]) {
            let bytes = working_set(cache, near, far, threads.max(1));
            let read = gauge.bandwidth(Access::Read, bytes)? / 1e9;
            let copy = gauge.bandwidth(writing(cache.name), bytes)? / 1e9;
            memories.push(Memory { name: cache.name, read, copy });
            near = cache.bytes;
        }
        let tiles = gauge.tile_products()?.map(|rate| rate / 1e9);
        let vectors = gauge.multiply_adds(DType::F32)? / 1e9;
        let loaded = gauge.loaded_multiply_adds()? / 1e9;
        Ok(Rates { threads, memories, vectors, loaded, tiles, call: gauge.call()?, join: gauge.join() })
    }

    /// The faster of both, rate by rate: what others do on a machine only makes it slower.
    pub fn or_faster(mut self, other: &Rates) -> Rates {
        for (own, other) in self.memories.iter_mut().zip(&other.memories) {
            (own.read, own.copy) = (own.read.max(other.read), own.copy.max(other.copy));
        }
        self.vectors = self.vectors.max(other.vectors);
        self.loaded = self.loaded.max(other.loaded);
        self.tiles = self.tiles.zip(other.tiles).map(|(own, other)| own.max(other)).or(self.tiles);
        (self.call, self.join) = (self.call.min(other.call), self.join.min(other.join));
        self
    }

    /// A device with as many cores as there were threads, at these rates.
    pub fn on(&self, spec: &DeviceSpec) -> DeviceSpec {
        let mut spec = spec.scaled(self.threads, &[]);
        let faster = |now: Option<f64>, then: Option<f64>| now.zip(then).map_or(1.0, |(now, then)| now / then);
        let vectors = faster(Some(self.vectors), spec.vector.peak(DType::F32));
        let matrices = faster(self.tiles, spec.matrix.peak(DType::BF16));
        let others = spec.product.rows.iter().filter(|(dtype, _)| *dtype != DType::F32);
        let others = others.map(|(dtype, rate)| (*dtype, rate * vectors));
        spec.product.rows =
            [(DType::F32, self.loaded.min(self.vectors) * PRODUCTS)].into_iter().chain(others).collect();
        let rates = [&mut spec.vector, &mut spec.special].map(|rates| (rates, vectors));
        for (rates, faster) in rates.into_iter().chain([(&mut spec.matrix, matrices)]) {
            rates.rows.iter_mut().for_each(|(_, rate)| *rate *= faster);
        }
        let mut nearer = f64::INFINITY;
        for level in &mut spec.memory {
            if let Some(measured) = self.memories.iter().find(|memory| memory.name == level.name) {
                let reach = measured.reach();
                // A farther memory is not faster, whatever was measured.
                let most = measured.most().min(nearer / reach);
                let faster = most / level.gbps;
                (level.gbps, level.core_gbps, level.reach) = (most, level.core_gbps * faster, reach);
            }
            nearer = level.gbps * level.reach;
        }
        spec.costs.launch_us = self.call * 1e6;
        spec.costs.join_us = if self.threads > 1 { self.join * 1e6 } else { 0.0 };
        spec
    }
}

/// How a memory is written: what does not fit into any cache goes past all of them, as kernels do it.
pub fn writing(name: &str) -> Access {
    if name == "dram" { Access::Stream } else { Access::Copy }
}

/// Bytes that a cache of so many does not hold.
pub fn beyond(cache: usize, most: usize) -> usize {
    cache.saturating_mul(4).clamp(LEAST_FAR_BYTES, most.max(LEAST_FAR_BYTES))
}

/// Bytes of a thread that lie in this memory and not in the nearer one.
pub fn working_set(memory: &Cache, near: usize, far: usize, threads: usize) -> usize {
    match memory.scope {
        _ if memory.name == "dram" => far / threads,
        Scope::Core => (memory.bytes / 2).max(near * 2).min(memory.bytes),
        // Shared with others perhaps: what is a few times the nearer memory is enough.
        Scope::Shared => (memory.bytes / 4 / threads).clamp(near * 2, (near * 8).max(near * 2 + 1)),
    }
}

/// The caches of the first processor, as the system tells; those of the spec where it does not.
pub fn caches(base: &DeviceSpec) -> Vec<Cache> {
    let told = here::caches();
    if !told.is_empty() {
        return told;
    }
    let usual = |level: &MemoryLevel| {
        let name = ["l1", "l2", "l3"].into_iter().find(|name| *name == level.name)?;
        Some(Cache { name, bytes: level.bytes, scope: level.scope })
    };
    base.memory.iter().filter_map(usual).collect()
}

#[cfg(test)]
mod tests {
    use fuseline::device::Unit;

    use super::*;

    fn rates() -> Rates {
        let memory = |name, read| Memory { name, read, copy: read / 2.0 };
        let memories = vec![memory("l1", 400.0), memory("l2", 200.0), memory("l3", 240.0), memory("dram", 10.0)];
        Rates { threads: 2, memories, vectors: 100.0, loaded: 90.0, tiles: Some(1000.0), call: 1e-7, join: 5e-7 }
    }

    #[test]
    fn a_device_has_the_rates_that_were_measured() {
        let cpu = DeviceSpec::find("cpu").unwrap();
        let slow = rates().on(cpu);
        let [f32, bf16] = [DType::F32, DType::BF16];
        assert_eq!((slow.vector.peak(f32), slow.matrix.peak(bf16)), (Some(100.0), Some(1000.0)));
        assert!((slow.rate(Unit::Fma(f32)) - 90.0 * PRODUCTS).abs() < 1e-9, "what products reach");
        assert!((slow.special.rows[0].1 - cpu.special.rows[0].1 * 100.0 / 357.0).abs() < 1e-9);
        let reached: Vec<f64> = slow.memory.iter().map(|level| level.gbps * level.reach).collect();
        assert_eq!(reached, [300.0, 150.0, 150.0, 7.5], "what kernels get, and no more from farther away");
        assert_eq!(slow.memory[1].core_gbps, 178.0 * 200.0 / 357.0);
        assert!((slow.costs.launch_us - 0.1).abs() < 1e-9 && (slow.costs.join_us - 0.5).abs() < 1e-9);
        assert_eq!(Rates { threads: 1, ..rates() }.on(cpu).costs.join_us, 0.0, "one meets nobody");
    }

    #[test]
    fn what_is_measured_twice_is_as_fast_as_it_was_once() {
        let mut other = rates();
        (other.vectors, other.memories[0].copy, other.join) = (50.0, 300.0, 1e-7);
        let both = other.or_faster(&rates());
        assert_eq!((both.vectors, both.memories[0].copy, both.memories[0].read), (100.0, 300.0, 400.0));
        assert_eq!((both.call, both.join), (1e-7, 1e-7));
    }

    #[test]
    fn every_memory_has_a_working_set_of_its_own() {
        let cache = |name, bytes, scope| Cache { name, bytes, scope };
        assert_eq!(working_set(&cache("l1", 32 << 10, Scope::Core), 0, 1 << 28, 2), 16 << 10);
        assert_eq!(working_set(&cache("l2", 1 << 20, Scope::Core), 32 << 10, 1 << 28, 2), 512 << 10);
        assert_eq!(working_set(&cache("dram", usize::MAX, Scope::Shared), 1 << 20, 1 << 28, 2), 1 << 27);
    }

    #[test]
    fn this_processor_has_rates() {
        let rates = Rates::measure(1).unwrap();
        assert!(rates.memories.iter().all(|memory| memory.read > 0.0 && memory.copy > 0.0), "{rates:?}");
        assert!(rates.vectors > 0.0 && rates.call > 0.0 && rates.memories.last().is_some_and(|m| m.name == "dram"));
    }
}
