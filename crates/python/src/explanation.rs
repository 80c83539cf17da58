//! Plans in words.

use anstream::adapter::strip_str;
use fuseline::device::DeviceSpec;
use fuseline::error::{Error, Result};
use fuseline::tensor::{Env, Symbol};
use fuseline_cpu::here;
use fuseline_frontend::onnx::import::Pins;
use fuseline_session::explain::Explained;
use fuseline_session::plan::text::{Remedies, View};
use pyo3::prelude::*;

use crate::error::{About, work};
use crate::session::{Settings, Source};

/// A plan: as JSON, and as text.
#[pyclass(frozen, module = "fuseline._native")]
#[derive(Debug)]
pub struct Explanation(pub Explained);

#[pymethods]
impl Explanation {
    /// What ``fuseline explain --json`` prints.
    fn json(&self) -> String {
        self.0.to_json().to_string()
    }

    /// What ``fuseline explain`` prints.
    fn text(&self, width: usize, verbose: bool, top: usize) -> String {
        let remedies =
            Remedies { sizes: "choose them with sizes={…}", decisions: "verbose=True and .decisions list all" };
        strip_str(&self.0.to_text(&View { width, verbose, top, remedies })).to_string()
    }
}

/// A device that ships, this processor, or a device that a file describes.
pub fn target(name: &str) -> Result<DeviceSpec> {
    if name == here::NAME {
        return Ok(here::spec().clone());
    }
    if !name.ends_with(".spec") {
        let found = DeviceSpec::all().iter().find(|spec| spec.name == name);
        return found.cloned().ok_or_else(|| {
            let known: Vec<&str> = DeviceSpec::names().chain([here::NAME]).collect();
            Error::invalid(format!("no device is called \"{name}\"; known devices are {}", known.join(", ")))
        });
    }
    let text = std::fs::read_to_string(name).map_err(|e| Error::invalid(format!("cannot be read: {e}")).at(name))?;
    DeviceSpec::parse(&text).map_err(|error| error.at(name))
}

/// The plan of a model on any device; nothing is run.
#[pyfunction]
pub fn explain(py: Python<'_>, model: Source, settings: Settings, on: &str) -> PyResult<Explanation> {
    let model = work(py, About::Model, move || model.open())?;
    let options = work(py, About::Inputs, || settings.options(&model))?;
    let spec = work(py, About::Inputs, || target(on))?;
    work(py, About::Model, move || {
        let mut sizes = Env::new();
        for (name, size) in &options.sizes {
            sizes.bind(Symbol::name(name), *size);
        }
        let explained =
            Explained::of(&model.with_limits(options.import.clone())?, &options, &spec, &Pins::default(), sizes)?;
        Ok(Explanation(explained))
    })
}
