//! Vector programs from their text.

use std::sync::Arc;

use fuseline::cursor::Cursor;
use fuseline::error::Result;
use fuseline::tensor::DType;

use super::{
    Address, Binary, Bound, Carried, Compare, Convert, Effect, FmaOp, FoldOp, IntOp, Loop, Node, Op, Program, Routine,
    TileOp, Ty, Unary, Value,
};

/// Reads the text of a program; those that it calls are found among `routines`.
pub fn parse(text: &str, routines: &[Routine]) -> Result<Program> {
    let mut parser = Parser { cursor: Cursor::new(text), routines, types: Vec::new() };
    let cursor = &mut parser.cursor;
    cursor.expect_word("vector")?;
    cursor.key("lanes")?;
    let lanes = cursor.integer("a number of lanes")?;
    cursor.key("buffers")?;
    let buffers = cursor.integer("a number of buffers")?;
    cursor.expect("{")?;
    let body = parser.nodes()?;
    parser.cursor.expect("}")?;
    parser.cursor.end()?;
    Ok(Program { lanes, types: parser.types, buffers, body })
}

/// The most values that a text may have: what it says must not set memory aside.
const MOST_VALUES: u32 = 1 << 20;

struct Parser<'t> {
    cursor: Cursor<'t>,
    routines: &'t [Routine],
    types: Vec<Ty>,
}

impl Parser<'_> {
    fn value(&mut self) -> Result<Value> {
        self.cursor.expect("%")?;
        let number = self.cursor.suffix("the number of a value")?;
        if number >= MOST_VALUES {
            return Err(self.cursor.error(format!("%{number} is more values than a program has")));
        }
        Ok(Value(number))
    }

    fn define(&mut self, value: Value, ty: Ty) {
        let length = self.types.len().max(value.index() + 1);
        self.types.resize(length, Ty::Int);
        self.types[value.index()] = ty;
    }

    fn values<const N: usize>(&mut self) -> Result<[Value; N]> {
        let mut values = [Value(0); N];
        for (k, value) in values.iter_mut().enumerate() {
            if k > 0 {
                self.cursor.expect(",")?;
            }
            *value = self.value()?;
        }
        Ok(values)
    }

    fn ty(&mut self) -> Result<Ty> {
        let start = self.cursor;
        let name = self.cursor.word("a type")?;
        Ty::from_name(name).ok_or_else(|| start.error(format!("{name} is not a type")))
    }

    fn dtype(&mut self) -> Result<DType> {
        let start = self.cursor;
        let name = self.cursor.word("an element type")?;
        DType::from_name(name).ok_or_else(|| start.error(format!("{name} is not an element type")))
    }

    /// A number of 64 bits, decimal with sign or hexadecimal without.
    fn number(&mut self) -> Result<i64> {
        let start = self.cursor;
        let text = self.cursor.number()?;
        let number = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok().map(|bits| bits as i64),
            None => text.parse().ok(),
        };
        number.ok_or_else(|| start.error(format!("{text} is not a number of 64 bits")))
    }

    fn nodes(&mut self) -> Result<Vec<Node>> {
        let mut nodes = Vec::new();
        while !self.cursor.sees("}") && self.cursor.peek_word() != Some("next") {
            nodes.push(self.node()?);
        }
        Ok(nodes)
    }

    fn node(&mut self) -> Result<Node> {
        if self.cursor.eat_word("for") {
            self.cursor.descend()?;
            let inner = self.counted()?;
            self.cursor.ascend();
            return Ok(Node::Loop(Box::new(inner)));
        }
        if !self.cursor.sees("%") {
            return Ok(Node::Do(self.effect()?));
        }
        let (value, ty) = self.typed()?;
        self.cursor.expect("=")?;
        Ok(Node::Let(value, self.op(ty)?))
    }

    fn typed(&mut self) -> Result<(Value, Ty)> {
        let value = self.value()?;
        self.cursor.expect(":")?;
        let ty = self.ty()?;
        self.define(value, ty);
        Ok((value, ty))
    }

    fn bound(&mut self) -> Result<Bound> {
        if self.cursor.sees("%") {
            return Ok(Bound::Value(self.value()?));
        }
        let negative = self.cursor.eat("-");
        let magnitude: i128 = self.cursor.integer("a bound")?;
        let number = i64::try_from(if negative { -magnitude } else { magnitude });
        number.map(Bound::Number).map_err(|_| self.cursor.error("the bound is not a number of 64 bits"))
    }

    fn counted(&mut self) -> Result<Loop> {
        let var = self.value()?;
        self.define(var, Ty::Int);
        self.cursor.expect_word("in")?;
        let from = self.bound()?;
        self.cursor.expect("..")?;
        let to = self.bound()?;
        let step = match self.cursor.eat_word("once") {
            true => Loop::ONCE,
            false if self.cursor.eat_word("by") => self.number()?,
            false => 1,
        };
        self.cursor.expect("{")?;
        let mut carried = Vec::new();
        while self.cursor.eat_word("carry") {
            let (param, _) = self.typed()?;
            self.cursor.expect("=")?;
            let init = self.value()?;
            carried.push(Carried { param, init, next: init, result: param });
        }
        let body = self.nodes()?;
        for each in &mut carried {
            self.cursor.expect_word("next")?;
            each.next = self.value()?;
            self.cursor.expect("->")?;
            each.result = self.value()?;
            self.define(each.result, self.types[each.param.index()]);
        }
        self.cursor.expect("}")?;
        Ok(Loop { var, from, to, step, carried, body })
    }

    fn address(&mut self) -> Result<Address> {
        self.cursor.expect("[")?;
        let mut address = Address { base: self.value()?, index: None, offset: 0 };
        loop {
            let start = self.cursor;
            if self.cursor.eat("]") {
                return Ok(address);
            }
            let negative = self.cursor.eat("-");
            if !negative {
                self.cursor.expect("+")?;
            }
            if !negative && self.cursor.sees("%") {
                let index = self.value()?;
                self.cursor.expect("*")?;
                address.index = Some((index, self.cursor.integer("a scale")?));
            } else {
                let magnitude: i64 = self.cursor.integer("an offset")?;
                let offset = i32::try_from(if negative { -magnitude } else { magnitude });
                address.offset = offset.map_err(|_| start.error("the offset is not a number of 32 bits"))?;
            }
        }
    }

    /// An element type and an address.
    fn place(&mut self) -> Result<(DType, Address)> {
        Ok((self.dtype()?, self.address()?))
    }

    fn mask(&mut self) -> Result<Option<Value>> {
        if self.cursor.eat_word("if") { self.value().map(Some) } else { Ok(None) }
    }

    /// `value < bound site=n`
    fn check(&mut self) -> Result<(Value, Value, u32)> {
        let value = self.value()?;
        self.cursor.expect("<")?;
        let bound = self.value()?;
        self.cursor.key("site")?;
        Ok((value, bound, self.cursor.integer("the number of a check")?))
    }

    fn op(&mut self, ty: Ty) -> Result<Op> {
        let start = self.cursor;
        let name = self.cursor.word("an operation")?;
        Ok(match name {
            "buffer" => Op::Buffer(self.cursor.integer("the place of a pointer")?),
            "begin" => Op::Begin,
            "end" => Op::End,
            "number" => Op::Number(self.number()?),
            "int" => {
                let op = self.cursor.variant("a function of integers", IntOp::from_name)?;
                let [a, b] = self.values()?;
                Op::Int(op, a, b)
            }
            "choose" => {
                let [which, a, b] = self.values()?;
                Op::Choose(which, a, b)
            }
            "read_int" => {
                let (memory, at) = self.place()?;
                Op::ReadInt { at, memory }
            }
            "check_int" => {
                let (value, bound, site) = self.check()?;
                Op::CheckInt { value, bound, site }
            }
            "const" => Op::Const(ty, self.number()? as u64),
            "lanes" => Op::Lanes(ty),
            "numbers" => Op::Numbers(ty, self.numbers()?),
            "first" => Op::First(self.cursor.integer("a number of lanes")?),
            "splat" => Op::Splat(ty, self.value()?),
            "lane0" => Op::Lane0(self.value()?),
            name => return self.vector_op(name, ty, start),
        })
    }

    /// The bits of every lane.
    fn numbers(&mut self) -> Result<Arc<[u32]>> {
        let mut lanes = Vec::new();
        self.cursor.expect("[")?;
        while !self.cursor.eat("]") {
            if !lanes.is_empty() {
                self.cursor.expect(",")?;
            }
            let start = self.cursor;
            let bits = u32::try_from(self.number()?);
            lanes.push(bits.map_err(|_| start.error("the bits of a lane of 32 bits are expected"))?);
        }
        Ok(lanes.into())
    }

    fn vector_op(&mut self, name: &str, ty: Ty, start: Cursor<'_>) -> Result<Op> {
        Ok(match name {
            "fma" => {
                let op = self.cursor.variant("a fused multiply-add", FmaOp::from_name)?;
                let [a, b, c] = self.values()?;
                Op::Fma(op, a, b, c)
            }
            "compare" => {
                let op = self.cursor.variant("a comparison", Compare::from_name)?;
                let [a, b] = self.values()?;
                Op::Compare(op, a, b)
            }
            "select" => {
                let [mask, a, b] = self.values()?;
                Op::Select(mask, a, b)
            }
            "pick" => {
                let [from, lanes] = self.values()?;
                Op::Pick(from, lanes)
            }
            "convert" => {
                let how = self.cursor.variant("a conversion", Convert::from_name)?;
                Op::Convert(how, ty, self.value()?)
            }
            "fold" => {
                let op = self.cursor.variant("a function of two vectors", Binary::from_name)?;
                Op::Fold(FoldOp::By(op), self.value()?)
            }
            "load" => {
                let (memory, at) = self.place()?;
                Op::Load { at, memory, mask: self.mask()? }
            }
            "load_splat" => {
                let (memory, at) = self.place()?;
                Op::LoadSplat { at, memory }
            }
            "load_quads" => {
                let (memory, at) = self.place()?;
                Op::LoadQuads { at, apart: self.apart()?, memory }
            }
            "gather" => {
                let (memory, at) = self.place()?;
                self.cursor.expect_word("at")?;
                let index = self.value()?;
                Op::Gather { at, index, memory, mask: self.mask()? }
            }
            "check_lanes" => {
                let (value, bound, site) = self.check()?;
                Op::CheckLanes { value, bound, mask: self.mask()?, site }
            }
            "call" => self.call(ty)?,
            name => {
                if let Some(op) = Unary::from_name(name) {
                    return Ok(Op::Unary(op, self.value()?));
                }
                let op = Binary::from_name(name);
                let op = op.ok_or_else(|| start.error(format!("{name} is not an operation")))?;
                let [a, b] = self.values()?;
                Op::Binary(op, a, b)
            }
        })
    }

    fn call(&mut self, ty: Ty) -> Result<Op> {
        let start = self.cursor;
        let name = self.cursor.word("the name of a routine")?;
        let routine = self.routines.iter().find(|routine| routine.name == name);
        let routine = *routine.ok_or_else(|| start.error(format!("there is no routine {name}")))?;
        self.cursor.expect("(")?;
        let mut args = smallvec::SmallVec::new();
        while !self.cursor.eat(")") {
            if !args.is_empty() {
                self.cursor.expect(",")?;
            }
            args.push(self.value()?);
        }
        if !self.cursor.eat_word("else") {
            return Ok(Op::Call(ty, routine, args));
        }
        let otherwise = self.value()?;
        self.cursor.expect_word("if")?;
        Ok(Op::CallWhere { mask: self.value()?, routine, args, otherwise })
    }

    fn tile(&mut self) -> Result<u8> {
        self.cursor.integer("the number of a tile")
    }

    /// The rows of a tile in memory: the first, and bytes from one to the next.
    fn rows(&mut self) -> Result<(Address, i32)> {
        let at = self.address()?;
        self.cursor.expect_word("by")?;
        Ok((at, self.cursor.integer("bytes from row to row")?))
    }

    /// Elements from the first of four to that of the next four.
    fn apart(&mut self) -> Result<u32> {
        self.cursor.expect_word("by")?;
        self.cursor.integer("elements from four to four")
    }

    fn effect(&mut self) -> Result<Effect> {
        let start = self.cursor;
        let name = self.cursor.word("a statement")?;
        Ok(match name {
            "store" | "store_streaming" => {
                let (memory, at) = self.place()?;
                self.cursor.expect("=")?;
                let value = self.value()?;
                Effect::Store { at, value, memory, mask: self.mask()?, streaming: name == "store_streaming" }
            }
            "store_quads" => {
                let (memory, at) = self.place()?;
                let apart = self.apart()?;
                self.cursor.expect("=")?;
                Effect::StoreQuads { at, apart, value: self.value()?, memory, mask: self.mask()? }
            }
            "store_factor" => {
                let (_, at) = self.place()?;
                self.cursor.expect("=")?;
                Effect::StoreFactor { at, value: self.value()?, mask: self.mask()? }
            }
            "scatter" => {
                let (memory, at) = self.place()?;
                self.cursor.expect_word("at")?;
                let index = self.value()?;
                self.cursor.expect("=")?;
                let value = self.value()?;
                Effect::Scatter { at, index, value, memory, mask: self.mask()? }
            }
            "store_lane" => {
                let (memory, at) = self.place()?;
                self.cursor.expect("=")?;
                Effect::StoreLane { at, value: self.value()?, memory }
            }
            "prefetch" => Effect::Prefetch(self.address()?),
            "tile_zero" => Effect::Tile(TileOp::Zero(self.tile()?)),
            "tile_load" => {
                let tile = self.tile()?;
                self.cursor.expect("=")?;
                let (at, stride) = self.rows()?;
                Effect::Tile(TileOp::Load { tile, at, stride })
            }
            "tile_store" => {
                let (at, stride) = self.rows()?;
                self.cursor.expect("=")?;
                Effect::Tile(TileOp::Store { tile: self.tile()?, at, stride })
            }
            "tile_products" => {
                let sums = self.tile()?;
                self.cursor.expect("+=")?;
                let a = self.tile()?;
                self.cursor.expect("*")?;
                Effect::Tile(TileOp::Products { sums, a, b: self.tile()? })
            }
            name => return Err(start.error(format!("{name} is not a statement"))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::verify;
    use super::*;

    /// Every statement once.
    const ALL: &str = "\
vector lanes=8 buffers=3 {
  %0: int = buffer 2
  %1: int = begin
  %2: int = end
  %3: int = number -7
  %4: int = int.floor_mod %1, %2
  %5: int = choose %4, %1, %2
  %6: int = read_int i8 [%0 - 3]
  %7: int = check_int %6 < %5 site=4
  %8: f32 = const 0x3f800000  # 1.0
  %9: i64 = lanes
  %10: mask = first 3
  %11: i32 = splat %7
  %12: int = lane0 %11
  %13: f32 = round_bf16 %8
  %14: f32 = scale %8, %13
  %15: f32 = fma.neg_sub %8, %13, %14
  %16: mask = compare.unordered %8, %15
  %17: f32 = select %16, %8, %15
  %18: i32 = convert.truncate %17
  %19: i32 = fold.max_unsigned %18
  for %20 in %1..%2 {
    for %21 in -4..100 by 8 {
      carry %22: f32 = %17
      carry %23: mask = %16
      %24: f32 = load bf16 [%0 + %21*2 + 16] if %10
      %25: f32 = load_splat f16 [%0]
      %26: i64 = check_lanes %9 < %12 site=0 if %23
      %27: f32 = gather f32 [%0] at %26 if %23
      %28: f32 = call twice(%27, %24)
      %29: f32 = call twice(%28) else %27 if %23
      %30: f32 = load_quads f32 [%0] by 17
      next %29 -> %31
      next %10 -> %32
    }
    for %33 in 0..%12 once {
      prefetch [%0]
    }
    store f16 [%0 + %20*8] = %31 if %32
    store_streaming f32 [%0] = %25
    store_quads f32 [%0 + 8] by 5 = %31 if %32
    store_factor bf16 [%0 + 64] = %25 if %32
    scatter bf16 [%0] at %19 = %28
    store_lane f32 [%0] = %28
    prefetch [%0 + 256]
    tile_zero 1
    tile_load 4 = [%0 + %20*8] by 128
    tile_products 1 += 4 * 5
    tile_store [%0] by 64 = 1
  }
}";

    #[test]
    fn texts_are_read_as_printed() {
        let routines = [Routine { call: |args| args[0], name: "twice" }];
        let program = parse(ALL, &routines).unwrap();
        assert_eq!(program.to_string(), ALL);
        assert_eq!((program.lanes, program.buffers, program.types.len()), (8, 3, 34));
        let error = verify(&program).unwrap_err().to_string();
        assert!(error.contains("%25 is not defined here"), "{error}");
    }

    #[test]
    fn errors_say_where() {
        for (text, expected) in [
            ("vector lanes=8 { }", "line 1, column 16: expected 'buffers=', found '{'"),
            ("vector lanes=8 buffers=0 {\n %0: f32 = twice %1 }", "line 2, column 12: twice is not an operation"),
            ("vector lanes=8 buffers=0 {\n %0: f33 = begin }", "line 2, column 6: f33 is not a type"),
            ("vector lanes=8 buffers=0 {\n %0: f32 = call f(%1) }", "line 2, column 17: there is no routine f"),
            ("vector lanes=8 buffers=0 {\n jump }", "line 2, column 2: jump is not a statement"),
            ("vector lanes=8 buffers=0 { %99999999: int = end }", "%99999999 is more values than a program has"),
            ("vector lanes=8 buffers=0 { prefetch [%0 + 9999999999] }", "the offset is not a number of 32 bits"),
        ] {
            let error = parse(text, &[]).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
