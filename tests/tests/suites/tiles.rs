//! Kernels as text: those of the documentation, and misspelt ones.

use std::path::Path;

use fuseline::compare::Meaning;
use fuseline::device::DeviceSpec;
use fuseline::fuse::scheduled;
use fuseline::gallery;
use fuseline::lower::Hints;
use fuseline::reference::{Buffer, Limits};
use fuseline::tensor::{DType, Env, Literal, Symbol};
use fuseline::tile::interp::{self, Folds, Options};
use fuseline::tile::{self, Schedule};
use fuseline_tests::fuzz::bounded::interpret;

/// The kernels of a page: lines from `kernel {` to `}`, four blanks further in.
fn kernels(page: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut inside = false;
    for line in page.lines().filter_map(|line| line.strip_prefix("    ")) {
        if line == "kernel {" {
            found.push(String::new());
            inside = true;
        }
        if let Some(kernel) = found.last_mut().filter(|_| inside) {
            kernel.push_str(line);
            kernel.push('\n');
        }
        inside &= line != "}";
    }
    found
}

#[test]
fn the_examples_of_the_documentation_are_kernels() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/tile.md");
    let kernels = kernels(&std::fs::read_to_string(path).unwrap());
    assert_eq!(kernels.len(), 2);
    for text in kernels {
        let kernel = tile::parse(&text).unwrap();
        tile::verify(&kernel).unwrap();
        assert_eq!(format!("{kernel}\n"), text);
    }
}

#[test]
fn softmax_is_five_lines_or_less_and_a_softmax() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let text = std::fs::read_to_string(folder.join("softmax.tile")).unwrap();
    assert!(text.lines().count() <= 5, "{text}");
    let page = std::fs::read_to_string(folder.join("../docs/tile.md")).unwrap();
    assert!(page.contains(&text.lines().map(|line| format!("    {line}\n")).collect::<String>()), "the page shows it");
    let kernel = tile::parse(&text).unwrap();
    let x = Literal::f32s(&[1.0, 3.0, 2.0, -1.0, 0.5, 700.0]).reshaped([2, 3]).unwrap();
    let outputs = interp::run(&kernel, &[Buffer::from_literal(&x)], &Env::new(), &Options::default()).unwrap();
    let graph = gallery::find("softmax").unwrap().graph(DType::F32).unwrap();
    let meaning = Meaning::of(&graph, &[("x".into(), x)].into_iter().collect(), Limits::default()).unwrap();
    assert_eq!(meaning.check(&[outputs[0].to_literal().unwrap()]), Ok(()));
}

/// Attention as it is written, folded at once, and as a plan would run it, piece by piece: also in rows that begin hidden, or are.
#[test]
fn a_kernel_without_a_schedule_gets_one_that_computes_the_same() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let written = tile::parse(&std::fs::read_to_string(folder.join("attention.tile")).unwrap()).unwrap();
    let sizes = [("heads", 2), ("rows", 5), ("keys", 9), ("d", 4), ("e", 3)];
    let env: Env = sizes.map(|(name, size)| (Symbol::name(name), size)).into_iter().collect();
    let hints = Hints { env: env.clone(), ..Hints::default() };
    let inputs: Vec<Buffer> = written
        .inputs
        .iter()
        .enumerate()
        .map(|(k, param)| {
            let shape = param.ty.shape.eval(&env).unwrap();
            let value =
                |i: usize| if k == 1 && i == 7 { f64::NEG_INFINITY } else { ((i * 7 + k) % 11) as f64 * 0.3 - 1.5 };
            let values: Vec<f64> = (0..shape.iter().product()).map(value).collect();
            Buffer::from_literal(&Literal::from_f64s(DType::F32, shape, &values).unwrap())
        })
        .collect();
    let expected = interp::run(&written, &inputs, &env, &Options::default()).unwrap();
    for target in ["cpu", "avx2", "a100", "h200"] {
        let planned = scheduled(&written, DeviceSpec::find(target).unwrap(), &hints).unwrap();
        assert!(matches!(planned.schedule, Schedule::Attention { .. }), "{planned}");
        assert_eq!(tile::parse(&planned.to_string()).unwrap(), planned);
        for folds in [Folds::Whole, Folds::AsScheduled] {
            let options = Options { folds, ..Options::default() };
            let found = interp::run(&planned, &inputs, &env, &options).unwrap();
            for (a, b) in found[0].to_floats().iter().zip(expected[0].to_floats().iter()) {
                assert!((a - b).abs() < 1e-5 || a.is_nan() && b.is_nan(), "{target}, {folds:?}: {a} {b}");
            }
        }
    }
}

#[test]
fn the_examples_are_kernels() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = files.filter(|path| path.extension().is_some_and(|extension| extension == "tile")).collect();
    assert!(files.len() >= 4, "{files:?}");
    for path in files {
        let source = tile::read(&std::fs::read_to_string(&path).unwrap()).unwrap_or_else(|e| panic!("{path:?}: {e}"));
        tile::verify(&source.kernel).unwrap_or_else(|error| panic!("{path:?}: {error}\n{}", source.kernel));
        assert_eq!(source.name.as_deref(), path.file_stem().and_then(|stem| stem.to_str()));
        assert_eq!(tile::parse(&source.kernel.to_string()).unwrap(), source.kernel);
    }
}

/// Numbers that are different every time, and the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound.max(1)
    }
}

/// Words, numbers and signs of a text, each with the blanks behind it.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let word = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let end = if word > 0 { word } else { rest.chars().next().map_or(0, char::len_utf8) };
        let blanks = rest[end..].len() - rest[end..].trim_start().len();
        let (token, others) = rest.split_at(end + blanks);
        tokens.push(token);
        rest = others;
    }
    tokens
}

/// One or two tokens left out, doubled, or replaced by others of the text.
fn misspelt(tokens: &[&str], dice: &mut Dice) -> String {
    let mut tokens = tokens.to_vec();
    for _ in 0..=dice.below(2) {
        let (at, other) = (dice.below(tokens.len()), dice.below(tokens.len()));
        match dice.below(4) {
            0 => drop(tokens.remove(at)),
            1 => tokens.insert(at, tokens[other]),
            _ => tokens[at] = tokens[other],
        }
    }
    tokens.concat()
}

fn case_files(folder: &Path) -> Vec<String> {
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let texts = paths.iter().flat_map(|path| match path.is_dir() {
        true => case_files(path),
        false => std::fs::read_to_string(path).into_iter().collect(),
    });
    texts.collect()
}

#[test]
fn misspelt_kernels_never_panic() {
    let files = case_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("cases/tile"));
    assert!(files.len() > 50);
    let (mut dice, mut read, mut verified) = (Dice(7), 0, 0);
    for file in &files {
        let text = file.split_once("\n----\n").map_or(file.as_str(), |(input, _)| input);
        let Some(start) = text.find("kernel {") else { continue };
        let tokens = tokens(&text[start..]);
        for _ in 0..150 {
            let text = misspelt(&tokens, &mut dice);
            let Ok(kernel) = tile::parse(&text) else { continue };
            read += 1;
            assert_eq!(tile::parse(&kernel.to_string()).unwrap(), kernel, "{text}");
            if tile::verify(&kernel).is_ok() {
                verified += 1;
                let _ = interpret(&kernel);
            }
        }
    }
    assert!(read > 300 && verified > 100, "{read} kernels, of which {verified} keep the rules");
}
