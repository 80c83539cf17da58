//! Whole networks without their weights (`models/structure`): they import, compile and verify within small bounds.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fuseline::compile::compile;
use fuseline::error::Kind;
use fuseline::graph::{Graph, verify};
use fuseline::ops::Prim;
use fuseline::passes::Context;
use fuseline::reference::{Options, evaluate};
use fuseline::tensor::{DType, Literal};
use fuseline_frontend::Model;
use fuseline_frontend::onnx::schema::{StringStringEntryProto, TensorProto};
use fuseline_tests::model_maker::{FLOAT, bytes, graph, model, node, value};
use fuseline_tests::round_trip;

/// The most that a file may take.
const MOST_BYTES: u64 = 300_000;

/// The most that the stored constants of a compiled network may take: what exporters fold, and what we do.
const MOST_STORED: usize = 8 << 20;

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/structure");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "onnx"));
    files.sort();
    files
}

fn constants(graph: &Graph) -> impl Iterator<Item = &Literal> {
    graph.nodes().iter().filter_map(|node| if let Prim::Const(row) = node.prim() { Some(&row.literal) } else { None })
}

#[test]
fn networks_of_both_exporters_are_there_and_small() {
    let names: Vec<String> = files().iter().map(|f| f.file_name().unwrap().to_string_lossy().into()).collect();
    for network in ["bert_base", "gpt2", "llama4l_hf", "vit_b16", "resnet50", "mobilenetv3l", "efficientnet_b0"] {
        for exporter in ["legacy", "dynamo"] {
            let found = names.iter().any(|name| name.starts_with(network) && name.contains(&format!(".{exporter}")));
            assert!(found, "no {network} by the exporter {exporter}");
        }
    }
    for file in files() {
        let size = file.metadata().unwrap().len();
        assert!(size < MOST_BYTES, "{} takes {size} bytes", file.display());
    }
}

#[test]
fn networks_compile_without_their_weights() {
    for file in files() {
        let place = file.display();
        let model = Model::open(&file).unwrap_or_else(|e| panic!("{e}"));
        let graph = model.graph().unwrap_or_else(|e| panic!("{e}"));
        let drawn: usize = constants(graph).filter(|l| l.as_seeded().is_some()).map(Literal::byte_count).sum();
        assert!(drawn > 20_000_000, "{place}: only {drawn} bytes of weights");
        let program = compile(graph.clone(), &Context::default()).unwrap_or_else(|e| panic!("{place}: {e}"));
        for part in [program.prepare(), program.run()] {
            verify(part).unwrap_or_else(|e| panic!("{place}: {e}"));
            round_trip::check(part).unwrap_or_else(|e| panic!("{place}: {e}"));
            let stored: usize = constants(part).filter(|l| l.as_seeded().is_none()).map(Literal::byte_count).sum();
            assert!(stored < MOST_STORED, "{place}: {stored} bytes of stored constants");
        }
        let (before, after) = (graph.outputs(), program.run().outputs());
        assert!(before.iter().map(|o| &o.name).eq(after.iter().map(|o| &o.name)), "{place}");
    }
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
