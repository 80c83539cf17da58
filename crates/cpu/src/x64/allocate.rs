//! Places for registers: a linear scan over their intervals.
//!
//! Registers are looked at in the order in which they begin to live. Where no place is free, the one that is used least for its length is
//! put aside: a constant is then taken from the pool wherever it is used, everything else lies on the stack (`spill`), and the scan
//! begins anew over the code that this gave.

use fuseline::error::{Error, Result};

use super::live::{Interval, Live};
use super::machine::{Class, Function, Operand, Reg, Role, What};
use super::spill;
use super::table::Level;

/// Where a register is: the number of the machine's register in its class.
pub type Place = u8;

/// rax and rdx, which divisions use.
const DIVISION: u32 = 1 << RAX | 1 << RDX;
const RAX: u8 = 0;
const RDX: u8 = 2;
const RSP: u8 = 4;
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
pub fn allocate(function: &mut Function) -> Result<Places> {
    // every round puts aside at least one register that is not brief, and those do not become more
    for _ in 0..=function.sizes.len() {
        let live = Live::new(function, false);
        let mut scan = Scan::new(function, &live);
        scan.run()?;
        if scan.aside.iter().all(|aside| !aside) {
            let across_calls = scan.across_calls(&live);
            return Ok(Places { of: scan.places, across_calls });
        }
        let aside = scan.aside;
        spill::put_aside(function, &aside, &live);
    }
    Err(Error::bug("registers of a program do not fit, whatever lies on the stack"))
}

struct Scan<'a> {
    function: &'a Function,
    live: &'a Live,
    places: Vec<Place>,
    aside: Vec<bool>,
    /// by class: what is taken, and by whom
    taken: [u32; 3],
    holders: [[Reg; 32]; 3],
    /// by class: where what is held ends, and how much is lost if it is put aside
    ends: [[u32; 32]; 3],
    worths: [[f32; 32]; 3],
    /// where divisions stand
    divisions: Vec<u32>,
}

impl<'a> Scan<'a> {
    fn new(function: &'a Function, live: &'a Live) -> Scan<'a> {
        let count = function.sizes.len();
        let divisions = (0u32..).zip(&function.insts).filter(|(_, i)| matches!(i.what, What::Divide { .. }));
        Scan {
            function,
            live,
            places: vec![0; count],
            aside: vec![false; count],
            taken: [0; 3],
            holders: [[Reg(0); 32]; 3],
            ends: [[0; 32]; 3],
            worths: [[0.0; 32]; 3],
            divisions: divisions.map(|(place, _)| 2 * place).collect(),
        }
    }

    fn run(&mut self) -> Result<()> {
        let mut order: Vec<Reg> =
            (0..self.places.len() as u32).map(Reg).filter(|r| self.interval(*r).is_used()).collect();
        order.sort_by_key(|reg| (self.interval(*reg).start, reg.0));
        for reg in order {
            self.take(reg)?;
        }
        Ok(())
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
        let (start, all) = (self.interval(reg).start, places_of(class, self.function.level));
        let over = |(place, end): (usize, &u32)| u32::from(*end < start) << place;
        self.taken[class as usize] &= !self.ends[class as usize].iter().enumerate().map(over).sum::<u32>();
        let allowed = all & !self.forbidden(class, reg);
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
                self.aside[self.holders[class as usize][place as usize].index()] = true;
                self.give(class, place, reg);
            }
            _ if self.function.brief[reg.index()] => {
                return Err(Error::bug("an instruction needs more registers than there are"));
            }
            _ => self.aside[reg.index()] = true,
        }
        Ok(())
    }

    fn give(&mut self, class: Class, place: u8, reg: Reg) {
        self.taken[class as usize] |= 1 << place;
        self.holders[class as usize][place as usize] = reg;
        self.ends[class as usize][place as usize] = self.interval(reg).end;
        self.worths[class as usize][place as usize] = self.worth(reg);
        self.places[reg.index()] = place;
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
        let inst = &self.function.insts[(self.interval(reg).start / 2) as usize];
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

    fn across_calls(&self, live: &Live) -> Vec<Vec<(Reg, Place)>> {
        let calls = (0u32..).zip(&self.function.insts).filter(|(_, i)| matches!(i.what, What::Call(_)));
        calls
            .map(|(place, _)| {
                let at = 2 * place;
                let held = (0u32..).zip(&live.intervals).filter(|(_, i)| i.is_used() && i.start < at && at < i.end);
                held.map(|(reg, _)| (Reg(reg), self.places[reg as usize])).collect()
            })
            .collect()
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
