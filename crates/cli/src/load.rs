//! Other work on the machine, which whoever reads times must know of.

use crate::arguments::Measuring;
use crate::screen;

/// Says so, before a processor is measured, where other work is on it: then it is not measured at its best. A GPU is another machine.
pub fn tell(device: Measuring, quiet: bool) {
    if quiet || device != Measuring::Cpu {
        return;
    }
    let told = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    if let Some(note) = note(&told, processors) {
        screen::tell(&note);
    }
}

/// What is said where Linux tells of such a load.
fn note(told: &str, processors: usize) -> Option<String> {
    let load: f64 = told.split_whitespace().next()?.parse().ok()?;
    // What ran here before has its part of it.
    (load > 1.5 * processors as f64)
        .then(|| format!("note: other work is on this machine (a load of {load}): it can do more than was measured\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_more_work_than_processors_is_told() {
        assert_eq!(note("0.50 0.60 0.70 1/200 4711\n", 2), None);
        assert_eq!(note("3.00 0.60 0.70 1/200 4711\n", 2), None);
        assert!(note("5.11 4.54 3.81 9/200 4711\n", 2).is_some_and(|note| note.contains("a load of 5.11")));
        assert_eq!(note("5.11 4.54 3.81 9/200 4711\n", 16), None);
        assert_eq!(note("", 2), None, "other systems tell nothing");
    }
}
