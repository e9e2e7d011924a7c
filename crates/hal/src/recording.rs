//! Commands as data: what a plan produces and a device executes.
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

/// A 32-bit parameter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Word {
    /// An integer, or the bits of an `f32`.
    Bits(u32),
    /// A size, evaluated for each submit.
    Dim(Dim),
}

impl Word {
    /// Creates the word of a size. A constant size is evaluated immediately.
    ///
    /// # Errors
    /// Invalid if a constant size does not fit in 32 bits.
    pub fn dim(dim: &Dim) -> Result<Word> {
        match dim.as_const() {
            Some(value) => Ok(Word::Bits(word_from(value, dim)?)),
            None => Ok(Word::Dim(dim.clone())),
        }
    }

    /// Creates the word of a 32-bit float.
    pub fn f32(value: f32) -> Word {
        Word::Bits(value.to_bits())
    }

    /// Evaluates the word under these bindings.
    ///
    /// # Errors
    /// Same as [`Dim::eval`], and invalid if the size does not fit in 32 bits.
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
    /// Returns whether the block is the same for every submit.
    pub fn is_static(&self) -> bool {
        self.0.iter().all(|word| matches!(word, Word::Bits(_)))
    }

    /// Evaluates every word under these bindings and appends it to `out`, in little-endian order.
    ///
    /// # Errors
    /// Same as [`Word::eval`].
    pub fn eval_into(&self, values: &SymbolValues, out: &mut Vec<u8>) -> Result<()> {
        for word in &self.0 {
            out.extend_from_slice(&word.eval(values)?.to_le_bytes());
        }
        Ok(())
    }
}

/// One command of a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Copies bytes from the host into a buffer.
    Upload {
        /// Destination of the bytes.
        to: SlotRange,
        /// Source of the bytes.
        source: UploadSource,
    },
    /// One kernel launch.
    Dispatch(Dispatch),
    /// Copies between buffers; the ranges have equal sizes and do not overlap.
    Copy {
        /// Source of the bytes.
        from: SlotRange,
        /// Destination of the bytes.
        to: SlotRange,
    },
    /// Fills a range with zeros.
    Clear {
        /// Range to fill.
        range: SlotRange,
    },
    /// Copies bytes to the host; `wait` returns them in the order of the commands.
    Download {
        /// Source of the bytes.
        from: SlotRange,
    },
    /// Reads the device's clock; `wait` returns nanoseconds in the order of the commands.
    Timestamp,
}

/// Source of an upload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UploadSource {
    /// The entry of [`Args::uploads`] at this index.
    Arg(u32),
    /// Constant bytes.
    Data(Vec<u8>),
}

/// A range of bytes in the buffer of a slot. Offset and size are multiples of 4.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotRange {
    /// Index in [`Recording::slots`].
    pub slot: u32,
    /// Offset of the first byte.
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
    /// Number of workgroups in x, y and z. If one of them is zero, nothing is launched.
    pub grid: [Dim; 3],
    /// Name of the plan step, for messages and traces.
    pub label: String,
}

/// A buffer bound to a kernel. Offsets are constant, so that a device can cache its binding
/// objects; offsets that vary from run to run are parameters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// Index in [`Recording::slots`].
    pub slot: u32,
    /// Offset of the first byte; a multiple of the device's binding alignment.
    pub offset: u64,
    /// Number of bytes; a multiple of 4.
    pub bytes: u64,
    /// How the kernel accesses the buffer.
    pub access: Access,
}

/// Values that change from one submit of prepared work to the next.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Args {
    /// Values of every symbol in the recording.
    pub symbols: SymbolValues,
    /// Data for uploads with the source [`UploadSource::Arg`], which holds an index into this list.
    pub uploads: Vec<Vec<u8>>,
    /// Index and buffer of each slot that `prepare` left open.
    pub buffers: Vec<(u32, BufferRange)>,
}

impl Recording {
    /// Adds a kernel, unless there is an equal one, and returns its index.
    pub fn kernel(&mut self, spec: KernelSpec) -> u32 {
        intern(&mut self.kernels, spec)
    }

    /// Adds a parameter block, unless there is an equal one, and returns its index.
    pub fn param_block(&mut self, block: ParamBlock) -> u32 {
        intern(&mut self.params, block)
    }

    /// Adds a slot and returns its index.
    pub fn slot(&mut self, name: impl Into<String>, bytes: u64) -> u32 {
        self.slots.push(SlotDecl { name: name.into(), bytes });
        (self.slots.len() - 1) as u32
    }

    /// Returns the number of kernel launches.
    pub fn dispatches(&self) -> usize {
        self.commands.iter().filter(|c| matches!(c, Command::Dispatch(_))).count()
    }

    /// Returns the number of downloads.
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
