//! Whole expressions, for several copies at once.
//!
//! A kernel that works on several vectors at a time evaluates its expressions for all of them together: every step for all
//! copies before the next step, so that steps that wait for each other are apart. What is the same for all copies is computed
//! once.
//!
//! Integers stay in general registers as long as they are the same in every lane, or differ from lane to lane by a constant: so
//! coordinates and sizes are. Integers of 64 bits that provably fit 32 are computed in lanes of 32 bits.

use fuseline::ops::{Expr, ExprNode, Number, Scalar, Threshold, is_kept, threshold};
use fuseline::tensor::DType;
use fuseline::tile::Rounding;
use smallvec::SmallVec;

use super::fuse::{Form, forms};
use super::int_expr::{apply_int, cast_int};
use super::ranges::{Facts, Range, ranges};
use super::{apply_unwrapped, cast, constant, float, integer, register, reinterpret, round};
use crate::vector::{Address, Builder, Compare, Convert, IntOp, Ty, Value};

/// Something for every copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Copies<T> {
    /// one for all
    Same(T),
    /// one for each
    Each(Vec<T>),
}

impl<T> Copies<T> {
    /// That of one copy.
    pub fn of(&self, copy: usize) -> &T {
        match self {
            Copies::Same(one) => one,
            Copies::Each(all) => &all[copy],
        }
    }

    fn map<R>(&self, mut f: impl FnMut(&T) -> R) -> Copies<R> {
        match self {
            Copies::Same(one) => Copies::Same(f(one)),
            Copies::Each(all) => Copies::Each(all.iter().map(f).collect()),
        }
    }
}

/// An integer for every lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coordinate {
    /// an Int that all lanes have
    Uniform(Value),
    /// an Int that lane 0 has; every lane has 1 more than the one before
    Consecutive(Value),
    /// I32 or I64
    Lanes(Value),
}

/// The value of an expression, in lanes of [`register`] of its type. An argument is a vector of [`register`] of its type, or an
/// Int (for integers and bool: the value, u64 as the same bits). `copies` is the number of copies, `coords` gives coordinates.
pub fn eval(
    b: &mut Builder,
    expr: &Expr,
    facts: &Facts<'_>,
    copies: usize,
    args: &[Copies<Value>],
    coords: &mut dyn FnMut(&mut Builder, u8) -> Copies<Coordinate>,
    rounding: Rounding,
) -> Copies<Value> {
    let mut evaluation = Evaluation::new(expr, facts, copies, rounding);
    evaluation.run(b, args, coords);
    let root = expr.nodes().len() as u32 - 1;
    let (value, dtype) = (evaluation.lanes(b, root), expr.dtype());
    value.map(|v| widened(b, dtype, *v))
}

/// The value of an expression of integers as coordinates: in general registers where they can be, otherwise in lanes of 32 bits
/// where they provably fit.
pub fn eval_coordinates(
    b: &mut Builder,
    expr: &Expr,
    facts: &Facts<'_>,
    copies: usize,
    args: &[Copies<Value>],
    coords: &mut dyn FnMut(&mut Builder, u8) -> Copies<Coordinate>,
) -> Copies<Coordinate> {
    let mut evaluation = Evaluation::new(expr, facts, copies, Rounding::Ends);
    evaluation.run(b, args, coords);
    let root = expr.nodes().len() as u32 - 1;
    match &evaluation.held[root as usize] {
        Held::Line { bases, step: 0 } => bases.map(|base| Coordinate::Uniform(*base)),
        Held::Line { bases, step: 1 } => bases.map(|base| Coordinate::Consecutive(*base)),
        _ => evaluation.lanes(b, root).map(|value| Coordinate::Lanes(*value)),
    }
}

/// What an argument or a coordinate is, for [`needs_64_bits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// an Int
    General,
    /// coordinates: an Int, and 1 more in every lane
    Consecutive,
    /// lanes
    Lanes,
}

/// Whether evaluating an expression takes lanes of 64 bits, of which a vector has half as many.
pub fn needs_64_bits(
    expr: &Expr,
    facts: &Facts<'_>,
    args: &dyn Fn(usize) -> Place,
    coords: &dyn Fn(u8) -> Place,
) -> bool {
    // What the evaluation makes is looked at, so that both agree.
    let mut b = Builder::new(8);
    let base = b.buffer(0);
    let at = Address { base, index: None, offset: 0 };
    let values: Vec<Copies<Value>> = (0..)
        .zip(expr.args())
        .map(|(k, dtype)| {
            let at = Address { offset: k * 64, ..at };
            Copies::Same(match args(k as usize) {
                Place::General => b.read_int(at, DType::I64),
                _ => {
                    let memory = match register(*dtype) {
                        Ty::F32 => DType::F32,
                        Ty::F64 => DType::F64,
                        Ty::I64 => DType::I64,
                        Ty::Mask => DType::Bool,
                        _ => DType::I32,
                    };
                    b.load(at, memory, None)
                }
            })
        })
        .collect();
    let mut coordinates = |b: &mut Builder, axis: u8| {
        let at = Address { offset: -64 * (1 + i32::from(axis)), ..at };
        Copies::Same(match coords(axis) {
            Place::General => Coordinate::Uniform(b.read_int(at, DType::I64)),
            Place::Consecutive => Coordinate::Consecutive(b.read_int(at, DType::I64)),
            Place::Lanes => Coordinate::Lanes(b.load(at, DType::I32, None)),
        })
    };
    eval(&mut b, expr, facts, 1, &values, &mut coordinates, Rounding::Ends);
    b.finish().types.iter().any(|ty| matches!(ty, Ty::I64 | Ty::F64))
}

/// The value of a step.
enum Held {
    /// integers: an Int, and in every lane so much more than in the one before
    Line { bases: Copies<Value>, step: i64 },
    /// vectors or masks; integers of 64 bits that fit 32 are held as I32
    Lanes(Copies<Value>),
    /// nothing: it is part of the step that reads it
    Nothing,
}

struct Evaluation<'e> {
    expr: &'e Expr,
    ranges: Vec<Range>,
    forms: Vec<Form>,
    rounding: Rounding,
    sizes: &'e dyn Fn(&fuseline::tensor::Dim) -> i64,
    copies: usize,
    held: Vec<Held>,
}

impl<'e> Evaluation<'e> {
    fn new(expr: &'e Expr, facts: &Facts<'e>, copies: usize, rounding: Rounding) -> Evaluation<'e> {
        let forms = forms(expr, rounding);
        let ranges = ranges(expr, facts);
        Evaluation { expr, ranges, forms, rounding, sizes: facts.sizes, copies, held: Vec::new() }
    }

    fn run(
        &mut self,
        b: &mut Builder,
        args: &[Copies<Value>],
        coords: &mut dyn FnMut(&mut Builder, u8) -> Copies<Coordinate>,
    ) {
        for (k, (node, dtype)) in self.expr.nodes().iter().enumerate() {
            let held = match (&self.forms[k], node) {
                (Form::Part, _) => Held::Nothing,
                (Form::Fused(op, [x, y, z]), _) => {
                    let args = [*x, *y, *z];
                    Held::Lanes(self.each(b, &args, |b, v| b.fma(*op, v[0], v[1], v[2])))
                }
                (Form::Alone, ExprNode::Arg(arg)) => argument(b, &args[*arg as usize]),
                (Form::Alone, ExprNode::Const(number)) => self.number(b, k, *number),
                (Form::Alone, ExprNode::Coord(axis)) => coordinate(&coords(b, *axis)),
                (Form::Alone, ExprNode::Size(dim)) => {
                    Held::Line { bases: Copies::Same(b.number((self.sizes)(dim))), step: 0 }
                }
                (Form::Alone, ExprNode::Cast(x)) => self.cast(b, k, *x),
                (Form::Alone, ExprNode::Bits(x)) => {
                    let from = self.dtype(*x);
                    Held::Lanes(self.each(b, &[*x], |b, v| {
                        let wide = widened(b, from, v[0]);
                        reinterpret(b, from, *dtype, wide)
                    }))
                }
                (Form::Alone, ExprNode::Apply(op, operands)) => self.apply(b, k, *op, operands),
            };
            let held = self.settled(b, k, held);
            self.held.push(held);
        }
    }

    fn dtype(&self, k: u32) -> DType {
        self.expr.nodes()[k as usize].1
    }

    fn number(&self, b: &mut Builder, k: usize, number: Number) -> Held {
        match number {
            Number::Int(n) => Held::Line { bases: Copies::Same(b.number(n)), step: 0 },
            Number::Float(_) => Held::Lanes(Copies::Same(constant(b, self.expr.nodes()[k].1, number))),
        }
    }

    /// Integers of 64 bits in the lanes that their range asks for.
    fn settled(&self, b: &mut Builder, k: usize, held: Held) -> Held {
        match held {
            Held::Lanes(values) if is_wide(self.expr.nodes()[k].1) => {
                let ty = self.integer_lanes(k);
                Held::Lanes(values.map(|v| in_lanes(b, ty, *v)))
            }
            held => held,
        }
    }

    /// The lanes that hold an integer of 64 bits.
    fn integer_lanes(&self, k: usize) -> Ty {
        if self.ranges[k].is_narrow() { Ty::I32 } else { Ty::I64 }
    }

    /// A step in lanes.
    fn lanes(&self, b: &mut Builder, k: u32) -> Copies<Value> {
        let dtype = self.dtype(k);
        match &self.held[k as usize] {
            Held::Lanes(values) => values.clone(),
            Held::Line { bases, step } => {
                let ty = if is_wide(dtype) { self.integer_lanes(k as usize) } else { register(dtype) };
                bases.map(|base| {
                    let splat = b.splat(ty, *base);
                    if *step == 0 {
                        return splat;
                    }
                    let steps = lane_steps(b, ty, *step);
                    b.binary(crate::vector::Binary::Add, splat, steps)
                })
            }
            Held::Nothing => unreachable!("what is part of its reader is read by nobody else"),
        }
    }

    /// A function of the lanes of some steps, copy by copy, or once if they are the same for all.
    fn each(
        &self,
        b: &mut Builder,
        steps: &[u32],
        mut f: impl FnMut(&mut Builder, &[Value]) -> Value,
    ) -> Copies<Value> {
        let operands: SmallVec<[Copies<Value>; 3]> = steps.iter().map(|k| self.lanes(b, *k)).collect();
        on_each(self.copies, &operands, |values| f(b, values))
    }

    /// As [`Evaluation::each`], of Ints.
    fn each_base(
        &self,
        b: &mut Builder,
        lines: &[&Copies<Value>],
        mut f: impl FnMut(&mut Builder, &[Value]) -> Value,
    ) -> Copies<Value> {
        let operands: SmallVec<[Copies<Value>; 3]> = lines.iter().map(|line| (*line).clone()).collect();
        on_each(self.copies, &operands, |values| f(b, values))
    }

    fn cast(&self, b: &mut Builder, k: usize, x: u32) -> Held {
        let (from, to) = (self.dtype(x), self.expr.nodes()[k].1);
        if let Held::Line { bases, step } = &self.held[x as usize] {
            if *step != 0 && to.is_int() && self.ranges[k].is_exact() {
                return Held::Line { bases: bases.clone(), step: *step };
            }
            if *step == 0 && !to.is_float() {
                return Held::Line {
                    bases: bases.map(|base| cast_int(b, from, to, *base).expect("integers")),
                    step: 0,
                };
            }
        }
        let (narrow, range) = (self.ranges[x as usize].is_narrow(), self.ranges[x as usize]);
        Held::Lanes(self.each(b, &[x], |b, v| {
            if from.is_float() && to.is_int() && to.bits() < 32 && range.truncates_narrow() {
                // NaN becomes the least integer, whose low bits are 0.
                let integer = b.convert(Convert::Truncate, Ty::I32, v[0]);
                return integer::wrap(b, to, integer);
            }
            let from = if is_wide(from) && narrow { DType::I32 } else { from };
            cast(b, from, to, v[0])
        }))
    }

    fn apply(&self, b: &mut Builder, k: usize, op: Scalar, operands: &[u32]) -> Held {
        let from = self.dtype(*operands.last().expect("functions have operands"));
        if !from.is_float()
            && let Some(held) = self.apply_to_lines(b, k, op, from, operands)
        {
            return held;
        }
        if from.is_float() {
            if let Some(threshold) = threshold(self.expr.nodes(), op, operands) {
                return Held::Lanes(self.compare_with(b, threshold));
            }
            return Held::Lanes(self.apply_to_floats(b, k, op, operands));
        }
        // Integers of 64 bits are computed in 32 where all of them fit.
        let condition = usize::from(op == Scalar::Select);
        let wide = is_wide(from);
        let result_fits = self.expr.nodes()[k].1 == DType::Bool || self.ranges[k].is_narrow();
        let narrow = wide && result_fits && operands[condition..].iter().all(|o| self.ranges[*o as usize].is_narrow());
        let dtype = if narrow { DType::I32 } else { from };
        let exact = self.ranges[k].is_exact() || narrow;
        Held::Lanes(self.each(b, operands, |b, v| {
            let mut v: SmallVec<[Value; 3]> = SmallVec::from_slice(v);
            if wide && !narrow {
                v[condition..].iter_mut().for_each(|v| *v = widened(b, from, *v));
            }
            let value = apply_unwrapped(b, op, dtype, &v);
            if exact || !integer::may_leave(op, dtype) { value } else { integer::wrap(b, dtype, value) }
        }))
    }

    fn apply_to_floats(&self, b: &mut Builder, k: usize, op: Scalar, operands: &[u32]) -> Copies<Value> {
        let every = self.rounding == Rounding::Every;
        let dtype = self.dtype(*operands.last().expect("functions have operands"));
        let may_differ = op == Scalar::Div && !every && !is_kept(self.expr.nodes(), k);
        self.each(b, operands, |b, v| {
            if may_differ && let Some(value) = float::divide_by_known(b, v[0], v[1]) {
                return value;
            }
            let value = apply_unwrapped(b, op, dtype, v);
            if every && rounds(op) { round(b, dtype, value) } else { value }
        })
    }

    /// A comparison of a step with a number that is known.
    fn compare_with(&self, b: &mut Builder, threshold: Threshold) -> Copies<Value> {
        let Threshold { word, least, holds_above } = threshold;
        let Ok(least) = u32::try_from(least) else { return Copies::Same(b.truth(!holds_above)) };
        if least == 0 {
            return Copies::Same(b.truth(holds_above));
        }
        let least = b.integer(Ty::I32, least.into());
        self.each(b, &[word], |b, v| match holds_above {
            true => b.compare(Compare::LeUnsigned, least, v[0]),
            false => b.compare(Compare::LtUnsigned, v[0], least),
        })
    }

    /// A function of integers in general registers; none where it has to be computed in lanes.
    fn apply_to_lines(&self, b: &mut Builder, k: usize, op: Scalar, dtype: DType, operands: &[u32]) -> Option<Held> {
        let mut lines: SmallVec<[(&Copies<Value>, i64); 3]> = SmallVec::new();
        for o in operands {
            let Held::Line { bases, step } = &self.held[*o as usize] else { return None };
            lines.push((bases, *step));
        }
        let bases: SmallVec<[&Copies<Value>; 3]> = lines.iter().map(|(bases, _)| *bases).collect();
        if lines.iter().all(|(_, step)| *step == 0) {
            // What cannot be computed for one copy is computed in lanes for all.
            let mut possible = true;
            let values = self.each_base(b, &bases, |b, v| {
                let value = apply_int(b, op, dtype, v);
                possible &= value.is_some();
                value.unwrap_or(v[0])
            });
            return possible.then_some(Held::Line { bases: values, step: 0 });
        }
        if matches!(op, Scalar::Lt | Scalar::Le | Scalar::Eq) {
            return self.compare_lines(b, op, operands, &lines);
        }
        if !self.ranges[k].is_exact() {
            return None;
        }
        match (op, lines.as_slice()) {
            (Scalar::Add, [(_, p), (_, q)]) => {
                let bases = self.each_base(b, &bases, |b, v| b.int(IntOp::Add, v[0], v[1]));
                Some(Held::Line { bases, step: p + q })
            }
            (Scalar::Sub, [(_, p), (_, q)]) => {
                let bases = self.each_base(b, &bases, |b, v| b.int(IntOp::Sub, v[0], v[1]));
                Some(Held::Line { bases, step: p - q })
            }
            (Scalar::Mul, [(x, p), (y, q)]) => {
                // A number that all lanes have: what begins with one and goes on from lane to lane is none.
                let factor = |line: &Copies<Value>, step: i64| match line {
                    Copies::Same(value) if step == 0 => b.as_number(*value),
                    _ => None,
                };
                let step = match (factor(x, *p), factor(y, *q)) {
                    (_, Some(n)) => p.checked_mul(n)?,
                    (Some(n), _) => q.checked_mul(n)?,
                    (None, None) => return None,
                };
                let bases = self.each_base(b, &bases, |b, v| b.int(IntOp::Mul, v[0], v[1]));
                Some(Held::Line { bases, step })
            }
            (Scalar::Select, [(_, 0), (_, p), (_, q)]) if p == q => {
                let bases = self.each_base(b, &bases, |b, v| b.choose(v[0], v[1], v[2]));
                Some(Held::Line { bases, step: *p })
            }
            _ => None,
        }
    }

    /// A comparison of integers that differ from lane to lane by constants: `p·lane + a` with `q·lane + b` is `(p − q)·lane`
    /// with `b − a`, and that is an Int.
    fn compare_lines(
        &self,
        b: &mut Builder,
        op: Scalar,
        operands: &[u32],
        lines: &[(&Copies<Value>, i64)],
    ) -> Option<Held> {
        let [(x, p), (y, q)] = lines else { return None };
        let (one, other) = (self.ranges[operands[0] as usize], self.ranges[operands[1] as usize]);
        let step = p - q;
        let compare = |int: bool| match (op, int) {
            (Scalar::Lt, _) => (IntOp::Lt, Compare::Lt),
            (Scalar::Le, _) => (IntOp::Le, Compare::Le),
            _ => (IntOp::Eq, Compare::Eq),
        };
        if step == 0 {
            let bases = self.each_base(b, &[x, y], |b, v| b.int(compare(true).0, v[0], v[1]));
            return Some(Held::Line { bases, step: 0 });
        }
        if !one.difference_is_narrow(other) || step.unsigned_abs() > 1 << 15 {
            return None;
        }
        Some(Held::Lanes(self.each_base(b, &[x, y], |b, v| {
            let difference = b.int(IntOp::Sub, v[1], v[0]);
            let difference = b.splat(Ty::I32, difference);
            let steps = lane_steps(b, Ty::I32, step);
            b.compare(compare(false).1, steps, difference)
        })))
    }
}

fn argument(b: &Builder, arg: &Copies<Value>) -> Held {
    if b.ty(*arg.of(0)) == Ty::Int { Held::Line { bases: arg.clone(), step: 0 } } else { Held::Lanes(arg.clone()) }
}

fn coordinate(coordinates: &Copies<Coordinate>) -> Held {
    let bases = coordinates.map(|c| base_of(*c));
    match coordinates.of(0) {
        Coordinate::Uniform(_) => Held::Line { bases, step: 0 },
        Coordinate::Consecutive(_) => Held::Line { bases, step: 1 },
        Coordinate::Lanes(_) => Held::Lanes(bases),
    }
}

fn base_of(coordinate: Coordinate) -> Value {
    let (Coordinate::Uniform(value) | Coordinate::Consecutive(value) | Coordinate::Lanes(value)) = coordinate;
    value
}

/// Whether lanes of 64 bits hold the integers of a type.
fn is_wide(dtype: DType) -> bool {
    dtype.is_int() && dtype.bits() == 64
}

/// Integers of 64 bits that fit, in lanes of this type.
fn in_lanes(b: &mut Builder, ty: Ty, value: Value) -> Value {
    match (b.ty(value), ty) {
        (Ty::I32, Ty::I64) => b.convert(Convert::ExtendSigned, Ty::I64, value),
        (Ty::I64, Ty::I32) => b.convert(Convert::Low, Ty::I32, value),
        _ => value,
    }
}

/// A step of an expression in lanes of [`register`] of its type.
fn widened(b: &mut Builder, dtype: DType, value: Value) -> Value {
    if is_wide(dtype) { in_lanes(b, Ty::I64, value) } else { value }
}

/// 0, n, 2n, …
fn lane_steps(b: &mut Builder, ty: Ty, n: i64) -> Value {
    let lanes = b.lane_numbers(ty);
    if n == 1 {
        return lanes;
    }
    let n = b.integer(ty, n);
    b.binary(crate::vector::Binary::Mul, lanes, n)
}

fn on_each(copies: usize, operands: &[Copies<Value>], mut f: impl FnMut(&[Value]) -> Value) -> Copies<Value> {
    let mut values: SmallVec<[Value; 3]> = operands.iter().map(|operand| *operand.of(0)).collect();
    if operands.iter().all(|o| matches!(o, Copies::Same(_))) {
        return Copies::Same(f(&values));
    }
    let each = (0..copies).map(|copy| {
        values.iter_mut().zip(operands).for_each(|(value, operand)| *value = *operand.of(copy));
        f(&values)
    });
    Copies::Each(each.collect())
}

/// Whether the result of a function of floats can need rounding to the type of its operands.
fn rounds(op: Scalar) -> bool {
    !matches!(
        op,
        Scalar::Max
            | Scalar::Min
            | Scalar::Neg
            | Scalar::Abs
            | Scalar::Sign
            | Scalar::Select
            | Scalar::Lt
            | Scalar::Le
            | Scalar::Eq
            | Scalar::IsNan
    )
}
