//! How long a program takes on the device, as a whole and launch by launch.

use fuseline::device::DeviceSpec;
use fuseline::error::{Context, Result};
use fuseline::run::Way;

use super::execute::{Run, checks_of};
use super::specialize::LoadedGraph;
use super::value::Value;
use super::workshop::key;
use crate::gpu::{Mark, Resources};
use crate::print::predict;

/// Runs before those that are measured. The device is still busy with them when the first of these is asked for, so that it never waits for
/// the host.
const WARM_UP: usize = 4;

/// A launch of a program, as it was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchProfile {
    /// the kernel of the plan
    pub kernel: usize,
    /// the function, by its name
    pub name: String,
    /// the median of its times, in microseconds
    pub us: f64,
    /// what it takes of a multiprocessor; none where a library did the work
    pub resources: Option<Resources>,
}

impl Run<'_> {
    /// Microseconds that the device takes for the launches of a graph that is nothing else, several times.
    pub fn time(&mut self, loaded: &LoadedGraph, inputs: &[Option<Value>], runs: usize) -> Result<Option<Vec<f64>>> {
        self.bind(loaded, inputs)?;
        let [only] = loaded.segments.as_slice() else { return Ok(None) };
        let special = self.special(loaded, only)?;
        let Some(pure) = &special.pure else { return Ok(None) };
        self.write_inputs(loaded, pure, inputs)?;
        for _ in 0..WARM_UP {
            self.launch_pure(loaded, &special, pure)?;
        }
        let mut marks = vec![self.engine.gpu.mark()?];
        for _ in 0..runs {
            self.launch_pure(loaded, &special, pure)?;
            marks.push(self.engine.gpu.mark()?);
        }
        self.engine.gpu.synchronize()?;
        self.check_faults(loaded, &checks_of(&special, 0).collect())?;
        between(&marks).map(Some)
    }

    /// Every launch of a graph that is nothing else, measured so many times, one after another as in a run.
    pub fn profile(
        &mut self,
        loaded: &LoadedGraph,
        inputs: &[Option<Value>],
        runs: usize,
    ) -> Result<Option<Vec<LaunchProfile>>> {
        self.bind(loaded, inputs)?;
        let [only] = loaded.segments.as_slice() else { return Ok(None) };
        let special = self.special(loaded, only)?;
        let Some(pure) = &special.pure else { return Ok(None) };
        self.write_inputs(loaded, pure, inputs)?;
        let tables = self.tables(loaded, &special, pure)?;
        let (mut launches, mut times): (Vec<LaunchProfile>, Vec<Vec<f64>>) = (Vec::new(), Vec::new());
        for run in 0..runs {
            for _ in 0..WARM_UP {
                self.launch_pure(loaded, &special, pure)?;
            }
            // Nothing is done between the first two, which shows what taking the time takes.
            let mut marks = vec![self.engine.gpu.mark()?, self.engine.gpu.mark()?];
            for (k, (step, table)) in special.steps.iter().flatten().zip(&tables).enumerate() {
                for (number, grid) in step.grids.iter().enumerate() {
                    let by_library = self.launch_one(k, step, table, number).at(|| loaded.describe(k))?;
                    marks.push(self.engine.gpu.mark()?);
                    if run == 0 {
                        let function = &step.compiled.functions[number];
                        let resources = if by_library { None } else { Some(function.resources(*grid)?) };
                        let name = step.compiled.printed.launches[number].name.clone();
                        launches.push(LaunchProfile { kernel: k, name, us: 0.0, resources });
                    }
                }
            }
            times.push(between(&marks)?);
        }
        self.check_faults(loaded, &checks_of(&special, 0).collect())?;
        let median_of = |interval: usize| median(times.iter().map(|run| run[interval]).collect());
        for (number, launch) in launches.iter_mut().enumerate() {
            launch.us = (median_of(number + 1) - median_of(0)).max(0.0);
        }
        Ok(Some(launches))
    }
}

impl Run<'_> {
    /// How long every kernel of a graph should take on a device, in microseconds; none of those that are no code.
    pub fn predict(
        &mut self,
        loaded: &LoadedGraph,
        inputs: &[Option<Value>],
        spec: &DeviceSpec,
    ) -> Result<Vec<Option<f64>>> {
        self.bind(loaded, inputs)?;
        let of_kernel = |k: usize| -> Result<Option<f64>> {
            if !matches!(loaded.kernels[k].way, Way::Code) {
                return Ok(None);
            }
            let kernel = &loaded.plan.kernels[k].kernel;
            let key = key(kernel, &self.env)?;
            let key = match self.engine.workshop.choice(kernel, &self.env) {
                Some(choice) => choice.applied_to(key),
                None => key,
            };
            let launches = predict(&key.0, &self.engine.workshop.options(&key), &self.env, spec)?;
            Ok(Some(launches.iter().sum()))
        };
        (0..loaded.kernels.len()).map(of_kernel).collect()
    }
}

/// Microseconds from mark to mark.
pub(super) fn between(marks: &[Mark]) -> Result<Vec<f64>> {
    marks.windows(2).map(|pair| pair[1].since(&pair[0])).collect()
}

/// The middle one; 0 of none.
pub(super) fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(0.0)
}
