//! Buffers, and uploads in flight.

use std::collections::VecDeque;

use super::cl::{Cl, Context, Event, Memory, Queue};

/// Allocations are rounded up to a multiple of this, in bytes, so that kernels may read four words
/// at once.
const GRANULE: u64 = warploom_hal::GRANULE;

/// A buffer of the device.
pub(super) struct Buffer {
    whole: Memory,
}

impl Buffer {
    /// Allocates memory and enqueues a clear that sets it to zero.
    pub(super) fn new(context: &Context, queue: &Queue, bytes: u64, shared: bool) -> Cl<Buffer> {
        let bytes = bytes.next_multiple_of(GRANULE);
        let whole = context.memory(bytes, shared)?;
        // SAFETY: the range is the whole memory.
        unsafe { queue.clear(&whole, 0, bytes) }?;
        Ok(Buffer { whole })
    }

    /// Returns the whole memory.
    pub(super) fn whole(&self) -> &Memory {
        &self.whole
    }
}

/// Host copies of bytes that the device has not read yet.
#[derive(Default)]
pub(super) struct Staged {
    running: VecDeque<(Event, Vec<u8>)>,
    bytes: u64,
}

impl Staged {
    /// Maximum number of bytes in flight.
    const MOST: u64 = 128 << 20;

    /// Enqueues a copy of `bytes`, padded with zeros to whole words, to a range within the memory.
    pub(super) fn write(
        &mut self,
        queue: &Queue,
        to: &Memory,
        offset: u64,
        bytes: &[u8],
    ) -> Cl<()> {
        let mut copy = Vec::with_capacity(bytes.len().next_multiple_of(4));
        copy.extend_from_slice(bytes);
        copy.resize(bytes.len().next_multiple_of(4), 0);
        // SAFETY: memory ends on a whole word; the copy is kept until the event is done.
        let done = unsafe { queue.write(to, offset, &copy, false) }?;
        self.bytes += copy.len() as u64;
        self.running.push_back((done, copy));
        self.forget()
    }

    /// Frees copies that the device has read. Waits for the oldest if too many bytes are in flight.
    ///
    /// # Errors
    /// The error of a write that failed.
    fn forget(&mut self) -> Cl<()> {
        while let Some((done, copy)) = self.running.front() {
            if self.bytes <= Self::MOST && !done.is_done() {
                break;
            }
            let end = done.wait();
            self.bytes -= copy.len() as u64;
            self.running.pop_front();
            end?;
        }
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // The device may still read them.
        for (done, _) in &self.running {
            let _ = done.wait();
        }
    }
}
