//! A graph under growth: the values made so far, and the steps that are no movements and no regions.

use fuseline::graph::{Builder, Origin, Tensor};
use fuseline::ops::Scalar;
use fuseline::ops::prim::{Combine, Contract, Gather, Host, HostKind, Label, Monoid, Scatter, identity_map};
use fuseline::tensor::{DType, Dim, Env, Literal, Shape, Symbol, TensorType};

use super::tape::Tape;
use super::{NAMES, Op, Step, data};

/// No generated tensor has more elements than this.
const MOST_ELEMENTS: i64 = 300;

/// Element types, the simplest first.
const DTYPES: &[DType] = &[
    DType::F32,
    DType::I64,
    DType::Bool,
    DType::F16,
    DType::U8,
    DType::I32,
    DType::F64,
    DType::BF16,
    DType::I8,
    DType::U64,
    DType::U16,
    DType::I16,
    DType::U32,
    DType::F8E4M3,
    DType::I4,
    DType::F8E5M2,
    DType::U4,
    DType::F4E2M1,
    DType::U2,
];

/// Names of inputs that a text form must not trip over.
const INPUT_NAMES: &[&str] =
    &["a", "return", "input.1", "two words", "\"quoted\"", "back\\slash", "ünï", "%3", "new\nline", ""];

/// A graph and the values that steps may use.
#[derive(Debug)]
pub(super) struct Growth<'b> {
    pub(super) builder: &'b Builder,
    pub(super) pool: Vec<Tensor<'b>>,
    /// the value of each name, and an upper bound of each value symbol
    pub(super) bounds: Env,
    /// regions around this graph
    pub(super) depth: u32,
    steps: usize,
}

impl<'b> Growth<'b> {
    pub(super) fn new(builder: &'b Builder, pool: Vec<Tensor<'b>>, bounds: Env, depth: u32) -> Growth<'b> {
        Growth { builder, pool, bounds, depth, steps: 0 }
    }

    /// Adds what a step says, if there is something that it fits.
    pub(super) fn step(&mut self, step: &Step) {
        self.steps += 1;
        let name = format!("step {}", self.steps).into();
        self.builder.set_origin(Some(Origin { op: format!("{:?}", step.op).into(), name }));
        let made = self.make(step, &mut Tape::new(&step.tape)).unwrap_or_default();
        if let Some(error) = self.builder.take_error() {
            panic!("the generator added what does not fit: {step:?}: {error}");
        }
        self.pool.extend(made);
    }

    fn make(&mut self, step: &Step, tape: &mut Tape<'_>) -> Option<Vec<Tensor<'b>>> {
        let one = match step.op {
            Op::Unary => self.unary(tape),
            Op::Binary => self.binary(tape),
            Op::Cast => Some(self.any(tape).cast(tape.one_of(DTYPES)?)),
            Op::Constant => self.constant(tape),
            Op::Reduce => self.reduce(tape),
            Op::Select => self.select(tape),
            Op::Expression => self.expression(tape),
            Op::Contract => self.contract(tape),
            Op::Take => self.take(tape),
            Op::Scatter => self.scatter(tape),
            Op::Prefix => self.prefix(tape),
            Op::Sort => return self.sort(tape),
            Op::Coordinates => self.coordinates(tape),
            Op::Sizes => Some(self.builder.sizes(&(0..tape.below(4)).map(|_| self.dim(tape, 0)).collect::<Vec<_>>())),
            Op::Random => {
                let seed = self.builder.int(DType::I64, tape.signed());
                Some(self.builder.random(seed, self.new_shape(tape)?))
            }
            Op::Input => self.input(tape),
            Op::Bind => self.bind(tape),
            Op::NonZero => self.nonzero(tape),
            Op::Unique => return self.unique(tape),
            Op::Slice | Op::Permute | Op::Expand | Op::Reshape | Op::Flip | Op::Pad | Op::Windows | Op::Concat => {
                self.movement(step.op, tape)
            }
            Op::If => return self.if_else(step, tape),
            Op::Loop => return self.loop_(step, tape),
        };
        one.map(|tensor| vec![tensor])
    }

    /// A value made so far, the newest being the simplest choice.
    pub(super) fn any(&self, tape: &mut Tape<'_>) -> Tensor<'b> {
        self.pick(tape, |_| true).expect("a graph starts with values")
    }

    /// A value whose type fits.
    pub(super) fn pick(&self, tape: &mut Tape<'_>, fits: impl Fn(&TensorType) -> bool) -> Option<Tensor<'b>> {
        let fitting: Vec<_> = self.pool.iter().rev().copied().filter(|t| fits(&type_of(*t))).collect();
        tape.one_of(&fitting)
    }

    /// An axis of a shape whose size fits.
    pub(super) fn axis(&self, tape: &mut Tape<'_>, shape: &Shape, fits: impl Fn(&Dim) -> bool) -> Option<usize> {
        let fitting: Vec<usize> = (0..shape.rank()).filter(|k| fits(&shape[*k])).collect();
        tape.one_of(&fitting)
    }

    /// The value of a size, or its upper bound where it depends on data.
    pub(super) fn size(&self, dim: &Dim) -> i64 {
        dim.eval(&self.bounds).expect("generated sizes are bound")
    }

    /// Whether a size is known and not 0.
    pub(super) fn is_solid(&self, dim: &Dim) -> bool {
        !dim.mentions(|s| matches!(s, Symbol::Value(_))) && self.size(dim) > 0
    }

    /// Whether a tensor of this shape is small enough.
    pub(super) fn fits(&self, shape: &Shape) -> bool {
        let count = shape.dims().iter().try_fold(1i64, |p, d| p.checked_mul(self.size(d).max(0)));
        shape.rank() <= 6 && count.is_some_and(|n| n <= MOST_ELEMENTS)
    }

    /// Whether two sizes are equal when the graph runs.
    pub(super) fn same_size(&self, a: &Dim, b: &Dim) -> bool {
        let depends = |d: &Dim| d.mentions(|s| matches!(s, Symbol::Value(_)));
        a == b || (!depends(a) && !depends(b) && !a.surely_differs(b) && self.size(a) == self.size(b))
    }

    /// The shape to which two broadcast when the graph runs.
    fn broadcast(&self, a: &Shape, b: &Shape) -> Option<Shape> {
        let rank = a.rank().max(b.rank());
        let at = |s: &Shape, k: usize| (k + s.rank()).checked_sub(rank).map_or(Dim::int(1), |k| s[k].clone());
        let dims = (0..rank).map(|k| match (at(a, k), at(b, k)) {
            (x, y) if y.is(1) || self.same_size(&x, &y) => Some(x),
            (x, y) if x.is(1) => Some(y),
            _ => None,
        });
        dims.collect::<Option<Vec<Dim>>>().map(Shape::from).filter(|shape| self.fits(shape))
    }

    fn unary(&self, tape: &mut Tape<'_>) -> Option<Tensor<'b>> {
        let x = self.any(tape);
        Some(x.apply(scalar(tape, 1, type_of(x).dtype)?))
    }

    fn binary(&self, tape: &mut Tape<'_>) -> Option<Tensor<'b>> {
        let x = self.any(tape);
        let ty = type_of(x);
        let op = scalar(tape, 2, ty.dtype)?;
        let y = self.pick(tape, |t| t.dtype == ty.dtype && self.broadcast(&ty.shape, &t.shape).is_some())?;
        Some(if tape.chance(2) { y.apply2(op, x) } else { x.apply2(op, y) })
    }

    fn select(&self, tape: &mut Tape<'_>) -> Option<Tensor<'b>> {
        let x = self.any(tape);
        let ty = type_of(x);
        let y = self.pick(tape, |t| *t == ty)?;
        let condition = self.pick(tape, |t| t.dtype == DType::Bool && t.shape == ty.shape);
        Some(condition.unwrap_or_else(|| x.equal(y)).select(x, y))
    }

    fn constant(&self, tape: &mut Tape<'_>) -> Option<Tensor<'b>> {
        let dtype = tape.one_of(DTYPES)?;
        let sizes: Vec<usize> = (0..tape.below(4)).map(|_| [2, 3, 1, 0, 5][tape.below(5)]).collect();
        let ty = TensorType::new(dtype, sizes.iter().copied().collect::<Shape>());
        if dtype.is_float() && tape.chance(3) {
            let special = [-0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-7, 1e30, 5e-324, 0.1];
            let values: Vec<f64> = (0..sizes.iter().product()).map(|_| special[tape.below(8)]).collect();
            return Some(self.builder.constant(Literal::from_f64s(dtype, sizes, &values).ok()?));
        }
        Some(self.builder.constant(data::literal(&ty, &self.bounds, tape.below(256) as u64)))
    }

    fn monoid(&self, tape: &mut Tape<'_>, dtype: DType) -> Option<Monoid> {
        let sums = |m: &Monoid| matches!(m, Monoid::Sum | Monoid::Prod);
        let fitting: Vec<_> = Monoid::ALL.iter().copied().filter(|m| dtype != DType::Bool || !sums(m)).collect();
        tape.one_of(&fitting)
    }

    fn reduce(&self, tape: &mut Tape<'_>) -> Option<Tensor<'b>> {
        let x = self.any(tape);
        let ty = type_of(x);
        let monoid = self.monoid(tape, ty.dtype)?;
        if monoid.is_position() {
            return Some(x.reduce(monoid, &[self.axis(tape, &ty.shape, |d| self.is_solid(d))?]));
        }
        let first = self.axis(tape, &ty.shape, |_| true)?;
        let axes: Vec<usize> = (0..ty.shape.rank()).filter(|k| *k == first || tape.chance(3)).collect();
        Some(if tape.chance(3) { x.reduce_keep(monoid, &axes) } else { x.reduce(monoid, &axes) })
    }

    fn prefix(&self, tape: &mut Tape<'_>) -> Option<Tensor<'b>> {
        let x = self.pick(tape, |t| t.shape.rank() > 0)?;
        let monoid = self.monoid(tape, type_of(x).dtype).filter(|m| !m.is_position())?;
        Some(x.prefix(monoid, tape.below(type_of(x).shape.rank()), tape.chance(2)))
    }

    fn sort(&self, tape: &mut Tape<'_>) -> Option<Vec<Tensor<'b>>> {
        let x = self.pick(tape, |t| t.shape.rank() > 0)?;
        let (values, positions) = x.sort(tape.below(type_of(x).shape.rank()), tape.chance(2));
        Some(if tape.chance(2) { vec![values, positions] } else { vec![positions, values] })
    }

    /// A contraction over one pair of axes; another pair of equal sizes may become a batch axis.
    fn contract(&self, tape: &mut Tape<'_>) -> Option<Tensor<'b>> {
        let x = self.pick(tape, |t| t.dtype != DType::Bool)?;
        let a = type_of(x);
        let y = self.pick(tape, |t| t.dtype == a.dtype)?;
        let b = type_of(y);
        let labels_a: Vec<Label> = ('a'..).take(a.shape.rank()).collect();
        let mut labels_b: Vec<Label> = ('A'..).take(b.shape.rank()).collect();
        let mut out: Vec<Label> = labels_a.clone();
        for pair in 0..tape.below(3) {
            let unpaired = |dim: &Dim, labels: &[Label]| -> Vec<usize> {
                let free = |j: &usize| labels[*j].is_ascii_uppercase() && self.same_size(dim, &b.shape[*j]);
                (0..labels.len()).filter(free).collect()
            };
            let lonely = |i: &usize| !labels_b.contains(&labels_a[*i]) && !unpaired(&a.shape[*i], &labels_b).is_empty();
            let Some(i) = tape.one_of(&(0..labels_a.len()).filter(lonely).collect::<Vec<_>>()) else { break };
            let Some(j) = tape.one_of(&unpaired(&a.shape[i], &labels_b)) else { break };
            labels_b[j] = labels_a[i];
            if pair == 0 {
                out.retain(|l| *l != labels_a[i]);
            }
        }
        out.extend(labels_b.iter().filter(|l| l.is_ascii_uppercase()));
        let rotation = tape.below(out.len());
        out.rotate_left(rotation);
        let accumulator = match a.dtype {
            DType::F16 | DType::BF16 => DType::F32,
            DType::I8 | DType::I16 => DType::I32,
            other => other,
        };
        let row = Contract { a: labels_a, b: labels_b, out, accumulator };
        let sizes = row.out.iter().map(|l| row.extent(&[a.clone(), b.clone()], *l).cloned());
        let fits = self.fits(&sizes.collect::<Option<Vec<_>>>()?.into());
        fits.then(|| x.contract_with(row, y))
    }

    /// Integers of a shape, each a valid index along an axis of the given size.
    fn indices(&self, tape: &mut Tape<'_>, size: &Dim, fits: impl Fn(&Shape) -> bool) -> Option<Tensor<'b>> {
        let x = self.pick(tape, |t| t.dtype.is_int() && fits(&t.shape))?;
        Some(x.cast(DType::I64).modulo(size))
    }

    fn take(&self, tape: &mut Tape<'_>) -> Option<Tensor<'b>> {
        let x = self.any(tape);
        let own = type_of(x).shape;
        let axis = self.axis(tape, &own, |d| self.is_solid(d))?;
        let rest: Vec<Dim> = (0..own.rank()).filter(|k| *k != axis).map(|k| own[k].clone()).collect();
        let fits = |places: &Shape| self.fits(&[places.dims(), &rest].concat().into());
        if !tape.chance(3) {
            return Some(x.take(axis, self.indices(tape, &own[axis], fits)?));
        }
        // A map that computes with what it reads.
        let index = self.indices(tape, &own[axis], |shape| *shape == own)?;
        let mut map = identity_map(own.rank());
        map[axis] = (&map[axis] * tape.signed() + Dim::from(Symbol::Read(0))).modulo(&own[axis]);
        Some(x.gather(Gather { shape: own, map }, &[index]))
    }

    fn scatter(&self, tape: &mut Tape<'_>) -> Option<Tensor<'b>> {
        let x = self.any(tape);
        let ty = type_of(x);
        let axis = self.axis(tape, &ty.shape, |d| self.is_solid(d))?;
        let combine = tape.one_of(Combine::ALL)?;
        let updates = self.pick(tape, |t| *t == ty)?;
        let mut map = identity_map(ty.shape.rank());
        map[axis] = Symbol::Read(0).into();
        let index = self.indices(tape, &ty.shape[axis], |shape| *shape == ty.shape);
        let index = index.unwrap_or_else(|| (self.builder.coordinate(axis, &ty.shape) + 1i64).modulo(&ty.shape[axis]));
        Some(x.scatter(Scatter { combine, map }, updates, &[index]))
    }

    fn coordinates(&self, tape: &mut Tape<'_>) -> Option<Tensor<'b>> {
        let shape = self.new_shape(tape)?;
        Some(self.builder.index(&self.dim(tape, shape.rank()), &shape))
    }

    /// A shape for a new tensor.
    pub(super) fn new_shape(&self, tape: &mut Tape<'_>) -> Option<Shape> {
        let shape: Shape = (0..tape.below(4)).map(|_| self.new_size(tape)).collect();
        self.fits(&shape).then_some(shape)
    }

    /// A size for a new axis.
    pub(super) fn new_size(&self, tape: &mut Tape<'_>) -> Dim {
        let [n, p, m] = NAMES.map(Dim::named);
        let sum = &n * 2 + 1;
        let half = m.ceildiv(&Dim::int(2));
        [Dim::int(2), n, m, Dim::int(1), p, sum, half][tape.below(7)].clone()
    }

    /// An integer expression over sizes and the coordinates of a domain of this rank.
    fn dim(&self, tape: &mut Tape<'_>, rank: usize) -> Dim {
        let symbols = self.pool.iter().flat_map(|t| type_of(*t).shape.dims().to_vec());
        let symbols = symbols.filter(|d| d.as_symbol().is_some());
        let mut leaves: Vec<Dim> = (0..rank).map(Dim::axis).collect();
        // Division by sizes that are zero is what shape arithmetic may get wrong: sizes as data are larger.
        leaves.extend(symbols.map(|d| if self.is_solid(&d) { d } else { d + 1 }));
        leaves.push(Dim::int(3));
        let mut total = leaves[tape.below(leaves.len())].clone();
        for _ in 0..tape.below(4) {
            let other = leaves[tape.below(leaves.len())].clone();
            let divisor = Dim::int(2 + tape.below(3) as i64);
            total = match tape.below(7) {
                0 => total + other,
                1 => total - other,
                2 => total * tape.signed(),
                3 => total.floordiv(&divisor),
                4 => total.modulo(&divisor),
                5 => total.min_with(&other),
                _ => total.max_with(&other),
            };
        }
        total
    }

    fn input(&self, tape: &mut Tape<'_>) -> Option<Tensor<'b>> {
        let name = tape.one_of(INPUT_NAMES)?;
        let taken = |g: &fuseline::graph::Graph| g.inputs().iter().any(|v| g.input_name(*v).as_ref() == name);
        if self.depth > 0 || self.builder.with_graph(taken) {
            return None; // regions take their inputs from operands
        }
        let dtype = tape.one_of(DTYPES)?;
        Some(self.builder.input(name, dtype, self.new_shape(tape)?))
    }

    /// One element of an integer tensor, as an i64 scalar in `0..limit`.
    pub(super) fn small_number(&self, tape: &mut Tape<'_>, limit: i64) -> Option<Tensor<'b>> {
        let solid = |t: &TensorType| t.dtype.is_int() && t.shape.dims().iter().all(|d| self.is_solid(d));
        let mut x = self.pick(tape, solid)?;
        for _ in 0..type_of(x).shape.rank() {
            x = x.element(0, 0i64);
        }
        Some(x.cast(DType::I64).modulo(limit))
    }

    fn bind(&mut self, tape: &mut Tape<'_>) -> Option<Tensor<'b>> {
        let number = self.small_number(tape, 4)?;
        let dim = self.builder.bind(number).ok()?;
        if let Some(symbol @ Symbol::Value(_)) = dim.as_symbol()
            && self.bounds.get(symbol).is_none()
        {
            self.bounds.bind(symbol.clone(), 3);
        }
        let shape = Shape::new([dim, Dim::int(2)]);
        Some(self.builder.coordinate(0, &shape).cast(tape.one_of(DTYPES)?))
    }

    fn nonzero(&mut self, tape: &mut Tape<'_>) -> Option<Tensor<'b>> {
        let x = self.pick(tape, |t| t.shape.rank() > 0)?;
        let ty = type_of(x);
        let most = self.size(&ty.shape.count());
        if most * ty.shape.rank() as i64 > MOST_ELEMENTS {
            return None;
        }
        let count = self.fresh_symbol(most);
        Some(self.builder.add(Host { kind: HostKind::NonZero { count } }, &[x]))
    }

    fn unique(&mut self, tape: &mut Tape<'_>) -> Option<Vec<Tensor<'b>>> {
        let x = self.any(tape);
        let shape = type_of(x).shape;
        let axis = self.axis(tape, &shape, |d| self.is_solid(d))?;
        let count = self.fresh_symbol(self.size(&shape[axis]));
        Some(self.builder.add_multi(Host { kind: HostKind::Unique { axis, sorted: tape.chance(2), count } }, &[x]))
    }

    /// A value symbol that is at most `most` when the graph runs.
    fn fresh_symbol(&mut self, most: i64) -> u32 {
        let symbol = self.builder.fresh_symbol();
        self.bounds.bind(Symbol::Value(symbol), most);
        symbol
    }
}

/// The type of a value that is known to be no poison.
pub(super) fn type_of(tensor: Tensor<'_>) -> TensorType {
    tensor.ty().expect("the generator adds only what fits")
}

/// A function of this many operands of one type. Narrow types are for storage: nothing is computed in them.
pub(super) fn scalar(tape: &mut Tape<'_>, arity: usize, dtype: DType) -> Option<Scalar> {
    let is_narrow = dtype.bits() < 8 || (dtype.is_float() && dtype.bits() == 8);
    let fits = |op: &Scalar| !is_narrow && op.def().arity == arity && op.is_defined_on(dtype);
    let fitting: Vec<Scalar> = Scalar::ALL.iter().copied().filter(fits).collect();
    tape.one_of(&fitting)
}
