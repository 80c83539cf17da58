//! `fuseline doctor`: which devices can be used here, and what is missing for the others.

use std::num::NonZeroUsize;

use fuseline_cpu::code::Isa;
use fuseline_cuda::cublas;
use fuseline_cuda::gpu::Gpu;
use fuseline_cuda::nvrtc::Compiler;
use serde_json::json;

use crate::arguments::Doctor;
use crate::failure::Outcome;
use crate::file;
use crate::gpu;
use crate::screen::{self, Column, Table};

/// Something that a device needs.
struct Finding {
    device: &'static str,
    what: &'static str,
    /// what was found, or why it was not
    outcome: Result<String, String>,
}

/// Looks for everything.
pub fn doctor(arguments: &Doctor) -> Outcome {
    let findings = findings();
    if arguments.json {
        let rows = findings.iter().map(|finding| {
            let text = finding.outcome.as_ref().unwrap_or_else(|why| why);
            json!({ "device": finding.device, "needs": finding.what, "there": finding.outcome.is_ok(), "note": text })
        });
        return screen::print_json(&json!({ "findings": rows.collect::<Vec<_>>() }));
    }
    let mut table = Table::new([Column::left(""), Column::left(""), Column::left(""), Column::left("").wrap(30)]);
    for finding in &findings {
        let (sign, note) = match &finding.outcome {
            Ok(found) => ("ok", found),
            Err(why) => ("missing", why),
        };
        table.row([sign, finding.device, finding.what, note].map(String::from));
    }
    screen::print(&table.text(screen::width()))
}

fn findings() -> Vec<Finding> {
    let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let code = match Isa::detect() {
        Isa::Amx => "machine code with AVX-512, tiles of bf16 (AMX)",
        Isa::Avx512 => "machine code with AVX-512",
        Isa::Avx2 => "machine code with AVX2",
        Isa::Portable => "no machine code for this processor: kernels run on the portable executor",
    };
    let cpu = Finding { device: "cpu", what: "processor", outcome: Ok(format!("{code}, {processors} threads")) };
    let device = Gpu::open(0).map(|gpu| {
        let it = &gpu.description;
        let (major, minor) = it.driver;
        format!("{}, {}, {} GB, driver for CUDA {major}.{minor}", it.name, it.architecture(), it.memory / 1_000_000_000)
    });
    let compiler = Compiler::find(&gpu::libraries()).map(|compiler| {
        let (major, minor) = compiler.version();
        format!("NVRTC {major}.{minor} ({})", compiler.path().display())
    });
    let products = cublas::locate(&gpu::libraries()).map(|path| format!("cuBLASLt ({})", path.display()));
    vec![
        cpu,
        Finding { device: "cuda", what: "GPU", outcome: device.map_err(|error| error.message().to_owned()) },
        Finding { device: "cuda", what: "compiler", outcome: compiler.map_err(|error| error.message().to_owned()) },
        Finding { device: "cuda", what: "products", outcome: products.map_err(|error| error.message().to_owned()) },
        Finding { device: "cuda", what: "cache", outcome: cache() },
    ]
}

/// Where machine code is kept, if something can be written there. The folder is made when it is needed.
fn cache() -> Result<String, String> {
    let folder = gpu::cache().ok_or("no folder to keep machine code in; set FUSELINE_CACHE to one")?;
    let there = folder.ancestors().find(|place| place.exists());
    match there.is_some_and(|there| there.is_dir() && file::check_folder(there).is_ok()) {
        true => Ok(format!("machine code is kept in {}", folder.display())),
        false => Err(format!(
            "nothing can be written to {}, so kernels are compiled again in every run; set FUSELINE_CACHE to another folder",
            folder.display()
        )),
    }
}
