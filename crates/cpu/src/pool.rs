//! A thread pool that runs one job at a time.
//!
//! Decoding a token takes about two hundred matrix products of 0.1 to 0.5 ms, so the latency of
//! starting and ending a job is significant. Work is split into numbered chunks that threads claim
//! one by one; a late thread finds none and does not delay the others. Workers spin briefly before
//! they sleep. The calling thread works too, so a pool of one thread, the only kind in a browser,
//! starts no workers.
//!
//! Rayon is not used: a thread that waits inside a rayon pool may run unrelated work, which could
//! submit to the device whose lock that thread holds.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, Thread};

/// Number of spin iterations before a worker sleeps: a few tens of microseconds.
const SPINS: u32 = 2_000;

/// Bit of `state` that is set while a job admits workers. The upper 32 bits of `state` are the job
/// number, the lower 31 bits the number of workers inside the job.
const OPEN: u64 = 1 << 31;
const NUMBER: u64 = 1 << 32;
const INSIDE: u64 = OPEN - 1;

type Work<'a> = dyn Fn(usize) + Sync + 'a;

struct Shared {
    state: AtomicU64,
    next: AtomicUsize,
    /// The open job: its closure and its number of chunks. Written only while no job is open and no
    /// worker is inside.
    job: std::cell::UnsafeCell<Option<(*const Work<'static>, usize)>>,
    asleep: AtomicUsize,
    stop: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `job` is written by the one thread that holds `busy`, while no job is open and no worker
// is inside; it is read by workers that are inside. The pointer in it is to a `Sync` closure.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// A thread pool; its threads end when it is dropped.
pub(super) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    sleepers: Vec<Thread>,
    busy: AtomicBool,
}

impl Pool {
    /// Creates a pool of `threads` threads, including the calling one, or of fewer if the system
    /// refuses more.
    pub(super) fn new(threads: usize) -> Pool {
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            next: AtomicUsize::new(0),
            job: std::cell::UnsafeCell::new(None),
            asleep: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            panic: Mutex::new(None),
        });
        let mut workers = Vec::new();
        for i in 1..threads {
            let shared = Arc::clone(&shared);
            let builder = std::thread::Builder::new().name(format!("warploom-cpu-{i}"));
            match builder.spawn(move || shared.serve()) {
                Ok(worker) => workers.push(worker),
                Err(error) => {
                    tracing::warn!("cpu: {i} of {threads} threads started: {error}");
                    break;
                }
            }
        }
        let sleepers = workers.iter().map(|w| w.thread().clone()).collect();
        Pool { shared, workers, sleepers, busy: AtomicBool::new(false) }
    }

    /// Returns the number of threads, including the calling one.
    pub(super) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `work` once for each chunk number below `chunks`, on all threads, and returns when all
    /// calls are done. A call from inside a chunk, or while another thread uses the pool, runs on
    /// the calling thread only.
    pub(super) fn run(&self, chunks: usize, work: &Work<'_>) {
        if chunks <= 1 || self.workers.is_empty() || self.busy.swap(true, Ordering::Acquire) {
            (0..chunks).for_each(work);
            return;
        }
        let shared = &*self.shared;
        // SAFETY: the lifetime is erased only in the pointer's type: the job is closed, and all
        // workers have left, before this function returns or unwinds.
        let erased = unsafe { std::mem::transmute::<*const Work<'_>, *const Work<'static>>(work) };
        // SAFETY: `busy` is ours, the previous job is closed and no worker is inside.
        unsafe { *shared.job.get() = Some((erased, chunks)) };
        shared.next.store(0, Ordering::Relaxed);
        let number = shared.state.load(Ordering::Relaxed) & !(NUMBER - 1);
        shared.state.store(number.wrapping_add(NUMBER) | OPEN, Ordering::SeqCst);
        if shared.asleep.load(Ordering::SeqCst) > 0 {
            self.sleepers.iter().for_each(Thread::unpark);
        }
        let mine = catch_unwind(AssertUnwindSafe(|| shared.claim(work, chunks)));
        shared.close();
        self.busy.store(false, Ordering::Release);
        let theirs = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(panic) = mine.err().or(theirs) {
            resume_unwind(panic);
        }
    }

    /// Splits `0..items` into ranges of at least `grain` items, except the last, and calls `work`
    /// for each range, on all threads. Ranges start at multiples of `step`.
    pub(super) fn split(
        &self,
        items: usize,
        grain: usize,
        step: usize,
        work: impl Fn(std::ops::Range<usize>) + Sync,
    ) {
        // A few chunks for each thread, so that a delayed thread takes fewer.
        let size = items.div_ceil(self.threads() * 4).max(grain).next_multiple_of(step.max(1));
        if self.threads() == 1 || size >= items {
            if items > 0 {
                work(0..items);
            }
            return;
        }
        self.run(items.div_ceil(size), &|chunk| {
            work(chunk * size..items.min((chunk + 1) * size));
        });
    }
}

impl Shared {
    fn claim(&self, work: &Work<'_>, chunks: usize) {
        loop {
            let chunk = self.next.fetch_add(1, Ordering::Relaxed);
            if chunk >= chunks {
                return;
            }
            work(chunk);
        }
    }

    /// Closes the job to further workers and waits until those inside have left.
    fn close(&self) {
        self.state.fetch_and(!OPEN, Ordering::AcqRel);
        let mut spins = 0u32;
        while self.state.load(Ordering::Acquire) & INSIDE != 0 {
            spins += 1;
            if spins.is_multiple_of(64) {
                // The worker may be descheduled: yield this core to it.
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    fn serve(&self) {
        let mut seen = 0;
        let mut spins = 0;
        while !self.stop.load(Ordering::Acquire) {
            let state = self.state.load(Ordering::SeqCst);
            if state & OPEN != 0 && state / NUMBER != seen {
                let entered = self.state.compare_exchange_weak(
                    state,
                    state + 1,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
                if entered.is_ok() {
                    self.work_inside();
                    seen = state / NUMBER;
                    spins = 0;
                }
                continue;
            }
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
                continue;
            }
            self.asleep.fetch_add(1, Ordering::SeqCst);
            let state = self.state.load(Ordering::SeqCst);
            let idle = state & OPEN == 0 || state / NUMBER == seen;
            if idle && !self.stop.load(Ordering::SeqCst) {
                // An `unpark` between the check and here makes this return at once.
                std::thread::park();
            }
            self.asleep.fetch_sub(1, Ordering::SeqCst);
            spins = 0;
        }
    }

    fn work_inside(&self) {
        // SAFETY: this worker is counted inside, so the caller neither changes the job nor
        // returns from `run`, and the closure stays alive.
        let job = unsafe { *self.job.get() };
        if let Some((work, chunks)) = job {
            // SAFETY: as above.
            let work = unsafe { &*work };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.claim(work, chunks))) {
                *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
            }
        }
        self.state.fetch_sub(1, Ordering::Release);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.sleepers.iter().for_each(Thread::unpark);
        for worker in self.workers.drain(..) {
            // A worker's panic was already propagated to a caller of `run`.
            drop(worker.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chunk_once_however_often() {
        let pool = Pool::new(3);
        for round in 0..2_000 {
            let counts: Vec<AtomicUsize> = (0..7).map(|_| AtomicUsize::new(0)).collect();
            pool.run(7, &|chunk| {
                counts[chunk].fetch_add(1, Ordering::Relaxed);
            });
            assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1), "round {round}");
            if round % 500 == 0 {
                // Long enough for the workers to fall asleep.
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
    }

    #[test]
    fn splits_cover_without_overlap_and_nest() {
        let pool = Pool::new(2);
        let sum = AtomicUsize::new(0);
        pool.split(1001, 10, 4, |outer| {
            assert_eq!(outer.start % 4, 0);
            pool.split(outer.len(), 1, 1, |inner| {
                sum.fetch_add(inner.len(), Ordering::Relaxed);
            });
        });
        assert_eq!(sum.into_inner(), 1001);
        pool.split(0, 1, 1, |_| panic!("nothing to do"));
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let pool = Pool::new(2);
        let caught = catch_unwind(AssertUnwindSafe(|| pool.run(64, &|i| assert_ne!(i, 40))));
        assert!(caught.is_err());
        let sum = AtomicUsize::new(0);
        pool.run(10, &|i| {
            sum.fetch_add(i, Ordering::Relaxed);
        });
        assert_eq!(sum.into_inner(), 45);
    }
}
