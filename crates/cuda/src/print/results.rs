//! What becomes of the sums of a product, which lie in shared memory for a moment, so that whole packs are read and written.

use fuseline::error::Result;
use fuseline::tile::AxisSet;

use super::body::{Accumulator, Body, Lanes};
use super::points::decode;
use super::product::Product;

/// Sums in shared memory, at `results`, and who works on them.
pub(super) struct Sums<'a> {
    pub rows: i64,
    pub columns: i64,
    /// elements between rows
    pub pitch: i64,
    /// threads that share them, and which of these a thread is
    pub threads: i64,
    pub thread: &'a str,
    /// the first row and column
    pub place: (&'a str, &'a str),
    /// blocks of a cluster, each of which has a part of every sum
    pub parts: i64,
    /// how many turns are written out
    pub unroll: i64,
}

impl Sums<'_> {
    /// Prints all that is done with them.
    pub fn print(&self, body: &mut Body<'_>, product: &Product, stores: &[usize]) -> Result<()> {
        let nest = body.nest;
        let Sums { rows, columns, pitch, threads, thread, place: (row0, column0), parts, .. } = *self;
        // Every block of a cluster has results to store.
        let most = rows * columns / (threads * parts);
        let lanes = Lanes::of_results(nest, &product.columns, stores);
        let lanes = lanes.map(|lanes| Lanes { count: lanes.count.min(most.max(4)), ..lanes });
        let count = lanes.map_or(1, |lanes| lanes.count);
        body.lanes = lanes.filter(|lanes| lanes.count > 1);
        body.is_near = nest.is_near(stores);
        body.is_deep = true;
        let pieces = columns / count;
        body.open(AxisSet::EMPTY);
        body.line(format!("const int line = (turn * {threads} + {thread}) / {pieces};"));
        body.line(format!("const int piece = (turn * {threads} + {thread}) % {pieces};"));
        let all = |axes: &[usize]| nest.count(axes.iter().copied().collect());
        let (row_count, column_count) = (body.index(&all(&product.rows), &[]), body.index(&all(&product.columns), &[]));
        let axes: AxisSet = product.rows.iter().chain(&product.columns).copied().collect();
        body.open(body.lanes.map_or(axes, |lanes| axes.without(AxisSet::of(lanes.axis))));
        body.line(format!("const Index row = {row0} + line;"));
        body.line(format!("const Index pack = {column0} / {count} + piece;"));
        decode(body, nest, &product.rows, "row", None);
        decode(body, nest, &product.columns, "pack", lanes);
        for (k, dot) in product.dots.iter().enumerate() {
            let at = k as i64 * rows * pitch;
            let lane = if body.lanes.is_some() { " + l" } else { "" };
            let place = format!("{at} + line * {pitch} + piece * {count}");
            let name = match parts {
                1 => format!("results[{place}{lane}]"),
                _ => {
                    body.line(format!("float total{}[{count}];", dot.0));
                    body.line(format!("sum_of_parts<{parts}>(total{}, results + {place});", dot.0));
                    format!("total{}[{}]", dot.0, if body.lanes.is_some() { "l" } else { "0" })
                }
            };
            let result = Accumulator::of(nest, *dot).result(body, &name);
            if body.lanes.is_some() { body.know_in_lanes(*dot, result) } else { body.know(*dot, result) }
        }
        body.store_all(stores)?;
        body.close(&format!("if ({row0} + line < {row_count} && {column0} + piece * {count} < {column_count})"));
        let (turns, unroll) = (rows * pieces / threads, self.unroll);
        match parts {
            1 => body.close(&format!("#pragma unroll {unroll}\nfor (int turn = 0; turn < {turns}; ++turn)")),
            _ => {
                body.close(&format!("#pragma unroll {unroll}\nfor (int turn = part; turn < {turns}; turn += {parts})"));
                // Nobody leaves while others read.
                body.line("meet_cluster();");
            }
        }
        (body.lanes, body.is_near, body.is_deep) = (None, false, false);
        Ok(())
    }
}
