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
    let text = std::fs::read_to_string(name).map_err(|e| Error::invalid(format!("cannot be read: {e}")).at(name))?;
    Ok(DeviceSpec::parse(&text).map_err(|e| e.at(name))?)
}
