//! Selection: what a program computes becomes instructions over registers without places.
//!
//! Values are selected in the order of the program, with two exceptions. A load whose uses all stand in its own block waits for the first of
//! them, where it may become an operand in memory, unless memory changes before. An integer that only the next trip needs waits
//! for the end of this one, so that it can be counted up in place.

mod arithmetic;
mod call;
mod check;
mod convert;
mod int;
mod lanes;
mod mask;
mod memory;
mod narrow;
mod quads;
mod range;
mod repeat;
mod tile;
mod vector;

use fuseline::error::{Error, Result};
use iced_x86::{Code, OpKind};
use rustc_hash::FxHashMap;

use super::machine::{Constant, Fold, Function, Index, Inst, Masking, Mem, Operand, Reg, Role, Size, What};
use super::order::Facts;
use super::sequence::Sequence;
use super::table::{Level, Row, rows};
use crate::vector::{Address, Binary, Effect, Node, Op, Program, Ty, Value};

/// Selects instructions for a program.
pub fn select(program: &Program, level: Level) -> Result<(Function, Sequence)> {
    let facts = Facts::new(program);
    let count = program.types.len();
    let mut function = Function::new(level, count);
    let [table, begin, end, fault] = std::array::from_fn(|_| function.reg(Size::Qword));
    let mut select = Select {
        program,
        facts,
        level,
        function,
        regs: vec![None; count],
        pending: vec![None; count],
        loads: Vec::new(),
        waiting: Vec::new(),
        shared: FxHashMap::default(),
        preamble: Vec::new(),
        table,
        begin,
        end,
        fault,
    };
    let arguments = [table, begin, end, fault].map(|reg| Operand::Reg(reg, Size::Qword, Role::Def));
    select.push(What::Entry, &arguments, Fold::Never);
    select.block(&program.body)?;
    Ok(select.finish())
}

struct Select<'p> {
    program: &'p Program,
    facts: Facts<'p>,
    level: Level,
    function: Function,
    /// registers of values that have been computed
    regs: Vec<Option<Reg>>,
    /// what waits for its first use: loads, and what becomes part of that use
    pending: Vec<Option<&'p Op>>,
    /// the same in order
    loads: Vec<Value>,
    /// for every open loop, what waits for the end of the trip
    waiting: Vec<Vec<(Value, &'p Op)>>,
    /// constants that instructions need beyond those of the program, each once
    shared: FxHashMap<(Ty, u64), Reg>,
    /// how these come into registers, in front of everything
    preamble: Vec<Inst>,
    table: Reg,
    begin: Reg,
    end: Reg,
    fault: Reg,
}

/// The walk.
impl<'p> Select<'p> {
    fn block(&mut self, nodes: &'p [Node]) -> Result<()> {
        for node in nodes {
            match node {
                Node::Let(value, op) => self.value(*value, op)?,
                Node::Do(effect) => {
                    if !matches!(effect, Effect::Prefetch(_)) {
                        self.settle_operands(effect)?;
                    }
                    self.effect(effect)?;
                }
                Node::Loop(inner) => self.repeat(inner)?,
            }
        }
        Ok(())
    }

    /// Loads that wait are done before memory changes.
    fn settle(&mut self) -> Result<()> {
        // what is computed here is no load that would wait anew
        for k in 0..self.loads.len() {
            let value = self.loads[k];
            if let Some(op) = self.pending[value.index()].take() {
                self.compute(value, op)?;
            }
        }
        self.loads.clear();
        Ok(())
    }

    /// What an effect itself reads comes first, so that it may be the last use of a register.
    fn settle_operands(&mut self, effect: &Effect) -> Result<()> {
        for operand in effect.operands() {
            if self.pending[operand.index()].is_some() {
                self.reg(operand)?;
            }
        }
        self.settle()
    }

    fn value(&mut self, value: Value, op: &'p Op) -> Result<()> {
        let checks = matches!(op, Op::CheckInt { .. } | Op::CheckLanes { .. });
        if self.facts[value].uses == 0 && !checks {
            return Ok(());
        }
        if matches!(op, Op::Load { .. } | Op::LoadSplat { .. }) && self.facts[value].local {
            self.pending[value.index()] = Some(op);
            self.loads.push(value);
            return Ok(());
        }
        if self.is_part_of_xor(value, op) || self.is_part_of_choice(value, op) {
            self.pending[value.index()] = Some(op);
            return Ok(());
        }
        if self.facts[value].waits
            && let Some(waiting) = self.waiting.last_mut()
        {
            waiting.push((value, op));
            return Ok(());
        }
        self.compute(value, op)
    }

    fn compute(&mut self, value: Value, op: &'p Op) -> Result<()> {
        let ty = self.program.ty(value);
        let reg = match op {
            Op::Number(_) => return Ok(()),
            Op::Buffer(place) => {
                let to = self.function.reg(Size::Qword);
                let from = Mem::at(self.table, 8 * *place as i32);
                self.push(What::Copy, &[def(to, Size::Qword), Operand::Mem(from)], Fold::Never);
                to
            }
            Op::Begin => self.begin,
            Op::End => self.end,
            Op::Int(op, a, b) => self.int(*op, *a, *b)?,
            Op::Choose(which, a, b) => self.choose(*which, *a, *b)?,
            Op::ReadInt { at, memory } => self.read_int(at, *memory)?,
            Op::CheckInt { value, bound, site } => self.check_int(*value, *bound, *site)?,
            Op::Const(ty, bits) => self.constant(*ty, *bits)?,
            Op::Lanes(ty) => self.lane_numbers(*ty)?,
            Op::Numbers(ty, lanes) => self.vector_constant(*ty, lanes.iter().map(|bits| u64::from(*bits)))?,
            Op::First(n) => self.first(*n)?,
            Op::Splat(ty, from) => self.splat(*ty, *from)?,
            Op::Lane0(from) => self.lane0(*from)?,
            Op::Unary(op, a) => self.unary(*op, ty, *a)?,
            Op::Binary(op, a, b) => self.binary(*op, ty, *a, *b)?,
            Op::Fma(op, a, b, c) => self.fma(*op, ty, [*a, *b, *c], None)?,
            Op::Compare(op, a, b) => self.compare(*op, *a, *b)?,
            Op::Select(mask, a, b) => self.choose_lanes(ty, *mask, *a, *b)?,
            Op::Pick(from, lanes) => self.pick(ty, *from, *lanes)?,
            Op::Fold(op, a) => self.fold(*op, ty, *a)?,
            Op::Load { at, memory, mask } => self.load(at, *memory, *mask)?,
            Op::LoadSplat { at, memory } => self.load_splat(at, *memory)?,
            Op::LoadQuads { at, apart, memory } => self.load_quads(at, *apart, *memory)?,
            Op::Call(ty, routine, args) => self.call(*ty, *routine, args)?,
            Op::CallWhere { mask, routine, args, otherwise } => {
                self.call_where(ty, *routine, *mask, args, *otherwise)?
            }
            Op::Convert(how, to, a) => self.convert(*how, *to, *a)?,
            Op::Gather { at, index, memory, mask } => self.gather(at, *index, *memory, *mask)?,
            Op::CheckLanes { value, bound, mask, site } => self.check_lanes(*value, *bound, *mask, *site)?,
        };
        self.regs[value.index()] = Some(reg);
        Ok(())
    }

    /// The function, and its order, in which constants that nothing reads from a register are left out.
    fn finish(mut self) -> (Function, Sequence) {
        // behind the arguments of the call
        let own = self.function.insts.len();
        self.function.insts.append(&mut self.preamble);
        let all = self.function.insts.len();
        let mut sequence = Sequence::new(&self.function.insts);
        let mut read = vec![false; self.function.sizes.len()];
        for named in sequence.all_named() {
            read[named.reg().index()] |= named.reads();
        }
        let mut places = vec![0u32; all + 1];
        for some in [0..1, own..all, 1..own] {
            for number in some {
                places[number] = sequence.order.len() as u32;
                let first = sequence.named(number as u32).first().filter(|named| named.defines());
                let is_kept = first.is_none_or(|named| {
                    let reg = named.reg().index();
                    self.function.constants[reg].is_none() || read[reg]
                });
                if is_kept {
                    sequence.order.push(number as u32);
                }
            }
        }
        for phi in self.function.loops.iter_mut().flat_map(|each| &mut each.phis) {
            if let Some((next, _)) = &mut phi.next {
                *next = places[*next as usize];
            }
            if phi.renewed != u32::MAX {
                phi.renewed = places[phi.renewed as usize];
            }
        }
        (self.function, sequence)
    }
}

/// Instructions and operands.
impl Select<'_> {
    fn push<const COUNT: usize>(&mut self, what: What, operands: &[Operand; COUNT], fold: Fold) {
        self.function.insts.push(Inst::new(what, operands, fold));
    }

    fn push_masked<const COUNT: usize>(
        &mut self,
        what: What,
        operands: &[Operand; COUNT],
        fold: Fold,
        mask: Option<Masking>,
    ) {
        self.function.insts.push(Inst { mask, ..Inst::new(what, operands, fold) });
    }

    fn code<const COUNT: usize>(&mut self, code: Code, operands: &[Operand; COUNT]) {
        self.push(What::Code(code), operands, Fold::Never);
    }

    /// The instruction of a row for a width.
    fn of_row(&self, row: Row, size: Size) -> Result<Code> {
        row.code(self.level, size)
            .ok_or_else(|| Error::bug(format!("no {size:?} form of {:?} in {:?}", row.evex, self.level)))
    }

    /// An operation whose operand at this place may be memory.
    fn op<const COUNT: usize>(&mut self, row: Row, size: Size, operands: &[Operand; COUNT], memory: u8) -> Result<()> {
        let code = self.of_row(row, size)?;
        let fold = self.fold_at(row, memory);
        self.push(What::Code(code), operands, fold);
        Ok(())
    }

    fn fold_at(&self, row: Row, at: u8) -> Fold {
        match self.level {
            Level::Avx512 if row.lane != 0 => Fold::Broadcast(at, row.lane),
            _ => Fold::At(at),
        }
    }

    /// How wide a register of this type is.
    fn size(&self, ty: Ty) -> Result<Size> {
        let bytes = match (ty, self.level) {
            (Ty::Int, _) => return Ok(Size::Qword),
            (Ty::Mask, Level::Avx512) => return Ok(Size::K),
            (Ty::Mask, Level::Avx2) => 4,
            _ => ty.lane_bytes(),
        };
        let size = Size::vector(bytes * self.program.lanes as usize);
        match (size, self.level) {
            (None, _) | (Some(Size::Z), Level::Avx2) => {
                Err(Error::unsupported(format!("{} lanes of {ty:?} in one register", self.program.lanes)))
            }
            (Some(size), _) => Ok(size),
        }
    }

    fn fresh(&mut self, ty: Ty) -> Result<(Reg, Size)> {
        let size = self.size(ty)?;
        Ok((self.function.reg(size), size))
    }

    /// The register of a value.
    fn reg(&mut self, value: Value) -> Result<Reg> {
        if let Some(reg) = self.regs[value.index()] {
            return Ok(reg);
        }
        if let Some(op) = self.pending[value.index()].take() {
            self.compute(value, op)?;
            return self.reg(value);
        }
        match self.facts[value].number {
            Some(number) => Ok(self.number(number)),
            None => Err(Error::bug(format!("value {} is used before it is computed", value.0))),
        }
    }

    /// A register that holds a number.
    fn number(&mut self, number: i64) -> Reg {
        let to = self.function.reg(Size::Qword);
        self.move_number(to, number);
        to
    }

    fn move_number(&mut self, to: Reg, number: i64) {
        let (code, size, kind) = if u32::try_from(number).is_ok() {
            (Code::Mov_r32_imm32, Size::Dword, OpKind::Immediate32)
        } else if i32::try_from(number).is_ok() {
            (Code::Mov_rm64_imm32, Size::Qword, OpKind::Immediate32to64)
        } else {
            (Code::Mov_r64_imm64, Size::Qword, OpKind::Immediate64)
        };
        self.code(code, &[def(to, size), Operand::Imm(kind, number)]);
    }

    /// A vector as the operand that may be memory; one element of `lane` bytes may stand for all lanes.
    fn source(&mut self, value: Value, lane: u8) -> Result<Operand> {
        let size = self.size(self.program.ty(value))?;
        if self.facts[value].uses == 1
            && let Some(op) = self.pending[value.index()]
        {
            let bytes = self.program.ty(value).lane_bytes();
            let folded = match op {
                Op::Load { at, memory, mask: None } if memory.bits() == 8 * bytes => Some((at, false)),
                Op::LoadSplat { at, memory }
                    if memory.bits() == 8 * bytes && self.level == Level::Avx512 && bytes == lane as usize =>
                {
                    Some((at, true))
                }
                _ => None,
            };
            if let Some((at, broadcast)) = folded {
                self.pending[value.index()] = None;
                let mem = self.address(at)?;
                return Ok(Operand::Mem(Mem { broadcast, ..mem }));
            }
        }
        Ok(Operand::Reg(self.reg(value)?, size, Role::Use))
    }

    /// Whether a value would be an operand in memory.
    fn is_memory(&self, value: Value) -> bool {
        let loaded = matches!(self.pending[value.index()], Some(Op::Load { .. } | Op::LoadSplat { .. }));
        loaded && self.facts[value].uses == 1
    }

    /// The operands of bits in one of two that wait to become part of another one.
    fn part_of_xor(&self, value: Value) -> Option<[Value; 2]> {
        match self.pending[value.index()] {
            Some(Op::Binary(Binary::Xor, a, b)) => Some([*a, *b]),
            _ => None,
        }
    }

    /// Whether bits in one of two become part of the instruction that reads them: AVX-512 has one for three operands.
    fn is_part_of_xor(&self, value: Value, op: &Op) -> bool {
        let Op::Binary(Binary::Xor, a, b) = op else { return false };
        let alone = [a, b].into_iter().all(|operand| self.part_of_xor(*operand).is_none());
        let vector = self.program.ty(value).is_vector();
        self.level == Level::Avx512 && vector && alone && self.facts[value].joins
    }

    /// Whether a multiply-add becomes part of the choice that reads it: by AVX-512 it leaves out lanes itself.
    fn is_part_of_choice(&self, value: Value, op: &Op) -> bool {
        self.level == Level::Avx512 && matches!(op, Op::Fma(..)) && self.facts[value].joins
    }

    fn address(&mut self, at: &Address) -> Result<Mem> {
        let base = self.reg(at.base)?;
        let index = match at.index {
            Some((value, scale)) => Some(Index { reg: self.reg(value)?, size: Size::Qword, scale }),
            None => None,
        };
        let mem = Mem { index, ..Mem::at(base, at.offset) };
        if at.offset <= FARTHEST {
            return Ok(mem);
        }
        let base = self.function.reg(Size::Qword);
        self.code(Code::Lea_r64_m, &[def(base, Size::Qword), Operand::Mem(mem)]);
        Ok(Mem::at(base, 0))
    }

    fn copy(&mut self, to: Reg, from: Reg) {
        let size = self.function.sizes[to.index()];
        self.push(What::Copy, &[def(to, size), used(from, size)], Fold::Never);
    }

    /// A new register with the same content, to be changed.
    fn copy_of(&mut self, from: Reg) -> Reg {
        let to = self.function.reg(self.function.sizes[from.index()]);
        self.copy(to, from);
        to
    }

    /// A constant in the pool that a register can hold: one lane of it where the machine spreads it by itself.
    fn uniform(&mut self, ty: Ty, bits: u64) -> Result<Constant> {
        let lane = &bits.to_le_bytes()[..ty.lane_bytes()];
        let (bytes, lane_bytes) = match self.level {
            Level::Avx512 => (lane.to_vec(), lane.len() as u8),
            Level::Avx2 => (lane.repeat(self.program.lanes as usize), 0),
        };
        Ok(Constant { offset: self.function.pool.place(&bytes), lane: lane_bytes, zero: lane.iter().all(|b| *b == 0) })
    }

    /// A register of this type that holds a constant.
    fn hold(&mut self, ty: Ty, constant: Constant) -> Result<Reg> {
        let (reg, _) = self.fresh(ty)?;
        self.function.constants[reg.index()] = Some(constant);
        let inst = self.function.materialise(reg, constant);
        self.function.insts.push(inst);
        Ok(reg)
    }

    /// Lanes given one by one, as a constant.
    fn vector_constant(&mut self, ty: Ty, lanes: impl Iterator<Item = u64>) -> Result<Reg> {
        let width = if ty == Ty::Mask { 4 } else { ty.lane_bytes() };
        let bytes: Vec<u8> = lanes.flat_map(|lane| lane.to_le_bytes()[..width].to_vec()).collect();
        let offset = self.function.pool.place(&bytes);
        self.hold(ty, Constant { offset, lane: 0, zero: bytes.iter().all(|b| *b == 0) })
    }

    /// A constant that an instruction needs, computed once in front of everything; of masks the number of first lanes.
    fn shared(&mut self, ty: Ty, bits: u64) -> Result<Reg> {
        if let Some(reg) = self.shared.get(&(ty, bits)) {
            return Ok(*reg);
        }
        let made = self.function.insts.len();
        let reg = match ty {
            Ty::Mask => self.first(bits as u32)?,
            _ => self.constant(ty, bits)?,
        };
        self.preamble.extend(self.function.insts.drain(made..));
        self.shared.insert((ty, bits), reg);
        Ok(reg)
    }

    fn move_row(ty: Ty, store: bool) -> Row {
        match (ty.lane_bytes() == 8, store) {
            (false, false) => rows::LOAD_32,
            (true, false) => rows::LOAD_64,
            (false, true) => rows::STORE_32,
            (true, true) => rows::STORE_64,
        }
    }
}

/// Behind this offset, that of the last lane might not fit.
const FARTHEST: i32 = i32::MAX - 256;

fn def(reg: Reg, size: Size) -> Operand {
    Operand::Reg(reg, size, Role::Def)
}

fn used(reg: Reg, size: Size) -> Operand {
    Operand::Reg(reg, size, Role::Use)
}

fn changed(reg: Reg, size: Size) -> Operand {
    Operand::Reg(reg, size, Role::Change)
}

fn imm8(number: u8) -> Operand {
    Operand::Imm(OpKind::Immediate8, i64::from(number))
}
