//! Products that gate each other: one, bent by an activation, times the other.

use super::activation;
use super::pattern::Parts;
use crate::graph::Value;
use crate::ops::Prim;

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
    /// Gives gated products their name, with the contractions that nothing else reads.
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
            if let &[a, b] = entries.as_slice()
                && self.is_product(a)
                && self.is_product(b)
                && let Some(name) = [(a, b), (b, a)].into_iter().find_map(|(x, y)| self.name_of_gate(&region, x, y))
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

    /// Whether a value is a contraction of this kernel, or a part of one.
    fn is_product(&self, value: Value) -> bool {
        let base = self.wiring.base(value).and_then(|node| self.members.binary_search(&node).ok());
        base.is_some_and(|k| matches!(self.prim(k), Prim::Contract(_)))
    }

    fn name_of_gate(&self, region: &[usize], x: Value, y: Value) -> Option<&'static str> {
        let at = |a: f64, b: f64| self.evaluate(region, &[(x, a), (y, b)]);
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
            if is_own && matches!(self.prim(k), Prim::Contract(_) | Prim::Concat(_)) {
                found.push(k);
            }
        }
        found
    }
}
