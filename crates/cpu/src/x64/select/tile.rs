//! Operations on tiles: AMX.

use fuseline::error::Result;
use iced_x86::Code;

use super::{Select, def};
use crate::vector::{Address, TILE_ROW_BYTES, TILE_ROWS, TILES, TileOp};
use crate::x64::machine::{Base, Fold, Index, Inst, Mem, Operand, Size, What};

impl Select<'_> {
    pub(super) fn tile(&mut self, op: &TileOp) -> Result<()> {
        self.configure();
        match *op {
            TileOp::Zero(tile) => self.code(Code::VEX_Tilezero_tmm, &[Operand::Tile(tile)]),
            TileOp::Load { tile, at, stride } => {
                let rows = self.tile_rows(&at, stride)?;
                self.code(Code::VEX_Tileloadd_tmm_sibmem, &[Operand::Tile(tile), rows]);
            }
            TileOp::Store { tile, at, stride } => {
                let rows = self.tile_rows(&at, stride)?;
                self.code(Code::VEX_Tilestored_sibmem_tmm, &[rows, Operand::Tile(tile)]);
            }
            TileOp::Products { sums, a, b } => {
                let tiles = [sums, a, b].map(Operand::Tile);
                self.code(Code::VEX_Tdpbf16ps_tmm_tmm_tmm, &tiles);
            }
        }
        Ok(())
    }

    /// Says once, in front of everything, that all tiles are whole.
    fn configure(&mut self) {
        if std::mem::replace(&mut self.function.tiles, true) {
            return;
        }
        let mut layout = [0u8; 64];
        layout[0] = 1;
        for tile in 0..usize::from(TILES) {
            // two bytes for the bytes of a row, far behind them one for the number of rows
            layout[16 + 2 * tile] = TILE_ROW_BYTES as u8;
            layout[48 + tile] = TILE_ROWS as u8;
        }
        let place = self.function.pool.place(&layout);
        let load = Inst::new(What::Code(Code::VEX_Ldtilecfg_m512), &[Operand::Mem(Mem::pool(place))], Fold::Never);
        self.preamble.push(load);
    }

    /// Rows in memory: the place of an index is that of the distance between them.
    fn tile_rows(&mut self, at: &Address, stride: i32) -> Result<Operand> {
        let mut mem = self.address(at)?;
        if mem.index.is_some() {
            let base = self.function.reg(Size::Qword);
            self.code(Code::Lea_r64_m, &[def(base, Size::Qword), Operand::Mem(mem)]);
            mem = Mem { base: Base::Reg(base), ..Mem::at(base, 0) };
        }
        let reg = self.number(i64::from(stride));
        Ok(Operand::Mem(Mem { index: Some(Index { reg, size: Size::Qword, scale: 1 }), ..mem }))
    }
}
