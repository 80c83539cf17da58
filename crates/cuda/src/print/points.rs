//! Kernels in which a thread computes some neighbouring points of the outputs; what is folded, it folds by itself.

use fuseline::error::Result;
use fuseline::tensor::Dim;
use fuseline::tile::{AxisSet, Op, StepId};

use super::body::{Body, Lanes};
use super::element;
use super::function::{Function, Grid};
use super::nest::{Access, Nest, is_multiple, slope};

/// Threads of a block.
const THREADS: u32 = 256;

/// Bytes that one thread moves at once.
const PACK_BYTES: i64 = 16;

/// Points at a time that are enough, though more would fill the widest access.
const ENOUGH: i64 = 4;

/// The function that computes some stores, all at the points of one set of axes.
pub(super) fn points(nest: &Nest<'_>, stores: &[usize], sites: Vec<String>) -> Result<Function> {
    let axes = stores.iter().fold(AxisSet::EMPTY, |all, store| all.union(nest.stores[*store].axes));
    let lanes = choose_lanes(nest, stores, axes);
    if let Some(line) = Line::of(nest, stores, axes, lanes) {
        return line.print(stores, sites);
    }
    let count = lanes.map_or(1, |lanes| lanes.count);
    let order = order_axes(nest, stores, axes, lanes);
    let mut body = Body::new(nest, lanes, sites);
    (body.is_near, body.is_deep) = (nest.is_near(stores), true);
    let threads = nest.count(axes).floordiv(&Dim::int(count));
    let total = body.index(&threads, &[]);
    body.line(format!("const Index thread = (Index)blockIdx.x * {THREADS} + threadIdx.x;"));
    body.line(format!("if (thread >= {total}) return;"));
    decode(&mut body, nest, &order, "thread", lanes);
    if let Some(lanes) = lanes.filter(|lanes| lanes.count > 1) {
        body.bind(axes.without(AxisSet::of(lanes.axis)));
    } else {
        body.bind(axes);
    }
    body.open_lanes();
    let mut behind = Vec::new();
    for store in stores {
        behind.extend(body.store(*store, None)?);
    }
    body.close_lanes();
    behind.into_iter().for_each(|line| body.line(line));
    let grid = Grid {
        blocks: threads.ceildiv(&Dim::int(i64::from(THREADS))),
        threads: THREADS,
        shared: 0,
        least_blocks: None,
        cluster: 1,
    };
    let what = match count {
        1 => "a thread computes one point".to_owned(),
        _ => format!("a thread computes {count} neighbouring points"),
    };
    Ok(Function::new(body, grid, what))
}

/// Points that lie in one line from the first to the last, though rows of them are no multiple of a pack: packs go on where a row ends, and what is behind the
/// last whole one is computed point by point.
struct Line<'k> {
    nest: Nest<'k>,
    /// the axis that counts points, and how many of them are a pack
    lanes: Lanes,
    /// the axis within rows, and how long these are
    within: Option<(usize, i64)>,
}

impl<'k> Line<'k> {
    fn of(nest: &Nest<'k>, stores: &[usize], axes: AxisSet, lanes: Option<Lanes>) -> Option<Line<'k>> {
        let Lanes { axis, count } = lanes.filter(|lanes| lanes.count < ENOUGH)?;
        let others: Vec<usize> = axes.without(AxisSet::of(axis)).iter().collect();
        let (nest, axis, within) = match others.as_slice() {
            [] => (nest.clone(), axis, None),
            &[outer] => {
                let length = nest.extents[axis].as_int()?;
                (nest.in_one_line(stores, outer, axis)?, outer, Some((axis, length)))
            }
            _ => return None,
        };
        let most = most_lanes(&nest, stores, axis);
        let needed = nest.needed(stores);
        let folds = (0..needed.len()).any(|k| needed[k] && nest.kernel.steps[k].op.is_fold());
        let is_long = within.is_none_or(|(_, length)| length >= most);
        (!folds && is_long && most > count).then_some(Line { nest, lanes: Lanes { axis, count: most }, within })
    }

    fn print(&self, stores: &[usize], sites: Vec<String>) -> Result<Function> {
        let Line { nest, lanes: Lanes { axis, count }, within } = self;
        let mut body = Body::new(nest, Some(self.lanes), sites);
        (body.is_near, body.is_deep) = (nest.is_near(stores), true);
        let total = body.index(&nest.extents[*axis], &[]);
        body.line(format!("const Index thread = (Index)blockIdx.x * {THREADS} + threadIdx.x;"));
        body.line(format!("const Index i{axis} = thread * {count};"));
        body.open(AxisSet::EMPTY);
        if let Some((_, length)) = within {
            body.line(format!("const Index rest = i{axis} % {length};"));
        }
        body.open_lanes();
        if let Some((inner, length)) = within {
            body.bind(AxisSet::of(*inner));
            body.line(format!("const Index i{inner} = within(rest + l, {length});"));
        }
        let mut behind = Vec::new();
        for store in stores {
            behind.extend(body.store(*store, None)?);
        }
        body.close_lanes();
        behind.into_iter().for_each(|line| body.line(line));
        body.close(&format!("if (i{axis} + {count} <= {total})"));
        body.lanes = None;
        body.open(AxisSet::of(*axis));
        if let Some((inner, length)) = within {
            body.bind(AxisSet::of(*inner));
            body.line(format!("const Index i{inner} = i{axis} % {length};"));
        }
        for store in stores {
            body.store(*store, None)?;
        }
        body.close(&format!("else for (Index i{axis} = thread * {count}; i{axis} < {total}; ++i{axis})"));
        let blocks = nest.extents[*axis].ceildiv(&Dim::int(count * i64::from(THREADS)));
        let grid = Grid { blocks, threads: THREADS, shared: 0, least_blocks: None, cluster: 1 };
        let what = match within {
            Some(_) => format!("a thread computes {count} neighbouring points, perhaps of two rows"),
            None => format!("a thread computes {count} neighbouring points, at the end fewer"),
        };
        Ok(Function::new(body, grid, what))
    }
}

/// Coordinates of axes, the outermost first, from a number that counts their points; the lanes count as one point.
pub(super) fn decode(body: &mut Body<'_>, nest: &Nest<'_>, order: &[usize], from: &str, lanes: Option<Lanes>) {
    let mut inside = Dim::int(1);
    for (k, axis) in order.iter().enumerate().rev() {
        let count = lanes.filter(|lanes| lanes.axis == *axis).map_or(1, |lanes| lanes.count);
        let extent = nest.extents[*axis].floordiv(&Dim::int(count));
        if extent.is(1) {
            body.line(format!("const Index i{axis} = 0;"));
            continue;
        }
        let (width, size) = (body.index(&inside, &[]), body.index(&extent, &[]));
        let quotient = match width.text() {
            "1" => from.to_owned(),
            width if inside.as_int().is_some() || inside.as_symbol().is_some() => format!("{from} / {width}"),
            width => format!("{from} / ({width})"),
        };
        let place = match k {
            0 => quotient,
            _ if size.is_atom() => format!("{quotient} % {size}"),
            _ => format!("{quotient} % ({size})"),
        };
        let place = match (count, k == 0 && width.text() == "1") {
            (1, _) => place,
            (count, true) => format!("{place} * {count}"),
            (count, false) => format!("({place}) * {count}"),
        };
        body.line(format!("const Index i{axis} = {place};"));
        inside = inside * extent;
    }
}

/// The axis along which a thread computes several points, and how many: as many as fill the widest access.
pub(super) fn choose_lanes(nest: &Nest<'_>, stores: &[usize], axes: AxisSet) -> Option<Lanes> {
    let moved = accesses(nest, stores);
    let bytes_along = |axis: usize| -> i64 {
        let in_line = moved.iter().filter(|access| slope(&access.offset, axis).is_some_and(|slope| slope.is(1)));
        in_line.map(|access| element::bytes(access.tensor.dtype)).sum()
    };
    let in_stores = |axis: usize| {
        stores.iter().any(|store| slope(&nest.stores[*store].access.offset, axis).is_some_and(|slope| slope.is(1)))
    };
    // Where the outputs lie side by side; of several such axes, where most else does.
    let axis = axes.iter().filter(|axis| in_stores(*axis)).max_by_key(|axis| (bytes_along(*axis), *axis))?;
    let mut count = most_lanes(nest, stores, axis);
    while count > 1 && !is_multiple(&nest.extents[axis], count) {
        count /= 2;
    }
    Some(Lanes { axis, count })
}

/// How many points along an axis fill the widest access.
fn most_lanes(nest: &Nest<'_>, stores: &[usize], axis: usize) -> i64 {
    let moved = accesses(nest, stores);
    let in_line = moved.iter().filter(|access| slope(&access.offset, axis).is_some_and(|slope| slope.is(1)));
    let narrowest = in_line.map(|access| element::bytes(access.tensor.dtype)).min().unwrap_or(4);
    (PACK_BYTES / narrowest).min(8)
}

/// What stores read and write.
fn accesses<'n>(nest: &'n Nest<'_>, stores: &[usize]) -> Vec<&'n Access> {
    let needed = nest.needed(stores);
    let is_load = |k: &usize| needed[*k] && matches!(nest.kernel.steps[*k].op, Op::Load { .. });
    let loads = (0..needed.len()).filter(is_load).map(|k| nest.load(StepId(k as u32)));
    loads.chain(stores.iter().map(|store| &nest.stores[*store].access)).collect()
}

/// The axes with those innermost along which outputs lie most densely.
pub(super) fn order_axes(nest: &Nest<'_>, stores: &[usize], axes: AxisSet, lanes: Option<Lanes>) -> Vec<usize> {
    let stride = |axis: usize| {
        let strides = stores.iter().filter_map(|store| slope(&nest.stores[*store].access.offset, axis)?.as_int());
        strides.filter(|stride| *stride > 0).min().unwrap_or(i64::MAX)
    };
    let mut order: Vec<usize> = axes.iter().collect();
    order.sort_by_key(|axis| {
        let innermost = lanes.is_some_and(|lanes| lanes.axis == *axis);
        (innermost, std::cmp::Reverse(stride(*axis)), *axis)
    });
    order
}
