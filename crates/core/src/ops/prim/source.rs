//! Rows that make data: inputs, constants, sizes, bound symbols, random words.

use std::sync::Arc;

use super::{Access, Class, Primitive, expect_args};
use crate::error::{Error, Result};
use crate::graph::gradient::{Adjoint, NoGradient, OperandGradients};
use crate::philox;
use crate::reference::{Buffer, Run};
use crate::tensor::{DType, Dim, Literal, Shape, Symbol, TensorType};

/// A tensor that the caller provides.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Input {
    /// the caller's name for it
    pub name: Arc<str>,
    /// its type; symbols in it are bound by the tensor that comes in
    pub ty: TensorType,
}

impl Primitive for Input {
    const NAME: &'static str = "input";
    const CLASS: Class = Class::Source;
    const DOC: &'static str = "A tensor that the caller provides.";

    fn infer(&self, args: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_args(Self::NAME, args, 0)?;
        self.ty.shape.check()?;
        Ok(vec![self.ty.clone()])
    }

    fn access(&self, _: &[TensorType]) -> Option<Access> {
        None
    }

    fn eval(&self, _: &[Buffer], run: &mut Run<'_>) -> Result<Vec<Buffer>> {
        run.input(&self.name).map(|buffer| vec![buffer])
    }

    fn gradient<'b>(&self, _: &Adjoint<'_, 'b>) -> std::result::Result<OperandGradients<'b>, NoGradient> {
        Ok(vec![])
    }

    fn for_each_dim(&self, f: &mut dyn FnMut(&Dim)) {
        self.ty.shape.dims().iter().for_each(f);
    }
}

/// A tensor known at compile time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Const {
    /// its data
    pub literal: Literal,
}

impl Primitive for Const {
    const NAME: &'static str = "const";
    const CLASS: Class = Class::Source;
    const DOC: &'static str = "A tensor known at compile time.";

    fn infer(&self, args: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_args(Self::NAME, args, 0)?;
        Ok(vec![self.literal.ty()])
    }

    fn access(&self, _: &[TensorType]) -> Option<Access> {
        None
    }

    fn eval(&self, _: &[Buffer], run: &mut Run<'_>) -> Result<Vec<Buffer>> {
        if self.literal.as_seeded().is_some() {
            run.reserve(self.literal.count())?; // stored elements lie in memory or in a file; these will have to be made
        }
        Ok(vec![Buffer::from_literal(&self.literal)])
    }

    fn gradient<'b>(&self, _: &Adjoint<'_, 'b>) -> std::result::Result<OperandGradients<'b>, NoGradient> {
        Ok(vec![])
    }

    fn for_each_dim(&self, _: &mut dyn FnMut(&Dim)) {}
}

/// A vector of sizes: what shape arithmetic becomes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sizes {
    /// the elements
    pub dims: Vec<Dim>,
}

impl Primitive for Sizes {
    const NAME: &'static str = "sizes";
    const CLASS: Class = Class::Source;
    const DOC: &'static str = "A vector of i64 whose elements are sizes.";

    fn infer(&self, args: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_args(Self::NAME, args, 0)?;
        Ok(vec![TensorType::new(DType::I64, Shape::new([self.dims.len()]))])
    }

    fn access(&self, _: &[TensorType]) -> Option<Access> {
        None
    }

    fn eval(&self, _: &[Buffer], run: &mut Run<'_>) -> Result<Vec<Buffer>> {
        let values: Result<Vec<i64>> = self.dims.iter().map(|d| d.eval(run.env())).collect();
        Ok(vec![Buffer::ints(DType::I64, vec![self.dims.len()], values?)])
    }

    fn gradient<'b>(&self, _: &Adjoint<'_, 'b>) -> std::result::Result<OperandGradients<'b>, NoGradient> {
        Ok(vec![])
    }

    fn for_each_dim(&self, f: &mut dyn FnMut(&Dim)) {
        self.dims.iter().for_each(f);
    }
}

/// Makes a size of a number: binds a value symbol to a scalar computed at run time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bind {
    /// the number of the value symbol
    pub symbol: u32,
}

impl Primitive for Bind {
    const NAME: &'static str = "bind";
    const CLASS: Class = Class::Control;
    const DOC: &'static str = "Binds a value symbol to an i64 scalar, and returns the scalar; the program splits here.";

    fn infer(&self, args: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_args(Self::NAME, args, 1)?;
        if args[0].dtype != DType::I64 || args[0].shape.rank() != 0 {
            return Err(Error::bug(format!("bind takes an i64 scalar, got {}", args[0])));
        }
        Ok(args.to_vec())
    }

    fn access(&self, _: &[TensorType]) -> Option<Access> {
        None
    }

    fn eval(&self, args: &[Buffer], run: &mut Run<'_>) -> Result<Vec<Buffer>> {
        let value = args[0].to_ints()[0];
        run.bind(Symbol::Value(self.symbol), value);
        Ok(vec![args[0].clone()])
    }

    fn gradient<'b>(&self, _: &Adjoint<'_, 'b>) -> std::result::Result<OperandGradients<'b>, NoGradient> {
        Ok(vec![None])
    }

    fn for_each_dim(&self, _: &mut dyn FnMut(&Dim)) {}
}

/// Random 32-bit words: Philox-4x32-10 keyed by seed, stream and logical element index, so that neither fusion nor
/// layout changes which element gets which word.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Random {
    /// tells independent draws of one program apart
    pub stream: u64,
    /// the shape of the result
    pub shape: Shape,
}

impl Primitive for Random {
    const NAME: &'static str = "random";
    const CLASS: Class = Class::Source;
    const DOC: &'static str = "u32 words from Philox-4x32-10; the operand is the seed, an i64 scalar.";

    fn infer(&self, args: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_args(Self::NAME, args, 1)?;
        if args[0].dtype != DType::I64 || args[0].shape.rank() != 0 {
            return Err(Error::invalid(format!("a random seed must be an i64 scalar, got {}", args[0])));
        }
        self.shape.check()?;
        Ok(vec![TensorType::new(DType::U32, self.shape.clone())])
    }

    fn access(&self, _: &[TensorType]) -> Option<Access> {
        None
    }

    fn eval(&self, args: &[Buffer], run: &mut Run<'_>) -> Result<Vec<Buffer>> {
        let seed = args[0].to_ints()[0] as u64;
        let sizes = run.sizes(&self.shape)?;
        let count = sizes.iter().product::<usize>() as u64;
        let words = (0..count).map(|k| i64::from(philox::word(seed, self.stream, k))).collect();
        Ok(vec![Buffer::ints(DType::U32, sizes, words)])
    }

    fn gradient<'b>(&self, _: &Adjoint<'_, 'b>) -> std::result::Result<OperandGradients<'b>, NoGradient> {
        Ok(vec![None])
    }

    fn for_each_dim(&self, f: &mut dyn FnMut(&Dim)) {
        self.shape.dims().iter().for_each(f);
    }

    fn flops(&self, _: &[TensorType]) -> Dim {
        self.shape.count() * 15 // ten rounds of six operations make four words
    }
}
