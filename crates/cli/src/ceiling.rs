//! What a machine can do at most, which rates of plans are held against, and how that is known.

use fuseline::device::{DeviceSpec, Unit};
use fuseline::error::Result;
use fuseline::fuse::Plan;
use fuseline::tensor::DType;
use fuseline_session::rates::Rates;
use serde_json::{Value, json};

use crate::arguments::Measuring;
use crate::load::Load;
use crate::quantity::{self, significant};
use crate::roofline::{Roofline, drawn};

/// What a machine can do at most.
#[derive(Clone, Debug, PartialEq)]
pub struct Ceiling {
    /// of the farthest memory
    pub gbps: f64,
    /// whether a copy has moved more, and that is it
    is_of_copy: bool,
    /// of the units that the plan multiplies with
    pub gflops: f64,
    /// the type of what these units multiply
    dtype: DType,
    source: Source,
    /// all memories and units, the two among them
    limits: Roofline,
    /// other work on the machine while it was measured
    load: Option<Load>,
}

/// How it is known.
#[derive(Clone, Debug, PartialEq)]
enum Source {
    /// by programs that ran just now
    Measured(Rates),
    /// from the description of a device, in a file of the user or built in
    Described { name: String, is_file: bool },
}

/// The type of what a plan multiplies in units for matrices, the fastest that it uses; none where vectors do all of it.
pub fn matrices(plan: &Plan, spec: &DeviceSpec) -> Option<DType> {
    let of_kernels = plan.kernels.iter().filter_map(|kernel| kernel.work.matrices(spec));
    of_kernels.max_by(|a, b| spec.peak(Unit::Matrix(*a)).total_cmp(&spec.peak(Unit::Matrix(*b))))
}

impl Ceiling {
    /// What the machine can do that plans ran on, on so many threads. A processor is measured, in a fraction of a second, unless a file describes it; of a GPU the
    /// description is taken. `matrices` is the type of products that have units of their own.
    pub fn of(device: Measuring, threads: usize, spec: &DeviceSpec, matrices: Option<DType>) -> Ceiling {
        match device {
            Measuring::Cuda => Ceiling::described(spec, spec.limits.cores, matrices),
            Measuring::Cpu if is_written(spec) => Ceiling::described(spec, threads, matrices),
            Measuring::Cpu => Ceiling::measured(threads, matrices)
                .unwrap_or_else(|_| Ceiling::described(fuseline_cpu::here::spec(), threads, matrices)),
        }
    }

    fn measured(threads: usize, matrices: Option<DType>) -> Result<Ceiling> {
        let load = Load::now(Measuring::Cpu);
        let rates = Rates::measure(threads)?;
        Ok(Ceiling { load, ..Ceiling::under(drawn(&rates), matrices, Source::Measured(rates)) })
    }

    /// What is reached at most under some limits by what multiplies in such units for matrices, or by vectors.
    fn under(limits: Roofline, matrices: Option<DType>, source: Source) -> Ceiling {
        let gbps = limits.memories.last().map_or(f64::NAN, |(_, gbps)| *gbps);
        let of_units = matrices.and_then(|dtype| Some((dtype, limits.peak(Some(dtype))?)));
        let (dtype, gflops) = of_units.unwrap_or((DType::F32, limits.peak(None).unwrap_or(f64::NAN)));
        Ceiling { gbps, is_of_copy: false, gflops, dtype, source, limits, load: None }
    }

    /// What parts of the limits rates of a kernel are, which multiplies in such units.
    pub fn parts(&self, gbps: f64, gflops: f64, matrices: Option<DType>) -> (f64, f64) {
        (gbps / self.gbps, gflops / self.limits.peak(matrices).unwrap_or(self.gflops))
    }

    /// What a device can do with so many of its cores, as its description has it.
    pub fn described(spec: &DeviceSpec, cores: usize, matrices: Option<DType>) -> Ceiling {
        let part = cores.min(spec.limits.cores) as f64;
        let of_all = part / spec.limits.cores.max(1) as f64;
        let mut limits = Roofline::of(spec);
        for ((_, gbps), level) in limits.memories.iter_mut().zip(&spec.memory) {
            *gbps = gbps.min(level.core_gbps * part);
        }
        limits.peaks.iter_mut().for_each(|(_, gflops)| *gflops *= of_all);
        let source = Source::Described { name: spec.name.clone(), is_file: is_written(spec) };
        Ceiling::under(limits, matrices, source)
    }

    /// The same for vectors of a type, where they multiply: a processor has half as many lanes of f64 as of f32.
    pub fn multiplying(self, dtype: DType, spec: &DeviceSpec) -> Ceiling {
        let of_f32 = spec.vector.peak(DType::F32).zip(spec.vector.peak(dtype));
        match (self.dtype, of_f32) {
            (DType::F32, Some((f32, own))) if dtype != DType::F32 => {
                Ceiling { gflops: self.gflops * own / f32, dtype, ..self }
            }
            _ => self,
        }
    }

    /// The same where a copy of as many bytes has moved so many GB/s, if that is more: few bytes stay in caches.
    pub fn moving(self, gbps: f64) -> Ceiling {
        match gbps > self.gbps {
            true => Ceiling { gbps, is_of_copy: true, ..self },
            false => self,
        }
    }

    /// What part of the limit of its units so many GFLOP/s are, where these and not memory bound what computes so much for each byte.
    pub fn part_of_arithmetic(&self, gflops: f64, intensity: f64) -> Option<f64> {
        (self.gbps * intensity > self.gflops).then(|| gflops / self.gflops)
    }

    /// What was measured, where something was.
    pub fn rates(&self) -> Option<&Rates> {
        match &self.source {
            Source::Measured(rates) => Some(rates),
            Source::Described { .. } => None,
        }
    }

    /// All memories and units, and how they are known: what a page draws.
    pub fn limits_json(&self) -> Value {
        let source = match &self.source {
            Source::Measured(_) => "measured",
            Source::Described { is_file: true, .. } => "file",
            Source::Described { is_file: false, .. } => "built in",
        };
        let Roofline { name, memories, peaks, .. } = &self.limits;
        json!({ "name": name, "memories": memories, "peaks": peaks, "source": source })
    }

    /// What it is, and how that is known.
    pub fn to_text(&self) -> String {
        let source = match &self.source {
            Source::Measured(rates) => {
                format!(
                    "measured just now, on {} (`fuseline roofline` measures all)",
                    quantity::several(rates.threads, "thread")
                )
            }
            Source::Described { name, .. } => format!("as the description of {name} says, not measured"),
        };
        let (gbps, gflops) = (significant(self.gbps), significant(self.gflops));
        let whence = if self.is_of_copy { "as a copy of these bytes" } else { "from memory" };
        format!("100 % is {gbps} GB/s {whence} and {gflops} GFLOP/s in {}: {source}", self.dtype)
    }

    /// Why rates are above it, if one is, told as parts of what is possible: of GB/s and of GFLOP/s.
    pub fn excess(&self, mut parts: impl Iterator<Item = (f64, f64)> + Clone) -> Option<String> {
        let moved = parts.clone().any(|(of_memory, _)| is_above(of_memory));
        let computed = parts.any(|(_, of_units)| is_above(of_units));
        let memory = "GB/s above 100 %: what stays in caches comes faster than from memory";
        let units = "GFLOP/s above 100 %: not all that counts as an operation takes one of these units";
        let said: Vec<&str> =
            [(moved, memory), (computed, units)].into_iter().filter(|(is, _)| *is).map(|(_, why)| why).collect();
        let load = self.load.map_or(String::new(), |load| {
            format!("; 100 % was measured beside other work (a load of {}), and is more without it", load.average())
        });
        (!said.is_empty()).then(|| format!("{}{load}", said.join("; ")))
    }

    /// The same as JSON.
    pub fn to_json(&self) -> Value {
        let (source, name) = match &self.source {
            Source::Measured(_) => ("measured", None),
            Source::Described { name, .. } => ("described", Some(name)),
        };
        json!({
            "gbps": self.gbps,
            "gflops": self.gflops,
            "dtype": self.dtype.name(),
            "source": source,
            "device": name,
            "load": self.load.map(Load::to_json),
        })
    }
}

/// Whether a part is shown as more than 100 %.
fn is_above(part: f64) -> bool {
    (100.0 * part).round() > 100.0
}

/// Whether a file describes this machine: neither a device that ships nor what is known of this one without measuring.
fn is_written(spec: &DeviceSpec) -> bool {
    !DeviceSpec::all().contains(spec) && spec != fuseline_cpu::here::spec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::tests::busy;

    #[test]
    fn shares_above_the_whole_are_explained() {
        let rates =
            Rates { threads: 2, memories: Vec::new(), vectors: 100.0, loaded: 90.0, tiles: None, call: 0.0, join: 0.0 };
        let source = Source::Measured(rates);
        let limits = Roofline::of(DeviceSpec::find("cpu").unwrap());
        let ceiling =
            Ceiling { gbps: 20.0, is_of_copy: false, gflops: 100.0, dtype: DType::F32, source, limits, load: None };
        let excess =
            |rates: &[(f64, f64)]| ceiling.excess(rates.iter().map(|(gbps, gflops)| (gbps / 20.0, gflops / 100.0)));
        assert_eq!(excess(&[(20.05, 100.4), (1.0, 1.0)]), None, "it is not shown as more");
        assert!(excess(&[(1.0, 1.0), (21.0, 1.0)]).is_some_and(|why| why.contains("caches") && !why.contains("FLOP")));
        assert!(excess(&[(1.0, 120.0)]).is_some_and(|why| why.contains("GFLOP/s") && !why.contains("caches")));
        assert!(ceiling.to_text().contains("measured just now, on 2 threads"));
        let busy = Ceiling { load: busy(), ..ceiling.clone() };
        assert!(busy.excess([(1.05, 0.01)].into_iter()).is_some_and(|why| why.contains("(a load of 5.11)")));
        assert_eq!(busy.excess([(0.95, 0.01)].into_iter()), None);
        assert_eq!((&busy.to_json()["load"]["average"], &ceiling.to_json()["load"]), (&json!(5.11), &Value::Null));
    }

    #[test]
    fn descriptions_are_named_and_divided_among_cores() {
        let cpu = DeviceSpec::find("cpu").unwrap();
        let one = Ceiling::described(cpu, 1, None);
        assert_eq!((one.gbps, one.gflops), (25.0, 178.5));
        assert!(one.to_text().contains("description of cpu says, not measured"), "{}", one.to_text());
        assert_eq!(Ceiling::described(cpu, 64, Some(DType::BF16)).gflops, 5926.0, "no more cores than there are");
        let of_f64 = one.clone().multiplying(DType::F64, cpu);
        assert_eq!((of_f64.gflops, of_f64.dtype), (89.0, DType::F64));
        assert_eq!(one.clone().multiplying(DType::F32, cpu), one);
        // Whether arithmetic bounds does not hang on a rate of memory that a copy has just beaten.
        assert_eq!(one.part_of_arithmetic(100.0, 5.0), None);
        let beaten = one.clone().moving(50.0);
        assert!(
            beaten.part_of_arithmetic(100.0, 5.0).is_some() && beaten.to_text().contains("as a copy of these bytes")
        );
        assert_eq!(one.clone().moving(5.0), one);
        assert!(!is_written(cpu));
        let mine = DeviceSpec { name: "mine".into(), ..cpu.clone() };
        assert!(is_written(&mine));
        let drawn = one.limits_json();
        let last = drawn["memories"].as_array().and_then(|memories| memories.last()?.as_array()).unwrap();
        assert_eq!(
            (&last[0], last[1].as_f64()),
            (&json!("DRAM"), Some(25.0)),
            "what is drawn is what is told: {drawn}"
        );
        assert_eq!((&drawn["source"], drawn["peaks"][0][1].as_f64()), (&json!("built in"), Some(178.5)));
        assert_eq!(Ceiling::described(&mine, 1, None).limits_json()["source"], "file");
    }
}
