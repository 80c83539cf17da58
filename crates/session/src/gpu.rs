//! Where the libraries of a GPU are looked for, and where machine code is kept: what the environment says, read here and nowhere else.

use std::path::{Path, PathBuf};

use fuseline::error::Result;
use fuseline::fuse::PlanOptions;
use fuseline::reference::Limits;
use fuseline_cuda::run::CudaDevice;

use crate::allowance;

/// The folders in which NVRTC is looked for before the system is asked: those of `FUSELINE_CUDA_LIBRARIES`, those of a toolkit,
/// and those that pip fills in an environment of Python that is active.
pub fn libraries() -> Vec<PathBuf> {
    let listed = std::env::var_os("FUSELINE_CUDA_LIBRARIES");
    let mut folders: Vec<PathBuf> = listed.iter().flat_map(std::env::split_paths).collect();
    for name in ["CUDA_HOME", "CUDA_PATH"] {
        folders.extend(std::env::var_os(name).map(|home| PathBuf::from(home).join("lib64")));
    }
    folders.push("/usr/local/cuda/lib64".into());
    for name in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        folders.extend(std::env::var_os(name).into_iter().flat_map(|home| of_packages(Path::new(&home))));
    }
    folders
}

/// The folders of libraries in packages of NVIDIA's, in an environment of Python, in order of their names.
fn of_packages(home: &Path) -> Vec<PathBuf> {
    let within = |folder: PathBuf| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut all: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        all.sort();
        all
    };
    let packages = within(home.join("lib")).into_iter().flat_map(|python| within(python.join("site-packages/nvidia")));
    packages.map(|package| package.join("lib")).filter(|folder| folder.is_dir()).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_an_environment_are_found() {
        let home = tempfile::tempdir().unwrap();
        let packages = home.path().join("lib/python3.11/site-packages/nvidia");
        for folder in ["cuda_nvrtc/lib", "cu13/lib", "empty"] {
            std::fs::create_dir_all(packages.join(folder)).unwrap();
        }
        assert_eq!(of_packages(home.path()), ["cu13/lib", "cuda_nvrtc/lib"].map(|folder| packages.join(folder)));
        assert!(of_packages(Path::new("/nowhere")).is_empty());
    }
}
