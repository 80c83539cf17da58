//! Operations as they are fed by hand: a name, tensors in and out, and as many numbers as are known.

use crate::analysis::scorecard::Bottleneck;
use crate::ops::prim::Class;
use crate::tensor::DType;

/// A tensor that an operation reads or writes. The name joins operations; its size need be given once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tensor {
    /// the name
    pub name: String,
    /// sizes of the axes, where they are known; the first is the batch
    pub shape: Option<Vec<usize>>,
    /// element type; f32 where nobody says
    pub dtype: Option<DType>,
    /// bytes, where no shape is given
    pub bytes: Option<f64>,
    /// whether its size stays as it is when the batch changes, as that of weights does; where it is not said: what nobody
    /// writes and a contraction reads as its second operand or later
    pub constant: Option<bool>,
}

impl Tensor {
    /// A tensor of which only the name is known here.
    pub fn named(name: impl Into<String>) -> Tensor {
        Tensor { name: name.into(), ..Tensor::default() }
    }

    /// A tensor of so many bytes.
    pub fn of_bytes(name: impl Into<String>, bytes: f64) -> Tensor {
        Tensor { bytes: Some(bytes), ..Tensor::named(name) }
    }

    /// A tensor with a shape.
    pub fn shaped(name: impl Into<String>, dtype: DType, shape: &[usize]) -> Tensor {
        Tensor { shape: Some(shape.to_vec()), dtype: Some(dtype), ..Tensor::named(name) }
    }

    /// The same tensor as a weight.
    pub fn constant(self) -> Tensor {
        Tensor { constant: Some(true), ..self }
    }
}

impl From<&str> for Tensor {
    fn from(name: &str) -> Tensor {
        Tensor::named(name)
    }
}

/// An operation. What is not said is derived where it follows from the rest, and otherwise assumed; the analysis lists its
/// assumptions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Operation {
    /// the name
    pub name: String,
    /// what it reads
    pub inputs: Vec<Tensor>,
    /// what it writes
    pub outputs: Vec<Tensor>,
    /// what it does with its elements
    pub class: Option<Class>,
    /// what its time goes to
    pub bottleneck: Option<Bottleneck>,
    /// arithmetic operations
    pub flops: Option<f64>,
    /// arithmetic operations for each byte, where their number is not given
    pub intensity: Option<f64>,
    /// registers of a thread, run by itself
    pub registers: Option<f64>,
    /// threads of its blocks, where they are fixed
    pub block: Option<usize>,
}

impl Operation {
    /// An operation that does nothing yet.
    pub fn new(name: impl Into<String>) -> Operation {
        Operation { name: name.into(), ..Operation::default() }
    }

    /// Adds something to read.
    pub fn reads(mut self, tensor: impl Into<Tensor>) -> Operation {
        self.inputs.push(tensor.into());
        self
    }

    /// Adds something to write.
    pub fn writes(mut self, tensor: impl Into<Tensor>) -> Operation {
        self.outputs.push(tensor.into());
        self
    }

    /// Says what it does with its elements.
    pub fn class(self, class: Class) -> Operation {
        Operation { class: Some(class), ..self }
    }

    /// Every element by itself.
    pub fn elementwise(self) -> Operation {
        self.class(Class::Map)
    }

    /// Its time goes to its bytes.
    pub fn memory_bound(self) -> Operation {
        Operation { bottleneck: Some(Bottleneck::Memory), ..self }
    }

    /// Its time goes to its operations.
    pub fn compute_bound(self) -> Operation {
        Operation { bottleneck: Some(Bottleneck::Compute), ..self }
    }

    /// Says how many arithmetic operations it does.
    pub fn flops(self, flops: f64) -> Operation {
        Operation { flops: Some(flops), ..self }
    }

    /// Says how many arithmetic operations it does for each byte.
    pub fn intensity(self, intensity: f64) -> Operation {
        Operation { intensity: Some(intensity), ..self }
    }

    /// Says how many registers a thread needs.
    pub fn registers(self, registers: f64) -> Operation {
        Operation { registers: Some(registers), ..self }
    }
}
