//! Constant tensors as text: a list of elements, one value for all, raw bytes, a place in a file, or a seed.

use std::fmt::Write as _;

use super::Resolve;
use super::number::{self, NumberText};
use crate::cursor::{Cursor, quoted};
use crate::error::{Context as _, Error, Result};
use crate::tensor::{DType, Literal, Seeded, Source, TensorType};

/// Elements are listed one by one up to this count; of literals that lie in a file, up to the second one.
const MOST_LISTED: (usize, usize) = (256, 16);

/// One value stands for all elements of a tensor up to this size, so that a short text cannot ask for all memory.
const MOST_FILLED: usize = 64 << 20;

/// Larger literals that lie in a file are not looked at.
const MOST_READ: usize = 64 << 10;

/// The data of a literal as text.
pub(super) fn text(literal: &Literal) -> String {
    if let Some(Seeded { seed, low, high }) = literal.as_seeded() {
        return format!("seeded({seed}, {low:?}, {high:?})");
    }
    let (count, bytes) = (literal.count(), literal.bytes());
    let place = |source: &Source| format!("@{}+{}", quoted(&source.file, '"'), source.offset);
    match literal.source() {
        Some(source) if bytes.len() > MOST_READ => return place(source),
        _ => {}
    }
    let element = |k: usize| number::element_text(literal.dtype(), literal.bits(k));
    // Where elements do not fill the last byte, its other bits are 0 unless somebody wrote into them.
    let unused = bytes.len() * 8 - count * literal.dtype().bits();
    let is_clean = bytes.last().is_none_or(|last| unused == 0 || last >> (8 - unused) == 0);
    if is_clean && literal.is_splat() && bytes.len() <= MOST_FILLED {
        return element(0);
    }
    if is_clean && count <= if literal.source().is_some() { MOST_LISTED.1 } else { MOST_LISTED.0 } {
        let elements: Vec<String> = (0..count).map(element).collect();
        return format!("[{}]", elements.join(", "));
    }
    match literal.source() {
        Some(source) => place(source),
        None => {
            let mut hex = String::with_capacity(bytes.len() * 2 + 5);
            hex.push_str("hex\"");
            bytes.iter().for_each(|b| write!(hex, "{b:02x}").expect("writing to a string succeeds"));
            hex.push('"');
            hex
        }
    }
}

/// A number and where it stands.
#[derive(Debug)]
pub(super) struct Element<'t> {
    number: NumberText<'t>,
    place: Cursor<'t>,
}

impl<'t> Element<'t> {
    fn read(cursor: &mut Cursor<'t>) -> Result<Element<'t>> {
        let place = *cursor;
        Ok(Element { number: number::read(cursor)?, place })
    }

    fn bits(&self, dtype: DType) -> Result<u64> {
        self.number.element(dtype).at(|| self.place.place())
    }
}

/// The data of a literal whose type is not known yet.
#[derive(Debug)]
pub(super) enum Data<'t> {
    All(Element<'t>),
    Each(Vec<Element<'t>>),
    Raw(Vec<u8>),
    Place(Source),
    Seeded(Seeded),
}

/// Reads the data of a literal.
pub(super) fn read<'t>(cursor: &mut Cursor<'t>) -> Result<Data<'t>> {
    if cursor.eat("[") {
        return cursor.list("]", Element::read).map(Data::Each);
    }
    if cursor.eat("@") {
        let file = cursor.string('"')?;
        cursor.expect("+")?;
        return Ok(Data::Place(Source { file: file.into(), offset: cursor.integer("a position in the file")? }));
    }
    if cursor.eat_word("hex") {
        let start = *cursor;
        let digits = cursor.string('"')?;
        let values: Option<Vec<u8>> = digits.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect();
        let values = values.filter(|v| v.len().is_multiple_of(2));
        let values = values.ok_or_else(|| start.error("wanted two hexadecimal digits for each byte"))?;
        return Ok(Data::Raw(values.chunks_exact(2).map(|d| d[0] << 4 | d[1]).collect()));
    }
    if cursor.eat_word("seeded") {
        cursor.expect("(")?;
        let seed = cursor.integer("a seed")?;
        let mut bound = || {
            cursor.expect(",")?;
            Element::read(cursor)?.bits(DType::F64).map(f64::from_bits)
        };
        let seeded = Seeded { seed, low: bound()?, high: bound()? };
        cursor.expect(")")?;
        return Ok(Data::Seeded(seeded));
    }
    if number::is_next(cursor) {
        return Element::read(cursor).map(Data::All);
    }
    Err(cursor.expected("a number, a list of numbers, hex\"…\", @\"file\"+position or seeded(seed, low, high)"))
}

impl Data<'_> {
    /// The literal of a type, which stands at `place`.
    pub(super) fn of_type(self, ty: &TensorType, place: Cursor<'_>, resolve: &Resolve<'_>) -> Result<Literal> {
        let here = || place.place();
        ty.shape.check().at(here)?;
        let sizes = ty.shape.as_ints();
        let sizes = sizes.ok_or_else(|| place.error(format!("a constant of a size that is no number, {ty}")))?;
        let count = if sizes.contains(&0) { 0 } else { sizes.iter().product::<usize>() };
        let wanted = ty.dtype.bytes(count).ok_or_else(|| place.error(format!("a constant {ty}")))?;
        match self {
            Data::All(element) => {
                if wanted > MOST_FILLED {
                    let message = format!("one value for all {wanted} bytes of a constant {ty}");
                    return Err(Error::limit(message).at(here()));
                }
                let bits = element.bits(ty.dtype)?;
                Literal::from_bits(ty.dtype, sizes, std::iter::repeat_n(bits, count)).at(here)
            }
            Data::Each(elements) => {
                if elements.len() != count {
                    return Err(place.error(format!("{} elements for a constant {ty}", elements.len())));
                }
                let bits = elements.iter().map(|e| e.bits(ty.dtype)).collect::<Result<Vec<u64>>>()?;
                Literal::from_bits(ty.dtype, sizes, bits.into_iter()).at(here)
            }
            Data::Seeded(seeded) => Literal::seeded(ty.dtype, sizes, seeded).at(here),
            Data::Raw(bytes) => Literal::new(ty.dtype, sizes, bytes).at(here),
            Data::Place(source) => {
                let bytes = resolve(&source, wanted).at(here)?;
                Literal::new(ty.dtype, sizes, bytes).map(|literal| literal.with_source(source)).at(here)
            }
        }
    }
}
