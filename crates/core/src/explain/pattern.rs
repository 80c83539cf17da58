//! What a kernel does, in the words of its user: `LayerNorm + GELU`, `3 × (MatMul + Add)`, `Attention (causal)`.
//!
//! Where one operator of the model says it all, its name is used; where a normalisation, an activation or attention was
//! written as many operators, it is recognised by structure and by values. Names are read here, after the plan is made;
//! nothing that decides looks at them.

use rustc_hash::FxHashSet;

use super::activation;
use super::attention::name_of_attention;
use super::wiring::Wiring;
use crate::fuse::PlannedKernel;
use crate::graph::{Graph, Origin, Value};
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
    parts.name_norms(kernel);
    parts.name_gates();
    parts.name_activations();
    parts.name_operators();
    sentence(&parts.told(), |later, earlier| parts.waits(later, earlier))
}

/// The members of a kernel, divided among words.
pub(super) struct Parts<'w, 'g> {
    pub(super) wiring: &'w Wiring<'g>,
    pub(super) members: &'w [usize],
    /// for every member, the members that it computes from
    pub(super) before: Vec<Vec<bool>>,
    /// for every member, the operator that it is told as a part of
    origins: Vec<Option<Origin>>,
    /// for every member, its word
    owner: Vec<Option<usize>>,
    words: Vec<Word>,
}

/// A word for some of the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    /// the operator, where it is one
    pub(super) origin: Option<Origin>,
    /// whether it says what the kernel is about: more than one operation on every element
    pub(super) is_strong: bool,
    /// the member at whose place it stands; none: at that of its first
    pub(super) at: Option<usize>,
}

/// A word in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told<'a> {
    text: &'a str,
    is_strong: bool,
    /// among all words
    number: usize,
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
        let origins = own_origins(wiring.graph, members);
        Parts { wiring, members, before, origins, owner: vec![None; count], words: Vec::new() }
    }

    /// The words in the order of the nodes that they stand for.
    fn told(&self) -> Vec<Told<'_>> {
        let mut told = vec![false; self.words.len()];
        // What only says in which order a result is stored goes without saying.
        let moves = |k: usize| matches!(self.prim(k), Prim::View(_));
        let is_plain = (0..self.members.len()).all(moves);
        for (k, word) in self.owner.iter().enumerate() {
            if let Some(word) = word.filter(|_| !is_plain && moves(k)) {
                told[word] = (0..self.members.len()).all(|k| self.owner[k] != Some(word) || moves(k));
            }
        }
        let mut words = Vec::new();
        for (k, owner) in self.owner.iter().enumerate() {
            let Some(number) = owner.filter(|number| !told[*number]) else { continue };
            let Word { text, is_strong, at, .. } = &self.words[number];
            if at.is_none_or(|at| at <= k) {
                told[number] = true;
                words.push(Told { text, is_strong: *is_strong, number });
            }
        }
        words
    }

    /// Whether a word stands for anything that is computed from what another one stands for.
    fn waits(&self, later: usize, earlier: usize) -> bool {
        let of = |word: usize| (0..self.members.len()).filter(move |k| self.owner[*k] == Some(word));
        of(later).any(|k| of(earlier).any(|j| self.before[k][j]))
    }

    /// Gives members a word; one operator has one word.
    pub(super) fn assign(&mut self, word: Word, members: impl IntoIterator<Item = usize>) {
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
    pub(super) fn recognised(&self, name: &str, members: &[usize]) -> Word {
        let origins = self.origins(members);
        let [only] = origins.as_slice() else {
            return Word { text: name.to_string(), origin: None, is_strong: true, at: None };
        };
        let is_inside = |node: &usize| members.iter().any(|k| self.members[*k] == *node);
        let is_whole = self.wiring.parts(only).iter().all(is_inside);
        let text = if is_whole { name.to_string() } else { pretty(&only.op) };
        Word { text, origin: Some(only.clone()), is_strong: true, at: None }
    }

    /// Members as positions, where all operands of a node are wanted.
    pub(super) fn operands(&self, k: usize) -> Vec<Option<usize>> {
        let of = |operand: Option<usize>| self.members.binary_search(&operand?).ok();
        self.wiring.operands(self.members[k]).into_iter().map(of).collect()
    }

    pub(super) fn prim(&self, k: usize) -> &'g Prim {
        self.wiring.graph.nodes()[self.members[k]].prim()
    }

    /// The function that a map applies last.
    pub(super) fn applies(&self, k: usize) -> Option<Scalar> {
        let Prim::Map(row) = self.prim(k) else { return None };
        match row.expr.nodes().last()?.0 {
            ExprNode::Apply(op, _) => Some(op),
            _ => None,
        }
    }

    pub(super) fn monoid(&self, k: usize) -> Option<Monoid> {
        if let Prim::Reduce(row) = self.prim(k) { Some(row.monoid) } else { None }
    }

    pub(super) fn is_free(&self, k: usize) -> bool {
        self.owner[k].is_none()
    }

    /// The operators that some members are part of, each once.
    fn origins(&self, members: &[usize]) -> Vec<Origin> {
        let mut found: Vec<Origin> = Vec::new();
        for k in members {
            if let Some(origin) = &self.origins[*k]
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
            // Of folds and parameters alone: the logit of a sink has its share in a sum.
            let is_parameter = |o: &usize| self.wiring.is_source(*o);
            let of_row = |o: &Option<usize>| {
                o.is_none_or(|o| is_parameter(&o) || of_folds(&self.members.binary_search(&o).ok()))
            };
            let statistic = self.before[k][first]
                && !self.before[k][second]
                && self.wiring.operands(self.members[k]).iter().all(of_row);
            inside[k] |= fold || late || statistic;
        }
        // What masks are computed from belongs to the scores; what values are computed from does not.
        let values: Vec<usize> =
            self.operands(second).into_iter().flatten().filter(|o| *o != first && !self.before[*o][first]).collect();
        for (k, inside) in inside.iter_mut().enumerate().take(second) {
            let of_values = values.iter().any(|v| *v == k || self.before[*v][k]);
            *inside |= self.before[second][k] && !self.before[first][k] && !of_values;
        }
        // Keys and values that are put behind older ones are its own, if nothing else reads them.
        for k in (0..second).rev() {
            let readers = self.wiring.readers(self.members[k]);
            let is_inside = |r: &usize| self.members.binary_search(r).is_ok_and(|r| inside[r]);
            let serves =
                !readers.is_empty() && readers.iter().all(is_inside) && !self.wiring.is_output(self.members[k]);
            inside[k] |= matches!(self.prim(k), Prim::Concat(_)) && serves;
        }
        // So do conversions and whatever else is part of the operators that the two contractions are.
        let of = |k: usize| self.wiring.graph.origin(self.members[k]);
        let shares = |k: usize| [first, second].iter().any(|c| of(k).iter().any(|o| of(*c).iter().any(|p| p == o)));
        let members: Vec<usize> = (0..self.members.len()).filter(|k| inside[*k] || shares(*k)).collect();
        self.assign(Word { text: word.to_string(), origin: None, is_strong: true, at: None }, members);
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
        let mut region = vec![exit];
        let mut best = None;
        while region.len() <= MOST && region.iter().all(|k| self.is_function(*k)) {
            let entries = self.entries(&region);
            if let [entry] = entries.as_slice() {
                best = activation::name_of(|x| self.evaluate(&region, &[(*entry, x)]))
                    .map(|name| (name, region.clone()))
                    .or(best);
            }
            // The last entry that is a map which nothing else reads joins; without one, this is all there is.
            let Some(next) = entries.iter().rev().find_map(|v| self.joins(&region, v.node())) else { break };
            region.push(next);
            region.sort_unstable();
        }
        best
    }

    /// What some maps read that they do not compute.
    pub(super) fn entries(&self, region: &[usize]) -> Vec<Value> {
        let args = region.iter().flat_map(|k| self.wiring.graph.nodes()[self.members[*k]].args());
        let mut entries: Vec<Value> = args.copied().collect();
        entries.sort_unstable();
        entries.dedup();
        entries.retain(|v| self.members.binary_search(&v.node()).map_or(true, |k| !region.contains(&k)));
        entries
    }

    /// The member that makes a node, if nobody but some maps reads it.
    pub(super) fn joins(&self, region: &[usize], node: usize) -> Option<usize> {
        let k = self.members.binary_search(&node).ok()?;
        let is_inside = |reader: &usize| self.members.binary_search(reader).is_ok_and(|r| region.contains(&r));
        let own = self.wiring.readers(node).iter().all(is_inside);
        (own && self.is_free(k) && !self.wiring.is_output(node)).then_some(k)
    }

    /// Whether a member is a map of floats at the same coordinates.
    pub(super) fn is_function(&self, k: usize) -> bool {
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

    /// The last of some maps, where these values are these numbers.
    pub(super) fn evaluate(&self, region: &[usize], entries: &[(Value, f64)]) -> f64 {
        let mut values: Vec<(Value, f64)> = entries.to_vec();
        for k in region {
            let node = &self.wiring.graph.nodes()[self.members[*k]];
            let Prim::Map(row) = node.prim() else { return f64::NAN };
            let value =
                |arg: Value| values.iter().find(|(known, _)| *known == arg).map_or(f64::NAN, |(_, value)| *value);
            let args: Vec<f64> = node.args().iter().map(|a| value(*a)).collect();
            let result = row.expr.eval_f64(&args);
            values.push((Value::new(self.members[*k], 0), result));
        }
        values.last().map_or(f64::NAN, |(_, value)| *value)
    }

    // The rest.

    fn name_operators(&mut self) {
        for k in 0..self.members.len() {
            if !self.is_free(k) {
                continue;
            }
            match self.origins[k].clone() {
                Some(origin) => {
                    let same = |j: &usize| self.is_free(*j) && self.origins[*j].as_ref() == Some(&origin);
                    let members: Vec<usize> = (k..self.members.len()).filter(same).collect();
                    let word = self.operator(origin, &members);
                    self.assign(word, members);
                }
                None => {
                    let text = self.wiring.verb(self.members[k]);
                    let is_strong = is_main(self.prim(k));
                    self.assign(Word { text, origin: None, is_strong, at: None }, [k]);
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
        Word { text, origin: Some(origin), is_strong, at: None }
    }
}

/// For every member, the operator that it is told as a part of. Where operators of one kind share it, as those of equal layers do, that is one
/// that another member is a part of alone: that of this kernel, and not that of the first layer.
fn own_origins(graph: &Graph, members: &[usize]) -> Vec<Option<Origin>> {
    let only = |member: &usize| match graph.origin(*member).iter().collect::<Vec<_>>()[..] {
        [only] => Some(only),
        _ => None,
    };
    let alone: FxHashSet<&Origin> = members.iter().filter_map(only).collect();
    let own = |member: &usize| {
        let all = graph.origin(*member);
        let first = all.iter().next()?;
        let is_own = |origin: &&Origin| origin.op == first.op && alone.contains(origin);
        Some(all.iter().find(is_own).unwrap_or(first).clone())
    };
    members.iter().map(own).collect()
}

/// Whether a primitive is more than one operation on every element.
fn is_main(prim: &Prim) -> bool {
    !matches!(prim.class(), Class::Map | Class::View | Class::Source)
}

/// The name of an operator as people write it.
pub(super) fn pretty(op: &str) -> String {
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
        "RotaryEmbedding" => "RoPE",
        other => other,
    };
    known.to_string()
}

/// Words that say nothing beside others.
const SMALL: [&str; 3] = ["Cast", "Identity", "cast"];

/// A sentence has no more words than this.
const MOST_WORDS: usize = 6;

/// Words as one line: repeated ones are counted, also where others stand between that they do not wait for; of long lists those stay that
/// say what the kernel is about.
fn sentence(words: &[Told<'_>], waits: impl Fn(usize, usize) -> bool) -> String {
    let large: Vec<Told<'_>> = words.iter().copied().filter(|word| !SMALL.contains(&word.text)).collect();
    let words = if large.is_empty() { words } else { &large };
    let is_same = |(a, b): (&Told<'_>, &Told<'_>)| a.text == b.text;
    let repeats = |p: &usize| words.len().is_multiple_of(*p) && words.iter().zip(&words[*p..]).all(is_same);
    match (2..words.len()).find(repeats) {
        Some(period) if words[..period].iter().any(|word| word.text != words[0].text) => {
            format!("{} × ({})", words.len() / period, joined(&words[..period]))
        }
        _ => joined(&gathered(words, waits)),
    }
}

/// Equal words side by side, where they do not wait for what stands between them.
fn gathered<'a>(words: &[Told<'a>], waits: impl Fn(usize, usize) -> bool) -> Vec<Told<'a>> {
    let mut gathered: Vec<Told<'a>> = Vec::with_capacity(words.len());
    for word in words {
        let equal = gathered.iter().rposition(|other| other.text == word.text);
        let has_to_wait = |at: &usize| gathered[at + 1..].iter().any(|between| waits(word.number, between.number));
        gathered.insert(equal.filter(|at| !has_to_wait(at)).map_or(gathered.len(), |at| at + 1), *word);
    }
    gathered
}

fn joined(words: &[Told<'_>]) -> String {
    let mut counted: Vec<(usize, &str, bool)> = Vec::new();
    for Told { text, is_strong, .. } in words {
        match counted.last_mut() {
            Some((count, last, _)) if last == text => *count += 1,
            _ => counted.push((1, text, *is_strong)),
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
        let told = |words: &[&'static str]| {
            let told =
                |(number, text): (usize, &&'static str)| Told { text, is_strong: text.contains("MatMul"), number };
            let words: Vec<Told<'_>> = words.iter().enumerate().map(told).collect();
            // Sums wait for all that is before them.
            sentence(&words, |later, _| words[later].text == "Add")
        };
        assert_eq!(told(&["Cast"]), "Cast");
        assert_eq!(told(&["Cast", "Add"]), "Add");
        assert_eq!(told(&["Add", "Add"]), "2 × Add");
        assert_eq!(told(&["Add", "Add", "Add", "Add"]), "4 × Add");
        assert_eq!(told(&["MatMul", "Add", "MatMul", "Add", "MatMul", "Add"]), "3 × (MatMul + Add)");
        assert_eq!(told(&["Add", "Add", "LayerNorm"]), "2 × Add + LayerNorm");
        assert_eq!(told(&["Add", "LayerNorm", "Add"]), "Add + LayerNorm + Add");
        assert_eq!(told(&["MatMul", "RoPE", "MatMul", "RoPE", "MatMul"]), "3 × MatMul + 2 × RoPE");
        assert_eq!(told(&["a", "b", "c", "d", "e", "f", "g", "MatMul"]), "a + b + c + d + e + MatMul + 2 more");
    }
}
