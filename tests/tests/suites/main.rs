//! Suites across crates, a module each. They are one program, so that it is linked once and what takes long runs beside what does not:
//! `cargo test -p fuseline-tests --test suites planning::` runs one of them.

mod attention;
mod attention_sizes;
mod bad_files;
mod bisect;
mod documents;
mod explain;
mod extremes;
mod fuzz;
mod gains;
mod graphics;
mod graphs;
mod import;
mod indices;
mod malicious;
mod nothing;
mod passes;
mod planning;
mod plans;
mod processor;
mod reasons;
mod rewrites;
mod rows;
mod running;
mod seeded;
mod sequences;
mod siblings;
mod spellings;
mod texts;
mod tiles;
