//! What attention multiplies, on its way into shared memory: its queries once, keys and values tile by tile.

use fuseline::error::Result;
use fuseline::tensor::Dim;

use super::attention::Attention;
use super::body::Body;
use super::nest::Nest;
use super::operand::Part;

impl Attention<'_> {
    pub(super) fn print_queries(&self, body: &mut Body<'_>) -> Result<()> {
        let nest = body.nest;
        let (rows, inner) = (Attention::count(nest, &self.rows), self.inner_count(nest));
        let (free, sum) = (("row0", &rows), ("0", &inner));
        let at = if self.shape.by_threads() { "queries" } else { "shared" };
        let part = Part { free, sum, tile: self.query_tile(), threads: self.shape.threads(), dealt: 2, at };
        match self.shape.by_threads() {
            true => self.queries.print_line_fill(body, &part, self.shape.line_pitch(), "AT"),
            false => self.queries.print_fill(body, &part),
        }
    }

    pub(super) fn inner_count(&self, nest: &Nest<'_>) -> Dim {
        nest.count(nest.folds[self.first.index()])
    }

    pub(super) fn print_keys(&self, body: &mut Body<'_>, at: &str) -> Result<()> {
        let nest = body.nest;
        let (stream, inner) = (Attention::count(nest, &self.stream), self.inner_count(nest));
        let (free, sum) = (("key0", &stream), ("0", &inner));
        let (tile, threads, dealt) = (self.key_tile(), self.shape.threads(), self.neighbours);
        let part = Part { free, sum, tile, threads, dealt, at };
        match self.shape.by_threads() {
            true => self.keys.print_line_fill(body, &part, self.shape.line_pitch(), &self.place_of_key()),
            false => self.keys.print_fill(body, &part),
        }
    }

    pub(super) fn print_values(&self, body: &mut Body<'_>, at: &str) -> Result<()> {
        let nest = body.nest;
        let (stream, width) = (Attention::count(nest, &self.stream), Attention::count(nest, &self.columns));
        let (free, sum) = (("0", &width), ("key0", &stream));
        let (tile, threads, dealt) = (self.value_tile(), self.shape.threads(), self.neighbours);
        let part = Part { free, sum, tile, threads, dealt, at };
        match self.shape.by_threads() {
            true => self.values.print_plain_fill(body, &part, self.shape.width),
            false => self.values.print_fill(body, &part),
        }
    }
}
