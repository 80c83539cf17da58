//! Folds across what lies side by side: threads of a block share the folds of some neighbouring results, every one of them some of the terms.

mod anywhere;

use fuseline::error::Result;
use fuseline::tensor::Dim;
use fuseline::tile::{AxisSet, Op, StepId};

use super::body::{Accumulator, Body, Lanes};
use super::element;
use super::function::{Function, Grid};
use super::nest::Nest;
use super::points::{choose_lanes, decode, order_axes};
use anywhere::Anywhere;

/// Threads of a block.
const THREADS: i64 = 256;

/// The most threads that share the terms of a fold.
const MOST_SHARES: i64 = 32;

/// Terms that a thread takes at least.
const LEAST_TERMS: i64 = 4;

/// Neighbouring results of a thread at least: what a warp reads of a term should be whole lines.
const LEAST_LANES: i64 = 4;

/// Bytes that a thread reads of a term at least.
const WORD: i64 = 4;

/// Numbers that a thread asks for at once.
const MOST_ASKED: i64 = 96;

/// Threads that keep a GPU busy without sharing.
const ENOUGH: i64 = 1 << 17;

/// The folds of some stores, where threads can share them: all over the same axes, and none of what another has found.
pub(super) struct Columns {
    across: AxisSet,
    folds: Vec<StepId>,
    /// threads that share a fold
    pub shares: i64,
    /// neighbouring results of a thread
    pub lanes: Lanes,
    /// as many as lie in the widest access
    pub widest: i64,
    /// whether it is one fold of one tensor
    reads_one: bool,
    /// where rows begin anywhere in a line
    anywhere: Option<Anywhere>,
}

impl Columns {
    pub fn of(nest: &Nest<'_>, stores: &[usize]) -> Option<Columns> {
        let needed = nest.needed(stores);
        let steps = &nest.kernel.steps;
        let folds: Vec<usize> = (0..needed.len()).filter(|k| needed[*k] && steps[*k].op.is_fold()).collect();
        let across = nest.folds[*folds.first()?];
        let points = stores.iter().fold(AxisSet::EMPTY, |all, store| all.union(nest.stores[*store].axes));
        let is_plain = |k: &usize| match &steps[*k].op {
            Op::Reduce { monoid, .. } => !monoid.is_position(),
            Op::Dot { .. } => true,
            _ => false,
        };
        let is_alike = |k: &usize| nest.folds[*k] == across && nest.axes[*k] == points && is_plain(k);
        if across.is_empty() || !folds.iter().all(is_alike) || is_fold_of_fold(nest, &folds) {
            return None;
        }
        let mut lanes = choose_lanes(nest, stores, points)?;
        let (results, terms) = (nest.count(points).as_int()?, nest.count(across).as_int()?);
        let shares = (terms / LEAST_TERMS).clamp(1, MOST_SHARES);
        let shares =
            if (shares as u64).is_power_of_two() { shares } else { (shares as u64).next_power_of_two() as i64 / 2 };
        let (widest, is_busy) = (lanes.count, results / lanes.count >= ENOUGH);
        let folds: Vec<StepId> = folds.into_iter().map(|k| StepId(k as u32)).collect();
        let is_load = |k: &usize| needed[*k] && matches!(steps[*k].op, Op::Load { .. });
        let loads = || (0..needed.len()).filter(is_load).map(|k| nest.load(StepId(k as u32)));
        let reads_one = folds.len() == 1 && loads().count() == 1;
        if let Some(anywhere) = Anywhere::of(nest, points, across, lanes) {
            let (shares, lanes) = (anywhere.shares(), anywhere.lanes());
            return Some(Columns {
                across,
                folds,
                shares,
                lanes,
                widest: lanes.count,
                reads_one,
                anywhere: Some(anywhere),
            });
        }
        // Of few results, every processor gets some; of very few, half of them, though a warp reads less than whole lines then, but no less than words.
        let threads = nest.options.processors * THREADS;
        let bytes = loads().map(|access| element::bytes(access.tensor.dtype)).min().unwrap_or(WORD);
        let are_few = |lanes: i64| match results / lanes * shares {
            own if lanes > LEAST_LANES => own < threads,
            own => lanes > 1 && lanes * bytes > WORD && 2 * own < threads,
        };
        while are_few(lanes.count) {
            lanes.count /= 2;
        }
        (shares > 1 && !is_busy).then_some(Columns { across, folds, shares, lanes, widest, reads_one, anywhere: None })
    }
}

impl Columns {
    /// The loop over the terms of a thread. Where few are left over in the end, they are asked for with the others: nobody waits twice.
    fn loop_over_terms(&self, nest: &Nest<'_>, body: &mut Body<'_>) -> String {
        let (count, shares) = (nest.count(self.across), self.shares);
        let terms = body.index(&count, &[]);
        let at_once = self.folds.len() as i64 * self.lanes.count;
        match count.as_int().map(|count| (count / shares, count % shares)) {
            Some((whole, 1..)) if whole >= 8 && (whole + 1) * at_once <= MOST_ASKED => format!(
                "#pragma unroll\nfor (int turn = 0; turn <= {whole}; ++turn) if (const Index term = turn * {shares} + share; turn < {whole} || term < {terms})"
            ),
            _ => format!("#pragma unroll 8\nfor (Index term = share; term < {terms}; term += {shares})"),
        }
    }
}

impl Columns {
    /// How many blocks shall share a multiprocessor, where the compiler shall not choose by itself: it takes so few registers that a thread asks for two packs at
    /// a time.
    fn least_blocks(&self) -> Option<u32> {
        (self.reads_one && self.lanes.count > 1).then_some(4)
    }

    /// The terms of a thread, folded.
    fn print_terms(&self, nest: &Nest<'_>, body: &mut Body<'_>, accumulators: &[Accumulator]) -> Result<()> {
        let count = self.lanes.count;
        let lane = if body.lanes.is_some() { "l" } else { "0" };
        for (fold, accumulator) in self.folds.iter().zip(accumulators) {
            body.line(format!("{} s{}[{count}];", accumulator.ty, fold.0));
            body.line("#pragma unroll");
            body.line(format!("for (int l = 0; l < {count}; ++l) s{}[l] = {};", fold.0, accumulator.neutral));
        }
        body.open(self.across);
        let across: Vec<usize> = self.across.iter().collect();
        decode(body, nest, &across, "term", None);
        body.open_lanes();
        for (fold, accumulator) in self.folds.iter().zip(accumulators) {
            body.accumulate(*fold, accumulator, &format!("s{}[{lane}]", fold.0))?;
        }
        body.close_lanes();
        let header = self.loop_over_terms(nest, body);
        body.close(&header);
        Ok(())
    }
}

/// Whether a fold reads another one.
pub(super) fn is_fold_of_fold(nest: &Nest<'_>, folds: &[usize]) -> bool {
    let steps = &nest.kernel.steps;
    let mut depends = vec![false; steps.len()];
    for k in 0..steps.len() {
        depends[k] = steps[k].op.operands().iter().any(|operand| depends[operand.index()]);
        if folds.contains(&k) {
            if depends[k] {
                return true;
            }
            depends[k] = true;
        }
    }
    false
}

/// The function that computes some stores.
pub(super) fn columns(nest: &Nest<'_>, stores: &[usize], found: &Columns, sites: Vec<String>) -> Result<Function> {
    if let Some(anywhere) = &found.anywhere {
        return anywhere.print(nest, stores, found, sites);
    }
    let points = stores.iter().fold(AxisSet::EMPTY, |all, store| all.union(nest.stores[*store].axes));
    let (lanes, count) = (Some(found.lanes), found.lanes.count);
    let (shares, width) = (found.shares, THREADS / found.shares);
    let mut body = Body::new(nest, lanes, sites);
    (body.is_near, body.is_deep) = (nest.is_near(stores), true);
    let packs = nest.count(points).floordiv(&Dim::int(count));
    let (total, last) = (body.index(&packs, &[]), body.index(&(&packs - 1), &[]));
    body.line(format!("const int share = threadIdx.x / {width};"));
    body.line(format!("const Index own = (Index)blockIdx.x * {width} + threadIdx.x % {width};"));
    body.line(format!("const bool live = share == 0 && own < {total};"));
    body.line(format!("const Index pack = own < {total} ? own : {last};"));
    decode(&mut body, nest, &order_axes(nest, stores, points, lanes), "pack", lanes);
    body.bind(match body.lanes {
        Some(lanes) => points.without(AxisSet::of(lanes.axis)),
        None => points,
    });
    let lane = if body.lanes.is_some() { "l" } else { "0" };
    let accumulators: Vec<Accumulator> = found.folds.iter().map(|fold| Accumulator::of(nest, *fold)).collect();
    found.print_terms(nest, &mut body, &accumulators)?;
    print_meeting(&mut body, found, &accumulators, count, width);
    for (fold, accumulator) in found.folds.iter().zip(&accumulators) {
        let result = accumulator.result(&body, &format!("s{}[{lane}]", fold.0));
        if body.lanes.is_some() { body.know_in_lanes(*fold, result) } else { body.know(*fold, result) }
    }
    body.open_lanes();
    let mut behind = Vec::new();
    for store in stores {
        behind.extend(body.store(*store, Some("live"))?);
    }
    body.close_lanes();
    behind.into_iter().for_each(|line| body.line(line));
    let threads = THREADS as u32;
    let (blocks, least_blocks) = (packs.ceildiv(&Dim::int(width)), found.least_blocks());
    let grid = Grid { blocks, threads, shared: 0, least_blocks, cluster: 1 };
    let what = match count {
        1 => format!("{shares} threads share the folds of a point"),
        _ => format!("{shares} threads share the folds of {count} neighbouring points"),
    };
    Ok(Function::new(body, grid, what))
}

/// Folds what the threads that share a fold have found: in lanes, then by the first of them.
fn print_meeting(body: &mut Body<'_>, found: &Columns, accumulators: &[Accumulator], count: i64, width: i64) {
    let warps = THREADS / 32;
    // Where a warp has terms of more columns than one share, every share has its place.
    let (places, per_warp) = if width < 32 { (warps, width) } else { (found.shares, width) };
    for (fold, accumulator) in found.folds.iter().zip(accumulators) {
        let (id, ty) = (fold.0, &accumulator.ty);
        body.line(format!("__shared__ {ty} part{id}[{places}][{}];", per_warp * count));
        if width < 32 {
            body.line("#pragma unroll");
            body.line(format!(
                "for (int l = 0; l < {count}; ++l) s{id}[l] = across_lanes<{width}>(s{id}[l], {});",
                accumulator.functor
            ));
        }
        let (place, is_first) = if width < 32 {
            ("threadIdx.x / 32".to_owned(), format!("if (threadIdx.x % 32 < {width}) "))
        } else {
            ("share".to_owned(), String::new())
        };
        body.line("#pragma unroll");
        body.line(format!(
            "for (int l = 0; l < {count}; ++l) {is_first}part{id}[{place}][threadIdx.x % {width} * {count} + l] = s{id}[l];"
        ));
    }
    body.line("__syncthreads();");
    for (fold, accumulator) in found.folds.iter().zip(accumulators) {
        let id = fold.0;
        body.line("#pragma unroll");
        body.line(format!("for (int k = 1; k < {places}; ++k) {{"));
        body.line("#pragma unroll");
        body.line(format!(
            "  for (int l = 0; l < {count}; ++l) s{id}[l] = {}(s{id}[l], part{id}[k][threadIdx.x % {width} * {count} + l]);",
            accumulator.functor
        ));
        body.line("}");
    }
}
