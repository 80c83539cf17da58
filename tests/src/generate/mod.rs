//! Random graphs: typed, small, runnable, and easy to shrink.
//!
//! [`cases`] is a proptest strategy. A [`Case`] is a graph with inputs on which the reference evaluates it without error,
//! so a property may say `evaluate(&case.graph, &case.inputs, …).unwrap()`; all primitives occur, with symbolic
//! sizes, guarded views, constraints, values nobody reads, and regions inside regions.
//!
//! A graph is grown from a recipe: a list of steps, each with a tape of bytes from which its choices are read. A step
//! that finds no fitting operands does nothing. Shrinking removes steps and bytes; the recipe without steps is a graph
//! that returns an input.
//!
//! ```
//! use fuseline::reference::{Options, evaluate};
//! use fuseline_tests::generate::cases;
//! use proptest::prelude::*;
//!
//! proptest!(|(case in cases())| {
//!     let values = evaluate(&case.graph, &case.inputs, &Options::default()).unwrap();
//!     prop_assert_eq!(values.len(), case.graph.outputs().len());
//! });
//! ```

mod data;
mod expression;
mod grow;
mod movement;
mod region;
mod tape;

use std::fmt;
use std::sync::Arc;

use fuseline::graph::text::print_literal;
use fuseline::graph::{Builder, Graph};
use fuseline::tensor::{DType, Dim, Env, Literal, Shape, Symbol};
use proptest::prelude::*;
use rustc_hash::FxHashMap;

use grow::Growth;
use tape::Tape;

/// The values of a graph's inputs by name, as the reference takes them.
pub type Inputs = FxHashMap<Arc<str>, Literal>;

/// A graph and values of its inputs on which it runs.
#[derive(Clone)]
pub struct Case {
    /// the graph
    pub graph: Graph,
    /// a value for each of its inputs
    pub inputs: Inputs,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.graph)?;
        for input in self.graph.inputs() {
            let name = self.graph.input_name(*input);
            writeln!(f, "{name} = {}", print_literal(&self.inputs[name]))?;
        }
        Ok(())
    }
}

/// Random cases.
pub fn cases() -> impl Strategy<Value = Case> {
    (tapes(4), prop::collection::vec(steps(), 0..14), any::<u16>())
        .prop_map(|(start, steps, seed)| grow_case(&start, &steps, u64::from(seed)))
}

/// What a step tries to add. Shrinking goes towards the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Unary,
    Binary,
    Cast,
    Constant,
    Slice,
    Permute,
    Reduce,
    Expand,
    Reshape,
    Flip,
    Pad,
    Windows,
    Concat,
    Select,
    Expression,
    Contract,
    Take,
    Scatter,
    Prefix,
    Sort,
    Coordinates,
    Sizes,
    Random,
    Input,
    Bind,
    NonZero,
    Unique,
    If,
    Loop,
}

const PLAIN: &[Op] = &[
    Op::Unary,
    Op::Binary,
    Op::Cast,
    Op::Constant,
    Op::Slice,
    Op::Permute,
    Op::Reduce,
    Op::Expand,
    Op::Reshape,
    Op::Flip,
    Op::Pad,
    Op::Windows,
    Op::Concat,
    Op::Select,
    Op::Expression,
    Op::Contract,
    Op::Take,
    Op::Scatter,
    Op::Prefix,
    Op::Sort,
    Op::Coordinates,
    Op::Sizes,
    Op::Random,
    Op::Input,
    Op::Bind,
    Op::NonZero,
    Op::Unique,
];

/// One addition to a graph.
#[derive(Clone, Debug)]
struct Step {
    op: Op,
    tape: Vec<u8>,
    /// for regions: what they consist of
    inner: Vec<Step>,
}

fn tapes(length: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..=length)
}

fn steps() -> impl Strategy<Value = Step> {
    let plain = (prop::sample::select(PLAIN), tapes(12)).prop_map(|(op, tape)| Step { op, tape, inner: Vec::new() });
    plain.prop_recursive(2, 24, 5, |inner| {
        let region = (prop::sample::select(&[Op::If, Op::Loop]), tapes(8), prop::collection::vec(inner.clone(), 0..5));
        prop_oneof![8 => inner, 1 => region.prop_map(|(op, tape, inner)| Step { op, tape, inner })]
    })
}

/// Sizes that inputs may have, by name. The first two are equal, which no graph can know.
const NAMES: [&str; 3] = ["n", "p", "m"];

fn grow_case(start: &[u8], steps: &[Step], seed: u64) -> Case {
    let mut tape = Tape::new(start);
    let (n, m) = ([2, 3, 1, 0][tape.below(4)], [3, 2, 1, 4][tape.below(4)]);
    let env: Env = NAMES.iter().zip([n, n, m]).map(|(name, size)| (Symbol::name(name), size)).collect();
    let builder = Builder::new("random");
    let [a, b, c] = NAMES.map(Dim::named);
    let pool = vec![
        builder.input("i", DType::I64, Shape::new([b, Dim::int(2)])),
        builder.input("x", DType::F32, Shape::new([a, c])),
    ];
    let mut growth = Growth::new(&builder, pool, env.clone(), 0);
    steps.iter().for_each(|step| growth.step(step));
    for k in 0..1 + tape.below(3) {
        let value = growth.any(&mut tape);
        builder.output(&format!("y{k}"), value);
    }
    let graph = builder.finish().expect("the generator adds only what fits");
    let inputs = graph.inputs().iter().enumerate();
    let inputs =
        inputs.map(|(k, v)| (graph.input_name(*v).clone(), data::literal(graph.ty(*v), &env, seed + k as u64)));
    Case { inputs: inputs.collect(), graph }
}
