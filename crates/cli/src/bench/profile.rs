//! Where the time of the fused plan goes, for people.

pub use fuseline_session::profile::{Measured, Profile, measure, median_error, to_json};

use fuseline_session::plan::name::cut_back;

use crate::quantity::{self, significant};
use crate::screen::{self, Side, Table};

/// A table of kernels, that with the most time first; equal kernels are one line.
pub fn to_text(kernels: &[Measured]) -> String {
    let columns =
        ["times", "µs each", "share", "predicted", "off by", "GB/s", "GFLOP/s"].map(|name| (name, Side::Right));
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
            if each > 0.0 { format!("{:+.0} %", 100.0 * (row.us / each - 1.0)) } else { "–".into() },
            significant(row.bytes / each / 1e3),
            significant(row.flops / each / 1e3),
            phases(group[0]),
        ]);
    }
    let predicted: f64 = kernels.iter().map(|kernel| kernel.row.us).sum();
    let bytes = quantity::bytes(kernels.iter().map(|kernel| kernel.row.bytes).sum());
    let off = median_error(kernels).map_or(String::new(), |error| {
        format!("; half of all predictions are off by less than {:.0} %", 100.0 * error)
    });
    let sum = format!(
        "  {} µs in kernels, predicted {} µs{off}; {bytes} of traffic\n",
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
