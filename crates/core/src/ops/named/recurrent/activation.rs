//! The activation functions that operators, recurrent and fused ones, name in their attributes.

use super::super::Call;
use super::super::activation::{hard_sigmoid, softplus};
use crate::error::{Error, Result};
use crate::graph::Tensor;

/// An activation function with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Activation {
    Relu,
    Tanh,
    Sigmoid,
    Softsign,
    Softplus,
    Affine { alpha: f64, beta: f64 },
    LeakyRelu { alpha: f64 },
    ThresholdedRelu { alpha: f64 },
    ScaledTanh { alpha: f64, beta: f64 },
    HardSigmoid { alpha: f64, beta: f64 },
    Elu { alpha: f64 },
}

impl Activation {
    fn apply(self, x: Tensor<'_>) -> Tensor<'_> {
        match self {
            Activation::Relu => x.max(0.0),
            Activation::Tanh => x.tanh(),
            Activation::Sigmoid => x.sigmoid(),
            Activation::Softsign => x / (x.abs() + 1.0),
            Activation::Softplus => softplus(x),
            Activation::Affine { alpha, beta } => x * alpha + beta,
            Activation::LeakyRelu { alpha } => x.lt(0.0).select(x * alpha, x),
            Activation::ThresholdedRelu { alpha } => x.ge(alpha).select(x, 0.0),
            Activation::ScaledTanh { alpha, beta } => (x * beta).tanh() * alpha,
            Activation::HardSigmoid { alpha, beta } => hard_sigmoid(x, alpha, beta),
            Activation::Elu { alpha } => x.lt(0.0).select(x.expm1() * alpha, x),
        }
    }
}

/// The function with this name and these parameters, at every element; none where nobody knows the name.
pub(in super::super) fn activated<'b>(name: &str, parameters: [Option<f64>; 2], x: Tensor<'b>) -> Option<Tensor<'b>> {
    let [alpha, beta] = &parameters;
    let mut parameters = Parameters { alpha: alpha.as_slice(), beta: beta.as_slice() };
    Some(parameters.function(name)?.apply(x))
}

/// The parameters that are not used up yet; those that run out take their defaults.
struct Parameters<'a> {
    alpha: &'a [f64],
    beta: &'a [f64],
}

impl Parameters<'_> {
    fn alpha(&mut self, default: f64) -> f64 {
        consume(&mut self.alpha, default)
    }

    fn beta(&mut self, default: f64) -> f64 {
        consume(&mut self.beta, default)
    }

    /// The function with this name, its parameters taken from the front of the lists.
    fn function(&mut self, name: &str) -> Option<Activation> {
        Some(match name.to_ascii_lowercase().as_str() {
            "relu" => Activation::Relu,
            "tanh" => Activation::Tanh,
            "sigmoid" => Activation::Sigmoid,
            "softsign" => Activation::Softsign,
            "softplus" => Activation::Softplus,
            "affine" => Activation::Affine { alpha: self.alpha(1.0), beta: self.beta(0.0) },
            "leakyrelu" => Activation::LeakyRelu { alpha: self.alpha(0.01) },
            "thresholdedrelu" => Activation::ThresholdedRelu { alpha: self.alpha(1.0) },
            "scaledtanh" => Activation::ScaledTanh { alpha: self.alpha(1.0), beta: self.beta(1.0) },
            "hardsigmoid" => Activation::HardSigmoid { alpha: self.alpha(0.2), beta: self.beta(0.5) },
            "elu" => Activation::Elu { alpha: self.alpha(1.0) },
            _ => return None,
        })
    }
}

fn consume(list: &mut &[f64], default: f64) -> f64 {
    match list.split_first() {
        Some((first, rest)) => {
            *list = rest;
            *first
        }
        None => default,
    }
}

/// The activations of every direction, with the clip in front of them.
#[derive(Clone, Debug)]
pub(super) struct Activations {
    /// direction by direction, the functions in the operator's order
    functions: Vec<Vec<Activation>>,
    clip: Option<f64>,
}

impl Activations {
    /// Reads the attributes; `defaults` are the functions of one direction.
    pub(super) fn of(call: &Call<'_, '_>, directions: usize, defaults: &[&str]) -> Result<Activations> {
        let given = call.strs("activations")?;
        let wanted = directions * defaults.len();
        let names: Vec<&str> = match given {
            Some(list) if !list.is_empty() => list.iter().map(String::as_str).collect(),
            _ => defaults.repeat(directions),
        };
        if names.len() < wanted {
            let (op, found) = (call.op.name, names.len());
            return Err(Error::invalid(format!("{op} needs {wanted} activations, {found} are given")));
        }
        let mut parameters = Parameters {
            alpha: call.floats("activation_alpha")?.unwrap_or(&[]),
            beta: call.floats("activation_beta")?.unwrap_or(&[]),
        };
        let mut functions = Vec::with_capacity(wanted);
        for name in &names[..wanted] {
            let function = parameters.function(name);
            functions.push(function.ok_or_else(|| call.unsupported("activations", name))?);
        }
        let clip = call.float("clip")?;
        if let Some(clip) = clip.filter(|c| c.is_nan() || *c < 0.0) {
            return Err(Error::invalid(format!("attribute clip = {clip} of {} must not be negative", call.op.name)));
        }
        Ok(Activations { functions: functions.chunks(defaults.len()).map(<[_]>::to_vec).collect(), clip })
    }

    /// Function `which` of each direction on its slice of a clipped gate, whose first axis is the direction.
    pub(super) fn gate<'r>(&self, which: usize, x: Tensor<'r>) -> Tensor<'r> {
        self.apply(which, self.clip.map_or(x, |clip| x.max(-clip).min(clip)))
    }

    /// As [`Activations::gate`] without the clip, which runtimes do not put on an LSTM's cell state.
    pub(super) fn apply<'r>(&self, which: usize, x: Tensor<'r>) -> Tensor<'r> {
        let first = self.functions[0][which];
        if self.functions.iter().all(|f| f[which] == first) {
            return first.apply(x);
        }
        let parts: Vec<_> =
            self.functions.iter().enumerate().map(|(d, f)| f[which].apply(x.slice(0, d, 1usize, 1))).collect();
        x.builder().concat(&parts, 0)
    }
}
