//! Kernels as they stand in the documentation.

use std::path::Path;

use fuseline::tile;

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
