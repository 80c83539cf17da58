//! Reverse-mode differentiation of graphs.
//!
//! Every primitive states the gradients by its operands (its row's `gradient`); the rules that need more than a line
//! stand here. A primitive without a rule refuses with a typed [`NoGradient`].

use std::fmt;

use super::{Builder, Graph, Tensor, Value};
use crate::error::{Error, Result};
use crate::ops::prim::{Combine, Contract, Gather, Monoid, Reduce, Scatter, View};
use crate::tensor::{DType, Dim, Symbol};

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

/// Elements flow back to where they were read: axes that the map does not mention are summed, the rest is scattered.
pub(crate) fn of_view<'b>(view: &View, at: &Adjoint<'_, 'b>) -> std::result::Result<OperandGradients<'b>, NoGradient> {
    let Some(grad) = at.grad(0) else { return Ok(vec![None]) };
    let mentions = |axis: usize| {
        let is_axis = |s: &Symbol| *s == Symbol::Axis(axis as u8);
        view.map.iter().any(|d| d.mentions(is_axis)) || view.guard.iter().any(|g| g.index.mentions(is_axis))
    };
    let broadcast: Vec<usize> = (0..view.shape.rank()).filter(|a| !mentions(*a)).collect();
    let summed = if broadcast.is_empty() { grad } else { grad.reduce(Monoid::Sum, &broadcast) };
    // The remaining axes are renumbered.
    let renumber = |dim: &Dim| {
        dim.substitute(&|s| match s {
            Symbol::Axis(a) => {
                let before = broadcast.iter().filter(|b| **b < usize::from(*a)).count();
                Some(Dim::axis(usize::from(*a) - before))
            }
            _ => None,
        })
    };
    let map: Vec<Dim> = view.map.iter().map(renumber).collect();
    let rank = view.shape.rank() - broadcast.len();
    let operand = at.args[0].ty_or_scalar().shape;
    if view.guard.is_empty() && map.len() == rank {
        // A permutation flows back through its inverse.
        let mut inverse = vec![None; rank];
        for (axis, dim) in map.iter().enumerate() {
            if let Some(Symbol::Axis(a)) = dim.as_symbol() {
                inverse[usize::from(*a)] = Some(axis);
            }
        }
        let order: Option<Vec<usize>> = map
            .iter()
            .map(|d| match d.as_symbol() {
                Some(Symbol::Axis(a)) => Some(usize::from(*a)),
                _ => None,
            })
            .collect();
        if let Some(order) = order
            && inverse.iter().all(Option::is_some)
        {
            let turned = summed.permute(&order);
            if turned.ty_or_scalar().shape == operand {
                return Ok(vec![Some(turned)]);
            }
        }
    }
    // Where a guard fails nothing was read: such elements are sent to coordinate 0 as zeros.
    let builder = grad.builder();
    let (updates, map) = if view.guard.is_empty() {
        (summed, map)
    } else {
        let shape = summed.ty_or_scalar().shape;
        let holds = view.guard.iter().map(|g| {
            let index = builder.index(&renumber(&g.index), &shape);
            let bound = builder.index(&g.bound, &shape);
            index.lt(bound).and(index.lt(0i64).not())
        });
        let open = holds.reduce(|a, b| a.and(b)).expect("a guarded view has guards");
        let coordinates: Vec<Tensor<'b>> = map.iter().map(|d| builder.index(d, &shape)).collect();
        let safe: Vec<Tensor<'b>> = coordinates.iter().map(|c| open.select(*c, 0i64)).collect();
        let map = (0..safe.len()).map(|k| Dim::from(Symbol::Read(k as u8))).collect();
        let zeros = builder.scalar(grad.dtype_or_f32(), 0.0).expand(operand);
        let updates = open.select(summed, 0.0);
        return Ok(vec![Some(zeros.scatter(Scatter { combine: Combine::Add, map }, updates, &safe))]);
    };
    let zeros = builder.scalar(grad.dtype_or_f32(), 0.0).expand(operand);
    Ok(vec![Some(zeros.scatter(Scatter { combine: Combine::Add, map }, updates, &[]))])
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
