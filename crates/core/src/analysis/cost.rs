//! What a kernel costs on a device, in microseconds.
//!
//! Comes in: [`Work`], what the kernel does as numbers, and a [`DeviceSpec`]. Goes out: a [`Price`]:
//!
//! ```text
//! us = max(memory by level, arithmetic by unit, latency) + launches + copies to and from the host
//! ```
//!
//! Of a kernel that was decided for, all that will be done can be told: parts that run one after another (factors that are put together
//! before they are multiplied) are priced by themselves and added up, latency adds to arithmetic, and products wait for a part of what
//! they read from far. Candidates are compared without.
//!
//! - *Memory.* A byte that is served by one level passes all nearer ones, so each level has its own traffic and the slowest
//!   counts. Where a byte is served follows from how much else was touched since it was touched last (its distance) and the
//!   capacity of the levels. Pieces shorter than a line cost a line; accesses narrower than a vector cost a vector at the
//!   nearest level, which serves a number of accesses and not of bytes.
//! - *Arithmetic.* Operations by unit. Units that share their ports (all vector work of a CPU) add up; others overlap, unless
//!   the work says that they wait for each other.
//! - *Parallelism.* Blocks are dealt to cores whole: the fullest core decides (wave quantisation). Few threads neither have
//!   enough bytes under way nor keep the arithmetic busy; how many there can be follows from registers and on-chip memory.
//! - *Registers* beyond the limit are spilled: written and read again at the nearest level that holds them.
//!
//! More bytes, farther data, more operations, more registers, more on-chip memory, more barriers or launches never make a
//! price smaller. (More blocks may: that is what they are for.)

use smallvec::SmallVec;

use crate::device::{DeviceSpec, Machine, MemoryLevel, Scope, Unit};
use crate::ops::Scalar;
use crate::tensor::DType;

/// What a kernel does, as numbers. Start from [`Work::default`] and add.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// what is read and written in memory
    pub streams: SmallVec<[Stream; 8]>,
    /// operations by unit
    pub operations: SmallVec<[(Unit, f64); 6]>,
    /// products that are added up by the instructions that multiply them: operations that take no time of their own
    pub ridden: f64,
    /// independent pieces of work that are dealt to cores; at least 1
    pub blocks: f64,
    /// threads of a block; 1 on a CPU
    pub threads: f64,
    /// registers that a thread needs at the same time (vector registers on a CPU), beyond what the device has too
    pub registers: f64,
    /// bytes of on-chip memory that a block uses
    pub on_chip: f64,
    /// bytes of each stream that a thread requests before it needs the first of them; 0: two vectors
    pub in_flight: f64,
    /// how often a thread computes its live values anew, over all threads: what spilled registers are paid by; 0: as often
    /// as the longest stream has accesses
    pub turns: f64,
    /// barriers that every block passes, one after the other
    pub barriers: f64,
    /// barriers of the whole grid
    pub joins: f64,
    /// operations on vectors that compute nothing: what it takes to put elements where others can read them
    pub moves: f64,
    /// the part of what comes from memory that all cores share which arithmetic does not hide, from 0 to 1
    pub exposed: f64,
    /// how many times all operations are done, where values are computed anew instead of kept; at least 1
    pub recompute: f64,
    /// how many times more products are made than are wanted, because they are made in whole tiles; at least 1
    pub padding: f64,
    /// the part of the time of the other units that the slowest one does not hide, from 0 (they overlap) to 1 (one after the
    /// other, as where operands are computed before matrix units can take them)
    pub serial: f64,
    /// kernels that are started: two for a reduction in two phases
    pub launches: f64,
    /// bytes that are copied to and from the host, where part of the work is done there
    pub host_bytes: f64,
    /// whether all that is done is told, as of a kernel that is no candidate any more: then it is priced as what it will take
    pub is_detailed: bool,
    /// what is done before it, part after part, each with launches of its own; what parts leave for each other is no traffic of the kernel
    pub before: Vec<Work>,
}

/// One tensor, or part of one, as a kernel reads or writes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stream {
    /// bytes touched, each counted once
    pub bytes: f64,
    /// how often each of them is touched; at least 1
    pub passes: f64,
    /// bytes that the device touched since these were touched before the kernel (or, for a result, until they are read),
    /// including these; infinite where they come from or go to main memory
    pub since: f64,
    /// bytes that one core touches between two passes; the level of later passes follows from it
    pub between: f64,
    /// bytes of one access of one thread, up to the vector width
    pub access: f64,
    /// bytes that lie together and are touched together by a block: shorter than a line wastes the rest of it
    pub run: f64,
    /// whether it is written
    pub written: bool,
}

impl Stream {
    /// Bytes in main memory that are touched once, in full vectors.
    pub fn of(bytes: f64) -> Stream {
        let far = f64::INFINITY;
        Stream { bytes, passes: 1.0, since: far, between: far, access: far, run: far, written: false }
    }

    /// The same data, touched on the device not long ago: `since` bytes were touched meanwhile, including these.
    pub fn warm(self, since: f64) -> Stream {
        Stream { since, ..self }
    }

    /// The same data, touched `passes` times by a core that touches `between` bytes from one pass to the next.
    pub fn again(self, passes: f64, between: f64) -> Stream {
        Stream { passes: passes.max(1.0), between, ..self }
    }

    /// The same data in pieces: one access moves `access` bytes, and `run` bytes lie together.
    pub fn strided(self, access: f64, run: f64) -> Stream {
        Stream { access, run, ..self }
    }
}

impl Default for Work {
    /// Nothing to do, in one launch.
    fn default() -> Work {
        Work {
            streams: SmallVec::new(),
            operations: SmallVec::new(),
            ridden: 0.0,
            blocks: 1.0,
            threads: 1.0,
            registers: 0.0,
            on_chip: 0.0,
            in_flight: 0.0,
            turns: 0.0,
            barriers: 0.0,
            joins: 0.0,
            moves: 0.0,
            exposed: 0.0,
            recompute: 1.0,
            padding: 1.0,
            serial: 0.0,
            launches: 1.0,
            host_bytes: 0.0,
            is_detailed: false,
            before: Vec::new(),
        }
    }
}

impl Work {
    /// Adds data that is read.
    pub fn read(&mut self, stream: Stream) -> &mut Work {
        self.streams.push(Stream { written: false, ..stream });
        self
    }

    /// Adds data that is written.
    pub fn write(&mut self, stream: Stream) -> &mut Work {
        self.streams.push(Stream { written: true, ..stream });
        self
    }

    /// Adds operations of a unit.
    pub fn operate(&mut self, unit: Unit, count: f64) -> &mut Work {
        match self.operations.iter_mut().find(|(u, _)| *u == unit) {
            Some((_, sum)) => *sum += count,
            None => self.operations.push((unit, count)),
        }
        self
    }

    /// The type of what it multiplies in units for matrices, the fastest where it uses several; none where a device has none for it, or
    /// nothing is multiplied. What it can reach at most is what these units can, or else vectors.
    pub fn matrices(&self, spec: &DeviceSpec) -> Option<DType> {
        let of_units = self.operations.iter().filter_map(|(unit, _)| match unit {
            Unit::Matrix(dtype) => Some((*dtype, spec.matrix.peak(*dtype)?)),
            _ => None,
        });
        of_units.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(dtype, _)| dtype)
    }

    /// Adds `count` values of a scalar function. Its cost column tells what it takes: cheap functions are vector
    /// operations, dear ones are special functions in proportion to exp.
    pub fn scalar(&mut self, scalar: Scalar, count: f64, dtype: DType) -> &mut Work {
        let (flops, exp) = (f64::from(scalar.def().flops), f64::from(Scalar::Exp2.def().flops));
        match flops < exp {
            true => self.operate(Unit::Elementwise(dtype), flops * count),
            false => self.operate(Unit::Special(dtype), flops / exp * count),
        }
    }

    /// Adds operations of sums of products (two for each product), on the device's fastest unit for them.
    pub fn dot(&mut self, flops: f64, dtype: DType, spec: &DeviceSpec) -> &mut Work {
        self.operate(spec.dot_unit(dtype), flops)
    }

    /// Says how the work is divided.
    pub fn divide(&mut self, blocks: f64, threads: f64) -> &mut Work {
        (self.blocks, self.threads) = (blocks.max(1.0), threads.max(1.0));
        self
    }

    /// The same where it is done again and again, each time with so many bytes of everything around it: what comes from far was touched the last time.
    pub fn recur(&mut self, bytes: f64) {
        let far = self.streams.iter_mut().filter(|stream| stream.since.is_infinite());
        // Who goes round finds nothing in a memory that is only a little too small: it holds what it was given last.
        far.for_each(|stream| stream.since = 2.0 * bytes.max(stream.bytes));
        self.before.iter_mut().for_each(|part| part.recur(bytes));
    }

    /// Bytes read and written, each pass counted.
    pub fn traffic(&self) -> f64 {
        self.streams.iter().map(|s| s.bytes * s.passes).sum()
    }

    /// Bytes touched, each counted once.
    pub fn footprint(&self) -> f64 {
        self.streams.iter().map(|s| s.bytes).sum()
    }

    /// All operations, recomputed ones included; special functions count as many as their cost column says.
    pub fn flops(&self) -> f64 {
        let flops = |(unit, count): &(Unit, f64)| match unit {
            Unit::Special(_) => count * f64::from(Scalar::Exp2.def().flops),
            _ => *count,
        };
        self.operations.iter().map(flops).fold(self.ridden, |sum, count| sum + count) * self.recompute
    }
}

/// What a kernel costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    /// microseconds in all
    pub us: f64,
    /// what most of the time goes to
    pub bound: Bound,
    /// time of the slowest memory level
    pub memory_us: f64,
    /// time of the slowest unit
    pub compute_us: f64,
    /// time that one block after the other takes to start, fetch and synchronise
    pub latency_us: f64,
    /// time to start kernels and bring the cores together
    pub launch_us: f64,
    /// time of copies to and from the host
    pub copy_us: f64,
    /// threads that a core holds, as part of what it can hold, from registers and on-chip memory
    pub occupancy: f64,
    /// registers of a thread that do not fit
    pub spilled: f64,
}

impl Price {
    /// The price of something with a part before it; what most of the time goes to is that of the longer one.
    fn after(self, part: Price) -> Price {
        Price {
            us: self.us + part.us,
            bound: if part.us > self.us { part.bound } else { self.bound },
            memory_us: self.memory_us + part.memory_us,
            compute_us: self.compute_us + part.compute_us,
            latency_us: self.latency_us + part.latency_us,
            launch_us: self.launch_us + part.launch_us,
            copy_us: self.copy_us + part.copy_us,
            occupancy: self.occupancy,
            spilled: self.spilled.max(part.spilled),
        }
    }
}

/// What most of a kernel's time goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// bytes from and to the memory level with this index in the spec
    Memory(usize),
    /// operations of this unit
    Compute(Unit),
    /// starting kernels
    Launch,
    /// blocks that wait for their first data or for each other
    Latency,
    /// copies to and from the host
    Copy,
}

impl Bound {
    /// In words, with the device's names.
    pub fn describe(self, spec: &DeviceSpec) -> String {
        match self {
            Bound::Memory(level) => spec.memory.get(level).map_or("memory", |m| m.name.as_str()).to_string(),
            Bound::Compute(unit) => unit.to_string(),
            Bound::Launch => "launch".into(),
            Bound::Latency => "latency".into(),
            Bound::Copy => "copies to and from the host".into(),
        }
    }
}

/// The most levels that are priced one by one; farther ones count as the last of them.
const LEVELS: usize = 8;

/// The price of a kernel on a device. Cheap: no allocation, a few hundred operations for each part.
pub fn price(work: &Work, spec: &DeviceSpec) -> Price {
    let before = work.before.iter().map(|part| price(part, spec));
    before.fold(price_part(work, spec), Price::after)
}

/// The price without what is done before.
fn price_part(work: &Work, spec: &DeviceSpec) -> Price {
    let share = Share::of(work, spec);
    let Busiest { us: memory_us, level, far_us } = memory(work, spec, &share);
    let (compute_us, unit) = compute(work, spec, &share);
    let latency_us = share.waves * (spec.costs.block_us + work.barriers * spec.costs.barrier_us);
    // A GPU's kernels end together as part of being launched; the cores of a CPU have to meet.
    let meets = if spec.kind == Machine::Cpu && work.blocks > 1.0 { work.launches } else { 0.0 };
    let launch_us = work.launches * spec.costs.launch_us + (meets + work.joins) * spec.costs.join_us;
    let is_hosted = work.host_bytes > 0.0 || work.operations.iter().any(|(unit, _)| *unit == Unit::Host);
    let copy_us = match is_hosted && spec.host.round_trip_us > 0.0 {
        true => spec.host.round_trip_us + work.host_bytes / (spec.host.gbps * 1e3),
        false => 0.0,
    };
    let busy_us = match work.is_detailed {
        // A core runs one block at a time.
        true => {
            let computing_us = compute_us + latency_us;
            memory_us.max(computing_us) + work.exposed.clamp(0.0, 1.0) * far_us.min(computing_us)
        }
        false => memory_us.max(compute_us).max(latency_us),
    };
    let bound = match () {
        () if copy_us > busy_us.max(launch_us) => Bound::Copy,
        () if launch_us >= busy_us => Bound::Launch,
        () if memory_us >= compute_us.max(latency_us) => Bound::Memory(level),
        () if compute_us >= latency_us => Bound::Compute(unit),
        () => Bound::Latency,
    };
    Price {
        us: busy_us + launch_us + copy_us,
        bound,
        memory_us,
        compute_us,
        latency_us,
        launch_us,
        copy_us,
        occupancy: share.occupancy,
        spilled: share.spilled,
    }
}

/// How the work lies on the cores.
struct Share {
    /// blocks of the fullest core over the average of all cores: 1 where the work divides evenly
    imbalance: f64,
    /// how often the device is filled with blocks
    waves: f64,
    /// threads on the fullest core at a time
    threads: f64,
    occupancy: f64,
    spilled: f64,
    /// bytes of on-chip memory that a block does not get
    overflow: f64,
}

impl Share {
    fn of(work: &Work, spec: &DeviceSpec) -> Share {
        let limits = &spec.limits;
        let cores = limits.cores as f64;
        let (blocks, threads) = (work.blocks.max(1.0), work.threads.max(1.0));
        let registers = work.registers.min(limits.registers as f64).max(1.0);
        let on_chip = work.on_chip.min(limits.on_chip as f64).max(1.0);
        // What a core holds at a time; one block always runs.
        let held = (limits.blocks as f64)
            .min((limits.threads as f64 / threads).floor())
            .min((limits.register_file as f64 / (registers * threads)).floor())
            .min((limits.core_on_chip as f64 / on_chip).floor())
            .max(1.0);
        let fullest = (blocks / cores).ceil();
        Share {
            imbalance: fullest * cores / blocks,
            waves: (blocks / (cores * held)).ceil(),
            threads: held.min(fullest) * threads,
            occupancy: (held * threads / limits.threads as f64).min(1.0),
            spilled: (work.registers - limits.registers as f64).max(0.0),
            overflow: (work.on_chip - limits.on_chip as f64).max(0.0),
        }
    }
}

/// Bytes that each level moves, nearest first.
struct Traffic<'s> {
    spec: &'s DeviceSpec,
    bytes: [f64; LEVELS],
    /// of the longest stream alone
    longest: [f64; LEVELS],
}

impl Traffic<'_> {
    /// Adds bytes that come from the levels that hold what was touched since they were touched last, the `distance`, as far as they were
    /// touched there; a level without one serves nothing.
    fn add(&mut self, stream: &Stream, bytes: f64, distance: impl Fn(&MemoryLevel) -> Option<(f64, f64)>) {
        let vector = self.spec.limits.vector_bytes as f64;
        let last = self.spec.memory.len().min(LEVELS) - 1;
        // The part of the bytes that no nearer level serves.
        let mut rest = 1.0;
        for (at, level) in self.spec.memory.iter().enumerate().take(LEVELS) {
            let mut moved = bytes * rest;
            let width = if at == 0 { excess(vector, stream.access) } else { 1.0 };
            moved *= width.max(excess(level.line as f64, stream.run));
            self.bytes[at] += moved;
            self.longest[at] = self.longest[at].max(moved);
            if at < last {
                let lost = |(distance, own): (f64, f64)| 1.0 - own * (1.0 - missed(distance, level.bytes as f64));
                rest *= distance(level).map_or(1.0, lost);
            }
            if rest == 0.0 {
                return;
            }
        }
    }
}

/// How many times too much is moved where pieces of `used` bytes come in wholes.
fn excess(whole: f64, used: f64) -> f64 {
    if used >= whole { 1.0 } else { whole / used.max(1.0) }
}

/// The part of the bytes that a memory does not hold any more. One that holds everything touched meanwhile serves all; at
/// twice its size everything has been pushed out in time.
fn missed(touched: f64, capacity: f64) -> f64 {
    if touched <= capacity {
        0.0
    } else if touched >= 2.0 * capacity {
        1.0
    } else {
        touched / capacity - 1.0
    }
}

/// The slowest memory level.
struct Busiest {
    us: f64,
    level: usize,
    /// the same of those that all cores share
    far_us: f64,
}

/// Microseconds of the slowest memory level, and which it is.
fn memory(work: &Work, spec: &DeviceSpec, share: &Share) -> Busiest {
    let cores = spec.limits.cores as f64;
    let footprint = work.footprint();
    let mut traffic = Traffic { spec, bytes: [0.0; LEVELS], longest: [0.0; LEVELS] };
    for stream in &work.streams {
        // Between kernels the caches of all cores together keep what they can. Who touches a line is by chance who had it before, and who
        // writes fetches it too: the rest of what lies in caches of single cores comes by way of what they share.
        traffic.add(stream, stream.bytes, |level| {
            let copies = if level.scope == Scope::Core { cores } else { 1.0 };
            let own = if work.is_detailed { 1.0 / copies } else { 1.0 };
            level.keeps.then_some((stream.since / copies, own))
        });
        let again = stream.bytes * (stream.passes - 1.0).max(0.0);
        if again > 0.0 {
            traffic.add(stream, again, |level| within(level, stream.between, cores, footprint));
        }
    }
    spill(work, spec, share, &mut traffic);
    let by_thread = if work.in_flight > 0.0 { work.in_flight } else { 2.0 * spec.limits.vector_bytes as f64 };
    let under_way = by_thread * share.threads;
    let mut slowest = Busiest { us: 0.0, level: spec.memory.len() - 1, far_us: 0.0 };
    for (at, level) in spec.memory.iter().enumerate().take(LEVELS) {
        if traffic.bytes[at] == 0.0 {
            continue;
        }
        let flow = if level.in_flight == 0 { 1.0 } else { (under_way / level.in_flight as f64).min(1.0) };
        let together = (traffic.longest[at] / flow).max(traffic.bytes[at]) / level.gbps;
        let by_core = traffic.bytes[at] * share.imbalance / cores / level.core_gbps;
        let us = together.max(by_core) / (level.reach * 1e3);
        // Of equally slow levels the farther one is the reason.
        if us > 0.0 && us >= slowest.us {
            (slowest.us, slowest.level) = (us, at);
        }
        if level.scope == Scope::Shared {
            slowest.far_us = slowest.far_us.max(us);
        }
    }
    slowest
}

/// How much lies between two touches of the same byte inside of a kernel, as this level sees it.
fn within(level: &MemoryLevel, between: f64, cores: f64, footprint: f64) -> Option<(f64, f64)> {
    let touched = match level.scope {
        Scope::Core => between,
        Scope::Shared => (between * cores).min(footprint),
    };
    Some((touched, 1.0))
}

/// Adds what does not fit into registers and on-chip memory, written and read again.
fn spill(work: &Work, spec: &DeviceSpec, share: &Share, traffic: &mut Traffic<'_>) {
    let cores = spec.limits.cores as f64;
    let vector = spec.limits.vector_bytes as f64;
    let accesses = |s: &Stream| s.bytes * s.passes / s.access.clamp(1.0, vector);
    if share.spilled > 0.0 {
        let longest = || work.streams.iter().map(accesses).fold(1.0, f64::max);
        let turns = if work.turns > 0.0 { work.turns } else { longest() };
        let bytes = share.spilled * spec.limits.register_bytes as f64;
        let held = bytes * share.threads;
        let whole = Stream::of(2.0 * bytes * turns);
        traffic.add(&whole, whole.bytes, |level| within(level, held, cores, f64::INFINITY));
    }
    if share.overflow > 0.0 {
        let whole = Stream::of(2.0 * share.overflow * work.blocks.max(1.0));
        traffic.add(&whole, whole.bytes, |level| within(level, work.on_chip, cores, f64::INFINITY));
    }
}

/// Microseconds of the slowest unit, and which it is.
fn compute(work: &Work, spec: &DeviceSpec, share: &Share) -> (f64, Unit) {
    // Few threads leave gaps between dependent operations. A thread that adds up a tile always has another sum to go on with
    // and needs half as many; matrix instructions are long enough by themselves.
    let filled = (share.threads / spec.limits.fill_threads as f64).min(1.0);
    let filled_by_sums = (2.0 * share.threads / spec.limits.fill_threads as f64).min(1.0);
    let mut slowest = (0.0, Unit::Elementwise(DType::F32));
    let mut others = 0.0;
    // Units that run on the same ports wait for each other.
    let moves = work.moves * share.imbalance / (spec.rate(Unit::Elementwise(DType::F32)) * filled * 1e3);
    let mut vector = (moves, moves, Unit::Elementwise(DType::F32));
    for (unit, count) in &work.operations {
        let evenly = count * work.recompute.max(1.0) / (spec.rate(*unit) * 1e3);
        let us = match unit {
            Unit::Host => evenly,
            Unit::Matrix(dtype) if spec.matrix.peak(*dtype).is_some() => {
                evenly * share.imbalance * work.padding.max(1.0)
            }
            Unit::Matrix(_) | Unit::Fma(_) if work.is_detailed => evenly * share.imbalance * work.padding.max(1.0),
            Unit::Matrix(_) | Unit::Fma(_) => evenly * share.imbalance / filled_by_sums,
            _ => evenly * share.imbalance / filled,
        };
        let is_vector = match unit {
            Unit::Fma(_) | Unit::Elementwise(_) => true,
            Unit::Matrix(dtype) => spec.matrix.peak(*dtype).is_none(),
            Unit::Special(_) => spec.kind == Machine::Cpu,
            Unit::Host => false,
        };
        if is_vector {
            vector.0 += us;
            if us > vector.1 {
                (vector.1, vector.2) = (us, *unit);
            }
            continue;
        }
        others += us;
        if us > slowest.0 {
            slowest = (us, *unit);
        }
    }
    let (longest, unit) = if vector.0 > slowest.0 { (vector.0, vector.2) } else { slowest };
    (longest + work.serial.clamp(0.0, 1.0) * (vector.0 + others - longest), unit)
}

#[cfg(test)]
mod tests;
