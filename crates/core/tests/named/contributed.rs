//! Operators of ONNX Runtime that stand alone, against their definitions.

use fuseline::tensor::{DType, Literal};

use crate::call::{Op, f32s, noise, op};

fn contributed(name: &'static str) -> Op {
    op(name).domain("com.microsoft", 1)
}

fn ints(dtype: DType, sizes: &[usize], values: &[i64]) -> Literal {
    Literal::from_ints(dtype, sizes.to_vec(), values).unwrap()
}

fn near(found: &[f64], wanted: &[f64]) {
    assert_eq!(found.len(), wanted.len());
    for (k, (f, w)) in found.iter().zip(wanted).enumerate() {
        assert!((f - w).abs() <= 1e-5 * (1.0 + w.abs()), "element {k}: {f} instead of {w}");
    }
}

#[test]
fn an_inverse_times_its_matrix_is_one() {
    // Zeros on the diagonal: rows must be exchanged.
    let x = [0.0, 2.0, 1.0, 1.0, 0.0, 3.0, 4.0, -1.0, 0.0, 5.0, 1.0, 0.0, 0.0, 0.0, 2.0, 0.0, 1.0, 7.0];
    let y = contributed("Inverse").arg_constant(f32s(&[2, 3, 3], &x)).values();
    for matrix in 0..2 {
        for row in 0..3 {
            for column in 0..3 {
                let at = |v: &[f64], r: usize, c: usize| v[matrix * 9 + r * 3 + c];
                let sum: f64 = (0..3).map(|k| at(&x, row, k) * at(&y, k, column)).sum();
                let wanted = f64::from(u8::from(row == column));
                assert!((sum - wanted).abs() < 1e-5, "{matrix} {row} {column}: {sum}");
            }
        }
    }
}

#[test]
fn tokens_that_would_repeat_a_run_are_forbidden() {
    let run = |tokens: &[i64], size: i64| {
        let call = contributed("NGramRepeatBlock").int("ngram_size", size);
        call.arg(ints(DType::I64, &[1, tokens.len()], tokens)).arg(f32s(&[1, 5], &[0.0; 5])).values()
    };
    let hidden = |places: &[usize]| -> Vec<f64> {
        (0..5).map(|k| if places.contains(&k) { f64::NEG_INFINITY } else { 0.0 }).collect()
    };
    assert_eq!(run(&[1, 2, 3, 1, 2], 3), hidden(&[3]));
    assert_eq!(run(&[1, 2, 1, 3, 1], 2), hidden(&[2, 3]));
    assert_eq!(run(&[1, 2, 1], 1), hidden(&[1, 2]));
    assert_eq!(run(&[1, 2], 3), hidden(&[]));
}

#[test]
fn hashes_are_those_of_the_bytes() {
    // MurmurHash3_x86_32 of four bytes of 0, of the bytes 21 43 65 87, and of eight bytes of 0, by its definition.
    let murmur = |words: &[u32], seed: u32| {
        let mut h = seed;
        for word in words {
            let k = word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
            h = (h ^ k).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
        }
        h ^= 4 * words.len() as u32;
        h = (h ^ (h >> 16)).wrapping_mul(0x85eb_ca6b);
        h = (h ^ (h >> 13)).wrapping_mul(0xc2b2_ae35);
        h ^ (h >> 16)
    };
    assert_eq!((murmur(&[0], 0), murmur(&[0x8765_4321], 0)), (0x2362_f9de, 0xf55b_516b));
    let call = contributed("MurmurHash3").int("seed", 7);
    let y = call.clone().arg(ints(DType::U32, &[2], &[0, 0x8765_4321])).values();
    assert_eq!(y, [murmur(&[0], 7), murmur(&[0x8765_4321], 7)].map(f64::from));
    let signed = call.int("positive", 0).arg(ints(DType::I64, &[2], &[0, -2])).run();
    let wanted = [murmur(&[0, 0], 7), murmur(&[u32::MAX - 1, u32::MAX], 7)].map(|h| i64::from(h as i32));
    assert_eq!((signed[0].dtype(), signed[0].to_ints()), (DType::I32, wanted.to_vec()));
}

#[test]
fn distances_are_those_of_pairs() {
    let call = contributed("CDist").arg(f32s(&[2, 2], &[0.0, 0.0, 3.0, 4.0])).arg(f32s(&[1, 2], &[3.0, 0.0]));
    assert_eq!(call.values(), [9.0, 16.0]);
    assert_eq!(call.str("metric", "euclidean").values(), [3.0, 4.0]);
}

#[test]
fn crops_are_resized_between_their_corners() {
    let x = f32s(&[1, 1, 3, 3], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    let crop = |region: &[f64], size: i64| {
        let call = contributed("CropAndResize").float("extrapolation_value", -1.0);
        let call = call.arg(x.clone()).arg(f32s(&[1, 4], region)).arg(ints(DType::I32, &[1], &[0]));
        call.arg_constant(ints(DType::I32, &[2], &[size, size]))
    };
    assert_eq!(crop(&[0.0, 0.0, 1.0, 1.0], 3).values(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    assert_eq!(crop(&[0.0, 0.0, 0.5, 0.5], 3).values(), [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]);
    assert_eq!(crop(&[0.0, 0.0, 1.0, 0.5], 1).values(), [3.5]);
    // Beyond the picture lies what is said of it.
    assert_eq!(crop(&[0.0, 0.5, 0.0, 1.5], 2).values(), [1.0, -1.0, 1.0, -1.0]);
    assert_eq!(crop(&[0.0, 0.0, 0.8, 0.8], 2).str("mode", "nearest").values(), [0.0, 2.0, 6.0, 8.0]);
}

#[test]
fn codes_of_four_bits_stand_for_floats() {
    // The first code of a byte is in its higher half; a block of 16 has one scale.
    let codes: Vec<i64> = (0..16).map(|k| (k % 16) << 4 | (15 - k % 16)).collect();
    let call = contributed("MatMulBnb4").int("K", 16).int("N", 2).int("block_size", 16);
    let unit: Vec<f64> = (0..16 * 16).map(|k| f64::from(u8::from(k / 16 == k % 16))).collect();
    let call = call.arg(f32s(&[16, 16], &unit)).arg(ints(DType::U8, &[16], &codes)).arg(f32s(&[2], &[1.0, 2.0]));
    // Multiplied with one, the weights come out: code 0 is −1, code 7 is 0, code 15 is 1, of 16 that divide the normal distribution.
    let y = call.clone().int("quant_type", 1).values();
    near(&[y[0], y[2], y[1], y[3]], &[-1.0, 1.0, 0.079_580_3 * 2.0, 0.0]);
    // Code 3 is 1, code 11 is −1, of floats with a sign, two bits of exponent and one of fraction.
    let y = call.int("quant_type", 0).values();
    near(&[y[2 * 6], y[2 * 7], y[2]], &[1.0, -1.0 / 3.0, -0.25]);
}

#[test]
fn experts_are_weighed_by_their_router() {
    let (tokens, hidden, inner, experts) = (3, 4, 5, 3);
    let x = noise(&[tokens, hidden], 1);
    let router = f32s(&[tokens, experts], &[0.1, 0.9, 0.5, 2.0, 1.0, 1.5, -1.0, -3.0, -2.0]);
    let (w1, w2) = (noise(&[experts, inner, hidden], 2), noise(&[experts, hidden, inner], 3));
    let (b1, b2) = (noise(&[experts, inner], 4), noise(&[experts, hidden], 5));
    for (k, normalised) in [(1, false), (2, false), (2, true)] {
        let call = contributed("MoE").int("k", k).int("normalize_routing_weights", i64::from(normalised));
        let call = call.arg(x.clone()).arg(router.clone()).arg(w1.clone()).arg(b1.clone());
        let found = call.arg(w2.clone()).arg(b2.clone()).values();
        let mut wanted = Vec::new();
        for t in 0..tokens {
            let rates: Vec<f64> = (0..experts).map(|e| router.float(t * experts + e).exp()).collect();
            let mut order: Vec<usize> = (0..experts).collect();
            order.sort_by(|a, b| rates[*b].total_cmp(&rates[*a]));
            let chosen = &order[..k as usize];
            let all: f64 = if normalised { chosen.iter().map(|e| rates[*e]).sum() } else { rates.iter().sum() };
            for h in 0..hidden {
                let of = |e: usize| -> f64 {
                    let inner_sum = (0..inner).map(|n| {
                        let sum = (0..hidden).map(|j| x.float(t * hidden + j) * w1.float((e * inner + n) * hidden + j));
                        let active = (sum.sum::<f64>() + b1.float(e * inner + n)).max(0.0);
                        active * w2.float((e * hidden + h) * inner + n)
                    });
                    inner_sum.sum::<f64>() + b2.float(e * hidden + h)
                };
                wanted.push(chosen.iter().map(|e| rates[*e] / all * of(*e)).sum());
            }
        }
        near(&found, &wanted);
    }
}

#[test]
fn one_query_sees_what_a_cache_holds() {
    let (heads, size, room) = (2, 3, 4);
    let new = |seed: u64| noise(&[1, 1, heads * size], seed);
    let cache = |seed: u64| noise(&[1, heads, room, size], seed);
    let call = contributed("DecoderMaskedMultiHeadAttention").int("num_heads", heads as i64);
    let call = call.arg(new(1)).arg(new(2)).arg(new(3)).no_arg().no_arg();
    let past = 2;
    let shared = call.clone().int("past_present_share_buffer", 1).arg(cache(4)).arg(cache(5));
    let shared = shared.arg(ints(DType::I32, &[1], &[past as i64])).outputs(3).run();
    // The same without room for more.
    let cut = |x: Literal| {
        let kept: Vec<f64> =
            (0..heads * past * size).map(|k| x.float((k / (past * size)) * room * size + k % (past * size))).collect();
        f32s(&[1, heads, past, size], &kept)
    };
    let plain = call.arg(cut(cache(4))).arg(cut(cache(5))).outputs(3).run();
    near(&shared[0].to_f64s(), &plain[0].to_f64s());
    assert_eq!((shared[1].sizes(), plain[1].sizes()), (&[1, heads, room, size][..], &[1, heads, past + 1, size][..]));
}

#[test]
fn runs_of_elements_lie_along_a_new_axis() {
    let call = contributed("UnfoldTensor").int("dim", 0).int("size", 2).int("step", 2);
    let y = call.arg(f32s(&[5], &[0.0, 1.0, 2.0, 3.0, 4.0])).run();
    assert_eq!((y[0].sizes(), y[0].to_f64s()), (&[2, 2][..], vec![0.0, 1.0, 2.0, 3.0]));
}

#[test]
fn older_names_are_those_of_the_standard() {
    let y = contributed("Range").arg(ints(DType::I64, &[], &[2])).arg(ints(DType::I64, &[1], &[5])).run();
    assert_eq!(y[0].to_ints(), [2, 3, 4]);
    let y = contributed("Unique").arg(f32s(&[4], &[2.0, 1.0, 2.0, 3.0])).outputs(3).run();
    assert_eq!(
        (y[0].to_f64s(), y[1].to_ints(), y[2].to_ints()),
        (vec![2.0, 1.0, 3.0], vec![0, 1, 0, 2], vec![2, 1, 1])
    );
    let y = contributed("ExpandDims").arg(f32s(&[3], &[0.0; 3])).arg_constant(ints(DType::I32, &[], &[-1])).run();
    assert_eq!(y[0].sizes(), [3, 1]);
}
