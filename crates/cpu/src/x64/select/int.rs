//! Integers.

use fuseline::error::{Error, Result};
use fuseline::tensor::DType;
use iced_x86::{Code, OpKind};

use super::{Select, changed, def, imm8, used};
use crate::vector::{Address, IntOp, Value};
use crate::x64::machine::{Base, Cond, Fold, Index, Mem, Operand, Reg, Size, What};

const Q: Size = Size::Qword;

impl Select<'_> {
    pub(super) fn int(&mut self, op: IntOp, a: Value, b: Value) -> Result<Reg> {
        let (a, b) = match op {
            IntOp::Add | IntOp::Mul | IntOp::And | IntOp::Or | IntOp::Xor | IntOp::Min | IntOp::Max | IntOp::Eq
                if self.facts[a].number.is_some() =>
            {
                (b, a)
            }
            _ => (a, b),
        };
        let number = self.facts[b].number;
        match op {
            IntOp::Add => self.sum(a, b, number),
            IntOp::Sub => match number.and_then(i64::checked_neg) {
                Some(n) if i32::try_from(n).is_ok() => self.sum(a, b, Some(n)),
                _ => self.change(a, b, Code::Sub_r64_rm64, Code::Sub_rm64_imm32),
            },
            IntOp::And => self.change(a, b, Code::And_r64_rm64, Code::And_rm64_imm32),
            IntOp::Or => self.change(a, b, Code::Or_r64_rm64, Code::Or_rm64_imm32),
            IntOp::Xor => self.change(a, b, Code::Xor_r64_rm64, Code::Xor_rm64_imm32),
            IntOp::Mul => self.product(a, b, number),
            IntOp::FloorDiv | IntOp::FloorMod => self.quotient(op == IntOp::FloorMod, a, b, number),
            IntOp::Min => self.better(a, b, Code::Cmovg_r64_rm64),
            IntOp::Max => self.better(a, b, Code::Cmovl_r64_rm64),
            IntOp::Shl => self.shifted(a, b, number, Code::Shl_rm64_imm8, Code::VEX_Shlx_r64_rm64_r64),
            IntOp::Shr => self.shifted(a, b, number, Code::Sar_rm64_imm8, Code::VEX_Sarx_r64_rm64_r64),
            IntOp::Lt => self.truth_of(a, b, Code::Setl_rm8),
            IntOp::Le => self.truth_of(a, b, Code::Setle_rm8),
            IntOp::Eq => self.truth_of(a, b, Code::Sete_rm8),
        }
    }

    fn sum(&mut self, a: Value, b: Value, number: Option<i64>) -> Result<Reg> {
        let a = self.reg(a)?;
        let b = match number {
            Some(n) if i32::try_from(n).is_ok() => Operand::Imm(OpKind::Immediate32to64, n),
            _ => used(self.reg(b)?, Q),
        };
        let to = self.function.reg(Q);
        self.push(What::Add, &[def(to, Q), used(a, Q), b], Fold::Never);
        Ok(to)
    }

    /// An operation that changes its first operand.
    fn change(&mut self, a: Value, b: Value, with: Code, with_number: Code) -> Result<Reg> {
        let a = self.reg(a)?;
        let number = self.facts[b].number.filter(|n| i32::try_from(*n).is_ok());
        let b = match number {
            Some(_) => None,
            None => Some(self.reg(b)?),
        };
        let to = self.copy_of(a);
        match (number, b) {
            (Some(n), _) => {
                let n = Operand::Imm(OpKind::Immediate32to64, n);
                self.push(What::Code(with_number), &[changed(to, Q), n], Fold::At(0));
            }
            (None, Some(b)) => self.push(What::Code(with), &[changed(to, Q), used(b, Q)], Fold::At(1)),
            (None, None) => {}
        }
        Ok(to)
    }

    fn product(&mut self, a: Value, b: Value, number: Option<i64>) -> Result<Reg> {
        let reg = self.reg(a)?;
        match number {
            Some(n @ (3 | 5 | 9)) => {
                let to = self.function.reg(Q);
                let index = Index { reg, size: Q, scale: n as u8 - 1 };
                let mem = Mem { base: Base::Reg(reg), index: Some(index), offset: 0, broadcast: false };
                self.code(Code::Lea_r64_m, &[def(to, Q), Operand::Mem(mem)]);
                Ok(to)
            }
            Some(n) if n > 0 && n.count_ones() == 1 => {
                Ok(self.shift_number(reg, n.trailing_zeros() as u8, Code::Shl_rm64_imm8))
            }
            Some(n) if i32::try_from(n).is_ok() => {
                let to = self.function.reg(Q);
                let n = Operand::Imm(OpKind::Immediate32to64, n);
                self.push(What::Code(Code::Imul_r64_rm64_imm32), &[def(to, Q), used(reg, Q), n], Fold::At(1));
                Ok(to)
            }
            _ => self.change(a, b, Code::Imul_r64_rm64, Code::INVALID),
        }
    }

    pub(super) fn shift_number(&mut self, from: Reg, by: u8, code: Code) -> Reg {
        let to = self.copy_of(from);
        self.push(What::Code(code), &[changed(to, Q), imm8(by)], Fold::At(0));
        to
    }

    fn shifted(&mut self, a: Value, b: Value, number: Option<i64>, by_number: Code, by: Code) -> Result<Reg> {
        let reg = self.reg(a)?;
        match number {
            Some(n) if (0..64).contains(&n) => Ok(self.shift_number(reg, n as u8, by_number)),
            _ => {
                let b = self.reg(b)?;
                let to = self.function.reg(Q);
                self.push(What::Code(by), &[def(to, Q), used(reg, Q), used(b, Q)], Fold::At(1));
                Ok(to)
            }
        }
    }

    /// Powers of two divide by shifts, which round down as they should.
    fn quotient(&mut self, modulo: bool, a: Value, b: Value, number: Option<i64>) -> Result<Reg> {
        let reg = self.reg(a)?;
        if let Some(n) = number.filter(|n| *n > 0 && n.count_ones() == 1) {
            let by = n.trailing_zeros() as u8;
            if !modulo {
                return Ok(self.shift_number(reg, by, Code::Sar_rm64_imm8));
            }
            if i32::try_from(n - 1).is_ok() {
                let to = self.copy_of(reg);
                let mask = Operand::Imm(OpKind::Immediate32to64, n - 1);
                self.push(What::Code(Code::And_rm64_imm32), &[changed(to, Q), mask], Fold::At(0));
                return Ok(to);
            }
            let up = self.shift_number(reg, 64 - by, Code::Shl_rm64_imm8);
            return Ok(self.shift_number(up, 64 - by, Code::Shr_rm64_imm8));
        }
        let b = self.reg(b)?;
        let to = self.function.reg(Q);
        let late = Operand::Reg(b, Q, crate::x64::machine::Role::Late);
        self.push(What::Divide { modulo }, &[def(to, Q), used(reg, Q), late], Fold::Never);
        Ok(to)
    }

    /// The first, or the second where the comparison says so.
    fn better(&mut self, a: Value, b: Value, code: Code) -> Result<Reg> {
        let (a, b) = (self.reg(a)?, self.reg(b)?);
        let to = self.copy_of(a);
        self.push(What::Code(Code::Cmp_r64_rm64), &[used(to, Q), used(b, Q)], Fold::At(1));
        self.push(What::Code(code), &[changed(to, Q), used(b, Q)], Fold::At(1));
        Ok(to)
    }

    /// Compares integers: the flags.
    pub(super) fn compare_ints(&mut self, a: Reg, b: Value) -> Result<()> {
        match self.facts[b].number.filter(|n| i32::try_from(*n).is_ok()) {
            Some(n) => self.compare_number(a, n),
            None => {
                let b = self.reg(b)?;
                self.push(What::Code(Code::Cmp_r64_rm64), &[used(a, Q), used(b, Q)], Fold::At(1));
            }
        }
        Ok(())
    }

    pub(super) fn compare_number(&mut self, a: Reg, n: i64) {
        let (code, kind) = match i8::try_from(n) {
            Ok(_) => (Code::Cmp_rm64_imm8, OpKind::Immediate8to64),
            Err(_) => (Code::Cmp_rm64_imm32, OpKind::Immediate32to64),
        };
        self.push(What::Code(code), &[used(a, Q), Operand::Imm(kind, n)], Fold::At(0));
    }

    fn truth_of(&mut self, a: Value, b: Value, set: Code) -> Result<Reg> {
        let a = self.reg(a)?;
        self.compare_ints(a, b)?;
        let to = self.function.reg(Q);
        self.code(set, &[def(to, Size::Byte)]);
        self.code(Code::Movzx_r32_rm8, &[def(to, Size::Dword), used(to, Size::Byte)]);
        Ok(to)
    }

    pub(super) fn choose(&mut self, which: Value, a: Value, b: Value) -> Result<Reg> {
        let (which, a, b) = (self.reg(which)?, self.reg(a)?, self.reg(b)?);
        let to = self.copy_of(b);
        self.code(Code::Test_rm64_r64, &[used(which, Q), used(which, Q)]);
        self.push(What::Code(Code::Cmovne_r64_rm64), &[changed(to, Q), used(a, Q)], Fold::At(1));
        Ok(to)
    }

    pub(super) fn read_int(&mut self, at: &Address, memory: DType) -> Result<Reg> {
        let mem = self.address(at)?;
        self.read_number(mem, memory)
    }

    /// An integer in memory, extended by its sign.
    pub(super) fn read_number(&mut self, mem: Mem, memory: DType) -> Result<Reg> {
        let (code, size) = match memory {
            DType::Bool | DType::U8 => (Code::Movzx_r32_rm8, Size::Dword),
            DType::I8 => (Code::Movsx_r64_rm8, Q),
            DType::U16 | DType::F16 | DType::BF16 => (Code::Movzx_r32_rm16, Size::Dword),
            DType::I16 => (Code::Movsx_r64_rm16, Q),
            DType::U32 | DType::F32 => (Code::Mov_r32_rm32, Size::Dword),
            DType::I32 => (Code::Movsxd_r64_rm32, Q),
            DType::I64 | DType::U64 | DType::F64 => (Code::Mov_r64_rm64, Q),
            _ => return Err(Error::unsupported(format!("reading {memory:?} as an integer"))),
        };
        let to = self.function.reg(Q);
        self.code(code, &[def(to, size), Operand::Mem(mem)]);
        Ok(to)
    }

    /// The value where it is within its bound, otherwise 0 and a fault.
    pub(super) fn check_int(&mut self, value: Value, bound: Value, site: u32) -> Result<Reg> {
        let value = self.reg(value)?;
        let to = self.copy_of(value);
        let (bad, done) = (self.function.label(), self.function.label());
        match self.facts[bound].number {
            // one unsigned comparison: what is negative is above every bound
            Some(n) if n > 0 && i32::try_from(n).is_ok() => {
                self.compare_number(to, n);
                self.push(What::Jump(Cond::Below, done), &[], Fold::Never);
            }
            _ => {
                self.compare_number(to, 0);
                self.push(What::Jump(Cond::Less, bad), &[], Fold::Never);
                self.compare_ints(to, bound)?;
                self.push(What::Jump(Cond::Less, done), &[], Fold::Never);
            }
        }
        self.push(What::Label(bad), &[], Fold::Never);
        self.fail(to, site);
        self.move_number(to, 0);
        self.push(What::Label(done), &[], Fold::Never);
        Ok(to)
    }

    /// Notes a fault, unless there is one already.
    pub(super) fn fail(&mut self, value: Reg, site: u32) {
        let known = self.function.label();
        let first = Operand::Imm(OpKind::Immediate8to64, 0);
        self.code(Code::Cmp_rm64_imm8, &[Operand::Mem(Mem::at(self.fault, 0)), first]);
        self.push(What::Jump(Cond::NotEqual, known), &[], Fold::Never);
        let site = Operand::Imm(OpKind::Immediate32to64, i64::from(site) + 1);
        self.code(Code::Mov_rm64_imm32, &[Operand::Mem(Mem::at(self.fault, 0)), site]);
        self.code(Code::Mov_rm64_r64, &[Operand::Mem(Mem::at(self.fault, 8)), used(value, Q)]);
        self.push(What::Label(known), &[], Fold::Never);
    }
}
