//! Fuseline: automatic operator fusion. This crate is the pure compiler: no unsafe code, no files, no threads, no clock.
//!
//! A tour, in the order of the data:
//! 1. [`tensor`]: element types, symbolic sizes, shapes, constant data;
//! 2. [`ops`]: the three tables, functions of numbers, primitives on tensors, operators that users know;
//! 3. [`graph`]: primitives with operands, built by handles that read like mathematics;
//! 4. [`passes`]: graph in, plainer graph out;
//! 5. [`rewrites`]: graph in, graph with its work elsewhere out, every step a decision;
//! 6. [`fuse`]: graph in, plan out: which nodes become one kernel, and why; [`lower`]: nodes in, kernel out;
//! 7. [`tile`]: the language of kernels, with its text, its rules and its interpreter; [`interpret`]: whole plans on it;
//! 8. [`compile`](mod@compile): the pipeline, graph to [`program`], which a [`device`] loads; [`run`]: what devices know of plans before they run;
//! 9. [`explain`]: a plan in the user's language; [`bisect`]: the one decision of a plan that matters;
//! 10. [`reference`](mod@reference): what a graph means, and [`compare`](mod@compare): whether a result is that;
//! 11. [`analysis`]: the work and the traffic that it needs, and the price; [`analyzer`]: the same for operations fed by hand;
//! 12. [`gallery`]: the graphs that fusion is for.
//!
//! ```
//! use fuseline::analysis::Footprints;
//! use fuseline::graph::Builder;
//! use fuseline::reference::{Options, evaluate};
//! use fuseline::tensor::{DType, Dim, Literal, Shape};
//!
//! // relu(x · w + b) for vectors of any length
//! let b = Builder::new("mul_add_relu");
//! let [x, w, bias] = ["x", "w", "b"].map(|name| b.input(name, DType::F32, Shape::new([Dim::named("n")])));
//! b.output("y", (x * w + bias).max(0.0));
//! let graph = b.finish()?;
//!
//! let inputs = [("x", [1.0, 2.0]), ("w", [3.0, -4.0]), ("b", [0.5, 1.0])];
//! let inputs = inputs.map(|(name, values)| (name.into(), Literal::f32s(&values))).into_iter().collect();
//! assert_eq!(evaluate(&graph, &inputs, &Options::default())?, [Literal::f32s(&[3.5, 0.0])]);
//!
//! // Apart, the three primitives move 32 bytes for every element; any execution must move 16.
//! let footprints = Footprints::of(&graph);
//! assert_eq!(footprints.by_primitive().bytes(), Dim::named("n") * 32);
//! assert_eq!(footprints.least.bytes(), Dim::named("n") * 16);
//! # Ok::<(), fuseline::error::Error>(())
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod analysis;
pub mod analyzer;
pub mod bisect;
pub mod budget;
pub mod compare;
pub mod compile;
pub mod cursor;
pub mod device;
pub mod error;
pub mod explain;
pub mod fuse;
pub mod gallery;
pub mod graph;
pub mod interpret;
pub mod lower;
pub mod nearest;
pub mod ops;
pub mod passes;
pub mod philox;
pub mod program;
pub mod reference;
pub mod rewrites;
pub mod run;
pub mod tensor;
pub mod tile;
