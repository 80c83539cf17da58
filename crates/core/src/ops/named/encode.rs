//! Labels: numbers or texts looked up in a list, and replaced by others.

use super::text::{constant_texts, find};
use super::{Attribute, Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::tensor::{DType, Literal};

/// What stands for a label that has no other.
const UNUSED: &str = "_Unused";

pub(super) static OPS: &[NamedOp] = &[
    NamedOp {
        name: "LabelEncoder",
        domain: "ai.onnx.ml",
        since: 1,
        attributes: &[
            "classes_strings",
            "default_float",
            "default_int64",
            "default_string",
            "default_tensor",
            "keys_floats",
            "keys_int64s",
            "keys_strings",
            "keys_tensor",
            "values_floats",
            "values_int64s",
            "values_strings",
            "values_tensor",
        ],
        doc: "the value of each label's key, or a default",
        expand: label_encoder,
    },
    NamedOp {
        name: "CategoryMapper",
        domain: "ai.onnx.ml",
        since: 1,
        attributes: &["cats_int64s", "cats_strings", "default_int64", "default_string"],
        doc: "numbers for texts, or texts for numbers, by two lists",
        expand: category_mapper,
    },
];

/// A list of labels.
struct Labels<'b> {
    tensor: Tensor<'b>,
    are_texts: bool,
}

impl<'b> Labels<'b> {
    /// Those that a list of attributes holds: the first that is given.
    fn of(call: &Call<'_, 'b>, names: &[&str]) -> Result<Option<Labels<'b>>> {
        let given = names.iter().find_map(|name| call.attributes.get(*name));
        let constant = |literal: Literal| call.builder.constant(literal);
        let tensor = match given {
            None => return Ok(None),
            Some(Attribute::Strs(texts)) => {
                return Ok(Some(Labels { tensor: constant_texts(call.builder, texts)?, are_texts: true }));
            }
            Some(Attribute::Str(text)) => {
                let tensor = constant_texts(call.builder, std::slice::from_ref(text))?;
                return Ok(Some(Labels { tensor, are_texts: true }));
            }
            Some(Attribute::Ints(list)) => constant(Literal::i64s(list)),
            Some(Attribute::Int(x)) => constant(Literal::i64s(&[*x])),
            Some(Attribute::Floats(list)) => constant(Literal::from_f64s(DType::F32, [list.len()], list)?),
            Some(Attribute::Float(x)) => constant(Literal::from_f64s(DType::F32, [1], &[*x])?),
            Some(Attribute::Tensor(literal)) => constant(literal.clone().reshaped([literal.count()])?),
        };
        Ok(Some(Labels { tensor, are_texts: false }))
    }

    /// What stands for labels that are not found where nothing is said: of the same kind as the values.
    fn default_for(call: &Call<'_, 'b>, values: &Labels<'b>) -> Result<Labels<'b>> {
        let dtype = values.tensor.dtype()?;
        let literal = match dtype {
            _ if values.are_texts => Literal::texts([1], &[UNUSED])?,
            _ if dtype.is_float() => Literal::from_f64s(dtype, [1], &[-0.0])?,
            _ => Literal::from_ints(dtype, [1], &[-1])?,
        };
        Ok(Labels { tensor: call.builder.constant(literal), are_texts: values.are_texts })
    }
}

/// Each `x` that is a key replaced by the value at the same place, all others by the default.
fn replaced<'b>(x: Tensor<'b>, keys: Labels<'b>, values: Labels<'b>, default: Labels<'b>) -> Result<Tensor<'b>> {
    let builder = x.builder();
    if default.are_texts != values.are_texts {
        return Err(Error::invalid("the values and their default are not of the same type"));
    }
    let known = [keys.tensor.dtype()?, x.dtype()?];
    if known[0] != known[1] {
        return Err(Error::invalid(format!("keys of type {} for labels of type {}", known[0], known[1])));
    }
    builder.require_equal(&keys.tensor.dim(0)?, &values.tensor.dim(0)?, "keys and values")?;
    let place = find(x, keys.tensor, keys.are_texts)?;
    let list = [values.tensor, default.tensor];
    let list = if values.are_texts { super::text::equally_wide(&list)? } else { list.to_vec() };
    Ok(builder.concat(&list, 0).take(0, place))
}

/// The numbers of the places of a list.
fn places<'b>(list: &Labels<'b>) -> Result<Labels<'b>> {
    let shape = vec![list.tensor.dim(0)?].into();
    Ok(Labels { tensor: list.tensor.builder().coordinate(0, &shape), are_texts: false })
}

fn label_encoder<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    if let Some(classes) = Labels::of(call, &["classes_strings"])? {
        let numbers = places(&classes)?;
        return Ok(vec![between(call, x, classes, numbers)?]);
    }
    let missing = |what: &str| Error::invalid(format!("LabelEncoder lacks its {what}"));
    let keys = Labels::of(call, &["keys_tensor", "keys_strings", "keys_int64s", "keys_floats"])?;
    let values = Labels::of(call, &["values_tensor", "values_strings", "values_int64s", "values_floats"])?;
    let (keys, values) = (keys.ok_or_else(|| missing("keys"))?, values.ok_or_else(|| missing("values"))?);
    let default = match (values.are_texts, values.tensor.dtype()?) {
        (true, _) => Labels::of(call, &["default_tensor", "default_string"])?,
        (false, DType::I64) => Labels::of(call, &["default_tensor", "default_int64"])?,
        (false, DType::F32) => Labels::of(call, &["default_tensor", "default_float"])?,
        (false, _) => Labels::of(call, &["default_tensor"])?,
    };
    let default = default.map_or_else(|| Labels::default_for(call, &values), Ok)?;
    Ok(vec![replaced(x, keys, values, default)?])
}

fn category_mapper<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let missing = |name: &str| Error::invalid(format!("CategoryMapper lacks its attribute {name}"));
    let texts = Labels::of(call, &["cats_strings"])?.ok_or_else(|| missing("cats_strings"))?;
    let numbers = Labels::of(call, &["cats_int64s"])?.ok_or_else(|| missing("cats_int64s"))?;
    Ok(vec![between(call, call.input(0)?, texts, numbers)?])
}

/// Numbers for texts, or texts for numbers.
fn between<'b>(call: &Call<'_, 'b>, x: Tensor<'b>, texts: Labels<'b>, numbers: Labels<'b>) -> Result<Tensor<'b>> {
    let to_numbers = x.dtype()? == DType::U8;
    let (keys, values) = if to_numbers { (texts, numbers) } else { (numbers, texts) };
    let default = Labels::of(call, &[if to_numbers { "default_int64" } else { "default_string" }])?;
    let default = default.map_or_else(|| Labels::default_for(call, &values), Ok)?;
    replaced(x, keys, values, default)
}
