//! A provider of devices that behave like those of another provider, except for one fault.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{DeviceFault, EXPONENT, NOT_A_NUMBER};
use warploom::Result;
use warploom::kernel::{Access, KernelSpec};
use warploom::provider::{
    Args, BufferId, BufferRange, Command, Completion, Counters, Device, DeviceProfile, OpenOptions,
    PreparedId, Provider, Recording, Resource, Ticket, Usage,
};
use warploom_core::base::platform::BoxFuture;

/// A deliberately faulty provider.
pub struct FaultyProvider {
    inner: Arc<dyn Provider>,
    fault: DeviceFault,
}

impl FaultyProvider {
    /// Wraps a provider; its devices have the fault.
    pub fn new(inner: Arc<dyn Provider>, fault: DeviceFault) -> FaultyProvider {
        FaultyProvider { inner, fault }
    }
}

impl Provider for FaultyProvider {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<DeviceProfile>>> {
        self.inner.list()
    }

    fn absence(&self) -> Option<String> {
        self.inner.absence()
    }

    fn open(&self, index: usize, options: OpenOptions) -> BoxFuture<'_, Result<Arc<dyn Device>>> {
        Box::pin(async move {
            let inner = self.inner.open(index, options).await?;
            let device = FaultyDevice { inner, fault: self.fault, state: Mutex::default() };
            Ok(Arc::new(device) as Arc<dyn Device>)
        })
    }
}

struct FaultyDevice {
    inner: Arc<dyn Device>,
    fault: DeviceFault,
    state: Mutex<State>,
}

/// The part of submitted work that the fault needs.
#[derive(Default)]
struct State {
    prepared: HashMap<PreparedId, Work>,
    /// For each download of a submit, whether it is a result of kernels.
    downloads: BTreeMap<Ticket, Vec<bool>>,
    /// The previous result, for [`DeviceFault::Stale`].
    result: Option<Vec<u8>>,
}

#[derive(Clone)]
struct Work {
    downloads: usize,
    computes: bool,
    /// Range written by the last kernel.
    written: Option<BufferRange>,
}

impl FaultyDevice {
    fn state(&self) -> MutexGuard<'_, State> {
        // Values stay consistent if another thread panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies the fault to a result.
    fn spoil(&self, result: &mut Vec<u8>) {
        let middle = result.len() / 8 * 4;
        let word = result.get_mut(middle..middle + 4);
        match (self.fault, word) {
            (DeviceFault::WrongElement, Some(word)) => word[3] ^= EXPONENT.to_le_bytes()[3],
            (DeviceFault::NotANumber, Some(word)) => {
                word.copy_from_slice(&NOT_A_NUMBER.to_le_bytes());
            }
            (DeviceFault::Zeros, _) => result.fill(0),
            (DeviceFault::Stale, _) => {
                let before = self.state().result.replace(result.clone());
                if let Some(mut before) = before {
                    before.resize(result.len(), 0);
                    *result = before;
                }
            }
            _ => {}
        }
    }
}

/// Returns the range written by the last kernel of a recording, if its buffer is known.
fn written(work: &Recording, slots: &[Option<BufferRange>]) -> Option<BufferRange> {
    let dispatch = work.commands.iter().rev().find_map(|command| match command {
        Command::Dispatch(dispatch) => Some(dispatch),
        _ => None,
    })?;
    let binding = dispatch.bindings.iter().find(|b| b.access == Access::ReadWrite)?;
    *slots.get(binding.slot as usize)?
}

impl Device for FaultyDevice {
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
        let mut changed = work.clone();
        if self.fault == DeviceFault::KernelLeftOut {
            let is_kernel = |command: &Command| matches!(command, Command::Dispatch(_));
            changed.commands.iter().rposition(is_kernel).map(|last| changed.commands.remove(last));
        }
        let prepared = self.inner.prepare(&changed, slots)?;
        let (downloads, computes) = (work.downloads(), work.dispatches() > 0);
        let work = Work { downloads, computes, written: written(work, slots) };
        self.state().prepared.insert(prepared, work);
        Ok(prepared)
    }

    fn submit(&self, work: &[(PreparedId, Args)]) -> Result<Ticket> {
        let ticket = self.inner.submit(work)?;
        let mut downloads = Vec::new();
        for (prepared, _) in work {
            let Some(work) = self.state().prepared.get(prepared).cloned() else { continue };
            downloads.extend(vec![work.computes; work.downloads]);
            if let (DeviceFault::PastTheEnd, Some(range)) = (self.fault, work.written) {
                let offset = range.offset + range.bytes;
                self.inner.write(BufferRange { offset, bytes: 4, ..range }, &[1, 2, 3, 4])?;
            }
        }
        self.state().downloads.insert(ticket, downloads);
        Ok(ticket)
    }

    fn wait(&self, ticket: Ticket) -> BoxFuture<'_, Result<Completion>> {
        Box::pin(async move {
            let mut completion = self.inner.wait(ticket).await?;
            let results = self.state().downloads.remove(&ticket).unwrap_or_default();
            for (bytes, is_result) in completion.downloads.iter_mut().zip(results) {
                if is_result {
                    self.spoil(bytes);
                }
            }
            Ok(completion)
        })
    }

    fn free(&self, what: Resource) {
        if let Resource::Prepared(prepared) = &what {
            self.state().prepared.remove(prepared);
        }
        self.inner.free(what);
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}
