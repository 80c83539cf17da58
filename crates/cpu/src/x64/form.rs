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
    /// which operand's number stands in the middle of the byte behind the operation, in the prefix, and at the end of that byte; [`NO_OPERAND`]
    /// where none does
    reg: u8,
    prefix: u8,
    rm: u8,
    /// distances in memory count in 2 to the power of this
    shift: u8,
    broadcast: bool,
    /// bytes of the number behind it: 0, 1 or 4
    number: u8,
}

/// What is behind the operands: 0, as no register is.
const NO_OPERAND: u8 = 7;

/// What stands in an instruction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filling {
    /// numbers of registers, by operand, and zeros behind them
    pub registers: [u8; 8],
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
    pub fn of(code: Code, shape: Shape, sample: impl FnOnce() -> Instruction) -> Option<Packed> {
        let known = &KNOWN.get(code as usize)?[shape as usize];
        match known.load(Ordering::Relaxed) {
            0 => {
                let form = learn(sample()).map(Form::packed);
                known.store(form.map_or(ODD, |Packed(form)| form), Ordering::Relaxed);
                form
            }
            ODD => None,
            packed => Some(Packed(packed)),
        }
    }

    fn packed(self) -> Packed {
        let bytes = [
            // one bit that is always set
            4 | self.front as u8 | self.number << 5,
            self.map,
            u8::from(self.wide) << 7 | self.pp,
            self.length << 5 | u8::from(self.broadcast) << 4,
            self.opcode,
            self.digit | self.shift << 4,
            self.reg | self.prefix << 4,
            self.rm,
        ];
        Packed(u64::from_le_bytes(bytes))
    }
}

/// A form in eight bytes: what it is of, three bytes of EVEX without registers, the operation, and where everything else belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed(u64);

impl Packed {
    /// Writes an instruction.
    pub fn write(self, filling: &Filling, bytes: &mut Vec<u8>) {
        let [kind, map, wide, length, opcode, digit, fields, rm] = self.0.to_le_bytes();
        let number = |operand: u8| filling.registers[usize::from(operand & NO_OPERAND)];
        let (reg, prefix, rm) = ((digit & 15) | number(fields), number(fields >> 4), number(rm));
        // bits 3 and 4 of what the last byte names: of the register, or of base and index
        let (near, far) = match filling.memory {
            None => (rm >> 3 & 1, rm >> 4),
            Some(Address::Behind(base, index, _)) => (base >> 3, index.map_or(0, |(index, _)| index >> 3)),
            Some(Address::Code(_)) => (0, 0),
        };
        let mut line = Line::default();
        let inverted = (!reg >> 3 & 1) << 7 | (far ^ 1) << 6 | (near ^ 1) << 5 | map;
        let second = wide | (!prefix & 15) << 3;
        if kind & 3 == Front::Evex as u8 {
            let third = u8::from(filling.zero && filling.mask != 0) << 7 | length | (!prefix >> 4 & 1) << 3;
            line.push([0x62, inverted | (!reg >> 4 & 1) << 4, second | 4, third | filling.mask], 4);
        } else if kind & 3 == Front::Rex as u8 {
            rex(&mut line, [map, wide], [reg, near, far]);
        } else if near == 0 && far == 0 && map == 1 && wide & 0x80 == 0 {
            line.push([0xc5, (!reg >> 3 & 1) << 7 | second | length >> 3, 0, 0], 2);
        } else {
            line.push([0xc4, inverted, second | length >> 3, 0], 3);
        }
        let number_bytes = usize::from(kind >> 5);
        match filling.memory {
            None => line.push([opcode, 0xc0 | (reg & 7) << 3 | rm & 7, 0, 0], 2),
            Some(Address::Behind(base, index, offset)) => {
                behind(&mut line, [opcode, reg & 7, base & 7], index, offset, digit >> 4);
            }
            Some(Address::Code(place)) => {
                line.push([opcode, (reg & 7) << 3 | 5, 0, 0], 2);
                let end = bytes.len() + line.count + 4 + number_bytes;
                line.push((place - end as i32).to_le_bytes(), 4);
            }
        }
        line.push(filling.number.to_le_bytes(), number_bytes);
        // all of the line at once, and then no more than was written: a copy of known length
        let end = bytes.len() + line.count;
        bytes.extend_from_slice(&line.bytes);
        bytes.truncate(end);
    }
}

/// What stands in front of an operation on integers: 66, F3 or F2, REX, the bytes of the map.
fn rex(line: &mut Line, [map, wide]: [u8; 2], [reg, near, far]: [u8; 3]) {
    let pp = usize::from(wide & 3);
    line.push([PREFIXES[pp], 0, 0, 0], usize::from(pp != 0));
    let rex = wide >> 7 << 3 | (reg >> 3) << 2 | far << 1 | near;
    line.push([0x40 | rex, 0, 0, 0], usize::from(rex != 0));
    line.push([0x0f, MAPS[usize::from(map & 3)], 0, 0], usize::from(map.min(2)));
}

/// An operation with a place in memory.
fn behind(line: &mut Line, [opcode, reg, base]: [u8; 3], index: Option<(u8, u8)>, offset: i32, shift: u8) {
    let steps = offset >> shift;
    // 5 without a distance would mean something else
    let (mode, distance) = if offset == 0 && base != 5 {
        (0, 0)
    } else if steps << shift == offset && i8::try_from(steps).is_ok() {
        (1, 1)
    } else {
        (2, 4)
    };
    let scaled = match index {
        Some((index, scale)) => Some(scale << 6 | (index & 7) << 3 | base),
        // 4 alone would mean an index
        None => (base == 4).then_some(0x24),
    };
    let last = mode << 6 | reg << 3;
    match scaled {
        Some(scaled) => line.push([opcode, last | 4, scaled, 0], 3),
        None => line.push([opcode, last | base, 0, 0], 2),
    }
    line.push(if mode == 1 { steps } else { offset }.to_le_bytes(), distance);
}

/// The bytes that say what pp says, and those of maps.
const PREFIXES: [u8; 4] = [0, 0x66, 0xf3, 0xf2];
const MAPS: [u8; 4] = [0, 0x0f, 0x38, 0x3a];

/// An instruction that is being written.
#[derive(Default)]
struct Line {
    /// more than the 15 that an instruction has, as four are written at a time
    bytes: [u8; 20],
    count: usize,
}

impl Line {
    /// Some of four bytes.
    fn push(&mut self, bytes: [u8; 4], count: usize) {
        let at = self.count & 15;
        self.bytes[at..at + 4].copy_from_slice(&bytes);
        self.count += count;
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
    for (operand, number) in (0u8..).zip(numbers) {
        let Some(number) = number else { continue };
        match number {
            _ if number == reg => form.reg = operand,
            _ if number == prefix => form.prefix = operand,
            _ if number == rm && !has_memory => form.rm = operand,
            _ => return None,
        }
    }
    form.digit = if form.reg == NO_OPERAND { reg } else { 0 };
    let is_known =
        form.digit < 8 && (prefix == 0 || form.prefix != NO_OPERAND) && (has_memory || form.rm != NO_OPERAND);
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
        reg: NO_OPERAND,
        prefix: NO_OPERAND,
        rm: NO_OPERAND,
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
            learn(wanted).map(Form::packed),
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
                let registers = [k, (k * 7 + 3) % count, (k * 5 + 1) % count, 0, 0, 0, 0, 0];
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
