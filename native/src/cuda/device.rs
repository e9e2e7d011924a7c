//! One open device: its tables, its memory, and the methods of `Device`, which delegate to other
//! modules.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::blas::Blas;
use super::compile::{Compiler, Kernel};
use super::driver::Driver;
use super::gpu::Gpu;
use super::memory::{Event, Memory};
use super::nvrtc::Nvrtc;
use super::prepare::Prepared;
use super::transfer::{PinnedPool, Staging};
use super::wait::Pending;
use crate::Buffers;
use warploom_core::base::platform::BoxFuture;
use warploom_core::error::Result;
use warploom_hal::{
    Args, BufferId, BufferRange, Completion, Counters, Device, DeviceProfile, OpenOptions,
    PreparedId, Recording, Resource, Table, Ticket, Usage,
};
use warploom_kernels::KernelSpec;

pub(super) struct CudaDevice {
    pub(super) profile: DeviceProfile,
    pub(super) compiler: Arc<Compiler>,
    state: Mutex<State>,
    /// The GEMM library, created for the first kernel that needs it. Lock order: a holder of this
    /// lock may take the state lock, never the reverse.
    pub(super) blas: Mutex<Option<Arc<Blas>>>,
    // Dropped after the state and the library, whose memory is freed in its stream.
    pub(super) gpu: Arc<Gpu>,
}

pub(super) struct State {
    pub(super) buffers: Buffers<Memory>,
    // Freed objects that may still be in use, each with the last submit that may use it.
    pub(super) retired: Vec<(u64, Box<dyn Send>)>,
    pub(super) prepared: Table<Prepared>,
    pub(super) kernels: HashMap<KernelSpec, Arc<Kernel>>,
    pub(super) pending: VecDeque<Pending>,
    pub(super) tickets: u64,
    /// The last submit known to be complete.
    pub(super) done: u64,
    pub(super) staging: Staging,
    pub(super) downloads: PinnedPool,
    /// Events for reuse.
    pub(super) events: Vec<Event>,
    /// Recorded after the last copy from or to another device.
    pub(super) peer: Option<Arc<Event>>,
    /// Time origin of timestamps.
    pub(super) epoch: Option<Event>,
    pub(super) counters: Counters,
}

impl CudaDevice {
    pub(super) fn open(
        driver: &Driver,
        nvrtc: &'static Nvrtc,
        profile: DeviceProfile,
        options: &OpenOptions,
    ) -> Result<Arc<dyn Device>> {
        let gpu = Gpu::open(profile.index)?;
        let compiler = Arc::new(Compiler::new(&gpu, driver, nvrtc, &profile)?);
        let largest = profile.max_buffer_bytes;
        let state = State {
            buffers: Buffers::new(profile.id(), options.memory_budget, largest),
            retired: Vec::new(),
            prepared: Table::default(),
            kernels: HashMap::new(),
            pending: VecDeque::new(),
            tickets: 0,
            done: 0,
            staging: Staging::new(),
            downloads: PinnedPool::default(),
            events: Vec::new(),
            peer: None,
            epoch: None,
            counters: Counters::default(),
        };
        let blas = Mutex::default();
        Ok(Arc::new(CudaDevice { profile, compiler, state: Mutex::new(state), blas, gpu }))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // A poisoned lock is safe: the tables are consistent between driver calls.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn alloc_buffer(&self, bytes: u64, usage: Usage) -> Result<BufferId> {
        self.gpu.check_lost()?;
        let _current = self.gpu.enter()?;
        let mut state = self.state();
        state.buffers.admit(bytes, usage)?;
        let what = format!("a {usage:?} buffer on {}", self.profile.id());
        let memory = Memory::zeroed(&self.gpu, bytes, &what)?;
        state.counters.allocations += 1;
        Ok(state.buffers.insert(memory, bytes))
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        // Kernels, graphs and pinned memory may be in use until the stream is empty.
        if let Ok(_current) = self.gpu.enter() {
            let _ = self.gpu.synchronize();
        }
    }
}

impl Device for CudaDevice {
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

    fn copy_from(&self, to: BufferRange, source: &dyn Device, from: BufferRange) -> Result<()> {
        self.copy_from_device(to, source, from)
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
        // Fails if the device is lost, which does not prevent releasing the objects.
        let _current = self.gpu.enter();
        let mut state = self.state();
        match what {
            Resource::Buffer(id) => drop(state.buffers.remove(id)),
            Resource::Prepared(PreparedId { index, generation }) => {
                if let Some(prepared) = state.prepared.remove(index, generation) {
                    state.retire(Box::new(prepared));
                }
            }
            Resource::Kernel(spec) => {
                if let Some(kernel) = state.kernels.remove(&spec) {
                    state.retire(Box::new(kernel));
                }
            }
        }
    }

    fn counters(&self) -> Counters {
        let state = self.state();
        Counters { allocated_bytes: state.buffers.used(), ..state.counters }
    }
}
