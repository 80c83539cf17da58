//! How far each element of a result may be off, as follows from how steep the graph is where it is evaluated.
//!
//! Every step errs by what the scalar table allows of its own result, and hands on what its operands err, times its slope. Errors of
//! different steps are taken for independent: their squares add up. [`Spreads`] makes a graph that computes these squares beside the
//! values, in f64, so that what cancels (a sum of both signs) and what is steep (a logarithm near its pole) shows where it happens. What
//! jumps hands nothing on, unless it is asked for: then a number within its error of a jump hands on how far it goes, and all others
//! nothing.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::meaning::is_jump;
use super::{SAFETY, length_of, relative_errors};
use crate::error::Result;
use crate::graph::{Graph, Node, OriginSet, Value};
use crate::ops::prim::{
    Combine, Concat, Const, Contract, Gather, If, Input, Map, Monoid, Prefix, Reduce, Scatter, View,
};
use crate::ops::{Expr, ExprNode, Number, Prim, Scalar, Scope, Term};
use crate::tensor::{DType, Env, Literal, Shape, TensorType};

/// What becomes of an error that enters a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Jumps {
    /// nothing: what comes out is right, or on the other side
    End,
    /// where it reaches the jump, as far as it goes: what comes out errs by the difference of both sides
    HandOn,
}

/// The squares of errors of a graph's values, as values of a graph that has its nodes too.
pub(super) struct Spreads<'g> {
    graph: &'g Graph,
    env: &'g Env,
    /// the nodes of the graph under their own numbers, and behind them those that compute errors
    with_errors: Graph,
    /// of every result of every node; none where there is no error
    squares: Vec<SmallVec<[Option<Value>; 1]>>,
    /// the same with what comes through jumps; as they are where nothing does
    handed: Vec<SmallVec<[Option<Value>; 1]>>,
    /// which of both are asked for
    jumps: Jumps,
    /// what is handed on where no slope is known
    relative: Vec<f64>,
}

impl<'g> Spreads<'g> {
    /// A graph whose outputs are the squares of the errors of some outputs of `graph`, and which outputs these are.
    pub fn graph_of(graph: &'g Graph, env: &'g Env, jumps: Jumps) -> Result<(Graph, Vec<usize>)> {
        let mut spreads = Spreads::new(graph, env, jumps, &[])?;
        let mut erring = Vec::new();
        for (k, output) in graph.outputs().iter().enumerate() {
            if let Some(square) = spreads.square(output.value) {
                spreads.with_errors.add_output(&format!("{k}"), square);
                erring.push(k);
            }
        }
        Ok((spreads.with_errors, erring))
    }

    /// The graph with what enters each jump moved by so many times the error that each of its elements has; `None` where nothing that errs
    /// jumps. What is moved ends where elements meet: what they are off by is an error from there on.
    pub fn moved(graph: &'g Graph, env: &'g Env, by: f64) -> Result<Option<Graph>> {
        let mut spreads = Spreads::new(graph, env, Jumps::HandOn, &[])?;
        let mut others: Vec<Option<usize>> = Vec::with_capacity(graph.nodes().len());
        let at = |others: &[Option<usize>], value: Value| {
            others[value.node()].map_or(value, |other| Value::new(other, value.port()))
        };
        for node in graph.nodes() {
            let args: Vec<Value> = node.args().iter().map(|arg| at(&others, *arg)).collect();
            let jumped = match node.prim() {
                Prim::Map(row) => spreads.moved_map(row, node.args(), &args, by)?,
                _ => None,
            };
            others.push(match node.prim() {
                _ if jumped.is_some() => jumped,
                Prim::Map(_) | Prim::View(_) | Prim::Concat(_) if args != node.args() => {
                    Some(spreads.with_errors.add(node.prim().clone(), &args, &OriginSet::default())?)
                }
                _ => None,
            });
        }
        if graph.outputs().iter().all(|output| others[output.value.node()].is_none()) {
            return Ok(None);
        }
        for output in graph.outputs() {
            spreads.with_errors.add_output(&output.name, at(&others, output.value));
        }
        Ok(Some(spreads.with_errors))
    }

    /// An expression with what enters its jumps moved, of arguments that may have been moved; `None` where nothing that errs jumps in it.
    fn moved_map(&mut self, row: &Map, args: &[Value], moved: &[Value], by: f64) -> Result<Option<usize>> {
        let given: Vec<Option<Value>> = args.iter().map(|a| self.square(*a)).collect();
        let present: Vec<bool> = given.iter().map(Option::is_some).collect();
        let Some(expr) = moved_at_jumps(&row.expr, &present, by) else { return Ok(None) };
        let operands = args.iter().copied().chain(given.into_iter().flatten()).chain(moved.iter().copied());
        let operands: Vec<Value> = operands.collect();
        self.with_errors.add(Map { expr, shape: row.shape.clone() }, &operands, &OriginSet::default()).map(Some)
    }

    /// The squares of all values. Of inputs that err, the relative errors are given; the squares of these are inputs, too, behind all others.
    fn new(graph: &'g Graph, env: &'g Env, jumps: Jumps, given: &[Option<f64>]) -> Result<Spreads<'g>> {
        let mut with_errors = graph.beginning(graph.nodes().len());
        let known: Vec<f64> = given.iter().map(|error| error.unwrap_or(0.0)).collect();
        let relative = relative_errors(graph, env, &known);
        let mut of_inputs = FxHashMap::default();
        for (input, _) in graph.inputs().iter().zip(given).filter(|(_, error)| error.is_some()) {
            let mut name = format!("error of {}", graph.input_name(*input));
            while with_errors.inputs().iter().any(|other| **with_errors.input_name(*other) == name) {
                name.push('\'');
            }
            let ty = TensorType::new(DType::F64, graph.ty(*input).shape.clone());
            let square = with_errors.add(Input { name: name.into(), ty }, &[], &OriginSet::default())?;
            of_inputs.insert(input.node(), Value::new(square, 0));
        }
        let mut spreads =
            Spreads { graph, env, with_errors, squares: Vec::new(), handed: Vec::new(), jumps: Jumps::End, relative };
        for (id, node) in graph.nodes().iter().enumerate() {
            let own = match of_inputs.get(&id) {
                Some(square) => SmallVec::from_elem(Some(*square), 1),
                None => spreads.of_any(id, node)?,
            };
            let mut both = [own.clone(), own];
            if jumps == Jumps::HandOn && !of_inputs.contains_key(&id) {
                spreads.jumps = Jumps::HandOn;
                both[1] = spreads.of_any(id, node)?;
                spreads.jumps = Jumps::End;
                // Where elements meet, what one of them may be off by is an error like any other.
                if !matches!(node.prim(), Prim::Map(_) | Prim::View(_) | Prim::Concat(_)) {
                    both[0] = both[1].clone();
                }
            }
            let [squares, handed] = both;
            spreads.squares.push(squares);
            spreads.handed.push(handed);
        }
        Ok(spreads)
    }

    fn of_any(&mut self, id: usize, node: &Node) -> Result<SmallVec<[Option<Value>; 1]>> {
        // What has no error of its own, as integers have none, may hand on that of others.
        let is_handed = node.args().iter().any(|arg| self.square(*arg).is_some());
        if is_handed || node.types().iter().any(|ty| ty.dtype.is_float()) {
            return self.of_node(id, node);
        }
        Ok(SmallVec::from_elem(None, node.types().len()))
    }

    fn square(&self, value: Value) -> Option<Value> {
        let squares = if self.jumps == Jumps::HandOn { &self.handed } else { &self.squares };
        squares[value.node()][value.port()]
    }

    fn add(&mut self, prim: impl Into<Prim>, args: &[Value]) -> Result<Value> {
        self.with_errors.add(prim, args, &OriginSet::default()).map(|id| Value::new(id, 0))
    }

    fn of_node(&mut self, id: usize, node: &Node) -> Result<SmallVec<[Option<Value>; 1]>> {
        let args = node.args();
        let value = Value::new(id, 0);
        let square = match node.prim() {
            Prim::Input(_) | Prim::Const(_) | Prim::Sizes(_) | Prim::Bind(_) | Prim::Random(_) => None,
            Prim::Map(row) => self.of_map(row, args)?,
            Prim::View(row) => match self.square(args[0]) {
                Some(square) => Some(self.add(View { fill: row.fill.map(|_| zero()), ..row.clone() }, &[square])?),
                None => None,
            },
            Prim::Concat(row) if args.iter().any(|a| self.square(*a).is_some()) => {
                let parts = args.iter().map(|part| self.square_or_zero(*part)).collect::<Result<Vec<_>>>()?;
                Some(self.add(Concat { axis: row.axis }, &parts)?)
            }
            Prim::Concat(_) => None,
            Prim::Reduce(row) => self.of_reduce(value, row, args[0])?,
            Prim::Prefix(row) if row.monoid == Monoid::Sum => {
                let length = length_of(&mut std::iter::once(&node.types()[0].shape[row.axis]), self.env);
                let terms = self.terms(args[0], length)?;
                Some(self.add(Prefix { monoid: Monoid::Sum, ..row.clone() }, &[terms])?)
            }
            Prim::Contract(row) => Some(self.of_contract(value, row, args)?),
            Prim::Gather(row) => match self.square(args[0]) {
                Some(square) => {
                    let operands: Vec<Value> = std::iter::once(square).chain(args[1..].iter().copied()).collect();
                    Some(self.add(Gather { shape: row.shape.clone(), map: row.map.clone() }, &operands)?)
                }
                None => None,
            },
            Prim::Scatter(row) if matches!(row.combine, Combine::Replace | Combine::Add) => {
                Some(self.of_scatter(value, row, args)?)
            }
            Prim::If(row) => return self.of_if(row, args),
            _ => {
                let ports = (0..node.types().len()).map(|port| {
                    let value = Value::new(id, port);
                    match self.graph.ty(value).dtype.is_float() {
                        true => self.part_of(value, self.relative[id]).map(Some),
                        false => Ok(None),
                    }
                });
                return ports.collect();
            }
        };
        Ok(SmallVec::from_elem(square, 1))
    }

    fn square_or_zero(&mut self, value: Value) -> Result<Value> {
        if let Some(square) = self.square(value) {
            return Ok(square);
        }
        let nothing = self.add(Const { literal: Literal::from_f64s(DType::F64, [], &[0.0])? }, &[])?;
        let shape = self.graph.ty(value).shape.clone();
        self.add(View::new(shape, Vec::new()), &[nothing])
    }

    /// An expression of some values of one shape.
    fn map(&mut self, args: &[Value], body: impl for<'s> FnOnce(&'s Scope, &[Term<'s>]) -> Term<'s>) -> Result<Value> {
        let types: Vec<DType> = args.iter().map(|a| self.with_errors.ty(*a).dtype).collect();
        let shape: Shape = self.with_errors.ty(args[0]).shape.clone();
        let expr = Expr::build(&types, |scope, args| {
            let args: Vec<Term<'_>> = args.iter().map(|a| a.cast(DType::F64)).collect();
            body(scope, &args)
        });
        self.add(Map { expr, shape }, args)
    }

    /// The square of a part of a value.
    fn part_of(&mut self, value: Value, part: f64) -> Result<Value> {
        self.map(&[value], |scope, x| x[0] * x[0] * scope.float(x[0], part * part))
    }

    fn of_map(&mut self, row: &Map, args: &[Value]) -> Result<Option<Value>> {
        let given: Vec<Option<Value>> = args.iter().map(|a| self.square(*a)).collect();
        let present: Vec<bool> = given.iter().map(Option::is_some).collect();
        let Some(expr) = squared_error(&row.expr, &present, self.jumps) else { return Ok(None) };
        let operands: Vec<Value> = args.iter().copied().chain(given.into_iter().flatten()).collect();
        self.add(Map { expr, shape: row.shape.clone() }, &operands).map(Some)
    }

    /// What each term of a sum of so many adds to the square of its error: its own, and what is rounded on the way.
    fn terms(&mut self, x: Value, length: f64) -> Result<Value> {
        let rounding = self.graph.ty(x).dtype.epsilon();
        let rounding = rounding * rounding * length;
        match self.square(x) {
            Some(square) => self.map(&[x, square], |scope, x| x[1] + x[0] * x[0] * scope.float(x[0], rounding)),
            None => self.map(&[x], |scope, x| x[0] * x[0] * scope.float(x[0], rounding)),
        }
    }

    fn of_reduce(&mut self, value: Value, row: &Reduce, x: Value) -> Result<Option<Value>> {
        match row.monoid {
            Monoid::Sum => {
                let shape = &self.graph.ty(x).shape;
                let length = length_of(&mut row.axes.iter().map(|a| &shape[*a]), self.env);
                let terms = self.terms(x, length)?;
                self.add(row.clone(), &[terms]).map(Some)
            }
            Monoid::Max | Monoid::Min => match self.square(x) {
                Some(square) => self.add(Reduce { monoid: Monoid::Max, axes: row.axes.clone() }, &[square]).map(Some),
                None => Ok(None),
            },
            _ => self.part_of(value, self.relative[value.node()]).map(Some),
        }
    }

    fn of_contract(&mut self, value: Value, row: &Contract, args: &[Value]) -> Result<Value> {
        let types = [self.graph.ty(args[0]).clone(), self.graph.ty(args[1]).clone()];
        let length = length_of(&mut row.summed().iter().filter_map(|l| row.extent(&types, *l)), self.env);
        let rounding = row.accumulator.epsilon() * row.accumulator.epsilon() * length;
        let [a, b] = [args[0], args[1]];
        let squared = self.map(&[b], |_, x| x[0] * x[0])?;
        let left = match self.square(a) {
            Some(square) => self.map(&[a, square], |scope, x| x[1] + x[0] * x[0] * scope.float(x[0], rounding))?,
            None => self.map(&[a], |scope, x| x[0] * x[0] * scope.float(x[0], rounding))?,
        };
        let contract = Contract { accumulator: DType::F64, ..row.clone() };
        let mut sum = self.add(contract.clone(), &[left, squared])?;
        if let Some(square) = self.square(b) {
            let squared = self.map(&[a], |_, x| x[0] * x[0])?;
            let right = self.add(contract, &[squared, square])?;
            sum = self.map(&[sum, right], |_, x| x[0] + x[1])?;
        }
        let own = 0.5 * self.graph.ty(value).dtype.epsilon();
        self.map(&[sum, value], |scope, x| x[0] + x[1] * x[1] * scope.float(x[1], own * own))
    }

    fn of_scatter(&mut self, value: Value, row: &Scatter, args: &[Value]) -> Result<Value> {
        let mut operands = vec![self.square_or_zero(args[0])?, self.square_or_zero(args[1])?];
        operands.extend(&args[2..]);
        let sum = self.add(row.clone(), &operands)?;
        let own = 2.0 * self.graph.ty(value).dtype.epsilon();
        self.map(&[sum, value], |scope, x| x[0] + x[1] * x[1] * scope.float(x[1], own * own))
    }

    /// The same choice, between regions that return the squares of the errors of what they returned.
    fn of_if(&mut self, row: &If, args: &[Value]) -> Result<SmallVec<[Option<Value>; 1]>> {
        let captures = &args[1..];
        let given: Vec<Option<Value>> = captures.iter().map(|a| self.square(*a)).collect();
        let relative = captures.iter().zip(&given).map(|(a, square)| square.map(|_| self.relative[a.node()]));
        let relative: Vec<Option<f64>> = relative.collect();
        let mut is_erring = vec![false; row.results.len()];
        let mut region = |region: &Graph| -> Result<Arc<Graph>> {
            let env = self.env_of(region, captures);
            let mut spreads = Spreads::new(region, &env, self.jumps, &relative)?;
            spreads.jumps = self.jumps;
            for (output, is_erring) in region.outputs().iter().zip(&mut is_erring) {
                *is_erring |= spreads.square(output.value).is_some();
                let square = spreads.square_or_zero(output.value)?;
                spreads.with_errors.add_output(&output.name, square);
            }
            Ok(Arc::new(spreads.with_errors))
        };
        let (then, otherwise) = (region(&row.then)?, region(&row.otherwise)?);
        let results = row.results.iter().map(|ty| TensorType::new(DType::F64, ty.shape.clone())).collect();
        let operands: Vec<Value> = args.iter().copied().chain(given.into_iter().flatten()).collect();
        let id = self.with_errors.add(If { then, otherwise, results }, &operands, &OriginSet::default())?;
        let ports = is_erring.into_iter().enumerate();
        Ok(ports.map(|(port, is_erring)| is_erring.then(|| Value::new(id, port))).collect())
    }

    /// The sizes around a region, with those that its inputs bind.
    fn env_of(&self, region: &Graph, captures: &[Value]) -> Env {
        let mut env = self.env.clone();
        for (inner, outer) in region.inputs().iter().zip(captures) {
            let sizes = self.graph.ty(*outer).shape.dims().iter().map(|dim| dim.eval(self.env));
            for (dim, size) in region.ty(*inner).shape.dims().iter().zip(sizes) {
                if let (Some(symbol), Ok(size)) = (dim.as_symbol(), size) {
                    env.bind(symbol.clone(), size);
                }
            }
        }
        env
    }
}

fn zero() -> Number {
    Number::new(DType::F64, 0.0)
}

/// The square of the error of an expression: of its arguments, then of the squares of the errors of those that have one. `None` where it
/// has no error.
fn squared_error(expr: &Expr, present: &[bool], jumps: Jumps) -> Option<Expr> {
    let scope = Scope::default();
    let (args, given) = with_squares(&scope, expr, present);
    let root = squares_of(&scope, expr, &given, jumps).pop()??;
    Some(Expr::of(root, &args))
}

/// The arguments of an expression, and behind them the squares of the errors of those that have one, also by argument.
fn with_squares<'s>(scope: &'s Scope, expr: &Expr, present: &[bool]) -> (Vec<Term<'s>>, Vec<Option<Term<'s>>>) {
    let mut args: Vec<Term<'_>> = expr.args().iter().enumerate().map(|(k, d)| scope.argument(k, *d)).collect();
    let mut given = Vec::with_capacity(present.len());
    for is_present in present {
        let square = is_present.then(|| scope.argument(args.len(), DType::F64));
        args.extend(square);
        given.push(square);
    }
    (args, given)
}

/// An expression with what enters its jumps moved by so many times its error: of its arguments, of the squares of their errors, and of the
/// arguments once more, which may have been moved. `None` where nothing that errs jumps.
fn moved_at_jumps(expr: &Expr, present: &[bool], by: f64) -> Option<Expr> {
    let scope = Scope::default();
    let (mut args, given) = with_squares(&scope, expr, present);
    let squares = squares_of(&scope, expr, &given, Jumps::End);
    let first = args.len();
    args.extend(expr.args().iter().enumerate().map(|(k, dtype)| scope.argument(first + k, *dtype)));
    let (mut terms, mut is_other): (Vec<Term<'_>>, bool) = (Vec::with_capacity(squares.len()), false);
    for (node, dtype) in expr.nodes() {
        if let ExprNode::Arg(k) = node {
            terms.push(args[first + *k as usize]);
            continue;
        }
        let places = node.operands();
        let mut operands: SmallVec<[Term<'_>; 3]> = places.iter().map(|k| terms[*k as usize]).collect();
        let square = places.iter().fold(None, |all, k| sum(all, squares[*k as usize]));
        if let Some(square) = square.filter(|_| is_jump(node, *dtype) && operands[0].dtype().is_float()) {
            operands[0] = moved_by(&scope, operands[0], square, by);
            is_other = true;
        }
        terms.push(scope.step(node, *dtype, &operands));
    }
    is_other.then(|| Expr::of(*terms.last().expect("an expression has a result"), &args))
}

/// A number moved by so many times its error, of which the square is known.
fn moved_by<'s>(scope: &'s Scope, x: Term<'s>, square: Term<'s>, by: f64) -> Term<'s> {
    (x.cast(DType::F64) + square.apply(Scalar::Sqrt) * scope.float(square, by)).cast(x.dtype())
}

/// The squares of the errors of every step of an expression, given those of its arguments.
fn squares_of<'s>(scope: &'s Scope, expr: &Expr, given: &[Option<Term<'s>>], jumps: Jumps) -> Vec<Option<Term<'s>>> {
    let mut terms: Vec<Term<'_>> = Vec::with_capacity(expr.nodes().len());
    let mut squares: Vec<Option<Term<'_>>> = Vec::with_capacity(expr.nodes().len());
    for (node, dtype) in expr.nodes() {
        let places = node.operands();
        let operands: SmallVec<[Term<'_>; 3]> = places.iter().map(|k| terms[*k as usize]).collect();
        let carried: SmallVec<[Option<Term<'_>>; 3]> = places.iter().map(|k| squares[*k as usize]).collect();
        let term = scope.step(node, *dtype, &operands);
        let square = match node {
            ExprNode::Arg(k) => given[*k as usize],
            _ if is_jump(node, *dtype) && operands[0].dtype().is_float() => match (jumps, node) {
                (Jumps::HandOn, _) => error_of_jump(scope, node, *dtype, term, &operands, &carried),
                // Between its jumps a remainder is as steep as what it is of.
                (Jumps::End, ExprNode::Apply(op @ (Scalar::Mod | Scalar::Rem), _)) => {
                    error_of_call(scope, *op, term, &operands, &carried)
                }
                (Jumps::End, _) => None,
            },
            _ if !dtype.is_float() => error_of_integers(node, &operands, &carried),
            ExprNode::Apply(op, _) => error_of_call(scope, *op, term, &operands, &carried),
            ExprNode::Cast(_) => {
                let rounds = dtype.epsilon() > operands[0].dtype().epsilon();
                let own = rounds.then(|| own_error(scope, term, 0.5));
                sum(carried[0], own)
            }
            ExprNode::Const(_) | ExprNode::Coord(_) | ExprNode::Size(_) | ExprNode::Bits(_) => None,
        };
        terms.push(term);
        squares.push(square);
    }
    squares
}

/// What comes out of a jump errs by how far it goes where what enters is moved by its error, up or down. Errors are multiplied by
/// `SAFETY` in the end, and this difference is all there is to it: a part of it stands for the whole.
fn error_of_jump<'s>(
    scope: &'s Scope,
    node: &ExprNode,
    dtype: DType,
    term: Term<'s>,
    operands: &[Term<'s>],
    carried: &[Option<Term<'s>>],
) -> Option<Term<'s>> {
    let square = carried.iter().fold(None, |all, one| sum(all, *one))?;
    let x = *operands.first().filter(|x| x.dtype().is_float())?;
    let side = |by: f64| {
        let mut operands: SmallVec<[Term<'s>; 3]> = SmallVec::from_slice(operands);
        operands[0] = moved_by(scope, x, square, by);
        (scope.step(node, dtype, &operands).cast(DType::F64) - term.cast(DType::F64)).apply(Scalar::Abs)
    };
    let farthest = Term::call(Scalar::Max, &[side(SAFETY), side(-SAFETY)]);
    Some(farthest * farthest * scope.float(farthest, 1.0 / (SAFETY * SAFETY)))
}

/// What integers and truths hand on of errors that came through a jump; nothing where that is not known.
fn error_of_integers<'s>(node: &ExprNode, operands: &[Term<'s>], carried: &[Option<Term<'s>>]) -> Option<Term<'s>> {
    let times = |square: Option<Term<'s>>, by: Term<'s>| {
        let by = by.cast(DType::F64);
        square.map(|square| square * by * by)
    };
    match node {
        ExprNode::Cast(_) => carried[0],
        ExprNode::Apply(op, _) => match op {
            Scalar::Neg | Scalar::Abs | Scalar::Not => carried[0],
            Scalar::Add | Scalar::Sub | Scalar::Max | Scalar::Min | Scalar::And | Scalar::Or | Scalar::Xor => {
                sum(carried[0], carried[1])
            }
            Scalar::Mul => sum(times(carried[0], operands[1]), times(carried[1], operands[0])),
            Scalar::Select => sum(chosen(operands, carried), sum(carried[1], carried[2])),
            _ => None,
        },
        _ => None,
    }
}

/// The error of a choice whose condition errs: the difference of what is chosen from.
fn chosen<'s>(operands: &[Term<'s>], carried: &[Option<Term<'s>>]) -> Option<Term<'s>> {
    let apart = operands[1].cast(DType::F64) - operands[2].cast(DType::F64);
    carried[0].map(|square| square * apart * apart)
}

fn error_of_call<'s>(
    scope: &'s Scope,
    op: Scalar,
    result: Term<'s>,
    operands: &[Term<'s>],
    carried: &[Option<Term<'s>>],
) -> Option<Term<'s>> {
    let nothing = scope.constant(DType::F64, zero());
    let or_nothing = |square: Option<Term<'s>>| square.unwrap_or(nothing);
    match op {
        Scalar::Neg | Scalar::Abs => carried[0],
        Scalar::Select => match (carried[1], carried[2]) {
            (None, None) => chosen(operands, carried),
            (yes, no) => sum(chosen(operands, carried), Some(operands[0].select(or_nothing(yes), or_nothing(no)))),
        },
        // Whoever is the larger one by its error is so either way; of two that are closer, both may be.
        Scalar::Max | Scalar::Min => {
            sum(carried[0], carried[1])?;
            let (a, b) = (or_nothing(carried[0]), or_nothing(carried[1]));
            let apart = operands[0].cast(DType::F64) - operands[1].cast(DType::F64);
            let is_near = (apart * apart).lt((a + b) * scope.float(a, 16.0));
            let is_first = match op {
                Scalar::Max => operands[1].lt(operands[0]),
                _ => operands[0].lt(operands[1]),
            };
            Some(is_near.select(Term::call(Scalar::Max, &[a, b]), is_first.select(a, b)))
        }
        _ => {
            let slopes = (op.def().gradient)(scope, operands, result);
            let mut total = match op {
                Scalar::Mod | Scalar::Rem => None,
                _ => Some(own_error(scope, result, 0.5 + f64::from(op.def().ulp))),
            };
            for (slope, square) in slopes.into_iter().zip(carried) {
                let Some(square) = *square else { continue };
                let slope = slope.cast(DType::F64);
                let mut handed = slope * slope * square;
                if op == Scalar::Sqrt {
                    // |√(x + e) − √x| ≤ √|e|, however steep a root is near 0.
                    handed = Term::call(Scalar::Min, &[handed, square.apply(Scalar::Sqrt)]);
                }
                // No error stays none where the slope has no end.
                let is_none = Term::call(Scalar::Eq, &[square, nothing]);
                total = sum(total, Some(is_none.select(nothing, handed)));
            }
            total
        }
    }
}

/// The square of so many units of the last place of a result. An infinity, such as masks are made of, is not rounded.
fn own_error<'s>(scope: &'s Scope, result: Term<'s>, ulps: f64) -> Term<'s> {
    let own = ulps * result.dtype().epsilon();
    let result = result.cast(DType::F64);
    let is_number = result.apply(Scalar::Abs).lt(scope.float(result, f64::INFINITY));
    is_number.select(result * result * scope.float(result, own * own), scope.constant(DType::F64, zero()))
}

fn sum<'s>(a: Option<Term<'s>>, b: Option<Term<'s>>) -> Option<Term<'s>> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (one, other) => one.or(other),
    }
}
