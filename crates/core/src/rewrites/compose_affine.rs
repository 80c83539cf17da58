//! Scales and shifts by constants as one scale and one shift.

use rustc_hash::FxHashMap;

use super::constants::{Constant, constant_axes};
use super::facts::Axes;
use super::peel::{Action, call};
use super::scale_weights::Weights;
use super::step::{Kind, Step};
use super::{Facts, Permit, Rewrite, Site, rebuilt_at};
use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, replaced};
use crate::graph::{Graph, Value};
use crate::ops::{Prim, Scalar};
use crate::passes::Tier;
use crate::tensor::Dim;

pub(super) const REWRITE: Rewrite = Rewrite {
    name: "compose-affine",
    doc: "Sums and products with constants that vary along axes, one after the other, become one product and one sum.",
    tier: Tier::Real,
    run,
};

/// In: any graph. Out: no chain of sums, differences, products and quotients of one value with constants, read by nobody else in
/// between, is longer than `x · a + b`, where one of the constants varies along an axis (numbers are left to the algebra
/// of expressions). Where `x` is a contraction with weights that could take the factor, `(x + b) · a` becomes `x · a + b · a`. Where
/// such a chain is composed and nothing but taken away from something, its constants take the sign: a sum is the form of both.
///
/// A BatchNorm, `(x − μ) / σ · γ + β`, is thus `x · (γ/σ) + (β − μ·γ/σ)`.
fn run(graph: &Graph, facts: &Facts, permit: &mut Permit<'_>) -> Result<Option<Graph>> {
    let mut found = FxHashMap::default();
    let mut inside = vec![false; graph.nodes().len()];
    // From the end, so that a chain is found as a whole before its parts.
    for id in (0..graph.nodes().len()).rev().filter(|id| facts.is_live(*id)) {
        facts.budget.check()?;
        if let Some(chain) = (!inside[id]).then(|| find(graph, facts, id)).flatten() {
            chain.passed.iter().for_each(|node| inside[*node] = true);
            found.insert(id, chain);
        }
    }
    let mut ids: Vec<usize> = found.keys().copied().collect();
    ids.sort_unstable();
    for id in ids {
        let site = site(graph, facts, id, &found[&id]);
        let factors: Vec<_> = found[&id].links.iter().filter_map(|link| link.factor()).collect();
        if !permit.allow_move(graph, site, factors) {
            found.remove(&id);
        }
    }
    rebuilt_at(graph, facts, &found, |rebuild, id, chain| apply(graph, facts, rebuild, id, chain))
}

/// One link of a chain around a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// x + c
    Plus(Step),
    /// x − c
    Minus(Step),
    /// c − x
    From(Step),
    /// x · c
    Times(Step),
    /// x / c
    Over(Step),
}

struct Chain {
    /// what the chain is taken away from
    minuend: Option<Step>,
    /// the value in the middle
    core: Step,
    /// from the inside to the outside
    links: Vec<Link>,
    /// the nodes between the whole and the value in the middle
    passed: Vec<usize>,
}

impl Chain {
    /// Links of the chain that it becomes. (One that is taken away is scaled: by −1 at least.)
    fn composed_links(&self) -> usize {
        let scales = self.minuend.is_some() || self.links.iter().any(|l| l.is_product() || matches!(l, Link::From(_)));
        let shifts = self.links.iter().any(|l| !l.is_product());
        usize::from(scales) + usize::from(shifts)
    }
}

impl Link {
    fn constant(self) -> Step {
        match self {
            Link::Plus(c) | Link::Minus(c) | Link::From(c) | Link::Times(c) | Link::Over(c) => c,
        }
    }

    /// What it multiplies by, and how.
    fn factor(self) -> Option<(Action, Step)> {
        match self {
            Link::Times(c) => Some((Action::Times, c)),
            Link::Over(c) => Some((Action::Over, c)),
            Link::Plus(_) | Link::Minus(_) | Link::From(_) => None,
        }
    }

    fn is_product(self) -> bool {
        matches!(self, Link::Times(_) | Link::Over(_))
    }
}

fn find(graph: &Graph, facts: &Facts, id: usize) -> Option<Chain> {
    let node = &graph.nodes()[id];
    if !matches!(node.prim(), Prim::Map(_)) || !node.types()[0].dtype.is_float() {
        return None;
    }
    let end = Step::of(graph, Value::new(id, 0));
    let chain = match taken_away(graph, facts, end) {
        Some([minuend, end]) => {
            let mut chain = Chain { minuend: Some(minuend), ..chain(graph, facts, end) };
            chain.passed.extend(Some(end.node()).filter(|node| *node != id));
            chain
        }
        None => chain(graph, facts, end),
    };
    let axes = |link: &Link| constant_axes(graph, facts, link.constant()).unwrap_or(0);
    if chain.links.iter().all(|link| axes(link) == 0) {
        return None;
    }
    let shorter = chain.links.len() > chain.composed_links();
    let into_weights = match chain.links.as_slice() {
        [shift, scale] if !shift.is_product() && scale.is_product() => {
            Weights::of(graph, facts, chain.core, axes(scale)).is_some()
        }
        _ => false,
    };
    (shorter || into_weights).then_some(chain)
}

/// A difference of two things that both vary, the second of which nobody else reads.
fn taken_away(graph: &Graph, facts: &Facts, step: Step) -> Option<[Step; 2]> {
    let [a, b] = step.call(graph, Scalar::Sub)?;
    let is_own = b.node() == step.node() || facts.readers(b.node()) == 1;
    (is_own && [a, b].iter().all(|s| constant_axes(graph, facts, *s).is_none())).then_some([a, b])
}

/// Chains of more links are composed piece by piece, one round after another.
const MOST_LINKS: usize = 64;

/// The longest chain that ends in a step.
fn chain(graph: &Graph, facts: &Facts, end: Step) -> Chain {
    let (mut core, mut links, mut passed) = (end, Vec::new(), Vec::new());
    while let Some((inner, link)) = link(graph, facts, core) {
        let other = inner.node() != core.node();
        if core.node() != end.node() {
            passed.push(core.node());
        }
        links.push(link);
        core = inner;
        if other && facts.readers(inner.node()) > 1 || links.len() == MOST_LINKS {
            break;
        }
    }
    links.reverse();
    passed.dedup();
    Chain { minuend: None, core, links, passed }
}

/// What a step does to what it is computed from, if that is one thing and the other operand is a constant.
fn link(graph: &Graph, facts: &Facts, step: Step) -> Option<(Step, Link)> {
    let Kind::Call(op, operands) = step.kind(graph) else { return None };
    let &[a, b] = operands.as_slice() else { return None };
    let constant = |step: Step| constant_axes(graph, facts, step).is_some();
    match (op, constant(a), constant(b)) {
        (Scalar::Add, false, true) => Some((a, Link::Plus(b))),
        (Scalar::Add, true, false) => Some((b, Link::Plus(a))),
        (Scalar::Sub, false, true) => Some((a, Link::Minus(b))),
        (Scalar::Sub, true, false) => Some((b, Link::From(a))),
        (Scalar::Mul, false, true) => Some((a, Link::Times(b))),
        (Scalar::Mul, true, false) => Some((b, Link::Times(a))),
        (Scalar::Div, false, true) => Some((a, Link::Over(b))),
        _ => None,
    }
}

fn site(graph: &Graph, facts: &Facts, id: usize, chain: &Chain) -> Site {
    let ty = &graph.nodes()[id].types()[0];
    let saved = (chain.links.len() - chain.composed_links()) as i64;
    Site {
        rule: REWRITE.name,
        producer: chain.core.node(),
        consumer: id,
        flops_saved: ty.shape.count() * saved,
        bytes_saved: ty.bytes() * (2 * saved),
        is_sure: only_reads_less(graph, facts, chain),
        what: format!("{} sums and products with constants become one product and one sum", chain.links.len()),
    }
}

/// Whether one table takes the place of several, one of which is as large and is read by nobody else.
fn only_reads_less(graph: &Graph, facts: &Facts, chain: &Chain) -> bool {
    let axes = |link: &Link| constant_axes(graph, facts, link.constant()).unwrap_or(Axes::MAX);
    let varying = chain.links.iter().fold(0, |all, link| all | axes(link));
    let sizes = chain.core.shape(graph).dims().iter().enumerate().filter(|(axis, _)| varying >> axis & 1 == 1);
    let Some(count) = sizes.map(|(_, size)| size.clone()).product::<Dim>().as_int() else { return false };
    let is_as_large = |link: &Link| own_table(graph, facts, link.constant()).is_some_and(|elements| elements >= count);
    chain.composed_links() == 1 && chain.links.iter().any(is_as_large)
}

/// How many elements the table has that a constant is, behind views, if nobody else reads it.
fn own_table(graph: &Graph, facts: &Facts, constant: Step) -> Option<i64> {
    let Kind::Value(value) = constant.kind(graph) else { return None };
    let mut id = value.node();
    while facts.readers(id) == 1 {
        let node = &graph.nodes()[id];
        match node.prim() {
            Prim::View(_) => id = node.args()[0].node(),
            _ => return node.types()[0].shape.count().as_int(),
        }
    }
    None
}

fn apply(graph: &Graph, facts: &Facts, rebuild: &mut Rebuild<'_>, id: usize, chain: &Chain) -> Result<Option<Values>> {
    let (mut scale, mut shift) = (Constant::One, Constant::Zero);
    for link in &chain.links {
        let c = Constant::Step(link.constant());
        (scale, shift) = match link {
            Link::Plus(_) => (scale, shift.plus(c)),
            Link::Minus(_) => (scale, shift.minus(c)),
            Link::From(_) => (Constant::Zero.minus(scale), c.minus(shift)),
            Link::Times(_) => (scale.times(c.clone()), shift.times(c)),
            Link::Over(_) => (scale.over(c.clone()), shift.over(c)),
        };
    }
    if chain.minuend.is_some() {
        (scale, shift) = (Constant::Zero.minus(scale), Constant::Zero.minus(shift));
    }
    let ty = graph.nodes()[id].types()[0].clone();
    let mut value = chain.core.rebuilt(graph, rebuild)?;
    for (constant, op) in [(scale, Scalar::Mul), (shift, Scalar::Add)] {
        if !matches!(constant, Constant::One | Constant::Zero) {
            let constant = constant.rebuilt(graph, facts, rebuild, &ty.shape, ty.dtype)?;
            value = call(rebuild, op, &[value, constant])?;
        }
    }
    if let Some(minuend) = chain.minuend {
        let minuend = minuend.rebuilt(graph, rebuild)?;
        value = call(rebuild, Scalar::Add, &[minuend, value])?;
    }
    replaced(value)
}
