//! Normalisations, however they were written: sums of squares below a root, and exponentials over their sum.

use rustc_hash::FxHashSet;

use super::pattern::{Parts, Word, pretty};
use crate::fuse::PlannedKernel;
use crate::ops::prim::Monoid;
use crate::ops::{ExprNode, Prim, Scalar};
use crate::tensor::{DType, Shape};
use crate::tile::{AxisSet, Op};

/// Operators that are called by what they compute.
const NORMS: [&str; 5] = ["LayerNorm", "RMSNorm", "BatchNorm", "InstanceNorm", "GroupNorm"];

impl Parts<'_, '_> {
    /// Gives normalisations their names.
    pub(super) fn name_norms(&mut self, kernel: &PlannedKernel) {
        for k in 0..self.members.len() {
            let found = match self.monoid(k) {
                Some(Monoid::Sum) if self.is_free(k) => self.softmax(k).or_else(|| self.norm(k)),
                _ => None,
            };
            if let Some((name, folds)) = found {
                let (members, name) = self.around(&folds, name, kernel);
                self.assign(self.recognised_norm(name, &members), members);
            }
        }
    }

    /// A sum of exponentials of differences from a maximum.
    fn softmax(&self, sum: usize) -> Option<(&'static str, Vec<usize>)> {
        let operand = self.operands(sum)[0]?;
        let exponential = matches!(self.applies(operand)?, Scalar::Exp | Scalar::Exp2);
        let is_maximum = |k: &usize| self.monoid(*k) == Some(Monoid::Max) && self.before[sum][*k] && self.is_free(*k);
        let maximum = (0..sum).rev().find(is_maximum).filter(|_| exponential)?;
        let folds = vec![maximum, sum];
        let takes = |k: usize| self.has(k, &[Scalar::Log]) && self.operands(k).contains(&Some(sum));
        let logarithm = self.statistics(&folds).iter().any(|k| self.applies(*k) == Some(Scalar::Log))
            || (0..self.members.len()).any(takes);
        Some((if logarithm { "LogSoftmax" } else { "Softmax" }, folds))
    }

    /// A sum of squares under a root: of differences from a mean, or of the values themselves.
    fn norm(&self, sum: usize) -> Option<(&'static str, Vec<usize>)> {
        let square = self.operands(sum)[0]?;
        let of = self.squared(square)?;
        let is_mean = |k: usize| self.monoid(k) == Some(Monoid::Sum) && k != sum && self.is_free(k);
        let earlier = of.and_then(|of| (0..sum).rev().find(|k| is_mean(*k) && self.before[of][*k]));
        // The mean may also be subtracted as a square, after both sums.
        let beside = || {
            let same = |k: &usize| is_mean(*k) && self.operands(*k)[0] == of && !self.before[sum][*k];
            let joined =
                |k: &usize| self.statistics(&[sum, *k]).iter().any(|s| self.before[*s][sum] && self.before[*s][*k]);
            (0..self.members.len()).find(|k| same(k) && joined(k))
        };
        let mean = earlier.or_else(beside);
        let folds: Vec<usize> = mean.into_iter().chain([sum]).collect();
        let statistics = self.statistics(&folds);
        // The last one: the sum of squares may have been the square of a norm.
        let root = *statistics.iter().rfind(|k| self.has(**k, &[Scalar::Sqrt, Scalar::Pow]))?;
        let outside = statistics.iter().any(|k| self.before[*k][root] && self.has(*k, &[Scalar::Add, Scalar::Max]));
        let name = match (mean, outside) {
            (Some(_), false) => "LayerNorm",
            (Some(_), true) => "LayerNorm (eps outside the root)",
            (None, false) => "RMSNorm",
            (None, true) => "RMSNorm (eps outside the root)",
        };
        Some((name, folds))
    }

    /// Whether a map applies one of some functions.
    fn has(&self, k: usize, functions: &[Scalar]) -> bool {
        let Prim::Map(row) = self.prim(k) else { return false };
        row.expr.nodes().iter().any(|(n, _)| matches!(n, ExprNode::Apply(op, _) if functions.contains(op)))
    }

    /// For the square of a value: the member that makes that value, if one does.
    fn squared(&self, k: usize) -> Option<Option<usize>> {
        let Prim::Map(row) = self.prim(k) else { return None };
        let nodes = row.expr.nodes();
        let argument = |at: u32| match nodes[at as usize].0 {
            ExprNode::Arg(arg) => Some(arg as usize),
            _ => None,
        };
        let operands = self.operands(k);
        let sources = self.wiring.graph.nodes()[self.members[k]].args();
        match &nodes.last()?.0 {
            ExprNode::Apply(Scalar::Mul, of) => {
                let (a, b) = (argument(of[0])?, argument(of[1])?);
                (sources[a] == sources[b]).then_some(operands[a])
            }
            ExprNode::Apply(Scalar::Pow, of) => {
                let two = matches!(nodes[of[1] as usize].0, ExprNode::Const(n) if n.to_f64() == 2.0);
                two.then_some(operands[argument(of[0])?])
            }
            _ => None,
        }
    }

    /// What is computed from folds alone, a number for every row.
    fn statistics(&self, folds: &[usize]) -> Vec<usize> {
        let count = |k: usize| self.wiring.graph.nodes()[self.members[k]].types()[0].shape.count();
        let rows = count(folds[0]);
        let mut found: Vec<usize> = Vec::new();
        for k in 0..self.members.len() {
            let operands = self.operands(k);
            let inside = |o: &Option<usize>| o.is_none_or(|o| folds.contains(&o) || found.contains(&o));
            let is_map = matches!(self.prim(k), Prim::Map(_)) && operands.iter().any(Option::is_some);
            if is_map && self.is_free(k) && operands.iter().all(inside) && count(k) == rows {
                found.push(k);
            }
        }
        found
    }

    /// All that belongs to a normalisation with these folds, and its name: over which part of a tensor it goes is told by its parameters.
    fn around(&self, folds: &[usize], name: &'static str, kernel: &PlannedKernel) -> (Vec<usize>, &'static str) {
        let count = self.members.len();
        let mut inside = vec![false; count];
        folds.iter().chain(&self.statistics(folds)).for_each(|k| inside[*k] = true);
        let numbers = inside.clone();
        let is_join = |k: &usize| {
            let is_map = matches!(self.prim(*k), Prim::Map(_)) && self.is_free(*k) && !numbers[*k];
            let joins_row = self.operands(*k).iter().flatten().any(|o| numbers[*o]);
            let between = folds.iter().any(|f| self.before[*k][*f]) && folds.iter().any(|f| self.before[*f][*k]);
            is_map && (joins_row || between)
        };
        (0..count).filter(is_join).for_each(|k| inside[k] = true);
        let squares = folds.iter().filter_map(|f| self.operands(*f)[0]);
        for square in squares.filter(|k| self.squared(*k).is_some()) {
            inside[square] = true;
        }
        let mut members: Vec<usize> = (0..count).filter(|k| inside[*k] && self.is_free(*k)).collect();
        if name.ends_with("Softmax") {
            let name = self.with_logarithm(&numbers, &mut members, name);
            return (members, name);
        }
        let parameters = self.with_parameters(folds, &mut members);
        let name = if name == "LayerNorm" { name_by_parameters(kernel, &parameters) } else { name };
        (members, name)
    }

    /// Adds the logarithm of probabilities, or the exponential of their logarithms, and says what they are then.
    fn with_logarithm(&self, numbers: &[bool], members: &mut Vec<usize>, name: &'static str) -> &'static str {
        let (last, other) = if name == "Softmax" { (Scalar::Log, "LogSoftmax") } else { (Scalar::Exp, "Softmax") };
        let follows = |k: &usize| {
            let of_row = |o: &Option<usize>| o.is_some_and(|o| members.contains(&o) && !numbers[o]);
            self.is_free(*k) && self.applies(*k) == Some(last) && self.operands(*k).iter().all(of_row)
        };
        match (0..self.members.len()).find(|k| !members.contains(k) && follows(k)) {
            Some(k) => {
                members.push(k);
                other
            }
            None => name,
        }
    }

    /// Adds what scales and shifts a normalised row, and says by which inputs and constants.
    fn with_parameters(&self, folds: &[usize], members: &mut Vec<usize>) -> Vec<usize> {
        let graph = self.wiring.graph;
        let row = graph.ty(graph.nodes()[self.members[folds[folds.len() - 1]]].args()[0]).shape.clone();
        let long = |shape: &Shape| shape.dims().iter().filter(|dim| !dim.is(1)).count();
        // Values with fewer axes than the row that follow from inputs and constants alone.
        let mut parameters: FxHashSet<usize> = FxHashSet::default();
        let is_given =
            |node: usize| self.wiring.is_source(node) && long(&graph.nodes()[node].types()[0].shape) < long(&row);
        let position = |node: &usize| self.members.binary_search(node).ok();
        let of_row: Vec<usize> =
            members.iter().flat_map(|k| self.wiring.operands(self.members[*k])).flatten().collect();
        let mut added: Vec<usize> = Vec::new();
        for k in (0..self.members.len()).filter(|k| self.is_free(*k) && self.is_affine(*k)) {
            let operands: Vec<usize> = self.wiring.operands(self.members[k]).into_iter().flatten().collect();
            if members.contains(&k) || operands.is_empty() {
                continue;
            }
            let is_parameter = |node: &usize| is_given(*node) || parameters.contains(node);
            if operands.iter().all(is_parameter) {
                parameters.insert(self.members[k]);
                continue;
            }
            let is_inside = |o: &usize| position(o).is_some_and(|o| members.contains(&o));
            let may_have_row = !self.has(k, &[Scalar::Add]);
            let fits = |o: &usize| is_inside(o) || is_parameter(o) || may_have_row && of_row.contains(o);
            if operands.iter().any(is_inside) && operands.iter().all(fits) {
                added.push(k);
                members.push(k);
            }
        }
        self.leave_multiples(&added, members);
        let is_own = |members: &[usize], node: usize| {
            let inside = |r: &usize| position(r).is_some_and(|k| members.contains(&k) || parameters.contains(r));
            self.wiring.readers(node).iter().all(inside) && !self.wiring.is_output(node)
        };
        // Multiples of the row, and products with parameters, that nothing else reads; and what parameters are made of.
        let before = (0..self.members.len()).rev().filter(|k| self.is_free(*k) && self.is_affine(*k));
        for k in before {
            let operands: Vec<usize> = self.wiring.operands(self.members[k]).into_iter().flatten().collect();
            let of_row = |o: &usize| of_row.contains(o) || is_given(*o) || parameters.contains(o);
            let is_scaled = !self.has(k, &[Scalar::Add, Scalar::Sub]) && operands.iter().all(of_row);
            let serves = operands.len() == 1 || is_scaled || parameters.contains(&self.members[k]);
            if serves && !members.contains(&k) && is_own(members, self.members[k]) {
                members.push(k);
            }
        }
        members.sort_unstable();
        let operands = members.iter().flat_map(|k| self.wiring.operands(self.members[*k])).flatten();
        operands.filter(|node| is_given(*node)).collect()
    }

    /// A multiple that something else is computed from belongs to that: half of the row, to a GELU.
    fn leave_multiples(&self, added: &[usize], members: &mut Vec<usize>) {
        for k in added.iter().rev() {
            let node = self.members[*k];
            let is_multiple = self.wiring.graph.nodes()[node].args().len() == 1;
            let mut readers = self.wiring.readers(node).iter().filter_map(|r| self.members.binary_search(r).ok());
            if is_multiple && readers.any(|reader| !members.contains(&reader)) {
                members.retain(|member| member != k);
            }
        }
    }

    /// Whether a member is a map of sums, products and quotients.
    fn is_affine(&self, k: usize) -> bool {
        let Prim::Map(row) = self.prim(k) else { return false };
        let known = |(node, dtype): &(ExprNode, DType)| match node {
            ExprNode::Apply(op, _) => matches!(op, Scalar::Add | Scalar::Sub | Scalar::Mul | Scalar::Div | Scalar::Neg),
            ExprNode::Arg(_) | ExprNode::Const(_) | ExprNode::Cast(_) => dtype.is_float(),
            _ => false,
        };
        row.expr.nodes().iter().all(known)
    }

    /// As [`Parts::recognised`]; an operator that normalises in a way of its own says so.
    fn recognised_norm(&self, name: &str, members: &[usize]) -> Word {
        let mut word = self.recognised(name, members);
        word.text = match &word.origin {
            Some(only) if !NORMS.contains(&pretty(&only.op).as_str()) => pretty(&only.op),
            _ => name.to_string(),
        };
        word
    }
}

/// What is normalised and centred, by its parameters: those of a LayerNorm differ along what is normalised; those of an InstanceNorm from row to row, and,
/// where examples are normalised together, those of a BatchNorm; those of a GroupNorm do both.
fn name_by_parameters(kernel: &PlannedKernel, parameters: &[usize]) -> &'static str {
    let (mut folded, mut along) = (AxisSet::EMPTY, AxisSet::EMPTY);
    for step in &kernel.kernel.steps {
        match &step.op {
            Op::Reduce { over, .. } => folded = folded.union(*over),
            Op::Load { input, .. } if parameters.contains(&kernel.inputs[*input].node()) => {
                along = along.union(step.axes)
            }
            _ => {}
        }
    }
    let outside = along.without(folded);
    match (along.common(folded).is_empty(), outside.is_empty()) {
        (_, true) => "LayerNorm",
        _ if outside.contains(0) => "LayerNorm",
        (true, false) if folded.contains(0) => "BatchNorm",
        (true, false) => "InstanceNorm",
        (false, false) => "GroupNorm",
    }
}
