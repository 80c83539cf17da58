//! Products that gate each other: one, bent by an activation, times the other.

use super::activation;
use super::pattern::Parts;
use crate::graph::Value;
use crate::ops::{Prim, Scalar};

/// The name of what an activation of one product makes of its product with another.
fn gate(activation: &str) -> Option<&'static str> {
    Some(match activation {
        "SiLU" => "SwiGLU",
        "GELU" | "GELU (tanh)" => "GeGLU",
        "ReLU" => "ReGLU",
        "Sigmoid" => "GLU",
        _ => return None,
    })
}

/// Maps that are looked at as one function.
const MOST: usize = 16;

impl Parts<'_, '_> {
    /// Gives gated products their name, with the contractions (and their biases) that nothing else reads.
    pub(super) fn name_gates(&mut self) {
        for exit in (0..self.members.len()).rev() {
            if self.is_free(exit)
                && let Some((name, mut members)) = self.gated(exit)
            {
                members.extend(self.contractions_of(&members));
                members.sort_unstable();
                self.assign(self.recognised(name, &members), members);
            }
        }
    }

    /// The maps that compute `f(x) · y` for an activation `f` and products `x` and `y`.
    fn gated(&self, exit: usize) -> Option<(&'static str, Vec<usize>)> {
        let mut region = vec![exit];
        while region.len() <= MOST && region.iter().all(|k| self.is_function(*k)) {
            let entries = self.entries(&region);
            let (products, others): (Vec<Value>, Vec<Value>) = entries.iter().partition(|v| self.is_product(**v));
            if let [a, b] = products[..]
                && others.iter().all(|v| self.is_bias(*v))
                && let Some(name) =
                    [(a, b), (b, a)].into_iter().find_map(|(x, y)| self.name_of_gate(&region, x, y, &others))
            {
                return Some((name, region));
            }
            let joins = |v: &Value| self.joins(&region, v.node()).filter(|k| self.is_function(*k));
            let Some(next) = entries.iter().rev().find_map(joins) else { break };
            region.push(next);
            region.sort_unstable();
        }
        None
    }

    /// Whether a value is a contraction of this kernel, or a part of one, perhaps with a bias.
    fn is_product(&self, value: Value) -> bool {
        let contracts = |k: usize| matches!(self.prim(k), Prim::Contract(_));
        self.member_behind(value).is_some_and(|k| contracts(k) || self.contraction_below(k).is_some())
    }

    fn member_behind(&self, value: Value) -> Option<usize> {
        self.wiring.base(value).and_then(|node| self.members.binary_search(&node).ok())
    }

    /// The contraction to which a member adds a bias, and nothing else.
    fn contraction_below(&self, k: usize) -> Option<usize> {
        let [a, b] = self.wiring.graph.nodes()[self.members[k]].args() else { return None };
        let Prim::Map(row) = self.prim(k) else { return None };
        let (product, bias) = if self.is_bias(*b) { (*a, *b) } else { (*b, *a) };
        let below = self.member_behind(product).filter(|below| matches!(self.prim(*below), Prim::Contract(_)))?;
        (self.is_free(k) && row.expr.as_call() == Some(Scalar::Add) && self.is_bias(bias)).then_some(below)
    }

    /// Whether a value could be added to every row of a product: one number for every column.
    fn is_bias(&self, value: Value) -> bool {
        let is_row = |node: usize| {
            let dims = self.wiring.graph.nodes()[node].types()[0].shape.dims();
            dims.iter().filter(|dim| !dim.is(1)).count() <= 1
        };
        self.wiring.base(value).is_some_and(|node| self.wiring.is_source(node) && is_row(node))
    }

    /// The name of what two products become, where nothing is added to them.
    fn name_of_gate(&self, region: &[usize], x: Value, y: Value, biases: &[Value]) -> Option<&'static str> {
        let at = |a: f64, b: f64| {
            let zeros = biases.iter().map(|bias| (*bias, 0.0));
            self.evaluate(region, &[(x, a), (y, b)].into_iter().chain(zeros).collect::<Vec<_>>())
        };
        let name = gate(activation::name_of(|a| at(a, 1.0))?)?;
        let is_multiple = |a: f64, b: f64| (at(a, b) - b * at(a, 1.0)).abs() <= 1e-6 * (1.0 + at(a, b).abs());
        [(0.7, -2.0), (-1.1, 3.0), (2.3, 0.5)].iter().all(|(a, b)| is_multiple(*a, *b)).then_some(name)
    }

    /// The contractions behind some members, with weights that are put together for them, read by nothing else.
    fn contractions_of(&self, members: &[usize]) -> Vec<usize> {
        let mut found: Vec<usize> = Vec::new();
        for k in (0..self.members.len()).rev().filter(|k| self.is_free(*k)) {
            let node = self.members[k];
            let is_inside = |reader: &usize| {
                self.members.binary_search(reader).is_ok_and(|k| members.contains(&k) || found.contains(&k))
            };
            let readers = self.wiring.readers(node);
            let is_own = !readers.is_empty() && readers.iter().all(is_inside) && !self.wiring.is_output(node);
            let is_part = matches!(self.prim(k), Prim::Contract(_) | Prim::Concat(_));
            if is_own && (is_part || self.contraction_below(k).is_some()) {
                found.push(k);
            }
        }
        found
    }
}
