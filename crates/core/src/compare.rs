//! Whether two results agree: the one place of tolerances.
//!
//! Integers and bools must be equal. Floats may differ by a bound that follows from the graph: every step may round and
//! err by what the scalar table allows, a sum of `k` products errs by about `√k` roundings, and errors add up along the
//! longest way to the output. What cancels leaves an error that does not shrink with the result: one rounding of a number of
//! magnitude 1 is allowed everywhere; where results are much smaller, as much as rounding every operation shows to be lost. What
//! is beyond that is looked at element by element: an element may be off by what roundings become on the way to it, by the slopes
//! of the functions there (`spread`). NaN agrees with NaN, an infinity with itself. Where the smallest error decides between two
//! results, [`Meaning`] takes both, and tells where it did.

mod element_errors;
mod hull;
mod meaning;
mod spread;

pub use meaning::Meaning;

use std::fmt;

use crate::graph::{Graph, Node};
use crate::ops::prim::Monoid;
use crate::ops::{ExprNode, Prim, Scalar};
use crate::reference::Reading;
use crate::tensor::{Class, DType, Dim, Env, Literal, TensorType};
use crate::tile::{AxisSet, Kernel, Op};

/// How far two results may differ.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub enum Agreement {
    /// not at all: the same bits (any NaN for any NaN)
    #[default]
    Exact,
    /// by a tolerance
    Within(Tolerance),
}

/// The bound on a float element: `relative · (|expected| + typical) + absolute`, where `typical` is the root mean square
/// of the expected tensor: what cancels in one element has left its rounding errors behind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// multiplies magnitudes
    pub relative: f64,
    /// added whatever the magnitude
    pub absolute: f64,
}

impl Tolerance {
    /// What an execution of `graph` may err in output `output`, when symbols have the sizes in `env`.
    pub fn of_output(graph: &Graph, output: usize, env: &Env) -> Tolerance {
        let value = graph.outputs()[output].value;
        let relative = SAFETY * relative_errors(graph, env, &[])[value.node()];
        Tolerance { relative, absolute: graph.ty(value).dtype.epsilon() }
    }

    /// What an execution of `kernel` may err in output `output`, when symbols have the sizes in `env`.
    pub fn of_kernel(kernel: &Kernel, output: usize, env: &Env) -> Tolerance {
        let errors = kernel_errors(kernel, env);
        let stores = kernel.stores.iter().filter(|store| store.output == output);
        let relative = stores.map(|store| errors[store.value.index()]).fold(0.0, f64::max);
        Tolerance { relative: SAFETY * relative, absolute: kernel.outputs[output].ty.dtype.epsilon() }
    }

    /// Whether what is added whatever the magnitude is most of the bound for a tensor that is not 0 everywhere.
    fn drowns(&self, expected: &Literal) -> bool {
        let typical = typical(expected);
        typical > 0.0 && self.relative * typical < self.absolute / 4.0
    }

    /// The tolerance for a tensor of small numbers, given what it is where every operation rounds. How far that is from what is meant
    /// shows what cancels on the way; besides it, numbers may be off by what the largest may, and vanish where they have no
    /// normal form in the type. Never more than before.
    fn fitted(self, expected: &Literal, rounded: &Literal) -> Tolerance {
        if !self.drowns(expected) || rounded.ty() != expected.ty() {
            return self;
        }
        let (mut largest, mut lost) = (0.0f64, 0.0f64);
        for (x, y) in expected.to_f64s().into_iter().zip(rounded.to_f64s()).filter(|(x, _)| x.is_finite()) {
            largest = largest.max(x.abs());
            lost = if y.is_nan() { f64::INFINITY } else { lost.max((x - y).abs()) };
        }
        let vanishing = expected.dtype().format().map_or(0.0, |format| f64::from(1 - format.bias).exp2());
        let absolute = CANCELLING * lost + self.relative * largest + vanishing;
        Tolerance { absolute: absolute.min(self.absolute), ..self }
    }

    /// `ulps` roundings of a type.
    pub fn ulps(dtype: DType, ulps: f64) -> Tolerance {
        Tolerance { relative: ulps * dtype.epsilon(), absolute: 0.0 }
    }

    /// The bound for an element of a tensor whose typical magnitude is known.
    pub fn bound(&self, expected: f64, typical: f64) -> f64 {
        self.relative * (expected.abs() + typical) + self.absolute
    }
}

/// An element with what it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct Worst {
    /// coordinates
    pub index: Vec<usize>,
    /// what it should be
    pub expected: f64,
    /// what it is
    pub actual: f64,
    /// how far it may be off
    pub bound: f64,
    /// the root mean square of what the tensor should be
    pub typical: f64,
}

impl Worst {
    /// How far it is off.
    pub fn distance(&self) -> f64 {
        (self.actual - self.expected).abs()
    }

    /// How far it is off, in units of the last place of the larger of the element and the typical one: what cancels in one
    /// element has rounding errors of the others. For exact types, the distance.
    pub fn ulps(&self, dtype: DType) -> f64 {
        let magnitude = self.expected.abs().max(self.typical);
        match dtype.epsilon() {
            0.0 => self.distance(),
            epsilon if magnitude > 0.0 && magnitude.is_finite() => {
                self.distance() / (epsilon * magnitude.log2().floor().exp2())
            }
            _ if self.distance() == 0.0 => 0.0,
            _ => f64::INFINITY,
        }
    }

    /// How much of what is allowed it uses; over 1 where it is beyond.
    pub fn used(&self) -> f64 {
        let used = self.distance() / self.bound;
        if used.is_nan() { f64::INFINITY } else { used }
    }
}

/// Two results that agree.
#[derive(Clone, Debug, PartialEq)]
pub struct Agreed {
    /// the element that uses most of its bound; none where all are equal
    pub worst: Option<Worst>,
    /// elements that are right because the smallest error decides between two results, and which are beyond every bound otherwise
    pub stepped: Option<Stepped>,
    /// elements that are no numbers, in both
    pub nan: usize,
    /// elements that may be off by more than they and the tensor's others are: whatever they come to agrees
    pub loose: usize,
    /// whether it is beyond the tolerance, and within what roundings become by the slopes of the graph: where what is meant and what it
    /// comes to where every operation rounds are far apart, too
    pub is_steep: bool,
    /// how the graph is read for what it agrees with
    pub reading: Reading,
}

/// Elements that stand on the other side of a jump than what is expected.
#[derive(Clone, Debug, PartialEq)]
pub struct Stepped {
    /// how many there are
    pub count: usize,
    /// of how many
    pub of: usize,
    /// the one that is farthest from what is expected
    pub farthest: Worst,
}

/// Two results that do not agree.
#[derive(Clone, Debug, PartialEq)]
pub enum Mismatch {
    /// different element types or sizes
    Types {
        /// what it should be
        expected: TensorType,
        /// what it is
        actual: TensorType,
    },
    /// elements beyond their bounds
    Elements {
        /// the element that exceeds its bound most
        worst: Worst,
        /// how many do
        beyond: usize,
        /// of how many
        count: usize,
    },
}

/// Whether `actual` is `expected`, and where they are farthest apart.
pub fn compare(expected: &Literal, actual: &Literal, agreement: &Agreement) -> Result<Agreed, Mismatch> {
    compare_between(expected, &[], actual, agreement, None)
}

/// As [`compare`], but an element may also be what one of the others has there, or lie between; and it may be off by its own error,
/// where that is known.
fn compare_between(
    expected: &Literal,
    others: &[&Literal],
    actual: &Literal,
    agreement: &Agreement,
    spread: Option<&[f64]>,
) -> Result<Agreed, Mismatch> {
    if expected.ty() != actual.ty() {
        return Err(Mismatch::Types { expected: expected.ty(), actual: actual.ty() });
    }
    let typical = typical(expected);
    let (mut worst, mut most, mut beyond, mut loose) = (None, 0.0, 0, 0);
    let (mut farthest, mut steps): (Option<(usize, f64)>, usize) = (None, 0);
    let distance = |k: usize| (expected.float(k) - actual.float(k)).abs();
    for k in 0..expected.count() {
        let own = spread.map_or(0.0, |spread| SAFETY * spread[k]);
        let own = if own.is_finite() { own } else { 0.0 };
        let bound_of = |x: f64| match agreement {
            Agreement::Within(tolerance) => tolerance.bound(x, typical).max(own),
            Agreement::Exact => own,
        };
        let bound = bound_of(expected.float(k));
        loose += usize::from(is_loose(expected, k, bound, typical));
        let excess = excess(expected, actual, k, bound);
        if excess > 1.0 && lies_between(expected, others, actual, k, &bound_of) {
            steps += 1;
            if farthest.is_none_or(|(other, _)| distance(k) > distance(other)) {
                farthest = Some((k, bound));
            }
            continue;
        }
        if excess > most {
            (worst, most) = (Some((k, bound)), excess);
        }
        beyond += usize::from(excess > 1.0);
    }
    let element = |(k, bound)| Worst {
        index: coordinates(k, expected.sizes()),
        expected: expected.float(k),
        actual: actual.float(k),
        bound,
        typical,
    };
    let stepped = farthest.map(|at| Stepped { count: steps, of: expected.count(), farthest: element(at) });
    match worst.map(element) {
        Some(worst) if beyond > 0 => Err(Mismatch::Elements { worst, beyond, count: expected.count() }),
        worst => {
            let (nan, is_steep) = (count_nan(actual), spread.is_some());
            Ok(Agreed { worst, stepped, nan, loose, is_steep, reading: Reading::Exact })
        }
    }
}

/// Whether a bound says nothing of an element of a tensor whose typical magnitude is known.
fn is_loose(expected: &Literal, k: usize, bound: f64, typical: f64) -> bool {
    let x = expected.float(k);
    expected.dtype().is_float() && x.is_finite() && typical > 0.0 && bound > x.abs() + typical
}

/// How many elements are no numbers.
fn count_nan(literal: &Literal) -> usize {
    if !literal.dtype().is_float() {
        return 0;
    }
    (0..literal.count()).filter(|k| literal.float(*k).is_nan()).count()
}

/// How much of its bound an element uses: 0 where equal, over 1 where it is beyond.
fn excess(expected: &Literal, actual: &Literal, k: usize, bound: f64) -> f64 {
    if expected.dtype().class() != Class::Float {
        return if expected.int(k) == actual.int(k) { 0.0 } else { f64::INFINITY };
    }
    let (e, a) = (expected.float(k), actual.float(k));
    if e.to_bits() == a.to_bits() || (e.is_nan() && a.is_nan()) {
        return 0.0;
    }
    if e == a {
        return if bound > 0.0 { 0.0 } else { f64::INFINITY }; // zeros of different sign
    }
    let distance = (e - a).abs();
    // NaN, an infinity against a number, and a bound of zero are beyond every bound.
    if distance.is_finite() && bound > 0.0 { distance / bound } else { f64::INFINITY }
}

/// Whether an element is what one of the others has there, as far as a number of its size may be off, or lies between them and what is
/// expected.
fn lies_between(
    expected: &Literal,
    others: &[&Literal],
    actual: &Literal,
    k: usize,
    bound_of: &dyn Fn(f64) -> f64,
) -> bool {
    let between = |literal: &&&Literal| match expected.dtype().class() {
        Class::Float => {
            let (a, b, x) = (expected.float(k), literal.float(k), actual.float(k));
            (a < x && x < b) || (b < x && x < a)
        }
        _ => {
            let (a, b, x) = (expected.int(k), literal.int(k), actual.int(k));
            (a < x && x < b) || (b < x && x < a)
        }
    };
    others.iter().any(|other| between(&other) || excess(other, actual, k, bound_of(other.float(k))) <= 1.0)
}

/// The root mean square of the finite elements.
fn typical(literal: &Literal) -> f64 {
    if !literal.dtype().is_float() {
        return 0.0;
    }
    let finite: Vec<f64> = literal.to_f64s().into_iter().filter(|x| x.is_finite()).collect();
    let largest = finite.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
    if largest == 0.0 {
        return 0.0;
    }
    // Scaled by the largest, so that squares neither overflow nor vanish.
    let squares: f64 = finite.iter().map(|x| (x / largest) * (x / largest)).sum();
    largest * (squares / finite.len() as f64).sqrt()
}

fn coordinates(mut k: usize, sizes: &[usize]) -> Vec<usize> {
    let mut index = vec![0; sizes.len()];
    for axis in (0..sizes.len()).rev() {
        index[axis] = k % sizes[axis];
        k /= sizes[axis];
    }
    index
}

/// Bounds are multiplied by this: roundings of one sign add up faster than chance has it.
const SAFETY: f64 = 4.0;

/// What cancels may leave so many times the error that one way of rounding leaves.
const CANCELLING: f64 = 16.0;

/// Roundings that a function whose slope grows with its value adds, for arguments of everyday size.
const STEEP: f64 = 8.0;

/// The length of a sum, and the number of trips of a loop, that is not known.
const USUAL_LENGTH: f64 = 1024.0;
const USUAL_TRIPS: f64 = 16.0;

/// The error of each node's results relative to their magnitude; those of the inputs are given (missing ones are 0).
fn relative_errors(graph: &Graph, env: &Env, inputs: &[f64]) -> Vec<f64> {
    let mut errors: Vec<f64> = Vec::with_capacity(graph.nodes().len());
    for (id, node) in graph.nodes().iter().enumerate() {
        let input = graph.inputs().iter().position(|v| v.node() == id);
        let given = input.and_then(|k| inputs.get(k)).copied().unwrap_or(0.0);
        let carried = node.args().iter().map(|a| errors[a.node()]).fold(given, f64::max);
        let exact = node.types().iter().all(|ty| !ty.dtype.is_float());
        errors.push(if exact { 0.0 } else { carried + own_error(graph, node, env, &errors) });
    }
    errors
}

/// The error of the value of each step of a kernel relative to its magnitude.
fn kernel_errors(kernel: &Kernel, env: &Env) -> Vec<f64> {
    let length = |over: AxisSet| -> f64 {
        over.iter().map(|axis| kernel.axes[axis].eval(env).map_or(USUAL_LENGTH, |n| n as f64)).product::<f64>().max(1.0)
    };
    let mut errors: Vec<f64> = Vec::with_capacity(kernel.steps.len());
    for step in &kernel.steps {
        let carried = step.op.operands().iter().map(|id| errors[id.index()]).fold(0.0, f64::max);
        let rounding = step.dtype.epsilon();
        let own = match &step.op {
            Op::Map { expr, .. } => expr.nodes().iter().map(|(node, dtype)| step_error(node, *dtype)).sum(),
            Op::Reduce { monoid: Monoid::Sum | Monoid::Prod, over, .. } => rounding * length(*over).sqrt(),
            Op::Prefix { axis, .. } => rounding * length(AxisSet::of(*axis)).sqrt(),
            Op::Dot { over, accumulator, .. } => rounding + accumulator.epsilon() * length(*over).sqrt(),
            Op::Load { .. } | Op::Random { .. } | Op::Reduce { .. } => 0.0,
        };
        errors.push(if step.dtype.is_float() { carried + own } else { 0.0 });
    }
    errors
}

/// What a node adds to the error of its operands.
fn own_error(graph: &Graph, node: &Node, env: &Env, errors: &[f64]) -> f64 {
    let rounding = node.types().iter().map(|ty| ty.dtype.epsilon()).fold(0.0, f64::max);
    let length = |dims: &mut dyn Iterator<Item = &Dim>| length_of(dims, env);
    match node.prim() {
        Prim::Map(row) => row.expr.nodes().iter().map(|(node, dtype)| step_error(node, *dtype)).sum(),
        Prim::Reduce(row) if matches!(row.monoid, Monoid::Sum | Monoid::Prod) => {
            let shape = &graph.ty(node.args()[0]).shape;
            rounding * length(&mut row.axes.iter().map(|a| &shape[*a])).sqrt()
        }
        Prim::Prefix(row) => rounding * length(&mut std::iter::once(&node.types()[0].shape[row.axis])).sqrt(),
        Prim::Contract(row) => {
            let types = [graph.ty(node.args()[0]).clone(), graph.ty(node.args()[1]).clone()];
            let summed = length(&mut row.summed().iter().filter_map(|l| row.extent(&types, *l)));
            rounding + row.accumulator.epsilon() * summed.sqrt()
        }
        Prim::Scatter(_) => rounding * 2.0,
        Prim::If(row) => {
            let given: Vec<f64> = node.args()[1..].iter().map(|a| errors[a.node()]).collect();
            [&row.then, &row.otherwise].into_iter().map(|g| region_error(g, env, &given)).fold(0.0, f64::max)
        }
        Prim::Loop(row) => USUAL_TRIPS * region_error(&row.body, env, &[]),
        Prim::Host(_) => rounding * 4.0,
        _ => 0.0,
    }
}

/// How many terms a fold over these sizes has.
fn length_of(dims: &mut dyn Iterator<Item = &Dim>, env: &Env) -> f64 {
    dims.map(|d| d.eval(env).map_or(USUAL_LENGTH, |n| n as f64)).product::<f64>().max(1.0)
}

fn region_error(region: &Graph, env: &Env, inputs: &[f64]) -> f64 {
    let errors = relative_errors(region, env, inputs);
    region.outputs().iter().map(|o| errors[o.value.node()]).fold(0.0, f64::max)
}

fn step_error(node: &ExprNode, dtype: DType) -> f64 {
    match node {
        ExprNode::Apply(op, _) => {
            let steep = matches!(op, Scalar::Exp | Scalar::Exp2 | Scalar::Expm1 | Scalar::Pow | Scalar::Tan);
            dtype.epsilon() * (0.5 + f64::from(op.def().ulp) + if steep { STEEP } else { 0.0 })
        }
        ExprNode::Cast(_) => dtype.epsilon() * 0.5,
        _ => 0.0,
    }
}

impl fmt::Display for Worst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Worst { index, expected, actual, bound, .. } = self;
        write!(f, "{actual:e} at {index:?}, expected {expected:e} (off by {:.3e}", self.distance())?;
        write!(f, ", allowed {bound:.3e})")
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mismatch::Types { expected, actual } => write!(f, "a tensor {actual} where {expected} was expected"),
            Mismatch::Elements { worst, beyond, count } => write!(f, "{beyond} of {count} elements differ: {worst}"),
        }
    }
}

impl std::error::Error for Mismatch {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Builder;
    use crate::tensor::{Shape, Symbol};

    fn within(relative: f64) -> Agreement {
        Agreement::Within(Tolerance { relative, absolute: 0.0 })
    }

    #[test]
    fn special_numbers_agree_with_themselves_only() {
        let special = Literal::f32s(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0]);
        assert_eq!(compare(&special, &special, &Agreement::Exact).unwrap().worst, None);
        let other = Literal::f32s(&[f32::NAN, f32::INFINITY, f32::INFINITY, -0.0]);
        assert!(compare(&special, &other, &within(0.5)).is_err());
        let zero = |x: f32| Literal::f32s(&[x, 1.0]);
        assert!(compare(&zero(0.0), &zero(-0.0), &Agreement::Exact).is_err());
        assert!(compare(&zero(0.0), &zero(-0.0), &within(1e-6)).is_ok());
    }

    #[test]
    fn the_report_names_the_worst_element() {
        let (a, b) = (Literal::f32s(&[1.0, 2.0, 3.0, 4.0]), Literal::f32s(&[1.0, 2.5, 3.0, 4.1]));
        let reshape = |l: Literal| l.reshaped([2, 2]).unwrap();
        let mismatch = compare(&reshape(a), &reshape(b), &within(0.01)).unwrap_err();
        let Mismatch::Elements { worst, beyond: 2, count: 4 } = &mismatch else { panic!("{mismatch}") };
        assert_eq!((worst.index.as_slice(), worst.expected, worst.actual), (&[0, 1][..], 2.0, 2.5));
        assert!(mismatch.to_string().starts_with("2 of 4 elements differ: 2.5e0 at [0, 1], expected 2e0"));
    }

    #[test]
    fn errors_are_counted_in_last_places() {
        let ulps = |expected: &[f32], actual: &[f32]| {
            let agreed = compare(&Literal::f32s(expected), &Literal::f32s(actual), &within(1.0)).unwrap();
            agreed.worst.map_or(0.0, |worst| worst.ulps(DType::F32))
        };
        let next = |x: f32| f32::from_bits(x.to_bits() + 1);
        assert_eq!(ulps(&[1.0, 1.0], &[1.0, 1.0]), 0.0);
        assert_eq!(ulps(&[1.0, 1.5], &[1.0, next(1.5)]), 1.0);
        assert_eq!(ulps(&[-3.0], &[next(-3.0)]), 1.0);
        // What cancelled is measured by what is usual there.
        assert_eq!(ulps(&[4.0, 4.0, 4.0, 0.0], &[4.0, 4.0, 4.0, 2.0 * f32::EPSILON]), 1.0);
        assert_eq!(ulps(&[0.0], &[0.0]), 0.0);
    }

    #[test]
    fn integers_and_types_are_exact() {
        let large = |n: i64| Literal::from_ints(DType::I64, [1], &[n]).unwrap();
        assert!(compare(&large(1 << 60), &large((1 << 60) + 1), &within(1.0)).is_err());
        assert!(compare(&large(1), &large(1).reshaped([]).unwrap(), &within(1.0)).is_err());
    }

    #[test]
    fn longer_sums_and_narrower_types_may_err_more() {
        let tolerance = |dtype: DType, k: i64| {
            let b = Builder::new("product");
            let x = b.input("x", dtype, Shape::new([Dim::int(4), Dim::named("k")]));
            b.output("y", x.contract("mk,nk->mn", x));
            let env = [(Symbol::name("k"), k)].into_iter().collect();
            Tolerance::of_output(&b.finish().unwrap(), 0, &env).relative
        };
        assert!(tolerance(DType::F32, 64) < tolerance(DType::F32, 4096));
        assert!(tolerance(DType::F32, 64) < 1e-5);
        assert!(tolerance(DType::F64, 4096) < tolerance(DType::F32, 64));
        assert!(tolerance(DType::F32, 64) < tolerance(DType::F16, 64));
    }
}
