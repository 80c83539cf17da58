//! Devices of the same sort with more or fewer cores.

use super::{DeviceSpec, Scope};

/// So many cores draw all that main memory gives.
const CORES_OF_MAIN_MEMORY: usize = 8;

impl DeviceSpec {
    /// The same sort of device with another number of cores, at least one, and other sizes of the caches that are named, in bytes.
    ///
    /// What every core has, and what it draws of a shared cache, is there as often as there are cores; main memory is used up by a few. A
    /// core's part of a shared cache grows no larger than it was: who tells a size may share the cache with others. With
    /// as many cores and caches as there were, this is the device itself.
    pub fn scaled(&self, cores: usize, caches: &[(&str, usize)]) -> DeviceSpec {
        let (before, cores) = (self.limits.cores.max(1), cores.max(1));
        let wider = cores as f64 / before as f64;
        let mut spec = self.clone();
        spec.limits.cores = cores;
        for rates in [&mut spec.vector, &mut spec.matrix, &mut spec.special, &mut spec.product] {
            rates.rows.iter_mut().for_each(|(_, rate)| *rate *= wider);
        }
        // All cores wait for the last one, and tell it one after another.
        spec.costs.join_us = if cores == 1 { 0.0 } else { self.costs.join_us * wider.sqrt() };
        let last = spec.memory.len() - 1;
        for (k, level) in spec.memory.iter_mut().enumerate() {
            let used = if k == last { cores.min(CORES_OF_MAIN_MEMORY.max(before)) } else { cores };
            level.gbps = (level.gbps * used as f64 / before as f64).max(level.core_gbps);
            let told = caches.iter().find(|(name, _)| *name == level.name).map(|(_, bytes)| *bytes);
            if let (Some(bytes), true) = (told, k < last) {
                let most =
                    if level.scope == Scope::Shared { level.bytes.saturating_mul(cores) / before } else { usize::MAX };
                level.bytes = bytes.clamp(1, most.max(1));
            }
        }
        spec.grow_with_distance(self);
        spec.fit_on_chip(self);
        spec.host.gbps *= spec.main_memory().gbps / self.main_memory().gbps;
        spec
    }

    /// Caches that are not larger than the nearer one have the sizes that they had.
    fn grow_with_distance(&mut self, before: &DeviceSpec) {
        if self.memory.windows(2).any(|pair| pair[0].bytes >= pair[1].bytes) {
            self.memory.iter_mut().zip(&before.memory).for_each(|(level, usual)| level.bytes = usual.bytes);
        }
    }

    /// On-chip memory of a block is a part of the farthest memory that a core has for itself.
    fn fit_on_chip(&mut self, before: &DeviceSpec) {
        let own = |spec: &DeviceSpec| spec.memory.iter().rfind(|level| level.scope == Scope::Core).map(|l| l.bytes);
        let (Some(now), Some(then)) = (own(self), own(before)) else { return };
        let part = |bytes: usize| (bytes as u128 * now as u128 / then.max(1) as u128).max(1) as usize;
        let limits = &mut self.limits;
        for bytes in [&mut limits.on_chip, &mut limits.core_on_chip, &mut limits.row_on_chip] {
            *bytes = part(*bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Unit;
    use crate::tensor::DType;

    fn cpu() -> &'static DeviceSpec {
        DeviceSpec::find("cpu").unwrap()
    }

    #[test]
    fn with_its_own_cores_and_caches_a_device_is_itself() {
        for spec in DeviceSpec::all() {
            let caches: Vec<(&str, usize)> =
                spec.memory.iter().map(|level| (level.name.as_str(), level.bytes)).collect();
            assert_eq!(&spec.scaled(spec.limits.cores, &caches), spec);
            assert_eq!(&spec.scaled(spec.limits.cores, &[]), spec);
        }
        // 300 MiB that others use as well.
        assert_eq!(&cpu().scaled(2, &[("l1", 48 << 10), ("l2", 2 << 20), ("l3", 300 << 20)]), cpu());
    }

    #[test]
    fn cores_bring_their_arithmetic_and_caches_and_share_main_memory() {
        let many = cpu().scaled(16, &[("l2", 1 << 20), ("l3", 300 << 20)]);
        assert_eq!(many.limits.cores, 16);
        assert_eq!(many.peak(Unit::Fma(DType::F32)), 8.0 * cpu().peak(Unit::Fma(DType::F32)));
        let level = |name: &str| many.memory.iter().find(|level| level.name == name).unwrap();
        assert_eq!((level("l2").bytes, level("l2").gbps), (1 << 20, 8.0 * 357.0));
        assert_eq!((level("l3").bytes, level("l3").core_gbps), (300 << 20, 39.0));
        assert_eq!((level("dram").gbps, many.host.gbps), (192.0, 192.0));
        assert_eq!(many.limits.on_chip, 512 << 10);
        assert!(many.costs.join_us > cpu().costs.join_us);
        assert_eq!(DeviceSpec::parse(&many.to_string()).unwrap(), many);
    }

    #[test]
    fn one_core_meets_nobody_and_draws_what_one_can() {
        let one = cpu().scaled(1, &[]);
        assert_eq!((one.costs.join_us, one.main_memory().gbps), (0.0, 25.0));
        assert!(one.memory.iter().all(|level| level.core_gbps <= level.gbps));
        assert_eq!(cpu().scaled(0, &[]), one);
    }

    #[test]
    fn sizes_that_cannot_be_are_not_believed() {
        let odd = cpu().scaled(2, &[("l1", 0), ("l2", 1 << 40), ("l9", 7)]);
        assert_eq!(odd.memory.iter().map(|l| l.bytes).collect::<Vec<_>>(), [48 << 10, 2 << 20, 128 << 20, 64 << 30]);
    }
}
