//! The model that is meant: opened, with what it takes and returns.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::Path;

use bytes::Bytes;
use fuseline::budget::Budget;
use fuseline::device::NamedTensors;
use fuseline::error::{Allowance, Error, Kind, Result};
use fuseline::gallery::{self, Entry};
use fuseline::graph::{Graph, Value};
use fuseline::tensor::{DType, Dim, Env, Literal, Shape, Symbol, TensorType};
use fuseline_frontend::onnx::import::{self, Form, Pins, Port, Signature};
use fuseline_frontend::{Offer, Sizes, Specialised, Tensors};
use indexmap::IndexSet;

/// An opened model.
#[derive(Debug)]
pub struct Model {
    /// as it was asked for
    pub name: String,
    /// where its graph comes from
    pub content: Content,
    /// what it takes and returns
    pub signature: Signature,
    /// of a graph in text form, how long that is; none where it did not come as text
    text_bytes: Option<u64>,
}

/// Where its graph comes from.
#[derive(Debug)]
pub enum Content {
    /// an ONNX file
    Onnx(Box<fuseline_frontend::Model>),
    /// a row of the gallery
    Gallery(&'static Entry, Box<Graph>),
    /// a graph in text form, or that of a kernel
    Text(Box<Graph>),
}

/// The primitives of a graph and its regions.
fn primitives(graph: &Graph) -> usize {
    let nodes = graph.nodes().iter();
    nodes.map(|node| 1 + node.prim().regions().into_iter().map(|region| primitives(region)).sum::<usize>()).sum()
}

impl Model {
    /// A graph of the gallery, with the element type that is wanted.
    pub fn gallery(name: &str, dtype: DType) -> Result<Model> {
        let entry =
            gallery::find(name).ok_or_else(|| Error::invalid(format!("the gallery has no graph called \"{name}\"")))?;
        let graph = entry.graph(dtype).map_err(|e| e.at(format!("gallery:{name}")))?;
        let signature = signature(&graph);
        let (name, content) = (format!("gallery:{name}"), Content::Gallery(entry, Box::new(graph)));
        Ok(Model { name, content, signature, text_bytes: None })
    }

    /// A network of the gallery, with its weights.
    pub fn network(network: &gallery::Network) -> Result<Model> {
        let name = format!("demo:{}", network.name);
        let graph = network.graph().map_err(|error| error.at(name.clone()))?;
        let signature = signature(&graph);
        Ok(Model { name, content: Content::Text(Box::new(graph)), signature, text_bytes: None })
    }

    /// Opens a file: an ONNX model, or a graph in text form where it is called `.ir`, or a kernel where it is called `.tile`.
    pub fn open(path: &Path) -> Result<Model> {
        let name = path.display().to_string();
        let read = match path.extension().and_then(|extension| extension.to_str()) {
            Some("ir") => Some(fuseline_frontend::read_graph(path)?),
            Some("tile") => Some(fuseline_frontend::read_kernel(path)?),
            _ => None,
        };
        if let Some(graph) = read {
            let signature = signature(&graph);
            let text_bytes = std::fs::metadata(path).ok().map(|data| data.len());
            return Ok(Model { name, content: Content::Text(Box::new(graph)), signature, text_bytes });
        }
        Ok(Model::of_onnx(name, fuseline_frontend::Model::open(path)?))
    }

    /// A model from the bytes of an ONNX file.
    pub fn from_bytes(bytes: Bytes, name: &str) -> Result<Model> {
        Ok(Model::of_onnx(name.to_string(), fuseline_frontend::Model::from_bytes(bytes, name)?))
    }

    /// The same model, of which no graph was asked for yet, imported within limits; a graph that is there must be within them.
    pub fn with_limits(self, limits: import::Limits) -> Result<Model> {
        let graph = match self.content {
            Content::Onnx(model) => {
                return Ok(Model { content: Content::Onnx(Box::new(model.with_limits(limits))), ..self });
            }
            Content::Gallery(_, ref graph) | Content::Text(ref graph) => graph,
        };
        match primitives(graph) > limits.nodes {
            true => {
                let message = format!("the graph has more than {} primitives", limits.nodes);
                Err(Error::over(Allowance::Nodes, message).at(self.name))
            }
            false => Ok(self),
        }
    }

    /// The bytes of its files; none where it is a stranger's in no way.
    pub fn bytes(&self) -> Option<u64> {
        match &self.content {
            Content::Onnx(model) => Some(model.file().bytes()),
            Content::Text(_) => self.text_bytes,
            Content::Gallery(..) => None,
        }
    }

    fn of_onnx(name: String, model: fuseline_frontend::Model) -> Model {
        Model { name, signature: model.signature().clone(), content: Content::Onnx(Box::new(model)), text_bytes: None }
    }

    /// Says of tensors among the outputs, by name, whether they hold texts.
    pub fn returned_texts(&self) -> impl Fn(&str) -> bool + '_ {
        let texts = self.signature.outputs.iter().filter(|port| port.is_text);
        let texts: HashMap<&str, &Port> = texts.map(|port| (port.name.as_str(), port)).collect();
        move |name| {
            // It is the whole, or an element: `x.3` of `x`.
            let wholes = [Some(name), name.rsplit_once('.').map(|(whole, _)| whole)];
            wholes.into_iter().flatten().any(|whole| texts.get(whole).is_some_and(|port| port.has(name)))
        }
    }

    /// Numbers for free sizes that have none yet, for those who need numbers to compare: the gallery's own, otherwise 1 for the
    /// leading axis of an input (which is the batch nearly always) and 128 for the others. In a text, which gives every parameter its axes, the
    /// only axis of a vector is none that leads, nor is what another parameter has inside.
    pub fn typical_sizes(&self, env: &Env) -> Vec<(String, i64)> {
        let shapes = || self.signature.inputs.iter().filter_map(|port| port.shape.as_ref().map(Shape::dims));
        let leading: HashSet<&Symbol> = shapes().filter_map(|dims| dims.first()?.as_symbol()).collect();
        let inside: HashSet<&Symbol> =
            shapes().flat_map(|dims| dims.iter().skip(1)).filter_map(Dim::as_symbol).collect();
        let of_rows: HashSet<&Symbol> =
            shapes().filter(|dims| dims.len() > 1).filter_map(|dims| dims[0].as_symbol()).collect();
        let leads = |name: &Symbol| match &self.content {
            Content::Text(_) => of_rows.contains(name) && !inside.contains(name),
            _ => leading.contains(name),
        };
        let size = |name: &str| match &self.content {
            Content::Gallery(entry, _) => entry.sizes.iter().find(|(n, _)| *n == name).map_or(1, |(_, size)| *size),
            Content::Onnx(_) | Content::Text(_) if leads(&Symbol::name(name)) => 1,
            Content::Onnx(_) | Content::Text(_) => 128,
        };
        let free = self.free_sizes().into_iter().filter(|name| env.get(&Symbol::name(name)).is_none());
        free.map(|name| (name.clone(), size(&name))).collect()
    }

    /// The sizes given, and usual ones for the others.
    pub fn with_typical_sizes(&self, env: &Env) -> Env {
        let mut all = env.clone();
        for (name, size) in self.typical_sizes(env) {
            all.bind(Symbol::name(&name), size);
        }
        all
    }

    /// Whether an input makes sense only above zero, such as a variance.
    pub fn is_positive(&self, input: &str) -> bool {
        matches!(&self.content, Content::Gallery(entry, _) if entry.positive.contains(&input))
    }

    /// The named sizes of the inputs, in their order.
    pub fn free_sizes(&self) -> Vec<String> {
        let mut names = IndexSet::new();
        let shared = self.signature.inputs.iter().filter(|port| !port.form.is_sequence());
        let shapes = shared.filter_map(|port| port.shape.as_ref());
        for dim in shapes.flat_map(|shape| shape.dims()) {
            dim.for_each_symbol(&mut |s| {
                if let Symbol::Name(name) = s {
                    names.insert(name.to_string());
                }
            });
        }
        names.into_iter().collect()
    }

    /// The graph: for every input where there is one, otherwise for the inputs given, or for the sizes given, where
    /// these are all sizes; sequences and optional inputs are one tensor then.
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
                // Nobody says how many tensors there are: one of each.
                let several = self.signature.inputs.iter().filter(|port| port.form != Form::Tensor);
                let parts = several.map(|port| (port.name.clone(), 1)).collect();
                let pins = Pins { parts, ..Pins::default() };
                if !pins.parts.is_empty()
                    && let Ok(graph) = model.graph_for(&pins, &model.limits().budget)
                {
                    return Ok(Cow::Owned(graph));
                }
                let sizes = self.signature.inputs.iter();
                let sizes = sizes.map(|port| Some((port.part_name(0), port.shape.as_ref()?.eval(env).ok()?)));
                let Some(sizes) = sizes.collect() else { return Err(error) };
                model.graph_for(&Pins { sizes, ..pins }, &model.limits().budget).map(Cow::Owned)
            }
            Err(error) => Err(error),
        }
    }

    /// The graph for those who only plan: where none can be built for every size, for [usual ones](Model::typical_sizes). With it, all
    /// sizes: those given, and usual ones for the others.
    pub fn graph_to_plan(&self, inputs: &Tensors, env: &Env) -> Result<(Cow<'_, Graph>, Env)> {
        let all = self.with_typical_sizes(env);
        let graph = match self.graph(inputs, env) {
            Err(error) if error.kind() == Kind::NeedsValue => self.graph(inputs, &all)?,
            other => other?,
        };
        Ok((self.fitted(graph, inputs, &all), all))
    }

    /// The graph that a run of these sizes has: another one where they break what this one wants of them (two sizes that must be
    /// equal, one of which is 1), and it can be made of them.
    pub fn fitted<'g>(&self, graph: Cow<'g, Graph>, inputs: &Tensors, env: &Env) -> Cow<'g, Graph> {
        let Content::Onnx(model) = &self.content else { return graph };
        if graph.check_constraints(env).is_ok() {
            return graph;
        }
        let ports = self.signature.inputs.iter().filter(|port| !inputs.keys().any(|name| port.has(name)));
        let sizes = ports.map(|port| Some((port.part_name(0), port.shape.as_ref()?.eval(env).ok()?)));
        let Some(mut sizes) = sizes.collect::<Option<Sizes>>() else { return graph };
        sizes.extend(inputs.sizes());
        let budget = &model.limits().budget;
        let other = model.specialise_for(&SizesOf { sizes, inputs }, budget, |graph, _| Ok(graph.clone()));
        other.map_or(graph, Cow::Owned)
    }

    /// Calls `use_graph` with a graph that holds for these inputs, and with the inputs that it still takes.
    pub fn with_graph<R>(
        &self,
        inputs: &Tensors,
        mut use_graph: impl FnMut(&Graph, NamedTensors) -> Result<R>,
    ) -> Result<R> {
        let named = |inputs: &Tensors| inputs.iter().map(|(name, x)| (name.as_str().into(), x.clone())).collect();
        self.specialise(inputs, |special| use_graph(special.graph, named(special.inputs)))
    }

    /// Calls `run` with a graph that holds for these inputs, with the inputs that it still takes, and with what it was made for.
    pub fn specialise<R>(&self, inputs: &Tensors, mut run: impl FnMut(Specialised<'_>) -> Result<R>) -> Result<R> {
        match &self.content {
            Content::Onnx(model) => model.specialise(inputs, run),
            Content::Gallery(_, graph) | Content::Text(graph) => {
                run(Specialised { graph, inputs, pins: &Pins::default() })
            }
        }
    }

    /// As [`Model::specialise`], for inputs of which nobody needs to hold the values; a graph that is made for them is made within a budget.
    pub fn specialise_for<R>(
        &self,
        inputs: &dyn Offer,
        budget: &Budget,
        mut run: impl FnMut(&Graph, &Pins) -> Result<R>,
    ) -> Result<R> {
        match &self.content {
            Content::Onnx(model) => model.specialise_for(inputs, budget, run),
            Content::Gallery(_, graph) | Content::Text(graph) => run(graph, &Pins::default()),
        }
    }
}

/// Inputs of which the sizes are known, and some values.
struct SizesOf<'t> {
    sizes: Sizes,
    inputs: &'t Tensors,
}

impl Offer for SizesOf<'_> {
    fn sizes(&self) -> Sizes {
        self.sizes.clone()
    }

    fn value(&self, name: &str) -> Result<Literal> {
        let unknown = || Error::needs_value(format!("the value of \"{name}\" must be known"), vec![name.to_owned()]);
        self.inputs.get(name).cloned().ok_or_else(unknown)
    }
}

/// What a graph takes and returns.
pub fn signature(graph: &Graph) -> Signature {
    let port = |name: &str, value: Value| {
        let TensorType { dtype, shape } = graph.ty(value).clone();
        Port { name: name.to_string(), dtype, shape: Some(shape), is_text: false, form: Form::Tensor }
    };
    Signature {
        inputs: graph.inputs().iter().map(|v| port(graph.input_name(*v), *v)).collect(),
        defaults: Vec::new(),
        outputs: graph.outputs().iter().map(|o| port(&o.name, o.value)).collect(),
    }
}

/// The type of a port in words, with the sizes that are known.
pub fn type_text(port: &Port, env: &Env) -> String {
    port.type_text(|dim| env.apply(dim))
}

#[cfg(test)]
mod tests {
    use fuseline::graph::Builder;

    use super::*;

    /// The usual sizes of a graph with these inputs.
    fn sizes_of(inputs: &[&[&str]]) -> Vec<(String, i64)> {
        let b = Builder::new("inputs");
        for (k, dims) in inputs.iter().enumerate() {
            let shape = Shape::new(dims.iter().map(|name| Dim::named(name)));
            b.output(&format!("y{k}"), b.input(&format!("x{k}"), DType::F32, shape));
        }
        let graph = b.finish().unwrap();
        let (signature, content) = (signature(&graph), Content::Text(Box::new(graph)));
        Model { name: "inputs".into(), content, signature, text_bytes: None }.typical_sizes(&Env::new())
    }

    #[test]
    fn what_leads_vectors_alone_is_no_batch() {
        assert_eq!(sizes_of(&[&["rows", "columns"], &["columns"]]), [("rows".into(), 1), ("columns".into(), 128)]);
        assert_eq!(sizes_of(&[&["n"]]), [("n".into(), 128)]);
        assert_eq!(sizes_of(&[&["m", "k"], &["k", "n"]]), [("m".into(), 1), ("k".into(), 128), ("n".into(), 128)]);
    }

    #[test]
    fn the_usual_sizes_of_very_many_inputs_are_found_in_no_time() {
        let b = Builder::new("inputs");
        for k in 0..40_000 {
            let shape = Shape::new([Dim::named(&format!("batch{k}")), Dim::named(&format!("length{k}"))]);
            b.output(&format!("y{k}"), b.input(&format!("x{k}"), DType::F32, shape));
        }
        let graph = b.finish().unwrap();
        let signature = signature(&graph);
        let content = Content::Text(Box::new(graph));
        let model = Model { name: "inputs".into(), content, signature, text_bytes: None };
        let start = std::time::Instant::now();
        let sizes = model.typical_sizes(&Env::new());
        assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
        assert_eq!(sizes.len(), 80_000);
        assert_eq!((sizes[2].clone(), sizes[3].clone()), (("batch1".into(), 1), ("length1".into(), 128)));
    }
}
