//! Rotary embeddings of `[n, 4, s, 64]`: halves or pairs of elements turned by an angle for every position.

use fuseline::graph::Tensor;
use fuseline::tensor::DType::{F32, I64};

use super::{Sheet, spellings};

spellings! {
    "rope" {
        "halves, tables of half the size" {
            "tables doubled, halves sliced": half_sliced,
            "tables doubled, halves split": half_split,
            "halves sliced by the shape": half_from_shape,
            "halves turned apart": half_apart,
            "signs in a table": half_signs,
            "halves reversed": half_reversed,
            "less from nothing": half_from_nothing,
            "one operator": half_named,
        }
        "halves, tables of the full size" {
            "sliced": full_sliced,
            "split": full_split,
            "sine on the left": full_sine_left,
        }
        "halves, tables gathered by position" {
            "gathered, an axis inserted": gathered,
            "one operator": gathered_named,
        }
        "halves, angles computed" {
            "product of positions and frequencies": angles,
            "matrix product of positions and frequencies": angles_matmul,
        }
        "pairs" {
            "every second element": pairs_strided,
            "reshaped, split, stacked": pairs_reshaped,
            "complex product": pairs_complex,
            "one operator": pairs_named,
        }
        "first half only" {
            "rotated and passed, joined": partial,
            "one operator": partial_named,
        }
    }
}

fn x(s: &Sheet) -> Tensor<'_> {
    s.floats("x", "n, 4, s, 64")
}

fn half_tables(s: &Sheet) -> [Tensor<'_>; 2] {
    ["cos", "sin"].map(|name| s.floats(name, "1, s, 32"))
}

fn full_tables(s: &Sheet) -> [Tensor<'_>; 2] {
    ["cos", "sin"].map(|name| s.floats(name, "1, s, 64"))
}

/// A table for both halves, with an axis for the heads.
fn doubled<'s>(s: &'s Sheet, table: Tensor<'s>) -> Tensor<'s> {
    s.unsqueeze(s.concat(&[table, table], -1), &[1])
}

/// The second half negated, then the first.
fn rotate_half<'s>(s: &'s Sheet, first: Tensor<'s>, second: Tensor<'s>) -> Tensor<'s> {
    s.concat(&[s.neg(second), first], -1)
}

fn sliced_half<'s>(s: &'s Sheet, x: Tensor<'s>) -> Tensor<'s> {
    rotate_half(s, s.slice(x, 3, 0, 32), s.slice(x, 3, 32, i64::MAX))
}

fn split_half<'s>(s: &'s Sheet, x: Tensor<'s>) -> Tensor<'s> {
    let halves = s.split(x, -1, 2);
    rotate_half(s, halves[0], halves[1])
}

fn turned<'s>(s: &'s Sheet, x: Tensor<'s>, rotated: Tensor<'s>, [cos, sin]: [Tensor<'s>; 2]) -> Tensor<'s> {
    s.add(s.mul(x, cos), s.mul(rotated, sin))
}

/// Rotation by tables of half the size, `Slice` for the halves.
pub(super) fn rotate_sliced<'s>(s: &'s Sheet, x: Tensor<'s>, tables: [Tensor<'s>; 2]) -> Tensor<'s> {
    turned(s, x, sliced_half(s, x), tables.map(|t| doubled(s, t)))
}

/// Rotation by tables of half the size, `Split` for the halves.
pub(super) fn rotate_split<'s>(s: &'s Sheet, x: Tensor<'s>, tables: [Tensor<'s>; 2]) -> Tensor<'s> {
    turned(s, x, split_half(s, x), tables.map(|t| doubled(s, t)))
}

/// Rotation by one operator.
pub(super) fn rotate_named<'s>(s: &'s Sheet, x: Tensor<'s>, [cos, sin]: [Tensor<'s>; 2]) -> Tensor<'s> {
    let batch = s.unsqueeze(s.size(x, 0), &[0]);
    let everywhere = |t: Tensor<'s>| s.expand(t, s.concat(&[batch, s.ints(&[1, 1])], 0));
    s.op("RotaryEmbedding").opset(23).of(&[x, everywhere(cos), everywhere(sin)])
}

fn half_sliced(s: &Sheet) {
    let x = x(s);
    s.output("y", rotate_sliced(s, x, half_tables(s)));
}

fn half_split(s: &Sheet) {
    let x = x(s);
    s.output("y", rotate_split(s, x, half_tables(s)));
}

/// The size of a half is computed where the graph runs: `Shape`, `Gather`, `Div`, `Unsqueeze`.
fn half_from_shape(s: &Sheet) {
    let x = x(s);
    let tables = half_tables(s).map(|t| doubled(s, t));
    let half = s.div(s.size(x, 3), s.int(2));
    let first = s.slice_to(x, 3, s.int(0), half);
    let second = s.slice_to(x, 3, half, s.int(i64::MAX));
    s.output("y", turned(s, x, rotate_half(s, first, second), tables));
}

/// The two halves of the result, each with its own formula.
fn half_apart(s: &Sheet) {
    let x = x(s);
    let [cos, sin] = half_tables(s).map(|t| s.unsqueeze(t, &[1]));
    let halves = s.split(x, -1, 2);
    let first = s.sub(s.mul(halves[0], cos), s.mul(halves[1], sin));
    let second = s.add(s.mul(halves[1], cos), s.mul(halves[0], sin));
    s.output("y", s.concat(&[first, second], -1));
}

fn half_named(s: &Sheet) {
    let x = x(s);
    s.output("y", rotate_named(s, x, half_tables(s)));
}

fn full_sliced(s: &Sheet) {
    let x = x(s);
    let tables = full_tables(s).map(|t| s.unsqueeze(t, &[1]));
    s.output("y", turned(s, x, sliced_half(s, x), tables));
}

fn full_split(s: &Sheet) {
    let x = x(s);
    let tables = full_tables(s).map(|t| s.unsqueeze(t, &[1]));
    s.output("y", turned(s, x, split_half(s, x), tables));
}

fn full_sine_left(s: &Sheet) {
    let x = x(s);
    let [cos, sin] = full_tables(s).map(|t| s.unsqueeze(t, &[1]));
    s.output("y", s.add(s.mul(sin, sliced_half(s, x)), s.mul(cos, x)));
}

/// Tables for 24 positions, and the positions of every row.
fn cache(s: &Sheet) -> ([Tensor<'_>; 2], Tensor<'_>) {
    (["cos", "sin"].map(|name| s.floats(name, "24, 32")), s.input("positions", I64, "n, s"))
}

fn gathered(s: &Sheet) {
    let x = x(s);
    let (tables, positions) = cache(s);
    let tables = tables.map(|t| s.unsqueeze(s.gather(s.concat(&[t, t], 1), positions), &[1]));
    s.output("y", turned(s, x, sliced_half(s, x), tables));
}

fn gathered_named(s: &Sheet) {
    let x = x(s);
    let (tables, positions) = cache(s);
    s.output("y", s.op("RotaryEmbedding").opset(23).of(&[x, tables[0], tables[1], positions]));
}

/// How fast each pair turns.
fn frequencies(s: &Sheet) -> Tensor<'_> {
    s.table(F32, &[32], |i| 10000f64.powf(-(i[0] as f64) / 32.0))
}

fn by_angles<'s>(s: &'s Sheet, x: Tensor<'s>, angles: Tensor<'s>) {
    let both = s.concat(&[angles, angles], -1);
    let tables = ["Cos", "Sin"].map(|name| s.unsqueeze(s.call(name, &[both]), &[1]));
    s.output("y", turned(s, x, sliced_half(s, x), tables));
}

fn angles(s: &Sheet) {
    let x = x(s);
    let positions = s.cast(s.input("positions", I64, "n, s"), F32);
    by_angles(s, x, s.mul(s.unsqueeze(positions, &[2]), frequencies(s)));
}

/// As Llama computes them: frequencies as a column times positions as a row, transposed.
fn angles_matmul(s: &Sheet) {
    let x = x(s);
    let positions = s.cast(s.input("positions", I64, "n, s"), F32);
    let column = s.expand(s.unsqueeze(frequencies(s), &[0, 2]), s.vector(&[s.size(x, 0), s.int(32), s.int(1)]));
    let product = s.matmul(column, s.unsqueeze(positions, &[1]));
    by_angles(s, x, s.transpose(product, &[0, 2, 1]));
}

fn pairs_strided(s: &Sheet) {
    let x = x(s);
    let [cos, sin] = half_tables(s).map(|t| s.unsqueeze(t, &[1]));
    let every_second =
        |from: i64| s.call("Slice", &[x, s.ints(&[from]), s.ints(&[i64::MAX]), s.ints(&[3]), s.ints(&[2])]);
    let (even, odd) = (every_second(0), every_second(1));
    let first = s.sub(s.mul(even, cos), s.mul(odd, sin));
    let second = s.add(s.mul(even, sin), s.mul(odd, cos));
    stack(s, x, first, second);
}

/// Two halves as neighbours.
fn stack<'s>(s: &'s Sheet, x: Tensor<'s>, first: Tensor<'s>, second: Tensor<'s>) {
    let stacked = s.concat(&[s.unsqueeze(first, &[4]), s.unsqueeze(second, &[4])], 4);
    s.output("y", s.call("Reshape", &[stacked, s.call("Shape", &[x])]));
}

fn pairs_reshaped(s: &Sheet) {
    let x = x(s);
    let [cos, sin] = half_tables(s).map(|t| s.unsqueeze(t, &[1]));
    let pairs = s.split(s.reshape(x, &[0, 0, 0, 32, 2]), -1, 2);
    let (even, odd) = (s.call("Squeeze", &[pairs[0], s.ints(&[4])]), s.call("Squeeze", &[pairs[1], s.ints(&[4])]));
    let first = s.sub(s.mul(even, cos), s.mul(odd, sin));
    let second = s.add(s.mul(odd, cos), s.mul(even, sin));
    stack(s, x, first, second);
}

/// As `view_as_complex` is written out: the tables as one tensor of pairs.
fn pairs_complex(s: &Sheet) {
    let x = x(s);
    let [cos, sin] = half_tables(s).map(|t| s.unsqueeze(t, &[1, 4]));
    let turn = s.concat(&[cos, sin], 4);
    let pairs = s.reshape(x, &[0, 0, 0, 32, 2]);
    let part = |x, k: i64| s.op("Gather").int("axis", 4).of(&[x, s.int(k)]);
    let real = s.sub(s.mul(part(pairs, 0), part(turn, 0)), s.mul(part(pairs, 1), part(turn, 1)));
    let imaginary = s.add(s.mul(part(pairs, 0), part(turn, 1)), s.mul(part(pairs, 1), part(turn, 0)));
    stack(s, x, real, imaginary);
}

fn pairs_named(s: &Sheet) {
    let x = x(s);
    let [cos, sin] = half_tables(s);
    let batch = s.unsqueeze(s.size(x, 0), &[0]);
    let everywhere = |t| s.expand(t, s.concat(&[batch, s.ints(&[1, 1])], 0));
    let rotary = s.op("RotaryEmbedding").opset(23).int("interleaved", 1);
    s.output("y", rotary.of(&[x, everywhere(cos), everywhere(sin)]));
}

fn quarter_tables(s: &Sheet) -> [Tensor<'_>; 2] {
    ["cos", "sin"].map(|name| s.floats(name, "1, s, 16"))
}

fn partial(s: &Sheet) {
    let x = x(s);
    let tables = quarter_tables(s).map(|t| doubled(s, t));
    let (turning, passed) = (s.slice(x, 3, 0, 32), s.slice(x, 3, 32, i64::MAX));
    let rotated = rotate_half(s, s.slice(turning, 3, 0, 16), s.slice(turning, 3, 16, i64::MAX));
    s.output("y", s.concat(&[turned(s, turning, rotated, tables), passed], -1));
}

fn partial_named(s: &Sheet) {
    let x = x(s);
    let [cos, sin] = quarter_tables(s);
    let batch = s.unsqueeze(s.size(x, 0), &[0]);
    let everywhere = |t| s.expand(t, s.concat(&[batch, s.ints(&[1, 1])], 0));
    let rotary = s.op("RotaryEmbedding").opset(23).int("rotary_embedding_dim", 32);
    s.output("y", rotary.of(&[x, everywhere(cos), everywhere(sin)]));
}

/// The halves swapped, times a table of signs.
fn half_signs(s: &Sheet) {
    let x = x(s);
    let swapped = s.concat(&[s.slice(x, -1, 32, 64), s.slice(x, -1, 0, 32)], -1);
    let signs = s.table(F32, &[64], |i| if i[0] < 32 { -1.0 } else { 1.0 });
    s.output("y", turned(s, x, s.mul(swapped, signs), half_tables(s).map(|t| doubled(s, t))));
}

/// The halves as rows of a matrix, read backwards.
fn half_reversed(s: &Sheet) {
    let x = x(s);
    let halves = s.reshape(x, &[0, 0, 0, 2, 32]);
    let backwards = s.call("Slice", &[halves, s.ints(&[-1]), s.ints(&[i64::MIN]), s.ints(&[3]), s.ints(&[-1])]);
    let signs = s.table(F32, &[2, 1], |i| if i[0] == 0 { -1.0 } else { 1.0 });
    let rotated = s.reshape(s.mul(backwards, signs), &[0, 0, 0, 64]);
    s.output("y", turned(s, x, rotated, half_tables(s).map(|t| doubled(s, t))));
}

fn half_from_nothing(s: &Sheet) {
    let x = x(s);
    let halves = s.split(x, 3, 2);
    let rotated = s.concat(&[s.sub(s.number(0.0), halves[1]), halves[0]], 3);
    s.output("y", turned(s, x, rotated, half_tables(s).map(|t| doubled(s, t))));
}
