//! Which axes the readers of a value ask for.

use smallvec::SmallVec;

use super::frame::{Frame, Slot};
use super::keys::{Keys, Side, bit, is_key, keys_in_parts};
use crate::graph::{Graph, Node, Value};
use crate::ops::Prim;
use crate::ops::prim::{Contract, Label, View, identity_map};
use crate::tensor::{Dim, Ranges, Shape, Symbol};

/// What a reader has a say in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Say {
    /// whether axes are taken apart
    Cuts,
    /// that, and the order of axes
    Order,
    /// everything: the value is an output
    All,
}

/// A reader of a value: the domain over which it runs and the coordinates, one for each axis of the value.
#[derive(Clone, Debug)]
pub(super) struct Vote {
    pub domain: Shape,
    pub at: Vec<Dim>,
    say: Say,
    /// the axes of the domain that the reader folds, one bit each: it does not mind in how many parts
    pub folded: u64,
    /// the axes of the domain over which a contraction sums: the reader, or one behind maps that run along the same axes
    pub summed: u64,
}

impl Vote {
    /// A reader that goes through a domain as it is.
    fn new(domain: Shape, at: Vec<Dim>, say: Say) -> Vote {
        Vote { domain, at, say, folded: 0, summed: 0 }
    }

    /// A reader of all elements, each at its own place.
    fn whole(shape: &Shape, say: Say) -> Vote {
        Vote::new(shape.clone(), identity_map(shape.rank()), say)
    }
}

/// What the readers of a node ask for.
#[derive(Clone, Debug, Default)]
pub(super) struct Wish {
    /// the axes to compute it over, where they are others than it has
    pub frame: Option<Frame>,
    /// whether nobody asks for an order of the axes
    pub any_order: bool,
}

/// A reader whose coordinates are longer expressions than this asks for nothing; see [`Dim::complexity`].
const MOST_PARTS: u32 = 64;

/// What the readers of every node ask for.
pub(super) fn wishes(graph: &Graph) -> Vec<Wish> {
    let all_joints = joints(graph, Behind::Everything);
    // A contraction lays its result down as it is asked to: a fold of it has no reason to take axes apart.
    let laid = joints(graph, Behind::Maps);
    let keys = Keys::of(graph);
    let live = graph.live_nodes();
    let mut votes: Vec<Vec<Vote>> = vec![Vec::new(); graph.nodes().len()];
    for output in graph.outputs() {
        cast(graph, &mut votes, output.value, |shape| Vote::whole(shape, Say::All));
    }
    let mut wishes: Vec<Wish> = vec![Wish::default(); graph.nodes().len()];
    for (id, node) in graph.nodes().iter().enumerate().rev().filter(|(id, _)| live[*id]) {
        let heard = std::mem::take(&mut votes[id]);
        if let Prim::View(view) = node.prim() {
            for vote in &heard {
                cast(graph, &mut votes, node.args()[0], |shape| match through(view, vote) {
                    Some(at) => Vote { at, ..vote.clone() },
                    None => Vote::whole(shape, vote.say),
                });
            }
            continue;
        }
        if is_framed(node) {
            let frame = settled(node, &heard, &all_joints[id], keys.sides(id)).filter(|frame| !frame.is_identity());
            wishes[id].frame = frame;
        }
        wishes[id].any_order = heard.iter().all(|vote| vote.say == Say::Cuts);
        vote_for_operands(graph, node, &wishes[id], &heard, &laid, &mut votes);
    }
    wishes
}

/// Whether a node can be computed over other axes.
fn is_framed(node: &Node) -> bool {
    match node.prim() {
        Prim::Map(_) => !node.args().is_empty(),
        Prim::Reduce(_) | Prim::Contract(_) => true,
        _ => false,
    }
}

/// Adds a vote, unless nobody will count it.
fn cast(graph: &Graph, votes: &mut [Vec<Vote>], value: Value, reader: impl FnOnce(&Shape) -> Vote) {
    let node = graph.node_of(value);
    if is_framed(node) || matches!(node.prim(), Prim::View(_) | Prim::Concat(_)) {
        votes[value.node()].push(reader(&graph.ty(value).shape));
    }
}

/// The coordinates that a reader of a view reads behind it; `None` where they are too long.
fn through(view: &View, vote: &Vote) -> Option<Vec<Dim>> {
    let ranges = Ranges::of(vote.domain.dims());
    let composed = view.map.iter().map(|dim| {
        let dim = dim.substitute(&|s| match s {
            Symbol::Axis(a) => vote.at.get(usize::from(*a)).cloned(),
            _ => None,
        });
        // What is very long is not even simplified.
        let dim = (dim.complexity() <= 4 * MOST_PARTS).then(|| dim.simplify(&ranges))?;
        (dim.complexity() <= MOST_PARTS).then_some(dim)
    });
    composed.collect()
}

fn vote_for_operands(
    graph: &Graph,
    node: &Node,
    wish: &Wish,
    heard: &[Vote],
    laid: &[Vec<Cuts>],
    votes: &mut [Vec<Vote>],
) {
    let identity;
    let frame = match (&wish.frame, node.types()) {
        (Some(frame), _) => frame,
        (None, [ty]) => {
            identity = Frame::identity(&ty.shape);
            &identity
        }
        (None, _) => {
            for arg in node.args() {
                cast(graph, votes, *arg, |shape| Vote::whole(shape, Say::Order));
            }
            return;
        }
    };
    match node.prim() {
        Prim::Map(_) => {
            let say = if wish.any_order { Say::Cuts } else { Say::Order };
            let summed = summed_along(frame, heard);
            for arg in node.args() {
                cast(graph, votes, *arg, |_| Vote { summed, ..Vote::new(frame.shape.clone(), frame.own.clone(), say) });
            }
        }
        Prim::Reduce(row) => cast(graph, votes, node.args()[0], |shape| {
            let (mut domain, mut at) = (frame.shape.dims().to_vec(), Vec::with_capacity(shape.rank()));
            let mut kept = frame.own.iter();
            for (k, extent) in shape.dims().iter().enumerate() {
                if !row.axes.contains(&k) {
                    at.extend(kept.next().cloned());
                    continue;
                }
                let apart = if row.monoid.is_position() { &[][..] } else { joined_at(&laid[node.args()[0].node()], k) };
                let mut index = Dim::int(0);
                for size in divided(extent, apart) {
                    index = index * &size + Dim::axis(domain.len());
                    domain.push(size);
                }
                at.push(index);
            }
            let folded = (frame.shape.rank()..domain.len()).map(bit).sum();
            Vote { folded, ..Vote::new(domain.into(), at, Say::Cuts) }
        }),
        Prim::Contract(row) => {
            for (k, labels) in [&row.a, &row.b].into_iter().enumerate() {
                let operand = node.args()[k];
                let say = if k == 0 && joins_axes(graph, operand) { Say::Order } else { Say::Cuts };
                cast(graph, votes, operand, |shape| {
                    let (domain, at) = operand_domain(row, labels, shape, frame);
                    let summed = (frame.shape.rank()..domain.rank()).map(bit).sum();
                    Vote { summed, ..Vote::new(domain, at, say) }
                });
            }
        }
        _ => {
            for arg in node.args() {
                cast(graph, votes, *arg, |shape| Vote::whole(shape, Say::Order));
            }
        }
    }
}

/// The axes of a map's frame that its readers sum as they are.
fn summed_along(frame: &Frame, heard: &[Vote]) -> u64 {
    let is_summed = |vote: &Vote, at: &Dim| match at.as_symbol() {
        Some(Symbol::Axis(axis)) => vote.summed & bit(usize::from(*axis)) != 0,
        _ => false,
    };
    let mut summed = 0;
    for vote in heard.iter().filter(|vote| vote.summed != 0) {
        let ranges = Ranges::of(vote.domain.dims());
        for (axis, back) in frame.back.iter().enumerate() {
            let at = back.substitute(&|s| match s {
                Symbol::Axis(a) => vote.at.get(usize::from(*a)).cloned(),
                _ => None,
            });
            summed |= if is_summed(vote, &at.simplify(&ranges)) { bit(axis) } else { 0 };
        }
    }
    summed
}

/// Whether a value is a view that sees several axes as one, and does nothing else: a reshape said in which order they lie.
fn joins_axes(graph: &Graph, value: Value) -> bool {
    let Prim::View(view) = graph.node_of(value).prim() else { return false };
    let mentions = |dim: &Dim, axis: usize| dim.mentions(|s| *s == Symbol::Axis(axis as u8));
    let rank = view.shape.rank();
    let apart = view.map.iter().all(|dim| (0..rank).filter(|axis| mentions(dim, *axis)).count() <= 1);
    apart && (0..rank).any(|axis| !cuts_of(view, axis).is_empty())
}

/// The axes of the result in their order, then the summed ones, and the coordinates of an operand over them.
fn operand_domain(row: &Contract, labels: &[Label], shape: &Shape, frame: &Frame) -> (Shape, Vec<Dim>) {
    let mut domain = frame.shape.dims().to_vec();
    let mut at = Vec::with_capacity(labels.len());
    for (label, extent) in labels.iter().zip(shape.dims()) {
        match row.out.iter().position(|l| l == label) {
            Some(axis) => at.push(frame.own[axis].clone()),
            None => {
                at.push(Dim::axis(domain.len()));
                domain.push(extent.clone());
            }
        }
    }
    (domain.into(), at)
}

/// Sizes of the inner parts of an axis that a reshape made of several.
pub(super) type Cuts = SmallVec<[Dim; 1]>;

/// How far behind a value one looks for reshapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    /// maps, folds and views
    Maps,
    /// contractions too
    Everything,
}

/// For every axis of every node's first result, where reshapes joined it; an empty list for nodes of which nothing was joined.
fn joints(graph: &Graph, behind: Behind) -> Vec<Vec<Cuts>> {
    let mut all: Vec<Vec<Cuts>> = Vec::with_capacity(graph.nodes().len());
    for node in graph.nodes() {
        let rank = node.types().first().map_or(0, |ty| ty.shape.rank());
        let of = |value: Value| if value.port() == 0 { all[value.node()].as_slice() } else { &[] };
        let is_joined = node.args().iter().any(|arg| !of(*arg).is_empty());
        if !is_joined && !matches!(node.prim(), Prim::View(_)) {
            all.push(Vec::new());
            continue;
        }
        let mut cuts: Vec<Cuts> = vec![Cuts::new(); rank];
        match node.prim() {
            Prim::View(view) => {
                for (axis, own) in cuts.iter_mut().enumerate() {
                    join(own, &cuts_of(view, axis));
                    let whole = view.map.iter().position(|d| *d == Dim::axis(axis));
                    join(own, whole.and_then(|k| of(node.args()[0]).get(k)).unwrap_or(&Cuts::new()));
                }
            }
            Prim::Map(_) => {
                for arg in node.args() {
                    cuts.iter_mut().zip(of(*arg)).for_each(|(own, theirs)| join(own, theirs));
                }
            }
            Prim::Reduce(row) => {
                let kept = of(node.args()[0]).iter().enumerate().filter(|(k, _)| !row.axes.contains(k));
                cuts.iter_mut().zip(kept).for_each(|(own, (_, theirs))| join(own, theirs));
            }
            Prim::Contract(row) if behind == Behind::Everything => {
                for (k, labels) in [&row.a, &row.b].into_iter().enumerate() {
                    for (label, theirs) in labels.iter().zip(of(node.args()[k])) {
                        if let Some(axis) = row.out.iter().position(|l| l == label) {
                            join(&mut cuts[axis], theirs);
                        }
                    }
                }
            }
            _ => {}
        }
        if cuts.iter().all(|own| own.is_empty()) {
            cuts = Vec::new();
        }
        all.push(cuts);
    }
    all
}

/// Where reshapes joined an axis.
fn joined_at(joints: &[Cuts], axis: usize) -> &[Dim] {
    joints.get(axis).map_or(&[], |cuts| cuts)
}

fn join(own: &mut Cuts, theirs: &Cuts) {
    for cut in theirs {
        if !own.contains(cut) {
            own.push(cut.clone());
        }
    }
}

/// Where a view takes one of its axes apart to see the axes of its operand.
pub(super) fn cuts_of(view: &View, axis: usize) -> Cuts {
    let mut cuts = Cuts::new();
    for dim in &view.map {
        dim.for_each_cut(axis, &mut |cut| join(&mut cuts, &Cuts::from_elem(cut, 1)));
    }
    cuts
}

/// The axes that a node's readers agree on.
fn settled(node: &Node, votes: &[Vote], joints: &[Cuts], sides: &[Option<Side>]) -> Option<Frame> {
    let shape = &node.types()[0].shape;
    let runs = keys_in_parts(node, sides, votes);
    let plain = shape.dims().iter().all(|d| !d.is(1)) && joints.is_empty() && runs.is_empty();
    if plain && votes.iter().all(|v| v.say == Say::Cuts || v.at == identity_map(shape.rank())) {
        return None;
    }
    let mut factors: Vec<Vec<Dim>> = Vec::with_capacity(shape.rank());
    let mut slots: Vec<Slot> = Vec::new();
    for axis in 0..shape.rank() {
        if let Some(run) = runs.iter().find(|run| run.contains(&axis)) {
            factors.push(vec![shape[axis].clone()]);
            slots.extend((run.start == axis).then_some(Slot::Run { first: run.start, last: run.end - 1 }));
            continue;
        }
        let whole = is_key(axis, sides, votes);
        factors.push(sizes_of_axis(shape, axis, joined_at(joints, axis), votes, whole));
        slots.extend((0..factors[axis].len()).map(|part| Slot::Factor { axis, part }));
    }
    let outputs = votes.iter().filter(|v| v.say == Say::All);
    if let (Prim::Map(_), Some(exact)) = (node.prim(), outputs.clone().find_map(|vote| exactly(vote, &factors, &slots)))
    {
        return Some(Frame::new(shape, &factors, &exact));
    }
    let order = |vote: &Vote| ordered(vote, &factors, &slots);
    let mut orders = votes.iter().filter(|v| v.say == Say::Order).filter_map(order);
    let wanted = match outputs.clone().find_map(order) {
        Some(order) => Some(order),
        // Any reader that is content with the order as it is decides: nothing moves without need.
        None => orders.next().filter(|first| *first == slots || !orders.any(|other| other == slots)),
    };
    Some(Frame::new(shape, &factors, &wanted.unwrap_or(slots)))
}

/// The sizes that an axis is made of: cut where a reshape joined it and a reader takes it apart. Folds have no say
/// where the axis had better stay `whole`.
fn sizes_of_axis(shape: &Shape, axis: usize, joints: &[Dim], votes: &[Vote], whole: bool) -> Vec<Dim> {
    let extent = &shape[axis];
    if extent.is(1) {
        return Vec::new();
    }
    let cuts = |vote: &Vote, cut: &Dim| is_cut(vote, axis, cut) && !(whole && vote.folds(&vote.at[axis]));
    let wanted: Cuts = joints.iter().filter(|cut| votes.iter().any(|v| cuts(v, cut))).cloned().collect();
    divided(extent, &wanted)
}

/// The sizes that an axis is made of, the outermost first, when it is cut in these places. Cuts that do not lie inside of
/// each other, or of the axis, are left out.
pub(super) fn divided(extent: &Dim, cuts: &[Dim]) -> Vec<Dim> {
    let mut inner: Vec<&Dim> = cuts.iter().collect();
    inner.sort_by_key(|cut| cuts.iter().filter(|c| divides(c, cut)).count());
    let mut sizes = Vec::new();
    let mut done = Dim::int(1);
    for cut in inner {
        if divides(&done, cut) && divides(cut, extent) {
            sizes.push(cut.floordiv(&done));
            done = cut.clone();
        }
    }
    sizes.push(extent.floordiv(&done));
    sizes.reverse();
    sizes
}

fn divides(divisor: &Dim, dim: &Dim) -> bool {
    dim.floordiv(divisor) * divisor == *dim
}

/// Whether a reader sees the quotient and the remainder of an axis as things apart.
fn is_cut(vote: &Vote, axis: usize, cut: &Dim) -> bool {
    let at = &vote.at[axis];
    if matches!(at.as_symbol(), Some(Symbol::Axis(_))) || at.as_int().is_some() {
        return false;
    }
    let ranges = Ranges::of(vote.domain.dims());
    let (outer, inner) = (at.floordiv(cut).simplify(&ranges), at.modulo(cut).simplify(&ranges));
    let shared = |s: &Symbol| matches!(s, Symbol::Axis(_)) && inner.mentions(|t| t == s);
    !outer.mentions(shared)
}

/// The slots in the order of the axes of a reader's domain; `None` where one has no place there.
fn ordered(vote: &Vote, factors: &[Vec<Dim>], slots: &[Slot]) -> Option<Vec<Slot>> {
    let ranges = Ranges::of(vote.domain.dims());
    let mut keyed = Vec::with_capacity(slots.len());
    for slot in slots {
        keyed.push((first_axis(&slot.coordinate(&vote.at, factors).simplify(&ranges))?, *slot));
    }
    keyed.sort_by_key(|(place, _)| *place);
    Some(keyed.into_iter().map(|(_, slot)| slot).collect())
}

fn first_axis(dim: &Dim) -> Option<u8> {
    let mut first = None;
    dim.for_each_symbol(&mut |s| {
        if let Symbol::Axis(a) = s {
            first = Some(first.map_or(*a, |f: u8| f.min(*a)));
        }
    });
    first
}

/// The axes of an output, if each is one slot or has the size 1, and no slot is left over.
fn exactly(vote: &Vote, factors: &[Vec<Dim>], slots: &[Slot]) -> Option<Vec<Slot>> {
    let ranges = Ranges::of(vote.domain.dims());
    let mut exact = vec![Slot::Unit; vote.domain.rank()];
    for slot in slots {
        let at = slot.coordinate(&vote.at, factors).simplify(&ranges);
        let Some(Symbol::Axis(k)) = at.as_symbol() else { return None };
        *exact.get_mut(usize::from(*k)).filter(|s| **s == Slot::Unit)? = *slot;
    }
    let fits = exact.iter().zip(vote.domain.dims()).all(|(slot, extent)| slot.extent(factors) == *extent);
    fits.then_some(exact)
}
