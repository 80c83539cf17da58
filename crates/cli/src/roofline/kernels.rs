//! The kernels of a model as points of a roofline.

use fuseline::compile::plan_program;
use fuseline::explain::kernel_rows;
use fuseline::fuse::PlanOptions;
use fuseline::passes::Numerics;
use fuseline::tensor::DType;

use super::{Point, Roofline, Series};
use crate::arguments::{Measuring, RooflineArguments};
use crate::bench::contender::{self, Contender};
use crate::device::{Means, bind_sizes};
use crate::failure::Outcome;
use crate::model::Model;
use crate::{feed, given_inputs, machine};

/// A kernel, or several that are equal.
#[derive(Clone, Debug)]
pub struct Plotted {
    pub name: String,
    pub kind: &'static str,
    pub count: usize,
    pub bytes: f64,
    pub flops: f64,
    /// the type of what it multiplies in units for matrices, if it does
    pub matrices: Option<DType>,
    /// how long one takes, measured or predicted
    pub us: f64,
}

/// The kernels of a model, those that take the most time first; measured where `measures` says so, otherwise predicted.
pub fn of_model(
    model: &Model,
    arguments: &RooflineArguments,
    plan: PlanOptions,
    measures: bool,
) -> Outcome<Vec<Plotted>> {
    let numerics = arguments.numerics.map_or(Numerics::Default, |numerics| numerics.numerics());
    let plan = PlanOptions {
        budget: arguments.limits.budget_of_each(),
        numerics,
        precision: arguments.precision.precision(numerics)?,
        ..plan
    };
    let found = if measures { measured(model, arguments, plan)? } else { predicted(model, arguments, plan)? };
    let mut plotted: Vec<Plotted> = Vec::new();
    let is_equal =
        |a: &Plotted, b: &Plotted| (&a.name, a.bytes, a.flops, a.matrices) == (&b.name, b.bytes, b.flops, b.matrices);
    for kernel in found {
        match plotted.iter_mut().find(|known| is_equal(known, &kernel)) {
            // The mean of all that are equal.
            Some(known) => {
                known.us += (kernel.us - known.us) / (known.count + 1) as f64;
                known.count += 1;
            }
            None => plotted.push(kernel),
        }
    }
    plotted.sort_by(|a, b| (b.us * b.count as f64).total_cmp(&(a.us * a.count as f64)));
    Ok(plotted)
}

fn measured(model: &Model, arguments: &RooflineArguments, mut plan: PlanOptions) -> Outcome<Vec<Plotted>> {
    let feed = feed::assemble(model, &arguments.inputs, &arguments.sizes, 0)?;
    let means = Means { options: arguments.limits.exact_run(), threads: arguments.threads };
    let found = model.with_graph(&feed.tensors, |graph, inputs| {
        bind_sizes(graph, &inputs, &mut plan.hints.env);
        let machine = machine::open(Measuring::Cpu, plan.clone(), &means)?;
        let mut fused = Contender::prepare(contender::Kind::Fused, graph, &plan, &machine)?;
        fused.run(&inputs)?;
        let profile = fused.profile(&plan, None, &inputs, arguments.iters.get())?;
        let plotted = profile.kernels.iter().map(|kernel| Plotted {
            name: kernel.row.pattern.clone(),
            kind: kernel.row.kind.name(),
            count: 1,
            bytes: kernel.row.bytes,
            flops: kernel.row.flops,
            matrices: kernel.row.matrices,
            us: kernel.us(),
        });
        Ok(plotted.collect())
    });
    found.map_err(|error| feed.failed(model, error))
}

fn predicted(model: &Model, arguments: &RooflineArguments, mut plan: PlanOptions) -> Outcome<Vec<Plotted>> {
    let mut env = model.bind_sizes(&arguments.sizes)?;
    let inputs = given_inputs::read(model, &arguments.inputs, &mut env)?;
    let (graph, sizes) = model.graph_to_plan(&inputs, &env).map_err(|error| model.failed(error))?;
    plan.hints.env = sizes;
    let planned = plan_program(graph.into_owned(), &plan, &mut |_| {})?;
    let rows = kernel_rows(planned.program.run(), &planned.run, &plan);
    let plotted = rows.into_iter().map(|row| Plotted {
        name: row.pattern.clone(),
        kind: row.kind.name(),
        count: 1,
        bytes: row.bytes,
        flops: row.flops,
        matrices: row.matrices,
        us: row.us,
    });
    Ok(plotted.collect())
}

impl Plotted {
    /// Operations for each byte; none where no byte is moved.
    pub fn intensity(&self) -> Option<f64> {
        (self.bytes > 0.0).then(|| self.flops / self.bytes)
    }

    /// GFLOP/s.
    pub fn gflops(&self) -> f64 {
        self.flops / self.us / 1e3
    }

    /// What part of the limit it reaches: of the farthest memory, or of the units that it computes with.
    pub fn part(&self, roofline: &Roofline) -> Option<f64> {
        let limit = roofline.limit(self.intensity()?, self.matrices)?;
        (limit > 0.0 && self.flops > 0.0).then(|| self.gflops() / limit)
    }

    /// As a point; `k` is its place in the list.
    pub fn point(&self, k: usize) -> Point {
        Point {
            name: self.name.clone(),
            intensity: self.intensity().unwrap_or(f64::NAN),
            gflops: self.gflops(),
            us: self.us * self.count as f64,
            series: Series::Fused(k, k),
        }
    }
}
