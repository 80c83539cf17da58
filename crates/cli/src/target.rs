//! The device that is meant.

use std::ffi::OsStr;
use std::path::Path;

use fuseline::device::DeviceSpec;
use fuseline::error::Error;
use fuseline_cpu::here;

use crate::failure::{Failure, Outcome};

/// A device that ships, this processor, or a device that a file describes.
pub fn find(name: impl AsRef<OsStr>) -> Outcome<DeviceSpec> {
    let path = Path::new(name.as_ref());
    let name = path.display().to_string();
    if name == here::NAME {
        return Ok(here::spec().clone());
    }
    if path.extension().is_none_or(|extension| extension != "spec") {
        let found = DeviceSpec::all().iter().find(|spec| spec.name == name);
        return found.cloned().ok_or_else(|| {
            let error = Error::invalid(format!("no device is called \"{name}\"")).at("--target");
            let names = names().join(", ");
            Failure::with_help(
                error,
                format!("known devices are {names}; a file called .spec can describe another one"),
            )
        });
    }
    let text = std::fs::read_to_string(path).map_err(|e| Error::invalid(format!("cannot be read: {e}")));
    let spec = text.and_then(|text| DeviceSpec::parse(&text));
    let help = "crates/core/specs has the files of the devices that ship, to begin with";
    spec.map_err(|e| Failure::not_read(path, e.at(name), help))
}

/// The names of the devices that ship, and that of this processor.
pub fn names() -> Vec<&'static str> {
    DeviceSpec::names().chain([here::NAME]).collect()
}
