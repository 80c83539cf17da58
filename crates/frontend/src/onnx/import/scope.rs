//! Which name stands for which value.

use std::cell::RefCell;
use std::collections::HashMap;

use fuseline::error::{Error, Result};
use fuseline::graph::{Builder, Known, Tensor, Value};
use fuseline::tensor::{Dim, Shape};

use super::datum::{Datum, Operand};

/// The names of one graph. A region sees the names around it, either directly (same builder) or because they were
/// captured beforehand; a function sees only its own.
pub(super) struct Scope<'s> {
    builder: &'s Builder,
    names: RefCell<HashMap<String, Datum<Value>>>,
    around: Option<&'s Scope<'s>>,
}

impl<'s> Scope<'s> {
    /// The scope of a graph or function that sees nothing around it.
    pub fn root(builder: &'s Builder) -> Scope<'s> {
        Scope { builder, names: RefCell::default(), around: None }
    }

    /// The scope of a region whose nodes go into the graph around it.
    pub fn inside(around: &'s Scope<'s>) -> Scope<'s> {
        Scope { builder: around.builder, names: RefCell::default(), around: Some(around) }
    }

    pub fn builder(&self) -> &'s Builder {
        self.builder
    }

    /// Gives a value its name; a name is given once.
    pub fn define<'v>(&self, name: &str, value: impl Into<Operand<'v>>) -> Result<()> {
        if self.names.borrow_mut().insert(name.to_string(), value.into().values()).is_some() {
            return Err(Error::invalid(format!("two values are called \"{name}\"")));
        }
        Ok(())
    }

    /// The value of a name.
    pub fn lookup(&self, name: &str) -> Result<Operand<'s>> {
        if let Some(value) = self.names.borrow().get(name) {
            return Ok(value.map(|value| self.builder.tensor(*value)));
        }
        match self.around {
            Some(around) => Ok(around.lookup(name)?.of(self.builder)),
            None => Err(Error::invalid(format!("no value is called \"{name}\""))),
        }
    }

    /// Makes a value that a region reads from outside visible inside it. What is known before run time is rebuilt there;
    /// for every other tensor the region gets an input, and the outer tensor is returned.
    pub fn capture_one<'o>(&self, name: &str, outer: &Scope<'o>) -> Result<Vec<Tensor<'o>>> {
        let value = outer.lookup(name)?;
        let mut captured = Vec::new();
        let mut inside = Vec::new();
        for (name, tensor) in value.named(name) {
            inside.push(if tensor.is_poisoned() {
                self.builder.poison()
            } else if let Some(known) = rebuild(*tensor, self.builder)? {
                known
            } else {
                let ty = tensor.ty()?;
                captured.push(*tensor);
                self.builder.input(&format!("captured:{name}"), ty.dtype, ty.shape)
            });
        }
        let mut inside = inside.into_iter();
        self.define(name, value.map(|_| inside.next().expect("one for every tensor")))?;
        Ok(captured)
    }
}

/// The same constant or sizes in another graph.
fn rebuild<'b>(value: Tensor<'_>, inside: &'b Builder) -> Result<Option<Tensor<'b>>> {
    let outer = value.builder();
    if let Some(literal) = outer.constant_of(value) {
        return Ok(Some(inside.constant(literal)));
    }
    let ty = value.ty()?;
    let Some(contents) = outer.contents(value).filter(|_| ty.dtype.is_int()) else { return Ok(None) };
    let dims: Option<Vec<Dim>> =
        contents.iter().map(|k| if let Known::Int(dim) = k { Some(dim.clone()) } else { None }).collect();
    let sizes: Option<Shape> = ty.shape.as_ints().map(|sizes| sizes.into_iter().collect());
    Ok(dims.zip(sizes).map(|(dims, sizes)| inside.sizes(&dims).cast(ty.dtype).reshape(sizes)))
}
