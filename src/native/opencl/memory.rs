//! Buffers with their parts, and bytes on their way to the device.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};

use cl3::types::cl_mem;

use super::cl::{Cl, Context, Event, Memory, Queue};

/// Memory is made in whole multiples of this many bytes, so that kernels may read four words at
/// once.
const GRANULE: u64 = crate::provider::GRANULE;

/// A buffer of the device.
pub(super) struct Buffer {
    /// What starts at other bytes than the first, for kernels: they take no offsets. Kept as long
    /// as the buffer, and given up before it; all accesses are under the device's lock.
    parts: RefCell<HashMap<u64, Memory>>,
    whole: Memory,
    bytes: u64,
}

impl Buffer {
    /// Memory that holds zeros once the queue gets there.
    pub(super) fn new(context: &Context, queue: &Queue, bytes: u64, shared: bool) -> Cl<Buffer> {
        let bytes = bytes.next_multiple_of(GRANULE);
        let whole = context.memory(bytes, shared)?;
        // SAFETY: the range is the whole memory.
        unsafe { queue.clear(&whole, 0, bytes) }?;
        Ok(Buffer { whole, bytes, parts: RefCell::default() })
    }

    /// All of it.
    pub(super) fn whole(&self) -> &Memory {
        &self.whole
    }

    /// What a kernel is given to start at this byte, a multiple of the device's alignment within
    /// the buffer.
    pub(super) fn at(&self, offset: u64) -> Cl<cl_mem> {
        if offset == 0 {
            return Ok(self.whole.raw());
        }
        let mut parts = self.parts.borrow_mut();
        if let Some(part) = parts.get(&offset) {
            return Ok(part.raw());
        }
        let part = self.whole.part(offset, self.bytes.saturating_sub(offset))?;
        let raw = part.raw();
        parts.insert(offset, part);
        Ok(raw)
    }
}

/// Host copies of bytes that the device has not read yet.
#[derive(Default)]
pub(super) struct Staged {
    running: VecDeque<(Event, Vec<u8>)>,
    bytes: u64,
}

impl Staged {
    /// Bytes that may be on their way at once.
    const MOST: u64 = 128 << 20;

    /// Enqueues a copy of `bytes`, filled up with zeros to whole words, to a range that lies in
    /// the memory.
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

    /// Gives up what the device has read. Waits for the oldest where too much is on its way.
    ///
    /// # Errors
    /// That of a write which failed.
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
