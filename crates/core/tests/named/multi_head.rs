use fuseline::tensor::{DType, Literal};

use crate::call::{Op, f32s, noise, op};

fn multi_head() -> Op {
    op("MultiHeadAttention").domain("com.microsoft", 1).int("num_heads", 2).float("scale", 0.01)
}

fn ints(values: &[i64]) -> Literal {
    Literal::from_ints(DType::I32, vec![values.len()], values).unwrap()
}

fn close(a: &[f64], b: &[f64]) {
    assert_eq!(a.len(), b.len());
    assert!(a.iter().zip(b).all(|(x, y)| (x - y).abs() <= 1e-5 * y.abs().max(1.0)), "{a:?} and {b:?}");
}

#[test]
fn multi_head_attention_is_attention_of_its_heads() {
    let (q, k, v) = (noise(&[2, 3, 8], 1), noise(&[2, 5, 8], 2), noise(&[2, 5, 6], 3));
    let ours = multi_head().arg(q.clone()).arg(k.clone()).arg(v.clone()).values();
    let standard = op("Attention").opset(23).int("q_num_heads", 2).int("kv_num_heads", 2).float("scale", 0.01);
    close(&ours, &standard.arg(q).arg(k).arg(v).values());
}

#[test]
fn a_mask_of_lengths_is_a_mask_of_truths() {
    let (q, k, v) = (noise(&[2, 3, 8], 1), noise(&[2, 5, 8], 2), noise(&[2, 5, 8], 3));
    let call = || multi_head().arg(q.clone()).arg(k.clone()).arg(v.clone()).no_arg();
    let truths = Literal::from_ints(DType::I32, vec![2, 5], &[1, 1, 0, 0, 0, 1, 1, 1, 1, 0]).unwrap();
    close(&call().arg(ints(&[2, 4])).values(), &call().arg(truths).values());
}

/// Queries of a cache that is kept outside stand at the end of what is there; who sees nothing gives 0.
#[test]
fn causal_attention_to_a_cache_ends_with_its_last_key() {
    let (q, k, v) = (noise(&[2, 1, 2, 4], 1), noise(&[2, 1, 4, 4], 2), noise(&[2, 1, 4, 3], 3));
    let call = || op("Attention").opset(24).arg(q.clone()).arg(k.clone()).arg(v.clone());
    let lengths = Literal::from_ints(DType::I64, vec![2], &[3, 1]).unwrap();
    let cached = call().no_arg().no_arg().no_arg().arg(lengths).int("is_causal", 1).values();
    let seen = [1, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    let mask = Literal::from_ints(DType::Bool, vec![2, 1, 2, 4], &seen).unwrap();
    close(&cached, &call().arg(mask).values());
}

/// A row of a mask that hides every key gives 0, in the results as in the probabilities, whatever the mask is made of.
#[test]
fn who_sees_no_key_gives_nothing() {
    let (q, k, v) = (noise(&[1, 1, 2, 4], 1), noise(&[1, 1, 3, 4], 2), noise(&[1, 1, 3, 2], 3));
    let truths = Literal::from_ints(DType::Bool, vec![2, 3], &[1, 0, 1, 0, 0, 0]).unwrap();
    let least = f64::NEG_INFINITY;
    let added = Literal::from_f64s(DType::F32, [2, 3], &[0.0, least, 0.0, least, least, least]).unwrap();
    for opset in [23, 24] {
        for mask in [&truths, &added] {
            let call = || op("Attention").opset(opset).arg(q.clone()).arg(k.clone()).arg(v.clone()).arg(mask.clone());
            let y = call().values();
            assert!(y[..2].iter().all(|x| x.is_finite() && *x != 0.0) && y[2..] == [0.0; 2], "{y:?}");
            let probabilities = call().outputs(4).int("qk_matmul_output_mode", 3).run()[3].to_f64s();
            assert!(probabilities[1] == 0.0 && probabilities[3..] == [0.0; 3], "{probabilities:?}");
        }
    }
}

#[test]
fn the_projection_of_attention_is_a_product() {
    let x = noise(&[2, 3, 4], 1);
    // Three identities side by side: queries, keys and values are the input.
    let mut weights = vec![0.0; 4 * 12];
    (0..12).for_each(|k| weights[(k % 4) * 12 + k] = 1.0);
    let bias = noise(&[12], 5);
    let projected =
        op("Attention").domain("com.microsoft", 1).int("num_heads", 2).float("scale", 0.01).int("unidirectional", 1);
    let projected = projected.arg(x.clone()).arg(f32s(&[4, 12], &weights)).arg(bias.clone()).values();
    let plain = multi_head().int("unidirectional", 1).arg(x.clone()).arg(x.clone()).arg(x).arg(bias);
    close(&projected, &plain.values());
}

#[test]
fn embeddings_are_summed_and_normalised() {
    let table = |seed| noise(&[4, 3], seed);
    let ids = Literal::from_ints(DType::I32, vec![1, 2], &[3, 1]).unwrap();
    let mask = Literal::from_ints(DType::I32, vec![1, 2], &[1, 0]).unwrap();
    let call = op("EmbedLayerNormalization").domain("com.microsoft", 1).float("epsilon", 0.0).outputs(3);
    let call = call.arg(ids.clone()).arg(ids).arg(table(1)).arg(table(2)).arg(table(3));
    let y = call.arg(f32s(&[3], &[1.0, 2.0, 3.0])).arg(f32s(&[3], &[0.5; 3])).arg(mask).run();
    for (row, id) in [3, 1].into_iter().enumerate() {
        let sum: Vec<f64> = (0..3)
            .map(|k| table(1).float(id * 3 + k) + table(2).float(row * 3 + k) + table(3).float(id * 3 + k))
            .collect();
        let mean = sum.iter().sum::<f64>() / 3.0;
        let deviation = (sum.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 3.0).sqrt();
        let wanted: Vec<f64> = (0..3).map(|k| (sum[k] - mean) / deviation * (k + 1) as f64 + 0.5).collect();
        close(&y[0].to_f64s()[row * 3..row * 3 + 3], &wanted);
        close(&y[2].to_f64s()[row * 3..row * 3 + 3], &sum);
    }
    assert_eq!(y[1].to_ints(), [1]);
}
