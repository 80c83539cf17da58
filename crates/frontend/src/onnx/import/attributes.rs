//! Attributes of a node, free of protobuf.

use fuseline::error::{Error, Result};
use fuseline::ops::named::{Attribute, Attributes};

use super::super::ModelFile;
use super::super::data_type::{STRING, dtype_of_code, dtype_of_name};
use super::super::schema::{AttributeProto, AttributeType, NodeProto};

/// Attributes whose integer is the code of an element type; the core gets its name.
const DTYPE_ATTRIBUTES: &[&str] =
    &["to", "dtype", "stash_type", "output_dtype", "softmax_precision", "output_datatype", "precision"];

/// The attributes of a node; regions are not among them. References to the attributes of a function are resolved by
/// `call`, and left out where the call does not give them.
pub(super) fn attributes(node: &NodeProto, call: Option<&Attributes>, file: &ModelFile) -> Result<Attributes> {
    let mut attributes = Attributes::new();
    for proto in &node.attribute {
        let value = if !proto.ref_attr_name.is_empty() {
            match call.and_then(|c| c.get(&proto.ref_attr_name)) {
                Some(given) => given.clone(),
                None => continue,
            }
        } else {
            match attribute(proto, file).map_err(|e| e.at(format!("attribute \"{}\"", proto.name)))? {
                Some(value) => value,
                None => continue,
            }
        };
        if attributes.insert(proto.name.clone(), value).is_some() {
            return Err(Error::invalid(format!("attribute \"{}\" is given twice", proto.name)));
        }
    }
    Ok(attributes)
}

/// One attribute; `None` for a region, and for an element type that is said to be undefined (code 0).
pub(super) fn attribute(proto: &AttributeProto, file: &ModelFile) -> Result<Option<Attribute>> {
    let text = |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).map_err(|_| Error::invalid("the text is not UTF-8"))?;
        Ok::<String, Error>(text.to_string())
    };
    let kind = AttributeType::try_from(proto.r#type).unwrap_or(AttributeType::Undefined);
    Ok(Some(match kind {
        AttributeType::Int if DTYPE_ATTRIBUTES.contains(&proto.name.as_str()) => {
            if proto.i == 0 {
                return Ok(None);
            }
            if proto.name == "to" && proto.i == i64::from(STRING) {
                return Ok(Some(Attribute::Str(super::text::TEXT.into())));
            }
            let code = i32::try_from(proto.i).map_err(|_| Error::invalid(format!("{} is no element type", proto.i)))?;
            Attribute::Str(dtype_of_code(code)?.name().to_string())
        }
        AttributeType::Int => Attribute::Int(proto.i),
        AttributeType::Float => Attribute::Float(f64::from(proto.f)),
        AttributeType::String => {
            let text = text(&proto.s)?;
            // The first version of Cast names the type.
            let named = DTYPE_ATTRIBUTES.contains(&proto.name.as_str()).then(|| dtype_of_name(&text)).flatten();
            Attribute::Str(named.map_or(text, |dtype| dtype.name().to_string()))
        }
        AttributeType::Ints => Attribute::Ints(proto.ints.clone()),
        AttributeType::Floats => Attribute::Floats(proto.floats.iter().map(|x| f64::from(*x)).collect()),
        AttributeType::Strings => Attribute::Strs(proto.strings.iter().map(|s| text(s)).collect::<Result<_>>()?),
        AttributeType::Tensor => {
            let tensor = proto.t.as_deref().ok_or_else(|| Error::invalid("the tensor is missing"))?;
            let literal = file.literal(tensor)?;
            if tensor.data_type == STRING { Attribute::Strs(literal.to_texts()?) } else { Attribute::Tensor(literal) }
        }
        AttributeType::Graph | AttributeType::Graphs => return Ok(None),
        AttributeType::Undefined => return Err(Error::invalid("the attribute has no type")),
        AttributeType::Tensors
        | AttributeType::SparseTensor
        | AttributeType::SparseTensors
        | AttributeType::TypeProto
        | AttributeType::TypeProtos => return Err(Error::unsupported(format!("attributes of the kind {kind:?}"))),
    }))
}
