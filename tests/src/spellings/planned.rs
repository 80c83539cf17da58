//! What the planner makes of a row.

use fuseline::compile::plan_program;
use fuseline::device::DeviceSpec;
use fuseline::error::Result;
use fuseline::fuse::{Plan, PlanOptions};
use fuseline::graph::Graph;
use fuseline::ops::{Expr, ExprNode, Number, Scalar, Scope, Term};
use fuseline::passes::{Context, Numerics, run_passes};
use fuseline::rewrites::{Permit, apply_rewrites};
use fuseline::tensor::{DType, Env, Symbol};
use fuseline::tile::Op;

use super::Spelling;

/// Sizes as models have them, for the symbols that rows use: what a plan is priced for.
pub fn usual_sizes() -> Env {
    let sizes = [("n", 8), ("s", 1024), ("t", 1024), ("p", 256)];
    sizes.into_iter().map(|(name, size)| (Symbol::name(name), size)).collect()
}

/// One short sequence, and long ones: kernels that are the right ones for one are not for another.
pub fn other_sizes() -> Vec<Env> {
    let sizes = [[1, 128, 128, 64], [8, 2048, 2048, 2048], [2, 4096, 4096, 512]];
    let env = |sizes: [i64; 4]| ["n", "s", "t", "p"].map(Symbol::name).into_iter().zip(sizes).collect();
    sizes.into_iter().map(env).collect()
}

/// A plan with the graph that it divides.
#[derive(Debug)]
pub struct Planned {
    /// after passes and rewrites
    pub graph: Graph,
    /// its kernels
    pub plan: Plan,
}

impl Spelling {
    /// The graph after passes and rewrites, as planners see it.
    pub fn plain(&self, numerics: Numerics) -> Result<Graph> {
        let context = Context { numerics, ..Context::default() };
        let graph = run_passes(self.graph()?, &context, &mut |_| {})?;
        apply_rewrites(graph, &context, &mut Permit::everything(), &mut |_| {})
    }

    /// The plan for a device, by its name.
    pub fn planned(&self, device: &str, numerics: Numerics) -> Result<Planned> {
        self.planned_at(device, numerics, usual_sizes())
    }

    /// The plan for a device at sizes.
    pub fn planned_at(&self, device: &str, numerics: Numerics, sizes: Env) -> Result<Planned> {
        let mut options = PlanOptions { numerics, ..PlanOptions::on(DeviceSpec::find(device)?) };
        options.hints.env = sizes;
        let planned = plan_program(self.graph()?, &options, &mut |_| {})?;
        Ok(Planned { graph: planned.program.run().clone(), plan: planned.run })
    }
}

impl Planned {
    /// The kernels as text, one after the other.
    pub fn kernels(&self) -> String {
        self.plan.kernels.iter().map(|k| k.kernel.to_string()).collect()
    }

    /// The same where no size is 0. Spellings that are the same of any elements may differ in what they make of none: the softmax of no scores
    /// times no values is 0, and the quotient of two sums of nothing is no number.
    pub fn kernels_of_elements(&self) -> String {
        let of_elements = |kernel: &fuseline::tile::Kernel| {
            let mut kernel = kernel.clone();
            for step in &mut kernel.steps {
                if let Op::Map { expr, .. } = &mut step.op {
                    *expr = of_elements(expr);
                }
            }
            kernel.to_string()
        };
        self.plan.kernels.iter().map(|k| of_elements(&k.kernel)).collect()
    }
}

/// An expression where every size is known to be more than 0, and nothing else.
fn of_elements(expr: &Expr) -> Expr {
    let scope = Scope::default();
    let is_zero = |term: Term<'_>| term.as_const() == Some(Number::Int(0));
    let is_size = |term: Term<'_>| matches!(term.node(), ExprNode::Size(_));
    let truth = |holds: bool| scope.constant(DType::Bool, Number::Int(i64::from(holds)));
    let mut terms: Vec<Term<'_>> = Vec::with_capacity(expr.nodes().len());
    for (node, dtype) in expr.nodes() {
        let operands: Vec<Term<'_>> = node.operands().iter().map(|o| terms[*o as usize]).collect();
        terms.push(match (node, operands.as_slice()) {
            (ExprNode::Arg(k), _) => scope.argument(*k as usize, *dtype),
            (ExprNode::Apply(Scalar::Lt, _), [a, b]) if is_zero(*a) && is_size(*b) => truth(true),
            (ExprNode::Apply(Scalar::Le, _), [a, b]) if is_size(*a) && is_zero(*b) => truth(false),
            (ExprNode::Apply(Scalar::Select, _), [condition, yes, no]) => match condition.as_const() {
                Some(holds) if holds.to_f64() != 0.0 => *yes,
                Some(_) => *no,
                None => scope.step(node, *dtype, &operands),
            },
            _ => scope.step(node, *dtype, &operands),
        });
    }
    let args: Vec<Term<'_>> = expr.args().iter().enumerate().map(|(k, dtype)| scope.argument(k, *dtype)).collect();
    Expr::of(terms[terms.len() - 1], &args)
}
