//! The pages of `docs/kernel-gallery`: what the gallery becomes, made from what the compiler emits and what was measured.
//!
//! Comes in: the gallery, and the files that `bench/gallery.py` writes. Goes out: the text of every page. Nothing on a page is
//! written by hand but titles and what texts on fusion claim.

use std::fmt::Write as _;
use std::path::Path;

use fuseline::compile::plan_program;
use fuseline::device::DeviceSpec;
use fuseline::error::{Context as _, Error, Result};
use fuseline::explain::Explanation;
use fuseline::fuse::PlanOptions;
use fuseline::gallery::{self, Entry};
use fuseline::tensor::{DType, Env, Symbol};
use fuseline::tile::{Kernel, Schedule};
use fuseline_cuda::print::{self, sizes_to_fix};
use serde_json::Value;

/// A row of the gallery.
struct Row {
    number: u32,
    file: &'static str,
    title: &'static str,
    /// what texts on fusion say that it gains
    claim: &'static str,
}

const fn row(number: u32, file: &'static str, title: &'static str, claim: &'static str) -> Row {
    Row { number, file, title, claim }
}

const ROWS: &[Row] = &[
    row(1, "01-elementwise.md", "Elementwise chains", "1.86 × at 1M elements, 40 % less traffic"),
    row(2, "02-activations.md", "Bias and activation, gating", "1.5–2 ×"),
    row(3, "03-linear.md", "Linear layer with bias and activation", "3 passes become 1"),
    row(4, "04-dropout.md", "Dropout in its neighbours", "2–3 × with bias and residual"),
    row(5, "05-layernorm.md", "LayerNorm with what follows", "2–4 ×, 10 accesses become 2"),
    row(6, "06-rmsnorm.md", "RMSNorm", "2–4 ×"),
    row(7, "07-residual.md", "Residual sums and norms", "–"),
    row(8, "08-norm-linear.md", "Norm and linear layer", "pays for small batches"),
    row(9, "09-qkv.md", "Queries, keys and values", "one pass"),
    row(10, "10-softmax.md", "Softmax", "2–3 ×"),
    row(11, "11-attention.md", "Attention", "8 kernels become 1, 2–4 ×"),
    row(12, "12-convolution.md", "Convolution with BatchNorm or bias and activation", "–"),
    row(13, "13-folding.md", "Scales, clips, quantisers, folded BatchNorm", "–"),
    row(14, "14-layernorm-int8.md", "LayerNorm that quantises", "2.5–3 ×"),
    row(15, "15-experts-int8.md", "Experts in int8", "4 kernels become 1, 3–4 ×"),
    row(16, "16-sublayer.md", "A whole sub-layer", "8 launches become 1"),
];

/// The devices that were measured: the title of a column, and its file.
const MEASURED: &[(&str, &str)] = &[("CPU", "gallery-cpu.json"), ("H200", "gallery-h200.json")];

/// What was measured on a device.
struct Measured {
    title: &'static str,
    file: &'static str,
    told: Value,
}

impl Measured {
    fn read(root: &Path, (title, file): (&'static str, &'static str)) -> Result<Measured> {
        let path = root.join("bench/results").join(file);
        let text = std::fs::read_to_string(&path).map_err(|e| Error::invalid(e.to_string()));
        let told = text.and_then(|text| serde_json::from_str(&text).map_err(|e| Error::invalid(e.to_string())));
        Ok(Measured { title, file, told: told.at(|| path.display().to_string())? })
    }

    fn of(&self, entry: &Entry) -> Option<&Value> {
        self.told["rows"].as_array()?.iter().find(|row| row["name"] == entry.name && row["fused"].is_object())
    }
}

/// The plans that are measured, from none to all fusion.
const PLANS: [(&str, &str); 3] =
    [("per_primitive", "one kernel per primitive"), ("per_node", "one kernel per node"), ("fused", "fused")];

/// Every page, by the name of its file.
pub fn pages(root: &Path) -> Result<Vec<(String, String)>> {
    let measured = MEASURED.iter().map(|device| Measured::read(root, *device)).collect::<Result<Vec<_>>>()?;
    let mut pages = vec![("README.md".to_owned(), index(&measured))];
    for row in ROWS {
        pages.push((row.file.to_owned(), page(row, &measured)?));
    }
    Ok(pages)
}

const NOTE: &str = "<!-- Made by `BLESS=1 cargo test -p fuseline-tests --test kernel_gallery`; what it says of kernels is what is emitted. -->";

fn entries(row: &Row) -> impl Iterator<Item = &'static Entry> {
    let number = row.number;
    gallery::all().filter(move |entry| entry.row == number)
}

/// The table of everything.
fn index(measured: &[Measured]) -> String {
    let mut text = format!(
        "# Kernel gallery\n\n{NOTE}\n\nWhat the operations that fusion is for become: for each the kernel in the language of kernels \
         ([docs/tile.md](../tile.md)), the CUDA C++ that is made of it, what it moves, and what that gains. `fuseline kernels gallery:NAME \
         --emit cuda` shows the same for other sizes, `fuseline bench gallery:NAME` measures it here.\n\n"
    );
    for device in measured {
        let say = |key: &str| device.told[key].as_str().unwrap_or("?").to_owned();
        let _ = writeln!(
            text,
            "- {}: {}, {}; {}, commit {}; `{}` ([{}](../../bench/results/{}))",
            device.title,
            say("machine"),
            say("dtype"),
            say("date"),
            say("commit"),
            say("command"),
            device.file,
            device.file
        );
    }
    text.push_str(
        "\nTimes are medians: one kernel per node of the model → fused, and how much faster that is; where one node is all there is, \
         the first is one kernel per primitive. The last column is what texts on fusion claim for the row.\n\n",
    );
    let titles: String = measured.iter().map(|device| format!(" {} | traffic |", device.title)).collect();
    let _ = writeln!(text, "| row | entry | kernels |{titles} claimed |");
    let _ = writeln!(text, "|---|---|---|{} --- |", " --- | --- |".repeat(measured.len()));
    for row in ROWS {
        for entry in entries(row) {
            let cells: String = measured.iter().map(|device| summary(device.of(entry))).collect();
            let kernels = measured.iter().find_map(|device| device.of(entry)).map_or("–".into(), |told| {
                format!("{} → {}", told[before(told)]["kernels"], told["fused"]["kernels"])
            });
            let _ = writeln!(
                text,
                "| {} | [{}]({}#{}) | {kernels} |{cells} {} |",
                row.number, entry.name, row.file, entry.name, row.claim
            );
        }
    }
    text
}

/// The plan that a fused one is compared with: where operators are fused within themselves only, that of the primitives.
fn before(told: &Value) -> &'static str {
    if told["per_node"]["kernels"] == told["fused"]["kernels"] { "per_primitive" } else { "per_node" }
}

fn summary(told: Option<&Value>) -> String {
    let Some(told) = told else { return " not measured | – |".into() };
    let (old, new) = (&told[before(told)], &told["fused"]);
    let number = |value: &Value, key: &str| value[key].as_f64().unwrap_or(f64::NAN);
    let gain = number(old, "us") / number(new, "us");
    let moved = |value: &Value| bytes(number(value, "bytes"));
    format!(
        " {} → {} ({gain:.2} ×) | {} → {} |",
        time(number(old, "us")),
        time(number(new, "us")),
        moved(old),
        moved(new)
    )
}

fn page(row: &Row, measured: &[Measured]) -> Result<String> {
    let mut text = format!("# {}. {}\n\n{NOTE}\n\n[All rows](README.md)\n", row.number, row.title);
    for entry in entries(row) {
        let _ = write!(text, "\n## {}\n\n`{}`\n", entry.name, entry.doc);
        for device in measured {
            text.push_str(&times(device, entry));
        }
        text.push_str(&kernels(entry).at(|| entry.name)?);
    }
    Ok(text)
}

/// What was measured of an entry on a device.
fn times(device: &Measured, entry: &Entry) -> String {
    let dtype = device.told["dtype"].as_str().unwrap_or("?");
    let Some(told) = device.of(entry) else { return format!("\n{}: not measured.\n", device.title) };
    let sizes: Vec<String> =
        told["sizes"].as_object().into_iter().flatten().map(|(name, size)| format!("{name}={size}")).collect();
    let mut text =
        format!("\n| {}, {dtype}, {} | kernels | traffic | time |\n|---|---|---|---|\n", device.title, sizes.join(","));
    for (key, title) in PLANS {
        let plan = &told[key];
        let number = |key: &str| plan[key].as_f64().unwrap_or(f64::NAN);
        let _ =
            writeln!(text, "| {title} | {} | {} | {} |", plan["kernels"], bytes(number("bytes")), time(number("us")));
    }
    text
}

/// The kernels of an entry as planned for an H200.
fn kernels(entry: &Entry) -> Result<String> {
    let mut env = Env::new();
    for (name, size) in entry.sizes {
        env.bind(Symbol::name(name), *size);
    }
    let spec = DeviceSpec::find("h200")?;
    let mut options = PlanOptions::on(spec);
    options.hints.env = env.clone();
    let planned = plan_program(entry.graph(DType::F32)?, &options, &mut |_| {})?;
    let explanation = Explanation::of(&planned, &options)?;
    let mut text = String::new();
    for (kernel, row) in planned.run.kernels.iter().zip(&explanation.run.kernels) {
        if let Schedule::Host(_) = kernel.kernel.schedule {
            continue;
        }
        let _ = write!(text, "\n{}:\n\n```\n{}\n```\n", row.pattern, kernel.kernel.to_string().trim_end());
        let source = cuda(&kernel.kernel, entry.name, &env)?;
        let lines = source.lines().count();
        let _ = write!(
            text,
            "\n<details><summary>The same as CUDA C++, {lines} lines</summary>\n\n```cuda\n{}\n```\n\n</details>\n",
            source.trim_end()
        );
    }
    Ok(text)
}

/// A kernel as CUDA C++, for the sizes that it is better made for.
fn cuda(kernel: &Kernel, name: &str, env: &Env) -> Result<String> {
    let fixed = sizes_to_fix(kernel).into_iter().filter_map(|symbol| Some((symbol.clone(), env.get(&symbol)?)));
    let options = print::Options {
        name: name.to_owned(),
        fixed: fixed.collect(),
        about: print::sizes_about(kernel, env),
        wide: false,
        groups: true,
        asked: print::Asked::Nothing,
        processors: 132,
    };
    Ok(print::print(kernel, &options)?.source())
}

/// Microseconds in words, three digits.
fn time(us: f64) -> String {
    if us >= 1000.0 { format!("{} ms", digits(us / 1000.0)) } else { format!("{} µs", digits(us)) }
}

/// Bytes in words, three digits.
fn bytes(bytes: f64) -> String {
    match bytes {
        b if b >= 1e9 => format!("{} GB", digits(b / 1e9)),
        b if b >= 1e6 => format!("{} MB", digits(b / 1e6)),
        b => format!("{} kB", digits(b / 1e3)),
    }
}

fn digits(x: f64) -> String {
    let places = if x >= 100.0 {
        0
    } else if x >= 10.0 {
        1
    } else {
        2
    };
    format!("{x:.places$}")
}
