//! What fuzzing calls: bodies of targets that take any bytes.
//!
//! A target returns, whatever the bytes are; what it panics about is a finding. The crate in `fuzz/` only calls these,
//! and `tests/suites/fuzz.rs` runs the committed corpus through them, with nothing but a stable compiler.

pub mod bounded;
mod recipe;

use fuseline::error::{Error, Kind, Result};
use fuseline::graph::{text, verify};
use fuseline::tensor::Source;
use fuseline::tile;
use fuseline_frontend::Model;

use crate::model_maker::bytes;
use crate::round_trip;

pub use recipe::cooked;

/// One way to take bytes apart.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// its name: that of the program in `fuzz/fuzz_targets` and of its folder in `fuzz/corpus`
    pub name: &'static str,
    /// what the bytes are, and what is done with them
    pub doc: &'static str,
    /// the body
    pub run: fn(&[u8]),
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target { name: "onnx", doc: "a model file: imported, verified, printed and parsed back", run: onnx },
    Target { name: "graph", doc: "a graph as text: parsed, verified, printed and parsed back", run: graph },
    Target { name: "tile", doc: "a kernel as text: parsed, printed and parsed back, verified, interpreted", run: tile },
    Target {
        name: "pipeline",
        doc: "a model file: imported, planned, its kernels interpreted, compared with the reference",
        run: pipeline,
    },
    Target {
        name: "recipe",
        doc: "choices from which a model is built, node by node; then as the pipeline",
        run: recipe,
    },
];

/// The target of a name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Graphs of more nodes are not printed: that they print is seen on smaller ones.
const MOST_PRINTED: usize = 2000;

fn onnx(data: &[u8]) {
    judge(import(data));
}

fn import(data: &[u8]) -> Result<()> {
    let model = Model::from_bytes(data.to_vec(), "fuzz.onnx")?;
    let graph = model.graph()?;
    verify(graph).map_err(broken)?;
    if graph.nodes().len() <= MOST_PRINTED {
        round_trip::check(graph).map_err(broken)?;
    }
    Ok(())
}

fn graph(data: &[u8]) {
    let Ok(content) = std::str::from_utf8(data) else { return };
    judge(read_graph(content));
}

fn read_graph(content: &str) -> Result<()> {
    let graph = text::parse(content, &|_: &Source, _| Err(Error::invalid("there are no files here")))?;
    // A text may well break invariants: that is what they are checked for.
    if verify(&graph).is_ok() && graph.nodes().len() <= MOST_PRINTED {
        round_trip::check(&graph).map_err(broken)?;
    }
    Ok(())
}

fn tile(data: &[u8]) {
    let Ok(content) = std::str::from_utf8(data) else { return };
    judge(read_kernel(content));
}

fn read_kernel(content: &str) -> Result<()> {
    let kernel = tile::read(content)?.kernel;
    let text = kernel.to_string();
    match tile::parse(&text) {
        Ok(parsed) if parsed == kernel && parsed.to_string() == text => {}
        Ok(parsed) => return Err(Error::bug(format!("the text\n{text}\nparses as\n{parsed}"))),
        // What is printed may nest deeper than what was read.
        Err(error) if error.kind() == Kind::Limit => return Err(error),
        Err(error) => return Err(broken(error.at(format!("in the text\n{text}\n")))),
    }
    tile::verify(&kernel)?;
    bounded::interpret(&kernel)
}

fn pipeline(data: &[u8]) {
    judge(bounded::compile_and_run(data.to_vec()));
}

fn recipe(data: &[u8]) {
    judge(bounded::compile_and_run(bytes(&cooked(data))));
}

/// Any error is an answer, but one that says the fault is ours.
fn judge(outcome: Result<()>) {
    if let Err(error) = outcome {
        assert!(error.kind() != Kind::Bug, "{error}");
    }
}

/// What must not be wrong, whatever came in.
fn broken(error: Error) -> Error {
    Error::bug(error.to_string())
}
