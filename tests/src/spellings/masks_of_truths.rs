//! Masks that come as truths and are made into numbers: subtracted from one, multiplied, filled, converted back. The class tells
//! what the scores meet; how the number was made of the truth does not matter.

use fuseline::graph::Tensor;
use fuseline::tensor::DType::{Bool, F32, I64};

use super::attention::{Operands, finish, heads, scaled_scores};
use super::{Sheet, spellings};

spellings! {
    "attention, mask of truths" {
        "a constant added" {
            "choice between zero and the constant": chosen,
            "choice by the inverse": chosen_by_inverse,
            "one less the mask, times the constant": product,
            "the mask less one, times its opposite": product_of_opposite,
            "the inverse as a number, times the constant": product_of_inverse,
            "multiple of the mask, less the constant": multiple_less,
            "one less the mask, filled": filled,
            "one less the mask as integers, converted, times the constant": product_of_integers,
        }
        "hidden by a constant" {
            "choice": hidden,
            "choice by one less the mask, as a truth": hidden_by_difference,
            "choice by one less the mask as integers": hidden_by_integers,
            "choice by the mask as a number, below a half": hidden_below,
            "choice by the mask through numbers": hidden_through_numbers,
        }
    }
    "attention, causal table of numbers" {
        "a constant added" {
            "choice between zero and the constant": table_chosen,
            "one less the table, times the constant": table_product,
            "multiple of the table, less the constant": table_multiple,
        }
    }
}

const CONSTANT: f64 = -10000.0;

fn mask(s: &Sheet) -> Tensor<'_> {
    s.unsqueeze(s.input("mask", Bool, "n, t"), &[1, 2])
}

/// Scores and a number that is added to them.
fn added<'s>(s: &'s Sheet, shift: impl FnOnce(Tensor<'s>) -> Tensor<'s>) {
    let o = heads(s, F32);
    finish(s, s.add(scaled_scores(s, &o), shift(mask(s))), &o);
}

fn inverse<'s>(s: &'s Sheet, seen: Tensor<'s>) -> Tensor<'s> {
    s.sub(s.number(1.0), s.cast(seen, F32))
}

fn inverse_as_integer<'s>(s: &'s Sheet, seen: Tensor<'s>) -> Tensor<'s> {
    s.sub(s.int(1), s.cast(seen, I64))
}

fn chosen(s: &Sheet) {
    added(s, |seen| s.choose(seen, s.number(0.0), s.number(CONSTANT)));
}

fn chosen_by_inverse(s: &Sheet) {
    added(s, |seen| s.choose(s.call("Not", &[seen]), s.number(CONSTANT), s.number(0.0)));
}

fn product(s: &Sheet) {
    added(s, |seen| s.mul(inverse(s, seen), s.number(CONSTANT)));
}

fn product_of_opposite(s: &Sheet) {
    added(s, |seen| s.mul(s.sub(s.cast(seen, F32), s.number(1.0)), s.number(-CONSTANT)));
}

fn product_of_inverse(s: &Sheet) {
    added(s, |seen| s.mul(s.cast(s.call("Not", &[seen]), F32), s.number(CONSTANT)));
}

fn multiple_less(s: &Sheet) {
    added(s, |seen| s.sub(s.mul(s.cast(seen, F32), s.number(-CONSTANT)), s.number(-CONSTANT)));
}

fn filled(s: &Sheet) {
    added(s, |seen| {
        let inverse = inverse(s, seen);
        s.choose(s.cast(inverse, Bool), s.number(CONSTANT), inverse)
    });
}

fn product_of_integers(s: &Sheet) {
    added(s, |seen| s.mul(s.cast(inverse_as_integer(s, seen), F32), s.number(CONSTANT)));
}

/// Scores that are hidden where something says so.
fn hidden_where<'s>(s: &'s Sheet, hidden: impl FnOnce(Tensor<'s>) -> Tensor<'s>) {
    let o = heads(s, F32);
    finish(s, s.choose(hidden(mask(s)), s.number(f64::from(f32::MIN)), scaled_scores(s, &o)), &o);
}

fn hidden(s: &Sheet) {
    let o = heads(s, F32);
    finish(s, s.choose(mask(s), scaled_scores(s, &o), s.number(f64::from(f32::MIN))), &o);
}

fn hidden_by_difference(s: &Sheet) {
    hidden_where(s, |seen| s.cast(inverse(s, seen), Bool));
}

fn hidden_by_integers(s: &Sheet) {
    hidden_where(s, |seen| s.cast(inverse_as_integer(s, seen), Bool));
}

fn hidden_below(s: &Sheet) {
    hidden_where(s, |seen| s.call("Less", &[s.cast(seen, F32), s.number(0.5)]));
}

fn hidden_through_numbers(s: &Sheet) {
    hidden_where(s, |seen| s.call("Not", &[s.cast(s.cast(s.cast(seen, I64), F32), Bool)]));
}

/// Lower triangle of ones, of as many keys as queries.
fn triangle<'s>(s: &'s Sheet, o: &Operands<'s>) -> Tensor<'s> {
    let square = s.vector(&[s.int(1), s.int(1), s.size(o.q, 2), s.size(o.q, 2)]);
    s.op("Trilu").int("upper", 0).of(&[s.expand(s.number(1.0), square)])
}

fn causal<'s>(s: &'s Sheet, shift: impl FnOnce(Tensor<'s>) -> Tensor<'s>) {
    let o = super::masked_attention::self_heads(s);
    finish(s, s.add(scaled_scores(s, &o), shift(triangle(s, &o))), &o);
}

fn table_chosen(s: &Sheet) {
    causal(s, |seen| s.choose(s.cast(seen, Bool), s.number(0.0), s.number(CONSTANT)));
}

fn table_product(s: &Sheet) {
    causal(s, |seen| s.mul(s.sub(s.number(1.0), seen), s.number(CONSTANT)));
}

fn table_multiple(s: &Sheet) {
    causal(s, |seen| s.sub(s.mul(seen, s.number(-CONSTANT)), s.number(-CONSTANT)));
}
