//! Every graph of the gallery against its formula, computed here once more in plain loops.

use std::collections::{BTreeMap, BTreeSet};

use fuseline::gallery::{self, Entry};
use fuseline::graph::{Graph, verify};
use fuseline::reference::{Options, evaluate};
use fuseline::tensor::{DType, Env, Literal, Symbol};

/// A tensor of the plain computations.
#[derive(Clone, Debug)]
struct Plain {
    sizes: Vec<usize>,
    values: Vec<f64>,
}

type Named = BTreeMap<String, Plain>;

/// Small sizes, no two of one entry equal, so that a mixed-up axis shows.
fn small_sizes(entry: &Entry) -> Env {
    entry.sizes.iter().enumerate().map(|(k, (name, _))| (Symbol::name(name), [3, 4, 5, 6, 7][k])).collect()
}

/// Numbers that look random, different for every input, exact in every float type.
fn inputs(entry: &Entry, graph: &Graph, env: &Env) -> Named {
    let mut state = 12345u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as i64 % 65 - 32
    };
    let input = |value: &fuseline::graph::Value| {
        let (name, ty) = (graph.input_name(*value).to_string(), graph.ty(*value));
        let sizes = ty.shape.eval(env).unwrap();
        let values = (0..sizes.iter().product()).map(|_| match ty.dtype {
            DType::Bool => (next() > 0) as i64 as f64,
            DType::I8 => next() as f64 * 3.0,
            _ if entry.positive.contains(&name.as_str()) => (next().abs() + 1) as f64 / 16.0,
            _ => next() as f64 / 16.0,
        });
        let values = values.collect();
        (name, Plain { sizes, values })
    };
    graph.inputs().iter().map(input).collect()
}

fn outputs(graph: &Graph, inputs: &Named) -> Named {
    let literal = |value: &fuseline::graph::Value| {
        let name = graph.input_name(*value);
        let plain = &inputs[name.as_ref()];
        let literal = Literal::from_f64s(graph.ty(*value).dtype, plain.sizes.clone(), &plain.values).unwrap();
        (name.clone(), literal)
    };
    let inputs = graph.inputs().iter().map(literal).collect();
    let results = evaluate(graph, &inputs, &Options::default()).unwrap();
    let plain = |l: &Literal| Plain { sizes: l.sizes().to_vec(), values: l.to_f64s() };
    graph.outputs().iter().zip(&results).map(|(o, literal)| (o.name.to_string(), plain(literal))).collect()
}

#[test]
fn entries_list_their_sizes_and_cover_the_rows() {
    let rows: BTreeSet<u32> = gallery::all().map(|entry| entry.row).collect();
    assert!(rows.into_iter().eq(1..=17));
    let names: BTreeSet<&str> = gallery::all().map(|entry| entry.name).collect();
    assert_eq!(names.len(), gallery::all().count());
    for entry in gallery::all() {
        assert!(std::ptr::eq(gallery::find(entry.name).unwrap(), entry));
        let graph = entry.graph(DType::F32).unwrap();
        let mut used = BTreeSet::new();
        graph.for_each_dim(&mut |dim| {
            dim.for_each_symbol(&mut |symbol| {
                if let Symbol::Name(name) = symbol {
                    used.insert(name.to_string());
                }
            });
        });
        let listed: BTreeSet<String> = entry.sizes.iter().map(|(name, _)| name.to_string()).collect();
        assert_eq!(used, listed, "{}", entry.name);
        let inputs: Vec<&str> = graph.inputs().iter().map(|v| graph.input_name(*v).as_ref()).collect();
        assert!(entry.positive.iter().all(|name| inputs.contains(name)), "{}", entry.name);
        let origins = graph.nodes().iter().enumerate().filter(|(_, node)| !node.args().is_empty());
        assert!(origins.clone().count() > 0 && origins.into_iter().all(|(id, _)| !graph.origin(id).is_empty()));
    }
    assert!(gallery::find("softmax").unwrap().graph(DType::I32).is_err());
}

#[test]
fn every_entry_runs_in_every_float_type() {
    for entry in gallery::all() {
        let env = small_sizes(entry);
        let exact = entry.graph(DType::F64).unwrap();
        let inputs = inputs(entry, &exact, &env);
        let wanted = outputs(&exact, &inputs);
        for &dtype in Entry::DTYPES {
            let graph = entry.graph(dtype).unwrap();
            verify(&graph).unwrap();
            let got = outputs(&graph, &inputs);
            for (name, y) in &got {
                assert_eq!(y.sizes, wanted[name].sizes, "{} {name}", entry.name);
                let scale = wanted[name].values.iter().fold(1.0f64, |m, x| m.max(x.abs()));
                // A quantised element may move by a step where types round differently.
                let step = if name == "q" { 1.0 } else { 0.0 };
                for (a, b) in y.values.iter().zip(&wanted[name].values) {
                    let close = (a - b).abs() <= 16.0 * dtype.epsilon() * scale + step;
                    assert!(close, "{} {dtype} {name}: {a} instead of {b}", entry.name);
                }
            }
        }
    }
}

#[test]
fn entries_compute_their_formulae() {
    let mut checked = 0;
    for entry in gallery::all() {
        let env = small_sizes(entry);
        let graph = entry.graph(DType::F64).unwrap();
        let inputs = inputs(entry, &graph, &env);
        let got = outputs(&graph, &inputs);
        let Some(wanted) = formula(entry.name, &inputs) else { continue };
        for (name, values) in wanted {
            let y = &got[name];
            assert_eq!(y.values.len(), values.len(), "{} {name}", entry.name);
            for (k, (a, b)) in y.values.iter().zip(&values).enumerate() {
                let close = (a - b).abs() <= 1e-6 * (1.0 + b.abs());
                assert!(close, "{} {name}[{k}]: {a} instead of {b}", entry.name);
            }
        }
        checked += 1;
    }
    // All but the dropouts, which have a test of their own.
    assert_eq!(checked, gallery::all().filter(|entry| !entry.name.contains("dropout")).count());
}

#[test]
fn dropout_keeps_nine_in_ten_and_scales_them() {
    let entry = gallery::find("gelu_dropout").unwrap();
    let graph = entry.graph(DType::F64).unwrap();
    let env = [("rows", 100), ("columns", 100)].map(|(name, size)| (Symbol::name(name), size)).into_iter().collect();
    let inputs = inputs(entry, &graph, &env);
    let y = &outputs(&graph, &inputs)["y"];
    let mut dropped = 0;
    for (x, y) in inputs["x"].values.iter().zip(&y.values) {
        let full = gelu(*x) / 0.9;
        dropped += usize::from(*y == 0.0 && full != 0.0);
        assert!(*y == 0.0 || (y - full).abs() < 1e-9, "{y} of {full}");
    }
    assert!((850..1150).contains(&dropped), "{dropped}");
}

#[test]
fn rows_of_zeros_have_a_scale() {
    let graph = gallery::find("layernorm_quantize_int8").unwrap().graph(DType::F32).unwrap();
    let plain = |sizes: &[usize], values: &[f64]| Plain { sizes: sizes.to_vec(), values: values.to_vec() };
    let inputs = Named::from([
        ("x".into(), plain(&[2, 2], &[5.0, 5.0, 1.0, 3.0])),
        ("gamma".into(), plain(&[2], &[1.0, 1.0])),
        ("beta".into(), plain(&[2], &[0.0, 0.0])),
    ]);
    let y = outputs(&graph, &inputs);
    assert_eq!(y["q"].values, [0.0, 0.0, -127.0, 127.0]);
    assert_eq!(y["scale"].values[0], 1.0);
}

#[test]
fn quantising_rounds_half_to_even_and_saturates() {
    let graph = gallery::find("relu_quantize").unwrap().graph(DType::F32).unwrap();
    let x = Plain { sizes: vec![5], values: [100.0, -5.0, 0.5, 1.5, 2.5].map(|x| x / 32.0).to_vec() };
    let large = Plain { sizes: vec![1], values: vec![100.0] };
    assert_eq!(outputs(&graph, &Named::from([("x".into(), x)]))["q"].values, [100.0, 0.0, 0.0, 2.0, 2.0]);
    assert_eq!(outputs(&graph, &Named::from([("x".into(), large)]))["q"].values, [255.0]);
}

#[test]
fn a_query_without_keys_gives_zero() {
    let entry = gallery::find("masked_attention").unwrap();
    let graph = entry.graph(DType::F32).unwrap();
    let mut inputs = inputs(entry, &graph, &small_sizes(entry));
    let keys = inputs["mask"].sizes[1];
    inputs.get_mut("mask").unwrap().values[..keys].fill(0.0);
    let y = &outputs(&graph, &inputs)["y"];
    let size = y.sizes[3];
    assert!(y.values[..size].iter().all(|x| *x == 0.0) && y.values.iter().all(|x| x.is_finite()));
}

fn gelu(x: f64) -> f64 {
    x / 2.0 * (1.0 + libm::erf(x / 2f64.sqrt()))
}

fn gelu_tanh(x: f64) -> f64 {
    x / 2.0 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

fn relu(x: f64) -> f64 {
    if x > 0.0 { x } else { 0.0 }
}

fn map(x: &[f64], f: impl Fn(f64) -> f64) -> Vec<f64> {
    x.iter().map(|x| f(*x)).collect()
}

/// `f` of a tensor and another one that repeats along its rows.
fn zip(x: &[f64], y: &[f64], f: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    x.iter().zip(y.iter().cycle()).map(|(x, y)| f(*x, *y)).collect()
}

fn add(x: &[f64], y: &[f64]) -> Vec<f64> {
    zip(x, y, |x, y| x + y)
}

/// The product of matrices with `k` columns and rows.
fn matmul(a: &[f64], b: &[f64], k: usize) -> Vec<f64> {
    let n = b.len() / k;
    let element = |i: usize, j: usize| (0..k).map(|l| a[i * k + l] * b[l * n + j]).sum();
    (0..a.len() / k).flat_map(|i| (0..n).map(move |j| (i, j))).map(|(i, j)| element(i, j)).collect()
}

fn transposed(x: &[f64], rows: usize) -> Vec<f64> {
    let columns = x.len() / rows;
    (0..columns).flat_map(|j| (0..rows).map(move |i| (i, j))).map(|(i, j)| x[i * columns + j]).collect()
}

fn by_rows(x: &[f64], columns: usize, f: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    x.chunks(columns).flat_map(f).collect()
}

fn layer_norm(x: &[f64], gamma: &[f64], beta: &[f64]) -> Vec<f64> {
    by_rows(x, gamma.len(), |row| {
        let n = row.len() as f64;
        let mean = row.iter().sum::<f64>() / n;
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        let deviation = (variance + 1e-5).sqrt();
        (0..row.len()).map(|k| gamma[k] * (row[k] - mean) / deviation + beta[k]).collect()
    })
}

fn rms_norm(x: &[f64], gamma: &[f64]) -> Vec<f64> {
    by_rows(x, gamma.len(), |row| {
        let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
        (0..row.len()).map(|k| gamma[k] * row[k] / (mean + 1e-5).sqrt()).collect()
    })
}

fn softmax(x: &[f64], columns: usize) -> Vec<f64> {
    by_rows(x, columns, |row| {
        let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if largest == f64::NEG_INFINITY {
            return vec![0.0; row.len()];
        }
        let sum: f64 = row.iter().map(|x| (x - largest).exp()).sum();
        map(row, |x| (x - largest).exp() / sum)
    })
}

/// `(x − mean) γ / √(var + ε) + β`, the channel being `x`'s index divided by `run`, modulo the number of channels.
fn batch_norm(x: &[f64], i: &Named, run: usize) -> Vec<f64> {
    let channels = i["gamma"].values.len();
    let at = |name: &str, k: usize| i[name].values[k / run % channels];
    let one =
        |(k, x): (usize, &f64)| (x - at("mean", k)) / (at("var", k) + 1e-5).sqrt() * at("gamma", k) + at("beta", k);
    x.iter().enumerate().map(one).collect()
}

fn conv(i: &Named) -> Vec<f64> {
    let (x, w) = (&i["x"], &i["w"]);
    let [n, c, height, width] = x.sizes[..] else { unreachable!("images have four axes") };
    let filters = w.sizes[0];
    let mut out = Vec::new();
    for image in 0..n {
        for filter in 0..filters {
            for (row, column) in (0..height).flat_map(|r| (0..width).map(move |q| (r, q))) {
                let mut sum = 0.0;
                for (channel, dr, dq) in (0..c * 9).map(|k| (k / 9, k / 3 % 3, k % 3)) {
                    let (r, q) = ((row + dr).wrapping_sub(1), (column + dq).wrapping_sub(1));
                    if r < height && q < width {
                        let pixel = x.values[((image * c + channel) * height + r) * width + q];
                        sum += pixel * w.values[(filter * c + channel) * 9 + dr * 3 + dq];
                    }
                }
                out.push(sum);
            }
        }
    }
    out
}

/// Attention head by head; `allowed(query, key)` says what a query may see.
fn attention(i: &Named, allowed: impl Fn(usize, usize) -> bool) -> Vec<f64> {
    let (queries, keys, size) = (i["q"].sizes[2], i["k"].sizes[2], i["q"].sizes[3]);
    let heads = i["q"].sizes[0] * i["q"].sizes[1];
    let mut out = Vec::new();
    for head in 0..heads {
        let part = |name: &str, rows: usize| &i[name].values[head * rows * size..][..rows * size];
        let mut scores = matmul(part("q", queries), &transposed(part("k", keys), keys), size);
        for (at, score) in scores.iter_mut().enumerate() {
            let seen = allowed(at / keys, at % keys);
            *score = if seen { *score / (size as f64).sqrt() } else { f64::NEG_INFINITY };
        }
        out.extend(matmul(&softmax(&scores, keys), part("v", keys), keys));
    }
    out
}

/// Rows as int8 values with their scales.
fn quantized(x: &[f64], columns: usize) -> Vec<(&'static str, Vec<f64>)> {
    let scales: Vec<f64> =
        x.chunks(columns).map(|row| row.iter().fold(0.0f64, |m, x| m.max(x.abs())) / 127.0).collect();
    let q = x.iter().enumerate().map(|(k, x)| (x / scales[k / columns]).round_ties_even().clamp(-128.0, 127.0));
    vec![("q", q.collect()), ("scale", scales)]
}

fn moe(i: &Named) -> Vec<f64> {
    let (features, experts) = (i["x"].sizes[1], i["router"].sizes[1]);
    let hidden = i["w"].sizes[2];
    let mut out = Vec::new();
    for (token, row) in i["x"].values.chunks(features).enumerate() {
        let votes = &i["router"].values[token * experts..][..experts];
        let best = (0..experts).fold(0, |best, e| if votes[e] > votes[best] { e } else { best });
        let row = map(row, |x| x * i["x_scale"].values[token]);
        let weights = &i["w"].values[best * features * hidden..][..features * hidden];
        let scales = &i["w_scale"].values[best * hidden..][..hidden];
        out.extend(zip(&matmul(&row, weights, features), scales, |y, s| y * s));
    }
    out
}

/// What an entry must return.
/// The gradient of `f(x) · dy` by x, by differences.
fn slopes(x: &[f64], dy: &[f64], f: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    const STEP: f64 = 1e-5;
    let reached = |k: usize, step: f64| -> f64 {
        let mut moved = x.to_vec();
        moved[k] += step;
        zip(&f(&moved), dy, |y, dy| y * dy).iter().sum()
    };
    (0..x.len()).map(|k| (reached(k, STEP) - reached(k, -STEP)) / (2.0 * STEP)).collect()
}

fn formula(name: &str, i: &Named) -> Option<Vec<(&'static str, Vec<f64>)>> {
    let v = |name: &str| i[name].values.as_slice();
    let linear = |x: &[f64], w: &str, b: &str| add(&matmul(x, v(w), i[w].sizes[0]), v(b));
    let norm = || layer_norm(v("x"), v("gamma"), v("beta"));
    let one = |y: Vec<f64>| Some(vec![("y", y)]);
    match name {
        "mul_add_relu" => one(map(&add(&zip(v("x"), v("w"), |x, w| x * w), v("b")), relu)),
        "add_gelu" => Some(vec![("z", map(&add(v("x"), v("y")), gelu))]),
        "bias_gelu" => one(map(&add(v("x"), v("bias")), gelu)),
        "fast_gelu" => one(map(&add(v("x"), v("bias")), gelu_tanh)),
        "silu" => one(map(v("x"), silu)),
        "swiglu" => one(zip(v("gate"), v("up"), |g, u| silu(g) * u)),
        "geglu" => one(zip(v("gate"), v("up"), |g, u| gelu(g) * u)),
        "linear_bias_relu" => one(map(&linear(v("x"), "w", "b"), relu)),
        "linear_bias_gelu" => one(map(&linear(v("x"), "w", "b"), gelu)),
        "linear_bias_silu" => one(map(&linear(v("x"), "w", "b"), silu)),
        "layernorm" => one(norm()),
        "layernorm_relu" => one(map(&norm(), relu)),
        "layernorm_gelu" => one(map(&norm(), gelu)),
        "layernorm_bias_gelu" => one(map(&add(&norm(), v("bias")), gelu)),
        "rmsnorm" => one(rms_norm(v("x"), v("gamma"))),
        "residual_relu" => one(map(&add(v("x"), v("residual")), relu)),
        "add_layernorm" => {
            let sum = add(v("x"), v("residual"));
            Some(vec![("y", layer_norm(&sum, v("gamma"), v("beta"))), ("sum", sum)])
        }
        "add_rmsnorm" => {
            let sum = add(v("x"), v("residual"));
            Some(vec![("y", rms_norm(&sum, v("gamma"))), ("sum", sum)])
        }
        "norm_linear" => one(linear(&norm(), "w", "b")),
        "rmsnorm_linear" => one(matmul(&rms_norm(v("x"), v("gamma")), v("w"), i["w"].sizes[0])),
        "qkv" => {
            let outputs = [("q", "w_q", "b_q"), ("k", "w_k", "b_k"), ("v", "w_v", "b_v")];
            Some(outputs.map(|(y, w, b)| (y, linear(v("x"), w, b))).into())
        }
        "softmax" => one(softmax(v("x"), i["x"].sizes[1])),
        "column_sum" => {
            let columns = i["x"].sizes[1];
            one((0..columns).map(|k| v("x").iter().skip(k).step_by(columns).sum()).collect())
        }
        "softmax_backward" => {
            let columns = i["x"].sizes[1];
            Some(vec![("dx", slopes(v("x"), v("dy"), |x| softmax(x, columns)))])
        }
        "rmsnorm_backward" => {
            let (x, gamma, dy) = (v("x"), v("gamma"), v("dy"));
            let by_gamma = slopes(gamma, dy, |gamma| rms_norm(x, gamma));
            Some(vec![("dx", slopes(x, dy, |x| rms_norm(x, gamma))), ("dgamma", by_gamma)])
        }
        "layernorm_gelu_backward" => {
            let (x, gamma, beta, dy) = (v("x"), v("gamma"), v("beta"), v("dy"));
            let forward = |x: &[f64], gamma: &[f64], beta: &[f64]| map(&layer_norm(x, gamma, beta), gelu);
            let by_x = slopes(x, dy, |x| forward(x, gamma, beta));
            let by_gamma = slopes(gamma, dy, |gamma| forward(x, gamma, beta));
            let by_beta = slopes(beta, dy, |beta| forward(x, gamma, beta));
            Some(vec![("dx", by_x), ("dgamma", by_gamma), ("dbeta", by_beta)])
        }
        "masked_softmax" => {
            let scores = add(&map(v("scores"), |x| x / 8.0), v("mask"));
            Some(vec![("p", softmax(&scores, i["mask"].sizes[1]))])
        }
        "attention" => one(attention(i, |_, _| true)),
        "masked_attention" => one(attention(i, |query, key| v("mask")[query * i["mask"].sizes[1] + key] != 0.0)),
        "causal_attention" => one(attention(i, |query, key| key <= query)),
        "conv_bn_relu" => one(map(&batch_norm(&conv(i), i, i["x"].sizes[2] * i["x"].sizes[3]), relu)),
        "conv_bias_relu" => {
            let (filters, image) = (i["b"].sizes[0], i["x"].sizes[2] * i["x"].sizes[3]);
            let biased = |(k, x): (usize, &f64)| relu(x + v("b")[k / image % filters]);
            one(conv(i).iter().enumerate().map(biased).collect())
        }
        "matmul_bn" => one(batch_norm(&matmul(v("x"), v("w"), i["w"].sizes[0]), i, 1)),
        "scale_offset_power" => one(map(v("x"), |x| (x * 0.5 + 1.0).powi(3))),
        "relu_clip" => one(map(v("x"), |x| relu(x).min(6.0))),
        "relu_quantize" => Some(vec![("q", map(v("x"), |x| (relu(x) * 32.0).round_ties_even().min(255.0)))]),
        "gemm_relu" => {
            let b = transposed(v("b"), i["b"].sizes[0]);
            one(map(&add(&matmul(v("a"), &b, i["a"].sizes[1]), v("c")), relu))
        }
        "layernorm_quantize_int8" => Some(quantized(&norm(), i["x"].sizes[1])),
        "moe_int8" => Some(quantized(&moe(i), i["w"].sizes[2])),
        "transformer_sublayer" => one(add(v("x"), &map(&linear(&norm(), "w", "b"), gelu))),
        "feed_forward" => {
            let hidden = map(&linear(&norm(), "w", "b"), gelu);
            one(add(v("x"), &linear(&hidden, "u", "c")))
        }
        _ => None,
    }
}
