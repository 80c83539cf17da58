//! What the numbers of an expression lie between, as follows from coordinates, sizes and constants.

use fuseline::ops::{Expr, ExprNode, Number, Scalar};
use fuseline::tensor::{Class, DType, Dim};

/// What is known of the numbers that an expression reads.
#[derive(Clone, Copy)]
pub struct Facts<'f> {
    /// for every axis the number of its points
    pub extents: &'f [i64],
    /// the number that a size is
    pub sizes: &'f dyn Fn(&Dim) -> i64,
    /// for every argument the least and the largest integer that it can be, if known; arguments behind the last are not known
    pub args: &'f [Option<(i64, i64)>],
}

impl std::fmt::Debug for Facts<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Facts").field("extents", &self.extents).field("args", &self.args).finish_non_exhaustive()
    }
}

/// What a step of an expression lies between.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Range {
    /// an integer or bool; if `exact`, computing it cannot wrap around
    Int { low: i128, high: i128, exact: bool },
    /// a float or NaN
    Float { low: f64, high: f64 },
}

impl Range {
    fn of(dtype: DType) -> Range {
        match dtype.int_range() {
            Some((low, high)) => Range::Int { low, high, exact: false },
            None => Range::Float { low: f64::NEG_INFINITY, high: f64::INFINITY },
        }
    }

    /// Integers between bounds that a type may not be able to hold.
    fn within(dtype: DType, bounds: Option<(i128, i128)>) -> Range {
        let (least, most) = dtype.int_range().expect("integers have a range");
        match bounds {
            Some((low, high)) if least <= low && high <= most => Range::Int { low, high, exact: true },
            _ => Range::of(dtype),
        }
    }

    fn ints(self) -> (i128, i128) {
        match self {
            Range::Int { low, high, .. } => (low, high),
            Range::Float { .. } => unreachable!("an integer was asked for"),
        }
    }

    fn floats(self) -> (f64, f64) {
        match self {
            Range::Float { low, high } => (low, high),
            Range::Int { low, high, .. } => (low as f64, high as f64),
        }
    }

    /// Whether it is an integer that lanes of 32 bits can hold.
    pub(super) fn is_narrow(self) -> bool {
        let fits = |n: i128| i128::from(i32::MIN) <= n && n <= i128::from(i32::MAX);
        matches!(self, Range::Int { low, high, .. } if fits(low) && fits(high))
    }

    /// Whether computing it cannot wrap around.
    pub(super) fn is_exact(self) -> bool {
        matches!(self, Range::Int { exact: true, .. })
    }

    /// Whether a float is known to be an integer of 32 bits once it is truncated, or NaN.
    pub(super) fn truncates_narrow(self) -> bool {
        let (low, high) = self.floats();
        low > -2147483649.0 && high < 2147483648.0
    }

    /// Whether the difference of two integers fits 32 bits, whatever lanes add to them.
    pub(super) fn difference_is_narrow(self, other: Range) -> bool {
        let ((low, high), (least, most)) = (self.ints(), other.ints());
        let slack = 1 << 20;
        high - least < i128::from(i32::MAX) - slack && low - most > i128::from(i32::MIN) + slack
    }
}

/// What every step lies between.
pub(super) fn ranges(expr: &Expr, facts: &Facts<'_>) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::with_capacity(expr.nodes().len());
    for (node, dtype) in expr.nodes() {
        let of = |k: u32| ranges[k as usize];
        let from = |k: u32| expr.nodes()[k as usize].1;
        let point = |n: i64| Range::within(*dtype, Some((n.into(), n.into())));
        ranges.push(match node {
            ExprNode::Arg(k) => match facts.args.get(*k as usize) {
                Some(Some((low, high))) => Range::within(*dtype, Some(((*low).into(), (*high).into()))),
                _ => Range::of(*dtype),
            },
            ExprNode::Const(Number::Float(bits)) => {
                let x = f64::from_bits(*bits);
                if x.is_nan() { Range::of(*dtype) } else { Range::Float { low: x, high: x } }
            }
            ExprNode::Const(Number::Int(n)) if *dtype == DType::U64 => {
                let n = i128::from(*n as u64);
                Range::within(*dtype, Some((n, n)))
            }
            ExprNode::Const(Number::Int(n)) => point(*n),
            ExprNode::Coord(axis) => {
                let last = facts.extents.get(usize::from(*axis)).map(|n| (0, i128::from((n - 1).max(0))));
                Range::within(*dtype, last)
            }
            ExprNode::Size(dim) => point((facts.sizes)(dim)),
            ExprNode::Cast(x) => of_cast(of(*x), from(*x), *dtype),
            ExprNode::Bits(_) => Range::of(*dtype),
            ExprNode::Apply(op, args) => {
                let operand = from(*args.last().expect("functions have operands"));
                let args: Vec<Range> = args.iter().map(|k| of(*k)).collect();
                match operand.class() {
                    Class::Float => of_floats(*op, *dtype, &args),
                    _ if *dtype == DType::Bool => Range::of(*dtype),
                    _ => Range::within(*dtype, of_integers(*op, &args)),
                }
            }
        });
    }
    ranges
}

fn of_cast(x: Range, from: DType, to: DType) -> Range {
    match (from.class(), to.class()) {
        (_, Class::Bool) => Range::of(to),
        (Class::Float, Class::Float) => {
            let (low, high) = x.floats();
            Range::Float { low: to.round(low), high: to.round(high) }
        }
        (_, Class::Float) => {
            let (low, high) = x.ints();
            Range::Float { low: to.round(low as f64), high: to.round(high as f64) }
        }
        // NaN becomes 0.
        (Class::Float, _) => {
            let (low, high) = x.floats();
            let bounded = low > -1e30 && high < 1e30;
            Range::within(to, bounded.then(|| ((low as i128).min(0), (high as i128).max(0))))
        }
        _ => Range::within(to, Some(x.ints())),
    }
}

/// What a function of floats lies between, where that is of use: for conversions to integers.
fn of_floats(op: Scalar, dtype: DType, args: &[Range]) -> Range {
    let (low, high) = args[args.len() - 1].floats();
    let float = |low, high| Range::Float { low, high };
    match op {
        _ if dtype == DType::Bool => Range::of(dtype),
        Scalar::Max => {
            let (least, most) = args[0].floats();
            float(low.max(least), high.max(most))
        }
        Scalar::Min => {
            let (least, most) = args[0].floats();
            float(low.min(least), high.min(most))
        }
        Scalar::Select => {
            let (least, most) = args[1].floats();
            float(low.min(least), high.max(most))
        }
        Scalar::Floor => float(low.floor(), high.floor()),
        Scalar::Ceil => float(low.ceil(), high.ceil()),
        Scalar::Round => float(low.round_ties_even(), high.round_ties_even()),
        Scalar::Trunc => float(low.trunc(), high.trunc()),
        Scalar::Neg => float(-high, -low),
        Scalar::Kept => float(low, high),
        Scalar::Sign | Scalar::Tanh | Scalar::Erf | Scalar::Sin | Scalar::Cos => float(-1.0, 1.0),
        Scalar::Sigmoid => float(0.0, 1.0),
        _ => Range::of(dtype),
    }
}

/// What a function of integers lies between, before it wraps; none where nothing is known.
fn of_integers(op: Scalar, args: &[Range]) -> Option<(i128, i128)> {
    let (a, b) = (args[0].ints(), args[args.len().min(2) - 1].ints());
    let most = |x: (i128, i128)| x.0.abs().max(x.1.abs());
    Some(match op {
        Scalar::Add => (a.0 + b.0, a.1 + b.1),
        Scalar::Sub => (a.0 - b.1, a.1 - b.0),
        Scalar::Mul => {
            let corners = [a.0.checked_mul(b.0)?, a.0.checked_mul(b.1)?, a.1.checked_mul(b.0)?, a.1.checked_mul(b.1)?];
            (*corners.iter().min()?, *corners.iter().max()?)
        }
        Scalar::Max => (a.0.max(b.0), a.1.max(b.1)),
        Scalar::Min => (a.0.min(b.0), a.1.min(b.1)),
        Scalar::Select => {
            let c = args[2].ints();
            (b.0.min(c.0), b.1.max(c.1))
        }
        Scalar::Neg => (-a.1, -a.0),
        Scalar::Abs => (if a.0 <= 0 && 0 <= a.1 { 0 } else { a.0.abs().min(a.1.abs()) }, most(a)),
        Scalar::Sign => (a.0.signum(), a.1.signum()),
        Scalar::Floor | Scalar::Ceil | Scalar::Round | Scalar::Trunc => a,
        Scalar::Div if b.0 > 0 => ((a.0 / b.0).min(a.0 / b.1), (a.1 / b.0).max(a.1 / b.1)),
        Scalar::Div => (-most(a), most(a)),
        Scalar::Mod if b.0 >= 0 => (0, (b.1 - 1).max(0)),
        Scalar::Mod => (-most(b), most(b)),
        Scalar::Rem => {
            (if a.0 < 0 { -most(a).min(most(b)) } else { 0 }, if a.1 > 0 { most(a).min(most(b)) } else { 0 })
        }
        Scalar::And if a.0 >= 0 && b.0 >= 0 => (0, a.1.min(b.1)),
        Scalar::And if a.0 >= 0 => (0, a.1),
        Scalar::And if b.0 >= 0 => (0, b.1),
        Scalar::Shr if a.0 >= 0 => (0, a.1),
        _ => return None,
    })
}
