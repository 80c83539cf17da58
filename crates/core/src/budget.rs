//! Whether long work may go on.
//!
//! Core has no clock. Whoever has one gives a budget with the options; the compiler asks it between passes, between nodes and
//! between candidates, and ends with its error. A budget can only end work: no result depends on it.

use std::fmt;
use std::sync::Arc;

use crate::error::Result;

/// Says whether work that has begun may go on, or with which error it ends.
pub type Watch = Arc<dyn Fn() -> Result<()> + Send + Sync>;

/// What compiling a graph may take; as much as it wants unless somebody says otherwise.
#[derive(Clone, Default)]
pub struct Budget {
    start: Option<Arc<dyn Fn() -> Watch + Send + Sync>>,
    running: Option<Watch>,
}

impl Budget {
    /// No limit.
    pub const UNLIMITED: Budget = Budget { start: None, running: None };

    /// Work is watched by what `start` returns when it begins.
    pub fn watched(start: impl Fn() -> Watch + Send + Sync + 'static) -> Budget {
        Budget { start: Some(Arc::new(start)), running: None }
    }

    /// The budget of work that begins here, or of the work around it.
    pub fn started(&self) -> Budget {
        match (&self.running, &self.start) {
            (None, Some(start)) => Budget { start: self.start.clone(), running: Some(start()) },
            _ => self.clone(),
        }
    }

    /// Whether the work may go on; always before it has begun.
    pub fn check(&self) -> Result<()> {
        self.running.as_ref().map_or(Ok(()), |watch| watch())
    }
}

/// Options are equal that differ in patience only: results are the same.
impl PartialEq for Budget {
    fn eq(&self, _: &Budget) -> bool {
        true
    }
}

impl Eq for Budget {}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (&self.start, &self.running) {
            (None, _) => "unlimited",
            (_, None) => "limited",
            (_, Some(_)) => "limited, running",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::compile::plan_program;
    use crate::device::DeviceSpec;
    use crate::error::{Error, Kind};
    use crate::fuse::PlanOptions;
    use crate::graph::{Builder, Graph};
    use crate::tensor::{DType, Dim, Shape};

    /// So many questions are answered with yes, each time that work begins.
    fn steps(most: usize) -> Budget {
        Budget::watched(move || {
            let asked = AtomicUsize::new(0);
            Arc::new(move || match asked.fetch_add(1, Ordering::Relaxed) < most {
                true => Ok(()),
                false => Err(Error::limit("enough")),
            })
        })
    }

    fn chain(count: usize) -> Graph {
        let b = Builder::new("chain");
        let x = b.input("x", DType::F32, Shape::new([Dim::named("n")]));
        b.output("y", (0..count).fold(x, |x, k| if k % 2 == 0 { x.sin() } else { x.tanh() }));
        b.finish().unwrap()
    }

    fn planned(count: usize, budget: Budget) -> Result<usize> {
        let options = PlanOptions { budget, ..PlanOptions::on(DeviceSpec::find("cpu")?) };
        Ok(plan_program(chain(count), &options, &mut |_| {})?.run.kernels.len())
    }

    #[test]
    fn work_ends_where_its_budget_does() {
        // Whatever the compiler is doing at that moment: every small budget ends it.
        for most in [0, 1, 10, 60, 100] {
            assert_eq!(planned(100, steps(most)).unwrap_err().kind(), Kind::Limit, "{most}");
        }
        assert_eq!(planned(100, steps(1 << 20)), planned(100, Budget::UNLIMITED));
    }

    #[test]
    fn a_budget_starts_anew_for_every_graph_and_once_for_each() {
        let budget = steps(1 << 20);
        assert_eq!(planned(20, budget.clone()), planned(20, budget.clone()));
        let (a, b) = (budget.started(), budget.started());
        assert!(Arc::ptr_eq(a.running.as_ref().unwrap(), a.started().running.as_ref().unwrap()));
        assert!(!Arc::ptr_eq(a.running.as_ref().unwrap(), b.running.as_ref().unwrap()));
    }
}
