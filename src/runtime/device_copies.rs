//! Parts of states, copied on the device and read by the host.

use std::sync::Arc;

use super::Runtime;
use super::batcher::{Keep, Pending, Work};
use super::device_tensors::{DeviceTensors, Held};
use super::offload::Prepared;
use crate::base::Dim;
use crate::error::{Error, Result};
use crate::provider::{Args, BufferId, BufferRange, Command, Recording, SlotRange, Usage};

/// Bytes of a weight or a state in a [`DeviceTensors`]. Both numbers are multiples of 4.
#[derive(Clone, Copy, Debug)]
pub struct TensorPart<'a> {
    /// Name of the weight or the state.
    pub name: &'a str,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// A recording of copies under construction.
#[derive(Default)]
struct Copies {
    recording: Recording,
    ranges: Vec<Option<BufferRange>>,
    keep: Keep,
}

impl Copies {
    fn slot(&mut self, name: &str, range: BufferRange) -> u32 {
        self.ranges.push(Some(range));
        self.recording.slot(name, range.bytes)
    }

    /// Adds a slot for a part, and returns the part of it.
    fn part(&mut self, tensors: &DeviceTensors, part: &TensorPart<'_>) -> Result<SlotRange> {
        let TensorPart { name, offset, bytes } = *part;
        let Held { range, buffer } = tensors.held(name)?;
        if offset.checked_add(bytes).is_none_or(|end| end > range.bytes) {
            return Err(Error::invalid(format!(
                "{bytes} bytes at byte {offset} of {name:?}, which has {}",
                range.bytes
            )));
        }
        // A slot must start at a valid binding offset, so it spans the buffer up to the tensor's end.
        let whole = BufferRange { offset: 0, bytes: range.offset + range.bytes, ..range };
        self.keep.things.push(buffer);
        let slot = self.slot(name, whole);
        Ok(SlotRange { slot, offset: Dim::from(range.offset + offset), bytes: Dim::from(bytes) })
    }

    fn record(mut self, runtime: &Runtime, downloads: usize) -> Result<Pending> {
        let prepared = Prepared::new(runtime.device(), &self.recording, &self.ranges)?;
        let buffers: Arc<[BufferId]> = self.ranges.iter().flatten().map(|r| r.buffer).collect();
        let work = Work { prepared: prepared.id, dispatches: 0, downloads, buffers };
        self.keep.things.push(Arc::new(prepared));
        runtime.batcher().record(&work, Args::default(), self.keep)
    }
}

impl DeviceTensors {
    /// Copies parts of states to others of the same size, in order, before all that is submitted
    /// later. Both may be in one state, and overlap.
    ///
    /// # Errors
    /// Invalid for an unknown name, for bytes outside of a state and for sizes that differ; out of
    /// memory for a buffer of the size of the largest part; any device error.
    pub fn copy(&self, runtime: &Runtime, parts: &[[TensorPart<'_>; 2]]) -> Result<()> {
        let Some(most) = parts.iter().map(|[from, _]| from.bytes).max().filter(|most| *most > 0)
        else {
            return Ok(());
        };
        let mut copies = Copies::default();
        copies.recording.label = "copy states".into();
        // Through memory of its own: some devices copy nothing within one buffer.
        let between = Arc::new(runtime.pool().take(most, Usage::Working)?);
        let slot = copies.slot("between", between.range());
        copies.keep.things.push(between);
        for [from, to] in parts {
            if from.bytes != to.bytes {
                let (a, b) = (from.bytes, to.bytes);
                return Err(Error::invalid(format!("{a} bytes of {:?} into {b}", from.name)));
            }
            let (from, to) = (copies.part(self, from)?, copies.part(self, to)?);
            let between = SlotRange { slot, offset: Dim::new(0), bytes: from.bytes.clone() };
            copies.recording.commands.push(Command::Copy { from, to: between.clone() });
            copies.recording.commands.push(Command::Copy { from: between, to });
        }
        // Nothing is read, so only an error of the device remains to be known.
        drop(copies.record(runtime, 0)?);
        runtime.batcher().flush()
    }

    /// Reads parts of weights or states, each as its bytes.
    ///
    /// # Errors
    /// Invalid for an unknown name and for bytes outside of a state; any device error.
    pub async fn read_async(
        &self,
        runtime: &Runtime,
        parts: &[TensorPart<'_>],
    ) -> Result<Vec<Vec<u8>>> {
        let mut copies = Copies::default();
        copies.recording.label = "read states".into();
        for part in parts {
            let from = copies.part(self, part)?;
            copies.recording.commands.push(Command::Download { from });
        }
        let pending = copies.record(runtime, parts.len())?;
        runtime.batcher().read_async(pending).await
    }
}
