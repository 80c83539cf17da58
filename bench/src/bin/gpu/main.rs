//! Kernels on an NVIDIA GPU: first whether they are right, then how long they take. The program needs a driver and NVRTC, nothing else.
//!
//! ```text
//! gpu check [--graphs=N] [--models=FOLDER] [--libraries=FOLDER] [NAME…]     outputs against the reference
//! gpu model FILE.onnx|FILE.ir [--sizes=NAME=N,…] [--precision=bf16|f16] [--tune] [--runs=N] [--libraries=FOLDER]     a network, launch by launch
//! gpu time  [--json] [--runs=N] [--dtype=TYPE] [--tiles=RxCxD] [--libraries=FOLDER] [NAME…]     device time against a copy of the same bytes
//! gpu time  --sizes=NAME=N,…[;NAME=N,…] GRAPH…     the same of graphs of the gallery, at these sizes
//! ```
//!
//! A NAME is part of the name of a case. `bench/gpu_peers.py` times PyTorch on the same list.

mod check;
mod large;
mod model;
mod time;

use std::path::PathBuf;
use std::process::ExitCode;

use fuseline::device::DeviceSpec;
use fuseline::error::{Error, Result};
use fuseline::fuse::PlanOptions;
use fuseline::passes::Precision;
use fuseline::reference::Limits;
use fuseline::tile::Tile;
use fuseline_cuda::run::CudaDevice;

/// What was asked for.
struct Arguments {
    libraries: Vec<PathBuf>,
    cache: Option<PathBuf>,
    json: bool,
    runs: usize,
    graphs: u32,
    /// a folder of networks with inputs
    models: Option<PathBuf>,
    /// the element type that is timed, and the tiles of products in bf16 and f16, where these are chosen
    dtype: Option<String>,
    tiles: Option<String>,
    /// sizes of a network, and the type in which it is computed
    sizes: String,
    precision: Precision,
    /// whether products are measured in all ways before a network is
    tune: bool,
    /// parts of names
    names: Vec<String>,
}

impl Arguments {
    fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|part| name.contains(part.as_str()))
    }

    /// What is planned for: the H200, perhaps with other tiles.
    fn spec(&self) -> Result<&'static DeviceSpec> {
        let Some(tiles) = &self.tiles else { return DeviceSpec::find("h200") };
        let mut spec = DeviceSpec::find("h200")?.clone();
        for (dtype, list) in &mut spec.tiles {
            if matches!(dtype.name(), "bf16" | "f16") {
                let wanted: Vec<u32> = tiles.split('x').filter_map(|size| size.parse().ok()).collect();
                let &[rows, columns, depth] = wanted.as_slice() else {
                    return Err(Error::invalid("tiles are written 128x128x64"));
                };
                *list = vec![Tile { rows, columns, depth }];
            }
        }
        Ok(Box::leak(Box::new(spec)))
    }

    /// The GPU, for plans of its kind.
    fn device(&self) -> Result<CudaDevice> {
        let plan = PlanOptions::on(self.spec()?);
        let limits = Limits { bytes: 100 << 30, ..Limits::default() };
        CudaDevice::open(0, &self.libraries, self.cache.clone(), plan, limits)
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<bool> {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    let mut arguments = Arguments {
        libraries: vec![PathBuf::from("/usr/local/cuda/lib64")],
        cache: None,
        json: false,
        runs: 51,
        graphs: 200,
        models: None,
        dtype: None,
        tiles: None,
        sizes: String::new(),
        precision: Precision::F32,
        tune: false,
        names: Vec::new(),
    };
    for word in words {
        let number = |text: &str| text.parse::<usize>().map_err(|_| Error::invalid(format!("{text} is no number")));
        match word.split_once('=') {
            Some(("--libraries", folder)) => arguments.libraries.insert(0, folder.into()),
            Some(("--models", folder)) => arguments.models = Some(folder.into()),
            Some(("--cache", folder)) => arguments.cache = Some(folder.into()),
            Some(("--dtype", name)) => arguments.dtype = Some(name.to_owned()),
            Some(("--tiles", sizes)) => arguments.tiles = Some(sizes.to_owned()),
            Some(("--runs", text)) => arguments.runs = number(text)?,
            Some(("--graphs", text)) => arguments.graphs = u32::try_from(number(text)?).unwrap_or(u32::MAX),
            _ if word.starts_with("--sizes=") => arguments.sizes = word["--sizes=".len()..].to_owned(),
            Some(("--precision", name)) => {
                let known = Precision::from_name(name);
                arguments.precision = known.ok_or_else(|| Error::invalid(format!("there is no precision {name}")))?;
            }
            None if word == "--tune" => arguments.tune = true,
            _ if word == "--json" => arguments.json = true,
            _ if word.starts_with("--") => return Err(Error::invalid(format!("there is no option {word}"))),
            _ => arguments.names.push(word),
        }
    }
    match command.as_str() {
        "check" => check::check(&arguments),
        "model" => model::models(&arguments).map(|()| true),
        "time" => time::time(&arguments).map(|()| true),
        _ => Err(Error::invalid("wanted `gpu check`, `gpu model` or `gpu time`")),
    }
}
