//! NVIDIA's compiler for tests: fetched once from the package that ships it, then read from disk. It needs no GPU.

use std::path::{Path, PathBuf};

use crate::wheel;

/// The release that is tested with.
const VERSION: &str = "13.4.92";

/// The folder that holds the library, fetched if it is not there.
pub fn folder() -> Result<PathBuf, String> {
    let lib = wheel::unpacked("nvidia-cuda-nvrtc", VERSION, Path::new("nvrtc"))?.join("nvidia/cu13/lib");
    if lib.is_dir() { Ok(lib) } else { Err(format!("{} is not in the package", lib.display())) }
}
