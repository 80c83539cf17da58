//! Table 1: functions of numbers.
//!
//! Meaning, stated once for every device:
//! - Floats follow IEEE 754; `max`, `min` and comparisons treat a NaN operand as numpy does (`max` and `min` return
//!   NaN, comparisons are false); of two zeros `max` prefers +0 and `min` prefers −0. Subnormals are kept.
//! - Integers are exact and wrap around at the width of their type. Division truncates towards zero, `mod` takes the
//!   sign of the divisor, `rem` that of the dividend; dividing by zero gives 0. Shifts by the width or more give 0.
//! - Bool is an integer of one bit, with `max` = or, `min` = and.

use super::expr::{Scope, Term};
use crate::error::{Error, Result};
use crate::tensor::{Class, DType};

/// How the type of the result follows from the types of the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signature {
    /// all arguments and the result have one type
    Same,
    /// arguments of one type, the result is bool
    Compare,
    /// a bool, then two arguments of one type, which is the result's
    Select,
}

/// One row of the table.
#[derive(Debug)]
pub struct ScalarDef {
    /// the name in text forms
    pub name: &'static str,
    /// number of arguments
    pub arity: usize,
    /// how types relate
    pub signature: Signature,
    /// arithmetic instructions of a good vector implementation
    pub flops: u32,
    /// error that an f32 implementation may make, in units of the last place beyond correct rounding
    pub ulp: u32,
    /// what it computes
    pub doc: &'static str,
    /// value on floats (a bool result or argument is 0 or 1)
    pub float: Option<fn(&[f64]) -> f64>,
    /// value on integers, before wrapping
    pub int: Option<fn(&[i128]) -> i128>,
    /// value on bool
    pub bool: Option<fn(&[bool]) -> bool>,
    /// derivative by each argument, given the arguments and the result; empty where it is zero almost everywhere
    pub gradient: for<'s> fn(&'s Scope, &[Term<'s>], Term<'s>) -> Vec<Term<'s>>,
}

macro_rules! column {
    ($name:literal, $type:ty, [$($x:ident),+], -) => { None };
    ($name:literal, $type:ty, [$($x:ident),+], $body:expr) => {
        Some(|args: &[$type]| {
            let &[$($x),+] = args else { unreachable!("arity of {}", $name) };
            $body
        })
    };
}

macro_rules! scalars {
    ($($(#[$meta:meta])* $Op:ident($($x:ident),+) -> $y:ident, $name:literal, $signature:ident, flops $flops:literal, ulp $ulp:literal,
        $doc:literal, float ($($float:tt)+), int ($($int:tt)+), bool ($($bool:tt)+), grad |$s:ident| [$($grad:expr),*];)+) => {
        /// A function of numbers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Scalar { $(#[doc = $doc] $Op),+ }

        impl Scalar {
            /// Every row of the table.
            pub const ALL: &'static [Scalar] = &[$(Scalar::$Op),+];
        }

        static TABLE: &[ScalarDef] = &[$(ScalarDef {
            name: $name,
            arity: [$(stringify!($x)),+].len(),
            signature: Signature::$signature,
            flops: $flops,
            ulp: $ulp,
            doc: $doc,
            float: column!($name, f64, [$($x),+], $($float)+),
            int: column!($name, i128, [$($x),+], $($int)+),
            bool: column!($name, bool, [$($x),+], $($bool)+),
            #[allow(unused_variables, reason = "not every derivative needs every argument")]
            gradient: |$s, args, $y| {
                let &[$($x),+] = args else { unreachable!("arity of {}", $name) };
                vec![$($grad),*]
            },
        }),+];
    };
}

use std::f64::consts::{FRAC_2_SQRT_PI, LN_2};

scalars! {
//  op(arguments) -> result     name       signature  cost      accuracy  meaning
//      value on floats, integers, bool; derivative by each argument
    Add(a, b) -> y,             "add",     Same,      flops 1,  ulp 0,    "a + b",
        float (a + b), int (a.wrapping_add(b)), bool (-), grad |s| [s.one(y), s.one(y)];
    Sub(a, b) -> y,             "sub",     Same,      flops 1,  ulp 0,    "a − b",
        float (a - b), int (a.wrapping_sub(b)), bool (-), grad |s| [s.one(y), -s.one(y)];
    Mul(a, b) -> y,             "mul",     Same,      flops 1,  ulp 0,    "a · b",
        float (a * b), int (a.wrapping_mul(b)), bool (a & b), grad |s| [b, a];
    Div(a, b) -> y,             "div",     Same,      flops 4,  ulp 0,    "a / b; integers truncate",
        float (a / b), int (if b == 0 { 0 } else { a / b }), bool (-), grad |s| [s.one(y) / b, -y / b];
    Mod(a, b) -> y,             "mod",     Same,      flops 6,  ulp 0,    "a − b · floor(a / b): the remainder with the divisor's sign",
        float (floor_mod(a, b)), int (if b == 0 { 0 } else { a - b * a.div_euclid(b) + if b < 0 && a.rem_euclid(b) != 0 { b } else { 0 } }), bool (-),
        grad |s| [s.one(y), -(a / b).apply(Scalar::Floor)];
    Rem(a, b) -> y,             "rem",     Same,      flops 6,  ulp 0,    "a − b · trunc(a / b): the remainder with the dividend's sign",
        float (a % b), int (if b == 0 { 0 } else { a % b }), bool (-), grad |s| [s.one(y), -(a / b).apply(Scalar::Trunc)];
    Pow(a, b) -> y,             "pow",     Same,      flops 64, ulp 4,    "a to the power of b",
        float (a.powf(b)), int (int_pow(a, b)), bool (-), grad |s| [b * a.pow(b - s.one(y)), y * a.apply(Scalar::Log)];
    Max(a, b) -> y,             "max",     Same,      flops 1,  ulp 0,    "the larger; NaN if either is",
        float (max(a, b)), int (a.max(b)), bool (a | b), grad |s| [s.one(y) - a.lt(b).cast(y.dtype()), a.lt(b).cast(y.dtype())];
    Min(a, b) -> y,             "min",     Same,      flops 1,  ulp 0,    "the smaller; NaN if either is",
        float (-max(-a, -b)), int (a.min(b)), bool (a & b), grad |s| [s.one(y) - b.lt(a).cast(y.dtype()), b.lt(a).cast(y.dtype())];
    Neg(x) -> y,                "neg",     Same,      flops 1,  ulp 0,    "−x",
        float (-x), int (x.wrapping_neg()), bool (-), grad |s| [-s.one(y)];
    Abs(x) -> y,                "abs",     Same,      flops 1,  ulp 0,    "the magnitude of x",
        float (x.abs()), int (x.wrapping_abs()), bool (-), grad |s| [x.apply(Scalar::Sign)];
    Sign(x) -> y,               "sign",    Same,      flops 1,  ulp 0,    "−1, 0 or 1; NaN stays NaN",
        float (if x == 0.0 || x.is_nan() { x } else { x.signum() }), int (x.signum()), bool (-), grad |s| [];
    Floor(x) -> y,              "floor",   Same,      flops 1,  ulp 0,    "the largest integer not above x",
        float (x.floor()), int (x), bool (-), grad |s| [];
    Ceil(x) -> y,               "ceil",    Same,      flops 1,  ulp 0,    "the smallest integer not below x",
        float (x.ceil()), int (x), bool (-), grad |s| [];
    Round(x) -> y,              "round",   Same,      flops 1,  ulp 0,    "the nearest integer, ties to even",
        float (x.round_ties_even()), int (x), bool (-), grad |s| [];
    Trunc(x) -> y,              "trunc",   Same,      flops 1,  ulp 0,    "x without its fraction",
        float (x.trunc()), int (x), bool (-), grad |s| [];
    Sqrt(x) -> y,               "sqrt",    Same,      flops 4,  ulp 0,    "square root",
        float (x.sqrt()), int (-), bool (-), grad |s| [s.float(y, 0.5) / y];
    Exp(x) -> y,                "exp",     Same,      flops 10, ulp 1,    "e to the power of x",
        float (x.exp()), int (-), bool (-), grad |s| [y];
    Exp2(x) -> y,               "exp2",    Same,      flops 8,  ulp 1,    "2 to the power of x",
        float (x.exp2()), int (-), bool (-), grad |s| [y * s.float(y, LN_2)];
    Log(x) -> y,                "log",     Same,      flops 10, ulp 1,    "natural logarithm",
        float (x.ln()), int (-), bool (-), grad |s| [s.one(y) / x];
    Log2(x) -> y,               "log2",    Same,      flops 10, ulp 1,    "logarithm to base 2",
        float (x.log2()), int (-), bool (-), grad |s| [s.one(y) / (x * s.float(y, LN_2))];
    Log1p(x) -> y,              "log1p",   Same,      flops 12, ulp 1,    "log(1 + x), accurate near 0",
        float (x.ln_1p()), int (-), bool (-), grad |s| [s.one(y) / (x + s.one(y))];
    Expm1(x) -> y,              "expm1",   Same,      flops 12, ulp 1,    "exp(x) − 1, accurate near 0",
        float (x.exp_m1()), int (-), bool (-), grad |s| [y + s.one(y)];
    Sin(x) -> y,                "sin",     Same,      flops 16, ulp 1,    "sine",
        float (x.sin()), int (-), bool (-), grad |s| [x.apply(Scalar::Cos)];
    Cos(x) -> y,                "cos",     Same,      flops 16, ulp 1,    "cosine",
        float (x.cos()), int (-), bool (-), grad |s| [-x.apply(Scalar::Sin)];
    Tan(x) -> y,                "tan",     Same,      flops 24, ulp 2,    "tangent",
        float (x.tan()), int (-), bool (-), grad |s| [y * y + s.one(y)];
    Asin(x) -> y,               "asin",    Same,      flops 16, ulp 2,    "inverse sine",
        float (x.asin()), int (-), bool (-), grad |s| [s.one(y) / (s.one(y) - x * x).apply(Scalar::Sqrt)];
    Acos(x) -> y,               "acos",    Same,      flops 16, ulp 2,    "inverse cosine",
        float (x.acos()), int (-), bool (-), grad |s| [-s.one(y) / (s.one(y) - x * x).apply(Scalar::Sqrt)];
    Atan(x) -> y,               "atan",    Same,      flops 16, ulp 2,    "inverse tangent",
        float (x.atan()), int (-), bool (-), grad |s| [s.one(y) / (x * x + s.one(y))];
    Sinh(x) -> y,               "sinh",    Same,      flops 16, ulp 2,    "hyperbolic sine",
        float (x.sinh()), int (-), bool (-), grad |s| [x.apply(Scalar::Cosh)];
    Cosh(x) -> y,               "cosh",    Same,      flops 16, ulp 2,    "hyperbolic cosine",
        float (x.cosh()), int (-), bool (-), grad |s| [x.apply(Scalar::Sinh)];
    Tanh(x) -> y,               "tanh",    Same,      flops 14, ulp 2,    "hyperbolic tangent, within [−1, 1]",
        float (x.tanh()), int (-), bool (-), grad |s| [s.one(y) - y * y];
    Asinh(x) -> y,              "asinh",   Same,      flops 20, ulp 3,    "inverse hyperbolic sine",
        float (x.asinh()), int (-), bool (-), grad |s| [s.one(y) / (x * x + s.one(y)).apply(Scalar::Sqrt)];
    Acosh(x) -> y,              "acosh",   Same,      flops 20, ulp 3,    "inverse hyperbolic cosine",
        float (x.acosh()), int (-), bool (-), grad |s| [s.one(y) / (x * x - s.one(y)).apply(Scalar::Sqrt)];
    Atanh(x) -> y,              "atanh",   Same,      flops 20, ulp 3,    "inverse hyperbolic tangent",
        float (x.atanh()), int (-), bool (-), grad |s| [s.one(y) / (s.one(y) - x * x)];
    Erf(x) -> y,                "erf",     Same,      flops 16, ulp 2,    "the error function, within [−1, 1]",
        float (libm::erf(x)), int (-), bool (-), grad |s| [(-(x * x)).apply(Scalar::Exp) * s.float(y, FRAC_2_SQRT_PI)];
    Sigmoid(x) -> y,            "sigmoid", Same,      flops 12, ulp 2,    "1 / (1 + exp(−x)), within [0, 1]",
        float (1.0 / (1.0 + (-x).exp())), int (-), bool (-), grad |s| [y * (s.one(y) - y)];
    Kept(x) -> y,               "kept",    Same,      flops 0,  ulp 0,    "x, rounded to its type and computed as it is written, whatever the numerics",
        float (x), int (-), bool (-), grad |s| [s.one(y)];
    Lt(a, b) -> y,              "lt",      Compare,   flops 1,  ulp 0,    "a < b",
        float (truth(a < b)), int (i128::from(a < b)), bool (!a & b), grad |s| [];
    Le(a, b) -> y,              "le",      Compare,   flops 1,  ulp 0,    "a ≤ b",
        float (truth(a <= b)), int (i128::from(a <= b)), bool (!a | b), grad |s| [];
    Eq(a, b) -> y,              "eq",      Compare,   flops 1,  ulp 0,    "a = b",
        float (truth(a == b)), int (i128::from(a == b)), bool (a == b), grad |s| [];
    IsNan(x) -> y,              "isnan",   Compare,   flops 1,  ulp 0,    "whether x is not a number",
        float (truth(x.is_nan())), int (-), bool (-), grad |s| [];
    And(a, b) -> y,             "and",     Same,      flops 1,  ulp 0,    "bits set in both",
        float (-), int (a & b), bool (a & b), grad |s| [];
    Or(a, b) -> y,              "or",      Same,      flops 1,  ulp 0,    "bits set in either",
        float (-), int (a | b), bool (a | b), grad |s| [];
    Xor(a, b) -> y,             "xor",     Same,      flops 1,  ulp 0,    "bits set in one of two",
        float (-), int (a ^ b), bool (a ^ b), grad |s| [];
    Not(x) -> y,                "not",     Same,      flops 1,  ulp 0,    "all bits inverted",
        float (-), int (!x), bool (!x), grad |s| [];
    Shl(a, b) -> y,             "shl",     Same,      flops 1,  ulp 0,    "a shifted left by b bits",
        float (-), int (if (0..64).contains(&b) { a << b } else { 0 }), bool (-), grad |s| [];
    Shr(a, b) -> y,             "shr",     Same,      flops 1,  ulp 0,    "a shifted right by b bits",
        float (-), int (if (0..64).contains(&b) { a >> b } else { 0 }), bool (-), grad |s| [];
    Select(c, a, b) -> y,       "select",  Select,    flops 1,  ulp 0,    "a where c holds, otherwise b",
        float (if c != 0.0 { a } else { b }), int (if c != 0 { a } else { b }), bool (if c { a } else { b }),
        grad |s| [s.float(y, 0.0), c.cast(y.dtype()), s.one(y) - c.cast(y.dtype())];
}

impl Scalar {
    /// The row of this function.
    pub fn def(self) -> &'static ScalarDef {
        &TABLE[self as usize]
    }

    /// The row with this name.
    pub fn from_name(name: &str) -> Option<Scalar> {
        Scalar::ALL.iter().copied().find(|s| s.def().name == name)
    }

    /// The type of the result.
    pub fn infer(self, args: &[DType]) -> Result<DType> {
        let def = self.def();
        let refuse = || {
            let types: Vec<_> = args.iter().map(|d| d.name()).collect();
            let mixed = args.iter().find(|d| self.is_defined_on(**d) && d.is_float() && args.iter().any(|e| e != *d));
            let hint = mixed.map_or(String::new(), |d| format!("; {}(…) converts what is of another type", d.name()));
            Error::invalid(format!("{} is not defined for ({}){hint}", def.name, types.join(", ")))
        };
        if args.len() != def.arity {
            return Err(refuse());
        }
        let operands = if def.signature == Signature::Select { &args[1..] } else { args };
        let operand = operands[0];
        let selects = def.signature != Signature::Select || args[0] == DType::Bool;
        if !selects || operands.iter().any(|d| *d != operand) || !self.is_defined_on(operand) {
            return Err(refuse());
        }
        Ok(if def.signature == Signature::Compare { DType::Bool } else { operand })
    }

    /// Whether the function takes operands of this type.
    pub fn is_defined_on(self, dtype: DType) -> bool {
        let def = self.def();
        match dtype.class() {
            Class::Float => def.float.is_some(),
            Class::Bool => def.bool.is_some(),
            Class::Signed | Class::Unsigned => def.int.is_some(),
        }
    }

    /// Whether a function of floats changes by much where its arguments change by little.
    pub fn jumps(self) -> bool {
        use Scalar::{Ceil, Floor, Mod, Rem, Round, Sign, Trunc};
        self.def().signature == Signature::Compare || matches!(self, Floor | Ceil | Round | Trunc | Sign | Mod | Rem)
    }

    /// Whether swapping two arguments changes nothing.
    pub fn is_commutative(self) -> bool {
        use Scalar::{Add, And, Eq, Max, Min, Mul, Or, Xor};
        matches!(self, Add | Mul | Max | Min | Eq | And | Or | Xor)
    }
}

fn truth(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

fn max(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a == b {
        a + if a == 0.0 { b } else { 0.0 } // +0 unless both are −0
    } else if a > b {
        a
    } else {
        b
    }
}

fn floor_mod(a: f64, b: f64) -> f64 {
    let r = a % b;
    if r != 0.0 && (r < 0.0) != (b < 0.0) { r + b } else { r }
}

fn int_pow(a: i128, b: i128) -> i128 {
    if b < 0 {
        return match a {
            1 => 1,
            -1 if b % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        };
    }
    let (mut base, mut exponent, mut power) = (a, b as u128, 1i128);
    while exponent > 0 {
        if exponent & 1 == 1 {
            power = power.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        exponent >>= 1;
    }
    power
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Expr;

    /// A point inside the domain of every function.
    const POINTS: [[f64; 3]; 2] = [[1.0, 0.6, 0.3], [1.0, 0.2, 0.7]];

    #[test]
    fn names_are_unique_and_documented() {
        for (k, op) in Scalar::ALL.iter().enumerate() {
            assert_eq!(Scalar::from_name(op.def().name), Some(*op));
            assert!(!op.def().doc.is_empty());
            assert_eq!(*op as usize, k);
        }
    }

    #[test]
    fn every_derivative_agrees_with_finite_differences() {
        for &op in Scalar::ALL {
            let def = op.def();
            if def.float.is_none() || def.signature == Signature::Compare {
                continue;
            }
            let select = def.signature == Signature::Select;
            let dtypes: Vec<_> =
                (0..def.arity).map(|k| if select && k == 0 { DType::Bool } else { DType::F64 }).collect();
            let expr = Expr::build(&dtypes, |_, args| Term::call(op, args));
            for mut at in POINTS {
                if op == Scalar::Acosh {
                    at[0] = 1.7; // defined from 1 upwards
                } else if def.arity == 1 {
                    at[0] = at[1];
                } else if def.arity == 2 {
                    at[0] = 0.83; // no multiple of the divisors
                }
                for wrt in usize::from(select)..def.arity {
                    let h = 1e-6;
                    let (mut low, mut high) = (at, at);
                    low[wrt] -= h;
                    high[wrt] += h;
                    let value = |at: &[f64; 3]| expr.eval_f64(&at[..def.arity]);
                    let numeric = (value(&high) - value(&low)) / (2.0 * h);
                    let exact = expr.derivative(wrt).map_or(0.0, |d| d.eval_f64(&at[..def.arity]));
                    assert!((numeric - exact).abs() < 1e-6, "{} by argument {wrt}: {numeric} {exact}", def.name);
                }
            }
        }
    }

    #[test]
    fn special_values_are_as_stated() {
        let f = |op: Scalar, a: &[f64]| (op.def().float.unwrap())(a);
        let i = |op: Scalar, a: &[i128]| (op.def().int.unwrap())(a);
        assert!(f(Scalar::Max, &[1.0, f64::NAN]).is_nan() && f(Scalar::Min, &[f64::NAN, 1.0]).is_nan());
        assert!(f(Scalar::Max, &[-0.0, 0.0]).is_sign_positive() && f(Scalar::Min, &[0.0, -0.0]).is_sign_negative());
        assert_eq!(f(Scalar::Max, &[-0.0, -0.0]).to_bits(), (-0.0f64).to_bits());
        assert_eq!(f(Scalar::Round, &[2.5]), 2.0);
        assert_eq!((f(Scalar::Mod, &[-5.0, 3.0]), f(Scalar::Rem, &[-5.0, 3.0])), (1.0, -2.0));
        for a in -7..8 {
            for b in [-3, -2, -1, 1, 2, 3] {
                let expected = a - b * (a as f64 / b as f64).floor() as i128;
                assert_eq!(i(Scalar::Mod, &[a, b]), expected, "{a} mod {b}");
            }
        }
        assert_eq!((i(Scalar::Div, &[-7, 2]), i(Scalar::Div, &[7, 0])), (-3, 0));
        assert_eq!((i(Scalar::Pow, &[-2, 3]), i(Scalar::Pow, &[2, -1]), i(Scalar::Pow, &[-1, -3])), (-8, 0, -1));
        assert_eq!(i(Scalar::Shl, &[1, 64]), 0);
        for x in [-800.0, -30.0, 30.0, 800.0] {
            assert!((0.0..=1.0).contains(&f(Scalar::Sigmoid, &[x])));
            assert!((-1.0..=1.0).contains(&f(Scalar::Tanh, &[x])) && (-1.0..=1.0).contains(&f(Scalar::Erf, &[x])));
        }
    }

    #[test]
    fn types_are_checked() {
        assert_eq!(Scalar::Lt.infer(&[DType::F32, DType::F32]).unwrap(), DType::Bool);
        assert!(Scalar::Add.infer(&[DType::F32, DType::F64]).is_err());
        assert!(Scalar::Exp.infer(&[DType::I32]).is_err());
        assert!(Scalar::Select.infer(&[DType::I32, DType::F32, DType::F32]).is_err());
    }
}
