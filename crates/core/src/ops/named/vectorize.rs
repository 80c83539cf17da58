//! Counting n-grams: every position of a row against every n-gram of a pool.

use indexmap::IndexSet;

use super::text::{constant_texts, find};
use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::prim::{Combine, Monoid, Scatter};
use crate::tensor::{DType, Dim, Literal, Shape, Symbol};

pub(super) static OPS: &[NamedOp] = &[NamedOp::standard(
    "TfIdfVectorizer",
    9,
    &[
        "max_gram_length",
        "max_skip_count",
        "min_gram_length",
        "mode",
        "ngram_counts",
        "ngram_indexes",
        "pool_int64s",
        "pool_strings",
        "weights",
    ],
    "how often each n-gram of a pool occurs in a row of numbers or texts, with up to so many skipped in between",
    tf_idf_vectorizer,
)];

/// Columns of the result, and skips between numbers, that a model may ask for.
const MOST_COLUMNS: i64 = 1 << 28;
const MOST_SKIPS: i64 = 1 << 12;

/// The n-grams of one length.
struct Grams<'a> {
    length: usize,
    /// one after the other
    items: Vec<i64>,
    /// the column of the result for each
    columns: &'a [i64],
}

/// The tokens as numbers, and the pool as the same numbers: a text is its place in the list of all that the pool has.
fn tokens<'b>(call: &Call<'_, 'b>) -> Result<(Tensor<'b>, Vec<i64>)> {
    let x = call.input(0)?;
    let Some(pool) = call.strs("pool_strings")?.filter(|pool| !pool.is_empty()) else {
        let pool = call.ints("pool_int64s")?;
        let pool = pool.ok_or_else(|| Error::invalid("TfIdfVectorizer needs attribute pool_int64s or pool_strings"))?;
        return Ok((x.cast(DType::I64), pool.to_vec()));
    };
    if x.dtype()? != DType::U8 || x.rank()? == 0 {
        return Err(Error::invalid("TfIdfVectorizer with pool_strings takes texts"));
    }
    let distinct: IndexSet<&String> = pool.iter().collect();
    let places = pool.iter().map(|text| distinct.get_index_of(text).expect("it was put in") as i64);
    let list: Vec<String> = distinct.iter().map(|text| text.to_string()).collect();
    Ok((find(x, constant_texts(call.builder, &list)?, true)?, places.collect()))
}

/// The pool by the lengths of its n-grams.
fn pool<'a>(call: &Call<'a, '_>, items: &[i64]) -> Result<Vec<Grams<'a>>> {
    let missing = |name: &str| Error::invalid(format!("TfIdfVectorizer needs attribute {name}"));
    let starts = call.ints("ngram_counts")?.ok_or_else(|| missing("ngram_counts"))?;
    let mut columns = call.ints("ngram_indexes")?.ok_or_else(|| missing("ngram_indexes"))?;
    if let Some(column) = columns.iter().find(|c| !(0..MOST_COLUMNS).contains(*c)) {
        return Err(Error::invalid(format!("ngram_indexes of TfIdfVectorizer holds {column}")));
    }
    let mut all = Vec::new();
    for (k, start) in starts.iter().enumerate() {
        let length = k + 1;
        let end = starts.get(k + 1).copied().unwrap_or(items.len() as i64);
        let part = usize::try_from(*start).ok().zip(usize::try_from(end).ok());
        let part = part.and_then(|(start, end)| items.get(start..end)).filter(|p| p.len().is_multiple_of(length));
        let part = part.ok_or_else(|| Error::invalid(format!("ngram_counts = {starts:?} of TfIdfVectorizer")))?;
        let (own, rest) = columns
            .split_at_checked(part.len() / length)
            .ok_or_else(|| Error::invalid("attribute ngram_indexes of TfIdfVectorizer is too short"))?;
        columns = rest;
        all.push(Grams { length, items: part.to_vec(), columns: own });
    }
    Ok(all)
}

fn tf_idf_vectorizer<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let (x, items) = tokens(call)?;
    let single = x.rank()? < 2;
    let rows = match x.rank()? {
        0 => x.insert_axes(&[0, 1]),
        1 => x.insert_axes(&[0]),
        2 => x,
        _ => return Err(Error::invalid(format!("TfIdfVectorizer of a tensor of shape {}", x.shape()?))),
    };
    let all = pool(call, &items)?;
    let skips = call.int_or("max_skip_count", 0)?;
    if skips > MOST_SKIPS {
        return Err(Error::limit(format!("max_skip_count = {skips} of TfIdfVectorizer (the limit is {MOST_SKIPS})")));
    }
    let (shortest, longest) = (call.int_or("min_gram_length", 1)?, call.int_or("max_gram_length", 1)?);
    let largest = all.iter().flat_map(|g| g.columns).max();
    let width = largest.ok_or_else(|| Error::invalid("TfIdfVectorizer without n-grams"))? + 1;
    let zeros = call.builder.scalar(DType::F32, 0.0).expand(vec![rows.dim(0)?, Dim::int(width)]);
    let mut counts = zeros;
    for grams in all.iter().filter(|g| (shortest..=longest).contains(&(g.length as i64)) && !g.columns.is_empty()) {
        let found = occurrences(rows, grams, skips)?;
        let columns = call.builder.constant(Literal::i64s(grams.columns)).expand(found.shape()?);
        let scatter = Scatter { combine: Combine::Add, map: vec![Dim::axis(0), Symbol::Read(0).into()] };
        counts = counts.scatter(scatter, found, &[columns]);
    }
    let weights = weights_by_column(call, width)?;
    let weighted = |x: Tensor<'b>| weights.map_or(x, |w| x * w);
    let y = match call.str_or("mode", "TF")? {
        "TF" => counts,
        "IDF" => weighted(counts.min(1.0)),
        "TFIDF" => weighted(counts),
        other => return Err(Error::invalid(format!("attribute mode = \"{other}\" of TfIdfVectorizer"))),
    };
    Ok(vec![if single { y.remove_axes(&[0]) } else { y }])
}

/// The weights of the n-grams, each at its column.
fn weights_by_column<'b>(call: &Call<'_, 'b>, width: i64) -> Result<Option<Tensor<'b>>> {
    let Some(weights) = call.floats("weights")?.filter(|w| !w.is_empty()) else { return Ok(None) };
    let columns = call.ints("ngram_indexes")?.unwrap_or(&[]);
    if weights.len() != columns.len() {
        return Err(Error::invalid(format!("{} weights for {} n-grams", weights.len(), columns.len())));
    }
    let mut by_column = vec![1.0; width as usize];
    for (weight, column) in weights.iter().zip(columns) {
        if let Some(slot) = by_column.get_mut(*column as usize) {
            *slot = *weight;
        }
    }
    Ok(Some(call.builder.constant(Literal::from_f64s(DType::F32, [by_column.len()], &by_column)?)))
}

/// How often each n-gram occurs in each row, `[rows, grams]`; single numbers do not skip.
fn occurrences<'b>(rows: Tensor<'b>, grams: &Grams<'_>, skips: i64) -> Result<Tensor<'b>> {
    let builder = rows.builder();
    let (count, length) = (grams.columns.len(), grams.length as i64);
    let table = builder.constant(Literal::i64s(&grams.items).reshaped([count, grams.length])?);
    let distances = if length == 1 { 1..=1 } else { 1..=skips.max(0) + 1 };
    let mut total: Option<Tensor<'b>> = None;
    for distance in distances {
        let places = (rows.dim(1)? - distance * (length - 1)).max_with(&Dim::int(0));
        let equal = |k: i64| {
            let items = rows.slice(1, distance * k, places.clone(), 1).insert_axes(&[2]);
            items.equal(table.element(1, k as usize))
        };
        let matches = (1..length).fold(equal(0), |all, k| all.and(equal(k)));
        let found = matches.cast(DType::F32).reduce(Monoid::Sum, &[1]);
        total = Some(total.map_or(found, |t| t + found));
    }
    let shape: Shape = vec![rows.dim(0)?, Dim::from(count)].into();
    Ok(total.unwrap_or_else(|| builder.scalar(DType::F32, 0.0)).expand(shape))
}
