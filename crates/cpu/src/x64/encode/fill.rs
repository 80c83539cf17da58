//! Instructions of the machine with their operands, in places.

use iced_x86::{Code, Encoder, Instruction, OpKind, Register};

use super::{Coded, Encode};
use crate::x64::allocate::RSP;
use crate::x64::form::{Address, Filling, Form, Shape};
use crate::x64::machine::{Base, Index, Inst, Mem, Operand, Size};

impl Encode<'_> {
    fn memory(&self, instruction: &mut Instruction, mem: &Mem) {
        match mem.base {
            Base::Reg(reg) => {
                instruction.set_memory_base(self.register(reg, Size::Qword));
                instruction.set_memory_displacement64(mem.offset as i64 as u64);
            }
            Base::Slot(slot) => {
                instruction.set_memory_base(Register::RSP);
                instruction.set_memory_displacement64(self.frame.slot(slot) as u64 + mem.offset as i64 as u64);
            }
            Base::Pool => {
                instruction.set_memory_base(Register::RIP);
                instruction.set_memory_displacement64(mem.offset as u64);
            }
        }
        // 1: as short as the distance allows, and none where there is no distance
        let distance = instruction.memory_displacement64();
        instruction.set_memory_displ_size(u32::from(distance != 0 || mem.base == Base::Pool));
        if let Some(index) = mem.index {
            instruction.set_memory_index(self.register(index.reg, index.size));
            instruction.set_memory_index_scale(u32::from(index.scale));
        }
        instruction.set_is_broadcast(mem.broadcast);
    }

    pub(super) fn code(&mut self, code: Code, inst: &Inst, operands: &[Operand]) -> Coded {
        let mut filling = Filling::default();
        if let Some(shape) = self.fill(inst, operands, &mut filling)
            && let Some(form) = Form::of(code, shape, || self.instruction(code, inst, operands))
        {
            let at = self.bytes.len();
            form.write(&filling, &mut self.bytes);
            debug_assert_eq!(self.as_encoded(code, inst, operands, at), Some(self.bytes[at..].to_vec()), "{inst:?}");
            return Ok(());
        }
        self.emit(&self.instruction(code, inst, operands))
    }

    /// What [`Packed::write`](crate::x64::form::Packed::write) wrote at a place, as `iced` has it.
    fn as_encoded(&self, code: Code, inst: &Inst, operands: &[Operand], at: usize) -> Option<Vec<u8>> {
        let mut encoder = Encoder::new(64);
        encoder.encode(&self.instruction(code, inst, operands), at as u64).ok()?;
        Some(encoder.take_buffer())
    }

    /// Notes what stands in an instruction; no shape if it is one that has no form.
    fn fill(&self, inst: &Inst, operands: &[Operand], filling: &mut Filling) -> Option<Shape> {
        let mut shape = Shape::Register;
        for (register, operand) in filling.registers.iter_mut().zip(operands) {
            match operand {
                Operand::None => break,
                Operand::Reg(reg, ..) => *register = self.place(*reg),
                Operand::Imm(_, number) => filling.number = *number as i32,
                Operand::Mem(mem) => {
                    filling.memory = Some(self.address(mem)?);
                    shape = if mem.broadcast { Shape::Broadcast } else { Shape::Memory };
                }
                Operand::Tile(_) => return None,
            }
        }
        if let Some(mask) = inst.mask {
            (filling.mask, filling.zero) = (self.place(mask.reg), mask.zero);
        }
        Some(shape)
    }

    /// A place in memory; nothing if there are many, as vectors of indices have them.
    fn address(&self, mem: &Mem) -> Option<Address> {
        let index = match mem.index {
            None => None,
            Some(Index { reg, size: Size::Qword, scale }) => Some((self.place(reg), scale.ilog2() as u8)),
            Some(_) => return None,
        };
        Some(match (mem.base, index) {
            (Base::Reg(reg), index) => Address::Behind(self.place(reg), index, mem.offset),
            (Base::Slot(slot), index) => Address::Behind(RSP, index, self.frame.slot(slot) as i32 + mem.offset),
            (Base::Pool, None) => Address::Code(mem.offset),
            (Base::Pool, Some(_)) => return None,
        })
    }

    fn instruction(&self, code: Code, inst: &Inst, operands: &[Operand]) -> Instruction {
        let mut instruction = Instruction::default();
        instruction.set_code(code);
        for (at, operand) in (0u32..).zip(operands) {
            match operand {
                Operand::None => break,
                Operand::Reg(reg, size, _) => {
                    instruction.set_op_kind(at, OpKind::Register);
                    instruction.set_op_register(at, self.register(*reg, *size));
                }
                Operand::Imm(kind, number) => {
                    instruction.set_op_kind(at, *kind);
                    instruction.set_immediate_i64(at, *number);
                }
                Operand::Mem(mem) => {
                    instruction.set_op_kind(at, OpKind::Memory);
                    self.memory(&mut instruction, mem);
                }
                Operand::Tile(tile) => {
                    instruction.set_op_kind(at, OpKind::Register);
                    instruction.set_op_register(at, Register::TMM0 + u32::from(*tile));
                }
            }
        }
        if let Some(mask) = inst.mask {
            instruction.set_op_mask(self.register(mask.reg, Size::K));
            instruction.set_zeroing_masking(mask.zero);
        }
        instruction
    }
}
