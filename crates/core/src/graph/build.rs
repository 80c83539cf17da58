//! Building graphs. Operations on [`Tensor`] handles never fail in place: the first error is kept, what follows from it
//! is a poisoned value, and [`Builder::finish`] returns the error. Questions about a poisoned value return it earlier.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::sync::Arc;

use super::contents::{self, Contents, Known, Purpose};
use super::{Constraint, Graph, Origin, OriginSet, Tensor, Value};
use crate::error::{Error, Result};
use crate::ops::prim::{self, Bind, Const, If, Input, Loop, Random, Sizes};
use crate::ops::{Expr, Prim};
use crate::tensor::{DType, Dim, Literal, MAX_RANK, Shape, Symbol, TensorType};

/// A graph under construction.
#[derive(Debug)]
pub struct Builder {
    state: RefCell<State>,
    next_stream: Cell<u64>,
}

#[derive(Debug, Default)]
struct State {
    graph: Graph,
    /// What is known of each node's first result.
    contents: Vec<Option<Contents>>,
    origin: OriginSet,
    error: Option<Error>,
    /// Whether the structure hangs on what was supposed of sizes.
    supposes: bool,
    /// The names of the inputs; of the standard library, whose hashes no model can foresee.
    names: HashSet<Arc<str>>,
}

impl Builder {
    /// An empty graph.
    pub fn new(name: impl Into<String>) -> Builder {
        Builder::from_graph(Graph::new(name))
    }

    /// A graph to which more is added.
    pub fn from_graph(graph: Graph) -> Builder {
        let mut state = State { graph, ..State::default() };
        for id in 0..state.graph.nodes().len() {
            state.learn(id);
        }
        state.names = state.graph.inputs().iter().map(|v| state.graph.input_name(*v).clone()).collect();
        Builder { state: RefCell::new(state), next_stream: Cell::new(0) }
    }

    /// The graph of a region inside this one; its fresh symbols are not used outside.
    pub fn region(&self, name: impl Into<String>) -> Builder {
        let mut graph = Graph::new(name);
        graph.start_symbols(self.state.borrow().graph.value_symbols());
        let inner = Builder::from_graph(graph);
        inner.next_stream.set(self.next_stream.get());
        inner.state.borrow_mut().origin = self.state.borrow().origin.clone();
        inner
    }

    /// The finished graph, or the first error.
    pub fn finish(self) -> Result<Graph> {
        let state = self.state.into_inner();
        match state.error {
            Some(error) => Err(error),
            None => Ok(state.graph),
        }
    }

    /// The first error so far; it is forgotten, so that building can go on to find more.
    pub fn take_error(&self) -> Option<Error> {
        self.state.borrow_mut().error.take()
    }

    /// Whether an error is kept.
    pub fn has_error(&self) -> bool {
        self.state.borrow().error.is_some()
    }

    /// Nodes added from now on belong to this operator of the user's model.
    pub fn set_origin(&self, origin: Option<Origin>) {
        self.state.borrow_mut().origin = origin.map_or_else(OriginSet::default, |o| OriginSet::of(Arc::new(o)));
    }

    /// What `build` adds may belong to other operators; afterwards nodes belong to the same one as before.
    pub fn keep_origin<R>(&self, build: impl FnOnce() -> R) -> R {
        let origin = self.state.borrow().origin.clone();
        let result = build();
        self.state.borrow_mut().origin = origin;
        result
    }

    /// Looks at the graph built so far.
    pub fn with_graph<R>(&self, look: impl FnOnce(&Graph) -> R) -> R {
        look(&self.state.borrow().graph)
    }

    /// The handle of a value of this graph.
    pub fn tensor(&self, value: Value) -> Tensor<'_> {
        Tensor::new(self, value)
    }

    /// A value that stands for a failed operation.
    pub fn poison(&self) -> Tensor<'_> {
        Tensor::new(self, Value::POISON)
    }

    /// Keeps an error (the first one wins) and returns a poisoned value.
    pub fn fail(&self, error: Error) -> Tensor<'_> {
        self.state.borrow_mut().error.get_or_insert(error);
        self.poison()
    }

    /// Adds a primitive; its first result.
    pub fn add<'b>(&'b self, prim: impl Into<Prim>, args: &[Tensor<'b>]) -> Tensor<'b> {
        self.add_multi(prim, args)[0]
    }

    /// Adds a primitive; all its results (one poisoned value on failure).
    pub fn add_multi<'b>(&'b self, prim: impl Into<Prim>, args: &[Tensor<'b>]) -> Vec<Tensor<'b>> {
        if args.iter().any(|a| a.is_poisoned()) {
            return vec![self.poison()];
        }
        let values: Vec<Value> = args.iter().map(|a| a.value()).collect();
        let state = &mut *self.state.borrow_mut();
        match state.graph.add(prim, &values, &state.origin) {
            Ok(id) => {
                state.learn(id);
                let ports = state.graph.nodes()[id].types().len();
                (0..ports).map(|port| Tensor::new(self, Value::new(id, port))).collect()
            }
            Err(error) => {
                state.error.get_or_insert(error);
                vec![Tensor::new(self, Value::POISON)]
            }
        }
    }

    /// A tensor that the caller provides.
    pub fn input(&self, name: &str, dtype: DType, shape: impl Into<Shape>) -> Tensor<'_> {
        let own: Arc<str> = name.into();
        if !self.state.borrow_mut().names.insert(own.clone()) {
            return self.fail(Error::invalid(format!("two inputs are called \"{name}\"")));
        }
        self.add(Input { name: own, ty: TensorType::new(dtype, shape) }, &[])
    }

    /// Names a value as a result.
    pub fn output(&self, name: &str, value: Tensor<'_>) {
        if !value.is_poisoned() {
            self.state.borrow_mut().graph.add_output(name, value.value());
        }
    }

    /// A constant tensor.
    pub fn constant(&self, literal: Literal) -> Tensor<'_> {
        self.add(Const { literal }, &[])
    }

    /// A constant scalar, rounded to its type.
    pub fn scalar(&self, dtype: DType, x: f64) -> Tensor<'_> {
        match Literal::from_f64s(dtype, [], &[x]) {
            Ok(literal) => self.constant(literal),
            Err(error) => self.fail(error),
        }
    }

    /// A constant integer scalar.
    pub fn int(&self, dtype: DType, x: i64) -> Tensor<'_> {
        match Literal::from_ints(dtype, [], &[x]) {
            Ok(literal) => self.constant(literal),
            Err(error) => self.fail(error),
        }
    }

    /// A vector of sizes (i64); a constant where all are numbers.
    pub fn sizes(&self, dims: &[Dim]) -> Tensor<'_> {
        let numbers: Option<Vec<i64>> = dims.iter().map(Dim::as_int).collect();
        match numbers {
            Some(numbers) => self.constant(Literal::i64s(&numbers)),
            None => self.add(Sizes { dims: dims.to_vec() }, &[]),
        }
    }

    /// A size as an i64 scalar.
    pub fn size(&self, dim: &Dim) -> Tensor<'_> {
        self.index(dim, &Shape::scalar())
    }

    /// An index expression at every coordinate of a shape (i64).
    pub fn index(&self, dim: &Dim, shape: &Shape) -> Tensor<'_> {
        let expr = Expr::build(&[], |scope, _| scope.index(dim));
        self.add(prim::Map { expr, shape: shape.clone() }, &[])
    }

    /// The coordinate along `axis` at every place of a shape (i64).
    pub fn coordinate(&self, axis: usize, shape: &Shape) -> Tensor<'_> {
        self.index(&Dim::axis(axis), shape)
    }

    /// A scalar expression of tensors of one shape.
    pub fn map<'b>(&'b self, expr: &Expr, args: &[Tensor<'b>]) -> Tensor<'b> {
        let Some(first) = args.first() else {
            return self.fail(Error::bug("a map without operands needs a shape"));
        };
        match first.shape() {
            Ok(shape) => self.add(prim::Map { expr: expr.clone(), shape }, args),
            Err(_) => self.poison(),
        }
    }

    /// Random u32 words of a shape; every call is a stream of its own.
    pub fn random<'b>(&'b self, seed: Tensor<'b>, shape: Shape) -> Tensor<'b> {
        let stream = self.next_stream.replace(self.next_stream.get() + 1);
        self.add(Random { stream, shape }, &[seed])
    }

    /// Uniform floats in [0, 1) of a type, 24 random bits each.
    pub fn uniform<'b>(&'b self, seed: Tensor<'b>, dtype: DType, shape: Shape) -> Tensor<'b> {
        let words = self.random(seed, shape) >> 8;
        (words.cast(DType::F32) * (-24f64).exp2()).cast(dtype)
    }

    /// A value symbol that nothing else uses.
    pub fn fresh_symbol(&self) -> u32 {
        self.state.borrow_mut().graph.fresh_symbol()
    }

    /// Demands that two sizes are equal: an error if they cannot be, a check at run time if that is not known.
    pub fn require_equal(&self, left: &Dim, right: &Dim, why: &str) -> Result<()> {
        if left == right {
            return Ok(());
        }
        if left.surely_differs(right) {
            return Err(Error::invalid(format!("the sizes {left} and {right} differ ({why})")));
        }
        let state = &mut *self.state.borrow_mut();
        let why = if state.origin.is_empty() { why.into() } else { format!("{why}, {}", state.origin).into() };
        state.graph.add_constraint(Constraint { left: left.clone(), right: right.clone(), why });
        Ok(())
    }

    /// Demands the same of sizes on which the structure of what follows hangs: what does not fit later may fit other sizes.
    pub fn suppose_equal(&self, left: &Dim, right: &Dim, why: &str) -> Result<()> {
        self.state.borrow_mut().supposes = true;
        self.require_equal(left, right, why)
    }

    /// Whether the structure hangs on what was supposed of sizes.
    pub fn supposes(&self) -> bool {
        self.state.borrow().supposes
    }

    /// What is known of a small tensor's elements.
    pub fn contents(&self, tensor: Tensor<'_>) -> Option<Contents> {
        let value = tensor.value();
        let state = self.state.borrow();
        if tensor.is_poisoned() || value.port() != 0 {
            return None;
        }
        state.contents.get(value.node())?.clone()
    }

    /// The data of a tensor that does not depend on any input.
    pub fn constant_of(&self, tensor: Tensor<'_>) -> Option<Literal> {
        if tensor.is_poisoned() {
            return None;
        }
        let value = tensor.value();
        if let Prim::Const(row) = self.state.borrow().graph.node_of(value).prim() {
            return Some(row.literal.clone());
        }
        let known = self.contents(tensor)?;
        let ty = tensor.ty().ok()?;
        contents::to_literal(&known, ty.dtype, ty.shape.as_ints()?)
    }

    /// As [`Builder::constant_of`]; where the data depends on inputs, an error that names them.
    pub fn require_constant(&self, tensor: Tensor<'_>, what: &str) -> Result<Literal> {
        tensor.ty()?;
        self.constant_of(tensor)
            .ok_or_else(|| self.needs_value(tensor, &format!("{what} must be known before run time")))
    }

    /// The elements of an integer tensor of known length as sizes; those not known yet become value symbols.
    pub fn dims_of(&self, tensor: Tensor<'_>, what: &str) -> Result<Vec<Dim>> {
        let ty = tensor.ty()?;
        if !ty.dtype.is_int() || ty.shape.rank() > 1 {
            return Err(Error::invalid(format!("{what} must be a vector of integers, not {ty}")));
        }
        let count = ty.shape.count().as_int();
        if let Some(many) = count.filter(|n| *n > MAX_RANK as i64) {
            return Err(Error::invalid(format!(
                "{what} of {many} elements, more than a tensor may have axes ({MAX_RANK})"
            )));
        }
        let Some(count) = count else {
            return Err(self.needs_value(tensor, &format!("the number of elements of {what} must be known")));
        };
        let known = self.contents(tensor);
        let mut dims = Vec::new();
        for k in 0..count {
            match known.as_ref().and_then(|c| c.get(k as usize)) {
                Some(Known::Int(dim)) => dims.push(dim.clone()),
                _ => {
                    let element = if ty.shape.rank() == 0 { tensor } else { tensor.element(0, k) };
                    dims.push(self.bind(element)?);
                }
            }
        }
        Ok(dims)
    }

    /// An integer scalar as a size: what is known of it, or a value symbol that it binds at run time.
    pub fn bind(&self, tensor: Tensor<'_>) -> Result<Dim> {
        let scalar = tensor.cast(DType::I64).reshape(Shape::scalar());
        scalar.ty()?;
        if let Some(known) = self.contents(scalar)
            && let Known::Int(dim) = &known[0]
        {
            return Ok(dim.clone());
        }
        let symbol = self.fresh_symbol();
        let bound = self.add(Bind { symbol }, &[scalar]);
        bound.ty()?;
        Ok(Symbol::Value(symbol).into())
    }

    /// The error that says that structure depends on the values of inputs.
    pub fn needs_value(&self, tensor: Tensor<'_>, message: &str) -> Error {
        let inputs = self.with_graph(|graph| {
            let mut seen = vec![false; graph.nodes().len()];
            let mut todo = vec![tensor.value().node()];
            while let Some(id) = todo.pop() {
                if !std::mem::replace(&mut seen[id], true) {
                    todo.extend(graph.nodes()[id].args().iter().map(|a| a.node()));
                }
            }
            let needed = graph.inputs().iter().filter(|v| seen[v.node()]);
            needed.map(|v| graph.input_name(*v).to_string()).collect::<Vec<_>>()
        });
        Error::needs_value(message, inputs)
    }

    /// One of two regions; both take `captures` in order.
    pub fn if_else<'b>(
        &'b self,
        condition: Tensor<'b>,
        then: Graph,
        otherwise: Graph,
        captures: &[Tensor<'b>],
    ) -> Result<Vec<Tensor<'b>>> {
        self.reserve_region(&then);
        self.reserve_region(&otherwise);
        if then.outputs().len() != otherwise.outputs().len() {
            return Err(Error::invalid(format!(
                "the branches return {} and {} values",
                then.outputs().len(),
                otherwise.outputs().len()
            )));
        }
        let mut results = Vec::new();
        for (a, b) in then.outputs().iter().zip(otherwise.outputs()) {
            results.push(self.join(&then, then.ty(a.value), otherwise.ty(b.value))?);
        }
        if results.is_empty() {
            return Ok(Vec::new());
        }
        let args: Vec<_> =
            std::iter::once(condition.reshape(Shape::scalar())).chain(captures.iter().copied()).collect();
        let row = If { then: Arc::new(then), otherwise: Arc::new(otherwise), results };
        let results = self.add_multi(row, &args);
        results[0].ty()?;
        Ok(results)
    }

    /// A loop; see [`Loop`] for what the body takes and returns.
    pub fn loop_<'b>(
        &'b self,
        trips: Tensor<'b>,
        start: Tensor<'b>,
        carried: &[Tensor<'b>],
        body: Graph,
        captures: &[Tensor<'b>],
    ) -> Result<Vec<Tensor<'b>>> {
        self.reserve_region(&body);
        let outputs = body.outputs();
        let mut results = Vec::new();
        for (k, output) in outputs.iter().enumerate().skip(1) {
            let ty = body.ty(output.value);
            let outer = |dim: &Dim| self.outer_dim(&body, dim);
            if let Some(initial) = carried.get(k - 1) {
                // The type of a carried value is that of the body's input: its symbols stand for what changes.
                let initial = initial.ty()?;
                let dims = initial.shape.dims().iter().zip(body.ty(body.inputs()[k]).shape.dims());
                let dims =
                    dims.map(|(a, b)| if a == b { a.clone() } else { Symbol::Value(self.fresh_symbol()).into() });
                results.push(TensorType::new(initial.dtype, dims.collect::<Shape>()));
            } else {
                let trips = match self.contents(trips).as_deref() {
                    _ if self.loop_may_end_early(&body) => None,
                    Some([Known::Int(dim)]) if dim.is_nonnegative() => Some(dim.clone()),
                    _ => None,
                };
                let first = trips.unwrap_or_else(|| Symbol::Value(self.fresh_symbol()).into());
                let dims = std::iter::once(first).chain(ty.shape.dims().iter().map(outer));
                results.push(TensorType::new(ty.dtype, dims.collect::<Shape>()));
            }
        }
        if results.is_empty() {
            return Ok(Vec::new());
        }
        let args: Vec<_> = [trips.reshape(Shape::scalar()), start.reshape(Shape::scalar())]
            .into_iter()
            .chain(carried.iter().copied())
            .chain(captures.iter().copied())
            .collect();
        let row = Loop { body: Arc::new(body), carried: carried.len(), results };
        let results = self.add_multi(row, &args);
        results[0].ty()?;
        Ok(results)
    }

    /// Whether a loop's condition can become false inside its body.
    fn loop_may_end_early(&self, body: &Graph) -> bool {
        let condition = body.outputs()[0].value;
        !matches!(body.node_of(condition).prim(), Prim::Const(row) if row.literal.int(0) != 0)
    }

    fn reserve_region(&self, region: &Graph) {
        self.state.borrow_mut().graph.reserve_symbols(region.value_symbols());
    }

    /// The type that both branches of an `if` have: sizes in which they differ become fresh symbols.
    fn join(&self, then: &Graph, a: &TensorType, b: &TensorType) -> Result<TensorType> {
        if a.dtype != b.dtype || a.shape.rank() != b.shape.rank() {
            return Err(Error::unsupported(format!("branches that return tensors of different kinds, {a} and {b}")));
        }
        let dims = a.shape.dims().iter().zip(b.shape.dims());
        let join = |(a, b): (&Dim, &Dim)| {
            if a == b { self.outer_dim(then, a) } else { Symbol::Value(self.fresh_symbol()).into() }
        };
        Ok(TensorType::new(a.dtype, dims.map(join).collect::<Shape>()))
    }

    /// A size of a region seen from outside: one that the region itself binds becomes a fresh symbol.
    fn outer_dim(&self, region: &Graph, dim: &Dim) -> Dim {
        let inner = |s: &Symbol| matches!(s, Symbol::Value(n) if *n >= region.first_symbol());
        if dim.mentions(inner) { Symbol::Value(self.fresh_symbol()).into() } else { dim.clone() }
    }
}

impl State {
    /// Follows what the new node holds.
    fn learn(&mut self, id: usize) {
        if id < self.contents.len() {
            return;
        }
        let known = &self.contents;
        let of = |v: Value| if v.port() == 0 { known.get(v.node())?.clone() } else { None };
        let contents = contents::contents(&self.graph, &self.graph.nodes()[id], Purpose::Shapes, &of);
        self.contents.push(contents);
    }
}
