//! The largest of a row and the sum of exponentials below it, found in one pass: whenever a larger number comes, the sum so far is scaled down to it.
//!
//! For rows of which a multiprocessor holds one, in its shared memory: every pass over such a row is work that nothing else runs beside. Where
//! blocks of a cluster hold a row, every thread finds both of its own numbers before it meets the others: waiting for them is what takes longest.

use fuseline::error::Result;
use fuseline::ops::prim::Monoid;
use fuseline::ops::{ExprNode, Scalar};
use fuseline::tensor::DType;
use fuseline::tile::{AxisSet, Op, Rounding, StepId};

use super::super::body::{Accumulator, Body, pack_width};
use super::super::code::Code;
use super::Plan;
use super::meet::part_of_lane;

/// A pass that finds the largest of floats as they were read, and the next one, which adds up exponentials of what they are below it.
pub(super) struct Online {
    largest: StepId,
    sum: StepId,
    load: StepId,
    /// what finds the largest of a pack of narrow floats
    of_pack: Option<String>,
}

impl Plan<'_, '_> {
    /// Whether a pass and the next one are one.
    pub(super) fn online(&self, number: usize) -> Option<Online> {
        let is_alone = |pass: &super::Pass| pass.stores.is_empty() && pass.columns.is_empty();
        let (pass, next) = (self.passes.get(number)?, self.passes.get(number + 1)?);
        let (&[largest], &[sum]) = (pass.folds.as_slice(), next.folds.as_slice()) else { return None };
        let is_shared = self.cluster > 1 && self.nest.kernel.rounding != Rounding::Every;
        let is_alone_there = self.is_near && self.blocks_at_once == 1 && self.threads > 32 && self.cluster == 1;
        if self.part.is_some()
            || !(is_shared || is_alone_there)
            || self.fetched.is_empty()
            || !self.held.is_empty()
            || !is_alone(pass)
            || !is_alone(next)
        {
            return None;
        }
        let of_narrow = self.extreme_of_pack(largest).filter(|(_, of_pack)| of_pack.starts_with("largest"));
        let (load, of_pack) = match (of_narrow, &self.nest.kernel.step(largest).op) {
            (Some((load, of_pack)), _) => (load, Some(of_pack)),
            (None, Op::Reduce { monoid: Monoid::Max, arg, .. }) if is_shared && self.is_f32_fetched(*arg) => {
                (*arg, None)
            }
            _ => return None,
        };
        self.is_sum_below(sum, largest, load).then_some(Online { largest, sum, load, of_pack })
    }

    /// Where a fold wants the largest or the least of narrow floats as they were read, and packs of them are: their load, and what finds it
    /// in a pack, two elements at a time.
    pub(super) fn extreme_of_pack(&self, fold: StepId) -> Option<(StepId, String)> {
        let steps = &self.nest.kernel.steps;
        let (of_pack, arg) = match steps[fold.index()].op {
            Op::Reduce { monoid: Monoid::Max, arg, .. } => ("largest", arg),
            Op::Reduce { monoid: Monoid::Min, arg, .. } => ("least", arg),
            _ => return None,
        };
        let load = match &steps[arg.index()].op {
            Op::Map { expr, args } => match (expr.nodes(), args.as_slice()) {
                ([(ExprNode::Arg(0), _), (ExprNode::Cast(0), DType::F32)], [load]) => *load,
                _ => return None,
            },
            _ => arg,
        };
        let Op::Load { .. } = steps[load.index()].op else { return None };
        let access = self.nest.load(load);
        let dtype = access.tensor.dtype;
        let is_narrow = matches!(dtype, DType::F16 | DType::BF16) && steps[load.index()].dtype == dtype;
        let is_pack = self.lanes.count > 1 && pack_width(self.nest, access, self.lanes).is_some();
        (is_narrow && is_pack).then(|| (load, format!("{of_pack}_{}", dtype.name())))
    }

    fn is_f32_fetched(&self, id: StepId) -> bool {
        self.fetched.contains(&id) && self.nest.kernel.step(id).dtype == DType::F32
    }

    /// Whether a fold adds up exponentials of what was loaded, less another fold.
    fn is_sum_below(&self, sum: StepId, largest: StepId, load: StepId) -> bool {
        let kernel = &self.nest.kernel;
        let Op::Reduce { monoid: Monoid::Sum, arg, .. } = kernel.step(sum).op else {
            return false;
        };
        let Op::Map { expr, args } = &kernel.step(arg).op else { return false };
        let nodes = expr.nodes();
        // The argument that a node is, but for widening.
        let argument = |mut node: u32| loop {
            match &nodes[node as usize].0 {
                ExprNode::Cast(x) => node = *x,
                ExprNode::Arg(number) => break args.get(*number as usize).copied(),
                _ => break None,
            }
        };
        let Some((ExprNode::Apply(Scalar::Exp, of), _)) = nodes.last() else { return false };
        let ExprNode::Apply(Scalar::Sub, parts) = &nodes[of[0] as usize].0 else { return false };
        let is_loaded = |id: StepId| match &kernel.step(id).op {
            Op::Map { expr, args } if expr.is_cast() => args[0] == load,
            _ => id == load,
        };
        argument(parts[0]).is_some_and(is_loaded) && argument(parts[1]) == Some(largest)
    }

    /// Both passes as one; all threads of the row know both results.
    pub(super) fn print_online(&self, body: &mut Body<'_>, number: usize, online: &Online) -> Result<()> {
        let Online { largest, sum, load, of_pack } = online;
        let (m, s, warps) = (largest.0, sum.0, self.threads / 32);
        let Some(of_pack) = of_pack.as_ref().filter(|_| self.cluster == 1) else {
            return self.print_online_in_cluster(body, number, online);
        };
        let [of_largest, of_sum] = [largest, sum].map(|fold| Accumulator::of(self.nest, *fold));
        body.line(format!("float s{m} = {}, s{s} = {};", of_largest.neutral, of_sum.neutral));
        body.open(self.along.without(AxisSet::of(self.lanes.axis)));
        self.print_place(body);
        self.wait_for_piece(body, number);
        self.print_fetched(body, &self.passes[number]);
        body.line(format!("const float n{m} = larger(s{m}, {of_pack}(p{})), b{m} = base_of(n{m});", load.0));
        body.line(format!("float own{s} = 0.0f;"));
        body.know(*largest, Code::atom(format!("b{m}")));
        body.open_lanes();
        body.accumulate(*sum, &of_sum, &format!("own{s}"))?;
        body.close_lanes();
        body.line(format!("s{s} = s{s} * exp_near(s{m} - b{m}) + own{s};"));
        body.line(format!("s{m} = n{m};"));
        self.close_loop(body);
        self.print_online_at_ends(body, number, online)?;
        // The sums of lanes and of warps are scaled down to what the largest of all is.
        body.line(format!("const float lane{m} = s{m};"));
        body.line(format!("s{m} = in_lanes<32>(s{m}, Max());"));
        body.line(format!("s{s} = in_lanes<32>(s{s} * exp_near(lane{m} - base_of(s{m})), Sum());"));
        body.line(format!("__shared__ float part{m}[{warps}], part{s}[{warps}];"));
        body.line(format!("if (t % 32 == 0) part{m}[t / 32] = s{m}, part{s}[t / 32] = s{s};"));
        body.line("__syncthreads();");
        let (lanes, own) = part_of_lane(&format!("part{m}"), warps, &of_largest.neutral);
        let (_, sum_of_warp) = part_of_lane(&format!("part{s}"), warps, &of_sum.neutral);
        body.line(format!("const float warp{m} = {own};"));
        body.line(format!("s{m} = in_lanes<{lanes}>(warp{m}, Max());"));
        body.line(format!("s{s} = in_lanes<{lanes}>({sum_of_warp} * exp_near(warp{m} - base_of(s{m})), Sum());"));
        for (fold, accumulator) in [(largest, &of_largest), (sum, &of_sum)] {
            let result = accumulator.result(body, &format!("s{}", fold.0));
            body.know(*fold, result);
        }
        Ok(())
    }

    /// What a thread finds of the element that it has at an end of a row, as of a pack.
    fn print_online_at_ends(&self, body: &mut Body<'_>, number: usize, online: &Online) -> Result<()> {
        let Online { largest, sum, .. } = online;
        let (m, s, of_sum) = (largest.0, sum.0, Accumulator::of(self.nest, *sum));
        let Op::Reduce { arg, .. } = self.nest.kernel.step(*largest).op else { return Ok(()) };
        self.online_at_ends(body, number, |body| {
            let element = body.value(arg)?;
            body.line(format!("const float n{m} = larger(s{m}, {element}), b{m} = base_of(n{m});"));
            body.line(format!("float own{s} = 0.0f;"));
            body.know(*largest, Code::atom(format!("b{m}")));
            body.accumulate(*sum, &of_sum, &format!("own{s}"))?;
            body.line(format!("s{s} = s{s} * exp_near(s{m} - b{m}) + own{s};"));
            body.line(format!("s{m} = n{m};"));
            Ok(())
        })
    }

    /// Does something with an element at one of the ends, if rows have such.
    fn online_at_ends(
        &self,
        body: &mut Body<'_>,
        number: usize,
        act: impl FnOnce(&mut Body<'_>) -> Result<()>,
    ) -> Result<()> {
        if self.nest.lines.is_none() {
            return Ok(());
        }
        self.at_ends(body, |body| {
            self.know_at_ends(body, number);
            act(body)
        })
    }

    /// Every thread finds its own largest number and its sum below that; then all meet, once.
    fn print_online_in_cluster(&self, body: &mut Body<'_>, number: usize, online: &Online) -> Result<()> {
        let Online { largest, sum, load, of_pack } = online;
        let (m, s, warps) = (largest.0, sum.0, self.threads / 32);
        let exp = if self.is_near { "exp_near" } else { "expf" };
        let [of_largest, of_sum] = [largest, sum].map(|fold| Accumulator::of(self.nest, *fold));
        body.line(format!("float s{m} = {}, s{s} = {};", of_largest.neutral, of_sum.neutral));
        body.open(self.along.without(AxisSet::of(self.lanes.axis)));
        self.print_place(body);
        self.print_fetched(body, &self.passes[number]);
        if let Some(of_pack) = of_pack {
            body.line(format!("s{m} = larger(s{m}, {of_pack}(p{}));", load.0));
        } else {
            body.open_lanes();
            body.accumulate(*largest, &of_largest, &format!("s{m}"))?;
            body.close_lanes();
        }
        self.close_loop(body);
        self.online_at_ends(body, number, |body| body.accumulate(*largest, &of_largest, &format!("s{m}")))?;
        body.line(format!("const float own{m} = s{m}, base{m} = base_of(own{m});"));
        body.open(self.along.without(AxisSet::of(self.lanes.axis)));
        self.print_place(body);
        self.print_fetched(body, &self.passes[number + 1]);
        body.know(*largest, Code::atom(format!("base{m}")));
        body.open_lanes();
        body.accumulate(*sum, &of_sum, &format!("s{s}"))?;
        body.close_lanes();
        self.close_loop(body);
        self.online_at_ends(body, number + 1, |body| {
            body.know(*largest, Code::atom(format!("base{m}")));
            body.accumulate(*sum, &of_sum, &format!("s{s}"))
        })?;
        // The sums of threads and of warps are scaled down to what the largest of all is.
        body.line(format!("s{m} = in_lanes<32>(s{m}, Max());"));
        body.line(format!("s{s} = in_lanes<32>(s{s} * {exp}(own{m} - base_of(s{m})), Sum());"));
        if number == 0 {
            body.line("wait_for_cluster();");
        }
        body.line(format!("__shared__ float part{m}[{warps}], part{s}[{warps}];"));
        let blocks = self.cluster;
        body.line(format!(
            "if (t % 32 < {blocks}) put(part{m} + t / 32, s{m}, t % 32), put(part{s} + t / 32, s{s}, t % 32);"
        ));
        body.line("arrive_in_cluster();");
        body.line("wait_for_cluster();");
        body.line(format!("s{m} = of_warps(part{m}, Max());"));
        body.line(format!("s{s} = 0.0f;"));
        body.line("#pragma unroll");
        body.line(format!("for (int k = 0; k < {warps}; k += 32)"));
        body.line(format!("  s{s} = s{s} + part{s}[k + t % 32] * {exp}(part{m}[k + t % 32] - base_of(s{m}));"));
        body.line(format!("s{s} = in_lanes<32>(s{s}, Sum());"));
        for (fold, accumulator) in [(largest, &of_largest), (sum, &of_sum)] {
            let result = accumulator.result(body, &format!("s{}", fold.0));
            body.know(*fold, result);
        }
        Ok(())
    }
}
