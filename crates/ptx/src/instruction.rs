//! Instructions, read: what they do, on numbers of which type, and their operands.

/// A type of numbers; its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Predicate,
    Bits(u8),
    Unsigned(u8),
    Signed(u8),
    Float(u8),
    Half,
    Brain,
    Halves,
    Brains,
}

impl Type {
    pub fn parse(text: &str) -> Option<Type> {
        Some(match text {
            "pred" => Type::Predicate,
            "b8" => Type::Bits(1),
            "b16" => Type::Bits(2),
            "b32" => Type::Bits(4),
            "b64" => Type::Bits(8),
            "u8" => Type::Unsigned(1),
            "u16" => Type::Unsigned(2),
            "u32" => Type::Unsigned(4),
            "u64" => Type::Unsigned(8),
            "s8" => Type::Signed(1),
            "s16" => Type::Signed(2),
            "s32" => Type::Signed(4),
            "s64" => Type::Signed(8),
            "f32" => Type::Float(4),
            "f64" => Type::Float(8),
            "f16" => Type::Half,
            "bf16" => Type::Brain,
            "f16x2" => Type::Halves,
            "bf16x2" => Type::Brains,
            _ => return None,
        })
    }

    pub fn bytes(self) -> usize {
        match self {
            Type::Predicate => 1,
            Type::Bits(n) | Type::Unsigned(n) | Type::Signed(n) | Type::Float(n) => n.into(),
            Type::Half | Type::Brain => 2,
            Type::Halves | Type::Brains => 4,
        }
    }

    /// The bits of a number of this type.
    pub fn mask(self) -> u64 {
        match self {
            Type::Predicate => 1,
            _ if self.bytes() == 8 => u64::MAX,
            _ => (1 << (8 * self.bytes())) - 1,
        }
    }
}

/// How a result is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    Near,
    Down,
    Up,
    Zero,
}

/// What is computed of numbers, each thread for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compute {
    Move,
    Add,
    Sub,
    Mul,
    MulHigh,
    MulWide,
    Mad,
    MadWide,
    Fma,
    Div,
    Rem,
    Min,
    Max,
    /// the number, if one of both is none
    LeastNumber,
    LargestNumber,
    Neg,
    Abs,
    CopySign,
    And,
    Or,
    Xor,
    Not,
    ShiftLeft,
    ShiftRight,
    FunnelLeft,
    FunnelRight,
    Permute,
    Insert,
    Extract,
    PopulationCount,
    LeadingZeros,
    Reverse,
    Select,
    Exp2,
    Log2,
    Inverse,
    InverseRoot,
    Root,
    Sin,
    Cos,
    Tanh,
}

impl Compute {
    pub fn parse(name: &str) -> Option<Compute> {
        use Compute::*;
        Some(match name {
            "mov" => Move,
            "add" => Add,
            "sub" => Sub,
            "mul" => Mul,
            "mad" => Mad,
            "fma" => Fma,
            "div" => Div,
            "rem" => Rem,
            "min" => Min,
            "max" => Max,
            "neg" => Neg,
            "abs" => Abs,
            "copysign" => CopySign,
            "and" => And,
            "or" => Or,
            "xor" => Xor,
            "not" => Not,
            "shl" => ShiftLeft,
            "shr" => ShiftRight,
            "prmt" => Permute,
            "bfi" => Insert,
            "bfe" => Extract,
            "popc" => PopulationCount,
            "clz" => LeadingZeros,
            "brev" => Reverse,
            "selp" => Select,
            "ex2" => Exp2,
            "lg2" => Log2,
            "rcp" => Inverse,
            "rsqrt" => InverseRoot,
            "sqrt" => Root,
            "sin" => Sin,
            "cos" => Cos,
            "tanh" => Tanh,
            _ => return None,
        })
    }
}

/// How two numbers are compared; of floats, whether NaN makes it true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    pub less: bool,
    pub equal: bool,
    pub greater: bool,
    pub unordered: bool,
}

impl Comparison {
    pub fn parse(name: &str) -> Option<Comparison> {
        let of = |less, equal, greater, unordered| Some(Comparison { less, equal, greater, unordered });
        match name {
            "eq" => of(false, true, false, false),
            "ne" => of(true, false, true, false),
            "lt" | "lo" => of(true, false, false, false),
            "le" | "ls" => of(true, true, false, false),
            "gt" | "hi" => of(false, false, true, false),
            "ge" | "hs" => of(false, true, true, false),
            "equ" => of(false, true, false, true),
            "neu" => of(true, false, true, true),
            "ltu" => of(true, false, false, true),
            "leu" => of(true, true, false, true),
            "gtu" => of(false, false, true, true),
            "geu" => of(false, true, true, true),
            "num" => of(true, true, true, false),
            "nan" => of(false, false, false, true),
            _ => None,
        }
    }
}

/// Where something lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    Parameters,
    Global,
    /// that of a block, or of another one of its cluster
    Shared,
    /// any, as the address says
    Any,
}

/// What lanes do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Together {
    /// every lane gets the number of another one
    Shuffle(Shuffle),
    /// the sums of a product of 16 × 16 and 16 × 8 elements
    Multiply(Type),
    /// four matrices of 8 × 8 elements of two bytes, turned about or not
    Matrices { count: usize, turned: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shuffle {
    Across,
    Up,
    Down,
    From,
}

/// What is done to memory at once, and what was there is the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomic {
    Compute(Compute),
    Exchange,
    CompareAndSwap,
}

/// What an instruction does.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// nothing that anybody here could see
    Nothing,
    Compute(Compute, Type, Rounding),
    Compare(Comparison, Type, Option<Compute>),
    Convert {
        to: Type,
        from: Type,
        rounding: Rounding,
        to_whole: bool,
        saturates: bool,
    },
    Load {
        space: Space,
        count: usize,
        ty: Type,
    },
    Store {
        space: Space,
        count: usize,
        ty: Type,
    },
    Atomic {
        what: Atomic,
        space: Space,
        ty: Type,
        has_result: bool,
    },
    /// an address in shared memory as one that any access takes
    ToAny,
    /// … and the way back
    ToShared,
    /// an address in the shared memory of another block of the cluster
    OfBlock {
        is_any: bool,
    },
    Jump,
    Return,
    /// threads of a block meet
    Meet,
    ArriveInCluster,
    WaitForCluster,
    /// a copy into shared memory, of which it is asked later whether it was made; with a policy or not
    Copy {
        has_policy: bool,
    },
    CommitCopies,
    WaitForCopies {
        all: bool,
    },
    BeginArrivals,
    ExpectBytes,
    HaveArrived,
    Bring,
    Together(Together),
}

/// What only a thread knows of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    Thread,
    Threads,
    Block,
    Blocks,
    Lane,
    RankInCluster,
    Zero,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    Register(u32),
    Constant(u64),
    Special(Special),
    /// a register or a number, and what is added to it
    Address(Box<Operand>, i64),
    Parameter(u64),
    Vector(Vec<Operand>),
    Label(String),
    /// a place for what nobody wants
    Nowhere,
}

/// An instruction with its guard: done where a register is true, or false.
#[derive(Clone, Debug)]
pub struct Instruction {
    pub guard: Option<(u32, bool)>,
    pub action: Action,
    pub operands: Vec<Operand>,
    /// the place to go to
    pub target: usize,
    pub line: usize,
}
