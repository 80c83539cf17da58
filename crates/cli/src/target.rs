//! The device that is meant.

use fuseline::device::DeviceSpec;
use fuseline::error::Error;

use crate::failure::{Failure, Outcome};

/// A device that ships, or one that a file describes.
pub fn find(name: &str) -> Outcome<DeviceSpec> {
    if !name.ends_with(".spec") {
        let names: Vec<&str> = DeviceSpec::names().collect();
        let help = format!("known devices are {}; a file called .spec can describe another one", names.join(", "));
        return DeviceSpec::find(name).cloned().map_err(|e| Failure::with_help(e.at("--target"), help));
    }
    let text = std::fs::read_to_string(name).map_err(|e| Error::invalid(format!("cannot be read: {e}")));
    let spec = text.and_then(|text| DeviceSpec::parse(&text));
    let help = "crates/core/specs has the files of the devices that ship, to begin with";
    spec.map_err(|e| Failure::from(e.at(name)).or_help(help))
}
