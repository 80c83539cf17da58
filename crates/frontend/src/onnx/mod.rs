//! ONNX files: the protobuf schema, opening a model, and its tensors as literals.
//!
//! Comes in: the bytes of a model and the files beside it. Goes out: [`ModelFile`] with the decoded [`schema`], and
//! literals that borrow the file. [`import`] makes graphs of them.

mod data_type;
mod external;
mod file;
pub mod import;
pub mod schema;
mod seeded;
mod sparse;
mod tensor;

pub use data_type::{data_type_code, data_type_name, dtype_of_code};
pub use file::{ModelFile, read_tensor, read_value};
/// Encoding and decoding of the types in [`schema`].
pub use prost::Message;
