//! Places for registers: a linear scan over their intervals.
//!
//! Registers are looked at in the order in which they begin to live. Where no place is free, the one that is used least for its length is
//! put aside: a constant is then taken from the pool wherever it is used, everything else lies on the stack (`spill`), and the scan
//! begins anew over the code that this gave.

use fuseline::error::{Error, Result};

use super::live::{Interval, Live};
use super::machine::{Class, Function, Operand, Reg, Role, What};
use super::sequence::{Kind, Sequence};
use super::spill;
use super::table::Level;

/// Where a register is: the number of the machine's register in its class.
pub type Place = u8;

/// rax and rdx, which divisions use.
const DIVISION: u32 = 1 << RAX | 1 << RDX;
const RAX: u8 = 0;
const RDX: u8 = 2;
/// the stack's
pub const RSP: u8 = 4;
/// where the arguments of a call arrive: rdi, rsi, rdx, rcx
pub const ARGUMENTS: [u8; 4] = [7, 6, RDX, 1];
/// Those that a function may change come first.
const INTEGERS: [u8; 15] = [0, 1, 2, 6, 7, 8, 9, 10, 11, 3, 5, 12, 13, 14, 15];

/// Places of all registers, and what is live where routines are called.
#[derive(Debug)]
pub struct Places {
    /// by register; what is never used has place 0
    pub of: Vec<Place>,
    /// for every call, what must survive it: class and place
    pub across_calls: Vec<Vec<(Reg, Place)>>,
}

/// Finds places, putting registers aside until all others fit.
pub fn allocate(function: &mut Function, sequence: &mut Sequence, mut live: Live) -> Result<Places> {
    // every round puts aside at least one register that is not brief, and those do not become more
    for _ in 0..=function.sizes.len() {
        let mut scan = Scan::new(function, sequence, &live);
        scan.run()?;
        if !scan.is_short {
            let across_calls = scan.across_calls();
            return Ok(Places { of: scan.places, across_calls });
        }
        let aside = scan.aside;
        spill::put_aside(function, sequence, &aside, &mut live);
    }
    Err(Error::bug("registers of a program do not fit, whatever lies on the stack"))
}

/// The end of a list of registers.
const NONE: u32 = u32::MAX;

struct Scan<'a> {
    function: &'a Function,
    sequence: &'a Sequence,
    live: &'a Live,
    places: Vec<Place>,
    aside: Vec<bool>,
    /// whether something was put aside
    is_short: bool,
    /// by class: what is taken, and by whom
    taken: [u32; 3],
    holders: [[Reg; 32]; 3],
    /// by class: how much is lost if what is held is put aside
    worths: [[f32; 32]; 3],
    /// by place in the order: the first of those that end there; by register: the next one
    ending: Vec<u32>,
    next: Vec<u32>,
    /// where divisions stand
    divisions: Vec<u32>,
}

impl<'a> Scan<'a> {
    fn new(function: &'a Function, sequence: &'a Sequence, live: &'a Live) -> Scan<'a> {
        let count = function.sizes.len();
        Scan {
            function,
            sequence,
            live,
            places: vec![0; count],
            aside: vec![false; count],
            is_short: false,
            taken: [0; 3],
            holders: [[Reg(0); 32]; 3],
            worths: [[0.0; 32]; 3],
            ending: vec![NONE; 2 * sequence.order.len()],
            next: vec![NONE; count],
            divisions: sequence.places(Kind::Divide).map(|place| 2 * place).collect(),
        }
    }

    fn run(&mut self) -> Result<()> {
        // those that begin at a place in the order of their numbers
        let (mut starting, mut next) = (vec![NONE; self.ending.len()], vec![NONE; self.next.len()]);
        for (reg, interval) in self.live.intervals.iter().enumerate().rev().filter(|(_, i)| i.is_used()) {
            next[reg] = std::mem::replace(&mut starting[interval.start as usize], reg as u32);
        }
        for (at, first) in starting.into_iter().enumerate() {
            let mut reg = first;
            while reg != NONE {
                self.take(Reg(reg))?;
                reg = next[reg as usize];
            }
            self.release(at);
        }
        Ok(())
    }

    /// Places of registers that end here are free again.
    fn release(&mut self, at: usize) {
        let mut reg = self.ending[at];
        while reg != NONE {
            let (class, place) = (self.function.class(Reg(reg)) as usize, self.places[reg as usize]);
            if self.holders[class][place as usize] == Reg(reg) {
                self.taken[class] &= !(1 << place);
            }
            reg = self.next[reg as usize];
        }
    }

    fn interval(&self, reg: Reg) -> &Interval {
        &self.live.intervals[reg.index()]
    }

    /// How much is lost if a register is put aside.
    fn worth(&self, reg: Reg) -> f32 {
        if self.function.brief[reg.index()] {
            return f32::INFINITY;
        }
        let interval = self.interval(reg);
        let worth = interval.weight / (interval.end - interval.start + 2) as f32;
        match self.function.constants[reg.index()] {
            // from the pool it costs little more than from a register
            Some(constant) if constant.lane != 0 => worth * 0.25,
            Some(_) => worth * 0.5,
            None => worth,
        }
    }

    fn take(&mut self, reg: Reg) -> Result<()> {
        let class = self.function.class(reg);
        let allowed = places_of(class, self.function.level) & !self.forbidden(class, reg);
        let free = allowed & !self.taken[class as usize];
        if free != 0 {
            let place = self.wish(reg, free).unwrap_or_else(|| first_of(class, free));
            self.give(class, place, reg);
            return Ok(());
        }
        let mut least: Option<(f32, u8)> = None;
        let mut left = allowed;
        while left != 0 {
            let place = left.trailing_zeros() as u8;
            left &= left - 1;
            let worth = self.worths[class as usize][place as usize];
            if least.is_none_or(|(w, _)| worth < w) {
                least = Some((worth, place));
            }
        }
        match least {
            Some((worth, place)) if worth < self.worth(reg) => {
                self.put_aside(self.holders[class as usize][place as usize]);
                self.give(class, place, reg);
            }
            _ if self.function.brief[reg.index()] => {
                return Err(Error::bug("an instruction needs more registers than there are"));
            }
            _ => self.put_aside(reg),
        }
        Ok(())
    }

    fn put_aside(&mut self, reg: Reg) {
        self.aside[reg.index()] = true;
        self.is_short = true;
    }

    fn give(&mut self, class: Class, place: u8, reg: Reg) {
        self.taken[class as usize] |= 1 << place;
        self.holders[class as usize][place as usize] = reg;
        self.worths[class as usize][place as usize] = self.worth(reg);
        self.places[reg.index()] = place;
        let end = self.interval(reg).end as usize;
        self.next[reg.index()] = std::mem::replace(&mut self.ending[end], reg.0);
    }

    /// What divisions change while the register is live.
    fn forbidden(&self, class: Class, reg: Reg) -> u32 {
        if class != Class::Int || self.divisions.is_empty() {
            return 0;
        }
        let Interval { start, end, .. } = *self.interval(reg);
        let from = self.divisions.partition_point(|at| *at < start);
        if self.divisions.get(from).is_some_and(|at| *at < end) { DIVISION } else { 0 }
    }

    /// The place that saves a move where the register is first written.
    fn wish(&self, reg: Reg, free: u32) -> Option<u8> {
        let number = self.sequence.order[(self.interval(reg).start / 2) as usize];
        let inst = &self.function.insts[number as usize];
        let is_free = |place: &u8| free & (1 << *place) != 0;
        match inst.what {
            What::Entry => {
                let at = inst.operands.iter().position(|o| matches!(o, Operand::Reg(r, ..) if *r == reg))?;
                Some(ARGUMENTS[at]).filter(is_free)
            }
            What::Divide { modulo } => Some(if modulo { RDX } else { RAX }).filter(is_free),
            What::Copy | What::Add => self.wish_among(inst.operands[1..].iter(), reg, free),
            // the sum first: it is then added to in place
            What::Fma(_) | What::Xor(_) => self.wish_among(inst.operands[1..].iter().rev(), reg, free),
            _ => None,
        }
    }

    fn wish_among<'b>(&self, operands: impl Iterator<Item = &'b Operand>, reg: Reg, free: u32) -> Option<u8> {
        let class = self.function.class(reg);
        for operand in operands {
            if let Operand::Reg(from, _, Role::Use) = operand {
                let place = self.places[from.index()];
                let was_held = self.function.class(*from) == class && !self.aside[from.index()];
                if was_held && free & (1 << place) != 0 {
                    return Some(place);
                }
            }
        }
        None
    }

    fn across_calls(&self) -> Vec<Vec<(Reg, Place)>> {
        let held = |place: u32| {
            let at = 2 * place;
            let all = (0u32..).zip(&self.live.intervals);
            let held = all.filter(|(_, i)| i.is_used() && i.start < at && at < i.end);
            held.map(|(reg, _)| (Reg(reg), self.places[reg as usize])).collect()
        };
        self.sequence.places(Kind::Call).map(held).collect()
    }
}

fn places_of(class: Class, level: Level) -> u32 {
    match (class, level) {
        (Class::Int, _) => 0xffff & !(1 << RSP),
        (Class::Vector, Level::Avx512) => u32::MAX,
        (Class::Vector, Level::Avx2) => 0xffff,
        // k0 means no mask
        (Class::Mask, _) => 0xfe,
    }
}

fn first_of(class: Class, free: u32) -> u8 {
    match class {
        Class::Int => INTEGERS.into_iter().find(|place| free & (1 << place) != 0).unwrap_or(RAX),
        _ => free.trailing_zeros() as u8,
    }
}
