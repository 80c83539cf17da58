//! What a name of a model stands for.

use std::fmt;

use fuseline::error::{Error, Result};
use fuseline::graph::{Builder, Tensor, Value};
use fuseline::tensor::DType;

use super::signature::part_name;

/// A tensor of numbers or of texts, a sequence, or nothing. An optional value that is there is the value itself, and one that is not there
/// is nothing, just as an operand that is left out.
///
/// How many elements a sequence has and whether a value is there is known while a model is imported: graphs see tensors only. Texts
/// are bytes there, with one axis more.
#[derive(Clone, Debug)]
pub(super) enum Datum<T> {
    Tensor(T),
    Text(T),
    Sequence(Sequence<T>),
    Nothing,
}

/// Tensors of one element type, in order.
#[derive(Clone, Debug)]
pub(super) struct Sequence<T> {
    pub kind: Kind,
    pub elements: Vec<T>,
}

/// What the elements of a tensor are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Number(DType),
    Text,
}

impl Kind {
    /// A tensor of this kind.
    pub fn wrap<T>(self, tensor: T) -> Datum<T> {
        match self {
            Kind::Number(_) => Datum::Tensor(tensor),
            Kind::Text => Datum::Text(tensor),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Number(dtype) => dtype.fmt(f),
            Kind::Text => f.write_str("string"),
        }
    }
}

/// What a node takes and makes.
pub(super) type Operand<'b> = Datum<Tensor<'b>>;

impl<T> Datum<T> {
    /// The same with other tensors.
    pub fn map<U>(&self, mut change: impl FnMut(&T) -> U) -> Datum<U> {
        match self {
            Datum::Tensor(tensor) => Datum::Tensor(change(tensor)),
            Datum::Text(tensor) => Datum::Text(change(tensor)),
            Datum::Sequence(Sequence { kind, elements }) => {
                Datum::Sequence(Sequence { kind: *kind, elements: elements.iter().map(change).collect() })
            }
            Datum::Nothing => Datum::Nothing,
        }
    }

    /// The tensors that it is made of.
    pub fn tensors(&self) -> &[T] {
        match self {
            Datum::Tensor(tensor) | Datum::Text(tensor) => std::slice::from_ref(tensor),
            Datum::Sequence(sequence) => &sequence.elements,
            Datum::Nothing => &[],
        }
    }

    /// The tensors with the names that they have outside: that of the whole, and for elements of a sequence their place behind it.
    pub fn named(&self, name: &str) -> Vec<(String, &T)> {
        match self {
            Datum::Tensor(tensor) | Datum::Text(tensor) => vec![(name.to_string(), tensor)],
            Datum::Sequence(Sequence { elements, .. }) => {
                elements.iter().enumerate().map(|(k, element)| (part_name(name, k), element)).collect()
            }
            Datum::Nothing => Vec::new(),
        }
    }

    /// What it is, in words.
    fn what(&self) -> &'static str {
        match self {
            Datum::Tensor(_) => "a tensor",
            Datum::Text(_) => "a tensor of strings",
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
            (Datum::Tensor(_), Datum::Tensor(_))
            | (Datum::Text(_), Datum::Text(_))
            | (Datum::Nothing, Datum::Nothing) => true,
            (Datum::Sequence(a), Datum::Sequence(b)) => a.kind == b.kind && a.elements.len() == b.elements.len(),
            _ => false,
        }
    }
}

impl<T: Copy> Datum<T> {
    /// The tensor of numbers that it is; an error where it is something else.
    pub fn tensor(&self) -> Result<T> {
        match self {
            Datum::Tensor(tensor) => Ok(*tensor),
            Datum::Text(_) => Err(Error::unsupported("strings in this place")),
            other => Err(Error::invalid(format!("{} stands where a tensor is wanted", other.what()))),
        }
    }

    /// The sequence that it is; an error where it is something else.
    pub fn sequence(&self) -> Result<&Sequence<T>> {
        match self {
            Datum::Sequence(sequence) => Ok(sequence),
            other => Err(Error::invalid(format!("{} stands where a sequence is wanted", other.what()))),
        }
    }

    /// The tensor that it is, or none where nothing is given.
    pub fn optional(&self) -> Result<Option<T>> {
        if let Datum::Nothing = self { Ok(None) } else { self.tensor().map(Some) }
    }
}

impl<'b> Datum<Tensor<'b>> {
    /// The tensor of numbers or texts that it is, and which of them.
    pub fn element(&self) -> Result<(Kind, Tensor<'b>)> {
        match self {
            Datum::Text(text) => Ok((Kind::Text, *text)),
            other => other.tensor().and_then(|tensor| Ok((Kind::Number(tensor.dtype()?), tensor))),
        }
    }

    pub fn is_poisoned(&self) -> bool {
        self.tensors().iter().any(|tensor| tensor.is_poisoned())
    }

    pub fn values(&self) -> Datum<Value> {
        self.map(|tensor| tensor.value())
    }

    /// The same tensors as a longer-living handle on their builder gives them.
    pub fn of<'l>(&self, builder: &'l Builder) -> Operand<'l> {
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
