//! Attention whose products threads compute by themselves, for floats that units for matrices do not take as they are.
//!
//! A row of queries belongs to eight or sixteen lanes of a warp. Each of them sums the scores of some keys, four neighbours at a time, and later
//! some columns of the result; between both products, what scores have become lies in shared memory, where nobody but the same warp reads it.
//! Queries and keys lie there in lines along the head, so that four steps of a sum come with one access.

use fuseline::tensor::Dim;

use super::attention::{Attention, Shape, WIDEST};
use super::body::Body;
use super::nest::Nest;
use super::predict::By;

/// Threads along the rows of a block.
const DOWN: i64 = 16;

/// Keys that are worked on at a time.
const KEYS: i64 = 64;

/// The widest values whose rows belong to eight lanes.
const FEW_COLUMNS: i64 = 96;

/// Elements between lines in shared memory: those that lanes read at once lie in different banks.
const LINE_PAD: i64 = 4;
const WEIGHTS_PAD: i64 = 8;

/// Bytes of shared memory of a block, where capability is 9.0 and before it.
const MOST_SHARED: i64 = 227 * 1024;
const MOST_SHARED_BEFORE: i64 = 163 * 1024;

/// Bytes of shared memory of a multiprocessor, of which every block takes a little more than it asks for.
const ALL_SHARED: i64 = 228 * 1024;

/// With fewer queries than this, most of a block would have nothing to do.
const LEAST_ROWS: i64 = 16;

impl Shape {
    /// For threads that multiply by themselves; none where there are few queries, or where tiles do not fit.
    pub fn for_threads(nest: &Nest<'_>, counts: [&Dim; 2], widths: [i64; 2]) -> Option<Shape> {
        let [inner, columns] = widths;
        let [row_count, batches] = counts.map(|count| nest.options.about.apply(count).as_int());
        if inner > WIDEST || columns > WIDEST || row_count.is_some_and(|rows| rows < LEAST_ROWS) {
            return None;
        }
        let lanes = if columns <= FEW_COLUMNS { 8 } else { 16 };
        let width = (columns + 4 * lanes - 1) / (4 * lanes) * (4 * lanes);
        // What a thread holds must fit its registers.
        let most = if lanes == 16 && width <= 128 { 128 } else { 64 };
        let shape = |rows: i64| Shape {
            by: By::Rows,
            warps: DOWN * lanes / 32,
            lanes,
            rows,
            keys: KEYS,
            inner: (inner + 7) / 8 * 8,
            width,
        };
        let most_shared = if nest.options.groups { MOST_SHARED } else { MOST_SHARED_BEFORE };
        let fits = |rows: &i64| shape(*rows).bytes_for_threads() <= most_shared;
        // With fewer blocks than there is room for, they are made smaller. Where sizes are not known, there are many.
        let is_busy = |rows: &i64| match (row_count, batches) {
            (Some(count), Some(batches)) => {
                let blocks = ((count + rows - 1) / rows).saturating_mul(batches);
                blocks >= nest.options.processors * (16 / lanes)
            }
            _ => true,
        };
        let mut sizes = [most, most / 2, 32].into_iter().filter(fits);
        let largest = sizes.clone().find(is_busy).or_else(|| sizes.next_back())?;
        Some(shape(largest))
    }

    /// Rows of a warp that lie side by side.
    pub fn rows_of_warp(&self) -> i64 {
        32 / self.lanes
    }

    pub fn line_pitch(&self) -> i64 {
        self.inner + LINE_PAD
    }

    pub fn weights_pitch(&self) -> i64 {
        self.keys + WEIGHTS_PAD
    }

    /// Elements before the tiles of keys, of values and of weights, and in all.
    fn places(&self) -> [i64; 4] {
        let keys = self.rows * self.line_pitch();
        let values = keys + self.keys * self.line_pitch();
        let weights = values + self.keys * self.width;
        [keys, values, weights, weights + self.rows * self.weights_pitch()]
    }

    /// Bytes of all tiles where threads multiply.
    pub fn bytes_for_threads(&self) -> i64 {
        self.places()[3] * 4
    }

    /// Blocks that a multiprocessor holds, where threads multiply: as many as have the registers that they need.
    pub fn resident(&self) -> i64 {
        let registers = if self.slots() * (self.width + self.keys) / self.lanes <= 64 { 168 } else { 255 };
        (65536 / registers / self.threads()).min(MOST_SHARED / (self.bytes_for_threads() + 1024)).max(1)
    }
}

impl Attention<'_> {
    /// Bytes of shared memory with which so few blocks stay apart that none shares a multiprocessor while others have none: blocks that begin
    /// early would crowd where earlier launches have left room.
    pub(super) fn bytes_to_stay_apart(&self, nest: &Nest<'_>, blocks: &Dim) -> i64 {
        let processors = nest.options.processors;
        match nest.options.about.apply(blocks).as_int() {
            Some(blocks) if self.shape.by_threads() && blocks > 0 => {
                let together = (blocks + processors - 1) / processors;
                if together < self.shape.resident() { ALL_SHARED / (together + 1) } else { 0 }
            }
            _ => 0,
        }
    }

    /// Steps of a sum, four each, that are printed for each turn of a loop: as many as registers have room for.
    fn unrolled(&self) -> i64 {
        if self.shape.resident() == 1 && self.shape.width <= 128 { 4 } else { 2 }
    }

    /// Where tiles lie.
    pub(super) fn print_places(&self, body: &mut Body<'_>) {
        let [keys, values, weights, _] = self.shape.places();
        body.line(format!(
            "float* const queries = (float*)memory, *const keys = queries + {keys}, *const values = queries + {values}, *const weights = queries + {weights};"
        ));
    }

    /// Which rows and which lane of them a thread is. Two neighbouring lanes read the same keys and values.
    pub(super) fn print_sums_of_threads(&self, body: &mut Body<'_>) {
        let (slots, lanes, side) = (self.shape.slots(), self.shape.lanes, self.shape.rows_of_warp());
        body.line(format!(
            "const int lane_of_row = threadIdx.x / 2 % {lanes}, row_of_thread = threadIdx.x / 32 * {} + threadIdx.x % 32 / {} * 2 + threadIdx.x % 2;",
            slots * side,
            2 * lanes
        ));
        body.line(format!("float sums[{slots}][{}] = {{}};", self.shape.width / lanes));
    }

    /// Where the line of key AT lies.
    pub(super) fn place_of_key(&self) -> String {
        match self.neighbours {
            1 => "AT".to_owned(),
            count => format!("spread<{count}, {}>(AT)", self.shape.lanes),
        }
    }

    pub(super) fn print_first_product_of_threads(&self, body: &mut Body<'_>) {
        let Shape { keys, inner, lanes, .. } = self.shape;
        let (pitch, side) = (self.shape.line_pitch(), self.shape.rows_of_warp());
        body.line(format!("float scores[{}][{}] = {{}};", self.shape.slots(), keys / lanes));
        body.line(format!(
            "multiply_lines<{}, {inner}, {pitch}, {side}, {lanes}>(scores, queries + row_of_thread * {pitch}, keys + lane_of_row * {pitch});",
            self.unrolled()
        ));
    }

    /// What scores have become, where the lanes of their row read it.
    pub(super) fn print_weights(&self, body: &mut Body<'_>) {
        let (pitch, side, own) = (self.shape.weights_pitch(), self.shape.rows_of_warp(), self.neighbours);
        body.line(format!(
            "keep_lines<{pitch}, {side}, {own}, {}>(weights + row_of_thread * {pitch} + lane_of_row * {own}, scores);",
            own * self.shape.lanes
        ));
    }

    pub(super) fn print_second_product_of_threads(&self, body: &mut Body<'_>) {
        let Shape { keys, width, lanes, .. } = self.shape;
        let (pitch, side) = (self.shape.weights_pitch(), self.shape.rows_of_warp());
        body.line(format!(
            "multiply_weights<{}, {keys}, {pitch}, {side}, {width}, {}>(sums, weights + row_of_thread * {pitch}, values + lane_of_row * 4);",
            self.unrolled(),
            4 * lanes
        ));
    }

    /// Writes the sums where all threads can read them, row by row.
    pub(super) fn keep_sums_of_threads(&self, pitch: i64) -> String {
        let (side, lanes) = (self.shape.rows_of_warp(), self.shape.lanes);
        format!(
            "keep_lines<{pitch}, {side}, 4, {}>(results + row_of_thread * {pitch} + lane_of_row * 4, sums);",
            4 * lanes
        )
    }
}

#[cfg(test)]
mod tests {
    use fuseline::tensor::{Env, Symbol};
    use fuseline::tile::parse;

    use super::super::tests::made_for;
    use super::super::{Printed, print};

    /// Attention of f32 with these many queries for each of some heads, and an exponential.
    fn attention(heads: i64, queries: i64, exponential: &str) -> Printed {
        let text = format!(
            "kernel {{ axes i0: h, i1: n, i2: 100, i3: 40, i4: 40 in x0: f32[h, n, 40], x1: f32[h, 100, 40], x2: f32[h, 100, 40] \
            out y0: f32[h, n, 40] schedule attention first=%3 second=%8 rows=[i1] stream=[i2] inner=[i3] columns=[i4] tile=64x64x64 \
            %0 = load x0[i0, i1, i3] %1 = load x1[i0, i2, i3] %2 = load x2[i0, i2, i4] %3 = dot(%0, %1) over [i3] acc=f32 \
            %4 = map(%3) a * 0.125 %5 = reduce.max %4 over [i2] %6 = map(%4, %5) {exponential} \
            %7 = reduce.sum %6 over [i2] %8 = dot(%6, %2) over [i2] acc=f32 %9 = map(%8, %7) a / b store y0[i0, i1, i4] = %9 \
            correct %7 on %5 by exp(a - b) correct %8 on %5 by exp(a - b) }}"
        );
        let mut options = made_for(&Env::new());
        options.about = [("h", heads), ("n", queries)].map(|(name, n)| (Symbol::name(name), n)).into_iter().collect();
        print(&parse(&text).unwrap(), &options).unwrap()
    }

    #[test]
    fn scores_of_f32_are_not_stored_unless_queries_are_few() {
        let printed = attention(8, 4096, "exp(a - b)");
        assert_eq!((printed.launches.len(), printed.scratch.len()), (1, 0));
        assert!(printed.source().contains("a block owns 64 queries and walks along 64 keys at a time"));
        assert_eq!(attention(8, 1, "exp(a - b)").launches.len(), 3);
    }

    #[test]
    fn few_blocks_are_smaller_and_stay_apart() {
        let launch = |heads, queries| attention(heads, queries, "exp(a - b)").launches.remove(0);
        let (few, many) = (launch(12, 128), launch(64, 4096));
        assert!(few.shared >= 114 * 1024 && many.shared < 76 * 1024, "{} {}", few.shared, many.shared);
        assert_eq!((few.threads, many.threads), (128, 128));
        let tile = |heads, queries| attention(heads, queries, "exp(a - b)").source();
        assert!(
            tile(12, 128).contains("a block owns 32 queries") && tile(64, 4096).contains("a block owns 64 queries")
        );
    }

    #[test]
    fn exponentials_are_short_where_they_are_added_to_that_of_zero() {
        assert!(attention(8, 4096, "exp(a - b)").source().contains("exp_below(scores"));
        let other = attention(8, 4096, "exp(b - a)").source();
        assert!(!other.contains("exp_below(scores") && other.contains("expf("));
    }
}
