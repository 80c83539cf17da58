//! How long importing and compiling may take: by the clock of the processor, so that a busy machine refuses nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use fuseline::budget::{Account, Budget, Watch};
use fuseline::error::{Allowance, Error, Result};

/// A budget that ends when those who work have had the processor for so long, each in the thread that began its work. Where another thread
/// asks, or the system does not say, time is that of the clock on the wall.
pub fn budget(most: Duration) -> Budget {
    Time::of(most).together()
}

/// A time for making programs of one model.
#[derive(Clone, Debug)]
pub struct Time(Arc<Purse>);

impl Time {
    /// So much of it.
    pub fn of(most: Duration) -> Time {
        Time(Arc::new(Purse { most, spent: AtomicU64::new(0) }))
    }

    /// For all work together.
    pub fn together(&self) -> Budget {
        Budget::of(self.0.clone())
    }

    /// For every piece of work anew, but for what all others spend together: of commands that make many programs of one import.
    pub fn each(&self) -> Budget {
        Budget::of(Arc::new(Each(self.0.clone())))
    }
}

/// What is spent of a time.
#[derive(Debug)]
struct Purse {
    most: Duration,
    /// by work that has ended, in nanoseconds
    spent: AtomicU64,
}

impl Account for Purse {
    fn begin(self: Arc<Self>) -> Watch {
        let work = Work::on(self, true);
        Arc::new(move || work.check())
    }

    fn fork(&self) -> Arc<dyn Account> {
        Arc::new(Purse { most: self.most, spent: AtomicU64::new(self.spent.load(Ordering::Relaxed)) })
    }
}

/// A purse from which nothing is taken.
struct Each(Arc<Purse>);

impl Account for Each {
    fn begin(self: Arc<Self>) -> Watch {
        let work = Work::on(self.0.clone(), false);
        Arc::new(move || work.check())
    }

    fn fork(&self) -> Arc<dyn Account> {
        Arc::new(Each(self.0.clone()))
    }
}

/// How long a thread has been busy since it began.
struct Work {
    start: Instant,
    thread: ThreadId,
    busy: Option<Duration>,
    /// nothing can be over before this much time has passed, in nanoseconds: no thread is busy for longer than that
    next: AtomicU64,
    purse: Arc<Purse>,
    /// whether the time is taken from the purse
    pays: bool,
}

impl Work {
    fn on(purse: Arc<Purse>, pays: bool) -> Work {
        let (start, thread) = (Instant::now(), thread::current().id());
        Work { start, thread, busy: busy(), next: AtomicU64::new(0), purse, pays }
    }

    fn check(&self) -> Result<()> {
        let passed = self.start.elapsed();
        if nanoseconds(passed) < self.next.load(Ordering::Relaxed) {
            return Ok(());
        }
        let most = self.purse.most;
        let before = Duration::from_nanos(self.purse.spent.load(Ordering::Relaxed));
        let left = most.checked_sub(before).and_then(|left| left.checked_sub(self.spent(passed)));
        match left.filter(|left| !left.is_zero()) {
            Some(left) => {
                self.next.store(nanoseconds(passed.saturating_add(left)), Ordering::Relaxed);
                Ok(())
            }
            None => Err(Error::over(
                Allowance::CompileTime,
                format!("importing and compiling take longer than {} s", most.as_secs_f64()),
            )),
        }
    }

    /// How long the thread was busy, or at most.
    fn spent(&self, passed: Duration) -> Duration {
        let is_here = thread::current().id() == self.thread;
        let busy = busy().filter(|_| is_here).zip(self.busy).and_then(|(now, before)| now.checked_sub(before));
        busy.map_or(passed, |busy| busy.min(passed))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if self.pays {
            let spent = nanoseconds(self.spent(self.start.elapsed()));
            self.purse.spent.fetch_add(spent, Ordering::Relaxed);
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// How long this thread has had a processor so far.
fn busy() -> Option<Duration> {
    // Nanoseconds on a processor, nanoseconds waiting for one, times that it got one.
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use fuseline::error::Kind;

    use super::*;

    #[test]
    fn time_is_up_when_it_is() {
        let never = budget(Duration::MAX).started();
        let at_once = budget(Duration::ZERO).started();
        thread::sleep(Duration::from_millis(2));
        assert_eq!(never.check(), Ok(()));
        let error = at_once.check().unwrap_err();
        assert_eq!((error.kind(), error.message()), (Kind::Limit, "importing and compiling take longer than 0 s"));
    }

    #[test]
    fn who_waits_is_not_busy() {
        let Some(before) = busy() else { return };
        let some = budget(Duration::from_millis(20)).started();
        thread::sleep(Duration::from_millis(30));
        assert_eq!(some.check(), Ok(()));
        while busy().is_some_and(|now| now < before + Duration::from_millis(60)) {
            std::hint::spin_loop();
        }
        assert_eq!(some.check().unwrap_err().kind(), Kind::Limit);
        let elsewhere = budget(Duration::from_millis(1)).started();
        thread::sleep(Duration::from_millis(2));
        let asked = thread::scope(|scope| scope.spawn(|| elsewhere.check()).join());
        assert_eq!(asked.unwrap().unwrap_err().kind(), Kind::Limit);
    }
    #[test]
    fn pieces_of_work_add_up() {
        if busy().is_none() {
            return;
        }
        let work = || {
            let before = busy();
            while busy().zip(before).is_some_and(|(now, before)| now < before + Duration::from_millis(40)) {
                std::hint::spin_loop();
            }
        };
        let time = Time::of(Duration::from_millis(100));
        let budget = time.together();
        let each = time.each();
        for _ in 0..4 {
            let started = each.started();
            work();
            assert_eq!(started.check(), Ok(()));
        }
        for _ in 0..2 {
            let started = budget.started();
            work();
            assert_eq!(started.check(), Ok(()));
        }
        // What nobody has begun is not counted.
        work();
        assert_eq!(budget.started().check(), Ok(()));
        let fork = budget.fork();
        for both in [budget, fork, each] {
            let started = both.started();
            work();
            assert_eq!(started.check().unwrap_err().kind(), Kind::Limit);
        }
    }
}
