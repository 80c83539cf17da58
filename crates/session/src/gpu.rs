//! Where the libraries of a GPU are looked for, and where machine code is kept: what the environment says, read here and nowhere else.

use std::path::PathBuf;

use fuseline::error::Result;
use fuseline::fuse::PlanOptions;
use fuseline::reference::Limits;
use fuseline_cuda::run::CudaDevice;

use crate::allowance;

/// The folders in which NVRTC is looked for before the system is asked: those of `FUSELINE_CUDA_LIBRARIES`, and those of a toolkit.
pub fn libraries() -> Vec<PathBuf> {
    let listed = std::env::var_os("FUSELINE_CUDA_LIBRARIES");
    let mut folders: Vec<PathBuf> = listed.iter().flat_map(std::env::split_paths).collect();
    for name in ["CUDA_HOME", "CUDA_PATH"] {
        folders.extend(std::env::var_os(name).map(|home| PathBuf::from(home).join("lib64")));
    }
    folders.push("/usr/local/cuda/lib64".into());
    folders
}

/// The folder in which machine code is kept: `FUSELINE_CACHE`, else one of the user's; none where there is no such place.
pub fn cache() -> Option<PathBuf> {
    // A variable that is empty names no folder.
    let folder = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let users = || folder("XDG_CACHE_HOME").map(|folder| folder.join("fuseline"));
    let home = || folder("HOME").map(|home| home.join(".cache/fuseline"));
    folder("FUSELINE_CACHE").or_else(users).or_else(home).map(|folder| folder.join("cuda"))
}

/// The first GPU.
pub fn open(plan: PlanOptions, limits: Limits) -> Result<CudaDevice> {
    CudaDevice::open(0, &libraries(), cache(), plan, allowance::on_gpu(limits))
}
