//! Checks of lanes.

use fuseline::error::Result;
use fuseline::tensor::DType;
use iced_x86::{Code, OpKind};

use super::{Select, changed, def, used};
use crate::vector::{Binary, Compare, Ty, Value};
use crate::x64::machine::{Cond, Fold, Index, Mem, Operand, Reg, Size, What};

const Q: Size = Size::Qword;

impl Select<'_> {
    /// Lanes that are within their bound; others become 0 and, where the mask holds, a fault.
    pub(super) fn check_lanes(&mut self, value: Value, bound: Value, mask: Option<Value>, site: u32) -> Result<Reg> {
        let ty = self.program.ty(value);
        let value = self.reg(value)?;
        let mask = match mask {
            Some(mask) => self.reg(mask)?,
            None => self.shared(Ty::Mask, u64::from(self.program.lanes))?,
        };
        let good = self.within(ty, value, bound)?;
        let to = self.only(ty, good, value)?;
        let bad = self.combine_masks(Binary::AndNot, good, mask)?;
        let fine = self.function.label();
        self.test_mask(bad)?;
        self.push(What::Jump(Cond::Equal, fine), &[], Fold::Never);
        let bits = self.mask_bits(bad)?;
        let lane = self.function.reg(Q);
        self.code(Code::Tzcnt_r32_rm32, &[def(lane, Size::Dword), used(bits, Size::Dword)]);
        let slot = self.put_on_stack(value);
        let index = Index { reg: lane, size: Q, scale: ty.lane_bytes() as u8 };
        let lane = Mem { index: Some(index), ..Mem::slot(slot, 0) };
        let failed = self.read_number(lane, if ty == Ty::I64 { DType::I64 } else { DType::I32 })?;
        self.fail(failed, site);
        self.push(What::Label(fine), &[], Fold::Never);
        Ok(to)
    }

    /// Which lanes are in 0..bound.
    fn within(&mut self, ty: Ty, value: Reg, bound: Value) -> Result<Reg> {
        let most = if ty == Ty::I32 { 1 << 31 } else { i64::MAX };
        let last = match self.facts[bound].number {
            Some(n) => {
                let n = n.clamp(0, most) - 1;
                let last = self.shared(ty, if ty == Ty::I32 { u64::from(n as u32) } else { n as u64 })?;
                if n >= 0 {
                    // what is negative is above every bound, as unsigned
                    return self.compare_regs(Compare::LeUnsigned, ty, value, last);
                }
                last
            }
            None => {
                let bound = self.reg(bound)?;
                let last = self.last_below(ty, bound);
                self.spread(ty, last)?
            }
        };
        let zero = self.shared(ty, 0)?;
        let low = self.compare_regs(Compare::Le, ty, zero, value)?;
        let high = self.compare_regs(Compare::Le, ty, value, last)?;
        self.combine_masks(Binary::And, low, high)
    }

    /// The last integer below a bound that lanes can hold; −1 if there is none from 0.
    fn last_below(&mut self, ty: Ty, bound: Reg) -> Reg {
        let last = self.copy_of(bound);
        let zero = self.number(0);
        self.compare_number(last, 0);
        self.code(Code::Cmovl_r64_rm64, &[changed(last, Q), used(zero, Q)]);
        if ty == Ty::I32 {
            let most = self.number(1 << 31);
            self.code(Code::Cmp_r64_rm64, &[used(last, Q), used(most, Q)]);
            self.code(Code::Cmovg_r64_rm64, &[changed(last, Q), used(most, Q)]);
        }
        let one = Operand::Imm(OpKind::Immediate8to64, -1);
        self.code(Code::Add_rm64_imm8, &[changed(last, Q), one]);
        last
    }
}
