//! Puts registers aside: each of their uses gets a brief register of its own, or memory as its operand.

use smallvec::SmallVec;

use super::live::{Interval, Live};
use super::machine::{Base, Constant, Fold, Function, Inst, Mem, Named, Operand, Reg, Role, Size, Slot, What};
use super::sequence::Sequence;

/// Rewrites the function so that these registers are no longer used, and says where all others live then.
pub fn put_aside(function: &mut Function, sequence: &mut Sequence, aside: &[bool], live: &mut Live) {
    let slots = assign_slots(function, aside, live);
    for (interval, _) in live.intervals.iter_mut().zip(aside).filter(|(_, aside)| **aside) {
        *interval = Interval::UNUSED;
    }
    let old = std::mem::take(&mut sequence.order);
    sequence.order.reserve(old.len() + old.len() / 4);
    let mut rewrite = Rewrite { function, sequence, live, aside, slots, briefs: Vec::new(), weight: 1.0 };
    let mut places = Vec::with_capacity(old.len());
    for number in old {
        places.push(rewrite.inst(number));
    }
    let briefs = rewrite.briefs;
    live.move_to(&places);
    live.intervals.extend(briefs);
}

/// A slot for everything but constants; what does not live at the same time may share one.
fn assign_slots(function: &mut Function, aside: &[bool], live: &Live) -> Vec<Option<Slot>> {
    let mut slots = vec![None; aside.len()];
    let mut order: Vec<usize> = (0..aside.len()).filter(|r| aside[*r] && function.constants[*r].is_none()).collect();
    order.sort_by_key(|reg| (live.intervals[*reg].start, *reg));
    let mut busy: Vec<(u32, usize, Slot)> = Vec::new();
    for reg in order {
        let interval = live.intervals[reg];
        let bytes = function.sizes[reg].bytes();
        // few are busy at a time: as many as are live beyond what registers hold
        let free = busy.iter().position(|(until, size, _)| *until < interval.start && *size == bytes);
        let slot = match free {
            Some(at) => busy.swap_remove(at).2,
            None => function.slot(bytes),
        };
        busy.push((interval.end, bytes, slot));
        slots[reg] = Some(slot);
    }
    slots
}

struct Rewrite<'a> {
    function: &'a mut Function,
    sequence: &'a mut Sequence,
    /// at the places where instructions were before
    live: &'a mut Live,
    aside: &'a [bool],
    slots: Vec<Option<Slot>>,
    /// intervals of registers that are new, at the places where instructions are now
    briefs: Vec<Interval>,
    /// how much a use counts here
    weight: f32,
}

/// A register that stands in for one that was put aside.
struct Brief {
    old: Reg,
    new: Reg,
    read: bool,
    written: bool,
}

impl Rewrite<'_> {
    fn is_aside(&self, reg: Reg) -> bool {
        self.aside.get(reg.index()).copied().unwrap_or(false)
    }

    fn constant(&self, reg: Reg) -> Option<Constant> {
        self.function.constants[reg.index()]
    }

    /// Puts an instruction into the new order, with what it needs; its place there.
    fn inst(&mut self, number: u32) -> u32 {
        let (kind, named) = self.sequence.look(number);
        if !named.iter().any(|named| self.is_aside(named.reg())) {
            self.weight *= kind.factor();
            self.sequence.order.push(number);
            return self.sequence.order.len() as u32 - 1;
        }
        // counted again when it is in its place
        for named in named {
            self.live.intervals[named.reg().index()].weight -= self.weight;
        }
        self.rewrite(number)
    }

    /// The next instruction of the order; its place.
    fn place(&mut self, number: u32) -> u32 {
        let place = self.sequence.order.len() as u32;
        self.sequence.order.push(number);
        for named in self.sequence.named(number) {
            match self.briefs.get_mut(named.reg().index().wrapping_sub(self.aside.len())) {
                Some(brief) => brief.name(2 * place, *named),
                None => self.live.intervals[named.reg().index()].weight += self.weight,
            }
        }
        place
    }

    fn place_new(&mut self, inst: Inst) -> u32 {
        self.sequence.know(&inst);
        self.function.insts.push(inst);
        self.place(self.function.insts.len() as u32 - 1)
    }

    fn place_changed(&mut self, number: u32, inst: Inst) -> u32 {
        self.sequence.know_again(number, &inst);
        self.function.insts[number as usize] = inst;
        self.place(number)
    }

    fn rewrite(&mut self, number: u32) -> u32 {
        let mut inst = self.function.insts[number as usize];
        // a constant needs no definition any more
        if let (What::Code(_) | What::Copy, Operand::Reg(reg, _, Role::Def)) = (inst.what, inst.operands[0])
            && self.is_aside(reg)
            && self.constant(reg).is_some()
        {
            return self.sequence.order.len() as u32;
        }
        if inst.what == What::Copy
            && let Some(copy) = self.copy(&inst)
        {
            return self.place_changed(number, copy);
        }
        self.fold(&mut inst);
        let mut briefs: SmallVec<[Brief; 4]> = SmallVec::new();
        let mut named: SmallVec<[Named; 9]> = SmallVec::new();
        inst.name(&mut named);
        for named in named.iter().filter(|named| self.is_aside(named.reg())) {
            let (old, read, written) = (named.reg(), named.reads(), named.writes());
            match briefs.iter_mut().find(|b| b.old == old) {
                Some(brief) => {
                    brief.read |= read;
                    brief.written |= written;
                }
                None => briefs.push(Brief { old, new: old, read, written }),
            }
        }
        for brief in &mut briefs {
            brief.new = self.function.reg(self.function.sizes[brief.old.index()]);
            self.function.brief[brief.new.index()] = true;
            self.briefs.push(Interval::UNUSED);
            if brief.read {
                let load = self.load(brief.new, brief.old);
                self.place_new(load);
            }
        }
        inst.rename(|reg| briefs.iter().find(|b| b.old == reg).map_or(reg, |b| b.new));
        let place = self.place_changed(number, inst);
        for brief in briefs.iter().filter(|b| b.written) {
            let from = Operand::Reg(brief.new, self.function.sizes[brief.new.index()], Role::Use);
            let to = self.memory(brief.old);
            self.place_new(Inst::new(What::Copy, &[to, from], Fold::Never));
        }
        place
    }

    /// A copy that reads or writes memory itself, if it can.
    fn copy(&self, inst: &Inst) -> Option<Inst> {
        let (to, from) = inst.copied()?;
        match (self.is_aside(to), self.is_aside(from)) {
            (false, true) => Some(self.load(to, from)),
            (true, false) => {
                let mut copy = *inst;
                copy.operands[0] = self.memory(to);
                Some(copy)
            }
            _ => None,
        }
    }

    fn load(&self, to: Reg, from: Reg) -> Inst {
        match self.constant(from) {
            Some(constant) => self.function.materialise(to, constant),
            None => {
                let to = Operand::Reg(to, self.function.sizes[to.index()], Role::Def);
                Inst::new(What::Copy, &[to, self.memory(from)], Fold::Never)
            }
        }
    }

    fn memory(&self, reg: Reg) -> Operand {
        match self.slots[reg.index()] {
            Some(slot) => Operand::Mem(Mem::slot(slot, 0)),
            None => Operand::None,
        }
    }

    /// Makes one operand memory, where the instruction can read it there.
    fn fold(&mut self, inst: &mut Inst) {
        if inst.operands.iter().any(|o| matches!(o, Operand::Mem(_))) {
            return;
        }
        let (slots, lane) = match inst.fold {
            Fold::Never => return,
            Fold::At(slot) => (slot as usize..slot as usize + 1, 0),
            Fold::Broadcast(slot, lane) => (slot as usize..slot as usize + 1, lane),
            Fold::Any(lane) => (1..4, lane),
        };
        let mut named: SmallVec<[Named; 9]> = SmallVec::new();
        inst.name(&mut named);
        for at in slots {
            let Operand::Reg(reg, size, role) = inst.operands[at] else { continue };
            let times = named.iter().filter(|other| other.reg() == reg).count();
            // a write of half an integer would leave the other half
            let fits = match role {
                Role::Use | Role::Late => true,
                Role::Def | Role::Change => at == 0 && size == Size::Qword,
                Role::Again => false,
            };
            if !self.is_aside(reg) || times != 1 || !fits {
                continue;
            }
            inst.operands[at] = match self.constant(reg) {
                None => self.memory(reg),
                Some(constant) if constant.lane == 0 => Operand::Mem(Mem::pool(constant.offset)),
                Some(constant) if constant.lane == lane => {
                    Operand::Mem(Mem { base: Base::Pool, broadcast: true, ..Mem::pool(constant.offset) })
                }
                Some(_) => continue,
            };
            return;
        }
    }
}
