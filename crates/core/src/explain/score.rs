//! The familiar scorecard of a decision, read from the numbers that decided it.

use super::wiring::Wiring;
use crate::analysis::Scorecard;
use crate::analysis::scorecard::{Bottleneck, Proposal, Side, Tally};
use crate::device::DeviceSpec;
use crate::fuse::{Cost, Decision, PlannedKernel, Verdict};
use crate::lower::Hints;
use crate::ops::Prim;
use crate::ops::prim::Class;
use crate::tensor::{DType, Symbol};

/// Scores decisions about one graph.
pub(super) struct Scorer<'a> {
    pub wiring: &'a Wiring<'a>,
    pub spec: &'a DeviceSpec,
    pub hints: &'a Hints,
    /// for every node, whether the plan stores it
    pub is_stored: Vec<bool>,
    /// whether each node is computed in several kernels
    pub is_repeated: Vec<bool>,
}

impl Scorer<'_> {
    /// The scorecard of a decision. Where no kernel can do it, that of the kernel that one would wish for: what lies between
    /// the two is neither written nor read, and there is one launch.
    pub fn card(&self, decision: &Decision) -> Scorecard {
        let [first, second] = decision.sides;
        let between = self.between(decision);
        let intermediate: f64 = between.iter().map(|node| self.bytes(*node)).sum();
        let before = decision.before();
        let after = decision.after.unwrap_or(Cost {
            bytes: (before.bytes - 2.0 * intermediate).max(0.0),
            launches: 1.0,
            ..before
        });
        let inside = |node: &usize| {
            decision.producer.binary_search(node).is_ok() || decision.consumer.binary_search(node).is_ok()
        };
        // What was done is judged by what became of it: other readers may have come into the same kernel since.
        let is_needed = |node: &usize| match decision.verdict {
            Verdict::Taken => self.is_stored[*node],
            Verdict::Refused => self.wiring.is_output(*node) || !self.wiring.readers(*node).iter().all(inside),
        };
        Scorecard::of(&Proposal {
            before: tally(before),
            after: tally(after),
            producer: self.side(&decision.producer, first),
            consumer: self.side(&decision.consumer, second),
            intermediate,
            cache: self.spec.last_cache().bytes as f64,
            needed_elsewhere: between.iter().any(is_needed),
            same_data: self.domain(&decision.producer) == self.domain(&decision.consumer),
            same_order: self.reads_in_order(decision),
        })
    }

    /// The scorecard of a whole kernel, compared with the kernels that its operators would be; none where it is one operator.
    pub fn kernel_card(&self, kernel: &PlannedKernel, apart: &[&PlannedKernel]) -> Option<Scorecard> {
        let cost = |kernel: &PlannedKernel| Cost {
            us: kernel.price.us,
            bytes: kernel.work.footprint(),
            flops: kernel.work.flops(),
            launches: kernel.work.launches,
            registers: kernel.work.registers,
        };
        // Of more than two, those that decide how the kernel is built.
        let mut heaviest: Vec<&PlannedKernel> = apart.to_vec();
        heaviest.sort_by_key(|part| std::cmp::Reverse(weight(&self.class(&part.members))));
        heaviest.truncate(2);
        heaviest.sort_by_key(|part| part.members[0]);
        let [first, second] = heaviest.as_slice() else { return None };
        let written: Vec<usize> = apart.iter().flat_map(|part| part.outputs.iter().map(|v| v.node())).collect();
        let stored = |node: &usize| kernel.outputs.iter().any(|v| v.node() == *node);
        let read = |node: &&usize| {
            self.wiring.readers(**node).iter().any(|reader| kernel.members.binary_search(reader).is_ok())
        };
        let between: Vec<usize> = written.iter().filter(read).copied().collect();
        let domains: Vec<f64> = apart.iter().map(|part| self.domain(&part.members)).collect();
        Some(Scorecard::of(&Proposal {
            before: tally(apart.iter().map(|part| cost(part)).fold(Cost::default(), |sum, cost| sum + cost)),
            after: tally(cost(kernel)),
            producer: self.side(&first.members, cost(first)),
            consumer: self.side(&second.members, cost(second)),
            intermediate: between.iter().map(|node| self.bytes(*node)).sum(),
            cache: self.spec.last_cache().bytes as f64,
            needed_elsewhere: between.iter().any(stored),
            same_data: domains.windows(2).all(|pair| pair[0] == pair[1]),
            same_order: true,
        }))
    }

    /// The nodes of the first side that the second reads.
    fn between(&self, decision: &Decision) -> Vec<usize> {
        let reads = decision.consumer.iter().flat_map(|node| self.wiring.operands(*node)).flatten();
        let mut found: Vec<usize> = reads.filter(|node| decision.producer.binary_search(node).is_ok()).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    fn bytes(&self, node: usize) -> f64 {
        self.wiring.graph.nodes()[node].types().iter().map(|ty| self.hints.size(&ty.bytes())).sum()
    }

    fn side(&self, nodes: &[usize], cost: Cost) -> Side {
        let dtype = nodes.last().map_or(DType::F32, |node| self.wiring.graph.nodes()[*node].types()[0].dtype);
        let intensity = if cost.bytes > 0.0 { cost.flops / cost.bytes } else { 0.0 };
        let bottleneck = match intensity > self.spec.balance(dtype) {
            true => Bottleneck::Compute,
            false => Bottleneck::Memory,
        };
        Side { class: self.class(nodes), bottleneck, intensity, dtype, block: None }
    }

    /// The class that decides the kernel of some nodes.
    fn class(&self, nodes: &[usize]) -> Class {
        let classes = nodes.iter().map(|node| self.wiring.graph.nodes()[*node].prim().class());
        classes.max_by_key(weight).unwrap_or(Class::Map)
    }

    /// The most elements that any node of a side reads or writes.
    fn domain(&self, nodes: &[usize]) -> f64 {
        let graph = self.wiring.graph;
        let sizes = nodes.iter().flat_map(|id| {
            let node = &graph.nodes()[*id];
            let read = node.args().iter().map(|a| &graph.ty(*a).shape);
            read.chain(node.types().iter().map(|ty| &ty.shape))
        });
        sizes.map(|shape| self.hints.size(&shape.count())).fold(0.0, f64::max)
    }

    /// Whether the second side reads what the first writes without changing the order of its axes.
    fn reads_in_order(&self, decision: &Decision) -> bool {
        let graph = self.wiring.graph;
        let mut todo: Vec<usize> = decision.consumer.clone();
        while let Some(node) = todo.pop() {
            for arg in graph.nodes()[node].args() {
                let Prim::View(view) = graph.node_of(*arg).prim() else { continue };
                let from = self.wiring.operands(arg.node()).into_iter().flatten().next();
                if from.is_none_or(|from| decision.producer.binary_search(&from).is_err()) {
                    continue;
                }
                let mut last = None;
                for dim in &view.map {
                    let mut first = None;
                    dim.for_each_symbol(&mut |symbol| {
                        if let Symbol::Axis(axis) = symbol {
                            first = Some(first.map_or(*axis, |other: u8| other.min(*axis)));
                        }
                    });
                    if first.is_some() && first < last {
                        return false;
                    }
                    last = first.max(last);
                }
                todo.push(arg.node());
            }
        }
        true
    }
}

/// How much a class has to say about the kernel of a group.
fn weight(class: &Class) -> u32 {
    match class {
        Class::Control => 7,
        Class::Opaque => 6,
        Class::Contract => 5,
        Class::Reduce => 4,
        Class::Index => 3,
        Class::Map => 2,
        Class::View => 1,
        Class::Source => 0,
    }
}

fn tally(cost: Cost) -> Tally {
    Tally { bytes: cost.bytes, flops: cost.flops, launches: cost.launches, registers: cost.registers }
}
