//! What a name of a model stands for.

use fuseline::error::{Error, Result};
use fuseline::graph::{Builder, Tensor, Value};
use fuseline::tensor::DType;

use super::signature::part_name;

/// A tensor, a sequence, or nothing. An optional value that is there is the value itself, and one that is not there is nothing,
/// just as an operand that is left out.
///
/// How many elements a sequence has and whether a value is there is known while a model is imported: graphs see tensors only.
#[derive(Clone, Debug)]
pub(super) enum Datum<T> {
    Tensor(T),
    Sequence(Sequence<T>),
    Nothing,
}

/// Tensors of one element type, in order.
#[derive(Clone, Debug)]
pub(super) struct Sequence<T> {
    pub dtype: DType,
    pub elements: Vec<T>,
}

/// What a node takes and makes.
pub(super) type Operand<'b> = Datum<Tensor<'b>>;

impl<T> Datum<T> {
    /// The same with other tensors.
    pub fn map<U>(&self, mut change: impl FnMut(&T) -> U) -> Datum<U> {
        match self {
            Datum::Tensor(tensor) => Datum::Tensor(change(tensor)),
            Datum::Sequence(Sequence { dtype, elements }) => {
                Datum::Sequence(Sequence { dtype: *dtype, elements: elements.iter().map(change).collect() })
            }
            Datum::Nothing => Datum::Nothing,
        }
    }

    /// The tensors that it is made of.
    pub fn tensors(&self) -> &[T] {
        match self {
            Datum::Tensor(tensor) => std::slice::from_ref(tensor),
            Datum::Sequence(sequence) => &sequence.elements,
            Datum::Nothing => &[],
        }
    }

    /// The tensors with the names that they have outside: that of the whole, and for elements of a sequence their place behind it.
    pub fn named(&self, name: &str) -> Vec<(String, &T)> {
        match self {
            Datum::Tensor(tensor) => vec![(name.to_string(), tensor)],
            Datum::Sequence(Sequence { elements, .. }) => {
                elements.iter().enumerate().map(|(k, element)| (part_name(name, k), element)).collect()
            }
            Datum::Nothing => Vec::new(),
        }
    }

    /// What it is, in words.
    fn kind(&self) -> &'static str {
        match self {
            Datum::Tensor(_) => "a tensor",
            Datum::Sequence(_) => "a sequence",
            Datum::Nothing => "nothing",
        }
    }

    pub fn is_tensor(&self) -> bool {
        matches!(self, Datum::Tensor(_))
    }

    /// Whether both are made of as many tensors in the same way.
    pub fn is_like<U>(&self, other: &Datum<U>) -> bool {
        match (self, other) {
            (Datum::Tensor(_), Datum::Tensor(_)) | (Datum::Nothing, Datum::Nothing) => true,
            (Datum::Sequence(a), Datum::Sequence(b)) => a.dtype == b.dtype && a.elements.len() == b.elements.len(),
            _ => false,
        }
    }
}

impl<T: Copy> Datum<T> {
    /// The tensor that it is; an error where it is something else.
    pub fn tensor(&self) -> Result<T> {
        match self {
            Datum::Tensor(tensor) => Ok(*tensor),
            other => Err(Error::invalid(format!("{} stands where a tensor is wanted", other.kind()))),
        }
    }

    /// The sequence that it is; an error where it is something else.
    pub fn sequence(&self) -> Result<&Sequence<T>> {
        match self {
            Datum::Sequence(sequence) => Ok(sequence),
            other => Err(Error::invalid(format!("{} stands where a sequence is wanted", other.kind()))),
        }
    }

    /// The tensor that it is, or none where nothing is given.
    pub fn optional(&self) -> Result<Option<T>> {
        if let Datum::Nothing = self { Ok(None) } else { self.tensor().map(Some) }
    }
}

impl Datum<Tensor<'_>> {
    pub fn is_poisoned(&self) -> bool {
        self.tensors().iter().any(|tensor| tensor.is_poisoned())
    }

    pub fn values(&self) -> Datum<Value> {
        self.map(|tensor| tensor.value())
    }

    /// The same tensors as a longer-living handle on their builder gives them.
    pub fn of<'b>(&self, builder: &'b Builder) -> Operand<'b> {
        self.map(|tensor| builder.tensor(tensor.value()))
    }
}

impl<'b> From<Tensor<'b>> for Operand<'b> {
    fn from(tensor: Tensor<'b>) -> Operand<'b> {
        Datum::Tensor(tensor)
    }
}

/// The tensors that operands are; an error where one is something else.
pub(super) fn tensors<T: Copy>(operands: &[Datum<T>]) -> Result<Vec<T>> {
    operands.iter().map(Datum::tensor).collect()
}

/// Operands of which some may be left out.
pub(super) fn optional_tensors<T: Copy>(operands: &[Datum<T>]) -> Result<Vec<Option<T>>> {
    let numbered = operands.iter().enumerate();
    numbered.map(|(k, operand)| operand.optional().map_err(|e| e.at(format!("operand {k}")))).collect()
}
