//! Where the time of the fused plan goes, for people.

use fuseline::device::DeviceSpec;
pub use fuseline_session::profile::{
    COUNTS_US, Measured, Phase, Profile, Subject, errors, measure, measure_in_turns, median, median_error, to_json,
};
use fuseline_session::profile::{groups, mean_us};

use crate::ceiling::Ceiling;
use crate::quantity::{self, significant};
use crate::screen::{self, Column, Table};

/// A table of kernels, that with the most time first; equal kernels are one line. Rates are those of what the plan counts.
pub fn to_text(kernels: &[Measured], spec: &DeviceSpec, at_measured_rates: bool) -> String {
    if kernels.is_empty() {
        return screen::wrapped("nothing is computed: there is no kernel to measure", 2, screen::width());
    }
    let on_gpu = kernels.iter().flat_map(|kernel| &kernel.phases).any(|phase| phase.resources.is_some());
    let numbers = [
        Column::right("times").goes(5),
        Column::right("µs each"),
        Column::right("share"),
        Column::right("expected"),
        Column::right("off by"),
        Column::right("GB/s").goes(4),
        Column::right("GFLOP/s").goes(3),
    ];
    let own = ["blocks", "registers", "shared", "occupancy"].map(|name| Column::right(name).goes(1));
    let last = Column::left(if on_gpu { "launches" } else { "phases" }).wrap(18).goes(2);
    let first = [Column::left("kernel").cut(14), Column::left("kind").goes(2)];
    let columns = first.into_iter().chain(numbers).chain(own.into_iter().filter(|_| on_gpu)).chain([last]);
    let mut table = Table::new(columns);
    let total: f64 = kernels.iter().map(Measured::us).sum();
    let mut groups = groups(kernels);
    groups.sort_by(|a, b| time(b).total_cmp(&time(a)));
    // Parts of what is possible, where they are shown.
    let ceiling = Ceiling::described(spec, spec.limits.cores, None);
    let mut parts = Vec::new();
    let rate = |x: f64, part: f64| match on_gpu {
        true => format!("{} ({:.0} %)", significant(x), 100.0 * part),
        false => significant(x),
    };
    for group in &groups {
        let (row, all) = (&group[0].row, time(group));
        let each = mean_us(group);
        let (gbps, gflops) = (row.bytes / each / 1e3, row.flops / each / 1e3);
        let (of_memory, of_units) = ceiling.parts(gbps, gflops, row.matrices);
        let mut cells = vec![
            row.pattern.clone(),
            row.kind.name().into(),
            group.len().to_string(),
            significant(each),
            format!("{:.1} %", 100.0 * all / total),
            significant(group[0].expected_us),
            if each > 0.0 { format!("{:+.0} %", 100.0 * (group[0].expected_us / each - 1.0)) } else { "–".into() },
            rate(gbps, of_memory),
            rate(gflops, of_units),
        ];
        if on_gpu {
            cells.extend(resources(group[0]));
            parts.push((of_memory, of_units));
        }
        cells.push(phases(group[0]));
        table.row(cells);
    }
    let expected: f64 = kernels.iter().map(|kernel| kernel.expected_us).sum();
    let predicted: f64 = kernels.iter().map(|kernel| kernel.row.us).sum();
    let bytes = quantity::bytes(kernels.iter().map(|kernel| kernel.row.bytes).sum());
    let off = off(kernels);
    let sum =
        format!("{} µs in kernels, expected {} µs{off}; {bytes} of traffic", significant(total), significant(expected));
    let rates = if at_measured_rates { " and at the rates that were measured with them" } else { "" };
    let why = format!(
        "expected is with all that kernels do, on as many threads as ran{rates}; the plan's own prices, which its candidates were compared by, are {} µs",
        significant(predicted)
    );
    let lines = [sum, why].into_iter().chain(ceiling.excess(parts.into_iter()));
    let lines: String = lines.map(|line| screen::wrapped(&line, 2, screen::width())).collect();
    format!("{}{lines}", table.text(screen::width()))
}

fn time(group: &[&Measured]) -> f64 {
    group.iter().map(|kernel| kernel.us()).sum()
}

/// What half of the kernels are off by: of those that count, and of all; nothing where there are none.
fn off(kernels: &[Measured]) -> String {
    let (counting, all) = (errors(kernels, COUNTS_US), errors(kernels, 0.0));
    let has_small = counting.len() < all.len();
    let which = if has_small { format!(" of {COUNTS_US} µs or more") } else { String::new() };
    let told = |errors: Vec<f64>, which: &str| {
        let half = match errors.len() {
            1 => format!("the one kernel{which} is"),
            n => format!("half of the {n} different kernels{which} are"),
        };
        let less = if errors.len() == 1 { "" } else { "less than " };
        median(errors).map(|error| format!("; {half} off by {less}{:.0} %", 100.0 * error))
    };
    told(counting, &which).into_iter().chain(told(all, "").filter(|_| has_small)).collect()
}

/// Of the launch that takes the most time: blocks, registers of a thread, shared memory of a block, and how full multiprocessors can be.
fn resources(kernel: &Measured) -> [String; 4] {
    let longest = kernel.phases.iter().max_by(|a, b| a.us.total_cmp(&b.us));
    let Some(resources) = longest.and_then(|phase| phase.resources) else { return ["–"; 4].map(str::to_owned) };
    let spilled = if resources.spilled > 0 { format!(" + {} B", resources.spilled) } else { String::new() };
    [
        format!("{} × {}", resources.grid.blocks, resources.grid.threads),
        format!("{}{spilled}", resources.registers),
        quantity::bytes(f64::from(resources.shared)),
        format!("{:.0} %", 100.0 * resources.occupancy),
    ]
}

/// The phases of a kernel with their parts of its time, where it has several or is not ours.
fn phases(kernel: &Measured) -> String {
    let named = |phase: &Phase| {
        let name = phase.name.as_deref().unwrap_or("interpreted");
        format!("{name} {:.0} %", 100.0 * phase.us / kernel.us().max(f64::MIN_POSITIVE))
    };
    match &kernel.phases[..] {
        [Phase { name: Some(name), .. }] if name == "cuBLASLt" => name.to_string(),
        [Phase { name: Some(_), .. }] => String::new(),
        phases => phases.iter().map(named).collect::<Vec<_>>().join(", "),
    }
}
