//! What a set of nodes costs as one kernel. Equal sets are looked at once.

use std::cell::Cell;
use std::rc::Rc;

use super::cell::Cells;
use super::decision::Cost;
use super::knowledge::Knowledge;
use super::options::PlanOptions;
use super::structure::Structures;
use crate::analysis::{Price, Work, price};
use crate::budget::Budget;
use crate::device::{DeviceSpec, Skeleton, Unit};
use crate::graph::{Graph, Value};
use crate::lower::{self, Draft, Group, Hints, Limits, Refusal, Roles};
use crate::passes::Numerics;
use crate::tensor::DType;
use crate::tile::{self, Schedule};

/// The kinds of kernels, by their schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// every point by itself
    Map,
    /// folds along rows
    Row,
    /// folds across rows
    Column,
    /// sums of products
    Contract,
    /// two joined sums of products
    Attention,
    /// one portable implementation, or control flow
    Host,
}

impl Kind {
    /// Every kind.
    pub const ALL: &'static [Kind] = &[Kind::Map, Kind::Row, Kind::Column, Kind::Contract, Kind::Attention, Kind::Host];

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Map => "map",
            Kind::Row => "row",
            Kind::Column => "column",
            Kind::Contract => "contract",
            Kind::Attention => "attention",
            Kind::Host => "host",
        }
    }

    /// The kind of a schedule.
    pub fn of_schedule(schedule: &Schedule) -> Kind {
        match schedule {
            Schedule::Map => Kind::Map,
            Schedule::Row { .. } => Kind::Row,
            Schedule::Column { .. } => Kind::Column,
            Schedule::Contract { .. } => Kind::Contract,
            Schedule::Attention { .. } => Kind::Attention,
            Schedule::Host(_) => Kind::Host,
        }
    }

    fn of(roles: &Roles) -> Kind {
        match roles {
            Roles::Map => Kind::Map,
            Roles::Row { .. } => Kind::Row,
            Roles::Column { .. } => Kind::Column,
            Roles::Contract { .. } => Kind::Contract,
            Roles::Attention { .. } => Kind::Attention,
        }
    }

    fn skeleton(self) -> Skeleton {
        match self {
            Kind::Map => Skeleton::Map,
            Kind::Row => Skeleton::Row,
            Kind::Column => Skeleton::Column,
            Kind::Contract => Skeleton::Contract,
            Kind::Attention => Skeleton::Attention,
            Kind::Host => Skeleton::Host,
        }
    }
}

/// A kernel with its price.
#[derive(Clone, Debug)]
pub struct Priced {
    /// the kind of schedule that its nodes have as they stand in the graph; algebra may find another for the kernel
    pub kind: Kind,
    /// the tiles that were chosen for it, and what else it stays within
    pub limits: Limits,
    /// what it does
    pub work: Work,
    /// what that costs
    pub price: Price,
    /// the structure of its nodes: equal ones have one number
    pub(super) structure: u32,
}

impl Priced {
    /// The cost in all.
    pub fn cost(&self) -> Cost {
        Cost {
            us: self.price.us,
            bytes: self.work.footprint(),
            flops: self.work.flops(),
            launches: self.work.launches,
            registers: self.work.registers,
        }
    }
}

/// The tiles with which a draft takes the least time, what it does then, and what that costs. In: the largest tiles, and the type of factors.
pub(super) fn best_tiles(
    draft: &Draft,
    roles: &Roles,
    (largest, dtype): (&Limits, DType),
    (spec, hints): (&DeviceSpec, &Hints),
    is_fresh: &dyn Fn(Value) -> bool,
) -> Option<(Limits, Work, Price)> {
    let facts = lower::Facts::of(draft);
    let priced = |limits: Limits| {
        let work = lower::work(draft, &facts, roles, &limits, spec, hints, is_fresh);
        let price = price(&work, spec);
        (limits, work, price)
    };
    // The first of equally good ones: the largest tile.
    let tilings = lower::tilings(draft, roles, largest, spec, hints, dtype).into_iter().map(priced);
    tilings.reduce(|best, next| if next.2.us < best.2.us { next } else { best })
}

/// The type of the factors of a draft's products.
pub(super) fn factor_type(draft: &Draft) -> DType {
    (0..draft.leaves.len()).find_map(|leaf| draft.factor_dtype(leaf)).unwrap_or(DType::F32)
}

/// What is known of a set of nodes as one kernel.
pub(super) type Evaluated = Result<Rc<Priced>, Refusal>;

/// Prices sets of nodes, and remembers equal ones: twelve equal layers are looked at once, and so are those of a plan before it.
pub(super) struct Evaluator<'g> {
    pub graph: &'g Graph,
    pub cells: &'g Cells,
    pub spec: &'g DeviceSpec,
    pub hints: &'g Hints,
    pub numerics: Numerics,
    pub budget: &'g Budget,
    structures: Structures,
    knowledge: Knowledge,
    /// how many nodes, terms and leaves sets had that were looked at
    pub effort: Cell<u64>,
}

impl<'g> Evaluator<'g> {
    /// In: cells numbered by what is known.
    pub fn new(
        graph: &'g Graph,
        cells: &'g Cells,
        options: &'g PlanOptions,
        mut knowledge: Knowledge,
    ) -> Evaluator<'g> {
        let (spec, hints, numerics) = (&options.spec, &options.hints, options.numerics);
        knowledge.begin_plan();
        let structures = Structures::of(graph, &mut knowledge.numbering);
        let budget = &options.budget;
        Evaluator { graph, cells, spec, hints, numerics, budget, structures, knowledge, effort: Cell::new(0) }
    }

    /// What is known now, also of what was known before.
    pub fn into_knowledge(self) -> Knowledge {
        self.knowledge
    }

    /// The price of a set of nodes that stores some values.
    pub fn evaluate(&mut self, members: &[usize], outputs: &[Value]) -> Evaluated {
        let structure = self.structures.write(self.graph, self.cells, members, outputs);
        if let Some((found, effort)) = self.knowledge.find(structure) {
            self.work(effort);
            return found;
        }
        let (structure, before) = (structure.into(), self.effort.get());
        let found = self.look(members, outputs, self.knowledge.next_structure());
        self.knowledge.insert(structure, found.clone(), self.effort.get() - before);
        found
    }

    fn look(&self, members: &[usize], outputs: &[Value], structure: u32) -> Evaluated {
        if let [only] = members
            && self.cells.is_opaque[*only]
        {
            return Ok(Rc::new(self.host(*only, structure)));
        }
        let group = Group { graph: self.graph, members, outputs };
        self.work(members.len() as u64);
        let draft = lower::lower(&group)?;
        self.work((draft.leaves.len() + draft.term_axes.len()) as u64);
        let fresh = |value: Value| self.cells.is_cell[value.node()];
        let dtype = factor_type(&draft);
        let largest = Limits::of(self.spec, dtype);
        let roles = lower::classify(&draft, &largest, self.hints)?;
        let kind = Kind::of(&roles);
        if !self.spec.has_skeleton(kind.skeleton()) {
            return Err(Refusal::NoSkeleton);
        }
        if kind == Kind::Attention {
            // Whether folds can follow each other along the stream shows in the normal form.
            let settled = lower::settle(&draft, self.numerics);
            let roles = lower::classify(&settled, &largest, self.hints)?;
            // What the rules of kernels forbid besides is no fusion either: a plan without it has a kernel.
            let kernel = lower::finish(&settled, &roles, &largest, self.numerics)?;
            tile::verify_unread(&kernel).map_err(|_| Refusal::NotStreamable)?;
        }
        let found = best_tiles(&draft, &roles, (&largest, dtype), (self.spec, self.hints), &fresh);
        let (limits, work, price) = found.ok_or(Refusal::NoSkeleton)?;
        Ok(Rc::new(Priced { kind, limits, work, price, structure }))
    }

    fn work(&self, amount: u64) {
        self.effort.set(self.effort.get() + amount);
    }

    /// The price of one portable implementation.
    fn host(&self, id: usize, structure: u32) -> Priced {
        let node = &self.graph.nodes()[id];
        let bytes = |ty: &crate::tensor::TensorType| self.hints.size(&ty.bytes());
        let read: f64 = node.args().iter().map(|a| bytes(self.graph.ty(*a))).sum();
        let written: f64 = node.types().iter().map(bytes).sum();
        let mut work = Work::default();
        work.operate(Unit::Host, (read + written) / 4.0);
        work.host_bytes = read + written;
        work.read(crate::analysis::Stream::of(read)).write(crate::analysis::Stream::of(written));
        let price = price(&work, self.spec);
        let limits = Limits::of(self.spec, DType::F32);
        Priced { kind: Kind::Host, limits, work, price, structure }
    }
}
