//! Conversions.

use fuseline::error::{Error, Result};

use super::{Select, def, used};
use crate::vector::{Binary, Convert, Routine, Ty, Value};
use crate::x64::machine::{Reg, Size};
use crate::x64::table::{self, Level, Row, rows};

impl Select<'_> {
    pub(super) fn convert(&mut self, how: Convert, to: Ty, a: Value) -> Result<Reg> {
        let from = self.program.ty(a);
        let (wider, size) = (self.wider(from, to)?, self.size(to)?);
        if let Some(row) = self.row_of(how, from, to)? {
            let a = self.source(a, row.lane)?;
            let reg = self.function.reg(size);
            self.op(row, wider, &[def(reg, size), a], 1)?;
            return Ok(reg);
        }
        let a = self.reg(a)?;
        self.convert_reg(how, from, to, a)
    }

    /// A register converted.
    pub(super) fn convert_reg(&mut self, how: Convert, from: Ty, to: Ty, a: Reg) -> Result<Reg> {
        let (wider, size, narrow) = (self.wider(from, to)?, self.size(to)?, self.size(from)?);
        if let Some(row) = self.row_of(how, from, to)? {
            let reg = self.function.reg(size);
            self.op(row, wider, &[def(reg, size), used(a, narrow)], 1)?;
            return Ok(reg);
        }
        match (how, from, to) {
            // the same bits, or the same type
            (Convert::Bits, ..) | (Convert::Float, Ty::F32, Ty::F32) | (Convert::Float, Ty::F64, Ty::F64) => Ok(a),
            (Convert::Low, ..) if self.level == Level::Avx2 => self.low_halves(a),
            (Convert::Low, ..) => {
                let reg = self.function.reg(size);
                let code = self.of_row(rows::NARROW_32, narrow)?;
                self.code(code, &[def(reg, size), used(a, narrow)]);
                Ok(reg)
            }
            (Convert::FloatUnsigned, Ty::I32, Ty::F32) => self.float_unsigned(a),
            (Convert::FloatUnsigned, Ty::I32, Ty::F64) => {
                // as signed integers, and what that took away added again: all of it is exact
                let sign = self.shared_int(i32::MIN)?;
                let shifted = self.two(Binary::Xor, Ty::I32, a, sign)?;
                let float = self.convert_reg(Convert::Float, Ty::I32, Ty::F64, shifted)?;
                let middle = self.shared_float(Ty::F64, 2_147_483_648.0)?;
                self.two(Binary::Add, Ty::F64, float, middle)
            }
            _ => {
                let routine =
                    routine(how, from, to).ok_or_else(|| Error::bug(format!("{how:?} from {from:?} to {to:?}")))?;
                self.call_regs(to, routine, &[(a, from)])
            }
        }
    }

    fn row_of(&self, how: Convert, from: Ty, to: Ty) -> Result<Option<Row>> {
        let size = self.wider(from, to)?;
        Ok(table::convert(how, from, to).filter(|row| row.code(self.level, size).is_some()))
    }

    fn wider(&self, from: Ty, to: Ty) -> Result<Size> {
        Ok(self.size(from)?.max(self.size(to)?))
    }

    /// Halves become floats exactly; their sum rounds once.
    fn float_unsigned(&mut self, a: Reg) -> Result<Reg> {
        let high = self.shift_by(Binary::ShrUnsigned, Ty::I32, a, 16)?;
        let low_half = self.shared_int(0xffff)?;
        let low = self.two(Binary::And, Ty::I32, a, low_half)?;
        let high = self.convert_reg(Convert::Float, Ty::I32, Ty::F32, high)?;
        let low = self.convert_reg(Convert::Float, Ty::I32, Ty::F32, low)?;
        let step = self.shared_float(Ty::F32, 65536.0)?;
        let high = self.two(Binary::Mul, Ty::F32, high, step)?;
        self.two(Binary::Add, Ty::F32, high, low)
    }
}

/// Conversions that AVX2 has no instructions for.
fn routine(how: Convert, from: Ty, to: Ty) -> Option<Routine> {
    let (call, name): (fn(&[u64]) -> u64, _) = match (how, from, to) {
        (Convert::Float, Ty::I64, Ty::F32) => (|a| u64::from((a[0] as i64 as f32).to_bits()), "i64 to f32"),
        (Convert::Float, Ty::I64, Ty::F64) => (|a| (a[0] as i64 as f64).to_bits(), "i64 to f64"),
        (Convert::FloatUnsigned, Ty::I64, Ty::F32) => (|a| u64::from((a[0] as f32).to_bits()), "u64 to f32"),
        (Convert::FloatUnsigned, Ty::I64, Ty::F64) => (|a| (a[0] as f64).to_bits(), "u64 to f64"),
        (Convert::Truncate, Ty::F32, Ty::I64) => {
            (|a| truncate(f64::from(f32::from_bits(a[0] as u32))) as u64, "f32 to i64")
        }
        (Convert::Truncate, Ty::F64, Ty::I64) => (|a| truncate(f64::from_bits(a[0])) as u64, "f64 to i64"),
        _ => return None,
    };
    Some(Routine { call, name })
}

/// Towards zero; the least integer where there is none.
fn truncate(x: f64) -> i64 {
    if x < 9_223_372_036_854_775_808.0 { x as i64 } else { i64::MIN }
}
