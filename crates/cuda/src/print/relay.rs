//! Products of large matrices by two groups of warps in turns: while units multiply for one of them, the other does what comes behind its sums.
//!
//! A block stays and takes tile after tile. One warp more brings tiles of the factors, by the engine for copies; neighbouring blocks share
//! columns, of which each brings a part for all. No thread of a group waits for more than its own tiles, so that neither what comes behind
//! a product nor the way of its results to memory keeps units from multiplying.

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
use super::{Parameter, element};

/// Rows and columns of a tile, which a group has in registers.
pub(super) const ROWS: i64 = 64;
pub(super) const COLUMNS: i64 = 256;

/// Steps of the sum in a stage, and stages.
const DEPTH: i64 = 64;
const STAGES: i64 = 4;

/// Neighbouring blocks that share columns.
pub(super) const BLOCKS: i64 = 2;

/// Rows of pairs of tiles that blocks which run together have among them: with eight, 4096×1024×4096 took 59.2 µs on an H200, with four 57.8.
const BAND: i64 = 4;

/// Threads of both groups, and those with the warp that brings factors.
const GROUPS: i64 = 256;
const THREADS: i64 = GROUPS + 32;

/// Columns of which a warp has sums in shared memory at a time, and elements between their rows.
const CHUNK: i64 = 64;
const PITCH: i64 = CHUNK + 8;

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

/// Bytes of the tiles of both factors in a stage.
const LEFT: i64 = ROWS * DEPTH * 2;
const STAGE: i64 = LEFT + COLUMNS * DEPTH * 2;

/// Bytes of all stages, with two places behind them where each is awaited.
const ALL_STAGES: i64 = STAGES * STAGE;
const PLACES: i64 = STAGES * 2 * 8;

/// The function that computes some stores, which are a product and what is done with it.
pub(super) fn relay(nest: &Nest<'_>, stores: &[usize], product: &Product, sites: Vec<String>) -> Result<Function> {
    let maps = product.relay.as_ref().map_or_else(Vec::new, |relay| relay.maps.to_vec());
    let mut body = Body::new(nest, None, sites);
    print_head(&mut body, product);
    print_bringing(&mut body, product);
    body.open(AxisSet::EMPTY);
    print_sums(&mut body, product)?;
    print_results(&mut body, product, stores)?;
    body.close(&format!("for (int task = (int)blockIdx.x / {BLOCKS} + group * many; task < all; task += 2 * many)"));
    body.close(&format!("if (threadIdx.x < {GROUPS})"));
    // Nobody leaves while others send to it.
    body.line("meet_cluster();");
    (0..maps.len()).for_each(|number| body.use_parameter(Parameter::Map(number)));
    let most = nest.options.processors / BLOCKS * BLOCKS;
    let grid = Grid {
        blocks: (product.tiles(nest) * BLOCKS).min_with(&Dim::int(most.max(BLOCKS))),
        threads: THREADS as u32,
        shared: (ALL_STAGES + PLACES + GROUPS / 32 * 16 * PITCH * 4) as u32,
        least_blocks: Some(1),
        cluster: BLOCKS as u32,
    };
    let what = format!(
        "groups of four warps own {ROWS} x {COLUMNS} results in turns, {DEPTH} steps at a time; {BLOCKS} blocks share columns"
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

/// What all threads know, and places where tiles are awaited.
fn print_head(body: &mut Body<'_>, product: &Product) {
    let nest = body.nest;
    let count = |axes: &[usize]| nest.count(axes.iter().copied().collect());
    let down = count(&product.rows).ceildiv(&Dim::int(ROWS * BLOCKS));
    let across = count(&product.columns).ceildiv(&Dim::int(COLUMNS));
    let steps = count(&product.sum).ceildiv(&Dim::int(DEPTH));
    let [down, across, steps] = [down, across, steps].map(|dim| body.index(&dim, &[]).to_string());
    let batches = body.index(&count(&product.batch), &[]);
    let batches = if product.batch.is_empty() { String::new() } else { format!(" * (int)({batches})") };
    body.line("extern __shared__ __align__(1024) unsigned char memory[];");
    body.line("const unsigned shared = shared_address(memory);");
    body.line(format!("unsigned long long* const filled = (unsigned long long*)(memory + {ALL_STAGES});"));
    body.line(format!("unsigned long long* const emptied = filled + {STAGES};"));
    body.line("const int rank = rank_in_cluster();");
    body.line(format!("if (threadIdx.x == 0) begin_relay<{STAGES}, {BLOCKS}>(filled, emptied);"));
    body.line("meet_cluster();");
    body.line("after_earlier();");
    body.line(format!("const int down = {down}, across = {across}, all = down * across{batches};"));
    body.line(format!("const int steps = {steps}, many = (int)gridDim.x / {BLOCKS};"));
}

/// Which tile it is: by bands of rows, so that blocks that run together share what they read.
fn print_place(body: &mut Body<'_>, product: &Product) {
    body.line("const int tile = task % (down * across);");
    let least = format!("min({BAND}, down - band)");
    body.line(format!("const int band = tile / ({BAND} * across) * {BAND}, height = {least};"));
    let place = format!("tile % ({BAND} * across)");
    body.line(format!(
        "const Index row0 = (Index)((band + {place} % height) * {BLOCKS} + rank) * {ROWS}, column0 = (Index)({place} / height) * {COLUMNS};"
    ));
    if !product.batch.is_empty() {
        body.line("const Index batch = task / (down * across);");
    }
}

/// A thread that asks for tiles of the factors, as soon as there is room.
fn print_bringing(body: &mut Body<'_>, product: &Product) {
    let batch = if product.batch.is_empty() { "0" } else { "(int)batch" };
    body.open(AxisSet::EMPTY);
    body.line("int stage = 0, phase = 1;");
    body.open(AxisSet::EMPTY);
    print_place(body, product);
    body.open(AxisSet::EMPTY);
    body.line("wait_for_bytes(emptied + stage, phase);");
    body.line(format!("expect_bytes(filled + stage, {STAGE});"));
    body.line(format!("const unsigned to = shared + stage * {STAGE};"));
    let at = |along_sum: bool, free: &str| match along_sum {
        true => format!("step * {DEPTH}, {free}"),
        false => format!("{free}, step * {DEPTH}"),
    };
    let place = at(product.left.along_sum, "(int)row0");
    body.line(format!("bring_tile(to, &m0, {place}, {batch}, filled + stage);"));
    let (own, to_all) = (COLUMNS / BLOCKS, format!("bring_tile_to_all<{BLOCKS}>"));
    if product.right[0].along_sum {
        let place = at(true, &format!("(int)column0 + rank * {own}"));
        let to = format!("to + {LEFT} + rank * {}", own * LINE * 2);
        body.line(format!("{to_all}({to}, &m1, {place}, {batch}, filled + stage);"));
    } else {
        body.open(AxisSet::EMPTY);
        let place = at(false, &format!("(int)column0 + rank * {own} + panel * {LINE}"));
        let to = format!("to + {LEFT} + (rank * {} + panel) * {}", own / LINE, DEPTH * LINE * 2);
        body.line(format!("{to_all}({to}, &m1, {place}, {batch}, filled + stage);"));
        body.close(&format!("#pragma unroll\nfor (int panel = 0; panel < {}; ++panel)", own / LINE));
    }
    body.line(format!("if (++stage == {STAGES}) stage = 0, phase ^= 1;"));
    body.close("for (int step = 0; step < steps; ++step)");
    body.close(&format!("for (int task = (int)blockIdx.x / {BLOCKS}; task < all; task += many)"));
    body.close(&format!("if (threadIdx.x == {GROUPS})"));
}

/// A group multiplies what was brought for it: every second tile of its block.
fn print_sums(body: &mut Body<'_>, product: &Product) -> Result<()> {
    let (dot, ty) = (product.dots[0].0, element::stored(product.left.dtype)?);
    let (left, right) = (&product.left, &product.right[0]);
    body.line("const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);");
    body.line(format!(
        "float* const results = (float*)(memory + {}) + threadIdx.x / 32 * {};",
        ALL_STAGES + PLACES,
        16 * PITCH
    ));
    body.line("int turns = group * steps;");
    // The first group begins.
    body.line("if (group == 1) give_turn(0);");
    body.open(AxisSet::EMPTY);
    print_place(body, product);
    if !product.batch.is_empty() {
        decode(body, body.nest, &product.batch, "batch", None);
        body.bind(product.batch.iter().copied().collect());
    }
    body.line(format!("float sums{dot}[1][{}][4] = {{}};", COLUMNS / 8));
    body.line("await_turn(group);");
    body.open(AxisSet::EMPTY);
    body.line(format!("const int stage = turns % {STAGES};"));
    body.line(format!("wait_for_bytes(filled + stage, turns / {STAGES} % 2);"));
    body.line(format!("const unsigned from = shared + stage * {STAGE};"));
    body.line("begin_group();");
    let lines = |operand: &Operand, free: i64| operand.lines((free, DEPTH));
    let settings =
        format!("{DEPTH}, {}, {}, {}, {}", left.along_sum, lines(left, ROWS), right.along_sum, lines(right, COLUMNS));
    body.line(format!("multiply_group_{ty}_{COLUMNS}<{settings}>(sums{dot}, from, 0, from + {LEFT}, 0);"));
    body.line("commit_group();");
    body.line("wait_for_groups<1>();");
    body.line(format!("if (step > 0) let_go<{BLOCKS}>(emptied + (turns - 1) % {STAGES});"));
    body.close("for (int step = 0; step < steps; ++step, ++turns)");
    body.line("give_turn(1 - group);");
    body.line("wait_for_groups<0>();");
    body.line(format!("let_go<{BLOCKS}>(emptied + (turns - 1) % {STAGES});"));
    // Those of the other group lie between.
    body.line("turns += steps;");
    Ok(())
}

/// What becomes of the sums, some columns at a time: every warp has its own place in shared memory.
fn print_results(body: &mut Body<'_>, product: &Product, stores: &[usize]) -> Result<()> {
    let dot = product.dots[0];
    body.open(AxisSet::EMPTY);
    body.line("__syncwarp();");
    body.line(format!("keep_columns<{PITCH}, {}>(results, sums{}, chunk * {});", CHUNK / 8, dot.0, CHUNK / 8));
    body.line("__syncwarp();");
    body.line("const Index row1 = row0 + threadIdx.x / 32 % 4 * 16;");
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
