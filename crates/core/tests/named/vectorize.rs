use fuseline::ops::named::Attribute;
use fuseline::tensor::Literal;

use crate::call::{Op, op};

/// The pool [5], [6], [5 6], [6 7] at columns 2, 0, 1, 3.
fn counts(mode: &str) -> Op {
    op("TfIdfVectorizer")
        .str("mode", mode)
        .int("min_gram_length", 1)
        .int("max_gram_length", 2)
        .int("max_skip_count", 1)
        .ints("ngram_counts", &[0, 2])
        .ints("ngram_indexes", &[2, 0, 1, 3])
        .ints("pool_int64s", &[5, 6, 5, 6, 6, 7])
}

#[test]
fn n_grams_are_counted_with_skips_but_single_numbers_once() {
    let x = Literal::i64s(&[5, 6, 6, 7, 5, 5]).reshaped([1, 6]).unwrap();
    // [5 6] at 0 1 and, skipping one, at 0 2; [6 7] at 2 3 and 1 3.
    assert_eq!(counts("TF").arg(x.clone()).values(), [2.0, 2.0, 3.0, 2.0]);
    let weights = Attribute::Floats(vec![0.5, 4.0, 8.0, 16.0]);
    assert_eq!(counts("TFIDF").with("weights", weights.clone()).arg(x.clone()).values(), [8.0, 16.0, 1.5, 32.0]);
    assert_eq!(counts("IDF").with("weights", weights).arg(x).values(), [4.0, 8.0, 0.5, 16.0]);
}

#[test]
fn a_row_shorter_than_an_n_gram_holds_none() {
    assert_eq!(counts("TF").arg(Literal::i64s(&[6])).values(), [1.0, 0.0, 0.0, 0.0]);
}
