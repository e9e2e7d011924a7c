//! Commands as data: what a plan becomes, and all that a device is ever told to do.
//!
//! A [`Recording`] names its buffers by slot and its changing numbers by symbol, so it can be
//! written to disk, made ready once on a device and submitted again and again with new [`Args`].

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::BufferRange;
use warploom_core::base::{Dim, SymbolValues};
use warploom_core::error::{Error, Result};
use warploom_kernels::{Access, KernelSpec};

/// Commands in order, with everything they refer to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// Name for messages and traces.
    pub label: String,
    /// Kernels that dispatches refer to.
    pub kernels: Vec<KernelSpec>,
    /// Buffers that commands refer to.
    pub slots: Vec<SlotDecl>,
    /// Parameter blocks that dispatches refer to; equal blocks are shared.
    pub params: Vec<ParamBlock>,
    /// What to do, in order.
    pub commands: Vec<Command>,
}

/// A buffer that a recording needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotDecl {
    /// Name for messages.
    pub name: String,
    /// Bytes that commands may touch.
    pub bytes: u64,
}

/// Parameters of dispatches: 32-bit words in the order of the kernel's uniform block.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct ParamBlock(pub Vec<Word>);

/// One parameter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Word {
    /// A number or the bits of a float.
    Bits(u32),
    /// A size that is evaluated at each submit.
    Dim(Dim),
}

impl Word {
    /// A size: bits where it is a number already.
    pub fn dim(dim: &Dim) -> Result<Word> {
        match dim.as_const() {
            Some(value) => Ok(Word::Bits(word_from(value, dim)?)),
            None => Ok(Word::Dim(dim.clone())),
        }
    }

    /// A 32-bit float.
    pub fn f32(value: f32) -> Word {
        Word::Bits(value.to_bits())
    }

    /// The bits under these bindings; an error where a size does not fit 32 bits.
    pub fn eval(&self, values: &SymbolValues) -> Result<u32> {
        match self {
            Word::Bits(bits) => Ok(*bits),
            Word::Dim(dim) => word_from(dim.eval(values)?, dim),
        }
    }
}

fn word_from(value: i64, dim: &Dim) -> Result<u32> {
    u32::try_from(value)
        .map_err(|_| Error::invalid(format!("size {dim} = {value} does not fit 32 bits")))
}

impl ParamBlock {
    /// Whether no word changes from submit to submit.
    pub fn is_static(&self) -> bool {
        self.0.iter().all(|word| matches!(word, Word::Bits(_)))
    }

    /// Every word under these bindings, appended to `out` as little-endian bytes.
    pub fn eval_into(&self, values: &SymbolValues, out: &mut Vec<u8>) -> Result<()> {
        for word in &self.0 {
            out.extend_from_slice(&word.eval(values)?.to_le_bytes());
        }
        Ok(())
    }
}

/// One command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Bytes from the host into a buffer.
    Upload {
        /// Where to.
        to: SlotRange,
        /// Which bytes.
        source: UploadSource,
    },
    /// One kernel launch.
    Dispatch(Dispatch),
    /// Bytes from one buffer to another; the ranges have equal sizes and do not overlap.
    Copy {
        /// Where from.
        from: SlotRange,
        /// Where to.
        to: SlotRange,
    },
    /// Zeros.
    Clear {
        /// What to clear.
        range: SlotRange,
    },
    /// Bytes to the host; `wait` yields them in the order of the commands.
    Download {
        /// Where from.
        from: SlotRange,
    },
    /// The device's clock; `wait` yields nanoseconds in the order of the commands.
    Timestamp,
}

/// Which bytes an upload takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UploadSource {
    /// [`Args::uploads`] at this index.
    Arg(u32),
    /// Bytes that never change.
    Data(Vec<u8>),
}

/// Part of a buffer, in bytes. Offset and size are multiples of 4.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotRange {
    /// Index in [`Recording::slots`].
    pub slot: u32,
    /// First byte.
    pub offset: Dim,
    /// Number of bytes.
    pub bytes: Dim,
}

/// One kernel launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dispatch {
    /// Index in [`Recording::kernels`].
    pub kernel: u32,
    /// Index in [`Recording::params`].
    pub params: u32,
    /// Storage buffers, in the order of the kernel's interface.
    pub bindings: SmallVec<[Binding; 8]>,
    /// Workgroups in x, y and z. Zero in any of them launches nothing.
    pub grid: [Dim; 3],
    /// The step of the plan, for messages and traces.
    pub label: String,
}

/// A buffer bound to a kernel. Offsets are fixed, so that what a device builds for a binding can
/// be kept; offsets that change from run to run are parameters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// Index in [`Recording::slots`].
    pub slot: u32,
    /// First byte; a multiple of the device's binding alignment.
    pub offset: u64,
    /// Number of bytes; a multiple of 4.
    pub bytes: u64,
    /// Whether the kernel writes to it.
    pub access: Access,
}

/// What changes from one submit of prepared work to the next.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Args {
    /// Values of every symbol in the recording.
    pub symbols: SymbolValues,
    /// Bytes for [`UploadSource::Arg`].
    pub uploads: Vec<Vec<u8>>,
    /// Buffers for slots that were left open in `prepare`.
    pub buffers: Vec<(u32, BufferRange)>,
}

impl Recording {
    /// Adds a kernel or finds the equal one.
    pub fn kernel(&mut self, spec: KernelSpec) -> u32 {
        intern(&mut self.kernels, spec)
    }

    /// Adds a parameter block or finds the equal one.
    pub fn param_block(&mut self, block: ParamBlock) -> u32 {
        intern(&mut self.params, block)
    }

    /// Adds a slot.
    pub fn slot(&mut self, name: impl Into<String>, bytes: u64) -> u32 {
        self.slots.push(SlotDecl { name: name.into(), bytes });
        (self.slots.len() - 1) as u32
    }

    /// Number of kernel launches.
    pub fn dispatches(&self) -> usize {
        self.commands.iter().filter(|c| matches!(c, Command::Dispatch(_))).count()
    }

    /// Number of downloads.
    pub fn downloads(&self) -> usize {
        self.commands.iter().filter(|c| matches!(c, Command::Download { .. })).count()
    }
}

fn intern<T: PartialEq>(list: &mut Vec<T>, item: T) -> u32 {
    let found = list.iter().position(|other| *other == item);
    found.unwrap_or_else(|| {
        list.push(item);
        list.len() - 1
    }) as u32
}
