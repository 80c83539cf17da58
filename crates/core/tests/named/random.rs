use fuseline::tensor::{DType, Literal};

use crate::call::{Op, f32s, op};

/// The operand that says whether to train.
fn mode(training: bool) -> Literal {
    Literal::from_ints(DType::Bool, [], &[i64::from(training)]).unwrap()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[test]
fn dropout_keeps_everything_unless_it_trains() {
    let x = f32s(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let check = |call: Op, mask: DType| {
        let y = call.arg(x.clone()).outputs(2).run();
        assert_eq!((y[0].to_f64s(), y[1].to_f64s(), y[1].dtype()), (x.to_f64s(), vec![1.0; 6], mask));
    };
    check(op("Dropout").opset(6).int("is_test", 1), DType::F32);
    check(op("Dropout").opset(7).float("ratio", 0.9), DType::F32);
    check(op("Dropout").opset(10).float("ratio", 0.9), DType::Bool);
    check(op("Dropout"), DType::Bool);
}

#[test]
fn training_dropout_scales_what_it_keeps() {
    let x = f32s(&[20_000], &[1.0; 20_000]);
    let train = |ratio: f64| op("Dropout").arg(x.clone()).arg(f32s(&[], &[ratio])).arg(mode(true)).outputs(2).run();
    let y = train(0.25);
    for k in 0..20_000 {
        let kept = y[1].int(k) == 1;
        assert!((y[0].float(k) - if kept { 4.0 / 3.0 } else { 0.0 }).abs() < 1e-6);
    }
    assert!((mean(&y[1].to_f64s()) - 0.75).abs() < 0.02);
    assert_eq!(train(0.0)[0].to_f64s(), x.to_f64s());
    assert_eq!(train(1.0)[0].to_f64s(), vec![0.0; 20_000]);
    let off = op("Dropout").arg(x.clone()).arg(f32s(&[], &[0.5])).arg(mode(false)).outputs(2).run();
    assert_eq!((off[0].to_f64s(), off[1].to_ints()), (x.to_f64s(), vec![1; 20_000]));
}

#[test]
fn numbers_are_distributed_as_asked() {
    let like = f32s(&[10_000], &[0.0; 10_000]);
    let uniform = op("RandomUniformLike").float("low", 2.0).float("high", 4.0).arg(like.clone()).values();
    assert!(uniform.iter().all(|x| (2.0..4.0).contains(x)) && (mean(&uniform) - 3.0).abs() < 0.03);
    let normal = op("RandomNormalLike").float("mean", 1.0).float("scale", 2.0).arg(like.clone()).values();
    let centred: Vec<f64> = normal.iter().map(|x| (x - 1.0).powi(2)).collect();
    assert!((mean(&normal) - 1.0).abs() < 0.1 && (mean(&centred) - 4.0).abs() < 0.2);
    assert!(normal.iter().all(|x| x.is_finite()));
    let seeded = op("RandomNormalLike").float("seed", 7.0).float("mean", 1.0).float("scale", 2.0).arg(like);
    assert_ne!(seeded.values(), normal);
    let plain = op("RandomUniform").ints("shape", &[2, 3]).str("dtype", "f64").run().remove(0);
    assert_eq!((plain.dtype(), plain.sizes()), (DType::F64, &[2usize, 3][..]));
    let p = f32s(&[3, 4000], &[[0.0; 4000], [0.3; 4000], [1.0; 4000]].concat());
    let drawn = op("Bernoulli").str("dtype", "i32").arg(p).values();
    let rows = [mean(&drawn[..4000]), mean(&drawn[4000..8000]), mean(&drawn[8000..])];
    assert!(rows[0] == 0.0 && (rows[1] - 0.3).abs() < 0.03 && rows[2] == 1.0, "{rows:?}");
}

#[test]
fn classes_are_drawn_by_their_probability() {
    let scores = f32s(&[2, 3], &[0.0, f64::NEG_INFINITY, 3f64.ln(), f64::NEG_INFINITY, 5.0, f64::NEG_INFINITY]);
    let drawn = op("Multinomial").int("sample_size", 8000).arg(scores).run().remove(0);
    assert_eq!((drawn.dtype(), drawn.sizes()), (DType::I32, &[2usize, 8000][..]));
    let drawn = drawn.to_ints();
    assert!(drawn[..8000].iter().all(|c| *c == 0 || *c == 2) && drawn[8000..].iter().all(|c| *c == 1));
    let last = drawn[..8000].iter().filter(|c| **c == 2).count() as f64 / 8000.0;
    assert!((last - 0.75).abs() < 0.03, "{last}");
}
