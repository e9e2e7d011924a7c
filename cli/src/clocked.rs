//! A device that tells how long the host waited for it.
//!
//! What a token costs the host is its wall time less the time in `wait`. Counting it here keeps
//! clocks out of the library's path.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use warploom::Result;
use warploom::base::platform::BoxFuture;
use warploom::kernel::KernelSpec;
use warploom::provider::{
    Args, BufferId, BufferRange, Completion, Counters, Device, DeviceProfile, PreparedId,
    Recording, Resource, Ticket, Usage,
};

/// Another device with a clock on `wait`.
pub(crate) struct Clocked {
    inner: Arc<dyn Device>,
    waited: AtomicU64,
}

impl Clocked {
    pub(crate) fn new(inner: Arc<dyn Device>) -> Clocked {
        Clocked { inner, waited: AtomicU64::new(0) }
    }

    /// Time spent in `wait` so far.
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
        self.inner.submit(work)
    }

    fn wait(&self, ticket: Ticket) -> BoxFuture<'_, Result<Completion>> {
        Box::pin(async move {
            let start = Instant::now();
            let done = self.inner.wait(ticket).await;
            let nanos = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.waited.fetch_add(nanos, Ordering::Relaxed);
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
