//! How long the launches of a kernel will take.
//!
//! Decisions are made by the prices of the core, for which a kernel is one launch. What was decided for is cut into stages here, so that more is
//! known: how many launches there are, which tiles a product has, whether its factors are copied or computed on their way. Rates are those of
//! the device; what code of this crate gets of them was measured on an H200, and stands below as a part of them.

use fuseline::device::{DeviceSpec, Unit};
use fuseline::error::Result;
use fuseline::tensor::{DType, Dim, Env};
use fuseline::tile::{AxisSet, Kernel, Op, StepId};

use super::attention::Attention;
use super::nest::{Access, Nest, slope};
use super::operand::Operand;
use super::product::Product;
use super::relay;
use super::stages::{Stage, Way};
use super::{Library, Options, parts};

/// Tiles of a product as blocks of threads make them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiling {
    pub by: By,
    pub rows: i64,
    pub columns: i64,
    /// steps that are walked at a time
    pub depth: i64,
    /// products of which a block makes one tile each
    pub dots: i64,
    /// blocks that share the steps of a tile
    pub parts: i64,
    /// blocks that a multiprocessor holds
    pub resident: i64,
    pub threads: i64,
}

/// Who multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Threads,
    /// threads that go on with their sums in registers
    Rows,
    /// units for matrices, for one warp
    Units,
    /// the same for four warps together
    Groups,
}

/// Operations that it takes to find out where an element lies that does not lie beside the one before, and to ask whether it is there.
const FOUND: f64 = 12.0;
const ASKED: f64 = 8.0;

/// Operations for an element of a factor that is computed on its way into shared memory, besides those of its formula.
const BY_HAND: f64 = 40.0;

/// What products get of the peak of their unit: of threads in tiles of 128 × 128 and in smaller ones, in attention, of units for one warp and for four.
const LARGE_BY_THREADS: f64 = 0.61;
const SMALL_BY_THREADS: f64 = 0.455;
const BY_ROWS: f64 = 0.61;
const BY_UNITS: f64 = 0.30;
const BY_GROUPS: f64 = 0.42;

/// The same of groups of warps that take turns, so that units never wait for what comes behind sums.
const IN_TURNS: f64 = 0.68;

/// The same where units for matrices take narrow floats: one by one, and in packs.
const NARROW_BY_HAND: f64 = 0.75;
const NARROW_IN_PACKS: f64 = 0.42;

/// What a block by itself gets of the rate at which its multiprocessor reads and writes, behind its sums.
const READ_BEHIND: f64 = 0.07;
const WRITTEN_BEHIND: f64 = 0.17;

/// A block that has little to do takes so many times as long as until its first data are there.
const STARTS: f64 = 1.5;

/// What a library gets of it, by the columns of its tiles.
const BY_LIBRARY: [(i64, f64); 2] = [(256, 0.75), (128, 0.62)];

/// The same of f32, whose tiles have as many rows as columns, and whose sums it cuts into so many parts.
const F32_BY_LIBRARY: [(i64, f64); 2] = [(128, 0.76), (64, 0.60)];
const PARTS_BY_LIBRARY: [i64; 4] = [1, 2, 4, 8];

/// Operations on a score.
const SCORED: f64 = 4.0;

/// Until the first tiles of a product are there, and from the last one until its results are stored, in starts of a block.
const ENDS: f64 = 3.0;

/// Random words cost so many operations each.
const DRAWN: f64 = 12.0;

/// The part of the last cache in which what one kernel leaves is still there for the next.
const KEPT: f64 = 0.5;

/// Microseconds of each launch, in order.
pub fn predict(kernel: &Kernel, options: &Options, env: &Env, spec: &DeviceSpec) -> Result<Vec<f64>> {
    let parts = parts(kernel, options)?;
    let (mut at, mut all) = (0, Vec::with_capacity(parts.groups.len()));
    for group in &parts.groups {
        let stage = &parts.stages[at];
        let mut nest = Nest::new(&stage.kernel, options, &stage.parameters)?;
        nest.join_axes();
        let meter = Meter { nest: &nest, stage, env, spec, copies: group.len() as f64 };
        let grid = &group[0].grid;
        let blocks = meter.size(&grid.blocks)? * group.len() as f64;
        all.push(match &parts.libraries[at] {
            Some(library) => meter.library_us(library)?,
            None => meter.us(blocks, f64::from(grid.threads))?,
        });
        at += group.len();
    }
    Ok(all)
}

/// What everything about the time of a launch follows from.
struct Meter<'a> {
    nest: &'a Nest<'a>,
    stage: &'a Stage,
    env: &'a Env,
    spec: &'a DeviceSpec,
    /// functions that are equal and launched as one
    copies: f64,
}

impl Meter<'_> {
    fn size(&self, dim: &Dim) -> Result<f64> {
        Ok(dim.eval(self.env)? as f64)
    }

    fn points(&self, axes: AxisSet) -> Result<f64> {
        self.size(&self.nest.count(axes))
    }

    fn us(&self, blocks: f64, threads: f64) -> Result<f64> {
        let (bytes, operations) = self.touched()?;
        let busy = self.memory_us(bytes, blocks).max(self.operations_us(operations, blocks * threads));
        let busy = busy.max(self.starts_us(blocks, threads));
        let tiled = match self.stage.way {
            Way::Product => Product::of(self.nest, &self.stage.stores).map(|product| self.product_us(&product, blocks)),
            Way::Attention => {
                Attention::of(self.nest, &self.stage.stores).map(|attention| self.attention_us(&attention, blocks))
            }
            _ => None,
        };
        let (launch, block) = (self.spec.costs.launch_us, self.spec.costs.block_us);
        Ok(match tiled.transpose()? {
            Some(tiled) => launch + ENDS * block + busy.max(tiled),
            None => launch + block + busy,
        })
    }

    /// Bytes that are read and written, each counted once, and operations besides products.
    fn touched(&self) -> Result<(f64, f64)> {
        let (nest, kernel) = (self.nest, &self.stage.kernel);
        let is_tiled = matches!(self.stage.way, Way::Product | Way::Attention);
        let needed = nest.needed(&self.stage.stores);
        let stored = || self.stage.stores.iter().map(|store| &nest.stores[*store]);
        let outer = stored().fold(AxisSet::EMPTY, |all, store| all.union(store.axes));
        let (mut bytes, mut operations) = (0.0, 0.0);
        for (k, step) in kernel.steps.iter().enumerate().filter(|(k, _)| needed[*k]) {
            let axes = nest.axes[k];
            let points = self.points(axes)?;
            match &step.op {
                Op::Load { input, .. } => {
                    let ty = &kernel.inputs[*input].ty;
                    let whole = ty.shape.dims().iter().map(|dim| self.size(&nest.options.fixed.apply(dim)));
                    let whole: f64 = whole.collect::<Result<Vec<f64>>>()?.into_iter().product();
                    bytes += points.min(whole) * ty.dtype.bits() as f64 / 8.0;
                    if !is_tiled || axes.is_within(outer) {
                        operations += points * reading(nest.load(StepId(k as u32)), axes);
                    }
                }
                Op::Random { .. } => operations += points * DRAWN,
                Op::Map { expr, .. } if !is_tiled || axes.is_within(outer) => {
                    operations += points * f64::from(expr.flops().max(1));
                }
                Op::Reduce { arg, .. } => operations += self.points(nest.axes[arg.index()])? * 2.0,
                Op::Dot { a, b, .. } if !is_tiled => {
                    operations += self.points(nest.axes[a.index()].union(nest.axes[b.index()]))? * 2.0;
                }
                _ => {}
            }
        }
        for store in stored() {
            let points = self.points(store.axes)?;
            bytes += points * store.access.tensor.dtype.bits() as f64 / 8.0;
            operations += points * reading(&store.access, store.axes);
        }
        Ok((bytes * self.copies, operations * self.copies))
    }

    fn memory_us(&self, bytes: f64, blocks: f64) -> f64 {
        let (near, far) = (self.spec.last_cache(), self.spec.main_memory());
        let level = if bytes <= KEPT * near.bytes as f64 { near } else { far };
        let cores = blocks.clamp(1.0, self.spec.limits.cores as f64);
        bytes / ((level.gbps * level.reach).min(level.core_gbps * cores) * 1e3)
    }

    /// Blocks that do nothing but start and end.
    fn starts_us(&self, blocks: f64, threads: f64) -> f64 {
        let limits = &self.spec.limits;
        let held = (limits.threads as f64 / threads).clamp(1.0, limits.blocks as f64);
        blocks / (limits.cores as f64 * held) * self.spec.costs.block_us * STARTS
    }

    fn operations_us(&self, operations: f64, threads: f64) -> f64 {
        let limits = &self.spec.limits;
        let filled = (threads / (limits.cores * limits.fill_threads) as f64).min(1.0);
        operations / (self.spec.rate(Unit::Elementwise(DType::F32)) * filled * 1e3)
    }

    /// Operations for every element of a factor that is computed; none where it is copied.
    fn computing(&self, operand: Option<&Operand>, by: By) -> f64 {
        let Some(operand) = operand.filter(|operand| operand.is_computed()) else { return 0.0 };
        let (mut todo, mut operations) = (vec![operand.factor], BY_HAND);
        while let Some(id) = todo.pop() {
            let op = &self.nest.kernel.step(id).op;
            match op {
                Op::Map { expr, .. } => operations += f64::from(expr.flops()),
                Op::Load { .. } => operations += reading(self.nest.load(id), self.nest.axes[id.index()]),
                _ => {}
            }
            todo.extend(op.operands());
        }
        // Neighbours that come as a pack are found together.
        operations
            * match (by, operand.width()) {
                (By::Threads | By::Rows, _) => 1.0,
                (_, 1) => NARROW_BY_HAND,
                _ => NARROW_IN_PACKS,
            }
    }

    fn product_us(&self, product: &Product, blocks: f64) -> Result<f64> {
        if product.relay.is_some() {
            return self.relay_us(product);
        }
        let (tiling, steps) = (product.tiling(), self.size(&product.steps(self.nest))?);
        let [left, right] = product.computed().map(|operand| self.computing(operand, tiling.by));
        let operations = tiling.rows as f64 * left + (tiling.columns * tiling.dots) as f64 * right;
        let turns = (steps / (tiling.depth * tiling.parts) as f64).ceil();
        let ends = if tiling.resident == 1 { self.ends_us()? } else { 0.0 };
        Ok(self.walk_us(&tiling, blocks, turns, operations * tiling.depth as f64) + ends)
    }

    /// Blocks that stay, and take tile after tile.
    fn relay_us(&self, product: &Product) -> Result<f64> {
        let tiles = self.size(&product.tiles(self.nest))?;
        let (steps, cores) = (self.size(&product.steps(self.nest))?, self.spec.limits.cores as f64);
        let tours = (tiles / (cores / relay::BLOCKS as f64).floor()).ceil();
        let products = (relay::ROWS * relay::COLUMNS) as f64 * steps * 2.0 * cores;
        Ok(tours * products / (self.spec.peak(Unit::Matrix(DType::BF16)) * IN_TURNS * 1e3))
    }

    /// What comes behind the sums of a tile, while nothing else runs on its multiprocessor: what is read for every result, and the results.
    fn ends_us(&self) -> Result<f64> {
        let (nest, cores) = (self.nest, self.spec.limits.cores as f64);
        let stored = || self.stage.stores.iter().map(|store| &nest.stores[*store]);
        let outer = stored().fold(AxisSet::EMPTY, |all, store| all.union(store.axes));
        let needed = nest.needed(&self.stage.stores);
        let (mut read, mut written) = (0.0, 0.0);
        for (k, step) in nest.kernel.steps.iter().enumerate().filter(|(k, _)| needed[*k] && nest.axes[*k] == outer) {
            if let Op::Load { .. } = step.op {
                read += self.points(outer)? * nest.load(StepId(k as u32)).tensor.dtype.bits() as f64 / 8.0;
            }
        }
        for store in stored() {
            written += self.points(store.axes)? * store.access.tensor.dtype.bits() as f64 / 8.0;
        }
        let core = self.spec.last_cache().core_gbps * 1e3 * cores;
        Ok(self.copies * (read / (core * READ_BEHIND) + written / (core * WRITTEN_BEHIND)))
    }

    /// Blocks that walk so many turns each, with so many operations in each besides the products.
    fn walk_us(&self, tiling: &Tiling, blocks: f64, turns: f64, operations: f64) -> f64 {
        let (cores, resident) = (self.spec.limits.cores as f64, tiling.resident as f64);
        let turn_us = |held: f64| turns * self.turn_us(tiling, held, operations);
        let full = (blocks / (cores * resident)).floor();
        let rest = ((blocks - full * cores * resident) / cores).ceil();
        full * turn_us(resident) + if rest > 0.0 { turn_us(rest) } else { 0.0 }
    }

    /// A turn of so many blocks that a multiprocessor holds.
    fn turn_us(&self, tiling: &Tiling, held: f64, operations: f64) -> f64 {
        let cores = self.spec.limits.cores as f64;
        let (unit, reach) = match (tiling.by, tiling.rows * tiling.columns) {
            (By::Threads, 16384..) => (Unit::Fma(DType::F32), LARGE_BY_THREADS),
            (By::Threads, _) => (Unit::Fma(DType::F32), SMALL_BY_THREADS),
            (By::Rows, _) => (Unit::Fma(DType::F32), BY_ROWS),
            (By::Units, _) => (Unit::Matrix(DType::BF16), BY_UNITS),
            (By::Groups, _) => (Unit::Matrix(DType::BF16), BY_GROUPS),
        };
        let products = (tiling.rows * tiling.columns * tiling.dots * tiling.depth) as f64 * 2.0;
        let multiplying = held * products * cores / (self.spec.peak(unit) * reach * 1e3);
        let filled = (held * tiling.threads as f64 / self.spec.limits.fill_threads as f64).min(1.0);
        let computing = held * operations * cores / (self.spec.rate(Unit::Elementwise(DType::F32)) * filled * 1e3);
        multiplying + computing
    }

    fn attention_us(&self, attention: &Attention<'_>, blocks: f64) -> Result<f64> {
        let keys = self.size(&Attention::count(self.nest, &attention.stream))?;
        let shape = attention.shape;
        let tiling = Tiling {
            by: shape.by,
            rows: shape.rows,
            columns: shape.keys,
            depth: shape.inner + shape.width,
            dots: 1,
            parts: 1,
            resident: if shape.by_threads() { shape.resident() } else { 2 },
            threads: shape.threads(),
        };
        let seen = if attention.masked_from.is_some() { 0.5 } else { 1.0 };
        let own = |operand: &Operand, width: i64| self.computing(Some(operand), tiling.by) * width as f64;
        let brought = own(&attention.keys, shape.inner) + own(&attention.values, shape.width);
        let operations = shape.keys as f64 * (shape.rows as f64 * SCORED + brought);
        Ok(self.walk_us(&tiling, blocks, (keys * seen / shape.keys as f64).ceil(), operations))
    }

    fn library_us(&self, library: &Library) -> Result<f64> {
        let [rows, columns, steps, batch] = [0, 1, 2, 3].map(|k| self.size(&library.sizes[k]));
        let (rows, columns, steps, batch) = (rows?, columns?, steps?, batch?);
        let groups = BY_LIBRARY.map(|(columns, reach)| (By::Groups, (128, columns, 64), 1, reach / BY_GROUPS));
        let threads = F32_BY_LIBRARY.into_iter().flat_map(|(side, reach)| {
            let own = if side == 128 { LARGE_BY_THREADS } else { SMALL_BY_THREADS };
            PARTS_BY_LIBRARY.map(|parts| (By::Threads, (side, side, 16), parts, reach / own))
        });
        let ways: Vec<_> = if library.dtypes.0 == DType::F32 { threads.collect() } else { groups.to_vec() };
        let (mut walked, mut blocks) = (f64::INFINITY, 1.0);
        for (by, (down, across, depth), parts, faster) in ways {
            let tiling = Tiling { by, rows: down, columns: across, depth, dots: 1, parts, resident: 1, threads: 256 };
            let tiles = (rows / down as f64).ceil() * (columns / across as f64).ceil() * batch * parts as f64;
            let turns = (steps / (depth * parts) as f64).ceil();
            let us = self.walk_us(&tiling, tiles, turns, 0.0) / faster;
            if us < walked {
                (walked, blocks) = (us, tiles);
            }
        }
        let (bytes, _) = self.touched()?;
        Ok(self.spec.costs.launch_us + ENDS * self.spec.costs.block_us + walked.max(self.memory_us(bytes, blocks)))
    }
}

/// Operations that it takes to read or write an element.
fn reading(access: &Access, axes: AxisSet) -> f64 {
    let in_line = axes.iter().any(|axis| slope(&access.offset, axis).is_some_and(|slope| slope.is(1)));
    let asked = (access.guards.len() + access.checked.len()) as f64 * ASKED;
    if axes.is_empty() {
        0.0
    } else if in_line {
        1.0 + asked
    } else {
        FOUND + asked
    }
}
