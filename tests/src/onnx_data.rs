//! The official ONNX test data: fetched once from the package that ships it, then read from disk.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The release that ships the node tests as data; later ones do not.
pub const ONNX_VERSION: &str = "1.22.0";

/// The folder that holds `node`, `simple`, `pytorch-operator` and `pytorch-converted`, fetched if it is not there.
pub fn folder() -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the tests crate lies in the workspace")
        .join("target/onnx-data");
    let data = root.join(format!("{ONNX_VERSION}/onnx/backend/test/data"));
    if data.join("node").is_dir() {
        return Ok(data);
    }
    let wheels = root.join("wheel");
    std::fs::create_dir_all(&wheels).map_err(|e| format!("{}: {e}", wheels.display()))?;
    eprintln!("fetching the test data of onnx {ONNX_VERSION} …");
    let package = format!("onnx=={ONNX_VERSION}");
    let arguments = ["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest"];
    run(Command::new("python3").args(arguments).arg(&wheels).arg(&package))?;
    let wheel = std::fs::read_dir(&wheels).map_err(|e| e.to_string())?.flatten().map(|f| f.path());
    let wheel = wheel.filter(|p| p.extension().is_some_and(|e| e == "whl")).max().ok_or("pip brought no wheel")?;
    // Unpacked beside and renamed, so that an interrupted run leaves nothing half done.
    let unpacked = root.join(format!("{ONNX_VERSION}.{}", std::process::id()));
    run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&unpacked))?;
    let target = root.join(ONNX_VERSION);
    if std::fs::rename(&unpacked, &target).is_err() {
        // Another test process was faster.
        std::fs::remove_dir_all(&unpacked).map_err(|e| e.to_string())?;
    }
    if data.join("node").is_dir() { Ok(data) } else { Err(format!("no node tests in {}", data.display())) }
}

fn run(command: &mut Command) -> Result<(), String> {
    let done = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if done.status.success() { Ok(()) } else { Err(format!("{command:?}: {}", String::from_utf8_lossy(&done.stderr))) }
}
