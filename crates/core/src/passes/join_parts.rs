//! Parts that were computed apart and put behind one another.
//!
//! Rotary embeddings are the reason: the second half of a vector negated, then the first, is the vector seen in another
//! order, times a sign that depends on the place. So are pairs that are taken apart, turned and stacked again, and integers
//! that are unpacked from bytes.

mod bits;
mod places;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::{Context, Pass};
use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, replaced, rewrite_outside_regions};
use crate::graph::{Graph, Value};
use crate::ops::prim::{Concat, Map, View, identity_map};
use crate::ops::{Expr, ExprNode, Number, Prim, Scalar, Scope, Term};
use crate::tensor::{Class, Dim, Ranges, Shape, Symbol};

pub(super) const PASS: Pass = Pass {
    name: "join-parts",
    doc: "A concat of parts that compute alike from parts of the same tensors is one computation over all of them.",
    run,
};

/// In: any graph. Out: no concat has only parts that are the same scalar expression, signs, shifts and constants aside, of views of
/// the same tensors, whose index maps are one map: equal in place, side by side in steps that may be repeated, or rotated; nor two such
/// neighbours that are computed; nor does a map read concats whose parts it chooses by a short axis, if what it computes at each place of that axis are such
/// parts. Regions are left alone.
fn run(graph: &Graph, context: &Context) -> Result<Option<Graph>> {
    let Some(mut after) = once(graph, context)? else { return Ok(None) };
    // A concat of concats sees what its parts have become.
    for _ in 0..MOST_TURNS {
        let Some(again) = once(&after, context)? else { break };
        after = again;
    }
    Ok(Some(after))
}

/// Concats are seldom inside of more others than a few.
const MOST_TURNS: usize = 64;

/// The graph with concats joined; `None` where there are none to join.
fn once(graph: &Graph, context: &Context) -> Result<Option<Graph>> {
    let readers = readers(graph);
    let mut joined = false;
    let after = rewrite_outside_regions(graph, &context.budget, |rebuild, id| {
        let node = &graph.nodes()[id];
        match node.prim() {
            Prim::Concat(row) if (2..=MOST_PARTS).contains(&node.args().len()) => {
                let shape = &node.types()[0].shape;
                let whole = match join(rebuild, &Parts::new(graph, &readers, row, node.args(), shape), node.args())? {
                    None if node.args().len() > 2 => join_neighbours(rebuild, graph, &readers, id)?,
                    whole => whole,
                };
                joined |= whole.is_some();
                Ok(whole)
            }
            Prim::Map(row) => {
                let Some(axis) = places::chosen_along(graph, &readers, row, node.args()) else { return Ok(None) };
                let parts = Parts::places(graph, &readers, axis, &row.shape);
                let whole = places::join_places(rebuild, &parts, (row, node.args()))?;
                joined |= whole.is_some();
                Ok(whole)
            }
            _ => Ok(None),
        }
    })?;
    Ok(after.filter(|_| joined))
}

/// Longer lists of parts are tables that somebody assembles.
const MOST_PARTS: usize = 32;

/// How many maps and views behind a part are looked at in a line.
const MOST_DEPTH: usize = 12;

/// How often each node is read by what is not dead, outputs included.
fn readers(graph: &Graph) -> Vec<u32> {
    let mut readers = vec![0; graph.nodes().len()];
    let outputs = graph.outputs().iter().map(|o| o.value);
    let live = graph.nodes().iter().zip(graph.live_nodes()).filter_map(|(node, live)| live.then_some(node));
    for value in live.flat_map(|node| node.args().iter().copied()).chain(outputs) {
        readers[value.node()] += 1;
    }
    readers
}

/// A concat that may be one computation.
struct Parts<'g> {
    graph: &'g Graph,
    readers: &'g [u32],
    axis: usize,
    shape: &'g Shape,
    /// where each part begins, and how long it is
    starts: Vec<Dim>,
    sizes: Vec<Dim>,
}

fn join(rebuild: &mut Rebuild<'_>, parts: &Parts<'_>, args: &[Value]) -> Result<Option<Values>> {
    let scope = Scope::default();
    let mut union = Union::new(parts, &scope);
    let terms: SmallVec<[Term<'_>; 2]> = args.iter().map(|arg| union.part(*arg)).collect();
    let root = union.join(&terms);
    finish(rebuild, &union, root)
}

/// A concat of which two neighbours compute alike, as one with a part less: what turns, beside what is passed on as it is.
fn join_neighbours(rebuild: &mut Rebuild<'_>, graph: &Graph, readers: &[u32], id: usize) -> Result<Option<Values>> {
    let node = &graph.nodes()[id];
    let Prim::Concat(row) = node.prim() else { return Ok(None) };
    let is_computed = |part: &Value| matches!(graph.node_of(*part).prim(), Prim::Map(_));
    for (k, pair) in node.args().windows(2).enumerate() {
        if !pair.iter().all(is_computed) {
            continue;
        }
        let mut shape = graph.ty(pair[0]).shape.dims().to_vec();
        shape[row.axis] = &shape[row.axis] + &graph.ty(pair[1]).shape[row.axis];
        let shape = Shape::from(shape);
        if let Some(joined) = join(rebuild, &Parts::new(graph, readers, row, pair, &shape), pair)? {
            let mut parts: Vec<Value> = node.args()[..k].iter().map(|part| rebuild.moved(*part)).collect();
            parts.push(joined[0]);
            parts.extend(node.args()[k + 2..].iter().map(|part| rebuild.moved(*part)));
            return replaced(rebuild.add(row.clone(), &parts)?);
        }
    }
    Ok(None)
}

/// The map that computes a joined term.
fn finish<'s>(rebuild: &mut Rebuild<'_>, union: &Union<'_, 's>, root: Option<Term<'s>>) -> Result<Option<Values>> {
    let (Some(root), parts) = (root, union.parts) else { return Ok(None) };
    let leaves: Vec<Term<'_>> = union.joined.iter().map(|(leaf, ..)| *leaf).collect();
    let expr = Expr::of(root, &leaves);
    let mut operands: SmallVec<[Value; 3]> = SmallVec::new();
    for (_, view, source) in &union.joined {
        let source = rebuild.moved(*source);
        let identity = view.is_identity(&rebuild.graph().ty(source).shape);
        operands.push(if identity { source } else { rebuild.add(view.clone(), &[source])? });
    }
    if let ([leaf], [only]) = (leaves.as_slice(), operands.as_slice())
        && *leaf == root
    {
        return replaced(*only);
    }
    replaced(rebuild.add(Map { expr, shape: parts.shape.clone() }, &operands)?)
}

impl<'g> Parts<'g> {
    fn new(graph: &'g Graph, readers: &'g [u32], row: &Concat, args: &[Value], shape: &'g Shape) -> Parts<'g> {
        let sizes: Vec<Dim> = args.iter().map(|arg| graph.ty(*arg).shape[row.axis].clone()).collect();
        let starts = (0..sizes.len()).map(|k| sizes[..k].iter().cloned().sum()).collect();
        Parts { graph, readers, axis: row.axis, shape, starts, sizes }
    }

    /// The places along an axis, each a part by itself.
    fn places(graph: &'g Graph, readers: &'g [u32], axis: usize, shape: &'g Shape) -> Parts<'g> {
        let starts: Vec<Dim> = (0..shape[axis].as_int().unwrap_or(0)).map(Dim::int).collect();
        let sizes = vec![Dim::int(1); starts.len()];
        Parts { graph, readers, axis, shape, starts, sizes }
    }

    /// What the parts look at, if that is one tensor and their index maps are one.
    fn join_leaves(&self, leaves: &[&Leaf]) -> Option<(View, Value)> {
        let source = leaves[0].source;
        if leaves.iter().any(|leaf| leaf.source != source) {
            return None;
        }
        let at = |k: usize| self.join_indices(&leaves.iter().map(|leaf| &leaf.map[k]).collect::<Vec<_>>());
        let map = (0..leaves[0].map.len()).map(at).collect::<Option<Vec<_>>>()?;
        Some((View::new(self.shape.clone(), map), source))
    }

    /// The index over the whole that each part's own index is a piece of.
    fn join_indices(&self, own: &[&Dim]) -> Option<Dim> {
        let here = Dim::axis(self.axis);
        let is_here = |s: &Symbol| *s == Symbol::Axis(self.axis as u8);
        let with = |dim: &Dim, at: &Dim| dim.substitute(&|s| is_here(s).then(|| at.clone()));
        let in_place: Vec<Dim> = own.iter().zip(&self.starts).map(|(dim, start)| with(dim, &(&here - start))).collect();
        if in_place.iter().all(|dim| *dim == in_place[0]) {
            return Some(in_place[0].clone());
        }
        let fixed: Vec<Dim> = own.iter().map(|dim| with(dim, &Dim::int(0))).collect();
        let size = &self.sizes[0];
        if self.sizes.iter().all(|s| s == size) {
            // The same piece of the tensor, further on by as much as the number of the part says.
            let apart: Vec<Dim> = fixed.iter().map(|dim| dim - &fixed[0]).collect();
            let alike = own.iter().zip(&apart).all(|(dim, apart)| *dim - apart == *own[0]);
            if let Some(further) = alike.then(|| by_number(&apart, &here, size)).flatten() {
                return Some(with(own[0], &here.modulo(size)) + further);
            }
        }
        // Rotated: the first part is what the second one left out behind it.
        let [first, second] = own else { return None };
        let along = |dim: &Dim, fixed: &Dim| *dim == fixed + &here && !fixed.mentions(is_here);
        let rotated = along(first, &fixed[0]) && along(second, &fixed[1]) && &fixed[0] - &fixed[1] == self.sizes[1];
        rotated.then(|| &fixed[1] + (&here + &self.sizes[1]).modulo(&(&self.sizes[0] + &self.sizes[1])))
    }
}

/// The part of a concat that a view stays inside of, and how it is seen.
fn inside_part(graph: &Graph, row: &Concat, parts: &[Value], seen: &View) -> Option<(Value, View)> {
    let ranges = Ranges::of(seen.shape.dims());
    let mut at = seen.map[row.axis].clone();
    for part in parts {
        let size = &graph.ty(*part).shape[row.axis];
        if ranges.is_below(&at, size) {
            let mut map = seen.map.clone();
            map[row.axis] = at;
            return Some((*part, View::new(seen.shape.clone(), map)));
        }
        at = at - size;
    }
    None
}

/// What is added in each of equally long parts, as a function of the place: some number times the number of the part, which may be counted
/// in steps, and again and again.
fn by_number(apart: &[Dim], here: &Dim, size: &Dim) -> Option<Dim> {
    let count = apart.len();
    let Some(first) = apart.iter().position(|dim| !dim.is(0)) else { return Some(Dim::int(0)) };
    // Each number `first` times in a row, then the next one, until they begin again.
    let step = &apart[first];
    let number = |dim: &Dim| (0..count as i64).find(|n| *dim == step * *n);
    let numbers: Vec<i64> = apart.iter().map(number).collect::<Option<_>>()?;
    let period = (1..=count / first).find(|n| numbers.iter().enumerate().all(|(k, m)| (k / first % n) as i64 == *m))?;
    let nth = here.floordiv(&(size * first as i64));
    Some(step * if period * first >= count { nth } else { nth.modulo(&Dim::from(period)) })
}

/// Elements of a tensor that a part reads.
#[derive(Clone, PartialEq, Eq)]
struct Leaf {
    source: Value,
    /// coordinate of each axis of the tensor over the axes of the part
    map: Vec<Dim>,
}

/// The parts as terms of one scope, and what they become.
struct Union<'p, 's> {
    parts: &'p Parts<'p>,
    scope: &'s Scope,
    /// the arguments of the parts' terms
    leaves: Vec<Leaf>,
    /// the arguments of the joined term: views over the whole
    joined: Vec<(Term<'s>, View, Value)>,
    known: FxHashMap<SmallVec<[usize; 2]>, Option<Term<'s>>>,
    /// whether a term looks through a concat at one of its parts
    passes_concat: bool,
}

impl<'p, 's> Union<'p, 's> {
    fn new(parts: &'p Parts<'p>, scope: &'s Scope) -> Union<'p, 's> {
        let (leaves, joined, known) = (Vec::new(), Vec::new(), FxHashMap::default());
        Union { parts, scope, leaves, joined, known, passes_concat: false }
    }

    /// A part as a term.
    fn part(&mut self, value: Value) -> Term<'s> {
        let shape = &self.parts.graph.ty(value).shape;
        self.term(value, View::new(shape.clone(), identity_map(shape.rank())), MOST_DEPTH)
    }

    /// What a value holds, seen through a view: the expressions of maps that nobody else reads, and arguments.
    fn term(&mut self, value: Value, seen: View, depth: usize) -> Term<'s> {
        let node = self.parts.graph.node_of(value);
        let is_own = depth > 0 && self.parts.readers[value.node()] == 1;
        match node.prim() {
            Prim::View(view) if depth > 0 && view.guard.is_empty() => {
                // What a shared view looks at may be shared too.
                let depth = if is_own { depth - 1 } else { 0 };
                let through = seen.after(view).expect("views without guards compose");
                return self.term(node.args()[0], through, depth);
            }
            Prim::Concat(row) if depth > 0 => {
                if let Some((part, seen)) = inside_part(self.parts.graph, row, node.args(), &seen) {
                    self.passes_concat = true;
                    return self.term(part, seen, depth - 1);
                }
            }
            Prim::Map(row) if is_own && !row.expr.has_coordinates() => {
                let args: SmallVec<[Term<'s>; 3]> =
                    node.args().iter().map(|a| self.term(*a, seen.clone(), depth - 1)).collect();
                return row.expr.inline(self.scope, &args);
            }
            _ => {}
        }
        let leaf = Leaf { source: value, map: seen.map };
        let place = self.leaves.iter().position(|l| *l == leaf).unwrap_or_else(|| {
            self.leaves.push(leaf);
            self.leaves.len() - 1
        });
        self.scope.argument(place, self.parts.graph.ty(value).dtype)
    }

    /// The term over the whole that each part's term is a piece of.
    fn join(&mut self, terms: &[Term<'s>]) -> Option<Term<'s>> {
        let nodes: SmallVec<[ExprNode; 2]> = terms.iter().map(|t| t.node()).collect();
        if terms.iter().any(|t| t.dtype() != terms[0].dtype()) {
            return None;
        }
        if nodes.iter().all(|n| matches!(n, ExprNode::Arg(_))) {
            return self.join_arguments(&nodes, terms[0]);
        }
        if terms.iter().all(|t| t.operands().is_empty()) && nodes.iter().all(|n| *n == nodes[0]) {
            return Some(terms[0]);
        }
        let same = |a: &ExprNode, b: &ExprNode| match (a, b) {
            (ExprNode::Apply(a, _), ExprNode::Apply(b, _)) => a == b,
            (ExprNode::Cast(_), ExprNode::Cast(_)) | (ExprNode::Bits(_), ExprNode::Bits(_)) => true,
            _ => false,
        };
        if nodes.iter().all(|n| same(n, &nodes[0])) {
            let operands: SmallVec<[SmallVec<[Term<'s>; 3]>; 2]> = terms.iter().map(|t| t.operands()).collect();
            return self.join_calls(&nodes[0], terms[0], &operands);
        }
        if let Some(joined) = self.join_integers(terms).or_else(|| self.join_bits(terms)) {
            return Some(joined);
        }
        match (terms, nodes.as_slice()) {
            (&[a, b], [ExprNode::Const(x), ExprNode::Const(y)]) => {
                let constant = |n: Number| self.scope.constant(a.dtype(), n);
                Some(self.in_first().select(constant(*x), constant(*y))).filter(|_| a.dtype() == b.dtype())
            }
            (&[a, b], _) => self.join_signed(a, b),
            _ => None,
        }
    }

    fn join_calls(
        &mut self,
        node: &ExprNode,
        like: Term<'s>,
        operands: &[SmallVec<[Term<'s>; 3]>],
    ) -> Option<Term<'s>> {
        let mut column = |order: &dyn Fn(usize, usize) -> usize| {
            let joined = (0..operands[0].len()).map(|k| {
                let all: SmallVec<[Term<'s>; 2]> =
                    operands.iter().enumerate().map(|(part, operands)| operands[order(part, k)]).collect();
                self.join(&all)
            });
            joined.collect::<Option<SmallVec<[Term<'s>; 3]>>>()
        };
        let mut found = column(&|_, k| k);
        if let (None, ExprNode::Apply(op, _), [_, _]) = (&found, node, operands)
            && op.is_commutative()
        {
            found = column(&|part, k| if part == 1 { 1 - k } else { k });
        }
        found.map(|operands| self.scope.step(node, like.dtype(), &operands))
    }

    fn join_arguments(&mut self, nodes: &[ExprNode], like: Term<'s>) -> Option<Term<'s>> {
        let places: SmallVec<[usize; 2]> =
            nodes.iter().filter_map(|n| if let ExprNode::Arg(k) = n { Some(*k as usize) } else { None }).collect();
        if let Some(known) = self.known.get(&places) {
            return *known;
        }
        let leaves: Vec<&Leaf> = places.iter().map(|k| &self.leaves[*k]).collect();
        let joined = self.parts.join_leaves(&leaves).map(|(view, source)| {
            // Numbers that no argument of a part has.
            let leaf = self.scope.argument(FIRST_JOINED + self.joined.len(), like.dtype());
            self.joined.push((leaf, view, source));
            leaf
        });
        self.known.insert(places, joined);
        joined
    }

    /// `x` in the first part and `−y` in the second, or the other way round, also as the second terms of sums.
    fn join_signed(&mut self, a: Term<'s>, b: Term<'s>) -> Option<Term<'s>> {
        if !matches!(a.dtype().class(), Class::Float | Class::Signed) {
            return None;
        }
        let negated = |t: Term<'s>| (t.as_call() == Some(Scalar::Neg)).then(|| t.operands()[0]);
        match (negated(a), negated(b)) {
            (Some(a), None) => return self.join(&[a, b]).map(|x| self.signed(x, true)),
            (None, Some(b)) => return self.join(&[a, b]).map(|x| self.signed(x, false)),
            _ => {}
        }
        // Of a sum and a difference, the sum has its terms in any order.
        let call = |t: Term<'s>, op: Scalar| (t.as_call() == Some(op)).then(|| [t.operands()[0], t.operands()[1]]);
        let (difference, sum, first) = match (call(a, Scalar::Sub), call(b, Scalar::Add)) {
            (Some(difference), Some(sum)) => (difference, sum, true),
            _ => (call(b, Scalar::Sub)?, call(a, Scalar::Add)?, false),
        };
        let pair = |x: Term<'s>, y: Term<'s>| if first { [x, y] } else { [y, x] };
        for [x, y] in [sum, [sum[1], sum[0]]] {
            if let Some(left) = self.join(&pair(difference[0], x))
                && let Some(right) = self.join(&pair(difference[1], y))
            {
                return Some(left + self.signed(right, first));
            }
        }
        None
    }

    /// Whether a place is in the first of two parts.
    fn in_first(&self) -> Term<'s> {
        self.scope.coord(self.parts.axis).lt(self.scope.size(self.parts.starts[1].clone()))
    }

    /// A term, negated in one of two parts.
    fn signed(&self, term: Term<'s>, first_is_negative: bool) -> Term<'s> {
        let number = |n: i64| self.scope.constant(term.dtype(), Number::from_int(term.dtype(), n));
        let (first, second) = if first_is_negative { (-1, 1) } else { (1, -1) };
        self.in_first().select(number(first), number(second)) * term
    }
}

/// The arguments of joined terms are counted from here.
const FIRST_JOINED: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::super::testing::{check, count};
    use super::*;
    use crate::graph::{Builder, Tensor};
    use crate::tensor::DType;

    fn vectors<'b>(b: &'b Builder, name: &str) -> Tensor<'b> {
        b.input(name, DType::F32, Shape::new([Dim::named("n"), Dim::int(8)]))
    }

    fn halves(x: Tensor<'_>) -> [Tensor<'_>; 2] {
        [x.slice(1, 0usize, 4usize, 1), x.slice(1, 4usize, 4usize, 1)]
    }

    #[test]
    fn the_second_half_negated_then_the_first_is_the_vector_turned() {
        let b = Builder::new("turned");
        let [first, second] = halves(vectors(&b, "x"));
        b.output("y", b.concat(&[-second, first], 1));
        let after = check(&PASS, b.finish().unwrap());
        assert_eq!((count(&after, "concat"), count(&after, "view"), count(&after, "map")), (0, 1, 1), "{after}");
    }

    #[test]
    fn halves_turned_by_formulas_of_their_own_are_one_formula() {
        let b = Builder::new("apart");
        let [first, second] = halves(vectors(&b, "x"));
        let table = |name: &str| b.input(name, DType::F32, Shape::new([4usize])).expand(first.shape().unwrap());
        let (cos, sin) = (table("cos"), table("sin"));
        b.output("y", b.concat(&[first * cos - second * sin, first * sin + second * cos], 1));
        let after = check(&PASS, b.finish().unwrap());
        assert_eq!((count(&after, "concat"), count(&after, "map")), (0, 1), "{after}");
    }

    #[test]
    fn pairs_that_are_stacked_again_are_side_by_side() {
        let b = Builder::new("pairs");
        let x = vectors(&b, "x").reshape(Shape::new([Dim::named("n"), Dim::int(4), Dim::int(2)]));
        let part = |k: i64| x.slice(2, k, 1usize, 1);
        let flat = |k: i64| x.element(2, k);
        b.output("same", b.concat(&[part(0).exp(), part(1).exp()], 2));
        b.output("swapped", b.concat(&[part(1), -part(0)], 2));
        b.output("stacked", b.concat(&[flat(0).tanh().insert_axes(&[2]), flat(1).tanh().insert_axes(&[2])], 2));
        let after = check(&PASS, b.finish().unwrap());
        assert_eq!(count(&after, "concat"), 0, "{after}");
    }

    #[test]
    fn readers_that_nobody_reads_do_not_count() {
        let b = Builder::new("dead");
        let x = vectors(&b, "x");
        let negated = -x;
        let _ = negated.exp();
        b.output("y", b.concat(&[negated, x], 0));
        assert_eq!(count(&check(&PASS, b.finish().unwrap()), "concat"), 0);
    }

    #[test]
    fn a_table_behind_itself_is_repeated() {
        let b = Builder::new("doubled");
        let x = vectors(&b, "x");
        b.output("y", b.concat(&[x, x, x], 0).exp());
        let after = check(&PASS, b.finish().unwrap());
        assert_eq!((count(&after, "concat"), count(&after, "view")), (0, 1), "{after}");
    }

    #[test]
    fn heads_that_are_repeated_one_by_one_are_read_in_steps() {
        let b = Builder::new("heads");
        let x = b.input("x", DType::F32, Shape::new([Dim::named("n"), Dim::int(2), Dim::int(4)]));
        let head = |k: i64| x.slice(1, k, 1usize, 1);
        b.output("each", b.concat(&[0, 0, 0, 1, 1, 1].map(head), 1));
        b.output("in turn", b.concat(&[0, 1, 0, 1].map(head), 1));
        b.output("longer", b.concat(&[1, 0].map(|k| b.concat(&[head(k), head(k)], 1)), 1));
        let after = check(&PASS, b.finish().unwrap());
        assert_eq!((count(&after, "concat"), count(&after, "view")), (0, 3), "{after}");
        let b = Builder::new("other");
        let x = b.input("x", DType::F32, Shape::new([Dim::named("n"), Dim::int(4), Dim::int(4)]));
        b.output("y", b.concat(&[0, 1, 3].map(|k: i64| x.slice(1, k, 1usize, 1)), 1));
        assert_eq!(count(&check(&PASS, b.finish().unwrap()), "concat"), 1);
    }

    #[test]
    fn integers_that_were_packed_are_shifted_by_place_and_masked() {
        use Scalar::{And, Shr};
        let unpacked = |parts: &dyn for<'b> Fn(&'b Builder, Tensor<'b>) -> Vec<Tensor<'b>>| {
            let b = Builder::new("packed");
            let x = b.input("x", DType::U8, Shape::new([Dim::named("n"), Dim::int(8)]));
            let parts: Vec<Tensor<'_>> = parts(&b, x).into_iter().map(|x| x.insert_axes(&[2])).collect();
            b.output("y", b.concat(&parts, 2));
            let graph = super::super::run_passes(b.finish().unwrap(), &Context::default(), &mut |_| {}).unwrap();
            check(&PASS, graph).to_string()
        };
        let both = unpacked(&|b, x| {
            let n = |n: i64| b.int(DType::U8, n);
            vec![x.apply2(And, n(15)), x.apply2(Shr, n(4))]
        });
        let masked = unpacked(&|b, x| {
            let n = |n: i64| b.int(DType::U8, n);
            vec![x.apply2(And, n(15)), x.apply2(Shr, n(4)).apply2(And, n(15))]
        });
        assert_eq!(both, masked);
        assert!(!both.contains("concat"), "{both}");
        let divided = unpacked(&|b, x| {
            let n = |n: i64| b.int(DType::U8, n);
            vec![x.apply2(Scalar::Mod, n(16)), x.apply2(Scalar::Div, n(16))]
        });
        assert_eq!(divided, both);
        let four = unpacked(&|b, x| {
            let n = |n: i64| b.int(DType::U8, n);
            (0..4).map(|k| x.apply2(Shr, n(2 * k)).apply2(And, n(3))).collect()
        });
        assert!(!four.contains("concat"), "{four}");
    }

    #[test]
    fn other_parts_stay_apart() {
        let b = Builder::new("apart");
        let (x, y) = (vectors(&b, "x"), vectors(&b, "y"));
        let [first, second] = halves(x);
        let shared = -second;
        b.output("two", b.concat(&[x, y], 0));
        b.output("functions", b.concat(&[first.exp(), second.tanh()], 1));
        b.output("shared", b.concat(&[shared, first], 1));
        b.output("itself", shared);
        b.output("gap", b.concat(&[x.slice(1, 6usize, 2usize, 1), x.slice(1, 0usize, 3usize, 1)], 1));
        let after = check(&PASS, b.finish().unwrap());
        assert_eq!(count(&after, "concat"), 4, "{after}");
    }
}
