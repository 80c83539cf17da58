//! Reading and writing at coordinates that come from data.

use super::positions::{IndexFn, advance, row_major};
use super::{Buffer, Run};
use crate::error::{Error, Result};
use crate::ops::Scalar;
use crate::ops::prim::Combine;
use crate::tensor::{DType, Dim, Literal, Symbol};
use crate::tile;

/// One coordinate of the data as a function of the current element.
enum Coordinate {
    /// the element of an index operand
    Read(usize),
    /// a function of the coordinates alone
    Index(IndexFn),
    /// anything else
    General(Dim),
}

/// Calls `f(k, position)` for each element `k` of the domain with the row-major position in the data.
fn for_each_target(
    map: &[Dim],
    domain: &[usize],
    data: &[usize],
    indices: &[Buffer],
    run: &Run<'_>,
    mut f: impl FnMut(usize, usize),
) -> Result<()> {
    let coordinate = |dim: &Dim| -> Result<Coordinate> {
        match dim.as_symbol() {
            Some(Symbol::Read(k)) => Ok(Coordinate::Read(usize::from(*k))),
            _ if dim.mentions(|s| matches!(s, Symbol::Read(_))) => Ok(Coordinate::General(run.env().apply(dim))),
            _ => Ok(Coordinate::Index(IndexFn::new(dim, domain, run.env())?)),
        }
    };
    let coordinates: Result<Vec<Coordinate>> = map.iter().map(coordinate).collect();
    let coordinates = coordinates?;
    let indices: Result<Vec<Buffer>> = indices.iter().map(Buffer::dense).collect();
    let indices = indices?;
    let reads: Vec<_> = indices.iter().map(Buffer::to_ints).collect();
    let strides = row_major(data);
    let mut i = vec![0; domain.len()];
    for k in 0..domain.iter().product::<usize>() {
        let mut position = 0;
        for (axis, coordinate) in coordinates.iter().enumerate() {
            let at = match coordinate {
                Coordinate::Read(operand) => reads[*operand][k],
                Coordinate::Index(index) => index.at(&i)?,
                Coordinate::General(dim) => dim.eval_with(&|s| match s {
                    Symbol::Axis(a) => i.get(usize::from(*a)).map(|n| *n as i64),
                    Symbol::Read(r) => reads.get(usize::from(*r)).map(|r| r[k]),
                    Symbol::Name(_) | Symbol::Value(_) => None,
                })?,
            };
            let inside = usize::try_from(at).ok().filter(|n| *n < data[axis]);
            position += strides[axis] * inside.ok_or_else(|| out_of_range(at, axis, data[axis]))?;
        }
        f(k, position);
        advance(&mut i, domain);
    }
    Ok(())
}

/// The error of a coordinate outside of a tensor.
pub(crate) fn out_of_range(at: i64, axis: usize, size: usize) -> Error {
    Error::invalid(format!("index {at} {}", tile::out_of_range(axis, size)))
}

/// `result[i] = data[map(i)]`; operands: the data, then the index operands.
pub(crate) fn eval_gather(map: &[Dim], sizes: Vec<usize>, args: &[Buffer], run: &mut Run<'_>) -> Result<Buffer> {
    let count = sizes.iter().product();
    run.reserve(count)?;
    let data = run.dense(&args[0])?;
    if data.dtype().is_float() {
        // Weights are not converted as a whole: a few rows of a large table are read.
        run.reserve_work(&[], copied(&args[..1]).saturating_add(count.saturating_mul(2)))?;
        let mut positions = vec![0; count];
        for_each_target(map, &sizes, data.sizes(), &args[1..], run, |k, p| positions[k] = p)?;
        let mut out = vec![0.0; count];
        for (o, p) in out.iter_mut().zip(positions) {
            data.read_floats(p, std::slice::from_mut(o))?;
        }
        Ok(Buffer::floats(data.dtype(), sizes, out))
    } else {
        run.reserve_work(&[&data], copied(&args[..1]).saturating_add(count))?;
        let values = data.to_ints();
        let mut out = vec![0; count];
        for_each_target(map, &sizes, data.sizes(), &args[1..], run, |k, p| out[k] = values[p])?;
        Ok(Buffer::ints(data.dtype(), sizes, out))
    }
}

/// How many elements are copied where operands are laid out in a row.
fn copied(operands: &[Buffer]) -> usize {
    operands.iter().filter(|x| x.as_view().is_some()).map(Buffer::count).fold(0, usize::saturating_add)
}

/// `data[map(i)] ∘= updates[i]`; operands: the data, the updates, then the index operands.
pub(crate) fn eval_scatter(combine: Combine, map: &[Dim], args: &[Buffer], run: &mut Run<'_>) -> Result<Buffer> {
    let (data, updates) = (run.dense(&args[0])?, run.dense(&args[1])?);
    run.reserve_work(&[&updates], copied(&args[..2]).saturating_add(data.count()))?;
    let (dtype, sizes) = (data.dtype(), data.sizes().to_vec());
    if combine == Combine::Replace
        && let (Some((old, size)), Some((new, _))) = (data.as_whole_bytes(), updates.as_whole_bytes())
    {
        // Elements only move: a cache of keys into which a token is written is copied, not converted.
        let mut out = old.to_vec();
        for_each_target(map, updates.sizes(), &sizes, &args[2..], run, |k, p| {
            out[p * size..][..size].copy_from_slice(&new[k * size..][..size]);
        })?;
        return Ok(Buffer::from_literal(&Literal::new(dtype, sizes, out)?));
    }
    let op = match combine {
        Combine::Replace => None,
        Combine::Add => Some(Scalar::Add),
        Combine::Mul => Some(Scalar::Mul),
        Combine::Max => Some(Scalar::Max),
        Combine::Min => Some(Scalar::Min),
    };
    if dtype.is_float() {
        let f = op.map(|op| op.def().float.expect("defined for floats"));
        let mut out = data.to_floats().into_owned();
        let updates_at = updates.to_floats();
        for_each_target(map, updates.sizes(), &sizes, &args[2..], run, |k, p| {
            out[p] = f.map_or(updates_at[k], |f| f(&[out[p], updates_at[k]]));
        })?;
        Ok(Buffer::floats(dtype, sizes, out))
    } else {
        let wide = |x: i64| if dtype == DType::U64 { i128::from(x as u64) } else { i128::from(x) };
        let f = op.map(|op| op.def().int.expect("defined for integers"));
        let mut out = data.to_ints().into_owned();
        let updates_at = updates.to_ints();
        for_each_target(map, updates.sizes(), &sizes, &args[2..], run, |k, p| {
            out[p] = f.map_or(updates_at[k], |f| dtype.wrap(f(&[wide(out[p]), wide(updates_at[k])])) as i64);
        })?;
        Ok(Buffer::ints(dtype, sizes, out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::Options;
    use crate::tensor::Env;

    #[test]
    fn elements_that_are_replaced_move_as_bytes_as_they_do_as_values() {
        // `data[i0, @0] = updates[i0, i1]`: of what goes to one place, the last stays.
        let map = [Dim::axis(0), Dim::from(Symbol::Read(0))];
        let index = Buffer::ints(DType::I64, vec![2, 3], vec![3, 0, 3, 1, 1, 2]);
        for dtype in [DType::F32, DType::BF16, DType::F64, DType::I64, DType::U8, DType::Bool, DType::U4] {
            let literal = |sizes: [usize; 2], step: i64| {
                let values: Vec<i64> = (0..sizes.iter().product::<usize>() as i64).map(|k| k * step % 2).collect();
                Buffer::from_literal(&Literal::from_ints(dtype, sizes, &values).unwrap())
            };
            let given = [literal([2, 5], 1), literal([2, 3], 3), index.clone()];
            let options = Options::default();
            let scattered = |args: [Buffer; 3]| {
                eval_scatter(Combine::Replace, &map, &args, &mut Run::new(&options, Env::new())).unwrap()
            };
            let [data, updates, index] = given.clone();
            let values = scattered([data.converted(), updates.converted(), index]);
            let bytes = scattered(given);
            assert_eq!(bytes.is_literal(), dtype != DType::U4);
            assert_eq!(bytes.to_literal(), values.to_literal(), "{dtype}");
        }
    }
}
