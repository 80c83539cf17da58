//! The normal form of scalar expressions: spellings of one formula become one term.
//!
//! **Under [`Numerics::Strict`]** nothing changes but what gives the same bits for every operand: the exact rules of
//! [`RULES`](crate::passes::RULES), operands of commutative functions in one order, sums and products of integers (which
//! wrap) flattened, `max`, `min`, `and`, `or` as sets.
//!
//! **Otherwise** a float is the real number it stands for. Every real term is a *product* `c · b₁^n₁ · b₂^n₂ …` of a
//! constant and powers of bases; a base is an atom (a leaf, a function of normal terms) or a *sum* `Σ cᵢ·mᵢ + k` of products
//! without constants. That representation is unique for what the algebra below covers, and is then written as a term in
//! one way:
//! - Sums and products are flattened, sorted by structure and leaves, equal terms collected; `x − y` is `x + (−1)·y`, `x / y`
//!   is `x · y⁻¹`, `pow` by small integers is powers, by halves roots where what is raised is surely not negative. A numerator and a denominator never cancel,
//!   and `x − x` is `0 · x`: where `x` is infinite or NaN so is the result.
//! - A sum is *primitive* inside of a product: the coefficient that most of its terms share (of several the largest) is
//!   taken out, so is the sign of its first term, and the factors that all of its terms share; then those that some of
//!   them share: `x·y + x·z + w` is `x·(y + z) + w`. Products are not distributed over sums, except over a polynomial of one
//!   base, up to degree 8.
//! - Constants are computed in f64 from the real number that each is a rounding of (see `number.rs`), and rounded once, when
//!   the term is written; a constant that would leave the range of the type is not combined with others, and large ones that nearly
//!   cancel stay apart: they round what is between them (see `ops/range.rs`).
//! - `1/(1+exp(−x))` is `sigmoid`, `1 + tanh(x)` is `2·sigmoid(2·x)`, `log(1+x)` is `log1p`, `exp(x) − 1` is `expm1`, `exp(x − log(y))`
//!   is `exp(x) / y` where `x` is surely not positive (`exp(x)` alone might overflow), `log1p(exp(x))` is `max(x, 0) + log1p(exp(−|x|))`, odd and
//!   even functions have no negative argument, scales leave `max`, `min`, `abs` and the root of a product.
//! - Of a choice between a positive number and a negative one and its opposite, the one with the negative number first is written.
//! - What is added to a choice between −∞ and something is added to that: `select(c, 0, −∞) + x` is `select(c, x, −∞)`; not where something that was read is
//!   taken away, which may be −∞ itself.
//! - f16, bf16 and f32 are computed as f32: conversions among them vanish, except from leaves and to the type of the
//!   result. Rounding to a storage type (f8 …) and from f64 stays.
//! - A conversion of a sum of integers is the sum of their conversions, where none of it can leave the range in which
//!   the float type holds every integer: `f32(i32(a) − 8)` is `f32(a) − 8`. Of a difference of coordinates and its opposite, one is converted.
//! - What is [`Scalar::Kept`] is an atom, and what is inside of it stays as it is written.
//! - Comparisons, `isnan`, `select` and everything on integers see exact rules only.
//!
//! Not covered: exponentials of sums (`exp(a)·exp(b)`), trigonometric identities, `tanh` by exponentials; of several ways to
//! gather (`x·y + y·z + z·x`) the one that was written stays.

mod exact;
pub mod factor;
mod function;
mod number;
pub mod online;
mod order;
mod product;
mod sum;
mod whole;
mod write_sum;

#[cfg(test)]
mod tests;

use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

pub use order::LeafRank;

use super::{Expr, ExprNode, Number, Scalar, Scope, Signature, Term};
use crate::passes::Numerics;
use crate::tensor::{DType, Dim};
use order::Order;
use product::Product;
use sum::{Real, Sum};
use whole::Combination;

/// The normal form of one term; see [`Normalizer`] for many.
pub fn normalize<'s>(scope: &'s Scope, root: Term<'s>, numerics: Numerics) -> Term<'s> {
    Normalizer::new(scope, numerics).normal(root)
}

impl Expr {
    /// The expression in normal form.
    pub fn normal(&self, numerics: Numerics) -> Expr {
        Expr::build(self.args(), |scope, args| normalize(scope, self.inline(scope, args), numerics))
    }
}

/// Brings terms of one scope into normal form, remembering what it has seen.
#[derive(Debug)]
pub struct Normalizer<'s> {
    scope: &'s Scope,
    numerics: Numerics,
    order: Order,
    /// the extents of the coordinates, as far as they are known
    extents: Vec<Dim>,
    /// what terms are, by place
    values: FxHashMap<u32, Value<'s>>,
    /// what terms are as they are written, by place
    written: FxHashMap<u32, Value<'s>>,
    /// what written terms are, by place; those without an entry are atoms
    products: FxHashMap<u32, Rc<Product<'s>>>,
    sums: FxHashMap<u32, Rc<Sum<'s>>>,
    combinations: FxHashMap<u32, Rc<Combination<'s>>>,
    nonnegative: FxHashMap<u32, bool>,
    knowledge: Knowledge,
}

/// What is known of arguments, besides their types.
#[derive(Clone, Debug, Default)]
pub struct Knowledge {
    /// those that are surely not negative
    pub nonnegative: FxHashSet<u32>,
    /// those that are nowhere less than a normal term, with its place
    pub above: FxHashMap<u32, u32>,
}

/// What a term is.
#[derive(Clone, Debug)]
enum Value<'s> {
    /// a real number
    Real(Rc<Real<'s>>),
    /// as its type says
    Exact(Term<'s>),
}

impl<'s> Normalizer<'s> {
    /// A normalizer of terms of `scope`.
    pub fn new(scope: &'s Scope, numerics: Numerics) -> Normalizer<'s> {
        Normalizer::ranked(scope, numerics, Vec::new(), Vec::new())
    }

    /// As [`Normalizer::new`], with the ranks of the arguments and the extents of the coordinates; where a list ends,
    /// arguments are ranked by number and coordinates are not bounded.
    pub fn ranked(scope: &'s Scope, numerics: Numerics, ranks: Vec<LeafRank>, extents: Vec<Dim>) -> Normalizer<'s> {
        Normalizer {
            scope,
            numerics,
            order: Order::new(ranks),
            extents,
            values: FxHashMap::default(),
            written: FxHashMap::default(),
            products: FxHashMap::default(),
            sums: FxHashMap::default(),
            combinations: FxHashMap::default(),
            nonnegative: FxHashMap::default(),
            knowledge: Knowledge::default(),
        }
    }

    /// As it is, and knowing this of its arguments.
    pub fn knowing(self, knowledge: Knowledge) -> Normalizer<'s> {
        Normalizer { knowledge, ..self }
    }

    /// The normal form of a term, of the same type.
    pub fn normal(&mut self, term: Term<'s>) -> Term<'s> {
        let wide = self.wide(term);
        self.convert(wide, term.dtype())
    }

    /// As [`Normalizer::normal`], but of the type in which it is computed: f32 for f16 and bf16, unless numerics are strict.
    pub fn wide(&mut self, term: Term<'s>) -> Term<'s> {
        let value = self.value(term);
        self.term(&value)
    }

    fn value(&mut self, root: Term<'s>) -> Value<'s> {
        for term in self.unseen(root) {
            let value = self.settle(term);
            self.values.insert(term.place(), value);
        }
        self.values[&root.place()].clone()
    }

    /// The terms that `root` needs and that have no value yet, operands first.
    fn unseen(&self, root: Term<'s>) -> Vec<Term<'s>> {
        let (mut found, mut seen, mut todo) = (Vec::new(), FxHashSet::default(), vec![root]);
        while let Some(term) = todo.pop() {
            if !self.values.contains_key(&term.place()) && seen.insert(term.place()) {
                found.push(term);
                todo.extend(term.operands());
            }
        }
        // An operand is made before the terms that read it.
        found.sort_unstable_by_key(|term| term.place());
        found
    }

    /// What a term is whose operands have values.
    fn settle(&mut self, term: Term<'s>) -> Value<'s> {
        let node = term.node();
        let decides = matches!(node, ExprNode::Apply(op, _) if op.jumps());
        let operands = term.operands().into_iter().map(|o| match (o.node(), self.compute_type(o.dtype())) {
            // What a constant of a narrow type was meant to be is another number where it is held wider, and equal to none of that type.
            (ExprNode::Const(Number::Float(bits)), Some(dtype)) if decides && o.dtype() != dtype => {
                self.real(Product::constant(self.scope, dtype, f64::from_bits(bits)))
            }
            _ => self.values[&o.place()].clone(),
        });
        let operands: SmallVec<[Value<'s>; 3]> = operands.collect();
        match (&node, self.compute_type(term.dtype())) {
            (ExprNode::Const(Number::Float(bits)), Some(dtype)) => {
                self.real(Product::constant(self.scope, dtype, number::intended(f64::from_bits(*bits), term.dtype())))
            }
            (ExprNode::Apply(Scalar::Kept, _), Some(_)) => self.kept(term),
            (ExprNode::Apply(op, _), Some(dtype)) => Value::Real(Rc::new(self.call(*op, dtype, &operands))),
            (ExprNode::Cast(_), Some(dtype)) => match &operands[0] {
                Value::Real(real) if real.dtype == dtype => operands[0].clone(),
                other => {
                    let other = self.term(other);
                    match self.converted_sum(other, dtype).or_else(|| self.converted_difference(other, dtype)) {
                        Some(sum) => Value::Real(Rc::new(sum)),
                        None => self.real(Product::atom(other.cast(dtype))),
                    }
                }
            },
            (ExprNode::Bits(_), _) => {
                let bits = self.term(&operands[0]);
                let bits = self.convert(bits, term.operands()[0].dtype());
                self.exact_or_atom(self.scope.step(&node, term.dtype(), &[bits]))
            }
            (ExprNode::Arg(_), _) => self.exact_or_atom(term),
            _ => {
                let operands: SmallVec<[Term<'s>; 3]> = operands.iter().map(|o| self.term(o)).collect();
                Value::Exact(self.exact(&node, term.dtype(), &operands))
            }
        }
    }

    /// A term that is kept: an atom of what it is as it is written.
    fn kept(&mut self, term: Term<'s>) -> Value<'s> {
        let numerics = std::mem::replace(&mut self.numerics, Numerics::Strict);
        std::mem::swap(&mut self.values, &mut self.written);
        let written = self.wide(term);
        std::mem::swap(&mut self.values, &mut self.written);
        self.numerics = numerics;
        self.exact_or_atom(written)
    }

    /// The type in which floats of a type are computed, if they are real numbers.
    fn compute_type(&self, dtype: DType) -> Option<DType> {
        match dtype {
            _ if self.numerics == Numerics::Strict => None,
            DType::F16 | DType::BF16 | DType::F32 => Some(DType::F32),
            DType::F64 => Some(DType::F64),
            _ => None,
        }
    }

    /// A term that is what it is: a real atom or exact.
    fn exact_or_atom(&self, term: Term<'s>) -> Value<'s> {
        match self.compute_type(term.dtype()) {
            Some(dtype) => self.real(Product::atom(term.cast(dtype))),
            None => Value::Exact(term),
        }
    }

    fn real(&self, product: Product<'s>) -> Value<'s> {
        Value::Real(Rc::new(Real::from(product)))
    }

    /// A value as a term.
    fn term(&mut self, value: &Value<'s>) -> Term<'s> {
        match value {
            Value::Real(real) => {
                let product = self.product(real);
                self.write(&product)
            }
            Value::Exact(term) => *term,
        }
    }

    /// A term converted to a type; not, where it was just converted from there without loss.
    fn convert(&mut self, term: Term<'s>, dtype: DType) -> Term<'s> {
        if term.dtype() == dtype {
            return term;
        }
        let cast = ExprNode::Cast(term.place());
        self.exact(&cast, dtype, &[term])
    }

    /// What a function of floats is.
    fn call(&mut self, op: Scalar, dtype: DType, operands: &[Value<'s>]) -> Real<'s> {
        if op.def().signature == Signature::Select {
            let terms: SmallVec<[Term<'s>; 3]> = operands.iter().map(|o| self.term(o)).collect();
            return self.select(terms[0], terms[1], terms[2]).into();
        }
        let operands: SmallVec<[Rc<Real<'s>>; 2]> = operands
            .iter()
            .map(|operand| match operand {
                Value::Real(real) => real.clone(),
                Value::Exact(term) => Rc::new(Product::atom(*term).into()),
            })
            .collect();
        self.function(op, dtype, &operands)
    }
}
