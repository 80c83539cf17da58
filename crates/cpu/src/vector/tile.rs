//! What operations on tiles are.
#![allow(unsafe_code, reason = "rows of tiles are read and written where addresses say")]

use super::{TILE_ROW_BYTES, TILE_ROWS, TILES, TileOp};

const BYTES: usize = TILE_ROW_BYTES as usize;
const ROWS: usize = TILE_ROWS as usize;

/// Numbers of 4 bytes in a row.
const COLUMNS: usize = BYTES / 4;

/// The tiles of a call; none until the first is used.
#[derive(Debug, Default)]
pub(super) struct Tiles(Vec<[[u8; BYTES]; ROWS]>);

impl Tiles {
    /// Does an operation; `at` is where its memory lies, if it has some.
    ///
    /// # Safety
    ///
    /// The rows that it loads may be read, those that it stores may be written.
    pub unsafe fn run(&mut self, op: &TileOp, at: *mut u8) {
        if self.0.is_empty() {
            self.0 = vec![[[0; BYTES]; ROWS]; usize::from(TILES)];
        }
        match *op {
            TileOp::Zero(tile) => self.0[usize::from(tile)] = [[0; BYTES]; ROWS],
            TileOp::Load { tile, stride, .. } => {
                for (row, bytes) in self.0[usize::from(tile)].iter_mut().enumerate() {
                    // SAFETY: what the caller promises.
                    unsafe { at.offset(row as isize * stride as isize).copy_to(bytes.as_mut_ptr(), BYTES) }
                }
            }
            TileOp::Store { tile, stride, .. } => {
                for (row, bytes) in self.0[usize::from(tile)].iter().enumerate() {
                    // SAFETY: what the caller promises.
                    unsafe { at.offset(row as isize * stride as isize).copy_from(bytes.as_ptr(), BYTES) }
                }
            }
            TileOp::Products { sums, a, b } => self.multiply(usize::from(sums), usize::from(a), usize::from(b)),
        }
    }

    fn multiply(&mut self, sums: usize, a: usize, b: usize) {
        for row in 0..ROWS {
            for column in 0..COLUMNS {
                let mut parts = [0.0f32; 2];
                for pair in 0..ROWS {
                    for (half, part) in parts.iter_mut().enumerate() {
                        let x = term(&self.0[a][row], 2 * pair + half);
                        let y = term(&self.0[b][pair], 2 * column + half);
                        *part = flushed(x.mul_add(y, *part));
                    }
                }
                let place = &mut self.0[sums][row][4 * column..4 * column + 4];
                let old = f32::from_le_bytes([place[0], place[1], place[2], place[3]]);
                let sum = flushed(flushed(old) + flushed(parts[0] + parts[1]));
                place.copy_from_slice(&sum.to_le_bytes());
            }
        }
    }
}

/// A bf16 of a row.
fn term(row: &[u8; BYTES], place: usize) -> f32 {
    let bits = u16::from_le_bytes([row[2 * place], row[2 * place + 1]]);
    flushed(f32::from_bits(u32::from(bits) << 16))
}

/// The number, or 0 where it is subnormal.
pub(super) fn flushed(x: f32) -> f32 {
    if x.is_subnormal() { 0.0f32.copysign(x) } else { x }
}
