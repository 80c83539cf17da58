//! From where to where registers are live, and which of them are one.
//!
//! An instruction stands at twice its number: there it reads, and one place behind it writes. What is live in a loop into which it
//! came from outside is live to the loop's end. With what a loop hands on made one register wherever the parts do not overlap,
//! an interval without holes is all that a register needs.

use super::machine::{Function, Named, What};
use super::sequence::{Kind, Sequence};

/// Of which places a register is live, both included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// where it is first written
    pub start: u32,
    /// where it is last read
    pub end: u32,
    /// how much it is used: every use counts 8 times as much in a loop
    pub weight: f32,
    /// in how many loops it was first written
    home: u32,
}

impl Interval {
    /// That of a register that nothing names yet.
    pub const UNUSED: Interval = Interval { start: u32::MAX, end: 0, weight: 0.0, home: u32::MAX };

    /// Whether the register is named at all.
    pub fn is_used(&self) -> bool {
        self.start != u32::MAX
    }

    /// Both, as one register.
    pub fn with(self, other: Interval) -> Interval {
        Interval {
            start: self.start.min(other.start),
            end: if other.is_used() { self.end.max(other.end) } else { self.end },
            weight: self.weight + other.weight,
            home: self.home,
        }
    }

    fn define(&mut self, at: u32, depth: usize) {
        self.start = self.start.min(at);
        self.end = self.end.max(at);
        if self.home == u32::MAX {
            self.home = depth as u32;
        }
    }

    /// Read at a place within loops that end at these places.
    fn read(&mut self, at: u32, ends: &[u32]) {
        self.start = self.start.min(at);
        self.end = self.end.max(ends.get(self.home as usize).copied().unwrap_or(at));
    }

    /// Named by an instruction, in no loop that it came into from outside.
    pub fn name(&mut self, at: u32, named: Named) {
        if named.writes() {
            self.define(at + 1, 0);
        }
        if named.reads() {
            self.read(at + named.delay(), &[]);
        }
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
    pub fn new(function: &Function, sequence: &Sequence, apart: bool) -> Live {
        // made twice, so that what is asked at every register is asked once
        if apart { Live::of::<true>(function, sequence) } else { Live::of::<false>(function, sequence) }
    }

    fn of<const APART: bool>(function: &Function, sequence: &Sequence) -> Live {
        let count = function.sizes.len();
        let mut ends = vec![0; function.loops.len()];
        for place in sequence.places(Kind::Back) {
            if let What::Back(_, id) = function.insts[sequence.order[place as usize] as usize].what {
                ends[id as usize] = 2 * place + 1;
            }
        }
        let mut intervals = Vec::with_capacity(count + count / 4);
        intervals.resize(count, Interval::UNUSED);
        let mut handed = vec![false; if APART { count } else { 0 }];
        if APART {
            function.loops.iter().flat_map(|each| &each.phis).for_each(|phi| handed[phi.param.index()] = true);
        }
        // where the loops that are open end
        let mut open: Vec<u32> = Vec::new();
        let mut weight = 1.0;
        for (place, number) in (0u32..).zip(&sequence.order) {
            let at = 2 * place;
            let (kind, named) = sequence.look(*number);
            match kind {
                Kind::Head => {
                    let What::Head(id) = function.insts[*number as usize].what else { continue };
                    open.push(ends[id as usize]);
                    for phi in function.loops[id as usize].phis.iter().filter(|_| APART) {
                        // even where no trip reads it: without a trip, it is what it was in front of the loop
                        let end = if phi.stays { ends[id as usize] } else { at };
                        let interval = &mut intervals[phi.param.index()];
                        interval.home = open.len() as u32;
                        interval.end = interval.end.max(end);
                    }
                }
                Kind::Exit => {
                    let What::Exit(id) = function.insts[*number as usize].what else { continue };
                    open.pop();
                    for phi in function.loops[id as usize].phis.iter().filter(|_| APART) {
                        intervals[phi.result.index()].define(at, open.len());
                    }
                }
                _ => {}
            }
            weight *= kind.factor();
            for named in named {
                let reg = named.reg().index();
                let interval = &mut intervals[reg];
                // while it is apart, what is written for the next trip is no part of what the trip itself needs
                if named.writes() && !(APART && handed[reg] && interval.is_used()) {
                    interval.define(at + 1, open.len());
                }
                if named.reads() {
                    interval.read(at + named.delay(), &open);
                }
                interval.weight += weight;
            }
        }
        Live { intervals, ends }
    }

    /// Whether all live as long as in another account, with the same weights (whose sums may be rounded in another order). What is handed on in vain
    /// may live longer.
    pub fn covers(&self, other: &Live) -> bool {
        let covers = |(own, other): (&Interval, &Interval)| {
            let is_within = own.start <= other.start && other.end <= own.end;
            !other.is_used() || (is_within && (own.weight - other.weight).abs() <= 1e-3 * other.weight)
        };
        self.ends == other.ends && self.intervals.iter().zip(&other.intervals).all(covers)
    }

    /// Instructions have moved from places to others: those who lived then live on there.
    pub fn move_to(&mut self, places: &[u32]) {
        let moved = |at: u32| 2 * places[at as usize / 2] + at % 2;
        for interval in self.intervals.iter_mut().filter(|interval| interval.is_used()) {
            (interval.start, interval.end) = (moved(interval.start), moved(interval.end));
        }
        self.ends.iter_mut().for_each(|end| *end = moved(*end));
    }
}
