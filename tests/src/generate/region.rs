//! Steps that add regions.

use fuseline::graph::{Builder, Graph, Tensor};
use fuseline::ops::{Expr, ExprNode, Prim, Scalar};
use fuseline::tensor::{DType, Env, Literal, Shape, Symbol, TensorType};

use super::Step;
use super::grow::{Growth, type_of};
use super::tape::Tape;

/// No generated loop makes more trips.
const MOST_TRIPS: i64 = 3;

impl<'b> Growth<'b> {
    /// A region that starts from inputs of the given types and grows by `steps`; `finish` names its outputs.
    fn region(
        &self,
        name: &str,
        inputs: &[TensorType],
        steps: &[Step],
        finish: impl FnOnce(&Growth<'_>, &[Tensor<'_>]),
    ) -> (Graph, Env) {
        let builder = self.builder.region(name);
        let bounds = {
            let taken = inputs.iter().enumerate();
            let inputs: Vec<Tensor<'_>> =
                taken.map(|(k, ty)| builder.input(&format!("c{k}"), ty.dtype, ty.shape.clone())).collect();
            let mut growth = Growth::new(&builder, inputs.clone(), self.bounds.clone(), self.depth + 1);
            steps.iter().for_each(|step| growth.step(step));
            finish(&growth, &inputs);
            growth.bounds
        };
        (builder.finish().expect("the generator adds only what fits"), bounds)
    }

    fn condition(&self, tape: &mut Tape<'_>) -> Tensor<'b> {
        let data = if tape.chance(2) { self.small_number(tape, 2) } else { None };
        data.map_or_else(|| truth(self.builder, !tape.chance(2)), |number| number.equal(0i64))
    }

    pub(super) fn if_else(&mut self, step: &Step, tape: &mut Tape<'_>) -> Option<Vec<Tensor<'b>>> {
        let condition = self.condition(tape);
        let captures: Vec<Tensor<'b>> = (0..1 + tape.below(3)).map(|_| self.any(tape)).collect();
        let types: Vec<TensorType> = captures.iter().map(|c| type_of(*c)).collect();
        let outputs = 1 + tape.below(captures.len());
        let branch = |name: &str, steps: &[Step]| {
            self.region(name, &types, steps, |growth, inputs| {
                for (k, input) in inputs.iter().take(outputs).enumerate() {
                    let like = type_of(*input);
                    let newest = growth.pool.iter().rev().find(|t| {
                        let ty = type_of(**t);
                        ty.dtype == like.dtype && ty.shape.rank() == like.shape.rank()
                    });
                    growth.builder.output(&format!("r{k}"), *newest.unwrap_or(input));
                }
            })
        };
        let (left, right) = step.inner.split_at(step.inner.len() / 2);
        let (then, then_bounds) = branch("then", left);
        let (otherwise, otherwise_bounds) = branch("else", right);
        let sizes = |graph: &Graph, bounds: &Env| -> Vec<Vec<i64>> {
            let shapes = graph.outputs().iter().map(|o| graph.ty(o.value).shape.clone());
            shapes.map(|s| s.dims().iter().map(|d| d.eval(bounds).unwrap_or(0)).collect()).collect()
        };
        let (a, b) = (sizes(&then, &then_bounds), sizes(&otherwise, &otherwise_bounds));
        let results = self.builder.if_else(condition, then, otherwise, &captures).ok()?;
        for (result, (a, b)) in results.iter().zip(a.iter().zip(&b)) {
            self.learn(*result, a.iter().zip(b).map(|(a, b)| *a.max(b)));
        }
        Some(results)
    }

    pub(super) fn loop_(&mut self, step: &Step, tape: &mut Tape<'_>) -> Option<Vec<Tensor<'b>>> {
        let data = if tape.chance(2) { self.small_number(tape, MOST_TRIPS + 1) } else { None };
        let trips = data.unwrap_or_else(|| self.builder.int(DType::I64, 1 + tape.below(3) as i64));
        let start = self.condition(tape);
        let carried = self.any(tape);
        let capture = self.any(tape);
        let (initial, captured) = (type_of(carried), type_of(capture));
        let grows = tape.chance(3) && initial.shape.rank() > 0 && self.may_grow(&initial.shape);
        let ends_early = tape.chance(3);
        let stacks = tape.chance(2);
        let (body, bounds) = if grows {
            self.growing_body(&initial)
        } else {
            let trip = TensorType::new(DType::I64, Shape::scalar());
            self.region("body", &[trip, initial.clone(), captured], &step.inner, |growth, inputs| {
                let builder = growth.builder;
                builder.output("go_on", if ends_early { inputs[0].lt(1i64) } else { truth(builder, true) });
                let next = growth.pool.iter().rev().find(|t| type_of(**t) == initial);
                builder.output("next", *next.unwrap_or(&inputs[1]));
                let plain = |t: &&Tensor<'_>| {
                    let shape = type_of(**t).shape;
                    shape.rank() < 5 && !shape.dims().iter().any(|d| d.mentions(|s| matches!(s, Symbol::Value(_))))
                };
                if stacks && let Some(slice) = growth.pool.iter().rev().find(plain) {
                    builder.output("slice", *slice);
                }
            })
        };
        if has_poles(&body) {
            return None;
        }
        let stacked = body.outputs().get(2).map(|o| body.ty(o.value).shape.clone());
        let captures: &[Tensor<'b>] = if grows { &[carried] } else { &[capture] };
        let results = self.builder.loop_(trips, start, &[carried], body, captures).ok()?;
        let grown = initial.shape.dims().iter().enumerate();
        let grown = grown.map(|(k, d)| if grows && k == 0 { self.size(d) * (MOST_TRIPS + 1) } else { self.size(d) });
        let grown: Vec<i64> = grown.collect();
        self.learn(results[0], grown.into_iter());
        if let (Some(slice), Some(result)) = (stacked, results.get(1)) {
            let sizes: Vec<i64> = slice.dims().iter().map(|d| d.eval(&bounds).unwrap_or(0)).collect();
            self.learn(*result, std::iter::once(MOST_TRIPS).chain(sizes));
        }
        Some(results)
    }

    fn may_grow(&self, shape: &Shape) -> bool {
        let mut dims = shape.dims().to_vec();
        dims[0] = &dims[0] * (MOST_TRIPS + 1);
        self.fits(&dims.into())
    }

    /// A body whose carried value becomes longer by the captured one, which has the same type at first, in every trip.
    fn growing_body(&self, initial: &TensorType) -> (Graph, Env) {
        let builder = self.builder.region("growing");
        let mut dims = initial.shape.dims().to_vec();
        dims[0] = Symbol::Value(builder.fresh_symbol()).into();
        builder.input("trip", DType::I64, Shape::scalar());
        let carried = builder.input("carried", initial.dtype, dims);
        let captured = builder.input("captured", initial.dtype, initial.shape.clone());
        builder.output("go_on", truth(&builder, true));
        builder.output("next", builder.concat(&[carried, captured], 0));
        (builder.finish().expect("the generator adds only what fits"), self.bounds.clone())
    }

    /// Notes upper bounds of the symbols that a result binds.
    fn learn(&mut self, result: Tensor<'b>, sizes: impl Iterator<Item = i64>) {
        for (dim, size) in type_of(result).shape.dims().iter().zip(sizes) {
            if let Some(symbol @ Symbol::Value(_)) = dim.as_symbol()
                && self.bounds.get(symbol).is_none()
            {
                self.bounds.bind(symbol.clone(), size);
            }
        }
    }
}

fn truth(builder: &Builder, holds: bool) -> Tensor<'_> {
    builder.constant(Literal::from_ints(DType::Bool, [], &[i64::from(holds)]).expect("one value"))
}

/// Whether a body computes a tangent. From trip to trip a value that comes near a pole loses all its digits, and what two right executions
/// give has nothing in common: no bound on errors could tell them from wrong ones.
fn has_poles(body: &Graph) -> bool {
    let has_tangent =
        |expr: &Expr| expr.nodes().iter().any(|(node, _)| matches!(node, ExprNode::Apply(Scalar::Tan, _)));
    body.nodes().iter().any(|node| matches!(node.prim(), Prim::Map(row) if has_tangent(&row.expr)))
}
