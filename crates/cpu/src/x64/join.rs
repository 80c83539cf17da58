//! Makes one register of what a loop hands on: the value in front of the loop, in a trip, for the next trip and behind the loop.
//!
//! Two registers are made one if one is last read where the other is first written, or before. Inner loops come first, so that
//! what an outer loop hands through an inner one becomes one register as well. What a trip computes step by step from what it was given
//! to what it hands on (a sum to which it adds several times) is one register from end to end.

use smallvec::SmallVec;

use super::live::{Interval, Live};
use super::machine::{Function, Operand, Reg, Role, What};
use super::sequence::Sequence;

/// Joins registers, renames them, and drops the copies that copied a register to itself. From where to where registers are live then.
pub fn join(function: &mut Function, sequence: &mut Sequence) -> Live {
    let Live { intervals, ends } = Live::new(function, sequence, true);
    if function.loops.is_empty() {
        return Live { intervals, ends };
    }
    let count = function.sizes.len();
    let mut sets = Sets { parents: (0..count as u32).collect(), intervals, renewed: vec![u32::MAX; count] };
    for phi in function.loops.iter().flat_map(|each| &each.phis) {
        sets.renewed[phi.param.index()] = phi.renewed.saturating_mul(2);
    }
    let mut inner_first: Vec<usize> = (0..function.loops.len()).collect();
    inner_first.sort_by_key(|id| ends[*id]);
    let mut unread = Vec::new();
    for id in inner_first {
        for phi in std::mem::take(&mut function.loops[id].phis) {
            if let Some((inst, from)) = phi.next {
                sets.chain(phi.param, from, 2 * inst, (function, sequence));
                sets.join(phi.param, from, 2 * inst, function);
            }
            sets.settle(phi.param, ends[id]);
            let behind = sets.intervals[phi.result.index()];
            if behind.start == behind.end {
                unread.push((phi.param, behind.end, ends[id]));
            }
            sets.unite(phi.param, phi.result);
            if let Some(from) = phi.first {
                let until = sets.until(from);
                sets.join(from, phi.param, until, function);
            }
        }
    }
    // What nobody reads behind its loop is not live there.
    for (param, behind, end) in unread {
        let interval = sets.of(param);
        interval.end = if interval.end == behind { end } else { interval.end };
    }
    let names: Vec<Reg> = (0..count as u32).map(|reg| sets.find(Reg(reg))).collect();
    let mut live = Live { intervals: sets.intervals, ends };
    for (reg, interval) in live.intervals.iter_mut().enumerate() {
        if names[reg].index() != reg {
            *interval = Interval::UNUSED;
        }
    }
    let places = sequence.rename(function, &names, |reg, weight| live.intervals[reg.index()].weight -= 2.0 * weight);
    live.move_to(&places);
    debug_assert!(live.covers(&Live::new(function, sequence, false)), "what lives where, found anew");
    live
}

/// Registers that are one, with their common interval.
struct Sets {
    parents: Vec<u32>,
    intervals: Vec<Interval>,
    /// where the parameter of a loop that is still to be looked at is written anew: what shares its register must have been read
    renewed: Vec<u32>,
}

impl Sets {
    fn find(&mut self, reg: Reg) -> Reg {
        let mut root = reg.0;
        while self.parents[root as usize] != root {
            let grand = self.parents[self.parents[root as usize] as usize];
            self.parents[root as usize] = grand;
            root = grand;
        }
        Reg(root)
    }

    /// The interval of the register that this one is now.
    fn of(&mut self, reg: Reg) -> &mut Interval {
        let root = self.find(reg);
        &mut self.intervals[root.index()]
    }

    /// A parameter, when all that may be one with it in the trip has been joined: it is live to the end of its loop.
    fn settle(&mut self, reg: Reg, end: u32) {
        let root = self.find(reg);
        self.renewed[root.index()] = u32::MAX;
        let interval = self.of(root);
        interval.end = interval.end.max(end);
    }

    /// Up to where a register keeps what it holds.
    fn until(&mut self, reg: Reg) -> u32 {
        let root = self.find(reg);
        self.renewed[root.index()]
    }

    /// Makes them one if the second begins behind the end of the first, and ends no later than `until`.
    fn join(&mut self, first: Reg, second: Reg, until: u32, function: &Function) {
        let (first, second) = (self.find(first), self.find(second));
        let fits = self.intervals[second.index()].start > self.intervals[first.index()].end
            && self.intervals[second.index()].end <= until
            && function.sizes[first.index()] == function.sizes[second.index()]
            && function.constants[first.index()].is_none()
            && function.constants[second.index()].is_none();
        if first != second && fits {
            self.unite(first, second);
        }
    }

    /// Makes one all steps from a parameter to what is handed on, if each is last read where the next is first written.
    fn chain(&mut self, param: Reg, next: Reg, until: u32, (function, sequence): (&Function, &Sequence)) {
        let param = self.find(param);
        let mut steps: SmallVec<[Reg; 8]> = SmallVec::new();
        let mut last = self.find(next);
        if self.intervals[last.index()].end > until {
            return;
        }
        while last != param {
            steps.push(last);
            let start = self.intervals[last.index()].start;
            let Some(number) = sequence.order.get(start as usize / 2) else { return };
            let inst = &function.insts[*number as usize];
            // of a fused multiply-add the sum first
            let mut operands = match inst.what {
                What::Fma(_) | What::Xor(_) => [inst.operands[3], inst.operands[1], inst.operands[2]],
                What::Code(_) | What::Copy | What::Add => [inst.operands[1], inst.operands[2], inst.operands[3]],
                _ => return,
            }
            .into_iter()
            .filter_map(|operand| self.ends_before(&operand, last, function))
            .collect::<SmallVec<[Reg; 3]>>()
            .into_iter();
            let before = operands.clone().find(|set| *set == param).or_else(|| operands.next());
            match before {
                Some(before) => last = before,
                None => return,
            }
        }
        for step in steps {
            self.unite(param, step);
        }
    }

    /// The set of an operand, if another that begins where it is read may go on in its place.
    fn ends_before(&mut self, operand: &Operand, next: Reg, function: &Function) -> Option<Reg> {
        let Operand::Reg(reg, _, Role::Use) = operand else { return None };
        let set = self.find(*reg);
        let fits = self.intervals[set.index()].end < self.intervals[next.index()].start
            && function.sizes[set.index()] == function.sizes[next.index()]
            && function.constants[set.index()].is_none();
        fits.then_some(set)
    }

    fn unite(&mut self, first: Reg, second: Reg) {
        let (first, second) = (self.find(first), self.find(second));
        if first == second {
            return;
        }
        self.intervals[first.index()] = self.intervals[first.index()].with(self.intervals[second.index()]);
        self.renewed[first.index()] = self.renewed[first.index()].min(self.renewed[second.index()]);
        self.parents[second.index()] = first.0;
    }
}
