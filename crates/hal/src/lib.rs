//! The seam between plans and hardware: two traits, and data across them.
//!
//! A [`Provider`] is a family of devices (`webgpu`, `cuda`, `cpu`, `null`); it lists them without opening
//! and opens one. A [`Device`] compiles [`KernelSpec`]s and executes [`Recording`]s. Neither knows
//! an operation of the graph, a plan or a model: capability is asked first, with [`support`],
//! work crosses as data, and what can be handled without a device is handled above.
//!
//! Invariants:
//! - Only `wait` waits for work. `submit` enqueues it, or computes on the CPU provider; what goes
//!   wrong later surfaces at the next `wait`, never as zeros in a result.
//! - Futures are `Send` on native builds only, because a browser's GPU belongs to one thread.
//! - A device outlives its errors: after a failure that is not a loss it takes new work.
//! - `null` executes nothing and is never selected by itself.

#[cfg(not(target_arch = "wasm32"))]
pub mod background;
mod known;
mod null;
mod profile;
mod recording;
#[cfg(test)]
mod support_tests;
mod table;

use std::any::Any;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use null::NullProvider;
pub use profile::{DeviceKind, DeviceProfile};
pub use recording::{
    Args, Binding, Command, Dispatch, ParamBlock, Recording, SlotDecl, SlotRange, UploadSource,
    Word,
};
pub use table::Table;

use warploom_core::base::platform::{BoxFuture, MaybeSend};
use warploom_core::error::{Error, Result};
use warploom_kernels::{KernelSpec, Schedule};

/// A family of devices.
pub trait Provider: MaybeSend {
    /// `webgpu`, `cuda`, `opencl`, `cpu`, `null`, or one of its own: also the first part of a
    /// device's id.
    fn name(&self) -> &'static str;
    /// Profiles of every device, without opening one. None is an empty list, not an error.
    fn list(&self) -> BoxFuture<'_, Result<Vec<DeviceProfile>>>;
    /// Why the list is empty, in words: the library that the machine does not have. Nothing that
    /// anybody must mend, so it is told to who asks for the devices, and at no start.
    fn absence(&self) -> Option<String> {
        None
    }
    /// Opens the device at this place in the list.
    fn open(&self, index: usize, options: OpenOptions) -> BoxFuture<'_, Result<Arc<dyn Device>>>;
}

/// For who gives a provider away and keeps it.
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
    /// Open with the limits that WebGPU guarantees and no optional feature, as the poorest
    /// browser would; for tests of the floor.
    pub floor: bool,
    /// Bytes that may be allocated; `None` is what the device says it has.
    pub memory_budget: Option<u64>,
    /// Threads of the CPU provider; `None` is one for each core.
    pub threads: Option<usize>,
}

/// One open device. `Any`, so that two of one provider know each other in [`Device::copy_from`].
pub trait Device: MaybeSend + Any {
    /// What it is.
    fn profile(&self) -> &DeviceProfile;

    /// Makes a kernel ready; at once where an equal spec is ready already.
    ///
    /// # Errors
    /// The compiler's message with the line of the source, or unsupported with the reason.
    fn compile<'a>(&'a self, spec: &'a KernelSpec) -> BoxFuture<'a, Result<()>>;

    /// Allocates zeroed memory of at least one byte. In a browser a refusal surfaces at the
    /// next wait.
    ///
    /// # Errors
    /// Out of memory with need and have, when the budget or the device refuses; the device
    /// stays usable.
    fn alloc(&self, bytes: u64, usage: Usage) -> Result<BufferId>;

    /// Copies host bytes into a buffer, after everything submitted before. Length and offset are
    /// multiples of 4 (the last piece of an upload may be shorter).
    fn write(&self, to: BufferRange, bytes: &[u8]) -> Result<()>;

    /// Copies from a buffer of another open device, without the host: after everything submitted to
    /// either before, and before everything submitted to either later. Nothing waits. Both ranges
    /// have the same size, and it and the offsets are multiples of 4.
    ///
    /// # Errors
    /// Unsupported, with the reason and nothing done, where there is no way from that device to
    /// this one but through the host; invalid, for ranges that do not fit.
    fn copy_from(&self, to: BufferRange, source: &dyn Device, from: BufferRange) -> Result<()> {
        let _ = (to, from);
        let (own, other) = (self.profile().id(), source.profile().id());
        Err(Error::unsupported(format!("{own} takes no copies from {other}")))
    }

    /// Makes a recording ready to be submitted many times. `slots[i]` is the buffer of slot `i`;
    /// `None` is left to [`Args::buffers`]. Its kernels must be compiled.
    fn prepare(&self, work: &Recording, slots: &[Option<BufferRange>]) -> Result<PreparedId>;

    /// Enqueues prepared work in order, in one submit. A CPU provider may compute here.
    fn submit(&self, work: &[(PreparedId, Args)]) -> Result<Ticket>;

    /// Waits for a submit and yields what it downloads. A failure since the last wait, of
    /// whatever call, is returned here once. On native builds of this crate's providers the
    /// future blocks the thread that polls it; only in a browser does it yield.
    fn wait(&self, ticket: Ticket) -> BoxFuture<'_, Result<Completion>>;

    /// Gives up a buffer, a kernel or prepared work; deferred while it is in flight.
    fn free(&self, what: Resource);

    /// What has been done since the device was opened.
    fn counters(&self) -> Counters;
}

/// Whether a device of this profile can execute a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// It can.
    Yes,
    /// It cannot, and why.
    No(String),
}

/// What a buffer is for. It changes no behaviour; it names the memory in reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Usage {
    /// Weights of a model: written once.
    Weights,
    /// State that lives from run to run, such as a KV cache.
    State,
    /// Intermediates of a plan, inputs and outputs.
    Working,
}

/// A buffer of one device. The generation makes a freed id an error, never another buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BufferId {
    /// Place in the device's table.
    pub index: u32,
    /// How often that place was used before.
    pub generation: u32,
}

/// Sizes of tensors in device memory are rounded up to this many bytes, so that kernels may read
/// four words at once.
pub const GRANULE: u64 = 16;

/// Part of a buffer, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BufferRange {
    /// The buffer.
    pub buffer: BufferId,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// Prepared work of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PreparedId {
    /// Place in the device's table.
    pub index: u32,
    /// How often that place was used before.
    pub generation: u32,
}

/// One submit; later ones compare greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Something that a device can give up.
#[derive(Clone, Debug)]
pub enum Resource {
    /// Memory.
    Buffer(BufferId),
    /// Prepared work.
    Prepared(PreparedId),
    /// A compiled kernel.
    Kernel(KernelSpec),
}

/// What a finished submit brings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// Bytes of every download command, in order of the work list and of its commands.
    pub downloads: Vec<Vec<u8>>,
    /// Nanoseconds of every timestamp command, in the same order; only differences mean
    /// something.
    pub timestamps: Vec<u64>,
}

/// What a device has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Calls of `alloc` that succeeded.
    pub allocations: u64,
    /// Bytes allocated now.
    pub allocated_bytes: u64,
    /// Kernel launches.
    pub dispatches: u64,
    /// Submits.
    pub submits: u64,
    /// Waits.
    pub waits: u64,
    /// Kernels compiled.
    pub compiles: u64,
    /// Bytes copied from host to device.
    pub uploaded_bytes: u64,
    /// Bytes of these that were first copied to other memory of the host.
    pub staged_bytes: u64,
    /// Bytes copied from device to host.
    pub downloaded_bytes: u64,
    /// Bytes copied to it from other devices, without the host.
    pub peer_bytes: u64,
}

/// Whether a device of this profile can execute a kernel. Pure: planning needs no device.
pub fn support(profile: &DeviceProfile, spec: &KernelSpec) -> Support {
    use warploom_kernels::{attach, catalogue};
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
            return Support::No(format!("{spec} needs a vendor's library of products"));
        }
    }
    if let KernelSpec::Fused(expr) = spec
        && matches!(expr.schedule, Schedule::Rows { subgroup: true, .. })
        && !profile.has_subgroups
    {
        return Support::No(format!("{spec} needs subgroups"));
    }
    if let KernelSpec::Asset(asset) = spec {
        let fused = asset.attached.as_deref().map(|a| attach::supports(&asset.name, a));
        if let Some(Err(reason)) = fused {
            return Support::No(format!("{spec}: {reason}"));
        }
        let together = asset.defines.iter().any(|d| d == "subgroup") || asset.hands_on_wide();
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
