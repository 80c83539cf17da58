//! The text form as a whole; each part has tests of its own, and random graphs are tested in the tests crate.

use std::sync::Arc;

use super::*;
use crate::error::{Error, Kind};
use crate::graph::{Builder, Origin};
use crate::ops::prim::Monoid;
use crate::tensor::{DType, Dim, Shape};

const SOFTMAX: &str = "\
graph softmax(x: f32[n, 1024]) {
  %1 = reduce.max x axes=[1] : f32[n]
  %2 = view %1[i0] : f32[n, 1]
  %3 = view %2[i0, 0] : f32[n, 1024]
  %4 = map(x, %3) a - b : f32[n, 1024]
  %5 = map(%4) exp(a) : f32[n, 1024]
  %6 = reduce.sum %5 axes=[1] : f32[n]
  %7 = view %6[i0] : f32[n, 1]
  %8 = view %7[i0, 0] : f32[n, 1024]
  %9 = map(%5, %8) a / b : f32[n, 1024]
  return y = %9
}";

fn softmax() -> Graph {
    let b = Builder::new("softmax");
    let x = b.input("x", DType::F32, Shape::new([Dim::named("n"), Dim::int(1024)]));
    b.set_origin(Some(Origin { op: "Softmax".into(), name: "encoder/3 \"softmax\"".into() }));
    let e = (x - x.reduce_keep(Monoid::Max, &[1])).exp();
    b.output("y", e / e.sum(&[1]));
    b.finish().unwrap()
}

#[test]
fn a_graph_reads_well_and_parses_back() {
    let graph = softmax();
    assert_eq!(graph.to_string(), SOFTMAX);
    assert_eq!(Graph::parse(SOFTMAX).unwrap(), graph);
}

#[test]
fn origins_are_shown_on_demand_and_parse_back() {
    let text = format!("{:#}", softmax());
    assert!(text.contains("%1 = reduce.max x axes=[1] : f32[n] !Softmax \"encoder/3 \\\"softmax\\\"\"\n"), "{text}");
    let parsed = Graph::parse(&text).unwrap();
    assert_eq!(format!("{parsed:#}"), text);
    assert_eq!(parsed, softmax());
}

#[test]
fn labels_are_free_and_comments_are_skipped() {
    let text = "
        graph g(x: f32[2]) { # an input
          %twice = map(x, x) a + b : f32[2]  # nodes may have names
          %same = map(x, x) a + b : f32[2]   # and equal ones are one
          return y = %twice, z = %same, x = x
        }";
    let graph = Graph::parse(text).unwrap();
    assert_eq!(graph.nodes().len(), 2);
    assert_eq!(graph.outputs()[0].value, graph.outputs()[1].value);
}

#[test]
fn large_constants_are_named_by_their_place() {
    let file: Vec<u8> = (0..100_004).map(|k| k as u8).collect();
    let file = Bytes::from(file);
    let source = Source { file: Arc::from("model.onnx"), offset: 4 };
    let literal = Literal::new(DType::F32, [25_000], file.slice(4..)).unwrap().with_source(source);
    let b = Builder::new("g");
    b.output("w", b.constant(literal));
    let graph = b.finish().unwrap();
    let text = graph.to_string();
    assert_eq!(text.lines().nth(1).unwrap(), "  %0 = const @\"model.onnx\"+4 : f32[25000]");
    let resolve = |source: &Source, len: usize| {
        let from = source.offset as usize;
        match source.file.as_ref() {
            "model.onnx" => Ok(file.slice(from..from + len)),
            other => Err(Error::invalid(format!("no file {other}"))),
        }
    };
    assert_eq!(parse(&text, &resolve).unwrap(), graph);
    let error = Graph::parse(&text).unwrap_err().to_string();
    assert_eq!(error, "invalid input: line 2, column 32: nothing is known of the file \"model.onnx\"");
}

#[test]
fn literals_survive_whatever_their_bytes() {
    let pattern = |count: usize| (0..count).map(|k| (k * 37 % 251) as u8).collect::<Vec<u8>>();
    for &dtype in DType::ALL {
        for count in [0, 1, 2, 7, 300, 20_000] {
            let bytes = pattern(dtype.bytes(count).unwrap());
            let literal = Literal::new(dtype, [count], bytes).unwrap();
            assert_eq!(parse_literal(&print_literal(&literal)).unwrap(), literal, "{dtype} {count}");
        }
        let zeros = Literal::new(dtype, [3, 50_000], vec![0; dtype.bytes(150_000).unwrap()]).unwrap();
        let text = print_literal(&zeros);
        assert!(text.len() < 30, "{text}");
        assert_eq!(parse_literal(&text).unwrap(), zeros);
    }
}

#[test]
fn a_short_text_cannot_ask_for_all_memory() {
    let error = parse_literal("0.0 : f32[1000000, 1000000]").unwrap_err();
    assert_eq!(error.kind(), Kind::Limit);
    assert!(parse_literal("0 : u8[99999999999999999999]").is_err());
    let error = parse_literal("[] : f64[100000, 0, 99999999999]").unwrap_err();
    assert_eq!(error.kind(), Kind::Limit, "{error}");
}

#[test]
fn every_prefix_of_a_text_is_an_error_and_no_panic() {
    for end in 0..SOFTMAX.len() - 1 {
        assert!(Graph::parse(&SOFTMAX[..end]).is_err());
    }
    for (k, _) in SOFTMAX.char_indices() {
        let mut text = SOFTMAX.to_owned();
        text.replace_range(k..=k, "?");
        let _ = Graph::parse(&text);
    }
}
