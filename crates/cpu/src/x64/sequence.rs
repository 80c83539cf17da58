//! The order of instructions, and which registers each of them names.
//!
//! Instructions lie where they were made. What is dropped, put in between or renamed changes the order, which is a list of numbers, and
//! the names, which are small: what is live where is found without looking at instructions again.

use std::cell::Cell;

use super::machine::{Function, Inst, Named, Reg, What};

/// What must be known of an instruction without looking at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// nothing
    Plain,
    /// it copies
    Copy,
    /// a loop begins
    Head,
    /// a loop goes on
    Back,
    /// a loop has ended
    Exit,
    /// it divides
    Divide,
    /// it calls
    Call,
}

impl Kind {
    const COUNT: usize = Kind::Call as usize + 1;

    /// How many times as much a use counts behind it: in a loop, as often as 8 trips would have it.
    pub fn factor(self) -> f32 {
        match self {
            Kind::Head => 8.0,
            Kind::Exit => 0.125,
            _ => 1.0,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Names {
    start: u32,
    count: u8,
    kind: Kind,
}

/// Instructions in their order.
#[derive(Debug)]
pub struct Sequence {
    /// by their numbers
    pub order: Vec<u32>,
    /// by the number of an instruction
    names: Vec<Names>,
    named: Vec<Named>,
    /// by kind: how many instructions were of it, those that are dropped too
    kinds: [u32; Kind::COUNT],
}

impl Sequence {
    /// Knows instructions, but no order yet.
    pub fn new(insts: &[Inst]) -> Sequence {
        let count = insts.len() + insts.len() / 4;
        let Spare { mut order, mut names, mut named } = SPARE.take();
        order.reserve(count);
        names.reserve(count);
        named.reserve(4 * count);
        let mut sequence = Sequence { order, names, named, kinds: [0; Kind::COUNT] };
        for inst in insts {
            sequence.know(inst);
        }
        sequence
    }

    /// Knows the instruction that was made last.
    pub fn know(&mut self, inst: &Inst) {
        let names = self.name_all(inst);
        self.names.push(names);
    }

    /// Knows an instruction that was changed.
    pub fn know_again(&mut self, number: u32, inst: &Inst) {
        self.names[number as usize] = self.name_all(inst);
    }

    fn name_all(&mut self, inst: &Inst) -> Names {
        let start = self.named.len();
        inst.name(&mut self.named);
        let kind = match inst.what {
            What::Copy => Kind::Copy,
            What::Head(_) => Kind::Head,
            What::Back(..) => Kind::Back,
            What::Exit(_) => Kind::Exit,
            What::Divide { .. } => Kind::Divide,
            What::Call(_) => Kind::Call,
            _ => Kind::Plain,
        };
        self.kinds[kind as usize] += 1;
        Names { start: start as u32, count: (self.named.len() - start) as u8, kind }
    }

    /// What an instruction is.
    pub fn kind(&self, number: u32) -> Kind {
        self.names[number as usize].kind
    }

    /// The registers that an instruction names.
    pub fn named(&self, number: u32) -> &[Named] {
        self.look(number).1
    }

    /// What an instruction is, and the registers that it names.
    pub fn look(&self, number: u32) -> (Kind, &[Named]) {
        let Names { start, count, kind } = self.names[number as usize];
        let start = start as usize;
        (kind, &self.named[start..start + usize::from(count)])
    }

    /// All registers that any instruction names.
    pub fn all_named(&self) -> &[Named] {
        &self.named
    }

    /// Where instructions of a kind stand.
    pub fn places(&self, kind: Kind) -> impl Iterator<Item = u32> {
        let order: &[u32] = if self.kinds[kind as usize] == 0 { &[] } else { &self.order };
        (0u32..).zip(order).filter(move |(_, number)| self.kind(**number) == kind).map(|(place, _)| place)
    }

    /// Gives registers the names of others, and drops copies of a register to itself: `dropped` is told of which, and how much uses count there.
    /// Where instructions stand then, by their places before.
    pub fn rename(&mut self, function: &mut Function, to: &[Reg], mut dropped: impl FnMut(Reg, f32)) -> Vec<u32> {
        let mut kept = 0;
        let mut places = Vec::with_capacity(self.order.len());
        let mut weight = 1.0;
        for place in 0..self.order.len() {
            places.push(kept as u32);
            let number = self.order[place];
            let Names { start, count, kind } = self.names[number as usize];
            let start = start as usize;
            let named = &mut self.named[start..start + usize::from(count)];
            let mut changed = false;
            for one in &mut *named {
                let new = to[one.reg().index()];
                changed |= one.reg() != new;
                *one = one.renamed(new);
            }
            if changed {
                function.insts[number as usize].rename(|reg| to[reg.index()]);
            }
            // a copy between registers names these two
            let is_idle = kind == Kind::Copy && matches!(named, [to, from, ..] if to.reg() == from.reg());
            if !is_idle || function.insts[number as usize].copied().is_none() {
                self.order[kept] = number;
                kept += 1;
            } else {
                dropped(named[0].reg(), weight);
            }
            weight *= kind.factor();
        }
        self.order.truncate(kept);
        places
    }
}

/// Memory for the next sequence of this thread: much of it, and new memory is slow to come by.
#[derive(Default)]
struct Spare {
    order: Vec<u32>,
    names: Vec<Names>,
    named: Vec<Named>,
}

thread_local! {
    static SPARE: Cell<Spare> = const { Cell::new(Spare { order: Vec::new(), names: Vec::new(), named: Vec::new() }) };
}

/// So many names at most are there room for in memory that waits.
const MOST_SPARE: usize = 1 << 15;

impl Drop for Sequence {
    fn drop(&mut self) {
        if self.named.capacity().max(self.order.capacity()) <= MOST_SPARE {
            let mut spare = Spare {
                order: std::mem::take(&mut self.order),
                names: std::mem::take(&mut self.names),
                named: std::mem::take(&mut self.named),
            };
            spare.order.clear();
            spare.names.clear();
            spare.named.clear();
            SPARE.set(spare);
        }
    }
}
