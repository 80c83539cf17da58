//! The command line of `fuseline analyze`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::{EXIT_STATUS, PolicyName, SizeBinding, TargetName};

/// Find what to fuse among operations fed by hand
///
/// Reads operations with the tensors that join them, finds every pair with a tensor between them, and decides on each: the
/// predicted microseconds before and after, the weighted score (memory traffic 0.4, launches 0.2, registers 0.2, complexity
/// 0.1, maintainability 0.1), the rules of thumb, the reason, and the batch up to which it pays where it depends on that.
#[derive(Debug, Args)]
#[command(after_help = format!("\
A file (examples/layer.json is a larger one):
  {{
    \"sizes\": {{ \"batch\": 8 }},
    \"tensors\": {{ \"x\": [\"batch\", 1024], \"w\": [1024, 4096], \"y\": [\"batch\", 4096] }},
    \"operations\": [
      {{ \"name\": \"layernorm\", \"inputs\": [\"x\"], \"outputs\": [\"h\"], \"bound\": \"memory\", \"intensity\": 2.5 }},
      {{ \"name\": \"linear\", \"inputs\": [\"h\", \"w\"], \"outputs\": [\"y\"], \"bound\": \"compute\" }}
    ]
  }}

Fields of the file: operations (a list of them alone will do), sizes, dtype, tensors
Fields of an operation: name, inputs, outputs, and as far as they are known
  bound        memory or compute
  kind         elementwise, reduction, contraction, movement, gather, control, opaque
  elementwise  true, the same as kind elementwise
  flops        arithmetic operations: a number, or text with the sizes, \"4*batch*768\"
  intensity    arithmetic operations for each byte, instead of flops
  registers    registers of a thread      block  threads of a block
A tensor is a name, or {{ name, shape, dtype, bytes, constant }}; it need be described once. A shape has numbers and
names of sizes, and its first axis is the batch. What is not said is derived or assumed, and listed.

Examples:
  fuseline analyze examples/layer.json
  fuseline analyze examples/layer.json --target cpu --sizes batch=64
  fuseline analyze examples/layernorm_gelu.json --json
  fuseline analyze examples/matmul_layernorm.json --sizes batch=64

Devices: {}

{EXIT_STATUS}", crate::target::names().join(", ")))]
pub struct Analyze {
    /// A JSON file of operations
    #[arg(value_name = "OPS.json")]
    pub operations: PathBuf,
    /// The device to price on: a name, or a file called .spec
    #[arg(long, value_name = "NAME", default_value = "h200", value_parser = TargetName, hide_possible_values = true)]
    pub target: OsString,
    /// Numbers in place of the file's own sizes; 4k, 1M, 2G and 4Ki, 1Mi, 2Gi are understood
    #[arg(long, value_name = "NAME=SIZE,…", value_delimiter = ',')]
    pub sizes: Vec<SizeBinding>,
    /// Who has the last word
    #[arg(long, value_enum, default_value_t = PolicyName::Cost)]
    pub policy: PolicyName,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
