//! Scalar expressions at points.

use fuseline::ops::{Expr, ExprNode, Number, Scalar};
use fuseline::tensor::DType;
use fuseline::tile::Rounding;

use super::emitter::Emitter;
use super::point::Point;
use crate::math;
use crate::vector::{Binary, Compare, FmaOp, IntOp, Ty, Value};

/// Integers of 64 bits that are made of coordinates and small numbers fit into 32.
const SMALL: i64 = 1 << 14;

impl Emitter<'_> {
    /// An expression at some points: one value for each. `args` are those of its arguments at the same points.
    ///
    /// Every step is computed at all points before the next one: neighbours in the code do not wait for each other.
    pub fn map(&mut self, expr: &Expr, args: &[Vec<Value>], points: &[&Point], rounding: Rounding) -> Vec<Value> {
        let dtypes = narrowed(expr);
        let readers = readers(expr);
        let mut found: Vec<Vec<Value>> = Vec::with_capacity(expr.nodes().len());
        for (k, (node, _)) in expr.nodes().iter().enumerate() {
            let values = (0..points.len()).map(|p| match node {
                ExprNode::Arg(arg) => args[*arg as usize][p],
                ExprNode::Const(number) => math::constant(&mut self.b, dtypes[k], *number),
                ExprNode::Coord(axis) => self.coordinate_lanes(usize::from(*axis), points[p], dtypes[k]),
                ExprNode::Size(dim) => {
                    let size = Number::from_int(dtypes[k], self.bound.size(dim));
                    math::constant(&mut self.b, dtypes[k], size)
                }
                ExprNode::Apply(op, operands) => {
                    let fused = (rounding == Rounding::Ends)
                        .then(|| self.fused(expr, *op, operands, &readers, &found, p))
                        .flatten();
                    fused.unwrap_or_else(|| {
                        let value = self.apply(*op, operands, &dtypes, &found, p);
                        if rounding == Rounding::Every { math::round(&mut self.b, dtypes[k], value) } else { value }
                    })
                }
                ExprNode::Cast(from) => {
                    let (x, from) = (found[*from as usize][p], dtypes[*from as usize]);
                    math::cast(&mut self.b, from, dtypes[k], x)
                }
                ExprNode::Bits(from) => {
                    let (x, from) = (found[*from as usize][p], dtypes[*from as usize]);
                    math::reinterpret(&mut self.b, from, dtypes[k], x)
                }
            });
            let values = values.collect();
            found.push(values);
        }
        let (last, wanted) = (found.pop().unwrap_or_default(), expr.dtype());
        let from = dtypes[dtypes.len() - 1];
        last.into_iter().map(|value| math::cast(&mut self.b, from, wanted, value)).collect()
    }

    fn apply(&mut self, op: Scalar, operands: &[u32], dtypes: &[DType], found: &[Vec<Value>], p: usize) -> Value {
        // Operands have one type but for the condition of a select; where some were narrowed, they are widened again.
        let first = usize::from(op == Scalar::Select);
        let types: Vec<DType> = operands[first..].iter().map(|o| dtypes[*o as usize]).collect();
        let dtype = if types.contains(&DType::I64) { DType::I64 } else { types[0] };
        let mut values = Vec::with_capacity(operands.len());
        for (k, operand) in operands.iter().enumerate() {
            let value = found[*operand as usize][p];
            let own = dtypes[*operand as usize];
            values.push(if k < first { value } else { math::cast(&mut self.b, own, dtype, value) });
        }
        math::apply(&mut self.b, op, dtype, &values)
    }

    /// A product that nothing but this sum reads together with it, and a quotient by what is known outside.
    fn fused(
        &mut self,
        expr: &Expr,
        op: Scalar,
        operands: &[u32],
        readers: &[u32],
        found: &[Vec<Value>],
        p: usize,
    ) -> Option<Value> {
        let product = |k: u32| match &expr.nodes()[k as usize] {
            (ExprNode::Apply(Scalar::Mul, factors), dtype) if dtype.is_float() && readers[k as usize] == 1 => {
                Some((factors[0], factors[1]))
            }
            _ => None,
        };
        let at = |k: u32| found[k as usize][p];
        match (op, operands) {
            (Scalar::Div, [a, b]) if expr.nodes()[*b as usize].1.is_float() => self.divided(at(*a), at(*b)),
            (Scalar::Add, [a, b]) => match (product(*a), product(*b)) {
                (_, Some((x, y))) => Some(self.b.fma(FmaOp::Add, at(x), at(y), at(*a))),
                (Some((x, y)), _) => Some(self.b.fma(FmaOp::Add, at(x), at(y), at(*b))),
                _ => None,
            },
            (Scalar::Sub, [a, b]) => match (product(*a), product(*b)) {
                (_, Some((x, y))) => Some(self.b.fma(FmaOp::NegAdd, at(x), at(y), at(*a))),
                (Some((x, y)), _) => Some(self.b.fma(FmaOp::Sub, at(x), at(y), at(*b))),
                _ => None,
            },
            _ => None,
        }
    }

    /// A quotient whose divisor is known outside of the loops in which the dividend is: by the reciprocal, which is computed
    /// there once.
    fn divided(&mut self, a: Value, b: Value) -> Option<Value> {
        if self.b.ty(a) != Ty::F32 || self.b.depth(b) >= self.b.depth(a) || self.b.as_bits(b).is_some() {
            return None;
        }
        // The reciprocal of a very small divisor would overflow: it is taken of a larger one, and made up for.
        let far = self.b.float(Ty::F32, f64::from(2f32.powi(-100)));
        let magnitude = math::apply(&mut self.b, Scalar::Abs, DType::F32, &[b]);
        let is_small = self.b.compare(Compare::Lt, magnitude, far);
        let (one, more) = (self.b.float(Ty::F32, 1.0), self.b.float(Ty::F32, f64::from(2f32.powi(60))));
        let scale = self.b.select(is_small, more, one);
        let larger = self.b.binary(Binary::Mul, b, scale);
        let reciprocal = self.b.binary(Binary::Div, one, larger);
        let quotient = self.b.binary(Binary::Mul, a, reciprocal);
        Some(self.b.binary(Binary::Mul, quotient, scale))
    }

    /// A coordinate as a vector.
    fn coordinate_lanes(&mut self, axis: usize, point: &Point, dtype: DType) -> Value {
        let coord = point.coord(axis);
        let base = match coord.base {
            Some(base) => self.b.plus(base, coord.plus),
            None => self.b.number(coord.plus),
        };
        let ty = if dtype == DType::I32 { Ty::I32 } else { Ty::I64 };
        let base = self.b.splat(ty, base);
        if !coord.lanes {
            return base;
        }
        let numbers = self.b.lane_numbers(ty);
        self.b.binary(Binary::Add, base, numbers)
    }

    /// An expression of integers that are the same in all lanes; `None` where general registers cannot compute it.
    pub fn map_int(&mut self, expr: &Expr, args: &[Value], point: &Point) -> Option<Value> {
        let mut found: Vec<Value> = Vec::with_capacity(expr.nodes().len());
        for (node, dtype) in expr.nodes() {
            let value = match node {
                ExprNode::Arg(k) => args[*k as usize],
                ExprNode::Const(Number::Int(n)) => self.b.number(*n),
                ExprNode::Coord(axis) => {
                    let coord = point.coord(usize::from(*axis));
                    match coord.base {
                        _ if coord.lanes => return None,
                        Some(base) => self.b.plus(base, coord.plus),
                        None => self.b.number(coord.plus),
                    }
                }
                ExprNode::Size(dim) => self.b.number(self.bound.size(dim)),
                ExprNode::Apply(op, operands) => {
                    let at = |k: usize| found[operands[k] as usize];
                    // Only in 64 bits does arithmetic wrap as registers do.
                    let wide = matches!(dtype, DType::I64 | DType::Bool);
                    let int = match op {
                        Scalar::Add if wide => IntOp::Add,
                        Scalar::Sub if wide => IntOp::Sub,
                        Scalar::Mul if wide => IntOp::Mul,
                        Scalar::Min if wide => IntOp::Min,
                        Scalar::Max if wide => IntOp::Max,
                        Scalar::And if wide => IntOp::And,
                        Scalar::Or if wide => IntOp::Or,
                        Scalar::Lt if self.is_signed(expr, operands) => IntOp::Lt,
                        Scalar::Le if self.is_signed(expr, operands) => IntOp::Le,
                        Scalar::Eq => IntOp::Eq,
                        Scalar::Select => {
                            found.push(self.b.choose(at(0), at(1), at(2)));
                            continue;
                        }
                        _ => return None,
                    };
                    self.b.int(int, at(0), at(1))
                }
                ExprNode::Cast(from) => {
                    let source = expr.nodes()[*from as usize].1;
                    let fits = matches!(dtype, DType::I64) && !source.is_float() && source != DType::U64;
                    if !fits {
                        return None;
                    }
                    found[*from as usize]
                }
                ExprNode::Const(Number::Float(_)) | ExprNode::Bits(_) => return None,
            };
            found.push(value);
        }
        found.pop()
    }

    fn is_signed(&self, expr: &Expr, operands: &[u32]) -> bool {
        operands.iter().all(|k| expr.nodes()[*k as usize].1 != DType::U64)
    }
}

/// The types in which the steps of an expression are computed: 32 bits are enough for sums of coordinates.
fn narrowed(expr: &Expr) -> Vec<DType> {
    let mut dtypes: Vec<DType> = Vec::with_capacity(expr.nodes().len());
    for (node, dtype) in expr.nodes() {
        let small = match node {
            ExprNode::Coord(_) | ExprNode::Size(_) => true,
            ExprNode::Const(Number::Int(n)) => n.abs() < SMALL,
            ExprNode::Apply(Scalar::Add | Scalar::Sub | Scalar::Min | Scalar::Max, operands) => {
                operands.iter().all(|k| dtypes[*k as usize] == DType::I32)
            }
            _ => false,
        };
        dtypes.push(if *dtype == DType::I64 && small { DType::I32 } else { *dtype });
    }
    dtypes
}

/// How many steps read each step.
fn readers(expr: &Expr) -> Vec<u32> {
    let mut readers = vec![0; expr.nodes().len()];
    for (node, _) in expr.nodes() {
        match node {
            ExprNode::Apply(_, operands) => operands.iter().for_each(|k| readers[*k as usize] += 1),
            ExprNode::Cast(k) | ExprNode::Bits(k) => readers[*k as usize] += 1,
            _ => {}
        }
    }
    readers
}
