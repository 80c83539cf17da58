//! Arithmetic of constants that vary along some axes.

use smallvec::SmallVec;

use super::facts::{Axes, Facts};
use super::seen::Seen;
use super::step::{Kind, Step};
use crate::error::Result;
use crate::graph::rewrite::Rebuild;
use crate::graph::{Graph, Value};
use crate::ops::prim::{Map, View};
use crate::ops::{Expr, Number, Scope, Term};
use crate::tensor::{DType, Dim, Shape};

/// The axes along which a step varies that is computed from nothing but literals, numbers and one coordinate; `None` if it is
/// not. The sizes of the axes are known. (A table of two coordinates, such as a mask, is better left a formula.)
pub(super) fn constant_axes(graph: &Graph, facts: &Facts, step: Step) -> Option<Axes> {
    if !step.is_literal(graph, facts) {
        return None; // the usual case, decided without a look behind views
    }
    let shape = step.shape(graph);
    let (mut axes, mut is_formula): (Axes, bool) = (0, false);
    for leaf in Seen::at(graph, step).leaves(graph)? {
        match leaf.step.kind(graph) {
            Kind::Value(value) if facts.is_constant(value.node()) && leaf.view.guard.is_empty() => {}
            Kind::Coord(_) => is_formula = true,
            _ => return None,
        }
        axes |= leaf.axes();
    }
    let known = (0..shape.rank()).all(|axis| axes >> axis & 1 == 0 || shape[axis].as_int().is_some());
    (known && (!is_formula || axes.count_ones() == 1)).then_some(axes)
}

/// A constant made of others.
#[derive(Clone, Debug)]
pub(super) enum Constant {
    /// a step of the graph
    Step(Step),
    /// a sum
    Sum(Box<Constant>, Box<Constant>),
    /// the first less the second
    Difference(Box<Constant>, Box<Constant>),
    /// a product
    Product(Box<Constant>, Box<Constant>),
    /// the first over the second
    Quotient(Box<Constant>, Box<Constant>),
    /// the number 1
    One,
    /// the number 0
    Zero,
}

impl Constant {
    /// Another constant added.
    pub(super) fn plus(self, other: Constant) -> Constant {
        match (self, other) {
            (Constant::Zero, x) | (x, Constant::Zero) => x,
            (x, y) => Constant::Sum(Box::new(x), Box::new(y)),
        }
    }

    /// Another constant subtracted.
    pub(super) fn minus(self, other: Constant) -> Constant {
        match other {
            Constant::Zero => self,
            other => Constant::Difference(Box::new(self), Box::new(other)),
        }
    }

    /// Multiplied by another constant.
    pub(super) fn times(self, other: Constant) -> Constant {
        match (self, other) {
            (Constant::Zero, _) | (_, Constant::Zero) => Constant::Zero,
            (Constant::One, x) | (x, Constant::One) => x,
            (x, y) => Constant::Product(Box::new(x), Box::new(y)),
        }
    }

    /// Divided by another constant.
    pub(super) fn over(self, other: Constant) -> Constant {
        match self {
            Constant::Zero => Constant::Zero,
            x => Constant::Quotient(Box::new(x), Box::new(other)),
        }
    }

    fn steps(&self, found: &mut SmallVec<[Step; 4]>) {
        match self {
            Constant::Step(step) if !found.contains(step) => found.push(*step),
            Constant::Step(_) | Constant::One | Constant::Zero => {}
            Constant::Sum(a, b) | Constant::Difference(a, b) | Constant::Product(a, b) | Constant::Quotient(a, b) => {
                a.steps(found);
                b.steps(found);
            }
        }
    }

    fn term<'s>(&self, scope: &'s Scope, dtype: DType, leaf: &dyn Fn(Step) -> Term<'s>) -> Term<'s> {
        let term = |constant: &Constant| constant.term(scope, dtype, leaf);
        let number = |x: f64| scope.constant(dtype, Number::new(dtype, x));
        match self {
            Constant::Step(step) => leaf(*step),
            Constant::Sum(a, b) => term(a) + term(b),
            Constant::Difference(a, b) => term(a) - term(b),
            Constant::Product(a, b) => term(a) * term(b),
            Constant::Quotient(a, b) => term(a) / term(b),
            Constant::One => number(1.0),
            Constant::Zero => number(0.0),
        }
    }

    /// The constant as a value of a shape, computed along the axes that it varies along, as one map, and repeated along the others.
    pub(super) fn rebuilt(
        &self,
        graph: &Graph,
        facts: &Facts,
        rebuild: &mut Rebuild<'_>,
        shape: &Shape,
        dtype: DType,
    ) -> Result<Value> {
        let mut steps = SmallVec::new();
        self.steps(&mut steps);
        let varying = steps.iter().fold(0, |axes, s| axes | constant_axes(graph, facts, *s).unwrap_or(Axes::MAX));
        let kept: Vec<usize> = (0..shape.rank()).filter(|axis| varying >> axis & 1 == 1).collect();
        let small: Shape = kept.iter().map(|axis| shape[*axis].clone()).collect();
        let place = |axis: usize| kept.iter().position(|k| *k == axis).map_or(Dim::int(0), Dim::axis);
        let inside = View::new(small.clone(), (0..shape.rank()).map(place).collect());
        let mut args: SmallVec<[Value; 4]> = SmallVec::new();
        for step in &steps {
            args.push(Seen { step: *step, view: inside.clone() }.rebuilt(graph, rebuild)?);
        }
        let dtypes: SmallVec<[DType; 4]> = steps.iter().map(|s| s.dtype(graph)).collect();
        let expr = Expr::build(&dtypes, |scope, terms| {
            let leaf = |step: Step| terms[steps.iter().position(|s| *s == step).expect("every step is listed")];
            self.term(scope, dtype, &leaf)
        });
        let value = rebuild.add(Map { expr, shape: small }, &args)?;
        rebuild.add(View::new(shape.clone(), kept.iter().map(|axis| Dim::axis(*axis)).collect()), &[value])
    }
}
