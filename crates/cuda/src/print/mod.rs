//! Kernels as CUDA C++.
//!
//! Comes in: a kernel, numbers for some of its sizes, how wide indices are. Goes out: a text that NVRTC compiles by itself, and how to
//! launch the functions in it. Sizes without numbers are arguments of the functions, so that one text serves every batch. Never here:
//! a device, a compiler, a file.

mod across;
mod affine;
mod ahead;
mod attend;
mod attention;
mod body;
mod code;
mod columns;
mod element;
mod expression;
mod function;
mod index;
mod library;
mod matrix;
mod meetings;
mod name;
mod nest;
mod operand;
mod plain;
mod points;
mod predict;
mod prelude;
mod product;
mod relay;
mod results;
mod row;
mod scalar;
mod scan;
mod share_products;
mod siblings;
mod split;
mod stages;
mod streamed;
#[cfg(test)]
mod tests;
mod tidy;
mod varying;
mod words;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use fuseline::error::{Error, Result};
use fuseline::tensor::{DType, Dim, Env, Symbol};
use fuseline::tile::{AxisSet, Kernel, Rounding, Schedule};

use attention::Attention;
use columns::Columns;
use function::Function;
pub use library::{Activation, Added, Asked, Library, Matrix};
pub use name::free_name;
use nest::Nest;
pub use predict::predict;
use product::Product;
pub use relay::TileMap;
use stages::{Stage, Way, stages};

/// How a kernel is printed.
#[derive(Clone, Debug)]
pub struct Options {
    /// what its functions are called; a number follows where there are several
    pub name: String,
    /// the sizes that it is made for; other sizes are arguments
    pub fixed: Env,
    /// whether indices have 64 bits: where a tensor has 2^31 elements or more
    pub wide: bool,
    /// whether groups of four warps multiply matrices together, blocks share their memory, and launches begin before earlier ones have
    /// ended: on compute capability 9.0
    pub groups: bool,
    /// what a library is asked for
    pub asked: Asked,
    /// multiprocessors of the device, each of which should get work
    pub processors: i64,
    /// about how large sizes are that are arguments, as [`sizes_about`] says
    pub about: Env,
}

/// A printed kernel.
#[derive(Clone, Debug)]
pub struct Printed {
    /// the kernel and its sizes
    pub comment: String,
    /// what the functions call
    pub head: String,
    /// the functions, which need no header but the head
    pub functions: String,
    /// whether indices have 64 bits
    pub is_wide: bool,
    /// what is launched, one after another
    pub launches: Vec<Launch>,
    /// memory between launches
    pub scratch: Vec<Scratch>,
    /// what checks say that fail on the device: the first is number 1
    pub sites: Vec<String>,
    /// whether products and sums must be rounded apart
    pub is_strict: bool,
}

impl Printed {
    /// The text, which needs no header.
    pub fn source(&self) -> String {
        format!("{}{}\n{}", self.comment, self.head, self.functions)
    }
}

/// Several kernels as one text that needs no header: the head, which what they call stands in once, and for each its comment and its functions. These are
/// in a namespace of their own, called as the kernel is, because types and memory of equal names differ; what their indices are must not.
pub fn together(kernels: &[(&str, &Printed)]) -> Result<(String, Vec<String>)> {
    let is_wide = kernels.iter().any(|(_, printed)| printed.is_wide);
    if kernels.iter().any(|(_, printed)| printed.is_wide != is_wide) {
        return Err(Error::bug("kernels with indices of two types in one text"));
    }
    let functions: String = kernels.iter().map(|(_, printed)| printed.functions.as_str()).collect();
    let own = kernels.iter().map(|(name, printed)| {
        format!("{}namespace {name} {{\n\n{}\n}}\n", printed.comment, printed.functions.trim_end_matches('\n'))
    });
    Ok((head(&functions, is_wide), own.collect()))
}

/// A launch of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// the function
    pub name: String,
    /// blocks, in the sizes that are not fixed; nothing is launched where it is 0
    pub blocks: Dim,
    /// threads of a block
    pub threads: u32,
    /// bytes of shared memory beyond what the text declares
    pub shared: u32,
    /// whether it may begin before earlier launches have ended, for which it then waits by itself
    pub early: bool,
    /// what the function takes, in order
    pub parameters: Vec<Parameter>,
    /// matrices of which tiles are brought
    pub maps: Vec<TileMap>,
    /// the same as a product that a library can compute
    pub library: Option<Library>,
}

/// What a function takes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Parameter {
    /// a matrix of which tiles are brought, by its number in the launch
    Map(usize),
    /// a pointer to an input of the kernel
    Input(usize),
    /// a pointer to an output
    Output(usize),
    /// a pointer to memory between launches
    Scratch(usize),
    /// a pointer to where failed checks are reported: an i32 that is 0, and an i64 eight bytes behind its beginning
    Fault,
    /// a size, in the type of indices
    Size(Symbol),
}

impl Parameter {
    fn name(&self) -> String {
        function::parameter_name(self)
    }
}

/// Memory between launches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scratch {
    /// how much, in the sizes of the kernel
    pub bytes: Dim,
}

/// A kernel cut into functions, before they are text.
struct Parts {
    stages: Vec<Stage>,
    scratch: Vec<Scratch>,
    /// the functions of all stages, in order; those of a group are launched as one
    groups: Vec<Vec<Function>>,
    /// for every stage the product that a library can compute
    libraries: Vec<Option<Library>>,
    sites: Vec<String>,
}

fn parts(kernel: &Kernel, options: &Options) -> Result<Parts> {
    let (stages, scratch) = stages(kernel, options)?;
    let (mut all, mut libraries, mut sites) = (Vec::new(), Vec::new(), Vec::new());
    for stage in &stages {
        let mut nest = Nest::new(&stage.kernel, options, &stage.parameters)?;
        nest.join_axes();
        let mut library = None;
        let function = match stage.way {
            Way::Points => points::points(&nest, &stage.stores, sites)?,
            Way::Rows(along) => {
                let along: AxisSet = along.iter().filter(|axis| !nest.extents[*axis].is(1)).collect();
                row::rows(&nest, &stage.stores, along, sites)?
            }
            Way::RowsAndColumns { along, part } => {
                let along: AxisSet = along.iter().filter(|axis| !nest.extents[*axis].is(1)).collect();
                row::rows_and_columns(&nest, &stage.stores, along, part, sites)?
            }
            Way::Columns => {
                let found = Columns::of(&nest, &stage.stores);
                let found = found.ok_or_else(|| Error::bug("folds that cannot be shared"))?;
                columns::columns(&nest, &stage.stores, &found, sites)?
            }
            Way::Scan(id) => scan::scan(&nest, id, sites)?,
            Way::Attention => {
                let found = Attention::of(&nest, &stage.stores);
                let found = found.ok_or_else(|| Error::bug("attention that is none"))?;
                attend::attention(&nest, &stage.stores, &found, sites)?
            }
            Way::Product => {
                let found = Product::of(&nest, &stage.stores);
                let found = found.ok_or_else(|| Error::bug("a product that is none"))?;
                library = found.library(&nest, &stage.stores).filter(|library| {
                    // Rows that are not aligned: only where somebody computes what the library leaves out.
                    options.asked != Asked::Nothing && (library.sets == 1 || stage.has_edges)
                });
                product::product(&nest, &stage.stores, &found, sites)?
            }
        };
        sites = function.sites.clone();
        all.push(function);
        libraries.push(library);
    }
    // Products that nobody else computes.
    let is_free = stages.iter().zip(&libraries).zip(&all);
    let is_free =
        is_free.map(|((stage, library), own)| stage.way == Way::Product && library.is_none() && own.maps.is_empty());
    let is_free: Vec<bool> = is_free.collect();
    let order = siblings::order(&all, &is_free);
    let (stages, libraries) = (reordered(stages, &order), reordered(libraries, &order));
    let groups = siblings::join(reordered(all, &order), &reordered(is_free, &order));
    Ok(Parts { stages, scratch, groups, libraries, sites })
}

/// The elements of a list in another order.
fn reordered<T>(list: Vec<T>, order: &[usize]) -> Vec<T> {
    let mut list: Vec<Option<T>> = list.into_iter().map(Some).collect();
    order.iter().filter_map(|k| list[*k].take()).collect()
}

/// A kernel as CUDA C++.
pub fn print(kernel: &Kernel, options: &Options) -> Result<Printed> {
    let Parts { scratch, groups, libraries, sites, .. } = parts(kernel, options)?;
    let (count, mut libraries) = (groups.len(), libraries.into_iter());
    let (mut functions, mut launches) = (String::new(), Vec::new());
    for (number, group) in groups.into_iter().enumerate() {
        let own: Vec<Option<Library>> = libraries.by_ref().take(group.len()).collect();
        let library = own.into_iter().next().flatten();
        let name = if count == 1 { options.name.clone() } else { format!("{}_{number}", options.name) };
        let (text, mut launch) = siblings::joined(group).print(&name)?;
        launch.library = library;
        if number > 0 {
            functions.push('\n');
        }
        functions.push_str(&text);
        launches.push(launch);
    }
    let (comment, head, is_wide) = (comment(kernel, options), head(&functions, options.wide), options.wide);
    let is_strict = kernel.rounding == Rounding::Every;
    Ok(Printed { comment, head, functions, is_wide, launches, scratch, sites, is_strict })
}

/// What functions call, with indices of 64 bits or of 32.
fn head(functions: &str, is_wide: bool) -> String {
    let (index, unsigned) = if is_wide { ("long long", "unsigned long long") } else { ("int", "unsigned") };
    let mut head = String::new();
    writeln!(head, "typedef {index} Index;").expect("writing to a string succeeds");
    if functions.contains("(Unsigned)") {
        writeln!(head, "typedef {unsigned} Unsigned;").expect("writing to a string succeeds");
    }
    let prelude = prelude::needed(functions);
    if !prelude.is_empty() {
        head.push('\n');
        head.push_str(prelude.trim_end_matches('\n'));
        head.push('\n');
    }
    head
}

/// Whether indices of a kernel need 64 bits: those of elements, or of the terms of a fold, of which there may be more than elements.
pub fn is_wide(kernel: &Kernel, env: &Env) -> Result<bool> {
    let count = |dims: &mut dyn Iterator<Item = &Dim>| -> Result<i64> {
        let sizes = dims.map(|dim| dim.eval(env)).collect::<Result<Vec<i64>>>()?;
        // Where there is nothing of something, the rest is still counted.
        Ok(sizes.into_iter().fold(1, |all, size| all.saturating_mul(size.max(1))))
    };
    let mut most = 0;
    for param in kernel.inputs.iter().chain(&kernel.outputs) {
        most = most.max(count(&mut param.ty.shape.dims().iter())?);
    }
    for step in &kernel.steps {
        most = most.max(count(&mut step.op.folds().iter().map(|axis| &kernel.axes[axis]))?);
    }
    most = kernel.axes.iter().try_fold(most, |most, extent| Ok(most.max(extent.eval(env)?)))?;
    Ok(most >= i64::from(i32::MAX) - BEHIND)
}

/// Kernels count a little beyond the last element: to the end of a block of threads, to the next row of a block.
const BEHIND: i64 = 1 << 20;

/// The sizes that a kernel is better made for than told: those of folds, which are unrolled, and those along which elements lie side by
/// side, which packs must divide. All others may change from launch to launch.
pub fn sizes_to_fix(kernel: &Kernel) -> BTreeSet<Symbol> {
    let folded = kernel.steps.iter().flat_map(|step| step.op.folds().iter().collect::<Vec<_>>());
    let folded = folded.map(|axis| &kernel.axes[axis]);
    let params = kernel.inputs.iter().chain(&kernel.outputs);
    let innermost = params.filter_map(|param| param.ty.shape.dims().get(param.layout.order().last()?));
    let mut symbols = BTreeSet::new();
    for dim in folded.chain(innermost) {
        dim.for_each_symbol(&mut |symbol| {
            symbols.insert(symbol.clone());
        });
    }
    symbols
}

/// The sizes that a kernel is made for under a binding of all: those of [`sizes_to_fix`], and the rows of a product of few, whose sums are
/// cut into parts so that there is work for all processors.
pub fn sizes_to_fix_at(kernel: &Kernel, env: &Env) -> BTreeSet<Symbol> {
    let mut symbols = sizes_to_fix(kernel);
    if let Schedule::Contract { rows, columns, .. } = &kernel.schedule {
        for axes in [rows, columns] {
            let extents = || axes.iter().map(|axis| &kernel.axes[axis]);
            let count = extents().try_fold(1i64, |all, extent| all.checked_mul(extent.eval(env).ok()?));
            if count.is_some_and(|count| count <= FEW_ROWS) {
                extents().for_each(|extent| {
                    extent.for_each_symbol(&mut |symbol| {
                        symbols.insert(symbol.clone());
                    });
                });
            }
        }
    }
    symbols
}

/// Of a product of few results, of attention for which threads multiply, and of few rows, about how large the sizes are that it is not made for: the
/// next power of two. It is cut into so many pieces that all processors have work, and is right for any sizes.
pub fn sizes_about(kernel: &Kernel, env: &Env) -> Env {
    let (inner, most) = match &kernel.schedule {
        Schedule::Contract { sum, .. } => (*sum, FEW_RESULTS),
        Schedule::Row { along, .. } => (*along, MANY_ROWS),
        Schedule::Attention { .. } if !reads_narrow_floats(kernel) => (AxisSet::EMPTY, FEW_RESULTS),
        _ => return Env::new(),
    };
    let count = |axes: AxisSet| {
        let mut extents = axes.iter().map(|axis| kernel.axes[axis].eval(env).ok());
        extents.try_fold(1i64, |all, extent| all.checked_mul(extent?))
    };
    let results = kernel.stores.iter().map(|store| count(store.axes().without(inner))).max().flatten();
    if results.is_none_or(|results| results > most) {
        return Env::new();
    }
    let fixed = sizes_to_fix_at(kernel, env);
    let mut about = Env::new();
    for symbol in kernel.symbols().into_iter().filter(|symbol| !fixed.contains(symbol)) {
        if let Some(size) = env.get(&symbol).and_then(|size| u64::try_from(size).ok()) {
            about.bind(symbol, i64::try_from(size.next_power_of_two()).unwrap_or(i64::MAX));
        }
    }
    about
}

/// Whether units for matrices may be asked.
fn reads_narrow_floats(kernel: &Kernel) -> bool {
    kernel.inputs.iter().any(|input| matches!(input.ty.dtype, DType::BF16 | DType::F16))
}

/// Products of no more results than this leave processors idle unless they are cut into small pieces.
const FEW_RESULTS: i64 = 1 << 20;

/// Rows of which there are no more than this leave processors idle unless many threads share each of them.
const MANY_ROWS: i64 = 256;

/// A product of no more rows is made for their number.
const FEW_ROWS: i64 = 32;

/// What is computed, and for which sizes, as a comment.
fn comment(kernel: &Kernel, options: &Options) -> String {
    let mut text = String::new();
    for line in kernel.to_string().lines() {
        writeln!(text, "// {line}").expect("writing to a string succeeds");
    }
    let sizes: Vec<String> = kernel
        .symbols()
        .iter()
        .filter_map(|symbol| options.fixed.get(symbol).map(|size| format!("{symbol} = {size}")))
        .collect();
    if !sizes.is_empty() {
        writeln!(text, "// for {}", sizes.join(", ")).expect("writing to a string succeeds");
    }
    text
}
