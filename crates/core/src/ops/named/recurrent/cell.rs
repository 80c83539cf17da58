//! One step of each recurrent operator.

use super::super::Call;
use super::activation::Activations;
use super::{Cell, Direction, Layer, Step, shaped};
use crate::error::Result;
use crate::graph::Tensor;
use crate::tensor::Dim;

impl<'b> Layer<'_, 'b> {
    /// The state's share of the gates `from..from + count`: `[directions, batch, count·hidden]`.
    fn recur<'r>(&self, inside: &Step<'r, 'b>, h: Tensor<'r>, from: i64, count: i64) -> Result<Tensor<'r>> {
        let weights = self.recurrent.rows(&self.hidden * from, &self.hidden * count);
        weights.captured(inside)?.product(h, &[1, 2], "dbh,dgh->dbg")
    }

    /// Gate number `k` of tensors whose last axis holds gates.
    fn gate<'r>(&self, gates: Tensor<'r>, k: i64) -> Tensor<'r> {
        gates.slice(2, &self.hidden * k, self.hidden.clone(), 1)
    }
}

/// `H = f(x + H·Rᵀ)`
pub(super) struct Rnn {
    activations: Activations,
}

impl Rnn {
    pub(super) fn new(call: &Call<'_, '_>) -> Result<Rnn> {
        Ok(Rnn { activations: Activations::of(call, Direction::of(call)?.count(), &["Tanh"])? })
    }
}

impl Cell for Rnn {
    const GATES: i64 = 1;
    const STATES: &'static [usize] = &[5];

    fn step<'r, 'b>(
        &self,
        layer: &Layer<'_, 'b>,
        inside: &Step<'r, 'b>,
        x: Tensor<'r>,
        state: &[Tensor<'r>],
    ) -> Result<Vec<Tensor<'r>>> {
        Ok(vec![self.activations.gate(0, x + layer.recur(inside, state[0], 0, 1)?)])
    }
}

/// Gates z (update), r (reset), h (hidden): `H' = (1 − z)·h + z·H`.
pub(super) struct Gru {
    activations: Activations,
    /// reset the product of the state with its weights, not the state
    linear_before_reset: bool,
}

impl Gru {
    pub(super) fn new(call: &Call<'_, '_>) -> Result<Gru> {
        let activations = Activations::of(call, Direction::of(call)?.count(), &["Sigmoid", "Tanh"])?;
        Ok(Gru { activations, linear_before_reset: call.flag("linear_before_reset", false)? })
    }
}

impl Cell for Gru {
    const GATES: i64 = 3;
    const STATES: &'static [usize] = &[5];

    fn inner_bias(&self) -> std::ops::Range<i64> {
        if self.linear_before_reset { 2..3 } else { 0..0 }
    }

    fn step<'r, 'b>(
        &self,
        layer: &Layer<'_, 'b>,
        inside: &Step<'r, 'b>,
        x: Tensor<'r>,
        state: &[Tensor<'r>],
    ) -> Result<Vec<Tensor<'r>>> {
        let h = state[0];
        let gate = |gates: Tensor<'r>, k: i64| layer.gate(gates, k);
        let sigmoid = |x: Tensor<'r>| self.activations.gate(0, x);
        let (z, candidate);
        if self.linear_before_reset {
            let share = layer.recur(inside, h, 0, 3)?;
            z = sigmoid(gate(x, 0) + gate(share, 0));
            let r = sigmoid(gate(x, 1) + gate(share, 1));
            let mut linear = gate(share, 2);
            if let Some((_, bias)) = layer.biases {
                let bias = bias.slice(1, &layer.hidden * 2, layer.hidden.clone(), 1);
                linear = linear + inside.capture(bias)?.insert_axes(&[1]);
            }
            candidate = gate(x, 2) + r * linear;
        } else {
            let share = layer.recur(inside, h, 0, 2)?;
            z = sigmoid(gate(x, 0) + gate(share, 0));
            let r = sigmoid(gate(x, 1) + gate(share, 1));
            candidate = gate(x, 2) + layer.recur(inside, r * h, 2, 1)?;
        }
        let new = self.activations.gate(1, candidate);
        Ok(vec![(-z + 1.0) * new + z * h])
    }
}

/// Gates i (input), o (output), f (forget), c (cell): `C' = f·C + i·c`, `H' = o·h(C')`.
pub(super) struct Lstm {
    activations: Activations,
    /// the forget gate is what the input gate leaves
    input_forget: bool,
}

impl Lstm {
    pub(super) fn new(call: &Call<'_, '_>) -> Result<Lstm> {
        let activations = Activations::of(call, Direction::of(call)?.count(), &["Sigmoid", "Tanh", "Tanh"])?;
        Ok(Lstm { activations, input_forget: call.flag("input_forget", false)? })
    }
}

impl Cell for Lstm {
    const GATES: i64 = 4;
    const STATES: &'static [usize] = &[5, 6];

    fn step<'r, 'b>(
        &self,
        layer: &Layer<'_, 'b>,
        inside: &Step<'r, 'b>,
        x: Tensor<'r>,
        state: &[Tensor<'r>],
    ) -> Result<Vec<Tensor<'r>>> {
        let &[h, cell] = state else { unreachable!("an LSTM carries two states") };
        let gates = x + layer.recur(inside, h, 0, 4)?;
        let peepholes = match layer.call.optional(7) {
            None => None,
            Some(p) => {
                let directions = Dim::from(layer.direction.count());
                let p = shaped(p, &[&directions, &(&layer.hidden * 3)], "peepholes")?;
                Some(inside.capture(p)?.insert_axes(&[1]))
            }
        };
        let peep = |gate: i64, at: i64, cell: Tensor<'r>| {
            let gate = layer.gate(gates, gate);
            peepholes.map_or(gate, |p| gate + layer.gate(p, at) * cell)
        };
        let sigmoid = |x: Tensor<'r>| self.activations.gate(0, x);
        let input = sigmoid(peep(0, 0, cell));
        let forget = if self.input_forget { -input + 1.0 } else { sigmoid(peep(2, 2, cell)) };
        let cell = forget * cell + input * self.activations.gate(1, layer.gate(gates, 3));
        let output = sigmoid(peep(1, 1, cell));
        Ok(vec![output * self.activations.apply(2, cell), cell])
    }
}
