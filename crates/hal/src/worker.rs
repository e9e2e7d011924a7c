//! Background threads that run jobs, so that a future need not block the thread that polls it.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::{Context, Poll};
use std::thread;

use warploom_core::base::oneshot::{self, Receiver};
use warploom_core::base::platform::panic_text;
use warploom_core::error::{Error, Result};

/// Stack size of a worker in bytes (reserved, committed on use): planning recurses over graphs, and
/// some drivers compile on the calling thread.
const STACK: usize = 64 << 20;

type Job = Box<dyn FnOnce() + Send>;

/// A background thread that starts with its first job and runs jobs in order.
///
/// Dropping it discards jobs that have not begun and waits for the one that has: a process that
/// exits while a driver works may crash. It does not wait if it is dropped by its own thread.
pub struct Worker {
    name: &'static str,
    running: Mutex<Option<Running>>,
}

struct Running {
    jobs: mpsc::Sender<Job>,
    thread: thread::JoinHandle<()>,
    stopped: Arc<AtomicBool>,
}

/// The result of a job, as a future. Dropping it neither cancels the job nor waits for it.
#[must_use = "futures do nothing unless they are awaited"]
pub struct Outcome<T> {
    name: &'static str,
    state: State<T>,
}

enum State<T> {
    Queued(Receiver<Result<T>>),
    /// The job could not be queued.
    Failed(Option<Error>),
}

impl Worker {
    /// Creates a worker; its thread will have this name.
    pub const fn new(name: &'static str) -> Worker {
        Worker { name, running: Mutex::new(None) }
    }

    /// Queues a job. If it panics, the thread continues with the next job.
    ///
    /// # Errors
    /// I/O if the system cannot create the thread; device if the thread has ended.
    pub fn spawn(&self, job: impl FnOnce() + Send + 'static) -> Result<()> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let running = match &mut *running {
            Some(running) => running,
            none => none.insert(Running::start(self.name)?),
        };
        let sent = running.jobs.send(Box::new(job));
        sent.map_err(|_| Error::device(format!("the thread {:?} has ended", self.name)))
    }

    /// Queues a job and returns its result as a future. A panic in the job becomes an error.
    pub fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Outcome<T> {
        let (sender, result) = oneshot::channel();
        let name = self.name;
        let state = match self.spawn(move || sender.send(caught(name, job))) {
            Ok(()) => State::Queued(result),
            Err(error) => State::Failed(Some(error)),
        };
        Outcome { name, state }
    }
}

/// Runs a job on a thread of its own and returns its result as a future. A panic in the job becomes
/// an error.
pub fn on_thread<T: Send + 'static>(
    name: &'static str,
    job: impl FnOnce() -> Result<T> + Send + 'static,
) -> Outcome<T> {
    let (sender, result) = oneshot::channel();
    let thread = thread::Builder::new().name(name.into()).stack_size(STACK);
    let state = match thread.spawn(move || sender.send(caught(name, job))) {
        Ok(_) => State::Queued(result),
        Err(error) => State::Failed(Some(Error::io(format!("the thread {name:?}"), error))),
    };
    Outcome { name, state }
}

fn caught<T>(name: &str, job: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(job)).unwrap_or_else(|panic| {
        Err(Error::device(format!("the thread {name:?} panicked: {}", panic_text(&*panic))))
    })
}

impl Running {
    fn start(name: &'static str) -> Result<Running> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let stopped = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopped);
        let work = move || {
            while let Ok(job) = queue.recv() {
                if !stop.load(Ordering::Relaxed) {
                    // The panic is reported by what the job drops.
                    let _ = catch_unwind(AssertUnwindSafe(job));
                }
            }
        };
        let thread = thread::Builder::new().name(name.into()).stack_size(STACK);
        let thread = thread.spawn(work);
        let thread = thread.map_err(|error| Error::io(format!("the thread {name:?}"), error))?;
        Ok(Running { jobs, thread, stopped })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let running = self.running.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Running { jobs, thread, stopped }) = running else { return };
        stopped.store(true, Ordering::Relaxed);
        drop(jobs);
        if thread.thread().id() != thread::current().id() {
            // Panics of jobs are caught, so there is none to report.
            let _ = thread.join();
        }
    }
}

impl<T> Future for Outcome<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let name = self.name;
        let ended = || Error::device(format!("the thread {name:?} ended before it began this job"));
        match &mut self.state {
            State::Queued(result) => {
                Pin::new(result).poll(context).map(|result| result.unwrap_or_else(|| Err(ended())))
            }
            State::Failed(error) => Poll::Ready(Err(error.take().unwrap_or_else(ended))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;
    use warploom_core::base::platform::{block_on, poll_once};

    #[test]
    fn jobs_run_in_order_and_a_panic_is_an_error_of_its_own_job() {
        let worker = Worker::new("test");
        let order = Arc::new(Mutex::new(Vec::new()));
        let job = |i| {
            let order = Arc::clone(&order);
            move || {
                order.lock().unwrap().push(i);
                Ok(i)
            }
        };
        let all: Vec<_> = (0..100).map(|i| worker.run(job(i))).collect();
        let panics = worker.run::<()>(|| panic!("on purpose"));
        let after = worker.run(job(100));
        for (i, one) in all.into_iter().enumerate() {
            assert_eq!(block_on(one).unwrap(), i);
        }
        let error = block_on(panics).unwrap_err().to_string();
        assert!(error.contains("\"test\" panicked: on purpose"), "{error}");
        assert_eq!(block_on(after).unwrap(), 100);
        assert_eq!(*order.lock().unwrap(), (0..=100).collect::<Vec<_>>());
        let alone = block_on(on_thread::<()>("alone", || panic!("too"))).unwrap_err();
        assert!(alone.to_string().contains("\"alone\" panicked: too"), "{alone}");
    }

    #[test]
    fn a_dropped_future_leaves_its_job_and_a_dropped_worker_waits_for_it() {
        let worker = Worker::new("test");
        let ran = Arc::new(AtomicUsize::new(0));
        let (begun, has_begun) = mpsc::channel();
        let count = Arc::clone(&ran);
        let mut first = worker.run(move || {
            begun.send(()).unwrap();
            thread::sleep(Duration::from_millis(50));
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        let count = Arc::clone(&ran);
        let second = worker.run(move || {
            count.fetch_add(10, Ordering::Relaxed);
            Ok(())
        });
        has_begun.recv().unwrap();
        assert!(poll_once(&mut first).is_none());
        drop(first);
        drop(worker);
        assert_eq!(ran.load(Ordering::Relaxed), 1);
        let error = block_on(second).unwrap_err().to_string();
        assert!(error.contains("ended before it began"), "{error}");
    }

    #[test]
    fn a_worker_may_be_dropped_by_its_own_job() {
        let worker = Arc::new(Worker::new("test"));
        let (send, receive) = mpsc::channel();
        let own = Arc::clone(&worker);
        let job = worker.run(move || {
            // From here on this job holds the last handle.
            receive.recv().unwrap();
            drop(own);
            Ok(7)
        });
        drop(worker);
        send.send(()).unwrap();
        assert_eq!(block_on(job).unwrap(), 7);
    }
}
