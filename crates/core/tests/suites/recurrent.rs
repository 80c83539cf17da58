//! Recurrent operators against their formulas, for sequence lengths that are not known before run time.

use std::sync::Arc;

use fuseline::graph::Builder;
use fuseline::ops::named::{Attribute, Attributes, Call, find};
use fuseline::ops::prim::Class;
use fuseline::reference::{Options, evaluate};
use fuseline::tensor::{DType, Dim, Literal, Shape};

const HIDDEN: usize = 2;

fn weights(sizes: &[usize], from: f64) -> Literal {
    let count = sizes.iter().product::<usize>();
    let values: Vec<f64> = (0..count).map(|k| ((k as f64 + from) * 0.7).sin()).collect();
    Literal::from_f64s(DType::F64, sizes.to_vec(), &values).unwrap()
}

/// Expands an operator over an input of shape [time, 1, 1] with constant weights; runs it on `x`.
fn run(op: &str, gates: usize, attributes: Attributes, x: &[f64]) -> Vec<Vec<f64>> {
    let builder = Builder::new(op);
    let shape = Shape::new([Dim::named("time"), Dim::int(1), Dim::int(1)]);
    let (w, r) = (weights(&[1, gates * HIDDEN, 1], 0.0), weights(&[1, gates * HIDDEN, HIDDEN], 100.0));
    let bias = weights(&[1, 2 * gates * HIDDEN], 200.0);
    let operands = [
        Some(builder.input("x", DType::F64, shape)),
        Some(builder.constant(w)),
        Some(builder.constant(r)),
        Some(builder.constant(bias)),
    ];
    let row = find("", op).unwrap();
    let call = Call { builder: &builder, op: row, inputs: &operands, attributes: &attributes, outputs: 3, opset: 22 };
    for (k, result) in (row.expand)(&call).unwrap().into_iter().enumerate() {
        builder.output(&format!("y{k}"), result);
    }
    let graph = builder.finish().unwrap();
    assert!(graph.nodes().iter().any(|n| n.prim().class() == Class::Contract), "the input's product is outside");
    let x = Literal::from_f64s(DType::F64, vec![x.len(), 1, 1], x).unwrap();
    let inputs = [(Arc::from("x"), x)].into_iter().collect();
    evaluate(&graph, &inputs, &Options::default()).unwrap().iter().map(Literal::to_f64s).collect()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The share of one gate's neuron: input, state and both biases.
fn gate(gates: usize, which: usize, neuron: usize, x: f64, h: &[f64]) -> f64 {
    let row = which * HIDDEN + neuron;
    let w = weights(&[gates * HIDDEN], 0.0).float(row);
    let r = weights(&[gates * HIDDEN * HIDDEN], 100.0);
    let bias = weights(&[2 * gates * HIDDEN], 200.0);
    let state: f64 = (0..HIDDEN).map(|k| r.float(row * HIDDEN + k) * h[k]).sum();
    w * x + state + bias.float(row) + bias.float(gates * HIDDEN + row)
}

fn close(found: &[f64], wanted: &[f64]) {
    assert_eq!(found.len(), wanted.len());
    assert!(found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-12), "{found:?} instead of {wanted:?}");
}

#[test]
fn an_lstm_of_two_steps_is_its_formula() {
    let x = [0.5, -1.25];
    let (mut h, mut c) = (vec![0.0; HIDDEN], vec![0.0; HIDDEN]);
    let mut y = Vec::new();
    for x in x {
        let before = h.clone();
        for k in 0..HIDDEN {
            let share = |which| gate(4, which, k, x, &before);
            c[k] = sigmoid(share(2)) * c[k] + sigmoid(share(0)) * share(3).tanh();
            h[k] = sigmoid(share(1)) * c[k].tanh();
        }
        y.extend_from_slice(&h);
    }
    let found = run("LSTM", 4, Attributes::new(), &x);
    close(&found[0], &y);
    close(&found[1], &h);
    close(&found[2], &c);
}

#[test]
fn a_reverse_rnn_walks_from_the_end_and_answers_in_order() {
    let x = [0.5, -1.25, 2.0];
    let mut h = vec![0.0; HIDDEN];
    let mut y = vec![0.0; x.len() * HIDDEN];
    for t in (0..x.len()).rev() {
        let before = h.clone();
        for k in 0..HIDDEN {
            h[k] = gate(1, 0, k, x[t], &before).tanh();
            y[t * HIDDEN + k] = h[k];
        }
    }
    let reverse = Attributes::from_iter([("direction".to_string(), Attribute::Str("reverse".to_string()))]);
    let found = run("RNN", 1, reverse, &x);
    close(&found[0], &y);
    close(&found[1], &h);
}

#[test]
fn a_sequence_of_length_zero_returns_the_initial_state() {
    let found = run("GRU", 3, Attributes::new(), &[]);
    assert!(found[0].is_empty());
    assert_eq!(found[1], [0.0; HIDDEN]);
}
