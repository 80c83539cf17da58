//! How much longer other work on a processor makes what takes long.
//!
//! What is done within a slice that the system gives is not disturbed at all in one of a few runs; what takes many slices shares the processor with
//! everybody else in all of them. Comes in: runs of something, between which [`Delays::take`] is called. Goes out: for any time that something should take,
//! how many times as long the least of as many runs is ([`Delays::of`]).

use fuseline::error::Result;
use fuseline::tensor::DType;

use super::block::Held;
use super::gauge::{Gauge, Launch, arithmetic_program, chains, lanes};
use crate::code::Code;
use crate::vector::Ty;

/// Seconds of a task, about: threads share the tasks as they share those of kernels.
const TASK: f64 = 5e-6;
/// Seconds of the shortest work that is measured, and how many times as long the next one takes at most.
const SHORTEST: f64 = 20e-6;
const LONGER: f64 = 4.0;
/// Seconds of work before any is measured, at most: until then, the system may favour threads that have just begun.
const RUN_UP: f64 = 12e-3;
/// How often work of every length is done at a time: one least time alone says little.
const SLOTS: usize = 4;
/// Bytes of a thread.
const BYTES: usize = 4096;

/// Work of several lengths, and the least time that each of them took.
#[derive(Debug)]
pub struct Delays {
    gauge: Gauge,
    code: Code,
    /// rounds of a task
    rounds: i64,
    memory: Held,
    lengths: Vec<Length>,
    /// tasks that are done before
    run_up: u64,
}

/// Work of one length.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Length {
    tasks: u64,
    /// seconds, of the first time at every time, of the second …
    least: [f64; SLOTS],
}

impl Length {
    /// Seconds of a task, where threads share them: the mean of the least times.
    fn each(&self) -> f64 {
        self.least.iter().sum::<f64>() / SLOTS as f64 / self.tasks as f64
    }
}

impl Delays {
    /// Work up to as long as so many seconds, on the threads of a gauge: as long as what takes the longest of things that together take `all` of them.
    pub fn new(gauge: Gauge, longest: f64, all: f64) -> Result<Delays> {
        let (lanes, chains) = (lanes(gauge.isa()), chains(gauge.isa()));
        let rate = gauge.multiply_adds(DType::F32)? / gauge.threads() as f64;
        let rounds = (TASK * rate / (2 * u64::from(lanes) * chains as u64) as f64).max(1.0) as i64;
        let code = Code::new(&arithmetic_program(lanes, Ty::F32, DType::F32, chains), gauge.isa())?;
        let whole = (longest.clamp(SHORTEST, 1.0) / SHORTEST).ln();
        let count = (whole / LONGER.ln()).ceil();
        let seconds = (0..=count as u32).map(|k| SHORTEST * (whole * f64::from(k) / count.max(1.0)).exp());
        let tasks = |seconds: f64| (seconds / TASK * gauge.threads() as f64) as u64;
        let run_up = tasks((all / 2.0).min(RUN_UP));
        let lengths: Vec<Length> =
            seconds.map(tasks).map(|tasks| Length { tasks, least: [f64::INFINITY; SLOTS] }).collect();
        let memory = gauge.filled(2 * BYTES * gauge.threads())?;
        Ok(Delays { gauge, code, rounds, memory, lengths, run_up })
    }

    /// Does the work of every length a few times.
    pub fn take(&mut self) {
        let launch = |tasks: u64| Launch {
            code: &self.code,
            tasks,
            rounds: self.rounds,
            bytes: BYTES as i64,
            memory: self.memory.block().start(),
            stride: 2 * BYTES,
        };
        // In turns, so that what disturbs one disturbs others too.
        let all = (0..SLOTS).flat_map(|_| &self.lengths).map(|length| length.tasks);
        let all: Vec<Launch<'_>> = std::iter::once(self.run_up).chain(all).map(launch).collect();
        let times = self.gauge.times(&all);
        for (slot, times) in times[1..].chunks(self.lengths.len()).enumerate() {
            for (length, seconds) in self.lengths.iter_mut().zip(times) {
                length.least[slot] = length.least[slot].min(*seconds);
            }
        }
    }

    /// How many times as long something took at the least that takes so many seconds where vectors do so many operations in a second. It is below 1 where
    /// they did more than that between the runs.
    pub fn of(&self, seconds: f64, rate: f64) -> f64 {
        let isa = self.gauge.isa();
        let operations = (2 * u64::from(lanes(isa)) * chains(isa) as u64) as f64 * self.rounds as f64;
        delay(&self.lengths, operations / rate, seconds)
    }
}

/// By what work of several lengths took, of which a task should take so many seconds, and what it is the delay of.
fn delay(lengths: &[Length], task: f64, seconds: f64) -> f64 {
    let known = lengths.iter().filter(|length| length.each().is_finite() && task > 0.0 && task.is_finite());
    let known = known.map(|length| ((task * length.tasks as f64).ln(), length.each() / task));
    let at = seconds.max(f64::MIN_POSITIVE).ln();
    let mut before: Option<(f64, f64)> = None;
    for (length, slower) in known.clone() {
        if at <= length {
            let between = |(shorter, less): (f64, f64)| less + (slower - less) * (at - shorter) / (length - shorter);
            // What is shorter than all of them is not disturbed more than any.
            return before.map_or_else(|| known.map(|(_, slower)| slower).fold(slower, f64::min), between);
        }
        before = Some((length, slower));
    }
    before.map_or(1.0, |(_, slower)| slower)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::Isa;

    #[test]
    fn what_is_short_is_not_slower_and_what_is_long_is_as_much_slower_as_work_of_its_length() {
        let length = |tasks, least| Length { tasks, least: [least; SLOTS] };
        let lengths = [length(10, 10e-6), length(100, 100e-6), length(1000, 3e-3)];
        let delays = |seconds| delay(&lengths, 1e-6, seconds);
        assert!([0.0, 1e-6, 9.9e-6].iter().all(|seconds| (delays(*seconds) - 1.0).abs() < 1e-9));
        assert!((delays(100e-6) - 1.0).abs() < 1e-9);
        assert!((delays(1e-3) - 3.0).abs() < 1e-9 && (delays(1.0) - 3.0).abs() < 1e-9);
        let between = delays(316.2e-6);
        assert!((between - 2.0).abs() < 1e-3, "half way: {between}");
        // Where the rate was measured in a moment when others had a half of the processor, what is short takes half of the time.
        let late = |seconds| delay(&lengths, 2e-6, seconds);
        assert!((late(1e-6) - 0.5).abs() < 1e-9 && (late(1.0) - 1.5).abs() < 1e-9);
        assert_eq!(delay(&[length(10, f64::INFINITY)], 1e-6, 1.0), 1.0, "nothing was measured");
        assert_eq!(delay(&[], 1e-6, 1.0), 1.0);
    }

    #[test]
    fn work_of_all_lengths_is_done_on_every_processor() {
        for isa in Isa::available() {
            let mut delays = Delays::new(Gauge::new(isa, 2).unwrap().quick(), 200e-6, 1e-3).unwrap();
            assert_eq!(delays.lengths.len(), 3, "20, 63 and 200 µs");
            delays.take();
            assert!(delays.lengths.iter().all(|length| length.each() > 0.0 && length.each().is_finite()));
            assert!(delays.of(1e-3, 1e12) > delays.of(1e-3, 1e9));
        }
    }
}
