//! What a model declares of its inputs and outputs.

use std::collections::HashSet;
use std::fmt;

use fuseline::error::{Error, Result};
use fuseline::tensor::{DType, Dim, Shape};
use indexmap::IndexMap;

use super::super::data_type::{STRING, data_type_name, dtype_of_code};
use super::super::schema::{
    Dimension, DimensionValue, GraphProto, TensorProto, TensorTypeProto, TypeProto, TypeValue, ValueInfoProto,
};
use super::datum::{Datum, Kind, Operand};
use super::open_dim;

/// An input or output as the model declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// its name
    pub name: String,
    /// its element type; u8 where it is text
    pub dtype: DType,
    /// its shape, or that of its elements; `None` where not even the number of axes is declared. Texts have one axis more: the last one
    /// holds their bytes
    pub shape: Option<Shape>,
    /// whether its elements are strings, which are bytes in UTF-8, filled up with zeros
    pub is_text: bool,
    /// whether it is one tensor
    pub form: Form,
}

/// What an input or output is made of. Outside, the elements of a sequence are tensors of their own, called by its name and their
/// place (`x.0`, `x.1` …); what is not there has no tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Form {
    /// one tensor
    #[default]
    Tensor,
    /// tensors in order
    Sequence,
    /// a tensor, or nothing
    Optional,
    /// tensors in order, or nothing
    OptionalSequence,
    /// rows of maps that have the same keys: one tensor, with a column for each key
    Table,
    /// an output of which the model does not say what it is; its element type means nothing
    Undeclared,
}

impl Form {
    /// Whether it is made of elements.
    pub fn is_sequence(self) -> bool {
        matches!(self, Form::Sequence | Form::OptionalSequence)
    }

    /// Whether it may be left out.
    pub fn is_optional(self) -> bool {
        matches!(self, Form::Optional | Form::OptionalSequence)
    }

    /// The type of the whole, as ONNX writes it, for the type of its tensors.
    pub fn of(self, tensor: &str) -> String {
        match self {
            Form::Tensor => tensor.to_string(),
            Form::Sequence => format!("seq({tensor})"),
            Form::Optional => format!("optional({tensor})"),
            Form::OptionalSequence => format!("optional(seq({tensor}))"),
            Form::Table => format!("seq(map({tensor}))"),
            Form::Undeclared => "undeclared".to_string(),
        }
    }
}

/// How an element of a sequence is called outside.
pub(super) fn part_name(name: &str, place: usize) -> String {
    format!("{name}.{place}")
}

impl Port {
    /// What its elements are.
    pub(super) fn kind(&self) -> Kind {
        if self.is_text { Kind::Text } else { Kind::Number(self.dtype) }
    }

    /// Its type, with sizes as they are to be shown.
    pub fn type_text(&self, show: impl Fn(&Dim) -> Dim) -> String {
        let axes = self.shape.as_ref().map(|shape| &shape.dims()[..shape.rank() - usize::from(self.is_text)]);
        let shape = match axes {
            Some(dims) => dims.iter().map(show).collect::<Shape>().to_string(),
            None => "[…]".into(),
        };
        self.form.of(&format!("{}{shape}", self.kind()))
    }

    /// How the tensor at a place is called outside.
    pub fn part_name(&self, place: usize) -> String {
        if self.form.is_sequence() { part_name(&self.name, place) } else { self.name.clone() }
    }

    /// Whether a tensor that is called so is the input or output, or an element of it.
    pub fn has(&self, tensor: &str) -> bool {
        self.place_of(tensor).is_some()
    }

    /// The place of a tensor among those that this is made of.
    fn place_of(&self, tensor: &str) -> Option<usize> {
        if !self.form.is_sequence() {
            return (tensor == self.name).then_some(0);
        }
        let place = tensor.strip_prefix(&self.name)?.strip_prefix('.')?.parse().ok()?;
        (part_name(&self.name, place) == tensor).then_some(place)
    }

    /// How many tensors at some places it is made of; these must follow one another.
    fn count_parts(&self, places: &HashSet<usize>) -> Result<usize> {
        match (0..places.len()).find(|place| !places.contains(place)) {
            Some(missing) => {
                let name = part_name(&self.name, missing);
                Err(Error::invalid(format!("\"{name}\" is missing among the elements of \"{}\"", self.name)))
            }
            None => Ok(places.len()),
        }
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.type_text(|dim| dim.clone()))
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
        let constants: HashSet<&str> = constants(graph).map(|(name, _)| name).collect();
        let (defaults, given): (Vec<_>, Vec<_>) = graph.input.iter().partition(|i| constants.contains(i.name.as_str()));
        let ports = |list: Vec<&ValueInfoProto>| list.into_iter().map(port).collect::<Result<Vec<Port>>>();
        let (inputs, defaults) = (ports(given)?, ports(defaults)?);
        if let Some(port) = inputs.iter().chain(&defaults).find(|port| port.form == Form::Table) {
            return Err(Error::unsupported("maps as inputs").at(format!("\"{}\"", port.name)));
        }
        let outputs = graph.output.iter().map(output_port).collect::<Result<_>>()?;
        Ok(Signature { inputs, defaults, outputs })
    }

    /// Of inputs that are sequences or may be left out: how many of these tensors they are made of.
    pub fn parts<'t>(&self, tensors: impl Iterator<Item = &'t str>) -> Result<IndexMap<String, usize>> {
        let several = self.inputs.iter().filter(|port| port.form != Form::Tensor);
        let mut several: IndexMap<&str, (&Port, HashSet<usize>)> =
            several.map(|port| (port.name.as_str(), (port, HashSet::new()))).collect();
        if several.is_empty() {
            return Ok(IndexMap::new());
        }
        for tensor in tensors {
            // It is the whole, or an element: `x.3` of `x`.
            let wholes = [Some(tensor), tensor.rsplit_once('.').map(|(name, _)| name)];
            for whole in wholes.into_iter().flatten() {
                if let Some((port, places)) = several.get_mut(whole) {
                    places.extend(port.place_of(tensor));
                }
            }
        }
        let counts = several.into_iter().map(|(name, (port, places))| Ok((name.into(), port.count_parts(&places)?)));
        counts.collect()
    }
}

/// The names of a graph's constants, each with its tensor; none of those that are stored by their elements which are not zero.
pub(super) fn constants(graph: &GraphProto) -> impl Iterator<Item = (&str, Option<&TensorProto>)> {
    let sparse = graph.sparse_initializer.iter().filter_map(|sparse| sparse.values.as_ref());
    let dense = graph.initializer.iter().map(|tensor| (tensor.name.as_str(), Some(tensor)));
    dense.chain(sparse.map(|tensor| (tensor.name.as_str(), None)))
}

/// Refuses a constant that is declared as an input of another type.
pub(super) fn check_constant(info: &ValueInfoProto, constant: &TensorProto) -> Result<()> {
    let Some(TypeValue::TensorType(declared)) = info.r#type.as_ref().and_then(|ty| ty.value.as_ref()) else {
        return Ok(());
    };
    let place = || format!("input \"{}\"", info.name);
    if declared.elem_type != constant.data_type && declared.elem_type != 0 {
        let [declared, own] =
            [declared.elem_type, constant.data_type].map(|code| data_type_name(code).unwrap_or("an unknown type"));
        return Err(
            Error::invalid(format!("the input is of type {declared}, and its initializer of {own}")).at(place())
        );
    }
    let Some(shape) = &declared.shape else { return Ok(()) };
    let fits = |(dim, size): (&Dimension, &i64)| match dim.value {
        Some(DimensionValue::DimValue(n)) => n == *size || n == -1,
        _ => true,
    };
    if shape.dim.len() != constant.dims.len() || !shape.dim.iter().zip(&constant.dims).all(fits) {
        let port = port(info)?;
        let sizes = &constant.dims;
        return Err(
            Error::invalid(format!("the input is {port}, and its initializer has the sizes {sizes:?}")).at(place())
        );
    }
    Ok(())
}

/// Refuses an output that is of another type than the one that is declared. Sizes are not looked at: exporters are often wrong about
/// those, and nobody relies on them.
pub(super) fn check_output(info: &ValueInfoProto, value: &Operand<'_>) -> Result<()> {
    let port = match output_port(info) {
        Ok(port) if !value.is_poisoned() => port,
        _ => return Ok(()),
    };
    let own = match value {
        Datum::Tensor(tensor) => Kind::Number(tensor.dtype()?),
        Datum::Text(_) => Kind::Text,
        Datum::Sequence(sequence) => sequence.kind,
        Datum::Nothing => return Ok(()),
    };
    let is_open = matches!(port.form, Form::Undeclared | Form::Table);
    let is_sequence = matches!(value, Datum::Sequence(_));
    if !is_open && (own != port.kind() || is_sequence != port.form.is_sequence()) {
        let form = if is_sequence { Form::Sequence } else { Form::Tensor };
        let own = form.of(&own.to_string());
        return Err(Error::invalid(format!(
            "declared as {}, and what the model makes is {own}",
            port.type_text(Dim::clone)
        )));
    }
    Ok(())
}

/// Whether a size has a name that can tell it apart: some exporters write "?" for every size that is open.
fn is_name(text: &str) -> bool {
    text.chars().any(char::is_alphanumeric)
}

/// The declaration of an output, whose type may be left to what the model makes.
pub(super) fn output_port(info: &ValueInfoProto) -> Result<Port> {
    let is_open = match info.r#type.as_ref().and_then(|ty| ty.value.as_ref()) {
        None => true,
        Some(TypeValue::TensorType(tensor)) => tensor.elem_type == 0,
        Some(_) => false,
    };
    if is_open {
        let name = info.name.clone();
        return Ok(Port { name, dtype: DType::F32, shape: None, is_text: false, form: Form::Undeclared });
    }
    port(info)
}

/// The declaration of one input or output.
pub(super) fn port(info: &ValueInfoProto) -> Result<Port> {
    let place = || format!("\"{}\"", info.name);
    let (form, tensor) = form(info.r#type.as_ref()).map_err(|e| e.at(place()))?;
    let is_text = tensor.elem_type == STRING;
    let dtype = if is_text { DType::U8 } else { dtype_of_code(tensor.elem_type).map_err(|e| e.at(place()))? };
    let mut shape = None;
    // What a map declares is the shape of one value.
    if let Some(declared) = tensor.shape.as_ref().filter(|_| form != Form::Table) {
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
        if is_text {
            dims.push(open_dim(&info.name, dims.len()));
        }
        let dims = Shape::from(dims);
        dims.check().map_err(|e| e.at(place()))?;
        shape = Some(dims);
    }
    Ok(Port { name: info.name.clone(), dtype, shape, is_text, form })
}

/// What a type is made of, and the type of its tensors.
fn form(ty: Option<&TypeProto>) -> Result<(Form, &TensorTypeProto)> {
    match ty.and_then(|t| t.value.as_ref()) {
        Some(TypeValue::TensorType(tensor)) => Ok((Form::Tensor, tensor)),
        Some(TypeValue::SequenceType(sequence)) => match form(sequence.elem_type.as_deref())? {
            (Form::Tensor, tensor) => Ok((Form::Sequence, tensor)),
            (Form::Table, tensor) => Ok((Form::Table, tensor)),
            (other, _) => Err(Error::unsupported(format!("sequences of the type {}", other.of("tensor")))),
        },
        Some(TypeValue::OptionalType(optional)) => match form(optional.elem_type.as_deref())? {
            (Form::Tensor, tensor) => Ok((Form::Optional, tensor)),
            (Form::Sequence, tensor) => Ok((Form::OptionalSequence, tensor)),
            (other, _) => Err(Error::unsupported(format!("optional values of the type {}", other.of("tensor")))),
        },
        Some(TypeValue::MapType(map)) => match form(map.value_type.as_deref())? {
            (Form::Tensor, tensor) => Ok((Form::Table, tensor)),
            (other, _) => Err(Error::unsupported(format!("maps to the type {}", other.of("tensor")))),
        },
        Some(TypeValue::SparseTensorType(_)) => Err(Error::unsupported("sparse tensors")),
        Some(TypeValue::OpaqueType(_)) => Err(Error::unsupported("opaque values")),
        None => Err(Error::invalid("no type is declared")),
    }
}
