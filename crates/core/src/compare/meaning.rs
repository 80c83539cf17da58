//! What a graph means, and what it may give instead where the smallest error decides.
//!
//! A rounding, a comparison or a conversion to an integer jumps: what lies within its error of the jump may fall on either
//! side. So the graph is also evaluated with what enters each jump moved up by its error, and moved down; an element may
//! lie anywhere between what these give. There its error is a part of its magnitude, and all jumps are moved together. Where that does
//! not explain an element, the error of each number that enters a jump is what roundings become on the way to it (`spread`): a sum whose
//! terms cancel, of which a quantised convolution has many, errs by a part of its terms and not of what is left of them. A number that
//! lies within that of a jump may come out on either side, and nowhere else; where it is added up with others, it errs by the
//! difference of both. One that does not lie there has no error from there on.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::element_errors::{BesideJumps, ElementErrors};
use super::hull::Hull;
use super::{Agreed, Agreement, Mismatch, SAFETY, Tolerance, compare, compare_between, own_error, step_error};
use crate::budget::Budget;
use crate::error::Result;
use crate::graph::Graph;
use crate::graph::rewrite::{replaced, rewrite_outside_regions};
use crate::ops::prim::Map;
use crate::ops::{Expr, ExprNode, Prim, Scalar, Scope, Term};
use crate::reference::{Limits, Options, Reading, evaluate_under};
use crate::tensor::{DType, Env, Literal};
use crate::tile::{self, Kernel};

/// The outputs of a graph for some inputs, with what an execution may make of them.
#[derive(Clone, Debug)]
pub struct Meaning {
    outputs: Vec<Literal>,
    /// the outputs when what enters jumps is moved; none where nothing jumps
    moved: Vec<Vec<Literal>>,
    tolerances: Vec<Tolerance>,
    /// whether what leaves the range of a type where every operation rounds is to do so
    is_written: bool,
    /// the outputs under other readings, if these are right as well
    readings: Vec<(Reading, Vec<Literal>)>,
    /// how far each element may be off; asked for where a tolerance is exceeded
    errors: Arc<ElementErrors>,
}

impl Meaning {
    /// What a graph gives for inputs by name.
    pub fn of(graph: &Graph, inputs: &FxHashMap<Arc<str>, Literal>, limits: Limits) -> Result<Meaning> {
        Meaning::under(graph, inputs, &Env::new(), limits)
    }

    /// What a kernel gives for its inputs. `None` where it cannot be said as a graph: where it looks up what it reads or draws at random, or
    /// stores parts of a tensor.
    pub fn of_kernel(kernel: &Kernel, inputs: &[Literal], env: &Env, limits: Limits) -> Result<Option<Meaning>> {
        let numbered = |letter: &str, count: usize| (0..count).map(|k| format!("{letter}{k}")).collect::<Vec<_>>();
        let [names, outputs] = [numbered("x", kernel.inputs.len()), numbered("y", kernel.outputs.len())];
        let Some(graph) = tile::graph_of(kernel, "kernel", &names, &outputs)? else { return Ok(None) };
        let names = names.into_iter().map(Arc::from);
        Meaning::under(&graph, &names.zip(inputs.iter().cloned()).collect(), env, limits).map(Some)
    }

    /// What a graph gives for inputs by name, where some symbols are bound already: of a part of a graph, those that other parts bind.
    pub fn under(graph: &Graph, inputs: &FxHashMap<Arc<str>, Literal>, bound: &Env, limits: Limits) -> Result<Meaning> {
        let options = Options { reading: Reading::Exact, limits };
        let evaluate = |graph: &Graph| evaluate_under(graph, inputs, bound, &options);
        let outputs = evaluate(graph)?;
        let env = sizes(graph, inputs, bound);
        let errors = errors_between_jumps(graph, &env);
        let mut moved = Vec::new();
        for sign in [1.0, -1.0] {
            let other = with_moved_jumps(graph, &errors, sign)?;
            // Moved indices may leave their tensor; what fails so says nothing.
            moved.extend(other.and_then(|other| evaluate(&other).ok()));
        }
        let mut tolerances: Vec<_> = (0..outputs.len()).map(|k| Tolerance::of_output(graph, k, &env)).collect();
        if outputs.iter().zip(&tolerances).any(|(output, tolerance)| tolerance.drowns(output)) {
            let rounded = Options { reading: Reading::Rounded, limits };
            let rounded = evaluate_under(graph, inputs, bound, &rounded)?;
            for ((exact, rounded), tolerance) in outputs.iter().zip(&rounded).zip(&mut tolerances) {
                *tolerance = tolerance.fitted(exact, rounded);
            }
        }
        let errors = Arc::new(ElementErrors::new(graph, inputs, bound, limits));
        Ok(Meaning { outputs, moved, tolerances, is_written: false, readings: Vec::new(), errors })
    }

    /// The same, but an output may also be what the graph gives under other readings: where exact arithmetic comes to something else, that
    /// is no fault of an execution.
    pub fn or_read(mut self, readings: &[Reading]) -> Result<Meaning> {
        for reading in readings {
            let outputs = self.errors.read(&self.errors.graph, *reading)?;
            self.readings.push((*reading, outputs));
        }
        Ok(self)
    }

    /// The same for executions that round every operation as it is written: an element that leaves the range of a type on the way does so,
    /// also where exact arithmetic would come back into it.
    pub fn as_written(mut self) -> Result<Meaning> {
        let rounded = self.errors.read(&self.errors.graph, Reading::Rounded)?;
        for (exact, rounded) in self.outputs.iter_mut().zip(&rounded) {
            if exact.dtype().is_float() && exact.ty() == rounded.ty() {
                let pairs = exact.to_f64s().into_iter().zip(rounded.to_f64s());
                let values: Vec<f64> = pairs.map(|(x, y)| if y.is_finite() { x } else { y }).collect();
                *exact = Literal::from_f64s(exact.dtype(), exact.sizes().to_vec(), &values)?;
            }
        }
        self.is_written = true;
        self.readings.push((Reading::Rounded, rounded));
        Ok(self)
    }

    /// The same, where only exact arithmetic is right.
    pub fn exact(self) -> Meaning {
        Meaning { readings: Vec::new(), ..self }
    }

    /// The outputs under another reading, if these are right as well.
    pub fn read(&self, reading: Reading) -> Option<&[Literal]> {
        self.readings.iter().find(|(own, _)| *own == reading).map(|(_, outputs)| outputs.as_slice())
    }

    /// The outputs.
    pub fn outputs(&self) -> &[Literal] {
        &self.outputs
    }

    /// Whether these may be the outputs of an execution; the first that may not, with why.
    pub fn check(&self, actual: &[Literal]) -> std::result::Result<(), (usize, Mismatch)> {
        for (k, actual) in actual.iter().enumerate().take(self.outputs.len()) {
            self.measure(k, actual).map_err(|mismatch| (k, mismatch))?;
        }
        Ok(())
    }

    /// Whether this may be the output of that number, and where it is farthest from what it should be.
    pub fn measure(&self, output: usize, actual: &Literal) -> std::result::Result<Agreed, Mismatch> {
        let expected = &self.outputs[output];
        // Sizes may hang on what was moved.
        let moved = self.moved.iter().map(|outputs| &outputs[output]).filter(|other| other.ty() == expected.ty());
        let moved: Vec<&Literal> = moved.collect();
        let agreement = Agreement::Within(self.tolerances[output]);
        let mut measured = compare_between(expected, &moved, actual, &agreement, None);
        if let (Err(Mismatch::Elements { .. }), Some(errors)) = (&measured, self.errors.of(output)) {
            measured = compare_between(expected, &moved, actual, &agreement, Some(errors));
        }
        if let Err(Mismatch::Elements { .. }) = &measured {
            measured = self.measure_beside_jumps(expected, output, actual).or(measured);
        }
        if measured.as_ref().is_ok_and(|agreed| !agreed.is_steep) {
            return measured;
        }
        let mut others = self.readings.iter().filter(|(_, outputs)| outputs[output].ty() == actual.ty());
        let agreed = others.find_map(|(reading, outputs)| {
            let read = &outputs[output];
            let agreed = compare(read, actual, &agreement).or_else(|_| self.measure_beside_jumps(read, output, actual));
            Some(Agreed { reading: *reading, ..agreed.ok()? })
        });
        match agreed {
            Some(agreed) => Ok(agreed),
            None => measured.or_else(|mismatch| match mismatch {
                Mismatch::Elements { .. } => self.measure_drawn(output, actual).ok_or(mismatch),
                Mismatch::Types { .. } => Err(mismatch),
            }),
        }
    }

    /// Whether this may be an output where roundings are drawn at random: of loops and of positions no slope is known, and at a pole none
    /// says how far a result goes. Where a model leaves the range of its types by itself, executions may do so, or all of it may stay inside.
    fn measure_drawn(&self, output: usize, actual: &Literal) -> Option<Agreed> {
        let exact = self.measure_drawn_as(&self.outputs[output], output, actual, self.is_written);
        exact.or_else(|| {
            let rounded = &self.read(Reading::Rounded).filter(|_| !self.is_written)?[output];
            let agreed = self.measure_drawn_as(rounded, output, actual, true)?;
            Some(Agreed { reading: Reading::Rounded, ..agreed })
        })
    }

    fn measure_drawn_as(&self, expected: &Literal, output: usize, actual: &Literal, ranges: bool) -> Option<Agreed> {
        let signs = self.read(Reading::Held).is_some();
        let mut hull = Hull::around(expected, self.tolerances[output], self.errors.of(output));
        let readings = self.readings.iter().map(|(_, outputs)| outputs);
        readings.chain(&self.moved).for_each(|outputs| hull.include(&outputs[output]));
        for draw in 0..self.errors.draws() {
            hull.include(&self.errors.drawn(draw, signs, ranges)?[output]);
            match hull.measure(actual) {
                Ok(agreed) => return Some(agreed),
                // The first ones have come a small part of the way: no further one will come so far.
                Err(used) if draw > 1 && used.is_finite() && used > 64.0 => return None,
                Err(_) => {}
            }
        }
        None
    }

    /// Whether this may be an output where every number that enters a jump may be off by its own error.
    fn measure_beside_jumps(
        &self,
        expected: &Literal,
        output: usize,
        actual: &Literal,
    ) -> std::result::Result<Agreed, Mismatch> {
        let BesideJumps { errors, moved } = self.errors.jumps();
        let moved = moved.iter().map(|outputs| &outputs[output]).filter(|other| other.ty() == expected.ty());
        let moved: Vec<&Literal> = moved.collect();
        let agreement = Agreement::Within(self.tolerances[output]);
        let near = compare_between(expected, &moved, actual, &agreement, None);
        near.or_else(|_| compare_between(expected, &moved, actual, &agreement, errors[output].as_deref()))
    }
}

/// The sizes that inputs bind, and those that are bound already.
pub(super) fn sizes(graph: &Graph, inputs: &FxHashMap<Arc<str>, Literal>, bound: &Env) -> Env {
    let mut env = bound.clone();
    for value in graph.inputs() {
        let Some(given) = inputs.get(graph.input_name(*value)) else { continue };
        for (dim, size) in graph.ty(*value).shape.dims().iter().zip(given.sizes()) {
            if let Some(symbol) = dim.as_symbol() {
                env.bind(symbol.clone(), *size as i64);
            }
        }
    }
    env
}

/// The error of each node's results relative to their magnitude. What comes out of a jump has none: it is right, or it is on the
/// other side.
fn errors_between_jumps(graph: &Graph, env: &Env) -> Vec<f64> {
    let mut errors: Vec<f64> = Vec::with_capacity(graph.nodes().len());
    for node in graph.nodes() {
        let given: Vec<f64> = node.args().iter().map(|a| errors[a.node()]).collect();
        errors.push(match node.prim() {
            Prim::Map(row) => step_errors(&row.expr, &given).last().copied().unwrap_or(0.0),
            _ if node.types().iter().all(|ty| !ty.dtype.is_float()) => 0.0,
            _ => given.iter().copied().fold(0.0, f64::max) + own_error(graph, node, env, &errors),
        });
    }
    errors
}

/// The error of each step of an expression, given those of its arguments.
fn step_errors(expr: &Expr, given: &[f64]) -> Vec<f64> {
    let mut errors: Vec<f64> = Vec::with_capacity(expr.nodes().len());
    for (node, dtype) in expr.nodes() {
        let carried = node.operands().iter().map(|k| errors[*k as usize]).fold(0.0, f64::max);
        errors.push(match node {
            ExprNode::Arg(k) => given[*k as usize],
            _ if is_jump(node, *dtype) => 0.0,
            _ => carried + step_error(node, *dtype),
        });
    }
    errors
}

/// Whether a step of an expression decides between results.
pub(super) fn is_jump(node: &ExprNode, dtype: DType) -> bool {
    match node {
        ExprNode::Apply(op, _) => op.jumps(),
        ExprNode::Cast(_) => !dtype.is_float(),
        _ => false,
    }
}

/// The graph with what enters jumps moved by its error, up or down; `None` where nothing does.
fn with_moved_jumps(graph: &Graph, errors: &[f64], sign: f64) -> Result<Option<Graph>> {
    rewrite_outside_regions(graph, &Budget::UNLIMITED, |rebuild, id| {
        let node = &graph.nodes()[id];
        let Prim::Map(row) = node.prim() else { return Ok(None) };
        let given: Vec<f64> = node.args().iter().map(|a| errors[a.node()]).collect();
        let Some(expr) = moved(&row.expr, &given, sign) else { return Ok(None) };
        let args: Vec<_> = node.args().iter().map(|a| rebuild.moved(*a)).collect();
        replaced(rebuild.add(Map { expr, shape: row.shape.clone() }, &args)?)
    })
}

/// The expression with what enters its jumps moved, where anything that errs does.
fn moved(expr: &Expr, given: &[f64], sign: f64) -> Option<Expr> {
    let (scope, errors) = (Scope::default(), step_errors(expr, given));
    let (mut terms, mut is_other): (Vec<Term<'_>>, bool) = (Vec::with_capacity(errors.len()), false);
    for (node, dtype) in expr.nodes() {
        let places = node.operands();
        let mut operands: Vec<Term<'_>> = places.iter().map(|k| terms[*k as usize]).collect();
        let error = places.iter().map(|k| errors[*k as usize]).fold(0.0, f64::max);
        if error > 0.0 && is_jump(node, *dtype) && operands[0].dtype().is_float() {
            operands[0] = nudged(&scope, &operands, sign * SAFETY * error);
            is_other = true;
        }
        terms.push(scope.step(node, *dtype, &operands));
    }
    let args: Vec<Term<'_>> = expr.args().iter().enumerate().map(|(k, d)| scope.argument(k, *d)).collect();
    is_other.then(|| Expr::of(*terms.last().expect("an expression has a result"), &args))
}

/// The first operand of a jump moved by a part of its magnitude: of that beside it for comparisons, of one step otherwise.
fn nudged<'s>(scope: &'s Scope, operands: &[Term<'s>], by: f64) -> Term<'s> {
    let x = operands[0];
    let beside = operands.get(1).map_or_else(|| scope.one(x), |y| y.apply(Scalar::Abs));
    let magnitude = Term::call(Scalar::Add, &[x.apply(Scalar::Abs), beside]);
    Term::call(Scalar::Add, &[x, Term::call(Scalar::Mul, &[magnitude, scope.float(x, by)])])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Builder;
    use crate::ops::prim::Monoid;
    use crate::tensor::{Dim, Shape};

    fn quantised() -> (Graph, FxHashMap<Arc<str>, Literal>) {
        let b = Builder::new("quantise");
        let x = b.input("x", DType::F32, Shape::new([3usize]));
        b.output("q", (x / 0.5).round().cast(DType::I8));
        b.output("above", x.gt(b.scalar(DType::F32, 0.5).expand(Shape::new([3usize]))));
        let given = Literal::f32s(&[0.3, 0.75, 0.5]);
        (b.finish().unwrap(), [(Arc::from("x"), given)].into_iter().collect())
    }

    #[test]
    fn small_numbers_are_compared_at_their_scale() {
        let b = Builder::new("quotients");
        let x = b.input("x", DType::F32, Shape::new([3usize]));
        b.output("small", x / 1e15 / 1e15);
        b.output("difference", (x + 1.0) - x - 1.0);
        b.output("nothing", x - x);
        let graph = b.finish().unwrap();
        let inputs = [(Arc::from("x"), Literal::f32s(&[0.3, 3.7, -1.1]))].into_iter().collect();
        let meaning = Meaning::of(&graph, &inputs, Limits::default()).unwrap();
        let [small, difference, nothing] = meaning.outputs() else { panic!("three outputs") };
        let zeros = Literal::f32s(&[0.0; 3]);
        assert!(meaning.measure(0, small).is_ok());
        assert!(meaning.measure(0, &zeros).is_err(), "a wholly wrong result");
        let near: Vec<f32> = small.to_f64s().iter().map(|x| (x * (1.0 + 2e-7)) as f32).collect();
        assert!(meaning.measure(0, &Literal::f32s(&near)).is_ok());
        // What cancels leaves the roundings of what was there before.
        let left = Literal::f32s(&[5e-8, -1e-7, 0.0]);
        assert_eq!(difference, &zeros);
        assert!(meaning.measure(1, &left).is_ok() && meaning.measure(2, &left).is_ok(), "{nothing:?}");
    }

    /// Whether an output may be off by so much of what it is in one element.
    fn takes(graph: &Graph, x: Literal, off: f64) -> bool {
        let meaning = Meaning::of(graph, &[(Arc::from("x"), x)].into_iter().collect(), Limits::default()).unwrap();
        let expected = &meaning.outputs()[0];
        let mut values = expected.to_f64s();
        values[0] *= 1.0 + off;
        let actual = Literal::from_f64s(expected.dtype(), expected.sizes().to_vec(), &values).unwrap();
        meaning.measure(0, &actual).is_ok()
    }

    #[test]
    fn a_steep_function_hands_on_more_than_it_got() {
        let graph = |scale: f64| {
            let b = Builder::new("steep");
            let x = b.input("x", DType::F32, Shape::new([1usize]));
            b.output("y", (x * scale).tanh().log1p());
            b.finish().unwrap()
        };
        // tanh(−4) is 1/1490 from −1, where a logarithm of 1 + x has the slope 1490: of two last places there, 1490 · 2 · 2⁻²⁴ are left.
        let x = || Literal::f32s(&[-4.0]);
        assert!(takes(&graph(1.0), x(), 2e-5));
        assert!(!takes(&graph(1.0), x(), 1e-3));
        // Far from there it is as flat as any other.
        assert!(!takes(&graph(0.1), x(), 2e-5));
    }

    #[test]
    fn branches_hand_on_what_they_capture_and_what_is_steep_in_them() {
        // What is steep stands in one branch of two, inside another one, behind what errs outside; names and sizes are those of the branch.
        let graph = |scale: f64, holds: i64| {
            let n = || Shape::new([Dim::named("n")]);
            let b = Builder::new("branches");
            let x = b.input("x", DType::F32, n());
            let near = |b: &Builder, steep: bool| {
                let r = b.region("inner");
                let y = r.input("error of y", DType::F32, Shape::new([Dim::named("m")]));
                r.output("z", if steep { y.log1p() } else { y + 1.0 });
                r.finish().unwrap()
            };
            let far = |steep: bool| {
                let r = b.region("outer");
                let c = r.input("c", DType::Bool, Shape::scalar());
                let y = r.input("y", DType::F32, n());
                let results = r.if_else(c, near(&r, steep), near(&r, false), &[y]).unwrap();
                r.output("z", results[0]);
                r.finish().unwrap()
            };
            let y = (x * scale).tanh();
            let holds = b.int(DType::Bool, holds);
            let results = b.if_else(holds, far(true), far(false), &[b.int(DType::Bool, 1), y]).unwrap();
            b.output("y", results[0]);
            b.finish().unwrap()
        };
        let x = || Literal::f32s(&[-4.0]);
        assert!(takes(&graph(1.0, 1), x(), 2e-5));
        assert!(!takes(&graph(1.0, 1), x(), 1e-3));
        assert!(!takes(&graph(0.1, 1), x(), 2e-5), "nothing is steep");
        assert!(!takes(&graph(0.1, 0), x(), 2e-5), "the other branch is flat");
    }

    #[test]
    fn sums_that_cancel_leave_the_errors_of_their_terms() {
        let graph = |by: f64| {
            let b = Builder::new("cancelling");
            let x = b.input("x", DType::BF16, Shape::new([2usize, 4]));
            let y = x * by;
            b.output("y", y / y.sum(&[1]));
            b.finish().unwrap()
        };
        let rows = |last: f64| {
            Literal::from_f64s(DType::BF16, [2, 4], &[100.0, -99.0, 50.0, last, 1.0, 1.0, 1.0, 1.0]).unwrap()
        };
        // Terms of 100, each rounded to one part in 256, sum to 1: the quotient may be off by as much as it is.
        assert!(takes(&graph(1.1), rows(-50.0), 0.5));
        assert!(!takes(&graph(1.1), rows(-50.0), 40.0));
        assert!(!takes(&graph(1.1), rows(50.0), 0.5), "nothing cancels");
    }

    #[test]
    fn loops_hand_on_what_is_steep_in_them() {
        let graph = |inner: f64| {
            let b = Builder::new("loop");
            let x = b.input("x", DType::F32, Shape::new([1usize]));
            let r = b.region("body");
            r.input("trip", DType::I64, Shape::scalar());
            let y = r.input("y", DType::F32, Shape::new([1usize]));
            r.output("goes on", r.int(DType::Bool, 1));
            r.output("y", (y * inner).exp().sin());
            let body = r.finish().unwrap();
            b.output("y", b.loop_(b.int(DType::I64, 1), b.int(DType::Bool, 1), &[x], body, &[]).unwrap()[0]);
            b.finish().unwrap()
        };
        // One part in 2²⁴ of 11.7 becomes 0.08 of its exponential; of 2.1 it is next to nothing.
        assert!(takes(&graph(3.9), Literal::f32s(&[3.0]), 0.02));
        assert!(!takes(&graph(3.9), Literal::f32s(&[3.0]), 1.5));
        assert!(!takes(&graph(0.7), Literal::f32s(&[3.0]), 1e-3));
    }

    #[test]
    fn what_is_first_of_equal_sums_may_be_another_one() {
        let b = Builder::new("positions");
        let x = b.input("x", DType::F32, Shape::new([2usize, 2, 3]));
        b.output("best", x.sum(&[2]).reduce(Monoid::ArgMax, &[1]));
        let graph = b.finish().unwrap();
        // 0.1 + 0.7 + 0.3 in another order, then in the same with one of them larger; last, numbers whose sums are exact.
        let meaning = |rows: [f32; 12]| {
            let x = Literal::f32s(&rows).reshaped([2, 2, 3]).unwrap();
            Meaning::of(&graph, &[(Arc::from("x"), x)].into_iter().collect(), Limits::default()).unwrap()
        };
        let best = |meaning: &Meaning, values: [i64; 2]| {
            let sizes = meaning.outputs()[0].sizes().to_vec();
            meaning.measure(0, &Literal::from_ints(DType::I64, sizes, &values).unwrap()).is_ok()
        };
        let near = meaning([0.1, 0.7, 0.3, 0.3, 0.1, 0.7, 0.1, 0.7, 0.3, 0.4, 0.7, 0.1]);
        assert!(best(&near, [0, 1]) && best(&near, [1, 1]));
        assert!(!best(&near, [0, 0]));
        let exact = meaning([1.0, 7.0, 3.0, 3.0, 1.0, 7.0, 1.0, 0.5, 0.25, 0.25, 1.0, 0.5]);
        assert!(best(&exact, [0, 0]) && !best(&exact, [1, 0]) && !best(&exact, [0, 1]));
    }

    #[test]
    fn at_a_pole_a_result_goes_anywhere() {
        let b = Builder::new("pole");
        let x = b.input("x", DType::F32, Shape::new([2usize]));
        b.output("y", b.scalar(DType::F32, 1.0).expand(Shape::new([2usize])) / (x.tanh() + 1.0));
        let graph = b.finish().unwrap();
        // 1 + tanh(−9) is 3e-8, and 0 where tanh is rounded.
        let inputs = [(Arc::from("x"), Literal::f32s(&[-9.0, 1.0]))].into_iter().collect();
        let meaning = Meaning::of(&graph, &inputs, Limits::default()).unwrap();
        let last = meaning.outputs()[0].float(1) as f32;
        assert!(meaning.measure(0, &Literal::f32s(&[f32::INFINITY, last])).is_ok());
        assert!(meaning.measure(0, &Literal::f32s(&[f32::NAN, last])).is_err());
    }

    /// Cosines of vectors with themselves, whose angle is 0 or no number; and what comes back from where a function is flat.
    #[test]
    fn what_roundings_make_of_ends_of_a_domain_is_right() {
        let b = Builder::new("ends");
        let x = b.input("x", DType::F32, Shape::new([32usize, 16]));
        let unit = x / (x * x).reduce_keep(Monoid::Sum, &[1]).sqrt();
        b.output("angles", unit.matmul(unit.transpose()).apply(Scalar::Acos));
        b.output("back", (x * 6.0).tanh().apply(Scalar::Atanh));
        let graph = b.finish().unwrap();
        for seed in 0..4 {
            let words = crate::philox::words(seed, 0, 0).take(512);
            let x: Vec<f32> = words.map(|word| word as i32 as f32 / 2f32.powi(30)).collect();
            let x = Literal::new(DType::F32, [32, 16], x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>());
            let inputs: FxHashMap<_, _> = [(Arc::from("x"), x.unwrap())].into_iter().collect();
            let meaning = Meaning::of(&graph, &inputs, Limits::default()).unwrap();
            for ranges in [false, true] {
                let reading = Reading::Drawn { seed: 1000, signs: false, ranges };
                let options = Options { reading, limits: Limits::default() };
                let drawn = evaluate_under(&graph, &inputs, &Env::new(), &options).unwrap();
                let meaning = if ranges { meaning.clone().as_written().unwrap() } else { meaning.clone() };
                assert_eq!(meaning.check(&drawn).map_err(|(k, why)| (k, why.to_string())), Ok(()), "{seed}");
            }
        }
    }

    #[test]
    fn what_steps_is_told() {
        let (graph, inputs) = quantised();
        let meaning = Meaning::of(&graph, &inputs, Limits::default()).unwrap();
        let other = Literal::from_ints(DType::I8, [3], &[1, 1, 1]).unwrap();
        let agreed = meaning.measure(0, &other).unwrap();
        let stepped = agreed.stepped.unwrap();
        assert_eq!((agreed.worst, stepped.count, stepped.of), (None, 1, 3));
        assert_eq!((stepped.farthest.distance(), stepped.farthest.index), (1.0, vec![1]));
        assert_eq!(meaning.measure(0, &meaning.outputs()[0].clone()).unwrap().stepped, None);
    }

    #[test]
    fn a_quantised_sum_that_cancels_may_fall_on_either_side_of_a_tie() {
        let b = Builder::new("quantised sum");
        let x = b.input("x", DType::F32, Shape::new([2usize, 4]));
        b.output("q", x.sum(&[1]).round());
        let graph = b.finish().unwrap();
        // Terms of 1000 leave errors of some 1e-4: 1e-5 from a tie that decides, 0.1 from it nothing does.
        let rows = [1000.1, -1000.1, 0.3, 0.200_01, 1000.1, -1000.1, 0.3, 0.3];
        let inputs = [(Arc::from("x"), Literal::f32s(&rows).reshaped([2, 4]).unwrap())].into_iter().collect();
        let meaning = Meaning::of(&graph, &inputs, Limits::default()).unwrap();
        let q = |values: [f32; 2]| Literal::f32s(&values).reshaped(meaning.outputs()[0].sizes().to_vec()).unwrap();
        assert_eq!(meaning.outputs(), [q([1.0, 1.0])]);
        let agreed = meaning.measure(0, &q([0.0, 1.0])).unwrap();
        assert_eq!(agreed.stepped.map(|stepped| (stepped.count, stepped.of)), Some((1, 2)));
        for wrong in [[1.0, 0.0], [2.0, 1.0], [-1.0, 1.0]] {
            assert!(meaning.measure(0, &q(wrong)).is_err(), "{wrong:?}");
        }
        // Without terms that cancel there is no such error.
        let rows = [0.1, -0.1, 0.3, 0.200_01, 0.1, -0.1, 0.3, 0.3];
        let inputs = [(Arc::from("x"), Literal::f32s(&rows).reshaped([2, 4]).unwrap())].into_iter().collect();
        let meaning = Meaning::of(&graph, &inputs, Limits::default()).unwrap();
        assert!(meaning.measure(0, &q([0.0, 1.0])).is_err());
    }

    #[test]
    fn a_model_that_leaves_the_range_of_its_types_has_several_readings() {
        let b = Builder::new("overflowing");
        let x = b.input("x", DType::F16, Shape::new([1usize]));
        b.output("y", x * 300.0 / 1000.0);
        b.output("z", (x.cast(DType::F32) * 300.0).cast(DType::F16) / 1000.0);
        let graph = b.finish().unwrap();
        let half = |value: f64| Literal::from_f64s(DType::F16, [1], &[value]).unwrap();
        let inputs = [(Arc::from("x"), half(300.0))].into_iter().collect();
        let exact = Meaning::of(&graph, &inputs, Limits::default()).unwrap();
        // As it is written, a conversion rounds and a product does not have to.
        assert_eq!(exact.outputs(), [half(90.0), half(f64::INFINITY)]);
        let reading =
            |meaning: &Meaning, k: usize, value: f64| meaning.measure(k, &half(value)).ok().map(|a| a.reading);
        assert_eq!((reading(&exact, 0, f64::INFINITY), reading(&exact, 1, 90.0)), (None, None));
        let any = exact.clone().or_read(&[Reading::Rounded, Reading::Held]).unwrap();
        assert_eq!(reading(&any, 0, 90.0), Some(Reading::Exact));
        assert_eq!(reading(&any, 0, f64::INFINITY), Some(Reading::Rounded));
        assert_eq!((reading(&any, 1, 90.0), reading(&any, 1, 80.0)), (Some(Reading::Held), None));
        let strict = exact.as_written().unwrap();
        assert_eq!((reading(&strict, 0, 90.0), reading(&strict, 0, f64::INFINITY)), (None, Some(Reading::Exact)));
    }

    #[test]
    fn what_lies_on_a_jump_may_fall_on_either_side() {
        let (graph, inputs) = quantised();
        let meaning = Meaning::of(&graph, &inputs, Limits::default()).unwrap();
        let q = |last: [i64; 3]| Literal::from_ints(DType::I8, [3], &last).unwrap();
        let above = |last: i64| Literal::from_ints(DType::Bool, [3], &[0, 1, last]).unwrap();
        assert_eq!(meaning.outputs(), [q([1, 2, 1]), above(0)]);
        // 0.75 / 0.5 is a tie; 0.3 / 0.5 and 0.5 / 0.5 are not.
        assert!(meaning.check(&[q([1, 1, 1]), above(0)]).is_ok());
        assert_eq!(meaning.check(&[q([0, 2, 1]), above(0)]).unwrap_err().0, 0);
        assert!(meaning.check(&[q([1, 2, 2]), above(0)]).is_err());
        assert!(meaning.check(&[q([1, 3, 1]), above(0)]).is_err());
        // Inputs are what they are: nothing errs before the comparison.
        assert_eq!(meaning.check(&[q([1, 2, 1]), above(1)]).unwrap_err().0, 1);
    }
}
