//! Commands as data: the result of a plan, and the only input of a device.
//!
//! A [`Recording`] refers to buffers by slot and to varying sizes by symbol. It can be serialised,
//! prepared once on a device and submitted repeatedly with new [`Args`].

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::BufferRange;
use warploom_core::base::{Dim, SymbolValues};
use warploom_core::error::{Error, Result};
use warploom_kernels::{Access, KernelSpec};

/// Commands in order, with everything that they refer to.
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
    /// The commands, in order.
    pub commands: Vec<Command>,
}

/// A buffer that a recording needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotDecl {
    /// Name for messages.
    pub name: String,
    /// Size in bytes of the accessible range.
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
    /// A size, evaluated at each submit.
    Dim(Dim),
}

impl Word {
    /// The word of a size: its bits if it is constant.
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

    /// The value for these symbol bindings; an error if a size does not fit 32 bits.
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
    /// Whether the block is the same for every submit.
    pub fn is_static(&self) -> bool {
        self.0.iter().all(|word| matches!(word, Word::Bits(_)))
    }

    /// Appends every word under these bindings to `out`, as little-endian bytes.
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
    /// Copies bytes from the host into a buffer.
    Upload {
        /// Destination.
        to: SlotRange,
        /// Source.
        source: UploadSource,
    },
    /// One kernel launch.
    Dispatch(Dispatch),
    /// Copies between buffers; the ranges have equal sizes and do not overlap.
    Copy {
        /// Source.
        from: SlotRange,
        /// Destination.
        to: SlotRange,
    },
    /// Fills a range with zeros.
    Clear {
        /// The range.
        range: SlotRange,
    },
    /// Copies bytes to the host; `wait` returns them in the order of the commands.
    Download {
        /// Source.
        from: SlotRange,
    },
    /// Reads the device's clock; `wait` returns nanoseconds in the order of the commands.
    Timestamp,
}

/// Source of an upload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UploadSource {
    /// [`Args::uploads`] at this index.
    Arg(u32),
    /// Constant bytes.
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
    /// The plan step, for messages and traces.
    pub label: String,
}

/// A buffer bound to a kernel. Offsets are constant, so that a device can cache its binding
/// objects; offsets that vary from run to run are parameters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// Index in [`Recording::slots`].
    pub slot: u32,
    /// First byte; a multiple of the device's binding alignment.
    pub offset: u64,
    /// Number of bytes; a multiple of 4.
    pub bytes: u64,
    /// Access of the kernel.
    pub access: Access,
}

/// Values that change from one submit of prepared work to the next.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Args {
    /// Values of every symbol in the recording.
    pub symbols: SymbolValues,
    /// Bytes for [`UploadSource::Arg`].
    pub uploads: Vec<Vec<u8>>,
    /// Buffers for the slots that `prepare` left open.
    pub buffers: Vec<(u32, BufferRange)>,
}

impl Recording {
    /// Adds a kernel, or finds an equal one.
    pub fn kernel(&mut self, spec: KernelSpec) -> u32 {
        intern(&mut self.kernels, spec)
    }

    /// Adds a parameter block, or finds an equal one.
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
