//! Folds, products and running sums on the walk: over which axes they run, and what they want there.

use super::{Conditions, Coordinates, Demand, Wanted, zero};
use crate::graph::Value;
use crate::lower::Refusal;
use crate::lower::draft::{LeafOp, Place};
use crate::ops::prim::{Contract, Monoid, Prefix, Reduce};
use crate::ops::{Number, Prim};
use crate::tensor::{DType, Dim, Symbol};
use crate::tile::AxisSet;

impl Demand<'_, '_> {
    pub(super) fn reduce(&mut self, row: &Reduce, operand: Value, at: Coordinates, when: Conditions) -> Wanted<Place> {
        let shape = self.graph.ty(operand).shape.clone();
        let extents: Vec<Dim> = row.axes.iter().map(|a| shape[*a].clone()).collect();
        let own = self.coordinates[at as usize].clone();
        let place_of = |folded: &[usize]| -> Vec<Dim> {
            let mut own = own.iter();
            let coordinate = |axis: usize| match row.axes.iter().position(|a| *a == axis) {
                Some(k) if extents[k].is(1) => Dim::int(0),
                Some(k) => Dim::axis(folded[k]),
                None => own.next().expect("the result has the other axes").clone(),
            };
            (0..shape.rank()).map(coordinate).collect()
        };
        let found = |walk: &Self, folded: &[usize]| walk.was_wanted(operand, &place_of(folded), when);
        let folded = self.fold_axes(&extents, at, when, true, &found)?;
        let inner = self.coordinates(place_of(&folded));
        self.around.push(folded.clone());
        let arg = self.value(operand, inner, when)?;
        self.around.pop();
        let over: AxisSet = folded.iter().zip(&extents).filter(|(_, e)| !e.is(1)).map(|(a, _)| *a).collect();
        let axes = self.term_axes[arg as usize].without(over);
        let dtype = if row.monoid.is_position() { DType::I64 } else { self.graph.ty(operand).dtype };
        // A fold over axes of one element is the element; a position in them is 0.
        match (over.is_empty(), row.monoid.is_position()) {
            (true, true) => Ok(self.scope.constant(DType::I64, Number::Int(0)).place()),
            (true, false) => Ok(self.fold_of_one(row.monoid, arg)),
            _ => self.leaf(LeafOp::Reduce { monoid: row.monoid, over, arg }, dtype, axes),
        }
    }

    pub(super) fn contract(
        &mut self,
        row: &Contract,
        args: &[Value],
        at: Coordinates,
        when: Conditions,
    ) -> Wanted<Place> {
        let types = [self.graph.ty(args[0]).clone(), self.graph.ty(args[1]).clone()];
        let summed = row.summed();
        let extent = |label| row.extent(&types, label).expect("every label has a size").clone();
        let extents: Vec<Dim> = summed.iter().map(|l| extent(*l)).collect();
        let own = self.coordinates[at as usize].clone();
        let place_of = |labels: &[char], folded: &[usize]| -> Vec<Dim> {
            let coordinate = |label: &char| match row.out.iter().position(|l| l == label) {
                Some(k) => own[k].clone(),
                None => match summed.iter().position(|l| l == label).expect("a label is free or summed") {
                    k if extents[k].is(1) => Dim::int(0),
                    k => Dim::axis(folded[k]),
                },
            };
            labels.iter().map(coordinate).collect()
        };
        let found = |walk: &Self, folded: &[usize]| {
            walk.was_wanted(args[0], &place_of(&row.a, folded), when)
                || walk.was_wanted(args[1], &place_of(&row.b, folded), when)
        };
        let folded = self.fold_axes(&extents, at, when, false, &found)?;
        let [left, right] =
            [(args[0], &row.a), (args[1], &row.b)].map(|(arg, labels)| (arg, place_of(labels, &folded)));
        let (at_left, at_right) = (self.coordinates(left.1), self.coordinates(right.1));
        self.around.push(folded.clone());
        self.products.push(own.iter().map(AxisSet::mentioned).fold(AxisSet::EMPTY, AxisSet::union));
        let a = self.value(left.0, at_left, when)?;
        let b = self.value(right.0, at_right, when)?;
        self.products.pop();
        self.around.pop();
        let over: AxisSet = folded.iter().zip(&extents).filter(|(_, e)| !e.is(1)).map(|(a, _)| *a).collect();
        if over.is_empty() {
            // A sum of one product; it rounds as the sum would.
            let [a, b] = [a, b].map(|p| self.scope.term(p));
            return Ok(self.fold_of_one(Monoid::Sum, (a * b).place()));
        }
        let axes = self.term_axes[a as usize].union(self.term_axes[b as usize]).without(over);
        self.leaf(LeafOp::Dot { over, a, b, accumulator: row.accumulator }, types[0].dtype, axes)
    }

    pub(super) fn prefix(&mut self, row: &Prefix, operand: Value, at: Coordinates, when: Conditions) -> Wanted<Place> {
        let ty = self.graph.ty(operand);
        if ty.shape[row.axis].is(1) {
            if row.exclusive {
                return Ok(self.scope.constant(ty.dtype, row.monoid.neutral(ty.dtype)).place());
            }
            let arg = self.value(operand, at, when)?;
            return Ok(self.fold_of_one(row.monoid, arg));
        }
        let own = &self.coordinates[at as usize];
        let Some(Symbol::Axis(axis)) = own[row.axis].as_symbol() else { return Err(Refusal::PrefixMoved) };
        let axis = usize::from(*axis);
        let elsewhere = own.iter().enumerate().any(|(k, d)| k != row.axis && AxisSet::mentioned(d).contains(axis));
        let whole = self.axes[axis] == self.graph.ty(operand).shape[row.axis];
        if elsewhere || !whole || when != 0 {
            return Err(Refusal::PrefixMoved);
        }
        let arg = self.value(operand, at, when)?;
        let axes = self.term_axes[arg as usize].with(axis);
        let op = LeafOp::Prefix { monoid: row.monoid, axis, exclusive: row.exclusive, arg };
        self.leaf(op, self.graph.ty(operand).dtype, axes)
    }

    /// The fold of a single value. A sum starts at 0, and 0 + −0 is 0.
    fn fold_of_one(&self, monoid: Monoid, arg: Place) -> Place {
        let term = self.scope.term(arg);
        match (monoid, term.dtype().is_float()) {
            (Monoid::Sum, true) => (term + self.scope.constant(term.dtype(), zero(term.dtype()))).place(),
            _ => arg,
        }
    }

    /// Whether a value is wanted at some coordinates, or what it is computed from is, as far as a short look shows.
    fn was_wanted(&self, value: Value, at: &[Dim], when: Conditions) -> bool {
        self.is_wanted_near(value, at, when, 4)
    }

    fn is_wanted_near(&self, value: Value, at: &[Dim], when: Conditions, steps: usize) -> bool {
        let known = self.known_coordinates.get(at);
        if known.is_some_and(|at| self.found.contains_key(&(value, *at, when))) {
            return true;
        }
        let node = self.graph.node_of(value);
        match node.prim() {
            _ if steps == 0 => false,
            Prim::View(view) if view.guard.is_empty() => {
                let inner: Vec<Dim> = view.map.iter().map(|d| self.through_list(d, at)).collect();
                self.is_wanted_near(node.args()[0], &inner, when, steps - 1)
            }
            Prim::Map(_) if self.is_inlined(value.node()) => {
                // A value that does not vary along the fold says nothing about it.
                let whole = |arg: &&Value| !matches!(self.graph.node_of(**arg).prim(), Prim::View(_));
                node.args().iter().filter(whole).any(|arg| self.is_wanted_near(*arg, at, when, steps - 1))
            }
            _ => false,
        }
    }

    /// The axes that a fold over these extents runs over. Axes that are there are shared where that shares work:
    /// first those under which the operand is wanted already, then (for plain folds) those of a fold around it, those along
    /// which the result is repeated, or that another fold runs over; new ones otherwise. Extents of 1 need no axis.
    ///
    /// A product inside of another one does not run over the axes of that one's result, even if something is read there too (what comes
    /// out of attention, plus its queries): it would be computed again for every one of them.
    fn fold_axes(
        &mut self,
        extents: &[Dim],
        at: Coordinates,
        when: Conditions,
        plain: bool,
        found: &dyn Fn(&Self, &[usize]) -> bool,
    ) -> Wanted<Vec<usize>> {
        let guards = self.conditions[when as usize].iter().map(|g| &g.index);
        let mentioned = self.coordinates[at as usize].iter().chain(guards).map(AxisSet::mentioned);
        let outer = self.products.iter().filter(|_| !plain).copied();
        let busy = mentioned.chain(outer).fold(AxisSet::EMPTY, AxisSet::union);
        let fits = |folded: &[usize]| {
            folded.len() == extents.len()
                && folded
                    .iter()
                    .zip(extents)
                    .all(|(a, e)| e.is(1) || (self.axes.get(*a) == Some(e) && !busy.contains(*a)))
        };
        let mut candidates: Vec<Vec<usize>> = self.folded.iter().filter(|f| fits(f)).cloned().collect();
        let repeated = self.repeated_axes(extents, busy);
        candidates.extend(repeated.iter().filter(|f| fits(f)).cloned());
        let shared = candidates.iter().find(|folded| found(self, folded)).or_else(|| {
            // Inside of another fold, the result is repeated along that one's axes.
            let around = self.around.iter().rev().find(|folded| fits(folded));
            let first = if plain { around.or(repeated.first()).or(candidates.first()) } else { None };
            first.filter(|folded| fits(folded))
        });
        if let Some(folded) = shared {
            return Ok(folded.clone());
        }
        let mut fresh = Vec::with_capacity(extents.len());
        for extent in extents {
            fresh.push(if extent.is(1) { 0 } else { self.add_axis(extent.clone())? });
        }
        if !self.folded.contains(&fresh) {
            self.folded.push(fresh.clone());
        }
        Ok(fresh)
    }

    /// Axes of these extents that are not busy, each used once: every choice for a single extent, the first for several.
    fn repeated_axes(&self, extents: &[Dim], busy: AxisSet) -> Vec<Vec<usize>> {
        let free = |extent: &Dim, taken: AxisSet| -> Vec<usize> {
            let fits = |a: &usize| self.axes[*a] == *extent && !busy.contains(*a) && !taken.contains(*a);
            (0..self.axes.len()).filter(fits).collect()
        };
        if let [extent] = extents {
            return free(extent, AxisSet::EMPTY).into_iter().map(|axis| vec![axis]).collect();
        }
        let mut taken = AxisSet::EMPTY;
        let mut chosen = Vec::with_capacity(extents.len());
        for extent in extents {
            let axis = match extent.is(1) {
                true => 0,
                false => match free(extent, taken).first() {
                    Some(axis) => *axis,
                    None => return Vec::new(),
                },
            };
            taken = if extent.is(1) { taken } else { taken.with(axis) };
            chosen.push(axis);
        }
        vec![chosen]
    }
}
