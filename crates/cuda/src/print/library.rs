//! Products that a library of the device's maker can compute as well: plain ones, of matrices that lie in memory as they are.

use std::f64::consts::FRAC_2_PI;

use fuseline::ops::{Expr, ExprNode, Scalar};
use fuseline::tensor::{DType, Dim, Symbol};
use fuseline::tile::{Op, Rounding, StepId};
use smallvec::SmallVec;

use super::nest::{Access, Nest, is_multiple, slope};
use super::{Parameter, element};

/// What a library is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Asked {
    /// nothing: there is none, or products are small
    #[default]
    Nothing,
    /// products, with what it can do behind them
    Products,
}

/// A product of matrices, maybe many of them, by sizes that are not fixed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// rows and columns of the result, steps of the sum, matrices of a batch
    pub sizes: [Dim; 4],
    /// the factors, and the result
    pub left: Matrix,
    /// the right factor
    pub right: Matrix,
    /// the result
    pub result: Matrix,
    /// whether the left factor's rows are steps of the sum, and whether the right one's are columns of the result
    pub turned: [bool; 2],
    /// the type of the factors, and that of the result
    pub dtypes: (DType, DType),
    /// what is added to the product
    pub added: Added,
    /// what is done with the sum before it is stored
    pub activation: Option<Activation>,
    /// how many rows of the result lie between two that begin alike in 16 bytes: the library is asked for every such set of rows by itself, so
    /// that it only sees matrices that are aligned
    pub sets: i64,
}

impl Library {
    /// Which columns of a set of rows the library is asked for: from the first that 16 bytes begin with, and how many. It is slow where that is no
    /// multiple of eight. Others compute the rest, which is less than `EDGE` columns at each end.
    pub fn span(&self, set: i64) -> Option<(i64, i64)> {
        let (pitch, columns) = (self.result.pitch.as_int()?, self.sizes[1].as_int()?);
        let from = (-set * pitch).rem_euclid(lane(self.dtypes.1));
        (self.sets > 1).then_some((from, (columns - from) / EDGE * EDGE))
    }
}

/// Columns at each end of a result that a library is not asked for, where rows are not aligned.
pub(super) const EDGE: i64 = 8;

/// Elements of 16 bytes.
fn lane(dtype: DType) -> i64 {
    16 / element::bytes(dtype)
}

/// What a library adds to a product, of the type of the result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// a number for every column
    pub bias: Option<Parameter>,
    /// a number for every result
    pub matrix: Option<Matrix>,
}

/// Functions that a library computes where it has a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// the larger of the sum and zero
    Relu,
    /// GELU by a hyperbolic tangent, of about eleven bits: enough for results that have no more
    GeluTanh,
}

impl Activation {
    const ALL: [Activation; 2] = [Activation::Relu, Activation::GeluTanh];

    fn at(self, x: f64) -> f64 {
        match self {
            Activation::Relu => x.max(0.0),
            // As ½ + ½ tanh(y) = sigmoid(2y).
            Activation::GeluTanh => {
                let y = FRAC_2_PI.sqrt() * (x + 0.044715 * x * x * x);
                x / (1.0 + (-2.0 * y).exp())
            }
        }
    }

    /// Whether it is exact enough for results of a type.
    fn suits(self, dtype: DType) -> bool {
        self == Activation::Relu || matches!(dtype, DType::F16 | DType::BF16)
    }

    /// The one whose values a function has. Constants of a model are rounded to f32, which no two spellings do alike: the values tell. A name
    /// (`explain`) forgives more: it decides nothing, and this is computed instead.
    fn of(function: impl Fn(f64) -> Option<f64>) -> Option<Activation> {
        let has = |activation: &Activation| {
            PLACES.iter().flat_map(|x| [*x, -x]).all(|x| {
                let expected = activation.at(x);
                function(x).is_some_and(|y| (y - expected).abs() <= CONSTANTS * expected.abs())
            })
        };
        Activation::ALL.into_iter().find(has)
    }
}

/// Where functions are compared, on both sides of zero.
const PLACES: [f64; 16] = [0.0, 1e-30, 1e-4, 0.03, 0.2, 0.51, 0.9, 1.3, 1.8, 2.4, 3.3, 4.7, 6.1, 7.9, 1e3, 1e30];

/// How far constants that are rounded to f32 move values, in parts of them: exponents are up to 48 at these places, which two constants move
/// by 2⁻²⁴ of it each.
const CONSTANTS: f64 = 2.0 * 48.0 / 16_777_216.0;

/// A matrix in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// what it is to the kernel
    pub parameter: Parameter,
    /// elements between its rows
    pub pitch: Dim,
    /// elements between matrices of a batch
    pub stride: Dim,
}

impl Matrix {
    /// The matrix that is read or written, whose rows lie along one axis and whose neighbours along another; there may be one for every
    /// point of a third.
    pub(super) fn of(access: &Access, rows: usize, along: usize, batch: Option<usize>) -> Option<Matrix> {
        let at = |axis: usize| slope(&access.offset, axis).filter(|slope| !mentions_axes(slope));
        let pitch = at(rows)?;
        let stride = batch.map_or(Some(Dim::int(0)), at)?;
        let fits = is_line(access, along) && pitch.as_int().is_none_or(|pitch| pitch > 1);
        fits.then(|| Matrix { parameter: access.tensor.parameter.clone(), pitch, stride })
    }
}

impl Matrix {
    /// Whether all of its rows begin where 16 bytes do: the library is slow for others, however large they are.
    pub(super) fn is_aligned(&self, dtype: DType) -> bool {
        is_multiple(&self.pitch, lane(dtype))
    }

    /// After how many rows one begins again as the first does in 16 bytes; none where only a run tells.
    pub(super) fn sets(&self, dtype: DType) -> Option<i64> {
        if self.is_aligned(dtype) {
            return Some(1);
        }
        let pitch = self.pitch.as_int()?;
        (1..=lane(dtype)).find(|rows| rows * pitch % lane(dtype) == 0)
    }
}

/// Whether what is read or written lies side by side along an axis, from the beginning of a tensor on.
pub(super) fn is_line(access: &Access, along: usize) -> bool {
    let is_plain = access.is_plain();
    let begins = access.offset.substitute(&|symbol| matches!(symbol, Symbol::Axis(_)).then(|| Dim::int(0)));
    is_plain && begins.is(0) && slope(&access.offset, along).is_some_and(|next| next.is(1))
}

fn mentions_axes(dim: &Dim) -> bool {
    dim.mentions(|symbol| matches!(symbol, Symbol::Axis(_)))
}

/// What a step does with another one.
#[derive(Debug)]
pub(super) struct Behind {
    /// what is added: loads, no two alike
    pub terms: Vec<StepId>,
    /// what is done with the sum
    pub activation: Option<Activation>,
}

impl Behind {
    /// What a step does with another one, if it is nothing but a sum, maybe an activation of it, rounded to its type.
    pub fn of(nest: &Nest<'_>, id: StepId, to: StepId) -> Option<Behind> {
        let (mut terms, mut activation) = (Vec::new(), None);
        if sum_of(nest, id, to, &mut terms).is_none() {
            let Op::Map { expr, args } = &nest.kernel.step(id).op else { return None };
            let sum = bottleneck(expr)?;
            activation = Some(Activation::of(|x| behind(expr, sum, x))?);
            terms.clear();
            sum_within(nest, expr, args, sum, to, &mut terms)?;
        }
        let own = terms.iter().position(|term| *term == to)?;
        terms.swap_remove(own);
        // Which are added first is the library's choice, and it rounds nowhere but where it stores.
        let may_choose = terms.is_empty() && activation.is_none() || nest.kernel.rounding != Rounding::Every;
        let suits = activation.is_none_or(|activation: Activation| activation.suits(nest.kernel.step(id).dtype));
        (may_choose && suits && !terms.contains(&to)).then_some(Behind { terms, activation })
    }
}

/// The first step of an expression that all of its arguments must pass to reach the result, if nothing else varies.
fn bottleneck(expr: &Expr) -> Option<u32> {
    let nodes = expr.nodes();
    (0..nodes.len() as u32).find(|step| {
        let mut reached = vec![false; nodes.len()];
        reached[nodes.len() - 1] = true;
        (0..nodes.len()).rev().filter(|k| *k as u32 != *step).all(|k| {
            let node = &nodes[k].0;
            if reached[k] {
                node.operands().iter().for_each(|of| reached[*of as usize] = true);
            }
            !reached[k] || matches!(node, ExprNode::Apply(..) | ExprNode::Cast(_) | ExprNode::Const(_))
        })
    })
}

/// The result of an expression where one of its steps has a value, if only numbers that are not rounded come after it.
fn behind(expr: &Expr, step: u32, value: f64) -> Option<f64> {
    let mut values: Vec<f64> = Vec::with_capacity(expr.nodes().len());
    for (k, (node, dtype)) in expr.nodes().iter().enumerate() {
        let is_last = k + 1 == expr.nodes().len();
        values.push(match node {
            _ if k as u32 == step => value,
            ExprNode::Const(number) => number.to_f64(),
            // Nobody asks for what the value is made of.
            _ if (k as u32) < step => f64::NAN,
            ExprNode::Cast(of) if is_last || *dtype == DType::F32 => values[*of as usize],
            ExprNode::Apply(op, of) => {
                let operands: SmallVec<[f64; 3]> = of.iter().map(|of| values[*of as usize]).collect();
                (op.def().float?)(&operands)
            }
            _ => return None,
        });
    }
    values.pop()
}

/// The steps that a step is the sum of, down to loads and one that is asked for.
fn sum_of(nest: &Nest<'_>, id: StepId, end: StepId, terms: &mut Vec<StepId>) -> Option<()> {
    match &nest.kernel.step(id).op {
        _ if id == end => terms.push(id),
        Op::Load { .. } => terms.push(id),
        Op::Map { expr, args } => sum_within(nest, expr, args, (expr.nodes().len() - 1) as u32, end, terms)?,
        _ => return None,
    }
    Some(())
}

/// The same of a step of an expression.
fn sum_within(
    nest: &Nest<'_>,
    expr: &Expr,
    args: &[StepId],
    step: u32,
    end: StepId,
    terms: &mut Vec<StepId>,
) -> Option<()> {
    let nodes = expr.nodes();
    let mut todo = vec![step];
    while let Some(node) = todo.pop() {
        match &nodes[node as usize] {
            (ExprNode::Arg(arg), _) => sum_of(nest, args[*arg as usize], end, terms)?,
            (ExprNode::Apply(Scalar::Add, sides), DType::F32) => todo.extend(sides.iter().copied()),
            // The last thing that is done, or what was narrow and is added as f32.
            (ExprNode::Cast(of), to) if to.is_float() && node as usize + 1 == nodes.len() => todo.push(*of),
            (ExprNode::Cast(of), DType::F32) if nodes[*of as usize].1.is_float() => todo.push(*of),
            _ => return None,
        }
    }
    Some(())
}
