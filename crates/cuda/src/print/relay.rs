//! Products of large matrices by two groups of warps, so that units multiply for one of them while the other does what comes behind its sums.
//!
//! A block stays, and goes down a column of tiles. Blocks of the sum pass by in a circle, again and again, brought by one warp more and the engine
//! for copies; both groups take what passes, each for a tile of its own, from wherever it begins until all has passed once. The second begins
//! half a circle behind the first. So each has its results to itself while the other goes on multiplying, and yet both read the same columns while
//! both multiply: the cache that all processors share is asked for a third less than if each had its own. Neighbouring blocks share columns, too,
//! of which each brings a part for both.

use fuseline::error::Result;
use fuseline::tensor::{DType, Dim};
use fuseline::tile::{AxisSet, Op};

use super::body::Body;
use super::function::{Function, Grid};
use super::library::Matrix;
use super::nest::{Nest, is_multiple};
use super::operand::Operand;
use super::points::decode;
use super::product::Product;
use super::results::Sums;
use super::words::{self, Words};
use super::{Parameter, element};

/// Rows and columns of a tile, which a group has in registers.
pub(super) const ROWS: i64 = 64;
pub(super) const COLUMNS: i64 = 256;

/// Steps of the sum in a stage, and stages.
const DEPTH: i64 = 64;
const STAGES: i64 = 4;

/// Neighbouring blocks that share columns.
pub(super) const BLOCKS: i64 = 2;

/// Stages that pass by while a group does what comes behind its sums.
const REST: i64 = 6;

/// The fewest stages of a circle: no group may be met by the same stage twice before it has seen the other one begin.
const SHORTEST: i64 = 4;

/// Threads of both groups, and those with a third one, of which one thread brings factors and all leave their registers to the others.
const GROUPS: i64 = 256;
const THREADS: i64 = GROUPS + 128;

/// Columns of which a warp has sums in shared memory at a time, and elements between their rows.
const CHUNK: i64 = 64;
const PITCH: i64 = CHUNK + 4;

/// Elements of a line of a tile.
const LINE: i64 = 64;

/// A matrix of which tiles are brought: lines of 128 bytes, turned about as units read them, and zeros where nothing is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TileMap {
    /// where it lies, and how far its rows and the matrices of a batch are apart
    pub matrix: Matrix,
    /// elements of a row, rows, and matrices
    pub sizes: [Dim; 3],
    /// what its elements are
    pub dtype: DType,
    /// lines that are brought at once
    pub lines: i64,
}

/// A product as groups of warps make it in turns.
#[derive(Clone, Debug)]
pub(super) struct Relay {
    maps: [TileMap; 2],
}

impl Relay {
    /// The way to make a product of tiles that are large enough, where the engine for copies can bring both factors.
    pub fn of(nest: &Nest<'_>, product: &Product) -> Option<Relay> {
        let dots = nest.kernel.steps.iter().filter(|step| matches!(step.op, Op::Dot { .. }));
        let (&[row], &[column], &[step]) =
            (product.rows.as_slice(), product.columns.as_slice(), product.sum.as_slice())
        else {
            return None;
        };
        let batch = match product.batch.as_slice() {
            [] => None,
            [one] => Some(*one),
            _ => return None,
        };
        // Products of one factor with several others are joined into one launch instead.
        let ([right], 1, Some(1..)) = (product.right.as_slice(), dots.count(), nest.extents[step].as_int()) else {
            return None;
        };
        let map = |operand: &Operand, free: usize, lines: i64| -> Option<TileMap> {
            let (rows, along) = if operand.along_sum { (free, step) } else { (step, free) };
            let matrix = Matrix::of(operand.copied()?, rows, along, batch)?;
            let count = |axis: usize| nest.count(AxisSet::of(axis));
            let sizes = [count(along), count(rows), batch.map_or(Dim::int(1), count)];
            let lines = if operand.along_sum { lines } else { DEPTH };
            let is_apart = batch.is_none() || (is_multiple(&matrix.stride, LINE / 8) && !matrix.stride.is(0));
            let fits = matrix.is_aligned(operand.dtype) && is_apart && element::bytes(operand.dtype) * LINE == 128;
            fits.then_some(TileMap { matrix, sizes, dtype: operand.dtype, lines })
        };
        Some(Relay { maps: [map(&product.left, row, ROWS)?, map(right, column, COLUMNS / BLOCKS)?] })
    }
}

/// Bytes of a group's tile of the left factor in a stage, and of all tiles.
const LEFT: i64 = ROWS * DEPTH * 2;
const STAGE: i64 = 2 * LEFT + COLUMNS * DEPTH * 2;

/// Bytes of all stages, and of two places where each is awaited.
const ALL_STAGES: i64 = STAGES * STAGE;
const PLACES: i64 = STAGES * 2 * 8;

/// How stages pass by: how many there are in a circle, after how many a group begins its next tile, and how many the second one is behind.
struct Circle {
    round: i64,
    rest: i64,
    period: i64,
    behind: i64,
}

impl Circle {
    fn of(steps: i64) -> Circle {
        let round = ((steps + DEPTH - 1) / DEPTH).max(SHORTEST);
        let rest = REST.min(round);
        let period = round + rest;
        Circle { round, rest, period, behind: period / 2 }
    }
}

/// The function that computes some stores, which are a product and what is done with it.
pub(super) fn relay(nest: &Nest<'_>, stores: &[usize], product: &Product, sites: Vec<String>) -> Result<Function> {
    let maps = product.relay.as_ref().map_or_else(Vec::new, |relay| relay.maps.to_vec());
    let circle = Circle::of(product.steps(nest).as_int().unwrap_or(DEPTH));
    let words = Words::of(nest, product, stores);
    let kept = if words.is_some() { words::BYTES } else { 16 * PITCH * 4 };
    let mut body = Body::new(nest, None, sites);
    print_head(&mut body, GROUPS / 32 * kept);
    print_bringing(&mut body, product, &circle);
    print_groups(&mut body, product, &circle, words, stores)?;
    // Nobody leaves while others send to it.
    body.line("meet_cluster();");
    (0..maps.len()).for_each(|number| body.use_parameter(Parameter::Map(number)));
    let most = nest.options.processors / BLOCKS * BLOCKS;
    let grid = Grid {
        blocks: (product.tiles(nest) * BLOCKS).min_with(&Dim::int(most.max(BLOCKS))),
        threads: THREADS as u32,
        shared: (ALL_STAGES + GROUPS / 32 * kept + PLACES) as u32,
        least_blocks: Some(1),
        cluster: BLOCKS as u32,
    };
    let what = format!(
        "groups of four warps own {ROWS} x {COLUMNS} results each, {DEPTH} steps at a time; {BLOCKS} blocks share columns"
    );
    let mut function = Function::new(body, grid, what);
    function.maps = maps;
    Ok(function)
}

impl Product {
    /// How many tiles all blocks that share columns have together, one of each.
    pub(super) fn tiles(&self, nest: &Nest<'_>) -> Dim {
        let count = |axes: &[usize]| nest.count(axes.iter().copied().collect());
        let (down, across) = (Dim::int(ROWS * BLOCKS), Dim::int(COLUMNS));
        count(&self.rows).ceildiv(&down) * count(&self.columns).ceildiv(&across) * count(&self.batch)
    }
}

/// What all threads know: places where stages are awaited.
fn print_head(body: &mut Body<'_>, kept: i64) {
    body.line("extern __shared__ __align__(1024) unsigned char memory[];");
    body.line("const unsigned shared = shared_address(memory);");
    body.line(format!("unsigned long long* const filled = (unsigned long long*)(memory + {});", ALL_STAGES + kept));
    body.line(format!("unsigned long long* const emptied = filled + {STAGES};"));
    body.line("const int rank = rank_in_cluster();");
    body.line(format!("if (threadIdx.x == 0) begin_relay<{STAGES}, {}>(filled, emptied);", 2 * BLOCKS));
    body.line("meet_cluster();");
    body.line("after_earlier();");
}

/// Which tiles a block makes, column by column. Everybody finds that out for himself, since few registers are left to all.
fn print_share(body: &mut Body<'_>, product: &Product) {
    let nest = body.nest;
    let count = |axes: &[usize]| nest.count(axes.iter().copied().collect());
    let down = count(&product.rows).ceildiv(&Dim::int(ROWS * BLOCKS));
    let across = count(&product.columns).ceildiv(&Dim::int(COLUMNS));
    let [down, across] = [down, across].map(|dim| body.index(&dim, &[]).to_string());
    let batches = body.index(&count(&product.batch), &[]);
    let batches = if product.batch.is_empty() { String::new() } else { format!(" * (int)({batches})") };
    body.line(format!("const int down = {down}, across = {across}, all = down * across{batches};"));
    body.line(format!("const int many = (int)gridDim.x / {BLOCKS}, share = (all + many - 1) / many;"));
    body.line(format!("const int begin = (int)blockIdx.x / {BLOCKS} * share, end = min(all, begin + share);"));
}

/// The column of tiles from `task` on: from which row on, and how many of them are this block's.
fn print_column(body: &mut Body<'_>, product: &Product) {
    body.line("const int row0 = task % down;");
    let column = if product.batch.is_empty() { "task / down" } else { "task / down % across" };
    body.line(format!("const Index column0 = (Index)({column}) * {COLUMNS};"));
    if !product.batch.is_empty() {
        body.line("const Index batch = task / (down * across);");
    }
    body.line("count = min(end - task, down - row0);");
}

/// The first row of a tile, of those that a group makes of a column.
fn row_of(tile: &str, group: &str) -> String {
    format!("((row0 + {tile} * 2 + {group}) * {BLOCKS} + rank) * {ROWS}")
}

/// What goes down columns, until all tiles are done.
const ALONG_COLUMNS: &str = "for (int task = begin, count; task < end; task += count)";

/// A thread that asks for tiles of the factors, as soon as there is room.
fn print_bringing(body: &mut Body<'_>, product: &Product, circle: &Circle) {
    let Circle { round, period, behind, .. } = *circle;
    let batch = if product.batch.is_empty() { "0" } else { "(int)batch" };
    body.open(AxisSet::EMPTY);
    body.line("leave_registers();");
    body.open(AxisSet::EMPTY);
    print_share(body, product);
    body.line("int stage = 0, phase = 1;");
    body.open(AxisSet::EMPTY);
    print_column(body, product);
    body.line(format!("const int slots = slots_of<{round}, {period}, {behind}>(count);"));
    body.line(format!("int tile0 = 0, slot0 = 0, tile1 = -1, slot1 = {}, step = 0;", period - behind));
    body.open(AxisSet::EMPTY);
    body.line(format!("const bool is_first = slot0 < {round} && tile0 * 2 < count;"));
    body.line(format!("const bool is_second = tile1 >= 0 && slot1 < {round} && tile1 * 2 + 1 < count;"));
    body.line("wait_for_bytes(emptied + stage, phase);");
    body.line(format!("expect_bytes(filled + stage, {} + (is_first + is_second) * {LEFT});", STAGE - 2 * LEFT));
    body.line(format!("const unsigned to = shared + stage * {STAGE};"));
    let at = |along_sum: bool, free: &str| match along_sum {
        true => format!("step, {free}"),
        false => format!("{free}, step"),
    };
    for (group, condition) in ["is_first", "is_second"].into_iter().enumerate() {
        let row = row_of(&format!("tile{group}"), &group.to_string());
        let place = at(product.left.along_sum, &row);
        let to = group as i64 * LEFT;
        body.line(format!("if ({condition}) bring_tile(to + {to}, &m0, {place}, {batch}, filled + stage);"));
    }
    let (own, to_all) = (COLUMNS / BLOCKS, format!("bring_tile_to_all<{BLOCKS}>"));
    if product.right[0].along_sum {
        let place = at(true, &format!("(int)column0 + rank * {own}"));
        let to = format!("to + {} + rank * {}", 2 * LEFT, own * LINE * 2);
        body.line(format!("{to_all}({to}, &m1, {place}, {batch}, filled + stage);"));
    } else {
        body.open(AxisSet::EMPTY);
        let place = at(false, &format!("(int)column0 + rank * {own} + panel * {LINE}"));
        let to = format!("to + {} + (rank * {} + panel) * {}", 2 * LEFT, own / LINE, DEPTH * LINE * 2);
        body.line(format!("{to_all}({to}, &m1, {place}, {batch}, filled + stage);"));
        body.close(&format!("#pragma unroll\nfor (int panel = 0; panel < {}; ++panel)", own / LINE));
    }
    body.line(format!("if (++stage == {STAGES}) stage = 0, phase ^= 1;"));
    body.line(format!("if ((step += {DEPTH}) == {}) step = 0;", round * DEPTH));
    for group in 0..2 {
        body.line(format!("if (++slot{group} == {period}) slot{group} = 0, ++tile{group};"));
    }
    body.close("for (int slot = 0; slot < slots; ++slot)");
    body.close(ALONG_COLUMNS);
    body.close(&format!("if (threadIdx.x == {GROUPS})"));
    body.close(&format!("if (threadIdx.x >= {GROUPS})"));
}

/// Both groups, each with every second tile of a column.
fn print_groups(
    body: &mut Body<'_>,
    product: &Product,
    circle: &Circle,
    words: Option<Words>,
    stores: &[usize],
) -> Result<()> {
    let Circle { round, period, behind, .. } = *circle;
    body.open(AxisSet::EMPTY);
    body.line("take_registers();");
    print_share(body, product);
    body.line("const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);");
    let own = |bytes: i64| format!("memory + {ALL_STAGES} + threadIdx.x / 32 * {bytes}");
    body.line(match words {
        Some(_) => format!("unsigned char* const lines = {};", own(words::BYTES)),
        None => format!("float* const results = (float*)({});", own(16 * PITCH * 4)),
    });
    body.line(match period - behind {
        edge if edge == behind => format!("const int edge = {edge};"),
        edge => format!("const int edge = group ? {edge} : {behind};"),
    });
    body.line("int turns = 0;");
    body.line("bool waits = group;");
    body.open(AxisSet::EMPTY);
    print_column(body, product);
    if !product.batch.is_empty() {
        decode(body, body.nest, &product.batch, "batch", None);
        body.bind(product.batch.iter().copied().collect());
    }
    body.line("const int own = (count + 1 - group) / 2;");
    body.open(AxisSet::EMPTY);
    print_sums(body, product, circle)?;
    body.line(format!("const Index row1 = (Index){} + threadIdx.x / 32 % 4 * 16;", row_of("tile", "group")));
    match words {
        Some(words) => words.print(body, product, COLUMNS)?,
        None => print_results(body, product, stores)?,
    }
    body.close("for (int tile = 0; tile < own; ++tile)");
    // The first group has seen the end of a column where it made the last tile.
    body.line("if (group == 0) waits = count % 2 == 0;");
    body.line(format!("turns += slots_of<{round}, {period}, {behind}>(count);"));
    body.close(ALONG_COLUMNS);
    body.close(&format!("if (threadIdx.x < {GROUPS})"));
    Ok(())
}

/// A group multiplies what passes by, for one of its tiles.
fn print_sums(body: &mut Body<'_>, product: &Product, circle: &Circle) -> Result<()> {
    let Circle { round, rest, period, behind } = *circle;
    let (dot, ty) = (product.dots[0].0, element::stored(product.left.dtype)?);
    let (left, right) = (&product.left, &product.right[0]);
    // Whether the other group is there at first, and whether it begins a tile meanwhile; then it is told that it may look for its first stage,
    // and so it is before the next column.
    body.line("const bool is_met = group || tile > 0, meets = tile * 2 + group + 1 < count;");
    let last = round - 1;
    body.line(format!(
        "const int tells = meets ? edge - 1 : group && task + count < end && count % 2 == 0 ? {last} : -1;"
    ));
    body.line(format!("float sums{dot}[1][{}][4] = {{}};", COLUMNS / 8));
    body.line("if (waits) await_turn(group);");
    body.line("waits = true;");
    body.line(format!("const int first = turns + tile * {period} + group * {behind};"));
    body.line(format!("int stage = first % {STAGES}, phase = first / {STAGES} % 2, before = 0, left = 0;"));
    body.open(AxisSet::EMPTY);
    body.line("wait_for_bytes(filled + stage, phase);");
    body.line(format!("const unsigned from = shared + stage * {STAGE};"));
    body.line("begin_group();");
    let lines = |operand: &Operand, free: i64| operand.lines((free, DEPTH));
    let settings =
        format!("{DEPTH}, {}, {}, {}, {}", left.along_sum, lines(left, ROWS), right.along_sum, lines(right, COLUMNS));
    let places = format!("from + group * {LEFT}, 0, from + {}, 0", 2 * LEFT);
    body.line(format!("multiply_group_{ty}_{COLUMNS}<{settings}>(sums{dot}, {places});"));
    body.line("commit_group();");
    body.line("if (step == tells) give_turn(1 - group);");
    body.line("wait_for_groups<1>();");
    body.line(format!("if (step > 0) let_go<{BLOCKS}>(emptied + before, left);"));
    // Who is alone lets go of a stage for both.
    body.line(format!("left = (step < edge ? step < edge - {rest} && is_met : meets) ? 1 : 2;"));
    body.line("before = stage;");
    body.line(format!("if (++stage == {STAGES}) stage = 0, phase ^= 1;"));
    body.close(&format!("#pragma unroll 1\nfor (int step = 0; step < {round}; ++step)"));
    body.line("wait_for_groups<0>();");
    body.line(format!("let_go<{BLOCKS}>(emptied + before, left);"));
    Ok(())
}

/// What becomes of the sums, some columns at a time: every warp has its own place in shared memory.
fn print_results(body: &mut Body<'_>, product: &Product, stores: &[usize]) -> Result<()> {
    let dot = product.dots[0];
    body.open(AxisSet::EMPTY);
    body.line("__syncwarp();");
    body.line(format!("keep_columns<{PITCH}, {}>(results, sums{}, chunk * {});", CHUNK / 8, dot.0, CHUNK / 8));
    body.line("__syncwarp();");
    body.line(format!("const Index column1 = column0 + chunk * {CHUNK};"));
    let sums = Sums {
        rows: 16,
        columns: CHUNK,
        pitch: PITCH,
        threads: 32,
        thread: "threadIdx.x % 32",
        place: ("row1", "column1"),
        parts: 1,
        unroll: 4,
    };
    sums.print(body, product, stores)?;
    body.close(&format!("#pragma unroll\nfor (int chunk = 0; chunk < {}; ++chunk)", COLUMNS / CHUNK));
    Ok(())
}
