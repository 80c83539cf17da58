//! The official ONNX tests against two lists: `onnx/passing.txt` (must pass) and `onnx/gaps.txt` (does not pass yet, with
//! the reason). Every test stands in exactly one of them; a gap that passes fails the suite, so the lists cannot rot.
//! What must pass, must pass planned too, on the interpreter of kernels and on this processor.
//! `BLESS=1` rewrites both from what happens; a reason in brackets was written by hand and is kept. `docs/conformance.md` follows from
//! them, and from the tables of operators; it is rewritten too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use fuseline::device::DeviceSpec;
use fuseline::error::Context as _;
use fuseline::fuse::{Chooser, PlanOptions};
use fuseline::passes::Numerics;
use fuseline::philox;
use fuseline_cpu::code::Isa;
use fuseline_tests::operators::{self, Test};
use fuseline_tests::{node_test, onnx_data};
use libtest_mimic::{Arguments, Failed, Trial};

const SUITES: &[&str] = &["node", "simple", "pytorch-operator", "pytorch-converted"];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let data = match onnx_data::folder() {
        Ok(data) => data,
        Err(why) => {
            eprintln!("the ONNX test data could not be fetched: {why}");
            return ExitCode::FAILURE;
        }
    };
    if std::env::var_os("BLESS").is_some() {
        return bless(&data);
    }
    let (passing, gaps) = (read_list("passing.txt"), read_list("gaps.txt"));
    let mut trials = Vec::new();
    for (name, folder) in tests(&data) {
        let gap = gaps.get(&name).cloned();
        let listed = passing.contains_key(&name);
        if listed {
            let (name, folder) = (name.clone(), folder.clone());
            let (other, its) = (name.clone(), folder.clone());
            trials.push(Trial::test(format!("cpu/{name}"), move || check_processor(&other, &its)));
            trials.push(Trial::test(format!("planned/{name}"), move || check_planned(&name, &folder)));
        }
        trials.push(Trial::test(name, move || check(&folder, listed, gap)));
    }
    let known: std::collections::HashSet<String> = tests(&data).into_iter().map(|(name, _)| name).collect();
    let unknown: Vec<String> = passing.keys().chain(gaps.keys()).filter(|n| !known.contains(*n)).cloned().collect();
    trials.push(Trial::test("lists_name_only_tests_that_exist", move || {
        if unknown.is_empty() { Ok(()) } else { Err(format!("no such tests: {unknown:?}").into()) }
    }));
    trials.push(Trial::test("the_page_says_what_is_there", move || {
        let written = std::fs::read_to_string(page_path()).unwrap_or_default();
        let differs = "docs/conformance.md is not what the tables and lists say (BLESS=1 writes it again)";
        if written == page(&data)? { Ok(()) } else { Err(differs.into()) }
    }));
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn check(folder: &Path, listed: bool, gap: Option<String>) -> Result<(), Failed> {
    let outcome = attempt(folder);
    match (outcome, listed, gap) {
        (_, true, Some(_)) => Err("listed as passing and as a gap".into()),
        (Ok(()), true, None) | (Err(_), false, Some(_)) => Ok(()),
        (Err(why), true, None) => Err(why.into()),
        (Ok(()), false, Some(reason)) => Err(format!("passes now; its gap was: {reason}").into()),
        (Ok(()), false, None) => Err("passes but is in no list".into()),
        (Err(why), false, None) => Err(format!("is in no list and fails: {why}").into()),
    }
}

/// The outcome of a test; a panic is a failure like any other, and a bug.
fn attempt(folder: &Path) -> Result<(), String> {
    let outcome = std::panic::catch_unwind(|| node_test::run(folder));
    let outcome = outcome.unwrap_or_else(|_| Err(fuseline::error::Error::bug("panic")));
    outcome.map_err(|error| error.to_string().replace(&*folder.to_string_lossy(), "…"))
}

/// What passes on the reference passes planned: by cost and by chance, with real algebra and without. Which device is planned for,
/// and what chance says, follows from the name of the test.
fn check_planned(name: &str, folder: &Path) -> Result<(), Failed> {
    let number = name.bytes().fold(0, |hash: u64, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let draw = philox::word(0, 0, number);
    let devices: Vec<&str> = DeviceSpec::names().collect();
    let usual = PlanOptions::on(DeviceSpec::find(devices[draw as usize % devices.len()])?);
    for numerics in [Numerics::Default, Numerics::Strict] {
        for chooser in [Chooser::ByCost, Chooser::AtRandom(u64::from(draw))] {
            let options = PlanOptions { numerics, chooser, ..usual.clone() };
            let place = || format!("{numerics:?}, {:?} on {}", options.chooser, options.spec.name);
            node_test::run_planned(folder, &options).at(place)?;
        }
    }
    Ok(())
}

/// What passes on the reference passes on this processor, on the instruction set that follows from the name of the test.
fn check_processor(name: &str, folder: &Path) -> Result<(), Failed> {
    let all = Isa::available().filter(|isa| *isa != Isa::Amx);
    let isas: Vec<Isa> = all.collect();
    let isa = isas[name.len() % isas.len()];
    let options = PlanOptions::on(DeviceSpec::find("cpu")?);
    Ok(node_test::run_on_processor(folder, &options, isa).at(|| format!("{isa:?}"))?)
}

/// All tests, `suite/name`, in order.
fn tests(data: &Path) -> Vec<(String, PathBuf)> {
    let mut all = Vec::new();
    for suite in SUITES {
        let folders = std::fs::read_dir(data.join(suite)).into_iter().flatten().flatten().map(|e| e.path());
        for folder in folders.filter(|f| f.join("model.onnx").is_file()) {
            let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            all.push((format!("{suite}/{name}"), folder));
        }
    }
    all.sort();
    all
}

fn page_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/conformance.md")
}

/// What `docs/conformance.md` has to say.
fn page(data: &Path) -> Result<String, String> {
    let (passing, gaps) = (read_list("passing.txt"), read_list("gaps.txt"));
    let tests: Vec<Test> = tests(data)
        .into_iter()
        .map(|(name, folder)| Test { passes: passing.contains_key(&name), name, folder })
        .collect();
    operators::page(&onnx_data::definitions()?, &tests, &gaps)
}

fn list_path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("onnx").join(file)
}

/// Lines `name` or `name: reason`.
fn read_list(file: &str) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(list_path(file)).unwrap_or_default();
    let lines = text.lines().filter(|l| !l.is_empty() && !l.starts_with('#'));
    lines
        .map(|l| l.split_once(": ").map_or((l.to_string(), String::new()), |(n, r)| (n.to_string(), r.to_string())))
        .collect()
}

fn bless(data: &Path) -> ExitCode {
    std::panic::set_hook(Box::new(|_| {}));
    let tests = Arc::new(Mutex::new(tests(data)));
    let results = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let Some((name, folder)) = tests.lock().expect("no test holds the lock").pop() else { return };
                    let outcome = attempt(&folder);
                    results.lock().expect("no test holds the lock").insert(name, outcome);
                }
            });
        }
    });
    let results = results.into_inner().expect("all threads are done");
    let by_hand: BTreeMap<String, String> =
        read_list("gaps.txt").into_iter().filter(|(_, r)| r.starts_with('[')).collect();
    let mut passing =
        String::from("# Official ONNX tests that must pass on the reference device. Rewritten by BLESS=1.\n");
    let mut gaps = String::from(
        "# Official ONNX tests that do not pass yet, and why. A gap that passes fails the suite. Rewritten by BLESS=1.\n",
    );
    for (name, outcome) in &results {
        match outcome {
            Ok(()) => passing += &format!("{name}\n"),
            Err(why) => {
                let why = by_hand.get(name).unwrap_or(why);
                gaps += &format!("{name}: {}\n", why.split_whitespace().collect::<Vec<_>>().join(" "));
            }
        }
    }
    let count = results.values().filter(|r| r.is_ok()).count();
    for (file, text) in [("passing.txt", passing), ("gaps.txt", gaps)] {
        if let Err(error) = std::fs::write(list_path(file), text) {
            eprintln!("{}: {error}", list_path(file).display());
            return ExitCode::FAILURE;
        }
    }
    println!("{count} of {} pass", results.len());
    let written = page(data).and_then(|page| std::fs::write(page_path(), page).map_err(|error| error.to_string()));
    if let Err(why) = written {
        eprintln!("docs/conformance.md: {why}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
