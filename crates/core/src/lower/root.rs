//! Stored values: which axes they give the kernel, and at which coordinates they are written.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::demand::{Coordinates, Demand};
use super::draft::{Draft, LeafOp, Place, Sink};
use super::{Group, Refusal};
use crate::graph::Value;
use crate::ops::Scope;
use crate::tensor::{Dim, Ranges, Shape, Symbol, inner_divisor};
use crate::tile::AxisSet;

/// How axes of stored values are cut in two: (output, axis) to the size of the inner part.
type Cuts = BTreeMap<(usize, usize), i64>;

/// An output is cut at most this often before lowering is content with what it has.
const MOST_CUTS: usize = 8;

/// The draft of a group. Later nodes come first: what they want of earlier outputs tells where those are written.
pub(super) fn lower_roots(group: &Group<'_>) -> Result<Draft, Refusal> {
    let mut cuts = Cuts::new();
    let mut uncut: Option<Draft> = None;
    loop {
        let draft = match (lower_with(group, &cuts), uncut.take()) {
            // A running fold along an axis has no place on the parts of one.
            (Err(_), Some(draft)) => return Ok(draft),
            (lowered, _) => lowered?,
        };
        let wanted = wanted_cuts(&draft, group);
        let before = cuts.len();
        for (place, inner) in wanted {
            cuts.entry(place).or_insert(inner);
        }
        if cuts.len() == before || cuts.len() > MOST_CUTS {
            return Ok(draft.0);
        }
        uncut = Some(draft.0);
    }
}

/// A draft with, for every axis of the kernel that is an axis of an output, which one that is.
type Rooted = (Draft, BTreeMap<usize, (usize, usize)>);

fn lower_with(group: &Group<'_>, cuts: &Cuts) -> Result<Rooted, Refusal> {
    let scope = Scope::default();
    let mut walk = Demand::new(group.graph, group.members, &scope, group.outputs);
    let mut owners = BTreeMap::new();
    let mut sinks: Vec<Option<Sink>> = vec![None; group.outputs.len()];
    for (k, value) in group.outputs.iter().enumerate().rev() {
        let (at, term) = match written_where_wanted(&walk, group, *value) {
            Some(found) => found,
            None => root(&mut walk, group, k, cuts, &mut owners)?,
        };
        let index = walk.coordinate_list(at).to_vec();
        let axes = index.iter().map(AxisSet::mentioned).fold(AxisSet::EMPTY, AxisSet::union);
        sinks[k] = Some(Sink { value: *value, ty: group.graph.ty(*value).clone(), index, term, axes });
    }
    let sinks: Vec<Sink> = sinks.into_iter().flatten().collect();
    let Demand { axes, inputs, leaves, term_axes, .. } = walk;
    if sinks.iter().any(|s| !term_axes[s.term as usize].is_within(s.axes)) {
        return Err(Refusal::Unrelated);
    }
    Ok((Draft { axes, inputs, leaves, scope, sinks, term_axes }, owners))
}

/// Where a value is wanted already, at coordinates that cover it exactly once.
fn written_where_wanted(walk: &Demand<'_, '_>, group: &Group<'_>, value: Value) -> Option<(Coordinates, Place)> {
    let shape = &group.graph.ty(value).shape;
    // The first of them, by the order in which their coordinates came up.
    let mut places = walk.places_of(value).to_vec();
    places.sort_unstable();
    places.into_iter().find(|(at, _)| covers(walk.coordinate_list(*at), shape, &walk.axes))
}

/// Whether coordinates over axes reach every element of a shape exactly once: the row-major position is a sum of axes
/// with strides in mixed radix.
pub(crate) fn covers(index: &[Dim], shape: &Shape, axes: &[Dim]) -> bool {
    let ranges = Ranges::of(axes);
    let flat = shape.flat_index(index).simplify(&ranges);
    let Some((parts, rest)) = flat.separate(axes.len()) else { return false };
    if !rest.is(0) {
        return false;
    }
    // The strides, from the smallest: each must be the number of elements that the axes before it reach.
    let used: Vec<usize> = (0..axes.len()).filter(|a| !parts[*a].is(0)).collect();
    let stride = |axis: usize| {
        let at_one = parts[axis].substitute(&|s| (*s == Symbol::Axis(axis as u8)).then(|| Dim::int(1)));
        (&at_one * Dim::axis(axis) == parts[axis]).then_some(at_one)
    };
    let Some(strides) = used.iter().map(|a| Some((*a, stride(*a)?))).collect::<Option<Vec<_>>>() else { return false };
    let mut left = strides;
    let mut reached = Dim::int(1);
    while !left.is_empty() {
        let Some(k) = left.iter().position(|(_, stride)| *stride == reached) else { return false };
        let (axis, _) = left.remove(k);
        reached = reached * &axes[axis];
    }
    reached == shape.count()
}

/// Wants a stored value at every point of axes of its own, sharing axes with what was loaded before where both read
/// the same tensor along them.
fn root(
    walk: &mut Demand<'_, '_>,
    group: &Group<'_>,
    output: usize,
    cuts: &Cuts,
    owners: &mut BTreeMap<usize, (usize, usize)>,
) -> Result<(Coordinates, Place), Refusal> {
    let value = group.outputs[output];
    let parts = parts_of(group, output, cuts);
    let shared = if owners.is_empty() { None } else { shared_axes(walk, group, value, &parts, owners) };
    let mut at = Vec::with_capacity(parts.len());
    for (k, parts) in parts.iter().enumerate() {
        let mut index = Dim::int(0);
        for (p, part) in parts.iter().enumerate() {
            let axis = match shared.as_ref().and_then(|shared| shared[k][p]) {
                Some(axis) => axis,
                None => {
                    let axis = walk.add_axis(part.extent.clone())?;
                    owners.insert(axis, (output, k));
                    axis
                }
            };
            index = index + Dim::axis(axis) * part.stride;
        }
        at.push(index);
    }
    let at = walk.coordinates(at);
    let term = walk.value(value, at, 0)?;
    Ok((at, term))
}

/// A part of an axis of a stored value that an axis of the kernel runs along.
struct Part {
    extent: Dim,
    stride: i64,
}

/// For every axis of a stored value its parts: none where it has one element, two where it is cut.
fn parts_of(group: &Group<'_>, output: usize, cuts: &Cuts) -> Vec<Vec<Part>> {
    let shape = &group.graph.ty(group.outputs[output]).shape;
    let parts = shape.dims().iter().enumerate().map(|(k, extent)| match cuts.get(&(output, k)) {
        _ if extent.is(1) => Vec::new(),
        Some(inner) => {
            let outer = Part { extent: extent.floordiv(&Dim::int(*inner)), stride: *inner };
            vec![outer, Part { extent: Dim::int(*inner), stride: 1 }]
        }
        None => vec![Part { extent: extent.clone(), stride: 1 }],
    });
    parts.collect()
}

/// For every part of every axis of a further stored value, the axis of the kernel that runs along it, if there is one: a tensor
/// that both read is read along it by both, or one of them reads nothing along it and computes with the coordinate.
fn shared_axes(
    walk: &Demand<'_, '_>,
    group: &Group<'_>,
    value: Value,
    parts: &[Vec<Part>],
    owners: &BTreeMap<usize, (usize, usize)>,
) -> Option<Vec<Vec<Option<usize>>>> {
    // The value by itself, to see what it reads.
    let scope = Scope::default();
    let mut alone = Demand::new(group.graph, group.members, &scope, &[]);
    let mut at = Vec::with_capacity(parts.len());
    let mut own: Vec<Vec<usize>> = Vec::with_capacity(parts.len());
    for parts in parts {
        let axes = parts.iter().map(|part| alone.add_axis(part.extent.clone()).ok()).collect::<Option<Vec<_>>>()?;
        at.push(axes.iter().zip(parts).fold(Dim::int(0), |sum, (axis, part)| sum + Dim::axis(*axis) * part.stride));
        own.push(axes);
    }
    let at = alone.coordinates(at);
    alone.value(value, at, 0).ok()?;
    let mut shared: Vec<Option<usize>> = vec![None; alone.axes.len()];
    for leaf in &alone.leaves {
        let LeafOp::Load { input, index, .. } = &leaf.op else { continue };
        let source = alone.inputs[*input].0;
        let twins = walk.leaves.iter().filter_map(|old| match &old.op {
            LeafOp::Load { input, index, .. } if walk.inputs[*input].0 == source => Some(index),
            _ => None,
        });
        for twin in twins {
            for (new, old) in index.iter().zip(twin) {
                for (new, old) in twin_axes(new, &alone.axes, old, &walk.axes) {
                    if shared[new].is_none() && !shared.contains(&Some(old)) {
                        shared[new] = Some(old);
                    }
                }
            }
        }
    }
    for new in own.iter().flatten().copied() {
        let is_twin = |old: &usize| {
            walk.axes[*old] == alone.axes[new]
                && !shared.contains(&Some(*old))
                && !(is_read_along(&alone, new) && is_read_along(walk, *old))
        };
        if shared[new].is_none() {
            shared[new] = owners.keys().copied().find(is_twin);
        }
    }
    Some(own.into_iter().map(|axes| axes.into_iter().map(|axis| shared[axis]).collect()).collect())
}

/// Whether a tensor is read along an axis.
fn is_read_along(walk: &Demand<'_, '_>, axis: usize) -> bool {
    walk.leaves.iter().any(|leaf| match &leaf.op {
        LeafOp::Load { index, .. } => index.iter().any(|dim| AxisSet::mentioned(dim).contains(axis)),
        _ => false,
    })
}

/// Pairs of axes of the same extent that two coordinates step along with the same stride.
fn twin_axes(new: &Dim, new_axes: &[Dim], old: &Dim, old_axes: &[Dim]) -> Vec<(usize, usize)> {
    let strides = |dim: &Dim, axes: &[Dim]| -> Vec<(usize, Dim)> {
        let Some((parts, _)) = dim.separate(axes.len()) else { return Vec::new() };
        (0..axes.len()).filter(|a| !parts[*a].is(0)).map(|a| (a, parts[a].clone())).collect()
    };
    let (ours, theirs) = (strides(new, new_axes), strides(old, old_axes));
    let mut pairs = Vec::new();
    for (a, part) in &ours {
        let moved = |b: usize| part.substitute(&|s| (*s == Symbol::Axis(*a as u8)).then(|| Dim::axis(b)));
        let twin = theirs.iter().find(|(b, other)| new_axes[*a] == old_axes[*b] && moved(*b) == *other);
        pairs.extend(twin.map(|(b, _)| (*a, *b)));
    }
    pairs
}

/// The axes of outputs that the kernel is plainer with as quotient and remainder: everything that it reads, or everything
/// that goes into one fold, sees them through a division by a constant only. Without the cut the fold would be computed
/// once for every remainder.
fn wanted_cuts((draft, owners): &Rooted, group: &Group<'_>) -> Vec<((usize, usize), i64)> {
    let everything = (0..draft.leaves.len()).collect::<Vec<_>>();
    let mut cuts = BTreeMap::new();
    // Most kernels divide nothing: there is no need to look at what each fold depends on.
    if !divides(draft) {
        return Vec::new();
    }
    let direct: FxHashMap<Place, Vec<usize>> = draft.ends().map(|end| (end, draft.leaves_of(end))).collect();
    let folds = draft.folds().map(|fold| below(draft, &direct, fold));
    for leaves in folds.chain([everything]) {
        for (axis, inner) in divided_axes(draft, &leaves).into_iter().filter(|(axis, _)| owners.contains_key(axis)) {
            let (output, k) = owners[&axis];
            let extent = &group.graph.ty(group.outputs[output]).shape[k];
            if extent.modulo(&Dim::int(inner)).is(0) && draft.axes[axis] == *extent {
                cuts.entry((output, k)).or_insert(inner);
            }
        }
    }
    cuts.into_iter().collect()
}

/// Whether a load sees an axis through a division.
fn divides(draft: &Draft) -> bool {
    let sees = |dim: &Dim| AxisSet::mentioned(dim).iter().any(|axis| dim.least_divisor_of(axis).is_some());
    draft.leaves.iter().any(|leaf| matches!(&leaf.op, LeafOp::Load { index, .. } if index.iter().any(sees)))
}

/// All leaves that a leaf depends on; `direct` are those that ends of arithmetic read.
fn below(draft: &Draft, direct: &FxHashMap<Place, Vec<usize>>, leaf: usize) -> Vec<usize> {
    let mut found = vec![false; draft.leaves.len()];
    let mut todo = vec![leaf];
    while let Some(leaf) = todo.pop() {
        for operand in draft.leaves[leaf].op.operands() {
            todo.extend(direct[&operand].iter().filter(|l| !std::mem::replace(&mut found[**l], true)));
        }
    }
    (0..found.len()).filter(|l| found[*l]).collect()
}

/// The axes that the loads among some leaves see through divisions only, by a constant `c` or multiples of it: heads of queries lie in runs of as many
/// columns as a head has, and those of shared keys in runs of several heads.
fn divided_axes(draft: &Draft, leaves: &[usize]) -> Vec<(usize, i64)> {
    let mut seen: BTreeMap<usize, Option<i64>> = BTreeMap::new();
    let indices = leaves.iter().filter_map(|leaf| match &draft.leaves[*leaf].op {
        LeafOp::Load { index, .. } => Some(index),
        _ => None,
    });
    for dim in indices.flatten() {
        for axis in AxisSet::mentioned(dim).iter() {
            let divisor = dim.least_divisor_of(axis);
            let entry = seen.entry(axis).or_insert(divisor);
            *entry = entry.zip(divisor).and_then(|(old, new)| inner_divisor(old, new));
        }
    }
    seen.into_iter().filter_map(|(axis, divisor)| Some((axis, divisor?))).collect()
}
