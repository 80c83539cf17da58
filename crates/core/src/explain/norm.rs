//! Normalisations, however they were written: sums of squares below a root, and exponentials over their sum.

use rustc_hash::FxHashSet;

use super::attention::number_of;
use super::pattern::{Parts, Word, pretty};
use super::row_function::{Exponentials, LEAST_KEPT, MOST_KEPT, NORM_ROWS, Norm, SOFTMAX_ROWS, is_near};
use super::sample::{LANES, Sample, Sampled};
use crate::fuse::PlannedKernel;
use crate::ops::prim::Monoid;
use crate::ops::{ExprNode, Prim, Scalar};
use crate::tensor::{DType, Shape};
use crate::tile::{AxisSet, Op};

/// Operators that are called by what they compute.
const NORMS: [&str; 5] = ["LayerNorm", "RMSNorm", "BatchNorm", "InstanceNorm", "GroupNorm"];

/// What is taken for parameters and masks: a factor of one, and where that is no answer, a shift of zero.
const GIVEN: [f64; 2] = [1.0, 0.0];

/// A row is looked for behind so many maps.
const MOST_SOURCES: usize = 4;

impl Parts<'_, '_> {
    /// Gives normalisations their names.
    pub(super) fn name_norms(&mut self, kernel: &PlannedKernel) {
        for k in 0..self.members.len() {
            let found = match self.monoid(k) {
                Some(Monoid::Sum) if self.is_free(k) => self.softmax(k).or_else(|| self.norm(k, kernel)),
                _ => None,
            };
            if let Some((name, members)) = found {
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
        let (mut members, numbers) = self.around(&[maximum, sum]);
        let entry = self.wiring.base(self.wiring.graph.nodes()[self.members[maximum]].args()[0])?;
        let (entry, given) = self
            .sources(entry)
            .into_iter()
            .flat_map(|entry| GIVEN.map(|given| (entry, given)))
            .find(|(entry, given)| self.exponentials(&members, sum, *entry, *given).is_some())?;
        let found = self.exponentials(&members, sum, entry, given)?;
        // The logarithm of probabilities, or the exponential of their logarithms, is that of all.
        let next = if found == Exponentials::LogSoftmax { Scalar::Exp } else { Scalar::Log };
        let follows = |k: &usize| {
            let of_row = |o: &Option<usize>| o.is_some_and(|o| members.contains(&o) && !numbers[o]);
            self.is_free(*k) && self.applies(*k) == Some(next) && self.operands(*k).iter().all(of_row)
        };
        let follower = (0..self.members.len()).find(|k| !members.contains(k) && follows(k));
        let with = follower.and_then(|k| Some((k, self.exponentials(&[k], sum, entry, given)?)));
        members.extend(with.map(|(k, _)| k));
        Some((with.map_or(found, |(_, found)| found).name(), members))
    }

    /// What the last of some members that has a name makes of a row, and of the sum of its exponentials.
    fn exponentials(&self, members: &[usize], sum: usize, entry: usize, given: f64) -> Option<Exponentials> {
        let length = self.length(sum);
        let mut rows = SOFTMAX_ROWS.map(|row| Sampled::new(self, Sample { entry, row, given, everywhere: false }));
        let mut found = None;
        for k in members.iter().filter(|k| self.before[**k][sum] && matches!(self.prim(**k), Prim::Map(_))) {
            let values = rows.each_mut().map(|row| row.value(self.members[*k]).unwrap_or([f64::NAN; LANES]));
            match Exponentials::of(&values, length) {
                Some(Exponentials::LogSum) if found.is_some() => {}
                None => {}
                some => found = some,
            }
        }
        found
    }

    /// A sum of squares under a root: of differences from a mean, or of the values themselves.
    fn norm(&self, sum: usize, kernel: &PlannedKernel) -> Option<(&'static str, Vec<usize>)> {
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
        let centred = earlier.or_else(beside).and_then(|mean| self.named_norm(Norm::Centred, &[mean, sum], kernel));
        centred.or_else(|| self.named_norm(Norm::Rms, &[sum], kernel))
    }

    /// The name of a norm with these folds, the sum of squares last, and all that belongs to it, if its values are those of one.
    fn named_norm(&self, norm: Norm, folds: &[usize], kernel: &PlannedKernel) -> Option<(&'static str, Vec<usize>)> {
        let (first, sum) = (folds[0], folds[folds.len() - 1]);
        let argument = self.wiring.graph.nodes()[self.members[first]].args()[0];
        let row = match norm {
            Norm::Centred => self.wiring.base(argument)?,
            // What is squared.
            Norm::Rms => self.wiring.operands(self.wiring.base(argument)?).into_iter().next()??,
        };
        let statistics = self.statistics(folds);
        // The last one: the sum of squares may have been the square of a norm.
        let is_root = |k: &&usize| self.has(**k, &[Scalar::Sqrt, Scalar::Pow, Scalar::Exp]);
        let root = *statistics.iter().rfind(is_root)?;
        let outside = statistics.iter().any(|k| self.before[*k][root] && self.has(*k, &[Scalar::Add, Scalar::Max]));
        let (mut members, _) = self.around(folds);
        let parameters = self.with_parameters(folds, &mut members);
        let length = self.length(sum);
        let (entry, factors) = self.sources(row).into_iter().find_map(|entry| {
            let factors = self.factors(norm, &members, (root, outside), entry);
            (!factors.is_empty()).then_some((entry, factors))
        })?;
        // The deviation of a sample is that of all but one.
        let is_unit = |factor: &f64| is_near(*factor, 1.0) || is_near(*factor, (1.0 - 1.0 / length).sqrt());
        let by_sum = || {
            let value = Sampled::new(self, Sample::large(entry)).value(self.members[root]);
            value.is_some_and(|value| norm.is_by_sum(value[0], length))
        };
        // The root of the length may have gone into parameters: then nobody can tell whether rows were divided by it.
        let is_scaled = norm == Norm::Centred && !parameters.is_empty();
        let plain = factors.iter().any(is_unit) || is_scaled || !by_sum();
        let name = match (norm, outside, plain) {
            (Norm::Rms, _, false) => "L2Norm",
            (Norm::Rms, false, true) if self.is_centred_elsewhere(entry) => "LayerNorm (second part)",
            (Norm::Rms, false, true) => "RMSNorm",
            (Norm::Rms, true, true) => "RMSNorm (eps outside the root)",
            (Norm::Centred, _, false) => return None,
            (Norm::Centred, false, true) => name_by_parameters(kernel, &parameters),
            (Norm::Centred, true, true) => "LayerNorm (eps outside the root)",
        };
        Some((name, members))
    }

    /// By which factors members that follow from a root are norms of a row; `outside` says whether its name tells where something is added.
    fn factors(&self, norm: Norm, members: &[usize], (root, outside): (usize, bool), entry: usize) -> Vec<f64> {
        let kept = if outside { MOST_KEPT } else { LEAST_KEPT };
        let mut factors = Vec::new();
        for given in GIVEN {
            let mut rows = NORM_ROWS.map(|row| Sampled::new(self, Sample { entry, row, given, everywhere: false }));
            for k in members.iter().filter(|k| self.before[**k][root]) {
                let values = rows.each_mut().map(|row| row.value(self.members[*k]).unwrap_or([f64::NAN; LANES]));
                factors.extend(norm.factor(&values, kept));
            }
        }
        factors
    }

    /// Whether another kernel has taken the mean of a row away.
    fn is_centred_elsewhere(&self, entry: usize) -> bool {
        let graph = self.wiring.graph;
        let is_sum =
            |node: &usize| matches!(graph.nodes()[*node].prim(), Prim::Reduce(row) if row.monoid == Monoid::Sum);
        if !matches!(graph.nodes()[entry].prim(), Prim::Map(_)) {
            return false;
        }
        // The mean may have been scaled.
        let near = self.wiring.operands(entry).into_iter().flatten();
        let sums = near.flat_map(|node| self.wiring.operands(node).into_iter().flatten().chain([node])).filter(is_sum);
        let rows = sums.filter_map(|sum| self.wiring.operands(sum)[0]);
        rows.flat_map(|row| self.sources(row)).any(|row| {
            let sample = Sample { everywhere: true, ..Sample::large(row) };
            let value = Sampled::new(self, sample).value(entry);
            value.is_some_and(|value| {
                let most = value.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
                most > 0.0 && value.iter().sum::<f64>().abs() <= 1e-3 * most
            })
        })
    }

    /// The node that is a row, and those that it is a multiple of.
    fn sources(&self, row: usize) -> Vec<usize> {
        let mut found = vec![row];
        while found.len() < MOST_SOURCES
            && let Prim::Map(_) = self.wiring.graph.nodes()[found[found.len() - 1]].prim()
            && let [Some(of)] = self.wiring.operands(found[found.len() - 1]).as_slice()
        {
            found.push(*of);
        }
        found
    }

    /// How many numbers a fold is of.
    fn length(&self, fold: usize) -> f64 {
        let graph = self.wiring.graph;
        let node = &graph.nodes()[self.members[fold]];
        let Prim::Reduce(row) = node.prim() else { return f64::NAN };
        let dims = graph.ty(node.args()[0]).shape.dims();
        row.axes.iter().map(|axis| number_of(&dims[*axis])).product()
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

    /// All that belongs to a normalisation with these folds, but for what scales and shifts it; and which members are numbers of whole rows.
    fn around(&self, folds: &[usize]) -> (Vec<usize>, Vec<bool>) {
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
        ((0..count).filter(|k| inside[*k] && self.is_free(*k)).collect(), numbers)
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
