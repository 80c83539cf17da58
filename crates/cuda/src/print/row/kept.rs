//! What is the same for all rows and varies along them (weights), where a block walks along many rows: it stays in registers from row to row, or in shared memory.

use fuseline::error::Result;
use fuseline::tensor::DType;
use fuseline::tile::{AxisSet, Op, StepId};

use super::super::body::{Body, is_across, pack_width};
use super::super::code::Code;
use super::super::element;
use super::Plan;

impl Plan<'_, '_> {
    /// Loads that are the same for all rows are kept from row to row, if there are registers left: widened, or as they are.
    pub(super) fn keep_loads(&mut self, registers: i64) {
        let loads = self.loads_to_keep();
        let dtype = |id: &StepId| self.nest.load(*id).tensor.dtype;
        let elements = self.lanes.count * self.turns.unwrap_or(1);
        let is_narrow = loads.iter().all(|id| matches!(dtype(id), DType::BF16 | DType::F16));
        let wide = element::bytes(DType::F32) * loads.len() as i64;
        self.keeps_wide = is_narrow && wide * elements <= 4 * registers;
        self.kept_loads = if self.weights_bytes() <= 4 * registers { loads } else { Vec::new() };
    }

    /// Where a thread finds a pack of what is the same for all rows.
    pub(super) fn place_of_kept(&self) -> String {
        if self.lifts { format!("k * {}", self.block()) } else { "k".to_owned() }
    }

    /// Where a thread finds its packs of some loads in shared memory, so many rows of each, from a place on.
    pub(super) fn declare_near(
        &self,
        body: &mut Body<'_>,
        letter: &str,
        loads: &[StepId],
        rows: i64,
        mut at: i64,
    ) -> Result<()> {
        let count = self.lanes.count;
        for id in loads {
            let dtype = self.nest.load(*id).tensor.dtype;
            let ty = element::stored(dtype)?;
            body.line(format!(
                "Pack<{ty}, {count}>* const {letter}{} = (Pack<{ty}, {count}>*)(memory + {at}) + threadIdx.x;",
                id.0
            ));
            at += rows * element::bytes(dtype) * count * self.turns.unwrap_or(1) * self.block();
        }
        Ok(())
    }

    /// Bytes of a thread that what is the same for all rows takes.
    pub(super) fn weights_bytes(&self) -> i64 {
        let bytes = |id: &StepId| element::bytes(self.nest.load(*id).tensor.dtype);
        self.loads_to_keep().iter().map(bytes).sum::<i64>() * self.lanes.count * self.turns.unwrap_or(1)
    }

    /// Loads of packs that are the same for all rows.
    pub(super) fn loads_to_keep(&self) -> Vec<StepId> {
        let rows: AxisSet = self.row_axes.iter().copied().collect();
        let needed = self.nest.needed(&(0..self.nest.stores.len()).collect::<Vec<usize>>());
        let is_same = |k: &usize| {
            let (Op::Load { .. }, true) = (&self.nest.kernel.steps[*k].op, needed[*k]) else { return false };
            let access = self.nest.load(StepId(*k as u32));
            let is_plain = access.is_plain();
            let (axes, lanes) = (self.nest.axes[*k], self.lanes);
            let is_whole = lanes.count > 1 && pack_width(self.nest, access, lanes) == Some(lanes.count);
            let is_whole = is_whole || is_across(self.nest, access, lanes);
            is_plain && is_whole && axes.common(rows).is_empty() && !axes.common(self.along).is_empty()
        };
        (0..needed.len()).filter(is_same).map(|k| StepId(k as u32)).collect()
    }

    /// Reads what is kept from row to row.
    pub(super) fn print_kept(&self, body: &mut Body<'_>) -> Result<()> {
        if self.kept_loads.is_empty() {
            return Ok(());
        }
        let (turns, count) = (self.turns.unwrap_or(1), self.lanes.count);
        if self.lifts {
            self.declare_weights(body)?;
        }
        for id in self.kept_loads.iter().filter(|_| !self.lifts) {
            let ty = if self.keeps_wide { "float" } else { element::stored(self.nest.load(*id).tensor.dtype)? };
            body.line(format!("Pack<{ty}, {count}> g{}[{turns}];", id.0));
        }
        body.open(self.along.without(AxisSet::of(self.lanes.axis)));
        self.print_place(body);
        for id in &self.kept_loads {
            let access = self.nest.load(*id).clone();
            let (tensor, offset) = body.address(&access, None)?;
            let loaded = match is_across(self.nest, &access, self.lanes) {
                true => format!("load_across<{count}>({tensor} + {offset}, head)"),
                false => format!("load<{count}>({tensor} + {offset})"),
            };
            if self.keeps_wide {
                let (dtype, narrow) = (access.tensor.dtype, format!("p{}", id.0));
                let ty = element::stored(dtype)?;
                body.line(format!("const Pack<{ty}, {count}> {narrow} = {loaded};"));
                let wide = Code::call("kept", &[element::widened_lane(dtype, &narrow)]);
                body.line("#pragma unroll");
                body.line(format!("for (int l = 0; l < {count}; ++l) g{}[k].at[l] = {wide};", id.0));
            } else {
                body.line(format!("g{}[{}] = {loaded};", id.0, self.place_of_kept()));
            }
        }
        self.close_loop(body);
        Ok(())
    }
}
