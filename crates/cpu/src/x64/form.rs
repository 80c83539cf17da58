//! Bytes of instructions.
//!
//! `iced` can encode everything, and asks everything of every instruction. Most are a few bits around the numbers of their
//! registers: the form is read off one that `iced` encodes, the first time that it is met, and all others are put together from that.

use std::sync::atomic::{AtomicU64, Ordering};

use iced_x86::{Code, Encoder, Instruction, OpKind, Register};

/// What the operand is that may be memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// a register, as all others
    Register,
    /// memory
    Memory,
    /// one element in memory, for every lane
    Broadcast,
}

/// Where the number of a register stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// nowhere: the operand is memory, a number, or not there
    None,
    /// in the middle of the byte behind the operation
    Reg,
    /// in the prefix
    Prefix,
    /// at the end of the byte behind the operation
    Rm,
}

/// What stands in front of the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Front {
    /// as integers have it: 66, F3 or F2 if wanted, REX if needed, the bytes of the map
    Rex,
    /// of 2 or 3 bytes
    Vex,
    /// of 4 bytes
    Evex,
}

/// How an instruction lies in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    front: Front,
    /// map and W, length and pp as they stand in EVEX
    map: u8,
    wide: bool,
    pp: u8,
    length: u8,
    opcode: u8,
    /// what stands in the place of a register, where it is part of the operation
    digit: u8,
    /// by operand
    fields: [Field; 4],
    /// distances in memory count in 2 to the power of this
    shift: u8,
    broadcast: bool,
    /// bytes of the number behind it: 0, 1 or 4
    number: u8,
}

/// What stands in an instruction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filling {
    /// numbers of registers, by operand
    pub registers: [u8; 4],
    /// memory, if an operand is
    pub memory: Option<Address>,
    /// a number
    pub number: i32,
    /// the mask
    pub mask: u8,
    /// whether lanes outside of the mask become 0
    pub zero: bool,
}

/// A place in memory.
#[derive(Clone, Copy, Debug)]
pub enum Address {
    /// behind a register, with an index and the power of two of its scale
    Behind(u8, Option<(u8, u8)>, i32),
    /// so far from the end of the instruction, once it has one: at this place of the code
    Code(i32),
}

/// More than `iced` has.
const CODES: usize = 1 << 13;
/// Forms by instruction and shape, packed; 0 where none is known yet. A form is complete in itself: whoever sees it needs to see nothing else.
static KNOWN: [[AtomicU64; 3]; CODES] = [const { [const { AtomicU64::new(0) }; 3] }; CODES];
/// Of no form that is known.
const ODD: u64 = 1;

impl Form {
    /// The form of an instruction, if it has one; `sample` makes any instruction of that kind.
    pub fn of(code: Code, shape: Shape, sample: impl FnOnce() -> Instruction) -> Option<Form> {
        let known = &KNOWN.get(code as usize)?[shape as usize];
        match known.load(Ordering::Relaxed) {
            0 => {
                let form = learn(sample());
                known.store(form.map_or(ODD, Form::packed), Ordering::Relaxed);
                form
            }
            ODD => None,
            packed => Some(Form::unpacked(packed)),
        }
    }

    fn packed(self) -> u64 {
        let fields = self.fields.iter().rev().fold(0, |all, field| all << 2 | *field as u64);
        let flags = u8::from(self.wide) << 3 | u8::from(self.broadcast) << 4;
        let bytes = [
            // one bit that is always set
            4 | self.front as u8 | flags | self.number << 5,
            self.map,
            self.pp,
            self.length,
            self.opcode,
            self.digit,
            fields as u8,
            self.shift,
        ];
        u64::from_le_bytes(bytes)
    }

    fn unpacked(packed: u64) -> Form {
        let [flags, map, pp, length, opcode, digit, fields, shift] = packed.to_le_bytes();
        let field = |k: usize| [Field::None, Field::Reg, Field::Prefix, Field::Rm][usize::from(fields >> (2 * k) & 3)];
        Form {
            front: [Front::Rex, Front::Vex, Front::Evex][usize::from(flags & 3) % 3],
            map,
            wide: flags & 8 != 0,
            pp,
            length,
            opcode,
            digit,
            fields: std::array::from_fn(field),
            shift,
            broadcast: flags & 16 != 0,
            number: flags >> 5,
        }
    }

    /// Writes an instruction.
    pub fn write(self, filling: &Filling, bytes: &mut Vec<u8>) {
        let (mut reg, mut prefix, mut rm) = (self.digit, 0, 0);
        for (field, number) in self.fields.iter().zip(filling.registers) {
            match field {
                Field::None => {}
                Field::Reg => reg = number,
                Field::Prefix => prefix = number,
                Field::Rm => rm = number,
            }
        }
        // bits 3 and 4 of what the last byte names: of the register, or of base and index
        let (near, far) = match filling.memory {
            None => (rm >> 3 & 1, rm >> 4),
            Some(Address::Behind(base, index, _)) => (base >> 3, index.map_or(0, |(index, _)| index >> 3)),
            Some(Address::Code(_)) => (0, 0),
        };
        let mut line = Line::default();
        match self.front {
            Front::Rex => self.rex(&mut line, reg, near, far),
            Front::Evex => {
                line.push(0x62);
                line.push((!reg >> 3 & 1) << 7 | (far ^ 1) << 6 | (near ^ 1) << 5 | (!reg >> 4 & 1) << 4 | self.map);
                line.push(u8::from(self.wide) << 7 | (!prefix & 15) << 3 | 4 | self.pp);
                let zero = u8::from(filling.zero && filling.mask != 0) << 7;
                let broadcast = u8::from(self.broadcast) << 4;
                line.push(zero | self.length << 5 | broadcast | (!prefix >> 4 & 1) << 3 | filling.mask);
            }
            Front::Vex if near == 0 && far == 0 && self.map == 1 && !self.wide => {
                line.push(0xc5);
                line.push((!reg >> 3 & 1) << 7 | (!prefix & 15) << 3 | self.length << 2 | self.pp);
            }
            Front::Vex => {
                line.push(0xc4);
                line.push((!reg >> 3 & 1) << 7 | (far ^ 1) << 6 | (near ^ 1) << 5 | self.map);
                line.push(u8::from(self.wide) << 7 | (!prefix & 15) << 3 | self.length << 2 | self.pp);
            }
        }
        line.push(self.opcode);
        match filling.memory {
            None => line.push(0xc0 | (reg & 7) << 3 | rm & 7),
            Some(Address::Behind(base, index, offset)) => self.behind(&mut line, reg & 7, base & 7, index, offset),
            Some(Address::Code(place)) => {
                line.push((reg & 7) << 3 | 5);
                let end = bytes.len() + line.count + 4 + usize::from(self.number);
                line.push_all((place - end as i32).to_le_bytes());
            }
        }
        match self.number {
            0 => {}
            1 => line.push(filling.number as u8),
            _ => line.push_all(filling.number.to_le_bytes()),
        }
        // all of the line at once, and then no more than was written: a copy of known length
        let end = bytes.len() + line.count;
        bytes.extend_from_slice(&line.bytes);
        bytes.truncate(end);
    }

    /// What stands in front of an operation on integers.
    fn rex(self, line: &mut Line, reg: u8, near: u8, far: u8) {
        if self.pp != 0 {
            line.push(PREFIXES[usize::from(self.pp)]);
        }
        let rex = u8::from(self.wide) << 3 | (reg >> 3) << 2 | far << 1 | near;
        if rex != 0 {
            line.push(0x40 | rex);
        }
        if self.map != 0 {
            line.push(0x0f);
        }
        if self.map > 1 {
            line.push(MAPS[usize::from(self.map)]);
        }
    }

    fn behind(self, line: &mut Line, reg: u8, base: u8, index: Option<(u8, u8)>, offset: i32) {
        let steps = offset >> self.shift;
        // 5 without a distance would mean something else
        let mode = if offset == 0 && base != 5 {
            0
        } else if steps << self.shift == offset && i8::try_from(steps).is_ok() {
            1
        } else {
            2
        };
        let scaled = match index {
            Some((index, scale)) => Some(scale << 6 | (index & 7) << 3 | base),
            // 4 alone would mean an index
            None => (base == 4).then_some(0x24),
        };
        line.push(mode << 6 | reg << 3 | if scaled.is_some() { 4 } else { base });
        if let Some(scaled) = scaled {
            line.push(scaled);
        }
        match mode {
            0 => {}
            1 => line.push(steps as u8),
            _ => line.push_all(offset.to_le_bytes()),
        }
    }
}

/// The bytes that say what pp says, and those of maps.
const PREFIXES: [u8; 4] = [0, 0x66, 0xf3, 0xf2];
const MAPS: [u8; 4] = [0, 0x0f, 0x38, 0x3a];

/// An instruction that is being written.
#[derive(Default)]
struct Line {
    bytes: [u8; 16],
    count: usize,
}

impl Line {
    fn push(&mut self, byte: u8) {
        self.bytes[self.count & 15] = byte;
        self.count += 1;
    }

    fn push_all(&mut self, bytes: [u8; 4]) {
        bytes.into_iter().for_each(|byte| self.push(byte));
    }
}

/// The form of an instruction: every operand gets a number of its own, and then it is seen where these stand.
fn learn(mut sample: Instruction) -> Option<Form> {
    let (mut numbers, mut has_memory, mut number_bytes) = ([None; 4], false, 0);
    for k in 0..sample.op_count() {
        match sample.op_kind(k) {
            OpKind::Register => {
                let (first, number) = numbered(sample.op_register(k), k)?;
                sample.set_op_register(k, first + u32::from(number));
                *numbers.get_mut(k as usize)? = Some(number);
            }
            OpKind::Memory => has_memory = true,
            OpKind::Immediate8 | OpKind::Immediate8to32 | OpKind::Immediate8to64 => number_bytes = 1,
            OpKind::Immediate32 | OpKind::Immediate32to64 => number_bytes = 4,
            _ => return None,
        }
    }
    if has_memory {
        sample.set_memory_base(Register::RAX);
        sample.set_memory_index(Register::None);
        // what is left of a scale would make it another form
        sample.set_memory_index_scale(1);
        sample.set_memory_displacement64(DISTANCE);
        sample.set_memory_displ_size(1);
    }
    sample.set_op_mask(Register::None);
    sample.set_zeroing_masking(false);
    let mut encoder = Encoder::new(64);
    encoder.encode(&sample, 0).ok()?;
    let bytes = encoder.take_buffer();
    let (form, [reg, prefix, rm], tail) = read(&bytes)?;
    let mut form = Form { broadcast: has_memory && sample.is_broadcast(), number: number_bytes, ..form };
    let (mode, rest) = (bytes[tail - 1] >> 6, bytes.len() - tail);
    let is_whole =
        rest == usize::from(has_memory) + usize::from(number_bytes) && mode == if has_memory { 1 } else { 3 };
    if !is_whole || (has_memory && rm != 0) {
        return None;
    }
    if has_memory {
        form.shift = (DISTANCE as u8 / bytes[tail].max(1)).ilog2() as u8;
    }
    for (field, number) in form.fields.iter_mut().zip(numbers) {
        let Some(number) = number else { continue };
        *field = match number {
            _ if number == reg => Field::Reg,
            _ if number == prefix => Field::Prefix,
            _ if number == rm && !has_memory => Field::Rm,
            _ => return None,
        };
    }
    let has = |field| form.fields.contains(&field);
    form.digit = if has(Field::Reg) { 0 } else { reg };
    let is_known = form.digit < 8 && (prefix == 0 || has(Field::Prefix)) && (has_memory || has(Field::Rm));
    is_known.then_some(form)
}

/// The distance of a sample in memory: all steps divide it, and what is left fits a byte.
const DISTANCE: u64 = 64;

/// The first register of those that could stand for one, and the number of another: one that is no part of an operation.
fn numbered(register: Register, operand: u32) -> Option<(Register, u8)> {
    let vectors = [Register::XMM0, Register::YMM0, Register::ZMM0].map(|first| (first, 32, 9));
    let others = [(Register::EAX, 16, 9), (Register::RAX, 16, 9), (Register::K0, 8, 4)];
    let of = |(first, count, _): &(Register, usize, u8)| {
        (register as usize).checked_sub(*first as usize).is_some_and(|place| place < *count)
    };
    let (first, _, number) = vectors.into_iter().chain(others).find(of)?;
    Some((first, number + operand as u8))
}

/// A form without its fields, the numbers that stand in these, and where what follows them begins.
fn read(bytes: &[u8]) -> Option<(Form, [u8; 3], usize)> {
    let bit = |byte: u8, at: u8| byte >> at & 1;
    // as EVEX has them: R X B R' map, W prefix pp, length V'
    let (front, first, second, length, tail) = match *bytes {
        [0x62, first, second, third, ..] => (Front::Evex, first, second, third >> 5 & 3 | (third & 8) << 4, 6),
        [0xc4, first, second, ..] => (Front::Vex, first & 0xef | 0x10, second, bit(second, 2) | 0x80, 5),
        [0xc5, second, ..] => (Front::Vex, second & 0x80 | 0x71, second & 0x7f, bit(second, 2) | 0x80, 4),
        _ => {
            let (first, second, tail) = as_vex(bytes)?;
            (Front::Rex, first, second, 0x80, tail)
        }
    };
    let (opcode, last) = (*bytes.get(tail - 2)?, *bytes.get(tail - 1)?);
    let map = if front == Front::Evex { first & 7 } else { first & 15 };
    let reg = last >> 3 & 7 | (bit(first, 7) ^ 1) << 3 | (bit(first, 4) ^ 1) << 4;
    // the bit above those of the prefix is W in longer prefixes and part of the register in the short one
    let prefix = !(second >> 3) & 15 | (bit(length, 7) ^ 1) << 4;
    let rm = last & 7 | (bit(first, 5) ^ 1) << 3 | (bit(first, 6) ^ 1) << 4;
    let form = Form {
        front,
        map,
        wide: bit(second, 7) == 1,
        pp: second & 3,
        length: length & 3,
        opcode,
        digit: 0,
        fields: [Field::None; 4],
        shift: 0,
        broadcast: false,
        number: 0,
    };
    Some((form, [reg, prefix, rm], tail))
}

/// What stands in front of an operation on integers as two bytes of VEX with all registers and no length, and where what follows the
/// byte behind the operation begins.
fn as_vex(bytes: &[u8]) -> Option<(u8, u8, usize)> {
    let mut at = 0;
    let pp = PREFIXES.iter().skip(1).position(|prefix| bytes.first() == Some(prefix)).map_or(0, |k| k as u8 + 1);
    at += usize::from(pp != 0);
    let rex = bytes.get(at).copied().filter(|byte| byte & 0xf0 == 0x40);
    at += usize::from(rex.is_some());
    let rex = rex.unwrap_or(0);
    let map = match bytes.get(at..) {
        Some([0x0f, second, ..]) => MAPS.iter().skip(2).position(|map| map == second).map_or(1, |k| k as u8 + 2),
        _ => 0,
    };
    at += usize::from(map.min(2));
    let first = ((rex >> 2 & 1) ^ 1) << 7 | ((rex >> 1 & 1) ^ 1) << 6 | ((rex & 1) ^ 1) << 5 | 0x10 | map;
    Some((first, (rex >> 3 & 1) << 7 | 0x78 | pp, at + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Instructions with prefixes of all kinds, by what their operands are: vectors of this width, masks, memory, a number.
    const SAMPLES: &[(Code, &[OpKind], [Register; 4])] = &[
        (Code::EVEX_Vaddps_zmm_k1z_zmm_zmmm512b32_er, &[REG, REG, MEM], [Register::ZMM0; 4]),
        (Code::EVEX_Vfmadd231pd_ymm_k1z_ymm_ymmm256b64, &[REG, REG, MEM], [Register::YMM0; 4]),
        (Code::EVEX_Vmovups_zmmm512_k1z_zmm, &[MEM, REG], [Register::ZMM0; 4]),
        (Code::EVEX_Vpmovzxbd_zmm_k1z_xmmm128, &[REG, MEM], [Register::ZMM0, Register::XMM0, NO, NO]),
        (Code::EVEX_Vpmovdb_xmmm128_k1z_zmm, &[MEM, REG], [Register::XMM0, Register::ZMM0, NO, NO]),
        (Code::EVEX_Vpsrld_zmm_k1z_zmmm512b32_imm8, &[REG, MEM, BYTE], [Register::ZMM0; 4]),
        (Code::EVEX_Vpternlogd_zmm_k1z_zmm_zmmm512b32_imm8, &[REG, REG, MEM, BYTE], [Register::ZMM0; 4]),
        (Code::EVEX_Vbroadcastss_zmm_k1z_xmmm32, &[REG, MEM], [Register::ZMM0, Register::XMM0, NO, NO]),
        (Code::VEX_Vaddps_ymm_ymm_ymmm256, &[REG, REG, MEM], [Register::YMM0; 4]),
        (Code::VEX_Vfmadd213ps_xmm_xmm_xmmm128, &[REG, REG, MEM], [Register::XMM0; 4]),
        (Code::VEX_Vpsrlq_ymm_ymm_imm8, &[REG, REG, BYTE], [Register::YMM0; 4]),
        (Code::Mov_r64_rm64, &[REG, MEM], [Register::RAX; 4]),
        (Code::Mov_rm64_r64, &[MEM, REG], [Register::RAX; 4]),
        (Code::Mov_rm64_imm32, &[MEM, WORD], [Register::RAX; 4]),
        (Code::Add_r64_rm64, &[REG, MEM], [Register::RAX; 4]),
        (Code::Cmp_rm64_imm8, &[MEM, OpKind::Immediate8to64], [Register::RAX; 4]),
        (Code::Xor_rm32_imm8, &[MEM, OpKind::Immediate8to32], [Register::EAX; 4]),
        (Code::And_rm32_imm32, &[MEM, OpKind::Immediate32], [Register::EAX; 4]),
        (Code::Imul_r64_rm64, &[REG, MEM], [Register::RAX; 4]),
        (Code::Imul_r64_rm64_imm32, &[REG, MEM, WORD], [Register::RAX; 4]),
        (Code::Popcnt_r64_rm64, &[REG, MEM], [Register::RAX; 4]),
        (Code::Crc32_r32_rm32, &[REG, MEM], [Register::EAX; 4]),
        (Code::Shl_rm32_imm8, &[MEM, BYTE], [Register::EAX; 4]),
        (Code::Cmovg_r64_rm64, &[REG, MEM], [Register::RAX; 4]),
    ];
    const WORD: OpKind = OpKind::Immediate32to64;
    const REG: OpKind = OpKind::Register;
    const MEM: OpKind = OpKind::Memory;
    const BYTE: OpKind = OpKind::Immediate8;
    const NO: Register = Register::None;

    fn instruction(code: Code, kinds: &[OpKind], firsts: [Register; 4], filling: &Filling) -> Instruction {
        let mut instruction = Instruction::default();
        instruction.set_code(code);
        for (k, kind) in kinds.iter().enumerate() {
            let kind = if *kind == MEM && filling.memory.is_none() { REG } else { *kind };
            instruction.set_op_kind(k as u32, kind);
            if kind == REG {
                instruction.set_op_register(k as u32, firsts[k] + u32::from(filling.registers[k]));
            }
        }
        if let Some(k) = kinds.iter().position(|kind| ![REG, MEM].contains(kind)) {
            instruction.set_immediate_i64(k as u32, i64::from(filling.number));
        }
        match filling.memory {
            None => {}
            Some(Address::Code(place)) => {
                instruction.set_memory_base(Register::RIP);
                instruction.set_memory_displacement64(place as u64);
                instruction.set_memory_displ_size(1);
            }
            Some(Address::Behind(base, index, offset)) => {
                instruction.set_memory_base(Register::RAX + u32::from(base));
                if let Some((index, scale)) = index {
                    instruction.set_memory_index(Register::RAX + u32::from(index));
                    instruction.set_memory_index_scale(1 << scale);
                }
                instruction.set_memory_displacement64(i64::from(offset) as u64);
                instruction.set_memory_displ_size(u32::from(offset != 0));
            }
        }
        if filling.mask != 0 {
            instruction.set_op_mask(Register::K0 + u32::from(filling.mask));
            instruction.set_zeroing_masking(filling.zero);
        }
        instruction
    }

    fn check(code: Code, kinds: &[OpKind], firsts: [Register; 4], filling: &Filling) {
        let wanted = instruction(code, kinds, firsts, filling);
        let shape = if filling.memory.is_some() { Shape::Memory } else { Shape::Register };
        let form = Form::of(code, shape, || wanted).unwrap_or_else(|| panic!("{code:?} has a form"));
        assert_eq!(
            learn(wanted),
            Some(form),
            "a form does not depend on which instruction it is read off: {filling:?}"
        );
        let (mut bytes, mut encoder) = (vec![0; 64], Encoder::new(64));
        form.write(filling, &mut bytes);
        encoder.encode(&wanted, 64).unwrap_or_else(|e| panic!("{wanted:?}: {e}"));
        assert_eq!(bytes[64..], encoder.take_buffer(), "{code:?} {filling:?}");
    }

    #[test]
    fn bytes_are_those_of_iced() {
        for (code, kinds, firsts) in SAMPLES {
            let is_evex = format!("{code:?}").starts_with("EVEX");
            let (count, number) =
                (if is_evex { 32 } else { 16 }, if kinds.contains(&WORD) { -0x1234567 } else { 0x5a });
            let has_memory = kinds.contains(&MEM);
            for k in 0..count {
                let registers = [k, (k * 7 + 3) % count, (k * 5 + 1) % count, 0];
                // what is written to memory keeps what it does not write
                let mask = if is_evex { k % 8 } else { 0 };
                let zero = k % 2 == 1 && kinds[0] == REG;
                let filling = Filling { registers, memory: None, number, mask, zero };
                check(*code, kinds, *firsts, &filling);
                for offset in [0, 1, -4, 64, -128, 8128, 8192, -8192, 1 << 20] {
                    let index = [None, Some((9, 2)), Some((1, 0)), Some((13, 3))][usize::from(k % 4)];
                    for memory in [Address::Behind(k % 16, index, offset), Address::Code(offset)] {
                        let filling = Filling { memory: Some(memory), ..filling };
                        if has_memory {
                            check(*code, kinds, *firsts, &filling);
                        }
                    }
                }
            }
        }
    }
}
