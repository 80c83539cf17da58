//! Which products of a kernel a library computes so much faster that what is done with them is worth a pass of its own.

use fuseline::error::Result;
use fuseline::ops::ExprNode;
use fuseline::tensor::DType;
use fuseline::tile::{Op, StepId};

use super::super::Parameter;
use super::super::library::Asked;
use super::super::nest::{Nest, Parameters};
use super::super::product::Product;
use super::Cut;

/// Sums of so many products are worth a pass over their results if that makes them faster.
const LONG_SUM: i64 = 768;

/// The same of f32, which threads multiply.
const LONG_SUM_OF_F32: i64 = 384;

/// The same where groups of warps take turns, so that what comes behind a product is done beside it: the library must save more than a pass
/// takes.
const LONG_IN_TURNS: i64 = 3072;

/// A function of so many operations is costly behind a product.
const COSTLY: u32 = 10;

impl Cut<'_> {
    /// Whether a product is computed so much faster by a library that what is done with it is worth a pass of its own.
    pub(super) fn is_for_library(&self, id: StepId) -> Result<bool> {
        if self.options.asked == Asked::Nothing || !matches!(self.work.step(id).op, Op::Dot { .. }) {
            return Ok(false);
        }
        let alone = self.alone(&[id]);
        let outputs = Parameters { inputs: self.parameters.inputs.clone(), outputs: vec![Parameter::Output(0)] };
        let mut nest = Nest::new(&alone, self.options, &outputs)?;
        nest.join_axes();
        let library = Product::of(&nest, &[0]).and_then(|product| product.library(&nest, &[0]));
        // What lies between is ours: where its rows are not aligned, they had better be.
        let library = library.filter(|library| library.sets == 1);
        let (factors, steps) = (library.as_ref().map(|l| l.dtypes.0), library.and_then(|l| l.sizes[2].as_int()));
        let is_light = self.work.step(id).dtype == DType::F32 && !self.is_much_behind(id);
        let least = match factors {
            Some(DType::F32) => LONG_SUM_OF_F32,
            _ if is_light => 2 * LONG_SUM,
            _ => LONG_SUM,
        };
        if steps.is_none_or(|steps| steps < least) {
            return Ok(false);
        }
        // Nothing is gained where the result is stored as it is.
        let mut whole = Nest::new(&self.work, self.options, &self.parameters)?;
        whole.join_axes();
        let is_alone =
            |store: usize| Product::of(&whole, &[store]).is_some_and(|p| p.library(&whole, &[store]).is_some());
        let all: Vec<usize> = (0..self.work.stores.len()).collect();
        if all.iter().any(|store| is_alone(*store)) {
            return Ok(false);
        }
        let in_turns = Product::of(&whole, &all).is_some_and(|product| product.relay.is_some());
        Ok(!in_turns || steps.is_some_and(|steps| steps >= LONG_IN_TURNS))
    }

    /// Whether what is done with a product is work for a pass of its own: another tensor of its size is read, or a costly function computed.
    fn is_much_behind(&self, id: StepId) -> bool {
        let steps = &self.work.steps;
        let mut depends = vec![false; steps.len()];
        depends[id.index()] = true;
        for k in id.index() + 1..steps.len() {
            depends[k] = steps[k].op.operands().iter().any(|operand| depends[operand.index()]);
        }
        let is_wide = |operand: &StepId| {
            let step = &steps[operand.index()];
            matches!(step.op, Op::Load { .. }) && step.axes == steps[id.index()].axes
        };
        let is_costly =
            |(node, _): &(ExprNode, DType)| matches!(node, ExprNode::Apply(op, _) if op.def().flops >= COSTLY);
        (id.index() + 1..steps.len()).filter(|k| depends[*k]).any(|k| match &steps[k].op {
            Op::Map { expr, args } => args.iter().any(is_wide) || expr.nodes().iter().any(is_costly),
            _ => false,
        })
    }
}
