//! Instructions over registers that have no place yet.
//!
//! A [`Function`] is a straight line of instructions with labels. Its registers are as many as are wanted; `allocate` gives
//! them places. Loops are marked, because what is live in them follows from their extent.

use std::cell::Cell;

use iced_x86::{Code, OpKind};
use rustc_hash::FxHashMap;

use super::table::{Level, Row, rows};
use crate::vector::Routine;

/// A register without a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reg(pub u32);

impl Reg {
    /// Its place among the registers of the function.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Registers of one class share places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// rax, rcx, …
    Int,
    /// xmm, ymm, zmm
    Vector,
    /// k1 … k7
    Mask,
}

/// How wide a register is, or what of it an instruction names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Size {
    /// 8 bits of an integer
    Byte,
    /// 16 bits of an integer
    Word,
    /// 32 bits of an integer
    Dword,
    /// 64 bits of an integer
    Qword,
    /// 16 bytes
    X,
    /// 32 bytes
    Y,
    /// 64 bytes
    Z,
    /// a mask
    K,
}

impl Size {
    /// The vector of so many bytes.
    pub fn vector(bytes: usize) -> Option<Size> {
        match bytes {
            ..=16 => Some(Size::X),
            32 => Some(Size::Y),
            64 => Some(Size::Z),
            _ => None,
        }
    }

    /// Bytes in memory.
    pub fn bytes(self) -> usize {
        match self {
            Size::Byte => 1,
            Size::Word => 2,
            Size::Dword => 4,
            Size::Qword | Size::K => 8,
            Size::X => 16,
            Size::Y => 32,
            Size::Z => 64,
        }
    }

    /// The class of registers that have this size.
    pub fn class(self) -> Class {
        match self {
            Size::X | Size::Y | Size::Z => Class::Vector,
            Size::K => Class::Mask,
            _ => Class::Int,
        }
    }
}

/// What an instruction does with a register: 1 if it reads it, 2 if it writes it, 4 more if it may read it after it has written something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// reads it before it writes anything
    Use = 1,
    /// reads it, perhaps after it has written something
    Late = 5,
    /// writes it
    Def = 2,
    /// reads and writes it
    Change = 7,
    /// names it again; what it held does not matter
    Again = 0,
}

/// A register that an instruction names, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named(u32);

impl Named {
    fn new(reg: Reg, role: Role) -> Named {
        Named(reg.0 << 3 | role as u32)
    }

    /// The register.
    pub fn reg(self) -> Reg {
        Reg(self.0 >> 3)
    }

    /// Another register, named for the same.
    pub fn renamed(self, reg: Reg) -> Named {
        Named(reg.0 << 3 | self.0 & 7)
    }

    /// Whether it is written and nothing else.
    pub fn defines(self) -> bool {
        self.0 & 7 == Role::Def as u32
    }

    /// Whether it is read.
    pub fn reads(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether it is written.
    pub fn writes(self) -> bool {
        self.0 & 2 != 0
    }

    /// How many places behind the instruction's own it is read.
    pub fn delay(self) -> u32 {
        self.0 >> 2 & 1
    }
}

/// A place on the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(pub u32);

/// What an address begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// a pointer
    Reg(Reg),
    /// the stack
    Slot(Slot),
    /// the constants
    Pool,
}

/// What is added to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index {
    /// an integer; in gathers and scatters a vector
    pub reg: Reg,
    /// how much of it
    pub size: Size,
    /// 1, 2, 4 or 8
    pub scale: u8,
}

/// An operand in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mem {
    /// what it begins with
    pub base: Base,
    /// what is added
    pub index: Option<Index>,
    /// bytes that are added
    pub offset: i32,
    /// one element, in every lane
    pub broadcast: bool,
}

impl Mem {
    /// A place on the stack.
    pub fn slot(slot: Slot, offset: i32) -> Mem {
        Mem { base: Base::Slot(slot), index: None, offset, broadcast: false }
    }

    /// A constant.
    pub fn pool(offset: i32) -> Mem {
        Mem { base: Base::Pool, index: None, offset, broadcast: false }
    }

    /// So many bytes behind it.
    pub fn plus(self, bytes: usize) -> Mem {
        Mem { offset: self.offset + bytes as i32, ..self }
    }

    /// Behind a pointer.
    pub fn at(base: Reg, offset: i32) -> Mem {
        Mem { base: Base::Reg(base), index: None, offset, broadcast: false }
    }
}

/// An operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// there is none
    None,
    /// a register
    Reg(Reg, Size, Role),
    /// a number, in the form that the instruction wants
    Imm(OpKind, i64),
    /// memory
    Mem(Mem),
    /// a tile
    Tile(u8),
}

/// Which lanes an instruction writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Masking {
    /// the mask
    pub reg: Reg,
    /// others become 0; otherwise they stay
    pub zero: bool,
    /// gathers and scatters consume their mask
    pub role: Role,
}

/// Which operand may be memory instead of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// none
    Never,
    /// this one
    At(u8),
    /// this one; also one element of so many bytes in every lane
    Broadcast(u8, u8),
    /// any that is read, but one at most; also one element of so many bytes
    Any(u8),
}

/// A condition of a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cond {
    /// signed <
    Less,
    /// signed ≥
    NotLess,
    /// signed >
    Greater,
    /// signed ≤
    NotGreater,
    /// =, 0
    Equal,
    /// ≠
    NotEqual,
    /// unsigned <
    Below,
}

/// The number of a label.
pub type Label = u32;

/// The number of a loop.
pub type LoopId = u32;

/// What an instruction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// one of the machine's
    Code(Code),
    /// a copy of a register: to, from
    Copy,
    /// a fused multiply-add: result, a, b, c; its three forms, of which the first multiplies 1·3 and adds 2, the second 2·1 and 3,
    /// the third 2·3 and 1
    Fma([Code; 3]),
    /// bits in one or three of three: result, a, b, c
    Xor(Code),
    /// a sum of integers: result, a, b
    Add,
    /// the floor of a division of integers, or what is left of it: result, a, b
    Divide {
        /// what is left
        modulo: bool,
    },
    /// the arguments of the call
    Entry,
    /// a place to jump to, ahead
    Label(Label),
    /// a jump ahead
    Jump(Cond, Label),
    /// where a loop begins
    Head(LoopId),
    /// where it ends: a jump to its head, if it may have another trip
    Back(Option<Cond>, LoopId),
    /// behind a loop
    Exit(LoopId),
    /// a routine for every lane
    Call(u32),
}

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inst {
    /// what it is
    pub what: What,
    /// in the order of the machine
    pub operands: [Operand; 4],
    /// which lanes it writes
    pub mask: Option<Masking>,
    /// which operand may be memory
    pub fold: Fold,
}

impl Inst {
    /// An instruction without a mask.
    pub fn new<const COUNT: usize>(what: What, operands: &[Operand; COUNT], fold: Fold) -> Inst {
        let mut all = [Operand::None; 4];
        all[..COUNT].copy_from_slice(operands);
        Inst { what, operands: all, mask: None, fold }
    }

    /// Adds every register that it names.
    #[inline(always)]
    pub fn name(&self, named: &mut impl Extend<Named>) {
        let mut name = |reg, role| named.extend(Some(Named::new(reg, role)));
        for operand in &self.operands {
            match operand {
                Operand::Reg(reg, _, role) => name(*reg, *role),
                Operand::Mem(mem) => {
                    if let Base::Reg(reg) = mem.base {
                        name(reg, Role::Use);
                    }
                    if let Some(index) = mem.index {
                        name(index.reg, Role::Use);
                    }
                }
                Operand::None => break,
                Operand::Imm(..) | Operand::Tile(_) => {}
            }
        }
        if let Some(mask) = self.mask {
            name(mask.reg, mask.role);
        }
    }

    /// Names other registers.
    pub fn rename(&mut self, mut to: impl FnMut(Reg) -> Reg) {
        for operand in &mut self.operands {
            match operand {
                Operand::Reg(reg, ..) => *reg = to(*reg),
                Operand::Mem(mem) => {
                    if let Base::Reg(reg) = &mut mem.base {
                        *reg = to(*reg);
                    }
                    if let Some(index) = &mut mem.index {
                        index.reg = to(index.reg);
                    }
                }
                Operand::None | Operand::Imm(..) | Operand::Tile(_) => {}
            }
        }
        if let Some(mask) = &mut self.mask {
            mask.reg = to(mask.reg);
        }
    }

    /// The registers of a copy between registers: to, from.
    pub fn copied(&self) -> Option<(Reg, Reg)> {
        match (self.what, self.operands) {
            (What::Copy, [Operand::Reg(to, ..), Operand::Reg(from, ..), ..]) => Some((to, from)),
            _ => None,
        }
    }
}

/// How a constant comes into a register, or is used without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constant {
    /// where it lies among the constants
    pub offset: i32,
    /// bytes of the one lane that lies there; 0 if all do
    pub lane: u8,
    /// all bits are 0
    pub zero: bool,
}

/// A value that a loop hands on.
#[derive(Clone, Copy, Debug)]
pub struct Phi {
    /// what it is in a trip
    pub param: Reg,
    /// what it is behind the loop
    pub result: Reg,
    /// what the copy in front of the loop reads, if it is a copy
    pub first: Option<Reg>,
    /// the copy at the end of a trip: which instruction, and from where
    pub next: Option<(u32, Reg)>,
    /// whether it stays as it is in all trips
    pub stays: bool,
    /// the instruction that writes it for the next trip; behind all if none does
    pub renewed: u32,
}

/// A loop.
#[derive(Clone, Debug, Default)]
pub struct Loop {
    /// what it hands on
    pub phis: Vec<Phi>,
    /// whether it may have more trips than one, and no loop like that is inside of it
    pub innermost: bool,
}

/// A function of the machine.
#[derive(Debug)]
pub struct Function {
    /// the instruction set
    pub level: Level,
    /// what is done, by number; in which order, `sequence` knows
    pub insts: Vec<Inst>,
    /// for every register, how wide it is
    pub sizes: Vec<Size>,
    /// for every register, the constant that it is
    pub constants: Vec<Option<Constant>>,
    /// for every register, whether it exists for one instruction only and so cannot be put aside
    pub brief: Vec<bool>,
    /// loops by number
    pub loops: Vec<Loop>,
    /// labels that jumps ahead use
    pub labels: u32,
    /// bytes of every slot
    pub slots: Vec<usize>,
    /// the constants
    pub pool: Pool,
    /// what is called
    pub calls: Vec<CallSite>,
    /// whether stores went past the caches
    pub fence: bool,
    /// whether tiles are used
    pub tiles: bool,
}

impl Function {
    /// An empty function that is to compute about so many values.
    pub fn new(level: Level, values: usize) -> Function {
        let room = values + values / 2 + 16;
        let mut insts = SPARE.take();
        insts.reserve(room);
        Function {
            level,
            insts,
            sizes: Vec::with_capacity(room),
            constants: Vec::with_capacity(room),
            brief: Vec::with_capacity(room),
            loops: Vec::new(),
            labels: 0,
            slots: Vec::new(),
            pool: Pool::default(),
            calls: Vec::new(),
            fence: false,
            tiles: false,
        }
    }

    /// A new register.
    pub fn reg(&mut self, size: Size) -> Reg {
        self.sizes.push(size);
        self.constants.push(None);
        self.brief.push(false);
        Reg(self.sizes.len() as u32 - 1)
    }

    /// The class of a register.
    pub fn class(&self, reg: Reg) -> Class {
        self.sizes[reg.index()].class()
    }

    /// How a constant comes into a register.
    pub fn materialise(&self, reg: Reg, constant: Constant) -> Inst {
        let size = self.sizes[reg.index()];
        let to = Operand::Reg(reg, size, Role::Def);
        let from = Operand::Mem(Mem::pool(constant.offset));
        let (row, operands): (Row, [Operand; 3]) = match (size, constant.zero, constant.lane) {
            (Size::K, ..) => return Inst::new(What::Copy, &[to, from], Fold::Never),
            (_, true, _) => {
                let again = Operand::Reg(reg, size, Role::Again);
                (rows::XOR, [to, again, again])
            }
            (_, _, 4) => (rows::SPLAT_32, [to, from, Operand::None]),
            (_, _, 8) => (rows::SPREAD_64, [to, from, Operand::None]),
            _ => (rows::LOAD_32, [to, from, Operand::None]),
        };
        let code = row.code(self.level, size).unwrap_or(Code::INVALID);
        Inst::new(What::Code(code), &operands, Fold::Never)
    }

    /// A new place on the stack.
    pub fn slot(&mut self, bytes: usize) -> Slot {
        self.slots.push(bytes.max(8));
        Slot(self.slots.len() as u32 - 1)
    }

    /// A new label.
    pub fn label(&mut self) -> Label {
        self.labels += 1;
        self.labels - 1
    }
}

thread_local! {
    /// Memory for the instructions of the next function of this thread: much of it, and new memory is slow to come by.
    static SPARE: Cell<Vec<Inst>> = const { Cell::new(Vec::new()) };
}

/// So many instructions at most are there room for in memory that waits.
const MOST_SPARE: usize = 1 << 13;

impl Drop for Function {
    fn drop(&mut self) {
        if self.insts.capacity() <= MOST_SPARE {
            let mut insts = std::mem::take(&mut self.insts);
            insts.clear();
            SPARE.set(insts);
        }
    }
}

/// A call of a routine: lanes of arguments and of the result lie on the stack.
#[derive(Clone, Debug)]
pub struct CallSite {
    /// what is called
    pub routine: Routine,
    /// where the arguments lie, and how
    pub arguments: Vec<(Slot, Lane)>,
    /// where the result goes, and how
    pub result: (Slot, Lane),
    /// for which lanes; the result of others lies there already
    pub only: Option<(Slot, Lane)>,
}

/// How lanes lie in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// 4 bytes each
    Dword,
    /// 8 bytes each
    Qword,
    /// a bit each
    Bit,
    /// 4 bytes each, all ones or all zeros
    Truth,
}

/// Constants, each once.
#[derive(Debug, Default)]
pub struct Pool {
    /// as they lie in memory
    pub bytes: Vec<u8>,
    known: FxHashMap<Vec<u8>, i32>,
}

impl Pool {
    /// Where these bytes lie, as a multiple of their number.
    pub fn place(&mut self, bytes: &[u8]) -> i32 {
        if let Some(place) = self.known.get(bytes) {
            return *place;
        }
        let aligned = self.bytes.len().next_multiple_of(bytes.len().next_power_of_two());
        self.bytes.resize(aligned, 0);
        self.bytes.extend_from_slice(bytes);
        self.known.insert(bytes.to_vec(), aligned as i32);
        aligned as i32
    }
}
