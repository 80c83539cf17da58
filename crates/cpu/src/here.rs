//! The processor at hand, as the planner knows it.

use std::fs;
use std::num::NonZeroUsize;
use std::sync::OnceLock;

use fuseline::device::{DeviceSpec, Scope};

use crate::code::Isa;

/// What the processor at hand is called as a device where it is none of those that ship.
pub const NAME: &str = "here";

/// This processor: the device that ships and is most like it, with the cores and caches that the system tells of. The same in every
/// call, and whatever number of threads is asked for, so that plans and results are the same too.
pub fn spec() -> &'static DeviceSpec {
    static SPEC: OnceLock<DeviceSpec> = OnceLock::new();
    SPEC.get_or_init(|| like(base(Isa::detect()), Isa::detect(), cores(), &caches()))
}

/// The device that ships and has these instructions.
pub fn base(isa: Isa) -> &'static DeviceSpec {
    let name = if isa <= Isa::Avx512 { "cpu" } else { "avx2" };
    DeviceSpec::find(name).expect("both ship")
}

/// A device with these instructions, cores and caches, under its own name unless it is the one that ships.
fn like(base: &DeviceSpec, isa: Isa, cores: usize, caches: &[Cache]) -> DeviceSpec {
    let sizes: Vec<(&str, usize)> = caches.iter().map(|cache| (cache.name, cache.bytes)).collect();
    let mut spec = base.scaled(cores, &sizes);
    if isa != Isa::Amx {
        spec.matrix.rows.clear();
    }
    if spec == *base {
        return spec;
    }
    let code = match isa {
        Isa::Amx => "AVX-512 and AMX",
        Isa::Avx512 => "AVX-512",
        Isa::Avx2 => "AVX2",
        Isa::Portable => "no machine code",
    };
    spec.name = NAME.into();
    spec.doc = format!("this processor: {cores} core{} with {code}", if cores == 1 { "" } else { "s" });
    spec
}

/// A data cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// its usual name: l1, l2, l3
    pub name: &'static str,
    /// its size
    pub bytes: usize,
    /// who shares it
    pub scope: Scope,
}

/// The data caches of the first processor, the nearest first, as the system tells; none where it does not.
pub fn caches() -> Vec<Cache> {
    let names = [("l1", Scope::Core), ("l2", Scope::Core), ("l3", Scope::Shared)];
    let found = names.into_iter().zip(1..).filter_map(|((name, scope), level)| {
        let bytes = cache_bytes(level)?;
        Some(Cache { name, bytes, scope })
    });
    found.collect()
}

/// The size of the data cache of this level, as Linux tells.
fn cache_bytes(level: usize) -> Option<usize> {
    for index in 0..8 {
        let folder = format!("/sys/devices/system/cpu/cpu0/cache/index{index}");
        let read = |file: &str| fs::read_to_string(format!("{folder}/{file}")).ok();
        let (found, kind, size) = (read("level")?, read("type")?, read("size")?);
        if found.trim() == level.to_string() && kind.trim() != "Instruction" {
            return Some(size.trim().strip_suffix('K')?.parse::<usize>().ok()? << 10);
        }
    }
    None
}

/// How many cores this process may use: threads that share a core count once.
fn cores() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let listed = |file: &str| {
        let text = fs::read_to_string(format!("/sys/devices/system/cpu/{file}")).ok()?;
        count_listed(&text)
    };
    match (listed("online"), listed("cpu0/topology/thread_siblings_list")) {
        (Some(online), Some(together)) => processors.min(online.div_ceil(together)),
        _ => processors,
    }
}

/// How many numbers a list such as `0-3,8` has.
fn count_listed(text: &str) -> Option<usize> {
    let count = |part: &str| -> Option<usize> {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (usize, usize) = (from.parse().ok()?, to.parse().ok()?);
        Some(to.checked_sub(from)? + 1)
    };
    text.trim().split(',').map(count).sum::<Option<usize>>().filter(|count| *count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caches_of(l2: usize, l3: usize) -> Vec<Cache> {
        vec![
            Cache { name: "l1", bytes: 48 << 10, scope: Scope::Core },
            Cache { name: "l2", bytes: l2, scope: Scope::Core },
            Cache { name: "l3", bytes: l3, scope: Scope::Shared },
        ]
    }

    #[test]
    fn lists_of_processors_are_counted() {
        assert_eq!(["0-1\n", "0", "0-3,8", "0,64"].map(count_listed), [Some(2), Some(1), Some(5), Some(2)]);
        assert_eq!(["", "x", "3-1", "0-"].map(count_listed), [None; 4]);
    }

    #[test]
    fn a_machine_that_ships_has_its_name_and_others_say_what_they_are() {
        let usual = base(Isa::Amx);
        assert_eq!(&like(usual, Isa::Amx, 2, &caches_of(2 << 20, 300 << 20)), usual);
        let many = like(usual, Isa::Amx, 16, &caches_of(2 << 20, 300 << 20));
        assert_eq!((many.name.as_str(), many.limits.cores), (NAME, 16));
        assert_eq!(many.doc, "this processor: 16 cores with AVX-512 and AMX");
        let plain = like(usual, Isa::Avx512, 2, &caches_of(2 << 20, 300 << 20));
        assert!(plain.matrix.rows.is_empty() && plain.name == NAME);
        assert_ne!(plain.fingerprint(), many.fingerprint());
        let old = like(base(Isa::Avx2), Isa::Avx2, 1, &[]);
        assert_eq!(old.doc, "this processor: 1 core with AVX2");
    }

    #[test]
    fn this_machine_is_a_device_that_can_be_written_and_does_not_change() {
        let spec = spec();
        assert_eq!(&DeviceSpec::parse(&spec.to_string()).unwrap(), spec);
        assert_eq!(like(base(Isa::detect()), Isa::detect(), cores(), &caches()), *spec);
    }
}
