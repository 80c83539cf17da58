//! What one plan learns for the next: prices and kernels of equal sets of nodes.

use rustc_hash::FxHashMap;

use super::evaluate::Evaluated;
use super::plan::Finished;
use super::structure::Numbering;

/// What is known of sets of nodes by their structure, on one device, with one choice of numbers for sizes and of numerics: plans of graphs
/// that have much in common share it. It only decides how long a plan takes: what a plan looks at counts as its effort whoever has
/// looked at it before.
#[derive(Default)]
pub(crate) struct Knowledge {
    pub(super) numbering: Numbering,
    known: FxHashMap<Box<[u32]>, Known>,
    /// kernels by the number of their structure
    pub(super) kernels: FxHashMap<u32, Finished>,
    /// the plan that is being made
    plan: u32,
}

/// What is known of a set of nodes.
struct Known {
    found: Evaluated,
    /// what it took to find out
    effort: u64,
    /// the last plan that has asked
    plan: u32,
}

impl Knowledge {
    /// Says that another plan begins.
    pub(super) fn begin_plan(&mut self) {
        self.plan += 1;
    }

    /// What is known of a structure, and what counts as effort: nothing where this plan has asked before.
    pub(super) fn find(&mut self, structure: &[u32]) -> Option<(Evaluated, u64)> {
        let known = self.known.get_mut(structure)?;
        let is_new = std::mem::replace(&mut known.plan, self.plan) != self.plan;
        Some((known.found.clone(), if is_new { known.effort } else { 0 }))
    }

    /// The number of the next structure that is learnt.
    pub(super) fn next_structure(&self) -> u32 {
        self.known.len() as u32
    }

    pub(super) fn insert(&mut self, structure: Box<[u32]>, found: Evaluated, effort: u64) {
        self.known.insert(structure, Known { found, effort, plan: self.plan });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceSpec;
    use crate::fuse::{Plan, PlanOptions, plan, plan_knowing, price_knowing};
    use crate::graph::{Builder, Graph};
    use crate::tensor::{DType, Shape};

    /// Norms, one after the other; the last with a function of it.
    fn norms(count: usize, ends: bool) -> Graph {
        let b = Builder::new("norms");
        let mut x = b.input("x", DType::F32, Shape::new([8usize, 64]));
        for _ in 0..count {
            let centred = x - x.mean(&[1]);
            x = centred / ((centred * centred).mean(&[1]) + 1e-5).sqrt();
        }
        b.output("y", if ends { x.tanh() } else { x });
        b.finish().unwrap()
    }

    #[test]
    fn what_another_plan_has_learnt_changes_nothing() {
        let said = |plan: &Plan| {
            let kernels: Vec<String> = plan.kernels.iter().map(|k| format!("{:?} {}", k.inputs, k.kernel)).collect();
            (kernels, format!("{:?}", plan.decisions), plan.cost, plan.effort)
        };
        for target in ["cpu", "h200"] {
            let options = PlanOptions::on(DeviceSpec::find(target).unwrap());
            let mut knowledge = Knowledge::default();
            for graph in [norms(1, false), norms(3, true), norms(3, false), norms(3, true)] {
                let alone = plan(&graph, &options).unwrap();
                assert_eq!(price_knowing(&graph, &options, &mut knowledge).unwrap().us, alone.cost.us);
                assert_eq!(said(&plan_knowing(&graph, &options, &mut knowledge).unwrap()), said(&alone));
            }
        }
    }
}
