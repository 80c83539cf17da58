//! Operators that look into texts. A tensor of texts comes as bytes, with one axis more than it has for the user: the last one holds
//! UTF-8, and zeros behind the end of each text. So any operation on bytes works on texts, and every device knows them.

use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::{Builder, Tensor};
use crate::ops::prim::{Case, Host, HostKind, Monoid, whole_text_pattern};
use crate::tensor::{DType, Dim, Literal, Shape};

pub(super) static OPS: &[NamedOp] = &[
    NamedOp::standard("RegexFullMatch", 20, &["pattern"], "whether a pattern matches each text as a whole", |call| {
        let pattern = call.str_or("pattern", "")?;
        whole_text_pattern(pattern)?;
        let pattern = call.builder.constant(Literal::text(pattern));
        Ok(vec![call.builder.add(Host { kind: HostKind::TextMatch }, &[texts(call, 0)?, pattern])])
    }),
    NamedOp::standard("StringConcat", 20, &[], "texts with others behind them", string_concat),
    NamedOp::standard(
        "StringNormalizer",
        10,
        &["case_change_action", "is_case_sensitive", "locale", "stopwords"],
        "texts without stop words, in upper or lower case",
        string_normalizer,
    ),
    NamedOp::standard(
        "StringSplit",
        20,
        &["delimiter", "maxsplit"],
        "the parts of texts between delimiters, and their number",
        string_split,
    ),
];

/// Operand `k`, which must be texts.
fn texts<'b>(call: &Call<'_, 'b>, k: usize) -> Result<Tensor<'b>> {
    let x = call.input(k)?;
    let ty = x.ty()?;
    if ty.dtype != DType::U8 || ty.shape.rank() == 0 {
        return Err(Error::invalid(format!("operand {k} of {} must be texts", call.op.name)));
    }
    Ok(x)
}

/// The axes of texts without that of their bytes.
fn leading(x: Tensor<'_>) -> Result<Vec<Dim>> {
    let mut dims = x.shape()?.dims().to_vec();
    dims.pop();
    Ok(dims)
}

/// The same texts with room for so many bytes, which must be enough.
pub fn widened<'b>(x: Tensor<'b>, width: &Dim) -> Result<Tensor<'b>> {
    let rank = x.rank()?;
    let mut more = vec![Dim::int(0); rank];
    if let Some(last) = more.last_mut() {
        *last = width - &x.dim(rank - 1)?;
    }
    Ok(x.pad(&vec![Dim::int(0); rank], &more, 0.0))
}

/// Texts with room for as many bytes as the longest of them needs.
pub fn equally_wide<'b>(texts: &[Tensor<'b>]) -> Result<Vec<Tensor<'b>>> {
    let mut width = Dim::int(0);
    for x in texts {
        width = width.max_with(&x.dim(x.rank()? - 1)?);
    }
    texts.iter().map(|x| widened(*x, &width)).collect()
}

/// Whether texts are equal, with the usual broadcasting.
pub fn equal_texts<'b>(x: Tensor<'b>, y: Tensor<'b>) -> Result<Tensor<'b>> {
    let wide = equally_wide(&[x, y])?;
    let same = wide[0].equal(wide[1]);
    Ok(same.reduce(Monoid::Min, &[same.rank()? - 1]))
}

/// Numbers as texts.
pub fn texts_of<'b>(x: Tensor<'b>) -> Tensor<'b> {
    x.builder().add(Host { kind: HostKind::TextOfNumber }, &[x])
}

/// The numbers that texts say, of an element type.
pub fn numbers_of<'b>(texts: Tensor<'b>, dtype: DType) -> Tensor<'b> {
    let kind = HostKind::NumberOfText { whole: !dtype.is_float() };
    texts.builder().add(Host { kind }, &[texts]).cast(dtype)
}

/// Texts as a constant, one a row.
pub(super) fn constant_texts<'b>(builder: &'b Builder, texts: &[String]) -> Result<Tensor<'b>> {
    Ok(builder.constant(Literal::texts([texts.len()], texts)?))
}

fn string_concat<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let (x, y) = (texts(call, 0)?, texts(call, 1)?);
    let common = call.builder.broadcast_shapes(&leading(x)?.into(), &leading(y)?.into())?;
    let spread = |x: Tensor<'b>| {
        let width = x.dim(x.rank()? - 1)?;
        Ok::<_, Error>(x.expand([common.dims(), &[width]].concat()))
    };
    Ok(vec![call.builder.add(Host { kind: HostKind::TextJoin }, &[spread(x)?, spread(y)?])])
}

fn string_split<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let b = call.builder;
    let delimiter = b.constant(Literal::text(call.str_or("delimiter", "")?));
    let most = match call.int("maxsplit")? {
        Some(cuts) if cuts < 0 => return Err(Error::invalid(format!("attribute maxsplit = {cuts} of StringSplit"))),
        Some(cuts) => cuts,
        None => i64::MAX,
    };
    let kind = HostKind::TextSplit { count: b.fresh_symbol(), width: b.fresh_symbol() };
    Ok(b.add_multi(Host { kind }, &[texts(call, 0)?, delimiter, b.int(DType::I64, most)]))
}

fn string_normalizer<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let b = call.builder;
    let x = texts(call, 0)?;
    let is_row = match leading(x)?.as_slice() {
        [_] => false,
        [one, _] if !one.surely_differs(&Dim::int(1)) => {
            b.require_equal(one, &Dim::int(1), "the rows of StringNormalizer")?;
            true
        }
        _ => return Err(Error::invalid("StringNormalizer takes a vector of texts, or one row of them")),
    };
    let case = match call.str_or("case_change_action", "NONE")? {
        "NONE" => Case::Kept,
        "LOWER" => Case::Lower,
        "UPPER" => Case::Upper,
        other => return Err(Error::invalid(format!("attribute case_change_action = {other} of StringNormalizer"))),
    };
    let locale = call.str_or("locale", "en_US")?;
    // Where cases are not those of Unicode.
    if case != Case::Kept && ["az", "lt", "tr"].iter().any(|language| locale.starts_with(language)) {
        return Err(call.unsupported("locale", locale));
    }
    let stop = constant_texts(b, call.strs("stopwords")?.unwrap_or_default())?;
    let exact = call.flag("is_case_sensitive", false)?;
    let kind = HostKind::TextNormalize { case, exact, count: b.fresh_symbol(), width: b.fresh_symbol() };
    let row = if is_row { x.remove_axes(&[0]) } else { x };
    let kept = b.add(Host { kind }, &[row, stop]);
    Ok(vec![if is_row { kept.insert_axes(&[0]) } else { kept }])
}

/// The place of each text, or number, among those of a list: the first that is equal, or the length of the list.
pub(super) fn find<'b>(x: Tensor<'b>, keys: Tensor<'b>, are_texts: bool) -> Result<Tensor<'b>> {
    let count = keys.dim(0)?;
    let found = if are_texts {
        equal_texts(x.insert_axes(&[x.rank()? - 1]), keys)?
    } else {
        let x = x.insert_axes(&[x.rank()?]);
        let same = x.equal(keys);
        // No number is a key of what is no number, except itself.
        if x.dtype()?.is_float() { same.or(x.is_nan().and(keys.is_nan())) } else { same }
    };
    let axis = found.rank()? - 1;
    let shape: Shape = found.shape()?;
    let builder = x.builder();
    let places = found.select(builder.coordinate(axis, &shape), builder.size(&count).expand(shape));
    let limit = builder.size(&count).expand(leading(found)?);
    Ok(places.reduce(Monoid::Min, &[axis]).min(limit))
}
