//! Puts registers aside: each of their uses gets a brief register of its own, or memory as its operand.

use smallvec::SmallVec;

use super::live::Live;
use super::machine::{Base, Constant, Fold, Function, Inst, Mem, Operand, Reg, Role, Size, Slot, What};

/// Rewrites the function so that these registers are no longer used.
pub fn put_aside(function: &mut Function, aside: &[bool], live: &Live) {
    let slots = assign_slots(function, aside, live);
    let old = std::mem::take(&mut function.insts);
    let mut rewrite = Rewrite { function, aside, slots, out: Vec::with_capacity(old.len() + old.len() / 4) };
    for inst in old {
        rewrite.inst(inst);
    }
    let out = rewrite.out;
    function.insts = out;
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
    aside: &'a [bool],
    slots: Vec<Option<Slot>>,
    out: Vec<Inst>,
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

    fn inst(&mut self, mut inst: Inst) {
        let mut any = false;
        inst.each_reg(|reg, _| any |= self.is_aside(reg));
        if !any {
            self.out.push(inst);
            return;
        }
        // a constant needs no definition any more
        if let (What::Code(_) | What::Copy, Operand::Reg(reg, _, Role::Def)) = (inst.what, inst.operands[0])
            && self.is_aside(reg)
            && self.constant(reg).is_some()
        {
            return;
        }
        if inst.what == What::Copy && self.copy(&mut inst) {
            return;
        }
        self.fold(&mut inst);
        let mut briefs: SmallVec<[Brief; 4]> = SmallVec::new();
        inst.each_reg(|reg, role| {
            if self.is_aside(reg) {
                let read = matches!(role, Role::Use | Role::Late | Role::Change);
                let written = matches!(role, Role::Def | Role::Change);
                match briefs.iter_mut().find(|b| b.old == reg) {
                    Some(brief) => {
                        brief.read |= read;
                        brief.written |= written;
                    }
                    None => briefs.push(Brief { old: reg, new: reg, read, written }),
                }
            }
        });
        for brief in &mut briefs {
            brief.new = self.function.reg(self.function.sizes[brief.old.index()]);
            self.function.brief[brief.new.index()] = true;
            if brief.read {
                let load = self.load(brief.new, brief.old);
                self.out.push(load);
            }
        }
        inst.rename(|reg| briefs.iter().find(|b| b.old == reg).map_or(reg, |b| b.new));
        self.out.push(inst);
        for brief in briefs.iter().filter(|b| b.written) {
            let from = Operand::Reg(brief.new, self.function.sizes[brief.new.index()], Role::Use);
            let to = self.memory(brief.old);
            self.out.push(Inst::new(What::Copy, &[to, from], Fold::Never));
        }
    }

    /// A copy reads or writes memory itself. Whether it is done.
    fn copy(&mut self, inst: &mut Inst) -> bool {
        let [to, from, ..] = &mut inst.operands;
        let (to_aside, from_aside) = match (&to, &from) {
            (Operand::Reg(to, ..), Operand::Reg(from, ..)) => (self.is_aside(*to), self.is_aside(*from)),
            _ => return false,
        };
        match (*to, *from) {
            (Operand::Reg(to, ..), Operand::Reg(from, ..)) if from_aside && !to_aside => {
                let load = self.load(to, from);
                self.out.push(load);
                true
            }
            (Operand::Reg(reg, ..), _) if to_aside && !from_aside => {
                *to = self.memory(reg);
                self.out.push(*inst);
                true
            }
            _ => false,
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
        for at in slots {
            let Operand::Reg(reg, size, role) = inst.operands[at] else { continue };
            let mut times = 0;
            inst.each_reg(|other, _| times += u32::from(other == reg));
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
