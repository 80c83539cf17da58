//! Values of the interpreter: floats as f64, integers as i64 (u64 by its bits), views not copied until they are read.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use super::positions::Positions;
use crate::error::Result;
use crate::ops::Number;
use crate::ops::prim::View;
use crate::tensor::{DType, Env, Literal, TensorType};

/// A tensor with its elements.
#[derive(Clone, Debug)]
pub struct Buffer {
    dtype: DType,
    sizes: Vec<usize>,
    data: Data,
}

#[derive(Clone, Debug)]
enum Data {
    Float(Arc<Vec<f64>>),
    Int(Arc<Vec<i64>>),
    /// not converted yet: weights are read where they lie
    Literal(Literal),
    View(Arc<Viewed>),
}

#[derive(Debug)]
struct Viewed {
    /// dense
    base: Buffer,
    /// whether the elements of the base were made for this view: copied from another one, or converted from a literal
    owns_base: bool,
    positions: Positions,
    fill: Number,
}

impl Buffer {
    /// A tensor of floats.
    pub fn floats(dtype: DType, sizes: Vec<usize>, values: Vec<f64>) -> Buffer {
        debug_assert!(dtype.is_float() && values.len() == sizes.iter().product::<usize>());
        Buffer { dtype, sizes, data: Data::Float(Arc::new(values)) }
    }

    /// A tensor of integers or bools, which lie in the range of the type.
    pub fn ints(dtype: DType, sizes: Vec<usize>, values: Vec<i64>) -> Buffer {
        debug_assert!(!dtype.is_float() && values.len() == sizes.iter().product::<usize>());
        Buffer { dtype, sizes, data: Data::Int(Arc::new(values)) }
    }

    /// A tensor given by a literal.
    pub fn from_literal(literal: &Literal) -> Buffer {
        Buffer { dtype: literal.dtype(), sizes: literal.sizes().to_vec(), data: Data::Literal(literal.clone()) }
    }

    /// The operand seen through a view.
    pub fn view(operand: &Buffer, view: &View, env: &Env) -> Result<Buffer> {
        let base = operand.dense()?;
        let positions = Positions::new(view, &base.sizes, env)?;
        let is_copied = operand.as_view().is_some();
        Ok(base.seen(positions, view.fill.unwrap_or(Number::Int(0)), is_copied))
    }

    /// The elements of a dense tensor at positions, and `fill` where these are guarded.
    pub(crate) fn seen_at(self, positions: Positions, fill: Number) -> Buffer {
        self.seen(positions, fill, false)
    }

    fn seen(self, positions: Positions, fill: Number, is_copied: bool) -> Buffer {
        let sizes = positions.sizes.clone();
        if positions.is_flat(self.count()) {
            return Buffer { sizes, ..self };
        }
        let owns_base = is_copied || self.is_literal();
        let base = self.converted();
        Buffer { dtype: base.dtype, sizes, data: Data::View(Arc::new(Viewed { base, owns_base, positions, fill })) }
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The sizes.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// Number of elements.
    pub fn count(&self) -> usize {
        self.sizes.iter().product()
    }

    /// Memory that this tensor holds by itself.
    pub fn owned_bytes(&self) -> usize {
        match &self.data {
            Data::Float(_) | Data::Int(_) => self.count() * 8,
            Data::View(v) => v.positions.table_bytes() + if v.owns_base { v.base.count() * 8 } else { 0 },
            Data::Literal(_) => 0,
        }
    }

    /// Memory that is there as long as this tensor is, whoever holds it too.
    pub(crate) fn kept_bytes(&self) -> u64 {
        match &self.data {
            Data::Literal(literal) => literal.byte_count() as u64,
            _ => self.owned_bytes() as u64,
        }
    }

    /// Memory that its literal takes, where there is none yet.
    pub fn literal_bytes(&self) -> u64 {
        match &self.data {
            Data::Literal(literal) if literal.as_seeded().is_none() => 0,
            _ => (self.count() as u64).saturating_mul(self.dtype.bits() as u64).div_ceil(8),
        }
    }

    /// Whether the elements lie where a literal has them.
    pub(super) fn is_literal(&self) -> bool {
        matches!(self.data, Data::Literal(_))
    }

    /// The elements where a literal has them, each in bytes of its own, and how many bytes.
    pub(super) fn as_whole_bytes(&self) -> Option<(Bytes, usize)> {
        match &self.data {
            Data::Literal(literal) if self.dtype.bits().is_multiple_of(8) => {
                Some((literal.bytes(), self.dtype.bits() / 8))
            }
            _ => None,
        }
    }

    /// For a view: the dense operand, the positions it reads, and the fill value.
    pub(super) fn as_view(&self) -> Option<(&Buffer, &Positions, Number)> {
        match &self.data {
            Data::View(v) => Some((&v.base, &v.positions, v.fill)),
            _ => None,
        }
    }

    /// The same tensor with its elements in row-major order.
    pub fn dense(&self) -> Result<Buffer> {
        if self.as_view().is_none() {
            return Ok(self.clone());
        }
        let data = if self.dtype.is_float() {
            let mut values = vec![0.0; self.count()];
            self.read_floats(0, &mut values)?;
            Data::Float(Arc::new(values))
        } else {
            let mut values = vec![0; self.count()];
            self.read_ints(0, &mut values)?;
            Data::Int(Arc::new(values))
        };
        Ok(Buffer { dtype: self.dtype, sizes: self.sizes.clone(), data })
    }

    /// The same dense tensor, its literal converted: a view reads it block by block.
    pub(crate) fn converted(self) -> Buffer {
        let Data::Literal(literal) = &self.data else { return self };
        let data = if self.dtype.is_float() {
            Data::Float(Arc::new(literal.to_f64s()))
        } else {
            Data::Int(Arc::new(literal.to_ints()))
        };
        Buffer { data, ..self }
    }

    /// The same dense tensor under other sizes of the same count.
    pub(crate) fn reshaped(self, sizes: Vec<usize>) -> Buffer {
        debug_assert!(self.as_view().is_none() && self.count() == sizes.iter().product::<usize>());
        Buffer { sizes, ..self }
    }

    /// Elements from `start` on as floats.
    pub fn read_floats(&self, start: usize, out: &mut [f64]) -> Result<()> {
        match &self.data {
            Data::Float(values) => out.copy_from_slice(&values[start..start + out.len()]),
            Data::Int(values) => {
                let unsigned = self.dtype == DType::U64;
                let convert = |x: i64| if unsigned { x as u64 as f64 } else { x as f64 };
                out.iter_mut().zip(&values[start..]).for_each(|(o, x)| *o = convert(*x));
            }
            Data::Literal(literal) => literal.read_f64s(start, out),
            Data::View(v) => {
                let (values, fill) = (v.base.to_floats(), v.fill.to_f64());
                let len = out.len();
                let put = |k: usize, position: Option<usize>| out[k] = position.map_or(fill, |p| values[p]);
                v.positions.for_each(start, len, values.len(), put)?;
            }
        }
        Ok(())
    }

    /// Elements from `start` on as integers; floats are not converted, they are a bug of the caller.
    pub fn read_ints(&self, start: usize, out: &mut [i64]) -> Result<()> {
        match &self.data {
            Data::Float(_) => unreachable!("a float tensor is not read as integers"),
            Data::Int(values) => out.copy_from_slice(&values[start..start + out.len()]),
            Data::Literal(literal) => out.iter_mut().enumerate().for_each(|(k, o)| *o = literal.int(start + k)),
            Data::View(v) => {
                let values = v.base.to_ints();
                let fill = if let Number::Int(n) = v.fill { n } else { 0 };
                let len = out.len();
                let put = |k: usize, position: Option<usize>| out[k] = position.map_or(fill, |p| values[p]);
                v.positions.for_each(start, len, values.len(), put)?;
            }
        }
        Ok(())
    }

    /// All elements as floats; only for dense tensors and small views whose positions are known to be inside.
    pub fn to_floats(&self) -> Cow<'_, [f64]> {
        match &self.data {
            Data::Float(values) => Cow::Borrowed(values),
            Data::Literal(literal) => Cow::Owned(literal.to_f64s()),
            _ => {
                let mut out = vec![0.0; self.count()];
                self.read_floats(0, &mut out).expect("callers make views dense first");
                Cow::Owned(out)
            }
        }
    }

    /// All elements as integers; the same conditions.
    pub fn to_ints(&self) -> Cow<'_, [i64]> {
        match &self.data {
            Data::Int(values) => Cow::Borrowed(values),
            Data::Literal(literal) => Cow::Owned(literal.to_ints()),
            _ => {
                let mut out = vec![0; self.count()];
                self.read_ints(0, &mut out).expect("callers make views dense first");
                Cow::Owned(out)
            }
        }
    }

    /// The tensor as the caller gets it, floats rounded to their type; its elements are there, never a seed.
    pub fn to_literal(&self) -> Result<Literal> {
        if let Data::Literal(literal) = &self.data {
            if literal.as_seeded().is_some() {
                return Literal::new(self.dtype, self.sizes.clone(), literal.bytes());
            }
            return literal.clone().reshaped(self.sizes.clone());
        }
        let dense = self.dense()?;
        if self.dtype.is_float() {
            Literal::from_f64s(self.dtype, self.sizes.clone(), &dense.to_floats())
        } else {
            Literal::from_ints(self.dtype, self.sizes.clone(), &dense.to_ints())
        }
    }

    /// Float elements rounded to the element type.
    pub fn rounded(&self) -> Result<Buffer> {
        if !self.dtype.is_float() || matches!(self.data, Data::Literal(_)) || self.dtype == DType::F64 {
            return Ok(self.clone());
        }
        let dense = self.dense()?;
        let values = dense.to_floats().iter().map(|x| self.dtype.round(*x)).collect();
        Ok(Buffer::floats(self.dtype, self.sizes.clone(), values))
    }

    /// Dense tensors of one type behind one another along an axis.
    pub fn concat(parts: &[Buffer], axis: usize) -> Buffer {
        let dtype = parts[0].dtype;
        let mut sizes = parts[0].sizes.clone();
        sizes[axis] = parts.iter().map(|p| p.sizes[axis]).sum();
        let outer: usize = sizes[..axis].iter().product();
        let runs: Vec<usize> = parts.iter().map(|p| p.sizes[axis..].iter().product()).collect();
        let data = if let Some(literal) = concat_literals(parts, &sizes, &runs, outer) {
            Data::Literal(literal)
        } else if dtype.is_float() {
            let values: Vec<_> = parts.iter().map(Buffer::to_floats).collect();
            Data::Float(Arc::new(interleave(&values, &runs, outer)))
        } else {
            let values: Vec<_> = parts.iter().map(Buffer::to_ints).collect();
            Data::Int(Arc::new(interleave(&values, &runs, outer)))
        };
        Buffer { dtype, sizes, data }
    }

    /// Slices along a new first axis; without slices, the sizes come from the declared type.
    pub(crate) fn stack(slices: &[Buffer], ty: &TensorType, env: &Env) -> Result<Buffer> {
        let Some(first) = slices.first() else {
            let mut sizes = vec![0];
            // A size that nothing has bound belongs to slices that do not exist.
            sizes.extend(ty.shape.dims()[1..].iter().map(|d| d.eval(env).map_or(0, |n| n.max(0) as usize)));
            return Ok(if ty.dtype.is_float() {
                Buffer::floats(ty.dtype, sizes, vec![])
            } else {
                Buffer::ints(ty.dtype, sizes, vec![])
            });
        };
        if let Some(other) = slices.iter().find(|s| s.sizes != first.sizes) {
            return Err(crate::error::Error::invalid(format!(
                "the slices that a loop stacks differ in size: {:?} and {:?}",
                first.sizes, other.sizes
            )));
        }
        let with_axis = |s: &Buffer| -> Result<Buffer> {
            let dense = s.dense()?;
            let sizes = std::iter::once(1).chain(s.sizes.iter().copied()).collect();
            Ok(Buffer { sizes, ..dense })
        };
        let slices: Result<Vec<Buffer>> = slices.iter().map(with_axis).collect();
        Ok(Buffer::concat(&slices?, 0))
    }
}

/// Literals put together byte by byte; none where a part is none, or its elements share bytes.
fn concat_literals(parts: &[Buffer], sizes: &[usize], runs: &[usize], outer: usize) -> Option<Literal> {
    let bytes: Vec<(Bytes, usize)> = parts.iter().map(Buffer::as_whole_bytes).collect::<Option<_>>()?;
    let runs: Vec<usize> = runs.iter().zip(&bytes).map(|(run, (_, size))| run * size).collect();
    let bytes: Vec<Cow<'_, [u8]>> = bytes.iter().map(|(bytes, _)| Cow::Borrowed(&bytes[..])).collect();
    Literal::new(parts[0].dtype, sizes.to_vec(), interleave(&bytes, &runs, outer)).ok()
}

fn interleave<T: Copy>(parts: &[Cow<'_, [T]>], runs: &[usize], outer: usize) -> Vec<T> {
    let mut out = Vec::with_capacity(outer * runs.iter().sum::<usize>());
    for row in 0..outer {
        for (part, run) in parts.iter().zip(runs) {
            out.extend_from_slice(&part[row * run..(row + 1) * run]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_put_together_like_values() {
        for dtype in [DType::F32, DType::BF16, DType::I64, DType::Bool, DType::U4] {
            let part = |sizes: [usize; 3]| {
                let values: Vec<i64> = (0..sizes.iter().product::<usize>() as i64).map(|k| k % 3 % 2).collect();
                Buffer::from_literal(&Literal::from_ints(dtype, sizes, &values).unwrap())
            };
            for axis in 0..3 {
                let mut other = [2, 2, 3];
                other[axis] = 4;
                let parts = [part([2, 2, 3]), part(other)];
                let converted = parts.clone().map(Buffer::converted);
                let literals = Buffer::concat(&parts, axis);
                assert_eq!(literals.is_literal(), dtype != DType::U4);
                assert_eq!(literals.to_literal(), Buffer::concat(&converted, axis).to_literal(), "{dtype}, {axis}");
            }
        }
    }
}
