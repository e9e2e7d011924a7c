//! The buffer table of a device, generic over the driver's memory type.

use warploom_core::error::{Error, Result};
use warploom_hal::checked::LiveBuffers;
use warploom_hal::{BufferId, BufferRange, Table, Usage};

/// The buffers of a device; `M` is the driver's memory.
pub(crate) struct Buffers<M> {
    /// The device's id, for messages.
    device: String,
    /// Maximum number of bytes that may be allocated in total.
    budget: u64,
    /// Maximum size of one buffer, in bytes.
    largest: u64,
    table: Table<Buffer<M>>,
    used: u64,
    freed: u64,
}

struct Buffer<M> {
    memory: M,
    bytes: u64,
}

impl<M> Buffers<M> {
    /// Creates an empty table. `budget` is unlimited if it is `None`; `largest` is the maximum size
    /// of a buffer in bytes.
    pub(crate) fn new(device: String, budget: Option<u64>, largest: u64) -> Buffers<M> {
        let budget = budget.unwrap_or(u64::MAX);
        Buffers { device, budget, largest, table: Table::default(), used: 0, freed: 0 }
    }

    /// Checks that an allocation of this size is allowed.
    ///
    /// # Errors
    /// Invalid for zero bytes; out of memory if it exceeds the budget or the device's limit.
    pub(crate) fn admit(&self, bytes: u64, usage: Usage) -> Result<()> {
        let what = || format!("a {usage:?} buffer on {}", self.device);
        let left = self.budget.saturating_sub(self.used);
        if bytes == 0 {
            return Err(Error::invalid(format!("{} of 0 bytes", what())));
        }
        if bytes > left {
            return Err(Error::out_of_memory(what(), bytes, left));
        }
        if bytes > self.largest {
            let what = format!("{} (its limit)", what());
            return Err(Error::out_of_memory(what, bytes, self.largest));
        }
        Ok(())
    }

    /// Reserves bytes of the budget for the device's own use.
    ///
    /// # Errors
    /// Same as [`Buffers::admit`].
    #[cfg(feature = "cuda")]
    pub(crate) fn reserve(&mut self, bytes: u64, usage: Usage) -> Result<()> {
        self.admit(bytes, usage)?;
        self.budget -= bytes;
        Ok(())
    }

    /// Releases reserved bytes.
    #[cfg(feature = "cuda")]
    pub(crate) fn unreserve(&mut self, bytes: u64) {
        self.budget = self.budget.saturating_add(bytes);
    }

    /// Registers memory as a buffer of `bytes` bytes. The driver's allocation must be rounded up to
    /// whole words.
    pub(crate) fn insert(&mut self, memory: M, bytes: u64) -> BufferId {
        self.used += bytes;
        let (index, generation) = self.table.insert(Buffer { memory, bytes });
        BufferId { index, generation }
    }

    /// Removes a buffer and returns its memory; `None` if the id is not live.
    pub(crate) fn remove(&mut self, id: BufferId) -> Option<M> {
        let buffer = self.table.remove(id.index, id.generation)?;
        self.used -= buffer.bytes;
        self.freed += 1;
        Some(buffer.memory)
    }

    /// Returns the memory of a range's buffer; the range must lie within a live buffer.
    ///
    /// # Errors
    /// Invalid, with the sizes, if it does not.
    pub(crate) fn find(&self, range: BufferRange) -> Result<&M> {
        let BufferId { index, generation } = range.buffer;
        let buffer = self.table.get(index, generation).ok_or_else(|| {
            Error::invalid(format!("{:?} is not a live buffer of {}", range.buffer, self.device))
        })?;
        match range.offset.checked_add(range.bytes) {
            Some(end) if end <= buffer.bytes => Ok(&buffer.memory),
            _ => Err(Error::invalid(format!(
                "{} bytes at {} pass the end of {:?} at {}",
                range.bytes, range.offset, range.buffer, buffer.bytes
            ))),
        }
    }

    /// Returns the memory of a live buffer, for ranges of checked work. These may extend to the end
    /// of the word that holds the buffer's last byte.
    ///
    /// # Errors
    /// Invalid if the buffer is not live.
    pub(crate) fn memory(&self, id: BufferId) -> Result<&M> {
        self.find(BufferRange { buffer: id, offset: 0, bytes: 0 })
    }

    /// Checks a call of `Device::write` and returns the target memory.
    ///
    /// # Errors
    /// Invalid if lengths differ, the offset is unaligned or the range exceeds the buffer.
    pub(crate) fn find_for_write(&self, to: BufferRange, bytes: usize) -> Result<&M> {
        if bytes as u64 != to.bytes || !to.offset.is_multiple_of(4) {
            return Err(Error::invalid(format!(
                "a write of {bytes} bytes to {} bytes at {}, which must be a multiple of 4",
                to.bytes, to.offset
            )));
        }
        self.find(to)
    }

    /// Returns the number of bytes currently allocated.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }
}

impl<M> LiveBuffers for Buffers<M> {
    fn check(&self, range: BufferRange) -> Result<()> {
        self.find(range).map(drop)
    }

    fn freed(&self) -> u64 {
        self.freed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_holds_and_dead_ids_find_nothing() {
        let mut buffers = Buffers::new("cuda:0".into(), Some(100), 80);
        buffers.admit(60, Usage::Working).unwrap();
        let a = buffers.insert("a", 60);
        let error = buffers.admit(41, Usage::State).unwrap_err();
        assert!(error.is_out_of_memory());
        assert!(error.to_string().contains("need 41 bytes, have 40 bytes"), "{error}");
        assert!(buffers.admit(0, Usage::State).unwrap_err().is_invalid());
        let whole = BufferRange { buffer: a, offset: 0, bytes: 60 };
        assert_eq!(*buffers.find(whole).unwrap(), "a");
        assert!(buffers.find(BufferRange { offset: u64::MAX, ..whole }).unwrap_err().is_invalid());
        assert!(buffers.find_for_write(whole, 59).unwrap_err().is_invalid());
        let odd = BufferRange { offset: 2, bytes: 4, ..whole };
        assert!(buffers.find_for_write(odd, 4).unwrap_err().is_invalid());
        assert_eq!(buffers.remove(a), Some("a"));
        assert_eq!(buffers.remove(a), None);
        assert_eq!((buffers.used(), buffers.freed()), (0, 1));
        let text = buffers.find(whole).unwrap_err().to_string();
        assert!(text.contains("not a live buffer of cuda:0"), "{text}");
        assert!(buffers.admit(81, Usage::Weights).unwrap_err().is_out_of_memory());
        buffers.admit(80, Usage::Weights).unwrap();
    }

    #[test]
    #[cfg(feature = "cuda")]
    fn reserved_memory_is_exclusive_until_it_is_returned() {
        let mut buffers: Buffers<()> = Buffers::new("cuda:0".into(), Some(100), 80);
        buffers.reserve(70, Usage::Working).unwrap();
        let error = buffers.admit(31, Usage::Working).unwrap_err();
        assert!(error.to_string().contains("need 31 bytes, have 30 bytes"), "{error}");
        assert!(buffers.reserve(31, Usage::Working).unwrap_err().is_out_of_memory());
        buffers.admit(30, Usage::Working).unwrap();
        buffers.unreserve(50);
        buffers.admit(80, Usage::Working).unwrap();
    }
}
