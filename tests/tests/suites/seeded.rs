//! Weights that are drawn from seeds: the same everywhere, made only when they are read.

use std::sync::Arc;

use fuseline::compile::compile;
use fuseline::error::Kind;
use fuseline::graph::Graph;
use fuseline::ops::Prim;
use fuseline::passes::Context;
use fuseline::reference::{Limits, Options, evaluate};
use fuseline::tensor::{DType, Literal};
use fuseline_frontend::Model;
use fuseline_frontend::onnx::schema::{StringStringEntryProto, TensorProto};
use fuseline_tests::model_maker::{FLOAT, bytes, graph, model, node, value};

fn constants(graph: &Graph) -> impl Iterator<Item = &Literal> {
    graph.nodes().iter().filter_map(|node| if let Prim::Const(row) = node.prim() { Some(&row.literal) } else { None })
}

/// `y = x·w`, the elements of `w` drawn from seed 0.
fn seeded_product() -> Model {
    let entry = |(key, value): (&str, &str)| StringStringEntryProto { key: key.into(), value: value.into() };
    let weights = TensorProto {
        name: "w".into(),
        data_type: FLOAT,
        dims: vec![2, 2],
        data_location: 1,
        external_data: [("location", "seeded:0"), ("low", "-0.5"), ("high", "0.5")].map(entry).into(),
        ..Default::default()
    };
    let nodes = vec![node("MatMul", &["x", "w"], &["y"])];
    let mut graph = graph(vec![value("x", FLOAT, &["n", "2"])], nodes, vec![value("y", FLOAT, &["n", "2"])]);
    graph.initializer = vec![weights];
    Model::from_bytes(bytes(&model(graph)), "product.onnx").unwrap()
}

#[test]
fn seeded_weights_are_the_same_everywhere() {
    // The first block of Philox-4x32-10 under key 0, published with the Random123 library.
    let words = [0x6627_e8d5_u32, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8];
    let w = words.map(|word| f64::from((f64::from(word) / 2f64.powi(32) - 0.5) as f32));
    let graph = seeded_product().graph().unwrap().clone();
    for part in [&graph, compile(graph.clone(), &Context::default()).unwrap().run()] {
        let drawn: Vec<&Literal> = constants(part).collect();
        assert_eq!((drawn.len(), drawn[0].to_f64s()), (1, w.to_vec()));
        let bytes = w.iter().flat_map(|x| (*x as f32).to_le_bytes()).collect::<Vec<u8>>();
        assert_eq!((drawn[0].bytes(), drawn[0].bytes()), (bytes.clone().into(), bytes.into()));
    }
    let x = Literal::from_f64s(DType::F32, [1, 2], &[2.0, -4.0]).unwrap();
    let y = evaluate(&graph, &[(Arc::from("x"), x)].into_iter().collect(), &Options::default()).unwrap();
    let expected = [2.0 * w[0] - 4.0 * w[2], 2.0 * w[1] - 4.0 * w[3]];
    assert_eq!(y, [Literal::from_f64s(DType::F32, [1, 2], &expected).unwrap()]);
}

#[test]
fn what_a_seed_stands_for_counts_against_the_limits() {
    let model = seeded_product();
    let inputs = [(Arc::from("x"), Literal::from_f64s(DType::F32, [1, 2], &[1.0, 1.0]).unwrap())];
    let mut options = Options::default();
    options.limits.bytes = 31; // four elements take eight bytes each
    let error = evaluate(model.graph().unwrap(), &inputs.into_iter().collect(), &options).unwrap_err();
    assert_eq!(error.kind(), Kind::Limit, "{error}");
}

#[test]
fn views_of_seeds_count_as_long_as_they_are_there() {
    let view = |k: usize| {
        format!("  %{k} = const seeded({k}, 0.0, 1.0) : f32[64, 64]\n  %v{k} = view %{k}[i1, i0] : f32[64, 64]\n")
    };
    let sum = "  %s = map(%v0, %v1, %v2) a + b + c : f32[64, 64]\n  return y = %s\n";
    let text = format!("graph views() {{\n{}{}{}{sum}}}", view(0), view(1), view(2));
    let graph = Graph::parse(&text).unwrap();
    let run = |bytes: u64| {
        let options = Options { limits: Limits { bytes, trips: 0, ..Limits::default() }, ..Options::default() };
        evaluate(&graph, &Default::default(), &options).map_err(|error| error.kind())
    };
    let one = 64 * 64 * 8;
    assert!(run(4 * one).is_ok(), "three operands and their sum");
    assert_eq!(run(3 * one), Err(Kind::Limit));
    assert_eq!(run(2 * one), Err(Kind::Limit));
}
