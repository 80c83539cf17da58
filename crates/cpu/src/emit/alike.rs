//! Products of one kernel that are the same but for the memory that they read and write, such as those for queries, keys and values: what is
//! emitted for one of them is run with other pointers for the others.

#[cfg(all(test, unix))]
mod tests;

use std::ops::Range;

use fuseline::tensor::{Dim, Symbol};
use fuseline::tile::{AxisSet, Op, StepId};
use rustc_hash::FxHashMap;

use super::emitter::Held;
use super::roles::Roles;
use super::{Emission, Memory, Phase};

/// A product that was emitted.
pub(super) struct Product {
    roles: Roles,
    stores: Vec<usize>,
    /// what was emitted for it
    phases: Range<usize>,
    scratch: Range<usize>,
}

/// What is emitted so far, by its phases and its memory between them.
pub(super) fn emitted(emission: &Emission<'_>) -> [usize; 2] {
    [emission.phases.len(), emission.scratch.len()]
}

impl Product {
    /// What was emitted since then.
    pub fn since([phases, scratch]: [usize; 2], emission: &Emission<'_>, roles: Roles, stores: &[usize]) -> Product {
        let [phases_end, scratch_end] = emitted(emission);
        Product { roles, stores: stores.to_vec(), phases: phases..phases_end, scratch: scratch..scratch_end }
    }

    /// Emits the phases of this product once more, for the memory of another one, if they are alike; whether they are.
    pub fn repeat(
        &self,
        emission: &mut Emission<'_>,
        roles: &Roles,
        stores: &[usize],
        held: &FxHashMap<StepId, Held>,
    ) -> bool {
        let Some(other) = Other::of(emission, self, (roles, stores), held) else { return false };
        let kernel = emission.bound.kernel;
        let (inputs, outputs) = (kernel.inputs.len(), kernel.outputs.len());
        // What is checked is named by its step.
        if emission.phases[self.phases.clone()].iter().any(|phase| !phase.sites.is_empty()) {
            return false;
        }
        let behind = emission.scratch.len() - self.scratch.start;
        let moved = |memory: &Memory| match memory {
            Memory::Input(k) => Memory::Input(other.inputs[k]),
            Memory::Output(k) => Memory::Output(other.outputs[k]),
            Memory::Scratch(k) if self.scratch.contains(k) => Memory::Scratch(k + behind),
            memory => *memory,
        };
        for k in self.phases.clone() {
            let phase = &emission.phases[k];
            let place = |place: &u32| moved(&Memory::at(*place, inputs, outputs)).place(inputs, outputs);
            let again = Phase {
                table: phase.table.iter().map(place).collect(),
                reads: phase.reads.iter().map(moved).collect(),
                writes: phase.writes.iter().map(moved).collect(),
                ..phase.clone()
            };
            emission.phases.push(again);
        }
        emission.scratch.extend_from_within(self.scratch.clone());
        true
    }
}

/// What of another product stands for what of one.
struct Other {
    axes: Vec<usize>,
    steps: FxHashMap<StepId, StepId>,
    inputs: FxHashMap<usize, usize>,
    outputs: FxHashMap<usize, usize>,
}

impl Other {
    /// None where they are not alike.
    fn of(
        emission: &Emission<'_>,
        one: &Product,
        (roles, stores): (&Roles, &[usize]),
        held: &FxHashMap<StepId, Held>,
    ) -> Option<Other> {
        let bound = emission.bound;
        let mut axes: Vec<usize> = (0..bound.extents.len()).collect();
        let lists = |roles: &Roles| [&roles.batch, &roles.rows, &roles.columns, &roles.sum].map(Vec::clone);
        for (own, others) in lists(&one.roles).iter().zip(lists(roles)) {
            if own.len() != others.len() {
                return None;
            }
            for (own, other) in own.iter().zip(others) {
                axes[*own] = (bound.extents[*own] == bound.extents[other]).then_some(other)?;
            }
        }
        let mut other =
            Other { axes, steps: FxHashMap::default(), inputs: FxHashMap::default(), outputs: FxHashMap::default() };
        let is_left = other.step(emission, (one.roles.left, roles.left), held);
        let are_stored = one.stores.len() == stores.len()
            && one.stores.iter().zip(stores).all(|(own, theirs)| other.store(emission, (*own, *theirs), held));
        (is_left && are_stored).then_some(other)
    }

    fn store(
        &mut self,
        emission: &Emission<'_>,
        (own, theirs): (usize, usize),
        held: &FxHashMap<StepId, Held>,
    ) -> bool {
        let bound = emission.bound;
        let [a, b] = [own, theirs].map(|k| &bound.kernel.stores[k]);
        let [x, y] = [own, theirs].map(|k| &bound.stores[k]);
        let is_same = bound.kernel.outputs[a.output] == bound.kernel.outputs[b.output]
            && x.checked.is_empty()
            && y.checked.is_empty()
            && self.renamed(&x.offset) == y.offset;
        is_same
            && *self.outputs.entry(a.output).or_insert(b.output) == b.output
            && self.step(emission, (a.value, b.value), held)
    }

    fn step(&mut self, emission: &Emission<'_>, (a, b): (StepId, StepId), held: &FxHashMap<StepId, Held>) -> bool {
        if let Some(known) = self.steps.get(&a) {
            return *known == b;
        }
        self.steps.insert(a, b);
        let kernel = emission.bound.kernel;
        let [one, other] = [a, b].map(|id| kernel.step(id));
        let stays = one.axes.iter().all(|axis| self.axes[axis] == axis);
        if held.contains_key(&a) || held.contains_key(&b) {
            return a == b && stays;
        }
        let axes = self.set(one.axes);
        if one.dtype != other.dtype || axes != other.axes || axes.len() != one.axes.len() {
            return false;
        }
        let does_the_same = match (&one.op, &other.op) {
            (Op::Load { .. }, Op::Load { .. }) => self.load(emission, (a, b)),
            (Op::Map { expr: x, .. }, Op::Map { expr: y, .. }) => x == y && (stays || !x.has_coordinates()),
            (Op::Reduce { monoid: x, over: from, .. }, Op::Reduce { monoid: y, over: to, .. }) => {
                x == y && self.set(*from) == *to
            }
            (Op::Dot { over: from, accumulator: x, .. }, Op::Dot { over: to, accumulator: y, .. }) => {
                x == y && self.set(*from) == *to
            }
            _ => a == b && stays,
        };
        let [x, y] = [one, other].map(|step| step.op.operands());
        does_the_same && x.len() == y.len() && x.iter().zip(&y).all(|(x, y)| self.step(emission, (*x, *y), held))
    }

    fn load(&mut self, emission: &Emission<'_>, (a, b): (StepId, StepId)) -> bool {
        let kernel = emission.bound.kernel;
        let (Op::Load { input: i, fill: x, .. }, Op::Load { input: j, fill: y, .. }) =
            (&kernel.step(a).op, &kernel.step(b).op)
        else {
            return false;
        };
        let is_constant = |input: &usize| emission.constant.get(*input).copied().unwrap_or(false);
        let [one, other] = [a, b].map(|id| emission.bound.load(id));
        x == y
            && kernel.inputs[*i] == kernel.inputs[*j]
            && is_constant(i) == is_constant(j)
            && one.checked.is_empty()
            && other.checked.is_empty()
            && one.guards.len() == other.guards.len()
            && one.guards.iter().zip(&other.guards).all(|((x, n), (y, m))| n == m && self.renamed(x) == *y)
            && self.renamed(&one.offset) == other.offset
            && *self.inputs.entry(*i).or_insert(*j) == *j
    }

    fn set(&self, axes: AxisSet) -> AxisSet {
        axes.iter().map(|axis| self.axes[axis]).collect()
    }

    fn renamed(&self, dim: &Dim) -> Dim {
        dim.substitute(&|symbol| match symbol {
            Symbol::Axis(axis) => Some(Dim::axis(self.axes[usize::from(*axis)])),
            _ => None,
        })
    }
}
