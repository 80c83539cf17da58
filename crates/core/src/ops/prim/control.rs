//! Sub-graphs under control of data.
//!
//! A region is a [`Graph`] of its own. It reads outer values only through its inputs, to which the operands are
//! bound in order, so that it can be planned alone; it may mention the symbols of the outer graph.

use std::sync::Arc;

use super::{Access, Class, Prim, Primitive};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::graph::gradient::{Adjoint, NoGradient, OperandGradients};
use crate::reference::{Buffer, Run};
use crate::tensor::{DType, Dim, Env, TensorType};

/// One of two regions, chosen by a bool. Operands: the condition, then what the regions capture.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct If {
    /// runs where the condition holds
    pub then: Arc<Graph>,
    /// runs where it does not; takes the same captures
    pub otherwise: Arc<Graph>,
    /// the types of the results; value symbols stand for sizes in which the regions differ
    pub results: Vec<TensorType>,
}

/// A region run again and again. Operands: the largest number of trips (i64), whether to start (bool), the carried
/// values, the captures. The body takes the trip number, the carried values and the captures; it returns whether to
/// go on, the new carried values, and slices that are stacked along a new first axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Loop {
    /// what runs
    pub body: Arc<Graph>,
    /// number of carried values
    pub carried: usize,
    /// the types of the results: the carried values after the last trip, then the stacks
    pub results: Vec<TensorType>,
}

/// Operands must have the element types and ranks of the inputs they are bound to; sizes are checked when they are bound.
fn check_region(name: &str, region: &Graph, operands: &[&TensorType], outputs: usize) -> Result<()> {
    let inputs: Vec<&TensorType> = region.inputs().iter().map(|v| region.ty(*v)).collect();
    let fits = |(a, b): (&&TensorType, &&TensorType)| a.dtype == b.dtype && a.shape.rank() == b.shape.rank();
    if inputs.len() != operands.len() || !inputs.iter().zip(operands).all(fits) {
        return Err(Error::bug(format!("{name}: operands {operands:?} for a region with inputs {inputs:?}")));
    }
    if region.outputs().len() != outputs {
        return Err(Error::bug(format!("{name}: a region with {} results, wanted {outputs}", region.outputs().len())));
    }
    Ok(())
}

fn check_result(name: &str, declared: &TensorType, actual: &TensorType) -> Result<()> {
    if declared.dtype != actual.dtype || declared.shape.rank() != actual.shape.rank() {
        return Err(Error::invalid(format!("{name}: a region returns {actual} where {declared} is wanted")));
    }
    Ok(())
}

impl Prim {
    /// The regions of control flow, in the order of its fields; none for what has no regions.
    pub fn regions(&self) -> Vec<&Arc<Graph>> {
        match self {
            Prim::If(row) => vec![&row.then, &row.otherwise],
            Prim::Loop(row) => vec![&row.body],
            _ => Vec::new(),
        }
    }
}

/// Who runs regions: the reference, node by node, or whoever has a plan of them.
pub trait Regions {
    /// Counts a trip of a loop against the limit.
    fn count_trip(&mut self) -> Result<()>;

    /// What is kept from trip to trip has `now` bytes, no longer `before`: an error where that is more than a run may have.
    fn hold(&mut self, before: u64, now: u64) -> Result<()>;

    /// The results of one of the regions of the primitive, in the order of its fields, for its inputs in order.
    fn region(&mut self, number: usize, operands: &[Buffer]) -> Result<Vec<Buffer>>;

    /// The symbols that are bound around the regions.
    fn env(&self) -> &Env;
}

/// Regions run by the reference.
struct ByReference<'a, 'o> {
    run: &'a mut Run<'o>,
    regions: &'a [&'a Graph],
}

impl Regions for ByReference<'_, '_> {
    fn count_trip(&mut self) -> Result<()> {
        self.run.count_trip()
    }

    fn hold(&mut self, before: u64, now: u64) -> Result<()> {
        self.run.hold(before, now)
    }

    fn region(&mut self, number: usize, operands: &[Buffer]) -> Result<Vec<Buffer>> {
        self.run.region(self.regions[number], operands)
    }

    fn env(&self) -> &Env {
        self.run.env()
    }
}

impl If {
    /// The results for operands.
    pub fn run(&self, args: &[Buffer], regions: &mut dyn Regions) -> Result<Vec<Buffer>> {
        let holds = args[0].to_ints()[0] != 0;
        regions.region(usize::from(!holds), &args[1..])
    }
}

impl Loop {
    /// The results for operands.
    pub fn run(&self, args: &[Buffer], regions: &mut dyn Regions) -> Result<Vec<Buffer>> {
        let trips = args[0].to_ints()[0];
        let mut go_on = args[1].to_ints()[0] != 0;
        let (carried, captures) = args[2..].split_at(self.carried);
        let mut carried = carried.to_vec();
        let mut slices: Vec<Vec<Buffer>> = vec![Vec::new(); self.results.len() - self.carried];
        let (mut stacked, mut held) = (0u64, 0u64);
        let mut trip = 0;
        while go_on && trip < trips {
            regions.count_trip()?;
            let mut operands = vec![Buffer::ints(DType::I64, vec![], vec![trip])];
            operands.extend(carried.iter().chain(captures).cloned());
            let mut results = regions.region(0, &operands)?.into_iter();
            go_on = results.next().is_some_and(|c| c.to_ints()[0] != 0);
            carried = results.by_ref().take(self.carried).collect();
            for (stack, slice) in slices.iter_mut().zip(results) {
                stacked = stacked.saturating_add(slice.kept_bytes());
                stack.push(slice);
            }
            let now = carried.iter().map(Buffer::kept_bytes).fold(stacked, u64::saturating_add);
            regions.hold(held, now)?;
            held = now;
            trip += 1;
        }
        // The stacks are copies.
        regions.hold(0, stacked)?;
        let types = &self.results[self.carried..];
        let stacks = slices.iter().zip(types).map(|(slices, ty)| Buffer::stack(slices, ty, regions.env()));
        let stacks: Result<Vec<Buffer>> = stacks.collect();
        carried.extend(stacks?);
        // Whoever takes the results counts them.
        regions.hold(held.saturating_add(stacked), 0)?;
        Ok(carried)
    }
}

fn is_scalar(ty: &TensorType, dtype: DType) -> bool {
    ty.dtype == dtype && ty.shape.rank() == 0
}

impl Primitive for If {
    const NAME: &'static str = "if";
    const CLASS: Class = Class::Control;
    const DOC: &'static str = "The results of one of two regions, chosen by a bool scalar.";

    fn infer(&self, args: &[TensorType]) -> Result<Vec<TensorType>> {
        if !args.first().is_some_and(|c| is_scalar(c, DType::Bool)) {
            return Err(Error::invalid("if: the condition must be a bool scalar"));
        }
        let captures: Vec<&TensorType> = args[1..].iter().collect();
        for region in [&self.then, &self.otherwise] {
            check_region(Self::NAME, region, &captures, self.results.len())?;
            for (declared, output) in self.results.iter().zip(region.outputs()) {
                check_result(Self::NAME, declared, region.ty(output.value))?;
            }
        }
        Ok(self.results.clone())
    }

    fn access(&self, _: &[TensorType]) -> Option<Access> {
        None
    }

    fn eval(&self, args: &[Buffer], run: &mut Run<'_>) -> Result<Vec<Buffer>> {
        If::run(self, args, &mut ByReference { run, regions: &[&self.then, &self.otherwise] })
    }

    fn gradient<'b>(&self, at: &Adjoint<'_, 'b>) -> std::result::Result<OperandGradients<'b>, NoGradient> {
        Err(NoGradient { primitive: Self::NAME, operands: at.args.len() })
    }

    fn for_each_dim(&self, f: &mut dyn FnMut(&Dim)) {
        self.results.iter().flat_map(|ty| ty.shape.dims()).for_each(&mut *f);
        self.then.for_each_dim(f);
        self.otherwise.for_each_dim(f);
    }
}

impl Primitive for Loop {
    const NAME: &'static str = "loop";
    const CLASS: Class = Class::Control;
    const DOC: &'static str =
        "A region run until its condition fails or the trips are used up; carries values, stacks slices.";

    fn infer(&self, args: &[TensorType]) -> Result<Vec<TensorType>> {
        let [trips, start, values @ ..] = args else { return Err(Error::bug("loop: operands are missing")) };
        if !is_scalar(trips, DType::I64) || !is_scalar(start, DType::Bool) || values.len() < self.carried {
            return Err(Error::invalid("loop: wanted an i64 scalar, a bool scalar and the carried values"));
        }
        let trip = TensorType::new(DType::I64, vec![]);
        let operands: Vec<&TensorType> = std::iter::once(&trip).chain(values).collect();
        check_region(Self::NAME, &self.body, &operands, self.results.len() + 1)?;
        let outputs: Vec<&TensorType> = self.body.outputs().iter().map(|o| self.body.ty(o.value)).collect();
        if !is_scalar(outputs[0], DType::Bool) {
            return Err(Error::invalid("loop: the body's first result must be a bool scalar"));
        }
        for (k, (declared, actual)) in self.results.iter().zip(&outputs[1..]).enumerate() {
            let slice = TensorType::new(declared.dtype, declared.shape.dims().get(1..).unwrap_or(&[]).to_vec());
            check_result(Self::NAME, if k < self.carried { declared } else { &slice }, actual)?;
        }
        Ok(self.results.clone())
    }

    fn access(&self, _: &[TensorType]) -> Option<Access> {
        None
    }

    fn eval(&self, args: &[Buffer], run: &mut Run<'_>) -> Result<Vec<Buffer>> {
        Loop::run(self, args, &mut ByReference { run, regions: &[&self.body] })
    }

    fn gradient<'b>(&self, at: &Adjoint<'_, 'b>) -> std::result::Result<OperandGradients<'b>, NoGradient> {
        Err(NoGradient { primitive: Self::NAME, operands: at.args.len() })
    }

    fn for_each_dim(&self, f: &mut dyn FnMut(&Dim)) {
        self.results.iter().flat_map(|ty| ty.shape.dims()).for_each(&mut *f);
        self.body.for_each_dim(f);
    }
}
