//! Values during a run.

use std::sync::Arc;

use fuseline::error::{Error, Result};
use fuseline::tensor::{DType, Literal};

use crate::gpu::Gpu;
use crate::memory::DeviceTensor;

/// A value during a run: on the host, on the device, or on both.
#[derive(Clone, Debug, Default)]
pub(super) struct Value {
    host: Option<Literal>,
    device: Option<DeviceTensor>,
}

impl From<Literal> for Value {
    fn from(literal: Literal) -> Value {
        Value { host: Some(literal), device: None }
    }
}

impl From<DeviceTensor> for Value {
    fn from(tensor: DeviceTensor) -> Value {
        Value { host: None, device: Some(tensor) }
    }
}

impl Value {
    /// The value as the host has it; read back from the device if need be.
    pub fn literal(&mut self) -> Result<Literal> {
        if let Some(literal) = &self.host {
            return Ok(literal.clone());
        }
        let literal = self.device.as_ref().ok_or_else(not_there)?.literal()?;
        self.host = Some(literal.clone());
        Ok(literal)
    }

    /// The value on the device; copied there if need be.
    pub fn tensor(&mut self, gpu: &Arc<Gpu>) -> Result<DeviceTensor> {
        if let Some(tensor) = &self.device {
            return Ok(tensor.clone());
        }
        let tensor = DeviceTensor::of(gpu, self.host.as_ref().ok_or_else(not_there)?)?;
        self.device = Some(tensor.clone());
        Ok(tensor)
    }

    /// What the host has of a value that is not on the device.
    pub fn missing(&self) -> Option<&Literal> {
        self.host.as_ref().filter(|_| self.device.is_none())
    }

    /// Puts a copy of the value beside it that is on the device.
    pub fn bring(&mut self, tensor: DeviceTensor) {
        self.device = Some(tensor);
    }

    /// The value on the device, if it is there.
    pub fn on_device(&self) -> Option<&DeviceTensor> {
        self.device.as_ref()
    }

    /// Copies the value to a place of the device.
    pub fn write(&self, gpu: &Gpu, to: u64) -> Result<()> {
        match (&self.device, &self.host) {
            (Some(tensor), _) => gpu.copy(to, tensor.at(), tensor.byte_count()),
            (None, Some(literal)) => gpu.write(to, &literal.bytes()),
            (None, None) => Err(not_there()),
        }
    }

    /// Element type and sizes.
    pub fn like(&self) -> Result<(DType, &[usize])> {
        match (&self.host, &self.device) {
            (Some(literal), _) => Ok((literal.dtype(), literal.sizes())),
            (None, Some(tensor)) => Ok((tensor.dtype(), tensor.sizes())),
            (None, None) => Err(not_there()),
        }
    }
}

fn not_there() -> Error {
    Error::bug("a value is read, and is not there")
}
