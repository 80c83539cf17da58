//! Folds over axes.

use super::positions::row_major;
use super::{Buffer, Run};
use crate::error::Result;
use crate::ops::prim::Monoid;
use crate::ops::{Number, Scalar};
use crate::tensor::DType;

const BLOCK: usize = 4096;

/// The fold of a tensor over some axes, which disappear.
pub(crate) fn eval_reduce(monoid: Monoid, axes: &[usize], x: &Buffer, run: &Run<'_>) -> Result<Buffer> {
    let kept: Vec<usize> = (0..x.sizes().len()).filter(|k| !axes.contains(k)).collect();
    let sizes: Vec<usize> = kept.iter().map(|k| x.sizes()[*k]).collect();
    let count = sizes.iter().product();
    run.reserve(count)?;
    // Where each input axis leads in the result; a folded axis leads nowhere.
    let mut strides = vec![0; x.sizes().len()];
    for (axis, stride) in kept.iter().zip(row_major(&sizes)) {
        strides[*axis] = stride;
    }
    if monoid.is_position() {
        // Among no elements it is -1: a run that needs one does not begin.
        let axis = axes[0];
        return Ok(Buffer::ints(DType::I64, sizes, positions_of_best(monoid, axis, &strides, count, x)?));
    }
    let dtype = x.dtype();
    if dtype.is_float() {
        let fold = float_fold(monoid);
        let mut out = vec![float_neutral(monoid); count];
        for_each_float(x, &strides, |to, _, value| out[to] = fold(out[to], value))?;
        Ok(Buffer::floats(dtype, sizes, out))
    } else {
        let mut out = vec![int_neutral(monoid, dtype); count];
        for_each_int(x, &strides, |to, _, value| out[to] = int_fold(monoid, dtype, out[to], value))?;
        Ok(Buffer::ints(dtype, sizes, out))
    }
}

/// Two folds of disjoint elements, of one type and size, as the fold of all of them. Positions cannot be combined so.
pub(crate) fn combine(monoid: Monoid, a: &Buffer, b: &Buffer) -> Buffer {
    let (dtype, sizes) = (a.dtype(), a.sizes().to_vec());
    if dtype.is_float() {
        let fold = float_fold(monoid);
        let values = a.to_floats().iter().zip(b.to_floats().iter()).map(|(a, b)| fold(*a, *b)).collect();
        Buffer::floats(dtype, sizes, values)
    } else {
        let values = a.to_ints().iter().zip(b.to_ints().iter()).map(|(a, b)| int_fold(monoid, dtype, *a, *b)).collect();
        Buffer::ints(dtype, sizes, values)
    }
}

/// Running folds along one axis.
pub(crate) fn eval_prefix(monoid: Monoid, axis: usize, exclusive: bool, x: &Buffer) -> Buffer {
    let (len, inner) = (x.sizes()[axis], x.sizes()[axis + 1..].iter().product::<usize>());
    let lines = (0..x.count() / (len * inner).max(1)).flat_map(|o| (0..inner).map(move |i| o * len * inner + i));
    let dtype = x.dtype();
    if dtype.is_float() {
        let fold = float_fold(monoid);
        let mut out = x.to_floats().into_owned();
        for line in lines {
            scan(&mut out, line, len, inner, exclusive, float_neutral(monoid), &fold);
        }
        Buffer::floats(dtype, x.sizes().to_vec(), out)
    } else {
        let mut out = x.to_ints().into_owned();
        for line in lines {
            scan(&mut out, line, len, inner, exclusive, int_neutral(monoid, dtype), &|a, b| {
                int_fold(monoid, dtype, a, b)
            });
        }
        Buffer::ints(dtype, x.sizes().to_vec(), out)
    }
}

fn scan<T: Copy>(
    out: &mut [T],
    line: usize,
    len: usize,
    step: usize,
    exclusive: bool,
    neutral: T,
    fold: &dyn Fn(T, T) -> T,
) {
    let mut total = neutral;
    for k in 0..len {
        let cell = &mut out[line + k * step];
        let next = fold(total, *cell);
        *cell = if exclusive { total } else { next };
        total = next;
    }
}

fn float_fold(monoid: Monoid) -> impl Fn(f64, f64) -> f64 {
    let f = match monoid {
        Monoid::Sum => Scalar::Add,
        Monoid::Prod => Scalar::Mul,
        Monoid::Max => Scalar::Max,
        _ => Scalar::Min,
    };
    let f = f.def().float.expect("folds are defined for floats");
    move |a, b| f(&[a, b])
}

fn float_neutral(monoid: Monoid) -> f64 {
    match monoid {
        Monoid::Sum => 0.0,
        Monoid::Prod => 1.0,
        Monoid::Max => f64::NEG_INFINITY,
        _ => f64::INFINITY,
    }
}

fn int_fold(monoid: Monoid, dtype: DType, a: i64, b: i64) -> i64 {
    let wrap = |x: i64| dtype.wrap(i128::from(x)) as i64;
    let less = if dtype == DType::U64 { (a as u64) < b as u64 } else { a < b };
    match monoid {
        Monoid::Sum => wrap(a.wrapping_add(b)),
        Monoid::Prod => wrap(a.wrapping_mul(b)),
        Monoid::Max => {
            if less {
                b
            } else {
                a
            }
        }
        _ => {
            if less {
                a
            } else {
                b
            }
        }
    }
}

fn int_neutral(monoid: Monoid, dtype: DType) -> i64 {
    match monoid.neutral(dtype) {
        Number::Int(n) => n,
        Number::Float(_) => unreachable!("an integer type has integers"),
    }
}

/// Positions along `axis` of the best element of each line. NaN beats every number, as in numpy.
fn positions_of_best(monoid: Monoid, axis: usize, strides: &[usize], count: usize, x: &Buffer) -> Result<Vec<i64>> {
    let largest = matches!(monoid, Monoid::ArgMax | Monoid::ArgMaxLast);
    let last = matches!(monoid, Monoid::ArgMaxLast | Monoid::ArgMinLast);
    let better = move |order: std::cmp::Ordering| if last { order.is_ge() } else { order.is_gt() };
    let mut at = vec![-1; count];
    if x.dtype().is_float() {
        let mut best = vec![0.0f64; count];
        let dtype = x.dtype();
        for_each_float(x, strides, |to, i, value| {
            let (old, value): (f64, f64) = (best[to], dtype.round(value));
            let order = if value.is_nan() || old.is_nan() {
                value.is_nan().cmp(&old.is_nan())
            } else {
                let order = value.partial_cmp(&old).expect("neither is NaN");
                if largest { order } else { order.reverse() }
            };
            if at[to] < 0 || better(order) {
                (best[to], at[to]) = (value, i[axis] as i64);
            }
        })?;
    } else {
        let mut best = vec![0i64; count];
        let unsigned = x.dtype() == DType::U64;
        for_each_int(x, strides, |to, i, value| {
            let order = if unsigned { (value as u64).cmp(&(best[to] as u64)) } else { value.cmp(&best[to]) };
            if at[to] < 0 || better(if largest { order } else { order.reverse() }) {
                (best[to], at[to]) = (value, i[axis] as i64);
            }
        })?;
    }
    Ok(at)
}

/// Calls `f(place in the result, coordinates, element)` in row-major order.
fn for_each_float(x: &Buffer, strides: &[usize], mut f: impl FnMut(usize, &[usize], f64)) -> Result<()> {
    let mut walk = Walk::new(x.sizes(), strides);
    let mut block = vec![0.0; BLOCK];
    for start in (0..x.count()).step_by(BLOCK) {
        let block = &mut block[..BLOCK.min(x.count() - start)];
        x.read_floats(start, block)?;
        for value in block {
            f(walk.to, &walk.i, *value);
            walk.advance();
        }
    }
    Ok(())
}

fn for_each_int(x: &Buffer, strides: &[usize], mut f: impl FnMut(usize, &[usize], i64)) -> Result<()> {
    let mut walk = Walk::new(x.sizes(), strides);
    let mut block = vec![0; BLOCK];
    for start in (0..x.count()).step_by(BLOCK) {
        let block = &mut block[..BLOCK.min(x.count() - start)];
        x.read_ints(start, block)?;
        for value in block {
            f(walk.to, &walk.i, *value);
            walk.advance();
        }
    }
    Ok(())
}

/// Coordinates in row-major order, and where each leads in the result.
struct Walk<'a> {
    i: Vec<usize>,
    to: usize,
    sizes: &'a [usize],
    strides: &'a [usize],
}

impl<'a> Walk<'a> {
    fn new(sizes: &'a [usize], strides: &'a [usize]) -> Walk<'a> {
        Walk { i: vec![0; sizes.len()], to: 0, sizes, strides }
    }

    fn advance(&mut self) {
        for axis in (0..self.i.len()).rev() {
            self.i[axis] += 1;
            self.to += self.strides[axis];
            if self.i[axis] < self.sizes[axis] {
                return;
            }
            self.to -= self.strides[axis] * self.sizes[axis];
            self.i[axis] = 0;
        }
    }
}
