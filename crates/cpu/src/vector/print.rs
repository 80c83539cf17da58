//! Vector programs as text: one line a statement, values by number with their types.
//!
//! ```text
//! vector lanes=8 buffers=1 {
//!   %0: int = buffer 0
//!   %1: f32 = const 0x3f800000  # 1
//!   for %2 in 0..64 by 8 {
//!     carry %3: f32 = %1
//!     %4: f32 = load f32 [%0 + %2*4 + 16]
//!     %5: f32 = fma.add %3, %4, %1
//!     next %5 -> %6
//!   }
//!   store_lane f32 [%0] = %6
//! }
//! ```
//!
//! `parse` reads it back. What stands behind `#` is a remark.

use std::fmt::{Display, Formatter, Result};

use super::{Address, Bound, Effect, FoldOp, Loop, Node, Op, Program, TileOp, Ty, Value};

impl Display for Program {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(f, "vector lanes={} buffers={} {{", self.lanes, self.buffers)?;
        nodes(self, &self.body, 1, f)?;
        write!(f, "}}")
    }
}

fn nodes(program: &Program, body: &[Node], depth: usize, f: &mut Formatter<'_>) -> Result {
    let indent = depth * 2;
    for node in body {
        write!(f, "{:indent$}", "")?;
        match node {
            Node::Let(value, op) => writeln!(f, "{value}: {} = {op}{}", program.ty(*value), Remark(op))?,
            Node::Do(effect) => writeln!(f, "{effect}")?,
            Node::Loop(inner) => counted(program, inner, depth, f)?,
        }
    }
    Ok(())
}

fn counted(program: &Program, inner: &Loop, depth: usize, f: &mut Formatter<'_>) -> Result {
    let (indent, close) = (depth * 2 + 2, depth * 2);
    write!(f, "for {} in {}..{}", inner.var, inner.from, inner.to)?;
    match inner.step {
        1 => {}
        Loop::ONCE => write!(f, " once")?,
        step => write!(f, " by {step}")?,
    }
    writeln!(f, " {{")?;
    for carried in &inner.carried {
        writeln!(f, "{:indent$}carry {}: {} = {}", "", carried.param, program.ty(carried.param), carried.init)?;
    }
    nodes(program, &inner.body, depth + 1, f)?;
    for carried in &inner.carried {
        writeln!(f, "{:indent$}next {} -> {}", "", carried.next, carried.result)?;
    }
    writeln!(f, "{:close$}}}", "")
}

impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "%{}", self.0)
    }
}

impl Display for Ty {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(self.name())
    }
}

impl Display for Bound {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Bound::Number(n) => write!(f, "{n}"),
            Bound::Value(value) => write!(f, "{value}"),
        }
    }
}

impl Display for Address {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "[{}", self.base)?;
        if let Some((index, scale)) = self.index {
            write!(f, " + {index}*{scale}")?;
        }
        match self.offset {
            0 => {}
            offset if offset < 0 => write!(f, " - {}", offset.unsigned_abs())?,
            offset => write!(f, " + {offset}")?,
        }
        write!(f, "]")
    }
}

impl Display for Op {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Op::Buffer(place) => write!(f, "buffer {place}"),
            Op::Begin => write!(f, "begin"),
            Op::End => write!(f, "end"),
            Op::Number(n) => write!(f, "number {n}"),
            Op::Int(op, a, b) => write!(f, "int.{} {a}, {b}", op.name()),
            Op::Choose(which, a, b) => write!(f, "choose {which}, {a}, {b}"),
            Op::ReadInt { at, memory } => write!(f, "read_int {memory} {at}"),
            Op::CheckInt { value, bound, site } => write!(f, "check_int {value} < {bound} site={site}"),
            Op::Const(_, bits) => write!(f, "const {bits:#x}"),
            Op::Lanes(_) => write!(f, "lanes"),
            Op::Numbers(_, lanes) => {
                write!(f, "numbers [")?;
                lanes
                    .iter()
                    .enumerate()
                    .try_for_each(|(k, bits)| write!(f, "{}{bits:#x}", if k == 0 { "" } else { ", " }))?;
                write!(f, "]")
            }
            Op::First(n) => write!(f, "first {n}"),
            Op::Splat(_, value) => write!(f, "splat {value}"),
            Op::Lane0(a) => write!(f, "lane0 {a}"),
            Op::Unary(op, a) => write!(f, "{} {a}", op.name()),
            Op::Binary(op, a, b) => write!(f, "{} {a}, {b}", op.name()),
            Op::Fma(op, a, b, c) => write!(f, "fma.{} {a}, {b}, {c}", op.name()),
            Op::Compare(op, a, b) => write!(f, "compare.{} {a}, {b}", op.name()),
            Op::Select(mask, a, b) => write!(f, "select {mask}, {a}, {b}"),
            Op::Pick(from, lanes) => write!(f, "pick {from}, {lanes}"),
            Op::Convert(how, _, a) => write!(f, "convert.{} {a}", how.name()),
            Op::Fold(FoldOp::By(op), a) => write!(f, "fold.{} {a}", op.name()),
            Op::Load { at, memory, mask } => write!(f, "load {memory} {at}{}", If(mask)),
            Op::LoadSplat { at, memory } => write!(f, "load_splat {memory} {at}"),
            Op::LoadQuads { at, apart, memory } => write!(f, "load_quads {memory} {at} by {apart}"),
            Op::Gather { at, index, memory, mask } => write!(f, "gather {memory} {at} at {index}{}", If(mask)),
            Op::CheckLanes { value, bound, mask, site } => {
                write!(f, "check_lanes {value} < {bound} site={site}{}", If(mask))
            }
            Op::Call(_, routine, args) => write!(f, "call {}({})", routine.name, List(args)),
            Op::CallWhere { mask, routine, args, otherwise } => {
                write!(f, "call {}({}) else {otherwise}{}", routine.name, List(args), If(&Some(*mask)))
            }
        }
    }
}

impl Display for Effect {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Effect::Store { at, value, memory, mask, streaming } => {
                let name = if *streaming { "store_streaming" } else { "store" };
                write!(f, "{name} {memory} {at} = {value}{}", If(mask))
            }
            Effect::StoreQuads { at, apart, value, memory, mask } => {
                write!(f, "store_quads {memory} {at} by {apart} = {value}{}", If(mask))
            }
            Effect::StoreFactor { at, value, mask } => write!(f, "store_factor bf16 {at} = {value}{}", If(mask)),
            Effect::Scatter { at, index, value, memory, mask } => {
                write!(f, "scatter {memory} {at} at {index} = {value}{}", If(mask))
            }
            Effect::StoreLane { at, value, memory } => write!(f, "store_lane {memory} {at} = {value}"),
            Effect::Prefetch(at) => write!(f, "prefetch {at}"),
            Effect::Tile(TileOp::Zero(tile)) => write!(f, "tile_zero {tile}"),
            Effect::Tile(TileOp::Load { tile, at, stride }) => write!(f, "tile_load {tile} = {at} by {stride}"),
            Effect::Tile(TileOp::Store { tile, at, stride }) => write!(f, "tile_store {at} by {stride} = {tile}"),
            Effect::Tile(TileOp::Products { sums, a, b }) => write!(f, "tile_products {sums} += {a} * {b}"),
        }
    }
}

/// Values with commas between them.
struct List<'v>(&'v [Value]);

impl Display for List<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for (k, value) in self.0.iter().enumerate() {
            write!(f, "{}{value}", if k == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// Which lanes, where not all.
struct If<'v>(&'v Option<Value>);

impl Display for If<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        self.0.map_or(Ok(()), |mask| write!(f, " if {mask}"))
    }
}

/// The number that the bits of a constant are.
struct Remark<'o>(&'o Op);

impl Display for Remark<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self.0 {
            Op::Const(Ty::F32, bits) => write!(f, "  # {:?}", f32::from_bits(*bits as u32)),
            Op::Const(Ty::F64, bits) => write!(f, "  # {:?}", f64::from_bits(*bits)),
            Op::Const(Ty::I32, bits) => write!(f, "  # {}", *bits as i32),
            Op::Const(Ty::I64, bits) => write!(f, "  # {}", *bits as i64),
            _ => Ok(()),
        }
    }
}
