//! Arithmetic that can be said with less.
//!
//! Rules are rows of a table and see one step of an expression with everything behind it, also behind the borders of
//! maps: `neg` of a value that another map computes as `neg x` is `x`. What a rule returns is cut at values that the
//! graph has, so that nothing is computed twice.

mod bits;
mod choices;
mod exponentials;
mod folds;
mod rules;
mod sign;
mod variance;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

pub(super) use bits::{mask_keeps, with_constant};
pub use rules::{RULES, Rule, Tier};
pub(crate) use rules::{Step as RuleStep, plainer};

use super::{Context, Numerics, Pass};
use crate::error::{Error, Result};
use crate::graph::rewrite::{Rebuild, Values, replaced, rewrite};
use crate::graph::{Graph, Value};
use crate::ops::prim::{Map, View};
use crate::ops::{Expr, ExprNode, Prim, Scalar, Scope, Term, is_kept};
use crate::tensor::{Dim, Ranges, Symbol};

pub(super) const PASS: Pass = Pass {
    name: "simplify-algebra",
    doc: "Steps of expressions that can be said with less are, by a table of exact and real rules.",
    run,
};

/// In: any graph. Out: no rule of [`RULES`] that the numerics allow applies to a step of a map, seen together with the
/// maps behind it up to a small depth; maps that return an operand as it is are gone.
fn run(graph: &Graph, context: &Context) -> Result<Option<Graph>> {
    let (mut after, mut again) = once(graph, context)?;
    // What is made of folds may be said with less, too.
    while let (Some(last), true) = (&after, again) {
        let (next, more) = once(last, context)?;
        (after, again) = (next.or(after), more);
    }
    Ok(after)
}

/// The graph with every node looked at once, and whether folds were made into others.
fn once(graph: &Graph, context: &Context) -> Result<(Option<Graph>, bool)> {
    let mut again = false;
    let is_real = context.numerics != Numerics::Strict;
    let after = rewrite(graph, &context.budget, |rebuild, node, args| {
        let plainer = match node.prim() {
            Prim::Map(row) => {
                if let Some(values) = with_folds(rebuild, row, args, is_real)? {
                    again = true;
                    return Ok(Some(values));
                }
                if let Some(values) = multiply_by_reciprocal(rebuild, row, args, context)? {
                    return Ok(Some(values));
                }
                let simple = simplify(rebuild, row, args, context)?;
                again |= simple.as_ref().is_some_and(|values| is_power(rebuild.graph(), values[0]));
                return Ok(simple);
            }
            Prim::Reduce(row) => folds::plainer(rebuild, row, args[0], is_real)?,
            _ => None,
        };
        again |= plainer.is_some();
        Ok(plainer)
    })?;
    Ok((after, again))
}

/// Whether a value is a power of a number: what is made of folds begins with it.
fn is_power(graph: &Graph, value: Value) -> bool {
    let Prim::Map(row) = graph.node_of(value).prim() else { return false };
    matches!(row.expr.nodes().last(), Some((ExprNode::Apply(Scalar::Exp2, _), _)))
}

/// What a map of numbers of rows is, seen together with the folds behind it.
fn with_folds(rebuild: &mut Rebuild<'_>, row: &Map, args: &[Value], is_real: bool) -> Result<Option<Values>> {
    if let Some(values) = folds::counted(rebuild, row, args)? {
        return Ok(Some(values));
    }
    if !is_real {
        return Ok(None);
    }
    if let Some(values) = variance::centred(rebuild, row, args)? {
        return Ok(Some(values));
    }
    if let Some(values) = exponentials::shift_once(rebuild, row, args)? {
        return Ok(Some(values));
    }
    match exponentials::divide_by_sum(rebuild, row, args)? {
        Some(values) => Ok(Some(values)),
        None => exponentials::scale_before_maximum(rebuild, row, args),
    }
}

/// How many maps behind a map are looked at in a line, and how many steps in all.
const MOST_DEPTH: usize = 5;
const MOST_STEPS: usize = 64;

/// A rule may fire this often on one step; each makes it plainer, so that few do.
const MOST_FIRINGS: usize = 32;

fn simplify(rebuild: &mut Rebuild<'_>, row: &Map, args: &[Value], context: &Context) -> Result<Option<Values>> {
    let scope = Scope::default();
    let mut site =
        Site { graph: rebuild.graph(), scope: &scope, terms: FxHashMap::default(), values: FxHashMap::default() };
    let operands: SmallVec<[Term<'_>; 3]> = args.iter().map(|a| site.term(*a, MOST_DEPTH)).collect();
    let nonnegative = if asks_for_sign(row) { site.nonnegative() } else { FxHashSet::default() };
    let mut fired = false;
    let mut terms: Vec<Term<'_>> = Vec::with_capacity(row.expr.nodes().len());
    for (node, dtype) in row.expr.nodes() {
        let inputs: SmallVec<[Term<'_>; 3]> = node.operands().iter().map(|o| terms[*o as usize]).collect();
        let mut term = match node {
            ExprNode::Arg(k) => operands[*k as usize],
            _ => scope.step(node, *dtype, &inputs),
        };
        if !matches!(node, ExprNode::Arg(_)) {
            let numerics = if is_kept(row.expr.nodes(), terms.len()) { Numerics::Strict } else { context.numerics };
            fired |= settle(&mut term, row, &scope, &nonnegative, numerics)?;
        }
        terms.push(term);
    }
    let root = *terms.last().expect("an expression has a result");
    if let Some(value) = site.values.get(&root.place()) {
        // Also without a rule: the expression is one of its arguments.
        return replaced(*value);
    }
    if !fired {
        return Ok(None);
    }
    let (leaves, args) = site.cut(root);
    replaced(rebuild.add(Map { expr: Expr::of(root, &leaves), shape: row.shape.clone() }, &args)?)
}

/// Applies rules to a step until none fires; whether one did.
fn settle<'s>(
    term: &mut Term<'s>,
    row: &Map,
    scope: &'s Scope,
    nonnegative: &FxHashSet<u32>,
    numerics: Numerics,
) -> Result<bool> {
    let ranges = Ranges::of(row.shape.dims());
    for firing in 0..MOST_FIRINGS {
        let step = rules::Step { scope, term: *term, ranges, nonnegative };
        let Some((rule, new)) = plainer(&step, |tier| tier.is_allowed(numerics)) else {
            return Ok(firing > 0);
        };
        if new.dtype() != term.dtype() {
            let (old, new) = (term.dtype(), new.dtype());
            return Err(Error::bug(format!("the rule {} makes a {new} of a {old}", rule.name)));
        }
        *term = new;
    }
    Ok(true)
}

/// Whether an expression raises something to a power, bounds it, or takes its magnitude.
fn asks_for_sign(row: &Map) -> bool {
    let asks = |node: &ExprNode| matches!(node, ExprNode::Apply(Scalar::Pow | Scalar::Max | Scalar::Abs, _));
    row.expr.nodes().iter().any(|(node, _)| asks(node))
}

/// The terms that stand for values of the graph.
struct Site<'g, 's> {
    graph: &'g Graph,
    scope: &'s Scope,
    terms: FxHashMap<Value, Term<'s>>,
    values: FxHashMap<u32, Value>,
}

impl<'s> Site<'_, 's> {
    /// What a value is: the expression of the map that makes it, or an argument where one looks no further.
    fn term(&mut self, value: Value, depth: usize) -> Term<'s> {
        if let Some(term) = self.terms.get(&value) {
            return *term;
        }
        let node = self.graph.node_of(value);
        let term = match node.prim() {
            Prim::Map(row) if depth > 0 && self.terms.len() + row.expr.nodes().len() <= MOST_STEPS => {
                let args: SmallVec<[Term<'s>; 3]> = node.args().iter().map(|a| self.term(*a, depth - 1)).collect();
                row.expr.inline(self.scope, &args)
            }
            _ => self.scope.argument(self.terms.len(), self.graph.ty(value).dtype),
        };
        self.terms.insert(value, term);
        self.values.entry(term.place()).or_insert(value);
        term
    }

    /// The arguments that are surely not negative.
    fn nonnegative(&self) -> FxHashSet<u32> {
        let argument = |(value, term): (&Value, &Term<'s>)| match term.node() {
            ExprNode::Arg(k) => sign::is_nonnegative(self.graph, *value).then_some(k),
            _ => None,
        };
        self.terms.iter().filter_map(argument).collect()
    }

    /// The values nearest to a term that it is computed from, in the order in which a walk from the left meets them.
    fn cut(&self, root: Term<'s>) -> (Vec<Term<'s>>, Vec<Value>) {
        let (mut leaves, mut values) = (Vec::new(), Vec::new());
        let mut seen = FxHashSet::default();
        let mut todo = vec![root];
        while let Some(term) = todo.pop() {
            if !seen.insert(term.place()) {
                continue;
            }
            match self.values.get(&term.place()) {
                Some(value) if term.as_const().is_none() => {
                    leaves.push(term);
                    values.push(*value);
                }
                _ => todo.extend(term.operands().into_iter().rev()),
            }
        }
        (leaves, values)
    }
}

/// `x / y` with `y` repeated along axes is `x · (1 / y)` with the reciprocal repeated: one division for many. A square root
/// has a reciprocal that cannot overflow; other divisors are left alone unless numerics are fast.
fn multiply_by_reciprocal(
    rebuild: &mut Rebuild<'_>,
    row: &Map,
    args: &[Value],
    context: &Context,
) -> Result<Option<Values>> {
    if context.numerics == Numerics::Strict {
        return Ok(None);
    }
    let mut args: SmallVec<[Value; 3]> = args.into();
    let mut expr = None;
    for (k, arg) in args.iter_mut().enumerate() {
        let node = rebuild.graph().node_of(*arg);
        let Prim::View(view) = node.prim() else { continue };
        let (view, small) = (view.clone(), node.args()[0]);
        let safe = context.numerics == Numerics::Fast || is_root(rebuild.graph(), small);
        if !safe || !repeats(&view) || !rebuild.graph().ty(small).dtype.is_float() {
            continue;
        }
        let Some(product) = with_reciprocal(expr.as_ref().unwrap_or(&row.expr), k) else { continue };
        let ty = rebuild.graph().ty(small).clone();
        let inverse = Expr::build(&[ty.dtype], |scope, y| scope.one(y[0]) / y[0]);
        let inverse = rebuild.add(Map { expr: inverse, shape: ty.shape }, &[small])?;
        *arg = rebuild.add(view, &[inverse])?;
        expr = Some(product);
    }
    let Some(expr) = expr else { return Ok(None) };
    replaced(rebuild.add(Map { expr, shape: row.shape.clone() }, &args)?)
}

/// The operands of a map that is one function of floats.
fn called<'a>(row: &Map, args: &'a [Value], op: Scalar) -> Option<&'a [Value]> {
    (row.expr.as_call() == Some(op) && row.expr.dtype().is_float()).then_some(args)
}

/// Whether a value is a square root.
fn is_root(graph: &Graph, value: Value) -> bool {
    let Prim::Map(row) = graph.node_of(value).prim() else { return false };
    matches!(row.expr.nodes().last(), Some((ExprNode::Apply(Scalar::Sqrt, _), _)))
}

/// Whether a view without guards repeats elements along an axis of its result.
fn repeats(view: &View) -> bool {
    let unused = |axis: usize| {
        let is_axis = |s: &Symbol| *s == Symbol::Axis(axis as u8);
        !view.shape[axis].is(1) && !view.map.iter().any(|d: &Dim| d.mentions(is_axis))
    };
    view.guard.is_empty() && (0..view.shape.rank()).any(unused)
}

/// The expression with divisions by argument `k` turned into products, given that it is used for nothing else.
fn with_reciprocal(expr: &Expr, k: usize) -> Option<Expr> {
    let nodes = expr.nodes();
    let is_arg = |id: u32| nodes[id as usize].0 == ExprNode::Arg(k as u32);
    let mut divisions = 0;
    for (place, (node, _)) in nodes.iter().enumerate() {
        let is_free = !is_kept(nodes, place);
        match node {
            ExprNode::Apply(Scalar::Div, operands) if is_free && is_arg(operands[1]) && !is_arg(operands[0]) => {
                divisions += 1
            }
            other if other.operands().iter().any(|o| is_arg(*o)) => return None,
            _ => {}
        }
    }
    if divisions == 0 {
        return None;
    }
    Some(Expr::build(expr.args(), |scope, args| {
        let mut terms: Vec<Term<'_>> = Vec::with_capacity(nodes.len());
        for (node, dtype) in nodes {
            let inputs: SmallVec<[Term<'_>; 3]> = node.operands().iter().map(|o| terms[*o as usize]).collect();
            terms.push(match node {
                ExprNode::Arg(k) => args[*k as usize],
                ExprNode::Apply(Scalar::Div, operands) if is_arg(operands[1]) => inputs[0] * inputs[1],
                _ => scope.step(node, *dtype, &inputs),
            });
        }
        *terms.last().expect("an expression has a result")
    }))
}

#[cfg(test)]
mod tests;
