//! The device that is meant.

use fuseline::device::DeviceSpec;
use fuseline::error::Error;
use fuseline_cpu::here;

use crate::failure::{Failure, Outcome};

/// A device that ships, this processor, or a device that a file describes.
pub fn find(name: &str) -> Outcome<DeviceSpec> {
    if name == here::NAME {
        return Ok(here::spec().clone());
    }
    if !name.ends_with(".spec") {
        let names = names().join(", ");
        let help = format!("known devices are {names}; a file called .spec can describe another one");
        return DeviceSpec::find(name).cloned().map_err(|e| Failure::with_help(e.at("--target"), help));
    }
    let text = std::fs::read_to_string(name).map_err(|e| Error::invalid(format!("cannot be read: {e}")));
    let spec = text.and_then(|text| DeviceSpec::parse(&text));
    let help = "crates/core/specs has the files of the devices that ship, to begin with";
    spec.map_err(|e| Failure::not_read(name.as_ref(), e.at(name), help))
}

/// The names of the devices that ship, and that of this processor.
pub fn names() -> Vec<&'static str> {
    DeviceSpec::names().chain([here::NAME]).collect()
}
