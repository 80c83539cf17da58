//! The values of steps at points.

use std::collections::BTreeSet;
use std::sync::Arc;

use fuseline::error::{Error, Result};
use fuseline::tensor::{DType, Dim};
use fuseline::tile::{Op, Rounding, StepId};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::bound::Bound;
use super::index::{Index, Multiples, Sum, lanes_of};
use super::overlap::RowBefore;
use super::point::{Coord, Point};
use super::{Memory, Phase, Site, random};
use crate::code::Isa;
use crate::math;
use crate::vector::{Binary, Builder, Convert, IntOp, Program, Ty, Value};

/// Lanes hold coordinates in 32 bits: one that is farther from 0 is taken for this one, which lies outside of every tensor too.
pub(crate) const FARTHEST_INDEX: i64 = 1 << 30;

/// What tells points apart for a step.
pub(super) type Key = SmallVec<[Coord; 6]>;

/// Where the value of a step comes from, other than from its operation.
#[derive(Clone, Debug)]
pub(super) enum Given {
    /// from registers, at some points
    Values(FxHashMap<Key, Value>),
    /// from memory, where an earlier pass or phase has put it
    Held(Held),
}

/// The value of a step in memory.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub memory: Memory,
    /// an Int: where the first element lies, if that is not the beginning of the memory
    pub base: Option<Value>,
    /// the element, over the axes of the kernel
    pub offset: Dim,
    /// what lies there; bf16 is for tiles
    pub dtype: DType,
    /// whether the program that reads it writes it too
    pub again: bool,
}

/// A phase that is being emitted.
pub(super) struct Emitter<'e> {
    pub bound: &'e Bound<'e>,
    pub isa: Isa,
    /// among how many tasks are shared
    pub cores: usize,
    pub b: Builder,
    pub multiples: Multiples,
    pub given: FxHashMap<StepId, Given>,
    /// places of the kernel's table of pointers, each where the program's has it
    table: Vec<u32>,
    pub sites: Vec<Site>,
    pub reads: BTreeSet<Memory>,
    pub writes: BTreeSet<Memory>,
    /// of the worker's memory, from its beginning, so many bytes are taken
    pub worker_bytes: usize,
    /// the axis of columns, while rows stand in lanes and are turned in registers
    pub turns: Option<usize>,
    /// the row before, while its last pass happens in one over the next row
    pub before: Option<RowBefore>,
}

impl<'e> Emitter<'e> {
    pub fn new(bound: &'e Bound<'e>, isa: Isa, lanes: u32, cores: usize) -> Emitter<'e> {
        Emitter {
            bound,
            isa,
            cores,
            b: Builder::new(lanes),
            multiples: Multiples::default(),
            given: FxHashMap::default(),
            table: Vec::new(),
            sites: Vec::new(),
            reads: BTreeSet::new(),
            writes: BTreeSet::new(),
            worker_bytes: random::reserved_bytes(bound.kernel, i64::from(lanes)),
            turns: None,
            before: None,
        }
    }

    /// Numbers in a vector.
    pub fn lanes(&self) -> i64 {
        i64::from(self.b.lanes())
    }

    /// The pointer to some memory. Phases number what they use in the order in which they use it, so that those that do the same with other memory are
    /// one program.
    pub fn pointer(&mut self, memory: Memory) -> Value {
        let (inputs, outputs) = (self.bound.kernel.inputs.len(), self.bound.kernel.outputs.len());
        let wanted = memory.place(inputs, outputs);
        let place = self.table.iter().position(|place| *place == wanted).unwrap_or_else(|| {
            self.table.push(wanted);
            self.table.len() - 1
        });
        self.b.buffer(place as u32)
    }

    /// The phase, once everything has been emitted.
    pub fn finish(self, name: &'static str, tasks: i64) -> Phase {
        Phase {
            name,
            program: Arc::new(self.b.finish()),
            table: self.table,
            tasks: tasks as u64,
            reads: self.reads.into_iter().collect(),
            writes: self.writes.into_iter().collect(),
            worker_bytes: self.worker_bytes,
            sites: self.sites,
        }
    }

    /// The values of some steps at some points: for every step, one for every point.
    pub fn values(&mut self, wanted: &[StepId], points: &[Point]) -> Result<Vec<Vec<Value>>> {
        let needed = self.needed(wanted);
        let mut found = Found(Vec::with_capacity(needed.len()));
        for id in needed {
            let spread = self.spread(id, points);
            let values = self.step(id, &spread, points, &found)?;
            found.0.push((id, Spread { values, ..spread }));
        }
        let values = |id: &StepId| {
            let spread = found.of(*id);
            (0..points.len()).map(|k| spread.at(k)).collect()
        };
        Ok(wanted.iter().map(values).collect())
    }

    /// What must be computed for some steps, operands first.
    fn needed(&self, wanted: &[StepId]) -> SmallVec<[StepId; 16]> {
        let mut needed: SmallVec<[StepId; 16]> = SmallVec::new();
        let mut todo: SmallVec<[StepId; 16]> = wanted.into();
        while let Some(id) = todo.pop() {
            // in order, each once
            let Err(at) = needed.binary_search(&id) else { continue };
            needed.insert(at, id);
            // Coordinates and seeds are integers of their own.
            if !self.given.contains_key(&id)
                && let Op::Map { args, .. } = &self.bound.kernel.step(id).op
            {
                todo.extend(args.iter().copied());
            }
        }
        needed
    }

    /// Which points differ for a step.
    fn spread(&self, id: StepId, points: &[Point]) -> Spread {
        let axes = self.bound.kernel.step(id).axes;
        let mut masks: SmallVec<[Option<Value>; 32]> = SmallVec::new();
        let (mut first, mut of) = (Vec::with_capacity(points.len()), Vec::with_capacity(points.len()));
        for (k, point) in points.iter().enumerate() {
            let mask = point.mask.filter(|_| point.lane_axis().is_some_and(|axis| axes.contains(axis)));
            let is_same = |(own, of): (&usize, &Option<Value>)| *of == mask && point.is_like(&points[*own], axes);
            let place = first.iter().zip(&masks).position(is_same).unwrap_or_else(|| {
                masks.push(mask);
                first.push(k);
                first.len() - 1
            });
            of.push(place);
        }
        Spread { first, of, values: Vec::new() }
    }

    fn step(&mut self, id: StepId, spread: &Spread, points: &[Point], found: &Found) -> Result<Vec<Value>> {
        if let Some(given) = self.given.get(&id) {
            if let (Given::Held(held), Op::Random { .. }) = (given, &self.bound.kernel.step(id).op) {
                let (held, at) = (held.clone(), spread.first.iter().map(|k| &points[*k]).collect::<Vec<_>>());
                if let Some(words) = self.drawn_turned(&held, &at) {
                    return Ok(words);
                }
            }
            return spread.first.iter().map(|k| self.given_at(id, &points[*k])).collect();
        }
        let (kernel, rounding) = (self.bound.kernel, self.bound.kernel.rounding);
        match &kernel.step(id).op {
            Op::Load { .. } => {
                let at: Vec<&Point> = spread.first.iter().map(|k| &points[*k]).collect();
                match self.load_turned(id, &at) {
                    Some(values) => Ok(values),
                    None => at.into_iter().map(|point| self.load(id, point)).collect(),
                }
            }
            Op::Map { expr, args } => {
                let of = |arg: &StepId| {
                    let arg = found.of(*arg);
                    spread.first.iter().map(|k| arg.at(*k)).collect()
                };
                let args: Vec<Vec<Value>> = args.iter().map(of).collect();
                let at: Vec<&Point> = spread.first.iter().map(|k| &points[*k]).collect();
                Ok(self.map(expr, &args, &at, rounding))
            }
            op @ Op::Random { .. } => {
                let at: Vec<&Point> = spread.first.iter().map(|k| &points[*k]).collect();
                self.randoms(op, &at)
            }
            Op::Reduce { .. } | Op::Prefix { .. } | Op::Dot { .. } => {
                Err(Error::bug(format!("the fold {id:?} is read before it is computed")))
            }
        }
    }

    /// A value that is there already. Sums wait as wide as they were added up: where every result is rounded, the one of a fold is
    /// when it is read.
    pub fn given_at(&mut self, id: StepId, point: &Point) -> Result<Value> {
        let value = self.kept_at(id, point)?;
        let kernel = self.bound.kernel;
        let step = kernel.step(id);
        let rounds = kernel.rounding == Rounding::Every && step.op.is_fold();
        Ok(if rounds { math::round(&mut self.b, step.dtype, value) } else { value })
    }

    /// A value that is there already, as it is kept: of a fold, perhaps what a part of its terms has given, before it is rounded.
    pub fn kept_at(&mut self, id: StepId, point: &Point) -> Result<Value> {
        match &self.given[&id] {
            Given::Values(values) => {
                let key = point.key(self.bound.kernel.step(id).axes);
                let missing = || Error::bug(format!("{id:?} has no value at {point:?}"));
                values.get(&key).copied().ok_or_else(missing)
            }
            Given::Held(held) => {
                let held = held.clone();
                Ok(self.load_held(&held, point))
            }
        }
    }

    /// The value of a step as a coordinate.
    pub fn coordinate(&mut self, id: StepId, point: &Point) -> Result<Index> {
        let step = self.bound.kernel.step(id);
        if !point.lane_axis().is_some_and(|axis| step.axes.contains(axis)) {
            return Ok(Index::Sum(Sum::value(self.int_value(id, point)?)));
        }
        let value = self.values(&[id], std::slice::from_ref(point))?[0][0];
        if self.b.ty(value) != Ty::I64 {
            return Ok(Index::Lanes(value));
        }
        // What does not fit into 32 bits is no coordinate; it must not become one.
        let [low, high] = [-FARTHEST_INDEX, FARTHEST_INDEX].map(|most| self.b.integer(Ty::I64, most));
        let value = self.b.binary(Binary::Max, value, low);
        let value = self.b.binary(Binary::Min, value, high);
        Ok(Index::Lanes(self.b.convert(Convert::Low, Ty::I32, value)))
    }

    /// The value of an integer step that is the same in all lanes.
    fn int_value(&mut self, id: StepId, point: &Point) -> Result<Value> {
        let kernel = self.bound.kernel;
        if !self.given.contains_key(&id) {
            match &kernel.step(id).op {
                Op::Load { .. } => return self.load_int(id, point),
                Op::Map { expr, args } if args.iter().all(|arg| !kernel.step(*arg).dtype.is_float()) => {
                    let args = args.iter().map(|arg| self.int_value(*arg, point)).collect::<Result<Vec<_>>>()?;
                    if let Some(value) = self.map_int(expr, &args, point) {
                        return Ok(value);
                    }
                }
                _ => {}
            }
        }
        let value = self.values(&[id], std::slice::from_ref(point))?[0][0];
        let lane = self.b.lane0(value);
        // Lanes hold the bits of u32 as those of i32; a general register has the value.
        Ok(match kernel.step(id).dtype {
            DType::U32 => {
                let low = self.b.number(u32::MAX.into());
                self.b.int(IntOp::And, lane, low)
            }
            _ => lane,
        })
    }

    /// The lanes of an index.
    pub fn lanes_of(&mut self, index: &Index) -> Value {
        lanes_of(&mut self.b, index)
    }

    /// The number of a check.
    pub fn site(&mut self, site: Site) -> u32 {
        let place = self.sites.iter().position(|known| *known == site).unwrap_or_else(|| {
            self.sites.push(site);
            self.sites.len() - 1
        });
        place as u32
    }

    /// A constant of a type.
    pub fn constant(&mut self, dtype: DType, number: fuseline::ops::Number) -> Value {
        math::constant(&mut self.b, dtype, number)
    }
}

/// The values of a step at several points, each computed once.
#[derive(Debug)]
struct Spread {
    /// the first point of each value
    first: Vec<usize>,
    /// which value a point has
    of: Vec<usize>,
    values: Vec<Value>,
}

/// The values of steps that are computed, in the order of these.
#[derive(Debug)]
struct Found(Vec<(StepId, Spread)>);

impl Found {
    fn of(&self, id: StepId) -> &Spread {
        let place = self.0.binary_search_by_key(&id, |(id, _)| *id);
        &self.0[place.expect("what a step is computed from is computed first")].1
    }
}

impl Spread {
    fn at(&self, point: usize) -> Value {
        self.values[self.of[point]]
    }
}

/// Whether a program computes with lanes of 64 bits, of which a vector holds half as many.
pub(super) fn is_wide(program: &Program) -> bool {
    program.types.iter().any(|ty| matches!(ty, Ty::I64 | Ty::F64))
}
