//! A model file ready to be run with any inputs.

use std::collections::HashSet;
use std::path::Path;
use std::sync::OnceLock;

use bytes::Bytes;
use fuseline::budget::Budget;
use fuseline::error::{Error, Kind, Result};
use fuseline::graph::Graph;
use fuseline::tensor::Literal;
use indexmap::IndexMap;

use crate::onnx::ModelFile;
use crate::onnx::import::{Limits, Pins, Signature, import};

/// Tensors by the names of a model's inputs or outputs.
pub type Tensors = IndexMap<String, Literal>;

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
    pub fn specialise<R>(&self, inputs: &Tensors, run: impl FnMut(Specialised<'_>) -> Result<R>) -> Result<R> {
        self.specialise_within(inputs, &self.limits.budget, run)
    }

    /// As [`Model::specialise`], within a time of its own; the general graph is made within that of all limits.
    pub fn specialise_within<R>(
        &self,
        inputs: &Tensors,
        budget: &Budget,
        mut run: impl FnMut(Specialised<'_>) -> Result<R>,
    ) -> Result<R> {
        let graph_for = |pins: &Pins| self.graph_for(pins, budget);
        let defaults: HashSet<&str> = self.signature.defaults.iter().map(|port| port.name.as_str()).collect();
        let is_default = |name: &str| defaults.contains(name);
        let (defaults, inputs): (Tensors, Tensors) =
            inputs.iter().map(|(name, x)| (name.clone(), x.clone())).partition(|(name, _)| is_default(name));
        let inputs = &inputs;
        let parts = self.signature.parts(inputs.keys().map(String::as_str)).map_err(|e| e.at(self.file.name()))?;
        let mut pins = Pins { values: defaults, parts, ..Pins::default() };
        let first = if pins.values.is_empty() && pins.parts.is_empty() {
            self.graph().and_then(|graph| run(Specialised { graph, inputs, pins: &pins }))
        } else {
            graph_for(&pins).and_then(|graph| run(Specialised { graph: &graph, inputs, pins: &pins }))
        };
        let mut reason = match first {
            Err(error) if error.kind() == Kind::NeedsValue => error,
            done => return done,
        };
        loop {
            let known = |name: &&String| inputs.contains_key(*name) && !pins.values.contains_key(*name);
            let fresh: Vec<&String> = reason.needs().iter().filter(known).collect();
            if !fresh.is_empty() {
                let fresh: Vec<_> = fresh.into_iter().map(|name| (name.clone(), inputs[name].clone())).collect();
                pins.values.extend(fresh);
            } else if pins.sizes.is_empty() && !inputs.is_empty() {
                pins.sizes = inputs.iter().map(|(name, x)| (name.clone(), x.sizes().to_vec())).collect();
            } else if inputs.keys().any(|name| !pins.values.contains_key(name)) {
                // Control flow inside regions may hide which input it hangs on.
                pins.values.extend(inputs.clone());
            } else {
                return Err(reason);
            }
            let left: Tensors = inputs
                .iter()
                .filter(|(n, _)| !pins.values.contains_key(*n))
                .map(|(n, x)| (n.clone(), x.clone()))
                .collect();
            match graph_for(&pins).and_then(|graph| run(Specialised { graph: &graph, inputs: &left, pins: &pins })) {
                Err(error) if error.kind() == Kind::NeedsValue => reason = error,
                done => return done,
            }
        }
    }
}
