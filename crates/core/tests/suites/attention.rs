//! Attention in its several spellings: what one operator computes, another one or a formula must compute too.

use std::sync::Arc;

use fuseline::graph::{Builder, Tensor};
use fuseline::ops::named::{Attribute, Attributes, Call, find};
use fuseline::reference::{Options, evaluate};
use fuseline::tensor::{DType, Dim, Literal, Shape};

/// Smooth numbers that no symmetry repeats.
fn numbers(sizes: &[usize], seed: f64) -> Literal {
    let count = sizes.iter().product::<usize>();
    let values: Vec<f64> = (0..count).map(|k| ((k as f64 + 1.0) * seed).sin()).collect();
    Literal::from_f64s(DType::F64, sizes.to_vec(), &values).unwrap()
}

/// An input whose sizes are all symbols.
fn input<'b>(builder: &'b Builder, name: &str, dtype: DType, rank: usize) -> Tensor<'b> {
    let dims: Shape = (0..rank).map(|k| Dim::named(&format!("{name}{k}"))).collect();
    builder.input(name, dtype, dims)
}

fn ints(list: &[(&str, i64)]) -> Attributes {
    list.iter().map(|(name, n)| (name.to_string(), Attribute::Int(*n))).collect()
}

fn expand<'b>(
    builder: &'b Builder,
    (domain, name, opset): (&str, &str, u32),
    attributes: &Attributes,
    inputs: &[Option<Tensor<'b>>],
) -> Vec<Tensor<'b>> {
    let op = find(domain, name).unwrap();
    let call = Call { builder, op, inputs, attributes, outputs: 4, opset };
    (op.expand)(&call).unwrap()
}

const STANDARD: (&str, &str, u32) = ("", "Attention", 24);
const GROUPED: (&str, &str, u32) = ("com.microsoft", "GroupQueryAttention", 1);

fn run(builder: Builder, inputs: &[(&str, Literal)]) -> Vec<Vec<f64>> {
    let graph = builder.finish().unwrap();
    let inputs = inputs.iter().map(|(n, l)| (Arc::from(*n), l.clone())).collect();
    evaluate(&graph, &inputs, &Options::default()).unwrap().iter().map(Literal::to_f64s).collect()
}

fn close(a: &[f64], b: &[f64]) {
    assert_eq!(a.len(), b.len());
    assert!(a.iter().zip(b).all(|(x, y)| (x - y).abs() < 1e-12), "{a:?} and {b:?}");
}

#[test]
fn attention_is_its_formula() {
    let b = Builder::new("attention");
    let (q, k, v) = (input(&b, "q", DType::F64, 4), input(&b, "k", DType::F64, 4), input(&b, "v", DType::F64, 4));
    let causal = ints(&[("is_causal", 1)]);
    b.output("y", expand(&b, STANDARD, &causal, &[Some(q), Some(k), Some(v)])[0]);
    let (q, k, v) = (numbers(&[1, 1, 2, 3], 0.7), numbers(&[1, 1, 2, 3], 1.1), numbers(&[1, 1, 2, 1], 1.9));
    let y = run(b, &[("q", q.clone()), ("k", k.clone()), ("v", v.clone())]);
    let score = |j: usize| (0..3).map(|e| q.float(3 + e) * k.float(3 * j + e)).sum::<f64>() / 3f64.sqrt();
    let (first, second) = (score(0).exp(), score(1).exp());
    let last = (first * v.float(0) + second * v.float(1)) / (first + second);
    close(&y[0], &[v.float(0), last]);
}

#[test]
fn shared_heads_are_repeated_heads() {
    let b = Builder::new("heads");
    let (q, k, v) = (input(&b, "q", DType::F64, 4), input(&b, "k", DType::F64, 4), input(&b, "v", DType::F64, 4));
    let none = Attributes::new();
    b.output("shared", expand(&b, STANDARD, &none, &[Some(q), Some(k), Some(v)])[0]);
    let heads = b.constant(Literal::i64s(&[0, 0, 1, 1]));
    b.output("copied", expand(&b, STANDARD, &none, &[Some(q), Some(k.take(1, heads)), Some(v.take(1, heads))])[0]);
    let y = run(
        b,
        &[("q", numbers(&[2, 4, 3, 2], 0.7)), ("k", numbers(&[2, 2, 5, 2], 1.1)), ("v", numbers(&[2, 2, 5, 3], 1.9))],
    );
    close(&y[0], &y[1]);
}

#[test]
fn a_short_mask_hides_what_it_does_not_reach() {
    let b = Builder::new("mask");
    let (q, k, v) = (input(&b, "q", DType::F64, 4), input(&b, "k", DType::F64, 4), input(&b, "v", DType::F64, 4));
    let mask = input(&b, "mask", DType::F64, 2);
    let none = Attributes::new();
    b.output("masked", expand(&b, STANDARD, &none, &[Some(q), Some(k), Some(v), Some(mask)])[0]);
    let (k, v) = (k.slice(2, 0usize, 2usize, 1), v.slice(2, 0usize, 2usize, 1));
    b.output("cut", expand(&b, STANDARD, &none, &[Some(q), Some(k), Some(v), Some(mask)])[0]);
    let y = run(
        b,
        &[
            ("q", numbers(&[1, 1, 3, 2], 0.7)),
            ("k", numbers(&[1, 1, 5, 2], 1.1)),
            ("v", numbers(&[1, 1, 5, 3], 1.9)),
            ("mask", numbers(&[3, 2], 0.3)),
        ],
    );
    close(&y[0], &y[1]);
}

#[test]
fn a_cache_grows_step_by_step_to_what_the_whole_prompt_gives() {
    let b = Builder::new("cache");
    let size = |name: &str| b.input(name, DType::I32, Shape::new([Dim::named("batch")]));
    let (last, earlier) = (size("last"), size("earlier"));
    let total = b.input("total", DType::I32, Shape::scalar());
    let (cos, sin) = (input(&b, "cos", DType::F64, 2), input(&b, "sin", DType::F64, 2));
    let (q, k, v) = (input(&b, "q", DType::F64, 3), input(&b, "k", DType::F64, 3), input(&b, "v", DType::F64, 3));
    let attributes = ints(&[("num_heads", 2), ("kv_num_heads", 1), ("do_rotary", 1), ("local_window_size", 3)]);
    let tables = [Some(cos), Some(sin)];
    let whole = [&[Some(q), Some(k), Some(v), None, None, Some(last), Some(total)], &tables[..]].concat();
    let whole = expand(&b, GROUPED, &attributes, &whole);
    let length = q.dim(1).unwrap() - 1;
    let head = [q, k, v].map(|x| Some(x.slice(1, 0usize, length.clone(), 1)));
    let tail = [q, k, v].map(|x| Some(x.slice(1, length.clone(), 1usize, 1)));
    let first = [&head[..], &[None, None, Some(earlier), Some(total - 1i64)], &tables[..]].concat();
    let first = expand(&b, GROUPED, &attributes, &first);
    let second = [&tail[..], &[Some(first[1]), Some(first[2]), Some(last), Some(total)], &tables[..]].concat();
    let second = expand(&b, GROUPED, &attributes, &second);
    b.output("whole", whole[0].slice(1, length.clone(), 1usize, 1));
    b.output("stepped", second[0]);
    b.output("keys", whole[1]);
    b.output("stepped keys", second[1]);
    let i32s = |sizes: &[usize], values: &[i64]| Literal::from_ints(DType::I32, sizes.to_vec(), values).unwrap();
    let y = run(
        b,
        &[
            ("last", i32s(&[2], &[4, 4])),
            ("earlier", i32s(&[2], &[3, 3])),
            ("total", i32s(&[], &[5])),
            ("cos", numbers(&[8, 2], 0.2)),
            ("sin", numbers(&[8, 2], 0.9)),
            ("q", numbers(&[2, 5, 8], 0.7)),
            ("k", numbers(&[2, 5, 4], 1.1)),
            ("v", numbers(&[2, 5, 4], 1.9)),
        ],
    );
    close(&y[0], &y[1]);
    close(&y[2], &y[3]);
}

#[test]
fn rotations_add_their_angles() {
    let b = Builder::new("rotary");
    let x = input(&b, "x", DType::F64, 4);
    let angle = input(&b, "angle", DType::F64, 2);
    let attributes = ints(&[("interleaved", 1), ("rotary_embedding_dim", 4)]);
    let at = |position: i64| Literal::i64s(&[position; 3]).reshaped([1, 3]).unwrap();
    let rotary = ("", "RotaryEmbedding", 23);
    let once = [Some(x), Some(angle.cos()), Some(angle.sin()), Some(b.constant(at(5)))];
    let halfway = [Some(x), Some(angle.cos()), Some(angle.sin()), Some(b.constant(at(2)))];
    let halfway = expand(&b, rotary, &attributes, &halfway)[0];
    let rest = [Some(halfway), Some(angle.cos()), Some(angle.sin()), Some(b.constant(at(3)))];
    b.output("once", expand(&b, rotary, &attributes, &once)[0]);
    b.output("twice", expand(&b, rotary, &attributes, &rest)[0]);
    let angles: Vec<f64> = (0..8).flat_map(|p| [0.3 * f64::from(p), 0.01 * f64::from(p)]).collect();
    let angles = Literal::from_f64s(DType::F64, vec![8, 2], &angles).unwrap();
    let x = numbers(&[1, 2, 3, 6], 0.7);
    let y = run(b, &[("x", x.clone()), ("angle", angles)]);
    close(&y[0], &y[1]);
    for row in 0..6 {
        assert_eq!(y[0][row * 6 + 4..row * 6 + 6], x.to_f64s()[row * 6 + 4..row * 6 + 6]);
    }
}
