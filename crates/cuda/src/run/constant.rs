//! What is the same in every run, on the device from its first use on.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use fuseline::error::{Error, Result};
use fuseline::run::{ConstantId, ConstantPool};
use fuseline::tensor::Literal;
use rustc_hash::FxHashMap;

use super::value::Value;
use crate::gpu::Gpu;
use crate::memory::DeviceTensor;

/// The constants of a session.
#[derive(Debug, Default)]
pub(super) struct Constants {
    entries: Vec<Mutex<Value>>,
    literals: FxHashMap<Literal, ConstantId>,
}

impl Constants {
    /// A value that was prepared.
    pub fn add_prepared(&mut self, value: Value) -> ConstantId {
        self.entries.push(Mutex::new(value));
        ConstantId(self.entries.len() - 1)
    }

    /// The constant as the host has it; read back from the device if need be.
    pub fn literal(&self, id: ConstantId) -> Result<Literal> {
        self.entry(id)?.lock().unwrap_or_else(PoisonError::into_inner).literal()
    }

    /// The constant on the device.
    pub fn tensor(&self, id: ConstantId, gpu: &Arc<Gpu>) -> Result<DeviceTensor> {
        let mut value = self.entry(id)?.lock().unwrap_or_else(PoisonError::into_inner);
        value.tensor(gpu)
    }

    /// The constant where it is.
    pub fn value(&self, id: ConstantId) -> Result<Value> {
        Ok(self.entry(id)?.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Brings those of some constants to the device that are not there, all at once.
    pub fn bring(&self, ids: &BTreeSet<ConstantId>, gpu: &Arc<Gpu>) -> Result<()> {
        // In the order of their numbers, so that who waits for one of them waits for nobody who waits.
        let entries = ids.iter().map(|id| self.entry(*id)).collect::<Result<Vec<_>>>()?;
        let mut entries: Vec<_> =
            entries.into_iter().map(|entry| entry.lock().unwrap_or_else(PoisonError::into_inner)).collect();
        entries.retain(|value| value.missing().is_some());
        let missing: Vec<Literal> = entries.iter().filter_map(|value| value.missing().cloned()).collect();
        let blocks = gpu.take_together(&missing.iter().map(Literal::byte_count).collect::<Vec<usize>>())?;
        let places: Vec<(u64, &Literal)> = blocks.iter().map(|block| block.at()).zip(&missing).collect();
        gpu.write_all(&places)?;
        for ((value, literal), block) in entries.iter_mut().zip(&missing).zip(blocks) {
            value.bring(DeviceTensor::new(literal.dtype(), literal.sizes().to_vec(), block));
        }
        Ok(())
    }

    fn entry(&self, id: ConstantId) -> Result<&Mutex<Value>> {
        self.entries.get(id.0).ok_or_else(|| Error::bug("a constant is not there"))
    }
}

impl ConstantPool for Constants {
    fn add_literal(&mut self, literal: &Literal) -> ConstantId {
        if let Some(known) = self.literals.get(literal) {
            return *known;
        }
        let id = self.add_prepared(literal.clone().into());
        self.literals.insert(literal.clone(), id);
        id
    }

    fn count_reader(&mut self, _: ConstantId) {}
}
