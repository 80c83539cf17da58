//! Loops over time: a step that reads slices of outer tensors, carries a state and stacks what it returns.

use std::cell::RefCell;

use crate::error::Result;
use crate::graph::{Builder, Tensor};
use crate::ops::prim::Gather;
use crate::tensor::{DType, Dim, Shape, Symbol};

/// The inside of a loop over time. Outer tensors come in through [`Step::capture`].
#[derive(Debug)]
pub(super) struct Step<'r, 'b> {
    /// the graph of one step
    pub region: &'r Builder,
    /// the number of the step, an i64 scalar
    pub trip: Tensor<'r>,
    captures: RefCell<Vec<Tensor<'b>>>,
}

/// What a step returns.
#[derive(Debug)]
pub(super) struct Stepped<'r> {
    /// the state after the step
    pub state: Vec<Tensor<'r>>,
    /// the slices that are stacked along a new first axis
    pub slices: Vec<Tensor<'r>>,
}

impl<'r, 'b> Step<'r, 'b> {
    /// An outer tensor, seen from inside.
    pub fn capture(&self, outer: Tensor<'b>) -> Result<Tensor<'r>> {
        let ty = outer.ty()?;
        let mut captures = self.captures.borrow_mut();
        let inner = self.region.input(&format!("capture{}", captures.len()), ty.dtype, ty.shape);
        captures.push(outer);
        Ok(inner)
    }

    /// The slice of an outer tensor at a place of its first axis: `time` holds a place for every element of the slice
    /// (it broadcasts to the slice's shape).
    pub fn slice_at(&self, outer: Tensor<'b>, time: Tensor<'r>) -> Result<Tensor<'r>> {
        let inner = self.capture(outer)?;
        let shape = Shape::from(inner.shape()?.dims()[1..].to_vec());
        let map = std::iter::once(Symbol::Read(0).into()).chain((0..shape.rank()).map(Dim::axis)).collect();
        Ok(inner.gather(Gather { shape: shape.clone(), map }, &[time.expand(shape)]))
    }

    /// The slice of an outer tensor that has this step's number.
    pub fn slice(&self, outer: Tensor<'b>) -> Result<Tensor<'r>> {
        self.slice_at(outer, self.trip)
    }
}

/// Runs `step` `trips` times. Returns the states after the last step, then the stacks.
pub(super) fn over_time<'b>(
    builder: &'b Builder,
    name: &str,
    trips: &Dim,
    initial: &[Tensor<'b>],
    step: impl for<'r> FnOnce(&Step<'r, 'b>, &[Tensor<'r>]) -> Result<Stepped<'r>>,
) -> Result<Vec<Tensor<'b>>> {
    let region = builder.region(name);
    let trip = region.input("trip", DType::I64, Shape::scalar());
    let mut state = Vec::with_capacity(initial.len());
    for (k, tensor) in initial.iter().enumerate() {
        let ty = tensor.ty()?;
        state.push(region.input(&format!("state{k}"), ty.dtype, ty.shape));
    }
    let inside = Step { region: &region, trip, captures: RefCell::default() };
    let stepped = step(&inside, &state)?;
    region.output("go_on", region.int(DType::Bool, 1));
    for (k, (new, old)) in stepped.state.iter().zip(&state).enumerate() {
        region.output(&format!("state{k}"), new.with_shape(old.shape()?));
    }
    for (k, slice) in stepped.slices.iter().enumerate() {
        region.output(&format!("slice{k}"), *slice);
    }
    let captures = inside.captures.into_inner();
    let body = region.finish()?;
    builder.loop_(builder.size(trips), builder.int(DType::Bool, 1), initial, body, &captures)
}
