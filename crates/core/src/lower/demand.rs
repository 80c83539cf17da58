//! What is wanted where: the walk from stored values to loads.

mod fold;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::draft::{Leaf, LeafOp, Place};
use super::{Refusal, is_opaque};
use crate::graph::{Graph, Value};
use crate::ops::prim::{Concat, Gather, Guard, Map, Random, Sizes, View};
use crate::ops::{ExprNode, Number, Prim, Scalar, Scope, Term};
use crate::tensor::{DType, Dim, Ranges, Symbol, TensorType};
use crate::tile::AxisSet;

/// Coordinates that were interned.
pub(super) type Coordinates = u32;
/// Conditions that were interned; 0 is none.
type Conditions = u32;

/// No condition.
const ALWAYS: Conditions = 0;

/// A kernel has no more leaves than this, so that the work of lowering stays bounded.
const MOST_LEAVES: usize = 1024;
/// A kernel has no more terms than this.
const MOST_TERMS: usize = 1 << 14;
/// A kernel has no more views, folds and concats behind one another than this, which are walked by recursion.
const MOST_DEPTH: usize = 128;
/// Coordinates are no longer expressions than this; see [`Dim::complexity`].
const MOST_PARTS: u32 = 1024;

type Wanted<T> = Result<T, Refusal>;

/// The walk, and what it has found so far.
pub(super) struct Demand<'g, 's> {
    graph: &'g Graph,
    members: &'g [usize],
    scope: &'s Scope,
    pub axes: Vec<Dim>,
    pub inputs: Vec<(Value, TensorType)>,
    pub leaves: Vec<Leaf>,
    pub term_axes: Vec<AxisSet>,
    /// Lists of axes that folds run over, in the order in which they were made.
    folded: Vec<Vec<usize>>,
    /// The axes of the folds whose operands are being looked for, outermost first.
    around: Vec<Vec<usize>>,
    /// The axes of the results of the products whose operands are being looked for.
    products: Vec<AxisSet>,
    coordinates: Vec<Vec<Dim>>,
    known_coordinates: FxHashMap<Vec<Dim>, Coordinates>,
    conditions: Vec<Vec<Guard>>,
    known_conditions: FxHashMap<Vec<Guard>, Conditions>,
    /// What was wanted where, and the term that is it.
    found: FxHashMap<(Value, Coordinates, Conditions), Place>,
    loads: FxHashMap<(Value, Coordinates, Conditions, Number), Place>,
    /// For the values that are to be stored, where they were found without a condition.
    stored: FxHashMap<Value, Vec<(Coordinates, Place)>>,
    /// how many values are being looked for, each for the sake of another
    depth: usize,
}

impl<'g, 's> Demand<'g, 's> {
    /// A walk through some nodes that remembers where it meets values that are to be stored.
    pub fn new(graph: &'g Graph, members: &'g [usize], scope: &'s Scope, stored: &[Value]) -> Demand<'g, 's> {
        Demand {
            graph,
            members,
            scope,
            axes: Vec::new(),
            inputs: Vec::new(),
            leaves: Vec::new(),
            term_axes: Vec::new(),
            folded: Vec::new(),
            around: Vec::new(),
            products: Vec::new(),
            coordinates: Vec::new(),
            known_coordinates: FxHashMap::default(),
            conditions: vec![Vec::new()],
            known_conditions: [(Vec::new(), 0)].into_iter().collect(),
            found: FxHashMap::default(),
            loads: FxHashMap::default(),
            stored: stored.iter().map(|value| (*value, Vec::new())).collect(),
            depth: 0,
        }
    }

    /// A new axis.
    pub fn add_axis(&mut self, extent: Dim) -> Wanted<usize> {
        if self.axes.len() == AxisSet::MOST {
            return Err(Refusal::TooManyAxes);
        }
        self.axes.push(extent);
        Ok(self.axes.len() - 1)
    }

    pub fn coordinates(&mut self, at: Vec<Dim>) -> Coordinates {
        let next = self.coordinates.len() as Coordinates;
        let id = *self.known_coordinates.entry(at.clone()).or_insert(next);
        if id == next {
            self.coordinates.push(at);
        }
        id
    }

    pub fn coordinate_list(&self, at: Coordinates) -> &[Dim] {
        &self.coordinates[at as usize]
    }

    /// Everywhere that a value which is to be stored was wanted without a condition.
    pub fn places_of(&self, value: Value) -> &[(Coordinates, Place)] {
        self.stored.get(&value).map_or(&[], Vec::as_slice)
    }

    fn conditions(&mut self, outer: Conditions, more: Vec<Guard>) -> Conditions {
        if more.is_empty() {
            return outer;
        }
        let mut all = self.conditions[outer as usize].clone();
        for guard in more {
            if !all.contains(&guard) {
                all.push(guard);
            }
        }
        let next = self.conditions.len() as Conditions;
        let id = *self.known_conditions.entry(all.clone()).or_insert(next);
        if id == next {
            self.conditions.push(all);
        }
        id
    }

    fn is_member(&self, node: usize) -> bool {
        self.members.binary_search(&node).is_ok()
    }

    /// The term that is a value at some coordinates, wanted only where conditions hold.
    pub fn value(&mut self, value: Value, at: Coordinates, when: Conditions) -> Wanted<Place> {
        if let Some(place) = self.found.get(&(value, at, when)) {
            return Ok(*place);
        }
        if self.depth == MOST_DEPTH {
            return Err(Refusal::TooLarge);
        }
        self.depth += 1;
        let found = self.walk(value, at, when);
        self.depth -= 1;
        found
    }

    fn walk(&mut self, value: Value, at: Coordinates, when: Conditions) -> Wanted<Place> {
        // Maps want their operands at the same coordinates: chains of them may be long, so they are not walked by
        // recursion.
        let mut todo = vec![(value, false)];
        while let Some((next, expanded)) = todo.pop() {
            if self.found.contains_key(&(next, at, when)) {
                continue;
            }
            let graph = self.graph;
            let is_map = matches!(graph.node_of(next).prim(), Prim::Map(_)) && self.is_inlined(next.node());
            if is_map && !expanded {
                todo.push((next, true));
                todo.extend(graph.node_of(next).args().iter().rev().map(|arg| (*arg, false)));
                continue;
            }
            let place = self.computed(next, at, when)?;
            self.note_terms()?;
            self.found.insert((next, at, when), place);
            if when == 0
                && let Some(places) = self.stored.get_mut(&next)
            {
                places.push((at, place));
            }
        }
        Ok(self.found[&(value, at, when)])
    }

    /// Whether a map is computed where it is wanted.
    fn is_inlined(&self, node: usize) -> bool {
        self.is_member(node) || super::is_transparent(self.graph, node)
    }

    fn computed(&mut self, value: Value, at: Coordinates, when: Conditions) -> Wanted<Place> {
        let graph = self.graph;
        let node = graph.node_of(value);
        let args = node.args();
        let ty = graph.ty(value);
        if ty.shape.dims().iter().any(|extent| extent.is(0)) {
            // It has no elements, and what is wanted of it is never read: a coordinate that is the same everywhere would be.
            return Ok(self.scope.constant(ty.dtype, zero(ty.dtype)).place());
        }
        match node.prim() {
            Prim::View(view) => self.view(view, args[0], at, when),
            Prim::Sizes(row) => Ok(self.sizes(row, at)),
            Prim::Map(row) if self.is_inlined(value.node()) => self.map(row, args, at, when),
            _ if !self.is_member(value.node()) => {
                // What it is where a condition does not hold is of no interest.
                let when = if self.is_inside(value, at) { ALWAYS } else { when };
                self.load(value, at, when, zero(graph.ty(value).dtype))
            }
            prim if is_opaque(prim) => Err(Refusal::Opaque),
            Prim::Concat(row) => self.concat(row, args, at, when),
            Prim::Gather(row) => self.gather(row, value, args, at, when),
            Prim::Reduce(row) => self.reduce(row, args[0], at, when),
            Prim::Prefix(row) => self.prefix(row, args[0], at, when),
            Prim::Contract(row) => self.contract(row, args, at, when),
            Prim::Random(row) => self.random(row, args[0], at, when),
            _ => Err(Refusal::Opaque),
        }
    }

    /// Learns the axes of terms that were made since it last looked.
    fn note_terms(&mut self) -> Wanted<()> {
        super::draft::note_axes(self.scope, &self.leaves, &mut self.term_axes);
        if self.term_axes.len() > MOST_TERMS { Err(Refusal::TooLarge) } else { Ok(()) }
    }

    fn leaf(&mut self, op: LeafOp, dtype: DType, axes: AxisSet) -> Wanted<Place> {
        if self.leaves.len() == MOST_LEAVES {
            return Err(Refusal::TooLarge);
        }
        let place = self.scope.argument(self.leaves.len(), dtype).place();
        self.leaves.push(Leaf { op, dtype, axes });
        self.note_terms()?;
        Ok(place)
    }

    fn ranges_simplified(&self, dim: Dim) -> Dim {
        if dim.as_int().is_some() || dim.as_symbol().is_some() { dim } else { dim.simplify(&Ranges::of(&self.axes)) }
    }

    /// An index expression over the axes of `at`, as one over the axes of the kernel.
    fn through(&self, dim: &Dim, at: Coordinates) -> Dim {
        self.through_list(dim, &self.coordinates[at as usize])
    }

    fn through_list(&self, dim: &Dim, at: &[Dim]) -> Dim {
        match dim.as_symbol() {
            Some(Symbol::Axis(axis)) => at[usize::from(*axis)].clone(),
            _ if dim.as_int().is_some() => dim.clone(),
            _ => {
                let replaced = dim.substitute(&|s| match s {
                    Symbol::Axis(axis) => at.get(usize::from(*axis)).cloned(),
                    _ => None,
                });
                self.ranges_simplified(replaced)
            }
        }
    }

    /// Conditions over the axes of `at`, without those that always hold; `None` if one never does.
    fn guards(&self, guards: &[Guard], at: Coordinates) -> Vec<Guard> {
        let ranges = Ranges::of(&self.axes);
        let moved = guards.iter().map(|g| Guard { index: self.through(&g.index, at), bound: g.bound.clone() });
        moved.filter(|g| !ranges.is_below(&g.index, &g.bound)).collect()
    }

    /// Whether guards hold, as a term.
    fn holds(&self, guards: &[Guard]) -> Term<'s> {
        let scope = self.scope;
        let ranges = Ranges::of(&self.axes);
        let zero = Dim::int(0);
        let mut all: Option<Term<'s>> = None;
        for guard in guards {
            let index = scope.index(&guard.index);
            let mut sides: SmallVec<[Term<'s>; 2]> = SmallVec::new();
            if !ranges.is_at_most(&zero, &guard.index) {
                sides.push(Term::call(Scalar::Le, &[scope.constant(DType::I64, Number::Int(0)), index]));
            }
            if !ranges.is_at_most(&(&guard.index + 1), &guard.bound) {
                sides.push(index.lt(scope.index(&guard.bound)));
            }
            for side in sides {
                all = Some(all.map_or(side, |all| Term::call(Scalar::And, &[all, side])));
            }
        }
        all.unwrap_or_else(|| scope.constant(DType::Bool, Number::Int(1)))
    }

    fn view(&mut self, view: &View, operand: Value, at: Coordinates, when: Conditions) -> Wanted<Place> {
        let index: Vec<Dim> = view.map.iter().map(|d| self.through(d, at)).collect();
        if index.iter().any(|at| at.complexity() > MOST_PARTS) {
            return Err(Refusal::TooLarge);
        }
        let inner = self.coordinates(index);
        let guards = self.guards(&view.guard, at);
        if guards.is_empty() {
            return self.value(operand, inner, when);
        }
        let fill = view.fill.expect("a view with guards has a fill value");
        let both = self.conditions(when, guards.clone());
        let source = self.graph.node_of(operand).prim();
        let loaded = !self.is_member(operand.node()) && !super::is_transparent(self.graph, operand.node());
        if loaded && !matches!(source, Prim::View(_)) {
            return self.load(operand, inner, both, fill);
        }
        let inside = self.value(operand, inner, both)?;
        let inside = self.scope.term(inside);
        let fill = self.scope.constant(inside.dtype(), fill);
        Ok(self.holds(&guards).select(inside, fill).place())
    }

    fn sizes(&mut self, row: &Sizes, at: Coordinates) -> Place {
        let index = self.coordinates[at as usize][0].clone();
        let pick = |k: usize| self.scope.size(row.dims[k].clone());
        if let Some(k) = index.as_int().and_then(|k| usize::try_from(k).ok()).filter(|k| *k < row.dims.len()) {
            return pick(k).place();
        }
        let Some(last) = row.dims.len().checked_sub(1) else {
            return self.scope.constant(DType::I64, Number::Int(0)).place();
        };
        let position = self.scope.index(&index);
        let is = |k: usize| Term::call(Scalar::Eq, &[position, self.scope.constant(DType::I64, Number::Int(k as i64))]);
        (0..last).rev().fold(pick(last), |rest, k| is(k).select(pick(k), rest)).place()
    }

    fn map(&mut self, row: &Map, args: &[Value], at: Coordinates, when: Conditions) -> Wanted<Place> {
        let operands: SmallVec<[Place; 4]> = args.iter().map(|a| self.value(*a, at, when)).collect::<Wanted<_>>()?;
        let coordinates = &self.coordinates[at as usize];
        let scope = self.scope;
        if row.expr.has_coordinates() && coordinates.iter().any(|d| d.mentions(|s| matches!(s, Symbol::Read(_)))) {
            return Err(Refusal::GatherOfFused);
        }
        let term = row.expr.inline_with(scope, |node| match node {
            ExprNode::Arg(k) => Some(scope.term(operands[*k as usize])),
            ExprNode::Coord(axis) => Some(scope.index(&coordinates[usize::from(*axis)])),
            _ => None,
        });
        Ok(term.place())
    }

    /// Whether coordinates are certain to lie in a value, whatever the conditions. Those with a size in them never are:
    /// nothing can be divided by one that is 0.
    fn is_inside(&self, value: Value, at: Coordinates) -> bool {
        let ranges = Ranges::of(&self.axes);
        let extents = self.graph.ty(value).shape.dims();
        let has_sizes = |index: &Dim| index.mentions(|symbol| !matches!(symbol, Symbol::Axis(_)));
        let mut pairs = self.coordinates[at as usize].iter().zip(extents);
        pairs.all(|(index, extent)| !has_sizes(index) && ranges.is_below(index, extent))
    }

    fn load(&mut self, value: Value, at: Coordinates, when: Conditions, fill: Number) -> Wanted<Place> {
        let key = (value, at, when, fill);
        if let Some(place) = self.loads.get(&key) {
            return Ok(*place);
        }
        let index = self.coordinates[at as usize].clone();
        let place = self.load_at(value, index, when, fill, SmallVec::new())?;
        self.loads.insert(key, place);
        Ok(place)
    }

    fn load_at(
        &mut self,
        value: Value,
        index: Vec<Dim>,
        when: Conditions,
        fill: Number,
        reads: SmallVec<[Place; 1]>,
    ) -> Wanted<Place> {
        let ty = self.graph.ty(value).clone();
        let input = match self.inputs.iter().position(|(v, _)| *v == value) {
            Some(input) => input,
            None => {
                self.inputs.push((value, ty.clone()));
                self.inputs.len() - 1
            }
        };
        let guard = self.conditions[when as usize].clone();
        let mentioned = index.iter().chain(guard.iter().map(|g| &g.index)).map(AxisSet::mentioned);
        let mut axes = mentioned.fold(AxisSet::EMPTY, AxisSet::union);
        axes = reads.iter().fold(axes, |set, r| set.union(self.term_axes[*r as usize]));
        let fill = (!guard.is_empty()).then_some(fill);
        self.leaf(LeafOp::Load { input, index, guard, fill, reads }, ty.dtype, axes)
    }

    fn concat(&mut self, row: &Concat, args: &[Value], at: Coordinates, when: Conditions) -> Wanted<Place> {
        let own = self.coordinates[at as usize].clone();
        let ranges_of = |d: &Dim, bound: &Dim, axes: &[Dim]| Ranges::of(axes).is_below(d, bound);
        let mut before = Dim::int(0);
        let mut parts: Vec<(Vec<Guard>, Place)> = Vec::new();
        for arg in args {
            let extent = self.graph.ty(*arg).shape[row.axis].clone();
            let mut index = own.clone();
            index[row.axis] = self.ranges_simplified(&own[row.axis] - &before);
            before = before + &extent;
            let guard = Guard { index: index[row.axis].clone(), bound: extent.clone() };
            let ranges = Ranges::of(&self.axes);
            let outside = ranges
                .bounds(&guard.index)
                .is_some_and(|r| (-&r.high - 1).is_nonnegative() || (&r.low - &extent).is_nonnegative());
            if outside {
                continue;
            }
            let sure = ranges_of(&guard.index, &guard.bound, &self.axes);
            let guards = if sure { Vec::new() } else { vec![guard] };
            let inner = self.coordinates(index);
            let both = self.conditions(when, guards.clone());
            let place = self.value(*arg, inner, both)?;
            parts.push((guards, place));
            if sure {
                break;
            }
        }
        let Some((_, last)) = parts.pop() else {
            let dtype = self.graph.ty(args[0]).dtype;
            return Ok(self.scope.constant(dtype, zero(dtype)).place());
        };
        let scope = self.scope;
        let choose =
            |rest: Term<'s>, (guards, place): &(Vec<Guard>, Place)| self.holds(guards).select(scope.term(*place), rest);
        Ok(parts.iter().rev().fold(scope.term(last), choose).place())
    }

    fn gather(
        &mut self,
        row: &Gather,
        result: Value,
        args: &[Value],
        at: Coordinates,
        when: Conditions,
    ) -> Wanted<Place> {
        let (mut data, indices) = (args[0], &args[1..]);
        let reads: SmallVec<[Place; 1]> = indices.iter().map(|a| self.value(*a, at, when)).collect::<Wanted<_>>()?;
        let mut index: Vec<Dim> = row.map.iter().map(|d| self.through(d, at)).collect();
        let base = super::gathered(self.graph, row, data);
        while data != base {
            let node = self.graph.node_of(data);
            let Prim::View(view) = node.prim() else { unreachable!("only views are looked through") };
            let moved = |d: &Dim| {
                d.substitute(&|s| match s {
                    Symbol::Axis(axis) => index.get(usize::from(*axis)).cloned(),
                    _ => None,
                })
            };
            index = view.map.iter().map(moved).collect();
            data = node.args()[0];
        }
        if self.is_member(data.node()) {
            return Err(Refusal::GatherOfFused);
        }
        self.load_at(data, index, when, zero(self.graph.ty(result).dtype), reads)
    }

    fn random(&mut self, row: &Random, seed: Value, at: Coordinates, when: Conditions) -> Wanted<Place> {
        // A draw has no guard: it is made where conditions do not hold, too, and its coordinates are computed.
        let index = row.shape.flat_index(&self.coordinates[at as usize]);
        let index = self.ranges_simplified(if when == ALWAYS { index } else { index.total() });
        let nowhere = self.coordinates(Vec::new());
        let seed = self.value(seed, nowhere, when)?;
        let axes = AxisSet::mentioned(&index).union(self.term_axes[seed as usize]);
        self.leaf(LeafOp::Random { stream: row.stream, seed, index }, DType::U32, axes)
    }
}

/// The number 0 of a type.
fn zero(dtype: DType) -> Number {
    Number::new(dtype, 0.0)
}
