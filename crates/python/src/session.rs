//! Sessions.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use fuseline::error::{Error, Result};
use fuseline::gallery::NETWORKS;
use fuseline::passes::{Numerics, Precision};
use fuseline::reference::Limits;
use fuseline::tensor::{DType, Dim, Env, Symbol};
use fuseline_frontend::Tensors;
use fuseline_frontend::onnx::import::{self, Port};
use fuseline_session::Machine;
use fuseline_session::model::{Content, Model, signature};
use fuseline_session::session::{DeviceTensors, Feed, Options, Place};
use fuseline_session::{allowance, machine, patience};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyList;

use crate::array;
use crate::dlpack::{self, Input};
use crate::error::{About, exception, work};
use crate::explanation::{Explanation, target};
use crate::tensor::Tensor;

/// Where a model comes from.
#[derive(FromPyObject)]
pub enum Source {
    #[pyo3(transparent)]
    Bytes(PyBackedBytes),
    #[pyo3(transparent)]
    Path(PathBuf),
}

impl Source {
    /// Opens it: an ONNX file, a graph in text form (`.ir`), a row of the gallery (`gallery:NAME`) or one of its networks (`demo:NAME`), or
    /// the bytes of an ONNX file.
    pub fn open(self) -> Result<Model> {
        match self {
            Source::Bytes(bytes) => Model::from_bytes(Bytes::from_owner(bytes), "model"),
            Source::Path(path) => match path.to_str().and_then(|name| name.split_once(':')) {
                Some(("gallery", name)) => Model::gallery(name, DType::F32),
                Some(("demo", name)) => {
                    let network = NETWORKS.iter().find(|network| network.name == name);
                    let known: Vec<&str> = NETWORKS.iter().map(|network| network.name).collect();
                    let unknown = || Error::invalid(format!("no network \"{name}\": there are {}", known.join(", ")));
                    Model::network(network.ok_or_else(unknown)?)
                }
                _ => Model::open(&path),
            },
        }
    }
}

/// Every level of nesting takes memory of the stack.
const MOST_NESTING: usize = 256;

/// How a model is run, as the Python code says it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Settings {
    device: String,
    threads: Option<usize>,
    fuses: bool,
    numerics: String,
    precision: String,
    /// sizes to plan for, which the model must have
    sizes: Vec<(String, i64)>,
    /// the same, taken where the model has them
    overrides: Vec<(String, i64)>,
    max_bytes: Option<u64>,
    max_trips: Option<u64>,
    max_text: Option<u64>,
    max_nodes: Option<usize>,
    max_nesting: Option<usize>,
    max_compile_time: Option<f64>,
}

impl Settings {
    /// How a model is run.
    pub fn options(&self, model: &Model) -> Result<Options> {
        let bytes = model.bytes();
        let threads = match self.threads {
            Some(threads) => Some(NonZeroUsize::new(threads).ok_or_else(|| Error::invalid("0 threads"))?),
            None => None,
        };
        threads.map_or(Ok(()), machine::check_threads)?;
        let place = match self.device.as_str() {
            "cpu" => Place::Cpu(threads),
            "cuda" => Place::Cuda,
            other => return Err(Error::invalid(format!("no device \"{other}\": there are cpu and cuda"))),
        };
        let numerics = Numerics::from_name(&self.numerics).ok_or_else(|| {
            Error::invalid(format!("no numerics \"{}\": there are strict, default, fast", self.numerics))
        })?;
        let precision = Precision::from_name(&self.precision).ok_or_else(|| {
            Error::invalid(format!("no precision \"{}\": there are f32, bf16 and f16", self.precision))
        })?;
        let mut limits = allowance::run(bytes);
        if let Some(bytes) = self.max_bytes {
            (limits.bytes, limits.share) = (bytes, 0);
        }
        limits.trips = self.max_trips.unwrap_or(limits.trips);
        limits.text = self.max_text.unwrap_or(limits.text);
        let (fuses, sizes, import) = (self.fuses, self.sizes_of(model)?, self.import(bytes)?);
        Ok(Options { fuses, numerics, precision, sizes, limits, import, ..Options::at(place) })
    }

    /// The sizes to plan for.
    fn sizes_of(&self, model: &Model) -> Result<Vec<(String, i64)>> {
        let free = model.free_sizes();
        for (name, size) in &self.sizes {
            if *size < 0 {
                return Err(Error::invalid(format!("size {name} = {size}: a size is not negative")));
            }
            if !free.contains(name) {
                let known = match free.is_empty() {
                    true => "all of them are fixed".to_owned(),
                    false => format!("there are {}", free.join(", ")),
                };
                return Err(Error::invalid(format!("the model has no free size called \"{name}\": {known}")));
            }
        }
        let is_taken = |(name, size): &&(String, i64)| *size >= 0 && free.contains(name);
        let overrides =
            self.overrides.iter().filter(is_taken).filter(|(name, _)| self.sizes.iter().all(|(own, _)| own != name));
        Ok(overrides.chain(&self.sizes).cloned().collect())
    }

    /// What importing a model may use, and how long compiling it may take.
    fn import(&self, bytes: Option<u64>) -> Result<import::Limits> {
        let usual = import::Limits::default();
        let nesting = self.max_nesting.unwrap_or(usual.nesting);
        if nesting > MOST_NESTING {
            return Err(Error::invalid(format!("max_nesting = {nesting}: {MOST_NESTING} is the most")));
        }
        let time = match self.max_compile_time {
            Some(seconds) => Duration::try_from_secs_f64(seconds)
                .map_err(|_| Error::invalid(format!("max_compile_time = {seconds}: no time")))?,
            None => allowance::time(bytes),
        };
        Ok(import::Limits {
            nodes: self.max_nodes.unwrap_or(usual.nodes),
            nesting,
            text: self.max_text.map_or(usual.text, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
            budget: patience::budget(time),
        })
    }
}

/// A model on a device.
#[pyclass(frozen, module = "fuseline._native")]
#[derive(Debug)]
pub struct Session {
    session: fuseline_session::Session,
    /// where it was made: the threads of a processor do not follow into a forked process
    process: u32,
}

/// Name, element type, sizes (numbers, names, or nothing where they are open; no sizes where not even their count is known), and whether
/// it is a sequence and may be left out. Texts do not show the axis of their bytes.
type PortRow = (String, &'static str, Option<Vec<Size>>, bool, bool);

/// A size of a port.
#[derive(IntoPyObject)]
enum Size {
    Number(i64),
    Name(String),
    Open(Option<()>),
}

fn port_row(port: &Port) -> PortRow {
    let size = |(axis, dim): (usize, &Dim)| match (dim.as_int(), dim.as_symbol()) {
        (Some(n), _) => Size::Number(n),
        // What the front end calls sizes that have no name.
        (_, Some(Symbol::Name(name))) if **name == format!("{}_{axis}", port.name) => Size::Open(None),
        (_, Some(Symbol::Name(name))) => Size::Name(name.to_string()),
        // It is known only in a run.
        (_, Some(Symbol::Value(_))) => Size::Open(None),
        _ => Size::Name(dim.to_string()),
    };
    let axes = port.shape.as_ref().map(|shape| &shape.dims()[..shape.rank() - usize::from(port.is_text)]);
    let sizes = axes.map(|dims| dims.iter().enumerate().map(size).collect());
    let dtype = if port.is_text { "string" } else { port.dtype.name() };
    (port.name.clone(), dtype, sizes, port.form.is_sequence(), port.form.is_optional())
}

/// What a model says of itself: a dictionary.
#[derive(IntoPyObject, Default)]
struct Metadata {
    producer_name: String,
    graph_name: String,
    domain: String,
    description: String,
    graph_description: String,
    version: i64,
    entries: Vec<(String, String)>,
}

impl Session {
    /// What comes back, with the sizes that follow from the graph where the file leaves them open.
    fn outputs_with_shapes(&self) -> Vec<Port> {
        let model = self.session.model();
        let mut outputs = model.signature.outputs.clone();
        let is_open = |port: &Port| port.shape.is_none() && !port.form.is_sequence() && !port.is_text;
        // What hangs on the values of inputs is known only in a run.
        let graph = if outputs.iter().any(is_open) { model.graph(&Tensors::default(), &Env::new()).ok() } else { None };
        if let Some(graph) = graph {
            let known = signature(&graph).outputs;
            for port in outputs.iter_mut().filter(|port| is_open(port)) {
                port.shape = known.iter().find(|own| own.name == port.name).and_then(|own| own.shape.clone());
            }
        }
        outputs
    }
}

#[pymethods]
impl Session {
    #[new]
    fn new(py: Python<'_>, model: Source, settings: Settings) -> PyResult<Session> {
        let model = work(py, About::Model, move || model.open())?;
        let options = work(py, About::Inputs, || settings.options(&model))?;
        work(py, About::Model, move || {
            let session = fuseline_session::Session::new(model, options)?;
            Ok(Session { session, process: std::process::id() })
        })
    }

    /// What must be given.
    #[getter]
    fn inputs(&self) -> Vec<PortRow> {
        self.session.model().signature.inputs.iter().map(port_row).collect()
    }

    /// What may be given: the model has values for these.
    #[getter]
    fn defaults(&self) -> Vec<PortRow> {
        self.session.model().signature.defaults.iter().map(port_row).collect()
    }

    /// What comes back.
    #[getter]
    fn outputs(&self, py: Python<'_>) -> PyResult<Vec<PortRow>> {
        work(py, About::Model, || Ok(self.outputs_with_shapes().iter().map(port_row).collect()))
    }

    /// How many threads a run has.
    #[getter]
    fn threads(&self) -> usize {
        self.session.threads()
    }

    /// Kernels that the interpreter runs because there is no code for them, each with the reason.
    #[getter]
    fn interpreted(&self) -> Vec<String> {
        self.session.interpreted()
    }

    /// What the model says of itself.
    #[getter]
    fn metadata(&self) -> Metadata {
        let Content::Onnx(model) = &self.session.model().content else {
            return Metadata { graph_name: self.session.model().name.clone(), ..Metadata::default() };
        };
        let model = &model.file().model;
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let graph = model.graph.as_ref();
        Metadata {
            producer_name: model.producer_name.clone(),
            graph_name: graph.map_or_else(String::new, |graph| graph.name.clone()),
            domain: model.domain.clone(),
            description: text(&model.doc_string),
            graph_description: graph.map_or_else(String::new, |graph| text(&graph.doc_string)),
            version: model.model_version,
            entries: model.metadata_props.iter().map(|entry| (entry.key.clone(), entry.value.clone())).collect(),
        }
    }

    /// The outputs by name, for inputs with their element types; where they `stay`, in the memory of the device that computes them.
    fn run(&self, py: Python<'_>, feeds: &Bound<'_, PyList>, stay: bool) -> PyResult<Vec<(String, Tensor)>> {
        let (host, device) = self.inputs_of(py, feeds)?;
        work(py, About::Inputs, || {
            let outputs = self.session.run_feed(Feed { host: &host, device: &device, stays: stay })?;
            outputs.into_iter().map(|(name, output)| Ok((name, Tensor::new(output)?))).collect()
        })
    }

    /// Where the time of so many runs went, as JSON: the least of every kernel.
    fn profile(&self, py: Python<'_>, feeds: &Bound<'_, PyList>, runs: usize) -> PyResult<String> {
        let (mut inputs, device) = self.inputs_of(py, feeds)?;
        work(py, About::Inputs, || {
            for (name, tensor) in device {
                inputs.insert(name, tensor.literal()?);
            }
            Ok(self.session.profile(&inputs, runs)?.to_json().to_string())
        })
    }

    /// The plan in words, for the session's device or another one.
    #[pyo3(signature = (on=None))]
    fn explain(&self, py: Python<'_>, on: Option<String>) -> PyResult<Explanation> {
        let spec = work(py, About::Inputs, || on.as_deref().map(target).transpose())?;
        work(py, About::Model, || self.session.explain(spec.as_ref()).map(Explanation))
    }
}

impl Session {
    /// The tensors that Python gives, read where they lie: those in main memory, and those on the device.
    fn inputs_of(&self, py: Python<'_>, feeds: &Bound<'_, PyList>) -> PyResult<(Tensors, DeviceTensors)> {
        if self.process != std::process::id() {
            let error = Error::invalid("the session was opened in another process; open one after the fork");
            return Err(exception(py, &error, About::Inputs));
        }
        let (mut host, mut device) = (Tensors::new(), DeviceTensors::new());
        for feed in feeds {
            let (name, dtype, value): (String, String, Bound<'_, PyAny>) = feed.extract()?;
            let place = format!("input \"{name}\"");
            let unknown = || Error::bug(format!("no element type {dtype}")).at(place.clone());
            let dtype = DType::from_name(&dtype).ok_or_else(|| exception(py, &unknown(), About::Inputs))?;
            let tensor = match value.hasattr("__array_interface__")? {
                true => Input::Host(array::tensor(&value, dtype, &place)?),
                false => dlpack::import(&value, dtype, self.session.gpu(), &place)?,
            };
            match tensor {
                Input::Host(tensor) => drop(host.insert(name, tensor)),
                Input::Device(tensor) => drop(device.insert(name, tensor)),
            }
        }
        Ok((host, device))
    }
}

/// Whether there is a GPU that can be used; the reason otherwise.
pub fn why_no_cuda() -> Option<String> {
    let plan = target("h200").map(|spec| fuseline::fuse::PlanOptions::on(&spec));
    plan.and_then(|plan| Machine::cuda(plan, Limits::default())).err().map(|error| error.to_string())
}
