//! The order of instructions, and which registers each of them names.
//!
//! Instructions lie where they were made. What is dropped, put in between or renamed changes the order, which is a list of numbers, and
//! the names, which are small: what is live where is found without looking at instructions again.

use super::machine::{Function, Inst, Reg, Role, What};

/// A register that an instruction names, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named(u32);

impl Named {
    fn new(reg: Reg, role: Role) -> Named {
        Named(reg.0 << 3 | role as u32)
    }

    /// The register.
    pub fn reg(self) -> Reg {
        Reg(self.0 >> 3)
    }

    /// What it is named for.
    pub fn role(self) -> Role {
        match self.0 & 7 {
            0 => Role::Again,
            1 => Role::Use,
            2 => Role::Def,
            5 => Role::Late,
            _ => Role::Change,
        }
    }
}

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
}

impl Sequence {
    /// Knows instructions, but no order yet.
    pub fn new(insts: &[Inst]) -> Sequence {
        let count = insts.len() + insts.len() / 4;
        let (names, named) = (Vec::with_capacity(count), Vec::with_capacity(4 * count));
        let mut sequence = Sequence { order: Vec::with_capacity(count), names, named };
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
        inst.each_reg(|reg, role| self.named.push(Named::new(reg, role)));
        let kind = match inst.what {
            What::Copy => Kind::Copy,
            What::Head(_) => Kind::Head,
            What::Back(..) => Kind::Back,
            What::Exit(_) => Kind::Exit,
            What::Divide { .. } => Kind::Divide,
            What::Call(_) => Kind::Call,
            _ => Kind::Plain,
        };
        Names { start: start as u32, count: (self.named.len() - start) as u8, kind }
    }

    /// What an instruction is.
    pub fn kind(&self, number: u32) -> Kind {
        self.names[number as usize].kind
    }

    /// The registers that an instruction names.
    pub fn named(&self, number: u32) -> &[Named] {
        let Names { start, count, .. } = self.names[number as usize];
        &self.named[start as usize..][..usize::from(count)]
    }

    /// Where instructions of a kind stand.
    pub fn places(&self, kind: Kind) -> impl Iterator<Item = u32> {
        (0u32..).zip(&self.order).filter(move |(_, number)| self.kind(**number) == kind).map(|(place, _)| place)
    }

    /// Gives registers the names of others, and drops copies of a register to itself.
    pub fn rename(&mut self, function: &mut Function, to: &[Reg]) {
        let Sequence { order, names, named } = self;
        order.retain(|number| {
            let Names { start, count, kind } = names[*number as usize];
            let mut changed = kind == Kind::Copy;
            for one in &mut named[start as usize..][..usize::from(count)] {
                let (old, new) = (one.reg(), to[one.reg().index()]);
                changed |= old != new;
                *one = Named::new(new, one.role());
            }
            if !changed {
                return true;
            }
            let inst = &mut function.insts[*number as usize];
            inst.rename(|reg| to[reg.index()]);
            inst.copied().is_none_or(|(to, from)| to != from)
        });
    }
}
