//! Whether long work may go on.
//!
//! Core has no clock. Whoever has one gives a budget with the options; import, passes, planner, proof and whoever makes kernels ask it
//! between nodes, candidates and kernels, and end with its error. A budget can only end work: no result depends on it.

use std::fmt;
use std::sync::Arc;

use crate::error::Result;

/// Says whether work that has begun may go on, or with which error it ends. The work has ended when the last copy is gone.
pub type Watch = Arc<dyn Fn() -> Result<()> + Send + Sync>;

/// Where the time of one piece of work after another is added up.
pub trait Account: Send + Sync {
    /// Work begins; what it takes is spent.
    fn begin(self: Arc<Self>) -> Watch;

    /// An account of its own of which as much is spent as of this one.
    fn fork(&self) -> Arc<dyn Account>;
}

/// What making a program of a file may take, from import to machine code; as much as it wants unless somebody says otherwise. Copies share
/// one account: whoever hands a budget from stage to stage has one limit for all of them.
#[derive(Clone, Default)]
pub struct Budget {
    account: Option<Arc<dyn Account>>,
    running: Option<Watch>,
}

impl Budget {
    /// No limit.
    pub const UNLIMITED: Budget = Budget { account: None, running: None };

    /// What an account allows.
    pub fn of(account: Arc<dyn Account>) -> Budget {
        Budget { account: Some(account), running: None }
    }

    /// The budget of work that begins here, or of the work around it.
    pub fn started(&self) -> Budget {
        match (&self.running, &self.account) {
            (None, Some(account)) => Budget { account: Some(account.clone()), running: Some(account.clone().begin()) },
            _ => self.clone(),
        }
    }

    /// The budget of another program that is made of what there is now: what is spent so far counts, what others spend does not.
    pub fn fork(&self) -> Budget {
        Budget { account: self.account.as_ref().map(|account| account.fork()), running: None }
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
        f.write_str(match (&self.account, &self.running) {
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

    /// So many questions are answered with yes.
    struct Steps {
        most: usize,
        asked: AtomicUsize,
    }

    impl Account for Steps {
        fn begin(self: Arc<Self>) -> Watch {
            Arc::new(move || match self.asked.fetch_add(1, Ordering::Relaxed) < self.most {
                true => Ok(()),
                false => Err(Error::limit("enough")),
            })
        }

        fn fork(&self) -> Arc<dyn Account> {
            Arc::new(Steps { most: self.most, asked: AtomicUsize::new(self.asked.load(Ordering::Relaxed)) })
        }
    }

    fn steps(most: usize) -> Budget {
        Budget::of(Arc::new(Steps { most, asked: AtomicUsize::new(0) }))
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
    fn what_one_program_takes_adds_up_and_others_do_not_count() {
        let spent = |budget: &Budget| (0..1 << 20).take_while(|_| budget.check().is_ok()).count();
        let budget = steps(100_000);
        planned(20, budget.clone()).unwrap();
        let other = budget.fork();
        let left = spent(&budget.started());
        assert!(left < 100_000, "the plan took nothing");
        assert_eq!(spent(&budget.started()), 0);
        assert_eq!(planned(20, budget).unwrap_err().kind(), Kind::Limit);
        assert_eq!(spent(&other.started()), left);
        assert_eq!(spent(&Budget::UNLIMITED.fork().started()), 1 << 20);
    }

    #[test]
    fn work_inside_of_other_work_is_not_begun_again() {
        let started = steps(1 << 20).started();
        assert!(Arc::ptr_eq(started.running.as_ref().unwrap(), started.started().running.as_ref().unwrap()));
    }
}
