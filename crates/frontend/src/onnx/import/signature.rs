//! What a model declares of its inputs and outputs.

use std::fmt;

use fuseline::error::{Error, Result};
use fuseline::tensor::{DType, Dim, Shape};
use rustc_hash::FxHashSet;

use super::super::data_type::dtype_of_code;
use super::super::schema::{DimensionValue, GraphProto, TypeValue, ValueInfoProto};
use super::open_dim;

/// An input or output as the model declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// its name
    pub name: String,
    /// its element type
    pub dtype: DType,
    /// its shape; `None` where not even the number of axes is declared
    pub shape: Option<Shape>,
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shape {
            Some(shape) => write!(f, "{}: {}{shape}", self.name, self.dtype),
            None => write!(f, "{}: {}[…]", self.name, self.dtype),
        }
    }
}

/// The inputs and outputs of a model, in its order.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Signature {
    /// what the caller provides; constants that older models list here are left out
    pub inputs: Vec<Port>,
    /// what the caller may provide: the model has values for these
    pub defaults: Vec<Port>,
    /// what comes back
    pub outputs: Vec<Port>,
}

impl Signature {
    /// The signature of a graph.
    pub fn of(graph: &GraphProto) -> Result<Signature> {
        let constants: FxHashSet<&str> = graph.initializer.iter().map(|t| t.name.as_str()).collect();
        let (defaults, given): (Vec<_>, Vec<_>) = graph.input.iter().partition(|i| constants.contains(i.name.as_str()));
        let ports = |list: Vec<&ValueInfoProto>| list.into_iter().map(port).collect::<Result<Vec<Port>>>();
        Ok(Signature {
            inputs: ports(given)?,
            defaults: ports(defaults)?,
            outputs: ports(graph.output.iter().collect())?,
        })
    }
}

/// Whether a size has a name that can tell it apart: some exporters write "?" for every size that is open.
fn is_name(text: &str) -> bool {
    text.chars().any(char::is_alphanumeric)
}

/// The declaration of one input or output.
pub(super) fn port(info: &ValueInfoProto) -> Result<Port> {
    let place = || format!("\"{}\"", info.name);
    let tensor = match info.r#type.as_ref().and_then(|t| t.value.as_ref()) {
        Some(TypeValue::TensorType(tensor)) => tensor,
        Some(TypeValue::SequenceType(_)) => return Err(Error::unsupported("sequences").at(place())),
        Some(TypeValue::OptionalType(_)) => return Err(Error::unsupported("optional values").at(place())),
        Some(TypeValue::MapType(_)) => return Err(Error::unsupported("maps").at(place())),
        Some(TypeValue::SparseTensorType(_)) => return Err(Error::unsupported("sparse tensors").at(place())),
        Some(TypeValue::OpaqueType(_)) => return Err(Error::unsupported("opaque values").at(place())),
        None => return Err(Error::invalid("no type is declared").at(place())),
    };
    let dtype = dtype_of_code(tensor.elem_type).map_err(|e| e.at(place()))?;
    let mut shape = None;
    if let Some(declared) = &tensor.shape {
        let mut dims = Vec::with_capacity(declared.dim.len());
        for (axis, dim) in declared.dim.iter().enumerate() {
            dims.push(match &dim.value {
                Some(DimensionValue::DimValue(n)) if *n >= 0 => Dim::int(*n),
                Some(DimensionValue::DimParam(name)) if is_name(name) => Dim::named(name),
                // Some exporters write −1 for a size that is open.
                Some(DimensionValue::DimValue(-1)) | Some(DimensionValue::DimParam(_)) | None => {
                    open_dim(&info.name, axis)
                }
                Some(DimensionValue::DimValue(n)) => {
                    return Err(Error::invalid(format!("axis {axis} has the size {n}")).at(place()));
                }
            });
        }
        let dims = Shape::from(dims);
        dims.check().map_err(|e| e.at(place()))?;
        shape = Some(dims);
    }
    Ok(Port { name: info.name.clone(), dtype, shape })
}
