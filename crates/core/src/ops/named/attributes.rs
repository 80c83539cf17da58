//! Attributes of a call, free of any file format.

use indexmap::IndexMap;

use crate::tensor::Literal;

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    /// an integer
    Int(i64),
    /// a float
    Float(f64),
    /// text
    Str(String),
    /// integers
    Ints(Vec<i64>),
    /// floats
    Floats(Vec<f64>),
    /// texts
    Strs(Vec<String>),
    /// a tensor
    Tensor(Literal),
}

impl Attribute {
    /// The kind in words, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Attribute::Int(_) => "an integer",
            Attribute::Float(_) => "a float",
            Attribute::Str(_) => "a string",
            Attribute::Ints(_) => "integers",
            Attribute::Floats(_) => "floats",
            Attribute::Strs(_) => "strings",
            Attribute::Tensor(_) => "a tensor",
        }
    }
}

/// Attributes by name, in the order of the model.
pub type Attributes = IndexMap<String, Attribute>;
