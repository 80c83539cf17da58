use std::f64::consts::TAU;

use crate::call::{Op, f32s, noise, op};
use fuseline::tensor::Literal;

fn close(found: &Literal, wanted: &[f64]) {
    assert_eq!(found.count(), wanted.len());
    for (k, w) in wanted.iter().enumerate() {
        let f = found.float(k);
        assert!((f - w).abs() < 1e-3, "element {k} is {f} instead of {w}");
    }
}

/// Σ x[n] · exp(±2πi kn / N) for k in 0..count; x has pairs of real and imaginary parts.
fn transform(x: &[(f64, f64)], length: usize, count: usize, sign: f64) -> Vec<f64> {
    let mut out = Vec::new();
    for k in 0..count {
        let (mut re, mut im) = (0.0, 0.0);
        for (n, (a, b)) in x.iter().take(length).enumerate() {
            let (sin, cos) = (sign * TAU * (n * k) as f64 / length as f64).sin_cos();
            re += a * cos - b * sin;
            im += a * sin + b * cos;
        }
        out.extend([re, im]);
    }
    out
}

#[test]
fn a_transform_may_be_longer_or_shorter_than_its_signal() {
    let x = noise(&[2, 7, 1], 3);
    for length in [7usize, 5, 10] {
        for half in [false, true] {
            let y = op("DFT").int("onesided", i64::from(half)).arg(x.clone()).arg(Literal::i64s(&[length as i64]));
            let count = if half { length / 2 + 1 } else { length };
            let signal = |b: usize| (0..7).map(|n| (x.float(b * 7 + n), 0.0)).collect::<Vec<_>>();
            let wanted = [transform(&signal(0), length, count, -1.0), transform(&signal(1), length, count, -1.0)];
            close(&y.run()[0], &wanted.concat());
        }
    }
}

#[test]
fn an_inverse_gives_the_signal_back() {
    for length in [6usize, 7] {
        let x = noise(&[1, length, 2], 5);
        let there = op("DFT").arg(x.clone()).run().remove(0);
        close(&op("DFT").int("inverse", 1).arg(there).run()[0], &x.to_f64s());
        let x = noise(&[1, length, 1], 6);
        let there = op("DFT").int("onesided", 1).arg(x.clone()).run().remove(0);
        let back = op("DFT").int("inverse", 1).int("onesided", 1).arg(there).arg(Literal::i64s(&[length as i64]));
        let back = back.run().remove(0);
        assert_eq!(back.sizes(), [1, length, 1]);
        close(&back, &x.to_f64s());
    }
}

#[test]
fn frames_are_transformed_one_by_one() {
    let x = noise(&[2, 11, 1], 3);
    let window: Vec<f64> = (0..4).map(|n| f64::from(n) + 1.0).collect();
    let one = |n: i64| Literal::i64s(&[n]).reshaped([]).unwrap();
    let y = op("STFT").arg(x.clone()).arg(one(3)).arg(f32s(&[4], &window)).arg(one(4)).run().remove(0);
    assert_eq!(y.sizes(), [2, 3, 3, 2]);
    let mut wanted = Vec::new();
    for b in 0..2 {
        for f in 0..3 {
            let frame: Vec<_> = (0..4).map(|n| (x.float(b * 11 + f * 3 + n) * window[n], 0.0)).collect();
            wanted.extend(transform(&frame, 4, 3, -1.0));
        }
    }
    close(&y, &wanted);
}

#[test]
fn determinants_of_any_small_size() {
    let det = |n: usize, values: &[f64]| -> Vec<f64> {
        let count = values.len() / (n * n);
        let call: Op = op("Det").arg(f32s(&[count, n, n], values));
        call.run()[0].to_f64s()
    };
    assert_eq!(det(1, &[3., -2.]), [3., -2.]);
    assert_eq!(det(2, &[0., 1., 1., 0., 1., 2., 2., 4.]), [-1., 0.]);
    close(&f32s(&[1], &det(3, &[0., 2., 1., 3., 0., 4., 1., 5., 0.])), &[23.0]);
    // A permutation of five is even or odd.
    let mut swap = vec![0.0; 25];
    for (row, column) in [1, 2, 3, 4, 0].into_iter().enumerate() {
        swap[row * 5 + column] = 2.0;
    }
    close(&f32s(&[1], &det(5, &swap)), &[32.0]);
}
