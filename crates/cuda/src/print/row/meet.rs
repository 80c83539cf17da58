//! Where the threads of a row meet: what each has found is folded in lanes, then by way of shared memory, then across the blocks of a cluster.

use fuseline::tile::StepId;

use super::super::body::{Accumulator, Body};
use super::super::code::Code;
use super::Plan;

impl Plan<'_, '_> {
    /// Folds what the threads of a row have found; all of them know the result.
    pub(super) fn print_folds(&self, body: &mut Body<'_>, folds: &[StepId], accumulators: &[Accumulator]) {
        let warps = self.threads / 32;
        if self.cluster > 1 && !folds.is_empty() {
            self.print_in_lanes(body, folds, accumulators);
            // Others must have begun before anything is written to them.
            if self.passes.iter().find_map(|pass| pass.folds.first()) == folds.first() {
                body.line("wait_for_cluster();");
            }
            for (fold, accumulator) in folds.iter().zip(accumulators) {
                body.line(format!("__shared__ {} part{}[{warps}];", accumulator.ty, fold.0));
                body.line(format!("if (t % 32 < {1}) put(part{0} + t / 32, s{0}, t % 32);", fold.0, self.cluster));
            }
            body.line("arrive_in_cluster();");
            body.line("wait_for_cluster();");
            for (fold, accumulator) in folds.iter().zip(accumulators) {
                body.line(format!("s{0} = of_warps(part{0}, {1});", fold.0, accumulator.functor));
            }
        } else if warps > 1 && !folds.is_empty() {
            self.print_in_block(body, folds, accumulators, warps);
        } else {
            self.print_in_lanes(body, folds, accumulators);
        }
        for (fold, accumulator) in folds.iter().zip(accumulators) {
            let result = accumulator.result(body, &format!("s{}", fold.0));
            body.know(*fold, result);
        }
    }

    fn print_in_lanes(&self, body: &mut Body<'_>, folds: &[StepId], accumulators: &[Accumulator]) {
        let lanes = self.threads.min(32);
        for (fold, accumulator) in folds.iter().zip(accumulators).filter(|_| lanes > 1) {
            body.line(format!("s{0} = in_lanes<{lanes}>(s{0}, {1});", fold.0, accumulator.functor));
        }
    }

    /// Folds what the warps of a block have found; rows of more than one warp own their block. Of two folds of a kind, each half of a warp does
    /// one.
    fn print_in_block(&self, body: &mut Body<'_>, folds: &[StepId], accumulators: &[Accumulator], warps: i64) {
        let mut behind = Vec::new();
        let (mut folds, mut accumulators) = (folds, accumulators);
        while let ([first, others @ ..], [accumulator, more @ ..]) = (folds, accumulators) {
            let (a, ty, functor) = (first.0, &accumulator.ty, accumulator.functor);
            let are_halves = warps <= 16 && is_power_of_two(warps);
            let is_alike = |other: &&Accumulator| &other.ty == ty && other.functor == functor && are_halves;
            if let (Some(second), Some(_)) = (others.first(), more.first().filter(is_alike)) {
                let b = second.0;
                body.line(format!("const {ty} two{a} = two_in_lanes(s{a}, s{b}, {functor});"));
                body.line(format!("__shared__ {ty} part{a}[{}];", 2 * warps));
                body.line(format!("if (t % 16 == 0) part{a}[t / 16 % 2 * {warps} + t / 32] = two{a};"));
                behind.push(format!("two_of_warps<{warps}>(s{a}, s{b}, part{a}, {functor});"));
                (folds, accumulators) = (&others[1..], &more[1..]);
            } else {
                body.line(format!("s{a} = in_lanes<32>(s{a}, {functor});"));
                body.line(format!("__shared__ {ty} part{a}[{warps}];"));
                body.line(format!("if (t % 32 == 0) part{a}[t / 32] = s{a};"));
                let (lanes, part) = part_of_lane(&format!("part{a}"), warps, &accumulator.neutral);
                behind.push(format!("s{a} = in_lanes<{lanes}>({part}, {functor});"));
                (folds, accumulators) = (others, more);
            }
        }
        body.line("__syncthreads();");
        behind.into_iter().for_each(|line| body.line(line));
    }
}

/// How many lanes fold what so many warps have found, and what a lane has of that: nothing, where lanes are more than warps.
pub(super) fn part_of_lane(part: &str, warps: i64, neutral: &Code) -> (i64, String) {
    match is_power_of_two(warps) {
        true => (warps, format!("{part}[t % {warps}]")),
        false => (32, format!("(t % 32 < {warps} ? {part}[t % 32] : {neutral})")),
    }
}

fn is_power_of_two(number: i64) -> bool {
    number & (number - 1) == 0
}
