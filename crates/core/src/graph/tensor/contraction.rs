//! Sums of products.

use super::Tensor;
use crate::error::{Error, Result};
use crate::ops::prim::Contract;
use crate::tensor::{DType, Shape};

impl<'b> Tensor<'b> {
    /// A contraction from its subscripts, such as `bmk,bkn->bmn`; half precision accumulates in f32.
    pub fn contract(self, subscripts: &str, other: Tensor<'b>) -> Tensor<'b> {
        self.build(|| {
            let accumulator = accumulator_of(self.dtype()?);
            Ok(self.contract_with(Contract::parse(subscripts, accumulator)?, other))
        })
    }

    /// A contraction; sizes of one label that are not known to be equal are checked at run time.
    pub fn contract_with(self, spec: Contract, other: Tensor<'b>) -> Tensor<'b> {
        self.build(|| {
            let (a, b) = (self.shape()?, other.shape()?);
            let mut dims = b.dims().to_vec();
            for (k, label) in spec.a.iter().enumerate().take(a.rank()) {
                if let Some(j) = spec.b.iter().position(|l| l == label).filter(|j| *j < dims.len()) {
                    self.builder.require_equal(&a[k], &dims[j], &format!("contraction over {}", spec.subscripts()))?;
                    dims[j] = a[k].clone();
                }
            }
            Ok(self.builder.add(spec, &[self, other.with_shape(dims.into())]))
        })
    }

    /// The matrix product of the last two axes, the others broadcast, as numpy's `matmul`.
    pub fn matmul(self, other: Tensor<'b>) -> Tensor<'b> {
        self.build(|| {
            let (ra, rb) = (self.rank()?, other.rank()?);
            match (ra, rb) {
                (0, _) | (_, 0) => Err(Error::invalid("matmul of a scalar")),
                (1, 1) => Ok(self.contract("k,k->", other)),
                (1, _) => Ok(self.insert_axes(&[0]).matmul(other).remove_axes(&[rb - 2])),
                (_, 1) => Ok(self.matmul(other.insert_axes(&[1])).remove_axes(&[ra - 1])),
                _ => self.batched_matmul(other),
            }
        })
    }

    fn batched_matmul(self, other: Tensor<'b>) -> Result<Tensor<'b>> {
        let (sa, sb) = (self.shape()?, other.shape()?);
        let rank = sa.rank().max(sb.rank());
        let labels: Vec<char> = ('a'..='z').chain('A'..='Z').take(rank - 2).collect();
        let (m, k, n) = ('X', 'Y', 'Z');
        if rank - 2 > 40 {
            return Err(Error::unsupported(format!("matmul of tensors with {rank} axes")));
        }
        // A batch axis of size 1 is dropped where the other operand has the axis: it repeats at no cost.
        let trim = |tensor: Tensor<'b>, own: &Shape, other: &Shape| -> Result<(Tensor<'b>, Vec<char>)> {
            let skip = rank - own.rank();
            let mut dropped = Vec::new();
            let mut kept = Vec::new();
            for j in 0..own.rank() - 2 {
                let partner = (skip + j + other.rank()).checked_sub(rank).map(|p| &other[p]);
                if own[j].is(1) && partner.is_some_and(|p| !p.is(1)) {
                    dropped.push(j);
                } else {
                    kept.push(labels[skip + j]);
                }
            }
            Ok((if dropped.is_empty() { tensor } else { tensor.remove_axes(&dropped) }, kept))
        };
        let (a, mut la) = trim(self, &sa, &sb)?;
        let (b, mut lb) = trim(other, &sb, &sa)?;
        la.extend([m, k]);
        lb.extend([k, n]);
        let out = labels.iter().copied().filter(|l| la.contains(l) || lb.contains(l)).chain([m, n]).collect();
        let accumulator = accumulator_of(self.dtype()?);
        Ok(a.contract_with(Contract { a: la, b: lb, out, accumulator }, b))
    }
}

/// The type in which products of a type are summed.
fn accumulator_of(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        DType::I8 | DType::I16 => DType::I32,
        DType::U8 | DType::U16 => DType::U32,
        other => other,
    }
}
