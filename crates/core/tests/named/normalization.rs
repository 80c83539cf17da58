use fuseline::tensor::{DType, Literal};

use crate::call::{at, coordinates, f32s, noise, op};

fn close(actual: &[f64], expected: &[f64]) {
    assert_eq!(actual.len(), expected.len());
    for (a, e) in actual.iter().zip(expected) {
        assert!((a - e).abs() <= 1e-5 * (1.0 + e.abs()), "{actual:?} {expected:?}");
    }
}

/// The elements standardised within the sets that `key` names.
fn standardized(x: &Literal, epsilon: f64, key: impl Fn(&[usize]) -> usize) -> Vec<f64> {
    let places = coordinates(x.sizes());
    let statistic = |wanted: usize, f: &dyn Fn(f64) -> f64| {
        let members = places.iter().enumerate().filter(|(_, i)| key(i) == wanted);
        let values: Vec<f64> = members.map(|(k, _)| f(x.float(k))).collect();
        values.iter().sum::<f64>() / values.len() as f64
    };
    let one = |(k, i): (usize, &Vec<usize>)| {
        let mean = statistic(key(i), &|x| x);
        let variance = statistic(key(i), &|x| (x - mean).powi(2));
        (x.float(k) - mean) / (variance + epsilon).sqrt()
    };
    places.iter().enumerate().map(one).collect()
}

/// `values[k] · scale + shift`, both found by the coordinates.
fn affine(x: &Literal, values: &[f64], scale: &Literal, shift: &Literal, at: impl Fn(&[usize]) -> usize) -> Vec<f64> {
    let places = coordinates(x.sizes());
    values.iter().zip(&places).map(|(v, i)| v * scale.float(at(i)) + shift.float(at(i))).collect()
}

#[test]
fn layers_are_normalised_over_the_last_axes() {
    let x = noise(&[2, 3, 4], 1);
    for axis in [-2, 1] {
        let (scale, shift) = (noise(&[3, 4], 2), noise(&[3, 4], 3));
        let call = op("LayerNormalization").int("axis", axis).float("epsilon", 0.1);
        let y = call.arg(x.clone()).arg(scale.clone()).arg(shift.clone()).outputs(3).run();
        let normalized = standardized(&x, 0.1, |i| i[0]);
        close(&y[0].to_f64s(), &affine(&x, &normalized, &scale, &shift, |i| i[1] * 4 + i[2]));
        assert_eq!((y[1].sizes(), y[2].sizes()), (&[2usize, 1, 1][..], &[2usize, 1, 1][..]));
    }
    let half = Literal::from_f64s(DType::F16, [2, 2], &[300.0, -300.0, 1.0, 3.0]).unwrap();
    let ones = Literal::from_f64s(DType::F16, [2], &[1.0; 2]).unwrap();
    let y = op("LayerNormalization").arg(half).arg(ones).outputs(3).run();
    assert_eq!((y[0].dtype(), y[1].dtype(), y[0].to_f64s()), (DType::F16, DType::F32, vec![1.0, -1.0, -1.0, 1.0]));
}

#[test]
fn batches_are_normalised_by_channel_in_every_version() {
    for sizes in [&[4, 3][..], &[4, 3, 2], &[2, 3, 2, 2]] {
        let x = noise(sizes, 1);
        let (scale, shift) = (noise(&[3], 2), noise(&[3], 3));
        let (mean, variance) = (noise(&[3], 4), f32s(&[3], &[1.0, 2.0, 0.5]));
        let call = op("BatchNormalization").float("epsilon", 0.01).float("momentum", 0.75);
        let call = call.arg(x.clone()).arg(scale.clone()).arg(shift.clone()).arg(mean.clone()).arg(variance.clone());
        let given: Vec<f64> = coordinates(sizes)
            .iter()
            .enumerate()
            .map(|(k, i)| (x.float(k) - mean.float(i[1])) / (variance.float(i[1]) + 0.01).sqrt())
            .collect();
        let expected = affine(&x, &given, &scale, &shift, |i| i[1]);
        for opset in [6, 7, 9, 14, 15, 22] {
            close(&call.clone().opset(opset).values(), &expected);
        }
        let trained = affine(&x, &standardized(&x, 0.01, |i| i[1]), &scale, &shift, |i| i[1]);
        let old = call.clone().opset(9).outputs(5).run();
        let new = call.int("training_mode", 1).outputs(3).run();
        close(&old[0].to_f64s(), &trained);
        close(&new[0].to_f64s(), &trained);
        close(&new[1].to_f64s(), &old[1].to_f64s());
        let running = |c: usize| 0.75 * mean.float(c) + 0.25 * old[3].float(c);
        close(&new[1].to_f64s(), &[running(0), running(1), running(2)]);
        assert_eq!((old[3].sizes(), old[4].sizes()), (&[3usize][..], &[3usize][..]));
    }
}

#[test]
fn batches_without_channels_or_space_are_normalised() {
    let one = |x: f64| f32s(&[1], &[x]);
    let call = op("BatchNormalization").float("epsilon", 0.0).arg(f32s(&[3], &[1.0, 2.0, 3.0]));
    let call = call.arg(one(2.0)).arg(one(1.0)).arg(one(2.0)).arg(one(4.0));
    close(&call.values(), &[0.0, 1.0, 2.0]);
    let x = noise(&[4, 3, 2], 1);
    let (scale, shift) = (noise(&[3, 2], 2), noise(&[3, 2], 3));
    let call = op("BatchNormalization").opset(7).int("spatial", 0).float("epsilon", 0.01);
    let call =
        call.arg(x.clone()).arg(scale.clone()).arg(shift.clone()).arg(noise(&[3, 2], 4)).arg(f32s(&[3, 2], &[1.0; 6]));
    let normalized = standardized(&x, 0.01, |i| i[1] * 2 + i[2]);
    close(&call.outputs(5).run()[0].to_f64s(), &affine(&x, &normalized, &scale, &shift, |i| i[1] * 2 + i[2]));
}

#[test]
fn parameters_of_groups_became_parameters_of_channels() {
    let x = noise(&[2, 6, 2, 3], 1);
    let normalized = standardized(&x, 0.01, |i| i[0] * 3 + i[1] / 2);
    let call = |opset| op("GroupNormalization").opset(opset).int("num_groups", 3).float("epsilon", 0.01).arg(x.clone());
    let (scale, shift) = (noise(&[3], 2), noise(&[3], 3));
    let groups = call(18).arg(scale.clone()).arg(shift.clone()).values();
    close(&groups, &affine(&x, &normalized, &scale, &shift, |i| i[1] / 2));
    let (scale, shift) = (noise(&[6], 2), noise(&[6], 3));
    let channels = call(21).arg(scale.clone()).arg(shift.clone()).values();
    close(&channels, &affine(&x, &normalized, &scale, &shift, |i| i[1]));
    let uneven = op("GroupNormalization").int("num_groups", 4).arg(x.clone()).arg(scale).arg(shift).refusal();
    assert!(uneven.contains("groups of one size"), "{uneven}");
    let (scale, shift) = (noise(&[6], 2), noise(&[6], 3));
    let instances = op("InstanceNormalization").float("epsilon", 0.01);
    let instances = instances.arg(x.clone()).arg(scale.clone()).arg(shift.clone()).values();
    close(&instances, &affine(&x, &standardized(&x, 0.01, |i| i[0] * 6 + i[1]), &scale, &shift, |i| i[1]));
}

#[test]
fn a_norm_of_zero_gives_zeros() {
    let x = f32s(&[2, 2], &[3.0, -4.0, 0.0, 0.0]);
    close(&op("LpNormalization").arg(x.clone()).values(), &[0.6, -0.8, 0.0, 0.0]);
    close(&op("LpNormalization").int("p", 1).arg(x).values(), &[3.0 / 7.0, -4.0 / 7.0, 0.0, 0.0]);
}

#[test]
fn local_responses_are_cut_off_at_the_first_and_last_channel() {
    let x = noise(&[1, 5, 2], 1);
    for size in 1..7i64 {
        let call = op("LRN").int("size", size).float("alpha", 0.5).float("beta", 0.75).float("bias", 2.0);
        let y = call.arg(x.clone()).values();
        for (k, i) in coordinates(x.sizes()).iter().enumerate() {
            let first = i[1] as i64 - (size - 1) / 2;
            let near = (first..first + size).filter(|c| (0..5).contains(c));
            let squares: f64 = near.map(|c| x.float(c as usize * 2 + i[2]).powi(2)).sum();
            let expected = x.float(k) / (2.0 + 0.5 / size as f64 * squares).powf(0.75);
            close(&[y[k]], &[expected]);
        }
    }
}

#[test]
fn skip_connections_are_added_and_returned() {
    let (x, skip) = (noise(&[2, 3, 4], 1), noise(&[3, 4], 2));
    let (scale, shift, bias) = (noise(&[4], 3), noise(&[4], 4), noise(&[4], 5));
    let sum: Vec<f64> = (0..24).map(|k| x.float(k) + skip.float(k % 12) + bias.float(k % 4)).collect();
    let sum = f32s(&[2, 3, 4], &sum);
    let call = op("SkipLayerNormalization").domain("com.microsoft", 1).arg(x.clone()).arg(skip.clone());
    let y = call.arg(scale.clone()).arg(shift.clone()).arg(bias.clone()).outputs(4).run();
    close(&y[0].to_f64s(), &affine(&x, &standardized(&sum, 0.0, |i| i[0] * 3 + i[1]), &scale, &shift, |i| i[2]));
    assert_eq!(y[3].to_f64s(), sum.to_f64s());
    let call = op("SkipSimplifiedLayerNormalization").domain("com.microsoft", 1).arg(x).arg(skip);
    let y = call.arg(scale.clone()).arg(bias).outputs(4).run();
    let simple = op("SimplifiedLayerNormalization").float("epsilon", 0.0).arg(sum).arg(scale).run();
    close(&y[0].to_f64s(), &simple[0].to_f64s());
}

#[test]
fn groups_of_channels_may_lie_at_the_end() {
    let (x, scale, shift) = (noise(&[2, 4, 3, 2], 1), noise(&[4], 2), noise(&[4], 3));
    let standard = op("GroupNormalization").int("num_groups", 2).arg(x.clone()).arg(scale.clone()).arg(shift.clone());
    let expected = standard.run().remove(0);
    let call = op("GroupNorm").domain("com.microsoft", 1).int("groups", 2);
    let first = call.clone().int("channels_last", 0).arg(x.clone()).arg(scale.clone()).arg(shift.clone()).values();
    close(&first, &expected.to_f64s());
    let turned: Vec<f64> = coordinates(&[2, 3, 2, 4])
        .iter()
        .map(|i| at(&x, &[i[0] as i64, i[3] as i64, i[1] as i64, i[2] as i64]).unwrap())
        .collect();
    let turned = f32s(&[2, 3, 2, 4], &turned);
    let last = call.clone().int("activation", 1).arg(turned.clone()).arg(scale.clone()).arg(shift.clone()).values();
    for (k, i) in coordinates(&[2, 3, 2, 4]).iter().enumerate() {
        let y = at(&expected, &[i[0] as i64, i[3] as i64, i[1] as i64, i[2] as i64]).unwrap();
        close(&[last[k]], &[y / (1.0 + (-y).exp())]);
    }
    let skip = op("SkipGroupNorm").domain("com.microsoft", 1).int("groups", 2).int("activation", 1);
    let skip = skip.arg(turned.clone()).arg(scale).arg(shift).arg(f32s(&[2, 4], &[0.0; 8])).outputs(2).run();
    close(&skip[0].to_f64s(), &last);
    assert_eq!(skip[1].to_f64s(), turned.to_f64s());
}

#[test]
fn gates_multiply_the_norms_of_heads() {
    let (x, scale, gate) = (noise(&[2, 3, 6], 1), noise(&[2], 2), noise(&[2, 3, 6], 3));
    let call = op("GatedRMSNorm").domain("com.microsoft", 1).float("epsilon", 0.1).str("activation", "sigmoid");
    let y = call.arg(x.clone()).arg(scale.clone()).arg(gate.clone()).values();
    for (k, y) in y.iter().enumerate() {
        let pair = [x.float(k / 2 * 2), x.float(k / 2 * 2 + 1)];
        let root = ((pair[0].powi(2) + pair[1].powi(2)) / 2.0 + 0.1).sqrt();
        close(&[*y], &[x.float(k) / root * scale.float(k % 2) / (1.0 + (-gate.float(k)).exp())]);
    }
}
