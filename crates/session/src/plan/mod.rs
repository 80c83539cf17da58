//! A plan in words: for people as text, for programs as JSON.

pub mod json;
pub mod name;
pub mod text;

use fuseline::fuse::PlanOptions;

use crate::table::spelt_out;

/// What the plan without fusion is called in which every node of the model is a kernel.
pub const PER_NODE: &str = "one kernel per node";
/// What the plan is called in which every primitive is one.
pub const PER_PRIMITIVE: &str = "one per primitive";

/// What was planned, and for what.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// the name of the model
    pub model: &'a str,
    /// how it was planned
    pub options: &'a PlanOptions,
    /// the sizes that were given
    pub given: &'a [(String, i64)],
    /// free sizes that nobody gave, with what was taken
    pub assumed: &'a [(String, i64)],
}

/// Sizes by name: `rows=256,columns=1024`.
pub fn size_list(sizes: &[(String, i64)]) -> String {
    sizes.iter().map(|(name, size)| format!("{}={size}", spelt_out(name))).collect::<Vec<_>>().join(",")
}
