//! Device memory, pinned host memory, and events, each freed when dropped.

use std::sync::Arc;

use cudarc::driver::{result, sys};

use super::driver::is_loss;
use super::gpu::Gpu;
use warploom_core::error::{Error, Result};

/// Device memory, freed in stream order.
pub(super) struct Memory {
    gpu: Arc<Gpu>,
    /// Device address.
    pub(super) address: sys::CUdeviceptr,
}

impl Memory {
    /// Allocates zeroed memory, its size rounded up to a multiple of 16 bytes. If the driver
    /// refuses, the pool's retained memory is released and the allocation retried.
    ///
    /// # Errors
    /// Out of memory for `what`, with the free bytes that the driver reports.
    pub(super) fn zeroed(gpu: &Arc<Gpu>, bytes: u64, what: &str) -> Result<Memory> {
        let refused = || {
            let have = result::mem_get_info().map_or(0, |(free, _)| free as u64);
            Error::out_of_memory(what, bytes, have)
        };
        let Some(size) = bytes.checked_next_multiple_of(16).and_then(|b| usize::try_from(b).ok())
        else {
            return Err(refused());
        };
        let address = match Memory::ask(gpu, size) {
            Ok(address) => address,
            Err(error) if is_loss(error) => return gpu.check(what, Err(error)),
            Err(_) => {
                gpu.synchronize()?;
                if let Some(pool) = gpu.pool {
                    // SAFETY: a pool that lives.
                    gpu.check(what, unsafe { result::mem_pool::trim_to(pool, 0) })?;
                }
                match Memory::ask(gpu, size) {
                    Ok(address) => address,
                    Err(error) if error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                        return Err(refused());
                    }
                    Err(error) => return gpu.check(what, Err(error)),
                }
            }
        };
        let memory = Memory { gpu: Arc::clone(gpu), address };
        // SAFETY: within what was allocated.
        let set = unsafe { result::memset_d8_async(address, 0, size, gpu.stream) };
        gpu.check(what, set)?;
        Ok(memory)
    }

    fn ask(gpu: &Gpu, size: usize) -> Result<sys::CUdeviceptr, cudarc::driver::DriverError> {
        match gpu.pool {
            // SAFETY: pool and stream live; the memory is filled before it is read.
            Some(pool) => unsafe { result::mem_pool::alloc_async(pool, size, gpu.stream) },
            // SAFETY: as above.
            None => unsafe { result::malloc_sync(size) },
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let Ok(_current) = self.gpu.enter() else { return };
        // SAFETY: allocated the same way, and used by nothing that comes later in the stream.
        let _ = unsafe {
            match self.gpu.pool {
                Some(_) => result::free_async(self.address, self.gpu.stream),
                None => result::free_sync(self.address),
            }
        };
    }
}

/// Pinned host memory, which the device copies from and to directly.
pub(super) struct Pinned {
    gpu: Arc<Gpu>,
    at: *mut u8,
    /// Size in bytes.
    pub(super) bytes: usize,
}

// SAFETY: it owns its memory exclusively, like a box.
unsafe impl Send for Pinned {}
// SAFETY: as above: shared, its bytes are only read.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Allocates `bytes` bytes, at least one, and zeroes them, so that reads are always sound.
    pub(super) fn new(gpu: &Arc<Gpu>, bytes: usize) -> Result<Pinned> {
        // SAFETY: no flags: memory that is cached, since it is read as well.
        let at = unsafe { result::malloc_host(bytes, 0) };
        let at = gpu.check("pinned memory", at)?.cast::<u8>();
        // SAFETY: the allocation has `bytes` bytes.
        unsafe { at.write_bytes(0, bytes) };
        Ok(Pinned { gpu: Arc::clone(gpu), at, bytes })
    }

    /// Returns the bytes; the device must not be using them.
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: allocated and initialised.
        unsafe { std::slice::from_raw_parts(self.at, self.bytes) }
    }

    /// Returns the bytes; the device must not be using them.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: allocated, initialised, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.bytes) }
    }

    /// Returns the address of the byte at `offset`, for device copies.
    pub(super) fn at(&self, offset: usize) -> *mut std::ffi::c_void {
        self.at.wrapping_add(offset).cast()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Ok(_current) = self.gpu.enter() {
            // SAFETY: allocated by the call that this one undoes.
            let _ = unsafe { result::free_host(self.at.cast()) };
        }
    }
}

/// Pinned host memory of CUDA devices, initially zero. Writing at least 1 MiB of it, in a multiple
/// of 4 bytes, to an idle device ([`Device::write`](warploom_hal::Device::write)) needs no copy on
/// the host.
pub struct PinnedBytes(pub(super) Pinned);

warploom_core::base::debug_as!(PinnedBytes, |this| bytes: this.0.bytes().len());

impl std::ops::Deref for PinnedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl std::ops::DerefMut for PinnedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }
}

/// Returns whether the driver reports these bytes as pinned memory, whatever allocated them. A
/// context must be current.
pub(super) fn is_pinned(bytes: &[u8]) -> bool {
    let known = |byte: Option<&u8>| {
        let Some(byte) = byte else { return false };
        let mut kind = 0u32;
        let which = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
        let address = std::ptr::from_ref(byte).addr() as sys::CUdeviceptr;
        // SAFETY: this attribute is a 32-bit integer; an address that the driver does not know is
        // an error.
        let asked = unsafe { sys::cuPointerGetAttribute((&raw mut kind).cast(), which, address) };
        asked == sys::CUresult::CUDA_SUCCESS && kind == sys::CUmemorytype::CU_MEMORYTYPE_HOST as u32
    };
    known(bytes.first()) && known(bytes.last())
}

/// A point in the stream that can be waited for.
pub(super) struct Event {
    gpu: Arc<Gpu>,
    event: sys::CUevent,
}

// SAFETY: a handle of the driver, which locks for itself.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// Creates an event to wait for; if `timed`, it also records the device's time.
    pub(super) fn new(gpu: &Arc<Gpu>, timed: bool) -> Result<Event> {
        use sys::CUevent_flags::{CU_EVENT_BLOCKING_SYNC, CU_EVENT_DEFAULT};
        let flags = if timed { CU_EVENT_DEFAULT } else { CU_EVENT_BLOCKING_SYNC };
        let event = gpu.check("an event", result::event::create(flags))?;
        Ok(Event { gpu: Arc::clone(gpu), event })
    }

    /// Returns the handle, for driver calls.
    pub(super) fn raw(&self) -> sys::CUevent {
        self.event
    }

    /// Records the event after all work in the stream.
    pub(super) fn record(&self) -> Result<()> {
        // SAFETY: event and stream live.
        let recorded = unsafe { result::event::record(self.event, self.gpu.stream) };
        self.gpu.check("an event", recorded)
    }

    /// Whether the stream has reached the event.
    pub(super) fn is_done(&self) -> Result<bool> {
        // SAFETY: an event that lives.
        match unsafe { result::event::query(self.event) } {
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            answer => self.gpu.check("waiting", answer).map(|()| true),
        }
    }

    /// Waits until the stream has reached the event.
    pub(super) fn wait(&self) -> Result<()> {
        // SAFETY: an event that lives.
        self.gpu.check("waiting", unsafe { result::event::synchronize(self.event) })
    }

    /// Returns the nanoseconds from an earlier event to this one; both must be timed and complete.
    pub(super) fn nanoseconds_since(&self, earlier: &Event) -> Result<u64> {
        // SAFETY: events that live.
        let elapsed = unsafe { result::event::elapsed(earlier.event, self.event) };
        let milliseconds = self.gpu.check("a timestamp", elapsed)?;
        Ok((f64::from(milliseconds.max(0.0)) * 1e6) as u64)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(_current) = self.gpu.enter() {
            // SAFETY: made by `new`; the driver keeps it until the stream has passed it.
            let _ = unsafe { result::event::destroy(self.event) };
        }
    }
}
