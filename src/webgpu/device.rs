//! An open device: its tables and memory, and the methods of [`Device`] as thin calls to other
//! modules.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::compile::{Kernel, Layout, LayoutKey};
use super::faults::{Faults, Scopes};
use super::prepare::Prepared;
use super::profile;
use super::timing::Queries;
use super::transfer::{Flushes, Staging, StagingPool};
use super::wait::Pending;
use crate::base::platform::{BROWSER, BoxFuture, poll_once};
use crate::error::{Error, Result};
use crate::kernel::KernelSpec;
use crate::provider::Table;
use crate::provider::checked::LiveBuffers;
use crate::provider::{
    Args, BufferId, BufferRange, Completion, Counters, Device, DeviceKind, DeviceProfile,
    OpenOptions, PreparedId, Recording, Resource, Ticket, Usage,
};

/// Origin of a `wgpu::Device`.
#[derive(Default)]
pub(super) struct Source {
    /// The device's index in the provider's list.
    pub(super) index: usize,
    /// The adapter's description; `None` uses the device's own.
    pub(super) info: Option<wgpu::AdapterInfo>,
    /// Whether cooperative matrices also accumulate in f16; unknown, so false, for an embedder's
    /// device.
    pub(super) f16_accumulate: bool,
}

pub(super) struct WebGpuDevice {
    pub(super) profile: DeviceProfile,
    pub(super) gpu: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    pub(super) faults: Arc<Faults>,
    /// Maximum bytes of one uniform binding.
    pub(super) max_uniform_bytes: u64,
    /// Nanoseconds per tick of the device's clock; 0 without timestamps.
    pub(super) tick: f64,
    budget: Option<u64>,
    state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) buffers: Table<Buffer>,
    pub(super) prepared: Table<Prepared>,
    pub(super) kernels: HashMap<KernelSpec, Arc<Kernel>>,
    pub(super) layouts: BTreeMap<LayoutKey, Arc<Layout>>,
    pub(super) pending: VecDeque<Pending>,
    pub(super) tickets: u64,
    /// Number of buffers freed so far. Prepared work checked at this count has only live buffers.
    pub(super) freed: u64,
    pub(super) staging: Staging,
    pub(super) downloads: StagingPool,
    pub(super) queries: Option<Queries>,
    pub(super) flushes: Flushes,
    pub(super) counters: Counters,
}

/// A device buffer.
pub(super) struct Buffer {
    pub(super) gpu: wgpu::Buffer,
    /// Bytes requested; the allocation is rounded up to a multiple of 4.
    pub(super) bytes: u64,
    /// Whether the application made it, and destroys it.
    pub(super) is_foreign: bool,
}

impl WebGpuDevice {
    /// Wraps a `wgpu::Device` and installs its error callbacks.
    #[allow(
        clippy::arc_with_non_send_sync,
        reason = "devices are handed out in an Arc everywhere; in a browser there is one thread"
    )]
    pub(super) fn open(
        gpu: wgpu::Device,
        queue: wgpu::Queue,
        source: Source,
        options: &OpenOptions,
    ) -> Arc<dyn Device> {
        let info = source.info.unwrap_or_else(|| gpu.adapter_info());
        let limits = gpu.limits();
        let mut profile = profile::profile_of(&info, gpu.features(), &limits, source.index);
        profile.has_f16_accumulate = source.f16_accumulate && profile.has_matrix_hw;
        #[cfg(target_arch = "wasm32")]
        if let Some([min, max]) = super::browser_subgroups::sizes(&gpu) {
            (profile.has_subgroups, profile.subgroup_min, profile.subgroup_max) = (true, min, max);
        }
        let faults = Faults::install(&gpu, profile.id());
        let tick =
            if profile.has_timestamps { f64::from(queue.get_timestamp_period()) } else { 0. };
        Arc::new(WebGpuDevice {
            profile,
            gpu,
            queue,
            faults,
            max_uniform_bytes: limits.max_uniform_buffer_binding_size,
            tick,
            budget: options.memory_budget,
            state: Mutex::default(),
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // The tables stay consistent if a thread panics between two wgpu calls.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the device is a GPU, so that a spinning wait takes no resources from its
    /// work.
    pub(super) fn is_hardware(&self) -> bool {
        matches!(self.profile.kind, DeviceKind::Discrete | DeviceKind::Integrated)
    }

    fn alloc_buffer(&self, bytes: u64, usage: Usage) -> Result<BufferId> {
        self.faults.check_lost()?;
        if bytes == 0 {
            return Err(Error::invalid(format!("a {usage:?} buffer of 0 bytes")));
        }
        let mut state = self.state();
        let what = || format!("a {usage:?} buffer on {}", self.profile.id());
        let used = state.counters.allocated_bytes;
        let left = self.budget.map_or(u64::MAX, |budget| budget.saturating_sub(used));
        if bytes > left {
            return Err(Error::out_of_memory(what(), bytes, left));
        }
        if bytes > self.profile.max_buffer_bytes {
            let have = self.profile.max_buffer_bytes;
            return Err(Error::out_of_memory(format!("{} (its limit)", what()), bytes, have));
        }
        let scopes = (!BROWSER).then(|| Scopes::open(&self.gpu));
        let gpu = cleared_buffer(
            &self.gpu,
            &self.queue,
            &wgpu::BufferDescriptor {
                label: Some(match usage {
                    Usage::Weights => "weights",
                    Usage::State => "state",
                    Usage::Working => "working",
                }),
                size: bytes.next_multiple_of(4),
                usage: wgpu::BufferUsages::STORAGE
                    | wgpu::BufferUsages::COPY_SRC
                    | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            },
        );
        // In a browser the answer is a promise: an error reaches `wait` through the record.
        if let Some(Some(error)) = scopes.and_then(|scopes| poll_once(scopes.close())) {
            let have = if left == u64::MAX { 0 } else { left };
            return Err(self.error_of(error, &what(), Some((bytes, have))));
        }
        // A destroyed device gives no error here: it reports its loss when it is polled.
        if !BROWSER {
            let _ = self.poll(wgpu::PollType::Poll)?;
        }
        self.faults.check_lost()?;
        let (index, generation) = state.buffers.insert(Buffer { gpu, bytes, is_foreign: false });
        state.counters.allocations += 1;
        state.counters.allocated_bytes += bytes;
        Ok(BufferId { index, generation })
    }
}

/// Creates a buffer that takes writes. In a browser the device clears it first.
///
/// Chromium else clears a buffer at its first partial write, on the host where the host can map the
/// memory. With that, rows of weights were lost on an NVIDIA H200 (Chromium 156, Vulkan), and none
/// with Dawn's lazy clearing switched off.
pub(super) fn cleared_buffer(
    gpu: &wgpu::Device,
    queue: &wgpu::Queue,
    descriptor: &wgpu::BufferDescriptor<'_>,
) -> wgpu::Buffer {
    let buffer = gpu.create_buffer(descriptor);
    if BROWSER {
        let mut encoder = gpu.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encoder.clear_buffer(&buffer, 0, None);
        queue.submit([encoder.finish()]);
    }
    buffer
}

impl State {
    /// Returns the live buffer of a range, or an error if the range exceeds the buffer.
    pub(super) fn buffer(&self, range: BufferRange) -> Result<&Buffer> {
        let BufferId { index, generation } = range.buffer;
        let buffer = self.buffers.get(index, generation);
        let buffer = buffer.ok_or_else(|| {
            Error::invalid(format!("{:?} is not a live buffer of this device", range.buffer))
        })?;
        match range.offset.checked_add(range.bytes) {
            Some(end) if end <= buffer.bytes => Ok(buffer),
            _ => Err(Error::invalid(format!(
                "{} bytes at {} pass the end of {:?} at {}",
                range.bytes, range.offset, range.buffer, buffer.bytes
            ))),
        }
    }
}

impl LiveBuffers for State {
    fn check(&self, range: BufferRange) -> Result<()> {
        self.buffer(range).map(drop)
    }

    fn freed(&self) -> u64 {
        self.freed
    }
}

impl Device for WebGpuDevice {
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
        Box::pin(self.wait_for(ticket))
    }

    fn free(&self, what: Resource) {
        let mut state = self.state();
        match what {
            Resource::Buffer(BufferId { index, generation }) => {
                if let Some(buffer) = state.buffers.remove(index, generation)
                    && !buffer.is_foreign
                {
                    // Bind groups of prepared work hold the object, but the memory must be freed.
                    // wgpu keeps it until submitted work is done with it.
                    buffer.gpu.destroy();
                    state.counters.allocated_bytes -= buffer.bytes;
                    state.freed += 1;
                }
            }
            Resource::Prepared(PreparedId { index, generation }) => {
                state.prepared.remove(index, generation);
            }
            Resource::Kernel(spec) => {
                state.kernels.remove(&spec);
            }
        }
    }

    fn counters(&self) -> Counters {
        self.state().counters
    }
}
