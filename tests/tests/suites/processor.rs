//! Plans on this processor: random graphs, attentions and the gallery, however they are planned, on every set of instructions
//! that it has, with one thread and with several.
//!
//! Each property is tried on a few graphs. On ten thousand:
//! `PROPTEST_CASES=10000 cargo test --release -p fuseline-tests --test suites processor::`; for half an hour: `tests/random.sh 30`.

use std::sync::Arc;

use fuseline::compare::Meaning;
use fuseline::device::{DeviceSpec, Executable};
use fuseline::fuse::PlanOptions;
use fuseline::gallery;
use fuseline::graph::{Builder, Graph, Tensor};
use fuseline::ops::prim::Monoid;
use fuseline::passes::{Numerics, Precision};
use fuseline::philox;
use fuseline::reference::{self, Limits, evaluate};
use fuseline::tensor::{DType, Literal, Shape};
use fuseline_cpu::code::Isa;
use fuseline_cpu::run::CpuDevice;
use fuseline_tests::attentions::attentions;
use fuseline_tests::drawn;
use fuseline_tests::generate::{Inputs, cases};
use fuseline_tests::planned::{choices, planned, show};
use proptest::prelude::*;

/// The instruction sets that this processor has: one with wider vectors has the narrower ones too.
fn isas() -> Vec<Isa> {
    Isa::available().collect()
}

/// Runs a graph as it is planned.
fn run(graph: &Graph, inputs: &Inputs, options: &PlanOptions, isa: Isa, threads: usize) -> (Vec<Literal>, String) {
    let planned = planned(graph, options).unwrap_or_else(|e| panic!("{:?}: {e}", options.chooser));
    let device = CpuDevice::new(isa, threads, options.clone(), Limits::default()).unwrap();
    let session = device.load(&planned).unwrap_or_else(|e| panic!("{isa:?}: {e}\n{}", show(&planned)));
    let given = inputs.iter().map(|(name, literal)| (Arc::clone(name), literal.clone())).collect();
    let outputs = session.run(&given).unwrap_or_else(|e| panic!("{isa:?}: {e}\n{}", show(&planned)));
    (outputs, show(&planned))
}

/// Runs a graph in all these ways; the outputs must be what it means, with the same bits for any number of threads.
fn holds(graph: &Graph, inputs: &Inputs, ways: &[PlanOptions]) {
    let meaning = Meaning::of(graph, inputs, Limits::default()).unwrap();
    for options in ways {
        for isa in isas() {
            let (outputs, text) = run(graph, inputs, options, isa, 1);
            if let Err((k, mismatch)) = meaning.check(&outputs) {
                panic!("{isa:?} {:?} output {k}: {mismatch}\n{text}", options.chooser);
            }
            let (again, _) = run(graph, inputs, options, isa, 3);
            assert_eq!(bytes(&outputs), bytes(&again), "{isa:?} {:?}: threads differ\n{text}", options.chooser);
        }
    }
}

fn bytes(outputs: &[Literal]) -> Vec<Vec<u8>> {
    outputs.iter().map(|output| output.bytes().to_vec()).collect()
}

proptest! {
    #![proptest_config(drawn::cases(64))]

    #[test]
    fn random_graphs_run_as_planned(case in cases(), seed: u64, strict: bool) {
        let numerics = if strict { Numerics::Strict } else { Numerics::Default };
        holds(&case.graph, &case.inputs, &choices("cpu", numerics, &[seed]));
    }

}

proptest! {
    #![proptest_config(drawn::cases(16))]

    #[test]
    fn random_attentions_run_as_planned(case in attentions(), seed: u64) {
        holds(&case.graph, &case.inputs, &choices("cpu", Numerics::Default, &[seed]));
    }
}

/// Runs a graph with its factors in bf16: the outputs must be what the graph with the roundings means.
fn holds_in_bf16(graph: &Graph, inputs: &Inputs, ways: &[PlanOptions]) {
    for options in ways {
        let options = PlanOptions { precision: Precision::Bf16, ..options.clone() };
        let planned = planned(graph, &options).unwrap_or_else(|e| panic!("{:?}: {e}", options.chooser));
        let mut given = inputs.clone();
        let prepare = planned.program.prepare();
        let prepared = evaluate(prepare, &Inputs::default(), &reference::Options::default()).unwrap();
        given.extend(prepare.outputs().iter().map(|output| output.name.clone()).zip(prepared));
        let meaning = Meaning::of(planned.program.run(), &given, Limits::default()).unwrap();
        for isa in isas() {
            let (outputs, text) = run(graph, inputs, &options, isa, 1);
            if let Err((k, mismatch)) = meaning.check(&outputs) {
                panic!("{isa:?} {:?} output {k}: {mismatch}\n{text}", options.chooser);
            }
            let (again, _) = run(graph, inputs, &options, isa, 3);
            assert_eq!(bytes(&outputs), bytes(&again), "{isa:?} {:?}: threads differ\n{text}", options.chooser);
        }
    }
}

proptest! {
    #![proptest_config(drawn::cases(24))]

    #[test]
    fn random_graphs_run_in_bf16(case in cases(), seed: u64) {
        holds_in_bf16(&case.graph, &case.inputs, &choices("cpu", Numerics::Default, &[seed]));
    }
}

proptest! {
    #![proptest_config(drawn::cases(8))]

    #[test]
    fn random_attentions_run_in_bf16(case in attentions(), seed: u64) {
        holds_in_bf16(&case.graph, &case.inputs, &choices("cpu", Numerics::Default, &[seed]));
    }
}

fn norm(h: Tensor<'_>) -> Tensor<'_> {
    let centred = h - h.mean(&[1]);
    centred / ((centred * centred).mean(&[1]) + 1e-5).sqrt()
}

fn heads(t: Tensor<'_>, tokens: i64) -> Tensor<'_> {
    t.reshape(Shape::new([tokens as usize, 4, 16])).permute(&[1, 0, 2])
}

/// Two layers of a transformer: heads of 16, norms, a residual stream of 64.
fn transformer(tokens: i64) -> (Graph, Inputs) {
    let b = Builder::new("transformer");
    let mut state = 1u64;
    let mut numbers = |sizes: &[usize], scale: f64| {
        let values: Vec<f64> = (0..sizes.iter().product())
            .map(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                ((state >> 40) as f64 / f64::from(1 << 24) - 0.5) * scale
            })
            .collect();
        Literal::from_f64s(DType::F32, sizes, &values).unwrap()
    };
    let x = numbers(&[tokens as usize, 64], 4.0);
    let mut h = b.input("x", DType::F32, Shape::new([tokens as usize, 64]));
    for _ in 0..2 {
        let mut weight =
            |rows: usize, columns: usize| b.constant(numbers(&[rows, columns], 3.5 / (rows as f64).sqrt()));
        let n = norm(h);
        let [q, k, v] = [(); 3].map(|()| heads(n.matmul(weight(64, 64)), tokens));
        let scores = q.matmul(k.permute(&[0, 2, 1])) * 0.25;
        let e = (scores - scores.reduce_keep(Monoid::Max, &[2])).exp();
        let mixed = (e / e.sum(&[2])).matmul(v).permute(&[1, 0, 2]).reshape(Shape::new([tokens as usize, 64]));
        h = h + mixed.matmul(weight(64, 64));
        let wide = norm(h).matmul(weight(64, 256));
        h = h + (wide * wide.sigmoid()).matmul(weight(256, 64));
    }
    b.output("y", norm(h));
    (b.finish().unwrap(), std::iter::once((Arc::from("x"), x)).collect())
}

/// Every factor errs by at most 2^-9 of itself, and such errors mostly cancel in sums: behind two layers the outputs, whose
/// typical size is 1, are off by less than one part in a hundred on average, and never by more than five.
#[test]
fn a_transformer_in_bf16_is_close_to_itself_in_f32() {
    if Isa::detect() != Isa::Amx {
        eprintln!("skipped: tiles of bf16 (this machine has {:?})", Isa::detect());
    }
    let (graph, inputs) = transformer(40);
    let expected = evaluate(&graph, &inputs, &reference::Options::default()).unwrap()[0].to_f64s();
    let spec = DeviceSpec::find("cpu").unwrap();
    let options = PlanOptions { precision: Precision::Bf16, ..PlanOptions::on(spec) };
    for isa in isas() {
        let actual = run(&graph, &inputs, &options, isa, 2).0[0].to_f64s();
        let errors: Vec<f64> = expected.iter().zip(&actual).map(|(e, a)| (e - a).abs()).collect();
        let mean = (errors.iter().map(|e| e * e).sum::<f64>() / errors.len() as f64).sqrt();
        let worst = errors.iter().copied().fold(0.0, f64::max);
        assert!(mean < 0.01 && worst < 0.05, "{isa:?}: {mean} on average, {worst} at most");
        assert!(mean > 1e-4, "{isa:?}: nothing was rounded");
    }
}

/// Numbers between −1/2 and 1/2, the same for the same seed.
fn numbers(sizes: &[usize], seed: u64) -> Literal {
    let words = philox::words(seed, 0, 0).take(sizes.iter().product());
    let values: Vec<f64> = words.map(|word| f64::from(word) / f64::from(u32::MAX) - 0.5).collect();
    Literal::from_f64s(DType::F32, sizes, &values).unwrap()
}

/// Lines that are multiples of a vector and lines that are not, one picture and several, few and many terms: factors are packed
/// before all, panel by panel, or line by line.
#[test]
fn convolutions_of_all_sizes_run_as_planned() {
    let graph = gallery::find("conv_bias_relu").unwrap().graph(DType::F32).unwrap();
    let options = [PlanOptions::on(DeviceSpec::find("cpu").unwrap())];
    for [batch, channels, height, width, filters] in [
        [1, 8, 20, 20, 24],
        [3, 5, 17, 40, 20],
        [1, 130, 12, 24, 16],
        [1, 8, 32, 32, 7],
        [2, 3, 64, 16, 9],
        [1, 9, 7, 7, 40],
    ] {
        let tensors =
            [("x", vec![batch, channels, height, width]), ("w", vec![filters, channels, 3, 3]), ("b", vec![filters])];
        let seeded = tensors.iter().zip(1..).map(|((name, sizes), seed)| (Arc::from(*name), numbers(sizes, seed)));
        holds(&graph, &seeded.collect(), &options);
    }
}

#[test]
fn a_device_must_have_the_instructions() {
    let options = PlanOptions::on(DeviceSpec::find("cpu").unwrap());
    assert!(CpuDevice::new(Isa::Portable, 1, options, Limits::default()).is_ok());
}

/// Coordinates multiplied with each other, along rows that are shorter than a vector, as long as several, and longer.
#[test]
fn products_of_coordinates_run_as_planned() {
    let sum = "graph g(x: f32[n, 2]) {
  %1 = map() f32(i1 + i0 * i2) : f32[n, 2, n, 2]
  %2 = contract(%1, x) \"acde,de->ac\" acc=f32 : f32[n, 2]
  return y = %2
}";
    let map = "graph g(x: f32[n, 2]) {
  %1 = map(x) a * f32(i0 * i1 + 3 * i0 - i1 * i1) : f32[n, 2]
  %2 = view %1[i1, i0] : f32[2, n]
  %3 = map(%2) a + f32(i0 * i1) : f32[2, n]
  return y = %3
}";
    for text in [sum, map] {
        let graph = Graph::parse(text).unwrap();
        for n in [1, 3, 5, 8, 16, 19, 40] {
            let inputs: Inputs = std::iter::once((Arc::from("x"), numbers(&[n, 2], 3))).collect();
            holds(&graph, &inputs, &choices("cpu", Numerics::Default, &[1, 2]));
        }
    }
}

/// A factor that is the same for all terms of a sum, or for those along one of its axes.
#[test]
fn factors_that_are_the_same_for_some_terms_run_as_planned() {
    let all = "graph g(x: f32[n, m]) {
  %1 = map() f32(i0) : f32[3, n]
  %2 = contract(x, %1) \"cb,ac->ab\" acc=f32 : f32[3, m]
  return y = %2
}";
    let inner = "graph g(x: f32[n, 4, m]) {
  %1 = map() sin(f32(i0 + i1)) : f32[7, n, 4]
  %2 = contract(x, %1) \"cdb,acd->ab\" acc=f32 : f32[7, m]
  return y = %2
}";
    let outer = inner.replace("i0 + i1", "i0 + i2");
    for (text, own) in [(all, None), (inner, Some(4)), (&outer, Some(4))] {
        let graph = Graph::parse(text).unwrap();
        for [n, m] in [[2, 3], [1, 1], [5, 70], [40, 9]] {
            let sizes: Vec<usize> = std::iter::once(n).chain(own).chain([m]).collect();
            let inputs: Inputs = std::iter::once((Arc::from("x"), numbers(&sizes, 7))).collect();
            let ways = choices("cpu", Numerics::Default, &[1, 2, 3]);
            holds(&graph, &inputs, &ways);
            holds_in_bf16(&graph, &inputs, &ways);
        }
    }
}
