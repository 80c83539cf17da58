//! Running programs on a GPU.
//!
//! Comes in: a program with a plan of it. Goes out: outputs for inputs. A plan is looked at once; at the first run of every new combination
//! of sizes its kernels are made (`workshop`) and launches are prepared (`specialize`); a run (`execute`) then only launches them, as one
//! recorded graph where nothing of the host stands between. Inputs may lie on the device already, and outputs stay there (`resident`). `profile` takes the time, and
//! `tune` that of all ways in which products can be computed.

mod constant;
mod execute;
mod kernel;
mod profile;
mod resident;
mod session;
mod specialize;
mod tune;
mod value;
mod workshop;

pub use kernel::LoneKernel;
pub use profile::LaunchProfile;
pub use session::{CudaDevice, NamedDeviceTensors, Session, Timing};
pub use tune::{Choice, Tuned};
