//! From a vector program to a flat list of steps over numbered registers: what the portable executor runs.
//!
//! Every type has a file of registers. Constants lie in them from the beginning and cost no step; loops are jumps; what a loop
//! hands on lies in one register from its first trip to behind its last.

use std::sync::Arc;

use fuseline::tensor::DType;

use super::carry::in_place;
use super::{
    Address, Binary, Bound, Carried, Compare, Convert, Effect, FmaOp, FoldOp, IntOp, Loop, Node, Op, Program, Routine,
    TileOp, Ty, Unary, Value,
};

/// A register: its place in the file of its type.
pub(super) type Reg = u32;

/// A place in memory: `base + index·scale + offset`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) base: Reg,
    /// a register that holds 0, where the address has none
    pub(super) index: Reg,
    pub(super) scale: i64,
    pub(super) offset: i64,
}

/// Which elements of memory, counted from an address, belong to the lanes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Elements {
    /// one after another
    Consecutive,
    /// the first one to all lanes
    First,
    /// four after another, the next four as many elements behind them
    Quads(u32),
    /// those that an I32 or I64 says
    At(Ty, Reg),
}

/// A step. Fields are named by what they hold; `to` is written, the others are read.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Begin {
        to: Reg,
    },
    End {
        to: Reg,
    },
    Buffer {
        to: Reg,
        place: usize,
    },
    Int {
        op: IntOp,
        to: Reg,
        a: Reg,
        b: Reg,
    },
    Choose {
        to: Reg,
        which: Reg,
        a: Reg,
        b: Reg,
    },
    ReadInt {
        to: Reg,
        at: Place,
        memory: DType,
    },
    CheckInt {
        to: Reg,
        value: Reg,
        bound: Reg,
        site: u32,
    },
    Splat {
        ty: Ty,
        to: Reg,
        value: Reg,
    },
    Lane0 {
        ty: Ty,
        to: Reg,
        a: Reg,
    },
    Unary {
        op: Unary,
        ty: Ty,
        to: Reg,
        a: Reg,
    },
    Binary {
        op: Binary,
        ty: Ty,
        to: Reg,
        a: Reg,
        b: Reg,
    },
    Fma {
        op: FmaOp,
        ty: Ty,
        to: Reg,
        a: Reg,
        b: Reg,
        c: Reg,
    },
    Compare {
        op: Compare,
        ty: Ty,
        to: Reg,
        a: Reg,
        b: Reg,
    },
    Select {
        ty: Ty,
        to: Reg,
        mask: Reg,
        a: Reg,
        b: Reg,
    },
    Pick {
        ty: Ty,
        to: Reg,
        from: Reg,
        lanes: Reg,
    },
    Convert {
        how: Convert,
        from: Ty,
        ty: Ty,
        to: Reg,
        a: Reg,
    },
    Fold {
        op: Binary,
        ty: Ty,
        to: Reg,
        a: Reg,
    },
    Load {
        to: Reg,
        at: Place,
        elements: Elements,
        memory: DType,
        mask: Option<Reg>,
    },
    CheckLanes {
        ty: Ty,
        to: Reg,
        value: Reg,
        bound: Reg,
        mask: Option<Reg>,
        site: u32,
    },
    Call {
        ty: Ty,
        to: Reg,
        routine: Routine,
        args: Box<[(Ty, Reg)]>,
        /// the lanes that it is called for, and what the others are
        only: Option<(Reg, Reg)>,
    },
    Store {
        at: Place,
        elements: Elements,
        value: Reg,
        memory: DType,
        mask: Option<Reg>,
        /// whether subnormals are 0, of bf16
        flushes: bool,
    },
    /// works on tiles; memory is where it says, not where the operation does
    Tile {
        op: TileOp,
        at: Option<Place>,
    },
    Copy {
        ty: Ty,
        to: Reg,
        from: Reg,
    },
    /// jumps unless var < to
    Leave {
        var: Reg,
        to: Reg,
        target: usize,
    },
    /// adds to var and jumps if it is below `to` then
    Repeat {
        var: Reg,
        by: i64,
        to: Reg,
        target: usize,
    },
}

/// What a register holds at the beginning of a call.
#[derive(Clone, Debug)]
pub(super) enum Initial {
    /// 0 everywhere
    Zero,
    /// an integer
    Number(i64),
    /// the bits of every lane; of a mask, 0 or 1
    Bits(u64),
    /// 0, 1, 2, …
    Lanes,
    /// the bits of each lane
    Numbers(Arc<[u32]>),
    /// the first n lanes
    First(u32),
}

/// A program as steps.
#[derive(Debug, Default)]
pub(super) struct Flat {
    pub(super) steps: Vec<Step>,
    /// the registers of every file, in the order of [`file`]
    pub(super) files: [Vec<Initial>; 6],
}

/// Which file a type's registers are in.
pub(super) fn file(ty: Ty) -> usize {
    match ty {
        Ty::Int => 0,
        Ty::F32 => 1,
        Ty::F64 => 2,
        Ty::I32 => 3,
        Ty::I64 => 4,
        Ty::Mask => 5,
    }
}

/// The steps of a program, which must be valid.
pub(super) fn flatten(program: &Program) -> Flat {
    let mut flattener =
        Flattener { program, flat: Flat::default(), registers: vec![NONE; program.types.len()], zero: 0 };
    flattener.zero = flattener.fresh(Ty::Int, Initial::Number(0));
    flattener.nodes(&program.body);
    flattener.flat
}

/// Of a value that has no register yet.
const NONE: Reg = Reg::MAX;

struct Flattener<'p> {
    program: &'p Program,
    flat: Flat,
    /// of every value that was met, and of those that will be computed in place
    registers: Vec<Reg>,
    /// holds the integer 0
    zero: Reg,
}

impl Flattener<'_> {
    fn fresh(&mut self, ty: Ty, initial: Initial) -> Reg {
        let file = &mut self.flat.files[file(ty)];
        file.push(initial);
        (file.len() - 1) as Reg
    }

    fn ty(&self, value: Value) -> Ty {
        self.program.ty(value)
    }

    fn register(&self, value: Value) -> Reg {
        self.registers[value.index()]
    }

    /// The register of a value that is being defined: the one that it is to be computed in place in, or a new one.
    fn define(&mut self, value: Value) -> Reg {
        if self.registers[value.index()] == NONE {
            self.registers[value.index()] = self.fresh(self.ty(value), Initial::Zero);
        }
        self.registers[value.index()]
    }

    fn place(&self, at: &Address) -> Place {
        let (index, scale) = at.index.map_or((self.zero, 1), |(value, scale)| (self.register(value), scale));
        Place { base: self.register(at.base), index, scale: i64::from(scale), offset: i64::from(at.offset) }
    }

    fn at(&self, index: Value) -> Elements {
        Elements::At(self.ty(index), self.register(index))
    }

    fn mask(&self, mask: Option<Value>) -> Option<Reg> {
        mask.map(|mask| self.register(mask))
    }

    fn nodes(&mut self, nodes: &[Node]) {
        for node in nodes {
            match node {
                Node::Let(value, op) => self.value(*value, op),
                Node::Do(effect) => self.effect(effect),
                Node::Loop(inner) => self.counted(inner),
            }
        }
    }

    fn value(&mut self, value: Value, op: &Op) {
        let initial = match op {
            Op::Number(n) => Initial::Number(*n),
            Op::Const(_, bits) => Initial::Bits(*bits),
            Op::Lanes(_) => Initial::Lanes,
            Op::Numbers(_, lanes) => Initial::Numbers(lanes.clone()),
            Op::First(n) => Initial::First(*n),
            _ => {
                let to = self.define(value);
                let step = self.step(to, op);
                return self.flat.steps.push(step);
            }
        };
        let constant = self.fresh(self.ty(value), initial);
        match self.registers[value.index()] {
            NONE => self.registers[value.index()] = constant,
            to => self.copy(self.ty(value), to, constant),
        }
    }

    /// What computes an operation that is no constant.
    fn step(&self, to: Reg, op: &Op) -> Step {
        let reg = |value: &Value| self.register(*value);
        let ty = |value: &Value| self.ty(*value);
        match op {
            Op::Number(_) | Op::Const(..) | Op::Lanes(_) | Op::Numbers(..) | Op::First(_) => {
                unreachable!("{op} is a constant")
            }
            Op::Buffer(place) => Step::Buffer { to, place: *place as usize },
            Op::Begin => Step::Begin { to },
            Op::End => Step::End { to },
            Op::Int(op, a, b) => Step::Int { op: *op, to, a: reg(a), b: reg(b) },
            Op::Choose(which, a, b) => Step::Choose { to, which: reg(which), a: reg(a), b: reg(b) },
            Op::ReadInt { at, memory } => Step::ReadInt { to, at: self.place(at), memory: *memory },
            Op::CheckInt { value, bound, site } => {
                Step::CheckInt { to, value: reg(value), bound: reg(bound), site: *site }
            }
            Op::Splat(ty, value) => Step::Splat { ty: *ty, to, value: reg(value) },
            Op::Lane0(a) => Step::Lane0 { ty: ty(a), to, a: reg(a) },
            Op::Unary(op, a) => Step::Unary { op: *op, ty: ty(a), to, a: reg(a) },
            Op::Binary(op, a, b) => Step::Binary { op: *op, ty: ty(a), to, a: reg(a), b: reg(b) },
            Op::Fma(op, a, b, c) => Step::Fma { op: *op, ty: ty(a), to, a: reg(a), b: reg(b), c: reg(c) },
            Op::Compare(op, a, b) => Step::Compare { op: *op, ty: ty(a), to, a: reg(a), b: reg(b) },
            Op::Select(mask, a, b) => Step::Select { ty: ty(a), to, mask: reg(mask), a: reg(a), b: reg(b) },
            Op::Pick(from, lanes) => Step::Pick { ty: ty(from), to, from: reg(from), lanes: reg(lanes) },
            Op::Convert(how, into, a) => Step::Convert { how: *how, from: ty(a), ty: *into, to, a: reg(a) },
            Op::Fold(FoldOp::By(op), a) => Step::Fold { op: *op, ty: ty(a), to, a: reg(a) },
            Op::Load { at, memory, mask } => self.load(to, at, Elements::Consecutive, *memory, *mask),
            Op::LoadSplat { at, memory } => self.load(to, at, Elements::First, *memory, None),
            Op::LoadQuads { at, apart, memory } => self.load(to, at, Elements::Quads(*apart), *memory, None),
            Op::Gather { at, index, memory, mask } => self.load(to, at, self.at(*index), *memory, *mask),
            Op::CheckLanes { value, bound, mask, site } => Step::CheckLanes {
                ty: ty(value),
                to,
                value: reg(value),
                bound: reg(bound),
                mask: self.mask(*mask),
                site: *site,
            },
            Op::Call(into, routine, args) => {
                let args = args.iter().map(|arg| (ty(arg), reg(arg))).collect();
                Step::Call { ty: *into, to, routine: *routine, args, only: None }
            }
            Op::CallWhere { mask, routine, args, otherwise } => {
                let args = args.iter().map(|arg| (ty(arg), reg(arg))).collect();
                let only = Some((reg(mask), reg(otherwise)));
                Step::Call { ty: ty(otherwise), to, routine: *routine, args, only }
            }
        }
    }

    fn load(&self, to: Reg, at: &Address, elements: Elements, memory: DType, mask: Option<Value>) -> Step {
        Step::Load { to, at: self.place(at), elements, memory, mask: self.mask(mask) }
    }

    fn effect(&mut self, effect: &Effect) {
        let flushes = matches!(effect, Effect::StoreFactor { .. });
        let (at, value, elements, memory, mask) = match effect {
            Effect::Store { at, value, memory, mask, streaming: _ } => {
                (at, value, Elements::Consecutive, memory, self.mask(*mask))
            }
            Effect::StoreQuads { at, apart, value, memory, mask } => {
                (at, value, Elements::Quads(*apart), memory, self.mask(*mask))
            }
            Effect::StoreFactor { at, value, mask } => {
                (at, value, Elements::Consecutive, &DType::BF16, self.mask(*mask))
            }
            Effect::Scatter { at, index, value, memory, mask } => {
                (at, value, self.at(*index), memory, self.mask(*mask))
            }
            Effect::StoreLane { at, value, memory } => (at, value, Elements::First, memory, None),
            Effect::Prefetch(_) => return,
            Effect::Tile(op) => {
                let at = match op {
                    TileOp::Load { at, .. } | TileOp::Store { at, .. } => Some(self.place(at)),
                    TileOp::Zero(_) | TileOp::Products { .. } => None,
                };
                return self.flat.steps.push(Step::Tile { op: *op, at });
            }
        };
        let (at, value) = (self.place(at), self.register(*value));
        self.flat.steps.push(Step::Store { at, elements, value, memory: *memory, mask, flushes });
    }

    fn counted(&mut self, counted: &Loop) {
        let var = self.define(counted.var);
        let (from, to) = (self.bound(counted.from), self.bound(counted.to));
        self.copy(Ty::Int, var, from);
        for (carried, in_place) in counted.carried.iter().zip(in_place(counted)) {
            // What it is behind the loop lies where it is in the trips, wherever that is wanted.
            let param = self.define(carried.result);
            self.registers[carried.param.index()] = param;
            self.copy(self.ty(carried.param), param, self.register(carried.init));
            if in_place {
                self.registers[carried.next.index()] = param;
            }
        }
        let head = self.flat.steps.len();
        self.flat.steps.push(Step::Leave { var, to, target: head });
        self.nodes(&counted.body);
        self.hand_on(&counted.carried);
        self.flat.steps.push(Step::Repeat { var, by: counted.step, to, target: head + 1 });
        let end = self.flat.steps.len();
        self.flat.steps[head] = Step::Leave { var, to, target: end };
    }

    fn bound(&mut self, bound: Bound) -> Reg {
        match bound {
            Bound::Number(n) => self.fresh(Ty::Int, Initial::Number(n)),
            Bound::Value(value) => self.register(value),
        }
    }

    /// Every parameter becomes what it is in the next trip, all at once: one parameter may be what another becomes.
    fn hand_on(&mut self, carried: &[Carried]) {
        let mut moves = Vec::with_capacity(carried.len());
        for each in carried {
            let (ty, param, next) = (self.ty(each.param), self.register(each.param), self.register(each.next));
            let overwritten = carried.iter().any(|other| other.param == each.next);
            let from = if overwritten {
                let kept = self.fresh(ty, Initial::Zero);
                self.copy(ty, kept, next);
                kept
            } else {
                next
            };
            moves.push((ty, param, from));
        }
        for (ty, param, from) in moves {
            self.copy(ty, param, from);
        }
    }

    fn copy(&mut self, ty: Ty, to: Reg, from: Reg) {
        if to == from {
            return;
        }
        self.flat.steps.push(Step::Copy { ty, to, from });
    }
}
