//! Other work on the machine, which whoever reads times must know of.

use serde_json::{Value, json};

use crate::arguments::Measuring;
use crate::screen;

/// Other work on the machine while a processor is measured: it is not at its best then.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load(f64);

impl Load {
    /// That of this machine now, where it is more than its processors can do. A GPU is another machine.
    pub fn now(device: Measuring) -> Option<Load> {
        if device != Measuring::Cpu {
            return None;
        }
        let told = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
        Load::read(&told, processors)
    }

    /// What Linux tells.
    fn read(told: &str, processors: usize) -> Option<Load> {
        let load: f64 = told.split_whitespace().next()?.parse().ok()?;
        // What ran here before has its part of it.
        (load > 1.5 * processors as f64).then_some(Load(load))
    }

    /// The average number of programs that wanted to run, in the last minute.
    pub fn average(self) -> f64 {
        self.0
    }

    /// What it means for whoever reads times.
    pub fn to_text(self) -> String {
        format!("other work is on this machine (a load of {}): it can do more than was measured", self.0)
    }

    /// The same as JSON.
    pub fn to_json(self) -> Value {
        json!({ "average": self.0, "note": self.to_text() })
    }
}

/// Says so, before a processor is measured, where other work is on it.
pub fn tell(device: Measuring) -> Option<Load> {
    let load = Load::now(device);
    if let Some(load) = load {
        screen::tell(&format!("note: {}", load.to_text()));
    }
    load
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A machine on which much is to do.
    pub fn busy() -> Option<Load> {
        Load::read("5.11 4.54 3.81 9/200 4711\n", 2)
    }

    #[test]
    fn only_more_work_than_processors_is_told() {
        assert_eq!(Load::read("0.50 0.60 0.70 1/200 4711\n", 2), None);
        assert_eq!(Load::read("3.00 0.60 0.70 1/200 4711\n", 2), None);
        assert!(busy().is_some_and(|load| load.to_text().contains("a load of 5.11")));
        assert_eq!(busy().map(Load::to_json).unwrap()["average"], 5.11);
        assert_eq!(Load::read("5.11 4.54 3.81 9/200 4711\n", 16), None);
        assert_eq!(Load::read("", 2), None, "other systems tell nothing");
    }
}
