//! The interface between plans and hardware: two traits, and the data that they exchange.
//!
//! A [`Provider`] is a family of devices, such as `webgpu` or `cpu`: it lists devices without
//! opening them, and opens one of them. A [`Device`] compiles [`KernelSpec`]s and executes
//! [`Recording`]s. Neither knows graph operations, plans or models. Capabilities are queried in
//! advance with [`support`], work is passed as data, and everything that needs no device is done in
//! higher layers.
//!
//! Invariants:
//! - Only `wait` blocks. `submit` enqueues work; if the caller may block, the CPU provider executes
//!   it there. A later failure surfaces at the next `wait`, never as zeros in a result.
//! - Futures of GPUs block the thread that polls them, since drivers have no wakers. The runtime
//!   polls them on a [`worker`] unless its caller may block
//!   ([`runs_in_place`](warploom_core::base::platform::runs_in_place)).
//! - Futures are `Send` on native builds only, because a browser's GPU belongs to one thread.
//! - A device survives its errors: after any failure other than device loss it accepts new work.
//! - `null` executes nothing and is never selected automatically.

mod builtin_profiles;
mod calibration;
pub mod checked;
mod null;
#[cfg(not(target_arch = "wasm32"))]
pub mod parallel_compile;
mod profile;
mod recording;
mod slot_map;
#[cfg(test)]
mod support_tests;
#[cfg(not(target_arch = "wasm32"))]
pub mod worker;

use std::any::Any;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use calibration::Calibration;
pub use null::NullProvider;
pub use profile::{DeviceKind, DeviceProfile};
pub use recording::{
    Args, Binding, Command, Dispatch, ParamBlock, Recording, SlotDecl, SlotRange, UploadSource,
    Word,
};
pub use slot_map::Table;
pub use warploom_core::base::platform::{BoxFuture, MaybeSend, MaybeSendValue};

use warploom_core::error::{Error, Result};
use warploom_kernels::{KernelSpec, Schedule};

/// A family of devices.
pub trait Provider: MaybeSend {
    /// Returns the provider's name, the first part of a device id: `webgpu`, `cuda`, `opencl`,
    /// `cpu`, `null`, or a name that an application chose.
    fn name(&self) -> &'static str;
    /// Lists the profiles of all devices, without opening any. If there is no device, the list is
    /// empty; this is not an error.
    fn list(&self) -> BoxFuture<'_, Result<Vec<DeviceProfile>>>;
    /// Returns why the list is empty, for example because a library is missing. This is not an
    /// error: device listings show it, and it is never logged at startup.
    fn absence(&self) -> Option<String> {
        None
    }
    /// Opens the device at this index of [`Provider::list`].
    fn open(&self, index: usize, options: OpenOptions) -> BoxFuture<'_, Result<Arc<dyn Device>>>;
}

/// Lets a caller register a provider and keep a handle to it.
impl<P: Provider + ?Sized> Provider for Arc<P>
where
    Arc<P>: MaybeSend,
{
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<DeviceProfile>>> {
        (**self).list()
    }

    fn absence(&self) -> Option<String> {
        (**self).absence()
    }

    fn open(&self, index: usize, options: OpenOptions) -> BoxFuture<'_, Result<Arc<dyn Device>>> {
        (**self).open(index, options)
    }
}

/// How to open a device.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Whether to open the device with only the limits that WebGPU guarantees and no optional
    /// feature, for tests of that minimum.
    pub floor: bool,
    /// Allocation limit in bytes; `None` for the memory that the device reports.
    pub memory_budget: Option<u64>,
    /// Number of threads of the CPU provider; `None` for one per core.
    pub threads: Option<usize>,
}

/// An open device. `Any` lets [`Device::copy_from`] recognise other devices of the same provider.
pub trait Device: MaybeSend + Any {
    /// Returns the profile of the device.
    fn profile(&self) -> &DeviceProfile;

    /// Compiles a kernel. Completes at once if an equal spec is already compiled.
    ///
    /// # Errors
    /// Compile, with the compiler's message and the line of the source, if the kernel does not
    /// compile; unsupported, with the reason, if the device cannot execute it.
    fn compile<'a>(&'a self, spec: &'a KernelSpec) -> BoxFuture<'a, Result<()>>;

    /// Allocates zeroed memory of at least one byte. In a browser, an allocation failure surfaces
    /// at the next wait.
    ///
    /// # Errors
    /// Out of memory, with the bytes needed and available, if the budget or the device refuses. The
    /// device stays usable.
    fn alloc(&self, bytes: u64, usage: Usage) -> Result<BufferId>;

    /// Copies bytes from the host into a buffer, after everything submitted before. Length and
    /// offset are multiples of 4 bytes, except that the last chunk of an upload may be shorter.
    fn write(&self, to: BufferRange, bytes: &[u8]) -> Result<()>;

    /// Copies from a buffer of another open device without going through the host. The copy is
    /// ordered after everything submitted earlier to either device, and before everything submitted
    /// later; the call does not block. Both ranges have the same size; sizes and offsets are
    /// multiples of 4 bytes.
    ///
    /// # Errors
    /// Unsupported, with the reason and without side effects, if the only path between the devices
    /// is through the host. Invalid if a range exceeds its buffer or has a different size than the
    /// other.
    fn copy_from(&self, to: BufferRange, source: &dyn Device, from: BufferRange) -> Result<()> {
        let _ = (to, from);
        let (own, other) = (self.profile().id(), source.profile().id());
        Err(Error::unsupported(format!("{own} takes no copies from {other}")))
    }

    /// Prepares a recording that can be submitted many times. `slots[i]` is the buffer of slot `i`;
    /// `None` leaves the slot to [`Args::buffers`] of each submit. The recording's kernels must be
    /// compiled.
    fn prepare(&self, work: &Recording, slots: &[Option<BufferRange>]) -> Result<PreparedId>;

    /// Enqueues prepared work in order, in one submit. If the caller may block
    /// ([`runs_in_place`](warploom_core::base::platform::runs_in_place)), the CPU provider computes
    /// in this call.
    fn submit(&self, work: &[(PreparedId, Args)]) -> Result<Ticket>;

    /// Waits for a submit and returns its downloads. A failure of any call since the last wait is
    /// returned here, once. On native builds, futures of GPU devices block the thread that polls
    /// them. The futures of a runtime do not; await those instead.
    fn wait(&self, ticket: Ticket) -> BoxFuture<'_, Result<Completion>>;

    /// Releases a buffer, a kernel or prepared work, as soon as no work in flight uses it.
    fn free(&self, what: Resource);

    /// Returns the counters since the device was opened.
    fn counters(&self) -> Counters;
}

/// Whether a device can execute a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// Supported.
    Yes,
    /// Not supported, with the reason.
    No(String),
}

/// Purpose of a buffer. It does not change behaviour; reports and errors name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Usage {
    /// Weights of a model, written once.
    Weights,
    /// State that persists from run to run, such as a KV cache.
    State,
    /// Intermediates, inputs and outputs of a plan.
    Working,
}

/// The id of a buffer of one device. Its generation makes the use of a freed id an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BufferId {
    /// Index in the device's table.
    pub index: u32,
    /// Number of earlier uses of the table row.
    pub generation: u32,
}

/// Sizes of tensors in device memory are rounded up to a multiple of this number of bytes, so that
/// kernels may read four words (16 bytes) at once.
pub const GRANULE: u64 = 16;

/// A range of bytes in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BufferRange {
    /// The buffer.
    pub buffer: BufferId,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// The id of prepared work of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PreparedId {
    /// Index in the device's table.
    pub index: u32,
    /// Number of earlier uses of the table row.
    pub generation: u32,
}

/// The id of a submit; a later submit has a greater one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A resource that a device can release.
#[derive(Clone, Debug)]
pub enum Resource {
    /// Memory.
    Buffer(BufferId),
    /// Prepared work.
    Prepared(PreparedId),
    /// A compiled kernel.
    Kernel(KernelSpec),
}

/// Results of a finished submit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// Bytes of every download command, in the order of the work list and of the commands in it.
    pub downloads: Vec<Vec<u8>>,
    /// The time recorded by every timestamp command, in nanoseconds, in the same order. Only
    /// differences are meaningful.
    pub timestamps: Vec<u64>,
}

/// Counters of a device since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Number of successful `alloc` calls.
    pub allocations: u64,
    /// Bytes currently allocated.
    pub allocated_bytes: u64,
    /// Number of kernel launches.
    pub dispatches: u64,
    /// Number of submits.
    pub submits: u64,
    /// Number of waits.
    pub waits: u64,
    /// Number of compiled kernels.
    pub compiles: u64,
    /// Bytes copied from the host to the device.
    pub uploaded_bytes: u64,
    /// Uploaded bytes that were first copied to a staging buffer.
    pub staged_bytes: u64,
    /// Bytes copied from the device to the host.
    pub downloaded_bytes: u64,
    /// Bytes copied from other devices without going through the host.
    pub peer_bytes: u64,
}

/// Decides whether a device with this profile can execute a kernel. It needs no open device, so
/// planning does not either.
pub fn support(profile: &DeviceProfile, spec: &KernelSpec) -> Support {
    use warploom_kernels::{catalogue, fusion};
    let interface = match catalogue::interface(spec) {
        Ok(interface) => interface,
        Err(error) => return Support::No(error.to_string()),
    };
    let need = interface.bindings.len() as u32;
    if need > profile.max_storage_buffers {
        let have = profile.max_storage_buffers;
        return Support::No(format!("{spec} binds {need} storage buffers, the device has {have}"));
    }
    if let KernelSpec::Routine(routine) = spec {
        if let Some(fault) = routine.fault() {
            return Support::No(format!("{spec}: no library has {fault}"));
        }
        if !profile.has_gemm_library {
            return Support::No(format!("{spec} needs a vendor's GEMM library"));
        }
    }
    if let KernelSpec::Fused(expr) = spec
        && matches!(expr.schedule, Schedule::Rows { subgroup: true, .. })
        && !profile.has_subgroups
    {
        return Support::No(format!("{spec} needs subgroups"));
    }
    if let KernelSpec::Asset(asset) = spec {
        let fused = asset.fusion.as_deref().map(|a| fusion::supports(&asset.name, a));
        if let Some(Err(reason)) = fused {
            return Support::No(format!("{spec}: {reason}"));
        }
        let together =
            asset.defines.iter().any(|d| d == "subgroup") || asset.has_wide_quant_epilogue();
        if together && !profile.has_subgroups {
            return Support::No(format!("{spec} needs subgroups"));
        }
        let (need, have) = (catalogue::subgroup_needed(asset), profile.subgroup_min);
        if have < need {
            return Support::No(format!(
                "{spec} needs subgroups of {need}, the smallest has {have}"
            ));
        }
        let (most, have) = (catalogue::subgroup_most(asset), profile.subgroup_max);
        if have > most {
            return Support::No(format!(
                "{spec} needs subgroups of at most {most}, the largest has {have}"
            ));
        }
        if asset.defines.iter().any(|d| d == "f16") && !profile.has_f16 {
            return Support::No(format!("{spec} needs 16-bit floats"));
        }
        let entry = catalogue::find(&asset.name).map(|(entry, _)| entry);
        if entry.is_some_and(catalogue::Entry::is_cooperative) && !profile.has_matrix_hw {
            return Support::No(format!("{spec} needs cooperative matrices of f16"));
        }
        let threads = asset.get_u32("WG").unwrap_or(64);
        if threads > profile.max_threads_per_workgroup {
            let have = profile.max_threads_per_workgroup;
            return Support::No(format!("{spec} wants {threads} threads, the device has {have}"));
        }
    }
    Support::Yes
}
