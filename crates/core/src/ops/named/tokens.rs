//! Operators on the numbers of tokens and on the bits of numbers: repetitions, hashes.

use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::prim::{Combine, Monoid, Scatter, View};
use crate::tensor::{DType, Dim, Shape, Symbol};

pub(super) static OPS: &[NamedOp] = &[
    NamedOp::contributed(
        "NGramRepeatBlock",
        &["ngram_size"],
        "scores, −∞ for every token that would repeat a run of tokens which is there already",
        |call| Ok(vec![block_repetitions(call)?]),
    ),
    NamedOp::contributed("MurmurHash3", &["positive", "seed"], "the 32-bit hash of every number's bytes", |call| {
        Ok(vec![murmur_hash(call)?])
    }),
];

fn block_repetitions<'b>(call: &Call<'_, 'b>) -> Result<Tensor<'b>> {
    let (tokens, scores) = (call.input(0)?, call.input(1)?);
    let size = call.int("ngram_size")?.filter(|n| *n > 0);
    let size = size.ok_or_else(|| Error::invalid("NGramRepeatBlock needs a positive ngram_size"))?;
    let (own, others) = (tokens.shape()?, scores.shape()?);
    let ([batch, length], 2) = (own.dims(), others.rank()) else {
        return Err(Error::invalid(format!("NGramRepeatBlock of {} and {}", tokens.ty()?, scores.ty()?)));
    };
    call.builder.require_equal(batch, &others[0], "the batches of NGramRepeatBlock")?;
    let runs = (length - (size - 1)).max_with(&Dim::int(0));
    let shape = Shape::new([batch.clone(), runs.clone()]);
    let seen =
        |shape: &Shape, place: Dim| tokens.view(View::new(shape.clone(), vec![Dim::axis(0), place])).cast(DType::I64);
    // All but the last token of a run along an axis of their own: a run may be as long as a file says.
    let before = Shape::new([batch.clone(), runs.clone(), Dim::int(size - 1)]);
    // The last tokens are where a run would begin that ends with the next one.
    let last = seen(&before, length - (size - 1) + Dim::axis(2));
    let repeats = seen(&before, Dim::axis(1) + Dim::axis(2)).equal(last).reduce(Monoid::Min, &[2]);
    let forbidden = call.builder.scalar(scores.dtype()?, f64::NEG_INFINITY);
    let updates = repeats.select(forbidden, f64::INFINITY);
    let row = call.builder.coordinate(0, &shape);
    let map = vec![Symbol::Read(0).into(), Symbol::Read(1).into()];
    Ok(scores.scatter(Scatter { combine: Combine::Min, map }, updates, &[row, seen(&shape, Dim::axis(1) + (size - 1))]))
}

/// MurmurHash3_x86_32 of the little-endian bytes of each element.
fn murmur_hash<'b>(call: &Call<'_, 'b>) -> Result<Tensor<'b>> {
    let x = call.input(0)?;
    let dtype = x.dtype()?;
    let words: Vec<Tensor<'b>> = match dtype.bits() {
        32 => vec![x.bits(DType::U32)],
        64 => {
            let bits = x.bits(DType::U64);
            vec![bits.cast(DType::U32), (bits >> 32i64).cast(DType::U32)]
        }
        _ => return Err(Error::unsupported(format!("MurmurHash3 of elements of type {dtype}"))),
    };
    let rotated = |x: Tensor<'b>, by: i64| (x << by).or(x >> (32 - by));
    let seed = call.int_or("seed", 0)?;
    let mut hash = call.builder.int(DType::U32, seed).expand(x.shape()?);
    let bytes = 4 * words.len() as i64;
    for word in words {
        let mixed = rotated(word * 0xcc9e_2d51i64, 15) * 0x1b87_3593i64;
        hash = rotated(hash.xor(mixed), 13) * 5i64 + 0xe654_6b64i64;
    }
    hash = hash.xor(bytes);
    hash = hash.xor(hash >> 16i64) * 0x85eb_ca6bi64;
    hash = hash.xor(hash >> 13i64) * 0xc2b2_ae35i64;
    hash = hash.xor(hash >> 16i64);
    Ok(if call.flag("positive", true)? { hash } else { hash.cast(DType::I32) })
}
