//! Loads and stores of fours of elements that lie at even distances: the rows of a square that is turned in registers.

use fuseline::error::Result;
use fuseline::tensor::DType;

use super::memory::element;
use super::{Select, def, imm8, used};
use crate::vector::{Address, Value};
use crate::x64::machine::{Fold, Masking, Mem, Operand, Reg, Role, Size, What};
use crate::x64::table::{Level, rows};

/// Bytes of four elements.
const QUAD: usize = 16;

impl Select<'_> {
    /// The first four, then one part of the register after the other.
    pub(super) fn load_quads(&mut self, at: &Address, apart: u32, memory: DType) -> Result<Reg> {
        let mem = self.address(at)?;
        let (mut to, size) = self.fresh(element(memory)?)?;
        let load = self.of_row(rows::LOAD_32, Size::X)?;
        self.code(load, &[def(to, Size::X), Operand::Mem(mem)]);
        for quad in 1..size.bytes() / QUAD {
            let (from, insert) = (to, self.of_row(rows::INSERT, size)?);
            to = self.function.reg(size);
            let mem = Operand::Mem(quad_of(mem, apart, quad));
            self.code(insert, &[def(to, size), used(from, size), mem, imm8(quad as u8)]);
        }
        Ok(to)
    }

    pub(super) fn store_quads(
        &mut self,
        at: &Address,
        apart: u32,
        value: Value,
        memory: DType,
        mask: Option<Value>,
    ) -> Result<()> {
        let from = self.reg(value)?;
        let mask = mask.map(|mask| self.reg(mask)).transpose()?;
        let mem = self.address(at)?;
        let size = self.size(element(memory)?)?;
        for quad in 0..size.bytes() / QUAD {
            let mem = Operand::Mem(quad_of(mem, apart, quad));
            let Some(mask) = mask else {
                match quad {
                    0 => self.store_four(mem, from, None)?,
                    _ => self.extract(mem, from, size, quad)?,
                }
                continue;
            };
            // An extraction under a mask touches what the mask leaves out.
            let part = match quad {
                0 => from,
                _ => {
                    let part = self.function.reg(Size::X);
                    self.extract(def(part, Size::X), from, size, quad)?;
                    part
                }
            };
            self.store_four(mem, part, Some(mask))?;
        }
        Ok(())
    }

    fn extract(&mut self, to: Operand, from: Reg, size: Size, quad: usize) -> Result<()> {
        let extract = self.of_row(rows::EXTRACT, size)?;
        self.code(extract, &[to, used(from, size), imm8(quad as u8)]);
        Ok(())
    }

    /// The first four lanes, or some of them.
    fn store_four(&mut self, mem: Operand, from: Reg, mask: Option<Reg>) -> Result<()> {
        if let (Some(mask), Level::Avx2) = (mask, self.level) {
            let store = self.of_row(rows::MASK_STORE_32, Size::X)?;
            self.code(store, &[mem, used(mask, Size::X), used(from, Size::X)]);
            return Ok(());
        }
        let store = self.of_row(rows::STORE_32, Size::X)?;
        let masking = mask.map(|reg| Masking { reg, zero: false, role: Role::Use });
        self.push_masked(What::Code(store), &[mem, used(from, Size::X)], Fold::Never, masking);
        Ok(())
    }
}

/// Where the four elements with this number lie.
fn quad_of(mem: Mem, apart: u32, quad: usize) -> Mem {
    Mem { offset: mem.offset + (quad * apart as usize * (QUAD / 4)) as i32, ..mem }
}
