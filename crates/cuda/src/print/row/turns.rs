//! Turns over a row: in each, every thread has a pack of it.

use super::super::body::Body;
use super::super::code::Code;
use super::super::points::decode;
use super::Plan;
use super::hold::{HELD_BY_MANY, Place};

/// Turns that are written out where registers hold nothing of a row.
const MOST_UNROLLED: i64 = 8;

impl Plan<'_, '_> {
    /// The coordinates of a pack.
    pub(super) fn print_place(&self, body: &mut Body<'_>) {
        let count = self.lanes.count;
        let place = match (self.threads, self.turns) {
            (1, _) => "k".to_owned(),
            (_, Some(1)) => "t".to_owned(),
            (threads, _) => format!("k * {threads} + t"),
        };
        if let ([only], true) = (self.order.as_slice(), self.knows_lead()) {
            let behind = match self.turns {
                Some(1) => String::new(),
                _ => format!(" + k * {}", self.threads * count),
            };
            body.line(format!("const Index i{only} = lead{behind};"));
        } else if let [only] = self.order.as_slice() {
            let place = if count == 1 {
                place
            } else if place.len() > 1 {
                format!("({place}) * {count}")
            } else {
                format!("{place} * {count}")
            };
            let head = if self.nest.lines.is_some() { "head + " } else { "" };
            body.line(format!("const Index i{only} = {head}{place};"));
        } else {
            body.line(format!("const Index place = {place};"));
            decode(body, self.nest, &self.order, "place", Some(self.lanes));
        }
    }

    /// Ends the loop over turns; in the last one, some threads may have no pack.
    pub(super) fn close_loop(&self, body: &mut Body<'_>) {
        let packs = if self.nest.lines.is_some() { Code::atom("packs") } else { body.index(&self.packs, &[]) };
        let int = if self.nest.options.wide { "Index" } else { "int" };
        let head = match self.turns {
            Some(turns) if self.is_whole(turns) && turns == 1 => {
                "#pragma unroll\nfor (int k = 0; k < 1; ++k)".to_owned()
            }
            Some(turns) => {
                // Where nothing is read with a row that lies in shared memory, there are registers for all of its turns, unless one block has many threads.
                let is_apart = !self.fetched.is_empty() && self.weights() == 0 && self.blocks_at_once > 1;
                let is_apart = self.nest.lines.is_some() && is_apart && turns <= MOST_UNROLLED;
                let is_unrolled = self.place == Place::Registers || self.part.is_some() || is_apart;
                let unroll = if is_unrolled { "#pragma unroll" } else { "#pragma unroll 4" };
                let mut head = format!("{unroll}\nfor ({int} k = 0; k < {turns}; ++k)");
                if !self.is_whole(turns) {
                    let place = if self.threads == 1 { "k".to_owned() } else { format!("k * {} + t", self.threads) };
                    // Only the last turn has no place for some threads. To say so is a gain where instructions are what takes the time (f32 was slower).
                    let is_gain = self.is_near || self.nest.lines.is_some() || self.asks_at_once();
                    let surely = if is_unrolled && is_gain && turns > 1 {
                        format!("k < {} || ", turns - 1)
                    } else {
                        String::new()
                    };
                    head.push_str(&format!(" if ({surely}{place} < {packs})"));
                }
                head
            }
            None => format!("for (Index k = 0; k * {} + t < {packs}; ++k)", self.threads),
        };
        body.close(&head);
    }

    /// Whether all turns of a row of wide numbers are asked for at once: one block has the registers of a multiprocessor anyway. Where registers hold nothing but
    /// the row, the compiler leaves enough of them to a second block by itself.
    fn asks_at_once(&self) -> bool {
        self.held_bytes > HELD_BY_MANY && !self.is_all_held()
    }
}
