//! The README shows what the command prints. `BLESS=1` rewrites its `inspect` and `explain` transcripts.

use std::path::Path;
use std::process::Command;

#[test]
fn transcripts_are_what_the_command_prints() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let mut readme = std::fs::read_to_string(&path).unwrap();
    let mut checked = 0;
    for block in readme.clone().split("```\n").skip(1).step_by(2) {
        let Some(command) = block.lines().next().and_then(|line| line.strip_prefix("$ fuseline ")) else { continue };
        if command.contains("x.npz") {
            continue; // needs a file
        }
        let arguments: Vec<&str> = command.split(' ').collect();
        let done = Command::new(env!("CARGO_BIN_EXE_fuseline")).args(&arguments).output().unwrap();
        let printed = String::from_utf8(done.stdout).unwrap();
        let wanted = format!("$ fuseline {command}\n{printed}");
        let is_fixed = ["inspect", "explain"].contains(&arguments[0]);
        if is_fixed && std::env::var_os("BLESS").is_some() {
            readme = readme.replace(block, &wanted);
        } else if is_fixed {
            assert_eq!(block, wanted);
        } else {
            // Notes and the time it took stand before what is printed.
            assert!(block.ends_with(&printed), "{block}\nbut printed:\n{printed}");
        }
        checked += 1;
    }
    assert!(checked >= 3);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, readme).unwrap();
    }
}
