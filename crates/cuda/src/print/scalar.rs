//! The functions of the scalar table in CUDA C++, one row each.
//!
//! Functions that the table gives no error are exact here (`--prec-div`, `--prec-sqrt` and `--ftz=false` are NVRTC's usual
//! settings, and fast mathematics is never asked for). Of the others, CUDA's functions of `float` stay within the table's error;
//! where they do not, the function of `double` is taken and rounded (those called `…_by_f64`).

use fuseline::ops::Scalar;
use fuseline::tensor::{Class, DType};

use super::code::{Code, Rank};

/// How a function is written.
#[derive(Clone, Copy, Debug)]
enum Spelling {
    /// an operator between its operands
    Infix(&'static str, Rank),
    /// an operator before its operand
    Prefix(&'static str),
    /// a function: CUDA's, or one of the prelude
    Call(&'static str),
    /// `c ? a : b`
    Choice,
    /// the operand itself
    Itself,
    /// it is not defined on this class of numbers
    No,
}

use Spelling::{Call, Choice, Infix, Itself, No, Prefix};

macro_rules! spellings {
    ($($Op:ident: $f32:expr, $f64:expr, $int:expr, $bool:expr;)+) => {
        /// The row of a function: on `float`, on `double`, on integers, on `bool`.
        fn row(op: Scalar) -> [Spelling; 4] {
            match op { $(Scalar::$Op => [$f32, $f64, $int, $bool]),+ }
        }
    };
}

const PLUS: Spelling = Infix("+", Rank::Sum);
const MINUS: Spelling = Infix("-", Rank::Sum);
const TIMES: Spelling = Infix("*", Rank::Product);
const OVER: Spelling = Infix("/", Rank::Product);
const LESS: Spelling = Infix("<", Rank::Order);
const AT_MOST: Spelling = Infix("<=", Rank::Order);
const EQUAL: Spelling = Infix("==", Rank::Equality);
const DIFFER: Spelling = Infix("!=", Rank::Equality);
const BOTH: Spelling = Infix("&&", Rank::Both);
const EITHER: Spelling = Infix("||", Rank::Either);

spellings! {
//  function  float                   double               integers                     bool
    Add:      PLUS,                   PLUS,                Call("wrapped_sum"),         No;
    Sub:      MINUS,                  MINUS,               Call("wrapped_difference"),  No;
    Mul:      TIMES,                  TIMES,               Call("wrapped_product"),     BOTH;
    Div:      OVER,                   OVER,                Call("quotient"),            No;
    Mod:      Call("floor_mod"),      Call("floor_mod"),   Call("floor_mod"),           No;
    Rem:      Call("fmodf"),          Call("fmod"),        Call("remainder_of"),        No;
    Pow:      Call("powf"),           Call("pow"),         Call("power"),               No;
    Max:      Call("larger"),         Call("larger"),      Call("larger"),              EITHER;
    Min:      Call("smaller"),        Call("smaller"),     Call("smaller"),             BOTH;
    Neg:      Prefix("-"),            Prefix("-"),         Call("negated"),             No;
    Abs:      Call("fabsf"),          Call("fabs"),        Call("magnitude"),           No;
    Sign:     Call("sign_of"),        Call("sign_of"),     Call("sign_of"),             No;
    Floor:    Call("floorf"),         Call("floor"),       Itself,                      No;
    Ceil:     Call("ceilf"),          Call("ceil"),        Itself,                      No;
    Round:    Call("rintf"),          Call("rint"),        Itself,                      No;
    Trunc:    Call("truncf"),         Call("trunc"),       Itself,                      No;
    Sqrt:     Call("sqrtf"),          Call("sqrt"),        No,                          No;
    Exp:      Call("expf"),           Call("exp"),         No,                          No;
    Exp2:     Call("exp2_by_f64"),    Call("exp2"),        No,                          No;
    Log:      Call("logf"),           Call("log"),         No,                          No;
    Log2:     Call("log2f"),          Call("log2"),        No,                          No;
    Log1p:    Call("log1pf"),         Call("log1p"),       No,                          No;
    Expm1:    Call("expm1f"),         Call("expm1"),       No,                          No;
    Sin:      Call("sin_by_f64"),     Call("sin"),         No,                          No;
    Cos:      Call("cos_by_f64"),     Call("cos"),         No,                          No;
    Tan:      Call("tan_by_f64"),     Call("tan"),         No,                          No;
    Asin:     Call("asinf"),          Call("asin"),        No,                          No;
    Acos:     Call("acosf"),          Call("acos"),        No,                          No;
    Atan:     Call("atanf"),          Call("atan"),        No,                          No;
    Sinh:     Call("sinh_by_f64"),    Call("sinh"),        No,                          No;
    Cosh:     Call("coshf"),          Call("cosh"),        No,                          No;
    Tanh:     Call("tanhf"),          Call("tanh"),        No,                          No;
    Asinh:    Call("asinhf"),         Call("asinh"),       No,                          No;
    Acosh:    Call("acosh_by_f64"),   Call("acosh"),       No,                          No;
    Atanh:    Call("atanhf"),         Call("atanh"),       No,                          No;
    Erf:      Call("erf_of"),         Call("erf"),         No,                          No;
    Sigmoid:  Call("sigmoid"),        Call("sigmoid"),     No,                          No;
    Kept:     Itself,                 Itself,              No,                          No;
    Lt:       LESS,                   LESS,                LESS,                        LESS;
    Le:       AT_MOST,                AT_MOST,             AT_MOST,                     AT_MOST;
    Eq:       EQUAL,                  EQUAL,               EQUAL,                       EQUAL;
    IsNan:    Call("is_nan"),         Call("is_nan"),      No,                          No;
    And:      No,                     No,                  Infix("&", Rank::BitAnd),    BOTH;
    Or:       No,                     No,                  Infix("|", Rank::BitOr),     EITHER;
    Xor:      No,                     No,                  Infix("^", Rank::BitXor),    DIFFER;
    Not:      No,                     No,                  Prefix("~"),                 Prefix("!");
    Shl:      No,                     No,                  Call("shifted_left"),        No;
    Shr:      No,                     No,                  Call("shifted_right"),       No;
    Select:   Choice,                 Choice,              Choice,                      Choice;
}

/// A function of values of type `dtype` (those behind the condition, for a select). Integers narrower than a register may have
/// left their range; their low bits are right.
pub(super) fn apply(op: Scalar, dtype: DType, args: &[Code]) -> Code {
    let column = match dtype.class() {
        Class::Float if dtype == DType::F64 => 1,
        Class::Float => 0,
        Class::Signed | Class::Unsigned => 2,
        Class::Bool => 3,
    };
    match (row(op)[column], args) {
        (Infix(operator, rank), [a, b]) => Code::infix(operator, rank, a, b),
        (Prefix(operator), [a]) => Code::prefix(operator, a),
        (Call(function), args) => Code::call(function, args),
        (Choice, [c, a, b]) => Code::choice(c, a, b),
        (Itself, [a]) => a.clone(),
        _ => unreachable!("types and numbers of arguments were checked when the expression was made"),
    }
}

/// The function that rounds at once and is never made one instruction with another, where there is one.
pub(super) fn rounded_alone(op: Scalar, dtype: DType) -> Option<&'static str> {
    Some(match (op, dtype) {
        (Scalar::Add, DType::F32) => "__fadd_rn",
        (Scalar::Sub, DType::F32) => "__fsub_rn",
        (Scalar::Mul, DType::F32) => "__fmul_rn",
        (Scalar::Div, DType::F32) => "__fdiv_rn",
        (Scalar::Sqrt, DType::F32) => "__fsqrt_rn",
        (Scalar::Add, DType::F64) => "__dadd_rn",
        (Scalar::Sub, DType::F64) => "__dsub_rn",
        (Scalar::Mul, DType::F64) => "__dmul_rn",
        (Scalar::Div, DType::F64) => "__ddiv_rn",
        (Scalar::Sqrt, DType::F64) => "__dsqrt_rn",
        _ => return None,
    })
}

/// Whether the result of a function can be outside of a type that is narrower than a register.
pub(super) fn may_leave(op: Scalar, dtype: DType) -> bool {
    use Scalar::{Abs, Add, Div, Mul, Neg, Not, Pow, Shl, Sub};
    dtype.is_int() && dtype.bits() < 32 && matches!(op, Add | Sub | Mul | Div | Pow | Neg | Abs | Shl | Not)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_is_spelt_wherever_it_is_defined() {
        for &op in Scalar::ALL {
            for (dtype, column) in [(DType::F32, 0), (DType::F64, 1), (DType::I32, 2), (DType::Bool, 3)] {
                let spelt = !matches!(row(op)[column], No);
                assert_eq!(spelt, op.is_defined_on(dtype), "{} on {dtype}", op.def().name);
            }
        }
    }
}
