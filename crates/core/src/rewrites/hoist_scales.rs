//! Scales behind contractions.

use super::peel::{Action, Factor, Order, Peeled, cast, peel};
use super::scaled_product::Scaled;
use super::seen::Seen;
use super::step::Step;
use super::{Facts, Permit, Rewrite, Site, sites};
use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, replaced};
use crate::graph::{Graph, Value};
use crate::ops::prim::{Contract, Map};
use crate::ops::{Expr, Number, Prim, Scope, Term};
use crate::passes::Tier;
use crate::tensor::{DType, Dim};

pub(super) const REWRITE: Rewrite = Rewrite {
    name: "hoist-scales",
    doc: "Numbers that scale the operands of a contraction scale its result instead, as one number.",
    tier: Tier::Real,
    run,
};

/// In: any graph. Out: no operand of a contraction of two computed tensors is a product with (or a quotient by) a number
/// that is the same everywhere, also behind views and conversions that keep the range, nor a sum of such products (queries that were scaled before
/// they were rotated). So `(q·√s)·(k·√s)`, `(q·s)·k` and `(q·k)·s` have one form. The numbers, each and all together, are within 2⁻²⁰ … 2²⁰ ([`range::may_move`](crate::ops::range::may_move)): one that
/// is not may be what keeps the sums in range, and stays.
///
/// A contraction of a type with a small range (f16) becomes one of f32, its result rounded after scaling: a scale below 1
/// may be what keeps its sums in range. So does one whose result is scaled as it was written.
fn run(graph: &Graph, facts: &Facts, permit: &mut Permit<'_>) -> Result<Option<Graph>> {
    sites(graph, facts, |id| find(graph, facts, id, permit), |rebuild, id, found| apply(graph, rebuild, id, found))
}

/// Where numbers stand.
enum Found {
    /// before a contraction: its operands without them
    Before(Box<[Peeled; 2]>),
    /// behind a contraction of a small range, in a map that does nothing else
    Behind(Scaled),
}

fn find(graph: &Graph, facts: &Facts, id: usize, permit: &mut Permit<'_>) -> Option<Found> {
    match graph.nodes()[id].prim() {
        Prim::Contract(_) => find_before(graph, facts, id, permit).map(|found| Found::Before(Box::new(found))),
        Prim::Map(_) => find_behind(graph, facts, id, permit).map(Found::Behind),
        _ => None,
    }
}

/// Whether a node contracts floats that are both computed.
fn contracts_computed(graph: &Graph, facts: &Facts, id: usize) -> bool {
    let args = graph.nodes()[id].args();
    graph.ty(args[0]).dtype.is_float() && !args.iter().any(|arg| facts.is_constant(arg.node()))
}

fn find_behind(graph: &Graph, facts: &Facts, id: usize, permit: &mut Permit<'_>) -> Option<Scaled> {
    let scaled = Scaled::of(graph, id)?;
    let dtype = scaled.dtype(graph);
    let out = graph.nodes()[id].types()[0].dtype;
    // What others read as it is would be computed twice.
    let is_alone = [scaled.contract, scaled.product.node()].iter().all(|node| *node == id || facts.readers(*node) == 1);
    let is_narrow = with_range(dtype) != dtype && wider(out, dtype) == out;
    if !is_narrow || !is_alone || !contracts_computed(graph, facts, scaled.contract) {
        return None;
    }
    let site = Site {
        rule: REWRITE.name,
        producer: scaled.contract,
        consumer: id,
        flops_saved: Dim::int(0),
        bytes_saved: Dim::int(0),
        is_sure: false,
        what: format!("a sum of {dtype} that is scaled is rounded behind the scale"),
    };
    permit.allow(graph, site).then_some(scaled)
}

/// The operands without their scales.
fn find_before(graph: &Graph, facts: &Facts, id: usize, permit: &mut Permit<'_>) -> Option<[Peeled; 2]> {
    if !contracts_computed(graph, facts, id) {
        return None;
    }
    let [a, b] = [graph.nodes()[id].args()[0], graph.nodes()[id].args()[1]];
    let wanted = |action: Action, seen: &Seen| is_scale(graph, action, seen);
    let found = [a, b].map(|operand| {
        peel(graph, operand, Order { wanted: &wanted, is_small: false, heeds_guards: false, from_sums: true })
    });
    if found.iter().all(|peeled| peeled.factors.is_empty()) {
        return None;
    }
    let out = &graph.nodes()[id].types()[0];
    let scaled: Vec<Value> =
        [a, b].into_iter().zip(&found).filter(|(_, p)| !p.factors.is_empty()).map(|(v, _)| v).collect();
    let site = Site {
        rule: REWRITE.name,
        producer: scaled[0].node(),
        consumer: id,
        flops_saved: scaled.iter().map(|v| graph.ty(*v).shape.count()).sum::<Dim>() - out.shape.count(),
        bytes_saved: (scaled.iter().map(|v| graph.ty(*v).bytes()).sum::<Dim>() - out.bytes()) * 2,
        is_sure: false,
        what: match found.iter().map(|p| p.factors.len()).sum::<usize>() {
            1 => "a number scales the result instead of an operand".to_owned(),
            count => format!("{count} numbers scale the result, as one, instead of operands"),
        },
    };
    let factors = found.iter().flat_map(|p| &p.factors).map(Factor::moved);
    permit.allow_move(graph, site, factors).then_some(found)
}

/// Whether a factor is a number that is the same everywhere, and no special one.
fn is_scale(graph: &Graph, action: Action, seen: &Seen) -> bool {
    let known = |x: f64| x != 0.0 && x.is_finite();
    let number = matches!(action, Action::Times | Action::Over);
    number && seen.step.float(graph).map_or_else(|| seen.step.uniform(graph).is_some(), known)
}

fn apply(graph: &Graph, rebuild: &mut Rebuild<'_>, id: usize, found: &Found) -> Result<Option<Values>> {
    match found {
        Found::Before(operands) => {
            let factors: Vec<(Action, Step)> = operands.iter().flat_map(|p| &p.factors).map(Factor::moved).collect();
            let [a, b] = &**operands;
            let rests = [a.rest.rebuilt(graph, rebuild)?, b.rest.rebuilt(graph, rebuild)?];
            scaled_behind(graph, rebuild, [id, id], rests, &factors)
        }
        Found::Behind(Scaled { contract, action, number, .. }) => {
            let args = graph.nodes()[*contract].args();
            let operands = [rebuild.moved(args[0]), rebuild.moved(args[1])];
            scaled_behind(graph, rebuild, [*contract, id], operands, &[(*action, *number)])
        }
    }
}

/// A contraction of other operands, in a type with range enough, its result scaled, instead of a node.
fn scaled_behind(
    graph: &Graph,
    rebuild: &mut Rebuild<'_>,
    [contract, instead_of]: [usize; 2],
    mut operands: [Value; 2],
    factors: &[(Action, Step)],
) -> Result<Option<Values>> {
    let node = &graph.nodes()[contract];
    let Prim::Contract(row) = node.prim() else { return Ok(None) };
    let wide = with_range(node.types()[0].dtype);
    for operand in &mut operands {
        *operand = cast(rebuild, *operand, wide)?;
    }
    let product = rebuild.add(Contract { accumulator: wider(row.accumulator, wide), ..row.clone() }, &operands)?;
    let expr = Expr::build(&[wide], |scope, x| product_of(graph, scope, x[0], factors));
    let scaled = rebuild.add(Map { expr, shape: node.types()[0].shape.clone() }, &[product])?;
    replaced(cast(rebuild, scaled, graph.nodes()[instead_of].types()[0].dtype)?)
}

/// A term multiplied by all factors, the known ones as one number.
fn product_of<'s>(graph: &Graph, scope: &'s Scope, term: Term<'s>, factors: &[(Action, Step)]) -> Term<'s> {
    let dtype = term.dtype();
    let (mut number, mut count) = (1.0, 0);
    let mut term = term;
    for (action, step) in factors {
        match (step.float(graph), action) {
            (Some(x), Action::Over) => (number, count) = (number / x, count + 1),
            (Some(x), _) => (number, count) = (number * x, count + 1),
            (None, action) => {
                let expr = step.uniform(graph).expect("a factor is a number");
                let factor = expr.inline(scope, &[]).cast(dtype);
                term = if *action == Action::Over { term / factor } else { term * factor };
            }
        }
    }
    if count == 0 {
        return term;
    }
    let least = factors.iter().map(|(_, step)| step.dtype(graph)).max_by(|a, b| a.epsilon().total_cmp(&b.epsilon()));
    let number = if count > 1 { plainest(number, count, least.unwrap_or(dtype)) } else { number };
    term * scope.constant(dtype, Number::new(dtype, number))
}

/// A product of `count` rounded numbers, or the reciprocal root of a whole number where that is as good: √s · √s is s.
fn plainest(product: f64, count: i32, dtype: DType) -> f64 {
    let error = f64::from(count) * dtype.epsilon();
    let square = (product * product).recip();
    let whole = square.round();
    let near = (square / whole - 1.0).abs() <= error;
    // Among large numbers one is always near.
    let telling = whole >= 1.0 && whole * error < 0.5;
    if near && telling { whole.sqrt().recip().copysign(product) } else { product }
}

/// The type in which sums of a type are computed where what keeps them in range comes later: itself, or f32 for f16.
pub(super) fn with_range(dtype: DType) -> DType {
    wider(dtype, DType::BF16) // the shortest type with the range of f32
}

/// The first type, or f32 or f64 if it does not hold all values of the second one.
pub(super) fn wider(a: DType, b: DType) -> DType {
    let holds = |wide: DType, narrow: DType| match (wide.format(), narrow.format()) {
        (Some(w), Some(n)) => w.exponent_bits >= n.exponent_bits && w.mantissa_bits >= n.mantissa_bits,
        _ => wide == narrow,
    };
    [a, b, DType::F32].into_iter().find(|wide| holds(*wide, a) && holds(*wide, b)).unwrap_or(DType::F64)
}
