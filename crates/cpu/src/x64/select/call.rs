//! Routines, called for every lane or for some.

use fuseline::error::Result;
use smallvec::SmallVec;

use super::{Select, def, used};
use crate::vector::{Routine, Ty, Value};
use crate::x64::machine::{CallSite, Cond, Fold, Lane, Mem, Operand, Reg, Slot, What};
use crate::x64::table::Level;

impl Select<'_> {
    pub(super) fn call(&mut self, ty: Ty, routine: Routine, args: &[Value]) -> Result<Reg> {
        let args = self.arguments(args)?;
        self.call_regs(ty, routine, &args)
    }

    /// A routine for every lane of registers.
    pub(super) fn call_regs(&mut self, ty: Ty, routine: Routine, args: &[(Reg, Ty)]) -> Result<Reg> {
        let arguments = args.iter().map(|(reg, ty)| (self.put_on_stack(*reg), self.lane(*ty))).collect();
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
        let args = self.arguments(args)?;
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

    fn arguments(&mut self, args: &[Value]) -> Result<SmallVec<[(Reg, Ty); 3]>> {
        args.iter().map(|arg| Ok((self.reg(*arg)?, self.program.ty(*arg)))).collect()
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

    pub(super) fn take_from(&mut self, to: Reg, slot: Slot) {
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
