//! Opening a model: mapping its file, decoding it, and telling what is wrong when it cannot be decoded.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use fuseline::error::{Context, Error, Kind, Result};
use fuseline::tensor::Literal;
use prost::{DecodeError, Message};

use super::external::{DataFiles, location};
use super::import::{Form, Port};
use super::schema::{ModelProto, OptionalProto, SequenceProto, SparseTensorProto, TensorProto};
use super::sparse::dense;
use super::tensor::literal;
use crate::Tensors;
use crate::mapping::map_file;

/// A decoded model with a graph, together with the files that its tensors lie in.
///
/// The decoder follows messages at most 100 deep. A subgraph is three deep (attribute, graph, node), so that some 30
/// subgraphs may lie inside one another.
#[derive(Debug)]
pub struct ModelFile {
    /// the decoded model; its bytes fields are slices of the file
    pub model: ModelProto,
    name: Arc<str>,
    files: DataFiles,
}

impl ModelFile {
    /// Maps and decodes the file. Its weights stay in the file until they are read.
    pub fn open(path: impl AsRef<Path>) -> Result<ModelFile> {
        let path = path.as_ref();
        let name: Arc<str> = path.to_string_lossy().into();
        let open = || {
            let bytes = map_file(path)?;
            Ok(ModelFile { model: decode_model(&bytes)?, name: name.clone(), files: DataFiles::of_file(path, bytes) })
        };
        open().at(|| name.to_string())
    }

    /// Decodes a model that is held in memory, called `name` in messages. It cannot have external data.
    pub fn from_bytes(bytes: impl Into<Bytes>, name: &str) -> Result<ModelFile> {
        let bytes = bytes.into();
        let model = decode_model(&bytes).at(|| name)?;
        Ok(ModelFile { model, name: name.into(), files: DataFiles::of_bytes(bytes) })
    }

    /// The path or name that the model was opened with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The folder of the file, in which external data is looked for.
    pub fn folder(&self) -> Option<&Path> {
        self.files.folder()
    }

    /// The bytes of its files: itself, and those beside it in which weights lie.
    pub fn bytes(&self) -> u64 {
        let weights = self.model.graph.iter().flat_map(|graph| {
            let sparse = graph.sparse_initializer.iter();
            graph.initializer.iter().chain(sparse.flat_map(|sparse| sparse.values.iter().chain(&sparse.indices)))
        });
        let locations: HashSet<&str> = weights.filter_map(|tensor| location(&tensor.external_data)).collect();
        self.files.bytes(locations.into_iter())
    }

    /// The literal that a tensor of this model describes. Raw and external data are shared with the file.
    pub fn literal(&self, tensor: &TensorProto) -> Result<Literal> {
        literal(tensor, &self.files)
    }

    /// The literal that a tensor describes by its elements that are not zero; of at most so many bytes.
    pub fn dense(&self, sparse: &SparseTensorProto, most_bytes: usize) -> Result<Literal> {
        dense(sparse, &self.files, most_bytes)
    }
}

/// Reads a file that holds one `TensorProto`, such as `test_data_set_0/input_0.pb`: its name and its literal.
pub fn read_tensor(path: impl AsRef<Path>) -> Result<(String, Literal)> {
    let path = path.as_ref();
    let read = || {
        let bytes = map_file(path)?;
        let tensor: TensorProto = decode(&bytes)?;
        let literal = literal(&tensor, &DataFiles::of_file(path, bytes))?;
        Ok((tensor.name, literal))
    };
    read().at(|| path.to_string_lossy())
}

/// Reads a file that holds the value of an input or output, such as `test_data_set_0/input_0.pb`: its tensors, by the names that they
/// have outside.
pub fn read_value(path: impl AsRef<Path>, port: &Port) -> Result<Tensors> {
    let path = path.as_ref();
    let read = || {
        let bytes = map_file(path)?;
        let sequence = match port.form {
            Form::Tensor | Form::Undeclared => vec![decode(&bytes)?],
            Form::Table => return Err(Error::unsupported("maps in files")),
            Form::Sequence => decode::<SequenceProto>(&bytes)?.tensor_values,
            Form::Optional => decode::<OptionalProto>(&bytes)?.tensor_value.into_iter().collect(),
            Form::OptionalSequence => {
                let value = decode::<OptionalProto>(&bytes)?.sequence_value;
                value.map(|sequence| sequence.tensor_values).unwrap_or_default()
            }
        };
        let files = DataFiles::of_file(path, bytes);
        let named = sequence.iter().enumerate();
        named.map(|(k, tensor)| Ok((port.part_name(k), literal(tensor, &files)?))).collect::<Result<Tensors>>()
    };
    read().at(|| path.to_string_lossy())
}

fn decode_model(bytes: &Bytes) -> Result<ModelProto> {
    let model: ModelProto = decode(bytes)?;
    if model.graph.is_none() {
        return Err(text_error(bytes).unwrap_or_else(|| Error::invalid("not an ONNX model: it has no graph")));
    }
    Ok(model)
}

fn decode<M: Message + Default>(bytes: &Bytes) -> Result<M> {
    if bytes.is_empty() {
        return Err(Error::invalid("the file is empty"));
    }
    // Decoding through `&mut` leaves the bytes that were not read: they give the position of an error.
    let mut rest = bytes.clone();
    M::decode(&mut rest).map_err(|error| decode_error(&error, bytes, bytes.len() - rest.len()))
}

/// Tells what the decoder stumbled over at `position`. Its error has no parts, only a text: the path of fields
/// (`GraphProto.node: ModelProto.graph: `, innermost first) and the cause.
fn decode_error(error: &DecodeError, bytes: &Bytes, position: usize) -> Error {
    if let Some(error) = text_error(bytes) {
        return error;
    }
    let text = error.to_string();
    let mut cause = text.strip_prefix("failed to decode Protobuf message: ").unwrap_or(&text);
    let mut fields = Vec::new();
    while let Some((field, rest)) = cause.split_once(": ").filter(|(field, _)| field.contains("Proto.")) {
        fields.insert(0, field);
        cause = rest;
    }
    let (kind, cause) = match cause {
        "buffer underflow" => {
            (Kind::Invalid, "a field is longer than the rest of the file, which may be cut off".into())
        }
        "recursion limit reached" => (Kind::Limit, "messages are nested more than 100 deep".into()),
        _ => (Kind::Invalid, format!("not an ONNX model, or a damaged one: {cause}")),
    };
    let field = if fields.is_empty() { String::new() } else { format!(" in {}", fields.join(" > ")) };
    Error::new(kind, format!("{cause} (at byte {position} of {}{field})", bytes.len()))
}

/// The error for a file that is text, when it looks like text.
fn text_error(bytes: &Bytes) -> Option<Error> {
    let head = &bytes[..bytes.len().min(512)];
    if !head.iter().all(|b| matches!(b, b'\t' | b'\n' | b'\r' | 0x20..=0x7e | 0x80..)) {
        return None;
    }
    Some(Error::invalid(if head.starts_with(b"version https://git-lfs") {
        "the file is a Git LFS pointer, not the model itself: fetch it with `git lfs pull`"
    } else {
        "the file is text, not a binary ONNX model"
    }))
}

#[cfg(test)]
mod tests {
    use fuseline::tensor::Source;

    use super::super::schema::*;
    use super::*;

    /// The model `test_abs` of the ONNX node tests, written by another implementation of the schema.
    const ABS: &[u8] = b"\x08\x07\x12\x0cbackend-test:I\
        \x0a\x0b\x0a\x01x\x12\x01y\"\x03Abs\x12\x08test_abs\
        Z\x17\x0a\x01x\x12\x12\x0a\x10\x08\x01\x12\x0c\x0a\x02\x08\x03\x0a\x02\x08\x04\x0a\x02\x08\x05\
        b\x17\x0a\x01y\x12\x12\x0a\x10\x08\x01\x12\x0c\x0a\x02\x08\x03\x0a\x02\x08\x04\x0a\x02\x08\x05\
        B\x04\x0a\x00\x10\x0d";

    fn message(bytes: impl Into<Bytes>) -> String {
        ModelFile::from_bytes(bytes, "m").unwrap_err().to_string()
    }

    /// A model with one initializer of these bytes.
    fn model_with(raw_data: impl Into<Bytes>) -> ModelProto {
        let raw_data = raw_data.into();
        let dims = vec![raw_data.len() as i64];
        let tensor = TensorProto { data_type: 2, dims, name: "w".into(), raw_data, ..Default::default() };
        let graph = GraphProto { initializer: vec![tensor], ..Default::default() };
        ModelProto { ir_version: 10, graph: Some(graph), ..Default::default() }
    }

    #[test]
    fn a_real_model_is_understood() {
        let file = ModelFile::from_bytes(ABS, "abs").unwrap();
        let model = &file.model;
        assert_eq!((model.ir_version, model.producer_name.as_str()), (7, "backend-test"));
        assert_eq!((model.opset_import.len(), model.opset_import[0].version), (1, 13));
        let graph = model.graph.as_ref().unwrap();
        let node = &graph.node[0];
        assert_eq!((node.op_type.as_str(), node.input[0].as_str(), node.output[0].as_str()), ("Abs", "x", "y"));
        let Some(TypeValue::TensorType(ty)) = &graph.output[0].r#type.as_ref().unwrap().value else { panic!() };
        let dims: Vec<_> = ty.shape.as_ref().unwrap().dim.iter().map(|dim| dim.value.clone().unwrap()).collect();
        assert_eq!(dims, [3, 4, 5].map(DimensionValue::DimValue));
        assert_eq!((file.name(), file.folder()), ("abs", None));
    }

    #[test]
    fn raw_data_is_a_slice_of_the_mapping() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        let encoded = model_with(vec![9; 1000]).encode_to_vec();
        std::fs::write(&path, &encoded).unwrap();
        let file = ModelFile::open(&path).unwrap();
        assert_eq!(file.folder(), Some(folder.path()));
        let tensor = &file.model.graph.as_ref().unwrap().initializer[0];
        let literal = file.literal(tensor).unwrap();
        assert_eq!(literal.bytes().as_ptr(), tensor.raw_data.as_ptr());
        let offset = encoded.windows(1000).position(|window| window.iter().all(|b| *b == 9)).unwrap() as u64;
        assert_eq!(literal.source(), Some(&Source { file: path.to_str().unwrap().into(), offset }));
        // The literal keeps the mapping alive.
        drop(file);
        assert!(literal.bytes().iter().all(|b| *b == 9));
    }

    #[test]
    fn bytes_in_memory_have_no_source_and_are_shared() {
        let encoded: Bytes = model_with(vec![9; 1000]).encode_to_vec().into();
        let file = ModelFile::from_bytes(encoded.clone(), "m").unwrap();
        let literal = file.literal(&file.model.graph.as_ref().unwrap().initializer[0]).unwrap();
        assert_eq!(literal.source(), None);
        assert!(encoded.as_ptr_range().contains(&literal.bytes().as_ptr()));
    }

    #[test]
    fn what_is_no_model_is_told() {
        assert_eq!(message(Bytes::new()), "invalid input: m: the file is empty");
        for text in ["ir_version: 7\nproducer_name: \"x\"\n", "{\"irVersion\": 7}", "<html>", "hello", "\n"] {
            assert_eq!(message(text), "invalid input: m: the file is text, not a binary ONNX model", "{text}");
        }
        assert!(message("version https://git-lfs.github.com/spec/v1\noid sha256:0").contains("Git LFS pointer"));
        assert_eq!(message(&b"\x08\x07"[..]), "invalid input: m: not an ONNX model: it has no graph");
        assert!(message(&b"\x7fELF\x02\x01\x01\0\0\0"[..]).contains("not an ONNX model"));
    }

    #[test]
    fn errors_name_field_and_position() {
        assert_eq!(
            message(&ABS[..60]),
            "invalid input: m: a field is longer than the rest of the file, which may be cut off \
             (at byte 18 of 60 in ModelProto.graph)"
        );
        let mut damaged = ABS.to_vec();
        damaged[0x1d] = 0xff;
        assert_eq!(
            message(damaged),
            "invalid input: m: not an ONNX model, or a damaged one: invalid string value: data is not UTF-8 encoded \
             (at byte 31 of 97 in ModelProto.graph > GraphProto.node > NodeProto.op_type)"
        );
        // Every truncation is an error, and so is or is not every damaged byte; none panics.
        for end in 0..ABS.len() - 6 {
            assert!(ModelFile::from_bytes(&ABS[..end], "m").is_err(), "{end}");
        }
        for (k, byte) in (0..ABS.len()).flat_map(|k| (0..=255).map(move |byte| (k, byte))) {
            let mut damaged = ABS.to_vec();
            damaged[k] = byte;
            let _ = ModelFile::from_bytes(damaged, "m");
        }
    }

    #[test]
    fn nesting_is_limited() {
        let nested = |depth: usize| {
            let mut graph = GraphProto::default();
            for _ in 0..depth {
                let attribute = AttributeProto { g: Some(Box::new(graph)), ..Default::default() };
                let node = NodeProto { attribute: vec![attribute], ..Default::default() };
                graph = GraphProto { node: vec![node], ..Default::default() };
            }
            ModelProto { graph: Some(graph), ..Default::default() }.encode_to_vec()
        };
        assert!(ModelFile::from_bytes(nested(30), "m").is_ok());
        let error = ModelFile::from_bytes(nested(40), "m").unwrap_err();
        assert_eq!(error.kind(), Kind::Limit, "{error}");
    }

    #[test]
    fn strings_of_attributes_need_not_be_text() {
        let s = Bytes::from_static(&[0xff, 0xfe]);
        let attribute = AttributeProto { s: s.clone(), strings: vec![s.clone()], doc_string: s, ..Default::default() };
        let node = NodeProto { attribute: vec![attribute.clone()], ..Default::default() };
        let graph = GraphProto { node: vec![node], ..Default::default() };
        let encoded = ModelProto { graph: Some(graph), ..Default::default() }.encode_to_vec();
        let model = ModelFile::from_bytes(encoded, "m").unwrap().model;
        assert_eq!(model.graph.unwrap().node[0].attribute[0], attribute);
    }

    #[test]
    fn tensors_have_files_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("input_0.pb");
        let tensor = TensorProto { data_type: 7, int64_data: vec![5], name: "x".into(), ..Default::default() };
        std::fs::write(&path, tensor.encode_to_vec()).unwrap();
        let (name, literal) = read_tensor(&path).unwrap();
        assert_eq!((name.as_str(), literal.to_ints()), ("x", vec![5]));
        assert!(read_tensor(folder.path().join("missing")).is_err());
    }
}
