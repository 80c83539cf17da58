//! A mean of squares less the square of the mean is the mean of squared differences. That is true of real numbers, and what is left of
//! large numbers that nearly cancel is noise: the differences are small before they are squared.

use smallvec::{SmallVec, smallvec};

use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, replaced};
use crate::graph::{Graph, Value};
use crate::ops::prim::{Map, Monoid, Reduce, View};
use crate::ops::{Expr, ExprNode, Prim, Scalar};
use crate::tensor::{DType, Dim};

/// `a · Σ x² − a/n · (Σ x)² + k`, where both sums have `n` terms, is `a · Σ (x − Σ x / n)² + k`.
pub(super) fn centred(rebuild: &mut Rebuild<'_>, row: &Map, args: &[Value]) -> Result<Option<Values>> {
    let Some(found) = moments(rebuild.graph(), row, args) else { return Ok(None) };
    let Moments { x, sum, axes, view, scale, count, rest } = found;
    let (dtype, wide) = (rebuild.graph().ty(x).dtype, rebuild.graph().ty(x).shape.clone());
    let narrow = rebuild.graph().ty(sum).shape.clone();
    let by = Expr::build(&[dtype], |scope, s| s[0] * scope.float(s[0], count.recip()));
    let mean = rebuild.add(Map { expr: by, shape: narrow.clone() }, &[sum])?;
    let kept: Vec<Dim> = (0..wide.rank()).filter(|axis| !axes.contains(axis)).map(Dim::axis).collect();
    let mean = rebuild.add(View::new(wide.clone(), kept), &[mean])?;
    let less = Expr::call(Scalar::Sub, &[dtype; 2])?;
    let difference = rebuild.add(Map { expr: less, shape: wide.clone() }, &[x, mean])?;
    let square = Expr::build(&[dtype], |_, x| x[0] * x[0]);
    let square = rebuild.add(Map { expr: square, shape: wide }, &[difference])?;
    let squares = rebuild.add(Reduce { monoid: Monoid::Sum, axes }, &[square])?;
    let scaled = Expr::build(&[dtype], |scope, s| {
        let scaled = s[0] * scope.float(s[0], scale);
        if rest == 0.0 { scaled } else { scaled + scope.float(s[0], rest) }
    });
    let mut result = rebuild.add(Map { expr: scaled, shape: narrow }, &[squares])?;
    if let Some(view) = view {
        result = rebuild.add(view, &[result])?;
    }
    replaced(result)
}

/// What is computed of the two sums.
struct Moments {
    x: Value,
    /// of `x`, along the axes
    sum: Value,
    axes: Vec<usize>,
    /// how both sums are looked at
    view: Option<View>,
    /// of the sum of squares
    scale: f64,
    /// terms of a sum
    count: f64,
    /// what is added
    rest: f64,
}

/// Constants are roundings of those that the identity has: so far from them at most.
const NEAR: f64 = 1.0 / (1 << 21) as f64;

fn moments(graph: &Graph, row: &Map, args: &[Value]) -> Option<Moments> {
    let last = row.expr.nodes().last()?;
    let is_sum = matches!(last.0, ExprNode::Apply(Scalar::Sub | Scalar::Add, _));
    let is_exact = matches!(last.1, DType::F32 | DType::F64);
    if !is_sum || !is_exact || !args.iter().any(|arg| reaches_sum(graph, *arg, MOST_DEPTH)) {
        return None;
    }
    let mut reader = Reader { graph, views: SmallVec::new() };
    let (mut squares, mut square_of_sum, mut rest) = (None, None, 0.0);
    for (factor, atoms) in reader.map(row, args, MOST_DEPTH)? {
        match atoms.as_slice() {
            [] => rest += factor,
            [a] if squares.is_none() => squares = Some((factor, *a)),
            [a, b] if a == b && square_of_sum.is_none() => square_of_sum = Some((factor, *a)),
            _ => return None,
        }
    }
    let ((scale, squares), (less, sum)) = (squares?, square_of_sum?);
    let ((x, axes), (square, same_axes)) = (summed(graph, sum.value)?, summed(graph, squares.value)?);
    if sum.view != squares.view || axes != same_axes || squared(graph, square)? != x {
        return None;
    }
    let shape = &graph.ty(x).shape;
    let count = axes.iter().map(|axis| shape[*axis].as_int()).product::<Option<i64>>()? as f64;
    let view = sum.view.and_then(|k| view_of(graph, reader.views[k])).cloned();
    let is_mean = scale > 0.0 && (-less * count / scale - 1.0).abs() <= NEAR;
    is_mean.then(|| Moments { x, sum: sum.value, axes: axes.to_vec(), view, scale, count, rest })
}

/// Whether a value is computed from a sum by few maps and views.
fn reaches_sum(graph: &Graph, value: Value, depth: usize) -> bool {
    let node = graph.node_of(value);
    match node.prim() {
        Prim::Reduce(row) => row.monoid == Monoid::Sum,
        Prim::Map(_) | Prim::View(_) if depth > 0 => node.args().iter().any(|arg| reaches_sum(graph, *arg, depth - 1)),
        _ => false,
    }
}

fn view_of(graph: &Graph, value: Value) -> Option<&View> {
    match graph.node_of(value).prim() {
        Prim::View(view) if view.guard.is_empty() => Some(view),
        _ => None,
    }
}

/// What a sum is of, and its axes.
fn summed(graph: &Graph, value: Value) -> Option<(Value, &[usize])> {
    let node = graph.node_of(value);
    match node.prim() {
        Prim::Reduce(Reduce { monoid: Monoid::Sum, axes }) => Some((node.args()[0], axes)),
        _ => None,
    }
}

/// What a square is of.
fn squared(graph: &Graph, value: Value) -> Option<Value> {
    let node = graph.node_of(value);
    let Prim::Map(row) = node.prim() else { return None };
    let mut reader = Reader { graph, views: SmallVec::new() };
    match reader.map(row, node.args(), 1)?.as_slice() {
        [(factor, atoms)] if *factor == 1.0 && atoms.len() == 2 && atoms[0] == atoms[1] => Some(atoms[0].value),
        _ => None,
    }
}

/// A value, perhaps looked at by one of the views that were met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Atom {
    value: Value,
    view: Option<usize>,
}

/// A number times atoms.
type Monomial = (f64, SmallVec<[Atom; 2]>);

/// Maps and views behind each other that are looked at, and monomials that are kept apart.
const MOST_DEPTH: usize = 6;
const MOST_MONOMIALS: usize = 4;

/// Reads values as sums of products of at most two atoms.
struct Reader<'g> {
    graph: &'g Graph,
    /// the views that were met, each once
    views: SmallVec<[Value; 2]>,
}

impl Reader<'_> {
    /// What a map is; `None` where it is no such sum.
    fn map(&mut self, row: &Map, args: &[Value], depth: usize) -> Option<Vec<Monomial>> {
        let mut known: SmallVec<[Vec<Monomial>; 6]> = SmallVec::new();
        for (node, dtype) in row.expr.nodes() {
            if *dtype != row.expr.dtype() {
                return None;
            }
            let of = |k: u32| &known[k as usize];
            let number = |x: f64| [(x, SmallVec::new())];
            let next = match node {
                ExprNode::Arg(k) => self.value(args[*k as usize], depth - 1),
                ExprNode::Const(constant) => number(constant.to_f64()).to_vec(),
                ExprNode::Apply(Scalar::Neg, x) => times(of(x[0]), &number(-1.0))?,
                ExprNode::Apply(Scalar::Add, x) => plus(of(x[0]), of(x[1]))?,
                ExprNode::Apply(Scalar::Sub, x) => plus(of(x[0]), &times(of(x[1]), &number(-1.0))?)?,
                ExprNode::Apply(Scalar::Mul, x) => times(of(x[0]), of(x[1]))?,
                ExprNode::Apply(Scalar::Div, x) => match of(x[1]).as_slice() {
                    [(by, atoms)] if atoms.is_empty() => times(of(x[0]), &number(by.recip()))?,
                    _ => return None,
                },
                _ => return None,
            };
            known.push(next);
        }
        known.pop()
    }

    /// What a value is; one that is no such sum is an atom.
    fn value(&mut self, value: Value, depth: usize) -> Vec<Monomial> {
        let (graph, node) = (self.graph, self.graph.node_of(value));
        let inner = match node.prim() {
            Prim::Map(row) if depth > 0 => self.map(row, node.args(), depth),
            Prim::View(row) if depth > 0 && row.guard.is_empty() => {
                let inner = self.value(node.args()[0], depth - 1);
                let is_plain = inner.iter().all(|(_, atoms)| atoms.iter().all(|atom| atom.view.is_none()));
                is_plain.then(|| {
                    let known = self.views.iter().position(|view| view_of(graph, *view) == Some(row));
                    let view = known.unwrap_or_else(|| {
                        self.views.push(value);
                        self.views.len() - 1
                    });
                    let seen = |atom: Atom| Atom { view: Some(view), ..atom };
                    inner.into_iter().map(|(x, atoms)| (x, atoms.into_iter().map(seen).collect())).collect()
                })
            }
            _ => None,
        };
        inner.unwrap_or_else(|| vec![(1.0, smallvec![Atom { value, view: None }])])
    }
}

fn plus(a: &[Monomial], b: &[Monomial]) -> Option<Vec<Monomial>> {
    let mut sum: Vec<Monomial> = Vec::with_capacity(a.len() + b.len());
    for (factor, atoms) in a.iter().chain(b) {
        match sum.iter_mut().find(|(_, known)| known == atoms) {
            Some((known, _)) => *known += factor,
            None => sum.push((*factor, atoms.clone())),
        }
    }
    (sum.len() <= MOST_MONOMIALS).then_some(sum)
}

fn times(a: &[Monomial], b: &[Monomial]) -> Option<Vec<Monomial>> {
    let mut product = Vec::new();
    for (x, left) in a {
        for (y, right) in b {
            let mut atoms: SmallVec<[Atom; 2]> = left.iter().chain(right).copied().collect();
            atoms.sort_unstable();
            if atoms.len() > 2 {
                return None;
            }
            product = plus(&product, &[(x * y, atoms)])?;
        }
    }
    Some(product)
}
