//! Recurrent layers as loops over time.
//!
//! What does not depend on the state stands before the loop: the product of the whole input with the weights of all
//! gates is one contraction, biases included. All directions run in one loop; states have the shape
//! `[directions, batch, hidden]`. A backward direction walks each row from its own end, so padding is never read before
//! data; steps behind the end of a row leave its state alone and yield zeros.

mod activation;
mod cell;
mod weights;

pub(super) use activation::activated;

use super::time_loop::{Step, Stepped, over_time};
use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::{Builder, Tensor};
use crate::ops::prim::Gather;
use crate::tensor::{DType, Dim, Shape, Symbol};
use weights::Weights;

pub(super) static OPS: &[NamedOp] = &[
    NamedOp::standard(
        "LSTM",
        1,
        &[
            "activations",
            "activation_alpha",
            "activation_beta",
            "clip",
            "direction",
            "hidden_size",
            "layout",
            "output_sequence",
            "input_forget",
        ],
        "a long short-term memory over a sequence: a loop, its input products hoisted",
        |call| cell::Lstm::new(call).and_then(|cell| run(call, &cell)),
    ),
    NamedOp::standard(
        "GRU",
        1,
        &[
            "activations",
            "activation_alpha",
            "activation_beta",
            "clip",
            "direction",
            "hidden_size",
            "layout",
            "output_sequence",
            "linear_before_reset",
        ],
        "gated recurrent units over a sequence: a loop, its input products hoisted",
        |call| cell::Gru::new(call).and_then(|cell| run(call, &cell)),
    ),
    NamedOp::standard(
        "RNN",
        1,
        &[
            "activations",
            "activation_alpha",
            "activation_beta",
            "clip",
            "direction",
            "hidden_size",
            "layout",
            "output_sequence",
        ],
        "a simple recurrent layer over a sequence: a loop, its input products hoisted",
        |call| cell::Rnn::new(call).and_then(|cell| run(call, &cell)),
    ),
    NamedOp {
        name: "DynamicQuantizeLSTM",
        domain: "com.microsoft",
        since: 1,
        attributes: &[
            "activations",
            "activation_alpha",
            "activation_beta",
            "clip",
            "direction",
            "hidden_size",
            "layout",
            "input_forget",
        ],
        doc: "an LSTM with 8-bit weights, its input and its state quantised by their own ranges in every product",
        expand: |call| cell::Lstm::new(call).and_then(|cell| run(call, &cell)),
    },
];

/// What tells the recurrent operators apart.
trait Cell {
    /// the number of gates, whose weights are stacked
    const GATES: i64;
    /// the operands that hold initial states, hidden state first
    const STATES: &'static [usize];

    /// The recurrent biases of these gates stay inside of the loop; all others are added to the input before it.
    fn inner_bias(&self) -> std::ops::Range<i64> {
        0..0
    }

    /// The next state, hidden state first. `x` holds the input's share of the gates, `[directions, batch, gates·hidden]`.
    fn step<'r, 'b>(
        &self,
        layer: &Layer<'_, 'b>,
        inside: &Step<'r, 'b>,
        x: Tensor<'r>,
        state: &[Tensor<'r>],
    ) -> Result<Vec<Tensor<'r>>>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Reverse,
    Bidirectional,
}

impl Direction {
    fn of(call: &Call<'_, '_>) -> Result<Direction> {
        match call.str_or("direction", "forward")?.to_ascii_lowercase().as_str() {
            "forward" => Ok(Direction::Forward),
            "reverse" => Ok(Direction::Reverse),
            "bidirectional" => Ok(Direction::Bidirectional),
            other => Err(Error::invalid(format!("attribute direction = \"{other}\" of {}", call.op.name))),
        }
    }

    fn count(self) -> usize {
        if self == Direction::Bidirectional { 2 } else { 1 }
    }
}

/// The operands of a recurrent operator, time first.
#[derive(Debug)]
struct Layer<'a, 'b> {
    call: &'a Call<'a, 'b>,
    direction: Direction,
    /// whether batch comes before time in operands and results
    batch_first: bool,
    /// `[time, batch, features]`
    x: Tensor<'b>,
    /// `[directions, gates·hidden, features]`
    weights: Weights<'b>,
    /// `[directions, gates·hidden, hidden]`
    recurrent: Weights<'b>,
    /// `[directions, gates·hidden]` of the input and of the state
    biases: Option<(Tensor<'b>, Tensor<'b>)>,
    /// the length of each row of the batch, i64
    lengths: Option<Tensor<'b>>,
    time: Dim,
    batch: Dim,
    hidden: Dim,
    dtype: DType,
}

impl<'a, 'b> Layer<'a, 'b> {
    fn of(call: &'a Call<'a, 'b>, gates: i64) -> Result<Layer<'a, 'b>> {
        let direction = Direction::of(call)?;
        let batch_first = call.int_or("layout", 0)? == 1;
        let x = call.input(0)?;
        if x.rank()? != 3 {
            return Err(Error::invalid(format!("{} of an input of shape {}", call.op.name, x.shape()?)));
        }
        let x = if batch_first { x.permute(&[1, 0, 2]) } else { x };
        let (time, batch, dtype) = (x.dim(0)?, x.dim(1)?, x.dtype()?);
        let (weights, recurrent) = (Weights::of(call, 1, 8)?, Weights::of(call, 2, 10)?);
        let hidden = match call.int("hidden_size")?.filter(|n| *n > 0) {
            Some(given) => Dim::int(given),
            None => recurrent.values.dim(2)?,
        };
        let (directions, rows) = (Dim::from(direction.count()), &hidden * gates);
        let weights = weights.shaped(&[&directions, &rows, &x.dim(2)?], "weights")?;
        let recurrent = recurrent.shaped(&[&directions, &rows, &hidden], "recurrence weights")?;
        let biases = match call.optional(3) {
            None => None,
            Some(bias) => {
                let bias = shaped(bias, &[&directions, &(&rows * 2)], "biases")?;
                Some((bias.slice(1, 0usize, rows.clone(), 1), bias.slice(1, rows.clone(), rows.clone(), 1)))
            }
        };
        let lengths = match call.optional(4) {
            Some(lengths) => Some(shaped(lengths, &[&batch], "sequence_lens")?.cast(DType::I64)),
            None => None,
        };
        Ok(Layer { call, direction, batch_first, x, weights, recurrent, biases, lengths, time, batch, hidden, dtype })
    }

    fn builder(&self) -> &'b Builder {
        self.call.builder
    }

    fn state_shape(&self) -> Shape {
        vec![self.direction.count().into(), self.batch.clone(), self.hidden.clone()].into()
    }

    /// The initial state in operand `k`; zeros where it is left out.
    fn initial(&self, k: usize) -> Result<Tensor<'b>> {
        let shape = self.state_shape();
        match self.call.optional(k) {
            None => Ok(self.builder().scalar(self.dtype, 0.0).expand(shape)),
            Some(state) => {
                let state = if self.batch_first { state.permute(&[1, 0, 2]) } else { state };
                shaped(state, &[&shape[0], &shape[1], &shape[2]], "initial states")
            }
        }
    }

    /// The input's share of all gates at all times: `[time, directions, batch, gates·hidden]`.
    fn products(&self, inner_bias: std::ops::Range<i64>) -> Result<Tensor<'b>> {
        let rows = self.recurrent.values.dim(1)?;
        let products = self.weights.product(self.x, &[0, 1, 2], "tbi,dgi->tdbg")?;
        let Some((input, state)) = self.biases else { return Ok(products) };
        let inner = (&self.hidden * inner_bias.start, &self.hidden * inner_bias.end);
        let hoisted = if inner_bias.is_empty() {
            state
        } else {
            let gate = self.builder().coordinate(1, &vec![Dim::int(1), rows].into());
            let inside = gate.ge(&inner.0).and(gate.lt(&inner.1));
            inside.not().select(state, 0.0)
        };
        Ok(products + (input + hoisted).insert_axes(&[1]))
    }

    /// The time that a step of number `trip` looks at, for every direction and row of the batch (it broadcasts to
    /// `[directions, batch, 1]`). For a row it is its own inverse.
    fn time_of<'r>(&self, trip: Tensor<'r>, lengths: Option<Tensor<'r>>) -> Tensor<'r> {
        let back = match lengths {
            None => -trip + &(&self.time - 1),
            Some(lengths) => {
                let lengths = lengths.insert_axes(&[1]);
                trip.lt(lengths).select(lengths - trip - 1i64, trip)
            }
        };
        match self.direction {
            Direction::Forward => trip,
            Direction::Reverse => back,
            Direction::Bidirectional => {
                let direction = trip.builder().coordinate(0, &Shape::new([2usize, 1, 1]));
                direction.equal(1i64).select(back, trip)
            }
        }
    }

    /// What the steps returned, put in the order of time: `[time, directions, batch, hidden]` before and after.
    fn in_order_of_time(&self, stack: Tensor<'b>) -> Result<Tensor<'b>> {
        match (self.direction, self.lengths) {
            (Direction::Forward, _) => Ok(stack),
            (Direction::Reverse, None) => Ok(stack.flip(0)),
            (Direction::Bidirectional, None) => {
                let directions = [stack.slice(1, 0usize, 1usize, 1), stack.slice(1, 1usize, 1usize, 1).flip(0)];
                Ok(self.builder().concat(&directions, 1))
            }
            (_, lengths) => {
                let shape = stack.shape()?;
                let place = self.time_of(self.builder().coordinate(0, &shape), lengths);
                let map = std::iter::once(Symbol::Read(0).into()).chain((1..4).map(Dim::axis)).collect();
                Ok(stack.gather(Gather { shape, map }, &[place]))
            }
        }
    }
}

/// The tensor, of which each size is demanded.
fn shaped<'b>(tensor: Tensor<'b>, dims: &[&Dim], what: &str) -> Result<Tensor<'b>> {
    let own = tensor.shape()?;
    if own.rank() != dims.len() {
        return Err(Error::invalid(format!("{what} of shape {own} need {} axes", dims.len())));
    }
    for (found, wanted) in own.dims().iter().zip(dims) {
        tensor.builder().require_equal(found, wanted, what)?;
    }
    Ok(tensor.with_shape(dims.iter().map(|d| (*d).clone()).collect()))
}

fn run<'b, C: Cell>(call: &Call<'_, 'b>, cell: &C) -> Result<Vec<Tensor<'b>>> {
    let layer = Layer::of(call, C::GATES)?;
    let products = layer.products(cell.inner_bias())?;
    let initial: Vec<Tensor<'b>> = C::STATES.iter().map(|k| layer.initial(*k)).collect::<Result<_>>()?;
    let results = over_time(layer.builder(), call.op.name, &layer.time, &initial, |inside, state| {
        let lengths = layer.lengths.map(|l| inside.capture(l)).transpose()?;
        let x = inside.slice_at(products, layer.time_of(inside.trip, lengths))?;
        let mut next = cell.step(&layer, inside, x, state)?;
        let mut slice = next[0];
        if let Some(lengths) = lengths {
            let alive = inside.trip.lt(lengths.insert_axes(&[1]));
            slice = alive.select(slice, 0.0);
            next = next.iter().zip(state).map(|(new, old)| alive.select(*new, *old)).collect();
        }
        Ok(Stepped { state: next, slices: vec![slice] })
    })?;
    let (state, stack) = results.split_at(C::STATES.len());
    let y = layer.in_order_of_time(stack[0])?;
    let mut outputs = vec![if layer.batch_first { y.permute(&[2, 0, 1, 3]) } else { y }];
    outputs.extend(state.iter().map(|s| if layer.batch_first { s.permute(&[1, 0, 2]) } else { *s }));
    Ok(outputs)
}
