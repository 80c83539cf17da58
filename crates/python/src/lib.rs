//! The native module `fuseline._native`: sessions, tensors and explanations for the Python package in `python/`.
//!
//! Comes in: Python objects. Goes out: Python objects, and exceptions with the path of our errors. What is policy (names, defaults, which
//! arrays are converted) is Python code; here is what needs memory, and what takes time: that runs without the interpreter's lock.

mod array;
mod dlpack;
mod error;
mod explanation;
mod session;
mod tensor;

use pyo3::prelude::pymodule;

/// Names of the devices that can be planned for, and the graphs of the gallery.
#[pymodule(name = "_native")]
mod native {
    use fuseline::device::DeviceSpec;
    use fuseline::gallery;
    use pyo3::prelude::pyfunction;

    #[pymodule_export]
    use crate::explanation::{Explanation, explain};
    #[pymodule_export]
    use crate::session::Session;
    #[pymodule_export]
    use crate::tensor::Tensor;

    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "the name in Python")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    /// The devices that ship, to be planned for.
    #[pyfunction]
    fn targets() -> Vec<&'static str> {
        DeviceSpec::names().collect()
    }

    /// The names of the gallery.
    #[pyfunction]
    fn gallery_names() -> Vec<&'static str> {
        gallery::all().map(|entry| entry.name).collect()
    }

    /// Whether there is a GPU that can be used; the reason otherwise.
    #[pyfunction]
    fn why_no_cuda() -> Option<String> {
        crate::session::why_no_cuda()
    }
}
