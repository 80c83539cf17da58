//! The language of vector programs: what every kernel is on a processor, whatever its instruction set.
//!
//! A [`Program`] is straight-line code and counted loops over values. A value is an integer (an address, a coordinate, a
//! count), a vector of [`Program::lanes`] numbers, or a mask of as many truths. There are no types narrower than 32 bits in
//! registers: memory may hold them, loads widen and stores narrow. Every vector of a program has the same number of lanes, so
//! that a program with 64-bit numbers has half as many lanes as one without.
//!
//! A program is called with a table of pointers ([`Op::Buffer`]), and a range of *tasks* ([`Op::Begin`], [`Op::End`]) that it
//! works through in any order; tasks are independent of each other, which is how threads share a program.
//!
//! Comes in: kernels from `emit`. Goes out: programs for the machine (`x64`) or for the
//! portable executor. Never here: axes, tensors, schedules.

pub mod build;
mod carry;
mod flatten;
mod known;
mod lane;
mod names;
pub mod parse;
mod print;
mod registers;
pub mod run;
mod tile;
pub mod verify;

pub use build::Builder;
pub use parse::parse;
pub use run::Portable;
pub use verify::verify;

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use fuseline::tensor::DType;
use smallvec::SmallVec;

/// A value by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u32);

impl Value {
    /// Its place among the values of the program.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ty {
    /// one 64-bit integer: an address, a coordinate, a count
    Int,
    /// a vector of f32
    F32,
    /// a vector of f64
    F64,
    /// a vector of 32-bit integers; also holds 8- and 16-bit ones, extended by their own sign
    I32,
    /// a vector of 64-bit integers
    I64,
    /// a truth for every lane
    Mask,
}

impl Ty {
    /// Bytes of one lane; 0 for masks, whose size is the machine's.
    pub fn lane_bytes(self) -> usize {
        match self {
            Ty::F32 | Ty::I32 => 4,
            Ty::F64 | Ty::I64 | Ty::Int => 8,
            Ty::Mask => 0,
        }
    }

    /// Whether lanes are floats.
    pub fn is_float(self) -> bool {
        matches!(self, Ty::F32 | Ty::F64)
    }

    /// Whether it is a vector of numbers.
    pub fn is_vector(self) -> bool {
        !matches!(self, Ty::Int | Ty::Mask)
    }

    /// The type in which elements of this type are computed. Strings of bits narrower than a byte have none.
    pub fn of(dtype: DType) -> Option<Ty> {
        Some(match dtype {
            DType::F16 | DType::BF16 | DType::F32 => Ty::F32,
            DType::F64 => Ty::F64,
            DType::I8 | DType::U8 | DType::I16 | DType::U16 | DType::I32 | DType::U32 => Ty::I32,
            DType::I64 | DType::U64 => Ty::I64,
            DType::Bool => Ty::Mask,
            _ => return None,
        })
    }
}

/// A place in memory: `base + index·scale + offset`, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// an integer: a pointer
    pub base: Value,
    /// an integer and 1, 2, 4 or 8
    pub index: Option<(Value, u8)>,
    /// bytes
    pub offset: i32,
}

/// A function of two integers. Comparisons give 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IntOp {
    /// a + b, wrapping
    Add,
    /// a − b, wrapping
    Sub,
    /// a · b, wrapping
    Mul,
    /// the floor of a / b; b > 0
    FloorDiv,
    /// a − b · floor(a / b); b > 0
    FloorMod,
    /// the smaller
    Min,
    /// the larger
    Max,
    /// bits in both
    And,
    /// bits in either
    Or,
    /// bits in one of two
    Xor,
    /// a · 2^b; 0 ≤ b < 64
    Shl,
    /// the floor of a / 2^b; 0 ≤ b < 64
    Shr,
    /// a < b
    Lt,
    /// a ≤ b
    Le,
    /// a = b
    Eq,
}

/// A function of one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unary {
    /// square root, correctly rounded
    Sqrt,
    /// towards −∞
    Floor,
    /// towards +∞
    Ceil,
    /// to nearest, ties to even
    Round,
    /// towards zero
    Trunc,
    /// F32: rounded to f16 and back; subnormals kept
    RoundF16,
    /// F32: rounded to bf16 and back; subnormals kept
    RoundBf16,
    /// I32: lanes 2k and 2k + 1 change places
    Swap,
}

/// A function of two vectors of one type. Integers wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Binary {
    /// a + b
    Add,
    /// a − b
    Sub,
    /// a · b; integers keep the low half
    Mul,
    /// a / b, floats only
    Div,
    /// `a < b ? a : b`, so b where either is NaN or both are zeros; integers signed
    Min,
    /// `a > b ? a : b`, so b where either is NaN or both are zeros; integers signed
    Max,
    /// the smaller as unsigned integers
    MinUnsigned,
    /// the larger as unsigned integers
    MaxUnsigned,
    /// I32: the high half of the unsigned product
    MulHigh,
    /// I32: the unsigned product of lanes 2k, its low half in lane 2k and its high half in lane 2k + 1
    MulEven,
    /// bits in both (any type)
    And,
    /// bits in either (any type)
    Or,
    /// bits in one of two (any type)
    Xor,
    /// bits in b and not in a (any type)
    AndNot,
    /// integers: a · 2^b by the lane of b, 0 where b is not in 0..width
    Shl,
    /// integers: the floor of a / 2^b as signed; sign everywhere where b is not in 0..width
    ShrSigned,
    /// integers: the floor of a / 2^b as unsigned; 0 where b is not in 0..width
    ShrUnsigned,
    /// F32 or I32, within every four lanes: the first two of a, then those of b
    JoinLow,
    /// F32 or I32, within every four lanes: the last two of a, then those of b
    JoinHigh,
    /// F32 or I32, within every four lanes: the first two of a and of b, in turns
    MixLow,
    /// F32 or I32, within every four lanes: the last two of a and of b, in turns
    MixHigh,
    /// floats: a · 2^floor(b), with the right subnormals, 0 and ∞; NaN if either is, but of NaN and an infinite b anything
    Scale,
}

/// Signs of a fused multiply-add.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FmaOp {
    /// a·b + c
    Add,
    /// a·b − c
    Sub,
    /// −a·b + c
    NegAdd,
    /// −a·b − c
    NegSub,
}

/// A comparison. Those of floats are false where either is NaN, unless said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Compare {
    /// a < b; integers signed
    Lt,
    /// a ≤ b; integers signed
    Le,
    /// a = b
    Eq,
    /// a ≠ b; true where either is NaN
    Ne,
    /// integers: a < b as unsigned
    LtUnsigned,
    /// integers: a ≤ b as unsigned
    LeUnsigned,
    /// floats: either is NaN
    Unordered,
}

/// How lanes become lanes of another type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Convert {
    /// I32, I64, F32, F64 → F32, F64, rounded to nearest; integers as signed
    Float,
    /// I32, I64 → F32, F64, rounded to nearest; integers as unsigned
    FloatUnsigned,
    /// F32, F64 → I32, I64 towards zero; what does not fit, and NaN, is the least integer
    Truncate,
    /// I32 → I64 by sign
    ExtendSigned,
    /// I32 → I64 by zeros
    ExtendUnsigned,
    /// I64 → I32, the low half
    Low,
    /// the same bits: F32 ↔ I32, F64 ↔ I64
    Bits,
}

/// A fold of all lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FoldOp {
    /// by this function, in a butterfly: lane k with lane k xor 1, then 2, 4, …; the order of arguments is (own, other). Of a mask only by `or`: whether any
    /// lane holds
    By(Binary),
}

/// A function that is called: for what no instruction sequence is worth. Called lane by lane on the elements' bits.
#[derive(Clone, Copy, Debug)]
pub struct Routine {
    /// what the arguments are, and the result: bits of a lane as the low bits of a word
    pub call: fn(&[u64]) -> u64,
    /// its name in texts; programs are compared by it
    pub name: &'static str,
}

impl PartialEq for Routine {
    fn eq(&self, other: &Routine) -> bool {
        self.name == other.name
    }
}

impl Eq for Routine {}

impl Hash for Routine {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// What a value is. Operands are earlier values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Int: the pointer at this place of the table
    Buffer(u32),
    /// Int: the first task
    Begin,
    /// Int: the task behind the last
    End,
    /// Int: a number
    Number(i64),
    /// Int: a function of integers
    Int(IntOp, Value, Value),
    /// Int: the second where the first is not 0, otherwise the third
    Choose(Value, Value, Value),
    /// Int: an integer or bool in memory, extended by its sign
    ReadInt {
        /// where
        at: Address,
        /// what lies there
        memory: DType,
    },
    /// Int: the first where 0 ≤ it < the second; otherwise 0, and the call fails, naming this place and the value
    CheckInt {
        /// the integer
        value: Value,
        /// what it must be below
        bound: Value,
        /// which check this is, for the message
        site: u32,
    },
    /// a vector of equal lanes, by the bits of one; Mask: all lanes, 0 or 1
    Const(Ty, u64),
    /// I32 or I64: 0, 1, 2, …
    Lanes(Ty),
    /// F32 or I32: a number for every lane, by its bits
    Numbers(Ty, Arc<[u32]>),
    /// Mask: the first n lanes; all where there are no more than n
    First(u32),
    /// I32, I64: the integer in every lane (its low bits); Mask: whether it is not 0
    Splat(Ty, Value),
    /// Int: lane 0 of an I32 (by its sign) or I64; of a mask 0 or 1
    Lane0(Value),
    /// a function of one vector
    Unary(Unary, Value),
    /// a function of two vectors; masks too for `And`, `Or`, `Xor`, `AndNot`
    Binary(Binary, Value, Value),
    /// floats: a fused multiply-add, rounded once
    Fma(FmaOp, Value, Value, Value),
    /// Mask: a comparison of vectors of one type
    Compare(Compare, Value, Value),
    /// by a mask: the second where it holds, otherwise the third (vectors or masks)
    Select(Value, Value, Value),
    /// F32 or I32: in every lane, that lane of the first whose number the second, an I32, gives, modulo how many there are
    Pick(Value, Value),
    /// lanes converted to another type
    Convert(Convert, Ty, Value),
    /// every lane: the fold of all lanes of a vector of numbers
    Fold(FoldOp, Value),
    /// consecutive elements in memory, widened; lanes that the mask leaves out are 0 and not read
    Load {
        /// of the first lane
        at: Address,
        /// what lies there
        memory: DType,
        /// which lanes
        mask: Option<Value>,
    },
    /// one element in memory in every lane, widened
    LoadSplat {
        /// where
        at: Address,
        /// what lies there
        memory: DType,
    },
    /// for every four lanes, four consecutive elements of 32 bits in memory
    LoadQuads {
        /// of the first lane
        at: Address,
        /// elements from the first of four to that of the next four
        apart: u32,
        /// what lies there
        memory: DType,
    },
    /// elements in memory at `at + index·bytes`, widened; lanes that the mask leaves out are 0 and not read
    Gather {
        /// of index 0
        at: Address,
        /// I32 or I64, signed
        index: Value,
        /// what lies there
        memory: DType,
        /// which lanes
        mask: Option<Value>,
    },
    /// I32, I64: as it is where 0 ≤ it < the bound; otherwise 0 and, in lanes of the mask, the call fails, naming the value of
    /// the first such lane
    CheckLanes {
        /// the integers
        value: Value,
        /// what they must be below: an Int
        bound: Value,
        /// which lanes matter
        mask: Option<Value>,
        /// which check this is, for the message
        site: u32,
    },
    /// a function called for every lane, of vectors; the result, a vector, has this type
    Call(Ty, Routine, SmallVec<[Value; 3]>),
    /// a function called for the lanes of a mask; the others are those of a vector of the result's type. Meant for lanes
    /// that are rare: where there is none, nothing is called, and that is what should be fast
    CallWhere {
        /// which lanes
        mask: Value,
        /// the function
        routine: Routine,
        /// its arguments: vectors
        args: SmallVec<[Value; 3]>,
        /// the other lanes
        otherwise: Value,
    },
}

/// What changes memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// writes lanes to consecutive elements, narrowed: integers by their low bits, floats to nearest
    Store {
        /// of the first lane
        at: Address,
        /// what is written; a mask as bool
        value: Value,
        /// what lies there afterwards
        memory: DType,
        /// which lanes
        mask: Option<Value>,
        /// past the caches; the address is a multiple of the bytes of the vector
        streaming: bool,
    },
    /// writes every four lanes to four consecutive elements of 32 bits
    StoreQuads {
        /// of the first lane
        at: Address,
        /// elements from the first of four to that of the next four
        apart: u32,
        /// what is written
        value: Value,
        /// what lies there afterwards
        memory: DType,
        /// which lanes of every four: as the mask says of the first four
        mask: Option<Value>,
    },
    /// writes lanes to consecutive elements of bf16 that tiles will multiply: subnormals, which they take for 0, are 0. Machines that have tiles do it
    StoreFactor {
        /// of the first lane
        at: Address,
        /// F32: what is written
        value: Value,
        /// which lanes
        mask: Option<Value>,
    },
    /// writes lanes to `at + index·bytes`, narrowed
    Scatter {
        /// of index 0
        at: Address,
        /// I32 or I64, signed, all different where the mask holds
        index: Value,
        /// what is written
        value: Value,
        /// what lies there afterwards
        memory: DType,
        /// which lanes
        mask: Option<Value>,
    },
    /// writes lane 0, narrowed
    StoreLane {
        /// where
        at: Address,
        /// what is written
        value: Value,
        /// what lies there afterwards
        memory: DType,
    },
    /// asks for a line of memory
    Prefetch(Address),
    /// works on tiles
    Tile(TileOp),
}

/// How many tiles there are.
pub const TILES: u8 = 8;

/// Rows of a tile.
pub const TILE_ROWS: i64 = 16;

/// Bytes of a row of a tile.
pub const TILE_ROW_BYTES: i64 = 64;

/// What is done with tiles: squares of 16 rows of 64 bytes, known by number, that keep what they hold until the call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TileOp {
    /// all bits of a tile become 0
    Zero(u8),
    /// rows of memory, so many bytes apart, become a tile
    Load {
        /// the tile
        tile: u8,
        /// of the first row
        at: Address,
        /// bytes from row to row
        stride: i32,
    },
    /// a tile becomes rows of memory, so many bytes apart
    Store {
        /// the tile
        tile: u8,
        /// of the first row
        at: Address,
        /// bytes from row to row
        stride: i32,
    },
    /// Adds products of bf16 to a tile of f32: in row r and column c, of `a` in row r and of `b` in column c, which holds pairs of
    /// terms below each other. The first terms of all pairs are summed, then the second ones, each product joining its
    /// sum without rounding of its own; then both sums join. Subnormal numbers count as 0, and so do results that would be.
    Products {
        /// the sums
        sums: u8,
        /// rows of 32 terms
        a: u8,
        /// rows of 16 pairs of terms
        b: u8,
    },
}

/// The end of a loop's range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// a number
    Number(i64),
    /// an Int
    Value(Value),
}

/// A value that a loop hands from trip to trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Carried {
    /// what it is in a trip
    pub param: Value,
    /// what it is in the first trip
    pub init: Value,
    /// what it is in the next trip
    pub next: Value,
    /// what it is behind the loop: `init` if there was no trip
    pub result: Value,
}

/// `for var in (from..to).step_by(step)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Loop {
    /// Int: the counter
    pub var: Value,
    /// its first value
    pub from: Bound,
    /// it stays below
    pub to: Bound,
    /// its step, above 0
    pub step: i64,
    /// what goes from trip to trip
    pub carried: Vec<Carried>,
    /// what happens
    pub body: Vec<Node>,
}

impl Loop {
    /// The step of a loop that has one trip at most: what happens only if.
    pub const ONCE: i64 = i64::MAX;
}

/// A statement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// a value
    Let(Value, Op),
    /// a change of memory
    Do(Effect),
    /// a loop
    Loop(Box<Loop>),
}

/// A vector program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// numbers in a vector: 4, 8 or 16
    pub lanes: u32,
    /// the type of every value
    pub types: Vec<Ty>,
    /// how many pointers the table has
    pub buffers: u32,
    /// what happens
    pub body: Vec<Node>,
}

/// By what stands outside of loops: numbers and constants do, which nearly always tell programs apart.
impl Hash for Program {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.lanes, self.buffers, self.types.len(), self.body.len()).hash(state);
        for node in &self.body {
            match node {
                Node::Let(_, op) => op.hash(state),
                Node::Do(_) => {}
                Node::Loop(inner) => (inner.from, inner.to, inner.step, inner.body.len()).hash(state),
            }
        }
    }
}

impl Program {
    /// The type of a value.
    pub fn ty(&self, value: Value) -> Ty {
        self.types[value.index()]
    }
}

impl IntOp {
    /// Whether the function has a value for this second argument.
    pub fn is_defined(self, b: i64) -> bool {
        match self {
            IntOp::FloorDiv | IntOp::FloorMod => b > 0,
            IntOp::Shl | IntOp::Shr => (0..64).contains(&b),
            _ => true,
        }
    }

    /// The value, where it [is defined](IntOp::is_defined).
    pub fn apply(self, a: i64, b: i64) -> i64 {
        match self {
            IntOp::Add => a.wrapping_add(b),
            IntOp::Sub => a.wrapping_sub(b),
            IntOp::Mul => a.wrapping_mul(b),
            IntOp::FloorDiv => a.div_euclid(b),
            IntOp::FloorMod => a.rem_euclid(b),
            IntOp::Min => a.min(b),
            IntOp::Max => a.max(b),
            IntOp::And => a & b,
            IntOp::Or => a | b,
            IntOp::Xor => a ^ b,
            IntOp::Shl => a << b,
            IntOp::Shr => a >> b,
            IntOp::Lt => i64::from(a < b),
            IntOp::Le => i64::from(a <= b),
            IntOp::Eq => i64::from(a == b),
        }
    }
}

impl Address {
    /// The integers that it is made of.
    pub fn operands(&self) -> impl Iterator<Item = Value> {
        std::iter::once(self.base).chain(self.index.map(|(value, _)| value))
    }
}

impl Op {
    /// Whether it may be wrong to do it where nothing asks for it: it reads memory that may not be there, or checks.
    pub fn needs_permission(&self) -> bool {
        matches!(
            self,
            Op::ReadInt { .. }
                | Op::Load { .. }
                | Op::LoadSplat { .. }
                | Op::LoadQuads { .. }
                | Op::Gather { .. }
                | Op::CheckInt { .. }
                | Op::CheckLanes { .. }
        )
    }

    /// The values that it reads.
    pub fn operands(&self) -> SmallVec<[Value; 4]> {
        let mut operands = SmallVec::new();
        self.each_operand(|value| operands.push(value));
        operands
    }

    /// Shows the values that it reads.
    pub fn each_operand(&self, mut see: impl FnMut(Value)) {
        match self {
            Op::Buffer(_) | Op::Begin | Op::End | Op::Number(_) => {}
            Op::Const(..) | Op::Lanes(_) | Op::Numbers(..) | Op::First(_) => {}
            Op::Int(_, a, b) | Op::Binary(_, a, b) | Op::Compare(_, a, b) | Op::Pick(a, b) => {
                [*a, *b].into_iter().for_each(see);
            }
            Op::Choose(a, b, c) | Op::Fma(_, a, b, c) | Op::Select(a, b, c) => [*a, *b, *c].into_iter().for_each(see),
            Op::Splat(_, a) | Op::Lane0(a) | Op::Unary(_, a) | Op::Convert(_, _, a) | Op::Fold(_, a) => see(*a),
            Op::ReadInt { at, .. } | Op::LoadSplat { at, .. } | Op::LoadQuads { at, .. } => at.operands().for_each(see),
            Op::CheckInt { value, bound, .. } => [*value, *bound].into_iter().for_each(see),
            Op::Load { at, mask, .. } => at.operands().chain(*mask).for_each(see),
            Op::Gather { at, index, mask, .. } => at.operands().chain([*index]).chain(*mask).for_each(see),
            Op::CheckLanes { value, bound, mask, .. } => [*value, *bound].into_iter().chain(*mask).for_each(see),
            Op::Call(_, _, args) => args.iter().copied().for_each(see),
            Op::CallWhere { mask, args, otherwise, .. } => {
                args.iter().copied().chain([*mask, *otherwise]).for_each(see);
            }
        }
    }
}

impl Effect {
    /// The values that it reads.
    pub fn operands(&self) -> SmallVec<[Value; 4]> {
        match self {
            Effect::Store { at, value, mask, .. }
            | Effect::StoreQuads { at, value, mask, .. }
            | Effect::StoreFactor { at, value, mask } => at.operands().chain([*value]).chain(*mask).collect(),
            Effect::Scatter { at, index, value, mask, .. } => {
                at.operands().chain([*index, *value]).chain(*mask).collect()
            }
            Effect::StoreLane { at, value, .. } => at.operands().chain([*value]).collect(),
            Effect::Prefetch(at) => at.operands().collect(),
            Effect::Tile(TileOp::Load { at, .. } | TileOp::Store { at, .. }) => at.operands().collect(),
            Effect::Tile(TileOp::Zero(_) | TileOp::Products { .. }) => SmallVec::new(),
        }
    }
}
