use fuseline::tensor::{DType, Literal};

use crate::call::{Op, f32s, op};

const SCORES: [f64; 12] = [1.0, 2.0, 0.0, -1.0, 0.5, 3.0, 2.0, 2.0, 1.0, 1.0, 0.0, -2.0];

/// Scores of three classes at two places of two samples, with targets of which the second is ignored.
fn call(name: &'static str, reduction: &str, weighted: bool) -> Op {
    let targets = Literal::from_ints(DType::I32, [2, 2], &[0, -7, 2, 1]).unwrap();
    let call = op(name).str("reduction", reduction).int("ignore_index", -7);
    let call = call.arg(f32s(&[2, 3, 2], &SCORES)).arg(targets);
    if weighted { call.arg(f32s(&[3], &[1.0, 2.0, 4.0])) } else { call }
}

/// The score of the target's class, where it counts, with its place and the class.
const PICKED: [(usize, usize, usize); 3] = [(0, 0, 0), (1, 0, 2), (1, 1, 1)];

fn score(sample: usize, class: usize, place: usize) -> f64 {
    SCORES[sample * 6 + class * 2 + place]
}

fn log_probability(sample: usize, class: usize, place: usize) -> f64 {
    let total: f64 = (0..3).map(|c| score(sample, c, place).exp()).sum();
    score(sample, class, place) - total.ln()
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6
}

#[test]
fn ignored_targets_do_not_count() {
    type Value = fn(usize, usize, usize) -> f64;
    for (name, value) in
        [("NegativeLogLikelihoodLoss", score as Value), ("SoftmaxCrossEntropyLoss", log_probability as Value)]
    {
        for weighted in [false, true] {
            let weight = |class: usize| if weighted { [1.0, 2.0, 4.0][class] } else { 1.0 };
            let losses: Vec<f64> = PICKED.iter().map(|(n, d, c)| -value(*n, *c, *d) * weight(*c)).collect();
            let weights: f64 = PICKED.iter().map(|(_, _, c)| weight(*c)).sum();
            let none = call(name, "none", weighted).values();
            assert!(near(none[0], losses[0]) && none[1] == 0.0 && near(none[2], losses[1]) && near(none[3], losses[2]));
            let sum = call(name, "sum", weighted).run().remove(0);
            assert!(sum.sizes().is_empty() && near(sum.float(0), losses.iter().sum()));
            let mean = call(name, "mean", weighted).values()[0];
            assert!(near(mean, losses.iter().sum::<f64>() / weights), "{name} {weighted} {mean}");
        }
    }
}

#[test]
fn cross_entropy_gives_the_log_probabilities() {
    let results = call("SoftmaxCrossEntropyLoss", "mean", false).outputs(2).run();
    for (sample, class, place) in [(0, 0, 0), (0, 2, 1), (1, 1, 0)] {
        assert!(near(results[1].float(sample * 6 + class * 2 + place), log_probability(sample, class, place)));
    }
}

#[test]
fn wrong_classes_and_shapes_are_refused() {
    let classes = Literal::i64s(&[3, 0]);
    let outside = op("NegativeLogLikelihoodLoss").arg(f32s(&[2, 3], &[0.0; 6])).arg(classes.clone()).refusal();
    assert!(outside.contains('3'), "{outside}");
    let ranks = op("NegativeLogLikelihoodLoss").arg(f32s(&[2], &[0.0; 2])).arg(classes).refusal();
    assert!(ranks.contains("with targets"), "{ranks}");
}
