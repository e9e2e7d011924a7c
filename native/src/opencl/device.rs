//! One open device: its tables, its memory, and the methods of `Device`, which delegate to other
//! modules.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::cl::{Context, Event, Queue};
use super::compile::{self, Compiler, Kernel};
use super::faults::{Faults, is_memory};
use super::memory::{Buffer, Staged};
use super::prepare::Prepared;
use super::profile::{self, Found};
use super::wait::Pending;
use crate::{BlobCache, Buffers};
use warploom_core::base::platform::BoxFuture;
use warploom_core::error::{Error, Result};
use warploom_hal::{
    Args, BufferId, BufferRange, Completion, Counters, Device, DeviceProfile, OpenOptions,
    PreparedId, Recording, Resource, Table, Ticket, Usage,
};
use warploom_kernels::KernelSpec;

pub(super) struct OpenClDevice {
    pub(super) profile: DeviceProfile,
    pub(super) faults: Faults,
    // Dropped in this order: the objects of a context before the context.
    state: Mutex<State>,
    pub(super) queue: Queue,
    pub(super) compiler: Arc<Compiler>,
}

pub(super) struct State {
    pub(super) pending: VecDeque<Pending>,
    /// Completion of the last submit.
    pub(super) last: Option<Arc<Event>>,
    pub(super) staged: Staged,
    pub(super) prepared: Table<Prepared>,
    pub(super) kernels: HashMap<KernelSpec, Arc<Kernel>>,
    pub(super) buffers: Buffers<Buffer>,
    pub(super) tickets: u64,
    pub(super) counters: Counters,
}

impl OpenClDevice {
    /// Opens a device. Sub-groups are disabled in its profile if its compiler does not support
    /// them.
    pub(super) fn open(found: &Found, options: &OpenOptions) -> Result<OpenClDevice> {
        let device_error = |code| {
            let Found { profile, .. } = found;
            Error::device(format!("{} {:?} cannot be opened: {code}", profile.id(), profile.name))
        };
        let context = Context::new(found.id).map_err(device_error)?;
        let queue = context.queue(found.id).map_err(device_error)?;
        let mut profile = match options.floor {
            true => profile::at_floor(&found.profile),
            false => found.profile.clone(),
        };
        if profile.has_subgroups
            && let Err(why) = compile::probe_subgroups(&context, found.id, &profile)
        {
            tracing::info!("{} is used without sub-groups: {why}", profile.id());
            (profile.has_subgroups, profile.subgroup_min, profile.subgroup_max) = (false, 0, 0);
        }
        let budget = options.memory_budget.unwrap_or(profile.memory_bytes);
        let buffers = Buffers::new(profile.id(), Some(budget), profile.max_buffer_bytes);
        let state = State {
            pending: VecDeque::new(),
            last: None,
            staged: Staged::default(),
            prepared: Table::default(),
            kernels: HashMap::new(),
            buffers,
            tickets: 0,
            counters: Counters::default(),
        };
        let compiler = Compiler {
            context,
            device: found.id,
            profile: profile.clone(),
            extensions: found.extensions.clone(),
            cache: BlobCache::open("opencl"),
        };
        Ok(OpenClDevice {
            faults: Faults::new(profile.id()),
            profile,
            state: Mutex::new(state),
            queue,
            compiler: Arc::new(compiler),
        })
    }

    pub(super) fn context(&self) -> &Context {
        &self.compiler.context
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // A poisoned lock is safe: the tables are consistent between driver calls.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn alloc_buffer(&self, bytes: u64, usage: Usage) -> Result<BufferId> {
        self.faults.check_lost()?;
        let mut state = self.state();
        state.buffers.admit(bytes, usage)?;
        let buffer = Buffer::new(self.context(), &self.queue, bytes, self.profile.shared_memory);
        let buffer = buffer.map_err(|code| {
            let what = format!("a {usage:?} buffer");
            let error = self.faults.convert(code, &self.queue, &what);
            if !is_memory(code) || error.is_device_lost() {
                return error;
            }
            let left = self.profile.memory_bytes.saturating_sub(state.buffers.used());
            let what = format!("{what} on {} (the driver refused: {code})", self.profile.id());
            Error::out_of_memory(what, bytes, left)
        })?;
        state.counters.allocations += 1;
        Ok(state.buffers.insert(buffer, bytes))
    }
}

impl Device for OpenClDevice {
    fn profile(&self) -> &DeviceProfile {
        &self.profile
    }

    fn compile<'a>(&'a self, spec: &'a KernelSpec) -> BoxFuture<'a, Result<()>> {
        self.compile_kernel(spec)
    }

    fn alloc(&self, bytes: u64, usage: Usage) -> Result<BufferId> {
        self.alloc_buffer(bytes, usage)
    }

    fn write(&self, to: BufferRange, bytes: &[u8]) -> Result<()> {
        self.write_bytes(to, bytes)
    }

    fn prepare(&self, work: &Recording, slots: &[Option<BufferRange>]) -> Result<PreparedId> {
        self.prepare_recording(work, slots)
    }

    fn submit(&self, work: &[(PreparedId, Args)]) -> Result<Ticket> {
        self.submit_work(work)
    }

    fn wait(&self, ticket: Ticket) -> BoxFuture<'_, Result<Completion>> {
        Box::pin(async move { self.wait_for(ticket) })
    }

    fn free(&self, what: Resource) {
        let mut state = self.state();
        // The driver retains objects that enqueued commands use.
        match what {
            Resource::Buffer(id) => drop(state.buffers.remove(id)),
            Resource::Prepared(PreparedId { index, generation }) => {
                drop(state.prepared.remove(index, generation));
            }
            Resource::Kernel(spec) => drop(state.kernels.remove(&spec)),
        }
    }

    fn counters(&self) -> Counters {
        let state = self.state();
        Counters { allocated_bytes: state.buffers.used(), ..state.counters }
    }
}
