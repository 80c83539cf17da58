//! Tensors of a model as literals.
//!
//! Nothing is allocated before the declared sizes are known to fit the data that is there. Raw and external data are
//! slices of the file; typed data is converted; seeded data is made when somebody reads it.

use bytes::Bytes;
use fuseline::error::{Context, Error, Result};
use fuseline::tensor::{DType, Literal};

use super::data_type::{STRING, data_type_code, data_type_name, dtype_of_code};
use super::external::DataFiles;
use super::schema::{DataLocation, TensorProto};
use super::seeded::seeded;
use crate::elements::{Extent, canonical, extent};

/// The literal that `tensor`, a part of the model with these files, describes.
pub fn literal(tensor: &TensorProto, files: &DataFiles) -> Result<Literal> {
    unnamed_literal(tensor, files).at(|| format!("tensor \"{}\"", tensor.name.escape_debug()))
}

fn unnamed_literal(tensor: &TensorProto, files: &DataFiles) -> Result<Literal> {
    if tensor.data_type == STRING {
        return texts(tensor);
    }
    let dtype = dtype_of_code(tensor.data_type)?;
    let extent = extent(dtype, &tensor.dims)?;
    if tensor.segment.is_some() {
        return Err(Error::unsupported("a tensor stored in segments"));
    }
    let (field, external) = (Field::of(dtype), is_external(tensor)?);
    check_fields(tensor, dtype, field, external)?;
    if external && let Some(seeded) = seeded(&tensor.external_data)? {
        return Literal::seeded(dtype, extent.sizes, seeded);
    }
    let (bytes, source) = if external {
        files.external(&tensor.external_data, extent.bytes)?
    } else if field.len(tensor) > 0 {
        (typed_data(tensor, dtype, field, &extent)?, None)
    } else {
        (tensor.raw_data.clone(), files.source(&tensor.raw_data))
    };
    let literal = Literal::new(dtype, extent.sizes, canonical(dtype, bytes))?;
    Ok(match source {
        Some(source) => literal.with_source(source),
        None => literal,
    })
}

/// Strings, which lie in a field of their own and nowhere else.
fn texts(tensor: &TensorProto) -> Result<Literal> {
    if is_external(tensor)? || !tensor.raw_data.is_empty() {
        return Err(Error::invalid("elements of type STRING belong in string_data"));
    }
    let (extent, found) = (extent(DType::U8, &tensor.dims)?, tensor.string_data.len());
    if found != extent.count {
        let (sizes, wanted) = (&extent.sizes, extent.count);
        return Err(Error::invalid(format!("{found} strings for a tensor {sizes:?}, which needs {wanted}")));
    }
    Literal::texts(extent.sizes, &tensor.string_data)
}

/// Refuses data in more than one place, or in the field for another type.
fn check_fields(tensor: &TensorProto, dtype: DType, field: Field, external: bool) -> Result<()> {
    if external && !tensor.raw_data.is_empty() {
        return Err(Error::invalid("both external data and raw_data"));
    }
    for other in Field::ALL.into_iter().filter(|other| other.len(tensor) > 0) {
        let (right, wrong) = (field.name(), other.name());
        if external {
            return Err(Error::invalid(format!("both external data and {wrong}")));
        }
        if !tensor.raw_data.is_empty() {
            return Err(Error::invalid(format!("both raw_data and {wrong}")));
        }
        if other != field {
            let name = onnx_name(dtype);
            return Err(Error::invalid(format!("elements of type {name} belong in {right}, not in {wrong}")));
        }
    }
    Ok(())
}

fn is_external(tensor: &TensorProto) -> Result<bool> {
    match DataLocation::try_from(tensor.data_location) {
        Ok(location) => Ok(location == DataLocation::External),
        Err(_) => Err(Error::invalid(format!("{} is not a data location", tensor.data_location))),
    }
}

fn onnx_name(dtype: DType) -> &'static str {
    data_type_name(data_type_code(dtype)).expect("the code of a type has a name")
}

/// The repeated fields that hold elements one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Float,
    Int32,
    Strings,
    Int64,
    Double,
    Uint64,
}

impl Field {
    const ALL: [Field; 6] = [Field::Float, Field::Int32, Field::Strings, Field::Int64, Field::Double, Field::Uint64];

    /// The field for elements of this type.
    fn of(dtype: DType) -> Field {
        match dtype {
            DType::F32 => Field::Float,
            DType::F64 => Field::Double,
            DType::I64 => Field::Int64,
            DType::U32 | DType::U64 => Field::Uint64,
            // Floats other than those above are there by their bits; elements below eight bits share a number as a byte.
            _ => Field::Int32,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Field::Float => "float_data",
            Field::Int32 => "int32_data",
            Field::Strings => "string_data",
            Field::Int64 => "int64_data",
            Field::Double => "double_data",
            Field::Uint64 => "uint64_data",
        }
    }

    fn len(self, tensor: &TensorProto) -> usize {
        match self {
            Field::Float => tensor.float_data.len(),
            Field::Int32 => tensor.int32_data.len(),
            Field::Strings => tensor.string_data.len(),
            Field::Int64 => tensor.int64_data.len(),
            Field::Double => tensor.double_data.len(),
            Field::Uint64 => tensor.uint64_data.len(),
        }
    }
}

/// The elements of `field`, which is the one for `dtype`, as little-endian bytes.
fn typed_data(tensor: &TensorProto, dtype: DType, field: Field, extent: &Extent) -> Result<Bytes> {
    let (found, wanted) = (field.len(tensor), if dtype.bits() < 8 { extent.bytes } else { extent.count });
    if found != wanted {
        let sizes = &extent.sizes;
        return Err(Error::invalid(format!(
            "{found} elements in {} for a tensor {dtype}{sizes:?}, which needs {wanted}",
            field.name()
        )));
    }
    let mut bytes = Vec::with_capacity(extent.bytes);
    match field {
        Field::Float => tensor.float_data.iter().for_each(|x| bytes.extend(x.to_le_bytes())),
        Field::Double => tensor.double_data.iter().for_each(|x| bytes.extend(x.to_le_bytes())),
        Field::Int64 => tensor.int64_data.iter().for_each(|x| bytes.extend(x.to_le_bytes())),
        Field::Int32 => push_narrowed(&mut bytes, dtype, tensor.int32_data.iter().map(|x| i128::from(*x)))?,
        Field::Uint64 => push_narrowed(&mut bytes, dtype, tensor.uint64_data.iter().map(|x| i128::from(*x)))?,
        Field::Strings => return Err(Error::bug("no element type of ours is stored as strings")),
    }
    Ok(bytes.into())
}

/// Appends the low bits of each value. A value must fit the width of `dtype` as a signed or as an unsigned number,
/// because writers differ in how they extend the sign; every value but 0 is true.
fn push_narrowed(bytes: &mut Vec<u8>, dtype: DType, values: impl Iterator<Item = i128>) -> Result<()> {
    let (bits, name) = (dtype.bits().max(8), onnx_name(dtype));
    for x in values {
        if dtype == DType::Bool {
            bytes.push(u8::from(x != 0));
            continue;
        }
        if x < -(1 << (bits - 1)) || x >= 1 << bits {
            return Err(Error::invalid(format!("the element {x} does not fit the type {name}")));
        }
        bytes.extend(&x.to_le_bytes()[..bits / 8]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use fuseline::error::Kind;
    use fuseline::tensor::Seeded;

    use super::super::schema::{Segment, StringStringEntryProto};
    use super::*;

    fn read(tensor: &TensorProto) -> Result<Literal> {
        literal(tensor, &DataFiles::of_bytes(Bytes::new()))
    }

    fn tensor(dtype: DType, dims: &[i64]) -> TensorProto {
        TensorProto { data_type: data_type_code(dtype), dims: dims.to_vec(), name: "w".into(), ..Default::default() }
    }

    fn kind(tensor: &TensorProto) -> Kind {
        read(tensor).unwrap_err().kind()
    }

    #[test]
    fn raw_data_of_every_type_is_shared() {
        for &dtype in DType::ALL {
            let want = Literal::from_ints(dtype, [3], &[0, 1, 1]).unwrap();
            let proto = TensorProto { raw_data: want.bytes(), ..tensor(dtype, &[3]) };
            let got = read(&proto).unwrap();
            assert_eq!(got, want);
            assert_eq!(got.bytes().as_ptr(), proto.raw_data.as_ptr(), "{dtype}");
        }
    }

    #[test]
    fn typed_data_of_every_type_is_converted() {
        for &dtype in DType::ALL {
            let want = Literal::from_ints(dtype, [2, 1], &[0, 1]).unwrap();
            let mut proto = tensor(dtype, &[2, 1]);
            match Field::of(dtype) {
                Field::Float => proto.float_data = vec![0.0, 1.0],
                Field::Double => proto.double_data = vec![0.0, 1.0],
                Field::Int64 => proto.int64_data = vec![0, 1],
                Field::Uint64 => proto.uint64_data = vec![0, 1],
                Field::Int32 if dtype.bits() < 8 => proto.int32_data = vec![i32::from(want.bytes()[0])],
                Field::Int32 => proto.int32_data = vec![want.bits(0) as i32, want.bits(1) as i32],
                Field::Strings => unreachable!(),
            }
            assert_eq!(read(&proto).unwrap(), want, "{dtype}");
        }
    }

    #[test]
    fn extreme_elements_survive() {
        let ints = |dtype, values: &[i32]| {
            let proto = TensorProto { int32_data: values.to_vec(), ..tensor(dtype, &[values.len() as i64]) };
            read(&proto).map(|literal| literal.to_ints())
        };
        assert_eq!(ints(DType::I8, &[-128, 127]).unwrap(), [-128, 127]);
        assert_eq!(ints(DType::U8, &[0, 255, -1]).unwrap(), [0, 255, 255]);
        assert_eq!(ints(DType::I32, &[i32::MIN, i32::MAX]).unwrap(), [i64::from(i32::MIN), i64::from(i32::MAX)]);
        assert_eq!(ints(DType::Bool, &[0, 7, -1, 256]).unwrap(), [0, 1, 1, 1]);
        assert_eq!(ints(DType::U8, &[256]).unwrap_err().kind(), Kind::Invalid);
        assert_eq!(ints(DType::I16, &[-32769]).unwrap_err().kind(), Kind::Invalid);
        assert_eq!(ints(DType::F16, &[0x10000]).unwrap_err().kind(), Kind::Invalid);
        let words = |dtype, x| read(&TensorProto { uint64_data: vec![x], ..tensor(dtype, &[]) });
        assert_eq!(words(DType::U64, u64::MAX).unwrap().int(0), -1);
        assert_eq!(words(DType::U32, u64::from(u32::MAX)).unwrap().int(0), i64::from(u32::MAX));
        assert_eq!(words(DType::U32, 1 << 32).unwrap_err().kind(), Kind::Invalid);
        let raw_bools = TensorProto { raw_data: Bytes::from_static(&[0, 2]), ..tensor(DType::Bool, &[2]) };
        assert_eq!(&read(&raw_bools).unwrap().bytes()[..], [0, 1]);
    }

    #[test]
    fn declared_sizes_are_not_trusted() {
        let small = Bytes::from(vec![0; 1024]);
        for (dims, expected) in [
            (&[1i64 << 60][..], Kind::Limit),
            (&[1 << 30, 1 << 30], Kind::Limit),
            (&[i64::MAX, 2], Kind::Limit),
            (&[1 << 40], Kind::Invalid),
            (&[-1], Kind::Invalid),
            (&[0, -1], Kind::Invalid),
            (&[257], Kind::Invalid),
            (&[255], Kind::Invalid),
            (&[], Kind::Invalid),
            (&[0], Kind::Invalid),
        ] {
            let raw = TensorProto { raw_data: small.clone(), ..tensor(DType::F32, dims) };
            assert_eq!(kind(&raw), expected, "{dims:?}");
            let typed = TensorProto { float_data: vec![0.0; 256], ..tensor(DType::F32, dims) };
            assert_eq!(kind(&typed), expected, "{dims:?}");
        }
        assert_eq!(kind(&tensor(DType::F32, &[1 << 40])), Kind::Invalid, "no data at all");
        assert_eq!(read(&tensor(DType::F32, &[3, 0])).unwrap().sizes(), [3, 0], "no elements need no data");
    }

    #[test]
    fn ambiguous_data_is_refused() {
        let raw = TensorProto { raw_data: vec![0; 4].into(), ..tensor(DType::F32, &[1]) };
        let both = TensorProto { float_data: vec![0.0], ..raw.clone() };
        assert_eq!(read(&both).unwrap_err().message(), "both raw_data and float_data");
        let wrong = TensorProto { int32_data: vec![0], ..tensor(DType::I64, &[1]) };
        assert_eq!(
            read(&wrong).unwrap_err().to_string(),
            "invalid input: tensor \"w\": elements of type INT64 belong in int64_data, not in int32_data"
        );
        let external = TensorProto { data_location: 1, ..raw.clone() };
        assert_eq!(read(&external).unwrap_err().message(), "both external data and raw_data");
        let nowhere = TensorProto { data_location: 7, ..raw.clone() };
        assert_eq!(kind(&nowhere), Kind::Invalid);
        let pieces = TensorProto { segment: Some(Segment::default()), ..raw };
        assert_eq!(kind(&pieces), Kind::Unsupported);
    }

    #[test]
    fn types_that_we_lack_are_named() {
        let complex = TensorProto { data_type: 14, ..Default::default() };
        let error = read(&complex).unwrap_err();
        assert_eq!((error.kind(), error.message()), (Kind::Unsupported, "elements of type COMPLEX64"));
        assert_eq!(kind(&TensorProto::default()), Kind::Invalid);
    }

    #[test]
    fn strings_are_bytes_with_one_axis_more() {
        let data = ["a", "", "bcd", "é"].map(|text| Bytes::from_static(text.as_bytes())).to_vec();
        let strings = TensorProto { data_type: STRING, dims: vec![2, 2], string_data: data, ..Default::default() };
        let literal = read(&strings).unwrap();
        assert_eq!((literal.dtype(), literal.sizes()), (DType::U8, &[2, 2, 3][..]));
        assert_eq!(literal.to_texts().unwrap(), ["a", "", "bcd", "é"]);
        assert_eq!(kind(&TensorProto { dims: vec![3], ..strings.clone() }), Kind::Invalid);
        assert_eq!(kind(&TensorProto { raw_data: Bytes::from_static(b"x"), ..strings.clone() }), Kind::Invalid);
        assert_eq!(kind(&TensorProto { dims: vec![1 << 60], ..strings }), Kind::Limit);
    }

    #[test]
    fn external_data_is_a_slice_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("w.bin"), [9, 9, 1, 0, 2, 0, 9]).unwrap();
        let entry = |key: &str, value: &str| StringStringEntryProto { key: key.into(), value: value.into() };
        let proto = TensorProto {
            data_location: 1,
            external_data: vec![entry("location", "w.bin"), entry("offset", "2"), entry("length", "4")],
            ..tensor(DType::I16, &[2])
        };
        let files = DataFiles::of_file(&folder.path().join("m.onnx"), Bytes::new());
        let got = literal(&proto, &files).unwrap();
        assert_eq!(got.to_ints(), [1, 2]);
        assert_eq!(got.source().unwrap().offset, 2);
        let huge = TensorProto { dims: vec![1 << 47], ..proto };
        assert_eq!(literal(&huge, &files).unwrap_err().kind(), Kind::Invalid);
    }

    #[test]
    fn seeded_data_needs_no_file_and_is_limited() {
        let entry = |key: &str, value: &str| StringStringEntryProto { key: key.into(), value: value.into() };
        let seeded = |dims: &[i64], high: &str| TensorProto {
            data_location: 1,
            external_data: vec![entry("location", "seeded:3"), entry("low", "-1"), entry("high", high)],
            ..tensor(DType::F32, dims)
        };
        let literal = read(&seeded(&[30_000, 768], "1")).unwrap();
        assert_eq!(literal.as_seeded(), Some(Seeded { seed: 3, low: -1.0, high: 1.0 }));
        assert_eq!(literal.byte_count(), 30_000 * 768 * 4);
        for dims in [&[1 << 60][..], &[1 << 40], &[1 << 30, 1 << 30], &[i64::MAX, 2]] {
            assert_eq!(kind(&seeded(dims, "1")), Kind::Limit, "{dims:?}");
        }
        assert_eq!(kind(&seeded(&[2, -1], "1")), Kind::Invalid);
        assert_eq!(kind(&seeded(&[2], "1e39")), Kind::Invalid);
        let both = TensorProto { raw_data: vec![0; 4].into(), ..seeded(&[1], "1") };
        assert_eq!(read(&both).unwrap_err().message(), "both external data and raw_data");
    }
}
