//! Small ONNX models made in memory, right or deliberately wrong.

use fuseline_frontend::onnx::Message;
use fuseline_frontend::onnx::schema::{
    AttributeProto, AttributeType, Dimension, DimensionValue, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    OptionalTypeProto, SequenceTypeProto, TensorProto, TensorShapeProto, TensorTypeProto, TypeProto, TypeValue,
    ValueInfoProto,
};

/// The code of f32 in ONNX files.
pub const FLOAT: i32 = 1;
/// The code of i64 in ONNX files.
pub const INT64: i32 = 7;

/// A model of one graph, standard operators of version 18.
pub fn model(graph: GraphProto) -> ModelProto {
    let opset = OperatorSetIdProto { domain: String::new(), version: 18 };
    ModelProto { ir_version: 8, graph: Some(graph), opset_import: vec![opset], ..ModelProto::default() }
}

/// A graph from its parts.
pub fn graph(inputs: Vec<ValueInfoProto>, nodes: Vec<NodeProto>, outputs: Vec<ValueInfoProto>) -> GraphProto {
    GraphProto { name: "g".into(), node: nodes, input: inputs, output: outputs, ..GraphProto::default() }
}

/// A node.
pub fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto {
        op_type: op.into(),
        name: format!("{op}_{}", outputs.first().unwrap_or(&"")),
        input: inputs.iter().map(|s| s.to_string()).collect(),
        output: outputs.iter().map(|s| s.to_string()).collect(),
        ..NodeProto::default()
    }
}

/// A node with more attributes.
pub fn with(mut node: NodeProto, attributes: Vec<AttributeProto>) -> NodeProto {
    node.attribute.extend(attributes);
    node
}

/// An integer attribute.
pub fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { name: name.into(), i, r#type: AttributeType::Int as i32, ..AttributeProto::default() }
}

/// A float attribute.
pub fn float(name: &str, f: f32) -> AttributeProto {
    AttributeProto { name: name.into(), f, r#type: AttributeType::Float as i32, ..AttributeProto::default() }
}

/// A region as an attribute.
pub fn region(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto {
        name: name.into(),
        g: Some(Box::new(graph)),
        r#type: AttributeType::Graph as i32,
        ..AttributeProto::default()
    }
}

/// A declared value; text sizes are symbols.
pub fn value(name: &str, elem_type: i32, sizes: &[&str]) -> ValueInfoProto {
    let dim = |text: &&str| {
        let value = match text.parse() {
            Ok(n) => DimensionValue::DimValue(n),
            Err(_) => DimensionValue::DimParam(text.to_string()),
        };
        Dimension { value: Some(value), ..Dimension::default() }
    };
    let shape = TensorShapeProto { dim: sizes.iter().map(dim).collect() };
    let tensor = TensorTypeProto { elem_type, shape: Some(shape) };
    let ty = TypeProto { value: Some(TypeValue::TensorType(tensor)), ..TypeProto::default() };
    ValueInfoProto { name: name.into(), r#type: Some(ty), ..ValueInfoProto::default() }
}

/// The same value as the elements of a sequence.
pub fn sequence(mut value: ValueInfoProto) -> ValueInfoProto {
    let elem_type = value.r#type.take().map(Box::new);
    let sequence = TypeValue::SequenceType(SequenceTypeProto { elem_type });
    value.r#type = Some(TypeProto { value: Some(sequence), ..TypeProto::default() });
    value
}

/// The same value, which may be left out.
pub fn optional(mut value: ValueInfoProto) -> ValueInfoProto {
    let elem_type = value.r#type.take().map(Box::new);
    let optional = TypeValue::OptionalType(OptionalTypeProto { elem_type });
    value.r#type = Some(TypeProto { value: Some(optional), ..TypeProto::default() });
    value
}

/// A vector of integers as an initializer.
pub fn ints(name: &str, values: &[i64]) -> TensorProto {
    TensorProto {
        name: name.into(),
        dims: vec![values.len() as i64],
        data_type: INT64,
        int64_data: values.to_vec(),
        ..TensorProto::default()
    }
}

/// The bytes of a model file.
pub fn bytes(model: &ModelProto) -> Vec<u8> {
    model.encode_to_vec()
}
