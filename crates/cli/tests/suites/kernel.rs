//! `fuseline kernel` as users see it.

use std::path::Path;

use fuseline::tensor::Literal;
use fuseline_frontend::npz::{Compression, ReadOptions, read_npz, write_npz};
use serde_json::Value;

use super::{failure, fuseline, stdout};

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

pub fn example(name: &str) -> String {
    format!("{}/../../examples/{name}.tile", env!("CARGO_MANIFEST_DIR"))
}

/// What `kernel` prints as JSON.
fn json(file: &str, action: &[&str]) -> Value {
    serde_json::from_str(&stdout(&[&["kernel", file], action, &["--json"]].concat())).unwrap()
}

#[test]
fn every_example_agrees_with_the_interpreter() {
    let sizes = [
        ("softmax", "rows=5,columns=33"),
        ("layernorm_gelu", "rows=6,n=70"),
        ("linear_gelu", "tokens=9,inner=34,outer=21"),
        ("causal_softmax", "heads=2,n=19"),
        ("attention", "heads=2,rows=70,keys=130,d=16,e=24"),
    ];
    for (name, sizes) in sizes {
        let ran = json(&example(name), &["run", "--sizes", sizes]);
        assert_eq!((&ran["agrees"], &ran["device"]), (&Value::Bool(true), &"cpu".into()), "{ran:#}");
        for output in ran["outputs"].as_array().unwrap() {
            assert_eq!(output["nan"], 0, "{ran:#}");
        }
        let checked = json(&example(name), &["check"]);
        assert_eq!(checked["kernel"], name);
    }
}

#[test]
fn products_without_a_schedule_run_as_a_plan_would_run_them() {
    let attention = example("attention");
    assert_eq!(json(&attention, &["check"])["schedule"], "attention");
    let emitted = |arguments: &[&str]| stdout(&[&["kernel", &attention, "emit"], arguments].concat());
    assert!(emitted(&["tile"]).contains("schedule attention") && emitted(&["tile"]).contains("correct %"));
    assert!(emitted(&["cuda", "--sizes", "d=64,e=64"]).contains("schedule attention"));
    // Of two products one of which is inside of the other, a plan makes two kernels: here they are slow, and that is said.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("two.tile").display().to_string();
    let two = "kernel two(x: f32[m, a], w: f32[a, b], u: f32[b, c]) -> y: f32[m, c] { y = dot[b](max(dot[a](x, w), 0.0), u) }";
    std::fs::write(&file, two).unwrap();
    let done = fuseline(&["kernel", &file, "run", "--sizes", "m=3,a=4,b=5,c=6"]);
    assert!(done.status.success() && text(&done.stderr).contains("row by row, which is slow"), "{done:?}");
}

#[test]
fn what_no_device_of_a_form_is_and_what_nobody_waits_for_is_refused() {
    let softmax = example("softmax");
    for (arguments, words) in [
        (&["emit", "cuda", "--target", "avx2"][..], "cuda is not for avx2"),
        (&["emit", "asm", "--target", "h200"], "asm is not for h200"),
        (&["bench", "--iters", "18446744073709551615"], "the most is 10000000"),
        (&["bench", "--warmup", "18446744073709551615"], "the most is 10000000"),
    ] {
        let done = fuseline(&[&["kernel", &softmax], arguments].concat());
        let message = text(&done.stderr);
        assert!(done.status.code() == Some(2) && message.contains(words), "{arguments:?}: {message}");
    }
}

/// What leaves the range of f32 on the way is right: the interpreter computes in f64, and says so where every operation rounds.
#[test]
fn what_leaves_its_range_where_operations_round_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("large.tile").display().to_string();
    let large = "kernel large(x: f32[n]) -> y: f32[n] { y = sqrt(((exp(90.0 * x) * x) * x) * x) + x }";
    std::fs::write(&file, large).unwrap();
    assert_eq!(json(&file, &["run", "--sizes", "n=700"])["agrees"], true);
}

#[test]
fn files_give_inputs_and_take_outputs() {
    let folder = tempfile::tempdir().unwrap();
    let [x, y] = ["x.npz", "y.npz"].map(|name| folder.path().join(name).display().to_string());
    let literal = Literal::f32s(&[0.0, 0.0, 1.0, 1.0]).reshaped([2, 2]).unwrap();
    write_npz(Path::new(&x), [("x", &literal)], Compression::Stored).unwrap();
    let softmax = example("softmax");
    let ran = json(&softmax, &["run", "--inputs", &x, "--outputs", &y]);
    assert_eq!((ran["sizes"]["rows"].as_i64(), ran["sizes"]["columns"].as_i64()), (Some(2), Some(2)));
    let outputs = read_npz(Path::new(&y), &ReadOptions::default()).unwrap();
    assert_eq!(outputs["y"].to_f64s(), [0.5; 4]);
    for (arguments, words) in [
        (&["--inputs", &x, "--sizes", "rows=3"][..], "input \"x\""),
        (&["--sizes", "n=3"], "its free sizes are columns, rows"),
        (&["--device", "reference"], "[possible values: interp, cpu, cuda]"),
    ] {
        let done = fuseline(&[&["kernel", &softmax, "run"], arguments].concat());
        let message = text(&done.stderr);
        assert!(done.status.code() == Some(2) && message.contains(words), "{arguments:?}: {message}");
    }
    let help = |action: &str| stdout(&["kernel", &softmax, action, "--help"]);
    assert!(help("run").contains("- interp:") && !help("run").contains("- reference:"));
    assert!(help("bench").contains("- cuda:") && !help("bench").contains("- interp:"));
}

#[test]
fn kernels_are_measured_against_a_copy() {
    let measured = json(&example("softmax"), &["bench", "--sizes", "rows=64,columns=64", "--iters", "5"]);
    assert!(measured.get("load").is_some() && measured.get("above_copy").is_some(), "{measured:#}");
    assert_eq!(measured["bytes"], 2 * 64 * 64 * 4);
    for field in ["time", "copy"] {
        let number = |name: &str| measured[field][name].as_f64().unwrap();
        assert!(0.0 < number("min_us") && number("min_us") <= number("median_us"), "{measured:#}");
    }
    let words = stdout(&["kernel", &example("softmax"), "bench", "--sizes", "rows=8,columns=8", "--iters", "3"]);
    assert!(words.contains("a copy") && words.contains("% of the speed of a copy"), "{words}");
}

#[test]
fn a_product_is_held_against_arithmetic() {
    let sizes = ["--sizes", "tokens=512,inner=512,outer=512", "--iters", "3"];
    let measured = json(&example("linear_gelu"), &[&["bench"], &sizes[..]].concat());
    let [flops, bytes, gbps, gflops, reached] = [
        &measured["flops"],
        &measured["bytes"],
        &measured["limit"]["gbps"],
        &measured["limit"]["gflops"],
        &measured["time"]["gflops"],
    ]
    .map(|value| value.as_f64().unwrap_or_else(|| panic!("{measured:#}")));
    assert!(flops > 2.0 * 512f64.powi(3), "{measured:#}");
    let part = (gbps * flops / bytes > gflops).then_some(reached / gflops);
    let is_near = |(x, y): (f64, f64)| (x - y).abs() < 1e-9;
    let told = measured["of_arithmetic"].as_f64();
    assert!(told.is_some() == part.is_some() && told.zip(part).is_none_or(is_near), "{measured:#}");
    // Whether it does is by no slower memory than that of the copy beside it.
    assert!(gbps >= measured["copy"]["gbps"].as_f64().unwrap(), "{measured:#}");
    let words = stdout(&[&["kernel", &example("linear_gelu"), "bench"], &sizes[..]].concat());
    assert!(words.contains("GFLOP/s") && words.contains(" % of "), "{words}");
    // Each type has a limit of its own, and integers are counted, but have none.
    let folder = tempfile::tempdir().unwrap();
    let of_type = |dtype: &str, wide: &str| {
        let text = "kernel k(x: T[m, k], w: T[k, n]) -> y: W[m, n] { y = dot[k](W(x), W(w)) }";
        let file = folder.path().join(format!("{dtype}.tile"));
        std::fs::write(&file, text.replace('T', dtype).replace('W', wide)).unwrap();
        json(file.to_str().unwrap(), &["bench", "--sizes", "m=128,k=128,n=128", "--iters", "3"])
    };
    assert_eq!(of_type("f64", "f64")["limit"]["dtype"], "f64");
    let integers = of_type("i8", "i32");
    assert!(integers["limit"].is_null() && integers["operations_on"] == "integers", "{integers:#}");
    assert!(integers["time"]["gflops"].as_f64().unwrap() > 0.0, "{integers:#}");
    // What moves numbers is held against moving them.
    let softmax = json(&example("softmax"), &["bench", "--sizes", "rows=64,columns=64", "--iters", "3"]);
    assert!(softmax["of_arithmetic"].is_null() && softmax["limit"].is_null(), "{softmax:#}");
}

#[test]
fn steep_scores_are_compared_by_what_roundings_become() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("steep.tile").display().to_string();
    let kernel = "kernel steep(q: f32[n, d], k: f32[m, d], v: f32[m, e]) -> y: f32[n, e] {
  s = select(m <= n, 125.0 * dot[d](q, k), -inf)
  p = exp(s - max[m](s))
  y = dot[m](p, v) / sum[m](p)
}
";
    std::fs::write(&file, kernel).unwrap();
    let ran = json(&file, &["run", "--sizes", "n=256,m=256,d=64,e=64"]);
    assert_eq!(ran["agrees"], true, "{ran:#}");
}

#[test]
fn kernels_are_translated() {
    let softmax = example("softmax");
    let emit = |form: &str| stdout(&["kernel", &softmax, "emit", form]);
    let tile = emit("tile");
    assert!(tile.contains("schedule row along=[i1]") && tile.contains("%1 = reduce.max %0"), "{tile}");
    let cuda = emit("cuda");
    assert!(cuda.contains("extern \"C\" __global__") && cuda.contains("softmax"), "{cuda}");
    assert!(emit("asm").lines().count() > 20 && emit("vector").lines().count() > 20);
    // What was printed is a kernel too.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.tile").display().to_string();
    std::fs::write(&path, &tile).unwrap();
    assert_eq!(stdout(&["kernel", &path, "emit", "tile"]), tile);
}

#[test]
fn cuda_is_for_a_gpu_and_sizes() {
    let softmax = example("softmax");
    let emit = |more: &[&str]| stdout(&[&["kernel", &softmax, "emit", "cuda"], more].concat());
    let (usual, older) = (emit(&[]), emit(&["--target", "a100"]));
    assert!(usual.contains("-arch=sm_90a") && usual.contains("griddepcontrol"), "{usual}");
    assert!(older.contains("-arch=sm_80") && !older.contains("griddepcontrol"), "{older}");
    assert!(usual.contains("// launched as softmax<<<rows, 256>>>(…)"), "{usual}");
    // Where a tensor has 2^31 elements, indices have 64 bits, in all kernels of a text.
    let large = emit(&["--sizes", "rows=100000,columns=100000"]);
    assert!(usual.contains("typedef int Index;") && large.contains("typedef long long Index;"), "{large}");
    let of_model = stdout(&["kernels", "gallery:add_gelu", "--emit", "cuda", "--sizes", "n=5G"]);
    assert!(of_model.contains("typedef long long Index;"), "{of_model}");
}

#[test]
fn names_that_are_taken_in_cuda_get_longer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("named.tile").display().to_string();
    let softmax = std::fs::read_to_string(example("softmax")).unwrap();
    for (name, named) in [
        ("while", "while_kernel"),
        ("Index", "Index_kernel"),
        ("exp", "exp_kernel"),
        ("tanhf", "tanhf_kernel"),
        ("after_earlier", "after_earlier_kernel"),
        ("mine", "mine"),
    ] {
        std::fs::write(&path, softmax.replace("kernel softmax", &format!("kernel {name}"))).unwrap();
        let cuda = stdout(&["kernel", &path, "emit", "cuda"]);
        assert!(cuda.contains(&format!(" {named}(")) && !cuda.contains(&format!(") {name}(const")), "{cuda}");
        assert!(cuda.contains(&format!("// launched as {named}<<<")), "{cuda}");
    }
}

#[test]
fn an_index_outside_is_told_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let [file, given] = ["look_up.tile", "given.npz"].map(|name| folder.path().join(name).display().to_string());
    let kernel = "kernel {\n  axes i0: 4, i1: 8\n  in x: f32[10, 8], i: i64[4]\n  out y: f32[4, 8]\n  %0 = load i[i0]\n  \
        %1 = load x[@0, i1] reading (%0)\n  store y[i0, i1] = %1\n}\n";
    std::fs::write(&file, kernel).unwrap();
    write_npz(Path::new(&given), [("i", &Literal::i64s(&[1, 2, -1001, 3]))], Compression::Stored).unwrap();
    for device in ["interp", "cpu"] {
        let done = fuseline(&["kernel", &file, "run", "--inputs", &given, "--device", device]);
        let message = text(&done.stderr);
        assert!(message.contains("index -1001 is out of range for axis 0 of size 10"), "{device}: {message}");
        assert!(message.contains("--inputs") && !message.contains("inspect MODEL"), "{device}: {message}");
        assert!(message.contains("look_up.tile:6:4") && message.contains("  6 |   %1 = load x"), "{device}: {message}");
    }
}

#[test]
fn errors_point_into_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wrong.tile").display().to_string();
    let refused = |text_of_file: &str| {
        std::fs::write(&path, text_of_file).unwrap();
        let done = fuseline(&["kernel", &path, "check"]);
        let message = text(&done.stderr);
        assert!(done.status.code() == Some(2) && done.stdout.is_empty(), "{message}");
        message
    };
    let message = refused("kernel k(x: f32[n]) -> y: f32[n] {\n  y = exp(z)\n}\n");
    assert!(message.contains("  2 |   y = exp(z)\n    |           ^\n"), "{message}");
    assert!(message.contains("wrong.tile:2:11") && message.contains("z stands for nothing here"), "{message}");
    // What only the whole shows.
    let message = refused("kernel k(x: f32[n, m]) -> y: f32[n] {\n  e = exp(x)\n  y = e\n}\n");
    assert!(message.contains("  3 |   y = e\n    |       ^\n") && message.contains("wrong.tile:3:7"), "{message}");
    let message = refused("kernel k(x: f32[n], z: f32[n]) -> y: f32[n] { y = x * z * z2 }\n");
    assert!(message.contains("z2 stands for nothing here"), "{message}");
    // A long line is shown around the place, in the words of the writer.
    let long = format!("kernel k(x: f32[n]) -> (y: f32[n], w: f32[m]) {{ y = {}x  w = x }}", "x + ".repeat(400));
    let message = refused(&long);
    assert!(message.contains("this varies along n, and w does not: fold it, as in sum[n](…)"), "{message}");
    let lines: Vec<&str> = message.lines().collect();
    let [shown, caret] = [" 1 | …", "   | "].map(|start| lines.iter().rfind(|line| line.contains(start)).unwrap());
    assert!(shown.chars().count() <= 120, "{message}");
    let at = caret.chars().position(|c| c == '^').unwrap();
    assert_eq!(shown.chars().skip(at).collect::<String>(), "x }", "{message}");
    let message = refused("kernel k(x: f32[n]) -> y: f32[n] { }");
    assert!(message.contains("y is never assigned: write y = …") && message.contains("wrong.tile:1:24"), "{message}");
    let message = refused("kernel k(x: f32[n, n]) -> y: f32[n] { y = sum[n](x) }");
    assert!(message.contains("n stands twice in x") && message.contains("wrong.tile:1:20"), "{message}");
    let message = refused("kernel {\n  axes i0: 8\n  schedule map\n  %0 = lod x[i0]\n}\n");
    assert!(message.contains("wrong.tile:4:8") && message.contains("there is no operation lod"), "{message}");
    let done = fuseline(&["kernel", "nowhere.tile", "check"]);
    assert!(done.status.code() == Some(2) && text(&done.stderr).contains("nowhere.tile"));
}

#[test]
fn what_is_misspelt_has_neighbours() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("k.tile");
    for (text, words) in [
        ("kernel k(x: f32[n]) -> y: f32[n] { y = expp(x) }", "there is no function expp; the nearest are exp"),
        ("kernel k(x: f32[n]) -> y: f32[n] { y = sqr(x) }", "the nearest are sqrt"),
        ("kernel k(x: float32[n]) -> y: f32[n] { y = x }", "there is no element type float32; there are "),
    ] {
        std::fs::write(&path, text).unwrap();
        let done = fuseline(&["kernel", path.to_str().unwrap(), "check"]);
        assert!(
            done.status.code() == Some(2) && self::text(&done.stderr).contains(words),
            "{}",
            self::text(&done.stderr)
        );
    }
}

#[test]
fn arrays_of_another_type_and_sizes_of_zero_say_what_helps() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npz");
    let x = path.to_str().unwrap();
    let wide = Literal::from_f64s(fuseline::tensor::DType::F64, [2, 2], &[1.0; 4]).unwrap();
    write_npz(&path, [("x", &wide)], Compression::Stored).unwrap();
    let told = |action: &[&str]| {
        let done = fuseline(&[&["kernel", &example("softmax")], action].concat());
        assert_eq!(done.status.code(), Some(2), "{action:?}");
        text(&done.stderr)
    };
    assert!(told(&["run", "--inputs", x]).contains(".astype(numpy.float32)"));
    write_npz(&path, [("x", &Literal::f32s(&[1.0]))], Compression::Stored).unwrap();
    assert!(told(&["run", "--inputs", x]).contains("give an array of 2 axes"));
    let nothing = told(&["bench", "--sizes", "rows=0,columns=4"]);
    assert!(nothing.contains("there is nothing to measure") && nothing.contains("above 0"), "{nothing}");
    for form in ["asm", "vector", "cuda"] {
        let shown = stdout(&["kernel", &example("softmax"), "emit", form, "--sizes", "rows=0,columns=4"]);
        assert!(shown.contains("it stores no element where") && shown.contains("rows=0"), "{shown}");
        let shown = stdout(&["kernels", "gallery:softmax", "--emit", form, "--sizes", "rows=0,columns=4"]);
        assert!(shown.contains("it stores no element where columns=4,rows=0"), "{shown}");
    }
    // Rows of nothing leave nothing to launch, however many there are.
    let shown = stdout(&["kernel", &example("softmax"), "emit", "cuda", "--sizes", "columns=0"]);
    assert!(shown.starts_with("// no code") && !shown.contains("<<<"), "{shown}");
}

#[test]
fn names_of_a_model_do_not_leave_comments() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("names.ir");
    let name = r"s\n__device__ int slipped() { return 1; } //\r*/ \u{1b}[0m\\";
    let graph =
        format!("graph g(x: f32[4, 8]) {{ %1 = map(x) exp(a) : f32[4, 8] !\"Ex\\np\" \"{name}\" return y = %1 }}\n");
    std::fs::write(&path, graph).unwrap();
    for form in ["tile", "vector", "asm", "cuda"] {
        let code = stdout(&["kernels", path.to_str().unwrap(), "--emit", form]);
        let named: Vec<&str> = code.lines().filter(|line| line.contains("slipped")).collect();
        let is_comment = |line: &str| ["//", "#", ";"].iter().any(|sign| line.starts_with(sign));
        let is_plain = |line: &str| !line.chars().any(char::is_control) && !line.ends_with('\\');
        assert!(named.len() == 1 && is_comment(named[0]) && is_plain(named[0]), "{form}: {named:?}");
    }
}

#[test]
fn a_mark_at_the_beginning_of_a_text_is_no_part_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("marked.tile");
    let text = std::fs::read_to_string(example("softmax")).unwrap();
    std::fs::write(&path, format!("\u{feff}{text}")).unwrap();
    stdout(&["kernel", path.to_str().unwrap(), "check"]);
}

/// Whether attention stores its scores hangs on sizes that are numbers.
#[test]
fn cuda_that_sizes_would_make_one_kernel_says_so() {
    let attention = example("attention");
    let emitted = |more: &[&str]| {
        let done = fuseline(&[&["kernel", &attention, "emit", "cuda"], more].concat());
        assert!(done.status.success());
        (text(&done.stdout), text(&done.stderr))
    };
    let launches = |code: &str| code.matches("// launched as").count();
    let (code, told) = emitted(&[]);
    assert_eq!(launches(&code), 3, "{code}");
    let said = "it is 3 kernels, which store rows in memory for each other; for numbers, such as --sizes d=64,e=64, it is one kernel";
    assert!(told.starts_with("note: ") && told.contains(said), "{told}");
    assert!(code.lines().any(|line| line.starts_with("// for sizes") && line.contains(said)), "{code}");
    // And so it is, also where one was given already.
    for sizes in ["d=64,e=64", "d=32,e=64,keys=100"] {
        let (code, told) = emitted(&["--sizes", sizes]);
        assert_eq!((launches(&code), told.as_str()), (1, ""), "{code}");
    }
    let (_, told) = emitted(&["--sizes", "d=64"]);
    assert!(told.contains("such as --sizes e=64, "), "{told}");
    // The comment of the example promises what comes out.
    let comment = std::fs::read_to_string(&attention).unwrap();
    assert!(
        comment.lines().next().unwrap().ends_with("(in CUDA C++ for numbers d and e, such as --sizes d=64,e=64)"),
        "{comment}"
    );
    let done = fuseline(&["kernel", &example("softmax"), "emit", "cuda"]);
    assert_eq!(text(&done.stderr), "");
}

#[test]
fn a_kernel_is_a_model_of_every_command() {
    let attention = example("attention");
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html").display().to_string();
    let sizes = ["--sizes", "heads=2,rows=40,keys=40,d=16,e=16"];
    for command in [
        &["inspect"][..],
        &["run"],
        &["verify"],
        &["bench", "--iters", "1"],
        &["kernels", "--emit", "tile"],
        &["report", "--no-run", "-o", &page],
        &["bisect"],
    ] {
        stdout(&[command, &[&attention], &sizes].concat());
    }
    let explained: Value =
        serde_json::from_str(&stdout(&[&["explain", &attention, "--json"][..], &sizes].concat())).unwrap();
    let patterns: Vec<&Value> =
        explained["kernels"].as_array().unwrap().iter().map(|kernel| &kernel["pattern"]).collect();
    assert_eq!(patterns, ["Attention (causal)"], "as it would be planned from a model");
    // It computes what the kernel does.
    let [kernel, model] = ["kernel.npz", "model.npz"].map(|name| folder.path().join(name));
    let written = |path: &Path| path.display().to_string();
    stdout(
        &[&["run", &attention, "--outputs", &written(&model), "--inputs", &inputs(folder.path())][..], &sizes].concat(),
    );
    stdout(
        &[
            &["kernel", &attention, "run", "--outputs", &written(&kernel), "--inputs", &inputs(folder.path())][..],
            &sizes,
        ]
        .concat(),
    );
    let [kernel, model] = [kernel, model].map(|path| read_npz(path, &ReadOptions::default()).unwrap()["y"].to_f64s());
    assert!(kernel.iter().zip(&model).all(|(a, b)| (a - b).abs() < 1e-5), "{kernel:?} {model:?}");
}

/// Inputs of attention in a file.
fn inputs(folder: &Path) -> String {
    let tensor = |by: usize| {
        let values: Vec<f32> = (0..2 * 40 * 16).map(|k| (k * by % 31) as f32 / 16.0 - 1.0).collect();
        Literal::f32s(&values).reshaped([2, 40, 16]).unwrap()
    };
    let tensors = [("q", tensor(7)), ("k", tensor(11)), ("v", tensor(13))];
    let path = folder.join("x.npz");
    write_npz(&path, tensors.iter().map(|(name, x)| (*name, x)), Compression::Stored).unwrap();
    path.display().to_string()
}

#[test]
fn a_kernel_that_is_no_model_says_who_takes_it() {
    let folder = tempfile::tempdir().unwrap();
    let write = |text: &str| {
        let path = folder.path().join("my.tile");
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let file = write("kernel twice(x: f32[n]) -> y: f32[n] {\n  y = x + z\n}\n");
    let (status, message) = failure(&["explain", &file]);
    assert!(status == 2 && message.contains("my.tile:2:11") && message.contains("y = x + z"), "{message}");
    let looked_up = "kernel {
  axes i0: m, i1: d
  in   x0: f32[n, d], x1: i64[m]
  out  y0: f32[m, d]
  schedule map
  %0 = load x1[i0]
  %1 = load x0[@0, i1] reading (%0)
  store y0[i0, i1] = %1
}
";
    let (status, message) = failure(&["explain", &write(looked_up)]);
    assert!(status == 1 && message.contains("`fuseline kernel FILE.tile check|run|bench|emit` takes it"), "{message}");
}
