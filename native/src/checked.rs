//! A checked recording: steps that are validated once, with a list of the sizes that change.

use smallvec::SmallVec;

use warploom_core::base::Dim;
use warploom_hal::{Binding, BufferRange, UploadSource};

/// A validated recording; built by [`Work::check`].
pub(crate) struct Work {
    /// Name for messages and traces.
    pub(crate) label: String,
    /// Number of timestamps of one submit.
    pub(crate) timestamps: u32,
    pub(super) slots: Vec<Slot>,
    /// Whether any slot is left open for each submit.
    pub(super) open: bool,
    pub(super) steps: Vec<Step>,
    /// Indices of steps that must be checked at each submit.
    pub(super) changing: Vec<u32>,
    /// Sizes that change from submit to submit, without duplicates.
    pub(super) dims: Vec<Dim>,
    /// Every parameter block at its offset; blocks that change are at the end.
    pub(super) params: Vec<u8>,
    /// Offset of the first block that changes.
    pub(super) changing_at: usize,
    /// Byte offset of each word that changes, and the index of its size in `dims`.
    pub(super) words: Vec<(u32, u32)>,
    /// Required alignment of binding offsets.
    pub(super) alignment: u64,
    /// Maximum number of workgroups in one dimension.
    pub(super) most_groups: u32,
    /// The device's count of freed buffers when the slots were last verified to be live.
    pub(super) freed: u64,
}

/// A buffer slot of the recording.
pub(super) struct Slot {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) bound: Option<BufferRange>,
}

/// A checked command.
pub(super) enum Step {
    Launch(Box<Launch>),
    Upload { to: Range, source: UploadSource },
    Copy { from: Range, to: Range },
    Clear { range: Range },
    Download { from: Range },
    Timestamp,
}

/// A kernel launch of checked work.
pub(crate) struct Launch {
    /// Index among all launches of the work.
    pub(crate) index: u32,
    /// Index of the kernel in the recording.
    pub(crate) kernel: u32,
    /// Byte offset of its parameters in [`Work::params`]; `None` if it has none.
    pub(crate) params: Option<u64>,
    /// Storage buffers, in the order of the kernel's interface; [`Run::range_of`] resolves one.
    ///
    /// [`Run::range_of`]: super::Run::range_of
    pub(crate) bindings: SmallVec<[Binding; 8]>,
    /// Name of the plan's step.
    pub(crate) label: String,
    pub(super) grid: [Num; 3],
    /// Whether it binds an open slot.
    pub(super) open: bool,
}

/// A constant, or the index of a size in [`Work::dims`].
#[derive(Clone, Copy)]
pub(super) enum Num {
    Is(u64),
    At(u32),
}

/// A range of a slot, in bytes.
#[derive(Clone, Copy)]
pub(super) struct Range {
    pub(super) slot: u32,
    pub(super) offset: Num,
    pub(super) bytes: Num,
}

impl Num {
    pub(super) fn changes(self) -> bool {
        matches!(self, Num::At(_))
    }
}

impl Range {
    pub(super) fn changes(self) -> bool {
        self.offset.changes() || self.bytes.changes()
    }
}

impl Launch {
    /// Whether it binds a slot that is left open for each submit.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }
}

impl Work {
    /// Returns the bytes of every parameter block, as device memory must hold them before the first
    /// submit; may be empty. A block starts at a multiple of the profile's binding alignment and is
    /// padded to a multiple of 16 bytes.
    pub(crate) fn params(&self) -> &[u8] {
        &self.params
    }

    /// Returns the buffer range of a binding; `None` if its slot is left open for each submit.
    #[cfg(feature = "opencl")]
    pub(crate) fn fixed_range(&self, binding: &Binding) -> Option<BufferRange> {
        let slot = self.slots.get(binding.slot as usize)?.bound?;
        let offset = slot.offset + binding.offset;
        Some(BufferRange { buffer: slot.buffer, offset, bytes: binding.bytes })
    }

    /// Returns all launches in order; [`Launch::index`] is the position.
    pub(crate) fn launches(&self) -> impl Iterator<Item = &Launch> {
        self.steps.iter().filter_map(|step| match step {
            Step::Launch(launch) => Some(launch.as_ref()),
            _ => None,
        })
    }
}
