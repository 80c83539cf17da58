//! What an entry is drawn with: inputs by name and sizes, operators of table 3 by name.

use std::cell::RefCell;

use indexmap::IndexMap;

use crate::error::{Error, Result};
use crate::graph::{Builder, Graph, Origin, Tensor};
use crate::ops::named::{self, Attribute, Attributes, Call};
use crate::tensor::{DType, Dim, Literal, Shape};

/// The version of the standard operator set that the gallery is written in.
const OPSET: u32 = 24;

/// A graph under construction whose nodes belong to named operators.
pub(super) struct Sketch {
    builder: Builder,
    dtype: DType,
    /// how often a name was used
    names: RefCell<IndexMap<String, usize>>,
}

impl Sketch {
    pub fn new(name: &str, dtype: DType) -> Result<Sketch> {
        if !dtype.is_float() {
            return Err(Error::invalid(format!("the gallery is made for float types, not for {dtype}")));
        }
        Ok(Sketch { builder: Builder::new(name), dtype, names: RefCell::default() })
    }

    pub fn finish(self) -> Result<Graph> {
        self.builder.finish()
    }

    /// An input of the chosen type; sizes are names or numbers.
    pub fn input(&self, name: &str, sizes: &[&str]) -> Tensor<'_> {
        self.typed_input(name, self.dtype, sizes)
    }

    /// An input of a fixed type.
    pub fn typed_input(&self, name: &str, dtype: DType, sizes: &[&str]) -> Tensor<'_> {
        let dims = sizes.iter().map(|size| size.parse().map_or_else(|_| Dim::named(size), Dim::int));
        self.builder.input(name, dtype, dims.collect::<Shape>())
    }

    /// Names a result.
    pub fn output(&self, name: &str, value: Tensor<'_>) {
        self.builder.output(name, value);
    }

    /// A constant scalar of the chosen type.
    pub fn number(&self, x: f64) -> Tensor<'_> {
        self.builder.scalar(self.dtype, x)
    }

    /// A constant tensor.
    pub fn constant(&self, literal: Literal) -> Tensor<'_> {
        self.builder.constant(literal)
    }

    /// A constant vector of integers.
    pub fn ints(&self, values: &[i64]) -> Tensor<'_> {
        self.builder.constant(Literal::i64s(values))
    }

    /// A constant truth value.
    pub fn truth(&self, holds: bool) -> Tensor<'_> {
        self.builder.int(DType::Bool, i64::from(holds))
    }

    /// The first result of an operator without attributes.
    pub fn op<'s>(&'s self, op: &str, inputs: &[Tensor<'s>]) -> Tensor<'s> {
        self.op_with(op, inputs, &[])
    }

    /// The first result of an operator.
    pub fn op_with<'s>(&'s self, op: &str, inputs: &[Tensor<'s>], attributes: &[(&str, Attribute)]) -> Tensor<'s> {
        let results = self.part(op, || self.call(op, inputs, attributes));
        self.builder.settle(results.map(|results| results[0]))
    }

    /// What `body` computes, as one operator of the user.
    pub fn part<R>(&self, op: &str, body: impl FnOnce() -> R) -> R {
        let mut names = self.names.borrow_mut();
        let base = op.to_lowercase();
        let count = names.entry(base.clone()).or_insert(0);
        let name = if *count == 0 { base } else { format!("{base}_{count}") };
        *count += 1;
        drop(names);
        self.builder.set_origin(Some(Origin { op: op.into(), name: name.as_str().into() }));
        let result = body();
        self.builder.set_origin(None);
        result
    }

    fn call<'s>(
        &'s self,
        op: &str,
        inputs: &[Tensor<'s>],
        attributes: &[(&str, Attribute)],
    ) -> Result<Vec<Tensor<'s>>> {
        let row = named::find("", op).ok_or_else(|| Error::bug(format!("the gallery uses {op}, which has no row")))?;
        let inputs: Vec<Option<Tensor<'s>>> = inputs.iter().copied().map(Some).collect();
        let attributes: Attributes = attributes.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
        let call = Call {
            builder: &self.builder,
            op: row,
            inputs: &inputs,
            attributes: &attributes,
            outputs: 1,
            opset: OPSET,
        };
        (row.expand)(&call)
    }

    /// `x · w + b` as a MatMul and an Add.
    pub fn linear<'s>(&'s self, x: Tensor<'s>, w: Tensor<'s>, b: Tensor<'s>) -> Tensor<'s> {
        self.op("Add", &[self.op("MatMul", &[x, w]), b])
    }

    /// `x · sigmoid(x)` as exporters write it.
    pub fn silu<'s>(&'s self, x: Tensor<'s>) -> Tensor<'s> {
        self.op("Mul", &[x, self.op("Sigmoid", &[x])])
    }

    /// Gelu by the hyperbolic tangent.
    pub fn fast_gelu<'s>(&'s self, x: Tensor<'s>) -> Tensor<'s> {
        self.op_with("Gelu", &[x], &[("approximate", Attribute::Str("tanh".into()))])
    }

    /// Dropout while training, one element in ten.
    pub fn dropout<'s>(&'s self, x: Tensor<'s>) -> Tensor<'s> {
        self.op("Dropout", &[x, self.number(0.1), self.truth(true)])
    }
}
