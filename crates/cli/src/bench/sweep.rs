//! Several sizes, one after another: what fusion gains at each, in one table.

use super::contender::{Contender, Kind};
use super::{Measured, report};
use crate::quantity::significant;
use crate::screen::{self, Column, Table, heading};

/// What was measured at some sizes.
pub struct Line {
    sizes: String,
    unfused: Option<Rates>,
    fused: Option<Rates>,
}

/// One plan.
#[derive(Clone, Copy)]
struct Rates {
    ms: f64,
    gbps: f64,
    bytes: f64,
}

impl Rates {
    fn of(contender: &Contender) -> Rates {
        Rates { ms: contender.median_ms(), gbps: contender.gbps(), bytes: contender.cost().bytes }
    }
}

impl Line {
    pub fn of(measured: &Measured<'_>) -> Line {
        let rates = |kind| measured.contest.find(kind).map(Rates::of);
        let sizes = measured.given.first().map_or(String::new(), |(name, size)| format!("{name}={size}"));
        Line { sizes, unfused: rates(Kind::PerNode), fused: rates(Kind::Fused) }
    }
}

/// A line for every size: one kernel per node against the plan.
pub fn to_text(lines: &[Line]) -> String {
    let mut table = Table::new([
        Column::left("sizes"),
        Column::right("per node ms"),
        Column::right("fused ms"),
        Column::right("speed-up"),
        Column::right("saved ms").goes(2),
        Column::right("per node GB/s").goes(1),
        Column::right("fused GB/s").goes(1),
        Column::right("traffic saved").goes(3),
    ]);
    let none = || "–".to_string();
    for line in lines {
        let both = line.unfused.zip(line.fused);
        table.row([
            line.sizes.clone(),
            line.unfused.map_or_else(none, |rates| report::three_digits(rates.ms)),
            line.fused.map_or_else(none, |rates| report::three_digits(rates.ms)),
            both.map_or_else(none, |(unfused, fused)| format!("{}×", significant(unfused.ms / fused.ms))),
            both.map_or_else(none, |(unfused, fused)| report::three_digits(unfused.ms - fused.ms)),
            line.unfused.map_or_else(none, |rates| significant(rates.gbps)),
            line.fused.map_or_else(none, |rates| significant(rates.gbps)),
            both.map_or_else(none, |(unfused, fused)| {
                format!("{:.0} %", 100.0 * (1.0 - fused.bytes / unfused.bytes.max(1.0)))
            }),
        ]);
    }
    format!("\n{}{}", heading("All sizes"), table.text(screen::width()))
}
