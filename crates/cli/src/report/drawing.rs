//! Graphs as they are drawn: the model before, its kernels after, layers that repeat drawn once.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::layout::layout;

/// What a box stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Node {
    /// an input of the model, by number
    Input(usize),
    /// an output of the model
    Output(usize),
    /// an operator
    Operator(usize),
    /// a kernel
    Kernel(usize),
    /// a layer that repeats, but for its first time
    Fold(usize),
}

impl Node {
    fn encoded(self) -> (&'static str, usize) {
        match self {
            Node::Input(n) => ("input", n),
            Node::Output(n) => ("output", n),
            Node::Operator(n) => ("operator", n),
            Node::Kernel(n) => ("kernel", n),
            Node::Fold(n) => ("fold", n),
        }
    }
}

/// Boxes with their labels, and edges with the bytes that move along them.
#[derive(Clone, Debug, Default)]
pub struct Sketch {
    boxes: Vec<(Node, f64)>,
    edges: BTreeMap<(usize, usize), f64>,
}

/// A letter of a label, and what is around the label.
const LETTER: f64 = 7.0;
const PADDING: f64 = 30.0;

impl Sketch {
    /// Adds a box for a label of so many letters; returns its number.
    pub fn add(&mut self, what: Node, letters: usize) -> usize {
        let width = (letters as f64 * LETTER + PADDING).clamp(64.0, 300.0).round();
        self.boxes.push((what, width));
        self.boxes.len() - 1
    }

    /// Adds an edge; bytes of several edges between the same boxes add up.
    pub fn join(&mut self, from: usize, to: usize, bytes: f64) {
        if from != to {
            *self.edges.entry((from, to)).or_insert(0.0) += bytes;
        }
    }

    /// The same with all boxes that `fold` puts together being one.
    pub fn folded(&self, fold: impl Fn(Node) -> Option<usize>, letters: usize) -> Sketch {
        let mut sketch = Sketch::default();
        let mut folds: BTreeMap<usize, usize> = BTreeMap::new();
        let place = self.boxes.iter().map(|(what, width)| match fold(*what) {
            Some(number) => *folds.entry(number).or_insert_with(|| sketch.add(Node::Fold(number), letters)),
            None => {
                sketch.boxes.push((*what, *width));
                sketch.boxes.len() - 1
            }
        });
        let place: Vec<usize> = place.collect();
        for ((from, to), bytes) in &self.edges {
            sketch.join(place[*from], place[*to], *bytes);
        }
        sketch
    }

    /// What reads each box.
    pub fn readers(&self) -> BTreeMap<Node, BTreeSet<Node>> {
        let mut readers: BTreeMap<Node, BTreeSet<Node>> = BTreeMap::new();
        for (from, to) in self.edges.keys() {
            readers.entry(self.boxes[*from].0).or_default().insert(self.boxes[*to].0);
        }
        readers
    }

    /// Laid out, as JSON: boxes are `[what, number, width, layer, x]`, edges `[from, to, bytes, [layer, x, …]]`.
    pub fn to_json(&self) -> Value {
        let widths: Vec<f64> = self.boxes.iter().map(|(_, width)| *width).collect();
        let edges: Vec<(usize, usize)> = self.edges.keys().copied().collect();
        let laid = layout(&widths, &edges);
        let boxes = self.boxes.iter().zip(&laid.boxes).map(|((what, width), (layer, x))| {
            let (what, number) = what.encoded();
            json!([what, number, width, layer, x])
        });
        let edges = self.edges.iter().zip(&laid.wires).map(|(((from, to), bytes), wire)| {
            let points: Vec<Value> = wire.iter().flat_map(|(layer, x)| [json!(layer), json!(x)]).collect();
            json!([from, to, bytes.round(), points])
        });
        json!({
            "width": laid.width,
            "layers": laid.layers,
            "boxes": boxes.collect::<Vec<_>>(),
            "edges": edges.collect::<Vec<_>>(),
        })
    }
}
