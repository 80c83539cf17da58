//! What a set of nodes costs as one kernel. Equal sets are looked at once.

use std::hash::{Hash, Hasher};
use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHasher};

use super::cell::Cells;
use super::decision::Cost;
use super::options::PlanOptions;
use crate::analysis::{Price, Work, price};
use crate::device::{DeviceSpec, Skeleton, Unit};
use crate::graph::{Graph, Value};
use crate::lower::{self, Group, Hints, Limits, Refusal, Roles};
use crate::passes::Numerics;
use crate::tensor::DType;
use crate::tile::Schedule;

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
    /// its schedule's kind
    pub kind: Kind,
    /// the tiles that were chosen for it, and what else it stays within
    pub limits: Limits,
    /// what it does
    pub work: Work,
    /// what that costs
    pub price: Price,
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

/// What is known of a set of nodes as one kernel.
pub(super) type Evaluated = Result<Rc<Priced>, Refusal>;

/// Prices sets of nodes, and remembers equal ones: twelve equal layers are looked at once.
pub(super) struct Evaluator<'g> {
    pub graph: &'g Graph,
    pub cells: &'g Cells,
    pub spec: &'g DeviceSpec,
    pub hints: &'g Hints,
    pub numerics: Numerics,
    known: FxHashMap<(u64, u64), Evaluated>,
    types: Vec<u64>,
}

impl<'g> Evaluator<'g> {
    pub fn new(graph: &'g Graph, cells: &'g Cells, options: &'g PlanOptions) -> Evaluator<'g> {
        let (spec, hints, numerics) = (&options.spec, &options.hints, options.numerics);
        let type_hash = |node: &crate::graph::Node| {
            let mut hasher = FxHasher::default();
            node.types().hash(&mut hasher);
            hasher.finish()
        };
        let types = graph.nodes().iter().map(type_hash).collect();
        Evaluator { graph, cells, spec, hints, numerics, known: FxHashMap::default(), types }
    }

    /// The structure of a set of nodes: equal for sets that become the same kernel up to which tensors it reads.
    pub fn key(&self, members: &[usize], outputs: &[Value]) -> (u64, u64) {
        let (mut first, mut second) = (FxHasher::default(), FxHasher::default());
        second.write_u64(0x9e37_79b9_7f4a_7c15);
        let mut outside: Vec<Value> = Vec::new();
        let mut put = |x: u64| {
            first.write_u64(x);
            second.write_u64(x.rotate_left(23) ^ 0x5851_f42d_4c95_7f2d);
        };
        for (position, id) in members.iter().enumerate() {
            let node = &self.graph.nodes()[*id];
            put(self.cells.form[*id]);
            for k in 0..node.args().len() {
                let seen = self.cells.operand(self.graph, *id, k);
                put(seen.form);
                match seen.base {
                    None => put(1),
                    Some(base) => match members.binary_search(&base.node()) {
                        Ok(inside) => put(2 + ((position - inside) as u64) * 8 + base.port() as u64 * 1024),
                        Err(_) => {
                            let known = outside.iter().position(|v| *v == base);
                            let number = known.unwrap_or_else(|| {
                                outside.push(base);
                                outside.len() - 1
                            });
                            put(3 + number as u64 * 8);
                            put(self.types[base.node()] ^ base.port() as u64);
                            put(u64::from(self.cells.is_cell[base.node()]));
                        }
                    },
                }
            }
        }
        for output in outputs {
            put(members.binary_search(&output.node()).map_or(u64::MAX, |k| k as u64) ^ ((output.port() as u64) << 32));
        }
        (first.finish(), second.finish())
    }

    /// The price of a set of nodes that stores some values.
    pub fn evaluate(&mut self, members: &[usize], outputs: &[Value]) -> Evaluated {
        let key = self.key(members, outputs);
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let found = self.look(members, outputs);
        self.known.insert(key, found.clone());
        found
    }

    fn look(&self, members: &[usize], outputs: &[Value]) -> Evaluated {
        if let [only] = members
            && self.cells.is_opaque[*only]
        {
            return Ok(Rc::new(self.host(*only)));
        }
        let group = Group { graph: self.graph, members, outputs };
        let draft = lower::lower(&group)?;
        let fresh = |value: Value| self.cells.is_cell[value.node()];
        let dots = 0..draft.leaves.len();
        let dtype = dots.into_iter().find_map(|leaf| draft.factor_dtype(leaf)).unwrap_or(DType::F32);
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
            lower::corrections(&settled, &roles, self.numerics)?;
        }
        let priced = |limits: Limits| {
            let work = lower::work(&draft, &roles, &limits, self.spec, self.hints, &fresh);
            let price = price(&work, self.spec);
            Priced { kind, limits, work, price }
        };
        let tilings = lower::tilings(&draft, &roles, &largest, self.spec, self.hints, dtype).into_iter().map(priced);
        // The first of equally good ones: the largest tile.
        let better = |best: Priced, next: Priced| if next.price.us < best.price.us { next } else { best };
        tilings.reduce(better).map(Rc::new).ok_or(Refusal::NoSkeleton)
    }

    /// The price of one portable implementation.
    fn host(&self, id: usize) -> Priced {
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
        Priced { kind: Kind::Host, limits, work, price }
    }
}
