//! Reads the models and data of the ONNX node tests, where `ONNX_NODE_TESTS` names their folder
//! (`onnx/backend/test/data/node` in the Python package); without it there is nothing to do.

use std::path::{Path, PathBuf};

use fuseline::error::Kind;
use fuseline_frontend::onnx::schema::{GraphProto, TensorProto, TypeValue};
use fuseline_frontend::onnx::{ModelFile, dtype_of_code, read_tensor};

#[test]
fn node_tests_are_read() {
    let Some(folder) = std::env::var_os("ONNX_NODE_TESTS") else { return };
    let (mut models, mut literals, mut unsupported) = (0, 0, 0);
    for case in entries(Path::new(&folder)) {
        let path = case.join("model.onnx");
        let file = ModelFile::open(&path).unwrap();
        models += 1;
        let graph = file.model.graph.as_ref().unwrap();
        for tensor in tensors(graph) {
            match file.literal(tensor) {
                Ok(_) => literals += 1,
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Unsupported, "{path:?}: {error}");
                    unsupported += 1;
                }
            }
        }
        for (path, literal) in read_data(&case, graph) {
            match literal {
                Ok(()) => literals += 1,
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Unsupported, "{path:?}: {error}");
                    unsupported += 1;
                }
            }
        }
    }
    println!("{models} models, {literals} literals, {unsupported} of types that are not supported");
    assert!(models > 0, "the folder of ONNX_NODE_TESTS holds no models");
}

/// Every tensor of a graph and of its subgraphs.
fn tensors(graph: &GraphProto) -> Vec<&TensorProto> {
    let mut found: Vec<_> = graph.initializer.iter().collect();
    for attribute in graph.node.iter().flat_map(|node| &node.attribute) {
        found.extend(attribute.t.as_deref());
        found.extend(attribute.g.as_deref().into_iter().flat_map(tensors));
    }
    found
}

/// The data files of inputs and outputs that are tensors, each read and compared with the declared element type.
fn read_data(case: &Path, graph: &GraphProto) -> Vec<(PathBuf, fuseline::error::Result<()>)> {
    let mut results = Vec::new();
    for set in entries(case).into_iter().filter(|path| path.is_dir()) {
        for (side, values) in [("input", &graph.input), ("output", &graph.output)] {
            for (k, value) in values.iter().enumerate() {
                let path = set.join(format!("{side}_{k}.pb"));
                let ty = value.r#type.as_ref().and_then(|ty| ty.value.as_ref());
                let Some(TypeValue::TensorType(ty)) = ty.filter(|_| path.exists()) else { continue };
                let read = read_tensor(&path);
                if let Ok((_, literal)) = &read {
                    assert_eq!(dtype_of_code(ty.elem_type).unwrap(), literal.dtype(), "{path:?}");
                }
                results.push((path, read.map(drop)));
            }
        }
    }
    results
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}
