//! The names of functions and types in texts, and all of them.

use super::{Binary, Compare, Convert, FmaOp, IntOp, Ty, Unary};

macro_rules! names {
    ($($Enum:ident { $($Variant:ident $name:literal),+ })+) => {$(
        impl $Enum {
            /// Every one.
            pub const ALL: &'static [$Enum] = &[$($Enum::$Variant),+];

            /// Its name in texts.
            pub fn name(self) -> &'static str {
                match self {
                    $($Enum::$Variant => $name),+
                }
            }

            /// The one with this name.
            pub fn from_name(name: &str) -> Option<$Enum> {
                $Enum::ALL.iter().copied().find(|each| each.name() == name)
            }
        }
    )+};
}

names! {
    Ty { Int "int", F32 "f32", F64 "f64", I32 "i32", I64 "i64", Mask "mask" }
    IntOp {
        Add "add", Sub "sub", Mul "mul", FloorDiv "floor_div", FloorMod "floor_mod", Min "min", Max "max", And "and",
        Or "or", Xor "xor", Shl "shl", Shr "shr", Lt "lt", Le "le", Eq "eq"
    }
    Unary {
        Sqrt "sqrt", Floor "floor", Ceil "ceil", Round "round", Trunc "trunc", RoundF16 "round_f16",
        RoundBf16 "round_bf16", Swap "swap"
    }
    Binary {
        Add "add", Sub "sub", Mul "mul", Div "div", Min "min", Max "max", MinUnsigned "min_unsigned",
        MaxUnsigned "max_unsigned", MulHigh "mul_high", MulEven "mul_even", And "and", Or "or", Xor "xor", AndNot "and_not", Shl "shl",
        ShrSigned "shr_signed", ShrUnsigned "shr_unsigned", JoinLow "join_low", JoinHigh "join_high",
        MixLow "mix_low", MixHigh "mix_high", Scale "scale"
    }
    FmaOp { Add "add", Sub "sub", NegAdd "neg_add", NegSub "neg_sub" }
    Compare {
        Lt "lt", Le "le", Eq "eq", Ne "ne", LtUnsigned "lt_unsigned", LeUnsigned "le_unsigned", Unordered "unordered"
    }
    Convert {
        Float "float", FloatUnsigned "float_unsigned", Truncate "truncate", ExtendSigned "extend_signed",
        ExtendUnsigned "extend_unsigned", Low "low", Bits "bits"
    }
}
