//! Memory lane by lane: gathers, scatters, and what AVX2 cannot do under a mask.

use fuseline::error::Result;
use fuseline::tensor::DType;
use iced_x86::Code;

use super::memory::{element, is_full};
use super::{Select, changed, def, imm8, used};
use crate::vector::{Address, Ty, Value};
use crate::x64::machine::{Base, Fold, Index, Masking, Mem, Operand, Reg, Role, Size, Slot, What};
use crate::x64::table::{self, Level, rows};

const Q: Size = Size::Qword;

/// Where the elements of lanes lie.
pub(super) enum Places {
    /// one behind another
    Consecutive(Mem),
    /// at indices, which lie on the stack, from a place
    At(Mem, Slot, Ty),
}

impl Select<'_> {
    pub(super) fn gather(&mut self, at: &Address, index: Value, memory: DType, mask: Option<Value>) -> Result<Reg> {
        let (ty, index_ty) = (element(memory)?, self.program.ty(index));
        let index = self.reg(index)?;
        let mask = mask.map(|m| self.reg(m)).transpose()?;
        let mem = self.plain_address(at)?;
        if !is_full(memory) {
            let indices = self.put_on_stack(index);
            let slot = self.lanes_to_stack(&Places::At(mem, indices, index_ty), memory, mask)?;
            return self.load_from(Mem::slot(slot, 0), memory, None);
        }
        let (size, index_size) = (self.size(ty)?, self.size(index_ty)?);
        let code = self.of_row(table::gather(index_ty.lane_bytes(), ty.lane_bytes()), size.max(index_size))?;
        let index = Index { reg: index, size: index_size, scale: ty.lane_bytes() as u8 };
        let mem = Operand::Mem(Mem { index: Some(index), ..mem });
        let to = self.function.reg(size);
        let again = Operand::Reg(to, size, Role::Again);
        let zero = self.of_row(rows::XOR, size)?;
        self.code(zero, &[def(to, size), again, again]);
        if self.level == Level::Avx512 {
            let masking = self.spent_mask(mask);
            self.push_masked(What::Code(code), &[changed(to, size), mem], Fold::Never, Some(masking));
            return Ok(to);
        }
        let mask = match mask {
            Some(mask) => {
                let wide = self.mask_for(ty, mask)?;
                self.copy_of(wide)
            }
            None => {
                let all = self.function.reg(size);
                let again = Operand::Reg(all, size, Role::Again);
                let equal = self.of_row(rows::EQUAL_32, size)?;
                self.code(equal, &[def(all, size), again, again]);
                all
            }
        };
        self.code(code, &[changed(to, size), mem, changed(mask, size)]);
        Ok(to)
    }

    /// AVX-512: a mask that an instruction may use up.
    fn spent_mask(&mut self, mask: Option<Reg>) -> Masking {
        let reg = match mask {
            Some(mask) => self.copy_of(mask),
            None => {
                let all = self.function.reg(Size::K);
                let again = Operand::Reg(all, Size::K, Role::Again);
                self.code(Code::VEX_Kxnorw_kr_kr_kr, &[def(all, Size::K), again, again]);
                all
            }
        };
        Masking { reg, zero: false, role: Role::Change }
    }

    pub(super) fn scatter(
        &mut self,
        at: &Address,
        index: Value,
        value: Value,
        memory: DType,
        mask: Option<Value>,
    ) -> Result<()> {
        let (ty, index_ty) = (self.program.ty(value), self.program.ty(index));
        let (index, from) = (self.reg(index)?, self.reg(value)?);
        let mask = mask.map(|m| self.reg(m)).transpose()?;
        let mem = self.plain_address(at)?;
        if self.level == Level::Avx512 && is_full(memory) {
            let (size, index_size) = (self.size(ty)?, self.size(index_ty)?);
            let code = self.of_row(table::scatter(index_ty.lane_bytes(), ty.lane_bytes()), size.max(index_size))?;
            let index = Index { reg: index, size: index_size, scale: ty.lane_bytes() as u8 };
            let mem = Operand::Mem(Mem { index: Some(index), ..mem });
            let masking = self.spent_mask(mask);
            self.push_masked(What::Code(code), &[mem, used(from, size)], Fold::Never, Some(masking));
            return Ok(());
        }
        let indices = self.put_on_stack(index);
        let slot = self.function.slot(self.program.lanes as usize * memory.bits() / 8);
        self.store_to(Mem::slot(slot, 0), ty, from, memory, None)?;
        self.lanes_from_stack(slot, &Places::At(mem, indices, index_ty), memory, mask)
    }

    /// An address that has room for an index.
    fn plain_address(&mut self, at: &Address) -> Result<Mem> {
        let mem = self.address(at)?;
        if mem.index.is_none() {
            return Ok(mem);
        }
        let base = self.function.reg(Q);
        self.code(Code::Lea_r64_m, &[def(base, Q), Operand::Mem(mem)]);
        Ok(Mem::at(base, 0))
    }

    /// Elements in memory, one behind another on the stack; 0 where the mask does not hold.
    pub(super) fn lanes_to_stack(&mut self, places: &Places, memory: DType, mask: Option<Reg>) -> Result<Slot> {
        let bytes = memory.bits() / 8;
        let slot = self.function.slot(self.program.lanes as usize * bytes);
        let zero = Mem::pool(self.function.pool.place(&0u64.to_le_bytes()));
        let mask = self.lane_mask(mask, zero)?;
        for lane in 0..self.program.lanes as usize {
            let from = self.lane_place(places, lane, bytes, mask)?;
            let number = self.read_number(from, memory)?;
            self.write_number(Mem::slot(slot, (lane * bytes) as i32), number, bytes);
        }
        Ok(slot)
    }

    /// The other way round; what the mask leaves out is not touched.
    pub(super) fn lanes_from_stack(
        &mut self,
        slot: Slot,
        places: &Places,
        memory: DType,
        mask: Option<Reg>,
    ) -> Result<()> {
        let bytes = memory.bits() / 8;
        let nowhere = Mem::slot(self.function.slot(8), 0);
        let mask = self.lane_mask(mask, nowhere)?;
        for lane in 0..self.program.lanes as usize {
            let number = self.read_number(Mem::slot(slot, (lane * bytes) as i32), memory)?;
            let to = self.lane_place(places, lane, bytes, mask)?;
            self.write_number(to, number, bytes);
        }
        Ok(())
    }

    /// The bits of a mask, and the address of what stands in for lanes outside of it.
    fn lane_mask(&mut self, mask: Option<Reg>, instead: Mem) -> Result<Option<(Reg, Reg)>> {
        let Some(mask) = mask else { return Ok(None) };
        let bits = self.mask_bits(mask)?;
        let address = self.function.reg(Q);
        self.code(Code::Lea_r64_m, &[def(address, Q), Operand::Mem(instead)]);
        Ok(Some((bits, address)))
    }

    fn lane_place(&mut self, places: &Places, lane: usize, bytes: usize, mask: Option<(Reg, Reg)>) -> Result<Mem> {
        let mem = match places {
            Places::Consecutive(mem) => mem.plus(lane * bytes),
            Places::At(mem, indices, ty) => {
                let from = Mem::slot(*indices, (lane * ty.lane_bytes()) as i32);
                let index = self.read_number(from, if *ty == Ty::I64 { DType::I64 } else { DType::I32 })?;
                Mem { index: Some(Index { reg: index, size: Q, scale: bytes as u8 }), ..*mem }
            }
        };
        let Some((bits, instead)) = mask else { return Ok(mem) };
        let address = self.function.reg(Q);
        self.code(Code::Lea_r64_m, &[def(address, Q), Operand::Mem(mem)]);
        self.code(Code::Bt_rm32_imm8, &[used(bits, Size::Dword), imm8(lane as u8)]);
        self.push(What::Code(Code::Cmovae_r64_rm64), &[changed(address, Q), used(instead, Q)], Fold::At(1));
        Ok(Mem { base: Base::Reg(address), index: None, offset: 0, broadcast: false })
    }
}
