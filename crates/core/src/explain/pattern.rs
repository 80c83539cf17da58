//! What a kernel does, in the words of its user: `LayerNorm + GELU`, `3 × (MatMul + Add)`, `Attention (causal)`.
//!
//! Where one operator of the model says it all, its name is used; where a normalisation, an activation or attention was
//! written as many operators, it is recognised by structure and by values. Names are read here, after the plan is made;
//! nothing that decides looks at them.

use super::activation;
use super::attention::name_of_attention;
use super::wiring::Wiring;
use crate::fuse::PlannedKernel;
use crate::graph::{Origin, Value};
use crate::ops::prim::{Class, Monoid};
use crate::ops::{ExprNode, Prim, Scalar};
use crate::tile::Schedule;

/// A name for what a kernel does.
pub(super) fn pattern(wiring: &Wiring<'_>, kernel: &PlannedKernel) -> String {
    let mut parts = Parts::of(wiring, &kernel.members);
    if let Schedule::Attention { chain, .. } = &kernel.kernel.schedule {
        parts.name_attention(&name_of_attention(&kernel.kernel, chain));
    }
    parts.name_rotations();
    parts.name_norms();
    parts.name_activations();
    parts.name_operators();
    sentence(&parts.words())
}

/// The members of a kernel, divided among words.
struct Parts<'w, 'g> {
    wiring: &'w Wiring<'g>,
    members: &'w [usize],
    /// for every member, the members that it computes from
    before: Vec<Vec<bool>>,
    /// for every member, its word
    owner: Vec<Option<usize>>,
    words: Vec<Word>,
}

/// A word for some of the members.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Word {
    text: String,
    /// the operator, where it is one
    origin: Option<Origin>,
    /// whether it says what the kernel is about: more than one operation on every element
    is_strong: bool,
}

impl<'w, 'g> Parts<'w, 'g> {
    fn of(wiring: &'w Wiring<'g>, members: &'w [usize]) -> Parts<'w, 'g> {
        let count = members.len();
        let mut before: Vec<Vec<bool>> = Vec::with_capacity(count);
        for member in members {
            let mut own = vec![false; count];
            for operand in wiring.operands(*member).into_iter().flatten() {
                if let Ok(k) = members.binary_search(&operand) {
                    own[k] = true;
                    own.iter_mut().zip(&before[k]).for_each(|(own, theirs)| *own |= theirs);
                }
            }
            before.push(own);
        }
        Parts { wiring, members, before, owner: vec![None; count], words: Vec::new() }
    }

    /// The words in the order of the nodes that they stand for.
    fn words(&self) -> Vec<(&str, bool)> {
        let mut told = vec![false; self.words.len()];
        let first = |word: &&usize| !std::mem::replace(&mut told[**word], true);
        let words = self.owner.iter().flatten().filter(first).map(|word| &self.words[*word]);
        words.map(|word| (word.text.as_str(), word.is_strong)).collect()
    }

    /// Gives members a word; one operator has one word.
    fn assign(&mut self, word: Word, members: impl IntoIterator<Item = usize>) {
        let same = |known: &Word| word.origin.is_some() && known.origin == word.origin;
        let id = self.words.iter().position(same).unwrap_or(self.words.len());
        if id == self.words.len() {
            self.words.push(word);
        }
        for k in members {
            self.owner[k].get_or_insert(id);
        }
    }

    /// The name of what was recognised, whoever wrote it; that of the one operator of which it is a part.
    fn recognised(&self, name: &str, members: &[usize]) -> Word {
        let origins = self.origins(members);
        let [only] = origins.as_slice() else {
            return Word { text: name.to_string(), origin: None, is_strong: true };
        };
        let is_inside = |node: &usize| members.iter().any(|k| self.members[*k] == *node);
        let is_whole = self.wiring.parts(only).iter().all(is_inside);
        let text = if is_whole { name.to_string() } else { pretty(&only.op) };
        Word { text, origin: Some(only.clone()), is_strong: true }
    }

    /// As [`Parts::recognised`]; one operator that normalises says better than its sums over which part of a tensor.
    fn recognised_norm(&self, name: &str, members: &[usize]) -> Word {
        let word = self.recognised(name, members);
        match &word.origin {
            Some(only) => Word { text: pretty(&only.op), ..word },
            None => word,
        }
    }

    /// Members as positions, where all operands of a node are wanted.
    fn operands(&self, k: usize) -> Vec<Option<usize>> {
        let of = |operand: Option<usize>| self.members.binary_search(&operand?).ok();
        self.wiring.operands(self.members[k]).into_iter().map(of).collect()
    }

    fn prim(&self, k: usize) -> &'g Prim {
        self.wiring.graph.nodes()[self.members[k]].prim()
    }

    /// The function that a map applies last.
    fn applies(&self, k: usize) -> Option<Scalar> {
        let Prim::Map(row) = self.prim(k) else { return None };
        match row.expr.nodes().last()?.0 {
            ExprNode::Apply(op, _) => Some(op),
            _ => None,
        }
    }

    fn monoid(&self, k: usize) -> Option<Monoid> {
        if let Prim::Reduce(row) = self.prim(k) { Some(row.monoid) } else { None }
    }

    fn is_free(&self, k: usize) -> bool {
        self.owner[k].is_none()
    }

    /// The operators that some members are part of, each once.
    fn origins(&self, members: &[usize]) -> Vec<Origin> {
        let mut found: Vec<Origin> = Vec::new();
        for k in members {
            if let Some(origin) = self.wiring.graph.origin(self.members[*k]).iter().next()
                && !found.contains(origin)
            {
                found.push(origin.clone());
            }
        }
        found
    }

    // Attention.

    /// Both contractions, what lies between them, and what a normaliser that comes later does.
    fn name_attention(&mut self, word: &str) {
        let contracts: Vec<usize> =
            (0..self.members.len()).filter(|k| matches!(self.prim(*k), Prim::Contract(_))).collect();
        let pair = contracts.iter().find_map(|second| {
            let first = contracts.iter().find(|first| self.before[*second][**first])?;
            Some((*first, *second))
        });
        let Some((first, second)) = pair else { return };
        let mut inside: Vec<bool> = (0..self.members.len())
            .map(|k| k == first || k == second || (self.before[k][first] && self.before[second][k]))
            .collect();
        for k in first..self.members.len() {
            // A sum of the scores, and what divides by it.
            let fold = self.monoid(k).is_some() && self.before[k][first];
            let of_folds = |o: &Option<usize>| o.is_some_and(|o| inside[o] && o != second && !self.before[o][second]);
            let late = self.before[k][second] && self.operands(k).iter().any(of_folds);
            let statistic = self.before[k][first] && !self.before[k][second] && self.operands(k).iter().all(of_folds);
            inside[k] |= fold || late || statistic;
        }
        // What masks are computed from belongs to the scores; what values are computed from does not.
        let values: Vec<usize> =
            self.operands(second).into_iter().flatten().filter(|o| *o != first && !self.before[*o][first]).collect();
        for (k, inside) in inside.iter_mut().enumerate().take(second) {
            let of_values = values.iter().any(|v| *v == k || self.before[*v][k]);
            *inside |= self.before[second][k] && !self.before[first][k] && !of_values;
        }
        // So do conversions and whatever else is part of the operators that the two contractions are.
        let of = |k: usize| self.wiring.graph.origin(self.members[k]);
        let shares = |k: usize| [first, second].iter().any(|c| of(k).iter().any(|o| of(*c).iter().any(|p| p == o)));
        let members: Vec<usize> = (0..self.members.len()).filter(|k| inside[*k] || shares(*k)).collect();
        self.assign(Word { text: word.to_string(), origin: None, is_strong: true }, members);
    }

    /// Rotations by position: the sum of two products that read one value at two places.
    fn name_rotations(&mut self) {
        for k in 0..self.members.len() {
            if !matches!(self.applies(k), Some(Scalar::Add | Scalar::Sub)) || !self.is_free(k) {
                continue;
            }
            let is_product = |o: &usize| self.applies(*o) == Some(Scalar::Mul) && self.is_free(*o);
            let products: Vec<usize> = self.operands(k).into_iter().flatten().filter(is_product).collect();
            let [a, b] = products.as_slice() else { continue };
            let roots = |k: usize| {
                let args = self.wiring.graph.nodes()[self.members[k]].args();
                args.iter().map(|value| (self.root(value.node()), *value)).collect::<Vec<_>>()
            };
            let turned = |(x, at): &(Option<usize>, Value)| {
                x.is_some() && roots(*b).iter().any(|(y, there)| y == x && there != at)
            };
            let is_rotation = roots(*a).iter().any(turned);
            if is_rotation {
                let members = [*a, *b, k];
                self.assign(self.recognised("RoPE", &members), members);
            }
        }
    }

    /// What a value is made of by views, signs and putting parts behind one another, if that is one thing.
    fn root(&self, node: usize) -> Option<usize> {
        let mut found = None;
        let mut todo = vec![node];
        while let Some(node) = todo.pop() {
            let moves = match self.wiring.graph.nodes()[node].prim() {
                Prim::View(_) | Prim::Concat(_) => true,
                Prim::Map(row) => row.expr.as_call() == Some(Scalar::Neg),
                _ => false,
            };
            match moves {
                true => todo.extend(self.wiring.operands(node).into_iter().flatten()),
                false if found.is_none_or(|known| known == node) => found = Some(node),
                false => return None,
            }
        }
        found
    }

    // Normalisations.

    fn name_norms(&mut self) {
        for k in 0..self.members.len() {
            let found = match self.monoid(k) {
                Some(Monoid::Sum) if self.is_free(k) => self.softmax(k).or_else(|| self.norm(k)),
                _ => None,
            };
            if let Some((name, folds)) = found {
                let members = self.around(&folds);
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
        let logarithm = self.statistics(&folds).iter().any(|k| self.applies(*k) == Some(Scalar::Log));
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

    /// All that belongs to a normalisation with these folds.
    fn around(&self, folds: &[usize]) -> Vec<usize> {
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
        let joins: Vec<usize> = (0..count).filter(is_join).collect();
        joins.iter().for_each(|k| inside[*k] = true);
        let squares = folds.iter().filter_map(|f| self.operands(*f)[0]);
        for square in squares.filter(|k| self.squared(*k).is_some()) {
            inside[square] = true;
        }
        if let Some(last) = joins.last() {
            self.weights_after(*last).into_iter().for_each(|k| inside[k] = true);
        }
        (0..count).filter(|k| inside[*k] && self.is_free(*k)).collect()
    }

    /// The product with and the sum of parameters that follow a normalisation.
    fn weights_after(&self, last: usize) -> Vec<usize> {
        let mut found = Vec::new();
        let (mut at, mut wanted) = (last, vec![Scalar::Mul, Scalar::Add]);
        while let [only] = self.wiring.readers(self.members[at]) {
            let Ok(next) = self.members.binary_search(only) else { break };
            let is_parameter = |o: &Option<usize>| o.is_some_and(|o| self.wiring.is_source(o));
            let parameters = self.wiring.operands(*only).iter().filter(|o| is_parameter(o)).count();
            let Some(position) = self.applies(next).and_then(|op| wanted.iter().position(|w| *w == op)) else { break };
            if parameters != 1 {
                break;
            }
            wanted.drain(..=position);
            found.push(next);
            at = next;
        }
        found
    }

    // Activations.

    /// Maps that compute a function of one value which has a name, the largest first.
    fn name_activations(&mut self) {
        for exit in (0..self.members.len()).rev() {
            if self.is_free(exit)
                && let Some((name, members)) = self.activation(exit)
            {
                self.assign(self.recognised(name, &members), members);
            }
        }
    }

    fn activation(&self, exit: usize) -> Option<(&'static str, Vec<usize>)> {
        const MOST: usize = 16;
        let graph = self.wiring.graph;
        let mut region = vec![exit];
        let mut best = None;
        while region.len() <= MOST && region.iter().all(|k| self.is_function(*k)) {
            let outside = |k: usize| !region.contains(&k);
            let args = region.iter().flat_map(|k| graph.nodes()[self.members[*k]].args());
            let mut entries: Vec<_> = args.copied().collect();
            entries.sort_unstable();
            entries.dedup();
            entries.retain(|v| self.members.binary_search(&v.node()).map_or(true, outside));
            if let [entry] = entries.as_slice() {
                best = activation::name_of(|x| self.evaluate(&region, entry.node(), x))
                    .map(|name| (name, region.clone()))
                    .or(best);
            }
            // The last entry that is a map which nothing else reads joins; without one, this is all there is.
            let joins = |node: usize| {
                let k = self.members.binary_search(&node).ok()?;
                let own = self
                    .wiring
                    .readers(node)
                    .iter()
                    .all(|r| self.members.binary_search(r).is_ok_and(|r| region.contains(&r)));
                (own && self.is_free(k) && !self.wiring.is_output(node)).then_some(k)
            };
            let Some(next) = entries.iter().rev().find_map(|v| joins(v.node())) else { break };
            region.push(next);
            region.sort_unstable();
        }
        best
    }

    /// Whether a member is a map of floats at the same coordinates.
    fn is_function(&self, k: usize) -> bool {
        let Prim::Map(row) = self.prim(k) else { return false };
        let known = |(node, dtype): &(ExprNode, crate::tensor::DType)| {
            let is_number = dtype.is_float() || *dtype == crate::tensor::DType::Bool;
            is_number
                && match node {
                    ExprNode::Apply(op, _) => op.def().float.is_some(),
                    ExprNode::Arg(_) | ExprNode::Const(_) | ExprNode::Cast(_) => true,
                    ExprNode::Coord(_) | ExprNode::Size(_) | ExprNode::Bits(_) => false,
                }
        };
        row.expr.nodes().iter().all(known)
    }

    /// The last of some maps, where the value of one node is `x`.
    fn evaluate(&self, region: &[usize], entry: usize, x: f64) -> f64 {
        let mut values: Vec<(usize, f64)> = vec![(entry, x)];
        for k in region {
            let node = &self.wiring.graph.nodes()[self.members[*k]];
            let Prim::Map(row) = node.prim() else { return f64::NAN };
            let value = |arg: usize| values.iter().find(|(node, _)| *node == arg).map_or(f64::NAN, |(_, value)| *value);
            let args: Vec<f64> = node.args().iter().map(|a| value(a.node())).collect();
            let result = row.expr.eval_f64(&args);
            values.push((self.members[*k], result));
        }
        values.last().map_or(f64::NAN, |(_, value)| *value)
    }

    // The rest.

    fn name_operators(&mut self) {
        for k in 0..self.members.len() {
            if !self.is_free(k) {
                continue;
            }
            match self.wiring.graph.origin(self.members[k]).iter().next().cloned() {
                Some(origin) => {
                    let same = |j: &usize| {
                        self.is_free(*j) && self.wiring.graph.origin(self.members[*j]).iter().next() == Some(&origin)
                    };
                    let members: Vec<usize> = (k..self.members.len()).filter(same).collect();
                    let word = self.operator(origin, &members);
                    self.assign(word, members);
                }
                None => {
                    let text = self.wiring.verb(self.members[k]);
                    let is_strong = is_main(self.prim(k));
                    self.assign(Word { text, origin: None, is_strong }, [k]);
                }
            }
        }
    }

    /// The name of an operator; where its main part is in another kernel, with what is left of it here.
    fn operator(&self, origin: Origin, members: &[usize]) -> Word {
        let graph = self.wiring.graph;
        let is_strong = members.iter().any(|k| is_main(self.prim(*k)));
        let elsewhere =
            |node: &usize| is_main(graph.nodes()[*node].prim()) && self.members.binary_search(node).is_err();
        let text = match members.last() {
            Some(last) if !is_strong && self.wiring.parts(&origin).iter().any(elsewhere) => {
                format!("{} ({})", pretty(&origin.op), self.wiring.verb(self.members[*last]))
            }
            _ => pretty(&origin.op),
        };
        Word { text, origin: Some(origin), is_strong }
    }
}

/// Whether a primitive is more than one operation on every element.
fn is_main(prim: &Prim) -> bool {
    !matches!(prim.class(), Class::Map | Class::View | Class::Source)
}

/// The name of an operator as people write it.
fn pretty(op: &str) -> String {
    let op = op.rsplit("::").next().unwrap_or(op);
    let known = match op {
        "LayerNormalization" => "LayerNorm",
        "SimplifiedLayerNormalization" | "RMSNormalization" => "RMSNorm",
        "BatchNormalization" => "BatchNorm",
        "InstanceNormalization" => "InstanceNorm",
        "GroupNormalization" => "GroupNorm",
        "Gelu" => "GELU",
        "Relu" => "ReLU",
        "Silu" | "Swish" => "SiLU",
        other => other,
    };
    known.to_string()
}

/// Words that say nothing beside others.
const SMALL: [&str; 3] = ["Cast", "Identity", "cast"];

/// A sentence has no more words than this.
const MOST_WORDS: usize = 6;

/// Words as one line: repeated ones are counted; of long lists those stay that say what the kernel is about.
fn sentence(words: &[(&str, bool)]) -> String {
    let large: Vec<(&str, bool)> = words.iter().copied().filter(|(word, _)| !SMALL.contains(word)).collect();
    let words = if large.is_empty() { words } else { &large };
    let repeats = |p: &usize| words.len().is_multiple_of(*p) && words.iter().zip(&words[*p..]).all(|(a, b)| a == b);
    match (2..words.len()).find(repeats) {
        Some(period) if words[..period].iter().any(|word| *word != words[0]) => {
            format!("{} × ({})", words.len() / period, joined(&words[..period]))
        }
        _ => joined(words),
    }
}

fn joined(words: &[(&str, bool)]) -> String {
    let mut counted: Vec<(usize, &str, bool)> = Vec::new();
    for (word, is_strong) in words {
        match counted.last_mut() {
            Some((count, last, _)) if last == word => *count += 1,
            _ => counted.push((1, word, *is_strong)),
        }
    }
    let mut rest = 0;
    while counted.len() > MOST_WORDS {
        let last_weak = counted.iter().rposition(|(_, _, is_strong)| !is_strong);
        let (count, ..) = counted.remove(last_weak.unwrap_or(counted.len() - 1));
        rest += count;
    }
    let text = |(count, word, _): &(usize, &str, bool)| match count {
        1 => word.to_string(),
        count => format!("{count} × {word}"),
    };
    let mut text = counted.iter().map(text).collect::<Vec<_>>().join(" + ");
    if rest > 0 {
        text.push_str(&format!(" + {rest} more"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_short() {
        let told = |words: &[&str]| {
            let words: Vec<(&str, bool)> = words.iter().map(|w| (*w, w.contains("MatMul"))).collect();
            sentence(&words)
        };
        assert_eq!(told(&["Cast"]), "Cast");
        assert_eq!(told(&["Cast", "Add"]), "Add");
        assert_eq!(told(&["Add", "Add"]), "2 × Add");
        assert_eq!(told(&["Add", "Add", "Add", "Add"]), "4 × Add");
        assert_eq!(told(&["MatMul", "Add", "MatMul", "Add", "MatMul", "Add"]), "3 × (MatMul + Add)");
        assert_eq!(told(&["Add", "Add", "LayerNorm"]), "2 × Add + LayerNorm");
        assert_eq!(told(&["a", "b", "c", "d", "e", "f", "g", "MatMul"]), "a + b + c + d + e + MatMul + 2 more");
    }
}
