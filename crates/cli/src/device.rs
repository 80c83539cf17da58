//! Where models run: the table of devices.

use std::ffi::OsStr;
use std::num::NonZeroUsize;

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use fuseline::compile::{PlannedProgram, plan_program};
use fuseline::device::{Device as _, Executable, NamedTensors, ReferenceDevice};
use fuseline::error::{Error, Result};
use fuseline::fuse::PlanOptions;
use fuseline::graph::Graph;
use fuseline::interpret;
use fuseline::passes::Numerics;
use fuseline::reference::{self, Reading, evaluate};
use fuseline::tensor::Literal;
use fuseline::tile::interp;
use fuseline_cpu::here;
use fuseline_cpu::run::CpuDevice;
use fuseline_session::machine;
pub use fuseline_session::session::bind_sizes;

use crate::arguments::{ModelLimits, PrecisionName};
use crate::failure::{Failure, GPU, Outcome};
use crate::written_plan::{PlanWishes, WrittenPlan};
use crate::{gpu, target};

/// A device.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    /// how it is asked for
    pub name: &'static str,
    doc: &'static str,
    way: Way,
}

/// How a device comes to its outputs.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// it runs the graph as it is, and no kernels
    Graph(fn(&Graph, NamedTensors, &reference::Options) -> Result<Vec<Literal>>),
    /// it runs a plan of the graph
    Plan {
        /// the device that is planned for where nothing else is asked for
        target: &'static str,
        /// whether it has threads
        has_threads: bool,
        load: fn(&PlannedProgram, &PlanOptions, &Means) -> Result<Box<dyn Executable>>,
    },
}

/// All devices; the command line, its help and its errors follow from here.
static DEVICES: &[Device] = &[
    Device {
        name: "reference",
        doc: "the reference interpreter: the meaning of the model in f64; exact and slow",
        way: Way::Graph(|graph, inputs, options| evaluate(graph, &inputs.into_iter().collect(), options)),
    },
    Device {
        name: "interp",
        doc: "the interpreter of kernels: runs the plan that `explain` shows, kernel by kernel; slow",
        way: Way::Plan {
            target: "cpu",
            has_threads: false,
            load: |planned, _, means| {
                let reference::Options { reading, limits } = means.options;
                interpret::load(planned, &interp::Options { reading, limits, ..interp::Options::default() })
            },
        },
    },
    Device {
        name: "cpu",
        doc: "machine code for this processor, where it has AVX-512 or AVX2; otherwise the portable executor",
        way: Way::Plan {
            target: here::NAME,
            has_threads: true,
            load: |planned, plan, means| Ok(Box::new(processor(plan.clone(), means)?.load(planned)?)),
        },
    },
    Device {
        name: "cuda",
        doc: "an NVIDIA GPU, by its driver and NVRTC; `fuseline doctor` says what is missing",
        way: Way::Plan {
            target: "h200",
            has_threads: false,
            load: |planned, plan, means| {
                let opened = gpu::open(plan.clone(), means.options.limits).map_err(|error| error.at(GPU));
                Ok(Box::new(opened?.load(planned)?))
            },
        },
    },
];

impl ValueEnum for Device {
    fn value_variants<'a>() -> &'a [Device] {
        DEVICES
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name).help(self.doc))
    }
}

impl Device {
    /// Reads the name of a device that runs kernels.
    pub fn of_kernels() -> impl TypedValueParser<Value = Device> {
        let devices = DEVICES.iter().filter(|device| matches!(device.way, Way::Plan { .. }));
        let names = PossibleValuesParser::new(devices.filter_map(Device::to_possible_value));
        names.try_map(|name| Device::from_str(&name, false))
    }
}

/// What else is asked of a device.
#[derive(Debug)]
pub struct Wishes<'a> {
    /// the device to plan for
    pub target: Option<&'a OsStr>,
    /// how far arithmetic may be rearranged
    pub numerics: Option<Numerics>,
    /// in which type the factors of contractions are multiplied
    pub precision: PrecisionName,
    /// the plan to run
    pub plan: Option<&'a WrittenPlan>,
    /// whether it was said how floats are read
    pub reads: bool,
    /// what a run has
    pub means: Means,
    /// what a model may ask of the compiler
    pub limits: &'a ModelLimits,
}

/// What a run has.
#[derive(Clone, Copy, Debug)]
pub struct Means {
    /// how floats are read, and what a run may use
    pub options: reference::Options,
    /// how many threads; none: one for every processor
    pub threads: Option<NonZeroUsize>,
}

/// This processor.
pub fn processor(plan: PlanOptions, means: &Means) -> Result<CpuDevice> {
    machine::processor(plan, means.threads, means.options.limits)
}

/// Computes the outputs of a graph for inputs by name.
pub type Runner = Box<dyn Fn(&Graph, NamedTensors) -> Result<Vec<Literal>>>;

impl Device {
    /// The device, ready to run graphs as wished.
    pub fn runner(self, wishes: Wishes<'_>) -> Outcome<Runner> {
        let Wishes { target, numerics, precision, plan, reads, means, limits } = wishes;
        let has_threads = matches!(self.way, Way::Plan { has_threads: true, .. });
        if reads && has_threads {
            let error = Error::invalid(format!("{} computes with the model's own types", self.name)).at("--reading");
            return Err(Failure::with_help(error, "leave --reading out, or choose --device reference"));
        }
        if means.threads.is_some() && !has_threads {
            let error = Error::invalid(format!("{} has no threads of its own", self.name)).at("--threads");
            return Err(Failure::with_help(error, "leave --threads out, or choose --device cpu"));
        }
        match self.way {
            Way::Graph(_) if target.is_some() || numerics.is_some() || plan.is_some() => {
                let option = match (target, plan) {
                    (Some(_), _) => "--target",
                    (None, Some(_)) => "--plan",
                    (None, None) => "--numerics",
                };
                let error = Error::invalid(format!("{} runs the model as it is and plans nothing", self.name));
                Err(Failure::with_help(error.at(option), format!("leave {option} out, or choose --device interp")))
            }
            // The meaning of what other devices run with these roundings: of the graph that has them.
            Way::Graph(_) if precision != PrecisionName::F32 => {
                let precision = precision.precision(Numerics::Default)?;
                let plan = PlanOptions { precision, budget: limits.budget(), ..PlanOptions::on(&target::find("cpu")?) };
                Ok(Box::new(move |graph, inputs| {
                    let planned = plan_program(graph.clone(), &plan, &mut |_| {})?;
                    ReferenceDevice { options: means.options }.load(&planned.program)?.run(&inputs)
                }))
            }
            Way::Graph(run) => Ok(Box::new(move |graph, inputs| run(graph, inputs, &means.options))),
            Way::Plan { target: usual, load, .. } => {
                let budget = &limits.budget();
                let plan = WrittenPlan::options(plan, &PlanWishes { target, usual, numerics, precision, budget })?;
                let mut means = means;
                if plan.numerics == Numerics::Strict && !reads {
                    means.options.reading = Reading::Rounded;
                }
                Ok(Box::new(move |graph, inputs| {
                    let mut plan = plan.clone();
                    bind_sizes(graph, &inputs, &mut plan.hints.env);
                    load(&plan_program(graph.clone(), &plan, &mut |_| {})?, &plan, &means)?.run(&inputs)
                }))
            }
        }
    }
}
