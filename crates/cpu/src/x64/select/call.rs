//! Routines, called for every lane or for some.

use fuseline::error::Result;
use iced_x86::Code;
use smallvec::SmallVec;

use super::{Select, def, used};
use crate::vector::{Routine, Ty, Value};
use crate::x64::machine::{CallSite, Cond, Fold, Lane, Mem, Operand, Reg, Size, Slot, What};
use crate::x64::table::Level;

impl Select<'_> {
    pub(super) fn call(&mut self, ty: Ty, routine: Routine, args: &[Value]) -> Result<Reg> {
        let arguments = self.put_arguments(args)?;
        let (to, size) = self.fresh(ty)?;
        let result = (self.function.slot(size.bytes()), self.lane(ty));
        self.invoke(CallSite { routine, arguments, result, only: None });
        self.take_from(to, result.0);
        Ok(to)
    }

    /// Nothing is called where the mask holds nowhere.
    pub(super) fn call_where(
        &mut self,
        ty: Ty,
        routine: Routine,
        mask: Value,
        args: &[Value],
        otherwise: Value,
    ) -> Result<Reg> {
        let (mask, otherwise) = (self.reg(mask)?, self.reg(otherwise)?);
        // what waits is loaded here, not only where something is called
        let args = args
            .iter()
            .map(|arg| Ok((self.reg(*arg)?, self.program.ty(*arg))))
            .collect::<Result<SmallVec<[_; 3]>>>()?;
        let to = self.copy_of(otherwise);
        let none = self.function.label();
        self.test_mask(mask)?;
        self.push(What::Jump(Cond::Equal, none), &[], Fold::Never);
        let result = (self.put_on_stack(to), self.lane(ty));
        let only = Some((self.put_on_stack(mask), self.lane(Ty::Mask)));
        let arguments = args.into_iter().map(|(reg, ty)| (self.put_on_stack(reg), self.lane(ty))).collect();
        self.invoke(CallSite { routine, arguments, result, only });
        self.take_from(to, result.0);
        self.push(What::Label(none), &[], Fold::Never);
        Ok(to)
    }

    /// The flags: equal if no lane holds.
    pub(super) fn test_mask(&mut self, mask: Reg) -> Result<()> {
        if self.level == Level::Avx512 {
            self.code(Code::VEX_Kortestw_kr_kr, &[used(mask, Size::K), used(mask, Size::K)]);
            return Ok(());
        }
        let bits = self.mask_bits(mask)?;
        self.code(Code::Test_rm32_r32, &[used(bits, Size::Dword), used(bits, Size::Dword)]);
        Ok(())
    }

    /// A mask as bits of an integer.
    pub(super) fn mask_bits(&mut self, mask: Reg) -> Result<Reg> {
        let to = self.function.reg(Size::Qword);
        let size = self.size(Ty::Mask)?;
        let code = match size {
            Size::K => Code::VEX_Kmovw_r32_kr,
            Size::Y => Code::VEX_Vmovmskps_r32_ymm,
            _ => Code::VEX_Vmovmskps_r32_xmm,
        };
        self.code(code, &[def(to, Size::Dword), used(mask, size)]);
        Ok(to)
    }

    fn put_arguments(&mut self, args: &[Value]) -> Result<Vec<(Slot, Lane)>> {
        args.iter()
            .map(|arg| {
                let reg = self.reg(*arg)?;
                Ok((self.put_on_stack(reg), self.lane(self.program.ty(*arg))))
            })
            .collect()
    }

    fn invoke(&mut self, site: CallSite) {
        self.function.calls.push(site);
        self.push(What::Call(self.function.calls.len() as u32 - 1), &[], Fold::Never);
    }

    /// A register's content on the stack.
    pub(super) fn put_on_stack(&mut self, reg: Reg) -> Slot {
        let size = self.function.sizes[reg.index()];
        let slot = self.function.slot(size.bytes());
        self.push(What::Copy, &[Operand::Mem(Mem::slot(slot, 0)), used(reg, size)], Fold::Never);
        slot
    }

    fn take_from(&mut self, to: Reg, slot: Slot) {
        let size = self.function.sizes[to.index()];
        self.push(What::Copy, &[def(to, size), Operand::Mem(Mem::slot(slot, 0))], Fold::Never);
    }

    fn lane(&self, ty: Ty) -> Lane {
        match (ty, self.level) {
            (Ty::Mask, Level::Avx512) => Lane::Bit,
            (Ty::Mask, Level::Avx2) => Lane::Truth,
            (Ty::F64 | Ty::I64 | Ty::Int, _) => Lane::Qword,
            (Ty::F32 | Ty::I32, _) => Lane::Dword,
        }
    }
}
