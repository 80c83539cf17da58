//! From where to where registers are live, and which of them are one.
//!
//! An instruction stands at twice its number: there it reads, and one place behind it writes. What is live in a loop into which it
//! came from outside is live to the loop's end. With what a loop hands on made one register wherever the parts do not overlap,
//! an interval without holes is all that a register needs.

use super::machine::{Function, Role, What};

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

/// What is known of a register while instructions are looked at.
#[derive(Clone, Copy)]
struct Track {
    start: u32,
    end: u32,
    weight: f32,
    /// in how many loops it was first written
    home: u32,
}

impl Track {
    const UNKNOWN: Track = Track { start: u32::MAX, end: 0, weight: 0.0, home: u32::MAX };

    fn define(&mut self, at: u32, depth: usize) {
        self.start = self.start.min(at);
        self.end = self.end.max(at);
        if self.home == u32::MAX {
            self.home = depth as u32;
        }
    }

    /// Read at a place within these loops, which end at these places.
    fn read(&mut self, at: u32, open: &[u32], ends: &[u32]) {
        let end = match open.get(self.home as usize) {
            Some(outermost) => ends[*outermost as usize],
            None => at,
        };
        self.start = self.start.min(at);
        self.end = self.end.max(end);
    }
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
        let mut tracks = vec![Track::UNKNOWN; count];
        let mut handed = vec![false; if apart { count } else { 0 }];
        if apart {
            function.loops.iter().flat_map(|each| &each.phis).for_each(|phi| handed[phi.param.index()] = true);
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
                            // even where no trip reads it: without a trip, it is what it was in front of the loop
                            let end = if phi.stays { ends[id as usize] } else { at };
                            let track = &mut tracks[phi.param.index()];
                            track.home = open.len() as u32;
                            track.end = track.end.max(end);
                        }
                    }
                }
                What::Exit(id) => {
                    open.pop();
                    weight /= 8.0;
                    if apart {
                        for phi in &function.loops[id as usize].phis {
                            tracks[phi.result.index()].define(at, open.len());
                        }
                    }
                }
                _ => {}
            }
            inst.each_reg(|reg, role| {
                let track = &mut tracks[reg.index()];
                // while it is apart, what is written for the next trip is no part of what the trip itself needs
                let for_next = apart && handed[reg.index()] && track.start != u32::MAX;
                if matches!(role, Role::Def | Role::Change) && !for_next {
                    track.define(at + 1, open.len());
                }
                if matches!(role, Role::Use | Role::Late | Role::Change) {
                    track.read(at + u32::from(role != Role::Use), &open, &ends);
                }
                track.weight += weight;
            });
        }
        let interval = |track: &Track| Interval { start: track.start, end: track.end, weight: track.weight };
        Live { intervals: tracks.iter().map(interval).collect(), ends }
    }
}
