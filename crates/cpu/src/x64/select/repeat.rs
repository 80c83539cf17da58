//! Loops: tested at the bottom, their counters counted down where nothing reads them.

use fuseline::error::{Error, Result};
use iced_x86::{Code, OpKind};

use super::{Select, changed, used};
use crate::vector::{Bound, Carried, Loop, Node, Value};
use crate::x64::machine::{Cond, Fold, Label, Loop as Extent, LoopId, Operand, Phi, Reg, Size, What};

const Q: Size = Size::Qword;

/// How a loop knows that it ends.
enum Counter {
    /// counts up to a bound
    Up(Reg, Bound),
    /// so many are left; above 0 as long as it goes on
    Down(Reg, i64),
    /// above 0 if there is a trip; there is no other
    Once(Reg),
}

impl<'p> Select<'p> {
    pub(super) fn repeat(&mut self, inner: &'p Loop) -> Result<()> {
        self.settle()?;
        match self.trips(inner) {
            Some(0) => self.skip(inner),
            Some(1) => self.once(inner),
            trips => self.many(inner, trips),
        }
    }

    fn trips(&self, inner: &Loop) -> Option<i64> {
        let (from, to) = (self.known(inner.from)?, self.known(inner.to)?);
        Some(if to <= from { 0 } else { (to.checked_sub(from)? - 1) / inner.step + 1 })
    }

    fn known(&self, bound: Bound) -> Option<i64> {
        match bound {
            Bound::Number(n) => Some(n),
            Bound::Value(value) => self.facts[value].number,
        }
    }

    /// One value goes by the name of another.
    fn alias(&mut self, name: Value, value: Value) -> Result<()> {
        if let Some(n) = self.facts[value].number {
            self.facts[name].number = Some(n);
        } else {
            self.regs[name.index()] = Some(self.reg(value)?);
        }
        Ok(())
    }

    fn skip(&mut self, inner: &Loop) -> Result<()> {
        for carried in &inner.carried {
            self.alias(carried.result, carried.init)?;
        }
        Ok(())
    }

    fn once(&mut self, inner: &'p Loop) -> Result<()> {
        self.facts[inner.var].number = self.known(inner.from);
        for carried in &inner.carried {
            self.alias(carried.param, carried.init)?;
        }
        self.trip(inner)?;
        for carried in &inner.carried {
            self.alias(carried.result, carried.next)?;
        }
        Ok(())
    }

    /// The body, and what waited for its end.
    fn trip(&mut self, inner: &'p Loop) -> Result<()> {
        self.waiting.push(Vec::new());
        self.block(&inner.body)?;
        for (value, op) in self.waiting.pop().unwrap_or_default() {
            self.compute(value, op)?;
        }
        Ok(())
    }

    fn many(&mut self, inner: &'p Loop, trips: Option<i64>) -> Result<()> {
        let id = self.function.loops.len() as LoopId;
        let once = inner.step == Loop::ONCE;
        let repeats = |node: &Node| matches!(node, Node::Loop(inside) if inside.step != Loop::ONCE);
        let innermost = !once && !inner.body.iter().any(repeats);
        self.function.loops.push(Extent { phis: Vec::new(), innermost });
        let mut phis = Vec::with_capacity(inner.carried.len());
        for carried in &inner.carried {
            phis.push(self.enter(carried)?);
        }
        let counter = self.count(inner, trips)?;
        let exit = self.function.label();
        if trips.is_none() {
            self.guard(&counter, exit)?;
        }
        self.push(What::Head(id), &[], Fold::Never);
        self.trip(inner)?;
        self.hand_on(inner, &mut phis)?;
        self.turn(inner, &counter, id)?;
        self.push(What::Label(exit), &[], Fold::Never);
        self.push(What::Exit(id), &[], Fold::Never);
        for (carried, phi) in inner.carried.iter().zip(&phis) {
            self.regs[carried.result.index()] = Some(phi.result);
        }
        self.function.loops[id as usize].phis = phis;
        Ok(())
    }

    /// What the loop hands on gets its registers, and its first value.
    fn enter(&mut self, carried: &Carried) -> Result<Phi> {
        let size = self.size(self.program.ty(carried.param))?;
        let (param, result) = (self.function.reg(size), self.function.reg(size));
        let first = self.fill(param, carried.init)?;
        self.regs[carried.param.index()] = Some(param);
        Ok(Phi { param, result, first, next: None, stays: false, renewed: u32::MAX })
    }

    /// Copies a value to a register; from where, unless it is a constant.
    fn fill(&mut self, to: Reg, value: Value) -> Result<Option<Reg>> {
        if self.regs[value.index()].is_none()
            && let Some(n) = self.facts[value].number
        {
            self.move_number(to, n);
            return Ok(None);
        }
        let from = self.reg(value)?;
        if let Some(constant) = self.function.constants[from.index()] {
            let inst = self.function.materialise(to, constant);
            self.function.insts.push(inst);
            return Ok(None);
        }
        self.copy(to, from);
        Ok(Some(from))
    }

    fn count(&mut self, inner: &Loop, trips: Option<i64>) -> Result<Counter> {
        let is_read = self.facts[inner.var].uses > 0;
        if let (Loop::ONCE, false, Some(0), Bound::Value(to)) = (inner.step, is_read, self.known(inner.from), inner.to)
        {
            return Ok(Counter::Once(self.reg(to)?));
        }
        let counter = self.function.reg(Q);
        if is_read {
            match self.known(inner.from) {
                Some(n) => self.move_number(counter, n),
                None => self.fill_bound(counter, inner.from)?,
            }
            self.regs[inner.var.index()] = Some(counter);
            return Ok(Counter::Up(counter, inner.to));
        }
        if let Some(trips) = trips {
            self.move_number(counter, trips);
            return Ok(Counter::Down(counter, 1));
        }
        self.fill_bound(counter, inner.to)?;
        match (self.known(inner.from), inner.from) {
            (Some(0), _) => {}
            (Some(n), _) => {
                let from = self.number(n);
                self.push(What::Code(Code::Sub_r64_rm64), &[changed(counter, Q), used(from, Q)], Fold::At(1));
            }
            (None, Bound::Value(from)) => {
                let from = self.reg(from)?;
                self.push(What::Code(Code::Sub_r64_rm64), &[changed(counter, Q), used(from, Q)], Fold::At(1));
            }
            (None, Bound::Number(_)) => {}
        }
        Ok(Counter::Down(counter, inner.step))
    }

    fn fill_bound(&mut self, to: Reg, bound: Bound) -> Result<()> {
        match bound {
            Bound::Number(n) => self.move_number(to, n),
            Bound::Value(value) => {
                self.fill(to, value)?;
            }
        }
        Ok(())
    }

    fn test(&mut self, counter: Reg, to: Bound) -> Result<()> {
        match to {
            Bound::Number(n) if i32::try_from(n).is_ok() => self.compare_number(counter, n),
            Bound::Number(n) => {
                let to = self.number(n);
                self.push(What::Code(Code::Cmp_r64_rm64), &[used(counter, Q), used(to, Q)], Fold::At(1));
            }
            Bound::Value(value) => self.compare_ints(counter, value)?,
        }
        Ok(())
    }

    fn guard(&mut self, counter: &Counter, exit: Label) -> Result<()> {
        match counter {
            Counter::Up(counter, to) => {
                self.test(*counter, *to)?;
                self.push(What::Jump(Cond::NotLess, exit), &[], Fold::Never);
            }
            Counter::Down(counter, _) | Counter::Once(counter) => {
                self.compare_number(*counter, 0);
                self.push(What::Jump(Cond::NotGreater, exit), &[], Fold::Never);
            }
        }
        Ok(())
    }

    /// The values for the next trip go to their registers, all at once.
    fn hand_on(&mut self, inner: &Loop, phis: &mut [Phi]) -> Result<()> {
        let params: Vec<Reg> = phis.iter().map(|phi| phi.param).collect();
        let mut from = Vec::with_capacity(phis.len());
        for (carried, phi) in inner.carried.iter().zip(phis.iter()) {
            let is_number = self.regs[carried.next.index()].is_none() && self.facts[carried.next].number.is_some();
            if is_number {
                from.push(None);
                continue;
            }
            let reg = self.reg(carried.next)?;
            // a parameter that goes to another register may be overwritten before it is read
            let moves = reg != phi.param && params.contains(&reg);
            from.push(Some(if moves { self.copy_of(reg) } else { reg }));
        }
        for ((carried, phi), from) in inner.carried.iter().zip(phis).zip(from) {
            phi.renewed = self.function.insts.len() as u32;
            match from {
                None => {
                    self.fill(phi.param, carried.next)?;
                }
                Some(reg) if reg == phi.param => (phi.stays, phi.renewed) = (true, u32::MAX),
                Some(reg) => {
                    if let Some(constant) = self.function.constants[reg.index()] {
                        let inst = self.function.materialise(phi.param, constant);
                        self.function.insts.push(inst);
                    } else {
                        phi.next = Some((phi.renewed, reg));
                        self.copy(phi.param, reg);
                    }
                }
            }
        }
        Ok(())
    }

    /// Counts, and goes on or ends.
    fn turn(&mut self, inner: &Loop, counter: &Counter, id: LoopId) -> Result<()> {
        let (cond, reg, step) = match counter {
            _ if inner.step == Loop::ONCE => {
                self.push(What::Back(None, id), &[], Fold::Never);
                return Ok(());
            }
            Counter::Up(reg, _) => (Cond::Less, *reg, inner.step),
            Counter::Down(reg, step) => (Cond::Greater, *reg, -step),
            Counter::Once(_) => return Err(Error::bug("a loop of one trip that goes on")),
        };
        match (i8::try_from(step), i32::try_from(step)) {
            (Ok(_), _) => {
                let step = Operand::Imm(OpKind::Immediate8to64, step);
                self.push(What::Code(Code::Add_rm64_imm8), &[changed(reg, Q), step], Fold::At(0));
            }
            (_, Ok(_)) => {
                let step = Operand::Imm(OpKind::Immediate32to64, step);
                self.push(What::Code(Code::Add_rm64_imm32), &[changed(reg, Q), step], Fold::At(0));
            }
            _ => {
                let step = self.number(step);
                self.push(What::Code(Code::Add_r64_rm64), &[changed(reg, Q), used(step, Q)], Fold::At(1));
            }
        }
        if let Counter::Up(_, to) = counter {
            self.test(reg, *to)?;
        }
        self.push(What::Back(Some(cond), id), &[], Fold::Never);
        Ok(())
    }
}
