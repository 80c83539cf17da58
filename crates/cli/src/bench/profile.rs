//! Where the time of the fused plan goes: kernel by kernel, measured beside predicted.

use std::time::Duration;

use fuseline::compile::PlannedProgram;
use fuseline::device::NamedTensors;
use fuseline::error::Result;
use fuseline::explain::{KernelRow, kernel_rows};
use fuseline::fuse::PlanOptions;
use fuseline_cpu::run::{Session, Span};
use serde_json::{Value, json};

use fuseline_session::plan::name::cut_back;

use crate::quantity::{self, significant};
use crate::screen::{self, Side, Table};

/// Where the time of some runs went.
#[derive(Debug)]
pub struct Profile {
    /// every kernel, in the order of the plan
    pub kernels: Vec<Measured>,
    /// the run that took the least time, as it went
    pub fastest: Vec<Span>,
}

/// A kernel of the plan, as it was measured.
#[derive(Debug)]
pub struct Measured {
    /// the kernel as it was planned
    pub row: KernelRow,
    /// the number of the first kernel that is equal to it, itself otherwise
    model: usize,
    /// its phases with the least time that each took, in microseconds
    phases: Vec<(Option<&'static str>, f64)>,
}

impl Measured {
    /// The least time that it took, in microseconds.
    pub fn us(&self) -> f64 {
        self.phases.iter().map(|(_, us)| us).sum()
    }
}

/// Runs a session so many times and keeps the least time of every phase.
pub fn measure(
    session: &Session,
    planned: &PlannedProgram,
    plan: &PlanOptions,
    inputs: &NamedTensors,
    runs: usize,
) -> Result<Profile> {
    let kernels = &planned.run.kernels;
    let is_equal = |k: usize, other: usize| std::sync::Arc::ptr_eq(&kernels[k].kernel, &kernels[other].kernel);
    let rows = kernel_rows(planned.program.run(), &planned.run, plan).into_iter().enumerate();
    let model = |k: usize| (0..k).find(|other| is_equal(k, *other)).unwrap_or(k);
    let mut measured: Vec<Measured> =
        rows.map(|(k, row)| Measured { row, model: model(k), phases: Vec::new() }).collect();
    let mut fastest: Vec<Span> = Vec::new();
    let end = |spans: &[Span]| spans.last().map_or(Duration::MAX, |span| span.begin + span.took);
    for run in 0..runs {
        let (_, spans) = session.run_recorded(inputs)?;
        for phases in spans.chunk_by(|a, b| a.kernel == b.kernel) {
            let times = phases.iter().map(|span: &Span| (span.phase, span.took.as_secs_f64() * 1e6));
            let kept = &mut measured[phases[0].kernel].phases;
            match run {
                0 => kept.extend(times),
                _ => kept.iter_mut().zip(times).for_each(|((_, least), (_, us))| *least = least.min(us)),
            }
        }
        if end(&spans) < end(&fastest) {
            fastest = spans;
        }
    }
    Ok(Profile { kernels: measured, fastest })
}

/// A table of kernels, that with the most time first; equal kernels are one line.
pub fn to_text(kernels: &[Measured]) -> String {
    let columns = ["times", "µs each", "share", "predicted", "GB/s", "GFLOP/s"].map(|name| (name, Side::Right));
    let head = [&[("kernel", Side::Left), ("kind", Side::Left)], &columns[..], &[("phases", Side::Left)]].concat();
    let mut table = Table::new(&head);
    let total: f64 = kernels.iter().map(Measured::us).sum();
    let mut groups: Vec<Vec<&Measured>> = Vec::new();
    let mut of_model = std::collections::BTreeMap::new();
    for kernel in kernels {
        let group = *of_model.entry(kernel.model).or_insert(groups.len());
        groups.resize_with(groups.len().max(group + 1), Vec::new);
        groups[group].push(kernel);
    }
    let time = |group: &[&Measured]| group.iter().map(|kernel| kernel.us()).sum::<f64>();
    groups.sort_by(|a, b| time(b).total_cmp(&time(a)));
    let width = screen::width();
    for group in &groups {
        let (row, all) = (&group[0].row, time(group));
        let each = all / group.len() as f64;
        table.row(vec![
            cut_back(&row.pattern, width / 3),
            row.kind.name().into(),
            group.len().to_string(),
            significant(each),
            format!("{:.1} %", 100.0 * all / total),
            significant(row.us),
            significant(row.bytes / each / 1e3),
            significant(row.flops / each / 1e3),
            phases(group[0]),
        ]);
    }
    let predicted: f64 = kernels.iter().map(|kernel| kernel.row.us).sum();
    let bytes = quantity::bytes(kernels.iter().map(|kernel| kernel.row.bytes).sum());
    let sum = format!(
        "  {} µs in kernels, predicted {} µs; {bytes} of traffic\n",
        significant(total),
        significant(predicted)
    );
    format!("{}{sum}", table.text())
}

/// The phases of a kernel with their parts of its time, where it has several.
fn phases(kernel: &Measured) -> String {
    let named = |(name, us): &(Option<&str>, f64)| {
        format!("{} {:.0} %", name.unwrap_or("interpreted"), 100.0 * us / kernel.us().max(f64::MIN_POSITIVE))
    };
    match &kernel.phases[..] {
        [(Some(_), _)] => String::new(),
        phases => phases.iter().map(named).collect::<Vec<_>>().join(", "),
    }
}

/// The same as JSON, in the order of the plan.
pub fn to_json(kernels: &[Measured]) -> Value {
    let phase = |(name, us): &(Option<&str>, f64)| json!({ "name": name.unwrap_or("interpreted"), "us": us });
    let kernel = |kernel: &Measured| {
        json!({
            "pattern": kernel.row.pattern,
            "kind": kernel.row.kind.name(),
            "equal_to": kernel.model,
            "us": kernel.us(),
            "predicted_us": kernel.row.us,
            "bytes": kernel.row.bytes,
            "flops": kernel.row.flops,
            "phases": kernel.phases.iter().map(phase).collect::<Vec<_>>(),
        })
    };
    kernels.iter().map(kernel).collect()
}
