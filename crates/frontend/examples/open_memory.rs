//! Opens a model and tells what that costs: `open_memory [model.onnx]`.
//!
//! Without a path it makes a model of 436 MB in the temporary folder: one hundred initializers with raw data.
//! Linux only, because it reads `/proc/self/smaps_rollup`.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use fuseline_frontend::onnx::schema::{GraphProto, ModelProto, TensorProto};
use fuseline_frontend::onnx::{Message, ModelFile};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let made = std::env::temp_dir().join(format!("fuseline-open-memory-{}.onnx", std::process::id()));
    let path = std::env::args_os().nth(1).map(PathBuf::from);
    if path.is_none() {
        make_model(&made)?;
    }
    let result = measure(path.as_ref().unwrap_or(&made));
    if path.is_none() {
        std::fs::remove_file(&made)?;
    }
    result
}

fn measure(path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let (before, start) = (memory()?, Instant::now());
    let file = ModelFile::open(path)?;
    let graph = file.model.graph.as_ref().ok_or("no graph")?;
    let literals = graph.initializer.iter().map(|tensor| file.literal(tensor)).collect::<Result<Vec<_>, _>>()?;
    let (after, elapsed) = (memory()?, start.elapsed());
    let bytes: usize = literals.iter().map(|literal| literal.byte_count()).sum();
    println!("{} literals of {} MB in {elapsed:.1?}", literals.len(), bytes / 1_000_000);
    for (when, memory) in [("before", before), ("after", after)] {
        println!("{when}: {} KiB private, of them {} anonymous", memory.private_kib, memory.anonymous_kib);
    }
    Ok(())
}

/// Writes the model piece by piece, so that the maker does not hold it either.
fn make_model(path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    const TENSORS: usize = 100;
    let tensor = |k: usize| TensorProto {
        name: format!("weight.{k}"),
        data_type: 1,
        dims: vec![1090, 1000],
        raw_data: vec![k as u8; 1090 * 1000 * 4].into(),
        ..Default::default()
    };
    let field = |k| GraphProto { initializer: vec![tensor(k)], ..Default::default() }.encode_to_vec();
    let graph_bytes: usize = (0..TENSORS).map(|k| field(k).len()).sum();
    let mut out = BufWriter::new(std::fs::File::create(path)?);
    out.write_all(&ModelProto { ir_version: 10, ..Default::default() }.encode_to_vec())?;
    out.write_all(&[7 << 3 | 2])?; // the tag of ModelProto.graph
    let mut length = Vec::new();
    prost::encode_length_delimiter(graph_bytes, &mut length)?;
    out.write_all(&length)?;
    for k in 0..TENSORS {
        out.write_all(&field(k))?;
    }
    Ok(out.flush()?)
}

/// What only this process has: its own memory (`anonymous`), and with the file pages that no other process
/// has mapped (`private`).
struct Memory {
    anonymous_kib: u64,
    private_kib: u64,
}

fn memory() -> Result<Memory, Box<dyn std::error::Error>> {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let field = |name: &str| -> Result<u64, Box<dyn std::error::Error>> {
        let value = rollup.lines().find_map(|line| line.strip_prefix(name)).ok_or("a field is missing")?;
        Ok(value.trim().trim_end_matches(" kB").parse()?)
    };
    let private_kib = field("Private_Clean:")? + field("Private_Dirty:")?;
    Ok(Memory { anonymous_kib: field("Anonymous:")?, private_kib })
}
