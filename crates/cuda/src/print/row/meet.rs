//! Where the threads of a row meet: what each has found is folded in lanes, then by way of shared memory, then across the blocks of a cluster.

use fuseline::tile::StepId;

use super::super::body::{Accumulator, Body};
use super::Plan;

impl Plan<'_, '_> {
    /// Folds what the threads of a row have found; all of them know the result.
    pub(super) fn print_folds(&self, body: &mut Body<'_>, folds: &[StepId], accumulators: &[Accumulator]) {
        let lanes = self.threads.min(32);
        let warps = self.threads / 32;
        for (fold, accumulator) in folds.iter().zip(accumulators) {
            if lanes > 1 {
                body.line(format!("s{0} = in_lanes<{lanes}>(s{0}, {1});", fold.0, accumulator.functor));
            }
        }
        if self.cluster > 1 && !folds.is_empty() {
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
            for (fold, accumulator) in folds.iter().zip(accumulators) {
                // Rows of more than one warp own their block.
                body.line(format!("__shared__ {} part{}[{warps}];", accumulator.ty, fold.0));
                body.line(format!("if (t % 32 == 0) part{0}[t / 32] = s{0};", fold.0));
            }
            body.line("__syncthreads();");
            for (fold, accumulator) in folds.iter().zip(accumulators) {
                body.line(format!("s{0} = in_lanes<{warps}>(part{0}[t % {warps}], {1});", fold.0, accumulator.functor));
            }
        }
        for (fold, accumulator) in folds.iter().zip(accumulators) {
            let result = accumulator.result(body, &format!("s{}", fold.0));
            body.know(*fold, result);
        }
    }
}
