//! What holds of every vector program.
//!
//! 1. Vectors have 4, 8 or 16 lanes; those of 64-bit numbers at most 8.
//! 2. A value has one definition, and its uses stand behind it, in the same loop or one inside.
//! 3. Operands have the types that the operation asks for, the result the one that follows.
//! 4. Bits of constants fit a lane; of masks they are 0 or 1.
//! 5. Addresses are integers, with scales 1, 2, 4 or 8.
//! 6. Memory is of an element type that registers can hold, in the type that the value has.
//! 7. Buffers are within the table.
//! 8. Divisors are above 0 and shifts within 0..64 where they are numbers.
//! 9. Steps of loops are above 0; what is carried keeps its type.
//! 10. Stores past the caches write all lanes.
//! 11. Tiles are some of those that there are; three different ones make products.

use fuseline::error::{Error, Result};
use fuseline::tensor::DType;

use super::{
    Address, Binary, Bound, Carried, Compare, Convert, Effect, FoldOp, IntOp, Loop, Node, Op, Program, TILES, TileOp,
    Ty, Unary, Value,
};

/// The first thing that is wrong with a program, which is our bug.
pub fn verify(program: &Program) -> Result<()> {
    if !matches!(program.lanes, 4 | 8 | 16) {
        return Err(Error::bug(format!("a vector program of {} lanes", program.lanes)));
    }
    let length = program.types.len();
    let mut verifier =
        Verifier { program, states: vec![State::Undefined; length], numbers: vec![None; length], open: Vec::new() };
    verifier.nodes(&program.body)
}

struct Verifier<'p> {
    program: &'p Program,
    /// of every value
    states: Vec<State>,
    /// what integers are known to be
    numbers: Vec<Option<i64>>,
    /// the values that may be used, in the order of their definitions
    open: Vec<Value>,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Undefined,
    /// it may be used
    Open,
    /// the loop that it stands in has ended
    Closed,
}

impl Verifier<'_> {
    fn nodes(&mut self, nodes: &[Node]) -> Result<()> {
        for node in nodes {
            match node {
                Node::Let(value, op) => self.definition(*value, op).map_err(|e| e.at(format!("{value} = {op}")))?,
                Node::Do(effect) => self.effect(effect).map_err(|e| e.at(effect.to_string()))?,
                Node::Loop(inner) => self.counted(inner).map_err(|e| e.at(format!("for {}", inner.var)))?,
            }
        }
        Ok(())
    }

    fn definition(&mut self, value: Value, op: &Op) -> Result<()> {
        for operand in op.operands() {
            self.ty(operand)?;
        }
        let ty = self.result(op)?;
        self.define(value, ty)?;
        if let Op::Number(n) = op {
            self.numbers[value.index()] = Some(*n);
        }
        Ok(())
    }

    fn define(&mut self, value: Value, ty: Ty) -> Result<()> {
        let declared = self.program.types.get(value.index());
        let declared = *declared.ok_or_else(|| Error::bug(format!("{value} has no type")))?;
        if declared != ty {
            return Err(Error::bug(format!("{value} is {declared}, but what defines it is {ty}")));
        }
        if ty.is_vector() && ty.lane_bytes() * self.program.lanes as usize > 64 {
            return Err(Error::bug(format!("{} lanes of {ty} are more than 64 bytes", self.program.lanes)));
        }
        if std::mem::replace(&mut self.states[value.index()], State::Open) != State::Undefined {
            return Err(Error::bug(format!("{value} is defined twice")));
        }
        self.open.push(value);
        Ok(())
    }

    /// The type of a value that is used here.
    fn ty(&self, value: Value) -> Result<Ty> {
        match self.states.get(value.index()) {
            Some(State::Open) => Ok(self.program.ty(value)),
            _ => Err(Error::bug(format!("{value} is not defined here"))),
        }
    }

    fn expect(&self, value: Value, ty: Ty) -> Result<()> {
        match self.ty(value)? {
            found if found == ty => Ok(()),
            found => Err(Error::bug(format!("{value} is {found}, not {ty}"))),
        }
    }

    fn expect_mask(&self, mask: Option<Value>) -> Result<()> {
        mask.map_or(Ok(()), |mask| self.expect(mask, Ty::Mask))
    }

    /// The type of a value, which must be so.
    fn demand(&self, value: Value, what: &str, holds: impl Fn(Ty) -> bool) -> Result<Ty> {
        let ty = self.ty(value)?;
        if holds(ty) { Ok(ty) } else { Err(Error::bug(format!("{value} is {ty}, not {what}"))) }
    }

    fn address(&self, at: &Address) -> Result<()> {
        for operand in at.operands() {
            self.expect(operand, Ty::Int)?;
        }
        match at.index {
            Some((_, scale)) if !matches!(scale, 1 | 2 | 4 | 8) => {
                Err(Error::bug(format!("an address with the scale {scale}")))
            }
            _ => Ok(()),
        }
    }

    /// The type of loaded elements.
    fn memory(&self, at: &Address, memory: DType) -> Result<Ty> {
        self.address(at)?;
        Ty::of(memory).ok_or_else(|| Error::bug(format!("registers hold no {memory}")))
    }

    fn result(&self, op: &Op) -> Result<Ty> {
        match op {
            Op::Buffer(place) if *place >= self.program.buffers => {
                Err(Error::bug(format!("the table has {} pointers", self.program.buffers)))
            }
            Op::Buffer(_) | Op::Begin | Op::End | Op::Number(_) => Ok(Ty::Int),
            Op::Int(op, a, b) => self.int(*op, *a, *b),
            Op::Choose(which, a, b) => {
                [which, a, b].into_iter().try_for_each(|value| self.expect(*value, Ty::Int))?;
                Ok(Ty::Int)
            }
            Op::ReadInt { at, memory } if memory.is_int() || *memory == DType::Bool => {
                self.memory(at, *memory).map(|_| Ty::Int)
            }
            Op::ReadInt { memory, .. } => Err(Error::bug(format!("{memory} is no integer"))),
            Op::CheckInt { value, bound, .. } => {
                self.expect(*value, Ty::Int)?;
                self.expect(*bound, Ty::Int).map(|()| Ty::Int)
            }
            Op::Const(ty, bits) => constant(*ty, *bits),
            Op::Lanes(ty @ (Ty::I32 | Ty::I64)) => Ok(*ty),
            Op::Lanes(ty) => Err(Error::bug(format!("the numbers of lanes as {ty}"))),
            Op::Numbers(ty @ (Ty::F32 | Ty::I32), lanes) if lanes.len() == self.program.lanes as usize => Ok(*ty),
            Op::Numbers(ty, lanes) => Err(Error::bug(format!("{} numbers as lanes of {ty}", lanes.len()))),
            Op::First(_) => Ok(Ty::Mask),
            Op::Splat(ty @ (Ty::I32 | Ty::I64 | Ty::Mask), value) => self.expect(*value, Ty::Int).map(|()| *ty),
            Op::Splat(ty, _) => Err(Error::bug(format!("an integer in every lane of {ty}"))),
            Op::Lane0(a) => {
                self.demand(*a, "integers or a mask", |ty| matches!(ty, Ty::I32 | Ty::I64 | Ty::Mask))?;
                Ok(Ty::Int)
            }
            op => self.vector(op),
        }
    }

    fn int(&self, op: IntOp, a: Value, b: Value) -> Result<Ty> {
        self.expect(a, Ty::Int)?;
        self.expect(b, Ty::Int)?;
        match self.numbers[b.index()] {
            Some(n) if !op.is_defined(n) => Err(Error::bug(format!("{} by {n}", op.name()))),
            _ => Ok(Ty::Int),
        }
    }

    /// Of the operations on vectors.
    fn vector(&self, op: &Op) -> Result<Ty> {
        match op {
            Op::Unary(Unary::RoundF16 | Unary::RoundBf16, a) => self.expect(*a, Ty::F32).map(|()| Ty::F32),
            Op::Unary(Unary::Swap, a) => self.expect(*a, Ty::I32).map(|()| Ty::I32),
            Op::Unary(_, a) => self.demand(*a, "floats", Ty::is_float),
            Op::Binary(op, a, b) => {
                let ty = self.demand(*a, "what the function is for", |ty| has_binary(*op, ty))?;
                self.expect(*b, ty).map(|()| ty)
            }
            Op::Fma(_, a, b, c) => {
                let ty = self.demand(*a, "floats", Ty::is_float)?;
                self.expect(*b, ty)?;
                self.expect(*c, ty).map(|()| ty)
            }
            Op::Compare(op, a, b) => {
                let ty = self.demand(*a, "what the comparison is for", |ty| has_compare(*op, ty))?;
                self.expect(*b, ty).map(|()| Ty::Mask)
            }
            Op::Select(mask, a, b) => {
                self.expect(*mask, Ty::Mask)?;
                let ty = self.demand(*a, "a vector or mask", |ty| ty != Ty::Int)?;
                self.expect(*b, ty).map(|()| ty)
            }
            Op::Pick(from, lanes) => {
                self.expect(*lanes, Ty::I32)?;
                self.demand(*from, "lanes of 32 bits", |ty| matches!(ty, Ty::F32 | Ty::I32))
            }
            Op::Convert(how, into, a) => {
                self.demand(*a, "what the conversion is for", |from| has_convert(*how, from, *into))?;
                Ok(*into)
            }
            Op::Fold(FoldOp::By(op), a) => {
                let has =
                    |ty: Ty| if ty == Ty::Mask { *op == Binary::Or } else { ty.is_vector() && has_binary(*op, ty) };
                self.demand(*a, "numbers that the function is for", has)
            }
            Op::Call(ty, _, args) if ty.is_vector() => {
                args.iter().try_for_each(|arg| self.demand(*arg, "a vector", Ty::is_vector).map(|_| ()))?;
                Ok(*ty)
            }
            Op::Call(ty, ..) => Err(Error::bug(format!("a routine that gives {ty}"))),
            Op::CallWhere { mask, args, otherwise, .. } => {
                self.expect(*mask, Ty::Mask)?;
                args.iter().try_for_each(|arg| self.demand(*arg, "a vector", Ty::is_vector).map(|_| ()))?;
                self.demand(*otherwise, "a vector", Ty::is_vector)
            }
            op => self.reading(op),
        }
    }

    /// Of the operations that read memory or check.
    fn reading(&self, op: &Op) -> Result<Ty> {
        match op {
            Op::Load { at, memory, mask } => {
                self.expect_mask(*mask)?;
                self.memory(at, *memory)
            }
            Op::LoadSplat { at, memory } => self.memory(at, *memory),
            Op::LoadQuads { at, memory, .. } => self.quads(at, *memory),
            Op::Gather { at, index, memory, mask } => {
                self.index(*index)?;
                self.expect_mask(*mask)?;
                self.memory(at, *memory)
            }
            Op::CheckLanes { value, bound, mask, .. } => {
                self.expect(*bound, Ty::Int)?;
                self.expect_mask(*mask)?;
                self.index(*value)
            }
            op => unreachable!("{op} is looked at before"),
        }
    }

    /// Fours of elements.
    fn quads(&self, at: &Address, memory: DType) -> Result<Ty> {
        match self.memory(at, memory)? {
            ty @ (Ty::F32 | Ty::I32) if memory.bits() == 32 => Ok(ty),
            _ => Err(Error::bug(format!("fours of elements of {memory}"))),
        }
    }

    fn index(&self, value: Value) -> Result<Ty> {
        self.demand(value, "integers", |ty| matches!(ty, Ty::I32 | Ty::I64))
    }

    fn effect(&self, effect: &Effect) -> Result<()> {
        let (at, value, memory) = match effect {
            Effect::Store { mask: Some(_), streaming: true, .. } => {
                return Err(Error::bug("a store past the caches with a mask"));
            }
            Effect::Store { at, value, memory, mask, .. } => {
                self.expect_mask(*mask)?;
                (at, value, memory)
            }
            Effect::StoreQuads { at, value, memory, mask, .. } => {
                self.expect_mask(*mask)?;
                let ty = self.quads(at, *memory)?;
                return self.expect(*value, ty);
            }
            Effect::StoreFactor { at, value, mask } => {
                self.expect_mask(*mask)?;
                (at, value, &DType::BF16)
            }
            Effect::Scatter { at, index, value, memory, mask } => {
                self.index(*index)?;
                self.expect_mask(*mask)?;
                (at, value, memory)
            }
            Effect::StoreLane { at, value, memory } => (at, value, memory),
            Effect::Prefetch(at) => return self.address(at),
            Effect::Tile(op) => return self.tile(op),
        };
        let ty = self.memory(at, *memory)?;
        self.expect(*value, ty)
    }

    fn tile(&self, op: &TileOp) -> Result<()> {
        let named = match op {
            TileOp::Zero(tile) | TileOp::Load { tile, .. } | TileOp::Store { tile, .. } => [*tile; 3],
            TileOp::Products { sums, a, b } if sums == a || sums == b || a == b => {
                return Err(Error::bug("a tile multiplied with itself or added to"));
            }
            TileOp::Products { sums, a, b } => [*sums, *a, *b],
        };
        if named.iter().any(|tile| *tile >= TILES) {
            return Err(Error::bug(format!("there are {TILES} tiles")));
        }
        match op {
            TileOp::Load { at, .. } | TileOp::Store { at, .. } => self.address(at),
            TileOp::Zero(_) | TileOp::Products { .. } => Ok(()),
        }
    }

    fn counted(&mut self, inner: &Loop) -> Result<()> {
        for bound in [inner.from, inner.to] {
            if let Bound::Value(value) = bound {
                self.expect(value, Ty::Int)?;
            }
        }
        if inner.step <= 0 {
            return Err(Error::bug(format!("a loop by {}", inner.step)));
        }
        let outside = self.open.len();
        let inits = inner.carried.iter().map(|carried| self.ty(carried.init)).collect::<Result<Vec<Ty>>>()?;
        self.define(inner.var, Ty::Int)?;
        for (carried, ty) in inner.carried.iter().zip(&inits) {
            self.define(carried.param, *ty)?;
        }
        self.nodes(&inner.body)?;
        for (Carried { next, .. }, ty) in inner.carried.iter().zip(&inits) {
            self.expect(*next, *ty)?;
        }
        for value in self.open.drain(outside..) {
            self.states[value.index()] = State::Closed;
        }
        inner.carried.iter().zip(&inits).try_for_each(|(carried, ty)| self.define(carried.result, *ty))
    }
}

fn constant(ty: Ty, bits: u64) -> Result<Ty> {
    let fits = match ty {
        Ty::Int => false,
        Ty::Mask => bits <= 1,
        Ty::F32 | Ty::I32 => bits <= u64::from(u32::MAX),
        Ty::F64 | Ty::I64 => true,
    };
    if fits { Ok(ty) } else { Err(Error::bug(format!("{bits:#x} in every lane of {ty}"))) }
}

/// Whether a function of two vectors is one of this type.
pub fn has_binary(op: Binary, ty: Ty) -> bool {
    let integers = matches!(ty, Ty::I32 | Ty::I64);
    match op {
        Binary::Add | Binary::Sub | Binary::Mul | Binary::Min | Binary::Max => ty.is_vector(),
        Binary::Div | Binary::Scale => ty.is_float(),
        Binary::MinUnsigned | Binary::MaxUnsigned => integers,
        Binary::MulHigh | Binary::MulEven => ty == Ty::I32,
        Binary::JoinLow | Binary::JoinHigh | Binary::MixLow | Binary::MixHigh => matches!(ty, Ty::F32 | Ty::I32),
        Binary::And | Binary::Or | Binary::Xor | Binary::AndNot => ty != Ty::Int,
        Binary::Shl | Binary::ShrSigned | Binary::ShrUnsigned => integers,
    }
}

/// Whether a comparison is one of this type.
pub fn has_compare(op: Compare, ty: Ty) -> bool {
    match op {
        Compare::Lt | Compare::Le | Compare::Eq | Compare::Ne => ty.is_vector(),
        Compare::LtUnsigned | Compare::LeUnsigned => matches!(ty, Ty::I32 | Ty::I64),
        Compare::Unordered => ty.is_float(),
    }
}

/// Whether a conversion is one between these types.
pub fn has_convert(how: Convert, from: Ty, into: Ty) -> bool {
    let integers = |ty: Ty| matches!(ty, Ty::I32 | Ty::I64);
    match how {
        Convert::Float => from.is_vector() && into.is_float(),
        Convert::FloatUnsigned => integers(from) && into.is_float(),
        Convert::Truncate => from.is_float() && integers(into),
        Convert::ExtendSigned | Convert::ExtendUnsigned => (from, into) == (Ty::I32, Ty::I64),
        Convert::Low => (from, into) == (Ty::I64, Ty::I32),
        Convert::Bits => {
            matches!((from, into), (Ty::F32, Ty::I32) | (Ty::I32, Ty::F32) | (Ty::F64, Ty::I64) | (Ty::I64, Ty::F64))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    /// What is wrong with a program of these statements, with eight lanes and one buffer.
    fn wrong(body: &str) -> String {
        let program = parse(&format!("vector lanes=8 buffers=1 {{ {body} }}"), &[]).unwrap();
        verify(&program).err().map(|error| error.message().to_owned()).unwrap_or_default()
    }

    #[test]
    fn every_invariant_has_its_error() {
        let prelude = "%0: int = buffer 0 %1: f32 = const 0x3f800000 %2: mask = first 3 %3: i32 = lanes";
        for (body, expected) in [
            ("", ""),
            ("%4: f32 = add %1, %5", "%5 is not defined here"),
            ("for %4 in 0..4 { %5: f32 = load f32 [%0] } store f32 [%0] = %5", "%5 is not defined here"),
            ("for %4 in 0..4 { } %4: int = begin", "%4 is defined twice"),
            ("%1: f32 = sqrt %1", "%1 is defined twice"),
            ("%4: f32 = add %1, %3", "%3 is i32, not f32"),
            ("%4: f32 = add %3, %3", "%4 is f32, but what defines it is i32"),
            ("%4: f32 = shl %1, %1", "%1 is f32, not what the function is for"),
            ("%4: mask = add %2, %2", "%2 is mask, not what the function is for"),
            ("%4: mask = fold.and %2", "%2 is mask, not numbers that the function is for"),
            ("%4: f32 = round_f16 %3", "%3 is i32, not f32"),
            ("%4: mask = compare.unordered %3, %3", "%3 is i32, not what the comparison is for"),
            ("%4: i32 = select %1, %3, %3", "%1 is f32, not mask"),
            ("%4: i32 = convert.low %3", "%3 is i32, not what the conversion is for"),
            ("%4: f32 = lanes", "the numbers of lanes as f32"),
            ("%4: f32 = numbers [0x0, 0x1]", "2 numbers as lanes of f32"),
            ("%4: f32 = pick %1, %1", "%1 is f32, not i32"),
            ("%4: mask = pick %2, %3", "%2 is mask, not lanes of 32 bits"),
            ("%4: f32 = swap %1", "%1 is f32, not i32"),
            ("%4: f32 = splat %0", "an integer in every lane of f32"),
            ("%4: int = lane0 %1", "%1 is f32, not integers or a mask"),
            ("%4: mask = const 0x2", "0x2 in every lane of mask"),
            ("%4: i32 = const 0x100000000", "0x100000000 in every lane of i32"),
            ("%4: int = buffer 1", "the table has 1 pointers"),
            ("%4: f32 = load f32 [%3]", "%3 is i32, not int"),
            ("%4: f32 = load f32 [%0 + %0*3]", "an address with the scale 3"),
            ("%4: f32 = load f8e5m2 [%0]", "registers hold no f8e5m2"),
            ("%4: f32 = load f32 [%0] if %3", "%3 is i32, not mask"),
            ("%4: f32 = gather f32 [%0] at %1", "%1 is f32, not integers"),
            ("%4: int = read_int f32 [%0]", "f32 is no integer"),
            ("%4: i32 = check_lanes %3 < %3 site=0", "%3 is i32, not int"),
            ("store i32 [%0] = %1", "%1 is f32, not i32"),
            ("store_streaming f32 [%0] = %1 if %2", "a store past the caches with a mask"),
            ("%4: int = number 0 %5: int = int.floor_div %0, %4", "floor_div by 0"),
            ("%4: int = number 64 %5: int = int.shl %0, %4", "shl by 64"),
            ("for %4 in 0..4 by 0 { }", "a loop by 0"),
            ("for %4 in 0..%1 { }", "%1 is f32, not int"),
            ("for %4 in 0..4 { carry %5: f32 = %1 next %3 -> %6 }", "%3 is i32, not f32"),
            ("for %4 in 0..4 { carry %5: f32 = %3 next %3 -> %6 }", "%5 is f32, but what defines it is i32"),
        ] {
            assert_eq!(wrong(&format!("{prelude} {body}")), expected, "{body}");
        }
        let program = parse("vector lanes=16 buffers=0 { %0: f64 = const 0x0 }", &[]).unwrap();
        assert_eq!(verify(&program).unwrap_err().message(), "16 lanes of f64 are more than 64 bytes");
        let program = parse("vector lanes=2 buffers=0 { }", &[]).unwrap();
        assert_eq!(verify(&program).unwrap_err().message(), "a vector program of 2 lanes");
    }
}
