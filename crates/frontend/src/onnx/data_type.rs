//! ONNX's numbering of element types.

use fuseline::error::{Error, Result};
use fuseline::tensor::DType;

/// A row of `TensorProto.DataType`; without a `dtype`, Fuseline has no such elements.
struct Row {
    code: i32,
    name: &'static str,
    dtype: Option<DType>,
}

const fn known(code: i32, name: &'static str, dtype: DType) -> Row {
    Row { code, name, dtype: Some(dtype) }
}

const fn unknown(code: i32, name: &'static str) -> Row {
    Row { code, name, dtype: None }
}

/// Every type of ONNX 1.22, row `k` with code `k`.
const ROWS: &[Row] = &[
    unknown(0, "UNDEFINED"),
    known(1, "FLOAT", DType::F32),
    known(2, "UINT8", DType::U8),
    known(3, "INT8", DType::I8),
    known(4, "UINT16", DType::U16),
    known(5, "INT16", DType::I16),
    known(6, "INT32", DType::I32),
    known(7, "INT64", DType::I64),
    unknown(8, "STRING"),
    known(9, "BOOL", DType::Bool),
    known(10, "FLOAT16", DType::F16),
    known(11, "DOUBLE", DType::F64),
    known(12, "UINT32", DType::U32),
    known(13, "UINT64", DType::U64),
    unknown(14, "COMPLEX64"),
    unknown(15, "COMPLEX128"),
    known(16, "BFLOAT16", DType::BF16),
    known(17, "FLOAT8E4M3FN", DType::F8E4M3),
    known(18, "FLOAT8E4M3FNUZ", DType::F8E4M3Z),
    known(19, "FLOAT8E5M2", DType::F8E5M2),
    known(20, "FLOAT8E5M2FNUZ", DType::F8E5M2Z),
    known(21, "UINT4", DType::U4),
    known(22, "INT4", DType::I4),
    known(23, "FLOAT4E2M1", DType::F4E2M1),
    known(24, "FLOAT8E8M0", DType::F8E8M0),
    known(25, "UINT2", DType::U2),
    known(26, "INT2", DType::I2),
];

/// The code of strings, which are no element type of ours: see [`fuseline::tensor::Literal::texts`].
pub const STRING: i32 = 8;

/// The element type with this code. `UNDEFINED` and codes that ONNX does not define are invalid; the types that ONNX
/// has and Fuseline has not are unsupported.
pub fn dtype_of_code(code: i32) -> Result<DType> {
    match row(code) {
        Some(Row { dtype: Some(dtype), .. }) => Ok(*dtype),
        Some(Row { code: 0, .. }) => Err(Error::invalid("the element type is missing (UNDEFINED)")),
        Some(Row { name, .. }) => Err(Error::unsupported(format!("elements of type {name}"))),
        None => Err(Error::invalid(format!("{code} is not the code of an ONNX element type"))),
    }
}

/// The element type that ONNX calls so, such as `FLOAT16`; `None` for any other text.
pub fn dtype_of_name(name: &str) -> Option<DType> {
    ROWS.iter().find(|row| row.name == name)?.dtype
}

/// The code of an element type.
pub fn data_type_code(dtype: DType) -> i32 {
    let row = ROWS.iter().find(|row| row.dtype == Some(dtype));
    row.expect("ONNX has every element type of ours").code
}

/// ONNX's name of a code, such as `FLOAT16`.
pub fn data_type_name(code: i32) -> Option<&'static str> {
    row(code).map(|row| row.name)
}

fn row(code: i32) -> Option<&'static Row> {
    ROWS.get(usize::try_from(code).ok()?)
}

#[cfg(test)]
mod tests {
    use fuseline::error::Kind;

    use super::*;

    #[test]
    fn the_table_is_consistent() {
        for (k, row) in ROWS.iter().enumerate() {
            assert_eq!(row.code as usize, k);
        }
        for &dtype in DType::ALL {
            assert_eq!(dtype_of_code(data_type_code(dtype)).unwrap(), dtype);
            assert_eq!(data_type_name(data_type_code(dtype)).and_then(dtype_of_name), Some(dtype));
        }
    }

    #[test]
    fn missing_types_are_told_apart() {
        assert_eq!(dtype_of_code(0).unwrap_err().kind(), Kind::Invalid);
        assert_eq!(dtype_of_code(-1).unwrap_err().kind(), Kind::Invalid);
        assert_eq!(dtype_of_code(27).unwrap_err().kind(), Kind::Invalid);
        for code in [8, 14, 15] {
            let error = dtype_of_code(code).unwrap_err();
            assert_eq!(error.kind(), Kind::Unsupported);
            assert!(error.message().contains(data_type_name(code).unwrap()), "{error}");
        }
    }
}
