//! How long compiling may take: by the clock of the processor, so that a busy machine refuses nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use fuseline::budget::Budget;
use fuseline::error::{Error, Result};

/// A budget that ends when the thread that begins the work has had the processor for so long. Where another one asks, or the system does not say,
/// time is that of the clock on the wall.
pub fn budget(most: Duration) -> Budget {
    Budget::watched(move || {
        let watch = Watch::start();
        Arc::new(move || watch.check(most))
    })
}

/// How long a thread has been busy since it began.
struct Watch {
    start: Instant,
    thread: ThreadId,
    busy: Option<Duration>,
    /// nothing can be over before this much time has passed, in nanoseconds: no thread is busy for longer than that
    next: AtomicU64,
}

impl Watch {
    fn start() -> Watch {
        Watch { start: Instant::now(), thread: thread::current().id(), busy: busy(), next: AtomicU64::new(0) }
    }

    fn check(&self, most: Duration) -> Result<()> {
        let passed = self.start.elapsed();
        if passed <= most || passed.as_nanos() < u128::from(self.next.load(Ordering::Relaxed)) {
            return Ok(());
        }
        let left = self.spent(passed).map_or(Some(Duration::ZERO), |spent| most.checked_sub(spent));
        match left.filter(|left| !left.is_zero()) {
            Some(left) => {
                let next = u64::try_from((passed + left).as_nanos()).unwrap_or(u64::MAX);
                self.next.store(next, Ordering::Relaxed);
                Ok(())
            }
            None => Err(Error::limit(format!("compiling takes longer than {} s", most.as_secs_f64()))),
        }
    }

    /// How long the thread was busy, where that is known.
    fn spent(&self, passed: Duration) -> Option<Duration> {
        let is_here = thread::current().id() == self.thread;
        let spent = busy().filter(|_| is_here)?.checked_sub(self.busy?)?;
        Some(spent.min(passed))
    }
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
        assert_eq!((error.kind(), error.message()), (Kind::Limit, "compiling takes longer than 0 s"));
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
}
