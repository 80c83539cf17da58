//! One use of a named operator: its operands and attributes, with questions that answer in errors a user understands.

use super::{Attribute, Attributes, NamedOp};
use crate::error::{Error, Result};
use crate::graph::{Builder, Tensor};
use crate::tensor::{DType, Dim, Literal};

/// What an expansion gets.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a, 'b> {
    /// where the primitives go
    pub builder: &'b Builder,
    /// the row
    pub op: &'static NamedOp,
    /// operands in order; `None` where one was left out
    pub inputs: &'a [Option<Tensor<'b>>],
    /// attributes by name
    pub attributes: &'a Attributes,
    /// number of results that are used (trailing ones may be left out)
    pub outputs: usize,
    /// the version of the operator set that the model names
    pub opset: u32,
}

impl<'a, 'b> Call<'a, 'b> {
    /// Operand `k`, which must be there.
    pub fn input(&self, k: usize) -> Result<Tensor<'b>> {
        let given = self.optional(k);
        let given = given.ok_or_else(|| Error::invalid(format!("operand {k} of {} is missing", self.op.name)))?;
        given.ty()?; // a poisoned operand stops here, with its error
        Ok(given)
    }

    /// Operand `k`, if it is there.
    pub fn optional(&self, k: usize) -> Option<Tensor<'b>> {
        self.inputs.get(k).copied().flatten()
    }

    /// The operands that are there.
    pub fn present(&self) -> Result<Vec<Tensor<'b>>> {
        (0..self.inputs.len()).filter(|k| self.inputs[*k].is_some()).map(|k| self.input(k)).collect()
    }

    /// The value of operand `k`, which must be known before run time; `None` where it was left out.
    pub fn constant(&self, k: usize, what: &str) -> Result<Option<Literal>> {
        match self.optional(k) {
            Some(tensor) => self.builder.require_constant(tensor, what).map(Some),
            None => Ok(None),
        }
    }

    /// Operand `k` as integers known before run time; `None` where it was left out.
    pub fn constant_ints(&self, k: usize, what: &str) -> Result<Option<Vec<i64>>> {
        Ok(self.constant(k, what)?.map(|literal| literal.to_ints()))
    }

    /// Integers that older versions give as an attribute and newer ones as operand `k`.
    pub fn ints_or_input(&self, name: &str, k: usize) -> Result<Option<Vec<i64>>> {
        match self.ints(name)? {
            Some(given) => Ok(Some(given.to_vec())),
            None => self.constant_ints(k, name),
        }
    }

    /// Operand `k` as sizes; those not known before run time become value symbols.
    pub fn dims(&self, k: usize, what: &str) -> Result<Vec<Dim>> {
        self.builder.dims_of(self.input(k)?, what)
    }

    fn attribute(&self, name: &str) -> Result<Option<&'a Attribute>> {
        if !self.op.attributes.contains(&name) {
            return Err(Error::bug(format!("the row of {} does not declare its attribute {name}", self.op.name)));
        }
        Ok(self.attributes.get(name))
    }

    fn mistyped<T>(&self, name: &str, wanted: &str, found: &Attribute) -> Result<T> {
        Err(Error::invalid(format!("attribute {name} of {} must be {wanted}, it is {}", self.op.name, found.kind())))
    }

    /// An integer attribute.
    pub fn int(&self, name: &str) -> Result<Option<i64>> {
        match self.attribute(name)? {
            None => Ok(None),
            Some(Attribute::Int(n)) => Ok(Some(*n)),
            Some(other) => self.mistyped(name, "an integer", other),
        }
    }

    /// An integer attribute with its default.
    pub fn int_or(&self, name: &str, default: i64) -> Result<i64> {
        Ok(self.int(name)?.unwrap_or(default))
    }

    /// An integer attribute that is read as a truth value.
    pub fn flag(&self, name: &str, default: bool) -> Result<bool> {
        Ok(self.int(name)?.map_or(default, |n| n != 0))
    }

    /// A float attribute; an integer in its place is taken for the float.
    pub fn float(&self, name: &str) -> Result<Option<f64>> {
        match self.attribute(name)? {
            None => Ok(None),
            Some(Attribute::Float(x)) => Ok(Some(*x)),
            Some(Attribute::Int(n)) => Ok(Some(*n as f64)),
            Some(other) => self.mistyped(name, "a float", other),
        }
    }

    /// A float attribute with its default, which is an f32 as attributes are.
    pub fn float_or(&self, name: &str, default: f32) -> Result<f64> {
        Ok(self.float(name)?.unwrap_or(f64::from(default)))
    }

    /// A list of integers.
    pub fn ints(&self, name: &str) -> Result<Option<&'a [i64]>> {
        match self.attribute(name)? {
            None => Ok(None),
            Some(Attribute::Ints(list)) => Ok(Some(list)),
            Some(other) => self.mistyped(name, "integers", other),
        }
    }

    /// A list of floats.
    pub fn floats(&self, name: &str) -> Result<Option<&'a [f64]>> {
        match self.attribute(name)? {
            None => Ok(None),
            Some(Attribute::Floats(list)) => Ok(Some(list)),
            Some(other) => self.mistyped(name, "floats", other),
        }
    }

    /// A text attribute with its default.
    pub fn str_or(&self, name: &str, default: &'a str) -> Result<&'a str> {
        match self.attribute(name)? {
            None => Ok(default),
            Some(Attribute::Str(text)) => Ok(text),
            Some(other) => self.mistyped(name, "a string", other),
        }
    }

    /// A list of texts.
    pub fn strs(&self, name: &str) -> Result<Option<&'a [String]>> {
        match self.attribute(name)? {
            None => Ok(None),
            Some(Attribute::Strs(list)) => Ok(Some(list)),
            Some(other) => self.mistyped(name, "strings", other),
        }
    }

    /// A tensor attribute.
    pub fn tensor(&self, name: &str) -> Result<Option<&'a Literal>> {
        match self.attribute(name)? {
            None => Ok(None),
            Some(Attribute::Tensor(literal)) => Ok(Some(literal)),
            Some(other) => self.mistyped(name, "a tensor", other),
        }
    }

    /// The refusal of a value of an attribute that is right but not supported yet.
    pub fn unsupported(&self, name: &str, value: impl std::fmt::Display) -> Error {
        Error::unsupported(format!("attribute {name} = {value} of {}", self.op.name))
    }

    /// The element type named by an integer attribute in ONNX's numbering; the front end gives it as text.
    pub fn dtype(&self, name: &str) -> Result<Option<DType>> {
        match self.attribute(name)? {
            None => Ok(None),
            Some(Attribute::Str(text)) => DType::from_name(text).map(Some).ok_or_else(|| self.unsupported(name, text)),
            Some(other) => self.mistyped(name, "an element type", other),
        }
    }
}
