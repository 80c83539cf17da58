//! One step of an optimiser, as the preview of ONNX's training operators defines it.
//!
//! Operands are the learning rate, the number of updates so far, then the tensors, their gradients and their states, each
//! list in the order of the tensors; results are the new tensors, then their new states.

use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;

const DOMAIN: &str = "ai.onnx.preview.training";

pub(super) static OPS: &[NamedOp] = &[
    NamedOp {
        name: "Adagrad",
        domain: DOMAIN,
        since: 1,
        attributes: &["decay_factor", "epsilon", "norm_coefficient"],
        doc: "a step along the gradient, scaled by the squares of all gradients so far",
        expand: adagrad,
    },
    NamedOp {
        name: "Adam",
        domain: DOMAIN,
        since: 1,
        attributes: &["alpha", "beta", "epsilon", "norm_coefficient", "norm_coefficient_post"],
        doc: "a step along the running mean of gradients, scaled by the running mean of their squares",
        expand: adam,
    },
    NamedOp {
        name: "Momentum",
        domain: DOMAIN,
        since: 1,
        attributes: &["alpha", "beta", "mode", "norm_coefficient"],
        doc: "a step along the decaying sum of gradients",
        expand: momentum,
    },
];

/// The operands of an optimiser with `STATES` states for every tensor.
struct Step<'b, const STATES: usize> {
    rate: Tensor<'b>,
    /// updates so far, in the type of the rate
    count: Tensor<'b>,
    variables: Vec<Variable<'b, STATES>>,
}

struct Variable<'b, const STATES: usize> {
    value: Tensor<'b>,
    /// the gradient, with that of half the squared norm of the value added
    gradient: Tensor<'b>,
    states: [Tensor<'b>; STATES],
}

/// A variable after the step.
struct Updated<'b, const STATES: usize> {
    value: Tensor<'b>,
    states: [Tensor<'b>; STATES],
}

impl<'b, const STATES: usize> Step<'b, STATES> {
    fn of(call: &Call<'_, 'b>) -> Result<Step<'b, STATES>> {
        let rate = call.input(0)?;
        let lists = call.inputs.len().saturating_sub(2);
        let each = lists / (2 + STATES);
        if each == 0 || !lists.is_multiple_of(2 + STATES) {
            return Err(Error::invalid(format!("{} of {lists} tensors in {} lists", call.op.name, 2 + STATES)));
        }
        let norm = call.float_or("norm_coefficient", 0.0)?;
        let mut variables = Vec::with_capacity(each);
        for k in 0..each {
            let operand = |list: usize| call.input(2 + list * each + k);
            let (value, gradient) = (operand(0)?, operand(1)?);
            let gradient = if norm == 0.0 { gradient } else { value * norm + gradient };
            let mut states = [value; STATES];
            for (j, state) in states.iter_mut().enumerate() {
                *state = operand(2 + j)?;
            }
            variables.push(Variable { value, gradient, states });
        }
        Ok(Step { rate, count: call.input(1)?.cast(rate.dtype()?), variables })
    }

    /// The results, list by list.
    fn update(&self, update: impl Fn(&Variable<'b, STATES>) -> Result<Updated<'b, STATES>>) -> Result<Vec<Tensor<'b>>> {
        let updated: Vec<Updated<'b, STATES>> = self.variables.iter().map(update).collect::<Result<_>>()?;
        let values = updated.iter().map(|u| u.value);
        let states = (0..STATES).flat_map(|j| updated.iter().map(move |u| u.states[j]));
        Ok(values.chain(states).collect())
    }
}

fn adagrad<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let step = Step::<1>::of(call)?;
    let (decay, epsilon) = (call.float_or("decay_factor", 0.0)?, call.float_or("epsilon", 1e-6)?);
    let rate = step.rate / (step.count * decay + 1.0);
    step.update(|x| {
        let squares = x.states[0] + x.gradient.square();
        let rate = rate.cast(x.value.dtype()?);
        Ok(Updated { value: x.value - rate * x.gradient / (squares.sqrt() + epsilon), states: [squares] })
    })
}

fn adam<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let step = Step::<2>::of(call)?;
    let (alpha, beta) = (call.float_or("alpha", 0.9)?, call.float_or("beta", 0.999)?);
    let (epsilon, shrink) = (call.float_or("epsilon", 1e-6)?, call.float_or("norm_coefficient_post", 0.0)?);
    // What a running mean that started at zero has seen so far: 1 − base^count.
    let dtype = step.rate.dtype()?;
    let seen = |base: f64| -(call.builder.scalar(dtype, base).pow(step.count) - 1.0);
    let corrected = step.rate * seen(beta).sqrt() / seen(alpha);
    let rate = step.count.gt(0.0).select(corrected, step.rate);
    step.update(|x| {
        let mean = x.states[0] * alpha + x.gradient * (1.0 - alpha);
        let squares = x.states[1] * beta + x.gradient.square() * (1.0 - beta);
        let value = x.value - rate.cast(x.value.dtype()?) * mean / (squares.sqrt() + epsilon);
        let value = if shrink == 0.0 { value } else { value * (1.0 - shrink) };
        Ok(Updated { value, states: [mean, squares] })
    })
}

fn momentum<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let step = Step::<1>::of(call)?;
    let needed = |name: &str| -> Result<f64> {
        call.float(name)?.ok_or_else(|| Error::invalid(format!("Momentum needs attribute {name}")))
    };
    let (alpha, beta) = (needed("alpha")?, needed("beta")?);
    let nesterov = match call.str_or("mode", "standard")? {
        "standard" => false,
        "nesterov" => true,
        other => return Err(Error::invalid(format!("attribute mode = \"{other}\" of Momentum"))),
    };
    let share = step.count.gt(0.0).select(call.builder.scalar(step.rate.dtype()?, beta), 1.0);
    step.update(|x| {
        let dtype = x.value.dtype()?;
        let moved = x.states[0] * alpha + x.gradient * share.cast(dtype);
        let direction = if nesterov { x.gradient + moved * alpha } else { moved };
        Ok(Updated { value: x.value - direction * step.rate.cast(dtype), states: [moved] })
    })
}
