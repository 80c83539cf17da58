//! The model that the command line means.

use std::ops::Deref;

use fuseline::error::{Error, Kind, Result};
use fuseline::gallery;
use fuseline::nearest::nearest;
use fuseline::tensor::{DType, Env, Literal, Symbol};
use fuseline_frontend::Tensors;
pub use fuseline_session::model::{Content, signature, type_text};

use crate::arguments::{ModelLimits, ModelName, SizeBinding};
use crate::device::Runner;
use crate::failure::{Failure, Outcome};
use crate::given_sizes;
use crate::kernel::Written;

/// A model, opened as it was asked for.
#[derive(Debug)]
pub struct Model {
    opened: fuseline_session::model::Model,
    /// the most bytes that its inputs may take where they are drawn by chance
    pub drawn: u64,
}

impl Deref for Model {
    type Target = fuseline_session::model::Model;

    fn deref(&self) -> &fuseline_session::model::Model {
        &self.opened
    }
}

impl Model {
    /// Opens a model within limits; an element type may be chosen for gallery graphs only.
    pub fn open(name: &ModelName, dtype: Option<DType>, limits: &ModelLimits) -> Outcome<Model> {
        use fuseline_session::model::Model as Opened;
        match name {
            ModelName::Gallery(name) if gallery::find(name).is_none() => {
                let near = nearest(name, gallery::all().map(|entry| entry.name));
                let error = Error::invalid(format!("the gallery has no graph called \"{name}\""));
                Err(Failure::with_help(
                    error,
                    format!("the nearest are {}; `fuseline gallery` lists all", near.join(", ")),
                ))
            }
            ModelName::Gallery(name) => Model::within(Opened::gallery(name, dtype.unwrap_or(DType::F32))?, limits),
            ModelName::Demo(name) => {
                let Some(network) = gallery::Network::find(name) else {
                    let names: Vec<&str> = gallery::NETWORKS.iter().map(|network| network.name).collect();
                    let error = Error::invalid(format!("no network of the demo is called \"{name}\""));
                    return Err(Failure::with_help(error, format!("take one of {}", names.join(", "))));
                };
                match dtype {
                    None => Model::within(Opened::network(network)?, limits),
                    Some(_) => {
                        let error = Error::invalid("--dtype chooses the type of gallery graphs; networks are in f32");
                        Err(Failure::with_help(error, "leave --dtype out"))
                    }
                }
            }
            ModelName::File(_) if dtype.is_some() => {
                let error = Error::invalid("--dtype chooses the type of gallery graphs; a file has its own types");
                Err(Failure::with_help(error, "leave --dtype out"))
            }
            ModelName::File(path) => {
                let is_kernel = path.extension().is_some_and(|extension| extension == "tile");
                if is_kernel {
                    // What is wrong with its text is told at its place there.
                    Written::open(path)?;
                }
                let help = "a model is an ONNX file, a graph text (.ir), a kernel (.tile), gallery:NAME or demo:NAME";
                let opened = Opened::open(path).map_err(|error| match error.kind() {
                    Kind::Invalid => Failure::not_read(path, error, help),
                    Kind::Unsupported if is_kernel => {
                        Failure::with_help(error, "`fuseline kernel FILE.tile check|run|bench|emit` takes it as it is")
                    }
                    _ => Failure::from(error),
                })?;
                if let Some(bytes) = opened.bytes() {
                    limits.note_bytes(bytes);
                }
                Model::within(opened, limits)
            }
        }
    }

    fn within(opened: fuseline_session::model::Model, limits: &ModelLimits) -> Outcome<Model> {
        Ok(Model { opened: opened.with_limits(limits.import())?, drawn: limits.run().bytes })
    }

    /// Whether it makes no graph, whatever its inputs and sizes are.
    pub fn is_broken(&self) -> bool {
        self.graph(&Tensors::new(), &Env::default()).is_err_and(|error| error.kind() == Kind::Invalid)
    }

    /// A failure to make a graph of it: where no inputs and sizes would help, the file is to blame.
    pub fn failed(&self, error: Error) -> Failure {
        match error.kind() == Kind::Invalid && self.is_broken() {
            true => Failure::explained(
                error,
                "the file is broken: no inputs and no sizes fit it",
                "mend it at the place named above, or export the model again",
            ),
            false => error.into(),
        }
    }

    /// The sizes that the user gives; each must be one that the model leaves free, and be given once.
    pub fn bind_sizes(&self, given: &[SizeBinding]) -> Outcome<Env> {
        let named = given_sizes::named(given, &self.free_sizes(), "model").and_then(given_sizes::once)?;
        Ok(named.into_iter().map(|(name, size)| (Symbol::name(&name), size)).collect())
    }

    /// The outputs by name, in the model's order.
    pub fn evaluate(&self, inputs: &Tensors, run: &Runner) -> Result<Vec<(String, Literal)>> {
        self.with_graph(inputs, |graph, inputs| {
            let values = run(graph, inputs)?;
            Ok(graph.outputs().iter().map(|o| o.name.to_string()).zip(values).collect())
        })
    }
}
