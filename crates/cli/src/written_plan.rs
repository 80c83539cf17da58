//! A plan that was written down, to be obeyed.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fuseline::budget::Budget;
use fuseline::device::DeviceSpec;
use fuseline::error::Error;
use fuseline::fuse::{Chooser, Lock, PlanOptions};
use fuseline::passes::Numerics;

use crate::arguments::PrecisionName;
use crate::failure::{Failure, Outcome};
use crate::{screen, target};

/// What helps where a written plan does not fit.
const WRITE_A_PLAN: &str =
    "`fuseline explain MODEL --lock FILE` writes a plan that fits (of sizes that are given here, give it the same)";

/// A plan in a file.
#[derive(Clone, Debug)]
pub struct WrittenPlan {
    path: PathBuf,
    lock: Arc<Lock>,
}

/// What the command line says of a plan.
#[derive(Clone, Copy, Debug)]
pub struct PlanWishes<'a> {
    /// the device to plan for
    pub target: Option<&'a OsStr>,
    /// the device where none is wished for and no plan says one
    pub usual: &'a str,
    /// how far arithmetic may be rearranged
    pub numerics: Option<Numerics>,
    /// in which type the factors of contractions are multiplied
    pub precision: PrecisionName,
    /// how long compiling may take
    pub budget: &'a Budget,
}

impl WrittenPlan {
    /// Reads a plan.
    pub fn read(path: &Path) -> Outcome<WrittenPlan> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::invalid(format!("cannot be read: {e}")));
        let lock: Result<Lock, Error> = text.and_then(|text| text.parse());
        let place = path.display().to_string();
        let lock = lock.map_err(|e| Failure::not_read(path, e.at(place), WRITE_A_PLAN))?;
        Ok(WrittenPlan { path: path.to_owned(), lock: Arc::new(lock) })
    }

    fn chooser(&self) -> Chooser {
        Chooser::Replay(self.lock.clone())
    }

    /// A failure to follow the plan, with the plan's place and what helps.
    pub fn failed(&self, failure: Failure) -> Failure {
        failure.at(self.path.display().to_string()).or_help(WRITE_A_PLAN)
    }

    /// Options to follow a plan where there is one, and to make one where there is none.
    pub fn options(written: Option<&WrittenPlan>, wishes: &PlanWishes<'_>) -> Outcome<PlanOptions> {
        let (spec, numerics) = match written {
            Some(plan) => (plan.target(wishes.target)?, plan.numerics(wishes.numerics)?),
            None => (wishes.target.map(target::find).transpose()?, wishes.numerics),
        };
        let spec = spec.map_or_else(|| target::find(wishes.usual), Ok)?;
        let numerics = numerics.unwrap_or(Numerics::Default);
        Ok(PlanOptions {
            numerics,
            precision: wishes.precision.precision(numerics)?,
            chooser: written.map_or(Chooser::ByCost, WrittenPlan::chooser),
            budget: wishes.budget.clone(),
            ..PlanOptions::on(&spec)
        })
    }

    /// The device that is planned for: the one that is wished for, or that of the plan.
    fn target(&self, wish: Option<&OsStr>) -> Outcome<Option<DeviceSpec>> {
        let Some((name, fingerprint)) = &self.lock.target else { return wish.map(target::find).transpose() };
        if let Some(wish) = wish {
            let spec = target::find(wish)?;
            if *fingerprint != spec.fingerprint() {
                screen::tell(&format!("note: the plan was made for {name}, not for {}", spec.name));
            }
            return Ok(Some(spec));
        }
        let unknown = match target::find(name) {
            Ok(spec) if spec.fingerprint() == *fingerprint => return Ok(Some(spec)),
            Ok(_) => "which is described otherwise now",
            Err(_) => "which is not known",
        };
        let error = Error::invalid(format!("the plan was made for a device \"{name}\", {unknown}"));
        let help = "say with --target which device is meant, by its name or its file";
        Err(Failure::with_help(error.at(self.path.display().to_string()), help))
    }

    /// How far arithmetic may be rearranged: as wished, which must be as the plan says, or as the plan says.
    fn numerics(&self, wish: Option<Numerics>) -> Outcome<Option<Numerics>> {
        match (wish, self.lock.numerics) {
            (Some(wish), Some(written)) if wish != written => {
                let error = Error::invalid(format!("the plan was made with numerics {}", written.name()));
                let help = "leave --numerics out, or plan again without --plan";
                Err(Failure::with_help(error.at("--numerics"), help))
            }
            (wish, written) => Ok(wish.or(written)),
        }
    }
}
