//! Running folds: a thread walks along an axis and writes what it has so far.

use fuseline::error::{Error, Result};
use fuseline::ops::prim::Monoid;
use fuseline::tensor::Dim;
use fuseline::tile::{AxisSet, Op, StepId};

use super::body::Body;
use super::code::Code;
use super::function::{Function, Grid};
use super::nest::Nest;
use super::points::decode;
use super::{element, expression, scalar};
use fuseline::ops::Scalar;

const THREADS: u32 = 128;

/// The function that computes a running fold, which is all that is stored.
pub(super) fn scan(nest: &Nest<'_>, id: StepId, sites: Vec<String>) -> Result<Function> {
    let step = nest.kernel.step(id);
    let Op::Prefix { monoid, axis, exclusive, arg } = &step.op else {
        return Err(Error::bug("a running fold that is none"));
    };
    let along = AxisSet::of(*axis);
    let lines: AxisSet = nest.stores[0].axes.without(along);
    let mut body = Body::new(nest, None, sites);
    let count = nest.count(lines);
    let total = body.index(&count, &[]);
    body.line(format!("const Index thread = (Index)blockIdx.x * {THREADS} + threadIdx.x;"));
    body.line(format!("if (thread >= {total}) return;"));
    let order: Vec<usize> = lines.iter().collect();
    decode(&mut body, nest, &order, "thread", None);
    body.bind(lines);
    let (dtype, held) = (step.dtype, element::held(step.dtype));
    body.line(format!("{held} running = {};", element::constant(dtype, monoid.neutral(dtype))));
    let single = nest.extents[*axis].is(1);
    body.open(if single { AxisSet::EMPTY } else { along });
    let value = body.value(*arg)?;
    let op = match monoid {
        Monoid::Sum => Scalar::Add,
        Monoid::Prod => Scalar::Mul,
        Monoid::Max => Scalar::Max,
        _ => Scalar::Min,
    };
    let next = scalar::apply(op, dtype, &[Code::atom("running"), value]);
    let next = if scalar::may_leave(op, dtype) { expression::wrapped(dtype, next) } else { next };
    body.line(format!("const {held} next = {next};"));
    body.know(id, Code::atom(if *exclusive { "running" } else { "next" }));
    body.store(0, None)?;
    body.line("running = next;");
    let extent = body.index(&nest.extents[*axis].clone(), &[]);
    body.close(&format!("for (Index i{axis} = 0; i{axis} < {extent}; ++i{axis})"));
    let grid = Grid {
        blocks: count.ceildiv(&Dim::int(i64::from(THREADS))),
        threads: THREADS,
        shared: 0,
        least_blocks: None,
        cluster: 1,
    };
    Ok(Function::new(body, grid, "a thread walks along a line".to_owned()))
}
