//! A model file ready to be run with any inputs.

use std::collections::HashSet;
use std::path::Path;
use std::sync::OnceLock;

use bytes::Bytes;
use fuseline::budget::Budget;
use fuseline::error::{Error, Kind, Result};
use fuseline::graph::Graph;
use fuseline::tensor::{Env, Literal};
use indexmap::IndexMap;

use crate::onnx::ModelFile;
use crate::onnx::import::{Limits, Pins, Signature, import};

/// Tensors by the names of a model's inputs or outputs.
pub type Tensors = IndexMap<String, Literal>;

/// Sizes of tensors by their names.
pub type Sizes = IndexMap<String, Vec<usize>>;

/// Inputs as far as a graph may have to be made for them: sizes always, values of some where structure hangs on them.
pub trait Offer {
    /// the sizes of all
    fn sizes(&self) -> Sizes;
    /// the value of one of them, which stays in the graph
    fn value(&self, name: &str) -> Result<Literal>;
}

impl Offer for Tensors {
    fn sizes(&self) -> Sizes {
        self.iter().map(|(name, x)| (name.clone(), x.sizes().to_vec())).collect()
    }

    fn value(&self, name: &str) -> Result<Literal> {
        self.get(name).cloned().ok_or_else(|| Error::bug(format!("there is no input \"{name}\"")))
    }
}

/// A model, imported for all inputs where that is possible, and for the inputs at hand where its structure hangs on them.
#[derive(Debug)]
pub struct Model {
    file: ModelFile,
    signature: Signature,
    general: OnceLock<Result<Graph>>,
    limits: Limits,
}

/// A graph and what is left to be given when it runs.
#[derive(Debug)]
pub struct Specialised<'a> {
    /// the graph, valid for every input or for the pinned ones only
    pub graph: &'a Graph,
    /// the inputs that it still takes
    pub inputs: &'a Tensors,
    /// what the graph was made for; nothing where it holds for every input
    pub pins: &'a Pins,
}

impl Model {
    /// Opens an ONNX file.
    pub fn open(path: impl AsRef<Path>) -> Result<Model> {
        Model::new(ModelFile::open(path)?)
    }

    /// A model from the bytes of an ONNX file.
    pub fn from_bytes(bytes: impl Into<Bytes>, name: &str) -> Result<Model> {
        Model::new(ModelFile::from_bytes(bytes, name)?)
    }

    fn new(file: ModelFile) -> Result<Model> {
        let graph = file.model.graph.as_ref();
        let graph = graph.ok_or_else(|| Error::invalid("the model has no graph").at(file.name()))?;
        let signature = Signature::of(graph).map_err(|e| e.at(file.name()))?;
        Ok(Model { signature, file, general: OnceLock::new(), limits: Limits::default() })
    }

    /// The same model, of which no graph was asked for yet, imported within other limits.
    pub fn with_limits(self, limits: Limits) -> Model {
        Model { limits, ..self }
    }

    /// What it takes and returns.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// The decoded file.
    pub fn file(&self) -> &ModelFile {
        &self.file
    }

    /// The graph for every input. An error of the kind [`Kind::NeedsValue`] says that there is none, and why.
    pub fn graph(&self) -> Result<&Graph> {
        self.general.get_or_init(|| import(&self.file, &Pins::default(), &self.limits)).as_ref().map_err(Clone::clone)
    }

    /// What importing it may use.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The graph for given sizes and values of some inputs, made within a budget.
    pub fn graph_for(&self, pins: &Pins, budget: &Budget) -> Result<Graph> {
        import(&self.file, pins, &Limits { budget: budget.clone(), ..self.limits.clone() })
    }

    /// Calls `run` with a graph that holds for these inputs: the general one, or where structure hangs on values or
    /// sizes, one made for them.
    ///
    /// A value given for an input that has a default takes the default's place.
    pub fn specialise<R>(&self, inputs: &Tensors, mut run: impl FnMut(Specialised<'_>) -> Result<R>) -> Result<R> {
        self.specialise_for(inputs, &self.limits.budget, |graph, pins| {
            let left = inputs.iter().filter(|(name, _)| !pins.values.contains_key(*name));
            let left: Tensors = left.map(|(name, x)| (name.clone(), x.clone())).collect();
            run(Specialised { graph, inputs: &left, pins })
        })
    }

    /// As [`Model::specialise`], for inputs of which nobody needs to hold the values; within a time of its own, but the general
    /// graph is made within that of all limits. The inputs that a graph still takes are those that are not among the pinned values.
    pub fn specialise_for<R>(
        &self,
        inputs: &dyn Offer,
        budget: &Budget,
        mut run: impl FnMut(&Graph, &Pins) -> Result<R>,
    ) -> Result<R> {
        let sizes = inputs.sizes();
        // What the sizes break is known before anything is made of a graph.
        let mut run = |graph: &Graph, pins: &Pins| check_sizes(graph, &sizes).and_then(|()| run(graph, pins));
        let graph_for = |pins: &Pins| self.graph_for(pins, budget);
        let value = |name: &String| Ok((name.clone(), inputs.value(name)?));
        let parts = self.signature.parts(sizes.keys().map(String::as_str)).map_err(|e| e.at(self.file.name()))?;
        let defaults: HashSet<&str> = self.signature.defaults.iter().map(|port| port.name.as_str()).collect();
        let (replaced, free): (Vec<&String>, Vec<&String>) =
            sizes.keys().partition(|name| defaults.contains(name.as_str()));
        let values = replaced.into_iter().map(value).collect::<Result<_>>()?;
        let mut pins = Pins { values, parts, ..Pins::default() };
        let first = if pins.values.is_empty() && pins.parts.is_empty() {
            self.graph().and_then(|graph| run(graph, &pins))
        } else {
            graph_for(&pins).and_then(|graph| run(&graph, &pins))
        };
        let mut reason = match first {
            Err(error) if error.kind() == Kind::NeedsValue => error,
            done => return done,
        };
        loop {
            let known = |name: &&String| {
                sizes.contains_key(*name) && !defaults.contains(name.as_str()) && !pins.values.contains_key(*name)
            };
            let fresh: Vec<&String> = reason.needs().iter().filter(known).collect();
            if !fresh.is_empty() {
                let fresh: Vec<_> = fresh.into_iter().map(value).collect::<Result<_>>()?;
                pins.values.extend(fresh);
            } else if pins.sizes.is_empty() && !free.is_empty() {
                pins.sizes = free.iter().map(|name| ((*name).clone(), sizes[*name].clone())).collect();
            } else if free.iter().any(|name| !pins.values.contains_key(*name)) {
                // Control flow inside regions may hide which input it hangs on.
                let rest = free.iter().copied().filter(|name| !pins.values.contains_key(*name));
                let rest: Vec<_> = rest.map(value).collect::<Result<_>>()?;
                pins.values.extend(rest);
            } else {
                return Err(reason);
            }
            match graph_for(&pins).and_then(|graph| run(&graph, &pins)) {
                Err(error) if error.kind() == Kind::NeedsValue => reason = error,
                done => return done,
            }
        }
    }
}

/// Refuses sizes that break what a graph wants of them; what fits no input of it is for those who take the inputs.
fn check_sizes(graph: &Graph, sizes: &Sizes) -> Result<()> {
    let mut env = Env::new();
    for value in graph.inputs() {
        let dims = graph.ty(*value).shape.dims();
        let given = sizes.get(graph.input_name(*value).as_ref()).filter(|given| given.len() == dims.len());
        let Some(given) = given else { return Ok(()) };
        for (dim, size) in dims.iter().zip(given) {
            let size = i64::try_from(*size).unwrap_or(i64::MAX);
            if let Some(symbol) = dim.as_symbol().filter(|symbol| env.get(symbol).is_none()) {
                env.bind(symbol.clone(), size);
            }
            if dim.eval(&env).is_ok_and(|known| known != size) {
                return Ok(());
            }
        }
    }
    graph.check_constraints(&env)
}
