//! Graphs in their text form, read from files.

use std::path::Path;

use bytes::Bytes;
use fuseline::error::{Context, Error, Result};
use fuseline::graph::{Graph, text, verify};
use fuseline::tensor::Source;

use crate::mapping::map_file;

/// Reads the text form of a graph. The data of large constants may lie in files beside the text or in folders below it;
/// no others are opened.
pub fn read_graph(path: impl AsRef<Path>) -> Result<Graph> {
    let path = path.as_ref();
    let read = || {
        let bytes = map_file(path)?;
        let content = std::str::from_utf8(&bytes).map_err(|_| Error::invalid("the file is not text"))?;
        let graph = text::parse(content, &|source, len| resolve(path, source, len))?;
        // What breaks an invariant is the writer's mistake here, and nobody's bug.
        verify(&graph).map_err(Error::of_input)?;
        Ok(graph)
    };
    read().at(|| path.to_string_lossy())
}

fn resolve(text: &Path, source: &Source, len: usize) -> Result<Bytes> {
    let cannot = |error: std::io::Error| Error::invalid(format!("cannot open the file: {error}"));
    let find = || {
        let parent = text.canonicalize().map_err(cannot)?;
        let data = Path::new(source.file.as_ref()).canonicalize().map_err(cannot)?;
        if !parent.parent().is_some_and(|folder| data.starts_with(folder)) {
            return Err(Error::invalid("the data of a constant must lie in the folder of the text"));
        }
        let bytes = map_file(&data)?;
        let end = source.offset.checked_add(len as u64).filter(|end| *end <= bytes.len() as u64);
        let end = end.ok_or_else(|| {
            Error::invalid(format!("{len} bytes at {} lie beyond the {} of the file", source.offset, bytes.len()))
        })?;
        Ok(bytes.slice(source.offset as usize..end as usize))
    };
    find().at(|| format!("data \"{}\"", source.file.escape_debug()))
}

#[cfg(test)]
mod tests {
    use fuseline::graph::Builder;
    use fuseline::tensor::{DType, Literal, Shape};

    use super::*;

    /// `y = x + c`, the data of `c` in a file.
    fn write_graph(text: &Path, data: &Path) {
        std::fs::write(data, vec![1u8; 400_004]).unwrap();
        let source = Source { file: data.to_string_lossy().into(), offset: 4 };
        let bytes = map_file(data).unwrap().slice(4..);
        let literal = Literal::new(DType::U8, [400_000], bytes).unwrap().with_source(source);
        let b = Builder::new("sum");
        let x = b.input("x", DType::U8, Shape::new([400_000usize]));
        b.output("y", x + b.constant(literal));
        std::fs::write(text, b.finish().unwrap().to_string()).unwrap();
    }

    #[test]
    fn constants_come_from_files_of_the_folder_only() {
        let folder = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let text = folder.path().join("sum.ir");
        write_graph(&text, &folder.path().join("weights"));
        assert_eq!(read_graph(&text).unwrap().inputs().len(), 1);
        std::fs::write(folder.path().join("weights"), [0; 10]).unwrap();
        assert!(read_graph(&text).unwrap_err().message().contains("beyond the 10"));
        write_graph(&text, &outside.path().join("weights"));
        assert!(read_graph(&text).unwrap_err().message().contains("folder of the text"));
        std::fs::write(&text, "graph g() {\n  %0 = map() size(n + i0) : i64[4]\n  return y = %0\n}\n").unwrap();
        let error = read_graph(&text).unwrap_err();
        assert_eq!(error.kind(), fuseline::error::Kind::Invalid);
        assert!(error.to_string().contains("%0 (map): the size n + i0 mentions a coordinate"), "{error}");
        std::fs::write(&text, [0xff, 0xfe]).unwrap();
        assert!(read_graph(&text).unwrap_err().message().contains("not text"));
    }
}
