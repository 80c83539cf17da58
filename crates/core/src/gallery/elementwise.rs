//! Row 1: chains of elementwise operators.

use std::f64::consts::FRAC_1_SQRT_2;

use super::Entry;

const ONE_MILLION: &[(&str, i64)] = &[("n", 1_000_000)];

pub(super) static ENTRIES: &[Entry] = &[
    Entry {
        name: "mul_add_relu",
        row: 1,
        doc: "relu(x · w + b)",
        sizes: ONE_MILLION,
        draw: |s| {
            let (x, w, b) = (s.input("x", &["n"]), s.input("w", &["n"]), s.input("b", &["n"]));
            let product = s.op("Mul", |_| x * w);
            let sum = s.op("Add", |_| product + b);
            s.output("y", s.op("Relu", |_| sum.max(0.0)));
            Ok(())
        },
    },
    Entry {
        name: "add_gelu",
        row: 1,
        doc: "gelu(x + y)",
        sizes: ONE_MILLION,
        draw: |s| {
            let (x, y) = (s.input("x", &["n"]), s.input("y", &["n"]));
            let sum = s.op("Add", |_| x + y);
            s.output("z", s.op("Gelu", |_| sum * 0.5 * ((sum * FRAC_1_SQRT_2).erf() + 1.0)));
            Ok(())
        },
    },
];
