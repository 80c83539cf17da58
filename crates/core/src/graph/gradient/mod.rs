//! Reverse-mode differentiation of graphs.
//!
//! Every primitive states the gradients by its operands (its row's `gradient`); the rules that need more than a line
//! stand here. A primitive without a rule refuses with a typed [`NoGradient`].

mod view;

use std::fmt;

pub(crate) use view::of_view;

use super::{Builder, Graph, Tensor, Value};
use crate::error::{Error, Result};
use crate::ops::prim::{Combine, Concat, Contract, Gather, Monoid, Prefix, Primitive, Reduce, Scatter};
use crate::tensor::{DType, Dim};

/// The gradients by each operand; `None` where they are zero.
pub type OperandGradients<'b> = Vec<Option<Tensor<'b>>>;

/// A primitive that cannot be differentiated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoGradient {
    /// its name
    pub primitive: &'static str,
    /// its number of operands
    pub operands: usize,
}

impl fmt::Display for NoGradient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no gradient is defined for {}", self.primitive)
    }
}

/// What a primitive's gradient rule sees.
#[derive(Debug)]
pub struct Adjoint<'a, 'b> {
    /// the operands, in the graph under construction
    pub args: Vec<Tensor<'b>>,
    /// the results, in the graph under construction
    pub results: Vec<Tensor<'b>>,
    /// the gradients by the results
    pub grads: &'a [Option<Tensor<'b>>],
}

impl<'b> Adjoint<'_, 'b> {
    /// The gradient by result `port`.
    pub fn grad(&self, port: usize) -> Option<Tensor<'b>> {
        self.grads.get(port).copied().flatten()
    }
}

/// The graph extended by the gradients of `output` (which must be a float scalar) by each of `wrt` (names of inputs).
/// The outputs of the result are the original ones, then `grad:NAME` for each.
pub fn differentiate(graph: &Graph, output: &str, wrt: &[&str]) -> Result<Graph> {
    let builder = Builder::from_graph(graph.clone());
    let start = graph.outputs().iter().find(|o| o.name.as_ref() == output);
    let start = start.ok_or_else(|| Error::invalid(format!("no output is called \"{output}\"")))?.value;
    let mut inputs = Vec::with_capacity(wrt.len());
    for name in wrt {
        let input = graph.inputs().iter().find(|v| graph.input_name(**v).as_ref() == *name);
        let input = *input.ok_or_else(|| Error::invalid(format!("no input is called \"{name}\"")))?;
        inputs.push(builder.tensor(input));
    }
    for (name, gradient) in wrt.iter().zip(gradients(builder.tensor(start), &inputs)?) {
        builder.output(&format!("grad:{name}"), gradient);
    }
    builder.finish()
}

/// The gradients of a float scalar by each of `wrt`, tensors of its graph; zeros by those that it does not depend on.
pub fn gradients<'b>(output: Tensor<'b>, wrt: &[Tensor<'b>]) -> Result<Vec<Tensor<'b>>> {
    let builder = output.builder();
    let (ty, start) = (output.ty()?, output.value());
    if !ty.dtype.is_float() || ty.shape.rank() != 0 {
        return Err(Error::invalid(format!("only a float scalar can be differentiated, not {ty}")));
    }
    let graph = builder.with_graph(Graph::clone);
    let mut grads: Vec<Vec<Option<Tensor<'b>>>> = graph.nodes().iter().map(|n| vec![None; n.types().len()]).collect();
    grads[start.node()][start.port()] = Some(builder.scalar(ty.dtype, 1.0));
    for id in (0..=start.node()).rev() {
        let node = &graph.nodes()[id];
        if node.args().is_empty() || grads[id].iter().all(Option::is_none) {
            continue;
        }
        let tensor = |v: Value| builder.tensor(v);
        let adjoint = Adjoint {
            args: node.args().iter().map(|a| tensor(*a)).collect(),
            results: (0..node.types().len()).map(|port| tensor(Value::new(id, port))).collect(),
            grads: &grads[id].clone(),
        };
        let flowing = node.prim().gradient(&adjoint);
        let flowing = flowing.map_err(|e| Error::unsupported(e.to_string()).at(graph.describe(id)))?;
        for (arg, gradient) in node.args().iter().zip(flowing) {
            let Some(gradient) = gradient.filter(|_| graph.ty(*arg).dtype.is_float()) else { continue };
            let sum = &mut grads[arg.node()][arg.port()];
            *sum = Some(sum.map_or(gradient, |s| s + gradient));
        }
    }
    let of = |x: &Tensor<'b>| {
        let (ty, value) = (x.ty()?, x.value());
        let zero = || builder.scalar(ty.dtype, 0.0).expand(ty.shape.clone());
        Ok(grads[value.node()][value.port()].unwrap_or_else(zero))
    };
    wrt.iter().map(of).collect()
}

/// Sums spread their gradient; a maximum or minimum sends it to the elements that reach it, in equal shares; a product
/// multiplies by the product of the others (zeros in the operand give NaN, as the quotient form does).
pub(crate) fn of_reduce<'b>(
    reduce: &Reduce,
    at: &Adjoint<'_, 'b>,
) -> std::result::Result<OperandGradients<'b>, NoGradient> {
    let Some(grad) = at.grad(0) else { return Ok(vec![None]) };
    let x = at.args[0];
    let spread = |t: Tensor<'b>| t.restore_axes(&reduce.axes, &x.ty_or_scalar().shape);
    match reduce.monoid {
        Monoid::Sum => Ok(vec![Some(spread(grad))]),
        Monoid::Prod => Ok(vec![Some(spread(grad * at.results[0]) / x)]),
        Monoid::Max | Monoid::Min => {
            let reached = x.equal(spread(at.results[0])).cast(x.dtype_or_f32());
            let shares = reached.reduce(Monoid::Sum, &reduce.axes);
            Ok(vec![Some(reached * spread(grad / shares))])
        }
        _ => Ok(vec![None]),
    }
}

/// The gradient by one operand contracts the result's gradient with the other operand.
pub(crate) fn of_contract<'b>(
    contract: &Contract,
    at: &Adjoint<'_, 'b>,
) -> std::result::Result<OperandGradients<'b>, NoGradient> {
    let Some(grad) = at.grad(0) else { return Ok(vec![None, None]) };
    let by = |own: &[char], other: &[char], operand: Tensor<'b>| {
        let spec = Contract {
            a: contract.out.clone(),
            b: other.to_vec(),
            out: own.to_vec(),
            accumulator: contract.accumulator,
        };
        grad.contract_with(spec, operand)
    };
    Ok(vec![Some(by(&contract.a, &contract.b, at.args[1])), Some(by(&contract.b, &contract.a, at.args[0]))])
}

/// What was gathered is added back.
pub(crate) fn of_gather<'b>(
    gather: &Gather,
    at: &Adjoint<'_, 'b>,
) -> std::result::Result<OperandGradients<'b>, NoGradient> {
    let Some(grad) = at.grad(0) else { return Ok(vec![None; at.args.len()]) };
    let dtype: DType = grad.dtype_or_f32();
    let zeros = grad.builder().scalar(dtype, 0.0).expand(at.args[0].ty_or_scalar().shape);
    let scatter = Scatter { combine: Combine::Add, map: gather.map.clone() };
    let mut grads = vec![None; at.args.len()];
    grads[0] = Some(zeros.scatter(scatter, grad, &at.args[1..]));
    Ok(grads)
}

/// Every part gets its slice.
pub(crate) fn of_concat<'b>(
    concat: &Concat,
    at: &Adjoint<'_, 'b>,
) -> std::result::Result<OperandGradients<'b>, NoGradient> {
    let Some(grad) = at.grad(0) else { return Ok(vec![None; at.args.len()]) };
    let mut before = Dim::int(0);
    let mut grads = Vec::with_capacity(at.args.len());
    for part in &at.args {
        let size = part.ty_or_scalar().shape[concat.axis].clone();
        grads.push(Some(grad.slice(concat.axis, before.clone(), size.clone(), 1)));
        before = before + size;
    }
    Ok(grads)
}

/// An element counts in all running sums from its place on: the gradient is a running sum from the other end.
pub(crate) fn of_prefix<'b>(
    prefix: &Prefix,
    at: &Adjoint<'_, 'b>,
) -> std::result::Result<OperandGradients<'b>, NoGradient> {
    if prefix.monoid != Monoid::Sum {
        return Err(NoGradient { primitive: Prefix::NAME, operands: at.args.len() });
    }
    let from_the_end =
        |grad: Tensor<'b>| grad.flip(prefix.axis).prefix(Monoid::Sum, prefix.axis, prefix.exclusive).flip(prefix.axis);
    Ok(vec![at.grad(0).map(from_the_end)])
}

/// What is added to lets its gradient through, and updates read theirs where they went.
pub(crate) fn of_scatter<'b>(
    scatter: &Scatter,
    at: &Adjoint<'_, 'b>,
) -> std::result::Result<OperandGradients<'b>, NoGradient> {
    if scatter.combine != Combine::Add {
        return Err(NoGradient { primitive: Scatter::NAME, operands: at.args.len() });
    }
    let mut grads = vec![None; at.args.len()];
    if let Some(grad) = at.grad(0) {
        let gather = Gather { shape: at.args[1].ty_or_scalar().shape, map: scatter.map.clone() };
        (grads[0], grads[1]) = (Some(grad), Some(grad.gather(gather, &at.args[2..])));
    }
    Ok(grads)
}
