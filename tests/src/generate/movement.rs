//! Steps that move elements: views and concatenations.

use fuseline::graph::{Tensor, WindowAxis};
use fuseline::tensor::{Dim, Shape};

use super::Op;
use super::grow::{Growth, type_of};
use super::tape::Tape;

/// What stands outside of a tensor; rounded to its type.
const FILLS: [f64; 4] = [0.0, f64::NEG_INFINITY, 0.1, -2.0];

impl<'b> Growth<'b> {
    pub(super) fn movement(&self, op: Op, tape: &mut Tape<'_>) -> Option<Tensor<'b>> {
        let x = self.any(tape);
        let own = type_of(x).shape;
        match op {
            Op::Slice => self.slice(tape, x, &own),
            Op::Permute => {
                let mut order: Vec<usize> = (0..own.rank()).collect();
                order.rotate_left(tape.below(own.rank()));
                if own.rank() > 1 && tape.chance(2) {
                    order.swap(0, 1);
                }
                Some(x.permute(&order))
            }
            Op::Expand => self.expand(tape, x, &own),
            Op::Reshape => self.reshape(tape, x, &own),
            Op::Flip => Some(x.flip(self.axis(tape, &own, |_| true)?)),
            Op::Pad => self.pad(tape, x, &own),
            Op::Windows => self.windows(tape, x, &own),
            Op::Concat => self.concat(tape, x),
            _ => None,
        }
    }

    fn slice(&self, tape: &mut Tape<'_>, x: Tensor<'b>, own: &Shape) -> Option<Tensor<'b>> {
        let axis = self.axis(tape, own, |d| self.is_solid(d))?;
        let size = self.size(&own[axis]);
        let start = tape.below(size as usize) as i64;
        match tape.below(4) {
            0 => Some(x.slice(axis, start, Dim::int(size - start), 1)),
            // The length follows the size, whatever it is.
            1 => Some(x.slice(axis, start, &own[axis] - start, 1)),
            2 => Some(x.slice(axis, start, Dim::int((size - start + 1) / 2), 2)),
            _ => Some(x.slice(axis, start, Dim::int(start + 1), -1)),
        }
    }

    fn expand(&self, tape: &mut Tape<'_>, x: Tensor<'b>, own: &Shape) -> Option<Tensor<'b>> {
        let at = tape.below(own.rank() + 1);
        let mut dims = own.dims().to_vec();
        dims.insert(at, self.new_size(tape));
        let wide = Shape::from(dims);
        self.fits(&wide).then(|| x.insert_axes(&[at]).expand(wide))
    }

    fn reshape(&self, tape: &mut Tape<'_>, x: Tensor<'b>, own: &Shape) -> Option<Tensor<'b>> {
        let dims = own.dims();
        let shape: Vec<Dim> = match tape.below(4) {
            0 => vec![own.count()],
            1 if dims.iter().all(|d| self.is_solid(d)) => dims.iter().rev().cloned().collect(),
            2 => {
                // Two neighbours become one axis.
                let at = tape.below(dims.len().checked_sub(1)?);
                let merged = dims.get(at)? * dims.get(at + 1)?;
                [&dims[..at], &[merged], &dims[at + 2..]].concat()
            }
            _ => {
                let axis = self.axis(tape, own, |d| d.as_int().is_some_and(|n| n > 0 && n % 2 == 0))?;
                let half = dims[axis].floordiv(&Dim::int(2));
                [&dims[..axis], &[half, Dim::int(2)], &dims[axis + 1..]].concat()
            }
        };
        Some(x.reshape(shape))
    }

    fn pad(&self, tape: &mut Tape<'_>, x: Tensor<'b>, own: &Shape) -> Option<Tensor<'b>> {
        let mut amount = |dim: &Dim| match tape.below(4) as i64 {
            3 if self.is_solid(dim) => Dim::int(-1),
            n => Dim::int(n % 3),
        };
        let before: Vec<Dim> = own.dims().iter().map(&mut amount).collect();
        let after: Vec<Dim> = own.dims().iter().zip(&before).map(|(d, b)| amount(&(d + b))).collect();
        let wide = own.dims().iter().zip(before.iter().zip(&after)).map(|(d, (b, a))| d + b + a);
        self.fits(&wide.collect()).then(|| x.pad(&before, &after, FILLS[tape.below(4)]))
    }

    fn windows(&self, tape: &mut Tape<'_>, x: Tensor<'b>, own: &Shape) -> Option<Tensor<'b>> {
        let (leading, _) = own.dims().split_at(own.rank().checked_sub(1)?);
        let axis = WindowAxis {
            size: self.new_size(tape),
            stride: 1 + tape.below(2) as i64,
            dilation: 1 + tape.below(2) as i64,
            before: Dim::int(tape.below(2) as i64),
            count: self.new_size(tape),
        };
        let shape = [leading, &[axis.count.clone(), axis.size.clone()]].concat().into();
        self.fits(&shape).then(|| x.windows(&[axis], FILLS[tape.below(4)]))
    }

    fn concat(&self, tape: &mut Tape<'_>, x: Tensor<'b>) -> Option<Tensor<'b>> {
        let a = type_of(x);
        let axis = self.axis(tape, &a.shape, |_| true)?;
        let same = |k: usize, shape: &Shape| k == axis || self.same_size(&a.shape[k], &shape[k]);
        let y = self.pick(tape, |b| {
            a.dtype == b.dtype && a.shape.rank() == b.shape.rank() && (0..a.shape.rank()).all(|k| same(k, &b.shape))
        })?;
        let mut dims = a.shape.dims().to_vec();
        dims[axis] = &dims[axis] + &type_of(y).shape[axis];
        self.fits(&dims.into()).then(|| self.builder.concat(&[x, y], axis as i64))
    }
}
