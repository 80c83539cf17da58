//! Two products that are one: scores of queries that were multiplied in parts, or with keys in parts.

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use super::{Facts, Permit, Rewrite, Site, sites};
use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, replaced};
use crate::graph::{Graph, Value};
use crate::ops::prim::{Concat, Contract, Label, Map, Monoid, View};
use crate::ops::{Expr, ExprNode, Prim, Scalar};
use crate::passes::Tier;
use crate::tensor::{Dim, Shape};

pub(super) const REWRITE: Rewrite = Rewrite {
    name: "join-products",
    doc: "Scores that are two products, summed or side by side, are one product of operands side by side; so are two products with parts of one value.",
    tier: Tier::Real,
    run,
};

/// In: any graph. Out: nothing that a maximum is taken of is a sum of two contractions with one summed axis, or a concat of two along an axis of the result
/// that share their other operand; no sum is of two contractions of parts of one value. All of computed operands, and read by nobody else.
///
/// A matrix of scores that is put together has to be there as a whole; one that is a product can be streamed.
fn run(graph: &Graph, facts: &Facts, permit: &mut Permit<'_>) -> Result<Option<Graph>> {
    let scores = scores(graph, facts);
    sites(
        graph,
        facts,
        |id| find(graph, facts, id, &scores, permit),
        |rebuild, id, found| found.rebuilt(graph, rebuild, id),
    )
}

/// So many nodes behind a maximum are looked at.
const MOST_NODES: usize = 64;

/// The nodes that maxima are computed from, up to contractions and folds.
fn scores(graph: &Graph, facts: &Facts) -> FxHashSet<usize> {
    let mut found = FxHashSet::default();
    for (id, node) in graph.nodes().iter().enumerate().filter(|(id, _)| facts.is_live(*id)) {
        let Prim::Reduce(row) = node.prim() else { continue };
        if row.monoid != Monoid::Max || !graph.ty(Value::new(id, 0)).dtype.is_float() {
            continue;
        }
        let mut todo: SmallVec<[usize; 8]> = SmallVec::from_slice(&[node.args()[0].node()]);
        for _ in 0..MOST_NODES {
            let Some(id) = todo.pop() else { break };
            let node = &graph.nodes()[id];
            let is_passed = matches!(node.prim(), Prim::Map(_) | Prim::View(_) | Prim::Concat(_));
            if is_passed && found.insert(id) {
                todo.extend(node.args().iter().map(|arg| arg.node()));
            }
        }
    }
    found
}

/// How the two products were put together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Joint {
    Sum,
    /// side by side along an axis of the result
    Side(usize),
}

struct Found {
    joint: Joint,
    products: [Product; 2],
    /// what either product goes through
    behind: Option<Map>,
}

/// A contraction with the labels of the first of two.
struct Product {
    node: usize,
    row: Contract,
    /// the operands, the one with the same own axes first
    operands: [(Value, Vec<Label>); 2],
}

fn find(graph: &Graph, facts: &Facts, id: usize, scores: &FxHashSet<usize>, permit: &mut Permit<'_>) -> Option<Found> {
    let node = &graph.nodes()[id];
    let joint = match node.prim() {
        Prim::Map(row) if row.expr.as_call() == Some(Scalar::Add) => Joint::Sum,
        Prim::Concat(row) => Joint::Side(row.axis),
        _ => return None,
    };
    let &[a, b] = node.args() else { return None };
    if a == b || !graph.ty(a).dtype.is_float() {
        return None;
    }
    let (behind, [a, b]) = without_scale(graph, facts, [a, b], joint)?;
    let products = products(graph, facts, [a, b])?;
    let is_part = || (0..2).any(|k| parts_of_one(graph, products.each_ref().map(|p| p.operands[k].0)));
    let wanted = match joint {
        Joint::Sum => scores.contains(&id) || is_part(),
        Joint::Side(axis) => scores.contains(&id) && shares_operand(&products, axis),
    };
    let site = Site {
        rule: REWRITE.name,
        producer: a.node(),
        consumer: id,
        flops_saved: Dim::int(0),
        bytes_saved: Dim::int(0),
        is_sure: false,
        what: match joint {
            Joint::Sum => "two products that are added are one with longer sums".to_owned(),
            Joint::Side(_) => "two products side by side are one with more columns".to_owned(),
        },
    };
    (wanted && permit.allow(graph, site)).then_some(Found { joint, products, behind })
}

/// The values themselves, or what both are the same function of; a sum passes multiples only.
fn without_scale(graph: &Graph, facts: &Facts, values: [Value; 2], joint: Joint) -> Option<(Option<Map>, [Value; 2])> {
    let maps = values.map(|value| match graph.node_of(value).prim() {
        Prim::Map(row) if facts.readers(value.node()) == 1 => Some((row, graph.node_of(value).args())),
        _ => None,
    });
    let [Some((first, &[a])), Some((second, &[b]))] = maps else { return Some((None, values)) };
    let plain = |row: &Map| !row.expr.has_coordinates();
    let is_multiple = |expr: &Expr| {
        matches!(expr.nodes(), [(ExprNode::Arg(0), _), (ExprNode::Const(_), _), (ExprNode::Apply(Scalar::Mul, _), _)])
    };
    let fits = first.expr == second.expr && plain(first) && (joint != Joint::Sum || is_multiple(&first.expr));
    fits.then(|| (Some(first.clone()), [a, b]))
}

/// Two contractions that nobody else reads, of computed operands, with labels of the first.
fn products(graph: &Graph, facts: &Facts, values: [Value; 2]) -> Option<[Product; 2]> {
    let contraction = |value: Value| {
        let node = graph.node_of(value);
        let Prim::Contract(row) = node.prim() else { return None };
        let is_own = facts.readers(value.node()) == 1 && !node.args().iter().any(|arg| facts.is_constant(arg.node()));
        is_own.then(|| (row.clone(), [node.args()[0], node.args()[1]]))
    };
    let ((first, [a, b]), (second, [c, d])) = (contraction(values[0])?, contraction(values[1])?);
    let (&[summed], &[other]) = (first.summed().as_slice(), second.summed().as_slice()) else { return None };
    let of_first = |label: &Label| {
        let place = second.out.iter().position(|l| l == label);
        if *label == other { Some(summed) } else { place.and_then(|k| first.out.get(k).copied()) }
    };
    let renamed = |labels: &[Label]| labels.iter().map(of_first).collect::<Option<Vec<Label>>>();
    let (own, theirs) = ([first.a.clone(), first.b.clone()], [renamed(&second.a)?, renamed(&second.b)?]);
    let alone = |labels: &[Vec<Label>; 2], k: usize| -> Vec<Label> {
        labels[k].iter().copied().filter(|l| !labels[1 - k].contains(l)).collect()
    };
    let meets = |k: usize, j: usize| alone(&own, k).iter().any(|l| alone(&theirs, j).contains(l));
    let (straight, crossed) = (meets(0, 0) || meets(1, 1), meets(0, 1) || meets(1, 0));
    if first.accumulator != second.accumulator || !(straight || crossed) {
        return None;
    }
    let [x, y] = theirs;
    let theirs = if straight { [(c, x), (d, y)] } else { [(d, y), (c, x)] };
    let [x, y] = own;
    Some([
        Product { node: values[0].node(), row: first, operands: [(a, x), (b, y)] },
        Product { node: values[1].node(), row: second, operands: theirs },
    ])
}

/// Whether two values are seen through views of one.
fn parts_of_one(graph: &Graph, values: [Value; 2]) -> bool {
    let seen = values.map(|value| match graph.node_of(value).prim() {
        Prim::View(_) => Some(graph.node_of(value).args()[0]),
        _ => None,
    });
    seen[0].is_some() && seen[0] == seen[1] && values[0] != values[1]
}

/// Whether one operand of two contractions is the same, and the other is what has an axis of the result.
fn shares_operand([first, second]: &[Product; 2], axis: usize) -> bool {
    let along = |product: &Product, k: usize| product.operands[k].1.contains(&first.row.out[axis]);
    (0..2).any(|k| {
        first.operands[k] == second.operands[k] && !along(first, k) && along(first, 1 - k) && along(second, 1 - k)
    })
}

impl Found {
    fn rebuilt(&self, graph: &Graph, rebuild: &mut Rebuild<'_>, id: usize) -> Result<Option<Values>> {
        let row = &self.products[0].row;
        let &[summed] = row.summed().as_slice() else { return Ok(None) };
        let along = match self.joint {
            Joint::Sum => summed,
            Joint::Side(axis) => row.out[axis],
        };
        let mut operands: SmallVec<[(Value, Vec<Label>); 2]> = SmallVec::new();
        for k in 0..2 {
            operands.push(self.operand(graph, rebuild, k, along)?);
        }
        let (a, b) = (operands[0].clone(), operands[1].clone());
        let spec = Contract { a: a.1, b: b.1, out: row.out.clone(), accumulator: row.accumulator };
        let product = rebuild.add(spec, &[a.0, b.0])?;
        let shape = graph.nodes()[id].types()[0].shape.clone();
        match &self.behind {
            Some(map) => replaced(rebuild.add(Map { expr: map.expr.clone(), shape }, &[product])?),
            None => replaced(product),
        }
    }

    /// Both products' operand `k` side by side along a label; the one that they share, where it has no such axis.
    fn operand(&self, graph: &Graph, rebuild: &mut Rebuild<'_>, k: usize, along: Label) -> Result<(Value, Vec<Label>)> {
        let [first, second] = self.products.each_ref().map(|p| &p.operands[k]);
        if !first.1.contains(&along) {
            return Ok((rebuild.moved(first.0), first.1.clone()));
        }
        let mut labels = first.1.clone();
        labels.extend(second.1.iter().copied().filter(|l| !first.1.contains(l)));
        let axis = labels.iter().position(|l| *l == along).expect("the first operand has it");
        let mut parts: SmallVec<[Value; 2]> = SmallVec::new();
        for (product, (value, own)) in self.products.iter().zip([first, second]) {
            let extent = |label: &Label| self.extent(graph, product, own, *value, *label);
            let shape: Shape = labels.iter().map(extent).collect();
            let place = |label: &Label| labels.iter().position(|l| l == label).map_or(Dim::int(0), Dim::axis);
            let view = View::new(shape, own.iter().map(place).collect());
            let value = rebuild.moved(*value);
            let identity = view.is_identity(&rebuild.graph().ty(value).shape);
            parts.push(if identity { value } else { rebuild.add(view, &[value])? });
        }
        Ok((rebuild.add(Concat { axis }, &parts)?, labels))
    }

    /// The size of a label in an operand, or in the result where the operand is the same along it.
    fn extent(&self, graph: &Graph, product: &Product, own: &[Label], value: Value, label: Label) -> Dim {
        match own.iter().position(|l| *l == label) {
            Some(axis) => graph.ty(value).shape[axis].clone(),
            None => {
                let axis = self.products[0].row.out.iter().position(|l| *l == label).expect("it is no summed one");
                graph.nodes()[product.node].types()[0].shape[axis].clone()
            }
        }
    }
}
