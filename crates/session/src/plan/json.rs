//! Plans for programs that read them.

use fuseline::explain::{Baseline, DecisionRow, Edge, Explanation, KernelRow, RegionEdges};
use fuseline::fuse::{Cost, Verdict};
use serde_json::{Map, Value, json};

use super::Setting;

/// The whole plan.
pub fn of_plan(setting: &Setting<'_>, explanation: &Explanation) -> Value {
    let mut value = head(setting);
    value["kernels"] = explanation.run.kernels.iter().map(kernel).collect();
    value["prepared"] = explanation.prepare.kernels.iter().map(kernel).collect();
    value["totals"] = totals(explanation);
    value["prepare_totals"] = cost(&explanation.prepare.cost, explanation.prepare.count());
    value["decisions"] = explanation.decisions.iter().map(decision).collect();
    value["disagreements"] = json!(explanation.disagreements());
    value["edges"] = edges(&explanation.run.edges);
    value["region_edges"] = explanation.run.region_edges.iter().map(region).collect();
    value["prepare_edges"] = edges(&explanation.prepare.edges);
    value
}

/// What was planned, and for what.
pub fn head(setting: &Setting<'_>) -> Value {
    let sizes = |list: &[(String, i64)]| list.iter().map(|(n, s)| (n.clone(), json!(s))).collect::<Map<_, _>>();
    let spec = &setting.options.spec;
    json!({
        "model": setting.model,
        "target": { "name": spec.name, "fingerprint": format!("{:016x}", spec.fingerprint()) },
        "numerics": setting.options.numerics.name(),
        "precision": setting.options.precision.name(),
        "sizes": sizes(setting.given),
        "assumed_sizes": sizes(setting.assumed),
    })
}

/// A kernel.
pub fn kernel(row: &KernelRow) -> Value {
    let mut value = json!({
        "name": row.name,
        "kind": row.kind.name(),
        "pattern": row.pattern,
        "nodes": row.operators.iter().map(|o| o.name.as_ref()).collect::<Vec<_>>(),
        "members": row.members,
        "bytes": row.bytes.round(),
        "flops": row.flops.round(),
        "intensity": row.intensity().map(short),
        "bound": row.bound,
        "predicted_us": short(row.us),
        "score": row.scorecard.as_ref().map(|card| short(card.score)),
        "textbook": row.scorecard.as_ref().map(ToString::to_string),
    });
    if let Some(inside) = &row.inside {
        value["inside"] = json!(inside);
    }
    value
}

/// A decision.
pub fn decision(row: &DecisionRow) -> Value {
    json!({
        "id": row.id.to_string(),
        "rule": row.rule,
        "producer": row.producer,
        "consumer": row.consumer,
        "verdict": if row.verdict == Verdict::Taken { "taken" } else { "refused" },
        "code": row.code,
        "reason": row.reason,
        "saved_us": short(row.saved_us),
        "bytes_saved": row.bytes_saved.round(),
        "flops_saved": row.flops_saved.round(),
        "score": short(row.score()),
        "textbook": row.scorecard.as_ref().map(ToString::to_string),
        "disagrees": row.disagrees(),
        "illegal": row.is_illegal,
    })
}

fn edges(edges: &[Edge]) -> Value {
    let edge = |e: &Edge| json!([e.producer, e.consumer, e.decision.to_string()]);
    edges.iter().map(edge).collect()
}

fn region(region: &RegionEdges) -> Value {
    json!({ "inside": region.inside, "region": region.region, "edges": edges(&region.edges) })
}

fn totals(explanation: &Explanation) -> Value {
    let part = &explanation.run;
    let mut value = cost(&part.cost, part.count());
    let baseline = |other: &Baseline| {
        let mut value = cost(&other.cost, other.kernels);
        value["speedup"] = json!((part.cost.us > 0.0).then(|| short(other.cost.us / part.cost.us)));
        value
    };
    if let Some(apart) = &explanation.apart {
        value["per_node"] = baseline(&apart.per_node);
        value["per_primitive"] = baseline(&apart.per_primitive);
    }
    value["regions"] = cost(&part.regions.cost, part.regions.kernels);
    value
}

/// What so many kernels cost.
pub fn cost(cost: &Cost, kernels: usize) -> Value {
    json!({
        "kernels": kernels,
        "predicted_us": short(cost.us),
        "bytes": cost.bytes.round(),
        "flops": cost.flops.round(),
    })
}

/// Four digits after the point are more than a prediction knows.
fn short(x: f64) -> f64 {
    (x * 1e4).round() / 1e4
}
