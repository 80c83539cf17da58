//! What attention reads with its scores (a mask, a bias): packs that are asked for before the threads of a block meet.

use fuseline::error::Result;
use fuseline::tile::{AxisSet, Op, StepId};

use super::attention::Attention;
use super::body::{Body, Lanes, pack_width};
use super::element;
use super::nest::{Nest, is_multiple};
use super::points::decode;

/// Bytes that a thread has room for beside scores and sums.
const AHEAD_BYTES: i64 = 64;

impl Attention<'_> {
    /// What is read with the scores of a tile before anything is done with it, so that nobody waits for it, and whether it varies over rows:
    /// packs that lie anywhere, as many as registers have room for.
    pub(super) fn ahead(&self, nest: &Nest<'_>) -> Vec<(StepId, bool)> {
        let (Some(inner), Some(held), true) = (self.stream.last(), self.held, self.shape.by_groups()) else {
            return Vec::new();
        };
        let lanes = Lanes { axis: *inner, count: self.neighbours };
        let rows: AxisSet = self.rows.iter().copied().collect();
        let (mut all, mut left) = (Vec::new(), AHEAD_BYTES);
        let is_whole = is_multiple(&Attention::count(nest, &self.stream), self.shape.keys);
        for id in self.read_by(nest, &[held], self.first) {
            let Op::Load { .. } = &nest.kernel.step(id).op else { continue };
            let access = nest.load(id);
            let is_plain = access.is_plain();
            let by_row = !nest.axes[id.index()].common(rows).is_empty();
            let slots = if by_row { self.shape.slots() } else { 1 };
            let bytes = self.shape.keys / 4 * slots * element::bytes(access.tensor.dtype);
            let is_narrow = pack_width(nest, access, lanes).is_none_or(|width| width < 4);
            if is_whole && is_plain && !is_narrow && bytes <= left && self.neighbours > 2 {
                left -= bytes;
                all.push((id, by_row));
            }
        }
        all
    }

    /// What was read ahead, for a row and a turn of the loop over its keys.
    pub(super) fn place_ahead(id: StepId, by_row: bool) -> String {
        format!("ahead{}{}[n]", id.0, if by_row { "[slot]" } else { "" })
    }

    /// Reads what goes with the scores of a tile.
    pub(super) fn print_ahead(&self, body: &mut Body<'_>) -> Result<()> {
        let nest = body.nest;
        let (all, turns) = (self.ahead(nest), self.shape.keys / 4 / self.neighbours);
        for (id, by_row) in &all {
            let ty = element::stored(nest.load(*id).tensor.dtype)?;
            let slots = if *by_row { format!("[{}]", self.shape.slots()) } else { String::new() };
            body.line(format!("Pack<{ty}, {}> ahead{}{slots}[{turns}];", self.neighbours, id.0));
        }
        for by_row in [false, true] {
            let own: Vec<StepId> = all.iter().filter(|(_, own)| *own == by_row).map(|(id, _)| *id).collect();
            if own.is_empty() {
                continue;
            }
            body.open(if by_row { self.rows.iter().copied().collect() } else { AxisSet::EMPTY });
            if by_row {
                self.print_row(body);
            }
            self.print_packs(body, &own, by_row)?;
            let head = format!("#pragma unroll\nfor (int slot = 0; slot < {}; ++slot)", self.shape.slots());
            body.close(if by_row { &head } else { "" });
        }
        Ok(())
    }

    fn print_packs(&self, body: &mut Body<'_>, own: &[StepId], by_row: bool) -> Result<()> {
        let Some(inner) = self.stream.last() else { return Ok(()) };
        let (count, keys) = (self.neighbours, self.shape.keys);
        let lanes = Lanes { axis: *inner, count };
        let stream: AxisSet = self.stream.iter().copied().collect();
        body.open(stream.without(AxisSet::of(*inner)));
        body.line(format!("const Index key = (Index)tile * {keys} + n * {} + threadIdx.x % 4 * {count};", count * 4));
        body.line(format!("const Index pack = key / {count};"));
        decode(body, body.nest, &self.stream, "pack", Some(lanes));
        for id in own {
            body.read_ahead(*id, lanes, &Attention::place_ahead(*id, by_row))?;
        }
        body.close(&format!("#pragma unroll\nfor (int n = 0; n < {}; ++n)", keys / 4 / count));
        Ok(())
    }
}
