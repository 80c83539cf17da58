//! The corpus of the fuzz targets (`corpus/TARGET/*`): what was found and mended, and inputs that reach far. None may break
//! anything.

use std::path::{Path, PathBuf};

use fuseline_tests::fuzz::{TARGETS, cooked};
use fuseline_tests::model_maker::bytes;

fn corpus(target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn the_corpus_breaks_nothing() {
    for target in TARGETS {
        let files = corpus(target.name);
        assert!(!files.is_empty(), "{} has no corpus", target.name);
        for file in files {
            println!("{}", file.display());
            (target.run)(&std::fs::read(&file).unwrap());
        }
    }
}

#[test]
fn every_target_takes_no_bytes_and_any() {
    for target in TARGETS {
        (target.run)(&[]);
        (target.run)(&[0xff; 64]);
        (target.run)(b"\x08\x08 graph kernel { } %0 = ");
    }
}

#[test]
fn recipes_are_models() {
    let mut nodes = 0;
    for file in corpus("recipe") {
        let model = cooked(&std::fs::read(&file).unwrap());
        assert!(fuseline_frontend::Model::from_bytes(bytes(&model), "recipe").is_ok());
        nodes += model.graph.unwrap().node.len();
    }
    assert!(nodes > 20, "{nodes} nodes");
}
