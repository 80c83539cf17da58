//! What was measured, for people and for programs.

use fuseline_session::plan::size_list;
use serde_json::{Map, Value, json};

use super::contender::{Contender, Kind};
use super::profile;
use super::{Contest, Measured};
use crate::arguments::Measuring;
use crate::load::Load;
use crate::quantity::{self, significant};
use crate::screen::{self, Column, Table, title};

/// A table of the contenders, and what follows from it.
pub fn to_text(measured: &Measured<'_>) -> String {
    let contest = &measured.contest;
    let runs = measured.arguments.iters.get();
    let (threads, width) = (contest.threads, screen::width());
    let place = match measured.arguments.device {
        Measuring::Cpu => quantity::several(threads, "thread"),
        Measuring::Cuda => "the GPU".to_owned(),
    };
    let mut text = title(&format!("{} on {place}", measured.model.name), screen::width());
    let mut line = |words: String| text.push_str(&screen::wrapped(&words, 2, width));
    let of_each = if contest.contenders.len() > 1 { " of each, in turns" } else { "" };
    line(format!("{}{of_each}{}", quantity::several(runs, "run"), sizes(measured)));
    text.push('\n');
    text.push_str(&table(measured).text(width));
    text.push('\n');
    let mut line = |words: String| text.push_str(&screen::wrapped(&words, 2, width));
    if let (Some(fused), Some(other)) = (contest.find(Kind::Fused), contest.find(Kind::PerNode)) {
        let traffic = other.cost().bytes - fused.cost().bytes;
        let is_nothing = |each: &Contender| each.cost().bytes == 0.0 && each.cost().flops == 0.0;
        // What the times of as many kernels that move as much differ by is noise.
        line(match traffic == 0.0 && fused.kernels() == other.kernels() {
            true if is_nothing(fused) => "nothing is computed at these sizes: the times are those of calls".into(),
            true => "fusion saves nothing here: both plans have as many kernels and move the same bytes".into(),
            false => saving((other.median_ms(), fused.median_ms()), (other.cost().bytes, fused.cost().bytes)),
        });
    }
    if let Some(first) = contest.contenders.first() {
        let [compiling, loading] = [first.compiling, measured.opened + first.loading].map(ms);
        let peak =
            contest.peak_bytes.map_or(String::new(), |peak| format!(", {} of memory", quantity::bytes(peak as f64)));
        line(format!("{}: compiled in {compiling} ms, loaded in {loading} ms{peak}", first.kind.title()));
    }
    line(contest.ceiling.to_text());
    if let Some(why) = excess(measured) {
        line(why);
    }
    for contender in &contest.contenders {
        let interpreted = contender.interpreted();
        if let Some(first) = interpreted.first() {
            line(format!("{}: {} interpreted, such as {first}", contender.kind.title(), kernels(interpreted.len())));
        }
    }
    if let Some(profile) = &contest.profile {
        text.push('\n');
        text.push_str(&profile::to_text(
            &profile.kernels,
            &measured.plan.spec,
            measured.contest.ceiling.rates().is_some(),
        ));
    }
    text
}

/// Why rates are above what the machine can do, if one is.
fn excess(measured: &Measured<'_>) -> Option<String> {
    let Contest { ceiling, contenders, .. } = &measured.contest;
    ceiling.excess(contenders.iter().map(|each| (each.gbps() / ceiling.gbps, each.gflops() / ceiling.gflops)))
}

/// What fusion saves, or costs: milliseconds and bytes of one kernel per node, and of the plan.
fn saving(ms: (f64, f64), bytes: (f64, f64)) -> String {
    let (time, traffic) = (ms.0 - ms.1, bytes.0 - bytes.1);
    let time = match time < 0.0 {
        true => format!("fusion costs {} ms a run", three_digits(-time)),
        false => format!("fusion saves {} ms a run", three_digits(time)),
    };
    let part = 100.0 * traffic.abs() / bytes.0.max(1.0);
    let traffic = match traffic < 0.0 {
        true => format!("moves {} more ({part:.0} %)", quantity::bytes(-traffic)),
        false => format!("saves {} of traffic ({part:.0} %)", quantity::bytes(traffic)),
    };
    format!("{time} against one kernel per node ({} ×) and {traffic}", significant(ms.0 / ms.1))
}

/// A number with three digits that count, however small it is.
pub fn three_digits(x: f64) -> String {
    if x == 0.0 || !x.is_finite() {
        return x.to_string();
    }
    let after = 2 - x.abs().log10().floor() as i32;
    format!("{x:.*}", usize::try_from(after).unwrap_or(0))
}

fn kernels(n: usize) -> String {
    quantity::several(n, "kernel")
}

fn ms(time: std::time::Duration) -> String {
    significant(time.as_secs_f64() * 1e3)
}

fn sizes(measured: &Measured<'_>) -> String {
    let given = match measured.given {
        [] => String::new(),
        given => format!("; {}", size_list(given)),
    };
    match measured.feed.assumed.as_slice() {
        [] => given,
        assumed => format!("{given}; sizes assumed: {} (choose them with --sizes)", size_list(assumed)),
    }
}

fn table(measured: &Measured<'_>) -> Table<'static> {
    let mut table = Table::new([
        Column::left("").cut(10),
        Column::right("kernels"),
        Column::right("median ms"),
        Column::right("min").goes(2),
        Column::right("p90").goes(1),
        Column::right("speed-up"),
        Column::right("GB/s"),
        Column::right("GFLOP/s").goes(3),
    ]);
    let contenders = &measured.contest.contenders;
    let slowest = contenders.last().map_or(f64::NAN, Contender::median_ms);
    let (gbps, gflops) = (measured.contest.ceiling.gbps, measured.contest.ceiling.gflops);
    for contender in contenders {
        let rate = |x: f64, most: f64| format!("{} ({:.0} %)", significant(x), 100.0 * x / most);
        table.row([
            contender.kind.title().to_string(),
            contender.kernels().to_string(),
            three_digits(contender.median_ms()),
            three_digits(contender.quantile_ms(0.0)),
            three_digits(contender.quantile_ms(0.9)),
            format!("{}×", significant(slowest / contender.median_ms())),
            rate(contender.gbps(), gbps),
            rate(contender.gflops(), gflops),
        ]);
    }
    table
}

/// The same as JSON.
pub fn to_json(measured: &Measured<'_>) -> Value {
    let contest = &measured.contest;
    let mut fields = Map::new();
    let mut field = |name: &str, value: Value| fields.insert(name.into(), value);
    field("model", json!(measured.model.name));
    field("device", json!(measured.arguments.device.name()));
    field("target", json!(measured.plan.spec.name));
    field("threads", json!(contest.threads));
    field("iters", json!(measured.arguments.iters.get()));
    let inputs = measured.feed.tensors.iter();
    let inputs = inputs.map(|(name, x)| json!({ "name": name, "dtype": x.dtype().name(), "shape": x.sizes() }));
    field("inputs", inputs.collect());
    for contender in &contest.contenders {
        let value = json!({
            "median_ms": contender.median_ms(),
            "min_ms": contender.quantile_ms(0.0),
            "p90_ms": contender.quantile_ms(0.9),
            "kernels": contender.kernels(),
            "bytes": contender.cost().bytes,
            "flops": contender.cost().flops,
            "gbps": contender.gbps(),
            "gflops": contender.gflops(),
            "predicted_ms": contender.cost().us / 1e3,
            "interpreted": contender.interpreted().len(),
        });
        field(contender.kind.name(), value);
    }
    if let Some(fused) = contest.find(Kind::Fused) {
        for other in contest.contenders.iter().filter(|other| other.kind != Kind::Fused) {
            let versus = json!({
                "speedup": other.median_ms() / fused.median_ms(),
                "saved_ms": other.median_ms() - fused.median_ms(),
                "saved_bytes": other.cost().bytes - fused.cost().bytes,
            });
            field(&format!("fused_against_{}", other.kind.name()), versus);
        }
    }
    if let Some(first) = contest.contenders.first() {
        field("compile_ms", json!(first.compiling.as_secs_f64() * 1e3));
        field("load_ms", json!((measured.opened + first.loading).as_secs_f64() * 1e3));
        field("kernels", json!(first.kernels()));
    }
    if let Some(profile) = &contest.profile {
        field("profile", profile::to_json(&profile.kernels));
    }
    field("peak_mb", json!(contest.peak_bytes.map(|bytes| bytes as f64 / 1e6)));
    field("machine", contest.ceiling.to_json());
    field("above_machine", json!(excess(measured)));
    field("load", json!(measured.load.map(Load::to_json)));
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_is_not_told_as_a_negative_saving() {
        let words = saving((2.0, 1.0), (100.0, 60.0));
        assert_eq!(
            words,
            "fusion saves 1.00 ms a run against one kernel per node (2.00 ×) and saves 40 B of traffic (40 %)"
        );
        let words = saving((1.0, 2.0), (100.0, 150.0));
        assert_eq!(words, "fusion costs 1.00 ms a run against one kernel per node (0.50 ×) and moves 50 B more (50 %)");
    }

    #[test]
    fn short_times_keep_their_digits() {
        assert_eq!(three_digits(0.0712), "0.0712");
        assert_eq!(three_digits(1.0), "1.00");
        assert_eq!(three_digits(-12.34), "-12.3");
        assert_eq!(three_digits(1234.5), "1234");
        assert_eq!(three_digits(0.0), "0");
    }
}
