//! Elements at the ends of rows, before the first pack and behind the last one: each is done by a thread of its own, of the first warp of the row.
//!
//! While that warp does them, others wait for it where they meet. So what they need is asked for ahead, and behind the first meeting they come before the packs: the
//! warp goes on with packs as others do, and asks for nothing more when these have taken all registers.

use fuseline::error::Result;
use fuseline::tile::{AxisSet, Op, StepId};

use super::super::body::{Accumulator, Body};
use super::super::code::Code;
use super::super::element;
use super::hold::{HELD_BY_MANY, Held};
use super::{MOST_PASSES, Pass, Plan};

/// Turns of a thread whose packs leave registers for what an element at an end needs.
const FEW_TURNS: i64 = 2;

impl Plan<'_, '_> {
    /// What is known of the ends of a row before any pack is: elements that are held as they were read, or are fetched, and what was asked for or drawn ahead.
    pub(super) fn begin_ends(&self, body: &mut Body<'_>) -> Result<()> {
        for held in &self.held {
            body.line(format!("{} {} = {{}};", self.type_of_end(held), end_name(held)));
        }
        // Of rows that a block walks along, these are known from the row before.
        let loads = if self.is_alike() { Vec::new() } else { [self.fetched.clone(), self.early_at_ends()].concat() };
        self.declare_ends_of(body, &loads)?;
        let words = self.early_words();
        for word in &words {
            body.line(format!("unsigned w{} = 0;", word.0));
        }
        self.at_ends(body, |body| {
            for held in self.held.iter().filter(|held| self.is_load(held)) {
                let (tensor, offset) = body.address(&self.nest.load(held.step).clone(), None)?;
                body.line(format!("{} = {tensor}[{offset}];", end_name(held)));
            }
            self.read_ends_of(body, &loads)?;
            for word in &words {
                let value = body.value(*word)?;
                body.line(format!("w{} = {value};", word.0));
            }
            Ok(())
        })
    }

    /// What a pass does with the elements at the ends of a row.
    pub(super) fn print_ends(&self, body: &mut Body<'_>, number: usize, accumulators: &[Accumulator]) -> Result<()> {
        if self.nest.lines.is_none() {
            return Ok(());
        }
        let pass = &self.passes[number];
        let asked = if self.begins_with_ends(number) { Vec::new() } else { self.asked_at_ends_of(number) };
        self.declare_ends_of(body, &asked)?;
        self.at_ends(body, |body| {
            self.know_at_ends(body, number);
            self.read_ends_of(body, &asked)?;
            for (fold, accumulator) in pass.folds.iter().zip(accumulators) {
                body.accumulate(*fold, accumulator, &format!("s{}", fold.0))?;
            }
            for fold in &pass.columns {
                let (accumulator, name) = (Accumulator::of(self.nest, *fold), format!("ends{}", fold.0));
                body.accumulate_where(*fold, &accumulator, &name, self.live())?;
            }
            for store in &pass.stores {
                body.store(*store, self.live())?;
            }
            for held in self.held.iter().filter(|held| held.first == number && !self.is_load(held)) {
                let value = body.value(held.step)?;
                body.line(format!("{} = {value};", end_name(held)));
            }
            Ok(())
        })
    }

    /// Asks for weights of elements at the ends of a row behind the packs of a pass that has begun with ends: nobody waits for them before threads meet.
    pub(super) fn ask_at_ends(&self, body: &mut Body<'_>, number: usize) -> Result<()> {
        let asked = if self.begins_with_ends(number) { self.asked_at_ends_of(number) } else { Vec::new() };
        if asked.is_empty() {
            return Ok(());
        }
        self.declare_ends_of(body, &asked)?;
        self.at_ends(body, |body| self.read_ends_of(body, &asked))
    }

    /// Weights that are asked for at the ends of a pass.
    fn asked_at_ends_of(&self, number: usize) -> Vec<StepId> {
        if self.asks_at_ends_of() == Some(number) { self.weights_of_ends() } else { Vec::new() }
    }

    /// What a pass knows of an element at one of the ends: what is held, was fetched, or asked for or drawn ahead.
    pub(super) fn know_at_ends(&self, body: &mut Body<'_>, number: usize) {
        for held in self.held.iter().filter(|held| self.is_load(held) || held.first < number) {
            let (dtype, name) = (self.nest.kernel.step(held.step).dtype, Code::atom(end_name(held)));
            let value = if self.is_load(held) { element::widened(dtype, name) } else { self.held_number(held, name) };
            body.know(held.step, value);
        }
        self.know_ends(body);
        self.know_drawn_ends(body);
        let late = self.asks_at_ends_of().filter(|asks| *asks < number).map(|_| self.weights_of_ends());
        for id in self.early_at_ends().into_iter().chain(late.into_iter().flatten()) {
            let dtype = self.nest.load(id).tensor.dtype;
            body.know(id, element::widened(dtype, Code::atom(format!("e{}", id.0))));
        }
        for word in self.early_words().into_iter().filter(|_| number == 0) {
            body.know(word, Code::atom(format!("w{}", word.0)));
        }
    }

    /// Whether a pass does elements at ends before it walks along packs: every one but the first, whose packs are on their way.
    pub(super) fn begins_with_ends(&self, number: usize) -> bool {
        number > 0 && self.is_ahead_at_ends()
    }

    /// Whether ends come before packs. Not where blocks know them from the row before; nor where two rows share a warp that begin alike; nor where words are drawn for wide numbers and a
    /// multiprocessor has registers for more rows than one, which are drawn while packs are waited for; nor for norms whose packs, all asked for at once, take all registers.
    fn is_ahead_at_ends(&self) -> bool {
        let has_room = if self.is_near { self.rows_of_block > 1 } else { self.held_bytes <= HELD_BY_MANY };
        let draws_beside = self.is_random() && has_room;
        let are_many = self.turns.is_some_and(|turns| turns > FEW_TURNS);
        let is_full = self.passes.len() == MOST_PASSES && are_many && self.fills_all();
        self.nest.lines.is_some() && !self.is_alike() && self.apart == 1 && !draws_beside && !is_full
    }

    /// The pass at whose ends weights are asked for: the one before the first that reads them, so that no register keeps them longer; none where they are asked for before
    /// any pack is.
    fn asks_at_ends_of(&self) -> Option<usize> {
        if !self.is_ahead_at_ends() {
            return None;
        }
        let weights = self.weights_of_ends();
        let reads = |pass: &Pass| weights.iter().any(|id| self.read_by(pass)[id.index()]);
        self.passes.iter().position(reads)?.checked_sub(1)
    }

    /// Words of ends that are drawn before any pack is read, which the first pass asks for. Behind packs that take all registers, that would push others out; of rows that
    /// have registers left, it is mixed with what is done for packs.
    fn early_words(&self) -> Vec<StepId> {
        if self.is_near || self.is_alike() || self.held_bytes <= HELD_BY_MANY {
            return Vec::new();
        }
        let read = self.read_by(&self.passes[0]);
        let is_word = |k: &usize| read[*k] && matches!(self.nest.kernel.steps[*k].op, Op::Random { .. });
        (0..read.len()).filter(is_word).map(|k| StepId(k as u32)).filter(|id| self.varies(*id)).collect()
    }

    /// Places for elements at the ends of a row.
    pub(super) fn declare_ends_of(&self, body: &mut Body<'_>, loads: &[StepId]) -> Result<()> {
        for id in loads {
            body.line(format!("{} e{} = {{}};", element::stored(self.nest.load(*id).tensor.dtype)?, id.0));
        }
        Ok(())
    }

    /// Reads elements at the ends of a row.
    pub(super) fn read_ends_of(&self, body: &mut Body<'_>, loads: &[StepId]) -> Result<()> {
        for id in loads {
            let (tensor, offset) = body.address(&self.nest.load(*id).clone(), None)?;
            body.line(format!("e{} = {tensor}[{offset}];", id.0));
        }
        Ok(())
    }

    /// What is the same for all rows and varies along them: where one of several warps does the ends of a row, it asks for that at once, too, so that others need not
    /// wait for it. Where every warp has a row, registers are worth more, unless it has many rows.
    pub(super) fn weights_of_ends(&self) -> Vec<StepId> {
        let asks = self.rows_of_block == 1 || self.is_alike();
        if asks { self.loads_at_ends(false) } else { Vec::new() }
    }

    /// What elements at the ends of rows need and is asked for before any pack is: weights, and what rows have of their own that is not held as it lies. Behind
    /// the packs, it would be waited for once more; but of narrow floats (0.5 to 1 µs of 60), instructions are what takes the time.
    fn early_at_ends(&self) -> Vec<StepId> {
        let mut early = if self.asks_at_ends_of().is_some() { Vec::new() } else { self.weights_of_ends() };
        if self.part.is_none() && !self.is_near {
            early.extend(self.loads_at_ends(true));
        }
        early
    }

    /// Loads along rows that are neither held nor fetched: those that every row has of its own, or those that are the same for all.
    fn loads_at_ends(&self, own: bool) -> Vec<StepId> {
        let rows: AxisSet = self.row_axes.iter().copied().collect();
        let of_rows = self.passes.iter().flat_map(|pass| pass.stores.iter().copied());
        let stored: Vec<usize> = of_rows.chain(self.column_stores.iter().copied()).collect();
        let needed = self.nest.needed(&stored);
        let is_read = |k: &usize| {
            let (Op::Load { .. }, true) = (&self.nest.kernel.steps[*k].op, needed[*k]) else { return false };
            let (axes, access) = (self.nest.axes[*k], self.nest.load(StepId(*k as u32)));
            let is_plain = access.is_plain();
            is_plain && axes.common(rows).is_empty() != own && axes.contains(self.lanes.axis)
        };
        let loads = (0..needed.len()).filter(is_read).map(|k| StepId(k as u32));
        loads.filter(|id| !self.fetched.contains(id) && self.held.iter().all(|held| held.step != *id)).collect()
    }

    /// Does something with an element at one of the ends, which is no part of a pack.
    pub(super) fn at_ends(&self, body: &mut Body<'_>, act: impl FnOnce(&mut Body<'_>) -> Result<()>) -> Result<()> {
        let lanes = body.lanes.take();
        body.open(self.along);
        body.line(format!("const Index i{} = end;", self.lanes.axis));
        act(body)?;
        body.close(&format!("if ({} < ends)", self.who_has_ends()));
        body.lanes = lanes;
        Ok(())
    }

    /// The number of a thread among those that have an element at an end: the first ones, or the last ones, where the first one asks for rows.
    pub(super) fn who_has_ends(&self) -> &'static str {
        if self.is_alike() && self.brings() { "back" } else { "t" }
    }

    /// Whether what is held is an element as it was read, and always there.
    fn is_load(&self, held: &Held) -> bool {
        let is_load = matches!(self.nest.kernel.step(held.step).op, Op::Load { .. });
        held.is_pack && is_load && self.nest.load(held.step).guards.is_empty()
    }

    fn type_of_end(&self, held: &Held) -> &'static str {
        if self.is_load(held) { held.ty } else { element::held(self.nest.kernel.step(held.step).dtype) }
    }
}

pub(super) fn end_name(held: &Held) -> String {
    format!("e{}", held.step.0)
}

#[cfg(test)]
mod tests {
    use fuseline::tensor::Env;
    use fuseline::tile::parse;

    use super::super::super::print;
    use super::super::super::tests::made_for;

    fn printed(kernel: &str) -> String {
        print(&parse(kernel).unwrap(), &made_for(&Env::new())).unwrap().functions
    }

    /// Where texts stand in another one, one behind the other.
    fn in_order(text: &str, parts: &[&str]) {
        let mut at = 0;
        for part in parts {
            at += text[at..].find(part).unwrap_or_else(|| panic!("{part}: {text}")) + part.len();
        }
    }

    #[test]
    fn ends_come_before_packs_and_weights_are_asked_for_before_the_meeting() {
        let text = printed(
            "kernel { axes i0: n, i1: 20001 in b: f16[20001], x: f16[n, 20001] out y: i8[n, 20001] \
             schedule row along=[i1] placement=registers %0 = load b[i1] %1 = load x[i0, i1] %2 = map(%1) f32(a) \
             %3 = reduce.sum %2 over [i1] %4 = map(%2, %3) { t0 = a - b; t0 * t0 } %5 = reduce.sum %4 over [i1] \
             %6 = map(%2, %5, %0) a * b + f32(c) %7 = map(%6) abs(a) %8 = reduce.max %7 over [i1] \
             %9 = map(%6, %8) i8(round(a / b * 127.0)) store y[i0, i1] = %9 }",
        );
        let packs = "for (int k = 0; k < ";
        let (ends, meeting) = ("if (t < ends) {", "__syncthreads();");
        let second = [ends, packs, ends, "e0 = x0[i1];", meeting];
        in_order(&text, &[&[packs, ends, meeting], &second[..], &[ends, packs, meeting, ends, "y0[", packs]].concat());
    }

    #[test]
    fn words_of_ends_are_drawn_first_where_a_row_takes_all_registers() {
        let text = |columns: i64| {
            printed(&format!(
                "kernel {{ axes i0: n, i1: {columns} in s: i64[], x: f32[n, {columns}], z: f32[n, {columns}] out y: f32[n, {columns}] \
                 schedule row along=[i1] placement=registers %0 = load x[i0, i1] %1 = load s[] \
                 %2 = random %1 stream=0 at [{columns}*i0 + i1] %3 = load z[i0, i1] \
                 %4 = map(%0, %2, %3) a + select(0.1 <= f32(shr(b, 8)) * 5.9604645e-8, c, 0.0) %5 = reduce.sum %4 over [i1] \
                 %6 = map(%4, %5) {{ t0 = a - b; t0 * t0 }} %7 = reduce.sum %6 over [i1] %8 = map(%4, %7) a / b store y[i0, i1] = %8 }}"
            ))
        };
        in_order(&text(32_769), &["w2 = v2;", "for (int k = 0; k < 16; ++k)", "<= w2 ?"]);
        assert!(!text(8193).contains("w2"));
    }

    #[test]
    fn ends_have_part_in_sums_of_exponentials_that_are_found_in_one_pass() {
        let softmax = |dtype: &str, columns: i64, other: &str, value: &str| {
            printed(&format!(
                "kernel {{ axes i0: n, i1: {columns} in x: {dtype}[n, {columns}]{other} out y: {dtype}[n, {columns}] \
                 schedule row along=[i1] placement=registers %0 = load x[i0, i1] %1 = map(%0) f32(a) %2 = reduce.max %1 over [i1] \
                 %3 = map(%1, %2) exp(a - b) %4 = reduce.sum %3 over [i1] {value} store y[i0, i1] = %5 }}"
            ))
        };
        let text = softmax("bf16", 50_257, "", "%5 = map(%3, %4) bf16(a / b)");
        let online = ["larger(s2, v1), b2 = base_of(n2);", "s4 = s4 * exp_near(s2 - b2) + own4;", "lane2 = s2;"];
        in_order(&text, &[&["bring_last(", "if (t < ends) {", "if (t < ends) {"], &online[..]].concat());
        // Blocks of a cluster hold a row of two tensors.
        let text = "kernel { axes i0: n, i1: 50001 in x: f32[n, 50001], z: f32[n, 50001] out y: f32[n, 50001] \
             schedule row along=[i1] placement=registers %0 = load x[i0, i1] %1 = load z[i0, i1] %2 = reduce.max %0 over [i1] \
             %3 = map(%0, %2) exp(a - b) %4 = reduce.sum %3 over [i1] %5 = map(%3, %4, %1) a / b * c store y[i0, i1] = %5 }";
        let ends = "if (t < ends) {";
        in_order(
            &printed(text),
            &["walk in 6 blocks", ends, ends, "own2 = s2", ends, "s4 = s4 + v3;", "put(part2", ends],
        );
    }
}
