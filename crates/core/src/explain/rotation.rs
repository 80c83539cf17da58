//! Rotations by position, however they were written: a sum of two products of which each reads one tensor, at two places.

use super::pattern::{Parts, Word};
use crate::graph::Value;
use crate::ops::prim::{View, identity_map};
use crate::ops::{ExprNode, Prim, Scalar};
use crate::tensor::{Dim, Symbol};

/// A factor of a product: elements of a value, at coordinates of the sum.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Factor {
    source: Value,
    map: Vec<Dim>,
}

/// The products that a value is the sum of; of more than this there is no rotation.
const MOST_PRODUCTS: usize = 2;

/// Maps behind each other that are looked at.
const MOST_DEPTH: usize = 8;

impl Parts<'_, '_> {
    /// Gives what turns vectors by position its name.
    pub(super) fn name_rotations(&mut self) {
        for exit in (0..self.members.len()).rev() {
            if !self.is_free(exit) || !matches!(self.prim(exit), Prim::Map(_)) {
                continue;
            }
            let mut region = Vec::new();
            let products = self.products(self.members[exit], MOST_DEPTH, &mut region);
            let Some(turned) = products.and_then(|products| turned(&products, self.rank(exit))) else { continue };
            region.sort_unstable();
            let region = self.with_tables(region, turned.node());
            // Its tables may stand before what it turns.
            let word = Word { at: Some(exit), ..self.recognised("RoPE", &region) };
            self.assign(word, region);
        }
    }

    fn rank(&self, k: usize) -> usize {
        self.wiring.graph.nodes()[self.members[k]].types()[0].shape.rank()
    }

    /// The products that a map is a sum of, with the members that compute them.
    fn products(&self, node: usize, depth: usize, region: &mut Vec<usize>) -> Option<Vec<Vec<Factor>>> {
        let k = self.members.binary_search(&node).ok().filter(|k| self.is_free(*k))?;
        let node = &self.wiring.graph.nodes()[node];
        let Prim::Map(row) = node.prim() else { return None };
        region.push(k);
        let mut found: Vec<Vec<Vec<Factor>>> = Vec::with_capacity(row.expr.nodes().len());
        for (step, _) in row.expr.nodes() {
            let of = |o: &u32| found[*o as usize].clone();
            let is_number = |o: &u32| matches!(found[*o as usize].as_slice(), [product] if product.is_empty());
            let products = match step {
                ExprNode::Arg(arg) => self.argument(node.args()[*arg as usize], depth, region)?,
                ExprNode::Apply(_, operands) if operands.iter().all(is_number) => vec![Vec::new()],
                ExprNode::Apply(Scalar::Add | Scalar::Sub, operands) => operands.iter().flat_map(of).collect(),
                ExprNode::Apply(Scalar::Mul, operands) => {
                    let (a, b) = (of(&operands[0]), of(&operands[1]));
                    a.iter().flat_map(|x| b.iter().map(|y| [x.as_slice(), y.as_slice()].concat())).collect()
                }
                // A sign that depends on the place, or the conditions that choose it.
                ExprNode::Apply(Scalar::Select, operands) => {
                    let (yes, no) = (of(&operands[1]), of(&operands[2]));
                    if yes == no { yes } else { return None }
                }
                ExprNode::Apply(Scalar::Neg, operands) => of(&operands[0]),
                ExprNode::Cast(x) => of(x),
                ExprNode::Const(_) | ExprNode::Coord(_) | ExprNode::Size(_) => vec![Vec::new()],
                _ => return None,
            };
            if products.len() > MOST_PRODUCTS {
                return None;
            }
            found.push(products);
        }
        found.pop()
    }

    /// What an argument of a map is: the products of a map that nobody else reads, or elements of a value.
    fn argument(&self, value: Value, depth: usize, region: &mut Vec<usize>) -> Option<Vec<Vec<Factor>>> {
        let graph = self.wiring.graph;
        let is_own = self.wiring.readers(value.node()).len() == 1 && !self.wiring.is_output(value.node());
        if depth > 0 && is_own && matches!(graph.node_of(value).prim(), Prim::Map(_)) {
            let before = region.len();
            if let Some(products) = self.products(value.node(), depth - 1, region) {
                return Some(products);
            }
            region.truncate(before);
        }
        let node = graph.node_of(value);
        let Prim::View(View { map, guard, .. }) = node.prim() else {
            return Some(vec![vec![Factor { source: value, map: identity_map(graph.ty(value).shape.rank()) }]]);
        };
        let source = node.args()[0];
        if depth > 0 && guard.is_empty() && matches!(graph.node_of(source).prim(), Prim::Map(_)) {
            // Signs that were given before a reshape.
            let before = region.len();
            let is_own = self.wiring.readers(source.node()).len() == 1 && !self.wiring.is_output(source.node());
            let inner = if is_own { self.products(source.node(), depth - 1, region) } else { None };
            if let Some([product]) = inner.as_deref()
                && product.len() == 1
            {
                let at = |dim: &Dim| {
                    dim.substitute(&|s| if let Symbol::Axis(a) = s { map.get(usize::from(*a)).cloned() } else { None })
                };
                let map = product[0].map.iter().map(at).collect();
                return Some(vec![vec![Factor { source: product[0].source, map }]]);
            }
            region.truncate(before);
        }
        let factor = if guard.is_empty() {
            Factor { source, map: map.clone() }
        } else {
            Factor { source: value, map: identity_map(graph.ty(value).shape.rank()) }
        };
        Some(vec![vec![factor]])
    }

    /// A rotation with what its tables are computed from, and with the concat that puts what is not turned behind it.
    fn with_tables(&self, mut region: Vec<usize>, turned: usize) -> Vec<usize> {
        let exit = *region.last().expect("a rotation has members");
        let is_inside =
            |region: &[usize], node: &usize| self.members.binary_search(node).is_ok_and(|k| region.contains(&k));
        for k in (0..exit).rev().filter(|k| self.is_free(*k)) {
            let node = self.members[k];
            let moves = matches!(self.prim(k), Prim::Map(_) | Prim::Gather(_) | Prim::Concat(_));
            let readers = self.wiring.readers(node);
            let serves = !readers.is_empty() && readers.iter().all(|reader| is_inside(&region, reader));
            if moves && serves && node != turned && !self.wiring.is_output(node) && !region.contains(&k) {
                region.push(k);
            }
        }
        let passes = |k: &usize| {
            let others = self.wiring.operands(self.members[*k]);
            let is_own = |o: &Option<usize>| o.is_some_and(|o| o == turned || o == self.members[exit]);
            self.is_free(*k) && matches!(self.prim(*k), Prim::Concat(_)) && others.iter().all(is_own)
        };
        region.extend((exit + 1..self.members.len()).filter(passes));
        region.sort_unstable();
        region
    }
}

/// The value that both of two products read once, at different places, each over all axes. (What reads it twice is a gate.)
fn turned(products: &[Vec<Factor>], rank: usize) -> Option<Value> {
    let [a, b] = products else { return None };
    if rank == 0 || a.len() < 2 || b.len() < 2 {
        return None;
    }
    let is_whole = |factor: &&Factor| {
        let mentions = |axis: usize| factor.map.iter().any(|d| d.mentions(|s| *s == Symbol::Axis(axis as u8)));
        (0..rank).filter(|axis| mentions(*axis)).count() + 1 >= rank && mentions(rank - 1)
    };
    let is_turned = |x: &&Factor| b.iter().any(|y| y.source == x.source && y.map != x.map && is_whole(&y));
    let is_once =
        |x: &&Factor| [a, b].iter().all(|product| product.iter().filter(|y| y.source == x.source).count() == 1);
    a.iter().filter(is_whole).filter(is_once).find(is_turned).map(|factor| factor.source)
}
