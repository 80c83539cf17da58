//! Attention among the places of a picture: biases along the lines and along the columns of the keys.

use fuseline::graph::Tensor;

use super::attention::{Operands, SCALE, finish, scaled_scores};
use super::{Sheet, spellings};

spellings! {
    "attention, biases of lines and columns" {
        "keys in a row" {
            "scores taken apart and joined": taken_apart,
            "taken apart twice": taken_apart_twice,
            "biases joined first": biases_joined,
            "biases repeated": biases_repeated,
            "softmax over two axes": softmax_of_two,
        }
        "keys in a picture" {
            "joined, scores taken apart and joined": joined_keys,
            "by labels, scores joined": keys_by_labels,
        }
    }
}

/// Lines and columns.
const SIDES: [i64; 2] = [8, 12];

/// Queries, keys and values; a bias for every query and line, and one for every query and column.
struct Picture<'s> {
    o: Operands<'s>,
    lines: Tensor<'s>,
    columns: Tensor<'s>,
}

/// With keys and values of these sizes.
fn picture<'s>(s: &'s Sheet, keys: &str) -> Picture<'s> {
    let o = Operands { q: s.floats("q", "n, 4, s, 64"), k: s.floats("k", keys), v: s.floats("v", keys) };
    Picture { o, lines: s.floats("lines", "n, 4, s, 8"), columns: s.floats("columns", "n, 4, s, 12") }
}

fn in_a_row(s: &Sheet) -> Picture<'_> {
    picture(s, "n, 4, 96, 64")
}

fn in_a_picture(s: &Sheet) -> Picture<'_> {
    picture(s, "n, 4, 8, 12, 64")
}

/// The keys as lines and columns.
fn apart<'s>(s: &'s Sheet, x: Tensor<'s>) -> Tensor<'s> {
    s.reshape(x, &[0, 0, 0, SIDES[0], SIDES[1]])
}

fn joined<'s>(s: &'s Sheet, x: Tensor<'s>) -> Tensor<'s> {
    s.reshape(x, &[0, 0, 0, SIDES[0] * SIDES[1]])
}

/// Scores with both biases, lines and columns apart.
fn biased<'s>(s: &'s Sheet, scores: Tensor<'s>, p: &Picture<'s>) -> Tensor<'s> {
    s.add(s.add(scores, s.unsqueeze(p.lines, &[4])), s.unsqueeze(p.columns, &[3]))
}

fn taken_apart(s: &Sheet) {
    let p = in_a_row(s);
    finish(s, joined(s, biased(s, apart(s, scaled_scores(s, &p.o)), &p)), &p.o);
}

fn taken_apart_twice(s: &Sheet) {
    let p = in_a_row(s);
    let lines = joined(s, s.add(apart(s, scaled_scores(s, &p.o)), s.unsqueeze(p.lines, &[4])));
    finish(s, joined(s, s.add(apart(s, lines), s.unsqueeze(p.columns, &[3]))), &p.o);
}

fn biases_joined(s: &Sheet) {
    let p = in_a_row(s);
    let biases = joined(s, s.add(s.unsqueeze(p.lines, &[4]), s.unsqueeze(p.columns, &[3])));
    finish(s, s.add(scaled_scores(s, &p.o), biases), &p.o);
}

/// Every bias for itself as a matrix of queries and keys.
fn biases_repeated<'s>(s: &'s Sheet) {
    let p = in_a_row(s);
    let repeated = |x: Tensor<'s>, axis: i64| {
        let sizes = s.vector(&[s.size(p.o.q, 0), s.int(4), s.size(p.o.q, 2), s.int(SIDES[0]), s.int(SIDES[1])]);
        joined(s, s.expand(s.unsqueeze(x, &[axis]), sizes))
    };
    let lines = s.add(scaled_scores(s, &p.o), repeated(p.lines, 4));
    finish(s, s.add(lines, repeated(p.columns, 3)), &p.o);
}

/// The softmax written out over lines and columns at once.
fn softmax_of_two(s: &Sheet) {
    let p = in_a_row(s);
    let scores = biased(s, apart(s, scaled_scores(s, &p.o)), &p);
    let fold = |name, x| s.op(name).int("keepdims", 1).of(&[x, s.ints(&[3, 4])]);
    let e = s.exp(s.sub(scores, fold("ReduceMax", scores)));
    s.output("y", s.matmul(joined(s, s.div(e, fold("ReduceSum", e))), p.o.v));
}

/// The same with its keys and values in a row.
fn in_rows<'s>(s: &'s Sheet, o: &Operands<'s>) -> Operands<'s> {
    let row = |x: Tensor<'s>| s.reshape(x, &[0, 0, SIDES[0] * SIDES[1], 64]);
    Operands { q: o.q, k: row(o.k), v: row(o.v) }
}

fn joined_keys(s: &Sheet) {
    let p = in_a_picture(s);
    let rows = in_rows(s, &p.o);
    finish(s, joined(s, biased(s, apart(s, scaled_scores(s, &rows)), &p)), &rows);
}

fn keys_by_labels(s: &Sheet) {
    let p = in_a_picture(s);
    let product = s.op("Einsum").str("equation", "bhqe,bhxye->bhqxy").of(&[p.o.q, p.o.k]);
    let scores = s.mul(product, s.number(SCALE));
    finish(s, joined(s, biased(s, scores, &p)), &in_rows(s, &p.o));
}
