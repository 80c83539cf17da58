//! Threads that work through the tasks of one phase after another.
//!
//! [`Pool::enter`] wakes the threads, once for a run; inside, [`Team::run`] shares out the tasks of a phase and returns when all
//! are done. Between phases threads wait awake for a moment, then they sleep; nothing is awake where no run is on. Every thread
//! begins with a share of consecutive tasks, the same in every phase of as many tasks, so that it finds in its caches what it
//! wrote before; who is done helps the others. A thread that comes too late is not waited for.
//!
//! Never here: what a task is. Tasks are independent of each other, so that no result can depend on who does which.
#![allow(
    unsafe_code,
    reason = "a phase borrows from the stack of the thread that entered; threads of the pool outlive it"
)]

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What is done with some tasks: the number of the thread in its team, and the tasks.
pub type Work<'a> = dyn Fn(usize, Range<u64>) + Sync + 'a;

/// Threads that wait for work. Dropping it ends them.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// where they run: they do not follow into a forked process
    process: u32,
}

impl Pool {
    /// As many threads as asked for, at least one; the thread that enters is one of them.
    pub fn new(threads: usize) -> std::io::Result<Pool> {
        let threads = threads.max(1);
        let shared = Arc::new(Shared::new(threads));
        let handles = Vec::with_capacity(threads - 1);
        let mut pool = Pool { shared: shared.clone(), threads: handles, process: std::process::id() };
        for thread in 1..threads {
            let shared = shared.clone();
            let builder = std::thread::Builder::new().name(format!("fuseline-{thread}"));
            pool.threads.push(builder.spawn(move || shared.serve(thread))?);
        }
        Ok(pool)
    }

    /// How many threads a team can have.
    pub fn threads(&self) -> usize {
        self.threads.len() + 1
    }

    /// Whether this is a process that was forked from the one in which the threads are.
    fn is_elsewhere(&self) -> bool {
        self.process != std::process::id()
    }

    /// Runs something with a team. While one thread has the team, others that enter, and those that enter once more from
    /// inside or in a forked process, work alone.
    pub fn enter<R>(&self, body: impl FnOnce(&mut Team<'_>) -> R) -> R {
        if self.threads.is_empty() || self.is_elsewhere() || self.shared.is_taken.swap(true, Acquire) {
            return body(&mut Team { shared: None });
        }
        let _taken = Taken(&self.shared);
        self.shared.wake();
        body(&mut Team { shared: Some(&self.shared) })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.is_elsewhere() {
            // There are no such threads to wait for here, and whoever held a lock of theirs is not here either.
            std::mem::take(&mut self.threads).into_iter().for_each(std::mem::forget);
            return;
        }
        self.shared.is_over.store(true, SeqCst);
        self.shared.wake();
        for thread in self.threads.drain(..) {
            // Panics of tasks are handed to who entered; there are no others.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish()
    }
}

/// The team is somebody's; given back when this is dropped.
struct Taken<'p>(&'p Shared);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.is_taken.store(false, Release);
    }
}

/// The threads of a run.
pub struct Team<'p> {
    /// none where the caller works alone
    shared: Option<&'p Shared>,
}

impl Team<'_> {
    /// How many threads there may be; those that work have numbers below.
    pub fn threads(&self) -> usize {
        self.shared.map_or(1, |shared| shared.shares.len())
    }

    /// Does the tasks `0..tasks` and returns when all are done. What the work panics with, in whatever thread, this panics
    /// with; some tasks may not have been done then.
    pub fn run(&mut self, tasks: u64, work: &Work<'_>) {
        match self.shared {
            Some(shared) if tasks > 1 => shared.run(tasks, work),
            _ if tasks > 0 => work(0, 0..tasks),
            _ => {}
        }
    }
}

impl Team<'_> {
    /// What each of so many tasks gives, in order.
    pub fn collect<T: Send + Sync>(&mut self, tasks: usize, task: impl Fn(usize) -> T + Sync) -> Vec<T> {
        let places: Vec<OnceLock<T>> = std::iter::repeat_with(OnceLock::new).take(tasks).collect();
        self.run(tasks as u64, &|_, range| {
            for k in range {
                places[k as usize].get_or_init(|| task(k as usize));
            }
        });
        // A task that was not done has panicked, and `run` with it.
        places.into_iter().flat_map(OnceLock::into_inner).collect()
    }
}

impl fmt::Debug for Team<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Team").field("threads", &self.threads()).finish()
    }
}

/// Tasks of a thread that nobody has begun. On a line of memory of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Share {
    next: AtomicU64,
    end: AtomicU64,
}

impl Share {
    /// Some of the tasks: many while there are many, in the end one by one.
    fn claim(&self) -> Option<Range<u64>> {
        let end = self.end.load(Relaxed);
        let mut next = self.next.load(Relaxed);
        while next < end {
            let behind = next + (end - next).div_ceil(4);
            match self.next.compare_exchange_weak(next, behind, Relaxed, Relaxed) {
                Ok(_) => return Some(next..behind),
                Err(now) => next = now,
            }
        }
        None
    }
}

/// What a phase does; lives on the stack of the thread that entered.
struct Job<'a> {
    work: &'a Work<'a>,
}

/// In the gate: a phase can be joined.
const OPEN: u64 = 1 << 31;

/// In the gate: how many threads of the pool are in the phase.
const INSIDE: u64 = OPEN - 1;

/// The number of the phase that a gate belongs to.
fn phase(gate: u64) -> u64 {
    gate >> 32
}

/// What the threads of a pool share.
struct Shared {
    /// the number of the phase, [`OPEN`], and how many are [`INSIDE`]: who joins and who closes agree because it is one word
    gate: AtomicU64,
    /// whether somebody has the team
    is_taken: AtomicBool,
    /// whether the pool ends
    is_over: AtomicBool,
    /// what the phase does; changes only while the gate is closed and nobody is inside
    job: AtomicPtr<Job<'static>>,
    /// the tasks of the phase, by thread
    shares: Box<[Share]>,
    /// what a task panicked with
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// whether one did
    has_failed: AtomicBool,
    /// how many sleep, or are about to
    sleepers: AtomicUsize,
    /// how often they were woken
    bell: Mutex<u64>,
    ring: Condvar,
    /// whether the one who closed the gate sleeps, or is about to
    is_awaited: AtomicBool,
    exit: Mutex<()>,
    left: Condvar,
    /// whether there is a processor for every thread, so that one may wait awake
    may_spin: bool,
}

impl Shared {
    fn new(threads: usize) -> Shared {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Shared {
            gate: AtomicU64::new(0),
            is_taken: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            job: AtomicPtr::new(ptr::null_mut()),
            shares: (0..threads).map(|_| Share::default()).collect(),
            panic: Mutex::new(None),
            has_failed: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            bell: Mutex::new(0),
            ring: Condvar::new(),
            is_awaited: AtomicBool::new(false),
            exit: Mutex::new(()),
            left: Condvar::new(),
            may_spin: threads <= processors,
        }
    }

    /// A phase, run by the one who has the team.
    fn run(&self, tasks: u64, work: &Work<'_>) {
        let threads = self.shares.len() as u64;
        let border = |k: u64| (u128::from(tasks) * u128::from(k) / u128::from(threads)) as u64;
        for (k, share) in (0..).zip(&self.shares) {
            share.next.store(border(k), Relaxed);
            share.end.store(border(k + 1), Relaxed);
        }
        let job = Job { work };
        self.job.store((&raw const job).cast_mut().cast(), Relaxed);
        let next = phase(self.gate.load(Relaxed)).wrapping_add(1);
        self.gate.store(next << 32 | OPEN, SeqCst);
        if self.sleepers.load(SeqCst) > 0 {
            self.wake();
        }
        self.take_part(0);
        self.close();
        if self.has_failed.swap(false, Relaxed)
            && let Some(panic) = lock(&self.panic).take()
        {
            resume_unwind(panic);
        }
    }

    /// Does tasks of the phase until none are left: first its own, then those of others. Does not panic.
    fn take_part(&self, thread: usize) {
        // SAFETY: the caller is the one who has the team, or is counted inside; `run` leaves neither the job nor what it
        // borrows before the gate is closed and nobody is inside.
        let job = unsafe { &*self.job.load(Relaxed) };
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let (before, from) = self.shares.split_at(thread);
            for share in from.iter().chain(before) {
                while let Some(tasks) = share.claim() {
                    if self.has_failed.load(Relaxed) {
                        return;
                    }
                    (job.work)(thread, tasks);
                }
            }
        }));
        if let Err(panic) = outcome {
            lock(&self.panic).get_or_insert(panic);
            self.has_failed.store(true, Relaxed);
        }
    }

    /// Lets nobody join any more, and waits for those inside.
    fn close(&self) {
        let mut waiting = Waiting::new(self.may_spin);
        let mut gate = self.gate.fetch_and(!OPEN, AcqRel);
        while gate & INSIDE != 0 {
            if !waiting.pause() {
                self.sleep_until_left();
            }
            gate = self.gate.load(Acquire);
        }
    }

    fn sleep_until_left(&self) {
        let mut exit = lock(&self.exit);
        self.is_awaited.store(true, SeqCst);
        while self.gate.load(SeqCst) & INSIDE != 0 {
            exit = self.left.wait(exit).unwrap_or_else(PoisonError::into_inner);
        }
        self.is_awaited.store(false, Relaxed);
    }

    /// The life of a thread of the pool.
    fn serve(&self, thread: usize) {
        let mut last = 0;
        while let Some(phase) = self.join(last) {
            last = phase;
            self.take_part(thread);
            let gate = self.gate.fetch_sub(1, SeqCst) - 1;
            if gate & (OPEN | INSIDE) == 0 && self.is_awaited.load(SeqCst) {
                let _exit = lock(&self.exit);
                self.left.notify_one();
            }
        }
    }

    /// Waits for a phase other than the last and joins it; none when the pool ends.
    fn join(&self, last: u64) -> Option<u64> {
        let mut waiting = Waiting::new(self.may_spin);
        loop {
            let gate = self.gate.load(Acquire);
            if can_join(gate, last) {
                if self.gate.compare_exchange_weak(gate, gate + 1, Acquire, Relaxed).is_ok() {
                    return Some(phase(gate));
                }
            } else if self.is_over.load(Relaxed) {
                return None;
            } else if !waiting.pause() {
                self.sleep(last);
                waiting = Waiting::new(self.may_spin);
            }
        }
    }

    /// Sleeps until it is woken. Who opens the gate looks for sleepers afterwards, and who falls asleep looks at the gate
    /// afterwards, so that one of them sees the other.
    fn sleep(&self, last: u64) {
        let mut bell = lock(&self.bell);
        let heard = *bell;
        self.sleepers.fetch_add(1, SeqCst);
        while *bell == heard && !can_join(self.gate.load(SeqCst), last) && !self.is_over.load(SeqCst) {
            bell = self.ring.wait(bell).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, SeqCst);
    }

    fn wake(&self) {
        *lock(&self.bell) += 1;
        self.ring.notify_all();
    }
}

fn can_join(gate: u64, last: u64) -> bool {
    gate & OPEN != 0 && phase(gate) != last
}

/// Nothing that is locked here is left half done by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long a thread holds its processor while it waits, and how long it gives it to others before it sleeps.
const AWAKE: (Duration, Duration) = (Duration::from_micros(20), Duration::from_micros(200));

/// Waiting: awake, then yielding, then no more.
struct Waiting {
    since: Option<Instant>,
    pauses: u32,
    may_spin: bool,
}

impl Waiting {
    fn new(may_spin: bool) -> Waiting {
        Waiting { since: None, pauses: 0, may_spin }
    }

    /// Waits a little; false once it was long enough that one should sleep.
    fn pause(&mut self) -> bool {
        self.pauses = self.pauses.wrapping_add(1);
        // Clocks are slow to read: a few pauses at a time.
        if self.may_spin && !self.pauses.is_multiple_of(16) {
            std::hint::spin_loop();
            return true;
        }
        let elapsed = self.since.get_or_insert_with(Instant::now).elapsed();
        if !self.may_spin || elapsed > AWAKE.0 {
            std::thread::yield_now();
        }
        elapsed <= AWAKE.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(threads: usize) -> Pool {
        Pool::new(threads).unwrap()
    }

    /// Counts how often every task is done.
    fn counts(team: &mut Team<'_>, tasks: u64) -> Vec<u64> {
        let counts: Vec<AtomicU64> = (0..tasks).map(|_| AtomicU64::new(0)).collect();
        let threads = team.threads();
        team.run(tasks, &|thread, range| {
            assert!(thread < threads);
            range.for_each(|task| {
                counts[task as usize].fetch_add(1, Relaxed);
            });
        });
        counts.into_iter().map(AtomicU64::into_inner).collect()
    }

    #[test]
    fn every_task_is_done_once_by_any_number_of_threads() {
        for threads in [1, 2, 3, 8] {
            let pool = pool(threads);
            assert_eq!(pool.threads(), threads);
            pool.enter(|team| {
                for tasks in [0, 1, 2, 7, 64, 1000, 3, 5] {
                    assert_eq!(counts(team, tasks), vec![1; tasks as usize], "{threads} threads, {tasks} tasks");
                }
            });
        }
    }

    #[test]
    fn what_tasks_give_comes_in_their_order() {
        for threads in [1, 4] {
            pool(threads).enter(|team| {
                for tasks in [0, 1, 5, 100] {
                    let squares: Vec<String> = (0..tasks).map(|k| (k * k).to_string()).collect();
                    assert_eq!(team.collect(tasks, |k| (k * k).to_string()), squares);
                }
            });
        }
    }

    #[test]
    fn a_phase_sees_what_the_one_before_has_written() {
        let pool = pool(4);
        let n = 512;
        let cells: Vec<AtomicU64> = (0..n).map(|_| AtomicU64::new(0)).collect();
        for _ in 0..20 {
            pool.enter(|team| {
                for round in 0..50 {
                    cells[0].store(round, Relaxed);
                    // Every task reads what another one wrote in the phase before.
                    let seen: Vec<AtomicU64> = cells.iter().map(|x| AtomicU64::new(x.load(Relaxed))).collect();
                    team.run(n, &|_, range| {
                        for k in range {
                            cells[k as usize].store(seen[((k + 1) % n) as usize].load(Relaxed) + 1, Relaxed);
                        }
                    });
                    for k in 0..n as usize {
                        let before = seen[(k + 1) % n as usize].load(Relaxed);
                        assert_eq!(cells[k].load(Relaxed), before + 1);
                    }
                }
            });
        }
    }

    #[test]
    fn entries_from_many_threads_and_from_inside_all_get_done() {
        let pool = pool(3);
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    for tasks in 0..200 {
                        let inner = pool.enter(|team| {
                            assert_eq!(counts(team, tasks), vec![1; tasks as usize]);
                            pool.enter(|team| counts(team, tasks))
                        });
                        assert_eq!(inner, vec![1; tasks as usize]);
                    }
                });
            }
        });
    }

    #[test]
    fn more_threads_than_processors_make_progress() {
        let pool = pool(16);
        for _ in 0..50 {
            pool.enter(|team| {
                for _ in 0..20 {
                    assert_eq!(counts(team, 33), vec![1; 33]);
                }
            });
        }
    }

    #[test]
    fn threads_that_slept_come_back() {
        let pool = pool(2);
        for _ in 0..5 {
            pool.enter(|team| {
                assert_eq!(counts(team, 8), vec![1; 8]);
                std::thread::sleep(AWAKE.1 * 3);
                assert_eq!(counts(team, 8), vec![1; 8]);
            });
            std::thread::sleep(AWAKE.1 * 3);
        }
    }

    #[test]
    fn the_one_who_entered_waits_for_a_slow_thread() {
        let pool = pool(2);
        let done = AtomicU64::new(0);
        pool.enter(|team| {
            team.run(2, &|_, range| {
                for _ in range {
                    std::thread::sleep(AWAKE.1 * 10);
                    done.fetch_add(1, Relaxed);
                }
            });
            assert_eq!(done.load(Relaxed), 2);
        });
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let pool = pool(4);
        for bad in [0, 1, 17, 99] {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                pool.enter(|team| {
                    team.run(100, &|_, range| assert!(!range.contains(&bad), "task {bad}"));
                });
            }));
            let panic = outcome.unwrap_err();
            let message = panic.downcast_ref::<String>().unwrap();
            assert!(message.contains(&format!("task {bad}")), "{message}");
            pool.enter(|team| {
                assert_eq!(team.threads(), 4, "the team was given back");
                assert_eq!(counts(team, 100), vec![1; 100]);
            });
        }
    }

    #[test]
    fn dropping_a_pool_ends_its_threads() {
        for threads in 1..5 {
            let pool = pool(threads);
            let shared = Arc::downgrade(&pool.shared);
            pool.enter(|team| assert_eq!(counts(team, 10), vec![1; 10]));
            drop(pool);
            assert!(shared.upgrade().is_none(), "no thread holds on to what they shared");
        }
    }
}
