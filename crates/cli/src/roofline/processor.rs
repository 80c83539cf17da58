//! This processor, measured: bandwidth by memory and threads, arithmetic by threads.

use std::fs;
use std::num::NonZeroUsize;

use fuseline::device::{DeviceSpec, MemoryLevel, Scope};
use fuseline::error::Result;
use fuseline::tensor::DType;
use fuseline_cpu::code::Isa;
use fuseline_cpu::here::{self, Cache};
use fuseline_cpu::run::gauge::{Access, Gauge};
use fuseline_session::rates::{self, Rates};
use serde_json::{Value, json};

use super::{Roofline, product, spec_of_base};
use crate::quantity::{self, significant};
use crate::screen::{self, Column, Table};

/// What was measured.
#[derive(Clone, Debug)]
pub struct Processor {
    /// what it is called
    pub name: String,
    isa: Isa,
    /// how many threads worked, ascending
    threads: Vec<usize>,
    memories: Vec<Memory>,
    arithmetic: Vec<Arithmetic>,
    /// GFLOP/s of a whole product of f32 by number of threads
    products: Vec<f64>,
    /// seconds until all threads have met
    join: f64,
}

/// One memory of the hierarchy.
#[derive(Clone, Debug)]
struct Memory {
    /// its name, how large it is, and who shares it
    what: Cache,
    /// GB/s by number of threads
    read: Vec<f64>,
    copy: Vec<f64>,
}

/// One unit.
#[derive(Clone, Debug)]
struct Arithmetic {
    dtype: DType,
    is_matrix: bool,
    /// GFLOP/s by number of threads
    gflops: Vec<f64>,
}

impl Arithmetic {
    fn name(&self) -> String {
        format!("{} {}", self.dtype, if self.is_matrix { "tiles (AMX)" } else { "vectors" })
    }
}

/// Measures this processor with up to so many threads, and no more than there are processors; `tell` is called with what comes next.
pub fn measure(most: Option<NonZeroUsize>, tell: &mut dyn FnMut(&str)) -> Result<Processor> {
    let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = thread_counts(most.map_or(processors, NonZeroUsize::get).min(processors));
    let isa = Isa::detect();
    let mut caches = rates::caches(here::base(isa));
    let far = rates::beyond(caches.last().map_or(0, |cache| cache.bytes), most_bytes());
    let bytes = memory_line("MemTotal").unwrap_or(16 << 30);
    caches.push(Cache { name: "dram", bytes, scope: Scope::Shared });
    let memory = |what| Memory { what, read: Vec::new(), copy: Vec::new() };
    let mut memories: Vec<Memory> = caches.into_iter().map(memory).collect();
    let (mut arithmetic, mut products): (Vec<Arithmetic>, Vec<f64>) = (Vec::new(), Vec::new());
    let mut join = 0.0;
    for count in &threads {
        let gauge = Gauge::new(isa, *count)?;
        for level in 0..memories.len() {
            let near = level.checked_sub(1).map_or(0, |near| memories[near].what.bytes);
            let memory = &mut memories[level];
            let bytes = rates::working_set(&memory.what, near, far, *count);
            tell(&format!("{}, {}", memory.what.name, threads_text(*count)));
            memory.read.push(gauge.bandwidth(Access::Read, bytes)? / 1e9);
            memory.copy.push(gauge.bandwidth(rates::writing(memory.what.name), bytes)? / 1e9);
        }
        tell(&format!("arithmetic, {}", threads_text(*count)));
        let vectors = [DType::F32, DType::F64].map(|dtype| gauge.multiply_adds(dtype).map(|rate| (dtype, false, rate)));
        let tiles = gauge.tile_products()?.map(|rate| Ok((DType::BF16, true, rate)));
        for unit in vectors.into_iter().chain(tiles) {
            let (dtype, is_matrix, rate) = unit?;
            let known = arithmetic.iter_mut().find(|known| (known.dtype, known.is_matrix) == (dtype, is_matrix));
            match known {
                Some(known) => known.gflops.push(rate / 1e9),
                None => arithmetic.push(Arithmetic { dtype, is_matrix, gflops: vec![rate / 1e9] }),
            }
        }
        products.push(product::measure(isa, *count)? / 1e9);
        join = gauge.join();
    }
    Ok(Processor { name: name(), isa, threads, memories, arithmetic, products, join })
}

/// What this processor does just now, as it is drawn: every memory, vectors of f32, and tiles of bf16 where there are any.
pub fn drawn(rates: &Rates) -> Roofline {
    let memories = rates.memories.iter().map(|memory| (memory.name.to_uppercase(), memory.most())).collect();
    let tiles = rates.tiles.map(|rate| ("bf16 matrices".to_string(), rate));
    let peaks = std::iter::once(("f32 vectors".to_string(), rates.vectors)).chain(tiles).collect();
    let name = format!("{} with {}", name(), threads_text(rates.threads));
    Roofline { name, memories, peaks, points: Vec::new() }
}

/// 1, 2, 4, … and the number itself.
fn thread_counts(most: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n < most).collect();
    counts.push(most);
    counts
}

fn threads_text(count: usize) -> String {
    format!("{count} thread{}", if count == 1 { "" } else { "s" })
}

/// A line of `/proc/meminfo` in bytes.
fn memory_line(name: &str) -> Option<usize> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()? << 10)
}

/// A third of what is free, so that a copy has room as well.
fn most_bytes() -> usize {
    memory_line("MemAvailable")
        .map_or(rates::MOST_BYTES, |free| free / 3)
        .clamp(rates::LEAST_FAR_BYTES, rates::MOST_BYTES)
}

/// What the processor calls itself.
fn name() -> String {
    let told = fs::read_to_string("/proc/cpuinfo").ok();
    let line = told.as_deref().and_then(|text| text.lines().find(|line| line.starts_with("model name")));
    let name = line.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim().to_string());
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| format!("{} processor", std::env::consts::ARCH))
}

impl Processor {
    /// As the planner can be given it: what was measured, and for the rest what is known of such processors.
    pub fn to_spec(&self) -> Result<DeviceSpec> {
        let base = here::base(self.isa);
        let cores = self.threads.last().copied().unwrap_or(1);
        let mut spec = spec_of_base(base, "here", &format!("{} with {}, measured", self.name, threads_text(cores)));
        spec.limits.cores = cores;
        spec.limits.vector_bytes = self.isa.vector_bytes();
        spec.limits.register_bytes = self.isa.vector_bytes();
        (spec.limits.registers, spec.limits.register_file) = (self.isa.registers(), self.isa.registers());
        spec.costs.join_us = digits(self.join * 1e6).max(0.05);
        let levels = self.memories.iter().zip(0..).map(|(memory, k)| self.level(memory, &base.memory, k));
        spec.memory = levels.collect();
        slow_down(&mut spec.memory);
        let peak = |dtype: DType, is_matrix: bool| {
            let found = self.arithmetic.iter().find(|unit| (unit.dtype, unit.is_matrix) == (dtype, is_matrix))?;
            found.gflops.last().map(|gflops| digits(*gflops))
        };
        let faster = peak(DType::F32, false).zip(base.vector.peak(DType::F32)).map_or(1.0, |(new, old)| new / old);
        spec.vector.rows = [DType::F32, DType::F64].into_iter().filter_map(|d| Some((d, peak(d, false)?))).collect();
        spec.special.rows.iter_mut().for_each(|(_, rate)| *rate = digits(*rate * faster));
        spec.product.rows = self.products.last().map(|gflops| (DType::F32, digits(*gflops))).into_iter().collect();
        // Tiles of int8 are not measured, and no kernel uses them.
        spec.matrix.rows = peak(DType::BF16, true).map(|rate| (DType::BF16, rate)).into_iter().collect();
        spec.host.gbps = spec.main_memory().gbps;
        Ok(spec)
    }

    fn level(&self, memory: &Memory, known: &[MemoryLevel], k: usize) -> MemoryLevel {
        let Cache { name, bytes, scope } = memory.what;
        let like = known.iter().find(|level| level.name == name).or(known.get(k)).or(known.last());
        let like = like.cloned().expect("a spec has memories");
        let of = |rates: &[f64], last: bool| if last { rates.last() } else { rates.first() }.copied().unwrap_or(1.0);
        let of_all = rates::Memory { name, read: of(&memory.read, true), copy: of(&memory.copy, true) };
        let core = of(&memory.read, false).max(of(&memory.copy, false)).min(of_all.most());
        MemoryLevel {
            name: name.into(),
            bytes,
            scope,
            gbps: digits(of_all.most()),
            core_gbps: digits(core),
            reach: (of_all.reach() * 1e2).round() / 1e2,
            ..like
        }
    }

    /// The same as JSON.
    pub fn to_json(&self) -> Value {
        let memory = |m: &Memory| json!({ "name": m.what.name, "bytes": m.what.bytes, "read_gbps": m.read, "copy_gbps": m.copy });
        let unit = |unit: &Arithmetic| json!({ "unit": unit.name(), "gflops": unit.gflops });
        json!({
            "name": self.name,
            "threads": self.threads,
            "memories": self.memories.iter().map(memory).collect::<Vec<_>>(),
            "arithmetic": self.arithmetic.iter().map(unit).collect::<Vec<_>>(),
            "products": { "dtype": "f32", "gflops": self.products },
            "join_us": self.join * 1e6,
        })
    }

    /// A table of rates by threads.
    pub fn to_text(&self) -> String {
        // One thread and all of them tell most.
        let last = self.threads.len().saturating_sub(1);
        let rates = (0..=last).map(|k| match k {
            0 => Column::right(""),
            k if k == last => Column::right(""),
            k => Column::right("").goes(u8::try_from(k).unwrap_or(u8::MAX)),
        });
        let mut table = Table::new([Column::left(""), Column::right("")].into_iter().chain(rates));
        let counts = self.threads.iter().map(|count| threads_text(*count));
        table.row([String::new(), String::new()].into_iter().chain(counts));
        for memory in &self.memories {
            for (what, rates) in [("read", &memory.read), ("copy", &memory.copy)] {
                let name = format!("{} {what}", memory.what.name.to_uppercase());
                let size = if what == "read" { quantity::bytes(memory.what.bytes as f64) } else { String::new() };
                let rates = rates.iter().map(|rate| format!("{} GB/s", significant(*rate)));
                table.row([name, size].into_iter().chain(rates));
            }
        }
        for unit in &self.arithmetic {
            let rates = unit.gflops.iter().map(|rate| format!("{}FLOP/s", quantity::count(rate * 1e9)));
            table.row([unit.name(), String::new()].into_iter().chain(rates));
        }
        if !self.products.is_empty() {
            let rates = self.products.iter().map(|rate| format!("{}FLOP/s", quantity::count(rate * 1e9)));
            table.row(["f32 products".to_string(), String::new()].into_iter().chain(rates));
        }
        table.text(screen::width())
    }
}

/// Three digits that count.
fn digits(x: f64) -> f64 {
    if x <= 0.0 || !x.is_finite() {
        return x;
    }
    let unit = 10f64.powf(x.log10().floor() - 2.0);
    let rounded = (x / unit).round() * unit;
    // Written with few digits: 0.35 and not 0.35000000000000003.
    format!("{rounded:.6}").parse().unwrap_or(rounded)
}

/// A farther memory is not faster, whatever was measured.
fn slow_down(levels: &mut [MemoryLevel]) {
    for k in 1..levels.len() {
        let near = levels[k - 1].gbps * levels[k - 1].reach;
        let level = &mut levels[k];
        if level.gbps * level.reach >= near {
            level.gbps = digits(near * 0.99 / level.reach);
        }
        level.core_gbps = level.core_gbps.min(level.gbps);
    }
}

#[cfg(test)]
mod tests {
    use fuseline::device::Unit;

    use super::*;

    fn processor() -> Processor {
        let memory = |name, bytes, scope, rate: f64| Memory {
            what: Cache { name, bytes, scope },
            read: vec![rate, 2.0 * rate],
            copy: vec![rate / 2.0, rate],
        };
        let unit = |dtype, is_matrix, rate: f64| Arithmetic { dtype, is_matrix, gflops: vec![rate, 2.0 * rate] };
        Processor {
            name: "A".into(),
            isa: Isa::Avx512,
            threads: vec![1, 2],
            memories: vec![
                memory("l1", 32 << 10, Scope::Core, 300.0),
                // Noise: farther and faster.
                memory("l2", 1 << 20, Scope::Core, 310.0),
                memory("dram", 1 << 34, Scope::Shared, 20.0),
            ],
            arithmetic: vec![unit(DType::F32, false, 100.0), unit(DType::F64, false, 50.0)],
            products: vec![80.0, 155.0],
            join: 1.23456e-6,
        }
    }

    #[test]
    fn what_was_measured_is_a_device_to_plan_for() {
        let spec = processor().to_spec().unwrap();
        let read = DeviceSpec::parse(&spec.to_string()).unwrap();
        assert_eq!(read, spec, "it is read back as it was written");
        assert_eq!((spec.limits.cores, spec.vector.peak(DType::F32)), (2, Some(200.0)));
        assert!(spec.matrix.rows.is_empty(), "there were no tiles");
        let mut tiled = processor();
        tiled.arithmetic.push(Arithmetic { dtype: DType::BF16, is_matrix: true, gflops: vec![900.0, 1800.0] });
        let tiled = tiled.to_spec().unwrap();
        assert_eq!(tiled.matrix.rows, [(DType::BF16, 1800.0)], "what was not measured is not there");
        assert_eq!(Roofline::of(&tiled).peaks.len(), 2);
        assert_eq!(spec.rate(Unit::Fma(DType::F32)), 155.0, "what products reach is a rate of its own");
        assert_eq!(spec.rate(Unit::Fma(DType::F64)), 77.5, "and others reach as much of theirs");
        assert_eq!(spec.costs.join_us, 1.23);
        let rate = |k: usize| spec.memory[k].gbps * spec.memory[k].reach;
        assert!(rate(0) > rate(1) && rate(1) > rate(2), "{:?}", spec.memory);
        assert_eq!((spec.memory[2].gbps, spec.memory[2].core_gbps, spec.memory[2].reach), (40.0, 20.0, 0.75));
    }

    #[test]
    fn threads_double_up_to_all() {
        assert_eq!(thread_counts(1), [1]);
        assert_eq!(thread_counts(2), [1, 2]);
        assert_eq!(thread_counts(12), [1, 2, 4, 8, 12]);
    }
}
