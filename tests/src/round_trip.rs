//! What must hold of every graph, wherever it comes from: it keeps its invariants, and its text parses back.

use fuseline::error::{Context, Error, Result};
use fuseline::graph::text::parse;
use fuseline::graph::{Graph, verify};
use fuseline::ops::Prim;
use fuseline::tensor::{Literal, Source};

/// Verifies a graph and sends it through its text form, with and without origins.
pub fn check(graph: &Graph) -> Result<()> {
    verify(graph)?;
    let mut literals = Vec::new();
    collect(graph, &mut literals);
    let resolve = |source: &Source, len: usize| {
        let found = literals.iter().find(|l| l.source() == Some(source) && l.byte_count() == len);
        found.map(|l| l.bytes()).ok_or_else(|| Error::bug(format!("no constant lies at {source:?}")))
    };
    for text in [format!("{graph}"), format!("{graph:#}")] {
        let parsed = parse(&text, &resolve).at(|| format!("in the text\n{text}\n"))?;
        if parsed != *graph {
            return Err(Error::bug(format!("the text\n{text}\nparses as\n{parsed}")));
        }
        let again = if text.contains(" !") { format!("{parsed:#}") } else { format!("{parsed}") };
        if again != text {
            return Err(Error::bug(format!("the text\n{text}\nis printed again as\n{again}")));
        }
    }
    Ok(())
}

/// The constants of a graph and its regions.
fn collect<'g>(graph: &'g Graph, literals: &mut Vec<&'g Literal>) {
    for node in graph.nodes() {
        match node.prim() {
            Prim::Const(row) => literals.push(&row.literal),
            Prim::If(row) => [&row.then, &row.otherwise].into_iter().for_each(|region| collect(region, literals)),
            Prim::Loop(row) => collect(&row.body, literals),
            _ => {}
        }
    }
}
