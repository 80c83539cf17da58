//! From where to where registers are live, and which of them are one.
//!
//! An instruction stands at twice its number: there it reads, and one place behind it writes. What is live in a loop into which it
//! came from outside is live to the loop's end. With what a loop hands on made one register wherever the parts do not overlap,
//! an interval without holes is all that a register needs.

use super::machine::{Function, Reg, Role, What};

/// Of which places a register is live, both included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// where it is first written
    pub start: u32,
    /// where it is last read
    pub end: u32,
    /// how much it is used: every use counts 8 times as much in a loop
    pub weight: f32,
}

impl Interval {
    const UNKNOWN: Interval = Interval { start: u32::MAX, end: 0, weight: 0.0 };

    /// Whether the register is named at all.
    pub fn is_used(&self) -> bool {
        self.start != u32::MAX
    }
}

/// Intervals of all registers.
#[derive(Debug)]
pub struct Live {
    /// by register
    pub intervals: Vec<Interval>,
    /// where loops end, by their number
    pub ends: Vec<u32>,
}

impl Live {
    /// The intervals of a function. While what loops hand on is not yet one register (`apart`), a parameter is live from trip to trip only
    /// as far as the trip itself reads it.
    pub fn new(function: &Function, apart: bool) -> Live {
        let count = function.sizes.len();
        let mut ends = vec![0; function.loops.len()];
        for (place, inst) in function.insts.iter().enumerate() {
            if let What::Back(_, id) = inst.what {
                ends[id as usize] = 2 * place as u32 + 1;
            }
        }
        let mut live = Live { intervals: vec![Interval::UNKNOWN; count], ends };
        let mut homes = vec![u32::MAX; count];
        let mut handed = vec![false; count];
        for phi in function.loops.iter().flat_map(|l| &l.phis) {
            handed[phi.param.index()] = apart;
        }
        let mut open: Vec<u32> = Vec::new();
        let mut weight = 1.0;
        for (place, inst) in function.insts.iter().enumerate() {
            let at = 2 * place as u32;
            match inst.what {
                What::Head(id) => {
                    open.push(id);
                    weight *= 8.0;
                    if apart {
                        for phi in &function.loops[id as usize].phis {
                            homes[phi.param.index()] = open.len() as u32;
                            // even where no trip reads it: without a trip, it is what it was in front of the loop
                            let end = if phi.stays { live.ends[id as usize] } else { at };
                            let interval = &mut live.intervals[phi.param.index()];
                            interval.end = interval.end.max(end);
                        }
                    }
                }
                What::Exit(id) => {
                    open.pop();
                    weight /= 8.0;
                    if apart {
                        for phi in &function.loops[id as usize].phis {
                            live.define(phi.result, at, &mut homes, open.len());
                        }
                    }
                }
                _ => {}
            }
            inst.each_reg(|reg, role| {
                // while it is apart, what is written for the next trip is no part of what the trip itself needs
                let for_next = handed[reg.index()] && live.intervals[reg.index()].is_used();
                if matches!(role, Role::Def | Role::Change) && !for_next {
                    live.define(reg, at + 1, &mut homes, open.len());
                }
                if matches!(role, Role::Use | Role::Late | Role::Change) {
                    live.read(reg, at + u32::from(role != Role::Use), homes[reg.index()], &open);
                }
                live.intervals[reg.index()].weight += weight;
            });
        }
        live
    }

    fn define(&mut self, reg: Reg, at: u32, homes: &mut [u32], depth: usize) {
        let interval = &mut self.intervals[reg.index()];
        interval.start = interval.start.min(at);
        interval.end = interval.end.max(at);
        if homes[reg.index()] == u32::MAX {
            homes[reg.index()] = depth as u32;
        }
    }

    fn read(&mut self, reg: Reg, at: u32, home: u32, open: &[u32]) {
        let end = match open.get(home as usize) {
            Some(outermost) => self.ends[*outermost as usize],
            None => at,
        };
        let interval = &mut self.intervals[reg.index()];
        interval.start = interval.start.min(at);
        interval.end = interval.end.max(end);
    }
}
