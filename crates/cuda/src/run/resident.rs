//! Runs whose outputs stay on the device.

use std::sync::{Arc, PoisonError};

use fuseline::error::{Error, Result};
use fuseline::run::Origin;
use rustc_hash::{FxHashMap, FxHashSet};

use super::execute::{Run, checks_of};
use super::specialize::{LoadedGraph, Pure, Special};
use super::value::Value;
use crate::gpu::Graph;
use crate::memory::{Block, DeviceTensor};

/// Launches with inputs and outputs at other places than the usual ones.
#[derive(Debug)]
pub(super) struct Recorded {
    /// where they lie, by slot
    places: Vec<(usize, u64)>,
    /// from the second time on
    graph: Option<Graph>,
}

/// Callers come back with the same memory, or with some few in turns; more than these are not kept.
const MOST_RECORDED: usize = 8;

impl Run<'_> {
    /// The outputs of a graph, each in memory of its own. The device may still be at work when this returns.
    pub fn execute_resident(&mut self, loaded: &LoadedGraph, inputs: &[Option<Value>]) -> Result<Vec<DeviceTensor>> {
        self.bind(loaded, inputs)?;
        let mut values = match self.pure(loaded)? {
            Some(special) => self.launch_resident(loaded, &special, inputs)?,
            None => self.execute_steps(loaded, inputs)?,
        };
        let gpu = &self.engine.gpu;
        let mut taken = FxHashSet::default();
        let mut outputs = Vec::with_capacity(values.len());
        for (slot, value) in loaded.outputs.iter().zip(&mut values) {
            // Inputs and constants are not the caller's to write, and neither is what another output has.
            if matches!(loaded.slots[*slot].origin, Origin::Kernel(_)) && taken.insert(*slot) {
                outputs.push(value.tensor(gpu)?);
            } else {
                let (dtype, sizes) = value.like()?;
                let block = Arc::new(gpu.take(loaded.slots[*slot].bytes(self.sizes())?)?);
                value.write(gpu, block.at())?;
                outputs.push(DeviceTensor::new(dtype, sizes.to_vec(), block));
            }
        }
        Ok(outputs)
    }

    /// The outputs of a graph without inputs that is run this once, where they are. The device may still be at work when this returns.
    pub fn execute_once(&mut self, loaded: &LoadedGraph) -> Result<Vec<Value>> {
        self.bind(loaded, &[])?;
        let Some(special) = self.pure(loaded)? else { return self.execute_steps(loaded, &[]) };
        let pure = special.pure.as_ref().ok_or_else(|| Error::bug("more than launches"))?;
        let kept = loaded.slots.iter().enumerate();
        let kept = kept.filter(|(_, info)| info.is_output && matches!(info.origin, Origin::Kernel(_)));
        let kept: Vec<usize> = kept.map(|(slot, _)| slot).collect();
        let bytes = kept.iter().map(|slot| loaded.slots[*slot].bytes(self.sizes())).collect::<Result<Vec<usize>>>()?;
        let blocks: FxHashMap<usize, Arc<Block>> =
            kept.into_iter().zip(self.engine.gpu.take_together(&bytes)?).collect();
        let places = blocks.iter().map(|(slot, block)| (*slot, block.at())).collect();
        let tables = self.tables_with(loaded, &special, pure, &places)?;
        self.launch_all(loaded, &special, &tables)?;
        self.check_faults(loaded, &checks_of(&special, 0).collect())?;
        let output = |slot: &usize| {
            let info = &loaded.slots[*slot];
            match (info.origin, blocks.get(slot)) {
                (Origin::Constant(id), _) => self.engine.constants.value(id),
                (_, Some(block)) => {
                    let sizes = info.ty.shape.eval(self.sizes())?;
                    Ok(DeviceTensor::new(info.ty.dtype, sizes, block.clone()).into())
                }
                _ => Err(Error::bug("an output has no place")),
            }
        };
        loaded.outputs.iter().map(output).collect()
    }

    /// Launches a graph that is nothing but launches: inputs that are on the device are read where they lie.
    fn launch_resident(
        &mut self,
        loaded: &LoadedGraph,
        special: &Special,
        inputs: &[Option<Value>],
    ) -> Result<Vec<Value>> {
        let pure = special.pure.as_ref().ok_or_else(|| Error::bug("more than launches"))?;
        let gpu = &self.engine.gpu;
        let mut places = Vec::new();
        let mut values: Vec<Value> = vec![Value::default(); loaded.slots.len()];
        for (slot, input) in loaded.inputs.iter().zip(inputs) {
            let (Origin::Input, Some(input)) = (loaded.slots[*slot].origin, input) else { continue };
            match (input.on_device(), pure.by_slot.get(slot)) {
                (Some(tensor), _) => places.push((*slot, tensor.at())),
                (None, Some(at)) => input.write(gpu, *at)?,
                (None, None) => {}
            }
            values[*slot] = input.clone();
        }
        for slot in &loaded.outputs {
            let info = &loaded.slots[*slot];
            match info.origin {
                Origin::Input => {}
                Origin::Constant(id) => values[*slot] = self.engine.constants.tensor(id, gpu)?.into(),
                Origin::Kernel(_) if values[*slot].on_device().is_some() => {}
                Origin::Kernel(_) => {
                    let block = Arc::new(gpu.take(info.bytes(self.sizes())?)?);
                    places.push((*slot, block.at()));
                    let sizes = info.ty.shape.eval(self.sizes())?;
                    values[*slot] = DeviceTensor::new(info.ty.dtype, sizes, block).into();
                }
            }
        }
        self.launch_at(loaded, special, pure, places)?;
        self.check_faults(loaded, &checks_of(special, 0).collect())?;
        Ok(loaded.outputs.iter().map(|slot| values[*slot].clone()).collect())
    }

    /// Launches everything with some values elsewhere: one by one the first time, recorded as one where the same places come again.
    fn launch_at(&self, loaded: &LoadedGraph, special: &Special, pure: &Pure, places: Vec<(usize, u64)>) -> Result<()> {
        if self.engine.gpu.is_blocking {
            let tables = self.tables_with(loaded, special, pure, &places.into_iter().collect())?;
            return self.launch_all(loaded, special, &tables);
        }
        let mut recorded = pure.elsewhere.lock().unwrap_or_else(PoisonError::into_inner);
        let known = recorded.iter_mut().find(|known| known.places == places);
        if let Some(Recorded { graph: Some(graph), .. }) = &known {
            return graph.launch();
        }
        let tables = self.tables_with(loaded, special, pure, &places.iter().copied().collect())?;
        if let Some(known) = known {
            let graph = self.engine.gpu.record(|| self.launch_all(loaded, special, &tables))?;
            return known.graph.insert(graph).launch();
        }
        if recorded.len() == MOST_RECORDED {
            recorded.remove(0);
        }
        recorded.push(Recorded { places, graph: None });
        self.launch_all(loaded, special, &tables)
    }
}
