//! What an entry is drawn with: inputs by name and sizes, operators by name.

use std::cell::RefCell;

use indexmap::IndexMap;

use crate::error::{Error, Result};
use crate::graph::{Builder, Graph, Origin, Tensor};
use crate::tensor::{DType, Dim, Shape};

/// A graph under construction whose nodes belong to named operators.
pub(super) struct Sketch {
    builder: Builder,
    dtype: DType,
    used: RefCell<IndexMap<String, usize>>,
}

impl Sketch {
    pub fn new(name: &str, dtype: DType) -> Result<Sketch> {
        if !dtype.is_float() {
            return Err(Error::invalid(format!("the gallery is made for float types, not for {dtype}")));
        }
        Ok(Sketch { builder: Builder::new(name), dtype, used: RefCell::default() })
    }

    pub fn finish(self) -> Result<Graph> {
        self.builder.finish()
    }

    /// An input of the chosen type with these sizes.
    pub fn input(&self, name: &str, sizes: &[&str]) -> Tensor<'_> {
        self.typed_input(name, self.dtype, sizes)
    }

    /// An input of a fixed type.
    pub fn typed_input(&self, name: &str, dtype: DType, sizes: &[&str]) -> Tensor<'_> {
        self.builder.input(name, dtype, sizes.iter().map(|s| Dim::named(s)).collect::<Shape>())
    }

    /// Names a result.
    pub fn output(&self, name: &str, value: Tensor<'_>) {
        self.builder.output(name, value);
    }

    /// What `body` computes, as one operator called `op`.
    pub fn op<'s>(&'s self, op: &str, body: impl FnOnce(&'s Builder) -> Tensor<'s>) -> Tensor<'s> {
        let mut used = self.used.borrow_mut();
        let count = used.entry(op.to_lowercase()).or_insert(0);
        let name = if *count == 0 { op.to_lowercase() } else { format!("{}_{count}", op.to_lowercase()) };
        *count += 1;
        self.builder.set_origin(Some(Origin { op: op.into(), name: name.as_str().into() }));
        let result = body(&self.builder);
        self.builder.set_origin(None);
        result
    }
}
