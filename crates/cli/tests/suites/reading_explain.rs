//! `docs/reading-explain.md` shows what the command prints. `BLESS=1` rewrites its transcripts.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder of this test, empty.
fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("reading-explain");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// What a line of a transcript prints, in the folder.
fn printed(command: &str, folder: &Path) -> String {
    let mut words = command.split(' ');
    let program = match words.next() {
        Some("fuseline") => env!("CARGO_BIN_EXE_fuseline"),
        Some(other @ ("cat" | "diff")) => other,
        other => panic!("{other:?} is no command of this page"),
    };
    let done = Command::new(program).args(words).current_dir(folder).output().unwrap();
    assert!(done.stderr.is_empty(), "{command}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn transcripts_are_what_the_command_prints() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reading-explain.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let folder = folder();
    let is_blessing = std::env::var_os("BLESS").is_some();
    let mut commands = 0;
    let mut parts: Vec<String> = page.split("```\n").map(str::to_string).collect();
    for block in parts.iter_mut().skip(1).step_by(2) {
        let mut whole = String::new();
        for command in block.lines().filter_map(|line| line.strip_prefix("$ ")) {
            whole.push_str(&format!("$ {command}\n{}", printed(command, &folder)));
            commands += 1;
        }
        assert!(is_blessing || *block == whole, "the page has\n{block}\nbut printed is\n{whole}");
        *block = whole;
    }
    assert!(commands >= 8);
    if is_blessing {
        std::fs::write(&path, parts.join("```\n")).unwrap();
    }
}
