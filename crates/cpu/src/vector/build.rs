//! Building vector programs.
//!
//! The builder keeps one value for equal computations and puts a pure one as far outside of the loops as its operands allow:
//! who builds need not think about what is invariant. What reads memory that the program itself writes must say so
//! ([`Builder::load_again`]): it stays where it is.

mod address;
mod spare;
#[cfg(test)]
mod tests;

use fuseline::tensor::DType;
use smallvec::SmallVec;

use address::Sums;
use spare::Spare;

use super::known::{Found, Known, Seen};
use super::{
    Address, Binary, Bound, Carried, Compare, Convert, Effect, FmaOp, FoldOp, IntOp, Loop, Node, Op, Program, Routine,
    TileOp, Ty, Unary, Value,
};

/// A program that is being built.
#[derive(Debug)]
pub struct Builder {
    lanes: u32,
    values: Values,
    scopes: Vec<Scope>,
    /// of every loop that was begun and not ended, whether it is one: what happens once needs none
    loops: Vec<bool>,
    /// how many scopes there were
    opened: u32,
    /// pure values; those of scopes that were closed are forgotten when they are asked for
    known: Known,
    buffers: u32,
    /// vectors are put no further outside than this
    floor: usize,
    /// for all that happens only if and was begun and not ended, what reads memory is put no further outside than this
    whens: Vec<usize>,
    /// empty, with room for what stands in a loop
    bodies: Vec<Vec<Node>>,
    /// the sums that addresses are
    sums: Sums,
    /// numbers that were asked for last, each at a place that follows from it
    numbers: [Option<(i64, Value)>; 64],
}

/// Values that there is room for at first.
const SOME: usize = 256;

/// What is known of every value.
#[derive(Debug)]
struct Values {
    types: Vec<Ty>,
    facts: Vec<Fact>,
}

#[derive(Clone, Copy, Debug)]
struct Fact {
    /// in how many loops it stands
    depth: u32,
    /// the number of the scope in which it stands
    home: u32,
    /// of pure values, which statement of the scope it is, and the hash of what it is
    place: u32,
    hash: u32,
    /// the number that it is, or the bits of every lane
    constant: Option<u64>,
}

impl Values {
    fn fresh(&mut self, ty: Ty, depth: usize, home: u32) -> Value {
        let value = Value(u32::try_from(self.types.len()).expect("a program has fewer than 2^32 values"));
        self.types.push(ty);
        self.facts.push(Fact { depth: depth as u32, home, place: u32::MAX, hash: 0, constant: None });
        value
    }

    fn of(&self, value: Value) -> &Fact {
        &self.facts[value.index()]
    }
}

/// A loop that is open; the outermost scope is the program.
#[derive(Debug)]
struct Scope {
    /// every scope has its own
    number: u32,
    nodes: Vec<Node>,
    head: Option<Head>,
}

#[derive(Debug)]
struct Head {
    var: Value,
    from: Bound,
    to: Bound,
    step: i64,
    params: Vec<Value>,
    inits: Vec<Value>,
}

impl Builder {
    /// An empty program with vectors of so many lanes.
    pub fn new(lanes: u32) -> Builder {
        let Spare { facts, table, bodies } = Spare::take();
        let mut builder = Builder {
            lanes,
            values: Values { types: Vec::with_capacity(SOME), facts },
            scopes: Vec::new(),
            loops: Vec::new(),
            opened: 0,
            known: Known::new(table),
            buffers: 0,
            floor: 0,
            whens: Vec::new(),
            bodies,
            sums: Sums::default(),
            numbers: [None; 64],
        };
        builder.open();
        builder
    }

    /// Numbers in a vector.
    pub fn lanes(&self) -> u32 {
        self.lanes
    }

    /// The type of a value.
    pub fn ty(&self, value: Value) -> Ty {
        self.values.types[value.index()]
    }

    /// In how many loops a value stands.
    pub fn depth(&self, value: Value) -> u32 {
        self.values.of(value).depth
    }

    /// The program. Every loop must have been ended.
    pub fn finish(mut self) -> Program {
        let (body, _) = self.close();
        assert!(self.scopes.is_empty() && self.loops.is_empty(), "a loop was not ended");
        Spare { facts: self.values.facts, table: self.known.into_table(), bodies: self.bodies }.put();
        Program { lanes: self.lanes, types: self.values.types, buffers: self.buffers, body }
    }

    fn fresh(&mut self, ty: Ty, depth: usize) -> Value {
        self.values.fresh(ty, depth, self.scopes[depth].number)
    }

    /// A pure value: the one that is known, or a new one as far outside as its operands are.
    fn pure(&mut self, ty: Ty, op: Op) -> Value {
        let hash = Known::hash(&op);
        let see = |value: Value| {
            let fact = self.values.of(value);
            match self.scopes.get(fact.depth as usize).filter(|scope| scope.number == fact.home) {
                None => Seen::Gone,
                Some(scope) => match &scope.nodes[fact.place as usize] {
                    Node::Let(_, known) if fact.hash == hash && *known == op => Seen::Same,
                    _ => Seen::Other,
                },
            }
        };
        let at = match self.known.find(hash, see) {
            Found::Value(value) => return value,
            Found::Nothing(at) => at,
        };
        let mut depth = 0;
        op.each_operand(|value| depth = depth.max(self.values.of(value).depth as usize));
        if ty != Ty::Int && !matches!(op, Op::Const(..) | Op::Numbers(..)) {
            depth = depth.max(self.floor);
        }
        if let Some(least) = self.whens.last().filter(|_| op.needs_permission()) {
            depth = depth.max(*least);
        }
        let scope = &mut self.scopes[depth];
        let value = self.values.fresh(ty, depth, scope.number);
        let fact = &mut self.values.facts[value.index()];
        (fact.place, fact.hash) = (scope.nodes.len() as u32, hash);
        scope.nodes.push(Node::Let(value, op));
        self.known.put(at, value, |value| self.values.of(value).hash);
        value
    }

    /// A value that stays where it is.
    fn here(&mut self, ty: Ty, op: Op) -> Value {
        let depth = self.scopes.len() - 1;
        let value = self.fresh(ty, depth);
        self.scopes[depth].nodes.push(Node::Let(value, op));
        value
    }

    /// From here on, vectors stay in the innermost loop that is open even where they could stand outside of it: for what
    /// follows a loop that needs all registers. Until [`Builder::move_outside`].
    pub fn stay_inside(&mut self) {
        self.floor = self.scopes.len() - 1;
    }

    /// From here on, vectors stand as far outside as they can.
    pub fn move_outside(&mut self) {
        self.floor = 0;
    }

    fn effect(&mut self, effect: Effect) {
        self.scopes.last_mut().expect("the program itself is a scope").nodes.push(Node::Do(effect));
    }
}

/// Loops.
impl Builder {
    /// Opens a loop; returns its counter and what `inits` are inside of it. Of a single trip, whose counter is known, nothing
    /// but what happens in it is left.
    pub fn begin_loop(&mut self, from: Bound, to: Bound, step: i64, inits: &[Value]) -> (Value, Vec<Value>) {
        let first = self
            .bound_number(from)
            .filter(|first| self.bound_number(to).is_some_and(|end| *first < end && end <= first.saturating_add(step)));
        self.loops.push(first.is_none());
        if let Some(first) = first {
            return (self.number(first), inits.to_vec());
        }
        let depth = self.scopes.len();
        self.open();
        let var = self.fresh(Ty::Int, depth);
        let params: Vec<Value> = inits.iter().map(|init| self.fresh(self.ty(*init), depth)).collect();
        let head = Head { var, from, to, step, params: params.clone(), inits: inits.to_vec() };
        self.scopes[depth].head = Some(head);
        (var, params)
    }

    /// Closes the innermost loop; `nexts` are what the next trip is given. Returns what they are behind the loop.
    pub fn end_loop(&mut self, nexts: &[Value]) -> Vec<Value> {
        if !self.loops.pop().expect("a loop is open") {
            return nexts.to_vec();
        }
        let (body, head) = self.close();
        let head = head.expect("a loop is open");
        let depth = self.scopes.len() - 1;
        let mut carried = Vec::with_capacity(nexts.len());
        for ((param, init), next) in head.params.iter().zip(&head.inits).zip(nexts) {
            let result = self.fresh(self.ty(*param), depth);
            carried.push(Carried { param: *param, init: *init, next: *next, result });
        }
        let results = carried.iter().map(|c| c.result).collect();
        let Head { var, from, to, step, .. } = head;
        let node = Node::Loop(Box::new(Loop { var, from, to, step, carried, body }));
        self.scopes.last_mut().expect("the program itself is a scope").nodes.push(node);
        results
    }

    /// Opens what happens only if an Int is 1, not 0: what reads memory or checks stays inside of it. Returns what `inits` are there.
    pub fn begin_when(&mut self, holds: Value, inits: &[Value]) -> Vec<Value> {
        let outside = self.scopes.len();
        let (_, inside) = self.begin_loop(Bound::Number(0), Bound::Value(holds), Loop::ONCE, inits);
        let around = self.whens.last().copied().unwrap_or(0);
        self.whens.push(if self.scopes.len() > outside { outside } else { around });
        inside
    }

    /// Closes it; returns what `inits` are behind it: `nexts` if it happened.
    pub fn end_when(&mut self, nexts: &[Value]) -> Vec<Value> {
        self.whens.pop();
        self.end_loop(nexts)
    }

    /// The number that a bound is known to be.
    fn bound_number(&self, bound: Bound) -> Option<i64> {
        match bound {
            Bound::Number(number) => Some(number),
            Bound::Value(value) => self.as_number(value),
        }
    }

    /// Opens the loop over the tasks of the call; returns the task.
    pub fn begin_tasks(&mut self) -> Value {
        let (from, to) = (self.pure(Ty::Int, Op::Begin), self.pure(Ty::Int, Op::End));
        self.begin_loop(Bound::Value(from), Bound::Value(to), 1, &[]).0
    }
}

/// Integers.
impl Builder {
    /// A number.
    pub fn number(&mut self, n: i64) -> Value {
        // numbers stand outside of all loops: they stay
        let place = ((n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize;
        match self.numbers[place] {
            Some((known, value)) if known == n => value,
            _ => {
                let value = self.pure(Ty::Int, Op::Number(n));
                self.values.facts[value.index()].constant = Some(n as u64);
                self.numbers[place] = Some((n, value));
                value
            }
        }
    }

    /// The number that a value is known to be.
    pub fn as_number(&self, value: Value) -> Option<i64> {
        let number = self.values.of(value).constant.filter(|_| self.ty(value) == Ty::Int);
        number.map(|n| n as i64)
    }

    /// The pointer at a place of the table.
    pub fn buffer(&mut self, place: u32) -> Value {
        self.buffers = self.buffers.max(place + 1);
        self.pure(Ty::Int, Op::Buffer(place))
    }

    /// A function of integers.
    pub fn int(&mut self, op: IntOp, a: Value, b: Value) -> Value {
        match (op, self.as_number(a), self.as_number(b)) {
            (_, Some(a), Some(b)) if op.is_defined(b) => return self.number(op.apply(a, b)),
            (IntOp::Add | IntOp::Or | IntOp::Xor, Some(0), _) => return b,
            (IntOp::Add | IntOp::Sub | IntOp::Or | IntOp::Xor | IntOp::Shl | IntOp::Shr, _, Some(0)) => return a,
            (IntOp::Mul, Some(1), _) => return b,
            (IntOp::Mul | IntOp::FloorDiv, _, Some(1)) => return a,
            (IntOp::Mul, Some(0), _) | (IntOp::Mul, _, Some(0)) | (IntOp::FloorMod, _, Some(1)) => {
                return self.number(0);
            }
            _ => {}
        }
        self.pure(Ty::Int, Op::Int(op, a, b))
    }

    /// a + n
    pub fn plus(&mut self, a: Value, n: i64) -> Value {
        let n = self.number(n);
        self.int(IntOp::Add, a, n)
    }

    /// a · n
    pub fn times(&mut self, a: Value, n: i64) -> Value {
        let n = self.number(n);
        self.int(IntOp::Mul, a, n)
    }

    /// The second where the first is not 0, otherwise the third.
    pub fn choose(&mut self, which: Value, a: Value, b: Value) -> Value {
        match self.as_number(which) {
            Some(0) => b,
            Some(_) => a,
            None if a == b => a,
            None => self.pure(Ty::Int, Op::Choose(which, a, b)),
        }
    }

    /// An integer in memory that the program does not write.
    pub fn read_int(&mut self, at: Address, memory: DType) -> Value {
        self.pure(Ty::Int, Op::ReadInt { at, memory })
    }

    /// The value, which must be within `0..bound`.
    pub fn check_int(&mut self, value: Value, bound: Value, site: u32) -> Value {
        self.pure(Ty::Int, Op::CheckInt { value, bound, site })
    }
}

/// Vectors.
impl Builder {
    /// Equal lanes, by the bits of one.
    pub fn bits(&mut self, ty: Ty, bits: u64) -> Value {
        let value = self.pure(ty, Op::Const(ty, bits));
        self.values.facts[value.index()].constant = Some(bits);
        value
    }

    /// The bits of every lane, where a value is known to be constant.
    pub fn as_bits(&self, value: Value) -> Option<u64> {
        self.values.of(value).constant.filter(|_| self.ty(value) != Ty::Int)
    }

    /// A float in every lane.
    pub fn float(&mut self, ty: Ty, x: f64) -> Value {
        match ty {
            Ty::F32 => self.bits(ty, u64::from((x as f32).to_bits())),
            _ => self.bits(ty, x.to_bits()),
        }
    }

    /// An integer in every lane.
    pub fn integer(&mut self, ty: Ty, n: i64) -> Value {
        match ty {
            Ty::I32 => self.bits(ty, u64::from(n as u32)),
            _ => self.bits(ty, n as u64),
        }
    }

    /// All lanes, or none.
    pub fn truth(&mut self, holds: bool) -> Value {
        self.bits(Ty::Mask, u64::from(holds))
    }

    /// 0, 1, 2, …
    pub fn lane_numbers(&mut self, ty: Ty) -> Value {
        self.pure(ty, Op::Lanes(ty))
    }

    /// A number for every lane, by its bits.
    pub fn numbers(&mut self, ty: Ty, lanes: &[u32]) -> Value {
        self.pure(ty, Op::Numbers(ty, lanes.into()))
    }

    /// The lanes of a vector that an I32 names, modulo how many there are.
    pub fn pick(&mut self, from: Value, lanes: Value) -> Value {
        self.pure(self.ty(from), Op::Pick(from, lanes))
    }

    /// A mask of the first n lanes.
    pub fn first(&mut self, n: u32) -> Value {
        self.pure(Ty::Mask, Op::First(n))
    }

    /// An integer in every lane; as a mask, whether it is not 0.
    pub fn splat(&mut self, ty: Ty, value: Value) -> Value {
        match (ty, self.as_number(value)) {
            (Ty::Mask, Some(n)) => self.truth(n != 0),
            (_, Some(n)) => self.integer(ty, n),
            _ => self.pure(ty, Op::Splat(ty, value)),
        }
    }

    /// Lane 0 as an integer.
    pub fn lane0(&mut self, value: Value) -> Value {
        self.pure(Ty::Int, Op::Lane0(value))
    }

    /// A function of one vector.
    pub fn unary(&mut self, op: Unary, a: Value) -> Value {
        self.pure(self.ty(a), Op::Unary(op, a))
    }

    /// A function of two vectors.
    pub fn binary(&mut self, op: Binary, a: Value, b: Value) -> Value {
        self.pure(self.ty(a), Op::Binary(op, a, b))
    }

    /// a·b + c, or with other signs, rounded once.
    pub fn fma(&mut self, op: FmaOp, a: Value, b: Value, c: Value) -> Value {
        self.pure(self.ty(a), Op::Fma(op, a, b, c))
    }

    /// A comparison.
    pub fn compare(&mut self, op: Compare, a: Value, b: Value) -> Value {
        self.pure(Ty::Mask, Op::Compare(op, a, b))
    }

    /// The second where the mask holds, otherwise the third.
    pub fn select(&mut self, mask: Value, a: Value, b: Value) -> Value {
        if a == b { a } else { self.pure(self.ty(a), Op::Select(mask, a, b)) }
    }

    /// Lanes of another type.
    pub fn convert(&mut self, how: Convert, ty: Ty, a: Value) -> Value {
        self.pure(ty, Op::Convert(how, ty, a))
    }

    /// The fold of all lanes in every lane.
    pub fn fold(&mut self, op: FoldOp, a: Value) -> Value {
        self.pure(self.ty(a), Op::Fold(op, a))
    }

    /// A function called for every lane.
    pub fn call(&mut self, ty: Ty, routine: Routine, args: &[Value]) -> Value {
        self.pure(ty, Op::Call(ty, routine, SmallVec::from_slice(args)))
    }

    /// A function called for the lanes of a mask, which should be rare; `otherwise` in the others.
    pub fn call_where(&mut self, mask: Value, routine: Routine, args: &[Value], otherwise: Value) -> Value {
        let args = SmallVec::from_slice(args);
        self.pure(self.ty(otherwise), Op::CallWhere { mask, routine, args, otherwise })
    }
}

/// Memory.
impl Builder {
    /// Consecutive elements of memory that the program does not write.
    pub fn load(&mut self, at: Address, memory: DType, mask: Option<Value>) -> Value {
        self.pure(register(memory), Op::Load { at, memory, mask })
    }

    /// One element, of memory that the program does not write, in every lane.
    pub fn load_splat(&mut self, at: Address, memory: DType) -> Value {
        self.pure(register(memory), Op::LoadSplat { at, memory })
    }

    /// For every four lanes, four elements of memory that the program does not write; the next four lie as many elements behind them.
    pub fn load_quads(&mut self, at: Address, apart: u32, memory: DType) -> Value {
        self.pure(register(memory), Op::LoadQuads { at, apart, memory })
    }

    /// The same of memory that the program writes too.
    pub fn load_quads_again(&mut self, at: Address, apart: u32, memory: DType) -> Value {
        self.here(register(memory), Op::LoadQuads { at, apart, memory })
    }

    /// Consecutive elements of memory that the program writes too.
    pub fn load_again(&mut self, at: Address, memory: DType, mask: Option<Value>) -> Value {
        self.here(register(memory), Op::Load { at, memory, mask })
    }

    /// One element, of memory that the program writes too, in every lane.
    pub fn load_splat_again(&mut self, at: Address, memory: DType) -> Value {
        self.here(register(memory), Op::LoadSplat { at, memory })
    }

    /// Elements at places of memory that the program does not write.
    pub fn gather(&mut self, at: Address, index: Value, memory: DType, mask: Option<Value>) -> Value {
        self.pure(register(memory), Op::Gather { at, index, memory, mask })
    }

    /// Elements at places of memory that the program writes too.
    pub fn gather_again(&mut self, at: Address, index: Value, memory: DType, mask: Option<Value>) -> Value {
        self.here(register(memory), Op::Gather { at, index, memory, mask })
    }

    /// The lanes, which must be within `0..bound` where the mask holds.
    pub fn check_lanes(&mut self, value: Value, bound: Value, mask: Option<Value>, site: u32) -> Value {
        self.pure(self.ty(value), Op::CheckLanes { value, bound, mask, site })
    }

    /// Writes consecutive elements.
    pub fn store(&mut self, at: Address, value: Value, memory: DType, mask: Option<Value>) {
        let value = self.before_wrapping(value, memory);
        self.effect(Effect::Store { at, value, memory, mask, streaming: false });
    }

    /// Writes every four lanes to four elements, the next four as many elements behind them; of every four those lanes that the mask has of the first four.
    pub fn store_quads(&mut self, at: Address, apart: u32, value: Value, memory: DType, mask: Option<Value>) {
        self.effect(Effect::StoreQuads { at, apart, value, memory, mask });
    }

    /// Writes consecutive elements past the caches; the address must be a multiple of the bytes of the vector.
    pub fn store_streaming(&mut self, at: Address, value: Value, memory: DType) {
        self.effect(Effect::Store { at, value, memory, mask: None, streaming: true });
    }

    /// What a value was before it was wrapped to the type in which it is written: memory keeps the low bits alone.
    fn before_wrapping(&self, value: Value, memory: DType) -> Value {
        if !matches!(memory, DType::I8 | DType::U8 | DType::I16 | DType::U16) {
            return value;
        }
        let (unused, low) = (32 - memory.bits() as u64, (1 << memory.bits()) - 1);
        let is = |value: Value, wanted: u64| self.values.of(value).constant == Some(wanted);
        match self.definition(value) {
            Some(Op::Binary(Binary::And, from, mask)) if is(*mask, low) => *from,
            Some(Op::Binary(Binary::ShrSigned, high, right)) if is(*right, unused) => match self.definition(*high) {
                Some(Op::Binary(Binary::Shl, from, left)) if is(*left, unused) => *from,
                _ => value,
            },
            _ => value,
        }
    }

    /// What a pure value is, while its scope is open.
    fn definition(&self, value: Value) -> Option<&Op> {
        let fact = self.values.of(value);
        let scope = self.scopes.get(fact.depth as usize).filter(|scope| scope.number == fact.home)?;
        match scope.nodes.get(fact.place as usize)? {
            Node::Let(found, op) if *found == value => Some(op),
            _ => None,
        }
    }

    /// Writes consecutive elements of bf16 that tiles will multiply.
    pub fn store_factor(&mut self, at: Address, value: Value, mask: Option<Value>) {
        self.effect(Effect::StoreFactor { at, value, mask });
    }

    /// Writes elements at places.
    pub fn scatter(&mut self, at: Address, index: Value, value: Value, memory: DType, mask: Option<Value>) {
        self.effect(Effect::Scatter { at, index, value, memory, mask });
    }

    /// Writes lane 0.
    pub fn store_lane(&mut self, at: Address, value: Value, memory: DType) {
        self.effect(Effect::StoreLane { at, value, memory });
    }

    /// Asks for a line of memory.
    pub fn prefetch(&mut self, at: Address) {
        self.effect(Effect::Prefetch(at));
    }

    /// Works on tiles.
    pub fn tile(&mut self, op: TileOp) {
        self.effect(Effect::Tile(op));
    }
}

/// The type of a loaded element.
fn register(memory: DType) -> Ty {
    Ty::of(memory).expect("who builds loads elements that registers can hold")
}
