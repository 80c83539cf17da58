//! The official ONNX test data: fetched once from the package that ships it, then read from disk.

use std::path::{Path, PathBuf};

use crate::wheel;

/// The release that ships the node tests as data; later ones do not.
pub const ONNX_VERSION: &str = "1.22.0";

/// The folder that holds ONNX's own lists of operators.
pub fn definitions() -> Result<PathBuf, String> {
    Ok(wheel::unpacked("onnx", ONNX_VERSION, Path::new("onnx-data"))?.join("onnx/defs"))
}

/// The folder that holds `node`, `simple`, `pytorch-operator` and `pytorch-converted`, fetched if it is not there.
pub fn folder() -> Result<PathBuf, String> {
    let data = wheel::unpacked("onnx", ONNX_VERSION, Path::new("onnx-data"))?.join("onnx/backend/test/data");
    if data.join("node").is_dir() { Ok(data) } else { Err(format!("no node tests in {}", data.display())) }
}
