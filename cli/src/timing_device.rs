//! A device wrapper that measures how long the host waits for the device, and how long the device
//! waits for the host.
//!
//! The host time of a token is its wall time without the time in `wait`. The idle time of the
//! device is the time from the timestamp that ends one submit to the one that begins the next. The
//! wrapper keeps clocks out of the library.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use warploom::Result;
use warploom::kernel::KernelSpec;
use warploom::provider::{
    Args, BufferId, BufferRange, Command, Completion, Counters, Device, DeviceProfile, PreparedId,
    Recording, Resource, Ticket, Usage,
};
use warploom_core::base::platform::BoxFuture;

/// A device whose `wait` is timed, and whose submits are timed on request.
pub(crate) struct Clocked {
    inner: Arc<dyn Device>,
    waited: AtomicU64,
    stamps: Mutex<Stamps>,
}

/// State of the timestamps around submits.
#[derive(Default)]
struct Stamps {
    /// A recording of one timestamp; present while submits are timed.
    stamp: Option<PreparedId>,
    /// Timed submits that have not been waited for.
    running: HashSet<Ticket>,
    /// Begin and end of completed timed submits, in nanoseconds of the device's clock.
    done: Vec<(u64, u64)>,
}

impl Clocked {
    pub(crate) fn new(inner: Arc<dyn Device>) -> Clocked {
        Clocked { inner, waited: AtomicU64::new(0), stamps: Mutex::default() }
    }

    fn stamps(&self) -> MutexGuard<'_, Stamps> {
        // Each change is a single call, so the state is consistent even after a panic.
        self.stamps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts timestamps around every submit from now on.
    pub(crate) fn begin_timing(&self) -> Result<()> {
        let commands = vec![Command::Timestamp];
        let stamp = self.inner.prepare(&Recording { commands, ..Recording::default() }, &[])?;
        *self.stamps() = Stamps { stamp: Some(stamp), ..Stamps::default() };
        Ok(())
    }

    /// Stops timing. Returns the fraction of the time from the first timed submit's begin to the
    /// last one's end in which none ran, 0 to 1; `None` if fewer than two completed.
    pub(crate) fn end_timing(&self) -> Option<f64> {
        let Stamps { stamp, mut done, .. } = std::mem::take(&mut *self.stamps());
        if let Some(stamp) = stamp {
            self.inner.free(Resource::Prepared(stamp));
        }
        done.sort_unstable();
        idle_share(&done)
    }

    /// Moves the outer two timestamps of a timed submit from its completion to the state.
    fn timed(&self, ticket: Ticket, completion: &mut Completion) {
        let mut stamps = self.stamps();
        if !stamps.running.remove(&ticket) || completion.timestamps.len() < 2 {
            return;
        }
        let begin = completion.timestamps.remove(0);
        stamps.done.extend(completion.timestamps.pop().map(|end| (begin, end)));
    }

    /// Returns the total time spent in `wait`.
    pub(crate) fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited.load(Ordering::Relaxed))
    }
}

impl Device for Clocked {
    fn profile(&self) -> &DeviceProfile {
        self.inner.profile()
    }

    fn compile<'a>(&'a self, spec: &'a KernelSpec) -> BoxFuture<'a, Result<()>> {
        self.inner.compile(spec)
    }

    fn alloc(&self, bytes: u64, usage: Usage) -> Result<BufferId> {
        self.inner.alloc(bytes, usage)
    }

    fn write(&self, to: BufferRange, bytes: &[u8]) -> Result<()> {
        self.inner.write(to, bytes)
    }

    fn prepare(&self, work: &Recording, slots: &[Option<BufferRange>]) -> Result<PreparedId> {
        self.inner.prepare(work, slots)
    }

    fn submit(&self, work: &[(PreparedId, Args)]) -> Result<Ticket> {
        let Some(stamp) = self.stamps().stamp else { return self.inner.submit(work) };
        let stamp = [(stamp, Args::default())];
        let ticket = self.inner.submit(&[&stamp, work, &stamp].concat())?;
        self.stamps().running.insert(ticket);
        Ok(ticket)
    }

    fn wait(&self, ticket: Ticket) -> BoxFuture<'_, Result<Completion>> {
        Box::pin(async move {
            let start = Instant::now();
            let mut done = self.inner.wait(ticket).await;
            let nanos = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.waited.fetch_add(nanos, Ordering::Relaxed);
            if let Ok(completion) = &mut done {
                self.timed(ticket, completion);
            }
            done
        })
    }

    fn free(&self, what: Resource) {
        self.inner.free(what);
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

/// Returns the fraction of the time from the first begin to the last end that lies in none of the
/// intervals; they are in order. Returns `None` for fewer than two.
fn idle_share(done: &[(u64, u64)]) -> Option<f64> {
    let (Some((begin, _)), Some((_, end)), 2..) = (done.first(), done.last(), done.len()) else {
        return None;
    };
    let gaps = done.windows(2).map(|pair| pair[1].0.saturating_sub(pair[0].1));
    Some(gaps.sum::<u64>() as f64 / end.saturating_sub(*begin).max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use warploom::provider::{NullProvider, OpenOptions, Provider};

    #[test]
    fn what_lies_between_submits_is_idle() {
        assert_eq!(idle_share(&[(0, 40), (50, 80), (80, 100)]), Some(0.1));
        assert_eq!(idle_share(&[(0, 40), (40, 100)]), Some(0.0));
        // Clocks of two queues may overlap by a tick.
        assert_eq!(idle_share(&[(0, 51), (50, 100)]), Some(0.0));
        assert_eq!(idle_share(&[(0, 40)]), None);
    }

    #[test]
    fn a_timed_submit_gives_what_it_gave_before() {
        let provider = NullProvider;
        let inner =
            warploom_core::base::platform::block_on(provider.open(0, OpenOptions::default()));
        let clocked = Clocked::new(inner.unwrap());
        let stamp = Recording { commands: vec![Command::Timestamp], ..Recording::default() };
        let work = clocked.prepare(&stamp, &[]).unwrap();
        let run = || {
            let ticket = clocked.submit(&[(work, Args::default())]).unwrap();
            warploom_core::base::platform::block_on(clocked.wait(ticket)).unwrap().timestamps.len()
        };
        assert_eq!(run(), 1);
        clocked.begin_timing().unwrap();
        assert_eq!((run(), run()), (1, 1));
        assert!(clocked.end_timing().is_some());
        assert_eq!((run(), clocked.end_timing()), (1, None));
    }
}
