//! How long a kernel takes, beside a copy of as many bytes.

use std::time::Duration;

use fuseline::error::{Error, Result};
use fuseline::fuse::PlanOptions;
use fuseline::reference::Limits;
use fuseline::tile::Param;
use fuseline_cpu::here;
use fuseline_cuda::run::Timing;
use fuseline_session::machine::processor;
use serde_json::json;

use super::Written;
use super::feed::{self, Feed};
use super::run::{sizes_json, tell};
use crate::arguments::{BenchKernel, Measuring};
use crate::failure::{Failure, GPU, Outcome};
use crate::load::{self, Load};
use crate::quantity::{self, significant};
use crate::screen::{self, Column, Table, heading};
use crate::waiting::Waiting;

/// What a free size is taken as where a kernel is measured.
const USUAL_SIZE: i64 = 1024;

/// Times in microseconds, ascending.
struct Times(Vec<f64>);

impl Times {
    fn of(times: impl Iterator<Item = f64>) -> Times {
        let mut all: Vec<f64> = times.collect();
        all.sort_by(f64::total_cmp);
        Times(all)
    }

    fn part(&self, part: f64) -> f64 {
        let place = (part * self.0.len().saturating_sub(1) as f64).round() as usize;
        self.0.get(place).copied().unwrap_or(f64::NAN)
    }

    fn median(&self) -> f64 {
        self.part(0.5)
    }
}

/// Measures a kernel.
pub fn bench(written: &Written, options: &BenchKernel) -> Outcome {
    let feed = feed::assemble(written, options.inputs.as_deref(), &options.sizes, USUAL_SIZE, options.seed)?;
    tell(&feed, options.seed);
    let load = load::tell(options.device);
    let waiting = Waiting::for_(&format!("measuring {}", written.name()));
    let kernel = &written.source.kernel;
    let stored = bytes_of(&kernel.outputs, &feed).map_err(|error| written.failure(error))?;
    let bytes = stored + bytes_of(&kernel.inputs, &feed).map_err(|error| written.failure(error))?;
    if bytes == 0 {
        let error = Error::invalid("the kernel reads and writes nothing at these sizes: there is nothing to measure");
        return Err(Failure::with_help(error.at("--sizes"), "give sizes above 0"));
    }
    let (kernel, copy, threads) = times(written, options, &feed, bytes)?;
    drop(waiting);
    let gbps = |times: &Times| bytes as f64 / times.median() / 1e3;
    let against = copy.median() / kernel.median();
    if options.json {
        let of = |times: &Times| {
            json!({
                "median_us": times.median(),
                "min_us": times.part(0.0),
                "p90_us": times.part(0.9),
                "gbps": gbps(times),
            })
        };
        return screen::print_json(&json!({
            "kernel": written.name(),
            "device": options.device.name(),
            "threads": threads,
            "iters": options.iters.get(),
            "sizes": sizes_json(written, &feed),
            "bytes": bytes,
            "time": of(&kernel),
            "copy": of(&copy),
            "of_copy_speed": against,
            "above_copy": above_copy(against, bytes, stored),
            "load": load.map(Load::to_json),
        }));
    }
    let place = match threads {
        Some(1) => "1 thread".to_owned(),
        Some(threads) => format!("{threads} threads"),
        None => "the GPU".to_owned(),
    };
    let mut text = heading(&format!("{} on {place}", written.name()));
    text.push_str(&format!(
        "  {}, {} read and written\n\n",
        quantity::several(options.iters.get(), "run"),
        quantity::bytes(bytes as f64)
    ));
    let columns = ["median µs", "min", "p90", "GB/s"].map(Column::right);
    let mut table = Table::new([Column::left("")].into_iter().chain(columns));
    for (name, times) in [("the kernel", &kernel), ("a copy", &copy)] {
        let numbers = [times.median(), times.part(0.0), times.part(0.9), gbps(times)].map(significant);
        table.row(std::iter::once(name.to_owned()).chain(numbers));
    }
    text.push_str(&table.text(screen::width()));
    text.push_str(&format!("\n  {:.0} % of the speed of a copy\n", 100.0 * against));
    if let Some(why) = above_copy(against, bytes, stored) {
        text.push_str(&screen::wrapped(why, 2, screen::width()));
    }
    screen::print(&text)
}

/// Why a kernel is faster than a copy of as many bytes, where it is shown as faster.
fn above_copy(against: f64, bytes: usize, stored: usize) -> Option<&'static str> {
    let is_above = (100.0 * against).round() > 100.0;
    let why = match 2 * stored < bytes {
        true => "above 100 %: a copy writes half of its bytes, the kernel fewer, and writing takes longer than reading",
        false => "above 100 %: both run at the speed of memory or caches, and measurements differ by as much",
    };
    is_above.then_some(why)
}

/// The bytes of some tensors.
fn bytes_of(params: &[Param], feed: &Feed) -> Result<usize> {
    let count = |ty: &fuseline::tensor::TensorType| {
        let count = ty.shape.eval(&feed.env)?.iter().product();
        let counted = ty.dtype.bytes(count);
        counted.ok_or_else(|| Error::limit(format!("a tensor {ty} of more bytes than can be counted")))
    };
    params.iter().map(|param| count(&param.ty)).sum()
}

/// Times of the kernel and of the copy, and how many threads worked.
fn times(
    written: &Written,
    options: &BenchKernel,
    feed: &Feed,
    bytes: usize,
) -> Outcome<(Times, Times, Option<usize>)> {
    let kernel = written.source.kernel.clone();
    let plan = PlanOptions::on(here::spec());
    let (runs, warmup, limits) = (options.iters.get(), options.warmup, Limits::default());
    let of_cpu = |times: Vec<Duration>| Times::of(times.iter().skip(warmup).map(|time| time.as_secs_f64() * 1e6));
    let of_gpu = |timing: Timing| Times::of(timing.us.into_iter().skip(warmup));
    match options.device {
        Measuring::Cpu => {
            let device = processor(plan, options.threads, limits)?;
            let lone = device.load_kernel(kernel, &feed.env).map_err(|error| written.failure(error))?;
            let times = lone.time(&feed.tensors, warmup + runs).map_err(|error| written.failure(error))?;
            Ok((of_cpu(times), of_cpu(device.time_copy(bytes, warmup + runs)?), Some(device.threads())))
        }
        Measuring::Cuda => {
            let device = crate::gpu::open(plan, limits).map_err(|error| error.at(GPU))?;
            let lone = device.load_kernel(kernel, &feed.env).map_err(|error| written.failure(error))?;
            let times = lone.time(&feed.tensors, warmup + runs).map_err(|error| written.failure(error))?;
            Ok((of_gpu(times), of_gpu(device.time_copy(bytes, warmup + runs)?), None))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_faster_than_a_copy_is_explained() {
        assert_eq!(above_copy(1.004, 100, 50), None, "it is not shown as more");
        assert!(above_copy(1.3, 100, 10).is_some_and(|why| why.contains("the kernel fewer")));
        assert!(above_copy(1.1, 100, 50).is_some_and(|why| why.contains("measurements differ")));
    }
}
