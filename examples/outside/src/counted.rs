//! A provider that wraps another and counts the bytes that its devices allocate. The devices are
//! called `counted:0`, `counted:1` and so on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use warploom::Result;
use warploom::kernel::KernelSpec;
use warploom::provider::BoxFuture;
use warploom::provider::{
    Args, BufferId, BufferRange, Completion, Counters, Device, DeviceProfile, OpenOptions,
    PreparedId, Provider, Recording, Resource, Ticket, Usage,
};

/// The provider's name.
const NAME: &str = "counted";

/// Wraps a provider and counts the bytes that its devices allocate.
pub struct Counted<P> {
    inner: P,
    bytes: Arc<AtomicU64>,
}

impl<P: Provider> Counted<P> {
    /// Wraps `inner`. Only devices that are opened through the wrapper are counted.
    pub fn new(inner: P) -> Counted<P> {
        Counted { inner, bytes: Arc::default() }
    }

    /// Returns the bytes that all devices opened through the wrapper have allocated so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl<P: Provider> Provider for Counted<P> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<DeviceProfile>>> {
        Box::pin(async move {
            let profiles = self.inner.list().await?;
            Ok(profiles.iter().map(counted).collect())
        })
    }

    fn absence(&self) -> Option<String> {
        self.inner.absence()
    }

    fn open(&self, index: usize, options: OpenOptions) -> BoxFuture<'_, Result<Arc<dyn Device>>> {
        Box::pin(async move {
            let inner = self.inner.open(index, options).await?;
            let (profile, bytes) = (counted(inner.profile()), self.bytes.clone());
            Ok(Arc::new(CountedDevice { profile, inner, bytes }) as Arc<dyn Device>)
        })
    }
}

/// Returns the profile under this provider's name, as a runtime requires.
fn counted(profile: &DeviceProfile) -> DeviceProfile {
    profile.clone().with(|p| p.provider = NAME.into())
}

struct CountedDevice {
    profile: DeviceProfile,
    inner: Arc<dyn Device>,
    bytes: Arc<AtomicU64>,
}

impl Device for CountedDevice {
    fn profile(&self) -> &DeviceProfile {
        &self.profile
    }

    fn compile<'a>(&'a self, spec: &'a KernelSpec) -> BoxFuture<'a, Result<()>> {
        self.inner.compile(spec)
    }

    fn alloc(&self, bytes: u64, usage: Usage) -> Result<BufferId> {
        let buffer = self.inner.alloc(bytes, usage)?;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(buffer)
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
        self.inner.wait(ticket)
    }

    fn free(&self, what: Resource) {
        self.inner.free(what);
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}
