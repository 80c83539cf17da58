//! Files that the command writes: whole or not at all, where they were asked for, and never over what is read.
#![cfg(unix)]

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const FUSELINE: &str = env!("CARGO_BIN_EXE_fuseline");

fn fuseline(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(FUSELINE).current_dir(folder).args(arguments).output().unwrap()
}

fn message(done: &Output) -> String {
    String::from_utf8(done.stderr.clone()).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_is_read_is_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let graph = fuseline(folder, &["inspect", "gallery:softmax", "--graph"]).stdout;
    std::fs::write(folder.join("me.ir"), &graph).unwrap();
    let tile = "kernel twice(x: f32[n]) -> y: f32[n] {\n  y = x + x\n}\n";
    std::fs::write(folder.join("me.tile"), tile).unwrap();
    for arguments in [
        &["run", "me.ir", "--outputs", "me.ir"][..],
        &["report", "me.ir", "-o", "./me.ir"],
        &["explain", "me.ir", "--lock", "me.ir"],
        &["roofline", "me.ir", "--target", "h200", "--svg", "me.ir"],
        &["kernel", "me.tile", "run", "--outputs", "me.tile"],
    ] {
        let done = fuseline(folder, arguments);
        assert_eq!(done.status.code(), Some(2), "{arguments:?}");
        assert!(message(&done).contains("would be overwritten"), "{}", message(&done));
    }
    assert_eq!(std::fs::read(folder.join("me.ir")).unwrap(), graph);
    assert_eq!(std::fs::read_to_string(folder.join("me.tile")).unwrap(), tile);
    assert_eq!(names(folder), ["me.ir", "me.tile"]);
}

/// Opening one would wait for somebody who writes into it.
#[test]
fn a_pipe_is_no_model() {
    let folder = tempfile::tempdir().unwrap();
    assert!(Command::new("mkfifo").arg(folder.path().join("pipe.onnx")).status().unwrap().success());
    for command in ["inspect", "explain", "run"] {
        let limited = format!("exec timeout 20 {FUSELINE} {command} pipe.onnx");
        let done = Command::new("sh").args(["-c", &limited]).current_dir(folder.path()).output().unwrap();
        assert_eq!(done.status.code(), Some(2), "{command}: {}", message(&done));
        assert!(message(&done).contains("not a regular file"), "{}", message(&done));
    }
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let run = "run gallery:add_gelu --sizes n=50k --device reference --quiet --outputs y.npz";
    for arguments in [run, "report gallery:softmax --sizes rows=2,columns=2 --no-run --target h200 -q -o y.html"] {
        let limited = format!("ulimit -f 20; exec {FUSELINE} {arguments}");
        let done = Command::new("sh").args(["-c", &limited]).current_dir(folder.path()).output().unwrap();
        assert_eq!(done.status.code(), Some(1), "{:?} {}", done.status, message(&done));
        assert!(message(&done).contains("larger than files may be"), "{}", message(&done));
        assert!(!message(&done).contains("ZipWriter"), "{}", message(&done));
        assert!(names(folder.path()).is_empty(), "{:?}", names(folder.path()));
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_told_as_such() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [
        &["run", "gallery:add_gelu", "--sizes", "n=50k", "--device", "reference", "--quiet", "--outputs", "/dev/full"]
            [..],
        &["explain", "gallery:add_gelu", "--lock", "/dev/full"],
    ] {
        let done = fuseline(folder.path(), arguments);
        assert_eq!(done.status.code(), Some(1));
        let message = message(&done);
        assert!(message.contains("why: the disk is full") && message.contains("free some space"), "{message}");
        assert!(!message.contains("ZipWriter"), "{message}");
    }
}

#[test]
fn a_signal_leaves_nothing_half_written() {
    let mut signals = vec!["INT", "TERM"];
    if has_nameless_files(tempfile::tempdir().unwrap().path()) {
        signals.push("KILL");
    }
    for signal in signals {
        for milliseconds in [5, 30, 60, 120, 250, 500] {
            let folder = tempfile::tempdir().unwrap();
            let mut child = Command::new(FUSELINE)
                .args(["run", "gallery:add_gelu", "--sizes", "n=200k", "--device", "reference", "--quiet"])
                .args(["--outputs", "y.npz"])
                .current_dir(folder.path())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(Duration::from_millis(milliseconds));
            let is_sent = send(signal, &child);
            let status = child.wait().unwrap();
            assert!(status.success() || is_sent && status.signal().is_some(), "{status:?}");
            let left = names(folder.path());
            assert!(left.iter().all(|name| name == "y.npz"), "{signal} after {milliseconds} ms: {left:?}");
        }
    }
}

/// Whether files in a folder need no name while they are written, in the words of Linux on most processors.
fn has_nameless_files(folder: &Path) -> bool {
    use std::os::unix::fs::OpenOptionsExt as _;

    const TMPFILE: i32 = 0o20_200_000;
    let is_known = cfg!(all(target_os = "linux", target_arch = "x86_64"));
    is_known && std::fs::OpenOptions::new().write(true).custom_flags(TMPFILE).open(folder).is_ok()
}

#[test]
fn who_may_read_a_file_stays() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("a.plan");
    let lock = || fuseline(folder.path(), &["explain", "gallery:add_gelu", "--lock", "a.plan"]);
    assert!(lock().status.success());
    std::fs::set_permissions(&plan, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert!(lock().status.success());
    assert_eq!(std::fs::metadata(&plan).unwrap().permissions().mode() & 0o777, 0o600);
}

/// Sends a signal by the shell, which needs no program for it.
fn send(signal: &str, to: &Child) -> bool {
    Command::new("sh").args(["-c", &format!("kill -s {signal} {}", to.id())]).status().unwrap().success()
}

/// The signal that interrupts: one that whoever runs the tests ignores, as a script does in the background, is ignored by what they start.
fn interrupting() -> (&'static str, i32) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = mask.map_or(0, |mask| u64::from_str_radix(mask.trim(), 16).unwrap());
    let is_ignored = |signal: i32| ignored >> (signal - 1) & 1 == 1;
    if is_ignored(2) { ("TERM", 15) } else { ("INT", 2) }
}

/// Whether a command that is at work ends soon after it is interrupted, by the signal, and leaves nothing.
fn interrupt(folder: &Path, arguments: &[&str]) {
    let before = names(folder);
    let mut child = Command::new(FUSELINE)
        .args(arguments)
        .current_dir(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(400));
    assert!(child.try_wait().unwrap().is_none(), "{arguments:?} ends too soon to be interrupted");
    let start = Instant::now();
    let (name, signal) = interrupting();
    assert!(send(name, &child));
    let status = child.wait().unwrap();
    assert!(start.elapsed() < Duration::from_secs(2), "{arguments:?}: {:?}", start.elapsed());
    assert_eq!(status.signal(), Some(signal), "{arguments:?}: {status:?}");
    assert_eq!(names(folder), before, "{arguments:?}");
}

#[test]
fn an_interrupt_ends_reading_compiling_and_running() {
    let folder = tempfile::tempdir().unwrap();
    // Far more steps than are read in the time, none of which is like another.
    let mut text = String::from("graph long(x: f32[8]) {\n");
    let steps = (1..200_000).map(|k| {
        let before = if k == 1 { "x".to_owned() } else { format!("%{}", k - 1) };
        format!("  %{k} = map({before}) sin(a + {k}.5) : f32[8]\n")
    });
    text.extend(steps);
    text.push_str("  return y = %199999\n}\n");
    std::fs::write(folder.path().join("long.ir"), text).unwrap();
    interrupt(folder.path(), &["explain", "long.ir", "--lock", "plan.txt"]);
    interrupt(folder.path(), &["run", "long.ir", "--outputs", "y.npz"]);
    interrupt(folder.path(), &["report", "long.ir", "-o", "y.html"]);
    // Little memory, and work without end.
    let sums = "graph sums(x: f32[n], y: f32[n]) {
  %2 = view x[i0] : f32[n, n]
  %3 = view y[i1] : f32[n, n]
  %4 = map(%2, %3) sin(a + b) : f32[n, n]
  %5 = reduce.sum %4 axes=[1] : f32[n]
  return s = %5
}
";
    let products = "graph products(x: f32[m], y: f32[n]) {
  %2 = view x[i0] : f32[m, n]
  %3 = view y[i0] : f32[n, m]
  %4 = contract(%2, %3) \"ab,bc->ac\" acc=f32 : f32[m, m]
  return p = %4
}
";
    std::fs::write(folder.path().join("sums.ir"), sums).unwrap();
    std::fs::write(folder.path().join("products.ir"), products).unwrap();
    for (graph, device) in [("sums.ir", "cpu"), ("sums.ir", "interp"), ("products.ir", "reference")] {
        let sizes = if graph == "sums.ir" { "n=1M" } else { "m=2k,n=1M" };
        interrupt(folder.path(), &["run", graph, "--device", device, "--sizes", sizes, "--outputs", "y.npz"]);
    }
}

#[test]
fn a_place_that_takes_no_file_is_told_before_the_work() {
    let folder = tempfile::tempdir().unwrap();
    let start = Instant::now();
    for arguments in [&["demo", "--output", "missing/report.html"][..], &["demo", "--output", "."]] {
        let done = fuseline(folder.path(), arguments);
        assert!(done.status.code() == Some(2) && done.stdout.is_empty(), "{}", message(&done));
        assert!(message(&done).contains("cannot be written"), "{}", message(&done));
    }
    assert!(start.elapsed() < Duration::from_secs(60), "nothing was run");
    // Nobody can know of this one: what was seen is told all the same.
    #[cfg(target_os = "linux")]
    {
        let quick = ["demo", "--sizes", "tokens=2", "--iters", "1", "--threads", "1", "--output", "/dev/full"];
        let done = fuseline(folder.path(), &quick);
        assert_eq!(done.status.code(), Some(1), "{}", message(&done));
        assert!(String::from_utf8(done.stdout).unwrap().contains("everything agrees"));
    }
}

#[test]
fn what_is_written_has_a_name_that_says_so() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, help) in [
        (&["roofline", "--target", "h200", "--svg", "a.png"][..], "call it a.svg"),
        (&["roofline", "--target", "h200", "--png", "a.svg"], "call it a.png"),
        (&["run", "gallery:softmax", "--outputs", "y.npy"], "call it y.npz"),
        (&["report", "gallery:softmax", "--no-run", "-o", "page.pdf"], "call it page.html"),
        (&["explain", "gallery:softmax", "--lock", "net.onnx"], "give it another name"),
    ] {
        let done = fuseline(folder.path(), arguments);
        assert_eq!(done.status.code(), Some(2), "{arguments:?}");
        assert!(message(&done).contains(help), "{arguments:?}: {}", message(&done));
    }
    assert!(names(folder.path()).is_empty(), "{:?}", names(folder.path()));
}

#[test]
#[cfg(target_os = "linux")]
fn a_folder_that_takes_no_case_is_told_before_the_search() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    for case in ["/proc/case", "file", "file/case"] {
        // A search that would take hours.
        let start = Instant::now();
        let search = ["bisect", "gallery:matmul_bn", "--sizes", "m=4000,k=4000,n=4000", "--case", case];
        let done = fuseline(folder.path(), &search);
        assert!(done.status.code() == Some(2) && message(&done).contains("cannot be written"), "{}", message(&done));
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    }
}

/// Nothing can be done against this signal: what was asked for is whole or not there all the same.
#[test]
fn a_killed_command_leaves_no_half_of_what_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let before = b"what was there before";
    let files = ["y.npz", "y.html", "y.svg", "y.png", "y.plan"];
    files.iter().for_each(|name| std::fs::write(folder.path().join(name), before).unwrap());
    for arguments in [
        &["run", "gallery:add_gelu", "--sizes", "n=3M", "--outputs", "y.npz"][..],
        &["report", "gallery:softmax", "--iters", "1", "-o", "y.html"],
        &["roofline", "gallery:softmax", "--target", "h200", "--svg", "y.svg", "--png", "y.png"],
        &["explain", "gallery:layernorm_gelu", "--lock", "y.plan"],
    ] {
        for wait in [5, 40, 150, 400] {
            let command = Command::new(FUSELINE)
                .args(arguments)
                .current_dir(folder.path())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            let mut child = command.unwrap();
            std::thread::sleep(Duration::from_millis(wait));
            child.kill().unwrap();
            child.wait().unwrap();
            for name in files {
                let found = std::fs::read(folder.path().join(name)).unwrap();
                let ends: &[u8] = match name {
                    "y.html" => b"</html>\n",
                    "y.svg" => b"</svg>\n",
                    "y.png" => b"IEND\xae\x42\x60\x82",
                    // The end of an archive that has no comment.
                    "y.npz" => b"\0\0",
                    _ => b"\n",
                };
                assert!(found == before || found.ends_with(ends), "{name} after {wait} ms has {} bytes", found.len());
            }
        }
    }
}
