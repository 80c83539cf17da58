//! Scalar expressions: the body of every elementwise computation.
//!
//! An [`Expr`] is a straight-line program over its arguments, in one canonical order (depth first from the result,
//! arguments left to right, every node once). Equal computations written in any order of construction are therefore
//! equal values, and a backend can emit an expression by walking its nodes once.

use std::cell::RefCell;
use std::fmt;
use std::hash::{Hash, Hasher};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::scalar::{Scalar, Signature};
use crate::error::{Error, Result};
use crate::tensor::{Class, DType, Dim};

/// A constant number: a float by its bits, an integer or bool by its value (u64 as the same bits).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Number {
    /// the bits of an f64
    Float(u64),
    /// an integer; bool is 0 or 1
    Int(i64),
}

impl Number {
    /// `x` as a constant of type `dtype`, rounded or wrapped to it.
    pub fn new(dtype: DType, x: f64) -> Number {
        match dtype.class() {
            Class::Float => Number::Float(dtype.round(x).to_bits()),
            _ => Number::Int(dtype.wrap(x as i128) as i64),
        }
    }

    /// The integer `x` as a constant of type `dtype`.
    pub fn from_int(dtype: DType, x: i64) -> Number {
        match dtype.class() {
            Class::Float => Number::new(dtype, x as f64),
            _ => Number::Int(dtype.wrap(i128::from(x)) as i64),
        }
    }

    /// Whether it is a number of this type: a float that the type can hold, an integer within its range.
    pub fn is_of(self, dtype: DType) -> bool {
        match self {
            Number::Float(bits) => {
                let x = f64::from_bits(bits);
                dtype.is_float() && (x.is_nan() || dtype.round(x).to_bits() == bits)
            }
            Number::Int(n) => !dtype.is_float() && dtype.wrap(i128::from(n)) as i64 == n,
        }
    }

    /// The value as a float.
    pub fn to_f64(self) -> f64 {
        match self {
            Number::Float(bits) => f64::from_bits(bits),
            Number::Int(n) => n as f64,
        }
    }
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Float(bits) => write!(f, "{:?}", f64::from_bits(*bits)),
            Number::Int(n) => write!(f, "{n}"),
        }
    }
}

/// One step of an expression; operands are positions of earlier steps.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ExprNode {
    /// the element of an argument
    Arg(u32),
    /// a constant
    Const(Number),
    /// a coordinate of the iteration domain, as an i64
    Coord(u8),
    /// a size, as an i64
    Size(Dim),
    /// a function of earlier steps
    Apply(Scalar, SmallVec<[u32; 3]>),
    /// an earlier step converted to the type of this step; rounds where the type is narrower
    Cast(u32),
    /// the stored bits of an earlier step, read as a number of the type of this step, which is as wide
    Bits(u32),
}

/// A scalar expression over typed arguments. The last node is the result.
#[derive(Clone)]
pub struct Expr {
    nodes: Vec<(ExprNode, DType)>,
    args: Vec<DType>,
    hash: u64,
}

impl PartialEq for Expr {
    fn eq(&self, other: &Expr) -> bool {
        self.hash == other.hash && self.args == other.args && self.nodes == other.nodes
    }
}

impl Eq for Expr {}

impl Hash for Expr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

impl Expr {
    /// The expression that `body` makes of arguments of the given types. Type errors inside `body` are bugs of the caller.
    pub fn build(args: &[DType], body: impl for<'s> FnOnce(&'s Scope, &[Term<'s>]) -> Term<'s>) -> Expr {
        Expr::try_build(args, |scope, terms| Ok(body(scope, terms))).expect("an infallible body gives an expression")
    }

    /// As [`Expr::build`], for bodies that can fail.
    pub fn try_build(
        args: &[DType],
        body: impl for<'s> FnOnce(&'s Scope, &[Term<'s>]) -> Result<Term<'s>>,
    ) -> Result<Expr> {
        let scope = Scope::default();
        let terms: Vec<_> = args.iter().enumerate().map(|(k, d)| scope.add(ExprNode::Arg(k as u32), *d)).collect();
        let root = body(&scope, &terms)?.id;
        Ok(Expr::canonical(&scope.state.borrow().nodes, root, args.to_vec()))
    }

    /// The expression of a single function applied to its arguments.
    pub fn call(op: Scalar, args: &[DType]) -> Result<Expr> {
        Expr::try_build(args, |_, terms| Term::try_call(op, terms))
    }

    /// The argument converted to another type.
    pub fn cast(from: DType, to: DType) -> Expr {
        Expr::build(&[from], |_, x| x[0].cast(to))
    }

    /// The stored bits of the argument read as another type of the same width.
    pub fn bits(from: DType, to: DType) -> Result<Expr> {
        Expr::try_build(&[from], |_, x| x[0].try_bits(to))
    }

    /// Copies what `root` needs, depth first, so that equal expressions have equal nodes.
    fn canonical(nodes: &[(ExprNode, DType)], root: u32, args: Vec<DType>) -> Expr {
        let mut position = vec![u32::MAX; nodes.len()];
        let mut ordered: Vec<(ExprNode, DType)> = Vec::new();
        let mut stack = vec![(root, false)];
        while let Some((id, expanded)) = stack.pop() {
            if position[id as usize] != u32::MAX {
                continue;
            }
            let (node, dtype) = &nodes[id as usize];
            if !expanded {
                stack.push((id, true));
                stack.extend(node.operands().iter().rev().map(|o| (*o, false)));
                continue;
            }
            position[id as usize] = ordered.len() as u32;
            ordered.push((node.renumbered(|o| position[o as usize]), *dtype));
        }
        let mut hasher = rustc_hash::FxHasher::default();
        ordered.hash(&mut hasher);
        args.hash(&mut hasher);
        Expr { nodes: ordered, args, hash: hasher.finish() }
    }

    /// The steps with their types; the last one is the result.
    pub fn nodes(&self) -> &[(ExprNode, DType)] {
        &self.nodes
    }

    /// The types of the arguments.
    pub fn args(&self) -> &[DType] {
        &self.args
    }

    /// The type of the result.
    pub fn dtype(&self) -> DType {
        self.nodes.last().expect("an expression has a result").1
    }

    /// Whether it depends on where it is evaluated, not only on its arguments.
    pub fn has_coordinates(&self) -> bool {
        self.nodes.iter().any(|(node, _)| matches!(node, ExprNode::Coord(_)))
    }

    /// Arithmetic cost of one evaluation.
    pub fn flops(&self) -> u32 {
        self.nodes.iter().map(|(n, _)| if let ExprNode::Apply(op, _) = n { op.def().flops } else { 0 }).sum()
    }

    /// The expression that computes `root` from the terms `args`, behind which it does not look. Every argument of the
    /// scope that `root` needs must lie behind one of them.
    pub fn of(root: Term<'_>, args: &[Term<'_>]) -> Expr {
        let mut nodes = root.scope.state.borrow().nodes.clone();
        for (k, arg) in args.iter().enumerate() {
            nodes[arg.id as usize] = (ExprNode::Arg(k as u32), arg.dtype);
        }
        Expr::canonical(&nodes, root.id, args.iter().map(|a| a.dtype).collect())
    }

    /// The single function this expression applies to its arguments in order, if it is nothing more.
    pub fn as_call(&self) -> Option<Scalar> {
        let (ExprNode::Apply(op, operands), _) = self.nodes.last()? else { return None };
        let plain = self.nodes[..self.nodes.len() - 1].iter().enumerate();
        let args_in_order = plain.clone().all(|(k, (n, _))| *n == ExprNode::Arg(k as u32));
        let all = operands.iter().copied().eq(0..self.args.len() as u32);
        (args_in_order && all && operands.len() + 1 == self.nodes.len()).then_some(*op)
    }

    /// Whether the expression only converts its one argument to another type.
    pub fn is_cast(&self) -> bool {
        matches!(self.nodes.as_slice(), [(ExprNode::Arg(0), _), (ExprNode::Cast(0), _)])
    }

    /// The constant, when the result is one.
    pub fn as_const(&self) -> Option<Number> {
        match self.nodes.as_slice() {
            [(ExprNode::Const(number), _)] => Some(*number),
            _ => None,
        }
    }

    /// The derivative by argument `wrt`, an expression of the same arguments; `None` where it is zero everywhere.
    pub fn derivative(&self, wrt: usize) -> Option<Expr> {
        let scope = Scope::default();
        for (k, dtype) in self.args.iter().enumerate() {
            scope.add(ExprNode::Arg(k as u32), *dtype);
        }
        let mut terms: Vec<Term<'_>> = Vec::with_capacity(self.nodes.len());
        let mut slopes: Vec<Option<Term<'_>>> = Vec::with_capacity(self.nodes.len());
        for (node, dtype) in &self.nodes {
            let term = scope.add(node.renumbered(|o| terms[o as usize].id), *dtype);
            let slope = match node {
                ExprNode::Arg(k) if *k as usize == wrt && dtype.is_float() => Some(scope.one(term)),
                ExprNode::Cast(x) if dtype.is_float() => slopes[*x as usize].map(|s| s.cast(*dtype)),
                ExprNode::Apply(op, operands) => {
                    let args: Vec<_> = operands.iter().map(|o| terms[*o as usize]).collect();
                    let partials = if dtype.is_float() { (op.def().gradient)(&scope, &args, term) } else { Vec::new() };
                    let chained = partials.into_iter().zip(operands);
                    chained.filter_map(|(p, o)| Some(p * slopes[*o as usize]?)).reduce(|a, b| a + b)
                }
                _ => None,
            };
            terms.push(term);
            slopes.push(slope);
        }
        let root = slopes.pop()??.id;
        Some(Expr::canonical(&scope.state.borrow().nodes, root, self.args.clone()))
    }

    /// One step of an expression as an expression of its own, and which arguments of the whole it takes.
    pub(crate) fn part(&self, position: usize) -> (Expr, SmallVec<[usize; 3]>) {
        let nodes = &self.nodes()[..=position];
        let mut needed = vec![false; nodes.len()];
        needed[position] = true;
        let mut taken: SmallVec<[usize; 3]> = SmallVec::new();
        for (k, (node, _)) in nodes.iter().enumerate().rev() {
            if needed[k] {
                node.operands().iter().for_each(|o| needed[*o as usize] = true);
                if let ExprNode::Arg(arg) = node {
                    taken.push(*arg as usize);
                }
            }
        }
        taken.sort_unstable();
        let dtypes: SmallVec<[DType; 3]> = taken.iter().map(|k| self.args()[*k]).collect();
        let expr = Expr::build(&dtypes, |scope, args| {
            let mut terms: Vec<Option<Term<'_>>> = Vec::with_capacity(nodes.len());
            for (k, (node, dtype)) in nodes.iter().enumerate() {
                let term = needed[k].then(|| match node {
                    ExprNode::Arg(arg) => args[taken.iter().position(|t| *t == *arg as usize).expect("it is taken")],
                    _ => {
                        let read = |o: &u32| terms[*o as usize].expect("what a needed step reads is needed");
                        scope.step(node, *dtype, &node.operands().iter().map(read).collect::<SmallVec<[_; 3]>>())
                    }
                });
                terms.push(term);
            }
            terms.pop().flatten().expect("the last step is needed")
        });
        (expr, taken)
    }

    /// The expression copied into a scope, its arguments replaced by terms.
    pub fn inline<'s>(&self, scope: &'s Scope, args: &[Term<'s>]) -> Term<'s> {
        self.inline_with(scope, |node| if let ExprNode::Arg(k) = node { Some(args[*k as usize]) } else { None })
    }

    /// The expression copied into a scope; `leaf` replaces arguments, which it must, and coordinates, if it wants.
    pub fn inline_with<'s>(&self, scope: &'s Scope, leaf: impl Fn(&ExprNode) -> Option<Term<'s>>) -> Term<'s> {
        let mut terms: Vec<Term<'s>> = Vec::with_capacity(self.nodes.len());
        for (node, dtype) in &self.nodes {
            let replaced = if node.operands().is_empty() { leaf(node) } else { None };
            terms.push(replaced.unwrap_or_else(|| scope.add(node.renumbered(|o| terms[o as usize].id), *dtype)));
        }
        *terms.last().expect("an expression has a result")
    }

    /// The value on float (and bool) arguments, without rounding; for tests and derivations.
    pub fn eval_f64(&self, args: &[f64]) -> f64 {
        let mut values: Vec<f64> = Vec::with_capacity(self.nodes.len());
        for (node, _) in &self.nodes {
            values.push(match node {
                ExprNode::Arg(k) => args[*k as usize],
                ExprNode::Const(number) => number.to_f64(),
                ExprNode::Cast(x) => values[*x as usize],
                ExprNode::Apply(op, operands) => {
                    let operands: SmallVec<[f64; 3]> = operands.iter().map(|o| values[*o as usize]).collect();
                    (op.def().float.expect("only float functions are evaluated here"))(&operands)
                }
                ExprNode::Coord(_) | ExprNode::Size(_) | ExprNode::Bits(_) => f64::NAN,
            });
        }
        *values.last().expect("an expression has a result")
    }
}

/// Whether a step of an expression is [`Scalar::Kept`]: what makes it may not be exchanged for what is equal but for rounding.
pub fn is_kept(nodes: &[(ExprNode, DType)], step: usize) -> bool {
    let keeps = |node: &ExprNode| matches!(node, ExprNode::Apply(Scalar::Kept, of) if of[0] as usize == step);
    nodes[step + 1..].iter().any(|(node, _)| keeps(node))
}

impl ExprNode {
    /// The steps that this step reads.
    pub fn operands(&self) -> &[u32] {
        match self {
            ExprNode::Apply(_, operands) => operands,
            ExprNode::Cast(x) | ExprNode::Bits(x) => std::slice::from_ref(x),
            ExprNode::Arg(_) | ExprNode::Const(_) | ExprNode::Coord(_) | ExprNode::Size(_) => &[],
        }
    }

    fn renumbered(&self, position: impl Fn(u32) -> u32) -> ExprNode {
        match self {
            ExprNode::Apply(op, operands) => ExprNode::Apply(*op, operands.iter().map(|o| position(*o)).collect()),
            ExprNode::Cast(x) => ExprNode::Cast(position(*x)),
            ExprNode::Bits(x) => ExprNode::Bits(position(*x)),
            leaf => leaf.clone(),
        }
    }
}

impl fmt::Debug for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.nodes.iter().map(|(n, d)| (n, d.name()))).finish()
    }
}

/// Where an expression is under construction; equal steps are made once.
#[derive(Debug, Default)]
pub struct Scope {
    state: RefCell<ScopeState>,
}

#[derive(Debug, Default)]
struct ScopeState {
    nodes: Vec<(ExprNode, DType)>,
    /// where equal steps stand, once there are more than [`FEW_STEPS`]
    known: FxHashMap<(ExprNode, DType), u32>,
}

/// Up to so many steps it takes less to look at all of them than to make a table.
const FEW_STEPS: usize = 12;

impl ScopeState {
    /// The place of a step: that of an equal one, or the next.
    fn place(&mut self, node: ExprNode, dtype: DType) -> u32 {
        let next = self.nodes.len() as u32;
        let found = if self.nodes.len() <= FEW_STEPS {
            self.nodes.iter().position(|(known, ty)| *ty == dtype && *known == node).map(|place| place as u32)
        } else {
            if self.known.is_empty() {
                self.known.extend(self.nodes.iter().cloned().zip(0..));
            }
            let place = *self.known.entry((node.clone(), dtype)).or_insert(next);
            (place != next).then_some(place)
        };
        found.unwrap_or_else(|| {
            self.nodes.push((node, dtype));
            next
        })
    }
}

impl Scope {
    fn add(&self, node: ExprNode, dtype: DType) -> Term<'_> {
        Term { scope: self, id: self.state.borrow_mut().place(node, dtype), dtype }
    }

    /// The term at a place.
    pub fn term(&self, place: u32) -> Term<'_> {
        Term { scope: self, id: place, dtype: self.state.borrow().nodes[place as usize].1 }
    }

    /// All steps so far, with their types.
    pub(crate) fn with_nodes<R>(&self, look: impl FnOnce(&[(ExprNode, DType)]) -> R) -> R {
        look(&self.state.borrow().nodes)
    }

    /// The step that does what `node` does, with other operands.
    pub fn step<'s>(&'s self, node: &ExprNode, dtype: DType, operands: &[Term<'s>]) -> Term<'s> {
        let id = |k: usize| operands[k].id;
        let node = match node {
            ExprNode::Apply(op, _) => ExprNode::Apply(*op, operands.iter().map(|t| t.id).collect()),
            ExprNode::Cast(_) => ExprNode::Cast(id(0)),
            ExprNode::Bits(_) => ExprNode::Bits(id(0)),
            leaf => leaf.clone(),
        };
        self.add(node, dtype)
    }

    /// Argument `k`.
    pub fn argument(&self, k: usize, dtype: DType) -> Term<'_> {
        self.add(ExprNode::Arg(k as u32), dtype)
    }

    /// The constant `x` of the type of `like`.
    pub fn float<'s>(&'s self, like: Term<'_>, x: f64) -> Term<'s> {
        self.constant(like.dtype, Number::new(like.dtype, x))
    }

    /// The constant 1 of the type of `like`.
    pub fn one<'s>(&'s self, like: Term<'_>) -> Term<'s> {
        self.float(like, 1.0)
    }

    /// A constant.
    pub fn constant(&self, dtype: DType, number: Number) -> Term<'_> {
        self.add(ExprNode::Const(number), dtype)
    }

    /// A coordinate of the iteration domain, as an i64.
    pub fn coord(&self, axis: usize) -> Term<'_> {
        self.add(ExprNode::Coord(u8::try_from(axis).expect("ranks are limited to 64")), DType::I64)
    }

    /// A size, as an i64.
    pub fn size(&self, dim: Dim) -> Term<'_> {
        match dim.as_int() {
            Some(n) => self.constant(DType::I64, Number::Int(n)),
            None => self.add(ExprNode::Size(dim), DType::I64),
        }
    }
}

/// A step of an expression under construction; reads like the number it stands for.
#[derive(Clone, Copy, Debug)]
pub struct Term<'s> {
    scope: &'s Scope,
    id: u32,
    dtype: DType,
}

impl<'s> Term<'s> {
    /// Its type.
    pub fn dtype(self) -> DType {
        self.dtype
    }

    /// Its place among the steps of its scope; equal steps have one place.
    pub fn place(self) -> u32 {
        self.id
    }

    /// The steps that it needs, of which it is the last.
    pub(super) fn steps(self) -> Vec<(ExprNode, DType)> {
        Expr::canonical(&self.scope.state.borrow().nodes, self.id, Vec::new()).nodes
    }

    /// What it computes.
    pub fn node(self) -> ExprNode {
        self.scope.state.borrow().nodes[self.id as usize].0.clone()
    }

    /// What the step is, looked at where it lies: rules look at many that they leave alone.
    fn look<R>(self, look: impl FnOnce(&ExprNode) -> R) -> R {
        look(&self.scope.state.borrow().nodes[self.id as usize].0)
    }

    /// The terms it reads.
    pub fn operands(self) -> SmallVec<[Term<'s>; 3]> {
        let state = self.scope.state.borrow();
        let term = |id: &u32| Term { scope: self.scope, id: *id, dtype: state.nodes[*id as usize].1 };
        state.nodes[self.id as usize].0.operands().iter().map(term).collect()
    }

    /// The number, when it is a constant.
    pub fn as_const(self) -> Option<Number> {
        self.look(|node| if let ExprNode::Const(number) = node { Some(*number) } else { None })
    }

    /// The function that it applies.
    pub fn as_call(self) -> Option<Scalar> {
        self.look(|node| if let ExprNode::Apply(op, _) = node { Some(*op) } else { None })
    }

    /// Whether it converts another term.
    pub fn is_cast(self) -> bool {
        self.look(|node| matches!(node, ExprNode::Cast(_)))
    }

    /// A function of terms, or an error when the types do not fit.
    pub fn try_call(op: Scalar, args: &[Term<'s>]) -> Result<Term<'s>> {
        let dtypes: SmallVec<[DType; 3]> = args.iter().map(|t| t.dtype).collect();
        let dtype = op.infer(&dtypes)?;
        let scope = args[0].scope;
        Ok(scope.add(ExprNode::Apply(op, args.iter().map(|t| t.id).collect()), dtype))
    }

    /// A function of terms whose types are known to fit.
    pub fn call(op: Scalar, args: &[Term<'s>]) -> Term<'s> {
        Term::try_call(op, args).expect("the types of a derived expression fit")
    }

    /// A function of this term alone.
    pub fn apply(self, op: Scalar) -> Term<'s> {
        Term::call(op, &[self])
    }

    /// This term converted to another type.
    pub fn cast(self, dtype: DType) -> Term<'s> {
        if dtype == self.dtype { self } else { self.scope.add(ExprNode::Cast(self.id), dtype) }
    }

    /// The stored bits of this term read as another type, or an error when that is not as wide.
    pub fn try_bits(self, dtype: DType) -> Result<Term<'s>> {
        if dtype.bits() != self.dtype.bits() {
            let (from, to) = (self.dtype, dtype);
            return Err(Error::invalid(format!("the bits of {from} read as {to}, which is not as wide")));
        }
        // A bool is stored as 0 or 1, so any other byte must become 1.
        if dtype == DType::Bool {
            return Ok(self.cast(dtype));
        }
        Ok(if dtype == self.dtype { self } else { self.scope.add(ExprNode::Bits(self.id), dtype) })
    }

    /// `self` to the power of `exponent`.
    pub fn pow(self, exponent: Term<'s>) -> Term<'s> {
        Term::call(Scalar::Pow, &[self, exponent])
    }

    /// Whether `self < other`.
    pub fn lt(self, other: Term<'s>) -> Term<'s> {
        Term::call(Scalar::Lt, &[self, other])
    }

    /// `yes` where this bool holds, otherwise `no`.
    pub fn select(self, yes: Term<'s>, no: Term<'s>) -> Term<'s> {
        debug_assert_eq!(Scalar::Select.def().signature, Signature::Select);
        Term::call(Scalar::Select, &[self, yes, no])
    }
}

impl PartialEq for Term<'_> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.scope, other.scope) && self.id == other.id
    }
}

impl Eq for Term<'_> {}

macro_rules! term_operators {
    ($($Trait:ident $method:ident $Op:ident;)+) => { $(
        impl<'s> std::ops::$Trait for Term<'s> {
            type Output = Term<'s>;
            fn $method(self, other: Term<'s>) -> Term<'s> { Term::call(Scalar::$Op, &[self, other]) }
        }
    )+ };
}

term_operators! { Add add Add; Sub sub Sub; Mul mul Mul; Div div Div; }

impl<'s> std::ops::Neg for Term<'s> {
    type Output = Term<'s>;
    fn neg(self) -> Term<'s> {
        self.apply(Scalar::Neg)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_construction_does_not_matter() {
        let f = [DType::F32; 2];
        let first = Expr::build(&f, |_, x| {
            let (product, sum) = (x[0] * x[1], x[0] + x[1]);
            product / sum
        });
        let second = Expr::build(&f, |_, x| {
            let sum = x[0] + x[1];
            let _unused = x[1].apply(Scalar::Exp);
            (x[0] * x[1]) / sum
        });
        assert_eq!(first, second);
        assert_eq!(first.nodes().len(), 5);
    }

    #[test]
    fn a_call_is_recognised() {
        assert_eq!(Expr::call(Scalar::Sub, &[DType::F32; 2]).unwrap().as_call(), Some(Scalar::Sub));
        assert_eq!(Expr::build(&[DType::F32; 2], |_, x| x[1] - x[0]).as_call(), None);
        assert!(Expr::cast(DType::F32, DType::F16).is_cast());
    }

    #[test]
    fn a_deep_shared_expression_stays_small() {
        let expr = Expr::build(&[DType::F64], |_, x| (0..200).fold(x[0], |t, _| t * t));
        assert_eq!(expr.nodes().len(), 201);
        assert_eq!(expr, expr.clone());
        assert!(expr.derivative(0).unwrap().nodes().len() < 1000);
    }
}
