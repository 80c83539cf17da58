//! A kernel as a graph, so that what is known of graphs can be asked of it: what roundings become on their way, and how it is planned.

use crate::error::Result;
use crate::graph::{Graph, OriginSet, Value};
use crate::ops::prim::{Contract, Guard, Input, Label, Map, Prefix, Reduce, View};
use crate::ops::{Expr, ExprNode, Prim};
use crate::tensor::{Dim, Shape, Symbol, TensorType};

use super::{AxisSet, Kernel, Op, Step, StepId, Store};

/// The kernel as a graph of the same inputs and outputs, under these names. `None` where it looks up what it reads or draws at random, or
/// stores parts of a tensor.
pub fn graph_of(kernel: &Kernel, name: &str, inputs: &[String], outputs: &[String]) -> Result<Option<Graph>> {
    let mut made = Made { kernel, graph: Graph::new(name), inputs: Vec::new(), values: Vec::new() };
    for (param, name) in kernel.inputs.iter().zip(inputs) {
        let input = made.add(Input { name: name.as_str().into(), ty: param.ty.clone() }, &[])?;
        made.inputs.push(input);
    }
    for step in &kernel.steps {
        let Some(value) = made.step(step)? else { return Ok(None) };
        let is_meant = *made.graph.ty(value) == TensorType::new(step.dtype, made.shape(step.axes));
        if !is_meant {
            return Ok(None);
        }
        made.values.push(value);
    }
    for (output, name) in outputs.iter().enumerate().take(kernel.outputs.len()) {
        let mut stores = kernel.stores.iter().filter(|store| store.output == output);
        let (Some(store), None) = (stores.next(), stores.next()) else { return Ok(None) };
        let Some(stored) = made.stored(store)? else { return Ok(None) };
        made.graph.add_output(name, stored);
    }
    Ok(Some(made.graph))
}

/// A graph in the making.
struct Made<'k> {
    kernel: &'k Kernel,
    graph: Graph,
    inputs: Vec<Value>,
    /// of every step so far, along its axes in ascending order
    values: Vec<Value>,
}

impl Made<'_> {
    fn add(&mut self, prim: impl Into<Prim>, args: &[Value]) -> Result<Value> {
        self.graph.add(prim, args, &OriginSet::default()).map(|id| Value::new(id, 0))
    }

    fn shape(&self, axes: AxisSet) -> Shape {
        axes.iter().map(|axis| self.kernel.axes[axis].clone()).collect::<Vec<Dim>>().into()
    }

    /// The value of a step along some axes, over which it need not vary.
    fn along(&mut self, step: StepId, axes: AxisSet) -> Result<Value> {
        let (own, value) = (self.kernel.steps[step.index()].axes, self.values[step.index()]);
        if own == axes {
            return Ok(value);
        }
        let map = own.iter().map(|axis| Dim::axis(place(axes, axis))).collect();
        self.add(View::new(self.shape(axes), map), &[value])
    }

    fn step(&mut self, step: &Step) -> Result<Option<Value>> {
        let axes = step.axes;
        Ok(Some(match &step.op {
            Op::Load { reads, .. } if !reads.is_empty() => return Ok(None),
            Op::Random { .. } => return Ok(None),
            Op::Load { input, index, guard, fill, .. } => {
                let placed = |dim: &Dim| placed(dim, axes);
                let guard = guard.iter().map(|g| Guard { index: placed(&g.index), bound: placed(&g.bound) });
                let (shape, guard) = (self.shape(axes), guard.collect());
                let view = View { shape, map: index.iter().map(placed).collect(), guard, fill: *fill };
                self.add(view, &[self.inputs[*input]])?
            }
            Op::Map { expr, args } => {
                let args = args.iter().map(|arg| self.along(*arg, axes)).collect::<Result<Vec<_>>>()?;
                self.add(Map { expr: at_places(expr, axes), shape: self.shape(axes) }, &args)?
            }
            Op::Reduce { monoid, over, arg } => {
                let all = axes.union(*over);
                let arg = self.along(*arg, all)?;
                self.add(Reduce { monoid: *monoid, axes: over.iter().map(|axis| place(all, axis)).collect() }, &[arg])?
            }
            Op::Prefix { monoid, axis, exclusive, arg } => {
                let arg = self.along(*arg, axes)?;
                self.add(Prefix { monoid: *monoid, axis: place(axes, *axis), exclusive: *exclusive }, &[arg])?
            }
            Op::Dot { over, a, b, accumulator } => {
                let Some(out) = labels(axes) else { return Ok(None) };
                let [left, right] = [a, b].map(|factor| self.kernel.steps[factor.index()].axes.union(*over));
                let (Some(of_left), Some(of_right)) = (labels(left), labels(right)) else { return Ok(None) };
                let factors = [self.along(*a, left)?, self.along(*b, right)?];
                self.add(Contract { a: of_left, b: of_right, out, accumulator: *accumulator }, &factors)?
            }
        }))
    }

    /// What is stored, as the output lies; none where it is a part of it.
    fn stored(&mut self, store: &Store) -> Result<Option<Value>> {
        let shape = self.kernel.outputs[store.output].ty.shape.clone();
        let axes = store.axes();
        let mut map = vec![None; self.kernel.axes.len()];
        for (k, (index, size)) in store.index.iter().zip(shape.dims()).enumerate() {
            match index.as_symbol() {
                Some(Symbol::Axis(axis)) if self.kernel.axes[usize::from(*axis)] == *size => {
                    map[usize::from(*axis)] = Some(Dim::axis(k));
                }
                _ if index.is(0) && size.is(1) => {}
                _ => return Ok(None),
            }
        }
        let value = self.along(store.value, axes)?;
        let map = axes.iter().filter_map(|axis| map[axis].clone()).collect();
        self.add(View::new(shape, map), &[value]).map(Some)
    }
}

/// Where an axis stands among some.
fn place(axes: AxisSet, axis: usize) -> usize {
    axes.iter().take_while(|other| *other < axis).count()
}

/// An expression over axes of a kernel as one over the places of some.
fn placed(dim: &Dim, axes: AxisSet) -> Dim {
    dim.substitute(&|symbol| match symbol {
        Symbol::Axis(axis) => Some(Dim::axis(place(axes, usize::from(*axis)))),
        _ => None,
    })
}

/// The same of a scalar expression.
fn at_places(expr: &Expr, axes: AxisSet) -> Expr {
    Expr::build(expr.args(), |scope, terms| {
        expr.inline_with(scope, |node| match node {
            ExprNode::Arg(k) => Some(terms[*k as usize]),
            ExprNode::Coord(axis) => Some(scope.coord(place(axes, usize::from(*axis)))),
            _ => None,
        })
    })
}

/// A letter for each axis, as far as there are letters.
fn labels(axes: AxisSet) -> Option<Vec<Label>> {
    let letter = |axis: usize| ('a'..='z').chain('A'..='Z').nth(axis);
    axes.iter().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{Agreement, Meaning, Tolerance, compare};
    use crate::reference::{Buffer, Limits};
    use crate::tensor::{Env, Literal};
    use crate::tile::{self, interp};

    const ATTENTION: &str = "kernel attention(q: f32[n, d], k: f32[m, d], v: f32[m, e]) -> y: f32[n, e] {
  s = select(m <= n, SCALE * sum[d](q * k), -inf)
  p = exp(s - max[m](s))
  y = sum[m](p * v) / sum[m](p)
}";

    fn attention(scale: &str) -> (Kernel, Vec<Literal>, Env) {
        let kernel = tile::read(&ATTENTION.replace("SCALE", scale)).unwrap().kernel;
        let sizes = [("n", 5), ("m", 7), ("d", 6), ("e", 3)].map(|(name, size)| (Symbol::name(name), size));
        // Keys are nearly alike, so that large scores are, too.
        let input = |rows: usize, columns: usize, spread: f32| {
            let x = (0..rows * columns).map(|k| 1.0 + spread * ((k * 37 % 61) as f32 - 30.0)).collect::<Vec<f32>>();
            Literal::f32s(&x).reshaped([rows, columns]).unwrap()
        };
        (kernel, vec![input(5, 6, 0.01), input(7, 6, 1e-5), input(7, 3, 0.1)], sizes.into_iter().collect())
    }

    #[test]
    fn the_graph_of_a_kernel_means_what_the_kernel_does() {
        let (kernel, inputs, env) = attention("0.3");
        let given: Vec<Buffer> = inputs.iter().map(Buffer::from_literal).collect();
        let expected = interp::run(&kernel, &given, &env, &interp::Options::default()).unwrap();
        let meaning = Meaning::of_kernel(&kernel, &inputs, &env, Limits::default()).unwrap().unwrap();
        let expected = expected[0].to_literal().unwrap();
        let within = Agreement::Within(Tolerance::of_kernel(&kernel, 0, &env));
        assert!(compare(&expected, &meaning.outputs()[0], &within).is_ok());
        assert!(meaning.measure(0, &expected).is_ok());
    }

    #[test]
    fn steep_scores_hand_on_more_than_they_got() {
        // Scores of some thousand have errors of some 1e-3, and so have their exponentials.
        for (scale, is_steep) in [("0.3", false), ("3000.0", true)] {
            let (kernel, inputs, env) = attention(scale);
            let meaning = Meaning::of_kernel(&kernel, &inputs, &env, Limits::default()).unwrap().unwrap();
            let off = |by: f64| {
                let mut values = meaning.outputs()[0].to_f64s();
                // Of the last query, which sees several keys.
                values[4 * 3] *= 1.0 + by;
                Literal::from_f64s(crate::tensor::DType::F32, [5, 3], &values).unwrap()
            };
            assert_eq!(meaning.measure(0, &off(1e-4)).is_ok(), is_steep, "{scale}");
            assert!(meaning.measure(0, &off(0.5)).is_err(), "{scale}");
        }
    }

    #[test]
    fn what_is_looked_up_has_no_graph() {
        let text = "kernel {
  axes i0: m, i1: d
  in   x0: f32[n, d], x1: i64[m]
  out  y0: f32[m, d]
  schedule map
  %0 = load x1[i0]
  %1 = load x0[@0, i1] reading (%0)
  store y0[i0, i1] = %1
}";
        let names = ["x0", "x1"].map(String::from);
        assert!(graph_of(&tile::parse(text).unwrap(), "rows", &names, &names[..1]).unwrap().is_none());
    }
}
