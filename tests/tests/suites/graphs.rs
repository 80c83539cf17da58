//! Properties of random graphs.

use std::collections::BTreeSet;

use fuseline::gallery;
use fuseline::graph::{Graph, verify};
use fuseline::ops::Prim;
use fuseline::reference::{Limits, Options, evaluate};
use fuseline::tensor::DType;
use fuseline_tests::drawn;
use fuseline_tests::generate::cases;
use fuseline_tests::round_trip;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

proptest! {
    #![proptest_config(drawn::cases(256))]

    #[test]
    fn a_graph_means_one_thing(case in cases()) {
        let first = evaluate(&case.graph, &case.inputs, &Options::default()).unwrap();
        let second = evaluate(&case.graph, &case.inputs, &Options::default()).unwrap();
        prop_assert_eq!(first, second);
    }

    #[test]
    fn a_graph_keeps_its_invariants_and_survives_its_text(case in cases()) {
        round_trip::check(&case.graph).map_err(|e| TestCaseError::fail(e.to_string()))?;
    }
}

/// One slip of the pen.
#[derive(Clone, Debug)]
enum Slip {
    /// a character in the place of some others
    Character { at: usize, length: usize, character: char },
    /// a number in the place of another
    Number { at: usize, number: u64 },
}

fn slips() -> impl Strategy<Value = Vec<Slip>> {
    let characters = prop::sample::select("0123456789abinx$@%.,:=+-*/<>!?\"'[](){} \n#é".chars().collect::<Vec<_>>());
    let numbers = prop::sample::select(vec![0, 1, 2, 3, 7, 64, 255, 70_000, i64::MAX as u64, u64::MAX]);
    let slip = prop_oneof![
        (0usize..1 << 16, 0usize..6, characters).prop_map(|(at, length, character)| Slip::Character {
            at,
            length,
            character
        }),
        (0usize..1 << 16, numbers).prop_map(|(at, number)| Slip::Number { at, number }),
    ];
    prop::collection::vec(slip, 1..4)
}

/// The text with some mistakes.
fn misspelt(text: &str, slips: &[Slip]) -> String {
    let mut characters: Vec<char> = text.chars().collect();
    for slip in slips {
        let is_digit = |k: &usize| characters.get(*k).is_some_and(char::is_ascii_digit);
        let (range, new) = match slip {
            Slip::Character { at, length, character } => {
                let at = at % characters.len();
                (at..(at + length).min(characters.len()), character.to_string())
            }
            Slip::Number { at, number } => {
                let first = |k: &usize| is_digit(k) && !k.checked_sub(1).is_some_and(|before| is_digit(&before));
                let starts: Vec<usize> = (0..characters.len()).filter(first).collect();
                let Some(start) = starts.get(at % starts.len().max(1)) else { continue };
                (*start..(*start..).find(|k| !is_digit(k)).unwrap_or(*start), number.to_string())
            }
        };
        characters.splice(range, new.chars());
    }
    characters.into_iter().collect()
}

proptest! {
    #![proptest_config(drawn::cases(256))]

    /// A text with mistakes is an error or another graph; whatever it is, nothing panics and nothing eats all memory.
    #[test]
    fn no_text_makes_anything_panic(case in cases(), slips in slips()) {
        let text = misspelt(&case.graph.to_string(), &slips);
        let Ok(graph) = Graph::parse(&text) else { return Ok(()) };
        if verify(&graph).is_err() {
            return Ok(());
        }
        round_trip::check(&graph).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let limits = Limits { trips: 1000, bytes: 64 << 20, ..Limits::default() };
        let _ = evaluate(&graph, &case.inputs, &Options { limits, ..Options::default() });
    }
}

#[test]
fn the_graphs_of_the_gallery_do_so_too() {
    for entry in gallery::all() {
        for dtype in [DType::F32, DType::F16] {
            let graph = entry.graph(dtype).unwrap();
            round_trip::check(&graph).unwrap_or_else(|e| panic!("{}: {e}", entry.name));
        }
    }
}

#[test]
fn random_graphs_have_every_primitive() {
    fn collect(graph: &Graph, names: &mut BTreeSet<&'static str>) {
        for node in graph.nodes() {
            names.insert(node.prim().name());
            match node.prim() {
                Prim::If(row) => [&row.then, &row.otherwise].iter().for_each(|region| collect(region, names)),
                Prim::Loop(row) => collect(&row.body, names),
                _ => {}
            }
        }
    }
    let mut runner = TestRunner::deterministic();
    let mut names = BTreeSet::new();
    for _ in 0..300 {
        collect(&cases().new_tree(&mut runner).expect("no case is refused").current().graph, &mut names);
    }
    let all: BTreeSet<&str> = Prim::TABLE.iter().map(|(name, ..)| *name).collect();
    assert_eq!(names, all);
}
