//! How long a kernel takes, beside a copy of as many bytes, and beside what arithmetic allows where that is the limit.

use std::time::Duration;

use fuseline::device::{DeviceSpec, Unit};
use fuseline::error::{Error, Result};
use fuseline::fuse::PlanOptions;
use fuseline::reference::Limits;
use fuseline::tensor::{DType, Env};
use fuseline::tile::{AxisSet, Kernel, Op, Param, Step, StepId};
use fuseline_cpu::here;
use fuseline_cuda::run::Timing;
use fuseline_session::machine::processor;
use serde_json::{Value, json};

use super::Written;
use super::feed::{self, Feed};
use super::run::{sizes_json, tell};
use crate::arguments::{BenchKernel, Measuring};
use crate::ceiling::Ceiling;
use crate::failure::{Failure, GPU, Outcome};
use crate::load::{self, Load};
use crate::quantity::{self, significant};
use crate::screen::{self, Column, Table, title};
use crate::target;
use crate::waiting::Waiting;

/// So many operations for each byte are more than moving it, on any device.
const MANY: f64 = 8.0;

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
    let (time, copy, threads) = times(written, options, &feed, bytes)?;
    let spec = target::find(options.device.target())?;
    let (floats, integers) = operations(kernel, &feed.env);
    // Products may be bound by arithmetic, and whatever has much of it for each byte.
    let much = || computed(kernel).filter(|_| floats / bytes as f64 > MANY);
    let ceiling = multiplied(kernel).or_else(much).map(|dtype| {
        let threads = threads.unwrap_or(spec.limits.cores);
        let ceiling = Ceiling::of(options.device, threads, &spec, matrices(kernel, &spec));
        // Memory gives what it has just given to the copy, at the least.
        ceiling.multiplying(dtype, &spec).moving(bytes as f64 / copy.part(0.0) / 1e3)
    });
    drop(waiting);
    let is_of_floats = floats > 0.0 || integers == 0.0;
    let flops = if is_of_floats { floats } else { integers };
    let measured = Measured { time, copy, threads, bytes, stored, flops, is_of_floats, ceiling, load };
    match options.json {
        true => screen::print_json(&measured.to_json(written, options, &feed)),
        false => screen::print(&measured.to_text(written, options)),
    }
}

/// What was measured.
struct Measured {
    time: Times,
    copy: Times,
    /// none on a GPU
    threads: Option<usize>,
    /// read and written
    bytes: usize,
    /// written
    stored: usize,
    /// operations on floats, or on integers where there are none on floats
    flops: f64,
    is_of_floats: bool,
    /// what the machine can do, where arithmetic on floats may bound the kernel
    ceiling: Option<Ceiling>,
    load: Option<Load>,
}

impl Measured {
    fn gbps(&self, times: &Times) -> f64 {
        self.bytes as f64 / times.median() / 1e3
    }

    fn gflops(&self) -> f64 {
        self.flops / self.time.median() / 1e3
    }

    /// To the speed of a copy.
    fn against_copy(&self) -> f64 {
        self.copy.median() / self.time.median()
    }

    /// What part of the limit of arithmetic it reaches, with that limit, where this bounds it.
    fn of_arithmetic(&self) -> Option<(f64, &Ceiling)> {
        let ceiling = self.ceiling.as_ref()?;
        Some((ceiling.part_of_arithmetic(self.gflops(), self.flops / self.bytes as f64)?, ceiling))
    }

    fn to_json(&self, written: &Written, options: &BenchKernel, feed: &Feed) -> Value {
        let of = |times: &Times| {
            json!({
                "median_us": times.median(),
                "min_us": times.part(0.0),
                "p90_us": times.part(0.9),
                "gbps": self.gbps(times),
            })
        };
        let against = self.against_copy();
        let mut time = of(&self.time);
        time["gflops"] = json!(self.gflops());
        json!({
            "kernel": written.name(),
            "device": options.device.name(),
            "threads": self.threads,
            "iters": options.iters.get(),
            "sizes": sizes_json(written, feed),
            "bytes": self.bytes,
            "flops": self.flops,
            "operations_on": if self.is_of_floats { "floats" } else { "integers" },
            "time": time,
            "copy": of(&self.copy),
            "of_copy_speed": against,
            "above_copy": above_copy(against, self.bytes, self.stored),
            "of_arithmetic": self.of_arithmetic().map(|(part, _)| part),
            "limit": self.ceiling.as_ref().map(Ceiling::to_json),
            "load": self.load.map(Load::to_json),
        })
    }

    fn to_text(&self, written: &Written, options: &BenchKernel) -> String {
        let place = match self.threads {
            Some(1) => "1 thread".to_owned(),
            Some(threads) => format!("{threads} threads"),
            None => "the GPU".to_owned(),
        };
        let mut text = title(&format!("{} on {place}", written.name()), screen::width());
        text.push_str(&format!(
            "  {}, {} read and written\n\n",
            quantity::several(options.iters.get(), "run"),
            quantity::bytes(self.bytes as f64)
        ));
        let rate = if self.is_of_floats { "GFLOP/s" } else { "Gop/s" };
        let columns = ["median µs", "min", "p90", "GB/s", rate].map(Column::right);
        let mut table = Table::new([Column::left("")].into_iter().chain(columns));
        for (name, times, gflops) in
            [("the kernel", &self.time, significant(self.gflops())), ("a copy", &self.copy, "–".to_owned())]
        {
            let numbers = [times.median(), times.part(0.0), times.part(0.9), self.gbps(times)].map(significant);
            table.row(std::iter::once(name.to_owned()).chain(numbers).chain([gflops]));
        }
        text.push_str(&table.text(screen::width()));
        text.push('\n');
        text.push_str(&screen::wrapped(&self.conclusion(), 2, screen::width()));
        text
    }

    /// How good that is.
    fn conclusion(&self) -> String {
        if let Some((part, ceiling)) = self.of_arithmetic() {
            let why = ceiling.excess(std::iter::once((0.0, part))).map_or(String::new(), |why| format!("; {why}"));
            let intensity = significant(self.flops / self.bytes as f64);
            let part = format!("{:.0} % of what arithmetic allows", 100.0 * part);
            return format!("{part}, which bounds {intensity} operations for each byte; {}{why}", ceiling.to_text());
        }
        let against = self.against_copy();
        let why = above_copy(against, self.bytes, self.stored).map_or(String::new(), |why| format!("; {why}"));
        let many = self.flops / self.bytes as f64;
        let unknown = match !self.is_of_floats && many > MANY {
            true => format!(
                "; its {} operations on integers for each byte, whose limit is not known, may be what bounds it",
                significant(many)
            ),
            false => String::new(),
        };
        format!("{:.0} % of the speed of a copy{why}{unknown}", 100.0 * against)
    }
}

/// The points of some axes.
fn points(kernel: &Kernel, axes: AxisSet, env: &Env) -> f64 {
    axes.iter().map(|axis| kernel.axes[axis].eval(env).map_or(f64::NAN, |size| size as f64)).product()
}

/// Operations of a run, on floats and on integers: as the table of functions counts them, one for each term of a fold, two for each of a product.
fn operations(kernel: &Kernel, env: &Env) -> (f64, f64) {
    let axes = |id: &StepId| kernel.steps[id.index()].axes;
    let of = |step: &Step| match &step.op {
        Op::Load { .. } | Op::Random { .. } => 0.0,
        Op::Map { expr, .. } => f64::from(expr.flops()) * points(kernel, step.axes, env),
        Op::Reduce { over, arg, .. } => points(kernel, axes(arg).union(*over), env),
        Op::Prefix { .. } => points(kernel, step.axes, env),
        Op::Dot { over, a, b, .. } => 2.0 * points(kernel, axes(a).union(axes(b)).union(*over), env),
    };
    let (floats, others): (Vec<&Step>, Vec<&Step>) = kernel.steps.iter().partition(|step| step.dtype.is_float());
    let sum = |steps: Vec<&Step>| steps.into_iter().map(of).fold(0.0, |sum, count| sum + count);
    (sum(floats), sum(others))
}

/// The factors of every product.
fn products(kernel: &Kernel) -> impl Iterator<Item = [StepId; 2]> + '_ {
    kernel.steps.iter().filter_map(|step| match &step.op {
        Op::Dot { a, b, .. } => Some([*a, *b]),
        _ => None,
    })
}

/// The type that products of floats are made in; none where there are none.
fn multiplied(kernel: &Kernel) -> Option<DType> {
    let sums = kernel.steps.iter().filter(|step| matches!(step.op, Op::Dot { .. }) && step.dtype.is_float());
    sums.map(|step| step.dtype).next()
}

/// The type that floats are computed in, the widest; none where there are none. What is narrower than 32 bits is widened to them.
fn computed(kernel: &Kernel) -> Option<DType> {
    let types = kernel.steps.iter().map(|step| step.dtype).filter(|dtype| dtype.is_float());
    types.max_by_key(|dtype| dtype.bits()).map(|dtype| if dtype.bits() < 32 { DType::F32 } else { dtype })
}

/// The type of what is multiplied in units for matrices; none where there are none for it.
fn matrices(kernel: &Kernel, spec: &DeviceSpec) -> Option<DType> {
    // What is widened only to be multiplied is multiplied as what it was.
    let narrow = |id: StepId| match &kernel.steps[id.index()].op {
        Op::Map { expr, .. } if expr.is_cast() => expr.args()[0],
        _ => kernel.steps[id.index()].dtype,
    };
    products(kernel).find_map(|[a, b]| match spec.dot_unit(narrow(a)) {
        Unit::Matrix(dtype) if narrow(a) == narrow(b) => Some(dtype),
        _ => None,
    })
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
    let kernel = written.kernel_to_run(options.device.target(), &feed.env)?;
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
    fn products_are_counted_and_have_units_of_their_type() {
        let kernel = |x: &str, w: &str| {
            let text = "kernel k(x: TX[m, k], w: TW[k, n]) -> y: f32[m, n] { y = dot[k](f32(x), f32(w)) + 1.0 }";
            fuseline::tile::read(&text.replace("TX", x).replace("TW", w)).unwrap().kernel
        };
        let env: Env = [("m", 3), ("k", 5), ("n", 7)]
            .map(|(n, size)| (fuseline::tensor::Symbol::name(n), size))
            .into_iter()
            .collect();
        assert_eq!(operations(&kernel("f32", "f32"), &env), ((2 * 3 * 5 * 7 + 3 * 7) as f64, 0.0));
        assert_eq!(multiplied(&kernel("f32", "f32")), Some(DType::F32));
        assert_eq!(computed(&kernel("bf16", "f32")), Some(DType::F32));
        let integers = "kernel k(x: i8[m, k], w: i8[k, n]) -> y: i32[m, n] { y = dot[k](i32(x), i32(w)) }";
        let integers = fuseline::tile::read(integers).unwrap().kernel;
        let (floats, others) = operations(&integers, &env);
        assert!(floats == 0.0 && floats.is_sign_positive() && others >= (2 * 3 * 5 * 7) as f64, "{floats} {others}");
        assert_eq!((multiplied(&integers), computed(&integers)), (None, None), "no limit is known of it");
        let spec = DeviceSpec::find("cpu").unwrap();
        let units = |x: &str, w: &str| matrices(&kernel(x, w), spec);
        assert_eq!((units("bf16", "bf16"), units("f32", "bf16"), units("f32", "f32")), (Some(DType::BF16), None, None));
    }

    #[test]
    fn what_is_faster_than_a_copy_is_explained() {
        assert_eq!(above_copy(1.004, 100, 50), None, "it is not shown as more");
        assert!(above_copy(1.3, 100, 10).is_some_and(|why| why.contains("the kernel fewer")));
        assert!(above_copy(1.1, 100, 50).is_some_and(|why| why.contains("measurements differ")));
    }
}
