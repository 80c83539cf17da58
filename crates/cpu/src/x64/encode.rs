//! Bytes of machine code: constants first, then the function.

mod fill;

use fuseline::error::{Error, Result};
use iced_x86::{Code, Encoder, IcedError, Instruction, OpKind, Register};

use super::allocate::{ARGUMENTS, Places};
use super::frame::Frame;
use super::machine::{
    CallSite, Class, Cond, Fold, Function, Index, Inst, Label, Lane, LoopId, Mem, Operand, Reg, Size, Slot, What,
};
use super::routine::{Descriptor, call_lanes};
use super::sequence::Sequence;
use super::table::{Level, rows};

/// Machine code that lies anywhere.
#[derive(Debug)]
pub struct Encoded {
    /// constants and instructions
    pub bytes: Vec<u8>,
    /// where the function begins
    pub entry: usize,
    /// what it calls; instructions hold their addresses
    pub descriptors: Box<[Descriptor]>,
}

/// Bytes to which the heads of loops are aligned.
const HEAD: usize = 32;

/// Encodes a function whose registers have places.
pub fn encode(function: &Function, sequence: &Sequence, places: &Places, lanes: usize) -> Result<Encoded> {
    let frame = Frame::new(function, places)?;
    let descriptors = function.calls.iter().map(|call| descriptor(call, &frame, lanes)).collect();
    let mut bytes = function.pool.bytes.clone();
    bytes.resize(bytes.len().next_multiple_of(64), 0);
    let entry = bytes.len();
    bytes.reserve(sequence.order.len() * 8);
    let mut encode = Encode {
        function,
        places,
        frame,
        bytes,
        encoder: Encoder::new(64),
        labels: vec![0; function.labels as usize],
        heads: vec![0; function.loops.len()],
        jumps: Vec::new(),
        descriptors,
    };
    encode.function(sequence).map_err(|e| Error::bug(format!("an instruction cannot be encoded: {e}")))?;
    Ok(encode.finish(entry))
}

struct Encode<'a> {
    function: &'a Function,
    places: &'a Places,
    frame: Frame,
    bytes: Vec<u8>,
    encoder: Encoder,
    labels: Vec<usize>,
    heads: Vec<usize>,
    /// jumps ahead: where their distance stands, and their aim
    jumps: Vec<(usize, Label)>,
    descriptors: Box<[Descriptor]>,
}

type Coded = std::result::Result<(), IcedError>;

impl Encode<'_> {
    fn finish(self, entry: usize) -> Encoded {
        let mut bytes = self.bytes;
        for (place, label) in self.jumps {
            let distance = (self.labels[label as usize] as i64 - (place as i64 + 4)) as i32;
            bytes[place..place + 4].copy_from_slice(&distance.to_le_bytes());
        }
        Encoded { bytes, entry, descriptors: self.descriptors }
    }

    fn function(&mut self, sequence: &Sequence) -> Coded {
        self.prologue()?;
        let function = self.function;
        for number in &sequence.order {
            self.inst(&function.insts[*number as usize])?;
        }
        self.epilogue()
    }

    fn prologue(&mut self) -> Coded {
        for place in self.frame.kept.clone() {
            self.push_or_pop(PUSH, place);
        }
        if self.frame.bytes > 0 {
            self.op2(Code::Mov_r64_rm64, Register::RAX, Register::RSP)?;
            self.op_imm(Code::And_rm64_imm8, Register::RSP, OpKind::Immediate8to64, -64)?;
            self.op_imm(Code::Sub_rm64_imm32, Register::RSP, OpKind::Immediate32to64, self.frame.bytes as i64)?;
            self.store(Code::Mov_rm64_r64, self.frame.caller, Register::RAX)?;
        }
        Ok(())
    }

    fn epilogue(&mut self) -> Coded {
        if self.function.fence {
            self.plain(Code::Sfence)?;
        }
        if self.function.tiles {
            self.plain(Code::VEX_Tilerelease)?;
        }
        self.plain(Code::VEX_Vzeroupper)?;
        if self.frame.bytes > 0 {
            self.load(Code::Mov_r64_rm64, Register::RSP, self.frame.caller)?;
        }
        for place in self.frame.kept.clone().into_iter().rev() {
            self.push_or_pop(POP, place);
        }
        self.plain(Code::Retnq)
    }

    fn inst(&mut self, inst: &Inst) -> Coded {
        match inst.what {
            What::Code(code) => self.code(code, inst, &inst.operands),
            What::Copy => self.copy(inst),
            What::Fma(forms) => self.fma(forms, inst),
            What::Xor(code) => self.xor(code, inst),
            What::Add => self.add(inst),
            What::Divide { modulo } => self.divide(modulo, inst),
            What::Entry => self.entry(inst),
            What::Label(label) => {
                self.labels[label as usize] = self.bytes.len();
                Ok(())
            }
            What::Jump(cond, label) => {
                self.jump(cond, label);
                Ok(())
            }
            What::Head(id) => {
                self.head(id);
                Ok(())
            }
            What::Back(Some(cond), id) => {
                self.back(cond, id);
                Ok(())
            }
            What::Back(None, _) | What::Exit(_) => Ok(()),
            What::Call(site) => self.call(site as usize),
        }
    }

    fn emit(&mut self, instruction: &Instruction) -> Coded {
        let at = self.bytes.len() as u64;
        self.encoder.set_buffer(std::mem::take(&mut self.bytes));
        let encoded = self.encoder.encode(instruction, at);
        self.bytes = self.encoder.take_buffer();
        encoded.map(|_| ())
    }

    fn place(&self, reg: Reg) -> u8 {
        self.places.of[reg.index()]
    }

    fn register(&self, reg: Reg, size: Size) -> Register {
        let place = self.place(reg);
        match size {
            Size::X => Register::XMM0 + u32::from(place),
            Size::Y => Register::YMM0 + u32::from(place),
            Size::Z => Register::ZMM0 + u32::from(place),
            Size::K => Register::K0 + u32::from(place),
            _ => integer(place, size),
        }
    }

    fn copy(&mut self, inst: &Inst) -> Coded {
        let [to, from, ..] = &inst.operands;
        let size = match (to, from) {
            (Operand::Reg(a, size, _), Operand::Reg(b, ..)) => {
                if self.place(*a) == self.place(*b) {
                    return Ok(());
                }
                *size
            }
            (Operand::Reg(_, size, _), _) | (_, Operand::Reg(_, size, _)) => *size,
            _ => Size::Qword,
        };
        let store = matches!(to, Operand::Mem(_));
        self.code(move_code(self.function.level, size, store), inst, &inst.operands)
    }

    /// Chooses the form that writes where the result is wanted.
    fn fma(&mut self, [form132, form213, form231]: [Code; 3], inst: &Inst) -> Coded {
        let [to, a, b, c] = inst.operands;
        let place = |o: &Operand| match o {
            Operand::Reg(reg, ..) => Some(self.place(*reg)),
            _ => None,
        };
        let is_memory = |o: &Operand| matches!(o, Operand::Mem(_));
        // multiplication commutes: memory is the second factor
        let (a, b) = if is_memory(&a) { (b, a) } else { (a, b) };
        let here = place(&to);
        let (code, second, third) = if place(&c) == here {
            (form231, a, b)
        } else if place(&a) == here {
            if is_memory(&b) { (form132, c, b) } else { (form213, b, c) }
        } else if place(&b) == here {
            (form213, a, c)
        } else if is_memory(&c) {
            self.move_to(&to, &a)?;
            (form213, b, c)
        } else {
            self.move_to(&to, &c)?;
            (form231, a, b)
        };
        self.code(code, inst, &[to, second, third])
    }

    /// Operands change places as it suits.
    fn xor(&mut self, code: Code, inst: &Inst) -> Coded {
        let [to, a, b, c] = inst.operands;
        let place = |o: &Operand| match o {
            Operand::Reg(reg, ..) => Some(self.place(*reg)),
            _ => None,
        };
        let mut sources = [a, b, c];
        // memory comes last, what is overwritten first
        sources.sort_by_key(|o| (matches!(o, Operand::Mem(_)), place(o) != place(&to)));
        let [first, second, third] = sources;
        if place(&first) != place(&to) {
            self.move_to(&to, &first)?;
        }
        self.code(code, inst, &[to, second, third, Operand::Imm(OpKind::Immediate8, 0x96)])
    }

    fn move_to(&mut self, to: &Operand, from: &Operand) -> Coded {
        if let Operand::Reg(_, size, _) = to {
            let code = move_code(self.function.level, *size, false);
            let copy = Inst::new(What::Copy, &[*to, *from], Fold::Never);
            self.code(code, &copy, &copy.operands)?;
        }
        Ok(())
    }

    fn add(&mut self, inst: &Inst) -> Coded {
        let [to, a, b, _] = inst.operands;
        let (Operand::Reg(d, ..), Operand::Reg(x, ..)) = (to, a) else { return Ok(()) };
        let is_here = |reg: Reg| self.place(reg) == self.place(d);
        match b {
            Operand::Reg(..) if is_here(x) => self.code(Code::Add_r64_rm64, inst, &[to, b]),
            Operand::Reg(y, ..) if is_here(y) => self.code(Code::Add_r64_rm64, inst, &[to, a]),
            Operand::Reg(reg, ..) => {
                let index = Some(Index { reg, size: Size::Qword, scale: 1 });
                self.code(Code::Lea_r64_m, inst, &[to, Operand::Mem(Mem { index, ..Mem::at(x, 0) })])
            }
            Operand::Imm(_, number) if is_here(x) && i8::try_from(number).is_ok() => {
                self.code(Code::Add_rm64_imm8, inst, &[to, Operand::Imm(OpKind::Immediate8to64, number)])
            }
            Operand::Imm(_, number) if is_here(x) => {
                self.code(Code::Add_rm64_imm32, inst, &[to, Operand::Imm(OpKind::Immediate32to64, number)])
            }
            Operand::Imm(_, number) => self.code(Code::Lea_r64_m, inst, &[to, Operand::Mem(Mem::at(x, number as i32))]),
            _ => Ok(()),
        }
    }

    /// Truncating division, then one less where what is left is negative.
    fn divide(&mut self, modulo: bool, inst: &Inst) -> Coded {
        let [Operand::Reg(to, ..), Operand::Reg(a, ..), Operand::Reg(b, ..), _] = inst.operands else { return Ok(()) };
        let [to, a, b] = [to, a, b].map(|reg| self.register(reg, Size::Qword));
        let (rax, rdx) = (Register::RAX, Register::RDX);
        if a != rax {
            self.op2(Code::Mov_r64_rm64, rax, a)?;
        }
        self.plain(Code::Cqo)?;
        self.op1(Code::Idiv_rm64, b)?;
        if modulo {
            self.op2(Code::Mov_r64_rm64, rax, rdx)?;
            self.op_imm(Code::Sar_rm64_imm8, rax, OpKind::Immediate8, 63)?;
            self.op2(Code::And_r64_rm64, rax, b)?;
        } else {
            self.op_imm(Code::Sar_rm64_imm8, rdx, OpKind::Immediate8, 63)?;
        }
        if to == rax {
            self.op2(Code::Add_r64_rm64, rax, rdx)
        } else if to == rdx {
            self.op2(Code::Add_r64_rm64, rdx, rax)
        } else {
            self.lea(to, rax, rdx, 0)
        }
    }

    /// Arguments go to their places all at once.
    fn entry(&mut self, inst: &Inst) -> Coded {
        let mut moves: Vec<(u8, u8)> = Vec::new();
        for (operand, from) in inst.operands.iter().zip(ARGUMENTS) {
            if let Operand::Reg(reg, ..) = operand
                && self.place(*reg) != from
            {
                moves.push((self.place(*reg), from));
            }
        }
        while let Some(first) = moves.first().copied() {
            let ready = moves.iter().position(|(to, _)| moves.iter().all(|(_, from)| from != to));
            match ready {
                Some(at) => {
                    let (to, from) = moves.swap_remove(at);
                    self.op2(Code::Mov_r64_rm64, integer(to, Size::Qword), integer(from, Size::Qword))?;
                }
                None => {
                    // a ring: after an exchange one is in its place, and what was there is where that came from
                    let (to, from) = first;
                    self.op2(Code::Xchg_rm64_r64, integer(to, Size::Qword), integer(from, Size::Qword))?;
                    moves.remove(0);
                    for (_, source) in &mut moves {
                        if *source == to {
                            *source = from;
                        }
                    }
                    moves.retain(|(to, from)| to != from);
                }
            }
        }
        Ok(())
    }

    fn jump(&mut self, cond: Cond, label: Label) {
        self.bytes.extend_from_slice(&[FAR, FAR_JUMP | bits_of(cond), 0, 0, 0, 0]);
        self.jumps.push((self.bytes.len() - 4, label));
    }

    fn head(&mut self, id: LoopId) {
        if self.function.loops[id as usize].innermost {
            let mut left = self.bytes.len().next_multiple_of(HEAD) - self.bytes.len();
            while left > 0 {
                let nop = NOPS[left.min(NOPS.len()) - 1];
                self.bytes.extend_from_slice(nop);
                left -= nop.len();
            }
        }
        self.heads[id as usize] = self.bytes.len();
    }

    fn back(&mut self, cond: Cond, id: LoopId) {
        // from its own end: a short jump is 2 bytes long, another one 6
        let distance = self.heads[id as usize] as i32 - (self.bytes.len() as i32 + 2);
        match i8::try_from(distance) {
            Ok(short) => self.bytes.extend_from_slice(&[SHORT_JUMP | bits_of(cond), short as u8]),
            Err(_) => {
                self.bytes.extend_from_slice(&[FAR, FAR_JUMP | bits_of(cond)]);
                self.bytes.extend_from_slice(&(distance - 4).to_le_bytes());
            }
        }
    }

    fn push_or_pop(&mut self, operation: u8, place: u8) {
        if place >= 8 {
            self.bytes.push(HIGH);
        }
        self.bytes.push(operation | place & 7);
    }

    /// Saves what is live, calls, and brings it back.
    fn call(&mut self, site: usize) -> Coded {
        let address = std::ptr::from_ref(&self.descriptors[site]) as u64;
        let places = self.places;
        let live = &places.across_calls[site];
        for (reg, _) in live {
            self.keep(*reg, true)?;
        }
        self.plain(Code::VEX_Vzeroupper)?;
        self.number(Register::RDI, address)?;
        self.op2(Code::Mov_r64_rm64, Register::RSI, Register::RSP)?;
        self.number(Register::RAX, call_lanes as *const () as u64)?;
        self.op1(Code::Call_rm64, Register::RAX)?;
        for (reg, _) in live {
            self.keep(*reg, false)?;
        }
        Ok(())
    }

    fn keep(&mut self, reg: Reg, store: bool) -> Coded {
        let (class, size) = (self.function.class(reg), self.function.sizes[reg.index()]);
        let code = move_code(self.function.level, size, store);
        let (at, register) = (self.frame.saved(class, self.place(reg)), self.register(reg, size));
        if store { self.store(code, at, register) } else { self.load(code, register, at) }
    }
}

/// Single instructions with places.
impl Encode<'_> {
    fn plain(&mut self, code: Code) -> Coded {
        self.emit(&Instruction::with(code))
    }

    fn op1(&mut self, code: Code, a: Register) -> Coded {
        let instruction = Instruction::with1(code, a)?;
        self.emit(&instruction)
    }

    fn op2(&mut self, code: Code, a: Register, b: Register) -> Coded {
        let instruction = Instruction::with2(code, a, b)?;
        self.emit(&instruction)
    }

    fn op_imm(&mut self, code: Code, a: Register, kind: OpKind, number: i64) -> Coded {
        let mut instruction = Instruction::default();
        instruction.set_code(code);
        instruction.set_op_kind(0, OpKind::Register);
        instruction.set_op_register(0, a);
        instruction.set_op_kind(1, kind);
        instruction.set_immediate_i64(1, number);
        self.emit(&instruction)
    }

    fn number(&mut self, to: Register, number: u64) -> Coded {
        self.op_imm(Code::Mov_r64_imm64, to, OpKind::Immediate64, number as i64)
    }

    fn lea(&mut self, to: Register, base: Register, index: Register, offset: i64) -> Coded {
        let mut instruction = Instruction::default();
        instruction.set_code(Code::Lea_r64_m);
        instruction.set_op_kind(0, OpKind::Register);
        instruction.set_op_register(0, to);
        instruction.set_op_kind(1, OpKind::Memory);
        instruction.set_memory_base(base);
        instruction.set_memory_index(index);
        instruction.set_memory_displacement64(offset as u64);
        instruction.set_memory_displ_size(1);
        self.emit(&instruction)
    }

    fn on_stack(at: usize, instruction: &mut Instruction) {
        instruction.set_memory_base(Register::RSP);
        instruction.set_memory_displacement64(at as u64);
        instruction.set_memory_displ_size(1);
    }

    fn store(&mut self, code: Code, at: usize, from: Register) -> Coded {
        let mut instruction = Instruction::default();
        instruction.set_code(code);
        instruction.set_op_kind(0, OpKind::Memory);
        Self::on_stack(at, &mut instruction);
        instruction.set_op_kind(1, OpKind::Register);
        instruction.set_op_register(1, from);
        self.emit(&instruction)
    }

    fn load(&mut self, code: Code, to: Register, at: usize) -> Coded {
        let mut instruction = Instruction::default();
        instruction.set_code(code);
        instruction.set_op_kind(0, OpKind::Register);
        instruction.set_op_register(0, to);
        instruction.set_op_kind(1, OpKind::Memory);
        Self::on_stack(at, &mut instruction);
        self.emit(&instruction)
    }
}

fn descriptor(call: &CallSite, frame: &Frame, lanes: usize) -> Descriptor {
    let place = |(slot, lane): (Slot, Lane)| (frame.slot(slot), lane);
    Descriptor {
        routine: call.routine,
        lanes,
        arguments: call.arguments.iter().copied().map(place).collect(),
        result: place(call.result),
        only: call.only.map(place),
    }
}

fn integer(place: u8, size: Size) -> Register {
    let first = match size {
        Size::Byte if place >= 4 => return Register::SPL + u32::from(place - 4),
        Size::Byte => Register::AL,
        Size::Word => Register::AX,
        Size::Dword => Register::EAX,
        _ => Register::RAX,
    };
    first + u32::from(place)
}

/// How a register is copied, or goes to or from memory.
fn move_code(level: Level, size: Size, store: bool) -> Code {
    let row = match (size.class(), store) {
        (Class::Int, false) => return Code::Mov_r64_rm64,
        (Class::Int, true) => return Code::Mov_rm64_r64,
        (Class::Mask, false) => return Code::VEX_Kmovw_kr_km16,
        (Class::Mask, true) => return Code::VEX_Kmovw_m16_kr,
        (Class::Vector, false) => rows::LOAD_32,
        (Class::Vector, true) => rows::STORE_32,
    };
    row.code(level, size).unwrap_or(Code::INVALID)
}

/// What stands in front of 8 registers that came later.
const HIGH: u8 = 0x41;
const PUSH: u8 = 0x50;
const POP: u8 = 0x58;
/// A jump by a distance of one byte, if a condition holds; of four bytes, behind [`FAR`].
const SHORT_JUMP: u8 = 0x70;
const FAR: u8 = 0x0f;
const FAR_JUMP: u8 = 0x80;

/// A condition in four bits.
fn bits_of(cond: Cond) -> u8 {
    match cond {
        Cond::Less => 0xc,
        Cond::NotLess => 0xd,
        Cond::Greater => 0xf,
        Cond::NotGreater => 0xe,
        Cond::Equal => 0x4,
        Cond::NotEqual => 0x5,
        Cond::Below => 0x2,
    }
}

/// Instructions that do nothing, by their length.
const NOPS: [&[u8]; 9] = [
    &[0x90],
    &[0x66, 0x90],
    &[0x0f, 0x1f, 0x00],
    &[0x0f, 0x1f, 0x40, 0x00],
    &[0x0f, 0x1f, 0x44, 0x00, 0x00],
    &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
    &[0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00],
    &[0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
    &[0x66, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
];
