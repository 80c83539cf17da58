//! Kernels in their text form, read from files as what they compute.

use std::path::Path;

use fuseline::error::{Context, Error, Result};
use fuseline::graph::{Graph, verify};
use fuseline::tile;

use crate::mapping::map_file;

/// Reads a kernel as a graph of its inputs and outputs, which says what is computed and not how.
pub fn read_kernel(path: impl AsRef<Path>) -> Result<Graph> {
    let path = path.as_ref();
    let read = || {
        let bytes = map_file(path)?;
        let content = std::str::from_utf8(&bytes).map_err(|_| Error::invalid("the file is not text"))?;
        let source = tile::read(content.strip_prefix('\u{feff}').unwrap_or(content))?;
        tile::verify(&source.kernel).map_err(|error| source.in_own_words(error))?;
        let name = source.name.as_deref().unwrap_or("kernel");
        let graph = tile::graph_of(&source.kernel, name, &source.inputs, &source.outputs)?.ok_or_else(|| {
            Error::unsupported(
                "a kernel that looks up what it reads, draws at random or stores parts of a tensor is no graph",
            )
        })?;
        verify(&graph).map_err(Error::of_input)?;
        Ok(graph)
    };
    read().at(|| path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use fuseline::error::Kind;

    use super::*;

    fn read(text: &str) -> Result<Graph> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("k.tile");
        std::fs::write(&path, text).unwrap();
        read_kernel(&path)
    }

    #[test]
    fn a_kernel_is_a_graph_under_its_own_names() {
        let text = "kernel scale(x: f32[n, m], s: f32[m]) -> y: f32[n, m] {\n  y = x * s\n}\n";
        let graph = read(text).unwrap();
        assert_eq!(graph.name(), "scale");
        let inputs: Vec<&str> = graph.inputs().iter().map(|value| &**graph.input_name(*value)).collect();
        let outputs: Vec<&str> = graph.outputs().iter().map(|output| &*output.name).collect();
        assert_eq!((inputs, outputs), (vec!["x", "s"], vec!["y"]));
    }

    #[test]
    fn what_is_no_kernel_or_no_graph_is_refused() {
        assert_eq!(read("kernel scale(").unwrap_err().kind(), Kind::Invalid);
        let text = "kernel {
  axes i0: m, i1: d
  in   x0: f32[n, d], x1: i64[m]
  out  y0: f32[m, d]
  schedule map
  %0 = load x1[i0]
  %1 = load x0[@0, i1] reading (%0)
  store y0[i0, i1] = %1
}";
        assert_eq!(read(text).unwrap_err().kind(), Kind::Unsupported);
    }
}
