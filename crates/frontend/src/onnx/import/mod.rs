//! From a decoded model to a graph of primitives.
//!
//! Comes in: a [`ModelFile`] and [`Pins`]. Goes out: a [`Graph`], or one error: everything that is not supported is
//! collected and told at once; what is invalid is told where it is found. Never here: the meaning of operators, which
//! table 3 of the core holds; this folder knows names, scopes, functions and control flow.

mod attributes;
mod control;
mod datum;
mod flex_attention;
mod gradient;
mod limits;
mod node;
mod order;
mod scan;
mod scope;
mod sequence;
mod signature;
mod structural;
mod text;

pub use limits::Limits;
pub use signature::{Form, Port, Signature};
pub use structural::{STRUCTURAL, Structural};

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use fuseline::error::{Allowance, Context, Error, Kind, Result};
use fuseline::graph::{Builder, Graph, Tensor};
use fuseline::passes::keep_written;
use fuseline::tensor::{DType, Dim, Literal, Shape};
use indexmap::{IndexMap, IndexSet};

use self::datum::{Datum, Operand, Sequence};
use self::scope::Scope;
use self::signature::{constants, part_name};
use super::ModelFile;
use super::data_type::STRING;
use super::schema::{FunctionProto, GraphProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto};

/// What is known of the inputs before run time: a graph made with pins holds for these values and sizes only.
#[derive(Clone, Debug, Default)]
pub struct Pins {
    /// inputs that become constants
    pub values: IndexMap<String, Literal>,
    /// inputs whose sizes become numbers
    pub sizes: IndexMap<String, Vec<usize>>,
    /// of inputs that are sequences or may be left out: how many tensors are given
    pub parts: IndexMap<String, usize>,
}

/// The graph of a model.
pub fn import(file: &ModelFile, pins: &Pins, limits: &Limits) -> Result<Graph> {
    let graph = file.model.graph.as_ref();
    let graph = graph.ok_or_else(|| Error::invalid("the model has no graph").at(file.name()))?;
    Importer::new(file, pins, limits).and_then(|importer| importer.import(graph)).at(|| file.name())
}

/// Bytes of all tensors that are stored by their elements which are not zero: a file says in a few bytes that they are large.
const MOST_DENSE: usize = 1 << 28;

/// Lines of the list of what is not supported.
const MAX_GAPS: usize = 50;

struct Importer<'m> {
    file: &'m ModelFile,
    pins: &'m Pins,
    limits: Limits,
    opsets: HashMap<String, u32>,
    functions: HashMap<(&'m str, &'m str, &'m str), &'m FunctionProto>,
    trouble: RefCell<Trouble>,
    imported: Cell<usize>,
    /// how many elements all sequences have together
    elements: Cell<usize>,
    /// how many bytes tensors have that are stored by their elements which are not zero
    dense: Cell<usize>,
}

/// What went wrong so far without ending the import.
#[derive(Default)]
struct Trouble {
    gaps: IndexSet<String>,
    needs: Option<Error>,
    inputs: IndexSet<String>,
}

impl<'m> Importer<'m> {
    fn new(file: &'m ModelFile, pins: &'m Pins, limits: &Limits) -> Result<Importer<'m>> {
        let limits = Limits { budget: limits.budget.started(), ..limits.clone() };
        let mut functions = HashMap::default();
        for function in &file.model.functions {
            let key = (function.domain.as_str(), function.name.as_str(), function.overload.as_str());
            if functions.insert(key, function).is_some() {
                return Err(Error::invalid(format!("the function {}.{} is defined twice", key.0, key.1)));
            }
        }
        let opsets = opset_versions(&file.model.opset_import)?;
        Ok(Importer {
            file,
            pins,
            limits,
            opsets,
            functions,
            trouble: RefCell::default(),
            imported: Cell::default(),
            elements: Cell::default(),
            dense: Cell::default(),
        })
    }

    fn import(&self, graph: &'m GraphProto) -> Result<Graph> {
        let builder = Builder::new(graph.name.clone());
        match self.import_into(&builder, graph) {
            Err(error) if builder.supposes() && self.pins.sizes.is_empty() => return Err(error.of_sizes()),
            done => done?,
        }
        keep_written(builder.finish()?, &self.limits.budget)
    }

    fn import_into(&self, builder: &Builder, graph: &'m GraphProto) -> Result<()> {
        let scope = Scope::root(builder);
        self.define_initializers(graph, &scope)?;
        let constants: HashMap<&str, Option<&TensorProto>> = constants(graph).collect();
        for input in &graph.input {
            self.limits.check_name(&input.name)?;
            // Older models list their constants as inputs too.
            if let Some(constant) = constants.get(input.name.as_str()) {
                constant.map_or(Ok(()), |constant| signature::check_constant(input, constant))?;
                continue;
            }
            let value = self.input(builder, input).at(|| format!("input \"{}\"", input.name))?;
            scope.define(&input.name, value)?;
        }
        self.import_nodes(graph, &scope, &self.opsets, 0)?;
        let mut outputs = IndexSet::new();
        for output in &graph.output {
            let place = || format!("output \"{}\"", output.name);
            let value = scope.lookup(&output.name).at(place)?;
            signature::check_output(output, &value).at(place)?;
            for (name, tensor) in value.named(&output.name) {
                builder.output(&name, *tensor);
                if let Some(twice) = outputs.replace(name) {
                    return Err(Error::invalid(format!("two outputs are called \"{twice}\"")));
                }
            }
        }
        self.settle()
    }

    /// The nodes of a graph in an order in which every value is made before it is read.
    fn import_nodes(
        &self,
        graph: &'m GraphProto,
        scope: &Scope<'_>,
        opsets: &HashMap<String, u32>,
        depth: usize,
    ) -> Result<()> {
        let most = self.limits.nesting;
        if depth > most {
            return Err(Error::over(
                Allowance::Nesting,
                format!("functions or regions are nested deeper than {most} levels"),
            ));
        }
        for id in order::evaluation_order(&graph.node)? {
            self.import_node(&graph.node[id], id, scope, opsets, depth)?;
        }
        Ok(())
    }

    /// Constants of a graph.
    fn define_initializers(&self, graph: &GraphProto, scope: &Scope<'_>) -> Result<()> {
        for sparse in &graph.sparse_initializer {
            let name = sparse.values.as_ref().map_or("", |v| v.name.as_str());
            self.limits.check_name(name)?;
            let literal = match self.pins.values.get(name) {
                Some(pinned) => Ok(pinned.clone()),
                None => self.file.dense(sparse, MOST_DENSE - self.dense.get()),
            };
            let value = match literal {
                Ok(literal) => {
                    self.dense.set(self.dense.get() + literal.byte_count());
                    scope.builder().constant(literal)
                }
                Err(error) => self.tolerate(error, scope.builder())?,
            };
            scope.define(name, value)?;
        }
        for tensor in &graph.initializer {
            self.limits.check_name(&tensor.name)?;
            let value = match self.pins.values.get(&tensor.name) {
                Some(pinned) => Ok(pinned.clone()),
                None => self.file.literal(tensor),
            };
            let value = match value {
                Ok(literal) if tensor.data_type == STRING => {
                    let width = literal.sizes().last().copied().unwrap_or(0);
                    self.limits.check_text(width).at(|| format!("\"{}\"", tensor.name))?;
                    check_text(literal.dtype(), literal.sizes()).at(|| format!("\"{}\"", tensor.name))?;
                    Datum::Text(scope.builder().constant(literal))
                }
                Ok(literal) => Datum::Tensor(scope.builder().constant(literal)),
                Err(error) => self.tolerate(error, scope.builder())?.into(),
            };
            scope.define(&tensor.name, value)?;
        }
        Ok(())
    }

    fn input<'b>(&self, builder: &'b Builder, input: &ValueInfoProto) -> Result<Operand<'b>> {
        let port = match signature::port(input) {
            Ok(port) => port,
            Err(error) => return Ok(self.tolerate(error, builder)?.into()),
        };
        if port.form == Form::Tensor {
            return Ok(port.kind().wrap(self.input_tensor(builder, &port.name, &port)?));
        }
        let Some(parts) = self.pins.parts.get(&port.name) else {
            let name = &port.name;
            let unknown = match port.form.is_sequence() {
                true => format!("how many elements the sequence \"{name}\" has must be known before run time"),
                false => format!("whether the optional input \"{name}\" is given must be known before run time"),
            };
            let error = Error::needs_value(unknown, Vec::new());
            return Ok(self.tolerate(error, builder)?.into());
        };
        match (port.form.is_sequence(), *parts) {
            (_, 0) if port.form.is_optional() => Ok(Datum::Nothing),
            (true, parts) => {
                let elements = (0..parts).map(|k| self.input_tensor(builder, &part_name(&port.name, k), &port));
                Ok(Datum::Sequence(Sequence { kind: port.kind(), elements: elements.collect::<Result<_>>()? }))
            }
            (false, _) => Ok(port.kind().wrap(self.input_tensor(builder, &port.name, &port)?)),
        }
    }

    /// A tensor of an input.
    fn input_tensor<'b>(&self, builder: &'b Builder, name: &str, port: &Port) -> Result<Tensor<'b>> {
        if let Some(pinned) = self.pins.values.get(name) {
            if port.is_text {
                check_text(pinned.dtype(), pinned.sizes())?;
            }
            return Ok(builder.constant(pinned.clone()));
        }
        if let Some(sizes) = self.pins.sizes.get(name).filter(|_| port.is_text) {
            check_text(DType::U8, sizes)?;
        }
        let shape: Shape = match (self.pins.sizes.get(name), &port.shape) {
            (Some(sizes), _) => sizes.iter().copied().collect(),
            // The elements of a sequence share neither names nor sizes.
            (None, Some(shape)) if port.form.is_sequence() => {
                let dims = shape.dims().iter().enumerate();
                dims.map(|(axis, dim)| if dim.as_int().is_some() { dim.clone() } else { open_dim(name, axis) })
                    .collect()
            }
            (None, Some(shape)) => shape.clone(),
            (None, None) => {
                let error = Error::needs_value("the number of axes of an input is not declared", Vec::new());
                return self.tolerate(error, builder);
            }
        };
        Ok(builder.input(name, port.dtype, shape))
    }

    /// Keeps what can be told later together with more, and goes on with a poisoned value; other errors end the import.
    fn tolerate<'b>(&self, error: Error, builder: &'b Builder) -> Result<Tensor<'b>> {
        let mut trouble = self.trouble.borrow_mut();
        match error.kind() {
            Kind::Unsupported => {
                let place = error.path().join(": ");
                let separator = if place.is_empty() { "" } else { ": " };
                trouble.gaps.insert(format!("{place}{separator}{}", error.message()));
            }
            Kind::NeedsValue => {
                trouble.inputs.extend(error.needs().iter().cloned());
                trouble.needs.get_or_insert(error);
            }
            _ => return Err(error),
        }
        Ok(builder.poison())
    }

    /// The one error that lists all that is not supported, or that names every input whose value is needed.
    fn settle(&self) -> Result<()> {
        let trouble = self.trouble.borrow();
        if !trouble.gaps.is_empty() {
            let mut lines: Vec<String> = trouble.gaps.iter().take(MAX_GAPS).map(|gap| format!("\n  {gap}")).collect();
            if trouble.gaps.len() > MAX_GAPS {
                lines.push(format!("\n  … and {} more", trouble.gaps.len() - MAX_GAPS));
            }
            let count = match trouble.gaps.len() {
                1 => "one thing that is".to_string(),
                n => format!("{n} things that are"),
            };
            return Err(Error::unsupported(format!("the model uses {count} not there yet:{}", lines.concat())));
        }
        match &trouble.needs {
            Some(first) => {
                let needed = Error::needs_value(first.message(), trouble.inputs.iter().cloned().collect());
                Err(first.path().iter().rev().fold(needed, |error, place| error.at(place)))
            }
            None => Ok(()),
        }
    }
}

/// The newest versions of operator sets that our tables were read from: what an operator of a newer one means, nobody knows here.
pub const NEWEST: [(&str, u32); 4] =
    [("", 28), ("ai.onnx.ml", 5), ("ai.onnx.preview", 1), ("ai.onnx.preview.training", 1)];

fn opset_versions(imports: &[OperatorSetIdProto]) -> Result<HashMap<String, u32>> {
    let mut versions = HashMap::default();
    for import in imports {
        let version = u32::try_from(import.version).ok().filter(|v| *v > 0);
        let version = version.ok_or_else(|| {
            Error::invalid(format!("operator set \"{}\" has version {}", import.domain, import.version))
        })?;
        let domain = standard_domain(&import.domain);
        if let Some((_, newest)) = NEWEST.iter().find(|(known, newest)| *known == domain && version > *newest) {
            let name = if domain.is_empty() { "ai.onnx" } else { domain };
            return Err(Error::unsupported(format!(
                "version {version} of the operator set {name} (the newest that is known is {newest}: operators of a newer one may mean something else; onnx.version_converter makes older ones of models)"
            )));
        }
        versions.insert(domain.to_string(), version);
    }
    Ok(versions)
}

/// The standard operators have two spellings of their domain.
fn standard_domain(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

/// How a node is called in messages: its name, or the name of what it makes where it has none.
fn node_name(node: &NodeProto, id: usize) -> String {
    if !node.name.is_empty() {
        return node.name.clone();
    }
    let output = node.output.iter().find(|o| !o.is_empty());
    output.map_or_else(|| format!("#{id}"), Clone::clone)
}

/// The size of an axis that a model leaves open.
fn open_dim(input: &str, axis: usize) -> Dim {
    Dim::named(&format!("{input}_{axis}"))
}

/// Whether what is given for strings can be some.
fn check_text(dtype: DType, sizes: &[usize]) -> Result<()> {
    if dtype == DType::U8 && !sizes.is_empty() {
        return Ok(());
    }
    Err(Error::invalid(format!("{dtype}{sizes:?} where strings are wanted, which are u8 with one axis more")))
}

/// A scalar truth value.
fn truth(builder: &Builder, holds: bool) -> Tensor<'_> {
    builder.int(DType::Bool, i64::from(holds))
}
