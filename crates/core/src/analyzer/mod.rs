//! Fusion candidates among operations that are fed by hand.
//!
//! Comes in: [`Operation`]s with the tensors they read and write, and what is known of their work. Goes out: an [`Analysis`]:
//! every pair with a tensor between them, decided and explained, and the kernels that the taken ones make. No graph, no
//! kernel code: this is the pocket calculator beside the planner, with the same prices and the same scorecard.
//!
//! ```
//! use fuseline::analyzer::{Analyzer, Operation, Tensor};
//! use fuseline::device::DeviceSpec;
//! use fuseline::tensor::DType;
//!
//! let mut analyzer = Analyzer::new();
//! analyzer
//!     .add_operation(Operation::new("layernorm").reads(Tensor::shaped("x", DType::F32, &[8192, 4096])).writes("h").memory_bound())
//!     .add_operation(Operation::new("gelu").reads("h").writes("y").elementwise());
//! let analysis = analyzer.analyze(DeviceSpec::find("h200")?)?;
//! assert_eq!(analysis.candidates[0].scorecard.to_string(), "FUSE 0.85");
//! # Ok::<(), fuseline::error::Error>(())
//! ```

mod decision;
mod kernel;
mod network;
mod operation;
mod shapes;
#[cfg(test)]
mod tests;

pub use decision::{Candidate, Condition, Lifted, Reason, Verdict};
pub use kernel::Totals;
pub use operation::{Operation, Tensor};

use indexmap::IndexMap;
use network::Network;

use crate::analysis::scorecard::Bottleneck;
use crate::analysis::{Bound, Scorecard};
use crate::device::DeviceSpec;
use crate::error::Result;
use crate::ops::prim::Class;

/// Who has the last word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// microseconds; limits that only texts have are lifted, and said so
    #[default]
    ByCost,
    /// what texts on fusion refuse is refused
    Textbook,
}

/// Collects operations and finds what to fuse.
#[derive(Clone, Debug, Default)]
pub struct Analyzer {
    operations: Vec<Operation>,
    policy: Policy,
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Analysis {
    /// the device's name
    pub target: String,
    /// the operations by themselves, in the order of the data
    pub operations: Vec<Summary>,
    /// every pair with a tensor between them; the largest saving first
    pub candidates: Vec<Candidate>,
    /// the kernels at the sizes given, in the order of the data; every operation is in one of them
    pub groups: Vec<Group>,
    /// all operations apart
    pub before: Totals,
    /// the kernels
    pub after: Totals,
    /// what was not said and had to be assumed
    pub assumptions: Vec<String>,
}

/// One operation by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// its name
    pub name: String,
    /// what it does with its elements
    pub class: Class,
    /// what its time goes to, as said or derived
    pub bottleneck: Bottleneck,
    /// operations for each byte
    pub intensity: f64,
    /// what it moves, starts and takes
    pub totals: Totals,
    /// what its time goes to, as priced
    pub bound: Bound,
}

/// Operations that become one kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// names of the operations, in the order of the data
    pub operations: Vec<String>,
    /// the operations apart
    pub before: Totals,
    /// the kernel
    pub after: Totals,
    /// the weighted score of the whole group; none for a single operation
    pub scorecard: Option<Scorecard>,
}

impl Group {
    /// `a + b + c`.
    pub fn name(&self) -> String {
        self.operations.join(" + ")
    }
}

impl Analyzer {
    /// No operations yet.
    pub fn new() -> Analyzer {
        Analyzer::default()
    }

    /// Adds an operation. The order does not matter: names of tensors join them.
    pub fn add_operation(&mut self, operation: Operation) -> &mut Analyzer {
        self.operations.push(operation);
        self
    }

    /// Says who has the last word.
    pub fn set_policy(&mut self, policy: Policy) -> &mut Analyzer {
        self.policy = policy;
        self
    }

    /// Finds and decides all candidates. Fails where the operations contradict themselves: two that write one tensor, that
    /// wait for each other, that give a tensor two sizes, or whose shapes do not fit what they are said to do.
    pub fn analyze(&self, spec: &DeviceSpec) -> Result<Analysis> {
        let network = Network::of(&self.operations, spec)?;
        let pairs = network.pairs();
        let mut candidates: Vec<Candidate> = pairs.iter().map(|(p, c)| network.decide(*p, *c, self.policy)).collect();
        let members = fuse(&network, &pairs, &mut candidates);
        candidates.sort_by(|a, b| b.saved_us().total_cmp(&a.saved_us()));
        let groups: Vec<Group> = members.iter().map(|m| group(&network, m)).collect();
        Ok(Analysis {
            target: spec.name.clone(),
            operations: (0..network.operations.len()).map(|at| summary(&network, at)).collect(),
            candidates,
            before: groups.iter().map(|g| g.before).sum(),
            after: groups.iter().map(|g| g.after).sum(),
            groups,
            assumptions: network.assumptions,
        })
    }
}

impl Analysis {
    /// The candidate with this producer and this consumer.
    pub fn candidate(&self, producer: &str, consumer: &str) -> Option<&Candidate> {
        self.candidates.iter().find(|c| c.producer == producer && c.consumer == consumer)
    }

    /// How many candidates the scorecard judges differently.
    pub fn disagreements(&self) -> usize {
        self.candidates.iter().filter(|c| c.disagrees()).count()
    }
}

/// Takes candidates one after the other, the best first, as long as the group that they make is one kernel too; those
/// that no longer fit are refused with the reason. Returns the groups, each in the order of the data.
fn fuse(network: &Network<'_>, pairs: &[(usize, usize)], candidates: &mut [Candidate]) -> Vec<Vec<usize>> {
    let mut group_of: Vec<usize> = (0..network.operations.len()).collect();
    let mut order: Vec<usize> = (0..pairs.len()).filter(|at| candidates[*at].is_taken()).collect();
    // Whoever reads a view sees through it for nothing, so a view goes to its reader before anybody writes through it.
    let is_view = |at: usize| network.operations[pairs[at].0].class == Class::View;
    order.sort_by(|a, b| {
        let by_gain = candidates[*b].saved_us().total_cmp(&candidates[*a].saved_us());
        is_view(*b).cmp(&is_view(*a)).then(by_gain)
    });
    let members = |group_of: &[usize], group: usize| -> Vec<usize> {
        (0..group_of.len()).filter(|at| group_of[*at] == group).collect()
    };
    for at in order {
        let (p, c) = (group_of[pairs[at].0], group_of[pairs[at].1]);
        if p == c {
            continue;
        }
        let parts = [members(&group_of, p), members(&group_of, c)];
        match refusal(network, &parts) {
            Some(reason) => candidates[at].verdict = Verdict::KeepApart(reason),
            None => group_of.iter_mut().filter(|g| **g == c).for_each(|g| *g = p),
        }
    }
    let mut groups: IndexMap<usize, Vec<usize>> = IndexMap::new();
    for (at, group) in group_of.into_iter().enumerate() {
        groups.entry(group).or_default().push(at);
    }
    groups.into_values().collect()
}

/// Why two groups cannot or should not become one.
fn refusal(network: &Network<'_>, parts: &[Vec<usize>; 2]) -> Option<Reason> {
    let contracts = |part: &[usize]| part.iter().any(|m| network.operations[*m].class == Class::Contract);
    if contracts(&parts[0]) && contracts(&parts[1]) {
        let larger = parts.iter().max_by_key(|p| p.len()).filter(|p| p.len() > 1);
        let names =
            |p: &Vec<usize>| p.iter().map(|m| network.operations[*m].name.as_str()).collect::<Vec<_>>().join(" + ");
        return Some(larger.map_or(Reason::TwoContractions, |p| Reason::Taken(names(p))));
    }
    let mut all = parts.concat();
    all.sort_unstable();
    if let Some(at) = network.between(&all) {
        return Some(Reason::Between(network.operations[at].name.clone()));
    }
    if let Some(reason) = network.too_long(&all) {
        return Some(reason);
    }
    let gain = network.price(&parts[0], 1.0).us + network.price(&parts[1], 1.0).us - network.price(&all, 1.0).us;
    (gain <= 0.0).then_some(Reason::Slower(-gain))
}

fn summary(network: &Network<'_>, at: usize) -> Summary {
    let operation = &network.operations[at];
    Summary {
        name: operation.name.clone(),
        class: operation.class,
        bottleneck: operation.bottleneck,
        intensity: operation.intensity(),
        totals: network.totals(&[at]),
        bound: network.price(&[at], 1.0).bound,
    }
}

fn group(network: &Network<'_>, members: &[usize]) -> Group {
    let before: Totals = members.iter().map(|m| network.totals(&[*m])).sum();
    let after = network.totals(members);
    let written = members.iter().flat_map(|m| &network.operations[*m].outputs).copied();
    let is_read = |t: &usize| network.tensors[*t].readers.iter().any(|r| members.binary_search(r).is_ok());
    let between: Vec<usize> = written.filter(is_read).collect();
    let scorecard = (members.len() > 1).then(|| Scorecard::of(&network.proposal(members, &before, &after, &between)));
    let operations = members.iter().map(|m| network.operations[*m].name.clone()).collect();
    Group { operations, before, after, scorecard }
}
