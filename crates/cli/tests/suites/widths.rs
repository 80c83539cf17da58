//! What is printed fits the terminal, whatever its width.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// What is run, for each command at least once, on the smallest that shows all its tables.
const CASES: &[&[&str]] = &[
    &["gallery"],
    &["doctor"],
    &["inspect", "demo:encoder"],
    &["inspect", "demo:opt", "--sizes", "batch=1,tokens=8"],
    &["inspect", "gallery:conv_bn_relu"],
    &["run", "gallery:layernorm_gelu", "--sizes", "rows=2,columns=8"],
    &["explain", "gallery:transformer_sublayer", "--target", "h200"],
    &["explain", "gallery:masked_attention", "--target", "here", "--numerics", "strict"],
    &["explain", "gallery:transformer_sublayer", "--sizes", "tokens=8,features=16", "--analyze", "--iters", "1"],
    &["bench", "gallery:transformer_sublayer", "--sizes", "tokens=8,features=16", "--iters", "1", "--kernels"],
    &["bench", "gallery:add_gelu", "--sizes", "1k,2k", "--iters", "1"],
    &["verify", "gallery:transformer_sublayer", "--sizes", "tokens=8,features=16"],
    &["bisect", "gallery:softmax", "--sizes", "rows=2,columns=8"],
    &["analyze", "examples/layer.json"],
    &["analyze", "examples/layernorm_gelu.json"],
    &["roofline", "gallery:transformer_sublayer", "--target", "h200"],
    &["roofline", "--target", "cpu"],
    &["kernel", "examples/softmax.tile", "check"],
    &["kernel", "examples/softmax.tile", "run"],
    &["kernel", "examples/softmax.tile", "bench", "--iters", "1"],
    &["compare", "MODEL", "--rounds", "1", "--iters", "1", "--threads", "1"],
    &["report", "gallery:softmax", "--no-run", "-o", "PAGE"],
    &["demo", "--sizes", "tokens=4", "--iters", "1", "--no-report"],
];

/// Commands that print code, whose lines are as long as they are.
const CODE: [&str; 2] = ["kernels", "completions"];

/// What a command prints on a terminal of so many columns, notes too.
fn printed(arguments: &[&str], width: usize, folder: &Path) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let model = root.join("tests/models/structure/bert_tiny.legacy.onnx");
    let page = folder.join("page.html");
    let arguments = arguments.iter().map(|word| match *word {
        "MODEL" => model.as_os_str(),
        "PAGE" => page.as_os_str(),
        word => word.as_ref(),
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_fuseline"));
    let command = command.args(arguments).current_dir(&root).env("COLUMNS", width.to_string());
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    [done.stdout, done.stderr].map(|text| String::from_utf8(text).unwrap()).concat()
}

/// The words of the list of commands in the help of the whole command.
fn commands(help: &str) -> BTreeSet<String> {
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let first = list.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    first.filter_map(|line| line.split_whitespace().next()).map(String::from).collect()
}

#[test]
fn every_command_fits_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let mut missing = commands(&printed(&["--help"], 80, folder.path()));
    missing.retain(|command| CASES.iter().all(|case| case[0] != command));
    CODE.into_iter().chain(["help"]).for_each(|name| assert!(missing.remove(name), "{name}"));
    assert!(missing.is_empty(), "without a case: {missing:?}");
    for case in CASES {
        // The longest is run once, where it is hardest.
        let widths: &[usize] = if case[0] == "demo" { &[40] } else { &[20, 30, 40, 60, 80, 120] };
        for width in widths {
            let text = printed(case, *width, folder.path());
            for line in text.lines() {
                let columns = line.chars().count();
                // The name of a file or model is as long as it is.
                let names =
                    [folder.path().to_str().unwrap(), "bert_tiny.legacy.onnx", case.get(1).unwrap_or(&"doctor")];
                let is_fixed = names.iter().any(|name| line.contains(name));
                assert!(columns <= *width || is_fixed, "{case:?} at {width} takes {columns}:\n{text}");
            }
        }
    }
}

#[test]
fn help_fits_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    for command in commands(&printed(&["--help"], 80, folder.path())) {
        for width in [60, 80, 120] {
            let text = printed(&["help", &command], width, folder.path());
            // Examples are commands to copy.
            let long =
                text.lines().find(|line| line.chars().count() > width && !line.trim_start().starts_with("fuseline "));
            assert!(long.is_none(), "help of {command} at {width}: {long:?}");
        }
    }
}
