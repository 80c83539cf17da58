//! Random words that are drawn while a row comes from memory.
//!
//! Nothing that is read decides about them, and what is asked of a word is one comparison, as a rule: that is done in the first pass, whose loads nobody
//! has waited for yet, and of every word a bit is kept. Later passes see all ones where the word was above, and 0 where it was not.

use fuseline::error::Result;
use fuseline::ops::{ExprNode, threshold};
use fuseline::tile::{AxisSet, Op, StepId};

use super::super::body::Body;
use super::super::code::Code;
use super::Plan;
use super::hold::Place;

/// Words of a thread, of which bits are kept.
const MOST_WORDS: i64 = 64;

/// Words that are compared with one number, and with nothing else.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drawn {
    step: StepId,
    least: u32,
}

impl Plan<'_, '_> {
    /// Finds words that only later passes ask for; the first one takes of rows what is held.
    pub(super) fn draw_early(&mut self) {
        self.drawn = self.words_to_draw();
        if !self.drawn.is_empty() {
            let held = self.held.iter().filter(|held| held.first == 0 && held.is_pack).map(|held| held.step);
            self.passes[0].takes.extend(held);
        }
    }

    fn words_to_draw(&self) -> Vec<Drawn> {
        let words = self.turns.unwrap_or(MOST_WORDS) * self.lanes.count;
        let is_held = self.held.iter().any(|held| held.first == 0 && held.is_pack);
        let is_here = is_held && self.part.is_none() && self.place == Place::Registers && self.lanes.count % 4 == 0;
        if !is_here || words > MOST_WORDS || self.passes.len() < 2 {
            return Vec::new();
        }
        let first = self.read_by(&self.passes[0]);
        let steps = self.nest.kernel.steps.iter().enumerate();
        let drawn = steps.filter_map(|(k, step)| {
            let Op::Random { seed, reads, .. } = &step.op else { return None };
            let id = StepId(k as u32);
            let is_known = matches!(self.nest.kernel.step(*seed).op, Op::Load { .. }) && !self.varies(*seed);
            let is_later = !first[k] && self.passes[1..].iter().any(|pass| self.read_by(pass)[k]);
            if !is_known || !is_later || !reads.is_empty() || !self.varies(id) {
                return None;
            }
            self.compared_with(id).map(|least| Drawn { step: id, least })
        });
        drawn.collect()
    }

    /// The number that all readers of a word compare it with, if that is all they do.
    fn compared_with(&self, word: StepId) -> Option<u32> {
        let mut found = None;
        for step in self.nest.kernel.steps.iter().filter(|step| step.op.operands().contains(&word)) {
            let Op::Map { expr, args } = &step.op else { return None };
            let nodes = expr.nodes();
            let is_word = |node: &ExprNode| matches!(node, ExprNode::Arg(n) if args[*n as usize] == word);
            let (mut seen, mut todo) = (vec![false; nodes.len()], vec![nodes.len() as u32 - 1]);
            while let Some(at) = todo.pop() {
                if std::mem::replace(&mut seen[at as usize], true) {
                    continue;
                }
                let node = &nodes[at as usize].0;
                let compared = match node {
                    ExprNode::Apply(op, operands) => threshold(nodes, *op, operands),
                    _ if is_word(node) => return None,
                    _ => None,
                };
                match compared.filter(|compared| is_word(&nodes[compared.word as usize].0)) {
                    Some(compared) => {
                        let least = u32::try_from(compared.least).ok().filter(|least| *least > 0)?;
                        if *found.get_or_insert(least) != least {
                            return None;
                        }
                    }
                    None => todo.extend(node.operands()),
                }
            }
        }
        found
    }

    /// Asks for all of a row that is held, and draws words before anybody waits for it. Bits are told to the compiler as something that it knows nothing
    /// of: it would draw words where they are wanted.
    pub(super) fn draw(&self, body: &mut Body<'_>) -> Result<()> {
        if self.drawn.is_empty() {
            return Ok(());
        }
        let lanes = AxisSet::of(self.lanes.axis);
        body.open(self.along.without(lanes));
        self.print_place(body);
        for held in self.held.iter().filter(|held| self.passes[0].takes.contains(&held.step)) {
            body.open_lanes();
            body.need_pack(held.step)?;
            body.close_lanes();
            body.line(format!("{}[k] = p{};", held.name(), held.step.0));
        }
        self.close_loop(body);
        let (words, at) = ((self.turns.unwrap_or(1) * self.lanes.count + 31) / 32, self.bit());
        for Drawn { step, least } in &self.drawn {
            body.line(format!("unsigned m{}[{words}] = {{}};", step.0));
            body.open(self.along.without(lanes));
            self.print_place(body);
            body.open_lanes();
            let word = body.value(*step)?;
            body.line(format!("m{}[({at}) / 32] |= (unsigned)({least}u <= {word}) << ({at}) % 32;", step.0));
            body.close_lanes();
            // Words of packs that are not there are drawn, too: nobody asks for them, and a branch would keep them from being mixed with others.
            body.close(&format!("#pragma unroll\nfor (int k = 0; k < {}; ++k)", self.turns.unwrap_or(1)));
            self.draw_ends(body, *step, *least)?;
            for k in 0..words {
                body.line(format!("asm volatile(\"\" : \"+r\"(m{}[{k}]));", step.0));
            }
        }
        Ok(())
    }

    /// Draws the word of the element that a thread has at an end, if any.
    fn draw_ends(&self, body: &mut Body<'_>, step: StepId, least: u32) -> Result<()> {
        if !self.draws_ends() {
            return Ok(());
        }
        let lanes = body.lanes.take();
        body.line(format!("unsigned w{};", step.0));
        body.open(self.along);
        body.line(format!("const Index i{} = end;", self.lanes.axis));
        let word = body.value(step)?;
        body.line(format!("w{} = {least}u <= {word} ? {}u : 0u;", step.0, u32::MAX));
        body.close("");
        body.line(format!("asm volatile(\"\" : \"+r\"(w{}));", step.0));
        body.lanes = lanes;
        Ok(())
    }

    fn draws_ends(&self) -> bool {
        self.nest.lines.is_some() && !self.is_alike() && self.rows_of_block > 1
    }

    /// What passes know of words that were drawn for the ends of rows.
    pub(super) fn know_drawn_ends(&self, body: &mut Body<'_>) {
        for Drawn { step, .. } in self.drawn.iter().filter(|_| self.draws_ends()) {
            body.know(*step, Code::atom(format!("w{}", step.0)));
        }
    }

    /// What passes know of words that were drawn.
    pub(super) fn know_drawn(&self, body: &mut Body<'_>) {
        let at = self.bit();
        for Drawn { step, .. } in &self.drawn {
            let kept = format!("(m{}[({at}) / 32] >> ({at}) % 32 & 1u ? {}u : 0u)", step.0, u32::MAX);
            body.know_in_lanes(*step, Code::atom(kept));
        }
    }

    /// The number of a word among those of a thread.
    fn bit(&self) -> String {
        format!("k * {} + l", self.lanes.count)
    }
}
