//! The format of one NumPy array: a magic string, a header that is a Python dictionary, the elements.

use std::io::{Read, Write};

use bytes::Bytes;
use fuseline::error::{Allowance, Error, Result};
use fuseline::tensor::{DType, Literal, Shape, TensorType};

use crate::elements::{Extent, canonical, extent};

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// Longer headers are refused. Those of plain arrays take about a hundred bytes.
const MAX_HEADER: usize = 64 << 10;

/// Room made at first for the elements; more is made only as elements arrive.
const FIRST_STEP: usize = 1 << 20;

/// NumPy's code of an element type, without the byte order. The others are opaque to it: see [`opaque_code`].
const CODES: &[(&str, DType)] = &[
    ("b1", DType::Bool),
    ("u1", DType::U8),
    ("u2", DType::U16),
    ("u4", DType::U32),
    ("u8", DType::U64),
    ("i1", DType::I8),
    ("i2", DType::I16),
    ("i4", DType::I32),
    ("i8", DType::I64),
    ("f2", DType::F16),
    ("f4", DType::F32),
    ("f8", DType::F64),
];

/// The code of a type that NumPy does not know: one or two opaque bytes, which hold a single element.
fn opaque_code(dtype: DType) -> &'static str {
    if dtype.bits() > 8 { "V2" } else { "V1" }
}

fn is_opaque(dtype: DType) -> bool {
    CODES.iter().all(|row| row.1 != dtype)
}

/// Reads one array up to the end of `input`. `expected` tells what opaque bytes are. `budget` is what may still be
/// read; what was read is taken off.
pub fn read(input: &mut dyn Read, expected: Option<DType>, budget: &mut u64) -> Result<Literal> {
    let header = read_header(input, budget)?;
    if let Some(texts) = Texts::parse(&header.descr) {
        return read_texts(input, &header, &texts, budget);
    }
    let element = Element::parse(&header.descr, expected)?;
    let extent = extent(element.dtype, &header.shape)?;
    let width = element.dtype.bits().div_ceil(8);
    let mut bytes = read_elements(input, &header, &extent, width, budget)?;
    if element.big_endian {
        bytes.chunks_exact_mut(width).for_each(<[u8]>::reverse);
    }
    if element.dtype.bits() < 8 {
        return Literal::from_bits(element.dtype, extent.sizes, bytes.iter().map(|b| u64::from(*b)));
    }
    Literal::new(element.dtype, extent.sizes, canonical(element.dtype, Bytes::from(bytes)))
}

/// The type of an array that begins here, by its header alone; none where it is made of texts, whose width shows only when they are read.
pub fn read_type(input: &mut dyn Read, expected: Option<DType>, budget: &mut u64) -> Result<Option<TensorType>> {
    let header = read_header(input, budget)?;
    if Texts::parse(&header.descr).is_some() {
        return Ok(None);
    }
    let element = Element::parse(&header.descr, expected)?;
    let sizes = extent(element.dtype, &header.shape)?.sizes;
    Ok(Some(TensorType::new(element.dtype, sizes.into_iter().collect::<Shape>())))
}

/// The elements, each so many bytes wide, in row-major order.
fn read_elements(
    input: &mut dyn Read,
    header: &Header,
    extent: &Extent,
    width: usize,
    budget: &mut u64,
) -> Result<Vec<u8>> {
    let stored = extent.count.checked_mul(width).filter(|stored| *stored <= isize::MAX as usize);
    let stored = stored.ok_or_else(|| Error::limit(format!("{} elements of {width} bytes", extent.count)))?;
    let wanted = stored as u64;
    *budget = budget.checked_sub(wanted).ok_or_else(|| over_budget(wanted))?;
    let bytes = read_growing(input, stored)?;
    // Looking for one byte more also makes the reader of an archive compare the checksum.
    if input.take(1).read_to_end(&mut Vec::new()).map_err(cannot_read)? > 0 {
        return Err(Error::invalid(format!("data goes on after the {wanted} bytes that the header declares")));
    }
    Ok(if header.fortran_order { row_major(bytes, extent, width) } else { bytes })
}

/// Texts of one width, such as `|S5` (bytes) or `<U5` (characters of four bytes each).
struct Texts {
    width: usize,
    /// the order of the bytes of a character
    characters: Option<fn([u8; 4]) -> u32>,
}

impl Texts {
    fn parse(descr: &str) -> Option<Texts> {
        let (kind, width) = descr.split_at_checked(2)?;
        let width = width.parse().ok()?;
        let characters: Option<fn([u8; 4]) -> u32> = match kind {
            "|S" => None,
            "<U" => Some(u32::from_le_bytes),
            ">U" => Some(u32::from_be_bytes),
            _ => return None,
        };
        Some(Texts { width, characters })
    }
}

fn read_texts(input: &mut dyn Read, header: &Header, texts: &Texts, budget: &mut u64) -> Result<Literal> {
    let extent = extent(DType::U8, &header.shape)?;
    let Some(decode) = texts.characters else {
        let bytes = read_elements(input, header, &extent, texts.width, budget)?;
        let sizes = [&extent.sizes[..], &[texts.width]].concat();
        return Literal::new(DType::U8, sizes, bytes);
    };
    let width = texts.width.checked_mul(4).ok_or_else(|| Error::limit("texts wider than any memory"))?;
    let bytes = read_elements(input, header, &extent, width, budget)?;
    let text = |row: &[u8]| {
        let codes = row.chunks_exact(4).map(|code| decode(code.try_into().expect("four bytes")));
        let text: Option<String> = codes.map(char::from_u32).collect();
        text.map(|text| text.trim_end_matches('\0').to_string())
            .ok_or_else(|| Error::invalid("a text holds what is no character"))
    };
    let made = match width {
        0 => vec![String::new(); extent.count],
        width => bytes.chunks_exact(width).map(text).collect::<Result<_>>()?,
    };
    Literal::texts(extent.sizes, &made)
}

/// Writes one array of texts, which are bytes with one axis more, as NumPy's byte strings (`|S5`).
pub fn write_texts(output: &mut dyn Write, literal: &Literal) -> std::io::Result<()> {
    let (width, leading) = literal.sizes().split_last().map_or((0, &[][..]), |(width, leading)| (*width, leading));
    // NumPy has no texts of width 0.
    output.write_all(&header_bytes(&format!("|S{}", width.max(1)), leading))?;
    if width == 0 {
        return output.write_all(&vec![0; leading.iter().product()]);
    }
    output.write_all(&literal.bytes())
}

/// Writes one array, in the version of the format that every NumPy reads, little-endian and row-major.
pub fn write(output: &mut dyn Write, literal: &Literal) -> std::io::Result<()> {
    output.write_all(&header_bytes(&descr(literal.dtype()), literal.sizes()))?;
    if literal.dtype().bits() < 8 {
        // Integers keep their sign in the byte of their own.
        let byte = |k| if literal.dtype().is_int() { literal.int(k) as u8 } else { literal.bits(k) as u8 };
        return output.write_all(&(0..literal.count()).map(byte).collect::<Vec<_>>());
    }
    output.write_all(&literal.bytes())
}

fn descr(dtype: DType) -> String {
    let code = CODES.iter().find(|row| row.1 == dtype).map_or(opaque_code(dtype), |row| row.0);
    // Opaque bytes have no order, nor have single ones.
    let order = if dtype.bits() == 8 || is_opaque(dtype) { '|' } else { '<' };
    format!("{order}{code}")
}

fn header_bytes(descr: &str, sizes: &[usize]) -> Vec<u8> {
    let sizes: Vec<String> = sizes.iter().map(|n| n.to_string()).collect();
    let comma = if sizes.len() == 1 { "," } else { "" };
    let shape = sizes.join(", ");
    let dict = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}{comma}), }}");
    // The elements begin at a multiple of 64; spaces and a line feed fill up.
    let fixed = MAGIC.len() + 4;
    let total = (fixed + dict.len() + 1).next_multiple_of(64);
    let length = u16::try_from(total - fixed).expect("64 sizes of up to 20 digits are far below 64 KiB");
    let mut bytes = Vec::with_capacity(total);
    bytes.extend(MAGIC);
    bytes.extend([1, 0]);
    bytes.extend(length.to_le_bytes());
    bytes.extend(dict.bytes());
    bytes.resize(total - 1, b' ');
    bytes.push(b'\n');
    bytes
}

#[derive(Debug, PartialEq)]
struct Header {
    descr: String,
    fortran_order: bool,
    shape: Vec<i64>,
}

fn read_header(input: &mut dyn Read, budget: &mut u64) -> Result<Header> {
    let mut start = [0; 8];
    input.read_exact(&mut start).map_err(cannot_read)?;
    if !start.starts_with(MAGIC) {
        return Err(Error::invalid("not a NumPy array: the magic string is missing"));
    }
    let mut length = [0; 4];
    let width = match start[6] {
        1 => 2,
        2 | 3 => 4,
        version => return Err(Error::unsupported(format!("version {version} of the NumPy array format"))),
    };
    input.read_exact(&mut length[..width]).map_err(cannot_read)?;
    let length = u32::from_le_bytes(length);
    if length as usize > MAX_HEADER {
        return Err(Error::limit(format!("an array header of {length} bytes (the limit is {MAX_HEADER})")));
    }
    let read = (start.len() + width) as u64 + u64::from(length);
    *budget = budget.checked_sub(read).ok_or_else(|| over_budget(read))?;
    let mut text = vec![0; length as usize];
    input.read_exact(&mut text).map_err(cannot_read)?;
    let text = std::str::from_utf8(&text).map_err(|_| Error::invalid("the array header is not text"))?;
    Parser { rest: text }.header()
}

/// A reader for the one sort of dictionary that array headers are.
struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn header(mut self) -> Result<Header> {
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        self.expect("{")?;
        while !self.accept("}") {
            let key = self.string()?;
            self.expect(":")?;
            match key {
                "descr" if descr.is_none() => descr = Some(self.descr()?),
                "fortran_order" if fortran_order.is_none() => fortran_order = Some(self.bool()?),
                "shape" if shape.is_none() => shape = Some(self.shape()?),
                _ => return Err(self.wrong("'descr', 'fortran_order' and 'shape', each once")),
            }
            if !self.accept(",") {
                self.expect("}")?;
                break;
            }
        }
        if !self.rest.trim().is_empty() {
            return Err(self.wrong("the end"));
        }
        match (descr, fortran_order, shape) {
            (Some(descr), Some(fortran_order), Some(shape)) => Ok(Header { descr, fortran_order, shape }),
            _ => Err(self.wrong("'descr', 'fortran_order' and 'shape'")),
        }
    }

    fn descr(&mut self) -> Result<String> {
        if self.accept("[") {
            return Err(Error::unsupported("arrays with named fields"));
        }
        self.string().map(str::to_string)
    }

    fn bool(&mut self) -> Result<bool> {
        if self.accept("True") {
            return Ok(true);
        }
        self.expect("False").map(|()| false)
    }

    fn shape(&mut self) -> Result<Vec<i64>> {
        let mut sizes = Vec::new();
        self.expect("(")?;
        while !self.accept(")") {
            sizes.push(self.size()?);
            self.accept("L"); // Python 2 wrote long integers so
            if !self.accept(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(sizes)
    }

    fn size(&mut self) -> Result<i64> {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        let size = digits.parse().map_err(|_| self.wrong("a size"))?;
        self.rest = rest;
        Ok(size)
    }

    /// A string without escapes; the strings in headers need none.
    fn string(&mut self) -> Result<&'a str> {
        let quote = if self.accept("'") { '\'' } else { self.expect("\"").map(|()| '"')? };
        let (text, rest) = self.rest.split_once(quote).ok_or_else(|| self.wrong("the end of a string"))?;
        self.rest = rest;
        Ok(text)
    }

    fn accept(&mut self, token: &str) -> bool {
        let rest = self.rest.trim_start().strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, token: &str) -> Result<()> {
        if self.accept(token) { Ok(()) } else { Err(self.wrong(token)) }
    }

    fn wrong(&self, wanted: &str) -> Error {
        let found: String = self.rest.trim_start().chars().take(20).collect();
        Error::invalid(format!("the array header has \"{}\" in the place of {wanted}", found.escape_debug()))
    }
}

/// What a `descr` such as `<f4` says.
#[derive(Debug, PartialEq)]
struct Element {
    dtype: DType,
    big_endian: bool,
}

impl Element {
    fn parse(descr: &str, expected: Option<DType>) -> Result<Element> {
        let unsupported = || Error::unsupported(format!("NumPy elements of type \"{}\"", descr.escape_debug()));
        let mut chars = descr.chars();
        let order = chars.next().ok_or_else(unsupported)?;
        let code = chars.as_str();
        if matches!(code, "V1" | "V2") && order != '>' {
            let known = expected.filter(|dtype| is_opaque(*dtype) && opaque_code(*dtype) == code);
            let reason = "may be bfloat16 or a type of eight bits or less, but are read only where that is expected";
            let refusal =
                || Error::unsupported(format!("NumPy elements of type \"{}\" {reason}", descr.escape_debug()));
            return Ok(Element { dtype: known.ok_or_else(refusal)?, big_endian: false });
        }
        let dtype = CODES.iter().find(|row| row.0 == code).ok_or_else(unsupported)?.1;
        match order {
            '<' => Ok(Element { dtype, big_endian: false }),
            '>' => Ok(Element { dtype, big_endian: true }),
            '|' if dtype.bits() == 8 => Ok(Element { dtype, big_endian: false }),
            _ => Err(unsupported()),
        }
    }
}

/// Exactly `wanted` bytes. Memory grows with what arrives, at most to twice as much, and ends without slack.
fn read_growing(input: &mut dyn Read, wanted: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while bytes.len() < wanted {
        let step = bytes.len().max(FIRST_STEP).min(wanted - bytes.len());
        bytes.try_reserve_exact(step).map_err(|_| Error::no_memory(wanted))?;
        let read = input.take(step as u64).read_to_end(&mut bytes).map_err(cannot_read)?;
        if read < step {
            let found = bytes.len();
            return Err(Error::invalid(format!("{found} bytes of data where the header declares {wanted}")));
        }
    }
    Ok(bytes)
}

/// Column-major elements in row-major order.
fn row_major(bytes: Vec<u8>, extent: &Extent, width: usize) -> Vec<u8> {
    let sizes = &extent.sizes;
    if sizes.len() < 2 || extent.count == 0 {
        return bytes;
    }
    let mut strides = vec![width; sizes.len()];
    for k in 1..sizes.len() {
        strides[k] = strides[k - 1] * sizes[k - 1];
    }
    let mut out = Vec::with_capacity(bytes.len());
    let mut index = vec![0; sizes.len()];
    let mut from = 0;
    for _ in 0..extent.count {
        out.extend(&bytes[from..from + width]);
        for k in (0..sizes.len()).rev() {
            index[k] += 1;
            from += strides[k];
            if index[k] < sizes[k] {
                break;
            }
            from -= strides[k] * sizes[k];
            index[k] = 0;
        }
    }
    out
}

fn over_budget(wanted: u64) -> Error {
    Error::over(Allowance::Memory, format!("{wanted} more bytes of arrays than may still be read"))
}

fn cannot_read(error: std::io::Error) -> Error {
    Error::invalid(format!("cannot read the array: {error}"))
}

#[cfg(test)]
mod tests {
    use fuseline::error::Kind;

    use super::*;

    /// An array with this dictionary and these elements.
    fn array(dict: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([1, 0]);
        bytes.extend((dict.len() as u16).to_le_bytes());
        bytes.extend(dict.bytes());
        bytes.extend(data);
        bytes
    }

    fn plain(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        array(&format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"), data)
    }

    fn parse(bytes: &[u8]) -> Result<Literal> {
        read(&mut &bytes[..], None, &mut (1 << 40))
    }

    fn kind(bytes: &[u8]) -> Kind {
        parse(bytes).unwrap_err().kind()
    }

    #[test]
    fn texts_are_bytes_with_one_axis_more() {
        let read = |bytes: Vec<u8>| read(&mut bytes.as_slice(), None, &mut (1 << 20));
        let bytes = read(plain("|S3", "(2,)", b"a\0\0bcd")).unwrap();
        assert_eq!((bytes.sizes(), bytes.to_texts().unwrap()), (&[2, 3][..], vec!["a".to_string(), "bcd".into()]));
        let characters =
            |convert: fn(u32) -> [u8; 4]| "é\0bc".chars().flat_map(|c| convert(c as u32)).collect::<Vec<u8>>();
        for (descr, data) in [("<U2", characters(u32::to_le_bytes)), (">U2", characters(u32::to_be_bytes))] {
            assert_eq!(read(plain(descr, "(2, 1)", &data)).unwrap().to_texts().unwrap(), ["é", "bc"]);
        }
        let by_columns = array("{'descr': '|S1', 'fortran_order': True, 'shape': (2, 2), }", b"acbd");
        assert_eq!(read(by_columns).unwrap().to_texts().unwrap(), ["a", "b", "c", "d"]);
        assert_eq!(read(plain("<U1", "(1,)", &[0, 0, 0, 0xff])).unwrap_err().kind(), Kind::Invalid);
        assert_eq!(read(plain("|S99999999999", "(99999999999,)", b"")).unwrap_err().kind(), Kind::Limit);
        for texts in [&["x", "yz"][..], &["", ""]] {
            let literal = Literal::texts([texts.len()], texts).unwrap();
            let mut written = Vec::new();
            write_texts(&mut written, &literal).unwrap();
            assert_eq!(read(written).unwrap().to_texts().unwrap(), texts);
        }
    }

    #[test]
    fn every_type_and_rank_survives() {
        for &dtype in DType::ALL {
            for sizes in [&[][..], &[1], &[6], &[2, 3], &[3, 0, 2], &[1, 2, 3, 1]] {
                let count: usize = sizes.iter().product();
                let values: Vec<i64> = (0..count as i64).map(|k| k % 2).collect();
                let literal = Literal::from_ints(dtype, sizes, &values).unwrap();
                let mut bytes = Vec::new();
                write(&mut bytes, &literal).unwrap();
                assert_eq!((bytes.len() - count * dtype.bits().div_ceil(8)) % 64, 0);
                assert_eq!(read(&mut &bytes[..], Some(dtype), &mut 1000).unwrap(), literal);
                assert_eq!(parse(&bytes).is_ok(), !is_opaque(dtype));
            }
        }
    }

    #[test]
    fn the_header_is_that_of_numpy() {
        let mut bytes = Vec::new();
        write(&mut bytes, &Literal::f32s(&[1.0, 2.0, 3.0])).unwrap();
        let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }";
        let want = [b"\x93NUMPY\x01\0\x76\0", text.as_bytes(), &[b' '; 60], b"\n", &bytes[128..]].concat();
        assert_eq!(bytes, want);
    }

    #[test]
    fn other_orders_are_turned() {
        let big = parse(&plain(">i2", "(2,)", &[0, 1, 0xff, 0xfe])).unwrap();
        assert_eq!(big.to_ints(), [1, -2]);
        let double = parse(&plain(">f8", "()", &1.5f64.to_be_bytes())).unwrap();
        assert_eq!(double.float(0), 1.5);
        let dict = "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3)}\n";
        let columns = parse(&array(dict, &[0, 10, 1, 11, 2, 12])).unwrap();
        assert_eq!((columns.sizes(), columns.to_ints()), (&[2, 3][..], vec![0, 1, 2, 10, 11, 12]));
        let dict = "{'descr': '>u2', 'fortran_order': True, 'shape': (2, 1, 2)}";
        assert_eq!(parse(&array(dict, &[0, 1, 0, 2, 0, 3, 0, 4])).unwrap().to_ints(), [1, 3, 2, 4]);
    }

    #[test]
    fn headers_of_all_versions_are_read() {
        let dict = b"{\"shape\": (2L, 1L), 'fortran_order':False,'descr':\"|b1\"}   \n";
        for version in [2, 3] {
            let mut bytes = MAGIC.to_vec();
            bytes.extend([version, 0]);
            bytes.extend((dict.len() as u32).to_le_bytes());
            bytes.extend(dict);
            bytes.extend([0, 7]);
            let literal = parse(&bytes).unwrap();
            assert_eq!((literal.sizes(), literal.to_ints()), (&[2, 1][..], vec![0, 1]));
        }
    }

    #[test]
    fn what_lies_is_refused() {
        for (shape, expected) in [
            ("(1152921504606846976,)", Kind::Limit),
            ("(4294967296, 4294967296)", Kind::Limit),
            ("(9223372036854775807, 2)", Kind::Limit),
            ("(99999999999999999999,)", Kind::Invalid),
            ("(281474976710655,)", Kind::Limit), // 2^48 - 1 elements are over the budget
            ("(34359738368,)", Kind::Invalid),   // 32 GiB are not, but the data is not there
            ("(-1,)", Kind::Invalid),
            ("(3,)", Kind::Invalid),
            ("(1,)", Kind::Invalid),
            ("(2.5,)", Kind::Invalid),
            ("2", Kind::Invalid),
            ("(2", Kind::Invalid),
        ] {
            assert_eq!(kind(&plain("|u1", shape, &[0, 0])), expected, "{shape}");
        }
        let mut budget = 100;
        assert_eq!(read(&mut &plain("|u1", "(64,)", &[0; 64])[..], None, &mut budget).unwrap_err().kind(), Kind::Limit);
        let mut long = MAGIC.to_vec();
        long.extend([2, 0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(kind(&long), Kind::Limit);
        assert_eq!(kind(b"\x93NUMPY\x04\0"), Kind::Unsupported);
        assert_eq!(kind(b"PK\x03\x04 is not an array"), Kind::Invalid);
        assert_eq!(kind(b""), Kind::Invalid);
        let whole = plain("<u2", "(2,)", &[1, 0, 2, 0]);
        for end in 0..whole.len() {
            assert_eq!(kind(&whole[..end]), Kind::Invalid, "{end}");
        }
    }

    #[test]
    fn damaged_headers_do_no_harm() {
        for dict in [
            "",
            "{}",
            "{'descr': '<f4'}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (), 'more': 1}",
            "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}",
            "{'descr': '<f4', 'fortran_order': 0, 'shape': ()}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': ()} x",
            "{'descr': '<f4",
        ] {
            assert_eq!(kind(&array(dict, &[0; 4])), Kind::Invalid, "{dict}");
        }
        let whole = plain("<u2", "(2,)", &[1, 0, 2, 0]);
        for (k, byte) in (0..whole.len()).flat_map(|k| (0..=255).map(move |byte| (k, byte))) {
            let mut damaged = whole.clone();
            damaged[k] = byte;
            let _ = parse(&damaged);
        }
    }

    #[test]
    fn types_that_we_lack_are_named() {
        for descr in ["<c8", "|O", "<M8[ns]", "|V2", "<V2", "|V4", "|f4", "=f4", "", "é", "<f16"] {
            let error = parse(&plain(descr, "(1,)", &[0; 16])).unwrap_err();
            assert_eq!(error.kind(), Kind::Unsupported, "{descr}");
            assert!(error.message().contains(descr), "{error}");
        }
        let fields = array("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}", &[]);
        assert_eq!(kind(&fields), Kind::Unsupported);
        let bf16 = plain("<V2", "(1,)", &[0x80, 0x3f]);
        let literal = read(&mut &bf16[..], Some(DType::BF16), &mut 1000).unwrap();
        assert_eq!((literal.dtype(), literal.float(0)), (DType::BF16, 1.0));
    }
}
