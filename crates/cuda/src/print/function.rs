//! A printed function with what it takes and how it is launched.

use fuseline::error::Result;
use fuseline::tensor::{DType, Dim};

use super::body::Body;
use super::index::size_name;
use super::nest::Nest;
use super::relay::TileMap;
use super::{Launch, Parameter, element};

/// How many threads run a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    pub blocks: Dim,
    pub threads: u32,
    /// bytes of shared memory that are asked for at the launch
    pub shared: u32,
    /// how many blocks a multiprocessor must hold, where the assembler shall not spill registers to make it hold more
    pub least_blocks: Option<u32>,
    /// how many neighbouring blocks share their memory; 1 where none do
    pub cluster: u32,
}

/// A function of a kernel.
#[derive(Debug)]
pub(super) struct Function {
    pub lines: Vec<String>,
    pub grid: Grid,
    /// the parameters, with the element types of tensors and whether they are written
    pub parameters: Vec<(Parameter, Option<DType>, bool)>,
    /// how it works, in a few words
    pub what: String,
    /// whether it may begin before earlier launches have ended
    early: bool,
    /// what failed checks say, those of earlier functions too
    pub sites: Vec<String>,
    /// matrices of which tiles are brought, by number
    pub maps: Vec<TileMap>,
}

impl Function {
    /// A function with this body; `what` says in a few words how it works.
    pub fn new(body: Body<'_>, grid: Grid, what: String) -> Function {
        let nest = body.nest;
        let (lines, parameters, sites) = body.finish();
        let parameters = parameters.into_iter().map(|parameter| {
            let (dtype, is_written) = element_type(nest, &parameter);
            (parameter, dtype, is_written)
        });
        Function {
            lines,
            grid,
            parameters: parameters.collect(),
            what,
            early: nest.options.groups,
            sites,
            maps: Vec::new(),
        }
    }

    /// Its text under a name, and its launch.
    pub fn print(self, name: &str) -> Result<(String, Launch)> {
        let mut args = Vec::with_capacity(self.parameters.len());
        for (parameter, dtype, is_written) in &self.parameters {
            let name = parameter.name();
            args.push(match (parameter, dtype) {
                (Parameter::Size(_), _) => format!("Index {name}"),
                (Parameter::Fault, _) => format!("Fault* {name}"),
                (Parameter::Map(_), _) => format!("const __grid_constant__ TileMap {name}"),
                (_, Some(dtype)) => {
                    let constant = if *is_written { "" } else { "const " };
                    format!("{constant}{}* __restrict__ {name}", element::stored(*dtype)?)
                }
                (_, None) => format!("void* {name}"),
            });
        }
        let Grid { blocks, threads, shared, least_blocks, cluster } = self.grid;
        let mut text = format!("// {threads} threads a block; {}.\n", self.what);
        let least = least_blocks.map_or(String::new(), |least| format!(", {least}"));
        let cluster = if cluster > 1 { format!("__cluster_dims__({cluster}, 1, 1) ") } else { String::new() };
        let head = format!("extern \"C\" __global__ void {cluster}__launch_bounds__({threads}{least}) {name}(");
        text.push_str(&head);
        text.push_str(&wrapped_list(&args, head.len()));
        text.push_str(") {\n");
        if self.early && !self.lines.iter().any(|line| line == "after_earlier();") {
            text.push_str("  after_earlier();\n");
        }
        for line in &self.lines {
            text.push_str(if line.starts_with('#') { "" } else { "  " });
            text.push_str(line);
            text.push('\n');
        }
        text.push_str("}\n");
        let parameters = self.parameters.into_iter().map(|(parameter, ..)| parameter).collect();
        let (name, early, maps) = (name.to_owned(), self.early, self.maps);
        Ok((text, Launch { name, blocks, threads, shared, early, parameters, maps, library: None }))
    }
}

/// What lies in a tensor, and whether the kernel writes it.
fn element_type(nest: &Nest<'_>, parameter: &Parameter) -> (Option<DType>, bool) {
    let written = nest.stores.iter().find(|store| store.access.tensor.parameter == *parameter);
    if let Some(store) = written {
        return (Some(store.access.tensor.dtype), true);
    }
    (nest.loads().find(|access| access.tensor.parameter == *parameter).map(|access| access.tensor.dtype), false)
}

/// Arguments in lines of readable length.
fn wrapped_list(args: &[String], indent: usize) -> String {
    let one = args.join(", ");
    if indent + one.len() <= 120 { one } else { format!("\n    {}", args.join(",\n    ")) }
}

/// The name of a size in a signature.
pub(super) fn parameter_name(parameter: &Parameter) -> String {
    match parameter {
        Parameter::Input(number) => format!("x{number}"),
        Parameter::Output(number) => format!("y{number}"),
        Parameter::Scratch(number) => format!("z{number}"),
        Parameter::Map(number) => format!("m{number}"),
        Parameter::Fault => "fault".to_owned(),
        Parameter::Size(symbol) => size_name(symbol),
    }
}
