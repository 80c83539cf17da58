//! A whole layer, `[2, 24, 64]`, with its weights: norm, rotated and causal attention of grouped heads, a gated product, both added to what came
//! in. Each part has several spellings; whichever they are, the layer is the same kernels. What a part becomes by itself says other rows;
//! here passes and prices see it among others.

use fuseline::graph::Tensor;
use fuseline::tensor::DType::{Bool, F32};

use super::attention::{merge_heads, scores};
use super::{Sheet, spellings};

spellings! {
    "layer" {
        "rotated, causal, grouped, gated" {
            "as it is exported": exported,
            "halves times minus one": times_minus_one,
            "the turned half taken away": taken_away,
            "sign in a table": signs,
            "heads gathered": heads_gathered,
            "values gathered, keys repeated": values_gathered,
            "infinities added": infinities_added,
            "gate by a quotient": gate_by_quotient,
            "gate by a tangent": gate_by_tangent,
            "everything otherwise": everything,
        }
    }
}

const LENGTH: usize = 24;
const WIDTH: usize = 64;
const HEAD: usize = 16;
const HEADS: usize = 4;
const KEY_HEADS: usize = 2;

/// How the second half of a vector comes before the first with its sign turned, and is added.
#[derive(Clone, Copy, Default, PartialEq)]
enum Turn {
    #[default]
    Negated,
    TimesMinusOne,
    /// the first half has the sign, and all of it is taken away
    TakenAway,
    Signs,
}

/// How a head of keys or values serves two of queries.
#[derive(Clone, Copy, Default, PartialEq)]
enum Repeat {
    #[default]
    Expanded,
    Gathered,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Gate {
    #[default]
    Sigmoid,
    Quotient,
    Tangent,
}

#[derive(Clone, Copy, Default)]
struct Ways {
    turn: Turn,
    keys: Repeat,
    values: Repeat,
    adds_mask: bool,
    gate: Gate,
}

fn weights(s: &Sheet, sizes: [usize; 2], seed: usize) -> Tensor<'_> {
    s.table(F32, &sizes, |at| ((at[0] * 37 + at[1] * 11 + seed * 7) % 17) as f64 / 64.0 - 0.125)
}

fn norm<'s>(s: &'s Sheet, x: Tensor<'s>, seed: usize) -> Tensor<'s> {
    let mean = s.reduce("ReduceMean", s.mul(x, x), -1);
    let scale = s.table(F32, &[WIDTH], |at| 0.75 + ((at[0] + seed) % 5) as f64 / 8.0);
    s.mul(s.div(x, s.sqrt(s.add(mean, s.number(1e-6)))), scale)
}

fn heads<'s>(s: &'s Sheet, x: Tensor<'s>, heads: usize) -> Tensor<'s> {
    s.transpose(s.reshape(x, &[0, 0, heads as i64, HEAD as i64]), &[0, 2, 1, 3])
}

fn turned<'s>(s: &'s Sheet, x: Tensor<'s>, turn: Turn) -> Tensor<'s> {
    let angle = |at: &[usize]| at[2] as f64 * 1e4f64.powf(-((at[3] % (HEAD / 2)) as f64) / (HEAD / 2) as f64);
    let sizes = [1, 1, LENGTH, HEAD];
    let [cos, sin] = [f64::cos, f64::sin].map(|f| s.table(F32, &sizes, |at| f(angle(at))));
    let half = (HEAD / 2) as i64;
    let (first, second) = (s.slice(x, 3, 0, half), s.slice(x, 3, half, i64::MAX));
    let across = |parts: [Tensor<'s>; 2]| s.mul(s.concat(&parts, -1), sin);
    let along = s.mul(x, cos);
    match turn {
        Turn::Negated => s.add(along, across([s.neg(second), first])),
        Turn::TimesMinusOne => s.add(along, across([s.mul(second, s.number(-1.0)), first])),
        Turn::TakenAway => s.sub(along, across([second, s.neg(first)])),
        Turn::Signs => {
            let signs = s.table(F32, &[HEAD], |at| if at[0] < HEAD / 2 { -1.0 } else { 1.0 });
            s.add(along, s.mul(s.mul(s.concat(&[second, first], -1), signs), sin))
        }
    }
}

fn repeated<'s>(s: &'s Sheet, x: Tensor<'s>, repeat: Repeat) -> Tensor<'s> {
    let [rows, head] = [LENGTH as i64, HEAD as i64];
    match repeat {
        Repeat::Expanded => {
            let wide = s.expand(s.unsqueeze(x, &[2]), s.ints(&[2, KEY_HEADS as i64, 2, rows, head]));
            s.reshape(wide, &[2, HEADS as i64, rows, head])
        }
        Repeat::Gathered => s.op("Gather").int("axis", 1).of(&[x, s.ints(&[0, 0, 1, 1])]),
    }
}

fn masked<'s>(s: &'s Sheet, scores: Tensor<'s>, is_added: bool) -> Tensor<'s> {
    let sizes = [1, 1, LENGTH, LENGTH];
    let seen = s.table(Bool, &sizes, |at| f64::from(u8::from(at[3] <= at[2])));
    let hidden = s.number(f64::NEG_INFINITY);
    if is_added { s.add(scores, s.choose(seen, s.number(0.0), hidden)) } else { s.choose(seen, scores, hidden) }
}

fn gated<'s>(s: &'s Sheet, x: Tensor<'s>, gate: Gate) -> Tensor<'s> {
    match gate {
        Gate::Sigmoid => s.mul(x, s.sigmoid(x)),
        Gate::Quotient => s.div(x, s.add(s.number(1.0), s.exp(s.neg(x)))),
        Gate::Tangent => {
            let half = s.tanh(s.mul(x, s.number(0.5)));
            s.mul(x, s.mul(s.add(half, s.number(1.0)), s.number(0.5)))
        }
    }
}

fn layer(s: &Sheet, ways: Ways) {
    let x = s.floats("x", "2, 24, 64");
    let keys = KEY_HEADS * HEAD;
    let normed = norm(s, x, 0);
    let product = |columns: usize, seed: usize| s.matmul(normed, weights(s, [WIDTH, columns], seed));
    let q = turned(s, heads(s, product(WIDTH, 1), HEADS), ways.turn);
    let k = turned(s, heads(s, product(keys, 2), KEY_HEADS), ways.turn);
    let v = heads(s, product(keys, 3), KEY_HEADS);
    let (k, v) = (repeated(s, k, ways.keys), repeated(s, v, ways.values));
    let scores = masked(s, s.mul(scores(s, q, k), s.number(0.25)), ways.adds_mask);
    let attended = merge_heads(s, s.matmul(s.softmax(scores, -1), v), WIDTH as i64);
    let x = s.add(x, s.matmul(attended, weights(s, [WIDTH, WIDTH], 4)));
    let normed = norm(s, x, 1);
    let gate = s.matmul(normed, weights(s, [WIDTH, 3 * WIDTH], 5));
    let up = s.matmul(normed, weights(s, [WIDTH, 3 * WIDTH], 6));
    let down = s.matmul(s.mul(gated(s, gate, ways.gate), up), weights(s, [3 * WIDTH, WIDTH], 8));
    s.output("y", s.add(x, down));
}

fn exported(s: &Sheet) {
    layer(s, Ways::default());
}

fn times_minus_one(s: &Sheet) {
    layer(s, Ways { turn: Turn::TimesMinusOne, ..Ways::default() });
}

fn taken_away(s: &Sheet) {
    layer(s, Ways { turn: Turn::TakenAway, ..Ways::default() });
}

fn signs(s: &Sheet) {
    layer(s, Ways { turn: Turn::Signs, ..Ways::default() });
}

fn heads_gathered(s: &Sheet) {
    layer(s, Ways { keys: Repeat::Gathered, values: Repeat::Gathered, ..Ways::default() });
}

fn values_gathered(s: &Sheet) {
    layer(s, Ways { values: Repeat::Gathered, ..Ways::default() });
}

fn infinities_added(s: &Sheet) {
    layer(s, Ways { adds_mask: true, ..Ways::default() });
}

fn gate_by_quotient(s: &Sheet) {
    layer(s, Ways { gate: Gate::Quotient, ..Ways::default() });
}

fn gate_by_tangent(s: &Sheet) {
    layer(s, Ways { gate: Gate::Tangent, ..Ways::default() });
}

fn everything(s: &Sheet) {
    let keys = Repeat::Gathered;
    layer(s, Ways { turn: Turn::TakenAway, keys, values: Repeat::Expanded, adds_mask: true, gate: Gate::Quotient });
}
