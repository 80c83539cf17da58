//! Elements at coordinates that are read from data.

use super::{Access, Class, OperandMap, Primitive, identity_map};
use crate::error::{Error, Result};
use crate::graph::gradient::{Adjoint, NoGradient, OperandGradients};
use crate::reference::{Buffer, Run, eval_gather, eval_scatter};
use crate::tensor::{DType, Dim, Shape, Symbol, TensorType};

/// `result[i] = data[map(i)]`, where the map may also mention `@k`, the element at `i` of the k-th index operand.
/// Index operands (i64) have the result's shape. A coordinate outside of the data is an error.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gather {
    /// the shape of the result and of every index operand
    pub shape: Shape,
    /// coordinate of each data axis
    pub map: Vec<Dim>,
}

/// What happens to the element that an update meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Combine {
    /// the update takes its place; the last one in row-major order wins
    Replace,
    /// sum of both
    Add,
    /// product of both
    Mul,
    /// the larger
    Max,
    /// the smaller
    Min,
}

impl Combine {
    /// Every way.
    pub const ALL: &'static [Combine] = &[Combine::Replace, Combine::Add, Combine::Mul, Combine::Max, Combine::Min];

    /// The name in text forms.
    pub fn name(self) -> &'static str {
        match self {
            Combine::Replace => "replace",
            Combine::Add => "add",
            Combine::Mul => "mul",
            Combine::Max => "max",
            Combine::Min => "min",
        }
    }

    /// The way with this name.
    pub fn from_name(name: &str) -> Option<Combine> {
        Combine::ALL.iter().copied().find(|c| c.name() == name)
    }
}

/// The first operand with the elements of the second (updates) combined into it: `data[map(i)] ∘= updates[i]`.
/// Further operands (i64, the updates' shape) are read by the map as `@k`. Coordinates outside are an error.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scatter {
    /// how to combine
    pub combine: Combine,
    /// coordinate of each data axis over the axes of the updates
    pub map: Vec<Dim>,
}

/// Checks a map of data coordinates over a domain, and that the index operands have the domain's shape.
fn check_map(name: &str, map: &[Dim], data: &TensorType, domain: &Shape, indices: &[TensorType]) -> Result<()> {
    if map.len() != data.shape.rank() {
        return Err(Error::bug(format!("{name}: a map of {} coordinates for {data}", map.len())));
    }
    let foreign = |s: &Symbol| match s {
        Symbol::Axis(a) => usize::from(*a) >= domain.rank(),
        Symbol::Read(k) => usize::from(*k) >= indices.len(),
        Symbol::Name(_) | Symbol::Value(_) => false,
    };
    if map.iter().any(|d| d.mentions(foreign)) {
        return Err(Error::bug(format!("{name}: the map mentions an axis or operand that is not there")));
    }
    match indices.iter().find(|i| i.dtype != DType::I64 || i.shape != *domain) {
        Some(index) => Err(Error::bug(format!("{name}: an index operand is {index}, wanted i64{domain}"))),
        None => Ok(()),
    }
}

impl Primitive for Gather {
    const NAME: &'static str = "gather";
    const CLASS: Class = Class::Index;
    const DOC: &'static str = "Elements of the first operand at coordinates that may be read from index operands.";

    fn infer(&self, args: &[TensorType]) -> Result<Vec<TensorType>> {
        let Some((data, indices)) = args.split_first() else { return Err(Error::bug("gather takes operands")) };
        check_map(Self::NAME, &self.map, data, &self.shape, indices)?;
        self.shape.check()?;
        Ok(vec![TensorType::new(data.dtype, self.shape.clone())])
    }

    fn access(&self, args: &[TensorType]) -> Option<Access> {
        let identity = identity_map(self.shape.rank());
        let mut operands = vec![OperandMap { index: self.map.clone(), guard: Vec::new() }];
        operands.resize(args.len(), OperandMap { index: identity.clone(), guard: Vec::new() });
        Some(Access { domain: self.shape.clone(), result: identity, operands })
    }

    fn eval(&self, args: &[Buffer], run: &mut Run<'_>) -> Result<Vec<Buffer>> {
        eval_gather(&self.map, run.sizes(&self.shape)?, args, run).map(|buffer| vec![buffer])
    }

    fn gradient<'b>(&self, at: &Adjoint<'_, 'b>) -> std::result::Result<OperandGradients<'b>, NoGradient> {
        crate::graph::gradient::of_gather(self, at)
    }

    fn for_each_dim(&self, f: &mut dyn FnMut(&Dim)) {
        self.shape.dims().iter().chain(&self.map).for_each(f);
    }
}

impl Primitive for Scatter {
    const NAME: &'static str = "scatter";
    const CLASS: Class = Class::Index;
    const DOC: &'static str =
        "The first operand with the second combined into it at coordinates read from index operands.";

    fn infer(&self, args: &[TensorType]) -> Result<Vec<TensorType>> {
        let [data, updates, indices @ ..] = args else { return Err(Error::bug("scatter takes data and updates")) };
        if data.dtype != updates.dtype {
            return Err(Error::invalid(format!("scatter of {updates} into {data}: the element types differ")));
        }
        check_map(Self::NAME, &self.map, data, &updates.shape, indices)?;
        Ok(vec![data.clone()])
    }

    fn access(&self, _: &[TensorType]) -> Option<Access> {
        None
    }

    fn eval(&self, args: &[Buffer], run: &mut Run<'_>) -> Result<Vec<Buffer>> {
        eval_scatter(self.combine, &self.map, args, run).map(|buffer| vec![buffer])
    }

    fn gradient<'b>(&self, at: &Adjoint<'_, 'b>) -> std::result::Result<OperandGradients<'b>, NoGradient> {
        crate::graph::gradient::of_scatter(self, at)
    }

    fn for_each_dim(&self, f: &mut dyn FnMut(&Dim)) {
        self.map.iter().for_each(f);
    }

    fn flops(&self, args: &[TensorType]) -> Dim {
        args[1].shape.count()
    }
}
