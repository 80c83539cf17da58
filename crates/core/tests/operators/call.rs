//! Calling an operator by its name, and evaluating what it becomes.

use std::sync::Arc;

use fuseline::error::Result;
use fuseline::graph::{Builder, Tensor};
use fuseline::ops::named::{self, Attribute, Attributes, Call};
use fuseline::reference::{Options, evaluate};
use fuseline::tensor::{DType, Literal};

/// A call under construction.
pub struct Op<'b> {
    name: &'static str,
    inputs: Vec<Option<Tensor<'b>>>,
    attributes: Attributes,
    outputs: usize,
    opset: u32,
}

/// A call of the newest version with one result.
pub fn op<'b>(name: &'static str, inputs: &[Tensor<'b>]) -> Op<'b> {
    let inputs = inputs.iter().copied().map(Some).collect();
    Op { name, inputs, attributes: Attributes::new(), outputs: 1, opset: 26 }
}

impl<'b> Op<'b> {
    pub fn with(mut self, name: &str, value: Attribute) -> Op<'b> {
        self.attributes.insert(name.to_string(), value);
        self
    }

    /// One more operand, which may be left out.
    pub fn and(mut self, input: Option<Tensor<'b>>) -> Op<'b> {
        self.inputs.push(input);
        self
    }

    pub fn opset(mut self, opset: u32) -> Op<'b> {
        self.opset = opset;
        self
    }

    pub fn outputs(mut self, outputs: usize) -> Op<'b> {
        self.outputs = outputs;
        self
    }

    pub fn all(self, builder: &'b Builder) -> Result<Vec<Tensor<'b>>> {
        let row = named::find("", self.name).expect("the operator has a row");
        let (inputs, attributes) = (&self.inputs, &self.attributes);
        (row.expand)(&Call { builder, op: row, inputs, attributes, outputs: self.outputs, opset: self.opset })
    }

    pub fn one(self, builder: &'b Builder) -> Tensor<'b> {
        let results = self.all(builder);
        builder.settle(results.map(|all| all[0]))
    }
}

/// The outputs of a graph for its inputs.
pub fn run(builder: Builder, inputs: &[(&str, Literal)]) -> Result<Vec<Literal>> {
    let graph = builder.finish()?;
    let inputs = inputs.iter().map(|(n, l)| (Arc::from(*n), l.clone())).collect();
    evaluate(&graph, &inputs, &Options::default())
}

/// The numbers 0, 1, 2, … as f32.
pub fn counting(sizes: &[usize]) -> Literal {
    let values: Vec<f64> = (0..sizes.iter().product::<usize>()).map(|k| k as f64).collect();
    Literal::from_f64s(DType::F32, sizes.to_vec(), &values).unwrap()
}
