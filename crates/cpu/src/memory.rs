//! Buffers: aligned, zeroed, counted against a budget, identified by index and generation.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use super::call::Span;
use warploom_core::error::{Error, Result};
use warploom_hal::checked::LiveBuffers;
use warploom_hal::{BufferId, BufferRange, Usage};

/// Alignment of every buffer, in bytes: that of a cache line and of the widest vector.
pub(super) const ALIGNMENT: u64 = 64;

/// One allocation.
pub(super) struct Block {
    ptr: NonNull<u8>,
    bytes: u64,
    owner: Owner,
}

/// How the memory of a block was allocated.
enum Owner {
    Heap(Layout),
    /// A separate mapping, with huge pages if the system has them: weights are read sequentially,
    /// and TLB misses on small pages would cost more than the reads. Held only to be dropped.
    #[cfg(target_os = "linux")]
    Pages {
        _pages: memmap2::MmapMut,
    },
}

/// Minimum size of a block with its own mapping, in bytes: two huge pages.
#[cfg(target_os = "linux")]
const PAGES_FROM: u64 = 4 << 20;

// SAFETY: a block owns its memory exclusively, like a box.
unsafe impl Send for Block {}

impl Block {
    fn new(bytes: u64) -> Option<Block> {
        // Ranges of checked work may extend to the end of the last word.
        let size = usize::try_from(bytes.checked_next_multiple_of(4)?).ok()?;
        #[cfg(target_os = "linux")]
        if bytes >= PAGES_FROM {
            let mut pages = memmap2::MmapMut::map_anon(size).ok()?;
            // Advisory: if it is refused, pages are small and the result is the same.
            let _ = pages.advise(memmap2::Advice::HugePage);
            let ptr = NonNull::new(pages.as_mut_ptr())?;
            return Some(Block { ptr, bytes, owner: Owner::Pages { _pages: pages } });
        }
        let layout = Layout::from_size_align(size, ALIGNMENT as usize).ok()?;
        // SAFETY: the size of the layout is not zero, since bytes are at least 1.
        let ptr = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Block { ptr, bytes, owner: Owner::Heap(layout) })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        match self.owner {
            // SAFETY: allocated with this layout, and dropped once.
            Owner::Heap(layout) => unsafe { dealloc(self.ptr.as_ptr(), layout) },
            #[cfg(target_os = "linux")]
            Owner::Pages { .. } => {}
        }
    }
}

/// All buffers of a device.
pub(super) struct Memory {
    slots: Vec<(u32, Option<Block>)>,
    free: Vec<u32>,
    budget: u64,
    /// Bytes currently allocated.
    pub(super) used: u64,
    /// Number of buffers freed so far.
    freed: u64,
}

impl Memory {
    pub(super) fn new(budget: u64) -> Memory {
        Memory { slots: Vec::new(), free: Vec::new(), budget, used: 0, freed: 0 }
    }

    /// Allocates a zeroed buffer.
    ///
    /// # Errors
    /// Invalid for zero bytes; out of memory if the budget is exceeded or the system refuses.
    pub(super) fn alloc(&mut self, bytes: u64, usage: Usage) -> Result<BufferId> {
        if bytes == 0 {
            return Err(Error::invalid("a buffer of 0 bytes"));
        }
        let have = self.budget.saturating_sub(self.used);
        let refuse = || Error::out_of_memory(format!("a {usage:?} buffer on cpu:0"), bytes, have);
        if bytes > have {
            return Err(refuse());
        }
        let block = Block::new(bytes).ok_or_else(refuse)?;
        self.used += bytes;
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.slots.push((0, None));
                (self.slots.len() - 1) as u32
            }
        };
        let slot = &mut self.slots[index as usize];
        slot.1 = Some(block);
        Ok(BufferId { index, generation: slot.0 })
    }

    /// Removes a buffer and returns its memory; `None` if the id is not live.
    pub(super) fn free(&mut self, id: BufferId) -> Option<Block> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.0 != id.generation {
            return None;
        }
        let block = slot.1.take()?;
        self.used -= block.bytes;
        self.freed += 1;
        slot.0 = slot.0.wrapping_add(1);
        self.free.push(id.index);
        Some(block)
    }

    /// Returns the memory of a range. It stays valid until the block that [`Memory::free`] returns
    /// is dropped.
    ///
    /// # Errors
    /// Invalid if the buffer is not live or the range exceeds it.
    pub(super) fn span(&self, range: BufferRange) -> Result<Span> {
        let id = range.buffer;
        let block = match self.slots.get(id.index as usize) {
            Some((generation, Some(block))) if *generation == id.generation => block,
            _ => {
                return Err(Error::invalid(format!(
                    "buffer {} of generation {} is not live",
                    id.index, id.generation
                )));
            }
        };
        let size = block.bytes;
        match range.offset.checked_add(range.bytes) {
            Some(end) if end <= size => {}
            _ => {
                return Err(Error::invalid(format!(
                    "{} bytes from byte {} pass the end of buffer {} at {size}",
                    range.bytes, range.offset, id.index
                )));
            }
        }
        // SAFETY: the offset is at most the size of the allocation.
        let ptr = unsafe { block.ptr.as_ptr().add(range.offset as usize) };
        Ok(Span { ptr, bytes: range.bytes })
    }
}

impl LiveBuffers for Memory {
    fn check(&self, range: BufferRange) -> Result<()> {
        self.span(range).map(drop)
    }

    fn freed(&self) -> u64 {
        self.freed
    }

    /// Kernels copy inputs that overlap their outputs.
    fn allows_aliasing(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_die_with_their_buffer_and_the_budget_holds() {
        let mut memory = Memory::new(100);
        let a = memory.alloc(60, Usage::Working).unwrap();
        let error = memory.alloc(41, Usage::State).unwrap_err();
        assert!(error.is_out_of_memory());
        assert!(error.to_string().contains("need 41 bytes, have 40 bytes"), "{error}");
        let whole = BufferRange { buffer: a, offset: 0, bytes: 60 };
        assert_eq!(memory.span(whole).unwrap().ptr as usize % 64, 0);
        assert!(memory.span(BufferRange { offset: 1, ..whole }).is_err());
        assert!(memory.span(BufferRange { offset: u64::MAX, ..whole }).is_err());
        assert!(memory.free(a).is_some());
        assert!(memory.free(a).is_none());
        assert_eq!(memory.used, 0);
        let b = memory.alloc(100, Usage::Working).unwrap();
        assert_eq!((b.index, b.generation), (a.index, 1));
        assert!(memory.span(whole).unwrap_err().to_string().contains("not live"));
        assert!(memory.alloc(0, Usage::Working).unwrap_err().is_invalid());
    }

    #[test]
    fn the_system_may_refuse_too() {
        let mut memory = Memory::new(u64::MAX);
        assert!(memory.alloc(u64::MAX / 2, Usage::Working).unwrap_err().is_out_of_memory());
        assert!(memory.alloc(8, Usage::Working).is_ok());
    }
}
