//! Tensors that are stored by their elements which are not zero.

use bytes::Bytes;
use fuseline::error::{Context, Error, Result};
use fuseline::tensor::{DType, Literal};

use super::external::DataFiles;
use super::schema::{SparseTensorProto, TensorProto};
use super::tensor::literal;
use crate::elements::{Extent, extent};

/// The literal with all its elements, which has at most so many bytes.
pub fn dense(sparse: &SparseTensorProto, files: &DataFiles, most_bytes: usize) -> Result<Literal> {
    let (Some(values), Some(indices)) = (&sparse.values, &sparse.indices) else {
        return Err(Error::invalid("a sparse tensor without values or without indices"));
    };
    let place = || format!("sparse tensor \"{}\"", values.name.escape_debug());
    unnamed(values, indices, &sparse.dims, files, most_bytes).at(place)
}

fn unnamed(
    values: &TensorProto,
    indices: &TensorProto,
    dims: &[i64],
    files: &DataFiles,
    most_bytes: usize,
) -> Result<Literal> {
    let (values, indices) = (literal(values, files)?, literal(indices, files)?);
    let dtype = values.dtype();
    if !dtype.bits().is_multiple_of(8) || values.sizes().len() != 1 {
        return Err(Error::unsupported(format!("values of the type {}", values.ty())));
    }
    let extent = extent(dtype, dims)?;
    if extent.bytes > most_bytes {
        return Err(Error::limit(format!(
            "{} bytes with all its elements, where {most_bytes} are left for sparse tensors",
            extent.bytes
        )));
    }
    let places = places(&indices, values.count(), &extent)?;
    let (size, stored) = (dtype.bits() / 8, values.bytes());
    let mut bytes = vec![0u8; extent.bytes];
    for (element, place) in stored.chunks_exact(size).zip(places) {
        bytes[place * size..(place + 1) * size].copy_from_slice(element);
    }
    Literal::new(dtype, extent.sizes, Bytes::from(bytes))
}

/// Where each of the values stands in row-major order; these must ascend.
fn places(indices: &Literal, count: usize, extent: &Extent) -> Result<Vec<usize>> {
    let rank = extent.sizes.len();
    let is_by_axis = match indices.sizes() {
        [n] if *n == count => false,
        [n, axes] if *n == count && *axes == rank => true,
        _ => {
            let ty = indices.ty();
            return Err(Error::invalid(format!("indices {ty} for {count} values of a tensor with {rank} axes")));
        }
    };
    if indices.dtype() != DType::I64 {
        return Err(Error::invalid(format!("indices of the type {}", indices.dtype())));
    }
    let numbers = indices.to_ints();
    let mut places = Vec::with_capacity(count);
    for k in 0..count {
        let place = match is_by_axis {
            false => usize::try_from(numbers[k]).ok().filter(|place| *place < extent.count),
            true => extent.sizes.iter().zip(&numbers[k * rank..]).try_fold(0, |place, (size, at)| {
                let at = usize::try_from(*at).ok().filter(|at| at < size)?;
                Some(place * size + at)
            }),
        };
        let sizes = &extent.sizes;
        let place = place.ok_or_else(|| Error::invalid(format!("value {k} lies outside of the sizes {sizes:?}")))?;
        if places.last().is_some_and(|last| place <= *last) {
            return Err(Error::invalid(format!("value {k} does not lie behind the one before it")));
        }
        places.push(place);
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use fuseline::error::Kind;

    use super::super::data_type::data_type_code;
    use super::*;

    fn tensor(dtype: DType, dims: &[i64], elements: &[i64]) -> TensorProto {
        let literal = Literal::from_ints(dtype, [elements.len()], elements).unwrap();
        let (dims, raw_data) = (dims.to_vec(), literal.bytes());
        TensorProto { data_type: data_type_code(dtype), dims, name: "w".into(), raw_data, ..Default::default() }
    }

    fn read(values: &[i64], indices: TensorProto, dims: &[i64]) -> Result<Vec<i64>> {
        let values = Some(tensor(DType::I32, &[values.len() as i64], values));
        let sparse = SparseTensorProto { values, indices: Some(indices), dims: dims.to_vec() };
        dense(&sparse, &DataFiles::of_bytes(Bytes::new()), 1 << 10).map(|literal| literal.to_ints())
    }

    fn flat(places: &[i64]) -> TensorProto {
        tensor(DType::I64, &[places.len() as i64], places)
    }

    #[test]
    fn elements_stand_where_their_indices_say() {
        assert_eq!(read(&[7, 8], flat(&[1, 5]), &[2, 3]).unwrap(), [0, 7, 0, 0, 0, 8]);
        assert_eq!(read(&[7, 8], tensor(DType::I64, &[2, 2], &[0, 1, 1, 2]), &[2, 3]).unwrap(), [0, 7, 0, 0, 0, 8]);
        assert_eq!(read(&[], flat(&[]), &[2]).unwrap(), [0, 0]);
        assert_eq!(read(&[], flat(&[]), &[0, 3]).unwrap(), []);
    }

    #[test]
    fn wrong_places_and_absurd_sizes_are_refused() {
        for (indices, dims) in [
            (flat(&[1, 6]), &[2, 3][..]),
            (flat(&[-1, 2]), &[2, 3]),
            (flat(&[5, 1]), &[2, 3]),
            (flat(&[1, 1]), &[2, 3]),
            (flat(&[1]), &[2, 3]),
            (tensor(DType::I64, &[2, 2], &[0, 1, 2, 0]), &[2, 3]),
            (tensor(DType::I64, &[2, 3], &[0, 0, 0, 0, 0, 1]), &[2, 3]),
            (tensor(DType::I32, &[2], &[0, 1]), &[2, 3]),
            (flat(&[0, 1]), &[-2, 3]),
        ] {
            assert_eq!(read(&[7, 8], indices, dims).unwrap_err().kind(), Kind::Invalid, "{dims:?}");
        }
        for dims in [&[1 << 60][..], &[1 << 40], &[257]] {
            assert_eq!(read(&[7, 8], flat(&[0, 1]), dims).unwrap_err().kind(), Kind::Limit, "{dims:?}");
        }
    }
}
