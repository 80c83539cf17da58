//! The model that is meant: opened, with what it takes and returns.

use std::borrow::Cow;

use fuseline::device::NamedTensors;
use fuseline::error::{Error, Kind, Result};
use fuseline::gallery::{self, Entry};
use fuseline::graph::{Graph, Value};
use fuseline::tensor::{DType, Dim, Env, Literal, Symbol, TensorType};
use fuseline_frontend::Tensors;
use fuseline_frontend::onnx::import::{Pins, Port, Signature};
use indexmap::IndexSet;

use crate::arguments::{ModelName, SizeBinding};
use crate::device::Runner;
use crate::failure::{Failure, Outcome};

/// An opened model.
#[derive(Debug)]
pub struct Model {
    pub name: String,
    pub content: Content,
    pub signature: Signature,
}

/// Where its graph comes from.
#[derive(Debug)]
pub enum Content {
    Onnx(Box<fuseline_frontend::Model>),
    Gallery(&'static Entry, Box<Graph>),
    Text(Box<Graph>),
}

impl Model {
    /// Opens a model; an element type may be chosen for gallery graphs only.
    pub fn open(name: &ModelName, dtype: Option<DType>) -> Outcome<Model> {
        match name {
            ModelName::Gallery(name) => {
                let entry = gallery::find(name).ok_or_else(|| {
                    let names: Vec<&str> = gallery::all().map(|entry| entry.name).collect();
                    let error = Error::invalid(format!("the gallery has no graph called \"{name}\""));
                    Failure::with_help(error, format!("take one of {}", names.join(", ")))
                })?;
                let graph = entry.graph(dtype.unwrap_or(DType::F32)).map_err(|e| e.at(format!("gallery:{name}")))?;
                let signature = signature(&graph);
                let content = Content::Gallery(entry, Box::new(graph));
                Ok(Model { name: format!("gallery:{name}"), content, signature })
            }
            ModelName::File(path) => {
                if dtype.is_some() {
                    let error = Error::invalid("--dtype chooses the type of gallery graphs; a file has its own types");
                    return Err(Failure::with_help(error, "leave --dtype out"));
                }
                if path.extension().is_some_and(|extension| extension == "ir") {
                    let graph = fuseline_frontend::read_graph(path)?;
                    let signature = signature(&graph);
                    let content = Content::Text(Box::new(graph));
                    return Ok(Model { name: path.display().to_string(), content, signature });
                }
                let model = fuseline_frontend::Model::open(path)?;
                let signature = model.signature().clone();
                Ok(Model { name: path.display().to_string(), content: Content::Onnx(Box::new(model)), signature })
            }
        }
    }

    /// The size that is taken where none is given.
    pub fn default_size(&self, name: &str) -> i64 {
        match &self.content {
            Content::Onnx(_) | Content::Text(_) => 1,
            Content::Gallery(entry, _) => entry.sizes.iter().find(|(n, _)| *n == name).map_or(1, |(_, size)| *size),
        }
    }

    /// Numbers for free sizes that have none yet, for those who need numbers to compare: the gallery's own, otherwise 1 for the
    /// leading axis of an input (which is the batch nearly always) and 128 for the others.
    pub fn typical_sizes(&self, env: &Env) -> Vec<(String, i64)> {
        let leading = |name: &str| {
            let shapes = self.signature.inputs.iter().filter_map(|port| port.shape.as_ref());
            let mut first = shapes.filter_map(|shape| shape.dims().first());
            first.any(|dim| dim.as_symbol() == Some(&Symbol::name(name)))
        };
        let size = |name: &str| match &self.content {
            Content::Gallery(..) => self.default_size(name),
            Content::Onnx(_) | Content::Text(_) if leading(name) => 1,
            Content::Onnx(_) | Content::Text(_) => 128,
        };
        let free = self.free_sizes().into_iter().filter(|name| env.get(&Symbol::name(name)).is_none());
        free.map(|name| (name.clone(), size(&name))).collect()
    }

    /// Whether an input makes sense only above zero, such as a variance.
    pub fn is_positive(&self, input: &str) -> bool {
        matches!(&self.content, Content::Gallery(entry, _) if entry.positive.contains(&input))
    }

    /// The named sizes of the inputs, in their order.
    pub fn free_sizes(&self) -> Vec<String> {
        let mut names = IndexSet::new();
        let shapes = self.signature.inputs.iter().filter_map(|port| port.shape.as_ref());
        for dim in shapes.flat_map(|shape| shape.dims()) {
            dim.for_each_symbol(&mut |s| {
                if let Symbol::Name(name) = s {
                    names.insert(name.to_string());
                }
            });
        }
        names.into_iter().collect()
    }

    /// The sizes that the user gives; each must be one that the model leaves free, and be given once.
    pub fn bind_sizes(&self, given: &[SizeBinding]) -> Outcome<Env> {
        let free = self.free_sizes();
        let mut env = Env::new();
        for SizeBinding { name, size } in given {
            if !free.contains(name) {
                let error = Error::invalid(format!("the model has no free size called \"{name}\"")).at("--sizes");
                let help = match free.as_slice() {
                    [] => "all its sizes are fixed: leave --sizes out".to_string(),
                    free => format!("its free sizes are {}", free.join(", ")),
                };
                return Err(Failure::with_help(error, help));
            }
            if env.bind(Symbol::name(name), *size).is_some_and(|before| before != *size) {
                return Err(Error::invalid(format!("the size {name} is given twice, differently"))
                    .at("--sizes")
                    .into());
            }
        }
        Ok(env)
    }

    /// The graph: for every input where there is one, otherwise for the inputs given, or for the sizes given, where
    /// these are all sizes.
    pub fn graph(&self, inputs: &Tensors, env: &Env) -> Result<Cow<'_, Graph>> {
        let model = match &self.content {
            Content::Gallery(_, graph) | Content::Text(graph) => return Ok(Cow::Borrowed(graph)),
            Content::Onnx(model) => model,
        };
        match model.graph() {
            Ok(graph) => Ok(Cow::Borrowed(graph)),
            Err(error) if error.kind() == Kind::NeedsValue && !inputs.is_empty() => {
                model.specialise(inputs, |specialised| Ok(specialised.graph.clone())).map(Cow::Owned)
            }
            Err(error) if error.kind() == Kind::NeedsValue => {
                let sizes = self.signature.inputs.iter();
                let sizes = sizes.map(|port| Some((port.name.clone(), port.shape.as_ref()?.eval(env).ok()?)));
                let Some(sizes) = sizes.collect() else { return Err(error) };
                model.graph_for(&Pins { sizes, ..Pins::default() }).map(Cow::Owned)
            }
            Err(error) => Err(error),
        }
    }

    /// Calls `use_graph` with a graph that holds for these inputs, and with the inputs that it still takes.
    pub fn with_graph<R>(
        &self,
        inputs: &Tensors,
        mut use_graph: impl FnMut(&Graph, NamedTensors) -> Result<R>,
    ) -> Result<R> {
        let named = |inputs: &Tensors| inputs.iter().map(|(name, x)| (name.as_str().into(), x.clone())).collect();
        match &self.content {
            Content::Onnx(model) => model.specialise(inputs, |s| use_graph(s.graph, named(s.inputs))),
            Content::Gallery(_, graph) | Content::Text(graph) => use_graph(graph, named(inputs)),
        }
    }

    /// The outputs by name, in the model's order.
    pub fn evaluate(&self, inputs: &Tensors, run: &Runner) -> Result<Vec<(String, Literal)>> {
        self.with_graph(inputs, |graph, inputs| {
            let values = run(graph, inputs)?;
            Ok(graph.outputs().iter().map(|o| o.name.to_string()).zip(values).collect())
        })
    }
}

/// What a graph takes and returns.
pub fn signature(graph: &Graph) -> Signature {
    let port = |name: &str, value: Value| {
        let TensorType { dtype, shape } = graph.ty(value).clone();
        Port { name: name.to_string(), dtype, shape: Some(shape) }
    };
    Signature {
        inputs: graph.inputs().iter().map(|v| port(graph.input_name(*v), *v)).collect(),
        defaults: Vec::new(),
        outputs: graph.outputs().iter().map(|o| port(&o.name, o.value)).collect(),
    }
}

/// The type of a port in words, with the sizes that are known.
pub fn type_text(port: &Port, env: &Env) -> String {
    match &port.shape {
        Some(shape) => {
            let dims: Vec<Dim> = shape.dims().iter().map(|dim| env.apply(dim)).collect();
            TensorType::new(port.dtype, dims).to_string()
        }
        None => format!("{}[…]", port.dtype),
    }
}
