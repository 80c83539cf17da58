//! Every kernel that is planned for a GPU is printed as CUDA C++ and compiled by NVRTC, without a warning and without a spilled register:
//! those of the gallery, and those of whole networks. What rows become is run, too, as PTX on the host. No GPU is needed.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use fuseline::compare::Meaning;
use fuseline::compile::{Grain, PlannedProgram, plan_apart, plan_program};
use fuseline::device::DeviceSpec;
use fuseline::error::Error;
use fuseline::fuse::{Plan, PlanOptions};
use fuseline::gallery::{self, Entry};
use fuseline::graph::Graph;
use fuseline::reference::Limits;
use fuseline::tensor::{DType, Env, Symbol};
use fuseline::tile::{Kernel, Schedule};
use fuseline_cuda::nvrtc::Compiler;
use fuseline_cuda::print::{Asked, Options, Printed, print, sizes_about, sizes_to_fix_at, together};
use fuseline_frontend::Model;
use fuseline_ptx::Order;
use fuseline_tests::ptx;
use libtest_mimic::{Arguments, Failed, Trial};

/// What kernels are compiled for: the oldest architecture that is supported, and the one that they are made for.
const ARCHITECTURES: [&str; 2] = ["sm_80", "sm_90a"];

/// Columns of many rows: several rows a block, and one.
const ROWS: [i64; 2] = [1024, 4096];

/// So many rows that threads walk along several of them.
const MANY_ROWS: i64 = 65_536;

/// Graphs whose threads walk along many rows, and columns of rows that begin anywhere, or that blocks share.
const WALKED: [&str; 5] =
    ["column_sum", "layernorm_gelu", "layernorm_gelu_backward", "layernorm_quantize_int8", "rmsnorm_backward"];
const WALKED_ROWS: [i64; 4] = [513, 1025, 4097, 8192];

/// Graphs of rows that two blocks read again, for neither can hold its row.
const READ_AGAIN: [(&str, DType, i64); 5] = [
    ("layernorm", DType::F32, 16_384),
    ("layernorm_gelu", DType::F32, 16_384),
    ("rmsnorm", DType::F32, 16_384),
    ("softmax", DType::F32, 16_384),
    ("rmsnorm", DType::BF16, 32_768),
];

/// Graphs of rows that begin anywhere and have blocks of their own.
const ANYWHERE: [(&str, DType, i64); 13] = [
    ("add_rmsnorm", DType::BF16, 24_577),
    ("layernorm", DType::BF16, 4097),
    ("layernorm", DType::BF16, 20_001),
    ("layernorm", DType::F32, 20_001),
    ("layernorm_quantize_int8", DType::BF16, 28_673),
    ("rmsnorm", DType::BF16, 4097),
    ("rmsnorm", DType::BF16, 20_001),
    ("rmsnorm", DType::BF16, 32_769),
    ("softmax", DType::BF16, 12_289),
    ("softmax", DType::BF16, 24_577),
    ("softmax", DType::F32, 20_001),
    ("softmax_backward", DType::BF16, 20_001),
    ("softmax_backward", DType::F32, 12_289),
];

/// Graphs of long rows that one block holds, or several.
const LONG: [(&str, DType, i64); 7] = [
    ("layernorm", DType::F32, 20_000),
    ("layernorm_gelu", DType::F32, 24_576),
    ("rmsnorm", DType::F32, 20_000),
    ("softmax_backward", DType::F32, 12_288),
    ("softmax_backward", DType::F32, 20_000),
    ("softmax_backward", DType::F32, 24_576),
    ("softmax_backward", DType::F32, 24_577),
];

/// Graphs of long rows that are lifted: one and two blocks a multiprocessor, threads that are no power of two.
const LIFTED: [(&str, DType, i64); 6] = [
    ("layernorm", DType::BF16, 9_217),
    ("layernorm", DType::BF16, 12_289),
    ("layernorm_gelu", DType::BF16, 26_001),
    ("layernorm_gelu", DType::BF16, 10_000),
    ("layernorm_quantize_int8", DType::BF16, 16_384),
    ("layernorm_quantize_int8", DType::BF16, 26_001),
];

/// Graphs that are run as PTX.
const RUN: [&str; 12] = [
    "add_rmsnorm",
    "column_sum",
    "layernorm",
    "layernorm_dropout_residual",
    "layernorm_gelu",
    "layernorm_gelu_backward",
    "layernorm_quantize_int8",
    "rmsnorm",
    "rmsnorm_backward",
    "softmax",
    "softmax_backward",
    "softmax_dropout",
];

/// Rows and columns, and about how many rows there are where kernels are made: rows that share a warp, twins and rows that blocks walk along, one a block, such as begin
/// anywhere, come into shared memory, are lifted, have a multiprocessor alone, or are shared by blocks.
const SHAPES: [(i64, i64, i64); 9] = [
    (5, 37, 5),
    (19, 512, 65_536),
    (21, 513, 65_536),
    (3, 4097, 8192),
    (3, 5001, 6710),
    (2, 12_289, 2730),
    (16, 12_297, 2730),
    (2, 24_577, 1365),
    (2, 50_257, 667),
];

/// The most that a size is where whole graphs of the gallery are run.
const SMALL: i64 = 40;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    // Without the compiler, every test fails and says why.
    let compiler = fuseline_tests::nvrtc::folder()
        .and_then(|folder| Compiler::find(&[folder]).map_err(|error| error.to_string()))
        .map_err(|why| format!("NVRTC is needed for this test (package nvidia-cuda-nvrtc, by pip): {why}"));
    let shop = Arc::new(Shop { compiler, known: Mutex::default() });
    let mut trials = Vec::new();
    for entry in gallery::all() {
        let shop = shop.clone();
        trials.push(Trial::test(format!("gallery/{}", entry.name), move || shop.gallery(entry)));
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/structure");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
    files.retain(|file| file.extension().is_some_and(|e| e == "onnx"));
    files.sort();
    for file in files {
        let (shop, name) = (shop.clone(), file.file_stem().unwrap_or_default().to_string_lossy().into_owned());
        trials.push(Trial::test(format!("model/{name}"), move || shop.model(&file)));
    }
    for (name, dtype) in [("transformer_sublayer", DType::F32), ("attention", DType::BF16)] {
        let shop = shop.clone();
        trials.push(Trial::test(format!("together/{name}"), move || shop.together(name, dtype)));
    }
    for entry in gallery::all() {
        let shop = shop.clone();
        trials.push(Trial::test(format!("run/gallery/{}", entry.name), move || shop.run_small(entry)));
    }
    let gated = shop.clone();
    trials.push(Trial::test("run/gated_softmax", move || {
        [20_001, 50_001]
            .into_iter()
            .try_for_each(|columns| gated.run_at(&Graph::parse(ptx::GATED)?, 2, columns, 671, Order::Forward))
    }));
    for name in RUN {
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            let shop = shop.clone();
            trials.push(Trial::test(format!("run/{name}_{dtype}"), move || shop.run(name, dtype)));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The compiler, and the texts that it has seen.
struct Shop {
    compiler: Result<Compiler, String>,
    known: Mutex<HashSet<String>>,
}

impl Shop {
    fn gallery(&self, entry: &Entry) -> Result<(), Failed> {
        for dtype in [DType::F32, DType::BF16] {
            let sizes: Env = entry.sizes.iter().map(|(name, size)| (Symbol::name(name), *size)).collect();
            // With more rows, tiles are larger.
            let more = entry.sizes.iter().map(|(name, size)| {
                let is_row = ["m", "tokens", "queries", "keys"].contains(name);
                (Symbol::name(name), if is_row { size * 32 } else { *size })
            });
            self.check(entry.graph(dtype)?, more.collect())?;
            self.check(entry.graph(dtype)?, sizes)?;
            // How many registers a thread has follows from how long rows are, and how many.
            let has_rows = entry.sizes.iter().any(|(name, _)| *name == "rows");
            let more = WALKED_ROWS.iter().filter(|_| WALKED.contains(&entry.name));
            let others = READ_AGAIN.iter().chain(&ANYWHERE).chain(&LONG).chain(&LIFTED);
            let others = others.filter(|(name, of, _)| *name == entry.name && *of == dtype);
            let others = others.map(|(_, _, columns)| columns);
            for columns in ROWS.iter().filter(|_| has_rows).chain(more).chain(others) {
                let long = [("rows", MANY_ROWS), ("columns", *columns)];
                self.check(
                    entry.graph(dtype)?,
                    long.map(|(name, size)| (Symbol::name(name), size)).into_iter().collect(),
                )?;
            }
        }
        Ok(())
    }

    fn model(&self, file: &Path) -> Result<(), Failed> {
        let graph = Model::open(file)?.graph()?.clone();
        let mut sizes = Env::new();
        for value in graph.inputs() {
            for symbol in graph.ty(*value).shape.dims().iter().filter_map(|dim| dim.as_symbol()) {
                sizes.bind(symbol.clone(), 128);
            }
        }
        self.check(graph, sizes)
    }

    /// What a graph of rows gives in several shapes, beside what it means.
    fn run(&self, name: &str, dtype: DType) -> Result<(), Failed> {
        let entry = gallery::find(name).ok_or("there is no such graph")?;
        let graph = entry.graph(dtype)?;
        for (k, (rows, columns, about)) in SHAPES.into_iter().enumerate() {
            let order = if k % 2 == 0 { Order::Forward } else { Order::Backward };
            self.run_at(&graph, rows, columns, about, order)?;
        }
        Ok(())
    }

    fn run_at(&self, graph: &Graph, rows: i64, columns: i64, about: i64, order: Order) -> Result<(), Failed> {
        let sizes = |rows: i64| [("rows", rows), ("columns", columns)].map(|(name, n)| (Symbol::name(name), n));
        let (env, about): (Env, Env) = (sizes(rows).into_iter().collect(), sizes(about).into_iter().collect());
        let run = self.run_in(graph, &env, &about, order);
        Ok(run.map_err(|why| format!("{rows} rows of {columns} columns: {why}"))?)
    }

    /// A graph of the gallery at small sizes.
    fn run_small(&self, entry: &Entry) -> Result<(), Failed> {
        for (dtype, order) in [(DType::F32, Order::Forward), (DType::BF16, Order::Backward)] {
            let sizes = entry.sizes.iter().map(|(name, size)| (Symbol::name(name), (*size).min(SMALL)));
            let env: Env = sizes.collect();
            self.run_in(&entry.graph(dtype)?, &env, &env, order).map_err(|why| format!("{dtype}: {why}"))?;
        }
        Ok(())
    }

    /// What a graph gives, kernel by kernel, where its kernels are made for about some sizes.
    fn run_in(&self, graph: &Graph, env: &Env, about: &Env, order: Order) -> Result<(), String> {
        let compiler = self.compiler.as_ref().map_err(String::clone)?;
        let text = |error: Error| error.to_string();
        let mut options = PlanOptions::on(DeviceSpec::find("h200").map_err(text)?);
        options.hints.env = about.clone();
        let inputs = ptx::inputs(graph, env)?;
        let planned = plan_program(graph.clone(), &options, &mut |_| {}).map_err(text)?;
        let outputs = ptx::Device { compiler, about, order }.run(&planned, &inputs)?;
        let meaning = Meaning::of(graph, &inputs, Limits::default()).map_err(text)?;
        meaning.check(&outputs).map_err(|(output, mismatch)| format!("output {output}: {mismatch}"))
    }

    fn check(&self, graph: Graph, sizes: Env) -> Result<(), Failed> {
        let mut options = PlanOptions::on(DeviceSpec::find("h200")?);
        options.hints.env = sizes.clone();
        let PlannedProgram { program, prepare, run, .. } = plan_program(graph, &options, &mut |_| {})?;
        let mut kernels = Vec::new();
        collect(program.prepare(), &prepare, &mut kernels);
        collect(program.run(), &run, &mut kernels);
        for kernel in kernels {
            self.compile(&kernel, &sizes).map_err(|why| format!("{why}\n{kernel}"))?;
        }
        Ok(())
    }

    /// All kernels of an operation without fusion as one text, each twice: names are told apart.
    fn together(&self, name: &str, dtype: DType) -> Result<(), Failed> {
        let entry = gallery::find(name).ok_or("there is no such operation")?;
        let sizes: Env = entry.sizes.iter().map(|(name, size)| (Symbol::name(name), *size)).collect();
        let mut options = PlanOptions::on(DeviceSpec::find("h200")?);
        options.hints.env = sizes.clone();
        let planned = plan_apart(entry.graph(dtype)?, &options, Grain::Operator)?;
        let fused = plan_program(entry.graph(dtype)?, &options, &mut |_| {})?;
        let mut kernels = Vec::new();
        collect(planned.program.run(), &planned.run, &mut kernels);
        collect(fused.program.run(), &fused.run, &mut kernels);
        let compiler = self.compiler.as_ref().map_err(String::clone)?;
        for architecture in ARCHITECTURES {
            let printed = kernels.iter().chain(&kernels).enumerate().map(|(k, kernel)| {
                let name = format!("{}_{k}", kernel.schedule.name());
                let printed = print(kernel, &options_for(kernel, &name, &sizes, architecture))?;
                Ok((name, printed))
            });
            let printed: Vec<(String, Printed)> = printed.collect::<fuseline::error::Result<_>>()?;
            let printed: Vec<(&str, &Printed)> = printed.iter().map(|(name, own)| (name.as_str(), own)).collect();
            let (head, parts) = together(&printed)?;
            let source = format!("{head}\n{}", parts.concat());
            let cubin = compiler.compile(&source, "together", architecture, printed[0].1.is_strict);
            let cubin = cubin.map_err(|error| format!("{error}\n{source}"))?;
            if let Some(line) = cubin.log.lines().find(|line| is_bad(line)) {
                return Err(format!("{architecture}: {line}\n{source}").into());
            }
        }
        Ok(())
    }

    fn compile(&self, kernel: &Kernel, sizes: &Env) -> Result<(), String> {
        let compiler = self.compiler.as_ref().map_err(String::clone)?;
        for architecture in ARCHITECTURES {
            let options = options_for(kernel, kernel.schedule.name(), sizes, architecture);
            let printed = print(kernel, &options).map_err(|error| error.to_string())?;
            let source = printed.source();
            if !self.known.lock().expect("no test panics with it").insert(format!("{architecture} {source}")) {
                continue;
            }
            let cubin = compiler.compile(&source, &options.name, architecture, printed.is_strict);
            let cubin = cubin.map_err(|error| format!("{error}\n{source}"))?;
            if let Some(line) = cubin.log.lines().find(|line| is_bad(line)) {
                return Err(format!("{architecture}: {line}\n{source}"));
            }
        }
        Ok(())
    }
}

/// How a kernel is printed for an architecture. What only a run tells stays an argument.
fn options_for(kernel: &Kernel, name: &str, sizes: &Env, architecture: &str) -> Options {
    let fixed =
        sizes_to_fix_at(kernel, sizes).into_iter().filter_map(|symbol| Some((symbol.clone(), sizes.get(&symbol)?)));
    Options {
        name: name.to_owned(),
        fixed: fixed.collect(),
        wide: false,
        groups: architecture == "sm_90a",
        asked: Asked::Nothing,
        processors: 132,
        about: sizes_about(kernel, sizes),
    }
}

/// Whether a line of the log tells of something that must not be.
fn is_bad(line: &str) -> bool {
    let spills = line.contains("spill") && !line.contains("0 bytes spill stores, 0 bytes spill loads");
    spills || line.contains("warning") || line.contains("ignored")
}

/// The distinct kernels of a plan and its regions that are code.
fn collect(graph: &Graph, plan: &Plan, kernels: &mut Vec<Arc<Kernel>>) {
    for planned in &plan.kernels {
        if !matches!(planned.kernel.schedule, Schedule::Host(_)) && !kernels.contains(&planned.kernel) {
            kernels.push(planned.kernel.clone());
        }
        for (region, plan) in graph.nodes()[planned.members[0]].prim().regions().into_iter().zip(&planned.regions) {
            collect(region, plan, kernels);
        }
    }
}
