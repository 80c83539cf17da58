//! Products of matrices: blocks of threads that each own a tile of the results, with what comes before on the factors and after on the
//! results.
//!
//! Tiles of both factors come into shared memory some steps ahead. Where both are narrow floats, units for matrices multiply them; otherwise
//! threads do. The sums then lie in shared memory for a moment, so that what is done with them reads and writes whole packs.

mod roles;
mod shape;

use fuseline::error::Result;
use fuseline::tensor::{Dim, Symbol};
use fuseline::tile::{AxisSet, Kernel, Op, StepId};

use super::body::Body;
use super::element;
use super::function::{Function, Grid};
use super::library::{Added, Behind, EDGE, Library, Matrix, is_line};
use super::nest::{Nest, slope};
use super::operand::{Operand, Part};
use super::points::decode;
use super::predict::{By, Tiling};
use super::relay::{self, Relay};
use super::results::Sums;
use roles::Roles;
use shape::Shape;

/// Contractions that share a factor, as products of one matrix with others that have the same columns.
#[derive(Clone, Debug)]
pub(super) struct Product {
    /// the contractions
    pub dots: Vec<StepId>,
    pub left: Operand,
    pub right: Vec<Operand>,
    pub batch: Vec<usize>,
    pub rows: Vec<usize>,
    pub columns: Vec<usize>,
    pub sum: Vec<usize>,
    /// whether units for matrices multiply
    by_units: bool,
    /// whether groups of four warps do so together
    by_groups: bool,
    shape: Shape,
    /// where two groups of warps take turns at tiles
    pub relay: Option<Relay>,
}

/// A library is asked for fewer columns only where all rows of the result are aligned.
const MANY_COLUMNS: i64 = 512;

impl Product {
    /// The product that some stores need and nothing else that folds; none where they are no product, or a small one.
    pub fn of(nest: &Nest<'_>, stores: &[usize]) -> Option<Product> {
        let needed = nest.needed(stores);
        let folds = (0..needed.len()).filter(|k| needed[*k] && nest.kernel.steps[*k].op.is_fold());
        let dots: Vec<StepId> = folds.map(|k| StepId(k as u32)).collect();
        let written = stores.iter().fold(AxisSet::EMPTY, |all, store| all.union(nest.stores[*store].axes));
        let mut sides: Vec<Roles> = [0, 1].into_iter().filter_map(|side| Roles::of(nest, &dots, side)).collect();
        sides.retain(|roles| roles.axes() == written);
        let is_in_line = |roles: &Roles| {
            let mut offsets = stores.iter().map(|store| &nest.stores[*store].access.offset);
            let in_line = |axis: usize, offset: &Dim| slope(offset, axis).is_some_and(|slope| slope.is(1));
            offsets.any(|offset| roles.columns.iter().any(|axis| in_line(axis, offset)))
        };
        let longest = |roles: &&Roles| (is_in_line(roles), nest.count(roles.columns).as_int().unwrap_or(i64::MAX));
        // Of equal ones the first: max_by_key would take the last.
        let roles = sides.iter().rev().max_by_key(longest)?;
        roles.product(nest, stores, &dots)
    }

    /// How many blocks of threads there are, where that is known and they do not share sums already.
    pub fn blocks(&self, nest: &Nest<'_>) -> Option<i64> {
        self.grid(nest).as_int().filter(|_| self.shape.parts == 1)
    }

    /// The kernel of the first and the last columns alone, where a library does not compute them: an axis more counts both ends.
    pub fn edges(&self, nest: &Nest<'_>, library: &Library) -> Option<Kernel> {
        let &[column] = self.columns.as_slice() else { return None };
        let between = library.sizes[1].as_int()? - EDGE;
        // Not where it stands for several axes of the kernel.
        let is_one = nest.options.fixed.apply(&nest.kernel.axes[column]) == library.sizes[1];
        if library.sets == 1 || !is_one || nest.kernel.steps.iter().any(|step| mentions_coordinates(&step.op)) {
            return None;
        }
        let mut kernel = nest.kernel.clone();
        let end = kernel.axes.len();
        kernel.axes[column] = Dim::int(EDGE);
        kernel.axes.push(Dim::int(2));
        let place = Dim::axis(column) + Dim::axis(end) * between;
        let moved = |index: &mut Vec<Dim>| {
            for dim in index.iter_mut() {
                *dim = dim.substitute(&|symbol| (*symbol == Symbol::Axis(column as u8)).then(|| place.clone()));
            }
        };
        for step in &mut kernel.steps {
            if step.axes.contains(column) {
                step.axes = step.axes.with(end);
            }
            if let Op::Load { index, .. } = &mut step.op {
                moved(index);
            }
        }
        kernel.stores.iter_mut().for_each(|store| moved(&mut store.index));
        Some(kernel)
    }

    /// Steps of the sum that a block walks at a time.
    pub fn depth(&self) -> i64 {
        self.shape.depth
    }

    /// The product as a library can compute it, where it can: one axis of each kind, and nothing before; after it, nothing but sums with
    /// numbers of the result's type, one for every column and one for every result, and a function that the library knows.
    pub fn library(&self, nest: &Nest<'_>, stores: &[usize]) -> Option<Library> {
        let mut library = self.plain(nest, stores)?;
        let (&[store], &[dot]) = (stores, self.dots.as_slice()) else { return None };
        let (&[row], &[column]) = (self.rows.as_slice(), self.columns.as_slice()) else { return None };
        let batch = self.batch.first().copied();
        if library.sets > 1 && nest.stores[store].value != dot {
            return None;
        }
        let behind = Behind::of(nest, nest.stores[store].value, dot)?;
        library.activation = behind.activation;
        for term in behind.terms {
            let access = nest.load(term);
            if access.tensor.dtype != library.dtypes.1 {
                return None;
            }
            let added = &mut library.added;
            if nest.axes[term.index()] == AxisSet::of(column) && added.bias.is_none() && batch.is_none() {
                added.bias = is_line(access, column).then(|| access.tensor.parameter.clone());
                added.bias.as_ref()?;
            } else if nest.axes[term.index()] == nest.stores[store].axes && added.matrix.is_none() {
                let matrix = Matrix::of(access, row, column, batch)?;
                added.matrix = Some(matrix).filter(|matrix| matrix.is_aligned(library.dtypes.1));
                added.matrix.as_ref()?;
            } else {
                return None;
            }
        }
        Some(library)
    }

    /// The same, where something may come after.
    pub fn plain(&self, nest: &Nest<'_>, stores: &[usize]) -> Option<Library> {
        let (&[row], &[column], &[step]) = (self.rows.as_slice(), self.columns.as_slice(), self.sum.as_slice()) else {
            return None;
        };
        let (&[store], [right]) = (stores, self.right.as_slice()) else { return None };
        let batch = match self.batch.as_slice() {
            [] => None,
            [one] => Some(*one),
            _ => return None,
        };
        let (a, b, d) = (self.left.copied()?, right.copied()?, &nest.stores[store].access);
        let turned = [!self.left.along_sum, right.along_sum];
        let left = if turned[0] { Matrix::of(a, step, row, batch) } else { Matrix::of(a, row, step, batch) }?;
        let other = if turned[1] { Matrix::of(b, column, step, batch) } else { Matrix::of(b, step, column, batch) }?;
        let result = Matrix::of(d, row, column, batch)?;
        let count = |axes: &[usize]| nest.count(axes.iter().copied().collect());
        let sizes = [count(&self.rows), count(&self.columns), count(&self.sum), count(&self.batch)];
        let dtypes = (self.left.dtype, d.tensor.dtype);
        let sets = result.sets(dtypes.1)?;
        // Columns are left out of the right factor too, which stays aligned where they are its rows. Sets of rows that threads multiply take longer.
        let is_cut = turned == [false, true]
            && batch.is_none()
            && self.by_units
            && sizes[1].as_int().is_some_and(|columns| columns >= MANY_COLUMNS);
        if ![&left, &other].into_iter().all(|matrix| matrix.is_aligned(dtypes.0)) || (sets > 1 && !is_cut) {
            return None;
        }
        Some(Library {
            sizes,
            left,
            right: other,
            result,
            turned,
            dtypes,
            added: Added::default(),
            activation: None,
            sets,
        })
    }

    /// How blocks make it.
    pub fn tiling(&self) -> Tiling {
        let by = match (self.by_groups, self.by_units) {
            (true, _) => By::Groups,
            (_, true) => By::Units,
            _ => By::Threads,
        };
        let Shape { rows, columns, depth, resident, parts, .. } = self.shape;
        let (dots, threads) = (self.dots.len() as i64, self.shape.threads());
        Tiling { by, rows, columns, depth, dots, parts, resident: resident.into(), threads }
    }

    /// Steps of its sum.
    pub fn steps(&self, nest: &Nest<'_>) -> Dim {
        nest.count(self.sum.iter().copied().collect())
    }

    /// The left factor, and one of the right ones, where it is computed on its way into shared memory.
    pub fn computed(&self) -> [Option<&Operand>; 2] {
        let is_computed = |operand: &&Operand| operand.is_computed();
        [Some(&self.left).filter(is_computed), self.right.iter().find(is_computed)]
    }

    fn grid(&self, nest: &Nest<'_>) -> Dim {
        let count = |axes: &[usize]| nest.count(axes.iter().copied().collect());
        let (down, across) = (Dim::int(self.shape.rows), Dim::int(self.shape.columns));
        let tiles = count(&self.rows).ceildiv(&down) * count(&self.columns).ceildiv(&across) * count(&self.batch);
        tiles * self.shape.parts
    }
}

/// Whether an operation depends on where it is done, otherwise than by what it reads.
fn mentions_coordinates(op: &Op) -> bool {
    match op {
        Op::Map { expr, .. } => expr.has_coordinates(),
        Op::Load { guard, .. } => !guard.is_empty(),
        Op::Dot { .. } => false,
        _ => true,
    }
}

/// Elements between lines of plain numbers in shared memory, so that neighbours in several lines lie in different banks.
const PAD: i64 = 4;

/// Elements between rows of sums in shared memory.
const SUMS_PAD: i64 = 8;

/// The function that computes some stores, which are a product and what is done with it.
pub(super) fn product(nest: &Nest<'_>, stores: &[usize], product: &Product, sites: Vec<String>) -> Result<Function> {
    if product.relay.is_some() {
        return relay::relay(nest, stores, product, sites);
    }
    let mut body = Body::new(nest, None, sites);
    product.print_head(&mut body);
    product.print_sums(&mut body)?;
    product.print_results(&mut body, stores)?;
    let Shape { rows, columns, depth, resident, parts, .. } = product.shape;
    let grid = Grid {
        blocks: product.grid(nest),
        threads: product.shape.threads() as u32,
        shared: product.shared_bytes() as u32,
        least_blocks: Some(resident),
        cluster: parts as u32,
    };
    let by = match (product.by_groups, product.by_units) {
        (true, _) => "groups of warps",
        (_, true) => "units for matrices",
        _ => "threads",
    };
    let owner = if parts == 1 { "a block owns".to_owned() } else { format!("{parts} blocks share") };
    Ok(Function::new(body, grid, format!("{owner} {rows} x {columns} results, {depth} steps at a time, by {by}")))
}

impl Product {
    /// Bytes of the tile of an operand in shared memory.
    fn part_bytes(&self, operand: &Operand, free: i64) -> i64 {
        let depth = self.shape.depth;
        if self.by_units { operand.tile_bytes((free, depth)) } else { (free + PAD) * depth * 4 }
    }

    fn stage_bytes(&self) -> i64 {
        let right = self.right.iter().map(|right| self.part_bytes(right, self.shape.columns));
        self.part_bytes(&self.left, self.shape.rows) + right.sum::<i64>()
    }

    fn sums_pitch(&self) -> i64 {
        self.shape.columns + SUMS_PAD
    }

    fn shared_bytes(&self) -> i64 {
        let sums = self.shape.rows * self.sums_pitch() * 4 * self.dots.len() as i64;
        (self.stage_bytes() * self.shape.stages).max(sums)
    }

    /// Which tile a block owns: bands of eight tiles of rows, so that blocks that run together share what they read.
    fn print_head(&self, body: &mut Body<'_>) {
        let nest = body.nest;
        let count = |axes: &[usize]| nest.count(axes.iter().copied().collect());
        let (down, across) = (
            count(&self.rows).ceildiv(&Dim::int(self.shape.rows)),
            count(&self.columns).ceildiv(&Dim::int(self.shape.columns)),
        );
        body.line("extern __shared__ __align__(1024) unsigned char memory[];");
        if self.by_units {
            body.line("const unsigned shared = shared_address(memory);");
        }
        let (down, across) = (body.index(&down, &[]), body.index(&across, &[]));
        body.line(format!("const int down = {down}, across = {across};"));
        let block = match self.shape.parts {
            1 => "blockIdx.x".to_owned(),
            parts => {
                body.line(format!("const int part = blockIdx.x % {parts}, block = blockIdx.x / {parts};"));
                "block".to_owned()
            }
        };
        body.line(format!("const int tile = {block} % (down * across);"));
        body.line("const int band = tile / (8 * across) * 8, height = min(8, down - band);");
        body.line(format!(
            "const Index row0 = (Index)(band + tile % (8 * across) % height) * {}, column0 = (Index)(tile % (8 * across) / height) * {};",
            self.shape.rows, self.shape.columns
        ));
        if !self.batch.is_empty() {
            body.line(format!("const Index batch = {block} / (down * across);"));
            decode(body, nest, &self.batch, "batch", None);
            body.bind(self.batch.iter().copied().collect());
        }
    }

    /// Walks along the sum.
    fn print_sums(&self, body: &mut Body<'_>) -> Result<()> {
        let nest = body.nest;
        let Shape { rows, columns, depth, warps, .. } = self.shape;
        let steps = nest.count(self.sum.iter().copied().collect());
        let (m, n) =
            if self.by_units { (rows / warps.0 / 16, columns / warps.1 / 8) } else { (rows / 16, columns / 16) };
        for dot in &self.dots {
            let four = if self.by_units { "[4]" } else { "" };
            body.line(format!("float sums{}[{m}][{n}]{four} = {{}};", dot.0));
        }
        if self.by_groups {
            body.line("const int row_of_group = __shfl_sync(0xffffffffu, threadIdx.x / 128 * 64, 0);");
            body.line("const int row_of_warp = row_of_group + threadIdx.x / 32 % 4 * 16, column_of_warp = 0;");
        } else if self.by_units {
            body.line(format!(
                "const int row_of_warp = threadIdx.x / 32 / {} * {}, column_of_warp = threadIdx.x / 32 % {} * {};",
                warps.1,
                m * 16,
                warps.1,
                n * 8
            ));
        } else {
            body.line("const int row_of_thread = threadIdx.x / 16 * 4, column_of_thread = threadIdx.x % 16 * 4;");
        }
        let tiles = body.index(&steps.ceildiv(&Dim::int(depth)), &[]);
        match self.shape.parts {
            1 => body.line(format!("const int tiles = {tiles};")),
            parts => body.line(format!(
                "const int first = part * ({tiles}) / {parts}, tiles = (part + 1) * ({tiles}) / {parts} - first;"
            )),
        }
        self.print_start(body);
        body.open(AxisSet::EMPTY);
        body.line("if (now >= 0) {");
        body.line(format!("  wait_for_copies<{}>();", self.ahead() - 1));
        if self.by_groups {
            body.line("  fence_copies();");
        }
        body.line("  __syncthreads();");
        if self.by_groups {
            // Units work while the next tile is asked for.
            self.print_multiply(body)?;
        }
        body.line("}");
        self.print_fills(body, &steps)?;
        body.line("commit_copies();");
        if self.by_groups {
            body.line(format!("wait_for_groups<{}>();", self.late()));
        } else {
            body.line("if (now >= 0) {");
            self.print_multiply(body)?;
            body.line("}");
        }
        body.close(&format!("for (int now = {}; now < tiles; ++now)", -self.ahead()));
        Ok(())
    }

    /// Waits for earlier launches. Before that, where a block has little to do, the right factor is brought nearer: often it is a
    /// constant, and if not, nothing but the way to it is lost.
    fn print_start(&self, body: &mut Body<'_>) {
        let nest = body.nest;
        if !nest.options.groups {
            return;
        }
        if self.shape.parts > 1 && self.by_units {
            let count = |axes: &[usize]| nest.count(axes.iter().copied().collect());
            let (columns, steps, depth) = (count(&self.columns), count(&self.sum), self.shape.depth);
            let sum = (format!("(Index)first * {depth}"), &steps);
            for right in &self.right {
                let part = Part {
                    free: ("column0", &columns),
                    sum: (&sum.0, sum.1),
                    tile: (self.shape.columns, depth),
                    threads: self.shape.threads(),
                    dealt: 2,
                    at: "",
                };
                right.print_prefetch(body, &part);
            }
        }
        body.line("after_earlier();");
    }

    /// Products that are still on their way when the next ones are begun.
    fn late(&self) -> i64 {
        i64::from(self.by_groups && self.shape.resident == 1)
    }

    /// How many tiles of the factors are asked for before they are multiplied.
    fn ahead(&self) -> i64 {
        self.shape.stages - 1 - self.late()
    }

    /// Multiplies the tiles that have come.
    fn print_multiply(&self, body: &mut Body<'_>) -> Result<()> {
        let Shape { rows, columns, depth, stages, .. } = self.shape;
        let (stage, mut at) = (self.stage_bytes(), self.part_bytes(&self.left, rows));
        let base = if self.by_units { "shared" } else { "memory" };
        body.line(format!("  const auto from = {base} + now % {stages} * {stage};"));
        for (k, dot) in self.dots.iter().enumerate() {
            let sums = format!("sums{}", dot.0);
            let (a, b) = (&self.left, &self.right[k]);
            let (a_lines, b_lines) = (a.lines((rows, depth)), b.lines((columns, depth)));
            let ty = element::stored(a.dtype)?;
            let settings = format!("{depth}, {}, {a_lines}, {}, {b_lines}", a.along_sum, b.along_sum);
            if self.by_groups {
                if k == 0 {
                    body.line("  begin_group();");
                }
                body.line(format!(
                    "  multiply_group_{ty}_{columns}<{settings}>({sums}, from, row_of_group, from + {at}, 0);"
                ));
            } else if self.by_units {
                let settings = format!("{ty}, {settings}");
                body.line(format!(
                    "  multiply_tiles<{settings}>({sums}, from, row_of_warp, from + {at}, column_of_warp);"
                ));
            } else {
                let settings = format!("{depth}, {}, {}, 64, 64", rows + PAD, columns + PAD);
                body.line(format!(
                    "  multiply_plain<{settings}>({sums}, (const float*)from + row_of_thread, (const float*)(from + {at}) + column_of_thread);"
                ));
            }
            at += self.part_bytes(&self.right[k], columns);
        }
        if self.by_groups {
            body.line("  commit_group();");
        }
        Ok(())
    }

    /// Fills the stage that was multiplied last.
    fn print_fills(&self, body: &mut Body<'_>, steps: &Dim) -> Result<()> {
        let nest = body.nest;
        let Shape { rows, columns, depth, stages, .. } = self.shape;
        let count = |axes: &[usize]| nest.count(axes.iter().copied().collect());
        let (row_count, column_count) = (count(&self.rows), count(&self.columns));
        let threads = self.shape.threads();
        body.open(AxisSet::EMPTY);
        let (base, stage) = (if self.by_units { "shared" } else { "memory" }, self.stage_bytes());
        body.line(format!("const auto to = {base} + next % {stages} * {stage};"));
        let tile = if self.shape.parts == 1 { "next" } else { "(first + next)" };
        body.line(format!("const Index step0 = (Index){tile} * {depth};"));
        let sum = ("step0", steps);
        let mut at = 0;
        let mut print = |body: &mut Body<'_>, operand: &Operand, free: (&str, &Dim), tile: i64| {
            let place = match self.by_units {
                true => format!("to + {at}"),
                false => format!("((float*)(to + {at}))"),
            };
            at += self.part_bytes(operand, tile);
            let part = Part { free, sum, tile: (tile, depth), threads, dealt: 2, at: &place };
            match self.by_units {
                true => operand.print_fill(body, &part),
                false => operand.print_plain_fill(body, &part, tile + PAD),
            }
        };
        print(body, &self.left, ("row0", &row_count), rows)?;
        for right in &self.right {
            print(body, right, ("column0", &column_count), columns)?;
        }
        body.close(&format!("if (const int next = now + {}; next < tiles)", self.ahead()));
        Ok(())
    }

    /// What becomes of the sums.
    fn print_results(&self, body: &mut Body<'_>, stores: &[usize]) -> Result<()> {
        let (pitch, Shape { rows, columns, .. }) = (self.sums_pitch(), self.shape);
        body.line("wait_for_copies<0>();");
        if self.by_groups {
            body.line("wait_for_groups<0>();");
        }
        body.line("__syncthreads();");
        body.line("float* const results = (float*)memory;");
        for (k, dot) in self.dots.iter().enumerate() {
            let at = k as i64 * rows * pitch;
            let line = if self.by_units {
                format!("keep_sums<{pitch}>(results + {at} + row_of_warp * {pitch} + column_of_warp, sums{});", dot.0)
            } else {
                format!(
                    "keep_plain<{pitch}, 64, 64>(results + {at} + row_of_thread * {pitch} + column_of_thread, sums{});",
                    dot.0
                )
            };
            body.line(line);
        }
        let (parts, threads) = (self.shape.parts, self.shape.threads());
        body.line(if parts == 1 { "__syncthreads();" } else { "meet_cluster();" });
        let unroll = if parts == 1 { 8 } else { 2 };
        let place = ("row0", "column0");
        Sums { rows, columns, pitch, threads, thread: "threadIdx.x", place, parts, unroll }.print(body, self, stores)
    }
}
