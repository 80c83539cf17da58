//! The pages under `docs/` keep up with the code.

use std::path::Path;

use fuseline::graph::Graph;
use fuseline::ops::Prim;
use fuseline::ops::prim::{Combine, Monoid};
use fuseline::tensor::DType;
use fuseline_tests::round_trip;

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn the_page_about_the_text_names_everything() {
    let text = page("ir.md");
    let words: std::collections::HashSet<&str> = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let names = Prim::TABLE.iter().map(|(name, ..)| *name);
    let names = names.chain(DType::ALL.iter().map(|d| d.name())).chain(Monoid::ALL.iter().map(|m| m.name()));
    for name in names.chain(Combine::ALL.iter().map(|c| c.name())) {
        assert!(words.contains(name), "docs/ir.md says nothing of {name}");
    }
}

#[test]
fn its_example_is_a_graph() {
    let text = page("ir.md");
    let code: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("    graph softmax")).collect();
    let end = code.iter().position(|line| *line == "    }").expect("the example ends");
    let graph = Graph::parse(&code[..=end].join("\n")).unwrap();
    round_trip::check(&graph).unwrap();
}
