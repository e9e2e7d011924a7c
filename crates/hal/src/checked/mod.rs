//! A checked recording: what every provider does with a [`Recording`](crate::Recording) before its
//! own driver sees it.
//!
//! [`CheckedRecording::check`] validates a recording once, in `Device::prepare`, and lays out its
//! parameter blocks. [`CheckedRecording::evaluate`] checks what changes, in `Device::submit`, for
//! *all* the work before anything is enqueued. [`CheckedRecording::commands`] then yields resolved
//! commands, whose ranges lie within live buffers. So every bound is checked in one place.

mod resolve;
mod validate;

use std::sync::atomic::AtomicU64;

use smallvec::SmallVec;

use crate::{Binding, BufferRange, UploadSource};
use warploom_core::base::Dim;
use warploom_core::error::Result;

pub use resolve::{Resolved, ResolvedCommand};
pub use validate::Callee;

/// The buffers of a device.
pub trait LiveBuffers {
    /// Checks that a range lies within a live buffer.
    ///
    /// # Errors
    /// Invalid, with the sizes, if it does not.
    fn check(&self, range: BufferRange) -> Result<()>;
    /// Returns the number of buffers freed so far. Work that was checked at this count refers only
    /// to live buffers.
    fn freed(&self) -> u64;
    /// Returns whether a launch may read and write the same bytes through several bindings. False
    /// for GPUs: WebGPU forbids it, and translated kernels rely on that.
    fn allows_aliasing(&self) -> bool {
        false
    }
}

/// A validated recording; built by [`CheckedRecording::check`].
pub struct CheckedRecording {
    /// Name for messages and traces.
    pub label: String,
    /// Number of timestamps of one submit.
    pub timestamps: u32,
    slots: Vec<Slot>,
    /// Whether any slot is left open for each submit.
    open: bool,
    steps: Vec<Step>,
    /// Indices of steps that must be checked at each submit.
    changing: Vec<u32>,
    /// Sizes that change from submit to submit, without duplicates.
    dims: Vec<Dim>,
    /// Every parameter block at its offset; blocks that change are at the end.
    params: Vec<u8>,
    /// Offset of the first block that changes.
    changing_at: usize,
    /// Byte offset of each word that changes, and the index of its size in `dims`.
    words: Vec<(u32, u32)>,
    /// Required alignment of binding offsets.
    alignment: u64,
    /// Maximum number of workgroups in one dimension.
    most_groups: u32,
    /// The device's count of freed buffers when the slots were last verified to be live.
    freed: AtomicU64,
    /// [`LiveBuffers::allows_aliasing`].
    aliasing: bool,
}

/// A buffer slot of the recording.
struct Slot {
    name: String,
    bytes: u64,
    bound: Option<BufferRange>,
}

/// A checked command.
enum Step {
    Launch(Box<Launch>),
    Upload { to: Range, source: UploadSource },
    Copy { from: Range, to: Range },
    Clear { range: Range },
    Download { from: Range },
    Timestamp,
}

/// A kernel launch of checked work.
pub struct Launch {
    /// Index among all launches of the work.
    pub index: u32,
    /// Index of the kernel in the recording.
    pub kernel: u32,
    /// Byte offset of its parameters in [`CheckedRecording::params`]; `None` if it has none.
    pub params: Option<u64>,
    /// Storage buffers, in the order of the kernel's interface; [`Resolved::range_of`] resolves one.
    pub bindings: SmallVec<[Binding; 8]>,
    /// Name of the plan's step.
    pub label: String,
    grid: [Num; 3],
    /// Whether it binds an open slot.
    open: bool,
}

/// A constant, or the index of a size in [`CheckedRecording::dims`].
#[derive(Clone, Copy)]
enum Num {
    Is(u64),
    At(u32),
}

/// A range of a slot, in bytes.
#[derive(Clone, Copy)]
struct Range {
    slot: u32,
    offset: Num,
    bytes: Num,
}

impl Num {
    fn changes(self) -> bool {
        matches!(self, Num::At(_))
    }
}

impl Range {
    fn changes(self) -> bool {
        self.offset.changes() || self.bytes.changes()
    }
}

impl Launch {
    /// Returns whether the launch binds an open slot, for which each submit provides the buffer.
    pub fn is_open(&self) -> bool {
        self.open
    }
}

impl CheckedRecording {
    /// Returns the bytes of every parameter block, as device memory must hold them before the first
    /// submit; may be empty. A block starts at a multiple of the profile's binding alignment and is
    /// padded to a multiple of 16 bytes.
    pub fn params(&self) -> &[u8] {
        &self.params
    }

    /// Returns the size in bytes of the blocks that never change, which come first in
    /// [`CheckedRecording::params`].
    pub fn constant_bytes(&self) -> usize {
        self.changing_at
    }

    /// Returns whether any slot is open, so that each submit must provide a buffer.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Returns the buffer range of a binding, or `None` if its slot is open.
    pub fn fixed_range(&self, binding: &Binding) -> Option<BufferRange> {
        let slot = self.slots.get(binding.slot as usize)?.bound?;
        let offset = slot.offset + binding.offset;
        Some(BufferRange { buffer: slot.buffer, offset, bytes: binding.bytes })
    }

    /// Returns all launches in order; [`Launch::index`] is the position.
    pub fn launches(&self) -> impl Iterator<Item = &Launch> {
        self.steps.iter().filter_map(|step| match step {
            Step::Launch(launch) => Some(launch.as_ref()),
            _ => None,
        })
    }
}
