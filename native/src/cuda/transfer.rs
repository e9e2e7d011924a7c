//! Host-device transfers: uploads through a ring of pinned memory, downloads into pinned memory.

use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{result, sys};

use super::device::CudaDevice;
use super::gpu::Gpu;
use super::memory::{Event, Pinned, is_pinned};
use warploom_core::error::{Error, Result};
use warploom_hal::BufferRange;

/// Alignment of staged uploads in bytes, for the device's copies.
const STEP: usize = 64;
/// Number of segments in a ring, so that one is filled while the device copies another.
const SEGMENTS: usize = 4;
/// Minimum size, in bytes, of an upload that uses larger segments, filled by several threads.
const BULK: usize = 1 << 20;

/// Pinned staging buffers of uploads.
pub(super) struct Staging {
    small: Ring,
    bulk: Ring,
    threads: usize,
}

/// A ring of pinned memory, reused by segments.
struct Ring {
    /// Size of a segment in bytes: the maximum size of one copy.
    bytes: usize,
    segments: Vec<Segment>,
    /// Index of the segment being filled.
    current: usize,
}

struct Segment {
    memory: Pinned,
    used: usize,
    /// Recorded after the last copy from the segment, once it is full.
    done: Event,
    full: bool,
}

impl Staging {
    pub(super) fn new() -> Staging {
        let ring = |bytes| Ring { bytes, segments: Vec::new(), current: 0 };
        // A thread copies about 10 GB/s; four approach the bus bandwidth.
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get().min(4));
        Staging { small: ring(BULK), bulk: ring(16 << 20), threads }
    }

    /// Enqueues a copy of bytes to the device; the bytes need not outlive the call. An incomplete
    /// last word is padded with zeros.
    pub(super) fn upload(
        &mut self,
        gpu: &Arc<Gpu>,
        to: sys::CUdeviceptr,
        bytes: &[u8],
    ) -> Result<()> {
        let is_bulk = bytes.len() >= BULK;
        let ring = if is_bulk { &mut self.bulk } else { &mut self.small };
        let mut at = to;
        for piece in bytes.chunks(ring.bytes) {
            let room = ring.room(gpu, piece.len().next_multiple_of(4))?;
            let (filled, rest) = room.split_at_mut(piece.len());
            fill(filled, piece, if is_bulk { self.threads } else { 1 });
            rest.fill(0);
            // SAFETY: the device reads the chunk before the segment is filled again.
            let copied = unsafe { result::memcpy_htod_async(at, &*room, gpu.stream) };
            gpu.check("an upload", copied)?;
            at += piece.len() as u64;
        }
        Ok(())
    }
}

/// Copies `from` to `to` on this number of threads, or on fewer if the system refuses more.
fn fill(to: &mut [u8], from: &[u8], threads: usize) {
    const SHARE: usize = 1 << 20;
    let parts = Mutex::new(to.chunks_mut(SHARE).zip(from.chunks(SHARE)));
    let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some((to, from)) = next() {
            to.copy_from_slice(from);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // If the thread cannot start, the others do its share.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
}

impl Ring {
    /// Returns the next bytes of the ring to fill; waits until the device has read their old
    /// contents.
    fn room(&mut self, gpu: &Arc<Gpu>, bytes: usize) -> Result<&mut [u8]> {
        if let Some(segment) = self.segments.get_mut(self.current) {
            segment.used = segment.used.next_multiple_of(STEP);
            if segment.used + bytes > self.bytes {
                segment.done.record()?;
                segment.full = true;
                self.current = (self.current + 1) % SEGMENTS;
            }
        }
        if self.current == self.segments.len() {
            let (memory, done) = (Pinned::new(gpu, self.bytes)?, Event::new(gpu, false)?);
            self.segments.push(Segment { memory, used: 0, done, full: false });
        }
        let segment = &mut self.segments[self.current];
        if segment.full {
            segment.done.wait()?;
            segment.full = false;
            segment.used = 0;
        }
        let begin = segment.used;
        segment.used += bytes;
        Ok(&mut segment.memory.bytes_mut()[begin..begin + bytes])
    }
}

impl CudaDevice {
    /// Implements `Device::write`: ordered after earlier submits. The caller may reuse the bytes
    /// when it returns.
    pub(super) fn write_bytes(&self, to: BufferRange, bytes: &[u8]) -> Result<()> {
        self.gpu.check_lost()?;
        let _current = self.gpu.enter()?;
        let mut state = self.state();
        let address = state.buffers.find_for_write(to, bytes.len())?.address + to.offset;
        let whole = bytes.len() >= BULK && bytes.len().is_multiple_of(4);
        if whole && state.is_idle() && is_pinned(bytes) {
            // SAFETY: the range was checked; the bytes are the caller's until they are read.
            let copied = unsafe { result::memcpy_htod_async(address, bytes, self.gpu.stream) };
            let copied = self.gpu.check("an upload", copied);
            // Waits even if the copy failed: part of it may be in flight.
            self.gpu.synchronize().and(copied)?;
        } else {
            state.staging.upload(&self.gpu, address, bytes)?;
            state.counters.staged_bytes += bytes.len() as u64;
        }
        state.counters.uploaded_bytes += bytes.len() as u64;
        Ok(())
    }
}

/// Pinned memory reused between downloads.
#[derive(Default)]
pub(super) struct PinnedPool {
    free: Vec<Pinned>,
}

impl PinnedPool {
    /// Maximum number of blocks kept.
    const KEPT: usize = 8;
    /// Maximum size of a block kept, in bytes.
    const LARGEST: usize = 64 << 20;

    fn take(&mut self, gpu: &Arc<Gpu>, bytes: usize) -> Result<Pinned> {
        let fits = |size: usize| size >= bytes && size <= bytes.saturating_mul(8).max(4096);
        let found = self.free.iter().enumerate().filter(|(_, memory)| fits(memory.bytes));
        if let Some((place, _)) = found.min_by_key(|(_, memory)| memory.bytes) {
            return Ok(self.free.swap_remove(place));
        }
        Pinned::new(gpu, bytes.max(4096).next_power_of_two())
    }

    fn give(&mut self, memory: Pinned) {
        if self.free.len() < Self::KEPT && memory.bytes <= Self::LARGEST {
            self.free.push(memory);
        }
    }
}

/// The downloads of one submit, in one block of pinned memory.
pub(super) struct Readback {
    memory: Pinned,
    /// Offset and size of each download, in bytes.
    places: Vec<(usize, usize)>,
}

impl Readback {
    /// Allocates memory for downloads of these sizes, in bytes.
    pub(super) fn new(pool: &mut PinnedPool, gpu: &Arc<Gpu>, sizes: &[u64]) -> Result<Readback> {
        let mut used = 0usize;
        let mut places = Vec::with_capacity(sizes.len());
        for bytes in sizes {
            let bytes = *bytes as usize;
            places.push((used, bytes));
            let end = used.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(STEP));
            used = end.ok_or_else(|| Error::out_of_memory("downloads", u64::MAX, 0))?;
        }
        Ok(Readback { memory: pool.take(gpu, used.max(1))?, places })
    }

    /// Enqueues the copy of download number `index`.
    pub(super) fn copy(&self, gpu: &Gpu, index: usize, from: sys::CUdeviceptr) -> Result<()> {
        let Some((offset, bytes)) = self.places.get(index).copied() else { return Ok(()) };
        if bytes == 0 {
            return Ok(());
        }
        let to = self.memory.at(offset);
        // SAFETY: within the pinned memory, which is kept until the copy is done.
        let copied = unsafe { sys::cuMemcpyDtoHAsync_v2(to, from, bytes, gpu.stream) };
        gpu.check("a download", copied.result())
    }

    /// Returns the bytes of every download, which must be complete, and returns the memory to the
    /// pool.
    pub(super) fn finish(self, pool: &mut PinnedPool) -> Vec<Vec<u8>> {
        let bytes = self.memory.bytes();
        let downloads =
            self.places.iter().map(|(at, size)| bytes[*at..at + size].to_vec()).collect();
        pool.give(self.memory);
        downloads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_a_copy() {
        let from: Vec<u8> = (0..(3u32 << 20) + 7).map(|i| (i % 251) as u8).collect();
        for threads in [1, 4] {
            let mut to = vec![0; from.len()];
            fill(&mut to, &from, threads);
            assert!(to == from, "{threads} threads");
        }
        fill(&mut [], &[], 4);
    }
}
