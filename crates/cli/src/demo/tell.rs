//! What a demo tells, to people and to programs.

use fuseline_session::plan::name::cut_back;
use fuseline_session::plan::{PER_NODE, size_list};
use indexmap::IndexMap;
use serde_json::{Value, json};

use super::{Shown, Told};
use crate::arguments::Measuring;
use crate::load::Load;
use crate::quantity::{self, significant};
use crate::screen::{self, Column, Table, heading};
use crate::verify::Check;

/// How many kinds of kernels are listed.
const MOST_KINDS: usize = 8;

/// The story in words.
pub fn to_text(told: &Told<'_>) -> String {
    let mut text = heading(told.model.name.as_str());
    let doc = format!("{}; {}", told.network.doc, size_list(told.sizes));
    text.push_str(&screen::wrapped(&doc, 2, screen::width()));
    for shown in told.shown {
        text.push_str(&of_device(shown, &told.model.name));
    }
    text.push_str(&format!("\n{}", heading("Look further")));
    let name = &told.model.name;
    if let Some((path, bytes)) = told.written {
        text.push_str(&format!(
            "  {} ({}) shows all of it in a browser\n",
            path.display(),
            quantity::bytes(bytes as f64)
        ));
    }
    let mut table = Table::new([Column::left(""), Column::left("").wrap(20)]);
    for (command, why) in [
        ("explain", "every kernel and every decision, with reasons"),
        ("bench", "times, with the primitives one by one as well"),
        ("verify", "every kernel against the reference"),
    ] {
        table.row([format!("fuseline {command} {name}"), why.to_string()]);
    }
    text.push_str(&table.text(screen::width()));
    text
}

fn of_device(shown: &Shown, model: &str) -> String {
    let place = match shown.device {
        Measuring::Cpu if shown.threads == 1 => "this processor, 1 thread".to_owned(),
        Measuring::Cpu => format!("this processor, {} threads", shown.threads),
        Measuring::Cuda => "the GPU".to_owned(),
    };
    let width = screen::width();
    let mut text = format!("\n{}", heading(&format!("Fused for {place}")));
    let counts = [shown.primitives, shown.operators, shown.kernels.len()];
    let [primitives, operators, kernels] = counts;
    let counts =
        format!("{primitives} kernels with one per primitive, {operators} with one per node, {kernels} kernels fused:");
    text.push_str(&screen::wrapped(&counts, 2, width));
    let mut kinds: IndexMap<&str, usize> = IndexMap::new();
    shown.kernels.iter().for_each(|kernel| *kinds.entry(kernel.pattern.as_str()).or_default() += 1);
    for (pattern, count) in kinds.iter().take(MOST_KINDS) {
        text.push_str(&format!("  {count:>4} × {}\n", cut_back(pattern, width.saturating_sub(9))));
    }
    if kinds.len() > MOST_KINDS {
        text.push_str(&format!("       and {} more kinds\n", kinds.len() - MOST_KINDS));
    }
    text.push_str(&format!("\n{}", heading("Run")));
    text.push_str(&times(shown).text(width));
    let at = &shown.roofline;
    let bound = if at.by_memory { "memory" } else { "arithmetic" };
    let saved = 100.0 * (1.0 - shown.fused.cost.bytes / shown.unfused.cost.bytes.max(1.0));
    let position = format!(
        "{} × as fast with {saved:.0} % less traffic; {} GFLOP/s at {} flops/B, {:.0} % of the roofline, which is {bound} there",
        significant(shown.unfused.ms / shown.fused.ms),
        significant(at.gflops),
        significant(at.intensity),
        100.0 * at.gflops / at.limit_gflops,
    );
    text.push_str(&screen::wrapped(&position, 2, width));
    if let Some(remark) = remark(shown.unfused.ms / shown.fused.ms, at.by_memory, model, shown.device) {
        text.push_str(&screen::wrapped(&remark, 2, width));
    }
    let excess = at.ceiling.excess(std::iter::once((at.gbps / at.ceiling.gbps, at.gflops / at.ceiling.gflops)));
    for words in std::iter::once(at.ceiling.to_text()).chain(excess) {
        text.push_str(&screen::wrapped(&words, 2, width));
    }
    text.push_str(&format!("\n{}", heading("Verified against the reference, in f64")));
    text.push_str(&checks(shown).text(width));
    text.push_str(&screen::wrapped(&conclusion(shown), 2, width));
    text
}

/// What to say of a gain: of a loss, how it is looked at; of a small one where arithmetic is the limit, why.
fn remark(gain: f64, by_memory: bool, model: &str, device: Measuring) -> Option<String> {
    let device = if device == Measuring::Cpu { "" } else { " --device cuda" };
    // As it is printed.
    match gain < 0.995 {
        true => Some(format!(
            "fused was slower in this run; repeat it while the machine is quiet, and if it stays so, `fuseline bisect {model} --metric latency{device}` \
             looks for the one decision that makes it slower"
        )),
        false if !by_memory => Some(
            "where arithmetic takes the time, less traffic saves little; `fuseline bench gallery:layernorm_gelu` measures what memory bounds"
                .to_owned(),
        ),
        false => None,
    }
}

fn times(shown: &Shown) -> Table<'static> {
    let columns = ["kernels", "median ms", "traffic", "expected ms"].map(Column::right);
    let mut table = Table::new([Column::left("").cut(14)].into_iter().chain(columns));
    for (name, run) in [("fused", &shown.fused), (PER_NODE, &shown.unfused)] {
        table.row([
            name.to_string(),
            run.kernels.to_string(),
            significant(run.ms),
            quantity::bytes(run.cost.bytes),
            significant(run.expected_ms),
        ]);
    }
    table
}

/// The check of some that uses most of what is allowed.
fn worst<'a>(checks: impl Iterator<Item = &'a Check>) -> Option<&'a Check> {
    checks.reduce(|worst, other| if other.used() > worst.used() { other } else { worst })
}

fn checks(shown: &Shown) -> Table<'static> {
    let columns = ["worst error", "ulp", "of allowed"].map(Column::right);
    let mut table = Table::new([Column::left("").cut(20)].into_iter().chain(columns));
    let verdict = &shown.verdict;
    let kernels = worst(verdict.kernels.iter().map(|kernel| &kernel.fused));
    let rows = [
        ("outputs, fused", worst(verdict.fused.iter())),
        ("outputs, one kernel per node", worst(verdict.unfused.iter())),
        ("every kernel by itself", kernels),
    ];
    for (name, check) in rows {
        let Some(check) = check else { continue };
        let [error, ulp, used, _] = crate::verify::check_cells(check);
        table.row([name.to_string(), error, ulp, used]);
    }
    table
}

fn conclusion(shown: &Shown) -> String {
    match shown.verdict.guilty {
        None => "everything agrees".into(),
        Some(stage) => format!("differs, and the first stage that does is: {}", stage.name()),
    }
}

/// The same as JSON.
pub fn to_json(told: &Told<'_>) -> Value {
    let sizes: serde_json::Map<String, Value> =
        told.feed.assumed.iter().map(|(name, size)| (name.clone(), json!(size))).collect();
    let devices = told.shown.iter().map(|shown| {
        let run = |run: &super::Run| {
            json!({ "kernels": run.kernels, "median_ms": run.ms, "expected_ms": run.expected_ms, "bytes": run.cost.bytes, "flops": run.cost.flops })
        };
        let kernels = worst(shown.verdict.kernels.iter().map(|kernel| &kernel.fused));
        json!({
            "device": shown.device.name(),
            "threads": shown.threads,
            "primitives": shown.primitives,
            "kernels": shown.kernels.iter().map(|kernel| kernel.pattern.clone()).collect::<Vec<_>>(),
            "fused": run(&shown.fused),
            "unfused": run(&shown.unfused),
            "speedup": shown.unfused.ms / shown.fused.ms,
            "roofline": {
                "intensity": shown.roofline.intensity,
                "gflops": shown.roofline.gflops,
                "gbps": shown.roofline.gbps,
                "limit_gflops": shown.roofline.limit_gflops,
                "by_memory": shown.roofline.by_memory,
                "machine": shown.roofline.ceiling.to_json(),
            },
            "agrees": shown.verdict.guilty.is_none(),
            "worst_kernel": kernels.map(crate::verify::check_json),
            "outputs": shown.verdict.fused.iter().map(crate::verify::check_json).collect::<Vec<_>>(),
        })
    });
    json!({
        "model": told.model.name,
        "sizes_assumed": sizes,
        "devices": devices.collect::<Vec<_>>(),
        "load": told.load.map(Load::to_json),
        "report": told.written.map(|(path, _)| path.display().to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_called_one() {
        let remark = |gain, by_memory, device| remark(gain, by_memory, "demo:opt", device).unwrap_or_default();
        for by_memory in [false, true] {
            let told = remark(0.63, by_memory, Measuring::Cpu);
            assert!(told.contains("slower in this run") && !told.contains("saves little"), "{told}");
            assert!(told.contains("`fuseline bisect demo:opt --metric latency`"), "{told}");
        }
        assert!(remark(0.9, true, Measuring::Cuda).contains("--metric latency --device cuda`"));
        assert!(remark(1.1, false, Measuring::Cpu).contains("saves little"));
        assert_eq!(remark(1.1, true, Measuring::Cpu), "");
    }
}
