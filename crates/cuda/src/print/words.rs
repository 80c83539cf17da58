//! Results of a product that are computed where their sums are: a thread has two neighbours in each of two rows. They become narrow floats at
//! once, of which a warp makes lines of 128 bytes in shared memory, so that whole packs are written.

use fuseline::error::Result;
use fuseline::tile::{AxisSet, Op};

use super::body::{Accumulator, Body, Lanes, pack_width};
use super::element;
use super::nest::{Nest, is_multiple};
use super::points::decode;
use super::product::Product;

/// Columns of a line, and bytes of the lines that a warp has in shared memory at a time.
const COLUMNS: i64 = 64;
pub(super) const BYTES: i64 = 16 * COLUMNS * 2;

/// Elements that are written at once.
const PACK: i64 = 8;

/// Results that are computed where their sums are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words {
    row: usize,
    column: usize,
    /// the only store
    store: usize,
}

impl Words {
    /// Where that pays: one tensor of narrow floats with rows of whole packs, and nothing is read for every result, which would come by words.
    pub fn of(nest: &Nest<'_>, product: &Product, stores: &[usize]) -> Option<Words> {
        let (&[row], &[column], &[store]) = (product.rows.as_slice(), product.columns.as_slice(), stores) else {
            return None;
        };
        let access = &nest.stores[store].access;
        let dtype = access.tensor.dtype;
        let is_whole = is_multiple(&nest.extents[column], PACK) && access.checked.is_empty();
        let is_packed = pack_width(nest, access, Lanes { axis: column, count: PACK }) == Some(PACK);
        let needed = nest.needed(stores);
        let is_wide = |axes: AxisSet| axes.contains(row) && axes.contains(column);
        let is_read = |k: usize| !matches!(nest.kernel.steps[k].op, Op::Map { .. } | Op::Dot { .. });
        let reads = (0..needed.len()).any(|k| needed[k] && is_read(k) && is_wide(nest.axes[k]));
        let is_narrow = element::is_wrapped(dtype) && element::bytes(dtype) == 2;
        (is_whole && is_packed && is_narrow && !reads).then_some(Words { row, column, store })
    }

    /// Prints what becomes of `sums`. `row1` is the first row of a warp, `column0` the first column of all, and `lines` the place of a warp.
    pub fn print(self, body: &mut Body<'_>, product: &Product, columns: i64) -> Result<()> {
        let nest = body.nest;
        let lanes = Lanes { axis: self.column, count: 2 };
        body.open(AxisSet::EMPTY);
        body.line(format!("unsigned words[{}][2];", COLUMNS / 8));
        (body.lanes, body.is_near, body.is_deep) = (Some(lanes), nest.is_near(&[self.store]), true);
        self.print_words(body, product, lanes, columns)?;
        (body.lanes, body.is_near, body.is_deep) = (None, false, false);
        body.line("__syncwarp();");
        body.line("keep_words(shared_address(lines), words);");
        body.line("__syncwarp();");
        self.print_stores(body, product)?;
        body.close(&format!("#pragma unroll\nfor (int chunk = 0; chunk < {}; ++chunk)", columns / COLUMNS));
        Ok(())
    }

    /// Results of 64 columns, two of them in a word; tiles have `whole` columns.
    fn print_words(self, body: &mut Body<'_>, product: &Product, lanes: Lanes, whole: i64) -> Result<()> {
        let (nest, dot) = (body.nest, product.dots[0]);
        let ty = element::stored(nest.stores[self.store].access.tensor.dtype)?;
        body.open(AxisSet::EMPTY);
        body.open(AxisSet::of(self.row));
        let [rows, columns] = [self.row, self.column].map(|axis| body.index(&nest.count(AxisSet::of(axis)), &[]));
        // Those that are not there are computed of the last ones, and written by nobody.
        body.line(format!("const Index row = min(row1 + (int)threadIdx.x % 32 / 4 + half * 8, (Index)({rows}) - 1);"));
        let place = format!("column0 / 2 + chunk * {} + k * 4 + (int)threadIdx.x % 4", COLUMNS / 2);
        body.line(match is_multiple(&nest.extents[self.column], whole) {
            true => format!("const Index pack = {place};"),
            false => format!("const Index pack = min({place}, (Index)({columns}) / 2 - 1);"),
        });
        decode(body, nest, &product.rows, "row", None);
        decode(body, nest, &product.columns, "pack", Some(lanes));
        let sum = format!("sums{}[0][chunk * {} + k][half * 2 + l]", dot.0, COLUMNS / 8);
        let result = Accumulator::of(nest, dot).result(body, &sum);
        body.know_in_lanes(dot, result);
        body.open_lanes();
        let kept = body.keep(self.store)?;
        body.close_lanes();
        body.line(format!("words[k][half] = word_of<{ty}>({kept});"));
        body.close("#pragma unroll\nfor (int half = 0; half < 2; ++half)");
        body.close(&format!("#pragma unroll\nfor (int k = 0; k < {}; ++k)", COLUMNS / 8));
        Ok(())
    }

    /// Lines of shared memory into those of the tensor.
    fn print_stores(self, body: &mut Body<'_>, product: &Product) -> Result<()> {
        let nest = body.nest;
        let access = &nest.stores[self.store].access;
        let lanes = Lanes { axis: self.column, count: PACK };
        body.open(AxisSet::EMPTY);
        body.line(format!("const int line = turn * 4 + threadIdx.x % 32 / {PACK}, piece = threadIdx.x % {PACK};"));
        body.line("const Index row = row1 + line;");
        body.line(format!("const Index pack = column0 / {PACK} + chunk * {} + piece;", COLUMNS / PACK));
        let [rows, columns] = [self.row, self.column].map(|axis| body.index(&nest.count(AxisSet::of(axis)), &[]));
        body.open(AxisSet::of(self.row).with(self.column));
        decode(body, nest, &product.rows, "row", None);
        decode(body, nest, &product.columns, "pack", Some(lanes));
        let (tensor, offset) = body.address(access, None)?;
        let pack = format!("Pack<{}, {PACK}>", element::stored(access.tensor.dtype)?);
        body.line(format!("*({pack}*)({tensor} + {offset}) = *(const {pack}*)(lines + swizzled<16>(line, piece));"));
        body.close(&format!("if (row < {rows} && pack * {PACK} < {columns})"));
        body.close("#pragma unroll\nfor (int turn = 0; turn < 4; ++turn)");
        Ok(())
    }
}
